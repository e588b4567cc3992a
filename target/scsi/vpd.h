/*
 * INQUIRY data and vital product data pages (SPC-4 6.6 and 7.8, SBC-3 6.6), as bytes. Pure: an LU in, bytes out.
 *
 * The limits a page promises are the ones the commands keep; both take them from here.
 */
#ifndef TARGET_SCSI_VPD_H
#define TARGET_SCSI_VPD_H

#include "target/scsi/lu.h"

enum { INQUIRY_BYTES = 96, VPD_BYTES_MAX = 1024 };

/* MAXIMUM WRITE SAME LENGTH and the sum of an UNMAP, in bytes; descriptors of an UNMAP; blocks of a COMPARE AND WRITE.
 */
#define SCSI_WRITE_SAME_MAX   (16 * MIB)
#define SCSI_UNMAP_MAX        (512 * MIB)
#define SCSI_COPY_SEGMENT_MAX (256 * MIB) /* what a segment of an EXTENDED COPY can say */
enum { SCSI_UNMAP_DESCRIPTORS_MAX = 256, SCSI_COMPARE_BLOCKS_MAX = 255 };

/* `lu` NULL: what INQUIRY says of a LUN that does not exist. Always INQUIRY_BYTES. */
void scsi_inquiry_build(uint8_t out[INQUIRY_BYTES], const struct scsi_lu *lu);
/* Returns the page's bytes with its header; 0: no such page. */
/* vpd_copy.c */
uint32_t scsi_vpd_copy(uint8_t *out, const struct scsi_lu *lu);
uint32_t scsi_vpd_build(uint8_t out[VPD_BYTES_MAX], const struct scsi_lu *lu, uint8_t page);

#endif
