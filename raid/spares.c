/* See raid/spares.h: values in, an index and a sentence out. */
#include "raid/spares.h"

#include <string.h>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/log.h"
#include "raid/superblock.h"

static bool is_for(const struct spare *spare, const struct spare_need *need)
{
    return !spare->taken && (spare->array[0] == '\0' || strcmp(spare->array, need->array) == 0);
}

static bool fits(const struct spare *spare, const struct spare_need *need)
{
    return is_for(spare, need) && spare->size >= need->bytes && spare->logical_block == need->logical_block;
}

/* Both fit: is `a` to be preferred? */
static bool is_better(const struct spare *a, const struct spare *b, const struct spare_need *need)
{
    bool own_a = a->array[0] != '\0', own_b = b->array[0] != '\0';
    bool alike_a = a->rotational == need->rotational, alike_b = b->rotational == need->rotational;
    if (own_a != own_b)
        return own_a;
    if (alike_a != alike_b)
        return alike_a;
    return a->size < b->size;
}

/* Of those that do not fit, the one that comes nearest: right blocks, then size. */
static bool is_nearer(const struct spare *a, const struct spare *b, const struct spare_need *need)
{
    bool blocks_a = a->logical_block == need->logical_block, blocks_b = b->logical_block == need->logical_block;
    if (blocks_a != blocks_b)
        return blocks_a;
    return a->size > b->size;
}

static void tell_why(const struct spare *nearest, const struct spare_need *need, char *why, size_t why_len)
{
    if (nearest == NULL)
        text_format(why, why_len, "array %s, slot %u: there is no spare for it", need->array, need->slot);
    else if (nearest->logical_block != need->logical_block)
        text_format(why, why_len, "array %s, slot %u: spare %s has blocks of %u bytes, and the array of %u",
                    need->array, need->slot, nearest->name, nearest->logical_block, need->logical_block);
    else
        text_format(why, why_len, "array %s, slot %u: spare %s has %llu bytes, %llu too few: the slot needs %llu",
                    need->array, need->slot, nearest->name, (unsigned long long)nearest->size,
                    (unsigned long long)(need->bytes - nearest->size), (unsigned long long)need->bytes);
}

int spares_pick(const struct spare *spares, unsigned count, const struct spare_need *need, char *why, size_t why_len)
{
    int best = -1;
    const struct spare *nearest = NULL;
    for (unsigned i = 0; i < count; i++) {
        if (fits(&spares[i], need) && (best < 0 || is_better(&spares[i], &spares[best], need)))
            best = (int)i;
        if (is_for(&spares[i], need) && (nearest == NULL || is_nearer(&spares[i], nearest, need)))
            nearest = &spares[i];
    }
    if (best < 0)
        tell_why(nearest, need, why, why_len);
    return best;
}

unsigned spares_most_urgent(const struct spare_need *needs, unsigned count)
{
    unsigned first = 0;
    for (unsigned i = 1; i < count; i++)
        if (needs[i].tolerance < needs[first].tolerance)
            first = i;
    return count > 0 ? first : count;
}

/* --- the label: magic, version (1), name, CRC32C of all before it in the last four bytes; little-endian --- */

static const char magic[16] = "Corbel spare\n";
enum { VERSION_AT = 16, NAME_AT = 20, CRC_AT = SPARE_LABEL_BYTES - 4 };

bool spare_label_encode(uint8_t bytes[SPARE_LABEL_BYTES], const char *array)
{
    size_t len = strlen(array);
    if (len >= SPARE_ARRAY_SIZE)
        return false;
    memset(bytes, 0, SPARE_LABEL_BYTES);
    memcpy(bytes, magic, sizeof magic);
    put_le32(bytes + VERSION_AT, 1);
    memcpy(bytes + NAME_AT, array, len);
    put_le32(bytes + CRC_AT, crc32c(0, bytes, CRC_AT));
    return true;
}

bool spare_label_decode(const uint8_t bytes[SPARE_LABEL_BYTES], char array[SPARE_ARRAY_SIZE])
{
    if (memcmp(bytes, magic, sizeof magic) != 0 || get_le32(bytes + VERSION_AT) != 1 ||
        get_le32(bytes + CRC_AT) != crc32c(0, bytes, CRC_AT))
        return false;
    memcpy(array, bytes + NAME_AT, SPARE_ARRAY_SIZE);
    return superblock_text_ok(array, SPARE_ARRAY_SIZE);
}
