#include "tests/unit/raid/scenes.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "raid/array_impl.h"
#include "tests/unit/lib/gf_reference.h"

enum { WRITTEN_DISK = 40 * 1024 * 1024, ORDERS_OF_MANY = 60, ALL_ORDERS_UP_TO = 4 };

struct scene *scene_create(unsigned disks, uint64_t bytes)
{
    struct scene *scene = calloc(1, sizeof *scene);
    ASSERT(scene != NULL);
    scene->rig = rig_create(disks, bytes);
    return scene;
}

void scene_destroy(struct scene *scene)
{
    rig_destroy(scene->rig);
    free(scene);
}

struct scene *scene_written(unsigned disks, enum raid_level level, uint64_t size)
{
    struct scene *scene = scene_create(disks, WRITTEN_DISK);
    cr_assert(rig_make_one(scene->rig, level, size), "%s", scene->rig->message);
    cr_assert_eq(rig_fill(scene->rig, "v", 1, 256 * KIB), BLK_OK);
    rig_settle(scene->rig);
    return scene;
}

void scene_show(struct scene *scene, unsigned mask)
{
    scene->count = 0;
    scene->options = (struct assembly_options){0};
    for (unsigned disk = 0; disk < scene->rig->count; disk++)
        if (mask >> disk & 1)
            scene_show_as(scene, disk, NULL);
}

void scene_show_as(struct scene *scene, unsigned disk, const char *identity)
{
    struct scene_disk *shown = &scene->disks[scene->count++];
    struct array_disk own = rig_disk(scene->rig, disk);
    shown->disk = disk;
    text_format(shown->identity, sizeof shown->identity, "%s", identity != NULL ? identity : own.identity);
}

/* --- deciding --- */

struct reading {
    struct label_op op;
    bool over;
};

static void reading_done(struct label_op *op)
{
    container_of(op, struct reading, op)->over = true;
}

static bool label_is_read(struct scene *scene, unsigned at)
{
    struct reading reading = {
        .op = {.dev = scene->rig->dev[scene->disks[at].disk], .label = &scene->labels[at], .done = reading_done}};
    label_read(&reading.op);
    cr_assert(testloop_run_until(scene->rig->t, &reading.over));
    return reading.op.status == BLK_OK && reading.op.verdict == SB_VALID;
}

/* What is decided when the disks arrive in this order (positions in the scene). */
static void decide_in_order(const struct scene *scene, const unsigned *order, unsigned count, struct assembly *out)
{
    struct assembly_disk disks[RIG_DISKS];
    for (unsigned i = 0; i < count; i++)
        disks[i] = (struct assembly_disk){.label = &scene->labels[order[i]],
                                          .identity = scene->disks[order[i]].identity,
                                          .name = scene->rig->dev[scene->disks[order[i]].disk]->name};
    cr_assert_eq(assembly_decide(disks, count, &scene->options, out, 1), 1);
    for (unsigned slot = 0; slot < RAID_MEMBERS_MAX; slot++)
        if (out->disk_of_slot[slot] >= 0)
            out->disk_of_slot[slot] = (int)order[out->disk_of_slot[slot]];
    bool stale[RIG_DISKS] = {0};
    for (unsigned i = 0; i < count; i++)
        stale[order[i]] = out->stale_of_disk[i];
    memcpy(out->stale_of_disk, stale, sizeof stale);
}

static void expect_same(const struct assembly *a, const struct assembly *b)
{
    cr_expect_eq(a->verdict, b->verdict);
    cr_expect_eq(a->startable, b->startable);
    cr_expect_str_eq(a->reason, b->reason);
    cr_expect_eq(a->array.generation, b->array.generation);
    cr_expect_eq(a->array.committed, b->array.committed);
    cr_expect_eq(a->array.clean, b->array.clean);
    cr_expect_arr_eq(a->disk_of_slot, b->disk_of_slot, sizeof a->disk_of_slot);
    cr_expect_arr_eq(a->stale_of_disk, b->stale_of_disk, RIG_DISKS);
    cr_assert_eq(a->array.forks_count, b->array.forks_count);
    for (unsigned i = 0; i < a->array.forks_count; i++)
        cr_expect(uuid_equal(&a->array.forks[i].id, &b->array.forks[i].id) &&
                  a->array.forks[i].settled == b->array.forks[i].settled);
}

static void swap(unsigned *order, unsigned i, unsigned j)
{
    unsigned was = order[i];
    order[i] = order[j];
    order[j] = was;
}

/* All orders, by Heap's algorithm. */
static void permute(const struct scene *scene, unsigned *order, unsigned n, unsigned count, struct assembly *scratch)
{
    if (n <= 1) {
        decide_in_order(scene, order, count, scratch);
        expect_same(scratch, &scene->rig->assembly);
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        permute(scene, order, n - 1, count, scratch);
        swap(order, n % 2 == 0 ? i : 0, n - 1);
    }
}

static void shuffle(const struct scene *scene, unsigned *order, unsigned count, struct assembly *scratch)
{
    uint64_t seed = count;
    for (unsigned round = 0; round < ORDERS_OF_MANY; round++) {
        for (unsigned i = count; i > 1; i--)
            swap(order, i - 1, (unsigned)(test_random(&seed) % i));
        decide_in_order(scene, order, count, scratch);
        expect_same(scratch, &scene->rig->assembly);
    }
}

bool scene_decide(struct scene *scene)
{
    unsigned order[RIG_DISKS], count = 0;
    for (unsigned i = 0; i < scene->count; i++) {
        scene->labelled[i] = label_is_read(scene, i);
        if (scene->labelled[i])
            order[count++] = i;
    }
    if (count == 0)
        return false;
    struct assembly *scratch = calloc(1, sizeof *scratch);
    cr_assert_not_null(scratch);
    decide_in_order(scene, order, count, &scene->rig->assembly);
    if (count <= ALL_ORDERS_UP_TO)
        permute(scene, order, count, count, scratch);
    else
        shuffle(scene, order, count, scratch);
    free(scratch);
    return true;
}

/* --- opening --- */

struct opening {
    struct array_call call;
    bool over;
};

static void opening_done(struct array_call *call)
{
    container_of(call, struct opening, call)->over = true;
}

bool scene_open(struct scene *scene)
{
    struct rig *rig = scene->rig;
    struct array_disk disks[RAID_MEMBERS_MAX] = {0};
    struct opening opening = {.call.done = opening_done};
    for (unsigned slot = 0; slot < rig->assembly.array.members_count; slot++) {
        int at = rig->assembly.disk_of_slot[slot];
        if (at < 0)
            continue;
        disks[slot].dev = rig->dev[scene->disks[at].disk];
        text_format(disks[slot].identity, sizeof disks[slot].identity, "%s", scene->disks[at].identity);
    }
    array_open(&rig->t->loop, &rig->assembly, disks, NULL, &opening.call);
    cr_assert(testloop_run_until(rig->t, &opening.over));
    rig->array = opening.call.array;
    rig->error = opening.call.error;
    text_format(rig->message, sizeof rig->message, "%s", opening.call.message);
    return rig->error == 0;
}

bool scene_start(struct scene *scene, unsigned mask)
{
    scene_show(scene, mask);
    return scene_decide(scene) && scene_open(scene);
}

bool scene_takes(const struct scene *scene, unsigned slot, unsigned disk)
{
    int at = scene->rig->assembly.disk_of_slot[slot];
    return at >= 0 && scene->disks[at].disk == disk;
}

/* --- what stands on the disks --- */

static const uint8_t *bytes_of(const struct rig *rig, unsigned slot)
{
    for (unsigned disk = 0; disk < rig->count; disk++)
        if (rig->array->members[slot].dev == rig->dev[disk])
            return rig->mem[disk]->bytes;
    return NULL;
}

/* Every 61st column: the reference is slow, and errors come in blocks of 512 at least. */
static bool row_is_right(const struct rig *rig, unsigned volume, uint64_t row)
{
    const struct layout *layout = &rig->array->volumes[volume].layout;
    const struct sb_array *a = &rig->array->description;
    const uint8_t *chunks[RAID_MEMBERS_MAX] = {NULL};
    for (unsigned role = 0; role < layout->roles; role++) {
        struct layout_place place;
        layout_place(layout, row, role, &place);
        if (!member_readable(&rig->array->members[place.slot]))
            return true; /* the whole is looked at when all are back */
        chunks[layout_codec_role(layout, row, role)] =
            bytes_of(rig, place.slot) + a->data_start + a->volumes[volume].start + place.off;
    }
    for (uint64_t column = row % 61; column < layout->spec.chunk; column += 61) {
        uint8_t data[RAID_MEMBERS_MAX];
        for (unsigned i = 0; i < layout->data; i++)
            data[i] = chunks[i][column];
        for (unsigned j = 0; j < layout->redundancy; j++) {
            uint8_t want = layout->parity ? gf_reference_parity(j, data, layout->data) : data[0];
            if (chunks[layout->data + j][column] != want)
                return false;
        }
    }
    return true;
}

bool scene_redundant(const struct rig *rig, char *why, size_t why_len)
{
    for (unsigned i = 0; i < rig->array->description.volumes_count; i++) {
        const struct array_volume *volume = &rig->array->volumes[i];
        for (uint64_t row = 0; volume->map != NULL && row < volume->layout.rows; row++) {
            if (region_get(map_store_map(volume->map), row) == REGION_UNWRITTEN || row_is_right(rig, i, row))
                continue;
            text_format(why, why_len, "redundancy of row %llu of %s is wrong", (unsigned long long)row,
                        rig->array->description.volumes[i].name);
            return false;
        }
    }
    return true;
}

void scene_expect_whole(struct scene *scene, uint64_t seed, const char *what)
{
    char why[128];
    rig_settle(scene->rig);
    cr_expect_str_eq(rig_info(scene->rig).state, "optimal", "%s", what);
    cr_expect(rig_holds(scene->rig, "v", seed), "%s: other bytes", what);
    cr_expect(scene_redundant(scene->rig, why, sizeof why), "%s: %s", what, why);
}
