/*
 * The login phase (RFC 7143, sections 6 and 11.12, 11.13) as a machine without a connection. Pure.
 *
 *                 +--------- T=1, NSG=1 ----------+
 *                 |                               v
 *      start -> SECURITY (CSG 0)            OPERATIONAL (CSG 1) -- T=1, NSG=3 --> full feature
 *        |        |                               ^
 *        +--------|----- first request CSG=1 -----+
 *                 +-------------------- T=1, NSG=3 ------------------------------> full feature
 *
 * The connection appends each request's text to `text`, calls login_request() and does what it says. When the first
 * complete request has named initiator and target, LOGIN_FIND_TARGET asks for the answer to "may it?"; login_resume()
 * brings it, from whatever loop the connection is on by then. Who must authenticate himself does so in the security
 * stage (auth.h), which is not left before.
 */
#ifndef TARGET_ISCSI_LOGIN_H
#define TARGET_ISCSI_LOGIN_H

#include "target/iscsi/auth.h"
#include "target/iscsi/pdu.h"

/* Status class and detail: 11.13.5. */
enum login_status {
    LOGIN_OK = 0x0000,
    LOGIN_MOVED_FOR_NOW = 0x0101,
    LOGIN_MOVED = 0x0102,
    LOGIN_INITIATOR_ERROR = 0x0200,
    LOGIN_AUTH_FAILED = 0x0201,
    LOGIN_FORBIDDEN = 0x0202,
    LOGIN_NO_TARGET = 0x0203,
    LOGIN_BAD_VERSION = 0x0205,
    LOGIN_TOO_MANY = 0x0206,
    LOGIN_MISSING = 0x0207,
    LOGIN_NO_SESSION = 0x020a,
    LOGIN_BAD_REQUEST = 0x020b,
    LOGIN_OUT_OF_RESOURCES = 0x0302,
};

enum { STAGE_SECURITY = 0, STAGE_OPERATIONAL = 1, STAGE_FULL = 3 };

enum login_outcome {
    LOGIN_REPLY,       /* send the reply, wait for the next request */
    LOGIN_FIND_TARGET, /* find keys.target (or nothing, for discovery), then login_resume() */
    LOGIN_DONE,        /* make the session, then send the reply: the last of the login */
    LOGIN_REJECT,      /* send the reply, then close */
};

/* Of a target, or of discovery, that was found. */
struct login_grant {
    const char *alias;                /* "" or NULL: none */
    const struct access_list *access; /* lent for the whole login */
    const char *peer;                 /* as is the address */
    uint16_t group;                   /* tag of the portal group */
    uint64_t draws[CHAP_DRAWS];       /* random */
};

struct login {
    struct negotiation keys;
    struct auth auth;
    char *text; /* lent by the connection: TEXT_MAX bytes */
    uint32_t text_len;
    char *answers; /* lent: TEXT_REPLY_MAX bytes */
    struct text_out out;
    uint32_t out_sent;

    bool started, named, declared;
    uint8_t stage;
    uint32_t itt, cmd_sn;
    uint8_t isid[6];
    uint16_t cid, tsih; /* tsih: as requested; for the last reply, as given out */
    struct pdu pdu;     /* the request being answered */

    /* The reply. */
    enum login_status status;
    const char *why; /* not LOGIN_OK: a sentence for the log */
    bool transit, more;
    uint8_t csg, nsg;
    const char *reply_text;
    uint32_t reply_len;
};

void login_init(struct login *login, char *text, char *answers);
enum login_outcome login_request(struct login *login, const struct pdu *pdu);
/* After LOGIN_FIND_TARGET, if it may. */
enum login_outcome login_resume(struct login *login, const struct login_grant *grant);
/* If it may not; and at any time for a request that broke a rule outside this machine, e.g. too much text. */
enum login_outcome login_refuse(struct login *login, enum login_status status, const char *why);
/* If it shall try elsewhere: one of the two statuses for that, and an address. */
enum login_outcome login_redirect(struct login *login, enum login_status status, const char *address);
static inline bool login_status_redirects(enum login_status status)
{
    return status >> 8 == 1;
}
void login_encode(const struct login *login, uint8_t bhs[PDU_BHS_BYTES]);
bool login_discovery(const struct login *login);

#endif
