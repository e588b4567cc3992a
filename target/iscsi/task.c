/*
 * Task management (RFC 7143, 4.2.3, 11.5, 11.6).
 *
 * A function takes effect at once, whatever the disk does: a covered command that runs is orphaned (its pages stay with
 * it until the disk is done), one that waits is forgotten, and late Data-Out for it finds no one and is dropped. So the
 * response can follow immediately, and after it no covered command of the issuer is answered any more. For that, an
 * immediate request waits for commands in front of it that are not here yet (4.2.3.3), unless it names its task.
 * Commands of other sessions that are swept away end with TASK ABORTED (TAS) and, for CLEAR TASK SET, a unit attention.
 */
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/iscsi/connection.h"

enum {
    ABORT_TASK = 1,
    ABORT_TASK_SET = 2,
    CLEAR_ACA = 3,
    CLEAR_TASK_SET = 4,
    LUN_RESET = 5,
    TARGET_WARM_RESET = 6,
    TARGET_COLD_RESET = 7,
    TASK_REASSIGN = 8,
};
enum { COMPLETE = 0, NO_TASK = 1, NO_LUN = 2, NO_REASSIGN = 4, NOT_SUPPORTED = 5 };

/* Two sessions may have different numbers for one LU, so LUNs here are the target's own: scsi_nexus_resolve(). */
static bool is_for(const struct command *cmd, const uint8_t *lun)
{
    uint8_t own[8];
    return scsi_nexus_resolve(cmd->conn->session->nexus, cmd->pdu.lun, own) && memcmp(own, lun, sizeof own) == 0;
}

/*
 * May `cmd` be swept away by the request `task`? 4.2.3.2: those issued before it, by the order of CmdSN. `lun` NULL: of
 * all LUs.
 */
static bool covered(const struct command *cmd, const struct command *task, const uint8_t *lun)
{
    if (cmd == task || cmd->pdu.opcode != PDU_COMMAND)
        return false;
    if (lun != NULL && !is_for(cmd, lun))
        return false;
    bool own = cmd->conn == task->conn;
    return !own || cmd->pdu.immediate || serial_less(cmd->pdu.cmd_sn, task->pdu.cmd_sn);
}

/* Returns whether there was any. */
static bool sweep(struct session *session, const struct command *task, const uint8_t *lun)
{
    bool any = false, own = session == task->conn->session;
    struct command *cmd = TAILQ_FIRST(&session->live), *next;
    for (; cmd != NULL; cmd = next) {
        next = TAILQ_NEXT(cmd, link);
        if (!covered(cmd, task, lun))
            continue;
        any |= command_state(cmd) != COMMAND_ORPHAN;
        transfer_abort(cmd, !own);
    }
    return any;
}

static void sweep_all(const struct command *task, const uint8_t *lun, bool attention)
{
    struct connection *conn;
    TAILQ_FOREACH(conn, &task->conn->target->sessions, session_link)
    {
        bool any = sweep(conn->session, task, lun);
        if (any && attention && conn != task->conn)
            scsi_nexus_cleared(conn->session->nexus, lun);
    }
}

/* 11.6.1. */
static uint8_t abort_task(struct command *task, const uint8_t *lun)
{
    (void)lun;
    struct session *session = task->conn->session;
    const struct pdu *pdu = &task->pdu;
    struct command *cmd = session_find(session, pdu->task.ref_itt);
    if (cmd != NULL && cmd != task && cmd->pdu.opcode == PDU_COMMAND) {
        transfer_abort(cmd, false);
        return COMPLETE;
    }
    uint32_t ref = pdu->task.ref_cmd_sn;
    if (!session_in_window(session, ref) || !serial_less(ref, pdu->cmd_sn))
        return NO_TASK;
    session_skip(session, ref); /* not here yet: it counts as received, and is not waited for */
    return COMPLETE;
}

static uint8_t abort_task_set(struct command *task, const uint8_t *lun)
{
    sweep(task->conn->session, task, lun);
    return COMPLETE;
}

static uint8_t clear_task_set(struct command *task, const uint8_t *lun)
{
    sweep_all(task, lun, true);
    return COMPLETE;
}

static uint8_t lun_reset(struct command *task, const uint8_t *lun)
{
    sweep_all(task, lun, false);
    scsi_lun_reset(task->conn->target->scsi, lun);
    return COMPLETE;
}

static uint8_t warm_reset(struct command *task, const uint8_t *lun)
{
    (void)lun;
    sweep_all(task, NULL, false);
    scsi_target_reset(task->conn->target->scsi);
    return COMPLETE;
}

/* Ends all sessions: the others' now, this one's after its response. */
static uint8_t cold_reset(struct command *task, const uint8_t *lun)
{
    struct connection *conn = TAILQ_FIRST(&task->conn->target->sessions), *next;
    warm_reset(task, lun);
    for (; conn != NULL; conn = next) {
        next = TAILQ_NEXT(conn, session_link);
        if (conn != task->conn)
            connection_close(conn, "target cold reset by another session");
    }
    return COMPLETE;
}

static uint8_t reassign(struct command *task, const uint8_t *lun)
{
    (void)task, (void)lun;
    return NO_REASSIGN;
}

static const struct {
    uint8_t (*run)(struct command *, const uint8_t *lun);
    bool needs_lun;
} functions[] = {
    [ABORT_TASK] = {abort_task, true},
    [ABORT_TASK_SET] = {abort_task_set, true},
    [CLEAR_ACA] = {NULL, false}, /* NACA is not supported */
    [CLEAR_TASK_SET] = {clear_task_set, true},
    [LUN_RESET] = {lun_reset, true},
    [TARGET_WARM_RESET] = {warm_reset, false},
    [TARGET_COLD_RESET] = {cold_reset, false},
    [TASK_REASSIGN] = {reassign, false},
};

void task_run(struct command *cmd)
{
    struct connection *conn = cmd->conn;
    uint8_t function = cmd->pdu.task.function, response = NOT_SUPPORTED;
    if (function != ABORT_TASK && session_waits_for_lower(conn->session, cmd))
        return;
    if (function < ARRAY_LENGTH(functions) && functions[function].run != NULL) {
        uint8_t lun[8];
        bool there = scsi_nexus_resolve(conn->session->nexus, cmd->pdu.lun, lun);
        response = there || !functions[function].needs_lun ? functions[function].run(cmd, lun) : NO_LUN;
    }
    struct pdu_out out = {.opcode = PDU_TASK_RESPONSE, .flags = PDU_FINAL, .byte2 = response, .itt = cmd->pdu.itt};
    control_reply(cmd, &out, &(struct payload){0});
    if (function == TARGET_COLD_RESET)
        connection_end(conn);
}
