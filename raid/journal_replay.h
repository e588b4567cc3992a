/*
 * After a crash: what stands in the journal is brought to its place.
 *
 * Part of the inside of an array, once, while it is opened: when the generation that says who is absent stands on the
 * members, and before a new epoch begins. So whoever was not asked is not asked in another attempt either, and what is
 * done here can be done again: the same entries, the same bytes, whenever it is cut off.
 *
 *   SCANNING    all members' rings are read; whole entries of the epoch are kept
 *   SETTLING    a member whose ring has blocks that cannot be read is lost, if the volumes bear it: some of its parts may
 *               be missing, and others not. Losses go to disk
 *   REPLAYING   what journal_choose() left, row by row in order, several rows at a time
 *
 * A row in which something could not be replayed is SUSPECT; so is one with a record that is not whole, if all its members
 * are there.
 */
#ifndef RAID_JOURNAL_REPLAY_H
#define RAID_JOURNAL_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

struct array;
struct task;
struct journal_replay;

/* `over` is deferred when all is done, or the array froze. NULL: no memory. */
struct journal_replay *journal_replay_start(struct array *array, struct task *over);
/*
 * Frees it; how many records were brought to their places. -ENOMEM: nothing was replayed. -EIO: no journal device could
 * be read to the end: what is there is to be replayed again.
 */
int journal_replay_end(struct journal_replay *replay, uint64_t *records);

#endif
