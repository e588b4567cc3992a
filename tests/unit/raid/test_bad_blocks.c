#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "raid/bad_blocks.h"
#include "tests/unit/raid/arrays.h"
#include "tests/unit/raid/volbench.h"

/* --- the list --- */

enum { SLOTS = 3, BLOCKS = 64 };

static void list_is(const struct bad_list *list, const bool *model, const char *when)
{
    static const uint64_t sizes[SLOTS] = {BLOCKS * 512, BLOCKS * 512, BLOCKS * 512};
    const char *wrong = bad_check(list, sizes, SLOTS);
    cr_assert_null(wrong, "%s: %s", when, wrong);
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        uint64_t bytes = 0;
        for (unsigned i = 0; i < BLOCKS; i++) {
            cr_assert_eq(bad_overlaps(list, slot, i * 512, 512), model[slot * BLOCKS + i], "%s: slot %u block %u", when,
                         slot, i);
            bytes += 512 * model[slot * BLOCKS + i];
        }
        cr_assert_eq(bad_bytes(list, slot), bytes);
    }
}

Test(bad_blocks, the_list_is_a_set_of_blocks)
{
    struct bad_list *list = calloc(1, sizeof *list);
    bool model[SLOTS * BLOCKS] = {false};
    uint64_t seed = 5;
    for (unsigned i = 0; i < 5000; i++) {
        unsigned slot = (unsigned)(test_random(&seed) % SLOTS), first = (unsigned)(test_random(&seed) % BLOCKS);
        unsigned count = 1 + (unsigned)(test_random(&seed) % (BLOCKS - first)) % 9;
        bool bad = test_random(&seed) % 2;
        cr_assert((bad ? bad_add : bad_clear)(list, slot, first * 512, count * 512));
        for (unsigned k = first; k < first + count; k++)
            model[slot * BLOCKS + k] = bad;
        list_is(list, model, bad ? "added" : "cleared");
    }
    free(list);
}

static bool same(const struct bad_list *a, const struct bad_list *b)
{
    bool same = a->count == b->count;
    for (unsigned i = 0; same && i < a->count; i++)
        same = a->of[i].slot == b->of[i].slot && a->of[i].start == b->of[i].start && a->of[i].length == b->of[i].length;
    return same;
}

Test(bad_blocks, a_full_list_takes_no_more_and_stays_as_it_was)
{
    struct bad_list *list = calloc(1, sizeof *list), *before = calloc(1, sizeof *before);
    for (unsigned i = 0; i < BAD_ADD_MAX; i++)
        cr_assert(bad_add(list, 1, i * 4096ull, 2048));
    *before = *list;
    cr_expect_not(bad_add(list, 2, 0, 512));
    cr_expect(same(list, before));
    cr_expect(bad_add(list, 1, 2048, 512), "part of another needs no room");
    cr_expect(bad_clear(list, 1, 2048, 512));
    cr_expect(same(list, before));
    for (unsigned i = 0; i < BAD_MAX - BAD_ADD_MAX; i++)
        cr_expect(bad_clear(list, 1, i * 4096ull + 512, 512), "there is room to split");
    *before = *list;
    cr_expect_not(bad_clear(list, 1, 800 * 4096ull + 512, 512));
    cr_expect(same(list, before));
    cr_expect(bad_clear(list, 1, 800 * 4096ull, 2048));
    cr_expect_eq(bad_count(list, 1), BAD_MAX - 1);
    cr_expect_eq(bad_count(list, 0), 0);
    free(list);
    free(before);
}

Test(bad_blocks, what_was_read_is_checked)
{
    static const uint64_t sizes[2] = {65536, 4096};
    static const struct {
        struct bad_range of[2];
        const char *wrong;
    } cases[] = {{{{0, 0, 512}, {0, 1024, 512}}, NULL},
                 {{{0, 0, 65536}, {1, 0, 4096}}, NULL},
                 {{{0, 0, 512}, {0, 512, 512}}, "order"},
                 {{{0, 0, 1024}, {0, 512, 512}}, "order"},
                 {{{1, 0, 512}, {0, 4096, 512}}, "order"},
                 {{{0, 0, 512}, {2, 0, 512}}, "slot"},
                 {{{0, 0, 512}, {1, 256, 512}}, "whole blocks"},
                 {{{0, 0, 512}, {1, 512, 100}}, "whole blocks"},
                 {{{0, 0, 0}, {1, 0, 512}}, "empty"},
                 {{{0, 0, 512}, {1, 3584, 1024}}, "beyond"},
                 {{{0, 0, 512}, {1, 4096, 512}}, "beyond"},
                 {{{0, 512, UINT64_MAX - 511}, {1, 0, 512}}, "beyond"}};
    struct bad_list *list = calloc(1, sizeof *list);
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        list->count = 2;
        memcpy(list->of, cases[i].of, sizeof cases[i].of);
        const char *wrong = bad_check(list, sizes, 2);
        cr_expect_eq(wrong == NULL, cases[i].wrong == NULL, "case %u: %s", i, wrong);
        cr_expect(wrong == NULL || strstr(wrong, cases[i].wrong) != NULL, "case %u: %s", i, wrong);
    }
    free(list);
}

/* --- rows --- */

#define CHUNK 8192ull
#define ROW   (4 * CHUNK)
#define R5                                                                                                             \
    {                                                                                                                  \
        .level = RAID_5, .members = 5, .rotation = ROTATE_LEFT_SYMMETRIC                                               \
    }
#define R6                                                                                                             \
    {                                                                                                                  \
        .level = RAID_6, .members = 6, .rotation = ROTATE_LEFT_SYMMETRIC                                               \
    }
#define R1(n)                                                                                                          \
    {                                                                                                                  \
        .level = RAID_1, .members = n                                                                                  \
    }
enum { PARITY = 4 };

static struct bench *open_filled(struct layout_spec spec)
{
    struct bench *b = bench_open(&(struct bench_options){.layout = spec}, 7);
    bench_fill(b);
    b->forgiving = true;
    return b;
}

/* So many writes to a part of a chunk are refused by a disk that stays. */
static void refuse(struct bench *b, uint64_t row, unsigned role, uint32_t count)
{
    uint64_t off = (uint64_t)(bench_chunk(b, row, role) - b->disks[bench_slot(b, row, role)]->bytes);
    fault_add(b->faults[bench_slot(b, row, role)], &(struct fault_rule){.ops = 1 << BLK_WRITE | 1 << BLK_WRITE_ZEROES,
                                                                        .off = off,
                                                                        .len = CHUNK,
                                                                        .status = BLK_MEDIA,
                                                                        .count = count});
}

static bool chunk_is_bad(struct bench *b, uint64_t row, unsigned role, uint64_t column, uint64_t len)
{
    unsigned slot = bench_slot(b, row, role);
    uint64_t off = (uint64_t)(bench_chunk(b, row, role) - b->disks[slot]->bytes);
    return bad_overlaps(&b->bad, slot, off - b->members[slot].data_start + column, len);
}

static void all_is_well(struct bench *b)
{
    for (unsigned slot = 0; slot < b->layout.spec.members; slot++)
        fault_clear(b->faults[slot], -1);
    cr_expect_eq(b->bad.count, 0);
    bench_check_contents(b);
    bench_check_redundancy(b);
    bench_close(b);
}

Test(bad_blocks, what_a_rebuild_cannot_compute_is_lost_until_overwritten)
{
    struct bench *b = open_filled((struct layout_spec)R5);
    unsigned slot = bench_slot(b, 1, 0);
    bench_spoil(b, 1, 2, 1024, 512);
    bench_fail(b, slot);
    testloop_run(b->t);
    bench_rebuild(b, slot);
    for (uint64_t row = 0; row < b->layout.rows; row++) {
        bool changed;
        cr_expect_eq(bench_job(b, ROW_REBUILD, row, &changed), row == 1 ? BLK_MEDIA : BLK_OK);
        cr_expect_not(b->loss_pending, "it is on disk when the row is done");
    }
    cr_expect(chunk_is_bad(b, 1, 0, 1024, 512) && chunk_is_bad(b, 1, 2, 1024, 512));
    cr_expect_eq(bad_bytes(&b->bad, slot), 512);
    bench_online(b, slot);
    fault_clear(b->faults[bench_slot(b, 1, 2)], -1); /* it can be read again, but nobody knows with what */
    static const unsigned roles[] = {0, 2};
    for (unsigned i = 0; i < 2; i++) {
        uint64_t off = ROW + roles[i] * CHUNK;
        cr_expect_eq(bench_io(b, BLK_READ, 0, off + 1024, 512), BLK_MEDIA);
        cr_expect_eq(bench_io(b, BLK_READ, 0, off, CHUNK), BLK_MEDIA);
        cr_expect_eq(bench_io(b, BLK_READ, 0, off, 1024), BLK_OK);
        cr_expect_eq(bench_io(b, BLK_READ, 0, off + 1536, CHUNK - 1536), BLK_OK);
    }
    uint64_t fuas = bench_counts(b).fuas;
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW + 1024, 512), BLK_OK);
    cr_expect_gt(bench_counts(b).fuas, fuas, "the bytes first, then the list");
    cr_expect_eq(bench_io(b, BLK_READ, 0, ROW + 1024, 512), BLK_OK);
    cr_expect_eq(bench_io(b, BLK_READ, 0, ROW + 2 * CHUNK + 1024, 512), BLK_MEDIA, "the other one is still lost");
    cr_expect(chunk_is_bad(b, 1, PARITY, 1024, 512), "parity could not be computed");
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW + 2 * CHUNK, CHUNK), BLK_OK);
    all_is_well(b);
}

Test(bad_blocks, a_disk_that_is_rebuilt_again_keeps_what_is_lost)
{
    struct bench *b = open_filled((struct layout_spec)R5);
    unsigned slot = bench_slot(b, 1, 0), other = bench_slot(b, 1, 2);
    bool changed;
    bench_spoil(b, 1, 2, 0, 512);
    bench_fail(b, slot);
    bench_rebuild(b, slot);
    for (uint64_t row = 0; row < b->layout.rows; row++)
        bench_job(b, ROW_REBUILD, row, &changed);
    bench_online(b, slot);
    bench_fail(b, other);
    bench_rebuild(b, other);
    for (uint64_t row = 0; row < b->layout.rows; row++)
        bench_job(b, ROW_REBUILD, row, &changed);
    bench_online(b, other);
    cr_expect_eq(bench_io(b, BLK_READ, 0, ROW, 512), BLK_MEDIA);
    cr_expect_eq(bench_io(b, BLK_READ, 0, ROW + 2 * CHUNK, 512), BLK_MEDIA);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW, ROW), BLK_OK);
    all_is_well(b);
}

Test(bad_blocks, parity_that_was_not_taken_is_not_believed)
{
    struct bench *b = open_filled((struct layout_spec)R5);
    unsigned absent = bench_slot(b, 1, 3);
    bench_fail(b, absent);
    testloop_run(b->t);
    refuse(b, 1, PARITY, 2);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW + 512, 1024), BLK_OK, "its own disk has it");
    cr_expect_not(b->loss_pending, "acknowledged when that is on disk");
    cr_expect(chunk_is_bad(b, 1, PARITY, 512, 1024));
    cr_expect_eq(bench_io(b, BLK_READ, 0, ROW + 512, 1024), BLK_OK);
    cr_expect_eq(bench_io(b, BLK_READ, 0, ROW + 3 * CHUNK + 512, 512), BLK_MEDIA, "computed from it: not believed");
    cr_expect_eq(bench_io(b, BLK_READ, 0, ROW + 3 * CHUNK + 1536, 512), BLK_OK);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW + 3 * CHUNK + 512, 512), BLK_OK, "overwritten");
    cr_expect_eq(bench_io(b, BLK_READ, 0, ROW + 3 * CHUNK + 512, 512), BLK_OK);
    cr_expect_not(chunk_is_bad(b, 1, PARITY, 512, 512));
    cr_expect_eq(bench_io(b, BLK_READ, 0, ROW + 3 * CHUNK + 1024, 512), BLK_MEDIA);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW, ROW), BLK_OK);
    all_is_well(b);
}

Test(bad_blocks, data_that_was_not_taken_is_reconstructed)
{
    static const struct layout_spec specs[] = {R5, R6, R1(3)};
    for (unsigned i = 0; i < ARRAY_LENGTH(specs); i++) {
        struct bench *b = open_filled(specs[i]);
        refuse(b, 1, 0, 2);
        uint64_t row_data = b->layout.row_data;
        cr_expect_eq(bench_io(b, BLK_WRITE, 0, row_data, 1024), BLK_OK);
        cr_expect(chunk_is_bad(b, 1, 0, 0, 1024));
        cr_expect_not(chunk_is_bad(b, 1, 0, 1024, 512));
        fault_clear(b->faults[bench_slot(b, 1, 0)], -1);
        bench_check_contents(b); /* and what was read was mended */
        cr_expect_eq(bench_io(b, BLK_WRITE, 0, row_data, 2048), BLK_OK);
        all_is_well(b);
    }
}

Test(bad_blocks, a_writer_is_told_when_nobody_has_its_bytes)
{
    struct bench *b = open_filled((struct layout_spec)R5);
    bench_fail(b, bench_slot(b, 1, 3));
    testloop_run(b->t);
    refuse(b, 1, 0, 2);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW, 512), BLK_MEDIA);
    cr_expect(chunk_is_bad(b, 1, PARITY, 0, 512), "it is that of bytes which are nowhere");
    cr_expect_eq(bench_io(b, BLK_READ, 0, ROW + 3 * CHUNK, 512), BLK_MEDIA);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW, ROW), BLK_OK);
    all_is_well(b);

    b = open_filled((struct layout_spec)R1(2));
    bench_fail(b, 1);
    testloop_run(b->t);
    refuse(b, 1, 0, 2);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, CHUNK, 512), BLK_MEDIA);
    cr_expect_eq(b->bad.count, 0, "the only copy is what it is");
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, CHUNK, 512), BLK_OK);
    all_is_well(b);
}

Test(bad_blocks, bad_copies_are_not_read)
{
    struct bench *b = open_filled((struct layout_spec)R1(2));
    for (unsigned role = 0; role < 2; role++) {
        unsigned slot = bench_slot(b, 0, role);
        uint64_t off = (uint64_t)(bench_chunk(b, 0, role) - b->disks[slot]->bytes);
        cr_assert(bad_add(&b->bad, slot, off - b->members[slot].data_start + role * 4096, 4096));
        memset(bench_chunk(b, 0, role) + role * 4096, 0x33, 4096);
    }
    bench_check_contents(b);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, 0, CHUNK), BLK_OK);
    all_is_well(b);
}

Test(bad_blocks, a_row_that_is_filled_anew_has_no_bad_blocks)
{
    struct bench *b = open_filled((struct layout_spec)R5);
    refuse(b, 1, PARITY, 2);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW, 512), BLK_OK);
    cr_expect_eq(b->bad.count, 1);
    cr_expect_eq(bench_io(b, BLK_DISCARD, 0, ROW, ROW), BLK_OK);
    cr_expect_eq(bench_io(b, BLK_READ, 0, ROW, ROW), BLK_OK);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW + 4096, 512), BLK_OK);
    all_is_well(b);
}

Test(bad_blocks, a_row_whose_filling_loses_zeroes_stays_unwritten)
{
    struct bench *b = bench_open(&(struct bench_options){.layout = R5, .unwritten = true}, 7);
    b->forgiving = true;
    bench_fail(b, bench_slot(b, 1, 3));
    testloop_run(b->t);
    for (unsigned role = 0; role < 3; role++) {
        refuse(b, 1, role, 100);
        cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW + CHUNK, 512), BLK_MEDIA, "role %u", role);
        fault_clear(b->faults[bench_slot(b, 1, role)], -1);
        cr_expect_eq(region_get(&b->map, 1), REGION_UNWRITTEN);
        cr_expect_eq(bench_io(b, BLK_READ, 0, ROW, ROW), BLK_OK);
    }
    for (unsigned slot = 0; slot < 5; slot++)
        fault_clear(b->faults[slot], -1);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW + CHUNK, 512), BLK_OK);
    all_is_well(b);
}

Test(bad_blocks, a_resync_mends_what_is_bad_and_records_what_it_cannot_judge)
{
    struct bench *b = open_filled((struct layout_spec)R5);
    bool changed;
    refuse(b, 1, PARITY, 2);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW, 512), BLK_OK);
    region_set(&b->map, 1, REGION_SUSPECT);
    cr_expect_eq(bench_job(b, ROW_RESYNC, 1, &changed), BLK_OK);
    cr_expect(changed);
    cr_expect_eq(b->bad.count, 0);
    bench_spoil(b, 1, 0, 0, 512);
    bench_spoil(b, 1, 1, 0, 512);
    region_set(&b->map, 1, REGION_SUSPECT);
    cr_expect_eq(bench_job(b, ROW_RESYNC, 1, &changed), BLK_MEDIA);
    cr_expect(chunk_is_bad(b, 1, PARITY, 0, 512));
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW, ROW), BLK_OK);
    all_is_well(b);
}

Test(bad_blocks, when_the_list_is_full_the_writer_is_told)
{
    struct bench *b = open_filled((struct layout_spec)R5);
    for (unsigned i = 0; i < BAD_ADD_MAX; i++) /* far away */
        cr_assert(bad_add(&b->bad, 63, i * 4096ull, 512));
    refuse(b, 1, PARITY, 2);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW, 512), BLK_MEDIA);
    cr_expect_eq(region_get(&b->map, 1), REGION_SUSPECT);
    unsigned slot = bench_slot(b, 2, 0);
    bench_spoil(b, 2, 1, 0, 512);
    bench_fail(b, slot);
    bench_rebuild(b, slot);
    bool changed;
    cr_expect_eq(bench_job(b, ROW_REBUILD, 2, &changed), BLK_NOSPACE, "the job stops, and says why");
    bench_close(b);
}

/* --- arrays --- */

Test(bad_blocks, an_array_keeps_them_and_says_what_is_lost)
{
    struct rig *rig = rig_create(4, 40 * MIB);
    cr_assert(rig_make_one(rig, RAID_5, 4 * MIB), "%s", rig->message);
    cr_assert_eq(rig_fill(rig, "v", 1, MIB), BLK_OK);
    uint64_t data_start = array_description(rig->array)->data_start;
    /* Row 2, chunk 0 of 64 KiB: what stands where does not matter, two blocks of one row do. */
    fault_add(rig->dev[1], &(struct fault_rule){.ops = 1 << BLK_READ,
                                                .off = data_start + 2 * 65536,
                                                .len = 4096,
                                                .status = BLK_MEDIA,
                                                .until_written = true});
    cr_assert(rig_fail(rig, 0), "%s", rig->message);
    rig_disk_replace(rig, 0, 40 * MIB, 512);
    cr_assert(rig_online(rig, 0), "%s", rig->message);
    rig_settle(rig);
    cr_expect_str_eq(rig_info(rig).state, "optimal", "the rebuild went on");
    struct array_info info = rig_info(rig);
    cr_expect_eq(info.members[0].bad_ranges, 1);
    cr_expect_eq(info.members[0].bad_bytes, 4096);
    cr_expect_eq(info.members[1].bad_bytes, 4096);
    struct array_lost lost;
    array_lost(rig->array, 0, &lost);
    cr_expect(lost.count >= 1 && lost.count <= 2 && lost.bytes == lost.count * 4096, "%u ranges, %zu bytes", lost.count,
              (size_t)lost.bytes);
    cr_assert(rig_close(rig), "%s", rig->message);
    fault_clear(rig->dev[1], -1);
    cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
    uint8_t bytes[4096] = {0};
    struct blkdev *dev = array_volume(rig->array, "v");
    for (unsigned i = 0; i < lost.count; i++) {
        uint64_t off = lost.ranges[i].off;
        cr_expect_eq(off / 196608, 2, "in row 2");
        cr_expect_eq(test_io(rig->t, dev, BLK_READ, 0, off, bytes, 4096), BLK_MEDIA);
        cr_expect_eq(test_io(rig->t, dev, BLK_READ, 0, off + 4096, bytes, 4096), BLK_OK);
    }
    for (unsigned i = 0; i < lost.count; i++)
        cr_expect_eq(test_io(rig->t, dev, BLK_WRITE, 0, lost.ranges[i].off, bytes, 4096), BLK_OK);
    struct array_lost after;
    array_lost(rig->array, 0, &after);
    cr_expect_eq(after.bytes, 0);
    rig_kill(rig); /* what was overwritten stays so */
    cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
    dev = array_volume(rig->array, "v");
    for (unsigned i = 0; i < lost.count; i++)
        cr_expect_eq(test_io(rig->t, dev, BLK_READ, 0, lost.ranges[i].off, bytes, 4096), BLK_OK);
    rig_destroy(rig);
}
