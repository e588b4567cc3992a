/* Replacement of disks in service: bytes, errors of either disk, crashes, volumes of all kinds. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "tests/unit/raid/arrays.h"

enum { DISK = 40 * 1024 * 1024, SLOT = 1, BLOCK = 4096, WRITES = 12 };
#define SLOW_NS 2000000ull

static const struct shape {
    enum raid_level level;
    unsigned disks;
    bool redundant;
} shapes[] = {{RAID_JBOD, 2, false}, {RAID_0, 3, false}, {RAID_SPAN, 2, false}, {RAID_1, 2, true},
              {RAID_10, 4, true},    {RAID_5, 4, true},  {RAID_6, 5, true}};

/* An array with volume v, filled from seed 1, and one more disk, whose number is returned. */
static unsigned begin(struct rig *rig, enum raid_level level, uint64_t size)
{
    struct array_spec *spec = rig_spec(rig);
    rig_spec_add(spec, "v", level, size);
    spec->volumes[0].slot = SLOT;
    cr_assert(rig_make(rig, spec), "%s", rig->message);
    cr_assert_eq(rig_fill(rig, "v", 1, 256 * KIB), BLK_OK);
    return rig_disk_more(rig, DISK, 512);
}

static void slow(struct rig *rig, uint64_t ns)
{
    for (unsigned i = 0; i < rig->count; i++)
        rig->mem[i]->latency_ns = ns;
}

static bool running(struct rig *rig)
{
    struct array_replacement r;
    array_replacement(rig->array, &r);
    return r.running;
}

/* The array lives on the new disk and not on the old one. */
static void expect_replaced(struct rig *rig, unsigned disk, const char *what)
{
    struct sb_label *label = calloc(1, sizeof *label);
    struct array_replacement r;
    array_replacement(rig->array, &r);
    cr_expect_eq(r.left, rig->dev[SLOT], "%s", what);
    cr_expect_str_eq(rig_info(rig).state, "optimal", "%s", what);
    cr_expect_str_eq(rig_info(rig).members[SLOT].identity, rig_disk(rig, disk).identity, "%s", what);
    cr_expect_eq(rig_label(rig, SLOT, label), SB_NONE, "%s: the old disk has a label", what);
    cr_expect_eq(rig_label(rig, disk, label), SB_VALID, "%s", what);
    cr_expect(uuid_equal(&label->member, &array_description(rig->array)->members[SLOT].uuid), "%s", what);
    free(label);
}

Test(replace, a_disk_of_any_volume_is_replaced)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(shapes); i++) {
        const char *what = raid_level_name(shapes[i].level);
        struct rig *rig = rig_create(shapes[i].disks, DISK);
        unsigned disk = begin(rig, shapes[i].level, 4 * MIB);
        cr_assert(rig_replace(rig, SLOT, disk), "%s: %s", what, rig->message);
        cr_assert(rig_replaced(rig), "%s: %s", what, rig->message);
        expect_replaced(rig, disk, what);
        fault_kill(rig->dev[SLOT]);
        cr_expect(rig_holds(rig, "v", 1), "%s", what);
        cr_assert(rig_close(rig), "%s: %s", what, rig->message);
        fault_revive(rig->dev[SLOT]);
        cr_assert(rig_assemble(rig, (1u << rig->count) - 1, false), "%s: %s", what, rig->message);
        cr_expect_eq(rig->assembly.verdict, ASSEMBLY_COMPLETE, "%s", what);
        cr_expect(rig_holds(rig, "v", 1), "%s: after a restart", what);
        rig_destroy(rig);
    }
}

static void write_over(struct rig_write *write)
{
    (*(unsigned *)write->data)++;
}

Test(replace, progress_is_in_bytes_of_the_one_disk)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(shapes); i++) {
        const char *what = raid_level_name(shapes[i].level);
        struct rig *rig = rig_create(shapes[i].disks, DISK);
        unsigned disk = begin(rig, shapes[i].level, 4 * MIB);
        slow(rig, SLOW_NS);
        cr_assert(rig_replace(rig, SLOT, disk), "%s: %s", what, rig->message);
        struct array_info info = rig_info(rig);
        const struct sb_volume *v = &array_description(rig->array)->volumes[0];
        cr_assert_eq(info.jobs_count, 1, "%s", what);
        cr_expect_str_eq(info.jobs[0].kind, "replace", "%s", what);
        cr_expect_leq(info.jobs[0].total_bytes, v->extent, "%s", what);
        cr_expect_geq(info.jobs[0].total_bytes * 2, v->extent, "%s", what);
        cr_assert(rig_replaced(rig), "%s: %s", what, rig->message);
        rig_destroy(rig);
    }
}

/* Writes all over the volume while it goes on; what is left is written anew from seed 2, piece by piece. */
Test(replace, what_is_written_meanwhile_is_on_the_new_disk)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(shapes); i++) {
        const char *what = raid_level_name(shapes[i].level);
        struct rig *rig = rig_create(shapes[i].disks, DISK);
        unsigned disk = begin(rig, shapes[i].level, 4 * MIB), over = 0, begun = 0;
        struct blkdev *dev = array_volume(rig->array, "v");
        uint8_t *bytes = malloc(4 * MIB), *back = malloc(4 * MIB);
        test_fill(bytes, 4 * MIB, 1);
        slow(rig, 200000);
        cr_assert(rig_replace(rig, SLOT, disk), "%s: %s", what, rig->message);
        struct rig_write writes[WRITES] = {0};
        while (running(rig)) {
            for (unsigned w = 0; w < WRITES; w++) {
                uint64_t off = (begun * 7919ull % 1024) * BLOCK % dev->info.size;
                if (begun >= WRITES && !writes[w].over)
                    continue;
                writes[w].on_done = write_over;
                writes[w].data = &over;
                rig_write_start(rig, &writes[w], "v", off, BLOCK, 100 + begun);
                test_fill(bytes + off, BLOCK, 100 + begun);
                begun++;
            }
            rig_wait(rig, 300000);
        }
        for (unsigned w = 0; w < WRITES; w++)
            cr_assert(testloop_run_until(rig->t, &writes[w].over), "%s", what);
        cr_expect_eq(over, begun, "%s", what);
        cr_assert(rig_replaced(rig), "%s: %s", what, rig->message);
        cr_expect_eq(test_io(rig->t, dev, BLK_READ, 0, 0, back, dev->info.size), BLK_OK, "%s", what);
        cr_expect(memcmp(bytes, back, dev->info.size) == 0, "%s: other bytes after %u writes", what, begun);
        if (shapes[i].redundant) {
            cr_assert(rig_scrub(rig, "v", SB_SCRUB_CHECK), "%s: %s", what, rig->message);
            rig_settle(rig);
            cr_expect_eq(array_description(rig->array)->volumes[0].scrub.last.mismatched, 0, "%s", what);
        }
        free(bytes);
        free(back);
        rig_destroy(rig);
    }
}

Test(replace, what_the_old_disk_cannot_read_comes_from_the_others)
{
    struct rig *rig = rig_create(4, DISK);
    unsigned disk = begin(rig, RAID_5, 4 * MIB);
    uint64_t data = array_description(rig->array)->data_start;
    fault_add(rig->dev[SLOT],
              &(struct fault_rule){.ops = 1u << BLK_READ, .off = data + 64 * KIB, .len = 8 * KIB, .status = BLK_MEDIA});
    cr_assert(rig_replace(rig, SLOT, disk), "%s", rig->message);
    cr_assert(rig_replaced(rig), "%s", rig->message);
    expect_replaced(rig, disk, "media errors");
    cr_expect(rig_holds(rig, "v", 1));
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_CHECK), "%s", rig->message);
    rig_settle(rig);
    cr_expect_eq(array_description(rig->array)->volumes[0].scrub.last.mismatched, 0);
    rig_destroy(rig);
}

Test(replace, is_called_off)
{
    struct rig *rig = rig_create(4, DISK);
    unsigned disk = begin(rig, RAID_5, 4 * MIB);
    struct array_replacement r;
    cr_expect(!rig_replace_cancel(rig));
    cr_expect_str_eq(rig->message, "array r0 is not replacing a disk");
    slow(rig, SLOW_NS);
    cr_assert(rig_replace(rig, SLOT, disk), "%s", rig->message);
    cr_assert(rig_replace_cancel(rig), "%s", rig->message);
    cr_expect(!rig_replaced(rig));
    cr_expect_str_eq(rig->message, "it was called off");
    array_replacement(rig->array, &r);
    cr_expect_eq(r.left, rig->dev[disk], "the new disk is given back");
    cr_expect_str_eq(rig_info(rig).state, "optimal");
    cr_expect_str_eq(rig_info(rig).members[SLOT].identity, rig_disk(rig, SLOT).identity);
    cr_expect(rig_holds(rig, "v", 1));
    rig_destroy(rig);
}

Test(replace, what_nobody_can_read_ends_it)
{
    struct rig *rig = rig_create(3, DISK);
    unsigned disk = begin(rig, RAID_0, 4 * MIB);
    uint64_t data = array_description(rig->array)->data_start;
    fault_add(rig->dev[SLOT],
              &(struct fault_rule){.ops = 1u << BLK_READ, .off = data + 64 * KIB, .len = BLOCK, .status = BLK_MEDIA});
    cr_assert(rig_replace(rig, SLOT, disk), "%s", rig->message);
    cr_expect_not(rig_replaced(rig));
    cr_expect(strstr(rig->message, "cannot be read") != NULL, "%s", rig->message);
    fault_clear(rig->dev[SLOT], -1);
    cr_expect(rig_holds(rig, "v", 1));
    cr_assert(rig_replace(rig, SLOT, disk), "again: %s", rig->message);
    cr_assert(rig_replaced(rig), "%s", rig->message);
    cr_expect(rig_holds(rig, "v", 1));
    rig_destroy(rig);
}

/* The new disk dies at many moments: before it has taken the place, nobody notices. */
Test(replace, a_new_disk_that_fails_harms_nothing)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(shapes); i++)
        for (uint64_t at = 0; at < 24; at++) {
            const char *what = raid_level_name(shapes[i].level);
            struct rig *rig = rig_create(shapes[i].disks, DISK);
            unsigned disk = begin(rig, shapes[i].level, 2 * MIB);
            slow(rig, SLOW_NS);
            cr_assert(rig_replace(rig, SLOT, disk), "%s: %s", what, rig->message);
            rig_wait(rig, at * SLOW_NS);
            fault_kill(rig->dev[disk]);
            (void)rig_replaced(rig);
            cr_expect_neq(rig_fill(rig, "v", 2, 256 * KIB), BLK_MEDIA, "%s at %u", what, (unsigned)at);
            struct array_replacement r;
            array_replacement(rig->array, &r);
            if (r.left == rig->dev[disk] && strcmp(rig_info(rig).state, "optimal") == 0)
                cr_expect(rig_holds(rig, "v", 2), "%s at %u", what, (unsigned)at);
            else if (shapes[i].redundant)
                cr_expect(rig_holds(rig, "v", 2), "%s at %u: degraded", what, (unsigned)at);
            rig_destroy(rig);
        }
}

Test(replace, an_old_disk_that_dies_ends_it_and_a_rebuild_may_begin)
{
    struct rig *rig = rig_create(4, DISK);
    unsigned disk = begin(rig, RAID_5, 4 * MIB);
    slow(rig, SLOW_NS);
    cr_assert(rig_replace(rig, SLOT, disk), "%s", rig->message);
    rig_wait(rig, 3 * SLOW_NS);
    fault_kill(rig->dev[SLOT]);
    cr_expect_not(rig_replaced(rig));
    cr_expect(strstr(rig->message, "old disk") != NULL, "%s", rig->message);
    cr_expect(rig_holds(rig, "v", 1));
    slow(rig, 100000);
    rig_wait(rig, 3000000000);
    cr_assert(rig_online_disk(rig, SLOT, disk), "the new disk can be had: %s", rig->message);
    testloop_run(rig->t);
    cr_expect_str_eq(rig_info(rig).state, "optimal");
    cr_expect(rig_holds(rig, "v", 1));
    rig_destroy(rig);
}

/* Killed at many moments, with a write whose answer is waited for just before. */
Test(replace, a_crash_at_any_point_loses_nothing)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(shapes); i++) {
        bool over = false;
        for (uint64_t at = 0; !over; at++) {
            const char *what = raid_level_name(shapes[i].level);
            struct rig *rig = rig_create(shapes[i].disks, DISK);
            unsigned disk = begin(rig, shapes[i].level, 2 * MIB);
            cr_assert(rig_replace(rig, SLOT, disk), "%s: %s", what, rig->message);
            rig_wait(rig, at * 130000);
            over = !running(rig);
            rig_kill(rig);
            cr_assert(rig_assemble(rig, (1u << rig->count) - 1, false), "%s at %u: %s: %s", what, (unsigned)at,
                      rig->assembly.reason, rig->message);
            cr_expect_eq(rig->assembly.verdict, ASSEMBLY_COMPLETE, "%s at %u", what, (unsigned)at);
            cr_expect(rig_holds(rig, "v", 1), "%s at %u", what, (unsigned)at);
            cr_assert(rig_close(rig), "%s at %u: %s", what, (unsigned)at, rig->message);
            cr_expect(!over || rig_label(rig, SLOT, &(struct sb_label){0}) == SB_NONE, "%s at %u", what, (unsigned)at);
            rig_destroy(rig);
        }
    }
}

/* Opened, and of that the heads of the disks alone keep what was written: the power fails between the copies of
 * labels. */
static void open_by_half(struct rig *rig)
{
    static uint8_t tails[RIG_DISKS][SB_TAIL_BYTES];
    for (unsigned i = 0; i < rig->count; i++)
        memcpy(tails[i], rig->mem[i]->bytes + DISK - SB_TAIL_BYTES, SB_TAIL_BYTES);
    cr_assert(rig_assemble(rig, (1u << rig->count) - 1, false), "%s", rig->assembly.reason);
    rig_kill(rig);
    for (unsigned i = 0; i < rig->count; i++)
        memcpy(rig->mem[i]->bytes + DISK - SB_TAIL_BYTES, tails[i], SB_TAIL_BYTES);
}

/* Killed within the first label of the new disk, among other moments, and again before a label of it was whole. */
Test(replace, a_new_disk_none_of_whose_labels_was_written_whole_is_not_taken_for_one_that_was_cut)
{
    bool over = false;
    for (uint64_t at = 0; !over; at++) {
        struct rig *rig = rig_create(2, DISK);
        unsigned disk = begin(rig, RAID_JBOD, 2 * MIB);
        cr_assert(rig_replace(rig, SLOT, disk), "%s", rig->message);
        rig_wait(rig, at * 90000);
        over = !running(rig);
        rig_kill(rig);
        for (unsigned opening = 0; opening < 3; opening++)
            open_by_half(rig);
        cr_assert(rig_assemble(rig, (1u << rig->count) - 1, false), "at %u: %s", (unsigned)at, rig->assembly.reason);
        cr_expect_eq(rig->assembly.verdict, ASSEMBLY_COMPLETE, "at %u: %s", (unsigned)at, rig->assembly.reason);
        cr_expect(rig_holds(rig, "v", 1), "at %u", (unsigned)at);
        rig_destroy(rig);
    }
}

Test(replace, rows_that_are_given_back_or_filled_meanwhile)
{
    struct rig *rig = rig_create(4, DISK);
    cr_assert(rig_make_one(rig, RAID_5, 4 * MIB), "%s", rig->message);
    struct blkdev *dev = array_volume(rig->array, "v");
    uint8_t *want = calloc(1, 4 * MIB), *back = malloc(4 * MIB);
    uint64_t row = dev->info.optimal_io, half = row * 8;
    for (uint64_t off = 0; off < half; off += row) {
        test_fill(want + off, row, off);
        cr_assert_eq(test_io(rig->t, dev, BLK_WRITE, 0, off, want + off, row), BLK_OK);
    }
    unsigned disk = rig_disk_more(rig, DISK, 512);
    slow(rig, SLOW_NS);
    struct rig_write filling;
    filling.on_done = NULL;
    rig_write_start(rig, &filling, "v", half + 3 * row, BLOCK, 77); /* under way when the shadow comes */
    test_fill(want + half + 3 * row, BLOCK, 77);
    rig_wait(rig, 3 * SLOW_NS / 2);
    cr_assert(rig_replace(rig, SLOT, disk), "%s", rig->message);
    for (uint64_t n = 0; n < 4 && running(rig); n++) {
        uint64_t gone = n * 2 * row, new = half + n * 4 * row + row;
        memset(want + gone, 0, row);
        cr_expect_eq(test_io(rig->t, dev, BLK_DISCARD, 0, gone, NULL, row), BLK_OK);
        test_fill(want + new, BLOCK, 50 + n);
        cr_expect_eq(test_io(rig->t, dev, BLK_WRITE, 0, new, want + new, BLOCK), BLK_OK);
    }
    cr_assert(rig_replaced(rig), "%s", rig->message);
    cr_expect_eq(test_io(rig->t, dev, BLK_READ, 0, 0, back, dev->info.size), BLK_OK);
    cr_expect(memcmp(want, back, dev->info.size) == 0);
    slow(rig, 100000);
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_CHECK), "%s", rig->message);
    rig_settle(rig);
    cr_expect_eq(array_description(rig->array)->volumes[0].scrub.last.mismatched, 0);
    free(want);
    free(back);
    rig_destroy(rig);
}

Test(replace, disks_that_do_not_fit_are_refused)
{
    struct rig *rig = rig_create(3, DISK);
    unsigned disk = begin(rig, RAID_5, 4 * MIB);
    struct {
        unsigned slot, disk;
        const char *why;
    } cases[] = {{9, disk, "has no slot 9"},
                 {SLOT, SLOT, "already"},
                 {SLOT, 2, "already"},
                 {SLOT, rig_disk_more(rig, 8 * MIB, 512), "too few"},
                 {SLOT, rig_disk_more(rig, DISK, 4096), "blocks of 4096 bytes"}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        cr_expect_not(rig_replace(rig, cases[i].slot, cases[i].disk), "case %u", i);
        cr_expect(strstr(rig->message, cases[i].why) != NULL, "case %u: %s", i, rig->message);
    }
    cr_assert(rig_replace(rig, SLOT, disk), "%s", rig->message);
    cr_expect_not(rig_replace(rig, 2, disk));
    cr_expect(strstr(rig->message, "is replacing a disk already") != NULL, "%s", rig->message);
    cr_expect_not(rig_add(rig, "w", RAID_5, MIB));
    cr_assert(rig_replaced(rig), "%s", rig->message);
    rig_destroy(rig);
}

Test(replace, closing_ends_it_and_the_old_disk_goes_on)
{
    struct rig *rig = rig_create(2, DISK);
    unsigned disk = begin(rig, RAID_JBOD, 4 * MIB);
    slow(rig, SLOW_NS);
    cr_assert(rig_replace(rig, SLOT, disk), "%s", rig->message);
    rig_wait(rig, 3 * SLOW_NS);
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(rig_assemble(rig, (1u << rig->count) - 1, false), "%s", rig->message);
    cr_expect_str_eq(rig_info(rig).members[SLOT].identity, "disk1");
    cr_expect(rig_holds(rig, "v", 1));
    rig_destroy(rig);
}

/* Its chunk is on its way to the old disk alone when the new one comes, or there, and the map is not told yet. */
Test(replace, a_first_write_that_began_before_it_is_copied)
{
    for (uint64_t after = 0; after < 24; after++) {
        struct rig *rig = rig_create(5, DISK);
        unsigned disk = begin(rig, RAID_6, 8 * MIB);
        struct blkdev *dev = array_volume(rig->array, "v");
        uint64_t off = 20 * dev->info.optimal_io;
        uint8_t bytes[BLOCK], back[BLOCK];
        struct rig_write writes[WRITES] = {0};
        slow(rig, 100000);
        for (unsigned w = 0; w < WRITES; w++) {
            rig_write_start(rig, &writes[w], "v", off + w * dev->info.optimal_io, BLOCK, 50 + w);
            rig_wait(rig, 100000);
        }
        rig_wait(rig, after * 50000);
        cr_assert(rig_replace(rig, SLOT, disk), "%s", rig->message);
        cr_assert(rig_replaced(rig), "%s", rig->message);
        for (unsigned w = 0; w < WRITES; w++)
            cr_assert(testloop_run_until(rig->t, &writes[w].over));
        cr_assert(rig_scrub(rig, "v", SB_SCRUB_CHECK), "%s", rig->message);
        rig_settle(rig);
        cr_expect_eq(array_description(rig->array)->volumes[0].scrub.last.mismatched, 0, "%u us after it",
                     (unsigned)after * 50);
        test_fill(bytes, BLOCK, 50);
        cr_expect_eq(test_io(rig->t, dev, BLK_READ, 0, off, back, BLOCK), BLK_OK);
        cr_expect(memcmp(bytes, back, BLOCK) == 0);
        rig_destroy(rig);
    }
}

/* Two disks that choose different orders for writes of the same bytes would differ in the end. */
Test(replace, writes_of_the_same_bytes_leave_the_same_on_both_disks)
{
    struct rig *rig = rig_create(2, DISK);
    unsigned disk = begin(rig, RAID_JBOD, 16 * MIB);
    struct blkdev *dev = array_volume(rig->array, "v");
    struct rig_write first = {0}, second = {0};
    uint8_t before[BLOCK], after[BLOCK];
    uint64_t off = dev->info.size - BLOCK;
    slow(rig, 50000);
    cr_assert(rig_replace(rig, SLOT, disk), "%s", rig->message);
    rig_wait(rig, 1500000);
    cr_assert(running(rig));
    rig->mem[disk]->latency_ns = 900000;
    rig_write_start(rig, &first, "v", off, BLOCK, 5);
    rig_wait(rig, 10000);
    rig->mem[disk]->latency_ns = 50000;
    rig_write_start(rig, &second, "v", off, BLOCK, 6);
    cr_assert(testloop_run_until(rig->t, &first.over));
    cr_assert(testloop_run_until(rig->t, &second.over));
    cr_assert(running(rig));
    cr_expect_eq(test_io(rig->t, dev, BLK_READ, 0, off, before, BLOCK), BLK_OK);
    cr_assert(rig_replaced(rig), "%s", rig->message);
    expect_replaced(rig, disk, "writes of the same bytes");
    cr_expect_eq(test_io(rig->t, dev, BLK_READ, 0, off, after, BLOCK), BLK_OK);
    cr_expect(memcmp(before, after, BLOCK) == 0);
    rig_destroy(rig);
}

/* It went to the old disk before there was a new one, and hangs there. The copies are not made without it. */
Test(replace, a_write_that_is_under_way_without_redundancy_is_copied)
{
    static const enum raid_level levels[] = {RAID_JBOD, RAID_0, RAID_SPAN};
    for (unsigned i = 0; i < ARRAY_LENGTH(levels); i++) {
        struct rig *rig = rig_create(2, DISK);
        unsigned disk = begin(rig, levels[i], 4 * MIB);
        uint64_t chunk = array_description(rig->array)->volumes[0].spec.chunk;
        uint64_t off = levels[i] == RAID_0      ? chunk
                       : levels[i] == RAID_SPAN ? array_volume(rig->array, "v")->info.size - BLOCK
                                                : 0;
        struct rig_write write = {0};
        uint8_t bytes[BLOCK], back[BLOCK];
        slow(rig, 50000);
        struct fault_rule late = {.ops = 1u << BLK_WRITE,
                                  .off = array_description(rig->array)->data_start,
                                  .len = 32 * MIB,
                                  .status = BLK_OK,
                                  .delay_ns = 3000000000,
                                  .count = 1};
        cr_assert(fault_add(rig->dev[SLOT], &late) >= 0);
        rig_write_start(rig, &write, "v", off, BLOCK, 9);
        rig_wait(rig, 1000000);
        cr_assert_not(write.over);
        cr_assert(rig_replace(rig, SLOT, disk), "%s", rig->message);
        cr_assert(rig_replaced(rig), "%s", rig->message);
        cr_assert(write.over);
        expect_replaced(rig, disk, raid_level_name(levels[i]));
        test_fill(bytes, BLOCK, 9);
        cr_expect_eq(test_io(rig->t, array_volume(rig->array, "v"), BLK_READ, 0, off, back, BLOCK), BLK_OK);
        cr_expect(memcmp(bytes, back, BLOCK) == 0, "%s", raid_level_name(levels[i]));
        rig_destroy(rig);
    }
}

/* Nobody else has these bytes: those that reads find while it is being replaced are those that the new disk has. */
Test(replace, what_only_the_old_disk_refuses_is_not_on_the_new_one)
{
    static const enum blk_op ops[] = {BLK_DISCARD, BLK_WRITE, BLK_WRITE_ZEROES};
    for (unsigned i = 0; i < ARRAY_LENGTH(ops) * 2; i++) {
        enum blk_op op = ops[i / 2];
        bool unreadable = i % 2 == 1;
        const char *what = blk_op_name(op);
        struct rig *rig = rig_create(2, DISK);
        unsigned disk = begin(rig, RAID_JBOD, 4 * MIB);
        struct blkdev *dev = array_volume(rig->array, "v");
        uint64_t data = array_description(rig->array)->data_start, off = 8 * KIB, len = 24 * KIB, bad = 16 * KIB;
        uint8_t bytes[24 * KIB], back[24 * KIB];
        slow(rig, SLOW_NS);
        cr_assert(rig_replace(rig, SLOT, disk), "%s", rig->message);
        rig_wait(rig, 10 * SLOW_NS);
        struct fault_rule refusal = {.ops = 1u << op, .off = data + off, .len = len, .status = BLK_MEDIA};
        struct fault_rule hole = {.ops = 1u << BLK_READ, .off = data + bad, .len = 512, .status = BLK_MEDIA};
        fault_add(rig->dev[SLOT], &refusal);
        if (unreadable)
            fault_add(rig->dev[SLOT], &hole);
        test_fill(bytes, len, 3);
        enum blk_status answer = test_io(rig->t, dev, op, 0, off, bytes, len);
        cr_expect_eq(answer, BLK_MEDIA, "%s%s: %s", what, unreadable ? ", unreadable" : "", blk_status_name(answer));
        fault_clear(rig->dev[SLOT], -1);
        cr_assert(running(rig), "%s: it was over already", what);
        cr_expect_eq(test_io(rig->t, dev, BLK_READ, 0, off, bytes, len), BLK_OK, "%s", what);
        cr_assert(rig_replaced(rig), "%s: %s", what, rig->message);
        expect_replaced(rig, disk, what);
        cr_expect_eq(test_io(rig->t, dev, BLK_READ, 0, off, back, len), BLK_OK, "%s", what);
        if (unreadable) /* on the old disk: either is right */
            memcpy(back + bad - off, bytes + bad - off, 512);
        cr_expect(memcmp(bytes, back, len) == 0, "%s%s", what, unreadable ? " over an unreadable block" : "");
        rig_destroy(rig);
    }
}
