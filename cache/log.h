/*
 * The log of a cache: a ring on a device, or on two that hold the same, that makes what is dirty in memory outlive a
 * power failure (protection "journal"). What its bytes mean: cache/log_record.h. What is put into it, and when it must
 * be: cache/commit.c.
 *
 *      look at labels ---> none, or not claimed ---> cache_log_format() ---+
 *      (log_record.h)                                                      +---> cache_create(..., .log)
 *                     ---> the volume's claim names it ---> cache_log_open(): replayed to the volume, and empty
 *
 * L1  It is empty when a cache gets it; a cache is closed before its log.
 * L2  The claim (struct cache_owner) is {log's UUID, generation}, as cache_log_status() says when claim() is asked for.
 *     When a device of two dies the generation rises, and the claim is asked for once more.
 * L3  After cache_log_open() the claim that is on record speaks of a log that is empty now. It is taken back before the
 *     volume is served, or replaced; else a device that comes back alone could be believed.
 * L4  Of two devices the one that dies is named by no later label of the other one, so when it comes back it is not
 *     believed; if it comes back alone, its generation is below the claim's. It is formatted or opened with the other
 *     one to count again.
 * L5  A log never fails for want of room: its cache empties it then.
 * L6  Devices are lent, are on one loop, and outlive it. A volume that a log is opened for must not be served meanwhile.
 */
#ifndef CACHE_LOG_H
#define CACHE_LOG_H

#include "cache/log_record.h"
#include "core/blkdev.h"

struct cache_log;

struct cache_log_options {
    const char *name;                    /* of the cache, for messages */
    struct blkdev *devices[LOG_DEVICES]; /* at least one; each of LOG_BYTES_MIN or more. NULL: not there */
    /* Whose it is to be. For cache_log_open() its `log` is the one that the claim names; cache_log_format() makes one. */
    struct log_identity identity;
    uint64_t least_generation; /* of the claim: no older label is believed */
};

enum cache_log_result {
    CACHE_LOG_OK,
    CACHE_LOG_ABSENT,     /* no device has a label of this log */
    CACHE_LOG_STALE,      /* those that have one missed what the claim speaks of */
    CACHE_LOG_DAMAGED,    /* a group that was durable is not whole; or it says what cannot be */
    CACHE_LOG_UNREADABLE, /* a device does not give what it may hold, and no other one has it */
    CACHE_LOG_DEAD,       /* no device takes a label */
    CACHE_LOG_VOLUME,     /* the volume does not take what was logged */
    CACHE_LOG_NO_MEMORY,
};
const char *cache_log_result_name(enum cache_log_result result); /* for people */

struct cache_log_call {
    void (*done)(struct cache_log_call *); /* from the loop's ready list */
    enum cache_log_result result;
};

/* NULL: no memory. */
struct cache_log *cache_log_create(const struct cache_log_options *options);
/* An empty log of a new UUID on the devices that are there, whatever they held. */
void cache_log_format(struct cache_log *log, struct cache_log_call *call);
/*
 * Write what the log holds to the volume, flush it, and empty the log. Unless that succeeds nothing of the log has
 * changed, and it may be tried again: what was written to the volume by then is what will be written again.
 */
void cache_log_open(struct cache_log *log, struct blkdev *volume, struct cache_log_call *call);
/* The array has gone on into another history, and the volume with what is here. Whoever opens it asks log_labels_look(). */
void cache_log_set_fork(struct cache_log *log, const struct uuid *fork);
/* Its cache, if there was one, is closed. What is on its way to a device is waited for. */
void cache_log_close(struct cache_log *log, struct task *closed);

struct cache_log_status {
    struct uuid log;
    uint64_t generation;
    uint64_t bytes, used_bytes;        /* of the ring */
    uint64_t groups, blocks, gone;     /* written: groups; entries of both kinds */
    uint64_t written_bytes;            /* to each device, headers too */
    uint64_t commits, committed_calls; /* flushes of the log; the flushes and writes that were answered by them */
    uint64_t emptied;                  /* it was full, and the cache had to be destaged */
    unsigned devices, live;            /* that are there; that count, a bit each */
    const char *reason;                /* why a device does not count; NULL: all do */
    uint64_t replayed_groups, replayed_blocks; /* by cache_log_open() */
};
void cache_log_status(const struct cache_log *log, struct cache_log_status *out);

/* --- for the cache that has it --- */

struct cache_log_user {
    void (*room)(struct cache_log_user *);                /* LOG_BUSY is over */
    void (*committed)(struct cache_log_user *, bool ok);  /* not: the last device is dead */
    void (*tail_moved)(struct cache_log_user *, bool ok); /* the same */
    void (*died)(struct cache_log_user *);                /* a device did */
};

/* A place between groups. */
struct log_mark {
    uint64_t sequence, page; /* of the next one */
};

enum log_put { LOG_PUT, LOG_BUSY, LOG_FULL, LOG_IS_DEAD };

/* NULL: no more. */
void cache_log_use(struct cache_log *log, struct cache_log_user *user);
/* These sectors of the page; it gets a reference, and must not change before it is put. */
enum log_put cache_log_put(struct cache_log *log, uint64_t block, uint8_t sectors, struct page *page);
enum log_put cache_log_put_gone(struct cache_log *log, uint64_t sector, uint64_t count);
/* Make all that was put durable: committed(). Nothing is put until then, and no other one asked for. */
void cache_log_commit(struct cache_log *log, uint64_t calls);
struct log_mark cache_log_head(const struct cache_log *log);
/* What was put before this mark is over: tail_moved(). Clean: the log is closed. One at a time. */
void cache_log_move_tail(struct cache_log *log, struct log_mark mark, bool clean);
bool cache_log_is_empty(const struct cache_log *log);
bool cache_log_is_dead(const struct cache_log *log);
/* Of the ring, in use. */
unsigned cache_log_fill_permille(const struct cache_log *log);
/* Room for what is put is gone: counted. */
void cache_log_was_full(struct cache_log *log);

#endif
