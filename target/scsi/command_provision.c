/*
 * WRITE SAME and UNMAP: many blocks by few bytes.
 *
 * WRITE SAME of zeroes is a write-zeroes (which may unmap, if the initiator allows it); of anything else, one page full
 * of the block is written again and again: no copies, whatever the length. UNMAP checks the whole list first, then
 * discards one descriptor after the other.
 */
#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/command_block.h"
#include "target/scsi/unmap_list.h"
#include "target/scsi/vpd.h"

/* --- WRITE SAME, SBC-3 5.37 and 5.38 --- */

enum { CDB_UNMAP = 0x08, CDB_NDOB = 0x01 };
enum { PHASE_START, PHASE_ZEROES, PHASE_REPEAT, PHASE_ANSWER };

static bool no_data_out(const struct scsi_task *task)
{
    return task->command->cdb_len == 16 && (task->cdb[1] & CDB_NDOB);
}

bool scsi_write_same_parse(struct scsi_task *task)
{
    bool unmap = (task->cdb[1] & CDB_UNMAP) != 0;
    if (unmap && !task->lu->dev->info.discards)
        return scsi_task_refuse(task, &sense_cdb_field);
    if (!scsi_parse_range(task))
        return false;
    if (task->blocks == 0 || task->blocks > SCSI_WRITE_SAME_MAX / lu_block(task->lu)) /* WSNZ */
        return scsi_task_refuse(task, &sense_cdb_field);
    return no_data_out(task) || scsi_transfer_limits(task, 1);
}

static bool all_zero(const uint8_t *bytes, uint32_t len)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0;
}

/* Fills the page with its one block, and lists it as many times as a step may be long. */
static void repeat_block(struct scsi_task *task)
{
    uint32_t block = lu_block(task->lu);
    uint8_t *page = task->pages[0]->data;
    const uint8_t *from = page + task->page_off;
    for (uint32_t at = 0; at < PAGE_BYTES; at += block)
        if (at != task->page_off)
            memcpy(page + at, from, block);
    for (unsigned i = 0; i < SCSI_REPEAT_PAGES; i++)
        task->repeated[i] = task->pages[0];
}

static uint8_t write_same_phase(struct scsi_task *task)
{
    if (no_data_out(task) || all_zero((uint8_t *)task->pages[0]->data + task->page_off, lu_block(task->lu)))
        return PHASE_ZEROES;
    repeat_block(task);
    return PHASE_REPEAT;
}

static void write_repeated(struct scsi_task *task, uint64_t off, uint64_t left)
{
    uint64_t room = SCSI_REPEAT_PAGES * PAGE_BYTES - off % PAGE_BYTES;
    scsi_task_submit(task, BLK_WRITE, 0, off, scsi_step_bytes(task, left, room), task->repeated);
}

/* COMMAND_EXACT: the block came, whole. */
void scsi_write_same_run(struct scsi_task *task)
{
    uint64_t off = task->lba * lu_block(task->lu), total = task->blocks * lu_block(task->lu);
    if (task->phase == PHASE_START)
        task->phase = write_same_phase(task);
    task->position += task->step;
    task->step = 0;
    if (task->position == total)
        scsi_task_end(task, SCSI_GOOD);
    else if (task->phase == PHASE_ZEROES)
        scsi_task_submit(task, BLK_WRITE_ZEROES, task->cdb[1] & CDB_UNMAP ? 0 : BLK_NO_UNMAP, off, total, NULL);
    else
        write_repeated(task, off + task->position, total - task->position);
}

/* --- UNMAP, SBC-3 5.28 --- */

enum { PHASE_CHECK, PHASE_DISCARD };
enum { UNMAP_LIST_MAX = UNMAP_HEADER_BYTES + SCSI_UNMAP_DESCRIPTORS_MAX * UNMAP_DESCRIPTOR_BYTES };

/* The ranges are in the list: for the order of writers it is the whole medium. */
bool scsi_unmap_parse(struct scsi_task *task)
{
    task->lba = 0;
    task->blocks = lu_blocks(task->lu);
    return scsi_parse_list(task);
}

static bool list_check(struct scsi_task *task, struct scsi_sense *why)
{
    uint8_t list[UNMAP_LIST_MAX];
    struct unmap_limits limits = {.capacity = lu_blocks(task->lu),
                                  .blocks = SCSI_UNMAP_MAX / lu_block(task->lu),
                                  .descriptors = SCSI_UNMAP_DESCRIPTORS_MAX};
    return unmap_list_check(list, scsi_task_list(task, list, sizeof list), &limits, &task->count, why);
}

/* The list stays in the task's pages; position counts descriptors. */
static bool next_range(struct scsi_task *task, uint64_t *lba, uint32_t *blocks)
{
    uint8_t descriptor[UNMAP_DESCRIPTOR_BYTES];
    while (task->position < task->count) {
        uint64_t at = UNMAP_HEADER_BYTES + task->position++ * UNMAP_DESCRIPTOR_BYTES;
        pages_copy_out(descriptor, task->pages, task->page_off + at, sizeof descriptor);
        unmap_list_get(descriptor, lba, blocks);
        if (*blocks > 0)
            return true;
    }
    return false;
}

void scsi_unmap_run(struct scsi_task *task)
{
    struct scsi_sense why;
    uint64_t lba, block = lu_block(task->lu);
    uint32_t blocks;
    if (task->phase == PHASE_CHECK && !list_check(task, &why)) {
        scsi_task_fail(task, &why);
        return;
    }
    task->phase = PHASE_DISCARD;
    if (next_range(task, &lba, &blocks))
        scsi_task_submit(task, BLK_DISCARD, 0, lba * block, blocks * block, NULL);
    else
        scsi_task_end(task, SCSI_GOOD);
}

/* --- GET LBA STATUS, SBC-3 5.5 --- */

enum { LBA_STATUS_MAPPED = 0, LBA_STATUS_DEALLOCATED = 1 };

bool scsi_lba_status_parse(struct scsi_task *task)
{
    task->lba = get_be64(task->cdb + 2);
    if (task->lba >= lu_blocks(task->lu))
        return scsi_task_refuse(task, &sense_out_of_range);
    return scsi_parse_reply(task);
}

/* One descriptor: how far what is true of the first block goes. Who wants more asks again from there. */
void scsi_lba_status_run(struct scsi_task *task)
{
    uint8_t data[24] = {0};
    uint32_t block = lu_block(task->lu);
    if (task->phase == PHASE_START) {
        uint64_t blocks = MIN(lu_blocks(task->lu) - task->lba, (uint64_t)UINT32_MAX);
        task->phase = PHASE_ANSWER;
        scsi_task_submit(task, BLK_STATUS, 0, task->lba * block, blocks * block, NULL);
        return;
    }
    put_be32(data, sizeof data - 4);
    put_be64(data + 8, task->lba);
    put_be32(data + 16, (uint32_t)(task->req.extent / block));
    data[20] = task->req.written ? LBA_STATUS_MAPPED : LBA_STATUS_DEALLOCATED;
    scsi_task_reply(task, data, sizeof data);
}
