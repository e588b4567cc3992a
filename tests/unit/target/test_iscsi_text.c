/* Text requests of the iSCSI target in a whole connection: discovery, SendTargets, requests and answers in parts. */
#include "core/log.h"
#include "tests/unit/target/initiator.h"

static struct ini_rig *plain_rig(void)
{
    return ini_rig_make(2000, (struct iscsi_limits){0});
}

static void drop(struct ini *ini)
{
    struct ini_rig *rig = ini->rig;
    ini_drop(ini);
    ini_rig_drop(rig);
}

static struct ini *discovery(struct ini_rig *rig, const char *more)
{
    struct ini *ini = ini_connect(rig, 9);
    char keys[300];
    text_format(keys, sizeof keys, "InitiatorName=" INI_NAME "|SessionType=Discovery%s%s", more[0] ? "|" : "", more);
    cr_assert_eq(ini_login_keys(ini, keys), 0);
    return ini;
}

/* A text request and its answer, put together, with | for zero bytes. Returns the number of responses; 0: a Reject. */
static unsigned text_exchange(struct ini *ini, const char *text, size_t len, char *out, size_t max)
{
    uint8_t bhs[PDU_BHS_BYTES], reply[PDU_BHS_BYTES];
    unsigned count = 0;
    size_t at = 0;
    uint32_t itt = ini->itt;
    ini_request(ini, bhs, PDU_TEXT, 0x80);
    ini_send(ini, bhs, text, (uint32_t)len);
    for (;;) {
        struct ini_pdu pdu;
        cr_assert(ini_recv(ini, &pdu));
        memcpy(reply, pdu.bhs, sizeof reply);
        bool rejected = reply[0] == PDU_REJECT;
        if (!rejected) {
            cr_assert_eq(reply[0], PDU_TEXT_RESPONSE);
            cr_assert(at + pdu.len < max);
            memcpy(out + at, pdu.data, pdu.len);
            at += pdu.len;
            count++;
        }
        ini_pdu_free(&pdu);
        if (rejected)
            return 0;
        if (reply[1] & PDU_FINAL)
            break;
        cr_assert_neq(get_be32(reply + 20), PDU_TAG_NONE);
        ini_request(ini, bhs, PDU_TEXT, 0x80);
        put_be32(bhs + 16, itt);
        memcpy(bhs + 20, reply + 20, 4);
        ini_send(ini, bhs, NULL, 0);
    }
    cr_expect_eq(get_be32(reply + 20), PDU_TAG_NONE);
    for (size_t i = 0; i < at; i++)
        out[i] = out[i] == '\0' ? '|' : out[i];
    out[at] = '\0';
    return count;
}

#define ONE_TARGET "TargetName=" INI_TARGET "|TargetAddress=192.0.2.1:3260,1|"

Test(iscsi_text, send_targets)
{
    static const struct {
        bool discovery;
        const char *text, *answer; /* NULL: a Reject */
    } cases[] = {
        {true, "SendTargets=All", ONE_TARGET},
        {true, "SendTargets=" INI_TARGET, ONE_TARGET},
        {true, "SendTargets=iqn.2026-11.org.example:nothing", ""},
        {true, "SendTargets=", NULL},
        {true, "SendTargets=all", NULL},
        {false, "SendTargets=", ONE_TARGET},
        {false, "SendTargets=" INI_TARGET, ONE_TARGET},
        {false, "SendTargets=All", ONE_TARGET},
        {false, "SendTargets=iqn.2026-11.org.example:other", NULL},
        {false, "sendtargets=All", NULL},
        {false, "X-a=1", NULL},
        {false, "MaxRecvDataSegmentLength=8192", ""},
        {false, "MaxBurstLength=8192", "MaxBurstLength=Reject|"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct ini_rig *rig = plain_rig();
        struct ini *ini = cases[i].discovery ? discovery(rig, "") : ini_session(rig, 1, "");
        char out[4096];
        unsigned count = text_exchange(ini, cases[i].text, strlen(cases[i].text) + 1, out, sizeof out);
        cr_expect_eq(count, cases[i].answer != NULL, "%s", cases[i].text);
        if (count > 0 && cases[i].answer != NULL)
            cr_expect_str_eq(out, cases[i].answer, "%s: %s", cases[i].text, out);
        count = text_exchange(ini, "SendTargets=" INI_TARGET, sizeof "SendTargets=" INI_TARGET, out, sizeof out);
        cr_expect_eq(count, 1, "%s: the next request works", cases[i].text);
        drop(ini);
    }
}

Test(iscsi_text, portals_are_told_once_and_the_loopback_to_those_on_it)
{
    static const struct {
        const char *local, *answer;
    } cases[] = {
        {"192.0.2.1:3260", ONE_TARGET "TargetAddress=[2001:db8::1]:3260,1|"},
        {"[2001:db8::1]:3260",
         "TargetName=" INI_TARGET "|TargetAddress=[2001:db8::1]:3260,1|TargetAddress=192.0.2.1:3260,1|"},
        {"127.0.0.9:3260",
         "TargetName=" INI_TARGET
         "|TargetAddress=127.0.0.9:3260,1|TargetAddress=192.0.2.1:3260,1|TargetAddress=127.0.0.1:3260,1|"
         "TargetAddress=[::1]:3260,1|TargetAddress=[2001:db8::1]:3260,1|"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        static const char *const portals[] = {"127.0.0.1:3260", "[::1]:3260", "[2001:db8::1]:3260", "[::1]:3260"};
        struct ini_rig *rig = plain_rig();
        for (unsigned j = 0; j < ARRAY_LENGTH(portals); j++)
            cr_expect_eq(iscsi_server_add_portal(rig->server, 1, portals[j]), 0);
        struct ini *ini = ini_connect_at(rig, 9, cases[i].local);
        char out[4096];
        cr_assert_eq(ini_login_keys(ini, "InitiatorName=" INI_NAME "|SessionType=Discovery"), 0);
        cr_expect_eq(text_exchange(ini, "SendTargets=All", sizeof "SendTargets=All", out, sizeof out), 1);
        cr_expect_str_eq(out, cases[i].answer, "%s: %s", cases[i].local, out);
        drop(ini);
    }
}

Test(iscsi_text, a_long_list_comes_in_segments_the_initiator_takes)
{
    for (unsigned digests = 0; digests < 2; digests++) {
        struct ini_rig *rig = plain_rig();
        for (unsigned i = 0; i < 40; i++) {
            char name[64];
            text_format(name, sizeof name, "iqn.2026-11.org.example:many-%u", i);
            cr_assert_eq(iscsi_server_add_target(rig->server, rig->scsi, &rig->t->loop, name, NULL), 0);
        }
        cr_expect_eq(iscsi_server_add_target(rig->server, rig->scsi, &rig->t->loop, INI_TARGET, NULL), -17);
        cr_expect_eq(iscsi_server_add_target(rig->server, rig->scsi, &rig->t->loop, "disk", NULL), -22);
        struct ini *ini = discovery(rig, digests ? "MaxRecvDataSegmentLength=512|HeaderDigest=CRC32C|DataDigest=CRC32C"
                                                 : "MaxRecvDataSegmentLength=512");
        char out[8192];
        unsigned count = text_exchange(ini, "SendTargets=All", 16, out, sizeof out);
        cr_expect_gt(count, 5u);
        cr_expect_eq(count, (strlen(out) + 511) / 512);
        cr_expect_not_null(strstr(out, "many-0|"));
        cr_expect_not_null(strstr(out, "many-39|TargetAddress=192.0.2.1:3260,1|"));
        drop(ini);
    }
}

Test(iscsi_text, a_text_request_may_come_in_parts)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = discovery(rig, "");
    uint8_t bhs[PDU_BHS_BYTES], reply[PDU_BHS_BYTES];
    char out[512] = "";
    ini_request(ini, bhs, PDU_TEXT, PDU_CONTINUE); /* C=1 and no data at all */
    ini_send(ini, bhs, NULL, 0);
    for (unsigned i = 0; i < 2; i++) {
        static const char *const parts[] = {"SendTar", "gets=All"};
        cr_expect_eq(ini_expect(ini, PDU_TEXT_RESPONSE, reply, NULL, 0), 0);
        cr_expect((reply[1] & PDU_FINAL) == 0 && get_be32(reply + 20) != PDU_TAG_NONE);
        ini_request(ini, bhs, PDU_TEXT, i == 0 ? PDU_CONTINUE : PDU_FINAL);
        memcpy(bhs + 20, reply + 20, 4);
        ini_send(ini, bhs, parts[i], (uint32_t)strlen(parts[i]));
    }
    ini_expect(ini, PDU_TEXT_RESPONSE, reply, out, sizeof out);
    cr_expect_str_eq(out, "TargetName=" INI_TARGET);
    ini_request(ini, bhs, PDU_TEXT, 0x80);
    put_be32(bhs + 20, 0x1234); /* stale */
    ini_send(ini, bhs, NULL, 0);
    ini_expect(ini, PDU_REJECT, NULL, NULL, 0);
    drop(ini);
}

Test(iscsi_text, discovery_takes_text_and_logout_only)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = discovery(rig, "");
    uint8_t bhs[PDU_BHS_BYTES];
    ini_command(ini, bhs, INI_F, 0, INI_CDB(0));
    ini_send(ini, bhs, NULL, 0);
    ini->cmd_sn--;
    ini_expect(ini, PDU_REJECT, NULL, NULL, 0);
    ini_request(ini, bhs, 0x40 | PDU_TASK, 0x85);
    ini_send(ini, bhs, NULL, 0);
    ini_expect(ini, PDU_REJECT, NULL, NULL, 0);
    ini_data_out(ini, bhs, 1, 0, 0, true, bhs, 48);
    ini_expect(ini, PDU_REJECT, NULL, NULL, 0);
    ini_request(ini, bhs, PDU_LOGOUT, 0x80);
    ini_send(ini, bhs, NULL, 0);
    ini_expect(ini, PDU_LOGOUT_RESPONSE, NULL, NULL, 0);
    ini_expect_closed(ini);
    drop(ini);
}
