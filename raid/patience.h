/*
 * Patience: a block device over a disk that bounds how long anybody waits for it.
 *
 *   soft deadline   ten times what 99 of 100 reads take, at least 250 ms (rotational) or 50 ms. A read that says
 *                   BLK_IMPATIENT is answered BLK_LATE then, and whoever asked gets the bytes elsewhere. At most one
 *                   read in twenty, and only as long as the pages that this gives away leave enough for any request.
 *   hard deadline   8 s; writing zeroes and discarding get more by their length. Everything is answered BLK_TIMEOUT.
 *
 * T1  What was given up goes on beneath. Until the disk has answered it counts in `overdue` of this device: a write may
 *     still land, so the disk may be written by nobody else, and comes back only when blk_is_quiet().
 * T2  A late answer never touches a page that the owner has: of a read that is given up the owner gets other pages for
 *     those that it brought (core/blkdev.h, 5), and pages of which it reads a part only are never lent to the disk. Of
 *     a write the pages are held until the disk has answered, also beyond the life of whoever owned them
 *     (page_pool_retire()).
 * T3  Nothing is allocated. Contexts and pages to give away are counted before a request is passed on; when they are
 *     all in use requests wait in order, and no longer than the hard deadline.
 * T4  Closing ends: a disk that has not answered within the hard deadline is left alone with what it holds. It is closed,
 *     and this device freed, when it answers.
 *
 * It also measures: raid/latency.h.
 */
#ifndef RAID_PATIENCE_H
#define RAID_PATIENCE_H

#include "core/blkdev.h"
#include "raid/latency.h"

struct patience_options {
    uint64_t soft_ns, hard_ns; /* the least soft deadline, the hard deadline; 0: the usual */
    unsigned contexts;         /* requests beneath at once; 0: 256 */
    uint32_t reserve;          /* pages to give away; 0: 32 MiB, taken from the system when first used */
};

/* Closes `below` with itself. NULL: no memory; `below` stays the caller's. */
struct blkdev *patience_create(struct loop *loop, struct blkdev *below, const struct patience_options *options);

struct patience_counters {
    uint64_t late, timed_out; /* answered BLK_LATE, BLK_TIMEOUT */
    uint64_t p99_ns, soft_ns; /* of reads, and the deadline that follows from it */
};

/* The part that is compared with others, and the counters; NULL: `dev` is another kind of device. */
struct peer *patience_peer(struct blkdev *dev);
const struct patience_counters *patience_counters(const struct blkdev *dev);
struct blkdev *patience_peer_dev(struct peer *peer);

#endif
