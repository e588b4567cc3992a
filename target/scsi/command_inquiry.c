/* INQUIRY (SPC-4 6.6): the standard data, or a VPD page. Answers at once, also for a LUN that does not exist. */
#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/task.h"
#include "target/scsi/vpd.h"

enum { CDB_EVPD = 0x01 };

bool scsi_inquiry_parse(struct scsi_task *task)
{
    uint8_t page[VPD_BYTES_MAX];
    bool evpd = (task->cdb[1] & CDB_EVPD) != 0;
    if (!evpd && task->cdb[2] != 0)
        return scsi_task_refuse(task, &sense_cdb_field);
    if (evpd && (task->lu == NULL || scsi_vpd_build(page, task->lu, task->cdb[2]) == 0))
        return scsi_task_refuse(task, task->lu == NULL ? &sense_no_lu : &sense_cdb_field);
    return scsi_parse_reply(task);
}

void scsi_inquiry_run(struct scsi_task *task)
{
    uint8_t data[VPD_BYTES_MAX];
    uint32_t len = INQUIRY_BYTES;
    if (task->cdb[1] & CDB_EVPD)
        len = scsi_vpd_build(data, task->lu, task->cdb[2]);
    else
        scsi_inquiry_build(data, task->lu);
    scsi_task_reply(task, data, len);
}
