/* The parameter list of EXTENDED COPY: see copy_list.h. */
#include "target/scsi/copy_list.h"

#include "core/bytes.h"

enum { LID1_HEADER = 16, LID4_HEADER = 48, LID4_FORMAT = 0x01, LID4_HEADER_CSCDS = 0x20 };
enum { USAGE_KEEP = 0, USAGE_DISCARD = 2, USAGE_NONE = 3 };

static bool refuse(struct scsi_sense *why, const struct scsi_sense *sense)
{
    *why = *sense;
    return false;
}

/* LIST ID USAGE: SPC-4 table 138. */
static bool take_id(struct copy_list *out, uint32_t id, uint8_t flags)
{
    unsigned usage = flags >> 3 & 3;
    out->id = id;
    out->has_id = usage != USAGE_NONE;
    out->discard = usage == USAGE_DISCARD;
    return usage == USAGE_KEEP || usage == USAGE_DISCARD || (usage == USAGE_NONE && id == 0);
}

/* What the two kinds of header have in common. */
struct header {
    uint32_t bytes, cscds_len, segments_len, inline_len;
};

static bool read_lid1(const uint8_t *list, uint32_t len, struct header *header, struct copy_list *out,
                      struct scsi_sense *why)
{
    if (len < LID1_HEADER)
        return refuse(why, &sense_list_length);
    *header = (struct header){LID1_HEADER, get_be16(list + 2), get_be32(list + 8), get_be32(list + 12)};
    return take_id(out, list[0], list[1]) || refuse(why, &sense_list_field);
}

static bool read_lid4(const uint8_t *list, uint32_t len, struct header *header, struct copy_list *out,
                      struct scsi_sense *why)
{
    if (len < LID4_HEADER)
        return refuse(why, &sense_list_length);
    if (list[0] != LID4_FORMAT || get_be16(list + 2) != LID4_HEADER_CSCDS || list[16] != 0xff)
        return refuse(why, &sense_list_field);
    *header = (struct header){LID4_HEADER, get_be16(list + 42), get_be16(list + 44), get_be16(list + 46)};
    return take_id(out, get_be32(list + 20), list[1]) || refuse(why, &sense_list_field);
}

static bool check_lengths(const struct header *header, uint32_t len, struct scsi_sense *why)
{
    uint64_t descriptors = (uint64_t)header->cscds_len + header->segments_len;
    if (descriptors > COPY_DESCRIPTORS_MAX || header->bytes + descriptors > len)
        return refuse(why, &sense_list_length);
    if (header->cscds_len / COPY_CSCD_BYTES > COPY_CSCDS_MAX)
        return refuse(why, &sense_many_cscds);
    if (header->inline_len > 0)
        return refuse(why, &sense_inline_data);
    return header->cscds_len % COPY_CSCD_BYTES == 0 || refuse(why, &sense_list_length);
}

/* SPC-4 6.4.5: of a direct access block device. What SPC-3 had in the upper bits (LU ID TYPE, NUL) is obsolete. */
static bool check_cscds(const struct copy_list *list, struct scsi_sense *why)
{
    enum { DEVICE_TYPE = 0x1f };
    for (unsigned i = 0; i < list->cscds; i++) {
        const uint8_t *cscd = list->cscd + i * COPY_CSCD_BYTES;
        if (cscd[0] != CSCD_IDENTIFICATION)
            return refuse(why, &sense_cscd_type);
        if (cscd[1] & DEVICE_TYPE)
            return refuse(why, &sense_list_field);
    }
    return true;
}

/* All segments that are taken are as long as one another. */
static bool check_segments(struct copy_list *list, uint32_t len, struct scsi_sense *why)
{
    for (uint32_t at = 0; at < len; at += COPY_SEGMENT_BYTES, list->segments++) {
        const uint8_t *segment = list->segment + at;
        if (list->segments == COPY_SEGMENTS_MAX)
            return refuse(why, &sense_many_segments);
        if (segment[0] != SEGMENT_BLOCK_TO_BLOCK)
            return refuse(why, &sense_segment_type);
        if (len - at < COPY_SEGMENT_BYTES)
            return refuse(why, &sense_list_length);
        if (get_be16(segment + 2) != COPY_SEGMENT_BYTES - 4)
            return refuse(why, &sense_list_field);
    }
    return true;
}

bool copy_list_parse(const uint8_t *list, uint32_t len, bool lid4, struct copy_list *out, struct scsi_sense *why)
{
    struct header header;
    *out = (struct copy_list){0};
    if (!(lid4 ? read_lid4 : read_lid1)(list, len, &header, out, why) || !check_lengths(&header, len, why))
        return false;
    out->cscds = header.cscds_len / COPY_CSCD_BYTES;
    out->cscd = list + header.bytes;
    out->segment = out->cscd + header.cscds_len;
    return check_cscds(out, why) && check_segments(out, header.segments_len, why);
}

/* DC says whose blocks are counted: both ends have blocks of one size, or the copy is refused. */
void copy_segment_get(const struct copy_list *list, unsigned index, struct copy_segment *out)
{
    const uint8_t *at = list->segment + index * COPY_SEGMENT_BYTES;
    *out = (struct copy_segment){.source = get_be16(at + 4),
                                 .destination = get_be16(at + 6),
                                 .blocks = get_be16(at + 10),
                                 .source_lba = get_be64(at + 12),
                                 .destination_lba = get_be64(at + 20)};
}

void copy_cscd_get(const struct copy_list *list, unsigned index, struct copy_cscd *out)
{
    enum { BINARY = 1, OF_LU_NAA = 3 };
    const uint8_t *at = list->cscd + index * COPY_CSCD_BYTES;
    bool naa = (at[4] & 0x0f) == BINARY && (at[5] & 0x3f) == OF_LU_NAA && at[7] == NAA_BYTES;
    *out = (struct copy_cscd){.naa = naa ? at + 8 : NULL, .block = get_be32(at + 28) & 0xffffff};
}
