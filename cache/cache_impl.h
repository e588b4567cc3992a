/* The inside of a cache, for cache/ only. See cache/cache.h. */
#ifndef CACHE_CACHE_IMPL_H
#define CACHE_CACHE_IMPL_H

#include "cache/block.h"
#include "cache/cache.h"

enum { FETCHES = 64, FETCH_BLOCKS = 64, DIRECTS = 128, CHANGES = 256 };

/* Blocks [first, first + count) on their way from below, all of them BLOCK_FETCHING. */
struct fetch {
    LIST_ENTRY(fetch) link; /* free, or under way */
    struct cache *cache;
    struct blk_req req;
    uint64_t first;
    uint32_t count;
    struct blk_req_list readers; /* they look again when it is here */
    struct page *pages[FETCH_BLOCKS];
};
LIST_HEAD(fetch_list, fetch);

/* Part of a request that is passed below as it is, with its own pages. */
struct direct {
    LIST_ENTRY(direct) link; /* free */
    struct cache *cache;
    struct blk_req req;
    struct blk_req *parent;
    struct page *edges[2]; /* of the parent, that must stay; NULL: none */
    uint32_t edge_index[2];
};

/* A request that changes the volume, passed below. Its range is held until it is over. */
struct change {
    LIST_ENTRY(change) link; /* free, or under way */
    struct cache *cache;
    struct blk_req req;
    struct blk_req *parent;
    uint64_t at, end; /* blocks, or slots, that are still to hear of it */
    bool by_slot;
    struct task task;
};
LIST_HEAD(change_list, change);

struct cache {
    struct blkdev dev;
    struct blkdev *below;
    struct blk_watcher watcher;
    struct blocks blocks;
    uint64_t overhead;
    uint64_t hits, misses, hit_bytes, passed_by;

    /* read.c */
    struct fetch_list fetches, fetches_free;
    LIST_HEAD(, direct) directs_free;
    struct blk_req_list readers; /* wait for a struct direct */

    /* change.c */
    struct change_list changes, changes_free;
    struct blk_req_list line, behind; /* for a context; for a range */

    /* flush.c */
    struct blk_req flush;
    bool flushing;
    struct blk_req_list flush_next, flush_now; /* for the next flush below; for this one */

    struct task *closed;
    struct blk_req last_flush;
    bool flushed;
    struct fetch fetch_memory[FETCHES];
    struct direct direct_memory[DIRECTS];
    struct change change_memory[CHANGES];
};

static inline struct cache *cache_of(struct blkdev *dev)
{
    return container_of(dev, struct cache, dev);
}

static inline bool ranges_meet(const struct blk_req *a, uint64_t off, uint64_t len)
{
    return a->off < off + len && off < a->off + a->len;
}

/* As the child was answered, so is the parent. */
void cache_answer(struct blk_req *parent, const struct blk_req *child);

void read_init(struct cache *c);
void read_submit(struct cache *c, struct blk_req *req);
void read_status(struct cache *c, struct blk_req *req); /* BLK_STATUS */

void change_init(struct cache *c);
void change_submit(struct cache *c, struct blk_req *req);

void flush_init(struct cache *c);
void flush_submit(struct cache *c, struct blk_req *req);

void cache_close_if_idle(struct cache *c);

#endif
