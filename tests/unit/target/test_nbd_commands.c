/* Commands and flags of NBD beyond plain reads and writes, in each mode: 64-bit lengths, payloads, ragged ranges. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/target/nbd_peer.h"

static const struct peer_setup plain;

Test(nbd_commands, extended_lengths_have_64_bits)
{
    static const struct {
        uint16_t flags, command;
        enum blk_op op;
    } cases[] = {{0, NBD_CMD_TRIM, BLK_DISCARD}, {0, NBD_CMD_WRITE_ZEROES, BLK_WRITE_ZEROES}};
    struct holder h;
    struct peer p = peer_holding(&plain, &h, 64ull << 40, NBD_EXTENDED);
    h.dev.info.max_request = 1 << 20;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        peer_request(&p, cases[i].flags, cases[i].command, i, 1ull << 40, 60ull << 40);
        peer_run(&p);
        cr_assert_eq(h.count, 1);
        cr_expect_eq(STAILQ_FIRST(&h.held)->op, cases[i].op);
        cr_expect_eq(STAILQ_FIRST(&h.held)->off, 1ull << 40);
        cr_expect_eq(STAILQ_FIRST(&h.held)->len, 60ull << 40);
        holder_end(&h, false, BLK_OK, 0);
        peer_run(&p);
        peer_expect(&p, i, 0);
        peer_ask(&p, cases[i].flags, cases[i].command, 1ull << 40, UINT64_MAX - 511,
                 cases[i].op == BLK_DISCARD ? NBD_EINVAL : NBD_ENOSPC);
    }
    peer_stop(&p);
}

Test(nbd_commands, an_extended_reply_repeats_cookie_and_offset)
{
    struct peer p = peer_serving(&plain, NBD_EXTENDED);
    static const uint16_t commands[] = {NBD_CMD_READ, NBD_CMD_TRIM, NBD_CMD_WRITE_ZEROES, NBD_CMD_CACHE, 4711};
    for (size_t i = 0; i < ARRAY_LENGTH(commands); i++) {
        peer_request(&p, 0, commands[i], 0x1122334455667788, 65536, 4096);
        peer_run(&p);
        cr_assert_geq(teststream_sent(p.s), NBD_EXTENDED_CHUNK_BYTES);
        cr_expect_eq(get_be64(teststream_look(p.s) + 8), 0x1122334455667788);
        cr_expect_eq(get_be64(teststream_look(p.s) + 16), 65536);
        peer_take(&p, NULL, 0);
    }
    peer_stop(&p);
}

/* By the document the length is that of a payload if and only if the flag says so. A write has one in any case. */
Test(nbd_commands, payloads_are_taken_by_the_flag_whatever_the_command)
{
    static const struct {
        uint16_t flags, command;
        uint64_t off;
        uint32_t len, payload, error;
    } cases[] = {
        {NBD_CMD_PAYLOAD_LEN, NBD_CMD_READ, 0, 512, 512, NBD_EINVAL},
        {NBD_CMD_PAYLOAD_LEN, NBD_CMD_FLUSH, 0, 1, 1, NBD_EINVAL},
        {NBD_CMD_PAYLOAD_LEN, NBD_CMD_FLUSH, 0, 0, 0, NBD_EINVAL},
        {NBD_CMD_PAYLOAD_LEN, NBD_CMD_TRIM, 0, 4096, 4096, NBD_EINVAL},
        {NBD_CMD_PAYLOAD_LEN, NBD_CMD_WRITE_ZEROES, 0, 300000, 300000, NBD_EINVAL},
        {NBD_CMD_PAYLOAD_LEN, NBD_CMD_CACHE, 0, 64 << 20, 64 << 20, NBD_EINVAL},
        {NBD_CMD_PAYLOAD_LEN, 4711, 0, 33, 33, NBD_EINVAL},
        {0, NBD_CMD_WRITE, 0, 4096, 4096, 0}, /* QEMU's client */
        {0, NBD_CMD_WRITE, PEER_DISK_BYTES, 300000, 300000, NBD_ENOSPC},
        {NBD_CMD_PAYLOAD_LEN, NBD_CMD_WRITE, 0, 4096, 4096, 0},
        {NBD_CMD_PAYLOAD_LEN, NBD_CMD_WRITE, 0, (32 << 20) + 512, (32 << 20) + 512, NBD_EINVAL},
        {NBD_CMD_PAYLOAD_LEN, NBD_CMD_WRITE, PEER_DISK_BYTES, 512, 512, NBD_ENOSPC},
    };
    uint8_t *noise = malloc(64 << 20);
    for (uint32_t i = 0; i < 64 << 20; i += 4)
        put_be32(noise + i, NBD_MAGIC_EXTENDED_REQUEST);
    struct peer p = peer_serving(&plain, NBD_EXTENDED);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        peer_header(&p, cases[i].flags, cases[i].command, i, cases[i].off, cases[i].len);
        teststream_feed(p.s, noise, cases[i].payload);
        peer_request(&p, 0, NBD_CMD_FLUSH, 77, 0, 0);
        peer_run(&p);
        struct peer_reply reply = peer_take(&p, NULL, 0);
        cr_expect_eq(reply.error, cases[i].error, "case %zu: %u", i, reply.error);
        cr_expect_eq(reply.cookie, i, "case %zu", i);
        cr_expect_eq(peer_take(&p, NULL, 0).cookie, 77, "case %zu: in step", i);
        cr_expect_eq(teststream_sent(p.s), 0u);
    }
    free(noise);
    peer_stop(&p);
}

Test(nbd_commands, a_payload_of_more_than_64_MiB_is_answered_and_ends_the_connection)
{
    static const uint16_t commands[] = {NBD_CMD_WRITE, NBD_CMD_TRIM, 4711};
    static const uint64_t lengths[] = {(64 << 20) + 1, 1ull << 32, UINT64_MAX};
    struct peer p = peer_start(&plain);
    for (size_t i = 0; i < ARRAY_LENGTH(commands); i++) {
        for (size_t k = 0; k < ARRAY_LENGTH(lengths); k++) {
            peer_connect(&p);
            peer_go(&p, "disk", NBD_EXTENDED);
            peer_header(&p, NBD_CMD_PAYLOAD_LEN, commands[i], 5, 0, lengths[k]);
            peer_run(&p);
            peer_expect(&p, 5, NBD_EINVAL);
            peer_forget(&p);
        }
    }
    peer_stop(&p);
}

Test(nbd_commands, headers_of_the_other_kind_are_out_of_step)
{
    for (enum nbd_mode mode = NBD_SIMPLE; mode <= NBD_EXTENDED; mode++) {
        struct peer p = peer_serving(&plain, mode);
        p.mode = mode == NBD_EXTENDED ? NBD_SIMPLE : NBD_EXTENDED;
        peer_request(&p, 0, NBD_CMD_READ, 1, 0, 512);
        teststream_feed(p.s, "\0\0\0\0", 4); /* enough bytes in any case */
        peer_run(&p);
        cr_expect_eq(teststream_sent(p.s), 0u);
        peer_forget(&p);
        peer_stop(&p);
    }
}

Test(nbd_commands, reads_need_not_be_of_whole_blocks)
{
    static const struct {
        uint64_t off;
        uint32_t len;
    } cases[] = {{1, 512},
                 {0, 1},
                 {511, 2},
                 {4095, 2},
                 {4097, 1},
                 {100, 70000},
                 {1, 1048590},
                 {2, (2 << 20) + 28},
                 {8191, 4098},
                 {PEER_DISK_BYTES - 1, 1},
                 {PEER_DISK_BYTES - 4097, 4097}};
    static const uint32_t blocks[] = {512, 4096};
    for (enum nbd_mode mode = NBD_SIMPLE; mode <= NBD_EXTENDED; mode++) {
        for (size_t b = 0; b < ARRAY_LENGTH(blocks); b++) {
            struct peer p = peer_serving(&(struct peer_setup){.logical_block = blocks[b]}, mode);
            test_fill(p.disk->bytes, PEER_DISK_BYTES, 7);
            for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
                peer_request(&p, 0, NBD_CMD_READ, i, cases[i].off, cases[i].len);
                peer_run(&p);
                peer_expect_data(&p, i, cases[i].off, cases[i].len);
            }
            cr_expect_eq(page_pool_free(p.t->loop.pages), page_pool_size(p.t->loop.pages));
            peer_stop(&p);
        }
    }
}

Test(nbd_commands, a_media_error_lies_within_what_was_asked)
{
    static const struct {
        uint64_t bad, told;
    } cases[] = {{4096, 4100}, {4100, 4100}, {4608, 4608}, {5119, 5000}};
    struct holder h;
    struct peer p = peer_holding(&plain, &h, 1 * MIB, NBD_STRUCTURED);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        peer_request(&p, 0, NBD_CMD_READ, 1, 4100, 901);
        peer_run(&p);
        cr_expect_eq(STAILQ_FIRST(&h.held)->off, 4096);
        cr_expect_eq(STAILQ_FIRST(&h.held)->len, 1024);
        holder_end(&h, false, BLK_MEDIA, cases[i].bad);
        peer_run(&p);
        struct peer_reply reply = peer_take(&p, NULL, 0);
        cr_expect_eq(reply.type, NBD_CHUNK_ERROR_OFFSET);
        cr_expect_eq(reply.off, cases[i].told);
    }
    peer_stop(&p);
}

Test(nbd_commands, a_trim_never_touches_what_it_does_not_cover_whole)
{
    static const struct {
        uint64_t off, len, at, trimmed;
    } cases[] = {
        {1, 511, 0, 0},      {1, 1023, 512, 512}, {511, 2, 0, 0}, {0, 513, 0, 512}, {100, 5000, 512, 4096 + 512 - 512},
        {512, 512, 512, 512}};
    struct holder h;
    struct peer p = peer_holding(&plain, &h, 1 * MIB, NBD_STRUCTURED);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        peer_request(&p, 0, NBD_CMD_TRIM, i, cases[i].off, cases[i].len);
        peer_run(&p);
        cr_assert_eq(h.count, cases[i].trimmed > 0, "case %zu", i);
        if (cases[i].trimmed > 0) {
            cr_expect_eq(STAILQ_FIRST(&h.held)->off, cases[i].at, "case %zu", i);
            cr_expect_eq(STAILQ_FIRST(&h.held)->len, cases[i].trimmed, "case %zu", i);
            holder_end(&h, false, BLK_OK, 0);
            peer_run(&p);
        }
        peer_expect(&p, i, 0);
    }
    peer_stop(&p);
}

Test(nbd_commands, cache_is_answered_without_the_device)
{
    struct holder h;
    struct peer p = peer_holding(&plain, &h, 1 * MIB, NBD_SIMPLE);
    peer_ask(&p, 0, NBD_CMD_CACHE, 0, 1 * MIB, 0);
    peer_ask(&p, NBD_CMD_FUA, NBD_CMD_CACHE, 17, 4, 0);
    peer_ask(&p, 0, NBD_CMD_CACHE, 1, 1 * MIB, NBD_EINVAL);
    peer_ask(&p, 0, NBD_CMD_CACHE, 0, 0, NBD_EINVAL);
    peer_ask(&p, NBD_CMD_NO_HOLE, NBD_CMD_CACHE, 0, 512, NBD_EINVAL);
    cr_expect_eq(h.seen, 0u);
    peer_stop(&p);
}

/* Zeroes are fast where the device forgets a unit of what it held; offered only where that reads as zeroes. */
Test(nbd_commands, fast_zeroes_are_fast_or_refused)
{
    static const struct {
        uint16_t flags;
        uint64_t off, len;
        uint32_t error;
    } cases[] = {
        {NBD_CMD_FAST_ZERO, 0, 65536, 0},
        {NBD_CMD_FAST_ZERO, 512, 131072, 0},
        {NBD_CMD_FAST_ZERO, 512, 65536, NBD_ENOTSUP},
        {NBD_CMD_FAST_ZERO, 0, 4096, NBD_ENOTSUP},
        {NBD_CMD_FAST_ZERO | NBD_CMD_NO_HOLE, 0, 65536, NBD_ENOTSUP},
        {NBD_CMD_FAST_ZERO | NBD_CMD_FUA, 65536, 65536, 0},
        {NBD_CMD_FAST_ZERO, PEER_DISK_BYTES, 65536, NBD_ENOSPC},
        {0, 0, 4096, 0},
    };
    for (unsigned garbage = 0; garbage < 2; garbage++) {
        struct peer p = peer_start(&plain);
        p.disk->dev.info.optimal_io = 65536;
        p.disk->dev.info.discard_zeroes = !garbage;
        peer_connect(&p);
        uint16_t flags = peer_go(&p, "disk", NBD_STRUCTURED);
        cr_expect_eq(!(flags & NBD_FLAG_SEND_FAST_ZERO), garbage);
        for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
            bool unknown = garbage && (cases[i].flags & NBD_CMD_FAST_ZERO);
            uint64_t writes = p.disk->writes;
            peer_ask(&p, cases[i].flags, NBD_CMD_WRITE_ZEROES, cases[i].off, cases[i].len,
                     unknown ? NBD_EINVAL : cases[i].error);
            cr_expect_eq(p.disk->writes - writes, !unknown && cases[i].error == 0, "case %zu: refused, nothing is done",
                         i);
        }
        peer_stop(&p);
    }
}
