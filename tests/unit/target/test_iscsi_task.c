/* Task management over a whole connection. */
#include <stdlib.h>

#include "tests/unit/target/initiator.h"

enum { ABORT_TASK = 1, ABORT_TASK_SET = 2, CLEAR_TASK_SET = 4, LUN_RESET = 5, WARM_RESET = 6, COLD_RESET = 7 };

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

static void read_send(struct ini *ini, uint8_t bhs[PDU_BHS_BYTES], unsigned lun)
{
    uint8_t cdb[16];
    ini_cdb_rw(cdb, false, 0, 8);
    ini_command(ini, bhs, INI_F | INI_R, 4096, cdb);
    bhs[9] = (uint8_t)lun;
    ini_send(ini, bhs, NULL, 0);
}

/* A write that waits for the data of its R2T; returns the tag. */
static uint32_t write_waiting(struct ini *ini, uint8_t bhs[PDU_BHS_BYTES])
{
    uint8_t cdb[16], r2t[PDU_BHS_BYTES];
    ini_cdb_rw(cdb, true, 0, 8);
    ini_command(ini, bhs, INI_F | INI_W, 4096, cdb);
    ini_send(ini, bhs, NULL, 0);
    ini_expect(ini, PDU_R2T, r2t, NULL, 0);
    return get_be32(r2t + 20);
}

Test(iscsi_task, an_abort_takes_effect_at_once_while_the_disk_hangs)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "");
    uint8_t bhs[PDU_BHS_BYTES];
    ini_hang(rig, true);
    read_send(ini, bhs, 0);
    ini_expect_silence(ini);
    ini_task(ini, ABORT_TASK, get_be32(bhs + 16), get_be32(bhs + 24), 0, 0);
    ini_hang(rig, false);
    ini_expect_silence(ini);
    cr_expect_eq(ini_do(ini, 0, 0, INI_CDB(0)).status, 0);
    ini_task(ini, ABORT_TASK, get_be32(bhs + 16), get_be32(bhs + 24), 0, 1);
    drop(ini);
}

/* What the disk has in hand may still land, but not on top of what comes after the abort. */
Test(iscsi_task, a_write_that_was_aborted_in_the_disk_is_waited_for_by_what_overlaps_it)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "ImmediateData=Yes"), *other = ini_session(rig, 2, "ImmediateData=Yes");
    uint8_t first[PDU_BHS_BYTES], bhs[PDU_BHS_BYTES], cdb[16], data[4096];
    memset(data, 0x11, sizeof data);
    ini_hang(rig, true);
    ini_cdb_rw(cdb, true, 8, 8);
    ini_command(ini, first, INI_F | INI_W, 4096, cdb);
    ini_send(ini, first, data, sizeof data);
    ini_expect_silence(ini);
    cr_expect_eq(rig->disks[0]->writes, 1, "the disk has it");
    ini_task(ini, ABORT_TASK, get_be32(first + 16), get_be32(first + 24), 0, 0);
    memset(data, 0x22, sizeof data);
    ini_cdb_rw(cdb, true, 12, 8);
    ini_command(other, bhs, INI_F | INI_W, 4096, cdb);
    ini_send(other, bhs, data, sizeof data);
    ini_cdb_rw(cdb, false, 8, 1);
    ini_command(other, bhs, INI_F | INI_R, 512, cdb);
    ini_send(other, bhs, NULL, 0);
    ini_expect_silence(other);
    cr_expect_eq(rig->disks[0]->writes, 1, "what overlaps it waits");
    cr_expect_eq(rig->disks[0]->reads, 0, "reads too");
    ini_cdb_rw(cdb, true, 16, 8);
    ini_command(other, bhs, INI_F | INI_W, 4096, cdb);
    ini_send(other, bhs, data, sizeof data);
    ini_expect_silence(other);
    cr_expect_eq(rig->disks[0]->writes, 2, "what does not overlap it goes on");
    ini_hang(rig, false);
    for (unsigned i = 0; i < 3; i++)
        cr_expect_eq(ini_answer(other).status, 0);
    cr_expect_eq(rig->disks[0]->writes, 3);
    ini_cdb_rw(cdb, false, 12, 8);
    struct ini_answer answer = ini_do(other, INI_F | INI_R, 4096, cdb);
    cr_expect_eq(answer.len, 4096);
    cr_expect_arr_eq(answer.data, data, sizeof data);
    ini_drop(other);
    drop(ini);
}

Test(iscsi_task, late_data_of_an_aborted_write_never_reach_the_disk)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "");
    uint8_t bhs[PDU_BHS_BYTES], data[4096];
    memset(data, 0xee, sizeof data);
    uint32_t ttt = write_waiting(ini, bhs);
    ini_task(ini, ABORT_TASK, get_be32(bhs + 16), get_be32(bhs + 24), 0, 0);
    ini_data_out(ini, bhs, ttt, 0, 0, true, data, sizeof data);
    ini_expect_silence(ini);
    cr_expect_eq(rig->disks[0]->writes, 0);
    cr_expect_eq(ini_do(ini, 0, 0, INI_CDB(0)).status, 0);
    drop(ini);
}

Test(iscsi_task, an_abort_of_another_session_in_the_middle_of_a_segment)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, ""), *other = ini_session(rig, 2, "");
    uint8_t bhs[PDU_BHS_BYTES], out[PDU_BHS_BYTES] = {PDU_DATA_OUT, 0x80}, data[4096] = {0};
    uint32_t ttt = write_waiting(ini, bhs);
    memcpy(out + 8, bhs + 8, 12);
    put_be24(out + 5, 4096);
    put_be32(out + 20, ttt);
    teststream_feed(ini->s, out, sizeof out);
    teststream_feed(ini->s, data, 1000);
    ini_expect_silence(ini);
    ini_task(other, LUN_RESET, 0, 0, 0, 0);
    ini_expect_silence(ini);
    teststream_feed(ini->s, data + 1000, 3096);
    struct ini_answer answer = ini_answer(ini);
    cr_expect_eq(answer.status, SCSI_TASK_ABORTED, "after the F bit");
    cr_expect_eq(rig->disks[0]->writes, 0);
    ini_drop(other);
    drop(ini);
}

Test(iscsi_task, an_abort_of_a_command_that_has_not_come)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "");
    uint32_t lost = ini->cmd_sn++;
    uint8_t bhs[PDU_BHS_BYTES];
    read_send(ini, bhs, 0); /* waits for the lost one */
    ini_expect_silence(ini);
    ini_task(ini, ABORT_TASK, 0x7777, lost, 0, 0);
    cr_expect_eq(ini_answer(ini).itt, get_be32(bhs + 16), "the gap counts as filled");
    ini_command(ini, bhs, INI_F, 0, INI_CDB(0));
    ini->cmd_sn--;
    put_be32(bhs + 24, lost);
    ini_send(ini, bhs, NULL, 0);
    ini_expect_silence(ini); /* and the lost one is ignored when it comes after all */
    ini_task(ini, ABORT_TASK, 0x7777, ini->cmd_sn + 500, 0, 1);
    ini_task(ini, ABORT_TASK, 0x7777, ini->cmd_sn - 10, 0, 1);
    drop(ini);
}

Test(iscsi_task, responses_to_what_cannot_be_done)
{
    static const struct {
        uint8_t function, lun, response;
    } cases[] = {{ABORT_TASK, 5, 2}, {ABORT_TASK_SET, 5, 2},
                 {LUN_RESET, 5, 2},  {CLEAR_TASK_SET, 9, 2},
                 {3, 0, 5},          {8, 0, 4},
                 {0, 0, 5},          {9, 0, 5},
                 {0x7f, 0, 5}};
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "");
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++)
        ini_task(ini, cases[i].function, 0, 0, cases[i].lun, cases[i].response);
    cr_expect_eq(ini_do(ini, 0, 0, INI_CDB(0)).status, 0);
    drop(ini);
}

/* Two sessions with a hanging read on each LU; what each function sweeps away, and who hears of it. */
static const struct {
    const char *what;
    uint8_t function;
    bool own[2], other[2];      /* swept, by LUN */
    uint8_t own_asc, other_asc; /* the next unit attention on LUN 0; 0: none */
} sweeps[] = {
    {"abort task set", ABORT_TASK_SET, {true, false}, {false, false}, 0, 0},
    {"clear task set", CLEAR_TASK_SET, {true, false}, {true, false}, 0, 0x2f},
    {"LUN reset", LUN_RESET, {true, false}, {true, false}, 0x29, 0x29},
    {"target warm reset", WARM_RESET, {true, true}, {true, true}, 0x29, 0x29},
};

/* Both reads are answered, in any order: a swept one with TASK ABORTED if it is told, else not at all. */
static void check_answers(struct ini *ini, uint8_t bhs[2][PDU_BHS_BYTES], const bool swept[2], bool told,
                          const char *what)
{
    for (unsigned i = 0; i < (told ? 2u : 2u - swept[0] - swept[1]); i++) {
        struct ini_answer answer = ini_answer(ini);
        unsigned lun = answer.itt == get_be32(bhs[1] + 16);
        cr_expect_eq(answer.itt, get_be32(bhs[lun] + 16), "%s", what);
        cr_expect(told || !swept[lun], "%s: no answer after the response", what);
        cr_expect_eq(answer.status, swept[lun] ? SCSI_TASK_ABORTED : 0, "%s: %02x", what, answer.status);
    }
}

Test(iscsi_task, what_each_function_sweeps_away)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(sweeps); i++) {
        struct ini_rig *rig = plain_rig();
        struct ini *own = ini_session(rig, 1, ""), *other = ini_session(rig, 2, "");
        uint8_t own_bhs[2][PDU_BHS_BYTES], other_bhs[2][PDU_BHS_BYTES];
        ini_hang(rig, true);
        for (unsigned lun = 0; lun < 2; lun++) {
            read_send(own, own_bhs[lun], lun);
            read_send(other, other_bhs[lun], lun);
        }
        ini_run(own);
        ini_task(own, sweeps[i].function, 0, 0, 0, 0);
        ini_hang(rig, false);
        check_answers(own, own_bhs, sweeps[i].own, false, sweeps[i].what);
        check_answers(other, other_bhs, sweeps[i].other, true, sweeps[i].what);
        ini_expect_silence(own);
        cr_expect_eq(ini_do(own, 0, 0, INI_CDB(0)).asc, sweeps[i].own_asc, "%s", sweeps[i].what);
        cr_expect_eq(ini_do(other, 0, 0, INI_CDB(0)).asc, sweeps[i].other_asc, "%s", sweeps[i].what);
        ini_drop(other);
        drop(own);
    }
}

Test(iscsi_task, a_cold_reset_ends_all_sessions_of_the_target)
{
    struct ini_rig *rig = plain_rig();
    struct ini *own = ini_session(rig, 1, ""), *other = ini_session(rig, 2, "");
    uint8_t bhs[PDU_BHS_BYTES];
    read_send(other, bhs, 0);
    ini_task(own, COLD_RESET, 0, 0, 0, 0);
    ini_expect_closed(own);
    ini_expect_closed(other);
    ini_drop(other);
    drop(own);
}

Test(iscsi_task, commands_sent_after_a_set_function_are_not_covered)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "");
    uint8_t before[PDU_BHS_BYTES], task[PDU_BHS_BYTES], after[PDU_BHS_BYTES], reply[PDU_BHS_BYTES];
    ini_hang(rig, true);
    read_send(ini, before, 0);
    ini_request(ini, task, PDU_TASK, 0x80 | ABORT_TASK_SET); /* not immediate, and overtaken */
    read_send(ini, after, 0);
    ini_expect_silence(ini);
    ini_send(ini, task, NULL, 0);
    ini_expect(ini, PDU_TASK_RESPONSE, reply, NULL, 0);
    cr_expect_eq(reply[2], 0);
    ini_hang(rig, false);
    cr_expect_eq(ini_answer(ini).itt, get_be32(after + 16));
    ini_expect_silence(ini);
    drop(ini);
}

/* 4.2.3.3: what is in front of it is covered, also when it comes later. */
Test(iscsi_task, an_immediate_set_function_waits_for_the_commands_in_front_of_it)
{
    struct ini_rig *rig = plain_rig();
    struct ini *ini = ini_session(rig, 1, "ImmediateData=No");
    uint8_t bhs[PDU_BHS_BYTES], task[PDU_BHS_BYTES], cdb[16];
    ini_cdb_rw(cdb, true, 0, 8);
    ini_command(ini, bhs, INI_F | INI_W, 4096, cdb);
    ini_request(ini, task, PDU_TASK | 0x40, INI_F | LUN_RESET);
    ini_send(ini, task, NULL, 0);
    ini_expect_silence(ini);
    ini_send(ini, bhs, NULL, 0);
    ini_expect(ini, PDU_TASK_RESPONSE, task, NULL, 0);
    cr_expect_eq(task[2], 0);
    ini_expect_silence(ini);
    drop(ini);
}

Test(iscsi_task, an_abort_while_the_answer_is_half_sent)
{
    for (size_t window = 0; window < 9000; window += 700) {
        struct ini_rig *rig = plain_rig();
        struct ini *ini = ini_session(rig, 1, "");
        uint8_t bhs[2][PDU_BHS_BYTES], task[PDU_BHS_BYTES];
        ini->s->send_window = window;
        read_send(ini, bhs[0], 0);
        ini_run(ini);
        read_send(ini, bhs[1], 0);
        ini_run(ini);
        ini_request(ini, task, 0x40 | PDU_TASK, 0x80 | ABORT_TASK);
        memcpy(task + 20, bhs[1] + 16, 4);
        ini_send(ini, task, NULL, 0);
        ini_run(ini);
        teststream_open_window(ini->s, SIZE_MAX);
        cr_expect_eq(ini_answer(ini).itt, get_be32(bhs[0] + 16));
        struct ini_pdu pdu;
        cr_assert(ini_recv(ini, &pdu));
        if (pdu.bhs[0] == PDU_DATA_IN) { /* it was already on its way: then the answer is before the response */
            ini_pdu_free(&pdu);
            cr_assert(ini_recv(ini, &pdu));
        }
        cr_expect_eq(pdu.bhs[0], PDU_TASK_RESPONSE);
        ini_pdu_free(&pdu);
        ini_expect_silence(ini);
        drop(ini);
    }
}
