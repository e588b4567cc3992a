/*
 * A cache over a volume, on the volume's loop: reads that hit are answered from memory, by reference.
 *
 * It is a block device above, and a user of one below. Jobs work below it, on the volume, which is coherent without the
 * cache: what they read and write there is what every initiator's completed request made of it, or, for data that is
 * still dirty here, what it was before.
 *
 *      target ---> cache.c ---> read.c     blocks that are here: by reference; others: fetched, once for all who wait
 *                     |    ---> change.c   writes, discards and write-zeroes that go below
 *                     |    ---> flush.c
 *                     v
 *                  block.c     4 KiB blocks, and what is known of each sector; policy_*.c: who leaves
 *
 * All memory is taken by cache_create(): pages of a pool of its own, and below 2 % of their bytes for their
 * administration; beside that some contexts, the same number for every size. When contexts run dry, requests wait in
 * order. When pages do, because readers hold them, reads and writes pass the cache by: it is slow then, never wrong.
 */
#ifndef CACHE_CACHE_H
#define CACHE_CACHE_H

#include "cache/policy.h"
#include "core/blkdev.h"

struct cache;

struct cache_options {
    const char *name;
    uint64_t bytes;                        /* of pages; at least CACHE_BYTES_MIN */
    const struct cache_policy_ops *policy; /* NULL: the best, by docs/cache.md */
};
#define CACHE_BYTES_MIN (256 * KIB)

struct cache_status {
    uint64_t bytes, used_bytes;    /* of pages */
    uint64_t overhead_bytes;       /* beside them, for their administration */
    uint64_t hits, misses;         /* reads that were answered from memory alone; the others */
    uint64_t hit_bytes, passed_by; /* bytes of reads that were here at once; reads below that nobody kept */
    uint64_t evicted;              /* blocks */
    const char *policy;
};

/* NULL if memory is short. The volume is lent; it outlives the cache. */
struct cache *cache_create(struct blkdev *below, const struct cache_options *options);
struct blkdev *cache_dev(struct cache *cache);
void cache_status(const struct cache *cache, struct cache_status *out);

#endif
