/* See assembly_scene.h. */
#include "tests/unit/raid/assembly_scene.h"

#include <criterion/criterion.h>
#include <string.h>

#include "core/log.h"

struct scene scene;
struct assembly result;
static struct assembly other;

void scene_clear(void)
{
    scene = (struct scene){0};
}

void add_disk(const struct sb_array *array, unsigned slot, const char *name, const char *identity)
{
    struct sb_label *label = &scene.labels[scene.count];
    *label = label_of(array, slot);
    if (identity == NULL)
        identity = label->array.members[slot].identity;
    scene.disks[scene.count++] = (struct assembly_disk){label, identity, name, NULL};
}

const char *name_in_slot(const struct assembly *a, const struct assembly_disk *disks, unsigned slot)
{
    return a->disk_of_slot[slot] < 0 ? "-" : disks[a->disk_of_slot[slot]].name;
}

static void expect_same(const struct assembly_disk *disks, const unsigned *order)
{
    cr_assert_eq(assembly_decide(disks, scene.count, &scene.options, &other, 1), 1);
    cr_expect_eq(other.verdict, result.verdict);
    cr_expect_eq(other.startable, result.startable);
    cr_expect_str_eq(other.reason, result.reason);
    cr_expect(uuid_equal(&other.array.forks[other.array.forks_count - 1].id,
                         &result.array.forks[result.array.forks_count - 1].id));
    for (unsigned slot = 0; slot < result.array.members_count; slot++)
        cr_expect_str_eq(name_in_slot(&other, disks, slot), name_in_slot(&result, scene.disks, slot));
    for (unsigned i = 0; i < scene.count; i++)
        cr_expect_eq(other.stale_of_disk[i], result.stale_of_disk[order[i]]);
}

/* All arrival orders of the disks, by Heap's algorithm. */
static void permute(struct assembly_disk *disks, unsigned *order, unsigned n)
{
    if (n <= 1) {
        expect_same(disks, order);
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        permute(disks, order, n - 1);
        unsigned j = n % 2 == 0 ? i : 0, k = order[j];
        struct assembly_disk disk = disks[j];
        disks[j] = disks[n - 1];
        order[j] = order[n - 1];
        disks[n - 1] = disk;
        order[n - 1] = k;
    }
}

void expect(enum assembly_verdict verdict, bool startable, const char *slots)
{
    cr_assert_eq(assembly_decide(scene.disks, scene.count, &scene.options, &result, 1), 1);
    char found[64] = "";
    for (unsigned slot = 0; slot < result.array.members_count; slot++)
        text_format(found + strlen(found), sizeof found - strlen(found), "%s%s", slot > 0 ? " " : "",
                    name_in_slot(&result, scene.disks, slot));
    cr_expect_eq(result.verdict, verdict, "%s: %s", assembly_verdict_name(result.verdict), result.reason);
    cr_expect_eq(result.startable, startable, "%s", result.reason);
    cr_expect_str_eq(found, slots);
    struct assembly_disk disks[DISKS];
    unsigned order[DISKS] = {0, 1, 2, 3, 4, 5};
    memcpy(disks, scene.disks, sizeof disks);
    permute(disks, order, scene.count);
}

void expect_reason(const char *reason)
{
    cr_expect_str_eq(result.reason, reason);
}

struct sb_array simple(unsigned members, enum raid_level level)
{
    struct sb_array array;
    label_make_array(&array, members, 1 * GIB);
    label_add_volume(&array, level, 64 * MIB);
    return array;
}

struct sb_array run_without(const struct sb_array *before, unsigned slot, enum sb_member_state state, unsigned fork)
{
    struct sb_array array = *before;
    array.members[slot].state = state;
    array.generation++;
    array.forks[array.forks_count++] =
        (struct sb_fork){.id = label_uuid(LABEL_UUID_FORK, fork), .generation = array.generation};
    return array;
}

struct sb_array later(const struct sb_array *before, unsigned generations)
{
    struct sb_array array = *before;
    array.generation += generations;
    return array;
}
