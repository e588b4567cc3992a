/* See cache/block.h. */
#include "cache/block.h"

#include <stdlib.h>
#include <string.h>

#include "cache/ghost.h"

/* Pages of evicted blocks may still be lent to readers: then their place is free, but not their page. */
enum { EVICTIONS_MAX = 8 };

/*
 * The chains of blocks that follow one another stand together, GROUP of them in one line of the processor's cache: who
 * reads on has the next chain at hand. (Within a group they are permuted, or blocks GROUP apart would share one chain.)
 */
enum { GROUP = 8, GROUP_ALIGN = 32 };

static uint32_t chains_for(uint32_t count)
{
    return (count - count / 4 + GROUP - 1) / GROUP * GROUP;
}

bool blocks_init(struct blocks *s, uint32_t count, const struct cache_policy_ops *policy, uint64_t salt,
                 struct arena *arena)
{
    ASSERT(count > 0 && count < CACHE_SLOT_NONE && (arena == NULL || count == arena_pages(arena)));
    *s = (struct blocks){.count = count, .chain_count = chains_for(count), .salt = salt, .arena = arena};
    s->table = calloc(count, sizeof *s->table);
    s->chains = aligned_alloc(GROUP_ALIGN, (size_t)s->chain_count * sizeof *s->chains);
    s->pool = arena != NULL ? arena_pool_create(arena) : page_pool_create(count);
    s->policy = policy->create(count);
    if (s->table == NULL || s->chains == NULL || s->pool == NULL || s->policy == NULL)
        return false;
    for (uint32_t i = 0; i < s->chain_count; i++)
        s->chains[i] = CACHE_SLOT_NONE;
    for (uint32_t i = 0; i < count; i++)
        s->table[i].next = i + 1 < count ? i + 1 : CACHE_SLOT_NONE;
    return true;
}

void blocks_fini(struct blocks *s)
{
    for (uint32_t i = 0; s->table != NULL && i < s->count; i++)
        if (s->table[i].page != NULL)
            page_put(s->table[i].page);
    if (s->pool != NULL)
        page_pool_retire(s->pool);
    if (s->policy != NULL)
        s->policy->ops->destroy(s->policy);
    free(s->chains);
    free(s->table);
}

uint64_t blocks_bytes(uint32_t count, const struct cache_policy_ops *policy)
{
    return (uint64_t)count * sizeof(struct block) + chains_for(count) * sizeof(uint32_t) + policy->bytes(count);
}

static uint32_t slot_of(const struct blocks *s, const struct block *b)
{
    return (uint32_t)(b - s->table);
}

static uint32_t *chain_of(const struct blocks *s, uint64_t number)
{
    uint64_t hash = key_hash(number / GROUP ^ s->salt);
    return &s->chains[hash_below(hash, s->chain_count / GROUP) * GROUP + ((number ^ hash) & (GROUP - 1))];
}

struct block *block_find(const struct blocks *s, uint64_t number)
{
    uint32_t slot = *chain_of(s, number);
    while (slot != CACHE_SLOT_NONE && block_number(&s->table[slot]) != number)
        slot = s->table[slot].next;
    return slot == CACHE_SLOT_NONE ? NULL : &s->table[slot];
}

/* The first in the chain: most often it is the one. */
static const struct block *likely(const struct blocks *s, uint64_t number)
{
    uint32_t slot = *chain_of(s, number);
    return slot == CACHE_SLOT_NONE ? NULL : &s->table[slot];
}

void block_expect_chain(const struct blocks *s, uint64_t number)
{
    __builtin_prefetch(chain_of(s, number));
}

void block_expect_slot(const struct blocks *s, uint64_t number)
{
    const struct block *b = likely(s, number);
    if (b != NULL)
        __builtin_prefetch(b);
}

void block_expect_page(const struct blocks *s, uint64_t number)
{
    const struct block *b = likely(s, number);
    if (b != NULL && b->page != NULL)
        __builtin_prefetch(b->page, 1);
}

static void flags_drop(struct blocks *s, struct block *b, uint8_t flags)
{
    if (b->flags & flags & BLOCK_GUESS)
        s->guesses--;
    b->flags &= (uint8_t)~flags;
}

static void block_free(struct blocks *s, struct block *b)
{
    uint32_t slot = slot_of(s, b), *link = chain_of(s, block_number(b));
    ASSERT(block_kept(b) == 0 && !(b->flags & (BLOCK_LISTED | BLOCK_FETCHING)));
    while (*link != slot)
        link = &s->table[*link].next;
    *link = b->next;
    flags_drop(s, b, BLOCK_GUESS);
    if (b->page != NULL)
        page_put(b->page);
    *b = (struct block){.next = s->free};
    s->free = slot;
    s->used--;
}

static uint64_t key_of(void *blocks, uint32_t slot)
{
    return block_number(&((struct blocks *)blocks)->table[slot]);
}

static bool evict(struct blocks *s, bool guess)
{
    uint32_t slot = s->policy->ops->evict(s->policy, guess, key_of, s);
    if (slot == CACHE_SLOT_NONE)
        return false;
    struct block *b = &s->table[slot];
    s->evicted++;
    if (b->flags & BLOCK_GUESS) {
        s->guesses_wasted++;
        s->wasted(s, block_number(b));
    }
    b->flags &= (uint8_t)~BLOCK_LISTED;
    block_free(s, b);
    return true;
}

struct block *block_get(struct blocks *s, uint64_t number, bool guess)
{
    struct block *b = block_find(s, number);
    if (b != NULL || (s->free == CACHE_SLOT_NONE && !evict(s, guess)))
        return b;
    uint32_t slot = s->free, *chain = chain_of(s, number);
    b = &s->table[slot];
    s->free = b->next;
    s->used++;
    *b = (struct block){.next = *chain, .number_low = (uint32_t)number, .number_high = (uint16_t)(number >> 32)};
    ASSERT(block_number(b) == number);
    *chain = slot;
    return b;
}

static bool may_leave(const struct block *b)
{
    return b->page != NULL && block_kept(b) == 0 && !(b->flags & BLOCK_FETCHING);
}

void block_hold(struct blocks *s, struct block *b)
{
    if (!(b->flags & BLOCK_LISTED))
        return;
    bool hot = s->policy->ops->remove(s->policy, slot_of(s, b)) == CACHE_HOT;
    b->flags = (uint8_t)((b->flags & ~BLOCK_LISTED) | (hot ? BLOCK_HOT : 0));
}

/* --- the arena: B6 --- */

static bool is_published(const struct blocks *s, const struct page *page)
{
    return s->arena != NULL && arena_sectors(s->arena, page) != 0;
}

/* The block has no use for it any more. */
static void page_leave(struct blocks *s, struct page *page)
{
    ASSERT(s->before == NULL);
    if (is_published(s, page))
        s->before = page;
    else
        page_put(page);
}

static void publish(struct blocks *s, struct block *b)
{
    struct page *before = s->before;
    uint8_t kept = block_kept(b);
    s->before = NULL;
    if (kept == 0 || is_published(s, b->page)) {
        ASSERT(before == NULL || kept == 0);
        struct page *page = before != NULL ? before : b->page;
        if (page != NULL && is_published(s, page))
            arena_republish(s->arena, page, kept);
    } else if (before != NULL || s->publishes) {
        arena_publish(s->arena, b->page, block_number(b), kept, before);
    }
    if (before != NULL)
        page_put(before);
}

void block_settle(struct blocks *s, struct block *b)
{
    ASSERT((block_kept(b) & ~b->valid) == 0); /* B1 */
    if (s->arena != NULL)
        publish(s, b);
    if (!may_leave(b)) {
        block_hold(s, b);
    } else if (!(b->flags & BLOCK_LISTED)) {
        s->policy->ops->insert(s->policy, slot_of(s, b), block_number(b),
                               b->flags & BLOCK_HOT ? CACHE_HOT : CACHE_COLD);
        b->flags = (uint8_t)((b->flags & ~BLOCK_HOT) | BLOCK_LISTED);
    }
    if (b->page == NULL && !(b->flags & BLOCK_FETCHING))
        block_free(s, b);
}

/* The first use of what was read ahead is what others are read for: it makes nothing hot. */
void block_used(struct blocks *s, struct block *b)
{
    if (b->flags & BLOCK_GUESS) {
        s->guesses_used++;
        flags_drop(s, b, BLOCK_GUESS);
    } else if (b->flags & BLOCK_LISTED) {
        s->policy->ops->hit(s->policy, slot_of(s, b));
    } else if (!block_clean(b)) {
        b->flags |= BLOCK_HOT;
    }
}

struct page *blocks_page(struct blocks *s, bool guess)
{
    struct page *page = NULL;
    for (unsigned i = 0; !page_pool_take(s->pool, &page, 1); i++)
        if (i == EVICTIONS_MAX || !evict(s, guess))
            return NULL;
    return page;
}

void sectors_copy(struct page *to, const struct page *from, uint8_t sectors)
{
    if (sectors == BLOCK_WHOLE) {
        memcpy(to->data, from->data, PAGE_BYTES);
        return;
    }
    for (unsigned i = 0; i < BLOCK_SECTORS; i++)
        if (sectors & 1u << i)
            memcpy((char *)to->data + i * SECTOR_BYTES, (const char *)from->data + i * SECTOR_BYTES, SECTOR_BYTES);
}

bool block_writable(struct blocks *s, struct block *b, uint8_t sectors)
{
    if (b->page != NULL && b->page->refs == 1 && !is_published(s, b->page))
        return true;
    ASSERT(!(b->flags & BLOCK_LISTED)); /* or it could be evicted for its own new page */
    struct page *page = blocks_page(s, false);
    if (page == NULL)
        return false;
    if (b->page != NULL) {
        sectors_copy(page, b->page, (uint8_t)(b->valid & ~sectors));
        page_leave(s, b->page);
    }
    b->page = page;
    return true;
}

void block_guessed(struct blocks *s, struct block *b)
{
    if (b->flags & BLOCK_GUESS)
        return;
    b->flags |= BLOCK_GUESS;
    s->guesses++;
}

void block_unguess(struct blocks *s, uint64_t number)
{
    struct block *b = block_find(s, number);
    if (b == NULL || !(b->flags & BLOCK_GUESS) || !(b->flags & BLOCK_LISTED))
        return;
    s->policy->ops->remove(s->policy, slot_of(s, b));
    s->evicted++;
    s->guesses_wasted++;
    b->flags &= (uint8_t)~BLOCK_LISTED;
    block_free(s, b);
}

/* It is not settled before others are filled, but its page may be published. */
void block_fill(struct blocks *s, struct block *b, struct page *page)
{
    ASSERT(page->refs == 1);
    if (b->page != NULL) {
        sectors_copy(page, b->page, b->valid); /* B5 */
        page_leave(s, b->page);
    }
    b->page = page;
    b->valid = BLOCK_WHOLE;
    if (s->arena != NULL)
        publish(s, b);
}

void block_found(struct block *b, struct page *page, uint8_t sectors)
{
    ASSERT(b->page == NULL && page->refs == 1);
    b->page = page;
    b->valid = sectors;
}

void block_forget(struct blocks *s, struct block *b, uint8_t sectors)
{
    ASSERT((block_kept(b) & sectors) == 0);
    b->valid &= (uint8_t)~sectors;
    if (b->flags & BLOCK_FETCHING)
        b->flags |= BLOCK_STALE;
    if (b->valid == 0 && b->page != NULL) {
        page_leave(s, b->page);
        b->page = NULL;
    }
}
