/*
 * A relayout under way, inside of an array: the steps (relayout_job.c), the rows on their way (relayout_move.c), the
 * log
 * (relayout_log.c), the beginning and the end (relayout_start.c, relayout_end.c).
 *
 *              a row may be moved                      nothing is under way where it will be read and written
 *   RESTING ------------------> DRAINING -----------------------------------------+----------------------+
 *      ^                            | nothing was written here                    | free                 | logged
 *      |                            |                                             v                      v
 *      |                            |                                          COPYING                LOGGING
 *      |                            v                 rows are in their places    |                      | rows are
 *      in the log
 *      +---- COMMITTING <------ FLUSHING <----------------------------------------+                  LOG_FLUSHING
 *        the position is on disk                                                  |                  LOG_COMMITTING
 *                                                                                 |  the log counts  LOG_DRAINING
 *                                                                                 +---------------- REPLAYING
 *
 * The job (raid/jobs.h) runs on the old side, and its rows are the old side's, in the order in which they are
 * passed. A row that the
 * job issues is leave to move the bytes up to its end: so the pace is the scheduler's. It is over when its bytes
 * were moved; the last
 * one of a step when the position is on disk.
 *
 * J1  The window, from the position to the end of the step, lies before the initiators from DRAINING on: nobody writes
 *     there until the step is over. While rows are read nobody need wait who reads.
 * J2  Before a place is written, nobody is at work on what was there: on the old side, all that was passed and the
 *    window
 *     is quiet (DRAINING, LOG_DRAINING), and no row of it that was passed is anything but UNWRITTEN any more.
 * J3  A step that is free ends where it is when somebody waits for it, or the job is to stop: after the rows that were
 *     begun. A logged one is short, and goes on to its end by itself.
 * J4  The position is what is on disk. It is moved in memory when it is on all live members.
 * J5  On a frozen array nothing is moved any more, and who waits is told.
 */
#ifndef RAID_RELAYOUT_JOB_H
#define RAID_RELAYOUT_JOB_H

#include "raid/array_impl.h"
#include "raid/relayout_plan.h"

#define RELAYOUT_WINDOW  (32 * MIB) /* of each member: what a free step moves, at most about */
#define RELAYOUT_LOOK_NS 1000000ull

enum relayout_state {
    RELAYOUT_RESTING,
    RELAYOUT_DRAINING,
    RELAYOUT_COPYING,
    RELAYOUT_LOGGING,
    RELAYOUT_LOG_FLUSHING,
    RELAYOUT_LOG_COMMITTING,
    RELAYOUT_LOG_DRAINING,
    RELAYOUT_REPLAYING,
    RELAYOUT_FLUSHING,
    RELAYOUT_COMMITTING,
};

enum { RELAYOUT_MOVES = 64, RELAYOUT_PIECE = 1 << 20 };

/* A row of the new side on its way; piece by piece, if it is a long one. */
struct relayout_move {
    struct array_relayout *relayout;
    bool busy;
    uint64_t row;      /* of the new side */
    uint64_t off, end; /* bytes of the volume: the piece, and what is left with it */
    uint64_t len;      /* of the piece */
    uint64_t at;       /* of a piece that cannot be read as a whole: so much of it was, block by block */
    bool lost_some;
    uint8_t lost[RELAYOUT_PIECE / 512 / 8]; /* blocks of 512 bytes that no disk can read */
    struct page **pages;
    struct blk_req req;
    struct task task; /* it cannot begin, for this reason */
    enum blk_status status;
};

struct array_relayout {
    struct array *array;
    struct sm state;
    bool begun;        /* it is on disk that there is one */
    unsigned old, new; /* volumes */
    struct relayout shapes;
    uint64_t position; /* J4 */

    /* The step. */
    struct relayout_step step;
    uint64_t target;                /* the position at its end */
    uint64_t next;                  /* rows of it that were begun */
    bool skips;                     /* nothing is to be moved */
    struct region_change unwritten; /* then it is on disk that the new side has nothing there */
    struct task skipped;
    bool ending; /* J3: no further than `rows` of the step */
    bool failed; /* a row of it could not be moved */
    enum blk_status status;
    unsigned moving; /* rows under way */
    struct timer look;
    struct array_flush flush;
    struct commit_wait wait;
    struct task waited_for; /* somebody waits for the window */

    uint64_t allowed; /* bytes that may be passed, counted from where the relayout begins */
    unsigned tokens_count;
    struct row_job *tokens[JOB_WINDOW_MAX]; /* the job's rows, in order */

    uint64_t forgotten; /* rows of the old side that were passed and are UNWRITTEN: so many from where it begins */

    /* The log; NULL: there is none. */
    struct volume *log;
    struct region_map log_map;
    struct volume_owner log_owner;

    /* relayout_move.c */
    uint64_t piece; /* bytes */
    unsigned moves_count;
    struct page_pool *pages;
    struct relayout_move moves[RELAYOUT_MOVES];

    /* relayout_end.c */
    bool ending_all;
    struct volume *old_volume; /* to be closed */
    struct task closed, *close_over;
};

/* --- relayout_job.c --- */
/* The description has a new side, and both sides are open: the log, memory; what was passed is forgotten. 0, or -errno
 * with `why`, and nothing is changed. */
int relayout_open(struct array *array, char *why, size_t why_len);
/* It may go on: it stands on disk, and the array runs. */
void relayout_begun(struct array *array);
/* The maps were loaded: what does not count at the position is UNWRITTEN. */
void relayout_maps_loaded(struct array *array);
/* Nothing of its own is under way. */
bool relayout_still(const struct array *array);
void relayout_frozen(struct array *array);
/* Is this volume one of both sides? Those that hold something of it; SB_VOLUMES_MAX: that one holds nothing. */
bool relayout_sides(const struct array *array, unsigned volume, unsigned sides[2]);
/* It is one of them, holds nothing, and no row of it is under way. */
bool relayout_side_is_idle(const struct array *array, unsigned volume);
void relayout_recount(struct array *array); /* as volume_recount(): of the log */
void relayout_members_changed(struct array *array);
/* Its rows count in the log, or are on their way there: a disk that lacks them is not to be read. */
bool relayout_log_counts(const struct array *array);
/* Free memory; the log is closed. */
void relayout_free(struct array_relayout *r);

static inline struct sb_relayout *relayout_described(struct array_relayout *r)
{
    return &r->array->description.volumes[r->new].relayout;
}

/* Bytes that were passed at a position. */
static inline uint64_t relayout_passed(const struct array_relayout *r, uint64_t position)
{
    return r->shapes.backward ? r->shapes.size - position : position;
}

/* --- relayout_move.c --- */
bool relayout_moves_init(struct array_relayout *r); /* false: no memory */
void relayout_moves_fini(struct array_relayout *r);
/* Begin to move a row; false: there is no room, but for when another one is over. */
bool relayout_move_start(struct array_relayout *r, uint64_t row);
/* Called when it is over, with r->moving one less; a failure stands in r->failed and r->status. */
void relayout_moved(struct array_relayout *r);

/* --- relayout_log.c --- */
/* 0 or -errno with `why`. */
int relayout_log_open(struct array_relayout *r, char *why, size_t why_len);
void relayout_log_begin(struct array_relayout *r); /* a step: nothing is in the log */
void relayout_log_undo(struct array_relayout *r); /* never used, or closed */

/* --- relayout_end.c --- */
/* All was passed: the old side goes. True: that is under way. For the job's prepare(). */
bool relayout_end_begin(struct array *array);
/* Of an array that is being closed: its log. True: `over` is deferred when it is. */
bool relayout_close(struct array *array, struct task *over);

#endif
