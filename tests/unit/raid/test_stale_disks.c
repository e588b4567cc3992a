/*
 * Disks that are not what they say: copies of a member, members behind by one generation or by many, superblocks torn
 * or damaged in part. Whatever is found, in whatever order, what is served is what was acknowledged last.
 */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "tests/unit/raid/scenes.h"

enum { DISK = 40 * 1024 * 1024 };

/* An array of `members`, and blank disks behind it. */
static struct scene *array_on(unsigned members, unsigned disks, enum raid_level level)
{
    struct scene *scene = scene_create(disks, DISK);
    struct array_spec *spec = rig_spec(scene->rig);
    spec->disks_count = members;
    rig_spec_add(spec, "v", level, MIB);
    cr_assert(rig_make(scene->rig, spec), "%s", scene->rig->message);
    cr_assert_eq(rig_fill(scene->rig, "v", 1, 256 * KIB), BLK_OK);
    rig_settle(scene->rig);
    cr_assert(rig_close(scene->rig), "%s", scene->rig->message);
    return scene;
}

static void run_on(struct scene *scene, uint64_t seed)
{
    cr_assert(scene_open(scene), "%s", scene->rig->assembly.reason);
    cr_expect_eq(rig_fill(scene->rig, "v", seed, 256 * KIB), BLK_OK);
    cr_assert(rig_close(scene->rig), "%s", scene->rig->message);
}

static void expect_whole(struct scene *scene, uint64_t seed, const char *what)
{
    char why[128];
    rig_settle(scene->rig);
    cr_expect_str_eq(rig_info(scene->rig).state, "optimal", "%s", what);
    cr_expect(rig_holds(scene->rig, "v", seed), "%s: other bytes", what);
    cr_expect(scene_redundant(scene->rig, why, sizeof why), "%s: %s", what, why);
}

/* --- copies of a member --- */

enum age { OLDER, EQUAL, NEWER };

static const struct clone_case {
    const char *what;
    enum age age;                /* of the copy */
    const char *original, *copy; /* serial numbers they are found with */
    enum assembly_verdict verdict;
    int taken; /* disk in slot 1, or none */
} clone_cases[] = {
    {"an old copy beside the recorded disk", OLDER, "disk1", "x", ASSEMBLY_COMPLETE, 1},
    {"an old copy with the recorded serial number", OLDER, "x", "disk1", ASSEMBLY_DEGRADED, -1},
    {"an old copy, both with the number", OLDER, "disk1", "disk1", ASSEMBLY_CLONE, -1},
    {"an old copy, none with the number", OLDER, "x", "y", ASSEMBLY_CLONE, -1},
    {"an equal copy beside the recorded disk", EQUAL, "disk1", "x", ASSEMBLY_COMPLETE, 1},
    {"an equal copy with the recorded serial number", EQUAL, "x", "disk1", ASSEMBLY_COMPLETE, 3},
    {"an equal copy, both with the number", EQUAL, "disk1", "disk1", ASSEMBLY_CLONE, -1},
    {"an equal copy, none with the number", EQUAL, "x", "y", ASSEMBLY_CLONE, -1},
    {"an equal copy, no numbers at all", EQUAL, "", "", ASSEMBLY_CLONE, -1},
    {"a newer copy beside the recorded disk", NEWER, "disk1", "x", ASSEMBLY_DEGRADED, -1},
    {"a newer copy with the recorded serial number", NEWER, "x", "disk1", ASSEMBLY_COMPLETE, 3},
    {"a newer copy, both with the number", NEWER, "disk1", "disk1", ASSEMBLY_CLONE, -1},
    {"a newer copy, none with the number", NEWER, "x", "y", ASSEMBLY_CLONE, -1},
};

/* RAID 5 on disks 0 to 2, and a copy of disk 1 on disk 3. The last run wrote seed 2. */
static struct scene *with_copy(enum age age)
{
    struct scene *scene = array_on(3, 4, RAID_5);
    memcpy(scene->rig->mem[3]->bytes, scene->rig->mem[1]->bytes, DISK);
    scene_show(scene, age == NEWER ? 0x5 : 0x7);
    if (age == NEWER)
        scene_show_as(scene, 3, "disk1");
    cr_assert(scene_decide(scene));
    cr_expect_eq(scene->rig->assembly.verdict, ASSEMBLY_COMPLETE);
    run_on(scene, 2);
    if (age == EQUAL)
        memcpy(scene->rig->mem[3]->bytes, scene->rig->mem[1]->bytes, DISK);
    return scene;
}

static void expect_clone_reason(const struct scene *scene, const struct clone_case *c)
{
    const char *reason = scene->rig->assembly.reason;
    if (c->verdict == ASSEMBLY_CLONE)
        cr_expect_not_null(strstr(reason, "the same member stands on more than one disk: disk1, disk3. "), "%s: %s",
                           c->what, reason);
    else
        cr_expect_not_null(strstr(reason, "is a copy of another member and is left alone"), "%s: %s", c->what, reason);
    if (c->verdict == ASSEMBLY_DEGRADED)
        cr_expect_not_null(strstr(reason, "is stale: it missed changes"), "%s: %s", c->what, reason);
}

static void clone_is_judged(const struct clone_case *c, bool force)
{
    struct scene *scene = with_copy(c->age);
    scene_show(scene, 0x5);
    scene_show_as(scene, 1, c->original);
    scene_show_as(scene, 3, c->copy);
    scene->options.force = force;
    cr_assert(scene_decide(scene));
    cr_expect_eq(scene->rig->assembly.verdict, c->verdict, "%s: %s", c->what, scene->rig->assembly.reason);
    expect_clone_reason(scene, c);
    for (int disk = 1; disk <= 3; disk += 2)
        cr_expect_eq(scene_takes(scene, 1, (unsigned)disk), c->taken == disk, "%s: disk%d", c->what, disk);
    uint64_t writes[] = {scene->rig->mem[1]->writes, scene->rig->mem[3]->writes};
    cr_expect_eq(scene_open(scene), c->verdict != ASSEMBLY_CLONE, "%s", c->what);
    if (scene->rig->array != NULL) {
        cr_expect(rig_holds(scene->rig, "v", 2), "%s: stale bytes are served", c->what);
        cr_expect_eq(rig_fill(scene->rig, "v", 3, 256 * KIB), BLK_OK);
    }
    for (int i = 0; i < 2; i++)
        if (c->taken != 1 + 2 * i)
            cr_expect_eq(scene->rig->mem[1 + 2 * i]->writes, writes[i], "%s: disk%d was written to", c->what,
                         1 + 2 * i);
    scene_destroy(scene);
}

Test(stale_disks, a_copy_of_a_member_is_never_taken_for_it_unless_it_is_the_recorded_disk)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(clone_cases); i++)
        for (unsigned force = 0; force < 2; force++)
            clone_is_judged(&clone_cases[i], force);
}

/* The copy of one half of a mirror ran alone, elsewhere: it holds writes, but it is not this array's. */
Test(stale_disks, a_copy_that_ran_alone_does_not_part_the_array_it_was_copied_from)
{
    struct scene *scene = array_on(2, 3, RAID_1);
    memcpy(scene->rig->mem[2]->bytes, scene->rig->mem[1]->bytes, DISK);
    scene_show(scene, 0);
    scene_show_as(scene, 2, "disk1");
    cr_assert(scene_decide(scene));
    run_on(scene, 7);
    scene_show(scene, 0x3);
    scene_show_as(scene, 2, "x");
    cr_assert(scene_decide(scene));
    cr_expect_eq(scene->rig->assembly.verdict, ASSEMBLY_COMPLETE, "%s", scene->rig->assembly.reason);
    cr_assert(scene_open(scene));
    expect_whole(scene, 1, "beside a copy that ran alone");
    scene_destroy(scene);
}

/* --- behind --- */

static const struct {
    enum raid_level level;
    unsigned disks;
} levels[] = {{RAID_1, 2}, {RAID_1, 3}, {RAID_10, 4}, {RAID_1E, 3},
              {RAID_5, 4}, {RAID_6, 5}, {RAID_TP, 6}, {RAID_60, 8}};

static uint64_t generation_on(const struct scene *scene, unsigned disk)
{
    struct sb_label *label = calloc(1, sizeof *label);
    cr_assert_eq(rig_label(scene->rig, disk, label), SB_VALID);
    uint64_t generation = label->array.generation;
    free(label);
    return generation;
}

/* Disk 1 is stale. It is not read; brought in it is rebuilt. */
static void expect_stale(struct scene *scene, uint64_t seed, const char *what)
{
    unsigned all = (1u << scene->rig->count) - 1;
    cr_assert(scene_start(scene, all), "%s: %s", what, scene->rig->assembly.reason);
    cr_expect_eq(scene->rig->assembly.verdict, ASSEMBLY_DEGRADED, "%s: %s", what, scene->rig->assembly.reason);
    cr_expect_eq(scene->rig->assembly.disk_of_slot[1], -1, "%s: the stale disk is in service", what);
    cr_expect(rig_holds(scene->rig, "v", seed), "%s: other bytes", what);
    cr_assert(rig_online(scene->rig, 1), "%s: %s", what, scene->rig->message);
    expect_whole(scene, seed, what);
    cr_assert(rig_close(scene->rig), "%s", scene->rig->message);
    cr_assert(scene_start(scene, all), "%s", scene->rig->assembly.reason);
    cr_expect_eq(scene->rig->assembly.verdict, ASSEMBLY_COMPLETE, "%s: %s", what, scene->rig->assembly.reason);
}

Test(stale_disks, a_member_behind_by_the_one_generation_of_its_loss_is_stale)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(levels); i++) {
        struct scene *scene = array_on(levels[i].disks, levels[i].disks, levels[i].level);
        cr_assert(scene_start(scene, (1u << levels[i].disks) - 1), "%s", scene->rig->assembly.reason);
        cr_assert_eq(rig_fill(scene->rig, "v", 2, 256 * KIB), BLK_OK);
        rig_settle(scene->rig);
        cr_assert(rig_fail(scene->rig, 1), "%s", scene->rig->message);
        cr_expect_eq(generation_on(scene, 0), generation_on(scene, 1) + 1);
        rig_kill(scene->rig);
        expect_stale(scene, 2, raid_level_name(levels[i].level));
        scene_destroy(scene);
    }
}

Test(stale_disks, a_member_behind_by_many_generations_is_stale)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(levels); i++) {
        struct scene *scene = array_on(levels[i].disks, levels[i].disks, levels[i].level);
        unsigned without = (1u << levels[i].disks) - 1 - 2;
        for (uint64_t run = 0; run < 70; run++) { /* and as many forks */
            cr_assert(scene_start(scene, without), "%s", scene->rig->assembly.reason);
            if (run % 10 == 9)
                cr_assert_eq(rig_fill(scene->rig, "v", 10 + run, 256 * KIB), BLK_OK);
            cr_assert(rig_close(scene->rig), "%s", scene->rig->message);
        }
        cr_expect_gt(generation_on(scene, 0), generation_on(scene, 1) + 70);
        expect_stale(scene, 79, raid_level_name(levels[i].level));
        scene_destroy(scene);
    }
}

Test(stale_disks, a_member_put_back_to_an_earlier_stop_is_stale)
{
    uint8_t *image = malloc(DISK);
    cr_assert_not_null(image);
    for (unsigned i = 0; i < ARRAY_LENGTH(levels); i++)
        for (unsigned runs = 1; runs <= 4; runs += 3) {
            struct scene *scene = array_on(levels[i].disks, levels[i].disks, levels[i].level);
            memcpy(image, scene->rig->mem[1]->bytes, DISK);
            for (unsigned run = 0; run < runs; run++) {
                scene_show(scene, (1u << levels[i].disks) - 1);
                cr_assert(scene_decide(scene));
                run_on(scene, 20 + run);
            }
            memcpy(scene->rig->mem[1]->bytes, image, DISK);
            expect_stale(scene, 20 + runs - 1, raid_level_name(levels[i].level));
            scene_destroy(scene);
        }
    free(image);
}

/* A file that was cut short, and made as long again: zeroes to its end. */
Test(stale_disks, a_member_that_was_cut_and_made_longer_again_is_stale)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(levels); i++) {
        struct scene *scene = array_on(levels[i].disks, levels[i].disks, levels[i].level);
        memset(scene->rig->mem[1]->bytes + DISK / 2, 0, DISK / 2);
        expect_stale(scene, 1, raid_level_name(levels[i].level));
        scene_destroy(scene);
    }
}

/* --- torn superblocks --- */

enum damage { HEADER_GONE, HEADER_FLIPPED, TEXT_FLIPPED, FIRST_HALF_GONE, SECOND_HALF_GONE, DAMAGES };
enum { COPIES = 4 };

static uint8_t *copy_at(const struct scene *scene, unsigned disk, unsigned copy)
{
    uint64_t area = copy < 2 ? 0 : superblock_tail(DISK);
    return scene->rig->mem[disk]->bytes + area + (copy % 2 == 0 ? SB_HEAD_0 : SB_HEAD_1);
}

static void damage_copy(const struct scene *scene, unsigned disk, unsigned copy, enum damage damage)
{
    uint8_t *bytes = copy_at(scene, disk, copy);
    size_t len = superblock_length(bytes), half = len / 2;
    switch (damage) {
    case HEADER_GONE:
        memset(bytes, 0, PAGE_BYTES);
        break;
    case HEADER_FLIPPED:
        bytes[20] ^= 0x10;
        break;
    case TEXT_FLIPPED:
        bytes[PAGE_BYTES + 100] ^= 1;
        break;
    case FIRST_HALF_GONE:
        memset(bytes, 0x5a, half);
        break;
    case SECOND_HALF_GONE:
        memset(bytes + half, 0x5a, len - half);
        break;
    case DAMAGES:
        break;
    }
}

/* The generation that can be read from a disk, by looking at each of its copies; 0: none. */
static uint64_t generation_left(const struct scene *scene, unsigned disk, bool *clean)
{
    struct sb_label *label = calloc(1, sizeof *label);
    uint64_t best = 0;
    for (unsigned copy = 0; copy < COPIES; copy++)
        if (superblock_decode(copy_at(scene, disk, copy), SB_SLOT_BYTES, label, NULL, 0) == SB_VALID &&
            label->array.generation > best) {
            best = label->array.generation;
            *clean = label->array.clean;
        }
    free(label);
    return best;
}

/* A stopped array, and its disks as the stop left them. */
struct stopped {
    struct scene *scene;
    uint8_t *images[RIG_DISKS];
    uint64_t generation;
};

static void stopped_save(struct stopped *s, struct scene *scene)
{
    *s = (struct stopped){.scene = scene, .generation = generation_on(scene, 0)};
    for (unsigned disk = 0; disk < scene->rig->count; disk++) {
        s->images[disk] = malloc(DISK);
        cr_assert_not_null(s->images[disk]);
        memcpy(s->images[disk], scene->rig->mem[disk]->bytes, DISK);
    }
}

/* Superblocks only, if nothing else was written. */
static void stopped_restore(const struct stopped *s, bool all)
{
    uint64_t tail = superblock_tail(DISK);
    for (unsigned disk = 0; disk < s->scene->rig->count; disk++) {
        uint8_t *bytes = s->scene->rig->mem[disk]->bytes;
        memcpy(bytes, s->images[disk], all ? DISK : MIB);
        memcpy(bytes + tail, s->images[disk] + tail, DISK - tail);
    }
}

static void stopped_free(struct stopped *s)
{
    for (unsigned disk = 0; disk < s->scene->rig->count; disk++)
        free(s->images[disk]);
    scene_destroy(s->scene);
}

/* The damage is done. Held against what each copy says by itself: nothing that can be read may be forgotten. */
static void expect_what_is_left(struct stopped *s, const char *what)
{
    struct scene *scene = s->scene;
    unsigned disks = scene->rig->count, missing = 0;
    uint64_t highest = 0;
    bool clean = false, one_clean = false;
    for (unsigned disk = 0; disk < disks; disk++) {
        uint64_t left = generation_left(scene, disk, &one_clean);
        missing += left == 0;
        if (left > highest) {
            highest = left;
            clean = one_clean;
        }
    }
    scene_show(scene, (1u << disks) - 1);
    cr_expect_eq(scene_decide(scene), highest > 0, "%s", what);
    if (highest == 0)
        return;
    const struct assembly *a = &scene->rig->assembly;
    enum sb_consistency policy = a->array.volumes[0].consistency;
    bool closed = clean || policy == SB_PPL || policy == SB_JOURNAL;
    enum assembly_verdict degraded = closed ? ASSEMBLY_DEGRADED : ASSEMBLY_DIRTY_DEGRADED;
    enum assembly_verdict verdict = missing == 0 ? ASSEMBLY_COMPLETE : missing == 1 ? degraded : ASSEMBLY_WAITING;
    cr_expect_eq(a->verdict, verdict, "%s, %u missing: %s", what, missing, a->reason);
    cr_expect_eq(a->array.generation, highest, "%s", what);
    for (unsigned disk = 0; disk < disks; disk++)
        cr_expect_eq(scene_takes(scene, disk, disk), generation_left(scene, disk, &one_clean) != 0, "%s: disk%u: %s",
                     what, disk, a->reason);
}

static void damage_copies(const struct stopped *s, unsigned disks, unsigned copies, enum damage damage)
{
    for (unsigned disk = 0; disk < s->scene->rig->count; disk++)
        for (unsigned copy = 0; copy < COPIES; copy++)
            if ((disks >> disk & 1) && (copies >> copy & 1))
                damage_copy(s->scene, disk, copy, damage);
}

Test(stale_disks, any_copies_of_a_superblock_may_be_damaged_in_any_way_and_the_others_count)
{
    static const unsigned victims[] = {0x1, 0x2, 0x6, 0x7};
    struct stopped s;
    stopped_save(&s, array_on(3, 3, RAID_5));
    for (unsigned v = 0; v < ARRAY_LENGTH(victims); v++)
        for (unsigned copies = 0; copies < 1 << COPIES; copies++)
            for (enum damage damage = 0; damage < DAMAGES; damage++) {
                char what[64];
                text_format(what, sizeof what, "disks %x, copies %x, damage %u", victims[v], copies, damage);
                damage_copies(&s, victims[v], copies, damage);
                expect_what_is_left(&s, what);
                stopped_restore(&s, false);
            }
    stopped_free(&s);
}

Test(stale_disks, superblocks_damaged_at_random_lose_no_write)
{
    struct stopped s;
    unsigned started = 0;
    uint64_t seed = 5;
    stopped_save(&s, array_on(4, 4, RAID_6));
    for (unsigned round = 0; round < 200; round++) {
        char what[64];
        text_format(what, sizeof what, "round %u", round);
        for (unsigned disk = 0; disk < 4; disk++)
            for (unsigned copy = 0; copy < COPIES; copy++)
                if (test_random(&seed) % 2)
                    damage_copy(s.scene, disk, copy, (enum damage)(test_random(&seed) % DAMAGES));
        scene_show(s.scene, 0xf);
        if (scene_decide(s.scene) && scene_open(s.scene)) {
            cr_expect(rig_holds(s.scene->rig, "v", 1), "%s: %s", what, s.scene->rig->assembly.reason);
            cr_expect(rig_close(s.scene->rig), "%s", s.scene->rig->message);
            started++;
        }
        stopped_restore(&s, true);
    }
    cr_expect_gt(started, 100);
    stopped_free(&s);
}

/* The next generations find their way over what was damaged. */
Test(stale_disks, an_array_with_a_damaged_copy_of_every_superblock_goes_on_and_mends_it)
{
    for (unsigned copy = 0; copy < COPIES; copy++) {
        struct scene *scene = array_on(3, 3, RAID_5);
        for (unsigned disk = 0; disk < 3; disk++)
            damage_copy(scene, disk, copy, TEXT_FLIPPED);
        for (uint64_t run = 0; run < 2; run++) {
            scene_show(scene, 7);
            cr_assert(scene_decide(scene));
            cr_expect_eq(scene->rig->assembly.verdict, ASSEMBLY_COMPLETE, "copy %u: %s", copy,
                         scene->rig->assembly.reason);
            run_on(scene, 30 + run);
        }
        bool clean = false;
        struct sb_label *label = calloc(1, sizeof *label);
        for (unsigned disk = 0; disk < 3; disk++)
            cr_expect_eq(superblock_decode(copy_at(scene, disk, copy), SB_SLOT_BYTES, label, NULL, 0), SB_VALID,
                         "copy %u of disk%u", copy, disk);
        free(label);
        cr_expect_eq(generation_left(scene, 0, &clean), generation_left(scene, 2, &clean));
        cr_assert(scene_start(scene, 7), "%s", scene->rig->assembly.reason);
        expect_whole(scene, 31, "after damage");
        scene_destroy(scene);
    }
}
