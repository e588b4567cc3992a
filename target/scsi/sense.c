/* Sense data: see sense.h. SPC-4 4.5.2 (descriptor format), 4.5.3 (fixed format). */
#include "target/scsi/sense.h"

#include "core/bytes.h"
#include "core/check.h"

/* SPC-4 4.5.2.4: the first byte of the field that is wrong, in the CDB; or how far something has got. */
static void put_specific(uint8_t *out, const struct scsi_sense *sense)
{
    enum { SKSV = 0x80, IN_CDB = 0x40 };
    out[0] = (uint8_t)(SKSV | (sense->has_progress ? 0 : IN_CDB));
    put_be16(out + 1, sense->has_progress ? sense->progress : sense->cdb_byte);
}

static bool is_specific(const struct scsi_sense *sense)
{
    return sense->has_progress || sense->cdb_byte != 0;
}

static uint8_t build_fixed(uint8_t *out, const struct scsi_sense *sense)
{
    memset(out, 0, SENSE_FIXED_BYTES);
    out[0] = 0x70;
    out[2] = sense->key;
    out[7] = SENSE_FIXED_BYTES - 8;
    out[12] = sense->asc;
    out[13] = sense->ascq;
    if (sense->has_information && sense->information <= UINT32_MAX) { /* 4.5.3: else VALID stays zero */
        out[0] |= 0x80;
        put_be32(out + 3, (uint32_t)sense->information);
    }
    if (is_specific(sense))
        put_specific(out + 15, sense);
    return SENSE_FIXED_BYTES;
}

/* 4.5.2.2 */
static uint8_t put_information(uint8_t *out, uint64_t information)
{
    out[0] = 0x00;
    out[1] = 10;
    out[2] = 0x80;
    put_be64(out + 4, information);
    return 12;
}

/* 4.5.2.4 */
static uint8_t put_key_specific(uint8_t *out, const struct scsi_sense *sense)
{
    out[0] = 0x02;
    out[1] = 6;
    put_specific(out + 4, sense);
    return 8;
}

static uint8_t build_descriptors(uint8_t *out, const struct scsi_sense *sense)
{
    memset(out, 0, SENSE_DESCRIPTOR_BYTES);
    out[0] = 0x72;
    out[1] = sense->key;
    out[2] = sense->asc;
    out[3] = sense->ascq;
    uint8_t len = 8;
    if (sense->has_information)
        len = (uint8_t)(len + put_information(out + len, sense->information));
    if (is_specific(sense))
        len = (uint8_t)(len + put_key_specific(out + len, sense));
    out[7] = (uint8_t)(len - 8);
    return len;
}

uint8_t scsi_sense_build(uint8_t *out, const struct scsi_sense *sense, bool descriptor_format)
{
    return descriptor_format ? build_descriptors(out, sense) : build_fixed(out, sense);
}

/* [status][writing] */
static const struct scsi_sense block_senses[][2] = {
    [BLK_MEDIA] = {{.key = SENSE_MEDIUM_ERROR, .asc = 0x11, .ascq = 0x00},
                   {.key = SENSE_MEDIUM_ERROR, .asc = 0x0c, .ascq = 0x00}},
    [BLK_GONE] = {{.key = SENSE_HARDWARE_ERROR, .asc = 0x44, .ascq = 0x00},
                  {.key = SENSE_HARDWARE_ERROR, .asc = 0x44, .ascq = 0x00}},
    [BLK_TIMEOUT] = {{.key = SENSE_ABORTED_COMMAND, .asc = 0x08, .ascq = 0x01},
                     {.key = SENSE_ABORTED_COMMAND, .asc = 0x08, .ascq = 0x01}},
    [BLK_NOSPACE] = {{.key = SENSE_DATA_PROTECT, .asc = 0x27, .ascq = 0x07},
                     {.key = SENSE_DATA_PROTECT, .asc = 0x27, .ascq = 0x07}},
    [BLK_READONLY] = {{.key = SENSE_DATA_PROTECT, .asc = 0x27, .ascq = 0x00},
                      {.key = SENSE_DATA_PROTECT, .asc = 0x27, .ascq = 0x00}},
    [BLK_INVALID] = {{.key = SENSE_ILLEGAL_REQUEST, .asc = 0x20, .ascq = 0x00},
                     {.key = SENSE_ILLEGAL_REQUEST, .asc = 0x20, .ascq = 0x00}},
};

struct scsi_sense scsi_sense_of_block(enum blk_status status, bool writing, uint64_t bad_lba)
{
    ASSERT(status != BLK_OK && (unsigned)status < ARRAY_LENGTH(block_senses));
    struct scsi_sense sense = block_senses[status][writing];
    if (status == BLK_MEDIA) {
        sense.has_information = true;
        sense.information = bad_lba;
    }
    return sense;
}
