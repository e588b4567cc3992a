/* What is counted of a session, LUN by LUN; and how one session is asked to end. */
#include <stdlib.h>

#include "tests/unit/target/initiator.h"

static const uint64_t second = 1000000000;
enum { PLACES = 3, NOWHERE = 0, FIRST = 1, SECOND = 2 }; /* of a session of the rig's target: elsewhere, LUN 0, LUN 1 */

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

static void look(struct ini_rig *rig, struct iscsi_lun_info luns[PLACES])
{
    cr_assert_eq(iscsi_server_lun_info(rig->server, luns, PLACES), PLACES);
    cr_assert_eq(luns[NOWHERE].lun, ISCSI_LUN_NONE);
    cr_assert_eq(luns[FIRST].lun, 0);
    cr_assert_eq(luns[SECOND].lun, 1);
}

static void read_send(struct ini *ini, uint8_t bhs[PDU_BHS_BYTES], unsigned lun, uint32_t lba)
{
    uint8_t cdb[16];
    ini_cdb_rw(cdb, false, lba, 8);
    ini_command(ini, bhs, INI_F | INI_R, 4096, cdb);
    bhs[9] = (uint8_t)lun;
    ini_send(ini, bhs, NULL, 0);
}

Test(iscsi_stats, commands_and_bytes_are_counted_by_lun)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "ImmediateData=Yes");
    struct iscsi_lun_info luns[PLACES];
    uint8_t bhs[PDU_BHS_BYTES], cdb[16], data[1024] = {1};
    ini_ready(ini);
    look(rig, luns);
    uint64_t others = luns[FIRST].io.commands[IO_OTHER], failed = luns[SECOND].io.troubles[IO_FAILED];
    cr_expect_geq(others, 1, "TEST UNIT READY");
    for (unsigned i = 0; i < 3; i++) {
        read_send(ini, bhs, 0, i);
        cr_expect_eq(ini_answer(ini).status, 0);
    }
    ini_cdb_rw(cdb, true, 0, 2);
    ini_command(ini, bhs, INI_F | INI_W, 1024, cdb);
    ini_send(ini, bhs, data, 1024);
    cr_expect_eq(ini_answer(ini).status, 0);
    read_send(ini, bhs, 1, INI_DISK_BYTES / 512);
    cr_expect_eq(ini_answer(ini).status, 2, "beyond the end");
    read_send(ini, bhs, 7, 0);
    cr_expect_eq(ini_answer(ini).status, 2, "there is no such LUN");
    look(rig, luns);
    cr_expect_eq(luns[FIRST].io.commands[IO_READ], 3);
    cr_expect_eq(luns[FIRST].io.commands[IO_WRITE], 1);
    cr_expect_eq(luns[FIRST].io.commands[IO_OTHER], others);
    cr_expect_eq(luns[FIRST].io.read_bytes, 3 * 4096);
    cr_expect_eq(luns[FIRST].io.written_bytes, 1024);
    cr_expect_eq(luns[SECOND].io.commands[IO_READ], 1);
    cr_expect_eq(luns[SECOND].io.read_bytes, 0);
    cr_expect_eq(luns[SECOND].io.troubles[IO_FAILED] - failed, 1);
    cr_expect_eq(luns[NOWHERE].io.commands[IO_READ], 1);
    cr_expect_eq(luns[NOWHERE].io.troubles[IO_FAILED], 1);
    struct iscsi_session_info info;
    cr_assert_eq(iscsi_server_info(rig->server, &info, 1), 1);
    cr_expect_eq(info.id, luns[FIRST].session);
    cr_expect_eq(info.io.commands[IO_READ], 5, "of all LUNs");
    cr_expect_eq(info.io.written_bytes, 1024);
    cr_expect_eq(info.since_s, loop_wall_clock_s(&rig->t->loop));
    drop(ini);
}

Test(iscsi_stats, latency_is_the_time_from_the_request_to_its_answer)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "");
    struct iscsi_lun_info luns[PLACES];
    uint8_t bhs[PDU_BHS_BYTES];
    ini_ready(ini);
    look(rig, luns);
    uint64_t before = luns[FIRST].io.latency_sum_ns;
    rig->disks[0]->latency_ns = 3000000;
    read_send(ini, bhs, 0, 0);
    ini_pass_time(rig, 3000000);
    cr_expect_eq(ini_answer(ini).status, 0);
    look(rig, luns);
    cr_expect_eq(luns[FIRST].io.latency_sum_ns - before, 3000000);
    cr_expect_eq(luns[FIRST].io.latency[12], 1, "2048 to 4096 us");
    rig->disks[0]->latency_ns = 0;
    drop(ini);
}

Test(iscsi_stats, aborts_are_counted_once_whatever_the_command_was_doing)
{
    enum { ABORT_TASK = 1 };
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "InitialR2T=Yes|ImmediateData=No");
    struct iscsi_lun_info luns[PLACES];
    uint8_t bhs[PDU_BHS_BYTES], cdb[16];
    ini_ready(ini);
    ini_hang(rig, true);
    read_send(ini, bhs, 0, 0); /* the disk has it */
    ini_expect_silence(ini);
    ini_task(ini, ABORT_TASK, get_be32(bhs + 16), get_be32(bhs + 24), 0, 0);
    ini_cdb_rw(cdb, true, 0, 8); /* waits for data */
    ini_command(ini, bhs, INI_F | INI_W, 4096, cdb);
    ini_send(ini, bhs, NULL, 0);
    ini_expect(ini, PDU_R2T, NULL, NULL, 0);
    ini_task(ini, ABORT_TASK, get_be32(bhs + 16), get_be32(bhs + 24), 0, 0);
    ini_task(ini, ABORT_TASK, get_be32(bhs + 16), get_be32(bhs + 24), 0, 1);
    ini_hang(rig, false);
    ini_expect_silence(ini);
    look(rig, luns);
    cr_expect_eq(luns[FIRST].io.troubles[IO_ABORTED], 2);
    cr_expect_eq(luns[FIRST].io.commands[IO_READ] + luns[FIRST].io.commands[IO_WRITE], 0, "they were not answered");
    drop(ini);
}

Test(iscsi_stats, wrong_digests_are_counted_at_the_command_they_hit)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "DataDigest=CRC32C|ImmediateData=Yes");
    struct iscsi_lun_info luns[PLACES];
    uint8_t bhs[PDU_BHS_BYTES], cdb[16], data[512] = {1}, wrong[4] = {1, 2, 3, 4};
    ini_ready(ini);
    look(rig, luns);
    uint64_t failed = luns[FIRST].io.troubles[IO_FAILED]; /* unit attentions */
    ini_cdb_rw(cdb, true, 0, 1);
    ini_command(ini, bhs, INI_F | INI_W, 512, cdb);
    put_be24(bhs + 5, 512);
    teststream_feed(ini->s, bhs, sizeof bhs);
    teststream_feed(ini->s, data, sizeof data);
    teststream_feed(ini->s, wrong, sizeof wrong);
    ini_expect(ini, PDU_REJECT, NULL, NULL, 0);
    cr_expect_eq(ini_answer(ini).status, 2);
    ini_request(ini, bhs, PDU_NOP_OUT, 0x80);
    put_be24(bhs + 5, 512);
    teststream_feed(ini->s, bhs, sizeof bhs);
    teststream_feed(ini->s, data, sizeof data);
    teststream_feed(ini->s, wrong, sizeof wrong);
    ini_expect(ini, PDU_REJECT, NULL, NULL, 0);
    look(rig, luns);
    cr_expect_eq(luns[FIRST].io.troubles[IO_BAD_DIGEST], 1);
    cr_expect_eq(luns[FIRST].io.troubles[IO_FAILED] - failed, 1);
    cr_expect_eq(luns[NOWHERE].io.troubles[IO_BAD_DIGEST], 1, "a ping is of no LUN");
    drop(ini);
}

Test(iscsi_stats, what_does_not_fit_is_counted_and_discovery_has_no_luns)
{
    struct ini_rig *rig = plain_rig();
    struct ini *first = ini_session(rig, 1, ""), *second_one = ini_session(rig, 2, ""), *finder = ini_connect(rig, 3);
    struct iscsi_lun_info luns[2 * PLACES];
    cr_assert_eq(ini_login_keys(finder, "InitiatorName=" INI_NAME "|SessionType=Discovery"), 0);
    memset(luns, 0xff, sizeof luns);
    cr_expect_eq(iscsi_server_lun_info(rig->server, luns, PLACES + 1), 2 * PLACES);
    cr_expect_eq(luns[PLACES].lun, ISCSI_LUN_NONE);
    cr_expect_eq(luns[PLACES + 1].session, UINT32_MAX, "there was no room for it");
    cr_expect_eq(iscsi_server_lun_info(rig->server, NULL, 0), 2 * PLACES);
    cr_expect_lt(luns[0].session, luns[PLACES].session);
    ini_drop(finder);
    ini_drop(second_one);
    drop(first);
}

Test(iscsi_stats, a_session_is_asked_to_log_out_and_cut_if_it_does_not)
{
    struct ini_rig *rig = plain_rig();
    struct ini *polite = ini_session(rig, 1, ""), *deaf = ini_session(rig, 2, ""), *other = ini_session(rig, 3, "");
    struct iscsi_session_info info[3];
    uint8_t async[PDU_BHS_BYTES], bhs[PDU_BHS_BYTES];
    cr_assert_eq(iscsi_server_info(rig->server, info, 3), 3);
    cr_expect_not(iscsi_server_drop(rig->server, info[2].id + 1, second), "there is none of this id");
    cr_expect(iscsi_server_drop(rig->server, info[0].id, 10 * second));
    cr_expect(iscsi_server_drop(rig->server, info[1].id, 10 * second));
    ini_expect(polite, PDU_ASYNC, async, NULL, 0);
    cr_expect(async[36] == 1 && get_be16(async + 42) == 10, "log out within 10 s");
    ini_request(polite, bhs, PDU_LOGOUT, 0x80);
    ini_send(polite, bhs, NULL, 0);
    ini_expect(polite, PDU_LOGOUT_RESPONSE, NULL, NULL, 0);
    ini_expect_closed(polite);
    cr_expect_not(iscsi_server_drop(rig->server, info[0].id, second), "it is gone");
    ini_expect(deaf, PDU_ASYNC, async, NULL, 0);
    ini_pass_time(rig, 9 * second);
    cr_expect_not(deaf->s->closed);
    ini_pass_time(rig, 2 * second);
    ini_expect(deaf, PDU_ASYNC, async, NULL, 0);
    cr_expect_eq(async[36], 2, "the connection will be dropped");
    ini_expect_closed(deaf);
    ini_expect_silence(other);
    cr_expect_eq(ini_do(other, 0, 0, INI_CDB(0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16)).status, 0);
    struct ini *again = ini_session(rig, 1, ""); /* nothing keeps it from coming back */
    ini_drop(again);
    ini_drop(polite);
    ini_drop(deaf);
    drop(other);
}
