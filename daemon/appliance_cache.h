/* What a volume's cache stands on: claims, arenas, held volumes. Shared by appliance_cache.c and appliance_arena.c. */
#ifndef DAEMON_APPLIANCE_CACHE_H
#define DAEMON_APPLIANCE_CACHE_H

#include "daemon/appliance_internal.h"

/* What is kept with a volume in the array's description while its newest bytes may be elsewhere. */
#define CACHE_CLAIM_NAME "cache"
struct cache_claim {
    char kind[8]; /* "arena", "log" */
    struct uuid id;
};
/* False: nothing is claimed. */
bool cache_claim_read(const struct sb_array *description, unsigned volume, struct cache_claim *out);
void cache_claim_write(const struct cache_claim *claim, char *out, size_t len);

/* What a cache is to stand on. */
struct foothold {
    struct arena_place *place; /* NULL: plain memory */
    struct arena *arena;
    bool claimed;
    char through[512]; /* why nothing may be promised; "": it may */
};
/*
 * For a volume (by index in the description) that has no cache yet; config NULL: the config does not name it. False: it
 * is held, and that was said.
 */
bool live_foothold(struct appliance *a, struct live_array *live, const struct sb_array *description, unsigned volume,
                   const struct config_array *array, const struct config_volume *config, struct foothold *out);
/* Files of arenas that the config names, also of arrays that do not run. */
void live_arenas_find(struct appliance *a, const struct config *config);
void live_place_drop(struct appliance *a, struct arena_place *place, bool forget);
/* Its cache is closed. */
void live_place_rest(struct appliance *a, struct arena_place *place);

struct live_hold *live_hold_find(struct live_array *live, const char *volume);
struct live_hold *live_hold(struct live_array *live, const char *volume, const char *reason);
void live_hold_end(struct live_array *live, const char *volume);

#endif
