/* A socket's stream from within, for daemon/socket.c and for daemon/tls.c, which lays a cipher over it. */
#ifndef DAEMON_SOCKET_INTERNAL_H
#define DAEMON_SOCKET_INTERNAL_H

#include <event2/event_struct.h>

#include "core/check.h"
#include "daemon/socket.h"

struct tls;

struct socket_stream {
    struct stream stream;
    int fd;
    unsigned wanted; /* of the socket; with TLS what its owner wants may be something else */
    struct event read_event, write_event;
    struct task moved, *arrived;
    struct tls *tls; /* NULL: none */
};

static inline struct socket_stream *socket_of(struct stream *stream)
{
    return container_of(stream, struct socket_stream, stream);
}

/* Wake up for these from now on. */
void socket_watch(struct socket_stream *s, unsigned events);
/* What the operations of a socket's stream without TLS do; `arrived` runs when the stream may be touched again. */
void socket_move(struct stream *stream, struct loop *to, struct task *arrived);
void socket_close(struct stream *stream);
bool socket_has_left(const struct stream *stream);

/* For the socket, of a stream with TLS: it is readable or writable; it has arrived on another loop. */
void tls_ready(struct socket_stream *s, unsigned event);
void tls_arrived(struct socket_stream *s);
/* The operation of a stream without. */
bool tls_start(struct stream *stream, struct stream_credentials *credentials, stream_secured secured);

#endif
