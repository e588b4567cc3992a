#include "daemon/worker.h"

#include <stdlib.h>

#include "core/check.h"

struct worker {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    STAILQ_HEAD(, worker_job) jobs;
    bool stopping;
};

/* The next job; NULL when the worker is stopping and none is left. */
static struct worker_job *next_job(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    while (STAILQ_EMPTY(&worker->jobs) && !worker->stopping)
        pthread_cond_wait(&worker->cond, &worker->mutex);
    struct worker_job *job = STAILQ_FIRST(&worker->jobs);
    if (job != NULL)
        STAILQ_REMOVE_HEAD(&worker->jobs, link);
    pthread_mutex_unlock(&worker->mutex);
    return job;
}

static void *worker_main(void *data)
{
    struct worker_job *job;
    while ((job = next_job(data)) != NULL)
        job->run(job);
    return NULL;
}

struct worker *worker_create(void)
{
    struct worker *worker = calloc(1, sizeof *worker);
    ASSERT(worker != NULL);
    pthread_mutex_init(&worker->mutex, NULL);
    pthread_cond_init(&worker->cond, NULL);
    STAILQ_INIT(&worker->jobs);
    ASSERT(pthread_create(&worker->thread, NULL, worker_main, worker) == 0);
    pthread_setname_np(worker->thread, "corbel-worker");
    return worker;
}

void worker_submit(struct worker *worker, struct worker_job *job)
{
    pthread_mutex_lock(&worker->mutex);
    STAILQ_INSERT_TAIL(&worker->jobs, job, link);
    pthread_cond_signal(&worker->cond);
    pthread_mutex_unlock(&worker->mutex);
}

void worker_destroy(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    worker->stopping = true;
    pthread_cond_signal(&worker->cond);
    pthread_mutex_unlock(&worker->mutex);
    pthread_join(worker->thread, NULL);
    pthread_cond_destroy(&worker->cond);
    pthread_mutex_destroy(&worker->mutex);
    free(worker);
}

static void sync_run(struct task *task)
{
    struct sync_call *call = container_of(task, struct sync_call, task);
    call->run(call);
}

void sync_call(struct sync_call *call, struct loop *loop, void (*run)(struct sync_call *))
{
    call->task = (struct task){.run = sync_run};
    call->loop = loop;
    call->run = run;
    call->over = false;
    pthread_mutex_init(&call->mutex, NULL);
    pthread_cond_init(&call->cond, NULL);
    loop_call(loop, &call->task);
    pthread_mutex_lock(&call->mutex);
    while (!call->over)
        pthread_cond_wait(&call->cond, &call->mutex);
    pthread_mutex_unlock(&call->mutex);
    pthread_cond_destroy(&call->cond);
    pthread_mutex_destroy(&call->mutex);
}

void sync_finish(struct sync_call *call)
{
    pthread_mutex_lock(&call->mutex);
    call->over = true;
    pthread_cond_signal(&call->cond);
    pthread_mutex_unlock(&call->mutex);
}
