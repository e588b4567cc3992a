/* The claim: promises on the strength of an arena are made only while it stands, and it is given back when none is left. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "cache/arena.h"
#include "core/check.h"
#include "tests/unit/cache/scene.h"

struct notary {
    struct cache_owner owner;
    struct cache *cache;
    bool answers, refuses; /* at once; not ok */
    bool asked, held;      /* what is not answered yet */
    bool stands;
    unsigned questions;
    struct arena_memory memory;
    struct arena *arena;
};

static void notary_answer(struct notary *n)
{
    bool held = n->held;
    cr_assert(n->asked);
    n->asked = false;
    n->stands = n->refuses ? n->stands : held;
    cache_claimed(n->cache, held, !n->refuses);
}

static void on_claim(struct cache_owner *owner, struct cache *cache, bool held)
{
    struct notary *n = container_of(owner, struct notary, owner);
    cr_assert(!n->asked, "one question at a time");
    n->asked = true;
    n->held = held;
    n->cache = cache;
    n->questions++;
    if (n->answers)
        notary_answer(n);
}

static void on_change(struct cache_owner *owner, struct cache *cache)
{
    (void)owner;
    (void)cache;
}

static struct scene *scene_with(struct notary *n, enum cache_protection protection, bool claimed)
{
    static const struct arena_identity identity = {.name = "tank/claim"};
    n->memory.bytes = arena_bytes(1024 * KIB);
    n->memory.base = aligned_alloc(PAGE_BYTES, n->memory.bytes);
    n->arena = arena_create(&n->memory, &identity, 1024 * KIB);
    cr_assert(n->arena != NULL);
    struct cache_options o = {.name = "claim",
                              .bytes = 1024 * KIB,
                              .write_back = true,
                              .protection = protection,
                              .owner = &n->owner,
                              .arena = n->arena,
                              .claimed = claimed};
    n->owner = (struct cache_owner){.changed = on_change, .claim = on_claim};
    n->stands = claimed;
    return scene_create(&o);
}

static void scene_over(struct notary *n, struct scene *s)
{
    scene_destroy(s);
    arena_close(n->arena);
    free(n->memory.base);
}

static struct cache_status status_of(struct scene *s)
{
    struct cache_status status;
    cache_status(s->cache, &status);
    return status;
}

static void put(struct scene *s, uint64_t off)
{
    uint8_t bytes[4096];
    test_fill(bytes, sizeof bytes, off);
    cr_assert_eq(test_io(s->t, cache_dev(s->cache), BLK_WRITE, 0, off, bytes, sizeof bytes), BLK_OK);
}

Test(cache_claim, until_it_stands_nothing_is_promised)
{
    struct notary n = {0};
    struct scene *s = scene_with(&n, CACHE_PROTECT_FORCED, false);
    cr_expect(!n.asked, "not from within a call");
    testloop_run_ready(s->t);
    cr_assert(n.asked && n.held);
    cr_expect_eq(status_of(s).mode, CACHE_STRICT);
    cr_expect(!status_of(s).claimed && status_of(s).reason != NULL);
    put(s, 0);
    cr_expect_eq(s->disk->requests[BLK_WRITE], 1, "durable below");
    notary_answer(&n);
    cr_expect_eq(status_of(s).mode, CACHE_SAFE);
    cr_expect(status_of(s).claimed && status_of(s).reason == NULL);
    put(s, 0);
    cr_expect_eq(s->disk->requests[BLK_WRITE], 1, "kept");
    n.answers = true;
    scene_over(&n, s);
    cr_expect(!n.stands, "given back by a clean end");
    cr_expect_eq(n.questions, 2);
}

Test(cache_claim, it_is_given_back_when_safe_was_left_and_all_is_below_and_flushed)
{
    struct notary n = {.answers = true};
    struct scene *s = scene_with(&n, CACHE_PROTECT_BATTERY, false);
    testloop_run_ready(s->t);
    cr_expect_eq(n.questions, 0, "the battery is not healthy");
    cache_set_power(s->cache, true);
    testloop_run_ready(s->t);
    cr_assert(n.stands);
    put(s, 131072);
    s->disk->hold = true;
    cache_set_power(s->cache, false);
    testloop_run_ready(s->t);
    cr_expect(n.stands, "what is dirty is on its way");
    trialdisk_release(s->disk);
    testloop_run(s->t);
    cr_expect(!n.stands);
    cr_expect_eq(s->disk->requests[BLK_FLUSH], 1);
    cr_expect_eq(status_of(s).mode, CACHE_STRICT);
    scene_over(&n, s);
    cr_expect_eq(n.questions, 2);
}

Test(cache_claim, power_that_comes_and_goes_while_the_owner_thinks)
{
    struct notary n = {0};
    struct scene *s = scene_with(&n, CACHE_PROTECT_BATTERY, false);
    cache_set_power(s->cache, true);
    testloop_run_ready(s->t);
    cr_assert(n.asked && n.held);
    cache_set_power(s->cache, false);
    notary_answer(&n);
    cr_expect_eq(status_of(s).mode, CACHE_STRICT);
    testloop_run_ready(s->t);
    cr_assert(n.asked && !n.held, "it came too late");
    cache_set_power(s->cache, true);
    testloop_run_ready(s->t);
    cr_expect_eq(status_of(s).mode, CACHE_STRICT, "it is being given back");
    notary_answer(&n);
    testloop_run_ready(s->t);
    cr_assert(n.asked && n.held);
    notary_answer(&n);
    cr_expect_eq(status_of(s).mode, CACHE_SAFE);
    n.answers = true;
    scene_over(&n, s);
}

Test(cache_claim, an_owner_that_cannot_is_asked_again_in_a_while)
{
    struct notary n = {.answers = true, .refuses = true};
    struct scene *s = scene_with(&n, CACHE_PROTECT_FORCED, false);
    testloop_run_ready(s->t);
    cr_expect_eq(n.questions, 1);
    cr_expect_eq(status_of(s).mode, CACHE_STRICT);
    cr_expect(strstr(status_of(s).reason, "could not be noted") != NULL, "%s", status_of(s).reason);
    n.refuses = false;
    testloop_run(s->t);
    cr_expect_eq(n.questions, 2);
    cr_expect_eq(status_of(s).mode, CACHE_SAFE);
    n.refuses = true;
    scene_over(&n, s);
    cr_expect(n.stands, "the end does not wait for what cannot be");
    cr_expect_eq(n.questions, 3);
}

Test(cache_claim, one_from_the_last_time_is_kept_or_given_back)
{
    struct notary n = {.answers = true};
    struct scene *s = scene_with(&n, CACHE_PROTECT_FORCED, true);
    cr_expect_eq(status_of(s).mode, CACHE_SAFE, "at once");
    scene_over(&n, s);
    cr_expect_eq(n.questions, 1);
    n.questions = 0;
    s = scene_with(&n, CACHE_PROTECT_NONE, true);
    testloop_run(s->t);
    cr_expect(!n.stands, "the protection is another one now");
    scene_over(&n, s);
    cr_expect_eq(n.questions, 1);
}

Test(cache_claim, what_could_not_be_written_keeps_it)
{
    struct notary n = {.answers = true};
    struct scene *s = scene_with(&n, CACHE_PROTECT_FORCED, false);
    testloop_run_ready(s->t);
    put(s, 0);
    s->disk->fail_percent = 100;
    test_close(s->t, cache_dev(s->cache));
    s->cache = NULL;
    cr_expect(n.stands);
    s->disk->fail_percent = 0;
    scene_over(&n, s);
}
