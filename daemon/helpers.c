/* A queue under a mutex, and threads that sleep on it: see daemon/helpers.h. */
#include "daemon/helpers.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "core/check.h"

enum { LAST_WAIT_S = 5 };

struct helpers {
    pthread_mutex_t mutex; /* guards jobs and ending */
    pthread_cond_t wake;
    STAILQ_HEAD(, helper_job) jobs;
    bool ending;
    unsigned count;
    pthread_t threads[];
};

/* The next job; NULL when there is none and none will come. */
static struct helper_job *next_job(struct helpers *h)
{
    pthread_mutex_lock(&h->mutex);
    while (STAILQ_EMPTY(&h->jobs) && !h->ending)
        pthread_cond_wait(&h->wake, &h->mutex);
    struct helper_job *job = STAILQ_FIRST(&h->jobs);
    if (job != NULL)
        STAILQ_REMOVE_HEAD(&h->jobs, link);
    pthread_mutex_unlock(&h->mutex);
    return job;
}

static void *helper_main(void *data)
{
    struct helpers *h = data;
    struct helper_job *job;
    pthread_setname_np(pthread_self(), "helper");
    while ((job = next_job(h)) != NULL) {
        job->work(job);
        loop_call(job->home, &job->done);
    }
    return NULL;
}

/* Signals are for the main thread. */
static void start_threads(struct helpers *h, unsigned wanted)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (h->count < wanted && pthread_create(&h->threads[h->count], NULL, helper_main, h) == 0)
        h->count++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

struct helpers *helpers_create(unsigned threads)
{
    struct helpers *h = calloc(1, sizeof *h + threads * sizeof h->threads[0]);
    if (h == NULL)
        return NULL;
    pthread_mutex_init(&h->mutex, NULL);
    pthread_cond_init(&h->wake, NULL);
    STAILQ_INIT(&h->jobs);
    start_threads(h, threads);
    if (h->count == 0) {
        helpers_destroy(h);
        return NULL;
    }
    return h;
}

bool helpers_destroy(struct helpers *h)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += LAST_WAIT_S;
    pthread_mutex_lock(&h->mutex);
    h->ending = true;
    pthread_cond_broadcast(&h->wake);
    pthread_mutex_unlock(&h->mutex);
    for (unsigned i = 0; i < h->count; i++)
        if (pthread_timedjoin_np(h->threads[i], NULL, &end) != 0)
            return false;
    pthread_mutex_destroy(&h->mutex);
    pthread_cond_destroy(&h->wake);
    free(h);
    return true;
}

void helpers_submit(struct helpers *h, struct helper_job *job)
{
    ASSERT(job->work != NULL && job->done.run != NULL && !job->done.queued);
    pthread_mutex_lock(&h->mutex);
    STAILQ_INSERT_TAIL(&h->jobs, job, link);
    pthread_cond_signal(&h->wake);
    pthread_mutex_unlock(&h->mutex);
}
