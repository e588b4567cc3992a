/*
 * The parameter list of UNMAP (SBC-3 5.28.2), from a peer: may be anything. Pure; checked whole before any of it is
 * done.
 */
#ifndef TARGET_SCSI_UNMAP_LIST_H
#define TARGET_SCSI_UNMAP_LIST_H

#include "target/scsi/sense.h"

enum { UNMAP_HEADER_BYTES = 8, UNMAP_DESCRIPTOR_BYTES = 16 };

struct unmap_limits {
    uint64_t capacity;    /* blocks of the medium */
    uint64_t blocks;      /* at most, in all descriptors together */
    uint32_t descriptors; /* at most */
};

/*
 * `len` bytes came. True and the number of descriptors (0: nothing to
 * do), or false and why.
 */
bool unmap_list_check(const uint8_t *list, uint32_t len, const struct unmap_limits *limits, uint32_t *count,
                      struct scsi_sense *why);

/* One descriptor, UNMAP_DESCRIPTOR_BYTES, of a list that was checked. */
void unmap_list_get(const uint8_t *descriptor, uint64_t *lba, uint32_t *blocks);

#endif
