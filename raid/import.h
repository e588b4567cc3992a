/*
 * An import: an array of Linux md, where it is, as a block device that is read only.
 *
 * It is raid/volume.h over the members' data areas, as raid/md_assembly.h found them: degraded reads, reads around slow
 * disks and bad blocks, all as in an array of ours. But there is no description and nobody who would write one: nothing
 * is ever written to these disks. What goes wrong is remembered as long as the import is open.
 *
 * A disk that is gone, or too slow too often, is done without where the level bears that, until the import is opened
 * again. Bytes that a disk cannot read are computed each time they are asked for.
 */
#ifndef RAID_IMPORT_H
#define RAID_IMPORT_H

#include "core/blkdev.h"
#include "raid/md_assembly.h"

struct import;

struct import_options {
    const char *name;
    const struct md_set *set;              /* usable */
    const struct md_disk *disks;           /* those it was decided from */
    struct blkdev *devs[RAID_MEMBERS_MAX]; /* by slot, lent; NULL where the set has none */
    const struct bad_list *bad;            /* by slot */
};

/* NULL: no memory. */
struct import *import_open(struct loop *loop, const struct import_options *options);
struct blkdev *import_dev(struct import *import);
/* Nobody uses the device any more. `closed` is run when the disks are free. */
void import_close(struct import *import, struct task *closed);

struct import_member_info {
    const char *state; /* "online", "absent", "failed" */
    uint64_t read_errors;
};
struct import_info {
    const char *state; /* "optimal", "degraded", "failed" */
    unsigned members_count;
    struct import_member_info members[RAID_MEMBERS_MAX];
};
void import_info(const struct import *import, struct import_info *info);

#endif
