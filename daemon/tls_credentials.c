/*
 * The credentials of a server: from files to an SSL_CTX.
 *
 * Each file is read once, whole, and parsed from memory; all that was read goes into a digest, so that a reload can
 * tell whether anything is new. Credentials are counted by who holds them: who made them, and each stream that uses
 * them, on whichever thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/log.h"
#include "daemon/secrets.h"
#include "daemon/tls.h"
#include "daemon/tls_internal.h"

enum {
    READ_AHEAD_BYTES = 64 * KIB
}; /* held by each connection: to take and give it back costs as much as the cipher */

/* Forward secrecy and authenticated ciphers only. SHA-256 first: that is what a PSK of TLS 1.3 goes with. */
#define CIPHERS_13 "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384"
#define CIPHERS_12                                                                                                     \
    "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20:"                                                             \
    "ECDHE-PSK-CHACHA20-POLY1305:DHE-PSK-AES128-GCM-SHA256:DHE-PSK-AES256-GCM-SHA384:DHE-PSK-CHACHA20-POLY1305"

struct stream_credentials {
    atomic_uint holders;
    SSL_CTX *ctx; /* its application data is this struct */
    struct tls_psks *psks;
    BIO_METHOD *socket;
    unsigned char digest[EVP_MAX_MD_SIZE];
};

struct loader {
    const struct tls_settings *settings;
    struct stream_credentials *to;
    SSL_CTX *ctx;
    EVP_MD_CTX *digest;
    const char *wrong; /* the setting */
    char *why;
    size_t why_len;
};

/* --- files --- */

struct text {
    char *bytes;
    size_t len;
};

static void text_free(struct text *text)
{
    if (text->bytes != NULL)
        OPENSSL_cleanse(text->bytes, text->len);
    free(text->bytes);
}

/* All there is; -1 and errno: it cannot be read, or is far too long. */
static int read_all(int fd, struct text *out)
{
    ssize_t got = 1;
    for (out->bytes = malloc(TLS_FILE_MAX); out->bytes != NULL && got > 0 && out->len < TLS_FILE_MAX;
         out->len += (size_t)MAX(got, (ssize_t)0))
        got = read(fd, out->bytes + out->len, TLS_FILE_MAX - out->len);
    if (out->bytes == NULL || got < 0)
        return -1;
    errno = EFBIG;
    return out->len < TLS_FILE_MAX ? 0 : -1;
}

/* Complain about a setting. */
static bool complain(struct loader *l, const char *setting, const char *path, const char *what)
{
    unsigned long code = ERR_peek_last_error();
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;
    l->wrong = setting;
    text_format(l->why, l->why_len, "%s %s%s%s", path, what, reason != NULL ? ": " : "", reason != NULL ? reason : "");
    ERR_clear_error();
    return false;
}

static bool load_text(struct loader *l, const char *setting, const char *path, bool secret, struct text *out)
{
    *out = (struct text){0};
    l->wrong = setting;
    int fd = secret ? secret_open(path, l->why, l->why_len) : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && secret)
        return false;
    bool good = fd >= 0 && read_all(fd, out) == 0;
    if (!good)
        text_format(l->why, l->why_len, "%s cannot be read: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return good && EVP_DigestUpdate(l->digest, setting, strlen(setting)) == 1 &&
           EVP_DigestUpdate(l->digest, out->bytes, out->len) == 1;
}

/* --- the server's certificate and key --- */

/* Nobody is asked for a password. */
static int no_password(char *out, int len, int writing, void *data)
{
    (void)out, (void)len, (void)writing, (void)data;
    return -1;
}

static bool take_chain(SSL_CTX *ctx, BIO *pem)
{
    X509 *own = PEM_read_bio_X509_AUX(pem, NULL, no_password, NULL), *next;
    bool good = own != NULL && SSL_CTX_use_certificate(ctx, own) == 1;
    X509_free(own);
    while (good && (next = PEM_read_bio_X509(pem, NULL, no_password, NULL)) != NULL) {
        good = SSL_CTX_add0_chain_cert(ctx, next) == 1;
        if (!good)
            X509_free(next);
    }
    if (good)
        ERR_clear_error(); /* the end of the file is one */
    return good;
}

static bool take_key(SSL_CTX *ctx, BIO *pem)
{
    EVP_PKEY *key = PEM_read_bio_PrivateKey(pem, NULL, no_password, NULL);
    bool good = key != NULL && SSL_CTX_use_PrivateKey(ctx, key) == 1;
    EVP_PKEY_free(key);
    return good;
}

static bool load_pem(struct loader *l, const char *setting, const char *path, bool secret,
                     bool (*take)(SSL_CTX *, BIO *), const char *wrong)
{
    struct text text;
    if (!load_text(l, setting, path, secret, &text)) {
        text_free(&text);
        return false;
    }
    BIO *pem = BIO_new_mem_buf(text.bytes, (int)text.len);
    bool good = pem != NULL && take(l->ctx, pem);
    BIO_free(pem);
    text_free(&text);
    return good || complain(l, setting, path, wrong);
}

static bool load_certificate(struct loader *l)
{
    const struct tls_settings *s = l->settings;
    if (*s->certificate == '\0')
        return *s->key == '\0' || complain(l, "key", s->key, "has no use without a certificate");
    if (*s->key == '\0')
        return complain(l, "certificate", s->certificate, "needs a key");
    if (!load_pem(l, "certificate", s->certificate, false, take_chain, "holds no certificate") ||
        !load_pem(l, "key", s->key, true, take_key, "holds no key of the certificate"))
        return false;
    const X509 *own = SSL_CTX_get0_certificate(l->ctx);
    if (X509_cmp_current_time(X509_get0_notAfter(own)) < 0)
        log_warn("TLS: the certificate in %s has expired: clients will not believe it", s->certificate);
    return true;
}

/* --- those who sign clients' certificates --- */

/* Certificates and lists of those taken back go into the same store. */
static bool take_authorities(SSL_CTX *ctx, BIO *pem)
{
    X509_STORE *store = SSL_CTX_get_cert_store(ctx);
    STACK_OF(X509_INFO) *found = PEM_X509_INFO_read_bio(pem, NULL, no_password, NULL);
    bool good = sk_X509_INFO_num(found) > 0;
    for (int i = 0; i < sk_X509_INFO_num(found); i++) {
        const X509_INFO *info = sk_X509_INFO_value(found, i);
        if (info->x509 != NULL)
            good = good && X509_STORE_add_cert(store, info->x509) == 1 && SSL_CTX_add_client_CA(ctx, info->x509) == 1;
        if (info->crl != NULL)
            good = good && X509_STORE_add_crl(store, info->crl) == 1;
    }
    sk_X509_INFO_pop_free(found, X509_INFO_free);
    return good;
}

static bool load_authorities(struct loader *l)
{
    const struct tls_settings *s = l->settings;
    if (*s->ca == '\0')
        return *s->revoked == '\0' || complain(l, "revoked", s->revoked, "has no use without a ca");
    if (*s->certificate == '\0')
        return complain(l, "ca", s->ca, "has no use without a certificate of the server");
    if (!load_pem(l, "ca", s->ca, false, take_authorities, "holds no certificate"))
        return false;
    SSL_CTX_set_verify(l->ctx, SSL_VERIFY_PEER | (s->clients_need_one ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0), NULL);
    if (*s->revoked == '\0')
        return true;
    X509_STORE_set_flags(SSL_CTX_get_cert_store(l->ctx), X509_V_FLAG_CRL_CHECK);
    return load_pem(l, "revoked", s->revoked, false, take_authorities, "holds no list of revoked certificates");
}

/* --- keys shared beforehand --- */

/* For TLS 1.2, and for 1.3 as well. */
static unsigned find_psk(SSL *ssl, const char *name, unsigned char *key, unsigned room)
{
    const struct stream_credentials *credentials = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    struct tls_handshake *handshake = SSL_get_app_data(ssl);
    unsigned len = tls_psks_find(credentials->psks, name, strlen(name), key, room);
    text_format(handshake->psk_name, sizeof handshake->psk_name, "%s", len > 0 ? name : "");
    return len;
}

static bool load_psks(struct loader *l)
{
    const char *path = l->settings->psk;
    struct text text;
    char why[128];
    if (*path == '\0')
        return *l->settings->certificate != '\0' || complain(l, "tls", "TLS", "needs a certificate or a file of PSKs");
    if (load_text(l, "psk", path, true, &text)) {
        l->to->psks = tls_psks_parse(text.bytes, text.len, why, sizeof why);
        if (l->to->psks == NULL)
            text_format(l->why, l->why_len, "%s: %s", path, why);
    }
    text_free(&text);
    SSL_CTX_set_psk_server_callback(l->ctx, find_psk);
    return l->to->psks != NULL;
}

/* --- the context --- */

static void set_options(SSL_CTX *ctx)
{
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(ctx, 0);
    SSL_CTX_set_dh_auto(ctx, 1);
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_default_read_buffer_len(ctx, READ_AHEAD_BYTES);
    SSL_CTX_set_session_id_context(ctx, (const unsigned char *)"corbel", 6); /* to OpenSSL a PSK is a session */
}

static bool load(struct loader *l)
{
    SSL_CTX *ctx = l->ctx;
    set_options(ctx);
    SSL_CTX_set_app_data(ctx, l->to);
    bool ciphers = SSL_CTX_set_ciphersuites(ctx, CIPHERS_13) == 1 && SSL_CTX_set_cipher_list(ctx, CIPHERS_12) == 1;
    const bool *need_one = &l->settings->clients_need_one;
    return ciphers && EVP_DigestInit_ex(l->digest, EVP_sha256(), NULL) == 1 &&
           EVP_DigestUpdate(l->digest, need_one, sizeof *need_one) == 1 && load_certificate(l) && load_authorities(l) &&
           load_psks(l) && EVP_DigestFinal_ex(l->digest, l->to->digest, NULL) == 1;
}

struct stream_credentials *tls_credentials_create(const struct tls_settings *settings, const char **wrong, char *why,
                                                  size_t why_len)
{
    struct stream_credentials *credentials = calloc(1, sizeof *credentials);
    struct loader l = {settings, credentials, SSL_CTX_new(TLS_server_method()), EVP_MD_CTX_new(), "tls", why, why_len};
    bool good = credentials != NULL && l.ctx != NULL && l.digest != NULL;
    text_format(why, why_len, "OpenSSL cannot be set up"); /* what is said unless there is a better reason */
    if (good) {
        credentials->ctx = l.ctx;
        credentials->socket = tls_socket_method();
        atomic_init(&credentials->holders, 1);
        good = credentials->socket != NULL && load(&l);
        if (!good)
            tls_credentials_free(credentials);
    } else {
        SSL_CTX_free(l.ctx);
        free(credentials);
    }
    EVP_MD_CTX_free(l.digest);
    ERR_clear_error();
    *wrong = l.wrong;
    return good ? credentials : NULL;
}

void tls_credentials_free(struct stream_credentials *credentials)
{
    if (credentials == NULL || atomic_fetch_sub(&credentials->holders, 1) > 1)
        return;
    SSL_CTX_free(credentials->ctx);
    BIO_meth_free(credentials->socket);
    tls_psks_free(credentials->psks);
    free(credentials);
}

bool tls_credentials_same(const struct stream_credentials *a, const struct stream_credentials *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    return memcmp(a->digest, b->digest, sizeof a->digest) == 0;
}

SSL *tls_credentials_open(struct stream_credentials *credentials, int fd, struct tls_wire *wire)
{
    SSL *ssl = SSL_new(credentials->ctx);
    BIO *bio = ssl != NULL ? BIO_new(credentials->socket) : NULL;
    if (bio == NULL) {
        SSL_free(ssl);
        ERR_clear_error();
        return NULL;
    }
    BIO_set_fd(bio, fd, BIO_NOCLOSE);
    BIO_set_app_data(bio, wire);
    SSL_set_bio(ssl, bio, bio);
    atomic_fetch_add(&credentials->holders, 1);
    return ssl;
}

void tls_credentials_shut(SSL *ssl)
{
    struct stream_credentials *credentials = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    SSL_free(ssl);
    ERR_clear_error();
    tls_credentials_free(credentials);
}
