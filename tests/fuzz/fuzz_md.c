/*
 * Superblocks, bitmaps and bad block logs of md from hostile disks. The input is a few pages: each is decoded as it is,
 * and once more with magic, version, place and checksum put right, so that changes behind the checksum reach the
 * parser. What is valid is a set of disks to decide about; what is usable is laid out from end to end.
 */
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "raid/md_assembly.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { PAGES = 8, PAGE = 512 }; /* of which the first bytes of a superblock are taken */

static struct md_superblock supers[PAGES];
static struct md_disk disks[PAGES];
static struct bad_list bad;

static void mend(uint8_t *page)
{
    uint64_t sum = 0;
    put_le32(page, 0xa92b4efc);
    put_le32(page + 4, 1);
    put_le64(page + 144, 8);
    put_le32(page + 216, 0);
    put_le32(page + 220, get_le32(page + 220) % 128);
    for (uint64_t at = 0; at < 256 + 2 * get_le32(page + 220); at += 2)
        sum += (uint64_t)get_le16(page + at) << (at % 4 * 8);
    put_le32(page + 216, (uint32_t)sum + (uint32_t)(sum >> 32));
}

static void look_at_parts(const uint8_t *page, const struct md_superblock *sb)
{
    struct md_bitmap bitmap;
    char why[160];
    if (md_bitmap_decode(page, sb, &bitmap, why, sizeof why) == NULL) {
        ASSERT(bitmap.bytes <= MD_BITMAP_BYTES_MAX);
        uint8_t *bytes = calloc(1, bitmap.bytes);
        memcpy(bytes, page, MIN(bitmap.bytes, (uint64_t)MD_SUPER_BYTES));
        ASSERT(md_bitmap_count(&bitmap, bytes) <= bitmap.chunks);
        free(bytes);
    }
    struct md_superblock small = *sb;
    small.bad_bytes = MIN(sb->bad_bytes, (uint64_t)MD_SUPER_BYTES);
    bad.count = 0;
    const char *wrong = md_bad_blocks_decode(page, &small, 5, &bad, why, sizeof why);
    ASSERT(wrong == NULL || wrong[0] != '\0');
    if (sb->data_bytes > 0) {
        uint64_t sizes[6] = {[5] = sb->data_bytes};
        ASSERT(bad_check(&bad, sizes, 6) == NULL);
    }
}

static void walk(const struct md_set *set)
{
    const struct layout *layout = &set->layout;
    uint64_t rows[] = {0, layout->rows / 2, layout->rows - 1};
    ASSERT(set->size > 0 && set->size <= layout->rows * layout->row_data);
    for (unsigned i = 0; i < ARRAY_LENGTH(rows); i++)
        for (unsigned role = 0; role < layout->roles; role++) {
            struct layout_place place;
            layout_place(layout, rows[i], role, &place);
            int disk = set->disk_of_slot[place.slot];
            ASSERT(disk < 0 || set->standing[disk] == MD_CURRENT);
            if (disk >= 0 && set->sb->level > 1)
                ASSERT(disks[disk].sb->data_start + place.off + layout->spec.chunk <= disks[disk].bytes);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct md_set set;
    unsigned count = 0;
    for (size_t at = 0; at < len && count + 1 < PAGES; at += PAGE)
        for (unsigned mended = 0; mended < 2; mended++) {
            uint8_t page[MD_SUPER_BYTES] = {0};
            char why[160] = "";
            memcpy(page, data + at, MIN(len - at, (size_t)PAGE));
            if (mended)
                mend(page);
            enum md_verdict verdict = md_superblock_decode(page, &supers[count], why, sizeof why);
            ASSERT((verdict == MD_VALID) == (why[0] == '\0'));
            if (verdict != MD_VALID)
                continue;
            look_at_parts(page, &supers[count]);
            disks[count] = (struct md_disk){.name = "disk", .sb = &supers[count], .bytes = get_le64(page + 224)};
            count++;
        }
    if (count == 0)
        return 0;
    md_decide(disks, count, &set);
    ASSERT(set.reason[0] != '\0');
    if (set.usable)
        walk(&set);
    return 0;
}
