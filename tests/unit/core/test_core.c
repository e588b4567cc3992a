#include <criterion/criterion.h>
#include <signal.h>
#include <sys/uio.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "core/io_stats.h"
#include "core/sm.h"
#include "core/uuid.h"
#include "tests/unit/lib/testloop.h"

Test(crc32c, known_answers_of_rfc3720_b4)
{
    uint8_t bytes[32] = {0};
    cr_expect_eq(crc32c(0, bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, 32);
    cr_expect_eq(crc32c(0, bytes, 32), 0x62a8ab43u);
    for (unsigned i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    cr_expect_eq(crc32c(0, bytes, 32), 0x46dd794eu);
    cr_expect_eq(crc32c(crc32c(0, bytes, 13), bytes + 13, 19), 0x46dd794eu, "in two parts");
}

Test(bytes, orders)
{
    uint8_t b[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    cr_expect_eq(get_be16(b), 0x0102u);
    cr_expect_eq(get_be24(b), 0x010203u);
    cr_expect_eq(get_be32(b), 0x01020304u);
    cr_expect_eq(get_le64(b), 0x0807060504030201ull);
    put_be24(b, 0xabcdef);
    cr_expect_eq(b[0], 0xab);
    cr_expect_eq(b[2], 0xef);
}

Test(uuid, text_there_and_back)
{
    struct testloop *t = testloop_create(1, 7);
    struct uuid u = uuid_generate(&t->loop), v;
    char text[UUID_TEXT_SIZE];
    uuid_format(&u, text);
    cr_expect_eq(strlen(text), 36);
    cr_expect_eq(text[14], '4');
    cr_expect(uuid_parse(text, &v) && uuid_equal(&u, &v));
    text[35] = 'x';
    cr_expect_not(uuid_parse(text, &v));
    cr_expect_not(uuid_parse("", &v));
    testloop_destroy(t);
}

struct timer_case {
    struct timer timer;
    uint64_t fired_at;
    struct testloop *t;
};

static void on_fire(struct timer *timer)
{
    struct timer_case *c = container_of(timer, struct timer_case, timer);
    c->fired_at = c->t->loop.now_ns;
}

Test(loop, timers_fire_at_their_time_and_stopped_ones_never)
{
    enum { N = 300 };
    struct testloop *t = testloop_create(1, 3);
    struct timer_case cases[N];
    uint64_t start = t->loop.now_ns, due[N];
    for (unsigned i = 0; i < N; i++) {
        cases[i] = (struct timer_case){.timer.fire = on_fire, .t = t};
        due[i] = test_random(&t->seed) % 1000;
        timer_start(&t->loop, &cases[i].timer, due[i]);
    }
    for (unsigned i = 0; i < N; i += 3)
        timer_stop(&t->loop, &cases[i].timer);
    for (unsigned i = 1; i < N; i += 3) {
        due[i] = test_random(&t->seed) % 5000;
        timer_start(&t->loop, &cases[i].timer, due[i]); /* moved */
    }
    testloop_run(t);
    for (unsigned i = 0; i < N; i++)
        cr_expect_eq(cases[i].fired_at, i % 3 == 0 ? 0 : start + due[i], "timer %u", i);
    testloop_destroy(t);
}

Test(page, pool_is_bounded_and_waiters_are_served_in_line)
{
    struct page_pool *pool = page_pool_create(4);
    struct page *a[4], *b[2];
    cr_assert(page_pool_get(pool, a, 3));
    cr_expect_not(page_pool_get(pool, b, 2), "all or none");
    cr_expect_eq(page_pool_free(pool), 1);
    page_ref(a[0]);
    page_put(a[0]);
    cr_expect_eq(page_pool_free(pool), 1, "a second reference keeps it");
    page_put_all(a, 3);
    cr_expect_eq(page_pool_free(pool), 4);
    page_pool_destroy(pool);
}

struct taker {
    struct page_waiter waiter;
    struct page_pool *pool;
    struct page *pages[4], **out; /* NULL: pages */
    bool served;
};

static void take_pages(struct page_waiter *waiter)
{
    struct taker *taker = container_of(waiter, struct taker, waiter);
    taker->served = page_pool_take(taker->pool, taker->out != NULL ? taker->out : taker->pages, waiter->count);
}

struct lent {
    struct page_memory memory;
    unsigned over;
};

static void lent_over(struct page_memory *memory)
{
    container_of(memory, struct lent, memory)->over++;
}

Test(page, a_pool_in_memory_that_is_lent_leaves_it_as_it_is)
{
    static _Alignas(PAGE_BYTES) char bytes[4 * PAGE_BYTES];
    struct lent lent = {.memory = {.base = bytes, .over = lent_over}};
    struct page *pages[4];
    bytes[3 * PAGE_BYTES] = 7;
    struct page_pool *pool = page_pool_create_in(&lent.memory, 4);
    for (unsigned i = 0; i < 4; i++) {
        cr_assert(page_pool_take(pool, &pages[i], 1));
        cr_expect_eq(pages[i]->data, bytes + i * PAGE_BYTES);
    }
    cr_expect_eq(bytes[3 * PAGE_BYTES], 7);
    page_put_all(pages, 3);
    page_pool_retire(pool);
    cr_expect_eq(lent.over, 0, "a page of it is still out");
    page_put(pages[3]);
    cr_expect_eq(lent.over, 1);
}

Test(page, who_leaves_the_line_lets_those_behind_have_what_is_free)
{
    struct page_pool *pool = page_pool_create(4);
    struct page *held[2];
    struct taker large = {.waiter = {.count = 4, .ready = take_pages}, .pool = pool};
    struct taker small = {.waiter = {.count = 1, .ready = take_pages}, .pool = pool};
    cr_assert(page_pool_get(pool, held, 2));
    page_pool_wait(pool, &large.waiter);
    page_pool_wait(pool, &small.waiter);
    cr_expect_not(small.served, "nobody overtakes");
    page_pool_wait_cancel(pool, &large.waiter);
    cr_expect(small.served && !large.served, "two pages are free, and one was wanted");
    cr_expect_eq(page_pool_free(pool), 1);
    page_put(small.pages[0]);
    page_put_all(held, 2);
    page_pool_destroy(pool);
}

Test(page, small_requests_have_a_part_that_larger_ones_do_not_take)
{
    enum { POOL = 512 }; /* small: up to 2 pages, middling: up to 16; a share: 64 */
    struct page_pool *pool = page_pool_create(POOL);
    static struct page *held[POOL], *small[POOL];
    struct taker middle = {.waiter = {.count = 4, .ready = take_pages}, .pool = pool};
    struct taker last = {.waiter = {.count = 1, .ready = take_pages}, .pool = pool};
    cr_assert(page_pool_get(pool, held, 400));
    cr_expect_not(page_pool_get(pool, &held[400], 49), "into what is kept back");
    cr_assert(page_pool_get(pool, &held[400], 44));
    cr_assert(page_pool_get(pool, &held[444], 4));
    page_pool_wait(pool, &middle.waiter);
    for (unsigned i = 0; i < 64; i += 2)
        cr_assert(page_pool_get(pool, &small[i], 2), "%u small pages are out", i);
    page_pool_wait(pool, &last.waiter);
    page_put_all(&held[444], 4);
    cr_expect(middle.served && !last.served, "what a middling one gave back is for a middling one");
    page_put_all(small, 64);
    cr_expect(last.served);
    page_put(last.pages[0]);
    page_put_all(middle.pages, 4);
    page_put_all(held, 444);
    cr_assert(page_pool_get(pool, held, POOL), "all of it, when all is there");
    page_put_all(held, POOL);
    page_pool_destroy(pool);
}

Test(page, middling_requests_overtake_large_ones_up_to_their_share)
{
    enum { POOL = 512 };
    struct page_pool *pool = page_pool_create(POOL);
    static struct page *held[POOL], *middling[POOL], *large_pages[POOL];
    struct taker large = {.waiter = {.count = 300, .ready = take_pages}, .pool = pool, .out = large_pages};
    struct taker middle = {.waiter = {.count = 16, .ready = take_pages}, .pool = pool, .out = middling};
    cr_assert(page_pool_get(pool, held, 448));
    page_pool_wait(pool, &large.waiter);
    page_pool_wait(pool, &middle.waiter);
    page_put_all(&held[432], 16);
    cr_expect(middle.served && !large.served, "the smaller one is content with less");
    page_put_all(&held[332], 100);
    for (unsigned i = 16; i < 64; i += 16)
        cr_assert(page_pool_get(pool, &middling[i], 16), "%u middling pages are out", i);
    cr_expect_not(page_pool_get(pool, &middling[64], 16), "the rest is the large one's");
    page_put_all(held, 332);
    cr_expect(large.served, "beside what the smaller ones have");
    page_put_all(middling, 64);
    page_put_all(large_pages, 300);
    page_pool_destroy(pool);
}

Test(page, who_has_waited_since_a_moment_is_known)
{
    struct page_pool *pool = page_pool_create(8);
    struct page *held[8];
    struct taker first = {.waiter = {.count = 4, .ready = take_pages}, .pool = pool};
    struct taker second = {.waiter = {.count = 2, .ready = take_pages}, .pool = pool};
    cr_assert(page_pool_get(pool, held, 8));
    uint64_t before = page_pool_mark(pool);
    cr_expect_not(page_pool_waited_since(pool, PAGE_POOL_NOW, NULL), "nobody waits");
    page_pool_wait(pool, &first.waiter);
    cr_expect_not(page_pool_waited_since(pool, before, NULL), "nobody waited");
    uint64_t between = page_pool_mark(pool);
    cr_expect(page_pool_waited_since(pool, between, NULL));
    page_pool_wait(pool, &second.waiter);
    cr_expect_not(page_pool_waited_since(pool, between, &first.waiter), "the second one is later");
    cr_expect(page_pool_waited_since(pool, PAGE_POOL_NOW, &first.waiter));
    cr_expect(page_pool_waited_since(pool, between, &second.waiter));
    page_put_all(held, 4);
    cr_expect(first.served && !page_pool_waited_since(pool, between, NULL), "it has left the line");
    cr_expect(page_pool_waited_since(pool, page_pool_mark(pool), NULL), "the second one waits still");
    page_pool_wait_cancel(pool, &second.waiter);
    page_put_all(&held[4], 4);
    page_put_all(first.pages, 4);
    page_pool_destroy(pool);
}

Test(page, iovec_merges_neighbours_and_copies_cross_pages)
{
    struct page_pool *pool = page_pool_create(8);
    struct page *p[4];
    struct iovec iov[4];
    uint64_t covered;
    cr_assert(page_pool_get(pool, p, 4));
    cr_expect_eq(pages_iovec(p, 512, 3 * PAGE_BYTES, iov, 4, &covered), 1);
    cr_expect_eq(covered, 3 * PAGE_BYTES);
    struct page *swap = p[1];
    p[1] = p[2];
    p[2] = swap;
    cr_expect_eq(pages_iovec(p, 512, 3 * PAGE_BYTES, iov, 4, &covered), 4);
    uint8_t in[9000], out[9000];
    test_fill(in, sizeof in, 1);
    pages_copy_in(p, 700, in, sizeof in);
    pages_copy_out(out, p, 700, sizeof out);
    cr_expect_arr_eq(in, out, sizeof in);
    page_put_all(p, 4);
    page_pool_destroy(pool);
}

Test(blkdev, memory_disk_keeps_what_is_written)
{
    struct testloop *t = testloop_create(16, 1);
    struct memdisk *disk = memdisk_create(&t->loop, "m0", 1 * MIB, 512);
    uint8_t in[10240], out[10240];
    test_fill(in, sizeof in, 2);
    cr_expect_eq(test_io(t, &disk->dev, BLK_WRITE, BLK_FUA, 1536, in, sizeof in), BLK_OK);
    cr_expect_eq(test_io(t, &disk->dev, BLK_READ, 0, 1536, out, sizeof out), BLK_OK);
    cr_expect_arr_eq(in, out, sizeof in);
    cr_expect_eq(disk->fuas, 1);
    disk->dev.info.read_only = true;
    cr_expect_eq(test_io(t, &disk->dev, BLK_WRITE, 0, 0, in, 512), BLK_READONLY);
    test_close(t, &disk->dev);
    testloop_destroy(t);
}

Test(blkdev, a_request_out_of_range_is_a_programmer_error, .signal = SIGABRT)
{
    struct testloop *t = testloop_create(16, 1);
    struct memdisk *disk = memdisk_create(&t->loop, "m0", 1 * MIB, 512);
    uint8_t in[1024] = {0};
    test_io(t, &disk->dev, BLK_WRITE, 0, 1 * MIB - 512, in, sizeof in);
}

static const struct sm_state door[] = {{"closed", SM_TO(1)}, {"open", SM_TO(0) | SM_TO(2)}, {"gone", 0}};

Test(sm, moves_in_the_table)
{
    struct sm sm;
    sm_init(&sm, door, 3, 0);
    sm_move(&sm, 1);
    sm_move(&sm, 2);
    cr_expect_str_eq(sm_name(&sm), "gone");
}

Test(sm, a_move_that_is_not_in_the_table_aborts, .signal = SIGABRT)
{
    struct sm sm;
    sm_init(&sm, door, 3, 0);
    sm_move(&sm, 2);
}

Test(io_stats, latencies_go_into_powers_of_two_of_a_microsecond)
{
    static const struct {
        uint64_t ns;
        unsigned bucket;
    } cases[] = {{0, 0},        {999, 0},      {1000, 1},           {1999, 1},           {2000, 2},       {4000, 3},
                 {1000000, 10}, {1024000, 11}, {4194303999ull, 22}, {4194304000ull, 23}, {UINT64_MAX, 23}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct io_stats stats = {0};
        io_stats_answered(&stats, IO_READ, cases[i].ns);
        cr_expect_eq(stats.latency[cases[i].bucket], 1, "%llu ns", (unsigned long long)cases[i].ns);
        cr_expect(cases[i].ns < io_latency_below(cases[i].bucket) || cases[i].ns == UINT64_MAX);
        cr_expect(cases[i].bucket == 0 || cases[i].ns >= io_latency_below(cases[i].bucket - 1));
    }
}

Test(io_stats, percentiles_and_sums)
{
    struct io_stats stats = {0}, sum = {0};
    cr_expect_eq(io_stats_percentile(&stats, 50), 0, "of nothing");
    for (unsigned i = 0; i < 98; i++)
        io_stats_answered(&stats, i % 2 == 0 ? IO_READ : IO_WRITE, 100000);
    io_stats_answered(&stats, IO_OTHER, 3000000);
    io_stats_answered(&stats, IO_OTHER, 3000000);
    io_count(&stats.read_bytes, 4096);
    io_count(&stats.troubles[IO_ABORTED], 3);
    cr_expect_eq(io_stats_percentile(&stats, 50), 128000);
    cr_expect_eq(io_stats_percentile(&stats, 98), 128000);
    cr_expect_eq(io_stats_percentile(&stats, 99), 4096000);
    io_stats_read(&stats, &sum);
    io_stats_read(&stats, &sum);
    cr_expect_eq(sum.commands[IO_READ], 98);
    cr_expect_eq(sum.commands[IO_OTHER], 4);
    cr_expect_eq(io_stats_commands(&sum), 200);
    cr_expect_eq(sum.read_bytes, 8192);
    cr_expect_eq(sum.troubles[IO_ABORTED], 6);
    cr_expect_eq(sum.latency_sum_ns, 2 * (98 * 100000ull + 2 * 3000000));
}
