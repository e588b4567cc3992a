/* The journal as values: entries to bytes and back, hostile bytes, and what is replayed of what was found. */
#include <criterion/criterion.h>

#include <string.h>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/log.h"
#include "raid/journal.h"
#include "tests/unit/lib/testloop.h"
#include "tests/unit/raid/labels.h"

static struct uuid uuid_of(uint8_t number)
{
    return (struct uuid){{number, 1, 2, 3}};
}

static struct journal_entry entry_full(uint64_t id, unsigned slot, uint64_t slots)
{
    return (struct journal_entry){.epoch = uuid_of(1),
                                  .volume = uuid_of(2),
                                  .id = id,
                                  .tail = 1,
                                  .row = 7,
                                  .slots = slots,
                                  .kind = JOURNAL_FULL,
                                  .slot = slot,
                                  .page = 5,
                                  .extents_count = 1,
                                  .extents = {{.role = 1, .column = 512, .len = 8192, .crc = 9, .payload = true}}};
}

static struct journal_entry entry_parity(uint64_t id, uint64_t row)
{
    struct journal_entry entry = entry_full(id, 2, 4);
    entry.kind = JOURNAL_PARITY;
    entry.row = row;
    entry.extents[0].changed = 1;
    return entry;
}

static struct journal_entry entry_tail(uint64_t id, unsigned slot, uint64_t tail)
{
    return (struct journal_entry){
        .epoch = uuid_of(1), .id = id, .tail = tail, .slots = 7, .kind = JOURNAL_TAIL, .slot = slot};
}

Test(journal, what_is_encoded_is_decoded)
{
    struct journal_entry entry = entry_full(12, 3, 0x28), again;
    uint8_t page[PAGE_BYTES];
    entry.absent = 0x10;
    entry.extents_count = 2;
    entry.extents[1] = (struct journal_extent){.role = 3, .column = 4096, .len = 512, .changed = 5};
    journal_encode(&entry, page);
    cr_assert(journal_decode(page, &again));
    cr_expect(uuid_equal(&again.epoch, &entry.epoch) && uuid_equal(&again.volume, &entry.volume));
    cr_expect(again.id == 12 && again.tail == 1 && again.row == 7 && again.slots == 0x28 && again.absent == 0x10);
    cr_expect(again.kind == JOURNAL_FULL && again.slot == 3 && again.page == 5 && again.extents_count == 2);
    for (unsigned i = 0; i < 2; i++) {
        const struct journal_extent *a = &entry.extents[i], *b = &again.extents[i];
        cr_expect(a->role == b->role && a->column == b->column && a->len == b->len && a->crc == b->crc &&
                      a->payload == b->payload && a->changed == b->changed,
                  "extent %u", i);
    }
    cr_expect_eq(journal_entry_pages(&again), 4, "8192 bytes from 512 on touch three pages, and the other has none");
}

Test(journal, bytes_that_cannot_be_an_entry_are_refused)
{
    static const struct {
        const char *what;
        unsigned off, bytes;
        uint64_t value;
    } cases[] = {
        {"no magic", 3, 1, 'x'},
        {"id 0", 48, 8, 0},
        {"a tail to come", 56, 8, 13},
        {"a kind that is not known", 80, 4, 3},
        {"no such slot", 84, 4, 64},
        {"a slot that is not among the record's", 84, 4, 1},
        {"too many extents", 92, 4, 5},
        {"no extent", 92, 4, 0},
        {"no such role", 128, 4, 64},
        {"a column beyond every chunk", 132, 4, 16 << 20},
        {"an empty extent", 136, 4, 0},
        {"longer than any chunk", 136, 4, (16 << 20) + 1},
        {"more pages than an entry has", 136, 4, 64 * PAGE_BYTES},
        {"a payload that is and is not", 152, 4, 2},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct journal_entry entry = entry_full(12, 3, 8), again;
        uint8_t page[PAGE_BYTES], value[8];
        journal_encode(&entry, page);
        cr_expect(journal_decode(page, &again));
        put_le64(value, cases[i].value);
        memcpy(page + cases[i].off, value, cases[i].bytes);
        put_le32(page + PAGE_BYTES - 4, crc32c(0, page, PAGE_BYTES - 4));
        cr_expect_not(journal_decode(page, &again), "%s", cases[i].what);
    }
}

Test(journal, a_header_with_a_bit_wrong_is_none)
{
    struct journal_entry entry = entry_full(12, 3, 8), again;
    uint8_t page[PAGE_BYTES];
    journal_encode(&entry, page);
    for (unsigned bit = 0; bit < PAGE_BYTES * 8; bit += 61) {
        page[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_expect_not(journal_decode(page, &again), "bit %u", bit);
        page[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

Test(journal, only_the_bytes_of_an_extent_count)
{
    struct testloop *t = testloop_create(16, 1);
    struct page *pages[3];
    cr_assert(page_pool_get(t->loop.pages, pages, 3));
    for (unsigned i = 0; i < 3; i++)
        test_fill(pages[i]->data, PAGE_BYTES, i);
    struct journal_entry entry = entry_full(1, 0, 1);
    entry.extents[0].crc = journal_crc(pages, 512, 8192);
    cr_expect(journal_payload_is_whole(&entry, pages));
    ((uint8_t *)pages[0]->data)[511] ^= 1;
    ((uint8_t *)pages[2]->data)[512] ^= 1;
    cr_expect(journal_payload_is_whole(&entry, pages), "bytes before and behind it may be anything");
    ((uint8_t *)pages[1]->data)[0] ^= 1;
    cr_expect_not(journal_payload_is_whole(&entry, pages));
    page_put_all(pages, 3);
    testloop_destroy(t);
}

Test(journal, an_entry_must_fit_its_volume)
{
    static struct sb_array array;
    struct layout layout;
    struct layout_place place;
    label_make_array(&array, 4, 64 * MIB);
    struct sb_volume *v = label_add_volume(&array, RAID_5, 8 * MIB);
    v->consistency = SB_PPL;
    cr_assert(superblock_layout(&array, v, &layout));
    layout_place(&layout, 7, 3, &place);
    struct journal_entry good = entry_parity(1, 7);
    good.slot = place.slot;
    good.volume = v->uuid;
    good.extents[0].role = 3;
    cr_expect(journal_entry_fits(&good, v, &layout));
    struct journal_entry bad[8];
    for (unsigned i = 0; i < ARRAY_LENGTH(bad); i++)
        bad[i] = good;
    bad[0].volume = uuid_of(9);
    bad[1].row = layout.rows;
    bad[2].slot = (place.slot + 1) % 4;
    bad[3].kind = JOURNAL_FULL;
    bad[4].extents[0].role = 1;
    bad[5].extents[0].changed = 8;
    bad[6].extents[0].changed = 0;
    bad[7].extents[0].column = layout.spec.chunk - 512;
    for (unsigned i = 0; i < ARRAY_LENGTH(bad); i++)
        cr_expect_not(journal_entry_fits(&bad[i], v, &layout), "case %u", i);
    v->consistency = SB_BITMAP;
    cr_expect_not(journal_entry_fits(&good, v, &layout), "the volume has no journal");
}

/* What is chosen, as "id/slot id/slot torn id/slot ". */
static const char *chosen(const struct journal_entry *entries, size_t count, uint64_t survivors, uint64_t active)
{
    static char text[256];
    struct journal_entry copy[16];
    memcpy(copy, entries, count * sizeof *entries);
    size_t torn, kept = journal_choose(copy, count, survivors, active, &torn);
    text[0] = '\0';
    for (size_t i = 0; i < kept + torn; i++) {
        size_t at = strlen(text);
        text_format(text + at, sizeof text - at, "%s%u/%u ", i == kept ? "torn " : "", (unsigned)copy[i].id,
                    copy[i].slot);
    }
    return text;
}

Test(journal, whole_records_are_replayed_in_order)
{
    struct journal_entry found[] = {entry_full(3, 1, 6), entry_full(2, 0, 3), entry_full(3, 2, 6), entry_full(2, 1, 3)};
    cr_expect_str_eq(chosen(found, 4, 7, 7), "2/0 2/1 3/1 3/2 ");
    cr_expect_str_eq(chosen(found, 3, 7, 7), "3/1 3/2 torn 2/0 ", "a survivor lacks its part of 2");
    cr_expect_str_eq(chosen(found, 3, 5, 5), "2/0 3/1 3/2 ", "whose part is missing did not survive");
    cr_expect_str_eq(chosen(found, 0, 7, 7), "");
}

Test(journal, a_record_that_is_not_whole_is_told_unless_it_is_over)
{
    struct journal_entry found[] = {entry_full(2, 0, 3), entry_full(5, 1, 3), entry_parity(7, 9), entry_parity(6, 9),
                                    entry_tail(4, 0, 4)};
    found[2].damaged = true;
    cr_expect_str_eq(chosen(found, 5, 7, 7), "6/2 torn 5/1 7/2 ", "a later one that is torn does not supersede 6");
    cr_expect_str_eq(chosen(found, 4, 7, 7), "6/2 torn 2/0 5/1 7/2 ");
    found[1].absent = 4;
    cr_expect_str_eq(chosen(found, 5, 7, 7), "6/2 torn 7/2 ", "5 was not begun");
}

Test(journal, what_is_below_any_tail_is_over)
{
    struct journal_entry found[] = {entry_full(2, 0, 1), entry_full(5, 0, 1), entry_tail(6, 2, 5), entry_tail(4, 1, 2)};
    cr_expect_str_eq(chosen(found, 4, 7, 7), "5/0 ");
    cr_expect_str_eq(chosen(found, 2, 7, 7), "2/0 5/0 ");
}

Test(journal, a_record_logged_without_a_member_that_is_in_service_was_not_begun)
{
    struct journal_entry found[] = {entry_full(2, 0, 1)};
    found[0].absent = 4;
    cr_expect_str_eq(chosen(found, 1, 7, 7), "", "its loss never came to disk");
    cr_expect_str_eq(chosen(found, 1, 3, 3), "2/0 ");
    cr_expect_str_eq(chosen(found, 1, 7, 3), "2/0 ", "it is being rebuilt");
}

Test(journal, of_parity_records_only_the_last_of_a_row_is_replayed)
{
    struct journal_entry found[] = {entry_parity(1, 7), entry_parity(2, 8), entry_parity(4, 7), entry_parity(3, 7),
                                    entry_parity(5, 8)};
    found[4].absent = 1;
    cr_expect_str_eq(chosen(found, 5, 7, 7), "2/2 4/2 ", "5 was not begun, so 2 is the last of row 8");
    found[2].volume = uuid_of(3);
    cr_expect_str_eq(chosen(found, 4, 7, 7), "2/2 3/2 4/2 ", "the same row of another volume");
}

Test(journal, of_no_records_none_is_chosen)
{
    size_t torn = 1;
    cr_expect_eq(journal_choose(NULL, 0, 7, 7, &torn), 0); /* the sanitizers look at what is done with the array */
    cr_expect_eq(torn, 0);
}

Test(journal, parts_that_contradict_each_other_are_no_record)
{
    struct journal_entry found[] = {entry_full(2, 0, 3), entry_full(2, 1, 3)};
    found[1].row = 8;
    cr_expect_str_eq(chosen(found, 2, 7, 7), "torn 2/0 2/1 ");
    found[1] = found[0];
    cr_expect_str_eq(chosen(found, 2, 7, 7), "torn 2/0 2/0 ", "the same part twice");
}
