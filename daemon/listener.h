/*
 * A place where peers knock: a TCP port or a Unix socket.
 *
 * Each connection becomes a stream on the listener's reactor and is handed to `accepted`, which owns it from then on.
 * When descriptors or memory run out the listener pauses 100 ms, so that the waiting peer does not keep the loop busy.
 */
#ifndef DAEMON_LISTENER_H
#define DAEMON_LISTENER_H

#include <stddef.h>
#include <sys/types.h>

#include "core/stream.h"

struct listener;
struct reactor;

typedef void (*listener_accepted)(void *data, struct stream *stream);

/* Of a Unix socket. Owner and group -1: as they come. */
struct listener_file {
    mode_t mode;
    uid_t owner;
    gid_t group;
};

/*
 * "127.0.0.1:10809", "[::1]:3260", "*:3260" (IPv4 and IPv6), "unix:/path". Port 0: any free one. A Unix socket's file
 * is as `file` says (NULL: mode 0660); one left behind by somebody who is gone is replaced, one on which somebody
 * listens is not. NULL and a sentence in `why`. On the reactor's thread, or before it runs.
 */
struct listener *listener_open(struct reactor *reactor, const char *address, const struct listener_file *file,
                               listener_accepted accepted, void *data, char *why, size_t why_len);
/* Takes over `fd`, a socket that listens. NULL: no memory; it is closed. */
struct listener *listener_adopt(struct reactor *reactor, int fd, listener_accepted accepted, void *data);
/* In the same words, with the real port. */
void listener_address(const struct listener *listener, char *out, size_t len);
/* On the reactor's thread, not from within accepted(). Removes a Unix socket's file. */
void listener_close(struct listener *listener);

#endif
