/*
 * Jobs: making redundancy right, row by row, behind everybody's back. This is what the scheduler (jobs.c) and the kinds
 * of jobs agree on; part of the inside of an array (raid/array_impl.h).
 *
 * A job is a kind and a volume. Nobody queues jobs: each kind says of each volume whether it has work there (`wanted`),
 * because of what the members' states and the region maps say (rebuild, resync) or because somebody asked for it
 * (job->asked). The scheduler looks at that anew whenever something changed, and runs one job at a time in an array,
 * since all its volumes share the disks: the heaviest kind first, in the order of enum job_kind_id.
 *
 *               heaviest job wanted       all rows done
 *      IDLE ------------------> RUNNING ---------------> IDLE ---> SAVING ---> IDLE
 *        ^                         |                       a kind brings something to disk that concerns all volumes
 *        +-------- DRAINING <------+  stopped, a heavier one goes first, not wanted any more, or a row cannot be done:
 *                  rows in flight end
 *
 * Rows are done in order, in units of some that lie together, a few units at a time; when the next one begins is the
 * pace's decision (raid/job_pace.h). job->position is where a job that was interrupted goes on: all rows below it are
 * done.
 *
 * To add a kind: a file with its struct job_kind, a word in enum job_kind_id, and a line in jobs.c's table.
 */
#ifndef RAID_JOBS_H
#define RAID_JOBS_H

#include "core/sm.h"
#include "raid/job_pace.h"
#include "raid/volume.h"

struct array;
struct array_job_info;

/* Heaviest first. */
enum job_kind_id { JOB_REBUILD, JOB_RESYNC, JOB_RELAYOUT, JOB_REPLACE, JOB_INIT, JOB_SCRUB, JOB_PATROL };
enum { JOB_KINDS = 7, JOB_WINDOW_MAX = 128, JOB_UNITS_MAX = 32 };

struct job_kind {
    const char *name;
    enum row_work work; /* what is done to each row */
    bool any_volume;    /* has work on volumes without redundancy as well */
    bool one_disk;      /* is for one disk: people count its bytes, not whole rows */
    bool all_rows;      /* rows_left() counts the rows below the position as well */
    /* Is there work of this kind on the volume, whether it can be done now or not? */
    bool (*wanted)(const struct array *, unsigned volume);
    /* Rows that the job would do if it began now: for people. */
    uint64_t (*rows_left)(const struct array *, unsigned volume);
    /* The first of them at or behind `from`; layout rows: none. */
    uint64_t (*row_next)(const struct array *, unsigned volume, uint64_t from);

    /* The rest may be NULL. */
    /* Is volume `a` to be done before volume `b`? NULL: as they come. */
    bool (*before)(const struct array *, unsigned a, unsigned b);
    /*
     * Nothing runs: begin or end what concerns all volumes. True: it is being brought to disk, and jobs_saved() is
     * called when that is over.
     */
    bool (*prepare)(struct array *);
    /* What else is to be known of a row's work before it begins. */
    void (*row_begin)(const struct array *, unsigned volume, struct row_job *);
    /* Do the work; NULL: volume_row_job(). */
    void (*row_start)(struct array *, unsigned volume, struct row_job *);
    /* A row is done, as far as it can be (BLK_OK or BLK_MEDIA). */
    void (*row_done)(struct array *, unsigned volume, const struct row_job *);
    /* No row is under way any more: the job is over, or stops here for a while. job->position may be set. */
    void (*idle)(struct array *, unsigned volume);
    /* All rows are done. job->position is the end; a kind that may be wanted again sets it back. */
    void (*end)(struct array *, unsigned volume);
};

extern const struct job_kind rebuild_kind, resync_kind, relayout_kind, replace_kind, init_kind, scrub_kind, patrol_kind;

/* One kind on one volume: array->volumes[volume].jobs[kind]. */
struct job {
    bool asked;        /* by hand: for kinds that do not arise by themselves */
    bool blocked;      /* a row could not be done: not again until a member's state changes */
    uint64_t position; /* rows below it are done */
};

/* Rows that were issued together, so that what they ask of a member becomes one request. */
struct job_unit {
    unsigned rows; /* not done yet; 0: free to be used */
    struct pace_unit size;
};

struct job_row {
    struct row_job work;
    struct array *array;
    struct job_unit *unit;
    unsigned changes; /* of jobs, when it was issued */
    bool busy;
};

enum jobs_state { JOBS_IDLE, JOBS_RUNNING, JOBS_DRAINING, JOBS_SAVING };

struct array_jobs {
    struct sm state; /* enum jobs_state */
    bool stopping;
    const char *held; /* by the user: why; NULL: they may run */
    /* The job that runs. */
    enum job_kind_id kind;
    unsigned volume;
    uint64_t next_row, end_row; /* looked at below next */
    uint64_t failed_row;        /* the lowest that is not done though it was issued; end_row: none */
    uint64_t todo_rows, done_rows;
    unsigned in_flight, window; /* rows */
    struct job_row rows[JOB_WINDOW_MAX];
    struct job_unit units[JOB_UNITS_MAX];
    unsigned units_in_flight;
    uint64_t bad_rows, changed_rows;
    uint64_t started_ns;
    uint64_t mark_ns[2], mark_rows[2]; /* for the speed: the older one is 5 to 10 s old */
    unsigned changes;                  /* of members' states, so far */
    struct pace pace;
    struct pace_limits limits; /* of the volume */
    struct timer look;         /* for the next unit, or at the pace */
};

/* --- for the array --- */
void jobs_init(struct array *array);
/* Something may be wanted that was not, or the other way round. */
void jobs_kick(struct array *array);
/* The pace of the job that runs may be another. */
void jobs_look(struct array *array);
void jobs_members_changed(struct array *array);
void jobs_stop(struct array *array);
bool jobs_stopped(const struct array *array);
/* What work there is on the volume, whether it can be done now or not: its name; NULL: none. */
const char *jobs_wanted(const struct array *array, unsigned volume);
unsigned jobs_info(const struct array *array, struct array_job_info *info, unsigned max);

/* --- for kinds --- */
/* What prepare() began is over. */
void jobs_saved(struct array *array);
struct job *job_of(struct array *array, unsigned volume, enum job_kind_id kind);
/* Bytes of the members that one row covers. */
uint64_t job_row_bytes(const struct array *array, unsigned volume);
const struct region_map *job_map(const struct array *array, unsigned volume);

/* --- scrub.c, for the array --- */
void scrub_init(struct array *array);
/* The array runs: what was under way goes on. */
void scrub_opened(struct array *array);
/* Positions into the description, before its last generation. */
void scrub_save(struct array *array);
/* Nothing begins by the calendar any more. */
void scrub_stop(struct array *array);

#endif
