/*
 * What happens to caches: batteries that go bad, mains that fail, and the operator.
 *
 *   battery   it goes bad among writes, or is good again. What was protected by it leaves; a flush is asked for meanwhile,
 *             and when it is answered the machine may go down
 *   mains     they fail: the caches hear of it and write down what they have, unasked. Then the mains are back, or the
 *             battery ends: when all is written down, and then nothing may be lost; or before
 *   cache     the operator empties a cache, or the limit of what may be dirty changes; or a crash comes right after
 *             something was promised
 */
#include "tests/sim/sim.h"

#include "core/check.h"

static bool is_up(const struct sim *s)
{
    return s->array != NULL && !s->crashed && !peek_frozen(s->array);
}

static bool has_caches(const struct sim *s)
{
    return s->config.cached && is_up(s);
}

static void bustle(struct sim *s, struct dice *dice, unsigned most, uint64_t events)
{
    for (uint64_t i = dice_range(dice, 1, most); i > 0 && !s->crashed; i--) {
        (void)load_one(s, dice);
        sim_events(s, dice_below(dice, events));
    }
}

/* At once, or soon. */
static void cut_soon(struct sim *s, struct dice *dice, bool power)
{
    for (uint64_t i = dice_one_in(dice, 3) ? 0 : dice_scale(dice, 60); i > 0 && !s->crashed; i--)
        (void)sim_event(s);
    if (!s->crashed)
        world_cut(s, power);
}

/* Writes that go to the disks just now. */
static void let_some_leave(struct sim *s, struct dice *dice)
{
    if (dice_one_in(dice, 2))
        sim_wait_ns(s, dice_scale(dice, 320000000));
    if (!s->crashed && dice_one_in(dice, 2))
        bustle(s, dice, 6, 20);
}

/* Of caches that a battery protects: answers that had to wait; is the rate known at which things leave? */
static uint64_t answers_delayed(const struct sim *s, bool *known)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < s->config.volumes; i++) {
        const struct sim_cache *c = &s->volumes[i].cache;
        struct cache_status status;
        if (c->cache == NULL || c->options.protection != CACHE_PROTECT_BATTERY)
            continue;
        cache_status(c->cache, &status);
        count += status.delayed;
        *known = *known || status.destage_rate > 0;
    }
    return count;
}

/* What leaves is slow, and then more comes than there is room for: until answers wait. False: none does. */
static bool press(struct sim *s, struct dice *dice)
{
    struct simdisk *slow = world_disk(s, (unsigned)dice_below(dice, s->config.members));
    bool known = false;
    slow->slow = (unsigned)dice_range(dice, 20, 100);
    uint64_t before = answers_delayed(s, &known);
    for (unsigned i = 0; i < 100 && is_up(s) && !known; i++) {
        (void)load_one(s, dice);
        sim_wait_ns(s, dice_below(dice, 2000000));
        (void)answers_delayed(s, &known);
    }
    for (unsigned i = 0; is_up(s) && i < s->config.volumes; i++)
        if (s->volumes[i].cache.cache != NULL)
            cache_set_dirty_limit(s->volumes[i].cache.cache, dice_range(dice, 16, 48) * PAGE_BYTES);
    for (unsigned i = 0; i < 100 && is_up(s) && answers_delayed(s, &known) == before; i++) {
        (void)load_one(s, dice);
        sim_events(s, dice_below(dice, 3));
    }
    slow->slow = 0;
    return is_up(s) && answers_delayed(s, &known) != before;
}

static unsigned writes_busy(const struct sim *s)
{
    unsigned count = 0;
    for (unsigned i = 0; i < SIM_IOS; i++)
        count += s->ios[i].busy && s->ios[i].req.op == BLK_WRITE;
    return count;
}

/* When the next write is answered. */
static void cut_at_an_answer(struct sim *s, struct dice *dice)
{
    for (unsigned busy = writes_busy(s); writes_busy(s) == busy && busy > 0 && is_up(s) && sim_event(s);)
        ;
    if (!s->crashed)
        world_cut(s, dice_one_in(dice, 2));
}

void act_battery(struct sim *s, struct dice *dice)
{
    if (!has_caches(s))
        return;
    bustle(s, dice, 16, 12);
    let_some_leave(s, dice);
    if (is_up(s) && dice_one_in(dice, 4) && press(s, dice)) {
        caches_power(s, true, s->on_battery);
        cut_at_an_answer(s, dice);
    }
    if (s->crashed)
        return;
    caches_power(s, dice_one_in(dice, 2) ? !s->battery_bad : dice_one_in(dice, 2), s->on_battery);
    if (dice_one_in(dice, 4)) {
        cut_at_an_answer(s, dice);
        return;
    }
    if (dice_one_in(dice, 2))
        bustle(s, dice, 8, 12);
    if (dice_one_in(dice, 2) || s->crashed)
        return;
    load_flush(s);
    if (!s->crashed && dice_one_in(dice, 2))
        cut_soon(s, dice, !dice_one_in(dice, 3));
}

/* Until no cache has anything that is not on the disks, by its own doing. */
static void wait_for_caches(struct sim *s)
{
    uint64_t end = s->loop.now_ns + 60000000000;
    while (is_up(s) && s->loop.now_ns < end && !caches_are_written_down(s) && sim_event(s))
        ;
}

void act_mains(struct sim *s, struct dice *dice)
{
    if (!has_caches(s))
        return;
    bustle(s, dice, 24, 12);
    let_some_leave(s, dice);
    if (!is_up(s))
        return;
    caches_power(s, s->battery_bad, true);
    if (dice_one_in(dice, 2))
        bustle(s, dice, 8, 12);
    switch (dice_below(dice, 4)) {
    case 0: /* the mains are back */
        if (dice_one_in(dice, 2) && !s->crashed)
            sim_events(s, dice_scale(dice, 300));
        if (!s->crashed)
            caches_power(s, s->battery_bad, false);
        break;
    case 1: /* the battery does not last */
        if (!s->crashed)
            cut_soon(s, dice, true);
        break;
    default:
        wait_for_caches(s);
        if (!is_up(s))
            return;
        cut_soon(s, dice, true);
    }
}

void act_cache(struct sim *s, struct dice *dice)
{
    unsigned volume = (unsigned)dice_below(dice, s->config.volumes);
    if (has_caches(s) && caches_hold(s, volume))
        caches_let_go(s, volume, dice_one_in(dice, 2));
    if (!has_caches(s) || s->volumes[volume].cache.cache == NULL)
        return;
    struct cache *cache = s->volumes[volume].cache.cache;
    uint64_t bytes = s->volumes[volume].cache.options.bytes;
    bustle(s, dice, 16, 12);
    let_some_leave(s, dice);
    if (!is_up(s))
        return;
    switch (dice_below(dice, 4)) {
    case 0:
        cache_set_dirty_limit(cache, dice_one_in(dice, 3) ? bytes : dice_below(dice, bytes));
        break;
    case 1:
        if (caches_empty(s, volume) && dice_one_in(dice, 2))
            cut_soon(s, dice, dice_one_in(dice, 2));
        break;
    case 2:
        load_flush(s);
        if (!s->crashed)
            cut_soon(s, dice, dice_one_in(dice, 2));
        break;
    default:
        load_drain(s);
        if (!s->crashed)
            cut_soon(s, dice, dice_one_in(dice, 2));
    }
}
