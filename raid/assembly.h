/*
 * Which disks make which array, and may it start: decided from values alone.
 *
 * Given the labels found on all disks, in any order, the same answer. The rules (docs/architecture.md, "Stale data"):
 *   - disks belong together by array UUID; the winner is the label whose history contains all others' (fork ids), and
 *     of those the one with the highest generation;
 *   - a member's role is read from the winner's table, never from itself;
 *   - a member is current if its slot is active there and its label stands on the winner's history, not below the
 *     generation that is known to be committed; another one is stale: its slot counts as absent;
 *   - so is one that would be current, but has lost the label at its tail as no crash can: it was cut short, and made as
 *     long again;
 *   - a stale disk that just was not there, and lacks no more than the region maps know, has returned: when the array
 *     runs it may be brought in without asking, to be caught up (raid/array_online.c);
 *   - labels neither of whose histories contains the other: split brain; started only if one is preferred;
 *   - the same member UUID twice: a clone; refused unless exactly one matches the recorded identity;
 *   - members away that no failure was recorded of, and a volume that cannot do without them: not started, and says
 *     which it waits for;
 *   - a member that is there but cannot be used (it shrank, another program holds it) is away, and what it knows counts;
 *   - degraded and not clean: acknowledged writes may be missing from parity levels without a journal, in rows that the
 *     region map calls dirty: only by force.
 *
 * This rests on how a running array writes its labels:
 *   - a change is acted upon only when all live members have it, and the next one begins only then. After that
 *     sb_array.committed may be raised to it; what is given out here has it raised to what all current members have;
 *   - who runs on without a member writes that member as failed or absent, and a new fork, in one generation;
 *   - opening writes a generation before anything is served, and with a new fork if any slot is not live: else two
 *     torn attempts could use one generation for two things.
 *
 * A choice in a split brain is remembered: the losers' forks stand as settled in the description given out.
 */
#ifndef RAID_ASSEMBLY_H
#define RAID_ASSEMBLY_H

#include "raid/superblock.h"

enum { ASSEMBLY_DISKS_MAX = RAID_MEMBERS_MAX * 4 };

struct assembly_disk {
    const struct sb_label *label;
    const char *identity; /* as seen now */
    const char *name;     /* for messages: the path in the config */
    /* NULL, or why it cannot be used, a sentence that names it: its label counts, as it tells what the others may have
     * missed, but its slot does not. */
    const char *unusable;
};

enum assembly_verdict {
    ASSEMBLY_COMPLETE,       /* all members current */
    ASSEMBLY_DEGRADED,       /* enough for every volume, or for all that had not failed before, or forced */
    ASSEMBLY_WAITING,        /* too few; `reason` names the slots and identities waited for */
    ASSEMBLY_DIRTY_DEGRADED, /* needs force */
    ASSEMBLY_SPLIT,          /* split brain; `reason` tells both histories */
    ASSEMBLY_CLONE,
};

struct assembly {
    enum assembly_verdict verdict;
    bool startable;
    struct sb_array array;                  /* the winner's */
    int disk_of_slot[RAID_MEMBERS_MAX];     /* index into the disks given, -1: absent */
    int returned_of_slot[RAID_MEMBERS_MAX]; /* so: of an absent one, the disk that array_online_member() may catch up */
    unsigned place_of_slot[RAID_MEMBERS_MAX]; /* sb_label.place of that disk's label */
    bool stale_of_disk[ASSEMBLY_DISKS_MAX];   /* by index into the disks given, for those of this array */
    char reason[1024];                        /* always a sentence for people */
};

struct assembly_options {
    bool force;         /* start dirty degraded arrays, also without some volumes; take the winner of a split brain */
    struct uuid prefer; /* member UUID whose history wins a split brain; nil: none */
};

/*
 * Decide all arrays found among `count` disks (at most ASSEMBLY_DISKS_MAX). Returns how many; at most `max` are
 * written to `out`, in order of the array's UUID.
 */
unsigned assembly_decide(const struct assembly_disk *disks, unsigned count, const struct assembly_options *options,
                         struct assembly *out, unsigned max);

const char *assembly_verdict_name(enum assembly_verdict verdict);

#endif
