/* PERSISTENT RESERVE IN and OUT at an LU: bytes, conflicts of commands, unit attentions, what is kept and when. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/reservation.h"
#include "tests/unit/target/scsi_rig.h"

enum { APTPL = 0x01, SPEC_I_PT = 0x08 };
#define PORT_A "iqn.2026-11.org.example:a,i,0x1"
#define PORT_B "iqn.2026-11.org.example:b,i,0x2"

static const uint8_t *out_list(uint64_t key, uint64_t action_key, uint8_t flags)
{
    static uint8_t list[24];
    put_be64(list, key);
    put_be64(list + 8, action_key);
    list[20] = flags;
    return list;
}

static const char *out(struct rig *rig, struct scsi_nexus *nexus, uint8_t action, uint8_t type, uint64_t key,
                       uint64_t action_key, uint8_t flags)
{
    return rig_outcome(
        rig_do(rig, nexus, CDB(0x5f, action, type, 0, 0, 0, 0, 0, 24), out_list(key, action_key, flags), 24));
}

static const struct rig_reply *in(struct rig *rig, struct scsi_nexus *nexus, uint8_t action)
{
    return rig_do(rig, nexus, CDB(0x5e, action, 0, 0, 0, 0, 0, 0xff, 0xff), NULL, 0);
}

static const char *ready(struct rig *rig, struct scsi_nexus *nexus)
{
    return rig_outcome(rig_do(rig, nexus, CDB(0x00), NULL, 0));
}

/* a registers with key 1, b with key 2, and a reserves. */
static struct rig *rig_reserved(uint8_t type)
{
    struct rig *rig = rig_create(NULL);
    cr_assert_str_eq(out(rig, rig->a, PERSIST_REGISTER, 0, 0, 1, 0), "good");
    cr_assert_str_eq(out(rig, rig->b, PERSIST_REGISTER, 0, 0, 2, 0), "good");
    cr_assert_str_eq(out(rig, rig->a, PERSIST_RESERVE, type, 1, 0, 0), "good");
    return rig;
}

Test(scsi_persist, what_is_registered_and_reserved_is_told)
{
    struct rig *rig = rig_reserved(PERSIST_WRITE_EXCLUSIVE_REGISTRANTS);
    const struct rig_reply *reply = in(rig, rig->b, 0);
    cr_expect_eq(reply->len, 24);
    cr_expect_arr_eq(reply->data, ((uint8_t[24]){0, 0, 0, 2, 0, 0, 0, 16, [15] = 1, [23] = 2}), 24);
    reply = in(rig, rig->b, 1);
    cr_expect_eq(reply->len, 24);
    cr_expect_arr_eq(reply->data, ((uint8_t[24]){0, 0, 0, 2, 0, 0, 0, 16, [15] = 1, [21] = 5}), 24);
    reply = in(rig, rig->b, 2);
    cr_expect_eq(reply->len, 8);
    cr_expect_arr_eq(reply->data, ((uint8_t[8]){0, 8, 0x1d, 0x80, 0xea, 0x01}), 8);
    reply = in(rig, rig->b, 3);
    cr_expect_eq(reply->len, 8 + 2 * (24 + 4 + 32));
    cr_expect_eq(get_be32(reply->data + 4), 120);
    const uint8_t *a = reply->data + 8, *b = a + 60;
    cr_expect(get_be64(a) == 1 && a[12] == 1 && a[13] == 5 && get_be16(a + 18) == 1 && get_be32(a + 20) == 36);
    cr_expect(get_be64(b) == 2 && b[12] == 0 && b[13] == 0);
    cr_expect_str_eq((const char *)b + 28, PORT_B);
    cr_expect_eq(rig_do(rig, rig->a, CDB(0x5e, 0, [8] = 9), NULL, 0)->len, 9, "cut");
    cr_expect_str_eq(rig_outcome(in(rig, rig->a, 4)), "5/24/00");
    rig_destroy(rig);
}

Test(scsi_persist, nothing_reserved_and_nothing_registered)
{
    struct rig *rig = rig_create(&(struct rig_options){.no_keeper = true});
    cr_expect_eq(in(rig, rig->a, 0)->len, 8);
    cr_expect_eq(in(rig, rig->a, 1)->len, 8);
    cr_expect_eq(in(rig, rig->a, 2)->data[2], 0x1c, "no PTPL_C");
    cr_expect_eq(in(rig, rig->a, 3)->len, 8);
    cr_expect_str_eq(out(rig, rig->a, PERSIST_REGISTER, 0, 0, 1, APTPL), "5/26/00", "nobody keeps it");
    rig_destroy(rig);
}

/* One of each class at least, from who may not, under a type of each kind. */
Test(scsi_persist, commands_conflict_as_their_rows_say)
{
    static const struct {
        const char *under_write_exclusive, *under_exclusive_access;
        uint8_t cdb[SCSI_CDB_MAX];
    } cases[] = {
        {"good", "good", {0x00}},
        {"good", "good", {0x12, [4] = 96}},
        {"good", "good", {0x25}},
        {"good", "good", {0x9e, 0x10, [13] = 32}},
        {"good", "good", {0xa0, [8] = 1}},
        {"good", "good", {0x5e, 0, [8] = 8}},
        {"good", "good", {0x1b, [4] = 1}},
        {"conflict", "conflict", {0x1b, [4] = 0}},
        {"good", "conflict", {0x28, [8] = 1}},
        {"good", "conflict", {0x88, [13] = 1}},
        {"good", "conflict", {0x2f, [8] = 1}},
        {"met", "conflict", {0x34, [8] = 1}},
        {"good", "conflict", {0x1a, 0, 0x3f, 0, 255}},
        {"good", "conflict", {0xa3, 0x0c, [8] = 1}},
        {"good", "conflict", {0x9e, 0x12, [13] = 32}},
        {"conflict", "conflict", {0x2a, [8] = 1}},
        {"conflict", "conflict", {0x41, [8] = 1}},
        {"conflict", "conflict", {0x42}},
        {"conflict", "conflict", {0x89, [13] = 1}},
        {"conflict", "conflict", {0x35}},
        {"conflict", "conflict", {0x15, 0x10}},
        {"conflict", "conflict", {0x1d}},
        {"conflict", "conflict", {0x16}},
        {"conflict", "conflict", {0x17}},
    };
    struct rig *write = rig_reserved(PERSIST_WRITE_EXCLUSIVE), *access = rig_reserved(PERSIST_EXCLUSIVE_ACCESS);
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        cr_expect_str_eq(rig_outcome(rig_do(write, write->b, cases[i].cdb, NULL, 0)), cases[i].under_write_exclusive,
                         "%02x", cases[i].cdb[0]);
        cr_expect_str_eq(rig_outcome(rig_do(access, access->b, cases[i].cdb, NULL, 0)), cases[i].under_exclusive_access,
                         "%02x", cases[i].cdb[0]);
    }
    EXPECT_OUTCOME(write, write->a, "good", NULL, 0, 0x35);
    EXPECT_OUTCOME(write, write->a, "good", NULL, 0, 0x16);
    EXPECT_OUTCOME(write, write->a, "good", NULL, 0, 0x17);
    rig_destroy(write);
    rig_destroy(access);
}

Test(scsi_persist, spc2_reservations_and_these_shut_each_other_out)
{
    struct rig *rig = rig_create(NULL);
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x16);
    cr_expect_str_eq(out(rig, rig->a, PERSIST_REGISTER, 0, 0, 1, 0), "conflict", "also from who reserved");
    cr_expect_str_eq(rig_outcome(in(rig, rig->b, 0)), "conflict");
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x17);
    cr_expect_str_eq(out(rig, rig->a, PERSIST_REGISTER, 0, 0, 1, 0), "good");
    EXPECT_OUTCOME(rig, rig->b, "conflict", NULL, 0, 0x56);
    rig_destroy(rig);
}

Test(scsi_persist, the_others_hear_of_it_and_never_who_did_it)
{
    static const struct {
        uint8_t action, type;
        uint64_t key, action_key;
        const char *heard;
    } cases[] = {{PERSIST_RELEASE, 5, 1, 0, "6/2A/04"},
                 {PERSIST_CLEAR, 0, 1, 0, "6/2A/03"},
                 {PERSIST_PREEMPT, 5, 1, 2, "6/2A/05"},
                 {PERSIST_REGISTER, 0, 1, 0, "6/2A/04"},
                 {PERSIST_PREEMPT, 1, 1, 1, "6/2A/04"}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct rig *rig = rig_reserved(PERSIST_WRITE_EXCLUSIVE_REGISTRANTS);
        struct scsi_nexus *again = scsi_nexus_create(rig->target, PORT_A);
        cr_expect_str_eq(ready(rig, again), "6/29/00");
        cr_expect_str_eq(out(rig, rig->a, cases[i].action, cases[i].type, cases[i].key, cases[i].action_key, 0),
                         "good");
        cr_expect_str_eq(ready(rig, rig->a), "good", "case %u", i);
        cr_expect_str_eq(ready(rig, rig->b), cases[i].heard, "case %u", i);
        cr_expect_str_eq(ready(rig, rig->b), "good", "case %u", i);
        scsi_nexus_destroy(again);
        rig_destroy(rig);
    }
}

Test(scsi_persist, registrations_outlive_sessions_and_resets)
{
    struct rig *rig = rig_reserved(PERSIST_EXCLUSIVE_ACCESS);
    scsi_nexus_destroy(rig->a);
    scsi_target_reset(rig->target);
    rig->a = scsi_nexus_create(rig->target, PORT_A);
    cr_expect_str_eq(ready(rig, rig->a), "6/29/00");
    cr_expect_str_eq(ready(rig, rig->b), "6/29/02");
    EXPECT_OUTCOME(rig, rig->b, "conflict", NULL, 0, 0x28, [8] = 1);
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x28, [8] = 1);
    struct scsi_nexus *other = scsi_nexus_create(rig->target, "iqn.2026-11.org.example:a,i,0x3");
    cr_expect_str_eq(ready(rig, other), "6/29/00");
    EXPECT_OUTCOME(rig, other, "conflict", NULL, 0, 0x28, [8] = 1);
    scsi_nexus_destroy(other);
    rig_destroy(rig);
}

Test(scsi_persist, lists_that_are_wrong)
{
    struct rig *rig = rig_create(NULL);
    EXPECT_OUTCOME(rig, rig->a, "5/1A/00", out_list(0, 1, 0), 23, 0x5f, 0, [8] = 23);
    EXPECT_OUTCOME(rig, rig->a, "5/1A/00", out_list(0, 1, 0), 20, 0x5f, 0, [8] = 24);
    EXPECT_OUTCOME(rig, rig->a, "5/1A/00", NULL, 0, 0x5f, 0);
    EXPECT_OUTCOME(rig, rig->a, "5/1A/00", NULL, 0, 0x5f, 0, 0, 0, 0, 1);
    cr_expect_str_eq(out(rig, rig->a, PERSIST_RESERVE, 1, 0, 0, 0), "conflict", "not registered");
    cr_expect_eq(get_be32(in(rig, rig->a, 0)->data), 0, "none of that counts");
    rig_destroy(rig);
}

static uint32_t spec_i_pt(uint8_t *list, const char *first, const char *second)
{
    const char *const names[2] = {first, second};
    uint32_t len = 28;
    memset(list, 0, 256);
    memcpy(list, out_list(0, 7, SPEC_I_PT), 24);
    for (unsigned i = 0; i < 2; i++) {
        uint32_t bytes = (uint32_t)round_up(strlen(names[i]) + 1, 4);
        list[len] = strstr(names[i], ",i,") != NULL ? 0x45 : 0x05;
        put_be16(list + len + 2, (uint16_t)bytes);
        memcpy(list + len + 4, names[i], strlen(names[i]));
        len += 4 + bytes;
    }
    put_be32(list + 24, len - 28);
    return len;
}

Test(scsi_persist, one_registers_others_by_their_transport_ids)
{
    struct rig *rig = rig_create(NULL);
    uint8_t list[256];
    uint32_t len = spec_i_pt(list, "iqn.2026-11.org.example:b", "iqn.far.away,i,0x9");
    EXPECT_OUTCOME(rig, rig->a, "good", list, len, 0x5f, 0, [8] = (uint8_t)len);
    const struct rig_reply *reply = in(rig, rig->a, 3);
    cr_expect_eq(get_be32(reply->data + 4), 3 * 24 + 36 + 36 + 24);
    cr_expect_str_eq((const char *)reply->data + 8 + 60 + 28, PORT_B);
    len = spec_i_pt(list, "iqn.new,i,0x1", "iqn.FAR.away,i,0x9");
    EXPECT_OUTCOME(rig, rig->b, "conflict", list, len, 0x5f, 0, [8] = (uint8_t)len);
    cr_expect_str_eq(out(rig, rig->b, PERSIST_REGISTER, 0, 7, 0, 0), "good");
    EXPECT_OUTCOME(rig, rig->b, "5/26/00", list, len, 0x5f, 0, [8] = (uint8_t)len);
    list[28] = 0x46;
    EXPECT_OUTCOME(rig, rig->b, "5/26/00", list, len, 0x5f, 0, [8] = (uint8_t)len);
    cr_expect_eq(get_be32(in(rig, rig->a, 0)->data + 4), 2 * 8, "all or none");
    rig_destroy(rig);
}

Test(scsi_persist, a_reservation_is_moved)
{
    struct rig *rig = rig_reserved(PERSIST_EXCLUSIVE_ACCESS);
    uint8_t list[24 + 36] = {[7] = 1, [15] = 9, [17] = 2, [19] = 1, [23] = 36, [24] = 0x45, [27] = 32};
    memcpy(list + 28, PORT_B, sizeof PORT_B);
    list[19] = 2;
    EXPECT_OUTCOME(rig, rig->a, "5/26/00", list, 60, 0x5f, 7, 3, [8] = 60);
    list[19] = 1;
    list[23] = 0;
    EXPECT_OUTCOME(rig, rig->a, "5/26/00", list, 24, 0x5f, 7, 3, [8] = 24); /* to nobody */
    list[23] = 36;
    cr_expect_eq(get_be64(in(rig, rig->b, 1)->data + 8), 1, "until then it stays");
    EXPECT_OUTCOME(rig, rig->a, "good", list, 60, 0x5f, 7, 3, [8] = 60);
    cr_expect_eq(get_be64(in(rig, rig->b, 1)->data + 8), 9);
    EXPECT_OUTCOME(rig, rig->a, "conflict", NULL, 0, 0x28, [8] = 1);
    rig_destroy(rig);
}

/* --- what outlives the power --- */

Test(scsi_persist, the_answer_waits_until_it_is_kept_and_so_does_the_change)
{
    struct rig *rig = rig_create(NULL);
    struct rig_keeper *keeper = &rig->keeper;
    keeper->hold = true;
    struct rig_task *task = rig_start(rig, rig->a, CDB(0x5f, 0, [8] = 24), out_list(0, 1, APTPL), 24);
    testloop_run(rig->t);
    cr_expect(!task->done && keeper->call != NULL);
    cr_expect_eq(in(rig, rig->b, 0)->len, 8, "not yet");
    struct rig_task *behind = rig_start(rig, rig->b, CDB(0x5f, 0, [8] = 24), out_list(0, 2, APTPL), 24);
    struct rig_task *aborted = rig_start(rig, rig->b, CDB(0x5f, 0, [8] = 24), out_list(0, 3, APTPL), 24);
    scsi_task_abort(&aborted->task);
    cr_assert(testloop_run_until(rig->t, &aborted->done));
    cr_expect_eq(aborted->task.status, SCSI_TASK_ABORTED);
    cr_expect_eq(keeper->calls, 1);
    keeper->hold = false;
    rig_keeper_answer(keeper);
    cr_assert(testloop_run_until(rig->t, &behind->done));
    cr_expect(task->done && task->task.status == SCSI_GOOD && behind->task.status == SCSI_GOOD);
    cr_expect_eq(keeper->calls, 2);
    cr_expect_str_eq(keeper->record,
                     "{\"generation\":2,\"type\":0,\"holder\":0,\"registrations\":[\"0000000000000001 " PORT_A
                     "\",\"0000000000000002 " PORT_B "\"]}");
    cr_expect_eq(in(rig, rig->a, 2)->data[3], 0x81, "PTPL_A");
    rig_end(task);
    rig_end(behind);
    rig_end(aborted);
    rig_destroy(rig);
}

Test(scsi_persist, what_cannot_be_kept_does_not_happen)
{
    struct rig *rig = rig_create(NULL);
    rig->keeper.error = -ENOSPC;
    cr_expect_str_eq(out(rig, rig->a, PERSIST_REGISTER, 0, 0, 1, APTPL), "5/55/04");
    rig->keeper.error = -EIO;
    cr_expect_str_eq(out(rig, rig->a, PERSIST_REGISTER, 0, 0, 1, APTPL), "4/44/00");
    cr_expect_eq(in(rig, rig->a, 0)->len, 8);
    rig->keeper.error = 0;
    cr_expect_str_eq(out(rig, rig->a, PERSIST_REGISTER, 0, 0, 1, APTPL), "good");
    cr_expect_eq(get_be32(in(rig, rig->a, 0)->data), 1);
    rig_destroy(rig);
}

Test(scsi_persist, it_is_forgotten_when_nobody_wants_it_kept_any_more)
{
    struct rig *rig = rig_create(NULL);
    cr_expect_str_eq(out(rig, rig->a, PERSIST_REGISTER, 0, 0, 1, APTPL), "good");
    cr_expect_not_null(rig->keeper.record);
    cr_expect_str_eq(out(rig, rig->b, PERSIST_REGISTER, 0, 0, 2, 0), "good");
    cr_expect_null(rig->keeper.record);
    cr_expect_str_eq(out(rig, rig->a, PERSIST_RESERVE, 1, 1, 0, 0), "good");
    cr_expect_eq(rig->keeper.calls, 2);
    rig_destroy(rig);
}

Test(scsi_persist, a_record_counts_from_the_start)
{
    static const char record[] =
        "{\"generation\":41,\"type\":3,\"holder\":0,\"registrations\":[\"00000000000000ab " PORT_A "\"]}";
    struct rig *rig = rig_create(&(struct rig_options){.record = record});
    const struct rig_reply *reply = in(rig, rig->b, 0);
    cr_expect(get_be32(reply->data) == 41 && get_be64(reply->data + 8) == 0xab);
    EXPECT_OUTCOME(rig, rig->b, "conflict", NULL, 0, 0x28, [8] = 1);
    cr_expect_str_eq(out(rig, rig->a, PERSIST_REGISTER, 0, 0xab, 0xcd, APTPL), "good");
    cr_expect_eq(rig->keeper.calls, 1);
    struct scsi_lu_options options = {.dev = &rig->disk->dev, .keeper = &rig->keeper.door, .record = "nonsense"};
    cr_expect_eq(scsi_target_add_lun(rig->target, 1, &options), -EINVAL);
    options = (struct scsi_lu_options){.dev = &rig->disk->dev, .record = record};
    cr_expect_eq(scsi_target_add_lun(rig->target, 1, &options), -EINVAL, "nobody would keep it up to date");
    rig_destroy(rig);
}

/* --- preempt and abort --- */

Test(scsi_persist, preempt_and_abort_ends_when_the_tasks_of_the_preempted_have)
{
    struct rig *rig = rig_create(&(struct rig_options){.latency_ns = 1000000});
    static uint8_t data[512];
    cr_assert_str_eq(out(rig, rig->a, PERSIST_REGISTER, 0, 0, 1, 0), "good");
    cr_assert_str_eq(out(rig, rig->b, PERSIST_REGISTER, 0, 0, 2, 0), "good");
    struct rig_task *write = rig_start(rig, rig->b, CDB(0x2a, [8] = 1), data, sizeof data);
    struct rig_task *own = rig_start(rig, rig->a, CDB(0x28, [8] = 1), NULL, 0);
    struct rig_task *preempt = rig_start(rig, rig->a, CDB(0x5f, 5, 1, [8] = 24), out_list(1, 2, 0), 24);
    cr_expect(!write->done && !preempt->done, "the disk has it");
    cr_assert(testloop_run_until(rig->t, &preempt->done));
    cr_expect(write->done);
    cr_expect_eq(write->task.status, SCSI_TASK_ABORTED);
    cr_expect_eq(preempt->task.status, SCSI_GOOD);
    cr_assert(testloop_run_until(rig->t, &own->done));
    cr_expect_eq(own->task.status, SCSI_GOOD);
    cr_expect_str_eq(ready(rig, rig->b), "6/2A/05");
    rig_end(write);
    rig_end(own);
    rig_end(preempt);
    rig_destroy(rig);
}

Test(scsi_persist, a_write_whose_data_comes_after_preempt_and_abort_is_aborted)
{
    struct rig *rig = rig_create(NULL);
    struct rig_task late = {.task = {.nexus = rig->b, .transport_len = 512, .cdb = {0x2a, [8] = 1}}};
    cr_assert_str_eq(out(rig, rig->a, PERSIST_REGISTER, 0, 0, 1, 0), "good");
    cr_assert_str_eq(out(rig, rig->b, PERSIST_REGISTER, 0, 0, 2, 0), "good");
    cr_assert(scsi_task_parse(&late.task));
    cr_expect_str_eq(out(rig, rig->a, PERSIST_PREEMPT_ABORT, 1, 1, 2, 0), "good", "though nothing is reserved");
    uint64_t before = rig->requests;
    rig_run(rig, &late);
    cr_expect_eq(late.task.status, SCSI_TASK_ABORTED);
    cr_expect_eq(rig->requests, before);
    cr_expect_str_eq(ready(rig, rig->b), "6/2A/05");
    EXPECT_OUTCOME(rig, rig->b, "good", NULL, 0, 0x28, [8] = 1);
    rig_destroy(rig);
}

Test(scsi_persist, a_write_whose_data_came_too_late_conflicts)
{
    struct rig *rig = rig_create(NULL);
    struct scsi_task late = {.nexus = rig->b, .transport_len = 512, .cdb = {0x2a, [8] = 1}};
    cr_assert(scsi_task_parse(&late));
    cr_assert_str_eq(out(rig, rig->a, PERSIST_REGISTER, 0, 0, 1, 0), "good");
    cr_assert_str_eq(out(rig, rig->a, PERSIST_RESERVE, 1, 1, 0, 0), "good");
    struct rig_task task = {.task = late};
    uint64_t before = rig->requests;
    rig_run(rig, &task);
    cr_expect_eq(task.task.status, SCSI_RESERVATION_CONFLICT);
    cr_expect_eq(rig->requests, before);
    rig_destroy(rig);
}
