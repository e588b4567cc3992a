/* Birth, end and the way in of a cache: see cache/cache.h. */
#include "cache/cache.h"

#include <stdlib.h>

#include "cache/cache_impl.h"

enum { LINE_PARTS_MAX = 1024 };
#define LINE_LEAST (256 * KIB)
#define LINE_MOST  (4 * MIB)

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
    struct cache *c = cache_of(dev);
    if (!(req->flags & BLK_BACKGROUND))
        c->request_ns = cache_now_ns(c);
    ways[req->op](c, req);
}

void cache_changed(struct cache *c)
{
    if (c->o.owner != NULL)
        c->o.owner->changed(c->o.owner, c);
}

/*
 * What was beyond the old end, or is beyond the new one, is no more, though it was dirty or is leaving: the volume has no
 * place for it.
 */
static void resized(struct cache *c, uint64_t size)
{
    uint64_t end = MIN(size, c->dev.info.size);
    bool shorter = size < c->dev.info.size;
    c->dev.info.size = size;
    for (uint32_t i = 0; i < c->blocks.count; i++) {
        struct block *b = blocks_slot(&c->blocks, i);
        if (b == NULL || (block_number(b) + 1) * PAGE_BYTES <= end)
            continue;
        uint8_t sectors = sectors_of(block_number(b), MAX(end, block_number(b) * PAGE_BYTES), UINT64_MAX);
        block_hold(&c->blocks, b);
        dirt_drop(c, b, sectors);
        block_forget(&c->blocks, b, sectors);
        block_settle(&c->blocks, b);
    }
    if (shorter)
        commit_shrunk(c, size);
    change_resized(c);
}

static void below_tells(struct blk_watcher *watcher, struct blkdev *below, enum blk_event event)
{
    struct cache *c = container_of(watcher, struct cache, watcher);
    c->dev.info.read_only = below->info.read_only;
    if (event == BLK_EVENT_CACHE) {
        mode_tell(c);
        return;
    }
    if (event == BLK_EVENT_RESIZED)
        resized(c, below->info.size);
    if (event == BLK_EVENT_FAILED) { /* nothing more is kept on its behalf, before a destage finds out */
        c->paused = true;
        c->counted.trouble = c->counted.trouble == BLK_OK ? BLK_GONE : c->counted.trouble;
        destage_retry_later(c);
    }
    flush_go_on(c);
    blk_notify(&c->dev, event);
}

/* --- birth and end --- */

static void cache_free(struct cache *c)
{
    commit_detach(c);
    claim_fini(c);
    settle_fini(c);
    destage_fini(c);
    lines_fini(&c->lines);
    blocks_fini(&c->blocks);
    free(c);
}

static void close_look(struct task *task)
{
    struct cache *c = container_of(task, struct cache, close_task);
    if (!c->emptied || c->draining || c->flushing || !settle_is_idle(c) || !commit_is_idle(c) || c->destaging > 0 ||
        !LIST_EMPTY(&c->fetches))
        return;
    claim_look(c);
    if (claim_waits(c))
        return;
    struct loop *loop = c->dev.loop;
    struct task *closed = c->closed;
    blk_unwatch(c->below, &c->watcher);
    cache_free(c);
    loop_defer(loop, closed);
}

/* Deferred: the caller may still be at work. */
void cache_close_if_idle(struct cache *c)
{
    if (c->closed != NULL && !c->close_task.queued)
        loop_defer(c->dev.loop, &c->close_task);
}

/* All requests are answered; dirty data, and fetches that nobody waits for, may be left. */
static void cache_close(struct blkdev *dev, struct task *closed)
{
    struct cache *c = cache_of(dev);
    c->closed = closed;
    timer_stop(c->dev.loop, &c->claim_again); /* now or never */
    commit_claim_changed(c);
    drain_start(c);
}

static const struct blkdev_ops cache_ops = {
    .kind = "cache", .submit = cache_submit, .close = cache_close, .submits_status = true};

/*
 * A line is a row, or as many rows as are at least LINE_LEAST, or, of a row above LINE_MOST, the largest equal part
 * that is whole blocks.
 */
static uint32_t line_blocks(const struct blk_info *info)
{
    uint64_t row = info->optimal_io != 0 ? info->optimal_io : LINE_LEAST, bytes = row;
    while (bytes < LINE_LEAST || bytes % PAGE_BYTES != 0)
        bytes += row;
    for (uint64_t parts = 2; bytes > LINE_MOST; parts++)
        if (row % parts == 0 && row / parts <= LINE_MOST && row / parts % PAGE_BYTES == 0)
            bytes = row / parts;
        else if (parts > LINE_PARTS_MAX)
            bytes = LINE_LEAST;
    return (uint32_t)(bytes / PAGE_BYTES);
}

static struct cache_options options_of(const struct cache_options *given)
{
    struct cache_options o = *given;
    o.policy = o.policy != NULL ? o.policy : &cache_policy_s3fifo;
    o.low_percent = o.low_percent != 0 ? o.low_percent : 40;
    o.high_percent = o.high_percent != 0 ? o.high_percent : 80;
    o.age_ms = o.age_ms != 0 ? o.age_ms : 5000;
    o.idle_ms = o.idle_ms != 0 ? o.idle_ms : 100;
    ASSERT(o.log == NULL || (o.arena == NULL && o.protection == CACHE_PROTECT_JOURNAL));
    ASSERT(o.bytes >= CACHE_BYTES_MIN && o.low_percent < o.high_percent && o.high_percent <= 100);
    return o;
}

static bool memory_take(struct cache *c)
{
    uint64_t bytes = c->o.arena != NULL ? arena_cache_bytes(c->o.arena) : c->o.bytes;
    uint32_t count = (uint32_t)MIN(bytes / PAGE_BYTES, CACHE_SLOT_NONE - 1);
    uint32_t lines = MAX(count / LINES_FRACTION, recover_lines(c->o.arena));
    c->overhead = blocks_bytes(count, c->o.policy) + lines_bytes(lines) + count * sizeof(struct page) +
                  (c->o.arena != NULL ? arena_bytes(bytes) - bytes : 0);
    return blocks_init(&c->blocks, count, c->o.policy, loop_random(c->below->loop), c->o.arena) &&
           lines_init(&c->lines, lines, line_blocks(&c->below->info), (uint32_t)loop_random(c->below->loop)) &&
           destage_init(c) && settle_init(c);
}

struct cache *cache_create(struct blkdev *below, const struct cache_options *options)
{
    ASSERT(below->info.max_request == 0 || below->info.max_request >= PAGE_BYTES);
    struct cache *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->below = below;
    c->o = options_of(options);
    blkdev_init(&c->dev, &cache_ops, below->loop, options->name, &below->info);
    c->o.name = NULL; /* the caller's */
    if (!memory_take(c)) {
        cache_free(c);
        return NULL;
    }
    read_init(c);
    change_init(c);
    absorb_init(c);
    flush_init(c);
    commit_attach(c);
    claim_init(c);
    mode_init(c);
    if (!recover(c)) {
        cache_free(c);
        return NULL;
    }
    c->close_task.run = close_look;
    c->watcher.event = below_tells;
    blk_watch(below, &c->watcher);
    if (c->o.claimed && !mode_wants_claim(c))
        drain_start(c);
    claim_look(c);
    destage_pump(c);
    return c;
}

struct blkdev *cache_dev(struct cache *c)
{
    return &c->dev;
}

void cache_status(const struct cache *c, struct cache_status *out)
{
    *out = c->counted;
    out->bytes = (uint64_t)c->blocks.count * PAGE_BYTES;
    out->used_bytes = (uint64_t)c->blocks.used * PAGE_BYTES;
    out->overhead_bytes = c->overhead;
    out->evicted = c->blocks.evicted;
    out->ahead_used_bytes = c->blocks.guesses_used * PAGE_BYTES;
    out->ahead_wasted_bytes = c->blocks.guesses_wasted * PAGE_BYTES;
    out->policy = c->blocks.policy->ops->name;
    out->mode = c->mode;
    out->reason = mode_reason(c);
    out->volatile_cache = c->dev.info.volatile_cache;
    out->claimed = (c->o.arena != NULL || c->o.log != NULL) && claim_is_held(c);
    out->dirty_bytes = (uint64_t)c->dirty_blocks * PAGE_BYTES;
    out->settling_bytes = (uint64_t)c->settling_blocks * PAGE_BYTES;
    out->dirty_limit = (uint64_t)c->dirty_limit * PAGE_BYTES;
    out->aside_lines = c->lines.aside;
    out->destage_rate = c->throttle.rate;
}
