/* What a volume's cache stands on: claims, arenas, held volumes. Shared by appliance_cache.c and appliance_arena.c. */
#ifndef DAEMON_APPLIANCE_CACHE_H
#define DAEMON_APPLIANCE_CACHE_H

#include "daemon/appliance_internal.h"

/* What is kept with a volume in the array's description while its newest bytes may be elsewhere. */
#define CACHE_CLAIM_NAME "cache"
struct cache_claim {
    char kind[8]; /* "arena", "log" */
    struct uuid id;
    uint64_t generation; /* of a log: see cache/log.h, L2 */
};
/* False: nothing is claimed. */
bool cache_claim_read(const struct sb_array *description, unsigned volume, struct cache_claim *out);
void cache_claim_write(const struct cache_claim *claim, char *out, size_t len);

/* What a cache is to stand on. */
struct foothold {
    struct arena_place *place; /* NULL: plain memory */
    struct arena *arena;
    struct live_log log;
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
/* Is it, or was it, the history of the array? And the one that is written down now. */
bool live_in_history(const struct sb_array *description, const struct uuid *fork);
const struct uuid *live_present_fork(const struct sb_array *description);
/* Its cache is closed. */
void live_place_rest(struct appliance *a, struct arena_place *place);

struct live_hold *live_hold_find(struct live_array *live, const char *volume);
struct live_hold *live_hold(struct live_array *live, const char *volume, const char *reason);
/* In the words of what it claims; `why`: what of that cannot be had. Returns false. */
bool live_hold_claim(struct live_array *live, const char *volume, const struct cache_claim *claim, const char *why);
void live_hold_end(struct live_array *live, const char *volume);

/* Strike out what the volume claims. False: a->message. */
bool live_claim_forget(struct appliance *a, struct live_array *live, const char *volume);

/* --- appliance_log.c --- */

/* As live_foothold(), for the protection journal; claim NULL: nothing is. */
bool live_log_foothold(struct appliance *a, struct live_array *live, const struct sb_array *description,
                       const struct sb_volume *volume, const struct config_strings *paths,
                       const struct cache_claim *claim, struct foothold *out);
/* No cache uses it any more. */
void live_log_close(struct live_array *live, struct live_log *log);
json_t *live_log_json(const struct live_log *log, const struct cache_log_status *status);

#endif
