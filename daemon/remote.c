/*
 * The device: requests into steps, steps to the session, and what is left when the session is lost. See
 * daemon/remote.h.
 *
 *      submit --> waiting --> an op (slot) --> step --> session --> answered --> next step | complete
 *                                ^                         |
 *                                +-------- stalled <-------+  not done: the session was lost, or is busy
 *
 * A step is what one command of the protocol does. A read that meets a media error is repeated in smaller and smaller
 * steps, until the block that is bad is known. Zeroes that the other side cannot write by itself are sent.
 *
 * Everything runs on the reactor, but for `connector`: a thread started when a session is first lost.
 */
#include "daemon/remote.h"

#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "core/sm.h"
#include "daemon/helpers.h"
#include "daemon/remote_uri.h"

enum { BOUNCES = 16, ZEROES = 64 * 1024, TRIES = 50 /* of a step that was not done */ };
#define TICK_NS        200000000ull
#define ANSWER_NS      6000000000ull  /* R4 */
#define SEARCH_NS      5000000000ull  /* for a session lost, while requests wait, before the disk counts as gone */
#define SEARCH_IDLE_NS 20000000000ull /* while none does */
#define ZERO_NS_BYTE   64             /* as raid/patience.h has it */

enum remote_state { REMOTE_JOINED, REMOTE_SEARCHING, REMOTE_GONE };
static const struct sm_state states[] = {
    [REMOTE_JOINED] = {"joined", SM_TO(REMOTE_SEARCHING) | SM_TO(REMOTE_GONE)},
    [REMOTE_SEARCHING] = {"searching", SM_TO(REMOTE_JOINED) | SM_TO(REMOTE_GONE)},
    [REMOTE_GONE] = {"gone", 0},
};

/* A request at work. */
struct slot {
    struct remote_op op; /* the step under way */
    struct blk_req *req;
    uint64_t at, end;    /* of the request, device offsets: what is still to do */
    uint64_t narrow_end; /* read: a bad block lies before this */
    unsigned level;      /* read: how small the steps are */
    unsigned volatiles;  /* steps that a flush must make durable */
    bool flushing;       /* FUA that the other side does not know: a flush follows */
    uint8_t *bounce;     /* one run of memory for the bytes of the request's step; NULL: its pages are one */
    unsigned tries;
    uint64_t began_ns, covers; /* flush: so many writes were over when it began */
    TAILQ_ENTRY(slot) link;    /* free, flying or stalled */
};
TAILQ_HEAD(slot_list, slot);

struct remote {
    struct blkdev dev;
    struct reactor *reactor;
    char *uri;
    bool member;
    struct sm state;
    atomic_bool gone;
    struct remote_session *session; /* NULL unless JOINED */
    struct remote_facts facts;
    struct event read_event, write_event;
    bool watching, write_wanted;
    struct task late; /* send what was issued in this turn */
    struct timer tick;
    uint64_t heard_ns;
    uint64_t give_up_ns;       /* searching: when */
    uint64_t written, flushed; /* writes over, and those of them that a flush has covered: R1 */
    struct remote_canary canaries[REMOTE_CANARIES];
    struct blk_req_list waiting;
    struct slot_list free, flying, stalled;
    struct slot *slots;
    uint8_t *bounces[BOUNCES]; /* free ones first */
    unsigned bounces_free;
    uint8_t *bounce_memory;
    /* Searching. */
    struct helpers *connector;
    struct helper_job job;
    bool searching;               /* the job is under way */
    struct remote_session *found; /* the job's, as is the rest */
    struct remote_canary seen[REMOTE_CANARIES];
    char job_why[200];
    char why[200]; /* the last search was in vain */
    struct task *closed;
};

static const struct blkdev_ops nbd_ops, iscsi_ops;

static struct remote *remote_of(struct blkdev *dev)
{
    return container_of(dev, struct remote, dev);
}

static enum remote_state state_of(const struct remote *r)
{
    return (enum remote_state)sm_state(&r->state);
}

static uint64_t now(const struct remote *r)
{
    return loop_now_ns(r->dev.loop);
}

static void tick_start(struct remote *r)
{
    if (!r->tick.armed)
        timer_start(r->dev.loop, &r->tick, TICK_NS);
}

/* --- the descriptor --- */

static void watch_as_wanted(struct remote *r)
{
    bool want = r->session->driver->events(r->session) & POLLOUT;
    if (want && !r->write_wanted)
        event_add(&r->write_event, NULL);
    else if (!want && r->write_wanted)
        event_del(&r->write_event);
    r->write_wanted = want;
}

static void unwatch(struct remote *r)
{
    if (!r->watching)
        return;
    event_del(&r->read_event);
    event_del(&r->write_event);
    r->watching = r->write_wanted = false;
}

/* --- the end of a request --- */

static void slot_free(struct remote *r, struct slot *slot)
{
    if (slot->bounce != NULL)
        r->bounces[r->bounces_free++] = slot->bounce;
    slot->bounce = NULL;
    slot->req = NULL;
    TAILQ_INSERT_HEAD(&r->free, slot, link);
}

static void slot_complete(struct remote *r, struct slot *slot, enum blk_status status)
{
    if (status == BLK_MEDIA)
        blk_complete_media(slot->req, slot->op.off);
    else
        blk_complete(slot->req, status);
    slot_free(r, slot);
}

/* --- the session is lost --- */

static void all_gone(struct remote *r, struct slot_list *list)
{
    struct slot *slot;
    while ((slot = TAILQ_FIRST(list)) != NULL) {
        TAILQ_REMOVE(list, slot, link);
        slot_complete(r, slot, BLK_GONE);
    }
}

static void go_gone(struct remote *r, const char *why)
{
    struct blk_req *req;
    sm_move(&r->state, REMOTE_GONE);
    atomic_store(&r->gone, true);
    if (r->member)
        log_error("disk %s is gone: %s", r->uri, why);
    all_gone(r, &r->flying);
    all_gone(r, &r->stalled);
    while ((req = STAILQ_FIRST(&r->waiting)) != NULL) {
        STAILQ_REMOVE_HEAD(&r->waiting, link);
        blk_complete(req, BLK_GONE);
    }
    timer_stop(r->dev.loop, &r->tick);
}

static bool somebody_waits(const struct remote *r)
{
    return !STAILQ_EMPTY(&r->waiting) || !TAILQ_EMPTY(&r->stalled);
}

static bool writes_under_way(const struct slot_list *list)
{
    const struct slot *slot;
    TAILQ_FOREACH(slot, list, link)
    if (blk_op_writes(slot->req->op))
        return true;
    return false;
}

static void search_work(struct helper_job *job)
{
    struct remote *r = container_of(job, struct remote, job);
    r->found = remote_connect(r->uri, true, r->seen, r->job_why, sizeof r->job_why);
}

static void search_over(struct task *task);

static void search(struct remote *r)
{
    if (r->connector == NULL)
        r->connector = helpers_create(1);
    if (r->connector == NULL) {
        go_gone(r, "no thread to look for it");
        return;
    }
    memcpy(r->seen, r->canaries, sizeof r->seen);
    r->searching = true;
    r->job = (struct helper_job){.work = search_work, .done.run = search_over, .home = r->dev.loop};
    helpers_submit(r->connector, &r->job);
}

static void lose(struct remote *r, const char *why)
{
    char text[256];
    bool doubt = r->written != r->flushed || writes_under_way(&r->flying) || writes_under_way(&r->stalled);
    text_format(text, sizeof text, "%s", why[0] != '\0' ? why : "the connection was lost");
    unwatch(r);
    r->session->driver->end(r->session, true);
    r->session = NULL;
    if (doubt || !r->member) {
        text_format(text + strlen(text), sizeof text - strlen(text), "%s",
                    doubt ? "; what was written last is in doubt" : "");
        go_gone(r, text);
        return;
    }
    log_warn("disk %s: %s; trying again", r->uri, text);
    sm_move(&r->state, REMOTE_SEARCHING);
    TAILQ_CONCAT(&r->stalled, &r->flying, link);
    r->give_up_ns = now(r) + (somebody_waits(r) ? SEARCH_NS : SEARCH_IDLE_NS);
    tick_start(r);
    search(r);
}

const char *remote_differs(const struct remote_facts *was, const struct remote_facts *is)
{
    if (is->info.size != was->info.size || is->info.logical_block != was->info.logical_block)
        return "it came back with another size";
    if (is->info.read_only && !was->info.read_only)
        return "it came back read-only";
    if (is->info.volatile_cache && !was->info.volatile_cache) /* it would not be flushed: the array counts on that */
        return "it came back with a volatile cache";
    return strcmp(is->identity, was->identity) != 0 ? "another disk came back in its place" : NULL;
}

/* R3. NULL, or what is wrong. */
static const char *another_disk(const struct remote *r, const struct remote_facts *facts)
{
    const char *wrong = remote_differs(&r->facts, facts);
    if (wrong != NULL)
        return wrong;
    for (unsigned i = 0; i < REMOTE_CANARIES; i++)
        if (r->canaries[i].known && memcmp(r->canaries[i].bytes, r->seen[i].bytes, PAGE_BYTES) != 0)
            return "it came back with another label: somebody else has written to it";
    return NULL;
}

static void join(struct remote *r, struct remote_session *session);
static void close_soon(struct remote *r);

static void search_over(struct task *task)
{
    struct remote *r = container_of(task, struct remote, job.done);
    struct remote_session *found = r->found;
    const char *wrong = found != NULL && r->closed == NULL ? another_disk(r, &found->facts) : NULL;
    r->searching = false;
    r->found = NULL;
    memcpy(r->why, r->job_why, sizeof r->why);
    if (found != NULL && (wrong != NULL || r->closed != NULL || state_of(r) != REMOTE_SEARCHING)) {
        found->driver->end(found, false);
        found = NULL;
    }
    if (r->closed != NULL)
        close_soon(r);
    else if (state_of(r) != REMOTE_SEARCHING)
        return;
    else if (wrong != NULL)
        go_gone(r, wrong);
    else if (found != NULL)
        join(r, found);
}

/* --- steps --- */

/* A read's steps become smaller with each media error that they meet. */
static uint64_t step_len(const struct remote *r, const struct slot *slot)
{
    const uint64_t levels[] = {r->facts.transfer_max, 256 * KIB, 16 * KIB, r->dev.info.logical_block};
    uint64_t left = slot->end - slot->at;
    if (slot->req->op == BLK_READ)
        return MIN(left, MAX(levels[slot->level], (uint64_t)r->dev.info.logical_block));
    if (slot->req->op == BLK_WRITE)
        return MIN(left, r->facts.transfer_max);
    if (slot->req->op == BLK_DISCARD)
        return MIN(left, r->facts.discard_max);
    return MIN(left, r->facts.zero_max != 0 ? r->facts.zero_max : MIN(r->facts.transfer_max, (uint64_t)ZEROES));
}

/* Where byte `off` of the device stands in a request's pages. */
static uint64_t in_pages(const struct blk_req *req, uint64_t off)
{
    return req->off % PAGE_BYTES + (off - req->off);
}

/* Does the driver want one run of memory, and the request has several? */
static bool wants_bounce(const struct remote *r, const struct blk_req *req)
{
    struct iovec two[2];
    uint64_t covered;
    return r->bounce_memory != NULL && blk_op_has_data(req->op) &&
           pages_iovec(req->pages, in_pages(req, req->off), req->len, two, 2, &covered) > 1;
}

/* Where the bytes of a transfer are. */
static void step_memory(struct slot *slot)
{
    const struct blk_req *req = slot->req;
    struct remote_op *op = &slot->op;
    uint64_t covered;
    if (slot->bounce == NULL) {
        op->iov_count = pages_iovec(req->pages, in_pages(req, op->off), op->len, op->iov, REMOTE_IOVECS, &covered);
        return;
    }
    op->iov[0] = (struct iovec){slot->bounce, op->len};
    op->iov_count = 1;
    if (req->op == BLK_WRITE)
        pages_copy_out(slot->bounce, req->pages, in_pages(req, op->off), op->len);
}

/* What the next command does. */
static void step_prepare(struct remote *r, struct slot *slot)
{
    static const uint8_t zeroes[ZEROES] __attribute__((aligned(PAGE_BYTES)));
    struct remote_op *op = &slot->op;
    op->op = slot->req->op;
    op->flags = slot->req->flags & (BLK_FUA | BLK_NO_UNMAP);
    op->again = false;
    op->off = slot->at;
    op->len = slot->at < slot->end ? step_len(r, slot) : 0;
    op->iov_count = 0;
    if (slot->flushing)
        op->op = BLK_FLUSH;
    if (op->op == BLK_WRITE_ZEROES && r->facts.zero_max == 0) {
        op->op = BLK_WRITE;
        op->iov[0] = (struct iovec){(void *)(uintptr_t)zeroes, op->len};
        op->iov_count = 1;
    } else if (blk_op_has_data(op->op)) {
        step_memory(slot);
    }
}

static void step_stall(struct remote *r, struct slot *slot)
{
    TAILQ_INSERT_TAIL(&r->stalled, slot, link);
    tick_start(r);
}

static void step_issue(struct remote *r, struct slot *slot)
{
    if (state_of(r) != REMOTE_JOINED) {
        step_stall(r, slot);
        return;
    }
    step_prepare(r, slot);
    slot->began_ns = now(r);
    slot->covers = r->written;
    if (TAILQ_EMPTY(&r->flying))
        r->heard_ns = now(r);
    TAILQ_INSERT_TAIL(&r->flying, slot, link);
    tick_start(r);
    if (r->session->driver->issue(r->session, &slot->op))
        loop_defer_late(r->dev.loop, &r->late);
    else
        lose(r, r->session->why);
}

/* --- answers --- */

/* The bytes at which labels begin, as they are now. */
static void canaries_note(struct remote *r, const struct slot *slot)
{
    const struct blk_req *req = slot->req;
    for (unsigned i = 0; i < REMOTE_CANARIES; i++) {
        uint64_t off = remote_canary_off[i];
        bool covered =
            blk_op_has_data(req->op) && slot->op.off <= off && off + PAGE_BYTES <= slot->op.off + slot->op.len;
        bool touched = slot->op.off < off + PAGE_BYTES && off < slot->op.off + slot->op.len;
        if (covered)
            pages_copy_out(r->canaries[i].bytes, req->pages, in_pages(req, off), PAGE_BYTES);
        if (covered || (touched && blk_op_writes(req->op)))
            r->canaries[i].known = covered;
    }
}

static void note_write(struct remote *r, struct slot *slot)
{
    bool fua = slot->op.op == BLK_WRITE_ZEROES ? r->facts.zero_fua : r->facts.fua;
    bool durable = !r->dev.info.volatile_cache || (slot->op.flags & BLK_FUA && fua);
    r->written += !durable;
    slot->volatiles += !durable;
    slot->flushing = slot->at == slot->end && slot->req->flags & BLK_FUA && slot->volatiles > 0;
}

static void step_good(struct remote *r, struct slot *slot)
{
    const struct blk_req *req = slot->req;
    if (slot->op.op == BLK_FLUSH) {
        r->flushed = MAX(r->flushed, slot->covers);
        slot->flushing = false;
    } else {
        if (req->op == BLK_READ && slot->bounce != NULL)
            pages_copy_in(req->pages, in_pages(req, slot->op.off), slot->bounce, slot->op.len);
        slot->at += slot->op.len;
        canaries_note(r, slot);
        if (blk_op_writes(req->op))
            note_write(r, slot);
        if (slot->at >= slot->narrow_end)
            slot->level = 0;
    }
    if (slot->at < slot->end || slot->flushing)
        step_issue(r, slot);
    else
        slot_complete(r, slot, BLK_OK);
}

static void step_bad(struct remote *r, struct slot *slot)
{
    struct remote_op *op = &slot->op;
    bool narrow = slot->req->op == BLK_READ && op->status == BLK_MEDIA && op->len > r->dev.info.logical_block;
    if (narrow) {
        slot->narrow_end = op->off + op->len;
        do
            slot->level++;
        while (slot->level < 3 && step_len(r, slot) >= op->len);
        step_issue(r, slot);
    } else if (op->op == BLK_WRITE_ZEROES && op->status == BLK_INVALID) {
        r->facts.zero_max = 0; /* then by writing */
        step_issue(r, slot);
    } else if (op->op == BLK_DISCARD && op->status == BLK_INVALID) {
        slot_complete(r, slot, BLK_OK); /* a hint */
    } else {
        slot_complete(r, slot, op->status);
    }
}

static void step_answered(struct remote *r, struct slot *slot)
{
    TAILQ_REMOVE(&r->flying, slot, link);
    r->heard_ns = now(r);
    if (slot->op.again && slot->tries++ < TRIES)
        step_stall(r, slot);
    else if (slot->op.again)
        slot_complete(r, slot, BLK_TIMEOUT);
    else if (slot->op.status == BLK_OK)
        step_good(r, slot);
    else
        step_bad(r, slot);
}

static void line_move(struct remote *r);

static void take_answers(struct remote *r)
{
    struct remote_op *op;
    while (r->session != NULL && (op = TAILQ_FIRST(&r->session->answered)) != NULL) {
        TAILQ_REMOVE(&r->session->answered, op, answered_link);
        step_answered(r, container_of(op, struct slot, op));
    }
}

static void serve(struct remote *r, short revents)
{
    if (state_of(r) != REMOTE_JOINED)
        return;
    bool up = r->session->driver->service(r->session, revents);
    take_answers(r);
    if (r->session != NULL && !up)
        lose(r, r->session->why);
    line_move(r);
    if (r->session != NULL)
        watch_as_wanted(r);
}

static void on_ready(evutil_socket_t fd, short what, void *data)
{
    struct remote *r = data;
    (void)fd;
    reactor_woken(r->reactor);
    serve(r, (short)((what & EV_READ ? POLLIN : 0) | (what & EV_WRITE ? POLLOUT : 0)));
}

static void send_late(struct task *task)
{
    struct remote *r = container_of(task, struct remote, late);
    if (state_of(r) == REMOTE_JOINED)
        serve(r, r->session->driver->events(r->session) & POLLOUT);
}

/* --- time --- */

/* R4. Longer for zeroes, since the other side may have to write them. */
static bool is_silent(const struct remote *r)
{
    const struct slot *oldest = TAILQ_FIRST(&r->flying);
    if (oldest == NULL)
        return false;
    bool long_one = oldest->op.op == BLK_WRITE_ZEROES || oldest->op.op == BLK_DISCARD;
    uint64_t allowed = ANSWER_NS + (long_one ? oldest->op.len * ZERO_NS_BYTE : 0);
    return now(r) - oldest->began_ns > allowed && now(r) - r->heard_ns > ANSWER_NS;
}

/* Once each; the session may be lost meanwhile, and the others stay. */
static void stalled_again(struct remote *r)
{
    unsigned count = 0;
    struct slot *slot;
    TAILQ_FOREACH(slot, &r->stalled, link)
    count++;
    for (; count > 0 && state_of(r) == REMOTE_JOINED; count--) {
        slot = TAILQ_FIRST(&r->stalled);
        TAILQ_REMOVE(&r->stalled, slot, link);
        step_issue(r, slot);
    }
}

static void ticks(struct timer *timer)
{
    struct remote *r = container_of(timer, struct remote, tick);
    if (state_of(r) == REMOTE_SEARCHING && now(r) > r->give_up_ns) {
        char why[256];
        text_format(why, sizeof why, "not found again in time: %s", r->why[0] != '\0' ? r->why : "no answer");
        go_gone(r, why);
        return;
    }
    if (state_of(r) == REMOTE_SEARCHING && !r->searching)
        search(r);
    if (state_of(r) == REMOTE_JOINED && is_silent(r))
        lose(r, "it does not answer");
    if (state_of(r) == REMOTE_JOINED) {
        stalled_again(r);
        serve(r, 0);
    }
    bool idle = TAILQ_EMPTY(&r->flying) && TAILQ_EMPTY(&r->stalled) && state_of(r) == REMOTE_JOINED;
    if (!idle && state_of(r) != REMOTE_GONE)
        tick_start(r);
}

/* --- the way in --- */

static void start(struct remote *r, struct slot *slot, struct blk_req *req)
{
    slot->req = req;
    slot->at = req->off;
    slot->end = req->off + req->len;
    slot->narrow_end = 0;
    slot->level = slot->tries = slot->volatiles = 0;
    slot->flushing = false;
    step_issue(r, slot);
}

static bool needs_nothing(const struct remote *r, const struct blk_req *req)
{
    return (req->op == BLK_DISCARD && r->facts.discard_max == 0) ||
           (req->op == BLK_FLUSH && !r->dev.info.volatile_cache);
}

static void line_move(struct remote *r)
{
    while (state_of(r) == REMOTE_JOINED && !STAILQ_EMPTY(&r->waiting) && !TAILQ_EMPTY(&r->free)) {
        struct blk_req *req = STAILQ_FIRST(&r->waiting);
        struct slot *slot = TAILQ_FIRST(&r->free);
        bool bounced = wants_bounce(r, req);
        if (bounced && r->bounces_free == 0)
            return;
        STAILQ_REMOVE_HEAD(&r->waiting, link);
        if (needs_nothing(r, req)) {
            blk_complete(req, BLK_OK);
            continue;
        }
        TAILQ_REMOVE(&r->free, slot, link);
        slot->bounce = bounced ? r->bounces[--r->bounces_free] : NULL;
        start(r, slot, req);
    }
}

/* On the reactor's thread: opening may have been on another. */
static void join(struct remote *r, struct remote_session *session)
{
    if (r->session == NULL) {
        r->session = session;
        r->facts = session->facts; /* the same disk; limits may be others */
        sm_move(&r->state, REMOTE_JOINED);
        log_notice("disk %s is back", r->uri);
    }
    int fd = session->driver->fd(session);
    struct event_base *base = reactor_base(r->reactor);
    event_assign(&r->read_event, base, fd, EV_READ | EV_PERSIST, on_ready, r);
    event_assign(&r->write_event, base, fd, EV_WRITE | EV_PERSIST, on_ready, r);
    event_add(&r->read_event, NULL);
    r->watching = true;
    r->heard_ns = now(r);
    stalled_again(r);
    line_move(r);
}

static void remote_submit(struct blkdev *dev, struct blk_req *req)
{
    struct remote *r = remote_of(dev);
    if (state_of(r) == REMOTE_GONE) {
        blk_complete(req, BLK_GONE);
        return;
    }
    if (state_of(r) == REMOTE_SEARCHING && !somebody_waits(r))
        r->give_up_ns = MIN(r->give_up_ns, now(r) + SEARCH_NS);
    STAILQ_INSERT_TAIL(&r->waiting, req, link);
    if (state_of(r) == REMOTE_JOINED && !r->watching)
        join(r, r->session);
    else
        line_move(r);
}

/* --- birth and death --- */

static void remote_free(struct remote *r)
{
    bool idle = r->connector == NULL || helpers_destroy(r->connector);
    ASSERT(idle); /* its job is over */
    free(r->bounce_memory);
    free(r->slots);
    free(r->uri);
    free(r);
}

static void close_over(struct remote *r)
{
    struct task *closed = r->closed;
    struct loop *loop = r->dev.loop;
    remote_free(r);
    loop_defer(loop, closed);
}

static void close_late(struct task *task)
{
    close_over(container_of(task, struct remote, late));
}

static void close_soon(struct remote *r)
{
    if (r->late.queued) /* it is our memory that is in the loop's list */
        r->late.run = close_late;
    else
        close_over(r);
}

static void remote_close(struct blkdev *dev, struct task *closed)
{
    struct remote *r = remote_of(dev);
    r->closed = closed;
    timer_stop(dev->loop, &r->tick);
    unwatch(r);
    if (r->session != NULL)
        r->session->driver->end(r->session, false);
    r->session = NULL;
    if (!r->searching) /* else search_over() goes on */
        close_soon(r);
}

static const struct blkdev_ops nbd_ops = {.kind = "nbd", .submit = remote_submit, .close = remote_close};
static const struct blkdev_ops iscsi_ops = {.kind = "iscsi", .submit = remote_submit, .close = remote_close};

static struct remote *remote_create(struct reactor *reactor, const char *uri, bool member, bool bounces)
{
    struct remote *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->reactor = reactor;
    r->member = member;
    r->uri = strdup(uri);
    r->slots = calloc(REMOTE_DEPTH, sizeof *r->slots);
    r->bounce_memory = bounces ? aligned_alloc(PAGE_BYTES, BOUNCES * REMOTE_TRANSFER_MAX) : NULL;
    r->late.run = send_late;
    r->tick.fire = ticks;
    sm_init(&r->state, states, ARRAY_LENGTH(states), REMOTE_JOINED);
    STAILQ_INIT(&r->waiting);
    TAILQ_INIT(&r->free);
    TAILQ_INIT(&r->flying);
    TAILQ_INIT(&r->stalled);
    if (r->uri == NULL || r->slots == NULL || (bounces && r->bounce_memory == NULL)) {
        remote_free(r);
        return NULL;
    }
    for (unsigned i = 0; i < REMOTE_DEPTH; i++)
        TAILQ_INSERT_TAIL(&r->free, &r->slots[i], link);
    for (unsigned i = 0; bounces && i < BOUNCES; i++)
        r->bounces[r->bounces_free++] = r->bounce_memory + i * REMOTE_TRANSFER_MAX;
    return r;
}

struct blkdev *remote_adopt(struct reactor *reactor, const char *uri, bool member, struct remote_session *session)
{
    struct remote *r = remote_create(reactor, uri, member, session->driver->one_run);
    if (r == NULL)
        return NULL;
    r->session = session;
    r->facts = session->facts;
    struct blk_info info = session->facts.info;
    info.max_request = REMOTE_TRANSFER_MAX;
    blkdev_init(&r->dev, session->driver == &remote_nbd ? &nbd_ops : &iscsi_ops, reactor_loop(reactor), uri, &info);
    return &r->dev;
}

struct blkdev *remote_open(struct reactor *reactor, const char *uri, bool member, char *why, size_t why_len)
{
    char reason[200] = "out of memory";
    struct remote_session *session = remote_connect(uri, member, NULL, reason, sizeof reason);
    struct blkdev *dev = session != NULL ? remote_adopt(reactor, uri, member, session) : NULL;
    if (dev == NULL) {
        text_format(why, why_len, "%s cannot be used as a disk: %s", uri, reason);
        if (session != NULL)
            session->driver->end(session, false);
    }
    return dev;
}

bool remote_is(const struct blkdev *dev)
{
    return dev->ops == &nbd_ops || dev->ops == &iscsi_ops;
}

bool remote_is_gone(const struct blkdev *dev)
{
    ASSERT(remote_is(dev));
    return atomic_load(&container_of(dev, const struct remote, dev)->gone);
}

void remote_identity(const struct blkdev *dev, char *out, size_t len)
{
    ASSERT(remote_is(dev));
    text_format(out, len, "%s", container_of(dev, const struct remote, dev)->facts.identity);
}
