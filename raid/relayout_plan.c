/*
 * Can a volume be moved to another shape, where to, and in which direction? See raid/relayout_plan.h.
 *
 * Where the new shape is to begin is tried in three places: where the old one does, as far down as there is room, as
 * far up. Moving forward is possible where the new rows never come before the old ones (M1) from the beginning on, so
 * that the gap between them, on each member, is never negative; backward is the mirror image, from the end on. The
 * gap grows evenly with the position, but for the roughness of rows:
 *
 *      gap(x) = (from.start - to.start) + x / old - x / new          old, new: bytes of volume a byte of depth
 *
 * P1  At most one chunk of each shape is lost to rounding at a border, on either side. So where the gap is four chunks
 *     of each or more there is a free step of one row at least.
 * P2  How far a step comes (relayout_reach) never falls when it begins farther on. So if it was tried with the longest
 *     ones that no position is stuck, no shorter steps come to one.
 * P3  With densities alike the gap repeats after a period; else it grows, up to where P1 holds. So a walk over a
 *     period, or up to there, tells it of the whole volume (M5).
 *
 * Functions of values. Sentences are for the administrator.
 */
#include "raid/relayout_plan.h"

#include <string.h>

#include "core/check.h"
#include "core/log.h"

#define MISTAKE(plan, ...) (text_format((plan)->mistake, sizeof(plan)->mistake, __VA_ARGS__), (plan)->mistake)

/* --- shapes --- */

void relayout_shape_place(struct relayout_shape *shape, uint64_t without, uint64_t start)
{
    unsigned i = 0;
    shape->start = start;
    memset(shape->slot, RELAYOUT_NOWHERE, sizeof shape->slot);
    memset(shape->layout_slot, RELAYOUT_NOWHERE, sizeof shape->layout_slot);
    for (unsigned slot = 0; slot < RAID_MEMBERS_MAX && i < shape->layout.spec.members; slot++) {
        if (without >> slot & 1)
            continue;
        shape->slot[i] = (uint8_t)slot;
        shape->layout_slot[slot] = (uint8_t)i++;
    }
}

const char *relayout_shape_init(struct relayout_shape *shape, const struct layout_spec *spec, uint64_t without,
                                uint64_t start, const uint64_t *extent_by_layout_slot)
{
    if (spec->members > RAID_MEMBERS_MAX - (unsigned)__builtin_popcountll(without))
        return "an array does not have so many slots";
    const char *wrong = layout_init(&shape->layout, spec, extent_by_layout_slot);
    if (wrong == NULL)
        relayout_shape_place(shape, without, start);
    return wrong;
}

bool relayout_shape_survives(const struct relayout_shape *shape, uint64_t lost)
{
    uint64_t of_layout = 0;
    for (unsigned i = 0; i < shape->layout.spec.members; i++)
        of_layout |= (lost >> shape->slot[i] & 1) << i;
    return layout_survives(&shape->layout, of_layout);
}

static bool is_span(const struct relayout_shape *shape)
{
    return shape->layout.spec.level == RAID_SPAN;
}

/* Extents by the layout's slots, of a span or all alike. */
static const char *shape_at(struct relayout_shape *shape, const struct layout_spec *spec, uint64_t without,
                            uint64_t start, uint64_t extent, const uint64_t *end)
{
    uint64_t extents[RAID_MEMBERS_MAX];
    unsigned i = 0;
    for (unsigned slot = 0; slot < RAID_MEMBERS_MAX; slot++) {
        if (without >> slot & 1)
            continue;
        bool of_its_own = spec->level == RAID_SPAN && i < spec->members;
        extents[i++] = !of_its_own ? extent : end[slot] > start ? end[slot] - start : 0;
    }
    while (i < RAID_MEMBERS_MAX)
        extents[i++] = 0;
    return relayout_shape_init(shape, spec, without, start, extents);
}

/* Bytes of volume to a byte of depth are up / down. */
struct density {
    uint64_t up, down;
};

static struct density density_of(const struct relayout_shape *shape)
{
    const struct layout *layout = &shape->layout;
    return (struct density){(uint64_t)layout->spec.members * layout->data, layout->roles};
}

/* -1, 0, 1: is it less dense than the other, alike, more? */
static int density_compare(const struct relayout_shape *one, const struct relayout_shape *other)
{
    struct density a = density_of(one), b = density_of(other);
    uint64_t left = a.up * b.down, right = b.up * a.down;
    return (left > right) - (left < right);
}

/* --- M4: what is there already --- */

/* Volume bytes [from, to) that a member of a span or of a jbod holds, in order, from the beginning of its extent. */
struct held {
    uint64_t from, to;
};

static struct held held_end_to_end(const struct relayout_shape *shape, unsigned layout_slot, uint64_t size)
{
    const struct layout *layout = &shape->layout;
    uint64_t first = is_span(shape) ? layout->span_start[layout_slot] : 0;
    uint64_t end = is_span(shape) ? layout->span_start[layout_slot + 1] : layout->rows;
    return (struct held){MIN(first * layout->spec.chunk, size), MIN(end * layout->spec.chunk, size)};
}

static bool end_to_end_is_in_place(const struct relayout_shape *from, const struct relayout_shape *to, uint64_t size)
{
    for (unsigned i = 0; i < to->layout.spec.members; i++) {
        unsigned other = from->layout_slot[to->slot[i]];
        if (other == RELAYOUT_NOWHERE)
            continue;
        struct held new = held_end_to_end(to, i, size), old = held_end_to_end(from, other, size);
        if (new.from < new.to && (new.from != old.from || new.to > old.to))
            return false;
    }
    return true;
}

/* Does the old shape hold byte `off` of the volume there? */
static bool holds(const struct relayout_shape *shape, unsigned layout_slot, uint64_t place, uint64_t off)
{
    const struct layout *layout = &shape->layout;
    uint64_t row;
    unsigned role;
    if (!layout_find(layout, layout_slot, place, &row, &role) || (layout->parity && role >= layout->data))
        return false;
    uint64_t column = layout->parity ? (uint64_t)role * layout->spec.chunk : 0;
    return row * layout->row_data + column + place % layout->spec.chunk == off;
}

static bool is_a_place(const struct relayout_shape *shape, unsigned layout_slot, uint64_t place)
{
    uint64_t row;
    unsigned role;
    return layout_find(&shape->layout, layout_slot, place, &row, &role);
}

static bool role_is_in_place(const struct relayout *r, uint64_t row, unsigned role)
{
    const struct relayout_shape *from = &r->from, *to = &r->to;
    struct layout_place place;
    layout_place(&to->layout, row, role, &place);
    unsigned other = from->layout_slot[to->slot[place.slot]];
    if (other == RELAYOUT_NOWHERE)
        return true;
    if (to->layout.parity && role >= to->layout.data)
        return false;
    uint64_t off = row * to->layout.row_data + (to->layout.parity ? (uint64_t)role * to->layout.spec.chunk : 0);
    uint64_t step = MIN(to->layout.spec.chunk, from->layout.spec.chunk);
    for (uint64_t column = 0; column < to->layout.spec.chunk; column += step)
        if (!holds(from, other, place.off + column, off + column) &&
            (off + column < r->size || is_a_place(from, other, place.off + column)))
            return false;
    return true;
}

/* Parity goes round: then the pattern is as many times longer. */
static uint64_t pattern(const struct relayout *r)
{
    uint64_t bytes = relayout_period(r);
    if (r->from.layout.parity)
        bytes *= r->from.layout.roles;
    if (r->to.layout.parity)
        bytes *= r->to.layout.roles;
    return bytes;
}

bool relayout_is_in_place(const struct relayout_shape *from, const struct relayout_shape *to, uint64_t size)
{
    bool either_is_span = is_span(from) || is_span(to);
    if (either_is_span) {
        bool both = (is_span(from) || from->layout.spec.level == RAID_JBOD) &&
                    (is_span(to) || to->layout.spec.level == RAID_JBOD);
        return both && end_to_end_is_in_place(from, to, size);
    }
    if (from->start != to->start || density_compare(from, to) != 0)
        return false; /* apart, or drifting apart */
    struct relayout r = {.from = *from, .to = *to, .size = size};
    uint64_t end = MIN(size, pattern(&r));
    for (uint64_t row = 0; row * to->layout.row_data < end; row++)
        for (unsigned role = 0; role < to->layout.roles; role++)
            if (!role_is_in_place(&r, row, role))
                return false;
    return true;
}

/* --- M5 --- */

/* How far a walk has to go: P3. False: the gap falls on the way. */
static bool walk_length(const struct relayout *r, int64_t gap, int64_t wide, uint64_t *length)
{
    int denser = density_compare(&r->to, &r->from);
    if (r->backward ? denser > 0 : denser < 0)
        return false;
    if (denser == 0) {
        *length = MIN(relayout_period(r), r->size);
        return true;
    }
    struct density old = density_of(&r->from), new = density_of(&r->to);
    uint64_t a = old.up * new.down, b = new.up *old.down, missing = gap < wide ? (uint64_t)(wide - gap) : 0;
    *length = MIN(missing * old.up * new.up / (a > b ? a - b : b - a) + 1, r->size);
    return true;
}

static uint64_t bytes_written(const struct relayout *r, uint64_t row, uint64_t rows)
{
    uint64_t bytes = 0, kept = relayout_kept(r);
    for (unsigned i = 0; i < r->to.layout.spec.members; i++)
        if (!(kept >> r->to.slot[i] & 1))
            bytes += relayout_range(&r->to, row, rows, r->to.slot[i]).len;
    return bytes;
}

/* Forward from the beginning to `length`, backward from there. */
static uint64_t walk_begin(const struct relayout *r, uint64_t length)
{
    return r->backward ? MIN(round_up(length, r->to.layout.row_data), r->size) : 0;
}

static bool walk_goes_on(const struct relayout *r, uint64_t position, uint64_t length)
{
    return r->backward ? position > 0 : position < length;
}

static bool walk(const struct relayout *r, uint64_t length, uint64_t *stuck)
{
    uint64_t position = walk_begin(r, length);
    while (walk_goes_on(r, position, length)) {
        *stuck = position;
        position = relayout_reach(r, position);
        if (position == *stuck)
            return false;
    }
    return true;
}

static uint64_t count_logged(const struct relayout *r, uint64_t length)
{
    uint64_t position = walk_begin(r, length), begin = position, bytes = 0;
    struct relayout_step step;
    while (walk_goes_on(r, position, length) && relayout_step(r, position, &step)) {
        if (step.logged)
            bytes += bytes_written(r, step.row, step.rows);
        position = r->backward ? step.first : step.end;
    }
    uint64_t walked = r->backward ? begin : position;
    return density_compare(&r->from, &r->to) == 0 ? bytes * (r->size / walked) + bytes / walked * (r->size % walked)
                                                  : bytes;
}

bool relayout_is_passable(const struct relayout *r, uint64_t *stuck, uint64_t *logged)
{
    *stuck = relayout_begin(r);
    *logged = 0;
    if (r->in_place)
        return true;
    if (is_span(&r->from) || is_span(&r->to))
        return false;
    int64_t old = (int64_t)layout_extent_for(&r->from.layout.spec, r->size);
    int64_t new = (int64_t)layout_extent_for(&r->to.layout.spec, r->size);
    int64_t gap = (int64_t)r->from.start - (int64_t)r->to.start, gap_at_end = gap + old - new;
    if (r->backward) {
        gap = -gap;
        gap_at_end = -gap_at_end;
    }
    int64_t wide = 4 * ((int64_t)r->from.layout.spec.chunk + (int64_t)r->to.layout.spec.chunk);
    if (gap >= wide && gap_at_end >= wide)
        return true;
    struct relayout far = *r;
    far.window = UINT64_MAX / 2;
    uint64_t length;
    if (gap < 0 || !walk_length(r, gap, wide, &length) || !walk(&far, length, stuck))
        return false;
    /* Where free steps are shorter than a log is long, that is taken instead: relayout_step(). */
    *logged = walk_length(r, gap, wide + (int64_t)r->log, &length) ? count_logged(&far, length) : 0;
    return true;
}

/* --- where to --- */

/* A place for the new shape, with the direction that suits it. False: there is none. */
static bool try_start(struct relayout *r, uint64_t start, uint64_t *logged)
{
    uint64_t stuck;
    r->to.start = start;
    for (unsigned backward = 0; backward < 2; backward++) {
        r->backward = backward == 1;
        if (relayout_is_passable(r, &stuck, logged))
            return true;
    }
    return false;
}

/* Where the old shape is, if no more than the beginning or the end is to be logged there; else where the least is. */
static bool choose_start(const struct relayout_request *q, struct relayout_plan *plan)
{
    uint64_t down = q->low, stay = q->start, up = q->high - plan->extent;
    const uint64_t starts[] = {q->pack ? down : stay, q->pack ? stay : down, up};
    bool found = false, repeats = density_compare(&plan->relayout.from, &plan->relayout.to) == 0;
    for (unsigned i = 0; i < ARRAY_LENGTH(starts); i++) {
        struct relayout r = plan->relayout;
        uint64_t logged;
        if (starts[i] > up || !try_start(&r, starts[i], &logged) || (found && logged >= plan->logged))
            continue;
        plan->relayout = r;
        plan->logged = logged;
        found = true;
        if (!repeats)
            break;
    }
    return found;
}

static const char *say_stuck(const struct relayout_request *q, struct relayout_plan *plan)
{
    struct relayout r = plan->relayout;
    uint64_t stuck, logged, needed = UINT64_MAX;
    r.to.start = q->start;
    for (unsigned backward = 0; backward < 2 && q->start + plan->extent <= q->high; backward++) {
        r.backward = backward == 1;
        if (relayout_is_passable(&r, &stuck, &logged))
            continue;
        uint64_t more = relayout_log_needed(&r, stuck);
        needed = more > q->log ? MIN(needed, more) : needed;
    }
    if (needed == UINT64_MAX)
        return MISTAKE(plan,
                       "there is no room to move in: the new shape takes %llu bytes of each member, and needs some "
                       "free ones beside the present one's %llu, of which there are %llu",
                       (unsigned long long)plan->extent, (unsigned long long)q->extent,
                       (unsigned long long)(q->high - q->low - q->extent));
    return MISTAKE(plan,
                   "there is no room to move in: %llu bytes of headroom are needed on each member, there are %llu",
                   (unsigned long long)needed, (unsigned long long)q->log);
}

/* --- what cannot be --- */

static bool same_spec(const struct layout_spec *a, const struct layout_spec *b)
{
    return a->level == b->level && a->members == b->members && a->spans == b->spans && a->copies == b->copies &&
           a->chunk == b->chunk && (a->rotation == b->rotation);
}

static const char *check_lost(const struct relayout_request *q, struct relayout_plan *plan)
{
    const struct relayout_shape *const shapes[] = {&plan->relayout.from, &plan->relayout.to};
    for (unsigned i = 0; i < 2; i++)
        if (!relayout_shape_survives(shapes[i], q->lost))
            return MISTAKE(plan, "members are missing that %s of %u cannot do without",
                           raid_level_name(shapes[i]->layout.spec.level), shapes[i]->layout.spec.members);
    return NULL;
}

static const char *check_room(const struct relayout_request *q, struct relayout_plan *plan)
{
    const struct layout *to = &plan->relayout.to.layout;
    uint64_t room = is_span(&plan->relayout.to) ? to->rows * to->row_data : q->high - q->low;
    uint64_t wanted = is_span(&plan->relayout.to) ? q->size : plan->extent;
    if (wanted <= room)
        return NULL;
    return MISTAKE(plan, "%llu bytes do not fit: %s of %u takes %llu %s, and there are %llu",
                   (unsigned long long)q->size, raid_level_name(to->spec.level), to->spec.members,
                   (unsigned long long)wanted, is_span(&plan->relayout.to) ? "in all" : "of each member",
                   (unsigned long long)room);
}

static const char *init_shapes(const struct relayout_request *q, struct relayout_plan *plan)
{
    struct relayout *r = &plan->relayout;
    const char *wrong = shape_at(&r->from, &q->from, q->from_without, q->start, q->extent, q->end);
    if (wrong != NULL)
        return MISTAKE(plan, "the present shape: %s", wrong);
    if (r->from.layout.rows * r->from.layout.row_data < q->size)
        return MISTAKE(plan, "the present shape holds less than the volume's %llu bytes", (unsigned long long)q->size);
    /* With an extent that holds it, which can be told only of a layout that is right. */
    wrong = shape_at(&r->to, &q->to, q->to_without, q->start, 1ull << 56, q->end);
    if (wrong == NULL && !is_span(&r->to)) {
        plan->extent = round_up(layout_extent_for(&q->to, q->size), MIB);
        wrong = shape_at(&r->to, &q->to, q->to_without, q->start, plan->extent, q->end);
    }
    if (wrong != NULL)
        return MISTAKE(plan, "%s", wrong);
    bool slides = q->pack && q->low < q->start;
    if (same_spec(&r->from.layout.spec, &r->to.layout.spec) && q->from_without == q->to_without && !slides)
        return MISTAKE(plan, "the volume has this shape already");
    return NULL;
}

static void count_bytes(struct relayout_plan *plan)
{
    const struct relayout *r = &plan->relayout;
    uint64_t rows = r->size / r->to.layout.row_data + (r->size % r->to.layout.row_data != 0);
    plan->written = bytes_written(r, 0, rows);
    plan->read = plan->written > 0 ? r->size : 0;
    plan->tolerance = MIN(r->from.layout.redundancy, r->to.layout.redundancy);
}

const char *relayout_plan(const struct relayout_request *q, struct relayout_plan *plan)
{
    ASSERT(q->size > 0 && q->low <= q->start && q->low <= q->high && q->window > 0);
    *plan = (struct relayout_plan){.relayout = {.size = q->size, .window = q->window, .log = q->log}};
    const char *wrong = init_shapes(q, plan);
    if (wrong == NULL)
        wrong = check_room(q, plan);
    if (wrong == NULL)
        wrong = check_lost(q, plan);
    if (wrong != NULL)
        return wrong;
    struct relayout *r = &plan->relayout;
    bool fits_here = is_span(&r->to) || q->start + plan->extent <= q->high;
    r->in_place = fits_here && !(q->pack && q->low < q->start) && relayout_is_in_place(&r->from, &r->to, q->size);
    if (!r->in_place && (is_span(&r->from) || is_span(&r->to)))
        return MISTAKE(plan, "a span can only be made longer or shorter at its end, as far as nothing lies there");
    if (!r->in_place && !choose_start(q, plan))
        return say_stuck(q, plan);
    count_bytes(plan);
    return NULL;
}
