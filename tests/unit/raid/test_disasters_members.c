/*
 * Disasters with members, each as it was reported of some system or other, and what must hold instead. The numbers are
 * those of the table in docs/testing.md, which also names the tests of the others.
 */
#include <criterion/criterion.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "tests/unit/raid/scenes.h"

enum { DISK = 40 * 1024 * 1024 };
#define MILLISECOND 1000000ull
#define SECOND      1000000000ull

static unsigned all_of(const struct scene *scene)
{
    return (1u << scene->rig->count) - 1;
}

static void slow_down(struct rig *rig, uint64_t latency_ns)
{
    for (unsigned i = 0; i < rig->count; i++)
        rig->mem[i]->latency_ns = latency_ns;
}

static const struct {
    enum raid_level level;
    unsigned disks, bears;
} levels[] = {{RAID_1, 3, 2}, {RAID_10, 4, 1}, {RAID_5, 4, 1}, {RAID_6, 5, 2}, {RAID_TP, 6, 3}, {RAID_50, 6, 1}};

/* --- rebuilds --- */

/* 13: a device that was rebuilt in part came back, and what lay beyond was taken for good. */
Test(disasters, a_disk_rebuilt_in_part_that_leaves_and_comes_back_is_rebuilt_from_the_start)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(levels); i++) {
        const char *name = raid_level_name(levels[i].level);
        struct scene *scene = scene_written(levels[i].disks, levels[i].level, 4 * MIB);
        struct rig *rig = scene->rig;
        cr_assert(rig_fail(rig, 1), "%s", rig->message);
        rig_disk_replace(rig, 1, DISK, 512);
        test_fill(rig->mem[1]->bytes, 20 * MIB, 5);
        cr_assert(rig_rate(rig, 0, 20, 0, 10 * MIB), "%s", rig->message);
        cr_assert(rig_online(rig, 1), "%s: %s", name, rig->message);
        for (unsigned ms = 0; ms < 1000 && rig_info(rig).jobs[0].done_bytes == 0; ms++)
            rig_wait(rig, MILLISECOND);
        cr_assert_eq(rig_info(rig).jobs_count, 1, "%s: in the middle of it", name);
        cr_assert(rig_fail(rig, 1), "%s: %s", name, rig->message);
        slow_down(rig, 100000);
        cr_expect_eq(rig_fill(rig, "v", 2, 256 * KIB), BLK_OK, "%s", name);
        rig_settle(rig);
        cr_assert(rig_online(rig, 1), "%s: %s", name, rig->message);
        scene_expect_whole(scene, 2, name);
        scene_destroy(scene);
    }
}

/* 13: the write that came just when the replacement was complete was lost on it. */
Test(disasters, writes_at_the_very_end_of_a_rebuild_are_on_the_new_disk)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(levels); i++)
        for (unsigned round = 0; round < 6; round++) {
            const char *name = raid_level_name(levels[i].level);
            struct scene *scene = scene_written(levels[i].disks, levels[i].level, MIB);
            struct rig *rig = scene->rig;
            uint8_t bytes[8192];
            uint64_t seed = round;
            cr_assert(rig_fail(rig, 1), "%s", rig->message);
            rig_disk_replace(rig, 1, DISK, 512);
            cr_assert(rig_online(rig, 1), "%s: %s", name, rig->message);
            cr_expect_eq(rig_fill(rig, "v", 3, MIB), BLK_OK);
            unsigned writes = 0, after = 0;
            for (; writes < 2000 && after < 8;
                 writes++) { /* one write follows the other, past the end of the rebuild */
                uint64_t off = test_random(&seed) % 128 * sizeof bytes;
                uint8_t *whole = malloc(MIB);
                test_fill(whole, MIB, 3);
                cr_assert_eq(
                    test_io(rig->t, array_volume(rig->array, "v"), BLK_WRITE, 0, off, whole + off, sizeof bytes),
                    BLK_OK);
                free(whole);
                after += strcmp(rig_info(rig).members[1].state, "online") == 0;
            }
            cr_expect_gt(writes, 8, "%s: the rebuild was under way", name);
            scene_expect_whole(scene, 3, name);
            scene_destroy(scene);
        }
}

/* 26: members that fail and come back in any order while others are rebuilt; a second rebuild skipped blocks. */
Test(disasters, members_that_come_and_go_during_rebuilds_lose_nothing)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(levels); i++) {
        const char *name = raid_level_name(levels[i].level);
        struct scene *scene = scene_written(levels[i].disks, levels[i].level, MIB);
        struct rig *rig = scene->rig;
        uint64_t dice = 77 + i, seed = 1;
        for (unsigned round = 0; round < 60; round++) {
            unsigned slot = (unsigned)(test_random(&dice) % rig->count);
            const char *state = rig_info(rig).members[slot].state;
            if (strcmp(state, "failed") == 0)
                cr_expect(rig_online(rig, slot), "%s: %s", name, rig->message);
            else
                (void)rig_fail(rig, slot); /* refused where a volume would fail */
            if (test_random(&dice) % 3 == 0)
                cr_expect_eq(rig_fill(rig, "v", ++seed, 128 * KIB), BLK_OK, "%s round %u", name, round);
            rig_wait(rig, test_random(&dice) % (2 * MILLISECOND));
            cr_assert(rig_holds(rig, "v", seed), "%s round %u: other bytes", name, round);
        }
        for (unsigned slot = 0; slot < rig->count; slot++)
            if (strcmp(rig_info(rig).members[slot].state, "failed") == 0)
                cr_expect(rig_online(rig, slot), "%s: %s", name, rig->message);
        scene_expect_whole(scene, seed, name);
        scene_destroy(scene);
    }
}

/* 26: two spares took the place of one disk. */
Test(disasters, one_slot_takes_one_disk)
{
    struct scene *scene = scene_written(4, RAID_5, 4 * MIB);
    struct rig *rig = scene->rig;
    cr_assert(rig_fail(rig, 2), "%s", rig->message);
    slow_down(rig, 2 * MILLISECOND);
    cr_assert(rig_online(rig, 2), "%s", rig->message);
    rig_disk_replace(rig, 2, DISK, 512);
    cr_expect_not(rig_online(rig, 2));
    cr_expect_eq(rig->error, -EBUSY);
    cr_expect_not_null(strstr(rig->message, "slot 2 of array r0 is in use"), "%s", rig->message);
    scene_destroy(scene);
}

/* 30: a second member went while the first was rebuilt. With redundancy for both nothing stops. */
Test(disasters, a_second_disk_lost_in_a_rebuild_is_borne_where_redundancy_is_left)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(levels); i++) {
        const char *name = raid_level_name(levels[i].level);
        struct scene *scene = scene_written(levels[i].disks, levels[i].level, 4 * MIB);
        struct rig *rig = scene->rig;
        cr_assert(rig_fail(rig, 1), "%s", rig->message);
        slow_down(rig, MILLISECOND);
        cr_assert(rig_online(rig, 1), "%s: %s", name, rig->message);
        rig_wait(rig, 5 * MILLISECOND);
        fault_kill(rig->dev[0]);
        bool borne = levels[i].bears > 1;
        cr_expect_eq(rig_fill(rig, "v", 2, 256 * KIB) == BLK_OK, borne, "%s", name);
        cr_expect_eq(strcmp(rig_info(rig).state, "frozen") == 0, !borne, "%s: %s", name, rig_info(rig).state);
        rig_settle(rig);
        fault_revive(rig->dev[0]);
        slow_down(rig, 100000);
        if (borne) {
            cr_assert(rig_online(rig, 0), "%s: %s", name, rig->message);
            scene_expect_whole(scene, 2, name);
        } else { /* nothing was acknowledged; it goes on where it was when the disk is back */
            cr_expect_not(rig_close(rig));
            cr_assert(scene_start(scene, all_of(scene)) || scene->rig->assembly.verdict == ASSEMBLY_DIRTY_DEGRADED,
                      "%s: %s", name, rig->assembly.reason);
            if (rig->array != NULL) {
                rig_settle(rig);
                cr_expect_str_eq(rig_info(rig).state, "optimal", "%s: the rebuild goes on", name);
            }
        }
        scene_destroy(scene);
    }
}

/* 41: members pulled at random during verified writes, a thousand times in all. */
static void pull_during_writes(unsigned level, unsigned rounds)
{
    struct scene *scene = scene_written(levels[level].disks, levels[level].level, MIB);
    struct rig *rig = scene->rig;
    const char *name = raid_level_name(levels[level].level);
    uint64_t dice = 1000 + level;
    uint8_t *want = malloc(MIB), *have = malloc(MIB);
    test_fill(want, MIB, 1);
    for (unsigned round = 0; round < rounds; round++) {
        unsigned slot = (unsigned)(test_random(&dice) % rig->count);
        struct rig_write writes[6] = {0};
        for (unsigned i = 0; i < 6; i++) {
            uint64_t off = (i * 40 + test_random(&dice) % 32) * 4096, len = 4096 * (1 + test_random(&dice) % 8);
            rig_write_start(rig, &writes[i], "v", off, len, round * 8 + i);
            test_fill(want + off, len, round * 8 + i);
        }
        rig_wait(rig, test_random(&dice) % MILLISECOND);
        fault_kill(rig->dev[slot]);
        testloop_run(rig->t);
        for (unsigned i = 0; i < 6; i++)
            cr_assert(writes[i].over && writes[i].req.status == BLK_OK, "%s round %u: write %u: %s", name, round, i,
                      blk_status_name(writes[i].req.status));
        cr_assert_eq(test_io(rig->t, array_volume(rig->array, "v"), BLK_READ, 0, 0, have, MIB), BLK_OK);
        cr_assert_arr_eq(want, have, MIB, "%s round %u: other bytes", name, round);
        fault_revive(rig->dev[slot]);
        if (strcmp(rig_info(rig).members[slot].state, "failed") == 0)
            cr_assert(rig_online(rig, slot), "%s round %u: %s", name, round, rig->message);
        rig_settle(rig);
    }
    char why[128];
    cr_expect(scene_redundant(rig, why, sizeof why), "%s: %s", name, why);
    free(want);
    free(have);
    scene_destroy(scene);
}

Test(disasters, a_member_pulled_during_writes_never_changes_a_byte)
{
    for (unsigned level = 0; level < 5; level++)
        pull_during_writes(level, 200);
}

/* --- at a start --- */

/* 29: with two of four disks away the data could not be read, though the code should have borne it. */
Test(disasters, every_set_of_members_that_may_be_away_is_borne_by_the_array_as_a_whole)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(levels); i++)
        for (unsigned away = 1; away < 1u << levels[i].disks; away++) {
            if ((unsigned)__builtin_popcount(away) != levels[i].bears)
                continue;
            struct scene *scene = scene_written(levels[i].disks, levels[i].level, 512 * KIB);
            struct rig *rig = scene->rig;
            cr_assert(rig_close(rig), "%s", rig->message);
            cr_assert(scene_start(scene, all_of(scene) & ~away), "%s without %x: %s", raid_level_name(levels[i].level),
                      away, rig->assembly.reason);
            cr_expect(rig_holds(rig, "v", 1), "%s without %x", raid_level_name(levels[i].level), away);
            cr_expect_eq(rig_fill(rig, "v", 2, 64 * KIB), BLK_OK);
            cr_expect(rig_holds(rig, "v", 2), "%s without %x", raid_level_name(levels[i].level), away);
            scene_destroy(scene);
        }
}

/* 21: a dock with three of four disks lost power, and "failed" in the superblocks kept them out for ever. */
Test(disasters, three_of_four_disks_that_lose_power_are_complete_when_they_are_back)
{
    static const enum raid_level dock[] = {RAID_5, RAID_6, RAID_10, RAID_0};
    for (unsigned i = 0; i < ARRAY_LENGTH(dock); i++) {
        const char *name = raid_level_name(dock[i]);
        struct scene *scene = scene_written(4, dock[i], MIB);
        struct rig *rig = scene->rig;
        struct rig_write write = {0};
        for (unsigned disk = 1; disk < 4; disk++)
            fault_kill(rig->dev[disk]);
        rig_write_start(rig, &write, "v", 0, 65536, 9);
        testloop_run(rig->t);
        cr_assert(write.over && write.req.status == BLK_GONE, "%s", name);
        cr_expect_not(rig_close(rig));
        cr_expect_not(scene_start(scene, 0x1), "%s", name);
        cr_expect_eq(rig->assembly.verdict, ASSEMBLY_WAITING, "%s: %s", name, rig->assembly.reason);
        cr_expect_not_null(strstr(rig->assembly.reason, "waits for slot 1 (disk1), slot 2 (disk2) and slot 3 (disk3)"),
                           "%s: %s", name, rig->assembly.reason);
        for (unsigned disk = 1; disk < 4; disk++)
            fault_revive(rig->dev[disk]);
        cr_assert(scene_start(scene, 0xf), "%s: %s", name, rig->assembly.reason);
        cr_expect_eq(rig->assembly.verdict, ASSEMBLY_COMPLETE, "%s: %s", name, rig->assembly.reason);
        struct array_info info = rig_info(rig);
        cr_expect(info.jobs_count == 0 || strcmp(info.jobs[0].kind, "resync") == 0, "%s: nothing is rebuilt", name);
        rig_settle(rig);
        uint8_t *want = malloc(MIB), *have = malloc(MIB);
        test_fill(want, MIB, 1);
        cr_expect_eq(test_io(rig->t, array_volume(rig->array, "v"), BLK_READ, 0, 0, have, MIB), BLK_OK);
        cr_expect_arr_eq(want + 65536, have + 65536, MIB - 65536, "%s", name);
        free(want);
        free(have);
        scene_destroy(scene);
    }
}

/* 22: a disk pulled and put in again was not taken back, without a word. */
Test(disasters, a_disk_pulled_and_put_in_again_is_taken_back_and_rebuilt)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(levels); i++) {
        const char *name = raid_level_name(levels[i].level);
        struct scene *scene = scene_written(levels[i].disks, levels[i].level, MIB);
        struct rig *rig = scene->rig;
        fault_kill(rig->dev[1]);
        cr_expect_eq(rig_fill(rig, "v", 2, 64 * KIB), BLK_OK, "%s", name);
        cr_expect_str_eq(rig_info(rig).members[1].state, "failed", "%s", name);
        cr_expect_not(rig_online(rig, 1), "%s: it is not there yet", name);
        cr_expect_not_null(strstr(rig->message, "disk disk1 cannot be read (device gone)"), "%s", rig->message);
        fault_revive(rig->dev[1]);
        cr_assert(rig_online(rig, 1), "%s: %s", name, rig->message);
        scene_expect_whole(scene, 2, name);
        scene_destroy(scene);
    }
}

/* 23: a disk that the system calls by another name was missing. */
Test(disasters, disks_that_change_their_names_are_found_by_what_stands_on_them)
{
    struct scene *scene = scene_written(4, RAID_6, MIB);
    struct rig *rig = scene->rig;
    static const char *const renamed[] = {"disk3", "sdx", "disk0", "disk1"};
    cr_assert(rig_close(rig), "%s", rig->message);
    scene_show(scene, 0);
    for (unsigned disk = 0; disk < 4; disk++)
        scene_show_as(scene, disk, renamed[disk]);
    cr_assert(scene_decide(scene));
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_COMPLETE, "%s", rig->assembly.reason);
    for (unsigned disk = 0; disk < 4; disk++)
        cr_expect(scene_takes(scene, disk, disk), "disk %u", disk);
    cr_assert(scene_open(scene), "%s", rig->message);
    for (unsigned slot = 0; slot < 4; slot++)
        cr_expect_str_eq(rig_info(rig).members[slot].identity, renamed[slot]);
    scene_expect_whole(scene, 1, "renamed");
    scene_destroy(scene);
}

/* --- sizes --- */

/* 16: a larger replacement was not accepted. */
Test(disasters, a_larger_disk_is_fine_as_a_replacement)
{
    struct scene *scene = scene_written(3, RAID_5, 0);
    struct rig *rig = scene->rig;
    cr_assert(rig_fail(rig, 1), "%s", rig->message);
    rig_disk_replace(rig, 1, DISK + 2048 * MIB, 512);
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    scene_expect_whole(scene, 1, "on a larger disk");
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(scene_start(scene, 7), "%s", rig->assembly.reason);
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_COMPLETE, "%s", rig->assembly.reason);
    cr_expect(rig_holds(rig, "v", 1));
    scene_destroy(scene);
}

/* 17: disks of nominally the same size differ by a little. */
Test(disasters, a_replacement_smaller_by_less_than_the_rounding_fits)
{
    struct scene *scene = scene_create(3, DISK);
    struct rig *rig = scene->rig;
    for (unsigned disk = 0; disk < 3; disk++)
        rig_disk_replace(rig, disk, DISK + 700 * KIB, 512);
    cr_assert(rig_make_one(rig, RAID_5, 0), "%s", rig->message);
    cr_assert_eq(rig_fill(rig, "v", 1, MIB), BLK_OK);
    rig_settle(rig);
    cr_assert(rig_fail(rig, 2), "%s", rig->message);
    rig_disk_replace(rig, 2, DISK + 4 * KIB, 512);
    cr_assert(rig_online(rig, 2), "%s", rig->message);
    scene_expect_whole(scene, 1, "on a smaller disk");
    scene_destroy(scene);
}
