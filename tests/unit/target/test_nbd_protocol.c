#include <criterion/criterion.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/nbd/nbd.h"
#include "target/nbd/protocol.h"

Test(nbd_protocol, client_flags_that_are_not_known_are_refused)
{
    static const struct {
        uint8_t bytes[4];
        bool good;
    } cases[] = {{{0, 0, 0, 0}, true},  {{0, 0, 0, 1}, true},  {{0, 0, 0, 2}, true},  {{0, 0, 0, 3}, true},
                 {{0, 0, 0, 4}, false}, {{0, 0, 0, 7}, false}, {{0, 1, 0, 3}, false}, {{0x80, 0, 0, 3}, false}};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint32_t flags;
        cr_expect_eq(nbd_parse_client_flags(cases[i].bytes, &flags), cases[i].good, "case %zu", i);
        cr_expect_eq(flags, get_be32(cases[i].bytes));
    }
}

Test(nbd_protocol, an_option_begins_with_its_magic)
{
    uint8_t bytes[NBD_OPTION_BYTES] = "IHAVEOPT\0\0\0\7\0\1\0\2";
    struct nbd_option_header header;
    cr_expect(nbd_parse_option(bytes, &header));
    cr_expect_eq(header.option, NBD_OPT_GO);
    cr_expect_eq(header.len, 0x10002);
    bytes[7] = 't';
    cr_expect_not(nbd_parse_option(bytes, &header));
}

Test(nbd_protocol, info_requests_are_whole_or_invalid)
{
    static const struct {
        const char *what;
        uint8_t bytes[16];
        uint32_t len, error, name_len, wanted;
    } cases[] = {
        {"empty name, nothing asked", "\0\0\0\0\0\0", 6, 0, 0, 0},
        {"a name", "\0\0\0\2ab\0\0", 8, 0, 2, 0},
        {"all pieces of information", "\0\0\0\0\0\4\0\3\0\2\0\1\0\0", 14, 0, 0, 15},
        {"one that is not known", "\0\0\0\0\0\2\0\3\x12\x34", 10, 0, 0, 8},
        {"asked twice", "\0\0\0\0\0\2\0\1\0\1", 10, 0, 0, 2},
        {"no data at all", "", 0, NBD_REP_ERR_INVALID, 0, 0},
        {"too short", "\0\0\0\0\0", 5, NBD_REP_ERR_INVALID, 0, 0},
        {"a name longer than the data", "\0\0\0\3ab\0\0", 8, NBD_REP_ERR_INVALID, 0, 0},
        {"a name of 4 GiB - 1", "\xff\xff\xff\xff\0\0", 6, NBD_REP_ERR_INVALID, 0, 0},
        {"a name of 4 GiB - 6", "\xff\xff\xff\xfa\0\0", 6, NBD_REP_ERR_INVALID, 0, 0},
        {"a request missing", "\0\0\0\0\0\2\0\3", 8, NBD_REP_ERR_INVALID, 0, 0},
        {"one request too many", "\0\0\0\0\0\1\0\3\0\3", 10, NBD_REP_ERR_INVALID, 0, 0},
        {"an odd byte", "\0\0\0\0\0\1\0\3\0", 9, NBD_REP_ERR_INVALID, 0, 0},
        {"a NUL in the name", "\0\0\0\3ab\0\0\0", 9, NBD_REP_ERR_INVALID, 3, 0},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct nbd_info_request request = {0};
        uint32_t error = nbd_parse_info_request(cases[i].bytes, cases[i].len, &request);
        cr_expect_eq(error, cases[i].error, "%s: %x", cases[i].what, error);
        cr_expect_eq(request.name_len, cases[i].name_len, "%s", cases[i].what);
        cr_expect_eq(request.wanted, cases[i].wanted, "%s", cases[i].what);
    }
}

Test(nbd_protocol, names_are_bounded)
{
    static char name[NBD_NAME_MAX + 1];
    memset(name, 'n', sizeof name);
    cr_expect_eq(nbd_check_name(name, 0), 0u);
    cr_expect_eq(nbd_check_name(name, NBD_NAME_MAX), 0u);
    cr_expect_eq(nbd_check_name(name, NBD_NAME_MAX + 1), NBD_REP_ERR_TOO_BIG);
    name[17] = '\0';
    cr_expect_eq(nbd_check_name(name, 17), 0u);
    cr_expect_eq(nbd_check_name(name, 18), NBD_REP_ERR_INVALID);
}

Test(nbd_protocol, option_replies_on_the_wire)
{
    static const uint8_t list[] = "\0\3\xe8\x89\4\x55\x65\xa9"
                                  "\0\0\0\3\0\0\0\2\0\0\0\11\0\0\0\2abcde";
    static const uint8_t block[] = "\0\3\xe8\x89\4\x55\x65\xa9"
                                   "\0\0\0\6\0\0\0\3\0\0\0\16\0\3\0\0\2\0\0\0\x10\0\2\0\0\0";
    static const uint8_t refused[] = "\0\3\xe8\x89\4\x55\x65\xa9"
                                     "\0\0\0\12\x80\0\0\1\0\0\0\2no";
    static const uint8_t export[] = "\0\3\xe8\x89\4\x55\x65\xa9"
                                    "\0\0\0\7\0\0\0\3\0\0\0\14\0\0\0\0\0\1\0\0\0\0\1\x0d";
    uint8_t out[256];
    cr_expect_eq(nbd_build_list_entry(out, "ab", "cde"), sizeof list - 1);
    cr_expect_arr_eq(out, list, sizeof list - 1);
    cr_expect_eq(nbd_build_info_block_size(out, NBD_OPT_INFO, 512, 4096, 32 << 20), sizeof block - 1);
    cr_expect_arr_eq(out, block, sizeof block - 1);
    cr_expect_eq(nbd_build_option_error(out, 10, NBD_REP_ERR_UNSUP, "no"), sizeof refused - 1);
    cr_expect_arr_eq(out, refused, sizeof refused - 1);
    cr_expect_eq(nbd_build_info_export(out, NBD_OPT_GO, 1ull << 32, 0x10d), sizeof export - 1);
    cr_expect_arr_eq(out, export, sizeof export - 1);
}

Test(nbd_protocol, the_old_reply_has_134_bytes_or_10)
{
    uint8_t out[160];
    memset(out, 0xff, sizeof out);
    cr_expect_eq(nbd_build_old_reply(out, 1 << 20, 0x0105, true), 134);
    cr_expect_eq(get_be64(out), 1 << 20);
    cr_expect_eq(get_be16(out + 8), 0x0105);
    for (int i = 10; i < 134; i++)
        cr_expect_eq(out[i], 0, "byte %d", i);
    cr_expect_eq(out[134], 0xff);
    cr_expect_eq(nbd_build_old_reply(out, 1 << 20, 0x0105, false), 10);
}

Test(nbd_protocol, a_request_on_the_wire)
{
    uint8_t bytes[NBD_REQUEST_BYTES + 1] = "\x25\x60\x95\x13\0\2\0\6\1\2\3\4\5\6\7\10\0\0\0\1\0\0\0\0\xff\xff\xfe\0";
    struct nbd_request_header head;
    cr_expect(nbd_parse_request(bytes, NBD_SIMPLE, &head));
    cr_expect_eq(head.flags, NBD_CMD_NO_HOLE);
    cr_expect_eq(head.command, NBD_CMD_WRITE_ZEROES);
    cr_expect_eq(head.cookie, 0x0102030405060708ull);
    cr_expect_eq(head.off, 1ull << 32);
    cr_expect_eq(head.len, 0xfffffe00u);
    cr_expect_eq(nbd_request_payload(&head, NBD_SIMPLE), 0u);
    head.command = NBD_CMD_WRITE;
    cr_expect_eq(nbd_request_payload(&head, NBD_SIMPLE), 0xfffffe00u);
    bytes[0]++;
    cr_expect_not(nbd_parse_request(bytes, NBD_SIMPLE, &head));
}

enum {
    FULL = NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_FUA | NBD_FLAG_SEND_TRIM |
           NBD_FLAG_SEND_WRITE_ZEROES | NBD_FLAG_SEND_DF | NBD_FLAG_SEND_CACHE,
    SIZE = 1 << 20,
    PAYLOAD = 1 << 19,
};

Test(nbd_protocol, what_a_request_may_ask)
{
    static const struct {
        const char *what;
        struct nbd_request_header head; /* flags, command, cookie, off, len */
        uint16_t offered;
        enum nbd_fault fault;
    } cases[] = {
        {"read", {0, NBD_CMD_READ, 1, 0, 512}, FULL, NBD_FAULT_NONE},
        {"read to the end", {0, NBD_CMD_READ, 1, SIZE - 512, 512}, FULL, NBD_FAULT_NONE},
        {"read past the end", {0, NBD_CMD_READ, 1, SIZE - 512, 1024}, FULL, NBD_FAULT_BEYOND_END},
        {"read at the end", {0, NBD_CMD_READ, 1, SIZE, 512}, FULL, NBD_FAULT_BEYOND_END},
        {"read far away", {0, NBD_CMD_READ, 1, UINT64_MAX - 511, 512}, FULL, NBD_FAULT_BEYOND_END},
        {"read nothing", {0, NBD_CMD_READ, 1, 0, 0}, FULL, NBD_FAULT_EMPTY},
        {"read at 1", {0, NBD_CMD_READ, 1, 1, 512}, FULL, NBD_FAULT_NONE},
        {"read of the last byte", {0, NBD_CMD_READ, 1, SIZE - 1, 1}, FULL, NBD_FAULT_NONE},
        {"read of one byte too many", {0, NBD_CMD_READ, 1, SIZE - 1, 2}, FULL, NBD_FAULT_BEYOND_END},
        {"longest read", {0, NBD_CMD_READ, 1, 0, PAYLOAD}, FULL, NBD_FAULT_NONE},
        {"too long a read", {0, NBD_CMD_READ, 1, 0, PAYLOAD + 512}, FULL, NBD_FAULT_TOO_LONG},
        {"read, FUA", {NBD_CMD_FUA, NBD_CMD_READ, 1, 0, 512}, FULL, NBD_FAULT_NONE},
        {"read, DF", {NBD_CMD_DF, NBD_CMD_READ, 1, 0, 512}, FULL, NBD_FAULT_NONE},
        {"DF not offered", {NBD_CMD_DF, NBD_CMD_READ, 1, 0, 512}, FULL & ~NBD_FLAG_SEND_DF, NBD_FAULT_FLAGS},
        {"read, NO_HOLE", {NBD_CMD_NO_HOLE, NBD_CMD_READ, 1, 0, 512}, FULL, NBD_FAULT_FLAGS},
        {"read, a payload flag", {32, NBD_CMD_READ, 1, 0, 512}, FULL, NBD_FAULT_FLAGS},
        {"read, unknown flag", {0x8000, NBD_CMD_READ, 1, 0, 512}, FULL, NBD_FAULT_FLAGS},
        {"write", {0, NBD_CMD_WRITE, 1, 512, 512}, FULL, NBD_FAULT_NONE},
        {"write, FUA", {NBD_CMD_FUA, NBD_CMD_WRITE, 1, 0, 512}, FULL, NBD_FAULT_NONE},
        {"write, DF", {NBD_CMD_DF, NBD_CMD_WRITE, 1, 0, 512}, FULL, NBD_FAULT_FLAGS},
        {"write past the end", {0, NBD_CMD_WRITE, 1, SIZE, 512}, FULL, NBD_FAULT_NO_ROOM},
        {"write nothing", {0, NBD_CMD_WRITE, 1, 0, 0}, FULL, NBD_FAULT_EMPTY},
        {"write unaligned", {0, NBD_CMD_WRITE, 1, 256, 513}, FULL, NBD_FAULT_NONE},
        {"too long a write", {0, NBD_CMD_WRITE, 1, 0, PAYLOAD + 512}, FULL, NBD_FAULT_TOO_LONG},
        {"write, read-only", {0, NBD_CMD_WRITE, 1, 0, 512}, FULL | NBD_FLAG_READ_ONLY, NBD_FAULT_READ_ONLY},
        {"flush", {0, NBD_CMD_FLUSH, 1, 0, 0}, FULL, NBD_FAULT_NONE},
        {"flush, FUA", {NBD_CMD_FUA, NBD_CMD_FLUSH, 1, 0, 0}, FULL, NBD_FAULT_NONE},
        {"flush, read-only", {0, NBD_CMD_FLUSH, 1, 0, 0}, FULL | NBD_FLAG_READ_ONLY, NBD_FAULT_NONE},
        {"flush, NO_HOLE", {NBD_CMD_NO_HOLE, NBD_CMD_FLUSH, 1, 0, 0}, FULL, NBD_FAULT_FLAGS},
        {"trim all", {0, NBD_CMD_TRIM, 1, 0, SIZE}, FULL, NBD_FAULT_NONE},
        {"trim, FUA", {NBD_CMD_FUA, NBD_CMD_TRIM, 1, 0, SIZE}, FULL, NBD_FAULT_NONE},
        {"trim past the end", {0, NBD_CMD_TRIM, 1, 512, SIZE}, FULL, NBD_FAULT_BEYOND_END},
        {"trim of 4 GiB", {0, NBD_CMD_TRIM, 1, 0, 0xfffffe00u}, FULL, NBD_FAULT_BEYOND_END},
        {"trim nothing", {0, NBD_CMD_TRIM, 1, 0, 0}, FULL, NBD_FAULT_EMPTY},
        {"trim not offered", {0, NBD_CMD_TRIM, 1, 0, 512}, FULL & ~NBD_FLAG_SEND_TRIM, NBD_FAULT_NOT_OFFERED},
        {"trim, read-only", {0, NBD_CMD_TRIM, 1, 0, 512}, NBD_FLAG_READ_ONLY, NBD_FAULT_READ_ONLY},
        {"zeroes", {NBD_CMD_NO_HOLE | NBD_CMD_FUA, NBD_CMD_WRITE_ZEROES, 1, 0, SIZE}, FULL, NBD_FAULT_NONE},
        {"zeroes past the end", {0, NBD_CMD_WRITE_ZEROES, 1, SIZE - 512, 1024}, FULL, NBD_FAULT_NO_ROOM},
        {"zeroes, read-only", {0, NBD_CMD_WRITE_ZEROES, 1, 0, 512}, NBD_FLAG_READ_ONLY, NBD_FAULT_READ_ONLY},
        {"FAST_ZERO not offered", {NBD_CMD_FAST_ZERO, NBD_CMD_WRITE_ZEROES, 1, 0, 512}, FULL, NBD_FAULT_FLAGS},
        {"FAST_ZERO offered",
         {NBD_CMD_FAST_ZERO, NBD_CMD_WRITE_ZEROES, 1, 0, 8192},
         FULL | NBD_FLAG_SEND_FAST_ZERO,
         NBD_FAULT_NONE},
        {"the space kept, fast",
         {NBD_CMD_FAST_ZERO | NBD_CMD_NO_HOLE, NBD_CMD_WRITE_ZEROES, 1, 0, SIZE},
         FULL | NBD_FLAG_SEND_FAST_ZERO,
         NBD_FAULT_SLOW},
        {"a unit, fast",
         {NBD_CMD_FAST_ZERO, NBD_CMD_WRITE_ZEROES, 1, 7680, 9216},
         FULL | NBD_FLAG_SEND_FAST_ZERO,
         NBD_FAULT_NONE},
        {"no whole unit, fast",
         {NBD_CMD_FAST_ZERO, NBD_CMD_WRITE_ZEROES, 1, 512, 15360},
         FULL | NBD_FLAG_SEND_FAST_ZERO,
         NBD_FAULT_SLOW},
        {"beyond the end, fast",
         {NBD_CMD_FAST_ZERO, NBD_CMD_WRITE_ZEROES, 1, SIZE, 512},
         FULL | NBD_FLAG_SEND_FAST_ZERO,
         NBD_FAULT_NO_ROOM},
        {"cache", {NBD_CMD_FUA, NBD_CMD_CACHE, 1, 7, 9}, FULL, NBD_FAULT_NONE},
        {"cache all of a read-only export", {0, NBD_CMD_CACHE, 1, 0, SIZE}, FULL | NBD_FLAG_READ_ONLY, NBD_FAULT_NONE},
        {"cache past the end", {0, NBD_CMD_CACHE, 1, 0, SIZE + 1}, FULL, NBD_FAULT_BEYOND_END},
        {"cache nothing", {0, NBD_CMD_CACHE, 1, 0, 0}, FULL, NBD_FAULT_EMPTY},
        {"cache, DF", {NBD_CMD_DF, NBD_CMD_CACHE, 1, 0, 512}, FULL, NBD_FAULT_FLAGS},
        {"cache not offered", {0, NBD_CMD_CACHE, 1, 0, 512}, FULL & ~NBD_FLAG_SEND_CACHE, NBD_FAULT_NOT_OFFERED},
        {"trim of some bytes", {0, NBD_CMD_TRIM, 1, 1, 100}, FULL, NBD_FAULT_NONE},
        {"block status", {0, NBD_CMD_BLOCK_STATUS, 1, 0, 512}, FULL, NBD_FAULT_NO_CONTEXT},
        {"resize", {0, 8, 1, 0, 512}, FULL, NBD_FAULT_COMMAND},
        {"command 65535", {0, 65535, 1, 0, 512}, FULL, NBD_FAULT_COMMAND},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct nbd_rules rules = {SIZE, 512, PAYLOAD, cases[i].offered, NBD_SIMPLE, 0, 8192};
        enum nbd_fault fault = nbd_request_check(&cases[i].head, &rules);
        cr_expect_eq(fault, cases[i].fault, "%s: %s", cases[i].what, nbd_fault_text(fault));
    }
}

Test(nbd_protocol, what_the_mode_changes)
{
    static const struct {
        const char *what;
        struct nbd_request_header head; /* flags, command, cookie, off, len */
        uint16_t offered;
        enum nbd_fault fault;
        enum nbd_mode mode;
    } cases[] = {
        {"the same in chunks", {0, NBD_CMD_READ, 1, 0, PAYLOAD + 1}, FULL, NBD_FAULT_READ_TOO_LONG, NBD_STRUCTURED},
        {"the same unfragmented",
         {NBD_CMD_DF, NBD_CMD_READ, 1, 0, PAYLOAD + 1},
         FULL,
         NBD_FAULT_READ_TOO_LONG,
         NBD_STRUCTURED},
        {"read of 8 EiB", {0, NBD_CMD_READ, 1, 0, 1ull << 63}, FULL, NBD_FAULT_READ_TOO_LONG, NBD_EXTENDED},
        {"trim of 8 EiB", {0, NBD_CMD_TRIM, 1, 0, 1ull << 63}, FULL, NBD_FAULT_BEYOND_END, NBD_EXTENDED},
        {"trim that wraps", {0, NBD_CMD_TRIM, 1, 1024, UINT64_MAX}, FULL, NBD_FAULT_BEYOND_END, NBD_EXTENDED},
        {"extended write",
         {NBD_CMD_PAYLOAD_LEN | NBD_CMD_FUA, NBD_CMD_WRITE, 1, 0, 512},
         FULL,
         NBD_FAULT_NONE,
         NBD_EXTENDED},
        {"without saying so", {0, NBD_CMD_WRITE, 1, 0, 512}, FULL, NBD_FAULT_NONE, NBD_EXTENDED},
        {"a payload in compact",
         {NBD_CMD_PAYLOAD_LEN, NBD_CMD_WRITE, 1, 0, 512},
         FULL,
         NBD_FAULT_FLAGS,
         NBD_STRUCTURED},
        {"trim with a payload", {NBD_CMD_PAYLOAD_LEN, NBD_CMD_TRIM, 1, 0, 512}, FULL, NBD_FAULT_FLAGS, NBD_EXTENDED},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct nbd_rules rules = {SIZE, 512, PAYLOAD, cases[i].offered, cases[i].mode, 1, 8192};
        enum nbd_fault fault = nbd_request_check(&cases[i].head, &rules);
        cr_expect_eq(fault, cases[i].fault, "%s: %s", cases[i].what, nbd_fault_text(fault));
    }
}

Test(nbd_protocol, what_a_block_status_may_ask)
{
    enum { PAYLOADS = FULL | NBD_FLAG_BLOCK_STATUS_PAYLOAD };
    static const struct {
        const char *what;
        struct nbd_request_header head; /* flags, command, cookie, off, len */
        uint16_t offered;
        enum nbd_fault fault;
    } cases[] = {
        {"all", {0, NBD_CMD_BLOCK_STATUS, 1, 0, SIZE}, PAYLOADS, NBD_FAULT_NONE},
        {"a byte, one extent, FUA",
         {NBD_CMD_REQ_ONE | NBD_CMD_FUA, NBD_CMD_BLOCK_STATUS, 1, SIZE - 1, 1},
         FULL,
         NBD_FAULT_NONE},
        {"nothing", {0, NBD_CMD_BLOCK_STATUS, 1, 0, 0}, FULL, NBD_FAULT_EMPTY},
        {"past the end", {0, NBD_CMD_BLOCK_STATUS, 1, 1, SIZE}, FULL, NBD_FAULT_BEYOND_END},
        {"DF", {NBD_CMD_DF, NBD_CMD_BLOCK_STATUS, 1, 0, 512}, FULL, NBD_FAULT_FLAGS},
        {"a payload not offered", {NBD_CMD_PAYLOAD_LEN, NBD_CMD_BLOCK_STATUS, 1, 0, 12}, FULL, NBD_FAULT_FLAGS},
        {"a payload", {NBD_CMD_PAYLOAD_LEN, NBD_CMD_BLOCK_STATUS, 1, 2 * SIZE, 12}, PAYLOADS, NBD_FAULT_NONE},
        {"too long a payload", {NBD_CMD_PAYLOAD_LEN, NBD_CMD_BLOCK_STATUS, 1, 0, 13}, PAYLOADS, NBD_FAULT_FILTER},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct nbd_rules rules = {SIZE, 512, PAYLOAD, cases[i].offered, NBD_EXTENDED, 1, 8192};
        enum nbd_fault fault = nbd_request_check(&cases[i].head, &rules);
        cr_expect_eq(fault, cases[i].fault, "%s: %s", cases[i].what, nbd_fault_text(fault));
    }
}

Test(nbd_protocol, every_status_of_a_device_is_an_error_of_the_document)
{
    static const struct {
        enum blk_status status;
        uint32_t number;
    } cases[] = {{BLK_OK, 0},       {BLK_MEDIA, 5},    {BLK_GONE, 5},    {BLK_TIMEOUT, 5},
                 {BLK_NOSPACE, 28}, {BLK_READONLY, 1}, {BLK_INVALID, 22}};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
        cr_expect_eq(nbd_fault_number(nbd_fault_of(cases[i].status)), cases[i].number, "%s",
                     blk_status_name(cases[i].status));
}

Test(nbd_protocol, every_fault_has_a_number_and_a_text_that_fits)
{
    uint8_t out[NBD_ERROR_BYTES_MAX];
    uint64_t off = 0x1122334455667788ull;
    static const struct nbd_request_header head = {.cookie = 7, .off = 8};
    for (unsigned fault = NBD_FAULT_NONE + 1; fault < NBD_FAULT_COUNT; fault++) {
        cr_expect_neq(nbd_fault_number(fault), 0u, "fault %u", fault);
        size_t text = strlen(nbd_fault_text(fault));
        cr_expect_gt(text, 0u, "fault %u", fault);
        cr_expect_eq(nbd_build_error(out, NBD_STRUCTURED, &head, fault, &off), 34 + text);
        cr_expect_eq(get_be16(out + 6), NBD_CHUNK_ERROR_OFFSET);
        cr_expect_eq(get_be32(out + 16), 14 + text);
        cr_expect_eq(get_be16(out + 24), text);
        cr_expect_eq(get_be64(out + 26 + text), off);
        cr_expect_eq(nbd_build_error(out, NBD_EXTENDED, &head, fault, &off), 46 + text);
        cr_expect_eq(get_be64(out + 16), 8);
        cr_expect_eq(get_be64(out + 24), 14 + text);
        cr_expect_eq(get_be64(out + 38 + text), off);
        cr_expect_eq(nbd_build_error(out, NBD_SIMPLE, &head, fault, &off), 16);
    }
}

Test(nbd_protocol, replies_on_the_wire)
{
    static const struct nbd_request_header head = {.cookie = 9, .off = 512};
    static const uint8_t simple[] = "\x67\x44\x66\x98\0\0\0\26\0\0\0\0\0\0\0\11";
    static const uint8_t data[] = "\x66\x8e\x33\xef\0\1\0\1\0\0\0\0\0\0\0\11\0\0\x10\x08\0\0\0\0\0\0\2\0";
    static const uint8_t hole[] = "\x66\x8e\x33\xef\0\0\0\2\0\0\0\0\0\0\0\11\0\0\0\14\0\0\0\0\0\0\2\0\0\0\x10\0";
    static const uint8_t error[] = "\x66\x8e\x33\xef\0\1\x80\1\0\0\0\0\0\0\0\11\0\0\0\21\0\0\0\5\0\13media error";
    static const uint8_t none[] = "\x6e\x8a\x27\x8c\0\1\0\0\0\0\0\0\0\0\0\11\0\0\0\0\0\0\2\0\0\0\0\0\0\0\0\0";
    static const uint8_t long_data[] = "\x6e\x8a\x27\x8c\0\1\0\1\0\0\0\0\0\0\0\11\0\0\0\0\0\0\2\0\0\0\0\0\0\0\x10\x08"
                                       "\0\0\0\0\0\0\2\0";
    uint8_t out[NBD_ERROR_BYTES_MAX];
    cr_expect_eq(nbd_build_error(out, NBD_SIMPLE, &head, NBD_FAULT_FLAGS, NULL), sizeof simple - 1);
    cr_expect_arr_eq(out, simple, sizeof simple - 1);
    cr_expect_eq(nbd_build_data(out, NBD_STRUCTURED, &head, 512, 4096, true), sizeof data - 1);
    cr_expect_arr_eq(out, data, sizeof data - 1);
    cr_expect_eq(nbd_build_hole(out, NBD_STRUCTURED, &head, 512, 4096, false), sizeof hole - 1);
    cr_expect_arr_eq(out, hole, sizeof hole - 1);
    cr_expect_eq(nbd_build_error(out, NBD_STRUCTURED, &head, NBD_FAULT_MEDIA, NULL), sizeof error - 1);
    cr_expect_arr_eq(out, error, sizeof error - 1);
    cr_expect_eq(nbd_build_success(out, NBD_STRUCTURED, &head), NBD_SIMPLE_REPLY_BYTES);
    cr_expect_eq(nbd_build_success(out, NBD_EXTENDED, &head), sizeof none - 1);
    cr_expect_arr_eq(out, none, sizeof none - 1);
    cr_expect_eq(nbd_build_data(out, NBD_EXTENDED, &head, 512, 4096, true), sizeof long_data - 1);
    cr_expect_arr_eq(out, long_data, sizeof long_data - 1);
}
