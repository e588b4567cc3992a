/*
 * A shadow: a disk that is filled behind the back of another one, which serves on. Part of the inside of an array.
 *
 * It is a block device that stands in the place of the old disk. What is written within [from, end), and every flush,
 * goes to both disks side by side, and is over when both have answered; everything else, and every read, goes to the old
 * one alone. What stands there already is brought over by copies.
 *
 *      HOLDING ----> LENIENT ----> STRICT ----> NEW
 *                       |            |
 *                       +------------+--------> OLD
 *
 * HOLDING  requests and copies wait until those that went past the shadow, to the old disk, are answered.
 * LENIENT  an error of the new disk ends all: OLD, and its owner hears of it. Nobody else does.
 * STRICT   the disks are one: an error of either is the answer. While it is being decided which disk is the member.
 * NEW      the new disk's answer counts: for those who are still on their way here.
 * OLD      as if there were no shadow.
 *
 * D1  A copy holds its range from before it reads until it has written: writes that touch it wait, and it waits for
 *     those that are under way. So a copy never puts old bytes over new ones.
 * D2  An answer BLK_INVALID of the new disk is passed on, and is not an error: who asked will try another way.
 * D3  Writes of the same bytes go to the disks one after the other: in flight together, each disk would choose an order of
 *     its own, and what reads back would change when the new disk takes over.
 * D4  A write that the old disk refused and the new one did is answered when what the old disk holds there has been
 *     brought over again, durably: else reads would find the old bytes until the new disk takes over, and others then.
 *     So the new disk may take over only when there are no copies under way.
 */
#ifndef RAID_SHADOW_H
#define RAID_SHADOW_H

#include "core/blkdev.h"

enum shadow_mode { SHADOW_HOLDING, SHADOW_LENIENT, SHADOW_STRICT, SHADOW_NEW, SHADOW_OLD };

struct shadow;
struct shadow_owner {
    /* From LENIENT to OLD, by itself: the new disk answered so. */
    void (*failed)(struct shadow_owner *, enum blk_status status);
};

/* HOLDING, and then LENIENT by itself. NULL: no memory. */
struct shadow *shadow_create(struct blkdev *old, struct blkdev *new, uint64_t from, uint64_t end,
                             struct shadow_owner *owner);
void shadow_destroy(struct shadow *shadow); /* quiet */
struct blkdev *shadow_dev(struct shadow *shadow);
enum shadow_mode shadow_mode(const struct shadow *shadow);
void shadow_set_mode(struct shadow *shadow, enum shadow_mode mode);
bool shadow_is_copying(const struct shadow *shadow);
/* No request or copy is under way. */
bool shadow_is_quiet(const struct shadow *shadow);

/* Bring a range over. Ranges of copies that are under way do not overlap. */
struct shadow_copy {
    /* Set by the owner. */
    uint64_t off, len; /* bytes, whole pages */
    bool mends;        /* D4: durable when done; blocks that the old disk cannot read stay as they are on the new one */
    void (*done)(struct shadow_copy *);
    /* Result. BLK_MEDIA: the old disk cannot read all of it. BLK_GONE: there is no shadow any more */
    enum blk_status status;
    /* shadow.c's. */
    struct shadow *shadow;
    LIST_ENTRY(shadow_copy) link; /* holds its range */
    struct blk_req req;
    struct page **pages; /* of the shadow; NULL: waits for some */
    unsigned buffer;
    uint64_t at, piece;
    bool draining, by_blocks;
    struct task task;
    STAILQ_ENTRY(shadow_copy) waiting;
};
void shadow_copy_start(struct shadow *shadow, struct shadow_copy *copy);

#endif
