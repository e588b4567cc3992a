/*
 * The logs of caches (protection "journal"): which devices, and what is done with what stands on them.
 *
 *      claimed                    this log's, or free        replayed to the volume, before it is served
 *                                 none of them is here, or   the volume is held until one is, or it is given up
 *                                 of another history
 *      not claimed                free                       formatted
 *                                 something else             left alone; the cache writes through, and says why
 *
 * A device is free if there is nothing on it, or a log of the same volume and history, which nobody claims. One that is
 * away when nothing is claimed is done without, if there is another one.
 *
 * Devices are opened on the home of the array, as its disks are, and belong to one cache.
 */
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_cache.h"
#include "daemon/foreign.h"

/* What stands on a device. */
enum found { FOUND_FREE, FOUND_CLAIMED, FOUND_OTHER };

/* A disk of an array, or what libblkid knows; perhaps beside an old log. */
static bool is_used(struct appliance *a, const char *path, char *why, size_t why_len)
{
    char what[256];
    struct scan scan = {0};
    scan_add(&scan, a->reactors[0], path, 0);
    bool used = scan.count > 0 && scan.disks[0].label != NULL;
    if (used)
        text_format(why, why_len, "%s belongs to array %s", path, scan.disks[0].label->array.name);
    scan_free(&scan);
    if (used)
        return true;
    used = foreign_probe_others(path, what, sizeof what);
    if (used)
        text_format(why, why_len, "%s holds %s", path, what);
    return used;
}

static enum found look(struct appliance *a, const char *path, const struct sb_array *description,
                       const struct sb_volume *volume, const struct cache_claim *claim, char *why, size_t why_len)
{
    struct log_label label;
    struct journal_label journal;
    enum log_verdict verdict = log_label_of(path, &label);
    const struct log_identity *identity = &label.identity;
    bool known = verdict == LOG_CLEAN || verdict == LOG_IN_USE;
    bool ours =
        known && uuid_equal(&identity->volume, &volume->uuid) && uuid_equal(&identity->array, &description->uuid);
    bool stranger = ours && verdict == LOG_IN_USE && !live_in_history(description, &identity->fork);
    if (known && !stranger && claim != NULL && uuid_equal(&identity->log, &claim->id))
        return FOUND_CLAIMED;
    if (stranger)
        text_format(why, why_len,
                    "the log on %s is of another history: the array went on without the disks that are here now", path);
    else if (known && !ours)
        text_format(why, why_len, "%s is a log of volume %s", path, identity->name);
    else if (!known && verdict != LOG_NONE)
        text_format(why, why_len, "the log on %s is %s", path, log_verdict_name(verdict));
    else if (journal_label_of(path, &journal))
        text_format(why, why_len, "%s is the journal of array %s", path, journal.name);
    else if (!is_used(a, path, why, why_len))
        return FOUND_FREE;
    return FOUND_OTHER;
}

/* False, and why: it is not there, or too small. */
static bool open_device(struct appliance *a, struct live_array *live, struct live_disk *disk, const char *path,
                        char *why, size_t why_len)
{
    if (!live_disk_open(a, live, disk, path, why, why_len))
        return false;
    if (disk->disk.dev->info.size >= LOG_BYTES_MIN)
        return true;
    text_format(why, why_len, "%s is too small for a log: it must have %llu KiB", path,
                (unsigned long long)(LOG_BYTES_MIN / KIB));
    live_disk_close(disk);
    return false;
}

static void close_devices(struct live_log *log)
{
    for (unsigned i = 0; i < LOG_DEVICES; i++)
        live_disk_close(&log->disks[i]);
}

/* Those that can be used; `why`: what stands against the last of the others. False: none, or, unless it is claimed,
 * something stands on one. */
static bool open_devices(struct appliance *a, struct live_array *live, const struct sb_array *description,
                         const struct sb_volume *volume, const struct config_strings *paths,
                         const struct cache_claim *claim, struct live_log *log, char *why, size_t why_len)
{
    unsigned usable = 0, claimed = 0;
    bool good = true;
    for (unsigned i = 0; i < paths->count && i < LOG_DEVICES; i++) {
        const char *path = paths->items[i].text;
        text_format(log->disks[i].path, sizeof log->disks[i].path, "%s", path);
        bool there = open_device(a, live, &log->disks[i], path, why, why_len);
        enum found found = there ? look(a, path, description, volume, claim, why, why_len) : FOUND_OTHER;
        usable += there && found != FOUND_OTHER;
        claimed += found == FOUND_CLAIMED;
        good = good && !(there && found == FOUND_OTHER);
        if (there && found != FOUND_OTHER)
            continue;
        log_warn("volume %s/%s: a device for the log of its cache is not used: %s", live->name, volume->name, why);
        live_disk_close(&log->disks[i]);
    }
    good = claim != NULL ? claimed > 0 : good && usable > 0;
    if (!good)
        close_devices(log);
    return good;
}

/* --- on the home of the array --- */

struct log_call {
    struct sync_call call;
    struct cache_log_call log_call;
    struct cache_log_options options;
    struct live_array *live;
    const char *volume;
    bool open;
    struct cache_log *log;
    struct task closed;
};

static void log_ready(struct cache_log_call *call)
{
    sync_finish(&container_of(call, struct log_call, log_call)->call);
}

static void run_begin(struct sync_call *call)
{
    struct log_call *c = container_of(call, struct log_call, call);
    c->log = cache_log_create(&c->options);
    c->log_call = (struct cache_log_call){.done = log_ready, .result = CACHE_LOG_NO_MEMORY};
    if (c->log == NULL)
        sync_finish(call);
    else if (c->open)
        cache_log_open(c->log, array_volume(c->live->array, c->volume), &c->log_call);
    else
        cache_log_format(c->log, &c->log_call);
}

static void log_closed(struct task *task)
{
    sync_finish(&container_of(task, struct log_call, closed)->call);
}

static void run_end(struct sync_call *call)
{
    struct log_call *c = container_of(call, struct log_call, call);
    c->closed.run = log_closed;
    cache_log_close(c->log, &c->closed);
}

void live_log_close(struct live_array *live, struct live_log *log)
{
    struct log_call c = {.log = log->log};
    if (log->log != NULL)
        sync_call(&c.call, reactor_loop(live->home), run_end);
    log->log = NULL;
    close_devices(log);
}

/* Formatted, or replayed. */
static enum cache_log_result begin(struct live_array *live, const struct sb_array *description,
                                   const struct sb_volume *volume, const struct cache_claim *claim,
                                   struct live_log *log)
{
    char name[2 * SB_NAME_SIZE];
    struct log_call c = {.live = live, .volume = volume->name, .open = claim != NULL};
    text_format(name, sizeof name, "%s/%s", live->name, volume->name);
    c.options = (struct cache_log_options){
        .name = name,
        .identity = {
            .array = description->uuid, .volume = volume->uuid, .fork = *live_present_fork(description)}};
    text_format(c.options.identity.name, sizeof c.options.identity.name, "%s", name);
    for (unsigned i = 0; i < LOG_DEVICES; i++)
        c.options.devices[i] = log->disks[i].disk.dev;
    if (claim != NULL) {
        c.options.identity.log = claim->id;
        c.options.least_generation = claim->generation;
    }
    sync_call(&c.call, reactor_loop(live->home), run_begin);
    log->log = c.log;
    return c.log_call.result;
}

/* --- what a cache stands on --- */

static bool replay(struct appliance *a, struct live_array *live, const struct sb_array *description,
                   const struct sb_volume *volume, const struct cache_claim *claim, struct foothold *out)
{
    struct cache_log_status status;
    enum cache_log_result result = begin(live, description, volume, claim, &out->log);
    if (result != CACHE_LOG_OK) {
        char why[128];
        text_format(why, sizeof why, "but %s", cache_log_result_name(result));
        live_log_close(live, &out->log);
        return live_hold_claim(live, volume->name, claim, why);
    }
    cache_log_status(out->log.log, &status); /* nobody works on it now */
    if (status.replayed_blocks > 0)
        log_notice("volume %s/%s: %llu blocks were written from its log", live->name, volume->name,
                   (unsigned long long)status.replayed_blocks);
    if (live_claim_forget(a, live, volume->name)) /* L3 in cache/log.h */
        return true;
    live_log_close(live, &out->log);
    return live_hold_claim(live, volume->name, claim, a->message);
}

bool live_log_foothold(struct appliance *a, struct live_array *live, const struct sb_array *description,
                       const struct sb_volume *volume, const struct config_strings *paths,
                       const struct cache_claim *claim, struct foothold *out)
{
    char why[512] = "";
    bool there = open_devices(a, live, description, volume, paths, claim, &out->log, why, sizeof why);
    if (claim != NULL && !there) {
        char held[sizeof why + 64];
        text_format(held, sizeof held, "of which no device is here%s%s", why[0] != '\0' ? ": " : "", why);
        return live_hold_claim(live, volume->name, claim, held);
    }
    if (claim != NULL)
        return replay(a, live, description, volume, claim, out);
    text_format(out->through, sizeof out->through, "%s", there ? "" : why);
    if (!there)
        return true;
    enum cache_log_result result = begin(live, description, volume, NULL, &out->log);
    if (result == CACHE_LOG_OK)
        return true;
    text_format(out->through, sizeof out->through, "there is no log: %s", cache_log_result_name(result));
    live_log_close(live, &out->log);
    return true;
}

json_t *live_log_json(const struct live_log *log, const struct cache_log_status *s)
{
    char id[UUID_TEXT_SIZE];
    json_t *devices = json_array();
    if (log->log == NULL) {
        json_decref(devices);
        return json_null();
    }
    for (unsigned i = 0; i < LOG_DEVICES; i++)
        if (log->disks[i].path[0] != '\0')
            json_array_append_new(devices, json_pack("{s:s, s:s}", "path", log->disks[i].path, "state",
                                                     !(s->devices >> i & 1)    ? "missing"
                                                     : (s->live >> i & 1) != 0 ? "active"
                                                                               : "failed"));
    uuid_format(&s->log, id);
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "id", id, "generation",
                     (json_int_t)s->generation, "log_bytes", (json_int_t)s->bytes, "log_used_bytes",
                     (json_int_t)s->used_bytes, "commits", (json_int_t)s->commits, "committed_calls",
                     (json_int_t)s->committed_calls, "logged_blocks", (json_int_t)s->blocks, "logged_bytes",
                     (json_int_t)s->written_bytes, "emptied", (json_int_t)s->emptied, "log_reason",
                     s->reason != NULL ? json_string(s->reason) : json_null(), "devices", devices);
}
