/*
 * Volumes go to other shapes in the midst of it all. What the model says of a volume's content does not change by that:
 * so a relayout is an action like others, with crashes, losses and load at any moment.
 *
 * Only in runs that have it for their theme, with one volume, and policies that leave no write hole open: what the model
 * would forgive is told by rows, and the rows are others afterwards. So nothing is forgiven at all. What is spoken of as
 * the volume's layout (faults that it bears, the look at the disks at the end) is brought up to date when a
 * relayout is over; while one is under way faults are no more than both shapes bear.
 *
 * Windows are short, so that there are many steps.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>

#include "core/check.h"
#include "raid/relayout.h"

/* --- shapes --- */

static const struct {
    enum raid_level level;
    unsigned least, multiple;
} shapes[] = {{RAID_JBOD, 1, 1}, {RAID_0, 2, 1},  {RAID_1, 2, 1},  {RAID_10, 4, 2}, {RAID_1E, 3, 2}, {RAID_3, 3, 1},
              {RAID_5, 3, 1},    {RAID_6, 4, 1},  {RAID_TP, 5, 1}, {RAID_30, 6, 2}, {RAID_50, 6, 2}, {RAID_60, 8, 2},
              {RAID_5, 3, 1},    {RAID_6, 4, 1}};

/* Often of the same level, on other disks or with another chunk. */
static struct layout_spec draw_shape(struct sim *s, struct dice *dice, const struct layout_spec *now)
{
    unsigned i;
    do
        i = (unsigned)dice_below(dice, ARRAY_LENGTH(shapes));
    while (shapes[i].least > s->config.members);
    struct layout_spec to = {.level = shapes[i].level, .chunk = UINT32_C(4096) << dice_below(dice, 5)};
    unsigned least = shapes[i].least, step = shapes[i].multiple;
    to.members = least + step * (unsigned)dice_below(dice, (s->config.members - least) / step + 1);
    if (dice_one_in(dice, 3) && now->level != RAID_JBOD) {
        to = *now;
        if (now->level != RAID_1E && now->level != RAID_10 && now->level < RAID_30 && dice_one_in(dice, 2))
            to.members = now->members < s->config.members ? now->members + 1 : now->members;
        else
            to.chunk = UINT32_C(4096) << dice_below(dice, 5);
    }
    bool small = to.level == RAID_3 || to.level == RAID_30;
    to.chunk = small ? 4096 : to.chunk;
    to.spans = to.level == RAID_30 || to.level == RAID_50 || to.level == RAID_60 ? 2 : 0;
    to.copies = to.level == RAID_1 ? to.members : to.level == RAID_10 || to.level == RAID_1E ? 2 : 0;
    to.rotation = (enum raid_rotation)dice_below(dice, 4);
    return to;
}

static bool has_parity(enum raid_level level)
{
    return level >= RAID_3;
}

void relayouts_draw(struct sim *s)
{
    struct dice dice = dice_for(s->seed, 12);
    struct sim_volume *v = &s->volumes[0];
    if (s->config.theme != ACT_RELAYOUT)
        return;
    s->config.volumes = 1;
    s->config.logs = 0;
    v->spec.consistency_given = true;
    v->spec.consistency = v->layout.parity ? SB_JOURNAL : v->layout.redundancy > 0 ? SB_BITMAP : SB_RESYNC;
    v->window = UINT64_C(65536) << dice_below(&dice, 6);
    static const enum action_kind unsuited[] = {ACT_SPOIL, ACT_SPLIT,  ACT_SCRUB,     ACT_AFTERMATH, ACT_LOG,
                                                ACT_OWED,  ACT_MENDED, ACT_TIME_OUT,  ACT_ALONE,     ACT_INIT,
                                                ACT_PULLED, ACT_WRITE_FAIL};
    for (unsigned i = 0; i < ARRAY_LENGTH(unsuited); i++)
        s->config.weights[unsuited[i]] = 0;
}

/* --- under way --- */

void relayouts_look(struct sim *s)
{
    struct sim_volume *v = &s->volumes[0];
    struct array_relayout_progress progress;
    if (s->config.theme != ACT_RELAYOUT || s->array == NULL || s->crashed || peek_frozen(s->array))
        return;
    const struct sb_array *a = array_description(s->array);
    peek_relayout_window(s->array, v->window);
    v->moving = v->starting || array_relayout_progress(s->array, &progress);
    if (v->moving)
        return;
    SIM_CHECK(s, a->volumes_count == 1, "no relayout, and %u volumes", a->volumes_count);
    SIM_CHECK(s, superblock_layout(a, &a->volumes[0], &v->layout), "no layout");
    v->first_slot = a->volumes[0].spec.level == RAID_JBOD ? a->volumes[0].slot : 0;
    v->spec.layout = a->volumes[0].spec;
    v->spec.consistency = a->volumes[0].consistency;
}

bool relayouts_survive(const struct sim *s, uint64_t lost)
{
    const struct sim_volume *v = &s->volumes[0];
    if (!v->moving)
        return true;
    bool jbod = v->to.spec.level == RAID_JBOD;
    return layout_survives(&v->to, jbod ? lost >> v->first_slot & 1 : lost);
}

static void started(struct array_call *call)
{
    struct sim_call *c = container_of(call, struct sim_call, call);
    struct sim *s = c->sim;
    s->calls_busy--;
    s->volumes[0].starting = false;
    sim_trace(s, "relayout: %s", call->error == 0 ? "begun" : call->message);
    free(c);
}

static void start(struct sim *s, struct dice *dice)
{
    struct sim_volume *v = &s->volumes[0];
    struct array_relayout_spec spec = {.layout = draw_shape(s, dice, &v->spec.layout)};
    struct array_relayout_plan plan;
    char why[256];
    uint64_t lost = ((sim_bit(s->config.members) - 1) & ~s->online) | s->trouble;
    spec.consistency_given = has_parity(spec.layout.level);
    spec.consistency = SB_JOURNAL;
    const char *wrong = array_relayout_plan(array_description(s->array), 0, lost, &spec, &plan, why, sizeof why);
    sim_trace(s, "relayout from %s of %u, %u, to %s of %u, %u: %s", raid_level_name(v->spec.layout.level),
              v->spec.layout.members, v->spec.layout.chunk, raid_level_name(spec.layout.level), spec.layout.members,
              spec.layout.chunk, wrong != NULL ? wrong : plan.logged > 0 ? "with a log" : "without a log");
    if (wrong != NULL)
        return;
    uint64_t extent[RAID_MEMBERS_MAX];
    for (unsigned i = 0; i < RAID_MEMBERS_MAX; i++)
        extent[i] = plan.extent;
    SIM_CHECK(s, layout_init(&v->to, &plan.layout, extent) == NULL, "a plan for a layout that cannot be");
    struct sim_call *c = calloc(1, sizeof *c);
    ASSERT(c != NULL);
    *c = (struct sim_call){.call.done = started, .sim = s};
    s->calls_busy++;
    v->starting = v->moving = true;
    array_relayout_start(s->array, 0, &spec, &c->call);
}

void act_relayout(struct sim *s, struct dice *dice)
{
    world_look(s);
    if (s->array == NULL || peek_frozen(s->array))
        return;
    if (!s->volumes[0].moving && !s->doomed)
        start(s, dice);
    for (uint64_t i = dice_below(dice, 16); i > 0 && !s->crashed && s->array != NULL; i--) {
        (void)load_one(s, dice);
        world_look(s);
        sim_events(s, dice_scale(dice, 300));
    }
    if (s->crashed || s->array == NULL || !dice_one_in(dice, 3))
        return;
    s->crash_in = 1 + dice_scale(dice, 600);
    s->crash_power = dice_one_in(dice, 2);
    for (s->crash_again = 0; s->crash_again < 4 && dice_one_in(dice, 2);)
        s->crash_again++;
    while (!s->crashed) {
        (void)load_one(s, dice);
        uint64_t before = s->events;
        sim_events(s, dice_below(dice, 60));
        if (s->events == before && !s->crashed)
            world_cut(s, s->crash_power);
    }
}
