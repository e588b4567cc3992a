/* Scratch pages: see scratch.h. */
#include "target/scsi/scratch.h"

#include <stdlib.h>

#include "core/check.h"
#include "target/scsi/lu.h"
#include "target/scsi/task.h"

struct scsi_scratch {
    struct loop *loop;
    struct page *pages[SCSI_SCRATCH_PAGES]; /* NULL: given away, to be replaced */
    struct scsi_task *user;
    bool user_waits; /* for pages, or for `resume` */
    struct scsi_task_list line;
    struct page_waiter waiter;
    struct task resume;
};

static void resume_user(struct task *task)
{
    struct scsi_scratch *scratch = container_of(task, struct scsi_scratch, resume);
    if (scratch->user == NULL || !scratch->user_waits)
        return;
    scratch->user_waits = false;
    scsi_task_continue(scratch->user);
}

static void resume_soon(struct scsi_scratch *scratch)
{
    scratch->user_waits = true;
    if (!scratch->resume.queued)
        loop_defer(scratch->loop, &scratch->resume);
}

/* Lets go of pages that others hold too; returns how many are missing. */
static uint32_t drop_shared(struct scsi_scratch *scratch)
{
    uint32_t missing = 0;
    for (unsigned i = 0; i < SCSI_SCRATCH_PAGES; i++) {
        if (scratch->pages[i] != NULL && scratch->pages[i]->refs > 1) {
            page_put(scratch->pages[i]);
            scratch->pages[i] = NULL;
        }
        missing += scratch->pages[i] == NULL;
    }
    return missing;
}

static void install(struct scsi_scratch *scratch, struct page **fresh, uint32_t count)
{
    for (unsigned i = 0; i < SCSI_SCRATCH_PAGES && count > 0; i++)
        if (scratch->pages[i] == NULL)
            scratch->pages[i] = fresh[--count];
    ASSERT(count == 0);
}

static void pages_ready(struct page_waiter *waiter)
{
    struct scsi_scratch *scratch = container_of(waiter, struct scsi_scratch, waiter);
    struct page *fresh[SCSI_SCRATCH_PAGES];
    bool taken = page_pool_take(scratch->loop->pages, fresh, waiter->count);
    ASSERT(taken);
    install(scratch, fresh, waiter->count);
    resume_soon(scratch);
}

static bool replenish(struct scsi_scratch *scratch)
{
    struct page *fresh[SCSI_SCRATCH_PAGES];
    uint32_t missing = drop_shared(scratch);
    if (missing == 0)
        return true;
    if (page_pool_get(scratch->loop->pages, fresh, missing)) {
        install(scratch, fresh, missing);
        return true;
    }
    scratch->user_waits = true;
    scratch->waiter.count = missing;
    page_pool_wait(scratch->loop->pages, &scratch->waiter);
    return false;
}

struct scsi_scratch *scsi_scratch_create(struct loop *loop)
{
    struct scsi_scratch *scratch = calloc(1, sizeof *scratch);
    if (scratch == NULL)
        return NULL;
    *scratch = (struct scsi_scratch){.loop = loop, .waiter.ready = pages_ready, .resume.run = resume_user};
    TAILQ_INIT(&scratch->line);
    if (page_pool_get(loop->pages, scratch->pages, SCSI_SCRATCH_PAGES))
        return scratch;
    free(scratch);
    return NULL;
}

void scsi_scratch_destroy(struct scsi_scratch *scratch)
{
    ASSERT(scratch->user == NULL && TAILQ_EMPTY(&scratch->line) && !scratch->resume.queued);
    for (unsigned i = 0; i < SCSI_SCRATCH_PAGES; i++)
        if (scratch->pages[i] != NULL)
            page_put(scratch->pages[i]);
    free(scratch);
}

bool scsi_scratch_get(struct scsi_task *task)
{
    struct scsi_scratch *scratch = task->lu->target->scratch;
    ASSERT(task->waiting_on == NULL);
    if (scratch->user != NULL && scratch->user != task) {
        task->waiting_on = &scratch->line;
        TAILQ_INSERT_TAIL(&scratch->line, task, wait);
        return false;
    }
    scratch->user = task;
    return replenish(scratch);
}

void scsi_scratch_put(struct scsi_task *task)
{
    struct scsi_scratch *scratch = task->lu->target->scratch;
    if (scratch->user != task)
        return;
    page_pool_wait_cancel(scratch->loop->pages, &scratch->waiter);
    scratch->user_waits = false;
    scratch->user = TAILQ_FIRST(&scratch->line);
    if (scratch->user == NULL)
        return;
    TAILQ_REMOVE(&scratch->line, scratch->user, wait);
    scratch->user->waiting_on = NULL;
    resume_soon(scratch);
}

bool scsi_scratch_waits(const struct scsi_task *task)
{
    const struct scsi_scratch *scratch = task->lu->target->scratch;
    return scratch->user == task && scratch->user_waits;
}

struct page **scsi_scratch_pages(struct scsi_task *task)
{
    struct scsi_scratch *scratch = task->lu->target->scratch;
    ASSERT(scratch->user == task);
    return scratch->pages;
}
