/* iSCSI PDUs: see pdu.h. Offsets are those of the figures in RFC 7143, section 11. */
#include "target/iscsi/pdu.h"

#include <assert.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"

enum {
    AT_OPCODE = 0,
    AT_FLAGS = 1,
    AT_AHS_LENGTH = 4,
    AT_DATA_LENGTH = 5,
    AT_LUN = 8,
    AT_ITT = 16,
    AT_TTT = 20, /* also EDTL, referenced task tag, CID */
    AT_CMD_SN = 24,
    AT_EXP_STAT_SN = 28,
    AT_CDB = 32,
    AT_REF_CMD_SN = 32,
    AT_DATA_SN = 36,
    AT_OFFSET = 40,
    /* from the target */
    AT_STAT_SN = 24,
    AT_EXP_CMD_SN = 28,
    AT_MAX_CMD_SN = 32,
};
static_assert(AT_CDB + 16 == PDU_BHS_BYTES, "the CDB ends the BHS");
static_assert(AT_OFFSET + 8 == PDU_BHS_BYTES, "offset and one more word end the BHS");
static_assert(AT_MAX_CMD_SN + 4 == AT_DATA_SN, "the three sequence numbers stand before DataSN");

enum { AHS_EXTENDED_CDB = 1, AHS_BIDIRECTIONAL = 2 };

/* The list of additional header segments: 11.2.2. */
static enum pdu_reject decode_ahs(const uint8_t *ahs, uint32_t len, struct pdu *out)
{
    for (uint32_t at = 0, step; at < len; at += step) {
        uint32_t ahs_len = get_be16(ahs + at);
        uint8_t type = ahs[at + 2];
        step = (uint32_t)round_up(ahs_len + 3, 4);
        if (step > len - at || (type != AHS_EXTENDED_CDB && type != AHS_BIDIRECTIONAL))
            return PDU_REJECT_FIELD;
        out->command.extended |= type == AHS_EXTENDED_CDB;
    }
    return PDU_OK;
}

static enum pdu_reject decode_command(const uint8_t *h, struct pdu *out)
{
    out->command.read = (h[AT_FLAGS] & PDU_READ) != 0;
    out->command.write = (h[AT_FLAGS] & PDU_WRITE) != 0;
    out->command.edtl = get_be32(h + AT_TTT);
    memcpy(out->command.cdb, h + AT_CDB, sizeof out->command.cdb);
    if (out->command.read && out->command.write)
        return PDU_REJECT_UNSUPPORTED; /* bidirectional */
    if (out->itt == PDU_TAG_NONE)
        return PDU_REJECT_FIELD;
    return decode_ahs(h + PDU_BHS_BYTES, out->ahs_len, out);
}

static enum pdu_reject decode_data_out(const uint8_t *h, struct pdu *out)
{
    out->data_out.data_sn = get_be32(h + AT_DATA_SN);
    out->data_out.offset = get_be32(h + AT_OFFSET);
    return PDU_OK;
}

static enum pdu_reject decode_login(const uint8_t *h, struct pdu *out)
{
    out->more = (h[AT_FLAGS] & PDU_CONTINUE) != 0;
    out->login.csg = (h[AT_FLAGS] >> 2) & 3;
    out->login.nsg = h[AT_FLAGS] & 3;
    out->login.version_min = h[3];
    memcpy(out->login.isid, h + AT_LUN, sizeof out->login.isid);
    out->login.tsih = get_be16(h + 14);
    out->login.cid = get_be16(h + AT_TTT);
    return PDU_OK;
}

static enum pdu_reject decode_task(const uint8_t *h, struct pdu *out)
{
    out->task.function = h[AT_FLAGS] & 0x7f;
    out->task.ref_itt = get_be32(h + AT_TTT);
    out->task.ref_cmd_sn = get_be32(h + AT_REF_CMD_SN);
    return out->itt == PDU_TAG_NONE ? PDU_REJECT_FIELD : PDU_OK;
}

static enum pdu_reject decode_text(const uint8_t *h, struct pdu *out)
{
    out->more = (h[AT_FLAGS] & PDU_CONTINUE) != 0;
    if (out->itt == PDU_TAG_NONE || (out->more && out->final))
        return PDU_REJECT_FIELD; /* 11.10.1: F with C is no more and more to come */
    return PDU_OK;
}

static enum pdu_reject decode_logout(const uint8_t *h, struct pdu *out)
{
    out->logout.reason = h[AT_FLAGS] & 0x7f;
    out->logout.cid = get_be16(h + AT_TTT);
    return out->itt == PDU_TAG_NONE ? PDU_REJECT_FIELD : PDU_OK;
}

static enum pdu_reject decode_nop(const uint8_t *h, struct pdu *out)
{
    (void)h;
    return out->itt == PDU_TAG_NONE && !out->immediate ? PDU_REJECT_FIELD : PDU_OK; /* 11.18 */
}

static enum pdu_reject decode_snack(const uint8_t *h, struct pdu *out)
{
    (void)h;
    (void)out;
    return PDU_REJECT_SNACK; /* error recovery level 0 */
}

static enum pdu_reject (*const decoders[])(const uint8_t *, struct pdu *) = {
    [PDU_NOP_OUT] = decode_nop,   [PDU_COMMAND] = decode_command, [PDU_TASK] = decode_task,
    [PDU_LOGIN] = decode_login,   [PDU_TEXT] = decode_text,       [PDU_DATA_OUT] = decode_data_out,
    [PDU_LOGOUT] = decode_logout, [PDU_SNACK] = decode_snack,
};

enum pdu_reject pdu_decode(const uint8_t *header, struct pdu *out)
{
    *out = (struct pdu){
        .opcode = header[AT_OPCODE] & 0x3f,
        .immediate = (header[AT_OPCODE] & 0x40) != 0,
        .final = (header[AT_FLAGS] & PDU_FINAL) != 0,
        .ahs_len = header[AT_AHS_LENGTH] * 4u,
        .data_len = get_be24(header + AT_DATA_LENGTH),
        .itt = get_be32(header + AT_ITT),
        .ttt = get_be32(header + AT_TTT),
        .cmd_sn = get_be32(header + AT_CMD_SN),
        .exp_stat_sn = get_be32(header + AT_EXP_STAT_SN),
    };
    memcpy(out->lun, header + AT_LUN, sizeof out->lun);
    if (out->opcode >= ARRAY_LENGTH(decoders) || decoders[out->opcode] == NULL)
        return PDU_REJECT_UNSUPPORTED;
    if (out->ahs_len > 0 && out->opcode != PDU_COMMAND)
        return PDU_REJECT_FIELD;
    return decoders[out->opcode](header, out);
}

void pdu_encode(const struct pdu_out *in, uint8_t bhs[PDU_BHS_BYTES])
{
    memset(bhs, 0, PDU_BHS_BYTES);
    bhs[AT_OPCODE] = (uint8_t)in->opcode;
    bhs[AT_FLAGS] = in->flags;
    bhs[2] = in->byte2;
    bhs[3] = in->byte3;
    memcpy(bhs + AT_LUN, in->lun, sizeof in->lun);
    put_be32(bhs + AT_ITT, in->itt);
    put_be32(bhs + AT_TTT, in->ttt);
    put_be32(bhs + AT_DATA_SN, in->word36);
    put_be32(bhs + AT_OFFSET, in->word40);
    put_be32(bhs + AT_OFFSET + 4, in->word44);
}

void pdu_stamp(uint8_t bhs[PDU_BHS_BYTES], uint32_t stat_sn, uint32_t exp_cmd_sn, uint32_t max_cmd_sn)
{
    put_be32(bhs + AT_STAT_SN, stat_sn);
    put_be32(bhs + AT_EXP_CMD_SN, exp_cmd_sn);
    put_be32(bhs + AT_MAX_CMD_SN, max_cmd_sn);
}

static uint32_t padding(uint32_t data_len)
{
    return -data_len & 3;
}

uint32_t pdu_tail(uint8_t out[PDU_TAIL_MAX], uint32_t data_len, bool digest, uint32_t crc)
{
    uint32_t len = padding(data_len);
    memset(out, 0, len);
    if (!digest || data_len == 0)
        return len;
    put_le32(out + len, crc32c(crc, out, len)); /* 13.1: the pad bytes count; its bytes go out lowest first */
    return len + PDU_DIGEST_BYTES;
}

static uint32_t header_bytes(const struct pdu_reader *r)
{
    return PDU_BHS_BYTES + (r->got >= PDU_BHS_BYTES ? r->header[AT_AHS_LENGTH] * 4u : 0);
}

static uint32_t header_wanted(const struct pdu_reader *r)
{
    return header_bytes(r) + (r->header_digest && r->got >= PDU_BHS_BYTES ? PDU_DIGEST_BYTES : 0);
}

/* Fill up to `wanted` bytes of `to`; returns how many bytes were taken. */
static size_t fill(struct pdu_reader *r, uint8_t *to, uint32_t wanted, const uint8_t *bytes, size_t len)
{
    size_t n = MIN(len, (size_t)(wanted - r->got));
    memcpy(to + r->got, bytes, n);
    r->got += (uint32_t)n;
    return n;
}

static size_t take_header(struct pdu_reader *r, const uint8_t *bytes, size_t len, enum pdu_event *event)
{
    size_t taken = 0;
    if (r->got < PDU_BHS_BYTES)
        taken = fill(r, r->header, PDU_BHS_BYTES, bytes, len);
    if (r->got >= PDU_BHS_BYTES && taken < len)
        taken += fill(r, r->header, header_wanted(r), bytes + taken, len - taken);
    *event = PDU_MORE;
    if (r->got < PDU_BHS_BYTES || r->got < header_wanted(r))
        return taken;
    uint32_t plain = header_bytes(r);
    bool good = !r->header_digest || crc32c(0, r->header, plain) == get_le32(r->header + plain);
    *event = good ? PDU_HEADER : PDU_BAD_HEADER;
    r->data_len = r->data_left = get_be24(r->header + AT_DATA_LENGTH);
    r->part = r->data_len > 0 ? PDU_IN_DATA : PDU_IN_TAIL;
    r->got = r->crc = 0;
    return taken;
}

static size_t take_tail(struct pdu_reader *r, const uint8_t *bytes, size_t len, enum pdu_event *event)
{
    uint32_t pad = padding(r->data_len);
    bool digest = r->data_digest && r->data_len > 0;
    uint32_t wanted = pad + (digest ? PDU_DIGEST_BYTES : 0);
    size_t taken = wanted > 0 ? fill(r, r->tail, wanted, bytes, len) : 0;
    *event = PDU_MORE;
    if (r->got < wanted)
        return taken;
    bool good = !digest || crc32c(r->crc, r->tail, pad) == get_le32(r->tail + pad);
    *event = good ? PDU_COMPLETE : PDU_BAD_DATA;
    r->part = PDU_IN_HEADER;
    r->got = 0;
    return taken;
}

size_t pdu_reader_take(struct pdu_reader *reader, const uint8_t *bytes, size_t len, enum pdu_event *event)
{
    switch (reader->part) {
    case PDU_IN_HEADER:
        return take_header(reader, bytes, len, event);
    case PDU_IN_DATA:
        *event = PDU_DATA;
        return 0;
    case PDU_IN_TAIL:
        return take_tail(reader, bytes, len, event);
    }
    UNREACHABLE("part of a PDU");
}

void pdu_reader_moved(struct pdu_reader *reader, const void *bytes, uint32_t len)
{
    ASSERT(reader->part == PDU_IN_DATA && len <= reader->data_left);
    if (reader->data_digest)
        reader->crc = crc32c(reader->crc, bytes, len);
    reader->data_left -= len;
    if (reader->data_left == 0)
        reader->part = PDU_IN_TAIL;
}
