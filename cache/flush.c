/*
 * Flushes: what they cover is destaged, then the volume is flushed.
 *
 *      flush_waiting      until no line, and no run on its way, is of its epoch or an older one
 *            |
 *      flush_next         until the flush that is under way below is over; all that are here share the next one
 *            |
 *      flush_now          under way
 *
 * F1  A flush ends an epoch: what becomes dirty after it was asked for is of a later one, so it waits for nothing new.
 * F2  If data that it waits for cannot be destaged, it is answered with that error; the data stays, so the next flush
 *     is not answered before it is below either.
 * F3  If the volume fails a flush that no initiator's flush waited for (but a drain, or changes, which are told of
 *     themselves only), the next flush of an initiator is answered so: what the members forgot may be what it covers.
 * F4  A drain is a flush of our own, asked for again until it succeeds: when power fails, and at the end.
 */
#include "cache/cache_impl.h"

#include "core/log.h"

/* Without a byte written in between: about 3 seconds, and, if initiators were told that it is safe, and there is time, a
 * minute. */
enum { CLOSE_TRIES = 5, CLOSE_TRIES_PROMISED = 12 };

static void flush_done(struct blk_req *child);

/* --- drains --- */

/* More may have become dirty since a drain that is under way was asked for. */
void drain_start(struct cache *c)
{
    c->drain_wanted = true;
    if (c->draining)
        return;
    c->draining = true;
    c->drain_wanted = false;
    c->drain = (struct blk_req){.op = BLK_FLUSH, .flags = CACHE_DRAIN};
    flush_submit(c, &c->drain);
}

static void drain_failed(struct cache *c, enum blk_status status)
{
    bool worked = c->counted.destaged_bytes != c->close_destaged;
    c->drain_wanted = true;
    c->close_destaged = c->counted.destaged_bytes;
    c->close_tries = c->closed == NULL || worked ? 0 : c->close_tries + 1;
    absorb_refuse(c, status);
    if (c->close_tries < (c->dev.info.volatile_cache || c->hurry ? CLOSE_TRIES : CLOSE_TRIES_PROMISED)) {
        destage_retry_later(c);
        return;
    }
    c->emptied = true;
    log_error("cache %s: closed with %lu KiB that could not be written: %s; %s", c->dev.name,
              (unsigned long)c->dirty_blocks * (PAGE_BYTES / 1024), blk_status_name(status),
              c->o.arena != NULL && !c->bare ? "they stay in its arena"
              : commit_is_in_use(c)          ? "what was flushed stays in its log"
                                             : "they are lost");
}

static void drain_succeeded(struct cache *c)
{
    absorb_hold(c, false);
    c->bare = false;
    mode_look(c);
    claim_look(c);
}

static void drain_over(struct cache *c, enum blk_status status)
{
    if (status == BLK_OK && settle_holds_drain(c))
        return;
    c->draining = false;
    if (status != BLK_OK)
        drain_failed(c, status);
    else if (c->drain_wanted)
        drain_start(c);
    else if (c->closed != NULL)
        c->emptied = !commit_closes(c);
    else
        drain_succeeded(c);
    cache_close_if_idle(c);
}

void flush_drain_settled(struct cache *c, enum blk_status status)
{
    drain_over(c, status);
}

/* --- flushes --- */

static void flush_answer(struct cache *c, struct blk_req *req, enum blk_status status)
{
    if (req == &c->drain)
        drain_over(c, status);
    else if (commit_drained(c, req, status) || commit_flushed(c, req, status))
        return;
    else if (req == &c->settle.flush)
        settle_asked_over(c);
    else if (req->flags & CACHE_CHANGE)
        change_flushed(req, status);
    else
        blk_complete(req, cache_status_elsewhere(status));
}

static bool is_below(const struct cache *c, uint32_t epoch)
{
    const struct line *oldest = line_oldest(&c->lines);
    const struct destage *d;
    if (oldest != NULL && (int32_t)(oldest->epoch - epoch) <= 0)
        return false;
    for (d = LIST_FIRST(&c->destages); d != NULL; d = LIST_NEXT(d, link))
        if ((int32_t)(d->epoch - epoch) <= 0)
            return false;
    return true;
}

void flush_go_on(struct cache *c)
{
    struct blk_req *req;
    while ((req = STAILQ_FIRST(&c->flush_waiting)) != NULL && is_below(c, (uint32_t)req->scratch[0])) {
        STAILQ_REMOVE_HEAD(&c->flush_waiting, link);
        STAILQ_INSERT_TAIL(&c->flush_next, req, link);
    }
    if (c->flushing || STAILQ_EMPTY(&c->flush_next))
        return;
    c->flushing = true;
    settle_flush_begins(c);
    STAILQ_CONCAT(&c->flush_now, &c->flush_next);
    c->flush = (struct blk_req){.op = BLK_FLUSH, .done = flush_done};
    blk_submit(c->below, &c->flush);
}

static void flush_done(struct blk_req *child)
{
    struct cache *c = container_of(child, struct cache, flush);
    struct blk_req_list now = STAILQ_HEAD_INITIALIZER(now);
    enum blk_status status = child->status; /* the next one uses the same request */
    struct blk_req *req;
    STAILQ_CONCAT(&now, &c->flush_now);
    c->flushing = false;
    settle_flush_ends(c, status);
    flush_go_on(c);
    while ((req = STAILQ_FIRST(&now)) != NULL) {
        STAILQ_REMOVE_HEAD(&now, link);
        if ((req == &c->drain || req == &c->commit.drain || req == &c->commit.lazy) && status != BLK_OK)
            c->owed = status; /* F3 */
        flush_answer(c, req, status);
    }
}

void flush_submit(struct cache *c, struct blk_req *req)
{
    bool own = req == &c->drain || req == &c->commit.drain || req == &c->commit.lazy;
    if (c->owed != BLK_OK && !own) {
        enum blk_status owed = c->owed;
        c->owed = BLK_OK;
        flush_answer(c, req, owed);
        return;
    }
    if (mode_flushes_at_once(c) && !(req->flags & CACHE_DRAIN)) {
        blk_complete(req, BLK_OK);
        return;
    }
    if (commit_is_in_use(c) && !(req->flags & CACHE_DRAIN)) {
        commit_wait(c, req);
        return;
    }
    if (c->paused) {
        flush_answer(c, req, c->counted.trouble); /* F2 */
        return;
    }
    lines_recall(&c->lines, c->epoch);
    req->scratch[0] = c->flush_epoch = c->epoch++;
    STAILQ_INSERT_TAIL(&c->flush_waiting, req, link);
    flush_go_on(c);
    destage_pump(c);
}

void flush_then_answer(struct cache *c, struct blk_req *req)
{
    STAILQ_INSERT_TAIL(&c->flush_next, req, link);
    flush_go_on(c);
}

void flush_failed(struct cache *c, uint32_t epoch, enum blk_status status)
{
    struct blk_req_list waiting = STAILQ_HEAD_INITIALIZER(waiting);
    struct blk_req *req;
    STAILQ_CONCAT(&waiting, &c->flush_waiting);
    while ((req = STAILQ_FIRST(&waiting)) != NULL) {
        STAILQ_REMOVE_HEAD(&waiting, link);
        if ((int32_t)((uint32_t)req->scratch[0] - epoch) >= 0)
            flush_answer(c, req, status);
        else
            STAILQ_INSERT_TAIL(&c->flush_waiting, req, link);
    }
}

void cache_hurry(struct cache *c, bool hurry)
{
    c->hurry = hurry;
}

void cache_drain(struct cache *c, struct blk_req *req)
{
    req->op = BLK_FLUSH;
    req->flags = CACHE_DRAIN;
    req->off = req->len = 0;
    blk_submit(&c->dev, req);
}

void flush_init(struct cache *c)
{
    STAILQ_INIT(&c->flush_waiting);
    STAILQ_INIT(&c->flush_next);
    STAILQ_INIT(&c->flush_now);
}
