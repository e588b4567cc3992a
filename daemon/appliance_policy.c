/* How fast background work on volumes goes, and whether: by hand, and as the config says. raid/array_policy.c. */
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_internal.h"

struct policy_call {
    struct sync_call call;
    struct array_call array_call;
    struct array *array;
    const char *volume;
    struct appliance_policy policy;
    bool found;
};

static void policy_done(struct array_call *call)
{
    sync_finish(&container_of(call, struct policy_call, array_call)->call);
}

static void rate_change(struct policy_call *c, unsigned volume)
{
    struct array_rate rate = array_rate(c->array, volume);
    if (c->policy.priority >= 0)
        rate.priority = (unsigned)c->policy.priority;
    if (c->policy.min_rate >= 0)
        rate.min_rate = (uint64_t)c->policy.min_rate;
    if (c->policy.max_rate >= 0)
        rate.max_rate = (uint64_t)c->policy.max_rate;
    array_set_rate(c->array, volume, &rate, &c->array_call);
}

static void run_policy(struct sync_call *call)
{
    struct policy_call *c = container_of(call, struct policy_call, call);
    const struct sb_array *a = array_description(c->array);
    unsigned volume = 0;
    while (volume < a->volumes_count &&
           (strcmp(a->volumes[volume].name, c->volume) != 0 || array_volume(c->array, c->volume) == NULL))
        volume++;
    c->found = volume < a->volumes_count;
    if (!c->found)
        sync_finish(call);
    else if (c->policy.paused >= 0)
        array_pause_volume(c->array, volume, c->policy.paused > 0, &c->array_call);
    else
        rate_change(c, volume);
}

/* True: done; or a->message. */
static bool policy_apply(struct appliance *a, struct live_array *live, const char *volume,
                         const struct appliance_policy *policy)
{
    struct policy_call c = {.array = live->array, .volume = volume, .policy = *policy, .array_call.done = policy_done};
    sync_call(&c.call, reactor_loop(live->home), run_policy);
    if (c.found && c.array_call.error == 0)
        return true;
    text_format(a->message, sizeof a->message, "%s%s", c.found ? c.array_call.message : "there is no volume ",
                c.found ? "" : volume);
    return false;
}

const char *appliance_volume_policy(struct appliance *a, const char *volume, const struct appliance_policy *policy)
{
    const char *name;
    struct live_array *live = live_array_of_volume(a, volume, &name);
    if (live == NULL)
        return a->message;
    return policy_apply(a, live, name, policy) ? NULL : a->message;
}

const char *appliance_array_policy(struct appliance *a, const char *array, const struct appliance_policy *policy)
{
    struct live_array *live = live_array_find(a, array);
    if (live == NULL || live->array == NULL) {
        text_format(a->message, sizeof a->message, "%s is no running array", array);
        return a->message;
    }
    struct sb_array *there = live_array_describe(live);
    unsigned done = 0;
    bool good = true;
    for (unsigned i = 0; good && i < there->volumes_count; i++) {
        struct layout layout;
        if (!superblock_layout(there, &there->volumes[i], &layout) || layout.redundancy == 0)
            continue;
        good = policy_apply(a, live, there->volumes[i].name, policy);
        done++;
    }
    free(there);
    if (good && done == 0)
        text_format(a->message, sizeof a->message,
                    "no volume of array %s has redundancy, so there is no work on them in the background", array);
    return good && done > 0 ? NULL : a->message;
}

void live_rates(struct appliance *a, const struct config *config)
{
    for (unsigned i = 0; i < config->arrays.count; i++) {
        const struct config_array *spec = config_item(&config->arrays, struct config_array, i);
        struct live_array *live = live_array_find(a, spec->name.text);
        for (unsigned j = 0; live != NULL && live->array != NULL && j < spec->volumes.count; j++) {
            const struct config_volume *v = config_item(&spec->volumes, struct config_volume, j);
            struct appliance_policy policy = {-1, (int64_t)v->priority, (int64_t)v->min_rate, (int64_t)v->max_rate};
            if (v->priority != 0 && !policy_apply(a, live, v->name.text, &policy))
                log_warn("priority of volume %s/%s: %s", spec->name.text, v->name.text, a->message);
        }
    }
}
