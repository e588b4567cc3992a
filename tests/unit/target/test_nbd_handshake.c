#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/target/nbd_peer.h"

enum { FIXED = NBD_HANDSHAKE_FIXED_NEWSTYLE, BOTH = NBD_HANDSHAKE_FIXED_NEWSTYLE | NBD_HANDSHAKE_NO_ZEROES };

static const struct peer_setup plain;

/* A bench and a stream past the client's flags. */
static struct peer start_at_options(const struct peer_setup *setup)
{
    struct peer p = peer_start(setup);
    peer_connect(&p);
    peer_greet(&p, BOTH);
    return p;
}

static void expect_refused(struct peer *p, uint32_t option, uint32_t type)
{
    uint8_t data[PEER_DATA_MAX];
    cr_expect_gt(peer_option_reply(p, option, type, data), 0u, "a text for people");
}

Test(nbd_handshake, export_name_answers_as_of_old)
{
    static const struct {
        uint32_t flags;
        size_t len;
    } cases[] = {{0, 134}, {FIXED, 134}, {BOTH, 10}, {NBD_HANDSHAKE_NO_ZEROES, 10}};
    struct peer p = peer_start(&plain);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint8_t reply[134];
        peer_connect(&p);
        peer_greet(&p, cases[i].flags);
        peer_option(&p, NBD_OPT_EXPORT_NAME, "disk", 4);
        cr_assert_eq(teststream_sent(p.s), cases[i].len, "case %zu: %zu", i, teststream_sent(p.s));
        cr_assert(teststream_take(p.s, reply, cases[i].len));
        cr_expect_eq(get_be64(reply), PEER_DISK_BYTES);
        cr_expect_eq(get_be16(reply + 8), NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_FUA |
                                              NBD_FLAG_SEND_TRIM | NBD_FLAG_SEND_WRITE_ZEROES |
                                              NBD_FLAG_CAN_MULTI_CONN | NBD_FLAG_SEND_CACHE | NBD_FLAG_SEND_FAST_ZERO);
        peer_ask(&p, 0, NBD_CMD_FLUSH, 0, 0, 0);
        peer_request(&p, 0, NBD_CMD_DISC, 0, 0, 0);
        peer_run(&p);
        peer_forget(&p);
    }
    peer_stop(&p);
}

Test(nbd_handshake, export_name_of_no_export_ends_the_connection)
{
    static const struct {
        const char *name;
        uint32_t len;
    } cases[] = {{"disc", 4}, {"", 0}, {"disk\0", 5}, {"dis", 3}, {NULL, 4097}, {NULL, UINT32_MAX}};
    struct peer p = peer_start(&plain);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        peer_connect(&p);
        peer_greet(&p, BOTH);
        peer_option(&p, NBD_OPT_EXPORT_NAME, cases[i].name, cases[i].len);
        cr_expect_eq(teststream_sent(p.s), 0, "case %zu: there is no error reply", i);
        peer_forget(&p);
    }
    peer_stop(&p);
}

Test(nbd_handshake, flags_that_are_not_known_end_the_connection)
{
    static const uint32_t flags[] = {4, 7, 0x80000003};
    struct peer p = peer_start(&plain);
    for (size_t i = 0; i < ARRAY_LENGTH(flags); i++) {
        peer_connect(&p);
        peer_greet(&p, flags[i]);
        peer_forget(&p);
    }
    peer_stop(&p);
}

Test(nbd_handshake, without_fixed_newstyle_only_export_name_is_served)
{
    static const uint32_t options[] = {NBD_OPT_LIST, NBD_OPT_GO, NBD_OPT_ABORT, 99};
    struct peer p = peer_start(&plain);
    for (size_t i = 0; i < ARRAY_LENGTH(options); i++) {
        peer_connect(&p);
        peer_greet(&p, NBD_HANDSHAKE_NO_ZEROES);
        peer_option(&p, options[i], NULL, 0);
        cr_expect_eq(teststream_sent(p.s), 0);
        peer_forget(&p);
    }
    peer_stop(&p);
}

Test(nbd_handshake, options_that_are_not_known_are_skipped_and_the_next_one_parses)
{
    static const uint32_t options[] = {0, 4, 12, 99, UINT32_MAX};
    static const uint32_t lengths[] = {0, 1, 100, 16384, 16385, 200000};
    uint8_t data[PEER_DATA_MAX], *noise = malloc(200000);
    struct peer p = start_at_options(&plain);
    for (uint32_t i = 0; i < 200000; i += 8)
        memcpy(noise + i, "IHAVEOPT", 8); /* data that looks like an option is still data */
    for (size_t i = 0; i < ARRAY_LENGTH(options); i++) {
        for (size_t j = 0; j < ARRAY_LENGTH(lengths); j++) {
            peer_option(&p, options[i], noise, lengths[j]);
            expect_refused(&p, options[i], NBD_REP_ERR_UNSUP);
        }
    }
    peer_option(&p, NBD_OPT_STRUCTURED_REPLY, NULL, 0);
    peer_option_reply(&p, NBD_OPT_STRUCTURED_REPLY, NBD_REP_ACK, data);
    free(noise);
    peer_stop(&p);
}

Test(nbd_handshake, data_that_is_too_long_is_skipped_and_refused)
{
    static const uint32_t options[] = {NBD_OPT_INFO,
                                       NBD_OPT_GO,
                                       NBD_OPT_LIST,
                                       NBD_OPT_ABORT,
                                       NBD_OPT_STRUCTURED_REPLY,
                                       NBD_OPT_EXTENDED_HEADERS,
                                       NBD_OPT_LIST_META_CONTEXT,
                                       NBD_OPT_SET_META_CONTEXT};
    static uint8_t noise[NBD_OPTION_DATA_MAX + 1];
    uint8_t data[PEER_DATA_MAX];
    struct peer p = start_at_options(&plain);
    for (size_t i = 0; i < ARRAY_LENGTH(options); i++) {
        peer_option(&p, options[i], noise, sizeof noise);
        expect_refused(&p, options[i], NBD_REP_ERR_TOO_BIG);
    }
    peer_option(&p, NBD_OPT_ABORT, NULL, 0);
    peer_option_reply(&p, NBD_OPT_ABORT, NBD_REP_ACK, data);
    peer_forget(&p);
    peer_stop(&p);
}

Test(nbd_handshake, malformed_data_is_invalid_and_nothing_worse)
{
    static const struct {
        uint32_t option;
        const char *data;
        uint32_t len;
    } cases[] = {
        {NBD_OPT_LIST, "x", 1},
        {NBD_OPT_STRUCTURED_REPLY, "x", 1},
        {NBD_OPT_EXTENDED_HEADERS, "x", 1},
        {NBD_OPT_GO, "", 0},
        {NBD_OPT_GO, "\xff\xff\xff\xff\0\0", 6}, /* CVE-2022-26495 */
        {NBD_OPT_INFO,
         "\xff\xff\xff\xfe"
         "disk\0\0",
         10},
        {NBD_OPT_GO, "\0\0\0\4disk\0", 9},
        {NBD_OPT_GO, "\0\0\0\4disk\0\1", 10},
        {NBD_OPT_GO, "\0\0\0\5disk\0\0\0", 11},         /* a NUL in the name: not "disk" */
        {NBD_OPT_INFO, "\0\0\0\4disk\0\0IHAVEOPT", 18}, /* an option inside an option */
    };
    struct peer p = start_at_options(&plain);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        peer_option(&p, cases[i].option, cases[i].data, cases[i].len);
        expect_refused(&p, cases[i].option, NBD_REP_ERR_INVALID);
    }
    peer_stop(&p);
}

Test(nbd_handshake, long_names_are_unknown_or_too_big)
{
    static char name[NBD_NAME_MAX + 1];
    static const struct {
        uint32_t len, error;
    } cases[] = {{3000, NBD_REP_ERR_UNKNOWN},
                 {NBD_NAME_MAX, NBD_REP_ERR_UNKNOWN},
                 {NBD_NAME_MAX + 1, NBD_REP_ERR_TOO_BIG},
                 {0, NBD_REP_ERR_UNKNOWN},
                 {3, NBD_REP_ERR_UNKNOWN}};
    struct peer p = start_at_options(&plain);
    memset(name, 'd', sizeof name);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        peer_info(&p, NBD_OPT_GO, name, cases[i].len, NULL, 0);
        expect_refused(&p, NBD_OPT_GO, cases[i].error);
    }
    peer_stop(&p);
}

/* Take all pieces of an INFO or GO. Returns which came, as bits. */
static unsigned take_info(struct peer *p, uint32_t option, uint8_t pieces[4][PEER_DATA_MAX], uint32_t lengths[4])
{
    uint8_t data[PEER_DATA_MAX];
    unsigned got = 0;
    while (get_be32(teststream_look(p->s) + 12) == NBD_REP_INFO) {
        uint32_t len = peer_option_reply(p, option, NBD_REP_INFO, data);
        uint16_t type = get_be16(data);
        cr_assert(type <= NBD_INFO_BLOCK_SIZE && !(got & 1u << type));
        got |= 1u << type;
        lengths[type] = len - 2;
        memcpy(pieces[type], data + 2, len - 2);
    }
    cr_expect_eq(peer_option_reply(p, option, NBD_REP_ACK, data), 0);
    return got;
}

Test(nbd_handshake, info_tells_what_was_asked_and_go_the_same)
{
    static const uint16_t infos[] = {NBD_INFO_BLOCK_SIZE, 77, NBD_INFO_NAME, NBD_INFO_DESCRIPTION};
    static const unsigned expected[] = {1, 9, 9, 11, 15}; /* with so many of them asked */
    static uint8_t pieces[4][PEER_DATA_MAX];
    uint32_t lengths[4];
    struct peer p = start_at_options(&plain);
    for (uint16_t n = 0; n < ARRAY_LENGTH(expected); n++) {
        peer_info(&p, n == 4 ? NBD_OPT_GO : NBD_OPT_INFO, "disk", 4, infos, n);
        unsigned got = take_info(&p, n == 4 ? NBD_OPT_GO : NBD_OPT_INFO, pieces, lengths);
        cr_expect_eq(got, expected[n], "asked %u: %x", n, got);
        cr_expect_eq(get_be64(pieces[NBD_INFO_EXPORT]), PEER_DISK_BYTES);
    }
    cr_expect_eq(lengths[NBD_INFO_NAME], 4);
    cr_expect_arr_eq(pieces[NBD_INFO_NAME], "disk", 4);
    cr_expect_eq(lengths[NBD_INFO_DESCRIPTION], 12);
    cr_expect_arr_eq(pieces[NBD_INFO_DESCRIPTION], "the only one", 12);
    cr_expect_eq(get_be32(pieces[NBD_INFO_BLOCK_SIZE]), 512);
    cr_expect_eq(get_be32(pieces[NBD_INFO_BLOCK_SIZE] + 4), 4096);
    cr_expect_eq(get_be32(pieces[NBD_INFO_BLOCK_SIZE] + 8), 32 << 20);
    peer_ask(&p, 0, NBD_CMD_FLUSH, 0, 0, 0);
    peer_stop(&p);
}

Test(nbd_handshake, preferred_size_is_a_row_where_that_is_a_power_of_two)
{
    static const struct {
        uint32_t logical, physical, optimal, preferred, pages, maximum;
    } cases[] = {
        {512, 512, 0, 4096, 16384, 32 << 20},          {4096, 4096, 0, 4096, 16384, 32 << 20},
        {512, 512, 1 << 20, 1 << 20, 16384, 32 << 20}, {512, 512, 3 << 20, 4096, 16384, 32 << 20},
        {512, 8192, 0, 8192, 16384, 32 << 20},         {512, 512, 64 << 20, 4096, 16384, 32 << 20},
        {512, 512, 2048, 4096, 16384, 32 << 20},       {512, 512, 0, 4096, 16383, 16 << 20},
        {512, 512, 1 << 20, 4096, 16, 32 << 10},
    };
    static const uint16_t ask = NBD_INFO_BLOCK_SIZE;
    static uint8_t pieces[4][PEER_DATA_MAX];
    uint32_t lengths[4];
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct peer_setup setup = {.pages = cases[i].pages, .logical_block = cases[i].logical};
        struct peer p = start_at_options(&setup);
        p.disk->dev.info.physical_block = cases[i].physical;
        p.disk->dev.info.optimal_io = cases[i].optimal;
        peer_info(&p, NBD_OPT_INFO, "disk", 4, &ask, 1);
        take_info(&p, NBD_OPT_INFO, pieces, lengths);
        cr_expect_eq(get_be32(pieces[NBD_INFO_BLOCK_SIZE]), cases[i].logical, "case %zu", i);
        cr_expect_eq(get_be32(pieces[NBD_INFO_BLOCK_SIZE] + 4), cases[i].preferred, "case %zu", i);
        cr_expect_eq(get_be32(pieces[NBD_INFO_BLOCK_SIZE] + 8), cases[i].maximum, "case %zu", i);
        peer_stop(&p);
    }
}

Test(nbd_handshake, flags_tell_the_truth_about_the_export)
{
    static const struct {
        bool read_only, device_read_only, discards, rotational, structured;
        uint16_t flags;
    } cases[] = {
        {false, false, true, false, false, 0xd6d},  {false, false, true, false, true, 0xded},
        {false, false, false, false, false, 0x54d}, {false, false, true, true, false, 0xd7d},
        {true, false, true, false, false, 0x50f},   {false, true, true, false, true, 0x58f},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct peer p = peer_start(&plain);
        p.disk->dev.info.read_only = cases[i].device_read_only;
        p.disk->dev.info.discards = cases[i].discards;
        p.disk->dev.info.rotational = cases[i].rotational;
        peer_export(&p, "view", NULL, cases[i].read_only, false);
        peer_connect(&p);
        uint16_t flags = peer_go(&p, "view", cases[i].structured);
        cr_expect_eq(flags, cases[i].flags, "case %zu: %x", i, flags);
        peer_stop(&p);
    }
}

Test(nbd_handshake, list_names_all_but_the_hidden_however_many_and_long)
{
    enum { MANY = 40 };
    static char name[NBD_NAME_MAX + 1], description[NBD_NAME_MAX + 1];
    static const uint64_t seeds[] = {0, 6};
    uint8_t data[PEER_DATA_MAX];
    memset(description, 'x', NBD_NAME_MAX);
    for (size_t s = 0; s < ARRAY_LENGTH(seeds); s++) {
        struct peer p = peer_start(&(struct peer_setup){.seed = seeds[s]});
        peer_export(&p, "secret", NULL, false, true);
        for (int i = 0; i < MANY; i++) {
            memset(name, 'a' + i % 26, NBD_NAME_MAX);
            name[NBD_NAME_MAX - i / 26] = '\0';
            peer_export(&p, name, i % 2 ? description : NULL, false, false);
        }
        peer_connect(&p);
        peer_greet(&p, BOTH);
        for (int round = 0; round < 2; round++) {
            peer_option(&p, NBD_OPT_LIST, NULL, 0);
            cr_expect_eq(peer_option_reply(&p, NBD_OPT_LIST, NBD_REP_SERVER, data), 4 + 4 + 12);
            cr_expect_eq(get_be32(data), 4);
            cr_expect_arr_eq(data + 4, "diskthe only one", 16);
            for (unsigned i = 0; i < MANY; i++) {
                uint32_t len = peer_option_reply(&p, NBD_OPT_LIST, NBD_REP_SERVER, data);
                cr_expect_eq(get_be32(data), NBD_NAME_MAX - i / 26);
                cr_expect_eq(len, 4 + NBD_NAME_MAX - i / 26 + (i % 2 ? NBD_NAME_MAX : 0));
            }
            cr_expect_eq(peer_option_reply(&p, NBD_OPT_LIST, NBD_REP_ACK, data), 0);
        }
        peer_stop(&p);
    }
}

Test(nbd_handshake, exports_that_cannot_be_are_refused)
{
    static char name[NBD_NAME_MAX + 2];
    struct peer p = peer_start(&plain);
    struct nbd_export_options options = {.name = "disk", .dev = &p.disk->dev};
    cr_expect_eq(nbd_server_add_export(p.server, &options), -EEXIST);
    options.name = "";
    cr_expect_eq(nbd_server_add_export(p.server, &options), 0, "the default export");
    memset(name, 'n', NBD_NAME_MAX + 1);
    options.name = name;
    cr_expect_eq(nbd_server_add_export(p.server, &options), -EINVAL);
    options.name = "other";
    options.description = name;
    cr_expect_eq(nbd_server_add_export(p.server, &options), -EINVAL);
    options.description = NULL;
    p.disk->dev.info.max_request = 2048;
    cr_expect_eq(nbd_server_add_export(p.server, &options), -EINVAL);
    p.disk->dev.info.max_request = 0;
    struct testloop *poor = testloop_create(15, 1);
    struct page_pool *pool = poor->loop.pages;
    struct memdisk *disk = memdisk_create(&poor->loop, "poor", 1 * MIB, 512);
    options.dev = &disk->dev;
    cr_expect_eq(nbd_server_add_export(p.server, &options), -EINVAL, "hardly any pages");
    poor->loop.pages = NULL;
    cr_expect_eq(nbd_server_add_export(p.server, &options), -EINVAL, "no pages at all");
    poor->loop.pages = pool;
    test_close(poor, &disk->dev);
    testloop_destroy(poor);
    peer_connect(&p);
    peer_go(&p, "", false);
    peer_stop(&p);
}

Test(nbd_handshake, bytes_one_by_one_make_the_same_session)
{
    static const uint64_t seeds[] = {1, 2, 3, 4, 5};
    for (size_t i = 0; i < ARRAY_LENGTH(seeds); i++) {
        struct peer p = peer_start(&(struct peer_setup){.seed = seeds[i]});
        peer_connect(&p);
        peer_go(&p, "disk", true);
        peer_ask(&p, 0, NBD_CMD_FLUSH, 0, 0, 0);
        peer_stop(&p);
    }
}

Test(nbd_handshake, a_hasty_client_sends_everything_at_once)
{
    struct peer p = peer_start(&(struct peer_setup){.two_loops = true});
    uint8_t flags[4] = {0, 0, 0, 3}, data[PEER_DATA_MAX];
    p.s = teststream_create(&p.t->loop, 1);
    teststream_feed(p.s, flags, 4);
    peer_info(&p, NBD_OPT_GO, "disk", 4, NULL, 0);
    peer_request(&p, 0, NBD_CMD_READ, 5, 0, 512);
    peer_request(&p, 0, NBD_CMD_DISC, 6, 0, 0);
    nbd_conn_open(p.server, &p.s->stream, NBD_TLS_OFF);
    peer_run(&p);
    cr_assert(teststream_take(p.s, NULL, NBD_GREETING_BYTES));
    peer_option_reply(&p, NBD_OPT_GO, NBD_REP_INFO, data);
    peer_option_reply(&p, NBD_OPT_GO, NBD_REP_ACK, data);
    struct peer_reply reply = peer_take(&p, data, 512);
    cr_expect_eq(reply.cookie, 5);
    cr_expect_eq(reply.error, 0);
    cr_expect_eq(p.s->moves, 1);
    peer_forget(&p);
    peer_stop(&p);
}

Test(nbd_handshake, a_client_that_goes_away_or_talks_nonsense_leaves_nothing)
{
    struct peer p = peer_start(&plain);
    for (int cut = 0; cut < 60; cut++) {
        uint8_t session[64] = "\0\0\0\3IHAVEOPT\0\0\0\6\0\0\0\12\0\0\0\4disk\0\0IHAVEOPT\0\0\0\3\0\0\0\0";
        peer_connect(&p);
        teststream_feed(p.s, session, (size_t)cut);
        if (cut % 3 == 0)
            teststream_break(p.s);
        else
            teststream_end(p.s);
        peer_run(&p);
        peer_forget(&p);
        cr_expect_eq(nbd_server_connections(p.server), 0);
    }
    peer_connect(&p);
    teststream_feed(p.s, "GET / HTTP/1.0\r\n\r\n", 18);
    peer_run(&p);
    peer_forget(&p);
    peer_connect(&p);
    peer_greet(&p, BOTH);
    teststream_feed(p.s, "GET / HTTP/1.0\r\n\r\n", 18);
    peer_run(&p);
    peer_forget(&p);
    peer_stop(&p);
}

Test(nbd_handshake, abort_is_acknowledged_even_to_nobody)
{
    struct peer p = start_at_options(&plain);
    uint8_t data[PEER_DATA_MAX];
    peer_option(&p, NBD_OPT_ABORT, "bye", 3);
    peer_option_reply(&p, NBD_OPT_ABORT, NBD_REP_ACK, data);
    peer_forget(&p);
    peer_connect(&p);
    peer_greet(&p, BOTH);
    p.s->send_window = 0; /* the ACK cannot leave, and then the client is gone */
    peer_option(&p, NBD_OPT_ABORT, NULL, 0);
    cr_expect_not(p.s->closed);
    teststream_break(p.s);
    peer_run(&p);
    peer_forget(&p);
    peer_stop(&p);
}

Test(nbd_handshake, negotiation_is_bounded_in_time)
{
    struct peer p = start_at_options(&plain);
    uint64_t start = p.t->loop.now_ns;
    peer_option(&p, NBD_OPT_GO, NULL, 100); /* its data never comes */
    cr_expect_not(p.s->closed);
    testloop_run(p.t);
    cr_expect(p.s->closed);
    cr_expect_eq(p.t->loop.now_ns - start, 10ull * 1000000000);
    peer_forget(&p);
    peer_connect(&p); /* a client in transmission has all the time it likes */
    peer_go(&p, "disk", false);
    testloop_run(p.t);
    cr_expect_not(p.s->closed);
    peer_stop(&p);
}

Test(nbd_handshake, further_negotiations_are_closed_at_once)
{
    struct peer p = peer_start(&(struct peer_setup){.half_open = 2});
    struct teststream *first = peer_connect(&p), *second = peer_connect(&p);
    peer_connect(&p);
    cr_expect_eq(teststream_sent(p.s), 0);
    peer_forget(&p);
    cr_expect_eq(nbd_server_connections(p.server), 2);
    p.s = first;
    teststream_end(first);
    peer_run(&p);
    peer_forget(&p);
    p.s = second;
    peer_go(&p, "disk", false);
    p.s = NULL;
    struct teststream *third = peer_connect(&p);
    cr_expect_gt(teststream_sent(third), 0u);
    teststream_end(third);
    peer_run(&p);
    peer_forget(&p);
    p.s = second;
    peer_stop(&p);
}

static void expect_ack(struct peer *p, uint32_t option)
{
    uint8_t data[PEER_DATA_MAX];
    peer_option(p, option, NULL, 0);
    cr_expect_eq(peer_option_reply(p, option, NBD_REP_ACK, data), 0u);
}

Test(nbd_handshake, extended_headers_outdo_structured_replies_whichever_was_asked_first)
{
    struct peer p = start_at_options(&plain);
    expect_ack(&p, NBD_OPT_STRUCTURED_REPLY);
    expect_ack(&p, NBD_OPT_EXTENDED_HEADERS);
    peer_option(&p, NBD_OPT_STRUCTURED_REPLY, NULL, 0);
    expect_refused(&p, NBD_OPT_STRUCTURED_REPLY, NBD_REP_ERR_EXT_HEADER_REQD);
    expect_ack(&p, NBD_OPT_EXTENDED_HEADERS);
    uint8_t data[PEER_DATA_MAX];
    peer_info(&p, NBD_OPT_GO, "disk", 4, NULL, 0);
    peer_option_reply(&p, NBD_OPT_GO, NBD_REP_INFO, data);
    cr_expect(get_be16(data + 10) & NBD_FLAG_SEND_DF);
    peer_option_reply(&p, NBD_OPT_GO, NBD_REP_ACK, data);
    p.mode = NBD_EXTENDED;
    peer_ask(&p, 0, NBD_CMD_FLUSH, 0, 0, 0);
    peer_stop(&p);
}

Test(nbd_handshake, a_refused_extended_headers_changes_nothing)
{
    struct peer p = start_at_options(&plain);
    uint8_t data[PEER_DATA_MAX];
    peer_option(&p, NBD_OPT_EXTENDED_HEADERS, "x", 1);
    expect_refused(&p, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ERR_INVALID);
    peer_info(&p, NBD_OPT_GO, "disk", 4, NULL, 0);
    peer_option_reply(&p, NBD_OPT_GO, NBD_REP_INFO, data);
    peer_option_reply(&p, NBD_OPT_GO, NBD_REP_ACK, data);
    peer_ask(&p, 0, NBD_CMD_FLUSH, 0, 0, 0);
    peer_stop(&p);
}

Test(nbd_handshake, export_name_after_extended_headers_ends_the_connection)
{
    struct peer p = start_at_options(&plain);
    expect_ack(&p, NBD_OPT_EXTENDED_HEADERS);
    peer_option(&p, NBD_OPT_EXPORT_NAME, "disk", 4);
    cr_expect_eq(teststream_sent(p.s), 0u);
    peer_forget(&p);
    peer_stop(&p);
}
