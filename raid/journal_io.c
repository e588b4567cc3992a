/* See raid/journal_io.h. */
#include "raid/journal_io.h"

#include "raid/array_impl.h"

enum { TRIES = 3 };

static bool in_service(const struct journal_io *io)
{
    return !io->array->frozen &&
           (io->device != NULL ? io->device->live : member_writable(&io->array->members[io->slot]));
}

static void finish(struct journal_io *io, enum blk_status status)
{
    io->status = status;
    io->done(io);
}

static void piece_done(struct blk_req *req);

static void piece_start(struct journal_io *io)
{
    struct blkdev *dev = io->device != NULL ? io->device->dev : io->array->members[io->slot].dev;
    uint64_t left = io->off + io->len - io->at, most = dev->info.max_request;
    bool all = most == 0 || left <= most;
    io->req = (struct blk_req){.op = io->op,
                               .flags = io->flags,
                               .off = io->at,
                               .len = all ? left : round_down(io->at + most, PAGE_BYTES) - io->at,
                               .pages = io->pages + (io->off % PAGE_BYTES + io->at - io->off) / PAGE_BYTES,
                               .done = piece_done};
    blk_submit(dev, &io->req);
}

static void piece_failed(struct journal_io *io)
{
    struct array *array = io->array;
    struct member *member = &array->members[io->slot];
    enum blk_status status = io->req.status;
    if (in_service(io) && io->device == NULL)
        array_member_trouble(array, member, io->op, status, io->req.off);
    if (in_service(io) && io->op == BLK_READ && status == BLK_MEDIA) {
        finish(io, BLK_MEDIA);
        return;
    }
    if (in_service(io) && ++io->tries < TRIES) {
        piece_start(io);
        return;
    }
    if (in_service(io) && io->device != NULL)
        journal_device_lose(array, io->device, status);
    else if (in_service(io))
        array_member_lose(array, member, status);
    finish(io, BLK_GONE);
}

static void piece_done(struct blk_req *req)
{
    struct journal_io *io = container_of(req, struct journal_io, req);
    if (req->status != BLK_OK) {
        piece_failed(io);
        return;
    }
    io->at += req->len;
    if (io->at == io->off + io->len)
        finish(io, BLK_OK);
    else if (in_service(io))
        piece_start(io);
    else
        finish(io, BLK_GONE);
}

void journal_io_start(struct journal_io *io)
{
    io->at = io->off;
    io->tries = 0;
    if (in_service(io))
        piece_start(io);
    else
        finish(io, BLK_GONE);
}
