/*
 * From old bytes and new data to what has to be written: the codec, over the pages of a band.
 *
 * Buffers are lists of pages; the codec wants flat memory. So a band is walked in spans in which every buffer concerned
 * lies in one piece of memory: a page at least, often more, since pools hand out neighbours.
 */
#include "raid/row.h"

#include <string.h>

enum { ROLES_MAX = CODEC_DATA_MAX + CODEC_REDUNDANCY_MAX };

/* How many of `len` bytes from page_off on lie together. */
static uint64_t together(struct page **pages, uint64_t page_off, uint64_t len)
{
    uint64_t n = PAGE_BYTES - page_off % PAGE_BYTES;
    uint8_t *start = row_byte(pages, page_off);
    while (n < len && row_byte(pages, page_off + n) == start + n)
        n += PAGE_BYTES;
    return MIN(n, len);
}

/* The codec's names of roles: its exponents may be turned against the order of the data. */
static unsigned codec_role(const struct row_op *op, uint64_t role)
{
    return layout_codec_role(&op->volume->layout, op->row, (unsigned)role);
}

static uint64_t codec_roles(const struct row_op *op, uint64_t roles)
{
    uint64_t turned = 0;
    FOR_EACH_ROLE(role, roles)
    turned |= UINT64_C(1) << codec_role(op, role);
    return turned;
}

/* Pointers to byte `done` of the buffers of `roles`, by the codec's roles; returns the span that all have from there. */
static uint64_t gather(const struct row_op *op, const struct row_band *band, struct page ***buffers, uint64_t roles,
                       uint64_t done, uint8_t **chunks)
{
    uint64_t page_off = band->column % PAGE_BYTES + done, span = band->len - done;
    FOR_EACH_ROLE(role, roles)
    {
        chunks[codec_role(op, role)] = row_byte(buffers[role], page_off);
        span = together(buffers[role], page_off, span);
    }
    return span;
}

static void recover(const struct row_op *op, struct row_band *band)
{
    const struct row_plan *plan = &band->plan;
    uint64_t lost = codec_roles(op, plan->recover), ignore = codec_roles(op, plan->ignore);
    uint8_t *chunks[ROLES_MAX] = {NULL};
    for (uint64_t done = 0, span; done < band->len; done += span) {
        span = gather(op, band, band->old, plan->reads | plan->recover, done, chunks);
        bool possible = codec_recover(&op->volume->codec, chunks, lost, ignore, span);
        ASSERT(possible);
    }
}

static void encode(const struct row_op *op, struct row_band *band)
{
    uint64_t want = band->plan.encode, data = roles_below(op->volume->layout.data);
    uint64_t from_new = op->kind == ROW_WRITE ? row_band_new(op, band) | want : want;
    uint8_t *chunks[ROLES_MAX] = {NULL};
    for (uint64_t done = 0, span; done < band->len; done += span) {
        uint64_t a = gather(op, band, band->new, from_new, done, chunks);
        uint64_t b = gather(op, band, band->old, data & ~from_new, done, chunks);
        span = MIN(a, b);
        codec_encode(&op->volume->codec, chunks, want, span);
    }
}

/* Read-modify-write. The differences take the place of the old data, the new parities that of the old ones. */
static void update(const struct row_op *op, struct row_band *band)
{
    const struct row_plan *plan = &band->plan;
    uint8_t *old[ROLES_MAX] = {NULL}, *new[ROLES_MAX] = {NULL};
    for (uint64_t done = 0, span; done < band->len; done += span) {
        uint64_t a = gather(op, band, band->old, band->target | plan->encode, done, old);
        uint64_t b = gather(op, band, band->new, band->target, done, new);
        span = MIN(a, b);
        FOR_EACH_ROLE(role, band->target)
        {
            unsigned data = codec_role(op, role);
            codec_delta(old[data], old[data], new[data], span);
            FOR_EACH_ROLE(parity, plan->encode)
            codec_update(&op->volume->codec, data, old[data], (unsigned)parity, old[parity], span);
        }
    }
}

static void copy(const struct row_band *band, struct page **to, struct page **from)
{
    uint64_t page_off = band->column % PAGE_BYTES;
    for (uint64_t done = 0, span; done < band->len; done += span) {
        span = MIN(band->len - done, PAGE_BYTES - (page_off + done) % PAGE_BYTES);
        memcpy(row_byte(to, page_off + done), row_byte(from, page_off + done), span);
    }
}

static bool same(const struct row_band *band, struct page **a, struct page **b)
{
    uint64_t page_off = band->column % PAGE_BYTES;
    for (uint64_t done = 0, span; done < band->len; done += span) {
        span = MIN(band->len - done, PAGE_BYTES - (page_off + done) % PAGE_BYTES);
        if (memcmp(row_byte(a, page_off + done), row_byte(b, page_off + done), span) != 0)
            return false;
    }
    return true;
}

bool row_is_zero(const struct row_band *band, struct page **pages)
{
    uint64_t page_off = band->column % PAGE_BYTES;
    for (uint64_t done = 0, span; done < band->len; done += span) {
        span = MIN(band->len - done, PAGE_BYTES - (page_off + done) % PAGE_BYTES);
        const uint8_t *bytes = row_byte(pages, page_off + done);
        if (bytes[0] != 0 || memcmp(bytes, bytes + 1, span - 1) != 0)
            return false;
    }
    return true;
}

/* The reader has its bytes; set aside what is to be corrected on the members. */
static void set_aside(const struct row_band *band)
{
    const struct row_plan *plan = &band->plan;
    struct page **copied = NULL;
    FOR_EACH_ROLE(role, plan->writes)
    {
        struct page **from = plan->kind == PLAN_DIRECT ? band->old[roles_lowest(plan->reads)] : band->old[role];
        if (band->new[role] != from && band->new[role] != copied)
            copy(band, band->new[role], from);
        copied = band->new[role];
    }
}

static void compare(struct row_band *band)
{
    struct row_plan *plan = &band->plan;
    FOR_EACH_ROLE(role, plan->encode)
    if ((band->media >> role & 1) || !same(band, band->old[role], band->new[role]))
        plan->writes |= UINT64_C(1) << role;
}

static void compute_parity(struct row_op *op, struct row_band *band)
{
    struct row_plan *plan = &band->plan;
    if (plan->kind == PLAN_RMW) {
        update(op, band);
        return;
    }
    if (plan->recover != 0)
        recover(op, band);
    if (plan->encode != 0)
        encode(op, band);
}

void row_compute(struct row_op *op, struct row_band *band)
{
    if (op->kind == ROW_ZERO)
        return;
    if (op->volume->layout.parity)
        compute_parity(op, band);
    if (op->kind == ROW_READ)
        set_aside(band);
    if (op->kind == ROW_WORK_RESYNC)
        compare(band);
}

void row_compute_partial(struct row_op *op, struct row_band *band)
{
    unsigned parity = op->volume->layout.data;
    uint64_t page_off = band->column % PAGE_BYTES;
    for (uint64_t done = 0, span; done < band->len; done += span) {
        span = MIN(band->len - done, PAGE_BYTES - (page_off + done) % PAGE_BYTES);
        const uint8_t *from = row_byte(band->new[parity], page_off + done);
        uint8_t *partial = row_byte(band->partial, page_off + done);
        FOR_EACH_ROLE(role, band->target)
        {
            codec_delta(partial, from, row_byte(band->new[role], page_off + done), span);
            from = partial;
        }
    }
}
