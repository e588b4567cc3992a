/*
 * A request by system calls that wait, and the meaning of their results: see daemon/disk_internal.h.
 *
 * disk_serve() is the whole of the inline and the threads engine; the ring shares disk_judge(), so that short
 * transfers, interruptions and errors mean the same everywhere. Everything here reads the disk and the request and
 * changes the bytes of a read's pages, nothing else: a helper thread may run it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/check.h"
#include "daemon/disk_internal.h"

enum {
    SYNC_IOVECS = 256,  /* 1 MiB and more a call */
    MOST_RETRIES = 1000 /* calls in a row answered with EINTR or EAGAIN */
};

/* What block drivers and file systems say, in the words of core/blkdev.h. Anything else: BLK_MEDIA. */
static const struct {
    int error;
    enum blk_status status;
} meanings[] = {
    {EIO, BLK_MEDIA},          {EREMOTEIO, BLK_MEDIA}, {EILSEQ, BLK_MEDIA},    {ENODATA, BLK_MEDIA},
    {EUCLEAN, BLK_MEDIA},      {ENODEV, BLK_GONE},     {ENXIO, BLK_GONE},      {ESHUTDOWN, BLK_GONE},
    {EBADF, BLK_GONE},         {ESTALE, BLK_GONE},     {ENOMEDIUM, BLK_GONE},  {ETIMEDOUT, BLK_TIMEOUT},
    {ENOLINK, BLK_TIMEOUT},    {EINTR, BLK_TIMEOUT},   {EAGAIN, BLK_TIMEOUT},  {ENOMEM, BLK_TIMEOUT},
    {ECANCELED, BLK_TIMEOUT},  {ENOSPC, BLK_NOSPACE},  {EDQUOT, BLK_NOSPACE},  {EFBIG, BLK_NOSPACE},
    {EROFS, BLK_READONLY},     {EPERM, BLK_READONLY},  {EACCES, BLK_READONLY}, {EBADE, BLK_READONLY},
    {EOPNOTSUPP, BLK_INVALID}, {EINVAL, BLK_INVALID},
};

enum blk_status disk_status(enum blk_op op, int error)
{
    enum blk_status status = BLK_MEDIA;
    for (unsigned i = 0; i < ARRAY_LENGTH(meanings); i++)
        if (meanings[i].error == error)
            status = meanings[i].status;
    return status == BLK_MEDIA && op == BLK_FLUSH ? BLK_GONE : status;
}

static struct disk_result result_of(const struct blk_req *req, uint64_t at, int error)
{
    return (struct disk_result){error == 0 ? BLK_OK : disk_status(req->op, error), req->off + at};
}

/* --- reads and writes --- */

enum disk_verdict disk_judge(const struct disk *disk, const struct blk_req *req, int64_t n,
                             struct disk_progress *progress, struct disk_result *result)
{
    if ((n == -EINTR || n == -EAGAIN) && progress->retries++ < MOST_RETRIES)
        return DISK_AGAIN;
    *result = result_of(req, progress->done_len, n < 0 ? (int)-n : 0);
    if (n < 0)
        return DISK_OVER;
    /* The end of a file may lie within a block: go on at the start of that block, which then brings nothing. */
    uint64_t whole = round_down((uint64_t)n, disk->dev.info.logical_block);
    if (whole == 0) {
        result->status = BLK_MEDIA;
        return DISK_OVER;
    }
    progress->done_len += whole;
    progress->retries = 0;
    ASSERT(progress->done_len <= req->len);
    return progress->done_len == req->len ? DISK_OVER : DISK_AGAIN;
}

bool disk_can_narrow(const struct disk *disk, const struct blk_req *req, struct disk_result result, int64_t n)
{
    return n < 0 && req->op == BLK_READ && result.status == BLK_MEDIA &&
           req->off + req->len - result.bad_off > disk->dev.info.logical_block;
}

/* One run of memory, the common case, needs no iovec array in the kernel. */
static ssize_t read_at(int fd, const struct iovec *iov, int count, off_t at)
{
    return count == 1 ? pread(fd, iov->iov_base, iov->iov_len, at) : preadv(fd, iov, count, at);
}

static ssize_t write_at(int fd, const struct iovec *iov, int count, off_t at, int flags)
{
    bool plain = count == 1 && flags == 0;
    return plain ? pwrite(fd, iov->iov_base, iov->iov_len, at) : pwritev2(fd, iov, count, at, flags);
}

static int64_t move_some(const struct disk *disk, const struct blk_req *req, uint64_t from, uint64_t len)
{
    struct iovec iov[SYNC_IOVECS];
    uint64_t covered;
    int count = pages_iovec(req->pages, req->off % PAGE_BYTES + from, len, iov, SYNC_IOVECS, &covered);
    off_t at = (off_t)(req->off + from);
    ssize_t n = req->op == BLK_READ ? read_at(disk->fd, iov, count, at)
                                    : write_at(disk->fd, iov, count, at, req->flags & BLK_FUA ? RWF_DSYNC : 0);
    return n < 0 ? -errno : n;
}

static struct disk_result transfer(const struct disk *disk, const struct blk_req *req)
{
    struct disk_progress progress = {0};
    struct disk_result result;
    int64_t n;
    do
        n = move_some(disk, req, progress.done_len, req->len - progress.done_len);
    while (disk_judge(disk, req, n, &progress, &result) == DISK_AGAIN);
    return disk_can_narrow(disk, req, result, n) ? disk_narrow(disk, req, progress.done_len) : result;
}

/* Read [from, to) in steps of at most `step` bytes, until one fails or nothing is left. Returns where. */
static uint64_t read_steps(const struct disk *disk, const struct blk_req *req, uint64_t from, uint64_t to,
                           uint64_t step, struct disk_result *result)
{
    struct disk_progress progress = {.done_len = from};
    *result = (struct disk_result){BLK_OK, 0};
    while (progress.done_len < to) {
        int64_t n = move_some(disk, req, progress.done_len, MIN(step, to - progress.done_len));
        if (disk_judge(disk, req, n, &progress, result) == DISK_OVER && result->status != BLK_OK)
            break;
    }
    return progress.done_len;
}

/*
 * The first bad byte of a read that failed somewhere at or behind `from`: in steps of 256 KiB to the one that fails,
 * that one in steps of 16 KiB, then by blocks. A bad block costs a disk seconds; so it is met three times, not once for
 * each bit of its address. If everything can be read now the request has succeeded after all.
 */
struct disk_result disk_narrow(const struct disk *disk, const struct blk_req *req, uint64_t from)
{
    const uint64_t steps[] = {256 * KIB, 16 * KIB, disk->dev.info.logical_block};
    struct disk_result result = {BLK_OK, 0};
    for (uint64_t at = from; at < req->len;) {
        uint64_t to = req->len;
        for (unsigned i = 0; i < ARRAY_LENGTH(steps); i++) {
            at = read_steps(disk, req, at, to, steps[i], &result);
            if (result.status != BLK_MEDIA)
                break;
            to = MIN(to, at + steps[i]);
        }
        if (result.status != BLK_OK)
            break; /* found; or another kind of error */
    }
    return result;
}

/* --- the others --- */

static int64_t pwrite_zeroes(const struct disk *disk, const struct blk_req *req, uint64_t from)
{
    static const uint8_t zeroes[PAGE_BYTES] __attribute__((aligned(PAGE_BYTES)));
    struct iovec iov[SYNC_IOVECS];
    uint64_t left = req->len - from;
    int count = 0;
    for (; left > 0 && count < SYNC_IOVECS; count++) {
        iov[count] = (struct iovec){(void *)(uintptr_t)zeroes, MIN(left, sizeof zeroes)};
        left -= iov[count].iov_len;
    }
    ssize_t n = pwritev(disk->fd, iov, count, (off_t)(req->off + from));
    return n < 0 ? -errno : n;
}

static struct disk_result write_zero_pages(const struct disk *disk, const struct blk_req *req)
{
    struct disk_progress progress = {0};
    struct disk_result result;
    while (disk_judge(disk, req, pwrite_zeroes(disk, req, progress.done_len), &progress, &result) == DISK_AGAIN)
        ;
    return result;
}

/* 0 or an errno. On block devices the kernel turns these into the device's own commands. */
static int allocate(const struct disk *disk, int mode, const struct blk_req *req)
{
    while (fallocate(disk->fd, mode | FALLOC_FL_KEEP_SIZE, (off_t)req->off, (off_t)req->len) != 0)
        if (errno != EINTR)
            return errno;
    return 0;
}

static struct disk_result sync_data(const struct disk *disk)
{
    int error;
    do
        error = fdatasync(disk->fd) == 0 ? 0 : errno;
    while (error == EINTR);
    return (struct disk_result){error == 0 ? BLK_OK : disk_status(BLK_FLUSH, error), 0};
}

static struct disk_result write_zeroes(const struct disk *disk, const struct blk_req *req)
{
    int error = EOPNOTSUPP;
    if ((req->flags & BLK_NO_UNMAP) == 0)
        error = allocate(disk, FALLOC_FL_PUNCH_HOLE, req);
    if (error == EOPNOTSUPP)
        error = allocate(disk, FALLOC_FL_ZERO_RANGE, req);
    struct disk_result result = error == EOPNOTSUPP ? write_zero_pages(disk, req) : result_of(req, 0, error);
    return result.status == BLK_OK && (req->flags & BLK_FUA) ? sync_data(disk) : result;
}

static struct disk_result discard(const struct disk *disk, const struct blk_req *req)
{
    if (!disk->dev.info.discards)
        return (struct disk_result){BLK_OK, 0}; /* a hint, and nobody to take it */
    if (!disk->block_device)
        return result_of(req, 0, allocate(disk, FALLOC_FL_PUNCH_HOLE, req));
    uint64_t range[2] = {req->off, req->len};
    while (ioctl(disk->fd, BLKDISCARD, range) != 0)
        if (errno != EINTR)
            return result_of(req, 0, errno);
    return result_of(req, 0, 0);
}

struct disk_result disk_serve(const struct disk *disk, const struct blk_req *req)
{
    switch (req->op) {
    case BLK_READ:
    case BLK_WRITE:
        return transfer(disk, req);
    case BLK_FLUSH:
        return sync_data(disk);
    case BLK_DISCARD:
        return discard(disk, req);
    case BLK_WRITE_ZEROES:
        return write_zeroes(disk, req);
    case BLK_STATUS: /* answered before it comes here: disks do not tell */
        break;
    }
    UNREACHABLE("no such operation");
}
