/*
 * The stream over a socket: readiness from libevent, bytes by readv() and sendmsg().
 *
 * The two events of a socket are added to and taken from the base only when stream_want() changes something: an
 * unchanged wish costs no system call. After stream_move() the wishes of before hold on the new loop, from the moment
 * `arrived` is entered.
 */
#ifndef DAEMON_SOCKET_H
#define DAEMON_SOCKET_H

#include <stddef.h>

#include "core/stream.h"

struct reactor;
struct sockaddr;

/* Takes over `fd`, a connected socket, and sets it up. NULL if memory is short; fd is closed then. */
struct stream *socket_stream_create(struct reactor *reactor, int fd);

/* Is there a Unix socket's file at this path that nobody listens on any more? Nobody misses it then. */
bool socket_file_is_stale(const char *path);

/* For peer credentials and the like; the stream's operations of any other kind must not be given. */
int socket_stream_fd(const struct stream *stream);

/* "192.0.2.1:3260", "[2001:db8::1]:3260", "unix:/run/x" ("unix:" if it has no name; with question marks
 * for all but printable ASCII). An IPv4 peer of an IPv6 socket is shown as IPv4. */
void socket_address_format(const struct sockaddr *address, size_t address_len, char *out, size_t len);

#endif
