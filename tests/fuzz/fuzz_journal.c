/*
 * Journal entries from hostile disks. The input is a ring of a few pages; each is decoded as it is, and once more with
 * magic and checksum put right, so that changes behind the checksum reach the parser. What is valid encodes to the same
 * bytes as far as they mean something, is compared with a volume, and takes part in the choice of what is replayed.
 */
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "raid/journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { ENTRIES = 64 };

static struct journal_entry entries[ENTRIES];

static void look(const struct journal_entry *entry)
{
    struct sb_volume volume = {.uuid = entry->volume, .consistency = entry->row % 2 ? SB_PPL : SB_JOURNAL};
    struct layout_spec spec = {.level = RAID_5, .rotation = ROTATE_LEFT_SYMMETRIC, .members = 4, .chunk = 65536};
    struct layout layout;
    uint64_t extent[RAID_MEMBERS_MAX];
    for (unsigned i = 0; i < RAID_MEMBERS_MAX; i++)
        extent[i] = 1 * GIB;
    ASSERT(layout_init(&layout, &spec, extent) == NULL);
    if (journal_entry_fits(entry, &volume, &layout))
        ASSERT(entry->row < layout.rows && entry->extents[0].column + entry->extents[0].len <= spec.chunk);
}

static bool take(const uint8_t *page, struct journal_entry *entry)
{
    uint8_t again[PAGE_BYTES], once_more[PAGE_BYTES];
    struct journal_entry same;
    if (!journal_decode(page, entry))
        return false;
    ASSERT(entry->id > 0 && entry->slot < RAID_MEMBERS_MAX && journal_entry_pages(entry) <= JOURNAL_ENTRY_PAGES);
    journal_encode(entry, again);
    ASSERT(journal_decode(again, &same));
    journal_encode(&same, once_more);
    ASSERT(memcmp(again, once_more, PAGE_BYTES) == 0);
    look(entry);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    size_t count = 0;
    for (size_t at = 0; at < len && count < ENTRIES; at += 256) { /* of the bytes behind only the checksum counts */
        uint8_t page[PAGE_BYTES] = {0};
        memcpy(page, data + at, MIN(len - at, (size_t)256));
        count += take(page, &entries[count]);
        memcpy(page, "Corbel journal\n\0", 16);
        put_le32(page + PAGE_BYTES - 4, crc32c(0, page, PAGE_BYTES - 4));
        if (count < ENTRIES)
            count += take(page, &entries[count]);
    }
    uint64_t survivors = len >= 8 ? get_le64(data) : 7;
    size_t torn, kept = journal_choose(entries, count, survivors, survivors, &torn);
    ASSERT(kept + torn <= count);
    for (size_t i = 0; i < kept; i++)
        ASSERT(entries[i].kind != JOURNAL_TAIL && (i == 0 || entries[i].id >= entries[i - 1].id));
    return 0;
}
