/*
 * Scrub: everything that was ever written is read and compared with its redundancy, before a disk that fails shows what
 * is wrong with the others. raid/row_scrub.c judges the rows; this is when they are looked at, and what is remembered.
 *
 *   check    by hand: differences are told
 *   repair   by hand: what is located is rewritten, and of the rest the redundancy
 *   patrol   a check by the calendar, when the last one of the volume is older than its interval, and so is the last
 *            patrol that was called off; goes behind all else
 *
 * A volume has one scrub at a time. What runs, how far it came and what it found so far stand in the description, and so
 * does the result of the last one that was finished: a restart goes on within a minute of where it was. Findings, with
 * places and disks, are kept in memory, the first SCRUB_FINDINGS of them; they are those of the scrub that runs, or of
 * the last one.
 */
#include <errno.h>
#include <string.h>

#include "core/log.h"
#include "raid/array_impl.h"

#define SAVE_NS 60000000000ull  /* between positions that are brought to disk */
#define LOOK_NS 600000000000ull /* between looks at the calendar */

static struct sb_scrub *scrub_of(struct array *array, unsigned volume)
{
    return &array->description.volumes[volume].scrub;
}

static enum job_kind_id kind_of(enum sb_scrub_mode mode)
{
    return mode == SB_SCRUB_PATROL ? JOB_PATROL : JOB_SCRUB;
}

/* --- the kinds --- */

static bool scrub_wanted(const struct array *array, unsigned volume)
{
    enum sb_scrub_mode mode = array->description.volumes[volume].scrub.mode;
    return mode == SB_SCRUB_CHECK || mode == SB_SCRUB_REPAIR;
}

static bool patrol_wanted(const struct array *array, unsigned volume)
{
    return array->description.volumes[volume].scrub.mode == SB_SCRUB_PATROL;
}

static uint64_t rows_left(const struct array *array, unsigned volume)
{
    return region_count(job_map(array, volume), REGION_WRITTEN);
}

static uint64_t row_next(const struct array *array, unsigned volume, uint64_t from)
{
    const struct region_map *map = job_map(array, volume);
    return region_find(map, REGION_WRITTEN, from, map->regions);
}

static void row_begin(const struct array *array, unsigned volume, struct row_job *work)
{
    work->repair = array->description.volumes[volume].scrub.mode == SB_SCRUB_REPAIR;
}

static void log_finding(const struct array *array, unsigned volume, const struct row_finding *f)
{
    static const char *const found[] = {
        [ROW_FOUND_CHUNK] = "wrong bytes",
        [ROW_FOUND_PROBABLE] = "probably wrong bytes, too few to be sure",
        [ROW_FOUND_UNKNOWN] = "data and redundancy differ, and it cannot be told which is wrong",
        [ROW_FOUND_UNREADABLE] = "unreadable",
    };
    static const char *const remedy[] = {
        [ROW_LEFT] = "left as it is",
        [ROW_CHUNK_REWRITTEN] = "rewritten from the other disks",
        [ROW_REDUNDANCY_REWRITTEN] = "redundancy rewritten, the data may be wrong",
    };
    const char *name = array->description.volumes[volume].name;
    unsigned long long first = f->off, last = f->off + f->len - 1;
    if (f->found == ROW_FOUND_UNKNOWN)
        log_warn("array %s: volume %s, bytes %llu to %llu: %s: %s", array->description.name, name, first, last,
                 found[f->found], remedy[f->remedy]);
    else
        log_warn("array %s: volume %s, bytes %llu to %llu: %s on disk %s (slot %u) at %llu, %llu bytes: %s",
                 array->description.name, name, first, last, found[f->found], array_disk_name(array, f->slot), f->slot,
                 (unsigned long long)f->device_off, (unsigned long long)f->device_len, remedy[f->remedy]);
}

/* A disk full of garbage fills neither the memory nor the log. */
static void keep_findings(struct array *array, unsigned volume, const struct row_report *report)
{
    struct array_scrub *memory = &array->volumes[volume].scrub;
    for (unsigned i = 0; i < report->findings_count; i++) {
        if (memory->count == SCRUB_FINDINGS && memory->dropped++ == 0)
            log_warn("array %s: volume %s: more is found than is told one by one", array->description.name,
                     array->description.volumes[volume].name);
        if (memory->count == SCRUB_FINDINGS)
            continue;
        log_finding(array, volume, &report->findings[i]);
        memory->findings[memory->count++] = report->findings[i];
    }
}

/* Rows below it are done: those in flight may be done in any order. */
static uint64_t position(const struct array *array, uint64_t next)
{
    const struct array_jobs *jobs = &array->jobs;
    for (unsigned i = 0; i < JOB_WINDOW_MAX; i++)
        if (jobs->rows[i].busy)
            next = MIN(next, jobs->rows[i].work.row);
    return next;
}

/* Not often: a generation takes a moment of all disks. */
static void save_now_and_then(struct array *array, unsigned volume)
{
    struct array_scrub *memory = &array->volumes[volume].scrub;
    uint64_t now = loop_now_ns(array->loop);
    if (now - memory->saved_ns < SAVE_NS || array->frozen)
        return;
    memory->saved_ns = now;
    scrub_of(array, volume)->row = position(array, MIN(array->jobs.next_row, array->jobs.failed_row));
    array_commit(array, NULL);
}

static void row_done(struct array *array, unsigned volume, const struct row_job *work)
{
    struct sb_scrub *scrub = scrub_of(array, volume);
    struct array_scrub *memory = &array->volumes[volume].scrub;
    const struct row_report *report = &work->report;
    if (scrub->mode == SB_SCRUB_NONE ||
        kind_of(scrub->mode) != array->jobs.kind) /* called off meanwhile, or replaced */
        return;
    memory->rows++;
    memory->corrected += report->corrected;
    scrub->now.mismatched += report->mismatched;
    scrub->now.repaired += report->repaired;
    scrub->now.rewritten += report->rewritten;
    scrub->now.unreadable += report->unreadable;
    if (report->resynced)
        map_store_stir(array->volumes[volume].map);
    keep_findings(array, volume, report);
    save_now_and_then(array, volume);
}

static void end(struct array *array, unsigned volume)
{
    struct sb_scrub *scrub = scrub_of(array, volume);
    job_of(array, volume, kind_of(scrub->mode))->position = 0;
    if (scrub->mode == SB_SCRUB_NONE)
        return;
    log_notice("array %s: scrub of volume %s: %llu blocks of 512 bytes differ from their redundancy, %llu of them put "
               "right, of %llu the redundancy rewritten; %llu unreadable",
               array->description.name, array->description.volumes[volume].name,
               (unsigned long long)scrub->now.mismatched, (unsigned long long)scrub->now.repaired,
               (unsigned long long)scrub->now.rewritten, (unsigned long long)scrub->now.unreadable);
    *scrub = (struct sb_scrub){.mode = SB_SCRUB_NONE,
                               .finished_s = loop_wall_clock_s(array->loop),
                               .last_mode = scrub->mode,
                               .last = scrub->now};
    array_commit(array, NULL);
}

const struct job_kind scrub_kind = {
    .name = "scrub",
    .work = ROW_SCRUB,
    .all_rows = true,
    .wanted = scrub_wanted,
    .rows_left = rows_left,
    .row_next = row_next,
    .row_begin = row_begin,
    .row_done = row_done,
    .end = end,
};

const struct job_kind patrol_kind = {
    .name = "patrol",
    .work = ROW_SCRUB,
    .all_rows = true,
    .wanted = patrol_wanted,
    .rows_left = rows_left,
    .row_next = row_next,
    .row_begin = row_begin,
    .row_done = row_done,
    .end = end,
};

/* --- when --- */

static void begin(struct array *array, unsigned volume, enum sb_scrub_mode mode)
{
    struct sb_scrub *scrub = scrub_of(array, volume);
    struct array_scrub *memory = &array->volumes[volume].scrub;
    scrub->mode = mode;
    scrub->row = 0;
    scrub->now = (struct sb_scrub_result){0};
    *memory = (struct array_scrub){.interval_s = memory->interval_s, .saved_ns = loop_now_ns(array->loop)};
    job_of(array, volume, JOB_SCRUB)->position = job_of(array, volume, JOB_PATROL)->position = 0;
}

static bool is_due(struct array *array, unsigned volume)
{
    const struct sb_scrub *scrub = scrub_of(array, volume);
    uint64_t interval = array->volumes[volume].scrub.interval_s, now = loop_wall_clock_s(array->loop);
    uint64_t last = MAX(MAX(scrub->finished_s, scrub->called_off_s), array->description.created_s);
    return interval > 0 && scrub->mode == SB_SCRUB_NONE && array->volumes[volume].published &&
           array_is_redundant(array, volume) && now >= last && now - last >= interval;
}

static void look(struct timer *timer)
{
    struct array *array = container_of(timer, struct array, scrub_timer);
    bool some = false, intervals = false;
    if (array_refusal(array) != NULL)
        return;
    for (unsigned i = 0; i < array->description.volumes_count; i++) {
        intervals |= array->volumes[i].scrub.interval_s > 0;
        if (!is_due(array, i))
            continue;
        begin(array, i, SB_SCRUB_PATROL);
        some = true;
    }
    if (intervals)
        timer_start(array->loop, &array->scrub_timer, LOOK_NS);
    if (!some)
        return;
    array_commit(array, NULL);
    jobs_kick(array);
}

void scrub_init(struct array *array)
{
    array->scrub_timer.fire = look;
}

void scrub_stop(struct array *array)
{
    timer_stop(array->loop, &array->scrub_timer);
}

void scrub_opened(struct array *array)
{
    for (unsigned i = 0; i < array->description.volumes_count; i++) {
        const struct sb_scrub *scrub = scrub_of(array, i);
        if (scrub->mode != SB_SCRUB_NONE)
            job_of(array, i, kind_of(scrub->mode))->position = scrub->row;
    }
}

void scrub_save(struct array *array)
{
    for (unsigned i = 0; i < array->description.volumes_count; i++) {
        struct sb_scrub *scrub = scrub_of(array, i);
        if (scrub->mode != SB_SCRUB_NONE)
            scrub->row = job_of(array, i, kind_of(scrub->mode))->position;
    }
}

void array_scrub_interval(struct array *array, unsigned volume, uint64_t seconds)
{
    ASSERT(volume < array->description.volumes_count);
    array->volumes[volume].scrub.interval_s = seconds;
    if (seconds > 0 && !array->scrub_timer.armed && array_refusal(array) == NULL)
        timer_start(array->loop, &array->scrub_timer, LOOK_NS);
}

/* --- by hand --- */

/* By hand; or one that was called off has rows in flight still, and is not to be mistaken for another. */
static bool is_busy(const struct array *array, unsigned volume)
{
    const struct array_jobs *jobs = &array->jobs;
    return scrub_wanted(array, volume) || (!jobs_stopped(array) && jobs->kind == JOB_SCRUB && jobs->volume == volume);
}

static bool refused(struct array *array, const char *name, enum sb_scrub_mode mode, unsigned *volume,
                    struct array_call *call)
{
    const char *refusal = array_refusal(array), *a = array->description.name;
    unsigned i = *volume = array_volume_index(array, name);
    if (refusal != NULL)
        ARRAY_CALL_END(array, call, -EBUSY, "array %s %s: nothing is scrubbed", a, refusal);
    else if (i == array->description.volumes_count)
        ARRAY_CALL_END(array, call, -ENOENT, "array %s has no volume %s", a, name);
    else if (!array_is_redundant(array, i))
        ARRAY_CALL_END(array, call, -EINVAL,
                       "volume %s of array %s has no redundancy: there is nothing to compare its data with", name, a);
    else if (mode != SB_SCRUB_NONE && is_busy(array, i))
        ARRAY_CALL_END(array, call, -EBUSY, "volume %s of array %s is being scrubbed already: call that off first",
                       name, a);
    else if (mode == SB_SCRUB_NONE && scrub_of(array, i)->mode == SB_SCRUB_NONE)
        ARRAY_CALL_END(array, call, -EINVAL, "volume %s of array %s is not being scrubbed", name, a);
    else
        return false;
    return true;
}

void array_scrub(struct array *array, const char *name, enum sb_scrub_mode mode, struct array_call *call)
{
    unsigned volume;
    array->calls++;
    if (refused(array, name, mode, &volume, call))
        return;
    if (mode == SB_SCRUB_NONE) {
        struct sb_scrub *scrub = scrub_of(array, volume);
        log_notice("array %s: scrub of volume %s called off", array->description.name, name);
        if (scrub->mode == SB_SCRUB_PATROL)
            scrub->called_off_s = loop_wall_clock_s(array->loop);
        scrub->mode = SB_SCRUB_NONE;
    } else {
        begin(array, volume, mode);
    }
    array_commit(array, NULL);
    jobs_kick(array);
    array_call_over(array, call, 0);
}

void array_scrub_info(const struct array *array, unsigned volume, struct array_scrub_info *info)
{
    const struct array_scrub *memory = &array->volumes[volume].scrub;
    *info = (struct array_scrub_info){.scrub = array->description.volumes[volume].scrub,
                                      .interval_s = memory->interval_s,
                                      .rows = memory->rows,
                                      .corrected = memory->corrected,
                                      .findings_count = memory->count,
                                      .findings_dropped = memory->dropped};
    memcpy(info->findings, memory->findings, sizeof info->findings);
}
