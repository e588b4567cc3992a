/*
 * The fault injector: see raid/fault.h.
 *
 * Each request that is passed on takes a context (a request of our own to the device below, and a timer for delays)
 * from a fixed pool; when all are in use, requests wait in line. The life of a context:
 *
 *     take -> [delay] -> answer from the rule            (the device below never sees it)
 *                     \> pass on -> answer from below    (or BLK_GONE, if fault_kill() came in between)
 *
 * A request already below when the device is killed keeps its pages lent there, so it is answered when it comes back.
 */
#include "raid/fault.h"

#include <stdlib.h>

#include "core/check.h"

enum { FAULT_RULES = 16, FAULT_CONTEXTS = 1024 };

struct rule {
    struct fault_rule rule;
    uint32_t seen, applied;
    bool in_force;
};

struct context {
    LIST_ENTRY(context) link; /* free, or busy */
    struct fault *fault;
    struct blk_req *parent;
    struct blk_req below;
    struct timer timer;
    enum blk_status status; /* what the rule answers; BLK_OK: pass on */
    uint64_t bad_off;
    bool killed;
};

struct fault {
    struct blkdev dev;
    struct blkdev *below;
    struct blk_watcher watcher;
    struct rule rules[FAULT_RULES];
    bool dead;
    LIST_HEAD(, context) free, busy;
    struct blk_req_list waiting;
    struct task below_closed, *closed;
    struct context contexts[FAULT_CONTEXTS];
};

static struct fault *fault_of(struct blkdev *dev)
{
    return container_of(dev, struct fault, dev);
}

/* --- rules --- */

static bool rule_matches(const struct rule *r, const struct blk_req *req)
{
    const struct fault_rule *rule = &r->rule;
    if (!r->in_force || (rule->ops != 0 && !(rule->ops & (1u << req->op))))
        return false;
    if (rule->until_written && blk_op_writes(req->op))
        return false;
    return rule->len == 0 || (req->off < rule->off + rule->len && rule->off < req->off + req->len);
}

/* The rule that applies to this request, counted; NULL: none. */
static const struct fault_rule *rule_apply(struct fault *fault, const struct blk_req *req)
{
    for (unsigned i = 0; i < FAULT_RULES; i++) {
        struct rule *r = &fault->rules[i];
        if (!rule_matches(r, req) || r->seen++ < r->rule.skip)
            continue;
        if (r->rule.count != 0 && ++r->applied >= r->rule.count)
            r->in_force = false;
        return &r->rule;
    }
    return NULL;
}

/* The disk reallocates what was written: cut it from the rule's range where it covers an end of it. */
static void rule_written(struct rule *r, uint64_t off, uint64_t end)
{
    struct fault_rule *rule = &r->rule;
    uint64_t rule_end = rule->off + rule->len;
    if (!r->in_force || !rule->until_written || rule->len == 0 || end <= rule->off || off >= rule_end)
        return;
    if (off <= rule->off)
        rule->off = MIN(end, rule_end);
    else if (end >= rule_end)
        rule_end = off;
    rule->len = rule_end - rule->off;
    r->in_force = rule->len > 0;
}

int fault_add(struct blkdev *dev, const struct fault_rule *rule)
{
    struct fault *fault = fault_of(dev);
    for (int i = 0; i < FAULT_RULES; i++) {
        if (fault->rules[i].in_force)
            continue;
        fault->rules[i] = (struct rule){.rule = *rule, .in_force = true};
        return i;
    }
    return -1;
}

void fault_clear(struct blkdev *dev, int number)
{
    struct fault *fault = fault_of(dev);
    ASSERT(number >= -1 && number < FAULT_RULES);
    for (int i = 0; i < FAULT_RULES; i++)
        if (number == -1 || number == i)
            fault->rules[i].in_force = false;
}

/* --- a request's way --- */

static void request_start(struct fault *fault, struct blk_req *req);

static void answer(struct blk_req *req, enum blk_status status, uint64_t bad_off)
{
    if (status == BLK_MEDIA)
        blk_complete_media(req, bad_off);
    else
        blk_complete(req, status);
}

static void context_finish(struct context *c, enum blk_status status, uint64_t bad_off)
{
    struct fault *fault = c->fault;
    LIST_REMOVE(c, link);
    LIST_INSERT_HEAD(&fault->free, c, link);
    answer(c->parent, status, bad_off);
    struct blk_req *next;
    while (!LIST_EMPTY(&fault->free) && (next = STAILQ_FIRST(&fault->waiting)) != NULL) {
        STAILQ_REMOVE_HEAD(&fault->waiting, link);
        request_start(fault, next);
    }
}

static void below_done(struct blk_req *req)
{
    struct context *c = container_of(req, struct context, below);
    if (c->killed) {
        context_finish(c, BLK_GONE, 0);
        return;
    }
    if (req->status == BLK_OK && (req->op == BLK_WRITE || req->op == BLK_WRITE_ZEROES))
        for (unsigned i = 0; i < FAULT_RULES; i++)
            rule_written(&c->fault->rules[i], req->off, req->off + req->len);
    context_finish(c, req->status, req->bad_off);
}

static void context_pass_on(struct context *c)
{
    struct blk_req *parent = c->parent;
    c->below = (struct blk_req){.op = parent->op,
                                .flags = parent->flags,
                                .off = parent->off,
                                .len = parent->len,
                                .pages = parent->pages,
                                .done = below_done};
    blk_submit(c->fault->below, &c->below);
}

static void delay_over(struct timer *timer)
{
    struct context *c = container_of(timer, struct context, timer);
    if (c->status != BLK_OK)
        context_finish(c, c->status, c->bad_off);
    else
        context_pass_on(c);
}

/* Answers at once, or takes a context; never finishes one. */
static void request_start(struct fault *fault, struct blk_req *req)
{
    if (fault->dead) {
        blk_complete(req, BLK_GONE);
        return;
    }
    enum blk_status status = BLK_OK;
    uint64_t bad_off = req->off, delay_ns = 0;
    const struct fault_rule *rule = rule_apply(fault, req);
    if (rule != NULL) {
        status = rule->status;
        bad_off = rule->len != 0 ? MAX(rule->off, req->off) : req->off;
        delay_ns = rule->delay_ns;
    }
    if (status != BLK_OK && delay_ns == 0) {
        answer(req, status, bad_off);
        return;
    }
    struct context *c = LIST_FIRST(&fault->free);
    ASSERT(c != NULL);
    LIST_REMOVE(c, link);
    *c = (struct context){.fault = fault, .parent = req, .status = status, .bad_off = bad_off};
    c->timer.fire = delay_over;
    LIST_INSERT_HEAD(&fault->busy, c, link);
    if (delay_ns > 0)
        timer_start(fault->dev.loop, &c->timer, delay_ns);
    else
        context_pass_on(c);
}

static void fault_submit(struct blkdev *dev, struct blk_req *req)
{
    struct fault *fault = fault_of(dev);
    if (LIST_EMPTY(&fault->free))
        STAILQ_INSERT_TAIL(&fault->waiting, req, link);
    else
        request_start(fault, req);
}

void fault_kill(struct blkdev *dev)
{
    struct fault *fault = fault_of(dev);
    struct context *c, *next;
    fault->dead = true;
    for (c = LIST_FIRST(&fault->busy); c != NULL; c = next) {
        next = LIST_NEXT(c, link);
        c->killed = true;
        if (!c->timer.armed)
            continue;
        timer_stop(dev->loop, &c->timer);
        context_finish(c, BLK_GONE, 0);
    }
}

void fault_revive(struct blkdev *dev)
{
    fault_of(dev)->dead = false;
}

/* --- birth and death --- */

static void fault_event(struct blk_watcher *watcher, struct blkdev *below, enum blk_event event)
{
    struct fault *fault = container_of(watcher, struct fault, watcher);
    fault->dev.info.size = below->info.size;
    fault->dev.info.read_only = below->info.read_only;
    blk_notify(&fault->dev, event);
}

static void fault_below_closed(struct task *task)
{
    struct fault *fault = container_of(task, struct fault, below_closed);
    struct loop *loop = fault->dev.loop;
    struct task *closed = fault->closed;
    free(fault);
    loop_defer(loop, closed);
}

static void fault_close(struct blkdev *dev, struct task *closed)
{
    struct fault *fault = fault_of(dev);
    ASSERT(LIST_EMPTY(&fault->busy) && STAILQ_EMPTY(&fault->waiting));
    fault->closed = closed;
    fault->below_closed.run = fault_below_closed;
    blk_unwatch(fault->below, &fault->watcher);
    blk_close(fault->below, &fault->below_closed);
}

static const struct blkdev_ops fault_ops = {.kind = "fault", .submit = fault_submit, .close = fault_close};

struct blkdev *fault_create(struct loop *loop, struct blkdev *below)
{
    ASSERT(below->loop == loop);
    struct fault *fault = calloc(1, sizeof *fault);
    if (fault == NULL)
        return NULL;
    blkdev_init(&fault->dev, &fault_ops, loop, below->name, &below->info);
    fault->below = below;
    fault->watcher.event = fault_event;
    blk_watch(below, &fault->watcher);
    LIST_INIT(&fault->free);
    LIST_INIT(&fault->busy);
    STAILQ_INIT(&fault->waiting);
    for (unsigned i = 0; i < FAULT_CONTEXTS; i++)
        LIST_INSERT_HEAD(&fault->free, &fault->contexts[i], link);
    return &fault->dev;
}
