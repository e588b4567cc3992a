/*
 * Assembly against a model of an array's life. Three disks; in each round some of them are found, the array starts if
 * it may, takes writes, loses and rebuilds members, and stops, or crashes with a generation torn between the members.
 * The model knows which acknowledged writes stand on which disk. Whatever happened:
 *
 *   A1  members that are used together hold the same writes;
 *   A2  what starts without a choice of the operator holds every acknowledged write that stands on any disk found;
 *   A3  a mirror with all disks present starts, or is a split brain;
 *   A4  a split brain is reported only if no disk found holds all that was written, or after a crash: a fork that
 *       reached only one member parts histories without a write.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "raid/assembly.h"
#include "raid/assembly_history.h"
#include "tests/unit/lib/testloop.h"
#include "tests/unit/raid/labels.h"

enum { DISKS = 3, WRITES_MAX = 512, ROUNDS = 40, WORDS = WRITES_MAX / 64 };

struct writes {
    uint64_t words[WORDS];
};

/* What really stands on a disk. */
struct model_disk {
    struct sb_label label;
    struct writes writes;
};

static struct model {
    uint64_t seed, seed0;
    unsigned next_write, next_id, next_fork;
    struct model_disk disks[DISKS];
    struct writes forgiven; /* lost by the operator's choice */
    /* The running array. */
    struct sb_array array;
    int disk_of_slot[DISKS]; /* -1: not live */
    unsigned splits, starts, crashes;
} model;

static unsigned roll(unsigned n)
{
    return (unsigned)(test_random(&model.seed) % n);
}

static bool contains(const struct writes *all, const struct writes *some, const struct writes *except)
{
    for (unsigned i = 0; i < WORDS; i++)
        if ((some->words[i] & ~all->words[i] & ~except->words[i]) != 0)
            return false;
    return true;
}

static bool is_live(unsigned slot)
{
    return model.disk_of_slot[slot] >= 0;
}

static bool is_readable(unsigned slot)
{
    return is_live(slot) && model.array.members[slot].state == SB_ACTIVE;
}

static unsigned count_readable(void)
{
    unsigned count = 0;
    for (unsigned slot = 0; slot < DISKS; slot++)
        count += is_readable(slot);
    return count;
}

/* One generation to all live members, in a random order. False: crashed in between, with it on some of them. */
static bool commit(bool fork)
{
    model.array.generation++;
    if (fork) {
        struct sb_array *a = &model.array;
        if (a->forks_count == SB_FORKS_MAX)
            memmove(&a->forks[0], &a->forks[1], --a->forks_count * sizeof a->forks[0]);
        a->forks[a->forks_count++] =
            (struct sb_fork){.id = label_uuid(LABEL_UUID_FORK, ++model.next_fork), .generation = a->generation};
    }
    unsigned order = roll(DISKS);
    for (unsigned i = 0; i < DISKS; i++) {
        unsigned slot = (order + i) % DISKS;
        if (roll(16) == 0) {
            model.crashes++;
            return false;
        }
        if (is_live(slot))
            model.disks[model.disk_of_slot[slot]].label = label_of(&model.array, slot);
    }
    if (model.seed0 % 2 == 0) /* may be told, need not be */
        model.array.committed = model.array.generation;
    return true;
}

/* A write, acknowledged when all live members have it. */
static void do_write(void)
{
    unsigned id = model.next_write++ % WRITES_MAX;
    for (unsigned slot = 0; slot < DISKS; slot++)
        if (is_live(slot))
            model.disks[model.disk_of_slot[slot]].writes.words[id / 64] |= 1ull << (id % 64);
}

static bool lose_member(unsigned tolerated)
{
    unsigned slot = roll(DISKS);
    bool enough = count_readable() - (is_readable(slot) ? 1 : 0) >= DISKS - tolerated;
    if (!is_live(slot) || !enough)
        return true;
    model.disk_of_slot[slot] = -1;
    model.array.members[slot].state = SB_FAILED;
    if (!commit(true))
        return false;
    do_write();
    return true;
}

/* Take a disk that no live member is on, and copy everything to it. */
static bool rebuild_member(unsigned found)
{
    for (unsigned slot = 0; slot < DISKS; slot++)
        for (int disk = 0; disk < DISKS; disk++) {
            bool used = (found & 1u << disk) == 0;
            for (unsigned other = 0; other < DISKS; other++)
                used = used || model.disk_of_slot[other] == disk;
            if (is_live(slot) || used)
                continue;
            model.array.members[slot].uuid = label_uuid(LABEL_UUID_MEMBER, ++model.next_id);
            model.array.members[slot].state = SB_REBUILDING;
            model.disk_of_slot[slot] = disk;
            if (!commit(false))
                return false;
            model.disks[disk].writes = (struct writes){{0}};
        }
    for (unsigned slot = 0; slot < DISKS; slot++)
        if (is_live(slot) && !is_readable(slot)) {
            for (unsigned from = 0; from < DISKS; from++)
                if (is_readable(from))
                    model.disks[model.disk_of_slot[slot]].writes = model.disks[model.disk_of_slot[from]].writes;
            model.array.members[slot].state = SB_ACTIVE;
            if (!commit(false))
                return false;
        }
    return true;
}

static bool open_array(const struct assembly *assembly, const unsigned *found_disks)
{
    bool fork = false;
    model.array = assembly->array;
    for (unsigned slot = 0; slot < DISKS; slot++) {
        int index = assembly->disk_of_slot[slot];
        model.disk_of_slot[slot] = index < 0 ? -1 : (int)found_disks[index];
        if (index < 0) {
            model.array.members[slot].state = SB_ABSENT;
            fork = true;
        }
    }
    return commit(fork);
}

static void run_array(const struct assembly *assembly, const unsigned *found_disks, unsigned found, unsigned tolerated)
{
    if (!open_array(assembly, found_disks))
        return;
    do_write();
    for (unsigned events = roll(5); events > 0; events--) {
        unsigned what = roll(6);
        bool ok = true;
        if (what == 0)
            ok = lose_member(tolerated);
        else if (what == 1)
            ok = rebuild_member(found);
        else if (what == 2)
            ok = commit(false); /* dirty or clean */
        else
            do_write();
        if (!ok)
            return;
    }
}

static void check_started(const struct assembly *assembly, const unsigned *found_disks, unsigned count, uint64_t seed)
{
    const struct writes nothing = {{0}}, *first = NULL;
    for (unsigned slot = 0; slot < DISKS; slot++) {
        int index = assembly->disk_of_slot[slot];
        if (index < 0 || assembly->array.members[slot].state != SB_ACTIVE)
            continue;
        const struct writes *writes = &model.disks[found_disks[index]].writes;
        if (first == NULL)
            first = writes;
        cr_assert(contains(first, writes, &nothing) && contains(writes, first, &nothing), "A1, seed %llu: %s",
                  (unsigned long long)seed, assembly->reason);
    }
    cr_assert_not_null(first);
    for (unsigned i = 0; i < count; i++)
        cr_assert(contains(first, &model.disks[found_disks[i]].writes, &model.forgiven), "A2, seed %llu: %s",
                  (unsigned long long)seed, assembly->reason);
}

static void check_split(const unsigned *found_disks, unsigned count, uint64_t seed, const struct assembly *assembly)
{
    const struct writes nothing = {{0}};
    for (unsigned i = 0; i < count; i++) {
        bool all = true;
        for (unsigned j = 0; j < count; j++)
            all = all && contains(&model.disks[found_disks[i]].writes, &model.disks[found_disks[j]].writes, &nothing);
        cr_assert(!all || model.crashes > 0, "A4, seed %llu: %s", (unsigned long long)seed, assembly->reason);
    }
}

/* The operator prefers one of the disks: what only the other histories hold is given up, also on disks not found. */
static void forgive(const struct assembly *assembly, const unsigned *found_disks)
{
    for (unsigned slot = 0; slot < DISKS; slot++) {
        if (assembly->disk_of_slot[slot] < 0)
            continue;
        const struct writes *kept = &model.disks[found_disks[assembly->disk_of_slot[slot]]].writes;
        for (unsigned i = 0; i < DISKS; i++)
            for (unsigned w = 0; w < WORDS && history_contains(&assembly->array, &model.disks[i].label.array); w++)
                model.forgiven.words[w] |= model.disks[i].writes.words[w] & ~kept->words[w];
        return;
    }
}

static void one_round(enum raid_level level, uint64_t seed)
{
    static struct assembly assembly;
    struct assembly_disk disks[DISKS];
    struct assembly_options options = {.force = false};
    unsigned found = 1 + roll((1u << DISKS) - 1), count = 0, found_disks[DISKS];
    if (roll(2) == 0)
        found = (1u << DISKS) - 1;
    for (unsigned i = 0; i < DISKS; i++)
        if ((found & 1u << i) != 0) {
            found_disks[count] = i;
            disks[count++] = (struct assembly_disk){&model.disks[i].label, "", "disk", NULL};
        }
    cr_assert_eq(assembly_decide(disks, count, &options, &assembly, 1), 1);
    if (assembly.verdict == ASSEMBLY_SPLIT) {
        model.splits++;
        check_split(found_disks, count, seed, &assembly);
        options.prefer = model.disks[found_disks[roll(count)]].label.member;
        assembly_decide(disks, count, &options, &assembly, 1);
        if (assembly.startable)
            forgive(&assembly, found_disks);
    } else if (level == RAID_1 && count == DISKS) {
        cr_assert(assembly.startable, "A3, seed %llu: %s", (unsigned long long)seed, assembly.reason);
    }
    if (!assembly.startable)
        return;
    model.starts++;
    check_started(&assembly, found_disks, count, seed);
    run_array(&assembly, found_disks, found, level == RAID_1 ? 2 : 1);
}

static void live(enum raid_level level, unsigned seeds)
{
    unsigned splits = 0, starts = 0, crashes = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct sb_array array;
        model = (struct model){.seed = seed, .seed0 = seed, .next_id = DISKS};
        label_make_array(&array, DISKS, 64 * MIB);
        label_add_volume(&array, level, 1 * MIB);
        for (unsigned i = 0; i < DISKS; i++)
            model.disks[i].label = label_of(&array, i);
        for (unsigned round = 0; round < ROUNDS && model.next_write < WRITES_MAX; round++)
            one_round(level, seed);
        splits += model.splits;
        starts += model.starts;
        crashes += model.crashes;
    }
    cr_expect_gt(starts, seeds * 5);
    cr_expect_gt(crashes, seeds);
    cr_expect(level != RAID_1 || splits > seeds, "the model does part histories: %u", splits);
}

Test(assembly_model, a_mirror_never_loses_an_acknowledged_write_silently)
{
    live(RAID_1, 300);
}

Test(assembly_model, raid5_never_loses_an_acknowledged_write_silently)
{
    live(RAID_5, 300);
}
