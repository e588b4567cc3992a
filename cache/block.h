/*
 * Blocks: 4 KiB of the volume each, with what is known of every 512 bytes of it.
 *
 * A table of a fixed number of slots, found by block number through a hash, and a pool of as many pages. A block has a
 * byte of bits, one a sector of 512 bytes, for each of four questions:
 *
 *      valid     its bytes stand in the page
 *      dirty     ... and are newer than what is below (and are not on their way there)
 *      leaving   ... and are on their way below: a destage holds a reference to the page
 *      settling  ... and arrived there, but may be lost when the power fails (settle.c)
 *
 * B1  dirty, leaving and settling are part of valid. A sector may be several: it was written again since it left.
 * B2  A page with more than one reference, or one that is published in the arena, is never changed: who writes takes a
 *     new one (block_writable).
 * B3  The policy knows exactly the blocks that have a page, none of the last three, and are not being fetched: those
 *     that may be evicted. block_settle() makes it so, after any change.
 * B4  A block without a page is being fetched, or is no more after the next block_settle().
 * B5  While a block is being fetched, sectors that become valid are newer than those that come. If one stops being
 *     valid, or changes below without passing through here, what comes is stale and not kept (block_stale).
 * B6  With an arena, and while something is promised on its strength, the sectors of the last three kinds are published
 *     there when block_settle() returns: the write may be answered. What was published before is withdrawn after that.
 *
 * For each block 24 bytes, 3 of hash (four blocks to three chains), and what the policy takes.
 */
#ifndef CACHE_BLOCK_H
#define CACHE_BLOCK_H

#include "cache/arena.h"
#include "cache/policy.h"
#include "core/check.h"
#include "core/page.h"

enum { SECTOR_BYTES = 512, BLOCK_SECTORS = PAGE_BYTES / SECTOR_BYTES, BLOCK_WHOLE = 0xff };

enum {
    BLOCK_FETCHING = 1,  /* its missing sectors are on their way */
    BLOCK_STALE = 2,     /* ... and must not be kept */
    BLOCK_LISTED = 4,    /* known to the policy */
    BLOCK_HOT = 8,       /* used while not listed, or was hot when it was */
    BLOCK_GUESS = 16,    /* read ahead, and not used yet */
    BLOCK_ODD = 32,      /* what of it is settling does so in an odd round */
    BLOCK_UNLOGGED = 64, /* something dirty is not in the log (commit.c) */
};

struct block {
    struct page *page;
    uint32_t next; /* in its chain, or of the free */
    uint32_t number_low;
    uint16_t number_high;
    uint8_t valid, dirty, leaving, settling, flags;
};

struct blocks {
    struct block *table;
    uint32_t count, used, free;
    uint32_t *chains, chain_count;
    uint64_t salt;
    struct page_pool *pool;
    struct cache_policy *policy;
    void (*wasted)(struct blocks *, uint64_t number); /* it leaves, was BLOCK_GUESS, and nobody used it */
    uint64_t evicted, guesses_used, guesses_wasted;
    uint32_t guesses;    /* blocks that are BLOCK_GUESS */
    struct arena *arena; /* NULL: none */
    bool publishes;      /* also blocks of which nothing is published yet */
    struct page *before; /* the page that the block at hand had, and that is still published */
};

/* With an arena the pages are its, and as many. */
bool blocks_init(struct blocks *blocks, uint32_t count, const struct cache_policy_ops *policy, uint64_t salt,
                 struct arena *arena);
void blocks_fini(struct blocks *blocks); /* every block's page is put; pages may still be lent */
uint64_t blocks_bytes(uint32_t count, const struct cache_policy_ops *policy);

static inline uint64_t block_number(const struct block *b)
{
    return (uint64_t)b->number_high << 32 | b->number_low;
}

struct block *block_find(const struct blocks *blocks, uint64_t number); /* NULL: none */
/*
 * What block_find() is going to look at shall be on its way into the processor's cache: its chain; then, some time
 * later, its slot; then its page. Each of them waits for what the one before it has brought: called for many blocks at
 * each step, all their memory is waited for at once. Nothing but time depends on it.
 */
void block_expect_chain(const struct blocks *blocks, uint64_t number);
void block_expect_slot(const struct blocks *blocks, uint64_t number);
void block_expect_page(const struct blocks *blocks, uint64_t number);
/* ... or make one, and let another leave for it. NULL: none can. Settle it when it has what it was made for. */
struct block *block_get(struct blocks *blocks, uint64_t number, bool guess);
void block_settle(struct blocks *blocks, struct block *b);
/* Take it out of the policy's hands, until it is settled. */
void block_hold(struct blocks *blocks, struct block *b);
/* It was read. */
void block_used(struct blocks *blocks, struct block *b);

/* A page, and let others leave for it; NULL: none came free. */
struct page *blocks_page(struct blocks *blocks, bool guess);
/* Give it, which is held, a page of its own with all that is valid but `sectors`, which are going to be written. */
bool block_writable(struct blocks *blocks, struct block *b, uint8_t sectors);
/* The missing sectors came, in a page that is ours. */
void block_fill(struct blocks *blocks, struct block *b, struct page *page);
/* It was read ahead. */
void block_guessed(struct blocks *blocks, struct block *b);
/* If it was read ahead, and nobody used it or works on it, it leaves. */
void block_unguess(struct blocks *blocks, uint64_t number);
/* These sectors, which are clean and settled, are not valid any more. */
void block_forget(struct blocks *blocks, struct block *b, uint8_t sectors);
/* In a new cache: what was found in the arena, in a page of its, is dirty. */
void block_found(struct block *b, struct page *page, uint8_t sectors);

static inline bool block_clean(const struct block *b)
{
    return (b->dirty | b->leaving) == 0;
}

/* What would be missing if all memory but the arena were lost, and what the volume has not made durable. */
static inline uint8_t block_kept(const struct block *b)
{
    return b->dirty | b->leaving | b->settling;
}

/* The sectors of block `number` that lie in [from, to) of the volume, a bit each. The range touches it. */
static inline uint8_t sectors_of(uint64_t number, uint64_t from, uint64_t to)
{
    uint64_t start = number * PAGE_BYTES;
    unsigned first = from > start ? (unsigned)((from - start) / SECTOR_BYTES) : 0;
    unsigned end = to < start + PAGE_BYTES ? (unsigned)((to - start) / SECTOR_BYTES) : BLOCK_SECTORS;
    ASSERT(first < end);
    return (uint8_t)((BLOCK_WHOLE >> (BLOCK_SECTORS - (end - first))) << first);
}

/* Slot by slot: the block in it, or NULL. */
static inline struct block *blocks_slot(struct blocks *blocks, uint32_t slot)
{
    struct block *b = &blocks->table[slot];
    return b->page != NULL || b->flags & BLOCK_FETCHING ? b : NULL;
}

/* Copy the sectors from one page to another, in the same place. */
void sectors_copy(struct page *to, const struct page *from, uint8_t sectors);

#endif
