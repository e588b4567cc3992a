/*
 * NBD clients of all kinds. Each input is what a client sends, from its flags on. It is served twice by a server with
 * few pages and few requests: in one piece, and torn into pieces, both ways, on a device of another loop. However it
 * came, the same number of bytes must be answered; and when the client is gone nothing of it may be left, whether it
 * ended or was reset.
 *
 * Once more it comes by a listener with TLS, a piece at a time: what follows a STARTTLS in the same piece is clear text
 * that ends the connection, what is in the next piece comes over TLS, from a client that may have only the half of it.
 */
#include <string.h>

#include "core/check.h"
#include "core/crc32c.h"
#include "target/nbd/nbd.h"
#include "tests/unit/lib/testloop.h"
#include "tests/unit/lib/teststream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { DISK_BYTES = 65536, PAGES = 32, REQUESTS = 5 };

/* One server and one disk for all inputs, on one loop or on two. */
struct bench {
    struct testloop *near, *far;
    struct memdisk *disk;
    struct nbd_server *server;
};

static void add_export(struct bench *b, const char *name, bool read_only, bool hidden)
{
    struct nbd_export_options options = {.name = name,
                                         .description = "a disk to be fuzzed",
                                         .dev = &b->disk->dev,
                                         .read_only = read_only,
                                         .hidden = hidden};
    ASSERT(nbd_server_add_export(b->server, &options) == 0);
}

static void bench_start(struct bench *b, bool two_loops)
{
    struct nbd_limits limits = {.requests = REQUESTS};
    b->near = testloop_create(PAGES, 1);
    b->far = two_loops ? testloop_create(PAGES, 2) : b->near;
    b->disk = memdisk_create(&b->far->loop, "disk", DISK_BYTES, 512);
    b->server = nbd_server_create(&b->near->loop, &limits);
    ASSERT(b->server != NULL);
    add_export(b, "disk", false, false);
    add_export(b, "view", true, false);
    add_export(b, "", false, true);
    static const char *const names[] = {"cn:*"};
    const struct nbd_rule rule = {.name = "some", .clients = names, .client_count = 1, .read_only = true};
    const struct nbd_access_options access = {.tls = NBD_TLS_ALLOW, .connections = 1, .rules = &rule, .rule_count = 1};
    add_export(b, "some", false, false);
    ASSERT(nbd_server_set_access(b->server, "some", &access, 0) == 0);
    nbd_server_set_credentials(b->server, (struct stream_credentials *)b); /* opaque: any address will do */
}

static void run(struct bench *b)
{
    do {
        testloop_run_ready(b->near);
        testloop_run_ready(b->far);
    } while (!STAILQ_EMPTY(&b->near->loop.ready) || !STAILQ_EMPTY(&b->near->loop.late));
}

enum ending { END, RESET };

/* Serve one client; returns how many bytes it was sent. */
static size_t serve(struct bench *b, const uint8_t *data, size_t len, uint32_t piece, enum ending ending)
{
    struct teststream *s = teststream_create(&b->near->loop, len + piece);
    s->recv_max = piece;
    s->send_max = 3 * piece;
    memset(b->disk->bytes, 0, DISK_BYTES);
    teststream_feed(s, data, len);
    nbd_conn_open(b->server, &s->stream, NBD_TLS_OFF);
    if (ending == END)
        teststream_end(s);
    else if (piece > 0)
        loop_run(&b->near->loop, (unsigned)(len / piece)); /* somewhere in the middle */
    else
        run(b);
    if (ending == RESET && !s->closed)
        teststream_break(s);
    run(b);
    size_t sent = teststream_sent(s);
    ASSERT(s->closed && nbd_server_connections(b->server) == 0);
    ASSERT(page_pool_free(b->far->loop.pages) == PAGES);
    ASSERT(loop_next_timer_ns(&b->near->loop) == UINT64_MAX && loop_next_timer_ns(&b->far->loop) == UINT64_MAX);
    teststream_destroy(s);
    return sent;
}

/* The end of an option is where most pieces end: so that much of a STARTTLS gets an answer. */
static size_t piece_len(const uint8_t *data, size_t len, size_t max)
{
    size_t at = len < 16 ? len : 16;
    while (at < len && at < max && memcmp(data + at, "IHAVEOPT", MIN((size_t)8, len - at)) != 0)
        at++;
    return at;
}

static void serve_secured(struct bench *b, const uint8_t *data, size_t len, enum nbd_tls tls)
{
    static const char *const names[] = {"cn:fuzzer"};
    struct teststream *s = teststream_create(&b->near->loop, len);
    memset(b->disk->bytes, 0, DISK_BYTES);
    nbd_conn_open(b->server, &s->stream, tls);
    for (size_t at = 0, part; at < len && !s->closed; at += part) {
        part = at == 0 ? MIN(len, (size_t)4) : piece_len(data + at, len - at, 5000);
        teststream_feed(s, data + at, part);
        run(b);
        if (s->secured != NULL && !s->closed && len % 5 == 0)
            teststream_insecure(s, "of no account");
        else if (s->secured != NULL && !s->closed)
            teststream_secure(s, names, len % 2);
        run(b);
    }
    if (!s->closed)
        teststream_end(s);
    run(b);
    ASSERT(s->closed && nbd_server_connections(b->server) == 0);
    ASSERT(page_pool_free(b->far->loop.pages) == PAGES);
    teststream_destroy(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct bench one, two;
    if (one.server == NULL) {
        bench_start(&one, false);
        bench_start(&two, true);
    }
    uint32_t piece = 1 + crc32c(0, data, len) % 100;
    size_t whole = serve(&one, data, len, 0, END), torn = serve(&two, data, len, piece, END);
    ASSERT(whole == torn);
    serve(&one, data, len, piece, RESET);
    serve(&two, data, len, 0, RESET);
    serve_secured(&two, data, len, len % 3 == 0 ? NBD_TLS_REQUIRE : NBD_TLS_ALLOW);
    return 0;
}
