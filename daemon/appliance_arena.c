/*
 * Which arena a volume's cache stands on, and which volumes are held because theirs is not to be had.
 *
 * The array's description keeps with each volume what its newest bytes may be in ("cache": the claim, by
 * cache/claim.c). That decides:
 *
 *      claimed     arena                                          the volume
 *      yes         is here, of the array's history, nothing torn  served, with what is dirty in it
 *      yes         is here, some blocks are torn                  held until these are given up
 *      yes         is not here, or of another history             held until it is, or is given up
 *      no          dirty, of the array's present fork             served; nobody was promised what is in it: formatted
 *      no          dirty, of another history, array or volume     served without it; the arena is kept (pinned)
 *      no          clean, or none                                 served, with a new one
 *
 * Where an arena cannot be had a volume that claims nothing is served through its cache: nothing is promised. A volume
 * is held for itself: others of its array are served. Each time something is to be served all this is looked at anew,
 * so an arena waits for its array, and a volume for its arena.
 *
 * Places are the worker's; an arena in use belongs to its cache, on the home of the array.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_cache.h"

/* --- claims --- */

bool cache_claim_read(const struct sb_array *description, unsigned volume, struct cache_claim *out)
{
    char *text = superblock_kept_get(description, &description->volumes[volume].uuid, CACHE_CLAIM_NAME);
    json_t *json = text != NULL ? json_loads(text, 0, NULL) : NULL;
    const char *kind = json_string_value(json_object_get(json, "kind")), *id;
    id = json_string_value(json_object_get(json, "id"));
    *out = (struct cache_claim){0};
    if (kind != NULL)
        text_format(out->kind, sizeof out->kind, "%s", kind);
    if (id != NULL)
        uuid_parse(id, &out->id);
    out->generation = (uint64_t)json_integer_value(json_object_get(json, "generation"));
    json_decref(json);
    free(text);
    return text != NULL;
}

void cache_claim_write(const struct cache_claim *claim, char *out, size_t len)
{
    char id[UUID_TEXT_SIZE];
    uuid_format(&claim->id, id);
    text_format(out, len, "{\"kind\": \"%s\", \"id\": \"%s\", \"generation\": %llu}", claim->kind, id,
                (unsigned long long)claim->generation);
}

/* --- held volumes --- */

struct live_hold *live_hold_find(struct live_array *live, const char *volume)
{
    for (unsigned i = 0; i < live->holds_count; i++)
        if (strcmp(live->holds[i].volume, volume) == 0)
            return &live->holds[i];
    return NULL;
}

struct live_hold *live_hold(struct live_array *live, const char *volume, const char *reason)
{
    struct live_hold *hold = live_hold_find(live, volume);
    if (hold == NULL) {
        hold = &live->holds[live->holds_count++];
        *hold = (struct live_hold){0};
        text_format(hold->volume, sizeof hold->volume, "%s", volume);
    }
    if (strcmp(hold->reason, reason) != 0)
        log_error("volume %s/%s is held: %s", live->name, volume, reason);
    text_format(hold->reason, sizeof hold->reason, "%s", reason);
    hold->torn = NULL;
    return hold;
}

void live_hold_end(struct live_array *live, const char *volume)
{
    struct live_hold *hold = live_hold_find(live, volume);
    if (hold == NULL)
        return;
    log_notice("volume %s/%s is held no more", live->name, volume);
    *hold = live->holds[--live->holds_count];
}

/* --- places --- */

static struct arena_place *place_of_id(struct appliance *a, const struct uuid *id)
{
    struct arena_place *place;
    TAILQ_FOREACH(place, &a->places, link)
    if (place->verdict >= ARENA_CLEAN && uuid_equal(&place->report.identity.arena, id))
        return place;
    return NULL;
}

static struct arena_place *place_at(struct appliance *a, const char *path)
{
    struct arena_place *place;
    TAILQ_FOREACH(place, &a->places, link)
    if (place->path[0] != '\0' && strcmp(place->path, path) == 0)
        return place;
    return NULL;
}

void live_place_drop(struct appliance *a, struct arena_place *place, bool forget)
{
    struct live_array *live;
    TAILQ_FOREACH(live, &a->arrays, link)
    for (unsigned i = 0; i < ARRAY_LENGTH(live->holds); i++)
        if (live->holds[i].torn == place)
            live->holds[i].torn = NULL;
    TAILQ_REMOVE(&a->places, place, link);
    arena_place_free(place, forget);
}

/* One that nobody uses now: it stays if something in it is dirty, or its volume is not to be served without it. */
void live_place_rest(struct appliance *a, struct arena_place *place)
{
    place->in_use = false;
    arena_place_look(place);
    if (place->verdict == ARENA_CLEAN && !place->claimed)
        live_place_drop(a, place, true);
    else if (place->verdict != ARENA_CLEAN)
        log_warn("arena of volume %s (%s): %llu KiB of answered writes stay in it", place->report.identity.name,
                 arena_place_where(place), (unsigned long long)(place->report.dirty_bytes / KIB));
}

static void log_pinned(const struct arena_place *place)
{
    if (place->verdict == ARENA_DIRTY)
        log_notice("found an arena of volume %s (%s): %llu KiB of answered writes are in it, %llu blocks are torn",
                   place->report.identity.name, arena_place_where(place),
                   (unsigned long long)(place->report.dirty_bytes / KIB),
                   (unsigned long long)place->report.torn_blocks);
    else if (place->verdict != ARENA_CLEAN && place->verdict != ARENA_NONE)
        log_error("found an arena (%s) that cannot be read: it is %s", arena_place_where(place),
                  arena_verdict_name(place->verdict));
}

void live_arenas_inherit(struct appliance *a)
{
    struct arena_place *place;
    arena_places_inherit(&a->places);
    TAILQ_FOREACH(place, &a->places, link)
    log_pinned(place);
}

/* In a folder each volume has a file of its own. */
static void arena_path(const struct config_array *array, const struct config_volume *volume, char *out, size_t len)
{
    struct stat st;
    const char *path = volume->cache.arena.text;
    bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (folder)
        text_format(out, len, "%s/%s.%s.arena", path, array->name.text, volume->name.text);
    else
        text_format(out, len, "%s", path);
}

static bool wants_file(const struct config_volume *volume)
{
    return config_cache_arena(&volume->cache) == CONFIG_ARENA_FILE;
}

static bool is_durable(const struct config_volume *volume)
{
    return config_cache_protection(&volume->cache) == CACHE_PROTECT_PMEM;
}

/* Also those of arrays that do not run: what is in them is shown, and nobody else may have them. */
static void find_file(struct appliance *a, const struct config_array *array, const struct config_volume *volume)
{
    char path[CONFIG_PATH_MAX + 1], why[512];
    if (!wants_file(volume))
        return;
    arena_path(array, volume, path, sizeof path);
    if (place_at(a, path) != NULL || !arena_place_exists(path))
        return;
    struct arena_place *place = arena_place_file(path, 0, is_durable(volume), why, sizeof why);
    if (place == NULL)
        return; /* said when it is needed */
    TAILQ_INSERT_TAIL(&a->places, place, link);
    log_pinned(place);
}

void live_arenas_find(struct appliance *a, const struct config *config)
{
    for (unsigned i = 0; i < config->arrays.count; i++) {
        const struct config_array *array = config_item(&config->arrays, struct config_array, i);
        for (unsigned v = 0; v < array->volumes.count; v++)
            find_file(a, array, config_item(&array->volumes, struct config_volume, v));
    }
}

void live_arenas_free(struct appliance *a)
{
    struct arena_place *place;
    while ((place = TAILQ_FIRST(&a->places)) != NULL)
        live_place_drop(a, place, place->verdict == ARENA_CLEAN && !place->claimed);
}

/* --- the decision --- */

bool live_in_history(const struct sb_array *description, const struct uuid *fork)
{
    for (unsigned i = 0; i < description->forks_count; i++)
        if (!description->forks[i].settled && uuid_equal(&description->forks[i].id, fork))
            return true;
    return false;
}

const struct uuid *live_present_fork(const struct sb_array *description)
{
    return &description->forks[description->forks_count - 1].id;
}

/* The first offsets of what is torn, for people. */
static void torn_text(const struct arena_report *report, char *out, size_t len)
{
    size_t used = 0;
    *out = '\0';
    for (unsigned i = 0; i < report->torn_blocks && i < ARENA_TORN_SHOWN && used + 32 < len; i++) {
        used += report->torn[i] != UINT64_MAX
                    ? (size_t)snprintf(out + used, len - used, "%s%llu", i > 0 ? ", " : "",
                                       (unsigned long long)report->torn[i] * PAGE_BYTES)
                    : (size_t)snprintf(out + used, len - used, "%sunknown", i > 0 ? ", " : "");
    }
    if (report->torn_blocks > ARENA_TORN_SHOWN && used + 8 < len)
        text_format(out + used, len - used, ", ...");
}

static bool hold_torn(struct live_array *live, const char *volume, struct arena_place *place)
{
    char offsets[400], reason[512];
    torn_text(&place->report, offsets, sizeof offsets);
    text_format(
        reason, sizeof reason, "%llu blocks of 4096 bytes in its arena are damaged, at %s; the other %llu KiB are well",
        (unsigned long long)place->report.torn_blocks, offsets, (unsigned long long)(place->report.dirty_bytes / KIB));
    live_hold(live, volume, reason)->torn = place;
    return false;
}

bool live_hold_claim(struct live_array *live, const char *volume, const struct cache_claim *claim, const char *why)
{
    char id[UUID_TEXT_SIZE], reason[512];
    uuid_format(&claim->id, id);
    text_format(reason, sizeof reason, "its newest bytes are in %s %s, %s",
                strcmp(claim->kind, "log") == 0 ? "log" : "arena", id, why);
    live_hold(live, volume, reason);
    return false;
}

/* What is in the way of the one that it needs, as far as can be told: it may only have to be removed. */
static bool hold_missing(struct appliance *a, struct live_array *live, const struct config_array *array,
                         const struct config_volume *config, const struct cache_claim *claim)
{
    char path[CONFIG_PATH_MAX + 1] = "", cause[512] = "", why[1024] = "which is not here";
    const struct arena_place *there = NULL;
    if (wants_file(config)) {
        arena_path(array, config, path, sizeof path);
        there = place_at(a, path);
    }
    if (there != NULL) {
        text_format(why, sizeof why, "which is not here: %s holds another arena, or one that cannot be read (%s)", path,
                    arena_verdict_name(there->verdict));
    } else if (path[0] != '\0') {
        struct arena_place *place = arena_place_file(path, 0, is_durable(config), cause, sizeof cause);
        text_format(why, sizeof why, "which is not here: %s", place != NULL ? "its file came just now" : cause);
        if (place != NULL)
            arena_place_free(place, false);
    }
    return live_hold_claim(live, config->name.text, claim, why);
}

/* The arena that it needs, which is here. False: held. */
static bool claimed_arena(struct appliance *a, struct live_array *live, const struct sb_array *description,
                          const struct sb_volume *volume, const struct cache_claim *claim, struct foothold *out)
{
    struct arena_place *place = place_of_id(a, &claim->id);
    ASSERT(place != NULL);
    if (!live_in_history(description, &place->report.identity.fork))
        return live_hold_claim(live, volume->name, claim,
                               "which is of another history: the array went on without the disks that are here now");
    if (place->report.torn_blocks > 0 && !place->accept_torn)
        return hold_torn(live, volume->name, place);
    out->arena = arena_open(&place->memory, place->accept_torn);
    if (out->arena == NULL)
        return live_hold_claim(live, volume->name, claim, "for which there is no memory");
    if (place->report.torn_blocks > 0)
        log_error("volume %s/%s: %llu torn blocks were given up: what the volume has there is older", live->name,
                  volume->name, (unsigned long long)place->report.torn_blocks);
    if (place->report.dirty_bytes > 0)
        log_notice("volume %s/%s: %llu KiB of answered writes were found in its arena", live->name, volume->name,
                   (unsigned long long)(place->report.dirty_bytes / KIB));
    place->accept_torn = false; /* what is torn later is another matter */
    place->claimed = true;
    out->place = place;
    out->claimed = true;
    return true;
}

/* May it be formatted for this volume, which claims none? */
static bool may_format(const struct arena_place *place, const struct sb_array *description,
                       const struct sb_volume *volume, char *why, size_t why_len)
{
    const struct arena_identity *identity = &place->report.identity;
    char id[UUID_TEXT_SIZE];
    if (place->in_use) {
        text_format(why, why_len, "%s is the arena of another volume", place->path);
        return false;
    }
    bool ours = uuid_equal(&identity->volume, &volume->uuid) &&
                uuid_equal(&identity->fork, live_present_fork(description));
    if (place->verdict == ARENA_NONE || place->verdict == ARENA_CLEAN || (place->verdict == ARENA_DIRTY && ours))
        return true;
    uuid_format(&identity->arena, id);
    if (place->verdict == ARENA_DIRTY)
        text_format(why, why_len,
                    "arena %s in %s holds %llu KiB of answered writes to volume %s%s; corbelctl cache discard gives "
                    "them up",
                    id, arena_place_where(place), (unsigned long long)(place->report.dirty_bytes / KIB), identity->name,
                    uuid_equal(&identity->volume, &volume->uuid) ? " under another history of its array" : "");
    else
        text_format(why, why_len, "the arena in %s is %s", arena_place_where(place),
                    arena_verdict_name(place->verdict));
    return false;
}

/* Memory of this volume that nobody claims and nobody was promised. */
static void drop_stale(struct appliance *a, const struct sb_array *description, const struct sb_volume *volume)
{
    char why[512];
    struct arena_place *place = TAILQ_FIRST(&a->places), *next;
    for (; place != NULL; place = next) {
        next = TAILQ_NEXT(place, link);
        if (place->path[0] == '\0' && !place->in_use && place->verdict >= ARENA_CLEAN &&
            uuid_equal(&place->report.identity.volume, &volume->uuid) &&
            may_format(place, description, volume, why, sizeof why))
            live_place_drop(a, place, true);
    }
}

static struct arena_place *new_file(struct appliance *a, const struct config_array *array,
                                    const struct config_volume *config, const struct sb_array *description,
                                    const struct sb_volume *volume, char *why, size_t why_len)
{
    char path[CONFIG_PATH_MAX + 1];
    uint64_t bytes = arena_bytes(config->cache.size);
    arena_path(array, config, path, sizeof path);
    struct arena_place *place = place_at(a, path);
    if (place != NULL && !may_format(place, description, volume, why, why_len))
        return NULL;
    if (place == NULL && (place = arena_place_file(path, bytes, is_durable(config), why, why_len)) != NULL)
        TAILQ_INSERT_TAIL(&a->places, place, link);
    if (place == NULL || (place->verdict != ARENA_NONE && !may_format(place, description, volume, why, why_len)))
        return NULL;
    if (place->memory.bytes == bytes || arena_place_clear(place, bytes, why, why_len))
        return place;
    live_place_drop(a, place, false);
    return NULL;
}

static struct arena_place *new_memory(struct appliance *a, const struct config_volume *config,
                                      const struct sb_array *description, const struct sb_volume *volume, char *why,
                                      size_t why_len)
{
    drop_stale(a, description, volume);
    struct arena_place *place = arena_place_memory(arena_bytes(config->cache.size), why, why_len);
    if (place == NULL)
        return NULL;
    TAILQ_INSERT_TAIL(&a->places, place, link);
    if (place->stored_as[0] == '\0')
        log_warn("volume %s: nothing keeps the arena of its cache when corbeld ends: what is dirty then is lost; run "
                 "it as a service of systemd, or set cache.arena to a file",
                 config->name.text);
    return place;
}

struct uuid_call {
    struct sync_call call;
    struct uuid uuid;
};

/* Randomness is the loops'. */
static void run_uuid(struct sync_call *call)
{
    container_of(call, struct uuid_call, call)->uuid = uuid_generate(call->loop);
    sync_finish(call);
}

static struct arena_identity identity_of(struct live_array *live, const struct sb_array *description,
                                         const struct sb_volume *volume)
{
    struct uuid_call c = {0};
    sync_call(&c.call, reactor_loop(live->home), run_uuid);
    struct arena_identity identity = {
        .arena = c.uuid, .array = description->uuid, .volume = volume->uuid, .fork = *live_present_fork(description)};
    text_format(identity.name, sizeof identity.name, "%s/%s", description->name, volume->name);
    return identity;
}

static void new_arena(struct appliance *a, struct live_array *live, const struct config_array *array,
                      const struct config_volume *config, const struct sb_array *description,
                      const struct sb_volume *volume, struct foothold *out)
{
    char *why = out->through;
    size_t why_len = sizeof out->through;
    struct arena_place *place = wants_file(config) ? new_file(a, array, config, description, volume, why, why_len)
                                                   : new_memory(a, config, description, volume, why, why_len);
    if (place == NULL)
        return;
    struct arena_identity identity = identity_of(live, description, volume);
    out->arena = arena_create(&place->memory, &identity, config->cache.size);
    text_format(why, why_len, "%s", out->arena != NULL ? "" : "there is no memory for the arena");
    if (out->arena != NULL)
        out->place = place;
    arena_place_look(place);
}

static bool begin_foothold(struct live_array *live, const char *volume, struct foothold *foothold)
{
    if (foothold->place != NULL)
        foothold->place->in_use = true;
    if (foothold->through[0] != '\0')
        log_error("volume %s/%s: its cache writes through: %s", live->name, volume, foothold->through);
    live_hold_end(live, volume);
    return true;
}

bool live_foothold(struct appliance *a, struct live_array *live, const struct sb_array *description, unsigned index,
                   const struct config_array *array, const struct config_volume *config, struct foothold *out)
{
    struct cache_claim claim;
    const struct sb_volume *volume = &description->volumes[index];
    bool claimed = cache_claim_read(description, index, &claim);
    enum config_arena wanted = config != NULL ? config_cache_arena(&config->cache) : CONFIG_ARENA_NONE;
    *out = (struct foothold){0};
    bool logged = config != NULL && config_cache_protection(&config->cache) == CACHE_PROTECT_JOURNAL;
    if (logged && (!claimed || strcmp(claim.kind, "log") == 0)) {
        if (!live_log_foothold(a, live, description, volume, &config->cache.journal, claimed ? &claim : NULL, out))
            return false;
        return begin_foothold(live, volume->name, out);
    }
    if (claimed && strcmp(claim.kind, "arena") != 0)
        return live_hold_claim(live, volume->name, &claim, "which the config does not name for this volume any more");
    if (claimed && wanted == CONFIG_ARENA_NONE)
        return live_hold_claim(live, volume->name, &claim,
                               "and the config gives this volume no cache with an arena any more");
    if (claimed && place_of_id(a, &claim.id) == NULL)
        return hold_missing(a, live, array, config, &claim);
    if (claimed && !claimed_arena(a, live, description, volume, &claim, out))
        return false;
    if (!claimed && wanted != CONFIG_ARENA_NONE)
        new_arena(a, live, array, config, description, volume, out);
    return begin_foothold(live, volume->name, out);
}

/* --- what is kept, and giving it up --- */

static json_t *torn_json(const struct arena_report *report)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < report->torn_blocks && i < ARENA_TORN_SHOWN; i++)
        json_array_append_new(list, report->torn[i] != UINT64_MAX
                                        ? json_integer((json_int_t)(report->torn[i] * PAGE_BYTES))
                                        : json_null());
    return list;
}

static json_t *place_json(const struct arena_place *place)
{
    char id[UUID_TEXT_SIZE];
    const struct arena_report *report = &place->report;
    uuid_format(&report->identity.arena, id);
    return json_pack("{s:s, s:s, s:o, s:s, s:s, s:I, s:I, s:o}", "id", id, "state", arena_verdict_name(place->verdict),
                     "volume", sentence_json(report->identity.name), "where", arena_place_where(place), "outlives",
                     arena_place_outlives(place), "arena_dirty_bytes", (json_int_t)report->dirty_bytes, "torn_blocks",
                     (json_int_t)report->torn_blocks, "torn_offsets", torn_json(report));
}

json_t *live_arenas_json(struct appliance *a)
{
    json_t *list = json_array();
    struct arena_place *place;
    TAILQ_FOREACH(place, &a->places, link)
    if (!place->in_use)
        json_array_append_new(list, place_json(place));
    return list;
}

/* By its id, or by where it is. */
static struct arena_place *place_named(struct appliance *a, const char *name)
{
    struct uuid id;
    struct arena_place *place;
    if (uuid_parse(name, &id))
        return place_of_id(a, &id);
    TAILQ_FOREACH(place, &a->places, link)
    if (strcmp(arena_place_where(place), name) == 0)
        return place;
    return NULL;
}

static const char *discard_place(struct appliance *a, struct arena_place *place, bool yes, char *lost, size_t len)
{
    char why[256];
    if (place->in_use) {
        text_format(a->message, sizeof a->message, "the arena in %s is in use", arena_place_where(place));
        return a->message;
    }
    text_format(lost, len, "the arena in %s is %s: %llu KiB of answered writes to volume %s, and %llu torn blocks",
                arena_place_where(place), arena_verdict_name(place->verdict),
                (unsigned long long)(place->report.dirty_bytes / KIB), place->report.identity.name,
                (unsigned long long)place->report.torn_blocks);
    if (!yes)
        return NULL;
    log_warn("discarded by hand: %s", lost);
    if (place->path[0] != '\0' && !arena_place_clear(place, PAGE_BYTES, why, sizeof why))
        log_error("%s", why);
    live_place_drop(a, place, true);
    live_serve(a, a->config, NULL, NULL); /* a volume that is held for it is to say why from now on */
    return NULL;
}

struct forget_call {
    struct sync_call call;
    struct array_call array_call;
    struct live_array *live;
    const char *volume;
};

static void forgotten(struct array_call *call)
{
    sync_finish(&container_of(call, struct forget_call, array_call)->call);
}

static void run_forget_claim(struct sync_call *call)
{
    struct forget_call *c = container_of(call, struct forget_call, call);
    const struct sb_array *description = array_description(c->live->array);
    unsigned volume = 0;
    while (strcmp(description->volumes[volume].name, c->volume) != 0)
        volume++;
    c->array_call.done = forgotten;
    array_volume_keep(c->live->array, volume, CACHE_CLAIM_NAME, NULL, &c->array_call);
}

bool live_claim_forget(struct appliance *a, struct live_array *live, const char *volume)
{
    struct forget_call c = {.live = live, .volume = volume};
    sync_call(&c.call, reactor_loop(live->home), run_forget_claim);
    if (c.array_call.error != 0)
        text_format(a->message, sizeof a->message, "%s", c.array_call.message);
    return c.array_call.error == 0;
}

static const char *discard_hold(struct appliance *a, struct live_array *live, struct live_hold *hold, bool yes,
                                char *lost, size_t len)
{
    if (hold->torn != NULL)
        text_format(lost, len, "of volume %s/%s: %s. These are written, the damaged ones keep what the volume has",
                    live->name, hold->volume, hold->reason);
    else
        text_format(lost, len, "all writes to volume %s/%s that were answered and had not reached its disks: %s",
                    live->name, hold->volume, hold->reason);
    if (!yes)
        return NULL;
    log_warn("discarded by hand: %s", lost);
    if (hold->torn != NULL)
        hold->torn->accept_torn = true;
    else if (!live_claim_forget(a, live, hold->volume))
        return a->message;
    live_serve(a, a->config, NULL, NULL);
    return NULL;
}

const char *appliance_cache_discard(struct appliance *a, const char *what, bool yes, char *lost, size_t len)
{
    const char *volume;
    struct arena_place *place = place_named(a, what);
    if (place != NULL)
        return discard_place(a, place, yes, lost, len);
    struct live_array *live = live_array_of_volume(a, what, &volume);
    struct live_hold *hold = live != NULL ? live_hold_find(live, volume) : NULL;
    if (hold != NULL)
        return discard_hold(a, live, hold, yes, lost, len);
    text_format(a->message, sizeof a->message, "%s is neither a volume that is held for want of its cache nor an arena",
                what);
    return a->message;
}
