/* What an NBD client asks, and what it gets: bytes, flags, errors, order, and what it costs. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/lib/testalloc.h"
#include "tests/unit/target/nbd_peer.h"

static const struct peer_setup plain;

Test(nbd, what_is_written_reads_back)
{
    static const struct {
        uint64_t off;
        uint32_t len;
    } cases[] = {{0, 512},
                 {512, 4096},
                 {4096, 4096},
                 {3584, 1024},
                 {1024, 66048},
                 {8192, 131072},
                 {7680, 135168},
                 {512, 1 << 20},
                 {0, 2 << 20},
                 {PEER_DISK_BYTES - 512, 512},
                 {0, PEER_DISK_BYTES}};
    uint8_t *data = malloc(PEER_DISK_BYTES);
    for (unsigned mode = 0; mode < 6; mode++) {
        struct peer p = peer_serving(&(struct peer_setup){.two_loops = mode & 1}, mode / 2);
        for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
            test_fill(data, cases[i].len, i + 1);
            peer_write(&p, 0, i, cases[i].off, data, cases[i].len);
            peer_run(&p);
            peer_expect(&p, i, 0);
            cr_expect(memcmp(p.disk->bytes + cases[i].off, data, cases[i].len) == 0, "case %zu", i);
            peer_request(&p, 0, NBD_CMD_READ, ~i, cases[i].off, cases[i].len);
            peer_run(&p);
            peer_expect_data(&p, ~i, cases[i].off, cases[i].len);
        }
        cr_expect_eq(page_pool_free(p.far->loop.pages), page_pool_size(p.far->loop.pages));
        peer_stop(&p);
    }
    free(data);
}

/* Random requests, pipelined, cut into pieces of every size; a model of the disk. */
Test(nbd, a_torn_stream_stays_in_step)
{
    enum { ROUNDS = 40, DEPTH = 12 };
    uint8_t *data = malloc(1 << 18), *model = malloc(PEER_DISK_BYTES);
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct peer p = peer_serving(
            &(struct peer_setup){.requests = 5, .pages = 200, .two_loops = seed % 2, .seed = seed}, seed % 3);
        p.s->recv_max = seed % 4 == 0 ? 1 : 9000; /* a byte at a time is slow: for one seed in four */
        p.s->send_max = seed % 4 == 1 ? 7 : 20000;
        memset(model, 0, PEER_DISK_BYTES);
        for (unsigned round = 0; round < ROUNDS; round++) {
            uint32_t off[DEPTH], len[DEPTH];
            bool is_write = round % 2 == 0;
            for (unsigned i = 0; i < DEPTH; i++) { /* each in a strip of its own: they may overtake one another */
                len[i] = 512 * (uint32_t)(1 + test_random(&seed) % (seed % 4 == 0 ? 8 : 300));
                off[i] = i * (PEER_DISK_BYTES / DEPTH / 512) * 512 + 512 * (uint32_t)(test_random(&seed) % 300);
                if (is_write) {
                    test_fill(data, len[i], test_random(&seed));
                    memcpy(model + off[i], data, len[i]);
                    peer_write(&p, i % 2, i, off[i], data, len[i]);
                } else {
                    peer_request(&p, 0, NBD_CMD_READ, i, off[i], len[i]);
                }
            }
            peer_run(&p);
            for (unsigned n = 0; n < DEPTH; n++) { /* a long read may be overtaken */
                uint64_t i = get_be64(teststream_look(p.s) + 8);
                cr_assert_lt(i, DEPTH);
                if (is_write)
                    peer_expect(&p, i, 0);
                else
                    peer_expect_data(&p, i, off[i], len[i]);
            }
            cr_expect_eq(teststream_sent(p.s), 0);
            cr_assert(memcmp(model, p.disk->bytes, PEER_DISK_BYTES) == 0, "seed %lu round %u", seed, round);
        }
        seed = p.seed;
        peer_stop(&p);
    }
    free(data);
    free(model);
}

Test(nbd, commands_reach_the_device_with_their_flags)
{
    static const struct {
        uint16_t flags, command;
        uint32_t len;
        enum blk_op op;
        unsigned blk_flags;
    } cases[] = {
        {0, NBD_CMD_READ, 4096, BLK_READ, 0},
        {NBD_CMD_FUA, NBD_CMD_READ, 4096, BLK_READ, 0},
        {0, NBD_CMD_FLUSH, 0, BLK_FLUSH, 0},
        {NBD_CMD_FUA, NBD_CMD_FLUSH, 0, BLK_FLUSH, 0},
        {0, NBD_CMD_TRIM, 1 << 20, BLK_DISCARD, 0},
        {0, NBD_CMD_WRITE_ZEROES, 1 << 20, BLK_WRITE_ZEROES, 0},
        {NBD_CMD_NO_HOLE, NBD_CMD_WRITE_ZEROES, 512, BLK_WRITE_ZEROES, BLK_NO_UNMAP},
        {NBD_CMD_FUA, NBD_CMD_WRITE_ZEROES, 512, BLK_WRITE_ZEROES, BLK_FUA},
        {0, NBD_CMD_WRITE, 512, BLK_WRITE, 0},
        {NBD_CMD_FUA, NBD_CMD_WRITE, 512, BLK_WRITE, BLK_FUA},
    };
    static uint8_t zeroes[512];
    struct holder h;
    struct peer p = peer_holding(&plain, &h, 8 * GIB, false);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint64_t off = cases[i].op == BLK_FLUSH ? 0 : 5 * GIB;
        peer_request(&p, cases[i].flags, cases[i].command, i, off, cases[i].len);
        if (cases[i].op == BLK_WRITE)
            teststream_feed(p.s, zeroes, cases[i].len);
        peer_run(&p);
        struct blk_req *req = STAILQ_FIRST(&h.held);
        cr_assert(req != NULL, "case %zu", i);
        cr_expect_eq(req->op, cases[i].op, "case %zu", i);
        cr_expect_eq(req->flags, cases[i].blk_flags, "case %zu", i);
        cr_expect_eq(req->off, off, "case %zu", i);
        cr_expect_eq(req->len, cases[i].len, "case %zu", i);
        cr_expect_eq(teststream_sent(p.s), 0, "nothing is answered before it is done");
        holder_end(&h, false, BLK_OK, 0);
        peer_run(&p);
        peer_take(&p, NULL, cases[i].op == BLK_READ ? cases[i].len : 0);
    }
    peer_stop(&p);
}

Test(nbd, trim_with_fua_is_followed_by_a_flush)
{
    struct holder h;
    struct peer p = peer_holding(&plain, &h, 1 * GIB, false);
    static const enum blk_status flush_ends[] = {BLK_OK, BLK_GONE};
    for (size_t i = 0; i < ARRAY_LENGTH(flush_ends); i++) {
        peer_request(&p, NBD_CMD_FUA, NBD_CMD_TRIM, 3, 4096, 8192);
        peer_run(&p);
        cr_assert_eq(STAILQ_FIRST(&h.held)->op, BLK_DISCARD);
        holder_end(&h, false, BLK_OK, 0);
        peer_run(&p);
        cr_expect_eq(teststream_sent(p.s), 0);
        cr_assert_eq(STAILQ_FIRST(&h.held)->op, BLK_FLUSH);
        holder_end(&h, false, flush_ends[i], 0);
        peer_run(&p);
        peer_expect(&p, 3, flush_ends[i] == BLK_OK ? 0 : NBD_EIO);
    }
    peer_stop(&p);
}

Test(nbd, trims_and_zeroes_may_be_as_long_as_a_length_can_be)
{
    struct holder h;
    struct peer p = peer_holding(&plain, &h, 8 * GIB, false);
    static const uint16_t commands[] = {NBD_CMD_TRIM, NBD_CMD_WRITE_ZEROES};
    h.dev.info.max_request = 1 << 20;
    for (size_t i = 0; i < ARRAY_LENGTH(commands); i++) {
        peer_request(&p, 0, commands[i], i, 1 * GIB, 0xfffffe00u);
        peer_run(&p);
        cr_assert_eq(h.count, 1);
        cr_expect_eq(STAILQ_FIRST(&h.held)->off, 1 * GIB);
        cr_expect_eq(STAILQ_FIRST(&h.held)->len, 0xfffffe00u);
        holder_end(&h, false, BLK_OK, 0);
        peer_run(&p);
        peer_expect(&p, i, 0);
    }
    peer_stop(&p);
}

Test(nbd, refusals_leave_the_stream_in_step)
{
    static const struct {
        const char *what;
        uint16_t flags, command;
        uint64_t off;
        uint32_t len, error;
    } cases[] = {
        {"read past the end", 0, NBD_CMD_READ, PEER_DISK_BYTES, 512, NBD_EINVAL},
        {"read that wraps", 0, NBD_CMD_READ, UINT64_MAX - 511, 1024, NBD_EINVAL},
        {"read of nothing", 0, NBD_CMD_READ, 0, 0, NBD_EINVAL},
        {"read of 32 MiB and a bit", 0, NBD_CMD_READ, 0, (32 << 20) + 512, NBD_EINVAL},
        {"read of 4 GiB", 0, NBD_CMD_READ, 0, 0xfffffe00u, NBD_EINVAL},
        {"read with a payload flag", 32, NBD_CMD_READ, 0, 512, NBD_EINVAL},
        {"write past the end", 0, NBD_CMD_WRITE, PEER_DISK_BYTES - 512, 1024, NBD_ENOSPC},
        {"write of nothing", 0, NBD_CMD_WRITE, 0, 0, NBD_EINVAL},
        {"write of 300000 in the void", 0, NBD_CMD_WRITE, 1ull << 50, 300032, NBD_ENOSPC},
        {"write with DF", NBD_CMD_DF, NBD_CMD_WRITE, 0, 512, NBD_EINVAL},
        {"write of 32 MiB and a bit", 0, NBD_CMD_WRITE, 0, (32 << 20) + 512, NBD_EINVAL},
        {"write of 64 MiB", 0, NBD_CMD_WRITE, 0, 64 << 20, NBD_EINVAL},
        {"trim past the end", 0, NBD_CMD_TRIM, 512, PEER_DISK_BYTES, NBD_EINVAL},
        {"trim of nothing", 0, NBD_CMD_TRIM, 0, 0, NBD_EINVAL},
        {"zeroes past the end", 0, NBD_CMD_WRITE_ZEROES, 512, PEER_DISK_BYTES, NBD_ENOSPC},
        {"fast zeroes in kept space", NBD_CMD_FAST_ZERO | NBD_CMD_NO_HOLE, NBD_CMD_WRITE_ZEROES, 0, 512, NBD_ENOTSUP},
        {"cache past the end", 0, NBD_CMD_CACHE, PEER_DISK_BYTES, 512, NBD_EINVAL},
        {"block status", 0, 7, 0, 512, NBD_EINVAL},
        {"block status with a payload flag", 32, 7, 0, 512, NBD_EINVAL},
        {"command 4711", 0, 4711, 0, 512, NBD_EINVAL},
    };
    uint8_t *noise = malloc(64 << 20); /* payloads full of things that look like requests */
    for (uint32_t i = 0; i < 64 << 20; i += 4)
        put_be32(noise + i, NBD_MAGIC_REQUEST);
    for (enum nbd_mode mode = NBD_SIMPLE; mode <= NBD_EXTENDED; mode++) {
        struct peer p = peer_serving(&plain, mode);
        for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
            bool has_payload = mode == NBD_EXTENDED && (cases[i].flags & NBD_CMD_PAYLOAD_LEN);
            peer_request(&p, cases[i].flags, cases[i].command, i, cases[i].off, cases[i].len);
            if (cases[i].command == NBD_CMD_WRITE || has_payload)
                teststream_feed(p.s, noise, cases[i].len);
            peer_request(&p, 0, NBD_CMD_FLUSH, 77, 0, 0);
            peer_run(&p);
            struct peer_reply reply = peer_take(&p, NULL, 0);
            bool overflow = mode != NBD_SIMPLE && cases[i].command == NBD_CMD_READ && cases[i].len > 32 << 20;
            cr_expect_eq(reply.error, overflow ? NBD_EOVERFLOW : cases[i].error, "%s: %u", cases[i].what, reply.error);
            cr_expect_eq(reply.cookie, i, "%s", cases[i].what);
            cr_expect_eq(reply.chunk, mode != NBD_SIMPLE, "%s: errors are chunks after STRUCTURED_REPLY",
                         cases[i].what);
            cr_expect_eq(peer_take(&p, NULL, 0).cookie, 77, "%s: in step", cases[i].what);
            cr_expect_eq(teststream_sent(p.s), 0, "%s", cases[i].what);
        }
        cr_expect_eq(p.disk->writes, 0);
        peer_stop(&p);
    }
    free(noise);
}

Test(nbd, a_read_only_export_takes_payloads_and_refuses_them)
{
    struct peer p = peer_start(&plain);
    static uint8_t data[8192];
    peer_export(&p, "view", NULL, true, false);
    peer_connect(&p);
    peer_go(&p, "view", false);
    peer_write(&p, 0, 1, 0, data, sizeof data);
    peer_write(&p, NBD_CMD_FUA, 2, 512, data, 512);
    peer_request(&p, 0, NBD_CMD_TRIM, 3, 0, 512);
    peer_request(&p, 0, NBD_CMD_WRITE_ZEROES, 4, 0, 512);
    peer_request(&p, 0, NBD_CMD_FLUSH, 5, 0, 0);
    peer_request(&p, 0, NBD_CMD_READ, 6, 0, 512);
    peer_run(&p);
    for (uint64_t cookie = 1; cookie <= 4; cookie++)
        peer_expect(&p, cookie, NBD_EPERM);
    peer_expect(&p, 5, 0);
    peer_expect_data(&p, 6, 0, 512);
    cr_expect_eq(p.disk->writes, 0);
    peer_stop(&p);
}

Test(nbd, a_device_that_became_read_only_answers_eperm)
{
    struct peer p = peer_serving(&plain, false);
    static uint8_t data[512];
    p.disk->dev.info.read_only = true;
    peer_write(&p, 0, 1, 0, data, sizeof data);
    peer_run(&p);
    peer_expect(&p, 1, NBD_EPERM);
    p.disk->dev.info.read_only = false;
    peer_stop(&p);
}

Test(nbd, a_write_of_more_than_64_MiB_is_answered_and_ends_the_connection)
{
    struct peer p = peer_serving(&plain, false);
    peer_request(&p, 0, NBD_CMD_READ, 1, 0, 512);
    peer_request(&p, 0, NBD_CMD_WRITE, 2, 0, 0xfffffe00u);
    peer_run(&p);
    peer_expect(&p, 2, NBD_EINVAL);
    peer_expect_data(&p, 1, 0, 512);
    peer_forget(&p);
    peer_stop(&p);
}

Test(nbd, errors_of_the_device_keep_their_meaning)
{
    static const struct {
        enum blk_status status;
        uint32_t error;
    } cases[] = {{BLK_MEDIA, NBD_EIO},      {BLK_GONE, NBD_EIO},       {BLK_TIMEOUT, NBD_EIO},
                 {BLK_NOSPACE, NBD_ENOSPC}, {BLK_READONLY, NBD_EPERM}, {BLK_INVALID, NBD_EINVAL}};
    static const uint16_t commands[] = {NBD_CMD_READ, NBD_CMD_WRITE, NBD_CMD_FLUSH, NBD_CMD_WRITE_ZEROES};
    static uint8_t data[4096];
    for (enum nbd_mode mode = NBD_SIMPLE; mode <= NBD_EXTENDED; mode++) {
        struct holder h;
        struct peer p = peer_holding(&plain, &h, 1 * MIB, mode);
        for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
            for (size_t c = 0; c < ARRAY_LENGTH(commands); c++) {
                bool is_flush = commands[c] == NBD_CMD_FLUSH;
                if (is_flush && cases[i].status == BLK_MEDIA)
                    continue; /* a flush has no place to be bad */
                peer_request(&p, 0, commands[c], 9, is_flush ? 0 : 8192, is_flush ? 0 : 4096);
                if (commands[c] == NBD_CMD_WRITE)
                    teststream_feed(p.s, data, 4096);
                peer_run(&p);
                holder_end(&h, false, cases[i].status, 8192 + 512);
                peer_run(&p);
                struct peer_reply reply = peer_take(&p, NULL, 0);
                cr_expect_eq(reply.error, cases[i].error, "%s", blk_status_name(cases[i].status));
                cr_expect_eq(reply.chunk, mode != NBD_SIMPLE);
                if (mode != NBD_SIMPLE && cases[i].status == BLK_MEDIA) {
                    cr_expect_eq(reply.type, NBD_CHUNK_ERROR_OFFSET);
                    cr_expect_eq(reply.off, 8192 + 512);
                    cr_expect_str_eq(reply.text, "media error");
                }
            }
        }
        cr_expect_eq(page_pool_free(p.t->loop.pages), page_pool_size(p.t->loop.pages));
        peer_stop(&p);
    }
}

Test(nbd, replies_come_in_the_order_of_completion)
{
    struct holder h;
    struct peer p = peer_holding(&plain, &h, 1 * MIB, true);
    for (uint64_t i = 0; i < 6; i++)
        peer_request(&p, i % 2 ? NBD_CMD_DF : 0, NBD_CMD_READ, i, i * 512, 512);
    peer_run(&p);
    cr_expect_eq(h.count, 6);
    for (uint64_t i = 6; i-- > 0;) {
        uint8_t data[512];
        holder_end(&h, true, BLK_OK, 0);
        peer_run(&p);
        struct peer_reply reply = peer_take(&p, data, 512);
        cr_expect_eq(reply.cookie, i);
        cr_expect_eq(reply.off, i * 512);
        cr_expect_eq(data[511], 0x5a);
    }
    peer_stop(&p);
}

Test(nbd, requests_longer_than_the_device_takes_are_cut_at_page_boundaries)
{
    struct holder h;
    uint8_t *data = malloc(1 << 20);
    struct peer p = peer_holding(&plain, &h, 1 * GIB, false);
    h.dev.info.max_request = 65536;
    for (unsigned is_write = 0; is_write < 2; is_write++) {
        uint64_t off = 4096 * 10 + 512, end = off + (1 << 20);
        test_fill(data, 1 << 20, 5);
        if (is_write)
            peer_write(&p, NBD_CMD_FUA, 1, off, data, 1 << 20);
        else
            peer_request(&p, 0, NBD_CMD_READ, 1, off, 1 << 20);
        peer_run(&p);
        while (h.count > 0) {
            struct blk_req *req = STAILQ_FIRST(&h.held);
            cr_expect_eq(req->off, off);
            cr_expect(req->len <= 65536 && (req->len == end - off || (off + req->len) % PAGE_BYTES == 0));
            cr_expect_eq(req->flags, is_write ? BLK_FUA : 0u);
            if (is_write) {
                uint8_t *got = malloc(req->len);
                pages_copy_out(got, req->pages, off % PAGE_BYTES, req->len);
                cr_expect(memcmp(got, data + (1 << 20) - (end - off), req->len) == 0);
                free(got);
            }
            off += req->len;
            cr_expect_eq(h.count, 1, "one after the other");
            holder_end(&h, false, BLK_OK, 0);
            peer_run(&p);
        }
        cr_expect_eq(off, end);
        cr_expect_eq(peer_take(&p, data, is_write ? 0 : 1 << 20).error, 0);
    }
    peer_request(&p, 0, NBD_CMD_READ, 2, 0, 1 << 20); /* the second piece fails: all of it does */
    peer_run(&p);
    holder_end(&h, false, BLK_OK, 0);
    peer_run(&p);
    holder_end(&h, false, BLK_GONE, 0);
    peer_run(&p);
    peer_expect(&p, 2, NBD_EIO);
    cr_expect_eq(h.count, 0);
    free(data);
    peer_stop(&p);
}

Test(nbd, a_device_that_shrinks_is_never_asked_beyond_its_end)
{
    struct holder h;
    struct peer p = peer_holding(&plain, &h, 1 * MIB, false);
    h.dev.info.max_request = 4096;
    peer_request(&p, 0, NBD_CMD_READ, 1, 1 * MIB - 8192, 8192);
    peer_run(&p);
    h.dev.info.size = 1 * MIB - 4096;
    holder_end(&h, false, BLK_OK, 0);
    peer_run(&p);
    peer_expect(&p, 1, NBD_EINVAL);
    peer_ask(&p, 0, NBD_CMD_READ, 1 * MIB - 4096, 512, NBD_EINVAL);
    peer_stop(&p);
}

/* The client has work while the second half is read: it need not wait for all of them. */
Test(nbd, thirty_two_pipelined_reads_cost_one_receive_and_a_send_for_each_half)
{
    struct peer p = peer_serving(&plain, false);
    for (unsigned round = 0; round < 3; round++) {
        unsigned recvs = p.s->recvs, sends = p.s->sends;
        peer_request(&p, 0, NBD_CMD_READ, 99, 0, 0); /* answered before anything was read */
        for (uint64_t i = 0; i < 32; i++)
            peer_request(&p, 0, NBD_CMD_READ, i, i * 4096, 4096);
        peer_run(&p);
        cr_expect_eq(p.s->sends - sends, 2);
        cr_expect_eq(p.s->recvs - recvs, 1);
        peer_expect(&p, 99, NBD_EINVAL);
        for (uint64_t i = 0; i < 32; i++)
            peer_expect_data(&p, i, i * 4096, 4096);
    }
    static uint8_t data[4096];
    unsigned recvs = p.s->recvs, sends = p.s->sends;
    for (uint64_t i = 0; i < 15; i++)
        peer_write(&p, 0, i, i * 4096, data, 4096);
    peer_run(&p);
    cr_expect_eq(p.s->sends - sends, 1);
    cr_expect_eq(p.s->recvs - recvs, 1);
    for (uint64_t i = 0; i < 15; i++)
        peer_expect(&p, i, 0);
    peer_stop(&p);
}

/* The first cannot know yet; of the others none has its client wait for less than all. */
Test(nbd, pipelined_reads_of_several_clients_cost_each_but_the_first_one_send)
{
    enum { CLIENTS = 3 };
    struct peer p = peer_serving(&plain, false);
    struct teststream *streams[CLIENTS] = {p.s};
    for (unsigned c = 1; c < CLIENTS; c++) {
        streams[c] = peer_connect(&p);
        peer_go(&p, "disk", false);
    }
    for (unsigned round = 0; round < 3; round++) {
        unsigned recvs[CLIENTS], sends[CLIENTS], halves = 0;
        for (unsigned c = 0; c < CLIENTS; c++) {
            p.s = streams[c];
            recvs[c] = p.s->recvs;
            sends[c] = p.s->sends;
            for (uint64_t i = 0; i < 32; i++)
                peer_request(&p, 0, NBD_CMD_READ, i, i * 4096, 4096);
        }
        peer_run(&p);
        for (unsigned c = 0; c < CLIENTS; c++) {
            p.s = streams[c];
            cr_expect_eq(p.s->recvs - recvs[c], 1);
            halves += p.s->sends - sends[c] - 1;
            for (uint64_t i = 0; i < 32; i++)
                peer_expect_data(&p, i, i * 4096, 4096);
        }
        cr_expect_leq(halves, 1, "%u", halves);
    }
    for (unsigned c = 1; c < CLIENTS; c++) {
        p.s = streams[c];
        peer_header(&p, 0, NBD_CMD_DISC, 0, 0, 0);
        peer_run(&p);
        peer_forget(&p);
    }
    p.s = streams[0];
    peer_stop(&p);
}

Test(nbd, long_writes_are_answered_a_few_at_a_time)
{
    enum { LONG = 128 * KIB };
    struct peer p = peer_serving(&plain, false);
    uint8_t *data = calloc(1, LONG);
    unsigned sends = p.s->sends;
    for (uint64_t i = 0; i < 8; i++)
        peer_write(&p, 0, i, i * LONG, data, LONG);
    peer_run(&p);
    cr_expect_eq(p.s->sends - sends, 2);
    for (uint64_t i = 0; i < 8; i++)
        peer_expect(&p, i, 0);
    free(data);
    peer_stop(&p);
}

/* Rounds of the same requests; the first one is for the stream's own buffers to grow. */
Test(nbd, nothing_is_allocated_on_the_data_path)
{
    enum { LEN = 1 << 18 };
    static uint8_t data[LEN], got[LEN];
    for (enum nbd_mode mode = NBD_SIMPLE; mode <= NBD_EXTENDED; mode++) {
        struct peer p = peer_serving(&(struct peer_setup){.requests = 4}, mode);
        uint64_t before = 0;
        for (unsigned round = 0; round < 4; round++) {
            before = test_allocations();
            for (uint64_t i = 0; i < 4; i++) {
                peer_write(&p, NBD_CMD_FUA, 1, i * LEN, data, LEN);
                peer_request(&p, 0, NBD_CMD_READ, 2, i * LEN, LEN);
                peer_request(&p, 0, NBD_CMD_READ, 3, 0, 0);
                peer_write(&p, 0, 4, PEER_DISK_BYTES, data, 512);
                peer_request(&p, NBD_CMD_FUA, NBD_CMD_TRIM, 5, i * LEN, LEN);
                peer_request(&p, 0, NBD_CMD_FLUSH, 6, 0, 0);
            }
            peer_run(&p);
            uint64_t after = test_allocations();
            for (unsigned i = 0; i < 24; i++)
                peer_take(&p, got, get_be64(teststream_look(p.s) + 8) == 2 ? LEN : 0);
            if (round > 0)
                cr_expect_eq(after, before, "round %u: %lu allocations", round, after - before);
        }
        peer_stop(&p);
    }
}

Test(nbd, a_long_payload_is_received_into_its_pages)
{
    enum { LEN = 1 << 20 };
    struct peer p = peer_serving(&plain, false);
    uint8_t *data = malloc(LEN);
    test_fill(data, LEN, 4);
    unsigned recvs = p.s->recvs;
    peer_write(&p, 0, 1, 8192, data, LEN);
    peer_request(&p, 0, NBD_CMD_FLUSH, 2, 0, 0);
    peer_run(&p);
    cr_expect_eq(p.s->recvs - recvs, 2, "%u receives: the buffer once, then the pages with the next header behind",
                 p.s->recvs - recvs);
    peer_expect(&p, 1, 0);
    peer_expect(&p, 2, 0);
    cr_expect(memcmp(p.disk->bytes + 8192, data, LEN) == 0);
    free(data);
    peer_stop(&p);
}

/* No two pages of a request lie together, so that one send or receive has not entries enough for them. */
Test(nbd, scattered_pages_take_several_sends_and_receives)
{
    enum { PAGES = 4096, LEN = 3 << 20 };
    struct peer p = peer_serving(&(struct peer_setup){.pages = PAGES}, true);
    struct page **all = calloc(PAGES, sizeof *all);
    uint8_t *data = malloc(LEN);
    cr_assert(page_pool_get(p.t->loop.pages, all, PAGES));
    for (unsigned step = 0; step < 2; step++)
        for (unsigned i = step; i < PAGES; i += 2)
            page_put(all[i]);
    test_fill(data, LEN, 6);
    peer_write(&p, 0, 1, 512, data, LEN);
    peer_run(&p);
    peer_expect(&p, 1, 0);
    cr_expect(memcmp(p.disk->bytes + 512, data, LEN) == 0);
    unsigned sends = p.s->sends;
    for (uint64_t i = 0; i < 4; i++)
        peer_request(&p, 0, NBD_CMD_READ, i, i * 4096, LEN - (uint32_t)i * 131072);
    peer_run(&p);
    for (uint64_t i = 0; i < 4; i++)
        peer_expect_data(&p, i, i * 4096, LEN - (uint32_t)i * 131072);
    cr_expect_geq(p.s->sends - sends, 5);
    free(data);
    free(all);
    peer_stop(&p);
}

Test(nbd, few_requests_and_few_pages_still_serve_everybody)
{
    enum { CLIENTS = 3, MANY = 60 };
    struct peer p = peer_start(&(struct peer_setup){.pages = 16, .requests = 4});
    struct teststream *streams[CLIENTS];
    uint8_t *data = malloc(1 << 20);
    for (unsigned c = 0; c < CLIENTS; c++) {
        streams[c] = peer_connect(&p);
        peer_go(&p, "disk", false);
        streams[c]->recv_max = 5000;
        streams[c]->send_max = 3000;
    }
    p.disk->latency_ns = 1000;
    test_fill(data, 1 << 20, 3);
    for (unsigned c = 0; c < CLIENTS; c++) {
        p.s = streams[c];
        for (uint64_t i = 0; i < MANY; i++) {
            peer_write(&p, 0, 2 * i, c * MIB + i * 512, data + i * 512, i % 5 ? 512 : 32256);
            peer_request(&p, 0, NBD_CMD_READ, 2 * i + 1, c * MIB + (i % 7) * 512, i % 3 ? 4096 : 28672);
        }
    }
    testloop_run(p.t);
    for (unsigned c = 0; c < CLIENTS; c++) {
        uint8_t got[32768];
        p.s = streams[c];
        for (unsigned i = 0; i < 2 * MANY; i++) {
            uint64_t cookie = get_be64(teststream_look(p.s) + 8);
            struct peer_reply reply = peer_take(&p, got, cookie % 2 == 0 ? 0 : cookie / 2 % 3 ? 4096 : 28672);
            cr_expect_eq(reply.error, 0);
        }
        cr_expect_eq(teststream_sent(p.s), 0);
        cr_expect(memcmp(p.disk->bytes + c * MIB, data, MANY * 512) == 0);
    }
    cr_expect_eq(page_pool_free(p.t->loop.pages), 16);
    for (unsigned c = 1; c < CLIENTS; c++) {
        p.s = streams[c];
        teststream_end(p.s);
        peer_run(&p);
        peer_forget(&p);
    }
    p.s = streams[0];
    free(data);
    peer_stop(&p);
}

Test(nbd, no_more_long_requests_at_once_than_there_are_vectors)
{
    struct holder h;
    struct peer p = peer_holding(&(struct peer_setup){.requests = 8}, &h, 1 * GIB, false);
    for (uint64_t i = 0; i < 6; i++)
        peer_request(&p, 0, NBD_CMD_READ, i, 0, 1 << 20);
    peer_run(&p);
    cr_expect_eq(h.count, 2, "a quarter of the requests may be long");
    for (uint64_t i = 0; i < 6; i++) {
        holder_end(&h, false, BLK_OK, 0);
        peer_run(&p);
        cr_expect_eq(peer_take(&p, NULL, 1 << 20).cookie, i);
    }
    cr_expect_eq(h.seen, 6);
    peer_stop(&p);
}

Test(nbd, a_starved_connection_stops_reading_its_socket)
{
    struct holder h;
    struct peer p = peer_holding(&(struct peer_setup){.requests = 3}, &h, 1 * MIB, false);
    for (uint64_t i = 0; i < 10000; i++)
        peer_request(&p, 0, NBD_CMD_READ, i, 0, 512);
    peer_run(&p);
    unsigned recvs = p.s->recvs;
    cr_expect_eq(h.count, 3);
    teststream_feed(p.s, "", 0);
    peer_run(&p);
    cr_expect_eq(p.s->recvs, recvs);
    cr_expect_gt(p.s->in.end - p.s->in.start, 200000u, "the rest stays in the socket");
    for (uint64_t i = 0; i < 10000; i++) {
        holder_end(&h, false, BLK_OK, 0);
        peer_run(&p);
        cr_assert_eq(peer_take(&p, NULL, 512).cookie, i);
    }
    peer_stop(&p);
}

Test(nbd, a_header_that_is_refused_takes_no_pages)
{
    struct peer p = peer_serving(&plain, false);
    peer_request(&p, 0, NBD_CMD_WRITE, 1, PEER_DISK_BYTES, 16 << 20);
    peer_run(&p);
    cr_expect_eq(page_pool_free(p.t->loop.pages), page_pool_size(p.t->loop.pages));
    peer_request(&p, 0, NBD_CMD_WRITE, 1, 0, 0); /* the first bytes of the payload */
    teststream_end(p.s);
    peer_run(&p);
    cr_expect_eq(teststream_sent(p.s), 0);
    peer_forget(&p);
    peer_stop(&p);
}
