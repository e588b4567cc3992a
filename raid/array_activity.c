/*
 * Dirty before the first write, clean when quiet.
 *
 *                change          committed              quiet for 2 s             flushed
 *      CLEAN -----------> DIRTYING -------> DIRTY ---------------------> FLUSHING -------> CLEANING
 *        ^                   ^                ^                            |                  |
 *        |                   |                +------ change --------------+                  |
 *        +-------------------|------------------ committed, nobody waits ---------------------+
 *                            +------------------ committed, changes wait ---------------------+
 *
 * CLEAN     every live member says clean; no change is granted.
 * DIRTYING  the generation that says dirty is under way; changes wait.
 * DIRTY     every live member says dirty; changes are granted at once.
 * FLUSHING  as DIRTY, with no change under way: the region maps turn rows clean, and what was written is being made
 *           durable, so that "clean" is true also of disks that lose their caches. A change ends it, and so does a row
 *           that waits for its resync.
 * CLEANING  the generation that says clean is under way; a change waits and makes the next one.
 *
 * The array is clean on disk only if no row of any region map is SUSPECT. DIRTY rows may stand: those that a member lacks
 * that is away (raid/map_store.h, S8).
 *
 * So a process that is killed while nobody writes leaves an array that needs no resync. When the array freezes all
 * changes are granted: the volumes answer them BLK_GONE, nothing reaches a disk.
 */
#include "raid/array_impl.h"

enum { QUIET_NS = 2000000000 };

static const struct sm_state activity_states[] = {
    [ACTIVITY_CLEAN] = {"clean", SM_TO(ACTIVITY_DIRTYING)},
    [ACTIVITY_DIRTYING] = {"dirtying", SM_TO(ACTIVITY_DIRTY)},
    [ACTIVITY_DIRTY] = {"dirty", SM_TO(ACTIVITY_FLUSHING)},
    [ACTIVITY_FLUSHING] = {"flushing", SM_TO(ACTIVITY_DIRTY) | SM_TO(ACTIVITY_CLEANING)},
    [ACTIVITY_CLEANING] = {"cleaning", SM_TO(ACTIVITY_CLEAN)},
};

/* They ask again. */
static void wake_all(struct array *array)
{
    struct task *task;
    while ((task = STAILQ_FIRST(&array->activity.waiting)) != NULL) {
        STAILQ_REMOVE_HEAD(&array->activity.waiting, link);
        loop_defer(array->loop, task);
    }
}

static void make_dirty(struct array *array)
{
    sm_move(&array->activity.state, ACTIVITY_DIRTYING);
    array->description.clean = false;
    array_commit(array, &array->activity.wait);
}

static void activity_committed(struct task *task)
{
    struct array *array = container_of(task, struct array, activity.wait.task);
    struct array_activity *activity = &array->activity;
    if (array->frozen)
        return;
    if (sm_state(&activity->state) == ACTIVITY_DIRTYING) {
        sm_move(&activity->state, ACTIVITY_DIRTY);
        wake_all(array);
        activity_rest(array);
    } else {
        sm_move(&activity->state, ACTIVITY_CLEAN);
        for (unsigned i = 0; i < array->description.volumes_count; i++)
            if (array->volumes[i].volume != NULL)
                volume_all_flushed(array->volumes[i].volume);
        if (!STAILQ_EMPTY(&activity->waiting))
            make_dirty(array);
    }
    array_step(array);
}

/* All redundancy is, and that is on disk. */
static bool is_right(const struct array *array)
{
    return array_maps_count(array, REGION_BIT(REGION_SUSPECT)) == 0 && array_maps_saved(array);
}

static void activity_flushed(struct array_flush *flush)
{
    struct array *array = flush->array;
    struct array_activity *activity = &array->activity;
    if (sm_state(&activity->state) == ACTIVITY_FLUSHING && !array->frozen && is_right(array)) {
        sm_move(&activity->state, ACTIVITY_CLEANING);
        array->description.clean = true;
        array_commit(array, &activity->wait);
    }
    array_step(array);
}

/* All maps are at rest. What is not right is to be resynchronised, or has become right just now. */
void activity_look(struct array *array)
{
    struct array_activity *activity = &array->activity;
    if (sm_state(&activity->state) != ACTIVITY_FLUSHING || activity->flush.pending > 0 || array->frozen ||
        !array_maps_idle(array))
        return;
    if (is_right(array)) {
        array_flush_start(array, &activity->flush, activity_flushed);
        return;
    }
    sm_move(&activity->state, ACTIVITY_DIRTY);
    if (!array_maps_saved(array))
        activity_rest(array); /* the end of a resync does that as well */
}

static void activity_quiet(struct timer *timer)
{
    struct array *array = container_of(timer, struct array, activity.quiet);
    struct array_activity *activity = &array->activity;
    if (activity->flush.pending > 0) { /* of a quiet time before, that a change ended */
        timer_start(array->loop, timer, QUIET_NS);
        return;
    }
    array_maps_settle(array);
    sm_move(&activity->state, ACTIVITY_FLUSHING);
    activity_look(array);
}

void activity_init(struct array *array, bool clean)
{
    struct array_activity *activity = &array->activity;
    sm_init(&activity->state, activity_states, ARRAY_LENGTH(activity_states), clean ? ACTIVITY_CLEAN : ACTIVITY_DIRTY);
    STAILQ_INIT(&activity->waiting);
    activity->wait.task.run = activity_committed;
    activity->quiet.fire = activity_quiet;
}

bool activity_begin(struct array *array, struct task *task)
{
    struct array_activity *activity = &array->activity;
    enum activity_state state = sm_state(&activity->state);
    timer_stop(array->loop, &activity->quiet);
    if (state == ACTIVITY_FLUSHING && !array->frozen)
        sm_move(&activity->state, ACTIVITY_DIRTY);
    if (array->frozen || state == ACTIVITY_DIRTY || state == ACTIVITY_FLUSHING) {
        activity->changes++;
        return true;
    }
    STAILQ_INSERT_TAIL(&activity->waiting, task, link);
    if (state == ACTIVITY_CLEAN)
        make_dirty(array);
    return false;
}

void activity_end(struct array *array)
{
    struct array_activity *activity = &array->activity;
    ASSERT(activity->changes > 0);
    if (--activity->changes == 0)
        activity_rest(array);
    array_step(array);
}

void activity_rest(struct array *array)
{
    struct array_activity *activity = &array->activity;
    bool dirty = sm_state(&activity->state) == ACTIVITY_DIRTY;
    if (dirty && activity->changes == 0 && !array->frozen && sm_state(&array->state) != ARRAY_CLOSING)
        timer_start(array->loop, &activity->quiet, QUIET_NS);
}

bool activity_still(const struct array *array)
{
    const struct array_activity *activity = &array->activity;
    enum activity_state state = sm_state(&activity->state);
    bool resting = state == ACTIVITY_CLEAN || state == ACTIVITY_DIRTY || array->frozen;
    return resting && activity->flush.pending == 0 && activity->changes == 0;
}

void activity_stop(struct array *array)
{
    timer_stop(array->loop, &array->activity.quiet);
}

void activity_frozen(struct array *array)
{
    activity_stop(array);
    wake_all(array);
}
