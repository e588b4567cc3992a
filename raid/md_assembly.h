/*
 * From the superblocks of disks to an array of Linux md that can be read: a decision, as a value.
 *
 * What is not understood to the end is not taken: md's own tools can bring an array into a state that is (stop it clean,
 * let a resync or reshape come to its end). Of the disks
 *   - those with the most events are current, and have to agree about who is in the array;
 *   - their table says which slot a disk has; a spare, a faulty disk, one that is not filled yet, and one that was away
 *     while the others went on are left out;
 *   - what is missing then must be no more than the level bears.
 *
 * Levels 0, 1, 4, 5, 6 and 10 with near copies. On two disks RAID 5 is two copies, and is read as such.
 */
#ifndef RAID_MD_ASSEMBLY_H
#define RAID_MD_ASSEMBLY_H

#include "raid/layout.h"
#include "raid/md_superblock.h"

enum { MD_DISKS_MAX = 2 * RAID_MEMBERS_MAX };

struct md_disk {
    const char *name;
    const struct md_superblock *sb;
    uint64_t bytes;      /* of the disk */
    uint64_t suspect;    /* bits set in its bitmap; 0: there is none */
    const char *trouble; /* its bitmap or bad block log cannot be used, and why; or NULL */
};

enum md_standing { MD_CURRENT, MD_STALE, MD_IS_SPARE, MD_IS_FAULTY, MD_FILLING, MD_REPLACES, MD_STRANGER };
const char *md_standing_name(enum md_standing standing); /* "current", "was away while the others went on", ... */

struct md_set {
    bool usable;
    char reason[400];               /* a sentence: what it is, or why it is not usable */
    const struct md_superblock *sb; /* of a current disk: the caller's */
    enum md_standing standing[MD_DISKS_MAX];
    /* Where it is usable: */
    struct layout layout;
    uint64_t size;
    unsigned missing;
    int disk_of_slot[RAID_MEMBERS_MAX]; /* -1: missing */
};

/* At least one disk, at most MD_DISKS_MAX. */
void md_decide(const struct md_disk *disks, unsigned count, struct md_set *set);

/* "raid5", "raid10", ..., "level -4": as md calls it. */
void md_level_name(int32_t level, char *out, size_t out_len);

#endif
