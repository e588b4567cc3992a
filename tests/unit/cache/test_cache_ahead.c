/* Read-ahead within a cache: what it brings, and what it must not push out. */
#include <criterion/criterion.h>

#include "core/check.h"
#include "tests/unit/cache/scene.h"

static void get(struct scene *s, uint64_t off, uint64_t len)
{
    struct scene_call call = {0};
    scene_read(s, &call, off, len);
    cr_assert_eq(scene_wait(s, &call), BLK_OK);
    cr_assert(scene_call_reads(s, &call), "off %lu", off);
    scene_call_over(&call);
}

static struct cache_status status_of(struct scene *s)
{
    struct cache_status status;
    testloop_run(s->t);
    cache_status(s->cache, &status);
    return status;
}

Test(cache_ahead, streams_are_read_from_memory_after_their_start)
{
    static const struct {
        const char *name;
        int64_t step;
        uint64_t from;
    } cases[] = {{"forward", 8192, 0}, {"backward", -8192, SCENE_DISK / 8192 * 8192 - 8192}, {"strided", 24576, 4096}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct cache_options o = {.name = "ahead", .bytes = 1024 * KIB};
        struct scene *s = scene_create(&o);
        uint64_t at = cases[i].from;
        for (unsigned n = 0; n < 150; n++, at = (uint64_t)((int64_t)at + cases[i].step)) {
            get(s, at, 8192);
            testloop_run(s->t); /* the initiator thinks */
        }
        struct cache_status status = status_of(s);
        cr_expect_leq(status.misses, 3, "%s: %lu misses", cases[i].name, status.misses);
        cr_expect_leq(status.ahead_used_bytes, status.ahead_bytes);
        cr_expect_geq(status.ahead_used_bytes, 140 * 8192, "%s", cases[i].name);
        scene_destroy(s);
    }
}

/* As many readers wait as there are streams: that must not end reading ahead. (tests/bench/cache_disks.c has the streams.) */
Test(cache_ahead, sixty_four_readers_that_wait_leave_contexts_to_guesses)
{
    enum { READERS = 64 };
    struct cache_options o = {.name = "ahead", .bytes = 4096 * KIB};
    struct scene *s = scene_create(&o);
    struct scene_call *calls = calloc(READERS + 2, sizeof *calls);
    s->disk->hold = true;
    for (unsigned i = 0; i < READERS; i++)
        scene_read(s, &calls[i], 61440 * (uint64_t)(i * (i + 1) / 2 % READERS), 4096);
    cr_expect_eq(status_of(s).ahead_bytes, 0);
    for (unsigned i = 0; i < 2; i++)
        scene_read(s, &calls[READERS + i], 65536 * 10 + 4096 * i, 4096);
    cr_expect_gt(status_of(s).ahead_bytes, 0);
    trialdisk_release(s->disk);
    for (unsigned i = 0; i < READERS + 2; i++) {
        cr_expect_eq(scene_wait(s, &calls[i]), BLK_OK);
        cr_expect(scene_call_reads(s, &calls[i]));
        scene_call_over(&calls[i]);
    }
    free(calls);
    scene_destroy(s);
}

Test(cache_ahead, what_is_hot_stays_though_much_is_guessed)
{
    struct cache_options o = {.name = "ahead", .bytes = 512 * KIB, .readahead = READAHEAD_ALWAYS};
    struct scene *s = scene_create(&o);
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < 64; i++)
            get(s, 3 * MIB + 4096 * i, 4096);
    for (unsigned i = 0; i < 40; i++)
        get(s, 4096 * (i * 7 % 40 * 17), 4096);
    uint64_t before = status_of(s).hits;
    for (unsigned i = 0; i < 64; i++)
        get(s, 3 * MIB + 4096 * i, 4096);
    cr_expect_geq(status_of(s).hits - before, 60, "%lu of 64", status_of(s).hits - before);
    scene_destroy(s);
}

/* The room for guesses is full of some that nobody comes to, and the cache has room: nothing makes them leave. */
Test(cache_ahead, stale_guesses_make_room_for_others)
{
    struct cache_options o = {.name = "ahead", .bytes = 2048 * KIB};
    struct scene *s = scene_create(&o);
    for (unsigned i = 0; i < 16; i++)
        get(s, 32 * 4096 * (uint64_t)(i / 2) + 4096 * (i % 2), 4096);
    for (unsigned i = 0; i < 128; i++) /* what was followed is forgotten */
        get(s, 2 * MIB + 4096 * 256 + 512 * (i * 37 % 128), 512);
    uint64_t misses = status_of(s).misses;
    for (unsigned i = 0; i < 200; i++) {
        get(s, 2 * MIB + 4096 * i, 4096);
        testloop_run(s->t);
    }
    struct cache_status status = status_of(s);
    cr_expect_leq(status.misses - misses, 3, "%lu of 200", status.misses - misses);
    cr_expect_gt(status.ahead_wasted_bytes, 0);
    scene_destroy(s);
}

Test(cache_ahead, always_brings_what_is_within_128_sectors)
{
    struct cache_options o = {.name = "ahead", .bytes = 1024 * KIB, .readahead = READAHEAD_ALWAYS};
    struct scene *s = scene_create(&o);
    get(s, 2 * MIB, 512);
    uint64_t misses = status_of(s).misses, reads = s->disk->dev.counters.requests[BLK_READ];
    cr_expect_eq(reads, 1, "in one request");
    for (int64_t sectors = -128; sectors <= 128; sectors++)
        get(s, (uint64_t)((int64_t)(2 * MIB) + sectors * 512), 512);
    cr_expect_eq(status_of(s).misses, misses);
    get(s, 3 * 4096, 4096); /* the ends of the volume are no trap */
    get(s, SCENE_DISK - 512, 512);
    scene_destroy(s);
}

Test(cache_ahead, an_error_in_what_was_guessed_is_nobodys)
{
    struct cache_options o = {.name = "ahead", .bytes = 1024 * KIB};
    struct scene *s = scene_create(&o);
    s->disk->bad_off = 65536;
    s->disk->bad_len = 512;
    for (unsigned i = 0; i < 16; i++)
        get(s, 4096 * i, 4096);
    struct scene_call call = {0};
    scene_read(s, &call, 65536, 4096);
    cr_expect_eq(scene_wait(s, &call), BLK_MEDIA, "only who asks hears of it");
    scene_call_over(&call);
    get(s, 65536 + 4096, 4096);
    s->disk->bad_len = 0;
    scene_destroy(s);
}
