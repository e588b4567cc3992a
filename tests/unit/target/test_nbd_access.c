/* STARTTLS and who may see which export, with scripted streams: target/nbd/handshake.c, access.c, server.c. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "target/match.h"
#include "tests/unit/target/nbd_peer.h"

enum { BOTH = NBD_HANDSHAKE_FIXED_NEWSTYLE | NBD_HANDSHAKE_NO_ZEROES };

#define LIST(...)   ((const char *const[]){__VA_ARGS__}), ARRAY_LENGTH(((const char *const[]){__VA_ARGS__}))
#define CREDENTIALS ((struct stream_credentials *)&peer_start) /* opaque: any address will do */

/* A bench whose listener has this mode of TLS: "disk" is for all, "safe" over TLS only, "plain" never, "few" for
 * some. */
static struct peer start(enum nbd_tls tls)
{
    const struct nbd_rule rules[] = {
        {.name = "hosts", .clients = LIST("cn:host*", "psk:carol")},
        {.name = "here", .addresses = LIST("192.0.2.0/24"), .clients = LIST("dns:*.EXAMPLE.org"), .read_only = true},
        {.name = "neighbours", .addresses = LIST("198.51.100.7", "2001:db8::/32")}};
    struct peer p = peer_start(&(struct peer_setup){0});
    p.tls = tls;
    nbd_server_set_credentials(p.server, CREDENTIALS);
    peer_export(&p, "safe", "", false, false);
    peer_export(&p, "plain", "", false, false);
    peer_export(&p, "few", "", false, false);
    struct nbd_access_options safe = {.tls = NBD_TLS_REQUIRE}, plain = {.tls = NBD_TLS_OFF};
    struct nbd_access_options few = {.tls = NBD_TLS_ALLOW, .rules = rules, .rule_count = ARRAY_LENGTH(rules)};
    cr_assert_eq(nbd_server_set_access(p.server, "safe", &safe, 0), 0);
    cr_assert_eq(nbd_server_set_access(p.server, "plain", &plain, 0), 0);
    cr_assert_eq(nbd_server_set_access(p.server, "few", &few, 0), 0);
    return p;
}

/* From an address; past the flags. */
static void come(struct peer *p, const char *address)
{
    p->s = teststream_create(&p->t->loop, p->seed);
    text_format(p->s->stream.peer, sizeof p->s->stream.peer, "%s", address);
    nbd_conn_open(p->server, &p->s->stream, p->tls);
    peer_run(p);
    peer_greet(p, BOTH);
}

static void leave(struct peer *p)
{
    if (!p->s->closed)
        teststream_end(p->s);
    peer_run(p);
    peer_forget(p);
}

static uint32_t ask(struct peer *p, uint32_t option)
{
    uint8_t header[NBD_OPTION_REPLY_BYTES], data[PEER_DATA_MAX];
    peer_option(p, option, NULL, 0);
    cr_assert(teststream_sent(p->s) >= sizeof header);
    memcpy(header, teststream_look(p->s), sizeof header);
    peer_option_reply(p, option, get_be32(header + 12), data);
    return get_be32(header + 12);
}

/* The type of the last reply to INFO or GO. */
static uint32_t inquire(struct peer *p, uint32_t option, const char *name)
{
    uint8_t data[PEER_DATA_MAX];
    peer_info(p, option, name, (uint32_t)strlen(name), NULL, 0);
    uint32_t type = get_be32(teststream_look(p->s) + 12);
    peer_option_reply(p, option, type, data);
    if (type == NBD_REP_INFO)
        peer_option_reply(p, option, type = NBD_REP_ACK, data);
    return type;
}

static void secure(struct peer *p, const char *const *names, unsigned count)
{
    cr_assert_eq(ask(p, NBD_OPT_STARTTLS), NBD_REP_ACK);
    cr_assert_eq(p->s->credentials, CREDENTIALS);
    teststream_secure(p->s, names, count);
    peer_run(p);
}

/* What LIST tells, with a space behind each name. */
static const char *listed(struct peer *p, char out[200])
{
    uint8_t data[PEER_DATA_MAX];
    peer_option(p, NBD_OPT_LIST, NULL, 0);
    out[0] = '\0';
    while (get_be32(teststream_look(p->s) + 12) == NBD_REP_SERVER) {
        peer_option_reply(p, NBD_OPT_LIST, NBD_REP_SERVER, data);
        text_format(out + strlen(out), 200 - strlen(out), "%.*s ", (int)get_be32(data), (char *)data + 4);
    }
    peer_option_reply(p, NBD_OPT_LIST, NBD_REP_ACK, data);
    return out;
}

/* --- STARTTLS --- */

Test(nbd_access, starttls_is_answered_by_the_mode_of_the_listener)
{
    static const struct {
        enum nbd_tls tls;
        bool has_credentials;
        uint32_t answer;
    } cases[] = {{NBD_TLS_OFF, true, NBD_REP_ERR_POLICY},      {NBD_TLS_ALLOW, true, NBD_REP_ACK},
                 {NBD_TLS_REQUIRE, true, NBD_REP_ACK},         {NBD_TLS_ALLOW, false, NBD_REP_ERR_POLICY},
                 {NBD_TLS_REQUIRE, false, NBD_REP_ERR_POLICY}, {NBD_TLS_OFF, false, NBD_REP_ERR_POLICY}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct peer p = start(cases[i].tls);
        if (!cases[i].has_credentials)
            nbd_server_set_credentials(p.server, NULL);
        come(&p, "192.0.2.1:5");
        cr_expect_eq(ask(&p, NBD_OPT_STARTTLS), cases[i].answer, "case %u", i);
        if (cases[i].answer == NBD_REP_ACK)
            teststream_insecure(p.s, "no reason");
        else
            cr_expect_eq(ask(&p, NBD_OPT_STARTTLS), cases[i].answer, "the next option parses");
        leave(&p);
        peer_stop(&p);
    }
}

Test(nbd_access, starttls_with_data_or_twice_is_invalid)
{
    uint8_t data[PEER_DATA_MAX];
    struct peer p = start(NBD_TLS_REQUIRE);
    come(&p, "192.0.2.1:5");
    peer_option(&p, NBD_OPT_STARTTLS, "x", 1);
    peer_option_reply(&p, NBD_OPT_STARTTLS, NBD_REP_ERR_INVALID, data);
    secure(&p, NULL, 0);
    cr_expect_eq(ask(&p, NBD_OPT_STARTTLS), NBD_REP_ERR_INVALID);
    cr_expect_eq(inquire(&p, NBD_OPT_GO, "disk"), NBD_REP_ACK);
    peer_ask(&p, 0, NBD_CMD_FLUSH, 0, 0, 0);
    leave(&p);
    peer_stop(&p);
}

Test(nbd_access, before_forced_tls_all_but_starttls_and_abort_needs_it)
{
    static const uint32_t options[] = {0, 3, 4, 6, 7, 8, 9, 10, 11, 99};
    uint8_t data[PEER_DATA_MAX];
    struct peer p = start(NBD_TLS_REQUIRE);
    come(&p, "192.0.2.1:5");
    for (unsigned i = 0; i < ARRAY_LENGTH(options); i++) {
        cr_expect_eq(ask(&p, options[i]), NBD_REP_ERR_TLS_REQD, "option %u", options[i]);
        peer_option(&p, options[i], "some data", 9);
        peer_option_reply(&p, options[i], NBD_REP_ERR_TLS_REQD, data);
    }
    cr_expect_eq(ask(&p, NBD_OPT_ABORT), NBD_REP_ACK);
    peer_forget(&p);
    come(&p, "192.0.2.1:5");
    peer_option(&p, NBD_OPT_EXPORT_NAME, "disk", 4);
    cr_expect_eq(teststream_sent(p.s), 0u);
    peer_forget(&p);
    peer_stop(&p);
}

Test(nbd_access, what_was_agreed_upon_in_clear_is_forgotten)
{
    static const uint32_t options[] = {NBD_OPT_STRUCTURED_REPLY, NBD_OPT_EXTENDED_HEADERS};
    uint8_t data[PEER_DATA_MAX];
    for (unsigned i = 0; i < ARRAY_LENGTH(options); i++) {
        struct peer p = start(NBD_TLS_ALLOW);
        come(&p, "192.0.2.1:5");
        cr_expect_eq(ask(&p, options[i]), NBD_REP_ACK);
        secure(&p, NULL, 0);
        peer_info(&p, NBD_OPT_GO, "disk", 4, NULL, 0);
        peer_option_reply(&p, NBD_OPT_GO, NBD_REP_INFO, data);
        cr_expect_not(get_be16(data + 10) & NBD_FLAG_SEND_DF);
        peer_option_reply(&p, NBD_OPT_GO, NBD_REP_ACK, data);
        peer_request(&p, 0, NBD_CMD_READ, 9, 0, 512);
        peer_run(&p);
        peer_expect_data(&p, 9, 0, 512);
        leave(&p);
        peer_stop(&p);
    }
}

/* CVE-2021-3716: whoever sits in the middle could put options there. */
Test(nbd_access, bytes_in_clear_behind_starttls_end_the_connection)
{
    static const char behind[] = "IHAVEOPT\0\0\0\5\0\0\0\0IHAVEOPT\0\0\0\10\0\0\0\0";
    struct peer p = start(NBD_TLS_REQUIRE);
    for (size_t len = 17; len < sizeof behind; len++) {
        come(&p, "192.0.2.1:5");
        teststream_feed(p.s, behind, len);
        peer_run(&p);
        cr_expect_eq(teststream_sent(p.s), 0u, "no answer");
        cr_expect_null(p.s->credentials, "no handshake");
        peer_forget(&p);
    }
    peer_stop(&p);
}

Test(nbd_access, a_handshake_that_fails_or_does_not_end_ends_the_connection)
{
    struct peer p = start(NBD_TLS_REQUIRE);
    come(&p, "192.0.2.1:5");
    cr_assert_eq(ask(&p, NBD_OPT_STARTTLS), NBD_REP_ACK);
    teststream_insecure(p.s, "it is somebody else");
    peer_run(&p);
    peer_forget(&p);
    uint64_t before = p.t->loop.now_ns;
    come(&p, "192.0.2.1:5");
    cr_assert_eq(ask(&p, NBD_OPT_STARTTLS), NBD_REP_ACK);
    testloop_run(p.t);
    cr_expect(p.s->closed);
    cr_expect_eq(p.t->loop.now_ns - before, 10ull * 1000000000, "in the time of the negotiation");
    peer_forget(&p);
    come(&p, "192.0.2.1:5");
    cr_assert_eq(ask(&p, NBD_OPT_STARTTLS), NBD_REP_ACK);
    peer_stop(&p); /* a server that stops does not wait for it */
}

Test(nbd_access, credentials_that_are_taken_away_before_the_handshake_end_the_connection)
{
    struct peer p = start(NBD_TLS_ALLOW);
    come(&p, "192.0.2.1:5");
    p.s->send_window = 0; /* the answer is stuck */
    peer_option(&p, NBD_OPT_STARTTLS, NULL, 0);
    peer_run(&p);
    nbd_server_set_credentials(p.server, NULL);
    teststream_open_window(p.s, SIZE_MAX);
    peer_run(&p);
    cr_expect(p.s->closed);
    cr_expect_not(p.s->secured, "no handshake");
    teststream_take(p.s, NULL, teststream_sent(p.s));
    peer_forget(&p);
    peer_stop(&p);
}

Test(nbd_access, without_fixed_newstyle_there_is_no_tls)
{
    struct peer p = start(NBD_TLS_ALLOW);
    peer_connect(&p);
    peer_greet(&p, NBD_HANDSHAKE_NO_ZEROES);
    peer_option(&p, NBD_OPT_STARTTLS, NULL, 0);
    cr_expect_eq(teststream_sent(p.s), 0u);
    peer_forget(&p);
    peer_stop(&p);
}

/* --- who sees what --- */

enum { ACK = NBD_REP_ACK };
#define UNKNOWN NBD_REP_ERR_UNKNOWN
#define TLS     NBD_REP_ERR_TLS_REQD

static const struct {
    const char *what, *address;
    enum nbd_tls tls;
    const char *proved; /* NULL: no TLS; "": nothing */
    const char *listed;
    uint32_t disk, safe, plain, few;
    bool few_read_only;
} views[] = {
    {"no TLS here", "192.0.2.1:5", NBD_TLS_OFF, NULL, "disk plain ", ACK, UNKNOWN, ACK, UNKNOWN, false},
    {"no TLS yet", "192.0.2.1:5", NBD_TLS_ALLOW, NULL, "disk plain ", ACK, TLS, ACK, TLS, false},
    {"no TLS, a neighbour", "198.51.100.7:5", NBD_TLS_ALLOW, NULL, "disk plain few ", ACK, TLS, ACK, ACK, false},
    {"a neighbour of IPv6", "[2001:db8::5]:5", NBD_TLS_OFF, NULL, "disk plain few ", ACK, UNKNOWN, ACK, ACK, false},
    {"nothing proved", "192.0.2.1:5", NBD_TLS_REQUIRE, "", "disk safe ", ACK, ACK, UNKNOWN, UNKNOWN, false},
    {"a host", "203.0.113.1:5", NBD_TLS_REQUIRE, "cn:host7", "disk safe few ", ACK, ACK, UNKNOWN, ACK, false},
    {"a shared key", "unix:", NBD_TLS_ALLOW, "psk:carol", "disk safe few ", ACK, ACK, UNKNOWN, ACK, false},
    {"another key", "unix:", NBD_TLS_ALLOW, "psk:Carol", "disk safe ", ACK, ACK, UNKNOWN, UNKNOWN, false},
    {"a key called as a host", "unix:", NBD_TLS_ALLOW, "psk:host7", "disk safe ", ACK, ACK, UNKNOWN, UNKNOWN, false},
    {"a reader", "192.0.2.9:5", NBD_TLS_REQUIRE, "dns:a.Example.ORG", "disk safe few ", ACK, ACK, UNKNOWN, ACK, true},
    {"a reader elsewhere", "203.0.113.1:5", NBD_TLS_REQUIRE, "dns:a.example.org", "disk safe ", ACK, ACK, UNKNOWN,
     UNKNOWN, false},
};

Test(nbd_access, exports_exist_for_those_who_may_use_them)
{
    char list[200];
    uint8_t data[PEER_DATA_MAX];
    for (unsigned i = 0; i < ARRAY_LENGTH(views); i++) {
        struct peer p = start(views[i].tls);
        come(&p, views[i].address);
        if (views[i].proved != NULL)
            secure(&p, &views[i].proved, *views[i].proved != '\0');
        cr_expect_str_eq(listed(&p, list), views[i].listed, "%s: %s", views[i].what, list);
        cr_expect_eq(inquire(&p, NBD_OPT_INFO, "disk"), views[i].disk, "%s", views[i].what);
        cr_expect_eq(inquire(&p, NBD_OPT_INFO, "safe"), views[i].safe, "%s", views[i].what);
        cr_expect_eq(inquire(&p, NBD_OPT_INFO, "plain"), views[i].plain, "%s", views[i].what);
        cr_expect_eq(inquire(&p, NBD_OPT_INFO, "few"), views[i].few, "%s", views[i].what);
        if (views[i].few != ACK) {
            peer_option(&p, NBD_OPT_EXPORT_NAME, "few", 3);
            cr_expect_eq(teststream_sent(p.s), 0u);
            peer_forget(&p);
        } else {
            peer_info(&p, NBD_OPT_GO, "few", 3, NULL, 0);
            peer_option_reply(&p, NBD_OPT_GO, NBD_REP_INFO, data);
            cr_expect_eq(!!(get_be16(data + 10) & NBD_FLAG_READ_ONLY), views[i].few_read_only, "%s", views[i].what);
            peer_option_reply(&p, NBD_OPT_GO, NBD_REP_ACK, data);
            peer_ask(&p, 0, NBD_CMD_WRITE_ZEROES, 0, 512, views[i].few_read_only ? NBD_EPERM : 0);
            leave(&p);
        }
        peer_stop(&p);
    }
}

/* --- new lists --- */

Test(nbd_access, a_new_list_ends_those_for_whom_it_says_something_else)
{
    const struct nbd_rule rules[] = {{.name = "h", .clients = LIST("cn:host1")},
                                     {.name = "r", .clients = LIST("cn:host2"), .read_only = true}};
    struct nbd_access_options few = {.tls = NBD_TLS_ALLOW, .rules = rules, .rule_count = 2};
    static const char *const names[] = {"cn:host1", "cn:host2", "cn:host3"};
    struct teststream *streams[ARRAY_LENGTH(names)];
    struct peer p = start(NBD_TLS_REQUIRE);
    for (unsigned i = 0; i < ARRAY_LENGTH(names); i++) {
        come(&p, "203.0.113.1:5");
        secure(&p, &names[i], 1);
        cr_assert_eq(inquire(&p, NBD_OPT_GO, "few"), NBD_REP_ACK);
        streams[i] = p.s;
    }
    cr_assert_eq(nbd_server_set_access(p.server, "few", &few, 1000), 0);
    peer_run(&p);
    for (unsigned i = 0; i < ARRAY_LENGTH(names); i++) {
        cr_expect_eq(streams[i]->closed, i > 0, "%s", names[i]);
        p.s = streams[i];
        leave(&p);
    }
    come(&p, "203.0.113.1:5");
    secure(&p, &names[1], 1);
    cr_expect_eq(inquire(&p, NBD_OPT_GO, "few"), NBD_REP_ACK);
    peer_ask(&p, 0, NBD_CMD_WRITE_ZEROES, 0, 512, NBD_EPERM);
    cr_assert_eq(nbd_server_set_access(p.server, "few", &few, 1000), 0);
    peer_run(&p);
    cr_expect_not(p.s->closed, "the same list again");
    leave(&p);
    peer_stop(&p);
}

Test(nbd_access, an_export_is_added_with_its_list_or_not_at_all)
{
    const struct nbd_rule rules[] = {{.name = "a", .addresses = LIST("192.0.2.0/33")},
                                     {.name = "b", .addresses = LIST("192.0.2.0/24")}};
    struct nbd_access_options access = {.tls = NBD_TLS_ALLOW, .rules = &rules[0], .rule_count = 1};
    struct peer p = start(NBD_TLS_OFF);
    struct nbd_export_options options = {.name = "listed", .dev = &p.disk->dev, .access = &access};
    cr_expect_eq(nbd_server_add_export(p.server, &options), -EINVAL);
    come(&p, "192.0.2.1:5");
    cr_expect_eq(inquire(&p, NBD_OPT_INFO, "listed"), NBD_REP_ERR_UNKNOWN);
    access.rules = &rules[1];
    cr_expect_eq(nbd_server_add_export(p.server, &options), 0);
    cr_expect_eq(inquire(&p, NBD_OPT_INFO, "listed"), NBD_REP_ACK);
    leave(&p);
    come(&p, "198.51.100.1:5");
    cr_expect_eq(inquire(&p, NBD_OPT_INFO, "listed"), NBD_REP_ERR_UNKNOWN);
    leave(&p);
    peer_stop(&p);
}

struct flag {
    struct task task;
    bool set;
};

static void set_flag(struct task *task)
{
    container_of(task, struct flag, task)->set = true;
}

/* Its connections end, those of others do not; the name is free, for another one. */
Test(nbd_access, an_export_that_is_removed_is_lent_no_device_when_its_connections_are_gone)
{
    for (unsigned two_loops = 0; two_loops < 2; two_loops++) {
        struct flag gone = {.task.run = set_flag}, none = {.task.run = set_flag};
        struct peer p = peer_start(&(struct peer_setup){.two_loops = two_loops});
        peer_export(&p, "second", "", false, false);
        come(&p, "192.0.2.1:5");
        cr_assert_eq(inquire(&p, NBD_OPT_GO, "disk"), NBD_REP_ACK);
        struct teststream *ends = p.s;
        come(&p, "192.0.2.1:6");
        cr_assert_eq(inquire(&p, NBD_OPT_GO, "second"), NBD_REP_ACK);
        struct teststream *stays = p.s;
        come(&p, "192.0.2.1:7"); /* still negotiates */
        cr_assert_eq(inquire(&p, NBD_OPT_INFO, "disk"), NBD_REP_ACK);
        cr_expect_eq(nbd_server_remove_export(p.server, "disk", 1000, &gone.task), 0);
        cr_expect_eq(nbd_server_remove_export(p.server, "disk", 1000, &none.task), -ENOENT);
        cr_expect_not(gone.set);
        peer_run(&p);
        cr_expect(ends->closed && !stays->closed && gone.set, "%u: %d %d %d", two_loops, ends->closed, stays->closed,
                  gone.set);
        cr_expect_eq(inquire(&p, NBD_OPT_GO, "disk"), NBD_REP_ERR_UNKNOWN);
        peer_export(&p, "disk", "", false, false);
        cr_expect_eq(inquire(&p, NBD_OPT_GO, "disk"), NBD_REP_ACK);
        leave(&p);
        p.s = ends;
        leave(&p);
        p.s = stays;
        leave(&p);
        peer_stop(&p);
    }
}

Test(nbd_access, lists_that_are_none_change_nothing)
{
    const struct nbd_rule rules[] = {{.name = "a", .clients = LIST("alice")},
                                     {.name = "b", .addresses = LIST("192.0.2.0/33")}};
    struct peer p = start(NBD_TLS_OFF);
    for (unsigned i = 0; i < ARRAY_LENGTH(rules); i++) {
        struct nbd_access_options options = {.tls = NBD_TLS_ALLOW, .rules = &rules[i], .rule_count = 1};
        cr_expect_eq(nbd_server_set_access(p.server, "disk", &options, 0), -EINVAL);
    }
    cr_expect_eq(nbd_server_set_access(p.server, "none", &(struct nbd_access_options){0}, 0), -ENOENT);
    come(&p, "192.0.2.1:5");
    cr_expect_eq(inquire(&p, NBD_OPT_INFO, "disk"), NBD_REP_ACK);
    leave(&p);
    peer_stop(&p);
}

Test(nbd_access, patterns_of_clients_have_a_kind)
{
    static const struct {
        const char *pattern;
        bool valid;
    } cases[] = {{"*", true},         {"cn:a", true},  {"cn:*", true},   {"dns:*.example.org", true},
                 {"email:a@b", true}, {"uri:x", true}, {"ip:::1", true}, {"psk:a", true},
                 {"", false},         {"a", false},    {"cn:", false},   {"cn", false},
                 {"CN:a", false},     {"*:a", false},  {"**", false}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++)
        cr_expect_eq(nbd_client_pattern_valid(cases[i].pattern), cases[i].valid, "%s", cases[i].pattern);
}

/* --- limits --- */

Test(nbd_access, negotiations_of_one_address_leave_room_for_others)
{
    enum { PER_HOST = 128 }; /* the default */
    struct teststream *streams[PER_HOST];
    struct peer p = start(NBD_TLS_OFF);
    for (unsigned i = 0; i < PER_HOST; i++) {
        come(&p, "192.0.2.1:5");
        streams[i] = p.s;
    }
    p.s = teststream_create(&p.t->loop, 0);
    text_format(p.s->stream.peer, sizeof p.s->stream.peer, "192.0.2.1:900");
    nbd_conn_open(p.server, &p.s->stream, NBD_TLS_OFF);
    peer_run(&p);
    cr_expect(p.s->closed, "one more of that address");
    peer_forget(&p);
    come(&p, "192.0.2.2:5");
    cr_expect_eq(inquire(&p, NBD_OPT_GO, "disk"), NBD_REP_ACK, "another address");
    leave(&p);
    p.s = streams[0];
    cr_expect_eq(inquire(&p, NBD_OPT_GO, "disk"), NBD_REP_ACK);
    leave(&p);
    come(&p, "192.0.2.1:5");
    leave(&p);
    for (unsigned i = 1; i < PER_HOST; i++) {
        p.s = streams[i];
        leave(&p);
    }
    peer_stop(&p);
}

Test(nbd_access, exports_and_the_server_take_so_many_connections)
{
    struct peer p = peer_start(&(struct peer_setup){.connections = 3});
    struct nbd_access_options one = {.tls = NBD_TLS_ALLOW, .connections = 1};
    struct teststream *streams[3];
    peer_export(&p, "one", "", false, false);
    cr_assert_eq(nbd_server_set_access(p.server, "one", &one, 0), 0);
    come(&p, "192.0.2.1:5");
    cr_expect_eq(inquire(&p, NBD_OPT_GO, "one"), NBD_REP_ACK);
    streams[0] = p.s;
    come(&p, "192.0.2.1:5");
    cr_expect_eq(inquire(&p, NBD_OPT_GO, "one"), NBD_REP_ERR_POLICY, "the export is full");
    cr_expect_eq(inquire(&p, NBD_OPT_INFO, "one"), NBD_REP_ACK, "but can be looked at");
    cr_expect_eq(inquire(&p, NBD_OPT_GO, "disk"), NBD_REP_ACK);
    streams[1] = p.s;
    come(&p, "192.0.2.1:5");
    cr_expect_eq(inquire(&p, NBD_OPT_GO, "disk"), NBD_REP_ACK);
    streams[2] = p.s;
    come(&p, "192.0.2.1:5");
    cr_expect_eq(inquire(&p, NBD_OPT_GO, "disk"), NBD_REP_ERR_POLICY, "the server is full");
    peer_option(&p, NBD_OPT_EXPORT_NAME, "disk", 4);
    cr_expect_eq(teststream_sent(p.s), 0u);
    peer_forget(&p);
    for (unsigned i = 0; i < ARRAY_LENGTH(streams); i++) {
        p.s = streams[i];
        leave(&p);
    }
    come(&p, "192.0.2.1:5");
    cr_expect_eq(inquire(&p, NBD_OPT_GO, "one"), NBD_REP_ACK, "there is room again");
    leave(&p);
    peer_stop(&p);
}

/* --- what people are told --- */

static char last_line[300];

static void take_line(enum log_level level, const char *line)
{
    (void)level;
    text_format(last_line, sizeof last_line, "%s", line);
}

Test(nbd_access, refusals_are_told_with_address_and_name)
{
    struct peer p = start(NBD_TLS_REQUIRE);
    const char *name = "psk:dave\nerror: forged";
    log_setup(take_line, LOG_LEVEL_NOTICE);
    come(&p, "192.0.2.1:5");
    secure(&p, &name, 1);
    cr_expect_eq(inquire(&p, NBD_OPT_INFO, "few"), NBD_REP_ERR_UNKNOWN);
    log_setup(NULL, LOG_LEVEL_ERROR);
    cr_expect_str_eq(last_line,
                     "NBD: refused: psk:dave?error:?forged at 192.0.2.1:5, to few: it may not use it from here, "
                     "as what it has proved to be");
    struct nbd_conn_info info;
    cr_expect_eq(nbd_server_info(p.server, &info, 1), 1u);
    cr_expect_str_eq(info.tls, "TLS of a test");
    cr_expect_str_eq(info.client, "psk:dave?error:?forged");
    leave(&p);
    peer_stop(&p);
}
