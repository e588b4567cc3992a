/*
 * ARC (Megiddo and Modha, FAST 2003): blocks used once, blocks used more often, and the keys that left either lately.
 *
 *      ghosts once | ONCE  <-- target -->  OFTEN | ghosts often
 *
 * A key that comes again from the left ghosts says that ONCE is too small, one from the right that OFTEN is: the target
 * moves. The ghosts are tables that know a key's age within 1/64 (ghost.h), not lists: what differs from the paper is
 * that a key is forgotten a little earlier or later.
 */
#include <stdlib.h>

#include "cache/ghost.h"
#include "cache/policy_list.h"

struct arc {
    struct cache_policy policy;
    struct policy_list once, often;
    struct ghost ghosts_once, ghosts_often;
    uint32_t remembered_once, remembered_often; /* keys, at most */
    uint32_t slots, target;                     /* of ONCE */
    struct policy_node nodes[];
};

static struct arc *of(struct cache_policy *policy)
{
    return container_of(policy, struct arc, policy);
}

static uint64_t arc_bytes(uint32_t slots)
{
    return sizeof(struct arc) + (uint64_t)slots * sizeof(struct policy_node) + 2 * ghost_bytes(slots);
}

static void arc_destroy(struct cache_policy *policy)
{
    struct arc *a = of(policy);
    ghost_fini(&a->ghosts_once);
    ghost_fini(&a->ghosts_often);
    free(a);
}

static struct cache_policy *arc_create(uint32_t slots)
{
    struct arc *a = calloc(1, sizeof *a + (size_t)slots * sizeof a->nodes[0]);
    if (a == NULL)
        return NULL;
    a->policy.ops = &cache_policy_arc;
    a->slots = slots;
    policy_list_init(&a->once);
    policy_list_init(&a->often);
    bool ok = ghost_init(&a->ghosts_once, slots);
    if (!ghost_init(&a->ghosts_often, slots) || !ok) {
        arc_destroy(&a->policy);
        return NULL;
    }
    return &a->policy;
}

static struct policy_list *list_of(struct arc *a, uint32_t slot)
{
    return a->nodes[slot].main ? &a->often : &a->once;
}

static void push(struct arc *a, uint32_t slot, bool often)
{
    a->nodes[slot].main = often;
    policy_list_push(list_of(a, slot), a->nodes, slot);
}

static bool comes_again(struct arc *a, uint64_t key)
{
    uint32_t once = MAX(a->remembered_once, 1u), often = MAX(a->remembered_often, 1u);
    if (ghost_take(&a->ghosts_once, key, a->remembered_once)) {
        a->target = MIN(a->target + MAX(often / once, 1u), a->slots);
        a->remembered_once--;
        return true;
    }
    if (ghost_take(&a->ghosts_often, key, a->remembered_often)) {
        a->target -= MIN(a->target, MAX(once / often, 1u));
        a->remembered_often--;
        return true;
    }
    return false;
}

static void arc_insert(struct cache_policy *policy, uint32_t slot, uint64_t key, enum cache_rank rank)
{
    struct arc *a = of(policy);
    push(a, slot, comes_again(a, key) || rank == CACHE_HOT);
}

static void arc_hit(struct cache_policy *policy, uint32_t slot)
{
    struct arc *a = of(policy);
    policy_list_remove(list_of(a, slot), a->nodes, slot);
    push(a, slot, true);
}

static enum cache_rank arc_remove(struct cache_policy *policy, uint32_t slot)
{
    struct arc *a = of(policy);
    policy_list_remove(list_of(a, slot), a->nodes, slot);
    return a->nodes[slot].main ? CACHE_HOT : CACHE_COLD;
}

/* As many as the slots, of ONCE with its ghosts; twice as many in all. */
static void remember(struct arc *a, bool often, uint64_t key)
{
    uint32_t *count = often ? &a->remembered_often : &a->remembered_once;
    ghost_add(often ? &a->ghosts_often : &a->ghosts_once, key);
    ++*count;
    a->remembered_once = MIN(a->remembered_once, a->slots - MIN(a->slots, a->once.count));
    a->remembered_often = MIN(a->remembered_often, a->slots - a->remembered_once);
}

static uint32_t arc_evict(struct cache_policy *policy, bool guess, uint64_t (*key_of)(void *, uint32_t), void *arg)
{
    struct arc *a = of(policy);
    bool once = guess || (a->once.count > 0 && (a->once.count > a->target || a->often.count == 0));
    uint32_t slot = once ? a->once.oldest : a->often.oldest;
    if (slot == CACHE_SLOT_NONE)
        return slot;
    policy_list_remove(list_of(a, slot), a->nodes, slot);
    remember(a, !once, key_of(arg, slot));
    return slot;
}

const struct cache_policy_ops cache_policy_arc = {.name = "arc",
                                                  .create = arc_create,
                                                  .destroy = arc_destroy,
                                                  .insert = arc_insert,
                                                  .hit = arc_hit,
                                                  .remove = arc_remove,
                                                  .evict = arc_evict,
                                                  .bytes = arc_bytes};
