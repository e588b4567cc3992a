/* Arenas: what is found in memory that a process left behind, whole or damaged. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "cache/arena.h"
#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"

enum { PAGES = 16, LABEL_BYTES = 512, HEADERS_AT = 1024, HEADER_BYTES = 16, PAGES_AT = 4096 };

struct fixture {
    struct arena_memory memory;
    struct arena *arena;
    struct page_pool *pool;
    struct page *pages[PAGES];
    unsigned over;
};

static const struct arena_identity identity = {
    .arena = {{1, 2, 3}}, .array = {{4}}, .volume = {{5}}, .fork = {{6}}, .name = "films"};

static void on_over(struct arena_memory *memory)
{
    container_of(memory, struct fixture, memory)->over++;
}

static uint8_t *bytes_of(const struct fixture *f)
{
    return f->memory.base;
}

static uint8_t *header_of(const struct fixture *f, unsigned page)
{
    return bytes_of(f) + HEADERS_AT + page * HEADER_BYTES;
}

static struct fixture *fixture_create(void)
{
    struct fixture *f = calloc(1, sizeof *f);
    uint64_t bytes = arena_bytes(PAGES * PAGE_BYTES);
    f->memory = (struct arena_memory){.base = aligned_alloc(PAGE_BYTES, bytes), .bytes = bytes, .over = on_over};
    memset(f->memory.base, 0x5a, bytes);
    f->arena = arena_create(&f->memory, &identity, PAGES * PAGE_BYTES);
    f->pool = arena_pool_create(f->arena);
    for (unsigned i = 0; i < PAGES; i++) {
        cr_assert(page_pool_take(f->pool, &f->pages[i], 1));
        memset(f->pages[i]->data, (int)i + 1, PAGE_BYTES);
    }
    return f;
}

static void fixture_leave(struct fixture *f)
{
    page_put_all(f->pages, PAGES);
    page_pool_retire(f->pool);
    arena_close(f->arena);
    f->arena = NULL;
}

static void fixture_destroy(struct fixture *f)
{
    if (f->arena != NULL)
        fixture_leave(f);
    free(f->memory.base);
    free(f);
}

static struct arena_report look(const struct fixture *f, enum arena_verdict expected)
{
    struct arena_report report;
    enum arena_verdict verdict = arena_look(f->memory.base, f->memory.bytes, &report);
    cr_assert_eq(verdict, expected, "%s", arena_verdict_name(verdict));
    return report;
}

Test(arena, memory_that_holds_none_is_none)
{
    static uint8_t bytes[3 * PAGE_BYTES];
    struct arena_report report;
    cr_expect_eq(arena_look(bytes, sizeof bytes, &report), ARENA_NONE);
    cr_expect_eq(arena_look(bytes, 0, &report), ARENA_NONE);
}

Test(arena, a_new_one_is_clean_and_says_whose_it_is)
{
    struct fixture *f = fixture_create();
    struct arena_report report = look(f, ARENA_CLEAN);
    cr_expect_eq(report.format, ARENA_FORMAT);
    cr_expect_eq(memcmp(&report.identity, &identity, sizeof identity), 0);
    cr_expect_eq(report.cache_bytes, PAGES * PAGE_BYTES);
    cr_expect_eq(report.dirty_blocks + report.torn_blocks, 0);
    cr_expect_eq(f->memory.bytes, PAGES_AT + PAGES * PAGE_BYTES);
    fixture_destroy(f);
}

Test(arena, what_is_published_is_found_again)
{
    struct fixture *f = fixture_create();
    arena_publish(f->arena, f->pages[3], 0x123456789abcull, 0xff, NULL);
    arena_publish(f->arena, f->pages[4], 7, 0x05, NULL);
    arena_publish(f->arena, f->pages[5], 8, 0x01, NULL);
    arena_republish(f->arena, f->pages[5], 0);
    cr_expect_eq(arena_published(f->arena), 2);
    fixture_leave(f);
    struct arena_report report = look(f, ARENA_DIRTY);
    cr_expect_eq(report.dirty_blocks, 2);
    cr_expect_eq(report.dirty_bytes, 10 * 512);
    f->arena = arena_open(&f->memory, false);
    f->pool = arena_pool_create(f->arena);
    for (unsigned i = 0; i < PAGES; i++)
        cr_assert(page_pool_take(f->pool, &f->pages[i], 1));
    cr_expect_eq(arena_sectors(f->arena, f->pages[3]), 0xff);
    cr_expect_eq(arena_number(f->arena, f->pages[3]), 0x123456789abcull);
    cr_expect_eq(*(char *)f->pages[3]->data, 4);
    cr_expect_eq(arena_sectors(f->arena, f->pages[4]), 0x05);
    cr_expect_eq(arena_sectors(f->arena, f->pages[5]), 0);
    cr_expect_eq(arena_published(f->arena), 2);
    fixture_destroy(f);
}

Test(arena, its_sectors_change_without_the_page)
{
    struct fixture *f = fixture_create();
    arena_publish(f->arena, f->pages[0], 7, 0xff, NULL);
    arena_republish(f->arena, f->pages[0], 0x0f);
    cr_expect_eq(look(f, ARENA_DIRTY).dirty_bytes, 4 * 512);
    arena_republish(f->arena, f->pages[0], 0x1f);
    cr_expect_eq(look(f, ARENA_DIRTY).dirty_bytes, 5 * 512);
    fixture_destroy(f);
}

/* As a kill between the two steps of a change of page leaves it. */
Test(arena, of_two_pages_of_a_block_the_later_one_wins)
{
    struct fixture *f = fixture_create();
    uint8_t older[HEADER_BYTES];
    for (unsigned i = 0; i < 70000; i++) { /* versions go round */
        unsigned from = i % 2, to = 1 - from;
        if (i == 0)
            arena_publish(f->arena, f->pages[0], 7, 0xff, NULL);
        memcpy(older, header_of(f, from), sizeof older);
        arena_publish(f->arena, f->pages[to], 7, 0x0f, f->pages[from]);
        if (i % 1000 != 0 && i != 65534 && i != 65535)
            continue;
        struct fixture copy = {
            .memory = {.base = aligned_alloc(PAGE_BYTES, f->memory.bytes), .bytes = f->memory.bytes}};
        memcpy(copy.memory.base, f->memory.base, f->memory.bytes);
        memcpy(header_of(&copy, from), older, sizeof older);
        struct arena *arena = arena_open(&copy.memory, false);
        cr_assert(arena != NULL);
        cr_expect_eq(arena_published(arena), 1);
        cr_expect(get_le64(header_of(&copy, from) + 8) == 0 && get_le64(header_of(&copy, to) + 8) != 0, "step %u", i);
        arena_close(arena);
        free(copy.memory.base);
    }
    fixture_destroy(f);
}

Test(arena, a_torn_page_is_counted_and_not_taken_over_unless_told_so)
{
    struct fixture *f = fixture_create();
    arena_publish(f->arena, f->pages[0], 7, 0x01, NULL);
    arena_publish(f->arena, f->pages[1], 9, 0xff, NULL);
    fixture_leave(f);
    bytes_of(f)[PAGES_AT + PAGE_BYTES - 1] ^= 1;
    struct arena_report report = look(f, ARENA_DIRTY);
    cr_expect_eq(report.torn_blocks, 1);
    cr_expect_eq(report.torn[0], 7);
    cr_expect_eq(report.dirty_blocks, 1);
    cr_expect_null(arena_open(&f->memory, false));
    struct arena *arena = arena_open(&f->memory, true);
    cr_expect_eq(arena_published(arena), 1);
    arena_close(arena);
    cr_expect_eq(look(f, ARENA_DIRTY).torn_blocks, 0);
    fixture_destroy(f);
}

Test(arena, every_bit_of_a_header_is_checked)
{
    struct fixture *f = fixture_create();
    arena_publish(f->arena, f->pages[2], 7, 0x01, NULL);
    for (unsigned bit = 0; bit < HEADER_BYTES * 8; bit++) {
        header_of(f, 2)[bit / 8] ^= (uint8_t)(1 << bit % 8);
        struct arena_report report = look(f, ARENA_DIRTY);
        cr_expect(report.torn_blocks == 1 && report.torn[0] == UINT64_MAX && report.dirty_blocks == 0, "bit %u", bit);
        header_of(f, 2)[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    memcpy(header_of(f, 3), header_of(f, 2), HEADER_BYTES);
    memcpy(f->pages[3]->data, f->pages[2]->data, PAGE_BYTES);
    cr_expect_eq(look(f, ARENA_DIRTY).torn_blocks, 1, "nor is it one in another place");
    fixture_destroy(f);
}

Test(arena, a_label_that_is_damaged_is_not_believed)
{
    struct fixture *f = fixture_create();
    for (unsigned byte = 0; byte < LABEL_BYTES; byte++) {
        bytes_of(f)[byte] ^= 0x10;
        look(f, byte < 16 ? ARENA_NONE : ARENA_DAMAGED);
        bytes_of(f)[byte] ^= 0x10;
    }
    struct arena_report report;
    cr_expect_eq(arena_look(f->memory.base, f->memory.bytes - PAGE_BYTES, &report), ARENA_DAMAGED, "cut short");
    cr_expect_null(arena_open(&(struct arena_memory){.base = f->memory.base, .bytes = PAGE_BYTES}, true));
    fixture_destroy(f);
}

static void label_change(struct fixture *f, unsigned at, uint32_t value)
{
    put_le32(bytes_of(f) + at, value);
    put_le32(bytes_of(f) + LABEL_BYTES - 4, crc32c(0, f->memory.base, LABEL_BYTES - 4));
}

Test(arena, one_of_a_later_format_is_left_alone)
{
    struct fixture *f = fixture_create();
    label_change(f, 16, ARENA_FORMAT + 1);
    struct arena_report report = look(f, ARENA_TOO_NEW);
    cr_expect_eq(report.format, ARENA_FORMAT + 1);
    cr_expect_str_eq(report.identity.name, "films");
    cr_expect_null(arena_open(&f->memory, true));
    label_change(f, 16, 0);
    look(f, ARENA_DAMAGED);
    label_change(f, 16, ARENA_FORMAT);
    label_change(f, 20, 8192);
    look(f, ARENA_DAMAGED);
    fixture_destroy(f);
}

Test(arena, it_follows_the_array_into_another_history)
{
    static const struct uuid fork = {{7}}, last = {{8}};
    struct fixture *f = fixture_create();
    arena_publish(f->arena, f->pages[0], 7, 0x01, NULL);
    arena_set_fork(f->arena, &fork);
    struct arena_report report = look(f, ARENA_DIRTY);
    cr_expect(uuid_equal(&report.identity.fork, &fork));
    cr_expect_str_eq(report.identity.name, "films");
    arena_set_fork(f->arena, &last);
    report = look(f, ARENA_DIRTY);
    cr_expect(uuid_equal(&report.identity.fork, &last));
    bytes_of(f)[100] ^= 1; /* as a kill in the midst of the last change leaves it */
    report = look(f, ARENA_DIRTY);
    cr_expect(uuid_equal(&report.identity.fork, &fork));
    fixture_destroy(f);
}

Test(arena, its_memory_is_over_when_the_last_page_is_back)
{
    struct fixture *f = fixture_create();
    page_put_all(f->pages, PAGES - 1);
    page_pool_retire(f->pool);
    arena_close(f->arena);
    cr_expect_eq(f->over, 0);
    page_put(f->pages[PAGES - 1]);
    cr_expect_eq(f->over, 1);
    f->arena = NULL;
    fixture_destroy(f);
}

/* What survives a power failure, in which order: the page and word 0, word 1, and then that of the page before. */
struct order {
    struct arena_memory memory;
    unsigned count;
    uint64_t off[16], len[16];
};

static void on_persist(struct arena_memory *memory, uint64_t off, uint64_t len)
{
    struct order *o = container_of(memory, struct order, memory);
    cr_assert_lt(o->count, 16);
    o->off[o->count] = off;
    o->len[o->count++] = len;
}

Test(arena, the_order_in_which_it_outlives_power)
{
    struct order o = {.memory = {.bytes = arena_bytes(PAGES * PAGE_BYTES), .persist = on_persist}};
    struct page *pages[2];
    o.memory.base = aligned_alloc(PAGE_BYTES, o.memory.bytes);
    struct arena *arena = arena_create(&o.memory, &identity, PAGES * PAGE_BYTES);
    struct page_pool *pool = arena_pool_create(arena);
    cr_expect(arena_outlives_power(arena));
    cr_expect(o.count == 3 && o.off[0] == 0 && o.off[1] == HEADERS_AT && o.off[2] == 0, "the label last");
    cr_assert(page_pool_take(pool, &pages[0], 1) && page_pool_take(pool, &pages[1], 1));
    arena_publish(arena, pages[0], 7, 0xff, NULL);
    o.count = 0;
    arena_publish(arena, pages[1], 7, 0xff, pages[0]);
    static const uint64_t offs[] = {PAGES_AT + PAGE_BYTES, HEADERS_AT + 16, HEADERS_AT + 24, HEADERS_AT + 8};
    cr_assert_eq(o.count, ARRAY_LENGTH(offs));
    for (unsigned i = 0; i < ARRAY_LENGTH(offs); i++)
        cr_expect_eq(o.off[i], offs[i], "%u: %lu", i, o.off[i]);
    page_put_all(pages, 2);
    page_pool_retire(pool);
    arena_close(arena);
    free(o.memory.base);
}
