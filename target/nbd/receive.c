/*
 * Bytes into requests.
 *
 * A recv brings as much as the socket has: headers and small payloads land in the input buffer and payloads are copied
 * from there into pages; of a long payload what the buffer did not hold yet is received straight into the pages, and
 * whatever follows it into the buffer, by the same scatter recv.
 *
 *   HEADER   28 or 32 bytes and a free request -> checked
 *   PAGES    a good read, write, block status or ragged zeroes: waits for a vector and for pages; it holds none
 *            meanwhile
 *   PAYLOAD  a good write fills its pages -> to the device
 *   FILTER   a block status with a payload, which is short -> checked again
 *   REFUSED  the payload of a bad write is dropped -> answered. (Answered before, its reply could reach a client that
 *            is still sending, which some take for a protocol error.)
 *
 * step() goes from one to the next while bytes, requests and pages last. When a request, a vector or pages are missing
 * the connection is starved, and goes on when reply.c gives a request back, or the pool calls pages_ready().
 *
 * After a batch of requests it rests until the end of the turn, when what the batch brought is sent; then it goes on.
 * So a client that sends many at once has the first answers while the others are worked on, and the two do not wait for
 * each other in turns. Where other connections are at work in the same turn nobody waits anyway: then a batch is a
 * large one, for each costs a send.
 *
 * Fails: a header out of step ends the connection, and so does a write so long that skipping it would be silly.
 */
#include <sys/uio.h>

#include "core/check.h"
#include "core/log.h"
#include "target/nbd/connection.h"
#include "target/nbd/contexts.h"

enum {
    RECEIVES_PER_TURN = 16, /* so that one busy connection leaves the others their turn */
    RECEIVE_VECTORS = 256,  /* entries of one scatter recv */
    BATCH_REQUESTS = 16,
    BATCH_MORE = 48,                /* if others are at work, too */
    BATCH_PAYLOAD = 32 * KIB,       /* so much of a write counts as a request */
    REFUSED_PAYLOAD_MAX = 64 << 20, /* longer payloads are not skipped: the connection ends */
};
#define GIVEN_UP_NS 10000000ull

/* --- headers --- */

/* The client wants no more, or speaks no NBD: what is accepted will be finished. */
static bool stop_receiving(struct nbd_conn *conn)
{
    conn->input.start = conn->input.end = 0;
    conn->input_over = true;
    return false;
}

/* A page for the extents that a block status is answered with. */
static uint32_t pages_for(const struct nbd_request *request)
{
    const struct nbd_request_header *head = &request->head;
    if (head->command == NBD_CMD_READ || !nbd_is_ragged(head, &request->conn->rules))
        return head->command == NBD_CMD_BLOCK_STATUS ? 1 : page_count_for(head->off, head->len);
    return nbd_ragged_pages(head);
}

static enum nbd_expect after_header(const struct nbd_request *request)
{
    if (request->fault != NBD_FAULT_NONE)
        return NBD_EXPECT_REFUSED;
    switch (request->head.command) {
    case NBD_CMD_READ:
    case NBD_CMD_WRITE:
        return NBD_EXPECT_PAGES;
    case NBD_CMD_BLOCK_STATUS:
        return request->head.flags & NBD_CMD_PAYLOAD_LEN ? NBD_EXPECT_FILTER : NBD_EXPECT_PAGES;
    case NBD_CMD_WRITE_ZEROES:
        return nbd_is_ragged(&request->head, &request->conn->rules) ? NBD_EXPECT_PAGES : NBD_EXPECT_HEADER;
    default:
        return NBD_EXPECT_HEADER;
    }
}

/* Of a request whose header was just taken. */
static bool is_refused(const struct nbd_conn *conn)
{
    return conn->refuses && conn->received_bytes - nbd_input_len(&conn->input) > conn->refused_from;
}

/* To the device, as one of a batch. A write takes its client's time, too. */
static void submit(struct nbd_request *request)
{
    struct nbd_conn *conn = request->conn;
    uint32_t weight = 1 + request->received / BATCH_PAYLOAD;
    conn->batch_left -= MIN(weight, conn->batch_left);
    nbd_request_submit(request);
}

/* False: starved, nothing was consumed. */
static bool step_header(struct nbd_conn *conn)
{
    struct nbd_request_header head;
    uint32_t bytes = nbd_request_bytes(conn->mode);
    if (nbd_input_len(&conn->input) < bytes)
        return false;
    if (!nbd_parse_request(nbd_input_at(&conn->input), conn->mode, &head)) {
        log_info("nbd: %s: no request where one should be, disconnecting", conn->peer);
        return stop_receiving(conn);
    }
    if (head.command == NBD_CMD_DISC)
        return stop_receiving(conn);
    struct nbd_request *request = nbd_request_take(conn);
    conn->starved = request == NULL;
    if (conn->starved)
        return false;
    conn->input.start += bytes;
    conn->rules.size = conn->export->dev->info.size;
    request->head = head;
    request->fault = is_refused(conn) ? NBD_FAULT_SHUTDOWN : nbd_request_check(&head, &conn->rules);
    conn->expect = after_header(request);
    if (conn->expect == NBD_EXPECT_HEADER)
        submit(request);
    conn->receiving = conn->expect != NBD_EXPECT_HEADER ? request : NULL;
    return true;
}

/* --- pages and payloads --- */

static struct nbd_request *received(struct nbd_conn *conn)
{
    struct nbd_request *request = conn->receiving;
    conn->receiving = NULL;
    conn->expect = NBD_EXPECT_HEADER;
    return request;
}

static bool pages_are_there(struct nbd_conn *conn)
{
    if (conn->receiving->head.command == NBD_CMD_WRITE)
        conn->expect = NBD_EXPECT_PAYLOAD;
    else
        submit(received(conn));
    return true;
}

static bool step_pages(struct nbd_conn *conn)
{
    struct nbd_request *request = conn->receiving;
    if (request->page_count > 0) /* pages_ready() was here */
        return pages_are_there(conn);
    uint32_t count = pages_for(request);
    bool has_vector = nbd_request_get_vector(request, count);
    if (has_vector && !conn->pages_wait.waiting && page_pool_get(conn->loop->pages, request->pages, count)) {
        request->page_count = count;
        return pages_are_there(conn);
    }
    conn->starved = true;
    conn->pages_wait.count = count;
    if (has_vector && !conn->pages_wait.waiting)
        page_pool_wait(conn->loop->pages, &conn->pages_wait);
    return false;
}

static void pages_ready(struct page_waiter *waiter)
{
    struct nbd_conn *conn = container_of(waiter, struct nbd_conn, pages_wait);
    bool got = page_pool_take(conn->loop->pages, conn->receiving->pages, waiter->count);
    ASSERT(got);
    conn->receiving->page_count = waiter->count;
    if (!conn->resume.queued)
        loop_defer(conn->loop, &conn->resume);
}

static void resume(struct task *task)
{
    struct nbd_conn *conn = container_of(task, struct nbd_conn, resume);
    if (nbd_conn_in(conn, NBD_SERVING))
        nbd_receive_run(conn);
    else
        nbd_conn_settle(conn);
}

static bool step_payload(struct nbd_conn *conn)
{
    struct nbd_request *request = conn->receiving;
    uint32_t part = (uint32_t)MIN(request->head.len - request->received, nbd_input_len(&conn->input));
    pages_copy_in(request->pages, request->head.off % PAGE_BYTES + request->received, nbd_input_at(&conn->input), part);
    conn->input.start += part;
    request->received += part;
    if (request->received < request->head.len)
        return false;
    submit(received(conn));
    return true;
}

static bool step_filter(struct nbd_conn *conn)
{
    struct nbd_request *request = conn->receiving;
    struct nbd_status_filter filter;
    uint32_t payload = (uint32_t)request->head.len;
    if (nbd_input_len(&conn->input) < payload)
        return false;
    bool is_good = nbd_parse_status_filter(nbd_input_at(&conn->input), payload, conn->rules.contexts, &filter);
    conn->input.start += payload;
    request->head.len = is_good ? filter.len : 0;
    request->fault = is_good ? nbd_status_range_check(&request->head, &conn->rules) : NBD_FAULT_FILTER;
    if (request->fault != NBD_FAULT_NONE)
        nbd_reply(received(conn));
    else
        conn->expect = NBD_EXPECT_PAGES;
    return true;
}

static bool step_refused(struct nbd_conn *conn)
{
    struct nbd_request *request = conn->receiving;
    uint64_t payload = nbd_request_payload(&request->head, conn->mode);
    if (payload > REFUSED_PAYLOAD_MAX) {
        log_info("nbd: %s: a payload of %lu bytes, disconnecting", conn->peer, payload);
        nbd_reply(received(conn));
        return stop_receiving(conn);
    }
    uint32_t part = (uint32_t)MIN(payload - request->received, nbd_input_len(&conn->input));
    conn->input.start += part;
    request->received += part;
    if (request->received < payload)
        return false;
    nbd_reply(received(conn));
    return true;
}

/* One step. False: bytes, a request or pages are missing. */
static bool step(struct nbd_conn *conn)
{
    static bool (*const steps[])(struct nbd_conn *) = {
        [NBD_EXPECT_HEADER] = step_header, [NBD_EXPECT_PAGES] = step_pages,     [NBD_EXPECT_PAYLOAD] = step_payload,
        [NBD_EXPECT_FILTER] = step_filter, [NBD_EXPECT_REFUSED] = step_refused,
    };
    return steps[conn->expect](conn);
}

/* It was starved, and its client has given it up: who sends again what was not answered does so elsewhere, and what
 * lies here must not land after that (turns.h). Not asked in a busy moment; nobody is back that soon. */
static bool is_given_up(const struct nbd_conn *conn)
{
    return conn->starved && loop_now_ns(conn->loop) - conn->starved_since_ns >= GIVEN_UP_NS &&
           stream_has_left(conn->stream);
}

static bool may_go_on(struct nbd_conn *conn)
{
    if (conn->batch_left == 0 && !conn->batch_is_large && loop_has_late(conn->loop, &conn->flush)) {
        conn->batch_is_large = true;
        conn->batch_left = BATCH_MORE;
    }
    return conn->batch_left > 0;
}

static void begin_batch(struct nbd_conn *conn)
{
    conn->batch_left = BATCH_REQUESTS;
    conn->batch_is_large = false;
}

static void rest(struct nbd_conn *conn)
{
    conn->rests = true;
    loop_defer_late(conn->loop, &conn->rest);
}

/* Behind all that was ready: what the device answered at once is on the list of replies. */
static void rested(struct task *task)
{
    struct nbd_conn *conn = container_of(task, struct nbd_conn, rest);
    nbd_reply_flush(conn);
    conn->rests = false;
    begin_batch(conn);
    if (nbd_conn_in(conn, NBD_SERVING))
        nbd_receive_run(conn);
    else
        nbd_conn_settle(conn);
}

void nbd_receive_run(struct nbd_conn *conn)
{
    if (conn->rests) {
        nbd_conn_settle(conn);
        return;
    }
    if (is_given_up(conn)) {
        log_debug("nbd: %s: the client left while its requests waited", conn->peer);
        nbd_conn_end(conn); /* what was accepted is answered: it may have left with its sending side only */
        return;
    }
    bool was_starved = conn->starved, went_on = false;
    conn->starved = false;
    while (may_go_on(conn) && step(conn))
        went_on = true;
    if (conn->batch_left == 0)
        rest(conn);
    if (conn->starved && (!was_starved || went_on))
        conn->starved_since_ns = loop_now_ns(conn->loop);
    if (conn->input_over && !conn->starved && !conn->rests)
        nbd_conn_end(conn);
    else
        nbd_conn_settle(conn);
}

/* --- the socket --- */

/* Where the next bytes go: the rest of a payload into its pages, then the buffer. Returns how many bytes of the
 * payload the entries cover. */
static uint64_t receive_vectors(struct nbd_conn *conn, struct iovec *iov, int *count)
{
    struct iovec room = nbd_input_room(&conn->input);
    uint64_t covered = 0, rest = 0;
    *count = 0;
    if (conn->expect == NBD_EXPECT_PAYLOAD) {
        const struct nbd_request *request = conn->receiving;
        uint64_t at = request->head.off % PAGE_BYTES + request->received;
        rest = request->head.len - request->received;
        *count = pages_iovec(request->pages, at, rest, iov, RECEIVE_VECTORS, &covered);
    }
    if (covered == rest)
        iov[(*count)++] = room;
    return covered;
}

/* One recv. False: the socket is empty for now, or the connection is over. */
static bool receive_once(struct nbd_conn *conn)
{
    struct iovec iov[RECEIVE_VECTORS + 1];
    int count;
    uint64_t to_pages = receive_vectors(conn, iov, &count), room = 0;
    for (int i = 0; i < count; i++)
        room += iov[i].iov_len;
    ssize_t got = stream_recv(conn->stream, iov, count);
    if (got == STREAM_AGAIN)
        return false;
    if (got < 0) {
        nbd_conn_cut(conn, "reset by the client");
        return false;
    }
    if (got == 0) {
        conn->input_over = true;
        nbd_receive_run(conn);
        return false;
    }
    conn->moved_bytes += (uint64_t)got;
    conn->received_bytes += (uint64_t)got;
    uint64_t direct = MIN((uint64_t)got, to_pages);
    if (direct > 0)
        conn->receiving->received += (uint32_t)direct;
    conn->input.end += (size_t)got - direct;
    nbd_receive_run(conn);
    return (uint64_t)got == room;
}

static void receive(struct nbd_conn *conn)
{
    for (int i = 0; i < RECEIVES_PER_TURN && !conn->rests; i++) {
        bool more = receive_once(conn);
        if (!more || !nbd_conn_in(conn, NBD_SERVING) || conn->starved)
            return;
    }
}

void nbd_receive_readable(struct nbd_conn *conn)
{
    if (!conn->rests)
        begin_batch(conn);
    receive(conn);
}

void nbd_receive_refuse(struct nbd_conn *conn)
{
    conn->rests = false;
    conn->batch_left = UINT32_MAX;
    if (!conn->starved)
        receive(conn);
    begin_batch(conn);
    if (!nbd_conn_in(conn, NBD_SERVING) || conn->refuses)
        return;
    conn->refuses = true;
    conn->refused_from = conn->received_bytes;
    nbd_receive_run(conn);
}

void nbd_receive_drop(struct nbd_conn *conn)
{
    page_pool_wait_cancel(conn->loop->pages, &conn->pages_wait);
    conn->starved = conn->rests = false;
    if (conn->receiving != NULL)
        nbd_request_release(received(conn));
}

void nbd_receive_init(struct nbd_conn *conn)
{
    conn->received_bytes = nbd_input_len(&conn->input);
    conn->pages_wait.ready = pages_ready;
    conn->resume.run = resume;
    conn->rest.run = rested;
    begin_batch(conn);
}
