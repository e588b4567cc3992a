/* The region maps of arrays: on the members, through crashes, damage, and disks that come and go. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "raid/region_map.h"
#include "tests/unit/raid/arrays.h"

enum { DISK = 40 * 1024 * 1024, CHUNK = 65536 };
#define MILLISECOND 1000000ull
#define SECOND      1000000000ull

static void garbage(struct rig *rig, unsigned slot)
{
    test_fill(rig->mem[slot]->bytes, rig->mem[slot]->dev.info.size, slot + 1);
}

/* On disks full of garbage. */
static struct rig *rig_fresh(unsigned disks, enum raid_level level, uint64_t size)
{
    struct rig *rig = rig_create(disks, DISK);
    for (unsigned i = 0; i < disks; i++)
        garbage(rig, i);
    cr_assert(rig_make_one(rig, level, size), "%s", rig->message);
    return rig;
}

static struct blkdev *volume_of(struct rig *rig)
{
    return array_volume(rig->array, "v");
}

/* Does [off, off + len) hold the bytes of `seed`, or zeroes (seed 0)? */
static bool holds(struct rig *rig, uint64_t off, uint64_t len, uint64_t seed)
{
    uint8_t *want = calloc(1, len), *have = malloc(len);
    if (seed != 0)
        test_fill(want, len, seed);
    enum blk_status status = test_io(rig->t, volume_of(rig), BLK_READ, 0, off, have, len);
    bool same = status == BLK_OK && memcmp(want, have, len) == 0;
    free(want);
    free(have);
    return same;
}

static void put(struct rig *rig, uint64_t off, uint64_t len, uint64_t seed)
{
    uint8_t *bytes = malloc(len);
    test_fill(bytes, len, seed);
    cr_assert_eq(test_io(rig->t, volume_of(rig), BLK_WRITE, 0, off, bytes, len), BLK_OK);
    free(bytes);
}

static void zero(struct rig *rig, enum blk_op op, uint64_t off, uint64_t len)
{
    cr_assert_eq(test_io(rig->t, volume_of(rig), op, 0, off, NULL, len), BLK_OK);
}

static struct array_usage usage(struct rig *rig)
{
    return array_usage(rig->array, 0);
}

/* Where slot `half` of a block of the first volume's map stands on a disk. */
static uint8_t *map_slot(struct rig *rig, unsigned disk, unsigned block, unsigned half)
{
    return rig->mem[disk]->bytes + MIB + block * REGION_PAIR_BYTES + half * REGION_BLOCK_BYTES;
}

static uint64_t data_writes(const struct rig *rig, unsigned disk)
{
    return rig->mem[disk]->dev.counters.bytes[BLK_WRITE];
}

/* --- life --- */

Test(array_map, a_new_array_has_no_job_reads_as_zeroes_and_knows_what_is_written)
{
    static const enum raid_level levels[] = {RAID_1, RAID_10, RAID_5, RAID_6, RAID_3};
    for (unsigned l = 0; l < ARRAY_LENGTH(levels); l++) {
        struct rig *rig = rig_fresh(4, levels[l], 0);
        uint64_t size = volume_of(rig)->info.size, row = volume_of(rig)->info.optimal_io;
        cr_expect_eq(rig_info(rig).jobs_count, 0);
        cr_expect(rig_info(rig).clean);
        cr_expect(holds(rig, 0, MIB, 0) && holds(rig, size - MIB, MIB, 0), "%s", raid_level_name(levels[l]));
        cr_expect_eq(usage(rig).written_bytes, 0);
        put(rig, 5 * row + 4096, 4096, 7);
        put(rig, 9 * row - 4096, 8192, 8);
        cr_expect_eq(usage(rig).written_bytes, 3 * row);
        cr_expect_eq(usage(rig).dirty_bytes, 3 * row);
        rig_wait(rig, 3 * SECOND);
        cr_expect_eq(usage(rig).dirty_bytes, 0, "quiet");
        cr_assert(rig_close(rig), "%s", rig->message);
        cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
        cr_expect(rig->assembly.array.clean);
        cr_expect_eq(usage(rig).written_bytes, 3 * row);
        cr_expect(holds(rig, 5 * row + 4096, 4096, 7) && holds(rig, 9 * row - 4096, 8192, 8));
        cr_expect(holds(rig, 5 * row, 4096, 0) && holds(rig, 5 * row + 8192, 4096, 0) && holds(rig, 0, row, 0));
        zero(rig, BLK_DISCARD, 5 * row, 2 * row);
        cr_expect_eq(usage(rig).written_bytes, 2 * row);
        rig_kill(rig);
        cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
        cr_expect_eq(usage(rig).written_bytes, 2 * row, "what was answered is durable");
        cr_expect(holds(rig, 5 * row, 2 * row, 0));
        rig_destroy(rig);
    }
}

static void status_done(struct blk_req *req)
{
    (void)req;
}

static void expect_status(struct rig *rig, uint64_t off, uint64_t len, bool written, uint64_t extent)
{
    struct blk_req req = {.op = BLK_STATUS, .off = off, .len = len, .done = status_done};
    blk_submit(volume_of(rig), &req);
    testloop_run(rig->t);
    cr_expect_eq(req.status, BLK_OK);
    cr_expect(req.written == written && req.extent == extent, "at %llu: %s for %llu, not %llu", (unsigned long long)off,
              req.written ? "written" : "unwritten", (unsigned long long)req.extent, (unsigned long long)extent);
}

Test(array_map, a_volume_tells_which_rows_were_ever_written)
{
    struct rig *rig = rig_fresh(4, RAID_5, 0);
    uint64_t size = volume_of(rig)->info.size, row = volume_of(rig)->info.optimal_io;
    expect_status(rig, 0, size, false, size);
    put(rig, 5 * row + 4096, 4096, 7);
    put(rig, 6 * row, 4096, 8);
    expect_status(rig, 0, size, false, 5 * row);
    expect_status(rig, 512, 1024, false, 1024);
    expect_status(rig, 5 * row + 512, size - 5 * row - 512, true, 2 * row - 512);
    expect_status(rig, 7 * row, size - 7 * row, false, size - 7 * row);
    zero(rig, BLK_DISCARD, 5 * row, row);
    expect_status(rig, row, 6 * row, false, 5 * row);
    rig_destroy(rig);
}

Test(array_map, volumes_without_redundancy_have_none)
{
    struct rig *rig = rig_create(2, DISK);
    cr_assert(rig_make_one(rig, RAID_0, 0), "%s", rig->message);
    cr_expect_eq(usage(rig).written_bytes, volume_of(rig)->info.size);
    cr_expect_eq(usage(rig).dirty_bytes, 0);
    rig_destroy(rig);
}

Test(array_map, after_a_kill_only_rows_that_were_written_lately_are_resynchronised)
{
    struct rig *rig = rig_fresh(4, RAID_5, 0);
    uint64_t row = volume_of(rig)->info.optimal_io, size = volume_of(rig)->info.size / row * row;
    for (uint64_t off = 0; off < size; off += row)
        put(rig, off, row, off + 1);
    for (unsigned i = 0; i < 30; i++) { /* never quiet for two seconds */
        put(rig, 3 * row + i * 4096, 4096, 100 + i);
        rig_wait(rig, SECOND);
    }
    cr_expect_eq(usage(rig).dirty_bytes, row, "all others had their peace");
    put(rig, 20 * row, 4096, 5);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
    struct array_info info = rig_info(rig);
    cr_assert_eq(info.jobs_count, 1);
    cr_expect_str_eq(info.jobs[0].kind, "resync");
    cr_expect_eq(info.jobs[0].total_bytes, 2ull * 4 * CHUNK, "%llu", (unsigned long long)info.jobs[0].total_bytes);
    rig_settle(rig);
    cr_expect(rig_info(rig).clean);
    cr_expect_eq(usage(rig).dirty_bytes, 0);
    rig_destroy(rig);
}

Test(array_map, a_steady_writer_costs_no_commits)
{
    struct rig *rig = rig_fresh(4, RAID_5, 0);
    put(rig, 0, 4096, 1);
    uint64_t flushes = rig->mem[0]->flushes, fuas = rig->mem[0]->fuas;
    for (unsigned i = 0; i < 100; i++)
        put(rig, i % 48 * 4096, 4096, i);
    cr_expect_eq(rig->mem[0]->flushes, flushes);
    cr_expect_eq(rig->mem[0]->fuas, fuas);
    rig_destroy(rig);
}

Test(array_map, a_rebuild_moves_what_was_written)
{
    struct rig *rig = rig_fresh(4, RAID_5, 0);
    uint64_t row = volume_of(rig)->info.optimal_io, rows = volume_of(rig)->info.size / row, written = 0;
    for (uint64_t i = 0; i < rows; i += 10, written++)
        put(rig, i * row, 4096, i + 1);
    rig_settle(rig);
    cr_assert(rig_fail(rig, 2), "%s", rig->message);
    rig_disk_replace(rig, 2, DISK, 512);
    garbage(rig, 2);
    uint64_t read = rig->mem[0]->dev.counters.bytes[BLK_READ];
    cr_assert(rig_online(rig, 2), "%s", rig->message);
    cr_expect_eq(rig_info(rig).jobs[0].total_bytes, written * 4 * CHUNK);
    rig_settle(rig);
    cr_expect_str_eq(rig_info(rig).state, "optimal");
    uint64_t moved = data_writes(rig, 2) + rig->mem[2]->dev.counters.bytes[BLK_WRITE_ZEROES];
    cr_expect(moved >= written * CHUNK && moved < written * CHUNK + MIB, "%llu bytes", (unsigned long long)moved);
    cr_expect_eq(rig->mem[0]->dev.counters.bytes[BLK_READ] - read, written * CHUNK);
    cr_assert(rig_fail(rig, 0), "%s", rig->message);
    for (uint64_t i = 0; i < rows; i += 10)
        cr_expect(holds(rig, i * row, 4096, i + 1) && holds(rig, i * row + 4096, row - 4096, 0), "row %llu",
                  (unsigned long long)i);
    rig_destroy(rig);
}

/* --- kills at every step --- */

static void kill_now(struct rig *rig, unsigned mask, const char *what, uint64_t at)
{
    rig_kill(rig);
    cr_assert(rig_assemble(rig, mask, false), "%s at %llu: %s", what, (unsigned long long)at, rig->message);
}

/* Every member may be lost, and nothing changes. */
static void expect_redundant(struct rig *rig, uint64_t off, uint64_t len, uint64_t seed, uint64_t row, uint64_t at)
{
    rig_settle(rig);
    for (unsigned lost = 0; lost < 2; lost++) {
        cr_assert(rig_fail(rig, lost * 2), "%s", rig->message);
        cr_expect(holds(rig, off, len, seed) && (len == row || holds(rig, off + len, row - len, 0)),
                  "killed at %llu, without %u", (unsigned long long)at, lost * 2);
        cr_assert(rig_online(rig, lost * 2), "%s", rig->message);
        rig_settle(rig);
    }
}

Test(array_map, a_first_write_that_is_killed_at_any_step_is_there_or_is_zeroes)
{
    static const enum raid_level levels[] = {RAID_5, RAID_1, RAID_6};
    for (unsigned l = 0; l < ARRAY_LENGTH(levels); l++)
        for (uint64_t at = 0, over = 0; !over; at += 50) {
            struct rig *rig = rig_fresh(4, levels[l], 4 * MIB);
            uint64_t row = volume_of(rig)->info.optimal_io;
            struct rig_write write = {0};
            rig_write_start(rig, &write, "v", 2 * row, 8192, 9);
            rig_wait(rig, at * 1000 + 1);
            over = write.over;
            kill_now(rig, 0xf, "first write", at);
            bool there = holds(rig, 2 * row, 8192, 9);
            cr_expect(there || (!over && holds(rig, 2 * row, 8192, 0)), "killed at %llu us", (unsigned long long)at);
            cr_expect(holds(rig, 2 * row + 8192, row - 8192, 0) && holds(rig, 0, 2 * row, 0), "killed at %llu us",
                      (unsigned long long)at);
            expect_redundant(rig, 2 * row, 8192, there ? 9 : 0, row, at);
            rig_destroy(rig);
        }
}

Test(array_map, a_write_to_a_clean_row_that_is_killed_at_any_step_leaves_redundancy_that_is_made_right)
{
    for (uint64_t at = 0, over = 0; !over; at += 50) {
        struct rig *rig = rig_fresh(4, RAID_5, 4 * MIB);
        uint64_t row = volume_of(rig)->info.optimal_io;
        put(rig, 2 * row, 8192, 5);
        rig_wait(rig, 4 * SECOND);
        cr_assert(rig_info(rig).clean);
        struct rig_write write = {0};
        rig_write_start(rig, &write, "v", 2 * row, 8192, 9);
        rig_wait(rig, at * 1000 + 1);
        over = write.over;
        kill_now(rig, 0xf, "a write", at);
        rig_wait(rig, at * 10000 % (7 * MILLISECOND)); /* again, in the recovery */
        kill_now(rig, 0xf, "a resync", at);
        uint64_t seed = holds(rig, 2 * row, 8192, 9) ? 9 : 5;
        cr_expect(over ? seed == 9 : true);
        /* one member has the new bytes, and its parity may not: read what counts, after the resync */
        rig_settle(rig);
        seed = holds(rig, 2 * row, 8192, 9) ? 9 : 5;
        expect_redundant(rig, 2 * row, 8192, seed, row, at);
        rig_destroy(rig);
    }
}

struct zeroing {
    struct blk_req req;
    bool over;
};

static void zeroing_done(struct blk_req *req)
{
    container_of(req, struct zeroing, req)->over = true;
}

Test(array_map, zeroes_that_are_killed_at_any_step_are_old_bytes_or_zeroes)
{
    for (uint64_t at = 0, over = 0; !over; at += 50) {
        struct rig *rig = rig_fresh(4, RAID_6, 4 * MIB);
        uint64_t row = volume_of(rig)->info.optimal_io;
        put(rig, row, row, 5);
        struct zeroing z = {.req = {.op = at % 100 ? BLK_DISCARD : BLK_WRITE_ZEROES, .off = row, .len = row}};
        z.req.flags = z.req.op == BLK_WRITE_ZEROES ? BLK_FUA : 0;
        z.req.done = zeroing_done;
        blk_submit(volume_of(rig), &z.req);
        rig_wait(rig, at * 1000 + 1);
        over = z.over;
        kill_now(rig, 0xf, "zeroes", at);
        bool gone = holds(rig, row, row, 0);
        cr_expect(gone || (!over && holds(rig, row, row, 5)), "killed at %llu us", (unsigned long long)at);
        expect_redundant(rig, row, row, gone ? 0 : 5, row, at);
        rig_destroy(rig);
    }
}

struct waited_call {
    struct array_call call;
    bool over;
};

static void waited_done(struct array_call *call)
{
    container_of(call, struct waited_call, call)->over = true;
}

Test(array_map, a_creation_that_is_killed_at_any_step_shows_no_garbage)
{
    unsigned seen = 0;
    for (uint64_t at = 0, over = 0; !over; at += 100) {
        struct rig *rig = rig_create(3, DISK);
        for (unsigned i = 0; i < 3; i++)
            garbage(rig, i);
        struct array_spec *spec = rig_spec(rig);
        rig_spec_add(spec, "v", RAID_5, MIB);
        struct waited_call made = {.call.done = waited_done};
        array_create(&rig->t->loop, spec, &made.call);
        free(spec);
        rig_wait(rig, at * 1000 + 1);
        over = made.over;
        for (unsigned i = 0; i < 3; i++)
            rig->mem[i]->power_cut = true;
        cr_assert(testloop_run_until(rig->t, &made.over));
        if (made.call.array != NULL) {
            rig->array = made.call.array;
            array_abandon(rig->array);
            testloop_run(rig->t);
            (void)rig_close(rig);
        }
        testloop_run(rig->t);
        for (unsigned i = 0; i < 3; i++)
            rig->mem[i]->power_cut = false;
        struct sb_label label;
        bool all = true;
        for (unsigned i = 0; i < 3; i++)
            all = all && rig_label(rig, i, &label) == SB_VALID;
        if (all && rig_assemble(rig, 7, false)) {
            seen++;
            cr_expect(holds(rig, 0, MIB, 0), "killed at %llu us", (unsigned long long)at);
            cr_expect_eq(rig_info(rig).jobs_count, 0);
        }
        rig_destroy(rig);
    }
    cr_expect_gt(seen, 5);
}

Test(array_map, a_volume_that_is_added_shows_no_garbage_whenever_it_is_killed)
{
    unsigned seen = 0;
    for (uint64_t at = 0, over = 0; !over; at += 100) {
        struct rig *rig = rig_fresh(3, RAID_5, MIB);
        struct array_volume_spec spec = {.name = "w", .layout = {.level = RAID_1}, .size = MIB};
        struct waited_call added = {.call.done = waited_done};
        put(rig, 0, 4096, 3);
        array_add_volume(rig->array, &spec, &added.call);
        rig_wait(rig, at * 1000 + 1);
        over = added.over;
        kill_now(rig, 7, "an addition", at);
        cr_expect(holds(rig, 0, 4096, 3) && holds(rig, 4096, MIB - 4096, 0));
        struct blkdev *w = array_volume(rig->array, "w");
        cr_expect(w != NULL || !over);
        if (w != NULL) {
            seen++;
            uint8_t *bytes = malloc(MIB);
            cr_expect_eq(test_io(rig->t, w, BLK_READ, 0, 0, bytes, MIB), BLK_OK);
            for (unsigned i = 0; i < MIB; i++)
                cr_assert_eq(bytes[i], 0, "killed at %llu us, byte %u", (unsigned long long)at, i);
            free(bytes);
        }
        rig_destroy(rig);
    }
    cr_expect_gt(seen, 0);
}

/* --- damage --- */

/* Five rows written, clean, closed. */
static struct rig *rig_written(uint64_t *row)
{
    struct rig *rig = rig_fresh(4, RAID_5, 0);
    *row = volume_of(rig)->info.optimal_io;
    for (unsigned i = 0; i < 5; i++)
        put(rig, i * *row, 4096, i + 1);
    cr_assert(rig_close(rig), "%s", rig->message);
    return rig;
}

static void expect_five_rows(struct rig *rig, uint64_t row, const char *when)
{
    cr_assert(rig_assemble(rig, 0xf, false), "%s: %s", when, rig->message);
    cr_expect_eq(usage(rig).written_bytes, 5 * row, "%s", when);
    cr_expect_eq(rig_info(rig).jobs_count, 0, "%s", when);
    for (unsigned i = 0; i < 5; i++)
        cr_expect(holds(rig, i * row, 4096, i + 1) && holds(rig, i * row + 4096, row - 4096, 0), "%s: row %u", when, i);
    cr_expect(holds(rig, 5 * row, row, 0), "%s", when);
}

Test(array_map, a_map_that_one_member_has_is_enough_and_the_others_get_it)
{
    uint64_t row;
    struct rig *rig = rig_written(&row);
    for (unsigned keeper = 0; keeper < 4; keeper++) {
        for (unsigned disk = 0; disk < 4; disk++)
            if (disk != keeper)
                memset(map_slot(rig, disk, 0, 0), 0x55, REGION_PAIR_BYTES);
        expect_five_rows(rig, row, "three maps lost");
        for (unsigned disk = 0; disk < 4; disk++) {
            bool has = memcmp(map_slot(rig, disk, 0, 0), "Corbel map\n", 11) == 0 ||
                       memcmp(map_slot(rig, disk, 0, 1), "Corbel map\n", 11) == 0;
            cr_expect(has, "disk %u", disk);
        }
        cr_assert(rig_close(rig), "%s", rig->message);
    }
    rig_destroy(rig);
}

Test(array_map, a_disk_that_cannot_read_its_map_does_no_harm)
{
    uint64_t row;
    struct rig *rig = rig_written(&row);
    struct fault_rule bad = {
        .ops = 1u << BLK_READ, .off = MIB, .len = 4096, .status = BLK_MEDIA, .until_written = true};
    for (unsigned disk = 0; disk < 3; disk++)
        fault_add(rig->dev[disk], &bad);
    expect_five_rows(rig, row, "slot 0 unreadable on three disks");
    cr_assert(rig_close(rig), "%s", rig->message);
    expect_five_rows(rig, row, "and written anew");
    cr_expect_eq(rig_info(rig).members[1].read_errors, 0);
    rig_destroy(rig);
}

Test(array_map, a_map_that_nobody_has_is_suspect_and_not_unwritten)
{
    for (unsigned unreadable = 0; unreadable < 2; unreadable++) {
        uint64_t row;
        struct rig *rig = rig_written(&row);
        struct fault_rule bad = {
            .ops = 1u << BLK_READ, .off = MIB, .len = REGION_PAIR_BYTES, .status = BLK_MEDIA, .until_written = true};
        for (unsigned disk = 0; disk < 4; disk++)
            if (unreadable)
                fault_add(rig->dev[disk], &bad);
            else
                memset(map_slot(rig, disk, 0, 0), 0x55, REGION_PAIR_BYTES);
        cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
        cr_expect_eq(usage(rig).written_bytes, volume_of(rig)->info.size);
        for (unsigned i = 0; i < 5; i++)
            cr_expect(holds(rig, i * row, 4096, i + 1), "what was written is there");
        cr_assert_eq(rig_info(rig).jobs_count, 1);
        rig_settle(rig);
        cr_expect(rig_info(rig).clean);
        cr_assert(rig_fail(rig, 1), "%s", rig->message);
        for (unsigned i = 0; i < 5; i++)
            cr_expect(holds(rig, i * row, 4096, i + 1));
        cr_assert(rig_close(rig), "%s", rig->message);
        cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
        cr_expect_eq(usage(rig).written_bytes, volume_of(rig)->info.size, "written again, and believed");
        rig_destroy(rig);
    }
}

Test(array_map, the_older_slot_is_not_taken_where_the_newer_one_cannot_be_read)
{
    uint64_t row;
    struct rig *rig = rig_written(&row);
    uint64_t newest = 0, half = 0;
    for (unsigned i = 0; i < 2; i++) {
        uint64_t sequence;
        memcpy(&sequence, map_slot(rig, 0, 0, i) + 40, 8);
        half = sequence > newest ? i : half;
        newest = sequence > newest ? sequence : newest;
    }
    struct fault_rule bad = {.ops = 1u << BLK_READ,
                             .off = MIB + half * REGION_BLOCK_BYTES,
                             .len = REGION_BLOCK_BYTES,
                             .status = BLK_MEDIA,
                             .until_written = true};
    for (unsigned disk = 0; disk < 4; disk++)
        fault_add(rig->dev[disk], &bad);
    cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
    for (unsigned i = 0; i < 5; i++)
        cr_expect(holds(rig, i * row, 4096, i + 1), "row %u", i);
    rig_settle(rig);
    rig_destroy(rig);
}

Test(array_map, a_member_that_cannot_write_its_map_is_lost)
{
    struct rig *rig = rig_fresh(4, RAID_5, 4 * MIB);
    struct fault_rule bad = {.ops = 1u << BLK_WRITE, .off = MIB, .len = REGION_PAIR_BYTES, .status = BLK_MEDIA};
    fault_add(rig->dev[2], &bad);
    put(rig, 0, 4096, 1);
    cr_expect_str_eq(rig_info(rig).members[2].state, "failed");
    struct sb_label label;
    cr_assert_eq(rig_label(rig, 0, &label), SB_VALID);
    cr_expect_eq(label.array.members[2].state, SB_FAILED, "on disk before the write is answered");
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 0xf, true), "%s", rig->assembly.reason);
    cr_expect(holds(rig, 0, 4096, 1) && holds(rig, 4096, MIB, 0));
    rig_destroy(rig);
}

/* --- disks that come and go --- */

Test(array_map, the_map_of_a_stale_disk_is_never_asked)
{
    struct rig *rig = rig_fresh(4, RAID_5, 4 * MIB);
    uint64_t row = volume_of(rig)->info.optimal_io;
    put(rig, 0, 4096, 1);
    cr_assert(rig_fail(rig, 1), "%s", rig->message);
    /* it would win by its number */
    for (unsigned half = 0; half < 2; half++) {
        struct region_map map;
        cr_assert(region_map_init(&map, array_description(rig->array)->volumes[0].extent / CHUNK));
        map.of_block[0].sequence = 1000001 + half;
        region_block_encode(&map, 0, &array_description(rig->array)->volumes[0].uuid, map_slot(rig, 1, 0, 1 - half));
        region_map_fini(&map);
    }
    put(rig, row, 4096, 2);
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
    cr_expect(holds(rig, 0, 4096, 1) && holds(rig, row, 4096, 2) && holds(rig, 2 * row, row, 0));
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    rig_settle(rig); /* no change of the map: nothing but the copy replaces what it held */
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_COMPLETE);
    for (unsigned i = 0; i < 2; i++)
        cr_expect(holds(rig, i * row, 4096, i + 1), "its old map was wiped when it came back: row %u", i);
    cr_expect_eq(usage(rig).written_bytes, 2 * row);
    rig_destroy(rig);
}

Test(array_map, a_disk_that_comes_back_can_carry_the_array_alone)
{
    struct rig *rig = rig_fresh(2, RAID_1, 4 * MIB);
    put(rig, 0, 4096, 1);
    cr_assert(rig_fail(rig, 0), "%s", rig->message);
    put(rig, CHUNK, 4096, 2);
    rig_disk_replace(rig, 0, DISK, 512);
    garbage(rig, 0);
    cr_assert(rig_online(rig, 0), "%s", rig->message);
    put(rig, 2 * CHUNK, 4096, 3);
    zero(rig, BLK_DISCARD, 0, CHUNK);
    rig_settle(rig);
    put(rig, 3 * CHUNK, 4096, 4);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 1, false), "%s", rig->message);
    cr_expect(holds(rig, 0, CHUNK, 0));
    for (unsigned i = 1; i < 4; i++)
        cr_expect(holds(rig, i * CHUNK, 4096, i + 1) && holds(rig, i * CHUNK + 4096, CHUNK - 4096, 0), "row %u", i);
    rig_destroy(rig);
}

Test(array_map, rows_wait_for_a_resync_through_degraded_starts)
{
    struct rig *rig = rig_fresh(4, RAID_5, 4 * MIB);
    uint64_t row = volume_of(rig)->info.optimal_io;
    put(rig, 0, row, 1);
    rig_kill(rig);
    cr_expect_not(rig_assemble(rig, 0x7, false), "dirty and degraded");
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_DIRTY_DEGRADED);
    cr_assert(rig_assemble(rig, 0x7, true), "%s", rig->message);
    rig_settle(rig);
    cr_expect(rig_info(rig).clean);
    cr_expect(holds(rig, 0, row, 1) && holds(rig, row, row, 0));
    rig_destroy(rig);
}

Test(array_map, many_blocks_of_map_are_loaded_and_written)
{
    /* RAID 3 has a row for every 4 KiB of a member */
    struct rig *rig = rig_create(3, 200ull * MIB);
    cr_assert(rig_make_one(rig, RAID_3, 0), "%s", rig->message);
    uint64_t size = volume_of(rig)->info.size, blocks = size / 8192 / REGION_PER_BLOCK + 1;
    cr_expect_gt(blocks, 2);
    for (uint64_t i = 0; i < 40; i++)
        put(rig, size / 40 * i / 8192 * 8192, 8192, i + 1);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 7, false), "%s", rig->message);
    cr_expect_eq(usage(rig).written_bytes, 40 * 8192);
    rig_settle(rig);
    for (uint64_t i = 0; i < 40; i++)
        cr_expect(holds(rig, size / 40 * i / 8192 * 8192, 8192, i + 1), "%llu", (unsigned long long)i);
    rig_destroy(rig);
}

Test(array_map, a_volume_with_too_many_rows_for_the_map_is_refused)
{
    struct rig *rig = rig_create(3, DISK);
    struct array_spec *spec = rig_spec(rig);
    struct sb_array a;
    char why[256];
    rig_spec_add(spec, "v", RAID_5, MIB);
    cr_assert_null(array_describe(&rig->t->loop, spec, &a, why, sizeof why));
    cr_expect_eq(superblock_map_blocks(&a), 128);
    for (unsigned i = 0; i < 63; i++) {
        char name[8] = {'w', (char)('0' + i / 10), (char)('0' + i % 10)};
        rig_spec_add(spec, name, RAID_1, 65536);
    }
    spec->volumes_count = 20;
    cr_assert_null(array_describe(&rig->t->loop, spec, &a, why, sizeof why), "%s", why);
    cr_expect_eq(a.volumes[19].map_block, 19);
    free(spec);
    rig_destroy(rig);
}
