/* Volumes of every level against a model of bytes: many requests at once, healthy, degraded, and failing on the way. */
#include <criterion/criterion.h>

#include "core/check.h"
#include "tests/unit/raid/volbench.h"

static const struct layout_spec shapes[] = {
    {.level = RAID_JBOD, .members = 1},
    {.level = RAID_SPAN, .members = 3},
    {.level = RAID_0, .members = 3},
    {.level = RAID_1, .members = 2},
    {.level = RAID_1, .members = 3},
    {.level = RAID_10, .members = 4, .copies = 2},
    {.level = RAID_10, .members = 6, .copies = 3},
    {.level = RAID_1E, .members = 3, .copies = 2},
    {.level = RAID_1E, .members = 5, .copies = 2},
    {.level = RAID_3, .members = 4},
    {.level = RAID_5, .members = 3, .rotation = ROTATE_LEFT_SYMMETRIC},
    {.level = RAID_5, .members = 5, .rotation = ROTATE_RIGHT_ASYMMETRIC},
    {.level = RAID_6, .members = 4, .rotation = ROTATE_LEFT_SYMMETRIC},
    {.level = RAID_6, .members = 7, .rotation = ROTATE_LEFT_ASYMMETRIC},
    {.level = RAID_TP, .members = 5, .rotation = ROTATE_LEFT_SYMMETRIC},
    {.level = RAID_TP, .members = 7, .rotation = ROTATE_RIGHT_SYMMETRIC},
    {.level = RAID_30, .members = 6, .spans = 2},
    {.level = RAID_50, .members = 6, .spans = 2, .rotation = ROTATE_LEFT_SYMMETRIC},
    {.level = RAID_60, .members = 8, .spans = 2, .rotation = ROTATE_LEFT_SYMMETRIC},
    {.level = RAID_60, .members = 10, .spans = 2, .rotation = ROTATE_RIGHT_ASYMMETRIC},
};

static struct bench *open_shape(unsigned shape, uint64_t absent, uint64_t seed)
{
    return bench_open(&(struct bench_options){.layout = shapes[shape], .absent = absent}, seed);
}

/* Found by simulation: what comes later may keep writes in a cache, and not zero what it discards. */
Test(volume, promises_nothing_for_a_disk_that_is_not_there)
{
    struct bench *b = open_shape(0, 1, 1); /* one disk, away */
    cr_expect(b->dev->info.volatile_cache && !b->dev->info.discard_zeroes);
    bench_close(b);
    b = open_shape(2, 2, 1); /* RAID 0 of three without the second */
    cr_expect(b->dev->info.volatile_cache && !b->dev->info.discard_zeroes);
    bench_close(b);
    b = open_shape(11, 2, 1); /* with redundancy a discard is a write of zeroes */
    cr_expect(b->dev->info.volatile_cache && b->dev->info.discard_zeroes);
    bench_close(b);
}

Test(volume, promises_a_whole_block_where_it_is_one_of_every_disk)
{
    static const struct {
        uint32_t block, disk_block;
        uint64_t absent;
        uint32_t whole;
    } table[] = {{512, 512, 0, 512}, {4096, 4096, 0, 4096}, {4096, 512, 0, 0}, {512, 512, 1, 512}, {4096, 4096, 1, 0}};
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
        struct bench *b = bench_open(&(struct bench_options){.layout = shapes[3],
                                                             .logical_block = table[i].block,
                                                             .member_block = table[i].disk_block,
                                                             .absent = table[i].absent},
                                     1);
        cr_expect_eq(b->dev->info.atomic_write, table[i].whole, "row %u", i);
        bench_close(b);
    }
}

Test(volume, says_what_it_is)
{
    struct bench *b = open_shape(11, 0, 1); /* RAID 5 of five, 8 KiB chunks */
    cr_expect_eq(b->dev->info.size, 12 * 4 * 8 * KIB);
    cr_expect_eq(b->dev->info.optimal_io, 4 * 8 * KIB);
    cr_expect_eq(b->dev->info.max_request, 33 * MIB);
    cr_expect(b->dev->info.discards && b->dev->info.discard_zeroes && b->dev->info.volatile_cache);
    cr_expect_eq(volume_rows(b->volume), 12);
    cr_expect_eq(volume_rows(b->volume), 12);
    cr_expect_not(volume_degraded(b->volume) || volume_failed(b->volume));
    bench_close(b);
}

Test(volume, says_how_much_of_a_row_a_disk_holds_where_writing_less_than_a_row_reads_first)
{
    static const struct {
        unsigned shape;
        uint32_t part;
    } table[] = {{0, 0}, {2, 0}, {4, 0}, {6, 0}, {8, 0}, {11, 8192}, {13, 8192}, {15, 8192}, {17, 8192}, {18, 8192}};
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
        struct bench *b = open_shape(table[i].shape, 0, 1);
        cr_expect_eq(b->dev->info.row_part, table[i].part, "shape %u", table[i].shape);
        bench_close(b);
    }
}

Test(volume, healthy_volumes_keep_every_byte_and_their_redundancy)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            struct bench *b = open_shape(shape, 0, seed);
            bench_fill(b);
            bench_storm(b, 400, 0, 0);
            bench_check_contents(b);
            bench_check_redundancy(b);
            cr_expect_eq(b->errors, 0);
            bench_close(b);
        }
}

Test(volume, disks_that_answer_at_once_are_no_different)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++) {
        struct bench *b = bench_open(&(struct bench_options){.layout = shapes[shape], .instant = true}, 9);
        bench_storm(b, 300, 0, 0);
        bench_check_contents(b);
        bench_check_redundancy(b);
        bench_close(b);
    }
}

Test(volume, every_tolerated_set_of_members_may_be_missing_from_the_start)
{
    for (unsigned shape = 3; shape < ARRAY_LENGTH(shapes); shape++) {
        uint64_t sets = UINT64_C(1) << shapes[shape].members;
        for (uint64_t absent = 1; absent < sets; absent++) {
            struct bench *b = open_shape(shape, absent, absent);
            cr_expect(volume_degraded(b->volume));
            cr_expect_eq(volume_failed(b->volume), !layout_survives(&b->layout, absent));
            if (!volume_failed(b->volume)) {
                bench_fill(b);
                bench_storm(b, 60, 0, 0);
                bench_check_contents(b);
                bench_check_redundancy(b);
            }
            bench_close(b);
        }
    }
}

Test(volume, every_tolerated_set_of_members_may_fail_under_load)
{
    for (unsigned shape = 3; shape < ARRAY_LENGTH(shapes); shape++) {
        uint64_t sets = UINT64_C(1) << shapes[shape].members;
        for (uint64_t kill = 1; kill < sets; kill++) {
            struct bench *b = open_shape(shape, 0, kill * 31);
            if (layout_survives(&b->layout, kill)) {
                bench_fill(b);
                bench_storm(b, 90, kill, 30);
                bench_check_contents(b);
                bench_check_redundancy(b);
            }
            bench_close(b);
        }
    }
}

Test(volume, with_4096_byte_blocks_too)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++) {
        struct bench *b = bench_open(&(struct bench_options){.layout = shapes[shape], .logical_block = 4096}, 4);
        cr_expect_eq(b->dev->info.logical_block, 4096);
        bench_storm(b, 200, 0, 0);
        bench_check_contents(b);
        bench_check_redundancy(b);
        bench_close(b);
    }
}

Test(volume, with_hardly_any_contexts_and_scratch_it_still_gets_on)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++)
        for (unsigned scarce = 1; scarce <= 3; scarce++) {
            struct bench *b = bench_open(
                &(struct bench_options){
                    .layout = shapes[shape], .runs_max = scarce, .rows_max = 4 - scarce, .scratch_bytes = 4096},
                scarce);
            bool bears_loss = b->layout.redundancy > 0;
            bench_storm(b, 200, bears_loss ? 1 : 0, 100);
            bench_check_contents(b);
            bench_check_redundancy(b);
            bench_close(b);
        }
}

Test(volume, with_many_contexts_and_hardly_any_scratch_rows_wait_for_pages)
{
    for (unsigned shape = 9; shape < ARRAY_LENGTH(shapes); shape++) {
        struct bench *b = bench_open(&(struct bench_options){.layout = shapes[shape], .scratch_bytes = 1}, shape);
        bench_fill(b);
        bench_storm(b, 300, 1, 100);
        bench_check_contents(b);
        bench_check_redundancy(b);
        bench_close(b);
    }
}

Test(volume, with_more_rows_than_the_table_of_locks_has_places)
{
    struct layout_spec spec = {.level = RAID_1, .members = 2, .chunk = 4096};
    struct bench *b = bench_open(&(struct bench_options){.layout = spec, .extent = 16 * MIB}, 1);
    bench_storm(b, 3000, 0, 3001);
    bench_check_contents(b);
    bench_check_redundancy(b);
    bench_close(b);
}

Test(volume, wide_chunks_are_handled_in_slices)
{
    static const struct layout_spec wide[] = {
        {.level = RAID_5, .members = 3, .rotation = ROTATE_LEFT_SYMMETRIC, .chunk = 2 * MIB},
        {.level = RAID_6, .members = 5, .rotation = ROTATE_LEFT_SYMMETRIC, .chunk = 1 * MIB},
        {.level = RAID_1, .members = 2, .chunk = 4 * MIB},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(wide); i++) {
        struct bench *b = bench_open(&(struct bench_options){.layout = wide[i], .extent = 4 * MIB}, i);
        bench_fill(b);
        bench_storm(b, 100, 2, 50);
        /* An unaligned request of nearly a row: three bands in many windows. */
        cr_expect_eq(bench_io(b, BLK_WRITE, 0, 1536, b->layout.row_data - 4096), BLK_OK);
        cr_expect_eq(bench_io(b, BLK_READ, 0, 512, b->layout.row_data - 1024), BLK_OK);
        bench_check_contents(b);
        bench_check_redundancy(b);
        bench_close(b);
    }
}

struct rival {
    struct blk_req req;
    struct page *pages[4];
    bool over;
};

static void rival_done(struct blk_req *req)
{
    container_of(req, struct rival, req)->over = true;
}

static void rival_submit(struct bench *b, struct rival *r, uint64_t off, uint64_t seed)
{
    uint8_t bytes[8192];
    test_fill(bytes, sizeof bytes, seed);
    cr_assert(page_pool_get(b->t->loop.pages, r->pages, page_count_for(off, sizeof bytes)));
    r->over = false;
    r->req = (struct blk_req){.op = BLK_WRITE, .off = off, .len = sizeof bytes, .pages = r->pages, .done = rival_done};
    pages_copy_in(r->pages, off % PAGE_BYTES, bytes, sizeof bytes);
    blk_submit(b->dev, &r->req);
}

Test(volume, overlapping_writes_end_in_the_same_order_on_all_members)
{
    enum { RIVALS = 40 };
    static const unsigned list[] = {4, 5, 8, 11, 13};
    static struct rival rivals[RIVALS];
    for (unsigned i = 0; i < ARRAY_LENGTH(list); i++) {
        struct bench *b = open_shape(list[i], 0, i);
        for (unsigned k = 0; k < RIVALS; k++) {
            for (unsigned slot = 0; slot < b->layout.spec.members; slot++)
                b->disks[slot]->latency_ns = 1000 + test_random(&b->seed) % 90000;
            rival_submit(b, &rivals[k], 1536 * (k % 3), k + 1);
        }
        testloop_run(b->t);
        for (unsigned k = 0; k < RIVALS; k++) {
            cr_expect(rivals[k].over && rivals[k].req.status == BLK_OK);
            page_put_all(rivals[k].pages, page_count_for(rivals[k].req.off, rivals[k].req.len));
        }
        /* Whoever came last: data and redundancy must tell the same story. */
        cr_expect_eq(test_io(b->t, b->dev, BLK_READ, 0, 0, b->model, b->layout.row_data), BLK_OK);
        cr_expect_eq(
            test_io(b->t, b->dev, BLK_READ, 0, b->layout.row_data, b->model + b->layout.row_data, b->layout.row_data),
            BLK_OK);
        bench_check_redundancy(b);
        bench_close(b);
    }
}
