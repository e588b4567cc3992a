/*
 * Caches over volumes: made before a volume is served, on the home of its array, and closed before the array is.
 *
 * What is served, or flushed, is the cache (live_volume_find()); jobs, labels and the keepers of reservations work on
 * the array beneath. A volume that is served without a cache gets none until it is served anew: nothing may go past it.
 * What a cache stands on is worked out before it is made: daemon/appliance_arena.c.
 */
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_cache.h"

static const struct live_cache *live_cache_entry(const struct live_array *live, const char *volume)
{
    for (unsigned i = 0; i < live->caches_count; i++)
        if (strcmp(live->caches[i].volume, volume) == 0)
            return &live->caches[i];
    return NULL;
}

struct cache *live_cache_find(const struct live_array *live, const char *volume)
{
    const struct live_cache *entry = live_cache_entry(live, volume);
    return entry != NULL ? entry->cache : NULL;
}

/* --- birth --- */

struct cache_call {
    struct sync_call call;
    struct live_array *live;
    const struct config_volume *config;
    struct foothold foothold;
    struct live_cache *entry;
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
    if (c->told && status.mode == c->mode && status.reason == c->said)
        return;
    c->mode = status.mode;
    c->said = status.reason;
    c->told = true;
    if (status.reason != NULL)
        log_warn("cache %s: write-back is %s: %s", cache_dev(cache)->name, cache_mode_name(status.mode), status.reason);
    else
        log_notice("cache %s: write-back is %s", cache_dev(cache)->name, cache_mode_name(status.mode));
}

/* --- the claim, on the array's home --- */

static void claim_kept(struct array_call *call)
{
    struct live_cache *c = container_of(call, struct live_cache, claim_call);
    if (call->error != 0)
        log_error("cache %s: that the volume needs it cannot be %s: %s", cache_dev(c->cache)->name,
                  c->claims ? "noted" : "struck out", call->message);
    if (c->place != NULL && call->error == 0)
        c->place->claimed = c->claims;
    cache_claimed(c->cache, c->claims, call->error == 0);
}

static struct cache_claim claim_of(const struct live_cache *c)
{
    struct cache_log_status status;
    if (c->log.log == NULL)
        return (struct cache_claim){"arena", arena_identity(c->arena)->arena, 0};
    cache_log_status(c->log.log, &status);
    return (struct cache_claim){"log", status.log, status.generation};
}

static void on_claim(struct cache_owner *owner, struct cache *cache, bool held)
{
    struct live_cache *c = container_of(owner, struct live_cache, owner);
    const struct sb_array *description = array_description(c->array->array);
    struct cache_claim claim = claim_of(c);
    char text[192];
    unsigned volume = 0;
    ASSERT(cache == c->cache);
    while (strcmp(description->volumes[volume].name, c->volume) != 0)
        volume++;
    cache_claim_write(&claim, text, sizeof text);
    c->claims = held;
    if (c->place != NULL && held)
        c->place->claimed = true;
    c->claim_call = (struct array_call){.done = claim_kept};
    array_volume_keep(c->array->array, volume, CACHE_CLAIM_NAME, held ? text : NULL, &c->claim_call);
}

/* --- birth --- */

static struct cache_options options_of(const struct config_cache *config, const struct foothold *foothold)
{
    return (struct cache_options){.bytes = config->size,
                                  .readahead = config_cache_readahead(config),
                                  .write_back = strcmp(config->write.text, "back") == 0 && foothold->through[0] == '\0',
                                  .protection = config_cache_protection(config),
                                  .flush_when_bad = strcmp(config->when_bad.text, "flush") == 0,
                                  .arena = foothold->arena,
                                  .log = foothold->log.log,
                                  .claimed = foothold->claimed};
}

static void run_create(struct sync_call *call)
{
    struct cache_call *c = container_of(call, struct cache_call, call);
    struct live_array *live = c->live;
    char name[2 * SB_NAME_SIZE];
    struct cache_options options = options_of(&c->config->cache, &c->foothold);
    bool claims = c->foothold.arena != NULL || c->foothold.log.log != NULL;
    struct live_cache *entry = &live->caches[live->caches_count];
    *entry = (struct live_cache){.owner = {.changed = on_change, .claim = claims ? on_claim : NULL},
                                 .battery = options.protection == CACHE_PROTECT_BATTERY,
                                 .array = live,
                                 .arena = c->foothold.arena,
                                 .log = c->foothold.log,
                                 .place = c->foothold.place};
    text_format(entry->volume, sizeof entry->volume, "%s", c->config->name.text);
    text_format(entry->through, sizeof entry->through, "%s", c->foothold.through);
    text_format(name, sizeof name, "%s/%s", live->name, entry->volume);
    options.name = name;
    options.owner = &entry->owner;
    entry->cache = cache_create(array_volume(live->array, entry->volume), &options);
    c->failed = entry->cache == NULL;
    if (entry->cache != NULL) {
        live->caches_count++;
        live_caches_power(live);
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

/* No cache stands on it. */
static void foothold_drop(struct appliance *a, struct live_array *live, struct foothold *foothold)
{
    live_log_close(live, &foothold->log);
    if (foothold->arena != NULL)
        arena_close(foothold->arena);
    if (foothold->place != NULL)
        live_place_rest(a, foothold->place);
}

static void start_one(struct appliance *a, struct live_array *live, const struct sb_array *description, unsigned volume,
                      const struct config_array *array, const struct config_volume *config)
{
    struct cache_call c = {.live = live, .config = config};
    const char *name = description->volumes[volume].name;
    bool wanted = config != NULL && config->cache.size > 0;
    if (live_cache_find(live, name) != NULL || (is_served(a, live, name) && !wanted))
        return;
    if (is_served(a, live, name)) {
        log_warn("volume %s/%s is served without the cache that the config says, until the next start", live->name,
                 name);
        return;
    }
    if (!live_foothold(a, live, description, volume, array, config, &c.foothold) || !wanted)
        return;
    sync_call(&c.call, reactor_loop(live->home), run_create);
    if (!c.failed)
        return;
    foothold_drop(a, live, &c.foothold);
    if (c.foothold.claimed)
        live_hold(live, name, "there is no memory for the cache that its newest bytes are in");
    else
        log_error("volume %s/%s is served without a cache: there is no memory for it", live->name, name);
}

static const struct config_volume *config_volume_named(const struct config_array *array, const char *name)
{
    for (unsigned i = 0; i < array->volumes.count; i++) {
        const struct config_volume *volume = config_item(&array->volumes, struct config_volume, i);
        if (strcmp(volume->name.text, name) == 0)
            return volume;
    }
    return NULL;
}

static void start_all(struct appliance *a, struct live_array *live, const struct config_array *array)
{
    struct sb_array *description = live_array_describe(live);
    struct reactor *home;
    for (unsigned i = 0; i < description->volumes_count; i++) {
        const char *name = description->volumes[i].name;
        char reference[2 * SB_NAME_SIZE];
        text_format(reference, sizeof reference, "%s/%s", live->name, name);
        if (!sb_volume_is_new_side(&description->volumes[i]) && live_volume_find(a, reference, &home) != NULL)
            start_one(a, live, description, i, array, config_volume_named(array, name));
    }
    free(description);
}

void live_caches_start(struct appliance *a, const struct config *config)
{
    struct live_array *live;
    live_arenas_find(a, config);
    TAILQ_FOREACH(live, &a->arrays, link)
    {
        int index = config_array_index(config, live->name);
        if (live->array != NULL && index >= 0)
            start_all(a, live, config_item(&config->arrays, struct config_array, index));
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

/*
 * Under which history the array goes on, if its members are others now: see arena_set_fork(), cache_log_set_fork().
 * Once they know of it: an arena of a history that no disk has is of another one.
 */
static void tell_fork(struct live_cache *c)
{
    const struct uuid *fork = array_history(c->array->array);
    if (c->log.log != NULL)
        cache_log_set_fork(c->log.log, fork);
    if (c->arena != NULL && !uuid_equal(&arena_identity(c->arena)->fork, fork))
        arena_set_fork(c->arena, fork);
}

void live_caches_power(struct live_array *live)
{
    limit_caches(live);
    for (unsigned i = 0; i < live->caches_count; i++) {
        cache_set_power(live->caches[i].cache, live->power.healthy);
        tell_fork(&live->caches[i]);
    }
}

/* --- the end --- */

static void memory_over(struct arena_memory *memory)
{
    sync_finish(container_of(memory, struct arena_place, memory)->waiting);
}

static void cache_closed(struct task *task)
{
    struct cache_call *c = container_of(task, struct cache_call, closed);
    if (c->entry->arena != NULL)
        arena_close(c->entry->arena); /* memory_over() ends the call */
    else
        sync_finish(&c->call);
}

static void run_close(struct sync_call *call)
{
    struct cache_call *c = container_of(call, struct cache_call, call);
    struct arena_place *place = c->entry->place;
    c->closed.run = cache_closed;
    tell_fork(c->entry);
    if (place != NULL) {
        place->waiting = call;
        place->memory.over = memory_over;
    }
    blk_close(cache_dev(c->entry->cache), &c->closed);
}

void live_caches_close(struct appliance *a, struct live_array *live)
{
    for (; live->caches_count > 0; live->caches_count--) {
        struct cache_call c = {.entry = &live->caches[live->caches_count - 1]};
        sync_call(&c.call, reactor_loop(live->home), run_close);
        live_log_close(live, &c.entry->log);
        if (c.entry->place == NULL)
            continue;
        c.entry->place->memory.over = NULL;
        live_place_rest(a, c.entry->place);
    }
}

struct dirt_call {
    struct sync_call call;
    struct live_array *live;
    uint64_t bytes;
};

/*
 * All of it that was answered stands in an arena. Of a log nobody knows here what was flushed into it; and in other
 * modes what became dirty lately is not published.
 */
static bool outlives_closing(const struct live_cache *c, const struct cache_status *status)
{
    return status->claimed && c->arena != NULL && status->mode == CACHE_SAFE;
}

static void run_dirty(struct sync_call *call)
{
    struct dirt_call *c = container_of(call, struct dirt_call, call);
    for (unsigned i = 0; i < c->live->caches_count; i++) {
        struct cache_status status;
        cache_status(c->live->caches[i].cache, &status);
        c->bytes += outlives_closing(&c->live->caches[i], &status) ? 0 : status.dirty_bytes;
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

/* Where what is dirty would be found again. */
static json_t *arena_json(const struct live_cache *c)
{
    char id[UUID_TEXT_SIZE];
    if (c->place == NULL)
        return json_null();
    uuid_format(&arena_identity(c->arena)->arena, id);
    return json_pack("{s:s, s:s, s:s}", "id", id, "where", arena_place_where(c->place), "outlives",
                     arena_place_outlives(c->place));
}

static json_t *reason_json(const struct live_cache *c, const struct cache_status *s)
{
    if (c->through[0] != '\0')
        return sentence_json(c->through);
    return s->reason != NULL ? json_string(s->reason) : json_null();
}

void live_cache_look(const struct live_array *live, const char *volume, struct cache_status *status,
                     struct cache_log_status *log)
{
    const struct live_cache *c = live_cache_entry(live, volume);
    *status = (struct cache_status){0};
    *log = (struct cache_log_status){0};
    if (c != NULL)
        cache_status(c->cache, status);
    if (c != NULL && c->log.log != NULL)
        cache_log_status(c->log.log, log);
}

json_t *live_cache_json(const struct live_array *live, const char *volume, const struct cache_status *s,
                        const struct cache_log_status *log)
{
    const struct live_cache *c = live_cache_entry(live, volume);
    if (c == NULL || s->bytes == 0)
        return json_null();
    return json_pack(
        "{s:s, s:o, s:b, s:b, s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:I, s:I, s:I, "
        "s:I, s:I}",
        "mode", cache_mode_name(s->mode), "reason", reason_json(c, s), "volatile", s->volatile_cache, "claimed",
        s->claimed && (c->arena != NULL || c->log.log != NULL), "arena", arena_json(c), "log",
        live_log_json(&c->log, log), "policy", s->policy, "size_bytes", (json_int_t)s->bytes, "used_bytes",
        (json_int_t)s->used_bytes, "overhead_bytes", (json_int_t)s->overhead_bytes, "cache_dirty_bytes",
        (json_int_t)s->dirty_bytes, "dirty_limit_bytes", (json_int_t)s->dirty_limit, "hits", (json_int_t)s->hits,
        "misses", (json_int_t)s->misses, "hit_bytes", (json_int_t)s->hit_bytes, "ahead_bytes",
        (json_int_t)s->ahead_bytes, "ahead_used_bytes", (json_int_t)s->ahead_used_bytes, "ahead_wasted_bytes",
        (json_int_t)s->ahead_wasted_bytes, "absorbed", (json_int_t)s->absorbed, "absorbed_bytes",
        (json_int_t)s->absorbed_bytes, "through", (json_int_t)s->through, "delayed", (json_int_t)s->delayed,
        "destaged_bytes", (json_int_t)s->destaged_bytes, "destage_errors", (json_int_t)s->destage_errors,
        "destage_bytes_per_second", (json_int_t)s->destage_rate);
}
