/* The parameter lists of POPULATE TOKEN and WRITE USING TOKEN (SBC-3 5.7.2, 5.46.2), from a peer: may be anything.
 * Pure. */
#ifndef TARGET_SCSI_TOKEN_LIST_H
#define TARGET_SCSI_TOKEN_LIST_H

#include "target/scsi/rod_token.h"

enum { POPULATE_HEADER = 16, USE_HEADER = 536, TOKEN_LIST_MAX = USE_HEADER + ROD_RANGES_MAX * ROD_RANGE_BYTES };

struct token_list {
    uint32_t patience_s;  /* POPULATE: INACTIVITY TIMEOUT */
    uint64_t offset;      /* USE: OFFSET INTO ROD, in blocks */
    bool delete;          /* USE: the token, afterwards */
    const uint8_t *token; /* USE: ROD_TOKEN_BYTES */
    uint64_t blocks;      /* in all ranges */
    unsigned count;
    struct rod_range range[ROD_RANGES_MAX];
};

/* `len` bytes came, for a medium of `capacity` blocks; NULL, or why it is refused. `token` points into `list`. */
const struct scsi_sense *token_list_populate(const uint8_t *list, uint32_t len, uint64_t capacity, uint64_t blocks_max,
                                             struct token_list *out);
const struct scsi_sense *token_list_use(const uint8_t *list, uint32_t len, uint64_t capacity, uint64_t blocks_max,
                                        struct token_list *out);

#endif
