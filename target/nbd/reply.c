/*
 * Replies onto the wire.
 *
 * A reply is built when its request is over: so a read that failed has sent nothing yet, and can still be answered
 * with an error. Replies wait in a list until the end of the turn; then one gather send takes as many as there are,
 * headers from the requests, data from the pages where the device put it. What the socket does not take waits for
 * writable(). A request goes back to the pool, and its pages to theirs, when its last byte is gone.
 *
 * Without structured replies an error is a number. With them it is a chunk with a text for people, and the place of a
 * media error; successes without data stay simple replies, as the document allows. With extended headers all is chunks.
 */
#include <sys/uio.h>

#include "core/check.h"
#include "target/nbd/connection.h"

enum { REPLY_VECTORS = 512 }; /* entries of one gather send */

/* Where a media error lies, in the client's range: the device was asked for whole blocks. */
static uint64_t bad_place(const struct nbd_request *request)
{
    const struct nbd_request_header *head = &request->head;
    return MIN(MAX(request->blk.bad_off, head->off), head->off + head->len - 1);
}

static void build(struct nbd_request *request)
{
    const struct nbd_request_header *head = &request->head;
    struct nbd_reply_to to = {request->conn->mode, head->cookie, head->off};
    size_t len;
    request->data_len = 0;
    if (request->fault != NBD_FAULT_NONE) {
        uint64_t bad_off = request->fault == NBD_FAULT_MEDIA ? bad_place(request) : 0;
        len = nbd_build_error(request->reply, &to, request->fault, request->fault == NBD_FAULT_MEDIA ? &bad_off : NULL);
    } else if (head->command == NBD_CMD_READ) {
        request->data_len = (uint32_t)head->len;
        len = nbd_build_data(request->reply, &to, head->off, request->data_len, true);
    } else {
        len = nbd_build_success(request->reply, &to);
    }
    request->reply_len = (uint32_t)len;
}

static void count(struct nbd_request *request)
{
    struct nbd_conn *conn = request->conn;
    struct io_stats *stats = &conn->stats;
    bool reads = request->head.command == NBD_CMD_READ, writes = request->head.command == NBD_CMD_WRITE;
    enum io_kind kind = reads ? IO_READ : writes ? IO_WRITE : IO_OTHER;
    io_stats_answered(stats, kind, loop_now_ns(conn->loop) - request->begun_ns);
    if (request->fault != NBD_FAULT_NONE)
        io_count(&stats->troubles[IO_FAILED], 1);
    else if (reads || writes)
        io_count(reads ? &stats->read_bytes : &stats->written_bytes, request->head.len);
}

void nbd_reply(struct nbd_request *request)
{
    struct nbd_conn *conn = request->conn;
    build(request);
    count(request);
    if (request->data_len == 0)
        nbd_request_put_pages(request);
    STAILQ_INSERT_TAIL(&conn->replies, request, link);
    if (!conn->blocked)
        loop_defer_late(conn->loop, &conn->flush);
}

/* The bytes of one reply from `skip` on. Returns the entries used; *covered: the bytes they stand for. */
static int reply_iovec(const struct nbd_request *request, uint64_t skip, struct iovec *iov, int max, uint64_t *covered)
{
    int count = 0;
    uint64_t in_header = skip < request->reply_len ? request->reply_len - skip : 0;
    uint64_t data_skip = in_header > 0 ? 0 : skip - request->reply_len, in_data = 0;
    if (in_header > 0)
        iov[count++] = (struct iovec){(void *)(uintptr_t)(request->reply + skip), in_header};
    if (request->data_len > data_skip && count < max) {
        uint64_t at = request->head.off % PAGE_BYTES + data_skip;
        count += pages_iovec(request->pages, at, request->data_len - data_skip, iov + count, max - count, &in_data);
    }
    *covered = in_header + in_data;
    return count;
}

/* As many replies as fit into one send: nothing follows one that is not there in full, for then no entry is left. */
static int gather(const struct nbd_conn *conn, struct iovec *iov, uint64_t *total)
{
    int count = 0;
    uint64_t skip = conn->sent, covered;
    const struct nbd_request *request;
    *total = 0;
    STAILQ_FOREACH(request, &conn->replies, link)
    {
        if (count == REPLY_VECTORS)
            break;
        count += reply_iovec(request, skip, iov + count, REPLY_VECTORS - count, &covered);
        *total += covered;
        skip = 0;
    }
    return count;
}

static void consume(struct nbd_conn *conn, uint64_t sent)
{
    struct nbd_request *request;
    conn->sent += sent;
    while ((request = STAILQ_FIRST(&conn->replies)) != NULL) {
        uint64_t len = (uint64_t)request->reply_len + request->data_len;
        if (conn->sent < len)
            return;
        conn->sent -= len;
        STAILQ_REMOVE_HEAD(&conn->replies, link);
        nbd_request_release(request);
    }
}

static void send_once(struct nbd_conn *conn)
{
    struct iovec iov[REPLY_VECTORS];
    uint64_t total;
    int count = gather(conn, iov, &total);
    ssize_t sent = stream_send(conn->stream, iov, count);
    if (sent < 0 && sent != STREAM_AGAIN) {
        nbd_conn_cut(conn, "reset by the client");
        return;
    }
    uint64_t taken = sent > 0 ? (uint64_t)sent : 0;
    conn->moved_bytes += taken;
    conn->blocked = taken < total;
    consume(conn, taken);
}

void nbd_reply_flush(struct nbd_conn *conn)
{
    while (!nbd_conn_in(conn, NBD_GONE) && !conn->blocked && !STAILQ_EMPTY(&conn->replies))
        send_once(conn);
    if (nbd_conn_in(conn, NBD_SERVING) && conn->starved)
        nbd_receive_run(conn);
    else
        nbd_conn_settle(conn);
}

static void flush(struct task *task)
{
    struct nbd_conn *conn = container_of(task, struct nbd_conn, flush);
    nbd_reply_flush(conn);
}

void nbd_reply_drop(struct nbd_conn *conn)
{
    struct nbd_request *request;
    while ((request = STAILQ_FIRST(&conn->replies)) != NULL) {
        STAILQ_REMOVE_HEAD(&conn->replies, link);
        nbd_request_release(request);
    }
}

void nbd_reply_init(struct nbd_conn *conn)
{
    STAILQ_INIT(&conn->replies);
    conn->flush.run = flush;
}
