/* What a request costs the members, which member is asked, and what passes down. */
#include <criterion/criterion.h>

#include "core/check.h"
#include "tests/unit/raid/volbench.h"

static const struct layout_spec raid5 = {.level = RAID_5, .members = 5, .rotation = ROTATE_LEFT_SYMMETRIC};
static const struct layout_spec raid6 = {.level = RAID_6, .members = 6, .rotation = ROTATE_LEFT_SYMMETRIC};

static struct bench *open_spec(const struct layout_spec *spec, uint64_t absent)
{
    return bench_open(&(struct bench_options){.layout = *spec, .absent = absent}, 3);
}

struct cost_case {
    const char *what;
    struct layout_spec layout;
    uint64_t absent;
    enum blk_op op;
    uint64_t off, len;
    uint64_t reads, writes;
};

#define R5                                                                                                             \
    {                                                                                                                  \
        .level = RAID_5, .members = 5, .rotation = ROTATE_LEFT_SYMMETRIC                                               \
    }
#define R6                                                                                                             \
    {                                                                                                                  \
        .level = RAID_6, .members = 6, .rotation = ROTATE_LEFT_SYMMETRIC                                               \
    }

static const struct cost_case costs[] = {
    {"RAID 5 read of a page", R5, 0, BLK_READ, 4096, 4096, 1, 0},
    {"RAID 5 read of a row", R5, 0, BLK_READ, 0, 32 * KIB, 4, 0},
    {"RAID 5 small write", R5, 0, BLK_WRITE, 4096, 4096, 2, 2},
    {"RAID 5 chunk", R5, 0, BLK_WRITE, 8 * KIB, 8 * KIB, 2, 2},
    {"RAID 5 two chunks", R5, 0, BLK_WRITE, 8 * KIB, 16 * KIB, 2, 3},
    {"RAID 5 three chunks", R5, 0, BLK_WRITE, 0, 24 * KIB, 1, 4},
    {"RAID 5 full row", R5, 0, BLK_WRITE, 32 * KIB, 32 * KIB, 0, 5},
    {"RAID 5 three full rows", R5, 0, BLK_WRITE, 32 * KIB, 96 * KIB, 0, 15},
    {"RAID 5 discard of a row", R5, 0, BLK_DISCARD, 32 * KIB, 32 * KIB, 0, 5},
    {"RAID 5 zeroes within a chunk", R5, 0, BLK_WRITE_ZEROES, 4096, 4096, 2, 2},
    {"RAID 5 degraded read of a page that is lost", R5, 1, BLK_READ, 0, 4096, 4, 0},
    {"RAID 5 degraded read of a row", R5, 1, BLK_READ, 0, 32 * KIB, 4, 0},
    {"RAID 5 degraded read of a page that is there", R5, 1, BLK_READ, 8 * KIB, 4096, 1, 0},
    {"RAID 5 degraded write of a page that is lost", R5, 1, BLK_WRITE, 0, 4096, 3, 1},
    {"RAID 5 write of a page whose parity is lost", R5, 16, BLK_WRITE, 0, 4096, 0, 1},
    {"RAID 6 small write", R6, 0, BLK_WRITE, 4096, 4096, 3, 3},
    {"RAID 6 full row", R6, 0, BLK_WRITE, 0, 32 * KIB, 0, 6},
    {"mirror read", {.level = RAID_1, .members = 3}, 0, BLK_READ, 4096, 4096, 1, 0},
    {"mirror read of several rows", {.level = RAID_1, .members = 3}, 0, BLK_READ, 4096, 64 * KIB, 1, 0},
    {"mirror write", {.level = RAID_1, .members = 3}, 0, BLK_WRITE, 4096, 4096, 0, 3},
    {"a disk of its own, read", {.level = RAID_JBOD, .members = 1}, 0, BLK_READ, 512, 80 * KIB, 1, 0},
    {"a disk of its own, write", {.level = RAID_JBOD, .members = 1}, 0, BLK_WRITE, 512, 80 * KIB, 0, 1},
    {"a disk of its own, discard", {.level = RAID_JBOD, .members = 1}, 0, BLK_DISCARD, 0, 96 * KIB, 0, 1},
    {"span across a border", {.level = RAID_SPAN, .members = 3}, 0, BLK_WRITE, 64 * KIB, 64 * KIB, 0, 2},
    {"RAID 0, three chunks", {.level = RAID_0, .members = 3}, 0, BLK_READ, 8 * KIB, 24 * KIB, 3, 0},
};

Test(volume_cost, requests_to_members)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(costs); i++) {
        const struct cost_case *c = &costs[i];
        struct bench *b = open_spec(&c->layout, c->absent);
        bench_fill(b);
        struct bench_counts before = bench_counts(b);
        cr_expect_eq(bench_io(b, c->op, 0, c->off, c->len), BLK_OK, "%s", c->what);
        testloop_run(b->t);
        struct bench_counts after = bench_counts(b);
        cr_expect_eq(after.reads - before.reads, c->reads, "%s: %u reads", c->what,
                     (unsigned)(after.reads - before.reads));
        cr_expect_eq(after.writes - before.writes, c->writes, "%s: %u writes", c->what,
                     (unsigned)(after.writes - before.writes));
        bench_check_contents(b);
        bench_check_redundancy(b);
        bench_close(b);
    }
}

Test(volume_cost, fua_goes_to_every_member_written_and_flush_to_all)
{
    struct bench *b = open_spec(&raid5, 0);
    cr_expect_eq(bench_io(b, BLK_WRITE, BLK_FUA, 0, 4096), BLK_OK);
    cr_expect_eq(bench_counts(b).fuas, 2);
    cr_expect_eq(bench_io(b, BLK_WRITE_ZEROES, BLK_FUA | BLK_NO_UNMAP, 0, 32 * KIB), BLK_OK);
    cr_expect_eq(bench_counts(b).fuas, 7);
    cr_expect_eq(bench_io(b, BLK_FLUSH, 0, 0, 0), BLK_OK);
    cr_expect_eq(bench_counts(b).flushes, 5);
    bench_close(b);
}

struct writer {
    struct blk_req req;
    struct page *page;
    bool over;
};

static void writer_done(struct blk_req *req)
{
    container_of(req, struct writer, req)->over = true;
}

Test(volume_cost, no_member_is_written_before_the_array_is_dirty)
{
    static const struct layout_spec specs[] = {
        R5, {.level = RAID_1, .members = 2}, {.level = RAID_0, .members = 2}, {.level = RAID_6, .members = 4}};
    for (unsigned i = 0; i < ARRAY_LENGTH(specs); i++) {
        struct bench *b = open_spec(&specs[i], 0);
        struct writer w = {.req = {.op = BLK_WRITE, .len = 4096, .pages = &w.page, .done = writer_done}};
        cr_assert(page_pool_get(b->t->loop.pages, &w.page, 1));
        b->never_dirty = true;
        blk_submit(b->dev, &w.req);
        testloop_run(b->t);
        cr_expect_not(w.over);
        cr_expect_eq(bench_counts(b).writes, 0);
        b->never_dirty = false;
        timer_start(&b->t->loop, &b->dirty_timer, 1000);
        testloop_run(b->t);
        cr_expect(w.over && w.req.status == BLK_OK);
        cr_expect_gt(bench_counts(b).writes, 0);
        page_put(w.page);
        bench_close(b);
    }
}

Test(volume_cost, a_device_that_cannot_write_zeroes_is_written_zeroes)
{
    static const struct layout_spec specs[] = {R5, {.level = RAID_1, .members = 2}, {.level = RAID_JBOD, .members = 1}};
    for (unsigned i = 0; i < ARRAY_LENGTH(specs); i++) {
        struct bench *b = open_spec(&specs[i], 0);
        bench_fill(b);
        struct fault_rule cannot = {.ops = 1 << BLK_WRITE_ZEROES | 1 << BLK_DISCARD, .status = BLK_INVALID};
        for (unsigned slot = 0; slot < specs[i].members; slot++)
            fault_add(b->faults[slot], &cannot);
        cr_expect_eq(bench_io(b, BLK_WRITE_ZEROES, BLK_NO_UNMAP, 0, 64 * KIB), BLK_OK);
        cr_expect_eq(bench_io(b, BLK_DISCARD, 0, 64 * KIB, 32 * KIB), BLK_OK);
        cr_expect_eq(b->errors, 0, "that is no error of the member");
        bench_check_contents(b);
        bench_check_redundancy(b);
        bench_close(b);
    }
}

Test(volume_cost, devices_that_take_short_requests_only_get_short_ones)
{
    static const struct layout_spec specs[] = {{.level = RAID_5, .members = 3, .chunk = 32 * KIB},
                                               {.level = RAID_1, .members = 2, .chunk = 32 * KIB},
                                               {.level = RAID_JBOD, .members = 1, .chunk = 32 * KIB}};
    for (unsigned i = 0; i < ARRAY_LENGTH(specs); i++) {
        struct bench *b = bench_open(&(struct bench_options){.layout = specs[i], .member_max_request = 8 * KIB}, 1);
        bench_fill(b);
        bench_storm(b, 100, 0, 0);
        bench_check_contents(b);
        bench_check_redundancy(b);
        bench_close(b);
    }
}

Test(volume_cost, a_long_discard_does_not_keep_others_waiting)
{
    static const struct layout_spec specs[] = {R5, {.level = RAID_1, .members = 2}, {.level = RAID_0, .members = 2}};
    for (unsigned i = 0; i < ARRAY_LENGTH(specs); i++) {
        struct bench *b = bench_open(&(struct bench_options){.layout = specs[i], .extent = 2 * MIB, .rows_max = 40}, 1);
        bench_fill(b);
        struct writer w = {.req = {.op = BLK_DISCARD, .len = b->dev->info.size, .done = writer_done}};
        blk_submit(b->dev, &w.req);
        uint8_t bytes[512];
        cr_expect_eq(test_io(b->t, b->dev, BLK_READ, 0, b->dev->info.size - 512, bytes, 512), BLK_OK);
        test_fill(bytes, sizeof bytes, 7);
        cr_expect_not(w.over, "the discard is still at work");
        cr_expect(testloop_run_until(b->t, &w.over));
        cr_expect_eq(w.req.status, BLK_OK);
        memset(b->model, 0, b->dev->info.size);
        bench_check_contents(b);
        bench_check_redundancy(b);
        bench_close(b);
    }
}

Test(volume_cost, members_that_cannot_discard)
{
    static const struct layout_spec specs[] = {R5, {.level = RAID_JBOD, .members = 1}};
    for (unsigned i = 0; i < ARRAY_LENGTH(specs); i++) {
        struct bench *b = bench_open(&(struct bench_options){.layout = specs[i], .no_discard = true}, 1);
        cr_expect_eq(b->dev->info.discards, b->layout.redundancy > 0, "the region map can, the members cannot");
        bench_fill(b);
        cr_expect_eq(bench_io(b, BLK_DISCARD, 0, 4096, 64 * KIB), BLK_OK, "answered all the same");
        bench_check_contents(b);
        bench_check_redundancy(b);
        bench_close(b);
    }
}

/* --- which copy --- */

struct reader {
    struct blk_req req;
    struct page *pages[16];
    unsigned slot;
};

static void reader_done(struct blk_req *req)
{
    page_put_all(container_of(req, struct reader, req)->pages, page_count_for(req->off, req->len));
}

/* Submit a read; which member was asked? */
static unsigned reader_submit(struct bench *b, struct reader *r, uint64_t off, uint64_t len)
{
    uint64_t before[BENCH_MEMBERS];
    for (unsigned slot = 0; slot < b->layout.spec.members; slot++)
        before[slot] = b->disks[slot]->reads;
    r->req = (struct blk_req){.op = BLK_READ, .off = off, .len = len, .pages = r->pages, .done = reader_done};
    cr_assert(page_pool_get(b->t->loop.pages, r->pages, page_count_for(off, len)));
    blk_submit(b->dev, &r->req);
    for (unsigned slot = 0; slot < b->layout.spec.members; slot++)
        if (b->disks[slot]->reads != before[slot])
            return slot;
    cr_assert_fail("no member was asked");
    return 0;
}

Test(volume_cost, a_stream_stays_with_its_member_and_others_go_elsewhere)
{
    struct bench *b =
        bench_open(&(struct bench_options){.layout = {.level = RAID_1, .members = 2}, .extent = 1 * MIB}, 1);
    struct reader r[4];
    unsigned first = reader_submit(b, &r[0], 0, 4096);
    cr_expect_eq(reader_submit(b, &r[1], 4096, 4096), first, "a stream goes on where it was");
    cr_expect_eq(reader_submit(b, &r[2], 8192, 4096), first);
    cr_expect_neq(reader_submit(b, &r[3], 512 * KIB, 4096), first, "a stranger goes where the queue is shorter");
    testloop_run(b->t);
    cr_expect_neq(reader_submit(b, &r[0], 520 * KIB, 4096), first, "nobody is busy: the nearer head");
    testloop_run(b->t);
    cr_expect_eq(reader_submit(b, &r[0], 16 * KIB, 4096), first);
    testloop_run(b->t);
    bench_fail(b, first);
    for (unsigned i = 0; i < 4; i++)
        cr_expect_neq(reader_submit(b, &r[i], i * 4096, 4096), first, "never one that is not readable");
    bench_close(b);
}

Test(volume_cost, copies_that_may_differ_are_read_from_the_first_only)
{
    struct bench *b =
        bench_open(&(struct bench_options){.layout = {.level = RAID_1, .members = 3}, .unsynced = true}, 1);
    struct reader r[6];
    for (unsigned i = 0; i < 6; i++)
        cr_expect_eq(reader_submit(b, &r[i], i * 12288, 4096), 0);
    testloop_run(b->t);
    bench_synced(b);
    unsigned asked = 0;
    for (unsigned i = 0; i < 6; i++)
        asked |= 1u << reader_submit(b, &r[i], i * 12288, 4096);
    cr_expect_eq(asked, 7, "all of them have work");
    bench_close(b);
}

Test(volume_cost, a_small_write_to_a_row_not_synced_makes_its_parity_right)
{
    struct bench *b = bench_open(&(struct bench_options){.layout = raid6, .unsynced = true}, 1);
    bench_fill(b);
    memset(bench_chunk(b, 2, 4), 0xee, 8 * KIB);
    memset(bench_chunk(b, 2, 5), 0xdd, 8 * KIB);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, 2 * 32 * KIB, 8 * KIB), BLK_OK);
    bench_check_redundancy(b);
    bench_close(b);
}
