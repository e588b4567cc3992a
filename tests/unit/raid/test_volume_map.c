/* Volumes whose rows were never written, on disks full of garbage: what is read, what is written, what it costs. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "tests/unit/raid/volbench.h"

#define R5                                                                                                             \
    {                                                                                                                  \
        .level = RAID_5, .members = 5, .rotation = ROTATE_LEFT_SYMMETRIC                                               \
    }
#define R6                                                                                                             \
    {                                                                                                                  \
        .level = RAID_6, .members = 6, .rotation = ROTATE_LEFT_SYMMETRIC                                               \
    }

static const struct layout_spec shapes[] = {
    R5,
    R6,
    {.level = RAID_3, .members = 4},
    {.level = RAID_TP, .members = 7, .rotation = ROTATE_LEFT_SYMMETRIC},
    {.level = RAID_1, .members = 2},
    {.level = RAID_1, .members = 3},
    {.level = RAID_10, .members = 4, .copies = 2},
    {.level = RAID_1E, .members = 5, .copies = 2},
    {.level = RAID_50, .members = 6, .spans = 2, .rotation = ROTATE_LEFT_SYMMETRIC},
    {.level = RAID_5, .members = 3, .rotation = ROTATE_LEFT_SYMMETRIC, .chunk = 2 * MIB},
    {.level = RAID_1, .members = 2, .chunk = 8 * MIB},
    {.level = RAID_6, .members = 8, .chunk = 1 * MIB, .rotation = ROTATE_LEFT_SYMMETRIC},
};

static struct bench *open_unwritten(const struct layout_spec *spec, uint64_t absent, uint64_t seed)
{
    struct bench_options o = {.layout = *spec, .absent = absent, .unwritten = true};
    if (spec->chunk > 64 * KIB)
        o.extent = 2 * spec->chunk;
    return bench_open(&o, seed);
}

static uint64_t requests(const struct bench *b)
{
    struct bench_counts c = bench_counts(b);
    return c.reads + c.writes + c.flushes;
}

Test(volume_map, what_was_never_written_reads_as_zeroes_and_asks_nobody)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++)
        for (uint64_t absent = 0; absent < 2; absent++) {
            struct bench *b = open_unwritten(&shapes[shape], absent, 1);
            bench_check_contents(b);
            cr_expect_eq(bench_io(b, BLK_READ, 0, 512, 3 * 512), BLK_OK);
            cr_expect_eq(bench_io(b, BLK_DISCARD, 0, 512, b->dev->info.size - 512), BLK_OK);
            cr_expect_eq(bench_io(b, BLK_WRITE_ZEROES, BLK_FUA, 0, b->dev->info.size), BLK_OK);
            cr_expect_eq(requests(b), 0, "%s", raid_level_name(shapes[shape].level));
            cr_expect_eq(b->map_commits, 0);
            bench_close(b);
        }
}

Test(volume_map, storms_on_unwritten_volumes_never_show_garbage)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++)
        for (uint64_t seed = 1; seed <= 6; seed++) {
            struct bench *b = open_unwritten(&shapes[shape], seed % 3 == 2, seed);
            for (unsigned round = 0; round < 4; round++) {
                bench_storm(b, 60, 0, 61);
                bench_check_contents(b);
                bench_check_redundancy(b);
            }
            bench_close(b);
        }
}

Test(volume_map, members_that_die_in_a_storm_take_no_zeroes_along)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++)
        for (uint64_t seed = 1; seed <= 6; seed++) {
            struct bench *b = open_unwritten(&shapes[shape], 0, seed);
            bench_storm(b, 120, 1u << seed % b->layout.spec.members, 60);
            bench_check_contents(b);
            bench_check_redundancy(b);
            bench_close(b);
        }
}

struct cost_case {
    const char *what;
    struct layout_spec layout;
    uint64_t absent;
    enum blk_op op;
    unsigned flags;
    uint64_t off, len;
    uint64_t writes;
    unsigned commits, flushes;
    enum region_state state; /* of row 1, afterwards */
};

static const struct cost_case firsts[] = {
    {"a page", R5, 0, BLK_WRITE, 0, 36 * KIB, 4096, 2 * 2 + 3, 1, 1, REGION_DIRTY},
    {"a chunk", R5, 0, BLK_WRITE, 0, 40 * KIB, 8 * KIB, 5, 1, 1, REGION_DIRTY},
    {"a row", R5, 0, BLK_WRITE, 0, 32 * KIB, 32 * KIB, 5, 1, 1, REGION_DIRTY},
    {"a row, no member 0", R5, 1, BLK_WRITE, 0, 32 * KIB, 32 * KIB, 4, 1, 1, REGION_DIRTY},
    {"the middle of a mirrored chunk",
     {.level = RAID_1, .members = 2},
     0,
     BLK_WRITE,
     0,
     10 * KIB,
     4096,
     6,
     1,
     1,
     REGION_DIRTY},
    {"zeroes that want the space", R5, 0, BLK_WRITE_ZEROES, BLK_NO_UNMAP, 32 * KIB, 32 * KIB, 5, 1, 1, REGION_DIRTY},
    {"some zeroes that want the space", R5, 0, BLK_WRITE_ZEROES, BLK_NO_UNMAP, 36 * KIB, 4096, 2 * 2 + 3, 1, 1,
     REGION_DIRTY},
    {"zeroes", R5, 0, BLK_WRITE_ZEROES, 0, 32 * KIB, 32 * KIB, 0, 0, 0, REGION_UNWRITTEN},
};

Test(volume_map, first_writes_fill_the_row_read_nothing_and_flush_before_the_map_says_so)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(firsts); i++) {
        const struct cost_case *c = &firsts[i];
        struct bench *b = open_unwritten(&c->layout, c->absent, 3);
        cr_expect_eq(bench_io(b, c->op, c->flags, c->off, c->len), BLK_OK, "%s", c->what);
        struct bench_counts counts = bench_counts(b);
        cr_expect_eq(counts.reads, 0, "%s", c->what);
        cr_expect_eq(counts.writes, c->writes, "%s: %u writes", c->what, (unsigned)counts.writes);
        cr_expect(b->map_commits == c->commits && b->map_flushes == c->flushes, "%s: %u commits", c->what,
                  b->map_commits);
        cr_expect_eq(region_get(&b->map, 1), c->state, "%s", c->what);
        bench_check_contents(b);
        bench_check_redundancy(b);
        bench_close(b);
    }
}

Test(volume_map, writes_to_a_dirty_row_cost_what_they_always_did)
{
    struct bench *b = bench_open(&(struct bench_options){.layout = R5}, 3);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, 4096, 4096), BLK_OK);
    cr_expect_eq(b->map_commits, 1, "a clean row becomes dirty");
    cr_expect_eq(b->map_flushes, 0);
    struct bench_counts before = bench_counts(b);
    for (unsigned i = 0; i < 10; i++)
        cr_expect_eq(bench_io(b, BLK_WRITE, 0, i * 512, 512), BLK_OK);
    struct bench_counts after = bench_counts(b);
    cr_expect_eq(b->map_commits, 1);
    cr_expect_eq(after.writes - before.writes, 20);
    cr_expect_eq(after.reads - before.reads, 20);
    bench_check_redundancy(b);
    bench_close(b);
}

struct shot {
    struct blk_req req;
    struct page *page;
    bool over;
};

static void shot_done(struct blk_req *req)
{
    container_of(req, struct shot, req)->over = true;
}

Test(volume_map, a_clean_row_is_written_only_when_the_map_says_dirty)
{
    static const struct layout_spec specs[] = {R5, {.level = RAID_1, .members = 2}};
    for (unsigned i = 0; i < ARRAY_LENGTH(specs); i++) {
        struct bench *b = bench_open(&(struct bench_options){.layout = specs[i]}, 3);
        bench_io(b, BLK_WRITE, 0, 0, 512); /* the array is dirty */
        struct shot s = {.req = {.op = BLK_WRITE, .off = 64 * KIB, .len = 4096, .pages = &s.page, .done = shot_done}};
        cr_assert(page_pool_get(b->t->loop.pages, &s.page, 1));
        memset(s.page->data, 0, 4096);
        uint64_t writes = bench_counts(b).writes;
        unsigned commits = b->map_commits;
        blk_submit(b->dev, &s.req);
        while (b->map_commits == commits) {
            cr_assert_eq(bench_counts(b).writes, writes, "not before");
            b->t->loop.now_ns = MAX(b->t->loop.now_ns, loop_next_timer_ns(&b->t->loop));
            loop_run(&b->t->loop, 1);
        }
        cr_assert(testloop_run_until(b->t, &s.over));
        cr_expect_eq(s.req.status, BLK_OK);
        page_put(s.page);
        bench_close(b);
    }
}

Test(volume_map, many_first_writes_share_a_commit)
{
    struct bench *b = open_unwritten(&shapes[0], 0, 3);
    struct shot shots[12];
    for (unsigned i = 0; i < ARRAY_LENGTH(shots); i++) {
        shots[i] = (struct shot){
            .req = {.op = BLK_WRITE, .off = i * 32 * KIB, .len = 4096, .pages = &shots[i].page, .done = shot_done}};
        cr_assert(page_pool_get(b->t->loop.pages, &shots[i].page, 1));
        test_fill(b->model + i * 32 * KIB, 4096, i);
        memcpy(shots[i].page->data, b->model + i * 32 * KIB, 4096);
        blk_submit(b->dev, &shots[i].req);
    }
    testloop_run(b->t);
    for (unsigned i = 0; i < ARRAY_LENGTH(shots); i++) {
        cr_expect(shots[i].over && shots[i].req.status == BLK_OK);
        page_put(shots[i].page);
    }
    cr_expect_leq(b->map_commits, 2, "%u", b->map_commits);
    bench_check_contents(b);
    bench_check_redundancy(b);
    bench_close(b);
}

Test(volume_map, a_discard_of_whole_rows_gives_them_back_and_tells_the_members)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++) {
        struct bench *b = open_unwritten(&shapes[shape], 0, 3);
        uint64_t row = b->layout.row_data, rows = b->layout.rows;
        bench_fill(b);
        cr_expect_eq(b->map.counts[REGION_DIRTY], rows);
        struct bench_counts before = bench_counts(b);
        uint64_t discards = b->disks[0]->dev.counters.requests[BLK_DISCARD];
        cr_expect_eq(bench_io(b, BLK_DISCARD, 0, row / 2, (rows - 1) * row), BLK_OK);
        cr_expect_eq(b->map.counts[REGION_UNWRITTEN], rows - 2, "%s", raid_level_name(shapes[shape].level));
        cr_expect(rows == 2 || b->disks[0]->dev.counters.requests[BLK_DISCARD] > discards);
        cr_expect_eq(bench_counts(b).flushes, before.flushes);
        bench_check_contents(b);
        bench_storm(b, 60, 0, 61);
        bench_check_contents(b);
        bench_check_redundancy(b);
        bench_close(b);
    }
}

Test(volume_map, zeroes_wait_for_a_discard_of_the_same_row_that_is_not_durable_yet)
{
    struct bench *b = open_unwritten(&shapes[0], 0, 3);
    bench_fill(b);
    struct shot discard = {.req = {.op = BLK_DISCARD, .len = 64 * KIB, .done = shot_done}};
    struct shot zeroes = {.req = {.op = BLK_WRITE_ZEROES, .flags = BLK_FUA, .len = 64 * KIB, .done = shot_done}};
    region_set(&b->map, 0, REGION_CLEAN);
    blk_submit(b->dev, &discard.req);
    testloop_run_ready(b->t);
    region_set(&b->map, 0, REGION_UNWRITTEN); /* in memory it is at once */
    blk_submit(b->dev, &zeroes.req);
    testloop_run_ready(b->t);
    cr_expect_not(zeroes.over);
    region_set(&b->map, 0, REGION_CLEAN);
    cr_assert(testloop_run_until(b->t, &zeroes.over));
    cr_expect(discard.over && b->map_commits > 0);
    testloop_run(b->t);
    memset(b->model, 0, 64 * KIB);
    bench_check_contents(b);
    bench_close(b);
}

/* Found by simulation: a disk may give anything for a block that it has let go, and the read came first. */
Test(volume_map, members_are_not_told_of_a_discard_while_an_older_read_is_at_work)
{
    for (unsigned slow = 0; slow < 2; slow++) {
        struct bench *b = open_unwritten(&shapes[0], 0, 3);
        bench_fill(b);
        struct fault_rule late = {.ops = 1u << BLK_READ, .delay_ns = 100000000};
        for (unsigned slot = 0; slot < 5 && slow; slot++)
            fault_add(b->faults[slot], &late);
        struct shot read = {.req = {.op = BLK_READ, .off = 36 * KIB, .len = 4096, .pages = &read.page}};
        read.req.done = shot_done;
        cr_assert(page_pool_get(b->t->loop.pages, &read.page, 1));
        blk_submit(b->dev, &read.req);
        if (!slow)
            testloop_run(b->t);
        uint64_t before = b->disks[0]->dev.counters.requests[BLK_DISCARD];
        cr_expect_eq(bench_io(b, BLK_DISCARD, 0, 32 * KIB, 32 * KIB), BLK_OK);
        cr_expect_eq(b->disks[0]->dev.counters.requests[BLK_DISCARD] - before, slow ? 0 : 1);
        cr_assert(testloop_run_until(b->t, &read.over));
        page_put(read.page);
        bench_check_contents(b);
        bench_close(b);
    }
}

Test(volume_map, members_that_cannot_or_will_not_discard_do_not_matter)
{
    for (unsigned refuse = 0; refuse < 2; refuse++) {
        struct bench *b =
            bench_open(&(struct bench_options){.layout = shapes[1], .unwritten = true, .no_discard = refuse == 0}, 3);
        struct fault_rule rule = {.ops = 1u << BLK_DISCARD, .status = BLK_MEDIA};
        for (unsigned slot = 0; slot < 6; slot++)
            fault_add(b->faults[slot], &rule);
        bench_fill(b);
        uint64_t writes = bench_counts(b).writes;
        cr_expect_eq(bench_io(b, BLK_DISCARD, 0, 0, 4 * b->layout.row_data), BLK_OK);
        cr_expect_eq(bench_counts(b).writes, writes);
        cr_expect_eq(b->errors, 0, "it was advice");
        cr_expect_eq(b->map.counts[REGION_UNWRITTEN], 4);
        bench_check_contents(b);
        bench_close(b);
    }
}

/* A discard that was given up may still be carried out, after the row was written again. */
Test(volume_map, a_member_that_leaves_a_discard_unanswered_is_told_of)
{
    struct bench *b = bench_open(&(struct bench_options){.layout = shapes[1], .unwritten = true}, 3);
    fault_add(b->faults[1], &(struct fault_rule){.ops = 1u << BLK_DISCARD, .status = BLK_TIMEOUT});
    bench_fill(b);
    cr_expect_eq(bench_io(b, BLK_DISCARD, 0, 0, b->layout.row_data), BLK_OK);
    cr_expect_gt(b->errors, 0);
    bench_close(b);
}

Test(volume_map, jobs_pass_by_rows_that_were_never_written)
{
    struct bench *b = open_unwritten(&shapes[1], 0, 3);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, 2 * b->layout.row_data, 4096), BLK_OK);
    bench_fail(b, 1);
    bench_rebuild(b, 1);
    for (uint64_t row = 0; row < b->layout.rows; row++) {
        uint64_t before = requests(b);
        bool changed;
        cr_expect_eq(bench_job(b, ROW_REBUILD, row, &changed), BLK_OK);
        cr_expect_eq(changed, row == 2);
        cr_expect_eq(requests(b) > before, row == 2);
        before = requests(b);
        cr_expect_eq(bench_job(b, ROW_RESYNC, row, &changed), BLK_OK);
        cr_expect_eq(requests(b) > before, row == 2);
    }
    bench_online(b, 1);
    bench_check_contents(b);
    bench_check_redundancy(b);
    bench_close(b);
}

Test(volume_map, a_resync_makes_a_suspect_row_dirty)
{
    struct bench *b = bench_open(&(struct bench_options){.layout = shapes[0], .unsynced = true}, 3);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, 0, 4096), BLK_OK);
    cr_expect_eq(region_get(&b->map, 0), REGION_SUSPECT, "a write does not make all of it right");
    cr_expect_eq(b->map_commits, 0, "on disk it is dirty already");
    cr_expect_eq(bench_job(b, ROW_RESYNC, 0, NULL), BLK_OK);
    cr_expect_eq(region_get(&b->map, 0), REGION_DIRTY);
    cr_expect_eq(region_get(&b->map, 1), REGION_SUSPECT);
    bench_close(b);
}

/* At every moment of a first write a disk joins: it has all of the row, or its rebuild does not pass it by. */
Test(volume_map, a_disk_that_joins_while_a_row_is_filled_gets_all_of_it)
{
    static const unsigned tried[] = {0, 4, 9, 10};
    for (unsigned i = 0; i < ARRAY_LENGTH(tried); i++)
        for (unsigned moment = 0; moment < 40; moment++) {
            struct bench *b = open_unwritten(&shapes[tried[i]], 0, 3);
            uint64_t off = b->layout.row_data - 8192;
            bench_fail(b, 1);
            testloop_run(b->t);
            struct shot s = {.req = {.op = BLK_WRITE, .off = off, .len = 4096, .pages = &s.page, .done = shot_done}};
            cr_assert(page_pool_get(b->t->loop.pages, &s.page, 1));
            test_fill(b->model + off, 4096, 7);
            memcpy(s.page->data, b->model + off, 4096);
            blk_submit(b->dev, &s.req);
            for (unsigned turn = 0; turn < moment && !s.over; turn++) {
                b->t->loop.now_ns =
                    MAX(b->t->loop.now_ns, MIN(loop_next_timer_ns(&b->t->loop), b->t->loop.now_ns + 1000000));
                loop_run(&b->t->loop, 4);
            }
            bench_rebuild(b, 1);
            bool unwritten = region_get(&b->map, 0) == REGION_UNWRITTEN && STAILQ_EMPTY(&b->changes_asked);
            cr_assert(testloop_run_until(b->t, &s.over));
            cr_expect_eq(s.req.status, BLK_OK);
            page_put(s.page);
            if (!unwritten) /* the rebuild would see it */
                cr_expect_eq(bench_job(b, ROW_REBUILD, 0, NULL), BLK_OK);
            bench_online(b, 1);
            bench_check_redundancy(b);
            bench_check_contents(b);
            bench_close(b);
        }
}

struct joining {
    struct timer timer;
    struct bench *b;
    uint64_t before, writes; /* that the members had when it began, and when the disk joined */
};

/* As soon as something has been written. */
static void join(struct timer *timer)
{
    struct joining *joining = container_of(timer, struct joining, timer);
    joining->writes = bench_counts(joining->b).writes;
    if (joining->writes == joining->before)
        timer_start(&joining->b->t->loop, timer, 10000);
    else
        bench_rebuild(joining->b, 1);
}

/* Window by window: who joins behind the first one lacks it, and is rebuilt. */
Test(volume_map, a_disk_that_joins_while_all_of_a_wide_row_is_written_does_not_count_as_given_all_of_it)
{
    for (unsigned late = 0; late < 2; late++) {
        struct bench_options o = {.layout = {.level = RAID_TP, .members = 5, .chunk = 2 * MIB}, .extent = 4 * MIB};
        struct bench *b = bench_open(&o, 3);
        struct joining joining = {.timer.fire = join, .b = b};
        bench_fill(b);
        bench_fail(b, 1);
        testloop_run(b->t);
        b->rows_written = 0;
        joining.before = bench_counts(b).writes;
        if (late)
            timer_start(&b->t->loop, &joining.timer, 10000);
        else
            bench_rebuild(b, 1);
        cr_expect_eq(bench_io(b, BLK_WRITE, 0, 0, b->layout.row_data), BLK_OK);
        if (late)
            cr_assert(joining.writes > joining.before && joining.writes < bench_counts(b).writes, "in between");
        cr_expect_eq(b->rows_written, late ? 0 : 1);
        bench_close(b);
    }
}
