/* The blocks and the writes that they may hold: see model.h. */
#include "tests/sim/model.h"

#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "tests/sim/simdisk.h"

/* --- life --- */

static uint32_t op_add(struct model *m, struct model_op op)
{
    if (m->ops_count == m->ops_room) {
        m->ops_room = m->ops_room == 0 ? 256 : 2 * m->ops_room;
        m->ops = realloc(m->ops, m->ops_room * sizeof *m->ops);
        ASSERT(m->ops != NULL);
    }
    m->ops[m->ops_count] = op;
    return m->ops_count++;
}

static uint64_t sectors(const struct model *m)
{
    return m->size / SIM_SECTOR;
}

struct model *model_create(const struct layout *layout, enum sb_consistency consistency, unsigned first_slot,
                           uint64_t size, bool garbage)
{
    struct model *m = calloc(1, sizeof *m);
    ASSERT(m != NULL);
    m->layout = *layout;
    m->consistency = consistency;
    m->first_slot = first_slot;
    m->size = size;
    m->rows = (size + layout->row_data - 1) / layout->row_data;
    m->cells = calloc(sectors(m), sizeof *m->cells);
    m->touched = calloc(sectors(m), sizeof *m->touched);
    m->hole = calloc(m->rows, 1);
    m->torn = calloc(sectors(m), 1);
    m->mended = calloc(m->rows, layout->spec.chunk / SIM_SECTOR);
    m->unsure = calloc(m->rows, 1);
    ASSERT(m->cells != NULL && m->touched != NULL && m->hole != NULL && m->torn != NULL && m->mended != NULL &&
           m->unsure != NULL);
    (void)op_add(
        m, (struct model_op){
               .len = size, .ok = true, .kept = true, .durable = true, .zero = true, .any = garbage, .settled = true});
    m->clock = 1;
    return m;
}

static void *copy_of(const void *from, size_t len)
{
    void *copy = malloc(len);
    ASSERT(copy != NULL);
    return memcpy(copy, from, len);
}

struct model *model_clone(const struct model *from)
{
    struct model *m = copy_of(from, sizeof *m);
    m->cells = copy_of(from->cells, sectors(m) * sizeof *m->cells);
    m->touched = copy_of(from->touched, sectors(m) * sizeof *m->touched);
    m->ops = copy_of(from->ops, m->ops_room * sizeof *m->ops);
    m->hole = copy_of(from->hole, m->rows);
    m->unsure = copy_of(from->unsure, m->rows);
    m->torn = copy_of(from->torn, sectors(m));
    m->mended = copy_of(from->mended, m->rows * (m->layout.spec.chunk / SIM_SECTOR));
    for (uint32_t i = 0; i < m->touched_count; i++)
        m->cells[m->touched[i]] = copy_of(from->cells[m->touched[i]], sizeof **m->cells);
    return m;
}

void model_destroy(struct model *m)
{
    for (uint32_t i = 0; i < m->touched_count; i++)
        free(m->cells[m->touched[i]]);
    free(m->cells);
    free(m->touched);
    free(m->ops);
    free(m->hole);
    free(m->torn);
    free(m->mended);
    free(m->unsure);
    free(m);
}

/* --- cells --- */

static const struct model_entry created[1] = {{0, UINT64_MAX}};

static unsigned entries_at(const struct model *m, uint64_t sector, const struct model_entry **entries)
{
    const struct model_cell *cell = m->cells[sector];
    *entries = cell == NULL ? created : cell->of;
    return cell == NULL ? 1 : cell->count;
}

static struct model_cell *cell_at(struct model *m, uint64_t sector)
{
    if (m->cells[sector] == NULL) {
        m->cells[sector] = calloc(1, sizeof **m->cells);
        ASSERT(m->cells[sector] != NULL);
        m->cells[sector]->of[m->cells[sector]->count++] = created[0];
        m->touched[m->touched_count++] = (uint32_t)sector;
    }
    return m->cells[sector];
}

static uint64_t oldest_read(const struct model *m)
{
    uint64_t oldest = UINT64_MAX;
    for (unsigned i = 0; i < MODEL_READS; i++)
        if (m->reads[i] != 0)
            oldest = MIN(oldest, m->reads[i]);
    return oldest;
}

/* Was the block overwritten after this entry, by a write that `counts` and was answered before `when`? */
static bool superseded(const struct model *m, const struct model_entry *entries, unsigned count, unsigned index,
                       bool durably, uint64_t when)
{
    uint64_t answer = m->ops[entries[index].op].answer;
    for (unsigned i = 0; i < count; i++) {
        const struct model_op *op = &m->ops[entries[i].op];
        if ((durably ? op->durable : op->ok) && op->submit > answer && op->answer < when)
            return true;
    }
    return false;
}

/* What nobody can see any more. */
static void cell_prune(struct model *m, struct model_cell *cell, uint64_t oldest)
{
    bool gone[MODEL_ENTRIES];
    unsigned kept = 0;
    for (unsigned i = 0; i < cell->count; i++)
        gone[i] = superseded(m, cell->of, cell->count, i, true, oldest);
    for (unsigned i = 0; i < cell->count; i++)
        if (!gone[i])
            cell->of[kept++] = cell->of[i];
    cell->count = kept;
}

/* --- changes --- */

static bool has_room(struct model *m, uint64_t first, uint64_t end)
{
    uint64_t oldest = oldest_read(m);
    for (uint64_t s = first; s < end; s++) {
        struct model_cell *cell = m->cells[s];
        if (cell != NULL && cell->count == MODEL_ENTRIES)
            cell_prune(m, cell, oldest);
        if (cell != NULL && cell->count == MODEL_ENTRIES)
            return false;
    }
    return true;
}

uint32_t model_change(struct model *m, uint64_t off, uint64_t len, bool zero, bool any)
{
    uint64_t first = off / SIM_SECTOR, end = (off + len) / SIM_SECTOR;
    if (!has_room(m, first, end))
        return 0;
    uint32_t number = op_add(m, (struct model_op){.off = off,
                                                  .len = len,
                                                  .submit = ++m->clock,
                                                  .answer = UINT64_MAX,
                                                  .side = m->cached ? MODEL_ABOVE : MODEL_DIRECT,
                                                  .zero = zero,
                                                  .any = any});
    for (uint64_t s = first; s < end; s++) {
        struct model_cell *cell = cell_at(m, s);
        cell->of[cell->count++] = (struct model_entry){number, UINT64_MAX};
    }
    return number;
}

void model_changed(struct model *m, uint32_t number, bool ok, enum model_promise promise)
{
    struct model_op *op = &m->ops[number];
    op->answer = ++m->clock;
    op->ok = ok;
    op->kept = ok && promise >= MODEL_KEPT;
    op->durable = op->settled = ok && promise == MODEL_DURABLE;
    if (ok && !op->zero && !op->any && op->side == MODEL_DIRECT)
        model_rows_mended(m, op->off, op->len);
}

uint64_t model_flush(struct model *m)
{
    return ++m->clock;
}

void model_flushed(struct model *m, uint64_t submitted)
{
    for (uint32_t i = 0; i < m->ops_count; i++) {
        struct model_op *op = &m->ops[i];
        if (op->answer >= submitted || op->side == MODEL_BELOW)
            continue;
        op->durable = op->kept = op->ok;
        op->settled = true;
    }
    m->clock++;
}

/* --- below a cache --- */

uint32_t model_below_change(struct model *m, uint64_t off, uint64_t len)
{
    return op_add(
        m, (struct model_op){.off = off, .len = len, .submit = ++m->clock, .answer = UINT64_MAX, .side = MODEL_BELOW});
}

void model_below_changed(struct model *m, uint32_t number, bool ok, bool durable, bool mends)
{
    struct model_op *op = &m->ops[number];
    op->answer = ++m->clock;
    op->settled = ok && durable;
    if (ok && mends)
        model_rows_mended(m, op->off, op->len);
}

void model_below_flushed(struct model *m, uint64_t submitted)
{
    for (uint32_t i = 0; i < m->ops_count; i++)
        if (m->ops[i].side == MODEL_BELOW && m->ops[i].answer < submitted)
            m->ops[i].settled = true;
}

void model_cache_begins(struct model *m, bool cached)
{
    m->cached = cached;
    memset(m->unsure, 0, m->rows);
}

void model_cache_unsure(struct model *m, uint64_t off, uint64_t len)
{
    for (uint64_t row = off / m->layout.row_data; row <= (off + len - 1) / m->layout.row_data; row++)
        m->unsure[row] = 1;
}

/* --- bytes --- */

void model_bytes(uint32_t op, uint64_t off, uint8_t *out)
{
    uint64_t state = (uint64_t)op << 40 ^ off, base = test_random(&state), step = test_random(&state) | 1;
    for (unsigned i = 0; i < SIM_SECTOR; i += 8) {
        uint64_t word = base ^ base >> 29;
        memcpy(out + i, &word, 8);
        base += step;
    }
}

static bool is_zero(const uint8_t *bytes)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, SIM_SECTOR - 1) == 0;
}

static bool holds(const struct model *m, uint32_t number, uint64_t off, const uint8_t *bytes)
{
    uint8_t want[SIM_SECTOR];
    if (m->ops[number].any)
        return true;
    if (m->ops[number].zero)
        return is_zero(bytes);
    model_bytes(number, off, want);
    return memcmp(want, bytes, SIM_SECTOR) == 0;
}

/* --- reads --- */

unsigned model_read_begin(struct model *m)
{
    unsigned i = 0;
    while (m->reads[i] != 0)
        ASSERT(++i < MODEL_READS);
    m->reads[i] = ++m->clock;
    return i;
}

void model_read_end(struct model *m, unsigned number)
{
    m->reads[number] = 0;
}

static void say_wrong(const struct model *m, uint64_t sector, const uint8_t *bytes, uint64_t began, char *why,
                      uint64_t why_len)
{
    const struct model_entry *entries;
    unsigned count = entries_at(m, sector, &entries);
    char text[256] = "";
    uint32_t found = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct model_op *op = &m->ops[entries[i].op];
        size_t at = strlen(text);
        bool old = superseded(m, entries, count, i, false, began);
        text_format(text + at, sizeof text - at, " %u%s%s", entries[i].op,
                    op->durable ? "d"
                    : op->ok    ? "a"
                                : "?",
                    old                        ? "-"
                    : entries[i].aside < began ? "x"
                                               : "");
    }
    for (uint32_t i = m->ops_count; i-- > 1 && found == 0;)
        if (!m->ops[i].any && !m->ops[i].zero && holds(m, i, sector * SIM_SECTOR, bytes))
            found = i;
    text_format(why, why_len,
                "byte %llu (row %llu) holds %s%u, and may hold%s (d durable, a answered, ? perhaps, - overwritten, x "
                "put aside)",
                (unsigned long long)sector * SIM_SECTOR, (unsigned long long)(sector * SIM_SECTOR / m->layout.row_data),
                found != 0       ? "write "
                : is_zero(bytes) ? "zeroes "
                                 : "garbage ",
                found, text);
}

static bool sector_is_right(const struct model *m, uint64_t sector, const uint8_t *bytes, uint64_t began)
{
    const struct model_entry *entries;
    unsigned count = entries_at(m, sector, &entries);
    for (unsigned i = 0; i < count; i++)
        if (entries[i].aside > began && holds(m, entries[i].op, sector * SIM_SECTOR, bytes) &&
            !superseded(m, entries, count, i, false, began))
            return true;
    return false;
}

bool model_read(struct model *m, unsigned number, uint64_t off, uint64_t len, const uint8_t *bytes, char *why,
                uint64_t why_len)
{
    for (uint64_t at = 0; at < len; at += SIM_SECTOR) {
        uint64_t sector = (off + at) / SIM_SECTOR;
        if (sector_is_right(m, sector, bytes + at, m->reads[number]))
            continue;
        say_wrong(m, sector, bytes + at, m->reads[number], why, why_len);
        return false;
    }
    return true;
}

static bool was_under_way(const struct model *m, const struct model_cell *cell, uint64_t began)
{
    for (unsigned i = 0; i < cell->count; i++)
        if (m->ops[cell->of[i].op].answer > began)
            return true;
    return false;
}

void model_read_settles(struct model *m, unsigned number, uint64_t off, uint64_t len, const uint8_t *bytes)
{
    for (uint64_t at = 0; at < len; at += SIM_SECTOR) {
        struct model_cell *cell = m->cells[(off + at) / SIM_SECTOR];
        if (cell == NULL || was_under_way(m, cell, m->reads[number]))
            continue;
        for (unsigned i = 0; i < cell->count; i++)
            if (cell->of[i].aside == UINT64_MAX && !holds(m, cell->of[i].op, off + at, bytes + at))
                cell->of[i].aside = m->clock;
    }
}

/* --- crashes --- */

static void ops_crash(struct model *m, bool power)
{
    m->clock++;
    for (uint32_t i = 0; i < m->ops_count; i++) {
        struct model_op *op = &m->ops[i];
        if (op->answer == UINT64_MAX)
            op->answer = m->clock;
        op->ok = op->ok && (power ? op->durable : op->kept);
    }
    m->clock++;
}

/* What a read found may be lost, and what it put aside so come back. */
static void aside_no_more(struct model *m)
{
    for (uint32_t i = 0; i < m->touched_count; i++) {
        struct model_cell *cell = m->cells[m->touched[i]];
        cell_prune(m, cell, UINT64_MAX);
        for (unsigned k = 0; k < cell->count; k++)
            cell->of[k].aside = UINT64_MAX;
    }
}

void model_crash(struct model *m, bool power)
{
    memset(m->reads, 0, sizeof m->reads);
    model_hole_crash(m, power);
    ops_crash(m, power);
    if (power || m->cached)
        aside_no_more(m);
}

void model_cache_lost(struct model *m, bool kept)
{
    ops_crash(m, kept);
    aside_no_more(m);
}

void model_forget(struct model *m, uint64_t off, uint64_t len)
{
    m->clock++;
    uint32_t any = op_add(m, (struct model_op){.off = off,
                                               .len = len,
                                               .submit = m->clock,
                                               .answer = m->clock,
                                               .ok = true,
                                               .kept = true,
                                               .durable = true,
                                               .any = true,
                                               .settled = true});
    for (uint64_t s = off / SIM_SECTOR; s < (off + len) / SIM_SECTOR; s++) {
        struct model_cell *cell = cell_at(m, s);
        unsigned kept = 0;
        for (unsigned i = 0; i < cell->count; i++)
            if (m->ops[cell->of[i].op].answer == UINT64_MAX)
                cell->of[kept++] = cell->of[i];
        cell->count = MIN(kept, MODEL_ENTRIES - 1u);
        cell->of[cell->count++] = (struct model_entry){any, UINT64_MAX};
    }
    m->clock++;
}
