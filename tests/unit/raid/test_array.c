/* Arrays whose disks do as they are told: describe, create, serve, close, kill, jobs. Losses are in
 * test_array_faults.c. */
#include <criterion/criterion.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "tests/unit/raid/arrays.h"

enum { DISK = 40 * 1024 * 1024, DATA = 25 * 1024 * 1024 };

/* --- describe --- */

struct refusal {
    const char *what; /* and the test's own name for it */
    unsigned disks;
    void (*spoil)(struct rig *, struct array_spec *);
    const char *sentence; /* part of it */
};

static void spoil_name(struct rig *rig, struct array_spec *spec)
{
    (void)rig;
    strcpy(spec->name, "a/b");
}

static void spoil_no_disks(struct rig *rig, struct array_spec *spec)
{
    (void)rig;
    spec->disks_count = 0;
}

static void spoil_hole(struct rig *rig, struct array_spec *spec)
{
    (void)rig;
    spec->disks[1].dev = NULL;
}

static void spoil_twice(struct rig *rig, struct array_spec *spec)
{
    (void)rig;
    strcpy(spec->disks[2].identity, "disk0");
}

static void spoil_4kn(struct rig *rig, struct array_spec *spec)
{
    rig_disk_replace(rig, 1, DISK, 4096);
    spec->disks[1] = rig_disk(rig, 1);
}

static void spoil_small(struct rig *rig, struct array_spec *spec)
{
    rig_disk_replace(rig, 2, 16 * MIB, 512);
    spec->disks[2] = rig_disk(rig, 2);
}

static void spoil_read_only(struct rig *rig, struct array_spec *spec)
{
    (void)spec;
    rig->dev[0]->info.read_only = true;
}

static void spoil_identity(struct rig *rig, struct array_spec *spec)
{
    (void)rig;
    strcpy(spec->disks[0].identity, "bad\nserial");
}

static void spoil_too_big(struct rig *rig, struct array_spec *spec)
{
    (void)rig;
    spec->volumes[0].size = 51 * MIB;
}

static void spoil_same_volume(struct rig *rig, struct array_spec *spec)
{
    (void)rig;
    spec->volumes[0].size = MIB;
    rig_spec_add(spec, "v", RAID_0, MIB);
}

static void spoil_nothing_left(struct rig *rig, struct array_spec *spec)
{
    (void)rig;
    rig_spec_add(spec, "w", RAID_0, 0);
}

static void spoil_level(struct rig *rig, struct array_spec *spec)
{
    (void)rig;
    spec->volumes[0].layout.level = RAID_6;
}

static void spoil_slot(struct rig *rig, struct array_spec *spec)
{
    (void)rig;
    spec->volumes[0].layout.level = RAID_JBOD;
    spec->volumes[0].slot = 3;
}

static const struct refusal refusals[] = {
    {"name", 3, spoil_name, "\"a/b\" is no name for an array"},
    {"no disks", 3, spoil_no_disks, "array r0 is given 0 disks"},
    {"hole", 3, spoil_hole, "slot 1 of array r0 has no disk"},
    {"twice", 3, spoil_twice, "disk disk0 is given twice"},
    {"4Kn", 3, spoil_4kn, "disk disk1 has blocks of 4096 bytes and disk disk0 of 512"},
    {"small", 3, spoil_small, "disk disk2 cannot be a member: a member needs at least 32 MiB"},
    {"read-only", 3, spoil_read_only, "disk disk0 is read-only"},
    {"identity", 3, spoil_identity, "not printable"},
    {"too big", 3, spoil_too_big,
     "volume v asks for 51.0 MiB (53477376 bytes): as raid5 it needs 26.0 MiB on each of its 3 disks, and 25.0 MiB is "
     "free there"},
    {"same volume", 3, spoil_same_volume, "array r0 has a volume v already"},
    {"nothing left", 3, spoil_nothing_left, "volume w asks for all that is left, and nothing is"},
    {"level", 3, spoil_level, "volume v: raid6 needs at least 4 members, 3 were given"},
    {"slot", 3, spoil_slot, "volume v is to lie in slot 3, but array r0 has slots 0 to 2"},
};

Test(array, describe_refuses_with_a_sentence)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(refusals); i++) {
        struct rig *rig = rig_create(refusals[i].disks, DISK);
        struct array_spec *spec = rig_spec(rig);
        struct sb_array out;
        char why[256] = "";
        rig_spec_add(spec, "v", RAID_5, 0);
        refusals[i].spoil(rig, spec);
        const char *said = array_describe(&rig->t->loop, spec, &out, why, sizeof why);
        cr_expect(said != NULL && strstr(said, refusals[i].sentence) != NULL, "%s: %s", refusals[i].what,
                  said != NULL ? said : "accepted");
        cr_expect_not(rig_make(rig, spec), "%s", refusals[i].what);
        cr_expect_eq(rig->error, -EINVAL);
        cr_expect(strstr(rig->message, refusals[i].sentence) != NULL, "%s: %s", refusals[i].what, rig->message);
        cr_expect_eq(rig->mem[0]->writes, 0, "nothing was written");
        rig_destroy(rig);
    }
}

Test(array, describe_places_volumes_first_fit_in_units_of_a_mebibyte)
{
    struct rig *rig = rig_create(4, DISK);
    struct array_spec *spec = rig_spec(rig);
    struct sb_array a;
    char why[256];
    rig_spec_add(spec, "five", RAID_5, 6 * MIB + 1);
    rig_spec_add(spec, "disk1", RAID_JBOD, 5 * MIB);
    rig_spec_add(spec, "disk3", RAID_JBOD, 2 * MIB);
    rig_spec_add(spec, "six", RAID_6, 2 * MIB);
    rig_spec_add(spec, "small", RAID_JBOD, MIB);
    rig_spec_add(spec, "rest", RAID_10, 0);
    spec->volumes[1].slot = 1;
    spec->volumes[2].slot = 3;
    spec->volumes[4].slot = 3;
    const char *wrong = array_describe(&rig->t->loop, spec, &a, why, sizeof why);
    cr_assert(wrong == NULL, "%s", wrong);
    static const struct {
        uint64_t start, extent, size;
    } want[] = {
        {0, 3, 6 * MIB + 4096}, {3, 5, 5 * MIB}, {3, 2, 2 * MIB}, {8, 1, 2 * MIB}, {5, 1, MIB}, {9, 16, 32 * MIB},
    };
    cr_assert_eq(a.volumes_count, ARRAY_LENGTH(want));
    for (unsigned i = 0; i < a.volumes_count; i++) {
        const struct sb_volume *v = &a.volumes[i];
        cr_expect(v->start == want[i].start * MIB && v->extent == want[i].extent * MIB && v->size == want[i].size,
                  "%s: start %llu extent %llu size %llu", v->name, (unsigned long long)v->start,
                  (unsigned long long)v->extent, (unsigned long long)v->size);
        cr_expect_eq(v->spec.chunk, 65536, "%s", v->name);
        cr_expect_eq(v->logical_block, 512);
        static const uint64_t map_blocks[] = {0, 0, 0, 1, 0, 2};
        cr_expect_eq(v->unmapped, v->spec.level != RAID_JBOD, "%s", v->name);
        cr_expect_eq(v->map_block, map_blocks[i], "%s", v->name);
    }
    cr_expect_eq(a.data_bytes, DATA);
    cr_expect_eq(a.generation, 1);
    free(spec);
    rig_destroy(rig);
}

Test(array, members_of_different_size_serve_jbod_and_span_with_all_they_have)
{
    struct rig *rig = rig_create(3, DISK);
    rig_disk_replace(rig, 1, DISK + 10 * MIB + 4096, 512);
    struct sb_array a;
    char why[256];
    struct array_spec *spec = rig_spec(rig);
    rig_spec_add(spec, "span", RAID_SPAN, 0);
    cr_assert_null(array_describe(&rig->t->loop, spec, &a, why, sizeof why));
    cr_expect_eq(a.members[1].size, DISK + 10 * MIB, "rounded down");
    cr_expect_eq(a.volumes[0].extent, 0);
    cr_expect_eq(a.volumes[0].size, 3ull * DATA + 10 * MIB);
    rig_spec_add(spec, "more", RAID_0, MIB);
    cr_expect_not_null(array_describe(&rig->t->loop, spec, &a, why, sizeof why), "equal extents: nothing is left");
    spec->volumes_count = 1;
    rig_spec_add(spec, "big", RAID_JBOD, 0);
    spec->volumes[0].size = 30 * MIB;
    spec->volumes[1].slot = 1;
    cr_assert_null(array_describe(&rig->t->loop, spec, &a, why, sizeof why));
    cr_expect_eq(a.volumes[0].extent, 10 * MIB);
    cr_expect_eq(a.volumes[1].start, 10 * MIB);
    cr_expect_eq(a.volumes[1].size, DATA, "what a larger disk has more is of use");
    free(spec);
    rig_destroy(rig);
}

/* --- serve, close, open --- */

Test(array, volumes_of_all_levels_share_disks_and_survive_close_and_open)
{
    static const enum raid_level levels[] = {RAID_0, RAID_1,  RAID_10, RAID_3, RAID_5,
                                             RAID_6, RAID_TP, RAID_50, RAID_60};
    struct rig *rig = rig_create(8, DISK);
    struct array_spec *spec = rig_spec(rig);
    for (unsigned i = 0; i < ARRAY_LENGTH(levels); i++)
        rig_spec_add(spec, raid_level_name(levels[i]), levels[i], MIB + 12288);
    rig_spec_add(spec, "jbod", RAID_JBOD, MIB);
    rig_spec_add(spec, "span", RAID_SPAN, 3 * MIB);
    cr_assert(rig_make(rig, spec), "%s", rig->message);
    const struct sb_array *a = array_description(rig->array);
    unsigned count = a->volumes_count;
    char names[SB_VOLUMES_MAX][SB_NAME_SIZE];
    for (unsigned i = 0; i < count; i++) {
        strcpy(names[i], a->volumes[i].name);
        cr_expect_eq(array_volume(rig->array, names[i])->info.size, a->volumes[i].size);
        cr_expect_eq(rig_fill(rig, names[i], 100 + i, 40960), BLK_OK, "%s", names[i]);
    }
    cr_expect_null(array_volume(rig->array, "nobody"));
    for (unsigned round = 0; round < 2; round++) {
        rig_settle(rig);
        cr_assert(rig_close(rig), "%s", rig->message);
        cr_assert(rig_assemble(rig, 0xff, false), "%s: %s", rig->assembly.reason, rig->message);
        cr_expect_eq(rig->assembly.verdict, ASSEMBLY_COMPLETE);
        cr_expect(rig->assembly.array.clean);
        for (unsigned i = 0; i < count; i++)
            cr_expect(rig_holds(rig, names[i], 100 + i), "%s", names[i]);
    }
    cr_expect_str_eq(rig_info(rig).state, "optimal");
    rig_destroy(rig);
}

Test(array, a_create_that_fails_leaves_no_array_behind)
{
    struct rig *rig = rig_create(3, DISK);
    struct fault_rule bad = {.ops = 1u << BLK_WRITE, .status = BLK_MEDIA};
    struct sb_label label;
    fault_add(rig->dev[1], &bad);
    cr_assert_not(rig_make_one(rig, RAID_5, 0));
    cr_expect_eq(rig->error, -EIO);
    cr_expect(strstr(rig->message, "disk disk1 could not be written (media error)") != NULL, "%s", rig->message);
    for (unsigned i = 0; i < 3; i++)
        cr_expect_eq(rig_label(rig, i, &label), SB_NONE, "disk %u", i);
    fault_clear(rig->dev[1], -1);
    cr_expect(rig_make_one(rig, RAID_5, 0), "%s", rig->message);
    rig_destroy(rig);
}

Test(array, a_volume_is_added_in_free_space_and_refused_beyond_it)
{
    struct rig *rig = rig_create(3, DISK);
    cr_assert(rig_make_one(rig, RAID_5, 8 * MIB), "%s", rig->message);
    cr_expect_eq(rig_info(rig).free_bytes, DATA - 4 * MIB);
    cr_expect_not(rig_add(rig, "v", RAID_0, MIB));
    cr_expect(strstr(rig->message, "has a volume v already") != NULL, "%s", rig->message);
    cr_expect_not(rig_add(rig, "w", RAID_1, 22 * MIB));
    cr_expect(strstr(rig->message, "21.0 MiB is free") != NULL, "%s", rig->message);
    cr_assert(rig_add(rig, "w", RAID_1, 4 * MIB), "%s", rig->message);
    cr_expect_eq(rig_info(rig).free_bytes, DATA - 8 * MIB);
    cr_expect_eq(rig_fill(rig, "v", 1, MIB), BLK_OK);
    cr_expect_eq(rig_fill(rig, "w", 2, MIB), BLK_OK);
    rig_settle(rig);
    cr_assert(rig_close(rig));
    cr_assert(rig_assemble(rig, 7, false), "%s", rig->message);
    cr_expect(rig_holds(rig, "v", 1) && rig_holds(rig, "w", 2));
    rig_destroy(rig);
}

Test(array, describes_a_4kn_array_with_volumes_of_4096)
{
    struct rig *rig = rig_create(3, DISK);
    for (unsigned i = 0; i < 3; i++)
        rig_disk_replace(rig, i, DISK, 4096);
    cr_assert(rig_make_one(rig, RAID_5, 4 * MIB), "%s", rig->message);
    cr_expect_eq(array_volume(rig->array, "v")->info.logical_block, 4096);
    cr_assert(rig_add(rig, "w", RAID_0, MIB), "%s", rig->message);
    cr_expect_eq(array_volume(rig->array, "w")->info.logical_block, 4096);
    rig_destroy(rig);
}

/* --- dirty and clean --- */

static void note_labels(struct rig_write *write)
{
    struct rig *rig = write->data;
    for (unsigned i = 0; i < rig->count; i++) {
        struct sb_label label;
        cr_expect_eq(rig_label(rig, i, &label), SB_VALID);
        cr_expect_not(label.array.clean, "disk %u says dirty before the write is answered", i);
    }
}

Test(array, is_dirty_on_disk_before_a_write_and_clean_when_quiet)
{
    struct rig *rig = rig_create(3, DISK);
    struct sb_label label;
    cr_assert(rig_make_one(rig, RAID_5, 4 * MIB), "%s", rig->message);
    rig_settle(rig);
    cr_expect(rig_info(rig).clean);
    struct rig_write write = {.on_done = note_labels, .data = rig};
    rig_write_start(rig, &write, "v", 0, 4096, 5);
    cr_assert(testloop_run_until(rig->t, &write.over));
    cr_expect_eq(write.req.status, BLK_OK);
    cr_expect_not(rig_info(rig).clean);
    uint64_t dirty_generation = rig_info(rig).generation;
    rig_wait(rig, 1900000000);
    rig_write_start(rig, &write, "v", 8192, 4096, 6);
    cr_assert(testloop_run_until(rig->t, &write.over));
    rig_wait(rig, 1900000000);
    cr_expect_eq(rig_info(rig).generation, dirty_generation, "no generation while writes go on");
    rig_wait(rig, 1000000000);
    cr_expect_eq(rig_info(rig).generation, dirty_generation + 1);
    for (unsigned i = 0; i < 3; i++) {
        cr_expect_eq(rig_label(rig, i, &label), SB_VALID);
        cr_expect(label.array.clean, "disk %u", i);
    }
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 7, false), "%s", rig->message);
    cr_expect_eq(rig_info(rig).jobs_count, 0, "a kill while idle needs no resync");
    rig_destroy(rig);
}

Test(array, a_write_that_comes_while_it_turns_clean_makes_it_dirty_again)
{
    struct rig *rig = rig_create(3, DISK);
    cr_assert(rig_make_one(rig, RAID_5, 4 * MIB), "%s", rig->message);
    rig_settle(rig);
    /* at every point of the two milliseconds that flush and commit take */
    for (unsigned delay = 0; delay < 2000; delay += 50) {
        struct rig_write first = {0}, write = {.on_done = note_labels, .data = rig};
        rig_write_start(rig, &first, "v", 0, 4096, delay);
        cr_assert(testloop_run_until(rig->t, &first.over));
        rig_wait(rig, 2000000000 + delay * 1000);
        rig_write_start(rig, &write, "v", 4096, 4096, delay);
        cr_assert(testloop_run_until(rig->t, &write.over), "delay %u us", delay);
        cr_expect_eq(write.req.status, BLK_OK);
        testloop_run(rig->t);
        cr_expect(rig_info(rig).clean);
    }
    rig_destroy(rig);
}

Test(array, labels_find_pages_when_waiting_writes_hold_all_of_the_loop)
{
    struct rig *rig = rig_create(3, DISK);
    cr_assert(rig_make_one(rig, RAID_5, 4 * MIB), "%s", rig->message);
    rig_settle(rig);
    uint32_t count = page_pool_free(rig->t->loop.pages) - 1;
    struct page **pages = calloc(count, sizeof *pages);
    struct rig_write write = {0};
    rig_write_start(rig, &write, "v", 0, 4096, 1);
    cr_assert(page_pool_get(rig->t->loop.pages, pages, count));
    cr_assert(testloop_run_until(rig->t, &write.over));
    cr_expect_eq(write.req.status, BLK_OK);
    page_put_all(pages, count);
    free(pages);
    rig_destroy(rig);
}

/* --- kill --- */

struct early_look {
    struct timer timer;
    struct rig *rig;
    uint64_t writes[RIG_DISKS];
};

static void look_early(struct timer *timer)
{
    struct early_look *look = container_of(timer, struct early_look, timer);
    for (unsigned i = 0; i < look->rig->count; i++)
        look->writes[i] = look->rig->mem[i]->writes;
}

/* Found by simulation: a label that stood in a cache only was taken for committed, and its disk for stale later. */
Test(array, opening_makes_what_it_read_durable_before_it_writes)
{
    struct rig *rig = rig_create(3, DISK);
    cr_assert(rig_make_one(rig, RAID_5, 4 * MIB), "%s", rig->message);
    rig_kill(rig);
    struct early_look look = {.timer.fire = look_early, .rig = rig};
    uint64_t writes[RIG_DISKS];
    for (unsigned i = 0; i < rig->count; i++) {
        struct fault_rule slow_flush = {.ops = 1u << BLK_FLUSH, .delay_ns = 50000000};
        cr_assert_geq(fault_add(rig->dev[i], &slow_flush), 0);
        writes[i] = rig->mem[i]->writes;
    }
    timer_start(&rig->t->loop, &look.timer, 40000000);
    cr_assert(rig_assemble(rig, 7, false), "%s", rig->message);
    for (unsigned i = 0; i < rig->count; i++) {
        cr_expect_eq(look.writes[i], writes[i], "disk %u is written before it was flushed", i);
        cr_expect_gt(rig->mem[i]->writes, writes[i]);
        fault_clear(rig->dev[i], -1);
    }
    rig_destroy(rig);
}

static void flip_parities(struct rig *rig, unsigned slot)
{
    const struct sb_array *a = &rig->assembly.array;
    struct layout layout;
    uint64_t extent[RAID_MEMBERS_MAX];
    for (unsigned i = 0; i < RAID_MEMBERS_MAX; i++)
        extent[i] = a->volumes[0].extent;
    cr_assert_null(layout_init(&layout, &a->volumes[0].spec, extent));
    for (uint64_t row = 0; row < layout.rows; row++)
        for (unsigned role = layout.data; role < layout.roles; role++) {
            struct layout_place place;
            layout_place(&layout, row, role, &place);
            if (place.slot == slot)
                rig->mem[slot]->bytes[a->data_start + a->volumes[0].start + place.off + row % 1000] ^= 0xff;
        }
}

Test(array, a_kill_under_writes_leads_to_a_resync_that_makes_redundancy_right)
{
    static const enum raid_level levels[] = {RAID_5, RAID_6, RAID_1, RAID_10, RAID_50};
    for (unsigned l = 0; l < ARRAY_LENGTH(levels); l++) {
        const char *name = raid_level_name(levels[l]);
        struct rig *rig = rig_create(levels[l] == RAID_50 ? 6 : 4, DISK);
        cr_assert(rig_make_one(rig, levels[l], 2 * MIB), "%s", rig->message);
        rig_settle(rig);
        cr_expect_eq(rig_fill(rig, "v", 7, 65536), BLK_OK);
        rig_settle(rig);
        struct rig_write write = {0};
        rig_write_start(rig, &write, "v", 0, 4096, 9);
        cr_assert(testloop_run_until(rig->t, &write.over));
        cr_expect_eq(rig_fill(rig, "v", 8, 65536), BLK_OK);
        rig->assembly.array = *array_description(rig->array);
        rig_kill(rig);
        flip_parities(rig, 1); /* what a crash may leave */
        cr_assert(rig_assemble(rig, 0xff, false), "%s: %s", name, rig->message);
        cr_expect_not(rig->assembly.array.clean);
        struct array_info info = rig_info(rig);
        cr_expect_eq(info.jobs_count, 1);
        cr_expect_str_eq(info.jobs[0].kind, "resync");
        rig_settle(rig);
        cr_expect(rig_holds(rig, "v", 8), "%s", name);
        for (unsigned lost = 0; lost < 2; lost++) {
            cr_assert(rig_fail(rig, lost * 2), "%s: %s", name, rig->message);
            cr_expect(rig_holds(rig, "v", 8), "%s without %u", name, lost * 2);
            cr_assert(rig_online(rig, lost * 2), "%s: %s", name, rig->message);
            rig_settle(rig);
        }
        rig_destroy(rig);
    }
}

/* --- jobs --- */

static void slow_down(struct rig *rig, uint64_t latency_ns)
{
    for (unsigned i = 0; i < rig->count; i++)
        rig->mem[i]->latency_ns = latency_ns;
}

/* A RAID 5 array on three disks, all of it written, that was killed before it turned clean; its disks are slow now. */
static struct rig *rig_to_resync(uint64_t latency_ns)
{
    struct rig *rig = rig_create(3, DISK);
    cr_assert(rig_make_one(rig, RAID_5, 0), "%s", rig->message);
    cr_assert_eq(rig_fill(rig, "v", 3, MIB), BLK_OK);
    rig_kill(rig);
    slow_down(rig, latency_ns);
    cr_assert(rig_assemble(rig, 7, false), "%s", rig->message);
    return rig;
}

Test(array, a_resync_shows_progress_and_goes_on_where_it_was_stopped)
{
    struct rig *rig = rig_to_resync(1000000);
    struct array_info info = rig_info(rig);
    cr_assert_eq(info.jobs_count, 1);
    cr_expect_str_eq(info.jobs[0].kind, "resync");
    cr_expect_str_eq(info.jobs[0].volume, "v");
    cr_expect_eq(info.jobs[0].total_bytes, 3ull * DATA);
    cr_expect_not(info.clean);
    rig_wait(rig, 5500000);
    info = rig_info(rig);
    cr_assert_eq(info.jobs_count, 1);
    cr_expect(info.jobs[0].done_bytes > 0 && info.jobs[0].done_bytes < info.jobs[0].total_bytes);
    cr_expect_gt(info.jobs[0].bytes_per_second, 0);
    uint64_t done = info.jobs[0].done_bytes;
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(rig_assemble(rig, 7, false), "%s", rig->message);
    cr_expect_not(rig->assembly.array.clean, "rows are left to be resynchronised");
    info = rig_info(rig);
    cr_assert_eq(info.jobs_count, 1);
    cr_expect_leq(info.jobs[0].total_bytes, 3ull * DATA - done, "it is on disk what was done");
    cr_expect_gt(info.jobs[0].total_bytes, 0);
    rig_settle(rig);
    cr_expect(rig_info(rig).clean);
    struct sb_label label;
    cr_assert_eq(rig_label(rig, 2, &label), SB_VALID);
    cr_expect(label.array.clean);
    rig_destroy(rig);
}

Test(array, a_long_resync_writes_down_what_it_has_done)
{
    struct rig *rig = rig_to_resync(3000000000);
    rig_wait(rig, 14000000000ull);
    struct array_info info = rig_info(rig);
    cr_assert_eq(info.jobs_count, 1);
    cr_expect_gt(info.jobs[0].seconds_left, 0);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 7, false), "%s", rig->message);
    uint64_t left = rig_info(rig).jobs[0].total_bytes;
    cr_expect_lt(left, 3ull * DATA, "%llu", (unsigned long long)left);
    rig_settle(rig);
    cr_assert(rig_fail(rig, 1), "%s", rig->message);
    cr_expect(rig_holds(rig, "v", 3));
    rig_destroy(rig);
}

/* Rows that a resync does in `ns`, with or without a client that keeps one request in flight. */
static uint64_t rows_beside_client(bool busy, uint64_t ns)
{
    struct rig *rig = rig_to_resync(1000000);
    struct blkdev *dev = array_volume(rig->array, "v");
    uint64_t start = rig->t->loop.now_ns, done = rig_info(rig).jobs[0].done_bytes;
    uint8_t bytes[4096];
    while (rig->t->loop.now_ns - start < ns)
        if (busy)
            cr_assert_eq(test_io(rig->t, dev, BLK_READ, 0, (rig->t->loop.now_ns / 100000 % 5000) * 4096, bytes, 4096),
                         BLK_OK);
        else
            rig_wait(rig, 100000);
    struct array_info info = rig_info(rig);
    done = (info.jobs_count > 0 ? info.jobs[0].done_bytes : 3ull * DATA) - done;
    rig_destroy(rig);
    return done / (3 * 65536);
}

Test(array, jobs_make_way_for_requests_but_never_stop)
{
    uint64_t idle = rows_beside_client(false, 15000000), busy = rows_beside_client(true, 15000000);
    cr_expect_gt(busy, 0);
    cr_expect_lt(busy * 5, idle, "%llu rows beside a client, %llu alone", (unsigned long long)busy,
                 (unsigned long long)idle);
}

Test(array, its_members_are_told_in_info)
{
    struct rig *rig = rig_create(3, DISK);
    cr_assert(rig_make_one(rig, RAID_5, MIB), "%s", rig->message);
    struct array_info info = rig_info(rig);
    cr_expect_str_eq(info.name, "r0");
    cr_expect_eq(info.members_count, 3);
    cr_expect_str_eq(info.members[2].identity, "disk2");
    cr_expect_str_eq(info.members[2].state, "online");
    cr_expect(info.members[2].present);
    rig_destroy(rig);
}

Test(array, opening_refuses_what_assembly_would_not_start)
{
    struct rig *rig = rig_create(3, DISK);
    cr_assert(rig_make_one(rig, RAID_5, MIB), "%s", rig->message);
    cr_assert(rig_close(rig));
    cr_expect_not(rig_assemble(rig, 1, false));
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_WAITING);
    cr_expect_eq(rig->error, -EAGAIN);
    cr_expect_null(rig->array);
    rig_destroy(rig);
}
