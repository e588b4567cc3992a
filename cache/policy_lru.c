/* Least recently used: the yardstick. A scan displaces everything. */
#include <stdlib.h>

#include "cache/policy_list.h"

struct lru {
    struct cache_policy policy;
    struct policy_list list;
    struct policy_node nodes[];
};

static struct lru *of(struct cache_policy *policy)
{
    return container_of(policy, struct lru, policy);
}

static uint64_t lru_bytes(uint32_t slots)
{
    return sizeof(struct lru) + (uint64_t)slots * sizeof(struct policy_node);
}

static struct cache_policy *lru_create(uint32_t slots)
{
    struct lru *l = calloc(1, lru_bytes(slots));
    if (l == NULL)
        return NULL;
    l->policy.ops = &cache_policy_lru;
    policy_list_init(&l->list);
    return &l->policy;
}

static void lru_destroy(struct cache_policy *policy)
{
    free(of(policy));
}

static void lru_insert(struct cache_policy *policy, uint32_t slot, uint64_t key, enum cache_rank rank)
{
    (void)key;
    of(policy)->nodes[slot].used = rank == CACHE_HOT;
    policy_list_push(&of(policy)->list, of(policy)->nodes, slot);
}

static void lru_hit(struct cache_policy *policy, uint32_t slot)
{
    struct lru *l = of(policy);
    policy_list_remove(&l->list, l->nodes, slot);
    policy_list_push(&l->list, l->nodes, slot);
    l->nodes[slot].used = true;
}

static enum cache_rank lru_remove(struct cache_policy *policy, uint32_t slot)
{
    policy_list_remove(&of(policy)->list, of(policy)->nodes, slot);
    return of(policy)->nodes[slot].used ? CACHE_HOT : CACHE_COLD;
}

static uint32_t lru_evict(struct cache_policy *policy, bool guess, uint64_t (*key_of)(void *, uint32_t), void *arg)
{
    struct lru *l = of(policy);
    uint32_t slot = l->list.oldest;
    (void)key_of;
    (void)arg;
    if (slot == CACHE_SLOT_NONE || (guess && l->nodes[slot].used))
        return CACHE_SLOT_NONE;
    policy_list_remove(&l->list, l->nodes, slot);
    return slot;
}

const struct cache_policy_ops cache_policy_lru = {.name = "lru",
                                                  .create = lru_create,
                                                  .destroy = lru_destroy,
                                                  .insert = lru_insert,
                                                  .hit = lru_hit,
                                                  .remove = lru_remove,
                                                  .evict = lru_evict,
                                                  .bytes = lru_bytes};
