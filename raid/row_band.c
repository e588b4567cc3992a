/*
 * Windows and bands of a row, and where their bytes are.
 *
 * A request within a row is one run of the row's data: a piece of chunk d0, all of the chunks between, a piece of chunk
 * d1. By columns that is at most three bands, in each of which the same chunks are touched from end to end:
 *
 *        column   0      b          a       chunk
 *        d0                         |########        bands: [0,b) of d1.. , [b,a) of the middle ones,
 *        middle   |##########################               [a,chunk) of d0..
 *        d1       |######|
 *
 * The first write to a row fills it: the bands then have all the columns, those where nothing is touched as well, and
 * every data chunk that the request does not bring is zeroes.
 *
 * Bytes that the request brings stay in its pages; everything else a row needs is in scratch pages, taken all at once.
 */
#include "raid/row.h"

#include <string.h>

static uint64_t chunk_of(const struct row_op *op)
{
    return op->volume->layout.spec.chunk;
}

static uint64_t all_roles(const struct row_op *op)
{
    return roles_below(op->volume->layout.roles);
}

static bool touches_data(const struct row_op *op)
{
    return op->kind == ROW_READ || op->kind == ROW_WRITE;
}

uint64_t row_volume_offset(const struct row_op *op, uint64_t role, uint64_t column)
{
    return op->row * op->volume->layout.row_data + role * chunk_of(op) + column;
}

uint64_t row_readable(const struct row_op *op)
{
    uint64_t roles = 0;
    FOR_EACH_ROLE(role, all_roles(op))
    roles |= (uint64_t)member_readable(op->places[role].member) << role;
    return roles;
}

uint64_t row_writable(const struct row_op *op)
{
    uint64_t roles = 0;
    FOR_EACH_ROLE(role, all_roles(op))
    roles |= (uint64_t)member_writable(op->places[role].member) << role;
    return roles;
}

uint64_t row_band_readable(const struct row_op *op, const struct row_band *band)
{
    return row_readable(op) & ~op->lost & ~op->late & ~band->media;
}

uint64_t row_band_new(const struct row_op *op, const struct row_band *band)
{
    return op->fill ? roles_below(op->volume->layout.data) : band->target;
}

/* --- windows --- */

/* How much of each chunk is handled at once: what needs no scratch, all; a row written in full needs little. */
static uint64_t window_for(const struct row_op *op)
{
    const struct volume *v = op->volume;
    bool copies = !v->layout.parity;
    if (op->kind == ROW_WRITE && op->fill)
        return MIN(copies ? chunk_of(op) : v->window_full, (uint64_t)(ZERO_PAGES - 1) * PAGE_BYTES);
    if (op->kind == ROW_ZERO && op->job != NULL)
        return MIN(chunk_of(op), (uint64_t)(ZERO_PAGES - 1) * PAGE_BYTES);
    if (op->kind == ROW_ZERO || (op->kind == ROW_WRITE && copies))
        return chunk_of(op);
    return op->kind == ROW_WRITE && op->len == v->layout.row_data ? v->window_full : v->window;
}

void row_columns_begin(struct row_op *op)
{
    uint64_t chunk = chunk_of(op), last = op->first + op->len - 1;
    bool whole = op->job != NULL || op->fill || op->first / chunk != last / chunk;
    op->column = whole ? 0 : op->first % chunk;
    op->end = whole ? chunk : last % chunk + 1;
    op->window = window_for(op);
    op->width = op->window;
}

static void band_add(struct row_op *op, uint64_t column, uint64_t end, uint64_t target)
{
    column = MAX(column, op->column);
    end = MIN(end, op->column + op->width);
    if (column >= end || (touches_data(op) && target == 0 && !op->fill))
        return;
    ASSERT(op->bands_count < ROW_BANDS);
    struct row_band *band = &op->bands[op->bands_count++];
    band->column = column;
    band->len = end - column;
    band->target = target;
    band->media = op->hint_column >= column && op->hint_column < end ? op->hint_roles : 0;
    band->bad = row_bad_roles(op, column, end - column);
    band->media |= band->bad;
    band->wrote = band->refused = band->corrected = 0;
}

/* Data roles d0 .. d1 of a request, less d0 in columns before a and d1 in columns from b on. */
static void bands_of_request(struct row_op *op)
{
    uint64_t chunk = chunk_of(op), last = op->first + op->len - 1;
    unsigned d0 = (unsigned)(op->first / chunk), d1 = (unsigned)(last / chunk);
    uint64_t a = op->first % chunk, b = last % chunk + 1, roles = roles_below(d1 + 1) & ~roles_below(d0);
    if (d0 == d1) {
        band_add(op, 0, a, 0);
        band_add(op, a, b, roles);
        band_add(op, b, chunk, 0);
        return;
    }
    uint64_t r0 = UINT64_C(1) << d0, r1 = UINT64_C(1) << d1;
    uint64_t middle = a < b ? roles : roles & ~r0 & ~r1;
    band_add(op, 0, MIN(a, b), roles & ~r0);
    band_add(op, MIN(a, b), MAX(a, b), middle);
    band_add(op, MAX(a, b), chunk, roles & ~r1);
}

void row_window_open(struct row_op *op)
{
    /* End at a page's end, so that no page is in two windows. */
    if (op->width > PAGE_BYTES)
        op->width -= op->column % PAGE_BYTES;
    op->width = MIN(op->width, op->end - op->column);
    op->bands_count = 0;
    if (touches_data(op))
        bands_of_request(op);
    else
        band_add(op, op->column, op->column + op->width, roles_below(op->volume->layout.data));
}

/* --- plans --- */

/* Of several copies to read, the one that is nearest, if its bytes can be trusted to be like the others'. */
static uint64_t prefer_copy(const struct row_op *op, const struct row_band *band, uint64_t readable)
{
    unsigned role;
    if (mirror_choose(op->volume, op->row, band->column, band->len, &role) && (readable >> role & 1))
        return UINT64_C(1) << role;
    return readable;
}

/*
 * For a rebuild: the same members in every row, as far as there is a choice, so that what is read of each of them lies
 * together. Not where redundancy may be wrong: there a lost chunk is what it is computed from, and writes, too, compute
 * it from the lowest roles.
 */
static uint64_t prefer_members(const struct row_op *op, uint64_t readable)
{
    uint64_t chosen = 0;
    for (unsigned left = op->volume->layout.data; left > 0 && (readable & ~chosen) != 0; left--) {
        uint64_t best = roles_lowest(readable & ~chosen);
        FOR_EACH_ROLE(role, readable & ~chosen)
        if (op->places[role].member->slot < op->places[best].member->slot)
            best = role;
        chosen |= UINT64_C(1) << best;
    }
    return chosen;
}

static struct row_plan plan_write(const struct row_op *op, const struct row_query *q)
{
    struct row_plan plan = row_plan_write(q);
    if (plan.kind == PLAN_IMPOSSIBLE && op->spoil && (q->target & ~q->writable) == 0)
        plan = (struct row_plan){.kind = PLAN_PLAIN, .writes = q->target};
    return plan;
}

/*
 * The chunk as the member has it; what it cannot read, as the others say it is. In a row in doubt they may say something
 * else: there no more is taken from them than must be.
 */
static struct row_plan plan_copy(const struct row_op *op, const struct row_band *band, struct row_query *q)
{
    const struct member *to = op->job->copy_to;
    uint64_t role = 0;
    FOR_EACH_ROLE(r, all_roles(op))
    role |= (uint64_t)(op->places[r].member->slot == to->slot) << r;
    if (role == 0 || !member_writable(to))
        return (struct row_plan){.kind = PLAN_PLAIN};
    if (role & q->readable)
        return (struct row_plan){.kind = PLAN_DIRECT, .reads = role, .writes = role};
    if (!q->synced && (band->media & role) && band->len > op->volume->dev.info.logical_block)
        return (struct row_plan){.kind = PLAN_IMPOSSIBLE};
    q->target = role;
    q->rewrite = 0;
    return row_plan_rebuild(q);
}

static struct row_plan plan_band(const struct row_op *op, const struct row_band *band)
{
    const struct layout *layout = &op->volume->layout;
    uint64_t members = row_readable(op);
    struct row_query q = {.data = layout->data,
                          .redundancy = layout->redundancy,
                          .parity = layout->parity,
                          .synced = volume_region(op->volume, op->row) != REGION_SUSPECT,
                          .readable = row_band_readable(op, band),
                          .writable = row_writable(op),
                          .target = row_band_new(op, band),
                          .rewrite = op->volume->dev.info.read_only ? 0 : members & ~op->lost & band->media};
    switch (op->kind) {
    case ROW_READ:
        if (band->target == 0)
            return (struct row_plan){.kind = PLAN_DIRECT};
        if (!q.parity)
            q.readable = prefer_copy(op, band, q.readable);
        return row_plan_read(&q);
    case ROW_WRITE:
    case ROW_ZERO:
        return plan_write(op, &q);
    case ROW_WORK_RESYNC:
    case ROW_WORK_SCRUB:
        return row_plan_resync(&q);
    case ROW_WORK_REBUILD:
        q.target = q.writable & ~members;
        q.prefer = q.synced ? prefer_members(op, q.readable) : 0;
        return row_plan_rebuild(&q);
    case ROW_WORK_COPY:
        return plan_copy(op, band, &q);
    case ROW_WORK_VERIFY:
        return (struct row_plan){.kind = PLAN_DIRECT, .reads = q.readable};
    }
    UNREACHABLE("a kind of row work that is not known");
}

bool row_window_plan(struct row_op *op)
{
    bool possible = true;
    for (unsigned i = 0; i < op->bands_count; i++) {
        struct row_band *band = &op->bands[i];
        band->plan = plan_band(op, band);
        possible &= band->plan.kind != PLAN_IMPOSSIBLE;
    }
    return possible;
}

/* --- where the bytes are --- */

/* The request's pages of a data role, from column `column`. */
static struct page **data_pages(const struct row_op *op, uint64_t role, uint64_t column)
{
    if (op->data == NULL)
        return op->volume->zero_pages;
    return op->data + (op->first % PAGE_BYTES + role * chunk_of(op) + column - op->first) / PAGE_BYTES;
}

static struct page **scratch(struct row_op *op, const struct row_band *band)
{
    struct page **pages = op->pages + op->pages_count;
    op->pages_count += page_count_for(band->column, band->len);
    return pages;
}

static void buffers_of_read(struct row_op *op, struct row_band *band)
{
    const struct row_plan *plan = &band->plan;
    if (!op->volume->layout.parity) {
        struct page **copy = plan->writes != 0 ? scratch(op, band) : NULL;
        FOR_EACH_ROLE(role, plan->reads)
        band->old[role] = data_pages(op, 0, band->column);
        FOR_EACH_ROLE(role, plan->writes)
        band->new[role] = copy;
        return;
    }
    FOR_EACH_ROLE(role, plan->reads | plan->recover)
    band->old[role] = band->target >> role & 1 ? data_pages(op, role, band->column) : scratch(op, band);
    /* What is corrected after the reader has got its pages back needs bytes of its own. */
    FOR_EACH_ROLE(role, plan->writes)
    band->new[role] = band->target >> role & 1 ? scratch(op, band) : band->old[role];
}

static void buffers_of_write(struct row_op *op, struct row_band *band)
{
    struct row_plan *plan = &band->plan;
    if (band->target == 0) { /* a row's first write: zeroes beside what is brought */
        plan->encode = 0;
        FOR_EACH_ROLE(role, plan->writes)
        band->new[role] = op->volume->zero_pages;
        return;
    }
    if (!op->volume->layout.parity) {
        FOR_EACH_ROLE(role, plan->writes)
        band->new[role] = data_pages(op, 0, band->column);
        return;
    }
    FOR_EACH_ROLE(role, plan->reads | plan->recover)
    band->old[role] = scratch(op, band);
    FOR_EACH_ROLE(role, row_band_new(op, band))
    band->new[role] = band->target >> role & 1 ? data_pages(op, role, band->column) : op->volume->zero_pages;
    FOR_EACH_ROLE(role, plan->encode)
    band->new[role] = plan->kind == PLAN_RMW ? band->old[role] : scratch(op, band);
    FOR_EACH_ROLE(role, plan->recover & plan->writes)
    band->new[role] = band->old[role];
    if (row_log_partial(op, band))
        band->partial = scratch(op, band);
}

static void buffers_of_job(struct row_op *op, struct row_band *band)
{
    const struct row_plan *plan = &band->plan;
    bool parity = op->volume->layout.parity;
    FOR_EACH_ROLE(role, plan->reads | (parity ? plan->recover : 0))
    band->old[role] = scratch(op, band);
    FOR_EACH_ROLE(role, plan->encode | plan->writes)
    {
        if (!parity)
            band->new[role] = band->old[roles_lowest(plan->reads)];
        else
            band->new[role] = plan->encode >> role & 1 ? scratch(op, band) : band->old[role];
    }
}

void row_window_buffers(struct row_op *op)
{
    unsigned roles = op->volume->layout.roles;
    op->pages_count = 0;
    for (unsigned i = 0; i < op->bands_count; i++) {
        struct row_band *band = &op->bands[i];
        memset(band->old, 0, roles * sizeof *band->old);
        memset(band->new, 0, roles * sizeof *band->new);
        band->partial = NULL;
        if (op->kind == ROW_READ)
            buffers_of_read(op, band);
        else if (op->kind == ROW_WRITE)
            buffers_of_write(op, band);
        else if (op->kind != ROW_ZERO)
            buffers_of_job(op, band);
    }
    ASSERT(op->pages_count <= op->volume->op_pages);
}
