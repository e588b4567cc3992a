/*
 * The end of a relayout: the old side goes, and the new one takes its place.
 *
 *   all was passed -> nothing is under way on the old side -> in memory and in the description the new side stands
 *   where
 *   the old one did, with its name and UUID -> on disk -> the old side's volume, and the log, are closed
 *
 * Until it is on disk a start finds both sides, and all of it passed: it ends the same way. The new side's region
 * map and
 * its entries in the journal keep the UUID under which they were written (sb_volume.key). Numbers of volumes do not
 * change, but for the new side's, which was the last one and is no more.
 *
 * It happens while no job runs (struct job_kind, prepare), and no other begins until it is over.
 */
#include <stdlib.h>

#include "core/log.h"
#include "raid/relayout.h"
#include "raid/relayout_job.h"

static void end_over(struct array_relayout *r)
{
    struct array *array = r->array;
    array->relayout = NULL;
    relayout_free(r);
    jobs_saved(array);
}

/* Its memory may be gone before `over` runs. */
static void log_close(struct array_relayout *r, void (*over)(struct task *))
{
    struct volume *log = r->log;
    r->log = NULL;
    r->closed = (struct task){.run = over};
    blk_close(volume_dev(log), &r->closed);
}

static void log_closed(struct task *task)
{
    struct array_relayout *r = container_of(task, struct array_relayout, closed);
    region_map_fini(&r->log_map);
    end_over(r);
}

static void old_side_closed(struct task *task)
{
    struct array_relayout *r = container_of(task, struct array_relayout, closed);
    if (r->log == NULL) {
        end_over(r);
        return;
    }
    log_close(r, log_closed);
}

static void end_committed(struct task *task)
{
    struct array_relayout *r = container_of(task, struct array_relayout, wait.task);
    if (!r->array->frozen)
        log_notice("array %s: volume %s is %s of %u now", r->array->description.name,
                   r->array->description.volumes[r->old].name, raid_level_name(r->shapes.to.layout.spec.level),
                   r->shapes.to.layout.spec.members);
    r->closed = (struct task){.run = old_side_closed};
    blk_close(volume_dev(r->old_volume), &r->closed);
}

static void entry_rename(struct array_relayout *r)
{
    struct sb_array *a = &r->array->description;
    struct sb_volume *old = &a->volumes[r->old], *new = &a->volumes[r->new];
    new->key = *sb_volume_key(new);
    new->uuid = old->uuid;
    new->relayout = (struct sb_relayout){0};
    if (r->shapes.to.layout.redundancy > 0) { /* else there is no work in the background */
        new->priority = old->priority;
        new->min_rate = old->min_rate;
        new->max_rate = old->max_rate;
        new->paused = old->paused;
    }
    *old = *new;
    a->volumes_count--;
    *new = (struct sb_volume){0};
}

static void sides_join(struct array_relayout *r)
{
    struct array *array = r->array;
    struct array_volume *old = &array->volumes[r->old], *new = &array->volumes[r->new];
    struct front *front = old->front;
    uint64_t interval = old->scrub.interval_s;
    ASSERT(r->new == array->description.volumes_count - 1);
    front_join(front, new->volume);
    r->old_volume = old->volume;
    if (old->map != NULL)
        map_store_destroy(old->map);
    *old = *new;
    old->front = front;
    old->scrub.interval_s = interval;
    if (old->map != NULL)
        map_store_renumber(old->map, r->old);
    rebuild_renumber(array, r->new, r->old);
    *new = (struct array_volume){0};
    entry_rename(r);
}

static bool old_side_is_quiet(const struct array_relayout *r)
{
    const struct array_volume *old = &r->array->volumes[r->old];
    return front_is_joinable(old->front) && volume_is_quiet(old->volume) &&
           (old->map == NULL || map_store_idle(old->map));
}

static void look(struct timer *timer)
{
    struct array_relayout *r = container_of(timer, struct array_relayout, look);
    if (!old_side_is_quiet(r)) {
        timer_start(r->array->loop, &r->look, RELAYOUT_LOOK_NS);
        return;
    }
    sides_join(r);
    r->wait.task.run = end_committed;
    array_commit(r->array, &r->wait);
}

bool relayout_end_begin(struct array *array)
{
    struct array_relayout *r = array->relayout;
    if (r == NULL || !r->begun || r->ending_all || r->position != relayout_end(&r->shapes) || !relayout_still(array))
        return false;
    r->ending_all = true;
    r->look.fire = look;
    timer_start(array->loop, &r->look, 0);
    return true;
}

/* --- the array is closed in the midst of one --- */

static void closed(struct task *task)
{
    struct array_relayout *r = container_of(task, struct array_relayout, closed);
    region_map_fini(&r->log_map);
    loop_defer(r->array->loop, r->close_over);
}

bool relayout_close(struct array *array, struct task *over)
{
    struct array_relayout *r = array->relayout;
    if (r == NULL || r->log == NULL)
        return false;
    r->close_over = over;
    log_close(r, closed);
    return true;
}
