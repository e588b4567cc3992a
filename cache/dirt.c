/* Dirty sectors, counted: see cache_impl.h. */
#include "cache/cache_impl.h"

void dirt_set(struct cache *c, struct line *line, struct block *b, uint8_t dirty, uint8_t leaving)
{
    bool was = !block_clean(b), is = (dirty | leaving) != 0;
    c->dirty_blocks = c->dirty_blocks + is - was;
    line->dirty = (uint16_t)(line->dirty + (dirty != 0) - (b->dirty != 0));
    line->whole = (uint16_t)(line->whole + (dirty == BLOCK_WHOLE) - (b->dirty == BLOCK_WHOLE));
    b->dirty = dirty;
    b->leaving = leaving;
}

void dirt_clean(struct cache *c, struct block *b, uint8_t sectors)
{
    if ((b->dirty & sectors) == 0)
        return;
    struct line *line = line_find(&c->lines, block_number(b) / c->lines.blocks);
    dirt_set(c, line, b, (uint8_t)(b->dirty & ~sectors), b->leaving);
    line_settle(&c->lines, line);
}

static bool is_dirty(const struct cache *c, uint64_t number)
{
    const struct block *b = block_find(&c->blocks, number);
    return b != NULL && !block_clean(b);
}

bool dirt_find(struct cache *c, uint64_t off, uint64_t len, uint64_t *from, uint64_t *to)
{
    uint64_t at = off / PAGE_BYTES, end = (off + len + PAGE_BYTES - 1) / PAGE_BYTES, blocks = c->lines.blocks;
    while (at < end) {
        const struct line *line = line_next(&c->lines, at / blocks, LINE_ANY);
        if (line == NULL || line->number * blocks >= end)
            return false;
        at = MAX(at, line->number * blocks);
        uint64_t line_end = MIN(end, (line->number + 1) * blocks);
        while (at < line_end && !is_dirty(c, at))
            at++;
        if (at == line_end)
            continue;
        *from = MAX(off, at * PAGE_BYTES);
        while (at < line_end && is_dirty(c, at))
            at++;
        *to = MIN(off + len, at * PAGE_BYTES);
        return true;
    }
    return false;
}
