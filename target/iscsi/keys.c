/* Text keys: see keys.h. The table is the whole of RFC 7143, section 13. */
#include "target/iscsi/keys.h"

#include <assert.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"

enum key_kind {
    KIND_LIST,    /* the first of the initiator's values that is among ours */
    KIND_MIN,     /* the lower of two numbers */
    KIND_MAX,     /* the higher */
    KIND_OR,      /* Yes if one says Yes */
    KIND_AND,     /* Yes if both say Yes */
    KIND_NUMBER,  /* a number declared by the initiator: no answer */
    KIND_NAME,    /* text declared by the initiator: no answer */
    KIND_TYPE,    /* a declared choice: no answer */
    KIND_AUTH,    /* auth.c answers */
    KIND_NO,      /* obsolete: always No */
    KIND_REFUSED, /* obsolete, or ours to declare: always Reject */
};

struct key_row {
    const char *name;
    enum key_kind kind;
    unsigned phases;
    uint32_t initial, ours, min, max;
    const char *choices[3];
};

enum { LOGIN_ANY = PHASE_SECURITY | PHASE_OPERATIONAL, ANY = LOGIN_ANY | PHASE_FULL };

/* clang-format off */
static const struct key_row rows[KEY_COUNT] = {
    /*                               name                     kind          phases          initial     ours               min  max */
    [KEY_AUTH_METHOD]             = {"AuthMethod",              KIND_AUTH,    PHASE_SECURITY, 0,          0,                 0,   0, {0}},
    [KEY_CHAP_A]                  = {"CHAP_A",                  KIND_AUTH,    PHASE_SECURITY, 0,          0,                 0,   0, {0}},
    [KEY_CHAP_I]                  = {"CHAP_I",                  KIND_AUTH,    PHASE_SECURITY, 0,          0,                 0,   0, {0}},
    [KEY_CHAP_C]                  = {"CHAP_C",                  KIND_AUTH,    PHASE_SECURITY, 0,          0,                 0,   0, {0}},
    [KEY_CHAP_N]                  = {"CHAP_N",                  KIND_AUTH,    PHASE_SECURITY, 0,          0,                 0,   0, {0}},
    [KEY_CHAP_R]                  = {"CHAP_R",                  KIND_AUTH,    PHASE_SECURITY, 0,          0,                 0,   0, {0}},
    [KEY_HEADER_DIGEST]           = {"HeaderDigest",          KIND_LIST,    LOGIN_ANY,      0,          0,                 0,   0, {"None", "CRC32C"}},
    [KEY_DATA_DIGEST]             = {"DataDigest",            KIND_LIST,    LOGIN_ANY,      0,          0,                 0,   0, {"None", "CRC32C"}},
    [KEY_MAX_CONNECTIONS]         = {"MaxConnections",        KIND_MIN,     LOGIN_ANY,      1,          1,                 1,   65535, {0}},
    [KEY_SEND_TARGETS]            = {"SendTargets",           KIND_NAME,    PHASE_FULL,     0,          0,                 0,   0, {0}},
    [KEY_TARGET_NAME]             = {"TargetName",            KIND_NAME,    LOGIN_ANY,      0,          0,                 0,   0, {0}},
    [KEY_INITIATOR_NAME]          = {"InitiatorName",         KIND_NAME,    LOGIN_ANY,      0,          0,                 0,   0, {0}},
    [KEY_TARGET_ALIAS]            = {"TargetAlias",           KIND_REFUSED, ANY,            0,          0,                 0,   0, {0}},
    [KEY_INITIATOR_ALIAS]         = {"InitiatorAlias",        KIND_NAME,    ANY,            0,          0,                 0,   0, {0}},
    [KEY_TARGET_ADDRESS]          = {"TargetAddress",         KIND_REFUSED, ANY,            0,          0,                 0,   0, {0}},
    [KEY_TARGET_PORTAL_GROUP_TAG] = {"TargetPortalGroupTag",  KIND_REFUSED, ANY,            0,          0,                 0,   0, {0}},
    [KEY_INITIAL_R2T]             = {"InitialR2T",            KIND_OR,      LOGIN_ANY,      1,          0,                 0,   1, {0}},
    [KEY_IMMEDIATE_DATA]          = {"ImmediateData",         KIND_AND,     LOGIN_ANY,      1,          1,                 0,   1, {0}},
    [KEY_MAX_RECV]                = {"MaxRecvDataSegmentLength", KIND_NUMBER, ANY,          MAX_RECV_DEFAULT, 0,           512, 0xffffff, {0}},
    [KEY_MAX_BURST]               = {"MaxBurstLength",        KIND_MIN,     LOGIN_ANY,      262144,     MAX_BURST_OURS - 1, 512, 0xffffff, {0}},
    [KEY_FIRST_BURST]             = {"FirstBurstLength",      KIND_MIN,     LOGIN_ANY,      65536,      FIRST_BURST_OURS,  512, 0xffffff, {0}},
    [KEY_TIME2WAIT]               = {"DefaultTime2Wait",      KIND_MAX,     LOGIN_ANY,      2,          0,                 0,   3600, {0}},
    [KEY_TIME2RETAIN]             = {"DefaultTime2Retain",    KIND_MIN,     LOGIN_ANY,      20,         0,                 0,   3600, {0}},
    [KEY_MAX_R2T]                 = {"MaxOutstandingR2T",     KIND_MIN,     LOGIN_ANY,      1,          MAX_R2T_OURS,      1,   65535, {0}},
    [KEY_PDU_IN_ORDER]            = {"DataPDUInOrder",        KIND_OR,      LOGIN_ANY,      1,          1,                 0,   1, {0}},
    [KEY_SEQUENCE_IN_ORDER]       = {"DataSequenceInOrder",   KIND_OR,      LOGIN_ANY,      1,          1,                 0,   1, {0}},
    [KEY_RECOVERY_LEVEL]          = {"ErrorRecoveryLevel",    KIND_MIN,     LOGIN_ANY,      0,          0,                 0,   2, {0}},
    [KEY_SESSION_TYPE]            = {"SessionType",           KIND_TYPE,    LOGIN_ANY,      0,          0,                 0,   0, {"Normal", "Discovery"}},
    [KEY_IF_MARKER]               = {"IFMarker",              KIND_NO,      LOGIN_ANY,      0,          0,                 0,   0, {0}},
    [KEY_OF_MARKER]               = {"OFMarker",              KIND_NO,      LOGIN_ANY,      0,          0,                 0,   0, {0}},
    [KEY_IF_MARK_INT]             = {"IFMarkInt",             KIND_REFUSED, LOGIN_ANY,      0,          0,                 0,   0, {0}},
    [KEY_OF_MARK_INT]             = {"OFMarkInt",             KIND_REFUSED, LOGIN_ANY,      0,          0,                 0,   0, {0}},
    [KEY_TASK_REPORTING]          = {"TaskReporting",         KIND_LIST,    LOGIN_ANY,      0,          0,                 0,   0, {"RFC3720"}},
};
/* clang-format on */
static_assert(KEY_COUNT <= 64, "one bit a key in negotiation.seen");

enum { NUMBER_TEXT = 12 };

void keys_init(struct negotiation *n)
{
    *n = (struct negotiation){0};
    for (unsigned i = 0; i < KEY_COUNT; i++)
        n->value[i] = rows[i].initial;
}

/* "key=value" and its zero byte. */
void text_pair(struct text_out *out, const char *key, const char *value)
{
    size_t key_len = strlen(key), value_len = strlen(value), need = key_len + 1 + value_len + 1;
    if (out->cut || need > out->max - out->len) {
        out->cut = true;
        return;
    }
    char *at = out->bytes + out->len;
    memcpy(at, key, key_len);
    at[key_len] = '=';
    memcpy(at + key_len + 1, value, value_len + 1);
    out->len += need;
}

void text_pair_number(struct text_out *out, const char *key, uint32_t value)
{
    char text[NUMBER_TEXT];
    text_format(text, sizeof text, "%u", value);
    text_pair(out, key, text);
}

static int digit_of(char c, unsigned base)
{
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : 16;
    return digit < (int)base ? digit : -1;
}

/* Decimal or 0x hexadecimal (6.1). */
static bool number_parse(const char *text, uint32_t *out)
{
    bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    unsigned base = hex ? 16 : 10;
    uint64_t value = 0;
    text += hex ? 2 : 0;
    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        int digit = digit_of(*text, base);
        if (digit < 0 || (value = value * base + (unsigned)digit) > UINT32_MAX)
            return false;
    }
    *out = (uint32_t)value;
    return true;
}

bool key_text_number(const struct key_text *value, uint32_t *out)
{
    char text[NUMBER_TEXT];
    if (value->text == NULL || value->len >= sizeof text)
        return false;
    memcpy(text, value->text, value->len);
    text[value->len] = '\0';
    return number_parse(text, out);
}

static int choice_of(const struct key_row *row, const char *text, size_t len)
{
    for (int i = 0; i < (int)ARRAY_LENGTH(row->choices) && row->choices[i] != NULL; i++)
        if (strlen(row->choices[i]) == len && memcmp(row->choices[i], text, len) == 0)
            return i;
    return -1;
}

static int list_choose(const struct key_row *row, const char *list)
{
    for (;;) {
        size_t len = strcspn(list, ",");
        int choice = choice_of(row, list, len);
        if (choice >= 0 || list[len] == '\0')
            return choice;
        list += len + 1;
    }
}

static void answer_list(struct negotiation *n, enum key_id id, const char *value, struct text_out *out)
{
    int choice = list_choose(&rows[id], value);
    if (choice >= 0)
        n->value[id] = (uint32_t)choice;
    text_pair(out, rows[id].name, choice >= 0 ? rows[id].choices[choice] : "Reject");
}

/* 13.14: FirstBurstLength is never above MaxBurstLength. */
static uint32_t number_limit(const struct negotiation *n, enum key_id id)
{
    return id == KEY_FIRST_BURST ? MIN(rows[id].ours, n->value[KEY_MAX_BURST]) : rows[id].ours;
}

static enum keys_result answer_number(struct negotiation *n, enum key_id id, const char *value, struct text_out *out)
{
    const struct key_row *row = &rows[id];
    uint32_t offered;
    bool good = number_parse(value, &offered) && offered >= row->min && offered <= row->max;
    if (row->kind == KIND_NUMBER) {
        if (good)
            n->value[id] = offered;
        return good ? KEYS_OK : KEYS_MALFORMED;
    }
    if (!good) {
        text_pair(out, row->name, "Reject");
        return KEYS_OK;
    }
    uint32_t limit = number_limit(n, id);
    n->value[id] = row->kind == KIND_MIN ? MIN(offered, limit) : MAX(offered, limit);
    text_pair_number(out, row->name, n->value[id]);
    bool conflict =
        id == KEY_MAX_BURST && (n->seen & 1ull << KEY_FIRST_BURST) && n->value[KEY_FIRST_BURST] > n->value[id];
    return conflict ? KEYS_CONFLICT : KEYS_OK;
}

static enum keys_result answer_bool(struct negotiation *n, enum key_id id, const char *value, struct text_out *out)
{
    const struct key_row *row = &rows[id];
    bool yes = strcmp(value, "Yes") == 0;
    if (!yes && strcmp(value, "No") != 0) {
        text_pair(out, row->name, "Reject");
        return KEYS_OK;
    }
    n->value[id] = row->kind == KIND_OR ? yes || row->ours : yes && row->ours;
    text_pair(out, row->name, n->value[id] ? "Yes" : "No");
    return KEYS_OK;
}

static enum keys_result declare_name(struct negotiation *n, enum key_id id, const char *value)
{
    char *to = id == KEY_TARGET_NAME      ? n->target
               : id == KEY_INITIATOR_NAME ? n->initiator
               : id == KEY_SEND_TARGETS   ? n->send_targets
                                          : NULL;
    if (to == NULL)
        return KEYS_OK; /* an alias: for people, and we have no use for it */
    size_t len = strlen(value);
    if (len > ISCSI_NAME_MAX || (len == 0 && id != KEY_SEND_TARGETS))
        return KEYS_MALFORMED;
    memcpy(to, value, len + 1);
    return KEYS_OK;
}

static enum keys_result key_answer(struct negotiation *n, enum key_id id, const char *value, struct text_out *out)
{
    switch (rows[id].kind) {
    case KIND_LIST:
        answer_list(n, id, value, out);
        return KEYS_OK;
    case KIND_MIN:
    case KIND_MAX:
    case KIND_NUMBER:
        return answer_number(n, id, value, out);
    case KIND_OR:
    case KIND_AND:
        return answer_bool(n, id, value, out);
    case KIND_NAME:
        return declare_name(n, id, value);
    case KIND_TYPE: {
        int choice = choice_of(&rows[id], value, strlen(value));
        n->value[id] = choice >= 0 ? (uint32_t)choice : 0;
        return choice >= 0 ? KEYS_OK : KEYS_MALFORMED;
    }
    case KIND_AUTH: /* taken down by keys_negotiate() */
        return KEYS_OK;
    case KIND_NO:
    case KIND_REFUSED:
        text_pair(out, rows[id].name, rows[id].kind == KIND_NO ? "No" : "Reject");
        return KEYS_OK;
    }
    UNREACHABLE("kind of a key");
}

/* Values that the initiator may change by saying them again, in full feature phase. */
static bool may_repeat(enum key_id id, unsigned phase)
{
    return phase == PHASE_FULL && (id == KEY_MAX_RECV || id == KEY_SEND_TARGETS || id == KEY_INITIATOR_ALIAS);
}

static int key_find(const char *name)
{
    for (int i = 0; i < KEY_COUNT; i++)
        if (strcmp(rows[i].name, name) == 0)
            return i;
    return -1;
}

/* `as_sent`: the value again, where it stays. */
static enum keys_result pair_negotiate(struct negotiation *n, unsigned phase, const char *name, const char *value,
                                       const char *as_sent, struct text_out *out)
{
    int id = key_find(name);
    if (id < 0) {
        n->unknown++;
        text_pair(out, name, "NotUnderstood");
        return KEYS_OK;
    }
    n->known++;
    if ((n->seen & 1ull << id) && !may_repeat((enum key_id)id, phase))
        return KEYS_REPEATED;
    n->seen |= 1ull << id;
    if (!(rows[id].phases & phase)) {
        text_pair(out, name, "Reject");
        return KEYS_OK;
    }
    if (rows[id].kind == KIND_AUTH)
        n->auth[id] = (struct key_text){as_sent, strlen(value)};
    return key_answer(n, (enum key_id)id, value, out);
}

enum { KEY_NAME_MAX = 63, VALUE_MAX = 8192 }; /* 6.1: names to 63 bytes, text values to 255, binary ones to 8,192 */

/* One "key=value\0" of text that ends with a zero byte or at `len`. */
static enum keys_result pair_split(const char *pair, size_t len, char name[KEY_NAME_MAX + 1], char value[VALUE_MAX + 1])
{
    const char *equals = memchr(pair, '=', len);
    if (equals == NULL || equals == pair || equals - pair > KEY_NAME_MAX)
        return KEYS_MALFORMED;
    size_t name_len = (size_t)(equals - pair), value_len = len - name_len - 1;
    if (value_len > VALUE_MAX)
        return KEYS_MALFORMED;
    memcpy(name, pair, name_len);
    name[name_len] = '\0';
    memcpy(value, equals + 1, value_len);
    value[value_len] = '\0';
    return KEYS_OK;
}

enum keys_result keys_negotiate(struct negotiation *n, unsigned phase, const char *text, size_t len,
                                struct text_out *answers)
{
    char name[KEY_NAME_MAX + 1], value[VALUE_MAX + 1];
    n->known = n->unknown = 0;
    memset(n->auth, 0, sizeof n->auth);
    for (size_t at = 0, pair_len; at < len; at += pair_len + 1) {
        pair_len = strnlen(text + at, len - at);
        if (pair_len == 0)
            continue; /* zero bytes to fill up: harmless */
        enum keys_result result = pair_split(text + at, pair_len, name, value);
        if (result == KEYS_OK)
            result = pair_negotiate(n, phase, name, value, text + at + strlen(name) + 1, answers);
        if (result != KEYS_OK)
            return result;
    }
    return answers->cut ? KEYS_MALFORMED : KEYS_OK;
}
