/*
 * See raid/journal.h. Byte table of a header, little-endian:
 *
 *      0   16  magic
 *     16   16  epoch
 *     32   16  volume UUID
 *     48    8  id
 *     56    8  tail
 *     64    8  row
 *     72    8  slots that have a part
 *     80    4  kind
 *     84    4  slot of this part
 *     88    4  page of the ring in which this header stands
 *     92    4  number of extents, of 32 bytes each from 128 on:
 *               0  4  role
 *               4  4  column
 *               8  4  length
 *              12  4  CRC32C of the bytes
 *              16  8  PARITY: data roles that change
 *              24  4  1: has payload
 *     96    8  slots of the row that were lost
 *   4092    4  CRC32C of bytes 0 to 4091
 */
#include "raid/journal.h"

#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "raid/row_plan.h"

enum { OFF_EXTENTS = 128, EXTENT_BYTES = 32, OFF_CRC = PAGE_BYTES - 4, MAGIC_BYTES = 16 };

static const char magic[MAGIC_BYTES] = "Corbel journal\n";

uint32_t journal_extent_pages(const struct journal_extent *extent)
{
    return extent->payload ? page_count_for(extent->column, extent->len) : 0;
}

uint32_t journal_entry_pages(const struct journal_entry *entry)
{
    uint32_t pages = 1;
    for (unsigned i = 0; i < entry->extents_count; i++)
        pages += journal_extent_pages(&entry->extents[i]);
    return pages;
}

uint32_t journal_crc(struct page *const *pages, uint64_t column, uint64_t len)
{
    uint32_t crc = 0;
    for (uint64_t at = column % PAGE_BYTES, end = at + len, span; at < end; at += span) {
        span = MIN(end - at, PAGE_BYTES - at % PAGE_BYTES);
        crc = crc32c(crc, (const uint8_t *)pages[at / PAGE_BYTES]->data + at % PAGE_BYTES, span);
    }
    return crc;
}

/* --- headers --- */

static void extent_encode(const struct journal_extent *extent, uint8_t *out)
{
    put_le32(out, extent->role);
    put_le32(out + 4, extent->column);
    put_le32(out + 8, extent->len);
    put_le32(out + 12, extent->crc);
    put_le64(out + 16, extent->changed);
    put_le32(out + 24, extent->payload);
}

void journal_encode(const struct journal_entry *entry, uint8_t *out)
{
    ASSERT(entry->extents_count <= JOURNAL_EXTENTS_MAX);
    memset(out, 0, PAGE_BYTES);
    memcpy(out, magic, MAGIC_BYTES);
    memcpy(out + 16, entry->epoch.bytes, sizeof entry->epoch.bytes);
    memcpy(out + 32, entry->volume.bytes, sizeof entry->volume.bytes);
    put_le64(out + 48, entry->id);
    put_le64(out + 56, entry->tail);
    put_le64(out + 64, entry->row);
    put_le64(out + 72, entry->slots);
    put_le32(out + 80, entry->kind);
    put_le32(out + 84, entry->slot);
    put_le32(out + 88, entry->page);
    put_le32(out + 92, entry->extents_count);
    put_le64(out + 96, entry->absent);
    for (unsigned i = 0; i < entry->extents_count; i++)
        extent_encode(&entry->extents[i], out + OFF_EXTENTS + i * EXTENT_BYTES);
    put_le32(out + OFF_CRC, crc32c(0, out, OFF_CRC));
}

static bool extent_decode(const uint8_t *bytes, struct journal_extent *extent)
{
    *extent = (struct journal_extent){.role = get_le32(bytes),
                                      .column = get_le32(bytes + 4),
                                      .len = get_le32(bytes + 8),
                                      .crc = get_le32(bytes + 12),
                                      .changed = get_le64(bytes + 16),
                                      .payload = get_le32(bytes + 24) == 1};
    return get_le32(bytes + 24) <= 1 && extent->role < RAID_MEMBERS_MAX && extent->len > 0 &&
           extent->len <= JOURNAL_COLUMNS_MAX && extent->column < JOURNAL_COLUMNS_MAX;
}

bool journal_decode(const uint8_t *bytes, struct journal_entry *entry)
{
    *entry = (struct journal_entry){0};
    if (memcmp(bytes, magic, MAGIC_BYTES) != 0 || get_le32(bytes + OFF_CRC) != crc32c(0, bytes, OFF_CRC))
        return false;
    memcpy(entry->epoch.bytes, bytes + 16, sizeof entry->epoch.bytes);
    memcpy(entry->volume.bytes, bytes + 32, sizeof entry->volume.bytes);
    entry->id = get_le64(bytes + 48);
    entry->tail = get_le64(bytes + 56);
    entry->row = get_le64(bytes + 64);
    entry->slots = get_le64(bytes + 72);
    uint32_t kind = get_le32(bytes + 80), count = get_le32(bytes + 92);
    entry->kind = (enum journal_kind)kind;
    entry->slot = get_le32(bytes + 84);
    entry->page = get_le32(bytes + 88);
    entry->absent = get_le64(bytes + 96);
    if (kind > JOURNAL_PARITY || entry->slot >= RAID_MEMBERS_MAX || entry->id == 0 || entry->tail > entry->id ||
        count > JOURNAL_EXTENTS_MAX || (count == 0) != (kind == JOURNAL_TAIL) || !(entry->slots >> entry->slot & 1))
        return false;
    for (; entry->extents_count < count; entry->extents_count++)
        if (!extent_decode(bytes + OFF_EXTENTS + entry->extents_count * EXTENT_BYTES,
                           &entry->extents[entry->extents_count]))
            return false;
    return journal_entry_pages(entry) <= JOURNAL_ENTRY_PAGES;
}

bool journal_payload_is_whole(const struct journal_entry *entry, struct page *const *pages)
{
    for (unsigned i = 0; i < entry->extents_count; i++) {
        const struct journal_extent *extent = &entry->extents[i];
        if (extent->payload && journal_crc(pages, extent->column, extent->len) != extent->crc)
            return false;
        pages += journal_extent_pages(extent);
    }
    return true;
}

static bool extent_fits(const struct journal_entry *entry, const struct journal_extent *extent,
                        const struct layout *layout)
{
    struct layout_place place;
    if (extent->role >= layout->roles || (uint64_t)extent->column + extent->len > layout->spec.chunk)
        return false;
    layout_place(layout, entry->row, extent->role, &place);
    if (place.slot != entry->slot)
        return false;
    if (entry->kind == JOURNAL_FULL)
        return extent->payload;
    return extent->role == layout->data && extent->changed != 0 && (extent->changed & ~roles_below(layout->data)) == 0;
}

bool journal_entry_fits(const struct journal_entry *entry, const struct sb_volume *volume, const struct layout *layout)
{
    bool kind = entry->kind == (volume->consistency == SB_PPL ? JOURNAL_PARITY : JOURNAL_FULL);
    if (!kind || !consistency_is_closed(volume->consistency) || !layout->parity || entry->row >= layout->rows ||
        !uuid_equal(&entry->volume, sb_volume_key(volume)))
        return false;
    for (unsigned i = 0; i < entry->extents_count; i++)
        if (!extent_fits(entry, &entry->extents[i], layout))
            return false;
    return true;
}

/* --- what is to be replayed --- */

static int fates_compare(const struct journal_entry *x, const struct journal_entry *y)
{
    return (x->fate > y->fate) - (x->fate < y->fate);
}

static int entries_compare(const void *a, const void *b)
{
    const struct journal_entry *x = a, *y = b;
    if (x->fate != y->fate)
        return fates_compare(x, y);
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return (x->slot > y->slot) - (x->slot < y->slot);
}

/* Index behind the last part of the record that begins at `first`. */
static size_t record_end(const struct journal_entry *entries, size_t count, size_t first)
{
    size_t end = first + 1;
    while (end < count && entries[end].id == entries[first].id)
        end++;
    return end;
}

/* Do all parts tell the same, one on each survivor? */
static bool record_is_whole(const struct journal_entry *entries, size_t first, size_t end, uint64_t survivors)
{
    uint64_t found = 0;
    for (size_t i = first; i < end; i++) {
        const struct journal_entry *a = &entries[first], *b = &entries[i];
        if (a->kind != b->kind || a->row != b->row || a->slots != b->slots || a->absent != b->absent ||
            !uuid_equal(&a->volume, &b->volume) || (found >> b->slot & 1) || b->damaged)
            return false;
        found |= UINT64_C(1) << b->slot;
    }
    return (entries[first].slots & survivors & ~found) == 0;
}

static enum journal_fate record_fate(const struct journal_entry *entries, size_t first, size_t end, uint64_t tail,
                                     uint64_t survivors, uint64_t active)
{
    const struct journal_entry *entry = &entries[first];
    if (entry->id < tail || entry->kind == JOURNAL_TAIL || (entry->absent & active) != 0)
        return JOURNAL_VOID;
    return record_is_whole(entries, first, end, survivors) ? JOURNAL_REPLAYED : JOURNAL_TORN;
}

static int rows_compare(const void *a, const void *b)
{
    const struct journal_entry *x = a, *y = b;
    int volumes = memcmp(x->volume.bytes, y->volume.bytes, sizeof x->volume.bytes);
    if (x->fate != y->fate)
        return fates_compare(x, y);
    if (volumes != 0)
        return volumes;
    return x->row != y->row ? (x->row > y->row) - (x->row < y->row) : entries_compare(a, b);
}

/* Is a record of the same row behind this entry, in the order of rows? */
static bool is_superseded(const struct journal_entry *entries, size_t count, size_t at)
{
    const struct journal_entry *last = &entries[count - 1];
    for (const struct journal_entry *e = &entries[at], *next = e + 1; e->kind == JOURNAL_PARITY && next <= last; next++)
        if (next->id != e->id)
            return next->row == e->row && uuid_equal(&next->volume, &e->volume);
    return false;
}

static size_t count_fate(const struct journal_entry *entries, size_t count, enum journal_fate fate)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += entries[i].fate == fate;
    return found;
}

size_t journal_choose(struct journal_entry *entries, size_t count, uint64_t survivors, uint64_t active, size_t *torn)
{
    uint64_t tail = 0;
    *torn = 0;
    if (count == 0) /* there may be no array at all */
        return 0;
    for (size_t i = 0; i < count; i++) {
        tail = MAX(tail, entries[i].tail);
        entries[i].fate = JOURNAL_REPLAYED;
    }
    qsort(entries, count, sizeof *entries, entries_compare);
    for (size_t first = 0, end; first < count; first = end) {
        end = record_end(entries, count, first);
        enum journal_fate fate = record_fate(entries, first, end, tail, survivors, active);
        for (size_t i = first; i < end; i++)
            entries[i].fate = fate;
    }
    qsort(entries, count, sizeof *entries, rows_compare);
    size_t whole = count_fate(entries, count, JOURNAL_REPLAYED);
    for (size_t i = 0; i < whole; i++)
        if (is_superseded(entries, whole, i))
            entries[i].fate = JOURNAL_VOID;
    qsort(entries, count, sizeof *entries, entries_compare);
    *torn = count_fate(entries, count, JOURNAL_TORN);
    return count_fate(entries, count, JOURNAL_REPLAYED);
}
