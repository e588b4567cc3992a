/*
 * One request to one member, and what it takes to get it there.
 *
 *   - A device may limit the length of a request: longer ones go in pieces, one after the other.
 *   - A device may be unable to write zeroes or to discard (BLK_INVALID): it is written zero pages instead.
 *   - An error is told to the owner, who decides whether the member stays. A write that failed on a member that stays
 *     is tried once more, from the piece that failed; what fails then is told again. So is a read that nobody else could
 *     serve, before it is told at all.
 *   - A member that has gone out of service meanwhile is not asked (M3).
 *   - What is only advice to the device (`lenient`) may fail: nobody is told. Unless it was given up: it may still happen
 *     to bytes that were written since, so that disk is lost.
 */
#include "raid/row.h"

static void finish(struct row_io *io, enum blk_status status, uint64_t bad_off)
{
    io->status = status;
    io->bad_off = bad_off;
    io->done(io);
}

static bool in_service(const struct row_io *io)
{
    return io->op == BLK_READ ? member_readable(io->member) : member_writable(io->member);
}

static bool zeroes_by_hand(const struct row_io *io)
{
    return io->op == BLK_WRITE_ZEROES && (io->volume->cannot_zero >> io->member->slot & 1);
}

static void start_piece(struct row_io *io)
{
    struct blkdev *dev = io->member->dev;
    struct blk_req *req = &io->req;
    uint64_t left = io->off + io->len - io->at, most = left;
    *req = (struct blk_req){.op = io->op, .flags = io->flags, .off = io->at, .done = req->done};
    if (zeroes_by_hand(io)) {
        req->op = BLK_WRITE;
        req->flags &= ~(unsigned)BLK_NO_UNMAP;
        req->pages = io->volume->zero_pages;
        most = (uint64_t)(ZERO_PAGES - 1) * PAGE_BYTES;
    } else if (blk_op_has_data(io->op)) {
        req->pages = io->pages + ((io->off % PAGE_BYTES + io->at - io->off) / PAGE_BYTES);
    }
    if (dev->info.max_request != 0 && blk_op_has_data(req->op))
        most = MIN(most, dev->info.max_request);
    /* Pieces end at a page's end, so that the next one begins a page. */
    req->len = left <= most ? left : round_down(io->at + most, PAGE_BYTES) - io->at;
    ASSERT(req->len > 0 || io->op == BLK_FLUSH);
    blk_submit(dev, req);
}

/* The device cannot do this operation: do another. False: it was an error after all. */
static bool find_another_way(struct row_io *io)
{
    if (io->req.status != BLK_INVALID || io->lenient)
        return false;
    if (io->req.op == BLK_DISCARD)
        io->op = BLK_WRITE_ZEROES;
    else if (io->req.op == BLK_WRITE_ZEROES)
        io->volume->cannot_zero |= UINT64_C(1) << io->member->slot;
    else
        return false;
    start_piece(io);
    return true;
}

static void piece_failed(struct row_io *io)
{
    struct volume *v = io->volume;
    struct blk_req *req = &io->req;
    if (req->status == BLK_LATE) { /* as asked for */
        finish(io, BLK_LATE, req->off);
        return;
    }
    if (!in_service(io) ||
        (io->lenient && req->status != BLK_TIMEOUT)) { /* it failed while this was under way, or does not matter */
        finish(io, BLK_GONE, req->off);
        return;
    }
    if (req->op == BLK_READ && v->layout.redundancy == 0 && !io->retried) {
        io->retried = true;
        start_piece(io);
        return;
    }
    uint64_t bad_off = req->status == BLK_MEDIA ? req->bad_off : req->off;
    v->owner->ops->member_error(v->owner, io->member, req->op, req->status, bad_off);
    volume_recount(v);
    if (req->op != BLK_READ && in_service(io) && !io->retried) {
        io->retried = true;
        start_piece(io);
        return;
    }
    finish(io, req->status, bad_off);
}

static void piece_done(struct blk_req *req)
{
    struct row_io *io = container_of(req, struct row_io, req);
    if (req->status != BLK_OK) {
        if (!find_another_way(io))
            piece_failed(io);
        return;
    }
    io->at += req->len;
    if (io->at < io->off + io->len)
        start_piece(io);
    else
        finish(io, BLK_OK, 0);
}

void row_io_start(struct row_io *io)
{
    ASSERT(in_service(io) && io->done != NULL);
    io->at = io->off;
    io->retried = false;
    io->req.done = piece_done;
    if (io->op == BLK_DISCARD && !io->member->dev->info.discards)
        io->op = BLK_WRITE_ZEROES;
    if (!row_merge_add(io))
        start_piece(io);
}

void row_io_alone(struct row_io *io)
{
    if (in_service(io))
        start_piece(io);
    else
        finish(io, BLK_GONE, io->off);
}

void row_io_merged(struct row_io *io, enum blk_status status)
{
    io->req.op = io->op;
    io->req.off = io->off;
    io->req.status = status;
    if (status == BLK_OK)
        finish(io, BLK_OK, 0);
    else
        piece_failed(io);
}
