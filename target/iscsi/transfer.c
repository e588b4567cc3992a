/*
 * SCSI commands and their data (RFC 7143, 11.3, 11.4, 11.7, 11.8).
 *
 * transfer_begin() is called when the header of a command is here: parse (direction, length, place), the rules for
 * unsolicited data, pages. A command is parsed when it arrives but runs in the order of CmdSN.
 *
 * transfer_advance() is the one place that decides what comes next: analyse, decide, act. It is called whenever
 * something has changed (PDU complete, turn come, pages granted, a burst of Data-Out over).
 *
 * Data-Out belongs to a `burst`: the unsolicited one, or one per R2T. Tag, offset, length and DataSN are checked before
 * a byte is taken. A command that failed while data are due answers after the F bits of all its bursts (11.17.1). A gap
 * in DataSN is, at error recovery level 0, a lost PDU: Reject, and the command ends with 0B/47/05 (7.9); so does a
 * command with a wrong data digest (7.8).
 *
 * Residuals (11.4.5) are between what the initiator expects (EDTL) and what the command presents, both ways.
 */
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/iscsi/connection.h"

enum {
    KEY_ILLEGAL_REQUEST = 0x05,
    KEY_ABORTED_COMMAND = 0x0b,
    ASC_PROTOCOL = 0x0c,  /* 0C/0C unexpected unsolicited data, 0C/0D not enough unsolicited data: 11.4.7.2 */
    ASC_SERVICE = 0x47,   /* 47/05 protocol service CRC error */
    ASC_RESOURCES = 0x55, /* 55/03 insufficient resources */
    ASC_INVALID_OPCODE = 0x20,
};

static void scsi_done(struct scsi_task *task);

static uint32_t value_of(const struct command *cmd, enum key_id id)
{
    return cmd->conn->login.keys.value[id];
}

static bool bursts_open(const struct command *cmd)
{
    bool open = cmd->unsolicited.open;
    for (unsigned i = 0; i < ARRAY_LENGTH(cmd->bursts); i++)
        open |= cmd->bursts[i].open;
    return open;
}

void transfer_fail(struct command *cmd, uint8_t key, uint8_t asc, uint8_t ascq)
{
    if (cmd->over)
        return;
    cmd->over = true;
    scsi_task_set_sense(&cmd->scsi, key, asc, ascq);
}

static void fail_data(struct command *cmd, uint8_t ascq)
{
    transfer_fail(cmd, KEY_ABORTED_COMMAND, ASC_PROTOCOL, ascq);
}

/* --- the command's own PDU --- */

static void parse(struct command *cmd)
{
    const struct pdu *pdu = &cmd->pdu;
    struct scsi_task *task = &cmd->scsi;
    task->nexus = cmd->conn->session->nexus;
    task->transport_len = pdu->command.read || pdu->command.write ? pdu->command.edtl : 0;
    task->done = scsi_done;
    task->pages = cmd->pages;
    task->lu = NULL;
    task->received_len = 0;
    task->status = SCSI_GOOD;
    task->sense_len = 0;
    task->result_len = task->data_len = task->page_off = 0;
    task->direction = SCSI_DATA_NONE;
    memcpy(task->lun, pdu->lun, sizeof task->lun);
    memcpy(task->cdb, pdu->command.cdb, sizeof task->cdb);
    if (pdu->command.extended)
        transfer_fail(cmd, KEY_ILLEGAL_REQUEST, ASC_INVALID_OPCODE, 0);
    else
        cmd->over = !scsi_task_parse(task);
}

/* 13.10, 13.11, 13.14, 11.3.4: what may come without being asked for. */
static void check_unsolicited(struct command *cmd)
{
    const struct pdu *pdu = &cmd->pdu;
    uint32_t first = MIN(value_of(cmd, KEY_FIRST_BURST), pdu->command.edtl);
    if (pdu->data_len > 0 && (!pdu->command.write || !value_of(cmd, KEY_IMMEDIATE_DATA)))
        fail_data(cmd, 0x0c);
    else if (pdu->data_len > first)
        fail_data(cmd, 0x0d);
    else if (pdu->command.write && !pdu->final && value_of(cmd, KEY_INITIAL_R2T))
        fail_data(cmd, 0x0c);
    cmd->unsolicited = (struct burst){.open = pdu->command.write && !pdu->final,
                                      .ttt = PDU_TAG_NONE,
                                      .offset = pdu->data_len,
                                      .len = first > pdu->data_len ? first - pdu->data_len : 0};
}

/*
 * Does a command of this connection hold pages and wait for something that only more reading brings: its data, the F
 * bit of its last burst, or the CmdSN before its own? If so, reading must not stop.
 */
bool transfer_data_due(const struct session *session)
{
    const struct command *cmd;
    TAILQ_FOREACH(cmd, &session->live, link)
    {
        bool due = cmd->page_state == PAGES_HELD || (cmd->page_state == PAGES_GRANTED && cmd->arrived < cmd->expected);
        if (due && command_state(cmd) == COMMAND_WAITING)
            return true;
    }
    return false;
}

/* No pages: wait while reading goes on; or stop reading; or, if what would free pages comes behind, refuse. */
static void wait_for_pages(struct command *cmd)
{
    bool data_next = cmd->pdu.data_len > 0 || cmd->unsolicited.open;
    if (!data_next) {
        pages_wait(cmd, false);
    } else if (!transfer_data_due(cmd->conn->session)) {
        cmd->conn->rx.blocked = true;
        pages_wait(cmd, true);
    } else {
        cmd->over = true;
        cmd->scsi.status = SCSI_TASK_SET_FULL;
    }
}

/*
 * How many pages the data takes. The pool has other users, some of which keep what they have for good (caches, scratch
 * pages); so a command that wants more than half of it might wait for ever, and fails instead.
 */
static void size_pages(struct command *cmd)
{
    uint32_t count = cmd->scsi.data_len > 0 ? page_count_for(cmd->scsi.page_off, cmd->scsi.data_len) : 0;
    if (cmd->over)
        return;
    if (count > COMMAND_PAGES_MAX || count > page_pool_size(cmd->conn->loop->pages) / 2)
        transfer_fail(cmd, KEY_ABORTED_COMMAND, ASC_RESOURCES, 0x03);
    else
        cmd->page_count = count;
}

void transfer_begin(struct command *cmd)
{
    struct receiver *rx = &cmd->conn->rx;
    memset(cmd->bursts, 0, sizeof cmd->bursts);
    cmd->arrived = cmd->r2t_next = cmd->r2t_sn = cmd->send_len = cmd->sent = cmd->data_sn = 0;
    stats_begin(cmd);
    parse(cmd);
    check_unsolicited(cmd);
    size_pages(cmd);
    bool out = cmd->scsi.direction == SCSI_DATA_OUT && cmd->pdu.command.write;
    cmd->expected = out && !cmd->over ? MIN(cmd->pdu.command.edtl, cmd->scsi.data_len) : 0;
    rx->sink = SINK_COMMAND;
    rx->command = cmd;
    rx->burst = NULL;
    rx->at = cmd->scsi.page_off;
    if (!cmd->over && !pages_acquire(cmd))
        wait_for_pages(cmd);
    rx->room = cmd->over ? 0 : MIN(cmd->pdu.data_len, cmd->expected);
    cmd->arrived = rx->room; /* when the PDU is complete, which is before anybody looks */
}

/* --- Data-Out --- */

static struct burst *burst_find(struct command *cmd, uint32_t ttt)
{
    if (ttt == PDU_TAG_NONE)
        return cmd->unsolicited.open ? &cmd->unsolicited : NULL;
    for (unsigned i = 0; i < ARRAY_LENGTH(cmd->bursts); i++)
        if (cmd->bursts[i].open && cmd->bursts[i].ttt == ttt)
            return &cmd->bursts[i];
    return NULL;
}

/* Is this the PDU that comes next in the burst? If not, the command has failed. */
static bool burst_accepts(struct command *cmd, const struct burst *burst, const struct pdu *pdu)
{
    if (pdu->data_out.data_sn != burst->data_sn) {
        transfer_fail(cmd, KEY_ABORTED_COMMAND, ASC_SERVICE, 0x05);
        control_reject(cmd->conn, PDU_REJECT_PROTOCOL);
        return false;
    }
    if (pdu->data_out.offset != burst->offset + burst->got || pdu->data_len > burst->len - burst->got) {
        fail_data(cmd, burst == &cmd->unsolicited ? 0x0c : 0x0d);
        control_reject(cmd->conn, PDU_REJECT_FIELD);
        return false;
    }
    return true;
}

/* The header of a Data-Out: who takes it, and where to. A tag that is not known any more was aborted: dropped. */
void transfer_data_out(struct connection *conn, const struct pdu *pdu)
{
    struct receiver *rx = &conn->rx;
    struct command *cmd = session_find(conn->session, pdu->itt);
    rx->sink = SINK_DISCARD;
    rx->command = NULL;
    if (cmd == NULL || cmd->pdu.opcode != PDU_COMMAND || command_state(cmd) != COMMAND_WAITING)
        return;
    struct burst *burst = burst_find(cmd, pdu->ttt);
    if (burst == NULL) {
        if (pdu->ttt == PDU_TAG_NONE)
            fail_data(cmd, 0x0c);
        control_reject(conn, PDU_REJECT_FIELD);
        transfer_advance(cmd);
        return;
    }
    rx->sink = SINK_COMMAND;
    rx->command = cmd;
    rx->burst = burst;
    bool kept = !cmd->over && burst_accepts(cmd, burst, pdu) && pdu->data_out.offset < cmd->expected;
    rx->room = kept ? MIN(pdu->data_len, cmd->expected - pdu->data_out.offset) : 0;
    rx->at = cmd->scsi.page_off + (kept ? pdu->data_out.offset : 0);
    ASSERT(rx->room == 0 || cmd->page_state == PAGES_HELD);
}

void transfer_data_complete(struct connection *conn, bool digest_good)
{
    struct command *cmd = conn->rx.command;
    struct burst *burst = conn->rx.burst;
    const struct pdu *pdu = &conn->rx.pdu;
    if (cmd == NULL || burst == NULL)
        return;
    if (!digest_good)
        transfer_fail(cmd, KEY_ABORTED_COMMAND, ASC_SERVICE, 0x05);
    burst->data_sn++;
    burst->got += MIN(pdu->data_len, burst->len - burst->got);
    burst->open = !pdu->final;
    cmd->arrived = MIN(MAX(cmd->arrived, burst->offset + burst->got), cmd->expected);
    if (pdu->final && burst != &cmd->unsolicited && burst->got < burst->len)
        fail_data(cmd, 0x0d);
    transfer_advance(cmd);
}

/* --- R2T --- */

static struct burst *burst_free(struct command *cmd)
{
    for (unsigned i = 0; i < value_of(cmd, KEY_MAX_R2T); i++)
        if (!cmd->bursts[i].open)
            return &cmd->bursts[i];
    return NULL;
}

static bool emit_r2t(struct connection *conn, struct outgoing *out)
{
    struct command *cmd = container_of(out, struct command, r2t);
    struct burst *burst;
    while (cmd->r2t_next < cmd->expected && !cmd->over && (burst = burst_free(cmd)) != NULL) {
        uint32_t len = MIN(value_of(cmd, KEY_MAX_BURST), cmd->expected - cmd->r2t_next),
                 ttt = session_next_tag(conn->session);
        struct pdu_out r2t = {.opcode = PDU_R2T, .flags = PDU_FINAL, .itt = cmd->pdu.itt, .ttt = ttt};
        r2t.word36 = cmd->r2t_sn;
        r2t.word40 = cmd->r2t_next;
        r2t.word44 = len;
        memcpy(r2t.lun, cmd->pdu.lun, sizeof r2t.lun);
        uint8_t bhs[PDU_BHS_BYTES];
        pdu_encode(&r2t, bhs);
        if (!send_pdu(conn, bhs, &(struct payload){0}, STAT_SHOW))
            return false;
        *burst = (struct burst){.open = true, .ttt = ttt, .offset = cmd->r2t_next, .len = len};
        cmd->r2t_next += len;
        cmd->r2t_sn++;
    }
    return true;
}

static void r2t_sent(struct connection *conn, struct outgoing *out)
{
    struct command *cmd = container_of(out, struct command, r2t);
    cmd->moved_ns = loop_now_ns(conn->loop);
    if (command_state(cmd) == COMMAND_WAITING)
        transfer_advance(cmd);
}

/* --- the answer --- */

struct residual {
    uint8_t flag;
    uint32_t count;
};

static struct residual residual_of(const struct command *cmd)
{
    const struct pdu *pdu = &cmd->pdu;
    const struct scsi_task *task = &cmd->scsi;
    uint32_t expected = pdu->command.read || pdu->command.write ? pdu->command.edtl : 0;
    uint32_t presented = 0;
    if (!cmd->over && task->direction == SCSI_DATA_IN)
        presented = task->result_len;
    if (!cmd->over && task->direction == SCSI_DATA_OUT)
        presented = task->data_len;
    if (presented > expected)
        return (struct residual){PDU_OVERFLOW, presented - expected};
    return (struct residual){presented < expected ? PDU_UNDERFLOW : 0, expected - presented};
}

static bool emit_response(struct connection *conn, struct command *cmd)
{
    struct residual residual = residual_of(cmd);
    struct pdu_out out = {.opcode = PDU_RESPONSE, .flags = PDU_FINAL | residual.flag, .itt = cmd->pdu.itt};
    out.byte3 = (uint8_t)cmd->scsi.status;
    out.word36 = cmd->data_sn + cmd->r2t_sn; /* ExpDataSN */
    out.word44 = residual.count;
    uint8_t bhs[PDU_BHS_BYTES], sense[2 + SCSI_SENSE_MAX];
    pdu_encode(&out, bhs);
    put_be16(sense, cmd->scsi.sense_len); /* 11.4.7 */
    memcpy(sense + 2, cmd->scsi.sense, cmd->scsi.sense_len);
    struct payload payload = {.bytes = sense, .len = cmd->scsi.sense_len > 0 ? 2u + cmd->scsi.sense_len : 0};
    session_credit(conn->session, cmd); /* the answer itself tells of the room it makes */
    return send_pdu(conn, bhs, &payload, STAT_TAKE);
}

/* The next Data-In: within the initiator's segment, F at the end of each burst, status in the last if it is good. */
static bool emit_data_in(struct connection *conn, struct command *cmd)
{
    uint32_t burst_left = value_of(cmd, KEY_MAX_BURST) - cmd->sent % value_of(cmd, KEY_MAX_BURST);
    uint32_t left = cmd->send_len - cmd->sent;
    uint32_t len = MIN(MIN(left, burst_left), MIN(connection_max_recv(conn), (uint32_t)MAX_RECV_OURS));
    bool last = len == left, status = last && cmd->scsi.status == SCSI_GOOD;
    struct residual residual = residual_of(cmd);
    struct pdu_out out = {.opcode = PDU_DATA_IN, .itt = cmd->pdu.itt, .ttt = PDU_TAG_NONE};
    out.flags = (uint8_t)((last || len == burst_left ? PDU_FINAL : 0) | (status ? PDU_STATUS | residual.flag : 0));
    out.byte3 = status ? (uint8_t)cmd->scsi.status : 0;
    out.word36 = cmd->data_sn;
    out.word40 = cmd->sent;
    out.word44 = status ? residual.count : 0;
    uint8_t bhs[PDU_BHS_BYTES];
    pdu_encode(&out, bhs);
    struct payload payload = {.pages = cmd->pages, .page_off = cmd->scsi.page_off + cmd->sent, .len = len};
    if (status)
        session_credit(conn->session, cmd);
    if (!send_pdu(conn, bhs, &payload, status ? STAT_TAKE : STAT_NONE))
        return false;
    cmd->data_sn++;
    cmd->sent += len;
    return true;
}

static bool emit_answer(struct connection *conn, struct outgoing *out)
{
    struct command *cmd = container_of(out, struct command, reply.out);
    bool collapsed = cmd->send_len > 0 && cmd->scsi.status == SCSI_GOOD; /* the last Data-In brings the status */
    while (cmd->sent < cmd->send_len)
        if (!emit_data_in(conn, cmd))
            return false;
    if (!collapsed && !emit_response(conn, cmd))
        return false;
    session_forget_tag(conn->session, cmd);
    return true;
}

static void answer_sent(struct connection *conn, struct outgoing *out)
{
    (void)conn;
    connection_release(container_of(out, struct command, reply.out));
}

static void answer(struct command *cmd)
{
    struct connection *conn = cmd->conn;
    bool in = cmd->scsi.direction == SCSI_DATA_IN && cmd->pdu.command.read && cmd->page_state == PAGES_HELD;
    cmd->send_len = in ? MIN(cmd->scsi.result_len, cmd->pdu.command.edtl) : 0;
    sm_move(&cmd->state, COMMAND_SENDING);
    stats_answered(cmd, cmd->send_len);
    cmd->reply.out.emit = emit_answer;
    cmd->reply.out.sent = answer_sent;
    send_queue(conn, &cmd->reply.out);
}

static void scsi_done(struct scsi_task *task)
{
    struct command *cmd = container_of(task, struct command, scsi);
    if (command_state(cmd) == COMMAND_ORPHAN)
        connection_release(cmd);
    else
        answer(cmd);
}

/* --- what comes next --- */

void transfer_advance(struct command *cmd)
{
    if (command_state(cmd) != COMMAND_WAITING || !cmd->delivered)
        return;
    if (cmd->silent) {
        connection_release(cmd);
        return;
    }
    if (bursts_open(cmd) && (cmd->over || cmd->unsolicited.open))
        return; /* its data is still on the way */
    if (cmd->over) {
        answer(cmd);
        return;
    }
    if (cmd->page_count > 0 && cmd->page_state != PAGES_HELD)
        return;
    if (cmd->arrived >= cmd->expected && !bursts_open(cmd)) {
        sm_move(&cmd->state, COMMAND_RUNNING);
        cmd->scsi.received_len = cmd->expected;
        scsi_task_run(&cmd->scsi);
        return;
    }
    cmd->r2t_next = MAX(cmd->r2t_next, cmd->arrived);
    if (cmd->r2t_next < cmd->expected && cmd->r2t.where == OUT_IDLE && burst_free(cmd) != NULL) {
        cmd->r2t.emit = emit_r2t;
        cmd->r2t.sent = r2t_sent;
        send_queue(cmd->conn, &cmd->r2t);
    }
}

/* --- abort --- */

/* Not begun: it is over as it stands. With an answer to give it waits for the F bits first, as any that fails. */
static void abort_waiting(struct command *cmd, bool tell)
{
    stats_aborted(cmd);
    cmd->over = true;
    cmd->silent = !tell;
    cmd->scsi.status = SCSI_TASK_ABORTED;
    cmd->scsi.sense_len = 0;
    if (tell || command_state(cmd) == COMMAND_RECEIVING)
        return; /* its own PDU must still be received, for the sake of its CmdSN */
    receive_forget(cmd->conn, cmd);
    session_forget_tag(cmd->conn->session, cmd);
}

/* Nothing more of its answer will be built. If a part is on its way already, `sent` releases it later. */
static void abort_sending(struct command *cmd)
{
    bool complete = cmd->reply.out.where == OUT_BATCHED;
    if (complete)
        return; /* it was answered before */
    stats_aborted(cmd);
    session_forget_tag(cmd->conn->session, cmd);
    if (send_cancel(cmd->conn, &cmd->reply.out))
        connection_release(cmd);
}

void transfer_abort(struct command *cmd, bool tell)
{
    switch (command_state(cmd)) {
    case COMMAND_RECEIVING:
    case COMMAND_WAITING:
        abort_waiting(cmd, tell);
        transfer_advance(cmd);
        return;
    case COMMAND_RUNNING:
        stats_aborted(cmd);
        if (!tell) {
            session_forget_tag(cmd->conn->session, cmd);
            sm_move(&cmd->state, COMMAND_ORPHAN);
        }
        scsi_task_abort(&cmd->scsi);
        return;
    case COMMAND_SENDING:
        abort_sending(cmd);
        return;
    case COMMAND_FREE:
    case COMMAND_ORPHAN:
        return;
    }
}
