/*
 * RECEIVE COPY RESULTS and its kin: how a copy is getting on, what became of it, and what can be copied at all. Answers
 * at once.
 */
#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/copy_list.h"
#include "target/scsi/copy_result.h"
#include "target/scsi/task.h"
#include "target/scsi/vpd.h"

/* --- whose copy: LIST IDENTIFIER is the third byte of the CDB, or the third to the sixth --- */

static struct copy_result *result_of(const struct scsi_task *task, bool long_id)
{
    uint32_t id = long_id ? get_be32(task->cdb + 2) : task->cdb[2];
    return copy_result_find(task->lu->target->copies, task->nexus, id);
}

bool scsi_copy_status_parse(struct scsi_task *task)
{
    return result_of(task, false) != NULL ? scsi_parse_reply(task) : scsi_task_refuse_field(task, 2);
}

bool scsi_copy_status4_parse(struct scsi_task *task)
{
    return result_of(task, true) != NULL ? scsi_parse_reply(task) : scsi_task_refuse_field(task, 2);
}

/* --- COPY STATUS(LID1), SPC-4 6.17 --- */

enum {
    STATUS_RUNS = 0x00,
    STATUS_GOOD = 0x01,
    STATUS_BAD = 0x02,
    STATUS4_PARTIAL = 0x03,
    STATUS4_FOREGROUND = 0x10,
    STATUS4_ABORTED = 0x60
};
enum { UNITS_BYTES = 0x00, UNITS_KIB = 0x01, UNITS_BLOCKS = 0xf1 };

/* TRANSFER COUNT, of 32 bits: in bytes, or KiB. */
static void put_count(uint8_t *units, uint8_t *out, uint64_t bytes)
{
    *units = bytes > UINT32_MAX ? UNITS_KIB : UNITS_BYTES;
    put_be32(out, (uint32_t)(bytes > UINT32_MAX ? bytes / KIB : bytes));
}

void scsi_copy_status_run(struct scsi_task *task)
{
    uint8_t data[12] = {0};
    const struct copy_result *result = result_of(task, false);
    if (result == NULL) { /* gone since it was looked up */
        scsi_task_fail(task, &sense_cdb_field);
        return;
    }
    put_be32(data, sizeof data - 4);
    data[4] = result->task != NULL ? STATUS_RUNS : result->status == SCSI_GOOD ? STATUS_GOOD : STATUS_BAD;
    put_be16(data + 5, copy_result_segments(result));
    put_count(data + 7, data + 8, copy_result_moved(result));
    scsi_task_reply(task, data, sizeof data);
}

/* --- FAILED SEGMENT DETAILS(LID1), SPC-4 6.18: status and sense of a copy that failed; none of one that did not --- */

void scsi_copy_failed_run(struct scsi_task *task)
{
    enum { HEADER = 60 };
    uint8_t data[HEADER + SCSI_SENSE_MAX] = {0};
    const struct copy_result *result = result_of(task, false);
    if (result == NULL || result->task != NULL || result->status == SCSI_GOOD) {
        scsi_task_reply(task, data, 4);
        return;
    }
    put_be32(data, HEADER - 4u + result->sense_len);
    data[56] = (uint8_t)result->status;
    put_be16(data + 58, result->sense_len);
    memcpy(data + HEADER, result->sense, result->sense_len);
    scsi_task_reply(task, data, HEADER + result->sense_len);
}

/* --- COPY STATUS(LID4), SPC-4 6.24 --- */

static uint8_t status4(const struct copy_result *result)
{
    if (result->task != NULL)
        return STATUS4_FOREGROUND;
    if (result->status == SCSI_TASK_ABORTED)
        return STATUS4_ABORTED;
    if (result->status == SCSI_GOOD)
        return result->partial ? STATUS4_PARTIAL : STATUS_GOOD;
    return STATUS_BAD;
}

uint32_t scsi_copy_status4_build(uint8_t out[COPY_STATUS4_MAX], const struct copy_result *result)
{
    enum { DELAY_MS = 1000 };
    memset(out, 0, COPY_STATUS4_MAX);
    out[4] = result->action;
    out[5] = status4(result);
    put_be16(out + 6, (uint16_t)(copy_result_moved(result) / MIB)); /* OPERATION COUNTER: grows as it gets on */
    put_be32(out + 8, result->task != NULL ? DELAY_MS : UINT32_MAX);
    out[12] = (uint8_t)(result->task != NULL ? 0 : result->status);
    out[13] = out[14] = result->sense_len;
    out[15] = UNITS_BLOCKS;
    put_be64(out + 16, copy_result_moved(result) / result->block);
    put_be16(out + 24, copy_result_segments(result));
    memcpy(out + COPY_STATUS4_BYTES, result->sense, result->sense_len);
    put_be32(out, COPY_STATUS4_BYTES - 4u + result->sense_len);
    return COPY_STATUS4_BYTES + result->sense_len;
}

void scsi_copy_status4_run(struct scsi_task *task)
{
    uint8_t data[COPY_STATUS4_MAX];
    const struct copy_result *result = result_of(task, true);
    if (result == NULL)
        scsi_task_fail(task, &sense_cdb_field);
    else
        scsi_task_reply(task, data, scsi_copy_status4_build(data, result));
}

/* --- OPERATING PARAMETERS, SPC-4 6.19 --- */

void scsi_copy_parameters_run(struct scsi_task *task)
{
    enum { SNLID = 0x01, HEADER = 44 };
    uint8_t data[HEADER + 2] = {[4] = SNLID, [44] = SEGMENT_BLOCK_TO_BLOCK, [45] = CSCD_IDENTIFICATION};
    put_be32(data, sizeof data - 4);
    put_be16(data + 8, COPY_CSCDS_MAX);
    put_be16(data + 10, COPY_SEGMENTS_MAX);
    put_be32(data + 12, COPY_DESCRIPTORS_MAX);
    put_be32(data + 16, SCSI_COPY_SEGMENT_MAX);
    put_be16(data + 34, COPY_RESULTS_MAX);
    data[36] = COPY_RESULTS_MAX;
    data[37] = (uint8_t)__builtin_ctz(lu_block(task->lu)); /* DATA SEGMENT GRANULARITY, a power of two */
    data[43] = 2;
    scsi_task_reply(task, data, sizeof data);
}
