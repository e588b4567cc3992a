/*
 * Jobs by hand: init is begun, and what can be called off is called off. A volume that is initialised in the foreground
 * is held: nobody is served it. Once a second the worker looks whether that is over for one, and serves what is served.
 */
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_cache.h"

struct job_call {
    struct sync_call call;
    struct array_call array_call;
    struct array *array;
    const char *volume;
    bool begin;
    unsigned slot;
};

static void call_done(struct array_call *call)
{
    sync_finish(&container_of(call, struct job_call, array_call)->call);
}

/* NULL, or a->message. */
static const char *call_array(struct appliance *a, struct live_array *live, struct job_call *c,
                              void (*run)(struct sync_call *))
{
    c->array = live->array;
    c->array_call.done = call_done;
    sync_call(&c->call, reactor_loop(live->home), run);
    if (c->array_call.error == 0)
        return NULL;
    text_format(a->message, sizeof a->message, "%s", c->array_call.message);
    return a->message;
}

/* --- init --- */

static void run_init(struct sync_call *call)
{
    struct job_call *c = container_of(call, struct job_call, call);
    array_init_volume(c->array, c->volume, c->begin, &c->array_call);
}

const char *appliance_volume_init(struct appliance *a, const char *volume, bool begin)
{
    struct job_call c = {.begin = begin};
    struct live_array *live = live_array_of_volume(a, volume, &c.volume);
    return live != NULL ? call_array(a, live, &c, run_init) : a->message;
}

/* --- held volumes --- */

static bool is_held(const struct sb_array *description, const char *volume)
{
    for (unsigned i = 0; i < description->volumes_count; i++)
        if (strcmp(description->volumes[i].name, volume) == 0)
            return description->volumes[i].init == SB_INIT_FOREGROUND;
    return false;
}

const char *live_volume_held(struct appliance *a, const char *reference)
{
    const char *volume;
    struct live_array *live = live_array_of_volume(a, reference, &volume);
    if (live == NULL)
        return NULL;
    const struct live_hold *hold = live_hold_find(live, volume);
    if (hold != NULL)
        return hold->reason;
    struct sb_array *description = live_array_describe(live);
    bool held = is_held(description, volume);
    free(description);
    return held ? "it is not initialised yet" : NULL;
}

static unsigned count_held(struct appliance *a)
{
    struct live_array *live;
    unsigned held = 0;
    TAILQ_FOREACH(live, &a->arrays, link)
    {
        if (live->array == NULL)
            continue;
        struct sb_array *description = live_array_describe(live);
        for (unsigned i = 0; i < description->volumes_count; i++)
            held += description->volumes[i].init == SB_INIT_FOREGROUND;
        free(description);
    }
    return held;
}

void live_held_count(struct appliance *a)
{
    a->held = count_held(a);
    atomic_store(&a->holding, a->held > 0);
}

void live_held_look(struct appliance *a)
{
    if (!atomic_load(&a->holding) || count_held(a) >= a->held)
        return;
    live_serve(a, a->config, NULL, NULL);
}

/* --- cancel --- */

static const char *volume_running(const struct array_info *info, const char *volume)
{
    for (unsigned i = 0; i < info->jobs_count; i++)
        if (strcmp(info->jobs[i].volume, volume) == 0)
            return info->jobs[i].kind;
    return NULL;
}

/* What goes first of that which can be called off; or the call is over with a reason. */
static void run_cancel_volume(struct sync_call *call)
{
    struct job_call *c = container_of(call, struct job_call, call);
    const struct sb_array *description = array_description(c->array);
    struct array_info info;
    unsigned i = 0;
    while (strcmp(description->volumes[i].name, c->volume) != 0)
        i++;
    if (description->volumes[i].init != SB_INIT_NONE) {
        array_init_volume(c->array, c->volume, false, &c->array_call);
        return;
    }
    if (description->volumes[i].scrub.mode != SB_SCRUB_NONE) {
        array_scrub(c->array, c->volume, SB_SCRUB_NONE, &c->array_call);
        return;
    }
    array_info(c->array, &info);
    const char *kind = volume_running(&info, c->volume), *array = description->name;
    char *why = c->array_call.message;
    size_t why_len = sizeof c->array_call.message;
    c->array_call.error = -1;
    if (kind == NULL)
        text_format(why, why_len, "there is no job on volume %s/%s", array, c->volume);
    else if (strcmp(kind, "replace") == 0)
        text_format(why, why_len, "a disk of array %s is being replaced: call that off by its slot, %s/SLOT", array,
                    array);
    else
        text_format(why, why_len,
                    "the %s of volume %s/%s is never called off: its redundancy is not whole before that is done; "
                    "corbelctl volume pause %s/%s holds it back",
                    kind, array, c->volume, array, c->volume);
    sync_finish(call);
}

static void run_cancel_replace(struct sync_call *call)
{
    struct job_call *c = container_of(call, struct job_call, call);
    struct array_replacement r;
    struct array_info info;
    array_replacement(c->array, &r);
    if (r.running && r.slot == c->slot) {
        array_replace_cancel(c->array, &c->array_call);
        return;
    }
    array_info(c->array, &info);
    bool rebuilding = strcmp(info.members[c->slot].state, "rebuilding") == 0;
    c->array_call.error = -1;
    text_format(c->array_call.message, sizeof c->array_call.message, "the disk in slot %u of array %s is %s", c->slot,
                info.name,
                rebuilding ? "being rebuilt: that is never called off; corbelctl array pause holds it back, and "
                             "corbelctl disk fail takes the disk out of service"
                           : "not being replaced");
    sync_finish(call);
}

const char *appliance_job_cancel(struct appliance *a, const char *what)
{
    struct job_call c = {0};
    struct reactor *home;
    if (live_volume_find(a, what, &home) != NULL)
        return call_array(a, live_array_of_volume(a, what, &c.volume), &c, run_cancel_volume);
    struct live_array *live = live_newcomer_find(a, what);
    if (live != NULL) {
        struct array_replacement r = live_replacement(live);
        c.slot = r.slot;
    } else {
        live = live_slot_find(a, what, &c.slot);
    }
    if (live != NULL && live->array != NULL)
        return call_array(a, live, &c, run_cancel_replace);
    text_format(a->message, sizeof a->message,
                "%s is neither a volume nor a disk of a running array; give ARRAY/VOLUME, the path of a disk, or "
                "ARRAY/SLOT",
                what);
    return a->message;
}
