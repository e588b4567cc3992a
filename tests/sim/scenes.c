/*
 * Scenes: what is rare by chance and matters most. Each leads the array to a moment at which something has just been
 * promised, or not yet, and does the worst there.
 *
 *   calm       the power fails about when it is marked clean
 *   rebuilt    the power fails about when a rebuilt member is called active
 *   opening    it is cut off while a generation is written, and again in the starts after that
 *   aftermath  a crash among writes; then, while rows are still to be resynchronised, more writes, and a member is lost,
 *              or refuses a write, or it is stopped and started without one
 *   owed       a rebuild comes to its checkpoint, and then a crash: about when the checkpoint goes to disk, or among
 *              writes to rows below it. Then the rebuild comes to its end among more writes, and a member is lost
 *   pulled     a crash when a member has just been pulled among writes, and nobody has written down yet that it was; it
 *              starts with that one, without it and then with it, or without another one. Or nobody was pulled before.
 *              Or the writes stand in the log of the others, and the start without it is cut off in the replay
 *   returned   a member is pulled with what is in its cache, among writes or in a flush, and caught up
 *   joined     a disk joins an array that is clean just when writes begin
 *   mended     a disk that must stay refused a write, and what is bad now is mended on it, slowly; the power fails when
 *              all labels but its own say so
 *   alone      of mirrors one is pulled among writes to rows that were clean, and then all the others: it starts with
 *              that one alone, which nobody has written off. The others are caught up, and that one is pulled
 *   replaced   the power fails about when the first label of a disk that takes another's place goes to disk
 *
 * More than one run in two has one of them, or a cable or a split brain, for its theme, which is drawn most of the time,
 * with levels and policies that suit it (config.c). The last three come in no other run.
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

/* Until it has come to be, or for some time. */
static bool wait_long(struct sim *s, uint64_t ns, bool (*is_so)(const struct array *, uint64_t before), uint64_t before)
{
    uint64_t end = s->loop.now_ns + ns;
    while (is_up(s) && s->loop.now_ns < end) {
        if (is_so(s->array, before))
            return true;
        if (!sim_event(s))
            return false;
    }
    return false;
}

static bool wait_until(struct sim *s, bool (*is_so)(const struct array *, uint64_t before), uint64_t before)
{
    return wait_long(s, PATIENCE_NS, is_so, before);
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

/* --- with all members in service --- */

static uint64_t all_slots(const struct sim *s)
{
    return sim_bit(s->config.members) - 1;
}

static bool are_online(const struct array *array, uint64_t slots)
{
    return (peek_slots(array, MEMBER_ONLINE) & slots) == slots;
}

/* Calls of the operator. */
static void answers_wait(struct sim *s)
{
    while (s->calls_busy > 0 && is_up(s) && sim_event(s))
        ;
}

/* Bring disks in, where some lack. */
static bool become_whole(struct sim *s, struct dice *dice)
{
    for (unsigned i = 0; i < s->config.members && is_up(s) && !are_online(s->array, all_slots(s)); i++) {
        (void)sim_pace_free(s);
        sim_action(s, &(struct action){ACT_ONLINE, dice_bits(dice)});
        if (is_up(s))
            (void)wait_until(s, are_online, all_slots(s));
    }
    return is_up(s) && are_online(s->array, all_slots(s)) && !s->doomed;
}

/* The operator takes a member out. */
static bool take_one_out(struct sim *s, struct dice *dice, unsigned *slot)
{
    sim_action(s, &(struct action){ACT_FAIL, dice_bits(dice)});
    answers_wait(s);
    uint64_t out = is_up(s) ? peek_slots(s->array, MEMBER_FAILED) : 0;
    *slot = out != 0 ? (unsigned)__builtin_ctzll(out) : 0;
    return out != 0;
}

static bool become_calm(struct sim *s)
{
    load_drain(s);
    return is_up(s) && wait_until(s, is_clean, 0);
}

/* --- owed --- */

static bool is_rebuilt_further(const struct array *array, uint64_t before)
{
    return peek_rebuilt(array) > before;
}

static bool is_committed(const struct array *array, uint64_t before)
{
    (void)before;
    return peek_committed(array);
}

/* A new disk is filled so slowly that a checkpoint comes in the middle. */
static bool rebuild_slowly(struct sim *s, struct dice *dice, unsigned *slot)
{
    if (s->disks_count >= SIM_DISKS / 2 || !take_one_out(s, dice, slot))
        return false;
    for (unsigned i = 0; i < s->config.volumes; i++) {
        const struct layout *layout = &s->volumes[i].layout;
        uint64_t rows = 0, seconds = dice_range(dice, 12, 40);
        for (uint64_t row = 0; row < layout->rows; row++)
            rows += (peek_row(s->array, i, row, layout->row_data) & ROW_WRITTEN) != 0;
        sim_pace_limit(s, i, rows * layout->roles * layout->spec.chunk / seconds + 1);
    }
    sim_online(s, *slot, world_disk_new(s));
    answers_wait(s);
    return is_up(s);
}

/* The rebuild that a crash cut off goes on, among writes; a loss at its end meets rows that are not in sync yet. */
static void rebuild_ends(struct sim *s, struct dice *dice)
{
    uint64_t end = s->loop.now_ns + 90000000000, most = 200;
    unsigned slot;
    if (dice_one_in(dice, 3))
        (void)sim_pace_free(s);
    while (is_up(s) && s->loop.now_ns < end && !are_online(s->array, all_slots(s))) {
        if (most > 0 && dice_one_in(dice, 6) && load_one(s, dice))
            most--;
        if (!sim_event(s))
            break;
    }
    if (is_up(s) && dice_one_in(dice, 2))
        sim_events(s, dice_scale(dice, 100));
    if (is_up(s) && are_online(s->array, all_slots(s)) && sim_draw_victim(s, dice, &slot))
        sim_pull(s, slot, false, false);
    if (is_up(s))
        load_verify(s, dice_one_in(dice, 2));
}

void scene_owed(struct sim *s, struct dice *dice)
{
    unsigned slot;
    if (!become_whole(s, dice))
        return;
    bustle(s, dice, 40);
    if (dice_one_in(dice, 2) ? !become_calm(s) : !is_up(s))
        return;
    if (!rebuild_slowly(s, dice, &slot) || !wait_long(s, 60000000000, is_rebuilt_further, peek_rebuilt(s->array)))
        return;
    if (dice_one_in(dice, 2)) { /* the others' labels are written before its own */
        world_disk(s, slot)->slow = (unsigned)dice_range(dice, 1, 300);
        cut_soon(s, dice, label_events(s), true, false);
        return;
    }
    if (!wait_until(s, is_committed, 0))
        return;
    cut_soon(s, dice, 200, !dice_one_in(dice, 3), true);
    s->crash_again = 0;
    world_start_again(s, dice);
    if (is_up(s))
        rebuild_ends(s, dice);
}

/* --- pulled --- */

/* Disks that go on failing when they are back. */
static uint64_t faulty_slots(const struct sim *s)
{
    uint64_t faulty = 0;
    for (unsigned slot = 0; slot < s->config.members; slot++) {
        const struct simdisk *d = world_disk(s, slot);
        if (d->dead || d->reads_fail + d->writes_fail + d->time_outs + d->bad_sectors > 0)
            faulty |= sim_bit(slot);
    }
    return faulty;
}

/* Who may be away at the next start beside those that are lost anyway. */
static uint64_t another_one(const struct sim *s, struct dice *dice, uint64_t but)
{
    uint64_t there = (s->must_in | s->unrecorded) & all_slots(s) & ~faulty_slots(s),
             one = sim_bit((unsigned)dice_below(dice, s->config.members));
    bool good = (there & one) && !(one & but) && config_survives(s, (all_slots(s) & ~there) | one);
    return good ? one : 0;
}

/* Nobody is pulled before the crash, but somebody is not there after it. */
static void crash_and_miss_one(struct sim *s, struct dice *dice)
{
    cut_soon(s, dice, 300, !dice_one_in(dice, 4), true);
    s->crash_again = 0;
    s->keep_away = another_one(s, dice, 0);
    world_start_again(s, dice);
    if (is_up(s))
        load_verify(s, dice_one_in(dice, 2));
}

/*
 * What is asked for now is logged by the others, and goes no further before the loss is on disk: the crash comes there.
 */
static void crash_when_logged(struct sim *s, struct dice *dice)
{
    for (uint64_t i = dice_range(dice, 1, 6); i > 0; i--)
        (void)load_one(s, dice);
    sim_wait_ns(s, dice_below(dice, 400000000));
    if (!s->crashed)
        world_cut(s, dice_one_in(dice, 2));
}

/*
 * A start without the member is cut off when the journal's replay writes rows. All labels say by then that it is absent:
 * so it must not be believed at the next start, at which it is back, and another one may be away.
 */
static void cut_replay(struct sim *s, struct dice *dice, unsigned slot)
{
    s->keep_away = sim_bit(slot);
    s->crash_again = 0;
    s->crash_power = dice_one_in(dice, 2);
    s->crash_after_row = 1 + dice_scale(dice, 12 * s->config.members);
    if (!world_start_once(s, dice) || !s->crashed) {
        s->crash_after_row = 0; /* there was nothing to replay */
        return;
    }
    if (!(s->trouble & ~sim_bit(slot))) /* nobody else was lost in between, which begins one more fork */
        s->torn = false;
    s->last &= ~sim_bit(slot);
    world_disk(s, slot)->gone = false;
    s->keep_away = dice_one_in(dice, 3) ? 0 : another_one(s, dice, sim_bit(slot));
    world_start_again(s, dice);
    if (is_up(s))
        load_verify(s, true);
}

void scene_pulled(struct sim *s, struct dice *dice)
{
    unsigned slot;
    if (!become_whole(s, dice) || (dice_one_in(dice, 2) && !become_calm(s)))
        return;
    bustle(s, dice, 12);
    if (is_up(s) && dice_one_in(dice, 3)) {
        crash_and_miss_one(s, dice);
        return;
    }
    if (!is_up(s) || !sim_draw_victim(s, dice, &slot))
        return;
    sim_pull(s, slot, false, false);
    if (s->config.theme == ACT_PULLED && dice_one_in(dice, 3)) { /* seeds of other themes mean what they meant */
        crash_when_logged(s, dice);
        cut_replay(s, dice, slot);
        return;
    }
    for (uint64_t i = dice_below(dice, 8); i > 0 && is_up(s); i--) {
        (void)load_one(s, dice);
        sim_events(s, dice_below(dice, 8));
    }
    if (!s->crashed)
        cut_soon(s, dice, 80, dice_one_in(dice, 2), true);
    switch (dice_below(dice, 3)) {
    case 0:
        world_disk(s, slot)->gone = false;
        break;
    case 1:
        s->keep_away = sim_bit(slot);
        s->crash_again = 1;
        break;
    default:
        world_disk(s, slot)->gone = false;
        s->keep_away = another_one(s, dice, sim_bit(slot));
    }
    world_start_again(s, dice);
    if (is_up(s))
        load_verify(s, dice_one_in(dice, 2));
}

/* --- returned --- */

/* Until its disk flushes. */
static bool wait_for_flush(struct sim *s, unsigned slot)
{
    uint64_t end = s->loop.now_ns + PATIENCE_NS;
    while (is_up(s) && s->loop.now_ns < end && !simdisk_is_flushing(world_disk(s, slot)))
        if (!sim_event(s))
            return false;
    return is_up(s) && simdisk_is_flushing(world_disk(s, slot));
}

void scene_returned(struct sim *s, struct dice *dice)
{
    unsigned slot = (unsigned)dice_below(dice, s->config.members);
    if (!become_whole(s, dice))
        return;
    if (dice_one_in(dice, 2) && !become_calm(s))
        return;
    bustle(s, dice, 12);
    if (!dice_one_in(dice, 3)) {
        load_drain(s);
        if (!wait_for_flush(s, slot))
            return;
        sim_events(s, dice_scale(dice, 4));
    }
    if (!is_up(s) || !world_trouble(s, slot) || !sim_unplug(s, dice, slot) || !is_up(s))
        return;
    world_disk(s, slot)->gone = false;
    sim_online(s, slot, world_disk(s, slot));
    answers_wait(s);
    if (is_up(s) && wait_until(s, are_online, sim_bit(slot)))
        load_verify(s, dice_one_in(dice, 2));
}

/* --- joined --- */

static bool is_joining(const struct array *array, uint64_t before)
{
    (void)before;
    return peek_joining(array);
}

void scene_joined(struct sim *s, struct dice *dice)
{
    unsigned slot, other = (unsigned)dice_below(dice, s->config.members);
    if (!become_whole(s, dice))
        return;
    bustle(s, dice, 12);
    if (!become_calm(s) || !take_one_out(s, dice, &slot))
        return;
    struct simdisk *disk = world_disk(s, slot);
    if (disk->gone || disk->dead)
        return;
    if (dice_one_in(dice, 3))
        bustle(s, dice, 3);
    if (!is_up(s) || (dice_one_in(dice, 2) && !become_calm(s)))
        return;
    sim_online(s, slot, disk);
    if (!wait_until(s, is_joining, 0))
        return;
    if (dice_one_in(dice, 2))
        world_disk(s, other)->slow = (unsigned)dice_range(dice, 5, 200);
    while (is_up(s) && peek_joining(s->array)) {
        if (dice_one_in(dice, 10))
            (void)load_one(s, dice);
        if (!sim_event(s))
            break;
    }
    bustle(s, dice, 4);
    if (is_up(s) && wait_until(s, are_online, sim_bit(slot)))
        load_verify(s, dice_one_in(dice, 2));
    world_disk(s, other)->slow = 0;
}

/* --- mended --- */

static bool has_less_bad(const struct array *array, uint64_t before)
{
    return array_description(array)->bad.count < before;
}

static bool is_last_label(const struct array *array, uint64_t before)
{
    (void)before;
    return peek_labels_left(array) == 1;
}

/* Nothing is mended in the background meanwhile. False: no write of a volume that can bear it was refused. */
static bool refuse_until_bad(struct sim *s, struct dice *dice, struct simdisk *disk)
{
    for (unsigned i = 0; i < s->config.volumes; i++)
        sim_pace_pause(s, i);
    answers_wait(s);
    for (unsigned i = 0; i < 60 && is_up(s) && array_description(s->array)->bad.count == 0; i++) {
        if (disk->writes_fail == 0)
            disk->writes_fail = 2; /* it is tried twice */
        (void)load_one(s, dice);
        sim_events(s, dice_below(dice, 20));
    }
    disk->writes_fail = 0;
    if (is_up(s))
        load_flush(s);
    return is_up(s) && wait_until(s, is_committed, 0) && array_description(s->array)->bad.count > 0;
}

void scene_mended(struct sim *s, struct dice *dice)
{
    unsigned slot;
    if (!s->config.thin || !become_whole(s, dice))
        return;
    bustle(s, dice, 20);
    load_drain(s);
    if (!is_up(s) || !sim_draw_victim(s, dice, &slot))
        return;
    struct simdisk *disk = world_disk(s, slot);
    if (!refuse_until_bad(s, dice, disk))
        return;
    (void)sim_pace_free(s);
    answers_wait(s);
    disk->slow = (unsigned)dice_range(dice, 20, 100);
    if (is_up(s) && wait_until(s, has_less_bad, array_description(s->array)->bad.count) &&
        wait_until(s, is_last_label, 0))
        cut_soon(s, dice, 4, true, false);
    disk->slow = 0;
    if (!s->crashed)
        return;
    s->crash_again = 0;
    world_start_again(s, dice);
    if (is_up(s))
        load_verify(s, true);
}

/* --- alone --- */

/* Is it known in memory only that this one is lost? Then it is as good as the others. */
static bool can_run_alone(const struct sim *s, unsigned slot)
{
    const struct simdisk *disk = world_disk(s, slot);
    return s->crashed && (s->unrecorded & sim_bit(slot)) && !s->torn && !s->doomed && disk->bad_sectors == 0 &&
           disk->writes_fail == 0 && config_survives(s, all_slots(s) & ~sim_bit(slot));
}

void scene_alone(struct sim *s, struct dice *dice)
{
    unsigned slot;
    if (!become_whole(s, dice))
        return;
    bustle(s, dice, 30);
    if (!become_calm(s))
        return;
    if (dice_one_in(dice, 2))
        bustle(s, dice, 2);
    if (!is_up(s) || !sim_draw_victim(s, dice, &slot))
        return;
    sim_pull(s, slot, false, false);
    for (uint64_t i = dice_range(dice, 1, 6); i > 0 && is_up(s); i--) {
        (void)load_one(s, dice);
        sim_events(s, dice_below(dice, 8));
    }
    if (!s->crashed)
        cut_soon(s, dice, 150, dice_one_in(dice, 3), true);
    world_disk(s, slot)->gone = false;
    s->crash_again = 0;
    if (can_run_alone(s, slot))
        s->keep_away = all_slots(s) & ~sim_bit(slot);
    world_start_again(s, dice);
    if (is_up(s))
        load_verify(s, true);
    if (!is_up(s) || !become_whole(s, dice) || !world_trouble(s, slot))
        return;
    sim_pull(s, slot, false, false);
    load_verify(s, true);
}

/* --- replaced --- */

static bool is_replacing(const struct array *array, uint64_t before)
{
    (void)before;
    return peek_replacing(array) == PEEK_EITHER;
}

void scene_replaced(struct sim *s, struct dice *dice)
{
    if (!become_whole(s, dice))
        return;
    bustle(s, dice, 20);
    if (!is_up(s))
        return;
    (void)sim_pace_free(s);
    if (dice_one_in(dice, 2))
        load_drain(s);
    if (!is_up(s))
        return;
    sim_action(s, &(struct action){ACT_REPLACE, dice_bits(dice)});
    answers_wait(s);
    if (!is_up(s) || s->newcomer == NULL || !wait_until(s, is_replacing, 0))
        return;
    const struct simdisk *disk = s->newcomer;
    bool further = !dice_one_in(dice, 4);
    while (further && is_up(s) && is_replacing(s->array, 0) && !simdisk_is_flushing(disk) && sim_event(s))
        ;
    if (!is_up(s))
        return;
    cut_soon(s, dice, 8, true, false);
    s->crash_again = 0;
    world_start_again(s, dice);
    if (is_up(s))
        load_verify(s, true);
}
