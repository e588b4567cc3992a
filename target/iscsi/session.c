/* Slots, tags and window of a session: see session.h. */
#include "target/iscsi/session.h"

#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "target/iscsi/connection.h"

/* 4.2.2.1: one immediate task management request and one other must always be taken; here a few more. */
enum { IMMEDIATES = 8, IMMEDIATES_FOR_TASKS = 2 };
/* A slot whose answer is half sent is not free yet, though the header in front has told of the room. */
enum { SLACK = 1 };

static const struct sm_state states[] = {
    [COMMAND_FREE] = {"free", SM_TO(COMMAND_RECEIVING)},
    [COMMAND_RECEIVING] = {"receiving", SM_TO(COMMAND_WAITING) | SM_TO(COMMAND_FREE)},
    [COMMAND_WAITING] = {"waiting", SM_TO(COMMAND_RUNNING) | SM_TO(COMMAND_SENDING) | SM_TO(COMMAND_FREE)},
    [COMMAND_RUNNING] = {"running", SM_TO(COMMAND_SENDING) | SM_TO(COMMAND_ORPHAN)},
    [COMMAND_SENDING] = {"sending", SM_TO(COMMAND_FREE)},
    [COMMAND_ORPHAN] = {"orphan", SM_TO(COMMAND_FREE)},
};

static uint32_t slot_count(const struct session *s)
{
    return s->limit + IMMEDIATES + SLACK;
}

/* Stands in `ahead` for a CmdSN that counts as received though nothing came. */
static struct command *skipped(const struct session *s)
{
    return &s->slots[slot_count(s)];
}

static uint32_t table_size(uint32_t slots)
{
    uint32_t size = 16;
    while (size < slots * 2)
        size *= 2;
    return size;
}

/* A slot nobody has used yet: only now is its memory touched. */
static void slot_begin(struct session *s)
{
    uint32_t index = s->slots_begun++;
    struct command *cmd = &s->slots[index];
    memset(cmd, 0, sizeof *cmd);
    cmd->conn = s->conn;
    cmd->pages = s->page_arrays + (size_t)index * COMMAND_PAGES_MAX;
    sm_init(&cmd->state, states, ARRAY_LENGTH(states), COMMAND_FREE);
    TAILQ_INSERT_HEAD(&s->free, cmd, link);
}

static bool slot_is_free(const struct session *s)
{
    return !TAILQ_EMPTY(&s->free) || s->slots_begun < slot_count(s);
}

/* The one used last comes first: it is warm. */
static struct command *slot_take(struct session *s)
{
    if (TAILQ_EMPTY(&s->free))
        slot_begin(s);
    struct command *cmd = TAILQ_FIRST(&s->free);
    TAILQ_REMOVE(&s->free, cmd, link);
    return cmd;
}

struct session *session_create(struct connection *conn, uint32_t limit, uint32_t exp_cmd_sn)
{
    struct session *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->conn = conn;
    s->limit = MAX(limit, 1);
    s->mask = table_size(slot_count(s)) - 1;
    s->exp_cmd_sn = exp_cmd_sn;
    s->max_cmd_sn = s->told_max_cmd_sn = exp_cmd_sn - 1 + s->limit;
    TAILQ_INIT(&s->live);
    TAILQ_INIT(&s->free);
    s->slots = malloc((slot_count(s) + 1) * sizeof *s->slots);
    s->page_arrays = malloc((size_t)slot_count(s) * COMMAND_PAGES_MAX * sizeof *s->page_arrays);
    s->buckets = calloc(s->mask + 1, sizeof(struct command *));
    s->ahead = calloc(s->mask + 1, sizeof(struct command *));
    if (s->slots == NULL || s->page_arrays == NULL || s->buckets == NULL || s->ahead == NULL) {
        session_destroy(s);
        return NULL;
    }
    return s;
}

void session_destroy(struct session *session)
{
    ASSERT(TAILQ_EMPTY(&session->live));
    free(session->slots);
    free(session->page_arrays);
    free(session->buckets);
    free(session->ahead);
    free(session);
}

/* --- tags --- */

static struct command **bucket_of(const struct session *s, uint32_t itt)
{
    return &s->buckets[(itt * 0x9e3779b1u) >> 8 & s->mask];
}

struct command *session_find(struct session *session, uint32_t itt)
{
    struct command *cmd = *bucket_of(session, itt);
    while (cmd != NULL && cmd->pdu.itt != itt)
        cmd = cmd->hash_next;
    return cmd;
}

static void tag_add(struct session *s, struct command *cmd)
{
    struct command **bucket = bucket_of(s, cmd->pdu.itt);
    cmd->hash_next = *bucket;
    *bucket = cmd;
    cmd->hashed = true;
}

void session_forget_tag(struct session *session, struct command *cmd)
{
    if (!cmd->hashed)
        return;
    struct command **at = bucket_of(session, cmd->pdu.itt);
    while (*at != cmd)
        at = &(*at)->hash_next;
    *at = cmd->hash_next;
    cmd->hashed = false;
}

uint32_t session_next_tag(struct session *session)
{
    if (++session->next_ttt == PDU_TAG_NONE)
        session->next_ttt = 1;
    return session->next_ttt;
}

/* --- the window --- */

bool session_in_window(const struct session *session, uint32_t cmd_sn)
{
    return !serial_less(cmd_sn, session->exp_cmd_sn) && !serial_less(session->max_cmd_sn, cmd_sn);
}

static void window_update(struct session *s)
{
    ASSERT(s->in_flight <= s->limit);
    uint32_t max = s->exp_cmd_sn - 1 + s->limit - s->in_flight;
    if (serial_less(s->max_cmd_sn, max))
        s->max_cmd_sn = max;
}

bool session_must_reopen(const struct session *session)
{
    bool believed_closed = serial_less(session->told_max_cmd_sn, session->exp_cmd_sn);
    return believed_closed && session->max_cmd_sn != session->told_max_cmd_sn;
}

void session_credit(struct session *session, struct command *cmd)
{
    if (!cmd->counted)
        return;
    cmd->counted = false;
    session->in_flight--;
    window_update(session);
}

static enum session_verdict admit(const struct session *s, const struct pdu *pdu)
{
    if (!pdu->immediate && (!session_in_window(s, pdu->cmd_sn) || s->ahead[pdu->cmd_sn & s->mask] != NULL))
        return SESSION_IGNORE; /* 4.2.2.1: silently */
    uint32_t reserve = pdu->opcode == PDU_TASK ? 0 : IMMEDIATES_FOR_TASKS;
    if (pdu->immediate && s->immediates + reserve >= IMMEDIATES)
        return SESSION_TOO_MANY;
    return slot_is_free(s) ? SESSION_TAKE : SESSION_IGNORE;
}

enum session_verdict session_take(struct session *session, const struct pdu *pdu, struct command **out)
{
    enum session_verdict verdict = admit(session, pdu);
    if (verdict != SESSION_TAKE)
        return verdict;
    if (session_find(session, pdu->itt) != NULL)
        return SESSION_TAG_IN_USE;
    struct command *cmd = slot_take(session);
    TAILQ_INSERT_TAIL(&session->live, cmd, link);
    sm_move(&cmd->state, COMMAND_RECEIVING);
    cmd->pdu = *pdu;
    cmd->delivered = cmd->counted = cmd->over = cmd->silent = cmd->late = false;
    cmd->page_count = 0;
    cmd->page_state = PAGES_NONE;
    session->immediates += pdu->immediate;
    tag_add(session, cmd);
    *out = cmd;
    return SESSION_TAKE;
}

static void deliver(struct session *s, struct command *cmd)
{
    cmd->delivered = true;
    if (!cmd->pdu.immediate) {
        cmd->counted = true;
        s->in_flight++;
    }
    connection_execute(cmd);
}

static struct command *late_whose_turn_came(struct session *s)
{
    struct command *cmd;
    if (s->late == 0)
        return NULL;
    TAILQ_FOREACH(cmd, &s->live, link)
    if (cmd->late && !serial_less(s->exp_cmd_sn, cmd->pdu.cmd_sn))
        return cmd;
    return NULL;
}

bool session_waits_for_lower(struct session *session, struct command *cmd)
{
    cmd->late = cmd->pdu.immediate && serial_less(session->exp_cmd_sn, cmd->pdu.cmd_sn);
    session->late += cmd->late;
    return cmd->late;
}

/* All that waits for the CmdSN after the last delivered one. */
static void deliver_next(struct session *s)
{
    struct command *cmd;
    while ((cmd = s->ahead[s->exp_cmd_sn & s->mask]) != NULL) {
        s->ahead[s->exp_cmd_sn & s->mask] = NULL;
        s->exp_cmd_sn++;
        if (cmd != skipped(s))
            deliver(s, cmd);
        window_update(s);
    }
    while ((cmd = late_whose_turn_came(s)) != NULL) {
        cmd->late = false;
        s->late--;
        connection_execute(cmd);
    }
}

void session_received(struct session *session, struct command *cmd)
{
    sm_move(&cmd->state, COMMAND_WAITING);
    if (cmd->pdu.immediate) {
        deliver(session, cmd);
        return;
    }
    session->ahead[cmd->pdu.cmd_sn & session->mask] = cmd;
    deliver_next(session);
}

void session_skip(struct session *session, uint32_t cmd_sn)
{
    if (session->ahead[cmd_sn & session->mask] == NULL)
        session->ahead[cmd_sn & session->mask] = skipped(session);
    deliver_next(session);
}

void session_release(struct session *session, struct command *cmd)
{
    session_forget_tag(session, cmd);
    session_credit(session, cmd);
    sm_move(&cmd->state, COMMAND_FREE);
    session->immediates -= cmd->pdu.immediate;
    TAILQ_REMOVE(&session->live, cmd, link);
    TAILQ_INSERT_HEAD(&session->free, cmd, link);
}
