/*
 * Resync: rows that the region map calls SUSPECT get their redundancy made right, after a crash or a write that failed
 * half-way. A row that is done is DIRTY like any that was written, and so CLEAN on disk a few seconds later: the map is
 * the checkpoint, and a resync that is cut short goes on with what is left.
 */
#include "raid/array_impl.h"

static uint64_t rows_left(const struct array *array, unsigned volume)
{
    return region_count(job_map(array, volume), REGION_BIT(REGION_SUSPECT));
}

static bool wanted(const struct array *array, unsigned volume)
{
    return rows_left(array, volume) > 0 && !rebuild_owns(array, volume);
}

static uint64_t row_next(const struct array *array, unsigned volume, uint64_t from)
{
    const struct region_map *map = job_map(array, volume);
    return region_find(map, REGION_BIT(REGION_SUSPECT), from, map->regions);
}

static void row_done(struct array *array, unsigned volume, const struct row_job *work)
{
    (void)work;
    map_store_stir(array->volumes[volume].map);
}

/* Rows that could not be read in full are SUSPECT no more; those that become so later are found from the start. */
static void end(struct array *array, unsigned volume)
{
    job_of(array, volume, JOB_RESYNC)->position = 0;
    activity_rest(array);
}

const struct job_kind resync_kind = {
    .name = "resync",
    .work = ROW_RESYNC,
    .wanted = wanted,
    .rows_left = rows_left,
    .row_next = row_next,
    .row_done = row_done,
    .end = end,
};
