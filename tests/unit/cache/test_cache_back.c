/* Writes that are kept: what is read, what leaves and how, errors, and who waits. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "tests/unit/cache/scene.h"

static const struct cache_options back = {.name = "back", .bytes = 1024 * KIB, .write_back = true};

static void no_log(enum log_level level, const char *line)
{
    (void)level;
    (void)line;
}

static struct scene *scene_back(void)
{
    log_setup(no_log, LOG_LEVEL_ERROR);
    return scene_create(&back);
}

static void put(struct scene *s, uint64_t off, uint64_t len, uint64_t seed)
{
    struct scene_call call = {0};
    scene_write(s, &call, 0, off, len, seed);
    cr_assert_eq(scene_wait(s, &call), BLK_OK);
    scene_call_over(&call);
}

/* Do the bytes of a seed stand at `off`, for a reader, or below? */
static bool reads(struct scene *s, uint64_t off, uint64_t len, uint64_t seed)
{
    struct scene_call call = {0};
    uint8_t *is = malloc(len), *should = malloc(len);
    scene_read(s, &call, off, len);
    cr_assert_eq(scene_wait(s, &call), BLK_OK);
    pages_copy_out(is, call.pages, off % PAGE_BYTES, len);
    test_fill(should, len, seed);
    bool same = memcmp(is, should, len) == 0;
    scene_call_over(&call);
    free(is);
    free(should);
    return same;
}

static bool stands(const uint8_t *bytes, uint64_t off, uint64_t len, uint64_t seed)
{
    uint8_t *should = malloc(len);
    test_fill(should, len, seed);
    bool same = memcmp(bytes + off, should, len) == 0;
    free(should);
    return same;
}

static enum blk_status flush(struct scene *s)
{
    return test_io(s->t, cache_dev(s->cache), BLK_FLUSH, 0, 0, NULL, 0);
}

static struct cache_status status_of(struct scene *s)
{
    struct cache_status status;
    cache_status(s->cache, &status);
    return status;
}

Test(cache_back, a_write_is_answered_from_memory_and_read_back)
{
    struct scene *s = scene_back();
    put(s, 512, 20480, 1);
    cr_expect_eq(s->disk->requests[BLK_WRITE], 0);
    cr_expect(reads(s, 512, 20480, 1));
    cr_expect_eq(s->disk->requests[BLK_READ], 0, "all of it was here");
    cr_expect_eq(status_of(s).dirty_bytes, 6 * 4096);
    testloop_run(s->t);
    cr_expect(stands(s->disk->seen, 512, 20480, 1), "it leaves when nobody asks for anything");
    cr_expect_eq(status_of(s).dirty_bytes, 0);
    scene_destroy(s);
}

Test(cache_back, what_is_around_small_writes_is_read_and_merged)
{
    struct scene *s = scene_back();
    uint8_t should[8192], is[8192];
    memcpy(should, s->disk->seen + 4096, sizeof should);
    for (unsigned i = 0; i < 5; i++) {
        put(s, 4096 + 1536 * i, 512, i);
        test_fill(should + 1536 * i, 512, i);
    }
    cr_assert_eq(test_io(s->t, cache_dev(s->cache), BLK_READ, 0, 4096, is, sizeof is), BLK_OK);
    cr_expect_eq(memcmp(is, should, sizeof is), 0);
    testloop_run(s->t);
    cr_expect_eq(memcmp(s->disk->seen + 4096, should, sizeof should), 0);
    scene_destroy(s);
}

Test(cache_back, a_flush_is_answered_when_all_before_it_is_below_and_flushed)
{
    struct scene *s = scene_back();
    for (unsigned i = 0; i < 40; i++)
        put(s, 90112 * i, 4096, i);
    cr_assert_eq(flush(s), BLK_OK);
    for (unsigned i = 0; i < 40; i++)
        cr_expect(stands(s->disk->stable, 90112 * i, 4096, i), "write %u", i);
    cr_expect_eq(s->disk->requests[BLK_FLUSH], 1);
    scene_destroy(s);
}

Test(cache_back, a_flush_does_not_wait_for_what_is_written_after_it)
{
    struct scene *s = scene_back();
    struct scene_call call = {.req = {.op = BLK_FLUSH}};
    put(s, 0, 4096, 1);
    s->disk->hold = true;
    scene_submit(s, &call);
    put(s, MIB, 4096, 2);
    testloop_run_ready(s->t);
    cr_expect_eq(trialdisk_held(s->disk), 1, "one write, of what was before");
    cr_expect_eq(s->disk->requests[BLK_WRITE], 1);
    trialdisk_release(s->disk);
    cr_assert_eq(scene_wait(s, &call), BLK_OK);
    cr_expect(!stands(s->disk->seen, MIB, 4096, 2));
    scene_destroy(s);
}

Test(cache_back, what_is_written_while_it_leaves_stays_dirty_and_is_what_is_read)
{
    struct scene *s = scene_back();
    struct scene_call call = {.req = {.op = BLK_FLUSH}};
    put(s, 8192, 8192, 1);
    s->disk->hold = true;
    scene_submit(s, &call);
    testloop_run_ready(s->t);
    put(s, 8192 + 1024, 4096, 2);
    cr_expect(reads(s, 9216, 4096, 2));
    trialdisk_release(s->disk);
    cr_assert_eq(scene_wait(s, &call), BLK_OK);
    cr_expect(stands(s->disk->seen, 8192, 8192, 1), "what left is what was written before");
    cr_expect_eq(status_of(s).dirty_bytes, 8192);
    testloop_run(s->t);
    cr_expect(stands(s->disk->seen, 9216, 4096, 2));
    scene_destroy(s);
}

Test(cache_back, fua_is_durable_and_older_data_there_is_clean)
{
    struct scene *s = scene_back();
    struct scene_call call = {0};
    put(s, 0, 4096, 1);
    scene_write(s, &call, BLK_FUA, 0, 4096, 2);
    cr_assert_eq(scene_wait(s, &call), BLK_OK);
    scene_call_over(&call);
    cr_expect(stands(s->disk->stable, 0, 4096, 2));
    cr_expect_eq(status_of(s).dirty_bytes, 0);
    testloop_run(s->t);
    cr_expect_eq(s->disk->requests[BLK_WRITE], 1);
    cr_expect(reads(s, 0, 4096, 2));
    scene_destroy(s);
}

Test(cache_back, a_discard_drops_what_is_dirty)
{
    struct scene *s = scene_back();
    uint8_t is[65536], zeroes[65536] = {0};
    put(s, 0, 65536, 1);
    cr_assert_eq(test_io(s->t, cache_dev(s->cache), BLK_DISCARD, 0, 0, NULL, 65536), BLK_OK);
    cr_expect_eq(status_of(s).dirty_bytes, 0);
    cr_assert_eq(test_io(s->t, cache_dev(s->cache), BLK_READ, 0, 0, is, sizeof is), BLK_OK);
    cr_expect_eq(memcmp(is, zeroes, sizeof is), 0);
    testloop_run(s->t);
    cr_expect_eq(s->disk->requests[BLK_WRITE], 0);
    put(s, 0, 8192, 2);
    cr_assert_eq(test_io(s->t, cache_dev(s->cache), BLK_WRITE_ZEROES, 0, 2048, NULL, 4096), BLK_OK);
    cr_assert_eq(test_io(s->t, cache_dev(s->cache), BLK_READ, 0, 0, is, 8192), BLK_OK);
    cr_expect_eq(memcmp(is + 2048, zeroes, 4096), 0);
    test_fill(zeroes, 8192, 2);
    cr_expect(memcmp(is, zeroes, 2048) == 0 && memcmp(is + 6144, zeroes + 6144, 2048) == 0, "what is around stays");
    scene_destroy(s);
}

Test(cache_back, a_discard_that_fails_leaves_what_is_dirty)
{
    struct scene *s = scene_back();
    put(s, 0, 4096, 1);
    s->disk->fail_percent = 100;
    s->disk->fail_ops = 1u << BLK_DISCARD;
    s->disk->fail_status = BLK_TIMEOUT;
    cr_expect_eq(test_io(s->t, cache_dev(s->cache), BLK_DISCARD, 0, 0, NULL, 8192), BLK_TIMEOUT);
    cr_expect(reads(s, 0, 4096, 1));
    scene_destroy(s);
}

Test(cache_back, small_sequential_writes_leave_as_full_rows_in_order)
{
    struct scene *s = scene_back();
    for (unsigned i = 0; i < SCENE_DISK / 16384; i++)
        put(s, 16384ull * i, 16384, i);
    testloop_run(s->t);
    struct cache_status status = status_of(s);
    cr_expect_eq(status.full_rows, SCENE_DISK / (256 * KIB));
    cr_expect_leq(status.destages, status.full_rows + 1);
    for (unsigned i = 0; i < SCENE_DISK / 16384; i++)
        cr_expect(stands(s->disk->seen, 16384ull * i, 16384, i), "write %u", i);
    scene_destroy(s);
}

Test(cache_back, a_write_over_what_is_dirty_costs_nothing_below)
{
    struct scene *s = scene_back();
    for (unsigned i = 0; i < 1000; i++)
        put(s, 4096 * (i % 4), 4096, i);
    testloop_run(s->t);
    cr_expect_eq(s->disk->requests[BLK_WRITE], 1);
    cr_expect_eq(status_of(s).rewritten_bytes, 996 * 4096);
    scene_destroy(s);
}

Test(cache_back, what_is_old_leaves_though_others_are_busy)
{
    struct scene *s = scene_back();
    put(s, 0, 4096, 1);
    uint64_t start = s->t->loop.now_ns;
    while (!stands(s->disk->seen, 0, 4096, 1) && s->t->loop.now_ns < start + 10000000000ull) {
        put(s, MIB, 512, 2); /* a busy initiator */
        s->t->loop.now_ns += 10000000;
        testloop_run_ready(s->t);
    }
    uint64_t took = s->t->loop.now_ns - start;
    cr_expect(took >= 5000000000 && took < 5200000000, "after %lu ms", took / 1000000);
    scene_destroy(s);
}

Test(cache_back, a_large_write_passes_by)
{
    struct scene *s = scene_back();
    put(s, 0, 65 * 4096 - 4096, 1);
    put(s, MIB, 49 * 4096, 2);
    cr_expect_eq(status_of(s).through, 2);
    cr_expect(reads(s, MIB, 49 * 4096, 2));
    scene_destroy(s);
}

/* Writers of depth 16 against a disk of 1 ms: they are slowed down to what leaves, and nobody waits for long. */
Test(cache_back, above_the_high_watermark_writers_slow_down_smoothly)
{
    enum { DEPTH = 16, WRITES = 20000 };
    static struct scene_call calls[DEPTH];
    uint64_t began[DEPTH], longest = 0, sum = 0, late = 0, seed = 5;
    struct scene *s = scene_back();
    s->disk->latency_ns = 2000000;
    for (unsigned i = 0, n = 0; n < WRITES; i = (i + 1) % DEPTH, n++) {
        if (calls[i].req.done != NULL) {
            cr_assert_eq(scene_wait(s, &calls[i]), BLK_OK);
            uint64_t took = s->t->loop.now_ns - began[i];
            longest = n > WRITES / 2 ? MAX(longest, took) : longest;
            sum += n > WRITES / 2 ? took : 0;
            late += n > WRITES / 2 && took > 100000000;
            scene_call_over(&calls[i]);
        }
        began[i] = s->t->loop.now_ns;
        scene_write(s, &calls[i], 0, 4096 * (test_random(&seed) % (SCENE_DISK / 4096)), 4096, n);
    }
    for (unsigned i = 0; i < DEPTH; i++) {
        cr_assert_eq(scene_wait(s, &calls[i]), BLK_OK);
        scene_call_over(&calls[i]);
    }
    struct cache_status status = status_of(s);
    uint64_t mean = sum / (WRITES / 2);
    cr_expect_gt(status.delayed, WRITES / 10, "%lu", status.delayed);
    cr_expect_gt(status.destage_rate, 0);
    cr_expect_lt(longest, 20 * MAX(mean, 1000000), "longest %lu us, mean %lu us", longest / 1000, mean / 1000);
    cr_expect_leq(status.dirty_bytes, status.dirty_limit);
    scene_destroy(s);
}

/* One sector that left slowly is all that is known of the disk, and makes writers wait for minutes; then it is fast. */
Test(cache_back, nobody_waits_for_his_answer_when_there_is_room_again)
{
    enum { WRITES = 300 };
    static struct scene_call calls[WRITES];
    struct scene *s = scene_back();
    unsigned count = 0;
    s->disk->latency_ns = 4000000000;
    put(s, 0, 512, 1);
    testloop_run(s->t);
    cr_assert(status_of(s).dirty_bytes == 0 && status_of(s).destage_rate > 0);
    s->disk->latency_ns = 0;
    s->disk->hold = true;
    while (count < WRITES && status_of(s).delayed < 8) {
        scene_write(s, &calls[count], 0, 8192 * count, 4096, count);
        testloop_run_ready(s->t);
        count++;
    }
    cr_assert(!calls[count - 1].over && status_of(s).delayed >= 8, "%u writes, %lu delayed", count,
              status_of(s).delayed);
    uint64_t start = s->t->loop.now_ns;
    trialdisk_release(s->disk);
    while (status_of(s).dirty_bytes > 0) {
        testloop_run_ready(s->t);
        s->t->loop.now_ns = MAX(s->t->loop.now_ns, loop_next_timer_ns(&s->t->loop));
    }
    testloop_run_ready(s->t);
    cr_expect_lt(s->t->loop.now_ns, start + 1000000000, "the disk needed %lu ms", (s->t->loop.now_ns - start) / 1000000);
    for (unsigned i = 0; i < count; i++)
        cr_expect(calls[i].over, "write %u of %u waits, and nothing is dirty", i, count);
    for (unsigned i = 0; i < count; i++) {
        cr_assert_eq(scene_wait(s, &calls[i]), BLK_OK);
        scene_call_over(&calls[i]);
    }
    scene_destroy(s);
}

Test(cache_back, what_cannot_be_destaged_stays_and_is_tried_again)
{
    struct scene *s = scene_back();
    put(s, 0, 4096, 1);
    s->disk->fail_percent = 100;
    s->disk->fail_ops = 1u << BLK_WRITE;
    cr_expect_eq(flush(s), BLK_GONE);
    struct cache_status status = status_of(s);
    cr_expect_eq(status.trouble, BLK_GONE);
    cr_expect_not_null(status.reason);
    cr_expect_eq(status.dirty_bytes, 4096);
    cr_expect(reads(s, 0, 4096, 1));
    struct scene_call call = {0};
    scene_write(s, &call, 0, 8192, 4096, 2);
    cr_expect_eq(scene_wait(s, &call), BLK_GONE, "meanwhile writes go through, and fail as the volume does");
    scene_call_over(&call);
    cr_expect_eq(flush(s), BLK_GONE);
    s->disk->fail_percent = 0;
    testloop_run(s->t);
    cr_expect(stands(s->disk->seen, 0, 4096, 1));
    status = status_of(s);
    cr_expect_eq(status.trouble, BLK_OK);
    cr_expect_null(status.reason);
    cr_expect_eq(flush(s), BLK_OK);
    scene_destroy(s);
}

Test(cache_back, a_place_that_takes_nothing_keeps_nobody_else)
{
    struct scene *s = scene_back();
    s->disk->bad_off = 1024;
    s->disk->bad_len = 512;
    put(s, 0, 4096, 1);
    put(s, MIB, 4096, 2);
    s->t->loop.now_ns += 200000000;
    for (unsigned i = 0; i < 100; i++) {
        uint64_t next = loop_next_timer_ns(&s->t->loop);
        s->t->loop.now_ns = MAX(s->t->loop.now_ns, next);
        testloop_run_ready(s->t);
    }
    cr_expect(stands(s->disk->seen, MIB, 4096, 2));
    cr_expect_eq(status_of(s).dirty_bytes, 4096);
    cr_expect_eq(status_of(s).aside_lines, 1);
    put(s, 2 * MIB, 4096, 3);
    cr_expect_eq(status_of(s).dirty_bytes, 8192, "and others are kept as before");
    cr_expect_eq(flush(s), BLK_GONE, "there is no place to name in a flush");
    s->disk->bad_len = 0;
    cr_expect_eq(flush(s), BLK_OK, "a flush tries again at once");
    cr_expect(stands(s->disk->stable, 0, 4096, 1));
    scene_destroy(s);
}

Test(cache_back, closing_destages_and_flushes)
{
    struct scene *s = scene_back();
    for (unsigned i = 0; i < 20; i++)
        put(s, 131072 * i, 4096, i);
    test_close(s->t, cache_dev(s->cache));
    s->cache = NULL;
    for (unsigned i = 0; i < 20; i++)
        cr_expect(stands(s->disk->stable, 131072 * i, 4096, i), "write %u", i);
    scene_destroy(s);
}

Test(cache_back, closing_ends_also_over_a_volume_that_is_gone)
{
    struct scene *s = scene_back();
    put(s, 0, 4096, 1);
    s->disk->fail_percent = 100;
    test_close(s->t, cache_dev(s->cache));
    s->cache = NULL;
    scene_destroy(s);
}

Test(cache_back, what_is_dirty_is_written_for_who_asks_what_is_used)
{
    static const struct {
        uint64_t off, len, extent;
        bool written;
    } cases[] = {{0, 4096, 4096, false},     {0, 65536, 8192, false},      {8192, 65536, 8192, true},
                 {12288, 65536, 4096, true}, {16384, 65536, 65536, false}, {8192 + 512, 512, 512, true}};
    struct scene *s = scene_back();
    s->disk->unwritten = true;
    put(s, 8192 + 512, 7168, 1);
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct scene_call call = {.req = {.op = BLK_STATUS, .off = cases[i].off, .len = cases[i].len}};
        scene_submit(s, &call);
        cr_assert_eq(scene_wait(s, &call), BLK_OK);
        cr_expect(call.req.written == cases[i].written && call.req.extent == cases[i].extent,
                  "case %u: %lu bytes are %d", i, call.req.extent, call.req.written);
    }
    scene_destroy(s);
}

Test(cache_back, a_shorter_volume_loses_what_was_dirty_beyond_and_no_more)
{
    struct scene *s = scene_back();
    uint64_t size = s->disk->dev.info.size;
    put(s, size - 8192, 8192, 1);
    put(s, 0, 4096, 2);
    s->disk->dev.info.size = size - 4096;
    blk_notify(&s->disk->dev, BLK_EVENT_RESIZED);
    cr_expect_eq(flush(s), BLK_OK);
    cr_expect(stands(s->disk->stable, 0, 4096, 2));
    uint8_t should[8192];
    test_fill(should, sizeof should, 1);
    cr_expect_eq(memcmp(s->disk->stable + size - 8192, should, 4096), 0);
    scene_destroy(s);
}

Test(cache_back, nothing_is_allocated_on_the_way)
{
    struct scene *s = scene_back();
    static struct scene_call calls[32];
    uint64_t before = 0, seed = 3;
    for (unsigned round = 0; round < 100; round++) {
        for (unsigned i = 0; i < 32; i++) {
            calls[i].req = (struct blk_req){
                .op = BLK_WRITE, .off = 4096 * (test_random(&seed) % 1000), .len = 8192, .pages = calls[i].pages};
            cr_assert(page_pool_get(s->t->loop.pages, calls[i].pages, 2));
            scene_submit(s, &calls[i]);
        }
        for (unsigned i = 0; i < 32; i++) {
            cr_assert_eq(scene_wait(s, &calls[i]), BLK_OK);
            scene_call_over(&calls[i]);
        }
        before = round == 0 ? test_allocations() : before;
    }
    cr_expect_eq(test_allocations(), before);
    scene_destroy(s);
}

Test(cache_back, closing_does_not_give_up_while_something_gets_below)
{
    struct scene *s = scene_back();
    for (unsigned i = 0; i < 30; i++)
        put(s, 131072 * i, 4096, i);
    s->disk->fail_percent = 70;
    s->disk->fail_ops = 1u << BLK_WRITE;
    test_close(s->t, cache_dev(s->cache));
    s->cache = NULL;
    for (unsigned i = 0; i < 30; i++)
        cr_expect(stands(s->disk->stable, 131072 * i, 4096, i), "write %u", i);
    scene_destroy(s);
}

Test(cache_back, work_in_the_background_is_for_the_disks)
{
    struct scene *s = scene_back();
    struct scene_call call = {0};
    scene_write(s, &call, BLK_BACKGROUND, 4096, 4096, 1);
    cr_expect_eq(scene_wait(s, &call), BLK_OK);
    scene_call_over(&call);
    cr_expect(status_of(s).absorbed == 0 && status_of(s).through == 1);
    cr_expect(stands(s->disk->seen, 4096, 4096, 1));
    scene_destroy(s);
}

/* Else writes that go past it, one always under way, would keep a line from leaving, and the flush from its end. */
Test(cache_back, changes_of_a_line_that_a_flush_waits_for_let_it_leave_first)
{
    struct scene *s = scene_back();
    struct scene_call first = {0}, second = {0}, third = {.req = {.op = BLK_FLUSH}};
    put(s, 0, 4096, 1);
    s->disk->hold = true;
    scene_write(s, &first, BLK_FUA, 8192, 4096, 2);
    testloop_run_ready(s->t);
    scene_submit(s, &third);
    scene_write(s, &second, BLK_FUA, 16384, 4096, 3);
    testloop_run_ready(s->t);
    cr_expect_eq(trialdisk_held(s->disk), 1, "the second waits for the line, and the line for the first");
    trialdisk_release(s->disk);
    cr_expect_eq(scene_wait(s, &first), BLK_OK);
    cr_expect_eq(scene_wait(s, &third), BLK_OK);
    cr_expect_eq(scene_wait(s, &second), BLK_OK);
    cr_expect(stands(s->disk->stable, 0, 4096, 1) && stands(s->disk->stable, 16384, 4096, 3));
    scene_call_over(&first);
    scene_call_over(&second);
    scene_destroy(s);
}
