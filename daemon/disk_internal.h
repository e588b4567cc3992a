/*
 * What the files of the disk share: disk.c (open, dispatch), disk_probe.c (what is it?), disk_sync.c (a request by
 * system calls, and what their results mean), disk_uring.c (a request by the ring).
 */
#ifndef DAEMON_DISK_INTERNAL_H
#define DAEMON_DISK_INTERNAL_H

#include "daemon/disk.h"
#include "daemon/helpers.h"
#include "daemon/ring.h"

enum { DISK_DEPTH = 256 }; /* requests of one disk with the kernel; the others wait in line */

enum disk_engine_kind { DISK_INLINE, DISK_URING, DISK_THREADS };

struct disk_result {
    enum blk_status status;
    uint64_t bad_off; /* device offset, if status is BLK_MEDIA */
};

/* How far a READ or WRITE has come: system calls may do less than they were asked. */
struct disk_progress {
    uint64_t done_len;
    unsigned retries; /* in a row that brought nothing */
};

struct disk;

/* A request on its way: a slot of its disk. */
struct disk_op {
    union {
        struct ring_op ring;
        struct helper_job job;
    };
    struct disk *disk;
    struct blk_req *req;
    struct disk_progress progress;
    struct disk_result result; /* the helper's */
    SLIST_ENTRY(disk_op) free_link;
};

/* What probing finds out, beside blk_info. */
struct disk_probe {
    struct blk_info info;
    bool block_device, memory;
    bool may_block; /* handing a request to the kernel may wait for others: a thread of the kernel must do it */
};

struct disk {
    struct blkdev dev;
    struct reactor *reactor;
    int fd;
    bool block_device, may_block;
    uint64_t usable;    /* bytes: less than the size once the file has shrunk */
    uint64_t looked_ns; /* when its size was looked at */
    enum disk_engine_kind engine;
    char *path;
    struct blk_req_list waiting; /* for a slot, in order */
    SLIST_HEAD(, disk_op) free;
    struct disk_op ops[DISK_DEPTH];
};

/* disk.c: the request is over, its slot free. */
void disk_finish(struct disk_op *op, struct disk_result result);
/* disk.c: let a helper find the first bad byte of a read. */
void disk_narrow_in_helper(struct disk_op *op);

/* disk_probe.c: 0, or -1 and a reason in `why`. Turns O_DIRECT on where it works. */
int disk_probe(int fd, bool read_only, struct disk_probe *out, char *why, size_t why_len);

/* disk_sync.c; these two may run on a helper. */
struct disk_result disk_serve(const struct disk *disk, const struct blk_req *req);
struct disk_result disk_narrow(const struct disk *disk, const struct blk_req *req, uint64_t from);
enum blk_status disk_status(enum blk_op op, int error);

enum disk_verdict { DISK_OVER, DISK_AGAIN };
/*
 * What `n` (bytes moved, or -errno) says about a READ or WRITE. DISK_AGAIN: go on from progress->done_len. DISK_OVER:
 * *result tells how it ended.
 */
enum disk_verdict disk_judge(const struct disk *disk, const struct blk_req *req, int64_t n,
                             struct disk_progress *progress, struct disk_result *result);
/* Can the first bad byte lie behind result->bad_off? Then disk_narrow() is worth it. */
bool disk_can_narrow(const struct disk *disk, const struct blk_req *req, struct disk_result result, int64_t n);

/* disk_uring.c */
void disk_uring_start(struct disk_op *op);

#endif
