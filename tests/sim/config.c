/* What a seed draws: see sim.h. Every run has its own array, its own disks and its own kinds of bad luck. */
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "raid/volume.h"
#include "raid/journal.h"
#include "tests/sim/sim.h"

static const struct shape {
    enum raid_level level;
    unsigned least, most, multiple, weight;
} shapes[] = {{RAID_JBOD, 1, 4, 1, 1}, {RAID_SPAN, 1, 4, 1, 1}, {RAID_0, 2, 5, 1, 1},  {RAID_1, 2, 4, 1, 4},
              {RAID_10, 4, 8, 2, 3},   {RAID_1E, 3, 7, 2, 2},   {RAID_3, 3, 6, 1, 2},  {RAID_5, 3, 7, 1, 6},
              {RAID_6, 4, 8, 1, 5},    {RAID_TP, 5, 9, 1, 3},   {RAID_30, 6, 8, 2, 1}, {RAID_50, 6, 8, 2, 2},
              {RAID_60, 8, 10, 2, 2}};

static const struct shape *draw_shape(struct dice *dice)
{
    unsigned total = 0, at = 0;
    for (unsigned i = 0; i < ARRAY_LENGTH(shapes); i++)
        total += shapes[i].weight;
    uint64_t drawn = dice_below(dice, total);
    while (drawn >= shapes[at].weight)
        drawn -= shapes[at++].weight;
    return &shapes[at];
}

static bool shape_fits(const struct shape *shape, unsigned members)
{
    unsigned step = shape->level == RAID_1E ? 2 : shape->multiple;
    return members >= shape->least && members <= shape->most && (members - shape->least) % step == 0;
}

static unsigned draw_members(struct dice *dice, const struct shape *shape)
{
    return shape->least +
           shape->multiple * (unsigned)dice_below(dice, (shape->most - shape->least) / shape->multiple + 1);
}

static uint32_t draw_chunk(struct dice *dice)
{
    return UINT32_C(4096) << (dice_one_in(dice, 8) ? dice_below(dice, 8) : dice_below(dice, 4));
}

static void draw_volume(struct sim *s, struct dice *dice, const struct shape *shape, unsigned index)
{
    struct sim_volume *v = &s->volumes[index];
    struct array_volume_spec *spec = &v->spec;
    text_format(v->name, sizeof v->name, "v%u", index);
    text_format(spec->name, sizeof spec->name, "%s", v->name);
    bool small = shape->level == RAID_3 || shape->level == RAID_30;
    bool spans = shape->level == RAID_30 || shape->level == RAID_50 || shape->level == RAID_60;
    spec->layout = (struct layout_spec){
        .level = shape->level, .members = shape->level == RAID_JBOD ? 1 : s->config.members, .spans = spans ? 2 : 0};
    spec->layout.rotation = (enum raid_rotation)dice_below(dice, 4);
    spec->layout.chunk = small ? 4096 : draw_chunk(dice);
    spec->slot = shape->level == RAID_JBOD ? (unsigned)dice_below(dice, s->config.members) : 0;
    v->first_slot = spec->slot;
    uint64_t extent[RAID_MEMBERS_MAX];
    for (unsigned i = 0; i < RAID_MEMBERS_MAX; i++)
        extent[i] = MIB;
    const char *wrong = layout_init(&v->layout, &spec->layout, extent);
    SIM_CHECK(s, wrong == NULL, "config: %s", wrong);
    uint64_t least = s->config.theme == ACT_OWED ? MIN(v->layout.rows, UINT64_C(4)) : 1;
    uint64_t rows = dice_one_in(dice, 6) ? v->layout.rows : dice_range(dice, least, MIN(v->layout.rows, UINT64_C(8)));
    spec->size = rows * v->layout.row_data;
    enum action_kind theme = s->config.theme;
    bool few = (theme == ACT_AFTERMATH || theme == ACT_PULLED || theme == ACT_MENDED) && dice_one_in(dice, 2);
    for (unsigned i = 0; i < ARRAY_LENGTH(v->hot); i++)
        v->hot[i] = few && i > 0 ? v->hot[0] : dice_below(dice, rows);
}

/* The default of the level, or any other that it can have. */
static void draw_consistency(struct sim *s)
{
    struct dice dice = dice_for(s->seed, 2);
    s->config.journal_bytes = dice_one_in(&dice, 2) ? JOURNAL_BYTES_MIN : 0;
    bool open = s->config.theme == ACT_AFTERMATH; /* policies resync and bitmap: what is not right yet matters */
    bool logs = s->config.theme == ACT_LOG, closed = false;
    open = open || s->config.theme == ACT_MENDED || (s->config.theme == ACT_OWED && dice_one_in(&dice, 2));
    bool marked = s->config.theme == ACT_ALONE;
    for (unsigned i = 0; i < s->config.volumes; i++) {
        struct sim_volume *v = &s->volumes[i];
        bool parity = v->layout.parity;
        v->spec.consistency_given = open || marked || (logs && parity) || !dice_one_in(&dice, 2);
        do
            v->spec.consistency = (enum sb_consistency)dice_below(&dice, open ? 2 : 4);
        while ((logs && parity && !consistency_is_closed(v->spec.consistency)) ||
               superblock_consistency_check(&v->layout, v->spec.consistency) != NULL);
        if (!v->spec.consistency_given)
            v->spec.consistency = superblock_consistency_for(&v->layout);
        if (marked && v->layout.redundancy > 0)
            v->spec.consistency = SB_BITMAP;
        closed = closed || consistency_is_closed(v->spec.consistency);
    }
    s->config.logs =
        dice_one_in(&dice, closed ? 3 : 12) || (logs && closed) ? (unsigned)dice_range(&dice, 1, SB_JOURNALS_MAX) : 0;
}

static void draw_weights(struct sim *s, struct dice *dice)
{
    static const unsigned usual[ACT_KINDS] = {
        [ACT_LOAD] = 60,     [ACT_RUN] = 16,     [ACT_QUIET] = 4,   [ACT_VERIFY] = 3,     [ACT_SPOIL] = 4,
        [ACT_READ_FAIL] = 2, [ACT_TIME_OUT] = 2, [ACT_SLOW] = 2,    [ACT_WRITE_FAIL] = 2, [ACT_VANISH] = 4,
        [ACT_DIE] = 2,       [ACT_CABLE] = 2,    [ACT_REPLUG] = 4,  [ACT_FAIL] = 3,       [ACT_ONLINE] = 8,
        [ACT_KILL] = 5,      [ACT_POWER] = 6,    [ACT_STOP] = 4,    [ACT_SPLIT] = 1,      [ACT_SCRUB] = 5,
        [ACT_UNPLUG] = 3,    [ACT_CALM] = 2,     [ACT_REBUILT] = 2, [ACT_OPENING] = 2,    [ACT_AFTERMATH] = 3,
        [ACT_PACE] = 4,      [ACT_REPLACE] = 3,  [ACT_OWED] = 1,    [ACT_PULLED] = 1,     [ACT_RETURNED] = 1,
        [ACT_JOINED] = 1};
    for (unsigned i = 0; i < ACT_INIT; i++) /* that one has dice of its own; the others are themes only */
        s->config.weights[i] = usual[i] * (unsigned)dice_below(dice, 4);
    static const enum action_kind losses[] = {ACT_VANISH, ACT_DIE, ACT_CABLE, ACT_FAIL, ACT_UNPLUG};
    for (unsigned i = 0; i < ARRAY_LENGTH(losses) && s->config.thin; i++)
        s->config.weights[losses[i]] = 0;
    s->config.weights[ACT_LOAD] += usual[ACT_LOAD];
    s->config.weights[ACT_LOG] = s->config.logs > 0 ? (unsigned)dice_below(dice, 12) : 0;
    s->config.weights[ACT_LOG] += s->config.logs > 0 && dice_one_in(dice, 3) ? 60 : 0;
    if (s->config.theme != ACT_LOAD)
        s->config.weights[s->config.theme] += 60;
}

/* In half of the runs, in some of them from the beginning. */
static void draw_init(struct sim *s)
{
    struct dice dice = dice_for(s->seed, 5);
    s->config.weights[ACT_INIT] += dice_one_in(&dice, 2) ? (unsigned)dice_range(&dice, 2, 20) : 0;
    for (unsigned i = 0; i < s->config.volumes; i++)
        if (s->volumes[i].layout.redundancy > 0 && s->config.weights[ACT_INIT] > 0 && dice_one_in(&dice, 3))
            s->volumes[i].spec.init = dice_one_in(&dice, 2) ? SB_INIT_BACKGROUND : SB_INIT_FOREGROUND;
}

static void draw_actions(struct sim *s, struct dice *dice)
{
    unsigned total = 0;
    for (unsigned i = 0; i < ACT_KINDS; i++)
        total += s->config.weights[i];
    s->actions_count = (unsigned)dice_range(dice, 6, dice_one_in(dice, 8) ? SIM_ACTIONS : 36);
    for (unsigned i = 0; i < s->actions_count; i++) {
        uint64_t drawn = dice_below(dice, total);
        unsigned kind = 0;
        while (drawn >= s->config.weights[kind])
            drawn -= s->config.weights[kind++];
        s->actions[i] = (struct action){(enum action_kind)kind, dice_bits(dice)};
    }
}

static enum action_kind draw_theme(const struct sim *s, struct dice *dice)
{
    static const enum action_kind themes[] = {ACT_CALM,   ACT_REBUILT,   ACT_OPENING,   ACT_OPENING,   ACT_SPLIT,
                                              ACT_CABLE,  ACT_AFTERMATH, ACT_AFTERMATH, ACT_AFTERMATH, ACT_OWED,
                                              ACT_PULLED, ACT_RETURNED,  ACT_JOINED};
    static const enum action_kind others[] = {ACT_MENDED, ACT_ALONE, ACT_REPLACED};
    struct dice other = dice_for(s->seed, 6);
    enum action_kind theme = dice_one_in(dice, 2) ? themes[dice_below(dice, ARRAY_LENGTH(themes))] : ACT_LOAD;
    return dice_one_in(&other, 8) ? others[dice_below(&other, ARRAY_LENGTH(others))] : theme;
}

/* Levels with which the theme has something to do. */
static bool suits_theme(enum raid_level level, enum action_kind theme)
{
    bool redundant = level != RAID_JBOD && level != RAID_SPAN && level != RAID_0;
    if (theme == ACT_AFTERMATH || theme == ACT_LOG)
        return level >= RAID_3;
    if (theme == ACT_INIT || theme == ACT_OWED || theme == ACT_PULLED || theme == ACT_RETURNED || theme == ACT_JOINED ||
        theme == ACT_MENDED)
        return redundant;
    if (theme == ACT_ALONE)
        return level == RAID_1;
    if (theme == ACT_RELAYOUT)
        return level != RAID_SPAN;
    return theme != ACT_SPLIT || level == RAID_1 || level == RAID_10;
}

void config_draw(struct sim *s, enum action_kind theme, enum sim_caches caches)
{
    struct dice dice = dice_for(s->seed, 1);
    struct sim_config *c = &s->config;
    static const struct shape *const without = &shapes[2];
    const struct shape *first = draw_shape(&dice), *second = draw_shape(&dice);
    c->theme = draw_theme(s, &dice);
    if (theme != ACT_KINDS)
        c->theme = theme;
    while (!suits_theme(first->level, c->theme))
        first = draw_shape(&dice);
    c->members = draw_members(&dice, first);
    c->thin = c->theme == ACT_MENDED || (c->theme == ACT_AFTERMATH && dice_one_in(&dice, 3));
    c->strict = !c->thin && !dice_one_in(&dice, 4);
    c->garbage = dice_one_in(&dice, 2);
    c->fua_one_in = (unsigned)dice_range(&dice, 2, 8);
    c->depth = (unsigned)dice_range(&dice, 1, SIM_IOS);
    c->disk = (struct blk_info){.size = 32 * MIB};
    c->disk.logical_block = dice_one_in(&dice, 6) ? 4096 : 512;
    c->disk.discards = !dice_one_in(&dice, 4);
    c->disk.discard_zeroes = !dice_one_in(&dice, 3);
    c->disk.rotational = dice_one_in(&dice, 2);
    c->disk.max_request = dice_one_in(&dice, 4) ? 64 * KIB : 0;
    c->disk.volatile_cache = !dice_one_in(&dice, 6);
    c->disk.physical_block = dice_one_in(&dice, 2) ? 4096 : c->disk.logical_block;
    c->volumes = 1;
    draw_volume(s, &dice, first, 0);
    if (c->thin)
        draw_volume(s, &dice, without, c->volumes++);
    else if (dice_one_in(&dice, 5) && shape_fits(second, c->members) && first->level != RAID_SPAN)
        draw_volume(s, &dice, second, c->volumes++);
    draw_consistency(s);
    draw_weights(s, &dice);
    draw_init(s);
    relayouts_draw(s);
    caches_draw(s, c->theme == ACT_RELAYOUT ? SIM_CACHES_NEVER : caches);
    draw_actions(s, &dice);
    c->scarce = dice_one_in(&dice, c->theme == ACT_OWED ? 1 : 4); /* then rows are rebuilt one by one */
    dice = dice_for(s->seed, 7);
    c->reserve_pages = dice_one_in(&dice, 3) ? 1500 : 300;
}

/*
 * Volumes have less memory than usual: it need not be set up for each start, and requests have to wait for it. Linked
 * with --wrap.
 */
struct volume *__real_volume_open(struct loop *loop, const struct volume_options *options);
struct volume *__wrap_volume_open(struct loop *loop, const struct volume_options *options);

struct volume *__wrap_volume_open(struct loop *loop, const struct volume_options *options)
{
    const struct sim *s = container_of(loop, struct sim, loop);
    struct volume_options ours = *options;
    ours.runs_max = s->config.scarce ? 4 : 40;
    ours.rows_max = s->config.scarce ? 4 : 32;
    ours.scratch_bytes = s->config.scarce ? 1 : MIB; /* at least that of two rows is taken */
    return __real_volume_open(loop, &ours);
}

bool config_survives(const struct sim *s, uint64_t lost)
{
    for (unsigned i = 0; i < s->config.volumes; i++) {
        const struct sim_volume *v = &s->volumes[i];
        bool jbod = v->spec.layout.level == RAID_JBOD;
        if (!layout_survives(&v->layout, jbod ? lost >> v->first_slot & 1 : lost))
            return false;
    }
    return relayouts_survive(s, lost);
}
