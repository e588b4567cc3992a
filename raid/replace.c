/*
 * Replacement: the job that copies the rows of a disk that is to be replaced. When, and what for: raid/array_replace.h.
 *
 * Rows with redundancy are copied under their lock (ROW_COPY): what the old disk cannot read is computed from the others.
 * Volumes without any have no locks: their chunks are copied by the shadow itself, which holds back writes to them.
 */
#include "core/log.h"
#include "raid/array_impl.h"

static bool lies_on(const struct sb_volume *volume, unsigned slot)
{
    return volume->spec.level == RAID_JBOD ? volume->slot == slot : slot < volume->spec.members;
}

static bool wanted(const struct array *array, unsigned volume)
{
    const struct array_volume *v = &array->volumes[volume];
    return sm_state(&array->replace.state) == REPLACE_COPYING &&
           lies_on(&array->description.volumes[volume], array->replace.slot) &&
           v->jobs[JOB_REPLACE].position < v->layout.rows;
}

static uint64_t rows_left(const struct array *array, unsigned volume)
{
    return array_is_redundant(array, volume) ? region_count(job_map(array, volume), REGION_WRITTEN)
                                             : array->volumes[volume].layout.rows;
}

/*
 * A row whose first write began before the new disk was there is not written along, and not WRITTEN before that write is
 * over: it is waited for, behind its lock.
 */
static uint64_t row_next(const struct array *array, unsigned volume, uint64_t from)
{
    if (!array_is_redundant(array, volume))
        return from;
    const struct region_map *map = job_map(array, volume);
    return MIN(region_find(map, REGION_WRITTEN, from, map->regions),
               volume_row_busy_next(array->volumes[volume].volume, from));
}

/* All rows of all volumes: the job's part is done. */
static bool prepare(struct array *array)
{
    if (sm_state(&array->replace.state) != REPLACE_COPYING)
        return false;
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].published && wanted(array, i))
            return false;
    replace_rows_copied(array);
    return false;
}

static void row_done(struct array *array, unsigned volume, const struct row_job *work)
{
    char what[128];
    if (work->status != BLK_MEDIA)
        return;
    text_format(what, sizeof what, "a block of volume %s in row %llu", array->description.volumes[volume].name,
                (unsigned long long)work->row);
    replace_unreadable(array, what);
}

/* --- without redundancy --- */

static void work_over(struct task *task)
{
    struct row_job *work = container_of(task, struct row_job, task);
    work->done(work);
}

static void chunk_copied(struct shadow_copy *copy)
{
    struct replace_copy *c = container_of(copy, struct replace_copy, copy);
    struct row_job *work = c->work;
    bool failed = copy->status != BLK_OK && shadow_mode(copy->shadow) != SHADOW_OLD;
    if (failed && !c->again) { /* nobody else has these bytes */
        c->again = true;
        shadow_copy_start(copy->shadow, copy);
        return;
    }
    c->work = NULL;
    work->status = failed ? BLK_MEDIA : BLK_OK; /* or it is over anyway */
    work->changed = !failed;
    work->done(work);
}

static struct replace_copy *copy_free(struct array *array)
{
    struct replace_copy *c = array->replace.copies;
    while (c->work != NULL)
        c++;
    ASSERT(c < array->replace.copies + JOB_WINDOW_MAX);
    return c;
}

/* The chunk of the row that lies on the slot. False: none does. */
static bool chunk_find(const struct array *array, unsigned volume, uint64_t row, uint64_t *off)
{
    const struct sb_volume *sb = &array->description.volumes[volume];
    const struct layout *layout = &array->volumes[volume].layout;
    unsigned first = sb->spec.level == RAID_JBOD ? sb->slot : 0;
    for (unsigned role = 0; role < layout->roles; role++) {
        struct layout_place place;
        layout_place(layout, row, role, &place);
        *off = array->description.data_start + sb->start + place.off;
        if (place.slot + first == array->replace.slot)
            return true;
    }
    return false;
}

static void row_start(struct array *array, unsigned volume, struct row_job *work)
{
    uint64_t off;
    if (array_is_redundant(array, volume)) {
        work->copy_to = &array->replace.target;
        volume_row_job(array->volumes[volume].volume, work);
        return;
    }
    work->status = BLK_OK;
    work->changed = false;
    if (sm_state(&array->replace.state) != REPLACE_COPYING || !chunk_find(array, volume, work->row, &off)) {
        work->task.run = work_over;
        loop_defer(array->loop, &work->task);
        return;
    }
    struct replace_copy *c = copy_free(array);
    *c = (struct replace_copy){
        .copy = {.off = off, .len = array->volumes[volume].layout.spec.chunk, .done = chunk_copied}, .work = work};
    shadow_copy_start(array->replace.shadow, &c->copy);
}

const struct job_kind replace_kind = {
    .name = "replace",
    .work = ROW_COPY,
    .any_volume = true,
    .one_disk = true,
    .all_rows = true,
    .wanted = wanted,
    .rows_left = rows_left,
    .row_next = row_next,
    .prepare = prepare,
    .row_start = row_start,
    .row_done = row_done,
};
