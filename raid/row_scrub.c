/*
 * Scrub of a row: everything is read, redundancy is computed anew, and what differs is judged block by block of 512
 * bytes.
 *
 *   all chunks read    one of them explains all differences of the block     that one is wrong: CHUNK
 *                      ... but fewer than eight bytes differ (parity)        PROBABLE: told, never changed
 *                      no single one does, or there is only one parity or    UNKNOWN: a repair rewrites redundancy
 *                      two copies
 *   some not           they differ all the same                              UNKNOWN: nothing is changed
 *
 * Why eight: where two chunks are wrong in one byte each, in the same place, chance makes that look like one wrong chunk
 * in some percent of the cases; that eight such bytes name the same chunk by chance does not happen. Copies are a
 * majority, and need no such care.
 *
 * What cannot be read is recovered and corrected on its member, in a check as well, but not from chunks that disagree:
 * then the window gets narrower, until differences and unreadable blocks are told apart or are the same block.
 *
 * Rows in doubt (SUSPECT) are not judged: there redundancy may be wrong because of a crash, and data is what counts. They
 * are resynchronised, but passed by while a member is being rebuilt: that one may be owed them (raid/rebuild.c, B3).
 */
#include "raid/row.h"

#include <string.h>

enum { BYTES_SURE = 8, ROLES_MAX = CODEC_DATA_MAX + CODEC_REDUNDANCY_MAX };

void row_scrub_begin(struct row_op *op)
{
    if (op->kind != ROW_WORK_SCRUB || volume_region(op->volume, op->row) != REGION_SUSPECT)
        return;
    if ((row_writable(op) & ~row_readable(op)) != 0) {
        op->stop = true;
        return;
    }
    op->kind = ROW_WORK_RESYNC;
    op->job->report.resynced = true;
}

/* --- what is told --- */

static bool continues(const struct row_finding *last, const struct row_finding *next)
{
    return last->found == next->found && last->remedy == next->remedy &&
           (last->found == ROW_FOUND_UNKNOWN || last->slot == next->slot) &&
           last->device_off + last->device_len == next->device_off;
}

/* Bytes [column, column + len) of the chunk of `role`; UNKNOWN: of all chunks. */
static void tell(struct row_op *op, enum row_found found, enum row_remedy remedy, unsigned role, uint64_t column,
                 uint64_t len)
{
    struct row_report *report = &op->job->report;
    const struct layout *layout = &op->volume->layout;
    bool data = found != ROW_FOUND_UNKNOWN && (role < layout->data || !layout->parity);
    struct row_finding next = {.found = found,
                               .remedy = remedy,
                               .off = row_volume_offset(op, data && layout->parity ? role : 0, data ? column : 0),
                               .len = data ? len : layout->row_data,
                               .slot = op->places[role].member->slot,
                               .device_off = op->places[role].off + column,
                               .device_len = len};
    struct row_finding *last = &report->findings[report->findings_count - 1];
    if (report->findings_count > 0 && continues(last, &next)) {
        last->device_len += len;
        last->len += data ? len : 0;
    } else if (report->findings_count < ROW_FINDINGS_MAX) {
        report->findings[report->findings_count++] = next;
    }
}

void row_scrub_unreadable(struct row_op *op, const struct row_band *band)
{
    FOR_EACH_ROLE(role, band->media)
    {
        op->job->report.unreadable += band->len / ROW_SCRUB_BLOCK;
        tell(op, ROW_FOUND_UNREADABLE, ROW_LEFT, (unsigned)role, band->column, band->len);
    }
}

/* --- one block --- */

struct block {
    struct row_op *op;
    struct row_band *band;
    uint64_t at; /* in the band */
    bool complete;
};

static uint8_t *bytes_of(const struct block *b, struct page **pages)
{
    return row_byte(pages, b->band->column % PAGE_BYTES + b->at);
}

/* Redundancy that was read and is not what the data says. */
static uint64_t differing(const struct block *b)
{
    uint64_t roles = 0;
    FOR_EACH_ROLE(role, b->band->plan.encode & ~b->band->media)
    if (memcmp(bytes_of(b, b->band->old[role]), bytes_of(b, b->band->new[role]), ROW_SCRUB_BLOCK) != 0)
        roles |= UINT64_C(1) << role;
    return roles;
}

/* The wrong role, or CODEC_UNKNOWN; what its bytes should be. */
static int locate(const struct block *b, uint8_t *right)
{
    const struct layout *layout = &b->op->volume->layout;
    uint8_t *chunks[ROLES_MAX] = {NULL};
    for (unsigned role = 0; role < layout->roles; role++)
        chunks[layout_codec_role(layout, b->op->row, role)] = bytes_of(b, b->band->old[role]);
    int found = codec_locate(&b->op->volume->codec, chunks, ROW_SCRUB_BLOCK);
    if (found < 0)
        return CODEC_UNKNOWN;
    chunks[found] = right;
    codec_recover(&b->op->volume->codec, chunks, UINT64_C(1) << found, 0, ROW_SCRUB_BLOCK);
    int role = 0;
    while (layout_codec_role(layout, b->op->row, (unsigned)role) != (unsigned)found)
        role++;
    return role;
}

static bool is_sure(const struct block *b, unsigned role, const uint8_t *right)
{
    const uint8_t *wrong = bytes_of(b, b->band->old[role]);
    unsigned bytes = 0;
    for (unsigned i = 0; i < ROW_SCRUB_BLOCK; i++)
        bytes += wrong[i] != right[i];
    return bytes >= BYTES_SURE || !b->op->volume->layout.parity;
}

/* If other blocks of its redundancy are written, these go with them as they are. */
static void keep_redundancy(const struct block *b)
{
    if (!b->op->volume->layout.parity)
        return;
    FOR_EACH_ROLE(role, b->band->plan.encode & ~b->band->media)
    memcpy(bytes_of(b, b->band->new[role]), bytes_of(b, b->band->old[role]), ROW_SCRUB_BLOCK);
}

/* The role's bytes become the right ones in the pages that are written. */
static void replace(const struct block *b, unsigned role, const uint8_t *right)
{
    struct row_band *band = b->band;
    keep_redundancy(b);
    if (band->new[role] == NULL) /* data, or the copy that the others were compared with */
        band->new[role] = band->old[role];
    memcpy(bytes_of(b, band->new[role]), right, ROW_SCRUB_BLOCK);
    band->plan.writes |= UINT64_C(1) << role;
}

static void judge_located(const struct block *b, unsigned role, const uint8_t *right)
{
    struct row_op *op = b->op;
    struct row_report *report = &op->job->report;
    bool sure = is_sure(b, role, right), repair = sure && op->job->repair;
    report->located += sure;
    report->repaired += repair;
    if (repair)
        replace(b, role, right);
    else
        keep_redundancy(b);
    tell(op, sure ? ROW_FOUND_CHUNK : ROW_FOUND_PROBABLE, repair ? ROW_CHUNK_REWRITTEN : ROW_LEFT, role,
         b->band->column + b->at, ROW_SCRUB_BLOCK);
}

static void judge_unknown(const struct block *b, uint64_t roles)
{
    struct row_op *op = b->op;
    bool rewrite = b->complete && op->job->repair;
    op->job->report.rewritten += rewrite;
    if (rewrite)
        b->band->plan.writes |= roles;
    else
        keep_redundancy(b);
    tell(op, ROW_FOUND_UNKNOWN, rewrite ? ROW_REDUNDANCY_REWRITTEN : ROW_LEFT, 0, b->band->column + b->at,
         ROW_SCRUB_BLOCK);
}

static void judge_block(const struct block *b, uint64_t roles)
{
    uint8_t right[ROW_SCRUB_BLOCK];
    int role = b->complete ? locate(b, right) : CODEC_UNKNOWN;
    b->op->job->report.mismatched++;
    if (role >= 0)
        judge_located(b, (unsigned)role, right);
    else
        judge_unknown(b, roles);
}

/* --- the band --- */

static bool band_differs(struct block *b)
{
    for (b->at = 0; b->at < b->band->len; b->at += ROW_SCRUB_BLOCK)
        if (differing(b) != 0)
            return true;
    return false;
}

bool row_scrub_judge(struct row_op *op, struct row_band *band)
{
    struct row_plan *plan = &band->plan;
    struct block b = {.op = op, .band = band, .complete = roles_count(plan->reads) == op->volume->layout.roles};
    if (!band_differs(&b)) {
        plan->writes |= plan->encode & band->media;
        return true;
    }
    if (band->media != 0 && band->len > op->volume->dev.info.logical_block)
        return false;
    plan->writes = 0;
    for (b.at = 0; b.at < band->len; b.at += ROW_SCRUB_BLOCK) {
        uint64_t roles = differing(&b);
        if (roles != 0)
            judge_block(&b, roles);
    }
    return true;
}
