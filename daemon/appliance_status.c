/* The state of everything as JSON: one snapshot per object, taken on its own reactor. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_cache.h"
#include "daemon/disk.h"

struct info_call {
    struct sync_call call;
    struct live_array *live;
    struct array_info info;
    struct power_health power;
    struct sb_array description;
    struct blk_counters counters[SB_VOLUMES_MAX];
    struct array_usage usage[SB_VOLUMES_MAX];
    struct array_scrub_info scrub[SB_VOLUMES_MAX];
    struct array_lost lost[SB_VOLUMES_MAX];
    struct cache_status caches[SB_VOLUMES_MAX]; /* bytes 0: none */
    struct cache_log_status logs[SB_VOLUMES_MAX];
    bool volume_there[SB_VOLUMES_MAX];
};

static void run_info(struct sync_call *call)
{
    struct info_call *c = container_of(call, struct info_call, call);
    array_info(c->live->array, &c->info);
    c->power = c->live->power;
    c->description = *array_description(c->live->array);
    for (unsigned i = 0; i < c->description.volumes_count; i++) {
        if (sb_volume_is_new_side(&c->description.volumes[i])) /* shown with the old one */
            continue;
        struct blkdev *dev = array_volume(c->live->array, c->description.volumes[i].name);
        c->volume_there[i] = dev != NULL;
        if (dev != NULL)
            c->counters[i] = dev->counters;
        if (dev != NULL)
            c->usage[i] = array_usage(c->live->array, i);
        array_scrub_info(c->live->array, i, &c->scrub[i]);
        if (dev != NULL)
            array_lost(c->live->array, i, &c->lost[i]);
        live_cache_look(c->live, c->description.volumes[i].name, &c->caches[i], &c->logs[i]);
    }
    sync_finish(call);
}

json_t *sentence_json(const char *sentence)
{
    char ascii[1024];
    json_t *text = json_string(sentence);
    if (text != NULL)
        return text;
    text_format(ascii, sizeof ascii, "%s", sentence);
    for (char *c = ascii; *c != '\0'; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    return json_string(ascii);
}

static json_t *member_json(const struct live_disk *disk, const struct array_member_info *member, unsigned slot)
{
    return json_pack("{s:i, s:s, s:s, s:s, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "slot", (int)slot,
                     "state", member->state, "path", disk->path, "identity", member->identity, "present",
                     member->present, "slow", member->slow, "recent_errors", (json_int_t)member->recent_errors,
                     "bad_ranges", (json_int_t)member->bad_ranges, "bad_bytes", (json_int_t)member->bad_bytes, "late",
                     (json_int_t)member->late, "timed_out", (json_int_t)member->timed_out, "read_errors",
                     (json_int_t)member->read_errors, "corrected", (json_int_t)member->corrected, "write_errors",
                     (json_int_t)member->write_errors, "engine", disk->disk.dev != NULL ? disk->engine : "none");
}

static json_t *lost_json(const struct array_lost *lost)
{
    json_t *ranges = json_array();
    for (unsigned i = 0; i < lost->count; i++)
        json_array_append_new(ranges, json_pack("{s:I, s:I}", "offset", (json_int_t)lost->ranges[i].off, "bytes",
                                                (json_int_t)lost->ranges[i].len));
    return ranges;
}

static json_t *held_json(struct live_array *live, const char *volume)
{
    const struct live_hold *hold = live_hold_find(live, volume);
    return hold != NULL ? sentence_json(hold->reason) : json_null();
}

static json_t *volume_json(struct live_array *live, const struct sb_volume *volume, const struct blk_counters *counters,
                           const struct array_usage *usage, const struct array_scrub_info *scrub,
                           const struct array_lost *lost, const struct cache_status *cache,
                           const struct cache_log_status *log)
{
    char uuid[UUID_TEXT_SIZE];
    uuid_format(&volume->uuid, uuid);
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:o, s:s, s:o, s:o}",
                     "name", volume->name, "uuid", uuid, "level", raid_level_name(volume->spec.level), "consistency",
                     sb_consistency_name(volume->consistency), "size_bytes", (json_int_t)volume->size, "chunk_bytes",
                     (json_int_t)volume->spec.chunk, "logical_block_bytes", (json_int_t)volume->logical_block,
                     "read_requests", (json_int_t)counters->requests[BLK_READ], "write_requests",
                     (json_int_t)counters->requests[BLK_WRITE], "read_bytes", (json_int_t)counters->bytes[BLK_READ],
                     "written_bytes", (json_int_t)counters->bytes[BLK_WRITE], "used_bytes",
                     (json_int_t)usage->written_bytes, "dirty_bytes", (json_int_t)usage->dirty_bytes, "scrub",
                     scrub_json(scrub), "lost_bytes", (json_int_t)lost->bytes, "lost", lost_json(lost), "init",
                     sb_init_name(volume->init), "cache", live_cache_json(live, volume->name, cache, log), "held",
                     held_json(live, volume->name));
}

static json_t *job_json(const struct array_job_info *job)
{
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:b, s:i, s:I, s:I}", "kind", job->kind, "volume",
                     job->volume, "done_bytes", (json_int_t)job->done_bytes, "total_bytes",
                     (json_int_t)job->total_bytes, "bytes_per_second", (json_int_t)job->bytes_per_second,
                     "seconds_left", (json_int_t)job->seconds_left, "position", (json_int_t)job->position, "rows",
                     (json_int_t)job->rows, "waits_for", job->waits_for, "paused", job->paused, "priority",
                     (int)job->rate.priority, "min_rate", (json_int_t)job->rate.min_rate, "max_rate",
                     (json_int_t)job->rate.max_rate);
}

/* An array that was never made is no failure; one that should be there is. */
static const char *not_started(const struct live_array *live)
{
    return strcmp(live->verdict, "not created") == 0 ? "not created" : "not started";
}

static json_t *array_json(struct live_array *live)
{
    if (live->array == NULL)
        return json_pack("{s:s, s:s, s:s, s:o, s:[], s:[], s:[]}", "name", live->name, "state", not_started(live),
                         "verdict", live->verdict, "reason", sentence_json(live->reason), "members", "volumes", "jobs");
    struct info_call *c = calloc(1, sizeof *c);
    ASSERT(c != NULL);
    c->live = live;
    sync_call(&c->call, reactor_loop(live->home), run_info);
    json_t *members = json_array(), *volumes = json_array(), *jobs = json_array();
    for (unsigned i = 0; i < c->info.members_count; i++)
        json_array_append_new(members, member_json(&live->disks[i], &c->info.members[i], i));
    for (unsigned i = 0; i < c->description.volumes_count; i++)
        if (c->volume_there[i])
            json_array_append_new(volumes, volume_json(live, &c->description.volumes[i], &c->counters[i], &c->usage[i],
                                                       &c->scrub[i], &c->lost[i], &c->caches[i], &c->logs[i]));
    for (unsigned i = 0; i < c->info.jobs_count; i++)
        json_array_append_new(jobs, job_json(&c->info.jobs[i]));
    char uuid[UUID_TEXT_SIZE];
    uuid_format(&c->description.uuid, uuid);
    json_t *out = json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:I, s:I, s:o, s:o, s:o, s:o, s:s}", "name", live->name,
                            "uuid", uuid, "state", c->info.state, "verdict", live->verdict, "reason", live->reason,
                            "clean", c->info.clean, "generation", (json_int_t)c->info.generation, "free_bytes_per_disk",
                            (json_int_t)c->info.free_bytes, "members", members, "volumes", volumes, "jobs", jobs,
                            "journal", live_journals_json(live, &c->info), "power", c->power.cause);
    free(c);
    return out;
}

static json_t *services_json(struct appliance *a)
{
    json_t *exports = json_array(), *targets = json_array(), *listeners = json_array();
    struct live_export *export;
    struct live_target *target;
    struct live_listener *listener;
    TAILQ_FOREACH(export, &a->exports, link)
    json_array_append_new(exports, json_pack("{s:s, s:s}", "name", export->name, "volume", export->volume));
    TAILQ_FOREACH(target, &a->targets, link)
    json_array_append_new(targets, json_pack("{s:s, s:i}", "name", target->name, "luns", (int)target->luns_count));
    TAILQ_FOREACH(listener, &a->listeners, link)
    json_array_append_new(listeners,
                          json_pack("{s:s, s:s}", "protocol", listener->protocol, "address", listener->address));
    return json_pack("{s:o, s:o, s:o}", "exports", exports, "targets", targets, "listeners", listeners);
}

static bool has_held(const json_t *array)
{
    size_t index;
    json_t *volume;
    json_array_foreach(json_object_get(array, "volumes"), index,
                       volume) if (json_is_string(json_object_get(volume, "held"))) return true;
    return false;
}

/* One word for all: the worst of what is. */
static const char *health_of(const json_t *arrays, const char *worst)
{
    size_t index;
    json_t *array;
    json_array_foreach(arrays, index, array)
    {
        const char *state = json_string_value(json_object_get(array, "state"));
        if (has_held(array))
            return "failed";
        if (strcmp(state, "degraded") == 0)
            worst = "degraded";
        else if (strcmp(state, "optimal") != 0 && strcmp(state, "not created") != 0)
            return "failed";
    }
    return worst;
}

json_t *appliance_status(struct appliance *a)
{
    json_t *arrays = json_array();
    struct live_array *live;
    TAILQ_FOREACH(live, &a->arrays, link)
    json_array_append_new(arrays, array_json(live));
    json_t *status = services_json(a);
    json_t *imports = live_imports_json(a);
    json_object_set_new(status, "health", json_string(health_of(imports, health_of(arrays, "ok"))));
    json_object_set_new(status, "version", json_string(CORBEL_VERSION));
    json_object_set_new(status, "config", json_string(a->config->path));
    json_object_set_new(status, "uptime_seconds", json_integer((json_int_t)((uint64_t)time(NULL) - a->started_s)));
    json_object_set_new(status, "arrays", arrays);
    json_object_set_new(status, "imports", imports);
    json_object_set_new(status, "spares", live_spares_json(a));
    json_object_set_new(status, "arenas", live_arenas_json(a));
    json_object_set_new(status, "power", appliance_power(a));
    json_object_set_new(status, "connections", live_connections_json(a));
    return status;
}
