/* Writes that must wait for others: successors of a lost connection, and those that are not of whole blocks. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/target/nbd_peer.h"

static const struct peer_setup plain;
static uint8_t payload[65536];

/* --- ragged ones --- */

Test(nbd_ragged, bytes_around_a_write_stay)
{
    static const struct {
        uint64_t off;
        uint32_t len;
    } cases[] = {{1, 1},        {0, 1},
                 {511, 1},      {511, 2},
                 {100, 300},    {100, 412},
                 {100, 500},    {0, 513},
                 {1, 512},      {4095, 2},
                 {4096, 4097},  {4000, 10000},
                 {1000, 65000}, {8191, 8194},
                 {512, 100},    {12288, 1},
                 {16383, 1},    {PEER_DISK_BYTES - 1, 1},
                 {0, 7},        {PEER_DISK_BYTES - 5000, 5000}};
    static const uint32_t blocks[] = {512, 4096};
    static uint8_t model[PEER_DISK_BYTES];
    for (unsigned round = 0; round < 6; round++) {
        uint16_t flags = round % 2 ? NBD_CMD_FUA : 0;
        struct peer p = peer_serving(&(struct peer_setup){.logical_block = blocks[round & 1]}, round / 2);
        test_fill(p.disk->bytes, PEER_DISK_BYTES, 9);
        memcpy(model, p.disk->bytes, PEER_DISK_BYTES);
        for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
            test_fill(payload, sizeof payload, i);
            uint64_t fuas = p.disk->fuas;
            memcpy(model + cases[i].off, payload, cases[i].len);
            peer_write(&p, flags, i, cases[i].off, payload, cases[i].len);
            peer_run(&p);
            peer_expect(&p, i, 0);
            cr_expect_eq(p.disk->fuas - fuas, round % 2, "one write of all");
            cr_expect(memcmp(model, p.disk->bytes, PEER_DISK_BYTES) == 0, "write of %u at %lu, blocks of %u",
                      cases[i].len, cases[i].off, blocks[round & 1]);
            test_fill(p.disk->bytes + cases[i].off, cases[i].len / 8 * 8, i + 50);
            memcpy(model, p.disk->bytes, PEER_DISK_BYTES);
            memset(model + cases[i].off, 0, cases[i].len);
            peer_ask(&p, flags, NBD_CMD_WRITE_ZEROES, cases[i].off, cases[i].len, 0);
            cr_expect(memcmp(model, p.disk->bytes, PEER_DISK_BYTES) == 0, "zeroes of %u at %lu, blocks of %u",
                      cases[i].len, cases[i].off, blocks[round & 1]);
        }
        cr_expect_eq(page_pool_free(p.t->loop.pages), page_pool_size(p.t->loop.pages));
        peer_stop(&p);
    }
}

Test(nbd_ragged, writes_that_share_a_block_lose_nothing)
{
    enum { MANY = 60 };
    static uint8_t model[PEER_DISK_BYTES];
    for (unsigned mode = 0; mode < 4; mode++) {
        struct peer p =
            peer_start(&(struct peer_setup){.two_loops = mode & 1, .pages = mode & 2 ? 64 : 0, .logical_block = 4096});
        struct teststream *streams[3];
        uint64_t seed = mode + 1;
        for (unsigned c = 0; c < 3; c++) {
            streams[c] = peer_connect(&p);
            peer_go(&p, "disk", NBD_STRUCTURED);
        }
        p.disk->latency_ns = 1000;
        memset(model, 0, sizeof model);
        for (uint32_t i = 0, at = 0; i < MANY; i++) { /* neighbours of any length, one behind the other */
            uint32_t len = 1 + (uint32_t)(test_random(&seed) % 3000);
            p.s = streams[i % 3];
            test_fill(payload, len, i);
            if (i % 5 != 4) {
                peer_write(&p, 0, i, at, payload, len);
                memcpy(model + at, payload, len);
            } else {
                peer_request(&p, 0, NBD_CMD_WRITE_ZEROES, i, at, len);
            }
            at += len;
        }
        do
            peer_run(&p);
        while (loop_next_timer_ns(&p.far->loop) != UINT64_MAX &&
               (p.far->loop.now_ns = p.t->loop.now_ns = loop_next_timer_ns(&p.far->loop)));
        for (unsigned i = 0; i < MANY; i++) {
            p.s = streams[i % 3];
            cr_expect_eq(peer_take(&p, NULL, 0).error, 0u);
        }
        cr_expect(memcmp(model, p.disk->bytes, PEER_DISK_BYTES) == 0, "mode %u", mode);
        for (unsigned c = 1; c < 3; c++) {
            p.s = streams[c];
            teststream_end(p.s);
            peer_run(&p);
            peer_forget(&p);
        }
        p.s = streams[0];
        peer_stop(&p);
    }
}

Test(nbd_ragged, nobody_writes_between_its_read_and_its_write)
{
    struct holder h;
    struct peer p = peer_holding(&plain, &h, 1 * MIB, NBD_SIMPLE);
    peer_write(&p, 0, 1, 512, payload, 512);
    peer_write(&p, 0, 2, 700, payload, 10); /* waits for 1 */
    peer_write(&p, 0, 3, 1024, payload, 512);
    peer_write(&p, 0, 4, 512, payload, 512); /* waits for 2 */
    peer_run(&p);
    cr_expect_eq(h.count, 2u, "%u at the device", h.count);
    holder_end(&h, false, BLK_OK, 0); /* 1 */
    peer_run(&p);
    peer_expect(&p, 1, 0);
    cr_assert_eq(h.count, 2u);
    holder_end(&h, false, BLK_OK, 0); /* 3 */
    peer_run(&p);
    peer_expect(&p, 3, 0);
    cr_assert_eq(h.count, 1u);
    cr_expect_eq(STAILQ_FIRST(&h.held)->op, BLK_READ);
    holder_end(&h, false, BLK_OK, 0);
    peer_run(&p);
    cr_assert_eq(h.count, 1u);
    cr_expect_eq(STAILQ_FIRST(&h.held)->op, BLK_WRITE);
    cr_expect_eq(STAILQ_FIRST(&h.held)->off, 512u);
    cr_expect_eq(STAILQ_FIRST(&h.held)->len, 512u);
    holder_end(&h, false, BLK_OK, 0);
    peer_run(&p);
    peer_expect(&p, 2, 0);
    cr_assert_eq(h.count, 1u, "now 4");
    holder_end(&h, false, BLK_OK, 0);
    peer_run(&p);
    peer_expect(&p, 4, 0);
    peer_stop(&p);
}

/* Only the blocks at its ends are read and written back: who writes between them has nothing to wait for. */
Test(nbd_ragged, a_long_one_keeps_nobody_from_its_middle)
{
    struct holder h;
    struct peer p = peer_holding(&plain, &h, 1 * MIB, NBD_SIMPLE);
    peer_request(&p, 0, NBD_CMD_WRITE_ZEROES, 1, 100, 1 * MIB - 200);
    peer_write(&p, 0, 2, 8192, payload, 4096);
    peer_request(&p, 0, NBD_CMD_TRIM, 3, 65536, 65536);
    peer_run(&p);
    cr_expect_eq(h.count, 3u, "%u at the device", h.count);
    peer_write(&p, 0, 4, 0, payload, 512);             /* its first block */
    peer_write(&p, 0, 5, 1 * MIB - 512, payload, 512); /* its last */
    peer_write(&p, 0, 6, 20000, payload, 10);          /* reads what it zeroes */
    peer_run(&p);
    cr_expect_eq(h.count, 3u, "%u at the device", h.count);
    do {
        holder_end_all(&h, BLK_OK);
        peer_run(&p);
    } while (h.count > 0);
    cr_expect_eq(teststream_sent(p.s), 6 * 16u);
    peer_stop(&p);
}

/* Whichever step fails, the request fails, what waited goes on, and nothing is left. */
Test(nbd_ragged, a_step_that_fails_fails_the_write)
{
    static const uint16_t commands[] = {NBD_CMD_WRITE, NBD_CMD_WRITE_ZEROES};
    for (size_t c = 0; c < ARRAY_LENGTH(commands); c++) {
        for (unsigned bad = 0; bad < 6; bad++) {
            struct holder h;
            struct peer p = peer_holding(&plain, &h, 1 * MIB, NBD_STRUCTURED);
            peer_request(&p, 0, commands[c], 1, 100, 2000);
            if (commands[c] == NBD_CMD_WRITE)
                teststream_feed(p.s, payload, 2000);
            peer_write(&p, 0, 2, 0, payload, 4096);
            unsigned steps = commands[c] == NBD_CMD_WRITE ? 3 : 5;
            for (unsigned step = 0; step < steps && (step == 0 || bad >= step); step++) {
                peer_run(&p);
                cr_assert_eq(h.count, 1u);
                holder_end(&h, false, step == bad ? BLK_GONE : BLK_OK, 0);
            }
            peer_run(&p);
            struct peer_reply reply = peer_take(&p, NULL, 0);
            cr_expect_eq(reply.cookie, 1u);
            cr_expect_eq(reply.error, bad < steps ? NBD_EIO : 0u, "step %u", bad);
            cr_assert_eq(h.count, 1u);
            holder_end(&h, false, BLK_OK, 0);
            peer_run(&p);
            peer_expect(&p, 2, 0);
            cr_expect_eq(page_pool_free(p.t->loop.pages), page_pool_size(p.t->loop.pages));
            peer_stop(&p);
        }
    }
}

/* --- successors --- */

/* A second client on the same export; the first stays in *first. */
static void second_client(struct peer *p, struct teststream **first)
{
    *first = p->s;
    peer_connect(p);
    peer_go(p, "held", NBD_SIMPLE);
}

/* Free a stream that is not the one at hand. */
static void forget(struct peer *p, struct teststream *s)
{
    struct teststream *at_hand = p->s;
    p->s = s;
    peer_forget(p);
    p->s = at_hand;
}

enum ending { BROKEN, ENDED, DISCONNECTED, ENDINGS };
static void end(struct peer *p, struct teststream *s, enum ending ending)
{
    struct teststream *at_hand = p->s;
    p->s = s;
    if (ending == BROKEN)
        teststream_break(s);
    else if (ending == ENDED)
        teststream_end(s);
    else
        peer_request(p, 0, NBD_CMD_DISC, 0, 0, 0);
    p->s = at_hand;
    peer_run(p);
}

static bool is_at_device(const struct holder *h, uint64_t off, uint64_t len)
{
    const struct blk_req *req;
    STAILQ_FOREACH(req, &h->held, link)
    if (req->off == off && req->len == len && req->op != BLK_READ)
        return true;
    return false;
}

Test(nbd_turns, a_write_of_a_lost_connection_never_lands_after_one_of_its_successor)
{
    static const uint16_t commands[] = {NBD_CMD_WRITE, NBD_CMD_TRIM, NBD_CMD_WRITE_ZEROES};
    for (enum ending ending = BROKEN; ending < ENDINGS; ending++) {
        for (size_t c = 0; c < ARRAY_LENGTH(commands); c++) {
            struct holder h;
            struct teststream *first;
            struct peer p = peer_holding(&plain, &h, 1 * MIB, NBD_SIMPLE);
            peer_write(&p, 0, 1, 8192, payload, 8192); /* hangs beneath */
            peer_run(&p);
            second_client(&p, &first);
            end(&p, first, ending);
            peer_request(&p, 0, commands[c], 11, 12288, 8192); /* overlaps it by a page */
            if (commands[c] == NBD_CMD_WRITE)
                teststream_feed(p.s, payload, 8192);
            peer_write(&p, 0, 12, 16384, payload, 512); /* overlaps the new one only: of the same client */
            peer_write(&p, 0, 13, 4096, payload, 4096);
            peer_request(&p, 0, NBD_CMD_READ, 14, 8192, 512);
            peer_run(&p);
            cr_expect_eq(h.count, 4u, "the old one, 12, 13 and the read");
            cr_expect_not(is_at_device(&h, 12288, 8192), "11 waits");
            holder_end(&h, false, BLK_OK, 0); /* the old one lands at last */
            peer_run(&p);
            cr_expect(is_at_device(&h, 12288, 8192), "and 11 goes");
            holder_end_all(&h, BLK_OK);
            peer_run(&p);
            cr_expect_eq(teststream_sent(p.s), 4 * 16 + 512u);
            cr_expect(first->closed);
            forget(&p, first);
            peer_stop(&p);
        }
    }
}

/* It was sent again on a third one, since the second was lost, too: what waited is never written. */
Test(nbd_turns, what_waits_when_its_connection_is_cut_never_happens)
{
    struct holder h;
    struct teststream *first, *second;
    struct peer p = peer_holding(&plain, &h, 1 * MIB, NBD_SIMPLE);
    peer_write(&p, 0, 1, 0, payload, 4096);
    peer_run(&p);
    second_client(&p, &first);
    end(&p, first, BROKEN);
    peer_write(&p, 0, 2, 0, payload, 4096);
    peer_run(&p);
    second_client(&p, &second);
    end(&p, second, BROKEN);
    peer_write(&p, 0, 3, 0, payload, 4096);
    peer_run(&p);
    cr_expect_eq(h.count, 1u);
    holder_end(&h, false, BLK_OK, 0);
    peer_run(&p);
    cr_assert_eq(h.count, 1u, "the third only");
    cr_expect_eq(h.seen, 2u);
    holder_end(&h, false, BLK_OK, 0);
    peer_run(&p);
    peer_expect(&p, 3, 0);
    cr_expect_eq(page_pool_free(p.t->loop.pages), page_pool_size(p.t->loop.pages));
    forget(&p, first);
    forget(&p, second);
    peer_stop(&p);
}

/* The second one ended in order, so what it sent counts, and the third waits for it. */
Test(nbd_turns, what_waits_when_its_connection_ends_happens_first)
{
    struct holder h;
    struct teststream *first, *second;
    struct peer p = peer_holding(&plain, &h, 1 * MIB, NBD_SIMPLE);
    peer_write(&p, 0, 1, 0, payload, 4096);
    peer_run(&p);
    second_client(&p, &first);
    end(&p, first, BROKEN);
    peer_write(&p, 0, 2, 0, payload, 8192);
    peer_run(&p);
    second_client(&p, &second);
    end(&p, second, DISCONNECTED);
    peer_write(&p, 0, 3, 4096, payload, 4096); /* overlaps the second, not the first */
    peer_run(&p);
    cr_expect_eq(h.count, 1u);
    for (unsigned i = 0; i < 3; i++) {
        cr_assert_eq(h.count, 1u, "one after the other");
        cr_expect_eq(STAILQ_FIRST(&h.held)->len, i == 1 ? 8192u : 4096u);
        holder_end(&h, false, BLK_OK, 0);
        peer_run(&p);
    }
    peer_expect(&p, 3, 0);
    forget(&p, first);
    forget(&p, second);
    peer_stop(&p);
}

/* The client knows that its connection is lost before we do. */
Test(nbd_turns, a_write_that_hangs_is_waited_for_though_its_connection_is_still_there)
{
    struct holder h;
    struct teststream *first;
    struct peer p = peer_holding(&plain, &h, 1 * MIB, NBD_SIMPLE);
    peer_write(&p, 0, 1, 0, payload, 4096);
    peer_run(&p);
    second_client(&p, &first);
    peer_write(&p, 0, 2, 0, payload, 4096);
    peer_run(&p);
    cr_expect_eq(h.count, 2u, "writes of two clients, both new: their affair");
    p.t->loop.now_ns += 1000000000;
    peer_write(&p, 0, 3, 512, payload, 512);
    peer_write(&p, 0, 4, 8192, payload, 512);
    peer_run(&p);
    cr_expect_eq(h.count, 3u, "3 waits, 4 does not");
    cr_expect_not(is_at_device(&h, 512, 512));
    holder_end(&h, false, BLK_TIMEOUT, 0); /* given up */
    peer_run(&p);
    cr_expect(is_at_device(&h, 512, 512), "not for its own client's write");
    holder_end_all(&h, BLK_OK);
    peer_run(&p);
    struct teststream *second = p.s;
    p.s = first;
    peer_expect(&p, 1, NBD_EIO);
    teststream_end(first);
    peer_run(&p);
    peer_forget(&p);
    p.s = second;
    peer_stop(&p);
}

/* So does one that waits, or waited: its client may have sent it again meanwhile. */
Test(nbd_turns, a_write_that_waits_for_long_is_waited_for_too)
{
    struct holder h;
    struct teststream *first, *second;
    struct peer p = peer_holding(&plain, &h, 1 * MIB, NBD_SIMPLE);
    peer_write(&p, 0, 1, 0, payload, 4096);
    peer_run(&p);
    second_client(&p, &first);
    end(&p, first, BROKEN);
    peer_write(&p, 0, 2, 0, payload, 8192); /* waits for 1 */
    peer_run(&p);
    p.t->loop.now_ns += 1000000000;
    second_client(&p, &second);
    peer_write(&p, 0, 3, 4096, payload, 4096); /* overlaps 2 only */
    peer_write(&p, 0, 4, 8192, payload, 4096); /* overlaps none */
    peer_run(&p);
    cr_expect_eq(h.count, 2u, "1 and 4");
    holder_end(&h, false, BLK_OK, 0);
    peer_run(&p);
    cr_expect(is_at_device(&h, 0, 8192), "2 goes first");
    cr_expect_not(is_at_device(&h, 4096, 4096));
    peer_write(&p, 0, 5, 0, payload, 4096);
    peer_run(&p);
    cr_expect_not(is_at_device(&h, 0, 4096), "nor is it new when it goes");
    holder_end_all(&h, BLK_OK);
    peer_run(&p);
    cr_expect(is_at_device(&h, 4096, 4096) && is_at_device(&h, 0, 4096), "then 3 and 5");
    holder_end_all(&h, BLK_OK);
    peer_run(&p);
    struct teststream *third = p.s;
    p.s = second;
    peer_expect(&p, 2, 0);
    teststream_end(second);
    peer_run(&p);
    peer_forget(&p);
    p.s = third;
    for (uint64_t cookie = 4; cookie <= 5; cookie++)
        teststream_take(p.s, NULL, 16);
    teststream_take(p.s, NULL, 16);
    forget(&p, first);
    peer_stop(&p);
}

/* What had not been taken when the client left lands never: it is sent again elsewhere. */
Test(nbd_turns, what_a_client_left_in_its_socket_is_not_read_later)
{
    for (unsigned leaves = 0; leaves < 2; leaves++) {
        struct holder h;
        struct teststream *first;
        struct peer p = peer_holding(&(struct peer_setup){.requests = 2}, &h, 1 * MIB, NBD_SIMPLE);
        for (uint64_t i = 0; i < 40; i++)
            peer_write(&p, 0, i, i * 4096, payload, 4096);
        peer_run(&p);
        cr_expect_eq(h.count, 2u);
        second_client(&p, &first);
        if (leaves)
            teststream_end(first);
        peer_run(&p);
        p.t->loop.now_ns += 20000000;
        peer_write(&p, 0, 1, 20 * 4096, payload, 4096); /* what the first wanted to write, and may be newer */
        peer_run(&p);
        cr_expect_eq(h.count, 3u, "in nobody's way");
        holder_end(&h, true, BLK_OK, 0);
        peer_run(&p);
        peer_expect(&p, 1, 0);
        for (unsigned i = 0; i < 100 && h.count > 0; i++) {
            holder_end(&h, false, BLK_OK, 0);
            peer_run(&p);
        }
        cr_expect_eq(h.seen, leaves ? 3u : 41u);
        cr_expect_eq(teststream_sent(first), (leaves ? 2 : 40) * 16u, "what was accepted is answered");
        cr_expect_eq(first->closed, leaves);
        struct teststream *second = p.s;
        p.s = first;
        if (!leaves) {
            teststream_end(first);
            peer_run(&p);
        }
        peer_forget(&p);
        p.s = second;
        peer_stop(&p);
    }
}

/* Two names of one device are one medium. */
Test(nbd_turns, exports_of_one_device_have_one_order)
{
    struct holder h;
    struct peer p = peer_holding(&plain, &h, 1 * MIB, NBD_SIMPLE);
    struct nbd_export_options options = {.name = "again", .dev = &h.dev};
    cr_assert_eq(nbd_server_add_export(p.server, &options), 0);
    peer_write(&p, 0, 1, 0, payload, 4096);
    peer_run(&p);
    struct teststream *first = p.s;
    end(&p, first, BROKEN);
    peer_connect(&p);
    peer_go(&p, "again", NBD_SIMPLE);
    peer_write(&p, 0, 2, 0, payload, 4096);
    peer_run(&p);
    cr_expect_eq(h.count, 1u);
    holder_end_all(&h, BLK_OK);
    peer_run(&p);
    holder_end_all(&h, BLK_OK);
    peer_run(&p);
    peer_expect(&p, 2, 0);
    forget(&p, first);
    peer_stop(&p);
}

/* What waits when the server stops is finished, too; if the grace period is too short it is forgotten. */
Test(nbd_turns, a_drain_meets_writes_that_wait)
{
    for (unsigned patient = 0; patient < 2; patient++) {
        struct holder h;
        struct teststream *first;
        struct peer p = peer_holding(&plain, &h, 1 * MIB, NBD_SIMPLE);
        peer_write(&p, 0, 1, 0, payload, 4096);
        peer_run(&p);
        second_client(&p, &first);
        end(&p, first, BROKEN);
        peer_write(&p, 0, 2, 0, payload, 4096);
        peer_run(&p);
        struct nbd_conn_info info[2];
        uint32_t count = nbd_server_info(p.server, info, 2);
        cr_assert_eq(count, 2u);
        cr_expect(nbd_server_drop(p.server, info[1].id, 1000));
        peer_run(&p);
        cr_expect_not(p.s->closed);
        if (!patient) {
            p.t->loop.now_ns += 1000;
            peer_run(&p);
            cr_expect(p.s->closed);
        }
        holder_end_all(&h, BLK_OK);
        peer_run(&p);
        cr_expect_eq(h.count, patient);
        holder_end_all(&h, BLK_OK);
        peer_run(&p);
        cr_expect_eq(h.seen, 1 + patient);
        if (patient)
            peer_expect(&p, 2, 0);
        cr_expect(p.s->closed);
        forget(&p, first);
        peer_stop(&p);
    }
}
