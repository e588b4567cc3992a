/*
 * Sense data: what went wrong, in the two formats of SPC-4 4.5, and the one place where a block status becomes sense.
 *
 * Pure: values in, bytes out. Callers: task.c (status of commands), command_report.c (REQUEST SENSE).
 */
#ifndef TARGET_SCSI_SENSE_H
#define TARGET_SCSI_SENSE_H

#include "core/blkdev.h"

enum scsi_sense_key {
    SENSE_NONE = 0x0,
    SENSE_NOT_READY = 0x2,
    SENSE_MEDIUM_ERROR = 0x3,
    SENSE_HARDWARE_ERROR = 0x4,
    SENSE_ILLEGAL_REQUEST = 0x5,
    SENSE_UNIT_ATTENTION = 0x6,
    SENSE_DATA_PROTECT = 0x7,
    SENSE_COPY_ABORTED = 0xa,
    SENSE_ABORTED_COMMAND = 0xb,
    SENSE_MISCOMPARE = 0xe,
};

struct scsi_sense {
    uint8_t key, asc, ascq;
    bool has_information;
    uint64_t information; /* a bad LBA, or the offset of a difference */
    uint8_t cdb_byte;     /* the field of the CDB that is wrong: FIELD POINTER; 0: not told */
    bool has_progress;
    uint16_t progress; /* in 65536ths: PROGRESS INDICATION */
};

enum { SENSE_FIXED_BYTES = 18, SENSE_DESCRIPTOR_BYTES = 28 };

/* The senses the commands give, by name. */
#define SENSE_OF(name, key, asc, ascq)                                                                                 \
    static const struct scsi_sense name __attribute__((unused)) = {key, asc, ascq, false, 0, 0, false, 0}
SENSE_OF(sense_none, SENSE_NONE, 0x00, 0x00);
SENSE_OF(sense_failed, SENSE_NOT_READY, 0x04, 0x03); /* manual intervention required */
SENSE_OF(sense_no_medium, SENSE_NOT_READY, 0x3a, 0x00);
SENSE_OF(sense_sanitizing, SENSE_NOT_READY, 0x04, 0x1b);
SENSE_OF(sense_sanitize_failed, SENSE_MEDIUM_ERROR, 0x31, 0x03);
SENSE_OF(sense_list_length, SENSE_ILLEGAL_REQUEST, 0x1a, 0x00);
SENSE_OF(sense_opcode, SENSE_ILLEGAL_REQUEST, 0x20, 0x00);
SENSE_OF(sense_out_of_range, SENSE_ILLEGAL_REQUEST, 0x21, 0x00);
SENSE_OF(sense_cdb_field, SENSE_ILLEGAL_REQUEST, 0x24, 0x00);
SENSE_OF(sense_no_lu, SENSE_ILLEGAL_REQUEST, 0x25, 0x00);
SENSE_OF(sense_list_field, SENSE_ILLEGAL_REQUEST, 0x26, 0x00);
SENSE_OF(sense_wrong_release, SENSE_ILLEGAL_REQUEST, 0x26, 0x04);
SENSE_OF(sense_removal_prevented, SENSE_ILLEGAL_REQUEST, 0x53, 0x02);
SENSE_OF(sense_no_registrations, SENSE_ILLEGAL_REQUEST, 0x55, 0x04); /* insufficient registration resources */
SENSE_OF(sense_self_test, SENSE_HARDWARE_ERROR, 0x3e, 0x03);         /* logical unit failed self-test */
SENSE_OF(sense_not_kept, SENSE_HARDWARE_ERROR, 0x44, 0x00);
SENSE_OF(sense_not_saved, SENSE_ILLEGAL_REQUEST, 0x39, 0x00);
SENSE_OF(sense_read_only, SENSE_DATA_PROTECT, 0x27, 0x00);
SENSE_OF(sense_software_protect, SENSE_DATA_PROTECT, 0x27, 0x02);
SENSE_OF(sense_many_cscds, SENSE_ILLEGAL_REQUEST, 0x26, 0x06);
SENSE_OF(sense_cscd_type, SENSE_ILLEGAL_REQUEST, 0x26, 0x07);
SENSE_OF(sense_many_segments, SENSE_ILLEGAL_REQUEST, 0x26, 0x08);
SENSE_OF(sense_segment_type, SENSE_ILLEGAL_REQUEST, 0x26, 0x09);
SENSE_OF(sense_inline_data, SENSE_ILLEGAL_REQUEST, 0x26, 0x0b);
SENSE_OF(sense_copy_id_used, SENSE_ILLEGAL_REQUEST, 0x00, 0x16);    /* operation in progress */
SENSE_OF(sense_copy_resources, SENSE_ILLEGAL_REQUEST, 0x55, 0x03);  /* insufficient resources */
SENSE_OF(sense_token_resources, SENSE_ILLEGAL_REQUEST, 0x55, 0x0d); /* insufficient resources to create ROD token */
SENSE_OF(sense_token_type, SENSE_ILLEGAL_REQUEST, 0x23, 0x01);
SENSE_OF(sense_token_unknown, SENSE_ILLEGAL_REQUEST, 0x23, 0x04);
SENSE_OF(sense_token_corrupt, SENSE_ILLEGAL_REQUEST, 0x23, 0x05);
SENSE_OF(sense_token_revoked, SENSE_ILLEGAL_REQUEST, 0x23, 0x06);
SENSE_OF(sense_token_expired, SENSE_ILLEGAL_REQUEST, 0x23, 0x07);
SENSE_OF(sense_token_deleted, SENSE_ILLEGAL_REQUEST, 0x23, 0x09);
SENSE_OF(sense_token_length, SENSE_ILLEGAL_REQUEST, 0x23, 0x0a);
SENSE_OF(sense_copy_range, SENSE_COPY_ABORTED, 0x00, 0x00);
SENSE_OF(sense_copy_unreachable, SENSE_COPY_ABORTED, 0x08, 0x04);
SENSE_OF(sense_copy_device, SENSE_COPY_ABORTED, 0x0d, 0x01); /* third party device failure */
SENSE_OF(sense_miscompare, SENSE_MISCOMPARE, 0x1d, 0x00);
#undef SENSE_OF

/* Writes the sense into `out` (at least SENSE_DESCRIPTOR_BYTES) and returns its length. */
uint8_t scsi_sense_build(uint8_t *out, const struct scsi_sense *sense, bool descriptor_format);

/* The sense for a block request that failed; information is the LBA of `bad_off` when the medium is at fault. */
struct scsi_sense scsi_sense_of_block(enum blk_status status, bool writing, uint64_t bad_lba);

#endif
