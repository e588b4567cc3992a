/*
 * See raid/patience.h. The life of a request:
 *
 *     in line --> waiting (beneath, its owner waits) ---------------------------> answered
 *        |            \--> given up (its owner was answered) --(late answer)--> forgotten
 *        +--> timed out, never passed on
 *
 * One timer a disk, due when the next deadline is. It is set when a request is passed on and looks at all that wait
 * when it fires; with a disk that is well it fires seldom and finds nothing.
 */
#include "raid/patience.h"

#include <stdlib.h>

#include "core/check.h"

enum {
    CONTEXTS = 256,
    REQUEST_PAGES = 257, /* REQUEST_BYTES, wherever they begin */
    RESERVE_PAGES = 8192,
    SAMPLES_FADE = 1024, /* reads after which older ones count half */
    SAMPLES_LOOK = 64,   /* reads between two looks at the quantile */
    HEDGE_COST = 20,     /* reads that earn a hedged one */
    HEDGE_DEPTH = 8,     /* hedged reads that can be saved up */
};
#define REQUEST_BYTES   (1 * MIB)
#define SOFT_ROTATIONAL 250000000ull
#define SOFT_OTHER      50000000ull
#define HARD            8000000000ull
#define ZEROES_PER_NS   64 /* ns a byte more for zeroes and discards: 16 MB/s */
#define LINE_LOOK       100000000ull

struct context {
    TAILQ_ENTRY(context) link; /* free, waiting or given up */
    struct patience *patience;
    struct blk_req *parent; /* NULL: given up */
    struct blk_req below;
    uint64_t began_ns;
    uint32_t count, promised; /* pages, and those of them that may have to be given away */
    bool own_first, own_last; /* read: these pages are ours, since the owner wants a part of them only */
    struct page *pages[REQUEST_PAGES];
};
TAILQ_HEAD(context_list, context);

struct patience {
    struct blkdev dev;
    struct blkdev *below;
    struct blk_watcher watcher;
    uint64_t soft_least_ns, hard_ns;
    struct context_list free, waiting;
    struct blk_req_list line;
    struct page_pool *reserve;
    uint64_t promised; /* pages of the reserve */
    unsigned credit;   /* for hedged reads */
    struct timer timer;
    uint64_t timer_due_ns;
    struct latency reads;
    unsigned samples; /* since the last look */
    struct peer peer;
    struct patience_counters counters;
    struct task below_closed, *closed;
    bool closed_told;
    struct context *contexts;
};

static const struct blkdev_ops patience_ops;

static struct patience *patience_of(struct blkdev *dev)
{
    return container_of(dev, struct patience, dev);
}

static uint64_t now(const struct patience *p)
{
    return loop_now_ns(p->dev.loop);
}

/* --- deadlines --- */

static uint64_t hard_due(const struct patience *p, const struct blk_req *req, uint64_t began_ns)
{
    bool long_one = req->op == BLK_WRITE_ZEROES || req->op == BLK_DISCARD;
    uint64_t more = long_one ? MIN(req->len, UINT64_MAX / 256) * ZEROES_PER_NS : 0;
    return began_ns + p->hard_ns + MIN(more, UINT64_MAX / 4);
}

static uint64_t context_due(const struct context *c)
{
    const struct patience *p = c->patience;
    uint64_t hard = hard_due(p, c->parent, c->began_ns);
    bool impatient = c->parent->op == BLK_READ && (c->parent->flags & BLK_IMPATIENT);
    return impatient ? MIN(hard, c->began_ns + p->counters.soft_ns) : hard;
}

static void timer_due(struct patience *p, uint64_t due_ns)
{
    if (p->timer.armed && p->timer_due_ns <= due_ns)
        return;
    p->timer_due_ns = due_ns;
    timer_start(p->dev.loop, &p->timer, due_ns - MIN(due_ns, now(p)));
}

static void note_read(struct patience *p, uint64_t ns)
{
    latency_add(&p->reads, ns);
    peers_note(&p->peer, ns, now(p));
    if (++p->samples < SAMPLES_LOOK)
        return;
    p->samples = 0;
    p->counters.p99_ns = latency_quantile(&p->reads, 99);
    p->counters.soft_ns = MIN(MAX(10 * p->counters.p99_ns, p->soft_least_ns), p->hard_ns);
    if (p->reads.total >= SAMPLES_FADE)
        latency_fade(&p->reads);
}

/* --- a request beneath --- */

static void line_move(struct patience *p);
static void below_close(struct patience *p);

/* Pages of which the owner wants a part only: he may be reading the other part somewhere else. */
static void edges_take(struct context *c, const struct blk_req *req)
{
    uint64_t end = req->off + req->len;
    bool only = c->count == 1;
    c->own_first = req->off % PAGE_BYTES != 0 || (only && end % PAGE_BYTES != 0);
    c->own_last = !only && end % PAGE_BYTES != 0;
    bool taken = (!c->own_first || page_pool_take(c->patience->reserve, &c->pages[0], 1)) &&
                 (!c->own_last || page_pool_take(c->patience->reserve, &c->pages[c->count - 1], 1));
    ASSERT(taken);
    c->promised = c->count - c->own_first - c->own_last;
}

static bool page_is_own(const struct context *c, uint32_t i)
{
    return (i == 0 && c->own_first) || (i == c->count - 1 && c->own_last);
}

/* The owner gets what he asked for: parts of our pages, and whatever pages the disk has put into the array. */
static void pages_return(struct context *c)
{
    struct blk_req *req = c->parent;
    uint64_t head = req->off % PAGE_BYTES, end = head + req->len;
    for (uint32_t i = 0; i < c->count; i++) {
        if (!page_is_own(c, i)) {
            req->pages[i] = c->pages[i];
            continue;
        }
        uint64_t from = MAX(head, (uint64_t)i * PAGE_BYTES), to = MIN(end, (uint64_t)(i + 1) * PAGE_BYTES);
        if (c->below.status == BLK_OK)
            pages_copy_in(req->pages, from, (const char *)c->pages[i]->data + from % PAGE_BYTES, to - from);
        page_put(c->pages[i]);
    }
}

static void context_free(struct context *c)
{
    struct patience *p = c->patience;
    TAILQ_INSERT_HEAD(&p->free, c, link); /* the one that is warm */
    if (p->closed == NULL)
        line_move(p);
}

/* The disk has answered what nobody waits for any more. */
static void late_answer(struct context *c)
{
    struct patience *p = c->patience;
    for (uint32_t i = 0; i < c->count; i++)
        page_put(c->pages[i]);
    p->dev.overdue--;
    context_free(c);
    if (p->closed != NULL && p->dev.overdue == 0)
        below_close(p);
}

static void below_done(struct blk_req *below)
{
    struct context *c = container_of(below, struct context, below);
    struct patience *p = c->patience;
    struct blk_req *req = c->parent;
    if (below->op == BLK_READ && below->status == BLK_OK)
        note_read(p, now(p) - c->began_ns);
    if (req == NULL) {
        late_answer(c);
        return;
    }
    TAILQ_REMOVE(&p->waiting, c, link);
    p->promised -= c->promised;
    if (req->op == BLK_READ)
        pages_return(c);
    if (below->status == BLK_MEDIA)
        blk_complete_media(req, below->bad_off);
    else
        blk_complete(req, below->status);
    context_free(c);
}

static void request_start(struct patience *p, struct blk_req *req)
{
    struct context *c = TAILQ_FIRST(&p->free);
    TAILQ_REMOVE(&p->free, c, link);
    TAILQ_INSERT_TAIL(&p->waiting, c, link);
    c->parent = req;
    c->began_ns = req->scratch[0];
    c->promised = 0;
    c->own_first = c->own_last = false;
    c->count = blk_op_has_data(req->op) ? page_count_for(req->off, req->len) : 0;
    for (uint32_t i = 0; i < c->count; i++)
        c->pages[i] = req->pages[i];
    if (req->op == BLK_READ) {
        edges_take(c, req);
        p->promised += c->promised;
        p->credit = MIN(p->credit + 1, (unsigned)(HEDGE_COST * HEDGE_DEPTH));
    }
    c->below = (struct blk_req){.op = req->op,
                                .flags = req->flags & ~(unsigned)BLK_IMPATIENT,
                                .off = req->off,
                                .len = req->len,
                                .pages = c->count > 0 ? c->pages : NULL,
                                .done = below_done};
    timer_due(p, context_due(c));
    blk_submit(p->below, &c->below);
}

/* --- in line --- */

static bool has_room(const struct patience *p, const struct blk_req *req)
{
    uint32_t pages = req->op == BLK_READ ? page_count_for(req->off, req->len) : 0;
    return !TAILQ_EMPTY(&p->free) && p->promised + pages <= page_pool_free(p->reserve);
}

static void line_move(struct patience *p)
{
    struct blk_req *req;
    while ((req = STAILQ_FIRST(&p->line)) != NULL && has_room(p, req)) {
        STAILQ_REMOVE_HEAD(&p->line, link);
        request_start(p, req);
    }
}

static void patience_submit(struct blkdev *dev, struct blk_req *req)
{
    struct patience *p = patience_of(dev);
    req->scratch[0] = now(p);
    STAILQ_INSERT_TAIL(&p->line, req, link);
    line_move(p);
    if (!STAILQ_EMPTY(&p->line)) /* pages may come back without a word */
        timer_due(p, now(p) + LINE_LOOK);
}

/* --- giving up --- */

/* What the disk may still fill stays with it; what it may still read is held. */
static void pages_part(struct context *c)
{
    struct blk_req *req = c->parent;
    for (uint32_t i = 0; i < c->count; i++) {
        if (req->op != BLK_READ)
            page_ref(c->pages[i]);
        else if (!page_is_own(c, i)) {
            bool taken = page_pool_take(c->patience->reserve, &req->pages[i], 1);
            ASSERT(taken); /* promised */
        }
    }
}

static void give_up(struct context *c, enum blk_status status)
{
    struct patience *p = c->patience;
    struct blk_req *req = c->parent;
    pages_part(c);
    TAILQ_REMOVE(&p->waiting, c, link);
    p->promised -= c->promised;
    p->dev.overdue++;
    p->counters.late += status == BLK_LATE;
    p->counters.timed_out += status == BLK_TIMEOUT;
    c->parent = NULL;
    blk_complete(req, status);
}

/*
 * Who is told BLK_LATE keeps pages of the reserve until he has the bytes, and may have to come back for them: so these
 * leave enough that any request can still be passed on. (How many are promised is no matter: those come to an end.)
 */
static bool may_be_late(const struct context *c)
{
    const struct patience *p = c->patience;
    return p->credit >= HEDGE_COST && page_pool_free(p->reserve) >= c->promised + REQUEST_PAGES;
}

/* When to look at it again; UINT64_MAX: never, it is given up. */
static uint64_t context_look(struct context *c)
{
    struct patience *p = c->patience;
    uint64_t hard = hard_due(p, c->parent, c->began_ns), due = context_due(c);
    if (now(p) < due)
        return due;
    if (now(p) >= hard) {
        give_up(c, BLK_TIMEOUT);
        return UINT64_MAX;
    }
    if (!may_be_late(c))
        return MIN(hard, now(p) + p->counters.soft_ns);
    p->credit -= HEDGE_COST;
    give_up(c, BLK_LATE);
    return UINT64_MAX;
}

/* Time-outs of those that were never passed on. */
static uint64_t line_look(struct patience *p)
{
    struct blk_req *req, *next;
    struct blk_req_list kept = STAILQ_HEAD_INITIALIZER(kept);
    for (req = STAILQ_FIRST(&p->line); req != NULL; req = next) {
        next = STAILQ_NEXT(req, link);
        if (now(p) < hard_due(p, req, req->scratch[0])) {
            STAILQ_INSERT_TAIL(&kept, req, link);
            continue;
        }
        p->counters.timed_out++;
        blk_complete(req, BLK_TIMEOUT);
    }
    STAILQ_INIT(&p->line);
    STAILQ_CONCAT(&p->line, &kept);
    line_move(p);
    return STAILQ_EMPTY(&p->line) ? UINT64_MAX : now(p) + LINE_LOOK;
}

static void tell_closed(struct patience *p)
{
    if (!p->closed_told)
        loop_defer(p->dev.loop, p->closed);
    p->closed_told = true;
}

static void patience_tick(struct timer *timer)
{
    struct patience *p = container_of(timer, struct patience, timer);
    uint64_t next = UINT64_MAX;
    if (p->closed != NULL) {
        tell_closed(p);
        return;
    }
    struct context *c, *after;
    for (c = TAILQ_FIRST(&p->waiting); c != NULL; c = after) {
        after = TAILQ_NEXT(c, link);
        uint64_t due = context_look(c);
        next = MIN(next, due);
    }
    uint64_t due = line_look(p);
    next = MIN(next, due);
    if (next != UINT64_MAX)
        timer_due(p, next);
}

/* --- birth and death --- */

static void below_event(struct blk_watcher *watcher, struct blkdev *below, enum blk_event event)
{
    struct patience *p = container_of(watcher, struct patience, watcher);
    p->dev.info.size = below->info.size;
    p->dev.info.read_only = below->info.read_only;
    blk_notify(&p->dev, event);
}

static void patience_free(struct patience *p)
{
    if (p->reserve != NULL)
        page_pool_retire(p->reserve);
    free(p->contexts);
    free(p);
}

static void below_is_closed(struct task *task)
{
    struct patience *p = container_of(task, struct patience, below_closed);
    tell_closed(p);
    patience_free(p);
}

static void below_close(struct patience *p)
{
    timer_stop(p->dev.loop, &p->timer);
    p->below_closed.run = below_is_closed;
    blk_close(p->below, &p->below_closed);
}

static void patience_close(struct blkdev *dev, struct task *closed)
{
    struct patience *p = patience_of(dev);
    ASSERT(TAILQ_EMPTY(&p->waiting) && STAILQ_EMPTY(&p->line));
    p->closed = closed;
    peers_leave(&p->peer);
    blk_unwatch(p->below, &p->watcher);
    if (dev->overdue == 0)
        below_close(p);
    else
        timer_start(dev->loop, &p->timer, p->hard_ns);
}

static const struct blkdev_ops patience_ops = {.kind = "patience", .submit = patience_submit, .close = patience_close};

static bool contexts_create(struct patience *p, unsigned count)
{
    p->contexts = calloc(count, sizeof *p->contexts);
    for (unsigned i = 0; p->contexts != NULL && i < count; i++) {
        p->contexts[i].patience = p;
        TAILQ_INSERT_TAIL(&p->free, &p->contexts[i], link);
    }
    return p->contexts != NULL;
}

struct blkdev *patience_create(struct loop *loop, struct blkdev *below, const struct patience_options *options)
{
    ASSERT(below->loop == loop && (options->reserve == 0 || options->reserve >= REQUEST_PAGES));
    struct patience *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    TAILQ_INIT(&p->free);
    TAILQ_INIT(&p->waiting);
    STAILQ_INIT(&p->line);
    p->reserve = page_pool_create(options->reserve != 0 ? options->reserve : RESERVE_PAGES);
    if (p->reserve == NULL || !contexts_create(p, options->contexts != 0 ? options->contexts : CONTEXTS)) {
        patience_free(p);
        return NULL;
    }
    struct blk_info info = below->info;
    info.max_request = info.max_request == 0 ? REQUEST_BYTES : MIN(info.max_request, REQUEST_BYTES);
    blkdev_init(&p->dev, &patience_ops, loop, below->name, &info);
    p->below = below;
    p->watcher.event = below_event;
    blk_watch(below, &p->watcher);
    p->timer.fire = patience_tick;
    p->hard_ns = options->hard_ns != 0 ? options->hard_ns : HARD;
    p->soft_least_ns = options->soft_ns != 0 ? options->soft_ns : info.rotational ? SOFT_ROTATIONAL : SOFT_OTHER;
    p->counters.soft_ns = MIN(p->soft_least_ns, p->hard_ns);
    p->credit = HEDGE_COST * HEDGE_DEPTH;
    return &p->dev;
}

struct peer *patience_peer(struct blkdev *dev)
{
    return dev->ops == &patience_ops ? &patience_of(dev)->peer : NULL;
}

const struct patience_counters *patience_counters(const struct blkdev *dev)
{
    return dev->ops == &patience_ops ? &container_of(dev, struct patience, dev)->counters : NULL;
}

struct blkdev *patience_peer_dev(struct peer *peer)
{
    return &container_of(peer, struct patience, peer)->dev;
}
