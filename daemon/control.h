/*
 * The control plane's door: HTTP with JSON, by libevent's evhttp, on a Unix socket for corbelctl and on TCP for the
 * status page (GET only, no login: for loopback).
 *
 * A request is answered by the worker: parsed here, handed over, answered when it comes back. One table of routes.
 * Lives on the control reactor.
 */
#ifndef DAEMON_CONTROL_H
#define DAEMON_CONTROL_H

#include "daemon/appliance.h"
#include "daemon/reactor.h"
#include "daemon/worker.h"

struct control;

/* NULL with a sentence if an address cannot be had. A stale socket file is replaced only if nobody answers on it. */
struct control *control_open(struct reactor *reactor, struct worker *worker, struct appliance *appliance,
                             const struct config *config, char *why, size_t why_len);
/* The address of the status page, "" if there is none. */
const char *control_web_address(const struct control *control);
/* Requests under way must be over: after the worker has ended. */
void control_close(struct control *control);

#endif
