/*
 * READ, WRITE, SYNCHRONIZE CACHE, PRE-FETCH: blocks to block requests.
 *
 * The data path: a READ or WRITE is one block request on the pages of the task, since they are aligned like the device.
 * Only when the device takes less at once it is done in steps, which end on page edges (a read may replace a page, and
 * two steps must not share one).
 */
#include "core/check.h"
#include "target/scsi/command_block.h"
#include "target/scsi/scratch.h"

enum { CDB_FUA = 0x08 };

bool scsi_transfer_limits(struct scsi_task *task, uint64_t data_blocks)
{
    uint64_t bytes = data_blocks * lu_block(task->lu);
    if (bytes > SCSI_TRANSFER_MAX)
        return scsi_task_refuse(task, &sense_cdb_field);
    task->data_len = (uint32_t)bytes;
    task->page_off = (uint32_t)(task->lba * lu_block(task->lu) % PAGE_BYTES);
    return true;
}

bool scsi_transfer_parse(struct scsi_task *task)
{
    return scsi_parse_range(task) && scsi_transfer_limits(task, task->blocks);
}

uint32_t scsi_step_bytes(const struct scsi_task *task, uint64_t left, uint64_t most)
{
    uint64_t device_most = task->lu->dev->info.max_request;
    if (device_most != 0)
        most = MIN(most, device_most);
    if (left <= most)
        return (uint32_t)left;
    uint64_t from = (task->lba * lu_block(task->lu) + task->position) % PAGE_BYTES;
    return (uint32_t)(round_down(from + most, PAGE_BYTES) - from);
}

/* The next step over the task's own pages; false: there is none. */
bool scsi_transfer_step(struct scsi_task *task, enum blk_op op, unsigned flags, uint64_t total)
{
    task->position += task->step;
    task->step = 0;
    if (task->position == total)
        return false;
    uint64_t off = task->lba * lu_block(task->lu) + task->position;
    uint32_t len = scsi_step_bytes(task, total - task->position, SCSI_TRANSFER_MAX);
    scsi_task_submit(task, op, flags, off, len, task->pages + (task->page_off + task->position) / PAGE_BYTES);
    return true;
}

unsigned scsi_write_flags(const struct scsi_task *task)
{
    return task->command->cdb_len > 6 && (task->cdb[1] & CDB_FUA) ? BLK_FUA : 0;
}

void scsi_read_run(struct scsi_task *task)
{
    if (scsi_transfer_step(task, BLK_READ, 0, task->data_len))
        return;
    task->result_len = task->data_len;
    scsi_task_end(task, SCSI_GOOD);
}

void scsi_scratch_read(struct scsi_task *task, uint64_t total)
{
    uint64_t off = task->lba * lu_block(task->lu) + task->position;
    uint64_t room = SCSI_SCRATCH_PAGES * PAGE_BYTES - off % PAGE_BYTES;
    scsi_task_submit(task, BLK_READ, 0, off, scsi_step_bytes(task, total - task->position, room),
                     scsi_scratch_pages(task));
}

void scsi_scratch_step_over(struct scsi_task *task)
{
    if (task->step > 0)
        scsi_scratch_put(task); /* whoever stands in line has its turn before the next step */
    task->position += task->step;
    task->step = 0;
}

uint64_t scsi_received_bytes(const struct scsi_task *task)
{
    return round_down(MIN(task->received_len, task->data_len), lu_block(task->lu));
}

void scsi_write_run(struct scsi_task *task)
{
    if (!scsi_transfer_step(task, BLK_WRITE, scsi_write_flags(task), scsi_received_bytes(task)))
        scsi_task_end(task, SCSI_GOOD);
}

/* IMMED is not taken up: the answer always comes when all is durable. */
void scsi_flush_run(struct scsi_task *task)
{
    if (task->phase++ == 0)
        scsi_task_submit(task, BLK_FLUSH, 0, 0, 0, NULL);
    else
        scsi_task_end(task, SCSI_GOOD);
}

/*
 * PRE-FETCH reads, and forgets; a cache below remembers. As much as one transfer: CONDITION MET says that all of the
 * range was fetched, GOOD that it was too much (SBC-3 5.11). Zero blocks are all to the end of the medium.
 */
void scsi_prefetch_run(struct scsi_task *task)
{
    uint32_t block = lu_block(task->lu);
    uint64_t asked = (task->blocks != 0 ? task->blocks : lu_blocks(task->lu) - task->lba) * block;
    uint64_t total = MIN(asked, (uint64_t)round_down(SCSI_TRANSFER_MAX, block));
    scsi_scratch_step_over(task);
    if (task->position == total) {
        scsi_task_end(task, total == asked ? SCSI_CONDITION_MET : SCSI_GOOD);
        return;
    }
    if (scsi_scratch_get(task))
        scsi_scratch_read(task, total);
}
