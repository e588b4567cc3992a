/* VPD page 8F: what third-party copies there can be (SPC-4 7.8.17). Descriptors in ascending order of their types. */
#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/copy_list.h"
#include "target/scsi/copy_result.h"
#include "target/scsi/rod_token.h"
#include "target/scsi/vpd.h"

enum {
    DESCRIPTOR_TOKEN_LIMITS = 0x0000,
    DESCRIPTOR_TOKEN_FEATURES = 0x0106,
    DESCRIPTOR_TOKEN_TYPES = 0x0108,
    DESCRIPTOR_COMMANDS = 0x0001,
    DESCRIPTOR_PARAMETERS = 0x0004,
    DESCRIPTOR_DESCRIPTORS = 0x0008,
    DESCRIPTOR_CSCD_IDS = 0x000c,
    DESCRIPTOR_GENERAL = 0x8001,
};
enum { HEADER = 4 };

/* `len` bytes follow the header, which are made a multiple of four. Returns the bytes of all. */
static uint32_t close_descriptor(uint8_t *out, uint16_t type, uint32_t len)
{
    len = (uint32_t)round_up(len, 4);
    put_be16(out, type);
    put_be16(out + 2, (uint16_t)len);
    return HEADER + len;
}

/* SBC-3 6.6.6.3: Block Device ROD Token Limits. */
static uint32_t put_token_limits(uint8_t *out, const struct scsi_lu *lu)
{
    put_be16(out + 10, ROD_RANGES_MAX);
    put_be32(out + 12, ROD_PATIENCE_MAX_S);
    put_be32(out + 16, ROD_PATIENCE_S);
    put_be64(out + 20, ROD_BYTES_MAX / lu_block(lu));
    put_be64(out + 28, ROD_BYTES_OPTIMAL / lu_block(lu));
    return close_descriptor(out, DESCRIPTOR_TOKEN_LIMITS, 0x20);
}

/* SPC-4 7.8.17.10, with the part that is a block device's (SBC-3 6.6.6.2). */
static uint32_t put_token_features(uint8_t *out)
{
    enum { AT_BLOCK = 48, BLOCK_BYTES = 0x30 };
    put_be32(out + 20, ROD_PATIENCE_MAX_S);
    put_be32(out + 24, ROD_PATIENCE_MAX_S);
    put_be16(out + 46, BLOCK_BYTES);
    put_be16(out + AT_BLOCK + 2, BLOCK_BYTES - 4);
    put_be64(out + AT_BLOCK + 8, ROD_BYTES_MAX);
    put_be64(out + AT_BLOCK + 16, ROD_BYTES_OPTIMAL);
    return close_descriptor(out, DESCRIPTOR_TOKEN_FEATURES, AT_BLOCK - HEADER + BLOCK_BYTES);
}

/* SPC-4 7.8.17.11: what tokens can be made of, and used. */
static uint32_t put_token_types(uint8_t *out)
{
    enum { EACH = 64, TOKEN_OUT = 0x01, TOKEN_IN = 0x02 };
    uint8_t *type = out + 8;
    put_be16(out + 6, 2 * EACH);
    put_be32(type, ROD_TYPE_ACCESS);
    type[4] = TOKEN_OUT | TOKEN_IN;
    put_be16(type + 6, 1); /* PREFERENCE INDICATOR */
    put_be32(type + EACH, ROD_TYPE_ZERO);
    type[EACH + 4] = TOKEN_IN;
    return close_descriptor(out, DESCRIPTOR_TOKEN_TYPES, 4 + 2 * EACH);
}

/* The service actions of the table of commands. */
static uint32_t put_actions(uint8_t *out, uint8_t opcode)
{
    unsigned count, found = 0;
    const struct scsi_command *rows = scsi_commands(&count);
    for (unsigned i = 0; i < count; i++)
        if (rows[i].opcode == opcode)
            out[2 + found++] = rows[i].action;
    out[0] = opcode;
    out[1] = (uint8_t)found;
    return 2 + found;
}

static uint32_t put_commands(uint8_t *out)
{
    uint8_t *list = out + HEADER + 1;
    uint32_t len = put_actions(list, 0x83);
    len += put_actions(list + len, 0x84);
    out[HEADER] = (uint8_t)len;
    return close_descriptor(out, DESCRIPTOR_COMMANDS, 1 + len);
}

static uint32_t put_parameters(uint8_t *out)
{
    put_be16(out + 8, COPY_CSCDS_MAX);
    put_be16(out + 10, COPY_SEGMENTS_MAX);
    put_be32(out + 12, COPY_DESCRIPTORS_MAX);
    return close_descriptor(out, DESCRIPTOR_PARAMETERS, 0x1c);
}

static uint32_t put_descriptors(uint8_t *out)
{
    out[4] = 2;
    out[5] = SEGMENT_BLOCK_TO_BLOCK;
    out[6] = CSCD_IDENTIFICATION;
    return close_descriptor(out, DESCRIPTOR_DESCRIPTORS, 3);
}

static uint32_t put_cscd_ids(uint8_t *out)
{
    put_be16(out + 4, 2);
    put_be16(out + 6, CSCD_ADDRESSED);
    return close_descriptor(out, DESCRIPTOR_CSCD_IDS, 4);
}

static uint32_t put_general(uint8_t *out, const struct scsi_lu *lu)
{
    put_be32(out + 4, COPY_RESULTS_MAX);
    put_be32(out + 8, COPY_RESULTS_MAX);
    put_be32(out + 12, SCSI_COPY_SEGMENT_MAX);
    out[16] = (uint8_t)__builtin_ctz(lu_block(lu));
    return close_descriptor(out, DESCRIPTOR_GENERAL, 0x20);
}

uint32_t scsi_vpd_copy(uint8_t *out, const struct scsi_lu *lu)
{
    uint32_t len = put_token_limits(out, lu);
    len += put_commands(out + len);
    len += put_parameters(out + len);
    len += put_descriptors(out + len);
    len += put_cscd_ids(out + len);
    len += put_token_features(out + len);
    len += put_token_types(out + len);
    len += put_general(out + len, lu);
    return len;
}
