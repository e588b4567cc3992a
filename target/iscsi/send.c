/* The sending half of a connection: see send.h. */
#include "target/iscsi/send.h"

#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "target/iscsi/connection.h"

static void batch_clear(struct sender *tx)
{
    tx->iov_count = tx->iov_next = 0;
    tx->pdu_count = 0;
}

static void send_turn(struct task *task)
{
    send_flush(container_of(task, struct connection, tx.task));
}

void send_init(struct connection *conn)
{
    TAILQ_INIT(&conn->tx.queue);
    TAILQ_INIT(&conn->tx.batch);
    conn->tx.task.run = send_turn;
    conn->tx.iov = conn->store->iov;
    conn->tx.pdus = conn->store->pdus;
}

bool send_idle(const struct connection *conn)
{
    return TAILQ_EMPTY(&conn->tx.queue) && TAILQ_EMPTY(&conn->tx.batch) && conn->tx.iov_next == conn->tx.iov_count;
}

void send_queue(struct connection *conn, struct outgoing *out)
{
    ASSERT(out->where == OUT_IDLE);
    out->where = OUT_QUEUED;
    TAILQ_INSERT_TAIL(&conn->tx.queue, out, link);
    if (!conn->tx.stalled)
        loop_defer_late(conn->loop, &conn->tx.task);
}

bool send_cancel(struct connection *conn, struct outgoing *out)
{
    if (out->where == OUT_BATCHED)
        return false;
    if (out->where == OUT_IDLE)
        return true;
    TAILQ_REMOVE(&conn->tx.queue, out, link);
    out->where = OUT_IDLE;
    if (conn->tx.iov_next == conn->tx.iov_count)
        return true;
    out->where = OUT_BATCHED; /* a part of it may be on its way, from pages that must stay */
    out->end = conn->tx.built;
    TAILQ_INSERT_TAIL(&conn->tx.batch, out, link);
    return false;
}

void send_drop(struct connection *conn, struct outgoing *out)
{
    if (out->where == OUT_IDLE)
        return;
    TAILQ_REMOVE(out->where == OUT_QUEUED ? &conn->tx.queue : &conn->tx.batch, out, link);
    out->where = OUT_IDLE;
}

static bool emit_message(struct connection *conn, struct outgoing *out)
{
    struct message *message = container_of(out, struct message, out);
    return send_pdu(conn, message->bhs, &message->payload, message->stat_sn);
}

void send_message(struct connection *conn, struct message *message,
                  void (*sent)(struct connection *, struct outgoing *))
{
    message->out.emit = emit_message;
    message->out.sent = sent;
    send_queue(conn, &message->out);
}

/* --- building --- */

static void iov_add(struct sender *tx, const void *bytes, uint32_t len)
{
    if (len == 0)
        return;
    ASSERT(tx->iov_count < SEND_IOV);
    tx->iov[tx->iov_count++] = (struct iovec){(void *)(uintptr_t)bytes, len};
    tx->built += len;
}

static void stamp(struct connection *conn, uint8_t *bhs, enum stat_sn stat_sn)
{
    uint32_t exp, max;
    connection_window(conn, &exp, &max);
    pdu_stamp(bhs, stat_sn == STAT_NONE ? 0 : conn->stat_sn, exp, max);
    conn->stat_sn += stat_sn == STAT_TAKE;
}

static uint32_t payload_crc(const struct iovec *iov, int count)
{
    uint32_t crc = 0;
    for (int i = 0; i < count; i++)
        crc = crc32c(crc, iov[i].iov_base, iov[i].iov_len);
    return crc;
}

/* Payload and tail behind the header that ends at `at`. Short bytes move into the store of the header. */
static void add_payload(struct sender *tx, uint8_t *start, uint8_t *at, const struct payload *payload, bool digest)
{
    if (payload->pages == NULL && payload->len <= SEND_INLINE_MAX) {
        if (payload->len > 0)
            memcpy(at, payload->bytes, payload->len);
        uint8_t *end = at + payload->len;
        end += pdu_tail(end, payload->len, digest, digest ? crc32c(0, at, payload->len) : 0);
        iov_add(tx, start, (uint32_t)(end - start));
        return;
    }
    iov_add(tx, start, (uint32_t)(at - start));
    int first = tx->iov_count;
    if (payload->pages != NULL) {
        uint64_t covered;
        tx->iov_count +=
            pages_iovec(payload->pages, payload->page_off, payload->len, tx->iov + first, SEND_IOV - first, &covered);
        ASSERT(covered == payload->len);
        tx->built += payload->len;
    } else {
        iov_add(tx, payload->bytes, payload->len);
    }
    uint32_t crc = digest ? payload_crc(tx->iov + first, tx->iov_count - first) : 0;
    iov_add(tx, at, pdu_tail(at, payload->len, digest, crc));
}

bool send_pdu(struct connection *conn, uint8_t bhs[PDU_BHS_BYTES], const struct payload *payload, enum stat_sn stat_sn)
{
    struct sender *tx = &conn->tx;
    uint32_t parts = 2 + (payload->pages != NULL ? page_count_for(payload->page_off, payload->len) : 1);
    if (tx->pdu_count == SEND_PDUS || tx->iov_count + (int)parts > SEND_IOV)
        return false;
    bool login = bhs[0] == PDU_LOGIN_RESPONSE; /* 6.1: digests begin after the login */
    put_be24(bhs + 5, payload->len);
    stamp(conn, bhs, stat_sn);
    uint8_t *start = tx->pdus[tx->pdu_count++].bytes, *at = start + PDU_BHS_BYTES;
    memcpy(start, bhs, PDU_BHS_BYTES);
    if (conn->rx.reader.header_digest && !login) {
        put_le32(at, crc32c(0, start, PDU_BHS_BYTES));
        at += PDU_DIGEST_BYTES;
    }
    add_payload(tx, start, at, payload, conn->rx.reader.data_digest && !login);
    return true;
}

static void batch_build(struct connection *conn)
{
    struct sender *tx = &conn->tx;
    struct outgoing *out;
    while ((out = TAILQ_FIRST(&tx->queue)) != NULL && out->emit(conn, out)) {
        TAILQ_REMOVE(&tx->queue, out, link);
        TAILQ_INSERT_TAIL(&tx->batch, out, link);
        out->where = OUT_BATCHED;
        out->end = tx->built;
    }
}

/* --- sending --- */

static void batch_advance(struct sender *tx, uint64_t len)
{
    tx->sent += len;
    while (len > 0) {
        struct iovec *iov = &tx->iov[tx->iov_next];
        uint64_t part = MIN(len, (uint64_t)iov->iov_len);
        iov->iov_base = (char *)iov->iov_base + part;
        iov->iov_len -= part;
        len -= part;
        tx->iov_next += iov->iov_len == 0;
    }
}

/* Tell those whose last byte has left. Any of them may close the connection. */
static void batch_settle(struct connection *conn)
{
    struct sender *tx = &conn->tx;
    struct outgoing *out;
    while (conn->stream != NULL && (out = TAILQ_FIRST(&tx->batch)) != NULL && out->end <= tx->sent) {
        TAILQ_REMOVE(&tx->batch, out, link);
        out->where = OUT_IDLE;
        out->sent(conn, out);
    }
}

/* One call of the socket; false: it takes no more now, or is gone. */
static bool batch_send(struct connection *conn)
{
    struct sender *tx = &conn->tx;
    ssize_t n = stream_send(conn->stream, tx->iov + tx->iov_next, tx->iov_count - tx->iov_next);
    if (n == STREAM_AGAIN) {
        tx->stalled = true;
        return false;
    }
    if (n < 0) {
        connection_close(conn, "the peer is gone");
        return false;
    }
    batch_advance(tx, (uint64_t)n);
    tx->stalled = tx->iov_next < tx->iov_count; /* took a part: it will take more when writable */
    batch_settle(conn);
    return !tx->stalled;
}

void send_flush(struct connection *conn)
{
    struct sender *tx = &conn->tx;
    while (conn->stream != NULL && connection_phase(conn) != PHASE_MOVING) {
        if (tx->iov_next == tx->iov_count) {
            batch_clear(tx);
            batch_build(conn);
            batch_settle(conn); /* what turned out to have nothing to say */
            if (tx->iov_count == 0 && conn->stream != NULL) {
                tx->stalled = false;
                break;
            }
        }
        if (conn->stream == NULL || !batch_send(conn))
            break;
    }
    if (conn->stream != NULL)
        connection_sent(conn);
}
