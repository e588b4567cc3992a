/*
 * A row and the list of bad blocks (raid/bad_blocks.h).
 *
 * B1  A range that is bad is read by nobody. In these columns its chunk counts as one with a media error: it is
 *     reconstructed, and rewritten where redundancy allows.
 * B2  A range is added, and is on disk, before the row is unlocked in which it became bad, or before the write that
 *     makes it so: the redundancy of a row some of whose data is lost for good is given up with the first write.
 * B3  A write that covers it ends it: the write is durable first (FUA), then the list is, then it is acknowledged.
 * B4  Ranges in a row that was never written mean nothing. They end before it is filled.
 *
 * What a disk that must stay did not take (array_members.c, L4) is bad, as long as the row bears that. Else the chunk
 * that the write was for keeps what the disk makes of it, and the writer is told; what was computed from it is bad.
 */
#include "raid/row.h"

static uint64_t data_offset(const struct row_op *op, uint64_t role, uint64_t column)
{
    return op->places[role].off + column - op->places[role].member->data_start;
}

bool volume_bad(const struct volume *v, struct member_place place, uint64_t column, uint64_t len)
{
    return v->bad->count > 0 && v->layout.redundancy > 0 &&
           bad_overlaps(v->bad, place.member->slot, place.off + column - place.member->data_start, len);
}

uint64_t row_bad_roles(const struct row_op *op, uint64_t column, uint64_t len)
{
    uint64_t roles = 0;
    for (unsigned role = 0; op->volume->bad->count > 0 && role < op->volume->layout.roles; role++)
        roles |= (uint64_t)volume_bad(op->volume, op->places[role], column, len) << role;
    return roles;
}

/* False: the list is full. */
static bool change(struct row_op *op, uint64_t roles, uint64_t column, uint64_t len, bool bad)
{
    struct volume_owner *owner = op->volume->owner;
    bool all = true;
    FOR_EACH_ROLE(role, roles)
    {
        op->noted = true;
        all &= owner->ops->bad_change(owner, op->places[role].member, data_offset(op, role, column), len, bad);
    }
    return all;
}

static uint64_t redundancy_roles(const struct row_op *op)
{
    return roles_below(op->volume->layout.roles) & ~roles_below(op->volume->layout.data);
}

void row_bad_forget(struct row_op *op)
{
    uint64_t chunk = op->volume->layout.spec.chunk;
    (void)change(op, row_bad_roles(op, 0, chunk), 0, chunk, false); /* what is left is written over like others */
}

bool row_bad_spoil(struct row_op *op, struct row_band *band)
{
    uint64_t writable = row_writable(op);
    if (op->kind != ROW_WRITE || !op->volume->layout.parity || (band->target & ~writable) != 0)
        return false;
    return change(op, writable & redundancy_roles(op), band->column, band->len, true);
}

bool row_bad_lost(struct row_op *op, struct row_band *band)
{
    uint64_t readable = row_readable(op), writable = row_writable(op);
    if (op->kind == ROW_WORK_REBUILD)
        return change(op, (writable & ~readable) | (readable & band->media), band->column, band->len, true);
    if (op->kind == ROW_WORK_RESYNC && op->volume->layout.parity) /* nobody can tell whether it is right */
        return change(op, readable & redundancy_roles(op), band->column, band->len, true);
    return true;
}

/* Some disk refused its part and stays. What is bad now; *lost: roles of the request whose writer must be told. */
static uint64_t refused_roles(const struct row_op *op, const struct row_band *band, uint64_t *lost)
{
    uint64_t all = roles_below(op->volume->layout.roles), readable = row_readable(op);
    uint64_t good = readable & ~band->refused & ~(band->media & ~band->wrote);
    *lost = 0;
    if (roles_count(all & ~good) <= op->volume->layout.redundancy)
        return band->refused;
    if (!op->volume->layout.parity) {
        *lost = 1; /* the only copies: they hold what they hold */
        return 0;
    }
    *lost = band->refused & row_band_new(op, band);
    return *lost == 0 ? band->refused : (band->refused & ~*lost) | (row_writable(op) & redundancy_roles(op));
}

static bool band_written(struct row_op *op, struct row_band *band)
{
    uint64_t lost = 0, bad = band->refused != 0 ? refused_roles(op, band, &lost) : 0;
    bool all = change(op, bad, band->column, band->len, true);
    all &= change(op, band->bad & band->wrote & ~bad, band->column, band->len, false);
    if (lost != 0 && op->kind != ROW_READ) /* a fill fails as a whole: the row stays unwritten */
        status_merge(&op->status, &op->bad_off, BLK_MEDIA,
                     op->fill ? row_volume_offset(op, 0, op->first)
                              : row_volume_offset(op, roles_lowest(lost), band->column));
    return all;
}

bool row_bad_written(struct row_op *op)
{
    bool all = true;
    for (unsigned i = 0; i < op->bands_count; i++)
        all &= band_written(op, &op->bands[i]);
    return all;
}
