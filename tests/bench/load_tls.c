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

enum { RECORD = 16384 };

struct load_tls {
    SSL_CTX *context;
    SSL *ssl;
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

struct load_tls *load_tls_start(int fd, const char *folder)
{
    char path[4096];
    struct load_tls *tls = calloc(1, sizeof *tls);
    if (tls == NULL || (tls->context = SSL_CTX_new(TLS_client_method())) == NULL)
        load_fail("no memory");
    SSL_CTX *context = tls->context;
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (SSL_CTX_load_verify_locations(context, in_folder(folder, "ca-cert.pem", path, sizeof path), NULL) != 1)
        fail(path);
    if (SSL_CTX_use_certificate_file(context, in_folder(folder, "client-cert.pem", path, sizeof path),
                                     SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, in_folder(folder, "client-key.pem", path, sizeof path),
                                    SSL_FILETYPE_PEM) != 1)
        fail(path);
    tls->ssl = SSL_new(context);
    if (tls->ssl == NULL || SSL_set_fd(tls->ssl, fd) != 1)
        load_fail("no memory");
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
    ERR_clear_error();
    int n = SSL_read(tls->ssl, bytes, (int)MIN(len, (uint64_t)1 << 30));
    return n > 0 ? n : nothing_moved(tls, n);
}

/* The next record: where a long piece lies, or what can be put together from here on. `skip`: bytes of the first entry. */
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

ssize_t load_tls_send(struct load_tls *tls, const struct iovec *iov, unsigned count)
{
    uint64_t total = 0, skip = 0, len;
    while (count > 0) {
        const uint8_t *record = next_record(tls, iov, count, skip, &len);
        ERR_clear_error();
        int n = SSL_write(tls->ssl, record, (int)len);
        if (n <= 0)
            return total > 0 ? (ssize_t)total : nothing_moved(tls, n);
        total += (uint64_t)n;
        for (skip += (uint64_t)n; count > 0 && skip >= iov[0].iov_len; iov++, count--)
            skip -= iov[0].iov_len;
    }
    return (ssize_t)total;
}
