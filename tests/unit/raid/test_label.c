#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "raid/fault.h"
#include "raid/label.h"
#include "tests/unit/lib/testloop.h"
#include "tests/unit/raid/labels.h"

enum { DISK_BYTES = 64 * 1024 * 1024, PAGES = 256 };
#define TAIL (DISK_BYTES - SB_TAIL_BYTES)

/* A loop, a disk, and the array the disk is a member of. */
struct bench {
    struct testloop *t;
    struct memdisk *disk;
    struct sb_label label, found;
    struct label_op op;
    bool over;
};

static void on_done(struct label_op *op)
{
    container_of(op, struct bench, op)->over = true;
}

static struct bench *bench_create(uint32_t logical_block)
{
    struct bench *b = calloc(1, sizeof *b);
    cr_assert_not_null(b);
    struct sb_array array;
    label_make_array(&array, 3, DISK_BYTES);
    label_add_volume(&array, RAID_5, 16 * MIB);
    b->label = label_of(&array, 1);
    b->t = testloop_create(PAGES, 1);
    b->disk = memdisk_create(&b->t->loop, "m1", DISK_BYTES, logical_block);
    return b;
}

static void bench_destroy(struct bench *b)
{
    cr_expect_eq(page_pool_free(b->t->loop.pages), PAGES, "all pages are back");
    test_close(b->t, &b->disk->dev);
    testloop_destroy(b->t);
    free(b);
}

static enum blk_status run(struct bench *b, struct blkdev *dev, void (*call)(struct label_op *), bool fresh)
{
    b->over = false;
    b->op = (struct label_op){.dev = dev, .label = &b->label, .fresh = fresh, .done = on_done};
    if (call == label_read)
        b->op.label = &b->found;
    call(&b->op);
    cr_assert_not(b->over, "done never runs within the call");
    cr_assert(testloop_run_until(b->t, &b->over));
    return b->op.status;
}

static void write_generation(struct bench *b, uint64_t generation)
{
    b->label.array.generation = generation;
    b->label.place = (unsigned)(generation % 2);
    cr_assert_eq(run(b, &b->disk->dev, label_write, false), BLK_OK, "%s", b->op.why);
}

/* The generation found, 0 if the verdict is not that of a valid label. */
static uint64_t read_generation(struct bench *b)
{
    cr_assert_eq(run(b, &b->disk->dev, label_read, false), BLK_OK, "%s", b->op.why);
    return b->op.verdict == SB_VALID ? b->found.array.generation : 0;
}

Test(label, what_is_written_is_found)
{
    struct bench *b = bench_create(512);
    write_generation(b, 10);
    cr_expect_eq(read_generation(b), 10);
    cr_expect(uuid_equal(&b->found.member, &b->label.member));
    cr_expect_eq(b->found.slot, 1);
    cr_expect_eq(b->found.array.volumes_count, 1);
    cr_expect_str_eq(b->op.why, "");
    write_generation(b, 11);
    cr_expect_eq(read_generation(b), 11);
    bench_destroy(b);
}

Test(label, generations_take_turns_in_two_slots_with_a_copy_of_both_at_the_tail)
{
    struct bench *b = bench_create(512);
    write_generation(b, 10);
    write_generation(b, 11);
    const uint64_t places[] = {SB_HEAD_0, SB_HEAD_1, TAIL + SB_HEAD_0, TAIL + SB_HEAD_1};
    for (unsigned i = 0; i < 4; i++) {
        enum sb_verdict v = superblock_decode(b->disk->bytes + places[i], SB_SLOT_BYTES, &b->found, NULL, 0);
        cr_expect_eq(v, SB_VALID, "copy %u", i);
        cr_expect_eq(b->found.array.generation, 10 + i % 2, "copy %u", i);
    }
    for (unsigned i = 0; i < 4096; i++)
        cr_assert_eq(b->disk->bytes[i], 0, "the first block is nobody's business");
    cr_expect_eq(b->disk->writes, 4);
    cr_expect_eq(b->disk->flushes, 4);
    bench_destroy(b);
}

static uint64_t generation_at(struct bench *b, uint64_t off)
{
    enum sb_verdict verdict = superblock_decode(b->disk->bytes + off, SB_SLOT_BYTES, &b->found, NULL, 0);
    return verdict == SB_VALID ? b->found.array.generation : 0;
}

/* Looked at after each request: where the second copy is there, the first is, and was flushed. */
Test(label, the_second_copy_is_touched_when_the_first_is_durable)
{
    static const struct {
        const char *what;
        bool fresh;
        uint64_t first, second, flushes;
    } cases[] = {
        {"a label goes to the head first", false, SB_HEAD_0, TAIL + SB_HEAD_0, 2},
        {"the first one of a disk to the tail", true, TAIL + SB_HEAD_0, SB_HEAD_0, 3},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct bench *b = bench_create(512);
        write_generation(b, 10);
        write_generation(b, 11);
        b->disk->latency_ns = 1000;
        b->label.array.generation = 12;
        b->label.place = 0;
        b->over = false;
        b->op = (struct label_op){.dev = &b->disk->dev, .label = &b->label, .fresh = cases[i].fresh, .done = on_done};
        uint64_t flushes = b->disk->flushes, at_first = 0;
        label_write(&b->op);
        testloop_run_ready(b->t);
        while (!b->over) {
            bool first = generation_at(b, cases[i].first) == 12, second = generation_at(b, cases[i].second) == 12;
            if (first && at_first == 0)
                at_first = b->disk->flushes;
            cr_expect(!second || (first && b->disk->flushes > at_first), "%s", cases[i].what);
            b->t->loop.now_ns += 1000;
            testloop_run_ready(b->t);
        }
        cr_expect_neq(at_first, 0, "%s", cases[i].what);
        cr_expect_eq(generation_at(b, cases[i].second), 12, "%s", cases[i].what);
        cr_expect_eq(b->disk->flushes, flushes + cases[i].flushes, "%s", cases[i].what);
        bench_destroy(b);
    }
}

Test(label, a_torn_write_leaves_the_generation_before)
{
    struct bench *b = bench_create(512);
    write_generation(b, 10);
    write_generation(b, 11);
    uint8_t *head = b->disk->bytes + SB_HEAD_0;
    uint8_t *whole = malloc(SB_SLOT_BYTES), *old = malloc(SB_SLOT_BYTES);
    cr_assert(whole != NULL && old != NULL);
    memcpy(old, head, SB_SLOT_BYTES);
    b->label.array.generation = 12;
    b->label.array.clean = false;
    size_t len = superblock_encode(&b->label, whole);
    for (size_t torn = 512; torn < len; torn += 512) {
        memcpy(head, old, SB_SLOT_BYTES);
        memcpy(head, whole, torn);
        bool complete = memcmp(head, whole, len) == 0;
        cr_expect_eq(read_generation(b), complete ? 12 : 11, "torn at %zu", torn);
    }
    free(whole);
    free(old);
    bench_destroy(b);
}

/* Copies: head slot 0 and 1, tail slot 0 and 1; damaged ones by bit. */
static const struct {
    unsigned damaged;
    uint64_t generation;
    unsigned place;
} places[] = {
    {0x0, 11, 1}, {0x2, 11, 1}, {0x8, 11, 1}, {0xa, 10, 0}, {0xb, 10, 0}, {0xe, 10, 0}, {0x5, 11, 1}, {0x7, 11, 1},
};

Test(label, a_read_tells_in_which_slot_the_newest_label_stands)
{
    static const uint64_t copies[] = {SB_HEAD_0, SB_HEAD_1, TAIL + SB_HEAD_0, TAIL + SB_HEAD_1};
    for (unsigned i = 0; i < ARRAY_LENGTH(places); i++) {
        struct bench *b = bench_create(512);
        write_generation(b, 10);
        write_generation(b, 11);
        for (unsigned copy = 0; copy < 4; copy++)
            b->disk->bytes[copies[copy] + 5000] ^= places[i].damaged >> copy & 1;
        cr_expect_eq(read_generation(b), places[i].generation, "case %u", i);
        cr_expect_eq(b->found.place, places[i].place, "case %u", i);
        bench_destroy(b);
    }
}

Test(label, a_label_goes_to_the_slot_it_names_whatever_its_generation)
{
    struct bench *b = bench_create(512);
    for (unsigned place = 0; place < 2; place++) {
        write_generation(b, 10);
        write_generation(b, 11);
        uint64_t other = place == 0 ? SB_HEAD_1 : SB_HEAD_0;
        b->label.array.generation = 13;
        b->label.place = place;
        cr_assert_eq(run(b, &b->disk->dev, label_write, false), BLK_OK);
        cr_expect_eq(read_generation(b), 13);
        cr_expect_eq(b->found.place, place);
        superblock_decode(b->disk->bytes + other, SB_SLOT_BYTES, &b->found, NULL, 0);
        cr_expect_eq(b->found.array.generation, place == 0 ? 11 : 10, "the other slot is as it was");
    }
    bench_destroy(b);
}

Test(label, a_destroyed_head_is_made_up_for_by_the_tail)
{
    struct bench *b = bench_create(512);
    write_generation(b, 10);
    write_generation(b, 11);
    memset(b->disk->bytes, 0xa5, 1 * MIB);
    cr_expect_eq(read_generation(b), 11);
    bench_destroy(b);
}

Test(label, a_blank_tail_is_told_from_one_that_was_erased_or_damaged)
{
    static const struct {
        const char *what;
        uint64_t off, len;
        uint8_t byte;
        bool blank;
    } cases[] = {
        {"both copies", TAIL, SB_TAIL_BYTES, 0, true},
        {"one copy", TAIL + SB_HEAD_0, SB_SLOT_BYTES, 0, false},
        {"the other copy", TAIL + SB_HEAD_1, SB_SLOT_BYTES, 0, false},
        {"garbage", TAIL, SB_TAIL_BYTES, 0x5a, false},
        {"nothing", 0, 0, 0, false},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct bench *b = bench_create(512);
        write_generation(b, 10);
        write_generation(b, 11);
        memset(b->disk->bytes + cases[i].off, cases[i].byte, cases[i].len);
        cr_assert_eq(run(b, &b->disk->dev, label_read, false), BLK_OK);
        cr_expect_eq(b->found.array.generation, 11, "%s", cases[i].what);
        cr_expect_eq(b->found.tail_blank, cases[i].blank, "%s", cases[i].what);
        bench_destroy(b);
    }
    struct bench *b = bench_create(512);
    write_generation(b, 10);
    write_generation(b, 11);
    memset(b->disk->bytes + TAIL + SB_HEAD_0, 0, PAGE_BYTES);
    memset(b->disk->bytes + TAIL + SB_HEAD_1, 0, PAGE_BYTES);
    cr_assert_eq(run(b, &b->disk->dev, label_read, false), BLK_OK);
    cr_expect_not(b->found.tail_blank, "headers that were erased before a fresh label");
    bench_destroy(b);
}

Test(label, nothing_and_damage_are_told_apart)
{
    struct bench *b = bench_create(512);
    cr_expect_eq(read_generation(b), 0);
    cr_expect_eq(b->op.verdict, SB_NONE);
    write_generation(b, 10);
    b->disk->bytes[SB_HEAD_0 + 5000] ^= 1;
    cr_expect_eq(read_generation(b), 10, "the tail is still good");
    b->disk->bytes[TAIL + SB_HEAD_0 + 5000] ^= 1;
    cr_expect_eq(read_generation(b), 0);
    cr_expect_eq(b->op.verdict, SB_DAMAGED);
    cr_expect_str_eq(b->op.why, "m1: the superblock's text does not match its checksum");
    bench_destroy(b);
}

Test(label, a_disk_with_blocks_of_4096)
{
    struct bench *b = bench_create(4096);
    write_generation(b, 10);
    write_generation(b, 11);
    cr_expect_eq(read_generation(b), 11);
    cr_expect_eq(run(b, &b->disk->dev, label_erase, false), BLK_OK);
    cr_expect_eq(read_generation(b), 0);
    bench_destroy(b);
}

Test(label, a_device_with_short_requests)
{
    static const uint64_t limits[] = {4096, 5000, 65536, 252 * KIB, 1 * MIB};
    for (unsigned i = 0; i < ARRAY_LENGTH(limits); i++) {
        struct bench *b = bench_create(512);
        b->disk->dev.info.max_request = limits[i];
        write_generation(b, 10);
        cr_expect_eq(read_generation(b), 10, "limit %llu", (unsigned long long)limits[i]);
        bench_destroy(b);
    }
}

Test(label, erased_is_none)
{
    struct bench *b = bench_create(512);
    write_generation(b, 10);
    write_generation(b, 11);
    cr_expect_eq(run(b, &b->disk->dev, label_erase, false), BLK_OK);
    cr_expect_eq(read_generation(b), 0);
    cr_expect_eq(b->op.verdict, SB_NONE);
    bench_destroy(b);
}

Test(label, erasing_without_knowing_the_label)
{
    struct bench *b = bench_create(512);
    write_generation(b, 10);
    b->over = false;
    b->op = (struct label_op){.dev = &b->disk->dev, .done = on_done};
    label_erase(&b->op);
    cr_assert(testloop_run_until(b->t, &b->over));
    cr_expect_eq(read_generation(b), 0);
    cr_expect_eq(b->op.verdict, SB_NONE);
    bench_destroy(b);
}

Test(label, a_fresh_label_wins_over_a_higher_generation_of_the_past)
{
    struct bench *b = bench_create(512);
    write_generation(b, 501);
    b->label.array.uuid = label_uuid(LABEL_UUID_ARRAY, 2);
    b->label.array.generation = 10;
    cr_assert_eq(run(b, &b->disk->dev, label_write, true), BLK_OK);
    cr_expect_eq(read_generation(b), 10);
    cr_expect(uuid_equal(&b->found.array.uuid, &b->label.array.uuid));
    bench_destroy(b);
}

Test(label, a_member_that_uses_less_than_the_disk)
{
    struct bench *b = bench_create(512);
    b->label.array.members[1].size = DISK_BYTES - 8 * MIB;
    b->label.array.data_bytes -= 8 * MIB;
    write_generation(b, 10);
    cr_expect_eq(read_generation(b), 10);
    cr_expect_eq(run(b, &b->disk->dev, label_erase, false), BLK_OK);
    uint64_t tail = superblock_tail(DISK_BYTES - 8 * MIB);
    cr_expect_eq(superblock_decode(b->disk->bytes + tail + SB_HEAD_0, SB_SLOT_BYTES, &b->found, NULL, 0), SB_NONE);
    b->label.array.members[1].size = DISK_BYTES + 8 * MIB;
    cr_expect_eq(run(b, &b->disk->dev, label_write, false), BLK_INVALID);
    cr_expect_str_eq(b->op.why, "m1: the disk is smaller than the array expects");
    bench_destroy(b);
}

Test(label, a_label_that_would_not_be_read_is_not_written)
{
    struct bench *b = bench_create(512);
    b->label.array.members_count = 0;
    cr_expect_eq(run(b, &b->disk->dev, label_write, false), BLK_INVALID);
    cr_expect_str_eq(b->op.why, "m1: there are no members, or too many");
    cr_expect_eq(b->disk->writes, 0);
    bench_destroy(b);
}

Test(label, a_disk_too_small_for_any_copy_has_none)
{
    struct testloop *t = testloop_create(PAGES, 1);
    static const uint64_t sizes[] = {4096, 300 * 1024, 600 * 1024, 1 * MIB, 2 * MIB};
    for (unsigned i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct memdisk *disk = memdisk_create(&t->loop, "small", sizes[i], 512);
        struct bench b = {.t = t};
        cr_expect_eq(run(&b, &disk->dev, label_read, false), BLK_OK);
        cr_expect_eq(b.op.verdict, SB_NONE);
        test_close(t, &disk->dev);
    }
    testloop_destroy(t);
}

/* --- errors --- */

static void add_fault(struct blkdev *fault, unsigned ops, uint64_t off, uint64_t len)
{
    enum blk_status status = ops == 1 << BLK_FLUSH ? BLK_TIMEOUT : BLK_MEDIA;
    struct fault_rule rule = {.ops = ops, .off = off, .len = len, .status = status};
    cr_assert_geq(fault_add(fault, &rule), 0);
}

Test(label, copies_that_cannot_be_read)
{
    struct bench *b = bench_create(512);
    write_generation(b, 10);
    write_generation(b, 11);
    struct blkdev *fault = fault_create(&b->t->loop, &b->disk->dev);
    add_fault(fault, 1 << BLK_READ, SB_HEAD_1, 4096);
    cr_expect_eq(run(b, fault, label_read, false), BLK_OK);
    cr_expect_eq(b->op.verdict, SB_VALID);
    cr_expect_eq(b->found.array.generation, 11, "the tail's copy");
    add_fault(fault, 1 << BLK_READ, TAIL, SB_TAIL_BYTES);
    cr_expect_eq(run(b, fault, label_read, false), BLK_OK);
    cr_expect_eq(b->found.array.generation, 10, "the other slot");
    add_fault(fault, 1 << BLK_READ, SB_HEAD_0, 4096);
    cr_expect_eq(run(b, fault, label_read, false), BLK_MEDIA);
    fault_clear(fault, -1);
    fault_kill(fault);
    cr_expect_eq(run(b, fault, label_read, false), BLK_GONE);
    test_close(b->t, fault);
    testloop_destroy(b->t);
    free(b);
}

Test(label, only_what_the_superblock_takes_is_read)
{
    static const uint64_t copies[] = {SB_HEAD_0, SB_HEAD_1, TAIL + SB_HEAD_0, TAIL + SB_HEAD_1};
    struct bench *b = bench_create(512);
    write_generation(b, 10);
    struct blkdev *fault = fault_create(&b->t->loop, &b->disk->dev);
    for (unsigned i = 0; i < ARRAY_LENGTH(copies); i++)
        add_fault(fault, 1 << BLK_READ, copies[i] + 64 * KIB, SB_SLOT_BYTES - 64 * KIB);
    cr_expect_eq(run(b, fault, label_read, false), BLK_OK);
    cr_expect_eq(b->found.array.generation, 10, "what nobody needs may be unreadable");
    add_fault(fault, 1 << BLK_READ, SB_HEAD_0 + 4096, 512);
    add_fault(fault, 1 << BLK_READ, TAIL + SB_HEAD_0 + 4096, 512);
    cr_expect_eq(run(b, fault, label_read, false), BLK_MEDIA, "its text may not");
    test_close(b->t, fault);
    testloop_destroy(b->t);
    free(b);
}

Test(label, a_blank_copy_beside_an_unreadable_one_proves_nothing)
{
    struct bench *b = bench_create(512);
    struct blkdev *fault = fault_create(&b->t->loop, &b->disk->dev);
    add_fault(fault, 1 << BLK_READ, SB_HEAD_1, 4096);
    cr_expect_eq(run(b, fault, label_read, false), BLK_MEDIA);
    test_close(b->t, fault);
    testloop_destroy(b->t);
    free(b);
}

Test(label, a_write_stops_at_the_first_error)
{
    struct bench *b = bench_create(512);
    struct blkdev *fault = fault_create(&b->t->loop, &b->disk->dev);
    add_fault(fault, 1 << BLK_WRITE, SB_HEAD_0, 4096);
    cr_expect_eq(run(b, fault, label_write, false), BLK_MEDIA);
    cr_expect_eq(b->disk->writes + b->disk->flushes, 0);
    fault_clear(fault, -1);
    add_fault(fault, 1 << BLK_FLUSH, 0, 0);
    cr_expect_eq(run(b, fault, label_write, false), BLK_TIMEOUT);
    cr_expect_eq(b->disk->writes, 1, "the tail is not touched");
    test_close(b->t, fault);
    testloop_destroy(b->t);
    free(b);
}

/* The label stands at the tail then. It must not stay there because the head cannot be written. */
Test(label, a_first_label_whose_head_was_refused_is_erased)
{
    struct bench *b = bench_create(512);
    struct blkdev *fault = fault_create(&b->t->loop, &b->disk->dev);
    b->label.array.generation = 10;
    add_fault(fault, 1 << BLK_WRITE, 0, MIB);
    cr_expect_eq(run(b, fault, label_write, true), BLK_MEDIA);
    cr_expect_eq(read_generation(b), 10, "at the tail");
    add_fault(fault, 1 << BLK_WRITE_ZEROES, 0, MIB);
    cr_expect_eq(run(b, fault, label_erase, false), BLK_MEDIA);
    cr_expect_eq(read_generation(b), 0);
    cr_expect_eq(b->op.verdict, SB_NONE);
    test_close(b->t, fault);
    testloop_destroy(b->t);
    free(b);
}

/* --- pages --- */

Test(label, without_pages_it_waits_in_line)
{
    struct bench *b = bench_create(512);
    write_generation(b, 10);
    static struct page *taken[PAGES];
    cr_assert(page_pool_get(b->t->loop.pages, taken, PAGES - 10));
    b->over = false;
    b->op = (struct label_op){.dev = &b->disk->dev, .label = &b->found, .done = on_done};
    label_read(&b->op);
    testloop_run(b->t);
    cr_expect_not(b->over);
    cr_expect_eq(page_pool_free(b->t->loop.pages), 10, "waits holding nothing");
    page_put_all(taken, PAGES - 10);
    cr_assert(testloop_run_until(b->t, &b->over));
    cr_expect_eq(b->found.array.generation, 10);
    bench_destroy(b);
}

/* --- memory --- */

static unsigned denied; /* so many requests of the encoder for memory are refused */

static void *scarce_malloc(size_t size)
{
    if (denied == 0)
        return malloc(size);
    denied--;
    return NULL;
}

Test(label, without_memory_a_write_is_tried_again)
{
    static const struct {
        unsigned denied;
        enum blk_status status;
        uint64_t took_ms, writes;
    } cases[] = {{0, BLK_OK, 0, 2}, {3, BLK_OK, 300, 2}, {100, BLK_OK, 10000, 2}, {101, BLK_NOSPACE, 10000, 0}};
    json_set_alloc_funcs(scarce_malloc, free);
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct bench *b = bench_create(512);
        uint64_t start = b->t->loop.now_ns;
        denied = cases[i].denied;
        cr_expect_eq(run(b, &b->disk->dev, label_write, false), cases[i].status, "case %u: %s", i, b->op.why);
        cr_expect_eq((b->t->loop.now_ns - start) / 1000000, cases[i].took_ms, "case %u", i);
        cr_expect_eq(b->disk->writes, cases[i].writes, "case %u", i);
        denied = 0;
        bench_destroy(b);
    }
}
