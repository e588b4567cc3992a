/* Metadata contexts and what they tell: options, block status, and holes in the replies to reads. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "target/nbd/contexts.h"
#include "tests/unit/target/nbd_peer.h"

static const struct peer_setup plain;

enum { LIST_META = NBD_OPT_LIST_META_CONTEXT, SET_META = NBD_OPT_SET_META_CONTEXT, HOLE = NBD_STATE_HOLE_ZERO };

/* --- the parsers --- */

Test(nbd_contexts, requests_are_whole_or_invalid)
{
    static const struct {
        const char *what;
        const char *bytes;
        uint32_t len, error;
    } cases[] = {
        {"no query", "\0\0\0\0\0\0\0\0", 8, 0},
        {"one", "\0\0\0\1d\0\0\0\1\0\0\0\5base:", 18, 0},
        {"an unknown namespace", "\0\0\0\0\0\0\0\1\0\0\0\3x-:", 15, 0},
        {"too short", "\0\0\0\0\0\0\0", 7, NBD_REP_ERR_INVALID},
        {"a name of 4 GiB - 1", "\xff\xff\xff\xff\0\0\0\0", 8, NBD_REP_ERR_INVALID},
        {"a name of 4 GiB - 8", "\xff\xff\xff\xf8\0\0\0\0", 8, NBD_REP_ERR_INVALID},
        {"a NUL in the name", "\0\0\0\1\0\0\0\0\0", 9, NBD_REP_ERR_INVALID},
        {"a query missing", "\0\0\0\0\0\0\0\2\0\0\0\3x-:", 15, NBD_REP_ERR_INVALID},
        {"4 G queries", "\0\0\0\0\xff\xff\xff\xff\0\0\0\3x-:", 15, NBD_REP_ERR_INVALID},
        {"one too many", "\0\0\0\0\0\0\0\0\0\0\0\3x-:", 15, NBD_REP_ERR_INVALID},
        {"a query longer than the data", "\0\0\0\0\0\0\0\1\0\0\0\4x-:", 15, NBD_REP_ERR_INVALID},
        {"a query of 4 GiB - 1", "\0\0\0\0\0\0\0\1\xff\xff\xff\xffx-:", 15, NBD_REP_ERR_INVALID},
        {"bytes left over", "\0\0\0\0\0\0\0\1\0\0\0\3x-:y", 16, NBD_REP_ERR_INVALID},
        {"an option inside the option", "\0\0\0\0\0\0\0\0IHAVEOPT\0\0\0\3\0\0\0\0", 24, NBD_REP_ERR_INVALID},
        {"no namespace", "\0\0\0\0\0\0\0\1\0\0\0\3abc", 15, NBD_REP_ERR_INVALID},
        {"an empty namespace", "\0\0\0\0\0\0\0\1\0\0\0\3:ab", 15, NBD_REP_ERR_INVALID},
        {"an empty query", "\0\0\0\0\0\0\0\1\0\0\0\0", 12, NBD_REP_ERR_INVALID},
        {"a blank in the namespace", "\0\0\0\0\0\0\0\1\0\0\0\3a :", 15, NBD_REP_ERR_INVALID},
        {"a NUL in the leaf", "\0\0\0\0\0\0\0\1\0\0\0\4a:\0b", 16, NBD_REP_ERR_INVALID},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct nbd_meta_request request;
        uint32_t error = nbd_parse_meta_request((const uint8_t *)cases[i].bytes, cases[i].len, &request);
        cr_expect_eq(error, cases[i].error, "%s: %x", cases[i].what, error);
    }
}

Test(nbd_contexts, a_query_is_no_longer_than_a_string_may_be)
{
    static uint8_t data[8 + 4 + NBD_NAME_MAX + 1];
    struct nbd_meta_request request;
    memset(data + 12, 'q', NBD_NAME_MAX + 1);
    data[14] = ':';
    for (uint32_t more = 0; more < 2; more++) {
        put_be32(data + 4, 1);
        put_be32(data + 8, NBD_NAME_MAX + more);
        cr_expect_eq(nbd_parse_meta_request(data, 12 + NBD_NAME_MAX + more, &request), more ? NBD_REP_ERR_INVALID : 0);
    }
}

Test(nbd_contexts, filters_name_what_was_selected_and_once)
{
    static const struct {
        const char *bytes;
        uint32_t len, selected;
        bool good;
    } cases[] = {
        {"\0\0\0\0\0\0\2\0\0\0\0\1", 12, 1, true},          {"\0\0\0\0\0\0\2\0\0\0\0\1", 12, 0, false},
        {"\0\0\0\0\0\0\2\0\0\0\0\2", 12, 1, false},         {"\0\0\0\0\0\0\2\0\0\0\0\0", 12, 1, false},
        {"\0\0\0\0\0\0\2\0\0\0\0\1\0\0\0\1", 16, 1, false}, {"\0\0\0\0\0\0\2\0", 8, 1, false},
        {"\0\0\0\0\0\0\2\0\0\0\0", 11, 1, false},           {"", 0, 1, false},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct nbd_status_filter filter;
        bool good = nbd_parse_status_filter((const uint8_t *)cases[i].bytes, cases[i].len, cases[i].selected, &filter);
        cr_expect_eq(good, cases[i].good, "case %zu", i);
        cr_expect(!good || (filter.len == 512 && filter.contexts == NBD_CONTEXT_ALLOCATION));
    }
}

/* --- the options --- */

static struct peer start_at_options(enum nbd_mode mode)
{
    uint8_t data[PEER_DATA_MAX];
    struct peer p = peer_start(&plain);
    peer_export(&p, "other", NULL, false, false);
    peer_connect(&p);
    peer_greet(&p, 3);
    uint32_t option = mode == NBD_EXTENDED ? NBD_OPT_EXTENDED_HEADERS : NBD_OPT_STRUCTURED_REPLY;
    if (mode != NBD_SIMPLE) {
        peer_option(&p, option, NULL, 0);
        peer_option_reply(&p, option, NBD_REP_ACK, data);
    }
    return p;
}

/* Ask, and take the answer: is base:allocation in it? */
static bool tells_allocation(struct peer *p, uint32_t option, const char *name, const char *const *queries,
                             uint32_t count)
{
    uint8_t data[PEER_DATA_MAX];
    peer_meta(p, option, name, queries, count);
    bool is_there = get_be32(teststream_look(p->s) + 12) == NBD_REP_META_CONTEXT;
    if (is_there) {
        cr_expect_eq(peer_option_reply(p, option, NBD_REP_META_CONTEXT, data), 4 + 15);
        cr_expect_eq(get_be32(data) == 0, option == LIST_META, "an id is for SET only");
        cr_expect_arr_eq(data + 4, "base:allocation", 15);
    }
    cr_expect_eq(peer_option_reply(p, option, NBD_REP_ACK, data), 0);
    cr_expect_eq(teststream_sent(p->s), 0);
    return is_there;
}

Test(nbd_contexts, queries_select_what_they_name)
{
    static const struct {
        const char *queries[3];
        uint32_t count;
        bool listed, selected;
    } cases[] = {
        {{"base:allocation"}, 1, true, true},
        {{"base:"}, 1, true, false},
        {{NULL}, 0, true, false},
        {{"base:nothing"}, 1, false, false},
        {{"qemu:"}, 1, false, false},
        {{"x-corbel:dirty"}, 1, false, false},
        {{"base:allocation", "base:allocation", "base:"}, 3, true, true},
        {{"qemu:dirty-bitmap:a", "base:allocation"}, 2, true, true},
        {{"base:allocations"}, 1, false, false},
        {{"base:alloc"}, 1, false, false},
        {{"BASE:allocation"}, 1, false, false},
    };
    for (enum nbd_mode mode = NBD_STRUCTURED; mode <= NBD_EXTENDED; mode++) {
        struct peer p = start_at_options(mode);
        for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
            cr_expect_eq(tells_allocation(&p, LIST_META, "disk", cases[i].queries, cases[i].count), cases[i].listed,
                         "case %zu", i);
            cr_expect_eq(tells_allocation(&p, SET_META, "disk", cases[i].queries, cases[i].count), cases[i].selected,
                         "case %zu", i);
        }
        peer_stop(&p);
    }
}

static const char *const allocation = "base:allocation", *const nothing = "x-none:";

static void expect_refused(struct peer *p, uint32_t option, uint32_t type)
{
    uint8_t data[PEER_DATA_MAX];
    cr_expect_gt(peer_option_reply(p, option, type, data), 0u, "a text for people");
}

Test(nbd_contexts, set_needs_chunks_and_both_need_an_export)
{
    struct peer p = start_at_options(NBD_SIMPLE);
    peer_meta(&p, SET_META, "disk", &allocation, 1);
    expect_refused(&p, SET_META, NBD_REP_ERR_INVALID);
    cr_expect(tells_allocation(&p, LIST_META, "disk", NULL, 0), "to look is allowed");
    peer_stop(&p);
    p = start_at_options(NBD_STRUCTURED);
    static const uint32_t options[] = {LIST_META, SET_META};
    for (size_t i = 0; i < ARRAY_LENGTH(options); i++) {
        peer_meta(&p, options[i], "nothere", &allocation, 1);
        expect_refused(&p, options[i], NBD_REP_ERR_UNKNOWN);
        peer_option(&p, options[i], "\0\0\0\0\0\0\0\1", 8);
        expect_refused(&p, options[i], NBD_REP_ERR_INVALID);
    }
    peer_stop(&p);
}

/* What SET did last is what counts, and it counts for one export. */
Test(nbd_contexts, the_last_set_counts_for_its_export_even_if_it_failed)
{
    static const struct {
        const char *what, *first, *second, *go;
        const char *query;
        bool serves;
    } cases[] = {
        {"set once", "disk", NULL, "disk", NULL, true},
        {"of another export", "other", NULL, "disk", NULL, false},
        {"twice", "other", "disk", "disk", "base:allocation", true},
        {"the other one last", "disk", "other", "disk", "base:allocation", false},
        {"nothing selected last", "disk", "disk", "disk", "x-none:", false},
        {"the last one failed: no export", "disk", "nothere", "disk", "base:allocation", false},
        {"the last one failed: no query", "disk", "disk", "disk", "nonsense", false},
        {"never", NULL, NULL, "disk", NULL, false},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct peer p = start_at_options(NBD_STRUCTURED);
        uint8_t data[PEER_DATA_MAX];
        if (cases[i].first != NULL)
            tells_allocation(&p, SET_META, cases[i].first, &allocation, 1);
        if (cases[i].second != NULL)
            peer_meta(&p, SET_META, cases[i].second, &cases[i].query, 1);
        teststream_take(p.s, NULL, teststream_sent(p.s));
        peer_info(&p, NBD_OPT_GO, cases[i].go, 4, NULL, 0);
        peer_option_reply(&p, NBD_OPT_GO, NBD_REP_INFO, data);
        peer_option_reply(&p, NBD_OPT_GO, NBD_REP_ACK, data);
        p.mode = NBD_STRUCTURED;
        peer_request(&p, 0, NBD_CMD_BLOCK_STATUS, 1, 0, 4096);
        peer_run(&p);
        struct peer_reply reply = peer_take(&p, NULL, 0);
        cr_expect_eq(reply.error, cases[i].serves ? 0 : NBD_EINVAL, "%s", cases[i].what);
        peer_stop(&p);
    }
}

Test(nbd_contexts, a_set_that_is_too_long_forgets_what_was_set)
{
    static uint8_t noise[NBD_OPTION_DATA_MAX + 1];
    struct peer p = start_at_options(NBD_STRUCTURED);
    uint8_t data[PEER_DATA_MAX];
    cr_expect(tells_allocation(&p, SET_META, "disk", &allocation, 1));
    peer_option(&p, SET_META, noise, sizeof noise);
    expect_refused(&p, SET_META, NBD_REP_ERR_TOO_BIG);
    cr_expect(tells_allocation(&p, LIST_META, "disk", &allocation, 1), "LIST changes nothing");
    cr_expect_not(tells_allocation(&p, LIST_META, "disk", &nothing, 1));
    peer_option(&p, NBD_OPT_EXPORT_NAME, "disk", 4);
    cr_assert(teststream_take(p.s, data, NBD_OLD_REPLY_BYTES));
    p.mode = NBD_STRUCTURED;
    peer_ask(&p, 0, NBD_CMD_BLOCK_STATUS, 0, 4096, NBD_EINVAL);
    peer_stop(&p);
}

/* --- block status --- */

static struct peer status_serving(const struct peer_setup *setup, enum nbd_mode mode)
{
    struct peer p = peer_start(setup);
    peer_connect(&p);
    peer_go_with_status(&p, "disk", mode);
    return p;
}

Test(nbd_status, extents_cover_what_was_asked_and_no_more)
{
    static const struct {
        uint16_t flags;
        uint64_t off, len;
        unsigned count;
        uint64_t lengths[3], states[3];
    } cases[] = {
        {0, 0, PEER_DISK_BYTES, 3, {1 << 20, 2 << 20, 1 << 20}, {0, HOLE, 0}},
        {NBD_CMD_REQ_ONE, 0, PEER_DISK_BYTES, 1, {1 << 20}, {0}},
        {NBD_CMD_REQ_ONE | NBD_CMD_FUA, 2 << 20, 512, 1, {512}, {HOLE}},
        {0, (1 << 20) - 512, 1024, 2, {512, 512}, {0, HOLE}},
        {0, (3 << 20) - 7, 9, 2, {7, 2}, {HOLE, 0}},
        {0, 5, 1, 1, {1}, {0}},
        {0, PEER_DISK_BYTES - 1, 1, 1, {1}, {0}},
    };
    for (enum nbd_mode mode = NBD_STRUCTURED; mode <= NBD_EXTENDED; mode++) {
        for (unsigned two_loops = 0; two_loops < 2; two_loops++) {
            struct peer p = status_serving(&(struct peer_setup){.two_loops = two_loops}, mode);
            p.disk->unwritten[0] = 1 << 20;
            p.disk->unwritten[1] = 3 << 20;
            for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
                peer_request(&p, cases[i].flags, NBD_CMD_BLOCK_STATUS, i, cases[i].off, cases[i].len);
                peer_run(&p);
                struct peer_reply reply = peer_take(&p, NULL, 0);
                cr_expect_eq(reply.cookie, i);
                cr_expect_eq(reply.error, 0u);
                cr_expect_eq(reply.context, 1u);
                cr_assert_eq(reply.extents, cases[i].count, "case %zu", i);
                for (unsigned e = 0; e < reply.extents; e++) {
                    cr_expect_eq(reply.extent[e].len, cases[i].lengths[e], "case %zu", i);
                    cr_expect_eq(reply.extent[e].state, cases[i].states[e], "case %zu", i);
                }
            }
            peer_ask(&p, 0, NBD_CMD_BLOCK_STATUS, PEER_DISK_BYTES, 512, NBD_EINVAL);
            peer_ask(&p, 0, NBD_CMD_BLOCK_STATUS, 0, 0, NBD_EINVAL);
            peer_ask(&p, NBD_CMD_DF, NBD_CMD_BLOCK_STATUS, 0, 512, NBD_EINVAL);
            cr_expect_eq(page_pool_free(p.far->loop.pages), page_pool_size(p.far->loop.pages));
            cr_expect_eq(p.disk->reads, 0u);
            peer_stop(&p);
        }
    }
}

/* Every other 4 KiB are written. */
static bool in_turns(struct blkdev *dev, uint64_t off, uint64_t len, uint64_t *extent)
{
    (void)dev;
    *extent = MIN(len, 4096 - off % 4096);
    return off / 4096 % 2;
}

/* All is unwritten, told in steps of a block. */
static bool in_small_steps(struct blkdev *dev, uint64_t off, uint64_t len, uint64_t *extent)
{
    (void)off;
    *extent = MIN(len, dev->info.logical_block);
    return false;
}

/* Of a device of the same kind that answers otherwise. */
static struct blkdev_ops other_status;
static void answer_otherwise(struct peer *p, bool (*status)(struct blkdev *, uint64_t, uint64_t, uint64_t *))
{
    other_status = *p->disk->dev.ops;
    other_status.block_status = status;
    p->disk->dev.ops = &other_status;
}

Test(nbd_status, an_answer_is_bounded_and_the_next_one_goes_on)
{
    for (enum nbd_mode mode = NBD_STRUCTURED; mode <= NBD_EXTENDED; mode++) {
        struct peer p = status_serving(&plain, mode);
        uint64_t off = 0;
        answer_otherwise(&p, in_turns);
        for (unsigned round = 0; off < PEER_DISK_BYTES; round++) {
            peer_request(&p, 0, NBD_CMD_BLOCK_STATUS, 1, off, PEER_DISK_BYTES - off);
            peer_run(&p);
            struct peer_reply reply = peer_take(&p, NULL, 0);
            cr_assert_geq(reply.extents, off + 200 * 4096 > PEER_DISK_BYTES ? 1u : 200u);
            for (unsigned e = 0; e < reply.extents; e++, off += 4096) {
                cr_expect_eq(reply.extent[e].len, 4096u);
                cr_expect_eq(reply.extent[e].state, off / 4096 % 2 ? 0u : HOLE);
            }
            cr_assert_lt(round, 10u);
        }
        cr_expect_eq(off, PEER_DISK_BYTES);
        answer_otherwise(&p, in_small_steps);
        peer_request(&p, 0, NBD_CMD_BLOCK_STATUS, 2, 0, PEER_DISK_BYTES);
        peer_run(&p);
        struct peer_reply reply = peer_take(&p, NULL, 0);
        cr_expect_eq(reply.extents, 1u, "what is alike is one extent");
        cr_expect_eq(reply.extent[0].len, 4096u * 512);
        answer_otherwise(&p, NULL);
        peer_request(&p, 0, NBD_CMD_BLOCK_STATUS, 3, 0, PEER_DISK_BYTES);
        peer_run(&p);
        reply = peer_take(&p, NULL, 0);
        cr_expect(reply.extents == 1 && reply.extent[0].len == PEER_DISK_BYTES && reply.extent[0].state == 0,
                  "a device that does not know has written all");
        peer_stop(&p);
    }
}

Test(nbd_status, lengths_have_64_bits_after_extended_headers)
{
    struct holder h;
    struct peer p = peer_start(&plain);
    holder_init(&h, &p.t->loop, 64ull << 40);
    struct nbd_export_options options = {.name = "held", .dev = &h.dev};
    cr_assert_eq(nbd_server_add_export(p.server, &options), 0);
    peer_connect(&p);
    peer_go_with_status(&p, "held", NBD_EXTENDED);
    for (uint64_t tib = 8; tib < 64; tib += 55) { /* an answer tells of 16 TiB at most */
        uint64_t steps = h.dev.counters.requests[BLK_STATUS];
        peer_request(&p, 0, NBD_CMD_BLOCK_STATUS, 1, 1ull << 40, tib << 40);
        peer_run(&p);
        struct peer_reply reply = peer_take(&p, NULL, 0);
        cr_expect(reply.extents == 1 && reply.extent[0].len == MIN(tib, 16ull) << 40 && reply.extent[0].state == 0);
        cr_expect_eq(h.dev.counters.requests[BLK_STATUS] - steps, MIN(tib, 16ull) * 256, "4 GiB a step");
    }
    peer_ask(&p, 0, NBD_CMD_BLOCK_STATUS, 1ull << 40, UINT64_MAX, NBD_EINVAL);
    peer_stop(&p);
}

static void send_filtered(struct peer *p, uint16_t flags, uint64_t off, uint64_t len, const uint32_t *ids,
                          unsigned count)
{
    uint8_t payload[64];
    put_be64(payload, len);
    for (unsigned i = 0; i < count; i++)
        put_be32(payload + 8 + 4 * i, ids[i]);
    peer_header(p, NBD_CMD_PAYLOAD_LEN | flags, NBD_CMD_BLOCK_STATUS, 5, off, 8 + 4 * (uint64_t)count);
    teststream_feed(p->s, payload, 8 + 4 * count);
    peer_run(p);
}

Test(nbd_status, a_payload_filters_contexts)
{
    static const struct {
        uint16_t flags;
        uint64_t off, len;
        uint32_t ids[4], count, error, extents;
    } cases[] = {
        {0, 0, PEER_DISK_BYTES, {1}, 1, 0, 2},        {NBD_CMD_REQ_ONE, 0, PEER_DISK_BYTES, {1}, 1, 0, 1},
        {0, 512, 0, {1}, 1, NBD_EINVAL, 0},           {0, 512, PEER_DISK_BYTES, {1}, 1, NBD_EINVAL, 0},
        {0, 0, UINT64_MAX, {1}, 1, NBD_EINVAL, 0},    {0, 0, 4096, {0}, 0, NBD_EINVAL, 0},
        {0, 0, 4096, {2}, 1, NBD_EINVAL, 0},          {0, 0, 4096, {1, 1}, 2, NBD_EINVAL, 0},
        {0, 0, 4096, {1, 2, 3, 4}, 4, NBD_EINVAL, 0}, {NBD_CMD_NO_HOLE, 0, 4096, {1}, 1, NBD_EINVAL, 0},
    };
    for (unsigned torn = 0; torn < 2; torn++) {
        struct peer p = status_serving(&(struct peer_setup){.seed = torn}, NBD_EXTENDED);
        p.disk->unwritten[1] = 1 << 20;
        for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
            send_filtered(&p, cases[i].flags, cases[i].off, cases[i].len, cases[i].ids, cases[i].count);
            struct peer_reply reply = peer_take(&p, NULL, 0);
            cr_expect_eq(reply.cookie, 5u, "case %zu", i);
            cr_expect_eq(reply.error, cases[i].error, "case %zu: %s", i, reply.text);
            cr_expect_eq(reply.extents, cases[i].extents, "case %zu", i);
            peer_ask(&p, 0, NBD_CMD_FLUSH, 0, 0, 0);
        }
        peer_stop(&p);
    }
}

/* A fault of a released server: it ended when nothing was selected. */
Test(nbd_status, a_payload_without_a_context_is_taken_and_refused)
{
    static const uint32_t id = 1;
    struct peer p = peer_serving(&plain, NBD_EXTENDED);
    send_filtered(&p, 0, 0, 4096, &id, 1);
    peer_expect(&p, 5, NBD_EINVAL);
    peer_ask(&p, 0, NBD_CMD_FLUSH, 0, 0, 0);
    peer_stop(&p);
}

Test(nbd_status, a_filter_that_does_not_come_holds_nothing)
{
    struct peer p = status_serving(&plain, NBD_EXTENDED);
    peer_header(&p, NBD_CMD_PAYLOAD_LEN, NBD_CMD_BLOCK_STATUS, 5, 0, 12);
    teststream_feed(p.s, "\0\0\0", 3);
    peer_run(&p);
    cr_expect_eq(page_pool_free(p.t->loop.pages), page_pool_size(p.t->loop.pages));
    teststream_end(p.s);
    peer_run(&p);
    cr_expect_eq(teststream_sent(p.s), 0u);
    peer_forget(&p);
    peer_stop(&p);
}

/* --- holes in reads --- */

Test(nbd_holes, what_was_never_written_is_neither_read_nor_sent)
{
    static const struct {
        const char *what;
        uint64_t from, to, off; /* unwritten: [from, to) */
        uint32_t len, chunks, holes, reads;
    } cases[] = {
        {"all of it", 0, PEER_DISK_BYTES, 0, PEER_DISK_BYTES, 1, 1, 0},
        {"ragged ends", 0, PEER_DISK_BYTES, 1001, 70001, 1, 1, 0},
        {"none of it", 0, 0, 0, 1 << 20, 1, 0, 1},
        {"at its end", 1 << 20, 2 << 20, 0, 2 << 20, 2, 1, 1},
        {"at its beginning", 1 << 20, 2 << 20, 1 << 20, 2 << 20, 2, 1, 1},
        {"in its middle", 1 << 20, 2 << 20, 7, 3 << 20, 3, 1, 2},
        {"less than a page", 4096 + 512, 4096 + 3072, 0, 1 << 20, 1, 0, 1},
        {"a page and its neighbours' parts", 4096 - 512, 8192 + 512, 0, 1 << 20, 3, 1, 2},
        {"too short a read", 0, PEER_DISK_BYTES, 0, 65535, 1, 0, 1},
    };
    for (enum nbd_mode mode = NBD_STRUCTURED; mode <= NBD_EXTENDED; mode++) {
        for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
            struct peer p = peer_serving(&(struct peer_setup){.two_loops = i % 2}, mode);
            static uint8_t data[PEER_DISK_BYTES];
            test_fill(p.disk->bytes, PEER_DISK_BYTES, 3);
            memset(p.disk->bytes + cases[i].from, 0, cases[i].to - cases[i].from);
            memcpy(p.disk->unwritten, &cases[i].from, 16);
            peer_request(&p, 0, NBD_CMD_READ, i, cases[i].off, cases[i].len);
            peer_run(&p);
            struct peer_reply reply = peer_take(&p, data, 0);
            cr_expect_eq(reply.error, 0u);
            cr_expect_eq(reply.off, cases[i].off, "%s", cases[i].what);
            cr_expect_eq(reply.len, cases[i].len, "%s", cases[i].what);
            cr_expect_eq(reply.chunks, cases[i].chunks, "%s: %u chunks", cases[i].what, reply.chunks);
            cr_expect_eq(reply.holes, cases[i].holes, "%s", cases[i].what);
            cr_expect_eq(p.disk->reads, cases[i].reads, "%s", cases[i].what);
            cr_expect(memcmp(data, p.disk->bytes + cases[i].off, cases[i].len) == 0, "%s", cases[i].what);
            cr_expect_eq(page_pool_free(p.far->loop.pages), page_pool_size(p.far->loop.pages));
            peer_stop(&p);
        }
    }
}

Test(nbd_holes, who_does_not_want_fragments_or_know_chunks_gets_zeroes)
{
    static uint8_t data[PEER_DISK_BYTES];
    for (unsigned mode = 0; mode < 3; mode++) {
        struct peer p = peer_serving(&plain, mode);
        p.disk->unwritten[1] = PEER_DISK_BYTES;
        peer_request(&p, mode != NBD_SIMPLE ? NBD_CMD_DF : 0, NBD_CMD_READ, 1, 0, PEER_DISK_BYTES);
        peer_run(&p);
        struct peer_reply reply = peer_take(&p, data, PEER_DISK_BYTES);
        cr_expect_eq(reply.len, PEER_DISK_BYTES);
        cr_expect_eq(reply.holes, 0u);
        cr_expect_leq(reply.chunks, 1u);
        peer_stop(&p);
    }
}

Test(nbd_holes, many_parts_become_few_chunks)
{
    static uint8_t data[PEER_DISK_BYTES];
    static const uint64_t seeds[] = {0, 2, 5};
    for (enum nbd_mode mode = NBD_STRUCTURED; mode <= NBD_EXTENDED; mode++) {
        for (size_t i = 0; i < ARRAY_LENGTH(seeds); i++) {
            struct peer p = peer_serving(&(struct peer_setup){.seed = seeds[i]}, mode);
            answer_otherwise(&p, in_turns);
            test_fill(p.disk->bytes, PEER_DISK_BYTES, 3);
            for (uint64_t off = 0; off < PEER_DISK_BYTES; off += 8192)
                memset(p.disk->bytes + off, 0, 4096);
            p.s->send_max = seeds[i] != 0 ? 777 : 0;
            for (uint64_t k = 0; k < 3; k++)
                peer_request(&p, 0, NBD_CMD_READ, k, k * 5000, 131072 + (uint32_t)k);
            peer_run(&p);
            for (uint64_t k = 0; k < 3; k++) {
                struct peer_reply reply = peer_take(&p, data, 0);
                cr_expect_eq(reply.cookie, k);
                cr_expect_eq(reply.len, 131072 + k);
                cr_expect(reply.chunks > 4 && reply.chunks <= 8, "%u chunks", reply.chunks);
                cr_expect(memcmp(data, p.disk->bytes + k * 5000, reply.len) == 0);
            }
            cr_expect_eq(teststream_sent(p.s), 0u);
            peer_stop(&p);
        }
    }
}

/* Not even a question: the device would have to be asked on another loop. */
Test(nbd_holes, a_device_that_must_be_asked_elsewhere_is_not_asked)
{
    struct peer p = peer_serving(&plain, NBD_STRUCTURED);
    static uint8_t data[1 << 20];
    answer_otherwise(&p, NULL);
    peer_request(&p, 0, NBD_CMD_READ, 1, 0, 1 << 20);
    peer_run(&p);
    cr_expect_eq(peer_take(&p, data, 0).chunks, 1u);
    cr_expect_eq(p.disk->dev.counters.requests[BLK_STATUS], 0u);
    answer_otherwise(&p, in_turns);
    peer_request(&p, 0, NBD_CMD_READ, 1, 0, 4096);
    peer_run(&p);
    peer_take(&p, data, 0);
    cr_expect_eq(p.disk->dev.counters.requests[BLK_STATUS], 0u, "a short read does not ask");
    peer_stop(&p);
}

/* A read in parts that fails in one of them is an error and nothing else, and leaves nothing. */
Test(nbd_holes, a_part_that_fails_fails_the_read)
{
    struct peer p = peer_serving(&plain, NBD_STRUCTURED);
    p.disk->latency_ns = 1000;
    p.disk->unwritten[0] = 1 << 20;
    p.disk->unwritten[1] = 2 << 20;
    peer_request(&p, 0, NBD_CMD_READ, 1, 0, 3 << 20);
    peer_run(&p);
    p.disk->power_cut = true;
    testloop_run(p.t);
    struct peer_reply reply = peer_take(&p, NULL, 0);
    cr_expect_eq(reply.error, NBD_EIO);
    cr_expect_eq(reply.chunks, 1u);
    cr_expect_eq(page_pool_free(p.t->loop.pages), page_pool_size(p.t->loop.pages));
    p.disk->power_cut = false;
    peer_stop(&p);
}

Test(nbd_holes, a_reset_between_the_parts_leaves_nothing)
{
    struct peer p = peer_serving(&plain, NBD_EXTENDED);
    p.disk->latency_ns = 1000;
    p.disk->unwritten[0] = 1 << 20;
    p.disk->unwritten[1] = 2 << 20;
    peer_request(&p, 0, NBD_CMD_READ, 1, 0, 3 << 20);
    peer_run(&p);
    teststream_break(p.s);
    peer_run(&p);
    testloop_run(p.t);
    cr_expect_eq(p.disk->reads, 1u, "the rest is not read");
    cr_expect_eq(nbd_server_connections(p.server), 0u);
    peer_forget(&p);
    peer_stop(&p);
}
