/* Members that were away and come back: they get what they missed, and in doubt everything. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "raid/region_map.h"
#include "tests/unit/raid/arrays.h"

enum { DISK = 40 * 1024 * 1024, CHUNK = 65536 };
#define MILLISECOND 1000000ull
#define SECOND      1000000000ull

static uint64_t row_of(struct rig *rig)
{
    return rig_volume(rig)->info.optimal_io;
}

/* All rows written and clean. */
static struct rig *rig_full(unsigned disks, enum raid_level level)
{
    struct rig *rig = rig_create(disks, DISK);
    cr_assert(rig_make_one(rig, level, 8 * MIB), "%s", rig->message);
    cr_assert_eq(rig_fill(rig, "v", 1, MIB), BLK_OK);
    rig_wait(rig, 3 * SECOND);
    cr_assert_eq(array_usage(rig->array, 0).dirty_bytes, 0);
    return rig;
}

static uint64_t dirty_rows(struct rig *rig)
{
    return array_usage(rig->array, 0).dirty_bytes / row_of(rig);
}

static uint64_t written_rows(struct rig *rig)
{
    return (array_usage(rig->array, 0).written_bytes + row_of(rig) - 1) / row_of(rig);
}

/* Rows of the rebuild that is under way, or waits; 0: none is. */
static uint64_t rebuild_rows(struct rig *rig, unsigned roles)
{
    struct array_info info = rig_info(rig);
    return info.jobs_count > 0 && strcmp(info.jobs[0].kind, "rebuild") == 0
               ? info.jobs[0].total_bytes / ((uint64_t)roles * CHUNK)
               : 0;
}

static uint64_t moved(const struct rig *rig, unsigned disk)
{
    const struct blk_counters *c = &rig->mem[disk]->dev.counters;
    return c->bytes[BLK_WRITE] + c->bytes[BLK_WRITE_ZEROES];
}

Test(array_catchup, a_disk_that_comes_back_gets_what_it_missed_and_no_more)
{
    static const struct {
        enum raid_level level;
        unsigned disks, roles, mate; /* mate: the array cannot do without either, if it had not been caught up */
    } cases[] = {{RAID_1, 2, 2, 1}, {RAID_10, 4, 2, 1}, {RAID_5, 4, 4, 1},
                 {RAID_6, 5, 5, 1}, {RAID_TP, 6, 6, 1}, {RAID_60, 8, 4, 1}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct rig *rig = rig_full(cases[i].disks, cases[i].level);
        const char *name = raid_level_name(cases[i].level);
        uint64_t row = row_of(rig), before, all = written_rows(rig);
        cr_assert(rig_fail(rig, 0), "%s", rig->message);
        rig_put(rig, 2 * row + 512, 4096, 7);
        rig_put(rig, 5 * row, row, 8);
        cr_assert_eq(test_io(rig->t, rig_volume(rig), BLK_DISCARD, 0, 7 * row, NULL, 2 * row), BLK_OK);
        rig_put(rig, 8 * row, 512, 9); /* unwritten meanwhile */
        rig_wait(rig, 30 * SECOND);
        cr_expect_eq(dirty_rows(rig), 3, "%s: %llu", name, (unsigned long long)dirty_rows(rig));
        cr_expect(rig_info(rig).clean, "%s: dirty rows do not keep it from that", name);
        before = moved(rig, 0);
        cr_assert(rig_online(rig, 0), "%s", rig->message);
        cr_expect_eq(rebuild_rows(rig, cases[i].roles), 3, "%s: %llu of %llu", name,
                     (unsigned long long)rebuild_rows(rig, cases[i].roles), (unsigned long long)all);
        rig_settle(rig);
        cr_expect_str_eq(rig_info(rig).state, "optimal", "%s", name);
        cr_expect_lt(moved(rig, 0) - before, 4 * CHUNK + 256 * KIB, "%s: %llu bytes", name,
                     (unsigned long long)(moved(rig, 0) - before));
        rig_wait(rig, 12 * SECOND);
        cr_expect_eq(dirty_rows(rig), 0, "%s: whole again, so there is a sweep", name);
        cr_assert(rig_fail(rig, cases[i].mate), "%s", rig->message);
        cr_expect(rig_has(rig, 2 * row + 512, 4096, 7) && rig_has(rig, 5 * row, row, 8), "%s", name);
        cr_expect(rig_has(rig, 7 * row, row, 0) && rig_has(rig, 8 * row, 512, 9) &&
                      rig_has(rig, 8 * row + 512, row - 512, 0),
                  "%s", name);
        rig_destroy(rig);
    }
}

Test(array_catchup, rows_that_a_member_lacks_outlast_clean_stops_and_need_no_resync)
{
    struct rig *rig = rig_full(4, RAID_5);
    uint64_t row = row_of(rig);
    cr_assert(rig_fail(rig, 1), "%s", rig->message);
    rig_put(rig, row, 4096, 5);
    cr_assert(rig_close(rig), "%s", rig->message);
    for (unsigned life = 0; life < 2; life++) {
        cr_assert(rig_assemble(rig, 0xd, false), "clean and degraded: %s", rig->assembly.reason);
        cr_expect(rig->assembly.array.clean);
        cr_expect_eq(rig_info(rig).jobs_count, 0, "nothing is suspect");
        cr_expect_eq(dirty_rows(rig), 1 + life);
        rig_put(rig, (2 + life) * row, 4096, 6);
        cr_assert(rig_close(rig), "%s", rig->message);
    }
    cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->assembly.reason);
    cr_expect_eq(rig->assembly.returned_of_slot[1], -1, "it was taken out by hand: it waits for one");
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    cr_expect_eq(rebuild_rows(rig, 4), 3);
    rig_settle(rig);
    cr_assert(rig_fail(rig, 0), "%s", rig->message);
    cr_expect(rig_has(rig, row, 4096, 5) && rig_has(rig, 2 * row, 4096, 6) && rig_has(rig, 3 * row, 4096, 6));
    rig_destroy(rig);
}

Test(array_catchup, after_a_kill_dirty_rows_are_suspect_and_still_all_that_is_missing)
{
    struct rig *rig = rig_full(3, RAID_1);
    uint64_t row = row_of(rig);
    cr_assert(rig_fail(rig, 1), "%s", rig->message);
    rig_put(rig, row, 4096, 5);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 0x5, false), "%s", rig->assembly.reason);
    rig_put(rig, 2 * row, 4096, 6);
    rig_settle(rig);
    cr_expect_eq(dirty_rows(rig), 2, "resynchronised, and not forgotten");
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    cr_expect_eq(rebuild_rows(rig, 3), 2);
    rig_settle(rig);
    cr_assert(rig_fail(rig, 0) && rig_fail(rig, 2), "%s", rig->message);
    cr_expect(rig_has(rig, row, 4096, 5) && rig_has(rig, 2 * row, 4096, 6));
    rig_destroy(rig);
}

Test(array_catchup, a_disk_that_was_not_there_may_return_by_itself)
{
    struct rig *rig = rig_full(4, RAID_5);
    uint64_t row = row_of(rig);
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(rig_assemble(rig, 0xb, false), "%s", rig->assembly.reason);
    cr_expect_eq(rig->assembly.returned_of_slot[2], -1);
    rig_put(rig, row, 4096, 5);
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->assembly.reason);
    cr_expect_eq(rig->assembly.returned_of_slot[2], 2);
    cr_expect_eq(rig->assembly.disk_of_slot[2], -1);
    cr_expect(strstr(rig->assembly.reason, "is back and is to be caught up") != NULL, "%s", rig->assembly.reason);
    cr_assert(rig_online(rig, 2), "%s", rig->message);
    rig_settle(rig);
    fault_kill(rig->dev[3]);
    rig_put(rig, 2 * row, 2 * row, 6);
    rig_wait(rig, SECOND);
    cr_assert(rig_close(rig), "%s", rig->message);
    fault_revive(rig->dev[3]);
    cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->assembly.reason);
    cr_expect_eq(rig->assembly.returned_of_slot[3], 3, "it was pulled");
    cr_assert(rig_online(rig, 3), "%s", rig->message);
    cr_expect_eq(rebuild_rows(rig, 4), 2);
    rig_settle(rig);
    cr_assert(rig_fail(rig, 1), "%s", rig->message);
    cr_expect(rig_has(rig, row, 4096, 5) && rig_has(rig, 2 * row, 2 * row, 6));
    rig_destroy(rig);
}

Test(array_catchup, one_that_leaves_again_in_its_catch_up_is_caught_up_later)
{
    struct rig *rig = rig_full(4, RAID_5);
    uint64_t row = row_of(rig);
    cr_assert(rig_fail(rig, 1), "%s", rig->message);
    rig_put(rig, 0, 8 * row, 5);
    for (unsigned i = 0; i < 4; i++)
        rig->mem[i]->latency_ns = 25 * MILLISECOND;
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    rig_wait(rig, 40 * MILLISECOND);
    cr_assert(rig_fail(rig, 1), "%s", rig->message);
    rig_put(rig, 20 * row, 4096, 6);
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    cr_expect_eq(rebuild_rows(rig, 4), 9);
    rig_wait(rig, 40 * MILLISECOND);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 0xf, true), "%s", rig->assembly.reason);
    cr_expect_str_eq(rig_info(rig).members[1].state, "rebuilding");
    cr_expect_eq(rebuild_rows(rig, 4), 9, "also by the next process");
    rig_settle(rig);
    cr_expect_str_eq(rig_info(rig).state, "optimal");
    cr_assert(rig_fail(rig, 3), "%s", rig->message);
    cr_expect(rig_has(rig, 0, 8 * row, 5) && rig_has(rig, 20 * row, 4096, 6));
    rig_destroy(rig);
}

Test(array_catchup, two_that_left_at_different_times_are_served_by_one_map)
{
    struct rig *rig = rig_full(5, RAID_6);
    uint64_t row = row_of(rig);
    cr_assert(rig_fail(rig, 1), "%s", rig->message);
    rig_put(rig, row, row, 5);
    cr_assert(rig_fail(rig, 3), "%s", rig->message);
    rig_put(rig, 2 * row, row, 6);
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    rig_settle(rig);
    rig_wait(rig, 20 * SECOND);
    cr_expect_eq(dirty_rows(rig), 2, "one is away still");
    cr_assert(rig_online(rig, 3), "%s", rig->message);
    cr_expect_eq(rebuild_rows(rig, 5), 2);
    rig_settle(rig);
    cr_expect_str_eq(rig_info(rig).state, "optimal");
    cr_assert(rig_fail(rig, 0) && rig_fail(rig, 4), "%s", rig->message);
    cr_expect(rig_has(rig, row, row, 5) && rig_has(rig, 2 * row, row, 6));
    rig_destroy(rig);
}

/* --- in doubt --- */

enum doubt { NO_DOUBT, BLANK, OTHER_IDENTITY, OLDER, CUT, APART, NOT_KNOWN };

/* The disk of slot 1 of a mirror comes back, and something about it is not as it should be. */
static struct array_disk make_doubtful(struct rig *rig, enum doubt doubt, const uint8_t *snapshot)
{
    struct array_disk disk = rig_disk(rig, 1);
    if (doubt == BLANK)
        memset(rig->mem[1]->bytes, 0, DISK);
    if (doubt == OLDER)
        memcpy(rig->mem[1]->bytes, snapshot, DISK);
    if (doubt == CUT)
        memset(rig->mem[1]->bytes + 2 * MIB, 0, DISK - 2 * MIB);
    if (doubt == OTHER_IDENTITY)
        disk.identity[0] = 'D';
    return disk;
}

struct waited_call {
    struct array_call call;
    bool over;
};

static void waited_done(struct array_call *call)
{
    container_of(call, struct waited_call, call)->over = true;
}

static void online_as(struct rig *rig, const struct array_disk *disk)
{
    struct waited_call call = {.call.done = waited_done};
    array_online_member(rig->array, 1, disk, &call.call);
    cr_assert(testloop_run_until(rig->t, &call.over));
    cr_assert_eq(call.call.error, 0, "%s", call.call.message);
}

Test(array_catchup, in_doubt_all_of_it_is_rebuilt)
{
    static const struct {
        enum doubt doubt;
        bool caught_up;
        const char *name;
    } cases[] = {{NO_DOUBT, true, "as it left"},
                 {BLANK, false, "a blank disk"},
                 {OTHER_IDENTITY, false, "a copy of it"},
                 {OLDER, false, "put back to an older state"},
                 {CUT, false, "cut short, and made longer again"},
                 {APART, false, "ran on alone"},
                 {NOT_KNOWN, false, "it was not rebuilt to the end when it left"}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct rig *rig = rig_full(2, RAID_1);
        uint64_t row = row_of(rig), all = written_rows(rig);
        uint8_t *snapshot = malloc(DISK);
        memcpy(snapshot, rig->mem[1]->bytes, DISK);
        rig_put(rig, 0, 4096, 3);
        rig_wait(rig, 12 * SECOND);
        if (cases[i].doubt == NOT_KNOWN) {
            cr_assert(rig_fail(rig, 1));
            rig_disk_replace(rig, 1, DISK, 512);
            rig->mem[1]->latency_ns = 20 * MILLISECOND;
            cr_assert(rig_online(rig, 1), "%s", rig->message);
        }
        cr_assert(rig_close(rig), "%s", rig->message);
        if (cases[i].doubt == APART) {
            cr_assert(rig_assemble(rig, 2, false), "%s", rig->assembly.reason);
            rig_put(rig, 9 * row, 4096, 99);
            cr_assert(rig_close(rig), "%s", rig->message);
        }
        cr_assert(rig_assemble(rig, 1, false), "%s", rig->assembly.reason);
        rig_put(rig, row, 4096, 5);
        struct array_disk disk = make_doubtful(rig, cases[i].doubt, snapshot);
        rig->mem[1]->latency_ns = 100000;
        online_as(rig, &disk);
        cr_expect_eq(rebuild_rows(rig, 2), cases[i].caught_up ? 1 : all, "%s: %llu of %llu", cases[i].name,
                     (unsigned long long)rebuild_rows(rig, 2), (unsigned long long)all);
        rig_settle(rig);
        cr_expect_str_eq(rig_info(rig).state, "optimal", "%s", cases[i].name);
        cr_assert(rig_fail(rig, 0), "%s", rig->message);
        cr_expect(rig_has(rig, 0, 4096, 3) && rig_has(rig, row, 4096, 5), "%s", cases[i].name);
        cr_expect_not(rig_has(rig, 9 * row, 4096, 99), "%s", cases[i].name);
        rig_destroy(rig);
        free(snapshot);
    }
}

Test(array_catchup, the_loser_of_a_split_brain_is_rebuilt)
{
    struct rig *rig = rig_full(2, RAID_1);
    uint64_t row = row_of(rig), all = written_rows(rig);
    cr_assert(rig_close(rig), "%s", rig->message);
    for (unsigned half = 0; half < 2; half++) {
        cr_assert(rig_assemble(rig, 1u << half, false), "%s", rig->assembly.reason);
        rig_put(rig, (3 + half) * row, 4096, 50 + half);
        rig_put(rig, 10 * row, 4096, 60 + half);
        cr_assert(rig_close(rig), "%s", rig->message);
    }
    cr_assert_not(rig_assemble(rig, 3, false));
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_SPLIT);
    cr_assert(rig_assemble(rig, 3, true), "%s", rig->assembly.reason);
    unsigned loser = rig->assembly.disk_of_slot[0] < 0 ? 0 : 1;
    cr_expect_eq(rig->assembly.returned_of_slot[loser], -1);
    cr_assert(rig_online(rig, loser), "%s", rig->message);
    cr_expect_eq(rebuild_rows(rig, 2), all);
    rig_settle(rig);
    cr_assert(rig_fail(rig, !loser), "%s", rig->message);
    cr_expect(rig_has(rig, (3 + !loser) * row, 4096, 50 + !loser) && rig_has(rig, 10 * row, 4096, 60 + !loser));
    cr_expect_not(rig_has(rig, (3 + loser) * row, 4096, 50 + loser));
    rig_destroy(rig);
}

/* --- the superset --- */

Test(array_catchup, what_a_lost_disk_had_in_its_cache_only_stays_dirty)
{
    struct rig *rig = rig_full(3, RAID_5);
    uint64_t row = row_of(rig);
    rig_put(rig, row, 4096, 5);
    rig_put(rig, 2 * row, 4096, 6);
    struct fault_rule flush = {.ops = 1u << BLK_FLUSH, .status = BLK_GONE};
    (void)fault_add(rig->dev[1], &flush);
    rig_wait(rig, 12 * SECOND);
    cr_expect_str_eq(rig_info(rig).members[1].state, "failed", "the sweep's flush lost it");
    cr_expect_eq(dirty_rows(rig), 2);
    fault_clear(rig->dev[1], -1);
    memset(rig->mem[1]->bytes + 11 * MIB, 0x55, MIB); /* as if the cache had been lost: some of its rows */
    rig_destroy(rig);
}

/* A disk that has not heard of a loss could go on alone, from a map that calls the row clean. */
Test(array_catchup, a_clean_row_is_not_written_before_a_loss_is_on_disk)
{
    struct rig *rig = rig_full(2, RAID_1);
    struct sb_label label;
    struct rig_write write;
    uint8_t old[4096], want[4096];
    const uint8_t *at = NULL;
    test_fill(want, sizeof want, 77);
    cr_assert_eq(test_io(rig->t, rig_volume(rig), BLK_READ, 0, 0, old, sizeof old), BLK_OK);
    for (uint64_t off = 0; at == NULL && off + 4096 <= DISK; off += 4096)
        if (memcmp(rig->mem[0]->bytes + off, old, sizeof old) == 0)
            at = rig->mem[0]->bytes + off;
    cr_assert_not_null(at);
    fault_kill(rig->dev[1]);
    rig_write_start(rig, &write, "v", 0, sizeof want, 77);
    for (unsigned i = 0; i < 4000 && !write.over; i++) {
        cr_assert_eq(rig_label(rig, 0, &label), SB_VALID);
        bool recorded = label.array.members[1].state == SB_FAILED;
        cr_assert(recorded || memcmp(at, want, sizeof want) != 0, "after %u steps", i);
        rig_wait(rig, MILLISECOND / 2);
    }
    cr_expect(write.over);
    cr_expect_eq(write.req.status, BLK_OK);
    cr_expect_eq(memcmp(at, want, sizeof want), 0);
    rig_destroy(rig);
}

/* --- what is loaded --- */

static void label_over(struct label_op *op)
{
    (void)op;
}

/* While it is down: another consistency policy. */
static void change_policy(struct rig *rig, enum sb_consistency policy)
{
    for (unsigned i = 0; i < rig->count; i++) {
        struct sb_label label;
        cr_assert_eq(rig_label(rig, i, &label), SB_VALID);
        label.array.volumes[0].consistency = policy;
        label.array.generation += 1;
        struct label_op op = {.dev = rig->dev[i], .label = &label, .done = label_over};
        label_write(&op);
        testloop_run(rig->t);
        cr_assert_eq(op.status, BLK_OK);
    }
}

Test(array_catchup, what_is_suspect_after_a_kill_is_a_matter_of_policy)
{
    static const struct {
        enum sb_consistency policy;
        bool clean;
        uint64_t suspect; /* rows; UINT64_MAX: all that were written */
    } cases[] = {{SB_RESYNC, false, UINT64_MAX}, {SB_BITMAP, false, 1}, {SB_RESYNC, true, 0}, {SB_BITMAP, true, 0}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct rig *rig = rig_full(4, RAID_5);
        uint64_t all = written_rows(rig);
        rig_put(rig, 0, 4096, 3);
        if (cases[i].clean)
            cr_assert(rig_close(rig), "%s", rig->message);
        else
            rig_kill(rig);
        change_policy(rig, cases[i].policy);
        cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->assembly.reason);
        struct array_info info = rig_info(rig);
        uint64_t rows = info.jobs_count == 0 ? 0 : info.jobs[0].total_bytes / (4ull * CHUNK);
        cr_expect_eq(rows, MIN(cases[i].suspect, all), "case %u: %llu rows", i, (unsigned long long)rows);
        rig_settle(rig);
        rig_wait(rig, 3 * SECOND);
        cr_expect(rig_info(rig).clean, "case %u", i);
        rig_destroy(rig);
    }
}

/* Of an array with this policy: all rows written and clean, then one is written. */
static struct rig *rig_of_policy(enum sb_consistency policy)
{
    struct rig *rig = rig_create(4, DISK);
    struct array_spec *spec = rig_spec(rig);
    rig_spec_add(spec, "v", RAID_5, 8 * MIB);
    spec->volumes[0].consistency_given = true;
    spec->volumes[0].consistency = policy;
    cr_assert(rig_make(rig, spec), "%s", rig->message);
    cr_assert_eq(rig_fill(rig, "v", 1, MIB), BLK_OK);
    rig_wait(rig, 3 * SECOND);
    rig_put(rig, 0, 4096, 3);
    return rig;
}

/* A journal may be replayed at such a start, and the map does not say into which rows. */
Test(array_catchup, one_that_fails_while_an_array_is_started_is_caught_up_unless_a_journal_is_replayed)
{
    static const struct {
        enum sb_consistency policy;
        bool clean, known;
    } cases[] = {{SB_PPL, false, false}, {SB_PPL, true, true}, {SB_BITMAP, false, true}, {SB_BITMAP, true, true}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct rig *rig = rig_of_policy(cases[i].policy);
        if (cases[i].clean)
            cr_assert(rig_close(rig), "%s", rig->message);
        else
            rig_kill(rig);
        struct fault_rule refuse = {.ops = 1u << BLK_WRITE, .status = BLK_MEDIA};
        (void)fault_add(rig->dev[1], &refuse);
        cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
        const struct sb_member *member = &array_description(rig->array)->members[1];
        cr_expect_eq(member->state, SB_FAILED);
        cr_expect_eq(member->missed_from != 0, cases[i].known, "case %u", i);
        fault_clear(rig->dev[1], -1);
        rig_destroy(rig);
    }
}

Test(array_catchup, one_that_is_lost_among_unmarked_writes_is_rebuilt_and_later_ones_are_marked)
{
    static const enum sb_consistency policies[] = {SB_RESYNC, SB_PPL, SB_JOURNAL};
    for (unsigned i = 0; i < ARRAY_LENGTH(policies); i++)
        for (unsigned quiet = 0; quiet < 2; quiet++) {
            struct rig *rig = rig_of_policy(policies[i]);
            rig_wait(rig, quiet * 3 * SECOND);
            cr_expect_eq(dirty_rows(rig), 0, "policy %u", policies[i]);
            cr_assert(rig_fail(rig, 1), "%s", rig->message);
            rig_put(rig, 5 * row_of(rig), 4096, 6);
            cr_expect_eq(dirty_rows(rig), 1, "policy %u: marked", policies[i]);
            uint64_t all = written_rows(rig);
            cr_assert(rig_online(rig, 1), "%s", rig->message);
            cr_expect_eq(rebuild_rows(rig, 4), quiet ? 1 : all, "policy %u, quiet %u", policies[i], quiet);
            rig_settle(rig);
            cr_assert(rig_fail(rig, 0), "%s", rig->message);
            cr_expect(rig_has(rig, 0, 4096, 3) && rig_has(rig, 5 * row_of(rig), 4096, 6), "policy %u", policies[i]);
            rig_destroy(rig);
        }
}
