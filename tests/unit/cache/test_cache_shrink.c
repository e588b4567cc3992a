/* A volume that becomes shorter while there is work for what it loses. */
#include <criterion/criterion.h>

#include <string.h>

#include "core/check.h"
#include "tests/unit/cache/scene.h"

enum { ROW = SCENE_ROW * 4 }; /* a line: rows up to 256 KiB */

static const struct cache_options back = {
    .name = "shrink", .bytes = 1024 * KIB, .readahead = READAHEAD_NONE, .write_back = true, .idle_ms = 1000};

static void put(struct scene *s, uint64_t off, uint64_t seed)
{
    uint8_t bytes[4096];
    test_fill(bytes, sizeof bytes, seed);
    cr_assert_eq(test_io(s->t, cache_dev(s->cache), BLK_WRITE, 0, off, bytes, sizeof bytes), BLK_OK);
}

static void resize(struct scene *s, uint64_t size)
{
    s->disk->dev.info.size = size;
    blk_notify(&s->disk->dev, BLK_EVENT_RESIZED);
}

static uint64_t dirty_bytes(const struct scene *s)
{
    struct cache_status status;
    cache_status(s->cache, &status);
    return status.dirty_bytes;
}

/* Two blocks on their way below, both written again since. */
static struct scene *scene_leaving(struct scene_call *flush)
{
    struct scene *s = scene_create(&back);
    put(s, 0, 1);
    put(s, ROW, 2);
    s->disk->hold = true;
    *flush = (struct scene_call){.req = {.op = BLK_FLUSH}};
    scene_submit(s, flush);
    testloop_run_ready(s->t);
    cr_assert_eq(trialdisk_held(s->disk), 2);
    put(s, 0, 3);
    put(s, ROW, 4);
    return s;
}

Test(cache_shrink, what_was_written_again_while_it_left_is_not_written_beyond_the_end)
{
    struct scene_call flush;
    struct scene *s = scene_leaving(&flush);
    resize(s, ROW);
    cr_expect_eq(dirty_bytes(s), 4096);
    trialdisk_release(s->disk);
    cr_expect_eq(scene_wait(s, &flush), BLK_OK);
    flush = (struct scene_call){.req = {.op = BLK_FLUSH}};
    scene_submit(s, &flush);
    cr_expect_eq(scene_wait(s, &flush), BLK_OK);
    cr_expect_eq(s->disk->requests[BLK_WRITE], 3);
    cr_expect_eq(dirty_bytes(s), 0);
    uint8_t bytes[4096];
    test_fill(bytes, sizeof bytes, 3);
    cr_expect_eq(memcmp(s->disk->stable, bytes, sizeof bytes), 0);
    scene_destroy(s);
}

Test(cache_shrink, what_could_not_leave_is_no_more_when_the_volume_has_no_place_for_it)
{
    struct scene_call flush;
    struct scene *s = scene_leaving(&flush);
    for (unsigned i = 0; i < TRIAL_SLOTS; i++)
        if (s->disk->slots[i].req != NULL)
            s->disk->slots[i].req->status = BLK_GONE;
    resize(s, ROW);
    trialdisk_release(s->disk);
    cr_expect_eq(scene_wait(s, &flush), BLK_GONE);
    testloop_run(s->t);
    cr_expect_eq(dirty_bytes(s), 0);
    cr_expect_eq(s->disk->requests[BLK_WRITE], 3, "the one that the volume has, once more");
    scene_destroy(s);
}

Test(cache_shrink, a_volume_that_grows_again_has_nothing_of_it)
{
    struct scene_call flush, read = {0};
    struct scene *s = scene_leaving(&flush);
    uint64_t size = s->disk->dev.info.size;
    resize(s, ROW);
    trialdisk_release(s->disk);
    cr_expect_eq(scene_wait(s, &flush), BLK_OK);
    resize(s, size);
    memset(s->disk->seen + ROW, 0, 4096);
    scene_read(s, &read, ROW, 4096);
    cr_assert_eq(scene_wait(s, &read), BLK_OK);
    cr_expect(scene_call_reads(s, &read));
    scene_call_over(&read);
    scene_destroy(s);
}

Test(cache_shrink, who_waits_for_what_is_no_more_gets_an_error)
{
    struct scene *s = scene_create(&back);
    struct scene_call first = {0}, behind = {0}, fits = {0}, read = {0};
    s->disk->hold = true;
    scene_write(s, &first, BLK_FUA, 0, 8192, 1);
    scene_write(s, &behind, BLK_FUA, 4096, 8192, 2);
    scene_write(s, &fits, BLK_FUA, 0, 4096, 3);
    scene_read(s, &read, 65536, 4096);
    testloop_run_ready(s->t);
    cr_assert_eq(trialdisk_held(s->disk), 2);
    resize(s, 8192);
    cr_expect_eq(scene_wait(s, &behind), BLK_INVALID);
    trialdisk_release(s->disk);
    cr_expect_eq(scene_wait(s, &first), BLK_OK);
    cr_expect_eq(scene_wait(s, &fits), BLK_OK);
    cr_expect_eq(scene_wait(s, &read), BLK_INVALID);
    scene_call_over(&first);
    scene_call_over(&behind);
    scene_call_over(&fits);
    scene_call_over(&read);
    scene_destroy(s);
}
