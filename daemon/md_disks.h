/*
 * Disks of Linux md, looked at: superblocks, bitmaps and bad block logs by pread(), and what raid/md_assembly.h decides
 * from them. Disks of this machine only, opened for reading only. Used by the daemon and by corbelctl alike.
 */
#ifndef DAEMON_MD_DISKS_H
#define DAEMON_MD_DISKS_H

#include "raid/md_assembly.h"

struct md_disks {
    unsigned given;       /* paths, in the order given */
    unsigned count;       /* of those: disks with a superblock, in this order as well */
    int of[MD_DISKS_MAX]; /* which of `disks` it is; -1: none, and the sentence in `error` */
    char error[MD_DISKS_MAX][256];
    struct md_disk disks[MD_DISKS_MAX];
    char trouble[MD_DISKS_MAX][256];
    struct md_superblock supers[MD_DISKS_MAX];
    struct md_set set;   /* count > 0; else it is not usable, and has a reason */
    struct bad_list bad; /* by slot */
};

/* The paths are lent; at most MD_DISKS_MAX. The caller frees it. */
struct md_disks *md_disks_read(const char *const *paths, unsigned count);

#endif
