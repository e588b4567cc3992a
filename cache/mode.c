/*
 * What completed writes and flushes mean, by protection and power: the table in cache/cache.h.
 *
 *                        write-back off ------------------> THROUGH
 *                        protection none -----------------> NONE
 *                        forced --------------------------> SAFE
 *      battery:   SAFE <---- healthy / not healthy ----> STRICT, or NONE (flush_when_bad)
 *
 * M1  From the moment on when SAFE is left nothing more is kept on the strength of the battery, and no flush is
 *     answered before what was dirty is below and flushed. It is destaged and flushed, asked for or not, until that
 *     succeeds.
 * M2  Writes that were kept in SAFE but not answered yet (they waited for room) are, in STRICT, answered when that is
 *     done.
 * M3  volatile_cache changes in the same call; watchers of the device, and the owner, hear of it in the same turn.
 */
#include "cache/cache_impl.h"

static const struct {
    const char *name;
    bool absorbs, flushes_at_once;
} modes[] = {
    [CACHE_THROUGH] = {"through", false, false},
    [CACHE_NONE] = {"none", true, false},
    [CACHE_SAFE] = {"safe", true, true},
    [CACHE_STRICT] = {"strict", false, false},
};

const char *cache_mode_name(enum cache_mode mode)
{
    return modes[mode].name;
}

bool mode_absorbs(const struct cache *c)
{
    return modes[c->mode].absorbs && !c->paused;
}

bool mode_flushes_at_once(const struct cache *c)
{
    return modes[c->mode].flushes_at_once;
}

static enum cache_mode mode_of(const struct cache *c)
{
    static const enum cache_mode by_protection[] = {
        [CACHE_PROTECT_NONE] = CACHE_NONE, [CACHE_PROTECT_BATTERY] = CACHE_SAFE, [CACHE_PROTECT_FORCED] = CACHE_SAFE};
    if (!c->o.write_back)
        return CACHE_THROUGH;
    if (c->o.protection == CACHE_PROTECT_BATTERY && !c->power)
        return c->o.flush_when_bad ? CACHE_NONE : CACHE_STRICT;
    return by_protection[c->o.protection];
}

static bool is_volatile(const struct cache *c)
{
    return c->mode == CACHE_NONE || (c->mode == CACHE_THROUGH && c->below->info.volatile_cache);
}

void mode_tell(struct cache *c)
{
    bool was = c->dev.info.volatile_cache;
    c->dev.info.volatile_cache = is_volatile(c);
    if (c->dev.info.volatile_cache != was)
        blk_notify(&c->dev, BLK_EVENT_CACHE);
}

void mode_init(struct cache *c)
{
    c->mode = mode_of(c);
    c->dev.info.volatile_cache = is_volatile(c);
    if (c->o.write_back)
        c->dev.info.atomic_write = 0; /* what was one write may leave in parts */
    c->dirty_limit = c->blocks.count / 4 * 3;
}

void cache_set_power(struct cache *c, bool healthy)
{
    enum cache_mode was = c->mode;
    c->power = healthy;
    c->mode = mode_of(c);
    if (c->mode == was)
        return;
    mode_tell(c);
    if (was == CACHE_SAFE) {
        absorb_hold(c, c->mode == CACHE_STRICT && !STAILQ_EMPTY(&c->delayed));
        drain_start(c); /* M1 */
    } else {
        absorb_hold(c, false);
    }
    change_go_on(c);
    cache_changed(c);
}

void cache_set_dirty_limit(struct cache *c, uint64_t bytes)
{
    c->dirty_limit = (uint32_t)MIN(bytes / PAGE_BYTES, c->blocks.count / 4 * 3);
    change_go_on(c);
    destage_pump(c);
}

unsigned cache_fill_permille(const struct cache *c)
{
    uint64_t blocks = c->dirty_limit == 0 ? 1000 * (c->dirty_blocks > 0) : 1000ull * c->dirty_blocks / c->dirty_limit;
    uint64_t lines = 1000ull * c->lines.used / c->lines.count;
    return (unsigned)MIN(MAX(blocks, lines), 1000u);
}
