/*
 * The life of a connection: see target/nbd/connection.h for the drawing, and for who owns what.
 *
 * Two ways to end. nbd_conn_end() is the polite one (DISC, the client's end): nothing more is received, what was
 * accepted is answered, then the stream is closed. Before that, a connection that is asked to end (a drain) goes on
 * receiving until it has answered what had come by then, and answers the rest with ESHUTDOWN. nbd_conn_cut() closes the
 * stream at once (a reset, a stream out of step, the grace period is over): replies are dropped, requests at the device
 * come home unanswered. Both lead to GONE; when the last request and the last queued task have come home the server is
 * told.
 *
 * A client that stalls (takes no replies, or does not send the payload it announced) holds pages that others may need.
 * Such a connection is looked at every LOOK_NS. It is cut if at STARVING_LOOKS looks in a row it had moved next to
 * nothing while somebody else waited for pages all the time; if pages are scarce, or it is ending anyway, and it moved
 * nothing in STALL_LOOKS looks. So all that hold up somebody are cut at one time. A client that was merely suspended
 * for a while, with nobody waiting, keeps its connection. One late look is not enough: the loop itself may have been
 * held up, with the data in the socket.
 */
#include "target/nbd/connection.h"

#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"

#define LOOK_NS (1ull * 1000000000)
enum {
    STARVING_LOOKS = 2,
    STALL_LOOKS = 30,
    SCARCE_FRACTION = 8,    /* scarce: less than one page in so many is free */
    CRAWL_BYTES = 16 * KIB, /* less than this in LOOK_NS is next to nothing */
};

static const struct sm_state phase_states[] = {
    [NBD_NEGOTIATING] = {"nbd negotiating", SM_TO(NBD_MOVING) | SM_TO(NBD_GONE)},
    [NBD_MOVING] = {"nbd moving", SM_TO(NBD_SERVING)},
    [NBD_SERVING] = {"nbd serving", SM_TO(NBD_ENDING) | SM_TO(NBD_GONE)},
    [NBD_ENDING] = {"nbd ending", SM_TO(NBD_GONE)},
    [NBD_GONE] = {"nbd gone", 0},
};

static void stall_fire(struct timer *timer);

struct nbd_conn *nbd_conn_create(struct nbd_server *server, struct stream *stream, enum nbd_tls tls)
{
    struct nbd_conn *conn = malloc(sizeof *conn);
    if (conn == NULL)
        return NULL;
    /* All but the buffers, which are written before they are read. */
    memset(conn, 0, offsetof(struct nbd_conn, input));
    conn->input.start = conn->input.end = 0;
    memset(&conn->negotiation, 0, offsetof(struct nbd_negotiation, out));
    memset(&conn->mode, 0, sizeof *conn - offsetof(struct nbd_conn, mode));
    conn->stream = stream;
    text_format(conn->peer, sizeof conn->peer, "%s", stream->peer);
    nbd_client_init(&conn->client, conn->peer, tls);
    conn->loop = server->loop;
    conn->server = server;
    conn->stall.fire = stall_fire;
    sm_init(&conn->phase, phase_states, NBD_PHASE_COUNT, NBD_NEGOTIATING);
    return conn;
}

void nbd_conn_free(struct nbd_conn *conn)
{
    nbd_requests_free(conn);
    free(conn);
}

struct iovec nbd_input_room(struct nbd_input *in)
{
    if (in->start > 0) {
        memmove(in->bytes, in->bytes + in->start, nbd_input_len(in));
        in->end -= in->start;
        in->start = 0;
    }
    return (struct iovec){in->bytes + in->end, NBD_INPUT_BYTES - in->end};
}

void nbd_conn_want(struct nbd_conn *conn, unsigned events)
{
    if (events == conn->wanted)
        return;
    conn->wanted = events;
    stream_want(conn->stream, events);
}

/* --- to the device's loop --- */

static void serve_readable(struct stream *stream)
{
    nbd_receive_readable(stream->owner_data);
}

static void serve_writable(struct stream *stream)
{
    struct nbd_conn *conn = stream->owner_data;
    conn->blocked = false;
    nbd_reply_flush(conn);
}

static const struct stream_owner serving_owner = {serve_readable, serve_writable};

/* Now on the loop of the device. */
static void start_serving(struct task *task)
{
    struct nbd_conn *conn = container_of(task, struct nbd_conn, arrived);
    sm_move(&conn->phase, NBD_SERVING);
    conn->stream->owner = &serving_owner;
    if (conn->order_seen != NBD_ORDER_NONE)
        nbd_conn_obey(conn, conn->order_seen);
    else
        nbd_receive_run(conn); /* a hasty client's requests may be here already */
}

static void set_rules(struct nbd_conn *conn)
{
    const struct nbd_export *export = conn->export;
    const struct nbd_negotiation *n = &conn->negotiation;
    conn->rules = (struct nbd_rules){.size = export->dev->info.size,
                                     .block = export->dev->info.logical_block,
                                     .payload_max = nbd_export_payload_max(export),
                                     .flags = nbd_export_flags(export, conn->mode),
                                     .mode = conn->mode,
                                     .contexts = n->contexts_of == export->name ? n->contexts : 0,
                                     .zero_unit = export->dev->info.optimal_io};
}

void nbd_conn_hand_over(struct nbd_conn *conn, const struct nbd_export *export)
{
    char client[STREAM_NAME_MAX + 1];
    conn->export = export;
    set_rules(conn);
    if (nbd_requests_create(conn) != 0) {
        log_warn("nbd: %s: no memory to serve export \"%s\"", conn->peer, export->name);
        nbd_conn_cut(conn, "no memory");
        return;
    }
    nbd_receive_init(conn);
    nbd_reply_init(conn);
    name_for_people(client, sizeof client, conn->client.proof.names[0]);
    log_info("nbd: %s: serving export \"%s\"%s%s", conn->peer, export->name, client[0] != '\0' ? " to " : "", client);
    nbd_conn_want(conn, 0);
    sm_move(&conn->phase, NBD_MOVING);
    conn->arrived = (struct task){.run = start_serving};
    conn->handed_over = true;
    struct loop *to = export->dev->loop;
    if (conn->loop == to) {
        start_serving(&conn->arrived);
        return;
    }
    conn->loop = to;
    stream_move(conn->stream, to, &conn->arrived);
}

/* --- the end --- */

/* What a client keeps us waiting for. */
static bool waits_for_client(const struct nbd_conn *conn)
{
    return conn->blocked || conn->expect == NBD_EXPECT_PAYLOAD || conn->expect == NBD_EXPECT_FILTER ||
           conn->expect == NBD_EXPECT_REFUSED;
}

static void stall_watch(struct nbd_conn *conn)
{
    if (conn->stall.armed || !waits_for_client(conn))
        return;
    conn->moved_before = conn->moved_bytes;
    conn->still_looks = conn->starving_looks = 0;
    conn->pool_mark = page_pool_mark(conn->loop->pages);
    timer_start(conn->loop, &conn->stall, LOOK_NS);
}

static bool is_stalled(struct nbd_conn *conn)
{
    struct page_pool *pool = conn->loop->pages;
    uint64_t moved = conn->moved_bytes - conn->moved_before;
    bool scarce = page_pool_free(pool) < page_pool_size(pool) / SCARCE_FRACTION;
    bool starving = moved < CRAWL_BYTES && page_pool_waited_since(pool, conn->pool_mark, &conn->pages_wait);
    conn->pool_mark = page_pool_mark(pool);
    conn->moved_before = conn->moved_bytes;
    conn->still_looks = moved == 0 ? conn->still_looks + 1 : 0;
    conn->starving_looks = starving ? conn->starving_looks + 1 : 0;
    return conn->starving_looks >= STARVING_LOOKS ||
           (conn->still_looks >= STALL_LOOKS && (scarce || conn->refuses || nbd_conn_in(conn, NBD_ENDING)));
}

static void stall_fire(struct timer *timer)
{
    struct nbd_conn *conn = container_of(timer, struct nbd_conn, stall);
    if (!waits_for_client(conn))
        return;
    if (!is_stalled(conn)) {
        timer_start(conn->loop, &conn->stall, LOOK_NS);
        return;
    }
    log_notice("nbd: %s: stalled, disconnected", conn->peer);
    nbd_conn_cut(conn, "stalled");
}

void nbd_conn_end(struct nbd_conn *conn)
{
    ASSERT(nbd_conn_in(conn, NBD_SERVING));
    sm_move(&conn->phase, NBD_ENDING);
    nbd_receive_drop(conn);
    nbd_turns_conn_ends(conn);
    nbd_conn_settle(conn);
}

void nbd_conn_cut(struct nbd_conn *conn, const char *why)
{
    ASSERT(!nbd_conn_in(conn, NBD_MOVING) && !nbd_conn_in(conn, NBD_GONE));
    log_debug("nbd: %s: closed: %s", conn->peer, why);
    bool served = !nbd_conn_in(conn, NBD_NEGOTIATING);
    timer_stop(conn->loop, &conn->negotiation.timer);
    timer_stop(conn->loop, &conn->stall);
    stream_close(conn->stream);
    conn->stream = NULL;
    sm_move(&conn->phase, NBD_GONE);
    if (served) {
        nbd_receive_drop(conn);
        nbd_reply_drop(conn);
        nbd_turns_conn_cut(conn);
    }
    nbd_conn_settle(conn);
}

/* A task of its own: the server may free us before this call returns, so nothing below us on the stack may look. */
static void tell_server(struct task *task)
{
    nbd_server_conn_over(container_of(task, struct nbd_conn, over_task));
}

static void settle_gone(struct nbd_conn *conn)
{
    if (conn->over_told || conn->used > 0 || conn->resume.queued || conn->rest.queued || conn->flush.queued)
        return;
    conn->over_told = true;
    conn->over_task = (struct task){.run = tell_server};
    loop_defer(conn->loop, &conn->over_task);
}

/* It was asked to end, and all that it had accepted is answered; but for a request that is not here in full. */
static bool has_served(const struct nbd_conn *conn)
{
    return conn->refuses && !conn->starved && !conn->rests && conn->used == (conn->receiving != NULL);
}

void nbd_conn_settle(struct nbd_conn *conn)
{
    if (nbd_conn_in(conn, NBD_SERVING) && has_served(conn)) {
        nbd_conn_end(conn); /* settles what ends */
        return;
    }
    if (nbd_conn_in(conn, NBD_ENDING) && conn->used == 0)
        nbd_conn_cut(conn, "finished"); /* settles what is gone */
    else if (nbd_conn_in(conn, NBD_GONE))
        settle_gone(conn);
    if (nbd_conn_in(conn, NBD_GONE))
        return;
    bool reads = nbd_conn_in(conn, NBD_SERVING) && !conn->input_over && !conn->starved;
    nbd_conn_want(conn, (reads ? STREAM_READ : 0) | (conn->blocked ? STREAM_WRITE : 0));
    stall_watch(conn);
}

void nbd_conn_obey(struct nbd_conn *conn, enum nbd_order order)
{
    conn->order_seen = order;
    if (nbd_conn_in(conn, NBD_MOVING) || nbd_conn_in(conn, NBD_GONE))
        return; /* start_serving() looks again; or there is nothing left to end */
    if (order == NBD_ORDER_CUT || nbd_conn_in(conn, NBD_NEGOTIATING)) {
        nbd_conn_cut(conn, "the server stops");
    } else if (nbd_conn_in(conn, NBD_SERVING)) {
        nbd_receive_refuse(conn);
    }
}
