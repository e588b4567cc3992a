/*
 * Sockets that the service manager listens on and hands over (systemd.socket(5)): LISTEN_PID, LISTEN_FDS,
 * LISTEN_FDNAMES.
 *
 * They stay open for as long as the process lives, so that a listener can be opened again; who takes one gets a
 * descriptor of his own. What else the service manager kept for us (its file descriptor store) is taken once.
 */
#ifndef DAEMON_INHERITED_H
#define DAEMON_INHERITED_H

#include <stddef.h>

/* The `nth` of the sockets of this name, from 0: a descriptor of the caller's. -1: there are no more, or `why` if it is
 * no listening stream socket. */
int inherited_socket(const char *name, unsigned nth, char *why, size_t why_len);

/* The next of those whose name begins so: the caller's, and passed to nobody again. -1: there is none. */
int inherited_take(const char *prefix, char *name, size_t name_len);

#endif
