/* Arrays that lose disks, one by one and in bursts, and get them back. */
#include <criterion/criterion.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/raid/arrays.h"

enum { DISK = 40 * 1024 * 1024 };
#define SECOND 1000000000ull

static void expect_state(const struct rig *rig, unsigned mask, unsigned slot, enum sb_member_state state,
                         const char *when)
{
    for (unsigned i = 0; i < rig->count; i++) {
        struct sb_label label;
        if (!(mask & 1u << i))
            continue;
        cr_expect_eq(rig_label(rig, i, &label), SB_VALID);
        cr_expect_eq(label.array.members[slot].state, state, "%s: slot %u is %s on disk %u", when, slot,
                     sb_member_state_name(label.array.members[slot].state), i);
    }
}

static struct rig *rig_with(unsigned disks, enum raid_level level, uint64_t size)
{
    struct rig *rig = rig_create(disks, DISK);
    cr_assert(rig_make_one(rig, level, size), "%s", rig->message);
    rig_settle(rig);
    cr_assert_eq(rig_fill(rig, "v", 1, 65536), BLK_OK);
    return rig;
}

/* --- losses --- */

static void check_recorded(struct rig_write *write)
{
    expect_state(write->data, 0xb, 2, SB_FAILED, "when a write that missed it is answered");
}

Test(array_faults, a_loss_is_on_the_other_disks_before_a_write_it_missed_is_answered)
{
    static const enum raid_level levels[] = {RAID_5, RAID_6, RAID_1, RAID_10};
    for (unsigned l = 0; l < ARRAY_LENGTH(levels); l++) {
        struct rig *rig = rig_with(4, levels[l], 4 * MIB);
        struct sb_label before, after;
        cr_assert_eq(rig_label(rig, 0, &before), SB_VALID);
        fault_kill(rig->dev[2]);
        uint64_t start = rig->t->loop.now_ns;
        bool recorded = false;
        for (unsigned i = 0; i < 8; i++) {
            struct rig_write write = {.data = rig};
            rig_write_start(rig, &write, "v", i * 65536, 4096, 77 + i);
            cr_assert(testloop_run_until(rig->t, &write.over));
            cr_expect_eq(write.req.status, BLK_OK, "%s: %s", raid_level_name(levels[l]),
                         blk_status_name(write.req.status));
            recorded = recorded || strcmp(rig_info(rig).members[2].state, "failed") == 0;
            if (recorded)
                check_recorded(&write);
        }
        cr_expect(recorded);
        uint64_t took = rig->t->loop.now_ns - start;
        cr_expect(took >= SECOND / 2 && took < SECOND, "settled for %llu ns", (unsigned long long)took);
        cr_assert_eq(rig_label(rig, 0, &after), SB_VALID);
        cr_expect_eq(after.array.forks_count, before.array.forks_count + 1, "a new fork");
        cr_expect_str_eq(rig_info(rig).state, "degraded");
        rig_destroy(rig);
    }
}

Test(array_faults, a_disk_that_refuses_writes_fails_at_once_and_its_data_stays_readable)
{
    struct rig *rig = rig_with(4, RAID_5, 4 * MIB);
    struct fault_rule bad = {.ops = 1u << BLK_WRITE, .status = BLK_MEDIA};
    fault_add(rig->dev[1], &bad);
    uint64_t start = rig->t->loop.now_ns;
    cr_expect_eq(rig_fill(rig, "v", 2, MIB), BLK_OK);
    cr_expect_lt(rig->t->loop.now_ns - start, SECOND / 2, "no time to settle");
    expect_state(rig, 0xd, 1, SB_FAILED, "after writes");
    cr_expect(rig_holds(rig, "v", 2));
    rig_destroy(rig);
}

Test(array_faults, a_label_that_cannot_be_written_costs_the_disk)
{
    struct rig *rig = rig_with(4, RAID_6, 4 * MIB);
    rig_settle(rig); /* clean */
    struct fault_rule bad = {.ops = 1u << BLK_WRITE, .len = MIB, .status = BLK_MEDIA};
    fault_add(rig->dev[3], &bad);
    struct rig_write write = {0};
    rig_write_start(rig, &write, "v", 0, 4096, 3);
    cr_assert(testloop_run_until(rig->t, &write.over));
    cr_expect_eq(write.req.status, BLK_OK);
    rig_settle(rig);
    expect_state(rig, 0x7, 3, SB_FAILED, "after its label failed");
    cr_expect_str_eq(rig_info(rig).members[3].state, "failed");
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_DEGRADED);
    rig_destroy(rig);
}

Test(array_faults, a_write_error_without_redundancy_left_is_told_and_costs_no_disk)
{
    struct rig *rig = rig_with(3, RAID_0, 3 * MIB);
    struct fault_rule bad = {.ops = 1u << BLK_WRITE, .status = BLK_MEDIA, .off = 14 * MIB, .len = 4096};
    uint8_t bytes[4096] = {1};
    fault_add(rig->dev[0], &bad);
    struct blkdev *dev = array_volume(rig->array, "v");
    cr_expect_eq(test_io(rig->t, dev, BLK_WRITE, 0, 0, bytes, 4096), BLK_MEDIA);
    cr_expect_eq(test_io(rig->t, dev, BLK_WRITE, 0, 4096, bytes, 4096), BLK_OK);
    cr_expect_str_eq(rig_info(rig).state, "optimal");
    cr_expect_gt(rig_info(rig).members[0].write_errors, 0);
    rig_destroy(rig);
}

Test(array_faults, read_errors_are_corrected_and_counted)
{
    struct rig *rig = rig_with(4, RAID_5, 4 * MIB);
    struct fault_rule bad = {
        .ops = 1u << BLK_READ, .status = BLK_MEDIA, .off = 14 * MIB + 8192, .len = 4096, .until_written = true};
    for (unsigned i = 0; i < 4; i++)
        fault_add(rig->dev[i], &bad);
    rig_settle(rig);
    fault_clear(rig->dev[3], -1);
    fault_clear(rig->dev[2], -1);
    fault_clear(rig->dev[1], -1);
    cr_expect(rig_holds(rig, "v", 1));
    rig_settle(rig);
    struct array_info info = rig_info(rig);
    cr_expect_str_eq(info.state, "optimal");
    cr_expect_geq(info.members[0].read_errors, 1);
    cr_expect_eq(info.members[0].corrected, 1);
    cr_expect(rig_holds(rig, "v", 1));
    cr_expect_eq(rig_info(rig).members[0].read_errors, info.members[0].read_errors);
    rig_destroy(rig);
}

/* --- an operator's hand --- */

Test(array_faults, taking_a_disk_out_is_refused_where_a_volume_would_fail)
{
    struct rig *rig = rig_with(4, RAID_5, 4 * MIB);
    cr_expect_not(rig_fail(rig, 9));
    cr_expect(strstr(rig->message, "array r0 has no slot 9: its slots are 0 to 3") != NULL, "%s", rig->message);
    cr_assert(rig_fail(rig, 1), "%s", rig->message);
    expect_state(rig, 0xd, 1, SB_FAILED, "when the call is over");
    cr_expect_not(rig_fail(rig, 1));
    cr_expect(strstr(rig->message, "disk disk1 (slot 1) is failed already") != NULL, "%s", rig->message);
    cr_expect_not(rig_fail(rig, 2));
    cr_expect_eq(rig->error, -EBUSY);
    cr_expect(strstr(rig->message, "volume v (raid5) of array") != NULL, "%s", rig->message);
    cr_expect(rig_holds(rig, "v", 1));
    cr_expect_not(rig_add(rig, "w", RAID_0, MIB));
    cr_expect(strstr(rig->message, "cannot be added while disks are missing") != NULL, "%s", rig->message);
    rig_destroy(rig);
}

/* --- degraded starts --- */

struct told {
    struct array_call call;
    bool over;
};

static void told_done(struct array_call *call)
{
    container_of(call, struct told, call)->over = true;
}

/* Found by simulation: the volume took it for whole until the end of the turn, and asked the disk. */
Test(array_faults, a_request_in_the_same_turn_finds_the_member_gone)
{
    static const enum raid_level levels[] = {RAID_5, RAID_6, RAID_1, RAID_10};
    static uint8_t bytes[1024 * 1024];
    for (unsigned l = 0; l < ARRAY_LENGTH(levels); l++) {
        struct rig *rig = rig_with(4, levels[l], 4 * MIB);
        struct told told = {.call.done = told_done};
        array_fail_member(rig->array, 1, &told.call);
        cr_expect_eq(test_io(rig->t, array_volume(rig->array, "v"), BLK_READ, 0, 0, bytes, sizeof bytes), BLK_OK, "%s",
                     raid_level_name(levels[l]));
        cr_expect(testloop_run_until(rig->t, &told.over));
        cr_expect_eq(told.call.error, 0, "%s: %s", raid_level_name(levels[l]), told.call.message);
        cr_expect(rig_holds(rig, "v", 1), "%s", raid_level_name(levels[l]));
        rig_destroy(rig);
    }
}

Test(array_faults, a_disk_that_was_away_comes_back_stale_and_is_rebuilt)
{
    struct rig *rig = rig_with(4, RAID_5, 4 * MIB);
    rig_settle(rig);
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(rig_assemble(rig, 0xe, false), "%s: %s", rig->assembly.reason, rig->message);
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_DEGRADED);
    expect_state(rig, 0xe, 0, SB_ABSENT, "before anything is served");
    struct sb_label label;
    cr_assert_eq(rig_label(rig, 1, &label), SB_VALID);
    cr_expect_eq(label.array.forks_count, 2);
    cr_expect_eq(rig_fill(rig, "v", 2, 65536), BLK_OK);
    rig_settle(rig);
    cr_assert(rig_close(rig), "%s", rig->message);

    cr_assert(rig_assemble(rig, 0xf, false), "%s: %s", rig->assembly.reason, rig->message);
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_DEGRADED);
    cr_expect_eq(rig->assembly.disk_of_slot[0], -1, "disk0 missed writes");
    cr_assert_eq(rig_label(rig, 1, &label), SB_VALID);
    cr_expect_eq(label.array.forks_count, 3, "slot 0 is still not live: a new history");
    cr_expect(rig_holds(rig, "v", 2));
    cr_assert(rig_online(rig, 0), "%s", rig->message);
    expect_state(rig, 0xf, 0, SB_REBUILDING, "when the call is over");
    struct array_info info = rig_info(rig);
    cr_assert_eq(info.jobs_count, 1);
    cr_expect_str_eq(info.jobs[0].kind, "rebuild");
    rig_settle(rig);
    expect_state(rig, 0xf, 0, SB_ACTIVE, "when it is rebuilt");
    cr_expect_str_eq(rig_info(rig).state, "optimal");
    for (unsigned slot = 1; slot < 3; slot++) {
        cr_assert(rig_fail(rig, slot), "%s", rig->message);
        cr_expect(rig_holds(rig, "v", 2), "without disk %u", slot);
        cr_assert(rig_online(rig, slot), "%s", rig->message);
        rig_settle(rig);
    }
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_COMPLETE);
    cr_expect(rig_holds(rig, "v", 2));
    rig_destroy(rig);
}

Test(array_faults, writes_during_a_rebuild_are_on_the_new_disk_too)
{
    static const enum raid_level levels[] = {RAID_1, RAID_10, RAID_5, RAID_6, RAID_TP, RAID_60};
    for (unsigned l = 0; l < ARRAY_LENGTH(levels); l++) {
        struct rig *rig = rig_with(8, levels[l], 0);
        cr_assert(rig_fail(rig, 3), "%s", rig->message);
        rig_disk_replace(rig, 3, DISK, 512);
        memset(rig->mem[3]->bytes, 0xee, DISK);
        cr_assert(rig_online(rig, 3), "%s", rig->message);
        cr_expect_eq(rig_fill(rig, "v", 5, MIB), BLK_OK);
        rig_settle(rig);
        cr_expect_str_eq(rig_info(rig).state, "optimal");
        unsigned other = levels[l] == RAID_10 ? 2 : 5; /* the mirror of slot 3 */
        cr_assert(rig_fail(rig, other), "%s", rig->message);
        cr_expect(rig_holds(rig, "v", 5), "%s", raid_level_name(levels[l]));
        rig_destroy(rig);
    }
}

Test(array_faults, a_rebuild_that_was_cut_short_begins_anew)
{
    struct rig *rig = rig_with(4, RAID_5, 0);
    rig_settle(rig);
    for (unsigned i = 0; i < 4; i++)
        rig->mem[i]->latency_ns = 2000000;
    cr_assert(rig_fail(rig, 1), "%s", rig->message);
    rig_disk_replace(rig, 1, DISK + MIB, 512); /* a larger one is fine */
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    rig_wait(rig, 20000000);
    cr_assert_eq(rig_info(rig).jobs_count, 1);
    cr_expect_gt(rig_info(rig).jobs[0].done_bytes, 0);
    cr_expect(rig_info(rig).clean, "a rebuild alone does not make it dirty");
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 0xf, false), "%s: %s", rig->assembly.reason, rig->message);
    struct array_info info = rig_info(rig);
    cr_assert_eq(info.jobs_count, 1);
    cr_expect_str_eq(info.jobs[0].kind, "rebuild");
    cr_expect_str_eq(info.members[1].state, "rebuilding");
    cr_expect(rig_holds(rig, "v", 1), "nothing is read from it");
    rig_settle(rig);
    cr_assert(rig_fail(rig, 0), "%s", rig->message);
    cr_expect(rig_holds(rig, "v", 1));
    rig_destroy(rig);
}

Test(array_faults, two_disks_rebuilt_one_after_the_other_are_both_whole)
{
    struct rig *rig = rig_with(5, RAID_6, 0);
    rig_settle(rig);
    cr_assert(rig_fail(rig, 1) && rig_fail(rig, 3), "%s", rig->message);
    cr_expect_eq(rig_fill(rig, "v", 2, MIB), BLK_OK);
    rig_disk_replace(rig, 1, DISK, 512);
    rig_disk_replace(rig, 3, DISK, 512);
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    rig_wait(rig, 1000000);
    cr_assert(rig_online(rig, 3), "%s", rig->message);
    rig_settle(rig);
    cr_expect_str_eq(rig_info(rig).state, "optimal");
    cr_assert(rig_fail(rig, 0) && rig_fail(rig, 2), "%s", rig->message);
    cr_expect(rig_holds(rig, "v", 2));
    rig_destroy(rig);
}

Test(array_faults, a_disk_that_dies_in_its_rebuild_is_failed_again)
{
    struct rig *rig = rig_with(4, RAID_5, 0);
    rig_settle(rig);
    cr_assert(rig_fail(rig, 1), "%s", rig->message);
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    fault_kill(rig->dev[1]);
    rig_settle(rig);
    cr_expect_str_eq(rig_info(rig).members[1].state, "failed");
    expect_state(rig, 0xd, 1, SB_FAILED, "after it died");
    fault_revive(rig->dev[1]);
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    rig_settle(rig);
    cr_expect_str_eq(rig_info(rig).state, "optimal");
    cr_expect(rig_holds(rig, "v", 1));
    rig_destroy(rig);
}

Test(array_faults, a_rebuild_with_unreadable_sources_goes_on_and_makes_nothing_up)
{
    struct rig *rig = rig_with(3, RAID_5, 0);
    rig_settle(rig);
    cr_assert(rig_fail(rig, 1), "%s", rig->message);
    rig_disk_replace(rig, 1, DISK, 512);
    struct fault_rule bad = {.ops = 1u << BLK_READ, .status = BLK_MEDIA, .off = 15 * MIB, .len = 512};
    int rule = fault_add(rig->dev[0], &bad);
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    testloop_run(rig->t);
    cr_expect_str_eq(rig_info(rig).members[1].state, "online");
    cr_expect_eq(rig_info(rig).members[1].bad_bytes, 512);
    cr_expect_not(rig_holds(rig, "v", 1));
    fault_clear(rig->dev[0], rule);
    cr_expect_not(rig_holds(rig, "v", 1), "what was unreadable is not made up");
    cr_expect_eq(rig_fill(rig, "v", 1, MIB), BLK_OK);
    cr_expect(rig_holds(rig, "v", 1), "and it ends when it is overwritten");
    cr_expect_eq(rig_info(rig).members[1].bad_bytes, 0);
    rig_destroy(rig);
}

/* A RAID 0 volume keeps the disk in service; the RAID 5 one beside it must not go on with an old parity for it. */
Test(array_faults, a_parity_that_could_not_be_written_is_computed_anew)
{
    struct rig *rig = rig_create(4, DISK);
    struct array_spec *spec = rig_spec(rig);
    struct sb_label label;
    rig_spec_add(spec, "v", RAID_5, 4 * MIB);
    rig_spec_add(spec, "s", RAID_0, 4 * MIB);
    cr_assert(rig_make(rig, spec), "%s", rig->message);
    rig_settle(rig);
    cr_assert_eq(rig_fill(rig, "v", 1, 65536), BLK_OK);
    cr_assert_eq(rig_label(rig, 0, &label), SB_VALID);
    uint64_t data = label.array.data_start;

    struct fault_rule bad = {.ops = 1u << BLK_WRITE, .off = data, .len = 64 * KIB, .status = BLK_MEDIA, .count = 2};
    struct rig_write write = {0};
    fault_add(rig->dev[3], &bad); /* the parity of row 0, and the second attempt */
    rig_write_start(rig, &write, "v", 0, PAGE_BYTES, 99);
    cr_assert(testloop_run_until(rig->t, &write.over));
    cr_expect_eq(write.req.status, BLK_OK);
    cr_expect_str_eq(rig_info(rig).members[3].state, "online");
    cr_expect_eq(rig_info(rig).members[3].bad_bytes, PAGE_BYTES);
    rig_settle(rig);
    cr_expect_eq(rig_info(rig).members[3].bad_bytes, 0, "the resync has mended it");

    struct fault_rule unreadable = {.ops = 1u << BLK_READ, .off = data, .len = PAGE_BYTES, .status = BLK_MEDIA};
    uint8_t have[PAGE_BYTES], *want = malloc(4 * MIB);
    cr_assert_not_null(want);
    test_fill(want, 4 * MIB, 1);
    fault_add(rig->dev[1], &unreadable); /* the neighbour in the row, which nobody has written since */
    cr_expect_eq(test_io(rig->t, array_volume(rig->array, "v"), BLK_READ, 0, 64 * KIB, have, PAGE_BYTES), BLK_OK);
    cr_expect(memcmp(have, want + 64 * KIB, PAGE_BYTES) == 0, "the block beside the one whose write failed");
    free(want);
    rig_destroy(rig);
}

/* --- what may be brought in --- */

Test(array_faults, disks_that_do_not_fit_are_refused_with_a_sentence)
{
    struct rig *rig = rig_with(4, RAID_5, 0), *other = rig_create(3, DISK);
    cr_assert(rig_make_one(other, RAID_5, MIB));
    cr_assert(rig_close(other));
    cr_expect_not(rig_online(rig, 2));
    cr_expect(strstr(rig->message, "slot 2 of array r0 is in use: disk disk2 is online there") != NULL, "%s",
              rig->message);
    cr_assert(rig_fail(rig, 2), "%s", rig->message);
    rig_disk_replace(rig, 2, DISK - 344 * 512, 512);
    cr_expect_not(rig_online(rig, 2));
    cr_expect_eq(rig->error, -ENOSPC);
    cr_expect(strstr(rig->message, "disk disk2 has 41766912 bytes, 176128 too few: slot 2 of array r0 needs at least "
                                   "41943040, take a larger disk") != NULL,
              "%s", rig->message);
    rig_disk_replace(rig, 2, DISK, 4096);
    cr_expect_not(rig_online(rig, 2));
    cr_expect(strstr(rig->message, "disk disk2 has blocks of 4096 bytes and array r0 of 512") != NULL, "%s",
              rig->message);
    rig_disk_replace(rig, 2, DISK, 512);
    memcpy(rig->mem[2]->bytes, other->mem[1]->bytes, DISK);
    cr_expect_not(rig_online(rig, 2));
    cr_expect(strstr(rig->message, "disk disk2 belongs to array r0: erase it first") != NULL, "%s", rig->message);
    rig_disk_replace(rig, 2, DISK, 512);
    struct fault_rule bad = {.ops = 1u << BLK_WRITE, .status = BLK_MEDIA};
    fault_add(rig->dev[2], &bad);
    cr_expect_not(rig_online(rig, 2));
    cr_expect(strstr(rig->message, "disk disk2 could not be written (media error)") != NULL, "%s", rig->message);
    expect_state(rig, 0xb, 2, SB_FAILED, "after it was not taken in");
    fault_clear(rig->dev[2], -1);
    cr_expect(rig_online(rig, 2), "%s", rig->message);
    rig_settle(rig);
    cr_expect(rig_holds(rig, "v", 1));
    rig_destroy(other);
    rig_destroy(rig);
}

static void ignore_call(struct array_call *call)
{
    (void)call;
}

/* The disk is closed before the next one comes: nothing may look at it any more. */
Test(array_faults, a_failed_disk_is_given_back_once_it_is_silent)
{
    char why[256];
    struct rig *rig = rig_with(4, RAID_5, 0);
    cr_assert_not_null(array_take_back_disk(rig->array, 2, why, sizeof why));
    cr_expect_str_eq(why, "disk disk2 (slot 2 of array r0) is in service already");

    struct fault_rule slow = {.ops = 1u << BLK_WRITE, .delay_ns = 5 * SECOND};
    struct rig_write write = {0};
    fault_add(rig->dev[2], &slow);
    rig_write_start(rig, &write, "v", 2 * 64 * KIB, PAGE_BYTES, 7);
    rig_wait(rig, SECOND);
    cr_assert_gt(rig->dev[2]->in_flight, 0);
    struct array_call fail = {.done = ignore_call};
    array_fail_member(rig->array, 2, &fail);
    rig_wait(rig, SECOND);
    cr_assert_not_null(array_take_back_disk(rig->array, 2, why, sizeof why));
    cr_expect_str_eq(why, "disk disk2 (slot 2 of array r0) has not answered all requests yet: try again later");
    rig_wait(rig, 10 * SECOND);
    cr_assert(write.over);

    cr_assert_null(array_take_back_disk(rig->array, 2, why, sizeof why), "%s", why);
    test_close(rig->t, rig->dev[2]);
    cr_expect_not(rig_info(rig).members[2].present);
    rig_disk_new(rig, 2, DISK, 512);
    cr_assert(rig_online(rig, 2), "%s", rig->message);
    rig_settle(rig);
    cr_expect_str_eq(rig_info(rig).state, "optimal");
    rig_destroy(rig);
}

Test(array_faults, volumes_without_redundancy_take_back_their_own_disk_only)
{
    struct rig *rig = rig_create(3, DISK);
    struct array_spec *spec = rig_spec(rig);
    rig_spec_add(spec, "v", RAID_5, 4 * MIB);
    rig_spec_add(spec, "w", RAID_0, 3 * MIB);
    cr_assert(rig_make(rig, spec), "%s", rig->message);
    cr_expect_eq(rig_fill(rig, "v", 1, MIB), BLK_OK);
    cr_expect_eq(rig_fill(rig, "w", 2, MIB), BLK_OK);
    rig_settle(rig);
    cr_expect_not(rig_fail(rig, 1));
    cr_expect(strstr(rig->message, "volume w (raid0) of array") != NULL, "%s", rig->message);
    fault_kill(rig->dev[1]);
    cr_expect_eq(rig_fill(rig, "v", 3, MIB), BLK_OK, "the one with redundancy goes on");
    cr_expect_eq(rig_fill(rig, "w", 3, MIB), BLK_GONE);
    rig_settle(rig);
    cr_expect_str_eq(rig_info(rig).state, "failed");
    uint8_t *own = malloc(DISK);
    memcpy(own, rig->mem[1]->bytes, DISK);
    rig_disk_replace(rig, 1, DISK, 512);
    cr_expect_not(rig_online(rig, 1));
    cr_expect(strstr(rig->message, "volume w has no redundancy and part of it lies on the disk that was in slot 1 "
                                   "(disk1)") != NULL,
              "%s", rig->message);
    memcpy(rig->mem[1]->bytes, own, DISK);
    free(own);
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    rig_settle(rig);
    cr_expect_str_eq(rig_info(rig).state, "optimal");
    cr_expect(rig_holds(rig, "v", 3) && rig_holds(rig, "w", 2));
    cr_expect_eq(rig_fill(rig, "w", 4, MIB), BLK_OK);
    rig_destroy(rig);
}

/* --- bursts --- */

Test(array_faults, halves_that_ran_apart_are_a_split_brain)
{
    struct rig *rig = rig_with(2, RAID_1, 2 * MIB);
    rig_settle(rig);
    cr_assert(rig_close(rig), "%s", rig->message);
    for (unsigned half = 0; half < 2; half++) {
        cr_assert(rig_assemble(rig, 1u << half, false), "%s", rig->message);
        cr_expect_eq(rig_fill(rig, "v", 10 + half, 65536), BLK_OK);
        cr_assert(rig_close(rig), "%s", rig->message);
    }
    cr_expect_not(rig_assemble(rig, 3, false));
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_SPLIT);
    cr_assert(rig_assemble(rig, 3, true), "%s: %s", rig->assembly.reason, rig->message);
    unsigned winner = rig->assembly.disk_of_slot[0] >= 0 ? 0 : 1;
    cr_expect(rig_holds(rig, "v", 10 + winner));
    cr_assert(rig_online(rig, 1 - winner), "%s", rig->message);
    rig_settle(rig);
    cr_assert(rig_fail(rig, winner), "%s", rig->message);
    cr_expect(rig_holds(rig, "v", 10 + winner));
    rig_destroy(rig);
}

/* Three of six disks of a RAID 6 vanish, `apart_ns` from each other, under writes. */
static void burst(uint64_t apart_ns)
{
    struct rig *rig = rig_with(6, RAID_6, 4 * MIB);
    struct rig_write writes[8] = {0};
    for (unsigned i = 0; i < 8; i++)
        rig_write_start(rig, &writes[i], "v", (uint64_t)i * 262144, 65536, 50 + i);
    for (unsigned slot = 1; slot < 6; slot += 2) {
        fault_kill(rig->dev[slot]);
        rig_wait(rig, apart_ns);
    }
    testloop_run(rig->t);
    unsigned answered = 0;
    for (unsigned i = 0; i < 8; i++) {
        cr_expect(writes[i].over, "write %u", i);
        answered += writes[i].req.status == BLK_OK;
    }
    cr_expect_eq(answered, 0, "none that missed a disk is acknowledged");
    cr_expect_str_eq(rig_info(rig).state, "frozen");
    uint8_t bytes[4096] = {0};
    cr_expect_eq(test_io(rig->t, array_volume(rig->array, "v"), BLK_READ, 0, 0, bytes, 4096), BLK_GONE);
    cr_expect_eq(test_io(rig->t, array_volume(rig->array, "v"), BLK_WRITE, 0, 0, bytes, 4096), BLK_GONE);
    cr_expect_eq(test_io(rig->t, array_volume(rig->array, "v"), BLK_FLUSH, 0, 0, NULL, 0), BLK_GONE);
    cr_expect_not(rig_fail(rig, 0));
    cr_expect(strstr(rig->message, "array r0 is frozen") != NULL, "%s", rig->message);
    for (unsigned slot = 0; slot < 6; slot++)
        expect_state(rig, 0x3f, slot, SB_ACTIVE, "after a burst");
    cr_expect_not(rig_close(rig));
    cr_expect(strstr(rig->message, "array r0 was frozen and is not marked clean") != NULL, "%s", rig->message);
    for (unsigned slot = 1; slot < 6; slot += 2)
        fault_revive(rig->dev[slot]);
    cr_assert(rig_assemble(rig, 0x3f, false), "%s: %s", rig->assembly.reason, rig->message);
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_COMPLETE);
    rig_settle(rig);
    for (unsigned i = 0; i < 8; i++) {
        struct rig_write write = {0};
        rig_write_start(rig, &write, "v", (uint64_t)i * 262144, 65536, 50 + i);
        cr_assert(testloop_run_until(rig->t, &write.over));
        cr_expect_eq(write.req.status, BLK_OK);
    }
    cr_assert(rig_fail(rig, 0) && rig_fail(rig, 4), "%s", rig->message);
    uint8_t *want = malloc(4 * MIB), *have = malloc(4 * MIB);
    test_fill(want, 4 * MIB, 1);
    for (uint64_t i = 0; i < 8; i++)
        test_fill(want + i * 262144, 65536, 50 + i);
    cr_expect_eq(test_io(rig->t, array_volume(rig->array, "v"), BLK_READ, 0, 0, have, 4 * MIB), BLK_OK);
    cr_expect_eq(memcmp(want, have, 4 * MIB), 0);
    free(want);
    free(have);
    rig_destroy(rig);
}

Test(array_faults, a_burst_freezes_the_array_and_marks_nobody_failed)
{
    burst(0);
    burst(50000);
    burst(1000000);
    burst(100000000);
}

Test(array_faults, losses_long_after_each_other_are_written_down_up_to_the_last_that_would_end_it)
{
    struct rig *rig = rig_with(4, RAID_6, 4 * MIB);
    uint64_t seed = 60;
    for (unsigned slot = 0; slot < 2; slot++) {
        fault_kill(rig->dev[slot]);
        cr_expect_eq(rig_fill(rig, "v", ++seed, 65536), BLK_OK);
        rig_wait(rig, 5 * SECOND);
    }
    expect_state(rig, 0xc, 0, SB_FAILED, "two lost");
    expect_state(rig, 0xc, 1, SB_FAILED, "two lost");
    fault_kill(rig->dev[2]);
    cr_expect_eq(rig_fill(rig, "v", 99, 65536), BLK_GONE);
    cr_expect_str_eq(rig_info(rig).state, "frozen", "nothing is left that a record could serve");
    expect_state(rig, 0x8, 2, SB_ACTIVE, "the third");
    cr_expect_not(rig_close(rig));
    for (unsigned slot = 0; slot < 3; slot++)
        fault_revive(rig->dev[slot]);
    cr_assert(rig_assemble(rig, 0xf, false), "%s: %s", rig->assembly.reason, rig->message);
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_DEGRADED);
    cr_expect(rig_holds(rig, "v", seed));
    rig_destroy(rig);
}

Test(array_faults, a_mirror_goes_on_through_any_order_of_losses_and_returns)
{
    struct rig *rig = rig_with(3, RAID_1, 2 * MIB);
    uint64_t seed = 5, data = 1;
    for (unsigned round = 0; round < 30; round++) {
        unsigned slot = (unsigned)(test_random(&seed) % 3);
        bool here = strcmp(rig_info(rig).members[slot].state, "online") == 0;
        if (here && test_random(&seed) % 2)
            (void)rig_fail(rig, slot);
        else if (!here)
            (void)rig_online(rig, slot);
        if (test_random(&seed) % 4 == 0)
            cr_expect_eq(rig_fill(rig, "v", ++data, 131072), BLK_OK);
        if (test_random(&seed) % 3 == 0)
            rig_settle(rig);
        if (test_random(&seed) % 5 == 0) {
            rig_kill(rig);
            cr_assert(rig_assemble(rig, 7, false), "round %u: %s", round, rig->assembly.reason);
        }
        cr_assert(rig_holds(rig, "v", data), "round %u", round);
    }
    rig_destroy(rig);
}

/* --- generations cut short --- */

struct cut_call {
    struct array_call call;
    bool over;
};

static void cut_call_done(struct array_call *call)
{
    container_of(call, struct cut_call, call)->over = true;
}

static void cut_fail(struct rig *rig, struct cut_call *call)
{
    array_fail_member(rig->array, 2, &call->call);
}

static void cut_online(struct rig *rig, struct cut_call *call)
{
    struct array_disk disk = rig_disk(rig, 3);
    array_online_member(rig->array, 3, &disk, &call->call);
}

static void cut_add(struct rig *rig, struct cut_call *call)
{
    struct array_volume_spec spec = {.name = "w", .layout.level = RAID_6, .size = MIB};
    array_add_volume(rig->array, &spec, &call->call);
}

static bool is_of_history(const struct array *array, const struct uuid *fork)
{
    const struct sb_array *a = array_description(array);
    for (unsigned i = 0; i < a->forks_count; i++)
        if (uuid_equal(&a->forks[i].id, fork))
            return true;
    return false;
}

/*
 * Disks of different speed, and the power goes at any instant of a call: the array starts, and its data is there. The
 * history that it ran under is one that the disks know.
 */
static void cut_at_any_instant(void (*start)(struct rig *, struct cut_call *), bool degraded, uint64_t steps_us,
                               const char *what)
{
    unsigned whole = 0;
    for (uint64_t us = 0; us < 25 * steps_us; us += steps_us) {
        struct rig *rig = rig_with(5, RAID_6, MIB);
        struct cut_call call = {.call.done = cut_call_done};
        if (degraded)
            cr_assert(rig_fail(rig, 3), "%s", rig->message);
        rig_settle(rig);
        for (unsigned i = 0; i < 5; i++)
            rig->mem[i]->latency_ns = 40000 * (i * 3 % 5 + 1);
        start(rig, &call);
        rig_wait(rig, us * 1000);
        whole += call.over && call.call.error == 0;
        struct uuid history = *array_history(rig->array);
        rig_kill(rig);
        cr_assert(call.over);
        cr_assert(rig_assemble(rig, 0x1f, false), "%s cut after %llu us: %s", what, (unsigned long long)us,
                  rig->assembly.reason);
        cr_expect(rig_holds(rig, "v", 1), "%s cut after %llu us", what, (unsigned long long)us);
        cr_expect(is_of_history(rig->array, &history), "%s cut after %llu us", what, (unsigned long long)us);
        for (unsigned slot = 0; slot < 5; slot++)
            if (slot != 2 && slot != 3)
                cr_expect_str_eq(rig_info(rig).members[slot].state, "online", "%s cut after %llu us: slot %u", what,
                                 (unsigned long long)us, slot);
        rig_destroy(rig);
    }
    cr_expect(whole > 0 && whole < 25, "%s: over in time %u times", what, whole);
}

Test(array_faults, a_generation_cut_short_at_any_instant_leaves_an_array_that_starts)
{
    cut_at_any_instant(cut_fail, false, 100, "fail");
    cut_at_any_instant(cut_online, true, 300, "online");
    cut_at_any_instant(cut_add, false, 100, "add");
}

/* --- a label that stands in one copy only --- */

struct label_area {
    uint8_t head[MIB], tail[MIB];
};

static void area_save(struct label_area *area, const struct memdisk *disk)
{
    memcpy(area->head, disk->bytes, MIB);
    memcpy(area->tail, disk->bytes + DISK - MIB, MIB);
}

static void area_restore(const struct label_area *area, struct memdisk *disk)
{
    memcpy(disk->bytes, area->head, MIB);
    memcpy(disk->bytes + DISK - MIB, area->tail, MIB);
}

/* Where the newest label stands at the head. */
static uint64_t newest_at(const struct memdisk *disk)
{
    struct sb_label labels[2];
    bool valid[2];
    for (unsigned i = 0; i < 2; i++)
        valid[i] = superblock_decode(disk->bytes + (i == 0 ? SB_HEAD_0 : SB_HEAD_1), SB_SLOT_BYTES, &labels[i], NULL,
                                     0) == SB_VALID;
    cr_assert(valid[0] || valid[1]);
    if (!valid[0] || !valid[1])
        return valid[0] ? SB_HEAD_0 : SB_HEAD_1;
    return labels[0].array.generation > labels[1].array.generation ? SB_HEAD_0 : SB_HEAD_1;
}

/* Open and kill; of what disk 0 was to write only a torn head copy (torn: 0, nothing) has arrived. */
static void open_torn(struct rig *rig, uint64_t torn)
{
    static struct label_area before, after;
    area_save(&before, rig->mem[0]);
    cr_assert(rig_assemble(rig, 7, false), "%s", rig->assembly.reason);
    rig_kill(rig);
    uint64_t written = newest_at(rig->mem[0]);
    area_save(&after, rig->mem[0]);
    area_restore(&before, rig->mem[0]);
    memcpy(rig->mem[0]->bytes + written, after.head + written, torn);
}

Test(array_faults, a_label_in_one_copy_only_survives_openings_that_are_cut_short)
{
    /* After a clean stop, and after one generation more; the tail's copy lost, or the head's. */
    for (unsigned variant = 0; variant < 4; variant++) {
        struct rig *rig = rig_with(3, RAID_5, 4 * MIB);
        rig_settle(rig);
        cr_assert(rig_close(rig), "%s", rig->message);
        for (unsigned more = 0; more < variant % 2; more++) {
            cr_assert(rig_assemble(rig, 7, false), "%s", rig->assembly.reason);
            rig_kill(rig);
        }
        uint64_t only = newest_at(rig->mem[0]);
        rig->mem[0]->bytes[only + (variant < 2 ? DISK - MIB : 0) + 5000] ^= 1;
        for (unsigned opening = 0; opening < 5; opening++) {
            open_torn(rig, opening % 2 == 0 ? 0 : 4096 /* the header without its text */);
            cr_expect_eq(rig->assembly.verdict, ASSEMBLY_COMPLETE, "variant %u, opening %u: %s", variant, opening,
                         rig->assembly.reason);
        }
        cr_assert(rig_assemble(rig, 7, false), "%s", rig->assembly.reason);
        cr_expect_eq(rig->assembly.verdict, ASSEMBLY_COMPLETE, "variant %u: %s", variant, rig->assembly.reason);
        cr_expect(rig_holds(rig, "v", 1));
        rig_destroy(rig);
    }
}

Test(array_faults, time_outs_that_come_far_apart_are_one_burst)
{
    struct rig *rig = rig_with(6, RAID_6, 4 * MIB);
    struct rig_write writes[8] = {0};
    for (unsigned slot = 1; slot < 6; slot += 2) {
        struct fault_rule hang = {.status = BLK_TIMEOUT, .delay_ns = 8 * SECOND + slot * 2 * SECOND};
        fault_add(rig->dev[slot], &hang);
    }
    for (unsigned i = 0; i < 8; i++)
        rig_write_start(rig, &writes[i], "v", (uint64_t)i * 262144, 65536, 50 + i);
    testloop_run(rig->t);
    cr_expect_str_eq(rig_info(rig).state, "frozen");
    for (unsigned i = 0; i < 8; i++)
        cr_expect(writes[i].over && writes[i].req.status != BLK_OK, "write %u: %s", i,
                  blk_status_name(writes[i].req.status));
    cr_expect_not(rig_close(rig));
    for (unsigned slot = 1; slot < 6; slot += 2)
        fault_clear(rig->dev[slot], -1);
    cr_assert(rig_assemble(rig, 0x3f, false), "%s", rig->assembly.reason);
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_COMPLETE);
    rig_destroy(rig);
}

Test(array_faults, a_disk_that_has_shrunk_is_not_opened)
{
    struct rig *rig = rig_with(3, RAID_5, 4 * MIB);
    rig_settle(rig);
    cr_assert(rig_close(rig), "%s", rig->message);
    uint8_t *bytes = malloc(DISK);
    memcpy(bytes, rig->mem[1]->bytes, DISK);
    rig_disk_replace(rig, 1, DISK - 4096, 512);
    memcpy(rig->mem[1]->bytes, bytes, DISK - 4096);
    free(bytes);
    cr_expect_not(rig_assemble(rig, 7, false));
    cr_expect(strstr(rig->message, "disk disk1 (slot 1 of array r0) has shrunk to 41938944 bytes, 4096 too few") !=
                  NULL,
              "%s", rig->message);
    cr_expect(rig_assemble(rig, 5, false), "%s", rig->message);
    cr_expect(rig_holds(rig, "v", 1));
    rig_destroy(rig);
}

/* --- a disk from yesterday --- */

Test(array_faults, a_disk_put_back_to_an_older_state_is_stale)
{
    struct rig *rig = rig_with(4, RAID_5, 4 * MIB);
    cr_assert(rig_close(rig));
    uint8_t *yesterday = malloc(DISK);
    memcpy(yesterday, rig->mem[2]->bytes, DISK);
    cr_assert(rig_assemble(rig, 0xf, false));
    cr_assert_eq(rig_fill(rig, "v", 2, MIB), BLK_OK);
    cr_assert(rig_close(rig));
    memcpy(rig->mem[2]->bytes, yesterday, DISK);
    cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->assembly.reason);
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_DEGRADED, "%s", rig->assembly.reason);
    cr_expect(strstr(rig->assembly.reason, "is stale") != NULL, "%s", rig->assembly.reason);
    cr_expect(rig_holds(rig, "v", 2));
    free(yesterday);
    rig_destroy(rig);
}
