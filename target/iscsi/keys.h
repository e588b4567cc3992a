/*
 * Text keys: what initiator and target negotiate (RFC 7143, sections 6 and 13). Pure.
 *
 * All keys stand in one table (keys.c): name, kind, default, what we want, limits, and when they may come. A request's
 * text, complete and put together by the caller however its PDUs split it, goes through keys_negotiate(), which
 * updates the values and writes the answers in the order of the questions. We only answer: apart from declarations
 * (MaxRecvDataSegmentLength, TargetAlias, TargetPortalGroupTag) the target proposes nothing. The keys of authentication
 * are only taken down here; auth.c answers them.
 */
#ifndef TARGET_ISCSI_KEYS_H
#define TARGET_ISCSI_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "target/iscsi/iscsi.h"

enum {
    TEXT_MAX = 64 << 10,          /* of one request, over all its PDUs; RFC 7143, 6.1 asks for 8 KiB at least */
    TEXT_REPLY_MAX = 32 << 10,    /* of one answer */
    MAX_RECV_DEFAULT = 8192,      /* a data segment, until something else is declared */
    MAX_RECV_OURS = 256 << 10,    /* the longest data segment we declare to take */
    MAX_BURST_OURS = 16 << 20,    /* R2T and Data-In sequences: no limit that matters; below 2^24 */
    FIRST_BURST_OURS = 256 << 10, /* unsolicited data */
    MAX_R2T_OURS = 8,
};

enum key_id {
    KEY_AUTH_METHOD,
    KEY_CHAP_A,
    KEY_CHAP_I,
    KEY_CHAP_C,
    KEY_CHAP_N,
    KEY_CHAP_R,
    KEY_HEADER_DIGEST,
    KEY_DATA_DIGEST,
    KEY_MAX_CONNECTIONS,
    KEY_SEND_TARGETS,
    KEY_TARGET_NAME,
    KEY_INITIATOR_NAME,
    KEY_TARGET_ALIAS,
    KEY_INITIATOR_ALIAS,
    KEY_TARGET_ADDRESS,
    KEY_TARGET_PORTAL_GROUP_TAG,
    KEY_INITIAL_R2T,
    KEY_IMMEDIATE_DATA,
    KEY_MAX_RECV,
    KEY_MAX_BURST,
    KEY_FIRST_BURST,
    KEY_TIME2WAIT,
    KEY_TIME2RETAIN,
    KEY_MAX_R2T,
    KEY_PDU_IN_ORDER,
    KEY_SEQUENCE_IN_ORDER,
    KEY_RECOVERY_LEVEL,
    KEY_SESSION_TYPE,
    KEY_IF_MARKER,
    KEY_OF_MARKER,
    KEY_IF_MARK_INT,
    KEY_OF_MARK_INT,
    KEY_TASK_REPORTING,
    KEY_COUNT,
    AUTH_KEYS = KEY_CHAP_R + 1,
};

/* When a key may be sent: bits. */
enum { PHASE_SECURITY = 1, PHASE_OPERATIONAL = 2, PHASE_FULL = 4 };

enum { DIGEST_NONE, DIGEST_CRC32C }; /* values of the digest keys */
enum { SESSION_NORMAL, SESSION_DISCOVERY };

/* A value as it stands in the text of the request, and no longer than that does. NULL: not sent. */
struct key_text {
    const char *text;
    size_t len;
};

struct negotiation {
    uint64_t seen;             /* bit per key_id: the initiator has sent it */
    uint32_t value[KEY_COUNT]; /* numbers; booleans; for lists, the index of the choice */
    char initiator[ISCSI_NAME_MAX + 1], target[ISCSI_NAME_MAX + 1];
    char send_targets[ISCSI_NAME_MAX + 1];
    unsigned known, unknown;         /* keys of the last request */
    struct key_text auth[AUTH_KEYS]; /* of the last request */
};

struct text_out {
    char *bytes;
    size_t len, max;
    bool cut; /* something did not fit */
};

enum keys_result {
    KEYS_OK,
    KEYS_MALFORMED, /* not key=value, a name too long, a number that is none */
    KEYS_REPEATED,  /* 6.3: a key twice */
    KEYS_CONFLICT,  /* values that exclude each other: 13.14 */
};

void keys_init(struct negotiation *n);
enum keys_result keys_negotiate(struct negotiation *n, unsigned phase, const char *text, size_t len,
                                struct text_out *answers);
bool key_text_number(const struct key_text *value, uint32_t *out);
void text_pair(struct text_out *out, const char *key, const char *value);
void text_pair_number(struct text_out *out, const char *key, uint32_t value);

#endif
