/*
 * Load by iSCSI (RFC 7143): login without authentication, one session a connection, READ(16) and WRITE(16) pipelined
 * within the command window.
 *
 * A write carries immediate data, then unsolicited Data-Out up to FirstBurstLength, then what R2Ts ask for. A read ends
 * with a Data-In that has the status, or with a SCSI Response. Digests of what is sent are computed; of what is
 * received, those of headers are checked, and those of data are left to the stamps.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "tests/bench/load.h"

enum { DIGESTS_AGREED = 2 };
enum { PDU_ROOM = 48 + 2 * 4 };
enum { BHS = 48, BURST = 262144, LOGIN_TEXT = 8192, FINAL = 0x80, RESERVED_TAG = 0xffffffff };
enum opcode {
    NOP_OUT = 0x00,
    SCSI_COMMAND = 0x01,
    LOGIN_REQUEST = 0x03,
    DATA_OUT = 0x05,
    NOP_IN = 0x20,
    SCSI_RESPONSE = 0x21,
    LOGIN_RESPONSE = 0x23,
    DATA_IN = 0x25,
    R2T = 0x31,
    REJECT = 0x3f,
    ASYNC_MESSAGE = 0x32,
    IMMEDIATE = 0x40,
};

struct session {
    uint32_t command_sn, status_sn_expected, command_sn_max;
    uint32_t segment_max; /* the target takes as much in a PDU */
    uint32_t burst_max, first_burst;
    bool initial_r2t, immediate_data;
    unsigned digest; /* bytes of one: 4, or 0 without */
    uint32_t logical_block;
    uint8_t ping[PDU_ROOM];
};

static uint32_t padded(uint32_t len)
{
    return (len + 3) & ~3u;
}

/* Behind a header of BHS bytes; returns how many bytes both have. */
static uint32_t add_header_digest(const struct session *s, uint8_t *bhs)
{
    if (s->digest > 0)
        put_le32(bhs + BHS, crc32c(0, bhs, BHS));
    return BHS + s->digest;
}

static void check_header_digest(const struct session *s, const uint8_t *bhs)
{
    if (s->digest > 0 && get_le32(bhs + BHS) != crc32c(0, bhs, BHS))
        load_fail("a header of opcode %02x with a wrong digest", bhs[0]);
}

static void take_sequence_numbers(struct session *s, const uint8_t *bhs, bool has_status)
{
    if (has_status)
        s->status_sn_expected = get_be32(bhs + 24) + 1;
    if ((int32_t)(get_be32(bhs + 32) - s->command_sn_max) > 0)
        s->command_sn_max = get_be32(bhs + 32);
}

/* -- login
 * ------------------------------------------------------------------------------------------------------------- */

static uint32_t add_key(char *text, uint32_t at, const char *format, const char *value)
{
    return at + (uint32_t)snprintf(text + at, LOGIN_TEXT - at, format, value) + 1;
}

static void take_key(struct session *s, const char *pair)
{
    const char *value = strchr(pair, '=');
    if (value == NULL)
        return;
    uint32_t key = (uint32_t)(value++ - pair), number = (uint32_t)strtoul(value, NULL, 0);
    const struct {
        const char *name;
        uint32_t *number;
    } limits[] = {{"MaxRecvDataSegmentLength", &s->segment_max},
                  {"MaxBurstLength", &s->burst_max},
                  {"FirstBurstLength", &s->first_burst}};
    for (unsigned i = 0; i < ARRAY_LENGTH(limits); i++)
        if (strlen(limits[i].name) == key && strncmp(pair, limits[i].name, key) == 0)
            *limits[i].number = MIN(number, (uint32_t)BURST);
    if (strcmp(pair, "HeaderDigest=CRC32C") == 0 || strcmp(pair, "DataDigest=CRC32C") == 0)
        s->digest++;
    if (strncmp(pair, "InitialR2T=", 11) == 0)
        s->initial_r2t = strcmp(value, "Yes") == 0;
    if (strncmp(pair, "ImmediateData=", 14) == 0)
        s->immediate_data = strcmp(value, "Yes") == 0;
}

/* Send one login request, take the keys of its answer. True: the target goes on to the next stage. */
static bool login_step(struct load_connection *c, unsigned stage, unsigned next, const char *text, uint32_t len)
{
    struct session *s = c->state;
    uint8_t bhs[BHS] = {LOGIN_REQUEST | IMMEDIATE, (uint8_t)(FINAL | stage << 2 | next)};
    char answer[LOGIN_TEXT + 1] = {0};
    put_be24(bhs + 5, len);
    put_be32(bhs + 8, 0x80000000u | c->index << 8); /* ISID: random format, one a connection */
    put_be16(bhs + 12, (uint16_t)getpid());
    put_be32(bhs + 24, s->command_sn);
    put_be32(bhs + 28, s->status_sn_expected);
    load_send_all(c, bhs, BHS);
    load_send_all(c, text, padded(len)); /* the text has room behind it */
    load_receive_all(c, bhs, BHS);
    uint32_t answered = get_be24(bhs + 5);
    if (bhs[0] != LOGIN_RESPONSE || answered > LOGIN_TEXT)
        load_fail("login: an answer that makes no sense: %02x", bhs[0]);
    load_receive_all(c, answer, padded(answered));
    if (bhs[36] != 0)
        load_fail("login to %s refused: status %02x%02x", c->options->export_, bhs[36], bhs[37]);
    take_sequence_numbers(s, bhs, true);
    for (uint32_t at = 0; at < answered; at += (uint32_t)strlen(answer + at) + 1)
        take_key(s, answer + at);
    return bhs[1] & FINAL;
}

static void login(struct load_connection *c)
{
    struct session *s = c->state;
    static const char *const operational[] = {
        "InitialR2T=No",         "ImmediateData=Yes",    "FirstBurstLength=262144",
        "MaxBurstLength=262144", "MaxOutstandingR2T=1",  "MaxRecvDataSegmentLength=262144",
        "MaxConnections=1",      "ErrorRecoveryLevel=0", "DefaultTime2Wait=2",
        "DefaultTime2Retain=0",  "DataPDUInOrder=Yes",   "DataSequenceInOrder=Yes",
    };
    char text[LOGIN_TEXT + 4] = {0};
    uint32_t len = add_key(text, 0, "InitiatorName=%s", "iqn.2026-01.org.corbel:load");
    len = add_key(text, len, "TargetName=%s", c->options->export_);
    len = add_key(text, len, "%s", "SessionType=Normal");
    len = add_key(text, len, "%s", "AuthMethod=None");
    if (!login_step(c, 0, 1, text, len))
        load_fail("login: the target wants to go on about security");
    memset(text, 0, sizeof text);
    len = 0;
    for (unsigned i = 0; i < ARRAY_LENGTH(operational); i++)
        len = add_key(text, len, "%s", operational[i]);
    len = add_key(text, len, "HeaderDigest=%s", c->options->digests ? "CRC32C" : "None");
    len = add_key(text, len, "DataDigest=%s", c->options->digests ? "CRC32C" : "None");
    for (unsigned tries = 0; !login_step(c, 1, 3, text, len); tries++, len = 0)
        if (tries == 5)
            load_fail("login: the target never ends it");
    if (s->digest != 0 && s->digest != DIGESTS_AGREED)
        load_fail("login: one digest of two was agreed on");
    if (c->options->digests && s->digest == 0)
        load_fail("login: the target does not agree on digests");
    s->digest = s->digest > 0 ? 4 : 0;
    c->header_bytes += s->digest;
}

/* -- commands
 * ---------------------------------------------------------------------------------------------------------- */

static void put_command(struct load_connection *c, uint8_t *bhs, uint32_t tag, unsigned flags, uint32_t expected)
{
    struct session *s = c->state;
    memset(bhs, 0, BHS);
    bhs[0] = SCSI_COMMAND;
    bhs[1] = (uint8_t)(FINAL | flags | 1); /* simple task */
    put_be16(bhs + 8, (uint16_t)c->options->lun);
    put_be32(bhs + 16, tag);
    put_be32(bhs + 20, expected);
    put_be32(bhs + 24, s->command_sn++);
    put_be32(bhs + 28, s->status_sn_expected);
}

/* READ CAPACITY (16), blocking. False: check condition (a unit attention, at first). */
static bool read_capacity(struct load_connection *c)
{
    struct session *s = c->state;
    uint8_t bhs[BHS + 4], data[4096];
    bool has_status = false;
    put_command(c, bhs, 0, 0x40, 32);
    bhs[32] = 0x9e;
    bhs[33] = 0x10;
    put_be32(bhs + 42, 32);
    load_send_all(c, bhs, add_header_digest(s, bhs));
    while (!has_status) {
        load_receive_all(c, bhs, c->header_bytes);
        check_header_digest(s, bhs);
        uint32_t len = get_be24(bhs + 5);
        bool is_data = bhs[0] == DATA_IN;
        if (len > sizeof data - 8 || (!is_data && bhs[0] != SCSI_RESPONSE))
            load_fail("READ CAPACITY: an answer that makes no sense: %02x", bhs[0]);
        load_receive_all(c, data, padded(len) + (len > 0 ? s->digest : 0));
        has_status = !is_data || (bhs[1] & 1);
        take_sequence_numbers(s, bhs, has_status);
        if (is_data && len >= 12) {
            s->logical_block = get_be32(data + 8);
            c->device_size = (get_be64(data) + 1) * s->logical_block;
        }
    }
    return bhs[3] == 0;
}

static void iscsi_open(struct load_connection *c)
{
    struct session *s = c->state = calloc(1, sizeof *s);
    if (s == NULL)
        load_fail("no memory");
    *s = (struct session){.command_sn = 1,
                          .segment_max = 8192,
                          .burst_max = BURST,
                          .first_burst = 65536,
                          .initial_r2t = true,
                          .immediate_data = true};
    login(c);
    for (unsigned tries = 0; !read_capacity(c); tries++)
        if (tries == 5)
            load_fail("LUN %u: READ CAPACITY (16) fails", c->options->lun);
    if (s->logical_block == 0 || c->options->block % s->logical_block != 0)
        load_fail("LUN %u has blocks of %u bytes", c->options->lun, s->logical_block);
}

static unsigned pdus_per_slot(const struct load_connection *c)
{
    const struct session *s = c->state;
    return 3 + c->options->block / s->segment_max + c->options->block / s->burst_max;
}

static unsigned out_per_slot(const struct load_connection *c)
{
    return 3 * pdus_per_slot(c) + 1; /* and a share of the pings */
}

static unsigned headers_per_slot(const struct load_connection *c)
{
    return PDU_ROOM * pdus_per_slot(c);
}

static bool may_issue(const struct load_connection *c)
{
    const struct session *s = c->state;
    return (int32_t)(s->command_sn_max - s->command_sn) >= 0;
}

/* A header with room for both digests behind it, and data of a length that needs no padding. */
static void append_pdu(struct load_connection *c, uint8_t *bhs, const uint8_t *data, uint32_t len)
{
    const struct session *s = c->state;
    load_append(c, bhs, add_header_digest(s, bhs));
    if (len == 0)
        return;
    load_append(c, data, len);
    if (s->digest == 0)
        return;
    put_le32(bhs + BHS + 4, crc32c(0, data, len));
    load_append(c, bhs + BHS + 4, 4);
}

/* A sequence of Data-Out: unsolicited (RESERVED_TAG) or what an R2T asked for. */
static void append_data_out(struct load_connection *c, struct load_slot *slot, uint32_t transfer_tag, uint32_t from,
                            uint32_t len)
{
    struct session *s = c->state;
    for (uint32_t done = 0, sn = 0; done < len; sn++) {
        uint32_t n = MIN(len - done, s->segment_max);
        uint8_t *bhs = memset(slot->headers + slot->headers_used, 0, BHS);
        ASSERT(slot->headers_used + PDU_ROOM <= headers_per_slot(c));
        slot->headers_used += PDU_ROOM;
        bhs[0] = DATA_OUT;
        bhs[1] = done + n == len ? FINAL : 0;
        put_be24(bhs + 5, n);
        put_be16(bhs + 8, (uint16_t)c->options->lun);
        put_be32(bhs + 16, slot->index);
        put_be32(bhs + 20, transfer_tag);
        put_be32(bhs + 28, s->status_sn_expected);
        put_be32(bhs + 36, sn);
        put_be32(bhs + 40, from + done);
        append_pdu(c, bhs, slot->data + from + done, n);
        done += n;
    }
}

static void issue(struct load_connection *c, struct load_slot *slot, bool is_write)
{
    struct session *s = c->state;
    uint32_t block = c->options->block, unsolicited = MIN(block, s->first_burst);
    uint32_t immediate = is_write && s->immediate_data ? MIN(unsolicited, s->segment_max) : 0;
    uint32_t more = is_write && !s->initial_r2t ? unsolicited - immediate : 0;
    uint8_t *bhs = slot->headers;
    put_command(c, bhs, slot->index, is_write ? 0x20 : 0x40, block);
    if (more > 0)
        bhs[1] &= (uint8_t)~FINAL;
    put_be24(bhs + 5, immediate);
    bhs[32] = is_write ? 0x8a : 0x88;
    put_be64(bhs + 34, slot->off / s->logical_block);
    put_be32(bhs + 42, block / s->logical_block);
    slot->headers_used = PDU_ROOM;
    append_pdu(c, bhs, slot->data, immediate);
    append_data_out(c, slot, RESERVED_TAG, immediate, more);
}

static struct load_slot *slot_of(struct load_connection *c, const uint8_t *bhs)
{
    uint32_t tag = get_be32(bhs + 16);
    if (tag >= c->options->depth)
        load_fail("a PDU for a task that is not: opcode %02x tag %08x", bhs[0], tag);
    return &c->slots[tag];
}

/* One ping at a time may wait to be sent: targets send the next after the answer. */
static void answer_ping(struct load_connection *c, const uint8_t *bhs)
{
    struct session *s = c->state;
    if (get_be32(bhs + 20) == RESERVED_TAG)
        return;
    memset(s->ping, 0, sizeof s->ping);
    s->ping[0] = NOP_OUT | IMMEDIATE;
    s->ping[1] = FINAL;
    memcpy(s->ping + 8, bhs + 8, 8);
    put_be32(s->ping + 16, RESERVED_TAG);
    memcpy(s->ping + 20, bhs + 20, 4);
    put_be32(s->ping + 24, s->command_sn);
    put_be32(s->ping + 28, s->status_sn_expected);
    append_pdu(c, s->ping, NULL, 0);
}

static void header(struct load_connection *c, const uint8_t *bhs)
{
    struct session *s = c->state;
    bool ends_read = bhs[0] == DATA_IN && (bhs[1] & 1);
    uint32_t len = get_be24(bhs + 5);
    check_header_digest(s, bhs);
    c->payload_left = padded(len) + 4u * bhs[4] + (len > 0 ? s->digest : 0);
    take_sequence_numbers(s, bhs, ends_read || bhs[0] == SCSI_RESPONSE);
    switch (bhs[0]) {
    case DATA_IN:
        if (ends_read)
            c->completing = slot_of(c, bhs);
        c->failed_status = ends_read && bhs[3] != 0;
        return;
    case SCSI_RESPONSE:
        c->completing = slot_of(c, bhs);
        c->failed_status = bhs[2] != 0 || bhs[3] != 0;
        return;
    case R2T:
        append_data_out(c, slot_of(c, bhs), get_be32(bhs + 20), get_be32(bhs + 40), get_be32(bhs + 44));
        return;
    case NOP_IN:
        answer_ping(c, bhs);
        return;
    default:
        load_fail("the target sent a PDU of opcode %02x", bhs[0]);
    }
}

static const struct load_protocol iscsi = {BHS, iscsi_open, out_per_slot, headers_per_slot, may_issue, issue, header};

int main(int argc, char **argv)
{
    return load_main(argc, argv, &iscsi);
}
