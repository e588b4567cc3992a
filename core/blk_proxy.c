/*
 * Requests across two loops: see core/blk_proxy.h.
 *
 *      user's loop                                target's loop
 *      -----------                                -------------
 *      submit -> outbox -(end of turn)-> call --> unpack: each slot goes on
 *                                                    |
 *                                                 pages -> copy in -> blk_submit -> done -> copy out
 *                                                    ^                                        |
 *                                                    +------------- more of it ---------------+
 *      blk_complete <------ call <-(end of turn)- returns
 *
 * A batch is a list of slots that travels as one task, that of its first slot. So what is submitted in one turn costs
 * one loop_call(), and what is done in one turn another.
 *
 * References to pages are counted without locks, by their own loop only. So the target is given pages of its own
 * loop's pool, at most PIECE_PAGES at a time, and the bytes are copied by its thread: it may keep a written page, or
 * replace a read one, as any device may. A longer request is served piece by piece. A slot that finds no page waits in
 * the pool's line.
 *
 * News of the target travel in one letter, that goes to and fro: what happens while it is away waits, and is told as it
 * is then.
 *
 * The two halves of `struct proxy` are each touched by one loop; a slot, and the letter, by the one that has it. The
 * last thing the target's side does with the proxy is the call that says it has left; then it is freed.
 */
#include "core/blk_proxy.h"

#include <stdlib.h>

#include "core/check.h"
#include "core/page.h"

enum { PIECE_PAGES = 64 };

struct proxy;

struct slot {
    STAILQ_ENTRY(slot) link; /* in the outbox, in a batch, in the returns */
    struct task travel;      /* carries the batch that begins with this slot */
    struct proxy *proxy;
    struct blk_req *req; /* the user's */
    /* On the target's side. */
    struct blk_req piece;
    uint64_t done_len;
    uint32_t page_count;
    struct page_waiter waiter;
    struct task pages_came;
    struct page *pages[PIECE_PAGES];
};
STAILQ_HEAD(slot_list, slot);

enum { NO_EVENT = -1 };

struct letter {
    struct task travel;
    struct blk_info info;
    int health; /* BLK_EVENT_DEGRADED, _RESTORED, _FAILED, or NO_EVENT */
};

struct proxy {
    struct blkdev dev;
    struct blkdev *target;
    uint32_t piece_pages; /* at most PIECE_PAGES, and what the target's pool can give */
    /* The user's half. */
    struct slot_list idle, outbox;
    struct blk_req_list waiting; /* for a slot */
    struct task post;
    struct task *closed;
    struct letter letter;
    struct task arrive, leave; /* to the target's side: begin, and end, to listen */
    char gap[64]; /* the halves do not share a cache line */
    /* The target's half. */
    struct slot_list returns;
    struct task give_back;
    struct blk_watcher watcher;
    bool news, away, leaving; /* something is to be told; the letter is on its way; nobody listens any more */
    int health;
    struct slot slots[];
};

/* Send a list as one task. The receiver walks it from its first slot; the list is empty and usable at once. */
static void send_batch(struct slot_list *list, struct loop *to, void (*unpack)(struct task *))
{
    struct slot *first = STAILQ_FIRST(list);
    STAILQ_INIT(list);
    first->travel.run = unpack;
    loop_call(to, &first->travel);
}

/* --- the target's side --- */

static void serve_piece(struct slot *slot);

static void finish(struct slot *slot)
{
    struct proxy *p = slot->proxy;
    STAILQ_INSERT_TAIL(&p->returns, slot, link);
    loop_defer_late(p->target->loop, &p->give_back);
}

static uint64_t user_page_off(const struct slot *slot)
{
    return slot->req->off % PAGE_BYTES + slot->done_len;
}

/* From the target's pages to the user's, page by page: both stand at the same offset of a page. */
static void copy_piece(struct slot *slot, bool to_user)
{
    uint64_t off = user_page_off(slot), first = off / PAGE_BYTES, within = off % PAGE_BYTES, left = slot->piece.len;
    for (uint32_t i = 0; i < slot->page_count; i++) {
        uint64_t len = MIN(left, PAGE_BYTES - within);
        char *user = (char *)slot->req->pages[first + i]->data + within;
        if (to_user)
            pages_copy_out(user, &slot->pages[i], within, len);
        else
            pages_copy_in(&slot->pages[i], within, user, len);
        left -= len;
        within = 0;
    }
}

static void piece_done(struct blk_req *piece)
{
    struct slot *slot = container_of(piece, struct slot, piece);
    if (piece->op == BLK_READ && piece->status == BLK_OK)
        copy_piece(slot, true);
    page_put_all(slot->pages, slot->page_count);
    slot->page_count = 0;
    slot->done_len += piece->len;
    if (piece->status == BLK_OK && slot->done_len < slot->req->len)
        serve_piece(slot);
    else
        finish(slot);
}

/* It became shorter while the request was on its way. */
static bool is_beyond(const struct slot *slot)
{
    const struct blkdev *target = slot->proxy->target;
    return slot->piece.off + slot->piece.len > target->info.size;
}

static void submit_piece(struct slot *slot)
{
    if (is_beyond(slot)) {
        slot->piece.status = BLK_MEDIA; /* these bytes cannot be had */
        slot->piece.bad_off = slot->piece.off;
        page_put_all(slot->pages, slot->page_count);
        slot->page_count = 0;
        finish(slot);
        return;
    }
    if (slot->piece.op == BLK_WRITE)
        copy_piece(slot, false);
    blk_submit(slot->proxy->target, &slot->piece);
}

static void pages_came(struct task *task)
{
    submit_piece(container_of(task, struct slot, pages_came));
}

static void pages_ready(struct page_waiter *waiter)
{
    struct slot *slot = container_of(waiter, struct slot, waiter);
    struct loop *loop = slot->proxy->target->loop;
    bool got = page_pool_take(loop->pages, slot->pages, slot->page_count);
    ASSERT(got);
    loop_defer(loop, &slot->pages_came);
}

static void serve_piece(struct slot *slot)
{
    const struct blk_req *req = slot->req;
    struct proxy *p = slot->proxy;
    struct page_pool *pool = p->target->loop->pages;
    bool has_data = blk_op_has_data(req->op);
    uint64_t len = req->len - slot->done_len, off = req->off + slot->done_len;
    if (has_data)
        len = MIN(len, (uint64_t)p->piece_pages * PAGE_BYTES - off % PAGE_BYTES);
    slot->page_count = has_data ? page_count_for(off, len) : 0;
    slot->piece = (struct blk_req){.op = req->op,
                                   .flags = req->flags,
                                   .off = off,
                                   .len = len,
                                   .pages = has_data ? slot->pages : NULL,
                                   .done = piece_done};
    if (!has_data || page_pool_get(pool, slot->pages, slot->page_count)) {
        submit_piece(slot);
        return;
    }
    slot->waiter = (struct page_waiter){.count = slot->page_count, .ready = pages_ready};
    page_pool_wait(pool, &slot->waiter);
}

static void unpack_requests(struct task *task)
{
    struct slot *slot = container_of(task, struct slot, travel);
    while (slot != NULL) {
        struct slot *next = STAILQ_NEXT(slot, link); /* before the slot can be on another list */
        slot->done_len = 0;
        serve_piece(slot);
        slot = next;
    }
}

static void news_came(struct task *task);
static void has_left(struct task *task);

static void send_news(struct proxy *p)
{
    if (p->away)
        return;
    p->away = true;
    p->news = false;
    p->letter = (struct letter){.travel = {.run = news_came}, .info = p->target->info, .health = p->health};
    p->health = NO_EVENT;
    loop_call(p->dev.loop, &p->letter.travel);
}

static void send_farewell(struct proxy *p)
{
    p->leave.run = has_left;
    loop_call(p->dev.loop, &p->leave);
}

static void target_tells(struct blk_watcher *watcher, struct blkdev *target, enum blk_event event)
{
    struct proxy *p = container_of(watcher, struct proxy, watcher);
    ASSERT(target == p->target);
    if (event >= BLK_EVENT_DEGRADED)
        p->health = (int)event;
    p->news = true;
    send_news(p);
}

static void letter_came_back(struct task *task)
{
    struct proxy *p = container_of(task, struct proxy, letter.travel);
    p->away = false;
    if (p->leaving)
        send_farewell(p);
    else if (p->news)
        send_news(p);
}

static void run_arrive(struct task *task)
{
    struct proxy *p = container_of(task, struct proxy, arrive);
    blk_watch(p->target, &p->watcher);
    send_news(p); /* of what happened since it was created */
}

static void run_leave(struct task *task)
{
    struct proxy *p = container_of(task, struct proxy, leave);
    blk_unwatch(p->target, &p->watcher);
    p->leaving = true;
    if (!p->away)
        send_farewell(p);
}

/* --- the user's side --- */

static void news_came(struct task *task)
{
    struct proxy *p = container_of(task, struct proxy, letter.travel);
    struct blk_info *info = &p->dev.info, was = *info;
    int health = p->letter.health;
    info->size = p->letter.info.size;
    info->read_only = p->letter.info.read_only;
    info->volatile_cache = p->letter.info.volatile_cache;
    p->letter.travel.run = letter_came_back;
    loop_call(p->target->loop, &p->letter.travel);
    if (info->size != was.size)
        blk_notify(&p->dev, BLK_EVENT_RESIZED);
    if (info->volatile_cache != was.volatile_cache)
        blk_notify(&p->dev, BLK_EVENT_CACHE);
    if (health != NO_EVENT)
        blk_notify(&p->dev, (enum blk_event)health);
}

static void start(struct proxy *p, struct slot *slot, struct blk_req *req)
{
    slot->req = req;
    STAILQ_INSERT_TAIL(&p->outbox, slot, link);
    loop_defer_late(p->dev.loop, &p->post);
}

static void post(struct task *task)
{
    struct proxy *p = container_of(task, struct proxy, post);
    send_batch(&p->outbox, p->target->loop, unpack_requests);
}

static void complete(struct proxy *p, struct slot *slot)
{
    if (slot->piece.status == BLK_MEDIA)
        blk_complete_media(slot->req, slot->piece.bad_off);
    else
        blk_complete(slot->req, slot->piece.status);
    slot->req->extent = slot->piece.extent;
    slot->req->written = slot->piece.written;
    struct blk_req *next = STAILQ_FIRST(&p->waiting);
    if (next != NULL) {
        STAILQ_REMOVE_HEAD(&p->waiting, link);
        start(p, slot, next);
    } else {
        STAILQ_INSERT_HEAD(&p->idle, slot, link);
    }
}

static void unpack_answers(struct task *task)
{
    struct slot *slot = container_of(task, struct slot, travel);
    while (slot != NULL) {
        struct slot *next = STAILQ_NEXT(slot, link);
        complete(slot->proxy, slot);
        slot = next;
    }
}

static void give_back(struct task *task)
{
    struct proxy *p = container_of(task, struct proxy, give_back);
    send_batch(&p->returns, p->dev.loop, unpack_answers); /* p may be gone now */
}

static void proxy_submit(struct blkdev *dev, struct blk_req *req)
{
    struct proxy *p = container_of(dev, struct proxy, dev);
    struct slot *slot = STAILQ_FIRST(&p->idle);
    if (slot == NULL) {
        STAILQ_INSERT_TAIL(&p->waiting, req, link);
        return;
    }
    STAILQ_REMOVE_HEAD(&p->idle, link);
    start(p, slot, req);
}

static void proxy_close(struct blkdev *dev, struct task *closed)
{
    struct proxy *p = container_of(dev, struct proxy, dev);
    p->closed = closed;
    p->leave.run = run_leave;
    loop_call(p->target->loop, &p->leave);
}

static void has_left(struct task *task)
{
    struct proxy *p = container_of(task, struct proxy, leave);
    struct loop *loop = p->dev.loop;
    struct task *closed = p->closed;
    free(p);
    loop_defer(loop, closed);
}

static const struct blkdev_ops proxy_ops = {
    .kind = "proxy", .submit = proxy_submit, .close = proxy_close, .submits_status = true};

struct blkdev *blk_proxy_create(struct loop *loop, struct blkdev *target, uint32_t max_in_flight)
{
    ASSERT(max_in_flight > 0 && target->loop->pages != NULL);
    struct proxy *p = calloc(1, sizeof *p + max_in_flight * sizeof p->slots[0]);
    if (p == NULL)
        return NULL;
    blkdev_init(&p->dev, &proxy_ops, loop, target->name, &target->info);
    p->target = target;
    p->piece_pages = MIN((uint32_t)PIECE_PAGES, page_pool_size(target->loop->pages));
    p->post.run = post;
    p->give_back.run = give_back;
    p->arrive.run = run_arrive;
    p->watcher.event = target_tells;
    p->health = NO_EVENT;
    STAILQ_INIT(&p->idle);
    STAILQ_INIT(&p->outbox);
    STAILQ_INIT(&p->waiting);
    STAILQ_INIT(&p->returns);
    for (uint32_t i = 0; i < max_in_flight; i++) {
        struct slot *slot = &p->slots[i];
        slot->proxy = p;
        slot->pages_came.run = pages_came;
        STAILQ_INSERT_TAIL(&p->idle, slot, link);
    }
    loop_call(target->loop, &p->arrive);
    return &p->dev;
}
