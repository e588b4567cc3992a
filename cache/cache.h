/*
 * A cache over a volume, on the volume's loop: reads that hit are answered from memory, by reference; writes are kept,
 * and destaged in the order of the disk, in full rows where that can be.
 *
 * It is a block device above, and a user of one below. Jobs work below it, on the volume, which is coherent without the
 * cache: what they read and write there is what every initiator's completed request made of it, or, for data that is
 * still dirty here, what it was before.
 *
 *      target ---> cache.c ---> read.c      blocks that are here: by reference; others: fetched, once for all who wait
 *                     |    ---> change.c    writes, discards and write-zeroes that go below
 *                     |           absorb.c  writes that stay here
 *                     |    ---> flush.c     what a flush waits for; emptying the cache
 *                     |         destage.c   what leaves, when, and in which order
 *                     |         gaps.c      what a row lacks is read, where that costs less than going in parts
 *                     |         mode.c      which of it goes, by protection and power
 *                     |         settle.c    what is below, but not for certain yet
 *                     |         claim.c     whether the volume may be served without what is here
 *                     |         commit.c    what must be in the log before a flush is answered, and before a line leaves
 *                     v
 *                  block.c      4 KiB blocks, and what is known of each sector; policy_*.c: who leaves
 *                  readahead.c  what is likely to be read next
 *                  line.c       rows with dirty blocks
 *                  arena.c      pages that outlive the process; recover.c: what the last one left in them
 *                  log.c        a ring on a device that outlives power; log_replay.c: what the last one left in it
 *
 * All memory is taken by cache_create(): pages of a pool of its own, and below 2 % of their bytes for their
 * administration; beside that some contexts, the same number for every size. When contexts run dry, requests wait in
 * order. When pages do, because readers hold them, reads and writes pass the cache by: it is slow then, never wrong.
 *
 * What a completed write means (struct blk_info, volatile_cache, says so to initiators at any time):
 *
 *      mode     in force when                       a write is answered     a flush, FUA
 *      through  write-back is off                   by the volume           by the volume
 *      none     protection none                     in memory               when what it covers is below and flushed
 *      safe     forced; pmem; healthy battery       in memory               at once
 *      strict   pmem, battery: safe cannot be       by the volume, durable  when what was dirty is below and flushed
 *      logged   journal                             in memory               when what it covers is in the log
 *
 * strict is for initiators that were told that there is no volatile cache and do not ask again: every write is durable
 * when it is answered, so they were told the truth. Where options say so (flush_when_bad), none stands in its place
 * while a battery is not healthy: faster, but volatile_cache changes, and initiators must hear of it.
 *
 * With an arena (cache/arena.h) or a log (cache/log.h), safe and logged are in force only while the volume's newest bytes
 * are claimed for it: see struct cache_owner. Until then strict and none stand in their places. With neither there is
 * no claim: a cache in plain memory is lost with the process, whatever its protection.
 *
 * Whatever the mode: while destaging fails, writes go through; what is dirty stays dirty, and is tried again.
 */
#ifndef CACHE_CACHE_H
#define CACHE_CACHE_H

#include "cache/policy.h"
#include "cache/readahead.h"
#include "core/blkdev.h"

struct cache;
struct cache_owner;
struct arena;
struct cache_log;

enum cache_protection {
    CACHE_PROTECT_NONE,
    CACHE_PROTECT_BATTERY,
    CACHE_PROTECT_FORCED,
    CACHE_PROTECT_JOURNAL, /* by a log */
    CACHE_PROTECT_PMEM,    /* by an arena that outlives a power failure */
};
enum cache_mode { CACHE_THROUGH, CACHE_NONE, CACHE_SAFE, CACHE_STRICT, CACHE_LOGGED };

struct cache_owner {
    /* cache_status() has something else to say of mode, volatile_cache, trouble or empty. */
    void (*changed)(struct cache_owner *, struct cache *);
    /*
     * From now on, or until then, the volume must not be served without this cache's arena or log: note so beside the
     * volume, durably, and answer with cache_claimed(), now or later. NULL: there is no such place; the claim counts as
     * held.
     */
    void (*claim)(struct cache_owner *, struct cache *, bool held);
};

struct cache_options {
    const char *name;
    uint64_t bytes;                        /* of pages; at least CACHE_BYTES_MIN */
    const struct cache_policy_ops *policy; /* NULL: the best, by docs/cache.md */
    enum readahead_mode readahead;
    bool write_back;
    enum cache_protection protection; /* of what was written and is here only */
    bool flush_when_bad;
    /* Percent of the dirty limit: destaging begins; it is at its fastest, and writes begin to wait. 0: 40, 80 */
    unsigned low_percent, high_percent;
    unsigned age_ms,
        idle_ms; /* what is dirty for so long leaves; all leaves when nobody asks for so long. 0: 5000, 100 */
    struct cache_owner *owner; /* NULL: nobody */
    /* Lent; each outlives the cache. NULL: none. */
    struct arena *arena;   /* its size is the cache's; what is dirty in it is dirty in the cache */
    struct cache_log *log; /* for the protection journal, and for no other; then there is no arena */
    bool claimed;          /* the claim stands from the last time; for an arena that is not clean it does */
};
#define CACHE_BYTES_MIN (64 * KIB)

struct cache_status {
    uint64_t bytes, used_bytes; /* of pages */
    uint64_t overhead_bytes;    /* beside them, for their administration */
    uint64_t hits, misses;      /* reads that were answered from memory alone; the others */
    uint64_t hit_bytes;         /* of reads, that were here when they were asked for */
    uint64_t passed_by;         /* reads below that nobody kept, for want of pages or after an error */
    uint64_t evicted;           /* blocks */
    /* Read ahead: asked for; of it, used by a reader before it left, and not. */
    uint64_t ahead_bytes, ahead_used_bytes, ahead_wasted_bytes;
    const char *policy;

    enum cache_mode mode;    /* in force; see cache_mode_name() */
    const char *reason;      /* why it is not what was asked for; NULL: it is */
    bool volatile_cache;     /* what initiators are told */
    bool claimed;            /* the volume must not be served without this cache's arena or log */
    enum blk_status trouble; /* the last destage failed so, and no other succeeded since the next try; or BLK_OK */
    uint64_t dirty_bytes, dirty_limit;
    uint64_t settling_bytes; /* destaged, and kept in the arena until the volume has been flushed */
    /* Found in the arena when the cache was created: taken over, and beyond the end of the volume. */
    uint64_t recovered_bytes, recovered_beyond_bytes;
    uint64_t aside_lines;                               /* with dirty data whose destage failed */
    uint64_t absorbed, absorbed_bytes, rewritten_bytes; /* writes kept; of them, over what was still dirty */
    uint64_t through;                                   /* writes that went below */
    uint64_t delayed, delayed_ns;                       /* answers that waited for room, and how long together */
    uint64_t destages, destaged_bytes, full_rows, destage_errors; /* bytes that were dirty */
    uint64_t destage_rate;                                        /* of these, a second, while destaging; 0: not known */
};

/* NULL if memory is short. The volume is lent; it outlives the cache. Closing destages all and flushes. */
struct cache *cache_create(struct blkdev *below, const struct cache_options *options);
struct blkdev *cache_dev(struct cache *cache);
void cache_status(const struct cache *cache, struct cache_status *out);
const char *cache_mode_name(enum cache_mode mode);

/* Is the power that protects what is here healthy? A cache begins with no. With no everything dirty leaves. */
void cache_set_power(struct cache *cache, bool healthy);
/*
 * The owner's answer to claim(owner, cache, held). Not ok: all is as it was before the question, which is asked again in a
 * while, and, when a cache that closes gives back its claim, is not.
 */
void cache_claimed(struct cache *cache, bool held, bool ok);
/* No more dirty data than this, e.g. what a battery lasts for; at most, and at first, 3/4 of the cache. */
void cache_set_dirty_limit(struct cache *cache, uint64_t bytes);
/* There is little time: closing gives up after seconds, not a minute, on what cannot be written, whatever was promised. */
void cache_hurry(struct cache *cache, bool hurry);
/* Destage all that is dirty now, and flush, whatever the mode. The request is the caller's; `done` is set. */
void cache_drain(struct cache *cache, struct blk_req *req);

#endif
