/*
 * The block device: everything that stores bytes.
 *
 * A disk, a file, a fault injector, a RAID volume, a cache over a volume, a device on another loop: each is a
 * `struct blkdev`, embedded in what it really is, with three operations. Whoever holds one knows nothing of what is
 * beneath; so any layer can be put, or tested, on any other.
 *
 * The contract
 *   1. blk_submit() is the only way in. It checks owner, range, alignment and state, and never blocks.
 *   2. Every request completes exactly once: the device calls blk_complete(), and `done` runs from the loop's ready
 *      list, never inside blk_submit() and never inside blk_complete().
 *   3. The request belongs to its owner, who embeds it and allocates nothing. From blk_submit() until `done` only the
 *      device may touch it, its page array and (for a read) the pages' bytes.
 *   4. Requests in flight together have no order. A flush covers the writes that completed before it was submitted.
 *      A write with BLK_FUA is durable when it completes.
 *   5. Pages: byte x of the device stands at offset x % PAGE_BYTES of a page; pages[0] is the page of byte `off`. A
 *      writer lends its pages until done. A reader brings pages of its own; the device fills them, or replaces a
 *      pointer in the array by a page that already holds the bytes (putting the reader's page, and giving the reader a
 *      reference): so a reader looks at the array again when it is done, and never at bytes outside its range. A read
 *      that fails leaves the bytes in its range undefined.
 *   6. Errors keep their meaning on the way up, as enum blk_status. Flush needs no range: off = len = 0.
 *   7. close() is asked once, after the owner has seen all its requests done; `closed` runs when nothing is left.
 *
 * A device lives on one loop; all of this happens on that loop's thread. core/blk_proxy.h makes a device of one loop
 * usable on another.
 */
#ifndef CORE_BLKDEV_H
#define CORE_BLKDEV_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/loop.h"
#include "core/page.h"

/* BLK_STATUS asks what a range was used for, from `off` on; nothing beneath need be touched. */
enum blk_op { BLK_READ, BLK_WRITE, BLK_FLUSH, BLK_DISCARD, BLK_WRITE_ZEROES, BLK_STATUS };
enum { BLK_OP_COUNT = 6 };

enum {
    BLK_FUA = 1,        /* durable at completion: write, write-zeroes */
    BLK_NO_UNMAP = 2,   /* write-zeroes: keep the space allocated */
    BLK_BACKGROUND = 4, /* a job's request: may wait for others */
    BLK_IMPATIENT = 8,  /* read: BLK_LATE is welcome, since the bytes can be had elsewhere */
};

enum blk_status {
    BLK_OK,
    BLK_MEDIA,    /* these bytes cannot be read (or written): bad_off is the first of them */
    BLK_GONE,     /* the device does not answer any more */
    BLK_TIMEOUT,  /* no answer in time: the device may still be there */
    BLK_NOSPACE,  /* nothing left beneath a thin device */
    BLK_READONLY, /* write to a device that takes none */
    BLK_INVALID,  /* the device cannot do this at all */
    BLK_LATE,     /* only to a read that is BLK_IMPATIENT: the device is well, but this takes long */
};

struct blkdev;

struct blk_req {
    /* Set by the owner before blk_submit(). */
    enum blk_op op;
    unsigned flags;
    uint64_t off, len;   /* bytes; multiples of the logical block */
    struct page **pages; /* READ, WRITE: page_count_for(off, len) pointers; else NULL */
    void (*done)(struct blk_req *);

    /* Set by the device, valid in done(). */
    enum blk_status status;
    uint64_t bad_off; /* BLK_MEDIA: device offset of the first bad byte, in [off, off + len) */
    uint64_t extent;  /* BLK_STATUS: so many bytes from `off` on are alike: 1 to len */
    bool written;     /* BLK_STATUS: they may hold data; else they read as zeroes and take no space */

    /* The device's, between submit and done. */
    struct blkdev *dev;
    STAILQ_ENTRY(blk_req) link; /* one list at a time */
    uint64_t scratch[2];
    struct task task; /* blk_complete()'s */
};
STAILQ_HEAD(blk_req_list, blk_req);

/* What a device tells about itself. Constant while it is open, but for size, read_only and volatile_cache (watchers
 * hear of it). */
struct blk_info {
    uint64_t size;           /* bytes, a multiple of logical_block */
    uint32_t logical_block;  /* smallest unit of I/O: a power of two, 512 to 4096 */
    uint32_t physical_block; /* smallest unit that needs no read first */
    uint32_t optimal_io;     /* bytes of one full row of data; 0: no preference */
    uint32_t row_part;       /* bytes of a row on each disk, if a write of less reads first what is there; else 0 */
    uint64_t max_request;    /* longest READ or WRITE in bytes; 0: no limit */
    uint32_t atomic_write;   /* a WRITE within an aligned run of so many bytes is done whole or not at all, also in a
                                crash; a multiple of logical_block, at most max_request; 0: no promise */
    bool rotational;
    bool discards;       /* BLK_DISCARD does something */
    bool discard_zeroes; /* a discarded block reads as zeroes */
    bool volatile_cache; /* a completed write needs BLK_FLUSH or BLK_FUA to be durable */
    bool read_only;
};

enum blk_event {
    BLK_EVENT_RESIZED,
    BLK_EVENT_CACHE, /* volatile_cache is another */
    BLK_EVENT_DEGRADED,
    BLK_EVENT_RESTORED,
    BLK_EVENT_FAILED,
};

struct blk_watcher {
    TAILQ_ENTRY(blk_watcher) link;
    void (*event)(struct blk_watcher *, struct blkdev *, enum blk_event);
};

struct blkdev_ops {
    const char *kind; /* "file", "volume", "fault", ...: for people */
    void (*submit)(struct blkdev *, struct blk_req *);
    /* Let go of everything, then loop_defer(dev->loop, closed). */
    void (*close)(struct blkdev *, struct task *closed);
    /* BLK_STATUS: written, and how far (*extent is len when called). NULL: all is written. */
    bool (*block_status)(struct blkdev *, uint64_t off, uint64_t len, uint64_t *extent);
    bool submits_status; /* BLK_STATUS comes to submit(), as everything else does: the answer lies elsewhere */
};

struct blk_counters {
    uint64_t requests[BLK_OP_COUNT], bytes[BLK_OP_COUNT], errors[BLK_OP_COUNT];
};

struct blkdev {
    const struct blkdev_ops *ops;
    struct loop *loop;
    struct blk_info info;
    char name[64]; /* for messages; may be cut */
    bool closing;
    uint32_t in_flight; /* submitted, not yet done */
    uint32_t overdue;   /* done (BLK_TIMEOUT, BLK_LATE), but not over beneath: a write of these may still happen */
    struct blk_counters counters;
    TAILQ_HEAD(, blk_watcher) watchers;
};

/* Fill the common part. `name` is copied. */
void blkdev_init(struct blkdev *dev, const struct blkdev_ops *ops, struct loop *loop, const char *name,
                 const struct blk_info *info);

void blk_submit(struct blkdev *dev, struct blk_req *req);

/* For devices: the request is over. `done` follows from the ready list. */
void blk_complete(struct blk_req *req, enum blk_status status);
/* The same for a media error, with the first bad byte. */
void blk_complete_media(struct blk_req *req, uint64_t bad_off);

void blk_close(struct blkdev *dev, struct task *closed);

/* Is nothing under way that could still change the medium? */
static inline bool blk_is_quiet(const struct blkdev *dev)
{
    return dev->in_flight == 0 && dev->overdue == 0;
}

void blk_watch(struct blkdev *dev, struct blk_watcher *watcher);
void blk_unwatch(struct blkdev *dev, struct blk_watcher *watcher);
/* For devices: tell the watchers. A watcher may remove itself, and no other, from within its event. */
void blk_notify(struct blkdev *dev, enum blk_event event);

bool blk_op_has_data(enum blk_op op); /* READ and WRITE carry pages */
bool blk_op_writes(enum blk_op op);   /* WRITE, DISCARD, WRITE_ZEROES change the medium */
const char *blk_op_name(enum blk_op op);
const char *blk_status_name(enum blk_status status);

#endif
