#include <criterion/criterion.h>
#include <string.h>

#include "core/check.h"
#include "raid/fault.h"
#include "raid/patience.h"
#include "tests/unit/lib/testloop.h"

#define MS     1000000ull
#define SECOND (1000 * MS)

enum { LOOP_PAGES = 2048, RESERVE = 600 };

struct bench {
    struct testloop *t;
    struct memdisk *disk;
    struct blkdev *fault, *dev;
};

static struct bench bench_open_with(const struct patience_options *options)
{
    struct bench b = {.t = testloop_create(LOOP_PAGES, 5)};
    b.disk = memdisk_create(&b.t->loop, "m0", 4 * MIB, 512);
    b.disk->latency_ns = 100000;
    test_fill(b.disk->bytes, 4 * MIB, 3);
    b.fault = fault_create(&b.t->loop, &b.disk->dev);
    b.dev = patience_create(&b.t->loop, b.fault, options);
    return b;
}

static struct bench bench_open(void)
{
    return bench_open_with(&(struct patience_options){.reserve = RESERVE});
}

static void bench_close(struct bench *b)
{
    test_close(b->t, b->dev);
    testloop_run(b->t);
    testloop_destroy(b->t);
}

static void slow_down(struct bench *b, unsigned ops, uint64_t delay_ns, uint32_t count)
{
    cr_assert_geq(fault_add(b->fault, &(struct fault_rule){.ops = ops, .delay_ns = delay_ns, .count = count}), 0);
}

struct ask {
    struct blk_req req;
    struct page *pages[260], *brought[260];
    uint32_t count;
    struct testloop *t;
    uint64_t over_ns;
    bool over;
};

static void ask_done(struct blk_req *req)
{
    struct ask *ask = container_of(req, struct ask, req);
    ask->over = true;
    ask->over_ns = ask->t->loop.now_ns;
}

static void ask_start(struct bench *b, struct ask *ask, enum blk_op op, unsigned flags, uint64_t off, uint64_t len)
{
    *ask = (struct ask){.req = {.op = op, .flags = flags, .off = off, .len = len, .done = ask_done}, .t = b->t};
    ask->count = blk_op_has_data(op) ? page_count_for(off, len) : 0;
    if (ask->count > 0) {
        cr_assert(page_pool_get(b->t->loop.pages, ask->pages, ask->count));
        ask->req.pages = ask->pages;
    }
    for (uint32_t i = 0; i < ask->count; i++) {
        memset(ask->pages[i]->data, 0xee, PAGE_BYTES);
        ask->brought[i] = ask->pages[i];
    }
    blk_submit(b->dev, &ask->req);
}

static void ask_put(struct ask *ask)
{
    page_put_all(ask->pages, ask->count);
}

static bool holds(const struct bench *b, struct ask *ask)
{
    uint8_t bytes[MIB];
    pages_copy_out(bytes, ask->pages, ask->req.off % PAGE_BYTES, ask->req.len);
    return memcmp(bytes, b->disk->bytes + ask->req.off, ask->req.len) == 0;
}

static double seconds(const struct ask *ask)
{
    return (double)(ask->over_ns - SECOND) / 1e9;
}

Test(patience, a_disk_that_is_well_is_passed_through)
{
    struct bench b = bench_open();
    static const uint64_t ranges[][2] = {{0, 512},        {512, 512},   {0, 4096},     {3584, 1024},
                                         {512, 12288},    {4096, 8192}, {4096, 4608},  {1536, 1048576},
                                         {1048576, 1536}, {512, 3584},  {8192, 131072}};
    struct ask ask;
    for (unsigned i = 0; i < ARRAY_LENGTH(ranges); i++) {
        ask_start(&b, &ask, BLK_READ, BLK_IMPATIENT, ranges[i][0], ranges[i][1]);
        cr_assert(testloop_run_until(b.t, &ask.over));
        cr_expect_eq(ask.req.status, BLK_OK);
        cr_expect(holds(&b, &ask), "range %u", i);
        uint64_t head = ranges[i][0] % PAGE_BYTES, end = head + ranges[i][1];
        for (uint64_t at = 0; at < head; at++)
            cr_assert_eq(((uint8_t *)ask.pages[0]->data)[at], 0xee, "before range %u", i);
        for (uint64_t at = end; at < (uint64_t)ask.count * PAGE_BYTES; at++)
            cr_assert_eq(((uint8_t *)ask.pages[at / PAGE_BYTES]->data)[at % PAGE_BYTES], 0xee, "behind range %u", i);
        ask_put(&ask);
    }
    uint8_t bytes[5000 / 512 * 512];
    test_fill(bytes, sizeof bytes, 9);
    cr_expect_eq(test_io(b.t, b.dev, BLK_WRITE, BLK_FUA, 1024, bytes, sizeof bytes), BLK_OK);
    cr_expect_arr_eq(b.disk->bytes + 1024, bytes, sizeof bytes);
    cr_expect_eq(b.disk->fuas, 1);
    cr_expect_eq(test_io(b.t, b.dev, BLK_FLUSH, 0, 0, NULL, 0), BLK_OK);
    cr_expect_eq(test_io(b.t, b.dev, BLK_WRITE_ZEROES, 0, 0, NULL, 65536), BLK_OK);
    cr_expect(blk_is_quiet(b.dev));
    bench_close(&b);
}

Test(patience, errors_keep_their_meaning)
{
    struct bench b = bench_open();
    uint8_t bytes[8192];
    fault_add(b.fault, &(struct fault_rule){.ops = 1 << BLK_READ, .off = 5120, .len = 512, .status = BLK_MEDIA});
    struct ask ask;
    ask_start(&b, &ask, BLK_READ, 0, 0, 8192);
    cr_assert(testloop_run_until(b.t, &ask.over));
    cr_expect_eq(ask.req.status, BLK_MEDIA);
    cr_expect_eq(ask.req.bad_off, 5120);
    ask_put(&ask);
    fault_kill(b.fault);
    cr_expect_eq(test_io(b.t, b.dev, BLK_WRITE, 0, 0, bytes, 8192), BLK_GONE);
    bench_close(&b);
}

Test(patience, an_impatient_read_is_answered_at_the_soft_deadline)
{
    for (unsigned rotational = 0; rotational < 2; rotational++) {
        struct bench b = bench_open();
        test_close(b.t, b.dev);
        b.disk = memdisk_create(&b.t->loop, "m0", 4 * MIB, 512);
        b.disk->dev.info.rotational = rotational != 0;
        b.fault = fault_create(&b.t->loop, &b.disk->dev);
        b.dev = patience_create(&b.t->loop, b.fault, &(struct patience_options){.reserve = RESERVE});
        slow_down(&b, 1 << BLK_READ, 60 * SECOND, 2);
        struct ask ask, other;
        uint64_t began = b.t->loop.now_ns;
        ask_start(&b, &ask, BLK_READ, BLK_IMPATIENT, 4096, 8192);
        ask_start(&b, &other, BLK_READ, 0, 4096, 8192);
        cr_assert(testloop_run_until(b.t, &ask.over));
        cr_expect_eq(ask.req.status, BLK_LATE);
        cr_expect_eq(ask.over_ns - began, rotational ? 250 * MS : 50 * MS);
        cr_expect_eq(b.dev->overdue, 1);
        cr_expect_eq(b.dev->in_flight, 1);
        cr_assert(testloop_run_until(b.t, &other.over));
        cr_expect_eq(other.req.status, BLK_TIMEOUT, "this one cannot be had elsewhere");
        cr_expect_eq(other.over_ns - began, 8 * SECOND);
        cr_expect_not(blk_is_quiet(b.dev));
        ask_put(&ask);
        ask_put(&other);
        testloop_run(b.t);
        cr_expect(blk_is_quiet(b.dev), "it has answered in the end");
        bench_close(&b);
    }
}

Test(patience, a_late_answer_touches_no_page_of_the_owner)
{
    static const uint64_t ranges[][2] = {{0, 4096}, {512, 512}, {3584, 9216}, {4096, 65536}, {512, 1048576}};
    for (unsigned i = 0; i < ARRAY_LENGTH(ranges); i++) {
        struct bench b = bench_open();
        slow_down(&b, 1 << BLK_READ, 60 * SECOND, 1);
        struct ask ask;
        ask_start(&b, &ask, BLK_READ, BLK_IMPATIENT, ranges[i][0], ranges[i][1]);
        cr_assert(testloop_run_until(b.t, &ask.over));
        cr_assert_eq(ask.req.status, BLK_LATE);
        uint64_t head = ranges[i][0] % PAGE_BYTES, end = head + ranges[i][1];
        for (uint32_t k = 0; k < ask.count; k++) {
            bool whole = (uint64_t)k * PAGE_BYTES >= head && (uint64_t)(k + 1) * PAGE_BYTES <= end;
            cr_expect_eq(ask.pages[k] != ask.brought[k], whole, "page %u of range %u", k, i);
            cr_expect_eq(ask.pages[k]->refs, 1);
            memset(ask.pages[k]->data, 0x11, PAGE_BYTES); /* what is reconstructed */
        }
        testloop_run(b.t);
        for (uint64_t at = 0; at < (uint64_t)ask.count * PAGE_BYTES; at++)
            cr_assert_eq(((uint8_t *)ask.pages[at / PAGE_BYTES]->data)[at % PAGE_BYTES], 0x11, "range %u, %zu", i,
                         (size_t)at);
        ask_put(&ask);
        cr_expect_eq(page_pool_free(b.t->loop.pages), LOOP_PAGES, "the pages that were late are back");
        bench_close(&b);
    }
}

Test(patience, one_read_in_twenty_may_be_had_elsewhere)
{
    struct bench b = bench_open();
    enum { READS = 40 };
    struct ask asks[READS];
    slow_down(&b, 1 << BLK_READ, 5 * SECOND, READS);
    for (unsigned i = 0; i < READS; i++)
        ask_start(&b, &asks[i], BLK_READ, BLK_IMPATIENT, i * 4096, 4096);
    testloop_run(b.t);
    unsigned late = 0;
    for (unsigned i = 0; i < READS; i++) {
        late += asks[i].req.status == BLK_LATE;
        cr_expect(asks[i].req.status == BLK_LATE || (asks[i].req.status == BLK_OK && holds(&b, &asks[i])));
        ask_put(&asks[i]);
    }
    cr_expect_eq(late, 8, "what was saved up, and no more: %u", late);
    for (unsigned i = 0; i < 20; i++) {
        ask_start(&b, &asks[0], BLK_READ, 0, 0, 4096);
        cr_assert(testloop_run_until(b.t, &asks[0].over));
        ask_put(&asks[0]);
    }
    slow_down(&b, 1 << BLK_READ, 5 * SECOND, 2);
    for (unsigned i = 0; i < 2; i++)
        ask_start(&b, &asks[i], BLK_READ, BLK_IMPATIENT, 0, 4096);
    testloop_run(b.t);
    cr_expect_eq(asks[0].req.status, BLK_LATE, "twenty reads have earned one");
    cr_expect_eq(asks[1].req.status, BLK_OK);
    ask_put(&asks[0]);
    ask_put(&asks[1]);
    cr_expect_eq(patience_counters(b.dev)->late, 9);
    bench_close(&b);
}

Test(patience, reads_that_are_late_leave_pages_for_those_who_come_back)
{
    struct bench b = bench_open_with(&(struct patience_options){.reserve = 400});
    enum { READS = 3 };
    struct ask asks[READS], again;
    slow_down(&b, 1 << BLK_READ, 5 * SECOND, READS);
    for (unsigned i = 0; i < READS; i++)
        ask_start(&b, &asks[i], BLK_READ, BLK_IMPATIENT, i * MIB, 128 * PAGE_BYTES);
    testloop_run(b.t);
    for (unsigned i = 0; i < READS; i++)
        cr_expect_eq(asks[i].req.status, i == 0 ? BLK_LATE : BLK_OK, "read %u", i);
    uint64_t began = b.t->loop.now_ns;
    ask_start(&b, &again, BLK_READ, 0, 0, MIB); /* by who holds the pages: nobody else had the bytes */
    cr_assert(testloop_run_until(b.t, &again.over));
    cr_expect_eq(again.req.status, BLK_OK);
    cr_expect(holds(&b, &again));
    cr_expect_lt(again.over_ns - began, 10 * MS);
    for (unsigned i = 0; i < READS; i++)
        ask_put(&asks[i]);
    ask_put(&again);
    testloop_run(b.t);
    bench_close(&b);
}

Test(patience, the_soft_deadline_follows_the_disk)
{
    struct bench b = bench_open();
    b.disk->latency_ns = 20 * MS;
    struct ask ask;
    for (unsigned i = 0; i < 64; i++) {
        ask_start(&b, &ask, BLK_READ, 0, 0, 4096);
        cr_assert(testloop_run_until(b.t, &ask.over));
        ask_put(&ask);
    }
    const struct patience_counters *counters = patience_counters(b.dev);
    cr_expect(counters->p99_ns >= 20 * MS && counters->p99_ns < 25 * MS, "%zu", (size_t)counters->p99_ns);
    cr_expect_eq(counters->soft_ns, 10 * counters->p99_ns);
    bench_close(&b);
}

Test(patience, everything_is_answered_at_the_hard_deadline)
{
    struct bench b = bench_open();
    slow_down(&b, 0, 3600 * SECOND, 0);
    struct ask asks[5];
    static const enum blk_op ops[] = {BLK_READ, BLK_WRITE, BLK_FLUSH, BLK_WRITE_ZEROES, BLK_DISCARD};
    for (unsigned i = 0; i < ARRAY_LENGTH(ops); i++)
        ask_start(&b, &asks[i], ops[i], 0, 0, ops[i] == BLK_FLUSH ? 0 : 65536);
    for (unsigned i = 0; i < ARRAY_LENGTH(ops); i++) {
        cr_assert(testloop_run_until(b.t, &asks[i].over));
        cr_expect_eq(asks[i].req.status, BLK_TIMEOUT, "%s", blk_op_name(ops[i]));
        cr_expect(seconds(&asks[i]) >= 8 && seconds(&asks[i]) < 8.1, "%s after %f s", blk_op_name(ops[i]),
                  seconds(&asks[i]));
    }
    cr_expect_eq(b.dev->in_flight, 0);
    cr_expect_eq(b.dev->overdue, 5);
    cr_expect_eq(patience_counters(b.dev)->timed_out, 5);
    uint64_t mine = page_pool_free(b.t->loop.pages);
    for (unsigned i = 0; i < ARRAY_LENGTH(ops); i++)
        ask_put(&asks[i]);
    cr_expect_eq(page_pool_free(b.t->loop.pages), mine, "the disk may still use them: 16 to read from, 16 to fill");
    testloop_run(b.t);
    cr_expect_eq(page_pool_free(b.t->loop.pages), LOOP_PAGES);
    cr_expect(blk_is_quiet(b.dev));
    bench_close(&b);
}

Test(patience, zeroes_take_time_by_their_length)
{
    struct bench b = bench_open();
    slow_down(&b, 0, 8100 * MS, 1);
    struct ask ask;
    ask_start(&b, &ask, BLK_WRITE_ZEROES, 0, 0, 4 * MIB);
    testloop_run(b.t);
    cr_expect_eq(ask.req.status, BLK_OK);
    bench_close(&b);
}

Test(patience, requests_wait_in_order_when_contexts_or_pages_run_out)
{
    static const struct patience_options options[] = {{.contexts = 2, .reserve = RESERVE}, {.reserve = 257}};
    for (unsigned k = 0; k < ARRAY_LENGTH(options); k++) {
        struct bench b = bench_open_with(&options[k]);
        struct ask asks[6];
        uint64_t len = k == 0 ? 4096 : MIB, before = 0;
        for (unsigned i = 0; i < ARRAY_LENGTH(asks); i++)
            ask_start(&b, &asks[i], BLK_READ, BLK_IMPATIENT, i * 512, len);
        testloop_run(b.t);
        for (unsigned i = 0; i < ARRAY_LENGTH(asks); i++) {
            cr_expect_eq(asks[i].req.status, BLK_OK);
            cr_expect(holds(&b, &asks[i]));
            cr_expect_geq(asks[i].over_ns, before);
            before = asks[i].over_ns;
            ask_put(&asks[i]);
        }
        cr_expect_geq(before - SECOND, 300000, "three turns at least");
        bench_close(&b);
    }
}

Test(patience, who_waits_in_line_waits_no_longer)
{
    struct bench b = bench_open_with(&(struct patience_options){.contexts = 1, .reserve = RESERVE});
    slow_down(&b, 0, 100 * SECOND, 1);
    struct ask asks[3];
    for (unsigned i = 0; i < ARRAY_LENGTH(asks); i++)
        ask_start(&b, &asks[i], i == 1 ? BLK_WRITE : BLK_READ, 0, 0, 4096);
    for (unsigned i = 0; i < ARRAY_LENGTH(asks); i++) {
        cr_assert(testloop_run_until(b.t, &asks[i].over));
        cr_expect_eq(asks[i].req.status, BLK_TIMEOUT);
        cr_expect(seconds(&asks[i]) >= 8 && seconds(&asks[i]) < 8.2);
        ask_put(&asks[i]);
    }
    cr_expect_eq(b.dev->overdue, 1, "the others never reached the disk");
    testloop_run(b.t);
    cr_expect_eq(b.disk->writes, 0);
    bench_close(&b);
}

static void closed_run(struct task *task)
{
    task->run = NULL;
}

Test(patience, closing_ends_though_the_disk_hangs)
{
    struct bench b = bench_open();
    slow_down(&b, 1 << BLK_WRITE, 1000 * SECOND, 1);
    struct ask ask;
    struct page_pool *mine = page_pool_create(16);
    ask = (struct ask){.req = {.op = BLK_WRITE, .off = 0, .len = 8192, .done = ask_done}, .t = b.t, .count = 2};
    cr_assert(page_pool_get(mine, ask.pages, 2));
    test_fill(ask.pages[0]->data, PAGE_BYTES, 1);
    test_fill(ask.pages[1]->data, PAGE_BYTES, 2);
    ask.req.pages = ask.pages;
    blk_submit(b.dev, &ask.req);
    cr_assert(testloop_run_until(b.t, &ask.over));
    ask_put(&ask);
    page_pool_retire(mine); /* who owned the pages is gone */
    struct task closed = {.run = closed_run};
    uint64_t began = b.t->loop.now_ns;
    blk_close(b.dev, &closed);
    while (closed.run != NULL) {
        b.t->loop.now_ns = loop_next_timer_ns(&b.t->loop);
        testloop_run_ready(b.t);
    }
    cr_expect_eq(b.t->loop.now_ns - began, 8 * SECOND);
    uint8_t want[PAGE_BYTES];
    uint8_t *bytes = b.disk->bytes + PAGE_BYTES;
    cr_expect_arr_neq(bytes, (test_fill(want, sizeof want, 2), want), PAGE_BYTES);
    testloop_run(b.t); /* it answers, is closed, and all is freed */
    testloop_destroy(b.t);
}

/* --- quantiles and peers --- */

Test(latency, quantiles_are_right_within_a_fourth)
{
    struct latency l = {0};
    cr_expect_eq(latency_quantile(&l, 50), 0);
    for (uint64_t ns = 1; ns <= 100000; ns += 7)
        latency_add(&l, ns);
    static const unsigned percents[] = {1, 50, 90, 99, 100};
    for (unsigned i = 0; i < ARRAY_LENGTH(percents); i++) {
        uint64_t is = 1000 * percents[i], found = latency_quantile(&l, percents[i]);
        cr_expect(found >= is - 10 && found <= is + is / 4 + 1, "%u %%: %zu", percents[i], (size_t)found);
    }
    uint32_t before = l.total;
    latency_fade(&l);
    cr_expect(l.total <= before / 2 && l.total > before / 2 - LATENCY_BUCKETS);
    latency_add(&l, UINT64_MAX);
    latency_add(&l, 0);
    cr_expect_eq(latency_quantile(&l, 100), UINT64_MAX);
}

static unsigned told;

static void peer_told(struct peers *peers, struct peer *peer)
{
    (void)peers;
    (void)peer;
    told++;
}

static void window(struct peer *const *of, const uint64_t *ns, unsigned count, unsigned number)
{
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; ns[i] != 0 && k < 40; k++)
            peers_note(of[i], ns[i], 1000 + (uint64_t)number * 100 + k);
}

Test(latency, a_disk_that_is_twice_as_slow_for_three_windows_is_slow)
{
    struct peers peers;
    struct peer a = {0}, b = {0}, c = {0}, *all[] = {&a, &b, &c};
    static const struct {
        uint64_t ns[3];
        bool slow;
    } windows[] = {{{1000, 3000, 1000}, false}, {{1000, 3000, 1000}, false}, /* judged when the next begins */
                   {{1000, 3000, 1000}, false}, {{1000, 3000, 1100}, true},  {{1000, 0, 1000}, true},
                   {{1000, 1200, 1000}, true}, /* too few reads to tell */
                   {{1000, 1200, 1000}, false}, {{1000, 3000, 1000}, false}, {{1000, 1000, 1000}, false},
                   {{1000, 3000, 1000}, false}, {{1000, 3000, 1000}, false}, {{1000, 1000, 1000}, false},
                   {{1000, 1000, 1000}, false}};
    told = 0;
    peers_init(&peers, 100, peer_told);
    for (unsigned i = 0; i < 3; i++)
        peers_join(&peers, all[i]);
    for (unsigned i = 0; i < ARRAY_LENGTH(windows); i++) {
        window(all, windows[i].ns, 3, i);
        cr_expect_eq(b.slow, windows[i].slow, "window %u", i);
        cr_expect(!a.slow && !c.slow, "window %u", i);
    }
    cr_expect_eq(told, 2, "once when it became slow, once when it was no more: %u", told);
    peers_leave(&b);
    cr_expect_null(b.peers);
}
