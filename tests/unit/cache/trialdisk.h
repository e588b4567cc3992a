/*
 * A disk in memory that tries its user: it delays and reorders, holds requests until they are released, fails some,
 * puts pages of its own in the place of a reader's, and loses what is in its cache when the power is cut.
 *
 * A read sees what is there at some time before it is answered (one that is held: when it comes); a write takes effect
 * at some time; one that fails may have taken effect in part. Three states
 * of every byte: seen by readers, completed, and stable (what a cut leaves for certain). Two changes of the same bytes
 * in flight together are a mistake of the user, and fail the test.
 */
#ifndef TESTS_UNIT_CACHE_TRIALDISK_H
#define TESTS_UNIT_CACHE_TRIALDISK_H

#include "tests/unit/lib/testloop.h"

enum { TRIAL_SLOTS = 1024, TRIAL_LENT = 8 };

/* A page that was put in the place of a reader's, and that the disk has as well: nobody may write into it. */
struct trial_lent {
    struct page *page;
    uint64_t sum;
};

struct trial_slot {
    struct trialdisk *disk;
    struct blk_req *req;
    struct timer effect, answer;
    uint8_t *snapshot; /* flush: what had completed when it was submitted; read: what it saw */
    uint64_t order;
};

struct trialdisk {
    struct blkdev dev;
    uint8_t *seen, *done, *stable;
    uint64_t seed, latency_ns; /* 0 to this */
    uint64_t flush_ns;         /* and a flush so long more, always */
    bool hold;                 /* what comes is kept until trialdisk_release() */
    bool unwritten;            /* what BLK_STATUS says */
    bool replaces;             /* a reader's whole pages by its own */
    unsigned fail_percent;
    enum blk_status fail_status;
    uint32_t fail_ops;         /* a bit each; 0: all */
    uint64_t bad_off, bad_len; /* reads and writes that touch it: a media error */
    uint64_t requests[BLK_OP_COUNT], bytes[BLK_OP_COUNT], fuas;
    uint64_t *stable_order, order; /* of submission: of what made a sector stable */
    struct page_pool *own;
    struct trial_lent lent[TRIAL_LENT];
    unsigned next_lent, replaced;
    struct trial_slot slots[TRIAL_SLOTS];
};

struct trialdisk *trialdisk_create(struct loop *loop, uint64_t size, uint32_t logical_block, uint32_t row);
void trialdisk_release(struct trialdisk *disk); /* hold no more, and let go of what is held */
unsigned trialdisk_held(const struct trialdisk *disk);
/* The power was cut: each sector that was not stable is kept or lost. For a look at ->seen. */
void trialdisk_cut(struct trialdisk *disk);
/*
 * Whoever used it was killed now: another disk begins as this one is left. What is in flight is done or not, a sector at a
 * time; with `power`, which fails too, what was not stable is kept or lost.
 */
void trialdisk_leave(struct trialdisk *disk, struct trialdisk *to, bool power);

#endif
