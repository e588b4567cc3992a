/*
 * The door to the network: one connected byte stream.
 *
 * Behind it stand a socket (daemon/socket.c), TLS over a socket, or a script of bytes in a test. The owner of a stream
 * (an NBD or iSCSI connection) sets `owner` and is called back when it can read or write; it reads and writes as much
 * as it likes and is told "not now" by STREAM_AGAIN. Both calls may do less than asked for: tests make them short on
 * purpose.
 *
 * A stream lives on one loop. stream_move() takes it to another one; until `arrived` runs there, nobody may touch it.
 *
 * What stream_send() did not take must be what the next one begins with: a cipher may have half of it on its way.
 *
 * stream_start_tls() makes the stream the server's side of TLS. From the call until `secured` runs nothing may be done
 * to the stream but close it, and the owner is not called back; then it wants nothing, and all is as before, but that
 * `proof` says what the peer has proved.
 */
#ifndef CORE_STREAM_H
#define CORE_STREAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/loop.h"

struct stream;

enum { STREAM_READ = 1, STREAM_WRITE = 2 };

/* Results of recv and send below zero; zero from recv is the peer's orderly end. */
enum { STREAM_AGAIN = -1, STREAM_BROKEN = -2 };

/* What our side of TLS proves itself by, and whom it believes: made by daemon/tls.h, opaque here. */
struct stream_credentials;

/* What the peer of a TLS stream has proved: the names in its certificate, or whose key it has. */
enum { STREAM_NAMES_MAX = 16, STREAM_NAME_MAX = 255 };
struct stream_proof {
    char method[64]; /* "TLSv1.3 TLS_AES_128_GCM_SHA256": for people */
    unsigned count;  /* 0: it has proved nothing */
    /* With their kind: "cn:alice", "dns:alice.example.org", "email:", "uri:", "ip:"; "psk:alice". Printable UTF-8. */
    char names[STREAM_NAMES_MAX][STREAM_NAME_MAX + 1];
};

/* `failure` is NULL, or a sentence that is gone after the call; the stream is good for nothing but a close then. */
typedef void (*stream_secured)(struct stream *, const char *failure);

struct stream_owner {
    void (*readable)(struct stream *);
    void (*writable)(struct stream *);
};

struct stream_ops {
    ssize_t (*recv)(struct stream *, const struct iovec *, int count);
    ssize_t (*send)(struct stream *, const struct iovec *, int count);
    /* Call back for these from now on (level-triggered); 0: for none. */
    void (*want)(struct stream *, unsigned events);
    void (*move)(struct stream *, struct loop *to, struct task *arrived);
    bool (*start_tls)(struct stream *, struct stream_credentials *, stream_secured);
    /* Has the peer ended its side, or is it gone? Before recv says so there may be bytes of it to receive. */
    bool (*has_left)(const struct stream *);
    /* Ends both directions and frees the stream; no callback runs any more. Unsent bytes the kernel took are sent. */
    void (*close)(struct stream *);
};

struct stream {
    const struct stream_ops *ops;
    const struct stream_owner *owner; /* set by the owner before stream_want() */
    void *owner_data;                 /* the owner's, so that it can find itself */
    struct loop *loop;
    char peer[64], local[64]; /* "192.0.2.1:40312", "[2001:db8::1]:3260", "unix:/run/...": for people and policy */
    const struct stream_proof *proof; /* NULL: no TLS */
};

static inline ssize_t stream_recv(struct stream *s, const struct iovec *iov, int count)
{
    return s->ops->recv(s, iov, count);
}

static inline ssize_t stream_send(struct stream *s, const struct iovec *iov, int count)
{
    return s->ops->send(s, iov, count);
}

static inline void stream_want(struct stream *s, unsigned events)
{
    s->ops->want(s, events);
}

static inline void stream_move(struct stream *s, struct loop *to, struct task *arrived)
{
    s->ops->move(s, to, arrived);
}

/* Never calls `secured` from within. The credentials may go when this returns. False: no memory, nothing was done. */
static inline bool stream_start_tls(struct stream *s, struct stream_credentials *credentials, stream_secured secured)
{
    return s->ops->start_tls(s, credentials, secured);
}

static inline bool stream_has_left(const struct stream *s)
{
    return s->ops->has_left(s);
}

static inline void stream_close(struct stream *s)
{
    s->ops->close(s);
}

#endif
