/*
 * Where the bytes of a volume lie.
 *
 * Thirteen levels, three shapes:
 *
 *   end to end   span. Rows fill member 0, then member 1, ... span_start[] is the only table, searched by halving.
 *   near         jbod, 0, 1, 10, 1E. Chunks and their copies are dealt out like cards: copy k of row t is card
 *                i = t*copies + k, which goes to member i % n, at depth i / n. One copy is RAID 0, n copies RAID 1.
 *   parity       3, 5, 6, tp, and 30, 50, 60 of them. A row lies at one depth of all members of its span. The m
 *                parities are neighbours on the ring of members, from where(P) on:
 *
 *                    n = 5, m = 2:  left-symmetric      left-asymmetric
 *                          t = 0    Q  D0 D1 D2 P       Q  D0 D1 D2 P       left:   P = n-1 - t%n
 *                          t = 1    D0 D1 D2 P  Q       D0 D1 D2 P  Q       right:  P = t%n
 *                          t = 2    D1 D2 P  Q  D0      D0 D1 P  Q  D2      RAID 3: P = n-1
 *
 *                Of other makers' arrays, without any turn: parity-first has P = 0, parity-last P = n-m.
 *
 *                Symmetric: data goes on round the ring behind the last parity, so that any n successive chunks lie
 *                on n different members. Asymmetric: data fills the free slots in ascending order.
 *
 * L1  Every level but span spreads roles chunks a row evenly over its members; so extents of L chunks hold
 *     L * members / roles rows, and no formula of size is per level.
 * L2  place() and find() are inverse to each other for every row below `rows`, and no two places overlap.
 *
 * Nothing here can fail but layout_init(), whose answer is a sentence for the administrator.
 */
#include "raid/layout.h"

#include <string.h>
#include <strings.h>

#include "core/check.h"
#include "core/log.h"

enum { CHUNK_MIN = 4 << 10, CHUNK_MAX = 16 << 20 };
enum shape { SHAPE_SPAN, SHAPE_NEAR, SHAPE_PARITY };

static const struct level {
    const char *name;
    enum shape shape;
    unsigned members_min; /* of one span */
    unsigned parities;
    bool spans;   /* a stripe of spans */
    bool rotates; /* parity walks over the members; else P is last and the chunk is CHUNK_MIN */
    bool copies;  /* the number of copies is the administrator's choice */
} levels[RAID_LEVEL_COUNT] = {
    [RAID_JBOD] = {"jbod", SHAPE_NEAR, 1, 0, false, false, false},
    [RAID_SPAN] = {"span", SHAPE_SPAN, 1, 0, false, false, false},
    [RAID_0] = {"raid0", SHAPE_NEAR, 2, 0, false, false, false},
    [RAID_1] = {"raid1", SHAPE_NEAR, 2, 0, false, false, false},
    [RAID_10] = {"raid10", SHAPE_NEAR, 4, 0, false, false, true},
    [RAID_1E] = {"raid1e", SHAPE_NEAR, 3, 0, false, false, true},
    [RAID_3] = {"raid3", SHAPE_PARITY, 3, 1, false, false, false},
    [RAID_5] = {"raid5", SHAPE_PARITY, 3, 1, false, true, false},
    [RAID_6] = {"raid6", SHAPE_PARITY, 4, 2, false, true, false},
    [RAID_TP] = {"raidtp", SHAPE_PARITY, 5, 3, false, true, false},
    [RAID_30] = {"raid30", SHAPE_PARITY, 3, 1, true, false, false},
    [RAID_50] = {"raid50", SHAPE_PARITY, 3, 1, true, true, false},
    [RAID_60] = {"raid60", SHAPE_PARITY, 4, 2, true, true, false},
};

static const char *const rotations[] = {
    [ROTATE_LEFT_ASYMMETRIC] = "left-asymmetric",
    [ROTATE_RIGHT_ASYMMETRIC] = "right-asymmetric",
    [ROTATE_LEFT_SYMMETRIC] = "left-symmetric",
    [ROTATE_RIGHT_SYMMETRIC] = "right-symmetric",
    [ROTATE_PARITY_FIRST] = "parity-first",
    [ROTATE_PARITY_LAST] = "parity-last",
};

/* -- the spec: fill in, check
 * ------------------------------------------------------------------------------------------ */

/* A choice the level does not leave may be given as 0 or 1. */
static unsigned choice(unsigned given, unsigned otherwise)
{
    return given > 1 ? given : otherwise;
}

static void spec_complete(struct layout_spec *spec)
{
    const struct level *level = &levels[spec->level];
    if (!level->spans)
        spec->spans = choice(spec->spans, 1);
    if (level->copies)
        spec->copies = spec->copies == 0 ? 2 : spec->copies;
    else
        spec->copies = choice(spec->copies, spec->level == RAID_1 ? spec->members : 1);
    if (level->shape == SHAPE_PARITY && !level->rotates && spec->chunk == 0)
        spec->chunk = CHUNK_MIN;
}

#define MISTAKE(layout, ...) (text_format((layout)->mistake, sizeof(layout)->mistake, __VA_ARGS__), (layout)->mistake)

static const char *check_members(struct layout *layout, const struct level *level)
{
    const struct layout_spec *spec = &layout->spec;
    if (spec->members > RAID_MEMBERS_MAX)
        return MISTAKE(layout, "%s can have at most %d members, %u were given", level->name, RAID_MEMBERS_MAX,
                       spec->members);
    if (spec->level == RAID_JBOD && spec->members != 1)
        return MISTAKE(layout, "jbod has exactly 1 member, %u were given", spec->members);
    if (level->spans) {
        if (spec->spans < 2)
            return MISTAKE(layout, "%s needs at least 2 spans, %u were given", level->name, spec->spans);
        if (spec->members % spec->spans != 0)
            return MISTAKE(layout, "%s needs spans of equal width, %u members do not divide into %u", level->name,
                           spec->members, spec->spans);
        if (spec->members / spec->spans < level->members_min)
            return MISTAKE(layout, "%s needs at least %u members in each span, %u were given", level->name,
                           level->members_min, spec->members / spec->spans);
        return NULL;
    }
    if (spec->spans != 1)
        return MISTAKE(layout, "%s has no spans, %u were given", level->name, spec->spans);
    if (spec->members < level->members_min)
        return MISTAKE(layout, "%s needs at least %u members, %u were given", level->name, level->members_min,
                       spec->members);
    return NULL;
}

static const char *check_copies(struct layout *layout, const struct level *level)
{
    const struct layout_spec *spec = &layout->spec;
    unsigned copies = spec->copies, members = spec->members;
    if (spec->level == RAID_1 && copies != members)
        return MISTAKE(layout, "raid1 keeps a copy on each of its %u members, %u copies were asked for", members,
                       copies);
    if (!level->copies && spec->level != RAID_1 && copies != 1)
        return MISTAKE(layout, "%s keeps no copies, %u were asked for", level->name, copies);
    if (!level->copies)
        return NULL;
    if (copies < 2)
        return MISTAKE(layout, "%s needs at least 2 copies, %u was asked for", level->name, copies);
    if (spec->level == RAID_10 && members % copies != 0)
        return MISTAKE(layout, "raid10 needs members in groups of %u, %u were given (raid1e takes any number)", copies,
                       members);
    if (spec->level == RAID_10 && members < 2 * copies)
        return MISTAKE(layout, "raid10 with %u copies needs at least %u members, %u were given", copies, 2 * copies,
                       members);
    if (spec->level == RAID_1E && members < copies + 1)
        return MISTAKE(layout, "raid1e with %u copies needs at least %u members, %u were given", copies, copies + 1,
                       members);
    if (spec->level == RAID_1E && members % copies == 0)
        return MISTAKE(layout, "raid1e with %u copies and %u members is raid10", copies, members);
    return NULL;
}

static const char *check_chunk(struct layout *layout, const struct level *level)
{
    uint32_t chunk = layout->spec.chunk;
    if (level->shape == SHAPE_PARITY && !level->rotates && chunk != CHUNK_MIN)
        return MISTAKE(layout, "%s has a chunk of 4 KiB, %u bytes were given", level->name, chunk);
    if (!is_power_of_two(chunk) || chunk < CHUNK_MIN || chunk > CHUNK_MAX)
        return MISTAKE(layout, "the chunk must be a power of two from 4 KiB to 16 MiB, %u bytes were given", chunk);
    return NULL;
}

static const char *check_spec(struct layout *layout)
{
    const struct level *level = &levels[layout->spec.level];
    const char *wrong = check_members(layout, level);
    if (wrong == NULL)
        wrong = check_copies(layout, level);
    if (wrong == NULL)
        wrong = check_chunk(layout, level);
    if (wrong == NULL && (unsigned)layout->spec.rotation >= ARRAY_LENGTH(rotations))
        wrong = MISTAKE(layout, "there is no parity rotation number %u", (unsigned)layout->spec.rotation);
    return wrong;
}

/* -- sizes
 * ------------------------------------------------------------------------------------------------------------- */

static unsigned chunk_shift(const struct layout_spec *spec)
{
    return (unsigned)__builtin_ctz(spec->chunk);
}

static unsigned span_members(const struct layout_spec *spec)
{
    return spec->members / spec->spans;
}

static void shape_set(struct layout *layout)
{
    const struct layout_spec *spec = &layout->spec;
    const struct level *level = &levels[spec->level];
    layout->parity = level->shape == SHAPE_PARITY;
    layout->redundancy = layout->parity ? level->parities : spec->copies - 1;
    layout->roles = layout->parity ? span_members(spec) : spec->copies;
    layout->data = layout->roles - layout->redundancy;
    layout->row_data = (uint64_t)layout->data * spec->chunk;
}

static uint64_t rows_end_to_end(struct layout *layout, const uint64_t *extent)
{
    uint64_t rows = 0;
    for (unsigned slot = 0; slot < layout->spec.members; slot++) {
        layout->span_start[slot] = rows;
        rows += extent[slot] >> chunk_shift(&layout->spec);
    }
    layout->span_start[layout->spec.members] = rows;
    return rows;
}

static uint64_t rows_even(const struct layout *layout, const uint64_t *extent)
{
    uint64_t least = UINT64_MAX;
    for (unsigned slot = 0; slot < layout->spec.members; slot++)
        least = MIN(least, extent[slot]);
    return (least >> chunk_shift(&layout->spec)) * layout->spec.members / layout->roles; /* L1 */
}

const char *layout_init(struct layout *layout, const struct layout_spec *spec, const uint64_t *extent)
{
    *layout = (struct layout){.spec = *spec};
    if ((unsigned)spec->level >= RAID_LEVEL_COUNT)
        return MISTAKE(layout, "there is no RAID level number %u", (unsigned)spec->level);
    spec_complete(&layout->spec);
    const char *wrong = check_spec(layout);
    if (wrong != NULL)
        return wrong;
    shape_set(layout);
    bool even = levels[spec->level].shape != SHAPE_SPAN;
    layout->rows = even ? rows_even(layout, extent) : rows_end_to_end(layout, extent);
    if (layout->rows == 0)
        return MISTAKE(layout, "the members have less room than one chunk of %u bytes", layout->spec.chunk);
    return NULL;
}

uint64_t layout_extent_for(const struct layout_spec *spec, uint64_t size)
{
    struct layout layout = {.spec = *spec};
    ASSERT((unsigned)spec->level < RAID_LEVEL_COUNT && levels[spec->level].shape != SHAPE_SPAN);
    spec_complete(&layout.spec);
    ASSERT(check_spec(&layout) == NULL);
    shape_set(&layout);
    uint64_t rows = size / layout.row_data + (size % layout.row_data != 0);
    uint64_t chunks = rows * layout.roles;
    return (chunks + layout.spec.members - 1) / layout.spec.members * layout.spec.chunk; /* L1 */
}

/* -- there and back
 * ---------------------------------------------------------------------------------------------------- */

/* The slot of P within its span, in the span's row t. */
static unsigned parity_slot(const struct layout_spec *spec, uint64_t t)
{
    unsigned n = span_members(spec);
    if (!levels[spec->level].rotates)
        return n - 1;
    if (spec->rotation == ROTATE_PARITY_FIRST || spec->rotation == ROTATE_PARITY_LAST)
        return spec->rotation == ROTATE_PARITY_FIRST ? 0 : n - levels[spec->level].parities;
    unsigned turn = (unsigned)(t % n);
    bool left = spec->rotation == ROTATE_LEFT_ASYMMETRIC || spec->rotation == ROTATE_LEFT_SYMMETRIC;
    return left ? n - 1 - turn : turn;
}

static bool is_symmetric(const struct layout_spec *spec)
{
    return spec->rotation == ROTATE_LEFT_SYMMETRIC || spec->rotation == ROTATE_RIGHT_SYMMETRIC;
}

/* One step round the ring at most: 0 <= slot < 2n. */
static unsigned ring(unsigned slot, unsigned n)
{
    return slot < n ? slot : slot - n;
}

static unsigned parity_role_slot(const struct layout *layout, uint64_t t, unsigned role)
{
    unsigned n = layout->roles, m = layout->redundancy, p = parity_slot(&layout->spec, t);
    if (role >= layout->data)
        return ring(p + role - layout->data, n);
    if (levels[layout->spec.level].rotates && is_symmetric(&layout->spec))
        return ring(ring(p + m, n) + role, n);
    if (p + m >= n)
        return role + (p + m - n); /* so many parities went round the ring to the front */
    return role < p ? role : role + m;
}

static unsigned parity_slot_role(const struct layout *layout, uint64_t t, unsigned slot)
{
    unsigned n = layout->roles, m = layout->redundancy, p = parity_slot(&layout->spec, t);
    unsigned behind = ring(slot + n - p, n);
    if (behind < m)
        return layout->data + behind;
    if (levels[layout->spec.level].rotates && is_symmetric(&layout->spec))
        return behind - m;
    if (p + m >= n)
        return slot - (p + m - n);
    return slot < p ? slot : slot - m;
}

unsigned layout_codec_role(const struct layout *layout, uint64_t row, unsigned role)
{
    const struct layout_spec *spec = &layout->spec;
    unsigned data = layout->data;
    if (role >= data || (spec->level != RAID_6 && spec->level != RAID_60) || is_symmetric(spec))
        return role;
    unsigned p = parity_slot(spec, row / spec->spans);
    unsigned turn = p == layout->roles - 1 ? 0 : p % data; /* Q has gone round to slot 0: data begins behind it */
    return role >= turn ? role - turn : role + data - turn;
}

/* The member that holds a row of the span level: the last that starts at or before it. */
static unsigned end_to_end_slot(const struct layout *layout, uint64_t row)
{
    unsigned low = 0, high = layout->spec.members;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (layout->span_start[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void layout_place(const struct layout *layout, uint64_t row, unsigned role, struct layout_place *place)
{
    const struct layout_spec *spec = &layout->spec;
    uint64_t depth = 0, card;
    ASSERT(row < layout->rows && role < layout->roles);
    switch (levels[spec->level].shape) {
    case SHAPE_SPAN:
        place->slot = end_to_end_slot(layout, row);
        depth = row - layout->span_start[place->slot];
        break;
    case SHAPE_NEAR:
        card = row * spec->copies + role;
        place->slot = (unsigned)(card % spec->members);
        depth = card / spec->members;
        break;
    case SHAPE_PARITY:
        depth = row / spec->spans;
        place->slot = (unsigned)(row % spec->spans) * layout->roles + parity_role_slot(layout, depth, role);
        break;
    }
    place->off = depth << chunk_shift(spec);
}

bool layout_find(const struct layout *layout, unsigned slot, uint64_t off, uint64_t *row, unsigned *role)
{
    const struct layout_spec *spec = &layout->spec;
    uint64_t depth = off >> chunk_shift(spec), card;
    ASSERT(slot < spec->members);
    if (depth >= layout->rows) /* no row lies deeper than its number; and the products below cannot overflow */
        return false;
    switch (levels[spec->level].shape) {
    case SHAPE_SPAN:
        *row = layout->span_start[slot] + depth;
        *role = 0;
        return *row < layout->span_start[slot + 1];
    case SHAPE_NEAR:
        card = depth * spec->members + slot;
        *row = card / spec->copies;
        *role = (unsigned)(card % spec->copies);
        break;
    case SHAPE_PARITY:
        *row = depth * spec->spans + slot / layout->roles;
        *role = parity_slot_role(layout, depth, slot % layout->roles);
        break;
    }
    return *row < layout->rows;
}

/* Every member's chunks are dealt out in the order of the rows, so those of the rows below are its first ones. */
uint64_t layout_filled(const struct layout *layout, unsigned slot, uint64_t row)
{
    const struct layout_spec *spec = &layout->spec;
    uint64_t chunks = 0;
    ASSERT(row <= layout->rows && slot < spec->members);
    switch (levels[spec->level].shape) {
    case SHAPE_SPAN:
        chunks = row < layout->span_start[slot] ? 0
                                                : MIN(row, layout->span_start[slot + 1]) - layout->span_start[slot];
        break;
    case SHAPE_NEAR:
        chunks = (row * spec->copies + spec->members - 1 - slot) / spec->members;
        break;
    case SHAPE_PARITY:
        chunks = (row + spec->spans - 1 - slot / layout->roles) / spec->spans;
        break;
    }
    return chunks << chunk_shift(spec);
}

/* -- losses
 * ------------------------------------------------------------------------------------------------------------ */

static uint64_t low_bits(unsigned count)
{
    return count < 64 ? (1ull << count) - 1 : UINT64_MAX;
}

unsigned layout_tolerance(const struct layout *layout)
{
    return layout->redundancy;
}

static bool survives_end_to_end(const struct layout *layout, uint64_t lost)
{
    for (unsigned slot = 0; slot < layout->spec.members; slot++)
        if ((lost >> slot & 1) && layout->span_start[slot] < layout->span_start[slot + 1])
            return false;
    return true;
}

/* Row t starts on member t*copies % n: the pattern repeats after n rows at the latest. */
static bool survives_near(const struct layout *layout, uint64_t lost)
{
    unsigned n = layout->spec.members, first = 0;
    for (uint64_t row = 0; row < MIN(layout->rows, (uint64_t)n); row++) {
        unsigned copies_left = layout->roles;
        for (unsigned role = 0; role < layout->roles; role++)
            copies_left -= lost >> ring(first + role, n) & 1;
        if (copies_left == 0)
            return false;
        first = ring(first + layout->roles, n);
    }
    return true;
}

static bool survives_parity(const struct layout *layout, uint64_t lost)
{
    for (unsigned span = 0; span < layout->spec.spans; span++) {
        uint64_t members = low_bits(layout->roles) << span * layout->roles;
        if ((unsigned)__builtin_popcountll(lost & members) > layout->redundancy)
            return false;
    }
    return true;
}

bool layout_survives(const struct layout *layout, uint64_t lost)
{
    lost &= low_bits(layout->spec.members);
    if ((unsigned)__builtin_popcountll(lost) <= layout->redundancy)
        return true;
    switch (levels[layout->spec.level].shape) {
    case SHAPE_SPAN:
        return survives_end_to_end(layout, lost);
    case SHAPE_NEAR:
        return survives_near(layout, lost);
    case SHAPE_PARITY:
        return survives_parity(layout, lost);
    }
    UNREACHABLE("a shape is one of three");
}

/* -- names
 * ------------------------------------------------------------------------------------------------------------- */

const char *raid_level_name(enum raid_level level)
{
    ASSERT((unsigned)level < RAID_LEVEL_COUNT);
    return levels[level].name;
}

bool raid_level_parse(const char *name, enum raid_level *level)
{
    for (unsigned i = 0; i < RAID_LEVEL_COUNT; i++) {
        const char *full = levels[i].name;
        bool is_short = strncmp(full, "raid", 4) == 0 && strcasecmp(name, full + 4) == 0;
        if (is_short || strcasecmp(name, full) == 0) {
            *level = (enum raid_level)i;
            return true;
        }
    }
    return false;
}

const char *raid_rotation_name(enum raid_rotation r)
{
    ASSERT((unsigned)r < ARRAY_LENGTH(rotations));
    return rotations[r];
}

bool raid_rotation_parse(const char *name, enum raid_rotation *r)
{
    for (unsigned i = 0; i <= ROTATE_RIGHT_SYMMETRIC; i++)
        if (strcasecmp(name, rotations[i]) == 0) {
            *r = (enum raid_rotation)i;
            return true;
        }
    return false;
}
