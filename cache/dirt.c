/* Dirty sectors, counted: see cache_impl.h. */
#include "cache/cache_impl.h"

static void count(struct cache *c, const struct block *b, uint32_t by)
{
    c->dirty_blocks += block_clean(b) ? 0 : by;
    c->settling_blocks += block_clean(b) && b->settling != 0 ? by : 0;
}

void dirt_set(struct cache *c, struct line *line, struct block *b, uint8_t dirty, uint8_t leaving)
{
    count(c, b, -1u);
    line->dirty = (uint16_t)(line->dirty + (dirty != 0) - (b->dirty != 0));
    line->whole = (uint16_t)(line->whole + (dirty == BLOCK_WHOLE) - (b->dirty == BLOCK_WHOLE));
    b->dirty = dirty;
    b->leaving = leaving;
    count(c, b, 1);
}

void dirt_add(struct cache *c, struct line *line, struct block *b, uint8_t sectors)
{
    if (line->dirty == 0) {
        line->epoch = c->epoch;
        line->since_ms = cache_now_ms(c);
    }
    dirt_set(c, line, b, b->dirty | sectors, b->leaving);
}

void dirt_settle(struct cache *c, struct block *b, uint8_t sectors)
{
    count(c, b, -1u);
    b->settling = sectors;
    count(c, b, 1);
}

bool dirt_again(struct cache *c, struct block *b, uint8_t sectors)
{
    struct line *line = sectors == 0 ? NULL : line_get(&c->lines, block_number(b) / c->lines.blocks);
    if (line == NULL)
        return sectors == 0;
    c->drain_wanted = c->drain_wanted || c->draining; /* it does not cover what becomes dirty now */
    dirt_add(c, line, b, sectors);
    line_settle(&c->lines, line);
    dirt_settle(c, b, (uint8_t)(b->settling & ~sectors));
    return true;
}

static void take_back(struct cache *c, struct block *b, uint8_t dirty, uint8_t leaving)
{
    if (dirty == b->dirty && leaving == b->leaving)
        return;
    struct line *line = line_find(&c->lines, block_number(b) / c->lines.blocks);
    dirt_set(c, line, b, dirty, leaving);
    line_settle(&c->lines, line);
}

void dirt_clean(struct cache *c, struct block *b, uint8_t sectors)
{
    dirt_settle(c, b, (uint8_t)(b->settling & ~sectors));
    take_back(c, b, (uint8_t)(b->dirty & ~sectors), b->leaving);
}

void dirt_drop(struct cache *c, struct block *b, uint8_t sectors)
{
    dirt_settle(c, b, (uint8_t)(b->settling & ~sectors));
    take_back(c, b, (uint8_t)(b->dirty & ~sectors), (uint8_t)(b->leaving & ~sectors));
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
