/* Faults, the operator, crashes: one action after the other. Each draws all it needs from a seed of its own. */
#include "tests/sim/sim.h"

#include <stdlib.h>

#include "core/check.h"

const char *sim_action_name(enum action_kind kind)
{
    static const char *const names[ACT_KINDS] = {
        "load",      "run",    "quiet",   "verify",   "spoil",   "reads fail", "time-outs", "writes fail",
        "slow",      "vanish", "die",     "cable",    "replug",  "fail",       "online",    "kill",
        "power",     "stop",   "split",   "scrub",    "unplug",  "calm",       "rebuilt",   "opening",
        "aftermath", "pace",   "replace", "log",      "owed",    "pulled",     "returned",  "joined",
        "init",      "mended", "alone",   "replaced", "battery", "mains",      "cache",     "ring",
        "relayout"};
    return names[kind];
}

/* --- load and time --- */

static void act_load(struct sim *s, struct dice *dice)
{
    for (uint64_t i = dice_range(dice, 1, 12); i > 0 && !s->crashed && s->array != NULL; i--) {
        (void)load_one(s, dice);
        sim_events(s, dice_one_in(dice, 3) ? dice_below(dice, 40) : 0);
    }
}

static void act_run(struct sim *s, struct dice *dice)
{
    sim_wait_ns(s, dice_one_in(dice, 4) ? dice_below(dice, 3000000000) : dice_scale(dice, 20000000));
}

static void act_quiet(struct sim *s, struct dice *dice)
{
    load_drain(s);
    sim_wait_ns(s, dice_range(dice, 2000000000, 2600000000));
}

static void act_verify(struct sim *s, struct dice *dice)
{
    load_verify(s, dice_one_in(dice, 3));
}

/* --- faults --- */

static unsigned draw_slot(const struct sim *s, struct dice *dice)
{
    return (unsigned)dice_below(dice, s->config.members);
}

bool sim_draw_victim(struct sim *s, struct dice *dice, unsigned *slot)
{
    *slot = draw_slot(s, dice);
    const struct simdisk *disk = world_disk(s, *slot);
    return s->array != NULL && !disk->gone && !disk->dead && world_trouble(s, *slot);
}

/* Some blocks of the chunks of rows in use. */
static void act_spoil(struct sim *s, struct dice *dice)
{
    unsigned slot;
    if (!sim_draw_victim(s, dice, &slot))
        return;
    const struct sim_volume *v = &s->volumes[dice_below(dice, s->config.volumes)];
    const struct sb_array *a = array_description(s->array);
    for (uint64_t i = dice_range(dice, 1, 6); i > 0; i--) {
        uint64_t row = v->hot[dice_below(dice, ARRAY_LENGTH(v->hot))];
        unsigned role = (unsigned)dice_below(dice, v->layout.roles);
        struct layout_place place;
        layout_place(&v->layout, row, role, &place);
        if (place.slot + v->first_slot != slot)
            continue;
        uint64_t off = a->data_start + a->volumes[v - s->volumes].start + place.off;
        off += round_down(dice_below(dice, v->layout.spec.chunk), s->config.disk.logical_block);
        sim_trace(s, "sd%d cannot read %llu any more", s->disk_of_slot[slot], (unsigned long long)off);
        for (uint64_t at = 0; at < s->config.disk.logical_block; at += SIM_SECTOR)
            simdisk_spoil(world_disk(s, slot), off + at);
    }
}

static void act_read_fail(struct sim *s, struct dice *dice)
{
    unsigned slot;
    if (sim_draw_victim(s, dice, &slot))
        world_disk(s, slot)->reads_fail = (unsigned)dice_range(dice, 1, 4);
}

static void act_time_out(struct sim *s, struct dice *dice)
{
    unsigned slot;
    if (sim_draw_victim(s, dice, &slot))
        world_disk(s, slot)->time_outs = (unsigned)dice_range(dice, 1, 4);
}

static void act_write_fail(struct sim *s, struct dice *dice)
{
    unsigned slot;
    if (sim_draw_victim(s, dice, &slot))
        world_disk(s, slot)->writes_fail = (unsigned)dice_range(dice, 1, 3);
}

static void act_slow(struct sim *s, struct dice *dice)
{
    unsigned slot = draw_slot(s, dice);
    struct simdisk *disk = world_disk(s, slot);
    disk->slow = disk->slow != 0 ? 0 : (unsigned)dice_range(dice, 5, 200);
}

void sim_pull(struct sim *s, unsigned slot, bool for_ever, bool power)
{
    struct simdisk *disk = world_disk(s, slot);
    sim_trace(s, "sd%u (slot %u) %s%s", disk->number, slot, for_ever ? "dies" : "is pulled",
              power ? " and loses its cache" : "");
    simdisk_cut(disk, power, for_ever ? &disk->dead : &disk->gone);
    s->trouble |= sim_bit(slot);
    world_slot_lost(s, slot);
}

static void act_vanish(struct sim *s, struct dice *dice)
{
    unsigned slot;
    if (sim_draw_victim(s, dice, &slot))
        sim_pull(s, slot, false, false);
}

bool sim_unplug(struct sim *s, struct dice *dice, unsigned slot)
{
    struct simdisk *disk = world_disk(s, slot);
    if (!config_survives(s, sim_bit(slot))) /* nobody else has what is in the cache */
        return false;
    sim_pull(s, slot, false, true);
    for (unsigned i = 0; i < 4 && !s->crashed; i++) {
        (void)load_one(s, dice);
        sim_wait_ns(s, dice_scale(dice, 1000000000));
    }
    bool noticed = !s->crashed && s->array != NULL && !peek_frozen(s->array);
    if (noticed) {
        uint64_t in_use = peek_slots(s->array, MEMBER_ONLINE) | peek_slots(s->array, MEMBER_REBUILDING);
        noticed = !((in_use | peek_active(s->array)) & sim_bit(slot));
    }
    disk->dead |= !noticed;
    return noticed;
}

static void act_unplug(struct sim *s, struct dice *dice)
{
    unsigned slot;
    if (sim_draw_victim(s, dice, &slot))
        (void)sim_unplug(s, dice, slot);
}

static void act_die(struct sim *s, struct dice *dice)
{
    unsigned slot;
    if (sim_draw_victim(s, dice, &slot))
        sim_pull(s, slot, true, false);
}

static void replug_some(struct sim *s, struct dice *dice)
{
    for (unsigned i = 0; i < s->disks_count; i++)
        if (s->disks[i]->gone && !dice_one_in(dice, 3))
            s->disks[i]->gone = false;
}

static void act_replug(struct sim *s, struct dice *dice)
{
    replug_some(s, dice);
}

/* One cable of several disks. If it was too many, the array freezes, and is complete when they are back. */
static void act_cable(struct sim *s, struct dice *dice)
{
    world_look(s);
    uint64_t before = s->online, slots = dice_bits(dice) & (sim_bit(s->config.members) - 1);
    bool several = __builtin_popcountll(slots) > 1 || s->config.volumes == 1;
    bool whole = s->trouble == 0 && s->online == sim_bit(s->config.members) - 1;
    if (s->array == NULL || !whole || !several)
        return;
    if (s->config.strict && !config_survives(s, slots))
        s->doomed = true;
    s->trouble |= slots;
    for (unsigned slot = 0; slot < s->config.members && !s->crashed; slot++) {
        if (!(slots & sim_bit(slot)))
            continue;
        sim_pull(s, slot, false, false);
        (void)load_one(s, dice);
        sim_wait_ns(s, dice_scale(dice, 30000000));
    }
    if (!s->doomed || s->crashed)
        return;
    (void)load_one(s, dice);
    sim_wait_ns(s, 2000000000);
    for (unsigned i = 0; i < s->disks_count; i++)
        s->disks[i]->gone = false;
    if (s->crashed || world_stop(s) || s->crashed)
        return;
    s->must_in = before;
    if (s->newcomer != NULL) /* it may have taken the other's place in the last moment, or not */
        s->must_in &= ~sim_bit(s->newcomer_slot);
    s->trouble = 0;
}

/* --- journal devices --- */

static void log_pull(struct sim *s, struct dice *dice, unsigned index)
{
    bool power = dice_one_in(dice, 2);
    sim_trace(s, "journal device sd%u is pulled%s", s->logs[index]->number, power ? " and loses its cache" : "");
    simdisk_cut(s->logs[index], power, &s->logs[index]->gone);
}

/* It is dead only when nobody needs it any more: else the array would wait for it for ever. */
static void log_pull_and_look(struct sim *s, struct dice *dice, unsigned index)
{
    log_pull(s, dice, index);
    for (unsigned i = 0; i < 6 && !s->crashed; i++) {
        (void)load_one(s, dice);
        sim_wait_ns(s, dice_scale(dice, 500000000));
    }
    bool known = !s->crashed && s->array != NULL && !peek_frozen(s->array) && !peek_log_active(s->array, index);
    if (known && dice_one_in(dice, 2))
        s->logs[index]->dead = true;
}

/* Now and then just before a crash: what is being written in place then needs it when it is back. */
static void logs_may_go(struct sim *s, struct dice *dice)
{
    for (unsigned i = 0; i < s->config.logs; i++)
        if (dice_one_in(dice, 4))
            log_pull(s, dice, i);
}

/* --- the operator --- */

struct operation {
    struct array_call call;
    struct sim *sim;
    unsigned slot;
    struct simdisk *disk; /* to be brought in */
};

static void operation_done(struct array_call *call)
{
    struct operation *op = container_of(call, struct operation, call);
    struct sim *s = op->sim;
    s->calls_busy--;
    sim_trace(s, "slot %u: %s: %s", op->slot, op->disk != NULL ? "online" : "fail",
              call->error == 0 ? "done" : call->message);
    if (!s->crashed && call->error == 0 && op->disk != NULL)
        s->disk_of_slot[op->slot] = (int)op->disk->number;
    free(op);
}

static struct operation *operation_new(struct sim *s, unsigned slot, struct simdisk *disk)
{
    struct operation *op = calloc(1, sizeof *op);
    ASSERT(op != NULL);
    *op = (struct operation){.call.done = operation_done, .sim = s, .slot = slot, .disk = disk};
    s->calls_busy++;
    return op;
}

void sim_online(struct sim *s, unsigned slot, struct simdisk *disk)
{
    struct array_disk it = world_array_disk(disk);
    array_online_member(s->array, slot, &it, &operation_new(s, slot, disk)->call);
}

static void act_fail(struct sim *s, struct dice *dice)
{
    unsigned slot;
    if (!sim_draw_victim(s, dice, &slot) || s->doomed)
        return;
    world_slot_lost(s, slot);
    array_fail_member(s->array, slot, &operation_new(s, slot, NULL)->call);
    s->trouble |= sim_bit(slot); /* while it was online and well, a look took it off */
}

static void act_online(struct sim *s, struct dice *dice)
{
    unsigned slot = draw_slot(s, dice);
    for (unsigned i = 0; s->array != NULL && i < s->config.members; i++, slot = (slot + 1) % s->config.members) {
        uint64_t in_use = peek_slots(s->array, MEMBER_ONLINE) | peek_slots(s->array, MEMBER_REBUILDING);
        if ((in_use & sim_bit(slot)) || peek_frozen(s->array))
            continue;
        struct simdisk *disk = world_disk(s, slot);
        if (disk->dead || dice_one_in(dice, 4))
            disk = s->disks_count < SIM_DISKS ? world_disk_new(s) : disk;
        disk->gone = false;
        sim_online(s, slot, disk);
        return;
    }
}

/* --- the pace of work in the background --- */

static void pace_done(struct array_call *call)
{
    struct sim_call *c = container_of(call, struct sim_call, call);
    c->sim->calls_busy--;
    free(c);
}

static struct array_call *pace_call(struct sim *s)
{
    struct sim_call *c = calloc(1, sizeof *c);
    ASSERT(c != NULL);
    *c = (struct sim_call){.call.done = pace_done, .sim = s};
    s->calls_busy++;
    return &c->call;
}

bool sim_pace_free(struct sim *s)
{
    bool free = true;
    array_hold_jobs(s->array, NULL);
    for (unsigned i = 0; i < s->config.volumes; i++) {
        const struct sb_volume *v = &array_description(s->array)->volumes[i];
        if (v->paused)
            array_pause_volume(s->array, i, false, pace_call(s));
        if (v->min_rate != 0 || v->max_rate != 0)
            array_set_rate(s->array, i, &(struct array_rate){.priority = 20}, pace_call(s));
        free = free && !v->paused && v->min_rate == 0 && v->max_rate == 0;
    }
    return free;
}

void sim_pace_limit(struct sim *s, unsigned volume, uint64_t bytes_a_second)
{
    array_set_rate(s->array, volume, &(struct array_rate){.priority = 20, .max_rate = bytes_a_second}, pace_call(s));
}

void sim_pace_pause(struct sim *s, unsigned volume)
{
    array_pause_volume(s->array, volume, true, pace_call(s));
}

/* Often so slow that a rebuild comes to its checkpoint, and then time for it. */
static void act_pace(struct sim *s, struct dice *dice)
{
    unsigned volume = (unsigned)dice_below(dice, s->config.volumes);
    struct array_rate rate = {.priority = (unsigned)dice_range(dice, 1, 100), .max_rate = KIB << dice_below(dice, 14)};
    rate.min_rate = dice_one_in(dice, 3) ? dice_below(dice, rate.max_rate) : 0;
    if (s->array == NULL || peek_frozen(s->array))
        return;
    if (rate.priority % 8 == 0) /* as when the mains fail, and are back */
        array_hold_jobs(s->array, rate.priority % 16 == 0 ? "the mains" : NULL);
    if (dice_one_in(dice, 3))
        array_pause_volume(s->array, volume, dice_one_in(dice, 2), pace_call(s));
    else
        array_set_rate(s->array, volume, &rate, pace_call(s));
    for (uint64_t i = dice_one_in(dice, 2) ? 0 : dice_range(dice, 1, 12); i > 0 && !s->crashed; i--) {
        (void)load_one(s, dice);
        sim_wait_ns(s, dice_below(dice, 3000000000));
    }
}

/* Mostly begun; then some requests beside it. */
static void act_init(struct sim *s, struct dice *dice)
{
    unsigned volume = (unsigned)dice_below(dice, s->config.volumes);
    if (s->array == NULL || peek_frozen(s->array))
        return;
    array_init_volume(s->array, s->volumes[volume].name, !dice_one_in(dice, 5), pace_call(s));
    for (uint64_t i = dice_below(dice, 12); i > 0 && !s->crashed; i--) {
        (void)load_one(s, dice);
        sim_events(s, dice_below(dice, 60));
    }
}

static void replace_begun(struct array_call *call)
{
    struct operation *op = container_of(call, struct operation, call);
    struct sim *s = op->sim;
    s->calls_busy--;
    sim_trace(s, "slot %u: replacement by sd%u: %s", op->slot, op->disk->number,
              call->error == 0 ? "begun" : call->message);
    if (!s->crashed && call->error == 0) {
        s->newcomer = op->disk;
        s->newcomer_slot = op->slot;
        s->newcomer_until = 0;
    }
    free(op);
}

static void act_replace(struct sim *s, struct dice *dice)
{
    unsigned slot = draw_slot(s, dice);
    world_look(s);
    if (s->array == NULL || !(s->online & sim_bit(slot)) || s->newcomer != NULL || s->doomed ||
        s->disks_count >= SIM_DISKS / 2)
        return;
    struct simdisk *disk = world_disk_new(s);
    if (dice_one_in(dice, 4) && world_trouble(s, slot)) /* once it has taken the place it is the member that has it */
        disk->writes_fail = (unsigned)dice_range(dice, 1, 3);
    struct operation *op = operation_new(s, slot, disk);
    struct array_disk it = world_array_disk(disk);
    op->call.done = replace_begun;
    array_replace_member(s->array, slot, &it, &op->call);
}

/* --- crashes and stops --- */

static void crash_within(struct sim *s, struct dice *dice, uint64_t events, bool power)
{
    s->crash_in = 1 + dice_scale(dice, events);
    s->crash_power = power;
    for (s->crash_again = 0; s->crash_again < 4 && dice_one_in(dice, 2);)
        s->crash_again++;
    uint64_t go = s->config.logs > 0 ? s->events + dice_scale(dice, 2000) : UINT64_MAX;
    while (!s->crashed) {
        if (s->events >= go) {
            go = UINT64_MAX;
            logs_may_go(s, dice);
        }
        bool asked = load_one(s, dice);
        uint64_t before = s->events;
        sim_events(s, dice_below(dice, 60));
        if (!asked && s->events == before && s->crash_in > 0) /* all is still */
            world_cut(s, power);
    }
}

/* All of them go while writes are under way, and soon the machine. They are back then. */
static void logs_pull_and_crash(struct sim *s, struct dice *dice)
{
    for (unsigned i = 0; i < 8 && !s->crashed; i++)
        (void)load_one(s, dice);
    sim_events(s, dice_below(dice, 100));
    for (unsigned i = 0; i < s->config.logs && !s->crashed; i++)
        if (!s->logs[i]->gone && !s->logs[i]->dead)
            log_pull(s, dice, i);
    if (!s->crashed)
        crash_within(s, dice, 500, dice_one_in(dice, 2));
}

/*
 * One is lost, and the machine goes down and comes back with that one alone: it must not be believed. A label that takes
 * long keeps the generation waiting that says so; or it is on disk already.
 */
static void logs_take_turns(struct sim *s, struct dice *dice, unsigned index)
{
    struct simdisk *slow = world_disk(s, draw_slot(s, dice));
    if (s->logs[index]->gone || s->logs[index]->dead || peek_frozen(s->array))
        return;
    for (unsigned i = 0; i < 8 && !s->crashed; i++)
        (void)load_one(s, dice);
    if (dice_one_in(dice, 2)) {
        slow->slow = (unsigned)dice_range(dice, 20, 300);
        sim_pace_limit(s, 0, GIB);
    }
    sim_events(s, dice_scale(dice, 60));
    if (!s->crashed)
        log_pull(s, dice, index);
    for (uint64_t i = dice_below(dice, 20); i > 0 && !s->crashed; i--) {
        (void)load_one(s, dice);
        sim_events(s, dice_below(dice, 30));
    }
    if (!s->crashed)
        crash_within(s, dice, 300, dice_one_in(dice, 2));
    slow->slow = 0;
    s->logs[index]->gone = false;
    s->keep_logs_away = ((1u << s->config.logs) - 1) & ~(1u << index);
}

static void act_log(struct sim *s, struct dice *dice)
{
    if (s->config.logs == 0 || s->array == NULL)
        return;
    unsigned index = (unsigned)dice_below(dice, s->config.logs);
    struct simdisk *disk = s->logs[index];
    switch (dice_below(dice, 9)) {
    case 0:
        disk->writes_fail = (unsigned)dice_range(dice, 1, 5);
        break;
    case 1:
        disk->time_outs = (unsigned)dice_range(dice, 1, 4);
        break;
    case 2:
        disk->slow = disk->slow != 0 ? 0 : (unsigned)dice_range(dice, 5, 200);
        break;
    case 3:
    case 4:
        logs_pull_and_crash(s, dice);
        break;
    case 5:
    case 6:
        logs_take_turns(s, dice, index);
        break;
    default:
        log_pull_and_look(s, dice, index);
    }
}

static void act_kill(struct sim *s, struct dice *dice)
{
    crash_within(s, dice, 3000, false);
}

static void act_power(struct sim *s, struct dice *dice)
{
    crash_within(s, dice, 3000, true);
}

static void act_stop(struct sim *s, struct dice *dice)
{
    if (s->array != NULL)
        (void)world_stop(s);
    for (s->crash_again = 0; s->crash_again < 2 && dice_one_in(dice, 4);)
        s->crash_again++;
}

/* --- split brain --- */

static void models_swap(struct sim *s, struct model **other)
{
    for (unsigned i = 0; i < s->config.volumes; i++) {
        struct model *swap = s->volumes[i].model;
        s->volumes[i].model = other[i];
        other[i] = swap;
    }
}

/* A life of one half. False: it was none. */
static bool run_half(struct sim *s, struct dice *dice, uint64_t away)
{
    if (!world_start(s, (struct world_start){.away = away, .prefer = -1}))
        return false;
    for (unsigned i = 0; i < 6; i++) {
        (void)load_one(s, dice);
        sim_events(s, dice_below(dice, 50));
    }
    return world_stop(s);
}

/* Both halves have run alone: together they are refused, and one is chosen. */
static void join_halves(struct sim *s, struct dice *dice, uint64_t half, struct model **other)
{
    (void)world_start(s, (struct world_start){.split = true, .prefer = -1});
    SIM_CHECK(s, s->array == NULL, "two histories were merged");
    bool first = dice_one_in(dice, 2);
    if (first)
        models_swap(s, other);
    uint64_t chosen = first ? half : ~half & (sim_bit(s->config.members) - 1);
    s->trouble = ~chosen & (sim_bit(s->config.members) - 1);
    s->must_in = chosen;
    bool up = world_start(s, (struct world_start){.prefer = __builtin_ctzll(chosen)});
    SIM_CHECK(s, up, "the chosen half does not start");
}

/* A volume that is held needs an arena or a log, and there is one of it for both halves. */
static bool something_is_held(const struct sim *s)
{
    bool held = false;
    for (unsigned i = 0; i < s->config.volumes; i++)
        held = held || caches_hold(s, i);
    return held;
}

static void act_split(struct sim *s, struct dice *dice)
{
    struct model *other[SIM_VOLUMES] = {NULL};
    uint64_t all = sim_bit(s->config.members) - 1, half = dice_bits(dice) & all;
    load_drain(s);
    world_look(s);
    bool whole = s->array != NULL && !s->crashed && s->trouble == 0 && s->online == all && !crash_is_due(s) &&
                 peek_jobs_idle(s->array);
    if (!whole || something_is_held(s) || half == 0 || half == all || !config_survives(s, half) ||
        !config_survives(s, all & ~half) || !world_stop(s))
        return;
    for (unsigned i = 0; i < s->config.volumes; i++)
        other[i] = model_clone(s->volumes[i].model);
    bool good = run_half(s, dice, all & ~half);
    models_swap(s, other);
    s->must_in = all & ~half;
    good = good && run_half(s, dice, half);
    SIM_CHECK(s, good, "one half does not run alone");
    join_halves(s, dice, half, other);
    for (unsigned i = 0; i < s->config.volumes; i++)
        model_destroy(other[i]);
}

/* --- all of them --- */

void sim_action(struct sim *s, const struct action *action)
{
    static void (*const acts[ACT_KINDS])(struct sim *, struct dice *) = {[ACT_LOAD] = act_load,
                                                                         [ACT_RUN] = act_run,
                                                                         [ACT_QUIET] = act_quiet,
                                                                         [ACT_VERIFY] = act_verify,
                                                                         [ACT_SPOIL] = act_spoil,
                                                                         [ACT_READ_FAIL] = act_read_fail,
                                                                         [ACT_TIME_OUT] = act_time_out,
                                                                         [ACT_WRITE_FAIL] = act_write_fail,
                                                                         [ACT_SLOW] = act_slow,
                                                                         [ACT_VANISH] = act_vanish,
                                                                         [ACT_DIE] = act_die,
                                                                         [ACT_CABLE] = act_cable,
                                                                         [ACT_REPLUG] = act_replug,
                                                                         [ACT_FAIL] = act_fail,
                                                                         [ACT_ONLINE] = act_online,
                                                                         [ACT_KILL] = act_kill,
                                                                         [ACT_POWER] = act_power,
                                                                         [ACT_STOP] = act_stop,
                                                                         [ACT_SPLIT] = act_split,
                                                                         [ACT_SCRUB] = act_scrub,
                                                                         [ACT_UNPLUG] = act_unplug,
                                                                         [ACT_CALM] = scene_calm,
                                                                         [ACT_REBUILT] = scene_rebuilt,
                                                                         [ACT_OPENING] = scene_opening,
                                                                         [ACT_AFTERMATH] = scene_aftermath,
                                                                         [ACT_PACE] = act_pace,
                                                                         [ACT_REPLACE] = act_replace,
                                                                         [ACT_LOG] = act_log,
                                                                         [ACT_OWED] = scene_owed,
                                                                         [ACT_PULLED] = scene_pulled,
                                                                         [ACT_RETURNED] = scene_returned,
                                                                         [ACT_JOINED] = scene_joined,
                                                                         [ACT_INIT] = act_init,
                                                                         [ACT_MENDED] = scene_mended,
                                                                         [ACT_ALONE] = scene_alone,
                                                                         [ACT_REPLACED] = scene_replaced,
                                                                         [ACT_BATTERY] = act_battery,
                                                                         [ACT_MAINS] = act_mains,
                                                                         [ACT_CACHE] = act_cache,
                                                                         [ACT_RING] = act_ring,
                                                                         [ACT_RELAYOUT] = act_relayout};
    struct dice dice = {action->seed};
    acts[action->kind](s, &dice);
    scrub_look(s);
    if (s->crashed || s->array == NULL)
        world_start_again(s, &dice);
}
