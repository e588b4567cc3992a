/*
 * Rebuild: filling members that are REBUILDING, row by row of what was ever written; or of what they missed, if all of
 * the pass are to be caught up (raid/array_online.c).
 *
 * A pass takes the members that are REBUILDING when it starts through all volumes with redundancy, the one with the
 * least of it first; a member that comes later gets a pass of its own. When all volumes are through, the members are
 * flushed, the description says ACTIVE, and then they are ONLINE.
 *
 *      begin ----> all volumes, in turn ----> flush ----> ACTIVE on disk ----> ONLINE
 *                           |
 *                           +--> some rows could not be computed (unreadable elsewhere): the members stay REBUILDING,
 *                                for they would hold wrong bytes, and hide the error
 */
#include "core/log.h"
#include "raid/array_impl.h"

static uint64_t rebuilding_slots(const struct array *array)
{
    uint64_t slots = 0;
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (sm_state(&array->members[slot].state) == MEMBER_REBUILDING)
            slots |= slot_bit(slot);
    return slots;
}

static uint64_t pass_slots(const struct array *array)
{
    return array->rebuild.slots & rebuilding_slots(array);
}

/* Rows of which some member of the pass, or of the one to come, may lack something. */
static unsigned rows_lacking(const struct array *array)
{
    uint64_t slots = pass_slots(array) != 0 ? pass_slots(array) : rebuilding_slots(array);
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if ((slots & slot_bit(slot)) && array->description.members[slot].missed_from == 0)
            return REGION_WRITTEN;
    return REGION_BIT(REGION_DIRTY) | REGION_BIT(REGION_SUSPECT);
}

static struct job *job_on(struct array *array, unsigned volume)
{
    return job_of(array, volume, JOB_REBUILD);
}

static uint64_t position(const struct array *array, unsigned volume)
{
    return array->volumes[volume].jobs[JOB_REBUILD].position;
}

/* --- the kind --- */

static bool wanted(const struct array *array, unsigned volume)
{
    return rebuilding_slots(array) != 0 && position(array, volume) < array->volumes[volume].layout.rows;
}

static uint64_t rows_left(const struct array *array, unsigned volume)
{
    return region_count(job_map(array, volume), rows_lacking(array));
}

static uint64_t row_next(const struct array *array, unsigned volume, uint64_t from)
{
    const struct region_map *map = job_map(array, volume);
    return region_find(map, rows_lacking(array), from, map->regions);
}

static bool before(const struct array *array, unsigned a, unsigned b)
{
    return layout_tolerance(&array->volumes[a].layout) < layout_tolerance(&array->volumes[b].layout);
}

static void row_done(struct array *array, unsigned volume, const struct row_job *work)
{
    (void)volume;
    array->rebuild.incomplete |= work->status == BLK_MEDIA;
}

/* --- passes --- */

static void pass_over(struct array *array)
{
    array->rebuild.slots = 0;
    array->rebuild.incomplete = false;
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        job_on(array, i)->position = 0;
}

static bool pass_is_through(const struct array *array)
{
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].published && array_is_redundant(array, i) && wanted(array, i))
            return false;
    return true;
}

/* Members that are whole are used from now on. */
static void members_online(struct array *array)
{
    for (unsigned slot = 0; slot < array->description.members_count; slot++) {
        if (!(pass_slots(array) & slot_bit(slot)))
            continue;
        struct sb_member *member = &array->description.members[slot];
        sm_move(&array->members[slot].state, MEMBER_ONLINE);
        log_notice("array %s: disk %s (slot %u) is %s and online", array->description.name,
                   array_disk_name(array, slot), slot, member->missed_from != 0 ? "caught up" : "rebuilt");
        member->missed_from = 0;
    }
    pass_over(array);
    array_members_changed(array);
}

static void pass_committed(struct task *task)
{
    struct array *array = container_of(task, struct array, rebuild.wait.task);
    if (!array->frozen)
        members_online(array);
    jobs_saved(array);
}

static void pass_flushed(struct array_flush *flush)
{
    struct array *array = flush->array;
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (pass_slots(array) & slot_bit(slot))
            array->description.members[slot].state = SB_ACTIVE;
    array_commit(array, &array->rebuild.wait);
}

static void pass_incomplete(struct array *array)
{
    log_error("array %s: the rebuild could not compute all rows, since blocks of other disks cannot be read. The "
              "disk stays out of use for reads; overwrite those blocks or restore the volume, and start it again",
              array->description.name);
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        job_on(array, i)->blocked = true;
    pass_over(array);
}

static bool prepare(struct array *array)
{
    if (pass_slots(array) == 0) {
        pass_over(array);
        array->rebuild.slots = rebuilding_slots(array);
    }
    if (array->rebuild.slots == 0 || !pass_is_through(array))
        return false;
    if (array->rebuild.incomplete) {
        pass_incomplete(array);
        return false;
    }
    array_flush_start(array, &array->rebuild.flush, pass_flushed);
    return true;
}

/* --- from outside --- */

void rebuild_init(struct array *array)
{
    array->rebuild.wait.task.run = pass_committed;
}

void rebuild_member_lost(struct array *array, unsigned slot)
{
    array->rebuild.slots &= ~slot_bit(slot);
}

const struct job_kind rebuild_kind = {
    .name = "rebuild",
    .work = ROW_REBUILD,
    .wanted = wanted,
    .rows_left = rows_left,
    .row_next = row_next,
    .before = before,
    .prepare = prepare,
    .row_done = row_done,
};
