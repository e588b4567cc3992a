/*
 * One simulated run: an array of real code on simulated disks, a load, faults, crashes, and the model of what must be.
 *
 * Everything in a run follows from its seed, and from which of its actions are left out. The parts:
 *
 *   simulate.c   the program: seeds in processes, replay, shrinking
 *   sim.c        a run: its actions one after the other; the loop; failing
 *   config.c     what the seed draws: level, members, chunks, rates, kinds of actions
 *   world.c      the array's life: created, started, stopped, cut off, started again
 *   load.c       the requests of initiators, and their answers held against the model
 *   actions.c    faults, the operator, and the split brain
 *   scenes.c     moments that are rare by chance
 *   relayouts.c  volumes go to other shapes
 *   scrub.c      scrubs, and what they must find
 *   rest.c       the end: faults are over; all must be whole, and the disks are looked at with other eyes
 *   caches.c     caches before volumes, and what they promise; caches_acts.c: what happens to them
 *   caches_arena.c   the memory that outlives the process, and volumes that are held for want of it
 *   caches_log.c     the logs of caches, and what happens to their devices
 *   peek.c       what the oracle must know of the array's inside; peek_cache.c: and of a cache's
 *   simdisk.c, model.c, model_hole.c, dice.h
 *
 * An event is one task or one turn of timers. A crash may come between any two, counted down by `crash_in`. After it
 * the disks answer nothing but BLK_GONE, the model is told, and what is left of the array is driven to its end: nothing
 * it does reaches a disk.
 */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include <setjmp.h>

#include "cache/arena.h"
#include "cache/cache.h"
#include "cache/log.h"
#include "raid/array.h"
#include "raid/member.h"
#include "tests/sim/dice.h"
#include "tests/sim/model.h"
#include "tests/sim/simdisk.h"

enum { SIM_SLOTS = 10, SIM_DISKS = 64, SIM_IOS = 16, SIM_IO_PAGES = 130, SIM_ACTIONS = 128, SIM_VOLUMES = 2 };

enum action_kind {
    ACT_LOAD,      /* some requests */
    ACT_RUN,       /* time passes */
    ACT_QUIET,     /* long enough to be marked clean */
    ACT_VERIFY,    /* read everything */
    ACT_SPOIL,     /* blocks become unreadable */
    ACT_READ_FAIL, /* reads answer errors for no reason */
    ACT_TIME_OUT,
    ACT_WRITE_FAIL,
    ACT_SLOW,
    ACT_VANISH, /* a disk is pulled */
    ACT_DIE,
    ACT_CABLE,  /* several are pulled within moments */
    ACT_REPLUG, /* pulled disks are back; the array does not use them yet */
    ACT_FAIL,   /* the operator takes a member out */
    ACT_ONLINE, /* the operator brings a disk into an empty slot */
    ACT_KILL,   /* the process dies, and is started again */
    ACT_POWER,  /* the power fails */
    ACT_STOP,   /* a clean stop */
    ACT_SPLIT,  /* both halves run alone */
    ACT_SCRUB,  /* with or without something to be found */
    ACT_UNPLUG, /* a disk is pulled, and loses what was in its cache */
    ACT_CALM,   /* scenes.c */
    ACT_REBUILT,
    ACT_OPENING,
    ACT_AFTERMATH,
    ACT_PACE,    /* work in the background is paused, goes on, is slow */
    ACT_REPLACE, /* another disk for one in service */
    ACT_LOG,     /* a journal device has a fault, or is pulled, or dies */
    ACT_OWED,    /* scenes.c, the last as well */
    ACT_PULLED,
    ACT_RETURNED,
    ACT_JOINED,
    ACT_INIT,   /* zeroes to what was never written; or no more */
    ACT_MENDED, /* scenes.c; from here on as themes only */
    ACT_ALONE,
    ACT_REPLACED,
    ACT_BATTERY, /* caches_acts.c */
    ACT_MAINS,
    ACT_CACHE,
    ACT_RING, /* caches_log.c */
    ACT_RELAYOUT, /* relayouts.c: a theme only */
    ACT_KINDS,
};

struct action {
    enum action_kind kind;
    uint64_t seed;
};

struct sim_io {
    struct blk_req req;
    struct page *pages[SIM_IO_PAGES];
    struct sim *sim;
    unsigned volume, read;
    uint32_t op;
    bool busy, whole; /* whole: the rows it reads had been synchronised when it began */
    bool counts;      /* a flush: it makes durable what it covers */
    bool early;       /* it was answered when the battery was well, and hears of it later */
    uint64_t mark, began_ns;
};

struct sim_call {
    struct array_call call;
    struct sim *sim;
    bool over;
};

struct sim_arena {
    bool wanted;
    bool there; /* the memory holds what it held */
    bool outlives_power;
    char *bytes, *stable, *saved; /* stable: what a loss of power would leave; saved: what a crash has left */
    char *stable_then;            /* `cut`: a crash is to come between two stores, and `saved` is what was there then */
    bool cut;
    struct arena_memory memory;
    struct arena *arena; /* NULL: not in use */
};

struct sim_ring {
    unsigned devices; /* 0: no log */
    unsigned away;    /* at the next start, a bit each; 0: it is drawn */
    uint64_t pages;
    struct simdisk *disks[LOG_DEVICES];
    struct log_identity identity;
    struct cache_log *log; /* NULL: not in use */
};

/* A cache before a volume. */
LIST_HEAD(tap_call_list, tap_call);
struct sim_cache {
    bool wanted;
    struct cache_options options;
    struct cache *cache; /* NULL: there is none now */
    struct sim *sim;
    unsigned volume;
    struct blkdev tap, *below;
    struct blk_watcher watcher, initiator;
    struct tap_call_list calls;
    struct cache_owner owner;
    bool told; /* what initiators have heard of a volatile cache */
    struct sim_arena arena;
    struct sim_ring ring;
    bool claimed; /* the volume needs it */
    bool held;    /* ... and is not served without it */
    bool leaving; /* it was so, up to `mark` of the model, and must all be written down unasked */
    uint64_t mark, absorbed;
    struct task closed_task;
    bool closed;
};

struct sim_volume {
    char name[8];
    struct sim_cache cache;
    struct array_volume_spec spec;
    struct layout layout;
    unsigned first_slot;
    struct model *model;
    uint64_t hot[4];    /* rows that are written most */
    uint64_t corrupted; /* blocks that the last scrub may have found */
    bool starting, moving; /* relayouts.c: a relayout may be under way, to this */
    struct layout to;
    uint64_t window;
};

struct sim_config {
    bool strict; /* never more faults than every volume bears */
    bool garbage;
    bool thin;   /* a volume without redundancy beside one that has some: no disk can be spared, whatever it refuses */
    bool scarce; /* little memory: requests wait for it */
    bool cached; /* there are caches */
    unsigned members, volumes;
    struct blk_info disk;
    uint64_t journal_bytes;
    unsigned logs;          /* journal devices */
    uint32_t reserve_pages; /* of the patience before each disk: how much may be read late */
    unsigned weights[ACT_KINDS];
    enum action_kind theme; /* what is drawn often, besides ACT_LOAD */
    unsigned actions, fua_one_in, depth;
};

struct sim {
    uint64_t seed;
    bool verbose;
    struct sim_config config;
    struct loop loop;
    struct dice loop_dice;
    struct simdisk_watch watch;
    uint64_t events;
    struct sim_result *result;
    jmp_buf failed;

    struct simdisk *disks[SIM_DISKS];
    unsigned disks_count;
    int disk_of_slot[SIM_SLOTS]; /* the disk that is, or was last, the member */
    struct simdisk *logs[SB_JOURNALS_MAX];
    struct sim_volume volumes[SIM_VOLUMES];
    uint64_t rows_from, rows_to; /* where they lie on members */

    struct array *array; /* NULL: down */
    bool crashed, crash_power;
    bool recovering;            /* from a crash, until the jobs after it are over, or a clean stop */
    uint64_t crash_in;          /* events; 0: none is due */
    uint64_t crash_after_write; /* so many events after the next write that a disk takes; 0: not */
    uint64_t crash_after_row;   /* the same of writes to rows: in a start that is the journal's replay */
    unsigned crash_again;       /* so many starts to come are cut off as well */
    bool doomed;                /* so much was pulled at once that errors are right until the next start */
    uint64_t trouble;           /* slots that have, or may have, faults: in a strict run every volume bears them */
    uint64_t must_in;           /* while down: slots whose disks are current, and must be found so */
    uint64_t unrecorded;        /* while down: slots whose loss was in memory only, so that they are current as well */
    uint64_t keep_away;         /* slots whose disks are not there at the next start; 0: it is drawn */
    unsigned keep_logs_away;    /* and journal devices, by bit, beside those that are drawn */
    uint64_t last;      /* while down: slots that ran to the end; one of them must be shown, or history is lost */
    bool torn;          /* a new fork was cut off: who may have it must be shown at the next start */
    uint64_t torn_away; /* and who was away */
    bool short_handed;  /* the next start is to be without somebody */
    bool lost;          /* the last to run is dead */
    uint64_t online;    /* slots that were ONLINE when last looked at */

    struct simdisk *newcomer; /* it is to take the place of the one in this slot; NULL: none */
    unsigned newcomer_slot;
    uint64_t newcomer_until; /* it was given up: the first generation that does not name it; 0: it was not */

    bool battery_bad, on_battery;
    bool cut_inside; /* the machine goes down before the next event */
    struct dice caches_dice;

    struct sim_io ios[SIM_IOS];
    unsigned ios_busy, calls_busy;

    struct action actions[SIM_ACTIONS];
    unsigned actions_count;
};

/* --- sim.c --- */

struct sim_result {
    uint64_t hash, events, lives, virtual_ns, crashes, crashes_in_recovery;
    unsigned actions;
    bool strict;
    char what[96];   /* the configuration */
    char said[1024]; /* why it failed */
};
/* Caches come in one run of three, or in all, or in none. */
enum sim_caches { SIM_CACHES_DRAWN, SIM_CACHES_ALWAYS, SIM_CACHES_NEVER };
struct sim_order {
    uint64_t seed;
    enum sim_caches caches;
    enum action_kind theme; /* ACT_KINDS: the seed draws it */
    bool verbose;
    bool skip[SIM_ACTIONS]; /* actions to leave out */
};
/* False: it failed. */
bool sim_run(const struct sim_order *order, struct sim_result *result);

_Noreturn void sim_fail(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_trace(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define SIM_CHECK(s, cond, ...) ((cond) ? (void)0 : sim_fail(s, __VA_ARGS__))

/* One event. False: nothing is left to do. */
bool sim_event(struct sim *s);
void sim_events(struct sim *s, uint64_t count);
void sim_events_ready(struct sim *s); /* those of this moment */
void sim_wait_ns(struct sim *s, uint64_t ns);
/* Until *flag: it must become true. */
void sim_wait(struct sim *s, const bool *flag, const char *what);
void sim_action(struct sim *s, const struct action *action);
const char *sim_action_name(enum action_kind kind);
/* Work in the background goes as fast as it can from now on. True: it did already. */
bool sim_pace_free(struct sim *s);

/* --- config.c --- */
/* `theme`: ACT_KINDS if it is to be drawn as well. */
void config_draw(struct sim *s, enum action_kind theme, enum sim_caches caches);
/* Do all volumes survive without these slots? */
bool config_survives(const struct sim *s, uint64_t lost);

/* --- world.c --- */
struct simdisk *world_disk_new(struct sim *s);
struct simdisk *world_disk_of(struct sim *s, uint64_t bytes);
struct simdisk *world_disk(const struct sim *s, unsigned slot);
struct array_disk world_array_disk(struct simdisk *disk);
void world_create(struct sim *s);
/* Power or process gone, now. */
void world_cut(struct sim *s, bool power);
/* After a cut: wait until everything has ended. Then the machine can be started again. */
void world_bury(struct sim *s);
/* A clean stop. False: it was none. */
bool world_stop(struct sim *s);
/*
 * Read the labels of all disks but those of the slots `away`, decide, check what was decided, and start if that may be.
 * `split`: a split brain must be found. False: the array stays down, or was cut off.
 */
struct world_start {
    uint64_t away;
    unsigned logs_away; /* journal devices, by bit */
    bool force, split;
    int prefer; /* slot whose disk wins a split brain, or -1 */
};
bool world_start(struct sim *s, struct world_start how);
/* As it comes, and it may be cut off. False: it cannot be started. */
bool world_start_once(struct sim *s, struct dice *dice);
/* As often as it takes. */
void world_start_again(struct sim *s, struct dice *dice);
/* What has become right since we last looked: rows that are in sync, slots whose trouble is over. */
void world_look(struct sim *s);
/* Is this row right only because of a loss that may not be on disk yet, so that a start may find it in doubt again? */
bool world_row_may_be_torn_again(const struct sim *s, unsigned volume, uint64_t row);
/* A slot cannot be counted on: tell the models. */
void world_slot_lost(struct sim *s, unsigned slot);
/* May there be a fault here? Then the slot is in trouble. */
bool world_trouble(struct sim *s, unsigned slot);

/* --- actions.c --- */
/* Somebody brings a disk into a slot that has none. */
void sim_online(struct sim *s, unsigned slot, struct simdisk *disk);
/* A slot whose disk may have a fault now. False: none. */
bool sim_draw_victim(struct sim *s, struct dice *dice, unsigned *slot);
/* `power`: with what is in its cache. */
void sim_pull(struct sim *s, unsigned slot, bool for_ever, bool power);
/* With its cache, for a while. False: the array has not noticed, so it never comes back; or a volume needs it. */
bool sim_unplug(struct sim *s, struct dice *dice, unsigned slot);
/* Jobs of the volume are slower than this from now on. */
void sim_pace_limit(struct sim *s, unsigned volume, uint64_t bytes_a_second);
/* Until the pace is free again. */
void sim_pace_pause(struct sim *s, unsigned volume);

/* --- scenes.c --- */
void scene_calm(struct sim *s, struct dice *dice);
void scene_rebuilt(struct sim *s, struct dice *dice);
void scene_opening(struct sim *s, struct dice *dice);
void scene_aftermath(struct sim *s, struct dice *dice);
void scene_owed(struct sim *s, struct dice *dice);
void scene_pulled(struct sim *s, struct dice *dice);
void scene_returned(struct sim *s, struct dice *dice);
void scene_joined(struct sim *s, struct dice *dice);
void scene_mended(struct sim *s, struct dice *dice);
void scene_alone(struct sim *s, struct dice *dice);
void scene_replaced(struct sim *s, struct dice *dice);

/* --- caches.c --- */
enum { SIM_CACHES_STREAM = 10 }; /* of dice, and the next */
void caches_draw(struct sim *s, enum sim_caches which);
void caches_open(struct sim *s);
/* Before a clean stop; all requests are answered. */
void caches_stop(struct sim *s);
/* After a crash. */
void caches_bury(struct sim *s);
/* What initiators are given. NULL: nothing. */
struct blkdev *caches_dev(const struct sim *s, unsigned volume);
/* Has one of them a request at the volume that began by then? */
bool caches_asked_before(const struct sim *s, uint64_t ns);
/* What does the answer to this change promise? */
enum model_promise caches_promise(struct sim *s, const struct sim_io *io);
/* Does a flush that is asked for now make durable what it covers? */
bool caches_flush_counts(const struct sim *s, unsigned volume);
void caches_power(struct sim *s, bool battery_bad, bool on_battery);
/* Tell the models what caches have written down unasked. */
void caches_look(struct sim *s);
bool caches_are_written_down(const struct sim *s);
/* Nothing is dirty or under way. */
bool caches_are_quiet(const struct sim *s);
/* Write down all that one has. False: it failed, or a crash came. */
bool caches_empty(struct sim *s, unsigned volume);

/* Is the volume held until its arena is there, or given up? */
bool caches_hold(const struct sim *s, unsigned volume);
/* What it is held for is found, if it is still there; or given up. */
void caches_let_go(struct sim *s, unsigned volume, bool found);

/* --- caches_arena.c --- */
void arena_draw(struct dice *dice, struct sim_cache *cache);
void arena_free(struct sim_cache *cache);
/* The machine goes down now. */
void arenas_cut(struct sim *s, bool power);
/* The last of a cache that was cut off is over: the memory is what the crash left. */
void arena_bury(struct sim_cache *cache);
/* Its cache is closed. */
void arena_leave(struct sim_cache *cache);
bool arena_is_claimed(const struct sim_cache *cache);
void arena_claim(struct cache_owner *owner, struct cache *cache, bool held);
void arenas_tell_fork(struct sim *s);
/* For a cache that is about to begin. False: the volume is held. */
bool arena_take(struct sim_cache *cache, bool at_hand);
/* The operator does not wait for it any more. False: that could not be noted. */
bool arena_give_up(struct sim_cache *cache);

/* --- caches_log.c --- */
void ring_draw(struct dice *dice, struct sim_cache *cache);
void ring_claim(struct cache_owner *owner, struct cache *cache, bool held);
/* For a cache that is about to begin; its tap is ready. False: the volume is held, or a crash came. */
bool ring_take(struct sim_cache *cache, bool at_hand);
/* Its cache is closed. */
void ring_leave(struct sim_cache *cache);
void act_ring(struct sim *s, struct dice *dice);

/* --- caches_acts.c --- */
void act_battery(struct sim *s, struct dice *dice);
void act_mains(struct sim *s, struct dice *dice);
void act_cache(struct sim *s, struct dice *dice);

/* --- load.c --- */
/* A change was answered with an error by the array: what does that mean for its rows? */
void load_refused(struct sim *s, unsigned volume, const struct blk_req *req);
/* Empty the cache of a volume. False: it failed, or was cut off. */
bool load_empty(struct sim *s, unsigned volume);
bool load_one(struct sim *s, struct dice *dice);
void load_drain(struct sim *s);
/* All volumes; with the answers. */
void load_flush(struct sim *s);
/* Read all of the volumes, or the hot rows. */
void load_verify(struct sim *s, bool all);

/* --- relayouts.c --- */
void relayouts_draw(struct sim *s);
/* What is over is known; steps are short. */
void relayouts_look(struct sim *s);
/* Does the shape survive that a volume may be on its way to? */
bool relayouts_survive(const struct sim *s, uint64_t lost);
void act_relayout(struct sim *s, struct dice *dice);

/* --- scrub.c --- */
void act_scrub(struct sim *s, struct dice *dice);
/* Has a scrub found something where nothing is? */
void scrub_look(struct sim *s);

/* --- rest.c --- */
void rest(struct sim *s);

/* --- peek.c --- */
uint64_t peek_slots(const struct array *array, enum member_state state);
/* What the region map says of a row: its redundancy is right, and that is on disk; it was ever written. */
enum { ROW_SYNCED = 1, ROW_SAVED = 2, ROW_WRITTEN = 4 };
/* Rows of `row_data` bytes: what both sides of a relayout say of these bytes, if there is one. */
unsigned peek_row(const struct array *array, unsigned volume, uint64_t row, uint64_t row_data);
/* Of a relayout that is under way: steps are so long on each member. */
void peek_relayout_window(struct array *array, uint64_t bytes);
bool peek_frozen(const struct array *array);
/* Does the description call this journal device active? */
bool peek_log_active(const struct array *array, unsigned index);
/* Slots that the description calls active. */
uint64_t peek_active(const struct array *array);
/* Slots that are lost in memory, and no label says so, nor is about to. */
uint64_t peek_unrecorded(const struct array *array);
/* Is a disk's label on its way by which it joins? */
bool peek_joining(const struct array *array);
/* How far rebuilds are by the description, all volumes together. */
uint64_t peek_rebuilt(const struct array *array);
uint64_t peek_generation(const struct array *array);
/* All labels are written. */
bool peek_committed(const struct array *array);
/* Labels that are being written. */
unsigned peek_labels_left(const struct array *array);
/* A generation with a new fork is on its way, or was when the array froze: some disks may have it. */
bool peek_fork_is_torn(const struct array *array);
/* Slots that are lost, and labels may not say so yet: if the array ends now they may be in service again. */
uint64_t peek_unwritten(const struct array *array);
/* Of a replacement: the old disk is the member; a crash will tell; the new one is; it is over, and the old one still is. */
enum peek_replace { PEEK_OLD, PEEK_EITHER, PEEK_NEW, PEEK_GIVEN_UP };
enum peek_replace peek_replacing(const struct array *array);
bool peek_jobs_idle(const struct array *array);

/* --- peek_cache.c --- */
/* Nothing is to be written down without being asked for. */
bool peek_cache_written_down(const struct cache *cache);

static inline bool crash_is_due(const struct sim *s)
{
    return s->crash_in != 0 || s->crash_after_write != 0 || s->crash_after_row != 0;
}

static inline uint64_t sim_bit(unsigned slot)
{
    return UINT64_C(1) << slot;
}

#endif
