/*
 * Superblocks from hostile disks. Each input is decoded as it is, and once more with magic and checksums put right, so
 * that changes behind the checksums reach the parser. What is valid must encode to bytes that decode to the same value.
 */
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "raid/superblock.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static uint8_t repaired[SB_SLOT_BYTES], first[SB_SLOT_BYTES], second[SB_SLOT_BYTES];

static void try_decode(const uint8_t *data, size_t len)
{
    static struct sb_label label;
    char why[160];
    if (superblock_decode(data, len, &label, why, sizeof why) != SB_VALID)
        return;
    size_t encoded = superblock_encode(&label, first);
    ASSERT(encoded > 0);
    ASSERT(superblock_decode(first, encoded, &label, why, sizeof why) == SB_VALID);
    ASSERT(superblock_encode(&label, second) == encoded && memcmp(first, second, encoded) == 0);
}

/* Header as it is but for magic, version, length and checksums: see the byte table in raid/superblock.c. */
static void repair(size_t len)
{
    memcpy(repaired, "Corbel member\n\0\0", 16);
    put_le32(repaired + 16, 2);
    memset(repaired + 24, 0, 8);
    size_t text_len = strnlen((char *)repaired + 4096, len - 4096);
    put_le32(repaired + 36, (uint32_t)text_len);
    put_le32(repaired + 80, crc32c(0, repaired + 4096, text_len));
    put_le32(repaired + 4092, crc32c(0, repaired, 4092));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    try_decode(data, len);
    if (len > 4096 && len <= sizeof repaired) {
        memcpy(repaired, data, len);
        repair(len);
        try_decode(repaired, len);
    }
    return 0;
}
