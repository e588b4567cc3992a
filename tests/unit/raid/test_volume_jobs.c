/* The jobs' work on rows: redundancy made right, members filled. */
#include <criterion/criterion.h>

#include "core/check.h"
#include "tests/unit/raid/volbench.h"

static const struct layout_spec shapes[] = {
    {.level = RAID_1, .members = 2},
    {.level = RAID_1, .members = 3},
    {.level = RAID_10, .members = 4, .copies = 2},
    {.level = RAID_1E, .members = 5, .copies = 2},
    {.level = RAID_3, .members = 4},
    {.level = RAID_5, .members = 5, .rotation = ROTATE_LEFT_SYMMETRIC},
    {.level = RAID_6, .members = 6, .rotation = ROTATE_LEFT_SYMMETRIC},
    {.level = RAID_TP, .members = 6, .rotation = ROTATE_LEFT_SYMMETRIC},
    {.level = RAID_60, .members = 8, .spans = 2, .rotation = ROTATE_LEFT_SYMMETRIC},
    {.level = RAID_5, .members = 3, .rotation = ROTATE_LEFT_SYMMETRIC, .chunk = 2 * MIB},
};

static struct bench *open_shape(unsigned shape, bool unsynced)
{
    struct bench_options o = {.layout = shapes[shape], .unsynced = unsynced};
    if (o.layout.chunk > 64 * KIB)
        o.extent = o.layout.chunk;
    struct bench *b = bench_open(&o, shape + 1);
    bench_fill(b);
    return b;
}

Test(volume_jobs, resync_writes_what_differs_and_nothing_else)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++) {
        struct bench *b = open_shape(shape, true);
        uint64_t bad = b->layout.rows / 2;
        unsigned role = b->layout.roles - 1;
        memset(bench_chunk(b, bad, role) + 512, 0x77, 700);
        struct bench_counts before = bench_counts(b);
        bool changed;
        for (uint64_t row = 0; row < b->layout.rows; row++) {
            cr_expect_eq(bench_job(b, ROW_RESYNC, row, &changed), BLK_OK);
            cr_expect_eq(changed, row == bad, "%s row %u", raid_level_name(shapes[shape].level), (unsigned)row);
        }
        cr_expect_eq(bench_counts(b).writes - before.writes, 1);
        bench_synced(b);
        bench_check_redundancy(b);
        bench_check_contents(b);
        bench_close(b);
    }
}

Test(volume_jobs, resync_rewrites_redundancy_that_cannot_be_read)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++) {
        struct bench *b = open_shape(shape, true);
        bench_spoil(b, 0, b->layout.roles - 1, 0, 4096);
        bool changed;
        cr_expect_eq(bench_job(b, ROW_RESYNC, 0, &changed), BLK_OK);
        cr_expect(changed);
        cr_expect_eq(b->corrected, 1);
        cr_expect_eq(bench_job(b, ROW_RESYNC, 0, &changed), BLK_OK);
        cr_expect_not(changed);
        bench_check_redundancy(b);
        bench_close(b);
    }
}

Test(volume_jobs, resync_of_a_degraded_row_recovers_data_that_cannot_be_read)
{
    struct bench *b = open_shape(6, false); /* RAID 6 */
    bench_fail(b, bench_slot(b, 1, 0));
    bench_spoil(b, 1, 2, 1024, 512);
    memset(bench_chunk(b, 1, 5), 0x11, 100); /* Q, and it is the redundant one: D0 comes from P */
    bool changed;
    fault_clear(b->faults[bench_slot(b, 1, 2)], -1);
    cr_expect_eq(bench_job(b, ROW_RESYNC, 1, &changed), BLK_OK);
    cr_expect(changed);
    bench_spoil(b, 1, 2, 1024, 512);
    cr_expect_eq(bench_job(b, ROW_RESYNC, 1, &changed), BLK_OK);
    cr_expect(changed);
    cr_expect_eq(b->corrected, 1);
    bench_check_redundancy(b);
    bench_check_contents(b);
    bench_close(b);
}

static void rebuild_all(struct bench *b)
{
    for (uint64_t row = 0; row < b->layout.rows; row++)
        cr_expect_eq(bench_job(b, ROW_REBUILD, row, NULL), BLK_OK);
}

Test(volume_jobs, every_member_can_be_rebuilt)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++)
        for (unsigned slot = 0; slot < shapes[shape].members; slot++) {
            struct bench *b = open_shape(shape, false);
            bench_fail(b, slot);
            bench_rebuild(b, slot);
            rebuild_all(b);
            bench_online(b, slot);
            cr_expect_not(volume_degraded(b->volume));
            bench_check_redundancy(b);
            bench_check_contents(b);
            bench_close(b);
        }
}

Test(volume_jobs, members_are_rebuilt_together_and_while_others_write)
{
    struct bench *b = open_shape(7, false); /* three parities */
    for (unsigned slot = 1; slot < 4; slot++) {
        bench_fail(b, slot);
        bench_rebuild(b, slot);
    }
    for (uint64_t row = 0; row < b->layout.rows; row++) {
        bench_storm(b, 20, 0, 21);
        cr_expect_eq(bench_job(b, ROW_REBUILD, row, NULL), BLK_OK);
    }
    bench_storm(b, 100, 0, 101);
    for (unsigned slot = 1; slot < 4; slot++)
        bench_online(b, slot);
    bench_check_redundancy(b);
    bench_check_contents(b);
    bench_close(b);
}

struct many {
    struct row_job job;
    bool over;
};

static void many_done(struct row_job *job)
{
    container_of(job, struct many, job)->over = true;
}

Test(volume_jobs, jobs_and_requests_share_rows_and_a_single_context)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++)
        for (unsigned rows_max = 1; rows_max <= 3; rows_max++) {
            struct bench_options o = {.layout = shapes[shape], .rows_max = rows_max, .scratch_bytes = 1};
            if (o.layout.chunk > 64 * KIB)
                o.extent = o.layout.chunk;
            struct bench *b = bench_open(&o, rows_max);
            bench_fill(b);
            bench_fail(b, 1);
            bench_rebuild(b, 1);
            static struct many many[64];
            cr_assert_leq(b->layout.rows, 64);
            for (uint64_t row = 0; row < b->layout.rows; row++) {
                many[row] = (struct many){.job = {.work = ROW_REBUILD, .row = row, .done = many_done}};
                volume_row_job(b->volume, &many[row].job);
            }
            bench_storm(b, 100, 0, 101);
            for (uint64_t row = 0; row < b->layout.rows; row++)
                cr_expect(many[row].over && many[row].job.status == BLK_OK);
            bench_online(b, 1);
            bench_check_redundancy(b);
            bench_check_contents(b);
            bench_close(b);
        }
}

Test(volume_jobs, zeroes_are_not_written_out_so_that_sparse_files_stay_sparse)
{
    struct bench *b = open_shape(5, false); /* RAID 5 */
    cr_expect_eq(bench_io(b, BLK_WRITE_ZEROES, BLK_NO_UNMAP, 0, b->layout.row_data), BLK_OK);
    bench_fail(b, 3);
    bench_rebuild(b, 3);
    struct blk_counters before = b->disks[3]->dev.counters;
    rebuild_all(b);
    struct blk_counters after = b->disks[3]->dev.counters;
    cr_expect_eq(after.requests[BLK_WRITE_ZEROES] - before.requests[BLK_WRITE_ZEROES], 1);
    cr_expect_eq(after.requests[BLK_WRITE] - before.requests[BLK_WRITE], b->layout.rows - 1);
    bench_online(b, 3);
    bench_check_redundancy(b);
    bench_close(b);
}

Test(volume_jobs, a_source_that_cannot_be_read_costs_its_block_and_no_more)
{
    struct bench *b = open_shape(5, false); /* RAID 5 */
    unsigned lost = bench_slot(b, 2, 1);
    bench_fail(b, lost);
    bench_rebuild(b, lost);
    bench_spoil(b, 2, 3, 4608, 512);
    cr_expect_eq(bench_job(b, ROW_REBUILD, 2, NULL), BLK_MEDIA);
    const uint8_t *chunk = bench_chunk(b, 2, 1), *data = b->model + 2 * b->layout.row_data + 8 * KIB;
    cr_expect(memcmp(chunk, data, 4608) == 0 && memcmp(chunk + 5120, data + 5120, 8 * KIB - 5120) == 0);
    bench_close(b);

    b = open_shape(6, false); /* RAID 6 has one more */
    lost = bench_slot(b, 2, 1);
    bench_fail(b, lost);
    bench_rebuild(b, lost);
    bench_spoil(b, 2, 3, 4608, 512);
    cr_expect_eq(bench_job(b, ROW_REBUILD, 2, NULL), BLK_OK);
    cr_expect_eq(b->corrected, 1);
    for (uint64_t row = 0; row < b->layout.rows; row++)
        cr_expect_eq(bench_job(b, ROW_REBUILD, row, NULL), BLK_OK);
    bench_online(b, lost);
    bench_check_redundancy(b);
    bench_close(b);
}

/* Where P and Q disagree a lost chunk is what it is computed from: by all in the same way, or later writes mix them. */
Test(volume_jobs, chunks_of_doubtful_rows_are_rebuilt_from_what_reads_and_writes_take)
{
    struct bench *b = open_shape(6, true); /* RAID 6 */
    unsigned compared = 0;
    for (uint64_t row = 0; row < b->layout.rows; row++) {
        region_set(&b->map, row, REGION_SUSPECT);
        memset(bench_chunk(b, row, b->layout.data + 1), 0x5a, b->layout.spec.chunk);
    }
    bench_fail(b, 1);
    bench_check_contents(b);
    bench_rebuild(b, 1);
    for (uint64_t row = 0; row < b->layout.rows; row++) {
        cr_expect_eq(bench_job(b, ROW_REBUILD, row, NULL), BLK_OK);
        for (unsigned role = 0; role < b->layout.data; role++) {
            if (bench_slot(b, row, role) != 1)
                continue;
            const uint8_t *data = b->model + row * b->layout.row_data + role * b->layout.spec.chunk;
            cr_expect_eq(memcmp(bench_chunk(b, row, role), data, b->layout.spec.chunk), 0, "row %u", (unsigned)row);
            compared++;
        }
    }
    cr_expect_gt(compared, 3);
    bench_close(b);
}

Test(volume_jobs, a_rebuild_whose_member_or_source_dies_says_so)
{
    struct bench *b = open_shape(5, false);
    bench_fail(b, 2);
    bench_rebuild(b, 2);
    fault_kill(b->faults[2]);
    cr_expect_eq(bench_job(b, ROW_REBUILD, 0, NULL), BLK_GONE);
    cr_expect_eq(b->losses, 2);
    bench_check_contents(b);
    bench_rebuild(b, 2);
    fault_kill(b->faults[3]);
    cr_expect_eq(bench_job(b, ROW_REBUILD, 0, NULL), BLK_GONE);
    cr_expect(volume_failed(b->volume));
    bench_close(b);
}

/* Found by simulation: the row counted as done, and its other columns kept the parity they had. */
Test(volume_jobs, a_member_that_refuses_a_correction_costs_a_resync_no_other_columns)
{
    struct bench_options options = {
        .layout = {.level = RAID_6, .rotation = ROTATE_LEFT_SYMMETRIC, .members = 5, .chunk = 1 * MIB},
        .extent = 2 * MIB,
        .unsynced = true};
    struct bench *b = bench_open(&options, 5);
    bench_fill(b);
    unsigned refuses = bench_slot(b, 0, 3); /* P */
    bench_spoil(b, 0, 3, 4096, 512);
    struct fault_rule no_writes = {.ops = 1u << BLK_WRITE, .status = BLK_MEDIA};
    cr_assert_geq(fault_add(b->faults[refuses], &no_writes), 0);
    bench_chunk(b, 0, 4)[7 * 146000] ^= 1; /* what bench_check_redundancy() looks at */
    cr_expect_eq(bench_job(b, ROW_RESYNC, 0, NULL), BLK_OK);
    cr_expect_eq(b->losses, 1);
    bench_check_redundancy(b);
    bench_check_contents(b);
    bench_close(b);
}

/* Found by simulation: a member that was slow once kept the redundancy that it had, and the row counted as done. */
Test(volume_jobs, a_time_out_that_is_forgiven_does_not_leave_redundancy_unseen)
{
    for (unsigned role = 0; role < 5; role++) {
        struct bench_options options = {.layout = {.level = RAID_6, .rotation = ROTATE_LEFT_SYMMETRIC, .members = 5},
                                        .unsynced = true};
        struct bench *b = bench_open(&options, 5);
        bench_fill(b);
        b->forgiving = true;
        struct fault_rule late = {.ops = 1u << BLK_READ, .status = BLK_TIMEOUT, .count = 1};
        cr_assert_geq(fault_add(b->faults[bench_slot(b, 0, role)], &late), 0);
        bench_chunk(b, 0, 3)[7 * 14] ^= 1; /* what bench_check_redundancy() looks at */
        bench_chunk(b, 0, 4)[7 * 29] ^= 1;
        cr_expect_eq(bench_job(b, ROW_RESYNC, 0, NULL), BLK_OK);
        bench_check_redundancy(b);
        bench_check_contents(b);
        bench_close(b);
    }
}
