/*
 * A few threads for calls that may block: fallocate, fdatasync and reads where io_uring is missing, name look-ups.
 *
 * A job is embedded in its owner. `work` runs on a helper, and touches only what the job owns; then `done` (a task, its
 * run() set by the owner) is queued on the loop the job came from. Jobs start in order; they end in any.
 */
#ifndef DAEMON_HELPERS_H
#define DAEMON_HELPERS_H

#include <sys/queue.h>

#include "core/loop.h"

struct helper_job {
    STAILQ_ENTRY(helper_job) link;
    void (*work)(struct helper_job *);
    struct task done;
    struct loop *home;
};

struct helpers;

/* NULL if memory or threads are short. */
struct helpers *helpers_create(unsigned threads);
/* Finishes every job first. False: one has not ended after 5 s; then nothing is freed, and the process had better
 * end. */
bool helpers_destroy(struct helpers *helpers);
void helpers_submit(struct helpers *helpers, struct helper_job *job);

#endif
