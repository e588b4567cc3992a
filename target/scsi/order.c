/* Order among writers: see order.h. */
#include "target/scsi/order.h"

#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/lu.h"
#include "target/scsi/task.h"

static bool writes(const struct scsi_task *task)
{
    return (task->command->flags & (COMMAND_WRITES | COMMAND_COPIES)) != 0;
}

static bool atomic(const struct scsi_task *task)
{
    return (task->command->flags & COMMAND_ATOMIC) != 0;
}

static bool aborted_write(const struct scsi_task *task)
{
    return writes(task) && task->aborted;
}

static bool alone(const struct scsi_task *task)
{
    return atomic(task) || aborted_write(task);
}

/* No block is in nobody's way: so a task that was blocked has a block request to wait for when it goes on, and never
 * leaves its place in the order while scsi_order_leave() looks for who else may go on. */
static bool in_the_way(const struct scsi_task *earlier, const struct scsi_task *task)
{
    bool ordered = aborted_write(earlier) || (writes(earlier) && writes(task) && (atomic(earlier) || atomic(task)));
    return ordered && task->blocks > 0 && earlier->lba < task->lba + task->blocks &&
           task->lba < earlier->lba + earlier->blocks;
}

/* `running` is in the order of arrival. */
static bool must_wait(const struct scsi_task *task)
{
    const struct scsi_task *earlier;
    TAILQ_FOREACH(earlier, &task->lu->running, link)
    {
        if (earlier == task)
            return false;
        if (in_the_way(earlier, task))
            return true;
    }
    return false;
}

bool scsi_order_enter(struct scsi_task *task)
{
    struct scsi_lu *lu = task->lu;
    TAILQ_INSERT_TAIL(&lu->running, task, link);
    lu->alone_count += alone(task);
    if (lu->alone_count == 0 || !must_wait(task))
        return true;
    task->waiting_on = &lu->blocked;
    TAILQ_INSERT_TAIL(&lu->blocked, task, wait);
    return false;
}

void scsi_order_abort(struct scsi_task *task)
{
    bool before = alone(task);
    task->aborted = true;
    task->lu->alone_count += alone(task) - before;
}

void scsi_order_leave(struct scsi_task *task)
{
    struct scsi_lu *lu = task->lu;
    TAILQ_REMOVE(&lu->running, task, link);
    lu->alone_count -= alone(task);
    struct scsi_task *blocked = TAILQ_FIRST(&lu->blocked), *next;
    for (; blocked != NULL; blocked = next) {
        next = TAILQ_NEXT(blocked, wait);
        if (must_wait(blocked))
            continue;
        TAILQ_REMOVE(&lu->blocked, blocked, wait);
        blocked->waiting_on = NULL;
        scsi_task_continue(blocked);
    }
}

bool scsi_order_move(struct scsi_task *task, struct scsi_lu *lu, uint64_t lba, uint64_t blocks)
{
    struct scsi_lu *before = task->lu;
    scsi_order_leave(task);
    scsi_persist_look(before);
    task->lu = lu;
    task->lba = lba;
    task->blocks = blocks;
    return scsi_order_enter(task);
}
