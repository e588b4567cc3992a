/*
 * The keys that were evicted last, without their bytes: 4 bytes each.
 *
 * A table of sets of 8. A key is known by its set and 16 bits more, so one in some 8,000 is taken for another: that
 * costs a wrong guess and nothing else. Its age is how many keys were added after it, in units of 1/64 of the table.
 */
#ifndef CACHE_GHOST_H
#define CACHE_GHOST_H

#include <stdbool.h>
#include <stdint.h>

enum { GHOST_SET = 8 };

struct ghost_entry {
    uint16_t tag, time; /* tag 0: none */
};

struct ghost {
    uint32_t sets, unit, within; /* keys in a unit of time, and how many of this one were added */
    uint16_t time;
    struct ghost_entry *entries;
};

bool ghost_init(struct ghost *ghost, uint32_t keys); /* false: no memory */
void ghost_fini(struct ghost *ghost);
uint64_t ghost_bytes(uint32_t keys);
void ghost_add(struct ghost *ghost, uint64_t key);
/* Is it among the last `keys` that were added? Then it is no more. */
bool ghost_take(struct ghost *ghost, uint64_t key, uint32_t keys);

/* A key, mixed well. */
static inline uint64_t key_hash(uint64_t key)
{
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9ull;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebull;
    return key ^ (key >> 31);
}

/* Its high half to a number below `count`, evenly. */
static inline uint32_t hash_below(uint64_t hash, uint32_t count)
{
    return (uint32_t)(((hash >> 32) * count) >> 32);
}

#endif
