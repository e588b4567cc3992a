/*
 * NBD requests and replies. Byte 0 of an input says how its client has introduced itself: the kind of headers, whether
 * block status was asked for, which export; the rest is what it sends in transmission. (What comes before is the affair
 * of fuzz_nbd.c.) The device holds holes and its pages are few.
 *
 * It is served in one piece and torn, on the server's loop and on another: the same number of bytes must be answered,
 * and in chunks these are whole messages of the right kind. Then the client is reset, and then the server asked to end
 * it, in the middle. In the end nothing of it may be left.
 */
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "target/nbd/nbd.h"
#include "target/nbd/protocol.h"
#include "tests/unit/lib/testloop.h"
#include "tests/unit/lib/teststream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { DISK_BYTES = 128 * 1024, PAGES = 80, REQUESTS = 5 };

struct bench {
    struct testloop *near, *far;
    struct memdisk *disk;
    struct nbd_server *server;
};

static void bench_start(struct bench *b, bool two_loops)
{
    struct nbd_limits limits = {.requests = REQUESTS};
    b->near = testloop_create(PAGES, 1);
    b->far = two_loops ? testloop_create(PAGES, 2) : b->near;
    b->disk = memdisk_create(&b->far->loop, "disk", DISK_BYTES, 512);
    b->disk->unwritten[0] = 20480 + 512;
    b->disk->unwritten[1] = 90000 / 512 * 512;
    b->server = nbd_server_create(&b->near->loop, &limits);
    ASSERT(b->server != NULL);
    static const char *const names[] = {"disk", "view"};
    for (unsigned i = 0; i < 2; i++) {
        struct nbd_export_options options = {.name = names[i], .dev = &b->disk->dev, .read_only = i};
        ASSERT(nbd_server_add_export(b->server, &options) == 0);
    }
}

static void run(struct bench *b)
{
    do {
        testloop_run_ready(b->near);
        testloop_run_ready(b->far);
    } while (!STAILQ_EMPTY(&b->near->loop.ready) || !STAILQ_EMPTY(&b->near->loop.late));
}

static void feed_option(struct teststream *s, uint32_t option, const void *data, uint32_t len)
{
    uint8_t header[NBD_OPTION_BYTES];
    put_be64(header, NBD_MAGIC_OPTION);
    put_be32(header + 8, option);
    put_be32(header + 12, len);
    teststream_feed(s, header, sizeof header);
    teststream_feed(s, data, len);
}

/* From the greeting to transmission. */
static void introduce(struct bench *b, struct teststream *s, enum nbd_mode mode, bool with_status, bool writes)
{
    static const char set_disk[] = "\0\0\0\4disk\0\0\0\1\0\0\0\17base:allocation",
                      set_view[] = "\0\0\0\4view\0\0\0\1\0\0\0\17base:allocation";
    static const char go_disk[] = "\0\0\0\4disk\0\0", go_view[] = "\0\0\0\4view\0\0";
    teststream_feed(s, "\0\0\0\3", 4);
    if (mode != NBD_SIMPLE)
        feed_option(s, mode == NBD_EXTENDED ? NBD_OPT_EXTENDED_HEADERS : NBD_OPT_STRUCTURED_REPLY, "", 0);
    if (with_status)
        feed_option(s, NBD_OPT_SET_META_CONTEXT, writes ? set_disk : set_view, sizeof set_disk - 1);
    feed_option(s, NBD_OPT_GO, writes ? go_disk : go_view, sizeof go_disk - 1);
    nbd_conn_open(b->server, &s->stream, NBD_TLS_OFF);
    run(b);
    ASSERT(!s->closed && teststream_take(s, NULL, teststream_sent(s)));
}

/* Chunks are whole, and of the kind that was asked for. */
static void check_replies(const uint8_t *at, size_t left, enum nbd_mode mode)
{
    while (left > 0 && mode != NBD_SIMPLE) {
        bool is_simple = left >= 4 && get_be32(at) == NBD_MAGIC_SIMPLE_REPLY;
        size_t header = mode == NBD_EXTENDED ? NBD_EXTENDED_CHUNK_BYTES : NBD_CHUNK_BYTES;
        size_t len = is_simple ? NBD_SIMPLE_REPLY_BYTES : header;
        ASSERT(left >= len && !(is_simple && mode == NBD_EXTENDED));
        uint32_t magic = mode == NBD_EXTENDED ? NBD_MAGIC_EXTENDED_REPLY : NBD_MAGIC_STRUCTURED_REPLY;
        ASSERT(is_simple || get_be32(at) == magic);
        if (!is_simple)
            len += mode == NBD_EXTENDED ? get_be64(at + 24) : get_be32(at + 16);
        ASSERT(left >= len);
        at += len;
        left -= len;
    }
}

enum ending { END, RESET, ASKED_TO_END };

static void finish(struct bench *b, struct teststream *s, enum ending ending, unsigned turns)
{
    struct nbd_conn_info info;
    if (ending == END)
        teststream_end(s);
    else
        loop_run(&b->near->loop, turns); /* somewhere in the middle */
    if (ending == RESET && !s->closed)
        teststream_break(s);
    if (ending == ASKED_TO_END && nbd_server_info(b->server, &info, 1) == 1)
        nbd_server_drop(b->server, info.id, 1);
    run(b);
    if (ending == ASKED_TO_END && !s->closed)
        teststream_end(s);
    run(b);
}

/* Serve one client; returns how many bytes it was sent in transmission. */
static size_t serve(struct bench *b, const uint8_t *data, size_t len, uint32_t piece, enum ending ending)
{
    uint8_t how = data[0];
    enum nbd_mode mode = (enum nbd_mode)(how % 3);
    struct teststream *s = teststream_create(&b->near->loop, len + piece);
    memset(b->disk->bytes, 0, DISK_BYTES);
    introduce(b, s, mode, mode != NBD_SIMPLE && how & 16, !(how & 32));
    s->recv_max = piece;
    s->send_max = 3 * piece;
    teststream_feed(s, data + 1, len - 1);
    finish(b, s, ending, (unsigned)(len / (piece + 1)));
    size_t sent = teststream_sent(s);
    if (ending == END)
        check_replies(teststream_look(s), sent, mode);
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
    if (len == 0)
        return 0;
    uint32_t piece = 1 + crc32c(0, data, len) % 100;
    size_t whole = serve(&one, data, len, 0, END), torn = serve(&two, data, len, piece, END);
    ASSERT(whole == torn);
    serve(&one, data, len, piece, RESET);
    serve(&two, data, len, piece, ASKED_TO_END);
    return 0;
}
