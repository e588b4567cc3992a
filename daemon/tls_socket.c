/*
 * The socket beneath a cipher, as OpenSSL sees it: as its own, but that a peer who has left makes no signal, and that what
 * is sealed can be collected and sent in one go (struct tls_out). While it is collecting nothing is sent; when it is not,
 * what was collected and is not gone yet goes before anything new.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "core/check.h"
#include "daemon/tls_internal.h"

int tls_out_flush(struct tls_out *out, int fd)
{
    while (out->start < out->end) {
        ssize_t n = send(fd, out->bytes + out->start, out->end - out->start, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : -1;
        out->start += (size_t)n;
    }
    out->start = out->end = 0;
    return 1;
}

static int collect(struct tls_out *out, const char *bytes, int len)
{
    ASSERT((size_t)len <= sizeof out->bytes - out->end); /* TLS_OUT_BYTES is enough for all that is sealed at once */
    memcpy(out->bytes + out->end, bytes, (size_t)len);
    out->end += (size_t)len;
    return len;
}

static int write_out(BIO *bio, const char *bytes, int len)
{
    struct tls_out *out = BIO_get_app_data(bio);
    int fd = -1;
    BIO_clear_retry_flags(bio);
    if (out->collects)
        return collect(out, bytes, len);
    BIO_get_fd(bio, &fd);
    int flushed = tls_out_flush(out, fd);
    int sent = flushed == 1 ? (int)send(fd, bytes, (size_t)len, MSG_NOSIGNAL) : -1;
    if (flushed == 0 || (sent < 0 && (errno == EAGAIN || errno == EINTR)))
        BIO_set_retry_write(bio);
    return sent;
}

BIO_METHOD *tls_socket_method(void)
{
    const BIO_METHOD *like = BIO_s_socket();
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOCKET, "socket of a stream");
    bool good = method != NULL && BIO_meth_set_write(method, write_out) == 1 &&
                BIO_meth_set_read(method, BIO_meth_get_read(like)) == 1 &&
                BIO_meth_set_ctrl(method, BIO_meth_get_ctrl(like)) == 1 &&
                BIO_meth_set_create(method, BIO_meth_get_create(like)) == 1 &&
                BIO_meth_set_destroy(method, BIO_meth_get_destroy(like)) == 1;
    if (good)
        return method;
    BIO_meth_free(method);
    return NULL;
}
