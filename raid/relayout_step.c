/*
 * The steps of a relayout: see raid/relayout_plan.h.
 *
 * All of it is one comparison. A layout fills each member from the beginning of its extent, in the order of its rows
 * (layout_filled()). So of rows that were passed and rows that were not, one kind lies in front of the other on each
 * member, and they are apart if a border of the new shape's rows does not lie beyond one of the old shape's:
 *
 *      forward                                   backward
 *      new rows ...] <= [old rows that count     old rows that count ...] <= [new rows
 *
 * Borders are numbers of rows. The new shape's border at a position is exact; the old shape's is that of the row that
 * holds bytes from both sides of the position: it counts, all of it, since its redundancy is about all of it.
 *
 * Functions of values; they cannot fail.
 */
#include "core/check.h"
#include "raid/relayout_plan.h"

static uint64_t rows_for(const struct relayout_shape *shape, uint64_t bytes)
{
    return bytes / shape->layout.row_data + (bytes % shape->layout.row_data != 0);
}

static uint64_t position_at(const struct relayout *r, uint64_t border)
{
    return MIN(border * r->to.layout.row_data, r->size);
}

static uint64_t new_border(const struct relayout *r, uint64_t position)
{
    ASSERT(position == r->size || position % r->to.layout.row_data == 0);
    return rows_for(&r->to, position);
}

/* Of the rows with a byte that was not passed at this position. */
static uint64_t old_border(const struct relayout *r, uint64_t position)
{
    if (r->backward || position == r->size)
        return rows_for(&r->from, position);
    return position / r->from.layout.row_data;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* In place a write to the new side also is one to a place of the old: so no old row may have bytes of both sides. */
static uint64_t border_unit(const struct relayout *r)
{
    uint64_t old = r->from.layout.row_data, new = r->to.layout.row_data;
    return r->in_place ? old / common_divisor(old, new) : 1;
}

static uint64_t place_of_border(const struct relayout_shape *shape, unsigned layout_slot, uint64_t border)
{
    return shape->start + layout_filled(&shape->layout, layout_slot, border);
}

static bool borders_are_apart(const struct relayout *r, uint64_t new, uint64_t old)
{
    if (r->in_place)
        return true;
    for (unsigned i = 0; i < r->to.layout.spec.members; i++) {
        unsigned other = r->from.layout_slot[r->to.slot[i]];
        if (other == RELAYOUT_NOWHERE)
            continue;
        uint64_t new_place = place_of_border(&r->to, i, new), old_place = place_of_border(&r->from, other, old);
        if (r->backward ? new_place < old_place : new_place > old_place)
            return false;
    }
    return true;
}

/* Where nothing is left to be passed the old side is nothing any more; at the beginning the new one is nothing yet. */
bool relayout_rests(const struct relayout *r, uint64_t position)
{
    if (position == relayout_end(r) || position == relayout_begin(r))
        return true;
    uint64_t border = new_border(r, position);
    return border % border_unit(r) == 0 && borders_are_apart(r, border, old_border(r, position));
}

uint64_t relayout_begin(const struct relayout *r)
{
    return r->backward ? r->size : 0;
}

uint64_t relayout_end(const struct relayout *r)
{
    return r->backward ? 0 : r->size;
}

/* --- how far --- */

static uint64_t rows_ahead(const struct relayout *r, uint64_t border)
{
    return r->backward ? border : rows_for(&r->to, r->size) - border;
}

static uint64_t border_after(const struct relayout *r, uint64_t border, uint64_t rows)
{
    return r->backward ? border - rows : border + rows;
}

/* Rows that take about so many bytes of each member. */
static uint64_t rows_in(const struct relayout *r, uint64_t bytes)
{
    const struct layout *to = &r->to.layout;
    return bytes / to->spec.chunk * to->spec.members / to->roles;
}

/* The most of a member that these rows take. */
static uint64_t bytes_of_rows(const struct relayout *r, uint64_t border, uint64_t rows)
{
    uint64_t most = 0;
    for (unsigned i = 0; i < r->to.layout.spec.members; i++) {
        uint64_t a = layout_filled(&r->to.layout, i, border);
        uint64_t b = layout_filled(&r->to.layout, i, border_after(r, border, rows));
        most = MAX(most, r->backward ? a - b : b - a);
    }
    return most;
}

static bool writes_nothing(const struct relayout *r)
{
    return (unsigned)__builtin_popcountll(relayout_kept(r)) == r->to.layout.spec.members;
}

/* All that is ahead, or some rows, but up to a border where the position may come to rest. */
static uint64_t rows_to_border(const struct relayout *r, uint64_t border, uint64_t rows)
{
    uint64_t ahead = rows_ahead(r, border), unit = border_unit(r);
    if (rows >= ahead)
        return ahead;
    if (r->backward) /* the volume's end may be no such border */
        return border - round_down(border - rows, unit);
    return MIN(ahead, round_up(border + rows, unit) - border);
}

/* M2: what is apart with some rows is so with fewer. */
static uint64_t free_rows(const struct relayout *r, uint64_t position)
{
    uint64_t border = new_border(r, position), old = old_border(r, position), none = 0;
    uint64_t most =
        writes_nothing(r) ? rows_ahead(r, border) : rows_to_border(r, border, MAX(rows_in(r, r->window), 1));
    if (r->in_place)
        return most;
    while (none < most) {
        uint64_t middle = none + (most - none + 1) / 2;
        if (borders_are_apart(r, border_after(r, border, middle), old))
            none = middle;
        else
            most = middle - 1;
    }
    return none;
}

static bool rests_after(const struct relayout *r, uint64_t border, uint64_t rows)
{
    return relayout_rests(r, position_at(r, border_after(r, border, rows)));
}

/*
 * M3: as many as the log takes, and then fewer until it rests. Rows that follow each other are spread evenly over the
 * members, so rows_in() is what the log's layout has.
 */
static uint64_t logged_rows(const struct relayout *r, uint64_t position)
{
    uint64_t border = new_border(r, position);
    uint64_t rows = MIN(rows_ahead(r, border), rows_in(r, r->log));
    while (rows > 0 && !rests_after(r, border, rows))
        rows--;
    return rows;
}

static void step_set(const struct relayout *r, uint64_t position, uint64_t rows, struct relayout_step *step)
{
    uint64_t border = new_border(r, position), other = border_after(r, border, rows);
    uint64_t moved = position_at(r, other);
    step->first = MIN(position, moved);
    step->end = MAX(position, moved);
    step->row = MIN(border, other);
    step->rows = rows;
}

/* A log costs its bytes once more, but each step costs two changes of the description: many short ones are dear. */
bool relayout_step(const struct relayout *r, uint64_t position, struct relayout_step *step)
{
    *step = (struct relayout_step){0};
    if (position == relayout_end(r))
        return false;
    uint64_t rows = free_rows(r, position), logged = 0;
    if (rows < MAX(rows_in(r, r->log) / 4, 1))
        logged = logged_rows(r, position);
    step->logged = rows < MAX(logged / 4, 1);
    if (step->logged)
        rows = logged;
    ASSERT(rows > 0); /* M5 */
    step_set(r, position, rows, step);
    return true;
}

void relayout_step_cut(const struct relayout *r, uint64_t rows, struct relayout_step *step)
{
    ASSERT(!step->logged && rows > 0 && rows <= step->rows);
    uint64_t position = r->backward ? step->end : step->first;
    step_set(r, position, rows_to_border(r, new_border(r, position), rows), step);
}

uint64_t relayout_reach(const struct relayout *r, uint64_t position)
{
    uint64_t rows = MAX(free_rows(r, position), logged_rows(r, position));
    return position_at(r, border_after(r, new_border(r, position), rows));
}

uint64_t relayout_log_needed(const struct relayout *r, uint64_t position)
{
    uint64_t border = new_border(r, position);
    uint64_t most = MIN(rows_ahead(r, border), rows_for(&r->to, relayout_period(r)));
    for (uint64_t rows = 1; rows <= most; rows++)
        if (rests_after(r, border, rows))
            return bytes_of_rows(r, border, rows);
    return 0;
}

/* The place of nothing is written, now: so only where it comes to rest matters. */
uint64_t relayout_skip(const struct relayout *r, uint64_t position, uint64_t limit)
{
    uint64_t border = new_border(r, position), row_data = r->to.layout.row_data;
    uint64_t last = r->backward        ? rows_for(&r->to, limit)
                    : limit >= r->size ? rows_for(&r->to, r->size)
                                       : limit / row_data;
    if (r->backward ? last >= border : last <= border)
        return position;
    uint64_t rows = r->backward ? border - last : last - border;
    while (rows > 0 && !rests_after(r, border, rows))
        rows--;
    return position_at(r, border_after(r, border, rows));
}

/* --- what it reads and writes --- */

struct relayout_range relayout_range(const struct relayout_shape *shape, uint64_t row, uint64_t rows, unsigned slot)
{
    unsigned i = shape->layout_slot[slot];
    if (i == RELAYOUT_NOWHERE)
        return (struct relayout_range){0};
    uint64_t off = place_of_border(shape, i, row);
    return (struct relayout_range){off, place_of_border(shape, i, row + rows) - off};
}

void relayout_step_sources(const struct relayout *r, const struct relayout_step *step, uint64_t *row, uint64_t *rows)
{
    *row = step->first / r->from.layout.row_data;
    *rows = rows_for(&r->from, step->end) - *row;
}

void relayout_log_shape(const struct relayout *r, uint64_t start, struct relayout_shape *shape)
{
    uint64_t extents[RAID_MEMBERS_MAX];
    for (unsigned i = 0; i < RAID_MEMBERS_MAX; i++)
        extents[i] = r->log;
    *shape = r->to;
    shape->start = start;
    const char *wrong = layout_init(&shape->layout, &r->to.layout.spec, extents);
    ASSERT(wrong == NULL); /* asked for by who has a logged step */
}

uint64_t relayout_kept(const struct relayout *r)
{
    uint64_t kept = 0;
    for (unsigned i = 0; r->in_place && i < r->to.layout.spec.members; i++)
        if (r->from.layout_slot[r->to.slot[i]] != RELAYOUT_NOWHERE)
            kept |= 1ull << r->to.slot[i];
    return kept;
}

/* --- where a byte is --- */

enum relayout_home relayout_home(const struct relayout *r, uint64_t position, uint64_t moving, uint64_t off,
                                 uint64_t *len)
{
    uint64_t low = MIN(position, moving), high = MAX(position, moving);
    ASSERT(off < r->size);
    if (off >= low && off < high) {
        *len = high - off;
        return RELAYOUT_MOVING;
    }
    bool in_front = off < low;
    *len = (in_front ? low : r->size) - off;
    return in_front == r->backward ? RELAYOUT_OLD : RELAYOUT_NEW;
}

/* --- back --- */

bool relayout_turn(struct relayout *r, uint64_t position)
{
    uint64_t stuck, logged;
    if (position != r->size && position % r->from.layout.row_data != 0)
        return false;
    struct relayout turned = *r;
    turned.from = r->to;
    turned.to = r->from;
    turned.backward = !r->backward;
    if (!relayout_is_passable(&turned, &stuck, &logged))
        return false;
    *r = turned;
    return true;
}

/* Rows after which all members of a shape are filled alike. */
static uint64_t bytes_to_even(const struct layout *layout)
{
    unsigned n = layout->spec.members;
    return n / common_divisor(n, layout->roles) * layout->row_data;
}

uint64_t relayout_period(const struct relayout *r)
{
    uint64_t a = bytes_to_even(&r->from.layout), b = bytes_to_even(&r->to.layout);
    return a / common_divisor(a, b) * b;
}
