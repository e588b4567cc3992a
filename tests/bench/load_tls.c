/* TLS for the load generators: see load_tls.h. */
#include "tests/bench/load_tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "tests/bench/load.h"

enum { RECORD = 16384, READ_AHEAD = 1 << 18, OUT_FULL = 1 << 18, OUT_ROOM = OUT_FULL + 2 * RECORD };

struct load_tls {
    SSL_CTX *context;
    SSL *ssl;
    BIO *out;               /* sealed, and not sent yet */
    uint8_t record[RECORD]; /* small pieces put together */
};

static _Noreturn void fail(const char *what)
{
    char text[256];
    ERR_error_string_n(ERR_peek_last_error(), text, sizeof text);
    load_fail("TLS: %s: %s", what, text);
}

static const char *in_folder(const char *folder, const char *name, char *out, size_t size)
{
    if ((size_t)snprintf(out, size, "%s/%s", folder, name) >= size)
        load_fail("%s: too long a path", folder);
    return out;
}

/* To the socket through a buffer, from it as it is. */
static void attach(struct load_tls *tls, int fd)
{
    BIO *socket = BIO_new_socket(fd, BIO_NOCLOSE);
    tls->ssl = SSL_new(tls->context);
    tls->out = BIO_new(BIO_f_buffer());
    if (socket == NULL || tls->ssl == NULL || tls->out == NULL || BIO_set_write_buffer_size(tls->out, OUT_ROOM) != 1)
        load_fail("no memory");
    BIO_up_ref(socket);
    SSL_set_bio(tls->ssl, socket, BIO_push(tls->out, socket));
}

struct load_tls *load_tls_start(int fd, const char *folder)
{
    char path[4096];
    struct load_tls *tls = calloc(1, sizeof *tls);
    if (tls == NULL || (tls->context = SSL_CTX_new(TLS_client_method())) == NULL)
        load_fail("no memory");
    SSL_CTX *context = tls->context;
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, READ_AHEAD);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (SSL_CTX_load_verify_locations(context, in_folder(folder, "ca-cert.pem", path, sizeof path), NULL) != 1)
        fail(path);
    if (SSL_CTX_use_certificate_file(context, in_folder(folder, "client-cert.pem", path, sizeof path),
                                     SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, in_folder(folder, "client-key.pem", path, sizeof path),
                                    SSL_FILETYPE_PEM) != 1)
        fail(path);
    attach(tls, fd);
    if (SSL_connect(tls->ssl) != 1)
        fail("handshake");
    return tls;
}

void load_tls_free(struct load_tls *tls)
{
    if (tls == NULL)
        return;
    SSL_free(tls->ssl);
    SSL_CTX_free(tls->context);
    free(tls);
}

/* What OpenSSL says of a call that moved nothing, in the terms of sockets. */
static ssize_t nothing_moved(struct load_tls *tls, int result)
{
    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        fail("the connection broke");
    }
}

ssize_t load_tls_receive(struct load_tls *tls, void *bytes, uint64_t len)
{
    uint64_t total = 0;
    ERR_clear_error();
    while (total < len) {
        int n = SSL_read(tls->ssl, (uint8_t *)bytes + total, (int)MIN(len - total, (uint64_t)1 << 30));
        if (n <= 0)
            return total > 0 ? (ssize_t)total : nothing_moved(tls, n);
        total += (uint64_t)n;
    }
    return (ssize_t)total;
}

/* The next record: where a long piece lies, or what can be put together from here on. `skip`: bytes of the first
 * entry. */
static const uint8_t *next_record(struct load_tls *tls, const struct iovec *iov, unsigned count, uint64_t skip,
                                  uint64_t *len)
{
    if (iov[0].iov_len - skip >= RECORD) {
        *len = RECORD;
        return (const uint8_t *)iov[0].iov_base + skip;
    }
    *len = 0;
    for (unsigned i = 0; i < count && *len < RECORD; i++, skip = 0) {
        uint64_t n = MIN(iov[i].iov_len - skip, RECORD - *len);
        memcpy(tls->record + *len, (const uint8_t *)iov[i].iov_base + skip, n);
        *len += n;
    }
    return tls->record;
}

bool load_tls_waits(const struct load_tls *tls)
{
    return BIO_wpending(tls->out) > 0;
}

static void flush(struct load_tls *tls)
{
    if (load_tls_waits(tls) && BIO_flush(tls->out) != 1 && !BIO_should_retry(tls->out))
        fail("the connection broke");
}

uint64_t load_tls_send(struct load_tls *tls, const struct iovec *iov, unsigned count)
{
    uint64_t total = 0, skip = 0, len;
    ERR_clear_error();
    while (count > 0 && BIO_wpending(tls->out) < OUT_FULL) {
        const uint8_t *record = next_record(tls, iov, count, skip, &len);
        if (SSL_write(tls->ssl, record, (int)len) != (int)len)
            fail("the connection broke");
        total += len;
        for (skip += len; count > 0 && skip >= iov[0].iov_len; iov++, count--)
            skip -= iov[0].iov_len;
    }
    flush(tls);
    return total;
}
