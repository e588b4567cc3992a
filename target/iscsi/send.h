/*
 * What a connection sends: a line of things to say, turned into PDUs when they can leave.
 *
 * Whoever has something to say puts an `outgoing` in line (send_queue). At the end of the turn (one late task) the line
 * is emptied into a batch: headers are built in the sender's own store, data stay in the pages or buffers where they
 * are, and one stream_send() takes it all. What the socket does not take goes on when it is writable; only then is the
 * next batch built. `emit` builds PDUs with send_pdu() and returns false when the batch is full: it is called again.
 * `sent` follows when the last byte has left; it may free the owner or end the connection.
 *
 * Sequence numbers are stamped in send_pdu(), thus in the order of the wire.
 */
#ifndef TARGET_ISCSI_SEND_H
#define TARGET_ISCSI_SEND_H

#include <sys/uio.h>

#include "core/loop.h"
#include "core/page.h"
#include "target/iscsi/pdu.h"

struct connection;

struct outgoing {
    TAILQ_ENTRY(outgoing) link;
    bool (*emit)(struct connection *, struct outgoing *);
    void (*sent)(struct connection *, struct outgoing *);
    uint64_t end; /* in the batch: the stream position after its last byte */
    enum { OUT_IDLE, OUT_QUEUED, OUT_BATCHED } where;
};
TAILQ_HEAD(outgoing_list, outgoing);

/* Data of a PDU: bytes that stay where they are, or a range of pages. */
struct payload {
    const void *bytes;
    struct page *const *pages;
    uint64_t page_off;
    uint32_t len;
};

/* 4.2.2.3: which PDUs take a StatSN of their own, and which show the next one. */
enum stat_sn { STAT_NONE, STAT_SHOW, STAT_TAKE };

/* A single PDU to say. */
struct message {
    struct outgoing out;
    uint8_t bhs[PDU_BHS_BYTES];
    struct payload payload;
    enum stat_sn stat_sn;
};

enum { SEND_IOV = 1024, SEND_PDUS = 256, SEND_INLINE_MAX = 72 };

/* One PDU in the batch: header, digest, and short data with its tail behind it. */
struct sent_pdu {
    uint8_t bytes[PDU_BHS_BYTES + PDU_DIGEST_BYTES + SEND_INLINE_MAX + PDU_TAIL_MAX + 1];
};

struct sender {
    struct outgoing_list queue, batch;
    struct iovec *iov; /* SEND_IOV */
    int iov_count, iov_next;
    struct sent_pdu *pdus; /* SEND_PDUS */
    unsigned pdu_count;
    uint64_t built, sent; /* stream positions */
    struct task task;
    bool stalled; /* the socket took no more: wait until it is writable */
};

void send_init(struct connection *conn);
void send_queue(struct connection *conn, struct outgoing *out);
/* Take it out of line. What of it is in the batch already will still be sent: then false, and `sent` will come. */
bool send_cancel(struct connection *conn, struct outgoing *out);
/* Take it out of line whatever is under way: for what has no bytes of its own in the batch. */
void send_drop(struct connection *conn, struct outgoing *out);
void send_message(struct connection *conn, struct message *message,
                  void (*sent)(struct connection *, struct outgoing *));
/* Add a PDU to the batch; false, and nothing done, if it is full. Short `bytes` are copied. */
bool send_pdu(struct connection *conn, uint8_t bhs[PDU_BHS_BYTES], const struct payload *payload, enum stat_sn stat_sn);
void send_flush(struct connection *conn);
bool send_idle(const struct connection *conn);

#endif
