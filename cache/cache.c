/* Birth, end and the way in of a cache: see cache/cache.h. */
#include "cache/cache.h"

#include <stdlib.h>

#include "cache/cache_impl.h"

void cache_answer(struct blk_req *parent, const struct blk_req *child)
{
    if (child->status == BLK_MEDIA)
        blk_complete_media(parent, child->bad_off);
    else
        blk_complete(parent, child->status);
}

static void cache_submit(struct blkdev *dev, struct blk_req *req)
{
    static void (*const ways[BLK_OP_COUNT])(struct cache *, struct blk_req *) = {
        [BLK_READ] = read_submit,      [BLK_WRITE] = change_submit,        [BLK_FLUSH] = flush_submit,
        [BLK_DISCARD] = change_submit, [BLK_WRITE_ZEROES] = change_submit, [BLK_STATUS] = read_status,
    };
    ways[req->op](cache_of(dev), req);
}

/* What is beyond a new end is no more. */
static void resized(struct cache *c, uint64_t size)
{
    bool shorter = size < c->dev.info.size;
    c->dev.info.size = size;
    for (uint32_t i = 0; shorter && i < c->blocks.count; i++) {
        struct block *b = blocks_slot(&c->blocks, i);
        if (b == NULL || (block_number(b) + 1) * PAGE_BYTES <= size)
            continue;
        block_forget(b, BLOCK_WHOLE);
        block_settle(&c->blocks, b);
    }
}

static void below_tells(struct blk_watcher *watcher, struct blkdev *below, enum blk_event event)
{
    struct cache *c = container_of(watcher, struct cache, watcher);
    c->dev.info.read_only = below->info.read_only;
    if (event == BLK_EVENT_RESIZED)
        resized(c, below->info.size);
    blk_notify(&c->dev, event);
}

static void cache_free(struct cache *c)
{
    blocks_fini(&c->blocks);
    free(c);
}

/* Requests are over; fetches that nobody waits for may not be. */
void cache_close_if_idle(struct cache *c)
{
    if (c->closed == NULL || !c->flushed || !LIST_EMPTY(&c->fetches))
        return;
    struct loop *loop = c->dev.loop;
    struct task *closed = c->closed;
    blk_unwatch(c->below, &c->watcher);
    cache_free(c);
    loop_defer(loop, closed);
}

static void cache_close(struct blkdev *dev, struct task *closed)
{
    struct cache *c = cache_of(dev);
    c->closed = closed;
    flush_submit(c, &c->last_flush);
}

static const struct blkdev_ops cache_ops = {
    .kind = "cache", .submit = cache_submit, .close = cache_close, .submits_status = true};

struct cache *cache_create(struct blkdev *below, const struct cache_options *options)
{
    const struct cache_policy_ops *policy = options->policy != NULL ? options->policy : &cache_policy_s3fifo;
    uint32_t count = (uint32_t)(options->bytes / PAGE_BYTES);
    ASSERT(below->info.max_request == 0 || below->info.max_request >= PAGE_BYTES);
    struct cache *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    if (!blocks_init(&c->blocks, count, policy, loop_random(below->loop))) {
        cache_free(c);
        return NULL;
    }
    c->below = below;
    c->overhead = blocks_bytes(count, policy) + count * sizeof(struct page);
    blkdev_init(&c->dev, &cache_ops, below->loop, options->name, &below->info);
    read_init(c);
    change_init(c);
    flush_init(c);
    c->watcher.event = below_tells;
    blk_watch(below, &c->watcher);
    return c;
}

struct blkdev *cache_dev(struct cache *c)
{
    return &c->dev;
}

void cache_status(const struct cache *c, struct cache_status *out)
{
    *out = (struct cache_status){.bytes = (uint64_t)c->blocks.count * PAGE_BYTES,
                                 .used_bytes = (uint64_t)c->blocks.used * PAGE_BYTES,
                                 .overhead_bytes = c->overhead,
                                 .hits = c->hits,
                                 .misses = c->misses,
                                 .hit_bytes = c->hit_bytes,
                                 .passed_by = c->passed_by,
                                 .evicted = c->blocks.evicted,
                                 .policy = c->blocks.policy->ops->name};
}
