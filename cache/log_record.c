/*
 * See cache/log_record.h. Byte tables, little-endian.
 *
 *      label                                    header of a group
 *      0   16  magic                            0   16  magic
 *     16    4  format                          16   16  UUID of the log
 *     20    4  bytes of a page                 32    8  epoch
 *     24    8  generation                      40    8  sequence number
 *     32   16  UUID of the log                 48    8  page of the ring in which it stands
 *     48   16  of the array                    56    8  groups that were durable
 *     64   16  of the volume                   64    4  entries, of 24 bytes each from 128 on:
 *     80   64  name, then zeroes                    0  8  block, or first sector
 *    144    8  pages of the ring                    8  8  GONE: sectors
 *    152    8  epoch                               16  4  DATA: CRC32C of the page
 *    160    8  first group: page                   20  1  kind
 *    168    8  ... and sequence number             21  1  DATA: sectors
 *    176    4  devices that count              68    4  pages of data
 *    180    4  place of this one
 *    184    4  1: clean
 *    188   16  fork: the history of the array
 *   4092    4  CRC32C of bytes 0 to 4091     4092    4  the same
 */
#include "cache/log_record.h"

#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"

enum { MAGIC_BYTES = 16, OFF_NAME = 80, OFF_ENTRIES = 128, ENTRY_BYTES = 24, OFF_CRC = PAGE_BYTES - 4 };
enum { NUMBER_BITS = 48, SECTORS_A_BLOCK = 8 };

static const char label_magic[MAGIC_BYTES + 1] = "Corbel log label", group_magic[MAGIC_BYTES + 1] = "Corbel log group";

static void seal(uint8_t page[PAGE_BYTES])
{
    put_le32(page + OFF_CRC, crc32c(0, page, OFF_CRC));
}

static bool sealed(const uint8_t page[PAGE_BYTES])
{
    return get_le32(page + OFF_CRC) == crc32c(0, page, OFF_CRC);
}

/* --- labels --- */

void log_label_encode(const struct log_label *label, uint8_t out[PAGE_BYTES])
{
    const struct log_identity *identity = &label->identity;
    memset(out, 0, PAGE_BYTES);
    memcpy(out, label_magic, MAGIC_BYTES);
    put_le32(out + 16, LOG_FORMAT);
    put_le32(out + 20, PAGE_BYTES);
    put_le64(out + 24, label->generation);
    memcpy(out + 32, identity->log.bytes, 16);
    memcpy(out + 48, identity->array.bytes, 16);
    memcpy(out + 64, identity->volume.bytes, 16);
    memcpy(out + OFF_NAME, identity->name, strnlen(identity->name, LOG_NAME_BYTES - 1));
    put_le64(out + 144, label->ring);
    put_le64(out + 152, label->epoch);
    put_le64(out + 160, label->tail_page);
    put_le64(out + 168, label->tail_sequence);
    put_le32(out + 176, label->live);
    put_le32(out + 180, label->place);
    put_le32(out + 184, label->clean);
    memcpy(out + 188, identity->fork.bytes, 16);
    seal(out);
}

static bool label_is_sound(const struct log_label *label, uint64_t device_bytes)
{
    return label->ring >= LOG_RING_MIN && label->ring <= LOG_RING_MAX &&
           label->ring + LOG_RING_AT <= device_bytes / PAGE_BYTES && label->tail_page < label->ring &&
           label->tail_sequence > 0 && label->place < LOG_DEVICES && label->live < 1u << LOG_DEVICES &&
           label->live >> label->place & 1;
}

static enum log_verdict label_decode(const uint8_t *in, uint64_t device_bytes, struct log_label *out)
{
    *out = (struct log_label){0};
    if (memcmp(in, label_magic, MAGIC_BYTES) != 0)
        return LOG_NONE;
    if (!sealed(in))
        return LOG_DAMAGED;
    out->generation = get_le64(in + 24);
    memcpy(out->identity.log.bytes, in + 32, 16);
    memcpy(out->identity.array.bytes, in + 48, 16);
    memcpy(out->identity.volume.bytes, in + 64, 16);
    memcpy(out->identity.fork.bytes, in + 188, 16);
    memcpy(out->identity.name, in + OFF_NAME, LOG_NAME_BYTES - 1);
    if (get_le32(in + 16) > LOG_FORMAT)
        return LOG_TOO_NEW;
    out->ring = get_le64(in + 144);
    out->epoch = get_le64(in + 152);
    out->tail_page = get_le64(in + 160);
    out->tail_sequence = get_le64(in + 168);
    out->live = get_le32(in + 176);
    out->place = get_le32(in + 180);
    out->clean = get_le32(in + 184) & 1;
    if (get_le32(in + 16) == 0 || get_le32(in + 20) != PAGE_BYTES || !label_is_sound(out, device_bytes))
        return LOG_DAMAGED;
    return out->clean ? LOG_CLEAN : LOG_IN_USE;
}

enum log_verdict log_labels_look(const uint8_t *bytes, uint64_t device_bytes, struct log_label *out)
{
    enum log_verdict verdict = LOG_NONE;
    *out = (struct log_label){0};
    for (unsigned i = 0; i < LOG_LABELS; i++) {
        struct log_label label;
        enum log_verdict is = label_decode(bytes + (uint64_t)i * PAGE_BYTES, device_bytes, &label);
        bool both = MIN(is, verdict) >= LOG_TOO_NEW;
        if (both ? label.generation <= out->generation : is <= verdict)
            continue;
        verdict = is;
        *out = label;
    }
    return verdict;
}

const char *log_verdict_name(enum log_verdict verdict)
{
    static const char *const names[] = {[LOG_NONE] = "none",
                                        [LOG_DAMAGED] = "damaged",
                                        [LOG_TOO_NEW] = "too new",
                                        [LOG_CLEAN] = "clean",
                                        [LOG_IN_USE] = "in use"};
    return names[verdict];
}

/* --- groups --- */

void log_group_encode(const struct log_group *group, uint8_t out[PAGE_BYTES])
{
    ASSERT(group->entries_count <= LOG_ENTRIES_MAX && group->data <= LOG_DATA_MAX);
    memset(out, 0, PAGE_BYTES);
    memcpy(out, group_magic, MAGIC_BYTES);
    memcpy(out + 16, group->log.bytes, 16);
    put_le64(out + 32, group->epoch);
    put_le64(out + 40, group->sequence);
    put_le64(out + 48, group->page);
    put_le64(out + 56, group->durable);
    put_le32(out + 64, group->entries_count);
    put_le32(out + 68, group->data);
    for (uint32_t i = 0; i < group->entries_count; i++) {
        const struct log_entry *entry = &group->entries[i];
        uint8_t *at = out + OFF_ENTRIES + i * ENTRY_BYTES;
        put_le64(at, entry->first);
        put_le64(at + 8, entry->count);
        put_le32(at + 16, entry->crc);
        at[20] = (uint8_t)entry->kind;
        at[21] = entry->sectors;
    }
    seal(out);
}

static bool entry_decode(const uint8_t *at, struct log_entry *out)
{
    *out = (struct log_entry){
        .kind = at[20], .sectors = at[21], .first = get_le64(at), .count = get_le64(at + 8), .crc = get_le32(at + 16)};
    if (at[20] == LOG_DATA)
        return out->sectors != 0 && out->first >> NUMBER_BITS == 0;
    return at[20] == LOG_GONE && out->count > 0 && out->first >> NUMBER_BITS < SECTORS_A_BLOCK &&
           out->count <= (1ull << NUMBER_BITS) * SECTORS_A_BLOCK - out->first;
}

bool log_group_decode(const uint8_t page[PAGE_BYTES], struct log_group *out)
{
    uint32_t data = 0;
    if (memcmp(page, group_magic, MAGIC_BYTES) != 0 || !sealed(page))
        return false;
    memcpy(out->log.bytes, page + 16, 16);
    out->epoch = get_le64(page + 32);
    out->sequence = get_le64(page + 40);
    out->page = get_le64(page + 48);
    out->durable = get_le64(page + 56);
    out->entries_count = get_le32(page + 64);
    out->data = get_le32(page + 68);
    if (out->entries_count > LOG_ENTRIES_MAX || out->data > LOG_DATA_MAX || out->sequence == 0 ||
        out->durable >= out->sequence)
        return false;
    for (uint32_t i = 0; i < out->entries_count; i++) {
        if (!entry_decode(page + OFF_ENTRIES + i * ENTRY_BYTES, &out->entries[i]))
            return false;
        data += out->entries[i].kind == LOG_DATA;
    }
    return data == out->data;
}
