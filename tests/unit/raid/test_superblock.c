#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "core/log.h"
#include "raid/superblock_text.h"
#include "tests/unit/raid/labels.h"
#include "tests/unit/lib/testloop.h"

static uint8_t bytes[SB_SLOT_BYTES], again[SB_SLOT_BYTES];
static struct sb_label read_back;
static char why[200];

static struct sb_label typical(void)
{
    struct sb_array array;
    label_make_array(&array, 6, 1 * GIB);
    label_add_volume(&array, RAID_6, 100 * MIB);
    struct sb_volume *scrubbed = label_add_volume(&array, RAID_50, 64 * MIB);
    scrubbed->consistency = SB_PPL;
    scrubbed->scrub = (struct sb_scrub){SB_SCRUB_REPAIR, 5, {6, 7, 8, 9}, 10, SB_SCRUB_CHECK, {11, 12, 13, 14}, 15};
    scrubbed->init = SB_INIT_FOREGROUND;
    label_add_volume(&array, RAID_0, 10 * MIB)->logical_block = 4096;
    label_add_volume(&array, RAID_JBOD, 10 * MIB)->slot = 5;
    array.members[4].state = SB_FAILED;
    array.clean = false;
    array.generation = 77;
    array.committed = 76;
    array.forks[1] = (struct sb_fork){.id = label_uuid(LABEL_UUID_FORK, 1), .generation = 500, .settled = true};
    array.forks[2] = (struct sb_fork){
        .id = label_uuid(LABEL_UUID_FORK, 2), .generation = 12, .witness = label_uuid(LABEL_UUID_FORK, 3)};
    array.forks[0].left = true;
    array.forks_count = 3;
    return label_of(&array, 2);
}

/* One letter a line: what grows most when it is written with indents. */
static void keep_all_that_fits(struct sb_array *array)
{
    static char list[SB_KEPT_BYTES] = "[1";
    unsigned volume = 0;
    for (size_t len = 2; volume < 2; len += 2) {
        memcpy(list + len, ",1]", 4);
        if (superblock_kept_put(array, &array->volumes[volume].uuid, "list", list) != 0) {
            volume++;
            len = 0;
        }
    }
}

/* As much of everything as there can be, every string as long as it can be and every character escaped. */
static struct sb_label largest(void)
{
    struct sb_array array;
    label_make_array(&array, RAID_MEMBERS_MAX, 100 * GIB);
    memset(array.name, '"', sizeof array.name - 1);
    for (unsigned i = 0; i < RAID_MEMBERS_MAX; i++) {
        memset(array.members[i].identity, '\\', sizeof array.members[i].identity - 1);
        array.members[i].state = SB_REBUILDING;
    }
    for (unsigned i = 0; i < SB_VOLUMES_MAX; i++) {
        struct sb_volume *v = label_add_volume(&array, RAID_6, 1 * GIB);
        memset(v->name, '"', sizeof v->name - 1);
        v->name[0] = (char)('0' + i);
        v->consistency = SB_JOURNAL;
        struct sb_scrub_result most = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
        v->scrub = (struct sb_scrub){SB_SCRUB_PATROL, 1, most, INT64_MAX, SB_SCRUB_PATROL, most, INT64_MAX};
    }
    array.volumes[SB_VOLUMES_MAX - 1].name[0] = 'x';
    array.volumes['\\' - '0'].name[0] = 'y';
    array.generation = SB_GENERATION_MAX;
    array.created_s = array.updated_s = INT64_MAX;
    for (unsigned i = 0; i < SB_FORKS_MAX; i++)
        array.forks[i] = (struct sb_fork){label_uuid(LABEL_UUID_FORK, i), SB_GENERATION_MAX, i < SB_FORKS_MAX - 1,
                                          i < SB_FORKS_MAX - 1, label_uuid(LABEL_UUID_FORK, i + 1)};
    array.forks_count = SB_FORKS_MAX;
    array.bad.count = BAD_MAX;
    for (unsigned i = 0; i < BAD_MAX; i++)
        array.bad.of[i] = (struct bad_range){RAID_MEMBERS_MAX - 1, 10 * GIB + 1024 * i, 512};
    keep_all_that_fits(&array);
    return label_of(&array, RAID_MEMBERS_MAX - 1);
}

static size_t encode_or_die(const struct sb_label *label)
{
    const char *wrong = superblock_check(label);
    cr_assert(wrong == NULL, "%s", wrong);
    size_t len = superblock_encode(label, bytes);
    cr_assert_gt(len, 0);
    return len;
}

/* Decoding gives a value; equal values encode to equal bytes. */
static void expect_round_trip(const struct sb_label *label)
{
    size_t len = encode_or_die(label);
    cr_expect_eq(len % 4096, 0);
    cr_expect_leq(len, SB_SLOT_BYTES);
    cr_expect_eq(superblock_length(bytes), len);
    cr_assert_eq(superblock_decode(bytes, len, &read_back, why, sizeof why), SB_VALID, "%s", why);
    cr_expect_eq(superblock_encode(&read_back, again), len);
    cr_expect(memcmp(bytes, again, SB_SLOT_BYTES) == 0);
    cr_expect_eq(read_back.slot, label->slot);
    cr_expect(uuid_equal(&read_back.member, &label->member));
    cr_expect_eq(read_back.array.generation, label->array.generation);
}

Test(superblock, a_generation_that_leaves_none_to_come_is_told_as_what_it_is)
{
    struct sb_label label = typical();
    label.array.generation = SB_GENERATION_MAX;
    cr_expect_null(superblock_check(&label));
    label.array.generation++;
    cr_expect_str_eq(superblock_check(&label),
                     "the generation is higher than an array can come to: the superblock is damaged or forged");
}

Test(superblock, what_is_written_reads_back)
{
    struct sb_label label = typical();
    expect_round_trip(&label);
    const struct sb_array *a = &read_back.array, *b = &label.array;
    cr_expect_str_eq(a->name, "tank");
    cr_expect_eq(a->clean, false);
    cr_expect_eq(a->created_s, 1700000000);
    cr_expect_eq(a->updated_s, 1700000100);
    cr_expect_eq(a->data_start, b->data_start);
    cr_expect_eq(a->data_bytes, b->data_bytes);
    cr_expect_eq(a->journal_bytes, b->journal_bytes);
    cr_assert_eq(a->members_count, 6);
    cr_expect_eq(a->members[4].state, SB_FAILED);
    cr_expect_str_eq(a->members[3].identity, "disk3");
    cr_expect_eq(a->members[3].size, 1 * GIB);
    cr_assert_eq(a->forks_count, 3);
    cr_expect(a->forks[1].settled && !a->forks[2].settled && !a->forks[0].settled);
    cr_expect(a->forks[0].left && !a->forks[1].left && !a->forks[2].left);
    cr_expect_eq(a->forks[1].generation, 500);
    cr_expect_eq(a->forks[2].generation, 12);
    cr_expect_eq(a->committed, 76);
    cr_assert_eq(a->volumes_count, 4);
    for (unsigned i = 0; i < 4; i++) {
        const struct sb_volume *v = &a->volumes[i], *w = &b->volumes[i];
        cr_expect(uuid_equal(&v->uuid, &w->uuid) && strcmp(v->name, w->name) == 0, "volume %u", i);
        cr_expect(v->spec.level == w->spec.level && v->spec.rotation == w->spec.rotation, "volume %u", i);
        cr_expect(v->spec.members == w->spec.members && v->spec.spans == w->spec.spans, "volume %u", i);
        cr_expect(v->spec.copies == w->spec.copies && v->spec.chunk == w->spec.chunk, "volume %u", i);
        cr_expect(v->start == w->start && v->extent == w->extent && v->size == w->size, "volume %u", i);
        cr_expect(v->logical_block == w->logical_block && v->slot == w->slot, "volume %u", i);
        cr_expect_eq(memcmp(&v->scrub, &w->scrub, sizeof v->scrub), 0, "volume %u", i);
        cr_expect_eq(v->init, w->init, "volume %u", i);
        cr_expect(v->consistency == w->consistency && v->map_block == w->map_block && v->unmapped == w->unmapped,
                  "volume %u", i);
    }
}

Test(superblock, the_largest_description_fits_its_slot)
{
    struct sb_label label = largest();
    expect_round_trip(&label);
    cr_expect_gt(strlen(label.array.kept), 4000);
    cr_expect_str_eq(read_back.array.kept, label.array.kept);
}

/* Twice as many as can be, with numbers as long as they can be. */
Test(superblock, relayouts_of_all_volumes_fit_beside_all_the_rest)
{
    struct sb_label label = largest();
    for (unsigned i = 0; i < SB_VOLUMES_MAX; i++) {
        struct sb_volume *v = &label.array.volumes[i];
        v->key = label_uuid(LABEL_UUID_VOLUME, 100 + i);
        v->without = INT64_MAX;
        v->relayout = (struct sb_relayout){v->key, true, INT64_MAX, INT64_MAX, 1ull << 56, 1ull << 56};
    }
    cr_expect_gt(superblock_text_write(&label.array, (char *)bytes, SB_SLOT_BYTES - 4096), 0);
}

Test(superblock, what_is_kept_with_a_volume_is_found_by_its_name)
{
    struct sb_label label = typical();
    struct sb_array *a = &label.array;
    const struct uuid *first = &a->volumes[0].uuid, *second = &a->volumes[1].uuid;
    cr_expect_null(superblock_kept_get(a, first, "x"));
    cr_expect_eq(superblock_kept_put(a, first, "x", NULL), 0, "nothing to forget");
    cr_expect_str_empty(a->kept);
    cr_expect_eq(superblock_kept_put(a, first, "x", "{\"a\": [1, 2]}"), 0);
    cr_expect_eq(superblock_kept_put(a, second, "x", "[]"), 0);
    cr_expect_eq(superblock_kept_put(a, second, "y", "{}"), 0);
    cr_expect_eq(superblock_kept_put(a, second, "x", "{\"a\":"), -EINVAL);
    expect_round_trip(&label);
    char *text = superblock_kept_get(&read_back.array, first, "x");
    cr_assert_str_eq(text, "{\"a\":[1,2]}");
    free(text);
    text = superblock_kept_get(&read_back.array, second, "x");
    cr_assert_str_eq(text, "[]");
    free(text);
    cr_expect_eq(superblock_kept_put(a, first, "x", NULL), 0);
    cr_expect_null(superblock_kept_get(a, first, "x"));
    cr_expect_eq(superblock_kept_put(a, second, "x", NULL), 0);
    cr_expect_eq(superblock_kept_put(a, second, "y", NULL), 0);
    cr_expect_str_empty(a->kept, "and so it is not written at all");
}

Test(superblock, what_is_kept_is_bounded_and_damage_to_it_is_noticed)
{
    struct sb_label label = typical();
    struct sb_array *a = &label.array;
    static char text[SB_KEPT_BYTES + 8], before[SB_KEPT_BYTES];
    memset(text, '7', sizeof text - 1);
    memcpy(text, "[\"", 2);
    memcpy(text + sizeof text - 3, "\"]", 2);
    cr_expect_eq(superblock_kept_put(a, &a->volumes[0].uuid, "x", "[\"small\"]"), 0);
    memcpy(before, a->kept, sizeof before);
    cr_expect_eq(superblock_kept_put(a, &a->volumes[0].uuid, "x", text), -ENOSPC);
    cr_expect_str_eq(a->kept, before, "nothing has changed");
    text_format(a->kept, sizeof a->kept, "%s", "[1]");
    cr_expect_eq(superblock_encode(&label, bytes), 0, "no object");
    memset(a->kept, ' ', sizeof a->kept);
    cr_expect_eq(superblock_encode(&label, bytes), 0, "no end");
}

Test(superblock, every_level_reads_back)
{
    for (unsigned level = 0; level < RAID_LEVEL_COUNT; level++) {
        struct sb_array array;
        unsigned members = level == RAID_1E ? 5 : 8;
        label_make_array(&array, members, 1 * GIB);
        label_add_volume(&array, (enum raid_level)level, 64 * MIB);
        struct sb_label label = label_of(&array, 0);
        expect_round_trip(&label);
        cr_expect_eq(read_back.array.volumes[0].spec.level, level, "%s", raid_level_name((enum raid_level)level));
    }
}

Test(superblock, a_span_over_all_of_members_of_different_size)
{
    struct sb_array array;
    label_make_array(&array, 3, 1 * GIB);
    array.members[2].size = 3 * GIB;
    struct sb_volume *v = label_add_volume(&array, RAID_SPAN, 64 * MIB);
    v->extent = 0;
    v->size = 4 * GIB;
    struct sb_label label = label_of(&array, 0);
    expect_round_trip(&label);
    label.array.volumes[0].size = 6 * GIB;
    cr_expect_str_eq(superblock_check(&label), "a volume's size is not what its extent can hold");
}

Test(superblock, the_text_is_readable_and_stands_behind_the_header)
{
    struct sb_label label = typical();
    size_t len = encode_or_die(&label);
    char *text = (char *)bytes + 4096;
    cr_assert_lt(strnlen(text, len - 4096), len - 4096, "zeros follow the text");
    cr_expect(strncmp(text, "{\n \"array\": \"01000000-0000-0000-0000-000000000001\",\n \"name\": \"tank\",\n", 68) ==
              0);
    cr_expect_eq(text[strlen(text) - 1], '\n');
    cr_expect_not_null(strstr(text, "\"level\": \"raid6\""));
    cr_expect_not_null(strstr(text, "\"state\": \"failed\""));
}

/* A change of a byte is noticed, or made no difference. */
static void expect_noticed(size_t len, size_t at, uint8_t flip)
{
    bytes[at] ^= flip;
    enum sb_verdict verdict = superblock_decode(bytes, len, &read_back, NULL, 0);
    if (verdict == SB_VALID) {
        bytes[at] ^= flip;
        superblock_encode(&read_back, again);
        cr_expect(memcmp(bytes, again, SB_SLOT_BYTES) == 0, "byte %zu ^ %02x", at, flip);
        return;
    }
    cr_expect(verdict == (at < 16 ? SB_NONE : SB_DAMAGED), "byte %zu ^ %02x: verdict %d", at, flip, verdict);
    bytes[at] ^= flip;
}

Test(superblock, a_flipped_byte_is_noticed)
{
    struct sb_label label = typical();
    size_t len = encode_or_die(&label);
    uint64_t seed = 5;
    for (size_t at = 0; at < 4096; at++)
        expect_noticed(len, at, (uint8_t)(1u << (test_random(&seed) % 8)));
    for (unsigned i = 0; i < 4000; i++)
        expect_noticed(len, 4096 + test_random(&seed) % (len - 4096), (uint8_t)(1 + test_random(&seed) % 255));
}

Test(superblock, a_truncated_one_is_noticed)
{
    struct sb_label label = typical();
    size_t len = encode_or_die(&label);
    size_t needed = 4096 + strlen((char *)bytes + 4096);
    for (size_t cut = 0; cut <= len; cut++) {
        uint8_t *copy = malloc(cut + 1); /* so that a sanitizer sees a read beyond */
        cr_assert_not_null(copy);
        memcpy(copy, bytes, cut);
        enum sb_verdict verdict = superblock_decode(copy, cut, &read_back, why, sizeof why);
        cr_expect_eq(verdict, cut < 16 ? SB_NONE : cut < needed ? SB_DAMAGED : SB_VALID, "cut at %zu", cut);
        free(copy);
    }
}

Test(superblock, random_bytes_are_none)
{
    for (uint64_t seed = 1; seed < 200; seed++) {
        test_fill(bytes, 8192, seed);
        cr_expect_eq(superblock_decode(bytes, 8192, &read_back, why, sizeof why), SB_NONE);
    }
    memset(bytes, 0, sizeof bytes);
    cr_expect_eq(superblock_decode(bytes, sizeof bytes, &read_back, NULL, 0), SB_NONE);
    cr_expect_eq(superblock_length(bytes), 4096, "more is of no use");
}

Test(superblock, no_length_of_a_damaged_header_is_believed)
{
    struct sb_label label = typical();
    encode_or_die(&label);
    for (unsigned at = 0; at < 4096; at += 4) {
        bytes[at] ^= 1;
        cr_expect_eq(superblock_length(bytes), 4096, "byte %u", at);
        bytes[at] ^= 1;
    }
}

static void seal(uint8_t *header)
{
    put_le32(header + 80, crc32c(0, header + 4096, get_le32(header + 36)));
    put_le32(header + 4092, crc32c(0, header, 4092));
}

Test(superblock, features_and_versions_from_the_future)
{
    static const struct {
        unsigned off;
        uint32_t value;
        enum sb_verdict verdict;
        const char *what;
    } cases[] = {
        {16, 3, SB_UNSUPPORTED, "version"},           {16, 1, SB_UNSUPPORTED, "a version before the first release"},
        {20, 0x80000001, SB_VALID, "compat"},         {24, 0x100, SB_UNSUPPORTED, "ro-compat"},
        {28, 0x80000000, SB_UNSUPPORTED, "incompat"},
    };
    struct sb_label label = typical();
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        size_t len = encode_or_die(&label);
        put_le32(bytes + cases[i].off, cases[i].value);
        seal(bytes);
        enum sb_verdict verdict = superblock_decode(bytes, len, &read_back, why, sizeof why);
        cr_expect_eq(verdict, cases[i].verdict, "%s: %d", cases[i].what, verdict);
        cr_expect_eq(read_back.array.generation, 77, "%s: the header is told", cases[i].what);
    }
}

Test(superblock, header_and_text_must_agree)
{
    static const struct {
        unsigned off;
        const char *why;
    } cases[] = {{32, "the member does not stand in its own table"},
                 {40, "the superblock's header and text contradict each other"},
                 {48, "the superblock's header and text contradict each other"},
                 {64, "the member does not stand in its own table"}};
    struct sb_label label = typical();
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        size_t len = encode_or_die(&label);
        bytes[cases[i].off] ^= 1;
        seal(bytes);
        cr_expect_eq(superblock_decode(bytes, len, &read_back, why, sizeof why), SB_DAMAGED, "byte %u", cases[i].off);
        cr_expect_str_eq(why, cases[i].why);
    }
}

/* Replace the first `from` in the text by `to`, of any length, and make the checksums right. */
static void edit(const char *from, const char *to)
{
    char *text = (char *)bytes + 4096, *at = strstr(text, from);
    cr_assert_not_null(at, "%s", from);
    size_t from_len = strlen(from), to_len = strlen(to);
    memmove(at + to_len, at + from_len, strlen(at + from_len) + 1);
    memcpy(at, to, to_len);
    put_le32(bytes + 36, (uint32_t)strlen(text));
    seal(bytes);
}

Test(superblock, hostile_text_with_right_checksums_is_refused)
{
    static const char *const cases[][3] = {
        {"\"clean\": false", "\"clean\": 0", "clean is neither true nor false"},
        {"\"generation\": 77", "\"generation\": 77.0", "generation is out of range"},
        {"\"generation\": 77", "\"generation\": -77", "generation is out of range"},
        {"\"generation\": 77", "\"generation\": 9223372036854775808", "the text is not JSON"},
        {"\"generation\": 77", "\"generation\": \"77\"", "generation is out of range"},
        {"\"clean\": false", "\"clean\": false, \"clean\": false", "the text is not JSON"},
        {"\"tank\"", "\"ta\\u0000k\"", "the text is not JSON"},
        {"\"tank\"", "\"ta\\u001b[2Jk\"", "name is too long or not printable"},
        {"\"tank\"", "\"\\u009b2J\"", "name is too long or not printable"},
        {"\"tank\"", "\"0123456789012345678901234567890123456789012345678901234567890123\"",
         "name is too long or not printable"},
        {"\"tank\"", "\"\"", "the array has no UUID or no printable name"},
        {"\"level\": \"raid6\"", "\"level\": \"raid7\"", "volumes[0].level is none of the known words"},
        {"\"level\": \"raid6\"", "\"level\": 6", "volumes[0].level is none of the known words"},
        {"\"rotation\": \"left-symmetric\"", "\"rotation\": null", "volumes[0].rotation is none of the known words"},
        {"\"chunk\": 65536", "\"chunk\": 65537", "a volume has a layout that cannot be"},
        {"\"chunk\": 65536", "\"chunk\": 4294967296", "volumes[0].chunk is out of range"},
        {"\"members\": 6", "\"members\": 7", "a volume needs members that the array does not have"},
        {"\"members\": 6", "\"members\": 3", "a volume has a layout that cannot be"},
        {"\"slot\": 5", "\"slot\": 6", "a volume needs members that the array does not have"},
        {"\"slot\": 5", "\"slot\": 64", "volumes[3].slot is out of range"},
        {"\"extent\": 104857600", "\"extent\": 104857601", "a volume is not aligned to 1 MiB"},
        {"\"extent\": 104857600", "\"extent\": 1099511627776", "a volume reaches beyond the data area"},
        {"\"extent\": 104857600", "\"extent\": 0", "a volume has no extent"},
        {"\"extent\": 104857600", "\"extent\": 105906176", "two volumes overlap"},
        {"\"size\": 419430400", "\"size\": 419430912", "a volume's size is not what its extent can hold"},
        {"\"logical_block\": 512", "\"logical_block\": 256", "a volume's logical block is not 512 to 4096 bytes"},
        {"\"map_block\": 0", "\"map_block\": 128", "a volume's region map reaches beyond its area"},
        {"\"map_block\": 0", "\"map_block\": 1", "the region maps of two volumes overlap"},
        {"\"name\": \"v1\"", "\"name\": \"v0\"", "two volumes have the same name or UUID"},
        {"\"map_start\": 1048576", "\"map_start\": 0", "the areas of the plan overlap"},
        {"\"map_bytes\": 1048576", "\"map_bytes\": 2097152", "the areas of the plan overlap"},
        {"\"map_bytes\": 1048576", "\"map_bytes\": 1", "an area of the plan is not aligned to 1 MiB"},
        {"\"size\": 1073741824", "\"size\": 1072693247", "a member is smaller than the plan"},
        {"\"size\": 1073741824", "\"size\": 72057594037927937", "members[0].size is out of range"},
        {"02000000-0000-0000-0000-000000000001", "02000000-0000-0000-0000-000000000000",
         "two members have the same UUID"},
        {"02000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000000",
         "a member has no UUID or no state"},
        {"02000000-0000-0000-0000-000000000001", "02000000-0000-0000-0000-00000000000g",
         "members[1].uuid is not a UUID"},
        {"\"state\": \"active\"", "\"stat\": \"active\"", "members[0].state is missing"},
        {"\"generation\": 12,\n", "\"generation\": 78,\n", "the history is not in order of its generations"},
        {"\"committed\": 76", "\"committed\": 78", "a generation is said to be committed that is yet to come"},
        {"\"settled\": true", "\"settled\": 1", "forks[1].settled is neither true nor false"},
        {"\"forks\": [", "\"forks\": [], \"spoons\": [", "forks is missing, or too short or too long a list"},
        {"\"volumes\": [", "\"volumes\": {}, \"spoons\": [", "volumes is missing, or too short or too long a list"},
    };
    struct sb_label label = typical();
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        encode_or_die(&label);
        edit(cases[i][0], cases[i][1]);
        enum sb_verdict verdict = superblock_decode(bytes, sizeof bytes, &read_back, why, sizeof why);
        cr_expect_eq(verdict, SB_DAMAGED, "%s: verdict %d", cases[i][1], verdict);
        cr_expect_str_eq(why, cases[i][2], "%s: %s", cases[i][1], why);
    }
}

Test(superblock, keys_of_a_newer_version_are_skipped)
{
    struct sb_label label = typical();
    encode_or_die(&label);
    edit("\"clean\": false", "\"clean\": false, \"colour\": [\"blue\", {\"shade\": 7}]");
    cr_expect_eq(superblock_decode(bytes, sizeof bytes, &read_back, why, sizeof why), SB_VALID, "%s", why);
}

Test(superblock, nothing_is_written_that_would_not_be_read)
{
    struct sb_label good = typical(), bad = good;
    bad.array.members_count = 0;
    cr_expect_eq(superblock_encode(&bad, bytes), 0);
    bad = good;
    bad.array.members_count = RAID_MEMBERS_MAX + 1;
    cr_expect_eq(superblock_encode(&bad, bytes), 0);
    bad = good;
    memset(bad.array.members[1].identity, 'x', sizeof bad.array.members[1].identity);
    cr_expect_eq(superblock_encode(&bad, bytes), 0, "not terminated");
    bad = good;
    text_format(bad.array.name, sizeof bad.array.name, "caf\xe9");
    cr_expect_eq(superblock_encode(&bad, bytes), 0, "not UTF-8");
    bad = good;
    bad.array.generation = 1ull << 63;
    cr_expect_eq(superblock_encode(&bad, bytes), 0);
    bad = good;
    bad.array.volumes[0].spec.level = (enum raid_level)99;
    cr_expect_eq(superblock_encode(&bad, bytes), 0);
    bad = good;
    bad.slot = 3;
    cr_expect_eq(superblock_encode(&bad, bytes), 0, "another member's slot");
}

Test(superblock, names_that_can_be_recorded)
{
    static const struct {
        const char *text;
        bool ok;
    } cases[] = {{"WD-WX12D34", true},
                 {"", true},
                 {"/srv/Ma\xc3\x9f/disk 1", true},
                 {"\xf0\x9f\x92\xbe", true},
                 {"a\nb", false},
                 {"a\x7f", false},
                 {"\xc3", false},
                 {"\xc0\xaf", false},
                 {"\xc2\x9b", false},
                 {"\xed\xa0\x80", false},
                 {"\xf4\x90\x80\x80", false},
                 {"\xe2\x82", false},
                 {"0123456789", false},
                 {"012345678", true}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        char text[24] = "";
        text_format(text, sizeof text, "%s", cases[i].text);
        size_t size = i >= 12 ? 10 : sizeof text;
        cr_expect_eq(superblock_text_ok(text, size), cases[i].ok, "case %u: %s", i, cases[i].text);
    }
}

Test(superblock, the_plan_of_members_of_all_sizes)
{
    static const struct {
        uint64_t bytes, map, journal, headroom, data; /* MiB but the first */
    } cases[] = {
        {32 * MIB, 1, 4, 8, 17},
        {64 * MIB + 12345, 1, 4, 8, 49},
        {1 * GIB, 1, 16, 16, 989},
        {16 * GIB - 1, 4, 64, 128, 16383 - 1 - 1 - 4 - 64 - 128},
        {16 * GIB, 4, 64, 128, 16384 - 256},
        {256 * GIB, 64, 64, 128, 262144 - 512},
        {256 * GIB + MIB, 64, 64, 128, 262144 - 1024},
        {4000787030016, 64, 64, 128, 3725ull * 1024},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct sb_array a = {0};
        cr_assert_null(superblock_plan(&a, cases[i].bytes, 65536));
        cr_expect_eq(a.map_start, MIB);
        cr_expect_eq(a.map_bytes, cases[i].map * MIB, "case %u: map %llu", i, (unsigned long long)(a.map_bytes / MIB));
        cr_expect_eq(a.journal_bytes, cases[i].journal * MIB, "case %u", i);
        cr_expect_eq(a.headroom_bytes, cases[i].headroom * MIB, "case %u", i);
        cr_expect_eq(a.data_start, (1 + cases[i].map + cases[i].journal + cases[i].headroom) * MIB, "case %u", i);
        cr_expect_eq(a.data_bytes, cases[i].data * MIB, "case %u: %llu", i, (unsigned long long)(a.data_bytes / MIB));
        cr_expect_leq(a.data_start + a.data_bytes, superblock_tail(cases[i].bytes));
    }
    struct sb_array a = {0};
    cr_expect_str_eq(superblock_plan(&a, 32 * MIB - 1, 65536), "a member needs at least 32 MiB");
    cr_expect_eq(superblock_tail(10 * MIB + 5), 9 * MIB);
    cr_expect_eq(superblock_tail(2 * MIB - 1), 0);
}
