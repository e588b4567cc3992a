/*
 * Disasters with media, blocks and background work, each as it was reported of some system or other, and what must hold
 * instead. The numbers are those of the table in docs/testing.md.
 */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "tests/unit/raid/scenes.h"

enum { DISK = 40 * 1024 * 1024 };
#define MILLISECOND 1000000ull
#define SECOND      1000000000ull

/* --- blocks of 4096 --- */

/* 3: a disk of 4096-byte blocks was let into an array of 512; after the next start requests of 512 bytes failed. */
Test(disasters, a_disk_of_4096_byte_blocks_never_serves_a_volume_of_512)
{
    struct scene *scene = scene_written(4, RAID_6, MIB);
    struct rig *rig = scene->rig;
    uint8_t bytes[512], want[512];
    cr_assert(rig_fail(rig, 2), "%s", rig->message);
    rig_disk_replace(rig, 2, DISK, 4096);
    cr_expect_not(rig_online(rig, 2));
    cr_expect_not_null(strstr(rig->message, "has blocks of 4096 bytes and array r0 of 512"), "%s", rig->message);
    cr_assert(rig_close(rig), "%s", rig->message);

    /* A member that has such blocks all of a sudden, behind another adapter. */
    struct memdisk *before = rig->mem[1];
    uint8_t *image = malloc(DISK);
    memcpy(image, before->bytes, DISK);
    rig_disk_replace(rig, 1, DISK, 4096);
    memcpy(rig->mem[1]->bytes, image, DISK);
    free(image);
    cr_expect_not(scene_start(scene, 0xb));
    cr_expect_not_null(strstr(rig->message, "disk disk1 (slot 1 of array r0) has blocks of 4096 bytes now"), "%s",
                       rig->message);
    cr_assert(scene_start(scene, 0x9), "%s", rig->assembly.reason);
    cr_expect_eq(test_io(rig->t, array_volume(rig->array, "v"), BLK_READ, 0, 1536, bytes, 512), BLK_OK);
    uint8_t *whole = malloc(4096);
    test_fill(whole, 4096, 1);
    memcpy(want, whole + 1536, 512);
    free(whole);
    cr_expect_arr_eq(bytes, want, 512);
    scene_destroy(scene);
}

/* --- discard --- */

/* 38: TRIM on parity levels needs disks whose discarded blocks read as zeroes, and no disk can be believed about it. */
Test(disasters, disks_that_discard_into_garbage_harm_nothing)
{
    static const enum raid_level levels[] = {RAID_1, RAID_10, RAID_5, RAID_6};
    uint8_t *bytes = malloc(MIB), *want = malloc(MIB);
    for (unsigned i = 0; i < ARRAY_LENGTH(levels); i++)
        for (unsigned lie = 0; lie < 2; lie++) {
            const char *name = raid_level_name(levels[i]);
            struct scene *scene = scene_create(4, DISK);
            struct rig *rig = scene->rig;
            for (unsigned disk = 0; disk < 4; disk++) {
                rig->mem[disk]->discards_into_garbage = true;
                rig->dev[disk]->info.discard_zeroes = lie;
            }
            cr_assert(rig_make_one(rig, levels[i], MIB), "%s", rig->message);
            cr_assert_eq(rig_fill(rig, "v", 1, 256 * KIB), BLK_OK);
            rig_settle(rig);
            struct blkdev *dev = array_volume(rig->array, "v");
            uint64_t len = round_down(700 * KIB, dev->info.optimal_io);
            cr_assert_eq(test_io(rig->t, dev, BLK_DISCARD, 0, 0, NULL, len), BLK_OK);
            rig_settle(rig);
            cr_expect_eq(test_io(rig->t, dev, BLK_READ, 0, 0, bytes, MIB), BLK_OK);
            test_fill(want, MIB, 1);
            memset(want, 0, len);
            cr_expect_arr_eq(bytes, want, MIB, "%s: what was discarded reads as zeroes", name);
            cr_expect_eq(test_io(rig->t, dev, BLK_WRITE, 0, 8192, want + len, 4096), BLK_OK, "%s", name);
            memcpy(want + 8192, want + len, 4096);
            rig_settle(rig);
            cr_assert(rig_fail(rig, 1), "%s", rig->message);
            cr_expect_eq(test_io(rig->t, dev, BLK_READ, 0, 0, bytes, MIB), BLK_OK);
            cr_expect_arr_eq(bytes, want, MIB, "%s: the same without disk1", name);
            scene_destroy(scene);
        }
    free(bytes);
    free(want);
}

/* --- rebuilds --- */

/* 10: what was said to be in place was not flushed. A new disk that cannot flush is never called a good one. */
Test(disasters, a_rebuilt_disk_is_called_active_only_after_a_flush)
{
    struct scene *scene = scene_written(4, RAID_5, 4 * MIB);
    struct rig *rig = scene->rig;
    struct sb_label *label = calloc(1, sizeof *label);
    cr_assert(rig_fail(rig, 1), "%s", rig->message);
    rig_disk_replace(rig, 1, DISK, 512);
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    /* Its last burst of writes is the label that says so; before that it was silent for as long as a flush takes. */
    struct fault_rule slow_flush = {.ops = 1u << BLK_FLUSH, .delay_ns = 300 * MILLISECOND};
    fault_add(rig->dev[1], &slow_flush);
    uint64_t writes = 0, changed_ns = rig->t->loop.now_ns, silent_ns = 0;
    cr_assert_eq(rig_label(rig, 0, label), SB_VALID);
    for (unsigned ms = 0; ms < 20000 && label->array.members[1].state != SB_ACTIVE; ms++) {
        rig_wait(rig, MILLISECOND);
        uint64_t now_ns = rig->t->loop.now_ns;
        if (rig->mem[1]->writes != writes) {
            silent_ns = now_ns - changed_ns > 5 * MILLISECOND ? now_ns - changed_ns : silent_ns;
            changed_ns = now_ns;
        }
        writes = rig->mem[1]->writes;
        cr_assert_eq(rig_label(rig, 0, label), SB_VALID);
    }
    cr_expect_eq(label->array.members[1].state, SB_ACTIVE, "it is rebuilt in the end");
    cr_expect_geq(silent_ns, 300 * MILLISECOND);
    free(label);
    fault_clear(rig->dev[1], -1);
    scene_expect_whole(scene, 1, "rebuilt");
    scene_destroy(scene);
}

Test(disasters, a_disk_that_cannot_flush_what_was_rebuilt_is_never_called_active)
{
    struct scene *scene = scene_written(4, RAID_5, 4 * MIB);
    struct rig *rig = scene->rig;
    struct sb_label *label = calloc(1, sizeof *label);
    cr_assert(rig_fail(rig, 1), "%s", rig->message);
    rig_disk_replace(rig, 1, DISK, 512);
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    struct fault_rule no_flush = {.ops = 1u << BLK_FLUSH, .status = BLK_GONE};
    fault_add(rig->dev[1], &no_flush);
    for (unsigned ms = 0; ms < 3000; ms++) {
        rig_wait(rig, MILLISECOND);
        cr_assert_eq(rig_label(rig, 0, label), SB_VALID);
        cr_assert_neq(label->array.members[1].state, SB_ACTIVE, "after %u ms", ms);
    }
    cr_expect_str_eq(rig_info(rig).members[1].state, "failed");
    cr_expect(rig_holds(rig, "v", 1));
    free(label);
    scene_destroy(scene);
}

/* --- jobs --- */

/* 18: what waited for its turn was shown as "degraded: replace the disk". */
Test(disasters, work_that_waits_for_its_turn_is_not_called_degraded)
{
    struct scene *scene = scene_create(4, DISK);
    struct rig *rig = scene->rig;
    struct array_spec *spec = rig_spec(rig);
    rig_spec_add(spec, "v", RAID_5, 4 * MIB);
    rig_spec_add(spec, "w", RAID_6, 4 * MIB);
    cr_assert(rig_make(rig, spec), "%s", rig->message);
    cr_expect_str_eq(rig_info(rig).state, "optimal", "a new array has nothing to wait for");
    cr_expect_eq(rig_info(rig).jobs_count, 0);
    cr_assert(rig_fill(rig, "v", 1, MIB) == BLK_OK && rig_fill(rig, "w", 2, MIB) == BLK_OK);
    rig_kill(rig);
    for (unsigned disk = 0; disk < 4; disk++)
        rig->mem[disk]->latency_ns = 5 * MILLISECOND;
    cr_assert(scene_start(scene, 0xf), "%s", rig->assembly.reason);
    struct array_info info = rig_info(rig);
    cr_expect_str_eq(info.state, "optimal");
    cr_assert_eq(info.jobs_count, 2);
    for (unsigned i = 0; i < 2; i++)
        cr_expect_str_eq(info.jobs[i].kind, "resync");
    for (unsigned slot = 0; slot < 4; slot++)
        cr_expect_str_eq(info.members[slot].state, "online");
    rig_settle(rig);
    cr_expect(rig_holds(rig, "v", 1) && rig_holds(rig, "w", 2));
    scene_destroy(scene);
}

/* 35: a monitoring command disturbed the data path. Asking costs no request and no time. */
Test(disasters, looking_at_an_array_asks_no_disk)
{
    struct scene *scene = scene_written(4, RAID_6, 4 * MIB);
    struct rig *rig = scene->rig;
    uint64_t requests = 0, after = 0, now_ns = rig->t->loop.now_ns;
    for (unsigned disk = 0; disk < 4; disk++)
        requests += rig->mem[disk]->reads + rig->mem[disk]->writes + rig->mem[disk]->flushes;
    for (unsigned i = 0; i < 1000; i++) {
        (void)rig_info(rig);
        (void)array_usage(rig->array, 0);
        testloop_run_ready(rig->t);
    }
    for (unsigned disk = 0; disk < 4; disk++)
        after += rig->mem[disk]->reads + rig->mem[disk]->writes + rig->mem[disk]->flushes;
    cr_expect_eq(requests, after);
    cr_expect_eq(rig->t->loop.now_ns, now_ns);
    scene_destroy(scene);
}

/* 12: a check beside the requests of an iSCSI target crashed, and the machine could not be stopped. */
Test(disasters, scrubs_beside_requests_find_nothing_and_a_stop_in_the_middle_is_bounded)
{
    static const enum raid_level levels[] = {RAID_1, RAID_10, RAID_5, RAID_6};
    for (unsigned i = 0; i < ARRAY_LENGTH(levels); i++) {
        const char *name = raid_level_name(levels[i]);
        struct scene *scene = scene_written(4, levels[i], MIB);
        struct rig *rig = scene->rig;
        struct array_scrub_info info;
        uint64_t dice = 12 + i;
        uint8_t *want = malloc(MIB), *have = malloc(MIB);
        test_fill(want, MIB, 1);
        for (unsigned round = 0; round < 40; round++) {
            struct rig_write writes[6] = {0};
            (void)rig_scrub(rig, "v", round % 2 == 0 ? SB_SCRUB_CHECK : SB_SCRUB_REPAIR); /* or the last one goes on */
            for (unsigned j = 0; j < 6; j++) {
                uint64_t off = (j * 40 + test_random(&dice) % 32) * 4096, len = 4096 * (1 + test_random(&dice) % 8);
                rig_write_start(rig, &writes[j], "v", off, len, 100 + round * 8 + j);
                test_fill(want + off, len, 100 + round * 8 + j);
                rig_wait(rig, test_random(&dice) % (MILLISECOND / 4));
            }
            for (unsigned j = 0; j < 6; j++)
                cr_assert(testloop_run_until(rig->t, &writes[j].over) && writes[j].req.status == BLK_OK, "%s", name);
            array_scrub_info(rig->array, 0, &info);
            cr_expect_eq(info.findings_count, 0, "%s round %u", name, round);
            if (round % 5 != 4)
                continue;
            uint64_t start_ns = rig->t->loop.now_ns;
            cr_assert(rig_close(rig), "%s: %s", name, rig->message);
            cr_expect_lt(rig->t->loop.now_ns - start_ns, SECOND, "%s: the stop", name);
            cr_assert(scene_start(scene, 0xf), "%s: %s", name, rig->assembly.reason);
        }
        rig_settle(rig);
        cr_expect_eq(test_io(rig->t, array_volume(rig->array, "v"), BLK_READ, 0, 0, have, MIB), BLK_OK);
        cr_expect_arr_eq(want, have, MIB, "%s", name);
        array_scrub_info(rig->array, 0, &info);
        cr_expect_eq(info.findings_count, 0, "%s", name);
        free(want);
        free(have);
        scene_destroy(scene);
    }
}
