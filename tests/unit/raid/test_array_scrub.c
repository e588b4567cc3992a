/* Scrubs of arrays: by hand, by the calendar, through restarts and losses, and what is remembered of them. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "tests/unit/raid/arrays.h"

enum { DISK = 40 * 1024 * 1024, CHUNK = 65536 };
#define SECOND 1000000000ull
#define DAY    (86400 * SECOND)

static struct rig *rig_full(unsigned disks, enum raid_level level)
{
    struct rig *rig = rig_create(disks, DISK);
    cr_assert(rig_make_one(rig, level, 4 * MIB), "%s", rig->message);
    cr_assert_eq(rig_fill(rig, "v", 1, 256 * KIB), BLK_OK);
    return rig;
}

/* Where row `row` begins on every disk. */
static uint64_t row_off(const struct rig *rig, uint64_t row)
{
    const struct sb_array *a = array_description(rig->array);
    return a->data_start + a->volumes[0].start + row * CHUNK;
}

static void spoil(struct rig *rig, unsigned slot, uint64_t row, uint64_t column, uint64_t len)
{
    uint8_t *bytes = rig->mem[slot]->bytes + row_off(rig, row) + column;
    for (uint64_t i = 0; i < len; i++)
        bytes[i] ^= 0xa5;
}

static struct array_scrub_info info(const struct rig *rig)
{
    struct array_scrub_info out;
    array_scrub_info(rig->array, 0, &out);
    return out;
}

Test(array_scrub, a_check_names_disk_and_place_and_a_repair_puts_it_right)
{
    struct rig *rig = rig_full(5, RAID_6);
    spoil(rig, 3, 7, 8192, 4096);
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_CHECK), "%s", rig->message);
    cr_expect_str_eq(rig_info(rig).jobs[0].kind, "scrub");
    rig_settle(rig);
    struct array_scrub_info i = info(rig);
    cr_expect_eq(i.scrub.mode, SB_SCRUB_NONE);
    cr_expect_eq(i.scrub.last_mode, SB_SCRUB_CHECK);
    cr_expect_eq(i.scrub.last.mismatched, 8);
    cr_expect_eq(i.scrub.last.repaired, 0);
    cr_expect_eq(i.rows, 22, "the rows that were written: %u", (unsigned)i.rows);
    cr_assert_eq(i.findings_count, 1);
    cr_expect_eq(i.findings[0].found, ROW_FOUND_CHUNK);
    cr_expect_eq(i.findings[0].slot, 3);
    cr_expect_eq(i.findings[0].device_off, row_off(rig, 7) + 8192);
    cr_expect_eq(i.findings[0].device_len, 4096);
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_REPAIR), "%s", rig->message);
    rig_settle(rig);
    i = info(rig);
    cr_expect_eq(i.scrub.last.repaired, 8);
    cr_expect_eq(i.findings[0].remedy, ROW_CHUNK_REWRITTEN);
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_CHECK), "%s", rig->message);
    rig_settle(rig);
    cr_expect_eq(info(rig).scrub.last.mismatched, 0);
    cr_expect(rig_holds(rig, "v", 1));
    rig_destroy(rig);
}

Test(array_scrub, what_one_parity_cannot_tell_is_said_so)
{
    struct rig *rig = rig_full(4, RAID_5);
    spoil(rig, 0, 3, 0, 512);
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_CHECK), "%s", rig->message);
    rig_settle(rig);
    cr_assert_eq(info(rig).findings_count, 1);
    cr_expect_eq(info(rig).findings[0].found, ROW_FOUND_UNKNOWN);
    cr_expect_eq(info(rig).findings[0].off, 3 * 3 * CHUNK);
    cr_expect_eq(info(rig).findings[0].len, 3 * CHUNK);
    rig_destroy(rig);
}

Test(array_scrub, the_result_is_remembered_and_what_was_under_way_goes_on)
{
    struct rig *rig = rig_full(5, RAID_6);
    spoil(rig, 1, 0, 0, 512);
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_CHECK), "%s", rig->message);
    rig_settle(rig);
    uint64_t finished = info(rig).scrub.finished_s;
    cr_expect_gt(finished, 0);
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_REPAIR), "%s", rig->message);
    while (info(rig).rows < 5)
        rig_wait(rig, 100000);
    uint64_t rows = info(rig).rows;
    cr_assert_lt(rows, 22);
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(rig_assemble(rig, 0x1f, false), "%s", rig->message);
    cr_expect(rig->assembly.array.clean);
    const struct sb_scrub *found = &rig->assembly.array.volumes[0].scrub;
    cr_expect_eq(found->mode, SB_SCRUB_REPAIR);
    cr_expect_geq(found->row, 5);
    cr_expect_eq(found->finished_s, finished);
    cr_expect_eq(found->last.mismatched, 1);
    rig_settle(rig);
    cr_expect_leq(info(rig).rows + 5, 22, "it did not begin again");
    cr_expect_eq(info(rig).scrub.last_mode, SB_SCRUB_REPAIR);
    cr_expect_eq(info(rig).scrub.last.repaired, 1, "before the restart");
    rig_destroy(rig);
}

Test(array_scrub, after_a_kill_it_goes_on_too)
{
    struct rig *rig = rig_full(5, RAID_6);
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_CHECK), "%s", rig->message);
    rig_wait(rig, SECOND / 1000);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 0x1f, false), "%s", rig->message);
    rig_settle(rig);
    cr_expect_eq(info(rig).scrub.last_mode, SB_SCRUB_CHECK);
    rig_destroy(rig);
}

Test(array_scrub, patrols_come_by_the_calendar)
{
    struct rig *rig = rig_full(5, RAID_6);
    array_scrub_interval(rig->array, 0, 7 * 86400);
    rig_wait(rig, 6 * DAY);
    cr_expect_eq(info(rig).scrub.finished_s, 0);
    spoil(rig, 2, 1, 512, 512);
    rig_wait(rig, 2 * DAY);
    cr_expect_gt(info(rig).scrub.finished_s, 0);
    cr_expect_eq(info(rig).scrub.last_mode, SB_SCRUB_PATROL);
    cr_expect_eq(info(rig).scrub.last.mismatched, 1);
    cr_expect_eq(info(rig).scrub.last.repaired, 0, "a patrol changes nothing");
    uint64_t first = info(rig).scrub.finished_s;
    rig_wait(rig, 7 * DAY);
    cr_expect_geq(info(rig).scrub.finished_s, first + 7 * 86400);
    array_scrub_interval(rig->array, 0, 0);
    uint64_t second = info(rig).scrub.finished_s;
    rig_wait(rig, 30 * DAY);
    cr_expect_eq(info(rig).scrub.finished_s, second);
    rig_destroy(rig);
}

Test(array_scrub, a_patrol_that_was_called_off_waits_for_its_next_date)
{
    struct rig *rig = rig_full(5, RAID_6);
    array_scrub_interval(rig->array, 0, 7 * 86400);
    rig_wait(rig, 7 * DAY - SECOND);
    for (unsigned i = 0; i < 5; i++)
        rig->mem[i]->latency_ns = SECOND / 2;
    for (unsigned i = 0; i < 20000 && info(rig).scrub.mode != SB_SCRUB_PATROL; i++)
        rig_wait(rig, SECOND / 10);
    cr_assert_eq(info(rig).scrub.mode, SB_SCRUB_PATROL);
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_NONE), "%s", rig->message);
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(rig_assemble(rig, 0x1f, false), "%s", rig->message);
    array_scrub_interval(rig->array, 0, 7 * 86400);
    rig_wait(rig, 6 * DAY);
    cr_expect_eq(info(rig).scrub.finished_s, 0, "it began again");
    cr_expect_eq(info(rig).scrub.mode, SB_SCRUB_NONE);
    rig_wait(rig, 2 * DAY);
    cr_expect_eq(info(rig).scrub.last_mode, SB_SCRUB_PATROL);
    cr_expect_gt(info(rig).scrub.finished_s, 0);
    rig_destroy(rig);
}

Test(array_scrub, its_progress_goes_on_where_it_was)
{
    struct rig *rig = rig_create(5, DISK);
    cr_assert(rig_make_one(rig, RAID_6, 0), "%s", rig->message);
    cr_assert_eq(rig_fill(rig, "v", 1, MIB), BLK_OK);
    for (unsigned i = 0; i < 5; i++)
        rig->mem[i]->latency_ns = SECOND / 10;
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_CHECK), "%s", rig->message);
    uint64_t all = rig_info(rig).jobs[0].total_bytes;
    while (info(rig).rows < 5)
        rig_wait(rig, SECOND / 100);
    cr_assert(rig_pause(rig, 0, true), "%s", rig->message);
    rig_wait(rig, SECOND);
    uint64_t row = 5ull * CHUNK, done = info(rig).rows * row;
    cr_assert_lt(done, all);
    cr_expect_eq(rig_info(rig).jobs[0].done_bytes, done, "paused");
    cr_expect_eq(rig_info(rig).jobs[0].total_bytes, all);
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(rig_assemble(rig, 0x1f, false), "%s", rig->message);
    cr_expect_eq(rig_info(rig).jobs[0].done_bytes, done, "after a restart");
    cr_assert(rig_pause(rig, 0, false), "%s", rig->message);
    while (rig_info(rig).jobs[0].waits_for[0] != '\0')
        rig_wait(rig, SECOND / 100);
    cr_expect_geq(rig_info(rig).jobs[0].done_bytes, done, "it runs");
    cr_expect_eq(rig_info(rig).jobs[0].total_bytes, all);
    rig_settle(rig);
    rig_destroy(rig);
}

Test(array_scrub, it_can_be_called_off_and_not_be_begun_twice)
{
    struct rig *rig = rig_full(5, RAID_6);
    cr_expect_not(rig_scrub(rig, "v", SB_SCRUB_NONE));
    cr_expect(strstr(rig->message, "not being scrubbed") != NULL, "%s", rig->message);
    cr_expect_not(rig_scrub(rig, "w", SB_SCRUB_CHECK));
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_CHECK), "%s", rig->message);
    cr_expect_not(rig_scrub(rig, "v", SB_SCRUB_REPAIR));
    cr_expect(strstr(rig->message, "already") != NULL, "%s", rig->message);
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_NONE), "%s", rig->message);
    rig_settle(rig);
    cr_expect_eq(info(rig).scrub.finished_s, 0);
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_REPAIR), "%s", rig->message);
    rig_settle(rig);
    cr_expect_eq(info(rig).scrub.last_mode, SB_SCRUB_REPAIR);
    cr_expect_eq(info(rig).rows, 22, "all of them");
    rig_destroy(rig);
}

Test(array_scrub, volumes_without_redundancy_have_nothing_to_scrub)
{
    struct rig *rig = rig_create(2, DISK);
    cr_assert(rig_make_one(rig, RAID_0, 0), "%s", rig->message);
    cr_expect_not(rig_scrub(rig, "v", SB_SCRUB_CHECK));
    cr_expect(strstr(rig->message, "no redundancy") != NULL, "%s", rig->message);
    rig_destroy(rig);
}

Test(array_scrub, a_rebuild_goes_first_and_the_scrub_after_it_sees_all_disks)
{
    struct rig *rig = rig_full(5, RAID_6);
    cr_assert(rig_fail(rig, 2), "%s", rig->message);
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_CHECK), "%s", rig->message);
    rig_disk_replace(rig, 2, DISK, 512);
    cr_assert(rig_online(rig, 2), "%s", rig->message);
    rig_settle(rig);
    cr_expect_eq(info(rig).scrub.last.mismatched, 0);
    cr_expect_eq(info(rig).scrub.last_mode, SB_SCRUB_CHECK);
    cr_expect(rig_holds(rig, "v", 1));
    rig_destroy(rig);
}

Test(array_scrub, a_disk_that_fails_meanwhile_does_not_end_it)
{
    struct rig *rig = rig_full(5, RAID_6);
    spoil(rig, 3, 20, 0, 512); /* behind what is read when the disk fails */
    cr_assert(rig_rate(rig, 0, 20, 0, 8 * MIB), "%s", rig->message);
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_REPAIR), "%s", rig->message);
    while (info(rig).rows < 5)
        rig_wait(rig, 100000);
    fault_kill(rig->dev[0]);
    rig_settle(rig);
    cr_expect_eq(info(rig).scrub.last_mode, SB_SCRUB_REPAIR);
    cr_expect_eq(info(rig).scrub.last.mismatched, 1);
    cr_expect_eq(info(rig).scrub.last.repaired + info(rig).scrub.last.rewritten, 0, "one syndrome locates nothing");
    rig_destroy(rig);
}

Test(array_scrub, a_check_by_hand_takes_the_place_of_a_patrol_and_counts_its_own_rows_only)
{
    struct rig *rig = rig_full(5, RAID_6);
    array_scrub_interval(rig->array, 0, 86400);
    spoil(rig, 2, 1, 512, 512);
    rig_wait(rig, DAY - SECOND);
    for (unsigned i = 0; i < 5; i++)
        rig->mem[i]->latency_ns = SECOND / 2;
    for (unsigned i = 0; i < 40 && info(rig).scrub.mode != SB_SCRUB_PATROL; i++)
        rig_wait(rig, SECOND / 10);
    cr_assert_eq(info(rig).scrub.mode, SB_SCRUB_PATROL);
    cr_assert(rig_scrub(rig, "v", SB_SCRUB_CHECK), "%s", rig->message);
    array_scrub_interval(rig->array, 0, 0);
    rig_wait(rig, 10 * SECOND);
    cr_expect_eq(info(rig).scrub.last_mode, SB_SCRUB_CHECK);
    cr_expect_eq(info(rig).scrub.last.mismatched, 1, "%u", (unsigned)info(rig).scrub.last.mismatched);
    cr_expect_eq(info(rig).rows, 22, "%u", (unsigned)info(rig).rows);
    cr_expect_eq(info(rig).findings_count, 1);
    rig_destroy(rig);
}
