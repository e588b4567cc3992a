/*
 * What leaves, when, and in which order.
 *
 *      why                          how many runs at a time          which line
 *      a flush waits, or all must   DESTAGES                         in disk order, those that the flush covers
 *      above the low watermark      1 there, to DESTAGES at high     full rows, then all, in disk order; below high
 *                                                                    none that began to be dirty just now
 *      something is old             a few                            the oldest
 *      nobody asks for anything     a few                            in disk order
 *
 * In disk order: from where the last one was, round and round (docs/cache.md has what sparing lines that were written
 * into lately came to).
 *
 * A line leaves in runs: dirty sectors that follow each other, over gaps that are here and clean, for those cost less
 * than another request. If all of a row is here, and a quarter of it dirty, it goes as a full row, without a read. Else
 * what is missing may be read (gaps.c).
 *
 *      dirty ---> leaving ---> clean
 *        ^           |
 *        +-- failed -+   the line is set aside
 *
 * D1  What fails stays dirty. If it is the place (a media error), the others go on; if it is the device, all wait.
 *     After a time that doubles, and with the next flush, it is tried again.
 * D2  A line has runs on their way for one reason at a time: what is written into it meanwhile waits for them.
 */
#include "cache/cache_impl.h"

#include <stdlib.h>

#include "core/log.h"

enum { FEW = 4, SWEEP_STEPS = 64, GAP_SECTORS = 128, FULL_ROW_SHARE = 4, RIPE_MS = 100 };
#define TICK_NS           20000000ull
#define BACK_OFF_MIN_NS   100000000ull
#define BACK_OFF_MAX_NS   10000000000ull
#define BACK_OFF_HURRY_NS 1000000000ull

static void destage_done(struct blk_req *child);

static uint64_t line_bytes(const struct cache *c)
{
    return (uint64_t)c->lines.blocks * PAGE_BYTES;
}

bool destage_meets(const struct cache *c, uint64_t off, uint64_t len)
{
    const struct destage *d;
    for (d = LIST_FIRST(&c->destages); d != NULL; d = LIST_NEXT(d, link))
        if (d->off < off + len && off < d->off + d->len)
            return true;
    return false;
}

/* --- which --- */

struct demand {
    unsigned runs;    /* on their way at a time */
    bool full_first;  /* full rows, then others */
    bool by_age;      /* the oldest */
    bool covered;     /* only those that a flush waits for */
    unsigned ripe_ms; /* not what is so young, but full rows */
};

/* Data of this epoch, of a line or on its way: does a flush wait for it? */
static bool is_covered(const struct cache *c, uint32_t epoch)
{
    return (int32_t)(epoch - c->flush_epoch) <= 0;
}

bool destage_owes(const struct cache *c, uint64_t off, uint64_t len)
{
    if (!flush_is_waited_for(c) || c->paused)
        return false;
    for (uint64_t number = off / line_bytes(c); number * line_bytes(c) < off + len; number++) {
        const struct line *line = line_find(&c->lines, number);
        if (line != NULL && line->class & (LINE_FULL | LINE_PARTIAL) && is_covered(c, line->epoch))
            return true;
    }
    return false;
}

static struct demand demand_of(const struct cache *c)
{
    unsigned fill = cache_fill_permille(c), low = c->o.low_percent * 10, high = c->o.high_percent * 10;
    const struct line *oldest = line_oldest(&c->lines);
    if (c->paused || oldest == NULL)
        return (struct demand){0};
    if (flush_is_waited_for(c))
        return (struct demand){.runs = DESTAGES, .covered = true};
    if (fill > low) {
        unsigned runs = fill >= high ? DESTAGES : 1 + (DESTAGES - 1) * (fill - low) / (high - low);
        return (struct demand){.runs = runs, .full_first = true, .ripe_ms = fill < high ? RIPE_MS : 0};
    }
    if (cache_now_ms(c) - oldest->since_ms >= c->o.age_ms)
        return (struct demand){.runs = FEW, .by_age = true};
    if (cache_now_ns(c) - c->request_ns >= c->o.idle_ms * 1000000ull)
        return (struct demand){.runs = FEW};
    return (struct demand){0};
}

static bool can_leave(struct cache *c, const struct line *line, const struct demand *demand)
{
    bool young = line->class & LINE_PARTIAL && cache_now_ms(c) - line->since_ms < demand->ripe_ms;
    return line->class & (LINE_FULL | LINE_PARTIAL) && !young && (!demand->covered || is_covered(c, line->epoch)) &&
           !change_writes(c, line->number * line_bytes(c), line_bytes(c)) && commit_lets_leave(c, line);
}

static struct line *sweep(struct cache *c, const struct demand *demand, unsigned classes)
{
    uint64_t start = c->hand;
    bool round = false;
    for (unsigned i = 0; i < SWEEP_STEPS; i++) {
        struct line *line = line_next(&c->lines, c->hand, classes);
        if (line == NULL && !round) {
            round = true;
            line = line_next(&c->lines, 0, classes);
        }
        if (line == NULL || (round && line->number >= start))
            return NULL;
        c->hand = line->number + 1;
        if (can_leave(c, line, demand))
            return line;
    }
    return NULL;
}

static struct line *oldest(struct cache *c, const struct demand *demand)
{
    struct line *line = line_oldest(&c->lines);
    for (unsigned i = 0; line != NULL && i < SWEEP_STEPS; i++) {
        if (can_leave(c, line, demand))
            return line;
        line = line_younger(&c->lines, line);
    }
    return NULL;
}

static struct line *choose(struct cache *c, const struct demand *demand)
{
    struct line *line = NULL;
    if (demand->by_age)
        return oldest(c, demand);
    if (demand->full_first)
        line = sweep(c, demand, LINE_FULL);
    return line != NULL ? line : sweep(c, demand, LINE_FULL | LINE_PARTIAL);
}

/* --- runs --- */

/* Of the line at hand: c->row. */
static bool in_row(const struct cache *c, uint32_t sector, bool dirty)
{
    const struct block *b = c->row[sector / BLOCK_SECTORS];
    return b != NULL && (dirty ? b->dirty : b->valid) >> sector % BLOCK_SECTORS & 1;
}

static uint32_t run_max(const struct cache *c)
{
    uint64_t most = c->below->info.max_request;
    return most == 0 ? UINT32_MAX : (uint32_t)MIN(most / SECTOR_BYTES, UINT32_MAX);
}

uint32_t destage_row(struct cache *c, const struct line *line)
{
    uint64_t off = line->number * line_bytes(c);
    for (uint32_t i = 0; i < c->lines.blocks; i++)
        c->row[i] = block_find(&c->blocks, line->number * c->lines.blocks + i);
    return off < c->dev.info.size ? (uint32_t)(MIN(line_bytes(c), c->dev.info.size - off) / SECTOR_BYTES) : 0;
}

static bool goes_as_row(const struct cache *c, const struct line *line, uint32_t end)
{
    if (line->dirty * FULL_ROW_SHARE < c->lines.blocks || end > run_max(c))
        return false;
    for (uint32_t i = 0; i < c->lines.blocks; i++)
        if (c->row[i] == NULL || c->row[i]->valid != BLOCK_WHOLE)
            return false;
    return true;
}

/* The next run at or behind *from. */
static bool next_run(const struct cache *c, uint32_t end, uint32_t *from, uint32_t *to)
{
    uint32_t most = run_max(c);
    while (*from < end && !in_row(c, *from, true))
        ++*from;
    *to = *from;
    for (uint32_t i = *from; i < end && i - *from < most; i++) {
        if (in_row(c, i, true))
            *to = i + 1;
        else if (!in_row(c, i, false) || i - *to >= GAP_SECTORS)
            break;
    }
    return *to > *from;
}

static unsigned runs_count(const struct cache *c, uint32_t end)
{
    unsigned runs = 0;
    for (uint32_t from = 0, to; next_run(c, end, &from, &to); from = to)
        runs++;
    return runs;
}

struct destage *destage_begin(struct cache *c, struct line *line, uint32_t from, uint32_t to)
{
    struct destage *d = LIST_FIRST(&c->destages_free);
    LIST_REMOVE(d, link);
    LIST_INSERT_HEAD(&c->destages, d, link);
    d->line = line->number;
    d->epoch = line->epoch;
    d->gap_count = 0;
    d->off = line->number * line_bytes(c) + (uint64_t)from * SECTOR_BYTES;
    d->len = (uint64_t)(to - from) * SECTOR_BYTES;
    line->leaving++;
    c->destaging++;
    throttle_busy(&c->throttle, cache_now_ns(c), true);
    return d;
}

static void page_take(struct page **slot, struct page *page, bool instead)
{
    if (instead)
        page_put(*slot);
    *slot = page;
    page_ref(page);
}

void destage_write(struct cache *c, struct line *line, struct destage *d)
{
    uint32_t first = (uint32_t)(d->off % line_bytes(c) / PAGE_BYTES);
    d->epoch = line->epoch;
    d->dirty_bytes = 0;
    d->unlogged = false;
    d->req = (struct blk_req){.op = BLK_WRITE, .off = d->off, .len = d->len, .pages = d->pages, .done = destage_done};
    for (uint32_t i = 0; i < page_count_for(d->off, d->len); i++) {
        struct block *b = c->row[first + i];
        if (b == NULL || b->valid == 0)
            continue; /* its page was read */
        uint8_t goes = sectors_of(block_number(b), d->off, d->off + d->len) & b->dirty;
        bool read = i - d->gap_first < d->gap_count;
        d->unlogged = d->unlogged || commit_is_unlogged(c, b);
        if (!read || b->valid == BLOCK_WHOLE)
            page_take(&d->pages[i], b->page, read);
        dirt_set(c, line, b, (uint8_t)(b->dirty & ~goes), b->leaving | goes);
        d->dirty_bytes += (unsigned)__builtin_popcount(goes) * SECTOR_BYTES;
    }
    c->counted.destages++;
    c->counted.full_rows += d->len == line_bytes(c);
    blk_submit(c->below, &d->req);
}

static void runs_start(struct cache *c, struct line *line, uint32_t end)
{
    for (uint32_t from = 0, to; !LIST_EMPTY(&c->destages_free) && next_run(c, end, &from, &to); from = to)
        destage_write(c, line, destage_begin(c, line, from, to));
}

/* False: not now. */
static bool line_start(struct cache *c, struct line *line)
{
    uint32_t end = destage_row(c, line);
    enum gaps gaps = GAPS_READ; /* if there is none */
    if (goes_as_row(c, line, end))
        destage_write(c, line, destage_begin(c, line, 0, end));
    else
        gaps = gaps_read(c, line, runs_count(c, end));
    if (gaps == GAPS_LEFT)
        runs_start(c, line, end);
    line_settle(&c->lines, line);
    return gaps != GAPS_LATER;
}

void destage_pump(struct cache *c)
{
    for (;;) {
        uint64_t hand = c->hand;
        struct demand demand = demand_of(c);
        struct line *line = c->destaging < demand.runs && settle_has_room(c) ? choose(c, &demand) : NULL;
        if (line != NULL && line_start(c, line))
            continue;
        c->hand = line != NULL ? hand : c->hand;
        break;
    }
    if (c->dirty_blocks > 0 && !c->paused && !c->tick.armed)
        timer_start(c->dev.loop, &c->tick, TICK_NS);
}

static void tick_fire(struct timer *timer)
{
    destage_pump(container_of(timer, struct cache, tick));
}

/* --- answers --- */

static void block_left(struct cache *c, struct line *line, struct block *b, const struct blk_req *run, bool failed)
{
    uint8_t sectors = sectors_of(block_number(b), run->off, run->off + run->len);
    uint8_t back = failed ? (uint8_t)(b->valid & sectors) : 0, arrived = b->leaving & sectors;
    if (!failed && arrived != 0 && settle_applies(c)) {
        b->flags = (uint8_t)((b->flags & ~BLOCK_ODD) | settle_parity(c));
        dirt_settle(c, b, b->settling | arrived);
    }
    if (back != 0 && line->dirty == 0)
        line->since_ms = cache_now_ms(c);
    dirt_set(c, line, b, b->dirty | back, (uint8_t)(b->leaving & ~sectors));
    if (back != 0)
        commit_dirtied(c, line, b);
    if (block_clean(b))
        b->flags &= (uint8_t)~BLOCK_UNLOGGED;
    block_settle(&c->blocks, b);
}

static void run_left(struct cache *c, struct destage *d, bool failed)
{
    struct line *line = line_find(&c->lines, d->line);
    uint64_t first = d->req.off / PAGE_BYTES;
    uint32_t count = page_count_for(d->req.off, d->req.len);
    for (uint32_t i = 0; i < count; i++) {
        struct block *b = block_find(&c->blocks, first + i);
        if (b != NULL)
            block_left(c, line, b, &d->req, failed);
    }
    page_put_all(d->pages, count);
    line->leaving--;
    if (failed)
        line_set_aside(&c->lines, line);
    else
        line_settle(&c->lines, line);
}

void destage_retry_later(struct cache *c)
{
    if (c->retry.armed)
        return;
    timer_start(c->dev.loop, &c->retry, c->hurry ? MIN(c->back_off_ns, BACK_OFF_HURRY_NS) : c->back_off_ns);
    c->back_off_ns = MIN(c->back_off_ns * 2, BACK_OFF_MAX_NS);
}

static void retry_fire(struct timer *timer)
{
    struct cache *c = container_of(timer, struct cache, retry);
    c->paused = false;
    lines_recall(&c->lines, c->epoch);
    if (c->drain_wanted)
        drain_start(c);
    commit_retry(c);
    change_go_on(c);
}

static void destage_failed(struct cache *c, const struct destage *d)
{
    enum blk_status status = d->req.status;
    bool news = c->counted.trouble != status;
    c->counted.destage_errors++;
    c->counted.trouble = status;
    c->paused = c->paused || (status != BLK_MEDIA && status != BLK_INVALID); /* D1 */
    flush_failed(c, d->epoch, status);
    destage_retry_later(c);
    if (!news)
        return;
    log_error("cache %s: dirty data cannot be written: %s; it is kept, and tried again", c->dev.name,
              blk_status_name(status));
    cache_changed(c);
}

static void destage_worked(struct cache *c, const struct destage *d)
{
    if (settle_applies(c))
        settle_destaged(c, d->req.off / PAGE_BYTES, page_count_for(d->req.off, d->req.len));
    c->counted.destaged_bytes += d->dirty_bytes;
    throttle_left(&c->throttle, cache_now_ns(c), d->dirty_bytes);
    if (c->counted.trouble == BLK_OK || c->paused || c->lines.aside > 0)
        return;
    c->counted.trouble = BLK_OK;
    c->back_off_ns = BACK_OFF_MIN_NS;
    log_notice("cache %s: dirty data can be written again", c->dev.name);
    cache_changed(c);
}

void destage_end(struct cache *c, struct destage *d)
{
    c->gap_pages -= d->gap_count;
    LIST_REMOVE(d, link);
    LIST_INSERT_HEAD(&c->destages_free, d, link);
    c->destaging--;
}

void destage_over(struct cache *c)
{
    throttle_busy(&c->throttle, cache_now_ns(c), c->destaging > 0);
    absorb_go_on(c);
    flush_go_on(c);
    change_go_on(c);
    cache_close_if_idle(c);
}

static void destage_done(struct blk_req *child)
{
    struct destage *d = container_of(child, struct destage, req);
    struct cache *c = d->cache;
    bool failed = child->status != BLK_OK;
    run_left(c, d, failed);
    if (d->unlogged)
        commit_exposed(c);
    destage_end(c, d);
    if (failed)
        destage_failed(c, d);
    else
        destage_worked(c, d);
    destage_over(c);
}

/* --- life --- */

bool destage_init(struct cache *c)
{
    c->tick.fire = tick_fire;
    c->retry.fire = retry_fire;
    c->back_off_ns = BACK_OFF_MIN_NS;
    c->row = calloc(c->lines.blocks, sizeof(struct block *));
    if (c->row == NULL)
        return false;
    for (unsigned i = DESTAGES; i-- > 0;) {
        struct destage *d = &c->destage_memory[i];
        d->cache = c;
        d->pages = calloc(c->lines.blocks, sizeof(struct page *));
        if (d->pages == NULL)
            return false;
        LIST_INSERT_HEAD(&c->destages_free, d, link);
    }
    return true;
}

void destage_fini(struct cache *c)
{
    timer_stop(c->dev.loop, &c->tick);
    timer_stop(c->dev.loop, &c->retry);
    for (unsigned i = 0; i < DESTAGES; i++)
        free(c->destage_memory[i].pages);
    free(c->row);
}
