/* Assembly: are enough members there, and what of those that are there and cannot be used? */
#include <criterion/criterion.h>

#include "core/log.h"
#include "tests/unit/raid/assembly_scene.h"

/* --- enough members? --- */

Test(assembly_members, too_few_members_wait_and_say_for_whom)
{
    struct sb_array a = simple(4, RAID_5);
    add_disk(&a, 1, "b", NULL);
    add_disk(&a, 2, "c", NULL);
    expect(ASSEMBLY_WAITING, false, "- b c -");
    expect_reason("array tank waits for slot 0 (disk0) and slot 3 (disk3); volume v0 cannot be served without");
    scene.options.force = true;
    expect(ASSEMBLY_WAITING, false, "- b c -");
    add_disk(&a, 0, "a", NULL);
    expect(ASSEMBLY_DEGRADED, true, "a b c -");
    expect_reason("array tank is degraded; slot 3 (disk3) is missing");
}

/* --- members that are there and cannot be used --- */

Test(assembly_members, a_disk_that_cannot_be_used_is_away_and_says_why)
{
    struct sb_array array = simple(4, RAID_5);
    for (unsigned slot = 0; slot < 4; slot++)
        add_disk(&array, slot, (const char *[]){"a", "b", "c", "d"}[slot], NULL);
    scene.disks[2].unusable = "c is in use, locked by another program";
    expect(ASSEMBLY_DEGRADED, true, "a b - d");
    expect_reason("array tank is degraded; slot 2 (disk2) is missing; c is in use, locked by another program");
    cr_expect_not(result.stale_of_disk[2]);
    scene.disks[0].unusable = "a has shrunk";
    expect(ASSEMBLY_WAITING, false, "- b - d");
    expect_reason("array tank waits for slot 0 (disk0) and slot 2 (disk2); volume v0 cannot be served without; a has "
                  "shrunk; c is in use, locked by another program");
}

Test(assembly_members, a_disk_that_has_lost_its_end_is_stale)
{
    static const struct {
        const char *what;
        unsigned later;
        bool filling;
        enum sb_member_state state;
        uint64_t missed_from;
        bool stale;
    } cases[] = {
        {"in service", 3, false, SB_ACTIVE, 0, true},          {"just created", 0, false, SB_ACTIVE, 0, true},
        {"a new disk", 3, false, SB_REBUILDING, 0, false},     {"filled in part", 3, true, SB_REBUILDING, 0, true},
        {"being caught up", 3, false, SB_REBUILDING, 1, true},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct sb_array base = simple(3, RAID_5), a = later(&base, cases[i].later);
        a.generation = cases[i].later + 1;
        a.clean = true;
        a.members[1].state = cases[i].state;
        a.members[1].filling = cases[i].filling;
        a.members[1].missed_from = cases[i].missed_from;
        scene_clear();
        add_disk(&a, 0, "a", NULL);
        add_disk(&a, 1, "b", NULL);
        add_disk(&a, 2, "c", NULL);
        scene.labels[1].tail_blank = true;
        cr_assert_eq(assembly_decide(scene.disks, 3, &scene.options, &result, 1), 1);
        cr_expect(result.startable, "%s: %s", cases[i].what, result.reason);
        cr_expect_eq(result.disk_of_slot[1], cases[i].stale ? -1 : 1, "%s: %s", cases[i].what, result.reason);
        cr_expect_eq(result.stale_of_disk[1], cases[i].stale, "%s", cases[i].what);
        cr_expect_eq(strstr(result.reason,
                            "disk b has lost what stood at its end, as if it had been cut short: it needs "
                            "a rebuild") != NULL,
                     cases[i].stale, "%s: %s", cases[i].what, result.reason);
    }
}

Test(assembly_members, what_a_disk_knows_counts_though_it_cannot_be_used)
{
    struct sb_array array = simple(2, RAID_1), alone = run_without(&array, 1, SB_FAILED, 1);
    add_disk(&alone, 0, "a", NULL);
    add_disk(&array, 1, "b", NULL);
    scene.disks[0].unusable = "a is held";
    expect(ASSEMBLY_WAITING, false, "- -");
    expect_reason(
        "array tank waits for slot 0 (disk0); volume v0 cannot be served without; a is held; disk b had failed "
        "and needs a rebuild");
}

Test(assembly_members, a_stale_disk_is_stale_whether_it_can_be_used_or_not)
{
    struct sb_array array = simple(3, RAID_5), later_on = run_without(&array, 1, SB_ABSENT, 1);
    add_disk(&later_on, 0, "a", NULL);
    add_disk(&array, 1, "b", NULL);
    add_disk(&later_on, 2, "c", NULL);
    scene.disks[1].unusable = "b is held";
    expect(ASSEMBLY_DEGRADED, true, "a - c");
    expect_reason("array tank is degraded; slot 1 (disk1) was given up; disk b is stale: the array ran on without it");
}

Test(assembly_members, a_dirty_array_is_refused_without_a_disk_that_cannot_be_used)
{
    struct sb_array array = simple(3, RAID_5);
    array.clean = false;
    for (unsigned slot = 0; slot < 3; slot++)
        add_disk(&array, slot, (const char *[]){"a", "b", "c"}[slot], NULL);
    expect(ASSEMBLY_COMPLETE, true, "a b c");
    scene.disks[1].unusable = "b is held";
    expect(ASSEMBLY_DIRTY_DEGRADED, false, "a - c");
    cr_expect(strstr(result.reason, "; b is held") != NULL, "%s", result.reason);
}

Test(assembly_members, every_level_bears_as_many_as_it_can)
{
    static const struct {
        enum raid_level level;
        unsigned members, bears;
    } cases[] = {{RAID_SPAN, 4, 0}, {RAID_0, 4, 0}, {RAID_1, 4, 3},  {RAID_3, 4, 1},
                 {RAID_5, 4, 1},    {RAID_6, 5, 2}, {RAID_TP, 6, 3}, {RAID_10, 4, 1}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sb_array a = simple(cases[i].members, cases[i].level);
        for (unsigned lost = 1; lost <= cases[i].bears + 1 && lost < cases[i].members; lost++) {
            scene_clear();
            for (unsigned slot = 0; slot + lost < cases[i].members; slot++)
                add_disk(&a, slot, "x", NULL);
            assembly_decide(scene.disks, scene.count, &scene.options, &result, 1);
            enum assembly_verdict verdict = lost <= cases[i].bears ? ASSEMBLY_DEGRADED : ASSEMBLY_WAITING;
            cr_expect_eq(result.verdict, verdict, "%s without %u", raid_level_name(cases[i].level), lost);
        }
    }
}

static struct sb_array striped_and_raid6(void)
{
    struct sb_array a = simple(4, RAID_6);
    label_add_volume(&a, RAID_0, 64 * MIB);
    return a;
}

Test(assembly_members, members_merely_away_are_awaited_if_any_volume_needs_them)
{
    struct sb_array a = striped_and_raid6();
    add_disk(&a, 0, "a", NULL);
    add_disk(&a, 1, "b", NULL);
    add_disk(&a, 2, "c", NULL);
    expect(ASSEMBLY_WAITING, false, "a b c -");
    expect_reason("array tank waits for slot 3 (disk3); volume v1 cannot be served without");
    scene.options.force = true;
    expect(ASSEMBLY_DEGRADED, true, "a b c -");
    expect_reason("array tank is degraded; slot 3 (disk3) is missing; volume v1 cannot be served");
}

Test(assembly_members, what_a_recorded_failure_took_is_not_waited_for)
{
    struct sb_array a = striped_and_raid6(), b = run_without(&a, 3, SB_FAILED, 1);
    add_disk(&b, 0, "a", NULL);
    add_disk(&b, 1, "b", NULL);
    add_disk(&b, 2, "c", NULL);
    expect(ASSEMBLY_DEGRADED, true, "a b c -");
    expect_reason("array tank is degraded; slot 3 (disk3) has failed; volume v1 cannot be served");
    scene.count = 2; /* one more away: RAID 6 bears it, and RAID 0 was lost before */
    expect(ASSEMBLY_DEGRADED, true, "a b - -");
    scene.count = 1;
    expect(ASSEMBLY_WAITING, false, "a - - -");
    expect_reason("array tank waits for slot 1 (disk1) and slot 2 (disk2); volumes v0 and v1 cannot be served without");
}

Test(assembly_members, a_jbod_volume_needs_its_own_slot_only)
{
    struct sb_array a = simple(3, RAID_JBOD);
    label_add_volume(&a, RAID_JBOD, 64 * MIB)->slot = 2;
    struct sb_array b = run_without(&a, 1, SB_ABSENT, 1);
    add_disk(&b, 0, "a", NULL);
    add_disk(&b, 2, "c", NULL);
    expect(ASSEMBLY_DEGRADED, true, "a - c");
    scene.count = 1;
    expect(ASSEMBLY_WAITING, false, "a - -");
    expect_reason("array tank waits for slot 2 (disk2); volume v1 cannot be served without");
}

Test(assembly_members, a_rebuilding_member_is_there_but_not_to_be_read)
{
    struct sb_array a = simple(3, RAID_5);
    a.members[1].state = SB_REBUILDING;
    add_disk(&a, 0, "a", NULL);
    add_disk(&a, 1, "b", NULL);
    add_disk(&a, 2, "c", NULL);
    expect(ASSEMBLY_DEGRADED, true, "a b c");
    expect_reason("array tank is degraded; slot 1 (disk1) was not rebuilt to the end");
    scene.disks[1] = scene.disks[2];
    scene.count = 2;
    expect(ASSEMBLY_DEGRADED, true, "a - c");
    scene.disks[1] = (struct assembly_disk){&scene.labels[1], "disk1", "b", NULL};
    expect(ASSEMBLY_WAITING, false, "a b -");
}
