/*
 * The parameter list of EXTENDED COPY (SPC-4 6.4 with LID1, SPC-4 6.3 with LID4), from a peer: may be anything. Pure.
 *
 * A list has descriptors of the copy sources and destinations (CSCD: by the NAA identifier of a logical unit), and
 * segments: so many blocks from there to here. Other kinds of either are refused. What the descriptors name is looked
 * up later, by command_copy.c.
 */
#ifndef TARGET_SCSI_COPY_LIST_H
#define TARGET_SCSI_COPY_LIST_H

#include "target/scsi/sense.h"

enum {
    COPY_CSCDS_MAX = 16,
    COPY_SEGMENTS_MAX = 64,
    COPY_CSCD_BYTES = 32,
    COPY_SEGMENT_BYTES = 28,
    COPY_DESCRIPTORS_MAX = COPY_CSCDS_MAX * COPY_CSCD_BYTES + COPY_SEGMENTS_MAX * COPY_SEGMENT_BYTES, /* bytes */
    COPY_HEADER_MAX = 48,
    COPY_LIST_MAX = COPY_HEADER_MAX + COPY_DESCRIPTORS_MAX,
};
enum { CSCD_IDENTIFICATION = 0xe4, SEGMENT_BLOCK_TO_BLOCK = 0x02, CSCD_ADDRESSED = 0xffff, NAA_BYTES = 16 };

struct copy_list {
    uint32_t id;
    bool has_id;              /* the result can be asked for by `id` */
    bool discard;             /* not when all went well */
    unsigned cscds, segments; /* how many */
    const uint8_t *cscd, *segment;
};

struct copy_segment {
    uint16_t source, destination; /* indices of CSCDs, or CSCD_ADDRESSED */
    uint32_t blocks;
    uint64_t source_lba, destination_lba;
};

struct copy_cscd {
    const uint8_t *naa; /* NAA_BYTES; NULL: it is named in another way */
    uint32_t block;     /* bytes; 0: not said */
};

/* `len` bytes came, more than none. Points into `list`. */
bool copy_list_parse(const uint8_t *list, uint32_t len, bool lid4, struct copy_list *out, struct scsi_sense *why);
/* Of a list that was parsed. */
void copy_segment_get(const struct copy_list *list, unsigned index, struct copy_segment *out);
void copy_cscd_get(const struct copy_list *list, unsigned index, struct copy_cscd *out);

#endif
