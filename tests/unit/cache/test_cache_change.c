/* Writes, discards and flushes that go through: order, and what the blocks make of them. */
#include <criterion/criterion.h>

#include <string.h>

#include "core/check.h"
#include "tests/unit/cache/scene.h"

static bool reads_what_is_below(struct scene *s, uint64_t off, uint64_t len)
{
    struct scene_call call = {0};
    scene_read(s, &call, off, len);
    cr_assert_eq(scene_wait(s, &call), BLK_OK);
    bool same = scene_call_reads(s, &call);
    scene_call_over(&call);
    return same;
}

Test(cache_change, writes_of_the_same_bytes_go_one_after_the_other)
{
    struct scene *s = scene_create(NULL);
    struct scene_call a = {0}, b = {0}, other = {0};
    s->disk->hold = true;
    scene_write(s, &a, 0, 4096, 8192, 1);
    scene_write(s, &b, 0, 8192, 8192, 2);
    scene_write(s, &other, 0, 32768, 4096, 3);
    testloop_run(s->t);
    cr_expect_eq(trialdisk_held(s->disk), 2, "the second waits, the third does not");
    trialdisk_release(s->disk);
    cr_assert_eq(scene_wait(s, &b), BLK_OK);
    cr_expect(a.over && scene_call_reads(s, &b), "the last one won");
    cr_assert_eq(scene_wait(s, &other), BLK_OK);
    scene_call_over(&a);
    scene_call_over(&b);
    scene_call_over(&other);
    scene_destroy(s);
}

Test(cache_change, a_fetch_that_a_write_overtook_is_not_kept)
{
    struct scene *s = scene_create(NULL);
    struct scene_call read = {0}, write = {0};
    s->disk->hold = true;
    scene_read(s, &read, 0, 4096);
    testloop_run(s->t);
    s->disk->hold = false;
    scene_write(s, &write, 0, 0, 4096, 1);
    cr_assert_eq(scene_wait(s, &write), BLK_OK);
    scene_call_over(&write);
    cr_expect(reads_what_is_below(s, 0, 4096), "who asks after the write does not wait for the older fetch");
    trialdisk_release(s->disk);
    cr_assert_eq(scene_wait(s, &read), BLK_OK);
    scene_call_over(&read);
    cr_expect(reads_what_is_below(s, 0, 4096));
    scene_destroy(s);
}

Test(cache_change, discards_and_zeroes_are_read_back)
{
    static const struct {
        enum blk_op op;
        uint64_t off, len;
    } cases[] = {{BLK_DISCARD, 0, 65536},
                 {BLK_WRITE_ZEROES, 70000 / 512 * 512, 5120},
                 {BLK_DISCARD, 512, 512},
                 {BLK_DISCARD, 0, SCENE_DISK}};
    struct scene *s = scene_create(NULL);
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct scene_call call = {.req = {.op = cases[i].op, .off = cases[i].off, .len = cases[i].len}};
        cr_assert(reads_what_is_below(s, 0, 131072));
        memset(s->disk->seen + cases[i].off, 1, 512); /* what a cache that forgets nothing would not see */
        scene_submit(s, &call);
        cr_assert_eq(scene_wait(s, &call), BLK_OK);
        cr_expect(reads_what_is_below(s, 0, 131072), "case %u", i);
    }
    scene_destroy(s);
}

Test(cache_change, after_an_error_what_was_here_is_asked_for_again)
{
    struct scene *s = scene_create(NULL);
    struct scene_call call = {0};
    cr_assert(reads_what_is_below(s, 0, 16384));
    s->disk->fail_percent = 100;
    s->disk->fail_status = BLK_NOSPACE;
    scene_write(s, &call, 0, 4096, 4096, 1);
    cr_expect_eq(scene_wait(s, &call), BLK_NOSPACE);
    scene_call_over(&call);
    s->disk->fail_percent = 0;
    test_fill(s->disk->seen + 4096, 4096, 9); /* some of it */
    cr_expect(reads_what_is_below(s, 0, 16384));
    scene_destroy(s);
}

Test(cache_change, flushes_under_way_share_the_next)
{
    struct scene *s = scene_create(NULL);
    struct scene_call calls[6];
    s->disk->hold = true;
    for (unsigned i = 0; i < 6; i++) {
        calls[i] = (struct scene_call){.req = {.op = BLK_FLUSH}};
        scene_submit(s, &calls[i]);
    }
    testloop_run(s->t);
    cr_expect_eq(trialdisk_held(s->disk), 1);
    trialdisk_release(s->disk);
    for (unsigned i = 0; i < 6; i++)
        cr_expect_eq(scene_wait(s, &calls[i]), BLK_OK);
    cr_expect_eq(s->disk->requests[BLK_FLUSH], 2);
    scene_destroy(s);
}

Test(cache_change, flags_and_events_pass)
{
    struct scene *s = scene_create(NULL);
    struct scene_call call = {0};
    scene_write(s, &call, BLK_FUA, 0, 4096, 1);
    cr_assert_eq(scene_wait(s, &call), BLK_OK);
    scene_call_over(&call);
    cr_expect_eq(s->disk->fuas, 1);
    s->disk->dev.info.read_only = true;
    blk_notify(&s->disk->dev, BLK_EVENT_DEGRADED);
    scene_write(s, &call, 0, 0, 4096, 1);
    cr_expect_eq(scene_wait(s, &call), BLK_READONLY);
    scene_call_over(&call);
    scene_destroy(s);
}
