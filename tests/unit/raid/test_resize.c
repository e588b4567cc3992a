/*
 * Volumes become longer and shorter: in every level, at any moment of a crash, without a disk, under load. What was
 * given up does not come back, and the disks are full of garbage that must never be seen.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/raid/arrays.h"

enum { PIECE = 1 << 20 };

/* Who hears of sizes. */
struct ear {
    struct blk_watcher watcher;
    unsigned heard;
    uint64_t size;
};

static void hear(struct blk_watcher *watcher, struct blkdev *dev, enum blk_event event)
{
    struct ear *ear = container_of(watcher, struct ear, watcher);
    ear->heard += event == BLK_EVENT_RESIZED;
    ear->size = dev->info.size;
}

static void garbage(struct rig *rig)
{
    for (unsigned slot = 0; slot < rig->count; slot++)
        memset(rig->mem[slot]->bytes, 0xa5 + (int)slot, rig->mem[slot]->dev.info.size);
}

static struct rig *rig_of(unsigned disks, uint64_t bytes, enum raid_level level, uint64_t size)
{
    struct rig *rig = rig_create(disks, bytes);
    garbage(rig);
    cr_assert(rig_make_one(rig, level, size), "%s", rig->message);
    return rig;
}

static uint64_t size_of(struct rig *rig)
{
    return rig_volume(rig)->info.size;
}

/* Pieces [from, to) of volume "v", each from a seed of its own. */
static void put(struct rig *rig, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        rig_put(rig, (uint64_t)i * PIECE, PIECE, 50 + i);
}

static void expect(struct rig *rig, unsigned from, unsigned to, const char *what)
{
    for (unsigned i = from; i < to; i++)
        cr_assert(rig_has(rig, (uint64_t)i * PIECE, PIECE, 50 + i), "%s: piece %u", what, i);
}

static void expect_zeroes(struct rig *rig, unsigned from, unsigned to, const char *what)
{
    for (unsigned i = from; i < to; i++)
        cr_assert(rig_has(rig, (uint64_t)i * PIECE, PIECE, 0), "%s: piece %u is not zeroes", what, i);
}

static void again(struct rig *rig)
{
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(rig_assemble(rig, UINT32_MAX, false), "%s", rig->message);
}

static const struct {
    enum raid_level level;
    unsigned disks;
} levels[] = {
    {RAID_JBOD, 2}, {RAID_0, 3}, {RAID_1, 2}, {RAID_1, 3}, {RAID_10, 4}, {RAID_1E, 3},
    {RAID_3, 3},    {RAID_5, 3}, {RAID_5, 5}, {RAID_6, 4}, {RAID_6, 6},  {RAID_TP, 5},
};

Test(resize, a_volume_of_any_level_becomes_longer_and_shorter, .timeout = 120)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(levels); i++) {
        const char *name = raid_level_name(levels[i].level);
        bool redundant = levels[i].level != RAID_JBOD && levels[i].level != RAID_0;
        struct rig *rig = rig_of(levels[i].disks, 64 * MIB, levels[i].level, 5 * MIB);
        struct ear ear = {.watcher.event = hear};
        put(rig, 0, 5);
        blk_watch(rig_volume(rig), &ear.watcher);
        cr_assert(rig_resize(rig, 0, 18 * MIB, false), "%s: %s", name, rig->message);
        cr_expect(ear.heard == 1 && ear.size == 18 * MIB && size_of(rig) == 18 * MIB, "%s", name);
        blk_unwatch(rig_volume(rig), &ear.watcher);
        expect(rig, 0, 5, name);
        if (redundant)
            expect_zeroes(rig, 5, 18, name);
        put(rig, 5, 15);
        again(rig);
        cr_expect_eq(size_of(rig), 18 * MIB);
        expect(rig, 0, 15, name);
        cr_expect_not(rig_resize(rig, 0, 8 * MIB, false));
        cr_expect_not_null(strstr(rig->message, "would lose its last 10485760 bytes"), "%s", rig->message);
        cr_expect_eq(size_of(rig), 18 * MIB);
        uint64_t was_free = rig_info(rig).free_bytes;
        cr_assert(rig_resize(rig, 0, 8 * MIB + 4096, true), "%s: %s", name, rig->message);
        cr_expect(size_of(rig) == 8 * MIB + 4096 && rig_info(rig).free_bytes > was_free, "%s", name);
        expect(rig, 0, 8, name);
        cr_assert(rig_add(rig, "w", RAID_0, 8 * MIB), "%s: %s", name, rig->message);
        cr_assert_eq(rig_fill(rig, "w", 7, PIECE), BLK_OK);
        again(rig);
        expect(rig, 0, 8, name);
        cr_expect(rig_holds(rig, "w", 7));
        rig_destroy(rig);
    }
}

/* Neither whole rows, nor the rest of the row that the end was in. */
Test(resize, what_was_given_up_does_not_come_back, .timeout = 120)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(levels); i++) {
        if (levels[i].level == RAID_JBOD || levels[i].level == RAID_0)
            continue;
        for (unsigned restart = 0; restart < 2; restart++) {
            const char *name = raid_level_name(levels[i].level);
            struct rig *rig = rig_of(levels[i].disks, 64 * MIB, levels[i].level, 12 * MIB);
            put(rig, 0, 12);
            cr_assert(rig_resize(rig, 0, 4 * MIB + 4096, true), "%s", rig->message);
            if (restart)
                again(rig);
            cr_assert(rig_resize(rig, 0, 12 * MIB, false), "%s", rig->message);
            if (restart)
                again(rig);
            expect(rig, 0, 4, name);
            cr_assert(rig_has(rig, 4 * MIB + 4096, PIECE - 4096, 0), "%s: of the row with the end", name);
            expect_zeroes(rig, 5, 12, name);
            rig_destroy(rig);
        }
    }
}

/* Copies of 4 KiB: a block of the region map stands for 63 MiB. */
static struct rig *rig_of_many_rows(uint64_t size)
{
    struct rig *rig = rig_create(2, 160 * MIB);
    struct array_spec *spec = rig_spec(rig);
    garbage(rig);
    rig_spec_add(spec, "v", RAID_1, size);
    spec->volumes[0].layout.chunk = 4096;
    cr_assert(rig_make(rig, spec), "%s", rig->message);
    return rig;
}

Test(resize, the_region_map_becomes_longer_by_blocks, .timeout = 120)
{
    struct rig *rig = rig_of_many_rows(60 * MIB);
    put(rig, 0, 2);
    put(rig, 58, 60);
    cr_assert(rig_resize(rig, 0, 135 * MIB, false), "%s", rig->message);
    put(rig, 60, 68);
    put(rig, 130, 135);
    again(rig);
    expect(rig, 0, 2, "the first");
    expect(rig, 58, 68, "over the end of a block");
    expect(rig, 130, 135, "in the third block");
    expect_zeroes(rig, 2, 58, "never written");
    expect_zeroes(rig, 68, 130, "never written");
    /* What the blocks said that are cut off, and the rest of the last one, is of no meaning when they are back. */
    cr_assert(rig_resize(rig, 0, 59 * MIB, true), "%s", rig->message);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, UINT32_MAX, false), "%s", rig->message);
    cr_assert(rig_resize(rig, 0, 135 * MIB, false), "%s", rig->message);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, UINT32_MAX, false), "%s", rig->message);
    cr_expect_eq(size_of(rig), 135 * MIB);
    expect(rig, 58, 59, "before the end");
    expect_zeroes(rig, 59, 135, "given up");
    rig_destroy(rig);
}

/* --- refusals --- */

static void expect_refused(struct rig *rig, unsigned volume, uint64_t size, bool shrink, const char *with)
{
    cr_expect_not(rig_resize(rig, volume, size, shrink), "%s", with);
    cr_expect_not_null(strstr(rig->message, with), "'%s' is not in '%s'", with, rig->message);
}

Test(resize, refusals_have_numbers)
{
    struct rig *rig = rig_create(3, 64 * MIB);
    struct array_spec *spec = rig_spec(rig);
    rig_spec_add(spec, "v", RAID_5, 8 * MIB);
    rig_spec_add(spec, "w", RAID_1, 4 * MIB);
    rig_spec_add(spec, "s", RAID_SPAN, 6 * MIB);
    cr_assert(rig_make(rig, spec), "%s", rig->message);
    expect_refused(rig, 0, 16 * MIB, false,
                   "volume v: for 16.0 MiB it needs, as raid5, 8.0 MiB on each of its 3 disks, and has 4.0 MiB");
    expect_refused(rig, 0, 1ull << 50, false, "volume v: for ");
    expect_refused(rig, 0, UINT64_MAX, false, "no disks hold");
    expect_refused(rig, 0, 0, true, "at least 4 KiB");
    expect_refused(rig, 1, 2 * MIB, false, "--force");
    expect_refused(rig, 2, 12 * MIB, false, "volume s is a span");
    cr_expect(rig_resize(rig, 0, 8 * MIB, false), "as it is: %s", rig->message);
    cr_expect(rig_resize(rig, 0, 8 * MIB - 1, false), "rounded up: %s", rig->message);
    /* The volume behind it makes room. */
    cr_assert(rig_resize(rig, 1, 1 * MIB, true), "%s", rig->message);
    expect_refused(rig, 0, 16 * MIB, false, "and has 4.0 MiB");
    rig_destroy(rig);
}

Test(resize, jobs_and_disks_on_their_way_are_waited_for)
{
    struct rig *rig = rig_of(4, 64 * MIB, RAID_5, 12 * MIB);
    put(rig, 0, 12);
    cr_assert(rig_pause(rig, 0, true));
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_CHECK), "%s", rig->message);
    expect_refused(rig, 0, 24 * MIB, false, "scrub");
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_NONE));
    cr_assert(rig_fail(rig, 2));
    rig_disk_replace(rig, 2, 64 * MIB, 512);
    cr_assert(rig_online(rig, 2), "%s", rig->message);
    expect_refused(rig, 0, 24 * MIB, false, "is rebuilding a disk");
    cr_assert(rig_pause(rig, 0, false));
    rig_settle(rig);
    cr_assert(rig_resize(rig, 0, 24 * MIB, false), "%s", rig->message);
    unsigned more = rig_disk_more(rig, 64 * MIB, 512);
    cr_assert(rig_replace(rig, 1, more), "%s", rig->message);
    expect_refused(rig, 0, 28 * MIB, false, "disk");
    cr_assert(rig_replaced(rig), "%s", rig->message);
    expect(rig, 0, 12, "all the while");
    expect_zeroes(rig, 12, 24, "all the while");
    rig_destroy(rig);
}

/* --- without a disk --- */

Test(resize, a_disk_that_was_away_learns_of_it, .timeout = 120)
{
    static const uint64_t sizes[] = {20 * MIB, 4 * MIB};
    for (unsigned i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct rig *rig = rig_of(4, 64 * MIB, RAID_5, 10 * MIB);
        put(rig, 0, 10);
        cr_assert(rig_fail(rig, 3));
        cr_assert(rig_resize(rig, 0, sizes[i], true), "%s", rig->message);
        unsigned end = (unsigned)(sizes[i] / PIECE);
        if (end > 10)
            put(rig, 15, end);
        cr_assert(rig_online(rig, 3), "%s", rig->message);
        rig_settle(rig);
        cr_assert(rig_fail(rig, 0)); /* now it has to bring its part */
        expect(rig, 0, MIN(end, 10u), "with the disk that was away");
        if (end > 10) {
            expect_zeroes(rig, 10, 15, "with the disk that was away");
            expect(rig, 15, end, "with the disk that was away");
        }
        rig_destroy(rig);
    }
}

Test(resize, a_volume_that_failed_is_left_as_it_is)
{
    struct rig *rig = rig_of(3, 64 * MIB, RAID_5, 10 * MIB);
    put(rig, 0, 10);
    fault_kill(rig->dev[0]);
    fault_kill(rig->dev[1]);
    cr_expect_not(rig_resize(rig, 0, 4 * MIB, true));
    fault_revive(rig->dev[0]);
    fault_revive(rig->dev[1]);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, UINT32_MAX, false), "%s", rig->message);
    cr_expect(size_of(rig) == 10 * MIB || size_of(rig) == 4 * MIB);
    expect(rig, 0, 4, "what was kept");
    rig_destroy(rig);
}

/* --- crashes --- */

struct pending {
    struct array_call call;
    bool over;
};

static void pending_done(struct array_call *call)
{
    container_of(call, struct pending, call)->over = true;
}

static struct rig *rig_with_policy(enum raid_level level, unsigned disks, enum sb_consistency consistency)
{
    struct rig *rig = rig_create(disks, 34 * MIB);
    struct array_spec *spec = rig_spec(rig);
    garbage(rig);
    rig_spec_add(spec, "v", level, 4 * MIB);
    spec->volumes[0].consistency_given = true;
    spec->volumes[0].consistency = consistency;
    cr_assert(rig_make(rig, spec), "%s", rig->message);
    return rig;
}

/* Killed after `us` microseconds. True: the call was over by then. */
static bool crash_after(enum raid_level level, unsigned disks, enum sb_consistency consistency, uint64_t to,
                        uint64_t us)
{
    struct rig *rig = rig_with_policy(level, disks, consistency);
    struct pending pending = {.call.done = pending_done};
    const char *name = raid_level_name(level);
    unsigned end = (unsigned)(to / PIECE);
    bool redundant = level != RAID_0;
    put(rig, 0, 4);
    array_resize_volume(rig->array, 0, to, true, &pending.call);
    rig_wait(rig, us * 1000);
    bool over = pending.over;
    cr_assert(!over || pending.call.error == 0, "%s", pending.call.message);
    rig_kill(rig);
    cr_assert(pending.over, "%s: killed after %llu us: no answer", name, (unsigned long long)us);
    cr_assert(rig_assemble(rig, UINT32_MAX, false), "%s: killed after %llu us: %s", name, (unsigned long long)us,
              rig->message);
    cr_assert(size_of(rig) == to || (!over && size_of(rig) == 4 * MIB), "%s: killed after %llu us: %llu bytes", name,
              (unsigned long long)us, (unsigned long long)size_of(rig));
    expect(rig, 0, MIN(end, 4u), name);
    if (size_of(rig) > 4 * MIB && redundant)
        expect_zeroes(rig, 4, end, name);
    rig_settle(rig);
    cr_assert(rig_resize(rig, 0, to, true), "%s", rig->message); /* once more, if it has to be */
    put(rig, MIN(end, 4u), end);
    expect(rig, 0, end, name);
    if (end < 4) { /* rows that were given up, and are written anew: what the journal has of them is over */
        cr_assert(rig_resize(rig, 0, 4 * MIB, false), "%s", rig->message);
        for (unsigned i = end; i < 4; i += 2)
            rig_put(rig, (uint64_t)i * PIECE, PIECE, 50 + i);
    }
    rig_kill(rig);
    cr_assert(rig_assemble(rig, UINT32_MAX, false), "%s", rig->message);
    expect(rig, 0, end, name);
    for (unsigned i = end; i < 4; i++)
        cr_assert((!redundant && (i - end) % 2) || rig_has(rig, (uint64_t)i * PIECE, PIECE, (i - end) % 2 ? 0 : 50 + i),
                  "%s: piece %u of what was given up", name, i);
    rig_destroy(rig);
    return over;
}

static void kill_at_any_moment(uint64_t to)
{
    static const struct {
        enum raid_level level;
        unsigned disks;
        enum sb_consistency consistency;
    } kinds[] = {{RAID_0, 2, SB_RESYNC},
                 {RAID_1, 2, SB_BITMAP},
                 {RAID_5, 3, SB_BITMAP},
                 {RAID_5, 3, SB_PPL},
                 {RAID_6, 4, SB_JOURNAL}};
    for (unsigned k = 0; k < ARRAY_LENGTH(kinds); k++) {
        unsigned moments = 0;
        for (uint64_t us = 0; !crash_after(kinds[k].level, kinds[k].disks, kinds[k].consistency, to, us); us += 50 + us / 20)
            moments++;
        cr_expect_gt(moments, 3, "%u", moments);
    }
}

Test(resize, killed_at_any_moment_it_is_as_it_was_or_longer)
{
    kill_at_any_moment(7 * MIB);
}

Test(resize, killed_at_any_moment_it_is_as_it_was_or_shorter)
{
    kill_at_any_moment(2 * MIB);
}

/* --- under load --- */

struct load {
    struct rig *rig;
    struct rig_write writes[24];
    uint64_t seed, end; /* of the volume, as whoever asks knows it */
    unsigned done, failed;
    bool stop;
};

static void load_next(struct rig_write *write)
{
    struct load *l = write->data;
    if (write->req.done != NULL) {
        l->done++;
        l->failed += write->req.status != BLK_OK;
    }
    if (l->stop)
        return;
    uint64_t off = test_random(&l->seed) % (size_of(l->rig) / 4096 - 16) * 4096;
    *write = (struct rig_write){.on_done = load_next, .data = l};
    rig_write_start(l->rig, write, "v", off, (1 + test_random(&l->seed) % 16) * 4096, off + 1);
}

Test(resize, under_load_nothing_goes_beyond_the_end, .timeout = 120)
{
    static const enum raid_level kinds[] = {RAID_0, RAID_1, RAID_5};
    for (unsigned k = 0; k < ARRAY_LENGTH(kinds); k++) {
        struct rig *rig = rig_of(3, 64 * MIB, kinds[k], 16 * MIB);
        struct load *l = calloc(1, sizeof *l);
        l->rig = rig;
        l->seed = 5;
        for (unsigned i = 0; i < ARRAY_LENGTH(l->writes); i++) {
            l->writes[i].data = l;
            load_next(&l->writes[i]);
        }
        rig_wait(rig, 3000000);
        cr_assert(rig_resize(rig, 0, 4 * MIB, true), "%s", rig->message);
        cr_assert(rig_add(rig, "w", RAID_0, 12 * MIB), "%s", rig->message);
        cr_assert_eq(rig_fill(rig, "w", 3, 64 * KIB), BLK_OK); /* where it was */
        rig_wait(rig, 3000000);
        cr_expect(rig_holds(rig, "w", 3), "%s", raid_level_name(kinds[k]));
        l->stop = true;
        rig_wait(rig, 100000000);
        cr_expect(l->done > 100 && l->failed == 0, "%u done, %u failed", l->done, l->failed);
        free(l);
        rig_destroy(rig);
    }
}
