/*
 * The socket beneath a cipher, as OpenSSL sees it: as its own, but that a peer who has left makes no signal, and that
 * what is sealed can be collected and sent in one go (struct tls_wire). While it is collecting nothing is sent; when it
 * is not, what was collected and is not gone yet goes before anything new.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "core/check.h"
#include "daemon/tls_internal.h"

int tls_wire_flush(struct tls_wire *wire, int fd)
{
    while (wire->start < wire->end) {
        ssize_t n = send(fd, wire->bytes + wire->start, wire->end - wire->start, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : -1;
        wire->start += (size_t)n;
    }
    wire->start = wire->end = 0;
    return 1;
}

static int collect(struct tls_wire *wire, const char *bytes, int len)
{
    ASSERT((size_t)len <= sizeof wire->bytes - wire->end); /* TLS_WIRE_BYTES is enough for all that is sealed at once */
    memcpy(wire->bytes + wire->end, bytes, (size_t)len);
    wire->end += (size_t)len;
    return len;
}

static int write_out(BIO *bio, const char *bytes, int len)
{
    struct tls_wire *wire = BIO_get_app_data(bio);
    int fd = -1;
    BIO_clear_retry_flags(bio);
    if (wire->collects)
        return collect(wire, bytes, len);
    BIO_get_fd(bio, &fd);
    int flushed = tls_wire_flush(wire, fd);
    int sent = flushed == 1 ? (int)send(fd, bytes, (size_t)len, MSG_NOSIGNAL) : -1;
    if (flushed == 0 || (sent < 0 && (errno == EAGAIN || errno == EINTR)))
        BIO_set_retry_write(bio);
    return sent;
}

static int read_in(BIO *bio, char *bytes, int len)
{
    struct tls_wire *wire = BIO_get_app_data(bio);
    BIO_clear_retry_flags(bio);
    if (wire->empty) {
        BIO_set_retry_read(bio);
        return -1;
    }
    int got = BIO_meth_get_read(BIO_s_socket())(bio, bytes, len);
    wire->empty = got < len;
    return got;
}

BIO_METHOD *tls_socket_method(void)
{
    const BIO_METHOD *like = BIO_s_socket();
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOCKET, "socket of a stream");
    bool good = method != NULL && BIO_meth_set_write(method, write_out) == 1 &&
                BIO_meth_set_read(method, read_in) == 1 && BIO_meth_set_ctrl(method, BIO_meth_get_ctrl(like)) == 1 &&
                BIO_meth_set_create(method, BIO_meth_get_create(like)) == 1 &&
                BIO_meth_set_destroy(method, BIO_meth_get_destroy(like)) == 1;
    if (good)
        return method;
    BIO_meth_free(method);
    return NULL;
}
