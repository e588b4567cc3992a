/*
 * Relayout of a volume of an array: from one shape to another, in place, while it is served. docs/relayout.md has the
 * words and the algorithm; raid/relayout_plan.h the pure part.
 *
 * It is a job like others (raid/jobs.h): it waits behind rebuild and resync, has the volume's priority and rates, is
 * paused with the volume (array_pause_volume()), is shown in array_info(), and goes on after a restart. One at a
 * time in
 * an array.
 *
 * While it runs the description has two entries of the volume's name: the old side, at the index that the volume has
 * always had, and behind all others the new side (array_volume_is_new_side()), which people are not to be shown as a
 * volume of its own. At the end the new side's shape stands in the old one's place; name, UUID, size and what is
 * kept for
 * its users are as before. The volume's size never changes by it.
 */
#ifndef RAID_RELAYOUT_H
#define RAID_RELAYOUT_H

#include "raid/array.h"

/* What the volume is to be like. */
struct array_relayout_spec {
    /* Complete but for: members 0: all of the array (jbod: 1); chunk 0: as it is. */
    struct layout_spec layout;
    bool consistency_given; /* else as it is, if the new shape can have that; or the default of its level */
    enum sb_consistency consistency;
};

struct array_relayout_plan {
    struct layout_spec layout; /* complete */
    enum sb_consistency consistency;
    uint64_t start, extent; /* where it will lie in the data area of each member, bytes */
    bool backward;          /* from the last byte to the first */
    uint64_t read, written; /* bytes, of all members together, at most: what was never written is passed over */
    uint64_t logged;        /* of them written twice, and read once more, about */
    unsigned tolerance;     /* members that may be lost meanwhile, in the worst case, with all of them there */
    unsigned tolerance_before, tolerance_after;
    uint64_t extent_before; /* bytes of each member that it takes now */
};

/*
 * Could it be, and what would it cost? Pure. `lost`: array slots that cannot be read now. spec->layout.members may
 * be more
 * than the array has: as if so many disks had been added. NULL, and *plan; or a sentence with the numbers.
 */
const char *array_relayout_plan(const struct sb_array *description, unsigned volume, uint64_t lost,
                                const struct array_relayout_spec *spec, struct array_relayout_plan *plan, char *why,
                                size_t why_len);

/*
 * Begin it. The call is over when it is on all live members that it has begun, or it was refused, with the sentence of
 * the plan, or -EBUSY: not now.
 */
void array_relayout_start(struct array *array, unsigned volume, const struct array_relayout_spec *spec,
                          struct array_call *call);

/* The one that is under way. */
struct array_relayout_progress {
    unsigned volume; /* the old side, by index in the description */
    struct layout_spec from, to;
    bool backward;
    uint64_t passed, size; /* bytes of the volume */
};
bool array_relayout_progress(const struct array *array, struct array_relayout_progress *out); /* false: none is */

/* Is this entry of a description only the other side of a volume that stands there already? */
static inline bool array_volume_is_new_side(const struct sb_volume *volume)
{
    return sb_volume_is_new_side(volume);
}

/*
 * One more slot, behind the others, for a blank disk that is large enough for what is on the others. No volume lies on
 * it until a relayout takes one there. The call is over when it is in service.
 */
void array_add_member(struct array *array, const struct array_disk *disk, struct array_call *call);

/*
 * Take the last slot away, on which no volume lies. The call is over when no other member knows of it; then its disk, if
 * there was one, is lent no more, and no member of any array (unless it could not be erased).
 */
void array_remove_member(struct array *array, struct array_call *call);

#endif
