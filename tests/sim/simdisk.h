/*
 * A simulated disk: a medium, a volatile cache before it, and everything that can go wrong with either.
 *
 *   requests --> in flight --(latency)--> completed, in the cache --(flush, FUA)--> on the medium
 *
 * Reads see the cache. When the power goes, each write that is in the cache or in flight is kept, lost or torn at
 * blocks of 512 bytes, independently of all others; of what a block was given the latest that was kept stands. When
 * only the process dies, or the cable goes, the cache survives and the fate of what was in flight is drawn alike.
 *
 * Memory is sparse: 4 KiB at a time, when first written; what was never written is zero. The disk keeps a copy of what
 * it was given to write and checks, when it answers, that the pages still hold that (contract 5 of core/blkdev.h).
 */
#ifndef TESTS_SIM_SIMDISK_H
#define TESTS_SIM_SIMDISK_H

#include <sys/queue.h>

#include "core/blkdev.h"
#include "tests/sim/dice.h"

enum { SIM_SECTOR = 512 };

struct simdisk;
struct simblock;
struct simwrite;
struct simrequest;

struct simdisk_watch {
    /* A request is about to be answered. */
    void (*answered)(struct simdisk_watch *, struct simdisk *, const struct blk_req *, enum blk_status);
    /* A request has come that will be answered late. */
    void (*hangs)(struct simdisk_watch *, struct simdisk *);
};

/* What a disk is like; the faults are those that may be set from outside at any time. */
struct simdisk {
    struct blkdev dev;
    unsigned number;
    struct simdisk_watch *watch;
    struct dice dice;

    bool off;             /* the power is off, or the process dead: nothing is heard, every answer is BLK_GONE */
    bool gone;            /* as off, for this disk: pulled, or its cable */
    bool dead;            /* the same for ever */
    uint64_t latency_ns;  /* of most requests, about */
    unsigned slow;        /* times the latency; 0: as usual */
    unsigned reads_fail;  /* so many reads to come answer BLK_MEDIA although the medium is well */
    unsigned writes_fail; /* so many writes to come are refused with BLK_MEDIA */
    unsigned time_outs;   /* so many requests to come are answered late: after up to some minutes, well or not */
    unsigned failing;     /* requests under way that will be answered with an error */
    uint64_t bad_sectors; /* unreadable until overwritten */

    uint64_t last_error_ns; /* when a request was last answered with an error */
    struct blkdev *front;   /* the patience before it (raid/patience.h), or NULL */
    struct simblock **blocks;
    uint64_t blocks_count, sequence;
    TAILQ_HEAD(, simwrite) cache;
    LIST_HEAD(, simrequest) in_flight;
};

struct simdisk *simdisk_create(struct loop *loop, unsigned number, const struct blk_info *info, struct dice dice,
                               struct simdisk_watch *watch);
/* Nothing may be in flight. */
void simdisk_destroy(struct simdisk *disk);

/* The power goes (or only the process, or the cable): `state`, its `off`, `gone` or `dead`, becomes true, and what is
 * in flight is answered BLK_GONE. */
void simdisk_cut(struct simdisk *disk, bool power, bool *state);

/* A block of 512 bytes cannot be read from now on, until it is written. */
void simdisk_spoil(struct simdisk *disk, uint64_t off);
void simdisk_heal(struct simdisk *disk);

/* Bytes put on the medium from outside. */
void simdisk_put(struct simdisk *disk, uint64_t off, const void *bytes, uint64_t len);
/* What the medium holds in the block of 4 KiB at `off`, without the cache; NULL: zeroes. */
const uint8_t *simdisk_medium(const struct simdisk *disk, uint64_t off);
/* Is something in [off, off + len) only in the cache? */
bool simdisk_is_volatile(const struct simdisk *disk, uint64_t off, uint64_t len);
/* Is a flush under way? */
bool simdisk_is_flushing(const struct simdisk *disk);

#endif
