/* The unit as a whole: TEST UNIT READY, SEND DIAGNOSTIC, RESERVE and RELEASE. */
#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/task.h"

void scsi_good_run(struct scsi_task *task)
{
    scsi_task_end(task, SCSI_GOOD);
}

bool scsi_test_unit_ready_parse(struct scsi_task *task)
{
    return !task->lu->failed || scsi_task_refuse(task, &sense_failed);
}

/* The self test: SPC-4 6.42. */
bool scsi_send_diagnostic_parse(struct scsi_task *task)
{
    return !task->lu->failed || scsi_task_refuse(task, &sense_self_test);
}

/* True, and the task is over: persistent reservations are in use, so this does not do what it used to. */
static bool persistent_instead(struct scsi_task *task)
{
    enum persist_reserve what = reservations_reserve(task->lu->persist, task->nexus->port_name);
    if (what != RESERVE_AS_EVER)
        scsi_task_end(task, what == RESERVE_CONFLICT ? SCSI_RESERVATION_CONFLICT : SCSI_GOOD);
    return what != RESERVE_AS_EVER;
}

/* SPC-2 7.21 and 7.17: of the whole unit, by the nexus, until it releases, or ends, or the unit is reset. */
void scsi_reserve_run(struct scsi_task *task)
{
    if (persistent_instead(task))
        return;
    task->lu->reserved_by = task->nexus;
    scsi_task_end(task, SCSI_GOOD);
}

/* Of a nexus that does not hold it: GOOD, and nothing happens. */
void scsi_release_run(struct scsi_task *task)
{
    if (persistent_instead(task))
        return;
    if (task->lu->reserved_by == task->nexus)
        task->lu->reserved_by = NULL;
    scsi_task_end(task, SCSI_GOOD);
}
