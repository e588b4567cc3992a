/*
 * A rig for tests of arrays: some disks in memory, each behind a fault injector, and one array on them that can be
 * created, closed, killed, and assembled again from what stands on the disks.
 */
#ifndef TESTS_UNIT_RAID_ARRAYS_H
#define TESTS_UNIT_RAID_ARRAYS_H

#include "core/check.h"
#include "raid/array.h"
#include "raid/fault.h"
#include "raid/label.h"
#include "tests/unit/lib/testloop.h"

enum { RIG_DISKS = 8 };

struct rig {
    struct testloop *t;
    unsigned count;
    struct memdisk *mem[RIG_DISKS];
    struct blkdev *dev[RIG_DISKS]; /* the fault injectors: what the array is given */
    struct memdisk *journal_mem[SB_JOURNALS_MAX];
    struct blkdev *journal_dev[SB_JOURNALS_MAX];
    struct array_journals journals; /* those that rig_assemble() gives: all; a test may take one away */
    struct blkdev *old[RIG_DISKS];  /* replaced: still lent to the array, maybe */
    unsigned old_count;
    struct array *array;
    struct assembly assembly; /* of the last rig_assemble() */
    int error;                /* of the last call, and its sentence */
    char message[256];
};

/* `count` disks of `bytes` with blocks of 512 bytes and a latency of 100 us. */
struct rig *rig_create(unsigned count, uint64_t bytes);
/* Closes the array, if there is one, and checks that no page is missing. */
void rig_destroy(struct rig *rig);
/* A blank disk for a slot: in place of one that is closed, or one that stays lent. */
void rig_disk_new(struct rig *rig, unsigned slot, uint64_t bytes, uint32_t logical_block);
void rig_disk_replace(struct rig *rig, unsigned slot, uint64_t bytes, uint32_t logical_block);
/* One more journal device, "log0", for rig_make(). */
void rig_journal_new(struct rig *rig, struct array_spec *spec, uint64_t bytes);
/* "disk0", ... */
struct array_disk rig_disk(const struct rig *rig, unsigned slot);

/* Array "r0" on all disks. Volumes with redundancy have the policy bitmap, unless the test says something else. */
struct array_spec *rig_spec(const struct rig *rig);
void rig_spec_add(struct array_spec *spec, const char *name, enum raid_level level, uint64_t size);

/* Calls, waited for. True: no error. */
bool rig_make(struct rig *rig, struct array_spec *spec); /* frees the spec */
bool rig_make_one(struct rig *rig, enum raid_level level, uint64_t size);
bool rig_close(struct rig *rig);
bool rig_fail(struct rig *rig, unsigned slot);
bool rig_online(struct rig *rig, unsigned slot);
bool rig_online_disk(struct rig *rig, unsigned slot, unsigned disk);
/* One more blank disk, of no slot; its number. */
unsigned rig_disk_more(struct rig *rig, uint64_t bytes, uint32_t logical_block);
/* Begun; then: until it is over. True: no error. */
bool rig_replace(struct rig *rig, unsigned slot, unsigned disk);
bool rig_replaced(struct rig *rig);
bool rig_forget(struct rig *rig, unsigned slot);
bool rig_scrub(struct rig *rig, const char *volume, enum sb_scrub_mode mode);
bool rig_init(struct rig *rig, const char *volume, bool begin);
bool rig_replace_cancel(struct rig *rig);
bool rig_rate(struct rig *rig, unsigned volume, unsigned priority, uint64_t min_rate, uint64_t max_rate);
bool rig_pause(struct rig *rig, unsigned volume, bool paused);
bool rig_volume_keep(struct rig *rig, unsigned volume, const char *name, const char *json);
bool rig_add(struct rig *rig, const char *name, enum raid_level level, uint64_t size);
bool rig_resize(struct rig *rig, unsigned volume, uint64_t size, bool shrink);

/* Read the labels of the disks in `mask`, decide, and open if that may be. */
bool rig_assemble(struct rig *rig, unsigned mask, bool force);
/* As kill -9: the disks keep what they hold at this moment. */
void rig_kill(struct rig *rig);

/* What stands on a disk now, without a request. */
enum sb_verdict rig_label(const struct rig *rig, unsigned slot, struct sb_label *label);

/* All bytes of a volume from a seed, in requests of `step` bytes; and: are they there? */
enum blk_status rig_fill(struct rig *rig, const char *volume, uint64_t seed, uint64_t step);
bool rig_holds(struct rig *rig, const char *volume, uint64_t seed);
/* Of volume "v": write bytes of a seed, which must succeed; and: are they there? Seed 0: zeroes. */
struct blkdev *rig_volume(struct rig *rig);
void rig_put(struct rig *rig, uint64_t off, uint64_t len, uint64_t seed);
bool rig_has(struct rig *rig, uint64_t off, uint64_t len, uint64_t seed);

struct array_info rig_info(struct rig *rig);
/* Run until no job is left. */
void rig_settle(struct rig *rig);

/* Let virtual time pass. */
void rig_wait(struct rig *rig, uint64_t ns);

/* A write that is not waited for. */
struct rig_write {
    struct blk_req req;
    struct page *pages[16];
    bool over;
    void (*on_done)(struct rig_write *);
    void *data;
};
void rig_write_start(struct rig *rig, struct rig_write *write, const char *volume, uint64_t off, uint64_t len,
                     uint64_t seed);

#endif
