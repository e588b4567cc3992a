/*
 * What is said about a volume and stands in the description, so that it outlives a restart: by operators, how fast
 * background work on it may go, or not now (heeded at once); by its users, what they want to be kept. A call is over when
 * it is on all members.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/log.h"
#include "raid/array_impl.h"
#include "raid/relayout_job.h"

struct policy {
    struct array *array;
    struct array_call *call;
    struct commit_wait wait;
};

static void policy_committed(struct task *task)
{
    struct policy *policy = container_of(task, struct policy, wait.task);
    struct array *array = policy->array;
    if (array->frozen)
        ARRAY_CALL_END(array, policy->call, -EIO, "array %s froze before this was written down",
                       array->description.name);
    else
        array_call_over(array, policy->call, 0);
    free(policy);
}

/* True, and the call is over, if the array takes none. */
static bool call_refused(struct array *array, unsigned volume, struct array_call *call)
{
    const char *refusal = array_refusal(array);
    ASSERT(volume < array->description.volumes_count);
    array->calls++;
    if (refusal != NULL)
        ARRAY_CALL_END(array, call, -EBUSY, "array %s %s", array->description.name, refusal);
    return refusal != NULL;
}

/* True, and the call is over, if nothing can be said about the volume. */
static bool policy_refused(struct array *array, unsigned volume, struct array_call *call)
{
    if (call_refused(array, volume, call))
        return true;
    unsigned sides[2];
    if (array_is_redundant(array, volume) || relayout_sides(array, volume, sides))
        return false;
    ARRAY_CALL_END(array, call, -EINVAL, "volume %s has no redundancy, so there is no work on it in the background",
                   array->description.volumes[volume].name);
    return true;
}

struct policy *policy_create(struct array *array, struct array_call *call)
{
    struct policy *policy = calloc(1, sizeof *policy);
    if (policy == NULL) {
        ARRAY_CALL_END(array, call, -ENOMEM, "no memory to change array %s", array->description.name);
        return NULL;
    }
    *policy = (struct policy){.array = array, .call = call, .wait.task.run = policy_committed};
    return policy;
}

void policy_changed(struct policy *policy)
{
    struct array *array = policy->array;
    array_commit(array, &policy->wait);
    jobs_kick(array);
    jobs_look(array);
}

void array_pause_volume(struct array *array, unsigned volume, bool paused, struct array_call *call)
{
    struct sb_volume *v = &array->description.volumes[volume];
    if (policy_refused(array, volume, call))
        return;
    if (v->paused == paused) {
        array_call_over(array, call, 0);
        return;
    }
    struct policy *policy = policy_create(array, call);
    if (policy == NULL)
        return;
    v->paused = paused;
    log_notice("array %s: background work on volume %s is %s", array->description.name, v->name,
               paused ? "paused" : "resumed");
    policy_changed(policy);
}

void array_set_rate(struct array *array, unsigned volume, const struct array_rate *rate, struct array_call *call)
{
    struct sb_volume *v = &array->description.volumes[volume];
    if (policy_refused(array, volume, call))
        return;
    if (rate->priority < 1 || rate->priority > 100 || rate->min_rate > INT64_MAX || rate->max_rate > INT64_MAX ||
        (rate->max_rate != 0 && rate->max_rate < rate->min_rate)) {
        ARRAY_CALL_END(array, call, -EINVAL,
                       "volume %s: the priority is a percentage from 1 to 100, and the maximum rate is not below the "
                       "minimum",
                       v->name);
        return;
    }
    if (v->priority == rate->priority && v->min_rate == rate->min_rate && v->max_rate == rate->max_rate) {
        array_call_over(array, call, 0);
        return;
    }
    struct policy *policy = policy_create(array, call);
    if (policy == NULL)
        return;
    v->priority = rate->priority;
    v->min_rate = rate->min_rate;
    v->max_rate = rate->max_rate;
    policy_changed(policy);
}

struct array_rate array_rate(const struct array *array, unsigned volume)
{
    const struct sb_volume *v = &array->description.volumes[volume];
    return (struct array_rate){v->priority != 0 ? v->priority : PACE_PRIORITY, v->min_rate, v->max_rate};
}

void array_volume_keep(struct array *array, unsigned volume, const char *name, const char *json,
                       struct array_call *call)
{
    if (call_refused(array, volume, call))
        return;
    struct policy *policy = policy_create(array, call);
    if (policy == NULL)
        return;
    const struct sb_volume *v = &array->description.volumes[volume];
    int error = superblock_kept_put(&array->description, &v->uuid, name, json);
    if (error == 0) {
        array_commit(array, &policy->wait);
        return;
    }
    free(policy);
    ARRAY_CALL_END(array, call, error, "volume %s: %s cannot be kept: %s", v->name, name,
                   error == -ENOSPC ? "there is no room left in the description"
                                    : "it is not JSON, or memory is short");
}
