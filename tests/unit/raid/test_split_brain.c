/*
 * Split brains on real arrays: parts of one that ran alone in turn and are joined again. Two histories are never
 * merged: the array stays down and shows both, until one is chosen; then the others' disks are stale, and rebuilt from
 * it.
 */
#include <criterion/criterion.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "tests/unit/raid/scenes.h"

enum { DISK = 40 * 1024 * 1024, PARTS = 3 };

enum ending { STOPPED, KILLED, STOPPED_OFTEN };

/* An array, and the disks that each part of it has when it runs alone. */
struct split {
    const char *what;
    enum raid_level level;
    unsigned disks, parts;
    unsigned of_part[PARTS];
};

static const struct split splits[] = {
    {"halves of a mirror", RAID_1, 2, 2, {0x1, 0x2}},
    {"one and two of a mirror of three", RAID_1, 3, 2, {0x1, 0x6}},
    {"two and one of a mirror of three", RAID_1, 3, 2, {0x5, 0x2}},
    {"thirds of a mirror of three", RAID_1, 3, 3, {0x4, 0x1, 0x2}},
    {"the first and the second copies of a RAID 10", RAID_10, 4, 2, {0x5, 0xa}},
    {"crosswise copies of a RAID 10", RAID_10, 4, 2, {0x9, 0x6}},
    {"halves of a RAID 6", RAID_6, 4, 2, {0x3, 0xc}},
    {"halves of a RAID 6, outer and inner", RAID_6, 4, 2, {0x9, 0x6}},
};

static uint64_t seed_of(unsigned part)
{
    return 10 + part;
}

static unsigned all_of(const struct split *split)
{
    return (1u << split->disks) - 1;
}

static struct scene *whole_array(const struct split *split)
{
    struct scene *scene = scene_create(split->disks, DISK);
    cr_assert(rig_make_one(scene->rig, split->level, MIB), "%s: %s", split->what, scene->rig->message);
    cr_assert_eq(rig_fill(scene->rig, "v", 1, 256 * KIB), BLK_OK);
    rig_settle(scene->rig);
    cr_assert(rig_close(scene->rig), "%s", scene->rig->message);
    return scene;
}

static void run_alone(struct scene *scene, const struct split *split, unsigned part, enum ending ending)
{
    struct rig *rig = scene->rig;
    for (unsigned times = ending == STOPPED_OFTEN ? 1 + 2 * part : 1; times > 0; times--) {
        cr_assert(scene_start(scene, split->of_part[part]), "%s: %s", split->what, rig->assembly.reason);
        cr_expect_eq(rig->assembly.verdict, ASSEMBLY_DEGRADED);
        cr_expect_eq(rig_fill(rig, "v", seed_of(part), 256 * KIB), BLK_OK);
        if (ending == KILLED)
            rig_kill(rig);
        else
            cr_assert(rig_close(rig), "%s: %s", split->what, rig->message);
    }
}

/* The parts have run alone, in turn. */
static struct scene *parted(const struct split *split, enum ending ending)
{
    struct scene *scene = whole_array(split);
    for (unsigned part = 0; part < split->parts; part++)
        run_alone(scene, split, part, ending);
    return scene;
}

/* "disk1, disk2 ran from generation 5 to 9, last changed": by what stands on the disks, in order of member UUID. */
static void history_text(const struct scene *scene, unsigned mask, char *text, size_t size)
{
    struct sb_label *labels = calloc(RIG_DISKS, sizeof *labels);
    unsigned order[RIG_DISKS], count = 0;
    cr_assert_not_null(labels);
    for (unsigned disk = 0; disk < scene->rig->count; disk++) {
        if (!(mask >> disk & 1))
            continue;
        cr_assert_eq(rig_label(scene->rig, disk, &labels[disk]), SB_VALID);
        unsigned at = count++;
        for (; at > 0 && memcmp(&labels[disk].member, &labels[order[at - 1]].member, sizeof(struct uuid)) < 0; at--)
            order[at] = order[at - 1];
        order[at] = disk;
    }
    text[0] = '\0';
    for (unsigned i = 0; i < count; i++)
        text_format(text + strlen(text), size - strlen(text), "%sdisk%u", i > 0 ? ", " : "", order[i]);
    const struct sb_array *a = &labels[order[0]].array;
    text_format(text + strlen(text), size - strlen(text),
                " ran from generation %llu to %llu, last changed 2023-11-14 22:",
                (unsigned long long)a->forks[a->forks_count - 1].generation, (unsigned long long)a->generation);
    free(labels);
}

static void expect_split(struct scene *scene, const struct split *split, const char *when)
{
    struct rig *rig = scene->rig;
    uint64_t writes[RIG_DISKS];
    char text[256];
    for (unsigned disk = 0; disk < rig->count; disk++)
        writes[disk] = rig->mem[disk]->writes;
    cr_expect_not(scene_start(scene, all_of(split)), "%s %s: it started", split->what, when);
    cr_expect_eq(rig->error, -EAGAIN);
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_SPLIT, "%s %s: %s", split->what, when, rig->assembly.reason);
    static const char beginning[] = "array r0: its members ran apart from each other: ";
    cr_expect_eq(strncmp(rig->assembly.reason, beginning, sizeof beginning - 1), 0, "%s", rig->assembly.reason);
    for (unsigned part = 0; part < split->parts; part++) {
        history_text(scene, split->of_part[part], text, sizeof text);
        cr_expect_not_null(strstr(rig->assembly.reason, text), "%s %s: '%s' is not in '%s'", split->what, when, text,
                           rig->assembly.reason);
    }
    cr_expect_not_null(strstr(rig->assembly.reason, ". Each may hold acknowledged writes"));
    for (unsigned disk = 0; disk < rig->count; disk++)
        cr_expect_eq(rig->mem[disk]->writes, writes[disk], "%s: disk%u was written to", split->what, disk);
}

Test(split_brain, parts_that_ran_alone_are_refused_with_all_histories_shown)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(splits); i++)
        for (enum ending ending = STOPPED; ending <= STOPPED_OFTEN; ending++) {
            struct scene *scene = parted(&splits[i], ending);
            expect_split(scene, &splits[i], "joined");
            scene_destroy(scene);
        }
}

/* The chosen part has started. Its bytes are there; the others' disks come back by a rebuild, and then all are
 * alike. */
static void expect_chosen(struct scene *scene, const struct split *split, unsigned part)
{
    struct rig *rig = scene->rig;
    char why[128];
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_DEGRADED);
    cr_expect(rig_holds(rig, "v", seed_of(part)), "%s: not the bytes of part %u", split->what, part);
    for (unsigned disk = 0; disk < split->disks; disk++) {
        bool in = split->of_part[part] >> disk & 1;
        cr_expect_eq(scene_takes(scene, disk, disk), in, "%s: disk%u", split->what, disk);
        if (!in)
            cr_assert(rig_online(rig, disk), "%s: %s", split->what, rig->message);
    }
    rig_settle(rig);
    cr_expect_str_eq(rig_info(rig).state, "optimal", "%s", split->what);
    cr_expect(scene_redundant(rig, why, sizeof why), "%s: %s", split->what, why);
    for (unsigned disk = 0; disk < split->disks; disk++) {
        cr_expect(rig_fail(rig, disk) && rig_holds(rig, "v", seed_of(part)) && rig_online(rig, disk),
                  "%s without disk%u: %s", split->what, disk, rig->message);
        rig_settle(rig);
    }
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(scene_start(scene, all_of(split)), "%s: %s", split->what, rig->assembly.reason);
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_COMPLETE, "%s: %s", split->what, rig->assembly.reason);
    cr_expect(rig_holds(rig, "v", seed_of(part)), "%s", split->what);
}

static unsigned disk_of_part(const struct split *split, unsigned part)
{
    return (unsigned)__builtin_ctz(split->of_part[part]);
}

static void prefer(struct scene *scene, const struct split *split, unsigned part)
{
    struct sb_label *label = calloc(1, sizeof *label);
    cr_assert_eq(rig_label(scene->rig, disk_of_part(split, part), label), SB_VALID);
    scene_show(scene, all_of(split));
    scene->options.prefer = label->member;
    free(label);
    cr_assert(scene_decide(scene) && scene_open(scene), "%s: %s", split->what, scene->rig->assembly.reason);
}

Test(split_brain, the_part_that_is_preferred_wins_and_the_others_are_rebuilt_from_it)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(splits); i++)
        for (unsigned part = 0; part < splits[i].parts; part++) {
            struct scene *scene = parted(&splits[i], part % 2 == 0 ? STOPPED : STOPPED_OFTEN);
            prefer(scene, &splits[i], part);
            expect_chosen(scene, &splits[i], part);
            scene_destroy(scene);
        }
}

/* Which part has the highest generation? */
static unsigned furthest(const struct scene *scene, const struct split *split)
{
    struct sb_label *label = calloc(1, sizeof *label);
    uint64_t highest = 0;
    unsigned best = 0;
    for (unsigned part = 0; part < split->parts; part++) {
        cr_assert_eq(rig_label(scene->rig, disk_of_part(split, part), label), SB_VALID);
        if (label->array.generation > highest)
            best = part;
        highest = MAX(highest, label->array.generation);
    }
    free(label);
    return best;
}

static void force(struct scene *scene, const struct split *split)
{
    scene_show(scene, all_of(split));
    scene->options.force = true;
    cr_assert(scene_decide(scene) && scene_open(scene), "%s: %s", split->what, scene->rig->assembly.reason);
}

Test(split_brain, force_takes_the_part_that_went_furthest)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(splits); i++) {
        struct scene *scene = parted(&splits[i], STOPPED_OFTEN);
        unsigned part = furthest(scene, &splits[i]);
        cr_expect_gt(part, 0, "the first part ran once only");
        force(scene, &splits[i]);
        expect_chosen(scene, &splits[i], part);
        scene_destroy(scene);
    }
}

/* The losers were away while the winner was forced, or were there and nobody brought them in. */
Test(split_brain, a_loser_that_comes_back_after_the_choice_is_stale_and_no_split_brain)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(splits); i++) {
        const struct split *split = &splits[i];
        struct scene *scene = parted(split, STOPPED_OFTEN);
        unsigned part = furthest(scene, split);
        force(scene, split);
        cr_assert(rig_close(scene->rig), "%s", scene->rig->message);
        for (unsigned times = 0; times < 3; times++) {
            unsigned shown = times == 1 ? split->of_part[part] : all_of(split);
            cr_assert(scene_start(scene, shown), "%s: %s", split->what, scene->rig->assembly.reason);
            cr_expect_eq(scene->rig->assembly.verdict, ASSEMBLY_DEGRADED);
            if (times != 1)
                cr_expect_not_null(strstr(scene->rig->assembly.reason, "is stale: the array ran on without it"), "%s",
                                   scene->rig->assembly.reason);
            cr_expect(rig_holds(scene->rig, "v", seed_of(part)), "%s", split->what);
            if (times < 2)
                cr_assert(rig_close(scene->rig), "%s", scene->rig->message);
        }
        for (unsigned disk = 0; disk < split->disks; disk++)
            if (!(split->of_part[part] >> disk & 1))
                cr_assert(rig_online(scene->rig, disk), "%s: %s", split->what, scene->rig->message);
        rig_settle(scene->rig);
        cr_expect_str_eq(rig_info(scene->rig).state, "optimal");
        scene_destroy(scene);
    }
}

Test(split_brain, a_loser_that_ran_on_alone_after_the_choice_is_a_split_brain_again)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(splits); i++) {
        const struct split *split = &splits[i];
        if (split->parts > 2)
            continue;
        struct scene *scene = parted(split, STOPPED_OFTEN);
        unsigned winner = furthest(scene, split), loser = 1 - winner;
        force(scene, split);
        cr_assert(rig_close(scene->rig), "%s", scene->rig->message);
        run_alone(scene, split, loser, STOPPED);
        expect_split(scene, split, "after the loser ran on");
        prefer(scene, split, loser);
        expect_chosen(scene, split, loser);
        scene_destroy(scene);
    }
}

/* --- quorums that overlap --- */

static const struct overlap {
    struct split split; /* part 0 runs alone; part 1, that shares a disk with it, must not */
    unsigned waits_for;
} overlaps[] = {
    {{"RAID 6 of 4", RAID_6, 4, 2, {0x3, 0x6}}, 0},     {{"RAID 6 of 5", RAID_6, 5, 2, {0x7, 0x1c}}, 0},
    {{"triple parity", RAID_TP, 6, 2, {0x7, 0x1c}}, 0}, {{"RAID 10", RAID_10, 4, 2, {0x5, 0x6}}, 0},
    {{"RAID 1E", RAID_1E, 5, 2, {0x15, 0x16}}, 0},      {{"RAID 5", RAID_5, 3, 2, {0x3, 0x6}}, 0},
};

/* A disk that is in both quorums knows of the first run: the second one cannot begin, so there is nothing to be
 * parted. */
Test(split_brain, of_two_quorums_that_overlap_only_the_first_runs)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(overlaps); i++) {
        const struct split *split = &overlaps[i].split;
        struct scene *scene = whole_array(split);
        run_alone(scene, split, 0, STOPPED_OFTEN);
        cr_expect_not(scene_start(scene, split->of_part[1]), "%s", split->what);
        cr_expect_eq(scene->rig->assembly.verdict, ASSEMBLY_WAITING, "%s: %s", split->what,
                     scene->rig->assembly.reason);
        char text[64];
        text_format(text, sizeof text, "array r0 waits for slot %u (disk%u)", overlaps[i].waits_for,
                    overlaps[i].waits_for);
        cr_expect_not_null(strstr(scene->rig->assembly.reason, text), "%s", scene->rig->assembly.reason);
        scene->options.force = true;
        cr_expect(scene_decide(scene) && !scene_open(scene), "%s: by force: %s", split->what,
                  scene->rig->assembly.reason);
        cr_assert(scene_start(scene, all_of(split)), "%s: %s", split->what, scene->rig->assembly.reason);
        expect_chosen(scene, split, 0);
        scene_destroy(scene);
    }
}
