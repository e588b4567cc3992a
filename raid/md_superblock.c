/*
 * See raid/md_superblock.h. The superblock, little-endian (of what is used; "s" are sectors):
 *
 *      0  4  magic                 92  4  devices in the array          160  4  number of this device
 *      4  4  major version: 1      96  4  bitmap, s from here, signed   168 16  UUID of this device
 *      8  4  features             128  8  data begins, s                185  1  shift of the bad block log
 *     16 16  UUID of the array    136  8  data, s                       186  2  bad block log, s
 *     32 32  its name             144  8  where this stands, s          188  4  where it is, s from here, signed
 *     72  4  level                                                      200  8  events
 *     76  4  layout                                                     208  8  in sync below, s; all bits: all of it
 *     80  8  size used, s                                               216  4  checksum
 *     88  4  chunk, s                                                   220  4  how many roles
 *                                                                       256  2n roles, by number of device
 *
 * Checksum: the sum of all words of 32 bits (its own counts as 0), and of the half one at the end, whose upper half is
 * added to the lower.
 *
 * Bitmap: 0 magic, 4 version, 8 UUID of the array, 40 size it stands for (s), 48 state, 52 chunk (bytes), 256 bits.
 */
#include "raid/md_superblock.h"

#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/log.h"

#define MAGIC        0xa92b4efcu
#define BITMAP_MAGIC 0x6d746962u /* "bitm" */
#define SECTOR       512u
#define SECTORS_MAX  (UINT64_C(1) << 53) /* more is no disk, and no sum of two overflows in bytes */

enum { BITMAP_STALE = 1 << 1, BITMAP_WRITE_ERROR = 1 << 2, BITMAP_VERSION_HOST = 3, BITMAP_VERSION = 4 };
enum { HEADER_BYTES = 256, BAD_ENTRY_BITS = 10, BAD_SHIFT_MAX = 20 };

#define SAY(why, why_len, ...) (text_format(why, why_len, __VA_ARGS__), why)

unsigned md_role(const struct md_superblock *sb, uint32_t number)
{
    return number < sb->roles_count ? sb->roles[number] : MD_ROLE_SPARE;
}

/* --- superblock --- */

static uint32_t checksum(const uint8_t *bytes, size_t len)
{
    uint64_t sum = 0;
    size_t at = 0;
    for (; at + 4 <= len; at += 4)
        sum += at == 216 ? 0 : get_le32(bytes + at);
    if (at < len)
        sum += get_le16(bytes + at);
    return (uint32_t)(sum & 0xffffffff) + (uint32_t)(sum >> 32);
}

static const char *check_header(const uint8_t *bytes, char *why, size_t why_len)
{
    uint32_t roles = get_le32(bytes + 220);
    if (get_le32(bytes + 4) != 1)
        return SAY(why, why_len, "md metadata of major version %u, where 1 is known", get_le32(bytes + 4));
    if (roles > MD_ROLES_MAX)
        return SAY(why, why_len, "the md superblock has %u devices, more than there is room for", roles);
    if (checksum(bytes, HEADER_BYTES + 2 * (size_t)roles) != get_le32(bytes + 216))
        return SAY(why, why_len, "the checksum of the md superblock is wrong");
    if (get_le64(bytes + 144) != MD_SUPER_AT / SECTOR)
        return SAY(why, why_len, "the md superblock stands elsewhere than it says; it may be a copy");
    return NULL;
}

static const char *check_sizes(const uint8_t *bytes, char *why, size_t why_len)
{
    static const struct {
        unsigned at;
        const char *name;
    } sizes[] = {{80, "size"}, {128, "data offset"}, {136, "data size"}};
    for (unsigned i = 0; i < ARRAY_LENGTH(sizes); i++)
        if (get_le64(bytes + sizes[i].at) > SECTORS_MAX)
            return SAY(why, why_len, "the md superblock has a %s that cannot be", sizes[i].name);
    return NULL;
}

/* Bytes of the member, or 0: it is before its beginning. */
static uint64_t place_from_here(const uint8_t *signed_sectors)
{
    int64_t at = MD_SUPER_AT + (int64_t)(int32_t)get_le32(signed_sectors) * (int64_t)SECTOR;
    return at > 0 ? (uint64_t)at : 0;
}

static void take_name(const uint8_t *bytes, char *name)
{
    memcpy(name, bytes, MD_NAME_SIZE - 1);
    name[MD_NAME_SIZE - 1] = '\0';
    for (char *c = name; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
            *c = '?';
}

static void take_fields(const uint8_t *bytes, struct md_superblock *sb)
{
    *sb = (struct md_superblock){.features = get_le32(bytes + 8),
                                 .level = (int32_t)get_le32(bytes + 72),
                                 .layout = get_le32(bytes + 76),
                                 .disks = get_le32(bytes + 92),
                                 .chunk = (uint64_t)get_le32(bytes + 88) * SECTOR,
                                 .size = get_le64(bytes + 80) * SECTOR,
                                 .data_start = get_le64(bytes + 128) * SECTOR,
                                 .data_bytes = get_le64(bytes + 136) * SECTOR,
                                 .number = get_le32(bytes + 160),
                                 .events = get_le64(bytes + 200),
                                 .clean = get_le64(bytes + 208) == UINT64_MAX,
                                 .bad_shift = bytes[185],
                                 .roles_count = get_le32(bytes + 220)};
    memcpy(sb->set.bytes, bytes + 16, sizeof sb->set.bytes);
    memcpy(sb->device.bytes, bytes + 168, sizeof sb->device.bytes);
    take_name(bytes + 32, sb->name);
    if (sb->features & MD_BITMAP)
        sb->bitmap_start = place_from_here(bytes + 96);
    if (sb->features & MD_BAD_BLOCKS) {
        sb->bad_start = place_from_here(bytes + 188);
        sb->bad_bytes = (uint64_t)get_le16(bytes + 186) * SECTOR;
    }
    for (unsigned i = 0; i < sb->roles_count; i++)
        sb->roles[i] = get_le16(bytes + HEADER_BYTES + 2 * i);
}

enum md_verdict md_superblock_decode(const uint8_t *bytes, struct md_superblock *sb, char *why, size_t why_len)
{
    if (get_le32(bytes) != MAGIC) {
        text_format(why, why_len, "there is no md superblock of version 1.2");
        return MD_NONE;
    }
    if (check_header(bytes, why, why_len) != NULL || check_sizes(bytes, why, why_len) != NULL)
        return MD_DAMAGED;
    take_fields(bytes, sb);
    return MD_VALID;
}

/* --- bitmap --- */

const char *md_bitmap_decode(const uint8_t *header, const struct md_superblock *sb, struct md_bitmap *bitmap, char *why,
                             size_t why_len)
{
    uint32_t version = get_le32(header + 4), state = get_le32(header + 48), chunk = get_le32(header + 52);
    uint64_t sectors = get_le64(header + 40);
    if (get_le32(header) != BITMAP_MAGIC || memcmp(header + 8, sb->set.bytes, sizeof sb->set.bytes) != 0)
        return SAY(why, why_len, "the write-intent bitmap is not where it should be");
    if (version != BITMAP_VERSION && version != BITMAP_VERSION_HOST)
        return SAY(why, why_len, "the write-intent bitmap is of version %u, which is not known", version);
    if (state & (BITMAP_STALE | BITMAP_WRITE_ERROR))
        return SAY(why, why_len, "the write-intent bitmap says of itself that it is not right");
    if (!is_power_of_two(chunk) || chunk < SECTOR || sectors > SECTORS_MAX)
        return SAY(why, why_len, "the write-intent bitmap has sizes that cannot be");
    bitmap->chunks = (sectors * SECTOR + chunk - 1) / chunk;
    bitmap->bytes = MD_BITMAP_HEADER + (bitmap->chunks + 7) / 8;
    if (bitmap->bytes > MD_BITMAP_BYTES_MAX)
        return SAY(why, why_len, "the write-intent bitmap is larger than is looked at");
    return NULL;
}

uint64_t md_bitmap_count(const struct md_bitmap *bitmap, const uint8_t *bytes)
{
    const uint8_t *bits = bytes + MD_BITMAP_HEADER;
    uint64_t count = 0, whole = bitmap->chunks / 8;
    for (uint64_t i = 0; i < whole; i++)
        count += (unsigned)__builtin_popcount(bits[i]);
    unsigned rest = bitmap->chunks % 8;
    return count + (rest > 0 ? (unsigned)__builtin_popcount(bits[whole] & ((1u << rest) - 1)) : 0);
}

/* --- bad blocks --- */

/* What of [start, end) lies in the data: its sectors are those of the member, not of the data. */
static bool add_bad(const struct md_superblock *sb, unsigned slot, uint64_t start, uint64_t end, struct bad_list *list)
{
    start = MAX(start, sb->data_start);
    end = MIN(end, sb->data_start + sb->data_bytes);
    return start >= end || bad_add(list, slot, start - sb->data_start, end - start);
}

const char *md_bad_blocks_decode(const uint8_t *bytes, const struct md_superblock *sb, unsigned slot,
                                 struct bad_list *list, char *why, size_t why_len)
{
    if (sb->bad_shift > BAD_SHIFT_MAX)
        return SAY(why, why_len, "the bad block log has a unit that cannot be");
    for (uint64_t at = 0; at + 8 <= sb->bad_bytes; at += 8) {
        uint64_t entry = get_le64(bytes + at), sector = entry >> BAD_ENTRY_BITS;
        uint64_t count = entry & ((1u << BAD_ENTRY_BITS) - 1);
        if (entry == UINT64_MAX)
            break;
        if (sector > SECTORS_MAX >> sb->bad_shift)
            return SAY(why, why_len, "the bad block log has a sector that cannot be");
        uint64_t start = (sector << sb->bad_shift) * SECTOR, len = (count << sb->bad_shift) * SECTOR;
        if (!add_bad(sb, slot, start, start + len, list))
            return SAY(why, why_len, "there are more bad blocks than can be kept in mind");
    }
    return NULL;
}
