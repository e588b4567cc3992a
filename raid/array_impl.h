/*
 * The inside of an array, shared by the files that make it: for them only.
 *
 *   array.c           open, close, abandon, what it tells
 *   array_create.c    a spec to a description; writing it; adding a volume
 *   array_commit.c    the description's generations on the members
 *   array_activity.c  dirty before the first write, clean when quiet
 *   array_members.c   losses, the burst rule, taking a member out, and its disk back
 *   array_online.c    bringing a member back
 *   array_remove.c    a slot less
 *   array_policy.c    rates and pauses of background work
 *   array_resize.c    another size for a volume
 *   array_lost.c      which bytes of volumes are lost
 *   array_replace.c   another disk for a member in service
 *   front.c           what is served of a volume
 *   relayout_start.c, relayout_job.c, relayout_move.c, relayout_log.c, relayout_end.c: another shape for a volume
 *   map_store.c       the region maps on the members
 *   array_journal.c   the journal's part of opening, and its calls
 *   journal_store.c, journal_replay.c, journal_io.c, journal_device.c
 *   jobs.c            which job runs, and its rows; the kinds are resync.c, rebuild.c, scrub.c,
 *                     replace.c, init.c,
 *                     relayout_job.c
 *
 * The description (array->description) is what the next commit writes. Whoever changes it calls array_commit() in the
 * same breath, and acts upon the change only when its wait is over. Its `generation` is the last one begun;
 * commit.committed is the last one that stands on every live member.
 *
 * A frozen array writes nothing any more, whatever was asked: all waits are over, all volumes answer BLK_GONE, and only
 * array_close() or array_abandon() is left.
 */
#ifndef RAID_ARRAY_IMPL_H
#define RAID_ARRAY_IMPL_H

#include "core/check.h"
#include "core/sm.h"
#include "raid/array.h"
#include "raid/array_replace.h"
#include "raid/front.h"
#include "raid/jobs.h"
#include "raid/journal_device.h"
#include "raid/journal_store.h"
#include "raid/label.h"
#include "raid/map_store.h"
#include "raid/patience.h"
#include "raid/rebuild.h"
#include "raid/volume.h"

/* One flush of every live member. A member that fails it is lost; the flush is over all the same. */
struct array_flush {
    struct array *array;
    void (*done)(struct array_flush *);
    unsigned pending; /* 0: free to be used */
    struct array_flush_part {
        struct blk_req req;
        struct array_flush *flush;
        unsigned slot;
    } parts[RAID_MEMBERS_MAX];
};

/* Somebody who waits until a generation is on all live members, or the array is frozen. */
struct commit_wait {
    TAILQ_ENTRY(commit_wait) link;
    uint64_t generation;
    struct task task; /* deferred then */
};

struct commit_part {
    struct label_op op;
    struct sb_label label; /* its place is kept: where the member's newest label stands */
    struct array *array;
};

struct array_commit {
    bool wanted;      /* the description holds something that the last generation does not */
    bool fork_wanted; /* the next generation begins a new fork */
    bool reopened;    /* opened with all members that were live before */
    unsigned writing; /* labels in flight */
    bool others_wait; /* for the first label of a disk that takes another one's place */
    uint64_t committed;
    TAILQ_HEAD(, commit_wait) waits;
    struct commit_part *parts; /* one a slot */
    struct page_pool *pages;   /* for labels only: writes that hold all other pages may be waiting for them */
};

enum activity_state { ACTIVITY_CLEAN, ACTIVITY_DIRTYING, ACTIVITY_DIRTY, ACTIVITY_FLUSHING, ACTIVITY_CLEANING };

struct array_activity {
    struct sm state;          /* enum activity_state */
    unsigned changes;         /* granted and not over */
    struct task_list waiting; /* want to be granted */
    struct timer quiet;
    struct commit_wait wait;
    struct array_flush flush;
};

struct array_losses {
    uint64_t pending; /* slots that failed and are not in the description yet */
    uint64_t lost_ns[RAID_MEMBERS_MAX];
    uint64_t vanished; /* slots that were lost without an answer, at lost_ns */
    struct timer settle;
    struct array_flush probe;
    uint64_t generation;      /* when this is committed, all losses but the pending ones are on disk */
    struct task_list waiting; /* want to know it */
};

/* A rebuild pass: see rebuild.c. */
struct array_rebuild {
    uint64_t slots; /* the members it fills; those that were lost since are out */
    struct rebuild_rows rows[SB_VOLUMES_MAX];
    struct array_flush flush; /* of its end */
    struct commit_wait wait;
    bool checkpointing, saving; /* a checkpoint is under way; the scheduler waits for it */
    uint64_t checkpoint_ns;     /* when the last one began */
    uint64_t checkpoint_slots;
    struct array_flush checkpoint_flush;
    struct commit_wait checkpoint_wait;
};

/* See raid/array_replace.h. */
struct array_replace {
    struct sm state; /* enum replace_state */
    unsigned slot;
    struct array_disk disk; /* the new one */
    struct array_call *call;
    struct blkdev *old;
    struct shadow *shadow;
    struct shadow_owner owner;
    struct member target; /* the new disk, for what jobs write to it alone */
    struct label_op op;
    struct sb_label label;
    struct replace_copy copies[JOB_WINDOW_MAX];
    struct shadow_copy area;
    unsigned areas; /* done */
    /* Joining. */
    struct sb_member before;
    unsigned place;                /* of the old disk's label */
    bool joining, labelled, erase; /* erase: who is left over loses its label */
    enum blk_status joined;
    struct commit_wait wait;
    struct array_flush flush;
    struct timer look;
    struct array_replacement result;
};

/* What is remembered of the volume's scrub beside the description: raid/scrub.c. */
struct array_scrub {
    uint64_t interval_s; /* of patrols; 0: none */
    uint64_t saved_ns;   /* when the position was last brought to disk */
    uint64_t rows, corrected, dropped;
    unsigned count;
    struct row_finding findings[SCRUB_FINDINGS];
};

struct array_volume {
    struct layout layout;
    struct volume *volume;
    struct front *front;   /* what is served; NULL: of a relayout's new side */
    struct map_store *map; /* NULL without redundancy */
    bool published;        /* on disk: array_volume() finds it */
    struct job jobs[JOB_KINDS];
    struct array_scrub scrub;
};

enum { ARRAY_SLOTS_MORE = 4 }; /* disks that may be added before the array is opened anew */

enum array_state { ARRAY_OPENING, ARRAY_RUNNING, ARRAY_CLOSING };

struct array {
    struct loop *loop;
    struct sm state; /* enum array_state */
    bool frozen;
    struct sb_array description;
    unsigned slots_room; /* slots that there is memory for: disks may be added up to there */
    struct peers peers; /* the live members' disks, as far as they have patience */
    struct member members[RAID_MEMBERS_MAX], *member_table[RAID_MEMBERS_MAX];
    struct array_volume volumes[SB_VOLUMES_MAX]; /* as description.volumes */
    struct volume_owner owner;
    struct task members_changed;
    struct array_commit commit;
    struct array_activity activity;
    struct array_losses losses;
    struct histogram latency; /* of all volumes' requests */
    struct array_jobs jobs;
    struct array_rebuild rebuild;
    struct array_replace replace;
    struct timer scrub_timer;                        /* the next look at the calendar */
    struct journal *journal;                         /* NULL: no volume has one */
    struct journal_device journals[SB_JOURNALS_MAX]; /* as description.journals */
    struct array_online *online;                     /* the disk that is being brought in, or NULL */
    struct array_relayout *relayout;                 /* a volume goes from one shape to another; or NULL */
    struct array_removal *removal;                   /* a slot is being taken away; or NULL */
    struct array_resize *resize;                     /* a volume is becoming longer or shorter: no job begins; or NULL */
    struct array_call *call;                         /* of open or close */
    unsigned calls;                                  /* of others, not over */
    struct task step;
    struct task map_opened;
    unsigned next_map; /* to be loaded */
    struct commit_wait open_wait;
    bool replay_wanted;    /* it was not stopped cleanly */
    bool journal_given_up; /* nor is its journal there */
    struct journal_replay *replay;
    struct task replayed;
    /* Closing. */
    bool settled, flushed, marked_clean, volume_closing;
    unsigned next_volume; /* to be closed */
    struct task closed;
};

/* --- array.c --- */
/* Ends a call, whose message stands already: `done` runs from the ready list. */
void call_over(struct loop *loop, struct array_call *call, int error);
/* The same for a call counted in array->calls. */
void array_call_over(struct array *array, struct array_call *call, int error);

/* With an error, -errno, and a sentence. */
#define CALL_END(loop, call, error, ...)                                                                               \
    (text_format((call)->message, sizeof(call)->message, __VA_ARGS__), call_over(loop, call, error))
#define ARRAY_CALL_END(array, call, error, ...)                                                                        \
    (text_format((call)->message, sizeof(call)->message, __VA_ARGS__), array_call_over(array, call, error))

/* Something is over that opening or closing may wait for: look again at the end of the turn. */
void array_step(struct array *array);
/* places: by slot, where the disk's newest label stands (sb_label.place). */
void array_open_description(struct loop *loop, const struct sb_array *description, const struct array_disk *disks,
                            const struct array_journals *journals, const unsigned *places, struct array_call *call);
/* Among those that are published; volumes_count: none has the name. */
unsigned array_volume_index(const struct array *array, const char *name);
/* Layout and region map, then blkdev, of volume `index`, from the description. 0 or -errno with `why`. */
int array_lay_out_volume(struct array *array, unsigned index, char *why, size_t why_len);
int array_open_volume(struct array *array, unsigned index, char *why, size_t why_len);
/* Why the array takes no call now, or NULL. */
const char *array_refusal(const struct array *array);

/* array_policy.c: a call that changes the description, and is over when all members have it. NULL: no memory, and the call
 * is over. */
struct policy;
struct policy *policy_create(struct array *array, struct array_call *call);
void policy_changed(struct policy *policy);
void array_flush_start(struct array *array, struct array_flush *flush, void (*done)(struct array_flush *));
/* All region maps: is nothing under way; is all of it on disk; rows in some states; make CLEAN what can be. */
bool array_maps_idle(const struct array *array);
bool array_maps_saved(const struct array *array);
uint64_t array_maps_count(const struct array *array, unsigned states);
void array_maps_settle(struct array *array);
/* Do they hold all that a member may lack that is missing at the start? After a crash not where a journal is replayed. */
bool array_maps_tell(const struct sb_array *a);

/* --- array_journal.c --- */
/* The journal, if a volume of the description has one. 0, or -errno with `why`. */
int array_open_journal(struct array *array, char *why, size_t why_len);
/* Is the old epoch needed, so that this must be done before the array runs? */
bool array_must_replay(const struct array *array);
/* Of an array that is being opened: then comes array->replayed. False: no memory. */
bool array_replay_start(struct array *array);
/* 0, or -errno and why. */
int array_replay_end(struct array *array, char *why, size_t why_len);
void array_epoch_begin(struct array *array);
bool array_journal_idle(const struct array *array);

/* --- array_create.c --- */
uint64_t array_extents(const struct sb_array *a, const struct sb_volume *volume, uint64_t *extent);
uint64_t array_free_extent(const struct sb_array *a);
/* A place for `blocks` blocks of region map: first fit, not where a volume of `a` but `volume` itself has its own. False:
 * no room. */
bool array_map_place(const struct sb_array *a, struct sb_volume *volume, uint64_t blocks);
/* Bytes that a disk must have to take `slot`. */
uint64_t array_slot_bytes(const struct sb_array *a, unsigned slot);

/* `volume` (in `a`, changed) with another size and the extent it takes, in its place; its layout. NULL, or why not. */
const char *array_resize_volume_in(const struct sb_array *a, struct sb_volume *volume, uint64_t size,
                                   struct layout *layout, char *why, size_t why_len);

/* --- array_commit.c --- */
/* False: no memory. commit_fini() when nothing is in flight. */
bool commit_init(struct array *array, const unsigned *places);
void commit_fini(struct array *array);
/* Bring the description to disk; `wait` (may be NULL) is over when that is done. wait->task.run is set by the caller.
 */
void array_commit(struct array *array, struct commit_wait *wait);
/* Start what is wanted, if nothing stands against it. */
void commit_kick(struct array *array);
void commit_frozen(struct array *array);

/* --- array_activity.c --- */
void activity_init(struct array *array, bool clean);
bool activity_begin(struct array *array, struct task *task);
void activity_end(struct array *array);
/* A region map came to rest: flushing may go on. */
void activity_look(struct array *array);
/* Dirty with nothing to do: be clean after a while. */
void activity_rest(struct array *array);
/* No commit or flush of its own is under way. */
bool activity_still(const struct array *array);
void activity_stop(struct array *array);
void activity_frozen(struct array *array);

/* --- array_members.c --- */
void losses_init(struct array *array);
extern const struct volume_owner_ops array_owner_ops;
/* A member answered with an error: count it, and lose the member if it is too much. */
void array_member_trouble(struct array *array, struct member *member, enum blk_op op, enum blk_status status,
                          uint64_t off);
/* A member's label could not be written: it is lost whatever is left without it. */
void array_member_lose(struct array *array, struct member *member, enum blk_status status);
bool losses_recorded(const struct array *array);
/* As volume_owner_ops.loss_recorded. */
bool losses_wait(struct array *array, struct task *task);
void losses_committed(struct array *array);
void losses_settle_now(struct array *array);
void array_members_changed(struct array *array);
/* A disk is compared with the others from now on; no more. */
void array_peer_joins(struct array *array, unsigned slot);
void array_peer_leaves(struct array *array, unsigned slot);
/* Freeze, without a word: nothing is written to any member from now on. */
void array_stop_writing(struct array *array);
bool array_survives(const struct array *array, unsigned volume, uint64_t lost);
uint64_t array_lost_slots(const struct array *array);
/* Those that take writes. */
uint64_t array_live_slots(const struct array *array);
const char *array_disk_name(const struct array *array, unsigned slot);

/* --- array_online.c --- */
/* May the disk, and what was read of its label, take the slot? 0, or -errno and a sentence. */
int array_disk_fits(const struct array *array, unsigned slot, const struct array_disk *disk, char *why, size_t why_len);
int array_label_fits(const struct array *array, const struct array_disk *disk, const struct label_op *op, char *why,
                     size_t why_len);
/* The label of the disk that joins could not be written. */
void online_label_failed(struct array *array, enum blk_status status);
/* The disk that joins at `slot`, or NULL. */
struct blkdev *online_joining(const struct array *array, unsigned slot);
/* It is in no slot that others know of: it gets its label before them, or there would be a slot without a disk. */
bool online_joins_first(const struct array *array, unsigned slot);

static inline uint64_t slot_bit(unsigned slot)
{
    return 1ull << slot;
}

static inline bool array_is_redundant(const struct array *array, unsigned volume)
{
    return array->volumes[volume].layout.redundancy > 0;
}

#endif
