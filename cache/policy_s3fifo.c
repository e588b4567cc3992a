/*
 * S3-FIFO with one bit a block: three queues, no moves on a hit.
 *
 *      new key ---> SMALL --- oldest, used ------> MAIN --- oldest, used: once more to the front, bit cleared
 *                     |                            ^  |
 *                     | not used                   |  | not used
 *                     v                            |  v
 *                   ghost (keys) -- comes again ---+  gone
 *
 * What is used once passes through SMALL, a twentieth of the cache, and leaves: so a scan, or a stream, does not displace
 * what is used often. (Yang et al., SOSP 2023; for block I/O behind other caches one bit did better than two. They have
 * SMALL at a tenth; a twentieth did better on our traces, docs/cache.md.)
 */
#include <stdlib.h>

#include "cache/ghost.h"
#include "cache/policy_list.h"

enum { SMALL_FRACTION = 20 };

struct s3fifo {
    struct cache_policy policy;
    struct policy_list small, main;
    struct ghost ghost;
    uint32_t slots;
    struct policy_node nodes[];
};

static struct s3fifo *of(struct cache_policy *policy)
{
    return container_of(policy, struct s3fifo, policy);
}

static uint64_t s3fifo_bytes(uint32_t slots)
{
    return sizeof(struct s3fifo) + (uint64_t)slots * sizeof(struct policy_node) + ghost_bytes(slots);
}

static struct cache_policy *s3fifo_create(uint32_t slots)
{
    struct s3fifo *s = calloc(1, sizeof *s + (size_t)slots * sizeof s->nodes[0]);
    if (s == NULL)
        return NULL;
    s->policy.ops = &cache_policy_s3fifo;
    s->slots = slots;
    policy_list_init(&s->small);
    policy_list_init(&s->main);
    if (!ghost_init(&s->ghost, slots)) {
        free(s);
        return NULL;
    }
    return &s->policy;
}

static void s3fifo_destroy(struct cache_policy *policy)
{
    struct s3fifo *s = of(policy);
    ghost_fini(&s->ghost);
    free(s);
}

static void push(struct s3fifo *s, uint32_t slot, bool main)
{
    s->nodes[slot].main = main;
    s->nodes[slot].used = false;
    policy_list_push(main ? &s->main : &s->small, s->nodes, slot);
}

static void s3fifo_insert(struct cache_policy *policy, uint32_t slot, uint64_t key, enum cache_rank rank)
{
    struct s3fifo *s = of(policy);
    push(s, slot, ghost_take(&s->ghost, key, s->slots - s->slots / SMALL_FRACTION) || rank == CACHE_HOT);
}

static void s3fifo_hit(struct cache_policy *policy, uint32_t slot)
{
    of(policy)->nodes[slot].used = true;
}

static void take_out(struct s3fifo *s, uint32_t slot)
{
    policy_list_remove(s->nodes[slot].main ? &s->main : &s->small, s->nodes, slot);
}

static enum cache_rank s3fifo_remove(struct cache_policy *policy, uint32_t slot)
{
    struct s3fifo *s = of(policy);
    take_out(s, slot);
    return s->nodes[slot].main || s->nodes[slot].used ? CACHE_HOT : CACHE_COLD;
}

/* Each pass takes a bit away or ends it. */
static uint32_t s3fifo_evict(struct cache_policy *policy, bool guess, uint64_t (*key_of)(void *, uint32_t), void *arg)
{
    struct s3fifo *s = of(policy);
    for (;;) {
        uint32_t most = (s->small.count + s->main.count) / SMALL_FRACTION;
        bool main = s->small.count <= most && s->main.count > 0 && !guess;
        uint32_t slot = main ? s->main.oldest : s->small.oldest;
        if (slot == CACHE_SLOT_NONE)
            return slot;
        bool used = s->nodes[slot].used;
        take_out(s, slot);
        if (used) {
            push(s, slot, true);
            continue;
        }
        if (!main)
            ghost_add(&s->ghost, key_of(arg, slot));
        return slot;
    }
}

const struct cache_policy_ops cache_policy_s3fifo = {.name = "s3-fifo",
                                                     .create = s3fifo_create,
                                                     .destroy = s3fifo_destroy,
                                                     .insert = s3fifo_insert,
                                                     .hit = s3fifo_hit,
                                                     .remove = s3fifo_remove,
                                                     .evict = s3fifo_evict,
                                                     .bytes = s3fifo_bytes};
