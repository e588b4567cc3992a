/* Assembly: which members are current, split brains, long histories, dirty arrays, clones. */
#include <criterion/criterion.h>

#include "core/log.h"
#include "tests/unit/raid/assembly_scene.h"

/* --- who is current --- */

Test(assembly, all_members_current_is_complete)
{
    struct sb_array a = simple(4, RAID_5);
    const char *const names[] = {"a", "b", "c", "d"};
    for (unsigned i = 0; i < 4; i++)
        add_disk(&a, i, names[i], NULL);
    expect(ASSEMBLY_COMPLETE, true, "a b c d");
    expect_reason("array tank: all 4 members are here");
    for (unsigned i = 0; i < 4; i++)
        cr_expect_not(result.stale_of_disk[i]);
}

Test(assembly, a_dirty_array_with_all_its_members_starts)
{
    struct sb_array a = simple(3, RAID_5);
    a.clean = false;
    add_disk(&a, 0, "a", NULL);
    add_disk(&a, 1, "b", NULL);
    add_disk(&a, 2, "c", NULL);
    expect(ASSEMBLY_COMPLETE, true, "a b c");
    cr_expect_eq(result.array.clean, false);
}

Test(assembly, a_torn_generation_keeps_everybody)
{
    struct sb_array a = simple(3, RAID_5), b = later(&a, 1);
    add_disk(&a, 0, "a", NULL);
    add_disk(&b, 1, "b", NULL);
    add_disk(&a, 2, "c", NULL);
    expect(ASSEMBLY_COMPLETE, true, "a b c");
    cr_expect_eq(result.array.generation, b.generation, "the higher one wins");
}

Test(assembly, a_member_two_generations_behind_is_stale)
{
    struct sb_array a = simple(3, RAID_5), b = later(&a, 2);
    add_disk(&a, 0, "a", NULL);
    add_disk(&b, 1, "b", NULL);
    add_disk(&b, 2, "c", NULL);
    expect(ASSEMBLY_DEGRADED, true, "- b c");
    expect_reason("array tank is degraded; slot 0 (disk0) is missing; disk a is stale: it missed changes");
    cr_expect(result.stale_of_disk[0] && !result.stale_of_disk[1] && !result.stale_of_disk[2]);
}

Test(assembly, a_failure_torn_between_members_counts)
{
    struct sb_array a = simple(3, RAID_5), b = run_without(&a, 2, SB_FAILED, 1);
    add_disk(&b, 0, "a", NULL);
    add_disk(&a, 1, "b", NULL);
    add_disk(&a, 2, "c", NULL);
    expect(ASSEMBLY_DEGRADED, true, "a b -");
    expect_reason("array tank is degraded; slot 2 (disk2) has failed; disk c had failed and needs a rebuild");
}

Test(assembly, a_member_the_array_ran_on_without_is_stale)
{
    struct sb_array a = simple(3, RAID_5), b = run_without(&a, 2, SB_ABSENT, 1), c = later(&b, 5);
    add_disk(&c, 0, "a", NULL);
    add_disk(&c, 1, "b", NULL);
    add_disk(&a, 2, "c", NULL);
    expect(ASSEMBLY_DEGRADED, true, "a b -");
    expect_reason("array tank is degraded; slot 2 (disk2) was given up; disk c is stale: the array ran on without it");
    cr_expect(result.stale_of_disk[2]);
}

Test(assembly, a_fork_alone_tells_a_stale_member)
{
    struct sb_array a = simple(3, RAID_5), b = run_without(&a, 1, SB_ABSENT, 1), c = later(&b, 3);
    c.members[2].state = SB_ACTIVE; /* its slot is active, but it does not carry the present fork */
    add_disk(&c, 0, "a", NULL);
    add_disk(&a, 2, "c", NULL);
    expect(ASSEMBLY_WAITING, false, "a - -");
    expect_reason("array tank waits for slot 2 (disk2); volume v0 cannot be served without; disk c is stale: the array "
                  "ran on without it");
}

Test(assembly, a_role_is_read_from_the_winners_table_never_from_the_member)
{
    struct sb_array a = simple(3, RAID_5), b = later(&a, 1);
    struct sb_member swap = b.members[1];
    b.members[1] = b.members[2];
    b.members[2] = swap;
    add_disk(&b, 0, "a", NULL);
    add_disk(&a, 1, "b", NULL);
    add_disk(&a, 2, "c", NULL);
    expect(ASSEMBLY_COMPLETE, true, "a c b");
}

Test(assembly, a_slot_that_went_to_another_disk_leaves_the_old_one_out)
{
    struct sb_array a = simple(3, RAID_5), b = run_without(&a, 1, SB_FAILED, 1), c = later(&b, 1);
    c.members[1] = (struct sb_member){
        .uuid = label_uuid(LABEL_UUID_MEMBER, 9), .state = SB_ACTIVE, .identity = "spare", .size = 1 * GIB};
    add_disk(&c, 0, "a", NULL);
    add_disk(&a, 1, "old", NULL);
    add_disk(&c, 1, "new", NULL);
    add_disk(&c, 2, "c", NULL);
    expect(ASSEMBLY_COMPLETE, true, "a new c");
    expect_reason("array tank: all 3 members are here; disk old is no member any more, as its place was taken by "
                  "another");
    cr_expect(result.stale_of_disk[1]);
}

Test(assembly, an_old_image_of_a_member_is_stale)
{
    struct sb_array image = simple(2, RAID_1), a = later(&image, 5);
    a.committed = a.generation - 1;
    add_disk(&a, 0, "a", NULL);
    add_disk(&image, 1, "b", NULL);
    expect(ASSEMBLY_DEGRADED, true, "a -");
}

Test(assembly, several_openings_torn_one_after_the_other_lose_nobody)
{
    struct sb_array base = simple(3, RAID_5), a = later(&base, 3), b = later(&base, 1);
    a.committed = b.committed = base.committed = base.generation;
    add_disk(&a, 0, "a", NULL);
    add_disk(&base, 1, "b", NULL);
    add_disk(&b, 2, "c", NULL);
    expect(ASSEMBLY_COMPLETE, true, "a b c");
    cr_expect_eq(result.array.committed, base.generation);
    scene.labels[1] = label_of(&b, 1);
    expect(ASSEMBLY_COMPLETE, true, "a b c");
    cr_expect_eq(result.array.committed, b.generation, "what all current members have");
}

Test(assembly, of_labels_at_the_same_point_the_dirty_one_is_believed)
{
    for (unsigned dirty = 0; dirty < 2; dirty++) {
        scene_clear();
        struct sb_array a = simple(2, RAID_1), b = a;
        (dirty == 0 ? &a : &b)->clean = false;
        add_disk(&a, 0, "a", NULL);
        add_disk(&b, 1, "b", NULL);
        expect(ASSEMBLY_COMPLETE, true, "a b");
        cr_expect_not(result.array.clean);
    }
}

/* --- torn at the fork itself --- */

Test(assembly, a_fork_torn_between_members_keeps_those_who_were_to_have_it)
{
    struct sb_array a = simple(4, RAID_5), b = run_without(&a, 3, SB_ABSENT, 1);
    add_disk(&b, 0, "a", NULL);
    add_disk(&a, 1, "b", NULL);
    add_disk(&a, 2, "c", NULL);
    expect(ASSEMBLY_DEGRADED, true, "a b c -");
    add_disk(&a, 3, "d", NULL); /* and keeps out who was not */
    expect(ASSEMBLY_DEGRADED, true, "a b c -");
}

Test(assembly, a_generation_that_reached_only_the_one_left_behind_is_harmless)
{
    struct sb_array a = simple(3, RAID_5), torn = later(&a, 1), b = run_without(&a, 0, SB_ABSENT, 1);
    cr_assert_eq(torn.generation, b.generation);
    add_disk(&torn, 0, "a", NULL);
    add_disk(&b, 1, "b", NULL);
    add_disk(&b, 2, "c", NULL);
    expect(ASSEMBLY_DEGRADED, true, "- b c");
}

Test(assembly, several_that_reached_only_the_one_left_behind_are_harmless_too)
{
    struct sb_array a = simple(3, RAID_5), torn = later(&a, 2), b = run_without(&a, 0, SB_ABSENT, 1),
                    more = later(&b, 4);
    torn.committed = a.generation;
    more.committed = more.generation - 1;
    add_disk(&torn, 0, "a", NULL);
    add_disk(&b, 1, "b", NULL);
    add_disk(&b, 2, "c", NULL);
    expect(ASSEMBLY_DEGRADED, true, "- b c");
    scene.labels[1] = label_of(&more, 1);
    scene.labels[2] = label_of(&more, 2);
    expect(ASSEMBLY_DEGRADED, true, "- b c");
    torn.committed++; /* all had one of them: then it was acted upon */
    scene.labels[0] = label_of(&torn, 0);
    cr_assert_eq(assembly_decide(scene.disks, 3, &scene.options, &result, 1), 1);
    cr_expect_eq(result.verdict, ASSEMBLY_SPLIT);
}

Test(assembly, those_who_ran_on_are_known_when_they_live_no_more)
{
    struct sb_array a = simple(2, RAID_1), torn = later(&a, 2), b = run_without(&a, 0, SB_ABSENT, 1),
                    more = later(&b, 9);
    torn.committed = a.generation;
    more.forks[more.forks_count - 1].witness = a.members[1].uuid;
    for (unsigned slot = 0; slot < 2; slot++) { /* both slots have got other disks since */
        more.members[slot].state = SB_ACTIVE;
        more.members[slot].uuid = label_uuid(LABEL_UUID_FORK, 70 + slot);
    }
    more.committed = more.generation - 1;
    add_disk(&more, 0, "c", NULL);
    add_disk(&more, 1, "d", NULL);
    add_disk(&torn, 0, "a", NULL);
    expect(ASSEMBLY_COMPLETE, true, "c d");
    torn.committed++; /* all had one of them: then it was acted upon */
    scene.labels[2] = label_of(&torn, 0);
    cr_assert_eq(assembly_decide(scene.disks, 3, &scene.options, &result, 1), 1);
    cr_expect_eq(result.verdict, ASSEMBLY_SPLIT);
    torn.committed--;
    torn.members[1].state = SB_FAILED; /* the witness was written off: it may have gone on alone */
    scene.labels[2] = label_of(&torn, 0);
    cr_assert_eq(assembly_decide(scene.disks, 3, &scene.options, &result, 1), 1);
    cr_expect_eq(result.verdict, ASSEMBLY_SPLIT);
}

Test(assembly, but_not_if_it_wrote_off_those_who_ran_on)
{
    struct sb_array a = simple(2, RAID_1), alone = later(&a, 1), b = run_without(&a, 0, SB_ABSENT, 1);
    alone.members[1].state = SB_FAILED;
    add_disk(&alone, 0, "a", NULL);
    add_disk(&b, 1, "b", NULL);
    expect(ASSEMBLY_SPLIT, false, "a -");
}

/* --- a fork that reached one member --- */

/* Disk a began to start without e, and was cut off; b to f started without a, and ran on. */
static struct sb_array torn, ran;

static void show_both(void)
{
    scene_clear();
    add_disk(&torn, 0, "a", NULL);
    for (unsigned slot = 1; slot < 6; slot++)
        add_disk(&ran, slot, (const char *[]){"a", "b", "c", "d", "e", "f"}[slot], NULL);
}

static void a_fork_on_one(void)
{
    struct sb_array base = simple(6, RAID_6);
    base.members[0].state = SB_REBUILDING;
    torn = run_without(&base, 4, SB_ABSENT, 1);
    torn.committed = base.generation;
    ran = run_without(&base, 0, SB_ABSENT, 2);
    ran = later(&ran, 1);
    ran.committed = base.generation + 1;
    show_both();
}

static void expect_apart(void)
{
    show_both();
    cr_assert_eq(assembly_decide(scene.disks, scene.count, &scene.options, &result, 1), 1);
    cr_expect_eq(result.verdict, ASSEMBLY_SPLIT, "%s", result.reason);
}

Test(assembly, a_fork_that_reached_one_and_was_not_acted_upon_is_harmless)
{
    a_fork_on_one();
    expect(ASSEMBLY_DEGRADED, true, "- b c d e f");
    expect_reason("array tank is degraded; slot 0 (disk0) was given up; disk a is stale: the array ran on without it");
    torn = run_without(&torn, 5, SB_ABSENT, 3); /* and so is another one behind it */
    show_both();
    expect(ASSEMBLY_DEGRADED, true, "- b c d e f");
}

Test(assembly, whoever_carries_a_fork_that_nobody_ran_under_is_stale)
{
    a_fork_on_one();
    ran.members[0].state = SB_ACTIVE; /* whatever the others say */
    show_both();
    expect(ASSEMBLY_DEGRADED, true, "- b c d e f");
    cr_expect(result.stale_of_disk[0]);
}

Test(assembly, but_not_if_all_who_were_live_had_it)
{
    a_fork_on_one();
    torn.committed = torn.generation;
    expect_apart();
}

Test(assembly, but_not_if_nobody_who_was_live_there_ran_on)
{
    a_fork_on_one();
    for (unsigned slot = 1; slot < 6; slot++)
        torn.members[slot].state = SB_ABSENT;
    expect_apart();
}

Test(assembly, but_not_if_those_who_ran_on_may_be_torn_themselves)
{
    a_fork_on_one();
    ran.committed--; /* nobody knows that more than one of them had it: others may have run under the fork */
    expect_apart();
    ran.committed = 0;
    expect_apart();
}

/* Of a mirror of three, c got the others' fork and nobody else did; then a and b ran under theirs. */
Test(assembly, two_starts_one_of_them_torn_are_both_shown_while_it_is_not_known_which)
{
    struct sb_array base = simple(3, RAID_1), served = run_without(&base, 2, SB_ABSENT, 1),
                    cut = run_without(&base, 0, SB_ABSENT, 2);
    served.committed = cut.committed = base.generation;
    add_disk(&served, 0, "a", NULL);
    add_disk(&cut, 2, "c", NULL);
    cr_assert_eq(assembly_decide(scene.disks, 2, &scene.options, &result, 1), 1);
    cr_expect_eq(result.verdict, ASSEMBLY_SPLIT, "%s", result.reason);
    served.generation++; /* a and b both had their first one: then c served nobody */
    served.committed++;
    scene.labels[0] = label_of(&served, 0);
    add_disk(&served, 1, "b", NULL);
    expect(ASSEMBLY_DEGRADED, true, "a b -");
}

/* --- split brain --- */

/* Both halves of a mirror ran alone: a further than b. */
static void two_halves(void)
{
    struct sb_array base = simple(2, RAID_1);
    struct sb_array a = run_without(&base, 1, SB_ABSENT, 1), b = run_without(&base, 0, SB_ABSENT, 2);
    a = later(&a, 30);
    a.updated_s = 1709210096; /* 2024-02-29 12:34:56 UTC */
    add_disk(&a, 0, "a", NULL);
    add_disk(&b, 1, "b", NULL);
}

Test(assembly, two_halves_that_ran_apart_are_a_split_brain)
{
    two_halves();
    expect(ASSEMBLY_SPLIT, false, "a -");
    expect_reason("array tank: its members ran apart from each other: a ran from generation 11 to 41, last changed "
                  "2024-02-29 12:34 UTC; b ran from generation 11 to 11, last changed 2023-11-14 22:15 UTC. Each may "
                  "hold acknowledged writes. corbelctl array assemble tank --prefer DISK takes the one that the disk "
                  "belongs to, apply --force the one with the highest generation; what the others hold is given up");
}

Test(assembly, a_split_brain_is_decided_by_preference)
{
    two_halves();
    scene.options.prefer = label_uuid(LABEL_UUID_MEMBER, 1);
    expect(ASSEMBLY_DEGRADED, true, "- b");
    expect_reason("array tank is degraded; slot 0 (disk0) was given up; of the histories of its members, which ran "
                  "apart, this one was chosen; disk a is stale: the array ran on without it");
    scene.options.prefer = label_uuid(LABEL_UUID_MEMBER, 0);
    expect(ASSEMBLY_DEGRADED, true, "a -");
    scene.options.prefer = label_uuid(LABEL_UUID_MEMBER, 7);
    expect(ASSEMBLY_SPLIT, false, "a -");
}

Test(assembly, force_takes_the_highest_generation_of_a_split_brain)
{
    two_halves();
    scene.options.force = true;
    expect(ASSEMBLY_DEGRADED, true, "a -");
}

Test(assembly, the_choice_in_a_split_brain_is_remembered)
{
    for (unsigned preferred = 0; preferred < 2; preferred++) {
        scene_clear();
        two_halves();
        scene.options.prefer = label_uuid(LABEL_UUID_MEMBER, preferred);
        cr_assert_eq(assembly_decide(scene.disks, 2, &scene.options, &result, 1), 1);
        cr_expect_eq(result.array.forks_count, 3);
        cr_expect(result.array.forks[1].settled && !result.array.forks[2].settled);
        struct sb_array next = later(&result.array, 1), mid = next;
        scene.labels[preferred] = label_of(&next, preferred);
        scene.options.prefer = (struct uuid){{0}};
        expect(ASSEMBLY_DEGRADED, true, preferred == 0 ? "a -" : "- b");
        next = run_without(&mid, 1 - preferred, SB_FAILED, 8);
        scene.labels[preferred] = label_of(&next, preferred);
        expect(ASSEMBLY_DEGRADED, true, preferred == 0 ? "a -" : "- b");
    }
}

Test(assembly, a_loser_that_runs_on_alone_is_a_split_brain_again)
{
    two_halves();
    scene.options.prefer = label_uuid(LABEL_UUID_MEMBER, 1);
    cr_assert_eq(assembly_decide(scene.disks, 2, &scene.options, &result, 1), 1);
    struct sb_array winner = later(&result.array, 1), loser = later(&scene.labels[0].array, 1);
    scene.labels[1] = label_of(&winner, 1);
    scene.options.prefer = (struct uuid){{0}};
    expect(ASSEMBLY_DEGRADED, true, "- b");
    scene.labels[0] = label_of(&loser, 0);
    expect(ASSEMBLY_SPLIT, false, "a -");
}

Test(assembly, a_failed_member_that_ran_alone_is_a_split_brain)
{
    struct sb_array base = simple(2, RAID_1);
    struct sb_array a = run_without(&base, 1, SB_FAILED, 1), b = run_without(&base, 0, SB_ABSENT, 2);
    a = later(&a, 40);
    add_disk(&a, 0, "a", NULL);
    add_disk(&b, 1, "b", NULL);
    expect(ASSEMBLY_SPLIT, false, "a -");
}

Test(assembly, one_that_went_on_under_the_old_fork_ran_apart)
{
    struct sb_array base = simple(2, RAID_1), a = later(&base, 40), b = run_without(&base, 0, SB_ABSENT, 2);
    add_disk(&a, 0, "a", NULL);
    add_disk(&b, 1, "b", NULL);
    cr_assert_eq(assembly_decide(scene.disks, 2, &scene.options, &result, 1), 1);
    cr_expect_eq(result.verdict, ASSEMBLY_SPLIT);
    scene.options.prefer = label_uuid(LABEL_UUID_MEMBER, 1);
    cr_assert_eq(assembly_decide(scene.disks, 2, &scene.options, &result, 1), 1);
    cr_expect(result.startable && result.array.forks[1].settled);
    struct sb_array next = later(&result.array, 1);
    scene.labels[1] = label_of(&next, 1);
    scene.options.prefer = (struct uuid){{0}};
    expect(ASSEMBLY_DEGRADED, true, "- b");
}

/* --- long histories --- */

/* A member left at the first line; then `lines` more, of which those with a bit in `left` were left by all. */
static struct sb_array long_history(const struct sb_array *base, unsigned lines, uint64_t left)
{
    struct sb_array a = run_without(base, 1, SB_ABSENT, 1);
    for (unsigned i = 0; i < lines; i++) {
        a.generation += 2;
        history_make_room(&a);
        a.forks[a.forks_count - 1].left = left >> i % 64 & 1;
        a.forks[a.forks_count++] =
            (struct sb_fork){.id = label_uuid(LABEL_UUID_FORK, 100 + i), .generation = a.generation};
    }
    return a;
}

Test(assembly, many_starts_without_a_member_do_not_make_it_look_as_if_it_had_run_apart)
{
    struct sb_array base = simple(2, RAID_1), a = long_history(&base, 3000, ~1ull);
    cr_expect_eq(a.forks_count, SB_FORKS_MAX);
    cr_expect(uuid_equal(&a.forks[0].id, &base.forks[0].id), "the line that the member stands on is kept");
    add_disk(&a, 0, "a", NULL);
    add_disk(&base, 1, "b", NULL);
    expect(ASSEMBLY_DEGRADED, true, "a -");
}

/* Members may stand on every other line, so that lines are forgotten, oldest first. */
static struct sb_array forgetful(const struct sb_array *base)
{
    struct sb_array a = long_history(base, SB_FORKS_MAX + 6, 0x5555555555555555);
    cr_expect_eq(a.forks_count, SB_FORKS_MAX);
    cr_expect_not(uuid_equal(&a.forks[0].id, &base->forks[0].id));
    return a;
}

Test(assembly, a_disk_older_than_all_that_is_remembered_is_stale_if_one_that_knew_it_is_live)
{
    struct sb_array base = simple(2, RAID_1), a = forgetful(&base);
    add_disk(&a, 0, "a", NULL);
    add_disk(&base, 1, "b", NULL);
    expect(ASSEMBLY_DEGRADED, true, "a -");
    expect_reason("array tank is degraded; slot 1 (disk1) was given up; disk b is stale: the array ran on without it");
}

Test(assembly, a_disk_older_than_all_that_is_remembered_ran_apart_if_nobody_is_left_who_knew_it)
{
    struct sb_array base = simple(2, RAID_1), a = forgetful(&base);
    a.members[0].uuid = label_uuid(LABEL_UUID_MEMBER, 77);
    add_disk(&a, 0, "a", NULL);
    add_disk(&base, 1, "b", NULL);
    expect(ASSEMBLY_SPLIT, false, "a -");
    cr_expect(strstr(result.reason, "a disk that was away for very long") != NULL, "%s", result.reason);
}

Test(assembly, one_that_ran_on_alone_is_told_however_old_it_is)
{
    struct sb_array base = simple(2, RAID_1), a = forgetful(&base), b = run_without(&base, 0, SB_FAILED, 99);
    add_disk(&a, 0, "a", NULL);
    add_disk(&b, 1, "b", NULL);
    expect(ASSEMBLY_SPLIT, false, "a -");
}

Test(assembly, three_histories)
{
    struct sb_array base = simple(3, RAID_1), half[3];
    const char *const names[] = {"a", "b", "c"};
    for (unsigned i = 0; i < 3; i++) {
        half[i] = run_without(&base, (i + 1) % 3, SB_ABSENT, 1 + i);
        half[i].members[(i + 2) % 3].state = SB_ABSENT;
        add_disk(&half[i], i, names[i], NULL);
    }
    expect(ASSEMBLY_SPLIT, false, "a - -");
    scene.options.prefer = label_uuid(LABEL_UUID_MEMBER, 2);
    expect(ASSEMBLY_DEGRADED, true, "- - c");
    cr_expect_eq(result.array.forks_count, 4);
}

/* --- dirty and degraded --- */

static void dirty_case(enum raid_level level, enum sb_consistency consistency, bool clean)
{
    scene_clear();
    struct sb_array a = simple(4, level);
    a.clean = clean;
    a.volumes[0].consistency = consistency;
    add_disk(&a, 0, "a", NULL);
    add_disk(&a, 1, "b", NULL);
    add_disk(&a, 3, "d", NULL);
}

Test(assembly, dirty_and_degraded_parity_needs_force)
{
    static const enum raid_level levels[] = {RAID_3, RAID_5, RAID_6};
    for (unsigned i = 0; i < 3; i++) {
        for (enum sb_consistency c = SB_RESYNC; c <= SB_BITMAP; c++) {
            dirty_case(levels[i], c, false);
            expect(ASSEMBLY_DIRTY_DEGRADED, false, "a b - d");
            scene.options.force = true;
            expect(ASSEMBLY_DEGRADED, true, "a b - d");
        }
    }
    expect_reason("array tank is degraded; slot 2 (disk2) is missing; started by force after a crash, so blocks of "
                  "volume v0 that were being written are suspect");
    scene.options.force = false;
    expect(ASSEMBLY_DIRTY_DEGRADED, false, "a b - d");
    expect_reason("array tank was not stopped cleanly and is degraded: on volume v0 acknowledged writes may be missing "
                  "or damaged where the lost member held them; wait for the members, or start it with apply "
                  "--force; slot 2 (disk2) is missing");
}

Test(assembly, dirty_and_degraded_is_fine_for_mirrors_and_closed_write_holes)
{
    dirty_case(RAID_1, SB_RESYNC, false);
    expect(ASSEMBLY_DEGRADED, true, "a b - d");
    dirty_case(RAID_10, SB_BITMAP, false);
    expect(ASSEMBLY_DEGRADED, true, "a b - d");
    dirty_case(RAID_5, SB_PPL, false);
    expect(ASSEMBLY_DEGRADED, true, "a b - d");
    dirty_case(RAID_6, SB_JOURNAL, false);
    expect(ASSEMBLY_DEGRADED, true, "a b - d");
    dirty_case(RAID_5, SB_RESYNC, true);
    expect(ASSEMBLY_DEGRADED, true, "a b - d");
}

Test(assembly, force_names_only_the_volumes_that_became_suspect)
{
    struct sb_array a = simple(4, RAID_5);
    label_add_volume(&a, RAID_10, 64 * MIB);
    label_add_volume(&a, RAID_6, 64 * MIB)->consistency = SB_JOURNAL;
    label_add_volume(&a, RAID_3, 64 * MIB);
    a.clean = false;
    add_disk(&a, 0, "a", NULL);
    add_disk(&a, 1, "b", NULL);
    add_disk(&a, 2, "c", NULL);
    scene.options.force = true;
    expect(ASSEMBLY_DEGRADED, true, "a b c -");
    expect_reason("array tank is degraded; slot 3 (disk3) is missing; started by force after a crash, so blocks of "
                  "volumes v0 and v3 that were being written are suspect");
}

/* --- clones --- */

Test(assembly, of_two_copies_of_a_member_the_recorded_disk_is_taken)
{
    struct sb_array a = simple(2, RAID_1), old = a;
    a = later(&a, 1);
    add_disk(&a, 0, "a", NULL);
    add_disk(&a, 1, "b", NULL);
    add_disk(&old, 1, "copy", "other");
    expect(ASSEMBLY_COMPLETE, true, "a b");
    expect_reason("array tank: all 2 members are here; disk copy is a copy of another member and is left alone");
    cr_expect(result.stale_of_disk[2]);
}

Test(assembly, a_newer_copy_does_not_win_over_the_recorded_disk)
{
    struct sb_array a = simple(2, RAID_1), ahead = run_without(&a, 0, SB_ABSENT, 1);
    add_disk(&a, 0, "a", NULL);
    add_disk(&a, 1, "b", NULL);
    add_disk(&ahead, 1, "copy", "other");
    expect(ASSEMBLY_COMPLETE, true, "a b");
}

Test(assembly, copies_that_cannot_be_told_apart_are_refused)
{
    static const char *const identities[][2] = {{"x", "y"}, {"disk1", "disk1"}, {"", ""}};
    for (unsigned i = 0; i < 3; i++) {
        scene_clear();
        struct sb_array a = simple(3, RAID_5);
        add_disk(&a, 0, "a", NULL);
        add_disk(&a, 1, "b", identities[i][0]);
        add_disk(&a, 1, "copy", identities[i][1]);
        add_disk(&a, 2, "c", NULL);
        scene.options.force = true;
        expect(ASSEMBLY_CLONE, false, "a - c");
    }
    expect_reason(
        "array tank: the same member stands on more than one disk: b, copy. One may be a copy of the other, or "
        "they are two ways to one disk: leave only the right one");
}

/* --- several arrays, limits --- */

Test(assembly, disks_of_several_arrays_are_told_apart)
{
    struct sb_array a = simple(2, RAID_1), b = simple(2, RAID_1);
    b.uuid = label_uuid(LABEL_UUID_ARRAY, 0);
    text_format(b.name, sizeof b.name, "pool");
    add_disk(&a, 0, "a0", NULL);
    add_disk(&b, 1, "b1", NULL);
    add_disk(&a, 1, "a1", NULL);
    struct assembly two[2];
    cr_assert_eq(assembly_decide(scene.disks, 3, &scene.options, two, 2), 2);
    cr_expect_str_eq(two[0].array.name, "pool", "in order of UUID");
    cr_expect_eq(two[0].verdict, ASSEMBLY_DEGRADED);
    cr_expect_eq(two[0].disk_of_slot[1], 1);
    cr_expect_eq(two[1].verdict, ASSEMBLY_COMPLETE);
    cr_expect_eq(two[1].disk_of_slot[1], 2);
    cr_expect_eq(assembly_decide(scene.disks, 3, &scene.options, two, 1), 2, "more than there is room for");
    cr_expect_eq(assembly_decide(scene.disks, 0, &scene.options, two, 1), 0);
}

Test(assembly, an_array_without_volumes_starts_with_what_there_is)
{
    struct sb_array a;
    label_make_array(&a, 3, 1 * GIB);
    add_disk(&a, 1, "b", NULL);
    expect(ASSEMBLY_DEGRADED, true, "- b -");
}

Test(assembly, sentences_are_cut_not_overrun)
{
    struct sb_array a;
    label_make_array(&a, RAID_MEMBERS_MAX, 1 * GIB);
    label_add_volume(&a, RAID_0, 64 * MIB);
    for (unsigned i = 0; i < RAID_MEMBERS_MAX; i++)
        memset(a.members[i].identity, 'x', SB_IDENTITY_SIZE - 1);
    add_disk(&a, 63, "last", NULL);
    assembly_decide(scene.disks, 1, &scene.options, &result, 1);
    cr_expect_eq(result.verdict, ASSEMBLY_WAITING);
    cr_expect_eq(strlen(result.reason), sizeof result.reason - 1);
}
