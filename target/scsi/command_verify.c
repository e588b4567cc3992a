/*
 * VERIFY, WRITE AND VERIFY, COMPARE AND WRITE: the medium is read into scratch pages and compared with what came.
 *
 * A miscompare ends the command with E/1D/00; INFORMATION is the offset, in the data that came, of the first byte that
 * differs (SBC-3 5.3, 5.30).
 */
#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/command_block.h"
#include "target/scsi/scratch.h"

/* BYTCHK, bits 2 and 1 of CDB byte 1 (SBC-3 table 119). */
enum check { CHECK_MEDIUM = 0, CHECK_ALL = 1, CHECK_RESERVED = 2, CHECK_ONE_BLOCK = 3 };

static enum check byte_check(const struct scsi_task *task)
{
    return (enum check)(task->cdb[1] >> 1 & 3);
}

/* A command's phases. */
enum { PHASE_FIRST, PHASE_SECOND };

/* --- comparing --- */

/* The first byte in which a and b differ; `len` if none. */
static uint32_t first_difference(const uint8_t *a, const uint8_t *b, uint32_t len)
{
    if (memcmp(a, b, len) == 0)
        return len;
    uint32_t at = 0;
    while (a[at] == b[at])
        at++;
    return at;
}

/* The step in the scratch pages against the same place of the data; both are aligned like the device. */
static bool same_as_data(const struct scsi_task *task, struct page *const *medium, uint64_t *where)
{
    uint64_t at = task->page_off + task->position, end = at + task->step, first = at / PAGE_BYTES;
    while (at < end) {
        uint32_t within = (uint32_t)(at % PAGE_BYTES), span = (uint32_t)MIN(end - at, (uint64_t)PAGE_BYTES - within);
        const uint8_t *data = task->pages[at / PAGE_BYTES]->data;
        const uint8_t *read = medium[at / PAGE_BYTES - first]->data;
        uint32_t same = first_difference(data + within, read + within, span);
        if (same < span) {
            *where = at + same - task->page_off;
            return false;
        }
        at += span;
    }
    return true;
}

/* Each block of the step against the one block that came; a block never crosses a page. */
static bool same_as_block(const struct scsi_task *task, struct page *const *medium, uint64_t *where)
{
    uint32_t block = lu_block(task->lu), done = 0;
    const uint8_t *data = (const uint8_t *)task->pages[0]->data + task->page_off;
    uint64_t at = (task->page_off + task->position) % PAGE_BYTES;
    for (; done < task->step; done += block, at += block) {
        const uint8_t *read = (const uint8_t *)medium[at / PAGE_BYTES]->data + at % PAGE_BYTES;
        uint32_t same = first_difference(data, read, block);
        if (same < block) {
            *where = same;
            return false;
        }
    }
    return true;
}

/* Goes on with reading and comparing; false: all `total` bytes are done, or the task has ended. */
static bool compare_step(struct scsi_task *task, enum check check, uint64_t total, bool *ended)
{
    struct scsi_sense differs = sense_miscompare;
    *ended = false;
    if (task->step > 0 && check != CHECK_MEDIUM) {
        struct page *const *medium = scsi_scratch_pages(task);
        differs.has_information = true;
        if (!(check == CHECK_ALL ? same_as_data : same_as_block)(task, medium, &differs.information)) {
            scsi_task_fail(task, &differs);
            *ended = true;
            return false;
        }
    }
    scsi_scratch_step_over(task);
    if (task->position == total)
        return false;
    if (scsi_scratch_get(task))
        scsi_scratch_read(task, total);
    return true;
}

/* --- VERIFY --- */

bool scsi_verify_parse(struct scsi_task *task)
{
    enum check check = byte_check(task);
    if (check == CHECK_RESERVED)
        return scsi_task_refuse(task, &sense_cdb_field);
    if (!scsi_parse_range(task))
        return false;
    if (check == CHECK_MEDIUM || task->blocks == 0)
        return true;
    return scsi_transfer_limits(task, check == CHECK_ALL ? task->blocks : 1);
}

void scsi_verify_run(struct scsi_task *task)
{
    enum check check = byte_check(task);
    bool ended;
    uint64_t total = task->blocks * lu_block(task->lu), came = scsi_received_bytes(task);
    if (check == CHECK_ALL || (check == CHECK_ONE_BLOCK && came == 0))
        total = came;
    if (!compare_step(task, check, total, &ended) && !ended)
        scsi_task_end(task, SCSI_GOOD);
}

/* --- WRITE AND VERIFY --- */

bool scsi_write_verify_parse(struct scsi_task *task)
{
    return scsi_transfer_parse(task);
}

void scsi_write_verify_run(struct scsi_task *task)
{
    bool ended;
    uint64_t total = scsi_received_bytes(task);
    if (task->phase == PHASE_FIRST) {
        if (scsi_transfer_step(task, BLK_WRITE, BLK_FUA, total))
            return;
        task->phase = PHASE_SECOND;
        task->position = 0;
    }
    if (!compare_step(task, byte_check(task), total, &ended) && !ended)
        scsi_task_end(task, SCSI_GOOD);
}

/* --- COMPARE AND WRITE --- */

bool scsi_compare_write_parse(struct scsi_task *task)
{
    uint64_t capacity = lu_blocks(task->lu);
    task->lba = get_be64(task->cdb + 2);
    task->blocks = task->cdb[13];
    if (task->lba > capacity || task->blocks > capacity - task->lba)
        return scsi_task_refuse(task, &sense_out_of_range);
    return scsi_transfer_limits(task, 2 * task->blocks);
}

/* The second half of the data moves to where the first stood: there it is aligned like the device. */
static void move_second_half(struct scsi_task *task, uint32_t half)
{
    for (uint32_t done = 0, span; done < half; done += span) {
        uint64_t to = task->page_off + done, from = to + half;
        span = (uint32_t)MIN(PAGE_BYTES - to % PAGE_BYTES, PAGE_BYTES - from % PAGE_BYTES);
        span = MIN(span, half - done);
        memmove((uint8_t *)task->pages[to / PAGE_BYTES]->data + to % PAGE_BYTES,
                (uint8_t *)task->pages[from / PAGE_BYTES]->data + from % PAGE_BYTES, span);
    }
}

/* COMMAND_EXACT: all the data came. COMMAND_ATOMIC: nobody else writes here meanwhile. */
void scsi_compare_write_run(struct scsi_task *task)
{
    bool ended;
    uint32_t half = task->data_len / 2;
    if (task->phase == PHASE_FIRST) {
        if (compare_step(task, CHECK_ALL, half, &ended) || ended)
            return;
        move_second_half(task, half);
        task->phase = PHASE_SECOND;
        task->position = 0;
    }
    if (!scsi_transfer_step(task, BLK_WRITE, scsi_write_flags(task), half))
        scsi_task_end(task, SCSI_GOOD);
}
