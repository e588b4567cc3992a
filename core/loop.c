/*
 * Ready lists and timers, shared by all doors: see core/loop.h.
 *
 * The timers form a pairing heap: a root with the earliest due time, whose children are heaps; a link is two pointer
 * writes, a pop merges the children in pairs. Timers of equal due time fire in no particular but repeatable order.
 */
#include "core/loop.h"

#include <stddef.h>

#include "core/check.h"

void loop_init(struct loop *loop, const struct loop_ops *ops, struct page_pool *pages)
{
    *loop = (struct loop){.ops = ops, .pages = pages};
    STAILQ_INIT(&loop->ready);
    STAILQ_INIT(&loop->late);
}

uint64_t loop_random(struct loop *loop)
{
    return loop->ops->random(loop);
}

uint64_t loop_wall_clock_s(struct loop *loop)
{
    return loop->ops->wall_clock_s(loop);
}

bool loop_is_current(const struct loop *loop)
{
    return loop->ops->is_current(loop);
}

void loop_defer(struct loop *loop, struct task *task)
{
    ASSERT(!task->queued);
    task->queued = true;
    STAILQ_INSERT_TAIL(&loop->ready, task, link);
}

void loop_defer_late(struct loop *loop, struct task *task)
{
    if (task->queued)
        return;
    task->queued = true;
    STAILQ_INSERT_TAIL(&loop->late, task, link);
}

bool loop_has_late(const struct loop *loop, const struct task *but)
{
    const struct task *first = STAILQ_FIRST(&loop->late);
    if (first != NULL && first == but)
        first = STAILQ_NEXT(first, link);
    return first != NULL;
}

void loop_call(struct loop *loop, struct task *task)
{
    loop->ops->call(loop, task);
}

/* Two heaps into one; either may be NULL. The loser becomes the winner's first child. */
static struct timer *heap_merge(struct timer *a, struct timer *b)
{
    if (a == NULL || b == NULL)
        return a != NULL ? a : b;
    if (b->due_ns < a->due_ns) {
        struct timer *swap = a;
        a = b;
        b = swap;
    }
    b->prev = a;
    b->next = a->child;
    if (a->child != NULL)
        a->child->prev = b;
    a->child = b;
    return a;
}

/* Merge a list of siblings: in pairs from left to right, then the pairs from right to left. */
static struct timer *heap_merge_siblings(struct timer *first)
{
    struct timer *pairs = NULL;
    while (first != NULL) {
        struct timer *a = first, *b = a->next;
        first = b != NULL ? b->next : NULL;
        a->next = a->prev = NULL;
        if (b != NULL)
            b->next = b->prev = NULL;
        struct timer *merged = heap_merge(a, b);
        merged->next = pairs;
        pairs = merged;
    }
    struct timer *root = NULL;
    while (pairs != NULL) {
        struct timer *next = pairs->next;
        pairs->next = NULL;
        root = heap_merge(root, pairs);
        pairs = next;
    }
    return root;
}

void timer_stop(struct loop *loop, struct timer *timer)
{
    if (!timer->armed)
        return;
    timer->armed = false;
    struct timer *rest = heap_merge_siblings(timer->child);
    timer->child = NULL;
    if (timer == loop->timers) {
        loop->timers = rest;
        return;
    }
    if (timer->prev->child == timer)
        timer->prev->child = timer->next;
    else
        timer->prev->next = timer->next;
    if (timer->next != NULL)
        timer->next->prev = timer->prev;
    timer->next = timer->prev = NULL;
    loop->timers = heap_merge(loop->timers, rest);
}

void timer_start(struct loop *loop, struct timer *timer, uint64_t delay_ns)
{
    ASSERT(timer->fire != NULL);
    timer_stop(loop, timer);
    timer->due_ns = loop->now_ns + delay_ns;
    timer->child = timer->next = timer->prev = NULL;
    timer->armed = true;
    loop->timers = heap_merge(loop->timers, timer);
}

uint64_t loop_next_timer_ns(const struct loop *loop)
{
    return loop->timers != NULL ? loop->timers->due_ns : UINT64_MAX;
}

static struct task *pop(struct task_list *list)
{
    struct task *task = STAILQ_FIRST(list);
    if (task != NULL) {
        STAILQ_REMOVE_HEAD(list, link);
        task->queued = false;
    }
    return task;
}

bool loop_run(struct loop *loop, unsigned budget)
{
    while (loop->timers != NULL && loop->timers->due_ns <= loop->now_ns) {
        struct timer *timer = loop->timers;
        timer_stop(loop, timer);
        timer->fire(timer);
    }
    for (; budget > 0; budget--) {
        struct task *task = pop(&loop->ready);
        if (task == NULL)
            task = pop(&loop->late);
        if (task == NULL)
            return false;
        task->run(task);
    }
    return !STAILQ_EMPTY(&loop->ready) || !STAILQ_EMPTY(&loop->late);
}

/* Those that are late now: what they queue belongs to the next turn. */
void loop_end_turn(struct loop *loop)
{
    struct task_list late = STAILQ_HEAD_INITIALIZER(late);
    STAILQ_CONCAT(&late, &loop->late);
    struct task *task;
    while ((task = pop(&late)) != NULL)
        task->run(task);
}
