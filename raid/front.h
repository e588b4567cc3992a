/*
 * What is served of a volume: a block device before one volume, or before both sides of a relayout.
 *
 *   one side    each request is the volume's, as it is
 *   two sides   the position parts them; before the old side's bytes that are next lies the window, which is being
 *   moved
 *
 *      forward     [ new side ...  position | window | ... old side ]
 *      backward    [ old side ... | window | position ... new side ]
 *
 * F1  A request goes to the side whose bytes it is for; one that is for both is cut at the position, once.
 * F2  A request that touches the window waits as a whole, if it is to wait there (enum front_hold), in order of
 *    arrival; and
 *     goes its way when the window is gone. A read that need not wait is the old side's.
 * F3  A flush is one of both sides, as far as they hold something.
 * F4  A request that was passed on is its side's: the position moves without looking back at it. Who is to overwrite
 *    what
 *     it reads or writes asks that side first (volume_busy_within()).
 *
 * Memory is taken when the second side comes. Part of the inside of an array (raid/array_impl.h).
 */
#ifndef RAID_FRONT_H
#define RAID_FRONT_H

#include "raid/volume.h"

struct front;
/* REFUSE: nothing can be had there now; BLK_GONE, at once. */
enum front_hold { FRONT_PASS, FRONT_HOLD_WRITES, FRONT_HOLD_ALL, FRONT_REFUSE };

/* NULL: no memory. Close with blk_close(front_dev()), then the volumes. */
struct front *front_create(struct loop *loop, const char *name, struct volume *volume);
struct blkdev *front_dev(struct front *front);

/* The volume is the old side from now on. `waits` (may be NULL) is deferred when a request begins to wait. False: no
 * memory. */
bool front_split(struct front *front, struct volume *new_side, bool backward, uint64_t position, struct task *waits);
/* From the position to this one there is a window; the same: there is none, and who waited goes on. */
void front_window(struct front *front, uint64_t moving, enum front_hold hold);
/* The window is gone, and the position here. */
void front_move(struct front *front, uint64_t position);
bool front_is_waited_for(const struct front *front);
/* Nothing is under way that is for both sides, and will not be: all was passed. */
bool front_is_joinable(const struct front *front);
/* Only that side is left: the other one has nothing under way. */
void front_join(struct front *front, struct volume *volume);

#endif
