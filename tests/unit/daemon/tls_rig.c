#include "tests/unit/daemon/tls_rig.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/log.h"

/* --- files --- */

const char *tls_path(const struct tls_place *place, const char *name)
{
    static _Thread_local char paths[8][128];
    static _Thread_local unsigned next;
    char *path = paths[next++ % ARRAY_LENGTH(paths)];
    text_format(path, sizeof paths[0], "%s/%s", place->dir, name);
    return path;
}

void tls_file(const struct tls_place *place, const char *name, const char *text, size_t len, unsigned mode)
{
    int fd = open(tls_path(place, name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert(fd >= 0 && write(fd, text, len) == (ssize_t)len);
    fchmod(fd, mode);
    close(fd);
}

static void write_pem(const struct tls_place *place, const char *name, const char *suffix, X509 *certificate,
                      EVP_PKEY *key)
{
    char file[64], *text;
    BIO *bio = BIO_new(BIO_s_mem());
    text_format(file, sizeof file, "%s%s", name, suffix);
    cr_assert((certificate != NULL ? PEM_write_bio_X509(bio, certificate)
                                   : PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL)) == 1);
    long len = BIO_get_mem_data(bio, &text);
    tls_file(place, file, text, (size_t)len, 0600);
    BIO_free(bio);
}

static void add_extension(X509 *certificate, int nid, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    cr_assert_not_null(extension, "%s", value);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
}

static X509 *new_certificate(struct tls_place *place, EVP_PKEY *key, const unsigned char *common, int common_len)
{
    X509 *certificate = X509_new();
    X509_set_version(certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), (long)++place->serial);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 86400);
    X509_set_pubkey(certificate, key);
    X509_NAME_add_entry_by_NID(X509_get_subject_name(certificate), NID_commonName, V_ASN1_UTF8STRING, common,
                               common_len, -1, 0);
    return certificate;
}

static void make_ca(struct tls_place *place, const char *name, EVP_PKEY **key, X509 **ca)
{
    *key = EVP_EC_gen("P-256");
    *ca = new_certificate(place, *key, (const unsigned char *)name, -1);
    add_extension(*ca, NID_basic_constraints, "critical,CA:TRUE");
    X509_set_issuer_name(*ca, X509_get_subject_name(*ca));
    cr_assert(X509_sign(*ca, *key, EVP_sha256()) > 0);
    write_pem(place, name, ".pem", *ca, NULL);
}

void tls_certificate(struct tls_place *place, const char *name, bool of_other, const unsigned char *common,
                     int common_len, const char *names)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = new_certificate(place, key, common, common_len), *ca = of_other ? place->other : place->ca;
    if (names != NULL)
        add_extension(certificate, NID_subject_alt_name, names);
    X509_set_issuer_name(certificate, X509_get_subject_name(ca));
    cr_assert(X509_sign(certificate, of_other ? place->other_key : place->ca_key, EVP_sha256()) > 0);
    write_pem(place, name, ".pem", certificate, NULL);
    write_pem(place, name, ".key", NULL, key);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

struct tls_place tls_place_make(void)
{
    static const char psk[] = "# who may\n\ncarol:000102030405060708090a0b0c0d0e0F\n";
    struct tls_place place = {.dir = "/tmp/corbel-tls-XXXXXX"};
    cr_assert_not_null(mkdtemp(place.dir));
    make_ca(&place, "ca", &place.ca_key, &place.ca);
    make_ca(&place, "other", &place.other_key, &place.other);
    tls_certificate(&place, "server", false, (const unsigned char *)"server", -1, "DNS:localhost");
    tls_certificate(&place, "alice", false, (const unsigned char *)"alice", -1,
                    "DNS:alice.example.org,email:alice@example.org,URI:urn:x:alice,IP:192.0.2.7,IP:2001:db8::7");
    tls_certificate(&place, "mallory", true, (const unsigned char *)"alice", -1, "DNS:alice.example.org");
    tls_file(&place, "psk", psk, strlen(psk), 0600);
    return place;
}

void tls_place_drop(struct tls_place *place)
{
    DIR *dir = opendir(place->dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        unlink(tls_path(place, entry->d_name));
    closedir(dir);
    rmdir(place->dir);
    X509_free(place->ca);
    X509_free(place->other);
    EVP_PKEY_free(place->ca_key);
    EVP_PKEY_free(place->other_key);
}

struct tls_settings tls_settings_full(const struct tls_place *place)
{
    return (struct tls_settings){.certificate = tls_path(place, "server.pem"),
                                 .key = tls_path(place, "server.key"),
                                 .ca = tls_path(place, "ca.pem"),
                                 .revoked = "",
                                 .psk = tls_path(place, "psk"),
                                 .clients_need_one = true};
}

struct stream_credentials *tls_credentials_of(const struct tls_settings *settings)
{
    char why[300] = "";
    const char *wrong;
    struct stream_credentials *credentials = tls_credentials_create(settings, &wrong, why, sizeof why);
    cr_assert_not_null(credentials, "%s", why);
    return credentials;
}

/* --- the client --- */

static unsigned give_psk(SSL *ssl, const char *hint, char *name, unsigned name_len, unsigned char *key,
                         unsigned key_len)
{
    const struct tls_client *client = SSL_get_app_data(ssl);
    size_t len = 0;
    (void)hint;
    text_format(name, name_len, "%s", client->psk_name);
    cr_assert(OPENSSL_hexstr2buf_ex(key, key_len, &len, client->psk, '\0') == 1);
    return (unsigned)len;
}

static SSL_CTX *client_context(const struct tls_client *client)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    char file[64];
    cr_assert(SSL_CTX_load_verify_locations(ctx, tls_path(client->place, "ca.pem"), NULL) == 1);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_cipher_list(ctx, client->psk != NULL ? "PSK" : "ALL:@SECLEVEL=0");
    if (client->version != 0) {
        SSL_CTX_set_min_proto_version(ctx, client->version);
        SSL_CTX_set_max_proto_version(ctx, client->version);
    }
    if (client->certificate != NULL) {
        text_format(file, sizeof file, "%s.pem", client->certificate);
        cr_assert(SSL_CTX_use_certificate_file(ctx, tls_path(client->place, file), SSL_FILETYPE_PEM) == 1);
        text_format(file, sizeof file, "%s.key", client->certificate);
        cr_assert(SSL_CTX_use_PrivateKey_file(ctx, tls_path(client->place, file), SSL_FILETYPE_PEM) == 1);
    }
    if (client->psk != NULL)
        SSL_CTX_set_psk_client_callback(ctx, give_psk);
    return ctx;
}

static void *client_main(void *data)
{
    struct tls_client *client = data;
    sigset_t pipe; /* the client may write to who has left; we may not */
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    SSL_CTX *ctx = client_context(client);
    SSL *ssl = SSL_new(ctx);
    SSL_set_app_data(ssl, client);
    SSL_set_fd(ssl, client->fd);
    client->connected = SSL_connect(ssl) == 1;
    if (client->connected && client->talk != NULL)
        client->talk(client, ssl);
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    close(client->fd);
    OPENSSL_thread_stop();
    return NULL;
}

struct stream *tls_client_start(struct tls_client *client, struct reactor *reactor)
{
    int fds[2];
    signal(SIGPIPE, SIG_DFL); /* whoever is killed by it was wrong */
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    client->fd = fds[1];
    struct stream *stream = socket_stream_create(reactor, fds[0]);
    cr_assert_not_null(stream);
    cr_assert_eq(pthread_create(&client->thread, NULL, client_main, client), 0);
    return stream;
}

void tls_client_join(struct tls_client *client)
{
    pthread_join(client->thread, NULL);
}
