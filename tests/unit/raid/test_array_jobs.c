/* Jobs that are paused, go on after a restart, and find that somebody was there before them. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "raid/array_impl.h"
#include "raid/job_pace.h"
#include "tests/unit/raid/arrays.h"

enum { DISK = 40 * 1024 * 1024, ROW = 3 * 65536, SECOND = 1000000000 };

/* Four slow disks, written from a seed, with a blank one in slot 1 that is to be filled; paused. */
static struct rig *rig_rebuilding(enum raid_level level, uint64_t latency_ns)
{
    struct rig *rig = rig_create(4, DISK);
    cr_assert(rig_make_one(rig, level, 0), "%s", rig->message);
    cr_assert_eq(rig_fill(rig, "v", 1, MIB), BLK_OK);
    testloop_run(rig->t);
    cr_assert(rig_fail(rig, 1), "%s", rig->message);
    rig_disk_replace(rig, 1, DISK, 512);
    cr_assert(rig_pause(rig, 0, true), "%s", rig->message);
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    for (unsigned i = 0; i < 4; i++)
        rig->mem[i]->latency_ns = latency_ns;
    return rig;
}

/* Redundancy and the filled disk are right if everything reads back without another one. */
static void expect_whole(struct rig *rig, uint64_t seed)
{
    for (unsigned i = 0; i < 4; i++)
        rig->mem[i]->latency_ns = 100000;
    rig_settle(rig);
    cr_expect_str_eq(rig_info(rig).state, "optimal");
    cr_expect(rig_holds(rig, "v", seed));
    cr_assert(rig_fail(rig, 0), "%s", rig->message);
    cr_expect(rig_holds(rig, "v", seed), "without another disk");
}

static uint64_t left(struct rig *rig)
{
    struct array_info info = rig_info(rig);
    return info.jobs_count > 0 ? info.jobs[0].total_bytes - info.jobs[0].done_bytes : 0;
}

Test(array_jobs, a_paused_rebuild_waits_also_after_a_restart)
{
    struct rig *rig = rig_rebuilding(RAID_5, 100000);
    struct sb_label label;
    rig_wait(rig, 20ull * SECOND);
    uint64_t before = left(rig);
    cr_expect_gt(before, 0);
    cr_expect_str_eq(rig_info(rig).jobs[0].waits_for, "paused");
    cr_assert_eq(rig_label(rig, 0, &label), SB_VALID);
    cr_expect(label.array.volumes[0].paused);
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
    rig_wait(rig, 5ull * SECOND);
    cr_expect_eq(left(rig), before);
    cr_assert(rig_pause(rig, 0, false), "%s", rig->message);
    expect_whole(rig, 1);
    rig_destroy(rig);
}

Test(array_jobs, a_rebuild_that_is_paused_goes_on_where_it_was)
{
    struct rig *rig = rig_rebuilding(RAID_5, 50000000);
    uint64_t all = left(rig);
    cr_assert(rig_pause(rig, 0, false));
    rig_wait(rig, 100000000);
    cr_assert(rig_pause(rig, 0, true));
    rig_wait(rig, 100000000);
    uint64_t before = left(rig);
    cr_expect(before > 0 && before < all);
    rig_wait(rig, SECOND);
    cr_expect_eq(left(rig), before);
    cr_assert(rig_pause(rig, 0, false));
    cr_expect_leq(left(rig), before);
    expect_whole(rig, 1);
    rig_destroy(rig);
}

Test(array_jobs, what_is_held_stops_at_once_is_not_written_down_and_goes_on_where_it_was)
{
    struct rig *rig = rig_rebuilding(RAID_5, 50000000);
    struct sb_label label;
    uint64_t all = left(rig);
    cr_assert(rig_pause(rig, 0, false));
    rig_wait(rig, 200000000);
    array_hold_jobs(rig->array, "the mains");
    rig_wait(rig, 300000000); /* rows in flight */
    uint64_t before = left(rig);
    cr_expect(before > 0 && before < all, "%llu of %llu", (unsigned long long)before, (unsigned long long)all);
    rig_wait(rig, 5ull * SECOND);
    cr_expect_eq(left(rig), before);
    cr_expect_str_eq(rig_info(rig).jobs[0].waits_for, "the mains");
    cr_expect_not(rig_info(rig).jobs[0].paused);
    cr_assert_eq(rig_label(rig, 0, &label), SB_VALID);
    cr_expect_not(label.array.volumes[0].paused);
    array_hold_jobs(rig->array, NULL);
    cr_expect_str_eq(rig_info(rig).jobs[0].waits_for, "");
    cr_expect_leq(left(rig), before);
    expect_whole(rig, 1);
    rig_destroy(rig);
}

Test(array_jobs, what_an_operator_paused_stays_so_when_it_is_held_no_more)
{
    struct rig *rig = rig_rebuilding(RAID_5, 100000);
    uint64_t before = left(rig);
    array_hold_jobs(rig->array, "the mains");
    cr_expect_str_eq(rig_info(rig).jobs[0].waits_for, "paused");
    array_hold_jobs(rig->array, NULL);
    rig_wait(rig, 20ull * SECOND);
    cr_expect_eq(left(rig), before);
    array_hold_jobs(rig->array, "the mains");
    cr_assert(rig_pause(rig, 0, false), "%s", rig->message);
    rig_wait(rig, 20ull * SECOND);
    cr_expect_eq(left(rig), before, "resumed by hand while it was held");
    cr_expect_str_eq(rig_info(rig).jobs[0].waits_for, "the mains");
    array_hold_jobs(rig->array, NULL);
    expect_whole(rig, 1);
    rig_destroy(rig);
}

Test(array_jobs, what_is_asked_for_while_all_is_held_waits_and_a_restart_knows_nothing_of_it)
{
    struct rig *rig = rig_create(4, DISK);
    cr_assert(rig_make_one(rig, RAID_5, 0), "%s", rig->message);
    cr_assert_eq(rig_fill(rig, "v", 1, MIB), BLK_OK);
    rig_settle(rig);
    array_hold_jobs(rig->array, "the mains");
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_CHECK), "%s", rig->message);
    rig_wait(rig, 20ull * SECOND);
    cr_assert_eq(rig_info(rig).jobs_count, 1);
    cr_expect_str_eq(rig_info(rig).jobs[0].waits_for, "the mains");
    cr_expect_eq(rig_info(rig).jobs[0].done_bytes, 0);
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
    rig_settle(rig);
    cr_expect_eq(rig_info(rig).jobs_count, 0);
    cr_expect(rig_holds(rig, "v", 1));
    rig_destroy(rig);
}

Test(array_jobs, a_rebuild_goes_on_where_it_was_after_a_stop_and_after_a_kill)
{
    for (unsigned kill = 0; kill < 2; kill++) {
        struct rig *rig = rig_rebuilding(RAID_5, 500000000);
        struct sb_label label;
        uint64_t all = left(rig);
        cr_assert(rig_pause(rig, 0, false));
        rig_wait(rig, 12ull * SECOND);
        uint64_t before = left(rig);
        cr_expect(before > 0 && before < all / 2, "%llu of %llu", (unsigned long long)before, (unsigned long long)all);
        if (kill)
            rig_kill(rig);
        else
            cr_assert(rig_close(rig), "%s", rig->message);
        cr_assert_eq(rig_label(rig, 0, &label), SB_VALID);
        cr_expect(label.array.members[1].filling);
        cr_expect_gt(label.array.volumes[0].rebuilt, 0);
        cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
        cr_expect_leq(left(rig), kill ? all * 2 / 3 : before, "kill %u: %llu", kill, (unsigned long long)left(rig));
        expect_whole(rig, 1);
        cr_assert_eq(rig_label(rig, 0, &label), SB_VALID);
        cr_expect_not(label.array.members[1].filling);
        rig_destroy(rig);
    }
}

Test(array_jobs, rows_below_the_position_that_a_crash_left_in_doubt_are_done_again)
{
    struct rig *rig = rig_rebuilding(RAID_10, 100000); /* with parity it would wait for more disks */
    uint8_t row[ROW], junk[65536];
    cr_assert(rig_rate(rig, 0, 20, 0, 5 * MIB));
    cr_assert(rig_pause(rig, 0, false));
    rig_wait(rig, 14ull * SECOND);
    test_fill(row, ROW, 1);
    cr_assert_eq(test_io(rig->t, array_volume(rig->array, "v"), BLK_WRITE, 0, 0, row, 4096), BLK_OK);
    cr_assert_gt(left(rig), 0, "or it is none below a position");
    uint64_t at = array_description(rig->array)->data_start;
    rig_kill(rig);
    memset(junk, 0x5a, sizeof junk);
    memcpy(rig->mem[1]->bytes + at, junk, sizeof junk); /* what the crash may have left of row 0 on the new disk */
    cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
    cr_expect_gt(rig->assembly.array.volumes[0].rebuilt, 0);
    expect_whole(rig, 1);
    rig_destroy(rig);
}

Test(array_jobs, rows_that_are_written_in_full_are_done_in_passing)
{
    struct rig *rig = rig_rebuilding(RAID_5, 100000);
    uint64_t before = left(rig);
    cr_assert_eq(rig_fill(rig, "v", 2, ROW), BLK_OK);
    cr_expect_lt(left(rig), before / 50, "%llu of %llu", (unsigned long long)left(rig), (unsigned long long)before);
    uint64_t reads = rig->mem[0]->reads;
    cr_assert(rig_pause(rig, 0, false));
    rig_settle(rig);
    cr_expect_lt(rig->mem[0]->reads - reads, 20, "nothing was read for them");
    expect_whole(rig, 2);
    rig_destroy(rig);
}

Test(array_jobs, rows_that_are_written_in_part_are_not)
{
    struct rig *rig = rig_rebuilding(RAID_5, 100000);
    uint64_t before = left(rig);
    cr_assert_eq(rig_fill(rig, "v", 2, 65536), BLK_OK);
    cr_expect_eq(left(rig), before);
    cr_assert(rig_pause(rig, 0, false));
    expect_whole(rig, 2);
    rig_destroy(rig);
}

Test(array_jobs, rates_are_checked_and_written_down)
{
    static const struct {
        unsigned priority;
        uint64_t min, max;
        bool good;
    } cases[] = {{1, 0, 0, true},    {100, 1, 1, true},          {50, 10 * MIB, 0, true}, {0, 0, 0, false},
                 {101, 0, 0, false}, {20, UINT64_MAX, 0, false}, {20, 2, 1, false}};
    struct rig *rig = rig_create(4, DISK);
    struct array_spec *spec = rig_spec(rig);
    struct sb_label label;
    rig_spec_add(spec, "v", RAID_5, 3 * MIB);
    rig_spec_add(spec, "s", RAID_0, 4 * MIB);
    cr_assert(rig_make(rig, spec), "%s", rig->message);
    cr_expect_eq(array_rate(rig->array, 0).priority, PACE_PRIORITY);
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        bool good = rig_rate(rig, 0, cases[i].priority, cases[i].min, cases[i].max);
        cr_expect_eq(good, cases[i].good, "case %u: %s", i, rig->message);
        cr_expect(good || rig->error == -EINVAL);
        cr_assert_eq(rig_label(rig, 2, &label), SB_VALID);
        cr_expect(!good || label.array.volumes[0].priority == cases[i].priority, "case %u", i);
        cr_expect(!good || label.array.volumes[0].max_rate == cases[i].max, "case %u", i);
    }
    cr_expect_not(rig_rate(rig, 1, 20, 0, 0), "a stripe has no redundancy");
    cr_expect_not(rig_pause(rig, 1, true));
    rig_destroy(rig);
}

Test(array_jobs, a_maximum_rate_is_kept_by_a_rebuild)
{
    struct rig *rig = rig_rebuilding(RAID_5, 100000);
    cr_assert(rig_rate(rig, 0, 20, 0, 8 * MIB), "%s", rig->message);
    cr_assert(rig_pause(rig, 0, false));
    rig_wait(rig, SECOND);
    uint64_t before = left(rig);
    rig_wait(rig, 4ull * SECOND);
    uint64_t did = before - left(rig);
    cr_expect(did > 28 * MIB && did < 36 * MIB, "%llu", (unsigned long long)did);
    rig_destroy(rig);
}

Test(array_jobs, a_rate_that_is_raised_counts_at_once)
{
    struct rig *rig = rig_rebuilding(RAID_5, 100000);
    cr_assert(rig_rate(rig, 0, 20, 0, KIB), "%s", rig->message);
    cr_assert(rig_pause(rig, 0, false));
    rig_wait(rig, 10ull * SECOND);
    uint64_t before = left(rig);
    rig_wait(rig, 10ull * SECOND);
    cr_expect_lt(before - left(rig), MIB);
    cr_assert(rig_rate(rig, 0, 20, 0, 8 * MIB), "%s", rig->message);
    before = left(rig);
    rig_wait(rig, 4ull * SECOND);
    cr_expect_gt(before - left(rig), 24 * MIB);
    rig_destroy(rig);
}

/* --- what users of a volume want to be kept --- */

static void expect_kept(struct rig *rig, unsigned slot, const char *expected)
{
    struct sb_label label;
    cr_assert_eq(rig_label(rig, slot, &label), SB_VALID);
    char *kept = superblock_kept_get(&label.array, &label.array.volumes[0].uuid, "word");
    cr_assert_not_null(kept);
    cr_expect_str_eq(kept, expected, "slot %u", slot);
    free(kept);
}

Test(array_jobs, what_is_kept_with_a_volume_is_on_all_members_when_the_call_is_over)
{
    struct rig *rig = rig_create(3, DISK);
    cr_assert(rig_make_one(rig, RAID_0, 0), "%s", rig->message);
    cr_assert(rig_volume_keep(rig, 0, "word", "[1]"), "%s", rig->message);
    rig_kill(rig);
    for (unsigned slot = 0; slot < 3; slot++)
        expect_kept(rig, slot, "[1]");
    cr_assert(rig_assemble(rig, 0x7, false), "%s", rig->message);
    cr_assert(rig_volume_keep(rig, 0, "word", "{\"a\":2}"), "%s", rig->message);
    cr_expect(!rig_volume_keep(rig, 0, "word", "nonsense"));
    expect_kept(rig, 0, "{\"a\":2}");
    array_abandon(rig->array);
    cr_expect(!rig_volume_keep(rig, 0, "word", "[3]"));
    rig_destroy(rig);
}

Test(array_jobs, no_more_is_told_than_there_is_room_for)
{
    struct rig *rig = rig_rebuilding(RAID_5, 1000000);
    struct array_job_info info[2];
    memset(info, 0xa5, sizeof info);
    cr_assert(rig_pause(rig, 0, false), "%s", rig->message);
    rig_wait(rig, SECOND / 100);
    cr_expect_eq(jobs_info(rig->array, info, 0), 0);
    cr_expect_eq((uint8_t)info[0].kind[0], 0xa5, "nothing was written");
    cr_expect_eq(jobs_info(rig->array, info, 1), 1);
    cr_expect_str_eq(info[0].kind, "rebuild");
    expect_whole(rig, 1);
    rig_destroy(rig);
}

/* No more bad blocks can be recorded, and slot 0 cannot be read: no row can be done. */
static void fill_bad_list(struct rig *rig)
{
    struct sb_array *a = &rig->array->description;
    uint64_t end = a->volumes[0].start + a->volumes[0].extent;
    for (unsigned i = 0; i < BAD_ADD_MAX; i++)
        cr_assert(bad_add(&a->bad, 0, end - 1024 * (i + 1ull), 512));
    fault_add(rig->dev[0], &(struct fault_rule){.ops = 1 << BLK_READ,
                                                .off = a->data_start,
                                                .len = a->volumes[0].extent - 2 * MIB,
                                                .status = BLK_MEDIA});
}

Test(array_jobs, a_job_that_is_refused_while_it_is_being_interrupted_is_not_begun_again)
{
    for (unsigned interrupted = 0; interrupted < 2; interrupted++) {
        struct rig *rig = rig_rebuilding(RAID_5, 1000000);
        fill_bad_list(rig);
        cr_assert(rig_pause(rig, 0, false), "%s", rig->message);
        while (rig->array->jobs.in_flight == 0)
            rig_wait(rig, 100000);
        if (interrupted)
            cr_assert(rig_pause(rig, 0, true), "%s", rig->message);
        rig_wait(rig, 2ull * SECOND);
        cr_expect(rig->array->volumes[0].jobs[JOB_REBUILD].blocked, "interrupted: %u", interrupted);
        cr_assert(rig_pause(rig, 0, false), "%s", rig->message);
        rig_wait(rig, SECOND);
        cr_expect(jobs_stopped(rig->array), "interrupted: %u", interrupted);
        cr_expect_str_eq(rig_info(rig).jobs[0].waits_for, "a change of disks");
        rig_destroy(rig);
    }
}
