/*
 * One request of the journal to one member, or journal device: cut to what the device takes, errors told to the array.
 *
 * A member that is out of service is not asked. A read that meets a media error ends with it; anything else is tried
 * three times while the member stays, and then the member is lost: a log that cannot be written or read is none.
 */
#ifndef RAID_JOURNAL_IO_H
#define RAID_JOURNAL_IO_H

#include "core/blkdev.h"

struct array;
struct journal_device;

struct journal_io {
    /* Set by the user. */
    struct array *array;
    unsigned slot;
    struct journal_device *device; /* NULL: the member in the slot */
    enum blk_op op;                /* READ or WRITE */
    unsigned flags;
    uint64_t off, len; /* bytes of the member's device */
    struct page **pages;
    void (*done)(struct journal_io *); /* may run within journal_io_start() */

    enum blk_status status; /* OK, MEDIA (a read), or GONE */

    /* journal_io.c's. */
    uint64_t at;
    unsigned tries;
    struct blk_req req;
};
void journal_io_start(struct journal_io *io);

#endif
