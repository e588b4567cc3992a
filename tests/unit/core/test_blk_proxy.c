#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/blk_proxy.h"
#include "core/check.h"
#include "tests/unit/lib/testloop.h"

/* Two loops polled by hand; letters between them are counted and can be held back. */
struct world {
    struct testloop *user, *home;
    struct memdisk *disk;
    struct blkdev *proxy;
    unsigned letters_out, letters_back;
};

static struct world *the_world; /* loop_ops.call has no room for it */
static struct loop_ops counting_ops;
static const struct loop_ops *plain_ops;

static void counting_call(struct loop *loop, struct task *task)
{
    if (loop == &the_world->home->loop)
        the_world->letters_out++;
    else
        the_world->letters_back++;
    plain_ops->call(loop, task);
}

/* Until neither loop has anything to do. */
static void poll_both(struct world *w)
{
    for (unsigned i = 0; i < 1000; i++) {
        testloop_run(w->user);
        testloop_run(w->home);
    }
}

static void world_init(struct world *w, uint32_t home_pages, uint32_t max_in_flight)
{
    *w = (struct world){.user = testloop_create(9000, 1), .home = testloop_create(home_pages, 2)};
    the_world = w;
    plain_ops = w->user->loop.ops;
    counting_ops = *plain_ops;
    counting_ops.call = counting_call;
    w->user->loop.ops = w->home->loop.ops = &counting_ops;
    w->disk = memdisk_create(&w->home->loop, "below", 8 * MIB, 512);
    w->proxy = blk_proxy_create(&w->user->loop, &w->disk->dev, max_in_flight);
    cr_assert_not_null(w->proxy);
    poll_both(w); /* it listens to the target from now on */
    w->letters_out = w->letters_back = 0;
}

static void note_closed(struct task *task)
{
    task->run = NULL;
}

/* Both loops take part in its end. */
static void close_proxy(struct world *w, struct blkdev *proxy)
{
    struct task closed = {.run = note_closed};
    blk_close(proxy, &closed);
    poll_both(w);
    cr_assert(closed.run == NULL);
}

static void world_fini(struct world *w)
{
    close_proxy(w, w->proxy);
    test_close(w->home, &w->disk->dev);
    testloop_destroy(w->user);
    testloop_destroy(w->home);
}

struct call {
    struct blk_req req;
    struct page *pages[2100];
    uint32_t count;
    bool over;
};

static void call_done(struct blk_req *req)
{
    container_of(req, struct call, req)->over = true;
}

static void call_submit(struct world *w, struct call *c, enum blk_op op, uint64_t off, uint64_t len)
{
    memset(&c->req, 0, sizeof c->req);
    c->req.op = op;
    c->req.off = off;
    c->req.len = len;
    c->req.done = call_done;
    c->over = false;
    c->count = blk_op_has_data(op) ? page_count_for(off, len) : 0;
    cr_assert(page_pool_get(w->user->loop.pages, c->pages, c->count));
    c->req.pages = c->count > 0 ? c->pages : NULL;
    blk_submit(w->proxy, &c->req);
}

static void call_fini(struct call *c)
{
    page_put_all(c->pages, c->count);
    free(c);
}

static struct call *call_new(void)
{
    struct call *c = calloc(1, sizeof *c);
    cr_assert_not_null(c);
    return c;
}

Test(blk_proxy, requests_of_one_turn_travel_in_one_call_each_way)
{
    enum { N = 16 };
    struct world w;
    struct call *calls[N];
    world_init(&w, 256, N);
    for (unsigned i = 0; i < N; i++) {
        calls[i] = call_new();
        call_submit(&w, calls[i], BLK_READ, i * 4096, 4096);
    }
    testloop_run_ready(w.user);
    cr_expect_eq(w.letters_out, 1);
    cr_expect_eq(w.disk->reads, 0, "nothing happens before the other loop runs");
    testloop_run_ready(w.home);
    cr_expect_eq(w.letters_back, 1);
    cr_expect_not(calls[0]->over, "done runs on the user's loop");
    testloop_run_ready(w.user);
    for (unsigned i = 0; i < N; i++) {
        cr_expect(calls[i]->over && calls[i]->req.status == BLK_OK, "request %u", i);
        call_fini(calls[i]);
    }
    cr_expect_eq(w.letters_out, 1);
    world_fini(&w);
}

Test(blk_proxy, moves_the_bytes_of_every_shape_of_request)
{
    static const struct {
        uint64_t off, len;
    } shapes[] = {{0, 512}, {512, 512}, {3584, 1024}, {4096, 65536}, {1536, MIB + 1024}, {512, 8 * MIB - 512}};
    struct world w;
    world_init(&w, 100, 4); /* fewer pages than a request has */
    for (unsigned i = 0; i < ARRAY_LENGTH(shapes); i++) {
        uint64_t off = shapes[i].off, len = shapes[i].len;
        uint8_t *sent = malloc(len), *got = malloc(len);
        test_fill(sent, len, i + 1);
        struct call *c = call_new();
        call_submit(&w, c, BLK_WRITE, off, len);
        pages_copy_in(c->pages, off % PAGE_BYTES, sent, len); /* copied only when the other loop runs */
        poll_both(&w);
        cr_expect(c->over && c->req.status == BLK_OK, "write at %lu", off);
        cr_expect_eq(memcmp(w.disk->bytes + off, sent, len), 0, "bytes on the disk, at %lu", off);
        call_fini(c);
        c = call_new();
        call_submit(&w, c, BLK_READ, off, len);
        poll_both(&w);
        pages_copy_out(got, c->pages, off % PAGE_BYTES, len);
        cr_expect_eq(memcmp(got, sent, len), 0, "bytes read, at %lu", off);
        call_fini(c);
        free(sent);
        free(got);
    }
    cr_expect_eq(page_pool_free(w.home->loop.pages), 100);
    world_fini(&w);
}

Test(blk_proxy, the_other_operations_go_through_once)
{
    struct world w;
    world_init(&w, 64, 4);
    memset(w.disk->bytes, 0xaa, 8 * MIB);
    struct call *c = call_new();
    call_submit(&w, c, BLK_WRITE_ZEROES, 4096, 4 * MIB);
    poll_both(&w);
    cr_expect(c->over && w.disk->bytes[4095] == 0xaa && w.disk->bytes[4096] == 0);
    cr_expect_eq(w.disk->writes, 1, "not cut into pieces");
    call_submit(&w, c, BLK_FLUSH, 0, 0);
    poll_both(&w);
    cr_expect(c->over && w.disk->flushes == 1);
    call_submit(&w, c, BLK_DISCARD, 6 * MIB, MIB);
    poll_both(&w);
    cr_expect(c->over && w.disk->bytes[6 * MIB] == 0);
    call_fini(c);
    world_fini(&w);
}

Test(blk_proxy, more_requests_than_slots_and_pages_wait_and_all_are_served)
{
    enum { N = 100 };
    struct world w;
    struct call *calls[N];
    world_init(&w, 3, 8);
    w.disk->latency_ns = 1000000;
    for (unsigned i = 0; i < N; i++) {
        calls[i] = call_new();
        call_submit(&w, calls[i], BLK_WRITE, i * 8192, 8192);
        memset(calls[i]->pages[0]->data, (int)i, 4096);
        memset(calls[i]->pages[1]->data, (int)i, 4096);
    }
    poll_both(&w);
    for (unsigned i = 0; i < N; i++) {
        cr_expect(calls[i]->over, "request %u", i);
        cr_expect(w.disk->bytes[i * 8192] == i && w.disk->bytes[i * 8192 + 8191] == i, "bytes %u", i);
        call_fini(calls[i]);
    }
    world_fini(&w);
}

/* A device that answers reads of a block above 1 MiB with a media error there, and keeps a page of every write. */
struct odd {
    struct blkdev dev;
    struct page *kept, *mine;
};

static void odd_submit(struct blkdev *dev, struct blk_req *req)
{
    struct odd *odd = container_of(dev, struct odd, dev);
    if (req->op == BLK_WRITE) {
        odd->kept = req->pages[0];
        page_ref(odd->kept);
        blk_complete(req, BLK_OK);
    } else if (req->off + req->len > MIB) {
        blk_complete_media(req, MAX(req->off, MIB + 1024));
    } else {
        page_put(req->pages[0]); /* replace, as a cache does */
        page_ref(odd->mine);
        req->pages[0] = odd->mine;
        blk_complete(req, BLK_OK);
    }
}

static void odd_close(struct blkdev *dev, struct task *closed)
{
    loop_defer(dev->loop, closed);
}

static const struct blkdev_ops odd_ops = {.kind = "odd", .submit = odd_submit, .close = odd_close};

Test(blk_proxy, the_target_may_keep_and_replace_pages_and_errors_keep_their_place)
{
    struct world w;
    world_init(&w, 600, 4);
    struct blk_info info = {.size = 2 * MIB, .logical_block = 512, .physical_block = 512};
    struct odd odd = {0};
    blkdev_init(&odd.dev, &odd_ops, &w.home->loop, "odd", &info);
    cr_assert(page_pool_get(w.home->loop.pages, &odd.mine, 1));
    memset(odd.mine->data, 0x5a, PAGE_BYTES);
    struct blkdev *below = w.proxy;
    w.proxy = blk_proxy_create(&w.user->loop, &odd.dev, 2);

    struct call *c = call_new();
    call_submit(&w, c, BLK_READ, 1024, 512);
    memset(c->pages[0]->data, 0, PAGE_BYTES);
    poll_both(&w);
    const uint8_t *bytes = c->pages[0]->data;
    cr_expect(bytes[1023] == 0 && bytes[1024] == 0x5a && bytes[1535] == 0x5a && bytes[1536] == 0);
    cr_expect_eq(odd.mine->refs, 1);
    call_fini(c);

    c = call_new();
    call_submit(&w, c, BLK_WRITE, 0, 4096);
    memset(c->pages[0]->data, 0x11, PAGE_BYTES);
    poll_both(&w);
    memset(c->pages[0]->data, 0x22, PAGE_BYTES);
    cr_expect_eq(*(uint8_t *)odd.kept->data, 0x11, "the kept page is not the user's");
    page_put(odd.kept);
    call_fini(c);

    c = call_new();
    call_submit(&w, c, BLK_READ, MIB - 4096, 16384);
    poll_both(&w);
    cr_expect_eq(c->req.status, BLK_MEDIA);
    cr_expect_eq(c->req.bad_off, MIB + 1024);
    call_fini(c);

    page_put(odd.mine);
    close_proxy(&w, w.proxy);
    test_close(w.home, &odd.dev);
    w.proxy = below;
    world_fini(&w);
}

Test(blk_proxy, what_was_never_written_is_asked_of_the_target)
{
    static const struct {
        uint64_t off, len, extent;
        bool written;
    } cases[] = {{0, MIB, 64 * KIB, true},
                 {64 * KIB, MIB, 128 * KIB, false},
                 {100 * KIB, 512, 512, false},
                 {192 * KIB, 3 * MIB, 3 * MIB, true}};
    struct world w;
    world_init(&w, 600, 4);
    w.disk->unwritten[0] = 64 * KIB;
    w.disk->unwritten[1] = 192 * KIB;
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct call *c = call_new();
        call_submit(&w, c, BLK_STATUS, cases[i].off, cases[i].len);
        poll_both(&w);
        cr_expect_eq(c->req.status, BLK_OK);
        cr_expect_eq(c->req.extent, cases[i].extent, "case %u: %llu", i, (unsigned long long)c->req.extent);
        cr_expect_eq(c->req.written, cases[i].written, "case %u", i);
        call_fini(c);
    }
    world_fini(&w);
}

struct listener {
    struct blk_watcher watcher;
    unsigned heard[BLK_EVENT_FAILED + 1];
    enum blk_event last;
};

static void hear(struct blk_watcher *watcher, struct blkdev *dev, enum blk_event event)
{
    struct listener *l = container_of(watcher, struct listener, watcher);
    cr_expect_eq(dev, the_world->proxy);
    l->heard[event]++;
    l->last = event;
}

Test(blk_proxy, news_of_the_target_come_a_hop_later_each_once_and_as_it_is_then)
{
    struct world w;
    struct listener l = {.watcher = {.event = hear}};
    world_init(&w, 600, 4);
    blk_watch(w.proxy, &l.watcher);
    cr_expect(w.proxy->info.volatile_cache);
    w.disk->dev.info.volatile_cache = false;
    blk_notify(&w.disk->dev, BLK_EVENT_CACHE);
    cr_expect_eq(l.heard[BLK_EVENT_CACHE], 0, "not on the target's thread");
    poll_both(&w);
    cr_expect_eq(l.heard[BLK_EVENT_CACHE], 1);
    cr_expect_not(w.proxy->info.volatile_cache);

    /* While the letter is away: the last of the three, and nothing that was taken back. */
    blk_notify(&w.disk->dev, BLK_EVENT_DEGRADED);
    w.disk->dev.info.volatile_cache = true;
    blk_notify(&w.disk->dev, BLK_EVENT_CACHE);
    w.disk->dev.info.volatile_cache = false;
    blk_notify(&w.disk->dev, BLK_EVENT_CACHE);
    blk_notify(&w.disk->dev, BLK_EVENT_FAILED);
    w.disk->dev.info.read_only = true;
    w.disk->dev.info.size = 4 * MIB;
    blk_notify(&w.disk->dev, BLK_EVENT_RESIZED);
    cr_expect_eq(w.letters_back, 2, "one more letter, not five");
    poll_both(&w);
    cr_expect_eq(l.heard[BLK_EVENT_DEGRADED], 1);
    cr_expect_eq(l.heard[BLK_EVENT_FAILED], 1);
    cr_expect_eq(l.last, BLK_EVENT_FAILED);
    cr_expect_eq(l.heard[BLK_EVENT_RESIZED], 1);
    cr_expect_eq(l.heard[BLK_EVENT_CACHE], 1);
    cr_expect(w.proxy->info.read_only && w.proxy->info.size == 4 * MIB);
    blk_unwatch(w.proxy, &l.watcher);
    blk_notify(&w.disk->dev, BLK_EVENT_RESTORED); /* its letter is away when the proxy is closed */
    world_fini(&w);
    cr_expect_eq(l.heard[BLK_EVENT_RESTORED], 0);
}

/* The user has not heard of it when it asks, and is told so. */
Test(blk_proxy, a_request_beyond_the_end_of_a_target_that_became_shorter_is_answered)
{
    static const enum blk_op ops[] = {BLK_READ, BLK_WRITE, BLK_DISCARD, BLK_STATUS};
    struct world w;
    struct call *calls[ARRAY_LENGTH(ops)];
    world_init(&w, 600, 8);
    for (unsigned i = 0; i < ARRAY_LENGTH(ops); i++) {
        calls[i] = call_new();
        call_submit(&w, calls[i], ops[i], 4 * MIB - 4096, 8192);
    }
    w.disk->dev.info.size = 4 * MIB;
    blk_notify(&w.disk->dev, BLK_EVENT_RESIZED);
    poll_both(&w);
    for (unsigned i = 0; i < ARRAY_LENGTH(ops); i++) {
        cr_expect(calls[i]->over && calls[i]->req.status == BLK_MEDIA, "%s", blk_op_name(ops[i]));
        cr_expect_eq(calls[i]->req.bad_off, 4 * MIB - 4096);
        call_fini(calls[i]);
    }
    cr_expect_eq(w.disk->writes, 0);
    cr_expect_eq(w.proxy->info.size, 4 * MIB);
    world_fini(&w);
}

Test(blk_proxy, what_changed_before_it_listens_is_told_too)
{
    struct world w;
    world_init(&w, 600, 4);
    struct blkdev *first = w.proxy;
    w.proxy = blk_proxy_create(&w.user->loop, &w.disk->dev, 2);
    w.disk->dev.info.volatile_cache = false;
    struct listener l = {.watcher = {.event = hear}};
    blk_watch(w.proxy, &l.watcher);
    poll_both(&w);
    cr_expect_eq(l.heard[BLK_EVENT_CACHE], 1);
    cr_expect_not(w.proxy->info.volatile_cache);
    blk_unwatch(w.proxy, &l.watcher);
    close_proxy(&w, first);
    world_fini(&w);
}
