/*
 * START STOP UNIT (SBC-3 5.25) and PREVENT ALLOW MEDIUM REMOVAL (SBC-3): the medium of a unit that is removable.
 *
 *              LOEJ: nobody prevents, all is durable
 *     IN (ejected = false) -----------------------------> OUT (ejected = true)
 *          ^                                                 |
 *          +-------------------------------------------------+
 *              LOEJ and START: nobody prevents; the others hear 28/00
 *
 * Nothing is moved: while it is OUT commands that need the medium (COMMAND_MEDIUM) are told 2/3A/00 on all nexuses of
 * this LU. Its volume stays as it is, also for other LUNs and exports of it. What was under way at the eject is carried
 * through. OUT outlives resets, not the daemon: an LU begins with its medium IN. What a nexus prevents ends with the
 * nexus, with a reset, and when it is preempted (PREEMPT AND ABORT).
 *
 * To stop a unit without LOEJ is to make everything durable: one that several initiators share is not stopped by one of
 * them. Power conditions are not supported.
 */
#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/sanitize.h"
#include "target/scsi/task.h"

enum { CDB_POWER_CONDITION = 0xf0, CDB_NO_FLUSH = 0x04, CDB_LOEJ = 0x02 };

static bool is_prevented(const struct scsi_lu *lu)
{
    const struct scsi_nexus *nexus;
    TAILQ_FOREACH(nexus, &lu->target->nexuses, link)
    if (nexus->prevents[lu->lun])
        return true;
    return false;
}

/* Why the medium cannot be where the command wants it; NULL: it can. */
static const struct scsi_sense *hindrance(const struct scsi_task *task, struct scsi_sense *space)
{
    const struct scsi_lu *lu = task->lu;
    const struct scsi_sense *forbidden = scsi_sanitize_forbids(lu, task->command, space);
    bool start = (task->cdb[4] & CDB_START) != 0, moves = start == lu->ejected;
    if (forbidden != NULL)
        return forbidden;
    if (task->cdb[4] & CDB_LOEJ)
        return moves && is_prevented(lu) ? &sense_removal_prevented : NULL;
    return start && lu->ejected ? &sense_no_medium : NULL;
}

bool scsi_start_stop_parse(struct scsi_task *task)
{
    uint8_t unknown = CDB_POWER_CONDITION | (task->lu->options.removable ? 0 : CDB_LOEJ);
    return !(task->cdb[4] & unknown) || scsi_task_refuse_field(task, 4);
}

static void move_medium(struct scsi_lu *lu, bool eject, const struct scsi_nexus *cause)
{
    if (lu->ejected && !eject)
        scsi_attention_raise(lu, ATTENTION_MEDIUM_CHANGED, cause);
    lu->ejected = eject;
}

/* An eject makes everything durable whatever NO_FLUSH says, and looks again: somebody may prevent it by now, or
 * SANITIZE wait for it. */
void scsi_start_stop_run(struct scsi_task *task)
{
    bool start = (task->cdb[4] & CDB_START) != 0, loej = (task->cdb[4] & CDB_LOEJ) != 0;
    struct scsi_sense space;
    const struct scsi_sense *why = hindrance(task, &space);
    if (why != NULL) {
        scsi_task_fail(task, why);
        return;
    }
    if (!start && (loej || !(task->cdb[4] & CDB_NO_FLUSH)) && task->phase++ == 0) {
        scsi_task_submit(task, BLK_FLUSH, 0, 0, 0, NULL);
        return;
    }
    if (loej)
        move_medium(task->lu, !start, task->nexus);
    scsi_task_end(task, SCSI_GOOD);
}

/* To allow needs no flush of its own: the eject has one. */
void scsi_prevent_allow_run(struct scsi_task *task)
{
    task->nexus->prevents[task->lu->lun] = (task->cdb[4] & CDB_PREVENT) != 0;
    scsi_task_end(task, SCSI_GOOD);
}
