/*
 * See raid/shadow.h for the drawing and the rules.
 *
 * A request that is passed on takes a context from a fixed number; when all are in use, or while it is HOLDING, requests
 * wait in line. Those that are held up by a copy or another write wait in a line of their own, so that they stop nobody
 * else.
 *
 * A write that only the old disk refused (D4) keeps its context until a copy of its own has brought its range back, block
 * by block where some of it cannot be read.
 */
#include "raid/shadow.h"

#include <stdlib.h>

#include "core/check.h"

enum { CONTEXTS = 512, BUFFERS = 8, BUFFER_PAGES = 64, OLD = 0, NEW = 1 };
#define HOLD_LOOK_NS 1000000ull

struct context {
    LIST_ENTRY(context) link; /* free, or busy */
    struct shadow *shadow;
    struct blk_req *parent;
    struct blk_req reqs[2];
    bool sent[2];
    unsigned pending;
    bool refused; /* D4 */
    struct shadow_copy mend;
};

struct shadow {
    struct blkdev dev;
    struct blkdev *disks[2];
    uint64_t from, end;
    enum shadow_mode mode;
    struct shadow_owner *owner;
    struct timer hold;
    LIST_HEAD(, context) free, busy;
    LIST_HEAD(, shadow_copy) copies;
    struct blk_req_list line, behind; /* for a context; for a range */
    STAILQ_HEAD(, shadow_copy) copies_waiting;
    unsigned copies_count;
    uint32_t buffers_taken; /* a bit each */
    struct page_pool *pages;
    struct page *buffers[BUFFERS][BUFFER_PAGES];
    struct context contexts[CONTEXTS];
};

static void behind_go_on(struct shadow *s);
static void copy_go_on(struct shadow_copy *copy);

static struct shadow *shadow_of(struct blkdev *dev)
{
    return container_of(dev, struct shadow, dev);
}

static bool overlap(const struct blk_req *req, uint64_t off, uint64_t len)
{
    return blk_op_writes(req->op) && req->off < off + len && off < req->off + req->len;
}

static void new_failed(struct shadow *s, enum blk_status status)
{
    if (s->mode != SHADOW_LENIENT)
        return;
    shadow_set_mode(s, SHADOW_OLD);
    s->owner->failed(s->owner, status);
}

/* --- requests --- */

/* The request whose answer is the answer. */
static const struct blk_req *answer_of(struct context *c)
{
    const struct blk_req *old = &c->reqs[OLD], *new = &c->reqs[NEW];
    enum shadow_mode mode = c->shadow->mode;
    if (!c->sent[NEW] || c->refused || mode == SHADOW_OLD)
        return old;
    if (!c->sent[OLD] || mode == SHADOW_NEW || new->status == BLK_INVALID)
        return new;
    return old->status != BLK_OK || mode != SHADOW_STRICT ? old : new;
}

static void copies_go_on(struct shadow *s)
{
    struct shadow_copy *copy, *next;
    for (copy = LIST_FIRST(&s->copies); copy != NULL; copy = next) {
        next = LIST_NEXT(copy, link);
        if (copy->draining)
            copy_go_on(copy);
    }
}

/* It is in no list. */
static void context_answer(struct context *c)
{
    struct shadow *s = c->shadow;
    struct blk_req *parent = c->parent;
    const struct blk_req *answer = answer_of(c);
    enum blk_status status = answer->status;
    uint64_t bad_off = answer->bad_off;
    LIST_INSERT_HEAD(&s->free, c, link);
    if (status == BLK_MEDIA)
        blk_complete_media(parent, bad_off);
    else
        blk_complete(parent, status);
    copies_go_on(s);
    behind_go_on(s);
}

static void mended(struct shadow_copy *copy)
{
    context_answer(container_of(copy, struct context, mend));
}

/* D4: is the new disk ahead of the old one? Who does not answer at all is given up by others. */
static bool is_ahead(const struct context *c)
{
    enum blk_status old = c->reqs[OLD].status;
    enum shadow_mode mode = c->shadow->mode;
    return blk_op_writes(c->parent->op) && c->sent[OLD] && c->sent[NEW] && c->reqs[NEW].status == BLK_OK &&
           old != BLK_OK && old != BLK_GONE && old != BLK_TIMEOUT && (mode == SHADOW_LENIENT || mode == SHADOW_STRICT);
}

static void context_over(struct context *c)
{
    struct shadow *s = c->shadow;
    const struct blk_req *parent = c->parent;
    if (c->sent[NEW] && c->reqs[NEW].status != BLK_OK && c->reqs[NEW].status != BLK_INVALID)
        new_failed(s, c->reqs[NEW].status);
    LIST_REMOVE(c, link);
    c->refused = is_ahead(c);
    if (!c->refused) {
        context_answer(c);
        return;
    }
    uint64_t off = round_down(parent->off, PAGE_BYTES), end = round_up(parent->off + parent->len, PAGE_BYTES);
    c->mend = (struct shadow_copy){.off = off, .len = end - off, .mends = true, .done = mended};
    shadow_copy_start(s, &c->mend);
    copies_go_on(s);
}

static void one_over(struct context *c)
{
    if (--c->pending == 0)
        context_over(c);
}

static void old_done(struct blk_req *req)
{
    one_over(container_of(req, struct context, reqs[OLD]));
}

static void new_done(struct blk_req *req)
{
    one_over(container_of(req, struct context, reqs[NEW]));
}

static bool goes_to_new(const struct shadow *s, const struct blk_req *req)
{
    if (s->mode == SHADOW_OLD || req->op == BLK_READ)
        return s->mode == SHADOW_NEW;
    return req->op == BLK_FLUSH || (req->off >= s->from && req->off + req->len <= s->end);
}

/* By a copy (D1), or another write of the same bytes (D3). */
static bool is_held_up(const struct shadow *s, const struct blk_req *req)
{
    const struct shadow_copy *copy;
    const struct context *c;
    for (copy = LIST_FIRST(&s->copies); copy != NULL; copy = LIST_NEXT(copy, link))
        if (overlap(req, copy->at, copy->piece))
            return true;
    for (c = LIST_FIRST(&s->busy); c != NULL; c = LIST_NEXT(c, link))
        if (blk_op_writes(c->parent->op) && overlap(req, c->parent->off, c->parent->len))
            return true;
    return false;
}

/* There is a context. */
static void request_start(struct shadow *s, struct blk_req *req)
{
    if (is_held_up(s, req)) {
        STAILQ_INSERT_TAIL(&s->behind, req, link);
        return;
    }
    struct context *c = LIST_FIRST(&s->free);
    LIST_REMOVE(c, link);
    LIST_INSERT_HEAD(&s->busy, c, link);
    c->parent = req;
    c->refused = false;
    c->sent[NEW] = goes_to_new(s, req);
    c->sent[OLD] = s->mode != SHADOW_NEW;
    c->pending = (unsigned)c->sent[OLD] + c->sent[NEW];
    for (unsigned i = 0; i < 2; i++) {
        c->reqs[i] = (struct blk_req){.op = req->op,
                                      .flags = req->flags,
                                      .off = req->off,
                                      .len = req->len,
                                      .pages = req->pages,
                                      .done = i == OLD ? old_done : new_done};
    }
    for (unsigned i = 2; i-- > 0;)
        if (c->sent[i])
            blk_submit(s->disks[i], &c->reqs[i]);
}

static void line_go_on(struct shadow *s)
{
    struct blk_req *req;
    while (s->mode != SHADOW_HOLDING && !LIST_EMPTY(&s->free) && (req = STAILQ_FIRST(&s->line)) != NULL) {
        STAILQ_REMOVE_HEAD(&s->line, link);
        request_start(s, req);
    }
}

/* Those that were held up ask again, before what came later. */
static void behind_go_on(struct shadow *s)
{
    struct blk_req_list line = STAILQ_HEAD_INITIALIZER(line);
    STAILQ_CONCAT(&line, &s->behind);
    STAILQ_CONCAT(&line, &s->line);
    STAILQ_CONCAT(&s->line, &line);
    line_go_on(s);
}

static void shadow_submit(struct blkdev *dev, struct blk_req *req)
{
    struct shadow *s = shadow_of(dev);
    if (s->mode == SHADOW_HOLDING || LIST_EMPTY(&s->free) || !STAILQ_EMPTY(&s->line))
        STAILQ_INSERT_TAIL(&s->line, req, link);
    else
        request_start(s, req);
}

static void hold_look(struct timer *timer)
{
    struct shadow *s = container_of(timer, struct shadow, hold);
    if (s->disks[OLD]->in_flight > 0 && s->mode == SHADOW_HOLDING) {
        timer_start(s->dev.loop, timer, HOLD_LOOK_NS);
        return;
    }
    if (s->mode == SHADOW_HOLDING)
        shadow_set_mode(s, SHADOW_LENIENT);
}

/* --- copies --- */

static bool buffer_take(struct shadow *s, struct shadow_copy *copy)
{
    for (unsigned i = 0; i < BUFFERS; i++) {
        if (s->buffers_taken & 1u << i)
            continue;
        s->buffers_taken |= 1u << i;
        copy->buffer = i;
        copy->pages = s->buffers[i];
        return true;
    }
    return false;
}

static void copy_told(struct task *task)
{
    struct shadow_copy *copy = container_of(task, struct shadow_copy, task);
    copy->done(copy);
}

static void range_let_go(struct shadow_copy *copy)
{
    LIST_REMOVE(copy, link);
    behind_go_on(copy->shadow);
}

static void copy_begin(struct shadow_copy *copy);

/* Its range is let go already. */
static void copy_over(struct shadow_copy *copy, enum blk_status status)
{
    struct shadow *s = copy->shadow;
    struct shadow_copy *next = STAILQ_FIRST(&s->copies_waiting);
    s->buffers_taken &= ~(1u << copy->buffer);
    s->copies_count--;
    copy->status = status;
    copy->task.run = copy_told;
    loop_defer(s->dev.loop, &copy->task);
    if (next != NULL && buffer_take(s, next)) {
        STAILQ_REMOVE_HEAD(&s->copies_waiting, waiting);
        copy_begin(next);
    }
}

static void copy_wrote(struct blk_req *req)
{
    struct shadow_copy *copy = container_of(req, struct shadow_copy, req);
    range_let_go(copy);
    if (req->status != BLK_OK) {
        new_failed(copy->shadow, req->status);
        copy_over(copy, BLK_GONE);
        return;
    }
    copy->at += copy->piece;
    if (copy->at < copy->off + copy->len)
        copy_begin(copy);
    else
        copy_over(copy, BLK_OK);
}

/* Of what cannot be read in one go: block by block, and past those that cannot be read at all. */
static void copy_skip(struct shadow_copy *copy)
{
    range_let_go(copy);
    if (copy->by_blocks)
        copy->at += copy->piece;
    copy->by_blocks = true;
    if (copy->at < copy->off + copy->len)
        copy_begin(copy);
    else
        copy_over(copy, BLK_OK);
}

static void copy_read(struct blk_req *req)
{
    struct shadow_copy *copy = container_of(req, struct shadow_copy, req);
    struct shadow *s = copy->shadow;
    if (copy->mends && req->status == BLK_MEDIA && s->mode != SHADOW_OLD) {
        copy_skip(copy);
        return;
    }
    if (req->status != BLK_OK || s->mode == SHADOW_OLD) {
        range_let_go(copy);
        copy_over(copy, req->status != BLK_OK ? req->status : BLK_GONE);
        return;
    }
    copy->req = (struct blk_req){.op = BLK_WRITE,
                                 .flags = copy->mends ? BLK_FUA : BLK_BACKGROUND,
                                 .off = copy->at,
                                 .len = copy->piece,
                                 .pages = copy->pages,
                                 .done = copy_wrote};
    blk_submit(s->disks[NEW], &copy->req);
}

/* The range is held: are the writes to it that came before over? */
static void copy_go_on(struct shadow_copy *copy)
{
    struct shadow *s = copy->shadow;
    const struct context *c;
    copy->draining = s->mode == SHADOW_HOLDING;
    for (c = LIST_FIRST(&s->busy); c != NULL; c = LIST_NEXT(c, link))
        copy->draining = copy->draining || overlap(c->parent, copy->at, copy->piece);
    if (copy->draining)
        return;
    copy->req = (struct blk_req){.op = BLK_READ,
                                 .flags = BLK_BACKGROUND,
                                 .off = copy->at,
                                 .len = copy->piece,
                                 .pages = copy->pages,
                                 .done = copy_read};
    blk_submit(s->disks[OLD], &copy->req);
}

static void copy_begin(struct shadow_copy *copy)
{
    struct shadow *s = copy->shadow;
    uint64_t most = (uint64_t)BUFFER_PAGES * PAGE_BYTES;
    if (s->dev.info.max_request != 0)
        most = MIN(most, round_down(s->dev.info.max_request, PAGE_BYTES));
    if (copy->by_blocks)
        most = s->dev.info.logical_block;
    copy->piece = MIN(most, copy->off + copy->len - copy->at);
    if (s->mode == SHADOW_OLD) {
        copy_over(copy, BLK_GONE);
        return;
    }
    LIST_INSERT_HEAD(&s->copies, copy, link);
    copy_go_on(copy);
}

void shadow_copy_start(struct shadow *s, struct shadow_copy *copy)
{
    ASSERT(copy->len > 0 && copy->off % PAGE_BYTES == 0 && copy->len % PAGE_BYTES == 0);
    copy->shadow = s;
    copy->at = copy->off;
    copy->draining = copy->by_blocks = false;
    s->copies_count++;
    if (buffer_take(s, copy))
        copy_begin(copy);
    else
        STAILQ_INSERT_TAIL(&s->copies_waiting, copy, waiting);
}

/* --- life --- */

struct blkdev *shadow_dev(struct shadow *s)
{
    return &s->dev;
}

enum shadow_mode shadow_mode(const struct shadow *s)
{
    return s->mode;
}

void shadow_set_mode(struct shadow *s, enum shadow_mode mode)
{
    s->mode = mode;
    copies_go_on(s);
    line_go_on(s);
}

bool shadow_is_copying(const struct shadow *s)
{
    return s->copies_count > 0;
}

bool shadow_is_quiet(const struct shadow *s)
{
    return s->mode != SHADOW_HOLDING && s->dev.in_flight == 0 && s->copies_count == 0;
}

static void shadow_close(struct blkdev *dev, struct task *closed)
{
    loop_defer(dev->loop, closed); /* the disks are lent */
}

static const struct blkdev_ops shadow_ops = {.kind = "shadow", .submit = shadow_submit, .close = shadow_close};

static struct blk_info info_of(const struct blk_info *old, const struct blk_info *new)
{
    struct blk_info info = *old;
    info.discards = old->discards && new->discards;
    info.discard_zeroes = old->discard_zeroes && new->discard_zeroes;
    info.volatile_cache = old->volatile_cache || new->volatile_cache;
    if (new->max_request != 0 && (old->max_request == 0 || new->max_request < old->max_request))
        info.max_request = new->max_request;
    return info;
}

static bool buffers_create(struct shadow *s)
{
    s->pages = page_pool_create(BUFFERS * BUFFER_PAGES);
    for (unsigned i = 0; s->pages != NULL && i < BUFFERS; i++) {
        bool taken = page_pool_take(s->pages, s->buffers[i], BUFFER_PAGES);
        ASSERT(taken);
    }
    return s->pages != NULL;
}

struct shadow *shadow_create(struct blkdev *old, struct blkdev *new, uint64_t from, uint64_t end,
                             struct shadow_owner *owner)
{
    struct shadow *s = calloc(1, sizeof *s);
    if (s == NULL || !buffers_create(s)) {
        free(s);
        return NULL;
    }
    struct blk_info info = info_of(&old->info, &new->info);
    blkdev_init(&s->dev, &shadow_ops, old->loop, old->name, &info);
    s->disks[OLD] = old;
    s->disks[NEW] = new;
    s->from = from;
    s->end = end;
    s->owner = owner;
    STAILQ_INIT(&s->line);
    STAILQ_INIT(&s->behind);
    STAILQ_INIT(&s->copies_waiting);
    for (unsigned i = 0; i < CONTEXTS; i++) {
        s->contexts[i].shadow = s;
        LIST_INSERT_HEAD(&s->free, &s->contexts[i], link);
    }
    s->hold.fire = hold_look;
    timer_start(old->loop, &s->hold, 0);
    return s;
}

void shadow_destroy(struct shadow *s)
{
    ASSERT(shadow_is_quiet(s));
    timer_stop(s->dev.loop, &s->hold);
    for (unsigned i = 0; i < BUFFERS; i++)
        page_put_all(s->buffers[i], BUFFER_PAGES);
    page_pool_retire(s->pages);
    free(s);
}
