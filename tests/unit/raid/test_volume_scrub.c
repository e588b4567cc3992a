/* Scrub of rows: which chunk is wrong, what is told of it, and what a repair changes. */
#include <criterion/criterion.h>

#include "core/check.h"
#include "tests/unit/raid/volbench.h"

static const struct layout_spec shapes[] = {
    {.level = RAID_1, .members = 2},
    {.level = RAID_1, .members = 3},
    {.level = RAID_10, .members = 6, .copies = 3},
    {.level = RAID_1E, .members = 5, .copies = 2},
    {.level = RAID_5, .members = 5, .rotation = ROTATE_LEFT_SYMMETRIC},
    {.level = RAID_6, .members = 4, .rotation = ROTATE_LEFT_SYMMETRIC},
    {.level = RAID_6, .members = 7, .rotation = ROTATE_RIGHT_ASYMMETRIC},
    {.level = RAID_TP, .members = 6, .rotation = ROTATE_LEFT_SYMMETRIC},
    {.level = RAID_60, .members = 8, .spans = 2, .rotation = ROTATE_LEFT_SYMMETRIC},
    {.level = RAID_6, .members = 4, .rotation = ROTATE_LEFT_SYMMETRIC, .chunk = 2 * MIB},
};

static struct bench *open_shape(unsigned shape)
{
    struct bench_options o = {.layout = shapes[shape]};
    if (o.layout.chunk > 64 * KIB)
        o.extent = o.layout.chunk;
    struct bench *b = bench_open(&o, shape + 1);
    bench_fill(b);
    return b;
}

static bool locates(const struct bench *b)
{
    return b->layout.redundancy >= 2;
}

static void flip(struct bench *b, uint64_t row, unsigned role, uint64_t column, uint64_t len)
{
    uint8_t *bytes = bench_chunk(b, row, role) + column;
    for (uint64_t i = 0; i < len; i++)
        bytes[i] ^= (uint8_t)(0x21 + i);
}

Test(volume_scrub, what_is_right_is_read_and_not_written)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++) {
        struct bench *b = open_shape(shape);
        struct bench_counts before = bench_counts(b);
        for (uint64_t row = 0; row < b->layout.rows; row++) {
            struct row_report report = bench_scrub(b, row, true, BLK_OK);
            cr_expect_eq(report.mismatched + report.unreadable + report.corrected + report.findings_count, 0);
        }
        cr_expect_eq(bench_counts(b).writes, before.writes);
        cr_expect_geq(bench_counts(b).reads - before.reads, b->layout.rows * b->layout.roles);
        bench_close(b);
    }
}

Test(volume_scrub, the_wrong_chunk_is_named_and_a_check_changes_nothing)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++) {
        struct bench *b = open_shape(shape);
        uint64_t row = b->layout.rows / 2;
        for (unsigned role = 0; role < b->layout.roles; role++) {
            struct bench_counts before = bench_counts(b);
            flip(b, row, role, 1024, 1000); /* two blocks, the second in part */
            struct row_report report = bench_scrub(b, row, false, BLK_OK);
            flip(b, row, role, 1024, 1000);
            cr_expect_eq(bench_counts(b).writes, before.writes);
            cr_expect_eq(report.mismatched, 2, "role %u: %u", role, (unsigned)report.mismatched);
            cr_expect_eq(report.located, locates(b) ? 2 : 0);
            cr_expect_eq(report.repaired + report.rewritten, 0);
            cr_assert_eq(report.findings_count, 1);
            struct row_finding *f = &report.findings[0];
            cr_expect_eq(f->remedy, ROW_LEFT);
            cr_expect_eq(f->found, locates(b) ? ROW_FOUND_CHUNK : ROW_FOUND_UNKNOWN);
            cr_expect_eq(f->device_len, 1024);
            if (!locates(b))
                continue;
            cr_expect_eq(f->slot, bench_slot(b, row, role));
            cr_expect_eq(f->device_off, bench_chunk_off(b, row, role) + 1024);
            bool data = role < b->layout.data || !b->layout.parity;
            unsigned chunk = b->layout.parity ? role : 0;
            cr_expect_eq(f->off, row * b->layout.row_data + (data ? chunk * b->layout.spec.chunk + 1024 : 0));
            cr_expect_eq(f->len, data ? 1024 : b->layout.row_data);
        }
        bench_close(b);
    }
}

Test(volume_scrub, a_repair_writes_the_wrong_chunk_alone)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++) {
        struct bench *b = open_shape(shape);
        for (unsigned role = 0; role < b->layout.roles; role++) {
            if (!locates(b) && role < b->layout.data)
                continue;
            struct bench_counts before = bench_counts(b);
            flip(b, 0, role, 512, 512);
            struct row_report report = bench_scrub(b, 0, true, BLK_OK);
            cr_expect_eq(bench_counts(b).writes - before.writes, 1);
            cr_expect_eq(report.repaired, locates(b) ? 1 : 0);
            cr_expect_eq(report.rewritten, locates(b) ? 0 : 1);
            cr_assert_eq(report.findings_count, 1);
            cr_expect_eq(report.findings[0].remedy, locates(b) ? ROW_CHUNK_REWRITTEN : ROW_REDUNDANCY_REWRITTEN);
            bench_check_redundancy(b);
            cr_expect_eq(bench_scrub(b, 0, false, BLK_OK).mismatched, 0);
        }
        bench_check_contents(b);
        bench_close(b);
    }
}

Test(volume_scrub, chunks_that_are_wrong_in_different_blocks_are_all_repaired)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++) {
        struct bench *b = open_shape(shape);
        for (unsigned role = 0; role < b->layout.roles && locates(b); role++)
            flip(b, 1 % b->layout.rows, role, 512 * role, 512);
        struct row_report report = bench_scrub(b, 1 % b->layout.rows, true, BLK_OK);
        cr_expect_eq(report.repaired, locates(b) ? b->layout.roles : 0);
        bench_check_redundancy(b);
        bench_check_contents(b);
        bench_close(b);
    }
}

Test(volume_scrub, two_wrong_chunks_in_one_block_are_not_located)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++) {
        struct bench *b = open_shape(shape);
        if (b->layout.parity) { /* of three copies two that are wrong in different ways are not told apart either */
            flip(b, 0, 0, 0, 512);
            memset(bench_chunk(b, 0, 1), 0x5a, 512);
            struct row_report report = bench_scrub(b, 0, false, BLK_OK);
            cr_expect_eq(report.mismatched, 1);
            cr_expect_eq(report.located, 0);
            cr_expect_eq(report.findings[0].found, ROW_FOUND_UNKNOWN);
            report = bench_scrub(b, 0, true, BLK_OK);
            cr_expect_eq(report.rewritten, 1, "the data is what it is");
            cr_expect_eq(report.findings[0].remedy, ROW_REDUNDANCY_REWRITTEN);
            cr_expect_eq(bench_chunk(b, 0, 1)[1], 0x5a);
            cr_expect_eq(bench_scrub(b, 0, false, BLK_OK).mismatched, 0);
        }
        bench_close(b);
    }
}

/* A repair of one block leaves the doubtful one beside it alone, though both lie in one write. */
Test(volume_scrub, a_few_wrong_bytes_of_parity_or_data_are_told_and_left)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++) {
        struct bench *b = open_shape(shape);
        for (unsigned role = 0; role < b->layout.roles && locates(b) && b->layout.parity; role++) {
            flip(b, 0, role, 1030, 7);
            flip(b, 0, b->layout.data, 2048, 512);
            struct row_report report = bench_scrub(b, 0, true, BLK_OK);
            cr_expect_eq(report.mismatched, 2);
            cr_expect_eq(report.repaired, 1);
            cr_assert_eq(report.findings_count, 2);
            cr_expect_eq(report.findings[0].found, ROW_FOUND_PROBABLE);
            cr_expect_eq(report.findings[0].remedy, ROW_LEFT);
            cr_expect_eq(report.findings[0].slot, bench_slot(b, 0, role));
            flip(b, 0, role, 1030, 7);
            bench_check_redundancy(b);
        }
        bench_check_contents(b);
        bench_close(b);
    }
}

Test(volume_scrub, what_cannot_be_read_is_corrected_and_told_from_what_differs)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++) {
        struct bench *b = open_shape(shape);
        unsigned role = b->layout.roles - 1;
        bench_spoil(b, 0, 0, 1024, 512);
        if (locates(b))
            flip(b, 0, role, 5120, 512);
        struct row_report report = bench_scrub(b, 0, true, BLK_OK);
        cr_expect_eq(report.corrected, 1, "shape %u", shape);
        cr_expect_eq(b->corrected, 1);
        cr_expect_eq(report.repaired, locates(b) ? 1 : 0);
        cr_expect_eq(report.unreadable, 0);
        cr_expect_eq(bench_scrub(b, 0, false, BLK_OK).mismatched, 0);
        bench_check_redundancy(b);
        bench_check_contents(b);
        bench_close(b);
    }
}

Test(volume_scrub, an_unreadable_block_is_not_corrected_from_chunks_that_disagree)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++) {
        struct bench *b = open_shape(shape);
        if (locates(b)) {
            bench_spoil(b, 0, 0, 1024, 512);
            flip(b, 0, b->layout.roles - 1, 1024, 512);
            struct row_report report = bench_scrub(b, 0, true, BLK_OK);
            cr_expect_eq(b->corrected, 0, "shape %u", shape);
            cr_expect_eq(report.mismatched, 1);
            cr_expect_eq(report.repaired + report.rewritten, 0);
            cr_expect_eq(report.findings[0].found, ROW_FOUND_UNKNOWN);
        }
        bench_close(b);
    }
}

Test(volume_scrub, a_block_that_nobody_can_compute_is_unreadable_and_the_rest_is_looked_at)
{
    struct bench *b = open_shape(4); /* RAID 5 */
    bench_spoil(b, 0, 1, 1024, 512);
    bench_spoil(b, 0, 3, 1024, 512);
    flip(b, 0, 2, 2048, 512);
    struct row_report report = bench_scrub(b, 0, false, BLK_MEDIA);
    cr_expect_eq(report.unreadable, 2);
    cr_expect_eq(report.mismatched, 1);
    cr_assert_eq(report.findings_count, 3);
    for (unsigned i = 0; i < 2; i++) {
        cr_expect_eq(report.findings[i].found, ROW_FOUND_UNREADABLE);
        cr_expect_eq(report.findings[i].slot, bench_slot(b, 0, 2 * i + 1));
        cr_expect_eq(report.findings[i].off, (2 * i + 1) * b->layout.spec.chunk + 1024);
        cr_expect_eq(report.findings[i].len, 512);
    }
    bench_close(b);
}

Test(volume_scrub, a_degraded_row_is_compared_and_not_changed)
{
    struct bench *b = open_shape(6); /* RAID 6 */
    bench_fail(b, bench_slot(b, 0, 1));
    cr_expect_eq(bench_scrub(b, 0, true, BLK_OK).mismatched, 0);
    flip(b, 0, 0, 0, 512);
    struct bench_counts before = bench_counts(b);
    struct row_report report = bench_scrub(b, 0, true, BLK_OK);
    cr_expect_eq(report.mismatched, 1);
    cr_expect_eq(report.located, 0);
    cr_expect_eq(report.findings[0].remedy, ROW_LEFT);
    cr_expect_eq(bench_counts(b).writes, before.writes);
    bench_fail(b, bench_slot(b, 0, 2));
    cr_expect_eq(bench_scrub(b, 0, true, BLK_OK).mismatched, 0, "there is nothing left to compare with");
    bench_close(b);
}

Test(volume_scrub, a_row_in_doubt_is_resynchronised_instead)
{
    struct bench *b = open_shape(6);
    region_set(&b->map, 0, REGION_SUSPECT);
    flip(b, 0, b->layout.data, 0, 512);
    flip(b, 0, b->layout.data + 1, 0, 512);
    struct row_report report = bench_scrub(b, 0, false, BLK_OK);
    cr_expect(report.resynced);
    cr_expect_eq(report.mismatched, 0);
    cr_expect_eq(region_get(&b->map, 0), REGION_DIRTY);
    bench_check_redundancy(b);
    bench_close(b);
}

Test(volume_scrub, a_row_that_was_never_written_is_not_read)
{
    struct bench_options o = {.layout = shapes[6], .unwritten = true};
    struct bench *b = bench_open(&o, 1);
    struct bench_counts before = bench_counts(b);
    cr_expect_eq(bench_scrub(b, 0, true, BLK_OK).mismatched, 0);
    cr_expect_eq(bench_counts(b).reads, before.reads);
    cr_expect_eq(bench_counts(b).writes, before.writes);
    bench_close(b);
}

Test(volume_scrub, requests_go_on_meanwhile)
{
    for (unsigned shape = 0; shape < ARRAY_LENGTH(shapes); shape++) {
        struct bench *b = open_shape(shape);
        for (uint64_t row = 0; row < b->layout.rows; row++) {
            bench_storm(b, 10, 0, 11);
            cr_expect_eq(bench_scrub(b, row, true, BLK_OK).mismatched, 0);
        }
        bench_check_redundancy(b);
        bench_check_contents(b);
        bench_close(b);
    }
}

/* It may be owed the row, and would never be given what the others get now. */
Test(volume_scrub, a_row_in_doubt_is_passed_by_while_a_member_is_rebuilt)
{
    struct bench *b = open_shape(5);
    bench_fail(b, 1);
    bench_rebuild(b, 1);
    region_set(&b->map, 2, REGION_SUSPECT);
    struct bench_counts before = bench_counts(b);
    struct row_report report = bench_scrub(b, 2, true, BLK_OK);
    cr_expect_not(report.resynced);
    cr_expect_eq(region_get(&b->map, 2), REGION_SUSPECT);
    cr_expect_eq(bench_counts(b).writes, before.writes);
    for (uint64_t row = 0; row < b->layout.rows; row++)
        cr_expect_eq(bench_job(b, ROW_REBUILD, row, NULL), BLK_OK);
    bench_online(b, 1);
    cr_expect(bench_scrub(b, 2, true, BLK_OK).resynced);
    cr_expect_eq(region_get(&b->map, 2), REGION_DIRTY);
    bench_check_redundancy(b);
    bench_close(b);
}
