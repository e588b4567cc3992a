/* Lines that lack parts, over a volume with parity: what is missing is read, and all goes as a row: see cache/gaps.c. */
#include <criterion/criterion.h>

#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "tests/unit/cache/scene.h"

enum { BLOCKS = 64, FIRST = 16, END = 48 }; /* of a line, and where it lacks some: as many as may be read at a time */
enum { ENOUGH = 5 };                        /* runs: with as many it pays to read the gaps of this row */

static const struct cache_options back = {
    .name = "gaps", .bytes = 1024 * KIB, .readahead = READAHEAD_NONE, .write_back = true, .idle_ms = 1000};

static void no_log(enum log_level level, const char *line)
{
    (void)level;
    (void)line;
}

static void put(struct scene *s, uint64_t off, uint64_t len, uint64_t seed, uint8_t *should)
{
    uint8_t bytes[4096];
    test_fill(bytes, len, seed);
    memcpy(should + off, bytes, len);
    cr_assert_eq(test_io(s->t, cache_dev(s->cache), BLK_WRITE, 0, off, bytes, len), BLK_OK);
}

static void get(struct scene *s, uint64_t off, uint64_t len)
{
    static uint8_t bytes[BLOCKS * PAGE_BYTES];
    cr_assert_eq(test_io(s->t, cache_dev(s->cache), BLK_READ, 0, off, bytes, len), BLK_OK);
}

static struct cache_status status_of(const struct scene *s)
{
    struct cache_status status;
    cache_status(s->cache, &status);
    return status;
}

/* The first and the last blocks of a line are here, and every fourth between is dirty, `runs` of them. */
static struct scene *scene_gaps(unsigned runs, uint8_t *should)
{
    log_setup(no_log, LOG_LEVEL_ERROR);
    struct scene *s = scene_create(&back);
    s->disk->dev.info.row_part = SCENE_ROW;
    memcpy(should, s->disk->seen, SCENE_DISK);
    get(s, 0, FIRST * PAGE_BYTES);
    get(s, END * PAGE_BYTES, (BLOCKS - END) * PAGE_BYTES);
    for (unsigned i = 0; i < runs; i++)
        put(s, (FIRST + 4 * i) * PAGE_BYTES, PAGE_BYTES, i + 1, should);
    memset(s->disk->requests, 0, sizeof s->disk->requests);
    memset(s->disk->bytes, 0, sizeof s->disk->bytes);
    return s;
}

static enum blk_status drain(struct scene *s)
{
    struct scene_call call;
    scene_drain(s, &call);
    return scene_wait(s, &call);
}

static uint8_t should[SCENE_DISK];

Test(cache_gaps, what_is_missing_is_read_once_and_all_goes_as_a_row)
{
    struct scene *s = scene_gaps(ENOUGH, should);
    cr_expect_eq(drain(s), BLK_OK);
    cr_expect_eq(s->disk->requests[BLK_READ], 1);
    cr_expect_eq(s->disk->bytes[BLK_READ], (END - FIRST - 1) * PAGE_BYTES, "what is here is not read");
    cr_expect_eq(s->disk->requests[BLK_WRITE], 1);
    cr_expect_eq(s->disk->bytes[BLK_WRITE], BLOCKS * PAGE_BYTES);
    cr_expect_eq(status_of(s).full_rows, 1);
    cr_expect_eq(status_of(s).destaged_bytes, ENOUGH * PAGE_BYTES, "what was clean makes no progress");
    cr_expect_eq(status_of(s).used_bytes, (FIRST + BLOCKS - END + ENOUGH) * PAGE_BYTES, "what was read is not kept");
    cr_expect_eq(memcmp(s->disk->stable, should, SCENE_DISK), 0);
    scene_destroy(s);
}

Test(cache_gaps, where_nothing_is_missing_nothing_is_read_and_all_goes_as_a_row)
{
    struct scene *s = scene_gaps(0, should);
    s->disk->dev.info.rotational = true;
    get(s, 0, BLOCKS * PAGE_BYTES);
    for (unsigned i = 0; i < 4; i++) /* too far apart to be one run */
        put(s, i * 20 * PAGE_BYTES, PAGE_BYTES, i + 1, should);
    memset(s->disk->requests, 0, sizeof s->disk->requests);
    cr_expect_eq(drain(s), BLK_OK);
    cr_expect_eq(s->disk->requests[BLK_READ], 0);
    cr_expect_eq(s->disk->requests[BLK_WRITE], 1);
    cr_expect_eq(status_of(s).full_rows, 1);
    cr_expect_eq(memcmp(s->disk->stable, should, SCENE_DISK), 0);
    scene_destroy(s);
}

Test(cache_gaps, a_few_runs_go_one_by_one)
{
    struct scene *s = scene_gaps(ENOUGH - 1, should);
    cr_expect_eq(drain(s), BLK_OK);
    cr_expect_eq(s->disk->requests[BLK_READ], 0);
    cr_expect_eq(s->disk->requests[BLK_WRITE], ENOUGH - 1);
    cr_expect_eq(memcmp(s->disk->stable, should, SCENE_DISK), 0);
    scene_destroy(s);
}

Test(cache_gaps, without_parity_runs_go_one_by_one)
{
    struct scene *s = scene_gaps(8, should);
    s->disk->dev.info.row_part = 0;
    cr_expect_eq(drain(s), BLK_OK);
    cr_expect_eq(s->disk->requests[BLK_READ], 0);
    cr_expect_eq(s->disk->requests[BLK_WRITE], 8);
    scene_destroy(s);
}

Test(cache_gaps, parts_of_blocks_go_over_what_was_read)
{
    struct scene *s = scene_gaps(ENOUGH, should);
    put(s, (FIRST + 1) * PAGE_BYTES + 1024, 1536, 77, should);
    put(s, (FIRST + 7) * PAGE_BYTES + 512, 512, 78, should);
    s->disk->replaces = true;
    cr_expect_eq(drain(s), BLK_OK);
    cr_expect_eq(s->disk->requests[BLK_WRITE], 1);
    cr_expect_eq(memcmp(s->disk->stable, should, SCENE_DISK), 0);
    scene_destroy(s);
}

Test(cache_gaps, a_gap_that_cannot_be_read_keeps_nothing_from_leaving)
{
    struct scene *s = scene_gaps(8, should);
    s->disk->bad_off = (FIRST + 2) * PAGE_BYTES;
    s->disk->bad_len = PAGE_BYTES;
    cr_expect_eq(drain(s), BLK_OK);
    cr_expect_eq(s->disk->requests[BLK_WRITE], 8);
    cr_expect_eq(status_of(s).destage_errors, 0);
    cr_expect_eq(status_of(s).trouble, BLK_OK);
    cr_expect_eq(memcmp(s->disk->stable, should, SCENE_DISK), 0);
    scene_destroy(s);
}

Test(cache_gaps, what_is_written_while_they_are_read_goes_with_them)
{
    struct scene *s = scene_gaps(ENOUGH, should);
    struct scene_call call;
    s->disk->hold = true;
    scene_drain(s, &call);
    testloop_run_ready(s->t);
    cr_assert_eq(trialdisk_held(s->disk), 1);
    put(s, FIRST * PAGE_BYTES, PAGE_BYTES, 91, should);
    put(s, (FIRST + 1) * PAGE_BYTES, PAGE_BYTES, 92, should);
    put(s, (FIRST + 2) * PAGE_BYTES, 512, 93, should);
    trialdisk_release(s->disk);
    cr_expect_eq(scene_wait(s, &call), BLK_OK);
    cr_expect_eq(s->disk->requests[BLK_WRITE], 1);
    cr_expect_eq(status_of(s).dirty_bytes, 0);
    cr_expect_eq(memcmp(s->disk->stable, should, SCENE_DISK), 0);
    scene_destroy(s);
}

Test(cache_gaps, what_changes_below_in_the_row_waits_for_it)
{
    struct scene *s = scene_gaps(ENOUGH, should);
    struct scene_call drained, discard = {.req = {.op = BLK_DISCARD, .off = 0, .len = 2 * PAGE_BYTES}};
    s->disk->hold = true;
    scene_drain(s, &drained);
    scene_submit(s, &discard);
    testloop_run_ready(s->t);
    cr_expect_eq(s->disk->requests[BLK_DISCARD], 0);
    trialdisk_release(s->disk);
    cr_expect_eq(scene_wait(s, &drained), BLK_OK);
    cr_expect_eq(scene_wait(s, &discard), BLK_OK);
    memset(should, 0, 2 * PAGE_BYTES);
    cr_expect_eq(memcmp(s->disk->seen, should, SCENE_DISK), 0);
    scene_destroy(s);
}

Test(cache_gaps, a_volume_that_becomes_shorter_meanwhile_is_not_written_beyond_its_end)
{
    struct scene *s = scene_gaps(ENOUGH, should);
    struct scene_call call;
    s->disk->hold = true;
    scene_drain(s, &call);
    testloop_run_ready(s->t);
    s->disk->dev.info.size = (FIRST + 6) * PAGE_BYTES;
    blk_notify(&s->disk->dev, BLK_EVENT_RESIZED);
    trialdisk_release(s->disk);
    cr_expect_eq(scene_wait(s, &call), BLK_OK);
    cr_expect_eq(s->disk->requests[BLK_WRITE], 2, "two of the runs have a place still");
    cr_expect_eq(status_of(s).dirty_bytes, 0);
    cr_expect_eq(memcmp(s->disk->stable, should, (FIRST + 6) * PAGE_BYTES), 0);
    scene_destroy(s);
}

Test(cache_gaps, a_device_that_is_gone_loses_nothing)
{
    struct scene *s = scene_gaps(ENOUGH, should);
    s->disk->fail_percent = 100;
    cr_expect_eq(drain(s), BLK_GONE);
    cr_expect_eq(status_of(s).dirty_bytes, ENOUGH * PAGE_BYTES);
    s->disk->fail_percent = 0;
    testloop_run(s->t); /* until it is tried again */
    cr_expect_eq(status_of(s).dirty_bytes, 0);
    cr_expect_eq(drain(s), BLK_OK);
    cr_expect_eq(memcmp(s->disk->stable, should, SCENE_DISK), 0);
    scene_destroy(s);
}
