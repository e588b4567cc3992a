/* The crossing between any two layers, checked on the way in and on the way out: see core/blkdev.h. */
#include "core/blkdev.h"

#include <string.h>

#include "core/check.h"
#include "core/log.h"

void blkdev_init(struct blkdev *dev, const struct blkdev_ops *ops, struct loop *loop, const char *name,
                 const struct blk_info *info)
{
    ASSERT(is_power_of_two(info->logical_block) && info->logical_block >= 512 && info->logical_block <= PAGE_BYTES);
    ASSERT(info->size % info->logical_block == 0);
    *dev = (struct blkdev){.ops = ops, .loop = loop, .info = *info};
    text_format(dev->name, sizeof dev->name, "%s", name);
    TAILQ_INIT(&dev->watchers);
}

bool blk_op_has_data(enum blk_op op)
{
    return op == BLK_READ || op == BLK_WRITE;
}

bool blk_op_writes(enum blk_op op)
{
    return op == BLK_WRITE || op == BLK_DISCARD || op == BLK_WRITE_ZEROES;
}

static void check_range(const struct blkdev *dev, const struct blk_req *req)
{
    if (req->op == BLK_FLUSH) {
        ASSERT(req->off == 0 && req->len == 0);
        return;
    }
    ASSERT(req->len > 0 && req->off % dev->info.logical_block == 0 && req->len % dev->info.logical_block == 0);
    ASSERT(req->off <= dev->info.size && req->len <= dev->info.size - req->off);
    if (blk_op_has_data(req->op)) {
        ASSERT(req->pages != NULL);
        ASSERT(dev->info.max_request == 0 || req->len <= dev->info.max_request);
    }
}

static void run_done(struct task *task)
{
    struct blk_req *req = container_of(task, struct blk_req, task);
    struct blkdev *dev = req->dev;
    ASSERT(dev->in_flight > 0);
    dev->in_flight--;
    if (req->status != BLK_OK)
        dev->counters.errors[req->op]++;
    if (req->status == BLK_MEDIA)
        ASSERT(req->bad_off >= req->off && req->bad_off - req->off < req->len);
    req->dev = NULL;
    req->done(req);
}

static void answer_status(struct blkdev *dev, struct blk_req *req)
{
    req->extent = req->len;
    req->written = dev->ops->block_status == NULL || dev->ops->block_status(dev, req->off, req->len, &req->extent);
    ASSERT(req->extent > 0 && req->extent <= req->len);
    blk_complete(req, BLK_OK);
}

void blk_submit(struct blkdev *dev, struct blk_req *req)
{
    ASSERT(loop_is_current(dev->loop) && !dev->closing);
    ASSERT(req->dev == NULL && req->done != NULL && (unsigned)req->op < BLK_OP_COUNT);
    check_range(dev, req);
    req->dev = dev;
    req->task.run = run_done;
    dev->in_flight++;
    dev->counters.requests[req->op]++;
    dev->counters.bytes[req->op] += req->len;
    if (dev->info.read_only && blk_op_writes(req->op)) {
        blk_complete(req, BLK_READONLY);
        return;
    }
    if (req->op == BLK_STATUS && !dev->ops->submits_status)
        answer_status(dev, req);
    else
        dev->ops->submit(dev, req);
}

void blk_complete(struct blk_req *req, enum blk_status status)
{
    ASSERT(req->dev != NULL);
    req->status = status;
    if (status == BLK_MEDIA)
        req->bad_off = req->off;
    loop_defer(req->dev->loop, &req->task);
}

void blk_complete_media(struct blk_req *req, uint64_t bad_off)
{
    blk_complete(req, BLK_MEDIA);
    req->bad_off = bad_off;
}

void blk_close(struct blkdev *dev, struct task *closed)
{
    ASSERT(loop_is_current(dev->loop) && !dev->closing && dev->in_flight == 0);
    dev->closing = true;
    dev->ops->close(dev, closed);
}

void blk_watch(struct blkdev *dev, struct blk_watcher *watcher)
{
    TAILQ_INSERT_TAIL(&dev->watchers, watcher, link);
}

void blk_unwatch(struct blkdev *dev, struct blk_watcher *watcher)
{
    TAILQ_REMOVE(&dev->watchers, watcher, link);
}

void blk_notify(struct blkdev *dev, enum blk_event event)
{
    struct blk_watcher *watcher, *next;
    for (watcher = TAILQ_FIRST(&dev->watchers); watcher != NULL; watcher = next) {
        next = TAILQ_NEXT(watcher, link);
        watcher->event(watcher, dev, event);
    }
}

const char *blk_op_name(enum blk_op op)
{
    static const char *const names[BLK_OP_COUNT] = {"read", "write", "flush", "discard", "write-zeroes", "status"};
    return (unsigned)op < BLK_OP_COUNT ? names[op] : "unknown";
}

const char *blk_status_name(enum blk_status status)
{
    static const char *const names[] = {"ok",       "media error", "device gone",  "timed out",
                                        "no space", "read-only",   "not possible", "late"};
    return (unsigned)status < ARRAY_LENGTH(names) ? names[status] : "unknown";
}
