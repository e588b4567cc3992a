/*
 * A block device over a file or a disk of this machine; disk_open() knows those of others too: daemon/remote.h.
 *
 * Three engines serve it, chosen when it is opened:
 *   uring    io_uring with O_DIRECT: disks, and files on disks
 *   threads  the same through a few helper threads, where io_uring is forbidden
 *   inline   pread and pwritev within submit, for files in memory (tmpfs): nothing there ever waits, and the ring,
 *            which hands such files to a thread of the kernel, is 20 to 25 % slower
 *
 * Discard and write-zeroes go to the helpers in both of the first two: fallocate() has no asynchronous form, the ring
 * would use a thread as well.
 *
 * Failures: see disk_status() in daemon/disk_sync.c for the meaning of each errno. A media error names the first bad
 * block: a failed read is repeated in smaller and smaller steps to find it. A flush that fails means that the device
 * may have dropped writes it had acknowledged, and so is BLK_GONE, not BLK_MEDIA. A file that became shorter than it
 * was has media errors beyond its end, for reads and writes: it is not made longer again.
 */
#ifndef DAEMON_DISK_H
#define DAEMON_DISK_H

#include <stdbool.h>
#include <stddef.h>

#include "core/blkdev.h"

struct reactor;

struct disk_options {
    bool read_only;
    bool exclusive; /* refuse a disk that somebody uses: flock() on files, O_EXCL on block devices */
    bool no_uring;
    unsigned patience_ms; /* exclusive: wait so long for a disk in use (blocks) */
    const char *engine;   /* NULL: the best; or "uring", "threads", "inline", for tests and measurements */
};

/*
 * NULL, and a sentence with the path and the reason in `why`. Never creates, never truncates. May block: called by the
 * worker, which hands the device to its reactor by the next sync_call(), or on the reactor's thread. The reactor has
 * its helpers already.
 */
struct blkdev *disk_open(struct reactor *reactor, const char *path, const struct disk_options *options, char *why,
                         size_t why_len);

int disk_fd(struct blkdev *dev); /* of this machine */
/* "uring", "threads", "inline"; or the protocol by which another machine is asked: "nbd", "iscsi". */
const char *disk_engine(struct blkdev *dev);
/* What stays the same when the disk gets another name: a serial number or WWID; for a file its real path, for an NBD
 * export its URI. */
void disk_identity(struct blkdev *dev, char *out, size_t len);

#endif
