#include <criterion/criterion.h>

#include "core/check.h"
#include "raid/fault.h"
#include "tests/unit/lib/testloop.h"

struct bench {
    struct testloop *t;
    struct memdisk *disk;
    struct blkdev *dev;
    uint8_t bytes[8192];
};

static struct bench bench_open(void)
{
    struct bench b = {.t = testloop_create(64, 5)};
    b.disk = memdisk_create(&b.t->loop, "m0", 1 * MIB, 512);
    b.disk->latency_ns = 1000;
    b.dev = fault_create(&b.t->loop, &b.disk->dev);
    return b;
}

static void bench_close(struct bench *b)
{
    test_close(b->t, b->dev);
    testloop_destroy(b->t);
}

static enum blk_status io(struct bench *b, enum blk_op op, uint64_t off, uint64_t len)
{
    return test_io(b->t, b->dev, op, 0, off, b->bytes, len);
}

Test(fault, without_rules_everything_passes_through)
{
    struct bench b = bench_open();
    uint8_t back[8192];
    test_fill(b.bytes, sizeof b.bytes, 1);
    cr_expect_eq(io(&b, BLK_WRITE, 512, sizeof b.bytes), BLK_OK);
    cr_expect_eq(test_io(b.t, b.dev, BLK_READ, 0, 512, back, sizeof back), BLK_OK);
    cr_expect_arr_eq(back, b.bytes, sizeof back);
    cr_expect_eq(io(&b, BLK_FLUSH, 0, 0), BLK_OK);
    cr_expect_eq(b.disk->flushes, 1);
    cr_expect_eq(b.dev->info.size, b.disk->dev.info.size);
    bench_close(&b);
}

Test(fault, a_rule_matches_by_operation_and_range)
{
    struct bench b = bench_open();
    int n = fault_add(b.dev, &(struct fault_rule){.ops = 1 << BLK_READ, .off = 8192, .len = 512, .status = BLK_MEDIA});
    cr_expect_eq(io(&b, BLK_READ, 0, 8192), BLK_OK, "ends before it");
    cr_expect_eq(io(&b, BLK_READ, 8704, 512), BLK_OK, "begins behind it");
    cr_expect_eq(io(&b, BLK_WRITE, 8192, 512), BLK_OK, "another operation");
    cr_expect_eq(io(&b, BLK_READ, 4096, 8192), BLK_MEDIA);
    cr_expect_eq(io(&b, BLK_FLUSH, 0, 0), BLK_OK);
    fault_clear(b.dev, n);
    cr_expect_eq(io(&b, BLK_READ, 4096, 8192), BLK_OK);
    bench_close(&b);
}

struct held {
    struct blk_req req;
    struct page *page;
    bool over;
};

static void held_done(struct blk_req *req)
{
    container_of(req, struct held, req)->over = true;
}

static void held_submit(struct bench *b, struct held *h, uint64_t off, uint64_t len)
{
    *h = (struct held){.req = {.op = BLK_READ, .off = off, .len = len, .done = held_done}};
    cr_assert(page_pool_get(b->t->loop.pages, &h->page, 1));
    h->req.pages = &h->page;
    blk_submit(b->dev, &h->req);
}

Test(fault, a_media_error_names_the_first_bad_byte)
{
    struct bench b = bench_open();
    struct held h;
    fault_add(b.dev, &(struct fault_rule){.off = 1024, .len = 512, .status = BLK_MEDIA});
    held_submit(&b, &h, 512, 2048);
    testloop_run(b.t);
    cr_expect_eq(h.req.status, BLK_MEDIA);
    cr_expect_eq(h.req.bad_off, 1024);
    page_put(h.page);
    bench_close(&b);
}

Test(fault, skip_and_count_choose_which_matches_fail)
{
    struct bench b = bench_open();
    fault_add(b.dev, &(struct fault_rule){.ops = 1 << BLK_READ, .status = BLK_TIMEOUT, .skip = 2, .count = 2});
    static const enum blk_status expected[] = {BLK_OK, BLK_OK, BLK_TIMEOUT, BLK_TIMEOUT, BLK_OK, BLK_OK};
    for (unsigned i = 0; i < ARRAY_LENGTH(expected); i++)
        cr_expect_eq(io(&b, BLK_READ, 0, 512), expected[i], "read %u", i);
    bench_close(&b);
}

Test(fault, at_most_16_rules_are_in_force)
{
    struct bench b = bench_open();
    for (int i = 0; i < 16; i++)
        cr_expect_eq(fault_add(b.dev, &(struct fault_rule){.ops = 1 << BLK_DISCARD, .status = BLK_GONE}), i);
    cr_expect_eq(fault_add(b.dev, &(struct fault_rule){.status = BLK_GONE}), -1);
    fault_clear(b.dev, 7);
    cr_expect_eq(fault_add(b.dev, &(struct fault_rule){.status = BLK_GONE}), 7);
    cr_expect_eq(io(&b, BLK_READ, 0, 512), BLK_GONE);
    fault_clear(b.dev, -1);
    cr_expect_eq(io(&b, BLK_READ, 0, 512), BLK_OK);
    bench_close(&b);
}

Test(fault, writing_heals_a_media_error)
{
    struct bench b = bench_open();
    fault_add(b.dev, &(struct fault_rule){.off = 4096, .len = 1024, .status = BLK_MEDIA, .until_written = true});
    cr_expect_eq(io(&b, BLK_READ, 4096, 512), BLK_MEDIA);
    cr_expect_eq(io(&b, BLK_WRITE, 4096, 512), BLK_OK, "its first half");
    cr_expect_eq(io(&b, BLK_READ, 4096, 512), BLK_OK);
    cr_expect_eq(io(&b, BLK_READ, 4608, 512), BLK_MEDIA);
    cr_expect_eq(io(&b, BLK_WRITE_ZEROES, 0, 8192), BLK_OK);
    fault_add(b.dev, &(struct fault_rule){.off = 4096, .len = 1024, .status = BLK_MEDIA, .until_written = true});
    cr_expect_eq(io(&b, BLK_WRITE, 4608, 1024), BLK_OK, "its second half");
    cr_expect_eq(io(&b, BLK_READ, 4608, 512), BLK_OK);
    cr_expect_eq(io(&b, BLK_READ, 4096, 512), BLK_MEDIA);
    cr_expect_eq(io(&b, BLK_WRITE, 4096, 512), BLK_OK);
    cr_expect_eq(io(&b, BLK_READ, 0, 8192), BLK_OK);
    bench_close(&b);
}

Test(fault, a_delay_slows_down_and_harms_nothing)
{
    struct bench b = bench_open();
    fault_add(b.dev, &(struct fault_rule){.status = BLK_OK, .delay_ns = 5000000, .count = 1});
    uint64_t start = b.t->loop.now_ns;
    test_fill(b.bytes, 512, 9);
    cr_expect_eq(io(&b, BLK_WRITE, 0, 512), BLK_OK);
    cr_expect_geq(b.t->loop.now_ns - start, 5000000);
    cr_expect_arr_eq(b.disk->bytes, b.bytes, 512);
    start = b.t->loop.now_ns;
    cr_expect_eq(io(&b, BLK_READ, 0, 512), BLK_OK);
    cr_expect_lt(b.t->loop.now_ns - start, 5000000);
    fault_add(b.dev, &(struct fault_rule){.status = BLK_TIMEOUT, .delay_ns = 7000000, .count = 1});
    start = b.t->loop.now_ns;
    cr_expect_eq(io(&b, BLK_READ, 0, 512), BLK_TIMEOUT);
    cr_expect_geq(b.t->loop.now_ns - start, 7000000);
    bench_close(&b);
}

Test(fault, kill_answers_gone_also_what_is_in_flight_and_delayed)
{
    struct bench b = bench_open();
    struct held delayed, below;
    fault_add(b.dev, &(struct fault_rule){.off = 0, .len = 512, .status = BLK_OK, .delay_ns = 1000000000});
    held_submit(&b, &delayed, 0, 512);
    held_submit(&b, &below, 4096, 512);
    fault_kill(b.dev);
    testloop_run_ready(b.t);
    cr_expect(delayed.over && delayed.req.status == BLK_GONE, "a delayed request is answered at once");
    cr_expect_not(below.over, "its pages are lent to the disk");
    testloop_run(b.t);
    cr_expect(below.over && below.req.status == BLK_GONE);
    cr_expect_eq(io(&b, BLK_WRITE, 0, 512), BLK_GONE);
    cr_expect_eq(io(&b, BLK_FLUSH, 0, 0), BLK_GONE);
    fault_revive(b.dev);
    cr_expect_eq(io(&b, BLK_WRITE, 4096, 512), BLK_OK);
    page_put(delayed.page);
    page_put(below.page);
    bench_close(&b);
}

struct counter {
    struct blk_watcher watcher;
    unsigned resized;
};

static void count_event(struct blk_watcher *watcher, struct blkdev *dev, enum blk_event event)
{
    struct counter *counter = container_of(watcher, struct counter, watcher);
    counter->resized += event == BLK_EVENT_RESIZED && dev->info.size == 2 * MIB;
}

Test(fault, events_from_below_pass_through)
{
    struct bench b = bench_open();
    struct counter counter = {.watcher.event = count_event};
    blk_watch(b.dev, &counter.watcher);
    b.disk->dev.info.size = 2 * MIB;
    blk_notify(&b.disk->dev, BLK_EVENT_RESIZED);
    cr_expect_eq(counter.resized, 1);
    bench_close(&b);
}

Test(fault, more_requests_than_contexts_wait_in_line)
{
    enum { N = 1500 };
    struct bench b = bench_open();
    static struct held held[N];
    struct page *page;
    cr_assert(page_pool_get(b.t->loop.pages, &page, 1));
    for (unsigned i = 0; i < N; i++) {
        held[i] = (struct held){.page = page};
        held[i].req =
            (struct blk_req){.op = BLK_WRITE, .off = i * 512, .len = 512, .pages = &held[i].page, .done = held_done};
        blk_submit(b.dev, &held[i].req);
    }
    testloop_run(b.t);
    for (unsigned i = 0; i < N; i++)
        cr_expect(held[i].over && held[i].req.status == BLK_OK, "request %u", i);
    cr_expect_eq(b.disk->writes, N);
    page_put(page);
    bench_close(&b);
}
