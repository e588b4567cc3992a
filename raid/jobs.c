/*
 * The scheduler of jobs: see raid/jobs.h for the drawing, the kinds for what is done, and raid/job_pace.h for when.
 */
#include "raid/jobs.h"

#include "core/log.h"
#include "raid/array_impl.h"

#define JOB_WINDOW_BYTES (8 * MIB)     /* in flight, of all members together; at least one row */
#define JOB_SMALL_STROKE (128 * KIB)   /* of a unit on each member, when others use disks that need no seek */
#define JOB_LOOK_NS      10000000ull   /* between looks at the pace, while others are busy */
#define JOB_MARK_NS      5000000000ull /* half of the time over which speed is measured */

enum { JOB_UNITS_DEEP = 3 }; /* of the window: one that is read, one that is written, one to come */

static const struct job_kind *const kinds[JOB_KINDS] = {
    [JOB_REBUILD] = &rebuild_kind, [JOB_RESYNC] = &resync_kind, [JOB_RELAYOUT] = &relayout_kind,
    [JOB_REPLACE] = &replace_kind, [JOB_INIT] = &init_kind,     [JOB_SCRUB] = &scrub_kind,
    [JOB_PATROL] = &patrol_kind,
};

static const struct sm_state jobs_states[] = {
    [JOBS_IDLE] = {"idle", SM_TO(JOBS_RUNNING) | SM_TO(JOBS_SAVING)},
    [JOBS_RUNNING] = {"running", SM_TO(JOBS_DRAINING) | SM_TO(JOBS_IDLE)},
    [JOBS_DRAINING] = {"draining", SM_TO(JOBS_IDLE)},
    [JOBS_SAVING] = {"saving", SM_TO(JOBS_IDLE)},
};

static void pump(struct array *array);

struct job *job_of(struct array *array, unsigned volume, enum job_kind_id kind)
{
    return &array->volumes[volume].jobs[kind];
}

const struct region_map *job_map(const struct array *array, unsigned volume)
{
    return map_store_map(array->volumes[volume].map);
}

uint64_t job_row_bytes(const struct array *array, unsigned volume)
{
    const struct layout *layout = &array->volumes[volume].layout;
    return (uint64_t)layout->spec.chunk * layout->roles;
}

/* Of the rows that rows_left() counts, those below the position. */
static uint64_t rows_behind(const struct array *array, enum job_kind_id kind, unsigned volume)
{
    uint64_t position = array->volumes[volume].jobs[kind].position;
    if (!kinds[kind]->all_rows || position == 0)
        return 0;
    return array_is_redundant(array, volume) ? region_count_written(job_map(array, volume), position) : position;
}

static const struct job_kind *kind_now(const struct array *array)
{
    return kinds[array->jobs.kind];
}

static const char *volume_name(const struct array *array, unsigned volume)
{
    return array->description.volumes[volume].name;
}

/* --- what is next --- */

/* Has the kind work on the volume, now or later? */
static bool job_wanted(const struct array *array, enum job_kind_id kind, unsigned volume)
{
    const struct array_volume *v = &array->volumes[volume];
    return v->published && (array_is_redundant(array, volume) || kinds[kind]->any_volume) &&
           kinds[kind]->wanted(array, volume);
}

static bool job_can_run(const struct array *array, enum job_kind_id kind, unsigned volume)
{
    const struct array_volume *v = &array->volumes[volume];
    return job_wanted(array, kind, volume) && !v->jobs[kind].blocked && !volume_failed(v->volume) &&
           !array->description.volumes[volume].paused && array->jobs.held == NULL && array->resize == NULL;
}

const char *jobs_wanted(const struct array *array, unsigned volume)
{
    for (unsigned kind = 0; kind < JOB_KINDS; kind++)
        if (job_wanted(array, (enum job_kind_id)kind, volume))
            return kinds[kind]->name;
    return NULL;
}

static bool pick_volume(const struct array *array, enum job_kind_id kind, unsigned *volume)
{
    bool found = false;
    for (unsigned i = 0; i < array->description.volumes_count; i++) {
        bool (*before)(const struct array *, unsigned, unsigned) = kinds[kind]->before;
        if (!job_can_run(array, kind, i) || (found && (before == NULL || !before(array, i, *volume))))
            continue;
        *volume = i;
        found = true;
    }
    return found;
}

/* The first kind below `end` that has something to do, and where; `end`: none. */
static unsigned pick_kind(const struct array *array, unsigned end, unsigned *volume)
{
    unsigned kind = 0;
    while (kind < end && !pick_volume(array, (enum job_kind_id)kind, volume))
        kind++;
    return kind;
}

/* Rows; half of the volume's contexts are left to others. */
static unsigned window_of(const struct array *array, unsigned volume)
{
    uint64_t rows = JOB_WINDOW_BYTES / job_row_bytes(array, volume);
    unsigned contexts = volume_contexts(array->volumes[volume].volume) / 2;
    return (unsigned)MAX((uint64_t)1, MIN(rows, (uint64_t)MIN(contexts, (unsigned)JOB_WINDOW_MAX)));
}

/* The pace outlives jobs, for what it knows of the initiators; disks may come and go. */
static void pace_disks(struct array *array)
{
    bool rotational = false;
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (member_writable(&array->members[slot]))
            rotational |= array->members[slot].dev->info.rotational;
    if (array->jobs.pace.mib_ns == 0 || array->jobs.pace.rotational != rotational)
        pace_init(&array->jobs.pace, rotational);
}

static void job_start(struct array *array, enum job_kind_id kind, unsigned volume)
{
    struct array_jobs *jobs = &array->jobs;
    sm_move(&jobs->state, JOBS_RUNNING);
    jobs->kind = kind;
    jobs->volume = volume;
    jobs->next_row = job_of(array, volume, kind)->position;
    jobs->end_row = jobs->failed_row = volume_rows(array->volumes[volume].volume);
    jobs->todo_rows = kinds[kind]->rows_left(array, volume);
    jobs->done_rows = rows_behind(array, kind, volume);
    jobs->window = window_of(array, volume);
    jobs->bad_rows = jobs->changed_rows = 0;
    jobs->started_ns = loop_now_ns(array->loop);
    pace_disks(array);
    for (unsigned i = 0; i < 2; i++) {
        jobs->mark_ns[i] = jobs->started_ns;
        jobs->mark_rows[i] = jobs->done_rows;
    }
    log_notice("array %s: %s of volume %s begins: %llu of %llu rows", array->description.name, kinds[kind]->name,
               volume_name(array, volume), (unsigned long long)jobs->todo_rows, (unsigned long long)jobs->end_row);
    pump(array);
}

/* A disk that joined has no region map yet, and what was never written when it joined may be written now. */
static bool maps_copying(const struct array *array)
{
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].map != NULL && map_store_copying(array->volumes[i].map))
            return true;
    return false;
}

static bool prepare_kinds(struct array *array)
{
    for (unsigned kind = 0; kind < JOB_KINDS; kind++) {
        if (kinds[kind]->prepare == NULL || !kinds[kind]->prepare(array))
            continue;
        sm_move(&array->jobs.state, JOBS_SAVING);
        return true;
    }
    return false;
}

static void drained(struct array *array)
{
    struct array_jobs *jobs = &array->jobs;
    if (jobs->in_flight > 0)
        return;
    job_of(array, jobs->volume, jobs->kind)->position = MIN(jobs->next_row, jobs->failed_row);
    if (kind_now(array)->idle != NULL)
        kind_now(array)->idle(array, jobs->volume);
    sm_move(&jobs->state, JOBS_IDLE);
    activity_rest(array);
    jobs_kick(array);
    array_step(array);
}

static void drain(struct array *array)
{
    struct array_jobs *jobs = &array->jobs;
    timer_stop(array->loop, &jobs->look);
    sm_move(&jobs->state, JOBS_DRAINING);
    drained(array);
}

/* Something heavier goes first, or there is nothing left to work for. */
static bool must_yield(const struct array *array)
{
    const struct array_jobs *jobs = &array->jobs;
    unsigned volume;
    return jobs->stopping || array->frozen || !job_can_run(array, jobs->kind, jobs->volume) ||
           pick_kind(array, jobs->kind, &volume) < (unsigned)jobs->kind;
}

void jobs_kick(struct array *array)
{
    struct array_jobs *jobs = &array->jobs;
    unsigned volume = 0;
    if (sm_state(&jobs->state) == JOBS_RUNNING && must_yield(array)) {
        drain(array);
        return;
    }
    if (sm_state(&jobs->state) != JOBS_IDLE || jobs->stopping || array->frozen || maps_copying(array) ||
        sm_state(&array->state) != ARRAY_RUNNING || array->resize != NULL || prepare_kinds(array))
        return;
    unsigned kind = pick_kind(array, JOB_KINDS, &volume);
    if (kind < JOB_KINDS)
        job_start(array, (enum job_kind_id)kind, volume);
}

void jobs_saved(struct array *array)
{
    sm_move(&array->jobs.state, JOBS_IDLE);
    jobs_kick(array); /* what had to wait for this */
    array_step(array);
}

/* --- rows --- */

/* The row needs more members than there are, or has more bad blocks than can be recorded: not again as things are. */
static void job_block(struct array *array, enum blk_status status)
{
    struct array_jobs *jobs = &array->jobs;
    struct job *job = job_of(array, jobs->volume, jobs->kind);
    if (!array->frozen && !job->blocked)
        log_error("array %s: %s of volume %s stopped before row %llu (%s): %s", array->description.name,
                  kind_now(array)->name, volume_name(array, jobs->volume), (unsigned long long)jobs->failed_row,
                  blk_status_name(status),
                  status == BLK_NOSPACE ? "more blocks are bad than can be recorded: replace the disk that has most of "
                                          "them, or move the data elsewhere"
                                        : "bring missing disks online");
    job->blocked = true;
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
    row->busy = false;
    if (--row->unit->rows == 0) {
        jobs->units_in_flight--;
        pace_over(&jobs->pace, loop_now_ns(array->loop), &row->unit->size);
    }
    jobs->done_rows += good;
    jobs->bad_rows += work->status == BLK_MEDIA;
    jobs->changed_rows += work->changed;
    mark_speed(array);
    if (!good)
        jobs->failed_row = MIN(jobs->failed_row, work->row);
    else if (kind_now(array)->row_done != NULL)
        kind_now(array)->row_done(array, jobs->volume, work);
    bool outdated = row->changes != jobs->changes && work->status != BLK_NOSPACE; /* members changed under it */
    if (!good && !outdated)
        job_block(array, work->status);
    if (sm_state(&jobs->state) == JOBS_DRAINING)
        drained(array);
    else if (!good)
        drain(array); /* and decide anew */
    else
        pump(array);
}

static void row_issue(struct array *array, struct job_unit *unit)
{
    struct array_jobs *jobs = &array->jobs;
    struct job_row *row = jobs->rows;
    while (row->busy)
        row++;
    ASSERT(row < jobs->rows + JOB_WINDOW_MAX);
    *row = (struct job_row){.busy = true, .array = array, .unit = unit, .changes = jobs->changes};
    row->work = (struct row_job){.work = kind_now(array)->work, .row = jobs->next_row++, .done = row_done};
    if (kind_now(array)->row_begin != NULL)
        kind_now(array)->row_begin(array, jobs->volume, &row->work);
    jobs->in_flight++;
    unit->rows++;
    if (kind_now(array)->row_start != NULL)
        kind_now(array)->row_start(array, jobs->volume, &row->work);
    else
        volume_row_job(array->volumes[jobs->volume].volume, &row->work);
}

/* All rows are done. */
static void job_end(struct array *array)
{
    struct array_jobs *jobs = &array->jobs;
    sm_move(&jobs->state, JOBS_IDLE);
    job_of(array, jobs->volume, jobs->kind)->position = jobs->end_row;
    log_notice("array %s: %s of volume %s finished after %llu s, %llu rows, %llu changed, %llu unreadable",
               array->description.name, kind_now(array)->name, volume_name(array, jobs->volume),
               (unsigned long long)((loop_now_ns(array->loop) - jobs->started_ns) / 1000000000),
               (unsigned long long)jobs->done_rows, (unsigned long long)jobs->changed_rows,
               (unsigned long long)jobs->bad_rows);
    if (kind_now(array)->idle != NULL)
        kind_now(array)->idle(array, jobs->volume);
    if (kind_now(array)->end != NULL)
        kind_now(array)->end(array, jobs->volume);
    jobs_kick(array);
    array_step(array);
}

/* --- units --- */

static bool limits_equal(const struct pace_limits *a, const struct pace_limits *b)
{
    return a->priority == b->priority && a->min_rate == b->min_rate && a->max_rate == b->max_rate;
}

/* By initiators: what a relayout asks of its sides does not come through the front. */
static bool volume_is_busy(const struct array_volume *v)
{
    return v->published && v->front != NULL && front_dev(v->front)->in_flight > 0;
}

static void pace_now(struct array *array)
{
    struct array_jobs *jobs = &array->jobs;
    struct array_rate rate = array_rate(array, jobs->volume);
    bool busy = false;
    struct pace_limits limits = {rate.priority, rate.min_rate, rate.max_rate};
    if (!limits_equal(&limits, &jobs->limits))
        pace_forgive(&jobs->pace, loop_now_ns(array->loop));
    jobs->limits = limits;
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        busy = busy || volume_is_busy(&array->volumes[i]);
    pace_look(&jobs->pace, &jobs->limits, loop_now_ns(array->loop), &array->latency, busy, jobs->units_in_flight);
}

/* Rows of the next unit. */
static unsigned unit_rows(const struct array *array)
{
    const struct array_jobs *jobs = &array->jobs;
    uint64_t rows = MAX(1u, jobs->window / JOB_UNITS_DEEP), chunk = array->volumes[jobs->volume].layout.spec.chunk;
    if (pace_is_shared(&jobs->pace, &jobs->limits) && !jobs->pace.rotational)
        rows = MIN(rows, MAX((uint64_t)1, JOB_SMALL_STROKE / chunk));
    return (unsigned)rows;
}

/* The next row that the job is for. */
static bool row_find(struct array *array)
{
    struct array_jobs *jobs = &array->jobs;
    jobs->next_row = kind_now(array)->row_next(array, jobs->volume, jobs->next_row);
    return jobs->next_row < jobs->end_row;
}

static struct job_unit *unit_free(struct array_jobs *jobs)
{
    struct job_unit *unit = jobs->units;
    while (unit < jobs->units + JOB_UNITS_MAX && unit->rows > 0)
        unit++;
    return unit < jobs->units + JOB_UNITS_MAX ? unit : NULL;
}

static void unit_issue(struct array *array, struct job_unit *unit, unsigned rows)
{
    struct array_jobs *jobs = &array->jobs;
    jobs->units_in_flight++;
    while (unit->rows < rows && row_find(array))
        row_issue(array, unit);
    unit->size.bytes = unit->rows * job_row_bytes(array, jobs->volume);
    unit->size.stroke = unit->rows * array->volumes[jobs->volume].layout.spec.chunk;
    pace_begins(&jobs->pace, &jobs->limits, loop_now_ns(array->loop), &unit->size);
}

/* Look again when the next unit is due; at others' latencies, sooner. */
static void look_later(struct array *array, uint64_t due_ns)
{
    struct array_jobs *jobs = &array->jobs;
    uint64_t now = loop_now_ns(array->loop), wait = due_ns > now ? due_ns - now : 0;
    if (wait > 0 || jobs->pace.phase != PACE_IDLE)
        timer_start(array->loop, &jobs->look, wait > 0 ? MIN(wait, JOB_LOOK_NS) : JOB_LOOK_NS);
}

static void pump(struct array *array)
{
    struct array_jobs *jobs = &array->jobs;
    if (sm_state(&jobs->state) != JOBS_RUNNING)
        return;
    if (jobs->stopping || array->frozen) {
        drain(array);
        return;
    }
    pace_now(array);
    unsigned rows = unit_rows(array);
    struct job_unit *unit = NULL;
    while (row_find(array) && jobs->in_flight + rows <= jobs->window && (unit = unit_free(jobs)) != NULL &&
           pace_next_ns(&jobs->pace, &jobs->limits) <= loop_now_ns(array->loop))
        unit_issue(array, unit, rows);
    if (jobs->next_row == jobs->end_row && jobs->in_flight == 0)
        job_end(array);
    else
        look_later(array, pace_next_ns(&jobs->pace, &jobs->limits));
}

void jobs_look(struct array *array)
{
    pump(array);
}

static void look_fire(struct timer *timer)
{
    pump(container_of(timer, struct array, jobs.look));
}

/* --- from outside --- */

void jobs_init(struct array *array)
{
    sm_init(&array->jobs.state, jobs_states, ARRAY_LENGTH(jobs_states), JOBS_IDLE);
    array->jobs.look.fire = look_fire;
}

void jobs_members_changed(struct array *array)
{
    array->jobs.changes++;
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        for (unsigned kind = 0; kind < JOB_KINDS; kind++)
            array->volumes[i].jobs[kind].blocked = false;
    jobs_kick(array);
}

void array_hold_jobs(struct array *array, const char *why)
{
    ASSERT(loop_is_current(array->loop));
    array->jobs.held = why;
    jobs_kick(array);
}

void jobs_stop(struct array *array)
{
    array->jobs.stopping = true;
    timer_stop(array->loop, &array->jobs.look);
    pump(array);
}

bool jobs_stopped(const struct array *array)
{
    return sm_state(&array->jobs.state) == JOBS_IDLE;
}

/* --- telling --- */

/* Why a job that is wanted does not run. */
static const char *waits_for(const struct array *array, enum job_kind_id kind, unsigned volume)
{
    const struct array_volume *v = &array->volumes[volume];
    if (array->description.volumes[volume].paused)
        return "paused";
    if (array->jobs.held != NULL)
        return array->jobs.held;
    if (array->resize != NULL)
        return "another size";
    if (volume_failed(v->volume))
        return "missing disks";
    return v->jobs[kind].blocked ? "a change of disks" : "its turn";
}

static uint64_t shown_bytes(const struct array *array, enum job_kind_id kind, unsigned volume, uint64_t rows)
{
    unsigned members = array->volumes[volume].layout.spec.members;
    return rows * job_row_bytes(array, volume) / (kinds[kind]->one_disk ? members : 1);
}

static void info_fill(const struct array *array, struct array_job_info *info, enum job_kind_id kind, unsigned volume)
{
    *info = (struct array_job_info){
        .position = array->volumes[volume].jobs[kind].position,
        .rows = array->volumes[volume].layout.rows,
        .paused = array->description.volumes[volume].paused,
        .rate = array_rate(array, volume),
        .done_bytes = shown_bytes(array, kind, volume, rows_behind(array, kind, volume)),
        .total_bytes = shown_bytes(array, kind, volume, kinds[kind]->rows_left(array, volume)),
    };
    text_format(info->kind, sizeof info->kind, "%s", kinds[kind]->name);
    text_format(info->volume, sizeof info->volume, "%s", volume_name(array, volume));
    text_format(info->waits_for, sizeof info->waits_for, "%s", waits_for(array, kind, volume));
}

/* The one that runs: with its position, speed, and time left. */
static void info_fill_running(const struct array *array, struct array_job_info *info)
{
    const struct array_jobs *jobs = &array->jobs;
    info_fill(array, info, jobs->kind, jobs->volume);
    if (!info->paused) /* it may be about to end */
        info->waits_for[0] = '\0';
    info->position = MIN(jobs->next_row, jobs->end_row);
    info->done_bytes = shown_bytes(array, jobs->kind, jobs->volume, jobs->done_rows);
    info->total_bytes = shown_bytes(array, jobs->kind, jobs->volume, MAX(jobs->todo_rows, jobs->done_rows));
    uint64_t ms = (loop_now_ns(array->loop) - jobs->mark_ns[0]) / 1000000;
    if (ms == 0 || jobs->done_rows == jobs->mark_rows[0])
        return;
    uint64_t bytes = shown_bytes(array, jobs->kind, jobs->volume, jobs->done_rows - jobs->mark_rows[0]);
    info->bytes_per_second = MAX(bytes * 1000 / ms, 1ull);
    info->seconds_left = (info->total_bytes - info->done_bytes) / info->bytes_per_second;
}

unsigned jobs_info(const struct array *array, struct array_job_info *info, unsigned max)
{
    const struct array_jobs *jobs = &array->jobs;
    enum jobs_state state = sm_state(&jobs->state);
    bool running = state == JOBS_RUNNING || state == JOBS_DRAINING;
    unsigned count = 0;
    if (running && count < max)
        info_fill_running(array, &info[count++]);
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        for (unsigned kind = 0; kind < JOB_KINDS && count < max; kind++)
            if (job_wanted(array, (enum job_kind_id)kind, i) &&
                !(running && jobs->volume == i && (unsigned)jobs->kind == kind))
                info_fill(array, &info[count++], (enum job_kind_id)kind, i);
    return count;
}
