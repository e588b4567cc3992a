/*
 * Volumes go from shape to shape: bytes that were written read back before, meanwhile, and after, those that were not
 * are zeroes; redundancy is right; and a kill at any moment changes nothing of it. The disks are full of garbage.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "raid/relayout.h"
#include "tests/unit/raid/arrays.h"

enum { PIECE = 1 << 18 };

struct pending {
    struct array_call call;
    bool over;
};

static void pending_done(struct array_call *call)
{
    container_of(call, struct pending, call)->over = true;
}

struct shape {
    enum raid_level level;
    unsigned members;
    uint32_t chunk;
    enum raid_rotation rotation;
    unsigned copies;
};

static struct layout_spec layout_of(const struct shape *shape)
{
    bool spans = shape->level == RAID_30 || shape->level == RAID_50 || shape->level == RAID_60;
    return (struct layout_spec){.level = shape->level,
                                .members = shape->members,
                                .chunk = shape->chunk,
                                .rotation = shape->rotation,
                                .copies = shape->copies,
                                .spans = spans ? 2 : 0};
}

static struct rig *rig_of(unsigned disks, uint64_t disk_bytes, const struct shape *shape, uint64_t size)
{
    struct rig *rig = rig_create(disks, disk_bytes);
    struct array_spec *spec = rig_spec(rig);
    for (unsigned slot = 0; slot < disks; slot++)
        memset(rig->mem[slot]->bytes, 0xa5 + (int)slot, rig->mem[slot]->dev.info.size);
    rig_spec_add(spec, "v", shape->level, size);
    spec->volumes[0].layout = layout_of(shape);
    cr_assert(rig_make(rig, spec), "%s", rig->message);
    return rig;
}

static void start(struct rig *rig, const struct shape *to, struct pending *pending)
{
    struct array_relayout_spec spec = {.layout = layout_of(to)};
    *pending = (struct pending){.call.done = pending_done};
    array_relayout_start(rig->array, 0, &spec, &pending->call);
}

static bool begin(struct rig *rig, const struct shape *to)
{
    struct pending pending;
    start(rig, to, &pending);
    cr_assert(testloop_run_until(rig->t, &pending.over));
    text_format(rig->message, sizeof rig->message, "%s", pending.call.message);
    return pending.call.error == 0;
}

/* Pieces of which bit i of `which` is set, each from a seed of its own. */
static void put(struct rig *rig, uint64_t which, uint64_t seed)
{
    for (unsigned i = 0; i < 64; i++)
        if (which >> i & 1)
            rig_put(rig, (uint64_t)i * PIECE, PIECE, seed + i);
}

static void expect(struct rig *rig, uint64_t which, uint64_t seed, const char *what)
{
    for (unsigned i = 0; i < 64 && (i + 1ull) * PIECE <= rig_volume(rig)->info.size; i++) {
        bool written = which >> i & 1;
        cr_assert(rig_has(rig, (uint64_t)i * PIECE, PIECE, written ? seed + i : 0), "%s: piece %u", what, i);
    }
}

static bool has_map(enum raid_level level)
{
    return level != RAID_0 && level != RAID_JBOD && level != RAID_SPAN;
}

static void expect_shape(struct rig *rig, const struct shape *shape, const char *what)
{
    const struct sb_array *a = array_description(rig->array);
    cr_assert_eq(a->volumes_count, 1, "%s", what);
    cr_assert(a->volumes[0].spec.level == shape->level && a->volumes[0].spec.chunk == shape->chunk, "%s", what);
}

static void expect_redundancy(struct rig *rig, const char *what)
{
    struct array_scrub_info info;
    if (!has_map(array_description(rig->array)->volumes[0].spec.level))
        return;
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_CHECK), "%s: %s", what, rig->message);
    rig_settle(rig);
    array_scrub_info(rig->array, 0, &info);
    cr_assert_eq(info.scrub.last.mismatched, 0, "%s", what);
}

static const struct {
    unsigned disks;
    struct shape from, to;
    uint64_t size, disk;
} pairs[] = {
    {4, {RAID_5, 3, 65536, ROTATE_LEFT_SYMMETRIC, 0}, {RAID_5, 4, 65536, ROTATE_LEFT_SYMMETRIC, 0}, 8 * MIB, 48 * MIB},
    {4, {RAID_5, 4, 16384, ROTATE_LEFT_SYMMETRIC, 0}, {RAID_5, 3, 16384, ROTATE_LEFT_SYMMETRIC, 0}, 8 * MIB, 48 * MIB},
    {4, {RAID_5, 4, 65536, ROTATE_LEFT_SYMMETRIC, 0}, {RAID_6, 4, 65536, ROTATE_LEFT_SYMMETRIC, 0}, 8 * MIB, 48 * MIB},
    {4, {RAID_6, 4, 65536, ROTATE_LEFT_SYMMETRIC, 0}, {RAID_5, 4, 16384, ROTATE_LEFT_SYMMETRIC, 0}, 8 * MIB, 48 * MIB},
    {4, {RAID_0, 3, 65536, 0, 0}, {RAID_5, 4, 65536, ROTATE_LEFT_SYMMETRIC, 0}, 8 * MIB, 48 * MIB},
    {4, {RAID_5, 4, 65536, ROTATE_LEFT_SYMMETRIC, 0}, {RAID_0, 3, 65536, 0, 0}, 8 * MIB, 48 * MIB},
    {4, {RAID_10, 4, 65536, 0, 2}, {RAID_5, 4, 65536, ROTATE_LEFT_SYMMETRIC, 0}, 8 * MIB, 48 * MIB},
    {4, {RAID_5, 4, 65536, ROTATE_LEFT_SYMMETRIC, 0}, {RAID_10, 4, 32768, 0, 2}, 8 * MIB, 48 * MIB},
    {3, {RAID_1, 2, 65536, 0, 2}, {RAID_1, 3, 65536, 0, 3}, 6 * MIB, 48 * MIB},
    {3, {RAID_1, 3, 65536, 0, 3}, {RAID_1, 2, 65536, 0, 2}, 6 * MIB, 48 * MIB},
    {2, {RAID_JBOD, 1, 65536, 0, 0}, {RAID_1, 2, 65536, 0, 2}, 6 * MIB, 48 * MIB},
    {6, {RAID_5, 4, 65536, ROTATE_LEFT_SYMMETRIC, 0}, {RAID_50, 6, 65536, ROTATE_LEFT_SYMMETRIC, 0}, 8 * MIB, 48 * MIB},
    {4,
     {RAID_5, 4, 65536, ROTATE_LEFT_SYMMETRIC, 0},
     {RAID_5, 4, 16384, ROTATE_RIGHT_ASYMMETRIC, 0},
     8 * MIB,
     48 * MIB},
};

#define SOME 0x00000000f0f3ff1full

Test(relayout, a_volume_goes_to_another_shape_while_it_is_read, .timeout = 240)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(pairs); i++) {
        char what[64];
        text_format(what, sizeof what, "%s of %u to %s of %u", raid_level_name(pairs[i].from.level),
                    pairs[i].from.members, raid_level_name(pairs[i].to.level), pairs[i].to.members);
        struct rig *rig = rig_of(pairs[i].disks, pairs[i].disk, &pairs[i].from, pairs[i].size);
        uint64_t which = has_map(pairs[i].from.level) ? SOME : UINT64_MAX;
        which &= (1ull << pairs[i].size / PIECE) - 1;
        struct uuid uuid = array_description(rig->array)->volumes[0].uuid;
        put(rig, which, 100);
        cr_assert(begin(rig, &pairs[i].to), "%s: %s", what, rig->message);
        struct array_relayout_progress progress;
        for (unsigned looks = 0; array_relayout_progress(rig->array, &progress) && looks < 1000; looks++) {
            expect(rig, which, 100, what);
            rig_wait(rig, 3000000);
        }
        rig_settle(rig);
        cr_assert_not(array_relayout_progress(rig->array, &progress), "%s", what);
        expect(rig, which, 100, what);
        expect_shape(rig, &pairs[i].to, what);
        cr_assert(uuid_equal(&uuid, &array_description(rig->array)->volumes[0].uuid), "%s", what);
        expect_redundancy(rig, what);
        put(rig, which & 0x5555, 300);
        cr_assert(rig_close(rig), "%s", rig->message);
        cr_assert(rig_assemble(rig, UINT32_MAX, false), "%s", rig->message);
        expect_shape(rig, &pairs[i].to, what);

        rig_destroy(rig);
    }
}

/* --- one more disk --- */

static void add_start(struct rig *rig, unsigned disk, struct pending *pending)
{
    struct array_disk it = rig_disk(rig, disk);
    *pending = (struct pending){.call.done = pending_done};
    array_add_member(rig->array, &it, &pending->call);
}

static bool add(struct rig *rig, unsigned disk)
{
    struct pending pending;
    add_start(rig, disk, &pending);
    cr_assert(testloop_run_until(rig->t, &pending.over));
    text_format(rig->message, sizeof rig->message, "%s", pending.call.message);
    return pending.call.error == 0;
}

Test(relayout, a_disk_is_added_and_then_taken_into_use, .timeout = 120)
{
    static const enum raid_level levels[] = {RAID_5, RAID_6, RAID_0, RAID_1, RAID_TP};
    static const enum sb_consistency policies[] = {SB_PPL, SB_JOURNAL, SB_RESYNC, SB_BITMAP, SB_JOURNAL};
    for (unsigned i = 0; i < ARRAY_LENGTH(levels); i++) {
        const char *what = raid_level_name(levels[i]);
        struct shape shape = {levels[i], 5, 65536, ROTATE_LEFT_SYMMETRIC, levels[i] == RAID_1 ? 5 : 0};
        struct rig *rig = rig_create(5, 48 * MIB);
        struct array_spec *spec = rig_spec(rig);
        rig_spec_add(spec, "v", levels[i], 6 * MIB);
        spec->volumes[0].layout = layout_of(&shape);
        spec->volumes[0].consistency_given = true;
        spec->volumes[0].consistency = policies[i];
        cr_assert(rig_make(rig, spec), "%s: %s", what, rig->message);
        put(rig, 0xffffff, 100);
        for (shape.members = 6; shape.members <= 8; shape.members++) {
            unsigned disk = rig_disk_more(rig, 48 * MIB, 512);
            shape.copies = levels[i] == RAID_1 ? shape.members : 0;
            cr_assert(add(rig, disk), "%s: %s", what, rig->message);
            cr_assert_eq(rig_info(rig).members_count, shape.members, "%s", what);
            cr_assert_str_eq(rig_info(rig).members[disk].state, "online", "%s", what);
            cr_assert(begin(rig, &shape), "%s: %s", what, rig->message);
            rig_settle(rig);
            expect(rig, 0xffffff, 100, what);
            cr_assert_eq(array_description(rig->array)->volumes[0].spec.members, shape.members, "%s", what);
            expect_redundancy(rig, what);
            if (levels[i] != RAID_0) {
                cr_assert(rig_fail(rig, shape.members - 1), "%s: %s", what, rig->message);
                expect(rig, 0xffffff, 100, what);
                cr_assert(rig_online(rig, shape.members - 1), "%s: %s", what, rig->message);
                rig_settle(rig);
            }
            put(rig, 0xf0f, 100);
        }
        cr_assert(rig_close(rig), "%s", rig->message);
        cr_assert(rig_assemble(rig, UINT32_MAX, false), "%s", rig->message);
        expect(rig, 0xffffff, 100, what);
        rig_destroy(rig);
    }
}

Test(relayout, refusals_change_nothing)
{
    struct shape five = {RAID_5, 3, 65536, ROTATE_LEFT_SYMMETRIC, 0},
                 four = {RAID_5, 4, 65536, ROTATE_LEFT_SYMMETRIC, 0};
    struct rig *rig = rig_of(3, 48 * MIB, &five, 6 * MIB);
    uint64_t generation = array_description(rig->array)->generation;
    put(rig, 0xffffff, 100);
    cr_expect_not(begin(rig, &four));
    cr_expect_not_null(strstr(rig->message, "add disks first"), "%s", rig->message);
    cr_expect_not(begin(rig, &five));
    cr_expect_not_null(strstr(rig->message, "has this shape already"), "%s", rig->message);
    unsigned small = rig_disk_more(rig, 40 * MIB, 512);
    cr_expect_not(add(rig, small));
    cr_expect_not_null(strstr(rig->message, "take a larger disk"), "%s", rig->message);
    cr_expect_eq(array_description(rig->array)->volumes_count, 1);
    cr_expect_eq(array_description(rig->array)->members_count, 3);
    cr_expect_leq(array_description(rig->array)->generation, generation + 1);
    expect(rig, 0xffffff, 100, "as before");
    rig_destroy(rig);
}

/* Killed so many microseconds after a disk was to be added. True: it was in service by then. */
static bool added_and_killed(uint64_t us)
{
    struct shape shape = {RAID_5, 3, 65536, ROTATE_LEFT_SYMMETRIC, 0};
    struct rig *rig = rig_of(3, 34 * MIB, &shape, 2 * MIB);
    struct pending pending;
    put(rig, 0xff, 100);
    unsigned disk = rig_disk_more(rig, 34 * MIB, 512);
    add_start(rig, disk, &pending);
    rig_wait(rig, us * 1000);
    bool over = pending.over;
    rig_kill(rig);
    cr_assert(rig_assemble(rig, UINT32_MAX, false), "%llu us: %s", (unsigned long long)us, rig->message);
    rig_settle(rig);
    expect(rig, 0xff, 100, "killed when a disk was added");
    unsigned members = rig_info(rig).members_count;
    cr_assert(members == 3 || members == 4);
    cr_assert(members == 4 || !over);
    cr_assert(members == 3 || strcmp(rig_info(rig).members[3].state, "online") == 0, "%llu us: %s: %s",
              (unsigned long long)us, rig_info(rig).members[3].state, rig->assembly.reason);
    cr_assert_str_eq(rig_info(rig).state, "optimal");
    rig_destroy(rig);
    return over;
}

Test(relayout, killed_when_a_disk_is_added, .timeout = 240)
{
    uint64_t us = 50;
    while (!added_and_killed(us))
        us += 173;
}

/* --- one less --- */

static void remove_start(struct rig *rig, struct pending *pending)
{
    *pending = (struct pending){.call.done = pending_done};
    array_remove_member(rig->array, &pending->call);
}

static bool remove_one(struct rig *rig)
{
    struct pending pending;
    remove_start(rig, &pending);
    cr_assert(testloop_run_until(rig->t, &pending.over));
    text_format(rig->message, sizeof rig->message, "%s", pending.call.message);
    return pending.call.error == 0;
}

Test(relayout, a_disk_is_taken_away_when_nothing_lies_there)
{
    struct shape five = {RAID_5, 5, 65536, ROTATE_LEFT_SYMMETRIC, 0},
                 three = {RAID_5, 3, 65536, ROTATE_LEFT_SYMMETRIC, 0};
    struct rig *rig = rig_of(5, 48 * MIB, &five, 6 * MIB);
    struct sb_label label;
    put(rig, 0xffffff, 100);
    cr_expect_not(remove_one(rig));
    cr_expect_not_null(strstr(rig->message, "volume v lies on slot 4"), "%s", rig->message);
    cr_assert(begin(rig, &three), "%s", rig->message);
    cr_expect_not(remove_one(rig));
    cr_expect_not_null(strstr(rig->message, "is moving a volume"), "%s", rig->message);
    rig_settle(rig);
    cr_assert(rig_fail(rig, 3), "%s", rig->message); /* one that is well, and one that is not */
    for (unsigned slot = 4; slot >= 3; slot--) {
        cr_assert(remove_one(rig), "%s", rig->message);
        cr_expect_eq(rig_info(rig).members_count, slot);
        expect(rig, 0xffffff, 100, "one less");
    }
    cr_expect_eq(rig_label(rig, 4, &label), SB_NONE);
    cr_expect_not(remove_one(rig));
    cr_assert_str_eq(rig_info(rig).state, "optimal");
    /* The disk is as good as new. */
    cr_assert(add(rig, 4), "%s", rig->message);
    cr_assert(remove_one(rig), "%s", rig->message);
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(rig_assemble(rig, UINT32_MAX, false), "%s", rig->message);
    cr_expect_eq(rig_info(rig).members_count, 3);
    expect(rig, 0xffffff, 100, "started again");
    expect_redundancy(rig, "started again");
    rig_destroy(rig);
}

/* True: it was over by then. */
static bool removed_and_killed(uint64_t us)
{
    struct shape shape = {RAID_5, 3, 65536, ROTATE_LEFT_SYMMETRIC, 0};
    struct rig *rig = rig_of(4, 34 * MIB, &shape, 2 * MIB);
    struct pending pending;
    put(rig, 0xff, 100);
    remove_start(rig, &pending);
    rig_wait(rig, us * 1000);
    bool over = pending.over;
    rig_kill(rig);
    cr_assert(rig_assemble(rig, UINT32_MAX, false), "%llu us: %s", (unsigned long long)us, rig->message);
    rig_settle(rig);
    unsigned members = rig_info(rig).members_count;
    cr_assert(members == 3 || (members == 4 && !over), "%llu us: %u members", (unsigned long long)us, members);
    cr_assert_str_eq(rig_info(rig).state, "optimal");
    expect(rig, 0xff, 100, "killed when a disk was taken away");
    rig_destroy(rig);
    return over;
}

Test(relayout, killed_when_a_disk_is_taken_away, .timeout = 240)
{
    uint64_t us = 50;
    while (!removed_and_killed(us))
        us += 97;
}

/* --- crashes --- */

/* Killed so many microseconds after the beginning, and once more so many after the next start. True: it was over. */
static bool killed_after(unsigned pair, uint64_t us, uint64_t again, bool more_writes)
{
    char what[64];
    text_format(what, sizeof what, "pair %u, killed after %llu us", pair, (unsigned long long)us);
    struct rig *rig = rig_of(pairs[pair].disks, 34 * MIB, &pairs[pair].from, 3 * MIB);
    uint64_t which = has_map(pairs[pair].from.level) && has_map(pairs[pair].to.level) ? 0xf73 : 0xfff, next = 0;
    struct array_relayout_progress progress;
    struct pending pending;
    put(rig, which, 100);
    start(rig, &pairs[pair].to, &pending);
    rig_wait(rig, us * 1000);
    bool over = pending.over && !array_relayout_progress(rig->array, &progress);
    if (more_writes && pending.over && !over)
        put(rig, next = 0x21, 500);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, UINT32_MAX, false), "%s: %s", what, rig->message);
    rig_wait(rig, again * 1000);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, UINT32_MAX, false), "%s: %s", what, rig->message);
    for (unsigned i = 0; i < 12; i++) {
        bool written = (which | next) >> i & 1;
        uint64_t seed = (next >> i & 1 ? 500 : 100) + i;
        cr_assert(rig_has(rig, (uint64_t)i * PIECE, PIECE, written ? seed : 0), "%s: piece %u", what, i);
    }
    rig_settle(rig);
    for (unsigned i = 0; i < 12; i++) {
        bool written = (which | next) >> i & 1;
        uint64_t seed = (next >> i & 1 ? 500 : 100) + i;
        cr_assert(rig_has(rig, (uint64_t)i * PIECE, PIECE, written ? seed : 0), "%s, over: piece %u", what, i);
    }
    expect_redundancy(rig, what);
    rig_destroy(rig);
    return over;
}

/* In parts, which may run side by side. */
enum { KILLED_PARTS = 4 };
static void kill_at_any_moment(unsigned part)
{
    for (unsigned i = part; i < ARRAY_LENGTH(pairs); i += KILLED_PARTS) {
        uint64_t us = 37;
        while (!killed_after(i, us, us % 3 == 0 ? us / 2 + 700 : us * 7 % 30000, us % 2 == 0))
            us += 331 + us / 6;
    }
}

Test(relayout, killed_at_any_moment_it_goes_on)
{
    kill_at_any_moment(0);
}

Test(relayout, killed_at_any_moment_it_goes_on_second_part)
{
    kill_at_any_moment(1);
}

Test(relayout, killed_at_any_moment_it_goes_on_third_part)
{
    kill_at_any_moment(2);
}

Test(relayout, killed_at_any_moment_it_goes_on_fourth_part)
{
    kill_at_any_moment(3);
}

/* --- what is lost --- */

/* A byte of the volume cannot be read by its disk any more, nor can the parity of its row. */
static void lose_block(struct rig *rig, uint64_t off)
{
    const struct sb_array *a = array_description(rig->array);
    struct layout layout;
    cr_assert(superblock_layout(a, &a->volumes[0], &layout));
    uint64_t row = off / layout.row_data, column = off % layout.spec.chunk;
    const unsigned roles[] = {(unsigned)(off % layout.row_data / layout.spec.chunk), layout.data};
    for (unsigned i = 0; i < 2; i++) {
        struct layout_place place;
        layout_place(&layout, row, roles[i], &place);
        fault_add(rig->dev[place.slot],
                  &(struct fault_rule){.ops = 1u << BLK_READ,
                                       .off = a->data_start + a->volumes[0].start + place.off + round_down(column, 512),
                                       .len = 512,
                                       .status = BLK_MEDIA,
                                       .until_written = true});
    }
}

/* A block that no disk can read is lost on the new side as well, and only that one; a write ends it. */
Test(relayout, a_block_that_is_lost_stays_so_and_the_rest_is_moved)
{
    static const uint64_t lost = 3 * MIB + 20480;
    struct shape from = {RAID_5, 4, 65536, ROTATE_LEFT_SYMMETRIC, 0}, to = {RAID_5, 4, 16384, ROTATE_LEFT_SYMMETRIC, 0};
    struct rig *rig = rig_of(4, 48 * MIB, &from, 6 * MIB);
    uint8_t *bytes = malloc(MIB), *want = malloc(MIB);
    put(rig, 0xffffff, 100);
    lose_block(rig, lost);
    cr_assert(begin(rig, &to), "%s", rig->message);
    rig_settle(rig);
    expect_shape(rig, &to, "with a lost block");
    for (unsigned restart = 0; restart < 2; restart++) {
        for (unsigned i = 0; i < 24; i++)
            cr_assert(i == lost / PIECE || rig_has(rig, (uint64_t)i * PIECE, PIECE, 100 + i), "piece %u", i);
        uint64_t piece = round_down(lost, PIECE);
        test_fill(want, PIECE, 100 + lost / PIECE);
        for (uint64_t at = 0; at < PIECE; at += 512) {
            enum blk_status status = test_io(rig->t, rig_volume(rig), BLK_READ, 0, piece + at, bytes, 512);
            cr_assert_eq(status, piece + at == lost ? BLK_MEDIA : BLK_OK, "%llu", (unsigned long long)at);
            cr_assert(status != BLK_OK || memcmp(bytes, want + at, 512) == 0, "%llu", (unsigned long long)at);
        }
        cr_assert(rig_close(rig), "%s", rig->message);
        cr_assert(rig_assemble(rig, UINT32_MAX, false), "%s", rig->message);
    }
    rig_put(rig, lost, 512, 7);
    cr_assert(rig_has(rig, lost, 512, 7));
    expect_redundancy(rig, "written again");
    free(bytes);
    free(want);
    rig_destroy(rig);
}

/* --- how fast --- */

struct disks {
    const char *name;
    uint64_t rate, request_ns, seek_ns;
    double least;
};

static void disks_are(struct rig *rig, const struct disks *disks)
{
    for (unsigned slot = 0; slot < rig->count; slot++) {
        rig->mem[slot]->rate = disks->rate;
        rig->mem[slot]->request_ns = disks->request_ns;
        rig->mem[slot]->seek_ns = disks->seek_ns;
        rig->mem[slot]->dev.info.rotational = rig->dev[slot]->info.rotational = disks->seek_ns != 0;
    }
}

/* docs/relayout.md, "What it costs": what the disks can do at the most. */
Test(relayout, an_idle_array_grows_at_the_rate_of_its_disks, .timeout = 240)
{
    static const struct disks disks[] = {{"rotating", 30000000, 500000, 8000000, 0.38},
                                         {"solid", 100000000, 200000, 0, 0.68}};
    struct shape from = {RAID_5, 3, 65536, ROTATE_LEFT_SYMMETRIC, 0}, to = {RAID_5, 4, 65536, ROTATE_LEFT_SYMMETRIC, 0};
    for (unsigned i = 0; i < ARRAY_LENGTH(disks); i++) {
        struct rig *rig = rig_of(4, 160 * MIB, &from, 200 * MIB);
        struct array_relayout_progress progress;
        cr_assert_eq(rig_fill(rig, "v", 3, 4 * MIB), BLK_OK);
        testloop_run(rig->t);
        disks_are(rig, &disks[i]);
        uint64_t begun = rig->t->loop.now_ns;
        cr_assert(begin(rig, &to), "%s", rig->message);
        while (array_relayout_progress(rig->array, &progress))
            rig_wait(rig, 10000000);
        double seconds = (double)(rig->t->loop.now_ns - begun) / 1e9;
        double bound = 2.0 * (double)(200 * MIB) / 3 / (double)disks[i].rate;
        cr_expect_geq(bound / seconds, disks[i].least, "%s: %.3f", disks[i].name, bound / seconds);
        rig_destroy(rig);
    }
}
