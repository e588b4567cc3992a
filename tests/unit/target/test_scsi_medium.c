/* A medium that can be removed: eject and load, who prevents it and until when, what is told meanwhile. */
#include <criterion/criterion.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/reservation.h"
#include "tests/unit/target/scsi_rig.h"

enum { START = 0x01, LOEJ = 0x02, NO_FLUSH = 0x04 };
static const uint8_t lun0[8] = {0};

static struct rig *rig_removable(void)
{
    return rig_create(&(struct rig_options){.removable = true});
}

static const char *start_stop(struct rig *rig, struct scsi_nexus *nexus, uint8_t bits)
{
    return rig_outcome(rig_do(rig, nexus, CDB(0x1b, [4] = bits), NULL, 0));
}

static const char *prevent(struct rig *rig, struct scsi_nexus *nexus, uint8_t value)
{
    return rig_outcome(rig_do(rig, nexus, CDB(0x1e, [4] = value), NULL, 0));
}

static const char *ready(struct rig *rig, struct scsi_nexus *nexus)
{
    return rig_outcome(rig_do(rig, nexus, CDB(0x00), NULL, 0));
}

static const char *persist(struct rig *rig, struct scsi_nexus *nexus, uint8_t action, uint64_t key, uint64_t action_key)
{
    uint8_t list[24] = {0};
    put_be64(list, key);
    put_be64(list + 8, action_key);
    return rig_outcome(
        rig_do(rig, nexus, CDB(0x5f, action, PERSIST_EXCLUSIVE_ACCESS, 0, 0, 0, 0, 0, sizeof list), list, sizeof list));
}

Test(scsi_medium, that_is_fixed_has_no_such_commands)
{
    struct rig *rig = rig_create(NULL);
    cr_expect_str_eq(prevent(rig, rig->a, 1), "5/20/00");
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ), "5/24/00");
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ | START), "5/24/00");
    cr_expect_eq(rig_do(rig, rig->a, CDB(0x12, [4] = 36), NULL, 0)->data[1], 0x00);
    cr_expect_eq(rig_do(rig, rig->a, CDB(0xa3, 0x0c, 1, 0x1e, [9] = 64), NULL, 0)->data[1], 1);
    rig_destroy(rig);
}

Test(scsi_medium, that_is_removable_is_told_in_inquiry_and_operation_codes)
{
    struct rig *rig = rig_removable();
    cr_expect_eq(rig_do(rig, rig->a, CDB(0x12, [4] = 36), NULL, 0)->data[1], 0x80);
    const struct rig_reply *reply = rig_do(rig, rig->a, CDB(0xa3, 0x0c, 1, 0x1e, [9] = 64), NULL, 0);
    cr_expect_arr_eq(reply->data, ((uint8_t[10]){0, 3, 0, 6, 0x1e, 0, 0, 0, 0x01, 0}), 10);
    cr_expect_str_eq(prevent(rig, rig->a, 2), "5/24/00");
    cr_expect_str_eq(start_stop(rig, rig->a, 0x30 | LOEJ), "5/24/00");
    rig_destroy(rig);
}

Test(scsi_medium, an_eject_flushes_and_is_told_to_all_until_it_is_loaded)
{
    struct rig *rig = rig_removable();
    test_fill(rig->disk->bytes, RIG_DISK_BYTES, 3);
    uint8_t before = rig->disk->bytes[77];
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ | NO_FLUSH), "good");
    cr_expect_eq(rig->disk->flushes, 1, "NO_FLUSH or not");
    cr_expect_str_eq(ready(rig, rig->a), "2/3A/00");
    cr_expect_str_eq(ready(rig, rig->b), "2/3A/00");
    cr_expect_str_eq(start_stop(rig, rig->b, LOEJ), "good", "it is out");
    cr_expect_str_eq(start_stop(rig, rig->b, 0), "good");
    cr_expect_str_eq(start_stop(rig, rig->b, START), "2/3A/00");
    const struct rig_reply *reply = rig_do(rig, rig->b, CDB(0x03, [4] = 18), NULL, 0);
    cr_expect(reply->data[2] == 2 && reply->data[12] == 0x3a && reply->data[13] == 0, "REQUEST SENSE");
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ | START), "good");
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ | START), "good", "it is in, and nobody hears of it again");
    cr_expect_str_eq(ready(rig, rig->a), "good");
    cr_expect_str_eq(ready(rig, rig->b), "6/28/00");
    cr_expect_str_eq(ready(rig, rig->b), "good");
    cr_expect_eq(rig->disk->writes, 0);
    reply = rig_do(rig, rig->b, CDB(0x28, [8] = 1), NULL, 0);
    cr_expect(reply->status == SCSI_GOOD && reply->data[77] == before);
    rig_destroy(rig);
}

/* By opcode: all others do without. */
static bool needs_medium(const struct scsi_command *row)
{
    static const uint8_t opcodes[] = {0x00, 0x08, 0x0a, 0x25, 0x28, 0x2a, 0x2e, 0x2f, 0x34, 0x35,
                                      0x37, 0x41, 0x42, 0x48, 0x88, 0x89, 0x8a, 0x8b, 0x8e, 0x8f,
                                      0x90, 0x91, 0x93, 0x9c, 0x9e, 0xa8, 0xaa, 0xae, 0xaf, 0xb7};
    for (unsigned i = 0; i < sizeof opcodes; i++)
        if (opcodes[i] == row->opcode)
            return true;
    return row->opcode == 0x83 && row->action >= 0x10; /* copies by token */
}

Test(scsi_medium, commands_that_need_it_miss_it_and_others_do_not)
{
    struct rig *rig = rig_removable();
    rig->disk->dev.info.atomic_write = 4096;
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ), "good");
    unsigned count;
    const struct scsi_command *rows = scsi_commands(&count);
    for (unsigned i = 0; i < count; i++) {
        uint8_t cdb[SCSI_CDB_MAX] = {rows[i].opcode, rows[i].action};
        const char *outcome = rig_outcome(rig_do(rig, rig->a, cdb, NULL, 0));
        cr_expect_eq(strcmp(outcome, "2/3A/00") == 0, needs_medium(&rows[i]), "%s: %s", rows[i].name, outcome);
    }
    rig_destroy(rig);
}

Test(scsi_medium, a_write_whose_data_comes_after_the_eject_is_refused)
{
    struct rig *rig = rig_removable();
    struct rig_task write = {.task = {.nexus = rig->a, .cdb = {0x2a, [8] = 1}, .transport_len = 512}};
    cr_assert(scsi_task_parse(&write.task));
    cr_assert(page_pool_get(rig->t->loop.pages, write.pages, 1));
    write.task.pages = write.pages;
    write.task.received_len = 512;
    cr_expect_str_eq(start_stop(rig, rig->b, LOEJ), "good");
    rig_run(rig, &write);
    cr_expect(write.task.status == SCSI_CHECK_CONDITION && write.task.sense[12] == 0x3a);
    cr_expect_eq(rig->disk->writes, 0);
    page_put_all(write.pages, 1);
    rig_destroy(rig);
}

Test(scsi_medium, whoever_prevents_it_keeps_it_where_it_is)
{
    struct rig *rig = rig_removable();
    cr_expect_str_eq(prevent(rig, rig->a, 1), "good");
    cr_expect_str_eq(prevent(rig, rig->b, 1), "good");
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ), "5/53/02");
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ | START), "good", "it is in");
    cr_expect_str_eq(prevent(rig, rig->a, 0), "good");
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ), "5/53/02", "b does");
    cr_expect_eq(rig->disk->flushes, 0);
    cr_expect_str_eq(ready(rig, rig->a), "good");
    cr_expect_str_eq(prevent(rig, rig->b, 0), "good");
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ), "good");
    cr_expect_str_eq(prevent(rig, rig->b, 1), "good");
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ | START), "5/53/02", "nor is it loaded");
    cr_expect_str_eq(prevent(rig, rig->b, 0), "good");
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ | START), "good");
    rig_destroy(rig);
}

Test(scsi_medium, an_eject_that_is_overtaken_or_fails_in_its_flush_leaves_it_in)
{
    struct rig *rig = rig_create(&(struct rig_options){.removable = true, .latency_ns = 1000000});
    struct rig_task *eject = rig_start(rig, rig->a, CDB(0x1b, [4] = LOEJ), NULL, 0);
    cr_expect_str_eq(prevent(rig, rig->b, 1), "good");
    cr_assert(!eject->done);
    cr_assert(testloop_run_until(rig->t, &eject->done));
    cr_expect(eject->task.status == SCSI_CHECK_CONDITION && eject->task.sense[12] == 0x53);
    rig_end(eject);
    cr_expect_str_eq(prevent(rig, rig->b, 0), "good");
    eject = rig_start(rig, rig->a, CDB(0x1b, [4] = LOEJ), NULL, 0);
    EXPECT_OUTCOME(rig, rig->b, "good", NULL, 0, 0x48, 0x02);
    cr_expect(eject->done && eject->task.status == SCSI_CHECK_CONDITION && eject->task.sense[13] == 0x1b);
    rig_end(eject);
    rig->fail = true;
    rig->fail_op = BLK_FLUSH;
    rig->fail_status = BLK_GONE;
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ), "4/44/00");
    cr_expect_str_eq(ready(rig, rig->a), "good");
    rig_destroy(rig);
}

Test(scsi_medium, prevention_ends_with_the_nexus_a_reset_and_preempt_and_abort)
{
    struct rig *rig = rig_removable();
    struct scsi_nexus *nexus = scsi_nexus_create(rig->target, "iqn.x,i,0x3");
    cr_expect_str_eq(ready(rig, nexus), "6/29/00");
    cr_expect_str_eq(prevent(rig, nexus, 1), "good");
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ), "5/53/02");
    scsi_nexus_lost(nexus);
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ), "good");
    scsi_nexus_destroy(nexus);
    scsi_lun_reset(rig->target, lun0);
    cr_expect_str_eq(ready(rig, rig->a), "6/29/03");
    cr_expect_str_eq(ready(rig, rig->a), "2/3A/00", "a reset does not load it");
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ | START), "good");
    cr_expect_str_eq(prevent(rig, rig->a, 1), "good");
    scsi_target_reset(rig->target);
    cr_expect_str_eq(ready(rig, rig->a), "6/29/02");
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ), "good");
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ | START), "good");
    while (rig_do(rig, rig->b, CDB(0x00), NULL, 0)->key == 6)
        ;
    cr_expect_str_eq(persist(rig, rig->a, PERSIST_REGISTER, 0, 1), "good");
    cr_expect_str_eq(persist(rig, rig->b, PERSIST_REGISTER, 0, 2), "good");
    cr_expect_str_eq(prevent(rig, rig->b, 1), "good");
    cr_expect_str_eq(persist(rig, rig->a, PERSIST_PREEMPT_ABORT, 1, 2), "good");
    cr_expect_str_eq(start_stop(rig, rig->a, LOEJ), "good");
    rig_destroy(rig);
}

Test(scsi_medium, under_a_reservation_it_can_be_allowed_but_not_prevented)
{
    struct rig *rig = rig_removable();
    cr_expect_str_eq(prevent(rig, rig->b, 1), "good");
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x16);
    cr_expect_str_eq(prevent(rig, rig->b, 1), "conflict");
    cr_expect_str_eq(prevent(rig, rig->b, 0), "good");
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x17);
    cr_expect_str_eq(persist(rig, rig->a, PERSIST_REGISTER, 0, 1), "good");
    cr_expect_str_eq(persist(rig, rig->a, PERSIST_RESERVE, 1, 0), "good");
    cr_expect_str_eq(prevent(rig, rig->b, 1), "conflict");
    cr_expect_str_eq(prevent(rig, rig->b, 0), "good");
    cr_expect_str_eq(start_stop(rig, rig->b, LOEJ), "conflict");
    rig_destroy(rig);
}
