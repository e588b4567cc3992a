/*
 * The worker: the thread on which the control plane may block.
 *
 * It runs jobs one after the other, straight-line code: open and scan disks, assemble, create, apply a config, look at
 * the state. It owns the appliance. The control reactor hands it jobs; it reaches objects on a data reactor by
 * sync_call(): run a function there and wait until it is finished.
 */
#ifndef DAEMON_WORKER_H
#define DAEMON_WORKER_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "core/loop.h"

struct worker;

struct worker_job {
    STAILQ_ENTRY(worker_job) link;
    void (*run)(struct worker_job *); /* on the worker's thread; may free the job */
};

struct worker *worker_create(void);
/* Any thread. */
void worker_submit(struct worker *worker, struct worker_job *job);
/* Runs what was submitted, then ends the thread. */
void worker_destroy(struct worker *worker);

/* A call to another loop's thread. Embedded in what it works on. */
struct sync_call {
    struct task task;
    struct loop *loop;
    void (*run)(struct sync_call *);
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool over;
};

/* Run `run` on `loop` and wait for sync_finish(). Not from a loop's own thread. */
void sync_call(struct sync_call *call, struct loop *loop, void (*run)(struct sync_call *));
/* From `run`, or from whatever it started. */
void sync_finish(struct sync_call *call);

#endif
