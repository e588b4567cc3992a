/* What stands behind a completed write: protection, power, and what initiators are told. */
#include <criterion/criterion.h>

#include <string.h>

#include "core/check.h"
#include "tests/unit/cache/scene.h"

static const struct cache_options battery = {
    .name = "battery", .bytes = 1024 * KIB, .write_back = true, .protection = CACHE_PROTECT_BATTERY};

static struct cache_status status_of(struct scene *s)
{
    struct cache_status status;
    cache_status(s->cache, &status);
    return status;
}

static enum blk_status put(struct scene *s, unsigned flags, uint64_t off, uint64_t seed)
{
    uint8_t bytes[4096];
    test_fill(bytes, sizeof bytes, seed);
    return test_io(s->t, cache_dev(s->cache), BLK_WRITE, flags, off, bytes, sizeof bytes);
}

static bool stable(const struct scene *s, uint64_t off, uint64_t seed)
{
    uint8_t bytes[4096];
    test_fill(bytes, sizeof bytes, seed);
    return memcmp(s->disk->stable + off, bytes, sizeof bytes) == 0;
}

static enum blk_status flush(struct scene *s)
{
    return test_io(s->t, cache_dev(s->cache), BLK_FLUSH, 0, 0, NULL, 0);
}

Test(cache_mode, each_protection_has_its_mode)
{
    static const struct {
        bool back, power, flush_when_bad;
        enum cache_protection protection;
        enum cache_mode mode;
        bool volatile_cache, reason;
    } cases[] = {
        {false, false, false, CACHE_PROTECT_NONE, CACHE_THROUGH, true, false},
        {false, true, false, CACHE_PROTECT_BATTERY, CACHE_THROUGH, true, false},
        {true, false, false, CACHE_PROTECT_NONE, CACHE_NONE, true, false},
        {true, true, false, CACHE_PROTECT_NONE, CACHE_NONE, true, false},
        {true, false, false, CACHE_PROTECT_FORCED, CACHE_SAFE, false, false},
        {true, true, false, CACHE_PROTECT_BATTERY, CACHE_SAFE, false, false},
        {true, false, false, CACHE_PROTECT_BATTERY, CACHE_STRICT, false, true},
        {true, false, true, CACHE_PROTECT_BATTERY, CACHE_NONE, true, true},
        {true, true, false, CACHE_PROTECT_PMEM, CACHE_STRICT, false, true}, /* there is no arena */
        {true, true, false, CACHE_PROTECT_JOURNAL, CACHE_NONE, true, true}, /* nor a log */
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct cache_options o = {.name = "mode",
                                  .bytes = 1024 * KIB,
                                  .write_back = cases[i].back,
                                  .protection = cases[i].protection,
                                  .flush_when_bad = cases[i].flush_when_bad};
        struct scene *s = scene_create(&o);
        cache_set_power(s->cache, cases[i].power);
        struct cache_status status = status_of(s);
        cr_expect_eq(status.mode, cases[i].mode, "case %u: %s", i, cache_mode_name(status.mode));
        cr_expect_eq(status.volatile_cache, cases[i].volatile_cache, "case %u", i);
        cr_expect_eq(cache_dev(s->cache)->info.volatile_cache, cases[i].volatile_cache, "case %u", i);
        cr_expect_eq(status.reason != NULL, cases[i].reason, "case %u", i);
        scene_destroy(s);
    }
}

struct listener {
    struct blk_watcher watcher;
    unsigned heard;
    bool volatile_then;
};

static void hear(struct blk_watcher *watcher, struct blkdev *dev, enum blk_event event)
{
    struct listener *l = container_of(watcher, struct listener, watcher);
    l->heard += event == BLK_EVENT_CACHE;
    l->volatile_then = dev->info.volatile_cache;
}

Test(cache_mode, watchers_hear_when_volatile_cache_changes_and_only_then)
{
    struct cache_options o = battery;
    o.flush_when_bad = true;
    struct scene *s = scene_create(&o), *strict = scene_create(&battery), *through;
    struct listener l = {.watcher = {.event = hear}}, l_strict = l, l_through = l;
    blk_watch(cache_dev(s->cache), &l.watcher);
    blk_watch(cache_dev(strict->cache), &l_strict.watcher);
    cache_set_power(s->cache, true);
    cr_expect(l.heard == 1 && !l.volatile_then);
    cache_set_power(s->cache, true);
    cr_expect_eq(l.heard, 1);
    cache_set_power(s->cache, false);
    cr_expect(l.heard == 2 && l.volatile_then);
    cache_set_power(strict->cache, true);
    cache_set_power(strict->cache, false);
    cr_expect_eq(l_strict.heard, 0, "safe and strict say the same");
    blk_unwatch(cache_dev(s->cache), &l.watcher);
    blk_unwatch(cache_dev(strict->cache), &l_strict.watcher);
    scene_destroy(s);
    scene_destroy(strict);

    o.write_back = false;
    through = scene_create(&o);
    blk_watch(cache_dev(through->cache), &l_through.watcher);
    through->disk->dev.info.volatile_cache = false;
    blk_notify(&through->disk->dev, BLK_EVENT_CACHE);
    cr_expect(l_through.heard == 1 && !l_through.volatile_then, "what goes through is as the volume");
    blk_unwatch(cache_dev(through->cache), &l_through.watcher);
    scene_destroy(through);
}

Test(cache_mode, on_a_healthy_battery_flush_and_fua_are_answered_from_memory)
{
    struct scene *s = scene_create(&battery);
    cache_set_power(s->cache, true);
    cr_assert_eq(put(s, BLK_FUA, 0, 1), BLK_OK);
    cr_assert_eq(flush(s), BLK_OK);
    cr_expect_eq(s->disk->requests[BLK_WRITE] + s->disk->requests[BLK_FLUSH], 0);
    scene_destroy(s);
}

Test(cache_mode, when_the_battery_fails_what_is_dirty_is_destaged_and_flushed_and_flushes_wait)
{
    struct scene *s = scene_create(&battery);
    struct scene_call call = {.req = {.op = BLK_FLUSH}};
    cache_set_power(s->cache, true);
    for (unsigned i = 0; i < 20; i++)
        cr_assert_eq(put(s, 0, 131072 * i, i), BLK_OK);
    s->disk->hold = true;
    cache_set_power(s->cache, false);
    scene_submit(s, &call);
    testloop_run_ready(s->t);
    cr_expect(!call.over);
    cr_expect_gt(trialdisk_held(s->disk), 0, "asked for or not");
    trialdisk_release(s->disk);
    cr_assert_eq(scene_wait(s, &call), BLK_OK);
    for (unsigned i = 0; i < 20; i++)
        cr_expect(stable(s, 131072 * i, i), "write %u", i);
    cr_expect_eq(status_of(s).dirty_bytes, 0);
    scene_destroy(s);
}

Test(cache_mode, when_the_battery_fails_nobody_need_ask_for_a_flush)
{
    struct scene *s = scene_create(&battery);
    cache_set_power(s->cache, true);
    cr_assert_eq(put(s, 0, 131072, 1), BLK_OK);
    cache_set_power(s->cache, false);
    testloop_run_ready(s->t);
    cr_expect_eq(s->disk->requests[BLK_WRITE], 1, "at once");
    testloop_run(s->t);
    cr_expect_eq(s->disk->requests[BLK_FLUSH], 1);
    cr_expect(stable(s, 131072, 1));
    scene_destroy(s);
}

Test(cache_mode, without_a_battery_a_completed_write_is_durable)
{
    struct scene *s = scene_create(&battery);
    cr_assert_eq(put(s, 0, 4096, 1), BLK_OK);
    cr_expect(stable(s, 4096, 1), "for who was told that there is no volatile cache");
    cr_assert_eq(put(s, 0, 4096, 2), BLK_OK);
    cr_assert_eq(test_io(s->t, cache_dev(s->cache), BLK_DISCARD, 0, 4096, NULL, 4096), BLK_OK);
    cr_expect(!stable(s, 4096, 2), "and so is a discard");
    scene_destroy(s);
}

struct told {
    struct cache_owner owner;
    unsigned times;
};

static void was_told(struct cache_owner *owner, struct cache *cache)
{
    (void)cache;
    container_of(owner, struct told, owner)->times++;
}

Test(cache_mode, the_owner_hears_of_it)
{
    struct told told = {.owner.changed = was_told};
    struct cache_options o = battery;
    o.owner = &told.owner;
    o.flush_when_bad = true;
    struct scene *s = scene_create(&o);
    cr_expect(cache_dev(s->cache)->info.volatile_cache);
    cache_set_power(s->cache, true);
    cr_expect_eq(told.times, 1);
    cr_expect(!cache_dev(s->cache)->info.volatile_cache);
    cache_set_power(s->cache, true);
    cr_expect_eq(told.times, 1);
    cache_set_power(s->cache, false);
    cr_expect_eq(told.times, 2);
    cr_expect(cache_dev(s->cache)->info.volatile_cache);
    scene_destroy(s);
}

Test(cache_mode, no_more_is_dirty_than_the_battery_lasts_for)
{
    struct scene *s = scene_create(&battery);
    cache_set_power(s->cache, true);
    cache_set_dirty_limit(s->cache, 65536);
    for (unsigned i = 0; i < 100; i++) {
        cr_assert_eq(put(s, 0, 40960 * i, i), BLK_OK);
        cr_expect_leq(status_of(s).dirty_bytes, 65536);
    }
    cache_set_dirty_limit(s->cache, 0);
    testloop_run(s->t);
    cr_assert_eq(put(s, 0, 0, 7), BLK_OK);
    cr_expect(stable(s, 0, 7), "no room at all: it goes below, durable");
    scene_destroy(s);
}

Test(cache_mode, a_drain_is_one_in_every_mode)
{
    struct scene *s = scene_create(&battery);
    struct scene_call call = {0};
    cache_set_power(s->cache, true);
    cr_assert_eq(put(s, 0, 0, 1), BLK_OK);
    call.req.done = NULL;
    scene_drain(s, &call);
    cr_assert_eq(scene_wait(s, &call), BLK_OK);
    cr_expect(stable(s, 0, 1));
    scene_destroy(s);
}

/* What the members forgot may have been promised to whoever flushes next. */
Test(cache_mode, a_flush_that_failed_for_a_drain_alone_is_told_to_the_next_who_asks)
{
    struct scene *s = scene_create(&battery);
    cache_set_power(s->cache, true);
    cr_assert_eq(put(s, 0, 0, 1), BLK_OK);
    s->disk->fail_percent = 100;
    s->disk->fail_ops = 1u << BLK_FLUSH;
    cache_set_power(s->cache, false);
    for (unsigned i = 0; i < 3; i++) {
        testloop_run_ready(s->t);
        s->t->loop.now_ns = MAX(s->t->loop.now_ns, loop_next_timer_ns(&s->t->loop));
    }
    s->disk->fail_percent = 0;
    testloop_run(s->t);
    cr_expect(stable(s, 0, 1));
    cr_expect_eq(flush(s), BLK_GONE);
    cr_expect_eq(flush(s), BLK_OK, "once");
    scene_destroy(s);
}

enum { WAITING_WRITES = 500 };

/* Writes, until the last of them is kept and its answer waits: their number. */
static unsigned until_an_answer_waits(struct scene *s, struct scene_call *calls, unsigned flags)
{
    unsigned count = 0;
    cache_set_power(s->cache, true);
    s->disk->latency_ns = 100000000;
    while (count < WAITING_WRITES && (count == 0 || status_of(s).delayed == 0 || calls[count - 1].over)) {
        scene_write(s, &calls[count], flags, 8192 * count, 4096, count);
        testloop_run_ready(s->t);
        s->t->loop.now_ns += status_of(s).destage_rate == 0 ? 2000000 : 10000;
        testloop_run_ready(s->t);
        count++;
    }
    cr_assert(!calls[count - 1].over && status_of(s).delayed > 0, "%u writes, %lu delayed", count,
              status_of(s).delayed);
    return count;
}

static void all_answered(struct scene *s, struct scene_call *calls, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        scene_wait(s, &calls[i]);
        scene_call_over(&calls[i]);
    }
}

Test(cache_mode, what_waits_for_its_answer_gets_one_though_nothing_can_be_destaged)
{
    static struct scene_call calls[WAITING_WRITES];
    struct scene *s = scene_create(&battery);
    unsigned count = until_an_answer_waits(s, calls, 0);
    s->disk->fail_percent = 100;
    cache_set_power(s->cache, false);
    cr_expect_eq(scene_wait(s, &calls[count - 1]), BLK_GONE);
    all_answered(s, calls, count);
    s->disk->fail_percent = 0;
    scene_destroy(s);
}

Test(cache_mode, what_waits_for_its_answer_when_the_battery_fails_is_durable_when_it_gets_one)
{
    static struct scene_call calls[WAITING_WRITES];
    for (unsigned i = 0; i < 2; i++) {
        struct cache_options o = battery;
        o.flush_when_bad = i == 1; /* then only FUA says that it is to be durable */
        struct scene *s = scene_create(&o);
        unsigned count = until_an_answer_waits(s, calls, i == 1 ? BLK_FUA : 0);
        cache_set_power(s->cache, false);
        cr_expect_eq(scene_wait(s, &calls[count - 1]), BLK_OK);
        cr_expect(stable(s, calls[count - 1].req.off, count - 1), "case %u", i);
        all_answered(s, calls, count);
        scene_destroy(s);
    }
}

/* Seconds that closing takes over a volume that is gone, with an answered write. */
static uint64_t closing_seconds(bool hurry)
{
    struct scene *s = scene_create(&battery);
    cache_set_power(s->cache, true);
    cr_assert_eq(put(s, 0, 0, 1), BLK_OK);
    s->disk->fail_percent = 100;
    cache_hurry(s->cache, hurry);
    uint64_t began = s->t->loop.now_ns;
    test_close(s->t, cache_dev(s->cache));
    uint64_t seconds = (s->t->loop.now_ns - began) / 1000000000;
    s->cache = NULL;
    scene_destroy(s);
    return seconds;
}

Test(cache_mode, closing_in_a_hurry_gives_up_soon_on_what_cannot_be_written)
{
    uint64_t usual = closing_seconds(false), hurried = closing_seconds(true);
    cr_expect(usual >= 40 && usual < 120, "%lu s", usual);
    cr_expect_lt(hurried, 10, "%lu s", hurried);
}
