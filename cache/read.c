/*
 * Reads: from the blocks that are here, by reference; the others are fetched.
 *
 *      reader_go_on     takes what is here from its position on (scratch[0]: bytes it has). At the first block that is
 *         |             missing:
 *         +-- being fetched: waits for it
 *         +-- fetch      reads the missing stretch into pages of the cache, once for all who want it; then its readers
 *         |              go on, before anything can leave again
 *         +-- direct     no page, no context, or the fetch failed or went stale: reads exactly the sectors that are not
 *                        here into the reader's own pages, and keeps nothing
 *
 * R1  A block has one fetch at most. Its readers go on when it is over, whatever came of it.
 * R2  What a direct read brings is right though it is not compared with later writes: no sector of it was in the cache
 *     when it was submitted, so what is below was the newest, and what is written since has no order to it.
 * R3  After a fetch that brought nothing its readers pass it by once, with a direct read. So an error is answered for
 *     the bytes that were asked for and no others, and every turn of a reader brings it on.
 * R4  The pages of a fetch may be replaced below by others that hold the bytes (core/blkdev.h, 5). Those are copied:
 *     the cache keeps no one else's pages.
 * R5  Reads and guesses have three quarters of the contexts for fetches each at most: so neither has none. Many readers
 *     that wait at a time are where it pays most to read ahead.
 * R6  A direct read may cover a part of a page that holds other sectors already: then the page is put back in its
 *     place.
 * R7  Reads that come in one turn are looked at together, in three steps, for what is known of a block lies in three
 *     places of which each tells where the next is, and in a large cache none is in the processor's (block_expect_*).
 */
#include "cache/cache_impl.h"

#include <string.h>

enum { GUESS_FRACTION = 4, CONTEXTS_EACH = FETCHES / 4 * 3 };

/* Blocks that were just fetched. */
struct fetch_range {
    uint64_t first;
    uint32_t count;
};
static const struct fetch_range nothing_came;

static void reader_go_on(struct cache *c, struct blk_req *req, const struct fetch_range *came);

static uint64_t end_of(const struct blk_req *req)
{
    return req->off + req->len;
}

static uint64_t position(const struct blk_req *req)
{
    return req->off + req->scratch[0];
}

/* The sectors of the block at its position that it wants still. */
static uint8_t wanted(const struct blk_req *req, uint64_t number)
{
    return sectors_of(number, MAX(position(req), number * PAGE_BYTES), end_of(req));
}

/* --- what is here --- */

/* Bytes from `at` on, up to the end of the block at most, whose sectors are (or are not) in `sectors`. */
static uint64_t run_length(uint64_t at, uint8_t sectors, bool in)
{
    unsigned first = (unsigned)(at % PAGE_BYTES / SECTOR_BYTES);
    unsigned others = (in ? BLOCK_WHOLE & ~(unsigned)sectors : sectors) | 1u << BLOCK_SECTORS;
    return (uint64_t)(unsigned)__builtin_ctz(others >> first) * SECTOR_BYTES;
}

static void give(struct blk_req *req, struct page *page, uint64_t len)
{
    uint64_t at = position(req), index = at / PAGE_BYTES - req->off / PAGE_BYTES, within = at % PAGE_BYTES;
    bool first = at == req->off || within == 0, last = at + len == end_of(req) || (at + len) % PAGE_BYTES == 0;
    if (first && last) {
        page_ref(page);
        page_put(req->pages[index]);
        req->pages[index] = page;
    } else {
        memcpy((char *)req->pages[index]->data + within, (const char *)page->data + within, len);
    }
    req->scratch[0] += len;
}

/* All that it wants of the block at its position; `piecemeal`: or as much as there is. False: nothing. */
static bool take(struct cache *c, struct blk_req *req, bool piecemeal)
{
    uint64_t at = position(req), number = at / PAGE_BYTES;
    struct block *b = block_find(&c->blocks, number);
    if (b == NULL || b->page == NULL)
        return false;
    uint8_t want = wanted(req, number);
    uint64_t len = run_length(at, b->valid & want, true);
    if (len == 0 || ((b->valid & want) != want && !piecemeal))
        return false;
    block_used(&c->blocks, b);
    give(req, b->page, len);
    return true;
}

/* --- direct --- */

/* Bytes from its position on of which no sector is here. */
static uint64_t missing_length(const struct cache *c, const struct blk_req *req)
{
    uint64_t at = position(req), end = end_of(req);
    while (at < end) {
        const struct block *b = block_find(&c->blocks, at / PAGE_BYTES);
        uint64_t rest = PAGE_BYTES - at % PAGE_BYTES, run = run_length(at, b == NULL ? 0 : b->valid, false);
        at += MIN(run, end - at);
        if (run < rest)
            break;
    }
    return at - position(req);
}

static struct direct *direct_get(struct cache *c, struct blk_req *parent)
{
    struct direct *d = LIST_FIRST(&c->directs_free);
    if (d == NULL) {
        STAILQ_INSERT_TAIL(&c->readers, parent, link);
        return NULL;
    }
    LIST_REMOVE(d, link);
    d->parent = parent;
    return d;
}

static void direct_put(struct cache *c, struct direct *d)
{
    struct blk_req *next;
    LIST_INSERT_HEAD(&c->directs_free, d, link);
    while (!LIST_EMPTY(&c->directs_free) && (next = STAILQ_FIRST(&c->readers)) != NULL) {
        STAILQ_REMOVE_HEAD(&c->readers, link);
        if (next->op == BLK_STATUS)
            read_status(c, next);
        else
            reader_go_on(c, next, &nothing_came);
    }
}

/* R6: if it shares the page with other parts of the request, the page must not be replaced. */
static void edge_keep(struct direct *d, unsigned edge, uint32_t index)
{
    d->edges[edge] = d->req.pages[index];
    d->edge_index[edge] = index;
    page_ref(d->edges[edge]);
}

static void edges_keep(struct direct *d)
{
    const struct blk_req *child = &d->req, *parent = d->parent;
    uint32_t last = page_count_for(child->off, child->len) - 1;
    bool first_shared = child->off != parent->off && child->off % PAGE_BYTES != 0;
    bool last_shared = end_of(child) != end_of(parent) && end_of(child) % PAGE_BYTES != 0;
    d->edges[0] = d->edges[1] = NULL;
    if (first_shared || (last_shared && last == 0))
        edge_keep(d, 0, 0);
    if (last_shared && last > 0)
        edge_keep(d, 1, last);
}

static void edges_restore(struct direct *d)
{
    struct blk_req *child = &d->req;
    for (unsigned i = 0; i < ARRAY_LENGTH(d->edges); i++) {
        struct page *own = d->edges[i], **slot = &child->pages[d->edge_index[i]];
        if (own == NULL)
            continue;
        if (*slot != own)
            sectors_copy(own, *slot, sectors_of(child->off / PAGE_BYTES + d->edge_index[i], child->off, end_of(child)));
        page_put(*slot);
        *slot = own;
    }
}

static void direct_done(struct blk_req *child)
{
    struct direct *d = container_of(child, struct direct, req);
    struct cache *c = d->cache;
    struct blk_req *parent = d->parent;
    edges_restore(d);
    if (child->status == BLK_OK) {
        parent->scratch[0] += child->len;
        reader_go_on(c, parent, &nothing_came);
    } else {
        cache_answer(parent, child);
    }
    direct_put(c, d);
}

static void direct_read(struct cache *c, struct blk_req *req)
{
    struct direct *d = direct_get(c, req);
    if (d == NULL)
        return;
    uint64_t at = position(req);
    c->counted.passed_by++;
    d->req = (struct blk_req){.op = BLK_READ,
                              .flags = req->flags,
                              .off = at,
                              .len = missing_length(c, req),
                              .pages = req->pages + (at / PAGE_BYTES - req->off / PAGE_BYTES),
                              .done = direct_done};
    edges_keep(d);
    blk_submit(c->below, &d->req);
}

/* --- fetch --- */

static void fetched(struct cache *c, struct block *b, struct page *page, bool ok, bool guess)
{
    bool keep = ok && !(b->flags & BLOCK_STALE);
    if (keep && (page_pool_of(page) != c->blocks.pool || page->refs > 1)) { /* R4 */
        struct page *own = blocks_page(&c->blocks, false);
        if (own != NULL)
            sectors_copy(own, page, BLOCK_WHOLE);
        page_put(page);
        page = own;
        keep = own != NULL;
    }
    b->flags &= (uint8_t) ~(BLOCK_FETCHING | BLOCK_STALE);
    if (keep && guess)
        block_guessed(&c->blocks, b);
    if (keep)
        block_fill(&c->blocks, b, page);
    else if (page != NULL)
        page_put(page);
}

static void settle_all(struct cache *c, const struct fetch_range *range)
{
    for (uint32_t i = 0; i < range->count; i++) {
        struct block *b = block_find(&c->blocks, range->first + i);
        if (b != NULL)
            block_settle(&c->blocks, b);
    }
}

/* The blocks are settled last: until then they cannot leave, and their readers find them. */
static void fetch_done(struct blk_req *child)
{
    struct fetch *f = container_of(child, struct fetch, req);
    struct cache *c = f->cache;
    struct fetch_range came = {f->first, f->count};
    struct blk_req_list readers = STAILQ_HEAD_INITIALIZER(readers);
    struct blk_req *req;
    for (uint32_t i = 0; i < came.count; i++)
        fetched(c, block_find(&c->blocks, came.first + i), f->pages[i], child->status == BLK_OK, f->guess);
    STAILQ_CONCAT(&readers, &f->readers);
    c->guessing -= f->guess ? f->count : 0;
    c->fetching[f->guess]--;
    LIST_REMOVE(f, link);
    LIST_INSERT_HEAD(&c->fetches_free, f, link);
    while ((req = STAILQ_FIRST(&readers)) != NULL) {
        STAILQ_REMOVE_HEAD(&readers, link);
        reader_go_on(c, req, &came);
    }
    settle_all(c, &came);
    cache_close_if_idle(c);
}

/* Get the block ready to be fetched, and a page for it; NULL: it is here already, or there is none. */
static struct page *fetch_block(struct cache *c, uint64_t number, bool guess)
{
    struct block *b = block_find(&c->blocks, number);
    if (b != NULL && (b->flags & BLOCK_FETCHING || b->valid == BLOCK_WHOLE))
        return NULL;
    if (b != NULL)
        block_hold(&c->blocks, b);
    struct page *page = blocks_page(&c->blocks, guess);
    if (page != NULL && b == NULL)
        b = block_get(&c->blocks, number, guess);
    if (page != NULL && b != NULL) {
        b->flags |= BLOCK_FETCHING;
        return page;
    }
    if (b != NULL)
        block_settle(&c->blocks, b);
    if (page != NULL)
        page_put(page);
    return NULL;
}

/* As many of the blocks [first, end) as can be, from the first on. NULL: none. */
static struct fetch *fetch_start(struct cache *c, uint64_t first, uint64_t end, bool guess)
{
    struct fetch *f = LIST_FIRST(&c->fetches_free);
    uint64_t most = c->below->info.max_request / PAGE_BYTES;
    if (f == NULL || c->fetching[guess] == CONTEXTS_EACH)
        return NULL;
    end = MIN(end, first + MIN(FETCH_BLOCKS, most == 0 ? FETCH_BLOCKS : most));
    for (f->count = 0; first + f->count < end; f->count++) {
        f->pages[f->count] = fetch_block(c, first + f->count, guess);
        if (f->pages[f->count] == NULL)
            break;
    }
    if (f->count == 0)
        return NULL;
    LIST_REMOVE(f, link);
    LIST_INSERT_HEAD(&c->fetches, f, link);
    c->fetching[guess]++;
    f->first = first;
    f->guess = guess;
    STAILQ_INIT(&f->readers);
    uint64_t off = first * PAGE_BYTES, len = MIN((uint64_t)f->count * PAGE_BYTES, c->dev.info.size - off);
    f->req = (struct blk_req){.op = BLK_READ, .off = off, .len = len, .pages = f->pages, .done = fetch_done};
    blk_submit(c->below, &f->req);
    return f;
}

static struct fetch *fetch_find(struct cache *c, uint64_t number)
{
    struct fetch *f = LIST_FIRST(&c->fetches);
    while (f != NULL && number - f->first >= f->count)
        f = LIST_NEXT(f, link);
    return f;
}

/* Read-ahead always: with what is around, in one request, since what is next to it is often read next, and a disk that was
 * to come back for it would need a turn. Nobody asked for that, but it is no guess: it goes as what was used once goes. */
static struct fetch *fetch_around(struct cache *c, const struct blk_req *req, uint64_t number, uint64_t end)
{
    uint64_t most = c->below->info.max_request / PAGE_BYTES, first = number;
    uint64_t around = most == 0 ? READAHEAD_AROUND : MIN(most / 4, (uint64_t)READAHEAD_AROUND);
    if (c->ahead.mode != READAHEAD_ALWAYS || req->flags & BLK_BACKGROUND)
        return NULL;
    while (first > 0 && number - first < around && block_find(&c->blocks, first - 1) == NULL)
        first--;
    return fetch_start(c, first, MIN(end + around, (c->dev.info.size + PAGE_BYTES - 1) / PAGE_BYTES), false);
}

static struct fetch *fetch_for(struct cache *c, const struct blk_req *req, uint64_t number, uint64_t end)
{
    struct fetch *f = fetch_around(c, req, number, end);
    return f != NULL ? f : fetch_start(c, number, end, false);
}

/* Have all that it lacks fetched, and wait for the first of it. False: that one cannot be. */
static bool wait_for_fetch(struct cache *c, struct blk_req *req)
{
    uint64_t number = position(req) / PAGE_BYTES, end = (end_of(req) + PAGE_BYTES - 1) / PAGE_BYTES;
    const struct block *b = block_find(&c->blocks, number);
    struct fetch *waits = NULL;
    if (b != NULL && b->flags & BLOCK_STALE)
        return false;
    while (number < end) {
        b = block_find(&c->blocks, number);
        if (waits != NULL && b != NULL && b->valid == BLOCK_WHOLE) {
            number++;
            continue;
        }
        bool comes = b != NULL && b->flags & BLOCK_FETCHING;
        struct fetch *f = comes ? fetch_find(c, number) : fetch_for(c, req, number, end);
        if (f == NULL)
            break;
        if (comes && f->guess)
            readahead_late(&c->ahead, number);
        waits = waits == NULL ? f : waits;
        number = f->first + f->count;
    }
    if (waits != NULL)
        STAILQ_INSERT_TAIL(&waits->readers, req, link);
    return waits != NULL;
}

/* --- readers --- */

/* What came, and is not here: R3. */
static void reader_go_on(struct cache *c, struct blk_req *req, const struct fetch_range *came)
{
    if (!request_fits(c, req)) {
        blk_complete(req, BLK_INVALID);
        return;
    }
    while (req->scratch[0] < req->len && take(c, req, false))
        ;
    if (req->scratch[0] == req->len) {
        blk_complete(req, BLK_OK);
        return;
    }
    bool in_vain = position(req) / PAGE_BYTES - came->first < came->count;
    if (!in_vain && wait_for_fetch(c, req))
        return;
    while (req->scratch[0] < req->len && take(c, req, true))
        ;
    ASSERT(req->scratch[0] < req->len); /* or the first loop had taken all */
    direct_read(c, req);
}

/* --- read-ahead --- */

/* A quarter of the cache at most, here or on its way. */
static uint32_t guess_room(const struct cache *c)
{
    uint32_t most = c->blocks.count / GUESS_FRACTION, are = c->guessing + c->blocks.guesses;
    return c->fetching[true] < CONTEXTS_EACH ? most - MIN(most, are) : 0;
}

/* For the next plan: guesses that are stale leave. Without that they would end all guessing in a cache that has room. */
static void make_guess_room(struct cache *c)
{
    uint32_t most = c->blocks.count / GUESS_FRACTION, least = MIN(most / 4, (uint32_t)FETCH_BLOCKS);
    struct readahead_run run;
    while (c->guessing + c->blocks.guesses + least > most && readahead_stale(&c->ahead, &run))
        for (uint32_t i = 0; i < run.count; i++)
            block_unguess(&c->blocks, run.first + i);
}

static void run_guess(struct cache *c, const struct readahead_run *run)
{
    uint64_t number = run->first, end = MIN(number + run->count, c->dev.info.size / PAGE_BYTES);
    while (number < end && guess_room(c) > 0) {
        const struct block *b = block_find(&c->blocks, number);
        if (b != NULL && (b->flags & BLOCK_FETCHING || b->valid == BLOCK_WHOLE)) {
            number++;
            continue;
        }
        struct fetch *f = fetch_start(c, number, end, true);
        if (f == NULL)
            break;
        readahead_asked(&c->ahead, &(struct readahead_run){number, f->count});
        c->guessing += f->count;
        c->counted.ahead_bytes += (uint64_t)f->count * PAGE_BYTES;
        number += f->count;
    }
}

/* Reads that find all they want, none of it guessed, tell nothing new: they are many, and shall cost little. */
static void look_ahead(struct cache *c, const struct blk_req *req, bool missed)
{
    struct readahead_plan plan;
    struct readahead_read read = {req->off / PAGE_BYTES, page_count_for(req->off, req->len), missed};
    make_guess_room(c);
    readahead_plan(&c->ahead, &read, guess_room(c), &plan);
    for (unsigned i = 0; i < plan.count; i++)
        run_guess(c, &plan.runs[i]);
}

static void guess_wasted(struct blocks *blocks, uint64_t number)
{
    readahead_wasted(&container_of(blocks, struct cache, blocks)->ahead, number);
}

/* The commonest one, by a short way: all of it lies in one block, is here, and was not guessed. */
static bool read_at_once(struct cache *c, struct blk_req *req)
{
    uint64_t number = req->off / PAGE_BYTES;
    if (req->off % PAGE_BYTES + req->len > PAGE_BYTES || !request_fits(c, req))
        return false;
    struct block *b = block_find(&c->blocks, number);
    if (b == NULL || b->page == NULL || b->flags & BLOCK_GUESS)
        return false;
    if ((sectors_of(number, req->off, end_of(req)) & ~b->valid) != 0)
        return false;
    block_used(&c->blocks, b);
    page_ref(b->page);
    page_put(req->pages[0]);
    req->pages[0] = b->page;
    c->counted.hits++;
    c->counted.hit_bytes += req->len;
    blk_complete(req, BLK_OK);
    return true;
}

static void read_begin(struct cache *c, struct blk_req *req)
{
    uint64_t used = c->blocks.guesses_used, below = c->below->counters.requests[BLK_READ];
    req->scratch[0] = 0;
    reader_go_on(c, req, &nothing_came);
    bool hit = req->scratch[0] == req->len;
    if ((!hit || c->blocks.guesses_used != used) && !(req->flags & BLK_BACKGROUND))
        look_ahead(c, req, c->below->counters.requests[BLK_READ] != below);
    c->counted.hits += hit;
    c->counted.misses += !hit;
    c->counted.hit_bytes += req->scratch[0];
}

/* All that came since the last time: R7. */
static void read_arrivals(struct task *task)
{
    struct cache *c = container_of(task, struct cache, arrivals);
    struct blk_req_list all = STAILQ_HEAD_INITIALIZER(all);
    struct blk_req *req;
    STAILQ_CONCAT(&all, &c->arrived);
    STAILQ_FOREACH(req, &all, link)
    block_expect_slot(&c->blocks, req->off / PAGE_BYTES);
    STAILQ_FOREACH(req, &all, link)
    block_expect_page(&c->blocks, req->off / PAGE_BYTES);
    while ((req = STAILQ_FIRST(&all)) != NULL) {
        STAILQ_REMOVE_HEAD(&all, link);
        if (!read_at_once(c, req))
            read_begin(c, req);
    }
}

void read_submit(struct cache *c, struct blk_req *req)
{
    block_expect_chain(&c->blocks, req->off / PAGE_BYTES);
    STAILQ_INSERT_TAIL(&c->arrived, req, link);
    if (!c->arrivals.queued)
        loop_defer(c->dev.loop, &c->arrivals);
}

static void status_done(struct blk_req *child)
{
    struct direct *d = container_of(child, struct direct, req);
    d->parent->extent = child->extent;
    d->parent->written = child->written;
    cache_answer(d->parent, child);
    direct_put(d->cache, d);
}

/* What is dirty is written; of the rest the volume knows. */
void read_status(struct cache *c, struct blk_req *req)
{
    uint64_t from = end_of(req), to = 0;
    if (!request_fits(c, req)) {
        blk_complete(req, BLK_INVALID);
        return;
    }
    if (dirt_find(c, req->off, req->len, &from, &to) && from == req->off) {
        req->extent = to - from;
        req->written = true;
        blk_complete(req, BLK_OK);
        return;
    }
    struct direct *d = direct_get(c, req);
    if (d == NULL)
        return;
    d->req = (struct blk_req){.op = BLK_STATUS, .off = req->off, .len = from - req->off, .done = status_done};
    blk_submit(c->below, &d->req);
}

void read_init(struct cache *c)
{
    STAILQ_INIT(&c->arrived);
    c->arrivals.run = read_arrivals;
    STAILQ_INIT(&c->readers);
    c->blocks.wasted = guess_wasted;
    readahead_init(&c->ahead, c->o.readahead, c->lines.blocks, c->blocks.count / GUESS_FRACTION);
    for (unsigned i = FETCHES; i-- > 0;) {
        c->fetch_memory[i].cache = c;
        LIST_INSERT_HEAD(&c->fetches_free, &c->fetch_memory[i], link);
    }
    for (unsigned i = DIRECTS; i-- > 0;) {
        c->direct_memory[i].cache = c;
        LIST_INSERT_HEAD(&c->directs_free, &c->direct_memory[i], link);
    }
}
