/*
 * Pings, logout, Reject and asynchronous messages (RFC 7143, 11.9, 11.14 to 11.19).
 *
 * Answers to requests leave from the request's own slot (control_reply); what the target says unasked takes a notice
 * from the connection's small pool. When that pool is empty the connection reads no further (connection_reads), and a
 * PDU is rejected once, so that its Reject always finds one; the other notices are left out then: a peer that takes
 * nothing would not take them either.
 */
#include <string.h>

#include "core/check.h"
#include "target/iscsi/connection.h"

/* --- answers --- */

static bool emit_reply(struct connection *conn, struct outgoing *out)
{
    struct message *message = container_of(out, struct message, out);
    struct command *cmd = container_of(message, struct command, reply);
    session_credit(conn->session, cmd);
    if (!send_pdu(conn, message->bhs, &message->payload, STAT_TAKE))
        return false;
    session_forget_tag(conn->session, cmd);
    return true;
}

static void reply_sent(struct connection *conn, struct outgoing *out)
{
    struct command *cmd = container_of(out, struct command, reply.out);
    if (cmd->pdu.opcode == PDU_TEXT)
        conn->exchange.replying = false;
    connection_release(cmd);
}

void control_reply(struct command *cmd, const struct pdu_out *out, const struct payload *payload)
{
    sm_move(&cmd->state, COMMAND_SENDING);
    pdu_encode(out, cmd->reply.bhs);
    cmd->reply.payload = *payload;
    cmd->reply.out.emit = emit_reply;
    cmd->reply.out.sent = reply_sent;
    send_queue(cmd->conn, &cmd->reply.out);
}

/* 11.19: the ping's data comes back, as far as the initiator's segment goes. */
void nop_run(struct command *cmd)
{
    struct pdu_out out = {.opcode = PDU_NOP_IN, .flags = PDU_FINAL, .itt = cmd->pdu.itt, .ttt = PDU_TAG_NONE};
    struct payload payload = {0};
    memcpy(out.lun, cmd->pdu.lun, sizeof out.lun);
    if (cmd->page_count > 0) {
        payload.pages = cmd->pages;
        payload.len = MIN(cmd->pdu.data_len, connection_max_recv(cmd->conn));
    }
    control_reply(cmd, &out, &payload);
}

enum { LOGOUT_SESSION = 0, LOGOUT_CONNECTION = 1, LOGOUT_RECOVERY = 2 };
enum { LOGOUT_OK = 0, LOGOUT_NO_CID = 1, LOGOUT_NO_RECOVERY = 2 };

/* 11.14, 11.15. One connection is the session, so closing either is the same. */
void logout_run(struct command *cmd)
{
    struct connection *conn = cmd->conn;
    uint8_t reason = cmd->pdu.logout.reason, response = LOGOUT_OK;
    if (reason >= LOGOUT_RECOVERY)
        response = LOGOUT_NO_RECOVERY;
    else if (reason == LOGOUT_CONNECTION && cmd->pdu.logout.cid != conn->login.cid)
        response = LOGOUT_NO_CID;
    struct pdu_out out = {.opcode = PDU_LOGOUT_RESPONSE, .flags = PDU_FINAL, .byte2 = response, .itt = cmd->pdu.itt};
    control_reply(cmd, &out, &(struct payload){0});
    if (response == LOGOUT_OK)
        connection_end(conn);
}

/* --- notices --- */

static void notice_sent(struct connection *conn, struct outgoing *out)
{
    struct notice *notice = container_of(out, struct notice, message.out);
    if (TAILQ_EMPTY(&conn->notices_free) && !conn->resume_task.queued)
        loop_defer(conn->loop, &conn->resume_task);
    TAILQ_INSERT_TAIL(&conn->notices_free, notice, link);
}

static void notice_send(struct connection *conn, const struct pdu_out *out, const void *bytes, enum stat_sn stat_sn)
{
    struct notice *notice = TAILQ_FIRST(&conn->notices_free);
    if (notice == NULL)
        return;
    TAILQ_REMOVE(&conn->notices_free, notice, link);
    pdu_encode(out, notice->message.bhs);
    notice->message.payload = (struct payload){0};
    if (bytes != NULL) {
        memcpy(notice->bytes, bytes, PDU_BHS_BYTES);
        notice->message.payload = (struct payload){.bytes = notice->bytes, .len = PDU_BHS_BYTES};
    }
    notice->message.stat_sn = stat_sn;
    send_message(conn, &notice->message, notice_sent);
}

/* 11.17: with the header of the PDU that is refused. */
void control_reject_request(struct connection *conn, const uint8_t *header, enum pdu_reject reason)
{
    struct pdu_out out = {.opcode = PDU_REJECT, .flags = PDU_FINAL, .byte2 = (uint8_t)reason, .itt = PDU_TAG_NONE};
    notice_send(conn, &out, header, STAT_TAKE);
}

/* Its header may be wrong, and then the digest of its data as well. */
void control_reject(struct connection *conn, enum pdu_reject reason)
{
    if (conn->rx.rejected)
        return;
    conn->rx.rejected = true;
    control_reject_request(conn, conn->rx.reader.header, reason);
}

void control_async(struct connection *conn, uint8_t event, uint16_t parameter1, uint16_t parameter2,
                   uint16_t parameter3)
{
    struct pdu_out out = {.opcode = PDU_ASYNC, .flags = PDU_FINAL, .itt = PDU_TAG_NONE};
    out.word36 = (uint32_t)event << 24 | parameter1;
    out.word40 = (uint32_t)parameter2 << 16 | parameter3;
    notice_send(conn, &out, NULL, STAT_TAKE);
}

static void nop_send(struct connection *conn, uint32_t ttt)
{
    struct pdu_out out = {.opcode = PDU_NOP_IN, .flags = PDU_FINAL, .itt = PDU_TAG_NONE, .ttt = ttt};
    notice_send(conn, &out, NULL, STAT_SHOW);
}

/* 11.4.11: the window is open again, the peer does not know, and nothing is about to tell it. */
void control_reopen(struct connection *conn)
{
    if (connection_phase(conn) == PHASE_FULL_FEATURE && send_idle(conn) && session_must_reopen(conn->session))
        nop_send(conn, PDU_TAG_NONE);
}

/* --- keep-alive --- */

static void keepalive_fire(struct timer *timer)
{
    struct connection *conn = container_of(timer, struct connection, timer);
    uint64_t interval = server_limits(conn)->nop_interval_ns;
    uint64_t silence = loop_now_ns(conn->loop) - conn->heard_ns;
    if (conn->pinged && connection_reads(conn)) {
        connection_close(conn, "no answer to a ping");
        return;
    }
    if (silence < interval || !connection_reads(conn)) {
        timer_start(conn->loop, timer, silence < interval ? interval - silence : interval);
        return;
    }
    conn->pinged = true;
    nop_send(conn, 1); /* a valid tag asks for an answer; which one it is does not matter */
    timer_start(conn->loop, timer, server_limits(conn)->nop_timeout_ns);
}

void control_keepalive(struct connection *conn)
{
    if (server_limits(conn)->nop_interval_ns == 0)
        return;
    conn->timer.fire = keepalive_fire;
    timer_start(conn->loop, &conn->timer, server_limits(conn)->nop_interval_ns);
}
