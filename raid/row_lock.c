/*
 * One at a time on a row, in order of arrival.
 *
 * A hash of the rows that are locked; who holds a row carries the line of those behind it and hands both on. There is
 * one lock a row context at most, so nothing needs room beside the contexts. A row holds one lock only, and waits for
 * nothing that another row's waiter holds: no cycle.
 */
#include "raid/row.h"

static struct row_bucket *bucket_of(const struct volume *v, uint64_t row)
{
    return &v->locks[(row * UINT64_C(0x9e3779b97f4a7c15) >> 32) & v->locks_mask];
}

static struct row_op *holder_of(const struct volume *v, uint64_t row)
{
    struct row_op *holder;
    LIST_FOREACH(holder, bucket_of(v, row), locked_link)
    {
        if (holder->row == row)
            return holder;
    }
    return NULL;
}

bool row_is_locked(const struct volume *v, uint64_t row)
{
    return holder_of(v, row) != NULL;
}

uint64_t row_locked_next(const struct volume *v, uint64_t from)
{
    uint64_t next = UINT64_MAX;
    for (unsigned i = 0; i <= v->locks_mask; i++) {
        const struct row_op *holder;
        LIST_FOREACH(holder, &v->locks[i], locked_link)
        {
            if (holder->row >= from)
                next = MIN(next, holder->row);
        }
    }
    return next;
}

/* Bytes of the volume that it is about. */
static bool is_within(const struct row_op *op, uint64_t from, uint64_t to)
{
    uint64_t first = op->row * op->volume->layout.row_data + op->first;
    return first < to && from < first + op->len;
}

bool row_locked_within(const struct volume *v, uint64_t from, uint64_t to)
{
    for (unsigned i = 0; i <= v->locks_mask; i++) {
        const struct row_op *holder, *behind;
        LIST_FOREACH(holder, &v->locks[i], locked_link)
        {
            if (is_within(holder, from, to))
                return true;
            STAILQ_FOREACH(behind, &holder->waiting, waiting_link)
            if (is_within(behind, from, to))
                return true;
        }
    }
    return false;
}

bool row_lock(struct row_op *op)
{
    ASSERT(!op->locked);
    struct row_op *holder = holder_of(op->volume, op->row);
    if (holder != NULL) {
        STAILQ_INSERT_TAIL(&holder->waiting, op, waiting_link);
        return false;
    }
    op->locked = true;
    LIST_INSERT_HEAD(bucket_of(op->volume, op->row), op, locked_link);
    return true;
}

void row_unlock(struct row_op *op)
{
    ASSERT(op->locked);
    op->locked = false;
    LIST_REMOVE(op, locked_link);
    struct row_op *next = STAILQ_FIRST(&op->waiting);
    if (next == NULL)
        return;
    STAILQ_REMOVE_HEAD(&op->waiting, waiting_link);
    ASSERT(STAILQ_EMPTY(&next->waiting) && next->row == op->row);
    STAILQ_CONCAT(&next->waiting, &op->waiting);
    next->locked = true;
    LIST_INSERT_HEAD(bucket_of(op->volume, op->row), next, locked_link);
    loop_defer(op->volume->dev.loop, &next->task);
}
