#include "tests/unit/target/nbd_peer.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* --- the holder --- */

static void holder_submit(struct blkdev *dev, struct blk_req *req)
{
    struct holder *h = container_of(dev, struct holder, dev);
    h->count++;
    h->seen++;
    STAILQ_INSERT_TAIL(&h->held, req, link);
}

static void holder_close(struct blkdev *dev, struct task *closed)
{
    loop_defer(dev->loop, closed);
}

static const struct blkdev_ops holder_ops = {.kind = "holder", .submit = holder_submit, .close = holder_close};

void holder_init(struct holder *h, struct loop *loop, uint64_t size)
{
    struct blk_info info = {.size = size, .logical_block = 512, .physical_block = 4096, .discards = true};
    *h = (struct holder){0};
    blkdev_init(&h->dev, &holder_ops, loop, "holder", &info);
    STAILQ_INIT(&h->held);
}

void holder_end(struct holder *h, bool newest, enum blk_status status, uint64_t bad_off)
{
    struct blk_req *req = STAILQ_FIRST(&h->held);
    while (newest && req != NULL && STAILQ_NEXT(req, link) != NULL)
        req = STAILQ_NEXT(req, link);
    cr_assert(req != NULL, "something is held");
    STAILQ_REMOVE(&h->held, req, blk_req, link);
    h->count--;
    for (uint32_t i = 0; req->op == BLK_READ && i < page_count_for(req->off, req->len); i++)
        memset(req->pages[i]->data, 0x5a, PAGE_BYTES);
    if (status == BLK_MEDIA)
        blk_complete_media(req, bad_off);
    else
        blk_complete(req, status);
}

void holder_end_all(struct holder *h, enum blk_status status)
{
    while (h->count > 0)
        holder_end(h, false, status, 0);
}

/* --- the bench --- */

struct peer peer_start(const struct peer_setup *setup)
{
    struct peer p = {.seed = setup->seed};
    uint32_t pages = setup->pages != 0 ? setup->pages : 32768;
    p.t = testloop_create(pages, 1);
    p.far = setup->two_loops ? testloop_create(pages, 2) : p.t;
    p.disk =
        memdisk_create(&p.far->loop, "disk", PEER_DISK_BYTES, setup->logical_block != 0 ? setup->logical_block : 512);
    struct nbd_limits limits = {
        .connections = setup->connections, .half_open = setup->half_open, .requests = setup->requests};
    p.server = nbd_server_create(&p.t->loop, &limits);
    cr_assert(p.server != NULL);
    peer_export(&p, "disk", "the only one", false, false);
    return p;
}

void peer_run(struct peer *p)
{
    bool more;
    do {
        testloop_run_ready(p->t);
        testloop_run_ready(p->far);
        more = !STAILQ_EMPTY(&p->t->loop.ready) || !STAILQ_EMPTY(&p->t->loop.late);
    } while (more);
}

struct drained {
    struct task task;
    bool flag;
};

static void on_drained(struct task *task)
{
    container_of(task, struct drained, task)->flag = true;
}

void peer_stop(struct peer *p)
{
    struct drained drained = {.task.run = on_drained};
    nbd_server_drain(p->server, 1000, &drained.task);
    peer_run(p);
    testloop_run_until(p->t, &drained.flag);
    peer_run(p);
    testloop_run_until(p->t, &drained.flag);
    cr_expect(drained.flag, "drained");
    if (p->s != NULL)
        peer_forget(p);
    nbd_server_destroy(p->server);
    cr_expect_eq(loop_next_timer_ns(&p->t->loop), UINT64_MAX, "no timer is left");
    cr_expect_eq(loop_next_timer_ns(&p->far->loop), UINT64_MAX, "no timer is left");
    test_close(p->far, &p->disk->dev);
    if (p->far != p->t)
        testloop_destroy(p->far);
    testloop_destroy(p->t);
}

struct teststream *peer_connect(struct peer *p)
{
    p->s = teststream_create(&p->t->loop, p->seed);
    if (p->seed != 0) {
        p->s->recv_max = p->seed % 2 ? 1 : 300;
        p->s->send_max = p->seed % 3 ? 1 : 5000;
    }
    p->mode = NBD_SIMPLE;
    nbd_conn_open(p->server, &p->s->stream, p->tls);
    peer_run(p);
    return p->s;
}

void peer_forget(struct peer *p)
{
    cr_expect(p->s->closed, "the server closed the stream");
    peer_run(p);
    teststream_destroy(p->s);
    p->s = NULL;
}

void peer_export(struct peer *p, const char *name, const char *description, bool read_only, bool hidden)
{
    struct nbd_export_options options = {
        .name = name, .description = description, .dev = &p->disk->dev, .read_only = read_only, .hidden = hidden};
    cr_assert_eq(nbd_server_add_export(p->server, &options), 0);
}

/* --- options --- */

static void take(struct peer *p, void *to, size_t len)
{
    cr_assert(teststream_take(p->s, to, len), "%zu bytes are there, %zu are wanted", teststream_sent(p->s), len);
}

void peer_greet(struct peer *p, uint32_t flags)
{
    uint8_t greeting[NBD_GREETING_BYTES], answer[NBD_CLIENT_FLAGS_BYTES];
    take(p, greeting, sizeof greeting);
    cr_expect_arr_eq(greeting, "NBDMAGICIHAVEOPT\0\3", sizeof greeting);
    put_be32(answer, flags);
    teststream_feed(p->s, answer, sizeof answer);
    peer_run(p);
}

void peer_option(struct peer *p, uint32_t option, const void *data, uint32_t len)
{
    uint8_t header[NBD_OPTION_BYTES];
    put_be64(header, NBD_MAGIC_OPTION);
    put_be32(header + 8, option);
    put_be32(header + 12, len);
    teststream_feed(p->s, header, sizeof header);
    if (data != NULL)
        teststream_feed(p->s, data, len);
    peer_run(p);
}

uint32_t peer_option_reply(struct peer *p, uint32_t option, uint32_t type, uint8_t data[PEER_DATA_MAX])
{
    uint8_t header[NBD_OPTION_REPLY_BYTES];
    take(p, header, sizeof header);
    cr_expect_eq(get_be64(header), NBD_MAGIC_REPLY);
    cr_expect_eq(get_be32(header + 8), option);
    cr_expect_eq(get_be32(header + 12), type, "reply type %x, not %x", get_be32(header + 12), type);
    uint32_t len = get_be32(header + 16);
    cr_assert(len <= PEER_DATA_MAX);
    take(p, data, len);
    return len;
}

void peer_info(struct peer *p, uint32_t option, const char *name, uint32_t name_len, const uint16_t *infos,
               uint16_t count)
{
    uint8_t data[NBD_OPTION_DATA_MAX];
    cr_assert(6 + name_len + 2u * count <= sizeof data);
    put_be32(data, name_len);
    memcpy(data + 4, name, name_len);
    put_be16(data + 4 + name_len, count);
    for (uint16_t i = 0; i < count; i++)
        put_be16(data + 6 + name_len + 2 * i, infos[i]);
    peer_option(p, option, data, 6 + name_len + 2u * count);
}

static void choose_mode(struct peer *p, enum nbd_mode mode)
{
    static const uint32_t options[] = {
        [NBD_STRUCTURED] = NBD_OPT_STRUCTURED_REPLY, [NBD_EXTENDED] = NBD_OPT_EXTENDED_HEADERS};
    uint8_t data[PEER_DATA_MAX];
    p->mode = mode;
    if (mode == NBD_SIMPLE)
        return;
    peer_option(p, options[mode], NULL, 0);
    peer_option_reply(p, options[mode], NBD_REP_ACK, data);
}

void peer_meta(struct peer *p, uint32_t option, const char *name, const char *const *queries, uint32_t count)
{
    uint8_t data[NBD_OPTION_DATA_MAX];
    uint32_t at = 4 + (uint32_t)strlen(name);
    put_be32(data, at - 4);
    memcpy(data + 4, name, at - 4);
    put_be32(data + at, count);
    at += 4;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t len = (uint32_t)strlen(queries[i]);
        cr_assert(at + 4 + len <= sizeof data);
        put_be32(data + at, len);
        memcpy(data + at + 4, queries[i], len);
        at += 4 + len;
    }
    peer_option(p, option, data, at);
}

static uint16_t go(struct peer *p, const char *name)
{
    uint8_t data[PEER_DATA_MAX];
    peer_info(p, NBD_OPT_GO, name, (uint32_t)strlen(name), NULL, 0);
    cr_assert_eq(peer_option_reply(p, NBD_OPT_GO, NBD_REP_INFO, data), 12);
    uint16_t flags = get_be16(data + 10);
    cr_expect_eq(peer_option_reply(p, NBD_OPT_GO, NBD_REP_ACK, data), 0);
    cr_expect_eq(teststream_sent(p->s), 0, "nothing follows the ACK");
    return flags;
}

uint16_t peer_go(struct peer *p, const char *name, enum nbd_mode mode)
{
    peer_greet(p, NBD_HANDSHAKE_FIXED_NEWSTYLE | NBD_HANDSHAKE_NO_ZEROES);
    choose_mode(p, mode);
    return go(p, name);
}

uint16_t peer_go_with_status(struct peer *p, const char *name, enum nbd_mode mode)
{
    static const char *const query = "base:allocation";
    uint8_t data[PEER_DATA_MAX];
    peer_greet(p, NBD_HANDSHAKE_FIXED_NEWSTYLE | NBD_HANDSHAKE_NO_ZEROES);
    choose_mode(p, mode);
    peer_meta(p, NBD_OPT_SET_META_CONTEXT, name, &query, 1);
    cr_expect_eq(peer_option_reply(p, NBD_OPT_SET_META_CONTEXT, NBD_REP_META_CONTEXT, data), 4 + 15);
    cr_expect_eq(peer_option_reply(p, NBD_OPT_SET_META_CONTEXT, NBD_REP_ACK, data), 0);
    return go(p, name);
}

/* --- transmission --- */

void peer_header(struct peer *p, uint16_t flags, uint16_t command, uint64_t cookie, uint64_t off, uint64_t len)
{
    uint8_t header[NBD_EXTENDED_REQUEST_BYTES];
    put_be32(header, p->mode == NBD_EXTENDED ? NBD_MAGIC_EXTENDED_REQUEST : NBD_MAGIC_REQUEST);
    put_be16(header + 4, flags);
    put_be16(header + 6, command);
    put_be64(header + 8, cookie);
    put_be64(header + 16, off);
    if (p->mode == NBD_EXTENDED)
        put_be64(header + 24, len);
    else
        put_be32(header + 24, (uint32_t)len);
    teststream_feed(p->s, header, nbd_request_bytes(p->mode));
}

void peer_request(struct peer *p, uint16_t flags, uint16_t command, uint64_t cookie, uint64_t off, uint64_t len)
{
    bool says_payload = p->mode == NBD_EXTENDED && command == NBD_CMD_WRITE;
    peer_header(p, flags | (says_payload ? NBD_CMD_PAYLOAD_LEN : 0), command, cookie, off, len);
}

void peer_write(struct peer *p, uint16_t flags, uint64_t cookie, uint64_t off, const void *data, uint32_t len)
{
    peer_request(p, flags, NBD_CMD_WRITE, cookie, off, len);
    teststream_feed(p->s, data, len);
}

/* Chunks of a read come in order and without gaps. */
static void take_content(struct peer *p, struct peer_reply *reply, uint8_t *data, uint64_t len)
{
    uint8_t fixed[12];
    bool is_hole = reply->type == NBD_CHUNK_OFFSET_HOLE;
    take(p, fixed, is_hole ? 12 : 8);
    if (reply->chunks == 1)
        reply->off = get_be64(fixed);
    cr_assert_eq(get_be64(fixed), reply->off + reply->len);
    uint32_t part = is_hole ? get_be32(fixed + 8) : (uint32_t)len - 8;
    cr_assert(part > 0 && (!is_hole || len == 12));
    uint8_t *to = data != NULL ? data + reply->len : NULL;
    if (!is_hole)
        take(p, to, part);
    else if (to != NULL)
        memset(to, 0, part);
    reply->len += part;
    reply->holes += is_hole;
}

static void take_extents(struct peer *p, struct peer_reply *reply, uint64_t len)
{
    uint8_t fixed[16];
    bool extended = p->mode == NBD_EXTENDED;
    cr_assert_eq(reply->type, extended ? NBD_CHUNK_BLOCK_STATUS_EXT : NBD_CHUNK_BLOCK_STATUS);
    take(p, fixed, extended ? 8 : 4);
    reply->context = get_be32(fixed);
    uint64_t count = extended ? (len - 8) / 16 : (len - 4) / 8;
    cr_assert(count > 0 && count <= PEER_EXTENTS_MAX);
    cr_expect_eq(len, extended ? 8 + 16 * count : 4 + 8 * count);
    cr_expect(!extended || get_be32(fixed + 4) == count);
    for (reply->extents = 0; reply->extents < count; reply->extents++) {
        take(p, fixed, extended ? 16 : 8);
        reply->extent[reply->extents].len = extended ? get_be64(fixed) : get_be32(fixed);
        reply->extent[reply->extents].state = extended ? get_be64(fixed + 8) : get_be32(fixed + 4);
    }
}

static void take_error(struct peer *p, struct peer_reply *reply, uint64_t len)
{
    uint8_t fixed[8];
    bool has_place = reply->type == NBD_CHUNK_ERROR_OFFSET;
    take(p, fixed, 6);
    reply->error = get_be32(fixed);
    uint16_t text_len = get_be16(fixed + 4);
    cr_assert(text_len > 0 && text_len < sizeof reply->text);
    take(p, reply->text, text_len);
    cr_expect_eq(len, 6u + text_len + (has_place ? 8 : 0));
    if (has_place) {
        take(p, fixed, 8);
        reply->off = get_be64(fixed);
    }
}

/* True: there are more of this reply. */
static bool take_chunk(struct peer *p, struct peer_reply *reply, uint8_t *data)
{
    uint8_t header[NBD_EXTENDED_CHUNK_BYTES];
    bool extended = p->mode == NBD_EXTENDED;
    take(p, header, extended ? NBD_EXTENDED_CHUNK_BYTES : NBD_CHUNK_BYTES);
    cr_assert_eq(get_be32(header), extended ? NBD_MAGIC_EXTENDED_REPLY : NBD_MAGIC_STRUCTURED_REPLY);
    cr_expect((get_be16(header + 4) & ~NBD_CHUNK_DONE) == 0);
    cr_expect(reply->chunks == 0 || get_be64(header + 8) == reply->cookie, "chunks of one reply stay together");
    reply->chunk = true;
    reply->chunks++;
    reply->type = get_be16(header + 6);
    reply->cookie = get_be64(header + 8);
    uint64_t len = extended ? get_be64(header + 24) : get_be32(header + 16);
    if (reply->type == NBD_CHUNK_OFFSET_DATA || reply->type == NBD_CHUNK_OFFSET_HOLE)
        take_content(p, reply, data, len);
    else if (reply->type == NBD_CHUNK_NONE)
        cr_assert_eq(len, 0);
    else if (reply->type == NBD_CHUNK_ERROR || reply->type == NBD_CHUNK_ERROR_OFFSET)
        take_error(p, reply, len);
    else if (reply->type == NBD_CHUNK_BLOCK_STATUS || reply->type == NBD_CHUNK_BLOCK_STATUS_EXT)
        take_extents(p, reply, len);
    else
        cr_assert_fail("a chunk of type %u", reply->type);
    return !(get_be16(header + 4) & NBD_CHUNK_DONE);
}

struct peer_reply peer_take(struct peer *p, uint8_t *data, uint32_t data_len)
{
    uint8_t header[NBD_SIMPLE_REPLY_BYTES];
    struct peer_reply reply = {0};
    cr_assert(teststream_sent(p->s) >= sizeof header, "a reply is there");
    if (get_be32(teststream_look(p->s)) != NBD_MAGIC_SIMPLE_REPLY) {
        cr_expect_neq(p->mode, NBD_SIMPLE, "a chunk only to who asked for them");
        while (take_chunk(p, &reply, data))
            ;
        return reply;
    }
    cr_expect_neq(p->mode, NBD_EXTENDED, "no simple reply after EXTENDED_HEADERS");
    take(p, header, sizeof header);
    reply.error = get_be32(header + 4);
    reply.cookie = get_be64(header + 8);
    if (reply.error == 0) {
        cr_expect(data_len == 0 || p->mode == NBD_SIMPLE, "data in chunks after STRUCTURED_REPLY");
        reply.len = data_len;
        take(p, data, data_len);
    }
    return reply;
}

void peer_expect(struct peer *p, uint64_t cookie, uint32_t error)
{
    struct peer_reply reply = peer_take(p, NULL, 0);
    cr_expect_eq(reply.cookie, cookie, "cookie %lu, not %lu", reply.cookie, cookie);
    cr_expect_eq(reply.error, error, "error %u, not %u", reply.error, error);
}

void peer_ask(struct peer *p, uint16_t flags, uint16_t command, uint64_t off, uint64_t len, uint32_t error)
{
    uint64_t cookie = test_random(&p->t->seed);
    peer_request(p, flags, command, cookie, off, len);
    peer_run(p);
    peer_expect(p, cookie, error);
}

struct peer peer_serving(const struct peer_setup *setup, enum nbd_mode mode)
{
    struct peer p = peer_start(setup);
    peer_connect(&p);
    peer_go(&p, "disk", mode);
    return p;
}

struct peer peer_holding(const struct peer_setup *setup, struct holder *h, uint64_t size, enum nbd_mode mode)
{
    struct peer p = peer_start(setup);
    holder_init(h, &p.far->loop, size);
    struct nbd_export_options options = {.name = "held", .dev = &h->dev};
    cr_assert_eq(nbd_server_add_export(p.server, &options), 0);
    peer_connect(&p);
    peer_go(&p, "held", mode);
    return p;
}

void peer_expect_data(struct peer *p, uint64_t cookie, uint64_t off, uint32_t len)
{
    uint8_t *data = malloc(len);
    struct peer_reply reply = peer_take(p, data, len);
    cr_expect_eq(reply.cookie, cookie, "cookie %lu, not %lu", reply.cookie, cookie);
    cr_expect_eq(reply.error, 0u);
    cr_assert_eq(reply.len, len);
    cr_expect(!reply.chunk || reply.off == off);
    cr_expect(memcmp(data, p->disk->bytes + off, len) == 0, "read of %u at %lu", len, off);
    free(data);
}
