/* How NBD connections end: by a wish of either side, out of step, reset, stalled, drained; and how they are shown. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/target/nbd_peer.h"

static const struct peer_setup plain;

Test(nbd, disc_finishes_what_was_asked_and_closes)
{
    struct holder h;
    struct peer p = peer_holding(&plain, &h, 1 * MIB, false);
    peer_request(&p, 0, NBD_CMD_READ, 1, 0, 512);
    peer_request(&p, 0, NBD_CMD_FLUSH, 2, 0, 0);
    peer_request(&p, 0, NBD_CMD_DISC, 3, 0, 0);
    peer_request(&p, 0, NBD_CMD_READ, 4, 0, 512); /* too late */
    peer_run(&p);
    cr_expect_eq(h.count, 2);
    cr_expect_not(p.s->closed);
    holder_end_all(&h, BLK_OK);
    peer_run(&p);
    cr_expect(p.s->closed);
    cr_expect_eq(peer_take(&p, NULL, 512).cookie, 1);
    peer_expect(&p, 2, 0);
    cr_expect_eq(teststream_sent(p.s), 0);
    cr_expect_eq(h.seen, 2);
    cr_expect_eq(nbd_server_connections(p.server), 0);
    peer_forget(&p);
    peer_stop(&p);
}

Test(nbd, the_clients_end_finishes_what_was_asked_and_closes)
{
    struct holder h;
    static uint8_t data[100];
    for (unsigned torn = 0; torn < 3; torn++) {
        struct peer p = peer_holding(&plain, &h, 1 * MIB, false);
        peer_request(&p, 0, NBD_CMD_READ, 1, 0, 512);
        if (torn == 1)
            teststream_feed(p.s, "\x25\x60\x95", 3); /* half a header */
        if (torn == 2) {
            peer_request(&p, 0, NBD_CMD_WRITE, 2, 0, 512);
            teststream_feed(p.s, data, sizeof data); /* half a payload */
        }
        teststream_end(p.s);
        peer_run(&p);
        cr_expect_eq(h.count, 1);
        holder_end_all(&h, BLK_OK);
        peer_run(&p);
        cr_expect_eq(peer_take(&p, NULL, 512).cookie, 1);
        cr_expect_eq(teststream_sent(p.s), 0);
        peer_forget(&p);
        peer_stop(&p);
    }
}

Test(nbd, a_stream_out_of_step_ends_the_connection)
{
    struct peer p = peer_serving(&plain, false);
    peer_request(&p, 0, NBD_CMD_READ, 1, 0, 512);
    teststream_feed(p.s, "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n", 36);
    peer_run(&p);
    peer_expect_data(&p, 1, 0, 512);
    peer_forget(&p);
    peer_stop(&p);
}

Test(nbd, a_reset_with_64_requests_in_flight_leaves_nothing)
{
    static uint8_t data[4096];
    for (unsigned mode = 0; mode < 6; mode++) {
        struct holder h;
        struct peer p = peer_holding(&(struct peer_setup){.two_loops = mode % 2}, &h, 1 * MIB, mode % 3 == 0);
        for (uint64_t i = 0; i < 32; i++) {
            peer_request(&p, 0, NBD_CMD_READ, i, i * 4096, 4096);
            peer_write(&p, 0, i, i * 4096, data, 4096);
        }
        peer_request(&p, 0, NBD_CMD_WRITE, 99, 0, 8192); /* and a payload that never comes */
        peer_run(&p);
        cr_expect_eq(h.count, 64);
        if (mode >= 2) { /* some replies wait, one of them torn */
            p.s->send_window = 100;
            for (unsigned i = 0; i < 10; i++)
                holder_end(&h, i % 2, BLK_OK, 0);
            peer_run(&p);
        }
        teststream_break(p.s);
        for (unsigned i = 0; mode >= 4 && i < 10; i++) /* some are answered just when the reset is seen */
            holder_end(&h, i % 2, BLK_OK, 0);
        peer_run(&p);
        cr_expect(p.s->closed);
        cr_expect_eq(nbd_server_connections(p.server), 1, "until its requests came home");
        while (h.count > 0)
            holder_end(&h, h.count % 3 == 0, h.count % 5 == 0 ? BLK_GONE : BLK_OK, 0);
        peer_run(&p);
        cr_expect_eq(nbd_server_connections(p.server), 0);
        cr_expect_eq(page_pool_free(p.far->loop.pages), page_pool_size(p.far->loop.pages));
        peer_forget(&p);
        peer_stop(&p);
    }
}

Test(nbd, a_reset_seen_when_the_replies_are_about_to_leave_leaves_nothing)
{
    for (unsigned two_loops = 0; two_loops < 2; two_loops++) {
        struct holder h;
        struct peer p = peer_holding(&(struct peer_setup){.two_loops = two_loops}, &h, 1 * MIB, false);
        for (uint64_t i = 0; i < 8; i++)
            peer_request(&p, 0, NBD_CMD_READ, i, i * 4096, 4096);
        peer_run(&p);
        teststream_break(p.s); /* seen at the end of the turn, just before the send */
        holder_end_all(&h, BLK_OK);
        peer_run(&p);
        cr_expect(p.s->closed);
        cr_expect_eq(nbd_server_connections(p.server), 0);
        peer_forget(&p);
        peer_stop(&p);
    }
}

Test(nbd, a_reset_while_starved_leaves_nothing)
{
    for (unsigned mode = 0; mode < 2; mode++) {
        struct holder h;
        struct peer p = peer_holding(&(struct peer_setup){.pages = 16, .requests = mode ? 2 : 8}, &h, 1 * MIB, false);
        p.s->send_window = 0;
        for (uint64_t i = 0; i < 9; i++)
            peer_request(&p, 0, NBD_CMD_READ, i, 0, 16384);
        peer_run(&p);
        holder_end(&h, false, BLK_OK, 0);
        peer_run(&p);
        teststream_break(p.s); /* it is noticed when the reply is sent */
        peer_run(&p);
        cr_expect(p.s->closed);
        holder_end_all(&h, BLK_OK);
        peer_run(&p);
        cr_expect_eq(nbd_server_connections(p.server), 0);
        peer_forget(&p);
        peer_stop(&p);
    }
}

static void run_timers(struct peer *p, unsigned count)
{
    while (count-- > 0) {
        uint64_t next = loop_next_timer_ns(&p->t->loop);
        cr_assert_neq(next, UINT64_MAX);
        p->t->loop.now_ns = next;
        peer_run(p);
    }
}

static void take_no_pages(struct page_waiter *waiter)
{
    (void)waiter;
}

Test(nbd, a_client_that_holds_up_others_is_cut_soon_even_if_it_crawls)
{
    static const uint8_t part[1000];
    for (unsigned waiting = 0; waiting < 2; waiting++) {
        struct peer p = peer_serving(&(struct peer_setup){.pages = 64}, false);
        struct page_waiter other = {.count = 60, .ready = take_no_pages};
        peer_request(&p, 0, NBD_CMD_WRITE, 1, 0, 131072);
        teststream_feed(p.s, part, sizeof part);
        peer_run(&p);
        if (waiting)
            page_pool_wait(p.t->loop.pages, &other);
        for (unsigned look = 0; look < 2; look++) {
            run_timers(&p, 1);
            cr_expect_not(p.s->closed, "the other has just begun to wait");
            teststream_feed(p.s, part, sizeof part);
        }
        run_timers(&p, 1);
        cr_expect_eq(p.s->closed, waiting, "with %u waiting", waiting);
        peer_stop(&p);
    }
}

/* Though the line moves when the first one's pages go to somebody. */
Test(nbd, all_clients_that_hold_up_others_are_cut_at_one_time)
{
    struct peer p = peer_serving(&(struct peer_setup){.pages = 64}, false);
    struct teststream *first = p.s, *second = peer_connect(&p);
    struct page_waiter others[2] = {{.count = 33, .ready = take_no_pages}, {.count = 40, .ready = take_no_pages}};
    peer_go(&p, "disk", false);
    for (unsigned i = 0; i < 2; i++) {
        p.s = i == 0 ? first : second;
        peer_request(&p, 0, NBD_CMD_WRITE, 1, 0, 131072 - 4096);
        peer_run(&p);
    }
    for (unsigned i = 0; i < 2; i++)
        page_pool_wait(p.t->loop.pages, &others[i]);
    for (unsigned look = 0; look < 3; look++) {
        cr_expect_not(first->closed || second->closed);
        p.t->loop.now_ns += 1000000000ull;
        peer_run(&p);
    }
    cr_expect(first->closed && second->closed && !others[1].waiting);
    p.s = first;
    peer_forget(&p);
    p.s = second;
    peer_stop(&p);
}

Test(nbd, a_client_that_waits_for_pages_itself_is_not_held_up_by_itself)
{
    struct peer p = peer_serving(&(struct peer_setup){.pages = 64}, false);
    p.s->send_window = 0; /* suspended */
    for (uint64_t k = 0; k < 12; k++)
        peer_request(&p, 0, NBD_CMD_READ, k, 0, 32768);
    peer_run(&p);
    run_timers(&p, 10);
    cr_expect_not(p.s->closed);
    teststream_open_window(p.s, SIZE_MAX);
    peer_run(&p);
    for (uint64_t k = 0; k < 12; k++)
        peer_expect_data(&p, k, 0, 32768);
    peer_stop(&p);
}

Test(nbd, a_client_that_stalls_is_cut_when_pages_are_scarce_and_only_then)
{
    static const struct {
        uint32_t pages;
        bool is_cut;
    } cases[] = {{64, true}, {4096, false}};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct peer p = peer_serving(&(struct peer_setup){.pages = cases[i].pages}, false);
        p.s->send_window = 0; /* takes no reply */
        for (uint64_t k = 0; k < 8; k++)
            peer_request(&p, 0, NBD_CMD_READ, k, 0, 32768);
        peer_run(&p);
        run_timers(&p, 29);
        cr_expect_not(p.s->closed, "%u pages: not yet", cases[i].pages);
        run_timers(&p, 1);
        cr_expect_eq(p.s->closed, cases[i].is_cut, "%u pages", cases[i].pages);
        if (!cases[i].is_cut) {
            teststream_open_window(p.s, SIZE_MAX);
            peer_run(&p);
            for (uint64_t k = 0; k < 8; k++)
                peer_expect_data(&p, k, 0, 32768);
        }
        testloop_run(p.t);
        peer_stop(&p);
    }
}

Test(nbd, a_slow_client_is_not_a_stalled_one)
{
    struct peer p = peer_serving(&(struct peer_setup){.pages = 16}, false);
    p.s->send_window = 0;
    peer_request(&p, 0, NBD_CMD_READ, 1, 0, 32768);
    peer_request(&p, 0, NBD_CMD_READ, 2, 0, 28672);
    peer_run(&p);
    for (unsigned i = 0; i < 20; i++) {
        teststream_open_window(p.s, 100);
        peer_run(&p);
        p.t->loop.now_ns += 20ull * 1000000000;
        peer_run(&p);
        cr_expect_not(p.s->closed);
    }
    teststream_open_window(p.s, SIZE_MAX);
    peer_run(&p);
    peer_expect_data(&p, 1, 0, 32768);
    peer_expect_data(&p, 2, 0, 28672);
    peer_stop(&p);
}

struct drained {
    struct task task;
    bool flag;
};

static void on_drained(struct task *task)
{
    container_of(task, struct drained, task)->flag = true;
}

/* As peer_stop(), for a server that is drained and whose streams are gone. */
static void stop_drained(struct peer *p)
{
    nbd_server_destroy(p->server);
    cr_expect_eq(loop_next_timer_ns(&p->t->loop), UINT64_MAX, "no timer is left");
    cr_expect_eq(loop_next_timer_ns(&p->far->loop), UINT64_MAX, "no timer is left");
    test_close(p->far, &p->disk->dev);
    if (p->far != p->t)
        testloop_destroy(p->far);
    testloop_destroy(p->t);
}

Test(nbd, drain_finishes_what_was_received_and_refuses_what_comes)
{
    for (unsigned two_loops = 0; two_loops < 2; two_loops++) {
        struct holder h;
        struct drained drained = {.task.run = on_drained};
        struct peer p = peer_holding(&(struct peer_setup){.two_loops = two_loops, .requests = 2}, &h, 1 * MIB, false);
        struct teststream *busy = p.s, *negotiating = peer_connect(&p), *idle = peer_connect(&p);
        peer_go(&p, "disk", false);
        p.s = busy;
        for (uint64_t i = 0; i < 5; i++) /* three of them wait for a free request */
            peer_request(&p, 0, NBD_CMD_READ, i, 0, 512);
        peer_run(&p);
        nbd_server_drain(p.server, 1000000000, &drained.task);
        peer_run(&p);
        cr_expect(negotiating->closed);
        cr_expect(idle->closed);
        cr_expect_not(busy->closed);
        cr_expect_not(drained.flag);
        struct teststream *late = peer_connect(&p);
        cr_expect(late->closed);
        cr_expect_eq(teststream_sent(late), 0);
        p.s = busy;
        while (h.count > 0) {
            holder_end(&h, false, BLK_OK, 0);
            peer_run(&p);
        }
        for (uint64_t i = 0; i < 5; i++)
            cr_expect_eq(peer_take(&p, NULL, 512).cookie, i);
        cr_expect(busy->closed);
        cr_expect(drained.flag);
        teststream_destroy(late);
        teststream_destroy(idle);
        teststream_destroy(negotiating);
        teststream_destroy(busy);
        stop_drained(&p);
    }
}

Test(nbd, what_does_not_end_within_the_grace_period_is_cut)
{
    for (unsigned two_loops = 0; two_loops < 2; two_loops++) {
        struct drained drained = {.task.run = on_drained};
        struct peer p = peer_serving(&(struct peer_setup){.two_loops = two_loops}, false);
        p.s->send_window = 10;
        peer_request(&p, 0, NBD_CMD_READ, 1, 0, 512);
        peer_run(&p);
        nbd_server_drain(p.server, 5000, &drained.task);
        peer_run(&p);
        cr_expect_not(p.s->closed);
        p.t->loop.now_ns += 5000;
        peer_run(&p);
        cr_expect(p.s->closed);
        cr_expect(drained.flag);
        teststream_destroy(p.s);
        stop_drained(&p);
    }
}

Test(nbd, a_cut_that_overtakes_the_order_to_end_is_not_lost)
{
    for (unsigned two_loops = 0; two_loops < 2; two_loops++) {
        struct drained drained = {.task.run = on_drained};
        struct peer p = peer_serving(&(struct peer_setup){.two_loops = two_loops}, false);
        p.s->send_window = 10;
        peer_request(&p, 0, NBD_CMD_READ, 1, 0, 512);
        peer_run(&p);
        nbd_server_drain(p.server, 1000, &drained.task);
        p.t->loop.now_ns += 1000; /* the grace period is over before the first order was read */
        peer_run(&p);
        cr_expect(p.s->closed);
        cr_expect(drained.flag);
        teststream_destroy(p.s);
        stop_drained(&p);
    }
}

/* The server says "end" while the stream is between the loops. */
Test(nbd, a_drain_meets_a_connection_that_moves)
{
    for (unsigned cut_first = 0; cut_first < 2; cut_first++) {
        struct drained drained = {.task.run = on_drained};
        struct peer p = peer_start(&(struct peer_setup){.two_loops = true});
        peer_connect(&p);
        peer_greet(&p, 3);
        uint8_t go[] = "IHAVEOPT\0\0\0\7\0\0\0\12\0\0\0\4disk\0\0";
        teststream_feed(p.s, go, sizeof go - 1);
        testloop_run_ready(p.t); /* the far loop has not run: the connection is underway */
        cr_expect_eq(p.s->moves, 1);
        nbd_server_drain(p.server, 1000, &drained.task);
        if (cut_first) {
            p.t->loop.now_ns += 1000;
            testloop_run_ready(p.t);
        }
        peer_run(&p);
        cr_expect(p.s->closed);
        cr_expect(drained.flag);
        teststream_destroy(p.s);
        stop_drained(&p);
    }
}

/* The server says "end", and before that is heard the stream goes to the other loop, which runs first. */
Test(nbd, an_order_follows_a_connection_that_moves)
{
    struct peer p = peer_start(&(struct peer_setup){.two_loops = true});
    struct nbd_conn_info info;
    peer_connect(&p);
    peer_greet(&p, 3);
    uint8_t go[] = "IHAVEOPT\0\0\0\7\0\0\0\12\0\0\0\4disk\0\0";
    teststream_feed(p.s, go, sizeof go - 1);
    nbd_server_info(p.server, &info, 1);
    cr_assert(nbd_server_drop(p.server, info.id, 1000));
    loop_end_turn(&p.t->loop); /* a busy turn: the stream was readable, the order is still in line */
    cr_expect_eq(p.s->moves, 1);
    testloop_run_ready(p.far);
    testloop_run_ready(p.t);
    cr_expect_not(p.s->closed, "nobody touches it but on its own loop");
    peer_run(&p);
    cr_expect(p.s->closed, "where it obeys");
    teststream_take(p.s, NULL, teststream_sent(p.s));
    peer_forget(&p);
    peer_stop(&p);
}

Test(nbd, info_shows_each_connection)
{
    struct peer p = peer_serving(&(struct peer_setup){.two_loops = true}, false);
    static uint8_t data[4096];
    struct nbd_conn_info info[3];
    peer_write(&p, 0, 1, 0, data, 4096);
    peer_request(&p, 0, NBD_CMD_READ, 2, 0, 512);
    peer_request(&p, 0, NBD_CMD_READ, 3, PEER_DISK_BYTES, 512);
    peer_run(&p);
    struct teststream *first = p.s, *second = peer_connect(&p);
    cr_expect_eq(nbd_server_info(p.server, info, 1), 2);
    cr_expect_eq(nbd_server_info(p.server, info, 3), 2);
    cr_expect_str_eq(info[0].peer, "test:1");
    cr_expect_str_eq(info[0].export_name, "disk");
    cr_expect_str_eq(info[0].phase, "transmission");
    cr_expect_eq(info[0].io.written_bytes, 4096);
    cr_expect_eq(info[0].io.read_bytes, 512);
    cr_expect_eq(info[0].io.commands[IO_READ], 2);
    cr_expect_eq(info[0].io.commands[IO_WRITE], 1);
    cr_expect_eq(info[0].io.troubles[IO_FAILED], 1);
    cr_expect_eq(io_stats_commands(&info[0].io), 3);
    cr_expect_lt(info[0].id, info[1].id);
    cr_expect_str_eq(info[1].phase, "negotiation");
    cr_expect_str_eq(info[1].export_name, "");
    teststream_end(second);
    peer_run(&p);
    peer_forget(&p);
    p.s = first;
    peer_stop(&p);
}

Test(nbd, one_connection_is_asked_to_end_and_cut_if_it_does_not)
{
    struct holder h;
    struct peer p = peer_holding(&plain, &h, 1 * MIB, false);
    struct nbd_conn_info info[2];
    struct teststream *first = p.s, *second = peer_connect(&p);
    peer_go(&p, "disk", false);
    cr_assert_eq(nbd_server_info(p.server, info, 2), 2);
    cr_expect_not(nbd_server_drop(p.server, info[1].id + 1, 1));
    p.s = first;
    peer_request(&p, 0, NBD_CMD_READ, 1, 0, 512);
    peer_run(&p);
    cr_expect(nbd_server_drop(p.server, info[0].id, 1000000000));
    peer_run(&p);
    cr_expect_not(first->closed, "what it asked for is still at the disk");
    cr_expect_not(second->closed, "it was not meant");
    p.t->loop.now_ns += 1000000001;
    peer_run(&p);
    cr_expect(first->closed);
    holder_end_all(&h, BLK_OK);
    peer_run(&p);
    cr_expect_eq(nbd_server_connections(p.server), 1);
    cr_expect_not(nbd_server_drop(p.server, info[0].id, 1), "it is gone");
    peer_forget(&p);
    p.s = second;
    cr_expect(nbd_server_drop(p.server, info[1].id, 1000000000));
    peer_run(&p);
    cr_expect(second->closed, "it had nothing to wait for");
    peer_forget(&p);
    peer_stop(&p);
}

Test(nbd, connections_of_one_export_share_its_device)
{
    struct peer p = peer_serving(&plain, false);
    struct teststream *first = p.s, *second = peer_connect(&p);
    static uint8_t data[4096];
    peer_go(&p, "disk", true);
    test_fill(data, sizeof data, 8);
    peer_write(&p, 0, 1, 4096, data, 4096);
    peer_run(&p);
    peer_expect(&p, 1, 0);
    p.s = first;
    p.mode = NBD_SIMPLE;
    peer_ask(&p, 0, NBD_CMD_FLUSH, 0, 0, 0);
    cr_expect_eq(p.disk->flushes, 1);
    peer_request(&p, 0, NBD_CMD_READ, 2, 4096, 4096);
    peer_run(&p);
    peer_expect_data(&p, 2, 4096, 4096);
    teststream_end(first);
    peer_run(&p);
    peer_forget(&p);
    p.s = second;
    peer_stop(&p);
}

/* By the document: what is underway is finished, what comes after the order is ESHUTDOWN, and then the end. */
Test(nbd, requests_that_come_while_it_stops_are_told_so)
{
    static uint8_t data[300000];
    for (unsigned mode = 0; mode < 6; mode++) {
        struct holder h;
        struct drained drained = {.task.run = on_drained};
        struct peer p = peer_holding(&(struct peer_setup){.two_loops = mode & 1}, &h, 1 * MIB, mode / 2);
        peer_write(&p, 0, 1, 0, data, 512);
        peer_run(&p);
        peer_request(&p, 0, NBD_CMD_READ, 2, 0, 512); /* in the socket when the order comes: accepted */
        nbd_server_drain(p.server, 1000000000, &drained.task);
        peer_run(&p);
        cr_expect_eq(h.count, 2u);
        cr_expect_eq(teststream_sent(p.s), 0u);
        peer_ask(&p, 0, NBD_CMD_READ, 0, 512, NBD_ESHUTDOWN);
        peer_ask(&p, 0, NBD_CMD_FLUSH, 0, 0, NBD_ESHUTDOWN);
        peer_ask(&p, 0, 4711, 0, 0, NBD_ESHUTDOWN);
        peer_write(&p, NBD_CMD_FUA, 3, 4096, data, sizeof data); /* taken, and nothing done with it */
        peer_run(&p);
        peer_expect(&p, 3, NBD_ESHUTDOWN);
        peer_request(&p, 0, NBD_CMD_WRITE, 4, 4096, 512);
        teststream_feed(p.s, data, 100); /* the rest is not waited for */
        peer_run(&p);
        cr_expect_eq(h.seen, 2u);
        cr_expect_not(p.s->closed, "two are underway");
        holder_end(&h, false, BLK_OK, 0);
        peer_run(&p);
        peer_expect(&p, 1, 0);
        cr_expect_not(p.s->closed);
        holder_end(&h, false, BLK_OK, 0);
        peer_run(&p);
        cr_expect_eq(peer_take(&p, NULL, 512).cookie, 2u);
        cr_expect_eq(teststream_sent(p.s), 0u);
        cr_expect(p.s->closed);
        cr_expect(drained.flag);
        teststream_destroy(p.s);
        stop_drained(&p);
    }
}

/* It may say goodbye, go, or be reset meanwhile. */
Test(nbd, a_client_that_goes_while_the_server_stops_leaves_nothing)
{
    for (unsigned way = 0; way < 3; way++) {
        struct holder h;
        struct drained drained = {.task.run = on_drained};
        struct peer p = peer_holding(&plain, &h, 1 * MIB, NBD_EXTENDED);
        peer_request(&p, 0, NBD_CMD_READ, 1, 0, 512);
        peer_run(&p);
        nbd_server_drain(p.server, 1000000000, &drained.task);
        peer_run(&p);
        peer_ask(&p, 0, NBD_CMD_READ, 0, 512, NBD_ESHUTDOWN);
        if (way == 0)
            peer_request(&p, 0, NBD_CMD_DISC, 2, 0, 0);
        else if (way == 1)
            teststream_end(p.s);
        else
            teststream_break(p.s);
        peer_run(&p);
        cr_expect_eq(p.s->closed, way == 2);
        holder_end_all(&h, BLK_OK);
        peer_run(&p);
        cr_expect_eq(teststream_sent(p.s), way == 2 ? 0u : 40u + 512);
        cr_expect(drained.flag);
        teststream_destroy(p.s);
        stop_drained(&p);
    }
}
