/*
 * Text requests of the full feature phase: SendTargets, and the few keys that may change there (RFC 7143, 11.10, 11.11,
 * appendix C).
 *
 * Both a request and its answer may take several PDUs. While a request is being put together (C=1, or F=0) each part is
 * answered by an empty response with a target transfer tag, which the next part brings back. An answer longer than the
 * initiator's segment goes out in pieces, each fetched by an empty request with the tag.
 *
 * SendTargets=All lists all targets in a discovery session. In a normal session appendix C forbids it, and the libiscsi
 * suite asks for it: the answer is then the target of the session, as for the empty value, which tells nothing new.
 */
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "target/iscsi/connection.h"

enum { ANSWER_MAX = 1 << 20 };

void text_reset(struct connection *conn)
{
    ASSERT(!conn->exchange.replying || conn->stream == NULL);
    free(conn->exchange.answer);
    conn->exchange = (struct text_exchange){.ttt = PDU_TAG_NONE};
}

/* Answer the command with the next piece of the answer, or with nothing. */
static void respond(struct command *cmd)
{
    struct connection *conn = cmd->conn;
    struct text_exchange *exchange = &conn->exchange;
    uint32_t left = exchange->answer_len - exchange->answer_sent, len = MIN(left, connection_max_recv(conn));
    bool more = len < left, over = !more && cmd->pdu.final;
    struct payload payload = {.bytes = len > 0 ? exchange->answer + exchange->answer_sent : NULL, .len = len};
    exchange->ttt = over ? PDU_TAG_NONE : session_next_tag(conn->session);
    exchange->answer_sent += len;
    exchange->replying = true;
    struct pdu_out out = {.opcode = PDU_TEXT_RESPONSE, .itt = cmd->pdu.itt, .ttt = exchange->ttt};
    out.flags = (uint8_t)((over ? PDU_FINAL : 0) | (more ? PDU_CONTINUE : 0));
    memcpy(out.lun, cmd->pdu.lun, sizeof out.lun);
    control_reply(cmd, &out, &payload);
}

static void refuse(struct command *cmd, enum pdu_reject reason)
{
    control_reject_request(cmd->conn, cmd->reply.bhs, reason); /* where connection.c has put the request's header */
    connection_release(cmd);
}

/* False: the value makes no sense here. */
static bool list_targets(struct connection *conn, struct text_out *out)
{
    const char *asked = conn->login.keys.send_targets;
    bool discovery = conn->session->nexus == NULL;
    const char *own = discovery ? NULL : conn->target->name;
    bool all = strcmp(asked, "All") == 0;
    if (discovery && asked[0] == '\0')
        return false;
    if (all || asked[0] == '\0')
        server_list_targets(conn, own, out);
    else if (iscsi_name_valid(asked) && (discovery || strcmp(asked, own) == 0))
        server_list_targets(conn, asked, out);
    else
        return false;
    return true;
}

/* The whole request stands in conn->text: work out the answer. */
static bool text_negotiate(struct connection *conn)
{
    struct text_exchange *exchange = &conn->exchange;
    struct negotiation *keys = &conn->login.keys;
    struct text_out out = {malloc(ANSWER_MAX), 0, ANSWER_MAX, false};
    uint32_t len = exchange->len;
    text_reset(conn);
    if (out.bytes == NULL)
        return false;
    conn->exchange.answer = out.bytes;
    keys->seen &= ~(1ull << KEY_SEND_TARGETS);
    if (keys_negotiate(keys, PHASE_FULL, conn->text, len, &out) != KEYS_OK)
        return false;
    if (keys->known == 0 && keys->unknown > 0)
        return false; /* nothing we know: a Reject says so as well as NotUnderstood, and libiscsi only bears that */
    if ((keys->seen & 1ull << KEY_SEND_TARGETS) && !list_targets(conn, &out))
        return false;
    conn->exchange.answer_len = (uint32_t)out.len;
    return !out.cut;
}

/* The text of this request behind what came before. */
static bool text_append(struct command *cmd)
{
    struct connection *conn = cmd->conn;
    struct text_exchange *exchange = &conn->exchange;
    uint32_t len = cmd->pdu.data_len;
    if (len > TEXT_MAX - exchange->len || (len > 0 && cmd->page_count == 0))
        return false;
    if (len > 0)
        pages_copy_out(conn->text + exchange->len, cmd->pages, 0, len);
    exchange->len += len;
    return true;
}

void text_run(struct command *cmd)
{
    struct connection *conn = cmd->conn;
    struct text_exchange *exchange = &conn->exchange;
    if (exchange->replying || (cmd->pdu.ttt != PDU_TAG_NONE && cmd->pdu.ttt != exchange->ttt)) {
        refuse(cmd, PDU_REJECT_PROTOCOL); /* one at a time; and a stale tag asks for nothing we still have */
        return;
    }
    if (cmd->pdu.ttt == PDU_TAG_NONE)
        text_reset(conn);
    bool fetching = exchange->answer_sent < exchange->answer_len;
    bool good = fetching ? cmd->pdu.data_len == 0 : text_append(cmd);
    if (good && !fetching && !cmd->pdu.more)
        good = text_negotiate(conn);
    if (good) {
        respond(cmd);
        return;
    }
    text_reset(conn);
    refuse(cmd, PDU_REJECT_FIELD);
}
