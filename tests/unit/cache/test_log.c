/* The log of a cache on its devices: labels, groups, the ring, what is replayed and what is not. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "cache/log.h"
#include "core/check.h"
#include "core/log.h"
#include "tests/unit/cache/trialdisk.h"

enum { PAGES = 512, VOLUME_BYTES = 256 * 4096, RING = 64 };

struct desk {
    struct testloop *t;
    struct trialdisk *volume, *disks[LOG_DEVICES];
    struct log_identity identity;
    struct cache_log *log;
    struct cache_log_user user;
    bool called, committed, moved, ok;
    unsigned rooms, deaths;
    uint64_t least_generation;
};

static void no_log(enum log_level level, const char *line)
{
    (void)level;
    (void)line;
}

static void on_room(struct cache_log_user *user)
{
    container_of(user, struct desk, user)->rooms++;
}

static void on_committed(struct cache_log_user *user, bool ok)
{
    struct desk *d = container_of(user, struct desk, user);
    d->committed = true;
    d->ok = ok;
}

static void on_moved(struct cache_log_user *user, bool ok)
{
    struct desk *d = container_of(user, struct desk, user);
    d->moved = true;
    d->ok = ok;
}

static void on_died(struct cache_log_user *user)
{
    container_of(user, struct desk, user)->deaths++;
}

static struct desk *desk_create(unsigned devices)
{
    struct desk *d = calloc(1, sizeof *d);
    cr_assert(d != NULL);
    log_setup(no_log, LOG_LEVEL_ERROR);
    d->t = testloop_create(PAGES, 1);
    d->volume = trialdisk_create(&d->t->loop, VOLUME_BYTES, 512, 0);
    for (unsigned i = 0; i < devices; i++) {
        d->disks[i] = trialdisk_create(&d->t->loop, (LOG_RING_AT + RING) * PAGE_BYTES, 4096, 0);
        d->disks[i]->replaces = true;
        d->disks[i]->latency_ns = 1000;
        d->disks[i]->seed = 7 + i;
    }
    strcpy(d->identity.name, "tank/one");
    d->identity.array.bytes[0] = 1;
    d->identity.volume.bytes[0] = 2;
    d->user =
        (struct cache_log_user){.room = on_room, .committed = on_committed, .tail_moved = on_moved, .died = on_died};
    return d;
}

struct call {
    struct cache_log_call call;
    bool over;
};

static void call_done(struct cache_log_call *call)
{
    container_of(call, struct call, call)->over = true;
}

struct closing {
    struct task task;
    bool over;
};

static void closing_run(struct task *task)
{
    container_of(task, struct closing, task)->over = true;
}

static void log_close_now(struct desk *d)
{
    struct closing closing = {.task.run = closing_run};
    cache_log_close(d->log, &closing.task);
    cr_assert(testloop_run_until(d->t, &closing.over));
    d->log = NULL;
}

static void log_close(struct desk *d)
{
    if (d->log == NULL)
        return;
    testloop_run(d->t);
    log_close_now(d);
}

static void log_new(struct desk *d, unsigned devices)
{
    struct cache_log_options o = {.name = "one", .identity = d->identity, .least_generation = d->least_generation};
    log_close(d);
    for (unsigned i = 0; i < LOG_DEVICES; i++)
        if (devices >> i & 1)
            o.devices[i] = &d->disks[i]->dev;
    d->log = cache_log_create(&o);
    cr_assert(d->log != NULL);
    cache_log_use(d->log, &d->user);
}

static struct cache_log_status status_of(struct desk *d)
{
    struct cache_log_status status;
    cache_log_status(d->log, &status);
    return status;
}

static enum cache_log_result log_format(struct desk *d, unsigned devices)
{
    struct call call = {.call.done = call_done};
    log_new(d, devices);
    cache_log_format(d->log, &call.call);
    cr_assert(testloop_run_until(d->t, &call.over));
    d->identity.log = status_of(d).log;
    return call.call.result;
}

static enum cache_log_result log_open(struct desk *d, unsigned devices)
{
    struct call call = {.call.done = call_done};
    log_new(d, devices);
    cache_log_open(d->log, &d->volume->dev, &call.call);
    cr_assert(testloop_run_until(d->t, &call.over));
    return call.call.result;
}

/* The power fails: whatever is under way is lost, or is not. The volume is looked at, too. */
static void cut(struct desk *d)
{
    testloop_run(d->t);
    for (unsigned i = 0; i < LOG_DEVICES; i++)
        if (d->disks[i] != NULL)
            trialdisk_cut(d->disks[i]);
}

static void desk_destroy(struct desk *d)
{
    log_close(d);
    for (unsigned i = 0; i < LOG_DEVICES; i++)
        if (d->disks[i] != NULL)
            test_close(d->t, &d->disks[i]->dev);
    test_close(d->t, &d->volume->dev);
    testloop_destroy(d->t);
    free(d);
}

static struct page *page_of(struct desk *d, uint64_t seed)
{
    struct page *page;
    cr_assert(page_pool_get(d->t->loop.pages, &page, 1));
    test_fill(page->data, PAGE_BYTES, seed);
    return page;
}

static enum log_put put(struct desk *d, uint64_t block, uint8_t sectors, uint64_t seed)
{
    struct page *page = page_of(d, seed);
    enum log_put result = cache_log_put(d->log, block, sectors, page);
    page_put(page);
    return result;
}

static bool commit(struct desk *d)
{
    d->committed = false;
    cache_log_commit(d->log, 0);
    cr_assert(testloop_run_until(d->t, &d->committed));
    return d->ok;
}

static bool move_tail(struct desk *d, struct log_mark mark, bool clean)
{
    d->moved = false;
    cache_log_move_tail(d->log, mark, clean);
    cr_assert(testloop_run_until(d->t, &d->moved));
    return d->ok;
}

static bool reads(struct desk *d, uint64_t block, uint8_t sectors, uint64_t seed)
{
    uint8_t bytes[PAGE_BYTES];
    test_fill(bytes, sizeof bytes, seed);
    for (unsigned i = 0; i < 8; i++)
        if (sectors >> i & 1 && memcmp(bytes + i * 512, d->volume->seen + block * PAGE_BYTES + i * 512, 512) != 0)
            return false;
    return true;
}

static bool zero(struct desk *d, uint64_t block, uint8_t sectors)
{
    static const uint8_t zeroes[512];
    for (unsigned i = 0; i < 8; i++)
        if (sectors >> i & 1 && memcmp(zeroes, d->volume->seen + block * PAGE_BYTES + i * 512, 512) != 0)
            return false;
    return true;
}

static void look(struct desk *d, unsigned device, enum log_verdict verdict, struct log_label *label)
{
    cr_assert_eq(log_labels_look(d->disks[device]->seen, d->disks[device]->dev.info.size, label), verdict, "%s",
                 log_verdict_name(log_labels_look(d->disks[device]->seen, d->disks[device]->dev.info.size, label)));
}

/* --- labels --- */

Test(log, a_label_says_whose_log_it_is)
{
    struct desk *d = desk_create(2);
    struct log_label label;
    look(d, 0, LOG_NONE, &label);
    cr_assert_eq(log_format(d, 3), CACHE_LOG_OK);
    for (unsigned i = 0; i < 2; i++) {
        look(d, i, LOG_IN_USE, &label);
        cr_expect(uuid_equal(&label.identity.log, &d->identity.log));
        cr_expect(uuid_equal(&label.identity.volume, &d->identity.volume));
        cr_expect_str_eq(label.identity.name, "tank/one");
        cr_expect_eq(label.place, i);
        cr_expect_eq(label.live, 3);
        cr_expect_eq(label.ring, RING);
    }
    cr_expect(!uuid_is_nil(&d->identity.log));
    cr_assert(move_tail(d, cache_log_head(d->log), true));
    look(d, 0, LOG_CLEAN, &label);
    desk_destroy(d);
}

Test(log, a_label_says_which_history_its_array_is_in)
{
    struct desk *d = desk_create(2);
    struct log_label label;
    struct uuid fork = {{9, 9, 9}};
    d->identity.fork.bytes[0] = 7;
    cr_assert_eq(log_format(d, 3), CACHE_LOG_OK);
    look(d, 1, LOG_IN_USE, &label);
    cr_expect(uuid_equal(&label.identity.fork, &d->identity.fork));
    uint64_t generation = label.generation;
    cache_log_set_fork(d->log, &fork);
    cache_log_set_fork(d->log, &fork);
    log_close_now(d); /* though the labels are still on their way */
    for (unsigned i = 0; i < 2; i++) {
        look(d, i, LOG_IN_USE, &label);
        cr_expect(uuid_equal(&label.identity.fork, &fork));
        cr_expect_eq(label.generation, generation + 1);
    }
    desk_destroy(d);
}

Test(log, of_two_labels_one_may_be_torn)
{
    struct desk *d = desk_create(1);
    struct log_label before, label;
    cr_assert_eq(log_format(d, 1), CACHE_LOG_OK);
    look(d, 0, LOG_IN_USE, &before);
    d->disks[0]->seen[before.generation % 2 * PAGE_BYTES + 700] ^= 1;
    look(d, 0, LOG_IN_USE, &label);
    cr_expect_eq(label.generation, before.generation - 1);
    d->disks[0]->seen[label.generation % 2 * PAGE_BYTES] ^= 1;
    look(d, 0, LOG_DAMAGED, &label);
    desk_destroy(d);
}

Test(log, a_label_of_a_later_format_or_for_a_larger_device_is_not_used)
{
    struct log_label label = {.generation = 3, .ring = 64, .tail_sequence = 1, .live = 1}, out;
    uint8_t bytes[LOG_LABELS_BYTES] = {0};
    log_label_encode(&label, bytes);
    cr_expect_eq(log_labels_look(bytes, 80 * PAGE_BYTES, &out), LOG_IN_USE);
    cr_expect_eq(log_labels_look(bytes, 79 * PAGE_BYTES, &out), LOG_DAMAGED);
    label.live = 2;
    log_label_encode(&label, bytes);
    cr_expect_eq(log_labels_look(bytes, 80 * PAGE_BYTES, &out), LOG_DAMAGED, "it does not count itself");
}

/* --- replay --- */

Test(log, what_was_committed_is_replayed_the_newest_bytes_of_each_sector)
{
    struct desk *d = desk_create(1);
    cr_assert_eq(log_format(d, 1), CACHE_LOG_OK);
    cr_assert_eq(put(d, 5, 0xff, 1), LOG_PUT);
    cr_assert_eq(put(d, 6, 0x0f, 2), LOG_PUT);
    cr_assert(commit(d));
    cr_assert_eq(put(d, 5, 0x3c, 3), LOG_PUT);
    cr_assert_eq(put(d, 7, 0x81, 4), LOG_PUT);
    cr_assert(commit(d));
    cut(d);
    cr_assert_eq(log_open(d, 1), CACHE_LOG_OK);
    cr_expect(reads(d, 5, 0xc3, 1));
    cr_expect(reads(d, 5, 0x3c, 3));
    cr_expect(reads(d, 6, 0x0f, 2));
    cr_expect(zero(d, 6, 0xf0));
    cr_expect(reads(d, 7, 0x81, 4));
    cr_expect(zero(d, 7, 0x7e));
    cr_expect_eq(status_of(d).replayed_groups, 2);
    cr_expect_eq(memcmp(d->volume->seen, d->volume->stable, VOLUME_BYTES), 0, "and it was flushed");
    memset(d->volume->seen, 0, VOLUME_BYTES);
    cr_assert_eq(log_open(d, 1), CACHE_LOG_OK);
    cr_expect(zero(d, 5, 0xff), "once only");
    desk_destroy(d);
}

Test(log, of_one_block_each_sector_comes_from_its_own_group)
{
    struct desk *d = desk_create(1);
    cr_assert_eq(log_format(d, 1), CACHE_LOG_OK);
    cr_assert_eq(put(d, 2, 0xff, 1), LOG_PUT);
    cr_assert_eq(put(d, 3, 0x07, 2), LOG_PUT);
    cr_assert(commit(d));
    cr_assert_eq(put(d, 3, 0x7c, 3), LOG_PUT);
    cr_assert(commit(d));
    cr_assert_eq(log_open(d, 1), CACHE_LOG_OK);
    cr_expect(reads(d, 2, 0xff, 1));
    cr_expect(reads(d, 3, 0x03, 2));
    cr_expect(reads(d, 3, 0x7c, 3));
    cr_expect(zero(d, 3, 0x80));
    cr_expect_eq(d->volume->requests[BLK_WRITE], 2, "blocks that follow each other go together");
    desk_destroy(d);
}

Test(log, what_is_gone_is_not_replayed_and_what_was_put_after_it_is)
{
    struct desk *d = desk_create(1);
    cr_assert_eq(log_format(d, 1), CACHE_LOG_OK);
    for (unsigned i = 0; i < 4; i++)
        cr_assert_eq(put(d, i, 0xff, 1), LOG_PUT);
    cr_assert(commit(d));
    cr_assert_eq(cache_log_put_gone(d->log, 12, 12), LOG_PUT); /* the second half of block 1, and block 2 */
    cr_assert_eq(put(d, 2, 0x01, 2), LOG_PUT);
    cr_assert(commit(d));
    cr_assert_eq(cache_log_put_gone(d->log, 24, 1ull << 40), LOG_PUT);
    cr_assert(commit(d));
    cut(d);
    cr_assert_eq(log_open(d, 1), CACHE_LOG_OK);
    cr_expect(reads(d, 0, 0xff, 1));
    cr_expect(reads(d, 1, 0x0f, 1));
    cr_expect(zero(d, 1, 0xf0));
    cr_expect(reads(d, 2, 0x01, 2));
    cr_expect(zero(d, 2, 0xfe));
    cr_expect(zero(d, 3, 0xff));
    desk_destroy(d);
}

/* The same pages of the ring again and again: what stands there from earlier rounds, whole, is nothing. */
Test(log, it_goes_round_and_the_tail_follows)
{
    struct desk *d = desk_create(1);
    cr_assert_eq(log_format(d, 1), CACHE_LOG_OK);
    for (unsigned i = 0; i < 200; i++) {
        for (unsigned k = 0; k <= i % 20; k++)
            cr_assert_eq(put(d, k, 0xff, i), LOG_PUT, "round %u", i);
        cr_assert(commit(d));
        if (i < 199)
            cr_assert(move_tail(d, cache_log_head(d->log), false));
        if (i < 199)
            cr_assert(cache_log_is_empty(d->log));
    }
    cut(d);
    cr_assert_eq(log_open(d, 1), CACHE_LOG_OK);
    for (unsigned k = 0; k <= 199 % 20; k++)
        cr_expect(reads(d, k, 0xff, 199));
    cr_expect_eq(status_of(d).replayed_blocks, 20);
    desk_destroy(d);
}

Test(log, a_torn_group_and_what_is_behind_it_is_nothing)
{
    struct desk *d = desk_create(1);
    cr_assert_eq(log_format(d, 1), CACHE_LOG_OK);
    cr_assert_eq(put(d, 1, 0xff, 1), LOG_PUT);
    cr_assert(commit(d));
    for (unsigned i = 0; i < 40; i++) /* several groups, on their way together */
        cr_assert_eq(put(d, 2 + i, 0xff, 2), LOG_PUT);
    cache_log_commit(d->log, 0);
    testloop_run(d->t);
    uint64_t page = 16 + 2 + 5; /* of the first of them */
    d->disks[0]->seen[page * PAGE_BYTES + 17] ^= 0x40;
    /* The next one is whole, but says itself that nothing of these was durable. */
    cr_assert_eq(log_open(d, 1), CACHE_LOG_OK);
    cr_expect(reads(d, 1, 0xff, 1));
    for (unsigned i = 0; i < 40; i++)
        cr_expect(zero(d, 2 + i, 0xff));
    cr_expect_eq(status_of(d).replayed_groups, 1);
    desk_destroy(d);
}

Test(log, if_a_group_that_was_durable_is_not_whole_nothing_is_replayed)
{
    struct desk *d = desk_create(1);
    cr_assert_eq(log_format(d, 1), CACHE_LOG_OK);
    for (unsigned i = 0; i < 3; i++) {
        cr_assert_eq(put(d, i, 0xff, 1), LOG_PUT);
        cr_assert(commit(d));
    }
    d->disks[0]->seen[(16 + 2) * PAGE_BYTES + 99] ^= 1; /* the second header */
    cr_assert_eq(log_open(d, 1), CACHE_LOG_DAMAGED);
    cr_expect(zero(d, 0, 0xff));
    cr_expect_eq(d->volume->requests[BLK_WRITE], 0);
    d->disks[0]->seen[(16 + 2) * PAGE_BYTES + 99] ^= 1;
    cr_assert_eq(log_open(d, 1), CACHE_LOG_OK);
    cr_expect(reads(d, 2, 0xff, 1));
    desk_destroy(d);
}

Test(log, what_cannot_be_read_is_not_taken_for_the_end)
{
    struct desk *d = desk_create(1);
    cr_assert_eq(log_format(d, 1), CACHE_LOG_OK);
    cr_assert_eq(put(d, 3, 0xff, 1), LOG_PUT);
    cr_assert(commit(d));
    d->disks[0]->bad_off = 17 * PAGE_BYTES;
    d->disks[0]->bad_len = 512;
    cr_assert_eq(log_open(d, 1), CACHE_LOG_UNREADABLE);
    cr_expect_eq(d->volume->requests[BLK_WRITE], 0);
    d->disks[0]->bad_off = 40 * PAGE_BYTES; /* behind the end */
    cr_assert_eq(log_open(d, 1), CACHE_LOG_OK);
    cr_expect(reads(d, 3, 0xff, 1));
    desk_destroy(d);
}

Test(log, a_volume_that_takes_nothing_leaves_the_log_as_it_is)
{
    struct desk *d = desk_create(1);
    cr_assert_eq(log_format(d, 1), CACHE_LOG_OK);
    cr_assert_eq(put(d, 3, 0xff, 1), LOG_PUT);
    cr_assert(commit(d));
    d->volume->fail_percent = 100;
    cr_assert_eq(log_open(d, 1), CACHE_LOG_VOLUME);
    d->volume->fail_ops = 1 << BLK_FLUSH;
    cr_assert_eq(log_open(d, 1), CACHE_LOG_VOLUME);
    d->volume->fail_percent = 0;
    memset(d->volume->seen, 0, VOLUME_BYTES);
    cr_assert_eq(log_open(d, 1), CACHE_LOG_OK);
    cr_expect(reads(d, 3, 0xff, 1));
    desk_destroy(d);
}

Test(log, only_the_log_that_was_claimed_is_opened)
{
    struct desk *d = desk_create(1);
    cr_assert_eq(log_open(d, 1), CACHE_LOG_ABSENT);
    cr_assert_eq(log_format(d, 1), CACHE_LOG_OK);
    d->least_generation = status_of(d).generation;
    cr_assert_eq(log_open(d, 1), CACHE_LOG_OK);
    d->least_generation = status_of(d).generation + 1;
    cr_assert_eq(log_open(d, 1), CACHE_LOG_STALE);
    d->least_generation = 0;
    d->identity.log.bytes[3] ^= 1;
    cr_assert_eq(log_open(d, 1), CACHE_LOG_ABSENT);
    desk_destroy(d);
}

/* --- two devices --- */

Test(log, of_two_devices_either_will_do)
{
    for (unsigned first = 1; first <= 2; first++) {
        struct desk *d = desk_create(2);
        cr_assert_eq(log_format(d, 3), CACHE_LOG_OK);
        d->least_generation = status_of(d).generation;
        cr_assert_eq(put(d, 3, 0xff, 1), LOG_PUT);
        cr_assert(commit(d));
        cut(d);
        cr_assert_eq(log_open(d, first), CACHE_LOG_OK);
        cr_expect(reads(d, 3, 0xff, 1));
        desk_destroy(d);
    }
}

Test(log, what_one_of_two_devices_does_not_have_the_other_has)
{
    struct desk *d = desk_create(2);
    cr_assert_eq(log_format(d, 3), CACHE_LOG_OK);
    for (unsigned i = 0; i < 4; i++) {
        cr_assert_eq(put(d, i, 0xff, 1), LOG_PUT);
        cr_assert(commit(d));
        d->disks[i % 2]->seen[(16 + 2 * i + 1) * PAGE_BYTES] ^= 1;
    }
    cr_assert_eq(log_open(d, 3), CACHE_LOG_OK);
    for (unsigned i = 0; i < 4; i++)
        cr_expect(reads(d, i, 0xff, 1));
    cr_expect_eq(status_of(d).live, 3);
    desk_destroy(d);
}

Test(log, the_one_that_died_is_not_believed_when_it_comes_back)
{
    for (unsigned dies = 0; dies < 2; dies++) {
        struct desk *d = desk_create(2);
        unsigned other = dies ^ 1;
        cr_assert_eq(log_format(d, 3), CACHE_LOG_OK);
        cr_assert_eq(put(d, 3, 0xff, 1), LOG_PUT);
        cr_assert_eq(put(d, 4, 0xff, 1), LOG_PUT);
        cr_assert(commit(d));
        d->disks[dies]->fail_percent = 100;
        cr_assert_eq(put(d, 3, 0xff, 2), LOG_PUT);
        cr_assert(commit(d), "there is another one");
        cr_expect_eq(d->deaths, 1);
        cr_expect_eq(status_of(d).live, 1u << other);
        cr_expect(status_of(d).reason != NULL);
        d->least_generation = status_of(d).generation; /* the claim is renewed */
        d->disks[dies]->fail_percent = 0;
        cr_assert_eq(log_open(d, 1u << dies), CACHE_LOG_STALE, "alone");
        cr_assert_eq(log_open(d, 3), CACHE_LOG_OK);
        cr_expect(reads(d, 3, 0xff, 2));
        cr_expect(reads(d, 4, 0xff, 1));
        cr_expect_eq(status_of(d).live, 3, "it counts again");
        desk_destroy(d);
    }
}

/*
 * One dies, and with the label that says so the power fails: nobody was answered, so the claim is not renewed. Then the
 * other one is there alone, and goes on: what the first one has is of the past, though its label is as new.
 */
Test(log, who_was_opened_last_is_newer_than_who_was_told_of_a_death)
{
    for (unsigned dies = 0; dies < 2; dies++) {
        struct desk *d = desk_create(2);
        cr_assert_eq(log_format(d, 3), CACHE_LOG_OK);
        cr_assert_eq(put(d, 3, 0xff, 1), LOG_PUT);
        cr_assert(commit(d));
        d->least_generation = status_of(d).generation;
        d->disks[dies]->fail_percent = 100;
        for (unsigned i = 0; i < 4; i++)
            cr_assert_eq(put(d, 3, 0xff, 2), LOG_PUT);
        cr_assert(commit(d));
        d->disks[dies]->fail_percent = 0;
        cr_assert_eq(log_open(d, 1u << dies), CACHE_LOG_OK, "the claim speaks of no death");
        cr_assert_eq(put(d, 3, 0xff, 5), LOG_PUT);
        cr_assert(commit(d));
        cr_assert_eq(log_open(d, 3), CACHE_LOG_OK);
        cr_expect(reads(d, 3, 0xff, 5), "device %u", dies);
        cr_assert_eq(put(d, 4, 0xff, 6), LOG_PUT);
        cr_assert(commit(d));
        cr_assert_eq(log_open(d, 3), CACHE_LOG_OK);
        cr_expect(reads(d, 4, 0xff, 6));
        desk_destroy(d);
    }
}

/* Told in a label that is durable before the first commit that it missed is over. */
Test(log, a_commit_that_a_device_missed_waits_for_the_label_without_it)
{
    struct desk *d = desk_create(2);
    struct log_label label;
    cr_assert_eq(log_format(d, 3), CACHE_LOG_OK);
    d->disks[0]->fail_percent = 100;
    d->disks[0]->fail_ops = 1 << BLK_FLUSH;
    cr_assert_eq(put(d, 3, 0xff, 2), LOG_PUT);
    cr_assert(commit(d));
    cr_assert_eq(log_labels_look(d->disks[1]->stable, d->disks[1]->dev.info.size, &label), LOG_IN_USE);
    cr_expect_eq(label.live, 2);
    desk_destroy(d);
}

Test(log, when_the_last_device_dies_nothing_is_committed)
{
    struct desk *d = desk_create(2);
    cr_assert_eq(log_format(d, 3), CACHE_LOG_OK);
    d->disks[0]->fail_percent = d->disks[1]->fail_percent = 100;
    cr_assert_eq(put(d, 3, 0xff, 2), LOG_PUT);
    cr_assert(!commit(d));
    cr_expect_eq(d->deaths, 2);
    cr_expect_eq(put(d, 3, 0xff, 2), LOG_IS_DEAD);
    cr_expect(!commit(d));
    cr_expect(!move_tail(d, cache_log_head(d->log), false));
    desk_destroy(d);
}

/* --- room --- */

Test(log, when_the_ring_is_full_it_says_so_and_what_is_in_it_stays_whole)
{
    struct desk *d = desk_create(1);
    unsigned puts = 0;
    cr_assert_eq(log_format(d, 1), CACHE_LOG_OK);
    enum log_put result;
    while ((result = put(d, puts, 0xff, puts)) != LOG_FULL) {
        puts += result == LOG_PUT;
        if (result == LOG_BUSY)
            testloop_run(d->t);
    }
    cr_expect_geq(puts, RING * 3 / 4);
    cr_expect_lt(puts, RING);
    cr_assert(commit(d));
    cr_expect_gt(cache_log_fill_permille(d->log), 950);
    struct log_mark mark = cache_log_head(d->log);
    cut(d);
    cr_expect_eq(put(d, 0, 0xff, 99), LOG_FULL);
    cr_assert(move_tail(d, mark, false));
    cr_expect_eq(put(d, 0, 0xff, 99), LOG_PUT);
    cr_assert(commit(d));
    cut(d);
    cr_assert_eq(log_open(d, 1), CACHE_LOG_OK);
    cr_expect(reads(d, 0, 0xff, 99));
    cr_expect(zero(d, 1, 0xff), "it was over");
    desk_destroy(d);
}

Test(log, more_groups_than_can_be_under_way_wait_for_room)
{
    struct desk *d = desk_create(1);
    unsigned puts = 0;
    cr_assert_eq(log_format(d, 1), CACHE_LOG_OK);
    d->disks[0]->hold = true;
    for (unsigned i = 0; i < 8; i++) /* gone ones take a page of the ring each, when there are many */
        for (unsigned k = 0; k < LOG_ENTRIES_MAX; k++)
            puts += cache_log_put_gone(d->log, puts, 1) == LOG_PUT;
    cr_expect_eq(puts, 8 * LOG_ENTRIES_MAX);
    cr_expect_eq(cache_log_put_gone(d->log, puts, 1), LOG_BUSY);
    cr_expect_eq(d->rooms, 0);
    trialdisk_release(d->disks[0]);
    testloop_run(d->t);
    cr_expect_eq(d->rooms, 1);
    cr_expect_eq(cache_log_put_gone(d->log, puts, 1), LOG_PUT);
    cr_assert(commit(d));
    desk_destroy(d);
}
