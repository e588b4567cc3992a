/*
 * A row that was never written, for those who want their disks exercised: zeroes are written to all of it, flushed, and
 * read back from every disk; then the row counts as written, and the next write need not fill it.
 *
 *      ROW_ZERO          ROW_ZERO           ROW_WORK_VERIFY               ROW_ZERO
 *      fill  --------->  flush  --------->  read, compare  ------------>  the map is told
 *       ^                                       |        |
 *       |   wrong or unreadable, the first time |        |  the second time
 *       +---------------------------------------+        +-------------> BLK_MEDIA: the row stays UNWRITTEN
 *
 * All of it happens under the row's lock, and until the map is told the row reads as zeroes whatever lies there: so
 * giving up is harmless. A disk that joins meanwhile begins it anew, as with any fill. What a disk gives back wrong is
 * an error of that disk, like what it cannot read; the owner hears of both.
 *
 * The flush is a change of the map that changes nothing: so it is shared by the rows that wait for one.
 */
#include "raid/row.h"

void row_init_begin(struct row_op *op)
{
    if (op->kind == ROW_WORK_VERIFY)
        op->kind = ROW_ZERO;
    row_columns_begin(op);
    row_window_open(op);
}

void row_init_written(struct row_op *op)
{
    struct volume *v = op->volume;
    op->flushing = true;
    op->change.to = REGION_UNWRITTEN;
    op->change.flush_first = true;
    v->owner->ops->region_change(v->owner, v->map, &op->change);
}

void row_init_flushed(struct row_op *op)
{
    op->flushing = false;
    op->change.over = false;
    op->kind = ROW_WORK_VERIFY;
    row_columns_begin(op);
    row_window_open(op);
}

/* The last one found stands for all. */
static void tell(struct row_op *op, const struct row_band *band, uint64_t role, enum row_found found)
{
    struct row_report *report = &op->job->report;
    report->findings_count = 1;
    report->findings[0] = (struct row_finding){.found = found,
                                               .remedy = ROW_LEFT,
                                               .off = row_volume_offset(op, 0, 0),
                                               .len = op->volume->layout.row_data,
                                               .slot = op->places[role].member->slot,
                                               .device_off = op->places[role].off + band->column,
                                               .device_len = band->len};
}

/* What it gives back is not what it took: it might as well not have been read. */
static void wrong(struct row_op *op, const struct row_band *band, uint64_t role)
{
    struct volume_owner *owner = op->volume->owner;
    tell(op, band, role, ROW_FOUND_CHUNK);
    owner->ops->member_error(owner, op->places[role].member, BLK_READ, BLK_MEDIA, op->places[role].off + band->column);
    volume_recount(op->volume);
}

bool row_init_judge(struct row_op *op)
{
    struct row_band *band = &op->bands[0];
    uint64_t unreadable = band->media & ~band->bad & row_readable(op);
    bool right = unreadable == 0;
    if (right && op->retry) /* a disk is gone, or is asked again */
        return true;
    FOR_EACH_ROLE(role, unreadable)
    tell(op, band, role, ROW_FOUND_UNREADABLE);
    FOR_EACH_ROLE(role, band->plan.reads & ~band->media & ~op->lost)
    {
        if (row_is_zero(band, band->old[role]))
            continue;
        wrong(op, band, role);
        right = false;
    }
    return right;
}
