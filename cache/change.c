/*
 * What goes below to change the volume: writes, discards, write-zeroes.
 *
 *      line ---> held up by the range of another? ---> behind (asks again when a range was let go)
 *        |
 *        +----> under way below ---> the blocks hear of it, some a turn ---> answered
 *
 * C1  Of changes of the same sectors one at a time is under way: so what is below and what is here cannot come to stand
 *     in different orders.
 * C2  While one is under way, readers find what was there before, here or below. When it is over, and before it is
 *     answered, the blocks are made to agree: they take the new bytes, or forget the sectors. A fetch under way there
 *     is stale: nobody knows which it read.
 * C3  After an error nobody knows what is below: what is here and clean is forgotten.
 */
#include "cache/cache_impl.h"

enum { BLOCKS_A_TURN = 1024 };

static void change_go_on(struct task *task);
static void change_done(struct blk_req *child);

static bool is_held_up(const struct cache *c, const struct blk_req *req)
{
    const struct change *change;
    for (change = LIST_FIRST(&c->changes); change != NULL; change = LIST_NEXT(change, link))
        if (ranges_meet(&change->req, req->off, req->len))
            return true;
    return false;
}

static void change_start(struct cache *c, struct blk_req *parent)
{
    struct change *change = LIST_FIRST(&c->changes_free);
    LIST_REMOVE(change, link);
    LIST_INSERT_HEAD(&c->changes, change, link);
    change->parent = parent;
    change->req = (struct blk_req){.op = parent->op,
                                   .flags = parent->flags,
                                   .off = parent->off,
                                   .len = parent->len,
                                   .pages = parent->pages,
                                   .done = change_done};
    blk_submit(c->below, &change->req);
}

static void line_go_on(struct cache *c)
{
    struct blk_req *req;
    while ((req = STAILQ_FIRST(&c->line)) != NULL && !LIST_EMPTY(&c->changes_free)) {
        STAILQ_REMOVE_HEAD(&c->line, link);
        if (is_held_up(c, req))
            STAILQ_INSERT_TAIL(&c->behind, req, link);
        else
            change_start(c, req);
    }
}

void change_submit(struct cache *c, struct blk_req *req)
{
    STAILQ_INSERT_TAIL(&c->line, req, link);
    line_go_on(c);
}

/* Those that were held up ask again, before what came later. */
static void range_let_go(struct cache *c)
{
    struct blk_req_list line = STAILQ_HEAD_INITIALIZER(line);
    STAILQ_CONCAT(&line, &c->behind);
    STAILQ_CONCAT(&line, &c->line);
    STAILQ_CONCAT(&c->line, &line);
    line_go_on(c);
}

/* --- the blocks hear of it --- */

static void block_written(struct cache *c, const struct blk_req *req, struct block *b, uint8_t sectors)
{
    const struct page *from = req->pages[block_number(b) - req->off / PAGE_BYTES];
    block_hold(&c->blocks, b);
    if (b->page == NULL || !block_writable(&c->blocks, b, sectors)) {
        block_forget(b, sectors);
        return;
    }
    sectors_copy(b->page, from, sectors);
    b->valid |= sectors;
    b->dirty &= (uint8_t)~sectors;
}

static void block_hears(struct change *change, struct block *b)
{
    struct cache *c = change->cache;
    const struct blk_req *req = &change->req;
    uint8_t sectors = sectors_of(block_number(b), req->off, req->off + req->len);
    if (b->flags & BLOCK_FETCHING)
        b->flags |= BLOCK_STALE;
    if (req->status != BLK_OK)
        block_forget(b, (uint8_t)(sectors & ~b->dirty));
    else if (req->op == BLK_WRITE)
        block_written(c, req, b, sectors);
    else
        block_forget(b, sectors);
    block_settle(&c->blocks, b);
}

/* The next block of those that are to hear of it, if it is here. */
static struct block *next_block(struct change *change)
{
    struct blocks *blocks = &change->cache->blocks;
    uint64_t at = change->at++;
    if (!change->by_slot)
        return block_find(blocks, at);
    struct block *b = blocks_slot(blocks, (uint32_t)at);
    return b != NULL && ranges_meet(&change->req, block_number(b) * PAGE_BYTES, PAGE_BYTES) ? b : NULL;
}

static void change_over(struct change *change)
{
    struct cache *c = change->cache;
    LIST_REMOVE(change, link);
    LIST_INSERT_HEAD(&c->changes_free, change, link);
    cache_answer(change->parent, &change->req);
    range_let_go(c);
}

static void change_go_on(struct task *task)
{
    struct change *change = container_of(task, struct change, task);
    for (unsigned i = 0; i < BLOCKS_A_TURN && change->at < change->end; i++) {
        struct block *b = next_block(change);
        if (b != NULL)
            block_hears(change, b);
    }
    if (change->at < change->end)
        loop_defer(change->cache->dev.loop, task);
    else
        change_over(change);
}

/* Block by block of the range, or, if there are fewer, slot by slot of the cache. */
static void change_done(struct blk_req *child)
{
    struct change *change = container_of(child, struct change, req);
    change->at = child->off / PAGE_BYTES;
    change->end = change->at + page_count_for(child->off, child->len);
    change->by_slot = child->len / PAGE_BYTES > change->cache->blocks.count;
    if (change->by_slot) {
        change->at = 0;
        change->end = change->cache->blocks.count;
    }
    change_go_on(&change->task);
}

void change_init(struct cache *c)
{
    STAILQ_INIT(&c->line);
    STAILQ_INIT(&c->behind);
    for (unsigned i = CHANGES; i-- > 0;) {
        struct change *change = &c->change_memory[i];
        change->cache = c;
        change->task.run = change_go_on;
        LIST_INSERT_HEAD(&c->changes_free, change, link);
    }
}
