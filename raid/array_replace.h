/*
 * Replacement of a member by a blank disk while it serves on. Part of the inside of an array (raid/array_impl.h).
 *
 *      NONE -> LOOKING -> COPYING -> AREAS -> FLUSHING -> JOINING -> ENDING -> NONE
 *                 |          |         |         |           |         ^
 *                 +- unfit   +---------+---------+-----------+---------+  the old disk, or the new one, failed
 *                    NONE                                  TAKING BACK
 *
 * LOOKING      is the disk fit? Its label is read.
 * COPYING      the old disk has a shadow (raid/shadow.h): what is written goes to both. A job copies, row by row, what
 *              was ever written. Nothing is on disk about it: a crash falls back to the old disk.
 * AREAS        the region maps and the journal's ring are copied as they are.
 * FLUSHING     both disks are flushed.
 * JOINING      from here on the shadow is strict. One generation makes the new disk the member, under an identity of its
 *              own, ACTIVE at once. Its label is first written on the new disk; then on the others; the old one gets none.
 * TAKING BACK  its label could not be written: one more generation says that the old disk is the member.
 * ENDING       waits until nothing is on its way to the disk that is left over. An old one loses its label.
 *
 * P1  Wherever a crash comes: the new disk is the member's only if its label says so, and then all that was ever
 *     acknowledged is on it, and durable as far as it was asked for. Until the others say so too the old disk is as good.
 * P2  No volume is without a member in between, with redundancy or not.
 * P3  The old disk's identity is in no table any more, and it is left behind by a new fork: it is refused if it comes back.
 * P4  A row that was being filled when the shadow came may be on it in part only: such a row is filled anew, as when a
 *     disk joins (member->disks).
 * P5  An error of the new disk before JOINING ends the replacement and harms nothing. Then the disks are one: it counts
 *     as an error of the member.
 */
#ifndef RAID_ARRAY_REPLACE_H
#define RAID_ARRAY_REPLACE_H

#include "raid/array.h"
#include "raid/jobs.h"
#include "raid/label.h"
#include "raid/shadow.h"

enum replace_state {
    REPLACE_NONE,
    REPLACE_LOOKING,
    REPLACE_COPYING,
    REPLACE_AREAS,
    REPLACE_FLUSHING,
    REPLACE_JOINING,
    REPLACE_TAKING_BACK,
    REPLACE_ENDING,
};

struct replace_copy {
    struct shadow_copy copy;
    struct row_job *work; /* NULL: free */
    bool again;
};

struct array;

/* --- for the array --- */
void replace_init(struct array *array);
/* A member is lost, the array is frozen or is being closed: what is not decided yet ends. */
void replace_member_lost(struct array *array, unsigned slot);
void replace_stop(struct array *array, const char *why);
bool replace_is_over(const struct array *array);
/* Is it the disk that is filled? */
bool replace_is_target(const struct array *array, const struct member *member);
/*
 * Is the slot's disk the one that is being copied? Media errors do not take it out of service then: it is about to go,
 * and until it does its other bytes are redundancy.
 */
bool replace_needs(const struct array *array, unsigned slot);
void replace_target_failed(struct array *array, enum blk_status status);

/* --- for the job --- */
/* All rows are copied; or something is lost, which a copy would hide. */
void replace_rows_copied(struct array *array);
void replace_unreadable(struct array *array, const char *what);

/* --- for generations --- */
/* The new disk, if the next label of the slot goes to it; and is it the first? Then all others wait for it. */
struct blkdev *replace_joining(const struct array *array, unsigned slot);
bool replace_joins_first(const struct array *array, unsigned slot);
/* The first label is written, or not: then the description is as before, and the old disk gets the next one. */
void replace_labelled(struct array *array, enum blk_status status);

#endif
