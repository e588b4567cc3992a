/* Lists of slots in an array of nodes of 8 bytes: what the policies are made of. Two bits of a node are the
 * policy's. */
#ifndef CACHE_POLICY_LIST_H
#define CACHE_POLICY_LIST_H

#include "cache/policy.h"
#include "core/check.h"

struct policy_node {
    uint32_t newer : 31, main : 1; /* main: which of two lists it is on */
    uint32_t older : 31, used : 1;
};

struct policy_list {
    uint32_t newest, oldest, count;
};

static inline void policy_list_init(struct policy_list *list)
{
    *list = (struct policy_list){.newest = CACHE_SLOT_NONE, .oldest = CACHE_SLOT_NONE};
}

static inline void policy_list_push(struct policy_list *list, struct policy_node *nodes, uint32_t slot)
{
    nodes[slot].newer = CACHE_SLOT_NONE;
    nodes[slot].older = list->newest;
    if (list->newest != CACHE_SLOT_NONE)
        nodes[list->newest].newer = slot;
    else
        list->oldest = slot;
    list->newest = slot;
    list->count++;
}

static inline void policy_list_remove(struct policy_list *list, struct policy_node *nodes, uint32_t slot)
{
    uint32_t newer = nodes[slot].newer, older = nodes[slot].older;
    ASSERT(list->count > 0);
    if (newer != CACHE_SLOT_NONE)
        nodes[newer].older = older;
    else
        list->newest = older;
    if (older != CACHE_SLOT_NONE)
        nodes[older].newer = newer;
    else
        list->oldest = newer;
    list->count--;
}

#endif
