/* Reads through a cache: hits by reference, misses fetched once, errors for the bytes that were asked for. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "cache/arena.h"
#include "cache/block.h"
#include "core/check.h"
#include "tests/unit/cache/scene.h"

enum { PAGES = 64 };

Test(cache_read, a_second_read_is_answered_by_reference)
{
    struct scene *s = scene_create(NULL);
    struct scene_call a = {0}, b = {0};
    scene_read(s, &a, 8192, 8192);
    cr_assert_eq(scene_wait(s, &a), BLK_OK);
    scene_read(s, &b, 4096 * 2 + 512, 1024);
    cr_assert_eq(scene_wait(s, &b), BLK_OK);
    cr_expect_eq(s->disk->requests[BLK_READ], 1);
    cr_expect_eq(a.pages[0], b.pages[0], "the same page");
    cr_expect_eq(a.pages[0]->refs, 3, "the cache's and two readers'");
    cr_expect(scene_call_reads(s, &a) && scene_call_reads(s, &b));
    struct cache_status status;
    cache_status(s->cache, &status);
    cr_expect_eq(status.hits, 1);
    cr_expect_eq(status.misses, 1);
    scene_call_over(&a);
    scene_call_over(&b);
    scene_destroy(s);
}

Test(cache_read, several_readers_of_one_block_wait_for_one_fetch)
{
    struct scene *s = scene_create(NULL);
    struct scene_call calls[5] = {0};
    s->disk->hold = true;
    for (unsigned i = 0; i < 5; i++)
        scene_read(s, &calls[i], 4096 * i, 4096 * 3);
    testloop_run(s->t);
    cr_expect_eq(trialdisk_held(s->disk), 5, "one for the first three, then one more each: %u",
                 trialdisk_held(s->disk));
    trialdisk_release(s->disk);
    for (unsigned i = 0; i < 5; i++) {
        cr_assert_eq(scene_wait(s, &calls[i]), BLK_OK);
        cr_expect(scene_call_reads(s, &calls[i]));
        scene_call_over(&calls[i]);
    }
    cr_expect_eq(s->disk->bytes[BLK_READ], 7 * 4096, "every block once: %lu", s->disk->bytes[BLK_READ]);
    scene_destroy(s);
}

Test(cache_read, a_page_that_a_reader_still_sends_is_not_written_into)
{
    struct scene *s = scene_create(NULL);
    struct scene_call a = {0};
    uint8_t bytes[4096], was[4096];
    scene_read(s, &a, 0, 4096);
    cr_assert_eq(scene_wait(s, &a), BLK_OK);
    memcpy(was, a.pages[0]->data, sizeof was);
    test_fill(bytes, sizeof bytes, 99);
    cr_assert_eq(test_io(s->t, cache_dev(s->cache), BLK_WRITE, 0, 0, bytes, 4096), BLK_OK);
    cr_expect_eq(memcmp(was, a.pages[0]->data, sizeof was), 0);
    scene_call_over(&a);
    scene_read(s, &a, 0, 4096);
    cr_assert_eq(scene_wait(s, &a), BLK_OK);
    cr_expect_eq(memcmp(bytes, a.pages[0]->data, sizeof bytes), 0, "the next reader has the new bytes");
    cr_expect_eq(s->disk->requests[BLK_READ], 1, "... from memory");
    scene_call_over(&a);
    scene_destroy(s);
}

Test(cache_read, an_error_is_told_to_those_who_asked_for_the_bytes)
{
    struct scene *s = scene_create(NULL);
    struct scene_call bad = {0}, good = {0};
    s->disk->bad_off = 4096 + 1024;
    s->disk->bad_len = 512;
    scene_read(s, &bad, 0, 16384);
    scene_read(s, &good, 4096, 1024); /* waits for the same fetch */
    cr_expect_eq(scene_wait(s, &bad), BLK_MEDIA);
    cr_expect_eq(bad.req.bad_off, 4096 + 1024);
    cr_expect_eq(scene_wait(s, &good), BLK_OK);
    cr_expect(scene_call_reads(s, &good));
    scene_call_over(&bad);
    scene_call_over(&good);
    s->disk->bad_len = 0;
    scene_destroy(s);
}

Test(cache_read, when_readers_hold_all_pages_reads_pass_by_and_are_right)
{
    struct cache_options options = {.name = "small", .bytes = CACHE_BYTES_MIN, .readahead = READAHEAD_NONE};
    enum { CALLS = CACHE_BYTES_MIN / PAGE_BYTES + 8 };
    static struct scene_call calls[CALLS];
    struct scene *s = scene_create(&options);
    for (unsigned i = 0; i < CALLS; i++) {
        scene_read(s, &calls[i], 4096ull * i, 4096);
        cr_assert_eq(scene_wait(s, &calls[i]), BLK_OK);
    }
    for (unsigned i = 0; i < CALLS; i++) {
        cr_expect(scene_call_reads(s, &calls[i]), "block %u", i);
        scene_call_over(&calls[i]);
    }
    struct cache_status status;
    cache_status(s->cache, &status);
    cr_expect_eq(status.passed_by, 8, "%lu", status.passed_by);
    scene_destroy(s);
}

Test(cache_read, the_ragged_end_of_a_volume_is_read_and_kept)
{
    struct scene *s = scene_create(NULL);
    struct scene_call a = {0};
    uint64_t size = s->disk->dev.info.size;
    cr_assert_neq(size % PAGE_BYTES, 0);
    for (unsigned i = 0; i < 2; i++) {
        scene_read(s, &a, size - 1024, 1024);
        cr_assert_eq(scene_wait(s, &a), BLK_OK);
        cr_expect(scene_call_reads(s, &a));
        scene_call_over(&a);
    }
    cr_expect_eq(s->disk->requests[BLK_READ], 1);
    scene_destroy(s);
}

Test(cache_read, administration_is_below_two_percent)
{
    for (uint64_t bytes = 16 * MIB; bytes <= 256 * MIB; bytes *= 16) {
        struct cache_options options = {.name = "size", .bytes = bytes};
        struct scene *s = scene_create(&options);
        struct cache_status status;
        cache_status(s->cache, &status);
        cr_expect_lt(status.overhead_bytes * 1000, 16 * bytes, "%lu of %lu", status.overhead_bytes, bytes);
        scene_destroy(s);
        static const struct arena_identity identity = {.name = "size"};
        struct arena_memory memory = {.bytes = arena_bytes(bytes)};
        memory.base = aligned_alloc(PAGE_BYTES, memory.bytes);
        options.arena = arena_create(&memory, &identity, bytes);
        s = scene_create(&options);
        cache_status(s->cache, &status);
        cr_expect_lt(status.overhead_bytes * 100, 2 * bytes, "with the headers in the arena: %lu of %lu",
                     status.overhead_bytes, bytes);
        scene_destroy(s);
        arena_close(options.arena);
        free(memory.base);
    }
}

Test(cache_read, nothing_is_allocated_on_the_way)
{
    struct scene *s = scene_create(NULL);
    static struct scene_call calls[32];
    uint64_t before = test_allocations();
    for (unsigned round = 0; round < 8; round++)
        for (unsigned i = 0; i < 32; i++) {
            scene_read(s, &calls[i], 16384ull * ((i * 7 + round) % 128), 16384);
            cr_assert_eq(scene_wait(s, &calls[i]), BLK_OK);
            scene_call_over(&calls[i]);
        }
    cr_expect_eq(test_allocations(), before);
    scene_destroy(s);
}

Test(cache_read, what_the_volume_says_of_a_range_is_passed_on)
{
    struct scene *s = scene_create(NULL);
    struct scene_call a = {.req = {.op = BLK_STATUS, .off = 4096, .len = 65536}};
    scene_submit(s, &a);
    cr_assert_eq(scene_wait(s, &a), BLK_OK);
    cr_expect(a.req.written && a.req.extent == 65536);
    scene_destroy(s);
}

Test(cache_read, a_shorter_volume_forgets_what_was_beyond)
{
    struct scene *s = scene_create(NULL);
    struct scene_call a = {0};
    uint64_t size = s->disk->dev.info.size;
    scene_read(s, &a, size - 8192, 8192);
    cr_assert_eq(scene_wait(s, &a), BLK_OK);
    scene_call_over(&a);
    s->disk->dev.info.size = size - 8192;
    blk_notify(&s->disk->dev, BLK_EVENT_RESIZED);
    cr_expect_eq(cache_dev(s->cache)->info.size, size - 8192);
    s->disk->dev.info.size = size;
    blk_notify(&s->disk->dev, BLK_EVENT_RESIZED);
    test_fill(s->disk->seen + size - 8192, 8192, 5);
    scene_read(s, &a, size - 4096, 4096);
    cr_assert_eq(scene_wait(s, &a), BLK_OK);
    cr_expect(scene_call_reads(s, &a), "not what was there before");
    scene_call_over(&a);
    scene_destroy(s);
}

/* In whole blocks, in parts of one, in many: each page is the cache's own, given by reference. */
Test(cache_read, a_hit_copies_no_page_and_asks_for_no_memory)
{
    static const struct {
        uint64_t off, len;
    } reads[] = {{0, 4096}, {4096 * 7 + 512, 1024}, {4096 * 3 + 1024, 3072}, {4096 * 5, 65536}, {512, 4096 * 60}};
    static struct scene_call all, hit;
    struct scene *s = scene_create(NULL);
    scene_read(s, &all, 0, 4096ull * PAGES);
    cr_assert_eq(scene_wait(s, &all), BLK_OK);
    uint64_t allocations = test_allocations(), asked = s->disk->requests[BLK_READ];
    uint32_t free_pages = page_pool_free(s->t->loop.pages);
    for (unsigned i = 0; i < ARRAY_LENGTH(reads); i++) {
        scene_read(s, &hit, reads[i].off, reads[i].len);
        cr_assert_eq(scene_wait(s, &hit), BLK_OK);
        for (uint32_t page = 0; page < page_count_for(reads[i].off, reads[i].len); page++)
            cr_expect_eq(hit.pages[page], all.pages[reads[i].off / 4096 + page], "read %u, page %u", i, page);
        cr_expect_eq(page_pool_free(s->t->loop.pages), free_pages, "the reader's own pages are back");
        scene_call_over(&hit);
    }
    cr_expect_eq(test_allocations(), allocations);
    cr_expect_eq(s->disk->requests[BLK_READ], asked);
    struct cache_status status;
    cache_status(s->cache, &status);
    cr_expect_eq(status.hits, ARRAY_LENGTH(reads));
    cr_expect_eq(status.hit_bytes, 4096 + 1024 + 3072 + 65536 + 4096 * 60);
    scene_call_over(&all);
    scene_destroy(s);
}

/* They are looked at in one go: those that hit and those that miss, some of them the same block. */
Test(cache_read, reads_that_come_in_one_turn_are_answered_each_for_itself)
{
    static struct scene_call calls[48], warm;
    struct scene *s = scene_create(NULL);
    scene_read(s, &warm, 4096 * 8, 4096 * 8);
    cr_assert_eq(scene_wait(s, &warm), BLK_OK);
    scene_call_over(&warm);
    for (unsigned i = 0; i < 48; i++)
        scene_read(s, &calls[i], 4096ull * (i % 24), i % 3 == 0 ? 512 : 8192);
    for (unsigned i = 0; i < 48; i++) {
        cr_assert_eq(scene_wait(s, &calls[i]), BLK_OK);
        cr_expect(scene_call_reads(s, &calls[i]), "read %u", i);
        scene_call_over(&calls[i]);
    }
    cr_expect_eq(s->disk->bytes[BLK_READ], 25 * 4096, "every block once: %lu", s->disk->bytes[BLK_READ]);
    scene_destroy(s);
}

Test(cache_read, a_read_of_what_is_no_more_when_it_is_looked_at_is_refused)
{
    static struct scene_call beyond, fits;
    struct scene *s = scene_create(NULL);
    uint64_t size = 65536;
    scene_read(s, &fits, 0, 4096);
    cr_assert_eq(scene_wait(s, &fits), BLK_OK);
    scene_call_over(&fits);
    scene_read(s, &beyond, size - 4096, 8192);
    scene_read(s, &fits, 0, 4096);
    s->disk->dev.info.size = size;
    blk_notify(&s->disk->dev, BLK_EVENT_RESIZED);
    cr_expect_eq(scene_wait(s, &beyond), BLK_INVALID);
    cr_expect_eq(scene_wait(s, &fits), BLK_OK);
    scene_call_over(&beyond);
    scene_call_over(&fits);
    scene_destroy(s);
}

/* The chains of neighbours stand together, and yet blocks that lie apart by any power of two spread over all of them. */
Test(cache_read, blocks_at_equal_distances_share_no_chains)
{
    for (unsigned shift = 0; shift < 16; shift++) {
        struct blocks blocks;
        unsigned longest = 0;
        cr_assert(blocks_init(&blocks, 1024, &cache_policy_s3fifo, 12345, NULL));
        for (uint64_t i = 0; i < 1024; i++)
            block_get(&blocks, i << shift, false)->flags |= BLOCK_FETCHING;
        for (uint32_t chain = 0; chain < blocks.chain_count; chain++) {
            unsigned length = 0;
            for (uint32_t slot = blocks.chains[chain]; slot != CACHE_SLOT_NONE; slot = blocks.table[slot].next)
                length++;
            longest = MAX(longest, length);
        }
        cr_expect_leq(longest, 12, "distance %u: %u", 1u << shift, longest);
        for (uint64_t i = 0; i < 1024; i++) {
            struct block *b = block_find(&blocks, i << shift);
            cr_assert(b != NULL && block_number(b) == i << shift);
        }
        blocks_fini(&blocks);
    }
}
