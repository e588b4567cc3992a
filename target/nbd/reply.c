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
#include "target/nbd/contexts.h"

enum { REPLY_VECTORS = 512 }; /* entries of one gather send */

/* Where a media error lies, in the client's range: the device was asked for whole blocks. */
static const uint64_t *bad_place(struct nbd_request *request)
{
    const struct nbd_request_header *head = &request->head;
    if (request->fault != NBD_FAULT_MEDIA)
        return NULL;
    request->blk.bad_off = MIN(MAX(request->blk.bad_off, head->off), head->off + head->len - 1);
    return &request->blk.bad_off;
}

/* A read that is answered in parts, as status.c found them. */
static void build_parts(struct nbd_request *request)
{
    enum nbd_mode mode = request->conn->mode;
    const struct nbd_request_header *head = &request->head;
    uint8_t *out = request->heads;
    uint64_t off = head->off;
    request->reply_len = 0;
    for (uint32_t i = 0; i < request->part_count; i++) {
        struct nbd_part *part = &request->parts[i];
        bool is_last = i + 1 == request->part_count;
        size_t head_len = part->is_hole ? nbd_build_hole(out, mode, head, off, part->len, is_last)
                                        : nbd_build_data(out, mode, head, off, part->len, is_last);
        part->head_len = (uint16_t)head_len;
        request->reply_len += head_len + (part->is_hole ? 0 : part->len);
        out += head_len;
        off += part->len;
    }
}

/* A reply of one header, and `*len` bytes from the pages. */
static size_t build_one(struct nbd_request *request, uint32_t *len)
{
    enum nbd_mode mode = request->conn->mode;
    const struct nbd_request_header *head = &request->head;
    *len = 0;
    if (request->fault != NBD_FAULT_NONE)
        return nbd_build_error(request->heads, mode, head, request->fault, bad_place(request));
    if (head->command == NBD_CMD_READ) {
        *len = (uint32_t)head->len;
        return nbd_build_data(request->heads, mode, head, head->off, *len, true);
    }
    if (head->command != NBD_CMD_BLOCK_STATUS)
        return nbd_build_success(request->heads, mode, head);
    *len = request->extents.bytes;
    request->data_at = 0;
    return nbd_build_status(request->heads, mode, head, nbd_contexts[0].id, *len);
}

static void build(struct nbd_request *request)
{
    uint32_t len;
    request->data_at = request->head.off % PAGE_BYTES;
    if (request->part_count > 0 && request->fault == NBD_FAULT_NONE) {
        build_parts(request);
        if (request->part_count == 1 && request->parts[0].is_hole)
            nbd_request_put_pages(request);
        return;
    }
    size_t head_len = build_one(request, &len);
    struct nbd_part *part = &request->parts[0];
    request->part_count = 1;
    part->len = len;
    part->head_len = (uint16_t)head_len;
    part->is_hole = false;
    request->reply_len = head_len + len;
    if (len == 0)
        nbd_request_put_pages(request);
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
    STAILQ_INSERT_TAIL(&conn->replies, request, link);
    if (!conn->blocked)
        loop_defer_late(conn->loop, &conn->flush);
}

/* The bytes of one reply from `skip` on, whatever its parts. Returns the entries used; *covered: the bytes they stand
 * for. */
static int parts_iovec(const struct nbd_request *request, uint64_t skip, struct iovec *iov, int max, uint64_t *covered)
{
    int count = 0;
    const uint8_t *head = request->heads;
    uint64_t at = request->data_at;
    *covered = 0;
    for (uint32_t i = 0; i < request->part_count && count < max; i++) {
        const struct nbd_part *part = &request->parts[i];
        uint64_t data_len = part->is_hole ? 0 : part->len, in_data = 0;
        if (skip < part->head_len) {
            iov[count++] = (struct iovec){(void *)(uintptr_t)(head + skip), part->head_len - skip};
            *covered += part->head_len - skip;
        }
        skip -= MIN(skip, part->head_len);
        if (skip < data_len && count < max)
            count += pages_iovec(request->pages, at + skip, data_len - skip, iov + count, max - count, &in_data);
        *covered += in_data;
        skip -= MIN(skip, data_len);
        head += part->head_len;
        at += part->len;
    }
    return count;
}

/* The same, and short for what is nearly all: one part, from its beginning. */
static int reply_iovec(const struct nbd_request *request, uint64_t skip, struct iovec *iov, int max, uint64_t *covered)
{
    const struct nbd_part *part = &request->parts[0];
    uint64_t in_data = 0;
    int count = 1;
    if (skip > 0 || request->part_count > 1 || part->is_hole)
        return parts_iovec(request, skip, iov, max, covered);
    iov[0] = (struct iovec){(void *)(uintptr_t)request->heads, part->head_len};
    if (part->len > 0 && max > 1)
        count += pages_iovec(request->pages, request->data_at, part->len, iov + 1, max - 1, &in_data);
    *covered = part->head_len + in_data;
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
        if (conn->sent < request->reply_len)
            return;
        conn->sent -= request->reply_len;
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
