/* The device over a session that the test plays: bytes in memory, and answers by script. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/remote.h"
#include "tests/unit/lib/testloop.h"

#define DISK_BYTES (4 * MIB)
#define NOWHERE    "nbd+unix:///x?socket=/nonexistent/socket"

enum { REQUESTS_MAX = 2 * REMOTE_DEPTH };

/* Lives until the test is over, so that it can look at what was asked. */
struct played {
    struct remote_session session;
    int fd;
    uint8_t *bytes;
    uint64_t bad[2];       /* [from, to) cannot be read */
    unsigned busy;         /* so many ops are not done */
    bool mute, broken;     /* nothing is answered; the session is lost */
    bool no_zeroes;        /* WRITE_ZEROES is not known after all */
    uint64_t zeroes_until; /* nor is it from here on; 0: it is */
    bool ended, was_reset; /* how it ended */
    unsigned ops[BLK_OP_COUNT], fuas, most_pieces;
};

static struct played *played_of(struct remote_session *session)
{
    return container_of(session, struct played, session);
}

static int played_fd(struct remote_session *session)
{
    return played_of(session)->fd;
}

static short played_events(struct remote_session *session)
{
    (void)session;
    return POLLIN;
}

static bool played_service(struct remote_session *session, short revents)
{
    (void)revents;
    return !played_of(session)->broken;
}

static void move(struct played *p, struct remote_op *op)
{
    uint8_t *at = p->bytes + op->off;
    for (int i = 0; i < op->iov_count; i++) {
        if (op->op == BLK_READ)
            memcpy(op->iov[i].iov_base, at, op->iov[i].iov_len);
        else
            memcpy(at, op->iov[i].iov_base, op->iov[i].iov_len);
        at += op->iov[i].iov_len;
    }
    p->most_pieces = MAX(p->most_pieces, (unsigned)op->iov_count);
}

static enum blk_status perform(struct played *p, struct remote_op *op)
{
    bool bad = op->op == BLK_READ && op->off < p->bad[1] && p->bad[0] < op->off + op->len;
    if (bad)
        return BLK_MEDIA;
    if (blk_op_has_data(op->op))
        move(p, op);
    if (op->op == BLK_WRITE_ZEROES && (p->no_zeroes || (p->zeroes_until != 0 && op->off >= p->zeroes_until)))
        return BLK_INVALID;
    if (op->op == BLK_WRITE_ZEROES || op->op == BLK_DISCARD)
        memset(p->bytes + op->off, 0, op->len);
    return BLK_OK;
}

static bool played_issue(struct remote_session *session, struct remote_op *op)
{
    struct played *p = played_of(session);
    op->session = session;
    p->ops[op->op]++;
    p->fuas += (op->flags & BLK_FUA) != 0;
    if (p->mute)
        return true;
    op->again = p->busy > 0;
    p->busy -= op->again;
    remote_answer(op, op->again ? BLK_TIMEOUT : perform(p, op));
    return true;
}

static void played_end(struct remote_session *session, bool broken)
{
    played_of(session)->ended = true;
    played_of(session)->was_reset = broken;
}

static const struct remote_driver in_pieces = {.kind = "played",
                                               .fd = played_fd,
                                               .events = played_events,
                                               .service = played_service,
                                               .issue = played_issue,
                                               .end = played_end},
                                  in_one = {.kind = "played",
                                            .one_run = true,
                                            .fd = played_fd,
                                            .events = played_events,
                                            .service = played_service,
                                            .issue = played_issue,
                                            .end = played_end};

/* --- a request, and a disk --- */

struct call {
    struct blk_req req;
    struct reactor *reactor;
    struct task closed;
    struct page *pages[REMOTE_IOVECS];
    bool done;
};

static void call_done(struct blk_req *req)
{
    struct call *c = container_of(req, struct call, req);
    c->done = true;
    reactor_stop(c->reactor);
}

static void call_closed(struct task *task)
{
    reactor_stop(container_of(task, struct call, closed)->reactor);
}

struct rig {
    struct played played;
    struct reactor *reactor;
    struct blkdev *dev;
    struct call calls[REQUESTS_MAX];
};

static struct reactor *new_reactor(void)
{
    char why[200];
    struct reactor_options options = {.name = "test", .pages = 2048, .no_uring = true};
    struct reactor *reactor = reactor_create(&options, why, sizeof why);
    cr_assert_not_null(reactor, "%s", why);
    return reactor;
}

static struct rig *rig_create_on(struct reactor *reactor, const struct remote_driver *driver, bool volatile_cache)
{
    struct rig *rig = calloc(1, sizeof *rig);
    rig->reactor = reactor;
    struct played *p = &rig->played;
    p->fd = eventfd(0, EFD_CLOEXEC);
    p->bytes = calloc(1, DISK_BYTES);
    p->session = (struct remote_session){.driver = driver,
                                         .ready = true,
                                         .facts = {.info = {.size = DISK_BYTES,
                                                            .logical_block = 512,
                                                            .physical_block = 512,
                                                            .discards = true,
                                                            .volatile_cache = volatile_cache},
                                                   .transfer_max = MIB,
                                                   .zero_max = MIB,
                                                   .discard_max = MIB,
                                                   .fua = true,
                                                   .zero_fua = true}};
    TAILQ_INIT(&p->session.answered);
    return rig;
}

static struct rig *rig_create(const struct remote_driver *driver, bool volatile_cache)
{
    return rig_create_on(new_reactor(), driver, volatile_cache);
}

static void rig_open(struct rig *rig)
{
    rig->dev = remote_adopt(rig->reactor, NOWHERE, true, &rig->played.session);
    cr_assert_not_null(rig->dev);
}

static void rig_leave(struct rig *rig)
{
    struct call c = {.reactor = rig->reactor, .closed.run = call_closed};
    blk_close(rig->dev, &c.closed);
    reactor_run(rig->reactor);
    cr_expect(rig->played.ended);
    close(rig->played.fd);
    free(rig->played.bytes);
    free(rig);
}

static void rig_destroy(struct rig *rig)
{
    struct reactor *reactor = rig->reactor;
    rig_leave(rig);
    reactor_destroy(reactor);
}

static void a_turn(struct reactor *reactor)
{
    struct call c = {.reactor = reactor, .closed.run = call_closed};
    loop_defer(reactor_loop(reactor), &c.closed);
    reactor_run(reactor);
}

/* Every second page comes from elsewhere, so that they are no run of memory. */
static void scatter(struct page **pages, uint32_t count)
{
    for (uint32_t i = 0; i + 1 < count / 2; i += 2) {
        struct page *swap = pages[i];
        pages[i] = pages[count - 1 - i];
        pages[count - 1 - i] = swap;
    }
}

static struct call *submit(struct rig *rig, unsigned which, enum blk_op op, unsigned flags, uint64_t off,
                           const uint8_t *bytes, uint64_t len)
{
    struct call *c = &rig->calls[which];
    uint32_t count = blk_op_has_data(op) ? page_count_for(off, len) : 0;
    cr_assert(page_pool_get(rig->dev->loop->pages, c->pages, count));
    scatter(c->pages, count);
    if (op == BLK_WRITE)
        pages_copy_in(c->pages, off % PAGE_BYTES, bytes, len);
    c->reactor = rig->reactor;
    c->done = false;
    c->req = (struct blk_req){.op = op, .flags = flags, .off = off, .len = len, .pages = c->pages, .done = call_done};
    blk_submit(rig->dev, &c->req);
    return c;
}

static enum blk_status finish(struct rig *rig, struct call *c, uint8_t *bytes)
{
    while (!c->done)
        reactor_run(rig->reactor);
    if (c->req.op == BLK_READ && bytes != NULL && c->req.status == BLK_OK)
        pages_copy_out(bytes, c->pages, c->req.off % PAGE_BYTES, c->req.len);
    page_put_all(c->pages, blk_op_has_data(c->req.op) ? page_count_for(c->req.off, c->req.len) : 0);
    return c->req.status;
}

static enum blk_status io(struct rig *rig, enum blk_op op, unsigned flags, uint64_t off, uint8_t *bytes, uint64_t len)
{
    return finish(rig, submit(rig, 0, op, flags, off, bytes, len), bytes);
}

/* --- bytes --- */

static void moves_bytes(const struct remote_driver *driver)
{
    static const struct {
        uint64_t off, len;
    } shapes[] = {{0, 512},           {4096, 4096}, {512, 512}, {1024, 65536},
                  {7 * 512, 9 * 512}, {0, MIB},     {512, MIB}, {DISK_BYTES - MIB, MIB}};
    struct rig *rig = rig_create(driver, true);
    uint8_t *sent = malloc(MIB), *got = malloc(MIB);
    rig_open(rig);
    for (unsigned i = 0; i < ARRAY_LENGTH(shapes); i++) {
        uint64_t off = shapes[i].off, len = shapes[i].len;
        test_fill(sent, len, i + 1);
        memset(got, 0, len);
        cr_expect_eq(io(rig, BLK_WRITE, 0, off, sent, len), BLK_OK, "shape %u", i);
        cr_expect_eq(memcmp(rig->played.bytes + off, sent, len), 0, "shape %u as it arrived", i);
        cr_expect_eq(io(rig, BLK_READ, 0, off, got, len), BLK_OK, "shape %u", i);
        cr_expect_eq(memcmp(got, sent, len), 0, "shape %u as it came back", i);
    }
    cr_expect(driver->one_run ? rig->played.most_pieces == 1 : rig->played.most_pieces > 1);
    free(sent);
    free(got);
    rig_destroy(rig);
}

Test(remote_device, the_bytes_of_every_shape_move_in_pieces_and_in_one_run)
{
    moves_bytes(&in_pieces);
    moves_bytes(&in_one);
}

Test(remote_device, more_requests_than_it_takes_at_once_wait_in_line)
{
    struct rig *rig = rig_create(&in_one, true);
    uint8_t bytes[8192];
    rig_open(rig);
    for (unsigned i = 0; i < REQUESTS_MAX; i++) {
        memset(bytes, (int)i, sizeof bytes);
        submit(rig, i, BLK_WRITE, 0, i * sizeof bytes, bytes, sizeof bytes);
    }
    for (unsigned i = 0; i < REQUESTS_MAX; i++)
        cr_expect_eq(finish(rig, &rig->calls[i], NULL), BLK_OK, "request %u", i);
    for (unsigned i = 0; i < REQUESTS_MAX; i++)
        cr_expect_eq(rig->played.bytes[i * sizeof bytes + 100], i, "request %u", i);
    rig_destroy(rig);
}

/* --- what the other side cannot do --- */

Test(remote_device, the_first_block_that_cannot_be_read_is_found)
{
    static const uint64_t bad[] = {0, 512, 300 * 1024, 300 * 1024 + 512, MIB - 512};
    struct rig *rig = rig_create(&in_pieces, true);
    uint8_t *got = malloc(MIB);
    rig_open(rig);
    for (unsigned i = 0; i < ARRAY_LENGTH(bad); i++) {
        rig->played.bad[0] = MIB + bad[i];
        rig->played.bad[1] = MIB + bad[i] + 1024;
        cr_expect_eq(io(rig, BLK_READ, 0, MIB, got, MIB), BLK_MEDIA);
        cr_expect_eq(rig->calls[0].req.bad_off, MIB + bad[i], "at %llu, not %llu", (unsigned long long)bad[i],
                     (unsigned long long)(rig->calls[0].req.bad_off - MIB));
    }
    rig->played.bad[1] = 0;
    cr_expect_eq(io(rig, BLK_READ, 0, MIB, got, MIB), BLK_OK);
    free(got);
    rig_destroy(rig);
}

Test(remote_device, zeroes_that_cannot_be_asked_for_are_sent)
{
    enum { AS_A_COMMAND, FROM_THE_BEGINNING, FOUND_OUT, WAYS };
    for (unsigned way = 0; way < WAYS; way++) {
        struct rig *rig = rig_create(&in_one, true);
        memset(rig->played.bytes, 7, DISK_BYTES);
        rig->played.session.facts.zero_max = way == FROM_THE_BEGINNING ? 0 : MIB;
        rig->played.no_zeroes = way == FOUND_OUT;
        rig_open(rig);
        cr_expect_eq(io(rig, BLK_WRITE_ZEROES, 0, 512, NULL, 2 * MIB), BLK_OK);
        cr_expect_eq(io(rig, BLK_WRITE_ZEROES, 0, 3 * MIB, NULL, 512), BLK_OK);
        cr_expect(rig->played.bytes[511] == 7 && rig->played.bytes[512] == 0 && rig->played.bytes[2 * MIB + 511] == 0 &&
                      rig->played.bytes[2 * MIB + 512] == 7 && rig->played.bytes[3 * MIB] == 0,
                  "way %u", way);
        cr_expect_eq(rig->played.ops[BLK_WRITE] > 0, way != AS_A_COMMAND, "way %u", way);
        cr_expect_eq(rig->played.ops[BLK_WRITE_ZEROES],
                     way == AS_A_COMMAND ? 3
                     : way == FOUND_OUT  ? 1
                                         : 0,
                     "way %u", way);
        rig_destroy(rig);
    }
}

Test(remote_device, a_durable_write_is_flushed_where_fua_is_not_known)
{
    for (unsigned known = 0; known < 2; known++) {
        struct rig *rig = rig_create(&in_one, true);
        uint8_t bytes[512] = {1};
        rig->played.session.facts.fua = known;
        rig_open(rig);
        cr_expect_eq(io(rig, BLK_WRITE, BLK_FUA, 0, bytes, sizeof bytes), BLK_OK);
        cr_expect_eq(rig->played.ops[BLK_FLUSH], !known);
        cr_expect_eq(rig->played.fuas, known ? 1 : 2, "the flag of the request is told with each step");
        rig_destroy(rig);
    }
}

/* WRITE SAME of SCSI has no such flag, though WRITE has. */
Test(remote_device, durable_zeroes_are_flushed_where_fua_is_not_known_with_them)
{
    for (unsigned known = 0; known < 2; known++)
        for (unsigned sent = 0; sent < 2; sent++) { /* as a write, which has it */
            struct rig *rig = rig_create(&in_pieces, true);
            rig->played.session.facts.zero_fua = known;
            rig->played.session.facts.zero_max = sent ? 0 : MIB;
            rig_open(rig);
            cr_expect_eq(io(rig, BLK_WRITE_ZEROES, BLK_FUA, 0, NULL, 4096), BLK_OK);
            cr_expect_eq(rig->played.ops[BLK_FLUSH], !known && !sent, "known %u, sent %u", known, sent);
            rig_destroy(rig);
        }
}

Test(remote_device, durable_zeroes_of_which_the_rest_is_sent_are_flushed_whole)
{
    struct rig *rig = rig_create(&in_pieces, true);
    rig->played.session.facts.zero_fua = false;
    rig->played.zeroes_until = MIB;
    rig_open(rig);
    cr_expect_eq(io(rig, BLK_WRITE_ZEROES, BLK_FUA, 0, NULL, 2 * MIB), BLK_OK);
    cr_expect(rig->played.ops[BLK_WRITE] > 0);
    cr_expect_eq(rig->played.ops[BLK_FLUSH], 1u);
    rig_destroy(rig);
}

Test(remote_device, what_there_is_nothing_to_do_for_is_not_asked)
{
    struct rig *rig = rig_create(&in_one, false);
    rig->played.session.facts.discard_max = 0;
    rig_open(rig);
    cr_expect_eq(io(rig, BLK_FLUSH, 0, 0, NULL, 0), BLK_OK, "no volatile cache");
    cr_expect_eq(io(rig, BLK_DISCARD, 0, 0, NULL, MIB), BLK_OK, "a hint that nobody takes");
    cr_expect_eq(rig->played.ops[BLK_FLUSH] + rig->played.ops[BLK_DISCARD], 0);
    rig_destroy(rig);
}

Test(remote_device, what_was_not_done_is_asked_for_again)
{
    struct rig *rig = rig_create(&in_pieces, true);
    uint8_t bytes[4096] = {9};
    rig->played.busy = 2;
    rig_open(rig);
    cr_expect_eq(io(rig, BLK_WRITE, 0, 0, bytes, sizeof bytes), BLK_OK);
    cr_expect_eq(rig->played.ops[BLK_WRITE], 3);
    cr_expect_eq(rig->played.bytes[0], 9);
    rig_destroy(rig);
}

/* --- the session is lost --- */

enum doubt { UNDER_WAY, NOT_FLUSHED, FLUSHED, DURABLE, NO_CACHE, READING, DOUBTS };

/* A disk that has come to be in this state, and whose session is lost in the next turn. */
static struct rig *rig_in_doubt(struct reactor *reactor, enum doubt doubt)
{
    struct rig *rig = rig_create_on(reactor, &in_pieces, doubt != NO_CACHE);
    uint8_t bytes[512] = {1};
    rig_open(rig);
    if (doubt != UNDER_WAY && doubt != READING)
        cr_expect_eq(io(rig, BLK_WRITE, doubt == DURABLE ? BLK_FUA : 0, 0, bytes, sizeof bytes), BLK_OK);
    if (doubt == FLUSHED)
        cr_expect_eq(io(rig, BLK_FLUSH, 0, 0, NULL, 0), BLK_OK);
    rig->played.mute = rig->played.broken = true;
    submit(rig, 1, doubt == UNDER_WAY ? BLK_WRITE : BLK_READ, 0, 0, bytes, sizeof bytes);
    return rig;
}

/* The others are looked for, in vain: 5 s, for all of them at once. */
Test(remote_device, a_session_lost_with_writes_in_doubt_is_lost_for_good, .timeout = 60)
{
    static const bool gone[DOUBTS] = {[UNDER_WAY] = true, [NOT_FLUSHED] = true};
    struct reactor *reactor = new_reactor();
    struct rig *rigs[DOUBTS];
    for (unsigned i = 0; i < DOUBTS; i++) {
        rigs[i] = rig_in_doubt(reactor, (enum doubt)i);
        a_turn(reactor);
        cr_expect(rigs[i]->played.ended && rigs[i]->played.was_reset, "case %u", i);
        cr_expect_eq(remote_is_gone(rigs[i]->dev), gone[i], "case %u", i);
    }
    for (unsigned i = 0; i < DOUBTS; i++) {
        cr_expect_eq(finish(rigs[i], &rigs[i]->calls[1], NULL), BLK_GONE, "case %u", i);
        cr_expect(remote_is_gone(rigs[i]->dev), "case %u", i);
        cr_expect_eq(io(rigs[i], BLK_FLUSH, 0, 0, NULL, 0), BLK_GONE, "case %u", i);
        rig_leave(rigs[i]);
    }
    reactor_destroy(reactor);
}

Test(remote_device, those_under_way_and_in_line_are_answered_when_it_is_gone)
{
    struct rig *rig = rig_create(&in_one, true);
    uint8_t bytes[8192] = {0};
    rig->played.mute = true;
    rig_open(rig);
    for (unsigned i = 0; i < REQUESTS_MAX; i++)
        submit(rig, i, i % 2 ? BLK_WRITE : BLK_READ, 0, i * sizeof bytes, bytes, sizeof bytes);
    rig->played.broken = true;
    for (unsigned i = 0; i < REQUESTS_MAX; i++)
        cr_expect_eq(finish(rig, &rig->calls[i], NULL), BLK_GONE, "request %u", i);
    rig_destroy(rig);
}

Test(remote_device, a_disk_that_comes_back_is_the_same_or_not_taken)
{
    static const struct remote_facts was = {.info = {.size = MIB, .logical_block = 512}, .identity = "naa.1"};
    static const struct {
        struct remote_facts is;
        const char *why; /* NULL: it is taken */
    } cases[] = {
        {{.info = {.size = MIB, .logical_block = 512}, .identity = "naa.1", .transfer_max = 65536}, NULL},
        {{.info = {.size = 2 * MIB, .logical_block = 512}, .identity = "naa.1"}, "it came back with another size"},
        {{.info = {.size = MIB, .logical_block = 4096}, .identity = "naa.1"}, "it came back with another size"},
        {{.info = {.size = MIB, .logical_block = 512, .read_only = true}, .identity = "naa.1"},
         "it came back read-only"},
        {{.info = {.size = MIB, .logical_block = 512, .volatile_cache = true}, .identity = "naa.1"},
         "it came back with a volatile cache"},
        {{.info = {.size = MIB, .logical_block = 512}, .identity = "naa.2"}, "another disk came back in its place"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        const char *why = remote_differs(&was, &cases[i].is);
        cr_expect(cases[i].why == NULL ? why == NULL : why != NULL && strcmp(why, cases[i].why) == 0, "case %u: %s", i,
                  why != NULL ? why : "the same");
    }
    struct remote_facts cached = was;
    cached.info.volatile_cache = true;
    cr_expect_null(remote_differs(&cached, &was), "one cache less");
}
