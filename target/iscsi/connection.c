/* The life of a connection, and who deals with which PDU: see connection.h. */
#include "target/iscsi/connection.h"

#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"

static const struct sm_state phases[] = {
    [PHASE_LOGIN] = {"login",
                     SM_TO(PHASE_MOVING) | SM_TO(PHASE_FULL_FEATURE) | SM_TO(PHASE_ENDING) | SM_TO(PHASE_CLOSED)},
    [PHASE_MOVING] = {"login", SM_TO(PHASE_LOGIN)},
    [PHASE_FULL_FEATURE] = {"full feature", SM_TO(PHASE_ENDING) | SM_TO(PHASE_CLOSED)},
    [PHASE_ENDING] = {"logout", SM_TO(PHASE_CLOSED)},
    [PHASE_CLOSED] = {"closed", 0},
};

static void phase_move(struct connection *conn, enum connection_phase phase)
{
    sm_move(&conn->phase, phase);
    __atomic_store_n(&conn->phase_name, sm_name(&conn->phase), __ATOMIC_RELAXED);
}

/* --- birth --- */

static void end_turn(struct task *task);

static void stream_readable(struct stream *stream)
{
    receive_run(stream->owner_data);
}

static void stream_writable(struct stream *stream)
{
    send_flush(stream->owner_data);
}

static const struct stream_owner owner = {stream_readable, stream_writable};

struct connection *connection_create(struct iscsi_server *server, struct stream *stream)
{
    struct connection *conn = calloc(1, sizeof *conn);
    if (conn == NULL)
        return NULL;
    conn->rx.buffer = malloc(RECEIVE_BYTES);
    conn->store = malloc(sizeof *conn->store);
    if (conn->rx.buffer == NULL || conn->store == NULL) {
        connection_free(conn);
        return NULL;
    }
    conn->text = conn->store->text;
    conn->answers = conn->store->answers;
    conn->server = server;
    conn->stream = stream;
    conn->loop = conn->home = stream->loop;
    memcpy(conn->peer, stream->peer, sizeof conn->peer);
    memcpy(conn->local, stream->local, sizeof conn->local);
    sm_init(&conn->phase, phases, ARRAY_LENGTH(phases), PHASE_LOGIN);
    conn->phase_name = sm_name(&conn->phase);
    login_init(&conn->login, conn->text, conn->answers);
    conn->exchange.ttt = PDU_TAG_NONE;
    conn->end_task.run = end_turn;
    send_init(conn);
    pages_init(conn);
    TAILQ_INIT(&conn->notices_free);
    for (unsigned i = 0; i < NOTICES; i++)
        TAILQ_INSERT_TAIL(&conn->notices_free, &conn->notices[i], link);
    return conn;
}

void connection_free(struct connection *conn)
{
    free(conn->rx.buffer);
    free(conn->store);
    access_release(conn->access);
    free(conn->stats);
    free(conn);
}

static void login_late(struct timer *timer)
{
    connection_close(container_of(timer, struct connection, timer), "login took too long");
}

/* On whichever loop the login is: run its clock, and read. */
void connection_start(struct connection *conn)
{
    uint64_t now = loop_now_ns(conn->loop);
    if (conn->login_due_ns == 0)
        conn->login_due_ns = now + server_limits(conn)->login_ns;
    conn->heard_ns = now;
    conn->timer.fire = login_late;
    timer_start(conn->loop, &conn->timer, conn->login_due_ns > now ? conn->login_due_ns - now : 0);
    conn->stream->owner = &owner;
    conn->stream->owner_data = conn;
    connection_want(conn);
}

/* --- what it may do now --- */

bool connection_reads(const struct connection *conn)
{
    if (conn->stream == NULL || conn->rx.blocked || TAILQ_EMPTY(&conn->notices_free))
        return false;
    if (connection_phase(conn) == PHASE_LOGIN)
        return !conn->move_wanted && conn->login_reply.out.where == OUT_IDLE;
    return connection_phase(conn) == PHASE_FULL_FEATURE;
}

void connection_want(struct connection *conn)
{
    stall_watch(conn);
    unsigned events = (connection_reads(conn) ? STREAM_READ : 0) | (conn->tx.stalled ? STREAM_WRITE : 0);
    if (events == conn->wanted)
        return;
    conn->wanted = events;
    stream_want(conn->stream, events);
}

void connection_window(struct connection *conn, uint32_t *exp_cmd_sn, uint32_t *max_cmd_sn)
{
    struct session *session = conn->session;
    *exp_cmd_sn = session != NULL ? session->exp_cmd_sn : conn->login.cmd_sn;
    *max_cmd_sn = session != NULL ? session->max_cmd_sn : conn->login.cmd_sn;
    if (session != NULL)
        session->told_max_cmd_sn = session->max_cmd_sn;
}

/* After every flush. */
void connection_sent(struct connection *conn)
{
    if (connection_phase(conn) == PHASE_ENDING && send_idle(conn)) {
        connection_close(conn, "logged out");
        return;
    }
    if (conn->move_wanted && send_idle(conn)) {
        if (conn->resume_task.queued)
            loop_defer_late(conn->loop, &conn->tx.task); /* not while something of ours is in this loop's lists */
        else
            server_ready_to_move(conn);
        return;
    }
    connection_want(conn);
}

/* --- login --- */

static void login_header(struct connection *conn)
{
    struct receiver *rx = &conn->rx;
    if (rx->pdu.opcode != PDU_LOGIN) {
        connection_close(conn, "no login request");
        return;
    }
    if (!conn->login.started)
        conn->stat_sn = rx->pdu.exp_stat_sn;
    if (rx->pdu.ahs_len > 0 || rx->pdu.data_len > MAX_RECV_DEFAULT ||
        rx->pdu.data_len > TEXT_MAX - conn->login.text_len) {
        conn->login.itt = rx->pdu.itt;
        connection_login_go(conn, login_refuse(&conn->login, LOGIN_INITIATOR_ERROR, "it sends too much"));
        return;
    }
    rx->sink = SINK_LOGIN;
    rx->at = conn->login.text_len;
    rx->room = rx->pdu.data_len;
    conn->login.text_len += rx->pdu.data_len;
}

static void login_sent(struct connection *conn, struct outgoing *out)
{
    (void)out;
    if (!conn->resume_task.queued)
        loop_defer(conn->loop, &conn->resume_task);
}

static void full_feature_begin(struct connection *conn)
{
    const struct negotiation *keys = &conn->login.keys;
    phase_move(conn, PHASE_FULL_FEATURE);
    conn->rx.reader.header_digest = keys->value[KEY_HEADER_DIGEST] == DIGEST_CRC32C;
    conn->rx.reader.data_digest = keys->value[KEY_DATA_DIGEST] == DIGEST_CRC32C;
    __atomic_store_n(&conn->header_digest, conn->rx.reader.header_digest, __ATOMIC_RELAXED);
    __atomic_store_n(&conn->data_digest, conn->rx.reader.data_digest, __ATOMIC_RELAXED);
    __atomic_store_n(&conn->logged_in, true, __ATOMIC_RELAXED);
    timer_stop(conn->loop, &conn->timer);
    control_keepalive(conn);
    const struct access_rule *rule = conn->login.auth.rule;
    char name[ISCSI_NAME_MAX + 1];
    name_for_people(name, sizeof name, keys->initiator);
    log_info("iSCSI: %s at %s logged in to %s%s%s", name, conn->peer,
             conn->target != NULL ? conn->target->name : "discovery", rule != NULL ? " by rule " : "",
             rule != NULL ? rule->name : "");
}

void connection_login_go(struct connection *conn, enum login_outcome outcome)
{
    struct login *login = &conn->login;
    if (outcome == LOGIN_FIND_TARGET) {
        server_find_target(conn);
        return;
    }
    if (outcome == LOGIN_DONE) {
        enum login_status status = server_session_begin(conn);
        outcome = status == LOGIN_OK ? LOGIN_DONE : login_refuse(login, status, "there is no memory for its session");
    }
    login_encode(login, conn->login_reply.bhs);
    conn->login_reply.payload = (struct payload){.bytes = login->reply_text, .len = login->reply_len};
    conn->login_reply.stat_sn = STAT_TAKE;
    send_message(conn, &conn->login_reply, login_sent);
    if (outcome == LOGIN_DONE)
        full_feature_begin(conn);
    if (outcome == LOGIN_REJECT) {
        server_refused(conn);
        connection_end(conn);
    }
}

/* --- dispatch: a header is here --- */

static bool takes_opcode(const struct connection *conn, enum pdu_opcode opcode)
{
    bool discovery = conn->session->nexus == NULL; /* 13.21: SendTargets and logout only */
    return opcode != PDU_LOGIN && (!discovery || opcode == PDU_TEXT || opcode == PDU_LOGOUT);
}

/* Pages for the data of a request that is no SCSI command (ping, text). */
static void request_begin(struct command *cmd)
{
    struct receiver *rx = &cmd->conn->rx;
    rx->sink = SINK_COMMAND;
    rx->command = cmd;
    rx->room = cmd->pdu.data_len;
    cmd->page_count = page_count_for(0, cmd->pdu.data_len);
    bool possible = cmd->page_count <= page_pool_size(cmd->conn->loop->pages) / 2;
    if (possible && pages_acquire(cmd))
        return;
    if (!possible || transfer_data_due(cmd->conn->session)) { /* must not stop reading: goes without its data */
        cmd->page_count = rx->room = 0;
        return;
    }
    rx->blocked = true;
    pages_wait(cmd, true);
}

static void request_header(struct connection *conn)
{
    static const enum pdu_reject reasons[] = {
        [SESSION_TAG_IN_USE] = PDU_REJECT_IN_PROGRESS, [SESSION_TOO_MANY] = PDU_REJECT_IMMEDIATE};
    struct command *cmd;
    enum session_verdict verdict = session_take(conn->session, &conn->rx.pdu, &cmd);
    if (verdict == SESSION_IGNORE)
        return;
    if (verdict != SESSION_TAKE) {
        control_reject(conn, reasons[verdict]);
        return;
    }
    memcpy(cmd->reply.bhs, conn->rx.reader.header, PDU_BHS_BYTES);
    if (cmd->pdu.opcode == PDU_COMMAND)
        transfer_begin(cmd);
    else
        request_begin(cmd);
}

void connection_header(struct connection *conn)
{
    struct receiver *rx = &conn->rx;
    rx->sink = SINK_DISCARD;
    rx->command = NULL;
    rx->burst = NULL;
    rx->at = rx->room = 0;
    rx->rejected = false;
    enum pdu_reject reason = pdu_decode(rx->reader.header, &rx->pdu);
    if (connection_phase(conn) == PHASE_LOGIN)
        login_header(conn);
    else if (rx->pdu.data_len > MAX_RECV_OURS)
        connection_close(conn, "data segment longer than declared"); /* 7.7: a format error */
    else if (reason != PDU_OK)
        control_reject(conn, reason);
    else if (!takes_opcode(conn, (enum pdu_opcode)rx->pdu.opcode))
        control_reject(conn, PDU_REJECT_PROTOCOL);
    else if (rx->pdu.opcode == PDU_DATA_OUT)
        transfer_data_out(conn, &rx->pdu);
    else if (rx->pdu.opcode != PDU_NOP_OUT || rx->pdu.itt != PDU_TAG_NONE) /* else the answer to a ping: it was heard */
        request_header(conn);
}

/* --- dispatch: a PDU is complete, a request's turn has come --- */

static void request_complete(struct connection *conn, struct command *cmd, bool digest_good)
{
    if (cmd->pdu.opcode == PDU_COMMAND && !digest_good)
        transfer_fail(cmd, 0x0b, 0x47, 0x05); /* 7.8 */
    if (cmd->pdu.opcode == PDU_COMMAND || digest_good)
        session_received(conn->session, cmd);
    else
        connection_release(cmd); /* 11.17.1: a rejected request leaves a gap, which the initiator fills */
}

void connection_complete(struct connection *conn, bool digest_good)
{
    struct receiver *rx = &conn->rx;
    struct command *cmd = rx->command;
    if (connection_phase(conn) == PHASE_LOGIN) {
        connection_login_go(conn, login_request(&conn->login, &rx->pdu));
        return;
    }
    if (!digest_good) {
        connection_bad_digest(conn);
        control_reject(conn, PDU_REJECT_DATA_DIGEST);
    }
    if (rx->burst != NULL)
        transfer_data_complete(conn, digest_good);
    else if (cmd != NULL)
        request_complete(conn, cmd, digest_good);
    rx->command = NULL;
    rx->burst = NULL;
}

/* Of the PDU being received. */
void connection_bad_digest(struct connection *conn)
{
    static const uint8_t nowhere[8] = {0x3f, 0xff};
    struct command *cmd = conn->rx.command;
    struct io_stats *stats =
        cmd != NULL && cmd->pdu.opcode == PDU_COMMAND ? cmd->stats : stats_of(conn->stats, nowhere);
    if (stats != NULL)
        io_count(&stats->troubles[IO_BAD_DIGEST], 1);
}

void connection_execute(struct command *cmd)
{
    switch (cmd->pdu.opcode) {
    case PDU_COMMAND:
        transfer_advance(cmd);
        return;
    case PDU_NOP_OUT:
        nop_run(cmd);
        return;
    case PDU_TASK:
        task_run(cmd);
        return;
    case PDU_TEXT:
        text_run(cmd);
        return;
    case PDU_LOGOUT:
        logout_run(cmd);
        return;
    }
    UNREACHABLE("opcode of a request");
}

/* --- the end --- */

/* A command's slot is free: its pages go back, and there may be room in the window to tell of. */
void connection_release(struct command *cmd)
{
    struct connection *conn = cmd->conn;
    send_drop(conn, &cmd->r2t);
    receive_forget(conn, cmd);
    pages_leave(cmd);
    session_release(conn->session, cmd);
    if (conn->stream == NULL)
        loop_defer_late(conn->loop, &conn->end_task);
    else
        control_reopen(conn);
}

void connection_end(struct connection *conn)
{
    phase_move(conn, PHASE_ENDING);
    if (!conn->tx.stalled)
        loop_defer_late(conn->loop, &conn->tx.task);
}

/* The stream is gone: what the disk does not have is over, what it has is orphaned. */
static void commands_abandon(struct connection *conn)
{
    struct command *cmd = TAILQ_FIRST(&conn->session->live), *next;
    TAILQ_INIT(&conn->tx.queue);
    TAILQ_INIT(&conn->tx.batch);
    for (; cmd != NULL; cmd = next) {
        next = TAILQ_NEXT(cmd, link);
        cmd->r2t.where = cmd->reply.out.where = OUT_IDLE;
        if (command_state(cmd) == COMMAND_RUNNING || command_state(cmd) == COMMAND_ORPHAN)
            transfer_abort(cmd, false);
        else
            connection_release(cmd);
    }
}

void connection_close(struct connection *conn, const char *why)
{
    if (conn->stream == NULL)
        return;
    ASSERT(connection_phase(conn) != PHASE_MOVING);
    log_info("iSCSI: %s: %s", conn->peer, why);
    phase_move(conn, PHASE_CLOSED);
    timer_stop(conn->loop, &conn->timer);
    timer_stop(conn->loop, &conn->stall.timer);
    stream_close(conn->stream);
    conn->stream = NULL;
    if (conn->session != NULL)
        commands_abandon(conn);
    server_session_end(conn);
    loop_defer_late(conn->loop, &conn->end_task);
}

/* 11.9: not during login, and in a discovery session it would be a surprise. */
static bool hears_async(const struct connection *conn)
{
    return connection_phase(conn) == PHASE_FULL_FEATURE && conn->session->nexus != NULL;
}

void connection_drop(struct connection *conn, const char *why)
{
    if (hears_async(conn)) {
        control_async(conn, 2, conn->login.cid, 0, 0); /* the connection will be dropped */
        send_flush(conn);
    }
    connection_close(conn, why);
}

/* Nothing of this connection is in any list of the loop, and the disk has let go of it. */
static void end_turn(struct task *task)
{
    struct connection *conn = container_of(task, struct connection, end_task);
    if (conn->session != NULL && !TAILQ_EMPTY(&conn->session->live))
        return;
    if (conn->tx.task.queued || conn->resume_task.queued) {
        loop_defer_late(conn->loop, &conn->end_task);
        return;
    }
    text_reset(conn);
    if (conn->session != NULL && conn->session->nexus != NULL)
        scsi_nexus_destroy(conn->session->nexus);
    if (conn->session != NULL)
        session_destroy(conn->session);
    conn->session = NULL;
    server_gone(conn);
}

/* --- orders of the server --- */

void connection_order(struct connection *conn, enum order order, uint64_t grace_ns)
{
    if (connection_phase(conn) == PHASE_MOVING) {
        conn->order_pending = MAX(conn->order_pending, order);
        return;
    }
    if (conn->stream == NULL)
        return;
    if (order == ORDER_DRAIN && hears_async(conn)) {
        uint64_t seconds = MIN(grace_ns / 1000000000, (uint64_t)UINT16_MAX);
        control_async(conn, 1, 0, 0, (uint16_t)seconds); /* 11.9.1: log out, within Parameter3 seconds */
        return;
    }
    connection_drop(conn, "ended by the target");
}
