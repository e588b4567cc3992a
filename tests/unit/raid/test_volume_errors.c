/* Disks that fail in the small and in the large, and what the volume makes of it. */
#include <criterion/criterion.h>

#include "core/check.h"
#include "tests/unit/raid/volbench.h"

#define R5                                                                                                             \
    {                                                                                                                  \
        .level = RAID_5, .members = 5, .rotation = ROTATE_LEFT_SYMMETRIC                                               \
    }
#define R6                                                                                                             \
    {                                                                                                                  \
        .level = RAID_6, .members = 6, .rotation = ROTATE_LEFT_SYMMETRIC                                               \
    }
#define R1                                                                                                             \
    {                                                                                                                  \
        .level = RAID_1, .members = 3                                                                                  \
    }

static const struct layout_spec raid5 = R5, raid6 = R6, raid1 = R1;

enum { CHUNK = 8192, ROW = 4 * CHUNK };

static struct bench *open_filled(const struct layout_spec *spec)
{
    struct bench *b = bench_open(&(struct bench_options){.layout = *spec}, 3);
    bench_fill(b);
    return b;
}

/* One read whose request the test can look at. */
struct reader {
    struct blk_req req;
    struct page *pages[64];
    uint8_t bytes[64 * PAGE_BYTES];
    bool over;
};

static void reader_done(struct blk_req *req)
{
    struct reader *r = container_of(req, struct reader, req);
    pages_copy_out(r->bytes, r->pages, req->off % PAGE_BYTES, req->len);
    page_put_all(r->pages, page_count_for(req->off, req->len));
    r->over = true;
}

static void reader_start(struct bench *b, struct reader *r, uint64_t off, uint64_t len)
{
    r->over = false;
    r->req = (struct blk_req){.op = BLK_READ, .off = off, .len = len, .pages = r->pages, .done = reader_done};
    cr_assert(page_pool_get(b->t->loop.pages, r->pages, page_count_for(off, len)));
    blk_submit(b->dev, &r->req);
}

static void reader_run(struct bench *b, struct reader *r, uint64_t off, uint64_t len)
{
    reader_start(b, r, off, len);
    cr_assert(testloop_run_until(b->t, &r->over));
}

Test(volume_errors, a_media_error_is_served_from_redundancy_and_corrected)
{
    static const struct layout_spec specs[] = {R5, R6, R1, {.level = RAID_TP, .members = 5}};
    for (unsigned i = 0; i < ARRAY_LENGTH(specs); i++) {
        struct bench *b = open_filled(&specs[i]);
        /* A mirror reads whichever copy it likes: let two of three be bad. */
        unsigned spoiled = b->layout.parity ? 1 : 2;
        for (unsigned role = 0; role < spoiled; role++)
            bench_spoil(b, 1, role, 4096, 1024);
        for (unsigned k = 0; k < 8; k++) {
            cr_expect_eq(bench_io(b, BLK_READ, 0, b->layout.row_data + 4096, 1024), BLK_OK);
            testloop_run(b->t);
        }
        cr_expect(b->errors >= 1 && b->errors <= spoiled, "%u errors: what was corrected stays so", b->errors);
        cr_expect_eq(b->corrected, b->errors);
        cr_expect_eq(b->losses, 0);
        bench_check_redundancy(b);
        bench_close(b);
    }
}

Test(volume_errors, the_reader_is_answered_before_the_disk_is_corrected)
{
    struct bench *b = open_filled(&raid5);
    bench_spoil(b, 0, 1, 0, 4096);
    struct fault_rule slow = {.ops = 1 << BLK_WRITE, .delay_ns = 3000000000, .status = BLK_OK};
    fault_add(b->faults[bench_slot(b, 0, 1)], &slow);
    uint64_t start = b->t->loop.now_ns;
    cr_expect_eq(bench_io(b, BLK_READ, 0, CHUNK, 4096), BLK_OK);
    cr_expect_lt(b->t->loop.now_ns - start, 1000000000);
    cr_expect_eq(b->corrected, 0);
    /* Closing waits for it. */
    test_close(b->t, b->dev);
    cr_expect_eq(b->corrected, 1);
    cr_expect_geq(b->t->loop.now_ns - start, 3000000000);
    bench_reopen(b);
    bench_check_contents(b);
    bench_close(b);
}

Test(volume_errors, two_read_errors_in_a_row_of_raid6)
{
    struct bench *b = open_filled(&raid6);
    bench_spoil(b, 2, 1, 0, CHUNK);
    bench_spoil(b, 2, 2, 0, CHUNK);
    cr_expect_eq(bench_io(b, BLK_READ, 0, 2 * ROW + CHUNK, CHUNK), BLK_OK);
    testloop_run(b->t);
    cr_expect_eq(b->errors, 2);
    cr_expect_eq(b->corrected, 2, "the one that was not asked for is known, so it is corrected too");
    bench_check_contents(b);
    cr_expect_eq(b->errors, 2);
    bench_close(b);
}

Test(volume_errors, errors_of_two_members_in_different_blocks_are_both_overcome)
{
    struct bench *b = open_filled(&raid5);
    bench_spoil(b, 1, 0, 512, 512);
    bench_spoil(b, 1, 1, 1024, 512); /* the same page */
    bench_spoil(b, 1, 2, 6144, 512); /* another */
    bench_spoil(b, 1, 4, 7168, 512); /* parity */
    cr_expect_eq(bench_io(b, BLK_READ, 0, ROW, ROW), BLK_OK);
    testloop_run(b->t);
    cr_expect_eq(b->losses, 0);
    bench_check_redundancy(b);
    bench_close(b);
}

Test(volume_errors, a_block_lost_on_two_members_is_a_media_error_with_its_offset)
{
    static const struct {
        unsigned d0, d1;
        uint64_t bad;
    } table[] = {{1, 3, CHUNK + 5120}, {0, 2, 5120}, {2, 4, 2 * CHUNK + 5120}};
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
        struct bench *b = open_filled(&raid5);
        struct reader r;
        bench_spoil(b, 1, table[i].d0, 5120, 512);
        bench_spoil(b, 1, table[i].d1, 5120, 512);
        reader_run(b, &r, ROW, ROW);
        cr_expect_eq(r.req.status, BLK_MEDIA);
        cr_expect_eq(r.req.bad_off, ROW + table[i].bad, "%llu", (unsigned long long)r.req.bad_off - ROW);
        cr_expect(memcmp(r.bytes, b->model + ROW, table[i].bad) == 0, "everything before it is right");
        /* Around it, all is well; writing it makes it well again. */
        cr_expect_eq(bench_io(b, BLK_READ, 0, ROW + table[i].bad + 512, 1024), BLK_OK);
        cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW, ROW), BLK_OK);
        cr_expect_eq(bench_io(b, BLK_READ, 0, ROW, ROW), BLK_OK);
        cr_expect_eq(b->losses, 0, "no member is failed for it");
        bench_close(b);
    }
}

Test(volume_errors, without_redundancy_a_media_error_goes_up_with_its_offset)
{
    static const struct layout_spec specs[] = {{.level = RAID_0, .members = 3}, {.level = RAID_JBOD, .members = 1}};
    for (unsigned i = 0; i < ARRAY_LENGTH(specs); i++) {
        struct bench *b = open_filled(&specs[i]);
        struct reader r;
        bench_spoil(b, 2, 0, 2048, 512);
        reader_run(b, &r, 512, 3 * CHUNK);
        cr_expect_eq(r.req.status, BLK_MEDIA);
        cr_expect_eq(r.req.bad_off, 2 * CHUNK + 2048);
        cr_expect_eq(bench_io(b, BLK_READ, 0, 2 * CHUNK + 2560, 512), BLK_OK);
        bench_close(b);
    }
}

Test(volume_errors, a_write_overcomes_media_errors_in_what_it_has_to_read)
{
    for (unsigned role = 0; role < 5; role++)
        for (unsigned chunks = 1; chunks <= 3; chunks++) {
            struct bench *b = open_filled(&raid5);
            bench_spoil(b, 1, role, 0, CHUNK);
            cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW, chunks * CHUNK), BLK_OK, "role %u, %u chunks", role, chunks);
            testloop_run(b->t);
            cr_expect_eq(b->losses, 0);
            bench_check_redundancy(b);
            cr_expect_eq(bench_io(b, BLK_READ, 0, ROW, ROW), BLK_OK);
            testloop_run(b->t);
            unsigned errors = b->errors;
            cr_expect_eq(bench_io(b, BLK_READ, 0, ROW, ROW), BLK_OK);
            cr_expect_eq(b->errors, errors, "role %u, %u chunks: it has been corrected", role, chunks);
            bench_close(b);
        }
}

Test(volume_errors, a_write_beside_a_lost_block_gives_up_parity_and_makes_no_garbage_of_it)
{
    struct bench *b = bench_open(&(struct bench_options){.layout = raid5, .absent = 1 << 2}, 3);
    bench_fill(b);
    unsigned gone = 0;
    while (bench_slot(b, 1, gone) != 2)
        gone++;
    unsigned target = gone == 0 ? 1 : 0;
    bench_spoil(b, 1, 4, 0, 512); /* parity: the lost chunk's first block is really lost */
    cr_assert_lt(gone, 4);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW + target * CHUNK, 512), BLK_OK);
    cr_expect_eq(b->bad.count, 1, "parity is not what is on the disk, whether that can be read or not");
    cr_expect_eq(bench_io(b, BLK_READ, 0, ROW + target * CHUNK, 512), BLK_OK);
    cr_expect_eq(bench_io(b, BLK_READ, 0, ROW + gone * CHUNK, 512), BLK_MEDIA);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, ROW + target * CHUNK + 512, 512), BLK_OK);
    cr_expect_eq(bench_io(b, BLK_READ, 0, ROW + gone * CHUNK + 512, 512), BLK_OK);
    bench_close(b);
}

Test(volume_errors, a_member_that_times_out_is_read_around_and_kept)
{
    static const struct layout_spec specs[] = {R5, R1};
    for (unsigned i = 0; i < ARRAY_LENGTH(specs); i++) {
        struct bench *b = open_filled(&specs[i]);
        unsigned slot = bench_slot(b, 0, 0);
        fault_add(b->faults[slot], &(struct fault_rule){.ops = 1 << BLK_READ, .status = BLK_TIMEOUT, .count = 2});
        for (unsigned k = 0; k < 3; k++)
            cr_expect_eq(bench_io(b, BLK_READ, 0, 0, 4096), BLK_OK);
        cr_expect_eq(b->losses, 0);
        cr_expect_eq(b->corrected, 0, "nothing was wrong with the bytes");
        cr_expect_leq(b->errors, 2);
        bench_close(b);
    }
    /* The third in a minute fails it. */
    struct bench *b = open_filled(&raid5);
    fault_add(b->faults[bench_slot(b, 0, 0)], &(struct fault_rule){.ops = 1 << BLK_READ, .status = BLK_TIMEOUT});
    for (unsigned k = 0; k < 4; k++) {
        cr_expect_eq(bench_io(b, BLK_READ, 0, 0, 4096), BLK_OK);
        b->t->loop.now_ns += 2000000000ull;
    }
    cr_expect_eq(b->errors, 3);
    cr_expect_eq(b->losses, 1);
    bench_check_contents(b);
    bench_close(b);
}

struct writer {
    struct blk_req req;
    struct page *pages[3];
    struct bench *b;
    bool over, loss_was_pending;
};

static void writer_done(struct blk_req *req)
{
    struct writer *w = container_of(req, struct writer, req);
    w->over = true;
    w->loss_was_pending = w->b->loss_pending;
}

static void writer_run(struct bench *b, struct writer *w, enum blk_op op, uint64_t off, uint64_t len)
{
    *w = (struct writer){.req = {.op = op, .off = off, .len = len, .pages = w->pages, .done = writer_done}, .b = b};
    uint32_t count = op == BLK_WRITE ? page_count_for(off, len) : 0;
    cr_assert(page_pool_get(b->t->loop.pages, w->pages, count));
    pages_copy_in(w->pages, off % PAGE_BYTES, b->model + off, count == 0 ? 0 : len);
    blk_submit(b->dev, &w->req);
    cr_assert(testloop_run_until(b->t, &w->over));
    page_put_all(w->pages, count);
}

Test(volume_errors, a_write_is_acknowledged_only_when_the_loss_is_recorded)
{
    static const struct layout_spec specs[] = {R5, R6, R1};
    for (unsigned i = 0; i < ARRAY_LENGTH(specs); i++) {
        struct bench *b = open_filled(&specs[i]);
        struct writer w;
        fault_kill(b->faults[bench_slot(b, 0, 0)]);
        writer_run(b, &w, BLK_WRITE, 0, 4096);
        cr_expect_eq(w.req.status, BLK_OK);
        cr_expect_eq(b->losses, 1);
        cr_expect_not(w.loss_was_pending);
        /* Also by a write that finds the member failed already, and by a flush. */
        bench_fail(b, bench_slot(b, 0, 1));
        if (!volume_failed(b->volume)) {
            writer_run(b, &w, BLK_WRITE, 0, 4096);
            cr_expect(w.req.status == BLK_OK && !w.loss_was_pending);
        }
        bench_close(b);

        b = open_filled(&specs[i]);
        fault_add(b->faults[1], &(struct fault_rule){.ops = 1 << BLK_FLUSH, .status = BLK_TIMEOUT});
        writer_run(b, &w, BLK_FLUSH, 0, 0);
        cr_expect_eq(w.req.status, BLK_OK);
        cr_expect_eq(b->losses, 1, "a member that cannot flush has lost what it cached");
        cr_expect_not(w.loss_was_pending);
        bench_close(b);
    }
}

Test(volume_errors, beyond_redundancy_what_is_lost_is_gone_and_the_rest_is_read)
{
    struct bench *b = open_filled(&raid5);
    unsigned a = bench_slot(b, 0, 0), c = bench_slot(b, 0, 1);
    bench_fail(b, a);
    bench_fail(b, c);
    cr_expect(volume_failed(b->volume));
    cr_expect_eq(bench_io(b, BLK_READ, 0, 0, 4096), BLK_GONE);
    cr_expect_eq(bench_io(b, BLK_READ, 0, 0, ROW), BLK_GONE);
    cr_expect_eq(bench_io(b, BLK_READ, 0, 2 * CHUNK, 2 * CHUNK), BLK_OK);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, 2 * CHUNK, 4096), BLK_GONE);
    cr_expect_eq(bench_io(b, BLK_WRITE_ZEROES, 0, 0, ROW), BLK_GONE);
    cr_expect_eq(bench_io(b, BLK_FLUSH, 0, 0, 0), BLK_GONE);
    bench_close(b);

    b = open_filled(&(struct layout_spec){.level = RAID_0, .members = 3});
    fault_kill(b->faults[1]);
    cr_expect_eq(bench_io(b, BLK_READ, 0, 0, 3 * CHUNK), BLK_GONE);
    cr_expect_eq(bench_io(b, BLK_READ, 0, 0, CHUNK), BLK_OK);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, 0, 3 * CHUNK), BLK_GONE);
    bench_close(b);
}

static void back(struct bench *b, unsigned slot)
{
    bench_rebuild(b, slot);
    bench_online(b, slot);
}

Test(volume_errors, without_redundancy_a_flush_tells_that_a_disk_was_lost_with_its_cache)
{
    struct bench *b = open_filled(&(struct layout_spec){.level = RAID_0, .members = 3});
    cr_expect_eq(bench_io(b, BLK_FLUSH, 0, 0, 0), BLK_OK);
    bench_fail(b, 1); /* nothing was in its cache */
    cr_expect_eq(bench_io(b, BLK_FLUSH, 0, 0, 0), BLK_GONE);
    back(b, 1);
    cr_expect_eq(bench_io(b, BLK_FLUSH, 0, 0, 0), BLK_OK);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, 0, 3 * CHUNK), BLK_OK);
    bench_fail(b, 1);
    back(b, 1);
    cr_expect_eq(bench_io(b, BLK_FLUSH, 0, 0, 0), BLK_GONE, "the write may be gone");
    cr_expect_eq(bench_io(b, BLK_FLUSH, 0, 0, 0), BLK_OK, "once is enough");
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, 0, 3 * CHUNK), BLK_OK);
    bench_fail(b, 1);
    cr_expect_eq(bench_io(b, BLK_FLUSH, 0, 0, 0), BLK_GONE);
    back(b, 1);
    cr_expect_eq(bench_io(b, BLK_FLUSH, 0, 0, 0), BLK_GONE, "as long as nobody has heard it of a volume that works");
    cr_expect_eq(bench_io(b, BLK_FLUSH, 0, 0, 0), BLK_OK);
    bench_close(b);
}

Test(volume_errors, members_failing_under_load_beyond_redundancy_leave_no_request_unanswered)
{
    static const struct layout_spec specs[] = {R5, R6, R1, {.level = RAID_0, .members = 3}};
    for (unsigned i = 0; i < ARRAY_LENGTH(specs); i++)
        for (uint64_t seed = 1; seed < 20; seed++) {
            struct bench *b = bench_open(&(struct bench_options){.layout = specs[i], .may_fail = true}, seed);
            bench_fill(b);
            bench_storm(b, 100, UINT64_MAX, 30 + (unsigned)seed);
            cr_expect(volume_failed(b->volume));
            bench_close(b);
        }
}

Test(volume_errors, a_failed_write_is_tried_once_more_if_the_owner_keeps_the_member)
{
    struct bench *b = open_filled(&raid5);
    b->forgiving = true;
    unsigned slot = bench_slot(b, 0, 0);
    fault_add(b->faults[slot], &(struct fault_rule){.ops = 1 << BLK_WRITE, .status = BLK_TIMEOUT, .count = 1});
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, 0, 4096), BLK_OK);
    cr_expect_eq(b->errors, 1);
    fault_add(b->faults[slot], &(struct fault_rule){.ops = 1 << BLK_WRITE, .status = BLK_TIMEOUT});
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, 0, 4096), BLK_OK, "the others have it");
    cr_expect_eq(b->errors, 3);
    cr_expect_eq(bad_bytes(&b->bad, slot), 4096, "and it is not believed any more");
    bench_close(b);
}

Test(volume_errors, without_redundancy_a_failed_write_goes_up_if_the_member_stays)
{
    struct bench *b = open_filled(&(struct layout_spec){.level = RAID_0, .members = 3});
    b->forgiving = true;
    fault_add(b->faults[1], &(struct fault_rule){.ops = 1 << BLK_WRITE, .status = BLK_NOSPACE});
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, 0, CHUNK), BLK_OK);
    cr_expect_eq(bench_io(b, BLK_WRITE, 0, CHUNK, 4096), BLK_NOSPACE);
    cr_expect_eq(b->errors, 2);
    bench_close(b);
}

Test(volume_errors, what_reads_back_bad_is_not_corrected)
{
    static const struct layout_spec specs[] = {R5, {.level = RAID_1, .members = 2}};
    for (unsigned i = 0; i < ARRAY_LENGTH(specs); i++) {
        struct bench *b = open_filled(&specs[i]);

        fault_add(b->faults[bench_slot(b, 0, 0)], &(struct fault_rule){.ops = 1 << BLK_READ, .status = BLK_MEDIA});
        for (unsigned k = 0; k < 4; k++) {
            cr_expect_eq(bench_io(b, BLK_READ, 0, 0, 4096), BLK_OK);
            testloop_run(b->t);
        }
        cr_expect_gt(b->errors, 1);
        cr_expect_eq(b->corrected, 0);
        bench_close(b);
    }
}

Test(volume_errors, a_volume_that_fails_while_a_write_waits_to_begin)
{
    static const struct layout_spec specs[] = {R5, {.level = RAID_0, .members = 3}, {.level = RAID_1, .members = 2}};
    for (unsigned i = 0; i < ARRAY_LENGTH(specs); i++) {
        struct bench *b = bench_open(&(struct bench_options){.layout = specs[i]}, 3);
        struct writer w = {.req = {.op = BLK_WRITE, .len = 4096, .pages = w.pages, .done = writer_done}, .b = b};
        cr_assert(page_pool_get(b->t->loop.pages, w.pages, 1));
        b->never_dirty = true;
        blk_submit(b->dev, &w.req);
        testloop_run(b->t);
        cr_expect_not(w.over);
        bench_fail(b, 0);
        bench_fail(b, 1);
        timer_start(&b->t->loop, &b->dirty_timer, 1000);
        cr_expect(testloop_run_until(b->t, &w.over));
        cr_expect_eq(w.req.status, BLK_GONE);
        page_put(w.pages[0]);
        bench_close(b);
    }
}

/* A long read is served in windows of 64 KiB. Its first one is to be corrected, and waits to begin, when the others
 * fail. */
Test(volume_errors, a_read_goes_on_behind_a_correction_that_the_volume_did_not_live_to_see)
{
    struct layout_spec spec = {.level = RAID_5, .members = 5, .rotation = ROTATE_LEFT_SYMMETRIC, .chunk = MIB};
    struct bench *b = bench_open(&(struct bench_options){.layout = spec, .extent = MIB}, 3);
    struct reader r;
    uint8_t want[32 * KIB];
    test_fill(want, sizeof want, 9);
    memcpy(bench_chunk(b, 0, 0) + 64 * KIB, want, sizeof want);
    bench_spoil(b, 0, 0, 0, 512);
    b->never_dirty = true;
    reader_start(b, &r, 0, 96 * KIB);
    testloop_run(b->t);
    cr_assert_not(r.over);
    bench_fail(b, bench_slot(b, 0, 1));
    bench_fail(b, bench_slot(b, 0, 2));
    timer_start(&b->t->loop, &b->dirty_timer, 1000);
    cr_assert(testloop_run_until(b->t, &r.over));
    cr_expect_eq(r.req.status, BLK_OK);
    cr_expect(memcmp(r.bytes + 64 * KIB, want, sizeof want) == 0, "the bytes of the second window");
    bench_close(b);
}

struct listener {
    struct blk_watcher watcher;
    enum blk_event last;
    unsigned count;
};

static void listen_event(struct blk_watcher *watcher, struct blkdev *dev, enum blk_event event)
{
    struct listener *l = container_of(watcher, struct listener, watcher);
    (void)dev;
    l->last = event;
    l->count++;
}

Test(volume_errors, watchers_hear_of_degraded_failed_and_restored)
{
    struct bench *b = open_filled(&raid1);
    struct listener l = {.watcher.event = listen_event};
    blk_watch(b->dev, &l.watcher);
    bench_fail(b, 0);
    cr_expect(l.last == BLK_EVENT_DEGRADED && l.count == 1);
    bench_fail(b, 1);
    cr_expect_eq(l.count, 1, "still degraded");
    bench_rebuild(b, 0);
    bench_fail(b, 2);
    cr_expect(l.last == BLK_EVENT_FAILED && l.count == 2);
    bench_online(b, 0);
    cr_expect(l.last == BLK_EVENT_DEGRADED && l.count == 3);
    bench_rebuild(b, 1);
    bench_online(b, 1);
    bench_rebuild(b, 2);
    bench_online(b, 2);
    cr_expect(l.last == BLK_EVENT_RESTORED && l.count == 4);
    blk_unwatch(b->dev, &l.watcher);
    bench_close(b);
}
