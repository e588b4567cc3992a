/* See raid/front.h. */
#include "raid/front.h"

#include <stdlib.h>

#include "raid/pool.h"

enum { PAIRS = 64 };
enum { OLD_SIDE, NEW_SIDE, SIDES };
enum health { HEALTHY, DEGRADED, FAILED };

/* A request that is for both sides, or a flush. */
struct front_pair {
    struct pool_entry entry;
    struct front *front;
    struct blk_req *parent, half[SIDES];
    unsigned pending;
    enum blk_status status;
    uint64_t bad_off;
};

struct front {
    struct blkdev dev;
    struct front_side {
        struct volume *volume; /* new side: NULL, there is one side only */
        struct blk_watcher watcher;
        struct front *front;
    } sides[SIDES];
    enum health announced;
    bool backward;
    uint64_t position, moving;
    enum front_hold hold;
    struct blk_req_list held, unpaired; /* in the window; without a context */
    struct task *waits, pair_task;
    bool pair_waits;
    struct pool pairs;
    struct front_pair *memory;
};

struct blkdev *front_dev(struct front *f)
{
    return &f->dev;
}

static bool is_split(const struct front *f)
{
    return f->sides[NEW_SIDE].volume != NULL;
}

static bool all_passed(const struct front *f)
{
    return f->position == (f->backward ? 0 : f->dev.info.size);
}

static bool none_passed(const struct front *f)
{
    return f->position == (f->backward ? f->dev.info.size : 0);
}

/* --- pairs --- */

static void pair_begin(struct front *f, struct front_pair *pair, struct blk_req *req);

static void pair_granted(struct task *task)
{
    struct front *f = container_of(task, struct front, pair_task);
    struct front_pair *pair = container_of(pool_claim(&f->pairs), struct front_pair, entry);
    struct blk_req *req = STAILQ_FIRST(&f->unpaired);
    STAILQ_REMOVE_HEAD(&f->unpaired, link);
    f->pair_waits = !STAILQ_EMPTY(&f->unpaired);
    if (f->pair_waits)
        pool_wait(&f->pairs, &f->pair_task);
    pair_begin(f, pair, req);
}

static void half_done(struct front_pair *pair, const struct blk_req *half)
{
    if (half->status == BLK_MEDIA)
        pair->bad_off = MIN(pair->bad_off, half->bad_off);
    if (half->status != BLK_OK && pair->status != BLK_MEDIA)
        pair->status = half->status;
    if (--pair->pending > 0)
        return;
    struct blk_req *parent = pair->parent;
    if (pair->status == BLK_MEDIA)
        blk_complete_media(parent, pair->bad_off);
    else
        blk_complete(parent, pair->status);
    pool_put(&pair->front->pairs, &pair->entry);
}

static void old_done(struct blk_req *half)
{
    half_done(container_of(half, struct front_pair, half[OLD_SIDE]), half);
}

static void new_done(struct blk_req *half)
{
    half_done(container_of(half, struct front_pair, half[NEW_SIDE]), half);
}

static void half_submit(struct front_pair *pair, unsigned side, uint64_t off, uint64_t len)
{
    const struct blk_req *parent = pair->parent;
    struct blk_req *half = &pair->half[side];
    *half = (struct blk_req){.op = parent->op, .flags = parent->flags, .off = off, .len = len};
    half->done = side == OLD_SIDE ? old_done : new_done;
    if (blk_op_has_data(parent->op))
        half->pages = parent->pages + (parent->off % PAGE_BYTES + off - parent->off) / PAGE_BYTES;
    blk_submit(volume_dev(pair->front->sides[side].volume), half);
}

static void pair_begin(struct front *f, struct front_pair *pair, struct blk_req *req)
{
    unsigned first = f->backward ? OLD_SIDE : NEW_SIDE;
    uint64_t at = req->op == BLK_FLUSH ? 0 : f->position - req->off;
    pair->parent = req;
    pair->pending = SIDES;
    pair->status = BLK_OK;
    pair->bad_off = UINT64_MAX;
    half_submit(pair, first, req->off, at);
    half_submit(pair, 1 - first, req->op == BLK_FLUSH ? 0 : f->position, req->len - at);
}

/* The position may be another when its turn comes. */
static void pair_start(struct front *f, struct blk_req *req)
{
    struct pool_entry *entry = f->pair_waits ? NULL : pool_get(&f->pairs);
    if (entry != NULL) {
        pair_begin(f, container_of(entry, struct front_pair, entry), req);
        return;
    }
    STAILQ_INSERT_TAIL(&f->unpaired, req, link);
    if (!f->pair_waits)
        pool_wait(&f->pairs, &f->pair_task);
    f->pair_waits = true;
}

/* --- whose is it? --- */

static bool must_wait(const struct front *f, const struct blk_req *req)
{
    uint64_t low = MIN(f->position, f->moving), high = MAX(f->position, f->moving);
    if (f->hold == FRONT_PASS || req->off >= high || req->off + req->len <= low)
        return false;
    return f->hold != FRONT_HOLD_WRITES || req->op != BLK_READ;
}

static void route(struct front *f, struct blk_req *req)
{
    uint64_t end = req->off + req->len;
    if (!is_split(f)) {
        volume_take(f->sides[OLD_SIDE].volume, req);
    } else if (req->op == BLK_FLUSH && all_passed(f)) { /* what the old side had is durable on the new one */
        volume_take(f->sides[NEW_SIDE].volume, req);
    } else if (req->op == BLK_FLUSH && none_passed(f)) {
        volume_take(f->sides[OLD_SIDE].volume, req);
    } else if (req->op == BLK_FLUSH) {
        pair_start(f, req);
    } else if (must_wait(f, req) && f->hold == FRONT_REFUSE) {
        blk_complete(req, BLK_GONE);
    } else if (must_wait(f, req)) {
        STAILQ_INSERT_TAIL(&f->held, req, link);
        if (f->waits != NULL && !f->waits->queued)
            loop_defer(f->dev.loop, f->waits);
    } else if (req->off < f->position && end > f->position) {
        pair_start(f, req);
    } else {
        bool in_front = end <= f->position;
        volume_take(f->sides[in_front == f->backward ? OLD_SIDE : NEW_SIDE].volume, req);
    }
}

static void front_submit(struct blkdev *dev, struct blk_req *req)
{
    route(container_of(dev, struct front, dev), req);
}

static bool front_block_status(struct blkdev *dev, uint64_t off, uint64_t len, uint64_t *extent)
{
    struct front *f = container_of(dev, struct front, dev);
    unsigned side = OLD_SIDE;
    if (is_split(f)) {
        bool in_front = off < f->position;
        side = in_front == f->backward ? OLD_SIDE : NEW_SIDE;
        len = in_front ? MIN(len, f->position - off) : len;
    }
    *extent = len;
    struct blkdev *volume = volume_dev(f->sides[side].volume);
    return volume->ops->block_status(volume, off, len, extent);
}

/* --- telling --- */

static void look_at_health(struct front *f)
{
    static const enum blk_event events[] = {BLK_EVENT_RESTORED, BLK_EVENT_DEGRADED, BLK_EVENT_FAILED};
    enum health now = HEALTHY;
    for (unsigned side = 0; side < SIDES && f->sides[side].volume != NULL; side++) {
        const struct volume *v = f->sides[side].volume;
        if (is_split(f) && (side == OLD_SIDE ? all_passed(f) : none_passed(f))) /* it holds nothing */
            continue;
        enum health health = volume_failed(v) ? FAILED : volume_degraded(v) ? DEGRADED : HEALTHY;
        now = MAX(now, health);
    }
    if (now == f->announced)
        return;
    f->announced = now;
    blk_notify(&f->dev, events[now]);
}

/* --- the window --- */

static void release(struct front *f)
{
    struct blk_req_list held = STAILQ_HEAD_INITIALIZER(held);
    struct blk_req *req;
    STAILQ_CONCAT(&held, &f->held);
    while ((req = STAILQ_FIRST(&held)) != NULL) {
        STAILQ_REMOVE_HEAD(&held, link);
        route(f, req);
    }
}

void front_window(struct front *f, uint64_t moving, enum front_hold hold)
{
    f->moving = moving;
    f->hold = moving == f->position ? FRONT_PASS : hold;
    release(f);
}

void front_move(struct front *f, uint64_t position)
{
    f->position = position;
    front_window(f, position, FRONT_PASS);
    look_at_health(f);
}

bool front_is_waited_for(const struct front *f)
{
    return !STAILQ_EMPTY(&f->held);
}

/* --- events --- */

static void side_event(struct blk_watcher *watcher, struct blkdev *dev, enum blk_event event)
{
    struct front *f = container_of(watcher, struct front_side, watcher)->front;
    if (event != BLK_EVENT_RESIZED) {
        look_at_health(f);
        return;
    }
    f->dev.info.size = dev->info.size;
    blk_notify(&f->dev, event);
}

/* --- life --- */

static void side_set(struct front *f, unsigned side, struct volume *volume)
{
    struct front_side *s = &f->sides[side];
    if (s->volume != NULL)
        blk_unwatch(volume_dev(s->volume), &s->watcher);
    s->volume = volume;
    if (volume != NULL)
        blk_watch(volume_dev(volume), &s->watcher);
}

static void pairs_free(struct front *f)
{
    free(f->memory);
    f->memory = NULL;
}

bool front_split(struct front *f, struct volume *new_side, bool backward, uint64_t position, struct task *waits)
{
    ASSERT(!is_split(f) && f->memory == NULL);
    f->memory = calloc(PAIRS, sizeof *f->memory);
    if (f->memory == NULL)
        return false;
    pool_init(&f->pairs, f->dev.loop);
    for (unsigned i = 0; i < PAIRS; i++) {
        f->memory[i].front = f;
        pool_add(&f->pairs, &f->memory[i].entry);
    }
    /* What is promised from now on is what both sides keep. */
    struct blk_info *info = &f->dev.info;
    const struct blk_info *other = &volume_dev(new_side)->info;
    info->volatile_cache |= other->volatile_cache;
    info->discard_zeroes &= other->discard_zeroes;
    info->discards |= other->discards;
    info->atomic_write = MIN(info->atomic_write, other->atomic_write);
    f->backward = backward;
    f->position = f->moving = position;
    f->hold = FRONT_PASS;
    f->waits = waits;
    side_set(f, NEW_SIDE, new_side);
    look_at_health(f);
    return true;
}

bool front_is_joinable(const struct front *f)
{
    return all_passed(f) && f->pairs.free_count == f->pairs.count && STAILQ_EMPTY(&f->held) &&
           STAILQ_EMPTY(&f->unpaired);
}

void front_join(struct front *f, struct volume *volume)
{
    ASSERT(front_is_joinable(f));
    side_set(f, NEW_SIDE, NULL);
    side_set(f, OLD_SIDE, volume);
    f->waits = NULL;
    pairs_free(f);
    look_at_health(f);
}

static void front_close(struct blkdev *dev, struct task *closed)
{
    struct front *f = container_of(dev, struct front, dev);
    struct loop *loop = dev->loop;
    side_set(f, NEW_SIDE, NULL);
    side_set(f, OLD_SIDE, NULL);
    pairs_free(f);
    free(f);
    loop_defer(loop, closed);
}

static const struct blkdev_ops front_ops = {
    .kind = "volume", .submit = front_submit, .close = front_close, .block_status = front_block_status};

struct front *front_create(struct loop *loop, const char *name, struct volume *volume)
{
    struct front *f = calloc(1, sizeof *f);
    if (f == NULL)
        return NULL;
    blkdev_init(&f->dev, &front_ops, loop, name, &volume_dev(volume)->info);
    STAILQ_INIT(&f->held);
    STAILQ_INIT(&f->unpaired);
    f->pair_task.run = pair_granted;
    for (unsigned side = 0; side < SIDES; side++) {
        f->sides[side].front = f;
        f->sides[side].watcher.event = side_event;
    }
    side_set(f, OLD_SIDE, volume);
    f->announced = volume_failed(volume) ? FAILED : volume_degraded(volume) ? DEGRADED : HEALTHY;
    return f;
}
