/*
 * Layouts: a bijection, in md's order, that knows what it survives.
 *
 * The expected order is written down here a second time, straight from the tables of formulas (data, P and Q by slot
 * for md's rotations), and shares nothing with layout.c. Survival is held against looking at every row.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "raid/layout.h"
#include "tests/unit/lib/testloop.h"

static uint64_t equal_extents[RAID_MEMBERS_MAX];

static const uint64_t *extents(uint64_t each)
{
    for (unsigned i = 0; i < RAID_MEMBERS_MAX; i++)
        equal_extents[i] = each;
    return equal_extents;
}

/* Every valid spec with up to `members_max` members, in all rotations, numbers of copies and spans, one by one. */
typedef void (*spec_visit)(const struct layout_spec *spec, void *context);

static void visit_if_valid(struct layout_spec spec, spec_visit visit, void *context)
{
    struct layout layout;
    spec.chunk = spec.level == RAID_3 || spec.level == RAID_30 ? 4096 : spec.chunk;
    if (layout_init(&layout, &spec, extents(spec.chunk)) == NULL)
        visit(&spec, context);
}

static void for_each_spec(unsigned members_max, uint32_t chunk, spec_visit visit, void *context)
{
    for (unsigned level = 0; level < RAID_LEVEL_COUNT; level++)
        for (unsigned n = 1; n <= members_max; n++)
            for (unsigned rotation = 0; rotation < 6; rotation++)
                for (unsigned copies = 1; copies <= 4; copies++)
                    for (unsigned spans = 1; spans <= 4; spans++)
                        visit_if_valid((struct layout_spec){.level = (enum raid_level)level,
                                                            .rotation = (enum raid_rotation)rotation,
                                                            .members = n,
                                                            .spans = spans,
                                                            .copies = copies,
                                                            .chunk = chunk},
                                       visit, context);
}

#define SPEC_FORMAT "%s, %u members, %s, %u copies, %u spans"
#define SPEC_ARGS(s)                                                                                                   \
    raid_level_name((s)->level), (s)->members, raid_rotation_name((s)->rotation), (s)->copies, (s)->spans

/* -- there and back
 * ---------------------------------------------------------------------------------------------------- */

struct tally {
    unsigned specs;
    unsigned levels; /* set */
    uint64_t seed;
};

/* A few chunks a member: every place of every row, each seen once; every other place is nobody's. */
static void expect_exhaustive_bijection(const struct layout_spec *spec, void *context)
{
    enum { DEPTH_MAX = 40 };
    struct tally *tally = context;
    struct layout layout;
    uint64_t each = (1 + tally->specs % DEPTH_MAX) * (uint64_t)spec->chunk + 512; /* ragged */
    cr_assert_null(layout_init(&layout, spec, extents(each)));
    uint64_t used[RAID_MEMBERS_MAX] = {0}; /* a bit a chunk */
    for (uint64_t row = 0; row < layout.rows; row++)
        for (unsigned role = 0; role < layout.roles; role++) {
            struct layout_place place;
            uint64_t row_back = 0;
            unsigned role_back = 0;
            layout_place(&layout, row, role, &place);
            cr_assert(place.slot < spec->members && place.off % spec->chunk == 0 && place.off + spec->chunk <= each,
                      SPEC_FORMAT ": outside", SPEC_ARGS(spec));
            uint64_t mark = 1ull << place.off / spec->chunk;
            cr_assert_not(used[place.slot] & mark, SPEC_FORMAT ": row %llu role %u shares a place", SPEC_ARGS(spec),
                          (unsigned long long)row, role);
            used[place.slot] |= mark;
            uint64_t any = place.off + test_random(&tally->seed) % spec->chunk;
            cr_assert(layout_find(&layout, place.slot, any, &row_back, &role_back) && row_back == row &&
                          role_back == role,
                      SPEC_FORMAT ": row %llu role %u came back as %llu, %u", SPEC_ARGS(spec), (unsigned long long)row,
                      role, (unsigned long long)row_back, role_back);
        }
    uint64_t chunks = each / spec->chunk, places = 0;
    for (unsigned slot = 0; slot < spec->members; slot++)
        for (uint64_t depth = 0; depth < chunks + 2; depth++) {
            uint64_t row;
            unsigned role;
            bool mine = depth < chunks && (used[slot] >> depth & 1);
            places += mine;
            cr_assert_eq(layout_find(&layout, slot, depth * spec->chunk, &row, &role), mine,
                         SPEC_FORMAT ": slot %u chunk %llu", SPEC_ARGS(spec), slot, (unsigned long long)depth);
        }
    cr_assert_eq(places, layout.rows * layout.roles);
    cr_assert_lt(chunks * spec->members - places, layout.roles, SPEC_FORMAT ": room for another row", SPEC_ARGS(spec));
    tally->specs++;
    tally->levels |= 1u << spec->level;
}

Test(layout, every_place_is_used_by_one_row_and_found_again)
{
    struct tally tally = {.seed = 1};
    for_each_spec(16, 4096, expect_exhaustive_bijection, &tally);
    cr_expect_eq(tally.levels, (1u << RAID_LEVEL_COUNT) - 1, "levels %x", tally.levels);
    cr_expect_gt(tally.specs, 600, "%u specs", tally.specs);
}

/* What is filled by the rows below is told by looking at where each of them lies. */
static void expect_filled_in_order(const struct layout_spec *spec, void *context)
{
    struct tally *tally = context;
    struct layout layout;
    cr_assert_null(layout_init(&layout, spec, extents((1 + tally->specs % 13) * (uint64_t)spec->chunk)));
    uint64_t filled[RAID_MEMBERS_MAX] = {0};
    for (uint64_t row = 0; row <= layout.rows; row++) {
        for (unsigned slot = 0; slot < spec->members; slot++)
            cr_assert_eq(layout_filled(&layout, slot, row), filled[slot], SPEC_FORMAT ": slot %u below row %llu",
                         SPEC_ARGS(spec), slot, (unsigned long long)row);
        for (unsigned role = 0; row < layout.rows && role < layout.roles; role++) {
            struct layout_place place;
            layout_place(&layout, row, role, &place);
            cr_assert_eq(place.off, filled[place.slot], SPEC_FORMAT ": row %llu leaves a gap", SPEC_ARGS(spec),
                         (unsigned long long)row);
            filled[place.slot] += spec->chunk;
        }
    }
    tally->specs++;
}

Test(layout, members_are_filled_in_the_order_of_the_rows)
{
    struct tally tally = {0};
    for_each_spec(12, 8192, expect_filled_in_order, &tally);
    cr_expect_gt(tally.specs, 400, "%u specs", tally.specs);
    static const uint64_t sizes[] = {3 * 4096, 4096, 100, 2 * 4096};
    struct layout_spec spec = {.level = RAID_SPAN, .members = 4, .chunk = 4096};
    struct layout layout;
    cr_assert_null(layout_init(&layout, &spec, sizes));
    for (uint64_t row = 0; row <= 6; row++) {
        cr_expect_eq(layout_filled(&layout, 0, row), MIN(row, 3) * 4096);
        cr_expect_eq(layout_filled(&layout, 1, row), row > 3 ? 4096 : 0);
        cr_expect_eq(layout_filled(&layout, 2, row), 0);
        cr_expect_eq(layout_filled(&layout, 3, row), row > 4 ? (row - 4) * 4096 : 0);
    }
}

static void expect_random_bijection(const struct layout_spec *spec, void *context)
{
    struct tally *tally = context;
    struct layout layout;
    cr_assert_null(layout_init(&layout, spec, extents(20ull << 40)));
    for (unsigned trial = 0; trial < 20; trial++) {
        uint64_t row = trial == 0 ? layout.rows - 1 : test_random(&tally->seed) % layout.rows, row_back;
        unsigned role = (unsigned)(test_random(&tally->seed) % layout.roles), role_back;
        struct layout_place place;
        layout_place(&layout, row, role, &place);
        cr_assert(place.off + spec->chunk <= 20ull << 40);
        cr_assert(layout_find(&layout, place.slot, place.off, &row_back, &role_back) && row_back == row &&
                      role_back == role,
                  SPEC_FORMAT ": row %llu role %u", SPEC_ARGS(spec), (unsigned long long)row, role);
        uint64_t off = test_random(&tally->seed) % (20ull << 40);
        unsigned slot = (unsigned)(test_random(&tally->seed) % spec->members);
        if (!layout_find(&layout, slot, off, &row, &role))
            continue;
        layout_place(&layout, row, role, &place);
        cr_assert(place.slot == slot && place.off == off / spec->chunk * spec->chunk, SPEC_FORMAT ": slot %u off %llx",
                  SPEC_ARGS(spec), slot, (unsigned long long)off);
    }
    tally->specs++;
}

Test(layout, there_and_back_on_large_members_with_any_chunk)
{
    struct tally tally = {.seed = 2};
    for (uint32_t chunk = 4096; chunk <= 16 << 20; chunk *= 4)
        for_each_spec(16, chunk, expect_random_bijection, &tally);
    cr_expect_gt(tally.specs, 4000, "%u specs", tally.specs);
    struct layout_spec widest = {.level = RAID_60, .members = 64, .spans = 4, .chunk = 65536};
    expect_random_bijection(&widest, &tally);
    widest = (struct layout_spec){.level = RAID_1, .members = 64, .chunk = 65536};
    expect_random_bijection(&widest, &tally);
}

Test(layout, span_goes_end_to_end_over_members_of_any_size)
{
    static const uint64_t sizes[] = {5 * 4096 + 1, 4095, 3 * 4096, 0, 100 * 4096, 4096, 17};
    static const uint64_t chunks[] = {5, 0, 3, 0, 100, 1, 0};
    struct layout_spec spec = {.level = RAID_SPAN, .members = ARRAY_LENGTH(sizes), .chunk = 4096};
    struct layout layout;
    struct layout_place place;
    cr_assert_null(layout_init(&layout, &spec, sizes));
    cr_expect_eq(layout.rows, 109);
    cr_expect_eq(layout.span_start[7], 109);
    uint64_t row = 0, back;
    unsigned role;
    for (unsigned slot = 0; slot < ARRAY_LENGTH(sizes); slot++) {
        for (uint64_t depth = 0; depth < chunks[slot]; depth++, row++) {
            layout_place(&layout, row, 0, &place);
            cr_expect(place.slot == slot && place.off == depth * 4096, "row %llu", (unsigned long long)row);
            cr_expect(layout_find(&layout, slot, depth * 4096 + 4095, &back, &role) && back == row && role == 0);
        }
        cr_expect_not(layout_find(&layout, slot, chunks[slot] * 4096, &back, &role), "behind the end of %u", slot);
    }
    cr_expect(layout_survives(&layout, 1u << 1 | 1u << 3 | 1u << 6), "members that hold nothing");
    for (unsigned slot = 0; slot < ARRAY_LENGTH(sizes); slot++)
        cr_expect_eq(layout_survives(&layout, 1u << slot), chunks[slot] == 0, "slot %u", slot);
}

/* -- md's order
 * -------------------------------------------------------------------------------------------------------- */

/* Slot of data d (role < data), P (role data), Q (role data + 1) in row t of n members, as md has them. */
typedef unsigned (*expected_slot)(unsigned n, unsigned t, unsigned role);

static unsigned raid5_la(unsigned n, unsigned t, unsigned role)
{
    unsigned p = n - 1 - t % n;
    return role == n - 1 ? p : role + (role >= p);
}

static unsigned raid5_ra(unsigned n, unsigned t, unsigned role)
{
    unsigned p = t % n;
    return role == n - 1 ? p : role + (role >= p);
}

static unsigned raid5_ls(unsigned n, unsigned t, unsigned role)
{
    unsigned p = n - 1 - t % n;
    return role == n - 1 ? p : (p + 1 + role) % n;
}

static unsigned raid5_rs(unsigned n, unsigned t, unsigned role)
{
    unsigned p = t % n;
    return role == n - 1 ? p : (p + 1 + role) % n;
}

static unsigned raid4(unsigned n, unsigned t, unsigned role)
{
    (void)n, (void)t;
    return role;
}

static unsigned parity_first(unsigned n, unsigned parities, unsigned role)
{
    unsigned data = n - parities;
    return role < data ? role + parities : role - data;
}

static unsigned raid5_first(unsigned n, unsigned t, unsigned role)
{
    (void)t;
    return parity_first(n, 1, role);
}

static unsigned raid6_first(unsigned n, unsigned t, unsigned role)
{
    (void)t;
    return parity_first(n, 2, role);
}

static unsigned raid6_asymmetric(unsigned n, unsigned p, unsigned role)
{
    if (role == n - 2)
        return p;
    if (role == n - 1)
        return p == n - 1 ? 0 : p + 1;
    return p == n - 1 ? role + 1 : role + 2 * (role >= p);
}

static unsigned raid6_la(unsigned n, unsigned t, unsigned role)
{
    return raid6_asymmetric(n, n - 1 - t % n, role);
}

static unsigned raid6_ra(unsigned n, unsigned t, unsigned role)
{
    return raid6_asymmetric(n, t % n, role);
}

static unsigned raid6_symmetric(unsigned n, unsigned p, unsigned role)
{
    if (role == n - 2)
        return p;
    return role == n - 1 ? (p + 1) % n : (p + 2 + role) % n;
}

static unsigned raid6_ls(unsigned n, unsigned t, unsigned role)
{
    return raid6_symmetric(n, n - 1 - t % n, role);
}

static unsigned raid6_rs(unsigned n, unsigned t, unsigned role)
{
    return raid6_symmetric(n, t % n, role);
}

static const struct order {
    enum raid_level level, spanned;
    enum raid_rotation rotation;
    unsigned members_min;
    expected_slot slot;
} orders[] = {
    {RAID_3, RAID_30, ROTATE_LEFT_SYMMETRIC, 3, raid4},      {RAID_5, RAID_50, ROTATE_LEFT_ASYMMETRIC, 3, raid5_la},
    {RAID_5, RAID_50, ROTATE_RIGHT_ASYMMETRIC, 3, raid5_ra}, {RAID_5, RAID_50, ROTATE_LEFT_SYMMETRIC, 3, raid5_ls},
    {RAID_5, RAID_50, ROTATE_RIGHT_SYMMETRIC, 3, raid5_rs},  {RAID_6, RAID_60, ROTATE_LEFT_ASYMMETRIC, 4, raid6_la},
    {RAID_6, RAID_60, ROTATE_RIGHT_ASYMMETRIC, 4, raid6_ra}, {RAID_6, RAID_60, ROTATE_LEFT_SYMMETRIC, 4, raid6_ls},
    {RAID_6, RAID_60, ROTATE_RIGHT_SYMMETRIC, 4, raid6_rs},  {RAID_5, RAID_50, ROTATE_PARITY_FIRST, 3, raid5_first},
    {RAID_5, RAID_50, ROTATE_PARITY_LAST, 3, raid4},         {RAID_6, RAID_60, ROTATE_PARITY_FIRST, 4, raid6_first},
    {RAID_6, RAID_60, ROTATE_PARITY_LAST, 4, raid4},
};

static void expect_order(const struct order *order, enum raid_level level, unsigned n, unsigned spans)
{
    struct layout_spec spec = {
        .level = level, .rotation = order->rotation, .members = n * spans, .spans = spans, .chunk = 4096};
    struct layout layout;
    cr_assert_null(layout_init(&layout, &spec, extents(4096 * 50)));
    cr_assert_eq(layout.rows, 50 * spans);
    for (unsigned row = 0; row < layout.rows; row++)
        for (unsigned role = 0; role < n; role++) {
            struct layout_place place;
            layout_place(&layout, row, role, &place);
            cr_assert(place.slot == row % spans * n + order->slot(n, row / spans, role) &&
                          place.off == row / spans * 4096,
                      SPEC_FORMAT ": row %u role %u is on %u", SPEC_ARGS(&spec), row, role, place.slot);
        }
}

Test(layout, parity_is_in_the_order_of_md)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(orders); i++)
        for (unsigned n = orders[i].members_min; n <= 16; n++) {
            expect_order(&orders[i], orders[i].level, n, 1);
            for (unsigned spans = 2; spans * n <= 64; spans += 3)
                expect_order(&orders[i], orders[i].spanned, n, spans);
        }
}

Test(layout, triple_parity_goes_on_from_raid6_with_r_behind_q)
{
    static const char *const rows[][5] = {
        /* left-symmetric, five members; t = 0 .. 4 */
        {"Q", "R", "D0", "D1", "P"}, {"R", "D0", "D1", "P", "Q"}, {"D0", "D1", "P", "Q", "R"},
        {"D1", "P", "Q", "R", "D0"}, {"P", "Q", "R", "D0", "D1"},
    };
    static const char *const names[] = {"D0", "D1", "P", "Q", "R"};
    struct layout_spec spec = {.level = RAID_TP, .rotation = ROTATE_LEFT_SYMMETRIC, .members = 5, .chunk = 65536};
    struct layout layout;
    cr_assert_null(layout_init(&layout, &spec, extents(65536 * 10)));
    for (unsigned row = 0; row < 10; row++)
        for (unsigned role = 0; role < 5; role++) {
            struct layout_place place;
            layout_place(&layout, row, role, &place);
            cr_expect_str_eq(rows[row % 5][place.slot], names[role], "row %u slot %u", row, place.slot);
        }
}

Test(layout, copies_are_near_as_in_md)
{
    for (unsigned n = 1; n <= 16; n++)
        for (unsigned copies = 1; copies <= n; copies++) {
            enum raid_level level = n % copies != 0 ? RAID_1E : copies > 1 ? RAID_10 : RAID_0;
            level = n == 1 ? RAID_JBOD : copies == n ? RAID_1 : level;
            struct layout_spec spec = {.level = level, .members = n, .copies = copies, .chunk = 8192};
            struct layout layout;
            cr_assert_null(layout_init(&layout, &spec, extents(8192 * 30)), SPEC_FORMAT ": %s", SPEC_ARGS(&spec),
                           layout.mistake);
            cr_assert_eq(layout.rows, n * 30 / copies);
            for (unsigned c = 0; c < layout.rows; c++)
                for (unsigned k = 0; k < copies; k++) {
                    struct layout_place place;
                    layout_place(&layout, c, k, &place);
                    cr_expect(place.slot == (c * copies + k) % n && place.off == (c * copies + k) / n * 8192,
                              SPEC_FORMAT ": chunk %u copy %u", SPEC_ARGS(&spec), c, k);
                }
        }
}

/* -- losses
 * ------------------------------------------------------------------------------------------------------------ */

static bool every_row_is_readable(const struct layout *layout, uint64_t lost)
{
    for (uint64_t row = 0; row < layout->rows; row++) {
        unsigned gone = 0;
        for (unsigned role = 0; role < layout->roles; role++) {
            struct layout_place place;
            layout_place(layout, row, role, &place);
            gone += lost >> place.slot & 1;
        }
        if (gone > layout->redundancy)
            return false;
    }
    return true;
}

static void expect_survival(const struct layout_spec *spec, void *context)
{
    struct tally *tally = context;
    struct layout layout;
    unsigned n = spec->members, depth = 1 + tally->specs % 5;
    bool worst_case_met = false;
    if (spec->rotation != ROTATE_LEFT_SYMMETRIC)
        return;
    cr_assert_null(layout_init(&layout, spec, extents(depth * spec->chunk)));
    for (uint64_t lost = 0; lost < 1ull << n; lost++) {
        unsigned count = (unsigned)__builtin_popcountll(lost);
        if (count > 4)
            continue;
        bool readable = every_row_is_readable(&layout, lost);
        cr_assert_eq(layout_survives(&layout, lost), readable, SPEC_FORMAT ": lost %llx", SPEC_ARGS(spec),
                     (unsigned long long)lost);
        cr_assert(readable || count > layout_tolerance(&layout), SPEC_FORMAT ": lost %llx", SPEC_ARGS(spec),
                  (unsigned long long)lost);
        worst_case_met |= !readable && count == layout_tolerance(&layout) + 1;
    }
    cr_assert(worst_case_met || layout_tolerance(&layout) >= MIN(4u, n), SPEC_FORMAT, SPEC_ARGS(spec));
    tally->specs++;
    tally->levels |= 1u << spec->level;
}

Test(layout, survives_exactly_what_leaves_every_row_readable)
{
    struct tally tally = {0};
    for_each_spec(12, 4096, expect_survival, &tally);
    cr_expect_eq(tally.levels, (1u << RAID_LEVEL_COUNT) - 1, "levels %x", tally.levels);
}

Test(layout, survival_by_group_and_by_span)
{
    static const struct survival_case {
        enum raid_level level;
        unsigned members, copies, spans;
        uint64_t lost;
        bool survives;
        const char *why;
    } cases[] = {
        {RAID_10, 6, 2, 0, 0x15, true, "one of each pair"},
        {RAID_10, 6, 2, 0, 0x03, false, "a pair"},
        {RAID_10, 6, 2, 0, 0x06, true, "neighbours of different pairs"},
        {RAID_1E, 5, 2, 0, 0x06, false, "neighbours"},
        {RAID_1E, 5, 2, 0, 0x11, false, "neighbours round the end"},
        {RAID_1E, 5, 2, 0, 0x05, true, "no neighbours"},
        {RAID_1, 4, 0, 0, 0x0e, true, "one copy left"},
        {RAID_1, 4, 0, 0, 0x0f, false, "no copy left"},
        {RAID_50, 9, 0, 3, 0x49, true, "one a span"},
        {RAID_50, 9, 0, 3, 0x03, false, "two of a span"},
        {RAID_60, 64, 0, 4, 0x8001400201808001, true, "two a span"},
        {RAID_60, 64, 0, 4, 0x8003400201808001, false, "three of the last"},
        {RAID_0, 4, 0, 0, 0x10, true, "a bit that is no member's"},
        {RAID_1, 64, 0, 0, 0x7fffffffffffffff, true, "one of 64 left"},
        {RAID_1, 64, 0, 0, 0xffffffffffffffff, false, "none of 64 left"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        const struct survival_case *c = &cases[i];
        struct layout_spec spec = {
            .level = c->level, .members = c->members, .copies = c->copies, .spans = c->spans, .chunk = 65536};
        struct layout layout;
        cr_assert_null(layout_init(&layout, &spec, extents(MIB)));
        cr_expect_eq(layout_survives(&layout, c->lost), c->survives, SPEC_FORMAT ": %s", SPEC_ARGS(&spec), c->why);
    }
}

/* -- specs, sizes, names
 * ----------------------------------------------------------------------------------------------- */

Test(layout, each_mistake_has_its_sentence)
{
    static const struct mistake_case {
        struct layout_spec spec;
        const char *sentence;
    } cases[] = {
        {{.level = 13, .members = 4, .chunk = 65536}, "there is no RAID level number 13"},
        {{.level = RAID_JBOD, .members = 2, .chunk = 65536}, "jbod has exactly 1 member, 2 were given"},
        {{.level = RAID_SPAN, .members = 0, .chunk = 65536}, "span needs at least 1 members, 0 were given"},
        {{.level = RAID_0, .members = 1, .chunk = 65536}, "raid0 needs at least 2 members, 1 were given"},
        {{.level = RAID_0, .members = 65, .chunk = 65536}, "raid0 can have at most 64 members, 65 were given"},
        {{.level = RAID_0, .members = 4, .copies = 2, .chunk = 65536}, "raid0 keeps no copies, 2 were asked for"},
        {{.level = RAID_1, .members = 1, .chunk = 65536}, "raid1 needs at least 2 members, 1 were given"},
        {{.level = RAID_1, .members = 3, .copies = 2, .chunk = 65536},
         "raid1 keeps a copy on each of its 3 members, 2 copies were asked for"},
        {{.level = RAID_10, .members = 2, .chunk = 65536}, "raid10 needs at least 4 members, 2 were given"},
        {{.level = RAID_10, .members = 5, .chunk = 65536},
         "raid10 needs members in groups of 2, 5 were given (raid1e takes any number)"},
        {{.level = RAID_10, .members = 4, .copies = 4, .chunk = 65536},
         "raid10 with 4 copies needs at least 8 members, 4 were given"},
        {{.level = RAID_10, .members = 4, .copies = 1, .chunk = 65536},
         "raid10 needs at least 2 copies, 1 was asked for"},
        {{.level = RAID_1E, .members = 4, .chunk = 65536}, "raid1e with 2 copies and 4 members is raid10"},
        {{.level = RAID_1E, .members = 3, .copies = 4, .chunk = 65536},
         "raid1e with 4 copies needs at least 5 members, 3 were given"},
        {{.level = RAID_3, .members = 2}, "raid3 needs at least 3 members, 2 were given"},
        {{.level = RAID_3, .members = 3, .chunk = 65536}, "raid3 has a chunk of 4 KiB, 65536 bytes were given"},
        {{.level = RAID_5, .members = 2, .chunk = 65536}, "raid5 needs at least 3 members, 2 were given"},
        {{.level = RAID_5, .members = 6, .spans = 2, .chunk = 65536}, "raid5 has no spans, 2 were given"},
        {{.level = RAID_6, .members = 3, .chunk = 65536}, "raid6 needs at least 4 members, 3 were given"},
        {{.level = RAID_TP, .members = 4, .chunk = 65536}, "raidtp needs at least 5 members, 4 were given"},
        {{.level = RAID_6, .members = 4, .rotation = 6, .chunk = 65536}, "there is no parity rotation number 6"},
        {{.level = RAID_50, .members = 6, .chunk = 65536}, "raid50 needs at least 2 spans, 0 were given"},
        {{.level = RAID_50, .members = 7, .spans = 2, .chunk = 65536},
         "raid50 needs spans of equal width, 7 members do not divide into 2"},
        {{.level = RAID_60, .members = 6, .spans = 2, .chunk = 65536},
         "raid60 needs at least 4 members in each span, 3 were given"},
        {{.level = RAID_5, .members = 3, .chunk = 0},
         "the chunk must be a power of two from 4 KiB to 16 MiB, 0 bytes were given"},
        {{.level = RAID_5, .members = 3, .chunk = 2048},
         "the chunk must be a power of two from 4 KiB to 16 MiB, 2048 bytes were given"},
        {{.level = RAID_5, .members = 3, .chunk = 12288},
         "the chunk must be a power of two from 4 KiB to 16 MiB, 12288 bytes were given"},
        {{.level = RAID_5, .members = 3, .chunk = 32 << 20},
         "the chunk must be a power of two from 4 KiB to 16 MiB, 33554432 bytes were given"},
        {{.level = RAID_5, .members = 3, .chunk = 4 << 20},
         "the members have less room than one chunk of 4194304 bytes"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct layout layout;
        const char *said = layout_init(&layout, &cases[i].spec, extents(2 * MIB));
        cr_expect_str_eq(said == NULL ? "(accepted)" : said, cases[i].sentence, "case %u", i);
    }
}

Test(layout, what_is_not_chosen_is_filled_in)
{
    struct layout layout;
    struct layout_spec spec = {.level = RAID_30, .members = 6, .spans = 2};
    cr_assert_null(layout_init(&layout, &spec, extents(MIB)));
    cr_expect_eq(layout.spec.chunk, 4096);
    cr_expect_eq(layout.row_data, 2 * 4096);
    cr_expect(layout.parity && layout.data == 2 && layout.redundancy == 1 && layout.roles == 3);
    spec = (struct layout_spec){.level = RAID_1, .members = 3, .chunk = 65536};
    cr_assert_null(layout_init(&layout, &spec, extents(MIB)));
    cr_expect(layout.spec.copies == 3 && layout.spec.spans == 1 && !layout.parity);
    spec = (struct layout_spec){.level = RAID_1E, .members = 3, .chunk = 65536};
    cr_assert_null(layout_init(&layout, &spec, extents(MIB)));
    cr_expect(layout.spec.copies == 2 && layout.rows == 24 && layout.redundancy == 1);
}

static void expect_tight_extent(const struct layout_spec *spec, void *context)
{
    struct tally *tally = context;
    struct layout layout;
    if (spec->level == RAID_SPAN)
        return;
    for (unsigned trial = 0; trial < 5; trial++) {
        uint64_t size = 1 + test_random(&tally->seed) % (1ull << (12 + 9 * trial));
        uint64_t each = layout_extent_for(spec, size);
        cr_assert_null(layout_init(&layout, spec, extents(each)));
        cr_assert_geq(layout.rows * layout.row_data, size, SPEC_FORMAT ": %llu", SPEC_ARGS(spec),
                      (unsigned long long)size);
        bool less_will_do =
            layout_init(&layout, spec, extents(each - spec->chunk)) == NULL && layout.rows * layout.row_data >= size;
        cr_assert_not(less_will_do, SPEC_FORMAT ": %llu", SPEC_ARGS(spec), (unsigned long long)size);
    }
}

Test(layout, extent_for_a_size_is_enough_and_not_a_chunk_more)
{
    struct tally tally = {.seed = 3};
    for_each_spec(16, 65536, expect_tight_extent, &tally);
    struct layout_spec spec = {.level = RAID_5, .members = 3, .chunk = 4096};
    cr_expect_eq(layout_extent_for(&spec, 0), 0);
}

Test(layout, the_smallest_member_counts)
{
    struct layout_spec spec = {.level = RAID_5, .members = 3, .chunk = 65536};
    const uint64_t sizes[] = {10 * 65536, 7 * 65536 + 65535, 900 * 65536};
    struct layout layout;
    cr_assert_null(layout_init(&layout, &spec, sizes));
    cr_expect_eq(layout.rows, 7);
}

Test(layout, names_there_and_back)
{
    static const struct name_case {
        const char *text;
        enum raid_level level;
    } accepted[] = {{"raid6", RAID_6}, {"6", RAID_6},   {"RAID10", RAID_10}, {"1e", RAID_1E},
                    {"1E", RAID_1E},   {"tp", RAID_TP}, {"jbod", RAID_JBOD}, {"Span", RAID_SPAN}};
    static const char *const refused[] = {"", "raid", "raid7", "raid-6", "66", "raid 6", "6 ", "bod", "raidraid6"};
    enum raid_level level;
    enum raid_rotation rotation;
    for (unsigned i = 0; i < RAID_LEVEL_COUNT; i++)
        cr_expect(raid_level_parse(raid_level_name((enum raid_level)i), &level) && level == (enum raid_level)i);
    for (unsigned i = 0; i < 4; i++)
        cr_expect(raid_rotation_parse(raid_rotation_name((enum raid_rotation)i), &rotation) &&
                  rotation == (enum raid_rotation)i);
    for (unsigned i = 0; i < ARRAY_LENGTH(accepted); i++)
        cr_expect(raid_level_parse(accepted[i].text, &level) && level == accepted[i].level, "%s", accepted[i].text);
    for (unsigned i = 0; i < ARRAY_LENGTH(refused); i++)
        cr_expect_not(raid_level_parse(refused[i], &level), "%s", refused[i]);
    cr_expect_not(raid_rotation_parse("left", &rotation));
    cr_expect_not(raid_rotation_parse(raid_rotation_name(ROTATE_PARITY_LAST), &rotation), "not one to be chosen");
}

Test(layout, a_row_behind_the_end_is_a_programmer_error, .signal = SIGABRT)
{
    struct layout_spec spec = {.level = RAID_5, .members = 3, .chunk = 65536};
    struct layout layout;
    struct layout_place place;
    cr_assert_null(layout_init(&layout, &spec, extents(MIB)));
    layout_place(&layout, layout.rows, 0, &place);
}
