#include "tests/unit/lib/teststream.h"

#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "tests/unit/lib/testloop.h"

static void bytes_push(struct testbytes *b, const void *bytes, size_t len)
{
    if (b->start == b->end)
        b->start = b->end = 0;
    if (b->end + len > b->room) {
        b->room = MAX(b->room * 2, b->end + len);
        b->bytes = realloc(b->bytes, b->room);
        ASSERT(b->bytes != NULL);
    }
    if (len > 0)
        memcpy(b->bytes + b->end, bytes, len);
    b->end += len;
}

static bool has_event(const struct teststream *s)
{
    if (s->closed || s->arrived != NULL || s->secured != NULL)
        return false;
    bool readable = s->in.start < s->in.end || s->ended || s->broken;
    bool writable = s->send_window > 0 || s->broken;
    return ((s->wanted & STREAM_READ) && readable) || ((s->wanted & STREAM_WRITE) && writable);
}

static void stir(struct teststream *s)
{
    if (has_event(s))
        loop_defer_late(s->stream.loop, &s->pump);
}

/* One event of each kind, as one turn of a reactor would deliver. */
static void pump(struct task *task)
{
    struct teststream *s = container_of(task, struct teststream, pump);
    bool readable = s->in.start < s->in.end || s->ended || s->broken;
    if (has_event(s) && (s->wanted & STREAM_READ) && readable)
        s->stream.owner->readable(&s->stream);
    if (has_event(s) && (s->wanted & STREAM_WRITE) && (s->send_window > 0 || s->broken))
        s->stream.owner->writable(&s->stream);
    stir(s);
}

/* How much of `len` bytes one call moves. */
static size_t shorten(struct teststream *s, size_t len, uint32_t max)
{
    size_t limit = max == 0 ? SIZE_MAX : 1 + test_random(&s->seed) % max;
    return MIN(len, limit);
}

static ssize_t test_recv(struct stream *stream, const struct iovec *iov, int count)
{
    struct teststream *s = container_of(stream, struct teststream, stream);
    ASSERT(!s->closed && s->arrived == NULL && s->secured == NULL && count > 0);
    s->recvs++;
    if (s->broken)
        return STREAM_BROKEN;
    if (s->in.start == s->in.end)
        return s->ended ? 0 : STREAM_AGAIN;
    size_t left = shorten(s, s->in.end - s->in.start, s->recv_max), done = 0;
    for (int i = 0; i < count && left > 0; i++) {
        size_t part = MIN(left, iov[i].iov_len);
        memcpy(iov[i].iov_base, s->in.bytes + s->in.start, part);
        s->in.start += part;
        done += part;
        left -= part;
    }
    ASSERT(done > 0); /* an owner asks for at least one byte: zero would look like the end */
    return (ssize_t)done;
}

static ssize_t test_send(struct stream *stream, const struct iovec *iov, int count)
{
    struct teststream *s = container_of(stream, struct teststream, stream);
    ASSERT(!s->closed && s->arrived == NULL && s->secured == NULL && count > 0);
    s->sends++;
    if (s->broken)
        return STREAM_BROKEN;
    if (s->send_window == 0)
        return STREAM_AGAIN;
    size_t left = shorten(s, s->send_window, s->send_max), done = 0;
    for (int i = 0; i < count && left > 0; i++) {
        size_t part = MIN(left, iov[i].iov_len);
        bytes_push(&s->out, iov[i].iov_base, part);
        done += part;
        left -= part;
    }
    if (s->send_window != SIZE_MAX)
        s->send_window -= done;
    return (ssize_t)done;
}

static void test_want(struct stream *stream, unsigned events)
{
    struct teststream *s = container_of(stream, struct teststream, stream);
    ASSERT(!s->closed && s->arrived == NULL && s->secured == NULL);
    s->wanted = events;
    stir(s);
}

/* Runs on the new loop: now the stream may be touched again. */
static void land(struct task *task)
{
    struct teststream *s = container_of(task, struct teststream, pump);
    struct task *arrived = s->arrived;
    s->arrived = NULL;
    s->pump.run = pump;
    arrived->run(arrived);
    stir(s);
}

/* Late, so that whatever else was sent to the new loop meanwhile arrives first. */
static void approach(struct task *task)
{
    struct teststream *s = container_of(task, struct teststream, pump);
    s->pump.run = land;
    loop_defer_late(s->stream.loop, &s->pump);
}

/* Takes off only when the pump has left the old loop's list. */
static void take_off(struct task *task)
{
    struct teststream *s = container_of(task, struct teststream, pump);
    s->pump.run = approach;
    loop_call(s->stream.loop, &s->pump);
}

static void test_move(struct stream *stream, struct loop *to, struct task *arrived)
{
    struct teststream *s = container_of(stream, struct teststream, stream);
    ASSERT(!s->closed && s->arrived == NULL && s->secured == NULL);
    s->moves++;
    s->arrived = arrived;
    stream->loop = to;
    if (s->pump.queued)
        s->pump.run = take_off;
    else
        take_off(&s->pump);
}

static void test_stream_close(struct stream *stream)
{
    struct teststream *s = container_of(stream, struct teststream, stream);
    ASSERT(!s->closed && s->arrived == NULL);
    s->closed = true;
}

/* Credentials are not looked at: any address will do. */
static bool test_start_tls(struct stream *stream, struct stream_credentials *credentials, stream_secured secured)
{
    struct teststream *s = container_of(stream, struct teststream, stream);
    ASSERT(!s->closed && s->arrived == NULL && s->credentials == NULL && credentials != NULL);
    s->credentials = credentials;
    s->secured = secured;
    s->wanted = 0;
    return true;
}

static bool test_has_left(const struct stream *stream)
{
    const struct teststream *s = container_of(stream, struct teststream, stream);
    return s->ended || s->broken;
}

static const struct stream_ops test_stream_ops = {.recv = test_recv,
                                                  .send = test_send,
                                                  .want = test_want,
                                                  .move = test_move,
                                                  .start_tls = test_start_tls,
                                                  .has_left = test_has_left,
                                                  .close = test_stream_close};

struct teststream *teststream_create(struct loop *loop, uint64_t seed)
{
    struct teststream *s = calloc(1, sizeof *s);
    ASSERT(s != NULL);
    s->stream = (struct stream){.ops = &test_stream_ops, .loop = loop, .peer = "test:1", .local = "test:2"};
    s->send_window = SIZE_MAX;
    s->seed = seed;
    s->pump.run = pump;
    return s;
}

void teststream_destroy(struct teststream *s)
{
    ASSERT(s->closed && !s->pump.queued);
    free(s->in.bytes);
    free(s->out.bytes);
    free(s);
}

void teststream_feed(struct teststream *s, const void *bytes, size_t len)
{
    bytes_push(&s->in, bytes, len);
    stir(s);
}

void teststream_end(struct teststream *s)
{
    s->ended = true;
    stir(s);
}

void teststream_break(struct teststream *s)
{
    s->broken = true;
    stir(s);
}

void teststream_secure(struct teststream *s, const char *const *names, unsigned count)
{
    stream_secured secured = s->secured;
    ASSERT(secured != NULL && !s->closed && count <= STREAM_NAMES_MAX);
    text_format(s->proof.method, sizeof s->proof.method, "TLS of a test");
    for (unsigned i = 0; i < count; i++)
        text_format(s->proof.names[i], sizeof s->proof.names[i], "%s", names[i]);
    s->proof.count = count;
    s->stream.proof = &s->proof;
    s->secured = NULL;
    secured(&s->stream, NULL);
}

void teststream_insecure(struct teststream *s, const char *failure)
{
    stream_secured secured = s->secured;
    ASSERT(secured != NULL && !s->closed);
    s->secured = NULL;
    secured(&s->stream, failure);
}

void teststream_open_window(struct teststream *s, size_t more)
{
    s->send_window = more == SIZE_MAX ? SIZE_MAX : s->send_window + more;
    stir(s);
}

bool teststream_take(struct teststream *s, void *to, size_t len)
{
    if (teststream_sent(s) < len)
        return false;
    if (to != NULL)
        memcpy(to, s->out.bytes + s->out.start, len);
    s->out.start += len;
    return true;
}
