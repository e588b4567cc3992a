/*
 * A relayout in an array's description: what is written reads back, what cannot be is not believed, and nobody takes an
 * array that has one for one that has none.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "raid/relayout_plan.h"
#include "raid/superblock_text.h"
#include "tests/unit/raid/labels.h"

enum { OLD = 1, NEW = 2, ROW = 4 * 65536 }; /* of the new side */

/* Volume "v1", RAID 5 of 4, becomes RAID 5 of 5. The log takes 8 MiB of each member. */
static struct sb_label in_the_middle(void)
{
    struct sb_array array;
    label_make_array(&array, 5, 1 * GIB);
    struct layout_spec *mirror = &label_add_volume(&array, RAID_1, 16 * MIB)->spec;
    mirror->members = mirror->copies = 2;
    label_add_volume(&array, RAID_5, 96 * MIB);
    label_add_volume(&array, RAID_5, 72 * MIB);
    struct sb_volume *old = &array.volumes[OLD], *new = &array.volumes[NEW];
    old->spec.members = 4;
    old->size = new->size = 288 * MIB;
    array.volumes[0].size = 16 * MIB;
    memcpy(new->name, old->name, sizeof new->name);
    new->start = old->start;
    new->relayout.from = old->uuid;
    new->relayout.position = new->relayout.logged = 120 * ROW;
    new->relayout.log_start = array.headroom_start;
    new->relayout.log_bytes = 8 * MIB;
    return label_of(&array, 0);
}

static char text[SB_SLOT_BYTES], again[SB_SLOT_BYTES];
static struct sb_array read_back;

static size_t write_text(const struct sb_array *array)
{
    size_t len = superblock_text_write(array, text, sizeof text - 1);
    cr_assert_gt(len, 0);
    text[len] = '\0';
    return len;
}

Test(superblock_relayout, what_is_written_reads_back)
{
    struct sb_label label = in_the_middle();
    struct sb_volume *old = &label.array.volumes[OLD], *new = &label.array.volumes[NEW];
    char why[200] = "";
    new->relayout.logged = 124 * ROW;
    new->key = label_uuid(LABEL_UUID_VOLUME, 99);
    label.array.volumes[0].without = 1 << 3 | 1 << 4;
    cr_assert_null(superblock_check(&label), "%s", superblock_check(&label));
    size_t len = write_text(&label.array);
    cr_assert(superblock_text_read(text, len, &read_back, why, sizeof why), "%s", why);
    const struct sb_volume *v = &read_back.volumes[NEW];
    cr_expect(uuid_equal(&v->relayout.from, &old->uuid));
    cr_expect(uuid_equal(&v->key, &new->key));
    cr_expect(!v->relayout.backward && v->relayout.position == 120 * ROW && v->relayout.logged == 124 * ROW);
    cr_expect_eq(v->relayout.log_start, label.array.headroom_start);
    cr_expect_eq(v->relayout.log_bytes, 8 * MIB);
    cr_expect_eq(read_back.volumes[0].without, 0x18);
    cr_expect(uuid_is_nil(&read_back.volumes[OLD].relayout.from) && uuid_is_nil(&read_back.volumes[OLD].key));
    cr_assert_eq(superblock_text_write(&read_back, again, sizeof again), len);
    cr_expect_eq(memcmp(text, again, len), 0);
}

/* Older descriptions have none of these words, and newer ones only while they mean something. */
Test(superblock_relayout, without_one_no_word_of_it_is_written)
{
    struct sb_label label = in_the_middle();
    label.array.volumes_count = NEW;
    write_text(&label.array);
    static const char *const words[] = {"relayout", "without", "key"};
    for (unsigned i = 0; i < ARRAY_LENGTH(words); i++)
        cr_expect_null(strstr(text, words[i]), "%s", words[i]);
    cr_expect_eq(superblock_features(&label.array), 0);
}

Test(superblock_relayout, both_sides_are_told)
{
    struct sb_label label = in_the_middle();
    struct relayout r;
    cr_expect_not(superblock_relayout(&label.array, &label.array.volumes[OLD], &r));
    cr_assert(superblock_relayout(&label.array, &label.array.volumes[NEW], &r));
    cr_expect(r.size == 288 * MIB && !r.backward && !r.in_place && r.log == 8 * MIB);
    cr_expect(r.from.layout.spec.members == 4 && r.to.layout.spec.members == 5);
    cr_expect_eq(r.from.start, label.array.data_start + label.array.volumes[OLD].start);
    cr_expect_eq(r.to.start, r.from.start);
    cr_expect(r.to.slot[4] == 4 && r.from.layout_slot[4] == RELAYOUT_NOWHERE);
    struct sb_volume *mirror = &label.array.volumes[OLD];
    mirror->spec = (struct layout_spec){.level = RAID_JBOD, .members = 1, .chunk = 65536};
    mirror->slot = 3;
    mirror->extent = 288 * MIB;
    cr_assert(superblock_relayout(&label.array, &label.array.volumes[NEW], &r));
    cr_expect(r.from.slot[0] == 3 && r.from.layout_slot[3] == 0 && r.from.layout_slot[0] == RELAYOUT_NOWHERE);
}

Test(superblock_relayout, who_does_not_know_of_relayouts_is_kept_away)
{
    static uint8_t bytes[SB_SLOT_BYTES];
    static struct sb_label decoded;
    char why[200] = "";
    for (unsigned i = 0; i < 3; i++) {
        struct sb_label label = in_the_middle();
        if (i > 0)
            label.array.volumes_count = NEW;
        if (i == 1)
            label.array.volumes[0].key = label_uuid(LABEL_UUID_VOLUME, 77);
        if (i == 2)
            label.array.volumes[0].without = 1;
        size_t len = superblock_encode(&label, bytes);
        cr_assert_gt(len, 0, "%s", superblock_check(&label));
        cr_expect_eq(get_le32(bytes + 28), SB_FEATURE_RELAYOUT, "case %u", i);
        cr_expect_eq(superblock_decode(bytes, len, &decoded, why, sizeof why), SB_VALID, "case %u: %s", i, why);
        cr_expect_eq(superblock_features(&decoded.array), SB_FEATURE_RELAYOUT, "case %u", i);
    }
}

/* --- what cannot be --- */

typedef void (*spoil)(struct sb_array *array, struct sb_volume *old, struct sb_volume *new);

static void of_nobody(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)array, (void)old;
    new->relayout.from.bytes[0] ^= 1;
    new->name[0] = 'x';
    new->start += 200 * MIB;
}

static void of_itself(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)array, (void)old;
    new->relayout.from = new->uuid;
    new->name[0] = 'x';
    new->start += 200 * MIB;
}

static void of_a_new_side(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)array;
    old->relayout.from = new->uuid;
}

static void two_of_them(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    struct sb_volume *third = label_add_volume(array, RAID_5, 72 * MIB);
    third->relayout = new->relayout;
    third->size = new->size;
    memcpy(third->name, old->name, sizeof third->name);
}

static void of_another_size(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)array, (void)old;
    new->size -= MIB;
}

static void of_another_name(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)array, (void)old;
    new->name[0] = 'x';
}

static void of_another_block(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)array, (void)old;
    new->logical_block = 4096;
}

static void within_a_row(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)array, (void)old;
    new->relayout.position += 65536;
}

static void behind_the_end(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)array, (void)old;
    new->relayout.position = new->relayout.logged = new->size + ROW;
}

static void logged_backward(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)array, (void)old;
    new->relayout.logged = 119 * ROW;
}

static void logged_without_a_log(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)array, (void)old;
    new->relayout.logged = 121 * ROW;
    new->relayout.log_bytes = 0;
}

static void logged_too_much(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)array, (void)old;
    new->relayout.logged = (120 + 129) * ROW; /* 8 MiB are 128 rows */
}

static void a_log_outside(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)old;
    new->relayout.log_start = array->headroom_start + array->headroom_bytes - 7 * MIB;
}

static void a_log_in_front(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)old;
    new->relayout.log_start = array->headroom_start - MIB;
}

static void a_ragged_log(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)array, (void)old;
    new->relayout.log_bytes -= 4096;
}

/* Moved the wrong way, what was passed lies over what was not. */
static void sides_that_overlap(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)array, (void)old;
    new->relayout.backward = true;
}

static void a_position_of_no_side(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)array, (void)new;
    old->relayout.position = ROW;
}

static void one_key(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)array;
    new->key = old->uuid;
}

static void one_that_passes_over(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)old, (void)new;
    array->volumes[0].spec = (struct layout_spec){.level = RAID_JBOD, .members = 1, .chunk = 65536};
    array->volumes[0].without = 2;
    array->volumes[0].map_block = 0;
}

static void too_many_passed_over(struct sb_array *array, struct sb_volume *old, struct sb_volume *new)
{
    (void)array, (void)old;
    new->without = 1;
}

Test(superblock_relayout, what_cannot_be_is_not_believed)
{
    static const struct {
        spoil spoil;
        const char *why;
    } cases[] = {
        {of_nobody, "a relayout's old side is not there"},
        {of_itself, "a relayout's old side is not there"},
        {of_a_new_side, "a relayout's old side is not there"},
        {two_of_them, "two volumes have the same name or UUID"},
        {of_another_size, "the sides of a relayout are not those of one volume"},
        {of_another_name, "the sides of a relayout are not those of one volume"},
        {of_another_block, "the sides of a relayout are not those of one volume"},
        {within_a_row, "a relayout's position is where it cannot be"},
        {behind_the_end, "a relayout's position is where it cannot be"},
        {logged_backward, "a relayout's log counts for what it cannot hold"},
        {logged_without_a_log, "a relayout's log counts for what it cannot hold"},
        {logged_too_much, "a relayout's log counts for more than it holds"},
        {a_log_outside, "a relayout's log is not in the headroom"},
        {a_log_in_front, "a relayout's log is not in the headroom"},
        {a_ragged_log, "a relayout's log is not in the headroom"},
        {sides_that_overlap, "a relayout's sides overlap at its position"},
        {a_position_of_no_side, "a volume that is nobody's new side has a position"},
        {one_key, "two volumes have the same key"},
        {one_that_passes_over, "a volume on one member passes over some"},
        {too_many_passed_over, "a volume needs members that the array does not have"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct sb_label label = in_the_middle();
        cr_assert_null(superblock_check(&label), "%s", superblock_check(&label));
        cases[i].spoil(&label.array, &label.array.volumes[OLD], &label.array.volumes[NEW]);
        const char *why = superblock_check(&label);
        cr_assert_not_null(why, "case %u (%s) is believed", i, cases[i].why);
        cr_expect_str_eq(why, cases[i].why, "case %u: %s", i, why);
    }
}

/* A volume that passes over a slot does not lie there. */
Test(superblock_relayout, slots_that_are_passed_over_are_free)
{
    struct sb_label label = in_the_middle();
    struct sb_volume *mirror = &label.array.volumes[0];
    label.array.volumes_count = 1;
    mirror->without = 1 << 0 | 1 << 2;
    struct sb_volume *disk = label_add_volume(&label.array, RAID_JBOD, 16 * MIB);
    disk->start = mirror->start;
    disk->map_block = 0;
    for (unsigned slot = 0; slot < 5; slot++) {
        disk->slot = slot;
        const char *why = superblock_check(&label);
        if (slot == 1 || slot == 3)
            cr_expect_str_eq(why, "two volumes overlap", "slot %u", slot);
        else
            cr_expect_null(why, "slot %u: %s", slot, why);
    }
}
