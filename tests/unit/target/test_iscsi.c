/* The iSCSI target, a whole connection at a time: SCSI commands and their data. */
#include "core/log.h"
#include "tests/unit/target/initiator.h"

#include <stdlib.h>

static struct ini_rig *plain_rig(void)
{
    return ini_rig_make(6000, (struct iscsi_limits){0});
}

static void drop(struct ini *ini)
{
    struct ini_rig *rig = ini->rig;
    ini_drop(ini);
    ini_rig_drop(rig);
}

/* What a well-behaved initiator does with a write: immediate data, unsolicited bursts, R2Ts, in PDUs of `segment`. */
struct write_plan {
    bool immediate, initial_r2t;
    uint32_t segment, first_burst, max_burst;
};

static void send_burst(struct ini *ini, const uint8_t *command, uint32_t ttt, const uint8_t *data, uint32_t offset,
                       uint32_t len, uint32_t segment)
{
    for (uint32_t done = 0, sn = 0, part; done < len; done += part, sn++) {
        part = MIN(segment, len - done);
        ini_data_out(ini, command, ttt, sn, offset + done, done + part == len, data + offset + done, part);
    }
}

static struct ini_answer write_with(struct ini *ini, const struct write_plan *plan, uint32_t lba, const uint8_t *data,
                                    uint32_t len)
{
    uint8_t bhs[PDU_BHS_BYTES], cdb[16], r2t[PDU_BHS_BYTES];
    uint32_t first = MIN(plan->first_burst, len);
    uint32_t now = plan->immediate ? MIN(first, plan->segment) : 0;
    uint32_t at = plan->initial_r2t ? now : first, r2t_sn = 0;
    ini_cdb_rw(cdb, true, lba, len / 512);
    ini_command(ini, bhs, (uint8_t)(INI_W | (at == now ? INI_F : 0)), len, cdb);
    ini_send(ini, bhs, data, now);
    send_burst(ini, bhs, PDU_TAG_NONE, data, now, at - now, plan->segment);
    while (at < len) {
        ini_expect(ini, PDU_R2T, r2t, NULL, 0);
        uint32_t want = get_be32(r2t + 44);
        cr_assert_eq(get_be32(r2t + 16), get_be32(bhs + 16));
        cr_assert_eq(get_be32(r2t + 36), r2t_sn++, "R2TSN");
        cr_assert_eq(get_be32(r2t + 40), at, "R2T offset");
        cr_assert(want > 0 && want <= plan->max_burst && want <= len - at);
        send_burst(ini, bhs, get_be32(r2t + 20), data, at, want, plan->segment);
        at += want;
    }
    return ini_answer(ini);
}

static void check_sizes(struct ini *ini, const struct write_plan *plan, uint32_t recv_segment)
{
    static const uint32_t lens[] = {512, 1024, 3584, 4096, 8192, 65536, 66048, 262144 + 512};
    static uint8_t data[262144 + 512];
    for (unsigned i = 0; i < ARRAY_LENGTH(lens); i++) {
        uint32_t len = lens[i], lba = 5 + i * 3;
        uint8_t cdb[16];
        test_fill(data, len, len + lba);
        struct ini_answer answer = write_with(ini, plan, lba, data, len);
        cr_assert(answer.status == 0 && answer.residual_flags == 0, "write of %u: %u %x/%02x/%02x", len, answer.status,
                  answer.key, answer.asc, answer.ascq);
        cr_assert_arr_eq(ini->rig->disks[0]->bytes + lba * 512, data, len, "write of %u", len);
        ini_cdb_rw(cdb, false, lba, len / 512);
        answer = ini_do(ini, INI_R, len, cdb);
        cr_assert(answer.status == 0 && answer.len == len && answer.collapsed && answer.residual_flags == 0);
        cr_assert_arr_eq(answer.data, data, len, "read of %u", len);
        uint32_t least = (len + recv_segment - 1) / recv_segment;
        cr_assert_geq(answer.data_pdus, least);
    }
}

Test(iscsi, every_size_with_every_way_of_sending_data)
{
    static const uint32_t segments[] = {512, 8192, 262144}, bursts[] = {512, 4096, 65536}, maxima[] = {4096, 262144};
    for (unsigned i = 0; i < 3 * 3 * 2 * 4; i++) {
        struct ini_rig *rig = plain_rig();
        uint32_t first = bursts[i / 3 % 3], max = maxima[i / 9 % 2];
        struct write_plan plan = {.immediate = i / 18 % 2,
                                  .initial_r2t = i / 36 % 2,
                                  .segment = segments[i % 3],
                                  .first_burst = MIN(first, max),
                                  .max_burst = max};
        char keys[300];
        text_format(keys, sizeof keys,
                    "ImmediateData=%s|InitialR2T=%s|MaxBurstLength=%u|FirstBurstLength=%u|MaxOutstandingR2T=%u%s",
                    plan.immediate ? "Yes" : "No", plan.initial_r2t ? "Yes" : "No", max, plan.first_burst, 1 + i % 3,
                    i % 5 == 0   ? "|HeaderDigest=CRC32C|DataDigest=CRC32C"
                    : i % 5 == 1 ? "|DataDigest=CRC32C"
                                 : "");
        struct ini *ini = ini_session(rig, 1, keys);
        ini->s->recv_max = i % 7 == 0 ? 5000 : 0;
        ini->s->send_max = i % 7 == 1 ? 5000 : 0;
        check_sizes(ini, &plan, 262144);
        drop(ini);
    }
}

Test(iscsi, a_socket_that_gives_and_takes_single_bytes)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "InitialR2T=No|HeaderDigest=CRC32C|DataDigest=CRC32C|FirstBurstLength=4096");
    struct write_plan plan = {true, false, 1500, 4096, 262144};
    uint8_t data[20480], cdb[16];
    test_fill(data, sizeof data, 4);
    ini->s->recv_max = ini->s->send_max = 1;
    cr_expect_eq(write_with(ini, &plan, 7, data, sizeof data).status, 0);
    ini_cdb_rw(cdb, false, 7, 40);
    struct ini_answer answer = ini_do(ini, INI_R, sizeof data, cdb);
    cr_expect_eq(answer.len, sizeof data);
    cr_expect_arr_eq(answer.data, data, sizeof data);
    drop(ini);
}

Test(iscsi, data_in_obeys_segment_and_burst)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_connect(rig, 1);
    cr_assert_eq(ini_login_keys(ini, "InitiatorName=" INI_NAME "|TargetName=" INI_TARGET
                                     "|MaxRecvDataSegmentLength=4096|MaxBurstLength=10000"),
                 0);
    ini_ready(ini);
    uint8_t bhs[PDU_BHS_BYTES], cdb[16];
    ini_cdb_rw(cdb, false, 0, 64);
    ini_command(ini, bhs, INI_F | INI_R, 32768, cdb);
    ini_send(ini, bhs, NULL, 0);
    for (uint32_t at = 0, sn = 0; at < 32768; sn++) {
        uint8_t in[PDU_BHS_BYTES];
        uint32_t len = ini_expect(ini, PDU_DATA_IN, in, NULL, 0);
        uint32_t burst_left = 10000 - at % 10000, left = 32768 - at;
        cr_assert_eq(len, MIN(MIN(4096u, burst_left), left));
        at += len;
        cr_assert_eq((in[1] & PDU_FINAL) != 0, len == burst_left || at == 32768, "F at %u", at);
        cr_assert_eq((in[1] & PDU_STATUS) != 0, at == 32768, "S at %u", at);
        cr_assert_eq(get_be32(in + 36), sn);
    }
    drop(ini);
}

Test(iscsi, residuals_both_ways)
{
    static const struct {
        const char *what;
        uint8_t flags;
        uint32_t edtl;
        uint8_t cdb[10];
        uint8_t status, residual_flags;
        uint32_t residual, len;
    } cases[] = {
        {"read, exact", INI_R, 512, {0x28, 0, 0, 0, 0, 0, 0, 0, 1}, 0, 0, 0, 512},
        {"read, initiator expects more", INI_R, 1024, {0x28, 0, 0, 0, 0, 0, 0, 0, 1}, 0, PDU_UNDERFLOW, 512, 512},
        {"read, initiator expects less", INI_R, 100, {0x28, 0, 0, 0, 0, 0, 0, 0, 1}, 0, PDU_OVERFLOW, 412, 100},
        {"read, nothing expected", 0, 0, {0x28, 0, 0, 0, 0, 0, 0, 0, 1}, 0, PDU_OVERFLOW, 512, 0},
        {"read of nothing", INI_R, 512, {0x28}, 0, PDU_UNDERFLOW, 512, 0},
        {"allocation length below EDTL", INI_R, 255, {0x12, 0, 0, 0, 36}, 0, PDU_UNDERFLOW, 219, 36},
        {"beyond the end", INI_R, 512, {0x28, 0, 0x7f, 0, 0, 0, 0, 0, 1}, 2, PDU_UNDERFLOW, 512, 0},
        {"no data", 0, 0, {0x00}, 0, 0, 0, 0},
        {"write, nothing offered", 0, 0, {0x2a, 0, 0, 0, 0, 0, 0, 0, 4}, 0, PDU_OVERFLOW, 2048, 0},
        {"write, nothing offered, W=1", INI_W, 0, {0x2a, 0, 0, 0, 0, 0, 0, 0, 4}, 0, PDU_OVERFLOW, 2048, 0},
    };
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "");
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint8_t cdb[16] = {0};
        memcpy(cdb, cases[i].cdb, 10);
        cdb[8] = cases[i].cdb[8];
        struct ini_answer answer = ini_do(ini, cases[i].flags, cases[i].edtl, cdb);
        cr_expect_eq(answer.status, cases[i].status, "%s: status %u", cases[i].what, answer.status);
        cr_expect_eq(answer.residual_flags, cases[i].residual_flags, "%s", cases[i].what);
        cr_expect_eq(answer.residual, cases[i].residual, "%s: residual %u", cases[i].what, answer.residual);
        cr_expect_eq(answer.len, cases[i].len, "%s: %u bytes", cases[i].what, answer.len);
    }
    cr_expect_eq(rig->disks[0]->writes, 0);
    drop(ini);
}

Test(iscsi, write_residuals)
{
    static const struct {
        uint32_t edtl, blocks, written;
        uint8_t flags;
        uint32_t residual;
    } cases[] = {{1024, 2, 1024, 0, 0},
                 {2048, 2, 1024, PDU_UNDERFLOW, 1024},
                 {512, 2, 512, PDU_OVERFLOW, 512},
                 {700, 2, 512, PDU_OVERFLOW, 324}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct ini_rig *rig = plain_rig();
        struct ini *ini = ini_session(rig, 1, "");
        uint8_t bhs[PDU_BHS_BYTES], cdb[16], data[2048], zero[512] = {0};
        memset(data, 0x5a, sizeof data);
        ini_cdb_rw(cdb, true, 1, cases[i].blocks);
        ini_command(ini, bhs, INI_F | INI_W, cases[i].edtl, cdb);
        ini_send(ini, bhs, data, cases[i].edtl);
        struct ini_answer answer = ini_answer(ini);
        cr_expect_eq(answer.status, 0, "case %u: status %u", i, answer.status);
        cr_expect_eq(answer.residual_flags, cases[i].flags, "case %u", i);
        cr_expect_eq(answer.residual, cases[i].residual, "case %u: %u", i, answer.residual);
        cr_expect_arr_eq(rig->disks[0]->bytes + 512, data, cases[i].written);
        cr_expect_arr_eq(rig->disks[0]->bytes + 512 + cases[i].written, zero, 512, "case %u: not beyond", i);
        drop(ini);
    }
}

/* --- unsolicited data and Data-Out that break a rule: nothing is written, the session goes on --- */

enum { BAD_SIZE = 16384 };

static const struct {
    const char *what, *keys;
    uint32_t immediate;
    bool final;
    bool reject; /* a Reject comes as well */
    struct {
        bool ttt_wrong, solicited;
        uint32_t sn, offset, len;
        bool final, set;
    } out[3];
    uint8_t asc, ascq;
} bad_writes[] = {
    {"immediate data that were not agreed", "ImmediateData=No", 512, true, false, {{0}}, 0x0c, 0x0c},
    {"immediate data beyond FirstBurstLength",
     "FirstBurstLength=4096|InitialR2T=No",
     8192,
     true,
     false,
     {{0}},
     0x0c,
     0x0d},
    {"unsolicited data with InitialR2T",
     "InitialR2T=Yes",
     0,
     false,
     false,
     {{.len = 512, .final = true, .set = true}},
     0x0c,
     0x0c},
    {"unsolicited data beyond FirstBurstLength",
     "FirstBurstLength=4096|InitialR2T=No",
     2048,
     false,
     true,
     {{.offset = 2048, .len = 4096, .final = true, .set = true}},
     0x0c,
     0x0c},
    {"a gap in DataSN",
     "InitialR2T=No",
     0,
     false,
     true,
     {{.sn = 1, .len = 512, .final = true, .set = true}},
     0x47,
     0x05},
    {"a wrong offset",
     "InitialR2T=No",
     0,
     false,
     true,
     {{.offset = 512, .len = 512, .final = true, .set = true}},
     0x0c,
     0x0c},
    {"an offset at the end of the world",
     "InitialR2T=No",
     0,
     false,
     true,
     {{.offset = 0xfffffe00u, .len = 1024, .final = true, .set = true}},
     0x0c,
     0x0c},
    {"longer than the R2T",
     "InitialR2T=Yes|MaxBurstLength=4096",
     0,
     true,
     true,
     {{.solicited = true, .len = 8192, .final = true, .set = true}},
     0x0c,
     0x0d},
    {"F before the end of the R2T",
     "InitialR2T=Yes",
     0,
     true,
     false,
     {{.solicited = true, .len = 512, .final = true, .set = true}},
     0x0c,
     0x0d},
};

Test(iscsi, data_that_break_a_rule_are_not_taken)
{
    static uint8_t data[BAD_SIZE];
    memset(data, 0x77, sizeof data);
    for (unsigned i = 0; i < ARRAY_LENGTH(bad_writes); i++) {
        struct ini_rig *rig = plain_rig();
        struct ini *ini = ini_session(rig, 1, bad_writes[i].keys);
        uint8_t bhs[PDU_BHS_BYTES], cdb[16], r2t[PDU_BHS_BYTES] = {0};
        ini_cdb_rw(cdb, true, 0, BAD_SIZE / 512);
        ini_command(ini, bhs, (uint8_t)(INI_W | (bad_writes[i].final ? INI_F : 0)), BAD_SIZE, cdb);
        ini_send(ini, bhs, data, bad_writes[i].immediate);
        for (unsigned j = 0; j < 3 && bad_writes[i].out[j].set; j++) {
            uint32_t ttt = PDU_TAG_NONE;
            if (bad_writes[i].out[j].solicited) {
                ini_expect(ini, PDU_R2T, r2t, NULL, 0);
                ttt = get_be32(r2t + 20);
            }
            ini_data_out(ini, bhs, ttt, bad_writes[i].out[j].sn, bad_writes[i].out[j].offset,
                         bad_writes[i].out[j].final, data, bad_writes[i].out[j].len);
        }
        if (bad_writes[i].reject)
            ini_expect(ini, PDU_REJECT, r2t, NULL, 0);
        struct ini_answer answer = ini_answer(ini);
        cr_expect(answer.status == 2 && answer.key == 0x0b, "%s", bad_writes[i].what);
        cr_expect(answer.asc == bad_writes[i].asc && answer.ascq == bad_writes[i].ascq, "%s: %02x/%02x",
                  bad_writes[i].what, answer.asc, answer.ascq);
        cr_expect_eq(rig->disks[0]->writes, 0, "%s", bad_writes[i].what);
        cr_expect_eq(ini_do(ini, 0, 0, INI_CDB(0)).status, 0, "%s: the session goes on", bad_writes[i].what);
        drop(ini);
    }
}

Test(iscsi, a_wrong_transfer_tag_is_rejected_and_the_write_goes_on)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "InitialR2T=Yes");
    uint8_t bhs[PDU_BHS_BYTES], cdb[16], r2t[PDU_BHS_BYTES], reject[PDU_BHS_BYTES], rejected[PDU_BHS_BYTES], data[4096];
    test_fill(data, sizeof data, 3);
    ini_cdb_rw(cdb, true, 0, 8);
    ini_command(ini, bhs, INI_F | INI_W, 4096, cdb);
    ini_send(ini, bhs, NULL, 0);
    ini_expect(ini, PDU_R2T, r2t, NULL, 0);
    ini_data_out(ini, bhs, get_be32(r2t + 20) + 1, 0, 0, true, data, 4096);
    cr_expect_eq(ini_expect(ini, PDU_REJECT, reject, rejected, sizeof rejected), PDU_BHS_BYTES);
    cr_expect(reject[2] == PDU_REJECT_FIELD && rejected[0] == PDU_DATA_OUT);
    ini_expect_silence(ini);
    ini_data_out(ini, bhs, get_be32(r2t + 20), 0, 0, false, data, 1000);
    ini_data_out(ini, bhs, get_be32(r2t + 20), 1, 1000, false, NULL, 0); /* zero length: 11.7.7 */
    ini_data_out(ini, bhs, get_be32(r2t + 20), 2, 1000, false, data + 1000, 3096);
    ini_expect_silence(ini);
    ini_data_out(ini, bhs, get_be32(r2t + 20), 3, 4096, true, NULL, 0);
    cr_expect_eq(ini_answer(ini).status, 0);
    cr_expect_arr_eq(rig->disks[0]->bytes, data, 4096);
    drop(ini);
}

Test(iscsi, odd_splits_of_data_out)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "InitialR2T=Yes|ImmediateData=No");
    uint8_t bhs[PDU_BHS_BYTES], cdb[16], r2t[PDU_BHS_BYTES], data[9216];
    test_fill(data, sizeof data, 6);
    ini_cdb_rw(cdb, true, 9, 18);
    ini_command(ini, bhs, INI_F | INI_W, 9216, cdb);
    ini_send(ini, bhs, NULL, 0);
    ini_expect(ini, PDU_R2T, r2t, NULL, 0);
    ini_data_out(ini, bhs, get_be32(r2t + 20), 0, 0, false, data, 2848);
    ini_data_out(ini, bhs, get_be32(r2t + 20), 1, 2848, true, data + 2848, 6368);
    cr_expect_eq(ini_answer(ini).status, 0);
    cr_expect_arr_eq(rig->disks[0]->bytes + 9 * 512, data, 9216);
    cr_expect_eq(rig->disks[0]->writes, 1);
    drop(ini);
}

Test(iscsi, a_failed_command_answers_after_its_last_data)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "InitialR2T=No");
    uint8_t bhs[PDU_BHS_BYTES], cdb[16], data[4096] = {0};
    ini_cdb_rw(cdb, true, 0x7f000000, 16); /* beyond the end */
    ini_command(ini, bhs, INI_W, 8192, cdb);
    ini_send(ini, bhs, data, 4096);
    ini_expect_silence(ini);
    ini_data_out(ini, bhs, PDU_TAG_NONE, 0, 4096, true, data, 4096);
    struct ini_answer answer = ini_answer(ini);
    cr_expect(answer.status == 2 && answer.key == 5 && answer.asc == 0x21);
    drop(ini);
}

Test(iscsi, a_wrong_data_digest_fails_the_command_only)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "DataDigest=CRC32C");
    uint8_t bhs[PDU_BHS_BYTES], cdb[16], data[512] = {1}, wrong[4] = {1, 2, 3, 4}, reject[PDU_BHS_BYTES];
    ini_cdb_rw(cdb, true, 0, 1);
    ini_command(ini, bhs, INI_F | INI_W, 512, cdb);
    put_be24(bhs + 5, 512);
    teststream_feed(ini->s, bhs, sizeof bhs);
    teststream_feed(ini->s, data, sizeof data);
    teststream_feed(ini->s, wrong, sizeof wrong);
    ini_expect(ini, PDU_REJECT, reject, NULL, 0);
    cr_expect_eq(reject[2], PDU_REJECT_DATA_DIGEST);
    struct ini_answer answer = ini_answer(ini);
    cr_expect(answer.status == 2 && answer.key == 0x0b && answer.asc == 0x47 && answer.ascq == 5);
    cr_expect_eq(rig->disks[0]->writes, 0);
    cr_expect_eq(ini_do(ini, 0, 0, INI_CDB(0)).status, 0);
    drop(ini);
}

Test(iscsi, a_wrong_header_digest_ends_the_connection)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "HeaderDigest=CRC32C");
    uint8_t bhs[PDU_BHS_BYTES + 4] = {0};
    ini_command(ini, bhs, INI_F, 0, INI_CDB(0));
    teststream_feed(ini->s, bhs, sizeof bhs);
    ini_expect_closed(ini);
    drop(ini);
}

Test(iscsi, digests_over_odd_lengths)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "DataDigest=CRC32C|HeaderDigest=CRC32C");
    for (uint8_t len = 1; len < 64; len++)
        cr_expect_eq(ini_do(ini, INI_R, len, INI_CDB(0x12, 0, 0, 0, len)).len, len);
    drop(ini);
}

Test(iscsi, extended_cdbs_and_bidirectional_commands_are_refused)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "");
    uint8_t bhs[PDU_BHS_BYTES], ahs[8] = {0, 5, 1, 0}, reject[PDU_BHS_BYTES];
    ini_command(ini, bhs, INI_F, 0, INI_CDB(0x7f));
    bhs[4] = 2;
    teststream_feed(ini->s, bhs, sizeof bhs);
    teststream_feed(ini->s, ahs, sizeof ahs);
    struct ini_answer answer = ini_answer(ini);
    cr_expect(answer.status == 2 && answer.key == 5 && answer.asc == 0x20);
    ini_command(ini, bhs, INI_F | INI_R | INI_W, 512, INI_CDB(0x53));
    ini_send(ini, bhs, NULL, 0);
    ini_expect(ini, PDU_REJECT, reject, NULL, 0);
    cr_expect_eq(reject[2], PDU_REJECT_UNSUPPORTED);
    drop(ini);
}

Test(iscsi, a_pdu_that_is_wrong_in_two_ways_is_rejected_once)
{
    static const struct {
        const char *what;
        bool no_burst;
        uint32_t data_sn, offset;
        uint8_t reason;
    } cases[] = {{"DataSN", false, 1, 0, PDU_REJECT_PROTOCOL},
                 {"offset", false, 0, 512, PDU_REJECT_FIELD},
                 {"transfer tag", true, 0, 0, PDU_REJECT_FIELD}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct ini_rig *rig = plain_rig();
        struct ini *ini = ini_session(rig, 1, "DataDigest=CRC32C");
        uint8_t bhs[PDU_BHS_BYTES], cdb[16], r2t[PDU_BHS_BYTES], data[516] = {1}, reject[PDU_BHS_BYTES];
        ini_cdb_rw(cdb, true, 0, 2);
        ini_command(ini, bhs, INI_F | INI_W, 1024, cdb);
        ini_send(ini, bhs, NULL, 0);
        ini_expect(ini, PDU_R2T, r2t, NULL, 0);
        uint32_t ttt = get_be32(r2t + 20);
        ini->data_digest = false; /* the last four bytes are the wrong digest */
        ini_data_out(ini, bhs, cases[i].no_burst ? ttt + 1 : ttt, cases[i].data_sn, cases[i].offset, true, data, 512);
        teststream_feed(ini->s, data, 4);
        ini->data_digest = true;
        ini_expect(ini, PDU_REJECT, reject, NULL, 0);
        cr_expect_eq(reject[2], cases[i].reason, "%s: %02x", cases[i].what, reject[2]);
        if (cases[i].no_burst)
            ini_expect_silence(ini);
        else
            cr_expect_eq(ini_answer(ini).status, 2, "%s: the command ends, with no other Reject", cases[i].what);
        cr_expect_eq(ini_do(ini, 0, 0, INI_CDB(0)).status, 0, "%s: the session goes on", cases[i].what);
        drop(ini);
    }
}

/* --- counts --- */

Test(iscsi, thirty_two_pipelined_reads_are_one_receive_and_one_send)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "");
    unsigned sends = ini->s->sends, recvs = ini->s->recvs;
    for (unsigned i = 0; i < 32; i++) {
        uint8_t bhs[PDU_BHS_BYTES], cdb[16];
        ini_cdb_rw(cdb, false, i * 8, 8);
        ini_command(ini, bhs, INI_F | INI_R, 4096, cdb);
        ini_send(ini, bhs, NULL, 0);
    }
    ini_run(ini);
    cr_expect_eq(ini->s->recvs - recvs, 1);
    cr_expect_eq(ini->s->sends - sends, 1);
    for (unsigned i = 0; i < 32; i++)
        cr_expect_eq(ini_answer(ini).len, 4096);
    drop(ini);
}

Test(iscsi, a_large_segment_goes_straight_into_pages)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "InitialR2T=No|FirstBurstLength=262144");
    static uint8_t data[262144];
    uint8_t bhs[PDU_BHS_BYTES], cdb[16];
    test_fill(data, sizeof data, 1);
    ini_cdb_rw(cdb, true, 0, 512);
    ini_command(ini, bhs, INI_F | INI_W, sizeof data, cdb);
    unsigned recvs = ini->s->recvs;
    ini_send(ini, bhs, data, sizeof data);
    cr_expect_eq(ini_answer(ini).status, 0);
    cr_expect_leq(ini->s->recvs - recvs, 2, "the buffer once, the pages once");
    cr_expect_arr_eq(rig->disks[0]->bytes, data, sizeof data);
    drop(ini);
}

/* --- pages run out --- */

Test(iscsi, writes_wait_for_pages_and_all_get_through)
{
    struct ini_rig *rig = ini_rig_make(32, (struct iscsi_limits){0});
    struct ini *ini = ini_session(rig, 1, "InitialR2T=No|FirstBurstLength=65536");
    static uint8_t data[65536];
    test_fill(data, sizeof data, 8);
    ini_hang(rig, true);
    for (uint32_t i = 0; i < 16; i++) { /* 16 pages each, of 32 */
        uint8_t bhs[PDU_BHS_BYTES], cdb[16];
        ini_cdb_rw(cdb, true, i * 128, 128);
        ini_command(ini, bhs, INI_F | INI_W, sizeof data, cdb);
        ini_send(ini, bhs, data, sizeof data);
    }
    ini_expect_silence(ini);
    cr_expect_eq(rig->disks[0]->writes, 2);
    for (unsigned i = 0; i < 8; i++)
        ini_pass_time(rig, 1000 * 1000000000ull);
    for (uint32_t i = 0; i < 16; i++) {
        cr_expect_eq(ini_answer(ini).status, 0);
        cr_expect_arr_eq(rig->disks[0]->bytes + i * 65536, data, sizeof data);
    }
    drop(ini);
}

Test(iscsi, reads_wait_for_pages_behind_writes_that_wait_for_data)
{
    struct ini_rig *rig = ini_rig_make(24, (struct iscsi_limits){0});
    struct ini *ini = ini_session(rig, 1, "InitialR2T=Yes|ImmediateData=No");
    static uint8_t data[65536];
    uint8_t write[3][PDU_BHS_BYTES], read[PDU_BHS_BYTES], cdb[16], r2t[PDU_BHS_BYTES];
    for (unsigned i = 0; i < 3; i++) {
        ini_cdb_rw(cdb, true, i * 128, 128);
        ini_command(ini, write[i], INI_F | INI_W, sizeof data, cdb);
        ini_send(ini, write[i], NULL, 0);
    }
    ini_cdb_rw(cdb, false, 0, 128);
    ini_command(ini, read, INI_F | INI_R, sizeof data, cdb);
    ini_send(ini, read, NULL, 0);
    for (unsigned i = 0; i < 3; i++) { /* one has pages at a time, in order */
        memset(data, (int)i + 1, sizeof data);
        ini_expect(ini, PDU_R2T, r2t, NULL, 0);
        cr_assert_eq(get_be32(r2t + 16), get_be32(write[i] + 16));
        ini_expect_silence(ini);
        ini_data_out(ini, write[i], get_be32(r2t + 20), 0, 0, true, data, sizeof data);
        struct ini_answer answer = ini_answer(ini);
        cr_expect(answer.status == 0 && answer.itt == get_be32(write[i] + 16));
    }
    cr_expect_eq(ini_answer(ini).len, sizeof data);
    drop(ini);
}

Test(iscsi, immediate_data_that_cannot_be_stored_do_not_block_data_others_wait_for)
{
    struct ini_rig *rig = ini_rig_make(24, (struct iscsi_limits){0});
    struct ini *ini = ini_session(rig, 1, "InitialR2T=Yes|ImmediateData=Yes");
    static uint8_t data[65536];
    uint8_t first[PDU_BHS_BYTES], second[PDU_BHS_BYTES], cdb[16], r2t[PDU_BHS_BYTES];
    ini_cdb_rw(cdb, true, 0, 128);
    ini_command(ini, first, INI_F | INI_W, sizeof data, cdb);
    ini_send(ini, first, NULL, 0);
    ini_expect(ini, PDU_R2T, r2t, NULL, 0);
    ini_command(ini, second, INI_F | INI_W, sizeof data, cdb);
    ini_send(ini, second, data, 4096);
    ini_data_out(ini, first, get_be32(r2t + 20), 0, 0, true, data, sizeof data);
    struct ini_answer one = ini_answer(ini), two = ini_answer(ini);
    cr_expect(one.itt == get_be32(second + 16) && one.status == SCSI_TASK_SET_FULL);
    cr_expect(two.itt == get_be32(first + 16) && two.status == 0);
    drop(ini);
}

Test(iscsi, a_peer_that_does_not_read_holds_up_nobody_else)
{
    struct ini_rig *rig = plain_rig();
    struct ini *slow = ini_session(rig, 1, ""), *quick = ini_session(rig, 2, "");
    uint8_t bhs[PDU_BHS_BYTES], cdb[16];
    slow->s->send_window = 10000;
    for (unsigned i = 0; i < 8; i++) {
        ini_cdb_rw(cdb, false, 0, 128);
        ini_command(slow, bhs, INI_F | INI_R, 65536, cdb);
        ini_send(slow, bhs, NULL, 0);
    }
    ini_cdb_rw(cdb, false, 0, 8);
    cr_expect_eq(ini_do(quick, INI_R, 4096, cdb).len, 4096);
    cr_expect_eq(teststream_sent(slow->s), 10000);
    teststream_open_window(slow->s, SIZE_MAX);
    for (unsigned i = 0; i < 8; i++)
        cr_expect_eq(ini_answer(slow).len, 65536);
    ini_drop(quick);
    drop(slow);
}

Test(iscsi, a_command_that_might_wait_for_pages_for_ever_fails_at_once)
{
    struct ini_rig *rig = ini_rig_make(24, (struct iscsi_limits){0});
    struct ini *ini = ini_session(rig, 1, "");
    uint8_t cdb[16];
    ini_cdb_rw(cdb, false, 0, 8 * 30); /* 30 pages, of 40 of which the SCSI layer keeps 16 */
    struct ini_answer answer = ini_do(ini, INI_R, 30 * 4096, cdb);
    cr_expect(answer.status == 2 && answer.key == 0x0b && answer.asc == 0x55 && answer.ascq == 3);
    drop(ini);
}

Test(iscsi, a_write_that_fills_a_gap_is_not_kept_waiting_by_what_waits_behind_the_gap)
{
    struct ini_rig *rig = ini_rig_make(24, (struct iscsi_limits){0});
    struct ini *ini = ini_session(rig, 1, "");
    static uint8_t data[65536];
    uint8_t write[PDU_BHS_BYTES], read[PDU_BHS_BYTES], cdb[16];
    ini_cdb_rw(cdb, true, 0, 128);
    ini_command(ini, write, INI_F | INI_W, sizeof data, cdb);
    ini_cdb_rw(cdb, false, 0, 128);
    ini_command(ini, read, INI_F | INI_R, sizeof data, cdb);
    ini_send(ini, read, NULL, 0); /* has pages, and waits for its turn */
    ini_expect_silence(ini);
    ini_send(ini, write, data, sizeof data);
    struct ini_answer answer = ini_answer(ini);
    cr_expect(answer.itt == get_be32(write + 16) && answer.status == SCSI_TASK_SET_FULL);
    cr_expect_eq(ini_answer(ini).len, sizeof data);
    drop(ini);
}
