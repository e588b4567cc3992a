/* SANITIZE: what it writes, what it lets through meanwhile, what it leaves behind. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "core/bytes.h"
#include "core/check.h"
#include "tests/unit/target/scsi_rig.h"

static uint8_t list[4 + 4096 + 8];

enum { OVERWRITE = 0x01, ERASE = 0x02, EXIT = 0x1f, IMMED = 0x80, AUSE = 0x20, INVERT = 0x80, SLOW_NS = 1000000 };

static const uint8_t *cdb(uint8_t action, uint16_t len)
{
    static uint8_t bytes[SCSI_CDB_MAX];
    memset(bytes, 0, sizeof bytes);
    bytes[0] = 0x48;
    bytes[1] = action;
    put_be16(bytes + 7, len);
    return bytes;
}

static uint16_t pattern(uint8_t flags, const char *text)
{
    uint16_t len = (uint16_t)strlen(text);
    list[0] = flags;
    list[1] = 0;
    put_be16(list + 2, len);
    memcpy(list + 4, text, len);
    return (uint16_t)(4 + len);
}

static const char *overwrite(struct rig *rig, uint8_t bits, uint8_t flags, const char *text)
{
    uint16_t len = pattern(flags, text);
    return rig_outcome(rig_do(rig, rig->a, cdb(OVERWRITE | bits, len), list, len));
}

static const char *order(struct rig *rig, uint8_t action)
{
    return rig_outcome(rig_do(rig, rig->a, cdb(action, 0), NULL, 0));
}

static const char *test_unit(struct rig *rig)
{
    return rig_outcome(rig_do(rig, rig->b, CDB(0x00), NULL, 0));
}

struct pause {
    struct timer timer;
    bool over;
};

static void pause_over(struct timer *timer)
{
    container_of(timer, struct pause, timer)->over = true;
}

static void run_for(struct rig *rig, uint64_t ns)
{
    struct pause pause = {.timer.fire = pause_over};
    timer_start(&rig->t->loop, &pause.timer, ns);
    cr_assert(testloop_run_until(rig->t, &pause.over));
}

static bool all_is(const struct rig *rig, const char *text, uint8_t flip)
{
    size_t len = strlen(text);
    for (uint32_t i = 0; i < RIG_DISK_BYTES; i++)
        if (rig->disk->bytes[i] != ((uint8_t)text[i % 512 % len] ^ flip))
            return false;
    return true;
}

Test(scsi_sanitize, overwrite_writes_the_pattern_to_every_block_so_many_times)
{
    struct rig *rig = rig_create(NULL);
    test_fill(rig->disk->bytes, RIG_DISK_BYTES, 3);
    cr_expect_str_eq(overwrite(rig, 0, 1, "abc"), "good");
    cr_expect(all_is(rig, "abc", 0));
    cr_expect_eq(rig->disk->dev.counters.bytes[BLK_WRITE], RIG_DISK_BYTES);
    cr_expect_eq(rig->disk->flushes, 1);
    cr_expect_str_eq(overwrite(rig, 0, INVERT | 3, "Z"), "good");
    cr_expect(all_is(rig, "Z", 0));
    cr_expect_eq(rig->disk->dev.counters.bytes[BLK_WRITE], 4u * RIG_DISK_BYTES);
    cr_expect_str_eq(overwrite(rig, 0, INVERT | 2, "xy"), "good");
    cr_expect(all_is(rig, "xy", 0xff));
    cr_expect_str_eq(test_unit(rig), "good");
    rig_destroy(rig);
}

Test(scsi_sanitize, block_erase_overwrites_and_then_gives_the_space_back)
{
    struct rig *rig = rig_create(NULL);
    test_fill(rig->disk->bytes, RIG_DISK_BYTES, 3);
    cr_expect_str_eq(order(rig, ERASE), "good");
    cr_expect(rig->disk->bytes[0] == 0 && memcmp(rig->disk->bytes, rig->disk->bytes + 1, RIG_DISK_BYTES - 1) == 0);
    cr_expect_eq(rig->disk->dev.counters.bytes[BLK_WRITE], RIG_DISK_BYTES);
    cr_expect_eq(rig->disk->dev.counters.bytes[BLK_WRITE_ZEROES], RIG_DISK_BYTES);
    const struct rig_reply *reply = rig_do(rig, rig->a, CDB(0x12, 1, 0xb1, 0, 64), NULL, 0);
    cr_expect_eq(reply->data[7] & 0xc0, 0x40, "WABEREQ: what is erased can be read");
    rig->disk->dev.info.discards = false;
    cr_expect_str_eq(order(rig, ERASE), "5/24/00");
    cr_expect_eq(rig_do(rig, rig->a, CDB(0x12, 1, 0xb1, 0, 64), NULL, 0)->data[7], 0);
    rig_destroy(rig);
}

static void submit_nothing(struct blkdev *dev, struct blk_req *req)
{
    (void)dev;
    blk_complete(req, BLK_OK);
}

Test(scsi_sanitize, space_is_given_back_in_bounded_steps_of_whole_rows)
{
    static const struct {
        uint32_t row;
        uint64_t longest;
        unsigned steps; /* of 600 MiB */
    } table[] = {
        {0, 256 * MIB, 3}, {256 * KIB, 256 * MIB, 3}, {96 * KIB, 2730 * 96 * KIB, 3}, {400 * MIB, 400 * MIB, 2}};
    static const struct blkdev_ops nothing = {.submit = submit_nothing};
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
        struct rig *rig = rig_create(NULL);
        rig->disk_ops = &nothing;
        rig->disk->dev.info.size = 600 * MIB;
        rig->disk->dev.info.optimal_io = table[i].row;
        cr_expect_str_eq(order(rig, ERASE), "good");
        cr_expect_eq(rig->longest, table[i].longest, "row %u", i);
        cr_expect_eq(rig->disk->dev.counters.requests[BLK_WRITE_ZEROES], table[i].steps, "row %u", i);
        cr_expect_eq(rig->disk->dev.counters.bytes[BLK_WRITE_ZEROES], 600 * MIB);
        rig->disk->dev.info.size = RIG_DISK_BYTES;
        rig_destroy(rig);
    }
}

Test(scsi_sanitize, steps_are_whole_rows_within_what_the_device_takes)
{
    static const struct {
        uint64_t max_request;
        uint64_t longest;
    } table[] = {{0, MIB}, {300 * KIB, 256 * KIB}, {100 * KIB + 512, 100 * KIB}, {4096, 4096}};
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
        struct rig *rig = rig_create(&(struct rig_options){.max_request = table[i].max_request});
        cr_expect_str_eq(overwrite(rig, 0, 1, "abc"), "good");
        cr_expect(all_is(rig, "abc", 0));
        cr_expect_eq(rig->longest, table[i].longest);
        rig_destroy(rig);
    }
}

Test(scsi_sanitize, lists_and_orders_that_are_wrong_are_refused)
{
    static const struct {
        uint8_t flags;
        uint16_t pattern_len, list_len;
        const char *outcome;
    } table[] = {{1, 0, 0, "5/24/00"},  {1, 0, 4, "5/24/00"},     {1, 512, 517, "5/24/00"}, {0, 8, 12, "5/26/00"},
                 {1, 0, 12, "5/26/00"}, {1, 516, 516, "5/26/00"}, {1, 9, 12, "5/26/00"},    {0x21, 8, 12, "5/26/00"},
                 {1, 512, 516, "good"}, {31, 1, 5, "good"}};
    struct rig *rig = rig_create(NULL);
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
        memset(list, 0, sizeof list);
        list[0] = table[i].flags;
        put_be16(list + 2, table[i].pattern_len);
        uint64_t writes = rig->disk->writes;
        cr_expect_str_eq(rig_outcome(rig_do(rig, rig->a, cdb(OVERWRITE, table[i].list_len), list, table[i].list_len)),
                         table[i].outcome, "row %u", i);
        cr_expect_eq(rig->disk->writes > writes, table[i].outcome[0] == 'g', "row %u", i);
    }
    static const uint8_t none[] = {0x00, 0x03, 0x04, 0x1e, 0x41};
    for (unsigned i = 0; i < sizeof none; i++)
        cr_expect_str_eq(order(rig, none[i]), "5/24/00", "action %02x", none[i]);
    cr_expect_str_eq(rig_outcome(rig_do(rig, rig->a, cdb(ERASE, 8), list, 8)), "5/24/00");
    rig_destroy(rig);
}

Test(scsi_sanitize, of_a_read_only_unit_is_refused)
{
    struct rig *rig = rig_create(&(struct rig_options){.read_only = true});
    cr_expect_str_eq(overwrite(rig, 0, 1, "a"), "7/27/00");
    cr_expect_str_eq(order(rig, ERASE), "7/27/00");
    rig_destroy(rig);
}

static uint16_t read_progress(struct rig *rig, uint8_t descriptors)
{
    const struct rig_reply *reply = rig_do(rig, rig->b, CDB(0x03, descriptors, 0, 0, 64), NULL, 0);
    const uint8_t *specific = reply->data + (descriptors ? 12 : 15);
    cr_expect_eq(reply->data[descriptors ? 1 : 2], 2);
    cr_expect_eq(reply->data[descriptors ? 3 : 13], 0x1b);
    cr_expect_eq(specific[0], 0x80, "SKSV");
    return get_be16(specific + 1);
}

Test(scsi_sanitize, goes_on_in_the_background_and_tells_how_far_it_is)
{
    struct rig *rig = rig_create(&(struct rig_options){.latency_ns = SLOW_NS});
    cr_expect_str_eq(overwrite(rig, IMMED, 4, "q"), "good");
    cr_expect_str_eq(test_unit(rig), "2/04/1B");
    cr_expect_str_eq(order(rig, ERASE), "2/04/1B", "another one");
    EXPECT_OUTCOME(rig, rig->b, "2/04/1B", NULL, 0, 0x28, 0, 0, 0, 0, 0, 0, 0, 1);
    EXPECT_OUTCOME(rig, rig->b, "good", NULL, 0, 0x12, 0, 0, 0, 96);
    EXPECT_OUTCOME(rig, rig->b, "good", NULL, 0, 0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16);
    EXPECT_OUTCOME(rig, rig->b, "5/20/00", NULL, 0, 0xff);
    uint32_t last = 0, seen = 0;
    while (rig->disk->flushes == 0) {
        uint16_t now = read_progress(rig, seen % 2);
        cr_expect_geq(now, last);
        seen += now > last;
        last = now;
        run_for(rig, SLOW_NS);
    }
    cr_expect_geq(seen, 10);
    testloop_run(rig->t);
    cr_expect_str_eq(test_unit(rig), "good");
    cr_expect(all_is(rig, "q", 0));
    rig_destroy(rig);
}

Test(scsi_sanitize, no_abort_or_reset_stops_it)
{
    struct rig *rig = rig_create(&(struct rig_options){.latency_ns = SLOW_NS});
    uint16_t len = pattern(1, "r");
    struct rig_task *task = rig_start(rig, rig->a, cdb(OVERWRITE, len), list, len);
    run_for(rig, SLOW_NS);
    scsi_task_abort(&task->task);
    cr_assert(testloop_run_until(rig->t, &task->done));
    cr_expect_eq(task->task.status, SCSI_TASK_ABORTED);
    rig_end(task);
    scsi_lun_reset(rig->target, (uint8_t[8]){0});
    scsi_nexus_destroy(rig->a);
    rig->a = NULL;
    cr_expect_str_eq(test_unit(rig), "6/29/03");
    cr_expect_str_eq(test_unit(rig), "2/04/1B");
    testloop_run(rig->t);
    cr_expect_str_eq(test_unit(rig), "good");
    cr_expect(all_is(rig, "r", 0));
    rig_destroy(rig);
}

/* One that is under way, and one whose data is still to come. */
Test(scsi_sanitize, begins_when_earlier_writes_are_over_and_lets_no_late_ones_in)
{
    struct rig *rig = rig_create(&(struct rig_options){.latency_ns = SLOW_NS});
    static uint8_t data[512] = {1};
    const uint8_t *write = CDB(0x2a, 0, 0, 0, 0, 5, 0, 0, 1);
    struct rig_task *early = rig_start(rig, rig->b, write, data, 512), *late = calloc(1, sizeof *late);
    late->task = (struct scsi_task){.nexus = rig->b, .transport_len = 512, .pages = late->pages, .received_len = 512};
    memcpy(late->task.cdb, write, SCSI_CDB_MAX);
    cr_assert(scsi_task_parse(&late->task));
    cr_assert(page_pool_get(rig->t->loop.pages, late->pages, 1));
    late->page_count = 1;
    uint16_t len = pattern(1, "s");
    struct rig_task *sanitize = rig_start(rig, rig->a, cdb(OVERWRITE, len), list, len);
    cr_expect_eq(rig->disk->writes, 1, "only the early one yet");
    rig_run(rig, late);
    cr_expect_eq(late->task.status, SCSI_CHECK_CONDITION);
    cr_expect_eq(late->task.sense[13], 0x1b);
    testloop_run(rig->t);
    cr_expect_eq(early->task.status, SCSI_GOOD);
    cr_expect_eq(sanitize->task.status, SCSI_GOOD);
    cr_expect(all_is(rig, "s", 0));
    rig_end(early);
    rig_end(late);
    rig_end(sanitize);
    rig_destroy(rig);
}

Test(scsi_sanitize, also_holds_for_other_units_that_show_the_device)
{
    struct rig *rig = rig_create(&(struct rig_options){.latency_ns = SLOW_NS});
    struct scsi_lu_options same = {.dev = &rig->disk->dev};
    cr_assert_eq(scsi_target_add_lun(rig->target, 5, &same), 0);
    rig->lun = 5;
    for (unsigned i = 0; i < 3; i++)
        test_unit(rig);
    cr_expect_str_eq(test_unit(rig), "good");
    rig->lun = 0;
    cr_expect_str_eq(test_unit(rig), "6/3F/0E");
    rig_do(rig, rig->a, CDB(0x00), NULL, 0);
    cr_expect_str_eq(overwrite(rig, IMMED, 1, "q"), "good");
    rig->lun = 5;
    cr_expect_str_eq(test_unit(rig), "2/04/1B");
    testloop_run(rig->t);
    cr_expect_str_eq(test_unit(rig), "good");
    rig_destroy(rig);
}

Test(scsi_sanitize, writes_no_faster_than_it_may)
{
    struct rig *rig = rig_create(&(struct rig_options){.sanitize_rate = 2 * MIB});
    uint64_t before = loop_now_ns(&rig->t->loop);
    cr_expect_str_eq(overwrite(rig, 0, 1, "q"), "good");
    cr_expect_geq(loop_now_ns(&rig->t->loop) - before, 2000000000u, "4 MiB");
    rig_destroy(rig);
}

Test(scsi_sanitize, waits_for_no_pace_when_it_gives_the_space_back)
{
    struct rig *rig = rig_create(&(struct rig_options){.sanitize_rate = 2 * MIB});
    uint64_t before = loop_now_ns(&rig->t->loop);
    cr_expect_str_eq(order(rig, ERASE), "good");
    uint64_t took = loop_now_ns(&rig->t->loop) - before;
    cr_expect(took >= 2000000000u && took < 2500000000u, "%llu ns for 4 MiB", (unsigned long long)took);
    rig_destroy(rig);
}

/* --- when it fails --- */

static void fail_from(struct rig *rig, bool fail)
{
    rig->fail = fail;
    rig->fail_op = BLK_WRITE;
    rig->fail_status = BLK_GONE;
    rig->fail_off = 2 * MIB;
}

Test(scsi_sanitize, that_fails_locks_the_unit_until_one_succeeds)
{
    struct rig *rig = rig_create(NULL);
    fail_from(rig, true);
    cr_expect_str_eq(overwrite(rig, 0, 1, "q"), "3/31/03");
    cr_expect_str_eq(test_unit(rig), "3/31/03");
    EXPECT_OUTCOME(rig, rig->b, "3/31/03", NULL, 0, 0x28, 0, 0, 0, 0, 0, 0, 0, 1);
    const struct rig_reply *reply = rig_do(rig, rig->b, CDB(0x03, 0, 0, 0, 18), NULL, 0);
    cr_expect_eq(reply->data[2], 3);
    cr_expect_str_eq(order(rig, EXIT), "3/31/03", "AUSE was not set");
    fail_from(rig, false);
    cr_expect_str_eq(order(rig, ERASE), "good");
    cr_expect_str_eq(test_unit(rig), "good");
    rig_destroy(rig);
}

Test(scsi_sanitize, that_fails_can_be_left_where_that_was_allowed)
{
    struct rig *rig = rig_create(NULL);
    fail_from(rig, true);
    cr_expect_str_eq(overwrite(rig, AUSE, 1, "q"), "3/31/03");
    cr_expect_str_eq(order(rig, EXIT), "good");
    cr_expect_str_eq(test_unit(rig), "good");
    cr_expect_null(rig->keeper.record);
    cr_expect_str_eq(order(rig, EXIT), "good", "there is nothing to leave");
    rig_destroy(rig);
}

Test(scsi_sanitize, is_not_begun_while_one_that_failed_is_being_left)
{
    struct rig *rig = rig_create(NULL);
    fail_from(rig, true);
    cr_expect_str_eq(overwrite(rig, AUSE, 1, "q"), "3/31/03");
    fail_from(rig, false);
    rig->keeper.hold = true;
    struct rig_task *leaving = rig_start(rig, rig->a, cdb(EXIT, 0), NULL, 0);
    struct rig_task *next = rig_start(rig, rig->a, cdb(ERASE, 0), NULL, 0);
    testloop_run(rig->t);
    cr_expect(next->done && next->task.status == SCSI_BUSY);
    cr_expect_not(leaving->done);
    rig->keeper.hold = false;
    rig_keeper_answer(&rig->keeper);
    testloop_run(rig->t);
    cr_expect(leaving->done && leaving->task.status == SCSI_GOOD);
    cr_expect_str_eq(order(rig, ERASE), "good", "now it is");
    rig_end(leaving);
    rig_end(next);
    rig_destroy(rig);
}

/* --- through a restart --- */

Test(scsi_sanitize, is_kept_from_before_the_first_write_to_after_the_last)
{
    struct rig *rig = rig_create(NULL);
    rig->keeper.hold = true;
    uint16_t len = pattern(1, "t");
    struct rig_task *task = rig_start(rig, rig->a, cdb(OVERWRITE, len), list, len);
    testloop_run(rig->t);
    cr_expect_eq(rig->disk->writes, 0);
    rig_keeper_answer(&rig->keeper);
    testloop_run(rig->t);
    cr_expect_str_eq(rig->keeper.record,
                     "{\"generation\":0,\"type\":0,\"holder\":0,\"registrations\":[],\"sanitize\":1}");
    cr_expect(all_is(rig, "t", 0));
    cr_expect_not(task->done);
    cr_expect_str_eq(test_unit(rig), "2/04/1B");
    rig_keeper_answer(&rig->keeper);
    cr_assert(testloop_run_until(rig->t, &task->done));
    cr_expect_eq(task->task.status, SCSI_GOOD);
    cr_expect_null(rig->keeper.record);
    rig_end(task);
    rig_destroy(rig);
}

Test(scsi_sanitize, keeps_reservations_that_are_kept_too)
{
    struct rig *rig = rig_create(NULL);
    uint8_t registration[24] = {[15] = 0xab, [20] = 1};
    rig_do(rig, rig->a, CDB(0x5f, 0, 0, 0, 0, 0, 0, 0, 24), registration, 24);
    char *record = strdup(rig->keeper.record);
    cr_expect_str_eq(overwrite(rig, 0, 1, "q"), "good");
    cr_expect_eq(rig->keeper.calls, 3);
    cr_expect_str_eq(rig->keeper.record, record);
    free(record);
    rig_destroy(rig);
}

Test(scsi_sanitize, does_not_begin_if_it_cannot_be_kept)
{
    struct rig *rig = rig_create(NULL);
    rig->keeper.error = -5;
    cr_expect_str_eq(overwrite(rig, IMMED, 1, "q"), "4/44/00");
    cr_expect_eq(rig->disk->writes, 0);
    cr_expect_str_eq(test_unit(rig), "good");
    rig_destroy(rig);
    rig = rig_create(&(struct rig_options){.no_keeper = true});
    cr_expect_str_eq(overwrite(rig, 0, 1, "q"), "good", "without a keeper nothing is promised");
    rig_destroy(rig);
}

Test(scsi_sanitize, interrupted_by_a_stop_is_one_that_failed)
{
    for (unsigned ause = 0; ause < 2; ause++)
        for (unsigned paced = 0; paced < 2; paced++) {
            struct rig *rig =
                rig_create(&(struct rig_options){.latency_ns = SLOW_NS, .sanitize_rate = paced ? MIB : 0});
            cr_expect_str_eq(overwrite(rig, ause ? IMMED | AUSE : IMMED, 1, "q"), "good");
            run_for(rig, 2 * SLOW_NS + SLOW_NS / 2);
            uint64_t writes = rig->disk->writes;
            cr_expect(writes > 0 && writes < 4);
            rig_stop(rig);
            cr_expect_leq(rig->disk->writes, writes + 1);
            char *record = strdup(rig->keeper.record);
            rig_destroy(rig);
            rig = rig_create(&(struct rig_options){.record = record});
            free(record);
            cr_expect_str_eq(test_unit(rig), "3/31/03");
            cr_expect_str_eq(order(rig, EXIT), ause ? "good" : "3/31/03");
            cr_expect_str_eq(overwrite(rig, 0, 1, "q"), "good");
            cr_expect(all_is(rig, "q", 0));
            cr_expect_str_eq(test_unit(rig), "good");
            rig_destroy(rig);
        }
}
