#include "tests/unit/lib/testloop.h"

#include <stdlib.h>
#include <string.h>

#include "core/check.h"

uint64_t test_random(uint64_t *seed) /* splitmix64 */
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static uint64_t loop_test_random(struct loop *loop)
{
    return test_random(&container_of(loop, struct testloop, loop)->seed);
}

static uint64_t loop_test_wall_clock(struct loop *loop)
{
    return 1700000000 + loop->now_ns / 1000000000;
}

static void loop_test_call(struct loop *loop, struct task *task)
{
    loop_defer(loop, task);
}

static bool loop_test_is_current(const struct loop *loop)
{
    (void)loop;
    return true;
}

static const struct loop_ops test_ops = {loop_test_random, loop_test_wall_clock, loop_test_call, loop_test_is_current};

struct testloop *testloop_create(uint32_t pages, uint64_t seed)
{
    struct testloop *t = calloc(1, sizeof *t);
    ASSERT(t != NULL);
    loop_init(&t->loop, &test_ops, page_pool_create(pages));
    t->loop.now_ns = 1000000000;
    t->seed = seed;
    return t;
}

void testloop_destroy(struct testloop *t)
{
    page_pool_destroy(t->loop.pages);
    free(t);
}

void testloop_run_ready(struct testloop *t)
{
    while (loop_run(&t->loop, 64))
        ;
}

static bool step(struct testloop *t)
{
    testloop_run_ready(t);
    uint64_t next = loop_next_timer_ns(&t->loop);
    if (next == UINT64_MAX)
        return false;
    t->loop.now_ns = MAX(t->loop.now_ns, next);
    testloop_run_ready(t);
    return true;
}

void testloop_run(struct testloop *t)
{
    while (step(t))
        ;
}

bool testloop_run_until(struct testloop *t, const bool *flag)
{
    testloop_run_ready(t);
    while (!*flag && step(t))
        ;
    return *flag;
}

/* --- the disk --- */

enum { MEMDISK_SLOTS = 4096 };

struct memdisk_slot {
    struct timer timer;
    struct memdisk *disk;
    struct blk_req *req;
};

static void serve(struct memdisk *disk, struct blk_req *req)
{
    uint64_t page_off = req->off % PAGE_BYTES;
    if (disk->power_cut) {
        blk_complete(req, BLK_GONE);
        return;
    }
    switch (req->op) {
    case BLK_READ:
        pages_copy_in(req->pages, page_off, disk->bytes + req->off, req->len);
        break;
    case BLK_WRITE:
        pages_copy_out(disk->bytes + req->off, req->pages, page_off, req->len);
        break;
    case BLK_DISCARD:
        if (disk->discards_into_garbage) {
            test_fill(disk->bytes + req->off, req->len, req->off + 1);
            break;
        }
        memset(disk->bytes + req->off, 0, req->len);
        break;
    case BLK_WRITE_ZEROES:
        memset(disk->bytes + req->off, 0, req->len);
        break;
    case BLK_FLUSH:
    case BLK_STATUS: /* never comes here */
        break;
    }
    blk_complete(req, BLK_OK);
}

static void slot_fire(struct timer *timer)
{
    struct memdisk_slot *slot = container_of(timer, struct memdisk_slot, timer);
    struct blk_req *req = slot->req;
    slot->req = NULL;
    serve(slot->disk, req);
}

static uint64_t delay_ns(struct memdisk *disk, const struct blk_req *req)
{
    uint64_t now = disk->dev.loop->now_ns;
    if (disk->rate == 0)
        return disk->latency_ns;
    uint64_t bytes = blk_op_has_data(req->op) ? req->len : 0;
    uint64_t took = disk->request_ns + bytes * 1000 / (disk->rate / 1000000);
    took += bytes > 0 && req->off != disk->head ? disk->seek_ns : 0;
    disk->head = bytes > 0 ? req->off + req->len : disk->head;
    disk->free_ns = MAX(disk->free_ns, now) + took;
    return disk->free_ns - now;
}

static void memdisk_submit(struct blkdev *dev, struct blk_req *req)
{
    struct memdisk *disk = container_of(dev, struct memdisk, dev);
    disk->reads += req->op == BLK_READ;
    disk->writes += blk_op_writes(req->op);
    disk->flushes += req->op == BLK_FLUSH;
    disk->fuas += (req->flags & BLK_FUA) != 0;
    uint64_t delay = delay_ns(disk, req);
    if (delay == 0) {
        serve(disk, req);
        return;
    }
    for (unsigned i = 0; i < MEMDISK_SLOTS; i++) {
        struct memdisk_slot *slot = &disk->slots[i];
        if (slot->req != NULL)
            continue;
        *slot = (struct memdisk_slot){.timer.fire = slot_fire, .disk = disk, .req = req};
        timer_start(dev->loop, &slot->timer, delay);
        return;
    }
    UNREACHABLE("more requests in flight than a test should have");
}

static void memdisk_close(struct blkdev *dev, struct task *closed)
{
    struct memdisk *disk = container_of(dev, struct memdisk, dev);
    struct loop *loop = dev->loop;
    free(disk->slots);
    free(disk->bytes);
    free(disk);
    loop_defer(loop, closed);
}

static bool memdisk_block_status(struct blkdev *dev, uint64_t off, uint64_t len, uint64_t *extent)
{
    const struct memdisk *disk = container_of(dev, struct memdisk, dev);
    bool written = off < disk->unwritten[0] || off >= disk->unwritten[1];
    uint64_t end = !written ? disk->unwritten[1] : off < disk->unwritten[0] ? disk->unwritten[0] : off + len;
    *extent = MIN(len, end - off);
    return written;
}

static const struct blkdev_ops memdisk_ops = {
    .kind = "memory", .submit = memdisk_submit, .close = memdisk_close, .block_status = memdisk_block_status};

struct memdisk *memdisk_create(struct loop *loop, const char *name, uint64_t size, uint32_t logical_block)
{
    struct memdisk *disk = calloc(1, sizeof *disk);
    ASSERT(disk != NULL);
    disk->bytes = calloc(1, size);
    disk->slots = calloc(MEMDISK_SLOTS, sizeof *disk->slots);
    ASSERT(disk->bytes != NULL && disk->slots != NULL);
    struct blk_info info = {.size = size,
                            .logical_block = logical_block,
                            .physical_block = logical_block,
                            .discards = true,
                            .discard_zeroes = true,
                            .volatile_cache = true};
    blkdev_init(&disk->dev, &memdisk_ops, loop, name, &info);
    return disk;
}

/* --- helpers --- */

struct test_call {
    struct blk_req req;
    struct task closed;
    bool over;
};

static void test_done(struct blk_req *req)
{
    container_of(req, struct test_call, req)->over = true;
}

enum blk_status test_io(struct testloop *t, struct blkdev *dev, enum blk_op op, unsigned flags, uint64_t off,
                        void *buffer, uint64_t len)
{
    struct test_call call = {.req = {.op = op, .flags = flags, .off = off, .len = len, .done = test_done}};
    uint32_t count = blk_op_has_data(op) ? page_count_for(off, len) : 0;
    struct page **pages = calloc(count + 1, sizeof *pages);
    ASSERT(pages != NULL && page_pool_get(t->loop.pages, pages, count));
    if (op == BLK_WRITE)
        pages_copy_in(pages, off % PAGE_BYTES, buffer, len);
    call.req.pages = count > 0 ? pages : NULL;
    blk_submit(dev, &call.req);
    ASSERT(testloop_run_until(t, &call.over));
    if (op == BLK_READ && call.req.status == BLK_OK)
        pages_copy_out(buffer, pages, off % PAGE_BYTES, len);
    page_put_all(pages, count);
    free(pages);
    return call.req.status;
}

static void test_closed(struct task *task)
{
    container_of(task, struct test_call, closed)->over = true;
}

void test_close(struct testloop *t, struct blkdev *dev)
{
    struct test_call call = {.closed.run = test_closed};
    blk_close(dev, &call.closed);
    ASSERT(testloop_run_until(t, &call.over));
}

void test_fill(uint8_t *out, uint64_t len, uint64_t seed)
{
    for (uint64_t i = 0; i < len; i += 8) {
        uint64_t value = test_random(&seed);
        memcpy(out + i, &value, MIN(len - i, (uint64_t)8));
    }
}
