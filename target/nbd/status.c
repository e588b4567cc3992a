/*
 * What a range was used for, asked of the device step by step (BLK_STATUS), and what is made of the answers:
 *
 *   BLOCK_STATUS   extents of base:allocation, put into the request's page as they go over the wire. The answer ends
 *                  with the range, with the page, after STEPS_MAX steps, or after one if the client wants one extent.
 *   READ           the parts of the reply, data or hole, of a long read in chunks: what was never written is neither
 *                  read nor sent. Asked only of a device that answers on the spot, for at least HOLES_FROM bytes, and
 *                  not with DF: what was written costs one look into a map more, next to the copies of 64 KiB.
 *
 * The device is asked for whole blocks; what goes to the client is cut to its range. Parts of a read meet at page
 * boundaries, since the device may replace a page of each.
 */
#include "core/check.h"
#include "target/nbd/connection.h"
#include "target/nbd/contexts.h"

enum {
    HOLES_FROM = 64 * KIB,
    STEPS_MAX = 4096, /* a device that answers in small steps does not keep us for ever */
};
#define STEP_BYTES                                                                                                     \
    (4 * GIB) /* asked at once: a map of many rows is looked through in pieces, and others have their turn */

static void ask(struct nbd_request *request);

/* What the step just made covers of the client's range. */
static uint64_t step_len(const struct nbd_request *request)
{
    const struct nbd_request_header *head = &request->head;
    const struct blk_req *blk = &request->blk;
    return MIN(blk->off + blk->extent, head->off + head->len) - MAX(blk->off, head->off);
}

/* --- BLOCK_STATUS --- */

static void end_extent(struct nbd_request *request)
{
    struct nbd_extents *e = &request->extents;
    uint8_t *out = (uint8_t *)request->pages[0]->data + e->bytes;
    e->bytes += (uint32_t)nbd_build_extent(out, request->conn->mode, e->len, e->written ? 0 : NBD_STATE_HOLE_ZERO);
    e->len = 0;
}

/* Beside the one at hand. */
static bool extents_are_enough(const struct nbd_request *request)
{
    const struct nbd_extents *e = &request->extents;
    bool is_full = e->bytes + 2 * NBD_EXTENT_BYTES_MAX > PAGE_BYTES;
    return (request->head.flags & NBD_CMD_REQ_ONE) || is_full || e->steps >= STEPS_MAX;
}

static void extent_came(struct nbd_request *request)
{
    struct nbd_extents *e = &request->extents;
    if (e->len > 0 && e->written != request->blk.written)
        end_extent(request);
    e->written = request->blk.written;
    e->len += step_len(request);
    e->steps++;
    if (request->at < request->end && !extents_are_enough(request)) {
        ask(request);
        return;
    }
    end_extent(request);
    nbd_request_over(request, NBD_FAULT_NONE);
}

/* --- the parts of a read --- */

static void add_part(struct nbd_request *request, uint64_t len, bool is_hole)
{
    struct nbd_part *last = request->part_count > 0 ? &request->parts[request->part_count - 1] : NULL;
    if (len == 0)
        return;
    if (last != NULL && last->is_hole == is_hole) {
        last->len += (uint32_t)len;
        return;
    }
    ASSERT(request->part_count < NBD_PARTS_MAX);
    request->parts[request->part_count++] = (struct nbd_part){.len = (uint32_t)len, .is_hole = is_hole};
}

/* A hole [from, to): its whole pages, or to the ends of the client's range. */
static void add_hole(struct nbd_request *request, uint64_t from, uint64_t to)
{
    uint64_t first = from == request->head.off ? from : round_up(from, PAGE_BYTES);
    uint64_t last = to == request->head.off + request->head.len ? to : round_down(to, PAGE_BYTES);
    bool is_any = first < last;
    add_part(request, is_any ? first - from : to - from, false);
    add_part(request, is_any ? last - first : 0, true);
    add_part(request, is_any ? to - last : 0, false);
}

bool nbd_part_next(struct nbd_request *request)
{
    while (request->part_next < request->part_count) {
        const struct nbd_part *part = &request->parts[request->part_next++];
        uint64_t from = request->part_at, block = request->conn->rules.block;
        request->part_at += part->len;
        request->at = round_down(from, block);
        request->end = round_up(from + part->len, block);
        if (!part->is_hole)
            return true;
    }
    return false;
}

static void part_came(struct nbd_request *request)
{
    enum { PARTS_A_STEP = 3 }; /* at most, and one for the rest */
    uint64_t from = MAX(request->blk.off, request->head.off), to = from + step_len(request);
    if (request->blk.written)
        add_part(request, to - from, false);
    else
        add_hole(request, from, to);
    if (request->at < request->end && request->part_count + PARTS_A_STEP < NBD_PARTS_MAX) {
        ask(request);
        return;
    }
    add_part(request, request->head.off + request->head.len - to, false);
    if (nbd_part_next(request))
        nbd_request_go(request, BLK_READ, 0);
    else
        nbd_request_over(request, NBD_FAULT_NONE);
}

/* --- steps --- */

static void came(struct blk_req *blk)
{
    struct nbd_request *request = container_of(blk, struct nbd_request, blk);
    if (blk->status != BLK_OK || nbd_conn_in(request->conn, NBD_GONE)) {
        nbd_request_over(request, nbd_fault_of(blk->status));
        return;
    }
    request->at += blk->extent;
    if (request->head.command == NBD_CMD_READ)
        part_came(request);
    else
        extent_came(request);
}

static void ask(struct nbd_request *request)
{
    struct blkdev *dev = request->conn->export->dev;
    if (request->end > dev->info.size) { /* it shrank since the header was checked */
        nbd_request_over(request, NBD_FAULT_BEYOND_END);
        return;
    }
    uint64_t len = MIN(request->end - request->at, STEP_BYTES);
    request->blk = (struct blk_req){.op = BLK_STATUS, .off = request->at, .len = len, .done = came};
    blk_submit(dev, &request->blk);
}

bool nbd_holes_are_wanted(const struct nbd_request *request)
{
    const struct blkdev_ops *ops = request->conn->export->dev->ops;
    return request->head.len >= HOLES_FROM && request->conn->mode != NBD_SIMPLE &&
           !(request->head.flags & NBD_CMD_DF) && ops->block_status != NULL && !ops->submits_status;
}

void nbd_status_ask(struct nbd_request *request)
{
    request->extents = (struct nbd_extents){0};
    request->part_count = request->part_next = 0;
    request->part_at = request->head.off;
    ask(request);
}
