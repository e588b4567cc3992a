/*
 * The table of commands: see command_table.h.
 *
 * The usage maps in short: 10h DPO, 08h FUA, 1fh the GROUP NUMBER (taken and ignored); RDPROTECT, WRPROTECT and
 * VRPROTECT are missing, since there is no protection information: set, they are refused.
 */
#include "target/scsi/command_table.h"

#include "core/check.h"
#include "target/scsi/lu.h"
#include "target/scsi/task.h"

enum {
    ALWAYS = COMMAND_ANY_TIME | COMMAND_ANY_RESERVATION | COMMAND_WITHOUT_LU | COMMAND_HARMLESS,
    HARMLESS = COMMAND_HARMLESS,
    READS = COMMAND_READS,
    MEDIUM_HARMLESS = COMMAND_HARMLESS | COMMAND_MEDIUM,
    MEDIUM_READS = COMMAND_READS | COMMAND_MEDIUM,
    RELEASES = COMMAND_ANY_RESERVATION | COMMAND_HARMLESS, /* LOG SENSE, too */
    PERSIST = COMMAND_PERSISTENT | COMMAND_HARMLESS,
    WRITES = COMMAND_WRITES | COMMAND_MEDIUM,
    UNMAPS = WRITES | COMMAND_UNMAPS | COMMAND_EXACT,
    SAMES = WRITES | COMMAND_EXACT,
    ATOMIC = WRITES | COMMAND_ATOMIC | COMMAND_EXACT,
};

#define IN                     SCSI_DATA_IN
#define OUT                    SCSI_DATA_OUT
#define NONE                   SCSI_DATA_NONE
#define PLAIN(opcode)          opcode, 0, false
#define ACTION(opcode, action) opcode, action, true
#define LBA4                   0xff, 0xff, 0xff, 0xff
#define LBA8                   LBA4, LBA4
/* The usage map, and how long an initiator should wait: for most, and for what moves much. */
#define USE_FOR(seconds, ...) {__VA_ARGS__}, seconds
#define USE(...)              USE_FOR(60, __VA_ARGS__)
#define USE_LONG(...)         USE_FOR(600, __VA_ARGS__)

/* opcode and action, CDB length, flags, length field at and its bytes, direction, name, parse, run, usage */
static const struct scsi_command commands[] = {
    {PLAIN(0x00), 6, MEDIUM_HARMLESS, 0, 0, NONE, "TEST UNIT READY", scsi_test_unit_ready_parse, scsi_good_run,
     USE(0x00)},
    {PLAIN(0x03), 6, ALWAYS, 4, 1, IN, "REQUEST SENSE", scsi_parse_reply, scsi_request_sense_run,
     USE(0x03, 0x01, 0, 0, 0xff)},
    {PLAIN(0x08), 6, MEDIUM_READS, 0, 0, IN, "READ(6)", scsi_transfer_parse, scsi_read_run,
     USE(0x08, 0x1f, 0xff, 0xff, 0xff)},
    {PLAIN(0x0a), 6, WRITES, 0, 0, OUT, "WRITE(6)", scsi_transfer_parse, scsi_write_run,
     USE(0x0a, 0x1f, 0xff, 0xff, 0xff)},
    {PLAIN(0x12), 6, ALWAYS, 3, 2, IN, "INQUIRY", scsi_inquiry_parse, scsi_inquiry_run,
     USE(0x12, 0x01, 0xff, 0xff, 0xff)},
    {PLAIN(0x15), 6, 0, 4, 1, OUT, "MODE SELECT(6)", scsi_mode_select_check, scsi_mode_select_run,
     USE(0x15, 0x11, 0, 0, 0xff)},
    {PLAIN(0x16), 6, HARMLESS, 0, 0, NONE, "RESERVE(6)", NULL, scsi_reserve_run, USE(0x16)},
    {PLAIN(0x17), 6, RELEASES, 0, 0, NONE, "RELEASE(6)", NULL, scsi_release_run, USE(0x17)},
    {PLAIN(0x1a), 6, READS, 4, 1, IN, "MODE SENSE(6)", scsi_mode_sense_parse, scsi_mode_sense_run,
     USE(0x1a, 0x08, 0xff, 0xff, 0xff)},
    {PLAIN(0x1b), 6, 0, 0, 0, NONE, "START STOP UNIT", scsi_start_stop_parse, scsi_start_stop_run,
     USE_LONG(0x1b, 0x01, 0, 0, 0xf7)},
    {PLAIN(0x1d), 6, 0, 0, 0, NONE, "SEND DIAGNOSTIC", scsi_send_diagnostic_parse, scsi_good_run, USE(0x1d, 0x14)},
    {PLAIN(0x1e), 6, COMMAND_REMOVABLE, 0, 0, NONE, "PREVENT ALLOW MEDIUM REMOVAL", NULL, scsi_prevent_allow_run,
     USE(0x1e, 0, 0, 0, 0x01)},
    {PLAIN(0x25), 10, MEDIUM_HARMLESS, 0, 0, IN, "READ CAPACITY(10)", scsi_parse_reply, scsi_read_capacity10_run,
     USE(0x25)},
    {PLAIN(0x28), 10, MEDIUM_READS, 0, 0, IN, "READ(10)", scsi_transfer_parse, scsi_read_run,
     USE(0x28, 0x18, LBA4, 0x1f, 0xff, 0xff)},
    {PLAIN(0x2a), 10, WRITES, 0, 0, OUT, "WRITE(10)", scsi_transfer_parse, scsi_write_run,
     USE(0x2a, 0x18, LBA4, 0x1f, 0xff, 0xff)},
    {PLAIN(0x2e), 10, WRITES, 0, 0, OUT, "WRITE AND VERIFY(10)", scsi_write_verify_parse, scsi_write_verify_run,
     USE(0x2e, 0x12, LBA4, 0x1f, 0xff, 0xff)},
    {PLAIN(0x2f), 10, MEDIUM_READS, 0, 0, OUT, "VERIFY(10)", scsi_verify_parse, scsi_verify_run,
     USE(0x2f, 0x16, LBA4, 0x1f, 0xff, 0xff)},
    {PLAIN(0x34), 10, MEDIUM_READS, 0, 0, NONE, "PRE-FETCH(10)", scsi_parse_range, scsi_prefetch_run,
     USE(0x34, 0x02, LBA4, 0x1f, 0xff, 0xff)},
    {PLAIN(0x35), 10, COMMAND_MEDIUM, 0, 0, NONE, "SYNCHRONIZE CACHE(10)", scsi_parse_range, scsi_flush_run,
     USE_LONG(0x35, 0x06, LBA4, 0x1f, 0xff, 0xff)},
    {PLAIN(0x37), 10, MEDIUM_READS, 7, 2, IN, "READ DEFECT DATA(10)", scsi_parse_reply, scsi_defects10_run,
     USE(0x37, 0, 0x1f, 0, 0, 0, 0, 0xff, 0xff)},
    {PLAIN(0x41), 10, SAMES, 0, 0, OUT, "WRITE SAME(10)", scsi_write_same_parse, scsi_write_same_run,
     USE_LONG(0x41, 0x08, LBA4, 0x1f, 0xff, 0xff)},
    {PLAIN(0x42), 10, UNMAPS, 7, 2, OUT, "UNMAP", scsi_unmap_parse, scsi_unmap_run,
     USE_LONG(0x42, 0, 0, 0, 0, 0, 0x1f, 0xff, 0xff)},
    {ACTION(0x48, 0x01), 10, WRITES, 7, 2, OUT, "SANITIZE: OVERWRITE", scsi_sanitize_parse, scsi_sanitize_overwrite_run,
     USE_LONG(0x48, 0xa1, 0, 0, 0, 0, 0, 0xff, 0xff)},
    {ACTION(0x48, 0x02), 10, WRITES | COMMAND_UNMAPS, 0, 0, NONE, "SANITIZE: BLOCK ERASE", NULL,
     scsi_sanitize_erase_run, USE_LONG(0x48, 0xa2)},
    {ACTION(0x48, 0x1f), 10, WRITES, 0, 0, NONE, "SANITIZE: EXIT FAILURE MODE", NULL, scsi_sanitize_exit_run,
     USE(0x48, 0x9f)},
    {PLAIN(0x4d), 10, RELEASES, 7, 2, IN, "LOG SENSE", scsi_log_sense_parse, scsi_log_sense_run,
     USE(0x4d, 0, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff)},
    {PLAIN(0x55), 10, 0, 7, 2, OUT, "MODE SELECT(10)", scsi_mode_select_check, scsi_mode_select_run,
     USE(0x55, 0x11, 0, 0, 0, 0, 0, 0xff, 0xff)},
    {PLAIN(0x56), 10, HARMLESS, 0, 0, NONE, "RESERVE(10)", NULL, scsi_reserve_run, USE(0x56)},
    {PLAIN(0x57), 10, RELEASES, 0, 0, NONE, "RELEASE(10)", NULL, scsi_release_run, USE(0x57)},
    {PLAIN(0x5a), 10, READS, 7, 2, IN, "MODE SENSE(10)", scsi_mode_sense_parse, scsi_mode_sense_run,
     USE(0x5a, 0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff)},
    {ACTION(0x5e, 0x00), 10, PERSIST, 7, 2, IN, "PERSISTENT RESERVE IN: READ KEYS", scsi_persist_in_parse,
     scsi_read_keys_run, USE(0x5e, 0x00, 0, 0, 0, 0, 0, 0xff, 0xff)},
    {ACTION(0x5e, 0x01), 10, PERSIST, 7, 2, IN, "PERSISTENT RESERVE IN: READ RESERVATION", scsi_persist_in_parse,
     scsi_read_reservation_run, USE(0x5e, 0x01, 0, 0, 0, 0, 0, 0xff, 0xff)},
    {ACTION(0x5e, 0x02), 10, PERSIST, 7, 2, IN, "PERSISTENT RESERVE IN: REPORT CAPABILITIES", scsi_persist_in_parse,
     scsi_report_capabilities_run, USE(0x5e, 0x02, 0, 0, 0, 0, 0, 0xff, 0xff)},
    {ACTION(0x5e, 0x03), 10, PERSIST, 7, 2, IN, "PERSISTENT RESERVE IN: READ FULL STATUS", scsi_persist_in_parse,
     scsi_read_full_status_run, USE(0x5e, 0x03, 0, 0, 0, 0, 0, 0xff, 0xff)},
    {ACTION(0x5f, 0x00), 10, PERSIST, 5, 4, OUT, "PERSISTENT RESERVE OUT: REGISTER", scsi_persist_out_parse,
     scsi_persist_out_run, USE(0x5f, 0x00, 0xff, 0, 0, LBA4)},
    {ACTION(0x5f, 0x01), 10, PERSIST, 5, 4, OUT, "PERSISTENT RESERVE OUT: RESERVE", scsi_persist_out_parse,
     scsi_persist_out_run, USE(0x5f, 0x01, 0xff, 0, 0, LBA4)},
    {ACTION(0x5f, 0x02), 10, PERSIST, 5, 4, OUT, "PERSISTENT RESERVE OUT: RELEASE", scsi_persist_out_parse,
     scsi_persist_out_run, USE(0x5f, 0x02, 0xff, 0, 0, LBA4)},
    {ACTION(0x5f, 0x03), 10, PERSIST, 5, 4, OUT, "PERSISTENT RESERVE OUT: CLEAR", scsi_persist_out_parse,
     scsi_persist_out_run, USE(0x5f, 0x03, 0xff, 0, 0, LBA4)},
    {ACTION(0x5f, 0x04), 10, PERSIST, 5, 4, OUT, "PERSISTENT RESERVE OUT: PREEMPT", scsi_persist_out_parse,
     scsi_persist_out_run, USE(0x5f, 0x04, 0xff, 0, 0, LBA4)},
    {ACTION(0x5f, 0x05), 10, PERSIST, 5, 4, OUT, "PERSISTENT RESERVE OUT: PREEMPT AND ABORT", scsi_persist_out_parse,
     scsi_persist_out_run, USE(0x5f, 0x05, 0xff, 0, 0, LBA4)},
    {ACTION(0x5f, 0x06), 10, PERSIST, 5, 4, OUT, "PERSISTENT RESERVE OUT: REGISTER AND IGNORE EXISTING KEY",
     scsi_persist_out_parse, scsi_persist_out_run, USE(0x5f, 0x06, 0xff, 0, 0, LBA4)},
    {ACTION(0x5f, 0x07), 10, PERSIST, 5, 4, OUT, "PERSISTENT RESERVE OUT: REGISTER AND MOVE", scsi_persist_out_parse,
     scsi_persist_out_run, USE(0x5f, 0x07, 0xff, 0, 0, LBA4)},
    {ACTION(0x83, 0x00), 16, COMMAND_COPIES, 10, 4, OUT, "EXTENDED COPY(LID1)", scsi_copy_parse, scsi_copy_run,
     USE_LONG(0x83, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, LBA4)},
    {ACTION(0x83, 0x01), 16, COMMAND_COPIES, 10, 4, OUT, "EXTENDED COPY(LID4)", scsi_copy_parse, scsi_copy_run,
     USE_LONG(0x83, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, LBA4)},
    {ACTION(0x83, 0x10), 16, MEDIUM_READS, 10, 4, OUT, "POPULATE TOKEN", scsi_token_parse, scsi_populate_token_run,
     USE(0x83, 0x10, 0, 0, 0, 0, LBA4, LBA4, 0x1f)},
    {ACTION(0x83, 0x11), 16, WRITES | COMMAND_COPIES, 10, 4, OUT, "WRITE USING TOKEN", scsi_token_parse,
     scsi_use_token_run, USE_LONG(0x83, 0x11, 0, 0, 0, 0, LBA4, LBA4, 0x1f)},
    {ACTION(0x84, 0x00), 16, 0, 10, 4, IN, "RECEIVE COPY STATUS(LID1)", scsi_copy_status_parse, scsi_copy_status_run,
     USE(0x84, 0x00, 0xff, 0, 0, 0, 0, 0, 0, 0, LBA4)},
    {ACTION(0x84, 0x03), 16, 0, 10, 4, IN, "RECEIVE COPY OPERATING PARAMETERS", scsi_parse_reply,
     scsi_copy_parameters_run, USE(0x84, 0x03, 0xff, 0, 0, 0, 0, 0, 0, 0, LBA4)},
    {ACTION(0x84, 0x04), 16, 0, 10, 4, IN, "RECEIVE COPY FAILURE DETAILS(LID1)", scsi_copy_status_parse,
     scsi_copy_failed_run, USE(0x84, 0x04, 0xff, 0, 0, 0, 0, 0, 0, 0, LBA4)},
    {ACTION(0x84, 0x05), 16, 0, 10, 4, IN, "RECEIVE COPY STATUS(LID4)", scsi_copy_status4_parse, scsi_copy_status4_run,
     USE(0x84, 0x05, LBA4, 0, 0, 0, 0, LBA4)},
    {ACTION(0x84, 0x07), 16, 0, 10, 4, IN, "RECEIVE ROD TOKEN INFORMATION", scsi_copy_status4_parse,
     scsi_token_information_run, USE(0x84, 0x07, LBA4, 0, 0, 0, 0, LBA4)},
    {PLAIN(0x88), 16, MEDIUM_READS, 0, 0, IN, "READ(16)", scsi_transfer_parse, scsi_read_run,
     USE(0x88, 0x18, LBA8, LBA4, 0x1f)},
    {PLAIN(0x89), 16, ATOMIC, 0, 0, OUT, "COMPARE AND WRITE", scsi_compare_write_parse, scsi_compare_write_run,
     USE(0x89, 0x18, LBA8, 0, 0, 0, 0xff, 0x1f)},
    {PLAIN(0x8a), 16, WRITES, 0, 0, OUT, "WRITE(16)", scsi_transfer_parse, scsi_write_run,
     USE(0x8a, 0x18, LBA8, LBA4, 0x1f)},
    {PLAIN(0x8b), 16, WRITES | COMMAND_ATOMIC, 0, 0, OUT, "ORWRITE(16)", scsi_transfer_parse, scsi_orwrite_run,
     USE(0x8b, 0x18, LBA8, LBA4, 0x1f)},
    {PLAIN(0x8e), 16, WRITES, 0, 0, OUT, "WRITE AND VERIFY(16)", scsi_write_verify_parse, scsi_write_verify_run,
     USE(0x8e, 0x12, LBA8, LBA4, 0x1f)},
    {PLAIN(0x8f), 16, MEDIUM_READS, 0, 0, OUT, "VERIFY(16)", scsi_verify_parse, scsi_verify_run,
     USE(0x8f, 0x16, LBA8, LBA4, 0x1f)},
    {PLAIN(0x90), 16, MEDIUM_READS, 0, 0, NONE, "PRE-FETCH(16)", scsi_parse_range, scsi_prefetch_run,
     USE(0x90, 0x02, LBA8, LBA4, 0x1f)},
    {PLAIN(0x91), 16, COMMAND_MEDIUM, 0, 0, NONE, "SYNCHRONIZE CACHE(16)", scsi_parse_range, scsi_flush_run,
     USE_LONG(0x91, 0x06, LBA8, LBA4, 0x1f)},
    {PLAIN(0x93), 16, SAMES, 0, 0, OUT, "WRITE SAME(16)", scsi_write_same_parse, scsi_write_same_run,
     USE_LONG(0x93, 0x09, LBA8, LBA4, 0x1f)},
    {PLAIN(0x9c), 16, ATOMIC | COMMAND_WHOLE, 0, 0, OUT, "WRITE ATOMIC(16)", scsi_write_atomic_parse, scsi_write_run,
     USE(0x9c, 0x18, LBA8, 0xff, 0xff, 0xff, 0xff, 0x1f)},
    {ACTION(0x9e, 0x10), 16, MEDIUM_HARMLESS, 10, 4, IN, "READ CAPACITY(16)", scsi_parse_reply,
     scsi_read_capacity16_run, USE(0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, LBA4)},
    {ACTION(0x9e, 0x12), 16, MEDIUM_READS, 10, 4, IN, "GET LBA STATUS", scsi_lba_status_parse, scsi_lba_status_run,
     USE(0x9e, 0x12, LBA8, LBA4)},
    {PLAIN(0xa0), 12, ALWAYS, 6, 4, IN, "REPORT LUNS", scsi_report_luns_parse, scsi_report_luns_run,
     USE(0xa0, 0, 0xff, 0, 0, 0, LBA4)},
    {ACTION(0xa3, 0x05), 12, HARMLESS, 6, 4, IN, "REPORT IDENTIFYING INFORMATION", scsi_report_identifying_parse,
     scsi_report_identifying_run, USE(0xa3, 0x05, 0, 0, 0, 0, LBA4, 0xfe)},
    {ACTION(0xa3, 0x0a), 12, HARMLESS, 6, 4, IN, "REPORT TARGET PORT GROUPS", scsi_report_port_groups_parse,
     scsi_report_port_groups_run, USE(0xa3, 0xea, 0, 0, 0, 0, LBA4)},
    {ACTION(0xa3, 0x0c), 12, READS, 6, 4, IN, "REPORT SUPPORTED OPERATION CODES", scsi_report_opcodes_parse,
     scsi_report_opcodes_run, USE(0xa3, 0x0c, 0x87, 0xff, 0xff, 0xff, LBA4)},
    {ACTION(0xa3, 0x0d), 12, READS, 6, 4, IN, "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", scsi_report_functions_parse,
     scsi_report_functions_run, USE(0xa3, 0x0d, 0x80, 0, 0, 0, LBA4)},
    {ACTION(0xa3, 0x0f), 12, HARMLESS, 6, 4, IN, "REPORT TIMESTAMP", scsi_parse_reply, scsi_report_timestamp_run,
     USE(0xa3, 0x0f, 0, 0, 0, 0, LBA4)},
    {PLAIN(0xa8), 12, MEDIUM_READS, 0, 0, IN, "READ(12)", scsi_transfer_parse, scsi_read_run,
     USE(0xa8, 0x18, LBA4, LBA4, 0x1f)},
    {PLAIN(0xaa), 12, WRITES, 0, 0, OUT, "WRITE(12)", scsi_transfer_parse, scsi_write_run,
     USE(0xaa, 0x18, LBA4, LBA4, 0x1f)},
    {PLAIN(0xae), 12, WRITES, 0, 0, OUT, "WRITE AND VERIFY(12)", scsi_write_verify_parse, scsi_write_verify_run,
     USE(0xae, 0x12, LBA4, LBA4, 0x1f)},
    {PLAIN(0xaf), 12, MEDIUM_READS, 0, 0, OUT, "VERIFY(12)", scsi_verify_parse, scsi_verify_run,
     USE(0xaf, 0x16, LBA4, LBA4, 0x1f)},
    {PLAIN(0xb7), 12, MEDIUM_READS, 6, 4, IN, "READ DEFECT DATA(12)", scsi_parse_reply, scsi_defects12_run,
     USE(0xb7, 0x1f, 0, 0, 0, 0, LBA4)},
};

const struct scsi_command *scsi_commands(unsigned *count)
{
    *count = ARRAY_LENGTH(commands);
    return commands;
}

bool scsi_command_supported(const struct scsi_command *command, const struct scsi_lu *lu)
{
    if (lu == NULL)
        return true;
    return (!(command->flags & COMMAND_UNMAPS) || lu->dev->info.discards) &&
           (!(command->flags & COMMAND_REMOVABLE) || lu->options.removable) &&
           (!(command->flags & COMMAND_WHOLE) || lu_atomic_blocks(lu) > 0);
}

bool scsi_opcode_has_actions(uint8_t opcode)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(commands); i++)
        if (commands[i].opcode == opcode)
            return commands[i].has_action;
    return false;
}

const struct scsi_command *scsi_command_find(const uint8_t cdb[SCSI_CDB_MAX], const struct scsi_lu *lu)
{
    unsigned low = 0, high = ARRAY_LENGTH(commands);
    while (low < high) {
        unsigned middle = (low + high) / 2;
        const struct scsi_command *row = &commands[middle];
        int order = (int)cdb[0] - row->opcode;
        if (order == 0 && row->has_action)
            order = (int)(cdb[1] & CDB_ACTION_MASK) - row->action;
        if (order == 0)
            return scsi_command_supported(row, lu) ? row : NULL;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* --- what many CDBs have in common --- */

static uint64_t field(const uint8_t *cdb, unsigned at, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value = value << 8 | cdb[at + i];
    return value;
}

static uint32_t length_field(const struct scsi_task *task)
{
    return (uint32_t)field(task->cdb, task->command->length_at, task->command->length_bytes);
}

/* A command without an allocation length (READ CAPACITY(10)) gives what it has. */
bool scsi_parse_reply(struct scsi_task *task)
{
    uint32_t wanted = task->command->length_bytes == 0 ? (uint32_t)SCSI_REPLY_MAX : length_field(task);
    task->data_len = MIN(wanted, (uint32_t)SCSI_REPLY_MAX);
    return true;
}

bool scsi_parse_list(struct scsi_task *task)
{
    task->data_len = length_field(task);
    return task->data_len <= SCSI_LIST_MAX || scsi_task_refuse(task, &sense_list_length);
}

/* Where CDBs of a length have LOGICAL BLOCK ADDRESS and the number of blocks. */
static const struct range_format {
    uint8_t cdb_len, lba_at, lba_bytes, blocks_at, blocks_bytes;
} range_formats[] = {{6, 1, 3, 4, 1}, {10, 2, 4, 7, 2}, {12, 2, 4, 6, 4}, {16, 2, 8, 10, 4}};

static void range_read(struct scsi_task *task)
{
    const struct range_format *format = range_formats;
    while (format->cdb_len != task->command->cdb_len)
        format++;
    task->lba = field(task->cdb, format->lba_at, format->lba_bytes);
    task->blocks = field(task->cdb, format->blocks_at, format->blocks_bytes);
    if (format->cdb_len == 6 && task->blocks == 0) /* SBC-3 5.10 */
        task->blocks = 256;
}

bool scsi_parse_range(struct scsi_task *task)
{
    uint64_t capacity = lu_blocks(task->lu);
    range_read(task);
    if (task->lba > capacity || task->blocks > capacity - task->lba)
        return scsi_task_refuse(task, &sense_out_of_range);
    return true;
}
