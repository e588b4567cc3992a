#include "tests/unit/raid/relayout_model.h"

#include <stdio.h>
#include <string.h>

#include "core/check.h"
#include "tests/unit/lib/testloop.h"

static char wrong[200];

static bool chance(struct model *m, unsigned in_thousand)
{
    return test_random(&m->seed) % 1000 < in_thousand;
}

/* --- disks --- */

static struct cell *cell_at(struct cell *cells, uint64_t off)
{
    ASSERT(off % MODEL_BLOCK == 0 && off / MODEL_BLOCK < MODEL_DEPTH);
    return &cells[off / MODEL_BLOCK];
}

static const struct symbol *see(const struct cell *cell)
{
    return cell->dirty ? &cell->cache : &cell->medium;
}

/* Something is about to change on a disk. False: not any more. */
static bool event(struct model *m, const struct model_options *options)
{
    if (m->stopped)
        return false;
    if (options->watch != NULL)
        options->watch(m, options->context);
    m->events++;
    if (m->events == m->stop_at)
        m->stopped = true;
    return !m->stopped;
}

static void put(struct model *m, const struct model_options *options, struct cell *cell, const struct symbol *symbol)
{
    if (!event(m, options))
        return;
    cell->cache = *symbol;
    cell->dirty = true;
}

static void put_durably(struct cell *cell, const struct symbol *symbol)
{
    cell->medium = *symbol;
    cell->dirty = false;
}

static void flush_cells(struct cell *cells, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (cells[i].dirty)
            put_durably(&cells[i], &cells[i].cache);
}

static void flush(struct model *m, const struct model_options *options)
{
    for (unsigned slot = 0; slot < MODEL_DISKS; slot++)
        if (event(m, options)) {
            flush_cells(m->disk[slot], m->depth);
            flush_cells(m->log[slot], m->log_depth);
        }
}

static void lose_power(struct model *m, struct cell *cells, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (cells[i].dirty && chance(m, 500))
            cells[i].medium = cells[i].cache;
        cells[i].dirty = false;
    }
}

/* --- rows of a shape --- */

struct row {
    unsigned data, roles;
    bool parity;
    struct cell *cell[RAID_MEMBERS_MAX]; /* NULL: its disk is lost */
    unsigned slot[RAID_MEMBERS_MAX];
};

typedef struct cell model_cells[MODEL_DISKS][MODEL_DEPTH];

/* One column, a block wide, on the disks or in the log. */
static struct row row_on(const struct model *m, const model_cells *cells, const struct relayout_shape *shape,
                         uint64_t row, uint64_t column)
{
    const struct layout *layout = &shape->layout;
    struct row found = {.data = layout->data, .roles = layout->roles, .parity = layout->parity};
    for (unsigned role = 0; role < layout->roles; role++) {
        struct layout_place place;
        layout_place(layout, row, role, &place);
        unsigned slot = shape->slot[place.slot];
        found.slot[role] = slot;
        if (!(m->lost >> slot & 1))
            found.cell[role] = cell_at((struct cell *)(uintptr_t)(*cells)[slot], shape->start + place.off + column);
    }
    return found;
}

static struct row row_at(const struct model *m, const struct relayout_shape *shape, uint64_t row, uint64_t column)
{
    return row_on(m, &m->disk, shape, row, column);
}

static struct row log_row_at(const struct model *m, uint64_t row, uint64_t column)
{
    struct relayout_shape log;
    relayout_log_shape(&m->r, 0, &log);
    return row_on(m, &m->log, &log, row - m->step.row, column);
}

/* What a role of the row is to hold, by its data. */
static struct symbol symbol_of(const struct row *row, unsigned role, const uint16_t *tags)
{
    struct symbol symbol = {0};
    if (row->parity && role >= row->data) {
        symbol.parity = true;
        memcpy(symbol.tag, tags, row->data * sizeof *tags);
    } else {
        symbol.tag[0] = tags[row->parity ? role : 0];
    }
    return symbol;
}

/* Not as bytes: what lies between the members is nobody's. */
static bool is_same(const struct symbol *a, const struct symbol *b)
{
    return a->parity == b->parity && memcmp(a->tag, b->tag, sizeof a->tag) == 0;
}

/* The row's data, from what is left of it. False: it is not whole, or too little is left. */
static bool row_tags(const struct row *row, uint16_t *tags)
{
    unsigned there = 0;
    const struct symbol *any = NULL;
    for (unsigned role = 0; role < row->roles; role++) {
        if (row->cell[role] == NULL)
            continue;
        const struct symbol *symbol = see(row->cell[role]);
        there++;
        if (!row->parity)
            tags[0] = symbol->tag[0];
        else if (role < row->data)
            tags[role] = symbol->tag[0];
        else
            any = symbol;
    }
    if (there < row->data)
        return false;
    for (unsigned role = 0; row->parity && any != NULL && role < row->data; role++)
        if (row->cell[role] == NULL)
            tags[role] = any->tag[role];
    for (unsigned role = 0; role < row->roles; role++) {
        struct symbol right = symbol_of(row, role, tags);
        if (row->cell[role] != NULL && !is_same(&right, see(row->cell[role])))
            return false;
    }
    return true;
}

static uint64_t blocks_of(const struct relayout_shape *shape)
{
    return shape->layout.row_data / MODEL_BLOCK;
}

static uint64_t rows_of(const struct relayout_shape *shape, uint64_t size)
{
    return (size + shape->layout.row_data - 1) / shape->layout.row_data;
}

struct spot {
    uint64_t row, column;
    unsigned role;
};

static struct spot spot_of(const struct relayout_shape *shape, uint64_t block)
{
    const struct layout *layout = &shape->layout;
    uint64_t within = block % blocks_of(shape) * MODEL_BLOCK;
    return (struct spot){block / blocks_of(shape), within % layout->spec.chunk,
                         (unsigned)(within / layout->spec.chunk)};
}

static bool read_block(const struct model *m, bool new, uint64_t block, uint16_t *tag)
{
    const struct relayout_shape *shape = new ? &m->r.to : &m->r.from;
    struct spot spot = spot_of(shape, block);
    uint16_t tags[MODEL_DATA_MAX] = {0};
    *tag = 0;
    if (!(new ? m->new_written : m->old_written)[spot.row])
        return true;
    struct row row = row_at(m, shape, spot.row, spot.column);
    if (!row_tags(&row, tags))
        return false;
    *tag = tags[spot.role];
    return true;
}

static bool is_moving(const struct model *m)
{
    return m->position != m->moving;
}

static enum relayout_home home_of(const struct model *m, uint64_t block)
{
    uint64_t len;
    enum relayout_home home = relayout_home(&m->r, m->position, m->moving, block * MODEL_BLOCK, &len);
    ASSERT(len >= MODEL_BLOCK && len % MODEL_BLOCK == 0 && block * MODEL_BLOCK + len <= m->r.size);
    return home;
}

/* --- verifying --- */

static const char *verify_bytes(const struct model *m)
{
    for (uint64_t block = 0; block < m->r.size / MODEL_BLOCK; block++) {
        enum relayout_home home = home_of(m, block);
        uint16_t tag;
        if (home == RELAYOUT_MOVING && m->replay)
            continue;
        if (!read_block(m, home == RELAYOUT_NEW, block, &tag) || tag != m->expected[block]) {
            snprintf(wrong, sizeof wrong, "block %llu reads as %u and not as %u, from the %s side, position %llu",
                     (unsigned long long)block, tag, m->expected[block], home == RELAYOUT_NEW ? "new" : "old",
                     (unsigned long long)m->position / MODEL_BLOCK);
            return wrong;
        }
    }
    return NULL;
}

/* Rows that hold a byte whose home they are are whole, all of them. */
static const char *verify_rows(const struct model *m, bool new)
{
    const struct relayout_shape *shape = new ? &m->r.to : &m->r.from;
    for (uint64_t row = 0; row < rows_of(shape, m->r.size); row++) {
        bool counts = false, waits = false;
        for (uint64_t i = 0; i < blocks_of(shape); i++) {
            uint64_t block = row * blocks_of(shape) + i;
            if (block >= m->r.size / MODEL_BLOCK)
                break;
            enum relayout_home home = home_of(m, block);
            waits |= home == RELAYOUT_MOVING && m->replay;
            counts |= home == (new ? RELAYOUT_NEW : RELAYOUT_OLD) || (!new &&home == RELAYOUT_MOVING && !m->replay);
        }
        for (uint64_t column = 0; counts && column < shape->layout.spec.chunk; column += MODEL_BLOCK) {
            uint16_t tags[MODEL_DATA_MAX];
            struct row found = row_at(m, shape, row, column);
            if ((new ? m->new_written : m->old_written)[row] && !row_tags(&found, tags)) {
                snprintf(wrong, sizeof wrong, "row %llu of the %s side is not whole%s, position %llu",
                         (unsigned long long)row, new ? "new" : "old", waits ? " (partly moving)" : "",
                         (unsigned long long)m->position / MODEL_BLOCK);
                return wrong;
            }
        }
    }
    return NULL;
}

const char *model_verify(const struct model *m)
{
    const char *bad = verify_bytes(m);
    if (bad == NULL)
        bad = verify_rows(m, false);
    return bad == NULL ? verify_rows(m, true) : bad;
}

/* --- initiators --- */

/* A write to one side: the tags of the row's column, read before anything of either side is written. */
struct side_write {
    bool new;
    uint64_t block;
    uint16_t tags[MODEL_DATA_MAX];
};

static struct side_write side_read(const struct model *m, bool new, uint64_t block)
{
    const struct relayout_shape *shape = new ? &m->r.to : &m->r.from;
    struct side_write w = {.new = new, .block = block};
    struct spot spot = spot_of(shape, block);
    struct row row = row_at(m, shape, spot.row, spot.column);
    if ((new ? m->new_written : m->old_written)[spot.row])
        ASSERT(row_tags(&row, w.tags));
    return w;
}

/* All of the row is durable at once. One that was never written is filled. */
static void side_write(struct model *m, struct side_write *w, uint16_t tag)
{
    const struct relayout_shape *shape = w->new ? &m->r.to : &m->r.from;
    struct spot spot = spot_of(shape, w->block);
    bool *written = &(w->new ? m->new_written : m->old_written)[spot.row];
    w->tags[spot.role] = tag;
    for (uint64_t column = 0; column < shape->layout.spec.chunk; column += MODEL_BLOCK) {
        static const uint16_t zeroes[MODEL_DATA_MAX];
        if (*written && column != spot.column)
            continue;
        struct row row = row_at(m, shape, spot.row, column);
        for (unsigned role = 0; role < row.roles; role++) {
            struct symbol symbol = symbol_of(&row, role, column == spot.column ? w->tags : zeroes);
            if (row.cell[role] != NULL)
                put_durably(row.cell[role], &symbol);
        }
    }
    *written = true;
}

/* Has the free step come past this block? */
static bool was_copied(const struct model *m, uint64_t block)
{
    uint64_t row = block / blocks_of(&m->r.to);
    if (m->r.backward)
        return row >= m->step.row + m->step.rows - m->step_done;
    return row < m->step.row + m->step_done;
}

static void initiators_write(struct model *m, const struct model_options *options)
{
    while (!m->stopped && chance(m, options->writes)) {
        uint64_t block = test_random(&m->seed) % (m->r.size / MODEL_BLOCK);
        enum relayout_home home = home_of(m, block);
        uint16_t tag = m->next_tag++;
        if (home == RELAYOUT_MOVING && m->step.logged)
            continue;
        bool to_old = home != RELAYOUT_NEW,
             to_new = home == RELAYOUT_NEW || (home == RELAYOUT_MOVING && was_copied(m, block));
        struct side_write old = to_old ? side_read(m, false, block) : (struct side_write){0};
        struct side_write new = to_new ? side_read(m, true, block) : (struct side_write){0};
        if (to_old)
            side_write(m, &old, tag);
        if (to_new)
            side_write(m, &new, tag);
        m->expected[block] = tag;
    }
}

static void disks_die(struct model *m, const struct model_options *options)
{
    if (m->stopped || !chance(m, options->losses))
        return;
    uint64_t lost = m->lost | 1ull << test_random(&m->seed) % MODEL_DISKS;
    if (relayout_shape_survives(&m->r.from, lost) && relayout_shape_survives(&m->r.to, lost))
        m->lost = lost;
}

static void meanwhile(struct model *m, const struct model_options *options)
{
    disks_die(m, options);
    initiators_write(m, options);
}

/* --- moving --- */

static bool new_row_is_written(const struct model *m, uint64_t row)
{
    uint64_t each = blocks_of(&m->r.to);
    for (uint64_t block = row * each; block < MIN((row + 1) * each, m->r.size / MODEL_BLOCK); block++)
        if (m->old_written[block / blocks_of(&m->r.from)])
            return true;
    return false;
}

/* The row's data of one column, from the old side; zeroes behind the end. */
static void new_row_tags(const struct model *m, uint64_t row, uint64_t column, uint16_t *tags)
{
    const struct layout *to = &m->r.to.layout;
    for (unsigned role = 0; role < to->data; role++) {
        uint64_t block = (row * to->row_data + (uint64_t)role * to->spec.chunk + column) / MODEL_BLOCK;
        tags[role] = 0;
        if (block < m->r.size / MODEL_BLOCK)
            ASSERT(read_block(m, false, block, &tags[role]));
    }
}

/* Is it there already (M4)? Not so what was never written, and what lies behind the volume's end. */
static bool is_kept(const struct model *m, uint64_t row, uint64_t column, unsigned role, unsigned slot)
{
    const struct layout *to = &m->r.to.layout;
    uint64_t within = to->parity ? (uint64_t)role * to->spec.chunk : 0;
    uint64_t block = (row * to->row_data + within + column) / MODEL_BLOCK;
    return (relayout_kept(&m->r) >> slot & 1) && block < m->r.size / MODEL_BLOCK &&
           m->old_written[block / blocks_of(&m->r.from)];
}

static void put_row(struct model *m, const struct model_options *options, const struct row *row, const uint16_t *tags,
                    uint64_t kept)
{
    for (unsigned role = 0; role < row->roles; role++) {
        struct symbol symbol = symbol_of(row, role, tags);
        if (row->cell[role] != NULL && !(kept >> role & 1))
            put(m, options, row->cell[role], &symbol);
    }
}

static void write_new_row(struct model *m, const struct model_options *options, uint64_t row, bool to_log)
{
    for (uint64_t column = 0; column < m->r.to.layout.spec.chunk; column += MODEL_BLOCK) {
        uint16_t tags[MODEL_DATA_MAX];
        new_row_tags(m, row, column, tags);
        struct row found = to_log ? log_row_at(m, row, column) : row_at(m, &m->r.to, row, column);
        uint64_t kept = 0;
        for (unsigned role = 0; role < found.roles; role++)
            if (is_kept(m, row, column, role, found.slot[role]))
                kept |= 1ull << role;
        put_row(m, options, &found, tags, kept);
    }
}

static uint64_t target(const struct model *m)
{
    return m->r.backward ? m->step.first : m->step.end;
}

static void describe(struct model *m, const struct model_options *options, uint64_t position, bool replay)
{
    if (!event(m, options))
        return;
    m->position = position;
    m->replay = replay;
    m->moving = replay ? target(m) : position;
}

static void free_step(struct model *m, const struct model_options *options)
{
    m->moving = target(m);
    for (m->step_done = 0; m->step_done < m->step.rows && !m->stopped; m->step_done++) {
        uint64_t row = m->r.backward ? m->step.row + m->step.rows - 1 - m->step_done : m->step.row + m->step_done;
        meanwhile(m, options);
        m->new_written[row] = new_row_is_written(m, row);
        if (m->new_written[row])
            write_new_row(m, options, row, false);
    }
    meanwhile(m, options);
    flush(m, options);
    describe(m, options, target(m), false);
}

/* From the log to its place, recovered from what is left of the log if need be. */
static void copy_logged_row(struct model *m, const struct model_options *options, uint64_t row)
{
    for (uint64_t column = 0; column < m->r.to.layout.spec.chunk; column += MODEL_BLOCK) {
        uint16_t tags[MODEL_DATA_MAX];
        struct row logged = log_row_at(m, row, column), found = row_at(m, &m->r.to, row, column);
        ASSERT(row_tags(&logged, tags));
        put_row(m, options, &found, tags, 0);
    }
}

static void copy_log(struct model *m, const struct model_options *options)
{
    for (uint64_t row = m->step.row; row < m->step.row + m->step.rows && !m->stopped; row++) {
        if (m->new_written[row])
            copy_logged_row(m, options, row);
        meanwhile(m, options);
    }
    flush(m, options);
    describe(m, options, target(m), false);
}

static void logged_step(struct model *m, const struct model_options *options)
{
    m->moving = target(m);
    for (uint64_t i = 0; i < m->step.rows && !m->stopped; i++) {
        uint64_t row = m->step.row + i;
        m->new_written[row] = new_row_is_written(m, row);
        if (m->new_written[row])
            write_new_row(m, options, row, true);
        meanwhile(m, options);
    }
    flush(m, options);
    describe(m, options, m->position, true);
    copy_log(m, options);
}

/* Over what was never written. */
static void skip(struct model *m, const struct model_options *options)
{
    uint64_t border = m->position, each = m->r.to.layout.row_data;
    while (border != relayout_end(&m->r)) {
        uint64_t row = m->r.backward ? (border - 1) / each : border / each;
        if (new_row_is_written(m, row))
            break;
        border = m->r.backward ? row * each : MIN((row + 1) * each, m->r.size);
    }
    uint64_t rest = relayout_skip(&m->r, m->position, border);
    if (rest == m->position)
        return;
    for (uint64_t row = MIN(rest, m->position) / each; row < rows_of(&m->r.to, MAX(rest, m->position)); row++)
        m->new_written[row] = false;
    describe(m, options, rest, false);
}

static void turn(struct model *m)
{
    if (!relayout_turn(&m->r, m->position))
        return;
    bool written[MODEL_VOLUME];
    memcpy(written, m->old_written, sizeof written);
    memcpy(m->old_written, m->new_written, sizeof written);
    memcpy(m->new_written, written, sizeof written);
    m->turned = true;
}

void model_run(struct model *m, const struct model_options *options)
{
    while (!m->stopped && m->position != relayout_end(&m->r)) {
        ASSERT(!is_moving(m));
        meanwhile(m, options);
        skip(m, options);
        if (!m->stopped && !m->turned && chance(m, options->turns))
            turn(m);
        if (m->stopped || !relayout_step(&m->r, m->position, &m->step))
            break;
        if (!m->step.logged && chance(m, 300))
            relayout_step_cut(&m->r, 1 + test_random(&m->seed) % m->step.rows, &m->step);
        if (m->step.logged)
            logged_step(m, options);
        else
            free_step(m, options);
    }
}

void model_crash(struct model *m)
{
    for (unsigned slot = 0; slot < MODEL_DISKS; slot++) {
        lose_power(m, m->disk[slot], m->depth);
        lose_power(m, m->log[slot], m->log_depth);
    }
    m->stopped = false;
    m->stop_at = 0;
    m->step = (struct relayout_step){0};
    if (!m->replay)
        m->moving = m->position;
}

void model_recover(struct model *m, const struct model_options *options)
{
    if (m->replay) {
        uint64_t low = MIN(m->position, m->moving), high = MAX(m->position, m->moving);
        uint64_t row = low / m->r.to.layout.row_data;
        m->step = (struct relayout_step){true, low, high, row, rows_of(&m->r.to, high) - row};
        copy_log(m, options);
    }
    model_run(m, options);
}

/* --- beginning --- */

static void fill_with_garbage(struct model *m)
{
    for (unsigned slot = 0; slot < MODEL_DISKS; slot++)
        for (unsigned i = 0; i < MODEL_DEPTH; i++)
            m->disk[slot][i].medium.tag[0] = m->log[slot][i].medium.tag[0] = 0xdead;
}

static unsigned depth_of(const struct relayout_shape *shape, uint64_t size)
{
    uint64_t end = 0;
    for (unsigned slot = 0; slot < MODEL_DISKS; slot++) {
        struct relayout_range range = relayout_range(shape, 0, rows_of(shape, size), slot);
        end = MAX(end, range.off + range.len);
    }
    return (unsigned)(end / MODEL_BLOCK);
}

void model_init(struct model *m, const struct relayout *r, uint64_t seed, bool sparse)
{
    memset(m, 0, sizeof *m);
    m->r = *r;
    m->seed = seed;
    m->next_tag = 1;
    m->position = m->moving = relayout_begin(r);
    m->depth = MAX(depth_of(&r->from, r->size), depth_of(&r->to, r->size));
    m->log_depth = (unsigned)MIN(r->log / MODEL_BLOCK, MODEL_DEPTH);
    ASSERT(m->depth <= MODEL_DEPTH && r->size / MODEL_BLOCK <= MODEL_VOLUME);
    fill_with_garbage(m);
    for (uint64_t block = 0; block < r->size / MODEL_BLOCK; block++)
        if (!sparse || block / 16 % 2 == seed % 2) {
            m->expected[block] = m->next_tag++;
            struct side_write w = side_read(m, false, block);
            side_write(m, &w, m->expected[block]);
        }
}

void model_copy(struct model *to, const struct model *from)
{
    memcpy(to, from, offsetof(struct model, disk));
    for (unsigned slot = 0; slot < MODEL_DISKS; slot++) {
        memcpy(to->disk[slot], from->disk[slot], from->depth * sizeof(struct cell));
        memcpy(to->log[slot], from->log[slot], from->log_depth * sizeof(struct cell));
    }
}
