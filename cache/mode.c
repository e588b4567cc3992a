/*
 * What completed writes and flushes mean, by protection and power: the table in cache/cache.h.
 *
 *                        write-back off ------------------> THROUGH
 *                        protection none -----------------> NONE
 *                        forced, pmem --------------------> SAFE
 *                        journal -------------------------> LOGGED
 *      battery:   SAFE <---- healthy / not healthy ----> STRICT, or NONE (flush_when_bad)
 *      no claim yet for the arena or the log, or neither is there: what stands in for a battery that is not healthy,
 *      and NONE for LOGGED
 *
 * M1  From the moment on when SAFE is left nothing more is kept on the strength of what protected it, and no flush is
 *     answered before what was dirty is below and flushed. It is destaged and flushed, asked for or not, until that
 *     succeeds. So it is when LOGGED is left.
 * M2  Writes that were kept in SAFE but not answered yet (they waited for room) are answered when that is done: in STRICT
 *     all are to be durable then, in NONE those with FUA.
 * M3  volatile_cache changes in the same call; watchers of the device, and the owner, hear of it in the same turn.
 */
#include "cache/cache_impl.h"

static const struct {
    const char *name;
    bool absorbs, flushes_at_once;
    bool tells_volatile;
    bool promises;           /* on the strength of something beside the volume */
    enum cache_mode instead; /* of one that promises, while it cannot */
} modes[] = {
    [CACHE_THROUGH] = {"through", false, false, false, false, CACHE_THROUGH},
    [CACHE_NONE] = {"none", true, false, true, false, CACHE_NONE},
    [CACHE_SAFE] = {"safe", true, true, false, true, CACHE_STRICT},
    [CACHE_STRICT] = {"strict", false, false, false, false, CACHE_STRICT},
    [CACHE_LOGGED] = {"logged", true, false, true, true, CACHE_NONE},
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

/* --- which is in force --- */

/* In the place of one that promises, while it cannot. */
static enum cache_mode instead_of(const struct cache *c, enum cache_mode mode)
{
    return c->o.flush_when_bad ? CACHE_NONE : modes[mode].instead;
}

/* What the protection would allow, if it can have what it rests upon; reason: why it cannot. */
static enum cache_mode protected_mode(const struct cache *c, const char **reason)
{
    static const enum cache_mode by_protection[] = {
        [CACHE_PROTECT_NONE] = CACHE_NONE,   [CACHE_PROTECT_BATTERY] = CACHE_SAFE,
        [CACHE_PROTECT_FORCED] = CACHE_SAFE, [CACHE_PROTECT_JOURNAL] = CACHE_LOGGED,
        [CACHE_PROTECT_PMEM] = CACHE_SAFE,
    };
    enum cache_protection protection = c->o.protection;
    enum cache_mode mode = by_protection[protection];
    *reason = NULL;
    if (protection == CACHE_PROTECT_BATTERY && !c->power)
        *reason = "the battery is not known to be healthy";
    else if (protection == CACHE_PROTECT_PMEM && c->o.arena == NULL)
        *reason = "there is no arena";
    else if (protection == CACHE_PROTECT_JOURNAL && c->o.log == NULL)
        *reason = "there is no log";
    else if (protection == CACHE_PROTECT_JOURNAL && cache_log_is_dead(c->o.log))
        *reason = "its log is dead";
    return *reason == NULL ? mode : instead_of(c, mode);
}

/* The one that is asked for, but for the claim. */
static enum cache_mode wanted_mode(const struct cache *c, const char **reason)
{
    *reason = NULL;
    return c->o.write_back ? protected_mode(c, reason) : CACHE_THROUGH;
}

bool mode_wants_claim(const struct cache *c)
{
    const char *reason;
    return (c->o.arena != NULL || c->o.log != NULL) && modes[wanted_mode(c, &reason)].promises;
}

static enum cache_mode mode_of(const struct cache *c, const char **reason)
{
    enum cache_mode mode = wanted_mode(c, reason);
    if (commit_holds_mode(c))
        return CACHE_LOGGED;
    if (!mode_wants_claim(c) || (claim_is_held(c) && !c->bare))
        return mode;
    *reason = c->claim_refused ? "it could not be noted that the volume needs this cache"
                               : "it is being noted that the volume needs this cache";
    return instead_of(c, mode);
}

const char *mode_reason(const struct cache *c)
{
    const char *reason;
    mode_of(c, &reason);
    return c->paused ? "what is dirty cannot be destaged" : reason;
}

static bool is_volatile(const struct cache *c)
{
    return modes[c->mode].tells_volatile || (c->mode == CACHE_THROUGH && c->below->info.volatile_cache);
}

void mode_tell(struct cache *c)
{
    bool was = c->dev.info.volatile_cache;
    c->dev.info.volatile_cache = is_volatile(c);
    if (c->dev.info.volatile_cache != was)
        blk_notify(&c->dev, BLK_EVENT_CACHE);
}

/*
 * M4  What is kept while nothing can be promised (NONE) is not published. When something can be again, all of it is
 *     destaged first.
 */
static void publish_look(struct cache *c)
{
    bool was = c->blocks.publishes;
    c->blocks.publishes = c->o.arena != NULL && mode_wants_claim(c);
    if (was || !c->blocks.publishes || c->dirty_blocks == 0)
        return;
    c->bare = true;
    drain_start(c);
}

void mode_init(struct cache *c)
{
    const char *reason;
    publish_look(c);
    c->mode = mode_of(c, &reason);
    if (c->mode == CACHE_LOGGED)
        commit_entered(c);
    c->dev.info.volatile_cache = is_volatile(c);
    if (c->o.write_back)
        c->dev.info.atomic_write = 0; /* what was one write may leave in parts */
    c->dirty_limit = c->blocks.count / 4 * 3;
}

void mode_look(struct cache *c)
{
    const char *reason;
    enum cache_mode was = c->mode;
    publish_look(c);
    c->mode = mode_of(c, &reason);
    if (c->mode == was)
        return;
    mode_tell(c);
    if (c->mode == CACHE_LOGGED)
        commit_entered(c);
    absorb_hold(c, was == CACHE_SAFE && !STAILQ_EMPTY(&c->delayed)); /* M2 */
    if (modes[was].promises)
        drain_start(c); /* M1 */
    change_go_on(c);
    cache_changed(c);
}

void cache_set_power(struct cache *c, bool healthy)
{
    c->power = healthy;
    mode_look(c);
    claim_look(c);
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
    uint64_t log = commit_is_in_use(c) ? cache_log_fill_permille(c->o.log) : 0;
    return (unsigned)MIN(MAX(MAX(blocks, lines), log), 1000u);
}
