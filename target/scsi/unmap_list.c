/* The parameter list of UNMAP: see unmap_list.h. */
#include "target/scsi/unmap_list.h"

#include "core/bytes.h"

static bool refuse(struct scsi_sense *why, const struct scsi_sense *sense)
{
    *why = *sense;
    return false;
}

void unmap_list_get(const uint8_t *descriptor, uint64_t *lba, uint32_t *blocks)
{
    *lba = get_be64(descriptor);
    *blocks = get_be32(descriptor + 8);
}

static bool descriptors_fit(const uint8_t *at, uint32_t count, const struct unmap_limits *limits,
                            struct scsi_sense *why)
{
    uint64_t sum = 0, lba;
    uint32_t blocks;
    for (uint32_t i = 0; i < count; i++) {
        unmap_list_get(at + (uint64_t)i * UNMAP_DESCRIPTOR_BYTES, &lba, &blocks);
        if (lba > limits->capacity || blocks > limits->capacity - lba)
            return refuse(why, &sense_out_of_range);
        sum += blocks;
    }
    return sum <= limits->blocks || refuse(why, &sense_list_field);
}

/* SBC-3 5.28.2: lengths that are too short mean no descriptors; one that is longer than what came is an error. */
bool unmap_list_check(const uint8_t *list, uint32_t len, const struct unmap_limits *limits, uint32_t *count,
                      struct scsi_sense *why)
{
    *count = 0;
    if (len == 0)
        return true;
    if (len < UNMAP_HEADER_BYTES)
        return refuse(why, &sense_list_length);
    uint32_t bytes = get_be16(list + 2), there = len - UNMAP_HEADER_BYTES;
    uint32_t named = bytes / UNMAP_DESCRIPTOR_BYTES;
    if (named > limits->descriptors)
        return refuse(why, &sense_list_field);
    if (bytes > there)
        return refuse(why, &sense_list_length);
    *count = named;
    return descriptors_fit(list + UNMAP_HEADER_BYTES, named, limits, why);
}
