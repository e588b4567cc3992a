/*
 * A volume: a slice of an array with its own layout, seen as a block device.
 *
 * volume.c cuts a request at row borders; row.c serves each part: reads, degraded reads, full-row writes,
 * read-modify-write, reconstruct-write, discard, write-zeroes, and the jobs' work on a row. A row that is being changed
 * is locked; what comes later on it waits its turn in order.
 *
 * The volume reads the members' states and writes none: what an error means is the array's decision. The array is
 * reached through callbacks it gave (struct volume_owner).
 *
 * V1  A write is acknowledged only when every member that should have taken it has, or its loss is recorded on disk
 *     (loss_recorded).
 * V2  No member is written before the array is marked dirty on disk (change_begin). Jobs need not ask: what they write
 *     was not right before, and the map or the member's state says so on disk.
 * V3  In rows that the region map calls SUSPECT redundancy may be wrong: they are changed by reconstruct-write only
 *     (which makes the columns right), and a lost chunk there is reconstructed all the same; resync rewrites redundancy
 *     from data.
 * V4  All memory is taken when the volume is opened: contexts, row locks, scratch pages. When one runs dry requests
 *     wait in order.
 * V5  Policy bitmap: a row is DIRTY in the map on all live members before the first byte of a write reaches one of
 *     them. Policies ppl and journal: its record is in the journal, or losses that it was planned with are on disk
 *     (raid/journal_store.h, J1). Whatever the policy, the first write ever fills the whole row; only when that is durable the map says so, and only then is it acknowledged:
 * until then, and after a crash, the row reads as zeroes. A discard of a whole row is a change of the map.
 * V6  A block is old or new after a crash, unless a disk is away from a parity level without a journal (volume.c).
 * V7  A volume that is read_only writes nothing to any member: neither what initiators ask for, nor corrections of what
 *     could not be read, nor the word that something be flushed. All its rows are as if CLEAN.
 */
#ifndef RAID_VOLUME_H
#define RAID_VOLUME_H

#include "core/blkdev.h"
#include "raid/codec.h"
#include "raid/journal.h"
#include "raid/histogram.h"
#include "raid/layout.h"
#include "raid/member.h"
#include "raid/region_map.h"

struct volume;
struct volume_owner;
struct journal_wait;

struct volume_owner_ops {
    /*
     * About to change the medium. True: granted, go on. False: nothing was granted; `task` runs when it is time to ask
     * again (or the volume has failed meanwhile).
     */
    bool (*change_begin)(struct volume_owner *, struct task *task);
    /* One change_begin that was granted is over. */
    void (*change_end)(struct volume_owner *);
    /* A member answered `status` to `op` at `off` of its device. On return the member's state says whether it stays. */
    void (*member_error)(struct volume_owner *, struct member *, enum blk_op op, enum blk_status status, uint64_t off);
    /* Bytes of a media error were rewritten from redundancy. */
    void (*member_corrected)(struct volume_owner *, struct member *, uint64_t off, uint64_t len);
    /*
     * Are all losses of members on disk, or the volume failed? True: yes, one of both. False: `task` runs when it is
     * time to ask again.
     */
    bool (*loss_recorded)(struct volume_owner *, struct task *task);
    /*
     * Bytes of a member's data area are bad from now on, or are no more. It is so in memory on return, and on disk when
     * loss_recorded() says yes. False: the list is full.
     */
    bool (*bad_change)(struct volume_owner *, struct member *, uint64_t start, uint64_t len, bool bad);
    /* Bring a region of the volume's map to another state, in memory and on all live members; see region_change. */
    void (*region_change)(struct volume_owner *, struct region_map *, struct region_change *);
    /* Policies ppl and journal: see raid/journal_store.h. */
    void (*journal_write)(struct volume_owner *, struct journal_record *);
    void (*journal_written)(struct volume_owner *, struct journal_record *);
    bool (*journal_forget)(struct volume_owner *, const struct uuid *volume, uint64_t row, struct journal_wait *);
    /* All of a row was written, and all members that take writes took it; none has joined since it began. May be NULL.
     */
    void (*row_written)(struct volume_owner *, const struct region_map *, uint64_t row);
};

struct volume_owner {
    const struct volume_owner_ops *ops;
};

struct volume_options {
    const char *name;
    const struct layout *layout;
    unsigned first_slot;           /* array slot of layout slot 0: not 0 for jbod only */
    struct member *const *members; /* the array's table, indexed by array slot; outlives the volume */
    uint64_t start;                /* offset in the members' data area */
    uint64_t size;                 /* bytes offered, at most layout rows */
    uint32_t logical_block;
    bool read_only;
    struct region_map *map; /* of all rows, outlives the volume; NULL for a layout without redundancy, or read_only, and
                               no other */
    struct uuid uuid;
    enum sb_consistency consistency;
    const struct bad_list *bad; /* of the array, in its description */
    struct volume_owner *owner;
    struct histogram *latency;   /* fed with the requests that are not BLK_BACKGROUND; NULL: nobody wants to know */
    unsigned runs_max, rows_max; /* contexts; 0: the usual number */
    uint64_t scratch_bytes;      /* 0: the usual, 16 MiB at most; at least what two rows take */
};

/* NULL if memory is short. Close with blk_close(volume_dev()). */
struct volume *volume_open(struct loop *loop, const struct volume_options *options);
/* Nobody has used it: it is no more at once. */
void volume_undo(struct volume *volume);
struct blkdev *volume_dev(struct volume *volume);
/* Serve a request that was submitted to a device before this one, and checked there against the same size. */
void volume_take(struct volume *volume, struct blk_req *req);

/* Are more members gone than the layout bears? Then every request that needs them is answered BLK_GONE. */
bool volume_failed(const struct volume *volume);
bool volume_degraded(const struct volume *volume);
/* Look at the members again: at once after any of their states changed, before the next request is submitted. */
void volume_recount(struct volume *volume);
/* The array calls this after it changed a member's state: watchers are told. Not from within a callback of ours. */
void volume_members_changed(struct volume *volume);

/*
 * Were rows written that the region map calls CLEAN, and is not everything flushed since? Then the map does not hold
 * what a member that is lost now may lack. The array says when all is flushed and no change is under way.
 */
bool volume_unmarked(const struct volume *volume);
void volume_all_flushed(struct volume *volume);

/*
 * Another size: watchers hear of it. What it shall have in the end, it has by steps:
 *   grow      volume_set_layout(), then volume_set_size()
 *   shrink    volume_set_size(), so that nobody asks for more; volume_busy_from() until what was asked for is over;
 *             volume_give_back(): the bytes beyond are discarded, in a volume with a map; volume_set_layout()
 * Nothing else of the layout may differ than the number of rows.
 */
void volume_set_size(struct volume *volume, uint64_t size);
void volume_set_layout(struct volume *volume, const struct layout *layout);
bool volume_busy_from(const struct volume *volume, uint64_t off);
/* The same, of requests for bytes from `from` up to `to`, and of what is still corrected after them. */
bool volume_is_quiet(const struct volume *volume); /* nothing at all, flushes included */
bool volume_busy_within(const struct volume *volume, uint64_t from, uint64_t to);
void volume_give_back(struct volume *volume, struct blk_req *req); /* its `done` is the caller's, all else is set here */

uint64_t volume_rows(const struct volume *volume);
/* Is the row being changed? */
bool volume_row_busy(const struct volume *volume, uint64_t row);
/* The first such row at or behind `from`; UINT64_MAX: none. */
uint64_t volume_row_busy_next(const struct volume *volume, uint64_t from);
/* How many contexts for rows there are, for everybody. */
unsigned volume_contexts(const struct volume *volume);

/*
 * A job's work on one row: under the row's lock, make redundancy right (ROW_RESYNC: parities or copies rewritten from
 * data where they differ), fill the members that are REBUILDING (ROW_REBUILD: their chunks recomputed and written), or
 * compare all that is there (ROW_SCRUB: raid/row_scrub.c says what follows from a difference), or bring the chunk of one
 * member over to another disk (ROW_COPY), or, if nothing was ever written to it, fill it with zeroes that are read back
 * (ROW_INIT: raid/row_init.c).
 */
enum row_work { ROW_RESYNC, ROW_REBUILD, ROW_SCRUB, ROW_COPY, ROW_INIT };

enum row_found {
    ROW_FOUND_CHUNK,      /* bytes of one member are wrong, beyond doubt */
    ROW_FOUND_PROBABLE,   /* they seem to be, but too few of them differ to change them on that evidence */
    ROW_FOUND_UNKNOWN,    /* data and redundancy differ, and nothing tells which is right */
    ROW_FOUND_UNREADABLE, /* a block that its disk cannot read, and too few others are left to compute it */
};
enum row_remedy {
    ROW_LEFT,                 /* as it was */
    ROW_CHUNK_REWRITTEN,      /* the wrong member's bytes, from the others */
    ROW_REDUNDANCY_REWRITTEN, /* from data that may itself be wrong */
};
struct row_finding {
    enum row_found found;
    enum row_remedy remedy;
    uint64_t off, len;               /* of the volume; what is not located, and redundancy, concerns the row's data */
    unsigned slot;                   /* array slot; UNKNOWN: has no meaning */
    uint64_t device_off, device_len; /* of its disk; UNKNOWN: of all disks, in bytes of their chunks */
};

enum { ROW_FINDINGS_MAX = 8, ROW_SCRUB_BLOCK = 512 };
/* What a scrub of one row found; counted in blocks of 512 bytes of a chunk. */
struct row_report {
    uint64_t mismatched, located, repaired, rewritten, unreadable;
    uint64_t corrected;      /* reads that failed and were put right from redundancy */
    bool resynced;           /* the map called the row SUSPECT: its redundancy was made right instead */
    unsigned findings_count; /* neighbours are one; those beyond the array are only counted above */
    struct row_finding findings[ROW_FINDINGS_MAX];
};

struct row_job {
    enum row_work work;
    bool repair;            /* SCRUB */
    struct member *copy_to; /* COPY: the other disk, with the slot of the member it is for */
    uint64_t row;
    void (*done)(struct row_job *);
    enum blk_status status;   /* BLK_MEDIA: some blocks could not be read nor recovered; they are on the list of bad
                               blocks, and the rest is done (INIT: the row stays UNWRITTEN). BLK_NOSPACE: that list is
                               full. Else members are missing */
    bool changed;             /* something had to be written */
    struct row_report report; /* SCRUB; INIT: what did not read back as zeroes */
    struct task task;
    void *held; /* row.c's */
};
void volume_row_job(struct volume *volume, struct row_job *job);

#endif
