/*
 * The histories of labels compared: which contains which, and which wins. Used by assembly.c; pure functions.
 *
 * A history is the list of forks of a description: under each the array ran from one generation to the next fork's.
 */
#ifndef RAID_ASSEMBLY_HISTORY_H
#define RAID_ASSEMBLY_HISTORY_H

#include "raid/superblock.h"

/*
 * Is the point at which `old` stands part of the history of `whole`? True also if both stand at the same point. False
 * means that `old` knows something that `whole` does not: later, or apart from it.
 */
bool history_contains(const struct sb_array *whole, const struct sb_array *old);

/* Does `old` stand before all that `whole` remembers, so that it may be part of it without being known? */
bool history_forgot(const struct sb_array *whole, const struct sb_array *old);

/* Has a live member of `winner` whose label says `label` missed nothing that was acted upon? */
bool history_is_current(const struct sb_array *winner, const struct sb_array *label);

/*
 * The ends: descriptions that no other one goes beyond, one for each. Writes their indices to `ends` (of `count`) and
 * returns how many; one means that it is the winner. Of equals one is taken, preferably not clean.
 */
unsigned history_ends(const struct sb_array *const *arrays, unsigned count, unsigned *ends);

/* Remember in `winner` that `loser` lost: from now on winner's history contains loser's, as far as it went by now. */
void history_settle(struct sb_array *winner, const struct sb_array *loser);

/*
 * Room for one more line. Of two lines in a row that all members have left the first can speak for both; if there are no
 * such two the oldest line is forgotten, and who stands there will count as having run apart, unless a member that was
 * live with it then still is.
 */
void history_make_room(struct sb_array *array);

/* The last line of a history. */
const struct sb_fork *history_present(const struct sb_array *array);

/*
 * Is this the label of the member that was in `slot` when it left us, under a history that is part of ours? Had it run
 * apart since, it would carry a fork that we do not know.
 */
bool history_is_of_slot(const struct sb_array *ours, unsigned slot, const struct sb_label *label);
/* May that member be caught up: is it no older than what the region maps hold, and the very disk (`identity`)? */
bool history_can_catch_up(const struct sb_array *ours, unsigned slot, const struct sb_label *label,
                          const char *identity);

#endif
