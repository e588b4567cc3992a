/* A cache over an arena: what is published when, and what the next cache over it makes of that. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "cache/arena.h"
#include "core/check.h"
#include "tests/unit/cache/scene.h"

enum { BYTES = 256 * 1024 };
#define SECOND 1000000000ull

struct stand {
    struct arena_memory memory;
    struct arena *arena;
    struct cache_options options;
    struct scene *s;
    struct cache_owner owner;
    bool claimed;
};

static const struct arena_identity identity = {.name = "stand"};

static void on_persist(struct arena_memory *memory, uint64_t off, uint64_t len)
{
    (void)memory;
    (void)off;
    (void)len;
}

static void on_change(struct cache_owner *owner, struct cache *cache)
{
    (void)owner;
    (void)cache;
}

static void on_claim(struct cache_owner *owner, struct cache *cache, bool held)
{
    container_of(owner, struct stand, owner)->claimed = held;
    cache_claimed(cache, held, true);
}

static void no_task(struct task *task)
{
    (void)task;
}

static struct stand *stand_create(enum cache_protection protection)
{
    struct stand *t = calloc(1, sizeof *t);
    uint64_t bytes = arena_bytes(BYTES);
    t->memory = (struct arena_memory){.base = aligned_alloc(PAGE_BYTES, bytes), .bytes = bytes};
    t->memory.persist = protection == CACHE_PROTECT_PMEM ? on_persist : NULL;
    t->arena = arena_create(&t->memory, &identity, BYTES);
    t->owner = (struct cache_owner){.changed = on_change, .claim = on_claim};
    t->options = (struct cache_options){.name = "stand",
                                        .bytes = BYTES,
                                        .readahead = READAHEAD_NONE,
                                        .write_back = true,
                                        .protection = protection,
                                        .low_percent = 90,
                                        .high_percent = 95,
                                        .age_ms = 3600000,
                                        .idle_ms = 3600000,
                                        .owner = &t->owner,
                                        .arena = t->arena};
    t->s = scene_create(&t->options);
    testloop_run_ready(t->s->t);
    return t;
}

static void stand_close(struct stand *t)
{
    scene_destroy(t->s);
    arena_close(t->arena);
    free(t->memory.base);
    free(t);
}

static enum blk_status change(struct stand *t, enum blk_op op, uint64_t off, uint64_t seed)
{
    uint8_t bytes[4096];
    test_fill(bytes, sizeof bytes, seed);
    return test_io(t->s->t, cache_dev(t->s->cache), op, 0, off, op == BLK_WRITE ? bytes : NULL, sizeof bytes);
}

static void put(struct stand *t, uint64_t off, uint64_t seed)
{
    cr_assert_eq(change(t, BLK_WRITE, off, seed), BLK_OK);
}

static bool reads(struct stand *t, uint64_t off, uint64_t seed)
{
    uint8_t bytes[4096], is[4096];
    test_fill(bytes, sizeof bytes, seed);
    cr_assert_eq(test_io(t->s->t, cache_dev(t->s->cache), BLK_READ, 0, off, is, sizeof is), BLK_OK);
    return memcmp(bytes, is, sizeof is) == 0;
}

static bool is_stable(const struct stand *t, uint64_t off, uint64_t seed)
{
    uint8_t bytes[4096];
    test_fill(bytes, sizeof bytes, seed);
    return memcmp(t->s->disk->stable + off, bytes, sizeof bytes) == 0;
}

static struct cache_status status_of(const struct stand *t)
{
    struct cache_status status;
    cache_status(t->s->cache, &status);
    return status;
}

static void pass(struct stand *t, uint64_t ns)
{
    uint64_t end = t->s->t->loop.now_ns + ns;
    while (testloop_run_ready(t->s->t), loop_next_timer_ns(&t->s->t->loop) <= end)
        t->s->t->loop.now_ns = MAX(t->s->t->loop.now_ns, loop_next_timer_ns(&t->s->t->loop));
    t->s->t->loop.now_ns = end;
}

static void drain(struct stand *t)
{
    struct scene_call call;
    scene_drain(t->s, &call);
    cr_assert_eq(scene_wait(t->s, &call), BLK_OK);
}

/* Another life over what this one leaves, with the disk as it is and rows of another length. */
static struct stand *stand_after(const struct stand *before, uint32_t row, uint64_t size)
{
    struct stand *t = calloc(1, sizeof *t);
    *t = *before;
    t->memory.base = aligned_alloc(PAGE_BYTES, t->memory.bytes);
    memcpy(t->memory.base, before->memory.base, t->memory.bytes);
    t->arena = arena_open(&t->memory, false);
    cr_assert(t->arena != NULL);
    t->options.arena = t->arena;
    t->options.owner = &t->owner;
    t->options.bytes = 2 * BYTES; /* not asked */
    t->options.claimed = t->claimed;
    t->s = scene_create(NULL);
    test_close(t->s->t, cache_dev(t->s->cache));
    memset(t->s->disk->requests, 0, sizeof t->s->disk->requests);
    memcpy(t->s->disk->seen, before->s->disk->seen, SCENE_DISK);
    memcpy(t->s->disk->stable, before->s->disk->stable, SCENE_DISK);
    t->s->disk->dev.info.optimal_io = row;
    t->s->disk->dev.info.size = size;
    t->s->cache = cache_create(&t->s->disk->dev, &t->options);
    cr_assert(t->s->cache != NULL);
    return t;
}

Test(cache_arena, what_is_dirty_is_published_and_withdrawn_when_it_is_below)
{
    struct stand *t = stand_create(CACHE_PROTECT_FORCED);
    cr_assert(t->claimed);
    put(t, 0, 1);
    put(t, 4096, 2);
    put(t, 0, 3);
    cr_expect_eq(arena_published(t->arena), 2);
    t->s->disk->hold = true;
    struct scene_call call;
    scene_drain(t->s, &call);
    testloop_run_ready(t->s->t);
    cr_expect_eq(arena_published(t->arena), 2, "while it leaves");
    trialdisk_release(t->s->disk);
    cr_assert_eq(scene_wait(t->s, &call), BLK_OK);
    cr_expect_eq(arena_published(t->arena), 0);
    stand_close(t);
}

Test(cache_arena, the_next_cache_has_what_the_last_one_had)
{
    struct stand *t = stand_create(CACHE_PROTECT_FORCED);
    for (unsigned i = 0; i < 20; i++)
        put(t, i * 8192, i);
    struct stand *next = stand_after(t, SCENE_ROW, SCENE_DISK);
    cr_expect_eq(status_of(next).bytes, BYTES, "the arena's");
    cr_expect_eq(status_of(next).mode, CACHE_SAFE);
    cr_expect_eq(status_of(next).recovered_bytes, 20 * 4096);
    cr_expect_eq(status_of(next).dirty_bytes, 20 * 4096);
    for (unsigned i = 0; i < 20; i++)
        cr_expect(reads(next, i * 8192, i), "block %u", i);
    cr_expect_eq(next->s->disk->requests[BLK_READ], 0);
    cr_expect_eq(arena_published(next->arena), 20);
    drain(next);
    cr_expect_eq(arena_published(next->arena), 0);
    for (unsigned i = 0; i < 20; i++)
        cr_expect(is_stable(next, i * 8192, i), "block %u", i);
    stand_close(next);
    stand_close(t);
}

/* Each block in a line of its own: more lines than a quarter of the blocks. */
Test(cache_arena, rows_may_have_another_length_then)
{
    struct stand *t = stand_create(CACHE_PROTECT_FORCED);
    t->s->disk->dev.info.optimal_io = 4 * MIB;
    struct stand *wide = stand_after(t, 4 * MIB, SCENE_DISK);
    for (unsigned i = 0; i < 16; i++)
        for (unsigned k = 0; k < 2; k++)
            put(wide, i * 262144 + k * 4096, i);
    struct stand *next = stand_after(wide, 0, SCENE_DISK);
    cr_expect_eq(status_of(next).dirty_bytes, 32 * 4096);
    put(next, 8192, 99);
    drain(next);
    for (unsigned i = 0; i < 16; i++)
        cr_expect(is_stable(next, i * 262144 + 4096, i), "block %u", i);
    stand_close(next);
    stand_close(wide);
    stand_close(t);
}

Test(cache_arena, what_lies_beyond_a_shorter_volume_is_dropped_and_counted)
{
    struct stand *t = stand_create(CACHE_PROTECT_FORCED);
    put(t, 0, 1);
    put(t, 65536, 2);
    put(t, 131072, 3);
    struct stand *next = stand_after(t, SCENE_ROW, 65536 + 1024);
    struct cache_status status = status_of(next);
    cr_expect_eq(status.recovered_bytes, 4096 + 1024);
    cr_expect_eq(status.recovered_beyond_bytes, 3072 + 4096);
    cr_expect_eq(arena_published(next->arena), 2);
    drain(next);
    cr_expect(is_stable(next, 0, 1));
    stand_close(next);
    stand_close(t);
}

Test(cache_arena, a_protection_that_promises_nothing_any_more_empties_it_and_gives_back_the_claim)
{
    struct stand *t = stand_create(CACHE_PROTECT_FORCED);
    put(t, 0, 1);
    t->options.write_back = false;
    struct stand *next = stand_after(t, SCENE_ROW, SCENE_DISK);
    cr_expect(next->claimed);
    pass(next, SECOND);
    cr_expect(!next->claimed && is_stable(next, 0, 1));
    cr_expect_eq(arena_published(next->arena), 0);
    stand_close(next);
    stand_close(t);
}

Test(cache_arena, what_cannot_be_written_at_the_end_stays_there)
{
    struct stand *t = stand_create(CACHE_PROTECT_FORCED);
    put(t, 0, 1);
    t->s->disk->fail_percent = 100;
    test_close(t->s->t, cache_dev(t->s->cache));
    t->s->cache = NULL;
    cr_expect(t->claimed);
    cr_expect_eq(arena_published(t->arena), 1);
    struct stand *next = stand_after(t, SCENE_ROW, SCENE_DISK);
    cr_expect(reads(next, 0, 1));
    stand_close(next);
    cr_expect(t->claimed);
    stand_close(t);
}

Test(cache_arena, what_is_kept_while_nothing_is_promised_is_not_published_and_leaves_before_something_is_again)
{
    struct stand *t = stand_create(CACHE_PROTECT_FORCED);
    t->options.protection = CACHE_PROTECT_BATTERY;
    t->options.flush_when_bad = true;
    t->claimed = false;
    struct stand *bad = stand_after(t, SCENE_ROW, SCENE_DISK);
    cr_assert_eq(status_of(bad).mode, CACHE_NONE);
    put(bad, 0, 1);
    cr_expect_eq(arena_published(bad->arena), 0);
    bad->s->disk->hold = true;
    cache_set_power(bad->s->cache, true);
    put(bad, 4096, 2);
    cr_expect_eq(arena_published(bad->arena), 1, "from now on");
    cr_expect(status_of(bad).mode == CACHE_NONE && !bad->claimed, "what was written before could be lost");
    trialdisk_release(bad->s->disk);
    pass(bad, SECOND);
    cr_expect(status_of(bad).mode == CACHE_SAFE && bad->claimed);
    cr_expect(is_stable(bad, 0, 1));
    stand_close(bad);
    stand_close(t);
}

/* --- memory that outlives power --- */

Test(cache_arena, what_was_destaged_stays_published_until_a_flush)
{
    struct stand *t = stand_create(CACHE_PROTECT_PMEM);
    cr_assert_eq(status_of(t).mode, CACHE_SAFE);
    t->options.idle_ms = 1;
    struct stand *next = stand_after(t, SCENE_ROW, SCENE_DISK);
    put(next, 0, 1);
    pass(next, SECOND / 2);
    cr_expect_eq(next->s->disk->requests[BLK_WRITE], 1);
    cr_expect_eq(status_of(next).dirty_bytes, 0);
    cr_expect_eq(status_of(next).settling_bytes, 4096);
    cr_expect_eq(arena_published(next->arena), 1);
    cr_expect_eq(next->s->disk->requests[BLK_FLUSH], 0);
    pass(next, SECOND);
    cr_expect_eq(next->s->disk->requests[BLK_FLUSH], 1, "unasked");
    cr_expect_eq(arena_published(next->arena), 0);
    cr_expect(is_stable(next, 0, 1));
    pass(next, SECOND);
    cr_expect_eq(loop_next_timer_ns(&next->s->t->loop), UINT64_MAX, "and then nothing more");
    stand_close(next);
    stand_close(t);
}

Test(cache_arena, when_an_eighth_of_the_room_is_settling_a_flush_comes_at_once)
{
    struct stand *t = stand_create(CACHE_PROTECT_PMEM);
    t->options.age_ms = 1;
    t->options.idle_ms = 1;
    struct stand *next = stand_after(t, SCENE_ROW, SCENE_DISK);
    for (unsigned i = 0; i < 5; i++)
        put(next, i * 4096, i);
    cr_assert_eq(status_of(next).dirty_limit / 4096 / 8, 6);
    pass(next, SECOND / 10);
    cr_expect_eq(status_of(next).settling_bytes, 5 * 4096);
    for (unsigned i = 5; i < 7; i++)
        put(next, i * 4096, i);
    pass(next, SECOND / 10);
    cr_expect_eq(next->s->disk->requests[BLK_FLUSH], 1);
    cr_expect_eq(arena_published(next->arena), 0);
    stand_close(next);
    stand_close(t);
}

Test(cache_arena, what_is_destaged_again_during_a_flush_waits_for_the_next_one)
{
    struct stand *t = stand_create(CACHE_PROTECT_PMEM);
    t->options.age_ms = 1;
    t->options.idle_ms = 1;
    struct stand *next = stand_after(t, SCENE_ROW, SCENE_DISK);
    struct trialdisk *disk = next->s->disk;
    for (unsigned i = 0; i < 7; i++)
        put(next, i * 4096, i);
    disk->hold = true;
    while (disk->requests[BLK_WRITE] == 0)
        pass(next, SECOND / 100);
    trialdisk_release(disk);
    disk->hold = true;
    while (disk->requests[BLK_FLUSH] == 0)
        pass(next, SECOND / 100);
    disk->hold = false;
    put(next, 0, 99);
    while (disk->requests[BLK_WRITE] == 1)
        pass(next, SECOND / 100);
    cr_expect_eq(arena_published(next->arena), 7);
    trialdisk_release(disk);
    pass(next, SECOND / 100);
    cr_expect_eq(arena_published(next->arena), 1, "%lu", arena_published(next->arena));
    cr_expect(!is_stable(next, 0, 99));
    pass(next, SECOND);
    cr_expect_eq(arena_published(next->arena), 0);
    cr_expect(is_stable(next, 0, 99));
    stand_close(next);
    stand_close(t);
}

Test(cache_arena, what_a_failed_flush_should_have_covered_is_written_again)
{
    struct stand *t = stand_create(CACHE_PROTECT_PMEM);
    t->options.idle_ms = 1;
    struct stand *next = stand_after(t, SCENE_ROW, SCENE_DISK);
    put(next, 0, 1);
    next->s->disk->fail_percent = 100;
    next->s->disk->fail_ops = 1u << BLK_FLUSH;
    pass(next, SECOND * 3 / 2);
    cr_expect_eq(next->s->disk->requests[BLK_FLUSH], 1);
    cr_expect_eq(next->s->disk->requests[BLK_WRITE], 2);
    cr_expect_eq(arena_published(next->arena), 1);
    next->s->disk->fail_percent = 0;
    pass(next, SECOND);
    cr_expect_eq(arena_published(next->arena), 0);
    cr_expect(is_stable(next, 0, 1));
    stand_close(next);
    stand_close(t);
}

Test(cache_arena, a_discard_is_durable_before_what_was_dirty_is_withdrawn)
{
    struct stand *t = stand_create(CACHE_PROTECT_PMEM);
    struct scene_call call = {.req = {.op = BLK_DISCARD, .off = 0, .len = 4096}};
    put(t, 0, 1);
    t->s->disk->hold = true;
    scene_submit(t->s, &call);
    testloop_run_ready(t->s->t);
    trialdisk_release(t->s->disk);
    t->s->disk->hold = true;
    testloop_run_ready(t->s->t);
    cr_expect_eq(t->s->disk->requests[BLK_FLUSH], 1);
    cr_expect(!call.over);
    cr_expect_eq(arena_published(t->arena), 1, "it is not flushed yet");
    trialdisk_release(t->s->disk);
    cr_expect_eq(scene_wait(t->s, &call), BLK_OK);
    cr_expect_eq(arena_published(t->arena), 0);
    cr_expect_eq(t->s->disk->stable[0], 0);
    stand_close(t);
}

Test(cache_arena, a_drain_is_not_over_while_what_a_flush_failed_for_is_dirty_again)
{
    struct stand *t = stand_create(CACHE_PROTECT_PMEM);
    t->options.idle_ms = 1;
    struct stand *next = stand_after(t, SCENE_ROW, SCENE_DISK);
    struct trialdisk *disk = next->s->disk;
    put(next, 0, 1);
    pass(next, SECOND / 2);
    cr_assert_eq(status_of(next).settling_bytes, 4096);
    disk->hold = true;
    pass(next, SECOND);
    cr_assert_eq(disk->requests[BLK_FLUSH], 1);
    for (unsigned i = 0; i < TRIAL_SLOTS; i++)
        if (disk->slots[i].req != NULL)
            disk->slots[i].req->status = BLK_GONE;
    struct task closed = {.run = no_task};
    blk_close(cache_dev(next->s->cache), &closed);
    trialdisk_release(disk);
    testloop_run(next->s->t);
    next->s->cache = NULL;
    cr_expect_eq(arena_published(next->arena), 0);
    cr_expect(!next->claimed && is_stable(next, 0, 1));
    stand_close(next);
    stand_close(t);
}

/* Or what is here and what is below would be different bytes, and nothing would tell. */
Test(cache_arena, what_was_settling_is_written_again_after_a_change_that_failed)
{
    struct stand *t = stand_create(CACHE_PROTECT_PMEM);
    t->options.idle_ms = 1;
    struct stand *next = stand_after(t, SCENE_ROW, SCENE_DISK);
    put(next, 0, 1);
    pass(next, SECOND / 2);
    cr_assert_eq(status_of(next).settling_bytes, 4096);
    next->s->disk->fail_percent = 100;
    next->s->disk->fail_ops = 1u << BLK_DISCARD;
    cr_expect_eq(change(next, BLK_DISCARD, 0, 0), BLK_GONE);
    cr_expect_eq(status_of(next).dirty_bytes, 4096);
    cr_expect_eq(arena_published(next->arena), 1);
    drain(next);
    cr_expect(reads(next, 0, 1) && is_stable(next, 0, 1));
    stand_close(next);
    stand_close(t);
}

Test(cache_arena, nothing_is_allocated_on_the_way)
{
    struct stand *t = stand_create(CACHE_PROTECT_FORCED);
    static struct scene_call call;
    uint64_t before = test_allocations();
    for (unsigned i = 0; i < 200; i++) {
        call.req = (struct blk_req){.op = BLK_WRITE, .off = i % 10 * 8192, .len = 8192, .pages = call.pages};
        cr_assert(page_pool_get(t->s->t->loop.pages, call.pages, 2));
        scene_submit(t->s, &call);
        cr_assert_eq(scene_wait(t->s, &call), BLK_OK);
        scene_call_over(&call);
        if (i % 50 == 49)
            drain(t);
    }
    cr_expect_leq(test_allocations() - before, 4, "a flush of the trial disk each: %lu", test_allocations() - before);
    cr_expect_eq(arena_published(t->arena), 0);
    stand_close(t);
}
