/*
 * Writes that are one piece to everybody else: ORWRITE and WRITE ATOMIC.
 *
 * ORWRITE reads what is there, ors it into the data that came, and writes that; as with COMPARE AND WRITE nobody else
 * writes there meanwhile (order.h). WRITE ATOMIC is a write that also a crash leaves whole or undone. That is the
 * device's promise (blk_info.atomic_write), so where it makes none there is no such command.
 */
#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/command_block.h"
#include "target/scsi/scratch.h"

/* --- ORWRITE(16), SBC-3 5.12 --- */

enum { PHASE_READ, PHASE_WRITE };

static void or_bytes(uint8_t *into, const uint8_t *from, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        into[i] |= from[i];
}

/* The step in the scratch pages into the same place of the data; both are aligned like the device. */
static void or_step(struct scsi_task *task)
{
    struct page *const *medium = scsi_scratch_pages(task);
    uint64_t at = task->page_off + task->position, end = at + task->step, first = at / PAGE_BYTES;
    for (uint32_t span; at < end; at += span) {
        uint32_t within = (uint32_t)(at % PAGE_BYTES);
        span = (uint32_t)MIN(end - at, (uint64_t)PAGE_BYTES - within);
        or_bytes((uint8_t *)task->pages[at / PAGE_BYTES]->data + within,
                 (const uint8_t *)medium[at / PAGE_BYTES - first]->data + within, span);
    }
}

/* False: all is read. */
static bool or_go_on(struct scsi_task *task, uint64_t total)
{
    if (task->step > 0)
        or_step(task);
    scsi_scratch_step_over(task);
    if (task->position == total)
        return false;
    if (scsi_scratch_get(task))
        scsi_scratch_read(task, total);
    return true;
}

void scsi_orwrite_run(struct scsi_task *task)
{
    uint64_t total = scsi_received_bytes(task);
    if (task->phase == PHASE_READ) {
        if (or_go_on(task, total))
            return;
        task->phase = PHASE_WRITE;
        task->position = 0;
    }
    if (!scsi_transfer_step(task, BLK_WRITE, scsi_write_flags(task), total))
        scsi_task_end(task, SCSI_GOOD);
}

/* --- WRITE ATOMIC(16), SBC-4 5.49 --- */

enum { AT_LBA = 2, AT_BOUNDARY = 10, AT_BLOCKS = 12 };

/* One block request: what is atomic fits into one of the device's. */
bool scsi_write_atomic_parse(struct scsi_task *task)
{
    uint64_t capacity = lu_blocks(task->lu), unit = lu_atomic_blocks(task->lu);
    task->lba = get_be64(task->cdb + AT_LBA);
    task->blocks = get_be16(task->cdb + AT_BLOCKS);
    if (task->lba > capacity || task->blocks > capacity - task->lba)
        return scsi_task_refuse(task, &sense_out_of_range);
    if (get_be16(task->cdb + AT_BOUNDARY) != 0) /* MAXIMUM ATOMIC BOUNDARY SIZE is 0: it is never divided */
        return scsi_task_refuse_field(task, AT_BOUNDARY);
    if (task->blocks > unit)
        return scsi_task_refuse_field(task, AT_BLOCKS);
    if (task->lba % unit != 0)
        return scsi_task_refuse_field(task, AT_LBA);
    return scsi_transfer_limits(task, task->blocks);
}
