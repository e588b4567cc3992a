/*
 * The region map of one volume on the members: loading it, and committing changes to it in groups.
 *
 * Part of the inside of an array (raid/array_impl.h). The pure part is raid/region_map.h.
 *
 *                 changes, or something to sweep                    all of it on all live members
 *        IDLE ----------------------------------> FLUSHING ... ------------------------------------> IDLE
 *         |
 *         |  a map to load, to lay out (all of it, or what is new), or to copy to a member that joined
 *         +--> READING <--> SCANNING --> ENDING ---------------------------------------------------> IDLE
 *
 * S1  A group of changes is made in memory when its turn comes, then written: first, if one of them asks for it, the
 *     members are flushed and losses are on disk; then each block that differs gets the next sequence and goes to all
 *     live members, durably. When losses up to then are on disk as well, the changes are over: else the member that was
 *     lost could go on alone from a map that does not say so, and take the others' disks back as its own. The next group
 *     forms meanwhile.
 * S2  A block's sequence goes up by one, and the next one begins only when this one stands on every member that is
 *     still live. So the newest block among current members is right, and no member is behind by more than one.
 * S3  A member that cannot write a block is lost, like one that cannot write its label.
 * S4  A member that joins gets the whole map before its rebuild begins, both slots of each block, so that nothing of
 *     what it held before can be taken for newer.
 * S5  DIRTY becomes CLEAN when a row was not touched for 5 to 10 s, or all of the array is quiet, and is not locked;
 *     first all members are flushed. In memory it is CLEAN before it is on disk, so that whoever writes again asks
 *     again, behind it.
 * S6  A block that no current member can vouch for is SUSPECT as a whole: never UNWRITTEN.
 * S7  On a frozen array all changes are over at once; the volumes answer them BLK_GONE.
 * S8  While a member of the volume is away, DIRTY does not become CLEAN; nor if one was lost in the flush of S5. And no
 *     row is written that is not DIRTY or SUSPECT on disk. So the rows that are are all that a member that is away may
 *     lack, from its loss on: what it was not given, and what it had in its cache only. This serves all members that
 *     are away, whenever each was lost; who may be caught up with it is told by sb_member.missed_from. With policies
 *     other than bitmap rows are written unmarked as long as nobody is away (volume_unmarked): a member that is lost
 *     before all of that is flushed is not caught up.
 * S9  What is loaded after a clean stop is taken as it stands. Else DIRTY rows are SUSPECT, and with policy resync all
 *     that were ever written. Rows that a journal replays are right in any case; but what a resync wrote may not have
 *     been durable.
 */
#ifndef RAID_MAP_STORE_H
#define RAID_MAP_STORE_H

#include "raid/region_map.h"

struct array;
struct map_store;

/* All UNWRITTEN. NULL: no memory. */
struct map_store *map_store_create(struct array *array, unsigned volume, uint64_t regions);
void map_store_destroy(struct map_store *store); /* idle */
struct region_map *map_store_map(struct map_store *store);

/*
 * Load the map from the current members and bring it to those that are behind; or, of a volume that has none yet, lay
 * it out on all of them. `over` is deferred when that is durable, or the array froze. False: no memory, and no `over`.
 */
bool map_store_open(struct map_store *store, bool fresh, struct task *over);

/*
 * The volume is to have more regions. `over` is deferred when those that are new are UNWRITTEN on all live members,
 * durably, whatever stood there, or the array froze. False: no memory, and no `over`.
 */
bool map_store_extend(struct map_store *store, uint64_t regions, struct task *over);
/* It has fewer: those beyond are UNWRITTEN, nothing is under way there, and they are forgotten. */
void map_store_truncate(struct map_store *store, uint64_t regions);

/* Its volume has another number in the description. */
void map_store_renumber(struct map_store *store, unsigned volume);
void map_store_change(struct region_map *map, struct region_change *change);
/* A member has joined. */
void map_store_copy(struct map_store *store, unsigned slot);
bool map_store_copying(const struct map_store *store);
/* Some row became DIRTY without a change on disk, or a member is back: there may be something to sweep in a while. */
void map_store_stir(struct map_store *store);
/* Make CLEAN what can be, now, and bring to disk what is in memory only. activity_look() is called when it is. */
void map_store_settle(struct map_store *store);
bool map_store_idle(const struct map_store *store);
/* Is all that memory knows on the members? */
bool map_store_saved(const struct map_store *store);
void map_store_frozen(struct map_store *store);

#endif
