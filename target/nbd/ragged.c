/*
 * Writes and zeroes that are not of whole blocks. What they leave of their first and last block is read, joined with
 * what they bring, and written back; turns.c keeps all other writes off meanwhile.
 *
 *   READ_FIRST -> READ_LAST -> WRITE_FIRST -> WRITE_LAST -> BODY
 *
 * A step that is not needed is left out. A write joins both ends in the pages of its payload, and BODY writes all of it
 * at once. Zeroes have no payload: each end is written by itself, and BODY zeroes the blocks between.
 *
 * Pages, behind those of a payload: two that the ends are read into and, of zeroes, two that they are written from (the
 * device may have put pages that others have, too, in place of the first two).
 */
#include "core/check.h"
#include "target/nbd/connection.h"

enum { READ_FIRST, READ_LAST, WRITE_FIRST, WRITE_LAST, BODY };

static bool is_write(const struct nbd_request *request)
{
    return request->head.command == NBD_CMD_WRITE;
}

static uint64_t block_of(const struct nbd_request *request)
{
    return request->conn->rules.block;
}

static uint64_t range_end(const struct nbd_request *request)
{
    return request->head.off + request->head.len;
}

/* Where the block of an end begins: of the first or the last byte. */
static uint64_t end_at(const struct nbd_request *request, bool last)
{
    return round_down(last ? range_end(request) - 1 : request->head.off, block_of(request));
}

/* Must the block of this end be read? Once, if both are in the same one. */
static bool is_torn(const struct nbd_request *request, bool last)
{
    bool first_torn = request->head.off % block_of(request) != 0,
         last_torn = range_end(request) % block_of(request) != 0;
    bool is_one = end_at(request, false) == end_at(request, true);
    return last ? last_torn && !(is_one && first_torn) : first_torn;
}

static struct page **read_page(struct nbd_request *request, bool last)
{
    uint32_t payload = is_write(request) ? page_count_for(request->head.off, request->head.len) : 0;
    return &request->pages[payload + last];
}

uint32_t nbd_ragged_pages(const struct nbd_request_header *head)
{
    return head->command == NBD_CMD_WRITE ? page_count_for(head->off, head->len) + 2 : 4;
}

/* The bytes [from, to) of the block that was read, into pages of which the first is that of byte `base`. */
static void keep(struct page **pages, uint64_t base, const struct page *read, uint64_t from, uint64_t to)
{
    if (from < to)
        pages_copy_in(pages, from - round_down(base, PAGE_BYTES), (const char *)read->data + from % PAGE_BYTES,
                      to - from);
}

static void join_payload(struct nbd_request *request)
{
    for (unsigned last = 0; last < 2; last++) {
        if (!is_torn(request, last))
            continue;
        uint64_t at = end_at(request, last), to = at + block_of(request), end = range_end(request);
        const struct page *read = *read_page(request, last);
        keep(request->pages, request->head.off, read, at, MAX(at, MIN(to, request->head.off)));
        keep(request->pages, request->head.off, read, MIN(to, MAX(at, end)), to);
    }
}

static struct page **join_zeroes(struct nbd_request *request, bool last)
{
    uint64_t at = end_at(request, last), to = at + block_of(request);
    uint64_t from = MAX(at, request->head.off), end = MIN(to, range_end(request));
    struct page **page = read_page(request, last) + 2;
    keep(page, at, *read_page(request, last), at, to);
    pages_zero(page, from % PAGE_BYTES, end - from);
    return page;
}

static void done(struct blk_req *blk);

static void submit_end(struct nbd_request *request, enum blk_op op, bool last, struct page **page)
{
    struct blkdev *dev = request->conn->export->dev;
    uint64_t at = end_at(request, last), block = block_of(request);
    if (at + block > dev->info.size) { /* it shrank since the header was checked */
        nbd_request_over(request, NBD_FAULT_NO_ROOM);
        return;
    }
    unsigned flags = op == BLK_WRITE ? request->blk_flags & BLK_FUA : 0;
    request->blk = (struct blk_req){.op = op, .flags = flags, .off = at, .len = block, .pages = page, .done = done};
    blk_submit(dev, &request->blk);
}

static void submit_body(struct nbd_request *request)
{
    uint64_t block = block_of(request), from = request->head.off, to = range_end(request);
    if (is_write(request))
        join_payload(request);
    request->at = is_write(request) ? round_down(from, block) : round_up(from, block);
    request->end = is_write(request) ? round_up(to, block) : round_down(to, block);
    if (request->at < request->end)
        nbd_request_go(request, is_write(request) ? BLK_WRITE : BLK_WRITE_ZEROES, request->blk_flags);
    else
        nbd_request_over(request, NBD_FAULT_NONE);
}

static bool is_needed(const struct nbd_request *request, unsigned step)
{
    switch (step) {
    case READ_FIRST:
    case READ_LAST:
        return is_torn(request, step == READ_LAST);
    case WRITE_FIRST:
    case WRITE_LAST:
        return !is_write(request) && is_torn(request, step == WRITE_LAST);
    default:
        return true;
    }
}

static void go_on(struct nbd_request *request)
{
    while (!is_needed(request, request->step))
        request->step++;
    unsigned step = request->step++;
    bool last = step == READ_LAST || step == WRITE_LAST;
    if (step == BODY)
        submit_body(request);
    else if (step == READ_FIRST || step == READ_LAST)
        submit_end(request, BLK_READ, last, read_page(request, last));
    else
        submit_end(request, BLK_WRITE, last, join_zeroes(request, last));
}

static void done(struct blk_req *blk)
{
    struct nbd_request *request = container_of(blk, struct nbd_request, blk);
    if (blk->status != BLK_OK || nbd_conn_in(request->conn, NBD_GONE))
        nbd_request_over(request, nbd_fault_of(blk->status));
    else
        go_on(request);
}

void nbd_ragged_start(struct nbd_request *request)
{
    request->step = READ_FIRST;
    go_on(request);
}
