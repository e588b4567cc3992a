/*
 * The journal of an array on its members: records in groups, ring space, and when a record is over.
 *
 * Part of the inside of an array (raid/array_impl.h). The pure part, and the words, are in raid/journal.h; what happens
 * to it after a crash in raid/journal_replay.h. Each member has a ring, its journal area, and logs its own parts there.
 *
 *                records, or a tail to be moved
 *      IDLE ------------------------------------> WRITING ------> RECORDING ------> IDLE
 *        |                                           ^  entries on    losses on
 *        |  a flush is wanted first                  |  all members   disk: the rows
 *        +------------------> FLUSHING --------------+                may go on
 *                             flushed, and for a
 *                             tail losses on disk
 *
 * J1  A row is written in place only when its record is durable on every member that takes part and is live, and the
 *     loss of those that are not is on disk. So a record that lacks a part on a member that survived was not begun.
 * J2  A record is over when its writes in place are done, a flush of all members came behind, and losses are on disk
 *     then. `tail`: all ids below are over. Entries tell the tail as it is in memory.
 * J3  Only what is below a tail that stands on all live members (a TAIL entry each, durable) is overwritten, or may be
 *     forgotten: tails in the entries of a few members may be lost with them.
 * J4  Policy ppl: a record of a row that was written since the last flush is logged only behind another flush: the
 *     exclusive or of chunks says nothing about chunks that a power failure takes back.
 * J5  One group at a time; the next one forms meanwhile. A record that finds no room waits, and all behind it: then a
 *     tail is moved. It is moved when a ring is half full as well, and when somebody waits for it.
 * J6  A member that cannot write its part is lost (raid/journal_io.h).
 * J7  Before a member joins, all there was is below a durable tail (journal_settle): what it held before, of this
 *     epoch, can then not be taken for its part, and no record lacks it. When it has joined it is given a tail at once
 *     (journal_joined), since it may outlive those that have one.
 * J8  Before a row is given back to UNWRITTEN, or after a write to it failed half-way, nothing of it is live
 *     (journal_forget): else a replay could put old bytes over what is written later without a record.
 * J9  Memory is fixed: headers from a pool of its own, payload is the rows' pages, lent until the record is durable.
 * J10 On a frozen array all is over at once, but for what is being written, which is over when it has come back.
 */
#ifndef RAID_JOURNAL_STORE_H
#define RAID_JOURNAL_STORE_H

#include "raid/journal.h"

struct array;
struct journal;

/* Of an array whose volumes are laid out, for the epoch in its description. NULL: no memory. */
struct journal *journal_create(struct array *array);
void journal_destroy(struct journal *journal); /* idle */
bool journal_idle(const struct journal *journal);
void journal_frozen(struct journal *journal);

/* Log it; record->task runs when it is over. Then write in place, and say so when that is done. */
void journal_write(struct journal *journal, struct journal_record *record);
void journal_written(struct journal *journal, struct journal_record *record);

/* A member takes writes from now on. */
void journal_joined(struct journal *journal);

/* Somebody waits for a durable tail. */
struct journal_wait {
    TAILQ_ENTRY(journal_wait) link;
    uint64_t until; /* the last id that is to be below it */
    struct task *task;
    bool over; /* set, or the array is frozen; then the task is deferred */
};
/* True: there is nothing of this row, of which no record is under way. Else wait->task runs when that is so. */
bool journal_forget(struct journal *journal, const struct uuid *volume, uint64_t row, struct journal_wait *wait);
/* The same for all records so far. */
bool journal_settle(struct journal *journal, struct journal_wait *wait);

#endif
