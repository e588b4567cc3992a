/*
 * The header block of a superblock, and the plan of a member: see raid/superblock.h.
 *
 * Byte table of the header, little-endian; the text follows at 4096:
 *
 *      0   16  magic
 *     16    4  format version
 *     20    4  compat features: who does not know one may go on, and drops it at the next write
 *     24    4  ro-compat features: who does not know one may only read. Corbel never opens an array only to read it, so
 *              it refuses
 *     28    4  incompat features: who does not know one must keep away
 *     32    4  slot
 *     36    4  length of the text
 *     40    8  generation
 *     48   16  array UUID
 *     64   16  member UUID
 *     80    4  CRC32C of the text
 *     84 4008  zero
 *   4092    4  CRC32C of bytes 0 to 4091
 *
 * Magic, version, features and the place of the header's CRC stay in all versions to come: so an older version can
 * tell a newer superblock from a damaged one.
 */
#include "raid/superblock.h"

#include <string.h>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/log.h"
#include "raid/region_map.h"
#include "raid/superblock_text.h"

enum {
    OFF_MAGIC = 0,
    OFF_VERSION = 16,
    OFF_COMPAT = 20,
    OFF_RO_COMPAT = 24,
    OFF_INCOMPAT = 28,
    OFF_SLOT = 32,
    OFF_TEXT_LEN = 36,
    OFF_GENERATION = 40,
    OFF_ARRAY = 48,
    OFF_MEMBER = 64,
    OFF_TEXT_CRC = 80,
    OFF_HEADER_CRC = 4092,
    HEADER_BYTES = 4096,
    MAGIC_BYTES = 16,
    FORMAT_VERSION = 2,
};

/* Features this version knows. */
enum { KNOWN_RO_COMPAT = 0, KNOWN_INCOMPAT = SB_FEATURE_RELAYOUT };

static const char magic[MAGIC_BYTES] = "Corbel member\n";

static void header_write(const struct sb_label *label, uint8_t *out, size_t text_len)
{
    memcpy(out + OFF_MAGIC, magic, MAGIC_BYTES);
    put_le32(out + OFF_VERSION, FORMAT_VERSION);
    put_le32(out + OFF_INCOMPAT, superblock_features(&label->array));
    put_le32(out + OFF_SLOT, label->slot);
    put_le32(out + OFF_TEXT_LEN, (uint32_t)text_len);
    put_le64(out + OFF_GENERATION, label->array.generation);
    memcpy(out + OFF_ARRAY, label->array.uuid.bytes, sizeof label->array.uuid.bytes);
    memcpy(out + OFF_MEMBER, label->member.bytes, sizeof label->member.bytes);
    put_le32(out + OFF_TEXT_CRC, crc32c(0, out + HEADER_BYTES, text_len));
    put_le32(out + OFF_HEADER_CRC, crc32c(0, out, OFF_HEADER_CRC));
}

size_t superblock_encode(const struct sb_label *label, uint8_t *out)
{
    if (superblock_check(label) != NULL)
        return 0;
    size_t len = superblock_text_write(&label->array, (char *)out + HEADER_BYTES, SB_SLOT_BYTES - HEADER_BYTES);
    if (len == 0)
        return 0;
    size_t end = round_up(HEADER_BYTES + len, HEADER_BYTES);
    memset(out, 0, HEADER_BYTES);
    /* What the dumper left behind its text, if anything, is no part of it. */
    memset(out + HEADER_BYTES + len, 0, end - HEADER_BYTES - len);
    header_write(label, out, len);
    return end;
}

size_t superblock_length(const uint8_t *header)
{
    size_t text_len = get_le32(header + OFF_TEXT_LEN);
    bool sound = memcmp(header, magic, MAGIC_BYTES) == 0 &&
                 get_le32(header + OFF_HEADER_CRC) == crc32c(0, header, OFF_HEADER_CRC) &&
                 text_len <= SB_SLOT_BYTES - HEADER_BYTES;
    return sound ? round_up(HEADER_BYTES + text_len, HEADER_BYTES) : HEADER_BYTES;
}

static enum sb_verdict refuse(enum sb_verdict verdict, char *why, size_t why_len, const char *sentence)
{
    if (why != NULL)
        text_format(why, why_len, "%s", sentence);
    return verdict;
}

/* What the header alone tells. */
static enum sb_verdict header_read(const uint8_t *bytes, size_t len, struct sb_label *label, char *why, size_t why_len)
{
    if (len < MAGIC_BYTES || memcmp(bytes, magic, MAGIC_BYTES) != 0)
        return refuse(SB_NONE, why, why_len, "no superblock is here");
    if (len < HEADER_BYTES || get_le32(bytes + OFF_HEADER_CRC) != crc32c(0, bytes, OFF_HEADER_CRC))
        return refuse(SB_DAMAGED, why, why_len, "the superblock's header does not match its checksum");
    label->slot = get_le32(bytes + OFF_SLOT);
    label->array.generation = get_le64(bytes + OFF_GENERATION);
    memcpy(label->array.uuid.bytes, bytes + OFF_ARRAY, sizeof label->array.uuid.bytes);
    memcpy(label->member.bytes, bytes + OFF_MEMBER, sizeof label->member.bytes);
    if (get_le32(bytes + OFF_VERSION) > FORMAT_VERSION)
        return refuse(SB_UNSUPPORTED, why, why_len, "the superblock was written by a newer version");
    if (get_le32(bytes + OFF_VERSION) < FORMAT_VERSION)
        return refuse(SB_UNSUPPORTED, why, why_len, "the superblock is of a format from before the first release");
    if ((get_le32(bytes + OFF_INCOMPAT) & ~(uint32_t)KNOWN_INCOMPAT) != 0)
        return refuse(SB_UNSUPPORTED, why, why_len, "the array uses features that this version does not know");
    if ((get_le32(bytes + OFF_RO_COMPAT) & ~(uint32_t)KNOWN_RO_COMPAT) != 0)
        return refuse(SB_UNSUPPORTED, why, why_len, "the array uses features that allow this version only to read it");
    return SB_VALID;
}

enum sb_verdict superblock_decode(const uint8_t *bytes, size_t len, struct sb_label *label, char *why, size_t why_len)
{
    *label = (struct sb_label){0};
    enum sb_verdict verdict = header_read(bytes, len, label, why, why_len);
    if (verdict != SB_VALID)
        return verdict;
    size_t text_len = get_le32(bytes + OFF_TEXT_LEN);
    if (text_len > SB_SLOT_BYTES - HEADER_BYTES || text_len > len - HEADER_BYTES)
        return refuse(SB_DAMAGED, why, why_len, "the superblock's text is longer than its place");
    if (get_le32(bytes + OFF_TEXT_CRC) != crc32c(0, bytes + HEADER_BYTES, text_len))
        return refuse(SB_DAMAGED, why, why_len, "the superblock's text does not match its checksum");
    struct uuid array = label->array.uuid;
    uint64_t generation = label->array.generation;
    if (!superblock_text_read((const char *)bytes + HEADER_BYTES, text_len, &label->array, why, why_len))
        return SB_DAMAGED;
    if (!uuid_equal(&array, &label->array.uuid) || generation != label->array.generation)
        return refuse(SB_DAMAGED, why, why_len, "the superblock's header and text contradict each other");
    const char *sentence = superblock_check(label);
    if (sentence != NULL)
        return refuse(SB_DAMAGED, why, why_len, sentence);
    if ((superblock_features(&label->array) & ~(uint32_t)KNOWN_INCOMPAT) != 0)
        return refuse(SB_UNSUPPORTED, why, why_len, "the array uses features that this version does not know");
    return SB_VALID;
}

/* --- the plan --- */

static uint64_t share(uint64_t bytes, uint64_t divisor, uint64_t low, uint64_t high)
{
    return round_up(MIN(MAX(bytes / divisor, low), high), MIB);
}

/* Disks of one label size differ by a little: what is below this unit is given away, so that they fit each other. */
static uint64_t coercion_unit(uint64_t member_bytes)
{
    if (member_bytes < 16 * GIB)
        return MIB;
    return member_bytes <= 256 * GIB ? 256 * MIB : GIB;
}

const char *superblock_plan(struct sb_array *array, uint64_t member_bytes, uint32_t chunk)
{
    if (member_bytes < 32 * MIB)
        return "a member needs at least 32 MiB";
    array->map_start = 1 * MIB;
    /* A row takes half a byte; twice that, so that volumes find room whatever their number. */
    array->map_bytes = share(member_bytes, 4096, 1 * MIB, MAX(64 * MIB, member_bytes / chunk));
    array->journal_start = array->map_start + array->map_bytes;
    if (array->journal_bytes != 0)
        array->journal_bytes = round_up(MIN(array->journal_bytes, member_bytes), MIB);
    else
        array->journal_bytes = share(member_bytes, 64, 4 * MIB, 64 * MIB);
    array->headroom_start = array->journal_start + array->journal_bytes;
    array->headroom_bytes = share(member_bytes, 64, 8 * MIB, 128 * MIB);
    array->data_start = array->headroom_start + array->headroom_bytes;
    uint64_t end = superblock_tail(member_bytes);
    array->data_bytes = end < array->data_start ? 0 : round_down(end - array->data_start, coercion_unit(member_bytes));
    return array->data_bytes == 0 ? "the journal that is asked for leaves no room for data" : NULL;
}

uint64_t superblock_map_blocks(const struct sb_array *array)
{
    return array->map_bytes / REGION_PAIR_BYTES;
}

uint64_t superblock_map_blocks_of(const struct layout *layout)
{
    return layout->redundancy > 0 ? region_blocks_for(layout->rows) : 0;
}

uint64_t superblock_tail(uint64_t member_bytes)
{
    return member_bytes < 2 * MIB ? 0 : round_down(member_bytes, MIB) - SB_TAIL_BYTES;
}

const char *sb_consistency_name(enum sb_consistency consistency)
{
    static const char *const names[] = {"resync", "bitmap", "ppl", "journal"};
    return (unsigned)consistency < ARRAY_LENGTH(names) ? names[consistency] : "unknown";
}

const char *superblock_consistency_check(const struct layout *layout, enum sb_consistency consistency)
{
    if (layout->redundancy == 0 && consistency != SB_RESYNC)
        return "without redundancy there is nothing to keep consistent";
    if (consistency == SB_PPL && (!layout->parity || layout->redundancy != 1))
        return "policy ppl is for one parity (RAID 3, 5, 30, 50)";
    return consistency == SB_JOURNAL && !layout->parity ? "policy journal is for levels with parity" : NULL;
}

enum sb_consistency superblock_consistency_for(const struct layout *layout)
{
    if (layout->redundancy == 0)
        return SB_RESYNC;
    if (!layout->parity)
        return SB_BITMAP;
    return layout->redundancy == 1 ? SB_PPL : SB_JOURNAL;
}

const char *sb_member_state_name(enum sb_member_state state)
{
    static const char *const names[] = {"active", "rebuilding", "failed", "absent"};
    return (unsigned)state < ARRAY_LENGTH(names) ? names[state] : "unknown";
}

const char *sb_journal_state_name(enum sb_journal_state state)
{
    static const char *const names[] = {"active", "lost", "doubtful"};
    return (unsigned)state < ARRAY_LENGTH(names) ? names[state] : "unknown";
}

const char *sb_scrub_mode_name(enum sb_scrub_mode mode)
{
    static const char *const names[] = {"none", "check", "repair", "patrol"};
    return (unsigned)mode < ARRAY_LENGTH(names) ? names[mode] : "unknown";
}

const char *sb_init_name(enum sb_init init)
{
    static const char *const names[] = {"none", "background", "foreground"};
    return (unsigned)init < ARRAY_LENGTH(names) ? names[init] : "unknown";
}
