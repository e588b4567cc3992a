/* Parameter lists of tokens: see token_list.h. */
#include "target/scsi/token_list.h"

#include "core/bytes.h"
#include "core/check.h"

static bool overlaps(const struct token_list *list, const struct rod_range *range)
{
    for (unsigned i = 0; i < list->count; i++)
        if (list->range[i].lba < range->lba + range->blocks && range->lba < list->range[i].lba + list->range[i].blocks)
            return true;
    return false;
}

/* The ranges, `bytes` of them said to be at `at`; they may not overlap (SBC-3 5.7.3). */
static const struct scsi_sense *ranges(const uint8_t *at, uint32_t there, uint32_t bytes, uint64_t capacity,
                                       uint64_t blocks_max, struct token_list *out)
{
    if (bytes == 0 || bytes % ROD_RANGE_BYTES != 0)
        return &sense_list_field;
    if (bytes > there)
        return &sense_list_length;
    if (bytes / ROD_RANGE_BYTES > ROD_RANGES_MAX)
        return &sense_many_segments;
    for (; bytes > 0; bytes -= ROD_RANGE_BYTES, at += ROD_RANGE_BYTES) {
        struct rod_range range = {get_be64(at), get_be32(at + 8)};
        if (range.lba > capacity || range.blocks > capacity - range.lba)
            return &sense_out_of_range;
        if (overlaps(out, &range))
            return &sense_list_field;
        out->range[out->count++] = range;
        out->blocks += range.blocks;
    }
    return out->blocks <= blocks_max ? NULL : &sense_list_field;
}

const struct scsi_sense *token_list_populate(const uint8_t *list, uint32_t len, uint64_t capacity, uint64_t blocks_max,
                                             struct token_list *out)
{
    enum { TYPE_VALID = 0x02 };
    *out = (struct token_list){0};
    if (len < POPULATE_HEADER)
        return &sense_list_length;
    uint32_t patience = get_be32(list + 4);
    out->patience_s = patience != 0 ? patience : ROD_PATIENCE_S;
    if ((list[2] & TYPE_VALID) && get_be32(list + 8) != ROD_TYPE_ACCESS)
        return &sense_list_field;
    if (out->patience_s > ROD_PATIENCE_MAX_S)
        return &sense_list_field;
    return ranges(list + POPULATE_HEADER, len - POPULATE_HEADER, get_be16(list + 14), capacity, blocks_max, out);
}

const struct scsi_sense *token_list_use(const uint8_t *list, uint32_t len, uint64_t capacity, uint64_t blocks_max,
                                        struct token_list *out)
{
    enum { DELETE_TOKEN = 0x02, AT_TOKEN = 16 };
    *out = (struct token_list){0};
    if (len < USE_HEADER)
        return &sense_list_length;
    out->delete = (list[2] & DELETE_TOKEN) != 0;
    out->offset = get_be64(list + 8);
    out->token = list + AT_TOKEN;
    return ranges(list + USE_HEADER, len - USE_HEADER, get_be16(list + 534), capacity, blocks_max, out);
}
