/*
 * The door to the network for unit tests and fuzzers: a stream whose peer is the test.
 *
 * The test feeds bytes, runs the loop, and looks at what the owner sent. Receives and sends are made short on purpose
 * (recv_max, send_max: a random length up to that many bytes, from the seed), sends are held back by a window, and the
 * peer may end (recv answers 0 once all was read) or break (both answer STREAM_BROKEN).
 *
 * Callbacks come as the reactor's do: level-triggered, once a turn, when nothing else is ready.
 *
 * Unlike a real stream, this one outlives stream_close(), so that a test can look at it: `closed` tells, and
 * teststream_destroy() frees it.
 */
#ifndef TESTS_UNIT_LIB_TESTSTREAM_H
#define TESTS_UNIT_LIB_TESTSTREAM_H

#include "core/stream.h"

struct testbytes {
    uint8_t *bytes;
    size_t start, end, room; /* unread: [start, end) */
};

struct teststream {
    struct stream stream;

    /* Knobs. */
    uint32_t recv_max, send_max; /* longest receive and send in one call; 0: no limit */
    size_t send_window;          /* bytes the peer will still take; SIZE_MAX at first */
    uint64_t seed;

    /* What happened. */
    struct testbytes in, out; /* not yet read by the owner; sent by the owner and not yet taken by the test */
    unsigned recvs, sends;    /* calls that the owner made */
    unsigned moves;
    bool closed;
    struct stream_credentials *credentials; /* TLS was asked for, with these; bytes go on as they are */

    /* Inside. */
    bool ended, broken;
    unsigned wanted;
    struct task pump, *arrived;
    stream_secured secured; /* while the handshake goes on */
    struct stream_proof proof;
};

struct teststream *teststream_create(struct loop *loop, uint64_t seed);
/* The owner has closed it, and the loop has run. */
void teststream_destroy(struct teststream *s);

/* Bytes from the peer. */
void teststream_feed(struct teststream *s, const void *bytes, size_t len);
void teststream_end(struct teststream *s);   /* the peer's orderly end, after what was fed */
void teststream_break(struct teststream *s); /* the connection is reset */
/* The handshake of TLS is over: the peer has proved to be `count` names, or it failed. */
void teststream_secure(struct teststream *s, const char *const *names, unsigned count);
void teststream_insecure(struct teststream *s, const char *failure);
/* Let the peer take `more` bytes; SIZE_MAX: no limit any more. */
void teststream_open_window(struct teststream *s, size_t more);

/* What the owner sent and nobody took yet: look, and take. */
static inline size_t teststream_sent(const struct teststream *s)
{
    return s->out.end - s->out.start;
}
static inline const uint8_t *teststream_look(const struct teststream *s)
{
    return s->out.bytes + s->out.start;
}
/* Take `len` bytes (to may be NULL); false, and none taken, if there are not as many. */
bool teststream_take(struct teststream *s, void *to, size_t len);

#endif
