/*
 * A row and the region map: what the row's state means for a request, and when the state must change.
 *
 *   state       read     write                             zeroes, all of it         zeroes, some   resync   rebuild
 *   UNWRITTEN   zeroes   all of it, zero-filled; members   nothing                   nothing        nothing  nothing
 *                        flushed; DIRTY; answered
 *   CLEAN       members  DIRTY, then members               UNWRITTEN, then discards  as a write     -        as ever
 *   DIRTY       members  members                           as CLEAN                  as a write     -        as ever
 *   SUSPECT     members  as V3                             as CLEAN                  as a write     DIRTY    as ever
 *
 * This is policy bitmap. With the others a row that was filled is CLEAN, and stays so when it is written
 * (writes_are_marked): DIRTY is then only what was SUSPECT and has been resynchronised.
 *
 * A job that writes zeroes (raid/row_init.c) fills rows that are UNWRITTEN as a write does, and leaves all others alone.
 *
 * Who writes zeroes and wants the space kept (BLK_NO_UNMAP) writes like others. Changes are asked for under the row's
 * lock, and the store (raid/map_store.c) leaves locked rows alone: so under the lock a state is what it was.
 *
 * A rebuild passes by rows that were never written. So a disk that joins while a row is being filled might get half of
 * it and never the rest: then the row is filled anew before the map is told. Who joins after that finds the row
 * written.
 *
 * A disk that is caught up is not given rows that are CLEAN: so a write that was planned before it joined, and makes the
 * row DIRTY only now, is planned again.
 */
#include "raid/row.h"

static bool wants_space(const struct row_op *op)
{
    return op->kind == ROW_WRITE ? op->data != NULL || (op->parent->flags & BLK_NO_UNMAP) != 0
                                 : op->job != NULL || (op->flags & BLK_NO_UNMAP) != 0;
}

static unsigned disks_joined(const struct row_op *op)
{
    unsigned disks = 0;
    for (unsigned role = 0; role < op->volume->layout.roles; role++)
        disks += op->places[role].member->disks;
    return disks;
}

static bool writes_all(const struct row_op *op)
{
    return (op->kind == ROW_WRITE || op->kind == ROW_ZERO) && !op->unmap && op->len == op->volume->layout.row_data;
}

void row_region_written(struct row_op *op)
{
    struct volume *v = op->volume;
    if (v->map != NULL && op->status == BLK_OK && v->owner->ops->row_written != NULL && !op->stop &&
        (op->fill || writes_all(op)) && !row_region_joined(op) && !op->joined)
        v->owner->ops->row_written(v->owner, v->map, op->row);
}

bool row_region_joined(struct row_op *op)
{
    unsigned before = op->disks;
    op->disks = disks_joined(op);
    op->joined |= !op->fill && op->disks != before;
    return op->disks != before;
}

/* False: there is nothing to do on a row that was never written. */
static bool begin_unwritten(struct row_op *op)
{
    if (op->kind == ROW_READ)
        pages_zero(op->data, op->first % PAGE_BYTES, op->len);
    if (op->kind == ROW_READ && op->volume->failed)
        status_merge(&op->status, &op->bad_off, BLK_GONE, row_volume_offset(op, 0, op->first));
    op->fill = (op->kind == ROW_WRITE || op->kind == ROW_ZERO) && wants_space(op);
    return op->fill;
}

void row_region_begin(struct row_op *op)
{
    struct volume *v = op->volume;
    op->fill = op->unmap = op->joined = false;
    op->change = (struct region_change){.region = op->row, .task = &op->task, .to = REGION_DIRTY};
    op->disks = disks_joined(op);
    if (v->map == NULL)
        return;
    if (volume_region(v, op->row) == REGION_UNWRITTEN)
        op->stop = !begin_unwritten(op);
    else if (op->kind == ROW_ZERO && op->job != NULL) /* somebody wrote to it first */
        op->stop = true;
    else
        op->unmap = op->kind == ROW_ZERO && op->len == v->layout.row_data && !wants_space(op);
    v->unmaps += op->unmap;
    if (op->kind != ROW_READ) /* jobs write as well */
        region_touch(v->map, op->row);
}

/*
 * Is a row DIRTY while it is written? In volumes with a journal the journal says more, and with policy resync all rows
 * that were ever written are resynchronised after a crash. But a member that is away is to be caught up.
 */
static bool writes_are_marked(const struct row_op *op)
{
    return op->volume->consistency == SB_BITMAP || op->volume->degraded;
}

bool row_region_wants_change(struct row_op *op)
{
    struct volume *v = op->volume;
    enum region_state state = volume_region(v, op->row);
    if (v->map == NULL || op->fill || (op->kind != ROW_WRITE && op->kind != ROW_ZERO))
        return false;
    v->unmarked |= state == REGION_CLEAN && !op->unmap && !op->change.over && !writes_are_marked(op);
    return !op->change.over && (op->unmap ? state != REGION_UNWRITTEN : state == REGION_CLEAN && writes_are_marked(op));
}

static enum region_state state_wanted(const struct row_op *op)
{
    if (op->spoiled)
        return REGION_SUSPECT;
    if (op->unmap)
        return REGION_UNWRITTEN;
    return op->fill && !writes_are_marked(op) ? REGION_CLEAN : REGION_DIRTY;
}

void row_region_change(struct row_op *op)
{
    struct volume *v = op->volume;
    op->change.to = state_wanted(op);
    v->unmarked |= op->change.to == REGION_CLEAN;
    op->change.flush_first = op->fill && op->job == NULL; /* row_init.c has had it flushed */
    v->owner->ops->region_change(v->owner, v->map, &op->change);
}

bool row_region_spoiled(struct row_op *op)
{
    struct volume *v = op->volume;
    if (v->map == NULL || volume_region(v, op->row) == REGION_UNWRITTEN)
        return false;
    region_set(v->map, op->row, REGION_SUSPECT);
    return true;
}

void row_region_synced(struct row_op *op)
{
    struct volume *v = op->volume;
    if (v->map != NULL && volume_region(v, op->row) == REGION_SUSPECT && op->status != BLK_GONE)
        region_set(v->map, op->row, REGION_DIRTY);
}
