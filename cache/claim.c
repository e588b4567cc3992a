/*
 * The claim: that the newest bytes of the volume may lie in an arena or a log. Its owner keeps it in a place where
 * everybody looks who is about to serve the volume (struct cache_owner), so that nobody does so without these bytes.
 *
 *                  wanted                    answered: it stands
 *      FREE ------------------> ASKED -------------------------> HELD
 *       ^ ^                       |                               | ^
 *       | +--- not: in a while ---+                               | |
 *       |                                                         | +--- it still stands: in a while
 *       +-------- answered: it is gone ------- RETURNING <--------+
 *                                                 not wanted any more, and nothing was promised since a drain
 *
 * K1  Modes that make promises on the strength of an arena or a log are in force in HELD only (mode.c).
 * K2  It is given back when a drain has succeeded that began after the last promise: then what was promised is below and
 *     flushed. (Who leaves a mode that makes promises starts one.) A log that is dead has one of its own (commit.c).
 *     It is not asked for before everything dirty is in the arena.
 * K3  Nobody is called from within a call: the owner is asked from the loop's ready list, and may answer at once.
 * K4  A cache that is closed gives it back before it tells, if it can: it asks once.
 * K5  It is asked for again while it is held (RENEWING) when a device of a log died: it says from which label on the log
 *     is to be believed. Until then it stands as it was.
 */
#include "cache/arena.h"
#include "cache/cache_impl.h"

#define AGAIN_NS 5000000000ull

static bool has_owner(const struct cache *c)
{
    return c->o.owner != NULL && c->o.owner->claim != NULL;
}

bool claim_is_held(const struct cache *c)
{
    return c->claim == CLAIM_HELD || c->claim == CLAIM_RENEWING;
}

bool claim_is_gone(const struct cache *c)
{
    return c->claim == CLAIM_FREE || !has_owner(c);
}

bool claim_is_renewed(const struct cache *c)
{
    return !c->claim_stale;
}

/* K2 */
static bool may_return(const struct cache *c)
{
    return commit_may_return(c) && !c->draining && !c->drain_wanted;
}

bool claim_waits(const struct cache *c)
{
    return c->claim == CLAIM_ASKED || c->claim == CLAIM_RENEWING || c->claim == CLAIM_RETURNING;
}

static void claim_ask(struct cache *c, enum claim claim)
{
    c->claim = claim;
    loop_defer(c->dev.loop, &c->claim_task);
}

void claim_look(struct cache *c)
{
    bool wanted = mode_wants_claim(c) && c->closed == NULL;
    if (!has_owner(c) || c->claim_again.armed)
        return;
    if (c->claim == CLAIM_FREE && wanted && !c->bare)
        claim_ask(c, CLAIM_ASKED);
    else if (c->claim == CLAIM_HELD && !wanted && may_return(c))
        claim_ask(c, CLAIM_RETURNING);
    else if (c->claim == CLAIM_HELD && wanted && c->claim_stale)
        claim_ask(c, CLAIM_RENEWING);
}

bool claim_renew(struct cache *c)
{
    if (!has_owner(c))
        return false;
    c->claim_stale = true;
    claim_look(c);
    return true;
}

static void claim_run(struct task *task)
{
    struct cache *c = container_of(task, struct cache, claim_task);
    c->o.owner->claim(c->o.owner, c, c->claim != CLAIM_RETURNING);
}

void cache_claimed(struct cache *c, bool held, bool ok)
{
    bool renewing = c->claim == CLAIM_RENEWING;
    ASSERT((renewing || c->claim == (held ? CLAIM_ASKED : CLAIM_RETURNING)) && !c->claim_task.queued);
    c->claim = held == ok || renewing ? CLAIM_HELD : CLAIM_FREE;
    c->claim_stale = c->claim_stale && !(held && ok);
    c->claim_refused = held && !ok;
    if (!ok)
        timer_start(c->dev.loop, &c->claim_again, AGAIN_NS);
    if (c->closed == NULL) {
        mode_look(c);
        cache_changed(c);
    }
    claim_look(c);
    commit_claim_changed(c);
    cache_close_if_idle(c);
}

static void again_fire(struct timer *timer)
{
    claim_look(container_of(timer, struct cache, claim_again));
}

void claim_init(struct cache *c)
{
    c->claim = c->o.claimed || !has_owner(c) ? CLAIM_HELD : CLAIM_FREE;
    ASSERT(claim_is_held(c) || c->o.arena == NULL || arena_published(c->o.arena) == 0);
    c->claim_task.run = claim_run;
    c->claim_again.fire = again_fire;
}

void claim_fini(struct cache *c)
{
    timer_stop(c->dev.loop, &c->claim_again);
}
