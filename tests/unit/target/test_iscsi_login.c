/* The login machine and the text keys, without a connection: target/iscsi/login.h, keys.h. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "target/iscsi/login.h"

#define NAMES "InitiatorName=iqn.2026-11.org.example:i|TargetName=iqn.2026-11.org.example:t|"
#define TPGT  "TargetPortalGroupTag=1|"
#define PEER  "192.0.2.9:1000"
#define OURS  "MaxRecvDataSegmentLength=262144|"

enum { T = 0x80, C = 0x40, SEC = 0, OP = 4, TO_OP = 1, TO_FULL = 3 }; /* bits of the flags byte */

struct rig {
    struct login login;
    char *text, *answers;
};

static struct rig rig_make(void)
{
    struct rig rig = {.text = malloc(TEXT_MAX), .answers = malloc(TEXT_REPLY_MAX)};
    login_init(&rig.login, rig.text, rig.answers);
    return rig;
}

static void rig_drop(struct rig *rig)
{
    free(rig->text);
    free(rig->answers);
}

/* `text` with | for the zero byte; `text_len` counts. */
static enum login_outcome request_bytes(struct rig *rig, unsigned flags, const char *text, size_t len)
{
    struct pdu pdu = {.opcode = PDU_LOGIN, .immediate = true, .itt = 5, .cmd_sn = 9, .data_len = (uint32_t)len};
    pdu.final = (flags & T) != 0;
    pdu.more = (flags & C) != 0;
    pdu.login.csg = (flags >> 2) & 3;
    pdu.login.nsg = flags & 3;
    for (size_t i = 0; i < len; i++)
        rig->text[rig->login.text_len++] = text[i] == '|' ? '\0' : text[i];
    return login_request(&rig->login, &pdu);
}

static enum login_outcome request(struct rig *rig, unsigned flags, const char *text)
{
    return request_bytes(rig, flags, text, strlen(text));
}

/* The same, and a target that is there. */
static enum login_outcome exchange(struct rig *rig, unsigned flags, const char *text)
{
    enum login_outcome outcome = request(rig, flags, text);
    return outcome == LOGIN_FIND_TARGET ? login_resume(&rig->login, &(struct login_grant){.peer = PEER, .group = 1})
                                        : outcome;
}

static const char *reply(const struct rig *rig)
{
    static char out[TEXT_REPLY_MAX + 1];
    memcpy(out, rig->login.reply_text, rig->login.reply_len);
    out[rig->login.reply_len] = '\0';
    for (uint32_t i = 0; i < rig->login.reply_len; i++)
        if (out[i] == '\0')
            out[i] = '|';
    return out;
}

struct step {
    unsigned flags;
    const char *text;
    enum login_outcome outcome;
    unsigned status; /* of a rejection */
    const char *answer;
};

static const struct {
    const char *what;
    struct step steps[4];
} exchanges[] = {
    {"straight to full feature phase", {{T | OP | TO_FULL, NAMES, LOGIN_DONE, 0, TPGT OURS}}},
    {"both stages",
     {{T | SEC | TO_OP, NAMES "AuthMethod=CHAP,None|", LOGIN_REPLY, 0, "AuthMethod=None|" TPGT},
      {OP, "HeaderDigest=CRC32C,None|", LOGIN_REPLY, 0, "HeaderDigest=CRC32C|" OURS},
      {T | OP | TO_FULL, "", LOGIN_DONE, 0, ""}}},
    {"security straight to full feature", {{T | SEC | TO_FULL, NAMES, LOGIN_DONE, 0, TPGT OURS}}},
    {"no transit without T", {{SEC, NAMES, LOGIN_REPLY, 0, TPGT}, {T | SEC | TO_OP, "", LOGIN_REPLY, 0, ""}}},
    {"a key cut in the middle, the tag in the first answer to C=0",
     {{C | OP, "InitiatorName=iqn.2026-11.org.exam", LOGIN_REPLY, 0, ""},
      {C | OP, "ple:i|TargetNa", LOGIN_REPLY, 0, ""},
      {T | OP | TO_FULL, "me=iqn.2026-11.org.example:t|", LOGIN_DONE, 0, TPGT OURS}}},
    {"C with T", {{T | C | OP | TO_FULL, NAMES, LOGIN_REJECT, 0x0200, ""}}},
    {"CHAP alone", {{T | SEC | TO_OP, NAMES "AuthMethod=CHAP|", LOGIN_REJECT, 0x0201, ""}}},
    {"AuthMethod belongs to the security stage",
     {{T | OP | TO_FULL, NAMES "AuthMethod=None|", LOGIN_DONE, 0, "AuthMethod=Reject|" TPGT OURS}}},
    {"a comma in the name",
     {{T | OP | TO_FULL, "InitiatorName=iqn.2026-11.org.example:i,i,0x1|TargetName=iqn.2026-11.org.example:t|",
       LOGIN_REJECT, 0x0200, ""}}},
    {"a byte that is not ASCII in the name",
     {{T | OP | TO_FULL, "InitiatorName=iqn.2026-11.org.example:\xff|TargetName=iqn.2026-11.org.example:t|",
       LOGIN_REJECT, 0x0200, ""}}},
    {"a control character in the name",
     {{T | OP | TO_FULL, "InitiatorName=iqn.2026-11.org.example:\n|TargetName=iqn.2026-11.org.example:t|", LOGIN_REJECT,
       0x0200, ""}}},
    {"no initiator name", {{T | OP | TO_FULL, "TargetName=iqn.2026-11.org.example:t|", LOGIN_REJECT, 0x0207, ""}}},
    {"no target name", {{T | OP | TO_FULL, "InitiatorName=iqn.2026-11.org.example:i|", LOGIN_REJECT, 0x0207, ""}}},
    {"discovery needs no target", {{T | OP | TO_FULL, "InitiatorName=a|SessionType=Discovery|", LOGIN_DONE, 0, OURS}}},
    {"an unknown session type", {{T | OP | TO_FULL, NAMES "SessionType=Other|", LOGIN_REJECT, 0x0200, ""}}},
    {"an empty name", {{T | OP | TO_FULL, "InitiatorName=|TargetName=x|", LOGIN_REJECT, 0x0200, ""}}},
    {"a key twice", {{T | OP | TO_FULL, NAMES "MaxBurstLength=512|MaxBurstLength=512|", LOGIN_REJECT, 0x0200, ""}}},
    {"a key again in a later request",
     {{OP, NAMES "InitialR2T=No|", LOGIN_REPLY, 0, "InitialR2T=No|" TPGT OURS},
      {T | OP | TO_FULL, "InitialR2T=No|", LOGIN_REJECT, 0x0200, ""}}},
    {"no equals sign", {{T | OP | TO_FULL, NAMES "MaxBurstLength|", LOGIN_REJECT, 0x0200, ""}}},
    {"an empty key", {{T | OP | TO_FULL, NAMES "=5|", LOGIN_REJECT, 0x0200, ""}}},
    {"back to security", {{T | OP | SEC, NAMES, LOGIN_REJECT, 0x0200, ""}}},
    {"to stage 2", {{T | OP | 2, NAMES, LOGIN_REJECT, 0x0200, ""}}},
    {"from stage 2", {{T | 8 | 3, NAMES, LOGIN_REJECT, 0x0200, ""}}},
    {"a stage that is not the current one",
     {{T | SEC | TO_OP, NAMES, LOGIN_REPLY, 0, TPGT}, {T | SEC | TO_OP, "", LOGIN_REJECT, 0x0200, ""}}},
};

Test(iscsi_login, exchanges)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(exchanges); i++) {
        struct rig rig = rig_make();
        for (unsigned j = 0; j < 4 && exchanges[i].steps[j].text != NULL; j++) {
            const struct step *step = &exchanges[i].steps[j];
            enum login_outcome outcome = exchange(&rig, step->flags, step->text);
            cr_expect_eq(outcome, step->outcome, "%s, step %u: outcome %d", exchanges[i].what, j, outcome);
            if (outcome == LOGIN_REJECT)
                cr_expect_eq(rig.login.status, step->status, "%s: %04x", exchanges[i].what, rig.login.status);
            else
                cr_expect_str_eq(reply(&rig), step->answer, "%s, step %u: %s", exchanges[i].what, j, reply(&rig));
            cr_expect_eq(rig.login.transit, (step->flags & T) && outcome != LOGIN_REJECT, "%s", exchanges[i].what);
        }
        rig_drop(&rig);
    }
}

static const struct {
    const char *offer, *answer;
} offers[] = {
    {"HeaderDigest=None,CRC32C", "HeaderDigest=None"},
    {"HeaderDigest=X-other,CRC32C", "HeaderDigest=CRC32C"},
    {"HeaderDigest=X-other", "HeaderDigest=Reject"},
    {"HeaderDigest=crc32c", "HeaderDigest=Reject"},
    {"DataDigest=CRC32C", "DataDigest=CRC32C"},
    {"MaxConnections=8", "MaxConnections=1"},
    {"MaxConnections=0", "MaxConnections=Reject"},
    {"InitialR2T=Yes", "InitialR2T=Yes"},
    {"InitialR2T=No", "InitialR2T=No"},
    {"InitialR2T=yes", "InitialR2T=Reject"},
    {"ImmediateData=Yes", "ImmediateData=Yes"},
    {"ImmediateData=No", "ImmediateData=No"},
    {"MaxBurstLength=0x10000", "MaxBurstLength=65536"},
    {"MaxBurstLength=16777215", "MaxBurstLength=16777215"},
    {"MaxBurstLength=511", "MaxBurstLength=Reject"},
    {"MaxBurstLength=16777216", "MaxBurstLength=Reject"},
    {"MaxBurstLength=99999999999999999999", "MaxBurstLength=Reject"},
    {"MaxBurstLength=", "MaxBurstLength=Reject"},
    {"MaxBurstLength=0x", "MaxBurstLength=Reject"},
    {"MaxBurstLength=12k", "MaxBurstLength=Reject"},
    {"FirstBurstLength=1048576", "FirstBurstLength=262144"},
    {"MaxBurstLength=65536|FirstBurstLength=131072", "MaxBurstLength=65536|FirstBurstLength=65536"},
    {"DefaultTime2Wait=0", "DefaultTime2Wait=0"},
    {"DefaultTime2Wait=5", "DefaultTime2Wait=5"},
    {"DefaultTime2Retain=20", "DefaultTime2Retain=0"},
    {"MaxOutstandingR2T=1", "MaxOutstandingR2T=1"},
    {"MaxOutstandingR2T=65535", "MaxOutstandingR2T=8"},
    {"DataPDUInOrder=No", "DataPDUInOrder=Yes"},
    {"DataSequenceInOrder=No", "DataSequenceInOrder=Yes"},
    {"ErrorRecoveryLevel=2", "ErrorRecoveryLevel=0"},
    {"ErrorRecoveryLevel=3", "ErrorRecoveryLevel=Reject"},
    {"IFMarker=Yes", "IFMarker=No"},
    {"OFMarker=No", "OFMarker=No"},
    {"IFMarkInt=2048~8192", "IFMarkInt=Reject"},
    {"OFMarkInt=2048", "OFMarkInt=Reject"},
    {"TaskReporting=FastAbort,RFC3720", "TaskReporting=RFC3720"},
    {"TaskReporting=FastAbort", "TaskReporting=Reject"},
    {"TargetAlias=x", "TargetAlias=Reject"},
    {"SendTargets=All", "SendTargets=Reject"},
    {"X-com.example.thing=1", "X-com.example.thing=NotUnderstood"},
    {"maxburstlength=512", "maxburstlength=NotUnderstood"},
    {"InitiatorAlias=someone", ""},
};

Test(iscsi_login, answers_to_offers)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(offers); i++) {
        struct rig rig = rig_make();
        char text[256], answer[256];
        text_format(text, sizeof text, NAMES "%s|", offers[i].offer);
        text_format(answer, sizeof answer, "%s%s" TPGT OURS, offers[i].answer, offers[i].answer[0] ? "|" : "");
        cr_expect_eq(exchange(&rig, T | OP | TO_FULL, text), LOGIN_DONE, "%s", offers[i].offer);
        cr_expect_str_eq(reply(&rig), answer, "%s: %s", offers[i].offer, reply(&rig));
        rig_drop(&rig);
    }
}

/* 6.2: none of the standard's keys is NotUnderstood, in no stage, whatever its value. */
Test(iscsi_login, every_key_of_the_standard_is_understood)
{
    static const char *const keys[] = {
        "AuthMethod",
        "CHAP_A",
        "CHAP_I",
        "CHAP_C",
        "CHAP_N",
        "CHAP_R",
        "HeaderDigest",
        "DataDigest",
        "MaxConnections",
        "SendTargets",
        "TargetName",
        "InitiatorName",
        "TargetAlias",
        "InitiatorAlias",
        "TargetAddress",
        "TargetPortalGroupTag",
        "InitialR2T",
        "ImmediateData",
        "MaxBurstLength",
        "MaxRecvDataSegmentLength",
        "FirstBurstLength",
        "DefaultTime2Wait",
        "DefaultTime2Retain",
        "MaxOutstandingR2T",
        "DataPDUInOrder",
        "DataSequenceInOrder",
        "ErrorRecoveryLevel",
        "SessionType",
        "IFMarker",
        "OFMarker",
        "IFMarkInt",
        "OFMarkInt",
        "TaskReporting",
    };
    static const char *const values[] = {"No", "1", "0", "CRC32C", "x", "1~2"};
    for (unsigned i = 0; i < ARRAY_LENGTH(keys); i++)
        for (unsigned j = 0; j < 2 * ARRAY_LENGTH(values); j++) {
            struct rig rig = rig_make();
            char text[256];
            text_format(text, sizeof text, NAMES "%s=%s|", keys[i], values[j / 2]);
            enum login_outcome outcome = exchange(&rig, j % 2 ? OP : SEC, text);
            cr_expect(outcome == LOGIN_REJECT || strstr(reply(&rig), "NotUnderstood") == NULL, "%s", keys[i]);
            rig_drop(&rig);
        }
}

Test(iscsi_login, first_burst_above_max_burst_is_an_error_when_both_are_known)
{
    struct rig rig = rig_make();
    cr_expect_eq(exchange(&rig, OP, NAMES "FirstBurstLength=65536|"), LOGIN_REPLY);
    cr_expect_eq(exchange(&rig, T | OP | TO_FULL, "MaxBurstLength=4096|"), LOGIN_REJECT);
    cr_expect_eq(rig.login.status, LOGIN_INITIATOR_ERROR);
    rig_drop(&rig);
}

Test(iscsi_login, values_are_kept)
{
    struct rig rig = rig_make();
    exchange(&rig, T | OP | TO_FULL, NAMES "DataDigest=CRC32C|MaxRecvDataSegmentLength=4096|ImmediateData=No|");
    const uint32_t *value = rig.login.keys.value;
    cr_expect_eq(value[KEY_DATA_DIGEST], DIGEST_CRC32C);
    cr_expect_eq(value[KEY_HEADER_DIGEST], DIGEST_NONE);
    cr_expect_eq(value[KEY_MAX_RECV], 4096);
    cr_expect_eq(value[KEY_IMMEDIATE_DATA], 0);
    cr_expect_eq(value[KEY_INITIAL_R2T], 1, "default");
    cr_expect_eq(value[KEY_FIRST_BURST], 65536, "default");
    cr_expect_str_eq(rig.login.keys.target, "iqn.2026-11.org.example:t");
    rig_drop(&rig);
}

Test(iscsi_login, the_header_must_stay_the_same_and_the_version_fit)
{
    static const char names[] = "InitiatorName=a\0TargetName=b";
    for (unsigned i = 0; i < 5; i++) {
        struct rig rig = rig_make();
        struct pdu pdu = {.opcode = PDU_LOGIN, .itt = 5, .data_len = sizeof names};
        pdu.login.csg = 1;
        memcpy(rig.text, names, sizeof names);
        rig.login.text_len = sizeof names;
        pdu.login.version_min = i == 4;
        enum login_outcome outcome = login_request(&rig.login, &pdu);
        if (i == 4) {
            cr_expect(outcome == LOGIN_REJECT && rig.login.status == LOGIN_BAD_VERSION);
        } else {
            login_resume(&rig.login, &(struct login_grant){.peer = PEER, .group = 1});
            pdu.itt += i == 0;
            pdu.login.cid += i == 1;
            pdu.login.tsih += i == 2;
            pdu.login.isid[5] += i == 3;
            pdu.data_len = 0;
            cr_expect_eq(login_request(&rig.login, &pdu), LOGIN_REJECT, "case %u", i);
        }
        rig_drop(&rig);
    }
}

Test(iscsi_login, a_long_answer_is_fetched_in_pieces)
{
    struct rig rig = rig_make();
    char text[TEXT_MAX];
    size_t len = strlen(NAMES), answers = 0;
    memcpy(text, NAMES, len);
    for (unsigned i = 0; i < 500; i++) {
        char pair[64];
        text_format(pair, sizeof pair, "X-org.example.key.%u=%u|", i, i);
        memcpy(text + len, pair, strlen(pair));
        len += strlen(pair);
    }
    enum login_outcome outcome = LOGIN_REPLY;
    cr_assert_eq(request_bytes(&rig, T | OP | TO_FULL, text, len), LOGIN_FIND_TARGET);
    outcome = login_resume(&rig.login, &(struct login_grant){.alias = "alias", .peer = PEER, .group = 1});
    for (unsigned i = 0; i < 10 && outcome == LOGIN_REPLY; i++) {
        cr_expect(rig.login.more && !rig.login.transit && rig.login.reply_len == MAX_RECV_DEFAULT);
        answers += rig.login.reply_len;
        outcome = request(&rig, T | OP | TO_FULL, "");
    }
    cr_expect_eq(outcome, LOGIN_DONE);
    cr_expect(!rig.login.more && rig.login.transit);
    cr_expect_gt(answers, 8192u);
    cr_expect_not_null(strstr(reply(&rig), "TargetAlias=alias|" OURS));
    rig_drop(&rig);
}

Test(iscsi_login, the_reply_carries_stages_names_and_status)
{
    struct rig rig = rig_make();
    uint8_t bhs[PDU_BHS_BYTES];
    exchange(&rig, T | SEC | TO_OP, NAMES);
    login_encode(&rig.login, bhs);
    cr_expect(bhs[0] == 0x23 && bhs[1] == 0x81 && bhs[36] == 0 && bhs[14] == 0 && bhs[15] == 0, "no TSIH yet");
    cr_expect_eq(exchange(&rig, T | OP | TO_FULL, ""), LOGIN_DONE);
    rig.login.tsih = 0x1234;
    login_encode(&rig.login, bhs);
    cr_expect(bhs[1] == 0x87 && bhs[14] == 0x12 && bhs[15] == 0x34);
    login_refuse(&rig.login, LOGIN_NO_TARGET, "");
    login_encode(&rig.login, bhs);
    cr_expect(bhs[36] == 2 && bhs[37] == 3 && (bhs[1] & 0x80) == 0);
    rig_drop(&rig);
}

Test(iscsi_login, target_names)
{
    static const struct {
        const char *name;
        bool valid;
    } cases[] = {
        {"iqn.2026-11.org.example", true},
        {"iqn.2026-11.org.example:disk-1.a:b", true},
        {"iqn.2026-13.org.example", false},
        {"iqn.2026-00.org.example", false},
        {"iqn.2026-11", false},
        {"iqn.2026-11.", false},
        {"iqn.2026-11.org example", false},
        {"iqn.26-11.org.example", false},
        {"iqn.", false},
        {"", false},
        {"eui.0123456789abcdef", true},
        {"eui.0123456789abcde", false},
        {"naa.0123456789ABCDEF", true},
        {"naa.0123456789abcdef0123456789abcdef", true},
        {"naa.0123456789abcdef01", false},
        {"disk", false},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++)
        cr_expect_eq(iscsi_name_valid(cases[i].name), cases[i].valid, "%s", cases[i].name);
}
