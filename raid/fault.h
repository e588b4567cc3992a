/*
 * The fault injector: a block device over another that misbehaves on request.
 *
 * For the tests, of raid/ and of whatever stands above it. Faults are rules; the first one that matches a request
 * applies. Everything else passes through.
 */
#ifndef RAID_FAULT_H
#define RAID_FAULT_H

#include "core/blkdev.h"

struct fault_rule {
    unsigned ops;           /* 1 << enum blk_op; 0: all */
    uint64_t off, len;      /* requests that touch this range; len 0: everything */
    enum blk_status status; /* what to answer; BLK_OK with a delay only slows down */
    uint64_t delay_ns;      /* before it is answered or passed on */
    uint32_t skip, count;   /* let `skip` matches pass, then apply `count` times; count 0: for ever */
    bool until_written;     /* a write that covers the range ends a media error, as on a disk that reallocates */
};

struct blkdev *fault_create(struct loop *loop, struct blkdev *below); /* closes `below` with itself */
/* Returns a number for fault_clear(), or -1 when 16 rules are in force. */
int fault_add(struct blkdev *fault, const struct fault_rule *rule);
void fault_clear(struct blkdev *fault, int number); /* -1: all */
/* From now on every request, also those in flight, is answered BLK_GONE; until fault_revive(). */
void fault_kill(struct blkdev *fault);
void fault_revive(struct blkdev *fault);

#endif
