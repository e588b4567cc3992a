/*
 * Relayouts, planned and walked on disks that are arrays of symbols (relayout_model.h).
 *
 * Every pair of levels is tried with members, chunks, rotations, copies, spans, sizes, room and logs drawn at random.
 * What counts as right does not come from the plan: bytes read back, rows are whole, no place of two rows that both
 * count.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "tests/unit/lib/testloop.h"
#include "tests/unit/raid/relayout_model.h"

/* --- shapes by chance --- */

static uint64_t draw(uint64_t *seed, uint64_t count)
{
    return test_random(seed) / 7 % count;
}

static bool draw_once(enum raid_level level, uint64_t *seed, struct layout_spec *spec)
{
    struct layout layout;
    uint64_t extents[RAID_MEMBERS_MAX];
    for (unsigned i = 0; i < RAID_MEMBERS_MAX; i++)
        extents[i] = MIB;
    bool spans = level >= RAID_30, small = level == RAID_3 || level == RAID_30;
    *spec = (struct layout_spec){.level = level,
                                 .rotation = (enum raid_rotation)draw(seed, 4),
                                 .members = level == RAID_JBOD ? 1 : 2 + (unsigned)draw(seed, 7),
                                 .spans = spans ? 2 + (unsigned)draw(seed, 2) : 1,
                                 .copies = level == RAID_10 || level == RAID_1E ? 2 + (unsigned)draw(seed, 3) : 0,
                                 .chunk = small ? 4096 : 4096u << draw(seed, 3)};
    return layout_init(&layout, spec, extents) == NULL;
}

static struct layout_spec draw_spec(enum raid_level level, uint64_t *seed)
{
    struct layout_spec spec;
    while (!draw_once(level, seed, &spec))
        ;
    return spec;
}

/* Slots to be passed over, so that a shape of so many members fits in. */
static uint64_t draw_without(unsigned members, uint64_t *seed)
{
    uint64_t without = 0;
    for (unsigned spare = MODEL_DISKS - members, i = 0; i < spare; i++)
        if (draw(seed, 3) == 0)
            without |= 1ull << draw(seed, MODEL_DISKS);
    return without;
}

struct draft {
    struct relayout_request request;
    uint64_t end[RAID_MEMBERS_MAX];
};

static void draw_request(struct draft *d, enum raid_level from, enum raid_level to, uint64_t *seed)
{
    enum { BASE = 40 };
    struct relayout_request *q = &d->request;
    memset(d, 0, sizeof *d);
    q->from = draw_spec(from, seed);
    q->to = draw_spec(to, seed);
    q->size = (8 + draw(seed, MODEL_VOLUME - 8)) * MODEL_BLOCK;
    if (draw(seed, 2) == 0) {
        q->from_without = draw_without(q->from.members, seed);
        q->to_without = draw_without(q->to.members, seed);
    }
    q->start = BASE * MODEL_BLOCK;
    q->extent = MIB;
    q->low = q->start - draw(seed, 3) * draw(seed, BASE / 2) * MODEL_BLOCK;
    q->high = q->start + MIB + (draw(seed, 3) == 0 ? draw(seed, BASE) * MODEL_BLOCK : 0);
    q->log = draw(seed, 4) * draw(seed, 60) * MODEL_BLOCK;
    q->window = (1 + draw(seed, 30)) * MODEL_BLOCK;
    q->pack = draw(seed, 4) == 0;
    q->end = d->end;
    for (unsigned i = 0; i < RAID_MEMBERS_MAX; i++)
        d->end[i] = q->start + (1 + draw(seed, 100)) * MODEL_BLOCK;
}

/* Levels whose bytes go round all members: every one of them can become every other. */
static const enum raid_level mixing[] = {RAID_JBOD, RAID_0, RAID_1,  RAID_10, RAID_1E, RAID_3,
                                         RAID_5,    RAID_6, RAID_TP, RAID_30, RAID_50, RAID_60};

static char name[200];
static const char *describe_pair(const struct relayout_request *q, uint64_t seed)
{
    snprintf(
        name, sizeof name, "%s of %u (chunk %u, %u copies) to %s of %u (chunk %u, %u copies), %llu blocks, seed %llu",
        raid_level_name(q->from.level), q->from.members, q->from.chunk, q->from.copies, raid_level_name(q->to.level),
        q->to.members, q->to.chunk, q->to.copies, (unsigned long long)q->size / MODEL_BLOCK, (unsigned long long)seed);
    return name;
}

typedef void (*pair_visit)(const struct draft *draft, uint64_t seed, void *context);

static void for_each_pair(unsigned from, unsigned end, unsigned draws, pair_visit visit, void *context)
{
    for (unsigned a = from; a < end; a++)
        for (unsigned b = 0; b < ARRAY_LENGTH(mixing); b++)
            for (unsigned i = 0; i < draws; i++) {
                uint64_t seed = (a * 100 + b) * 10000 + i + 1, state = seed;
                struct draft draft;
                draw_request(&draft, mixing[a], mixing[b], &state);
                visit(&draft, seed, context);
            }
}

/* --- what counts --- */

struct tally {
    unsigned planned, refused, logged, backward, in_place, turned;
    uint64_t instants, crashes, replays, lost;
};
static struct tally tally;
static struct model model, probe;
static const char *current;

static void check(const struct model *m, const char *when)
{
    const char *bad = model_verify(m);
    cr_assert_null(bad, "relayout %u, crash %llu: %s, %s: %s", tally.planned, (unsigned long long)tally.crashes,
                   current, when, bad);
}

/* The power fails here; and once more somewhere on the way after that. */
static void crash_here(struct model *m, void *context)
{
    static const struct model_options quiet = {.writes = 50, .losses = 5};
    uint64_t *seed = context;
    model_copy(&probe, m);
    probe.seed = test_random(seed);
    tally.crashes++;
    for (unsigned again = 0; again < 2; again++) {
        model_crash(&probe);
        tally.replays += probe.replay;
        check(&probe, "after a crash");
        probe.stop_at = again == 0 ? probe.events + 1 + draw(seed, 40) : 0;
        model_recover(&probe, &quiet);
    }
    cr_assert_eq(probe.position, relayout_end(&probe.r), "%s: does not end", current);
    check(&probe, "at the end after a crash");
}

static void look_and_crash(struct model *m, void *context)
{
    tally.instants++;
    check(m, "at some instant");
    crash_here(m, context);
}

static void count_plan(const struct relayout_plan *plan)
{
    tally.planned++;
    tally.logged += plan->logged > 0;
    tally.backward += plan->relayout.backward;
    tally.in_place += plan->relayout.in_place;
}

/* With a log that takes all of it there is always a way. Without, it is said how much is missing. */
static void expect_refused_for_want_of_log(const struct draft *draft, const struct relayout_plan *refused)
{
    struct relayout_request q = draft->request;
    struct relayout_plan plan;
    const char *number = strstr(refused->mistake, ": ");
    cr_assert(strncmp(refused->mistake, "there is no room to move in: ", 29) == 0, "%s: %s", current, refused->mistake);
    uint64_t needed = strtoull(number + 2, NULL, 10);
    cr_assert(needed > q.log && needed <= MODEL_VOLUME * MODEL_BLOCK, "%s: %s", current, refused->mistake);
    q.log = MODEL_VOLUME * MODEL_BLOCK + 2 * (q.to.chunk + q.from.chunk);
    cr_assert_null(relayout_plan(&q, &plan), "%s: with a log of %llu bytes: %s", current, (unsigned long long)q.log,
                   plan.mistake);
    tally.refused++;
}

/* Disks that are missing from the beginning; both shapes must bear it. */
static void draw_lost(struct relayout_request *q, const struct relayout *r, uint64_t *seed)
{
    uint64_t lost = 1ull << draw(seed, MODEL_DISKS) | 1ull << draw(seed, MODEL_DISKS);
    struct relayout_plan plan;
    q->lost = lost;
    if (relayout_shape_survives(&r->from, lost) && relayout_shape_survives(&r->to, lost))
        return;
    cr_assert_not_null(relayout_plan(q, &plan), "%s: disks %llx are not missed", current, (unsigned long long)lost);
    cr_assert_not_null(strstr(plan.mistake, "cannot do without"), "%s", plan.mistake);
    q->lost = 0;
}

static void expect_survives_everything(const struct draft *draft, uint64_t seed, void *context)
{
    struct model_options options = *(const struct model_options *)context;
    struct draft mine = *draft;
    struct relayout_plan plan;
    current = describe_pair(&draft->request, seed);
    mine.request.end = mine.end;
    if (relayout_plan(&mine.request, &plan) != NULL) {
        expect_refused_for_want_of_log(&mine, &plan);
        return;
    }
    if (seed % 4 == 0)
        draw_lost(&mine.request, &plan.relayout, &seed);
    cr_assert_null(relayout_plan(&mine.request, &plan));
    count_plan(&plan);
    model_init(&model, &plan.relayout, seed, seed % 3 == 0);
    model.lost = mine.request.lost;
    options.context = &seed;
    model_run(&model, &options);
    cr_assert_eq(model.position, relayout_end(&model.r), "%s: does not end", current);
    check(&model, "at the end");
    tally.turned += model.turned;
    tally.lost += (unsigned)__builtin_popcountll(model.lost);
}

/* From a third of the levels to all of them. */
static void expect_levels_survive(unsigned third)
{
    struct model_options options = {.watch = look_and_crash, .writes = 200, .losses = 10, .turns = 50};
    for_each_pair(third * 4, third * 4 + 4, 4, expect_survives_everything, &options);
    cr_assert_eq(ARRAY_LENGTH(mixing), 12);
    cr_expect_gt(tally.planned, 140, "%u", tally.planned);
    cr_expect_gt(tally.logged, 40, "%u", tally.logged);
    cr_expect_gt(tally.backward, 20, "%u", tally.backward);
    cr_expect_gt(tally.turned, 5, "%u", tally.turned);
    cr_expect_gt(tally.lost, 10, "%llu", (unsigned long long)tally.lost);
    cr_expect_gt(tally.crashes, 10000, "%llu", (unsigned long long)tally.crashes);
    cr_expect_gt(tally.replays, 5000, "%llu", (unsigned long long)tally.replays);
}

Test(relayout_plan, from_jbod_and_mirrors_bytes_read_back_at_every_instant_and_after_a_crash_at_each)
{
    expect_levels_survive(0);
    cr_expect_gt(tally.in_place, 5, "%u", tally.in_place);
}

Test(relayout_plan, from_one_parity_bytes_read_back_at_every_instant_and_after_a_crash_at_each)
{
    expect_levels_survive(1);
}

Test(relayout_plan, from_more_parities_and_spans_bytes_read_back_at_every_instant_and_after_a_crash_at_each)
{
    expect_levels_survive(2);
}

/* --- the rule itself, by looking at each place --- */

static uint8_t taken[MODEL_DISKS][MODEL_DEPTH];

static bool take_row(const struct relayout_shape *shape, uint64_t row, uint8_t by)
{
    const struct layout *layout = &shape->layout;
    bool apart = true;
    for (unsigned role = 0; role < layout->roles; role++) {
        struct layout_place place;
        layout_place(layout, row, role, &place);
        for (uint64_t off = 0; off < layout->spec.chunk; off += MODEL_BLOCK) {
            uint8_t *cell = &taken[shape->slot[place.slot]][(shape->start + place.off + off) / MODEL_BLOCK];
            apart = apart && (*cell == 0 || *cell == by);
            *cell = by;
        }
    }
    return apart;
}

/* M1: rows of the new side with a byte that was passed, rows of the old side with one that was not. */
static bool sides_are_apart(const struct relayout *r, uint64_t position)
{
    uint64_t low = r->backward ? position : 0, high = r->backward ? r->size : position;
    bool apart = true;
    memset(taken, 0, sizeof taken);
    for (uint64_t off = 0; off < r->size; off += MODEL_BLOCK) {
        bool passed = off >= low && off < high;
        const struct relayout_shape *shape = passed ? &r->to : &r->from;
        apart &= take_row(shape, off / shape->layout.row_data, passed ? 1 : 2);
    }
    return apart;
}

struct rested {
    unsigned positions, rests, apart, skips;
};

/* From each position to all others, wherever what was never written may end. */
static void expect_skips_to_rest(const struct relayout *r, uint64_t position, struct rested *rested)
{
    for (uint64_t limit = 0; limit <= r->size; limit += MODEL_BLOCK) {
        uint64_t rest = relayout_skip(r, position, limit);
        if (rest == position)
            continue;
        cr_assert(r->backward ? rest < position && rest >= limit : rest > position && rest <= limit, "%s", current);
        cr_assert(sides_are_apart(r, rest), "%s: from %llu to %llu", current,
                  (unsigned long long)position / MODEL_BLOCK, (unsigned long long)rest / MODEL_BLOCK);
        rested->skips++;
    }
}

static void expect_rests_apart(const struct draft *draft, uint64_t seed, void *context)
{
    struct rested *rested = context;
    struct relayout_plan plan;
    current = describe_pair(&draft->request, seed);
    if (relayout_plan(&draft->request, &plan) != NULL || plan.relayout.in_place)
        return;
    const struct relayout *r = &plan.relayout;
    for (uint64_t position = 0; position < r->size; position += r->to.layout.row_data) {
        bool apart = sides_are_apart(r, position), rests = relayout_rests(r, position);
        cr_assert(apart || !rests, "%s: position %llu", current, (unsigned long long)position / MODEL_BLOCK);
        rested->positions++;
        rested->rests += rests;
        rested->apart += apart;
        if (rests && test_random(&seed) % 8 == 0)
            expect_skips_to_rest(r, position, rested);
    }
}

Test(relayout_plan, where_a_position_rests_no_place_is_used_by_both_sides)
{
    struct rested rested = {0};
    for_each_pair(0, ARRAY_LENGTH(mixing), 10, expect_rests_apart, &rested);
    cr_expect_gt(rested.positions, 10000, "%u", rested.positions);
    cr_expect_lt(rested.apart - rested.rests, rested.apart / 20, "%u of %u are not seen", rested.apart - rested.rests,
                 rested.apart);
    cr_expect_gt(rested.positions - rested.rests, 1000, "%u of %u", rested.rests, rested.positions);
    cr_expect_gt(rested.skips, 10000, "%u", rested.skips);
}

/* --- at sizes that people have --- */

static struct relayout_request request_of(struct layout_spec from, struct layout_spec to, uint64_t size)
{
    struct layout_spec complete = from;
    uint64_t extent = round_up(layout_extent_for(&complete, size), MIB);
    return (struct relayout_request){.from = from,
                                     .to = to,
                                     .size = size,
                                     .start = 256 * MIB,
                                     .extent = extent,
                                     .low = 256 * MIB,
                                     .high = 256 * MIB + extent,
                                     .log = 64 * MIB,
                                     .window = 32 * MIB};
}

struct walked {
    unsigned steps, logged_steps;
    uint64_t logged; /* bytes of the volume */
};

static struct walked walk(const struct relayout *r)
{
    struct walked walked = {0};
    struct relayout_step step;
    for (uint64_t position = relayout_begin(r); relayout_step(r, position, &step); walked.steps++) {
        cr_assert_eq(r->backward ? step.end : step.first, position);
        cr_assert_lt(step.first, step.end);
        position = r->backward ? step.first : step.end;
        cr_assert(relayout_rests(r, position));
        for (unsigned i = 0; step.logged && i < r->to.layout.spec.members; i++)
            cr_assert_leq(relayout_range(&r->to, step.row, step.rows, r->to.slot[i]).len, r->log);
        walked.logged_steps += step.logged;
        walked.logged += step.logged ? step.end - step.first : 0;
    }
    return walked;
}

static struct layout_spec spec_of(enum raid_level level, unsigned members, uint32_t chunk, enum raid_rotation rotation)
{
    return (struct layout_spec){.level = level, .members = members, .rotation = rotation, .spans = 1, .chunk = chunk};
}
#define SPEC(level, members)           spec_of(level, members, 65536, ROTATE_LEFT_SYMMETRIC)
#define CHUNKED(level, members, chunk) spec_of(level, members, chunk, ROTATE_LEFT_SYMMETRIC)

Test(relayout_plan, a_disk_more_logs_the_beginning_only)
{
    for (unsigned n = 3; n < 16; n++) {
        struct relayout_request q = request_of(SPEC(RAID_5, n), SPEC(RAID_5, n + 1), 1000 * GIB);
        struct relayout_plan plan;
        cr_assert_null(relayout_plan(&q, &plan), "%s", plan.mistake);
        cr_expect(!plan.relayout.backward && !plan.relayout.in_place && plan.relayout.to.start == q.start);
        struct walked walked = walk(&plan.relayout);
        cr_expect_leq(walked.logged_steps, 1 + n / 4, "%u members: %u", n, walked.logged_steps);
        cr_expect(walked.logged >= 64 * MIB * n && walked.logged <= walked.logged_steps * 64 * MIB * n);
        cr_expect_eq(plan.logged, walked.logged / n * (n + 1));
        cr_expect_lt(walked.steps, 1000 * GIB / (32 * MIB * n) + 100, "%u members: %u", n, walked.steps);
        cr_expect_eq(plan.read, 1000 * GIB);
        cr_expect(plan.written >= plan.read / n * (n + 1) && plan.written < plan.read / n * (n + 1) + MIB);
        cr_expect_eq(plan.tolerance, 1);
    }
}

Test(relayout_plan, a_disk_less_goes_backward_and_logs_the_end_only)
{
    struct relayout_request q = request_of(SPEC(RAID_6, 6), SPEC(RAID_6, 5), 300 * GIB);
    struct relayout_plan plan;
    cr_assert_not_null(relayout_plan(&q, &plan));
    cr_expect_str_eq(plan.mistake,
                     "322122547200 bytes do not fit: raid6 of 5 takes 107374182400 of each member, and there "
                     "are 80530636800");
    q.high += 25 * GIB;
    cr_assert_null(relayout_plan(&q, &plan), "%s", plan.mistake);
    cr_expect(plan.relayout.backward && plan.relayout.to.start == q.start && plan.tolerance == 2);
    cr_expect_eq(plan.extent, 100 * GIB);
    struct walked walked = walk(&plan.relayout);
    cr_expect_eq(walked.logged_steps, 1);
    cr_expect(walked.logged > 0 && walked.logged <= 64 * MIB * 3);
}

/* As dense as before: the gap does not grow. What is free beside the extent serves as one; else all is logged. */
Test(relayout_plan, one_parity_more_with_one_disk_more_shifts_if_it_can)
{
    struct relayout_request q = request_of(SPEC(RAID_5, 4), SPEC(RAID_6, 5), 300 * GIB);
    struct relayout_plan plan;
    cr_assert_null(relayout_plan(&q, &plan), "%s", plan.mistake);
    cr_expect_eq(walk(&plan.relayout).logged, q.size);
    cr_expect_eq(plan.logged, q.size / 3 * 5);
    q.low -= 32 * MIB;
    cr_assert_null(relayout_plan(&q, &plan), "%s", plan.mistake);
    cr_expect(!plan.relayout.backward && plan.relayout.to.start == q.low && plan.logged == 0);
    cr_expect_eq(walk(&plan.relayout).logged, 0);
    q.low = q.start;
    q.high += 32 * MIB;
    cr_assert_null(relayout_plan(&q, &plan), "%s", plan.mistake);
    cr_expect(plan.relayout.backward && plan.relayout.to.start == q.start + 32 * MIB && plan.logged == 0);
    cr_expect_eq(walk(&plan.relayout).logged, 0);
    q.high -= 32 * MIB;
    q.log = 0;
    cr_assert_not_null(relayout_plan(&q, &plan));
    cr_expect_str_eq(plan.mistake,
                     "there is no room to move in: 65536 bytes of headroom are needed on each member, there are 0");
}

/* The second of two volumes, when the first has become shorter: it goes down to it, and nothing is logged. */
Test(relayout_plan, a_volume_is_packed_down)
{
    struct relayout_request q = request_of(SPEC(RAID_5, 4), SPEC(RAID_5, 5), 300 * GIB);
    struct relayout_plan plan;
    q.low -= 200 * MIB;
    q.pack = true;
    cr_assert_null(relayout_plan(&q, &plan), "%s", plan.mistake);
    cr_expect_eq(plan.relayout.to.start, q.low);
    cr_expect_eq(walk(&plan.relayout).logged_steps, 0);
    q.to = q.from;
    cr_assert_null(relayout_plan(&q, &plan), "%s", plan.mistake);
    cr_expect_eq(plan.relayout.to.start, q.low, "the same shape farther down");
    cr_expect_eq(walk(&plan.relayout).logged_steps, 0);
}

/* M5 where it cannot be tried on disks: any members, chunks up to 16 MiB. The log takes a chunk or a few. */
static bool draw_large(enum raid_level level, uint64_t *seed, struct layout_spec *spec)
{
    struct layout layout;
    uint64_t extents[RAID_MEMBERS_MAX];
    for (unsigned i = 0; i < RAID_MEMBERS_MAX; i++)
        extents[i] = GIB;
    *spec = draw_spec(level, seed);
    spec->members = level == RAID_JBOD ? 1 : 2 + (unsigned)draw(seed, 30);
    if (level != RAID_3 && level != RAID_30)
        spec->chunk = 4096u << draw(seed, 13);
    return layout_init(&layout, spec, extents) == NULL;
}

Test(relayout_plan, no_walk_is_ever_stuck_at_large_sizes)
{
    unsigned walks = 0, logged = 0, refused = 0;
    uint64_t seed = 1;
    while (walks < 400) {
        struct layout_spec from, to;
        struct relayout_plan plan;
        if (!draw_large(mixing[draw(&seed, 12)], &seed, &from) || !draw_large(mixing[draw(&seed, 12)], &seed, &to))
            continue;
        struct relayout_request q = request_of(from, to, (1 + draw(&seed, 1 << 20)) * 64 * KIB);
        q.low -= draw(&seed, 3) * 32 * MIB;
        q.high += draw(&seed, 2) * 100 * GIB;
        q.log = draw(&seed, 3) * 32 * MIB;
        if (relayout_plan(&q, &plan) != NULL) {
            refused++;
            continue;
        }
        logged += walk(&plan.relayout).logged_steps > 0;
        walks++;
    }
    cr_expect(logged > 30 && refused > 5, "%u logged, %u refused", logged, refused);
}

/* --- in place --- */

static bool in_place(struct layout_spec from, struct layout_spec to, uint64_t without, uint64_t *written)
{
    struct relayout_request q = request_of(SPEC(RAID_JBOD, 1), to, 100 * MIB);
    struct relayout_plan plan;
    uint64_t end[RAID_MEMBERS_MAX] = {q.start + 60 * MIB, q.start + 50 * MIB, q.start + 40 * MIB};
    q.from = from;
    q.to_without = without;
    q.end = end;
    q.high += GIB;
    const char *wrong = relayout_plan(&q, &plan);
    *written = plan.written;
    return wrong == NULL && plan.relayout.in_place;
}

Test(relayout_plan, what_lies_right_already_is_not_moved)
{
    const struct layout_spec jbod = SPEC(RAID_JBOD, 1), span = SPEC(RAID_SPAN, 2), longer = SPEC(RAID_SPAN, 3);
    const struct layout_spec two = SPEC(RAID_1, 2), three = CHUNKED(RAID_1, 3, 16384);
    const struct layout_spec stripe = CHUNKED(RAID_0, 4, 4096), parity = CHUNKED(RAID_3, 5, 4096);
    const struct {
        struct layout_spec from, to;
        uint64_t without;
        bool in_place;
        uint64_t written;
    } cases[] = {
        {jbod, two, 0, true, 100 * MIB},
        {two, three, 0, true, 100 * MIB},
        {three, two, 0, true, 0},
        {two, jbod, 1, true, 0}, /* the second disk's copy */
        {span, longer, 0, true, 0},
        {longer, span, 0, true, 0},
        {span, longer, 1, false, 0}, /* the disks change places */
        {stripe, parity, 0, true, 25 * MIB},
        {parity, stripe, 0, true, 0},
        {parity, stripe, 1, false, 100 * MIB}, /* without a disk of data */
        {CHUNKED(RAID_0, 4, 8192), parity, 0, false, 125 * MIB},
        {SPEC(RAID_5, 4), spec_of(RAID_5, 4, 65536, ROTATE_RIGHT_SYMMETRIC), 0, false, 133 * MIB},
        {jbod, SPEC(RAID_0, 2), 0, false, 100 * MIB},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint64_t written;
        cr_expect_eq(in_place(cases[i].from, cases[i].to, cases[i].without, &written), cases[i].in_place, "case %u", i);
        cr_expect(written >= cases[i].written && written <= cases[i].written + MIB, "case %u: %llu", i,
                  (unsigned long long)written);
    }
}

Test(relayout_plan, a_span_has_no_other_shape)
{
    struct relayout_request q = request_of(SPEC(RAID_JBOD, 1), SPEC(RAID_5, 3), 100 * MIB);
    struct relayout_plan plan;
    uint64_t end[RAID_MEMBERS_MAX] = {q.start + 60 * MIB, q.start + 50 * MIB};
    q.from = SPEC(RAID_SPAN, 2);
    q.end = end;
    q.high += GIB;
    cr_assert_not_null(relayout_plan(&q, &plan));
    cr_expect_str_eq(plan.mistake,
                     "a span can only be made longer or shorter at its end, as far as nothing lies there");
    q.to = SPEC(RAID_JBOD, 1);
    cr_assert_not_null(relayout_plan(&q, &plan));
}

/* --- small things --- */

Test(relayout_plan, what_cannot_be_is_said_before_anything_is_written)
{
    struct relayout_request q = request_of(SPEC(RAID_5, 4), SPEC(RAID_5, 4), 100 * MIB);
    struct relayout_plan plan;
    cr_assert_not_null(relayout_plan(&q, &plan));
    cr_expect_str_eq(plan.mistake, "the volume has this shape already");
    q.to.members = 2;
    cr_assert_not_null(relayout_plan(&q, &plan));
    cr_expect_str_eq(plan.mistake, "raid5 needs at least 3 members, 2 were given");
    q.to = SPEC(RAID_0, 4);
    q.lost = 1 << 2;
    cr_assert_not_null(relayout_plan(&q, &plan));
    cr_expect_str_eq(plan.mistake, "members are missing that raid0 of 4 cannot do without");
    q.to = SPEC(RAID_0, 3);
    q.to_without = 1 << 2;
    cr_expect_null(relayout_plan(&q, &plan), "the one that is missing goes: %s", plan.mistake);
    q.to = SPEC(RAID_0, 63);
    q.to_without = 7;
    cr_assert_not_null(relayout_plan(&q, &plan));
    cr_expect_str_eq(plan.mistake, "an array does not have so many slots");
}

Test(relayout_plan, each_byte_has_one_home)
{
    struct relayout_request q = request_of(SPEC(RAID_5, 4), SPEC(RAID_5, 5), 100 * MIB);
    struct relayout_plan plan;
    cr_assert_null(relayout_plan(&q, &plan));
    const struct {
        bool backward;
        uint64_t position, moving, off, len;
        enum relayout_home home;
    } cases[] = {
        {false, 2 * MIB, 3 * MIB, 0, 2 * MIB, RELAYOUT_NEW},
        {false, 2 * MIB, 3 * MIB, 2 * MIB - 1, 1, RELAYOUT_NEW},
        {false, 2 * MIB, 3 * MIB, 2 * MIB, MIB, RELAYOUT_MOVING},
        {false, 2 * MIB, 3 * MIB, 3 * MIB - 512, 512, RELAYOUT_MOVING},
        {false, 2 * MIB, 3 * MIB, 3 * MIB, 97 * MIB, RELAYOUT_OLD},
        {false, 2 * MIB, 2 * MIB, 2 * MIB, 98 * MIB, RELAYOUT_OLD},
        {false, 0, 0, 0, 100 * MIB, RELAYOUT_OLD},
        {false, 100 * MIB, 100 * MIB, 5, 100 * MIB - 5, RELAYOUT_NEW},
        {true, 3 * MIB, 2 * MIB, 0, 2 * MIB, RELAYOUT_OLD},
        {true, 3 * MIB, 2 * MIB, 2 * MIB, MIB, RELAYOUT_MOVING},
        {true, 3 * MIB, 2 * MIB, 3 * MIB, 97 * MIB, RELAYOUT_NEW},
        {true, 100 * MIB, 100 * MIB, 99 * MIB, MIB, RELAYOUT_OLD},
        {true, 0, 0, 0, 100 * MIB, RELAYOUT_NEW},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint64_t len = 0;
        plan.relayout.backward = cases[i].backward;
        cr_expect_eq(relayout_home(&plan.relayout, cases[i].position, cases[i].moving, cases[i].off, &len),
                     cases[i].home, "case %u", i);
        cr_expect_eq(len, cases[i].len, "case %u: %llu", i, (unsigned long long)len);
    }
}

Test(relayout_plan, the_way_back_begins_where_rows_of_both_sides_end)
{
    struct relayout_request q = request_of(SPEC(RAID_5, 4), SPEC(RAID_5, 5), 100 * MIB);
    struct relayout_plan plan;
    cr_assert_null(relayout_plan(&q, &plan));
    struct relayout r = plan.relayout;
    uint64_t row = 4 * 65536;
    cr_expect_eq(relayout_period(&r), 3 * row);
    cr_expect_not(relayout_turn(&r, 4 * row));
    cr_expect_eq(r.to.layout.spec.members, 5);
    cr_assert(relayout_turn(&r, 6 * row));
    cr_expect(r.backward && r.to.layout.spec.members == 4 && r.from.layout.spec.members == 5);
    struct relayout_step step;
    cr_assert(relayout_step(&r, 6 * row, &step));
    cr_expect_eq(step.end, 6 * row);
    cr_expect_not(relayout_step(&r, 0, &step));
}
