/*
 * A hard disk in virtual time: where its head is, where the platter stands, and what the drive makes of its queue.
 * The same requests at the same times take the same time in every run.
 *
 *   mechanics   10,000 rpm. A seek over the part x of the stroke takes 0.6 + 3.5 sqrt(x) + 6.1 x ms (4.5 ms on the
 *               mean of random ones, 10.2 over the full stroke), 0.4 ms more before a write; then the platter turns
 *               until the sector comes. 86 MB/s at the outer edge, 54 at the inner one, in 16 zones. Tracks are skewed
 *               so that what follows on the disk needs no turn between.
 *   queue       The host keeps what the drive has no tag for (32) in the order of the disk, as Linux does. The drive
 *               takes next what it reaches first; 3 % of the time that somebody waited count in his favour, and what
 *               it has answered already stands back while a reader waits.
 *   cache       A volatile one for writes: 64 of them, 8 MiB; a flush is over when all that was answered before it is
 *               on the medium. What is read, and what the idle head reads on, up to 512 KiB, stays in 8 segments.
 *   command     0.1 ms each, and the bytes at 150 MB/s, on the wire, one after the other.
 *
 * A read of one random 4 KiB block at a time: 133 a second (cache_disks disk prints it, and with queues).
 *
 * The bytes of the array's own areas are kept. Those of the data area are not: it reads as zeroes, and nobody compares.
 */
#ifndef TESTS_BENCH_HARDDISK_H
#define TESTS_BENCH_HARDDISK_H

#include "core/blkdev.h"

struct harddisk;

/* `data_from`, `data_to`: the data area. */
struct blkdev *harddisk_create(struct loop *loop, const char *name, uint64_t size, uint64_t data_from,
                               uint64_t data_to);

struct harddisk_counts {
    uint64_t media_reads, media_writes, flushes; /* what the head did; flushes that were asked for */
    uint64_t buffered;                           /* reads answered without the head */
    uint64_t busy_ns, seek_ns, turn_ns;          /* of the head; of it, on the way, and waiting for the sector */
};
struct harddisk_counts harddisk_counts(const struct blkdev *disk);

#endif
