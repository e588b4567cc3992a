/*
 * Jobs: making redundancy right, row by row, behind everybody's back.
 *
 *   resync    rows that the region map calls SUSPECT: redundancy is made right after a crash
 *   rebuild   filling members that are REBUILDING, row by row of what was ever written
 *
 * There is no list of jobs: what is to be done follows from the members' states and the region maps, and is decided
 * anew whenever a job is over. One job runs at a time in an array, since all its volumes share the disks.
 *
 *               pick()              all rows done
 *      IDLE -------------> RUNNING ---------------> IDLE ---> SAVING ---> IDLE
 *        ^                    |                         pass over; flushed and committed
 *        +---- DRAINING <-----+  stopped, a rebuild goes first, or a row cannot be done:
 *              rows in flight end
 *
 * Order: a rebuild pass, then resync. A pass takes the members that are REBUILDING when it starts through all
 * volumes with redundancy, the one with the least of it first; a member that comes later gets a pass of its own. When
 * all volumes are through, the members are flushed, the description says ACTIVE, and then they are ONLINE. A pass that
 * met rows it could not compute (unreadable elsewhere) leaves its members REBUILDING: they would hold wrong bytes, and
 * hide the error.
 *
 * Rows are done in order with a window of some in flight. A row that is resynchronised is DIRTY like any that was
 * written, and so CLEAN on disk a few seconds later: a resync that is cut short goes on with what is left. A rebuild
 * starts again.
 *
 * Manners: when the array's volumes have requests of their own, or had some in the last 100 ms, one row at a time is
 * done, with a pause of up to 10 ms but at most four times as long as the row took: so a job never gets less than a
 * fifth of what it would get alone, and a foreground request waits for one row at most.
 */
#include "core/log.h"
#include "raid/array_impl.h"

#define JOB_WINDOW_BYTES (4 * MIB)     /* in flight, of all members together; at least one row */
#define JOB_MARK_NS      5000000000ull /* half of the time over which speed is measured */
#define JOB_PAUSE_NS     10000000ull   /* at most, between rows while others are busy */
#define JOB_PAUSE_ROWS   4             /* at most, in times of a row */
#define JOB_BUSY_NS      100000000ull  /* after a request others count as busy */

static const struct sm_state jobs_states[] = {
    [JOBS_IDLE] = {"idle", SM_TO(JOBS_RUNNING) | SM_TO(JOBS_SAVING)},
    [JOBS_RUNNING] = {"running", SM_TO(JOBS_DRAINING) | SM_TO(JOBS_IDLE)},
    [JOBS_DRAINING] = {"draining", SM_TO(JOBS_IDLE)},
    [JOBS_SAVING] = {"saving", SM_TO(JOBS_IDLE)},
};

static void pump(struct array *array);

static const char *volume_name(const struct array *array, unsigned volume)
{
    return array->description.volumes[volume].name;
}

static const char *kind_name(enum row_work work)
{
    return work == ROW_REBUILD ? "rebuild" : "resync";
}

static const struct region_map *map_of(const struct array *array, unsigned volume)
{
    return map_store_map(array->volumes[volume].map);
}

/* The states of rows that a job is for. */
static unsigned rows_for(enum row_work work)
{
    return work == ROW_REBUILD ? (unsigned)REGION_WRITTEN : REGION_BIT(REGION_SUSPECT);
}

static uint64_t rebuilding_slots(const struct array *array)
{
    uint64_t slots = 0;
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (sm_state(&array->members[slot].state) == MEMBER_REBUILDING)
            slots |= slot_bit(slot);
    return slots;
}

/* Bytes of the members that one row covers. */
static uint64_t row_bytes(const struct array *array, unsigned volume)
{
    const struct layout *layout = &array->volumes[volume].layout;
    return (uint64_t)layout->spec.chunk * layout->roles;
}

/* --- the end of a pass: durable first, then written down --- */

static void members_online(struct array *array);

static void save_committed(struct task *task)
{
    struct array *array = container_of(task, struct array, jobs.wait.task);
    sm_move(&array->jobs.state, JOBS_IDLE);
    if (!array->frozen)
        members_online(array);
    jobs_kick(array); /* what had to wait for this */
    array_step(array);
}

static void save_flushed(struct array_flush *flush)
{
    struct array *array = flush->array;
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (array->jobs.pass_slots & rebuilding_slots(array) & slot_bit(slot))
            array->description.members[slot].state = SB_ACTIVE;
    array_commit(array, &array->jobs.wait);
}

/* --- what is next --- */

/* Of the volumes that the pass has not been through, the one with the least redundancy. */
static bool pick_rebuild(const struct array *array, unsigned *volume)
{
    bool found = false;
    for (unsigned i = 0; i < array->description.volumes_count; i++) {
        bool open = array->volumes[i].published && !(array->jobs.pass_volumes & slot_bit(i));
        if (!open || !array_is_redundant(array, i))
            continue;
        if (!found || layout_tolerance(&array->volumes[i].layout) < layout_tolerance(&array->volumes[*volume].layout))
            *volume = i;
        found = true;
    }
    return found;
}

static bool pick_sync(const struct array *array, unsigned *volume)
{
    for (unsigned i = 0; i < array->description.volumes_count; i++) {
        const struct volume *v = array->volumes[i].volume;
        bool open = array->volumes[i].published && !(array->jobs.blocked_volumes & slot_bit(i));
        if (open && array_is_redundant(array, i) && !volume_failed(v) &&
            region_count(map_of(array, i), rows_for(ROW_RESYNC)) > 0) {
            *volume = i;
            return true;
        }
    }
    return false;
}

static void job_start(struct array *array, enum row_work work, unsigned volume)
{
    struct array_jobs *jobs = &array->jobs;
    sm_move(&jobs->state, JOBS_RUNNING);
    jobs->work = work;
    jobs->volume = volume;
    jobs->next_row = jobs->done_rows = 0;
    jobs->end_row = volume_rows(array->volumes[volume].volume);
    jobs->todo_rows = region_count(map_of(array, volume), rows_for(work));
    jobs->window = (unsigned)MAX(1u, MIN(JOB_WINDOW_BYTES / row_bytes(array, volume), (uint64_t)JOB_WINDOW_MAX));
    jobs->bad_rows = jobs->changed_rows = 0;
    jobs->started_ns = loop_now_ns(array->loop);
    for (unsigned i = 0; i < 2; i++) {
        jobs->mark_ns[i] = jobs->started_ns;
        jobs->mark_rows[i] = 0;
    }
    log_notice("array %s: %s of volume %s begins: %llu of %llu rows", array->description.name, kind_name(work),
               volume_name(array, volume), (unsigned long long)jobs->todo_rows, (unsigned long long)jobs->end_row);
    pump(array);
}

/* The pass has been through all volumes: are its members whole? */
static void pass_end(struct array *array)
{
    struct array_jobs *jobs = &array->jobs;
    if (jobs->pass_incomplete) {
        log_error("array %s: the rebuild could not compute all rows, since blocks of other disks cannot be read. The "
                  "disk stays out of use for reads; overwrite those blocks or restore the volume, and start it again",
                  array->description.name);
        jobs->rebuild_blocked = true;
        jobs->pass_slots = 0;
        jobs_kick(array);
        return;
    }
    sm_move(&jobs->state, JOBS_SAVING);
    array_flush_start(array, &jobs->flush, save_flushed);
}

/* A disk that joined has no region map yet, and what was never written when it joined may be written now. */
static bool maps_copying(const struct array *array)
{
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].map != NULL && map_store_copying(array->volumes[i].map))
            return true;
    return false;
}

void jobs_kick(struct array *array)
{
    struct array_jobs *jobs = &array->jobs;
    unsigned volume = 0;
    if (sm_state(&jobs->state) != JOBS_IDLE || jobs->stopping || array->frozen || maps_copying(array) ||
        sm_state(&array->state) != ARRAY_RUNNING)
        return;
    uint64_t rebuilding = rebuilding_slots(array);
    if ((jobs->pass_slots & rebuilding) == 0) {
        jobs->pass_slots = rebuilding;
        jobs->pass_volumes = 0;
        jobs->pass_incomplete = false;
    }
    bool pass = jobs->pass_slots != 0 && !jobs->rebuild_blocked;
    if (pass && pick_rebuild(array, &volume))
        job_start(array, ROW_REBUILD, volume);
    else if (pass)
        pass_end(array);
    else if (pick_sync(array, &volume))
        job_start(array, ROW_RESYNC, volume);
}

/* --- rows --- */

/* Have the volumes had requests in the last 100 ms? Looked at whenever a row is over. */
static bool foreground_busy(struct array *array)
{
    struct array_jobs *jobs = &array->jobs;
    uint64_t seen = 0;
    bool busy = false;
    for (unsigned i = 0; i < array->description.volumes_count; i++) {
        const struct blkdev *dev = volume_dev(array->volumes[i].volume);
        busy = busy || dev->in_flight > 0;
        for (unsigned op = 0; op < BLK_OP_COUNT; op++)
            seen += dev->counters.requests[op];
    }
    if (busy || seen != jobs->foreground_seen)
        jobs->busy_until_ns = loop_now_ns(array->loop) + JOB_BUSY_NS;
    jobs->foreground_seen = seen;
    return loop_now_ns(array->loop) < jobs->busy_until_ns;
}

static void drained(struct array *array)
{
    struct array_jobs *jobs = &array->jobs;
    if (jobs->in_flight > 0)
        return;
    sm_move(&jobs->state, JOBS_IDLE);
    jobs_kick(array);
    array_step(array);
}

static void drain(struct array *array)
{
    struct array_jobs *jobs = &array->jobs;
    timer_stop(array->loop, &jobs->pause);
    sm_move(&jobs->state, JOBS_DRAINING);
    drained(array);
}

/* The row needs more members than there are, or one that stays in service refused its write. */
static void job_failed(struct array *array, enum blk_status status)
{
    struct array_jobs *jobs = &array->jobs;
    if (!array->frozen)
        log_error("array %s: %s of volume %s stopped before row %llu (%s): %s", array->description.name,
                  kind_name(jobs->work), volume_name(array, jobs->volume), (unsigned long long)jobs->next_row,
                  blk_status_name(status),
                  status == BLK_READONLY ? "a disk refused a write that a volume cannot do without: move that volume's "
                                           "data elsewhere and replace the disk"
                                         : "bring missing disks online");
    if (jobs->work == ROW_REBUILD)
        jobs->rebuild_blocked = true;
    else
        jobs->blocked_volumes |= slot_bit(jobs->volume);
    drain(array);
}

static void mark_speed(struct array *array)
{
    struct array_jobs *jobs = &array->jobs;
    if (loop_now_ns(array->loop) - jobs->mark_ns[1] >= JOB_MARK_NS) {
        jobs->mark_ns[0] = jobs->mark_ns[1];
        jobs->mark_rows[0] = jobs->mark_rows[1];
        jobs->mark_ns[1] = loop_now_ns(array->loop);
        jobs->mark_rows[1] = jobs->done_rows;
    }
}

static void row_done(struct row_job *work)
{
    struct job_row *row = container_of(work, struct job_row, work);
    struct array *array = row->array;
    struct array_jobs *jobs = &array->jobs;
    bool good = work->status == BLK_OK || work->status == BLK_MEDIA;
    jobs->in_flight--;
    jobs->row_ns = loop_now_ns(array->loop) - row->started_ns;
    row->busy = false;
    jobs->done_rows += good;
    jobs->bad_rows += work->status == BLK_MEDIA;
    jobs->changed_rows += work->changed;
    mark_speed(array);
    if (jobs->work == ROW_RESYNC)
        map_store_stir(array->volumes[jobs->volume].map);
    bool outdated = row->changes != jobs->changes && work->status != BLK_READONLY; /* members changed under it */
    if (sm_state(&jobs->state) == JOBS_DRAINING)
        drained(array);
    else if (!good && outdated)
        drain(array); /* and decide anew */
    else if (!good)
        job_failed(array, work->status);
    else
        pump(array);
}

static void row_issue(struct array *array)
{
    struct array_jobs *jobs = &array->jobs;
    struct job_row *row = jobs->rows;
    while (row->busy)
        row++;
    ASSERT(row < jobs->rows + JOB_WINDOW_MAX);
    row->busy = true;
    row->array = array;
    row->started_ns = loop_now_ns(array->loop);
    row->changes = jobs->changes;
    row->work = (struct row_job){.work = jobs->work, .row = jobs->next_row++, .done = row_done};
    jobs->in_flight++;
    volume_row_job(array->volumes[jobs->volume].volume, &row->work);
}

/* A member that is whole is used from now on. */
static void members_online(struct array *array)
{
    for (unsigned slot = 0; slot < array->description.members_count; slot++) {
        if (!(array->jobs.pass_slots & rebuilding_slots(array) & slot_bit(slot)))
            continue;
        sm_move(&array->members[slot].state, MEMBER_ONLINE);
        log_notice("array %s: disk %s (slot %u) is rebuilt and online", array->description.name,
                   array_disk_name(array, slot), slot);
    }
    array->jobs.pass_slots = 0;
    array_members_changed(array);
}

/* All rows are done. */
static void job_end(struct array *array)
{
    struct array_jobs *jobs = &array->jobs;
    sm_move(&jobs->state, JOBS_IDLE);
    jobs->pass_volumes |= jobs->work == ROW_REBUILD ? slot_bit(jobs->volume) : 0;
    jobs->pass_incomplete |= jobs->work == ROW_REBUILD && jobs->bad_rows > 0;
    log_notice("array %s: %s of volume %s finished after %llu s, %llu rows, %llu changed, %llu unreadable",
               array->description.name, kind_name(jobs->work), volume_name(array, jobs->volume),
               (unsigned long long)((loop_now_ns(array->loop) - jobs->started_ns) / 1000000000),
               (unsigned long long)jobs->done_rows, (unsigned long long)jobs->changed_rows,
               (unsigned long long)jobs->bad_rows);
    activity_rest(array);
    jobs_kick(array);
    array_step(array);
}

/* Something else goes first, or there is nothing left to work for. */
static bool must_yield(const struct array *array)
{
    const struct array_jobs *jobs = &array->jobs;
    uint64_t rebuilding = rebuilding_slots(array);
    if (jobs->work == ROW_REBUILD)
        return (jobs->pass_slots & rebuilding) == 0;
    return rebuilding != 0 && !jobs->rebuild_blocked;
}

/* Busy with others: one row, then a pause. True: not now. */
static bool hold_back(struct array *array)
{
    struct array_jobs *jobs = &array->jobs;
    if (jobs->pause.armed)
        return true;
    if (!foreground_busy(array))
        return false;
    uint64_t pause = MIN(JOB_PAUSE_NS, JOB_PAUSE_ROWS * jobs->row_ns);
    if (jobs->in_flight == 0 && !jobs->paused && pause > 0) {
        jobs->paused = true;
        timer_start(array->loop, &jobs->pause, pause);
        return true;
    }
    return jobs->in_flight > 0;
}

/* The next row that the job is for. */
static bool row_find(struct array *array)
{
    struct array_jobs *jobs = &array->jobs;
    jobs->next_row = region_find(map_of(array, jobs->volume), rows_for(jobs->work), jobs->next_row, jobs->end_row);
    return jobs->next_row < jobs->end_row;
}

static void pump(struct array *array)
{
    struct array_jobs *jobs = &array->jobs;
    if (sm_state(&jobs->state) != JOBS_RUNNING)
        return;
    if (jobs->stopping || array->frozen || must_yield(array)) {
        drain(array);
        return;
    }
    while (row_find(array) && jobs->in_flight < jobs->window && !hold_back(array)) {
        jobs->paused = false;
        row_issue(array);
    }
    if (jobs->next_row == jobs->end_row && jobs->in_flight == 0)
        job_end(array);
}

static void pause_over(struct timer *timer)
{
    pump(container_of(timer, struct array, jobs.pause));
}

/* --- from outside --- */

void jobs_init(struct array *array)
{
    sm_init(&array->jobs.state, jobs_states, ARRAY_LENGTH(jobs_states), JOBS_IDLE);
    array->jobs.pause.fire = pause_over;
    array->jobs.wait.task.run = save_committed;
}

void jobs_members_changed(struct array *array)
{
    array->jobs.changes++;
    array->jobs.rebuild_blocked = false;
    array->jobs.blocked_volumes = 0;
    pump(array);
    jobs_kick(array);
}

void jobs_stop(struct array *array)
{
    array->jobs.stopping = true;
    timer_stop(array->loop, &array->jobs.pause);
    pump(array);
}

bool jobs_stopped(const struct array *array)
{
    return sm_state(&array->jobs.state) == JOBS_IDLE;
}

/* --- telling --- */

static void info_fill(const struct array *array, struct array_job_info *info, enum row_work work, unsigned volume)
{
    *info = (struct array_job_info){
        .total_bytes = region_count(map_of(array, volume), rows_for(work)) * row_bytes(array, volume),
    };
    text_format(info->kind, sizeof info->kind, "%s", kind_name(work));
    text_format(info->volume, sizeof info->volume, "%s", volume_name(array, volume));
}

/* The one that runs: with its position, speed, and time left. */
static void info_fill_running(const struct array *array, struct array_job_info *info)
{
    const struct array_jobs *jobs = &array->jobs;
    info_fill(array, info, jobs->work, jobs->volume);
    info->done_bytes = jobs->done_rows * row_bytes(array, jobs->volume);
    info->total_bytes = MAX(jobs->todo_rows, jobs->done_rows) * row_bytes(array, jobs->volume);
    uint64_t ms = (loop_now_ns(array->loop) - jobs->mark_ns[0]) / 1000000;
    if (ms == 0 || jobs->done_rows == jobs->mark_rows[0])
        return;
    uint64_t bytes = (jobs->done_rows - jobs->mark_rows[0]) * row_bytes(array, jobs->volume);
    info->bytes_per_second = MAX(bytes * 1000 / ms, 1ull);
    info->seconds_left = (info->total_bytes - info->done_bytes) / info->bytes_per_second;
}

unsigned jobs_info(const struct array *array, struct array_job_info *info, unsigned max)
{
    const struct array_jobs *jobs = &array->jobs;
    unsigned count = 0;
    bool running = sm_state(&jobs->state) != JOBS_IDLE && array_is_redundant(array, jobs->volume);
    bool rebuilding = rebuilding_slots(array) != 0;
    if (running)
        info_fill_running(array, &info[count++]);
    for (unsigned i = 0; i < array->description.volumes_count && count < max; i++) {
        if (!array->volumes[i].published || !array_is_redundant(array, i))
            continue;
        bool here = running && jobs->volume == i;
        if (rebuilding && !(jobs->pass_volumes & slot_bit(i)) && !(here && jobs->work == ROW_REBUILD))
            info_fill(array, &info[count++], ROW_REBUILD, i);
        if (count < max && region_count(map_of(array, i), rows_for(ROW_RESYNC)) > 0 &&
            !(here && jobs->work == ROW_RESYNC))
            info_fill(array, &info[count++], ROW_RESYNC, i);
    }
    return count;
}
