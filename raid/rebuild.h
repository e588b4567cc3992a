/* What the array and other kinds of jobs need to know of the rebuild: raid/rebuild.c. Inside of an array only. */
#ifndef RAID_REBUILD_H
#define RAID_REBUILD_H

#include "raid/jobs.h"

/* What a pass has done of one volume. */
struct rebuild_rows {
    uint8_t *done; /* a bit a row; NULL: no pass, or no memory */
    uint64_t done_count;
    uint64_t trusted; /* where the pass of a run before had come to */
    uint64_t low;     /* all written rows in [trusted, low) are done */
    uint64_t noted;   /* the position for the next generation */
};

void rebuild_init(struct array *array);
void rebuild_fini(struct array *array);
/* The maps are as they are, and nobody has written yet: a pass that was under way goes on. */
void rebuild_resume(struct array *array);
/* A volume has another number: `from` is no volume any more, and what `to` was is forgotten. */
void rebuild_renumber(struct array *array, unsigned from, unsigned to);
/* A member is lost: if it comes back it starts anew. */
void rebuild_member_lost(struct array *array, unsigned slot);
/* All of a row was written to all members that take writes. */
void rebuild_row_written(struct array *array, const struct region_map *map, uint64_t row);
/* Has a pass done rows of this volume, so that SUSPECT rows are to be left alone (B4)? */
bool rebuild_owns(const struct array *array, unsigned volume);

/* To bring the position to disk: look, flush, note, commit. */
void rebuild_look(struct array *array);
void rebuild_note(struct array *array);
bool rebuild_still(const struct array *array); /* nothing of its own is under way */

#endif
