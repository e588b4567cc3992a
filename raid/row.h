/*
 * The inside of a volume, shared by volume*.c and row*.c and nobody else.
 *
 *   volume.c          open, close, what the array asks
 *   volume_cut.c      a request is cut into runs and rows; their answers are gathered
 *   run.c             a run: bytes that lie together on one member; the fast way, without lock, plan or scratch
 *   row.c             a row: the state machine of everything else
 *   row_job.c         the jobs' way in
 *   row_lock.c        one at a time on a row
 *   row_region.c      a row and the region map
 *   row_log.c         a row and the journal
 *   row_bad.c         a row and the list of bad blocks
 *   row_plan.c        what to read and write (pure)
 *   row_band.c        windows, bands, and where their bytes are
 *   row_math.c        codec over bands
 *   row_scrub.c       data and redundancy compared: which chunk is wrong
 *   row_init.c        zeroes are written, and read back
 *   row_io.c          one member's part: splitting, zeroes for those who cannot, errors to the owner
 *   row_merge.c       what jobs ask of neighbouring rows becomes one request to the member
 *
 * The request itself carries its own account while it is ours: req->status and req->bad_off gather the worst answer,
 * req->scratch[0] counts parts not yet answered, req->scratch[1] is when it came. So a request needs no context, and one that fits a run needs one run.
 *
 * Bytes: chunks, extents and data areas begin at multiples of PAGE_BYTES, so byte x of the volume, column c of its
 * chunk and the member's byte all stand at the same offset in a page, and one page array serves all three.
 *
 * Members may replace the pages they are given for a read (core/blkdev.h, 5; raid/patience.h does): so a page is looked
 * up in its array again after each read, and an array stands for one role only.
 */
#ifndef RAID_ROW_H
#define RAID_ROW_H

#include "core/check.h"
#include "core/sm.h"
#include "raid/journal_store.h"
#include "raid/pool.h"
#include "raid/row_plan.h"
#include "raid/volume.h"

enum { ROW_BANDS = 3, ZERO_PAGES = 1025 };

/* --- row_io.c: one request to one member --- */

struct row_io {
    /* Set by the user. */
    struct volume *volume;
    struct member *member;
    enum blk_op op;
    unsigned flags;
    uint64_t off, len;   /* bytes of the member's device */
    struct page **pages; /* READ, WRITE */
    void (*done)(struct row_io *);
    bool lenient;       /* an error does not matter, and is nobody's fault */
    struct row_op *row; /* these three are the user's */
    uint8_t band, role;

    /* Result: the owner has heard of it already. */
    enum blk_status status;
    uint64_t bad_off; /* BLK_MEDIA: device offset */

    /* row_io.c's. */
    uint64_t at; /* device offset of the piece under way */
    bool retried;
    struct blk_req req;
    STAILQ_ENTRY(row_io) link; /* row_merge.c's */
};
STAILQ_HEAD(row_io_list, row_io);
void row_io_start(struct row_io *io);
/* For row_merge.c: on its own after all; or over, as part of a longer request, with its status. */
void row_io_alone(struct row_io *io);
void row_io_merged(struct row_io *io, enum blk_status status);

/* --- row_merge.c --- */

bool row_merge_init(struct volume *v); /* false: no memory */
void row_merge_fini(struct volume *v);
/* Take over a request of a job, to be submitted at the end of the turn. False: it is not of the kind. */
bool row_merge_add(struct row_io *io);

/* --- run.c --- */

struct run {
    struct pool_entry entry;
    struct row_io io;
    struct blk_req *parent;
    struct cutter *cutter;
    uint64_t off, len; /* of the volume; flush, or not in use: 0 */
    uint64_t at;       /* a read that failed: rows serve it anew, up to here so far */
    bool changing;
    enum blk_status status; /* as for a part */
    uint64_t bad_off;
    struct task task;
};

/* --- volume_cut.c: the front of the line is being cut --- */

struct cutter {
    struct volume *volume;
    struct blk_req_list line;
    uint64_t at;                 /* where the first in line is to be cut next, bytes; flush: a member's slot */
    unsigned outstanding, limit; /* parts not yet answered; limit 0: none */
    bool limited;                /* waits for outstanding to fall */
    struct pool *waiting;        /* waits for a context of this pool */
    struct run *run;             /* contexts in hand */
    struct row_op *row;
    struct task task;
};

/* --- the volume --- */

LIST_HEAD(row_bucket, row_op);

struct volume {
    struct blkdev dev;
    struct layout layout;
    struct codec codec;
    struct volume_owner *owner;
    struct member *const *members;
    unsigned first_slot;
    struct region_map *map; /* the array's; NULL without redundancy */
    struct uuid uuid;
    enum sb_consistency consistency;
    bool unmarked; /* a CLEAN row was written and stays so: see volume_unmarked() */
    const struct bad_list *bad;
    unsigned unmaps; /* rows on their way to UNWRITTEN: what memory says may not be durable yet */
    uint64_t start;
    bool failed, degraded; /* as of volume_recount() */
    /* Without redundancy: changes that no flush covers yet; and a member was lost with some, which a flush is to say. */
    bool unflushed, forgot;
    unsigned announced; /* enum health in volume.c: what the watchers know */

    struct pool runs, rows;
    struct run *run_memory;
    void *row_memory;
    struct page_pool *scratch;
    struct page *zero_pages[ZERO_PAGES]; /* the same page over and over */
    uint64_t cannot_zero;                /* array slots whose device answered BLK_INVALID to write-zeroes */

    uint64_t window, window_full;     /* bytes a chunk handled at once; the latter for rows written in full */
    uint32_t op_pages;                /* scratch pages one row takes at most */
    uint64_t run_max;                 /* bytes */
    uint64_t heads[RAID_MEMBERS_MAX]; /* by array slot: where the last read ended */

    struct row_bucket *locks;
    unsigned locks_mask;
    struct cutter data_cutter, zero_cutter;
    struct row_merge *merge; /* NULL without redundancy */
    struct histogram *latency;
    struct task *closed;
};

struct member_place {
    struct member *member;
    uint64_t off; /* bytes of its device */
};

/* What the map says of a row; rows of a volume without one are ever clean. */
static inline enum region_state volume_region(const struct volume *v, uint64_t row)
{
    return v->map != NULL ? region_get(v->map, row) : REGION_CLEAN;
}

/* Can this row be read without that member, and its redundancy be believed? Then nobody needs to wait for it long. */
bool volume_may_hedge(const struct volume *v, uint64_t row, const struct member *without);
struct member_place volume_place(const struct volume *v, uint64_t row, unsigned role);
/* Are some of these bytes of a chunk bad, whatever its member answers? */
bool volume_bad(const struct volume *v, struct member_place place, uint64_t column, uint64_t len);
struct member *volume_member(const struct volume *v, unsigned layout_slot);
void volume_close_if_idle(struct volume *v);

/*
 * The worse of two answers: a media error, then whatever came first; bad_off (a volume offset, for any error) is the
 * lower one, so that what lies before it is right.
 */
void status_merge(enum blk_status *status, uint64_t *bad_off, enum blk_status more, uint64_t more_bad_off);
/* One part of a request was answered. */
void part_done(struct volume *v, struct blk_req *parent, struct cutter *cutter, enum blk_status status,
               uint64_t bad_off);
void volume_submit(struct blkdev *dev, struct blk_req *req);
void cutter_init(struct cutter *cutter, struct volume *v, unsigned limit);

/*
 * Start a run of `req` on a member: len bytes from volume offset off, at `place`. Takes over `run`.
 */
void run_start(struct volume *v, struct run *run, struct cutter *cutter, struct blk_req *req, uint64_t off,
               uint64_t len, struct member_place place);
void run_init(struct run *run, struct volume *v);
/* Is a run at work that touches this row? */
bool run_reads_row(const struct volume *v, uint64_t row);
/* The row that serves a failed run anew has its answer. */
void run_row_done(struct run *run, uint64_t len, enum blk_status status, uint64_t bad_off);
/* Which copy of a mirrored row to read. False: none is readable. */
bool mirror_choose(const struct volume *v, uint64_t row, uint64_t column, uint64_t len, unsigned *role);

/* --- rows --- */

enum row_kind {
    ROW_READ,
    ROW_WRITE,
    ROW_ZERO,
    ROW_WORK_RESYNC,
    ROW_WORK_REBUILD,
    ROW_WORK_SCRUB,
    ROW_WORK_COPY,
    ROW_WORK_VERIFY, /* row_init.c: ROW_ZERO before and after */
};

/*
 * What a row does, in states. A window is a range of columns; narrow rows have one, wide ones several in turn.
 *
 *                                           clean, discard
 *                                       MAPPING <----> | <----> LOGGING
 *   LOCKING -> PLANNING -> PAGING -> READING -> STARTING -> WRITING -> VERIFYING
 *                 ^  ^                 |  |                   |           |
 *                 |  +-----------------+  +- nothing to write |           |
 *                 |    read error: plan again, without it;    |           |
 *                 +------- or next window --------------------+-----------+
 *              no more windows -> [MAPPING: first write; spoiled, then LOGGING] -> RECORDING -> DONE
 *
 *   LOCKING    waits for its turn on the row
 *   PLANNING   decides from the members' states, the errors so far, the columns
 *   PAGING     waits for scratch pages, holding the lock and nothing else
 *   READING    reads are in flight
 *   STARTING   waits for the array to be marked dirty (V2)
 *   MAPPING    waits for the region map: before the first write of a while that the row is dirty, before a discard
 *              that it is unwritten, after the first write ever that it is not; or for a flush (row_init.c), and goes
 *              on with PLANNING
 *   LOGGING    waits for the journal: before a write that its record is durable, before a discard, and after a write
 *              that spoiled the row, that nothing of the row is to be replayed
 *   WRITING    writes are in flight
 *   VERIFYING  corrected chunks are read back
 *   RECORDING  waits for losses of members, and bad blocks, to be on disk (V1)
 *   DONE       answered, unlocked, back in the pool
 */
enum row_state {
    ROW_LOCKING,
    ROW_PLANNING,
    ROW_PAGING,
    ROW_READING,
    ROW_STARTING,
    ROW_MAPPING,
    ROW_LOGGING,
    ROW_WRITING,
    ROW_VERIFYING,
    ROW_RECORDING,
    ROW_DONE,
};
enum { ROW_STATES = 11 };

struct row_band {
    uint64_t column, len;
    uint64_t target;    /* data roles of the request in these columns */
    uint64_t media;     /* roles that answered a media error here, or are bad */
    uint64_t bad;       /* roles that are on the list of bad blocks */
    uint64_t wrote;     /* roles written well */
    uint64_t refused;   /* roles not written, whose member stays all the same */
    uint64_t corrected; /* roles rewritten because of a media error */
    struct row_plan plan;
    /* By role: the pages whose first holds byte `column`; NULL: none. */
    struct page ***old;    /* what is read or recovered */
    struct page ***new;    /* what is written */
    struct page **partial; /* policy ppl: the data that does not change, added up; NULL: none is needed */
    struct row_io *ios;
};

struct row_op {
    struct pool_entry entry;
    struct volume *volume;
    struct sm state;
    struct task task;

    enum row_kind kind;
    unsigned flags;           /* of the member requests */
    uint64_t row, first, len; /* bytes of the row's data */
    struct blk_req *parent;   /* NULL: a job, or answered already */
    struct cutter *cutter;
    struct run *run; /* the run that could not read this; told instead of the parent */
    struct row_job *job;
    struct page **data; /* the parent's, from byte `first`; NULL: zeroes */

    LIST_ENTRY(row_op) locked_link;
    STAILQ_ENTRY(row_op) waiting_link;
    STAILQ_HEAD(, row_op) waiting; /* behind this one, for the row */
    struct member_place *places;   /* by role: where its chunk begins */
    bool locked, changing, stop, retry;
    bool noted;     /* the list of bad blocks was changed: on disk before anybody relies on it */
    bool spoil;     /* this window is written without its redundancy, which is bad now */
    bool fill;      /* the row was never written: all of it is */
    unsigned disks; /* the members it began with; but for a fill, or was planned with */
    bool joined;    /* not a fill: a disk joined since it began, and may lack windows that were written before */
    bool unmap;     /* all of it is given back */
    bool doubt;     /* a write was refused by a member that stays: the row is SUSPECT */
    bool spoiled;   /* the same, when all windows are over */
    bool logged;    /* the journal stands against this window no more */
    bool flushing;  /* row_init.c: the zeroes are written */
    bool again;     /* row_init.c: for the second time */
    struct region_change change;
    struct journal_record record; /* its pieces: room for all roles of all bands, with a journal */
    struct journal_wait forget;

    uint64_t column, end, width, window; /* this window is [column, column + width) of [.., end) */
    unsigned bands_count, pending;
    uint64_t lost; /* roles that answered something else than a media error, in this op */
    uint64_t late; /* roles that take long: done without, as long as that is possible */
    bool patient;  /* it is not: they are waited for */
    enum blk_status lost_status;
    uint64_t hint_roles, hint_column; /* a media error known before the first read */
    enum blk_status status;           /* first error; bad_off: lowest volume offset concerned */
    uint64_t bad_off;

    struct page_waiter waiter;
    uint32_t pages_count, pages_held;
    struct page **pages;
    struct row_band bands[ROW_BANDS];
};

/* Bytes of memory a row takes, and laying it out in there. */
uint64_t row_op_bytes(const struct volume *v);
struct row_op *row_op_init(void *memory, struct volume *v);

/* Set kind, row, first, len, parent, cutter, data, flags, run or job before. Takes over `op`. */
void row_start(struct row_op *op);
void row_run(struct row_op *op);

bool row_is_locked(const struct volume *v, uint64_t row);
uint64_t row_locked_next(const struct volume *v, uint64_t from); /* the first at or behind `from`; UINT64_MAX: none */
bool row_locked_within(const struct volume *v, uint64_t from, uint64_t to); /* bytes of the volume, also who waits */
bool row_lock(struct row_op *op);                                /* false: its task runs when it is its turn */
void row_unlock(struct row_op *op);

/* row_band.c */
void row_columns_begin(struct row_op *op);  /* column, end, window from the range */
void row_window_open(struct row_op *op);    /* [column, column + width) into bands, nothing known of them */
bool row_window_plan(struct row_op *op);    /* false: some band's plan is PLAN_IMPOSSIBLE */
void row_window_buffers(struct row_op *op); /* pages_count; old and new of all bands */
uint64_t row_volume_offset(const struct row_op *op, uint64_t role, uint64_t column);
uint64_t row_readable(const struct row_op *op);
uint64_t row_writable(const struct row_op *op);
/* What a band may read: readable, and did not answer an error in this op. */
uint64_t row_band_readable(const struct row_op *op, const struct row_band *band);

/* Data roles whose new bytes are known before anything is read. */
uint64_t row_band_new(const struct row_op *op, const struct row_band *band);

/* row_region.c: what the map has to do with this row */
bool row_region_joined(struct row_op *op); /* has a disk joined that is not in the plan, or missed part of a fill? */
void row_region_begin(struct row_op *op);  /* under the lock: fill, unmap; stop: there is nothing to do */
bool row_region_wants_change(struct row_op *op); /* before the members are written */
void row_region_written(struct row_op *op);      /* over: it may have been all of the row, to all members */
void row_region_change(struct row_op *op);       /* ask for it: the task runs when it is durable */
/* A write reached some members, and not one that stays (V3). True: the row was not being filled. */
bool row_region_spoiled(struct row_op *op);
void row_region_synced(struct row_op *op); /* its redundancy has been made right */

/* row_log.c: what the journal has to do with this row */
bool row_log_wanted(const struct row_op *op);                               /* before it is written, or given back */
void row_log_ask(struct row_op *op);                                        /* then the task runs */
bool row_log_over(struct row_op *op);                                       /* false: not yet */
void row_log_written(struct row_op *op);                                    /* what was logged is in place */
bool row_log_partial(const struct row_op *op, const struct row_band *band); /* does it take scratch pages? */

/* row_bad.c; false: the list is full */
uint64_t row_bad_roles(const struct row_op *op, uint64_t column, uint64_t len);
void row_bad_forget(struct row_op *op);                       /* the row is filled anew */
bool row_bad_spoil(struct row_op *op, struct row_band *band); /* false as well: the writer's bytes have no place */
bool row_bad_lost(struct row_op *op, struct row_band *band);  /* by a job: columns that it cannot make right */
bool row_bad_written(struct row_op *op);                      /* a window was written, as far as it was */

/* row_math.c: from the old bytes and the request's to the new */
void row_compute(struct row_op *op, struct row_band *band);
/* The new parity without the new data, into band->partial. */
void row_compute_partial(struct row_op *op, struct row_band *band);
bool row_is_zero(const struct row_band *band, struct page **pages);
/* Byte page_off of a list of pages. */
static inline uint8_t *row_byte(struct page **pages, uint64_t page_off)
{
    return (uint8_t *)pages[page_off / PAGE_BYTES]->data + page_off % PAGE_BYTES;
}

/* row_scrub.c */
void row_scrub_begin(struct row_op *op); /* under the lock: a row in doubt is resynchronised, or passed by */
/* The band is read, and its redundancy computed: what is to be written. False: not yet, look at fewer columns. */
bool row_scrub_judge(struct row_op *op, struct row_band *band);
void row_scrub_unreadable(struct row_op *op, const struct row_band *band);

/* row_init.c */
void row_init_begin(struct row_op *op);   /* all of it is written anew */
void row_init_written(struct row_op *op); /* ask for a flush: the task runs when it is over */
void row_init_flushed(struct row_op *op); /* the zeroes are to be read back */
bool row_init_judge(struct row_op *op);   /* a window was read: is it right? */

#endif
