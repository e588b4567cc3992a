/*
 * Flushes: one below at a time. Those that come while it is under way share the next one; so a flush always covers what
 * completed before it was asked for.
 */
#include "cache/cache_impl.h"
#include "core/log.h"

static void flush_done(struct blk_req *child);

static void flush_go_on(struct cache *c)
{
    if (c->flushing || STAILQ_EMPTY(&c->flush_next))
        return;
    c->flushing = true;
    STAILQ_CONCAT(&c->flush_now, &c->flush_next);
    c->flush = (struct blk_req){.op = BLK_FLUSH, .done = flush_done};
    blk_submit(c->below, &c->flush);
}

/* The last one is of cache_close(), which nobody submitted. */
static void flush_answer(struct cache *c, struct blk_req *req, const struct blk_req *child)
{
    if (req != &c->last_flush) {
        cache_answer(req, child);
        return;
    }
    if (child->status != BLK_OK)
        log_warn("cache %s: closed, and a flush beneath it failed: %s", c->dev.name, blk_status_name(child->status));
    c->flushed = true;
    cache_close_if_idle(c);
}

static void flush_done(struct blk_req *child)
{
    struct cache *c = container_of(child, struct cache, flush);
    struct blk_req_list now = STAILQ_HEAD_INITIALIZER(now);
    struct blk_req *req;
    STAILQ_CONCAT(&now, &c->flush_now);
    c->flushing = false;
    flush_go_on(c);
    while ((req = STAILQ_FIRST(&now)) != NULL) {
        STAILQ_REMOVE_HEAD(&now, link);
        flush_answer(c, req, child);
    }
}

void flush_submit(struct cache *c, struct blk_req *req)
{
    STAILQ_INSERT_TAIL(&c->flush_next, req, link);
    flush_go_on(c);
}

void flush_init(struct cache *c)
{
    STAILQ_INIT(&c->flush_next);
    STAILQ_INIT(&c->flush_now);
}
