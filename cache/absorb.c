/*
 * Writes that stay here: their bytes are copied into blocks, and they are answered from memory.
 *
 *      room for all of it? --no, too much is dirty----> waits at the head of the line, until destages make room
 *         |                --no, readers hold the pages--> goes below instead (change.c)
 *         v
 *      answered: at once, or, above the high watermark, when its share of what leaves has left (throttle.h)
 *
 * A1  A request that is kept in part only is not answered. It goes on where it was, or below as a whole.
 * A2  A block that is leaving is not changed: the write gets a page of its own (block.h, B2), and what it wrote is
 *     dirty again.
 */
#include "cache/cache_impl.h"

static void delay_fire(struct timer *timer);

void absorb_init(struct cache *c)
{
    STAILQ_INIT(&c->delayed);
    c->delay.fire = delay_fire;
}

/* --- bytes into blocks --- */

static void dirty_sectors(struct cache *c, struct line *line, struct block *b, uint8_t sectors)
{
    unsigned again = (unsigned)__builtin_popcount(b->dirty & sectors);
    c->counted.rewritten_bytes += again * SECTOR_BYTES;
    b->valid |= sectors;
    dirt_add(c, line, b, sectors);
    commit_dirtied(c, line, b);
}

static enum absorbed keep_in_line(struct cache *c, const struct blk_req *req, uint64_t number, struct line *line)
{
    uint8_t sectors = sectors_of(number, req->off, req->off + req->len);
    struct block *b = block_get(&c->blocks, number, false);
    if (b == NULL)
        return ABSORB_NO_PAGE;
    block_used(&c->blocks, b);
    block_hold(&c->blocks, b);
    bool writable = block_writable(&c->blocks, b, sectors);
    if (writable) {
        sectors_copy(b->page, req->pages[number - req->off / PAGE_BYTES], sectors);
        dirty_sectors(c, line, b, sectors);
    }
    block_settle(&c->blocks, b);
    return writable ? ABSORBED : ABSORB_NO_PAGE;
}

static enum absorbed keep_block(struct cache *c, const struct blk_req *req, uint64_t number)
{
    const struct block *b = block_find(&c->blocks, number);
    bool more = b == NULL || block_kept(b) == 0;
    if (more && c->dirty_blocks + c->settling_blocks >= c->dirty_limit)
        return ABSORB_NO_ROOM;
    struct line *line = line_get(&c->lines, number / c->lines.blocks);
    if (line == NULL)
        return ABSORB_NO_ROOM;
    enum absorbed result = keep_in_line(c, req, number, line);
    line_settle(&c->lines, line);
    return result;
}

enum absorbed absorb(struct cache *c, struct blk_req *req)
{
    while (req->scratch[0] < req->len) {
        uint64_t number = (req->off + req->scratch[0]) / PAGE_BYTES;
        enum absorbed result = keep_block(c, req, number);
        if (result != ABSORBED)
            return result;
        req->scratch[0] = MIN((number + 1) * PAGE_BYTES - req->off, req->len);
    }
    c->counted.absorbed++;
    c->counted.absorbed_bytes += req->len;
    return ABSORBED;
}

/* --- answers --- */

static void delay_arm(struct cache *c)
{
    const struct blk_req *first = STAILQ_FIRST(&c->delayed);
    uint64_t now = cache_now_ns(c);
    if (first != NULL && !c->delayed_held && !c->delay.armed)
        timer_start(c->dev.loop, &c->delay, first->scratch[1] - MIN(now, first->scratch[1]));
}

static void answer(struct cache *c, struct blk_req *req)
{
    if (req->flags & BLK_FUA && !mode_flushes_at_once(c) && c->o.log != NULL)
        flush_submit(c, req);
    else
        blk_complete(req, BLK_OK);
}

static void delay_fire(struct timer *timer)
{
    struct cache *c = container_of(timer, struct cache, delay);
    struct blk_req *req;
    while ((req = STAILQ_FIRST(&c->delayed)) != NULL && req->scratch[1] <= cache_now_ns(c)) {
        STAILQ_REMOVE_HEAD(&c->delayed, link);
        answer(c, req);
    }
    delay_arm(c);
}

/* What is dirty left faster than its rate had said. */
void absorb_go_on(struct cache *c)
{
    struct blk_req *req;
    if (c->delayed_held || throttle_pressure(cache_fill_permille(c), c->o.high_percent) > 0)
        return;
    throttle_forget(&c->throttle);
    timer_stop(c->dev.loop, &c->delay);
    while ((req = STAILQ_FIRST(&c->delayed)) != NULL) {
        STAILQ_REMOVE_HEAD(&c->delayed, link);
        answer(c, req);
    }
}

void absorb_answer(struct cache *c, struct blk_req *req)
{
    uint64_t now = cache_now_ns(c);
    unsigned pressure = throttle_pressure(cache_fill_permille(c), c->o.high_percent);
    uint64_t due = throttle_due_ns(&c->throttle, now, req->len, pressure);
    if (due <= now && STAILQ_EMPTY(&c->delayed)) {
        answer(c, req);
        return;
    }
    c->counted.delayed++;
    c->counted.delayed_ns += due - now;
    req->scratch[1] = due;
    STAILQ_INSERT_TAIL(&c->delayed, req, link);
    delay_arm(c);
}

void absorb_refuse(struct cache *c, enum blk_status status)
{
    struct blk_req *req;
    while (c->delayed_held && (req = STAILQ_FIRST(&c->delayed)) != NULL) {
        STAILQ_REMOVE_HEAD(&c->delayed, link);
        blk_complete(req, cache_status_elsewhere(status));
    }
}

void absorb_hold(struct cache *c, bool held)
{
    c->delayed_held = held;
    timer_stop(c->dev.loop, &c->delay);
    delay_arm(c);
}
