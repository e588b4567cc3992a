/*
 * A workbench for volumes: memory disks behind fault injectors, members, an array of straw that plays the owner, and a
 * model of the bytes that must read back.
 *
 * The owner keeps the volume's promises honest: it is dirty only some time after the first change_begin(), a loss is
 * recorded only some time after the error, and both are counted.
 */
#ifndef TESTS_UNIT_RAID_VOLBENCH_H
#define TESTS_UNIT_RAID_VOLBENCH_H

#include "raid/fault.h"
#include "raid/volume.h"
#include "tests/unit/lib/testloop.h"

enum { BENCH_MEMBERS = 10 };

struct bench_options {
    struct layout_spec layout; /* chunk 0: 8 KiB */
    uint64_t extent;           /* 0: 96 KiB */
    uint32_t logical_block;    /* 0: 512 */
    uint32_t member_block;     /* 0: the same */
    unsigned runs_max, rows_max;
    uint64_t scratch_bytes;
    uint64_t absent; /* members that are not there from the start */
    uint64_t member_max_request;
    bool unsynced, no_discard;
    bool unwritten; /* as created, on disks full of garbage */
    bool instant;   /* disks answer in the same turn */
    bool may_fail;  /* requests of a storm may be answered BLK_GONE */
};

struct bench {
    struct testloop *t;
    uint64_t seed;
    struct bench_options options;
    struct layout layout;
    struct memdisk *disks[BENCH_MEMBERS];
    struct blkdev *faults[BENCH_MEMBERS];
    struct member members[BENCH_MEMBERS], *table[BENCH_MEMBERS];
    struct volume *volume;
    struct region_map map;
    struct bad_list bad;
    struct region_change_list changes_asked;
    struct timer map_timer;
    unsigned map_commits, map_flushes; /* groups of changes so far, and those that flushed before */
    unsigned rows_written;             /* all of them, to all members: so the volume told its owner */
    struct blkdev *dev;
    uint8_t *model;

    struct volume_owner owner;
    bool dirty, loss_pending, never_dirty; /* never_dirty: change_begin() is never granted */
    bool forgiving;                        /* no error fails a member */
    int changes;                           /* granted and not ended */
    unsigned errors, corrected, losses;
    struct task_list change_waiters, loss_waiters;
    struct timer dirty_timer, loss_timer;
};

struct bench *bench_open(const struct bench_options *options, uint64_t seed);
/* After the test closed b->dev itself. */
void bench_reopen(struct bench *b);
/* Closes the volume and the disks; everything must be back in its pool. */
void bench_close(struct bench *b);

/* Waits for the answer. Writes go into the model when they succeed, reads are held against it. */
enum blk_status bench_io(struct bench *b, enum blk_op op, unsigned flags, uint64_t off, uint64_t len);
/* Write bytes into the whole volume, so that nothing is zero by chance. */
void bench_fill(struct bench *b);
/* `count` random requests, many in flight; none overlaps another in flight. At the one numbered kill_at, members of
 * `kill` die. */
void bench_storm(struct bench *b, unsigned count, uint64_t kill, unsigned kill_at);
void bench_check_contents(struct bench *b);
/* Is the redundancy of all rows right, as far as it is on members that are online? The codec has no part in this. */
void bench_check_redundancy(struct bench *b);

void bench_fail(struct bench *b, unsigned slot);    /* by the operator */
void bench_rebuild(struct bench *b, unsigned slot); /* a failed or absent one comes back as a blank disk, REBUILDING */
void bench_online(struct bench *b, unsigned slot);
void bench_synced(struct bench *b); /* all rows that are suspect are no more */
enum blk_status bench_job(struct bench *b, enum row_work work, uint64_t row, bool *changed);
struct row_report bench_scrub(struct bench *b, uint64_t row, bool repair, enum blk_status expected);
uint64_t bench_chunk_off(struct bench *b, uint64_t row, unsigned role); /* where it begins on its disk */

uint8_t *bench_chunk(struct bench *b, uint64_t row, unsigned role); /* its bytes on the disk */
unsigned bench_slot(struct bench *b, uint64_t row, unsigned role);
/* A range of columns of a chunk becomes unreadable, until written. */
void bench_spoil(struct bench *b, uint64_t row, unsigned role, uint64_t column, uint64_t len);

struct bench_counts {
    uint64_t reads, writes, flushes, fuas;
};
struct bench_counts bench_counts(const struct bench *b); /* of all disks so far */

#endif
