/* The jobs' way to a row: a context, when one is free, and then row.c does the work. */
#include "raid/row.h"

static const enum row_kind kinds[] = {[ROW_RESYNC] = ROW_WORK_RESYNC,
                                      [ROW_REBUILD] = ROW_WORK_REBUILD,
                                      [ROW_SCRUB] = ROW_WORK_SCRUB,
                                      [ROW_COPY] = ROW_WORK_COPY,
                                      [ROW_INIT] = ROW_ZERO};

static void job_start(struct row_job *job, struct row_op *op)
{
    job->held = op;
    op->kind = kinds[job->work];
    op->flags = BLK_BACKGROUND;
    op->row = job->row;
    op->first = 0;
    op->len = op->volume->layout.row_data;
    op->job = job;
    row_start(op);
}

static void job_granted(struct task *task)
{
    struct row_job *job = container_of(task, struct row_job, task);
    struct volume *v = job->held;
    job_start(job, container_of(pool_claim(&v->rows), struct row_op, entry));
}

void volume_row_job(struct volume *v, struct row_job *job)
{
    ASSERT(job->row < v->layout.rows && job->done != NULL && v->layout.redundancy > 0);
    job->status = BLK_OK;
    job->changed = false;
    job->report = (struct row_report){0};
    struct pool_entry *entry = pool_get(&v->rows);
    if (entry != NULL) {
        job_start(job, container_of(entry, struct row_op, entry));
        return;
    }
    job->held = v;
    job->task.run = job_granted;
    pool_wait(&v->rows, &job->task);
}
