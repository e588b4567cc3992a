/* The iSCSI target, a whole connection at a time: login, numbering, pings, logout, drain, hostile peers. */
#include <stdlib.h>

#include "core/log.h"
#include "tests/unit/target/initiator.h"

#define NAMES "InitiatorName=" INI_NAME "|TargetName=" INI_TARGET

static const uint64_t second = 1000000000;

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

/* --- login --- */

Test(iscsi_session, logins_that_are_refused)
{
    static const struct {
        const char *keys;
        uint16_t tsih;
        int status;
    } cases[] = {
        {"InitiatorName=" INI_NAME "|TargetName=iqn.2026-11.org.example:other", 0, 0x0203},
        {"InitiatorName=" INI_NAME "|TargetName=" INI_TARGET "x", 0, 0x0203},
        {"TargetName=" INI_TARGET, 0, 0x0207},
        {NAMES, 77, 0x020a},
        {"InitiatorName=" INI_NAME "|SessionType=Discovery", 5, 0x020a},
        {NAMES "|MaxRecvDataSegmentLength=5", 0, 0x0200},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct ini_rig *rig = plain_rig();
        struct ini *ini = ini_connect(rig, 1);
        char text[600];
        size_t len = strlen(cases[i].keys);
        memcpy(text, cases[i].keys, len + 1);
        for (size_t j = 0; j < len; j++)
            text[j] = text[j] == '|' ? '\0' : text[j];
        int status = ini_login_request(ini, 0x87, cases[i].tsih, text, len + 1, NULL, 0);
        cr_expect_eq(status, cases[i].status, "%s: %04x", cases[i].keys, status);
        ini_expect_closed(ini);
        drop(ini);
    }
}

Test(iscsi_session, tsih_comes_with_the_last_response_only)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_connect(rig, 1);
    static const char names[] = "InitiatorName=" INI_NAME "\0TargetName=" INI_TARGET "\0AuthMethod=None";
    char answer[1024];
    cr_expect_eq(ini_login_request(ini, 0x81, 0, names, sizeof names, answer, sizeof answer), 0);
    cr_expect_eq(ini->tsih, 0);
    cr_expect_str_eq(answer, "AuthMethod=None");
    cr_expect_eq(ini->login_flags, 0x81);
    cr_expect_eq(ini_login_request(ini, 0x87, 0, "", 0, answer, sizeof answer), 0);
    cr_expect_neq(ini->tsih, 0);
    cr_expect_eq(ini->login_flags, 0x87);
    cr_expect_eq(ini->exp_cmd_sn, ini->cmd_sn, "ExpCmdSN is the CmdSN of the login");
    ini_ready(ini);
    drop(ini);
}

Test(iscsi_session, a_login_that_takes_too_long_is_ended)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_connect(rig, 1);
    teststream_feed(ini->s, "\x43\x87\0\0\0\0\0\x20", 8);
    ini_pass_time(rig, 14 * second);
    cr_expect_not(ini->s->closed);
    ini_pass_time(rig, 2 * second);
    ini_expect_closed(ini);
    drop(ini);
}

Test(iscsi_session, only_logins_before_login_and_none_after)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_connect(rig, 1);
    uint8_t bhs[PDU_BHS_BYTES], reject[PDU_BHS_BYTES];
    ini_request(ini, bhs, 0x40 | PDU_NOP_OUT, 0x80);
    ini_send(ini, bhs, NULL, 0);
    ini_expect_closed(ini);
    ini_drop(ini);
    ini = ini_session(rig, 1, "");
    ini_request(ini, bhs, 0x40 | PDU_LOGIN, 0x87);
    ini_send(ini, bhs, NULL, 0);
    ini_expect(ini, PDU_REJECT, reject, NULL, 0);
    cr_expect_eq(reject[2], PDU_REJECT_PROTOCOL);
    drop(ini);
}

/* 6.3.1. What the session of INI_NAME with ISID 1 says to further logins. */
Test(iscsi_session, the_table_of_isid_and_tsih)
{
    static const struct {
        const char *what, *name;
        uint8_t isid;
        bool same_tsih;
        uint16_t tsih; /* else */
        int status;
        bool survives;
    } cases[] = {
        {"new ISID, no TSIH: another session", INI_NAME, 2, false, 0, 0, true},
        {"same ISID, no TSIH: reinstated", INI_NAME, 1, false, 0, 0, false},
        {"same ISID of another name: another session", INI_NAME "x", 1, false, 0, 0, true},
        {"same ISID and TSIH: a second connection", INI_NAME, 1, true, 0, 0x0206, true},
        {"same ISID, a TSIH that is none", INI_NAME, 1, false, 0x4242, 0x020a, true},
        {"new ISID, its TSIH", INI_NAME, 2, true, 0, 0x020a, true},
        {"new ISID, a TSIH that is none", INI_NAME, 2, false, 0x4242, 0x020a, true},
        {"its TSIH, by another name", INI_NAME "x", 1, true, 0, 0x020a, true},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct ini_rig *rig = plain_rig();
        struct ini *first = ini_session(rig, 1, ""), *next = ini_connect(rig, cases[i].isid);
        char text[600];
        text_format(text, sizeof text, "InitiatorName=%s", cases[i].name);
        size_t len = strlen(text) + 1;
        text_format(text + len, sizeof text - len, "TargetName=" INI_TARGET);
        len += sizeof "TargetName=" INI_TARGET;
        int status =
            ini_login_request(next, 0x87, cases[i].same_tsih ? first->tsih : cases[i].tsih, text, len, NULL, 0);
        cr_expect_eq(status, cases[i].status, "%s: %04x", cases[i].what, status);
        cr_expect_eq(!first->s->closed, cases[i].survives, "%s", cases[i].what);
        if (status == 0)
            cr_expect(next->tsih != 0 && (next->tsih != first->tsih || !cases[i].survives), "%s", cases[i].what);
        ini_drop(next);
        drop(first);
    }
}

Test(iscsi_session, a_login_segment_has_8192_bytes_at_most)
{
    static char text[8196];
    static const char names[] = NAMES;
    size_t len = sizeof names;
    memcpy(text, names, sizeof names);
    for (size_t i = 0; i < len; i++)
        text[i] = text[i] == '|' ? '\0' : text[i];
    for (unsigned i = 0; len < 8192; i++) { /* many keys, to the last byte */
        size_t room = MIN(8192 - len, (size_t)40);
        text_format(text + len, room, "X-%u=%.*s", i, 33, "vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv");
        len += strlen(text + len) + 1;
    }
    for (unsigned more = 0; more <= 4; more += 4) {
        struct ini_rig *rig = plain_rig();
        struct ini *ini = ini_connect(rig, 1);
        int status = ini_login_request(ini, 0x87, 0, text, 8192 + more, NULL, 0);
        cr_expect_eq(status, more > 0 ? 0x0200 : 0, "%u: %04x", more, status);
        drop(ini);
    }
}

Test(iscsi_session, endless_login_text_is_cut_off)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_connect(rig, 1);
    static char text[8192];
    memset(text, 'a', sizeof text);
    int status = 0;
    for (unsigned i = 0; i < 20 && status == 0; i++)
        status = ini_login_request(ini, 0x44, 0, text, sizeof text, NULL, 0);
    cr_expect_eq(status, 0x0200);
    ini_expect_closed(ini);
    drop(ini);
}

Test(iscsi_session, the_same_name_and_isid_reinstate_a_session_without_waiting_for_the_disk)
{
    struct ini_rig *rig = plain_rig();
    struct ini *old = ini_session(rig, 1, ""), *other = ini_session(rig, 2, "");
    uint8_t bhs[PDU_BHS_BYTES], cdb[16];
    ini_hang(rig, true);
    for (unsigned i = 0; i < 8; i++) {
        ini_cdb_rw(cdb, i % 2, i * 8, 8);
        ini_command(old, bhs, (uint8_t)(INI_F | (i % 2 ? INI_W : INI_R)), 4096, cdb);
        ini_send(old, bhs, bhs, i % 2 ? 48 : 0);
    }
    ini_run(old);
    struct ini *new = ini_session(rig, 1, "");
    ini_expect_closed(old);
    ini_expect_silence(other);
    cr_expect_eq(ini_do(new, 0, 0, INI_CDB(0)).status, 0);
    cr_expect_eq(iscsi_server_connections(rig->server), 3, "the orphans keep the old one");
    ini_hang(rig, false);
    cr_expect_eq(iscsi_server_connections(rig->server), 2);
    ini_drop(old);
    ini_drop(other);
    drop(new);
}

Test(iscsi_session, a_reservation_ends_with_its_session_though_the_disk_hangs)
{
    struct ini_rig *rig = plain_rig();
    struct ini *holder = ini_session(rig, 1, ""), *other = ini_session(rig, 2, "");
    uint8_t bhs[PDU_BHS_BYTES], cdb[16];
    cr_expect_eq(ini_do(holder, 0, 0, INI_CDB(0x16)).status, 0);
    cr_expect_eq(ini_do(other, 0, 0, INI_CDB(0)).status, SCSI_RESERVATION_CONFLICT);
    ini_hang(rig, true);
    ini_cdb_rw(cdb, false, 0, 8);
    ini_command(holder, bhs, INI_F | INI_R, 4096, cdb);
    ini_send(holder, bhs, NULL, 0);
    ini_run(holder);
    ini_drop(holder);
    cr_expect_eq(iscsi_server_connections(rig->server), 2, "the orphan keeps the memory of the session");
    cr_expect_eq(ini_do(other, 0, 0, INI_CDB(0)).status, 0, "but not its reservation");
    struct ini *again = ini_session(rig, 1, "");
    cr_expect_eq(ini_do(again, 0, 0, INI_CDB(0)).status, 0);
    ini_hang(rig, false);
    ini_drop(again);
    drop(other);
}

Test(iscsi_session, a_second_connection_of_a_session_is_one_too_many)
{
    struct ini_rig *rig = plain_rig();
    struct ini *first = ini_session(rig, 1, "MaxConnections=4"), *more = ini_connect(rig, 1);
    static const char names[] = "InitiatorName=" INI_NAME "\0TargetName=" INI_TARGET;
    cr_expect_eq(ini_login_request(more, 0x87, first->tsih, names, sizeof names, NULL, 0), 0x0206);
    cr_expect_eq(ini_do(first, 0, 0, INI_CDB(0)).status, 0, "the session is undisturbed");
    ini_drop(more);
    drop(first);
}

Test(iscsi_session, the_limit_of_sessions_does_not_count_the_one_replaced)
{
    struct ini_rig *rig = ini_rig_make(2000, (struct iscsi_limits){.connections = 2});
    struct ini *a = ini_session(rig, 1, ""), *b = ini_session(rig, 2, ""), *c = ini_connect(rig, 3);
    cr_expect_eq(ini_login_keys(c, NAMES), 0x0302);
    struct ini *again = ini_session(rig, 2, "");
    ini_expect_closed(b);
    ini_drop(a);
    ini_drop(b);
    ini_drop(c);
    drop(again);
}

/* --- numbering --- */

Test(iscsi_session, cmd_sn_outside_the_window_is_ignored)
{
    struct ini_rig *rig = ini_rig_make(2000, (struct iscsi_limits){.commands = 4});
    struct ini *ini = ini_session(rig, 1, "");
    static const int32_t off[] = {-1, -2, 4, 5, 1000, INT32_MIN};
    for (unsigned i = 0; i < ARRAY_LENGTH(off); i++) {
        uint8_t bhs[PDU_BHS_BYTES];
        ini_command(ini, bhs, INI_F, 0, INI_CDB(0));
        ini->cmd_sn--;
        put_be32(bhs + 24, ini->cmd_sn + (uint32_t)off[i]);
        ini_send(ini, bhs, NULL, 0);
        ini_expect_silence(ini);
    }
    cr_expect_eq(ini_do(ini, 0, 0, INI_CDB(0)).status, 0);
    drop(ini);
}

Test(iscsi_session, a_gap_is_waited_for_and_then_order_is_kept_over_the_wrap)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "");
    static const unsigned order[] = {3, 1, 2, 3, 0};
    for (unsigned round = 0; round < 8; round++) { /* 32 commands: CmdSN wraps */
        uint32_t base = ini->cmd_sn, itt = ini->itt + 3;
        for (unsigned i = 0; i < ARRAY_LENGTH(order); i++) {
            uint8_t bhs[PDU_BHS_BYTES];
            ini_expect_silence(ini);
            ini_command(ini, bhs, INI_F, 0, INI_CDB(0));
            put_be32(bhs + 24, base + order[i]);
            put_be32(bhs + 16, itt + order[i]); /* the second 3 is a duplicate: ignored */
            ini_send(ini, bhs, NULL, 0);
        }
        for (unsigned i = 0; i < 4; i++)
            cr_expect_eq(ini_answer(ini).itt, itt + i, "round %u", round);
        ini->cmd_sn = base + 4;
        ini->itt = itt + 4;
    }
    drop(ini);
}

Test(iscsi_session, writes_over_a_gap_keep_their_data)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "");
    uint8_t one[PDU_BHS_BYTES], two[PDU_BHS_BYTES], cdb[16], a[512], b[512];
    memset(a, 1, sizeof a);
    memset(b, 2, sizeof b);
    ini_cdb_rw(cdb, true, 0, 1);
    ini_command(ini, one, INI_F | INI_W, 512, cdb);
    ini_command(ini, two, INI_F | INI_W, 512, cdb);
    ini_send(ini, two, b, 512);
    ini_expect_silence(ini);
    cr_expect_eq(rig->disks[0]->writes, 0);
    ini_send(ini, one, a, 512);
    cr_expect_eq(ini_answer(ini).itt, get_be32(one + 16));
    cr_expect_eq(ini_answer(ini).itt, get_be32(two + 16));
    cr_expect_eq(rig->disks[0]->bytes[0], 2, "the later one wins");
    drop(ini);
}

Test(iscsi_session, a_tag_in_use_is_rejected)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "");
    uint8_t bhs[PDU_BHS_BYTES], cdb[16], reject[PDU_BHS_BYTES];
    ini_hang(rig, true);
    ini_cdb_rw(cdb, false, 0, 1);
    ini_command(ini, bhs, INI_F | INI_R, 512, cdb);
    ini_send(ini, bhs, NULL, 0);
    put_be32(bhs + 24, ini->cmd_sn);
    ini_send(ini, bhs, NULL, 0);
    ini_expect(ini, PDU_REJECT, reject, NULL, 0);
    cr_expect_eq(reject[2], PDU_REJECT_IN_PROGRESS);
    ini_hang(rig, false);
    cr_expect_eq(ini_answer(ini).status, 0);
    drop(ini);
}

Test(iscsi_session, the_window_closes_and_a_nop_tells_when_it_opens_again)
{
    struct ini_rig *rig = ini_rig_make(2000, (struct iscsi_limits){.commands = 1});
    struct ini *ini = ini_session(rig, 1, "");
    uint8_t bhs[PDU_BHS_BYTES], nop[PDU_BHS_BYTES], cdb[16];
    ini_hang(rig, true);
    ini_cdb_rw(cdb, false, 0, 1);
    ini_command(ini, bhs, INI_F | INI_R, 512, cdb);
    ini_send(ini, bhs, NULL, 0);
    ini_task(ini, 1, get_be32(bhs + 16), get_be32(bhs + 24), 0, 0);
    cr_expect_eq(ini->max_cmd_sn, ini->exp_cmd_sn - 1, "closed: the disk has the only slot");
    ini_expect_silence(ini);
    ini_hang(rig, false);
    ini_expect(ini, PDU_NOP_IN, nop, NULL, 0);
    cr_expect(get_be32(nop + 16) == PDU_TAG_NONE && get_be32(nop + 20) == PDU_TAG_NONE);
    cr_expect_eq(ini->max_cmd_sn, ini->exp_cmd_sn);
    cr_expect_eq(ini_do(ini, 0, 0, INI_CDB(0)).status, 0);
    drop(ini);
}

Test(iscsi_session, too_many_immediate_requests_are_rejected_but_task_management_gets_through)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "");
    uint8_t cdb[16], reject[PDU_BHS_BYTES], bhs[PDU_BHS_BYTES];
    ini_hang(rig, true);
    ini_cdb_rw(cdb, false, 0, 1);
    for (unsigned i = 0; i < 7; i++) {
        ini_request(ini, bhs, 0x40 | PDU_COMMAND, INI_F | INI_R);
        put_be32(bhs + 20, 512);
        memcpy(bhs + 32, cdb, 16);
        ini_send(ini, bhs, NULL, 0);
    }
    ini_expect(ini, PDU_REJECT, reject, NULL, 0);
    cr_expect_eq(reject[2], PDU_REJECT_IMMEDIATE);
    ini_task(ini, 5, 0, 0, 0, 0);
    ini_hang(rig, false);
    cr_expect_eq(ini_do(ini, 0, 0, INI_CDB(0)).status, 2, "the unit attention of the reset");
    drop(ini);
}

/* --- pings and logout --- */

Test(iscsi_session, pings_are_answered_with_their_data)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_connect(rig, 1);
    cr_assert_eq(ini_login_keys(ini, NAMES "|MaxRecvDataSegmentLength=1024"), 0);
    uint8_t bhs[PDU_BHS_BYTES], reply[PDU_BHS_BYTES], data[2000], back[2000];
    test_fill(data, sizeof data, 2);
    for (uint32_t len = 0; len <= sizeof data; len += 500) {
        ini_request(ini, bhs, len % 1000 ? PDU_NOP_OUT : 0x40 | PDU_NOP_OUT, 0x80);
        ini_send(ini, bhs, data, len);
        cr_expect_eq(ini_expect(ini, PDU_NOP_IN, reply, back, sizeof back), MIN(len, 1024u));
        cr_expect_eq(get_be32(reply + 16), get_be32(bhs + 16));
        cr_expect_arr_eq(back, data, MIN(len, 1024u));
    }
    ini_request(ini, bhs, 0x40 | PDU_NOP_OUT, 0x80);
    put_be32(bhs + 16, PDU_TAG_NONE);
    ini_send(ini, bhs, data, 100);
    ini_expect_silence(ini);
    drop(ini);
}

Test(iscsi_session, a_silent_peer_is_pinged_and_then_cut)
{
    struct ini_rig *rig =
        ini_rig_make(2000, (struct iscsi_limits){.nop_interval_ns = 10 * second, .nop_timeout_ns = 5 * second});
    struct ini *ini = ini_session(rig, 1, "");
    uint8_t ping[PDU_BHS_BYTES], bhs[PDU_BHS_BYTES];
    for (unsigned i = 0; i < 100; i++) { /* answered pings leave nothing behind */
        ini_pass_time(rig, 10 * second);
        ini_expect(ini, PDU_NOP_IN, ping, NULL, 0);
        cr_expect(get_be32(ping + 16) == PDU_TAG_NONE && get_be32(ping + 20) != PDU_TAG_NONE && ping[9] == 0);
        ini_request(ini, bhs, 0x40 | PDU_NOP_OUT, 0x80);
        put_be32(bhs + 16, PDU_TAG_NONE);
        memcpy(bhs + 20, ping + 20, 4);
        ini_send(ini, bhs, NULL, 0);
        ini_pass_time(rig, 5 * second);
        ini_expect_silence(ini);
        ini_pass_time(rig, second);
        cr_expect_eq(ini_do(ini, 0, 0, INI_CDB(0)).status, 0, "any PDU counts as life");
    }
    ini_pass_time(rig, 10 * second);
    ini_expect(ini, PDU_NOP_IN, ping, NULL, 0);
    ini_pass_time(rig, 6 * second);
    ini_expect_closed(ini);
    drop(ini);
}

Test(iscsi_session, logout_reasons)
{
    static const struct {
        uint8_t reason;
        uint16_t cid;
        uint8_t response;
    } cases[] = {{0, 0, 0}, {0, 9, 0}, {1, 0, 0}, {1, 9, 1}, {2, 0, 2}, {3, 0, 2}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct ini_rig *rig = plain_rig();
        struct ini *ini = ini_session(rig, 1, "InitialR2T=Yes|ImmediateData=No");
        uint8_t bhs[PDU_BHS_BYTES], cdb[16], reply[PDU_BHS_BYTES];
        ini_cdb_rw(cdb, true, 0, 8);
        ini_command(ini, bhs, INI_F | INI_W, 4096, cdb); /* a write waits for data */
        ini_send(ini, bhs, NULL, 0);
        ini_expect(ini, PDU_R2T, NULL, NULL, 0);
        ini_request(ini, bhs, i % 2 ? PDU_LOGOUT : 0x40 | PDU_LOGOUT, 0x80 | cases[i].reason);
        put_be16(bhs + 20, cases[i].cid);
        ini_send(ini, bhs, NULL, 0);
        ini_expect(ini, PDU_LOGOUT_RESPONSE, reply, NULL, 0);
        cr_expect_eq(reply[2], cases[i].response, "reason %u", cases[i].reason);
        if (cases[i].response == 0)
            ini_expect_closed(ini);
        else
            ini_expect_silence(ini);
        drop(ini);
    }
}

/* --- hostile and broken peers --- */

Test(iscsi_session, unknown_and_misplaced_requests_are_rejected_and_the_session_goes_on)
{
    static const struct {
        uint8_t opcode, flags, reason;
    } cases[] = {{0x1c, 0x80, 0x05}, {0x07, 0x80, 0x05}, {0x25, 0x80, 0x05}, {0x3f, 0x80, 0x05},
                 {0x10, 0x80, 0x03}, {0x04, 0xc0, 0x09}, {0x03, 0x87, 0x04}};
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "");
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint8_t bhs[PDU_BHS_BYTES], reject[PDU_BHS_BYTES], back[PDU_BHS_BYTES];
        ini_request(ini, bhs, cases[i].opcode, cases[i].flags);
        ini->cmd_sn--;
        ini_send(ini, bhs, "rubbish", 7);
        cr_expect_eq(ini_expect(ini, PDU_REJECT, reject, back, sizeof back), PDU_BHS_BYTES);
        cr_expect_eq(reject[2], cases[i].reason, "opcode %02x: %02x", cases[i].opcode, reject[2]);
        cr_expect_arr_eq(back, bhs, sizeof back, "with the header");
        cr_expect_eq(ini_do(ini, 0, 0, INI_CDB(0)).status, 0);
    }
    drop(ini);
}

Test(iscsi_session, a_flood_of_rubbish_is_answered_as_fast_as_it_is_read)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "");
    uint8_t bhs[PDU_BHS_BYTES];
    ini->s->send_window = 0;
    for (unsigned i = 0; i < 500; i++) {
        ini_request(ini, bhs, 0x1c, 0x80);
        ini->cmd_sn--;
        ini_send(ini, bhs, NULL, 0);
    }
    ini_run(ini);
    teststream_open_window(ini->s, SIZE_MAX);
    for (unsigned i = 0; i < 500; i++)
        ini_expect(ini, PDU_REJECT, NULL, NULL, 0);
    cr_expect_eq(ini_do(ini, 0, 0, INI_CDB(0)).status, 0);
    drop(ini);
}

Test(iscsi_session, a_segment_longer_than_declared_ends_the_connection)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "");
    uint8_t bhs[PDU_BHS_BYTES];
    ini_request(ini, bhs, 0x40 | PDU_NOP_OUT, 0x80);
    put_be24(bhs + 5, 262145);
    teststream_feed(ini->s, bhs, sizeof bhs);
    ini_expect_closed(ini);
    drop(ini);
}

Test(iscsi_session, resets_with_commands_in_flight)
{
    for (unsigned round = 0; round < 40; round++) {
        struct ini_rig *rig = plain_rig();
        struct ini *ini = ini_session(rig, 1, "");
        uint8_t bhs[PDU_BHS_BYTES], cdb[16];
        if (round % 2)
            ini_hang(rig, true);
        if (round % 3 == 0)
            ini->s->send_window = round * 1000;
        for (unsigned i = 0; i < 32; i++) {
            bool write = round % 4 > 1 && i % 3 == 0;
            ini_cdb_rw(cdb, write, i * 16, 16);
            ini_command(ini, bhs, (uint8_t)(INI_F | (write ? INI_W : INI_R)), 8192, cdb);
            ini_send(ini, bhs, NULL, 0);
        }
        if (round % 5)
            ini_run(ini);
        if (round % 7 == 0)
            teststream_feed(ini->s, bhs, round);
        teststream_break(ini->s);
        ini_expect_closed(ini);
        ini_hang(rig, false);
        drop(ini);
    }
}

Test(iscsi_session, connections_beyond_all_limits_are_closed_at_once)
{
    struct ini_rig *rig = ini_rig_make(2000, (struct iscsi_limits){.connections = 1});
    struct ini *inis[11];
    for (unsigned i = 0; i < 11; i++)
        inis[i] = ini_connect(rig, (uint8_t)i);
    ini_run(inis[0]);
    cr_expect(inis[10]->s->closed && !inis[9]->s->closed);
    for (unsigned i = 0; i < 11; i++)
        ini_drop(inis[i]);
    ini_rig_drop(rig);
}

/* --- drain, info --- */

struct drain {
    struct task task;
    bool over;
};

static void on_drained(struct task *task)
{
    container_of(task, struct drain, task)->over = true;
}

Test(iscsi_session, drain_asks_for_logout_and_then_cuts)
{
    struct ini_rig *rig = plain_rig();
    struct ini *polite = ini_session(rig, 1, ""), *deaf = ini_session(rig, 2, ""), *half = ini_connect(rig, 3);
    struct drain drain = {.task.run = on_drained};
    uint8_t async[PDU_BHS_BYTES], bhs[PDU_BHS_BYTES];
    iscsi_server_drain(rig->server, 10 * second, &drain.task);
    ini_expect(polite, PDU_ASYNC, async, NULL, 0);
    cr_expect(async[36] == 1 && get_be16(async + 42) == 10, "log out within 10 s");
    ini_expect_closed(half);
    cr_expect_eq(ini_do(polite, 0, 0, INI_CDB(0)).status, 0, "what it has to do is still done");
    ini_request(polite, bhs, PDU_LOGOUT, 0x80);
    ini_send(polite, bhs, NULL, 0);
    ini_expect(polite, PDU_LOGOUT_RESPONSE, NULL, NULL, 0);
    ini_expect_closed(polite);
    cr_expect_not(drain.over);
    ini_expect(deaf, PDU_ASYNC, async, NULL, 0);
    ini_pass_time(rig, 11 * second);
    ini_expect(deaf, PDU_ASYNC, async, NULL, 0);
    cr_expect_eq(async[36], 2, "the connection will be dropped");
    ini_expect_closed(deaf);
    cr_expect(drain.over);
    struct ini *late = ini_connect(rig, 4);
    ini_expect_closed(late);
    ini_drop(late);
    ini_drop(half);
    ini_drop(deaf);
    drop(polite);
}

Test(iscsi_session, info_shows_who_is_there)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "HeaderDigest=CRC32C");
    struct iscsi_session_info info[2];
    uint8_t cdb[16];
    ini_cdb_rw(cdb, false, 0, 8);
    ini_do(ini, INI_R, 4096, cdb);
    cr_assert_eq(iscsi_server_info(rig->server, info, 2), 1);
    cr_expect_str_eq(info[0].initiator, INI_NAME);
    cr_expect_str_eq(info[0].target, INI_TARGET);
    cr_expect_str_eq(info[0].peer, "192.0.2.9:1001");
    cr_expect_str_eq(info[0].phase, "full feature");
    cr_expect(info[0].header_digest && !info[0].data_digest);
    cr_expect_eq(info[0].io.read_bytes, 4096);
    cr_expect_geq(io_stats_commands(&info[0].io), 3);
    drop(ini);
}

Test(iscsi_session, info_shows_digests_when_the_login_is_over)
{
    static const char names[] = "InitiatorName=" INI_NAME "\0TargetName=" INI_TARGET "\0HeaderDigest=CRC32C";
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_connect(rig, 1);
    struct iscsi_session_info info;
    cr_assert_eq(ini_login_request(ini, 0x04, 0, names, sizeof names, NULL, 0), 0);
    cr_assert_eq(iscsi_server_info(rig->server, &info, 1), 1);
    cr_expect_str_eq(info.initiator, INI_NAME);
    cr_expect_not(info.header_digest, "what is being negotiated is the login's business");
    cr_assert_eq(ini_login_request(ini, 0x87, 0, NULL, 0, NULL, 0), 0);
    cr_assert_eq(iscsi_server_info(rig->server, &info, 1), 1);
    cr_expect(info.header_digest && !info.data_digest);
    drop(ini);
}

/* --- a target on another loop --- */

static void run_both(struct testloop *a, struct testloop *b)
{
    for (unsigned i = 0; i < 20; i++) {
        testloop_run_ready(a);
        testloop_run_ready(b);
    }
}

Test(iscsi_session, a_connection_moves_to_its_targets_loop_and_its_end_comes_back)
{
    struct ini_rig *rig = plain_rig();
    struct testloop *home = testloop_create(100, 6);
    struct scsi_target *scsi = scsi_target_create(&home->loop, "iqn.2026-11.org.example:away");
    cr_assert_eq(iscsi_server_add_target(rig->server, scsi, &home->loop, "iqn.2026-11.org.example:away", NULL), 0);
    for (unsigned round = 0; round < 3; round++) {
        struct ini *ini = ini_connect(rig, 1);
        static const char names[] = "InitiatorName=" INI_NAME "\0TargetName=iqn.2026-11.org.example:away";
        uint8_t bhs[PDU_BHS_BYTES] = {0x43, 0x87};
        memcpy(bhs + 8, ini->isid, 6);
        put_be32(bhs + 24, ini->cmd_sn);
        ini->s->recv_max = round == 1 ? 1 : 0;
        ini_send(ini, bhs, names, sizeof names);
        run_both(rig->t, home);
        ini_expect(ini, PDU_LOGIN_RESPONSE, bhs, NULL, 0);
        cr_expect(bhs[1] == 0x87 && bhs[36] == 0);
        cr_expect_eq(ini->s->moves, 1);
        cr_expect(ini->s->stream.loop == &home->loop);
        struct drain drain = {.task.run = on_drained};
        if (round == 2) {
            iscsi_server_drain(rig->server, second, &drain.task);
            run_both(rig->t, home);
            ini_expect(ini, PDU_ASYNC, NULL, NULL, 0);
        }
        teststream_end(ini->s);
        run_both(rig->t, home);
        cr_expect_eq(iscsi_server_connections(rig->server), 0);
        cr_expect_eq(drain.over, round == 2);
        ini_drop(ini);
    }
    iscsi_server_destroy(rig->server);
    scsi_target_destroy(scsi);
    testloop_destroy(home);
    rig->server = iscsi_server_create(&rig->t->loop, &rig->limits);
    ini_rig_drop(rig);
}
