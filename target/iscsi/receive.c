/*
 * The receiving half of a connection.
 *
 * recv goes into one buffer, from which PDUs are cut (pdu_reader) until it is empty; small data are copied from there
 * to where they belong. When much of a data segment is still to come, recv goes straight into the pages, with a little
 * of the buffer behind them for the next header. The buffer is always empty when recv is called.
 *
 * Reading stops (connection_reads) when the next PDU could not be dealt with: no pages for its data, no notice for a
 * Reject, a login reply not sent yet, moving, ending. Bytes in the buffer wait there.
 */
#include <string.h>

#include "core/check.h"
#include "target/iscsi/connection.h"

enum {
    DIRECT_MIN = 4096,  /* less of a segment than this is not worth an iovec of its own */
    DIRECT_TAIL = 1024, /* of the buffer, behind data that go to pages: the next header and a little */
    DIRECT_IOV = MAX_RECV_OURS / PAGE_BYTES + 2,
    RECEIVES = 16, /* a turn: others want to be served too */
};

static uint32_t buffered(const struct receiver *rx)
{
    return rx->end - rx->start;
}

/* `len` more bytes stand in the command's pages. */
static void stored(struct connection *conn, uint32_t len)
{
    struct receiver *rx = &conn->rx;
    rx->at += len;
    rx->room -= len;
    rx->stored += len;
    rx->command->moved_ns = loop_now_ns(conn->loop);
}

/* `len` bytes of data stand in the buffer: keep what has room. */
static void data_store(struct connection *conn, uint32_t len)
{
    struct receiver *rx = &conn->rx;
    const uint8_t *from = rx->buffer + rx->start;
    uint32_t kept = MIN(len, rx->room);
    pdu_reader_moved(&rx->reader, from, len);
    rx->start += len;
    if (kept == 0)
        return;
    if (rx->sink == SINK_LOGIN) {
        memcpy(conn->text + rx->at, from, kept);
        rx->at += kept;
        rx->room -= kept;
    } else {
        pages_copy_in(rx->command->pages, rx->at, from, kept);
        stored(conn, kept);
    }
}

/* Deal with one piece of the buffer; false: more bytes are needed. */
static bool parse_step(struct connection *conn)
{
    struct receiver *rx = &conn->rx;
    enum pdu_event event;
    rx->start += (uint32_t)pdu_reader_take(&rx->reader, rx->buffer + rx->start, buffered(rx), &event);
    switch (event) {
    case PDU_MORE:
        return false;
    case PDU_HEADER:
        connection_header(conn);
        return true;
    case PDU_DATA: {
        uint32_t len = MIN(buffered(rx), rx->reader.data_left);
        if (len > 0)
            data_store(conn, len);
        return len > 0;
    }
    case PDU_COMPLETE:
    case PDU_BAD_DATA:
        connection_complete(conn, event == PDU_COMPLETE);
        return true;
    case PDU_BAD_HEADER:
        rx->command = NULL;
        connection_bad_digest(conn);
        connection_close(conn, "wrong header digest"); /* 7.8: where the next PDU begins is not known */
        return false;
    }
    UNREACHABLE("event of the reader");
}

static bool goes_direct(const struct receiver *rx)
{
    return rx->reader.part == PDU_IN_DATA && rx->sink == SINK_COMMAND &&
           MIN(rx->room, rx->reader.data_left) >= DIRECT_MIN;
}

/* What was received straight into pages is told to the reader. */
static void direct_moved(struct connection *conn, const struct iovec *iov, uint32_t len)
{
    if (len > 0)
        stored(conn, len);
    for (; len > 0; iov++) {
        uint32_t part = MIN(len, (uint32_t)iov->iov_len);
        pdu_reader_moved(&conn->rx.reader, iov->iov_base, part);
        len -= part;
    }
}

/* One recv; false: nothing more now. */
static bool receive_some(struct connection *conn)
{
    struct receiver *rx = &conn->rx;
    struct iovec iov[DIRECT_IOV + 1];
    uint64_t direct = 0;
    int count = 0;
    ASSERT(buffered(rx) == 0);
    rx->start = rx->end = 0;
    if (goes_direct(rx))
        count = pages_iovec(rx->command->pages, rx->at, MIN(rx->room, rx->reader.data_left), iov, DIRECT_IOV, &direct);
    uint32_t behind = direct == 0 ? RECEIVE_BYTES : direct == rx->reader.data_left ? DIRECT_TAIL : 0;
    if (behind > 0)
        iov[count++] = (struct iovec){rx->buffer, behind};
    ssize_t n = stream_recv(conn->stream, iov, count);
    if (n == STREAM_AGAIN)
        return false;
    if (n <= 0) {
        connection_close(conn, n == 0 ? "the peer closed the connection" : "the connection broke");
        return false;
    }
    conn->heard_ns = loop_now_ns(conn->loop);
    conn->pinged = false; /* whatever it says, it lives */
    uint32_t in_pages = (uint32_t)MIN((uint64_t)n, direct);
    direct_moved(conn, iov, in_pages);
    rx->end = (uint32_t)n - in_pages;
    return (uint64_t)n == direct + behind;
}

void receive_run(struct connection *conn)
{
    bool more = true;
    for (unsigned i = 0; more && i < RECEIVES; i++) {
        while (connection_reads(conn) && parse_step(conn))
            ;
        if (!connection_reads(conn))
            break;
        more = receive_some(conn);
    }
    while (connection_reads(conn) && parse_step(conn))
        ;
    if (conn->stream != NULL)
        connection_want(conn);
}

void receive_forget(struct connection *conn, struct command *cmd)
{
    struct receiver *rx = &conn->rx;
    if (rx->command != cmd)
        return;
    rx->command = NULL;
    rx->burst = NULL;
    rx->room = 0;
    rx->sink = SINK_DISCARD;
    if (rx->blocked && !conn->resume_task.queued)
        loop_defer(conn->loop, &conn->resume_task);
    rx->blocked = false;
}
