/*
 * Reads, writes and flushes by the ring: see daemon/disk_internal.h.
 *
 *      start -> ring_issue -> prepare -> (kernel) -> complete --> disk_finish
 *                   ^                                   |    \
 *                   +--------- short, interrupted ------+     +-> helper, to narrow a media error
 */
#include <liburing.h>
#include <limits.h>

#include "core/check.h"
#include "daemon/disk_internal.h"
#include "daemon/reactor.h"

/* One run of memory, the common case, needs no iovec array in the kernel. */
static void prepare_one(struct io_uring_sqe *sqe, const struct disk_op *op, const struct iovec *iov, uint64_t at)
{
    unsigned len = (unsigned)iov->iov_len;
    if (op->req->op == BLK_READ)
        io_uring_prep_read(sqe, op->disk->fd, iov->iov_base, len, at);
    else
        io_uring_prep_write(sqe, op->disk->fd, iov->iov_base, len, at);
}

static void prepare_many(struct io_uring_sqe *sqe, const struct disk_op *op, const struct iovec *iov, int count,
                         uint64_t at)
{
    if (op->req->op == BLK_READ)
        io_uring_prep_readv(sqe, op->disk->fd, iov, (unsigned)count, at);
    else
        io_uring_prep_writev(sqe, op->disk->fd, iov, (unsigned)count, at);
}

static void prepare_transfer(const struct disk_op *op, struct ring *ring, struct io_uring_sqe *sqe)
{
    const struct blk_req *req = op->req;
    uint64_t from = op->progress.done_len, covered;
    int room;
    struct iovec *iov = ring_iovecs(ring, &room);
    uint64_t len = MIN(req->len - from, GIB); /* one call's length has 32 bits */
    int count = pages_iovec(req->pages, req->off % PAGE_BYTES + from, len, iov, MIN(room, IOV_MAX), &covered);
    if (count == 1) {
        prepare_one(sqe, op, iov, req->off + from);
    } else {
        prepare_many(sqe, op, iov, count, req->off + from);
        ring_iovecs_used(ring, count);
    }
    if (req->op == BLK_WRITE && req->flags & BLK_FUA)
        sqe->rw_flags = RWF_DSYNC;
}

static void prepare(struct ring_op *ring_op, struct ring *ring, struct io_uring_sqe *sqe)
{
    struct disk_op *op = container_of(ring_op, struct disk_op, ring);
    if (op->req->op == BLK_FLUSH)
        io_uring_prep_fsync(sqe, op->disk->fd, IORING_FSYNC_DATASYNC);
    else
        prepare_transfer(op, ring, sqe);
    if (op->disk->may_block)
        io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
}

static void complete_flush(struct disk_op *op, int n)
{
    enum blk_status status = n < 0 ? disk_status(BLK_FLUSH, -n) : BLK_OK;
    disk_finish(op, (struct disk_result){status, 0});
}

static void complete(struct ring_op *ring_op, int n)
{
    struct disk_op *op = container_of(ring_op, struct disk_op, ring);
    struct disk_result result;
    if (op->req->op == BLK_FLUSH)
        complete_flush(op, n);
    else if (disk_judge(op->disk, op->req, n, &op->progress, &result) == DISK_AGAIN)
        ring_issue(reactor_ring(op->disk->reactor), &op->ring);
    else if (disk_can_narrow(op->disk, op->req, result, n))
        disk_narrow_in_helper(op);
    else
        disk_finish(op, result);
}

void disk_uring_start(struct disk_op *op)
{
    op->ring = (struct ring_op){.prepare = prepare, .complete = complete};
    ring_issue(reactor_ring(op->disk->reactor), &op->ring);
}
