/*
 * The cipher over a socket: see daemon/tls.h.
 *
 * The stream keeps its address and gets other operations. What its owner wants (`wanted`) and what the socket is
 * watched for are two things: to receive may need the socket to take bytes (an answer to a new key), and bytes may be
 * here already though the socket is empty. So
 *
 *   recv_needs   what the socket must be before recv can go on
 *   more         the last recv did not come to the end of what is here: the owner, if it wants to read, is called again
 *                in the next turn, by `again`
 *
 * What is sent is gathered into records, a few of them are sealed, and all of that goes to the socket in one call. If
 * it takes only a part, the bytes that were sealed are `held`: they count as sent when the rest is gone, and are what
 * the owner sends next (core/stream.h). So nothing that was called sent is ever kept back here.
 *
 * After an error OpenSSL must not be called again but to free: `broken`. Its queue of errors is one per thread, and
 * empty before each call and after each failure, so that no connection sees what happened to another. To empty it takes
 * longer than to see that it is.
 */
#include "daemon/tls.h"

#include <limits.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/log.h"
#include "daemon/reactor.h"
#include "daemon/socket_internal.h"
#include "daemon/tls_internal.h"

struct tls {
    SSL *ssl;
    stream_secured secured; /* NULL: the handshake is over */
    struct tls_handshake handshake;
    unsigned wanted, recv_needs; /* of STREAM_READ, STREAM_WRITE */
    bool broken, more;
    size_t held;
    struct timer again;
    struct socket_stream *of;
    struct stream_proof proof;
    uint8_t record[TLS_RECORD_BYTES];
    struct tls_wire wire;
};

static void forget_errors(void)
{
    if (ERR_peek_error() != 0)
        ERR_clear_error();
}

/* Watch the socket for what the owner's wishes come to. */
static void watch(struct socket_stream *s)
{
    struct tls *t = s->tls;
    socket_watch(s, (t->wanted & STREAM_READ ? t->recv_needs : 0) | (t->wanted & STREAM_WRITE));
    if (!(t->wanted & STREAM_READ) || !t->more)
        timer_stop(s->stream.loop, &t->again);
    else if (!t->again.armed)
        timer_start(s->stream.loop, &t->again, 1); /* not 0: that would be this turn */
}

/* What the socket must be for a call of OpenSSL that failed to go on; 0: nothing will help. */
static unsigned needs_after(struct tls *t, int result)
{
    int error = SSL_get_error(t->ssl, result);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return error == SSL_ERROR_WANT_READ ? STREAM_READ : STREAM_WRITE;
    t->broken = error != SSL_ERROR_ZERO_RETURN;
    return 0;
}

/* --- the operations --- */

/* No more for now: what recv answers. */
static ssize_t recv_over(struct socket_stream *s, int result, size_t got)
{
    struct tls *t = s->tls;
    unsigned needs = needs_after(t, result);
    if (needs == 0)
        forget_errors();
    t->more = needs == 0 && got > 0; /* the end is told by the next call */
    if (needs != 0)
        t->recv_needs = needs;
    watch(s);
    if (got > 0)
        return (ssize_t)got;
    return needs != 0 ? STREAM_AGAIN : t->broken ? STREAM_BROKEN : 0;
}

static ssize_t tls_recv(struct stream *stream, const struct iovec *iov, int count)
{
    struct socket_stream *s = socket_of(stream);
    struct tls *t = s->tls;
    size_t got = 0;
    ASSERT(count > 0 && t->secured == NULL);
    if (t->broken)
        return STREAM_BROKEN;
    t->recv_needs = STREAM_READ;
    t->wire.empty = false;
    forget_errors();
    for (int i = 0; i < count; i++) {
        for (size_t at = 0; at < iov[i].iov_len;) {
            int n = SSL_read(t->ssl, (char *)iov[i].iov_base + at, (int)MIN(iov[i].iov_len - at, (size_t)INT_MAX));
            if (n <= 0)
                return recv_over(s, n, got);
            at += (size_t)n;
            got += (size_t)n;
        }
    }
    t->more = true;
    watch(s);
    return (ssize_t)got;
}

/* A place in the entries of a send. */
struct place {
    const struct iovec *iov;
    int count;
    size_t skip; /* of the first one */
};

static void go_on(struct place *at, size_t len)
{
    for (at->skip += len; at->count > 0 && at->skip >= at->iov->iov_len; at->iov++, at->count--)
        at->skip -= at->iov->iov_len;
}

/* The next record's bytes: where they lie if they lie together, else gathered in `room`. */
static const uint8_t *next_record(struct place *at, uint8_t *room, size_t *len)
{
    if (at->count > 0 && at->iov->iov_len - at->skip >= TLS_RECORD_BYTES) {
        const uint8_t *bytes = (const uint8_t *)at->iov->iov_base + at->skip;
        *len = TLS_RECORD_BYTES;
        go_on(at, *len);
        return bytes;
    }
    for (*len = 0; at->count > 0 && *len < TLS_RECORD_BYTES;) {
        size_t part = MIN(at->iov->iov_len - at->skip, TLS_RECORD_BYTES - *len);
        memcpy(room + *len, (const char *)at->iov->iov_base + at->skip, part);
        *len += part;
        go_on(at, part);
    }
    return room;
}

/* What was not taken before is what this begins with: core/stream.h. */
static bool begins_with_held(const struct iovec *iov, int count, size_t held)
{
    size_t len = 0;
    for (int i = 0; i < count && len < held; i++)
        len += iov[i].iov_len;
    return len >= held;
}

/* Seal what comes next, as much as is sent in one go. False: OpenSSL does not any more. */
static bool seal(struct tls *t, struct place *at)
{
    bool good = true;
    t->wire.collects = true;
    for (unsigned i = 0; i < TLS_RECORDS && good; i++) {
        size_t len;
        const uint8_t *bytes = next_record(at, t->record, &len);
        if (len == 0)
            break;
        good = SSL_write(t->ssl, bytes, (int)len) == (int)len;
        t->held += len;
    }
    t->wire.collects = false;
    return good;
}

static ssize_t tls_send(struct stream *stream, const struct iovec *iov, int count)
{
    struct socket_stream *s = socket_of(stream);
    struct tls *t = s->tls;
    struct place at = {iov, count, 0};
    size_t sent = 0;
    ASSERT(count > 0 && t->secured == NULL && begins_with_held(iov, count, t->held));
    if (t->broken)
        return STREAM_BROKEN;
    go_on(&at, t->held);
    forget_errors();
    for (;;) {
        bool sealed = t->held > 0 || seal(t, &at);
        int flushed = sealed ? tls_wire_flush(&t->wire, s->fd) : -1;
        if (flushed < 0) {
            forget_errors();
            t->broken = true;
            return STREAM_BROKEN;
        }
        if (flushed == 0)
            return sent > 0 ? (ssize_t)sent : STREAM_AGAIN;
        if (t->held == 0)
            return (ssize_t)sent;
        sent += t->held;
        t->held = 0;
    }
}

static void tls_want(struct stream *stream, unsigned events)
{
    struct socket_stream *s = socket_of(stream);
    ASSERT(loop_is_current(stream->loop) && stream->owner != NULL && s->tls->secured == NULL);
    s->tls->wanted = events;
    watch(s);
}

static void tls_move(struct stream *stream, struct loop *to, struct task *arrived)
{
    struct socket_stream *s = socket_of(stream);
    ASSERT(s->tls->secured == NULL);
    timer_stop(stream->loop, &s->tls->again);
    socket_move(stream, to, arrived);
}

void tls_arrived(struct socket_stream *s)
{
    watch(s);
}

/* The goodbye is sent if it can be: not into the middle of a record. */
static void tls_close(struct stream *stream)
{
    struct socket_stream *s = socket_of(stream);
    struct tls *t = s->tls;
    timer_stop(stream->loop, &t->again);
    forget_errors();
    if (t->secured == NULL && !t->broken && t->held == 0)
        SSL_shutdown(t->ssl);
    tls_credentials_shut(t->ssl);
    free(t);
    s->tls = NULL;
    socket_close(stream);
}

static bool tls_start_twice(struct stream *stream, struct stream_credentials *credentials, stream_secured secured)
{
    (void)credentials, (void)secured;
    ASSERT(socket_of(stream)->tls == NULL); /* never: it has one */
    return false;
}

static const struct stream_ops tls_ops = {.recv = tls_recv,
                                          .send = tls_send,
                                          .want = tls_want,
                                          .move = tls_move,
                                          .start_tls = tls_start_twice,
                                          .has_left = socket_has_left,
                                          .close = tls_close};

/* --- the handshake --- */

/* For people; OpenSSL's words, which do not lie in the peer's hands. */
static void failure_text(const struct tls *t, int result, char *out, size_t len)
{
    long verdict = SSL_get_verify_result(t->ssl);
    unsigned long code = ERR_peek_last_error();
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;
    if (verdict != X509_V_OK)
        text_format(out, len, "the client's certificate: %s", X509_verify_cert_error_string(verdict));
    else if (reason != NULL)
        text_format(out, len, "the TLS handshake failed: %s", reason);
    else
        text_format(out, len, "the TLS handshake failed: %s", result == 0 ? "the client ended it" : "connection reset");
}

/* The owner may close the stream from within `secured`: nothing is touched behind it. */
static void handshake_over(struct socket_stream *s, const char *failure)
{
    struct tls *t = s->tls;
    stream_secured secured = t->secured;
    timer_stop(s->stream.loop, &t->again);
    socket_watch(s, 0);
    t->broken = failure != NULL;
    if (failure == NULL) {
        tls_proof_take(t->ssl, &t->handshake, &t->proof);
        s->stream.proof = &t->proof;
        t->more = true; /* what the peer sent behind its last message may be here */
    }
    t->secured = NULL;
    secured(&s->stream, failure);
}

static void handshake_go_on(struct socket_stream *s)
{
    struct tls *t = s->tls;
    char failure[200];
    t->wire.empty = false;
    forget_errors();
    int result = SSL_accept(t->ssl);
    if (result == 1) {
        handshake_over(s, NULL);
        return;
    }
    unsigned needs = needs_after(t, result);
    if (needs != 0) {
        forget_errors();
        socket_watch(s, needs);
        return;
    }
    failure_text(t, result, failure, sizeof failure);
    forget_errors();
    handshake_over(s, failure);
}

void tls_ready(struct socket_stream *s, unsigned event)
{
    struct tls *t = s->tls;
    if (t->secured != NULL)
        handshake_go_on(s);
    else if (t->wanted & STREAM_WRITE & event)
        s->stream.owner->writable(&s->stream);
    else if ((t->wanted & STREAM_READ) && t->recv_needs == event)
        s->stream.owner->readable(&s->stream);
}

/* The first step of the handshake, and more to read: until recv says that there is none, or the owner does not want
 * it. */
static void go_again(struct timer *timer)
{
    struct tls *t = container_of(timer, struct tls, again);
    struct socket_stream *s = t->of;
    if (t->secured != NULL) {
        handshake_go_on(s);
        return;
    }
    timer_start(s->stream.loop, &t->again, 1);
    s->stream.owner->readable(&s->stream);
}

bool tls_start(struct stream *stream, struct stream_credentials *credentials, stream_secured secured)
{
    struct socket_stream *s = socket_of(stream);
    ASSERT(loop_is_current(stream->loop));
    struct tls *t = malloc(sizeof *t);
    SSL *ssl = t != NULL ? tls_credentials_open(credentials, s->fd, &t->wire) : NULL;
    if (ssl == NULL) {
        free(t);
        return false;
    }
    memset(t, 0, offsetof(struct tls, record)); /* all but the buffers */
    memset(&t->wire, 0, offsetof(struct tls_wire, bytes));
    t->ssl = ssl;
    t->of = s;
    t->secured = secured;
    t->recv_needs = STREAM_READ;
    t->again.fire = go_again;
    SSL_set_app_data(ssl, &t->handshake);
    socket_watch(s, 0);
    s->tls = t;
    stream->ops = &tls_ops;
    timer_start(stream->loop, &t->again, 1);
    return true;
}
