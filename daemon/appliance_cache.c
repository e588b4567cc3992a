/*
 * Caches over volumes: made before a volume is served, on the home of its array, and closed before the array is.
 *
 * What is served, or flushed, is the cache (live_volume_find()); jobs, labels and the keepers of reservations work on
 * the array beneath. A volume that is served without a cache gets none until it is served anew: nothing may go past it.
 */
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_internal.h"

struct cache *live_cache_find(const struct live_array *live, const char *volume)
{
    for (unsigned i = 0; i < live->caches_count; i++)
        if (strcmp(live->caches[i].volume, volume) == 0)
            return live->caches[i].cache;
    return NULL;
}

/* --- birth --- */

struct cache_call {
    struct sync_call call;
    struct live_array *live;
    const struct config_volume *config;
    struct cache *cache;
    struct task closed;
    struct blk_req drain;
    bool failed;
};

/* On the cache's loop. */
static void on_change(struct cache_owner *owner, struct cache *cache)
{
    struct live_cache *c = container_of(owner, struct live_cache, owner);
    struct cache_status status;
    cache_status(cache, &status);
    if (c->said != NULL && status.mode == c->mode && status.reason == c->said)
        return;
    c->mode = status.mode;
    c->said = status.reason;
    if (status.reason != NULL)
        log_warn("cache %s: write-back is %s: %s", cache_dev(cache)->name, cache_mode_name(status.mode), status.reason);
    else
        log_notice("cache %s: write-back is %s", cache_dev(cache)->name, cache_mode_name(status.mode));
}

static void run_create(struct sync_call *call)
{
    struct cache_call *c = container_of(call, struct cache_call, call);
    struct live_array *live = c->live;
    const struct config_cache *config = &c->config->cache;
    struct blkdev *below = array_volume(live->array, c->config->name.text);
    if (below != NULL) {
        char name[sizeof below->name];
        struct live_cache *entry = &live->caches[live->caches_count];
        *entry = (struct live_cache){.owner = {.changed = on_change},
                                     .battery = config_cache_protection(config) == CACHE_PROTECT_BATTERY};
        text_format(entry->volume, sizeof entry->volume, "%s", c->config->name.text);
        text_format(name, sizeof name, "%s/%s", live->name, entry->volume);
        struct cache_options options = {.name = name,
                                        .bytes = config->size,
                                        .readahead = config_cache_readahead(config),
                                        .write_back = strcmp(config->write.text, "back") == 0,
                                        .protection = config_cache_protection(config),
                                        .flush_when_bad = strcmp(config->when_bad.text, "flush") == 0,
                                        .owner = &entry->owner};
        entry->cache = cache_create(below, &options);
        c->failed = entry->cache == NULL;
        if (entry->cache != NULL) {
            live->caches_count++;
            live_caches_power(live);
        }
    }
    sync_finish(call);
}

static bool target_has(const struct live_target *target, const char *reference)
{
    for (unsigned i = 0; i < target->luns_count; i++)
        if (strcmp(target->luns[i].volume, reference) == 0)
            return true;
    return false;
}

/* Somebody who would go past a new cache. */
static bool is_served(struct appliance *a, const struct live_array *live, const char *volume)
{
    char reference[2 * SB_NAME_SIZE];
    struct live_export *export;
    struct live_target *target;
    text_format(reference, sizeof reference, "%s/%s", live->name, volume);
    TAILQ_FOREACH(export, &a->exports, link)
    if (strcmp(export->volume, reference) == 0)
        return true;
    TAILQ_FOREACH(target, &a->targets, link)
    if (target_has(target, reference))
        return true;
    TAILQ_FOREACH(target, &a->leaving, link) /* its sessions may still write */
    if (target_has(target, reference))
        return true;
    return false;
}

static void start_one(struct appliance *a, struct live_array *live, const struct config_volume *config)
{
    struct cache_call c = {.live = live, .config = config};
    if (config->cache.size == 0 || live_cache_find(live, config->name.text) != NULL)
        return;
    if (is_served(a, live, config->name.text)) {
        log_warn("volume %s/%s is served without the cache that the config says, until the next start", live->name,
                 config->name.text);
        return;
    }
    sync_call(&c.call, reactor_loop(live->home), run_create);
    if (c.failed)
        log_error("volume %s/%s is served without a cache: there is no memory for it", live->name, config->name.text);
}

void live_caches_start(struct appliance *a, const struct config *config)
{
    struct live_array *live;
    TAILQ_FOREACH(live, &a->arrays, link)
    {
        int index = config_array_index(config, live->name);
        if (live->array == NULL || index < 0)
            continue;
        const struct config_array *array = config_item(&config->arrays, struct config_array, index);
        for (unsigned i = 0; i < array->volumes.count; i++)
            start_one(a, live, config_item(&array->volumes, struct config_volume, i));
    }
}

/* --- power, on the home --- */

enum { RATE_ASSUMED = MIB }; /* rotating disks with random writes reach that */

uint64_t live_cache_rate(const struct cache_status *status)
{
    return status->destage_rate > 0 ? status->destage_rate : RATE_ASSUMED;
}

/* No more may be dirty than the battery lasts for, less the time to stop; `shares`: caches that share the disks. */
static void limit_dirt(struct cache *cache, const struct live_array *live, unsigned shares)
{
    struct cache_status status;
    cache_status(cache, &status);
    uint64_t runtime_s = live->power.runtime_s, rate = live_cache_rate(&status) / shares;
    bool known = runtime_s != POWER_RUNTIME_UNKNOWN;
    cache_set_dirty_limit(cache, known ? power_dirty_limit(runtime_s, live->shutdown_s, rate) : UINT64_MAX);
}

static void limit_caches(struct live_array *live)
{
    unsigned shares = 0;
    for (unsigned i = 0; i < live->caches_count; i++)
        shares += live->caches[i].battery;
    for (unsigned i = 0; i < live->caches_count; i++)
        if (live->caches[i].battery)
            limit_dirt(live->caches[i].cache, live, shares);
}

void live_caches_power(struct live_array *live)
{
    limit_caches(live);
    for (unsigned i = 0; i < live->caches_count; i++)
        cache_set_power(live->caches[i].cache, live->power.healthy);
}

/* --- the end --- */

static void cache_closed(struct task *task)
{
    sync_finish(&container_of(task, struct cache_call, closed)->call);
}

static void run_close(struct sync_call *call)
{
    struct cache_call *c = container_of(call, struct cache_call, call);
    c->closed.run = cache_closed;
    blk_close(cache_dev(c->cache), &c->closed);
}

void live_caches_close(struct live_array *live)
{
    for (; live->caches_count > 0; live->caches_count--) {
        struct cache_call c = {.cache = live->caches[live->caches_count - 1].cache};
        sync_call(&c.call, reactor_loop(live->home), run_close);
    }
}

struct dirt_call {
    struct sync_call call;
    struct live_array *live;
    uint64_t bytes;
};

static void run_dirty(struct sync_call *call)
{
    struct dirt_call *c = container_of(call, struct dirt_call, call);
    for (unsigned i = 0; i < c->live->caches_count; i++) {
        struct cache_status status;
        cache_status(c->live->caches[i].cache, &status);
        c->bytes += status.dirty_bytes;
    }
    sync_finish(call);
}

uint64_t live_caches_dirty(struct live_array *live)
{
    struct dirt_call c = {.live = live};
    sync_call(&c.call, reactor_loop(live->home), run_dirty);
    return c.bytes;
}

/* --- by hand --- */

static void drained(struct blk_req *req)
{
    sync_finish(&container_of(req, struct cache_call, drain)->call);
}

static void run_drain(struct sync_call *call)
{
    struct cache_call *c = container_of(call, struct cache_call, call);
    c->drain.done = drained;
    cache_drain(c->cache, &c->drain);
}

const char *appliance_cache_flush(struct appliance *a, const char *reference)
{
    const char *volume;
    struct live_array *live = live_array_of_volume(a, reference, &volume);
    if (live == NULL)
        return a->message;
    struct cache_call c = {.cache = live_cache_find(live, volume)};
    if (c.cache == NULL) {
        text_format(a->message, sizeof a->message, "volume %s has no cache", reference);
        return a->message;
    }
    sync_call(&c.call, reactor_loop(live->home), run_drain);
    if (c.drain.status == BLK_OK)
        return NULL;
    text_format(a->message, sizeof a->message, "the cache of volume %s could not be emptied: %s", reference,
                blk_status_name(c.drain.status));
    return a->message;
}

json_t *live_cache_json(const struct cache_status *s)
{
    return json_pack("{s:s, s:o, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
                     "mode", cache_mode_name(s->mode), "reason",
                     s->reason != NULL ? json_string(s->reason) : json_null(), "volatile", s->volatile_cache, "policy",
                     s->policy, "size_bytes", (json_int_t)s->bytes, "used_bytes", (json_int_t)s->used_bytes,
                     "overhead_bytes", (json_int_t)s->overhead_bytes, "cache_dirty_bytes", (json_int_t)s->dirty_bytes,
                     "dirty_limit_bytes", (json_int_t)s->dirty_limit, "hits", (json_int_t)s->hits, "misses",
                     (json_int_t)s->misses, "hit_bytes", (json_int_t)s->hit_bytes, "absorbed", (json_int_t)s->absorbed,
                     "absorbed_bytes", (json_int_t)s->absorbed_bytes, "through", (json_int_t)s->through, "delayed",
                     (json_int_t)s->delayed, "destaged_bytes", (json_int_t)s->destaged_bytes, "destage_errors",
                     (json_int_t)s->destage_errors, "destage_bytes_per_second", (json_int_t)s->destage_rate);
}
