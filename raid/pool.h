/*
 * A pool of contexts of a fixed number, with a line of tasks that wait for one.
 *
 * Contexts begin with (or contain) a struct pool_entry and belong to whoever allocated them. A free context is promised
 * to the first in line, whose task is deferred: it must call pool_claim() once. Nobody overtakes the line.
 */
#ifndef RAID_POOL_H
#define RAID_POOL_H

#include "core/check.h"
#include "core/loop.h"

struct pool_entry {
    struct pool_entry *next;
};

struct pool {
    struct loop *loop;
    struct pool_entry *free;
    unsigned count, free_count, promised;
    struct task_list waiters;
};

static inline void pool_init(struct pool *pool, struct loop *loop)
{
    *pool = (struct pool){.loop = loop};
    STAILQ_INIT(&pool->waiters);
}

static inline void pool_add(struct pool *pool, struct pool_entry *entry)
{
    entry->next = pool->free;
    pool->free = entry;
    pool->count++;
    pool->free_count++;
}

static inline struct pool_entry *pool_pop(struct pool *pool)
{
    struct pool_entry *entry = pool->free;
    ASSERT(entry != NULL);
    pool->free = entry->next;
    pool->free_count--;
    return entry;
}

/* NULL: all are in use or promised. */
static inline struct pool_entry *pool_get(struct pool *pool)
{
    if (pool->free_count <= pool->promised || !STAILQ_EMPTY(&pool->waiters))
        return NULL;
    return pool_pop(pool);
}

static inline void pool_wait(struct pool *pool, struct task *task)
{
    ASSERT(!task->queued);
    STAILQ_INSERT_TAIL(&pool->waiters, task, link);
}

/* For a task that pool_wait() has let run. */
static inline struct pool_entry *pool_claim(struct pool *pool)
{
    ASSERT(pool->promised > 0);
    pool->promised--;
    return pool_pop(pool);
}

static inline void pool_put(struct pool *pool, struct pool_entry *entry)
{
    entry->next = pool->free;
    pool->free = entry;
    pool->free_count++;
    ASSERT(pool->free_count <= pool->count);
    struct task *first = STAILQ_FIRST(&pool->waiters);
    if (first != NULL && pool->free_count > pool->promised) {
        STAILQ_REMOVE_HEAD(&pool->waiters, link);
        pool->promised++;
        loop_defer(pool->loop, first);
    }
}

#endif
