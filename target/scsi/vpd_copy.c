/* VPD page 8F: what third-party copies there can be (SPC-4 7.8.17). Descriptors in ascending order of their types. */
#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/copy_list.h"
#include "target/scsi/copy_result.h"
#include "target/scsi/vpd.h"

enum {
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
    uint32_t len = put_commands(out);
    len += put_parameters(out + len);
    len += put_descriptors(out + len);
    len += put_cscd_ids(out + len);
    len += put_general(out + len, lu);
    return len;
}
