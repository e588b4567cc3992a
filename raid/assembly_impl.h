/* What the files of assembly share: the facts about one array's disks. See raid/assembly.h for what it is all about. */
#ifndef RAID_ASSEMBLY_IMPL_H
#define RAID_ASSEMBLY_IMPL_H

#include "raid/assembly.h"

/* What a disk is to the winner. */
enum disk_role {
    DISK_CURRENT,
    DISK_UNUSABLE, /* would be current */
    DISK_CUT,      /* would be current, but has lost its end */
    DISK_CLONE,    /* carries the UUID of a member, but another disk is it */
    DISK_FOREIGN,  /* no member (any more): its slot went to another disk */
    DISK_FAILED,   /* written off */
    DISK_APART,    /* the array ran on without it, or it without the array */
    DISK_OLD,      /* of the same history, but behind */
};

/*
 * The disks of one array, in order of member UUID and name: what is decided over this list does not depend on the order
 * in which disks were found.
 */
struct disk_group {
    unsigned count;
    struct {
        const struct assembly_disk *disk;
        unsigned index; /* among the disks given */
        enum disk_role role;
        bool returned; /* may be caught up */
    } of[ASSEMBLY_DISKS_MAX];
    unsigned ends_count; /* histories nothing goes beyond; more than one: split brain */
    unsigned ends[ASSEMBLY_DISKS_MAX];
    uint64_t lost;         /* slots without a disk that can be read */
    uint64_t recorded;     /* of those, slots that the winner's table itself says are not active */
    uint64_t lost_volumes; /* volumes that cannot be served; bit = index */
    uint64_t suspects;     /* volumes whose redundancy may lack acknowledged writes */
    bool clones_unclear;
};

/* Write out->reason from the facts and the verdict. */
void assembly_explain(const struct disk_group *group, struct assembly *out);

#endif
