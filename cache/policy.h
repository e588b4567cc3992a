/*
 * Replacement: which block leaves when room is needed.
 *
 * A policy is a pure object over slots and keys: no I/O, no time. The cache tells it which blocks may leave (they are
 * clean, whole or not, and nobody works on them), that one was used, and asks for the next to leave. A block that is
 * dirty is not the policy's: it is removed, and inserted again when it was destaged, with the rank that it had.
 *
 *      insert    the slot may be evicted from now on. COLD: judge by the key, which may be one that was evicted lately
 *      hit       it was used
 *      remove    it may not be evicted any more; answers its rank, for the next insert
 *      evict     choose one, forget it but for its key; CACHE_SLOT_NONE: none. `guess`: room is needed for a block that
 *                nobody asked for yet: then nothing that was used more than once may go
 *
 * All memory is taken by create(); what it takes for each slot is counted by tests (cache/cache.c).
 */
#ifndef CACHE_POLICY_H
#define CACHE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CACHE_SLOT_NONE 0x7fffffffu

enum cache_rank { CACHE_COLD, CACHE_HOT };

struct cache_policy {
    const struct cache_policy_ops *ops;
};

struct cache_policy_ops {
    const char *name;
    struct cache_policy *(*create)(uint32_t slots); /* NULL: no memory */
    void (*destroy)(struct cache_policy *);
    void (*insert)(struct cache_policy *, uint32_t slot, uint64_t key, enum cache_rank rank);
    void (*hit)(struct cache_policy *, uint32_t slot);
    enum cache_rank (*remove)(struct cache_policy *, uint32_t slot);
    /* `key_of` gives the key of a slot. */
    uint32_t (*evict)(struct cache_policy *, bool guess, uint64_t (*key_of)(void *, uint32_t slot), void *arg);
    uint64_t (*bytes)(uint32_t slots); /* what create() takes */
};

extern const struct cache_policy_ops cache_policy_s3fifo, cache_policy_arc, cache_policy_lru;

#endif
