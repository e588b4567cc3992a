/*
 * Disasters with rebuilds and copies, each as it was reported of some system or other, and what must hold instead. The
 * numbers are those of the table in docs/testing.md.
 */
#include <criterion/criterion.h>

#include "core/log.h"
#include "tests/unit/raid/scenes.h"

enum { DISK = 40 * 1024 * 1024, BLOCK = 4096, SLOT = 1 };
#define SECOND 1000000000ull

static uint64_t left(struct rig *rig)
{
    struct array_info info = rig_info(rig);
    return info.jobs_count > 0 ? info.jobs[0].total_bytes - info.jobs[0].done_bytes : 0;
}

/* 11: two new disks were being filled; after a restart both began from the start. */
Test(disasters, two_rebuilds_at_once_go_on_where_they_were_after_a_restart)
{
    static const struct {
        enum raid_level level;
        unsigned disks, out[2];
    } cases[] = {{RAID_10, 4, {1, 3}}, {RAID_6, 5, {1, 3}}, {RAID_1, 3, {1, 2}}, {RAID_50, 6, {1, 4}}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++)
        for (unsigned kill = 0; kill < 2; kill++) {
            const char *name = raid_level_name(cases[i].level);
            struct scene *scene = scene_written(cases[i].disks, cases[i].level, 0);
            struct rig *rig = scene->rig;
            cr_assert(rig_pause(rig, 0, true), "%s", rig->message);
            for (unsigned k = 0; k < 2; k++) {
                cr_assert(rig_fail(rig, cases[i].out[k]), "%s: %s", name, rig->message);
                rig_disk_replace(rig, cases[i].out[k], DISK, 512);
            }
            for (unsigned k = 0; k < 2; k++)
                cr_assert(rig_online(rig, cases[i].out[k]), "%s: %s", name, rig->message);
            uint64_t all = left(rig);
            cr_assert(rig_rate(rig, 0, 20, 0, all / 60), "%s", rig->message); /* a minute */
            cr_assert(rig_pause(rig, 0, false), "%s", rig->message);
            for (unsigned s = 0; s < 600 && left(rig) > all / 2; s++)
                rig_wait(rig, SECOND / 2);
            uint64_t before = left(rig);
            cr_assert(before > 0 && before <= all / 2, "%s: in the middle of it", name);
            if (kill)
                rig_kill(rig);
            else
                cr_assert(rig_close(rig), "%s: %s", name, rig->message);
            cr_assert(scene_start(scene, (1u << rig->count) - 1), "%s: %s", name, rig->assembly.reason);
            for (unsigned k = 0; k < 2; k++)
                cr_expect_str_eq(rig_info(rig).members[cases[i].out[k]].state, "rebuilding", "%s", name);
            cr_expect_leq(left(rig), kill ? all * 3 / 4 : before, "%s, kill %u: %llu of %llu left", name, kill,
                          (unsigned long long)left(rig), (unsigned long long)all);
            cr_assert(rig_rate(rig, 0, 20, 0, 0), "%s", rig->message);
            scene_expect_whole(scene, 1, name);
            scene_destroy(scene);
        }
}

/* 27: one block in a hundred of the disk that is to be replaced cannot be read. All others are copied. */
Test(disasters, a_disk_with_bad_blocks_all_over_is_replaced_by_a_copy)
{
    static const struct {
        enum raid_level level;
        unsigned disks;
    } cases[] = {{RAID_1, 2}, {RAID_10, 4}, {RAID_5, 4}, {RAID_6, 5}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        const char *name = raid_level_name(cases[i].level);
        struct scene *scene = scene_written(cases[i].disks, cases[i].level, 0);
        struct rig *rig = scene->rig;
        uint64_t data = array_description(rig->array)->data_start;
        for (uint64_t bad = 0; bad < 16; bad++) /* in 32 chunks: more than a disk in service is forgiven */
            cr_assert_geq(fault_add(rig->dev[SLOT], &(struct fault_rule){.ops = 1u << BLK_READ,
                                                                         .off = data + bad * 19 * 65536 + 65536 - BLOCK,
                                                                         .len = 3 * BLOCK,
                                                                         .status = BLK_MEDIA}),
                          0);
        unsigned disk = rig_disk_more(rig, DISK, 512);
        cr_assert(rig_replace(rig, SLOT, disk), "%s: %s", name, rig->message);
        cr_assert(rig_replaced(rig), "%s: %s", name, rig->message);
        cr_expect_str_eq(rig_info(rig).members[SLOT].identity, rig_disk(rig, disk).identity, "%s", name);
        cr_expect_eq(rig_info(rig).members[SLOT].bad_bytes, 0, "%s: the holes were computed", name);
        fault_kill(rig->dev[SLOT]);
        scene_expect_whole(scene, 1, name);
        scene_destroy(scene);
    }
}
