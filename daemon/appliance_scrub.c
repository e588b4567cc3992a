/* Scrubs: begun and called off by hand, by the calendar of the config, and as JSON. raid/scrub.c does the work. */
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_internal.h"

struct scrub_call {
    struct sync_call call;
    struct array_call array_call;
    struct array *array;
    const char *volume;
    enum sb_scrub_mode mode;
    uint64_t seconds;
};

static void scrub_done(struct array_call *call)
{
    sync_finish(&container_of(call, struct scrub_call, array_call)->call);
}

static void run_scrub(struct sync_call *call)
{
    struct scrub_call *c = container_of(call, struct scrub_call, call);
    array_scrub(c->array, c->volume, c->mode, &c->array_call);
}

static void run_interval(struct sync_call *call)
{
    struct scrub_call *c = container_of(call, struct scrub_call, call);
    for (unsigned i = 0; i < array_description(c->array)->volumes_count; i++)
        array_scrub_interval(c->array, i, c->seconds);
    sync_finish(call);
}

void live_patrols(struct appliance *a, const struct config *config)
{
    for (unsigned i = 0; i < config->arrays.count; i++) {
        const struct config_array *spec = config_item(&config->arrays, struct config_array, i);
        struct live_array *live = live_array_find(a, spec->name.text);
        struct scrub_call c = {0};
        if (live == NULL || live->array == NULL || !config_scrub_interval(spec->scrub.text, &c.seconds))
            continue;
        c.array = live->array;
        sync_call(&c.call, reactor_loop(live->home), run_interval);
    }
}

const char *appliance_volume_scrub(struct appliance *a, const char *volume, enum appliance_scrub what)
{
    static const enum sb_scrub_mode modes[] = {[APPLIANCE_CHECK] = SB_SCRUB_CHECK,
                                               [APPLIANCE_REPAIR] = SB_SCRUB_REPAIR,
                                               [APPLIANCE_SCRUB_STOP] = SB_SCRUB_NONE};
    const char *name;
    struct live_array *live = live_array_of_volume(a, volume, &name);
    if (live == NULL)
        return a->message;
    struct scrub_call c = {.array = live->array, .volume = name, .mode = modes[what]};
    c.array_call.done = scrub_done;
    sync_call(&c.call, reactor_loop(live->home), run_scrub);
    if (c.array_call.error == 0)
        return NULL;
    text_format(a->message, sizeof a->message, "%s", c.array_call.message);
    return a->message;
}

/* --- telling --- */

static json_t *result_json(enum sb_scrub_mode mode, const struct sb_scrub_result *r)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I}", "mode", sb_scrub_mode_name(mode), "mismatched_blocks",
                     (json_int_t)r->mismatched, "repaired_blocks", (json_int_t)r->repaired, "rewritten_blocks",
                     (json_int_t)r->rewritten, "unreadable_blocks", (json_int_t)r->unreadable);
}

static json_t *finding_json(const struct row_finding *f)
{
    static const char *const found[] = {[ROW_FOUND_CHUNK] = "wrong",
                                        [ROW_FOUND_PROBABLE] = "probably wrong",
                                        [ROW_FOUND_UNKNOWN] = "not located",
                                        [ROW_FOUND_UNREADABLE] = "unreadable"};
    static const char *const remedy[] = {
        [ROW_LEFT] = "left", [ROW_CHUNK_REWRITTEN] = "repaired", [ROW_REDUNDANCY_REWRITTEN] = "redundancy rewritten"};
    json_t *out = json_pack("{s:s, s:s, s:I, s:I}", "found", found[f->found], "remedy", remedy[f->remedy],
                            "volume_offset", (json_int_t)f->off, "volume_bytes", (json_int_t)f->len);
    if (f->found == ROW_FOUND_UNKNOWN)
        return out;
    json_object_set_new(out, "slot", json_integer((json_int_t)f->slot));
    json_object_set_new(out, "disk_offset", json_integer((json_int_t)f->device_off));
    json_object_set_new(out, "disk_bytes", json_integer((json_int_t)f->device_len));
    return out;
}

json_t *scrub_json(const struct array_scrub_info *info)
{
    const struct sb_scrub *scrub = &info->scrub;
    json_t *findings = json_array();
    for (unsigned i = 0; i < info->findings_count; i++)
        json_array_append_new(findings, finding_json(&info->findings[i]));
    json_t *out = json_pack("{s:I, s:I, s:I, s:I, s:o}", "interval_seconds", (json_int_t)info->interval_s,
                            "rows_checked", (json_int_t)info->rows, "corrected_reads", (json_int_t)info->corrected,
                            "findings_not_shown", (json_int_t)info->findings_dropped, "findings", findings);
    if (scrub->mode != SB_SCRUB_NONE)
        json_object_set_new(out, "running", result_json(scrub->mode, &scrub->now));
    if (scrub->finished_s == 0)
        return out;
    json_t *last = result_json(scrub->last_mode, &scrub->last);
    json_object_set_new(last, "finished", json_integer((json_int_t)scrub->finished_s));
    json_object_set_new(out, "last", last);
    return out;
}
