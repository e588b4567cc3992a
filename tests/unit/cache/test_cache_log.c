/* A cache with a log: what a flush costs, what waits for what, a log that is full, and one that dies. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "cache/log.h"
#include "core/check.h"
#include "core/log.h"
#include "tests/unit/cache/scene.h"

enum { BLOCK = 4096, LARGE = 256 * 1024 };

struct study {
    struct scene *s;
    struct trialdisk *disks[LOG_DEVICES];
    struct log_identity identity;
    struct cache_log *log;
    struct cache_owner owner;
    struct cache *asked; /* it waits for an answer: to hold a claim, or not */
    bool held, slow, refuses;
    bool claimed;
    unsigned questions, changes;
    uint64_t generation; /* that is claimed */
};

static void no_log(enum log_level level, const char *line)
{
    (void)level;
    (void)line;
}

static struct cache_log_status log_status(const struct study *t)
{
    struct cache_log_status status;
    cache_log_status(t->log, &status);
    return status;
}

static struct cache_status status_of(const struct study *t)
{
    struct cache_status status;
    cache_status(t->s->cache, &status);
    return status;
}

static void claim_answer(struct study *t)
{
    struct cache *cache = t->asked;
    cr_assert(cache != NULL);
    t->asked = NULL;
    t->claimed = t->refuses ? t->claimed : t->held;
    cache_claimed(cache, t->held, !t->refuses);
}

static void on_claim(struct cache_owner *owner, struct cache *cache, bool held)
{
    struct study *t = container_of(owner, struct study, owner);
    t->asked = cache;
    t->held = held;
    t->questions++;
    t->generation = held ? log_status(t).generation : 0;
    if (!t->slow)
        claim_answer(t);
}

static void on_change(struct cache_owner *owner, struct cache *cache)
{
    (void)cache;
    container_of(owner, struct study, owner)->changes++;
}

struct waiting {
    struct cache_log_call call;
    struct task closed;
    bool over;
};

static void call_done(struct cache_log_call *call)
{
    container_of(call, struct waiting, call)->over = true;
}

static void closed_run(struct task *task)
{
    container_of(task, struct waiting, closed)->over = true;
}

static void log_make(struct study *t)
{
    struct cache_log_options o = {.name = "study", .identity = t->identity};
    for (unsigned i = 0; i < LOG_DEVICES; i++)
        o.devices[i] = t->disks[i] != NULL ? &t->disks[i]->dev : NULL;
    t->log = cache_log_create(&o);
    cr_assert(t->log != NULL);
}

static void log_over(struct study *t)
{
    struct waiting w = {.closed.run = closed_run};
    cache_log_close(t->log, &w.closed);
    cr_assert(testloop_run_until(t->s->t, &w.over));
    t->log = NULL;
}

static uint64_t cache_bytes = 1024 * KIB;

static void cache_start(struct study *t)
{
    struct cache_options o = {.name = "study",
                              .bytes = cache_bytes,
                              .readahead = READAHEAD_NONE,
                              .write_back = true,
                              .protection = CACHE_PROTECT_JOURNAL,
                              .age_ms = 1000000,
                              .idle_ms = 1000000,
                              .owner = &t->owner,
                              .log = t->log};
    t->s->cache = cache_create(&t->s->disk->dev, &o);
    cr_assert(t->s->cache != NULL);
    testloop_run_ready(t->s->t);
}

static struct study *study_create(unsigned devices, unsigned ring, bool slow)
{
    struct study *t = calloc(1, sizeof *t);
    struct waiting w = {.call.done = call_done};
    cr_assert(t != NULL);
    t->slow = slow;
    t->s = scene_create(NULL);
    log_setup(no_log, LOG_LEVEL_ERROR);
    test_close(t->s->t, cache_dev(t->s->cache));
    for (unsigned i = 0; i < devices; i++)
        t->disks[i] = trialdisk_create(&t->s->t->loop, (LOG_RING_AT + ring) * PAGE_BYTES, 512, 0);
    t->owner = (struct cache_owner){.changed = on_change, .claim = on_claim};
    log_make(t);
    cache_log_format(t->log, &w.call);
    cr_assert(testloop_run_until(t->s->t, &w.over));
    cr_assert_eq(w.call.result, CACHE_LOG_OK);
    t->identity.log = log_status(t).log;
    for (unsigned i = 0; i < devices; i++)
        memset(t->disks[i]->requests, 0, sizeof t->disks[i]->requests);
    memset(t->s->disk->requests, 0, sizeof t->s->disk->requests);
    cache_start(t);
    return t;
}

static void cache_end(struct study *t)
{
    test_close(t->s->t, cache_dev(t->s->cache));
    t->s->cache = NULL;
    log_over(t);
}

static void study_destroy(struct study *t)
{
    if (t->s->cache != NULL)
        cache_end(t);
    for (unsigned i = 0; i < LOG_DEVICES; i++)
        if (t->disks[i] != NULL)
            test_close(t->s->t, &t->disks[i]->dev);
    scene_destroy(t->s);
    free(t);
}

/* Ten seconds: what is dirty keeps a timer running. */
static void pass(struct study *t)
{
    struct loop *loop = &t->s->t->loop;
    uint64_t end = loop->now_ns + 10000000000ull, next;
    testloop_run_ready(t->s->t);
    while ((next = loop_next_timer_ns(loop)) <= end) {
        loop->now_ns = MAX(loop->now_ns, next);
        testloop_run_ready(t->s->t);
    }
}

static enum blk_status put(struct study *t, unsigned flags, uint64_t off, uint64_t len, uint64_t seed)
{
    uint8_t *bytes = malloc(len);
    test_fill(bytes, len, seed);
    enum blk_status status = test_io(t->s->t, cache_dev(t->s->cache), BLK_WRITE, flags, off, bytes, len);
    free(bytes);
    return status;
}

static enum blk_status flush(struct study *t)
{
    return test_io(t->s->t, cache_dev(t->s->cache), BLK_FLUSH, 0, 0, NULL, 0);
}

static bool has(const uint8_t *disk, uint64_t off, uint64_t len, uint64_t seed)
{
    uint8_t *bytes = malloc(len);
    test_fill(bytes, len, seed);
    bool same = memcmp(disk + off, bytes, len) == 0;
    free(bytes);
    return same;
}

/* The power fails now: nothing survives that was not flushed, of the volume and of the log. */
struct after {
    struct testloop *t;
    struct trialdisk *volume;
    struct cache_log_status log;
    enum cache_log_result result;
};

static struct after after_cut(struct study *t, unsigned devices)
{
    struct after a = {.t = testloop_create(8, 1)};
    struct trialdisk *disks[LOG_DEVICES] = {NULL};
    struct cache_log_options o = {.name = "after", .identity = t->identity, .least_generation = t->generation};
    struct waiting w = {.call.done = call_done, .closed.run = closed_run};
    a.volume = trialdisk_create(&a.t->loop, SCENE_DISK, 512, SCENE_ROW);
    memcpy(a.volume->seen, t->s->disk->stable, SCENE_DISK);
    for (unsigned i = 0; i < LOG_DEVICES; i++) {
        if (!(devices >> i & 1))
            continue;
        disks[i] = trialdisk_create(&a.t->loop, t->disks[i]->dev.info.size, 512, 0);
        memcpy(disks[i]->seen, t->disks[i]->stable, disks[i]->dev.info.size);
        o.devices[i] = &disks[i]->dev;
    }
    struct cache_log *log = cache_log_create(&o);
    cache_log_open(log, &a.volume->dev, &w.call);
    cr_assert(testloop_run_until(a.t, &w.over));
    a.result = w.call.result;
    cache_log_status(log, &a.log);
    w.over = false;
    cache_log_close(log, &w.closed);
    cr_assert(testloop_run_until(a.t, &w.over));
    for (unsigned i = 0; i < LOG_DEVICES; i++)
        if (disks[i] != NULL)
            test_close(a.t, &disks[i]->dev);
    return a;
}

static void after_over(struct after *a)
{
    test_close(a->t, &a->volume->dev);
    testloop_destroy(a->t);
}

static bool survives(struct study *t, uint64_t off, uint64_t len, uint64_t seed)
{
    struct after a = after_cut(t, t->disks[1] != NULL ? 3 : 1);
    bool is = a.result == CACHE_LOG_OK && has(a.volume->seen, off, len, seed);
    after_over(&a);
    return is;
}

/* --- what it costs --- */

Test(cache_log, nothing_is_promised_on_its_strength_before_it_is_claimed)
{
    struct study *t = study_create(1, 256, true);
    cr_assert(t->asked != NULL && t->held);
    cr_expect_eq(status_of(t).mode, CACHE_NONE);
    cr_assert_eq(put(t, 0, 0, BLOCK, 1), BLK_OK);
    cr_assert_eq(flush(t), BLK_OK);
    cr_expect(has(t->s->disk->stable, 0, BLOCK, 1), "below");
    cr_expect_eq(t->disks[0]->requests[BLK_WRITE], 0);
    cr_assert_eq(put(t, 0, 0, BLOCK, 2), BLK_OK);
    claim_answer(t);
    t->slow = false;
    cr_expect_eq(status_of(t).mode, CACHE_LOGGED);
    cr_expect(status_of(t).volatile_cache);
    cr_assert_eq(flush(t), BLK_OK);
    cr_expect(survives(t, 0, BLOCK, 2), "what was dirty before, too");
    study_destroy(t);
}

Test(cache_log, a_flush_costs_one_write_and_one_flush_of_the_log_and_nothing_below)
{
    struct study *t = study_create(1, 256, false);
    cr_assert_eq(flush(t), BLK_OK); /* of what was below before the log was in use */
    memset(t->s->disk->requests, 0, sizeof t->s->disk->requests);
    memset(t->disks[0]->requests, 0, sizeof t->disks[0]->requests);
    memset(t->disks[0]->bytes, 0, sizeof t->disks[0]->bytes);
    for (unsigned i = 0; i < 5; i++)
        cr_assert_eq(put(t, 0, i * 65536, BLOCK, i), BLK_OK);
    cr_assert_eq(flush(t), BLK_OK);
    cr_expect_eq(t->disks[0]->requests[BLK_WRITE], 1);
    cr_expect_eq(t->disks[0]->bytes[BLK_WRITE], 6 * PAGE_BYTES, "a header and five pages");
    cr_expect_eq(t->disks[0]->requests[BLK_FLUSH], 1);
    cr_expect_eq(t->s->disk->requests[BLK_WRITE] + t->s->disk->requests[BLK_FLUSH], 0);
    for (unsigned i = 0; i < 5; i++)
        cr_expect(survives(t, i * 65536, BLOCK, i));
    cr_assert_eq(flush(t), BLK_OK);
    cr_expect_eq(t->disks[0]->requests[BLK_WRITE], 1, "nothing is new");
    study_destroy(t);
}

Test(cache_log, those_that_ask_meanwhile_share_the_next_commit)
{
    struct study *t = study_create(1, 256, false);
    struct scene_call calls[20];
    cr_assert_eq(flush(t), BLK_OK);
    uint64_t commits = log_status(t).commits;
    t->disks[0]->latency_ns = 1000000;
    for (unsigned i = 0; i < 20; i++)
        scene_write(t->s, &calls[i], BLK_FUA, i * 65536, BLOCK, i);
    for (unsigned i = 0; i < 20; i++) {
        cr_assert_eq(scene_wait(t->s, &calls[i]), BLK_OK);
        scene_call_over(&calls[i]);
    }
    cr_expect_eq(log_status(t).commits - commits, 2);
    cr_expect_eq(t->s->disk->requests[BLK_WRITE], 0);
    for (unsigned i = 0; i < 20; i++)
        cr_expect(survives(t, i * 65536, BLOCK, i));
    study_destroy(t);
}

/* --- past the cache --- */

Test(cache_log, a_write_that_goes_below_over_what_is_logged_is_answered_when_that_is_gone)
{
    struct study *t = study_create(1, 256, false);
    struct scene_call call;
    cr_assert_eq(put(t, 0, 65536, BLOCK, 1), BLK_OK);
    cr_assert_eq(flush(t), BLK_OK);
    t->disks[0]->hold = true;
    scene_write(t->s, &call, 0, 0, LARGE, 2);
    pass(t);
    cr_expect(has(t->s->disk->stable, 0, LARGE, 2), "it is below, and durable");
    cr_expect(!call.over, "and the log does not know yet");
    trialdisk_release(t->disks[0]);
    cr_assert_eq(scene_wait(t->s, &call), BLK_OK);
    scene_call_over(&call);
    cr_expect_eq(log_status(t).gone, 1);
    cr_expect(survives(t, 0, LARGE, 2));
    study_destroy(t);
}

Test(cache_log, where_the_log_holds_nothing_it_is_not_asked)
{
    struct study *t = study_create(1, 256, false);
    cr_assert_eq(put(t, 0, 0, LARGE, 2), BLK_OK);
    cr_assert_eq(put(t, BLK_FUA, 2 * LARGE, LARGE, 3), BLK_OK);
    cr_expect_eq(t->disks[0]->requests[BLK_WRITE], 0);
    cr_expect(has(t->s->disk->stable, 2 * LARGE, LARGE, 3));
    cr_assert_eq(flush(t), BLK_OK);
    cr_expect_eq(t->s->disk->requests[BLK_FLUSH], 1, "it is below only");
    cr_expect(has(t->s->disk->stable, 0, LARGE, 2));
    study_destroy(t);
}

Test(cache_log, what_was_discarded_does_not_come_back)
{
    struct study *t = study_create(1, 256, false);
    static const uint8_t zeroes[BLOCK];
    cr_assert_eq(put(t, 0, 65536, BLOCK, 1), BLK_OK);
    cr_assert_eq(flush(t), BLK_OK);
    cr_assert_eq(test_io(t->s->t, cache_dev(t->s->cache), BLK_DISCARD, 0, 65536, NULL, BLOCK), BLK_OK);
    struct after a = after_cut(t, 1);
    cr_expect_eq(memcmp(a.volume->seen + 65536, zeroes, BLOCK), 0);
    after_over(&a);
    study_destroy(t);
}

/* The log dies, and what is dirty elsewhere cannot be written: that is not a place in the discard. */
Test(cache_log, a_change_that_cannot_be_logged_for_other_bytes_names_none_of_its_own)
{
    struct study *t = study_create(1, 256, false);
    cr_assert_eq(put(t, 0, 65536, BLOCK, 1), BLK_OK);
    cr_assert_eq(flush(t), BLK_OK);
    cr_assert_eq(put(t, 0, 2 * LARGE, BLOCK, 2), BLK_OK);
    t->s->disk->bad_off = 2 * LARGE;
    t->s->disk->bad_len = BLOCK;
    t->disks[0]->fail_percent = 100;
    cr_expect_eq(test_io(t->s->t, cache_dev(t->s->cache), BLK_DISCARD, 0, 65536, NULL, BLOCK), BLK_GONE);
    t->s->disk->bad_len = 0;
    study_destroy(t);
}

/* It is told that the volume was not flushed; what else went below is covered by the flush that comes next. */
Test(cache_log, a_flush_that_failed_for_a_change_is_owed_to_the_next_one)
{
    struct study *t = study_create(1, 256, false);
    cr_assert_eq(put(t, 0, 65536, BLOCK, 1), BLK_OK);
    cr_assert_eq(flush(t), BLK_OK);
    cr_assert_eq(put(t, 0, 2 * LARGE, LARGE, 2), BLK_OK, "past the cache");
    t->s->disk->fail_percent = 100;
    t->s->disk->fail_ops = 1 << BLK_FLUSH;
    cr_expect_eq(test_io(t->s->t, cache_dev(t->s->cache), BLK_DISCARD, 0, 65536, NULL, BLOCK), BLK_GONE);
    t->s->disk->fail_percent = 0;
    cr_expect_eq(flush(t), BLK_GONE, "the members may have forgotten it");
    cr_expect_eq(flush(t), BLK_OK);
    study_destroy(t);
}

Test(cache_log, a_drain_is_over_when_the_log_has_what_it_destaged)
{
    struct study *t = study_create(1, 256, false);
    struct scene_call call;
    cr_assert_eq(put(t, 0, 65536, BLOCK, 1), BLK_OK);
    cr_assert_eq(flush(t), BLK_OK);
    cr_assert_eq(put(t, 0, 65536, BLOCK, 2), BLK_OK);
    t->disks[0]->hold = true;
    scene_drain(t->s, &call);
    pass(t);
    cr_expect(!call.over);
    cr_expect(!has(t->s->disk->seen, 65536, BLOCK, 2), "the log would be older than the volume");
    trialdisk_release(t->disks[0]);
    cr_assert_eq(scene_wait(t->s, &call), BLK_OK);
    cr_expect(has(t->s->disk->stable, 65536, BLOCK, 2));
    cr_expect(survives(t, 65536, BLOCK, 2));
    study_destroy(t);
}

/* --- room --- */

Test(cache_log, a_log_that_is_full_is_emptied_and_fails_nothing)
{
    struct study *t = study_create(1, LOG_RING_MIN, false);
    for (unsigned i = 0; i < 60; i++) {
        for (unsigned k = 0; k < 10; k++)
            cr_assert_eq(put(t, 0, (i * 10 + k) % 90 * 32768, BLOCK, i * 10 + k), BLK_OK);
        cr_assert_eq(flush(t), BLK_OK);
        for (unsigned k = 0; k < 10; k++)
            cr_expect(survives(t, (i * 10 + k) % 90 * 32768, BLOCK, i * 10 + k), "round %u", i);
    }
    cr_expect_gt(log_status(t).emptied, 5);
    study_destroy(t);
}

/* More than the whole ring, at once. */
Test(cache_log, what_is_larger_than_the_log_is_made_durable_below)
{
    struct study *t = study_create(1, LOG_RING_MIN, false);
    for (unsigned k = 0; k < 90; k++)
        cr_assert_eq(put(t, 0, k * 32768, BLOCK, k), BLK_OK);
    cr_assert_eq(flush(t), BLK_OK);
    for (unsigned k = 0; k < 90; k++)
        cr_expect(has(t->s->disk->stable, k * 32768, BLOCK, k));
    cr_expect_eq(log_status(t).emptied, 1);
    cr_expect_eq(log_status(t).used_bytes, 0);
    study_destroy(t);
}

Test(cache_log, when_half_of_it_is_used_the_tail_follows_unasked)
{
    struct study *t = study_create(1, 64, false);
    for (unsigned i = 0; i < 40; i++) {
        cr_assert_eq(put(t, 0, i * 65536, BLOCK, i), BLK_OK);
        cr_assert_eq(flush(t), BLK_OK);
        testloop_run_ready(t->s->t);
    }
    pass(t);
    cr_expect_eq(log_status(t).emptied, 0);
    cr_expect_lt(log_status(t).used_bytes, 64 * PAGE_BYTES / 2 + PAGE_BYTES);
    for (unsigned i = 0; i < 40; i++)
        cr_expect(survives(t, i * 65536, BLOCK, i));
    study_destroy(t);
}

Test(cache_log, a_volume_that_takes_nothing_does_not_keep_the_log_from_answering)
{
    struct study *t = study_create(1, 256, false);
    cr_assert_eq(flush(t), BLK_OK);
    t->s->disk->fail_percent = 100;
    cr_assert_eq(put(t, 0, 0, BLOCK, 1), BLK_OK);
    cr_assert_eq(flush(t), BLK_OK);
    cr_expect(survives(t, 0, BLOCK, 1));
    t->s->disk->fail_percent = 0;
    study_destroy(t);
}

Test(cache_log, a_full_log_over_a_volume_that_takes_nothing_says_so)
{
    struct study *t = study_create(1, LOG_RING_MIN, false);
    cr_assert_eq(flush(t), BLK_OK);
    t->s->disk->fail_percent = 100;
    for (unsigned k = 0; k < 30; k++)
        cr_assert_eq(put(t, 0, k * 32768, BLOCK, k), BLK_OK);
    cr_expect_eq(flush(t), BLK_GONE);
    cr_expect_eq(flush(t), BLK_GONE);
    t->s->disk->fail_percent = 0;
    pass(t);
    cr_expect_eq(flush(t), BLK_OK);
    for (unsigned k = 0; k < 30; k++)
        cr_expect(survives(t, k * 32768, BLOCK, k));
    study_destroy(t);
}

/* --- devices that die --- */

Test(cache_log, when_it_dies_flushes_wait_until_all_is_below_and_the_claim_is_given_back)
{
    struct study *t = study_create(1, 256, false);
    struct scene_call call = {.req = {.op = BLK_FLUSH}};
    cr_assert_eq(put(t, 0, 65536, BLOCK, 1), BLK_OK);
    cr_assert_eq(flush(t), BLK_OK);
    t->slow = true;
    t->disks[0]->fail_percent = 100;
    cr_assert_eq(put(t, 0, 65536, BLOCK, 2), BLK_OK);
    scene_submit(t->s, &call);
    pass(t);
    cr_expect(has(t->s->disk->stable, 65536, BLOCK, 2));
    cr_assert(t->asked != NULL && !t->held);
    cr_expect(!call.over, "while it is claimed the log could be believed when it comes back");
    cr_expect(survives(t, 65536, BLOCK, 1), "with what was flushed last");
    claim_answer(t);
    cr_assert_eq(scene_wait(t->s, &call), BLK_OK);
    cr_expect_eq(status_of(t).mode, CACHE_NONE);
    cr_assert(status_of(t).reason != NULL);
    cr_expect_str_eq(status_of(t).reason, "its log is dead");
    cr_expect_gt(t->changes, 0);
    cr_assert_eq(put(t, 0, 0, BLOCK, 3), BLK_OK);
    cr_assert_eq(flush(t), BLK_OK);
    cr_expect(has(t->s->disk->stable, 0, BLOCK, 3));
    study_destroy(t);
}

Test(cache_log, if_that_claim_cannot_be_given_back_flushes_fail_and_it_is_tried_again)
{
    struct study *t = study_create(1, 256, false);
    t->disks[0]->fail_percent = 100;
    t->refuses = true;
    cr_assert_eq(put(t, 0, 65536, BLOCK, 2), BLK_OK);
    cr_expect_eq(flush(t), BLK_GONE);
    t->refuses = false;
    pass(t);
    cr_expect(!t->claimed);
    cr_assert_eq(flush(t), BLK_OK);
    cr_expect_eq(status_of(t).mode, CACHE_NONE);
    study_destroy(t);
}

Test(cache_log, when_one_of_two_dies_the_claim_says_so_before_a_flush_is_answered)
{
    struct study *t = study_create(2, 256, false);
    struct scene_call call = {.req = {.op = BLK_FLUSH}};
    cr_assert_eq(put(t, 0, 65536, BLOCK, 1), BLK_OK);
    cr_assert_eq(flush(t), BLK_OK);
    uint64_t generation = t->generation;
    t->slow = true;
    t->disks[0]->fail_percent = 100;
    cr_assert_eq(put(t, 0, 65536, BLOCK, 2), BLK_OK);
    scene_submit(t->s, &call);
    pass(t);
    cr_assert(t->asked != NULL && t->held);
    cr_expect_gt(t->generation, generation);
    cr_expect(!call.over);
    claim_answer(t);
    cr_assert_eq(scene_wait(t->s, &call), BLK_OK);
    cr_expect_eq(status_of(t).mode, CACHE_LOGGED);
    struct after a = after_cut(t, 1);
    cr_expect_eq(a.result, CACHE_LOG_STALE, "the dead one alone");
    after_over(&a);
    a = after_cut(t, 2);
    cr_assert_eq(a.result, CACHE_LOG_OK);
    cr_expect(has(a.volume->seen, 65536, BLOCK, 2));
    after_over(&a);
    t->slow = false;
    study_destroy(t);
}

Test(cache_log, also_when_the_log_had_to_be_emptied)
{
    struct study *t = study_create(2, LOG_RING_MIN, false);
    struct scene_call call = {.req = {.op = BLK_FLUSH}};
    cr_assert_eq(put(t, 0, 65536, BLOCK, 1), BLK_OK);
    cr_assert_eq(flush(t), BLK_OK);
    t->slow = true;
    t->disks[0]->fail_percent = 100;
    for (unsigned k = 0; k < 40; k++)
        cr_assert_eq(put(t, 0, k * 32768, BLOCK, 100 + k), BLK_OK);
    scene_submit(t->s, &call);
    pass(t);
    cr_expect_eq(log_status(t).emptied, 1);
    cr_assert(t->asked != NULL && t->held);
    cr_expect(!call.over);
    claim_answer(t);
    cr_assert_eq(scene_wait(t->s, &call), BLK_OK);
    struct after a = after_cut(t, 1);
    cr_expect_eq(a.result, CACHE_LOG_STALE);
    after_over(&a);
    cr_expect(survives(t, 65536, BLOCK, 102));
    t->slow = false;
    study_destroy(t);
}

/* --- the end --- */

Test(cache_log, a_clean_end_leaves_an_empty_log_and_no_claim)
{
    struct study *t = study_create(1, 256, false);
    struct log_label label;
    cr_assert_eq(put(t, 0, 65536, BLOCK, 1), BLK_OK);
    cr_assert_eq(flush(t), BLK_OK);
    cr_assert_eq(put(t, 0, 0, BLOCK, 2), BLK_OK);
    cr_assert(t->claimed);
    cache_end(t);
    cr_expect(!t->claimed);
    cr_expect_eq(log_labels_look(t->disks[0]->stable, t->disks[0]->dev.info.size, &label), LOG_CLEAN);
    cr_expect(has(t->s->disk->stable, 65536, BLOCK, 1));
    cr_expect(has(t->s->disk->stable, 0, BLOCK, 2));
    study_destroy(t);
}

Test(cache_log, a_volume_that_takes_nothing_at_the_end_leaves_what_was_flushed_in_the_log)
{
    struct study *t = study_create(1, 256, false);
    cr_assert_eq(put(t, 0, 65536, BLOCK, 1), BLK_OK);
    cr_assert_eq(flush(t), BLK_OK);
    t->s->disk->fail_percent = 100;
    cache_end(t);
    cr_expect(t->claimed);
    cr_expect(survives(t, 65536, BLOCK, 1));
    t->s->disk->fail_percent = 0;
    study_destroy(t);
}

/* All is below when it is closed; then the log dies in a round that was under way, and the volume takes no flush either. */
Test(cache_log, it_is_closed_though_log_and_volume_die_meanwhile)
{
    struct study *t = study_create(1, 1024, false);
    struct waiting w = {.closed.run = closed_run};
    for (unsigned seed = 1; seed <= 2; seed++) {
        for (unsigned k = 0; k < 160; k++)
            cr_assert_eq(put(t, 0, k * BLOCK, BLOCK, seed), BLK_OK);
        if (seed == 1)
            cr_assert_eq(flush(t), BLK_OK);
        t->disks[0]->hold = true;
    }
    testloop_run_ready(t->s->t);
    cache_dev(t->s->cache)->ops->close(cache_dev(t->s->cache), &w.closed);
    pass(t);
    cr_assert(has(t->s->disk->stable, 0, BLOCK, 2), "it is below");
    cr_assert(!w.over, "a round is under way");
    t->s->disk->fail_percent = t->disks[0]->fail_percent = 100;
    trialdisk_release(t->disks[0]);
    for (unsigned i = 0; i < 30 && !w.over; i++)
        pass(t);
    cr_assert(w.over);
    t->s->cache = NULL;
    t->s->disk->fail_percent = t->disks[0]->fail_percent = 0;
    log_over(t);
    study_destroy(t);
}

Test(cache_log, what_was_beyond_the_end_of_a_volume_that_became_shorter_is_not_replayed)
{
    struct study *t = study_create(1, 256, false);
    uint64_t end = SCENE_DISK - 1024 - 65536;
    cr_assert_eq(put(t, 0, end, BLOCK, 1), BLK_OK);
    cr_assert_eq(put(t, 0, end - BLOCK, BLOCK, 2), BLK_OK);
    cr_assert_eq(flush(t), BLK_OK);
    cr_assert_eq(put(t, 0, end + BLOCK, BLOCK, 3), BLK_OK);
    t->s->disk->dev.info.size = end;
    blk_notify(&t->s->disk->dev, BLK_EVENT_RESIZED);
    pass(t);
    struct after a = after_cut(t, 1); /* over one that is as long as before */
    cr_assert_eq(a.result, CACHE_LOG_OK);
    cr_expect(!has(a.volume->seen, end, BLOCK, 1));
    cr_expect(!has(a.volume->seen, end + BLOCK, BLOCK, 3));
    cr_expect(has(a.volume->seen, end - BLOCK, BLOCK, 2));
    after_over(&a);
    study_destroy(t);
}

Test(cache_log, a_durable_write_that_waited_for_room_is_in_the_log_when_it_is_answered)
{
    enum { WRITES = 200 };
    static struct scene_call calls[WRITES];
    struct study *t = study_create(1, 1024, false);
    struct scene_call durable = {0};
    unsigned count = 0;
    t->s->disk->latency_ns = 100000000;
    cache_set_dirty_limit(t->s->cache, 384 * KIB);
    while (count < WRITES && status_of(t).delayed < 8) {
        scene_write(t->s, &calls[count], 0, 8192 * count, BLOCK, count);
        testloop_run_ready(t->s->t);
        t->s->t->loop.now_ns += status_of(t).destage_rate == 0 ? 2000000 : 0;
        testloop_run_ready(t->s->t);
        count++;
    }
    t->disks[0]->hold = true;
    scene_write(t->s, &durable, BLK_FUA, 8192 * WRITES, BLOCK, 1000);
    testloop_run_ready(t->s->t);
    cr_assert_eq(status_of(t).delayed, 9, "%u writes", count);
    cache_set_dirty_limit(t->s->cache, MIB); /* there is room, when the next run has left */
    for (unsigned i = 0; i < 200 && !durable.over; i++) {
        t->s->t->loop.now_ns += 500000;
        testloop_run_ready(t->s->t);
    }
    cr_expect(!durable.over, "it is not in the log");
    trialdisk_release(t->disks[0]);
    cr_expect_eq(scene_wait(t->s, &durable), BLK_OK);
    for (unsigned i = 0; i < count; i++) {
        scene_wait(t->s, &calls[i]);
        scene_call_over(&calls[i]);
    }
    scene_call_over(&durable);
    study_destroy(t);
}

/* All groups are under way when the first block of a line is to be put: it is, when there is one again. */
Test(cache_log, a_round_that_has_to_wait_at_the_beginning_of_a_line_does_not_forget_it)
{
    enum { GROUPS = 8, PART = 256 * 1024 };
    static struct scene_call calls[SCENE_DISK / PART + 1], sync;
    cache_bytes = 8 * MIB;
    struct study *t = study_create(1, 4096, false);
    unsigned count = 0;
    t->s->disk->hold = true;
    for (uint64_t off = 0; off < SCENE_DISK; off += PART, count++) {
        scene_write(t->s, &calls[count], 0, off, MIN(PART, SCENE_DISK - off), count);
        cr_assert_eq(scene_wait(t->s, &calls[count]), BLK_OK);
        scene_call_over(&calls[count]);
    }
    cr_assert_eq(status_of(t).dirty_bytes / BLOCK, GROUPS * LOG_DATA_MAX + 1);
    t->disks[0]->hold = true;
    sync.req = (struct blk_req){.op = BLK_FLUSH};
    scene_submit(t->s, &sync);
    testloop_run_ready(t->s->t);
    cr_expect_eq(log_status(t).blocks, GROUPS * LOG_DATA_MAX);
    trialdisk_release(t->disks[0]);
    testloop_run_ready(t->s->t);
    cr_expect_eq(log_status(t).blocks, GROUPS * LOG_DATA_MAX + 1);
    trialdisk_release(t->s->disk);
    cr_expect_eq(scene_wait(t->s, &sync), BLK_OK);
    study_destroy(t);
}
