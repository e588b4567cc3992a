/* What else a target and an LU say of themselves: ports, task management, time, names, defects. All of it is
 * constant. */
#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/task.h"

enum { THE_PORT = 1, THE_GROUP = 1 };

/* --- REPORT TARGET PORT GROUPS, SPC-4 6.37: one port in one group that is active and optimized --- */

void scsi_report_port_groups_run(struct scsi_task *task)
{
    enum { EXTENDED = 0x20, AO_SUP = 0x01, GROUP = 8, PORT = 4 };
    uint8_t data[8 + GROUP + PORT] = {0};
    uint32_t header = (task->cdb[1] & 0xe0) == EXTENDED ? 8 : 4;
    uint8_t *group = data + header;
    put_be32(data, header - 4 + GROUP + PORT);
    if (header == 8)
        data[4] = 0x10; /* no implicit transition time */
    group[1] = AO_SUP;
    put_be16(group + 2, THE_GROUP);
    group[7] = 1; /* port */
    put_be16(group + GROUP + 2, THE_PORT);
    scsi_task_reply(task, data, header + GROUP + PORT);
}

/* Only two formats are defined. */
bool scsi_report_port_groups_parse(struct scsi_task *task)
{
    return (task->cdb[1] & 0xc0) == 0 ? scsi_parse_reply(task) : scsi_task_refuse(task, &sense_cdb_field);
}

/* --- REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS, 6.36: those of target/iscsi/task.c --- */

void scsi_report_functions_run(struct scsi_task *task)
{
    enum { REPD = 0x80, ATS = 0x80, ATSS = 0x40, CTSS = 0x10, LURS = 0x08, TRS = 0x02, SHORT = 4, EXTENDED = 16 };
    bool extended = (task->cdb[2] & REPD) != 0;
    uint8_t data[EXTENDED] = {ATS | ATSS | CTSS | LURS | TRS, 0, 0, extended ? EXTENDED - SHORT : 0};
    scsi_task_reply(task, data, extended ? EXTENDED : SHORT);
}

bool scsi_report_functions_parse(struct scsi_task *task)
{
    return get_be32(task->cdb + 6) >= 4 ? scsi_parse_reply(task) : scsi_task_refuse(task, &sense_cdb_field);
}

/* --- REPORT TIMESTAMP, 6.38: milliseconds since 1970, which nobody set by SET TIMESTAMP --- */

void scsi_report_timestamp_run(struct scsi_task *task)
{
    enum { ORIGIN_OTHER = 3 };
    uint8_t data[12] = {0, 10, ORIGIN_OTHER};
    uint64_t ms = loop_wall_clock_s(task->lu->target->loop) * 1000;
    put_be16(data + 4, (uint16_t)(ms >> 32));
    put_be32(data + 6, (uint32_t)ms);
    scsi_task_reply(task, data, sizeof data);
}

/* --- REPORT IDENTIFYING INFORMATION, 6.32: nothing was set, nor can be --- */

enum { TYPE_LU = 0, TYPE_LU_TEXT = 2, TYPE_SUPPORTED = 0x7f };

bool scsi_report_identifying_parse(struct scsi_task *task)
{
    uint8_t type = task->cdb[10] >> 1;
    bool known = type == TYPE_LU || type == TYPE_LU_TEXT || type == TYPE_SUPPORTED;
    return known ? scsi_parse_reply(task) : scsi_task_refuse(task, &sense_cdb_field);
}

void scsi_report_identifying_run(struct scsi_task *task)
{
    uint8_t data[12] = {[4] = TYPE_LU << 1, [8] = TYPE_LU_TEXT << 1}; /* of both at most 0 bytes */
    bool supported = task->cdb[10] >> 1 == TYPE_SUPPORTED;
    put_be16(data + 2, supported ? 8 : 0);
    scsi_task_reply(task, data, supported ? sizeof data : 4);
}

/* --- READ DEFECT DATA, SBC-3 5.17 and 5.18: the lists are empty, in any format --- */

void scsi_defects10_run(struct scsi_task *task)
{
    uint8_t data[4] = {0, task->cdb[2] & 0x1f};
    scsi_task_reply(task, data, sizeof data);
}

void scsi_defects12_run(struct scsi_task *task)
{
    uint8_t data[8] = {0, task->cdb[1] & 0x1f};
    scsi_task_reply(task, data, sizeof data);
}
