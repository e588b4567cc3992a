/*
 * Authentication in the security stage (RFC 7143, 12.1): the target's part of the talk, step by step. Pure.
 *
 *      METHOD --- AuthMethod=CHAP ---> ALGORITHM --- CHAP_A ---> RESPONSE --- CHAP_N, CHAP_R ---> DONE
 *        |                               answered by               perhaps with CHAP_I, CHAP_C:    ^
 *        |                               CHAP_A, CHAP_I, CHAP_C    answered by CHAP_N, CHAP_R      |
 *        +---- AuthMethod=None, or none spoken of: if a rule without a user speaks for it ---------+
 *
 * A request may carry the keys of several steps. Until DONE the stage is not left, whatever T says (iPXE sets it all
 * along), and our own response goes out with the reply that grants T. A mistake ends the login: there is no second try.
 *
 * Against a peer that lets us answer its own questions: our challenge is not taken as its challenge, nor the response
 * that we would give as its response; and we prove ourselves only after it has.
 */
#ifndef TARGET_ISCSI_AUTH_H
#define TARGET_ISCSI_AUTH_H

#include "target/iscsi/access.h"
#include "target/iscsi/chap.h"
#include "target/iscsi/keys.h"

enum auth_step { AUTH_METHOD, AUTH_ALGORITHM, AUTH_RESPONSE, AUTH_DONE };

struct auth {
    const struct access_list *access; /* NULL: everybody may */
    const char *initiator, *peer;     /* name and address, lent */
    enum auth_step step;
    const struct access_rule *rule; /* DONE: by which it is admitted; NULL: by none, everybody is */
    unsigned algorithm;
    uint8_t id, challenge[CHAP_DIGEST_MAX];
    const char *why; /* refused: a sentence for the log */
};

void auth_init(struct auth *auth, const struct access_list *access, const char *initiator, const char *peer,
               const uint64_t draws[CHAP_DRAWS]);
/* A request of the security stage; `leaving`: with T. False: refuse the login. */
bool auth_security(struct auth *auth, const struct negotiation *keys, bool leaving, struct text_out *out);
/* A request of the operational stage. False: refuse the login. */
bool auth_operational(struct auth *auth);

#endif
