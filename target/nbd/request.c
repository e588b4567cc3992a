/*
 * The pool of requests, and requests at the device.
 *
 * A client's request becomes one request of the device, or several in a row where the device takes no longer ones
 * (info.max_request). The pieces meet at page boundaries, so that no page belongs to two of them: a device may replace
 * a page of a read. A TRIM with FUA is a discard and a flush. CACHE is answered at once.
 *
 * The memory of all requests, and of the page vectors of long ones, is taken at GO. A large vector has room for
 * NBD_PAYLOAD_MAX; memory that was never touched costs nothing, so few bytes of it are ever real, and of the requests
 * only as many as were in flight at once.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/check.h"
#include "core/log.h"
#include "target/nbd/connection.h"

enum { REQUESTS_PER_LARGE_VECTOR = 4 };

int nbd_requests_create(struct nbd_conn *conn)
{
    uint32_t count = conn->server->limits.requests, large = MAX(count / REQUESTS_PER_LARGE_VECTOR, 1u);
    conn->requests = calloc(count, sizeof *conn->requests);
    conn->vectors = malloc((size_t)large * NBD_VECTOR_LARGE * sizeof *conn->vectors);
    conn->free_vectors = malloc(large * sizeof *conn->free_vectors);
    if (conn->requests == NULL || conn->vectors == NULL || conn->free_vectors == NULL)
        return -ENOMEM; /* what there is goes with the connection */
    STAILQ_INIT(&conn->free_requests);
    for (uint32_t i = 0; i < large; i++)
        conn->free_vectors[i] = conn->vectors + (size_t)i * NBD_VECTOR_LARGE;
    conn->free_vector_count = large;
    return 0;
}

void nbd_requests_free(struct nbd_conn *conn)
{
    ASSERT(conn->used == 0);
    free(conn->requests);
    free(conn->vectors);
    free(conn->free_vectors);
}

/* The one used last comes first: it is warm. One that never was used is touched when it is needed. */
static struct nbd_request *any_free(struct nbd_conn *conn)
{
    struct nbd_request *request = STAILQ_FIRST(&conn->free_requests);
    if (request != NULL)
        STAILQ_REMOVE_HEAD(&conn->free_requests, link);
    else if (conn->fresh < conn->server->limits.requests)
        request = &conn->requests[conn->fresh++];
    return request;
}

struct nbd_request *nbd_request_take(struct nbd_conn *conn)
{
    struct nbd_request *request = any_free(conn);
    if (request == NULL)
        return NULL;
    request->conn = conn;
    request->begun_ns = loop_now_ns(conn->loop);
    request->received = 0;
    request->pages = NULL;
    request->page_count = 0;
    request->part_count = request->part_next = 0;
    request->turn.is_listed = false;
    conn->used++;
    return request;
}

bool nbd_request_get_vector(struct nbd_request *request, uint32_t count)
{
    struct nbd_conn *conn = request->conn;
    if (request->pages != NULL)
        return true;
    if (count <= NBD_VECTOR_SMALL)
        request->pages = request->small;
    else if (conn->free_vector_count > 0)
        request->pages = conn->free_vectors[--conn->free_vector_count];
    return request->pages != NULL;
}

void nbd_request_put_pages(struct nbd_request *request)
{
    uint32_t count = request->page_count;
    request->page_count = 0;
    page_put_all(request->pages, count);
}

void nbd_request_release(struct nbd_request *request)
{
    struct nbd_conn *conn = request->conn;
    nbd_request_put_pages(request);
    if (request->pages != NULL && request->pages != request->small)
        conn->free_vectors[conn->free_vector_count++] = request->pages;
    STAILQ_INSERT_HEAD(&conn->free_requests, request, link);
    ASSERT(conn->used > 0);
    conn->used--;
}

/* --- at the device --- */

void nbd_request_over(struct nbd_request *request, enum nbd_fault fault)
{
    struct nbd_conn *conn = request->conn;
    request->fault = fault;
    flight_note("nbd done", request->head.cookie, fault);
    if (request->turn.is_listed)
        nbd_turn_over(request);
    if (nbd_conn_in(conn, NBD_GONE)) {
        nbd_request_release(request);
        nbd_conn_settle(conn);
        return;
    }
    nbd_reply(request);
}

static void done(struct blk_req *blk);

static inline bool has_data(enum blk_op op)
{
    return op == BLK_READ || op == BLK_WRITE;
}

/* Bytes of the next piece; where there are further ones it ends at a page boundary. */
static uint64_t piece_len(const struct blkdev *dev, enum blk_op op, uint64_t off, uint64_t left)
{
    uint64_t max = dev->info.max_request;
    if (max == 0 || left <= max || !has_data(op))
        return left;
    return round_down(off + max, PAGE_BYTES) - off;
}

void nbd_request_go(struct nbd_request *request, enum blk_op op, unsigned flags)
{
    struct blkdev *dev = request->conn->export->dev;
    struct blk_req *blk = &request->blk;
    uint64_t off = 0, len = 0;
    if (op != BLK_FLUSH) {
        off = request->at;
        len = piece_len(dev, op, off, request->end - off);
        if (off + len > dev->info.size) { /* the device shrank since the header was checked */
            nbd_request_over(request, NBD_FAULT_BEYOND_END);
            return;
        }
        request->at += len;
    }
    blk->op = op; /* all that an owner sets; the rest is the device's, and clean since it was last done */
    blk->flags = flags;
    blk->off = off;
    blk->len = len;
    blk->pages = has_data(op) ? request->pages + (off / PAGE_BYTES - request->head.off / PAGE_BYTES) : NULL;
    blk->done = done;
    blk_submit(dev, blk);
}

static bool submit_rest(struct nbd_request *request)
{
    enum blk_op op = request->blk.op;
    if (op != BLK_FLUSH && request->at < request->end)
        nbd_request_go(request, op, request->blk.flags);
    else if (request->part_count > 0 && nbd_part_next(request))
        nbd_request_go(request, op, 0);
    else if (op == BLK_DISCARD && (request->head.flags & NBD_CMD_FUA))
        nbd_request_go(request, BLK_FLUSH, 0);
    else
        return false;
    return true;
}

static void done(struct blk_req *blk)
{
    struct nbd_request *request = container_of(blk, struct nbd_request, blk);
    bool goes_on = blk->status == BLK_OK && !nbd_conn_in(request->conn, NBD_GONE);
    if (!goes_on || !submit_rest(request))
        nbd_request_over(request, nbd_fault_of(blk->status));
}

/* How a command reaches the device. */
static const struct {
    enum blk_op op;
    bool can_be_durable, writes;
} ways[] = {
    [NBD_CMD_READ] = {.op = BLK_READ},
    [NBD_CMD_WRITE] = {.op = BLK_WRITE, .writes = true, .can_be_durable = true},
    [NBD_CMD_FLUSH] = {.op = BLK_FLUSH},
    [NBD_CMD_TRIM] = {.op = BLK_DISCARD, .writes = true},
    [NBD_CMD_CACHE] = {.op = BLK_READ},
    [NBD_CMD_WRITE_ZEROES] = {.op = BLK_WRITE_ZEROES, .writes = true, .can_be_durable = true},
    [NBD_CMD_BLOCK_STATUS] = {.op = BLK_STATUS},
};

/* What is read of a range that is not of whole blocks: all that it touches; what is trimmed: those that lie in it
 * whole, for of the others something shall stay. */
static void set_range_in_blocks(struct nbd_request *request)
{
    uint64_t block = request->conn->rules.block;
    if (request->head.command == NBD_CMD_TRIM) {
        request->at = round_up(request->at, block);
        request->end = MAX(round_down(request->end, block), request->at);
    } else {
        request->at = round_down(request->at, block);
        request->end = round_up(request->end, block);
    }
}

/* Nothing is left of a trim; or there is no cache that a range could be read into. */
static bool is_done_at_once(const struct nbd_request *request, enum blk_op op)
{
    return request->head.command == NBD_CMD_CACHE || (op != BLK_FLUSH && request->at == request->end);
}

static inline void start(struct nbd_request *request, enum blk_op op, bool is_ragged)
{
    const struct nbd_request_header *head = &request->head;
    flight_note("nbd submit", head->cookie, head->off);
    if (is_ragged)
        nbd_ragged_start(request);
    else if (op == BLK_STATUS || (op == BLK_READ && head->len > PAGE_BYTES && nbd_holes_are_wanted(request)))
        nbd_status_ask(request);
    else
        nbd_request_go(request, op, request->blk_flags);
}

void nbd_request_start(struct nbd_request *request)
{
    start(request, ways[request->head.command].op, request->turn.is_ragged);
}

void nbd_request_submit(struct nbd_request *request)
{
    const struct nbd_request_header *head = &request->head;
    enum blk_op op = ways[head->command].op;
    bool is_torn = ((head->off | head->len) & (request->conn->rules.block - 1)) != 0;
    request->blk_flags = head->flags & NBD_CMD_FUA && ways[head->command].can_be_durable ? BLK_FUA : 0;
    if (head->flags & NBD_CMD_NO_HOLE)
        request->blk_flags |= BLK_NO_UNMAP;
    request->at = head->off;
    request->end = head->off + head->len;
    if (is_torn)
        set_range_in_blocks(request);
    bool is_ragged = is_torn && nbd_is_ragged(head, &request->conn->rules);
    if (is_done_at_once(request, op))
        nbd_reply(request);
    else if (!ways[head->command].writes || nbd_turn_take(request, is_ragged))
        start(request, op, is_ragged);
}
