/* What a target and an LU say of themselves: REPORT LUNS, REPORT SUPPORTED OPERATION CODES, REQUEST SENSE, READ
 * CAPACITY. All answer from the tables and from blk_info. */
#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/sanitize.h"
#include "target/scsi/task.h"

/* --- REPORT LUNS, SPC-4 6.33 --- */

enum { SELECT_ADDRESSED = 0, SELECT_WELL_KNOWN = 1, SELECT_ALL = 2, REPORT_LUNS_MIN = 16 };

bool scsi_report_luns_parse(struct scsi_task *task)
{
    if (task->cdb[2] > SELECT_ALL || get_be32(task->cdb + 6) < REPORT_LUNS_MIN)
        return scsi_task_refuse(task, &sense_cdb_field);
    return scsi_parse_reply(task);
}

void scsi_report_luns_run(struct scsi_task *task)
{
    uint8_t data[8 + 8 * SCSI_LUNS_MAX] = {0};
    uint32_t len = 8;
    for (unsigned lun = 0; lun < SCSI_LUNS_MAX && task->cdb[2] != SELECT_WELL_KNOWN; lun++) {
        put_be16(data + len, (uint16_t)lun); /* peripheral addressing, bus 0 */
        if (scsi_nexus_lu(task->nexus, data + len) != NULL)
            len += 8;
    }
    put_be32(data, len - 8);
    scsi_attention_clear_luns(task->nexus);
    scsi_task_reply(task, data, len);
}

/* --- REPORT SUPPORTED OPERATION CODES, SPC-4 6.35 --- */

enum { OPTION_ALL, OPTION_OPCODE, OPTION_ACTION, OPTION_EITHER, TIMEOUTS_BYTES = 12 };
enum { SUPPORT_NONE = 1, SUPPORT_STANDARD = 3, CDB_RCTD = 0x80 };

static uint32_t put_timeouts(uint8_t *out, const struct scsi_command *row)
{
    put_be16(out, TIMEOUTS_BYTES - 2);
    put_be32(out + 8, row->patience_s); /* a nominal time is not known */
    return TIMEOUTS_BYTES;
}

static uint32_t put_descriptor(uint8_t *out, const struct scsi_command *row, bool timeouts)
{
    out[0] = row->opcode;
    put_be16(out + 2, row->action);
    out[5] = (uint8_t)((timeouts ? 0x02 : 0) | (row->has_action ? 0x01 : 0));
    put_be16(out + 6, row->cdb_len);
    return 8 + (timeouts ? put_timeouts(out + 8, row) : 0);
}

static uint32_t build_all(uint8_t *out, const struct scsi_lu *lu, bool timeouts)
{
    unsigned count;
    uint32_t len = 4;
    const struct scsi_command *rows = scsi_commands(&count);
    for (unsigned i = 0; i < count; i++)
        if (scsi_command_supported(&rows[i], lu))
            len += put_descriptor(out + len, &rows[i], timeouts);
    ASSERT(len <= SCSI_REPLY_MAX);
    put_be32(out, len - 4);
    return len;
}

static uint32_t build_one(uint8_t *out, const struct scsi_command *row, bool timeouts)
{
    if (row == NULL) {
        out[1] = SUPPORT_NONE;
        return 4;
    }
    out[1] = (uint8_t)(SUPPORT_STANDARD | (timeouts ? 0x80 : 0));
    put_be16(out + 2, row->cdb_len);
    memcpy(out + 4, row->usage, row->cdb_len);
    return 4u + row->cdb_len + (timeouts ? put_timeouts(out + 4 + row->cdb_len, row) : 0);
}

/* The row asked about, as the table finds it for a CDB. */
static const struct scsi_command *row_asked(const struct scsi_task *task)
{
    uint16_t action = get_be16(task->cdb + 4);
    uint8_t cdb[SCSI_CDB_MAX] = {task->cdb[3], (uint8_t)(action & CDB_ACTION_MASK)};
    return action <= CDB_ACTION_MASK ? scsi_command_find(cdb, task->lu) : NULL;
}

static bool opcode_is_plain(uint8_t opcode)
{
    const uint8_t cdb[SCSI_CDB_MAX] = {opcode};
    const struct scsi_command *row = scsi_command_find(cdb, NULL);
    return row != NULL && !row->has_action;
}

bool scsi_report_opcodes_parse(struct scsi_task *task)
{
    unsigned option = task->cdb[2] & 7;
    uint8_t opcode = task->cdb[3];
    bool wrong = option > OPTION_EITHER || (option == OPTION_OPCODE && scsi_opcode_has_actions(opcode)) ||
                 (option == OPTION_ACTION && opcode_is_plain(opcode));
    return wrong ? scsi_task_refuse_field(task, 2) : scsi_parse_reply(task);
}

void scsi_report_opcodes_run(struct scsi_task *task)
{
    uint8_t data[SCSI_REPLY_MAX] = {0};
    bool timeouts = (task->cdb[2] & CDB_RCTD) != 0;
    unsigned option = task->cdb[2] & 7;
    const struct scsi_command *row = option == OPTION_ALL ? NULL : row_asked(task);
    if (option == OPTION_EITHER && row != NULL && !row->has_action && get_be16(task->cdb + 4) != 0)
        row = NULL;
    scsi_task_reply(task, data,
                    option == OPTION_ALL ? build_all(data, task->lu, timeouts) : build_one(data, row, timeouts));
}

/* --- REQUEST SENSE, SPC-4 6.39: a pending unit attention is told as data, and so over --- */

/* What lasts: also how far a SANITIZE has got. */
static struct scsi_sense condition(const struct scsi_lu *lu)
{
    struct scsi_sense space;
    const struct scsi_sense *sanitize = scsi_sanitize_forbids(lu, NULL, &space);
    if (sanitize != NULL)
        return *sanitize;
    if (lu->failed)
        return sense_failed;
    return lu->ejected ? sense_no_medium : sense_none;
}

void scsi_request_sense_run(struct scsi_task *task)
{
    uint8_t data[SENSE_DESCRIPTOR_BYTES];
    struct scsi_sense sense = task->lu != NULL ? sense_none : sense_no_lu;
    if (task->lu != NULL && !scsi_attention_take(task->nexus, task->lu, &sense))
        sense = condition(task->lu);
    uint8_t len = scsi_sense_build(data, &sense, (task->cdb[1] & 0x01) != 0);
    scsi_task_reply(task, data, len);
}

/* --- READ CAPACITY, SBC-3 5.15 and 5.16 --- */

void scsi_read_capacity10_run(struct scsi_task *task)
{
    uint8_t data[8];
    put_be32(data, (uint32_t)MIN(lu_blocks(task->lu) - 1, (uint64_t)UINT32_MAX));
    put_be32(data + 4, lu_block(task->lu));
    scsi_task_reply(task, data, sizeof data);
}

void scsi_read_capacity16_run(struct scsi_task *task)
{
    uint8_t data[32] = {0};
    const struct blk_info *info = &task->lu->dev->info;
    put_be64(data, lu_blocks(task->lu) - 1);
    put_be32(data + 8, lu_block(task->lu));
    if (info->physical_block > info->logical_block &&
        !task->lu->options.hide_physical) /* LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT */
        data[13] = (uint8_t)__builtin_ctz(info->physical_block / info->logical_block);
    if (info->discards)
        data[14] = (uint8_t)(0x80 | (info->discard_zeroes ? 0x40 : 0)); /* LBPME, LBPRZ */
    scsi_task_reply(task, data, sizeof data);
}
