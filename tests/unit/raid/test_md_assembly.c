/*
 * Superblocks of md: what is taken, what is refused and with which sentence. The bytes are made by md_images.c.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "raid/md_assembly.h"
#include "tests/unit/raid/md_images.h"

enum { DISKS = 8 };

/* A set of disks, each with its superblock as bytes, so that a test can change some before they are looked at. */
struct set {
    struct md_shape shape;
    unsigned count;
    uint8_t pages[DISKS][4096];
    struct md_superblock supers[DISKS];
    struct md_disk disks[DISKS];
    struct md_set out;
};

static const char *const names[DISKS] = {"a", "b", "c", "d", "e", "f", "g", "h"};

static struct set *set_make(struct md_shape shape)
{
    static struct set set;
    memset(&set, 0, sizeof set);
    set.shape = shape;
    set.count = shape.disks;
    for (unsigned i = 0; i < shape.disks; i++)
        md_make_super(&shape, i, MIB + i * 4096, set.pages[i]);
    for (unsigned i = 0; i < DISKS; i++)
        set.disks[i] = (struct md_disk){.name = names[i], .sb = &set.supers[i], .bytes = 64 * MIB};
    return &set;
}

static const struct md_set *decide(struct set *set)
{
    char why[200];
    for (unsigned i = 0; i < set->count; i++) {
        md_sum_super(set->pages[i]);
        cr_assert_eq(md_superblock_decode(set->pages[i], &set->supers[i], why, sizeof why), MD_VALID, "%s", why);
    }
    md_decide(set->disks, set->count, &set->out);
    return &set->out;
}

static const struct md_shape raid5 = {.level = 5, .layout = 2, .disks = 4, .chunk = 65536, .size = 8 * MIB};

static void expect_refused(struct set *set, const char *with)
{
    const struct md_set *out = decide(set);
    cr_expect_not(out->usable, "%s", with);
    cr_expect_not_null(strstr(out->reason, with), "'%s' is not in '%s'", with, out->reason);
}

/* --- one superblock --- */

Test(md_superblock, fields_come_out_in_bytes)
{
    struct set *set = set_make(raid5);
    uint8_t *page = set->pages[2];
    struct md_superblock sb;
    char why[200];
    put_le32(page + 8, MD_BITMAP | MD_BAD_BLOCKS);
    put_le32(page + 96, 16);
    page[185] = 3;
    put_le16(page + 186, 8);
    put_le32(page + 188, (uint32_t)-4); /* before the superblock */
    md_sum_super(page);
    cr_assert_eq(md_superblock_decode(page, &sb, why, sizeof why), MD_VALID, "%s", why);
    cr_expect_eq(sb.level, 5);
    cr_expect(sb.layout == 2 && sb.disks == 4 && sb.chunk == 65536 && sb.size == 8 * MIB);
    cr_expect(sb.data_start == MIB + 8192 && sb.data_bytes == 8 * MIB);
    cr_expect(sb.number == 2 && sb.events == 41 && sb.clean);
    cr_expect_str_eq(sb.name, "box:7");
    cr_expect_eq(sb.bitmap_start, 4096 + 16 * 512);
    cr_expect(sb.bad_start == 2048 && sb.bad_bytes == 4096 && sb.bad_shift == 3);
    cr_expect(sb.roles_count == 5 && md_role(&sb, 3) == 3 && md_role(&sb, 4) == MD_ROLE_SPARE);
    cr_expect_eq(md_role(&sb, 4000000000u), MD_ROLE_SPARE);
}

/* Known good: the sum of these words was worked out by hand. */
Test(md_superblock, the_checksum_carries)
{
    uint8_t page[4096] = {0};
    struct md_superblock sb;
    char why[200];
    put_le32(page, 0xa92b4efc);
    put_le32(page + 4, 1);
    put_le64(page + 144, 8);
    put_le32(page + 220, 1);
    put_le16(page + 256, 0xfffe);
    put_le64(page + 208, UINT64_MAX);
    /* a92b4efc + 1 + 8 + ffffffff + ffffffff + 1 + fffe = 2 a92c4f02, and 2 added */
    put_le32(page + 216, 0xa92c4f04);
    cr_expect_eq(md_superblock_decode(page, &sb, why, sizeof why), MD_VALID, "%s", why);
    put_le32(page + 216, 0xa92c4f02);
    cr_expect_eq(md_superblock_decode(page, &sb, why, sizeof why), MD_DAMAGED);
}

Test(md_superblock, every_byte_that_counts_is_under_the_checksum)
{
    struct set *set = set_make(raid5);
    struct md_superblock sb;
    char why[200];
    for (unsigned at = 0; at < 256 + 10; at++) {
        set->pages[0][at] ^= 0x10;
        cr_expect_neq(md_superblock_decode(set->pages[0], &sb, why, sizeof why), MD_VALID, "byte %u", at);
        set->pages[0][at] ^= 0x10;
    }
    set->pages[0][256 + 10] ^= 0x10; /* behind the roles */
    cr_expect_eq(md_superblock_decode(set->pages[0], &sb, why, sizeof why), MD_VALID);
}

Test(md_superblock, what_is_none_or_damaged_has_a_sentence)
{
    static const struct {
        unsigned at;
        uint32_t value;
        enum md_verdict verdict;
        const char *with;
    } cases[] = {
        {0, 0xa92b4efd, MD_NONE, "no md superblock"},
        {4, 0, MD_DAMAGED, "major version 0"},
        {4, 2, MD_DAMAGED, "major version 2"},
        {144, 0, MD_DAMAGED, "stands elsewhere"},
        {84, 0x00300000, MD_DAMAGED, "a size that cannot"},
        {132, 0x80000000, MD_DAMAGED, "data offset that cannot"},
        {140, 0xffffffff, MD_DAMAGED, "data size that"},
    };
    struct md_superblock sb;
    char why[200];
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct set *set = set_make(raid5);
        put_le32(set->pages[0] + cases[i].at, cases[i].value);
        md_sum_super(set->pages[0]);
        cr_expect_eq(md_superblock_decode(set->pages[0], &sb, why, sizeof why), cases[i].verdict, "%s", cases[i].with);
        cr_expect_not_null(strstr(why, cases[i].with), "'%s' is not in '%s'", cases[i].with, why);
    }
    struct set *set = set_make(raid5);
    put_le32(set->pages[0] + 220, MD_ROLES_MAX + 1);
    cr_expect_eq(md_superblock_decode(set->pages[0], &sb, why, sizeof why), MD_DAMAGED);
}

/* --- bitmap, bad blocks --- */

static void bitmap_make(uint8_t *header, const struct md_superblock *sb, uint64_t sectors, uint32_t chunk)
{
    memset(header, 0, MD_BITMAP_HEADER);
    put_le32(header, 0x6d746962);
    put_le32(header + 4, 4);
    memcpy(header + 8, sb->set.bytes, 16);
    put_le64(header + 40, sectors);
    put_le32(header + 52, chunk);
}

Test(md_bitmap, bits_are_counted_up_to_the_last)
{
    struct set *set = set_make(raid5);
    decide(set);
    uint8_t bytes[MD_BITMAP_HEADER + 4];
    struct md_bitmap bitmap;
    char why[200];
    memset(bytes, 0xff, sizeof bytes);
    bitmap_make(bytes, &set->supers[0], 2 * 128 * 10 + 1, 65536); /* 21 bits */
    cr_assert_null(md_bitmap_decode(bytes, &set->supers[0], &bitmap, why, sizeof why));
    cr_expect(bitmap.chunks == 21 && bitmap.bytes == MD_BITMAP_HEADER + 3);
    cr_expect_eq(md_bitmap_count(&bitmap, bytes), 21);
    bytes[MD_BITMAP_HEADER] = 0x81;
    bytes[MD_BITMAP_HEADER + 1] = 0;
    bytes[MD_BITMAP_HEADER + 2] = 0xe0; /* behind the end */
    cr_expect_eq(md_bitmap_count(&bitmap, bytes), 2);
}

Test(md_bitmap, refusals)
{
    static const struct {
        unsigned at;
        uint32_t value;
        const char *with;
    } cases[] = {{0, 1, "not where"},       {8, 1, "not where"}, {4, 6, "version 6"},  {48, 2, "not right"},
                 {48, 4, "not right"},      {52, 0, "sizes"},    {52, 65537, "sizes"}, {52, 256, "sizes"},
                 {44, 0x7fffffff, "sizes"}, {44, 1, "larger"}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct set *set = set_make(raid5);
        uint8_t header[MD_BITMAP_HEADER];
        struct md_bitmap bitmap;
        char why[200];
        decide(set);
        bitmap_make(header, &set->supers[0], 20000, 65536);
        put_le32(header + cases[i].at, cases[i].value);
        cr_expect_not_null(md_bitmap_decode(header, &set->supers[0], &bitmap, why, sizeof why), "%u", i);
        cr_expect_not_null(strstr(why, cases[i].with), "'%s' is not in '%s'", cases[i].with, why);
    }
}

Test(md_bad_blocks, come_out_relative_to_the_data)
{
    struct md_superblock sb = {.data_start = 8192, .data_bytes = 65536, .bad_bytes = 512, .bad_shift = 0};
    static struct bad_list list;
    uint8_t log[512];
    char why[200];
    memset(log, 0xff, sizeof log);
    list.count = 0;
    put_le64(log, (UINT64_C(20) << 10) | 4);       /* bytes 2048 to 4096 of the data */
    put_le64(log + 8, 0);                          /* an entry that is none */
    put_le64(log + 16, (UINT64_C(14) << 10) | 3);  /* begins before the data: 512 bytes of it */
    put_le64(log + 24, (UINT64_C(900) << 10) | 8); /* behind it */
    cr_assert_null(md_bad_blocks_decode(log, &sb, 3, &list, why, sizeof why));
    cr_assert_eq(list.count, 2);
    cr_expect(bad_overlaps(&list, 3, 0, 512) && !bad_overlaps(&list, 3, 512, 1536));
    cr_expect(bad_overlaps(&list, 3, 2048, 2048) && bad_bytes(&list, 3) == 2560);
    sb.bad_shift = 3;
    list.count = 0;
    put_le64(log, (UINT64_C(3) << 10) | 1);
    put_le64(log + 8, UINT64_MAX);
    cr_assert_null(md_bad_blocks_decode(log, &sb, 0, &list, why, sizeof why));
    cr_expect(list.count == 1 && bad_overlaps(&list, 0, 4096, 4096) && bad_bytes(&list, 0) == 4096);
    put_le64(log, UINT64_MAX << 11);
    cr_expect_not_null(md_bad_blocks_decode(log, &sb, 0, &list, why, sizeof why));
    sb.bad_shift = 40;
    cr_expect_not_null(md_bad_blocks_decode(log, &sb, 0, &list, why, sizeof why));
}

/* --- which disks --- */

Test(md_assembly, a_clean_array_is_taken_whole)
{
    const struct md_set *out = decide(set_make(raid5));
    cr_assert(out->usable, "%s", out->reason);
    cr_expect_str_eq(out->reason, "raid5 of 4 disks");
    cr_expect(out->missing == 0 && out->size == 24 * MIB);
    cr_expect(out->layout.spec.level == RAID_5 && out->layout.spec.rotation == ROTATE_LEFT_SYMMETRIC);
    for (unsigned slot = 0; slot < 4; slot++)
        cr_expect_eq(out->disk_of_slot[slot], slot);
}

/* The disks are given in any order; numbers of devices are not slots. */
Test(md_assembly, the_newest_table_says_who_is_where)
{
    struct set *set = set_make(raid5);
    for (unsigned i = 0; i < 4; i++) {
        uint8_t *page = set->pages[i];
        put_le32(page + 160, 4 - i); /* device 4 is the first disk that is given */
        put_le16(page + 256, 0xfffe);
        for (unsigned number = 1; number <= 4; number++)
            put_le16(page + 256 + 2 * number, (uint16_t)(number % 4));
    }
    const struct md_set *out = decide(set);
    cr_assert(out->usable, "%s", out->reason);
    static const int expected[] = {0, 3, 2, 1};
    for (unsigned slot = 0; slot < 4; slot++)
        cr_expect_eq(out->disk_of_slot[slot], expected[slot], "slot %u has %d", slot, out->disk_of_slot[slot]);
}

Test(md_assembly, who_is_not_current_is_left_out)
{
    struct set *set = set_make(raid5);
    put_le64(set->pages[1] + 200, 40);
    const struct md_set *out = decide(set);
    cr_assert(out->usable, "%s", out->reason);
    cr_expect(out->standing[1] == MD_STALE && out->missing == 1 && out->disk_of_slot[1] == -1);
    cr_expect_not_null(strstr(out->reason, "degraded: no current disk for slots 1"), "%s", out->reason);

    set = set_make(raid5);
    put_le32(set->pages[3] + 8, MD_RECOVERING);
    out = decide(set);
    cr_expect(out->usable && out->standing[3] == MD_FILLING && out->disk_of_slot[3] == -1);

    set = set_make(raid5);
    put_le32(set->pages[3] + 8, MD_REPLACEMENT);
    out = decide(set);
    cr_expect(out->usable && out->standing[3] == MD_REPLACES);

    set = set_make(raid5); /* faulty to the others, which went on */
    for (unsigned i = 0; i < 4; i++)
        if (i != 2) {
            put_le16(set->pages[i] + 256 + 4, 0xfffe);
            put_le64(set->pages[i] + 200, 99);
        }
    out = decide(set);
    cr_expect(out->usable && out->standing[2] == MD_IS_FAULTY && out->missing == 1);

    set = set_make(raid5); /* a fifth one, a spare */
    md_make_super(&set->shape, 4, MIB, set->pages[4]);
    set->count = 5;
    out = decide(set);
    cr_expect(out->usable && out->standing[4] == MD_IS_SPARE && out->missing == 0, "%s", out->reason);
}

Test(md_assembly, more_missing_than_the_level_bears_is_refused)
{
    struct set *set = set_make(raid5);
    put_le64(set->pages[0] + 200, 1);
    put_le64(set->pages[3] + 200, 1);
    expect_refused(set, "lacks more than it bears: no current disk for slots 0, 3");
    set = set_make((struct md_shape){.level = 6, .layout = 2, .disks = 5, .chunk = 65536, .size = 8 * MIB});
    put_le64(set->pages[0] + 200, 1);
    put_le64(set->pages[3] + 200, 1);
    cr_expect(decide(set)->usable);
    set = set_make((struct md_shape){.level = 0, .disks = 3, .chunk = 65536, .size = 8 * MIB});
    set->count = 2;
    expect_refused(set, "slots 2");
    set = set_make((struct md_shape){.level = 10, .layout = 0x102, .disks = 4, .chunk = 65536, .size = 8 * MIB});
    put_le64(set->pages[0] + 200, 1);
    put_le64(set->pages[1] + 200, 1);
    expect_refused(set, "slots 0, 1");
}

Test(md_assembly, disks_that_do_not_go_together_are_refused)
{
    struct set *set = set_make(raid5);
    set->pages[2][16] ^= 1;
    expect_refused(set, "disk c belongs to another md array");
    set = set_make(raid5); /* two halves, each of which went on without the other */
    put_le16(set->pages[0] + 256 + 6, 0xfffe);
    expect_refused(set, "ran apart");
    set = set_make(raid5);
    put_le32(set->pages[1] + 88, 256);
    expect_refused(set, "shape of the array");
    set = set_make(raid5);
    memcpy(set->pages[4], set->pages[1], 4096);
    set->count = 5;
    expect_refused(set, "disks b and e both say that they are in slot 1");
}

Test(md_assembly, what_is_not_at_rest_is_refused)
{
    static const struct {
        uint32_t features;
        const char *with;
    } cases[] = {
        {MD_RESHAPING, "reshaped"}, {MD_BACKWARDS, "reshaped"}, {MD_NEW_OFFSET, "reshaped"},
        {MD_JOURNALLED, "journal"}, {MD_PPL, "parity log"},     {MD_PPLS, "parity log"},
        {MD_CLUSTERED, "shared"},   {1 << 13, "not known"},     {1u << 31, "not known"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct set *set = set_make(raid5);
        put_le32(set->pages[i % 4] + 8, cases[i].features); /* whichever disk says so */
        expect_refused(set, cases[i].with);
    }
    struct set *set = set_make(raid5);
    put_le64(set->pages[3] + 208, 0);
    expect_refused(set, "not stopped cleanly");
    set = set_make(raid5);
    put_le64(set->pages[0] + 208, 1 << 20);
    expect_refused(set, "not stopped cleanly");
    set = set_make((struct md_shape){.level = 0, .disks = 3, .chunk = 65536, .size = 8 * MIB});
    put_le64(set->pages[0] + 208, 0); /* has nothing to be in sync */
    cr_expect(decide(set)->usable);
}

Test(md_assembly, bits_in_a_bitmap_count_while_all_are_there)
{
    struct set *set = set_make(raid5);
    set->disks[2].suspect = 5;
    expect_refused(set, "bitmap on disk c says that 5 parts");
    set = set_make(raid5);
    set->disks[2].suspect = 5;
    put_le64(set->pages[0] + 200, 1);
    cr_expect(decide(set)->usable, "they are for the one that is away");
    set = set_make(raid5);
    set->disks[1].trouble = "it burns";
    expect_refused(set, "disk b: it burns");
}

Test(md_assembly, members_must_have_what_they_say)
{
    struct set *set = set_make(raid5);
    set->disks[1].bytes = MIB + 4096 + 8 * MIB - 512;
    expect_refused(set, "disk b is smaller than");
    set = set_make(raid5);
    put_le64(set->pages[1] + 136, 8 * MIB / 512 - 1);
    expect_refused(set, "disk b is smaller than");
    set = set_make(raid5);
    put_le64(set->pages[1] + 128, 2049);
    expect_refused(set, "multiple of 4 KiB");
    set = set_make((struct md_shape){.level = 0, .disks = 3, .chunk = 65536, .size = 8 * MIB});
    put_le64(set->pages[1] + 136, 8 * MIB / 512 - 1);
    expect_refused(set, "different sizes");
    set = set_make((struct md_shape){.level = 0, .disks = 3, .chunk = 65536, .size = 8 * MIB + 512});
    put_le64(set->pages[1] + 136, 8 * MIB / 512);
    cr_expect(decide(set)->usable, "the same in whole chunks");
}

/* --- which shapes --- */

Test(md_assembly, shapes)
{
    static const struct {
        struct md_shape shape;
        enum raid_level level;
        enum raid_rotation rotation;
        uint64_t size;
    } cases[] = {
        {{0, 0, 3, 65536, 8 * MIB}, RAID_0, 0, 24 * MIB},
        {{0, 0, 1, 65536, 8 * MIB}, RAID_JBOD, 0, 8 * MIB},
        {{1, 0, 3, 0, 8 * MIB + 512}, RAID_1, 0, 8 * MIB + 512},
        {{1, 0, 1, 0, 8 * MIB}, RAID_JBOD, 0, 8 * MIB},
        {{4, 0, 4, 65536, 8 * MIB}, RAID_5, ROTATE_PARITY_LAST, 24 * MIB},
        {{5, 0, 4, 65536, 8 * MIB}, RAID_5, ROTATE_LEFT_ASYMMETRIC, 24 * MIB},
        {{5, 1, 4, 65536, 8 * MIB}, RAID_5, ROTATE_RIGHT_ASYMMETRIC, 24 * MIB},
        {{5, 2, 4, 65536, 8 * MIB + 4096}, RAID_5, ROTATE_LEFT_SYMMETRIC, 24 * MIB},
        {{5, 3, 4, 65536, 8 * MIB}, RAID_5, ROTATE_RIGHT_SYMMETRIC, 24 * MIB},
        {{5, 4, 4, 65536, 8 * MIB}, RAID_5, ROTATE_PARITY_FIRST, 24 * MIB},
        {{5, 5, 4, 65536, 8 * MIB}, RAID_5, ROTATE_PARITY_LAST, 24 * MIB},
        {{5, 2, 2, 65536, 8 * MIB}, RAID_1, ROTATE_LEFT_SYMMETRIC, 8 * MIB},
        {{6, 2, 5, 65536, 8 * MIB}, RAID_6, ROTATE_LEFT_SYMMETRIC, 24 * MIB},
        {{6, 4, 5, 65536, 8 * MIB}, RAID_6, ROTATE_PARITY_FIRST, 24 * MIB},
        {{10, 0x102, 4, 65536, 8 * MIB}, RAID_10, 0, 16 * MIB},
        {{10, 0x102, 3, 65536, 8 * MIB}, RAID_1E, 0, 12 * MIB},
        {{10, 0x102, 2, 65536, 8 * MIB}, RAID_1, 0, 8 * MIB},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        const struct md_set *out = decide(set_make(cases[i].shape));
        cr_assert(out->usable, "%u: %s", i, out->reason);
        cr_expect_eq(out->layout.spec.level, cases[i].level, "%u", i);
        cr_expect_eq(out->layout.spec.rotation, cases[i].rotation, "%u", i);
        cr_expect_eq(out->size, cases[i].size, "%u: %llu", i, (unsigned long long)out->size);
    }
}

Test(md_assembly, shapes_that_are_refused)
{
    static const struct {
        struct md_shape shape;
        const char *with;
    } cases[] = {
        {{-1, 0, 3, 65536, 8 * MIB}, "linear cannot"},
        {{-4, 0, 3, 65536, 8 * MIB}, "level -4 cannot"},
        {{2, 0, 3, 65536, 8 * MIB}, "raid2 cannot"},
        {{5, 6, 4, 65536, 8 * MIB}, "parity layout (md's number 6)"},
        {{6, 16, 5, 65536, 8 * MIB}, "parity layout (md's number 16)"},
        {{6, 8, 5, 65536, 8 * MIB}, "parity layout (md's number 8)"},
        {{6, 2, 3, 65536, 8 * MIB}, "at least 4 members"},
        {{10, 0x201, 4, 65536, 8 * MIB}, "far or offset"},
        {{10, 0x10201, 4, 65536, 8 * MIB}, "far or offset"},
        {{10, 0x101, 4, 65536, 8 * MIB}, "1 copies on 4 disks"},
        {{10, 0x105, 4, 65536, 8 * MIB}, "5 copies on 4 disks"},
        {{5, 2, 4, 3 * 4096, 8 * MIB}, "no power of two"},
        {{5, 2, 4, 0, 8 * MIB}, "no power of two"},
        {{5, 2, 4, 2048, 8 * MIB}, "from 4 KiB to 16 MiB"},
        {{5, 2, 4, 65536, 4096}, "less room than one chunk"},
        {{0, 0, 0, 65536, 8 * MIB}, "0 disks"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct set *set = set_make(cases[i].shape);
        set->count = MAX(cases[i].shape.disks, 1u);
        if (cases[i].shape.disks == 0)
            md_make_super(&set->shape, 0, MIB, set->pages[0]);
        expect_refused(set, cases[i].with);
    }
}
