/* INQUIRY data and vital product data pages: see vpd.h. */
#include "target/scsi/vpd.h"

#include "core/bytes.h"
#include "core/check.h"

static const char vendor[] = "CORBEL  ";

/* Text, cut or filled with blanks. */
static void put_text(uint8_t *out, uint32_t len, const char *text)
{
    size_t have = MIN(strlen(text), (size_t)len);
    memset(out, ' ', len);
    memcpy(out, text, have);
}

static const uint16_t version_descriptors[] = {
    0x00a0, /* SAM-5 */
    0x0960, /* iSCSI */
    0x0460, /* SPC-4 */
    0x04c0, /* SBC-3 */
};

void scsi_inquiry_build(uint8_t out[INQUIRY_BYTES], const struct scsi_lu *lu)
{
    memset(out, 0, INQUIRY_BYTES);
    out[0] = lu != NULL ? 0x00 : 0x7f;                       /* no device here, and none can be: SPC-4 6.6.2 */
    out[1] = lu != NULL && lu->options.removable ? 0x80 : 0; /* RMB */
    out[2] = 0x06;                                           /* SPC-4 */
    out[3] = 0x12;                                           /* HISUP, response data format 2 */
    out[5] = lu != NULL ? 0x18 : 0x10;                       /* TPGS: implicit; 3PC */
    out[4] = INQUIRY_BYTES - 5;
    out[6] = 0x10; /* MULTIP */
    out[7] = 0x02; /* CMDQUE */
    put_text(out + 8, 8, vendor);
    put_text(out + 16, 16, lu != NULL ? lu->options.product : "");
    put_text(out + 32, 4, CORBEL_VERSION);
    for (unsigned i = 0; i < ARRAY_LENGTH(version_descriptors); i++)
        put_be16(out + 58 + 2 * i, version_descriptors[i]);
}

/* --- VPD pages: each fills what follows the 4 bytes of header, and returns how much that is --- */

static uint32_t page_serial(uint8_t *out, const struct scsi_lu *lu)
{
    uint32_t len = (uint32_t)strlen(lu->options.serial);
    memcpy(out, lu->options.serial, len);
    return len;
}

enum { CODE_BINARY = 1, CODE_ASCII = 2, CODE_UTF8 = 3, OF_LU = 0x00, OF_PORT = 0x10, OF_TARGET = 0x20, ISCSI = 0x50 };
enum { DESIGNATOR_T10 = 1, DESIGNATOR_NAA = 3, DESIGNATOR_PORT = 4, DESIGNATOR_GROUP = 5, DESIGNATOR_NAME = 8 };

/* A designation descriptor (SPC-4 7.8.6.1); returns its bytes. Ports and targets say that they are iSCSI's. */
static uint32_t put_designator(uint8_t *out, uint8_t code, uint8_t kind, const void *bytes, uint32_t len)
{
    bool lu = (kind & 0x30) == OF_LU;
    out[0] = (uint8_t)(code | (lu ? 0 : ISCSI));
    out[1] = (uint8_t)(kind | (lu ? 0 : 0x80));
    out[2] = 0;
    out[3] = (uint8_t)len;
    memcpy(out + 4, bytes, len);
    return 4 + len;
}

/* A SCSI name string: closed by a zero, filled with zeroes to a multiple of 4 (SPC-4 7.8.6.11). */
static uint32_t put_name(uint8_t *out, uint8_t of, const char *name, const char *suffix)
{
    uint8_t text[256] = {0};
    size_t name_len = strlen(name), suffix_len = strlen(suffix);
    memcpy(text, name, name_len);
    memcpy(text + name_len, suffix, suffix_len);
    uint32_t len = (uint32_t)round_up(name_len + suffix_len + 1, 4);
    return put_designator(out, CODE_UTF8, (uint8_t)(of | DESIGNATOR_NAME), text, len);
}

static uint32_t page_identification(uint8_t *out, const struct scsi_lu *lu)
{
    static const uint8_t one[4] = {0, 0, 0, 1}; /* the only port, in the only group */
    uint8_t t10[8 + sizeof lu->options.serial];
    uint32_t at = 0, serial_len = (uint32_t)strlen(lu->options.serial);
    put_text(t10, 8, vendor);
    memcpy(t10 + 8, lu->options.serial, serial_len);
    at += put_designator(out + at, CODE_BINARY, OF_LU | DESIGNATOR_NAA, lu->options.naa, sizeof lu->options.naa);
    at += put_designator(out + at, CODE_ASCII, OF_LU | DESIGNATOR_T10, t10, 8 + serial_len);
    at += put_designator(out + at, CODE_BINARY, OF_PORT | DESIGNATOR_PORT, one, sizeof one);
    at += put_designator(out + at, CODE_BINARY, OF_PORT | DESIGNATOR_GROUP, one, sizeof one);
    at += put_name(out + at, OF_PORT, lu->target->name, ",t,0x0001");
    at += put_name(out + at, OF_TARGET, lu->target->name, "");
    return at;
}

/* SPC-4 7.8.9: there is no address to manage an LU by. */
static uint32_t page_management(uint8_t *out, const struct scsi_lu *lu)
{
    (void)out, (void)lu;
    return 0;
}

/* 7.8.11: all pages and subpages are shared by all nexuses. */
static uint32_t page_policy(uint8_t *out, const struct scsi_lu *lu)
{
    (void)lu;
    put_be16(out, 0x3fff);
    return 4;
}

/* 7.8.14: the one port and its name. */
static uint32_t page_ports(uint8_t *out, const struct scsi_lu *lu)
{
    enum { PORT_HEADER = 12, THE_PORT = 1 };
    put_be16(out + 2, THE_PORT);
    uint32_t len = put_name(out + PORT_HEADER, OF_PORT, lu->target->name, ",t,0x0001");
    put_be16(out + 10, (uint16_t)len);
    return PORT_HEADER + len;
}

static uint32_t page_extended(uint8_t *out, const struct scsi_lu *lu)
{
    out[1] = 0x01;                                       /* SIMPSUP: of HEAD OF QUEUE and ORDERED nothing is made */
    out[2] = lu->dev->info.volatile_cache ? 0x01 : 0x00; /* V_SUP */
    return 0x3c;
}

static uint32_t blocks_of(const struct scsi_lu *lu, uint64_t bytes)
{
    return (uint32_t)(bytes / lu_block(lu));
}

static void put_unmap_limits(uint8_t *out, const struct scsi_lu *lu)
{
    const struct blk_info *info = &lu->dev->info;
    put_be32(out + 16, blocks_of(lu, SCSI_UNMAP_MAX));
    put_be32(out + 20, SCSI_UNMAP_DESCRIPTORS_MAX);
    put_be32(out + 24, blocks_of(lu, MAX(info->physical_block, (uint32_t)PAGE_BYTES)));
    put_be32(out + 28, 0x80000000u); /* UGAVALID, alignment 0 */
}

static uint32_t page_block_limits(uint8_t *out, const struct scsi_lu *lu)
{
    const struct blk_info *info = &lu->dev->info;
    uint32_t granularity = blocks_of(lu, MAX(info->physical_block, (uint32_t)PAGE_BYTES));
    uint32_t optimal = info->optimal_io <= SCSI_TRANSFER_MAX ? blocks_of(lu, info->optimal_io) : 0;
    out[0] = 0x01; /* WSNZ: WRITE SAME of 0 blocks is refused */
    out[1] = SCSI_COMPARE_BLOCKS_MAX;
    put_be16(out + 2, (uint16_t)granularity);
    put_be32(out + 4, blocks_of(lu, SCSI_TRANSFER_MAX));
    put_be32(out + 8, optimal % granularity == 0 ? optimal : 0);
    if (info->discards)
        put_unmap_limits(out, lu);
    put_be64(out + 32, blocks_of(lu, SCSI_WRITE_SAME_MAX));
    put_be32(out + 40, lu_atomic_blocks(lu)); /* MAXIMUM ATOMIC TRANSFER LENGTH; 0: no WRITE ATOMIC */
    put_be32(out + 44, lu_atomic_blocks(lu)); /* ATOMIC ALIGNMENT */
    return 0x3c;
}

static uint32_t page_characteristics(uint8_t *out, const struct scsi_lu *lu)
{
    put_be16(out, lu->dev->info.rotational ? 0x0000 : 0x0001); /* speed not known; not rotating */
    if (lu->dev->info.discards)
        out[3] = 0x40; /* WABEREQ: after SANITIZE with BLOCK ERASE blocks can be read at once */
    return 0x3c;
}

static uint32_t page_provisioning(uint8_t *out, const struct scsi_lu *lu)
{
    if (!lu->dev->info.discards)
        return 4;
    out[0] = (uint8_t)__builtin_ctz(LOG_MAPPING_UNIT / lu_block(lu)); /* THRESHOLD EXPONENT: units are 2^n blocks */
    out[1] = 0xe0;                                                    /* LBPU, LBPWS, LBPWS10 */
    if (lu->dev->info.discard_zeroes)
        out[1] |= 0x04; /* LBPRZ */
    out[2] = 0x02;      /* thin */
    return 4;
}

static uint32_t page_supported(uint8_t *out, const struct scsi_lu *lu);

static const struct vpd_page {
    uint8_t code;
    uint32_t (*build)(uint8_t *out, const struct scsi_lu *lu);
} vpd_pages[] = {
    {0x00, page_supported},    {0x80, page_serial},          {0x83, page_identification}, {0x85, page_management},
    {0x86, page_extended},     {0x87, page_policy},          {0x88, page_ports},          {0x8f, scsi_vpd_copy},
    {0xb0, page_block_limits}, {0xb1, page_characteristics}, {0xb2, page_provisioning},
};

static uint32_t page_supported(uint8_t *out, const struct scsi_lu *lu)
{
    (void)lu;
    for (unsigned i = 0; i < ARRAY_LENGTH(vpd_pages); i++)
        out[i] = vpd_pages[i].code;
    return ARRAY_LENGTH(vpd_pages);
}

/* The longest is 83: 556 bytes with the longest target name, told twice. */
uint32_t scsi_vpd_build(uint8_t out[VPD_BYTES_MAX], const struct scsi_lu *lu, uint8_t page)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(vpd_pages); i++) {
        if (vpd_pages[i].code != page)
            continue;
        memset(out, 0, VPD_BYTES_MAX);
        uint32_t len = vpd_pages[i].build(out + 4, lu);
        ASSERT(4 + len <= VPD_BYTES_MAX);
        out[1] = page;
        put_be16(out + 2, (uint16_t)len);
        return 4 + len;
    }
    return 0;
}
