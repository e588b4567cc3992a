/*
 * Init: for those who want their disks exercised before data is trusted to them. Zeroes are written to every row that
 * was never written, and read back (raid/row_init.c); rows that hold data are passed by. Nothing else needs it: rows
 * that were never written read as zeroes anyway.
 *
 * What is asked for stands in the description until it is over, and the region map tells what is left: so a restart goes
 * on where it was. Rows that are given back while it runs are not looked at again, but after a restart.
 *
 * FOREGROUND is for whoever serves the volume: it is to be kept from initiators as long as the description says so.
 */
#include <errno.h>
#include <string.h>

#include "core/log.h"
#include "raid/array_impl.h"

static enum sb_init *init_of(struct array *array, unsigned volume)
{
    return &array->description.volumes[volume].init;
}

/* --- the kind --- */

static bool wanted(const struct array *array, unsigned volume)
{
    return array->description.volumes[volume].init != SB_INIT_NONE;
}

static uint64_t rows_left(const struct array *array, unsigned volume)
{
    return region_count(job_map(array, volume), REGION_BIT(REGION_UNWRITTEN));
}

static uint64_t row_next(const struct array *array, unsigned volume, uint64_t from)
{
    const struct region_map *map = job_map(array, volume);
    return region_find(map, REGION_BIT(REGION_UNWRITTEN), from, map->regions);
}

/* Of a volume that keeps others waiting, first. */
static bool before(const struct array *array, unsigned a, unsigned b)
{
    const struct sb_volume *volumes = array->description.volumes;
    return volumes[a].init == SB_INIT_FOREGROUND && volumes[b].init != SB_INIT_FOREGROUND;
}

static void row_done(struct array *array, unsigned volume, const struct row_job *work)
{
    const struct row_finding *f = &work->report.findings[0];
    if (work->report.findings_count == 0)
        return;
    log_warn("array %s: init of volume %s: disk %s (slot %u) at %llu: zeroes that were written %s: %s",
             array->description.name, array->description.volumes[volume].name, array_disk_name(array, f->slot), f->slot,
             (unsigned long long)f->device_off,
             f->found == ROW_FOUND_UNREADABLE ? "cannot be read" : "read back as something else",
             work->status == BLK_OK ? "written again, and right now" : "passed by, nothing is stored there yet");
}

static void end(struct array *array, unsigned volume)
{
    job_of(array, volume, JOB_INIT)->position = 0;
    *init_of(array, volume) = SB_INIT_NONE;
    array_commit(array, NULL);
    activity_rest(array);
}

const struct job_kind init_kind = {
    .name = "init",
    .work = ROW_INIT,
    .wanted = wanted,
    .rows_left = rows_left,
    .row_next = row_next,
    .before = before,
    .row_done = row_done,
    .end = end,
};

/* --- by hand --- */

/* Or it was called off, and has rows in flight still. */
static bool is_busy(const struct array *array, unsigned volume)
{
    const struct array_jobs *jobs = &array->jobs;
    return wanted(array, volume) || (!jobs_stopped(array) && jobs->kind == JOB_INIT && jobs->volume == volume);
}

static bool refused(struct array *array, const char *name, bool begin, unsigned volume, struct array_call *call)
{
    const char *refusal = array_refusal(array), *a = array->description.name;
    if (refusal != NULL)
        ARRAY_CALL_END(array, call, -EBUSY, "array %s %s: nothing is initialised", a, refusal);
    else if (volume == array->description.volumes_count)
        ARRAY_CALL_END(array, call, -ENOENT, "array %s has no volume %s", a, name);
    else if (!array_is_redundant(array, volume))
        ARRAY_CALL_END(array, call, -EINVAL,
                       "volume %s of array %s has no redundancy, so nothing tells which parts of it hold no data", name,
                       a);
    else if (begin && array->relayout != NULL) /* what was passed is unwritten, and not to be written */
        ARRAY_CALL_END(array, call, -EBUSY, "array %s is moving a volume: wait for that", a);
    else if (begin && is_busy(array, volume))
        ARRAY_CALL_END(array, call, -EBUSY, "volume %s of array %s is being initialised already", name, a);
    else if (!begin && !wanted(array, volume))
        ARRAY_CALL_END(array, call, -EINVAL, "volume %s of array %s is not being initialised", name, a);
    else
        return false;
    return true;
}

void array_init_volume(struct array *array, const char *name, bool begin, struct array_call *call)
{
    unsigned volume = array_volume_index(array, name);
    array->calls++;
    if (refused(array, name, begin, volume, call))
        return;
    struct policy *policy = policy_create(array, call);
    if (policy == NULL)
        return;
    if (begin)
        *job_of(array, volume, JOB_INIT) = (struct job){0};
    else
        log_notice("array %s: init of volume %s called off", array->description.name, name);
    *init_of(array, volume) = begin ? SB_INIT_BACKGROUND : SB_INIT_NONE;
    policy_changed(policy);
}
