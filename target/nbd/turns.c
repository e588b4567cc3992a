/* Who of the writes must wait for whom: see target/nbd/turns.h. */
#include "target/nbd/turns.h"

#include "core/check.h"
#include "target/nbd/connection.h"

#define LAGGARD_NS 1000000000ull

void nbd_turns_init(struct nbd_turns *turns, const struct blkdev *dev)
{
    *turns = (struct nbd_turns){.dev = dev};
    TAILQ_INIT(&turns->writes);
    TAILQ_INIT(&turns->waiting);
}

static struct nbd_turns *turns_of(const struct nbd_request *request)
{
    return request->conn->export->turns;
}

static bool is_laggard(const struct nbd_request *request)
{
    return loop_now_ns(request->conn->loop) - request->turn.came_ns >= LAGGARD_NS;
}

/* In whole blocks. */
static bool overlap(const struct nbd_request *a, const struct nbd_request *b)
{
    uint64_t block = a->conn->rules.block;
    const struct nbd_request_header *x = &a->head, *y = &b->head;
    return round_down(x->off, block) < round_up(y->off + y->len, block) &&
           round_down(y->off, block) < round_up(x->off + x->len, block);
}

/* Does `other` touch the block of this byte, which is not the first one of a block? */
static bool shares_block(const struct nbd_request *other, uint64_t byte)
{
    uint64_t block = other->conn->rules.block, at = round_down(byte, block);
    const struct nbd_request_header *x = &other->head;
    return byte % block != 0 && at < round_up(x->off + x->len, block) && round_down(x->off, block) <= at;
}

/* The blocks at the ends of a ragged one are read and written back; what lies between is written as any other does. */
static bool meets_ends(const struct nbd_request *ragged, const struct nbd_request *other)
{
    const struct nbd_request_header *x = &ragged->head;
    return ragged->turn.is_ragged && (shares_block(other, x->off) || shares_block(other, x->off + x->len));
}

static bool must_wait_for(const struct nbd_request *later, const struct nbd_request *earlier)
{
    if (!overlap(later, earlier))
        return false;
    bool is_left_over = earlier->turn.is_of_ended || is_laggard(earlier);
    return meets_ends(later, earlier) || meets_ends(earlier, later) || (earlier->conn != later->conn && is_left_over);
}

/* Nothing that is at the device, or has waited for longer, stands in its way. */
static bool may_go(const struct nbd_turns *turns, const struct nbd_request *request)
{
    const struct nbd_request *other;
    TAILQ_FOREACH(other, &turns->writes, turn.link)
    if (must_wait_for(request, other))
        return false;
    for (other = TAILQ_FIRST(&turns->waiting); other != NULL && other != request; other = TAILQ_NEXT(other, turn.link))
        if (must_wait_for(request, other))
            return false;
    return true;
}

static void list(struct nbd_turns *turns, struct nbd_request *request, bool waits)
{
    struct nbd_turn *turn = &request->turn;
    turn->is_listed = true;
    turn->is_waiting = waits;
    turn->has_waited |= waits;
    turns->unusual += turn->is_ragged + turn->is_of_ended + turn->has_waited;
    TAILQ_INSERT_TAIL(waits ? &turns->waiting : &turns->writes, request, turn.link);
}

static void unlist(struct nbd_turns *turns, struct nbd_request *request)
{
    struct nbd_turn *turn = &request->turn;
    turn->is_listed = false;
    turns->unusual -= turn->is_ragged + turn->is_of_ended + turn->has_waited;
    TAILQ_REMOVE(turn->is_waiting ? &turns->waiting : &turns->writes, request, turn.link);
}

bool nbd_turn_take(struct nbd_request *request, bool is_ragged)
{
    struct nbd_turns *turns = turns_of(request);
    const struct nbd_request *oldest = TAILQ_FIRST(&turns->writes);
    request->turn.is_ragged = is_ragged;
    request->turn.is_of_ended = request->turn.has_waited = false;
    request->turn.came_ns = loop_now_ns(request->conn->loop);
    bool is_usual = !is_ragged && turns->unusual == 0 && (oldest == NULL || !is_laggard(oldest));
    bool goes = is_usual || may_go(turns, request);
    list(turns, request, !goes);
    return goes;
}

/* Starting one may end it at once, and call us again: look anew after each. */
static void wake(struct nbd_turns *turns)
{
    struct nbd_request *request = TAILQ_FIRST(&turns->waiting);
    while (request != NULL) {
        if (!may_go(turns, request)) {
            request = TAILQ_NEXT(request, turn.link);
            continue;
        }
        unlist(turns, request);
        list(turns, request, false);
        nbd_request_start(request);
        request = TAILQ_FIRST(&turns->waiting);
    }
}

void nbd_turn_over(struct nbd_request *request)
{
    struct nbd_turns *turns = turns_of(request);
    unlist(turns, request);
    if (!TAILQ_EMPTY(&turns->waiting))
        wake(turns);
}

static void mark(struct nbd_turns *turns, struct nbd_turn_list *requests, const struct nbd_conn *conn)
{
    struct nbd_request *request;
    TAILQ_FOREACH(request, requests, turn.link)
    {
        if (request->conn != conn || request->turn.is_of_ended)
            continue;
        request->turn.is_of_ended = true;
        turns->unusual++;
    }
}

void nbd_turns_conn_ends(struct nbd_conn *conn)
{
    struct nbd_turns *turns = conn->export->turns;
    mark(turns, &turns->writes, conn);
    mark(turns, &turns->waiting, conn);
}

void nbd_turns_conn_cut(struct nbd_conn *conn)
{
    struct nbd_turns *turns = conn->export->turns;
    struct nbd_request *request, *next;
    for (request = TAILQ_FIRST(&turns->waiting); request != NULL; request = next) {
        next = TAILQ_NEXT(request, turn.link);
        if (request->conn == conn) {
            unlist(turns, request);
            nbd_request_release(request);
        }
    }
    mark(turns, &turns->writes, conn);
    wake(turns);
}
