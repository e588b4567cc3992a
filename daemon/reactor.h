/*
 * The real loop: one thread, one libevent base, one io_uring ring.
 *
 * A reactor is created, filled (devices, listeners) and destroyed by one thread, the control thread; in between it runs
 * in a thread of its own (reactor_start, _stop, _join) or in the caller's (reactor_run). Whoever may touch it at the
 * time is "current" for loop_is_current(): the creator until it runs, the running thread while it runs, then the
 * creator again (who joined it, or whose reactor_run() returned). Any thread may use loop_call() and reactor_stop().
 *
 * Its turn is one function, turn() in daemon/reactor.c. libevent's callbacks run at its start, straight from the wait:
 * each begins with reactor_woken(), so that loop_now_ns() is the time of this turn and not of the one before the sleep.
 */
#ifndef DAEMON_REACTOR_H
#define DAEMON_REACTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/loop.h"

struct event_base;
struct helpers;
struct reactor;
struct ring;

struct reactor_options {
    const char *name;      /* of the thread; cut to 15 characters */
    uint32_t pages;        /* in the loop's page pool; 0: no pool */
    unsigned ring_entries; /* disk operations in flight at once; 0: 1024 */
    bool no_uring;
};

/* NULL and a sentence in `why`. A kernel that refuses io_uring is no failure: the reactor has no ring then. */
struct reactor *reactor_create(const struct reactor_options *options, char *why, size_t why_len);
/* Not running. Runs what is still ready and waits for operations in flight; all pages must be back then. */
void reactor_destroy(struct reactor *reactor);

struct loop *reactor_loop(struct reactor *reactor);
struct reactor *reactor_of(struct loop *loop);
struct event_base *reactor_base(struct reactor *reactor);

int reactor_start(struct reactor *reactor); /* run in a thread of its own; 0 or -errno */
void reactor_run(struct reactor *reactor);  /* or in the caller's, until reactor_stop() */
void reactor_stop(struct reactor *reactor); /* any thread, or a signal handler; the turn in progress ends */
void reactor_join(struct reactor *reactor); /* of a started one */

bool reactor_has_uring(const struct reactor *reactor);
uint64_t reactor_turns(const struct reactor *reactor); /* any thread */

/* For what lives on the reactor. */
void reactor_woken(struct reactor *reactor);              /* first in each callback of libevent */
struct ring *reactor_ring(struct reactor *reactor);       /* NULL: none */
struct helpers *reactor_helpers(struct reactor *reactor); /* started when first asked for; NULL: out of threads */

#endif
