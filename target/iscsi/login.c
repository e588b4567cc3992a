/* The login phase: see login.h. */
#include "target/iscsi/login.h"

#include <string.h>

#include "core/check.h"

enum { VERSION = 0 };

void login_init(struct login *login, char *text, char *answers)
{
    *login = (struct login){.text = text, .answers = answers, .out = {answers, 0, TEXT_REPLY_MAX, false}};
    keys_init(&login->keys);
}

bool login_discovery(const struct login *login)
{
    return login->keys.value[KEY_SESSION_TYPE] == SESSION_DISCOVERY;
}

enum login_outcome login_refuse(struct login *login, enum login_status status, const char *why)
{
    login->status = status;
    login->why = why;
    login->transit = login->more = false;
    login->reply_len = 0;
    return LOGIN_REJECT;
}

/* 11.13.5, 13.8: the address goes without a tag. */
enum login_outcome login_redirect(struct login *login, enum login_status status, const char *address)
{
    login_refuse(login, status, "it was sent elsewhere");
    login->out = (struct text_out){login->answers, 0, TEXT_REPLY_MAX, false};
    text_pair(&login->out, "TargetAddress", address);
    login->reply_text = login->answers;
    login->reply_len = (uint32_t)login->out.len;
    return LOGIN_REJECT;
}

static void login_start(struct login *login, const struct pdu *pdu)
{
    login->started = true;
    login->stage = pdu->login.csg;
    login->itt = pdu->itt;
    login->cmd_sn = pdu->cmd_sn;
    login->cid = pdu->login.cid;
    login->tsih = pdu->login.tsih;
    memcpy(login->isid, pdu->login.isid, sizeof login->isid);
}

/* 11.12: what must be the same in all requests of a login, and which stages follow which. */
static enum login_status header_check(const struct login *login, const struct pdu *pdu)
{
    bool stages =
        (pdu->login.csg == STAGE_SECURITY || pdu->login.csg == STAGE_OPERATIONAL) && pdu->login.csg == login->stage;
    bool transit = !pdu->final || (pdu->login.nsg > pdu->login.csg && pdu->login.nsg != 2 && !pdu->more);
    bool same = pdu->itt == login->itt && pdu->login.cid == login->cid && pdu->login.tsih == login->tsih &&
                memcmp(pdu->login.isid, login->isid, sizeof login->isid) == 0;
    if (pdu->login.version_min > VERSION)
        return LOGIN_BAD_VERSION;
    return stages && transit && same ? LOGIN_OK : LOGIN_INITIATOR_ERROR;
}

static const char *keys_why(enum keys_result result)
{
    switch (result) {
    case KEYS_OK:
        break;
    case KEYS_MALFORMED:
        return "a key or a value has no possible form";
    case KEYS_REPEATED:
        return "a key was sent twice";
    case KEYS_CONFLICT:
        return "FirstBurstLength is above MaxBurstLength";
    }
    return NULL;
}

/* 11.13.5, 0207: the names must stand in the first complete request. */
static bool names_given(const struct login *login)
{
    return login->keys.initiator[0] != '\0' && (login_discovery(login) || login->keys.target[0] != '\0');
}

/*
 * 4.2.7.1: neither white space nor control characters. A comma would part a name from the ISID behind it (SPC-4,
 * 7.6.4.6), and names stand in logs and records: what is not ASCII is refused too, though a name might be UTF-8.
 */
static bool name_is_plain(const char *name)
{
    for (; *name != '\0'; name++)
        if (*name <= ' ' || (unsigned char)*name >= 0x7f || *name == ',')
            return false;
    return true;
}

/* As much of the answers as one segment takes; the rest follows upon empty requests (6.2). */
static enum login_outcome reply_next(struct login *login)
{
    uint32_t left = (uint32_t)login->out.len - login->out_sent;
    login->reply_text = login->answers + login->out_sent;
    login->reply_len = MIN(left, (uint32_t)MAX_RECV_DEFAULT);
    login->out_sent += login->reply_len;
    login->more = login->reply_len < left;
    login->csg = login->stage;
    login->nsg = login->pdu.login.nsg;
    login->transit = login->pdu.final && !login->more && login->auth.step == AUTH_DONE;
    if (!login->more)
        login->out.len = login->out_sent = 0; /* the bytes stay until the next request */
    if (!login->transit)
        return LOGIN_REPLY;
    login->stage = login->nsg;
    return login->stage == STAGE_FULL ? LOGIN_DONE : LOGIN_REPLY;
}

static enum login_outcome stage_done(struct login *login)
{
    bool leaving = login->pdu.final && login->auth.step == AUTH_DONE;
    bool last_chance = login->stage == STAGE_OPERATIONAL || (leaving && login->pdu.login.nsg == STAGE_FULL);
    if (last_chance && !login->declared) {
        login->declared = true;
        text_pair_number(&login->out, "MaxRecvDataSegmentLength", MAX_RECV_OURS);
    }
    return login->out.cut ? login_refuse(login, LOGIN_INITIATOR_ERROR, "it asks too much at once") : reply_next(login);
}

static bool authenticate(struct login *login)
{
    if (login->stage == STAGE_SECURITY)
        return auth_security(&login->auth, &login->keys, login->pdu.final, &login->out);
    return auth_operational(&login->auth);
}

enum login_outcome login_request(struct login *login, const struct pdu *pdu)
{
    if (!login->started)
        login_start(login, pdu);
    login->pdu = *pdu;
    enum login_status status = header_check(login, pdu);
    if (status != LOGIN_OK)
        return login_refuse(login, status, "a field of the header cannot be, here");
    if (login->out.len > 0 && pdu->data_len > 0)
        return login_refuse(login, LOGIN_INITIATOR_ERROR, "it talks while an answer is being fetched");
    if (login->out.len > 0)
        return reply_next(login);
    if (pdu->more)
        return reply_next(login);

    unsigned phase = login->stage == STAGE_SECURITY ? PHASE_SECURITY : PHASE_OPERATIONAL;
    const char *why = keys_why(keys_negotiate(&login->keys, phase, login->text, login->text_len, &login->out));
    login->text_len = 0;
    if (why != NULL)
        return login_refuse(login, LOGIN_INITIATOR_ERROR, why);
    if (login->named)
        return authenticate(login) ? stage_done(login) : login_refuse(login, LOGIN_AUTH_FAILED, login->auth.why);
    if (!names_given(login))
        return login_refuse(login, LOGIN_MISSING, "a name is missing");
    if (!name_is_plain(login->keys.initiator))
        return login_refuse(login, LOGIN_INITIATOR_ERROR, "its name has a character that names must not have");
    return LOGIN_FIND_TARGET;
}

enum login_outcome login_resume(struct login *login, const struct login_grant *grant)
{
    ASSERT(!login->named);
    login->named = true;
    auth_init(&login->auth, grant->access, login->keys.initiator, grant->peer, grant->draws);
    if (!authenticate(login))
        return login_refuse(login, LOGIN_AUTH_FAILED, login->auth.why);
    if (!login_discovery(login)) { /* 13.9: the tag stands in the first answer to a complete request */
        text_pair_number(&login->out, "TargetPortalGroupTag", grant->group);
        if (grant->alias != NULL && grant->alias[0] != '\0')
            text_pair(&login->out, "TargetAlias", grant->alias);
    }
    return stage_done(login);
}

void login_encode(const struct login *login, uint8_t bhs[PDU_BHS_BYTES])
{
    struct pdu_out out = {.opcode = PDU_LOGIN_RESPONSE, .byte2 = VERSION, .byte3 = VERSION, .itt = login->itt};
    out.flags = (uint8_t)((login->transit ? PDU_FINAL : 0) | (login->more ? PDU_CONTINUE : 0) | login->csg << 2 |
                          (login->transit ? login->nsg : 0));
    memcpy(out.lun, login->isid, sizeof login->isid);
    out.lun[6] = (uint8_t)(login->tsih >> 8);
    out.lun[7] = (uint8_t)login->tsih;
    out.word36 = (uint32_t)login->status << 16;
    pdu_encode(&out, bhs);
}
