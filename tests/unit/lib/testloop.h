/*
 * The doors for unit tests: a loop with virtual time and seeded randomness, a disk in memory, a scripted stream.
 *
 * testloop_run() runs until nothing is left to do: ready tasks first, then the next timer, to which time jumps.
 */
#ifndef TESTS_UNIT_LIB_TESTLOOP_H
#define TESTS_UNIT_LIB_TESTLOOP_H

#include "core/blkdev.h"
#include "core/loop.h"

struct testloop {
    struct loop loop;
    uint64_t seed;
};

struct testloop *testloop_create(uint32_t pages, uint64_t seed);
/* All pages must be back. */
void testloop_destroy(struct testloop *t);
void testloop_run(struct testloop *t);
/* Run what is ready now; time stands still. */
void testloop_run_ready(struct testloop *t);
/* Run until *flag, or nothing is left; true if *flag. */
bool testloop_run_until(struct testloop *t, const bool *flag);

/*
 * A disk in memory: `size` bytes at `bytes` (owned by the disk, readable by the test), zero at first. Completions come
 * after `latency_ns` of virtual time (0: in the same turn), in order. With a `rate` it does one request after the other
 * instead, each in the time of its bytes, and request_ns, and seek_ns if it does not begin where the last one ended.
 */
struct memdisk {
    struct blkdev dev;
    uint8_t *bytes;
    uint64_t latency_ns;
    bool discards_into_garbage;            /* what was discarded does not read as zeroes */
    uint64_t unwritten[2];                 /* what BLK_STATUS says of [from, to) */
    uint64_t rate, request_ns, seek_ns;    /* bytes a second */
    uint64_t free_ns, head;                /* when it has done all it was given, and where it is then */
    bool power_cut;                        /* what is not completed by now never happened, and is answered BLK_GONE */
    uint64_t reads, writes, flushes, fuas; /* requests so far */
    struct memdisk_slot *slots;
};
struct memdisk *memdisk_create(struct loop *loop, const char *name, uint64_t size, uint32_t logical_block);

/* One request and wait for it: for tests. Data moves between `buffer` and pages of the loop. */
enum blk_status test_io(struct testloop *t, struct blkdev *dev, enum blk_op op, unsigned flags, uint64_t off,
                        void *buffer, uint64_t len);
void test_close(struct testloop *t, struct blkdev *dev);

/* Deterministic bytes for a test to write. */
void test_fill(uint8_t *out, uint64_t len, uint64_t seed);
uint64_t test_random(uint64_t *seed);

#endif
