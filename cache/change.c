/*
 * Requests that change the volume: those that go below, and who decides.
 *
 *      line ---> a change of these bytes is under way? ---> behind (asks again when a range is let go)
 *        |
 *        +-----> kept here, if the mode is one that keeps (absorb.c); if there is no room the whole line waits
 *        |
 *        +-----> else: are some of these bytes leaving, or does a flush wait for a line here? ---> behind
 *        |
 *        +-----> under way below ---> the blocks hear of it, some a turn ---> answered
 *
 * C1  Of all that writes below (changes, and destages) one at a time is under way for the same sectors: so what is
 *     below and what is here cannot come to stand in different orders.
 * C2  While a change is under way, readers find what was there before, here or below, and nothing is kept (absorb.c)
 *     for its sectors. When it is over, and before it is answered, the blocks are made to agree: they take the new
 *     bytes, or forget the sectors, dirty ones too: they are older. A fetch under way there is stale: nobody knows
 *     which it read.
 * C3  After an error nobody knows what is below: what is here and clean is forgotten, what is dirty stays, and what was
 *     settling is dirty again.
 * C4  While initiators are told that there is no volatile cache, what goes below is durable when it is answered: with
 *     BLK_FUA, or, for discards, and what went below before they were told so, after a flush.
 * C5  Over an arena that outlives a power failure it is durable before the blocks hear of it, for they withdraw there
 *     what was older.
 */
#include "cache/cache_impl.h"

enum { BLOCKS_A_TURN = 1024 };

static void change_done(struct blk_req *child);

bool change_meets(const struct cache *c, uint64_t off, uint64_t len)
{
    const struct change *change;
    for (change = LIST_FIRST(&c->changes); change != NULL; change = LIST_NEXT(change, link))
        if (ranges_meet(&change->req, off, len))
            return true;
    return false;
}

bool change_writes(const struct cache *c, uint64_t off, uint64_t len)
{
    const struct change *change;
    for (change = LIST_FIRST(&c->changes); change != NULL; change = LIST_NEXT(change, link))
        if (!change->logging && ranges_meet(&change->req, off, len))
            return true;
    return false;
}

/* C5 */
static bool arena_relies_on_it(const struct cache *c)
{
    return settle_applies(c) && arena_published(c->o.arena) > 0;
}

static bool must_last(const struct cache *c)
{
    return c->below->info.volatile_cache && (!c->dev.info.volatile_cache || arena_relies_on_it(c)); /* C4 */
}

static bool must_be_flushed(const struct change *change)
{
    return must_last(change->cache) && !(change->req.flags & BLK_FUA) && !change->flushed &&
           change->req.status == BLK_OK;
}

static void change_start(struct cache *c, struct blk_req *parent)
{
    struct change *change = LIST_FIRST(&c->changes_free);
    LIST_REMOVE(change, link);
    LIST_INSERT_HEAD(&c->changes, change, link);
    c->counted.through += parent->op == BLK_WRITE;
    change->parent = parent;
    change->flushed = change->logging = false;
    change->req = (struct blk_req){.op = parent->op,
                                   .flags = parent->flags | (must_last(c) && parent->op != BLK_DISCARD ? BLK_FUA : 0),
                                   .off = parent->off,
                                   .len = parent->len,
                                   .pages = parent->pages,
                                   .done = change_done};
    blk_submit(c->below, &change->req);
}

/*
 * A large one would push out much, and gain nothing. What is done in the background (SANITIZE overwrites again and again)
 * is for the disks.
 */
static bool is_kept(const struct cache *c, const struct blk_req *req)
{
    return req->op == BLK_WRITE && !(req->flags & BLK_BACKGROUND) && mode_absorbs(c) &&
           (!(req->flags & BLK_FUA) || mode_flushes_at_once(c) || commit_is_in_use(c)) &&
           page_count_for(req->off, req->len) <= c->dirty_limit / 4;
}

/* False: neither it nor those behind it can go on now. */
static bool request_start(struct cache *c, struct blk_req *req)
{
    enum absorbed kept = ABSORB_NO_PAGE;
    if (change_meets(c, req->off, req->len)) {
        STAILQ_INSERT_TAIL(&c->behind, req, link);
        return true;
    }
    if (is_kept(c, req))
        kept = absorb(c, req);
    if (kept == ABSORBED)
        absorb_answer(c, req);
    else if (kept == ABSORB_NO_ROOM && c->lines.aside == 0)
        return false;
    else if (destage_meets(c, req->off, req->len) || destage_owes(c, req->off, req->len))
        STAILQ_INSERT_TAIL(&c->behind, req, link);
    else if (LIST_EMPTY(&c->changes_free))
        return false;
    else
        change_start(c, req);
    return true;
}

static void line_go_on(struct cache *c)
{
    struct blk_req *req;
    while ((req = STAILQ_FIRST(&c->line)) != NULL) {
        STAILQ_REMOVE_HEAD(&c->line, link);
        if (request_start(c, req))
            continue;
        STAILQ_INSERT_HEAD(&c->line, req, link);
        break;
    }
    destage_pump(c);
}

void change_submit(struct cache *c, struct blk_req *req)
{
    bool first = STAILQ_EMPTY(&c->line);
    req->scratch[0] = 0;
    STAILQ_INSERT_TAIL(&c->line, req, link);
    if (first)
        line_go_on(c);
}

void change_go_on(struct cache *c)
{
    struct blk_req_list line = STAILQ_HEAD_INITIALIZER(line);
    STAILQ_CONCAT(&line, &c->behind);
    STAILQ_CONCAT(&line, &c->line);
    STAILQ_CONCAT(&c->line, &line);
    line_go_on(c);
}

/* --- the blocks hear of it --- */

/* The new bytes; what was dirty is older. False: there is no page for them. */
static bool block_written(struct cache *c, const struct blk_req *req, struct block *b, uint8_t sectors)
{
    if (b->page == NULL || !block_writable(&c->blocks, b, sectors))
        return false;
    sectors_copy(b->page, req->pages[block_number(b) - req->off / PAGE_BYTES], sectors);
    b->valid |= sectors;
    dirt_clean(c, b, sectors);
    return true;
}

static void block_hears(struct change *change, struct block *b)
{
    struct cache *c = change->cache;
    const struct blk_req *req = &change->req;
    uint8_t sectors = sectors_of(block_number(b), req->off, req->off + req->len);
    if (b->flags & BLOCK_FETCHING)
        b->flags |= BLOCK_STALE;
    block_hold(&c->blocks, b);
    if (req->status != BLK_OK) { /* C3 */
        dirt_again(c, b, b->settling & sectors);
        sectors &= (uint8_t) ~(b->dirty | b->settling);
    }
    if (req->op != BLK_WRITE || req->status != BLK_OK || !block_written(c, req, b, sectors)) {
        dirt_clean(c, b, sectors);
        block_forget(&c->blocks, b, sectors);
    }
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

static void change_answer(struct change *change)
{
    struct cache *c = change->cache;
    LIST_REMOVE(change, link);
    LIST_INSERT_HEAD(&c->changes_free, change, link);
    if (must_be_flushed(change))
        flush_then_answer(c, change->parent);
    else
        cache_answer(change->parent, &change->req);
    flush_go_on(c); /* for what is clean now it need not wait */
    change_go_on(c);
}

static void change_over(struct change *change)
{
    struct cache *c = change->cache;
    change->logging = true;
    if (commit_takes_change(c, &change->req)) {
        flush_go_on(c);
        destage_pump(c);
    } else {
        change_answer(change);
    }
}

void change_logged(struct cache *c, struct blk_req *child, enum blk_status status)
{
    struct change *change = container_of(child, struct change, req);
    (void)c;
    if (status != BLK_OK)
        child->status = cache_status_elsewhere(status);
    change_answer(change);
}

static void blocks_hear(struct task *task)
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
static void hear_begin(struct change *change)
{
    const struct blk_req *child = &change->req;
    change->at = child->off / PAGE_BYTES;
    change->end = change->at + page_count_for(child->off, child->len);
    change->by_slot = child->len / PAGE_BYTES > change->cache->blocks.count;
    if (change->by_slot) {
        change->at = 0;
        change->end = change->cache->blocks.count;
    }
    blocks_hear(&change->task);
}

static void change_done(struct blk_req *child)
{
    struct change *change = container_of(child, struct change, req);
    if (!arena_relies_on_it(change->cache) || !must_be_flushed(change)) {
        hear_begin(change);
        return;
    }
    child->flags |= CACHE_CHANGE;
    flush_then_answer(change->cache, child);
}

void change_flushed(struct blk_req *child, enum blk_status status)
{
    struct change *change = container_of(child, struct change, req);
    change->flushed = true;
    child->status = cache_status_elsewhere(status);
    hear_begin(change);
}

static void answer_outside(struct cache *c, struct blk_req_list *list)
{
    struct blk_req_list all = STAILQ_HEAD_INITIALIZER(all);
    struct blk_req *req;
    STAILQ_CONCAT(&all, list);
    while ((req = STAILQ_FIRST(&all)) != NULL) {
        STAILQ_REMOVE_HEAD(&all, link);
        if (request_fits(c, req))
            STAILQ_INSERT_TAIL(list, req, link);
        else
            blk_complete(req, BLK_INVALID);
    }
}

void change_resized(struct cache *c)
{
    answer_outside(c, &c->line);
    answer_outside(c, &c->behind);
    change_go_on(c);
}

void change_init(struct cache *c)
{
    STAILQ_INIT(&c->line);
    STAILQ_INIT(&c->behind);
    for (unsigned i = CHANGES; i-- > 0;) {
        struct change *change = &c->change_memory[i];
        change->cache = c;
        change->task.run = blocks_hear;
        LIST_INSERT_HEAD(&c->changes_free, change, link);
    }
}
