/*
 * A member: a disk in a slot of an array, its state and its error policy.
 *
 *              rebuild starts                    rebuild done
 *   ABSENT ------------------> REBUILDING ----------------------> ONLINE
 *      ^  \__________________________________________________________^
 *      |        (assembly: current)     |                            |
 *      |   disk taken away              v   errors, operator         |
 *      +------------------------- FAILED <---------------------------+
 *
 * M1  ONLINE:     every chunk of every synced row is readable here, or answers a media error.
 * M2  REBUILDING: takes every write; nothing is read from it.
 * M3  FAILED:     neither read nor written; recorded on the other members before any write it missed is acknowledged.
 * M4  ABSENT:     no disk. `dev` is NULL.
 */
#ifndef RAID_MEMBER_H
#define RAID_MEMBER_H

#include "core/blkdev.h"
#include "core/sm.h"
#include "raid/superblock.h"

enum member_state { MEMBER_ABSENT, MEMBER_ONLINE, MEMBER_REBUILDING, MEMBER_FAILED };

struct member {
    unsigned slot;
    struct blkdev *dev;  /* whole disk; NULL when ABSENT. Lent by the array's creator */
    struct sm state;     /* enum member_state */
    uint64_t data_start; /* where the data area begins on dev, bytes */
    bool slow;           /* by comparison with its peers: raid/latency.h */
    unsigned disks;      /* how many disks have joined at this slot since the array was opened */
    uint64_t read_errors, corrected, write_errors;
    uint64_t recent_errors, errors_hour;    /* media errors, as of this hour */
    uint64_t error_sector, error_sector_ns; /* the last one: which sector, and when */
    uint64_t timeout_window_start_ns, timeouts_in_window, timeout_last_ns;
};

void member_init(struct member *member, unsigned slot, struct blkdev *dev, uint64_t data_start,
                 enum member_state state);

static inline bool member_readable(const struct member *m)
{
    return sm_state(&m->state) == MEMBER_ONLINE;
}

static inline bool member_writable(const struct member *m)
{
    return sm_state(&m->state) == MEMBER_ONLINE || sm_state(&m->state) == MEMBER_REBUILDING;
}

const char *member_state_name(enum member_state state);

/* Media errors of late: the count is halved every hour. */
uint64_t member_recent_errors(const struct member *member, uint64_t now_ns);

enum { MEMBER_FORGIVEN = 20 };
enum member_action { MEMBER_KEEP, MEMBER_FAIL };
/*
 * Count an error and say whether the member stays. Media errors on reads are forgiven up to a threshold (they are
 * rewritten from redundancy): more than 20, halved every hour, fail it. Those in one physical sector within a second are
 * one, since what surrounds it is searched block by block. A failed write or flush, a device that is gone or a third
 * time-out in a minute fails it; time-outs within a second are one, since a disk that stalls lets all wait that are under way.
 */
enum member_action member_error(struct member *member, enum blk_op op, enum blk_status status, uint64_t off,
                                uint64_t now_ns);

#endif
