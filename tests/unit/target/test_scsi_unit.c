/* Unit attentions, resets, reservations, REPORT LUNS, REPORT SUPPORTED OPERATION CODES, REQUEST SENSE, START STOP. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/lu.h"
#include "target/scsi/sense.h"
#include "tests/unit/target/scsi_rig.h"

static const uint8_t lun0[8] = {0}, lun7[8] = {0, 7};

static const char *ready(struct rig *rig, struct scsi_nexus *nexus)
{
    return rig_outcome(rig_do(rig, nexus, CDB(0x00), NULL, 0));
}

Test(scsi_unit, a_new_nexus_hears_of_the_reset_once)
{
    struct rig *rig = rig_create(NULL);
    struct scsi_nexus *nexus = scsi_nexus_create(rig->target, "iqn.x,i,0x3");
    cr_expect_str_eq(ready(rig, nexus), "6/29/00");
    cr_expect_str_eq(ready(rig, nexus), "good");
    cr_expect_str_eq(ready(rig, rig->a), "good", "the others hear nothing");
    scsi_nexus_destroy(nexus);
    rig_destroy(rig);
}

Test(scsi_unit, inquiry_report_luns_and_request_sense_do_not_report_attentions)
{
    struct rig *rig = rig_create(NULL);
    scsi_lun_reset(rig->target, lun0);
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x12, 0, 0, 0, 96);
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0xa0, [8] = 1);
    cr_expect_str_eq(ready(rig, rig->a), "6/29/03", "still there");
    const struct rig_reply *reply = rig_do(rig, rig->b, CDB(0x03, [4] = 18), NULL, 0);
    cr_expect_eq(reply->status, SCSI_GOOD);
    cr_expect_arr_eq(reply->data, ((uint8_t[]){0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 3}), 14);
    cr_expect_str_eq(ready(rig, rig->b), "good", "told as data");
    rig_destroy(rig);
}

Test(scsi_unit, an_unknown_opcode_reports_the_attention_first)
{
    struct rig *rig = rig_create(NULL);
    scsi_lun_reset(rig->target, lun0);
    EXPECT_OUTCOME(rig, rig->a, "6/29/03", NULL, 0, 0xff);
    EXPECT_OUTCOME(rig, rig->a, "5/20/00", NULL, 0, 0xff);
    rig_destroy(rig);
}

Test(scsi_unit, attentions_come_in_order_each_once_and_a_reset_wipes_older_ones)
{
    struct rig *rig = rig_create(NULL);
    scsi_nexus_cleared(rig->a, lun0);
    scsi_nexus_cleared(rig->a, lun0);
    blk_notify(&rig->disk->dev, BLK_EVENT_RESIZED);
    cr_expect_str_eq(ready(rig, rig->a), "6/2A/09");
    cr_expect_str_eq(ready(rig, rig->a), "6/2F/00");
    cr_expect_str_eq(ready(rig, rig->a), "good");
    cr_expect_str_eq(ready(rig, rig->b), "6/2A/09");
    cr_expect_str_eq(ready(rig, rig->b), "good");
    blk_notify(&rig->disk->dev, BLK_EVENT_RESIZED);
    scsi_target_reset(rig->target);
    cr_expect_str_eq(ready(rig, rig->a), "6/29/02");
    cr_expect_str_eq(ready(rig, rig->a), "good", "older news is gone");
    blk_notify(&rig->disk->dev, BLK_EVENT_RESIZED);
    cr_expect_str_eq(ready(rig, rig->b), "6/29/02");
    cr_expect_str_eq(ready(rig, rig->b), "6/2A/09", "newer is not");
    cr_expect_str_eq(ready(rig, rig->a), "6/2A/09");
    scsi_lun_reset(rig->target, lun7); /* does not exist: nothing happens */
    cr_expect_str_eq(ready(rig, rig->a), "good");
    rig_destroy(rig);
}

Test(scsi_unit, another_kind_of_cache_is_told_to_all)
{
    struct rig *rig = rig_create(NULL);
    rig->disk->dev.info.volatile_cache = false;
    blk_notify(&rig->disk->dev, BLK_EVENT_CACHE);
    cr_expect_str_eq(ready(rig, rig->a), "6/2A/01");
    cr_expect_str_eq(ready(rig, rig->a), "good");
    cr_expect_eq(rig_do(rig, rig->a, CDB(0x1a, 0x08, 0x08, 0, 255), NULL, 0)->data[6] & 0x04, 0, "WCE");
    cr_expect_str_eq(ready(rig, rig->b), "6/2A/01");
    rig->disk->dev.info.volatile_cache = true;
    blk_notify(&rig->disk->dev, BLK_EVENT_FAILED);
    blk_notify(&rig->disk->dev, BLK_EVENT_CACHE);
    cr_expect_str_eq(ready(rig, rig->a), "6/2A/01");
    cr_expect_eq(rig_do(rig, rig->a, CDB(0x1a, 0x08, 0x08, 0, 255), NULL, 0)->data[6] & 0x04, 0x04, "WCE");
    cr_expect_str_eq(ready(rig, rig->a), "2/04/03", "that says nothing of whether it is ready");
    rig_destroy(rig);
}

Test(scsi_unit, a_lun_added_later_is_told_on_the_others_until_report_luns)
{
    struct rig *rig = rig_create(NULL);
    struct memdisk *second = memdisk_create(&rig->t->loop, "second", 1 * MIB, 512);
    struct scsi_lu_options options = {.dev = &second->dev};
    cr_expect_eq(scsi_target_add_lun(rig->target, 0, &options), -EEXIST);
    cr_expect_eq(scsi_target_add_lun(rig->target, SCSI_LUNS_MAX, &options), -EINVAL);
    cr_expect_eq(scsi_target_add_lun(rig->target, 7, &(struct scsi_lu_options){0}), -EINVAL);
    cr_assert_eq(scsi_target_add_lun(rig->target, 7, &options), 0);
    cr_expect_str_eq(ready(rig, rig->a), "6/3F/0E");
    const struct rig_reply *reply = rig_do(rig, rig->b, CDB(0xa0, [8] = 1), NULL, 0);
    cr_expect_eq(reply->len, 24);
    cr_expect_eq(get_be32(reply->data), 16);
    cr_expect_eq(get_be64(reply->data + 8), 0);
    cr_expect_arr_eq(reply->data + 16, lun7, 8);
    cr_expect_str_eq(ready(rig, rig->b), "good", "REPORT LUNS has told");
    cr_expect_not_null(scsi_nexus_lu(rig->a, lun7));
    scsi_nexus_destroy(rig->a);
    scsi_nexus_destroy(rig->b);
    rig->a = rig->b = NULL;
    scsi_target_destroy(rig->target);
    test_close(rig->t, &second->dev);
    rig->target = scsi_target_create(&rig->t->loop, "iqn.x");
    rig_destroy(rig);
}

Test(scsi_unit, report_luns_selects_and_needs_room)
{
    struct rig *rig = rig_create(NULL);
    static const uint32_t lengths[3] = {16, 8, 16};
    for (uint8_t select = 0; select < 3; select++)
        cr_expect_eq(rig_do(rig, rig->a, CDB(0xa0, 0, select, [8] = 1), NULL, 0)->len, lengths[select]);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0xa0, 0, 3, [8] = 1);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0xa0, [9] = 15);
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0xa0, [6] = 0xff, 0xff, 0xff, 0xff);
    rig_destroy(rig);
}

/* --- reservations --- */

Test(scsi_unit, a_reservation_keeps_others_out_until_released)
{
    struct rig *rig = rig_create(NULL);
    static const uint8_t reserves[] = {0x16, 0x56}, releases[] = {0x17, 0x57};
    for (unsigned i = 0; i < 2; i++) {
        EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, reserves[i]);
        EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, reserves[i]);
        EXPECT_OUTCOME(rig, rig->b, "conflict", NULL, 0, reserves[i]);
        EXPECT_OUTCOME(rig, rig->b, "good", NULL, 0, releases[i]);
        static const uint8_t refused[] = {0x00, 0x28, 0x2a, 0x1a, 0x15, 0x25, 0x35, 0x42, 0x93, 0x1b};
        for (unsigned k = 0; k < sizeof refused; k++)
            EXPECT_OUTCOME(rig, rig->b, "conflict", NULL, 0, refused[k]);
        EXPECT_OUTCOME(rig, rig->b, "good", NULL, 0, 0x12, [4] = 96);
        EXPECT_OUTCOME(rig, rig->b, "good", NULL, 0, 0x03, [4] = 18);
        EXPECT_OUTCOME(rig, rig->b, "good", NULL, 0, 0xa0, [8] = 1);
        EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x1a, 0, 0x3f, 0, 255);
        EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, releases[i]);
        EXPECT_OUTCOME(rig, rig->b, "good", NULL, 0, 0x00);
    }
    rig_destroy(rig);
}

Test(scsi_unit, a_reservation_ends_with_its_nexus_and_with_resets)
{
    struct rig *rig = rig_create(NULL);
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x16);
    scsi_lun_reset(rig->target, lun0);
    cr_expect_str_eq(ready(rig, rig->b), "6/29/03");
    cr_expect_str_eq(ready(rig, rig->b), "good");
    cr_expect_str_eq(ready(rig, rig->a), "6/29/03");
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x16);
    scsi_target_reset(rig->target);
    cr_expect_str_eq(ready(rig, rig->b), "6/29/02");
    cr_expect_str_eq(ready(rig, rig->b), "good");
    cr_expect_str_eq(ready(rig, rig->a), "6/29/02");
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x16);
    cr_expect_str_eq(ready(rig, rig->b), "conflict");
    scsi_nexus_destroy(rig->a);
    rig->a = NULL;
    cr_expect_str_eq(ready(rig, rig->b), "good");
    rig_destroy(rig);
}

Test(scsi_unit, a_new_size_is_told_and_there_when_it_is)
{
    struct rig *rig = rig_create(NULL);
    struct scsi_nexus *const nexuses[] = {rig->a, rig->b};
    rig->disk->dev.info.size = RIG_DISK_BYTES / 2;
    blk_notify(&rig->disk->dev, BLK_EVENT_RESIZED);
    for (unsigned i = 0; i < 2; i++) {
        const uint8_t *read_capacity = CDB(0x9e, 0x10, [13] = 32);
        cr_expect_str_eq(rig_outcome(rig_do(rig, nexuses[i], read_capacity, NULL, 0)), "6/2A/09");
        cr_expect_eq(get_be64(rig_do(rig, nexuses[i], read_capacity, NULL, 0)->data), RIG_DISK_BYTES / 2 / 512 - 1);
    }
    EXPECT_OUTCOME(rig, rig->a, "5/21/00", NULL, 0, 0x28, [4] = RIG_DISK_BYTES / 2 / 512 >> 8, [8] = 1);
    rig->disk->dev.info.size = RIG_DISK_BYTES;
    rig_destroy(rig);
}

/* --- REPORT SUPPORTED OPERATION CODES --- */

static const struct rig_reply *opcodes(struct rig *rig, uint8_t option, uint8_t opcode, uint8_t action)
{
    return rig_do(rig, rig->a, CDB(0xa3, 0x0c, option, opcode, 0, action, 0, 0, 0x20, 0), NULL, 0);
}

Test(scsi_unit, all_opcodes_are_reported_as_the_table_has_them)
{
    struct rig *rig = rig_create(&(struct rig_options){.removable = true});
    rig->disk->dev.info.atomic_write = 4096;
    unsigned count;
    const struct scsi_command *rows = scsi_commands(&count);
    for (unsigned timeouts = 0; timeouts < 2; timeouts++) {
        uint32_t each = timeouts ? 20 : 8;
        const struct rig_reply *reply = opcodes(rig, timeouts ? 0x80 : 0, 0, 0);
        cr_expect_eq(reply->len, 4 + count * each);
        cr_expect_eq(get_be32(reply->data), count * each);
        for (unsigned i = 0; i < count; i++) {
            const uint8_t *at = reply->data + 4 + i * each;
            cr_expect_eq(at[0], rows[i].opcode);
            cr_expect_eq(get_be16(at + 2), rows[i].action);
            cr_expect_eq(at[5], (timeouts ? 2 : 0) | rows[i].has_action);
            cr_expect_eq(get_be16(at + 6), rows[i].cdb_len);
            if (timeouts)
                cr_expect_eq(get_be16(at + 8), 10);
        }
    }
    rig->disk->dev.info.discards = false;
    cr_expect_eq(opcodes(rig, 0, 0, 0)->len, 4 + (count - 2) * 8, "neither UNMAP nor BLOCK ERASE");
    rig_destroy(rig);
}

Test(scsi_unit, one_opcode_is_reported_with_its_usage_map)
{
    struct rig *rig = rig_create(NULL);
    static const uint8_t read10[14] = {0, 3, 0, 10, 0x28, 0x18, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0};
    const struct rig_reply *reply = opcodes(rig, 1, 0x28, 0);
    cr_expect_eq(reply->len, 14);
    cr_expect_arr_eq(reply->data, read10, 14);
    reply = opcodes(rig, 0x81, 0x28, 0);
    cr_expect_eq(reply->len, 26);
    cr_expect_eq(reply->data[1], 0x83);
    cr_expect_eq(get_be16(reply->data + 14), 10);
    reply = opcodes(rig, 2, 0x9e, 0x10);
    cr_expect_eq(reply->len, 20);
    cr_expect_arr_eq(reply->data, ((uint8_t[]){0, 3, 0, 16, 0x9e, 0x10}), 6);
    cr_expect_arr_eq(opcodes(rig, 3, 0x28, 0)->data, read10, 14);
    rig_destroy(rig);
}

Test(scsi_unit, opcodes_asked_for_that_do_not_exist_or_are_asked_for_wrongly)
{
    struct rig *rig = rig_create(NULL);
    static const struct {
        uint8_t option, opcode, action;
        const char *outcome;
    } cases[] = {{1, 0xff, 0, "good"},    {2, 0x9e, 0x13, "good"}, {3, 0x28, 1, "good"},    {3, 0x9e, 0x13, "good"},
                 {1, 0x9e, 0, "5/24/00"}, {2, 0x28, 0, "5/24/00"}, {4, 0x28, 0, "5/24/00"}, {7, 0x28, 0, "5/24/00"}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        const struct rig_reply *reply = opcodes(rig, cases[i].option, cases[i].opcode, cases[i].action);
        cr_expect_str_eq(rig_outcome(reply), cases[i].outcome, "case %u", i);
        if (reply->status == SCSI_GOOD) {
            cr_expect_eq(reply->len, 4);
            cr_expect_eq(reply->data[1], 1, "case %u: not supported", i);
        }
    }
    rig_destroy(rig);
}

/* --- the rest --- */

Test(scsi_unit, request_sense_in_both_formats_and_for_no_lun)
{
    struct rig *rig = rig_create(NULL);
    const struct rig_reply *reply = rig_do(rig, rig->a, CDB(0x03, 0, 0, 0, 255), NULL, 0);
    cr_expect_eq(reply->len, 18);
    cr_expect_arr_eq(reply->data, ((uint8_t[18]){0x70, [7] = 10}), 18);
    reply = rig_do(rig, rig->a, CDB(0x03, 1, 0, 0, 255), NULL, 0);
    cr_expect_eq(reply->len, 8);
    cr_expect_arr_eq(reply->data, ((uint8_t[8]){0x72}), 8);
    cr_expect_eq(rig_do(rig, rig->a, CDB(0x03, 0, 0, 0, 3), NULL, 0)->len, 3);
    rig_destroy(rig);
}

Test(scsi_unit, start_stop_flushes_and_refuses_what_is_not_there)
{
    struct rig *rig = rig_create(NULL);
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x1b, 0, 0, 0, 0);
    cr_expect_eq(rig->disk->flushes, 1);
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x1b, 0, 0, 0, 1);
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x1b, 0, 0, 0, 4);
    cr_expect_eq(rig->disk->flushes, 1, "START, NO_FLUSH");
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0x1b, 0, 0, 0, 2);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0x1b, 0, 0, 0, 0x30);
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x1d, 4);
    rig_destroy(rig);
}

Test(scsi_unit, a_failed_device_is_not_ready_until_restored)
{
    struct rig *rig = rig_create(NULL);
    blk_notify(&rig->disk->dev, BLK_EVENT_DEGRADED);
    cr_expect_str_eq(ready(rig, rig->a), "good");
    blk_notify(&rig->disk->dev, BLK_EVENT_FAILED);
    cr_expect_str_eq(ready(rig, rig->a), "2/04/03");
    cr_expect_eq(rig_do(rig, rig->a, CDB(0x03, [4] = 18), NULL, 0)->data[2], 2);
    blk_notify(&rig->disk->dev, BLK_EVENT_RESTORED);
    cr_expect_str_eq(ready(rig, rig->a), "good");
    blk_notify(&rig->disk->dev, BLK_EVENT_FAILED);
    blk_notify(&rig->disk->dev, BLK_EVENT_DEGRADED);
    cr_expect_str_eq(ready(rig, rig->a), "good");
    rig_destroy(rig);
}

Test(scsi_unit, done_comes_after_run_also_for_what_is_known_at_once)
{
    struct rig *rig = rig_create(NULL);
    struct rig_task *task = rig_start(rig, rig->a, CDB(0x00), NULL, 0); /* asserts that done did not run inside */
    scsi_task_abort(&task->task);
    cr_assert(testloop_run_until(rig->t, &task->done));
    cr_expect_eq(task->task.status, SCSI_TASK_ABORTED, "given up before its end was told");
    rig_end(task);
    rig_destroy(rig);
}

Test(scsi_unit, the_transport_can_end_a_task_with_sense_of_its_own)
{
    struct scsi_task task = {0};
    scsi_task_set_sense(&task, 0xb, 0x0c, 0x0d);
    cr_expect_eq(task.status, SCSI_CHECK_CONDITION);
    cr_expect_eq(task.sense_len, 18);
    cr_expect_arr_eq(task.sense, ((uint8_t[]){0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x0c, 0x0d}), 14);
}

Test(scsi_unit, sense_information_that_does_not_fit_is_left_out_of_the_fixed_format)
{
    struct scsi_sense sense = scsi_sense_of_block(BLK_MEDIA, false, 1ull << 32);
    uint8_t out[SENSE_DESCRIPTOR_BYTES];
    cr_expect_eq(scsi_sense_build(out, &sense, false), 18);
    cr_expect_eq(out[0], 0x70, "not valid");
    cr_expect_eq(scsi_sense_build(out, &sense, true), 20);
    cr_expect_arr_eq(out, ((uint8_t[]){0x72, 3, 0x11, 0, 0, 0, 0, 12, 0, 10, 0x80, 0}), 12);
    cr_expect_eq(get_be64(out + 12), 1ull << 32);
}

Test(scsi_unit, sense_points_at_the_field_of_the_cdb_that_is_wrong)
{
    struct rig *rig = rig_create(NULL);
    struct rig_task *task = rig_start(rig, rig->a, CDB(0x28, 0, 0, 0, 0, 0, 0x80, 0, 1), NULL, 0);
    cr_expect_arr_eq(task->task.sense + 12, ((uint8_t[]){0x24, 0, 0, 0xc0, 0, 6}), 6);
    rig_end(task);
    task = rig_start(rig, rig->a, CDB(0xa3, 0x1e), NULL, 0);
    cr_expect_arr_eq(task->task.sense + 15, ((uint8_t[]){0xc0, 0, 1}), 3);
    rig_end(task);
    const struct scsi_sense sense = {.key = 5, .asc = 0x24, .has_information = true, .information = 9, .cdb_byte = 3};
    uint8_t out[SENSE_DESCRIPTOR_BYTES];
    cr_expect_eq(scsi_sense_build(out, &sense, true), 28);
    cr_expect_eq(out[7], 20);
    cr_expect_arr_eq(out + 20, ((uint8_t[]){2, 6, 0, 0, 0xc0, 0, 3, 0}), 8);
    rig_destroy(rig);
}

Test(scsi_unit, a_target_without_pages_is_not_created)
{
    struct testloop *t = testloop_create(SCSI_SCRATCH_PAGES - 1, 1);
    cr_expect_null(scsi_target_create(&t->loop, "iqn.x"));
    testloop_destroy(t);
}
