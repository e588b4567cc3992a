/*
 * A row and the journal: what of a window is logged before it is written in place.
 *
 *   policy    of each band                                                   replayed, when it
 *   journal   what every member is to be written                             is written as a whole
 *   ppl       on the parity: the data that does not change, added up; for    makes the parity that of the data as it
 *             a row that changes as a whole nothing but that it does         stands
 *
 * Not logged are: the first write of a row (the map says UNWRITTEN until all of it is durable); what a job writes, and
 * what a read corrects (the bytes are those that belong there); of policy ppl bands whose parity is on no live member.
 * They wait for losses to be on disk all the same: a member that was planned without may not be back after a crash.
 * What changes a chunk that is on no live member is logged, though it cannot be replayed: it stands against older records
 * of the row, which would bring back the parity of what the chunk was.
 *
 * A row that is given back, or was spoiled, waits until nothing of it would be replayed (J8).
 */
#include "raid/row.h"

static bool forgets(const struct row_op *op)
{
    return op->unmap || op->spoiled;
}

bool row_log_wanted(const struct row_op *op)
{
    bool changes = op->kind == ROW_WRITE || op->kind == ROW_ZERO;
    return consistency_is_closed(op->volume->consistency) && changes && !op->fill && !op->logged;
}

bool row_log_partial(const struct row_op *op, const struct row_band *band)
{
    const struct layout *layout = &op->volume->layout;
    return op->volume->consistency == SB_PPL && !op->fill && band->target != roles_below(layout->data) &&
           (band->plan.encode >> layout->data & 1);
}

static struct journal_piece *piece_add(struct row_op *op, const struct row_band *band, uint64_t role)
{
    struct journal_piece *piece = &op->record.pieces[op->record.pieces_count++];
    *piece = (struct journal_piece){.slot = op->places[role].member->slot,
                                    .role = (uint32_t)role,
                                    .column = (uint32_t)band->column,
                                    .len = (uint32_t)band->len};
    return piece;
}

static void log_all(struct row_op *op)
{
    op->record.kind = JOURNAL_FULL;
    FOR_EACH_ROLE(role, row_writable(op))
    for (unsigned i = 0; i < op->bands_count; i++)
        if (op->bands[i].plan.writes >> role & 1)
            piece_add(op, &op->bands[i], role)->pages = op->bands[i].new[role];
}

static void log_parity(struct row_op *op)
{
    uint64_t parity = op->volume->layout.data;
    op->record.kind = JOURNAL_PARITY;
    for (unsigned i = 0; i < op->bands_count; i++) {
        struct row_band *band = &op->bands[i];
        if (!(band->plan.writes & row_writable(op) & UINT64_C(1) << parity))
            continue;
        if (band->partial != NULL)
            row_compute_partial(op, band);
        struct journal_piece *piece = piece_add(op, band, parity);
        piece->changed = band->target;
        piece->pages = band->partial;
    }
}

void row_log_ask(struct row_op *op)
{
    struct volume_owner *owner = op->volume->owner;
    op->record.pieces_count = 0;
    op->forget.over = true;
    if (forgets(op)) {
        (void)owner->ops->journal_forget(owner, &op->volume->uuid, op->row, &op->forget);
        return;
    }
    op->record.row = op->row;
    op->record.members = 0;
    for (unsigned role = 0; role < op->volume->layout.roles; role++)
        op->record.members |= UINT64_C(1) << op->places[role].member->slot;
    if (op->volume->consistency == SB_JOURNAL)
        log_all(op);
    else
        log_parity(op);
    op->record.over = false;
    if (op->record.pieces_count > 0)
        owner->ops->journal_write(owner, &op->record);
}

bool row_log_over(struct row_op *op)
{
    struct volume_owner *owner = op->volume->owner;
    bool asked = op->record.pieces_count > 0;
    if (!op->forget.over || (asked && !op->record.over) || op->task.queued)
        return false;
    if (!asked && !owner->ops->loss_recorded(owner, &op->task))
        return false;
    op->logged = true;
    return true;
}

void row_log_written(struct row_op *op)
{
    struct volume_owner *owner = op->volume->owner;
    if (op->logged && op->record.pieces_count > 0)
        owner->ops->journal_written(owner, &op->record);
    op->record.pieces_count = 0;
    op->logged = false;
}
