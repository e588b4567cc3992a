/* Init: zeroes on all disks where nothing was written, read back; what is stored stays; faults, crashes, refusals. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "tests/unit/raid/arrays.h"

enum { DISK = 40 * 1024 * 1024, CHUNK = 65536, SIZE = 4 * 1024 * 1024 };

static const struct shape {
    enum raid_level level;
    unsigned disks;
    enum sb_consistency consistency;
} shapes[] = {{RAID_1, 2, SB_BITMAP}, {RAID_10, 4, SB_RESYNC}, {RAID_3, 3, SB_PPL},     {RAID_5, 4, SB_PPL},
              {RAID_5, 4, SB_BITMAP}, {RAID_6, 5, SB_JOURNAL}, {RAID_50, 6, SB_BITMAP}, {RAID_TP, 6, SB_JOURNAL}};

/* Disks full of old bytes, and a volume of which nothing was written. */
static struct rig *rig_old(const struct shape *shape, enum sb_init init)
{
    struct rig *rig = rig_create(shape->disks, DISK);
    for (unsigned i = 0; i < shape->disks; i++)
        memset(rig->mem[i]->bytes, 0xe5, DISK);
    struct array_spec *spec = rig_spec(rig);
    rig_spec_add(spec, "v", shape->level, SIZE);
    spec->volumes[0].consistency_given = true;
    spec->volumes[0].consistency = shape->consistency;
    spec->volumes[0].init = init;
    cr_assert(rig_make(rig, spec), "%s", rig->message);
    return rig;
}

static const struct sb_volume *volume(const struct rig *rig)
{
    return &array_description(rig->array)->volumes[0];
}

/* Bytes of the volume's place on a disk that are not zero. */
static uint64_t old_bytes(const struct rig *rig, unsigned slot, uint64_t len)
{
    const uint8_t *bytes = rig->mem[slot]->bytes + array_description(rig->array)->data_start + volume(rig)->start;
    uint64_t count = 0;
    for (uint64_t i = 0; i < len; i++)
        count += bytes[i] != 0;
    return count;
}

static uint64_t extent(const struct rig *rig)
{
    struct layout layout;
    struct layout_place place;
    ASSERT(superblock_layout(array_description(rig->array), volume(rig), &layout));
    layout_place(&layout, layout.rows - 1, 0, &place);
    return place.off + layout.spec.chunk;
}

/* All of it counts as written, is zeroes, and has right redundancy. */
static void expect_initialised(struct rig *rig, const char *what)
{
    uint8_t *have = malloc(SIZE);
    cr_expect_eq(volume(rig)->init, SB_INIT_NONE, "%s", what);
    cr_expect_geq(array_usage(rig->array, 0).written_bytes, SIZE, "%s: %llu bytes are written", what,
                  (unsigned long long)array_usage(rig->array, 0).written_bytes);
    cr_expect_eq(test_io(rig->t, array_volume(rig->array, "v"), BLK_READ, 0, 0, have, SIZE), BLK_OK, "%s", what);
    cr_expect(have[0] == 0 && memcmp(have, have + 1, SIZE - 1) == 0, "%s: it does not read as zeroes", what);
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_CHECK), "%s: %s", what, rig->message);
    rig_settle(rig);
    cr_expect_eq(volume(rig)->scrub.last.mismatched, 0, "%s", what);
    free(have);
}

static void text_of(const struct shape *shape, char *text, size_t size)
{
    text_format(text, size, "%s with policy %s", raid_level_name(shape->level),
                sb_consistency_name(shape->consistency));
}

Test(init, all_disks_hold_zeroes_and_all_rows_count_as_written)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(shapes); i++) {
        char what[64];
        text_of(&shapes[i], what, sizeof what);
        struct rig *rig = rig_old(&shapes[i], SB_INIT_NONE);
        cr_assert(rig_init(rig, "v", true), "%s: %s", what, rig->message);
        cr_expect_str_eq(rig_info(rig).jobs[0].kind, "init", "%s", what);
        rig_settle(rig);
        for (unsigned slot = 0; slot < shapes[i].disks; slot++)
            cr_expect_eq(old_bytes(rig, slot, extent(rig)), 0, "%s: slot %u", what, slot);
        expect_initialised(rig, what);
        rig_destroy(rig);
    }
}

Test(init, of_a_new_volume_begins_by_itself)
{
    for (enum sb_init init = SB_INIT_BACKGROUND; init <= SB_INIT_FOREGROUND; init++) {
        struct rig *rig = rig_old(&shapes[3], init);
        cr_expect_eq(volume(rig)->init, init);
        cr_expect_str_eq(rig_info(rig).jobs[0].kind, "init");
        rig_settle(rig);
        expect_initialised(rig, sb_init_name(init));
        rig_destroy(rig);
    }
}

Test(init, rows_that_hold_data_are_not_touched)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(shapes); i++) {
        char what[64];
        text_of(&shapes[i], what, sizeof what);
        struct rig *rig = rig_old(&shapes[i], SB_INIT_NONE);
        struct blkdev *dev = array_volume(rig->array, "v");
        uint8_t *bytes = calloc(1, SIZE), *have = malloc(SIZE);
        for (uint64_t off = 8192; off + 4096 <= SIZE; off += 777 * 1024) {
            test_fill(bytes + off, 4096, off);
            cr_assert_eq(test_io(rig->t, dev, BLK_WRITE, 0, off, bytes + off, 4096), BLK_OK);
        }
        uint64_t before = rig->mem[0]->writes;
        cr_assert(rig_init(rig, "v", true), "%s: %s", what, rig->message);
        rig_settle(rig);
        cr_expect_gt(rig->mem[0]->writes, before, "%s", what);
        cr_expect_eq(test_io(rig->t, dev, BLK_READ, 0, 0, have, SIZE), BLK_OK);
        cr_expect(memcmp(bytes, have, SIZE) == 0, "%s: data was overwritten", what);
        free(bytes);
        free(have);
        rig_destroy(rig);
    }
}

Test(init, goes_on_beside_writes_and_discards)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(shapes); i++) {
        char what[64];
        text_of(&shapes[i], what, sizeof what);
        struct rig *rig = rig_old(&shapes[i], SB_INIT_BACKGROUND);
        struct blkdev *dev = array_volume(rig->array, "v");
        uint8_t *bytes = calloc(1, SIZE), *have = malloc(SIZE);
        for (unsigned n = 0; n < 40; n++) {
            uint64_t off = (n * 7919ull * 4096) % SIZE, row = round_down(off, 512 * KIB);
            test_fill(bytes + off, 4096, n);
            cr_assert_eq(test_io(rig->t, dev, BLK_WRITE, 0, off, bytes + off, 4096), BLK_OK);
            if (n % 8 == 7) {
                cr_assert_eq(test_io(rig->t, dev, BLK_WRITE_ZEROES, 0, row, NULL, 512 * KIB), BLK_OK);
                memset(bytes + row, 0, 512 * KIB);
            }
        }
        cr_expect_eq(test_io(rig->t, dev, BLK_READ, 0, 0, have, SIZE), BLK_OK);
        rig_settle(rig);
        cr_expect(memcmp(bytes, have, SIZE) == 0, "%s", what);
        cr_expect_eq(test_io(rig->t, dev, BLK_READ, 0, 0, have, SIZE), BLK_OK);
        cr_expect(memcmp(bytes, have, SIZE) == 0, "%s: afterwards", what);
        cr_assert(rig_scrub(rig, "v", SB_SCRUB_CHECK), "%s: %s", what, rig->message);
        rig_settle(rig);
        cr_expect_eq(volume(rig)->scrub.last.mismatched, 0, "%s", what);
        free(bytes);
        free(have);
        rig_destroy(rig);
    }
}

/* A disk that reallocates a sector when it is written is right the second time; one that never gets it right is not. */
Test(init, what_cannot_be_read_back_is_an_error_of_its_disk_and_is_passed_by)
{
    struct {
        bool once;
        uint64_t rows_left;
    } cases[] = {{true, 0}, {false, 1}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct rig *rig = rig_old(&shapes[3], SB_INIT_NONE);
        uint64_t off = array_description(rig->array)->data_start + volume(rig)->start + 5 * CHUNK;
        fault_add(rig->dev[2], &(struct fault_rule){.ops = 1u << BLK_READ,
                                                    .off = off + 4096,
                                                    .len = 512,
                                                    .status = BLK_MEDIA,
                                                    .count = cases[i].once ? 2 : 0}); /* with others; alone */
        cr_assert(rig_init(rig, "v", true), "%s", rig->message);
        rig_settle(rig);
        cr_expect_gt(rig_info(rig).members[2].read_errors, 0, "case %u", i);
        cr_expect_eq(rig_info(rig).members[1].read_errors, 0, "case %u", i);
        cr_expect_str_eq(rig_info(rig).state, "optimal", "case %u", i);
        fault_clear(rig->dev[2], -1);
        cr_assert(rig_pause(rig, 0, true) && rig_init(rig, "v", true), "%s", rig->message);
        cr_expect_eq(rig_info(rig).jobs[0].total_bytes, cases[i].rows_left * 4 * CHUNK, "case %u", i);
        rig_destroy(rig);
    }
}

Test(init, goes_on_after_a_crash_with_what_is_left)
{
    struct rig *rig = rig_old(&shapes[3], SB_INIT_FOREGROUND);
    for (unsigned i = 0; i < rig->count; i++)
        rig->mem[i]->latency_ns = 3000000;
    while (rig_info(rig).jobs_count > 0 && rig_info(rig).jobs[0].done_bytes == 0)
        rig_wait(rig, 1000000);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
    cr_expect_eq(volume(rig)->init, SB_INIT_FOREGROUND);
    bool begun = array_usage(rig->array, 0).written_bytes > 0;
    cr_expect(begun, "what was done is remembered");
    rig_settle(rig);
    expect_initialised(rig, "after a crash");
    rig_destroy(rig);
}

Test(init, goes_on_without_a_disk_that_is_lost)
{
    struct rig *rig = rig_old(&shapes[5], SB_INIT_BACKGROUND);
    fault_kill(rig->dev[1]);
    rig_settle(rig);
    cr_expect_str_eq(rig_info(rig).state, "degraded");
    cr_expect_eq(volume(rig)->init, SB_INIT_NONE);
    fault_revive(rig->dev[1]);
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    rig_settle(rig);
    expect_initialised(rig, "after a loss");
    rig_destroy(rig);
}

Test(init, is_paused_and_called_off)
{
    struct rig *rig = rig_old(&shapes[0], SB_INIT_NONE);
    cr_assert(rig_pause(rig, 0, true), "%s", rig->message);
    cr_assert(rig_init(rig, "v", true), "%s", rig->message);
    rig_wait(rig, 1000000000);
    cr_expect_str_eq(rig_info(rig).jobs[0].waits_for, "paused");
    cr_expect_eq(array_usage(rig->array, 0).written_bytes, 0);
    cr_expect(!rig_init(rig, "v", true));
    cr_expect_str_eq(rig->message, "volume v of array r0 is being initialised already");
    cr_assert(rig_init(rig, "v", false), "%s", rig->message);
    cr_expect_eq(rig_info(rig).jobs_count, 0);
    cr_expect(!rig_init(rig, "v", false));
    cr_expect_str_eq(rig->message, "volume v of array r0 is not being initialised");
    cr_expect(!rig_init(rig, "w", true));
    cr_expect_str_eq(rig->message, "array r0 has no volume w");
    rig_destroy(rig);
}

Test(init, is_begun_and_called_off_for_good_when_the_call_is_answered)
{
    struct rig *rig = rig_old(&shapes[0], SB_INIT_NONE);
    uint64_t all = (1u << rig->count) - 1;
    for (unsigned i = 0; i < rig->count; i++)
        rig->mem[i]->latency_ns = 3000000;
    for (unsigned i = 0; i < 2; i++) {
        bool begin = i == 0;
        cr_assert(rig_init(rig, "v", begin), "%s", rig->message);
        rig_kill(rig);
        cr_assert(rig_assemble(rig, all, false), "%s", rig->message);
        cr_expect_eq(volume(rig)->init, begin ? SB_INIT_BACKGROUND : SB_INIT_NONE, "%u", i);
    }
    rig_destroy(rig);
}

Test(init, is_refused_without_redundancy)
{
    struct rig *rig = rig_create(2, DISK);
    struct array_spec *spec = rig_spec(rig);
    rig_spec_add(spec, "v", RAID_0, SIZE);
    spec->volumes[0].init = SB_INIT_BACKGROUND;
    cr_expect(!rig_make(rig, spec));
    cr_expect(strstr(rig->message, "cannot be initialised") != NULL, "%s", rig->message);
    cr_assert(rig_make_one(rig, RAID_0, SIZE), "%s", rig->message);
    cr_expect(!rig_init(rig, "v", true));
    cr_expect(strstr(rig->message, "has no redundancy") != NULL, "%s", rig->message);
    rig_destroy(rig);
}
