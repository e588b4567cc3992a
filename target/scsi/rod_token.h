/*
 * Tokens (SPC-4 5.17.6, SBC-3 4.28): who has one may have the blocks it stands for copied. Of one target; bounded.
 *
 * A token is a name of up to ROD_RANGES_MAX ranges of an LU, of the type "access upon reference": no copy of the blocks
 * is kept, they are read when the token is used. So that nobody gets other blocks than those it meant, a token is
 * revoked when any of its blocks is written through an LU of this target. Other targets and NBD exports of the same
 * volume are not seen; the type promises nothing about them.
 *
 * Of the 512 bytes, 32 are random, and all must be right. A token that was not used for its time is over.
 */
#ifndef TARGET_SCSI_ROD_TOKEN_H
#define TARGET_SCSI_ROD_TOKEN_H

#include "target/scsi/lu.h"

enum { ROD_TOKEN_BYTES = 512, ROD_TOKENS_MAX = 64, ROD_RANGES_MAX = 16, ROD_RANGE_BYTES = 16 };
enum { ROD_PATIENCE_S = 60, ROD_PATIENCE_MAX_S = 600 };
#define ROD_BYTES_MAX     (256 * MIB) /* what a token stands for, at most */
#define ROD_BYTES_OPTIMAL (64 * MIB)
#define ROD_TYPE_ACCESS   0x00010000u /* access upon reference */
#define ROD_TYPE_ZERO     0xffff0001u /* zeroes, as many as one wants: a token that needs no making */

struct rod_range {
    uint64_t lba;
    uint32_t blocks;
};

enum rod_state { ROD_FREE, ROD_VALID, ROD_REVOKED, ROD_DELETED };

struct rod_token {
    enum rod_state state;
    uint64_t id;
    struct scsi_lu *lu;
    uint64_t secret[4];
    uint64_t used_ns, patience_ns;
    uint64_t blocks; /* in all ranges */
    unsigned count;
    struct rod_range range[ROD_RANGES_MAX];
};

struct rod_tokens {
    struct loop *loop;
    uint64_t made;
    unsigned valid; /* how many may still be */
    struct rod_token of[ROD_TOKENS_MAX];
};

/* NULL: there are too many. */
struct rod_token *rod_token_make(struct rod_tokens *tokens, struct scsi_lu *lu, const struct rod_range *ranges,
                                 unsigned count, uint32_t patience_s);
void rod_token_write(const struct rod_token *token, uint8_t out[ROD_TOKEN_BYTES]);
/* By its number, if it may still be used. */
struct rod_token *rod_token_by_id(struct rod_tokens *tokens, uint64_t id);
/* That of these bytes, which is being used; NULL, and *why. NULL and *why NULL: zeroes. */
struct rod_token *rod_token_read(struct rod_tokens *tokens, const uint8_t bytes[ROD_TOKEN_BYTES],
                                 const struct scsi_sense **why);
void rod_token_delete(struct rod_tokens *tokens, struct rod_token *token);
/* These bytes of the device are about to change. */
void rod_tokens_written(struct rod_tokens *tokens, const struct blkdev *dev, uint64_t off, uint64_t len);

#endif
