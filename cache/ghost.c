/* See cache/ghost.h. */
#include "cache/ghost.h"

#include <stdlib.h>

#include "core/check.h"

enum { UNITS = 64 };

static uint32_t sets_for(uint32_t keys)
{
    return MAX(keys / GHOST_SET, 1u);
}

uint64_t ghost_bytes(uint32_t keys)
{
    return (uint64_t)sets_for(keys) * GHOST_SET * sizeof(struct ghost_entry);
}

bool ghost_init(struct ghost *g, uint32_t keys)
{
    *g = (struct ghost){.sets = sets_for(keys), .unit = MAX(keys / UNITS, 1u), .time = UNITS};
    g->entries = calloc((size_t)g->sets * GHOST_SET, sizeof *g->entries);
    return g->entries != NULL;
}

void ghost_fini(struct ghost *g)
{
    free(g->entries);
}

static struct ghost_entry *set_of(const struct ghost *g, uint64_t key, uint16_t *tag)
{
    uint64_t hash = key_hash(key);
    *tag = (uint16_t)(hash | 1);
    return &g->entries[(size_t)hash_below(hash, g->sets) * GHOST_SET];
}

/* In place of the oldest of its set. */
void ghost_add(struct ghost *g, uint64_t key)
{
    uint16_t tag;
    struct ghost_entry *set = set_of(g, key, &tag), *oldest = set;
    for (unsigned i = 0; i < GHOST_SET && oldest->tag != 0; i++)
        if (set[i].tag == 0 || (uint16_t)(g->time - set[i].time) > (uint16_t)(g->time - oldest->time))
            oldest = &set[i];
    *oldest = (struct ghost_entry){tag, g->time};
    if (++g->within < g->unit)
        return;
    g->within = 0;
    g->time++;
}

bool ghost_take(struct ghost *g, uint64_t key, uint32_t keys)
{
    uint16_t tag;
    struct ghost_entry *set = set_of(g, key, &tag);
    for (unsigned i = 0; i < GHOST_SET; i++) {
        if (set[i].tag != tag || (uint16_t)(g->time - set[i].time) > keys / g->unit)
            continue;
        set[i].tag = 0;
        return true;
    }
    return false;
}
