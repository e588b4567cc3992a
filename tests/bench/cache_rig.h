/*
 * What the benches in virtual time work on: an array on hard disks of harddisk.h, one volume, and a cache over it, all
 * of them the real ones; no daemon, no network, no time of the machine's own.
 */
#ifndef TESTS_BENCH_CACHE_RIG_H
#define TESTS_BENCH_CACHE_RIG_H

#include "cache/cache.h"
#include "raid/array.h"
#include "tests/unit/lib/testloop.h"

enum { RIG_DISKS_MAX = 8 };

struct rig_options {
    unsigned disks;
    enum raid_level level;
    enum sb_consistency consistency;
    uint64_t disk_bytes;
    uint64_t written; /* of the volume, from its beginning: in full rows, before anything is measured */
    bool cached;
    struct cache_options cache; /* its power is healthy */
};

struct rig {
    struct testloop *t;
    struct rig_options options;
    struct blkdev *disks[RIG_DISKS_MAX];
    struct array *array;
    struct blkdev *volume;
    struct cache *cache; /* or NULL */
    struct blkdev *top;  /* the cache, or the volume */
};

struct rig *rig_create(const struct rig_options *options);
void rig_destroy(struct rig *rig);
uint64_t rig_row_bytes(const struct rig *rig);

/* RAID 5 of five disks of 74 GB, chunks of 64 KiB, policy ppl, no cache, nothing written. */
struct rig_options rig_usual(void);
/* ... with a cache of so many bytes, write-back, protected by a healthy battery, no read-ahead. */
struct rig_options rig_battery(uint64_t cache_bytes);

#endif
