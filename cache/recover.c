/*
 * What the last cache left in the arena is dirty in this one.
 *
 * The geometry may be another one now. Lines are as many as there are blocks, if need be, so that each finds one,
 * whatever a line is. Sectors that the volume does not have any more are dropped: it was made shorter, by somebody who
 * was told what that means.
 */
#include "cache/cache_impl.h"

#include <stdlib.h>

#include "core/log.h"

uint32_t recover_lines(const struct arena *arena)
{
    return arena == NULL ? 0 : (uint32_t)arena_published(arena);
}

/* Of the sectors that were published, those that the volume has. */
static uint8_t sectors_left(const struct cache *c, uint64_t number, uint8_t sectors)
{
    uint64_t size = c->dev.info.size;
    return number * PAGE_BYTES >= size ? 0 : sectors & sectors_of(number, number * PAGE_BYTES, size);
}

static void recover_block(struct cache *c, struct page *page)
{
    struct arena *arena = c->o.arena;
    uint64_t number = arena_number(arena, page);
    uint8_t had = arena_sectors(arena, page), sectors = sectors_left(c, number, had);
    c->counted.recovered_bytes += (unsigned)__builtin_popcount(sectors) * SECTOR_BYTES;
    c->counted.recovered_beyond_bytes += (unsigned)__builtin_popcount(had & ~sectors) * SECTOR_BYTES;
    if (sectors == 0) {
        arena_republish(arena, page, 0);
        page_put(page);
        return;
    }
    struct block *b = block_get(&c->blocks, number, false);
    struct line *line = line_get(&c->lines, number / c->lines.blocks);
    ASSERT(b != NULL && line != NULL);
    block_found(b, page, sectors);
    dirt_add(c, line, b, sectors);
    line_settle(&c->lines, line);
    block_settle(&c->blocks, b);
}

/* Each page is taken from the pool once; those that are not published go back together. */
bool recover(struct cache *c)
{
    struct arena *arena = c->o.arena;
    uint32_t count = c->blocks.count, back = 0;
    if (arena == NULL || arena_published(arena) == 0)
        return true;
    struct page *page, **others = malloc(count * sizeof(struct page *));
    if (others == NULL)
        return false;
    while (page_pool_take(c->blocks.pool, &page, 1)) {
        if (arena_sectors(arena, page) == 0)
            others[back++] = page;
        else
            recover_block(c, page);
    }
    page_put_all(others, back);
    free(others);
    log_notice("cache %s: %lu KiB that were written and not destaged yet were found in its arena", c->dev.name,
               (unsigned long)(c->counted.recovered_bytes / KIB));
    if (c->counted.recovered_beyond_bytes > 0)
        log_warn("cache %s: its volume is shorter now: %lu KiB beyond its end were dropped", c->dev.name,
                 (unsigned long)(c->counted.recovered_beyond_bytes / KIB));
    return true;
}
