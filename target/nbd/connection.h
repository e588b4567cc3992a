/*
 * Inside the NBD target: one connection, from its first byte to its last reply.
 *
 *                  GO, EXPORT_NAME           arrived            DISC, end, drain          all answered
 *   NEGOTIATING ---------------------> MOVING -------> SERVING -------------------> ENDING -------------> GONE
 *        |                                                |                            |                   ^
 *        +------------------------------------------------+----------------------------+---- cut ----------+
 *
 *   NEGOTIATING  on the server's loop; handshake.c has the word. No request, no page, no device.
 *   MOVING       the stream is on its way to the device's loop: nobody touches it. An order of the server waits.
 *   SERVING      on the device's loop. receive.c turns bytes into requests, request.c carries them out, reply.c
 *                answers. After the order to end (`refuses`) what comes is answered with ESHUTDOWN, until what came
 *                before is answered.
 *   ENDING       nothing is received any more; what was accepted is finished and answered.
 *   GONE         the stream is closed. Requests still at the device come home; then the server is told, and frees us.
 *
 * Who owns what. A request is in exactly one place: on the free list, `receiving` (at most one: its payload or its
 * pages are not there yet), waiting for its turn (turns.h), at the device, or on the list of replies. Pages belong to
 * the request, from the moment its header was found good until the device has taken a write, or the socket a read.
 *
 * Nothing is allocated after GO. When requests, page vectors or pages run out the connection is `starved`: it stops
 * reading its socket until something comes free.
 *
 * A connection is freed by the server, and told to the server by a task, never from within a call: after nbd_conn_cut()
 * it may still be looked at until the stack has unwound.
 */
#ifndef TARGET_NBD_CONNECTION_H
#define TARGET_NBD_CONNECTION_H

#include "core/sm.h"
#include "target/nbd/handshake.h"
#include "target/nbd/turns.h"
#include "target/nbd/protocol.h"
#include "target/nbd/server.h"

enum nbd_phase { NBD_NEGOTIATING, NBD_MOVING, NBD_SERVING, NBD_ENDING, NBD_GONE };
enum { NBD_PHASE_COUNT = NBD_GONE + 1 };

/* What the server may ask of a connection; a later one overrides an earlier one. */
enum nbd_order { NBD_ORDER_NONE, NBD_ORDER_END, NBD_ORDER_CUT };

enum {
    NBD_INPUT_BYTES = 65536,
    /* Pages of a request that needs no large vector: 128 KiB, the kernel client's longest by default, and an edge. */
    NBD_VECTOR_SMALL = 128 * 1024 / PAGE_BYTES + 1,
    NBD_VECTOR_LARGE = NBD_PAYLOAD_MAX / PAGE_BYTES + 1 + 2, /* and two that the ends of a ragged one are read into */
    NBD_PARTS_MAX = 8,
};

/* A part of a reply: a header, and data from the pages unless it is a hole. */
struct nbd_part {
    uint32_t len; /* bytes that it stands for */
    uint16_t head_len;
    bool is_hole;
};

/* Of a BLOCK_STATUS: what is in the page, and the extent at hand, which may go on. */
struct nbd_extents {
    uint64_t len;
    uint32_t bytes, steps;
    bool written;
};

struct nbd_request {
    STAILQ_ENTRY(nbd_request) link; /* free list or list of replies */
    struct nbd_conn *conn;
    struct nbd_request_header head;
    enum nbd_fault fault;
    uint32_t received; /* payload bytes in the pages, or skipped */
    uint64_t begun_ns;
    uint64_t at, end;   /* what is left of the range that the device is asked for */
    unsigned blk_flags; /* for what it writes */
    unsigned step;      /* ragged.c */
    struct nbd_turn turn;
    struct blk_req blk;

    struct page **pages;            /* `small`, or a large vector of the connection's; NULL: none needed yet */
    uint32_t page_count;            /* pages held */
    uint32_t part_count, part_next; /* part_next: of a read in parts, to be read next */
    uint64_t part_at;               /* ... and where it begins */
    uint64_t reply_len;             /* of all: headers and data */
    uint32_t data_at;               /* in the pages: where the data of the first part begin */
    struct nbd_part parts[NBD_PARTS_MAX];
    struct nbd_extents extents;
    uint8_t heads[NBD_PARTS_MAX * NBD_HOLE_BYTES_MAX]; /* the parts' headers, one behind the other */
    struct page *small[NBD_VECTOR_SMALL];
};
STAILQ_HEAD(nbd_request_list, nbd_request);

/* Bytes received and not yet understood: [start, end). */
struct nbd_input {
    size_t start, end;
    uint8_t bytes[NBD_INPUT_BYTES];
};

/* Where the receiver stands; receive.c. */
enum nbd_expect { NBD_EXPECT_HEADER, NBD_EXPECT_PAGES, NBD_EXPECT_PAYLOAD, NBD_EXPECT_FILTER, NBD_EXPECT_REFUSED };

struct nbd_conn {
    struct stream *stream; /* NULL: closed */
    char peer[64];
    struct loop *loop; /* where the connection lives: written on the server's loop, before it moves */
    struct nbd_server *server;
    const struct nbd_export *export; /* written on the server's loop, before it moves */
    struct nbd_client client;        /* on the server's loop */
    struct sm phase;
    unsigned wanted; /* what the stream was last told */
    struct nbd_input input;
    struct nbd_negotiation negotiation;
    enum nbd_mode mode;

    /* Serving. */
    struct nbd_rules rules;
    struct nbd_request *requests; /* all of them, limits.requests; the first `fresh` have been used */
    uint32_t fresh;
    struct nbd_request_list free_requests;
    struct page **vectors, ***free_vectors; /* all large vectors, and a stack of those that are free */
    uint32_t free_vector_count;
    uint32_t used; /* requests that are not free */

    enum nbd_expect expect;
    struct nbd_request *receiving;
    bool starved; /* input waits for a request, a vector or pages ... */
    uint64_t starved_since_ns;
    bool input_over; /* nothing more is received; what is in `input` still counts */
    bool refuses;    /* requests that begin at refused_from and behind: of received_bytes */
    uint64_t received_bytes, refused_from;
    struct page_waiter pages_wait;
    struct task resume;
    uint32_t batch_left; /* requests; none: it rests until the end of the turn */
    bool batch_is_large;
    bool rests;
    struct task rest;

    struct nbd_request_list replies;
    uint64_t sent; /* bytes of the first reply that are gone */
    bool blocked;  /* the socket takes nothing now */
    struct task flush;

    struct timer stall;
    uint64_t moved_bytes, moved_before; /* to and from the socket; as it was when `stall` was started */
    unsigned still_looks;               /* of `stall` in a row at which nothing had moved */
    unsigned starving_looks;            /* ... or next to nothing, and others had waited for pages since ... */
    uint64_t pool_mark;                 /* ... the look before */

    struct io_stats stats; /* read from the server's loop while they change here */

    /* The server's, on its loop; `order_seen` and `over_told` are the connection's. */
    TAILQ_ENTRY(nbd_conn) link;
    uint32_t id;       /* unlike any other's, for people */
    uint64_t since_s;  /* wall clock: when it connected */
    struct timer drop; /* it was asked to end: until it is cut */
    struct task order_task, over_task, arrived;
    enum nbd_order order, order_wanted;
    struct loop *order_loop; /* where the order goes */
    bool order_underway, over, handed_over;
    enum nbd_order order_seen;
    bool over_told;
};

/* connection.c: the life of a connection. */

/* NULL if memory is short. The caller lists it and then starts it. */
struct nbd_conn *nbd_conn_create(struct nbd_server *server, struct stream *stream, enum nbd_tls tls);
void nbd_conn_free(struct nbd_conn *conn);
/* The options are over: go where the export's device lives. */
void nbd_conn_hand_over(struct nbd_conn *conn, const struct nbd_export *export);
/* Receive nothing more, answer what was accepted, close. */
void nbd_conn_end(struct nbd_conn *conn);
/* Close now. `why` is for the debug log. */
void nbd_conn_cut(struct nbd_conn *conn, const char *why);
/* After each change: is the last reply gone, has the last request come home? */
void nbd_conn_settle(struct nbd_conn *conn);
/* Tell the stream what to call back for. */
void nbd_conn_want(struct nbd_conn *conn, unsigned events);
/* Obey an order of the server; on the connection's loop. */
void nbd_conn_obey(struct nbd_conn *conn, enum nbd_order order);

static inline bool nbd_conn_in(const struct nbd_conn *conn, enum nbd_phase phase)
{
    return sm_state(&conn->phase) == (unsigned)phase;
}

/* The input buffer. */
static inline size_t nbd_input_len(const struct nbd_input *in)
{
    return in->end - in->start;
}
static inline const uint8_t *nbd_input_at(const struct nbd_input *in)
{
    return in->bytes + in->start;
}
/* The free end of the buffer, after what is in it was moved to the front. */
struct iovec nbd_input_room(struct nbd_input *in);

/* receive.c: bytes into requests. */
void nbd_receive_init(struct nbd_conn *conn);
void nbd_receive_readable(struct nbd_conn *conn);
/* What the socket holds now is the last that is accepted; the rest will be refused. */
void nbd_receive_refuse(struct nbd_conn *conn);
/* Go on with what is in the input buffer. */
void nbd_receive_run(struct nbd_conn *conn);
/* Forget the request that is not here in full. */
void nbd_receive_drop(struct nbd_conn *conn);

/* request.c: the pool of requests, and requests at the device. */
int nbd_requests_create(struct nbd_conn *conn); /* 0, -ENOMEM */
void nbd_requests_free(struct nbd_conn *conn);
struct nbd_request *nbd_request_take(struct nbd_conn *conn); /* NULL: none is free */
void nbd_request_release(struct nbd_request *request);
void nbd_request_put_pages(struct nbd_request *request);
/* Give it a place for `count` page pointers, unless it has one; false: no large vector is free. */
bool nbd_request_get_vector(struct nbd_request *request, uint32_t count);
/* Is it a write, or zeroes, that its first or last block must be read for? Pages that this needs. */
static inline bool nbd_is_ragged(const struct nbd_request_header *head, const struct nbd_rules *rules)
{
    return ((head->off | head->len) & (rules->block - 1)) != 0 &&
           (head->command == NBD_CMD_WRITE || head->command == NBD_CMD_WRITE_ZEROES);
}
uint32_t nbd_ragged_pages(const struct nbd_request_header *head);
void nbd_ragged_start(struct nbd_request *request);

void nbd_request_submit(struct nbd_request *request);
/* It is its turn. */
void nbd_request_start(struct nbd_request *request);
/* Ask the device for what is left of the range. */
void nbd_request_go(struct nbd_request *request, enum blk_op op, unsigned flags);
/* The device is done with it. */
void nbd_request_over(struct nbd_request *request, enum nbd_fault fault);

/* status.c: what a range was used for. */
/* Shall a read be asked for its holes first? Never a short one. */
bool nbd_holes_are_wanted(const struct nbd_request *request);
void nbd_status_ask(struct nbd_request *request);
/* The range becomes that of the next part that is to be read; false: all were. */
bool nbd_part_next(struct nbd_request *request);

/* reply.c: replies onto the wire. */
void nbd_reply_init(struct nbd_conn *conn);
/* The request is over: answer with its fault, or success. */
void nbd_reply(struct nbd_request *request);
void nbd_reply_flush(struct nbd_conn *conn);
/* Forget all replies. */
void nbd_reply_drop(struct nbd_conn *conn);

#endif
