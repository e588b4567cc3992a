/*
 * Settling: over an arena that outlives a power failure, what was destaged stays published until the volume has made it
 * durable.
 *
 *      destaged --> runs, in order --> a flush below begins: those that are here make its round
 *                                         |
 *                                         +-- it succeeds: their blocks are settled       \  some a turn
 *                                         +-- it fails:    their blocks are dirty again   /
 *
 * S1  One round at a time. What is destaged meanwhile is of the next one: blocks are odd or even, and one that was
 *     destaged again since is of the later round, all of it.
 * S2  Whoever asked for the flush, it makes a round. If nobody does, it is asked for here: after a second, when an eighth
 *     of the room for dirty data is settling, when the runs run short, and when a drain waits.
 * S3  Nothing is destaged when there is no room for its run. What is settling takes part of the room for dirty data.
 * S4  A drain is over when what had been destaged then has settled.
 */
#include "cache/cache_impl.h"

#include <stdlib.h>

enum { RUNS = 8192, BLOCKS_A_TURN = 1024, ROOM_FRACTION = 8 };
#define WAIT_NS  1000000000ull
#define AGAIN_NS 100000000ull /* for a line */

static void settle_ask(struct cache *c)
{
    struct settle *s = &c->settle;
    if (s->asked || s->state != SETTLE_IDLE || s->tail == s->head)
        return;
    s->asked = true;
    s->flush = (struct blk_req){.op = BLK_FLUSH};
    flush_then_answer(c, &s->flush);
}

/* S2 */
static void settle_look(struct cache *c)
{
    struct settle *s = &c->settle;
    if (s->tail == s->head)
        return;
    if (s->drain_waits || s->head - s->tail > RUNS / 2 || c->settling_blocks > c->dirty_limit / ROOM_FRACTION)
        settle_ask(c);
    if (!s->timer.armed)
        timer_start(c->dev.loop, &s->timer, WAIT_NS);
}

bool settle_has_room(const struct cache *c)
{
    return c->settle.head - c->settle.tail <= RUNS - DESTAGES;
}

bool settle_applies(const struct cache *c)
{
    return c->settle.runs != NULL && c->below->info.volatile_cache;
}

void settle_destaged(struct cache *c, uint64_t first, uint32_t count)
{
    struct settle *s = &c->settle;
    ASSERT(s->head - s->tail < RUNS && count <= UINT16_MAX);
    s->runs[s->head++ % RUNS] = (struct settle_run){.first = first, .count = (uint16_t)count};
    settle_look(c);
}

uint8_t settle_parity(const struct cache *c)
{
    return c->settle.odd ? BLOCK_ODD : 0;
}

/* --- rounds --- */

void settle_flush_begins(struct cache *c)
{
    struct settle *s = &c->settle;
    if (s->state != SETTLE_IDLE || s->tail == s->head)
        return;
    s->state = SETTLE_FLUSHING;
    s->end = s->head;
    s->odd = !s->odd;
}

void settle_flush_ends(struct cache *c, enum blk_status status)
{
    struct settle *s = &c->settle;
    if (s->state != SETTLE_FLUSHING)
        return;
    s->state = SETTLE_OVER;
    s->status = status;
    s->at = 0;
    loop_defer(c->dev.loop, &s->task);
}

void settle_asked_over(struct cache *c)
{
    c->settle.asked = false;
}

/* False: there is no line for it, now. */
static bool block_over(struct cache *c, uint64_t number)
{
    struct block *b = block_find(&c->blocks, number);
    if (b == NULL || b->settling == 0 || (b->flags & BLOCK_ODD) == settle_parity(c)) /* S1 */
        return true;
    if (c->settle.status != BLK_OK && !dirt_again(c, b, b->settling))
        return false;
    dirt_settle(c, b, 0);
    block_settle(&c->blocks, b);
    return true;
}

static void round_over(struct cache *c)
{
    struct settle *s = &c->settle;
    s->state = SETTLE_IDLE;
    if (s->drain_waits && (s->status != BLK_OK || s->tail >= s->drain_end)) {
        s->drain_waits = false;
        flush_drain_settled(c, s->status);
    }
    change_go_on(c);
    settle_look(c);
    cache_close_if_idle(c);
}

/* None will come free when the cache ends over a volume that takes nothing: what is in the arena stays there. */
static void line_wait(struct cache *c)
{
    if (c->emptied)
        c->settle.state = SETTLE_IDLE;
    else
        timer_start(c->dev.loop, &c->settle.timer, AGAIN_NS);
    cache_close_if_idle(c);
}

static void round_run(struct task *task)
{
    struct cache *c = container_of(task, struct cache, settle.task);
    struct settle *s = &c->settle;
    for (unsigned left = BLOCKS_A_TURN; s->tail != s->end && left > 0; left--) {
        const struct settle_run *run = &s->runs[s->tail % RUNS];
        if (!block_over(c, run->first + s->at)) {
            line_wait(c);
            return;
        }
        if (++s->at < run->count)
            continue;
        s->at = 0;
        s->tail++;
    }
    if (s->tail != s->end)
        loop_defer(c->dev.loop, task);
    else
        round_over(c);
}

static void settle_fire(struct timer *timer)
{
    struct cache *c = container_of(timer, struct cache, settle.timer);
    if (c->settle.state == SETTLE_OVER && !c->settle.task.queued)
        round_run(&c->settle.task);
    else
        settle_ask(c);
    settle_look(c);
}

/* --- drains, and life --- */

bool settle_holds_drain(struct cache *c)
{
    struct settle *s = &c->settle;
    if (s->tail == s->head)
        return false;
    s->drain_waits = true;
    s->drain_end = s->head;
    settle_look(c);
    return true;
}

bool settle_is_idle(const struct cache *c)
{
    return c->settle.state == SETTLE_IDLE && !c->settle.asked;
}

bool settle_init(struct cache *c)
{
    c->settle.task.run = round_run;
    c->settle.timer.fire = settle_fire;
    if (c->o.arena == NULL || !arena_outlives_power(c->o.arena))
        return true;
    c->settle.runs = calloc(RUNS, sizeof *c->settle.runs);
    return c->settle.runs != NULL;
}

void settle_fini(struct cache *c)
{
    timer_stop(c->dev.loop, &c->settle.timer);
    free(c->settle.runs);
}
