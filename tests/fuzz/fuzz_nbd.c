/*
 * NBD clients of all kinds. Each input is what a client sends, from its flags on. It is served twice by a server with
 * few pages and few requests: in one piece, and torn into pieces, both ways, on a device of another loop. However it
 * came, the same number of bytes must be answered; and when the client is gone nothing of it may be left, whether it
 * ended or was reset.
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
    struct nbd_export_options options = {name, "a disk to be fuzzed", &b->disk->dev, read_only, hidden};
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
    return 0;
}
