/*
 * Arrays of md, read where they are: against bytes that md_images.c laid out. Nothing is ever written.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "raid/fault.h"
#include "raid/import.h"
#include "tests/unit/lib/testloop.h"
#include "tests/unit/raid/md_images.h"

enum { DISKS = 8 };

struct rig {
    struct testloop *t;
    struct md_shape shape;
    uint64_t size;
    uint8_t *data; /* what must read back */
    struct memdisk *disks[DISKS];
    struct blkdev *faults[DISKS];
    struct md_superblock supers[DISKS];
    struct md_set set;
    struct bad_list bad;
    struct import *import;
};

/* A data offset of its own for each disk. */
static uint64_t data_start(unsigned slot)
{
    return 64 * KIB + slot * 12 * KIB;
}

/* Without the disks of `absent`. */
static struct rig *rig_open(struct md_shape shape, uint64_t absent, const struct bad_list *bad)
{
    struct rig *r = calloc(1, sizeof *r);
    struct md_disk disks[DISKS];
    uint8_t *areas[DISKS];
    struct import_options options = {.name = "old", .set = &r->set, .disks = disks, .bad = &r->bad};
    char why[200];
    unsigned count = 0;
    r->t = testloop_create(4096, 7);
    r->shape = shape;
    r->size = md_array_size(&shape);
    r->data = malloc(r->size);
    test_fill(r->data, r->size, 99);
    for (unsigned slot = 0; slot < shape.disks; slot++) {
        uint64_t bytes = data_start(slot) + round_up(shape.size, 4096);
        r->disks[slot] = memdisk_create(&r->t->loop, "disk", bytes, 512);
        test_fill(r->disks[slot]->bytes, bytes, slot);
        r->faults[slot] = fault_create(&r->t->loop, &r->disks[slot]->dev);
        areas[slot] = r->disks[slot]->bytes + data_start(slot);
        md_make_super(&shape, slot, data_start(slot), r->disks[slot]->bytes + 4096);
    }
    md_lay_out(&shape, r->data, areas);
    if (bad != NULL)
        r->bad = *bad;
    for (unsigned slot = shape.disks; slot-- > 0;) { /* backwards: their place in the list is not their slot */
        if (absent >> slot & 1)
            continue;
        struct md_superblock *sb = &r->supers[slot];
        cr_assert_eq(md_superblock_decode(r->disks[slot]->bytes + 4096, sb, why, sizeof why), MD_VALID);
        disks[count++] = (struct md_disk){.name = "disk", .sb = sb, .bytes = r->disks[slot]->dev.info.size};
        options.devs[slot] = r->faults[slot];
    }
    md_decide(disks, count, &r->set);
    cr_assert(r->set.usable, "%s", r->set.reason);
    r->import = import_open(&r->t->loop, &options);
    cr_assert_not_null(r->import);
    cr_assert_eq(import_dev(r->import)->info.size, r->size);
    cr_assert(import_dev(r->import)->info.read_only);
    return r;
}

static void flag_set(struct task *task)
{
    task->run = NULL;
}

static void rig_close(struct rig *r)
{
    struct task closed = {.run = flag_set};
    import_close(r->import, &closed);
    testloop_run(r->t);
    cr_assert_null(closed.run);
    for (unsigned slot = 0; slot < r->shape.disks; slot++) {
        cr_expect_eq(r->disks[slot]->writes, 0, "disk %u was written", slot);
        cr_expect_eq(r->disks[slot]->flushes, 0);
        test_close(r->t, r->faults[slot]);
    }
    testloop_destroy(r->t);
    free(r->data);
    free(r);
}

static enum blk_status read_some(struct rig *r, uint64_t off, uint64_t len)
{
    uint8_t *buffer = malloc(len);
    enum blk_status status = test_io(r->t, import_dev(r->import), BLK_READ, 0, off, buffer, len);
    if (status == BLK_OK)
        cr_assert(memcmp(buffer, r->data + off, len) == 0, "level %d layout %u: bytes %llu on differ", r->shape.level,
                  r->shape.layout, (unsigned long long)off);
    free(buffer);
    return status;
}

/* All of it at once, and pieces of all kinds. */
static void expect_contents(struct rig *r)
{
    uint64_t seed = 5;
    cr_assert_eq(read_some(r, 0, r->size), BLK_OK);
    cr_assert_eq(read_some(r, r->size - 512, 512), BLK_OK);
    for (unsigned i = 0; i < 60; i++) {
        uint64_t off = test_random(&seed) % (r->size / 512) * 512;
        uint64_t len = (1 + test_random(&seed) % 100) * 512;
        cr_assert_eq(read_some(r, off, MIN(len, r->size - off)), BLK_OK);
    }
}

static const struct {
    struct md_shape shape;
    unsigned bears;
} shapes[] = {
    {{0, 0, 3, 8192, 128 * KIB}, 0},      {{0, 0, 1, 8192, 128 * KIB}, 0},      {{1, 0, 3, 0, 1280 * KIB + 512}, 2},
    {{1, 0, 1, 0, 128 * KIB}, 0},         {{4, 0, 4, 16384, 160 * KIB}, 1},     {{5, 0, 4, 8192, 160 * KIB}, 1},
    {{5, 1, 5, 8192, 160 * KIB}, 1},      {{5, 2, 4, 65536, 512 * KIB}, 1},     {{5, 3, 4, 8192, 160 * KIB}, 1},
    {{5, 4, 4, 8192, 160 * KIB}, 1},      {{5, 5, 4, 8192, 160 * KIB}, 1},      {{5, 2, 2, 8192, 160 * KIB}, 1},
    {{6, 0, 5, 8192, 160 * KIB}, 2},      {{6, 1, 6, 8192, 192 * KIB}, 2},      {{6, 2, 5, 8192, 160 * KIB}, 2},
    {{6, 3, 4, 8192, 160 * KIB}, 2},      {{6, 4, 6, 8192, 160 * KIB}, 2},      {{6, 5, 5, 8192, 160 * KIB}, 2},
    {{10, 0x102, 4, 8192, 160 * KIB}, 1}, {{10, 0x102, 3, 8192, 168 * KIB}, 1}, {{10, 0x103, 5, 8192, 168 * KIB}, 2},
    {{10, 0x102, 2, 8192, 160 * KIB}, 1},
};

Test(import, reads_what_md_laid_out)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(shapes); i++) {
        struct rig *r = rig_open(shapes[i].shape, 0, NULL);
        expect_contents(r);
        rig_close(r);
    }
}

/* Every set of disks that the level bears. */
Test(import, reads_without_what_the_level_bears)
{
    unsigned tried = 0;
    for (unsigned i = 0; i < ARRAY_LENGTH(shapes); i++)
        for (uint64_t absent = 1; absent < UINT64_C(1) << shapes[i].shape.disks; absent++) {
            if ((unsigned)__builtin_popcountll(absent) > shapes[i].bears)
                continue;
            struct rig *r = rig_open(shapes[i].shape, absent, NULL);
            struct import_info info;
            expect_contents(r);
            import_info(r->import, &info);
            cr_expect_str_eq(info.state, "degraded");
            rig_close(r);
            tried++;
        }
    cr_expect_gt(tried, 100, "%u", tried);
}

Test(import, takes_no_change_and_flushes_nothing)
{
    struct rig *r = rig_open(shapes[7].shape, 0, NULL);
    uint8_t block[4096] = {0};
    struct blkdev *dev = import_dev(r->import);
    cr_expect_eq(test_io(r->t, dev, BLK_WRITE, 0, 0, block, sizeof block), BLK_READONLY);
    cr_expect_eq(test_io(r->t, dev, BLK_WRITE_ZEROES, 0, 0, NULL, 4096), BLK_READONLY);
    cr_expect_eq(test_io(r->t, dev, BLK_DISCARD, 0, 0, NULL, 4096), BLK_READONLY);
    cr_expect_eq(test_io(r->t, dev, BLK_FLUSH, 0, 0, NULL, 0), BLK_OK);
    cr_expect(!dev->info.discards && !dev->info.volatile_cache);
    expect_contents(r);
    rig_close(r);
}

static void fail_reads(struct rig *r, unsigned slot, uint64_t off, uint64_t len, enum blk_status status)
{
    struct fault_rule rule = {.ops = 1 << BLK_READ, .off = data_start(slot) + off, .len = len, .status = status};
    cr_assert_geq(fault_add(r->faults[slot], &rule), 0);
}

/* What a disk cannot read is computed, time and again, and never rewritten. */
Test(import, reads_around_bad_sectors_without_mending_them)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(shapes); i++) {
        if (shapes[i].bears == 0)
            continue;
        struct rig *r = rig_open(shapes[i].shape, 0, NULL);
        struct import_info info;
        fail_reads(r, 0, 4096, 1024, BLK_MEDIA);
        fail_reads(r, 1, 40 * KIB, 8192, BLK_MEDIA);
        for (unsigned round = 0; round < 3; round++)
            expect_contents(r);
        import_info(r->import, &info);
        cr_expect_str_eq(info.state, "optimal");
        cr_expect_str_eq(info.members[1].state, "online");
        rig_close(r);
    }
}

Test(import, what_nobody_can_read_is_a_media_error_there_and_nowhere_else)
{
    struct rig *r = rig_open(shapes[0].shape, 0, NULL); /* RAID 0 of three, chunks of 8 KiB */
    fail_reads(r, 1, 8192 + 512, 512, BLK_MEDIA);       /* the second chunk of the second disk */
    uint64_t lost = 4 * 8192 + 512;
    cr_expect_eq(read_some(r, lost, 512), BLK_MEDIA);
    cr_expect_eq(read_some(r, 0, lost), BLK_OK);
    cr_expect_eq(read_some(r, lost + 512, r->size - lost - 512), BLK_OK);
    rig_close(r);
}

/* md's own log of bad blocks: the disk would answer, with something else. */
Test(import, believes_no_block_that_md_calls_bad)
{
    static struct bad_list bad;
    bad.count = 0;
    cr_assert(bad_add(&bad, 2, 8192, 4096));
    struct rig *r = rig_open(shapes[7].shape, 0, &bad);
    memset(r->disks[2]->bytes + data_start(2) + 8192, 0xee, 4096);
    expect_contents(r);
    rig_close(r);
}

Test(import, a_disk_that_dies_is_done_without)
{
    struct rig *r = rig_open(shapes[7].shape, 0, NULL);
    struct import_info info;
    fault_kill(r->faults[1]);
    expect_contents(r);
    import_info(r->import, &info);
    cr_expect_str_eq(info.state, "degraded");
    cr_expect_str_eq(info.members[1].state, "failed");
    /* A second one is too much: it stays in service, and what it has answers again when it does. */
    fault_kill(r->faults[3]);
    cr_expect_eq(read_some(r, 0, r->size), BLK_GONE);
    fault_revive(r->faults[3]);
    expect_contents(r);
    rig_close(r);
}
