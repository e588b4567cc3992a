/*
 * Scenes: what is rare by chance and matters most. Each leads the array to a moment at which something has just been
 * promised, or not yet, and does the worst there.
 *
 *   calm       the power fails about when it is marked clean
 *   rebuilt    the power fails about when a rebuilt member is called active
 *   opening    it is cut off while a generation is written, and again in the starts after that
 *   aftermath  a crash among writes; then, while rows are still to be resynchronised, more writes, and a member is lost,
 *              or refuses a write, or it is stopped and started without one
 *
 * One run in three has one of them, or a cable or a split brain, for its theme, which is drawn most of the time, with
 * levels and policies that suit it (config.c).
 */
#include "tests/sim/sim.h"

#include "core/check.h"

#define PATIENCE_NS 8000000000ull

static bool is_up(const struct sim *s)
{
    return s->array != NULL && !s->crashed && !peek_frozen(s->array);
}

/* Some requests with little time between them. */
static void bustle(struct sim *s, struct dice *dice, unsigned most)
{
    for (uint64_t i = dice_range(dice, 1, most); i > 0 && is_up(s); i--) {
        (void)load_one(s, dice);
        sim_events(s, dice_below(dice, 30));
    }
}

/* Until it has come to be, or for some seconds. */
static bool wait_until(struct sim *s, bool (*is_so)(const struct array *, uint64_t before), uint64_t before)
{
    uint64_t end = s->loop.now_ns + PATIENCE_NS;
    while (is_up(s) && s->loop.now_ns < end) {
        if (is_so(s->array, before))
            return true;
        if (!sim_event(s))
            return false;
    }
    return false;
}

/* Within so many events; `busy`: with requests to the end. */
static void cut_soon(struct sim *s, struct dice *dice, uint64_t events, bool power, bool busy)
{
    s->crash_in = 1 + (dice_one_in(dice, 2) ? dice_below(dice, events) : dice_scale(dice, events));
    s->crash_power = power;
    while (!s->crashed) {
        if (busy)
            (void)load_one(s, dice);
        if (!sim_event(s) && !s->crashed)
            world_cut(s, power);
    }
}

/* About as many as a generation takes. */
static uint64_t label_events(const struct sim *s)
{
    return 16 * s->config.members;
}

/* --- calm --- */

static bool is_clean(const struct array *array, uint64_t before)
{
    (void)before;
    return array_description(array)->clean;
}

void scene_calm(struct sim *s, struct dice *dice)
{
    bustle(s, dice, 8);
    load_drain(s);
    if (is_up(s) && wait_until(s, is_clean, 0))
        cut_soon(s, dice, label_events(s), true, false);
}

/* --- rebuilt --- */

static bool has_more_active(const struct array *array, uint64_t before)
{
    return (peek_active(array) & ~before) != 0;
}

void scene_rebuilt(struct sim *s, struct dice *dice)
{
    static const enum action_kind kinds[] = {ACT_FAIL, ACT_ONLINE};
    bustle(s, dice, 4);
    uint64_t all = sim_bit(s->config.members) - 1;
    for (unsigned i = is_up(s) && peek_slots(s->array, MEMBER_ONLINE) != all; i < ARRAY_LENGTH(kinds) && is_up(s);
         i++) {
        sim_action(s, &(struct action){kinds[i], dice_bits(dice)});
        while (s->calls_busy > 0 && is_up(s) && sim_event(s))
            ;
    }
    if (!is_up(s))
        return;
    uint64_t before = peek_active(s->array);
    bustle(s, dice, 4);
    if (is_up(s) && wait_until(s, has_more_active, before))
        cut_soon(s, dice, label_events(s), !dice_one_in(dice, 4), false);
}

/* --- opening --- */

static bool has_next_generation(const struct array *array, uint64_t before)
{
    return array_description(array)->generation != before;
}

void scene_opening(struct sim *s, struct dice *dice)
{
    static const enum action_kind kinds[] = {ACT_LOAD, ACT_LOAD, ACT_FAIL, ACT_ONLINE, ACT_VANISH};
    if (!is_up(s))
        return;
    uint64_t before = array_description(s->array)->generation;
    sim_action(s, &(struct action){kinds[dice_below(dice, ARRAY_LENGTH(kinds))], dice_bits(dice)});
    if (!is_up(s) || !wait_until(s, has_next_generation, before))
        return;
    cut_soon(s, dice, label_events(s), dice_one_in(dice, 3), false);
    s->crash_again = (unsigned)dice_range(dice, 1, 3);
}

/* --- aftermath --- */

/* Was a row written that is still to be resynchronised? */
static bool hole_is_written(struct sim *s)
{
    world_look(s);
    for (unsigned i = 0; i < s->config.volumes; i++)
        if (model_hole_is_mended(s->volumes[i].model))
            return true;
    return false;
}

static void lose_one(struct sim *s, struct dice *dice)
{
    static const enum action_kind kinds[] = {ACT_VANISH, ACT_VANISH, ACT_DIE, ACT_SPOIL, ACT_FAIL, ACT_UNPLUG};
    for (unsigned i = 0; i < 300 && is_up(s) && !hole_is_written(s); i++) {
        (void)load_one(s, dice);
        (void)sim_event(s);
    }
    bustle(s, dice, 16);
    if (is_up(s) && dice_one_in(dice, 3))
        load_drain(s);
    if (is_up(s))
        sim_action(s, &(struct action){kinds[dice_below(dice, ARRAY_LENGTH(kinds))], dice_bits(dice)});
    if (is_up(s))
        load_verify(s, dice_one_in(dice, 3));
}

static void refuse_a_write(struct sim *s, struct dice *dice)
{
    for (unsigned i = 0; i < 3 && is_up(s); i++)
        sim_action(s, &(struct action){ACT_WRITE_FAIL, dice_bits(dice)});
    if (is_up(s))
        sim_wait_ns(s, 5000000000);
    if (is_up(s) && dice_one_in(dice, 2))
        return;
    if (is_up(s))
        sim_action(s, &(struct action){ACT_VANISH, dice_bits(dice)});
    if (is_up(s))
        load_verify(s, true);
}

static void start_without_one(struct sim *s, struct dice *dice)
{
    if (!world_stop(s))
        return;
    s->short_handed = true;
    world_start_again(s, dice);
    if (is_up(s))
        load_verify(s, true);
}

void scene_aftermath(struct sim *s, struct dice *dice)
{
    static void (*const worst[])(struct sim *, struct dice *) = {lose_one, lose_one, refuse_a_write, start_without_one};
    if (!is_up(s))
        return;
    bustle(s, dice, 12);
    if (!s->crashed)
        cut_soon(s, dice, 100, !dice_one_in(dice, 3), true);
    s->crash_again = 0;
    world_start_again(s, dice);
    uint64_t drawn = dice_below(dice, ARRAY_LENGTH(worst));
    if (is_up(s))
        (s->config.thin ? refuse_a_write : worst[drawn])(s, dice);
}
