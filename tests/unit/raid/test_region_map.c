/* The region map as a value: states and counts, and its blocks as bytes. */
#include <criterion/criterion.h>

#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "raid/region_map.h"
#include "tests/unit/lib/testloop.h"

static const struct uuid volume = {{1, 2, 3}}, other_volume = {{1, 2, 4}};
static uint8_t bytes[REGION_BLOCK_BYTES];

static struct region_map map_of(uint64_t regions)
{
    struct region_map map;
    cr_assert(region_map_init(&map, regions));
    return map;
}

Test(region_map, counts_follow_states_and_a_block_is_changed_by_any_other_state)
{
    static const struct {
        enum region_state from, to;
        bool changes;
    } moves[] = {
        {REGION_UNWRITTEN, REGION_DIRTY, true}, {REGION_DIRTY, REGION_CLEAN, true},
        {REGION_CLEAN, REGION_DIRTY, true},     {REGION_CLEAN, REGION_UNWRITTEN, true},
        {REGION_SUSPECT, REGION_DIRTY, true},   {REGION_DIRTY, REGION_SUSPECT, true},
        {REGION_SUSPECT, REGION_CLEAN, true},   {REGION_DIRTY, REGION_DIRTY, false},
    };
    struct region_map map = map_of(20000);
    cr_expect_eq(map.blocks, 2);
    cr_expect_eq(region_count(&map, REGION_BIT(REGION_UNWRITTEN)), 20000);
    for (unsigned i = 0; i < ARRAY_LENGTH(moves); i++) {
        uint64_t region = 16127 + i;
        struct region_block *block = &map.of_block[region / REGION_PER_BLOCK];
        region_set(&map, region, moves[i].from);
        block->changed = false;
        region_set(&map, region, moves[i].to);
        cr_expect_eq(block->changed, moves[i].changes, "move %u", i);
        cr_expect_eq(region_get(&map, region), moves[i].to, "move %u", i);
        cr_expect_eq(region_get(&map, region + 1), REGION_UNWRITTEN, "neighbours are left alone");
    }
    cr_expect_eq(region_count(&map, REGION_WRITTEN), 7);
    cr_expect_eq(map.counts[REGION_DIRTY], 4);
    cr_expect_eq(map.of_block[0].dirty, 1);
    cr_expect_eq(map.of_block[1].dirty, 3);
    region_map_fini(&map);
}

Test(region_map, those_written_before_an_end_are_counted)
{
    struct region_map map = map_of(3000);
    uint64_t seed = 6, count = 0;
    for (unsigned i = 0; i < 2000; i++)
        region_set(&map, test_random(&seed) % 3000, (enum region_state)(test_random(&seed) % REGION_STATES));
    for (uint64_t end = 0; end <= 3000; end++) {
        cr_expect_eq(region_count_written(&map, end), count, "before %u", (unsigned)end);
        count += end < 3000 && region_get(&map, end) != REGION_UNWRITTEN;
    }
    cr_expect_eq(count, region_count(&map, REGION_WRITTEN));
    region_map_fini(&map);
}

Test(region_map, find_gives_what_a_walk_gives)
{
    struct region_map map = map_of(3000);
    uint64_t seed = 5;
    for (unsigned i = 0; i < 40; i++)
        region_set(&map, test_random(&seed) % 3000, (enum region_state)(test_random(&seed) % REGION_STATES));
    for (unsigned states = 0; states < 1u << REGION_STATES; states++)
        for (uint64_t from = 0, end = 3000; from < 3000; from += 1 + test_random(&seed) % 90) {
            end = from + test_random(&seed) % (3001 - from);
            uint64_t want = from;
            while (want < end && !(states & REGION_BIT(region_get(&map, want))))
                want++;
            cr_assert_eq(region_find(&map, states, from, end), want, "states %u from %llu to %llu", states,
                         (unsigned long long)from, (unsigned long long)end);
        }
    region_map_fini(&map);
}

Test(region_map, a_touch_is_seen_once)
{
    struct region_map map = map_of(100);
    region_touch(&map, 9);
    cr_expect_not(region_untouch(&map, 8));
    cr_expect(region_untouch(&map, 9));
    cr_expect_not(region_untouch(&map, 9));
    region_map_fini(&map);
}

Test(region_map, a_block_reads_back_as_it_was)
{
    struct region_map map = map_of(16128 + 1001), again = map_of(16128 + 1001);
    uint64_t seed = 1;
    for (uint64_t region = 0; region < map.regions; region++)
        region_set(&map, region, (enum region_state)(test_random(&seed) % REGION_STATES));
    for (unsigned block = 0; block < map.blocks; block++) {
        map.of_block[block].sequence = 77 + block;
        region_block_encode(&map, block, &volume, bytes);
        cr_assert_eq(region_block_sequence(block, &volume, bytes), 77 + block);
        region_block_load(&again, block, bytes);
        cr_expect_eq(again.of_block[block].sequence, 77 + block);
        cr_expect_not(again.of_block[block].changed);
    }
    for (uint64_t region = 0; region < map.regions; region++) {
        enum region_state want = region_get(&map, region);
        cr_assert_eq(region_get(&again, region), want, "region %llu", (unsigned long long)region);
    }
    region_map_fini(&map);
    region_map_fini(&again);
}

Test(region_map, a_block_that_is_not_whole_or_not_ours_is_not_believed)
{
    struct region_map map = map_of(17000);
    map.of_block[0].sequence = 9;
    region_block_encode(&map, 0, &volume, bytes);
    cr_expect_eq(region_block_sequence(0, &volume, bytes), 9);
    cr_expect_eq(region_block_sequence(1, &volume, bytes), 0, "another block");
    cr_expect_eq(region_block_sequence(0, &other_volume, bytes), 0, "another volume");
    for (unsigned bit = 0; bit < 8 * REGION_BLOCK_BYTES; bit += 13) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert_eq(region_block_sequence(0, &volume, bytes), 0, "bit %u", bit);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    memset(bytes + 512, 0, 512);
    bytes[600] = 1;
    cr_expect_eq(region_block_sequence(0, &volume, bytes), 0, "torn");
    memset(bytes, 0, sizeof bytes);
    cr_expect_eq(region_block_sequence(0, &volume, bytes), 0, "nothing at all");
    region_map_fini(&map);
}

Test(region_map, another_size_keeps_what_is_common)
{
    struct region_map map = map_of(17000);
    region_set(&map, 5, REGION_CLEAN);
    region_set(&map, 16130, REGION_DIRTY);
    region_set(&map, 16999, REGION_SUSPECT);
    cr_assert(region_map_resize(&map, 40000));
    cr_expect(map.regions == 40000 && map.blocks == 3);
    cr_expect(region_get(&map, 5) == REGION_CLEAN && region_get(&map, 16999) == REGION_SUSPECT);
    cr_expect_eq(region_count(&map, REGION_BIT(REGION_UNWRITTEN)), 39997);
    cr_expect_eq(region_find(&map, REGION_WRITTEN, 17000, 40000), 40000);
    region_set(&map, 39999, REGION_CLEAN);
    cr_assert(region_map_resize(&map, 16131));
    cr_expect(map.regions == 16131 && map.blocks == 2 && map.of_block[1].changed);
    cr_expect(region_count(&map, REGION_WRITTEN) == 2 && region_count(&map, REGION_BIT(REGION_UNWRITTEN)) == 16129);
    cr_expect_eq(map.of_block[1].dirty, 1);
    cr_assert(region_map_resize(&map, 16128));
    cr_expect(map.blocks == 1 && map.counts[REGION_DIRTY] == 0);
    cr_assert(region_map_resize(&map, 40000));
    cr_expect_eq(region_count(&map, REGION_WRITTEN), 1, "what was beyond does not come back");
    region_map_fini(&map);
}

/* A block that was written when the volume had another size is its block all the same. */
Test(region_map, a_block_of_another_size_is_taken_as_far_as_it_goes)
{
    struct region_map map = map_of(17000), shorter = map_of(16130);
    region_set(&map, 16129, REGION_CLEAN);
    region_set(&map, 16500, REGION_CLEAN);
    map.of_block[1].sequence = 4;
    region_block_encode(&map, 1, &volume, bytes);
    cr_assert_eq(region_block_sequence(1, &volume, bytes), 4);
    region_block_load(&shorter, 1, bytes);
    cr_expect_eq(region_count(&shorter, REGION_WRITTEN), 1);
    region_block_encode(&shorter, 1, &volume, bytes);
    region_block_load(&map, 1, bytes);
    cr_expect_eq(region_count(&map, REGION_WRITTEN), 1, "and says nothing of what it did not have");
    region_map_fini(&map);
    region_map_fini(&shorter);
}

Test(region_map, what_is_in_doubt_is_suspect_and_not_yet_on_disk)
{
    static const enum region_state states[] = {REGION_UNWRITTEN, REGION_CLEAN, REGION_DIRTY, REGION_SUSPECT};
    static const struct {
        unsigned doubt;
        enum region_state want[4];
        bool changed;
    } cases[] = {
        {0, {REGION_UNWRITTEN, REGION_CLEAN, REGION_DIRTY, REGION_SUSPECT}, false},
        {REGION_BIT(REGION_DIRTY), {REGION_UNWRITTEN, REGION_CLEAN, REGION_SUSPECT, REGION_SUSPECT}, true},
        {REGION_WRITTEN, {REGION_UNWRITTEN, REGION_SUSPECT, REGION_SUSPECT, REGION_SUSPECT}, true},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct region_map map = map_of(17000);
        for (unsigned k = 0; k < 4; k++)
            region_set(&map, 16200 + k, states[k]);
        map.of_block[1].changed = false;
        region_map_doubt(&map, cases[i].doubt);
        for (unsigned k = 0; k < 4; k++)
            cr_expect_eq(region_get(&map, 16200 + k), cases[i].want[k], "case %u, state %u", i, k);
        cr_expect_eq(region_map_changed(&map), cases[i].changed, "case %u", i);
        region_map_fini(&map);
    }
}

Test(region_map, a_lost_block_is_suspect_and_nothing_else_is)
{
    struct region_map map = map_of(40000);
    region_block_lost(&map, 1);
    cr_expect_eq(map.counts[REGION_SUSPECT], 16128);
    cr_expect_eq(region_get(&map, 16127), REGION_UNWRITTEN);
    cr_expect_eq(region_get(&map, 16128), REGION_SUSPECT);
    cr_expect_eq(region_get(&map, 2 * 16128), REGION_UNWRITTEN);
    region_block_lost(&map, 2);
    cr_expect_eq(map.counts[REGION_SUSPECT], 40000 - 16128, "the last block is not full");
    region_map_fini(&map);
}
