/* PDUs as bytes and as values: target/iscsi/pdu.h. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "target/iscsi/pdu.h"
#include "tests/unit/lib/testloop.h"

Test(iscsi_pdu, decode_accepts_or_names_the_reason)
{
    static const struct {
        const char *what;
        uint8_t bhs[8];
        uint32_t itt;
        uint8_t ahs[8];
        enum pdu_reject reason;
    } cases[] = {
        {"NOP-Out", {0x00, 0x80}, 1, {0}, PDU_OK},
        {"NOP-Out without a tag must be immediate", {0x00, 0x80}, PDU_TAG_NONE, {0}, PDU_REJECT_FIELD},
        {"immediate NOP-Out without a tag", {0x40, 0x80}, PDU_TAG_NONE, {0}, PDU_OK},
        {"SCSI command", {0x01, 0xc0}, 1, {0}, PDU_OK},
        {"SCSI command without a tag", {0x01, 0xc0}, PDU_TAG_NONE, {0}, PDU_REJECT_FIELD},
        {"bidirectional command", {0x01, 0xe0}, 1, {0}, PDU_REJECT_UNSUPPORTED},
        {"extended CDB", {0x01, 0xc0, 0, 0, 2}, 1, {0, 5, 1, 0}, PDU_OK},
        {"an AHS longer than all of them", {0x01, 0xc0, 0, 0, 1}, 1, {0, 9, 1, 0}, PDU_REJECT_FIELD},
        {"an AHS of 64 KiB", {0x01, 0xc0, 0, 0, 1}, 1, {0xff, 0xff, 1, 0}, PDU_REJECT_FIELD},
        {"an AHS of unknown type", {0x01, 0xc0, 0, 0, 1}, 1, {0, 1, 9, 0}, PDU_REJECT_FIELD},
        {"an AHS where none may be", {0x05, 0x80, 0, 0, 1}, 1, {0, 1, 1, 0}, PDU_REJECT_FIELD},
        {"text with F and C", {0x04, 0xc0}, 1, {0}, PDU_REJECT_FIELD},
        {"text with C", {0x04, 0x40}, 1, {0}, PDU_OK},
        {"SNACK", {0x10, 0x80}, 1, {0}, PDU_REJECT_SNACK},
        {"a target's opcode", {0x21, 0x80}, 1, {0}, PDU_REJECT_UNSUPPORTED},
        {"an unknown opcode", {0x1c, 0x80}, 1, {0}, PDU_REJECT_UNSUPPORTED},
        {"logout", {0x46, 0x80}, 1, {0}, PDU_OK},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint8_t header[PDU_BHS_BYTES + 8] = {0};
        struct pdu pdu;
        memcpy(header, cases[i].bhs, 8);
        put_be32(header + 16, cases[i].itt);
        memcpy(header + PDU_BHS_BYTES, cases[i].ahs, 8);
        cr_expect_eq(pdu_decode(header, &pdu), cases[i].reason, "%s", cases[i].what);
    }
}

Test(iscsi_pdu, decode_finds_every_field)
{
    uint8_t h[PDU_BHS_BYTES + 4] = {0x41, 0xa1, 0, 0, 1, 0, 0x10, 0x01, 0, 7};
    struct pdu pdu;
    put_be32(h + 16, 0x11223344);
    put_be32(h + 20, 0x55667788);
    put_be32(h + 24, 3);
    put_be32(h + 28, 4);
    h[32] = 0x2a;
    h[47] = 0x77;
    memcpy(h + 48, (uint8_t[]){0, 1, 1, 0}, 4);
    cr_assert_eq(pdu_decode(h, &pdu), PDU_OK);
    cr_expect(pdu.opcode == PDU_COMMAND && pdu.immediate && pdu.final);
    cr_expect(pdu.ahs_len == 4 && pdu.data_len == 0x1001 && pdu.lun[1] == 7 && pdu.itt == 0x11223344);
    cr_expect(pdu.command.write && !pdu.command.read && pdu.command.extended && pdu.command.edtl == 0x55667788);
    cr_expect(pdu.cmd_sn == 3 && pdu.exp_stat_sn == 4 && pdu.command.cdb[0] == 0x2a && pdu.command.cdb[15] == 0x77);
}

Test(iscsi_pdu, encode_puts_every_field_in_its_place)
{
    struct pdu_out out = {PDU_R2T, PDU_FINAL, 1, 2, {0, 9}, 0x01020304, 0x05060708, 10, 11, 12};
    uint8_t b[PDU_BHS_BYTES];
    pdu_encode(&out, b);
    pdu_stamp(b, 21, 22, 23);
    cr_expect(b[0] == 0x31 && b[1] == 0x80 && b[2] == 1 && b[3] == 2 && b[9] == 9);
    cr_expect(get_be32(b + 16) == 0x01020304 && get_be32(b + 20) == 0x05060708);
    for (unsigned i = 0; i < 6; i++)
        cr_expect_eq(get_be32(b + 24 + 4 * i), i < 3 ? 21 + i : 7 + i, "word %u", i);
}

/* A stream of PDUs with data of every length from 0 to 9, and what a reader makes of it. */
struct stream_case {
    bool header_digest, data_digest;
    unsigned flip; /* byte of the stream to spoil; 0: none */
};

static size_t stream_make(uint8_t *out, const struct stream_case *c)
{
    size_t at = 0;
    for (uint32_t len = 0; len < 10; len++) {
        uint8_t *h = out + at, data[10];
        uint32_t ahs = len == 5 ? 8 : 0;
        memset(h, 0, PDU_BHS_BYTES + ahs);
        h[4] = (uint8_t)(ahs / 4);
        put_be24(h + 5, len);
        put_be32(h + 16, len);
        at += PDU_BHS_BYTES + ahs;
        if (c->header_digest) {
            put_le32(out + at, crc32c(0, h, PDU_BHS_BYTES + ahs));
            at += 4;
        }
        memset(data, (int)len + 1, sizeof data);
        memcpy(out + at, data, len);
        at += len;
        at += pdu_tail(out + at, len, c->data_digest, crc32c(0, data, len));
    }
    if (c->flip)
        out[c->flip] ^= 1;
    return at;
}

/* Reads in pieces of `piece` bytes; returns how many PDUs came through whole, and the event that ended it. */
static unsigned stream_read(const uint8_t *bytes, size_t len, size_t piece, const struct stream_case *c,
                            enum pdu_event *last)
{
    struct pdu_reader reader = {.header_digest = c->header_digest, .data_digest = c->data_digest};
    unsigned count = 0;
    *last = PDU_MORE;
    for (size_t at = 0, end; at < len; at = end) {
        end = MIN(at + piece, len);
        do {
            at += pdu_reader_take(&reader, bytes + at, end - at, last);
            if (*last == PDU_BAD_HEADER || *last == PDU_BAD_DATA)
                return count;
            if (*last == PDU_HEADER)
                cr_assert_eq(get_be32(reader.header + 16), count);
            if (*last == PDU_DATA && at < end) {
                uint32_t n = (uint32_t)MIN(reader.data_left, end - at);
                cr_assert(c->flip || bytes[at] == count + 1);
                pdu_reader_moved(&reader, bytes + at, n);
                at += n;
            } else if (*last == PDU_DATA) {
                break;
            }
            count += *last == PDU_COMPLETE;
        } while (*last != PDU_MORE);
    }
    return count;
}

Test(iscsi_pdu, a_stream_may_be_cut_anywhere)
{
    for (unsigned digests = 0; digests < 4; digests++) {
        struct stream_case c = {digests & 1, digests & 2, 0};
        uint8_t bytes[2048];
        size_t len = stream_make(bytes, &c);
        for (size_t piece = 1; piece <= len; piece += piece < 70 ? 1 : 333) {
            enum pdu_event last;
            cr_expect_eq(stream_read(bytes, len, piece, &c, &last), 10, "pieces of %zu, digests %u", piece, digests);
        }
    }
}

Test(iscsi_pdu, digests_find_one_wrong_bit)
{
    static const struct {
        unsigned flip, whole;
        enum pdu_event last;
    } cases[] = {
        {17, 0, PDU_BAD_HEADER},           /* in the first header */
        {49, 0, PDU_BAD_HEADER},           /* in its digest */
        {52 + 52, 1, PDU_BAD_DATA},        /* the data byte of the second */
        {52 + 52 + 2, 1, PDU_BAD_DATA},    /* a pad byte of it */
        {52 + 52 + 5, 1, PDU_BAD_DATA},    /* its digest */
        {52 + 60 + 10, 2, PDU_BAD_HEADER}, /* the third's header */
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct stream_case c = {true, true, cases[i].flip};
        uint8_t bytes[2048];
        size_t len = stream_make(bytes, &c);
        enum pdu_event last;
        cr_expect_eq(stream_read(bytes, len, 7, &c, &last), cases[i].whole, "byte %u", cases[i].flip);
        cr_expect_eq(last, cases[i].last, "byte %u", cases[i].flip);
    }
}

Test(iscsi_pdu, any_bytes_decode_without_harm)
{
    uint64_t seed = 3;
    for (unsigned i = 0; i < 20000; i++) {
        uint8_t header[PDU_HEADER_MAX];
        struct pdu pdu;
        test_fill(header, sizeof header, test_random(&seed));
        header[0] &= 0x5f;
        enum pdu_reject reason = pdu_decode(header, &pdu);
        cr_assert(reason == PDU_OK || (reason >= 2 && reason <= 9));
        cr_assert_eq(pdu.data_len, get_be24(header + 5));
    }
}

Test(iscsi_pdu, serial_numbers_wrap)
{
    cr_expect(serial_less(0xffffffffu, 0));
    cr_expect(serial_less(0xfffffff0u, 5));
    cr_expect_not(serial_less(5, 0xfffffff0u));
    cr_expect_not(serial_less(7, 7));
}
