/* Tokens: see rod_token.h. */
#include "target/scsi/rod_token.h"

#include <string.h>

#include "core/bytes.h"
#include "core/check.h"

enum { LENGTH = ROD_TOKEN_BYTES - 8 };

/* --- bytes: SPC-4 table 104 --- */

enum { AT_TYPE = 0, AT_LENGTH = 6, AT_ID = 8, AT_CREATOR = 16, AT_BYTES = 48, AT_BLOCK = 96, AT_SECRET = 128 };

void rod_token_write(const struct rod_token *token, uint8_t out[ROD_TOKEN_BYTES])
{
    enum { CSCD = 0xe4, BINARY = 1, NAA = 3 };
    memset(out, 0, ROD_TOKEN_BYTES);
    put_be32(out + AT_TYPE, ROD_TYPE_ACCESS);
    put_be16(out + AT_LENGTH, LENGTH);
    put_be64(out + AT_ID, token->id);
    out[AT_CREATOR] = CSCD;
    out[AT_CREATOR + 4] = BINARY;
    out[AT_CREATOR + 5] = NAA;
    out[AT_CREATOR + 7] = sizeof token->lu->options.naa;
    memcpy(out + AT_CREATOR + 8, token->lu->options.naa, sizeof token->lu->options.naa);
    put_be32(out + AT_CREATOR + 28, lu_block(token->lu));
    put_be64(out + AT_BYTES + 8, token->blocks * lu_block(token->lu));
    put_be32(out + AT_BLOCK, lu_block(token->lu));
    for (unsigned i = 0; i < ARRAY_LENGTH(token->secret); i++)
        put_be64(out + AT_SECRET + 8 * i, token->secret[i]);
}

/* In a time that does not tell where they differ. */
static bool same_bytes(const uint8_t *a, const uint8_t *b)
{
    uint8_t differ = 0;
    for (unsigned i = 0; i < ROD_TOKEN_BYTES; i++)
        differ |= a[i] ^ b[i];
    return differ == 0;
}

static bool is_zero_token(const uint8_t *bytes)
{
    for (unsigned i = 8; i < ROD_TOKEN_BYTES; i++)
        if (bytes[i] != 0)
            return false;
    return bytes[4] == 0 && bytes[5] == 0;
}

/* --- the table --- */

static bool is_over(const struct rod_tokens *tokens, const struct rod_token *token)
{
    return token->state != ROD_VALID || loop_now_ns(tokens->loop) - token->used_ns > token->patience_ns;
}

static void leave(struct rod_tokens *tokens, struct rod_token *token, enum rod_state state)
{
    tokens->valid -= token->state == ROD_VALID;
    token->state = state;
}

struct rod_token *rod_token_make(struct rod_tokens *tokens, struct scsi_lu *lu, const struct rod_range *ranges,
                                 unsigned count, uint32_t patience_s)
{
    struct rod_token *token = NULL;
    ASSERT(count <= ROD_RANGES_MAX);
    for (unsigned i = 0; i < ROD_TOKENS_MAX; i++) {
        struct rod_token *at = &tokens->of[i];
        if (is_over(tokens, at) && (token == NULL || at->id < token->id)) /* the one that has been over for longest */
            token = at;
    }
    if (token == NULL)
        return NULL;
    leave(tokens, token, ROD_FREE);
    *token = (struct rod_token){.state = ROD_VALID,
                                .id = ++tokens->made,
                                .lu = lu,
                                .used_ns = loop_now_ns(tokens->loop),
                                .patience_ns = patience_s * 1000000000ull,
                                .count = count};
    for (unsigned i = 0; i < ARRAY_LENGTH(token->secret); i++)
        token->secret[i] = loop_random(tokens->loop);
    for (unsigned i = 0; i < count; i++) {
        token->range[i] = ranges[i];
        token->blocks += ranges[i].blocks;
    }
    tokens->valid++;
    return token;
}

struct rod_token *rod_token_by_id(struct rod_tokens *tokens, uint64_t id)
{
    for (unsigned i = 0; i < ROD_TOKENS_MAX; i++)
        if (id != 0 && tokens->of[i].id == id && !is_over(tokens, &tokens->of[i]))
            return &tokens->of[i];
    return NULL;
}

static struct rod_token *with_bytes(struct rod_tokens *tokens, const uint8_t *bytes, const struct scsi_sense **why)
{
    uint8_t whole[ROD_TOKEN_BYTES];
    uint64_t id = get_be64(bytes + AT_ID);
    *why = &sense_token_unknown;
    for (unsigned i = 0; i < ROD_TOKENS_MAX; i++) {
        struct rod_token *token = &tokens->of[i];
        if (token->state == ROD_FREE || token->id != id)
            continue;
        rod_token_write(token, whole);
        *why = same_bytes(whole, bytes) ? NULL : &sense_token_corrupt;
        return *why == NULL ? token : NULL;
    }
    return NULL;
}

struct rod_token *rod_token_read(struct rod_tokens *tokens, const uint8_t bytes[ROD_TOKEN_BYTES],
                                 const struct scsi_sense **why)
{
    uint32_t type = get_be32(bytes + AT_TYPE);
    *why = NULL;
    if (type != ROD_TYPE_ACCESS && type != ROD_TYPE_ZERO)
        *why = &sense_token_type;
    else if (get_be16(bytes + AT_LENGTH) != LENGTH)
        *why = &sense_token_length;
    else if (type == ROD_TYPE_ZERO && !is_zero_token(bytes))
        *why = &sense_token_corrupt;
    if (*why != NULL || type == ROD_TYPE_ZERO)
        return NULL;
    struct rod_token *token = with_bytes(tokens, bytes, why);
    if (token == NULL)
        return NULL;
    if (token->state != ROD_VALID)
        *why = token->state == ROD_REVOKED ? &sense_token_revoked : &sense_token_deleted;
    else if (is_over(tokens, token))
        *why = &sense_token_expired;
    token->used_ns = *why == NULL ? loop_now_ns(tokens->loop) : token->used_ns;
    return *why == NULL ? token : NULL;
}

void rod_token_delete(struct rod_tokens *tokens, struct rod_token *token)
{
    leave(tokens, token, ROD_DELETED);
}

static bool touches(const struct rod_token *token, uint64_t off, uint64_t len)
{
    uint64_t block = lu_block(token->lu);
    for (unsigned i = 0; i < token->count; i++) {
        uint64_t from = token->range[i].lba * block, until = from + token->range[i].blocks * block;
        if (from < off + len && off < until)
            return true;
    }
    return false;
}

void rod_tokens_written(struct rod_tokens *tokens, const struct blkdev *dev, uint64_t off, uint64_t len)
{
    for (unsigned i = 0; i < ROD_TOKENS_MAX && tokens->valid > 0; i++) {
        struct rod_token *token = &tokens->of[i];
        if (token->state == ROD_VALID && token->lu->dev == dev && touches(token, off, len))
            leave(tokens, token, ROD_REVOKED);
    }
}
