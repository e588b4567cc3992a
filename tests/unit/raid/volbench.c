#include "tests/unit/raid/volbench.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "tests/unit/lib/gf_reference.h"

enum { PAGES = 8192, IN_FLIGHT = 24 };
#define DATA_START   (64 * KIB)
#define VOLUME_START (32 * KIB)

/* --- the owner --- */

static struct bench *bench_of(struct volume_owner *owner)
{
    return container_of(owner, struct bench, owner);
}

static void run_all(struct bench *b, struct task_list *waiters)
{
    struct task *task;
    while ((task = STAILQ_FIRST(waiters)) != NULL) {
        STAILQ_REMOVE_HEAD(waiters, link);
        loop_defer(&b->t->loop, task);
    }
}

static void dirty_recorded(struct timer *timer)
{
    struct bench *b = container_of(timer, struct bench, dirty_timer);
    b->dirty = true;
    run_all(b, &b->change_waiters);
}

static void loss_recorded(struct timer *timer)
{
    struct bench *b = container_of(timer, struct bench, loss_timer);
    b->loss_pending = false;
    run_all(b, &b->loss_waiters);
}

static bool owner_change_begin(struct volume_owner *owner, struct task *task)
{
    struct bench *b = bench_of(owner);
    if (b->dirty) {
        b->changes++;
        return true;
    }
    STAILQ_INSERT_TAIL(&b->change_waiters, task, link);
    if (!b->dirty_timer.armed && !b->never_dirty)
        timer_start(&b->t->loop, &b->dirty_timer, 70000);
    return false;
}

static void owner_change_end(struct volume_owner *owner)
{
    struct bench *b = bench_of(owner);
    b->changes--;
    cr_assert_geq(b->changes, 0);
}

static void owner_member_error(struct volume_owner *owner, struct member *member, enum blk_op op,
                               enum blk_status status, uint64_t off)
{
    struct bench *b = bench_of(owner);
    b->errors++;
    if (member_error(member, op, status, off, b->t->loop.now_ns) == MEMBER_FAIL && !b->forgiving)
        bench_fail(b, member->slot);
}

static void owner_member_corrected(struct volume_owner *owner, struct member *member, uint64_t off, uint64_t len)
{
    (void)off;
    (void)len;
    member->corrected++;
    bench_of(owner)->corrected++;
}

static bool owner_bad_change(struct volume_owner *owner, struct member *member, uint64_t start, uint64_t len, bool bad)
{
    struct bench *b = bench_of(owner);
    if (!(bad ? bad_add : bad_clear)(&b->bad, member->slot, start, len))
        return false;
    b->loss_pending = true;
    timer_start(&b->t->loop, &b->loss_timer, 300000);
    return true;
}

static bool owner_loss_recorded(struct volume_owner *owner, struct task *task)
{
    struct bench *b = bench_of(owner);
    if (!b->loss_pending)
        return true;
    STAILQ_INSERT_TAIL(&b->loss_waiters, task, link);
    return false;
}

/* A group of changes is over. */
static void map_committed(struct timer *timer)
{
    struct bench *b = container_of(timer, struct bench, map_timer);
    struct region_change *change;
    bool flush = false;
    while ((change = STAILQ_FIRST(&b->changes_asked)) != NULL) {
        STAILQ_REMOVE_HEAD(&b->changes_asked, link);
        flush |= change->flush_first;
        region_set(&b->map, change->region, change->to);
        change->over = true;
        loop_defer(&b->t->loop, change->task);
    }
    b->map_commits++;
    b->map_flushes += flush;
}

static void owner_region_change(struct volume_owner *owner, struct region_map *map, struct region_change *change)
{
    struct bench *b = bench_of(owner);
    cr_assert_eq(map, &b->map);
    cr_assert_neq(region_get(map, change->region), change->to, "nothing is asked for twice");
    change->over = false;
    STAILQ_INSERT_TAIL(&b->changes_asked, change, link);
    if (!b->map_timer.armed)
        timer_start(&b->t->loop, &b->map_timer, 50000);
}

static void owner_row_written(struct volume_owner *owner, const struct region_map *map, uint64_t row)
{
    cr_assert(map == &bench_of(owner)->map && row < map->regions);
    bench_of(owner)->rows_written++;
}

static const struct volume_owner_ops owner_ops = {.change_begin = owner_change_begin,
                                                  .change_end = owner_change_end,
                                                  .member_error = owner_member_error,
                                                  .member_corrected = owner_member_corrected,
                                                  .bad_change = owner_bad_change,
                                                  .loss_recorded = owner_loss_recorded,
                                                  .region_change = owner_region_change,
                                                  .row_written = owner_row_written};

void bench_synced(struct bench *b)
{
    for (uint64_t row = 0; row < b->map.regions; row++)
        if (region_get(&b->map, row) == REGION_SUSPECT)
            region_set(&b->map, row, REGION_CLEAN);
}

void bench_fail(struct bench *b, unsigned slot)
{
    sm_move(&b->members[slot].state, MEMBER_FAILED);
    b->losses++;
    b->loss_pending = true;
    timer_start(&b->t->loop, &b->loss_timer, 300000);
    volume_members_changed(b->volume);
}

void bench_rebuild(struct bench *b, unsigned slot)
{
    memset(b->disks[slot]->bytes, 0xa5, b->disks[slot]->dev.info.size);
    fault_clear(b->faults[slot], -1);
    fault_revive(b->faults[slot]);
    unsigned disks = b->members[slot].disks + 1;
    member_init(&b->members[slot], slot, b->faults[slot], DATA_START, MEMBER_REBUILDING);
    b->members[slot].disks = disks;
    volume_members_changed(b->volume);
}

void bench_online(struct bench *b, unsigned slot)
{
    sm_move(&b->members[slot].state, MEMBER_ONLINE);
    volume_members_changed(b->volume);
}

/* --- open and close --- */

static void options_complete(struct bench_options *o)
{
    struct layout_spec *l = &o->layout;
    bool dedicated = l->level == RAID_3 || l->level == RAID_30;
    l->chunk = l->chunk != 0 ? l->chunk : dedicated ? 4 * KIB : 8 * KIB;
    l->spans = l->spans != 0 ? l->spans : 1;
    if (l->copies == 0)
        l->copies = l->level == RAID_1 ? l->members : 1;
    o->extent = o->extent != 0 ? o->extent : 96 * KIB;
    o->logical_block = o->logical_block != 0 ? o->logical_block : 512;
    o->member_block = o->member_block != 0 ? o->member_block : o->logical_block;
}

static void member_create(struct bench *b, unsigned slot)
{
    char name[8];
    uint64_t size = DATA_START + VOLUME_START + 2 * b->options.extent;
    text_format(name, sizeof name, "m%u", slot);
    b->disks[slot] = memdisk_create(&b->t->loop, name, size, b->options.member_block);
    b->disks[slot]->latency_ns = b->options.instant ? 0 : 20000;
    b->disks[slot]->dev.info.max_request = b->options.member_max_request;
    b->disks[slot]->dev.info.discards = b->disks[slot]->dev.info.discard_zeroes = !b->options.no_discard;
    if (b->options.unwritten)
        test_fill(b->disks[slot]->bytes, size, slot + 1);
    b->faults[slot] = fault_create(&b->t->loop, &b->disks[slot]->dev);
    bool absent = b->options.absent >> slot & 1;
    member_init(&b->members[slot], slot, absent ? NULL : b->faults[slot], DATA_START,
                absent ? MEMBER_ABSENT : MEMBER_ONLINE);
    b->table[slot] = &b->members[slot];
}

void bench_reopen(struct bench *b)
{
    uint64_t size = b->layout.rows * b->layout.row_data;
    struct volume_options v = {.name = "vol",
                               .layout = &b->layout,
                               .members = b->table,
                               .start = VOLUME_START,
                               .size = size,
                               .logical_block = b->options.logical_block,
                               .map = b->layout.redundancy > 0 ? &b->map : NULL,
                               .consistency = b->layout.redundancy > 0 ? SB_BITMAP : SB_RESYNC,
                               .bad = &b->bad,
                               .owner = &b->owner,
                               .runs_max = b->options.runs_max,
                               .rows_max = b->options.rows_max,
                               .scratch_bytes = b->options.scratch_bytes};
    b->volume = volume_open(&b->t->loop, &v);
    ASSERT(b->volume != NULL);
    b->dev = volume_dev(b->volume);
}

struct bench *bench_open(const struct bench_options *options, uint64_t seed)
{
    struct bench *b = calloc(1, sizeof *b);
    ASSERT(b != NULL);
    b->t = testloop_create(PAGES, seed);
    b->seed = seed;
    b->options = *options;
    options_complete(&b->options);
    b->owner.ops = &owner_ops;
    b->dirty_timer.fire = dirty_recorded;
    b->map_timer.fire = map_committed;
    STAILQ_INIT(&b->changes_asked);
    b->loss_timer.fire = loss_recorded;
    STAILQ_INIT(&b->change_waiters);
    STAILQ_INIT(&b->loss_waiters);

    unsigned members = b->options.layout.members;
    ASSERT(members <= BENCH_MEMBERS);
    uint64_t extents[BENCH_MEMBERS];
    for (unsigned slot = 0; slot < members; slot++) {
        member_create(b, slot);
        extents[slot] = b->options.extent + (b->options.layout.level == RAID_SPAN ? slot * 16 * KIB : 0);
    }
    const char *wrong = layout_init(&b->layout, &b->options.layout, extents);
    cr_assert_null(wrong, "%s", wrong);
    cr_assert(region_map_init(&b->map, b->layout.rows));
    for (uint64_t row = 0; row < b->layout.rows && !b->options.unwritten; row++)
        region_set(&b->map, row, b->options.unsynced ? REGION_SUSPECT : REGION_CLEAN);
    b->model = calloc(b->layout.rows, b->layout.row_data);
    ASSERT(b->model != NULL);
    bench_reopen(b);
    return b;
}

void bench_close(struct bench *b)
{
    testloop_run(b->t);
    cr_expect_eq(b->changes, 0, "every change that began has ended");
    test_close(b->t, b->dev);
    for (unsigned slot = 0; slot < b->options.layout.members; slot++)
        test_close(b->t, b->faults[slot]);
    testloop_destroy(b->t);
    region_map_fini(&b->map);
    free(b->model);
    free(b);
}

/* --- requests --- */

enum blk_status bench_io(struct bench *b, enum blk_op op, unsigned flags, uint64_t off, uint64_t len)
{
    uint8_t *buffer = malloc(len + 1);
    ASSERT(buffer != NULL);
    if (op == BLK_WRITE)
        test_fill(buffer, len, test_random(&b->seed));
    enum blk_status status = test_io(b->t, b->dev, op, flags, off, buffer, len);
    if (status == BLK_OK && op == BLK_READ)
        cr_expect_arr_eq(buffer, b->model + off, len, "read at %llu, %llu bytes", (unsigned long long)off,
                         (unsigned long long)len);
    else if (status == BLK_OK && op == BLK_WRITE)
        memcpy(b->model + off, buffer, len);
    else if (status == BLK_OK)
        memset(b->model + off, 0, len);
    free(buffer);
    return status;
}

void bench_fill(struct bench *b)
{
    uint64_t step = 1 * MIB;
    for (uint64_t off = 0; off < b->dev->info.size; off += step)
        cr_assert_eq(bench_io(b, BLK_WRITE, 0, off, MIN(step, b->dev->info.size - off)), BLK_OK);
}

struct shot {
    struct blk_req req;
    struct bench *b;
    struct page *pages[64];
    uint32_t pages_count;
    bool busy;
};

static void shot_done(struct blk_req *req)
{
    struct shot *s = container_of(req, struct shot, req);
    bool excused = s->b->options.may_fail && req->status == BLK_GONE;
    cr_expect(req->status == BLK_OK || excused, "%s of %llu bytes at %llu: %s", blk_op_name(req->op),
              (unsigned long long)req->len, (unsigned long long)req->off, blk_status_name(req->status));
    if (req->op == BLK_READ && req->status == BLK_OK && !s->b->options.may_fail) {
        uint8_t *buffer = malloc(req->len);
        pages_copy_out(buffer, s->pages, req->off % PAGE_BYTES, req->len);
        cr_expect(memcmp(buffer, s->b->model + req->off, req->len) == 0, "read of %llu bytes at %llu",
                  (unsigned long long)req->len, (unsigned long long)req->off);
        free(buffer);
    }
    page_put_all(s->pages, s->pages_count);
    s->busy = false;
}

static enum blk_op random_op(struct bench *b)
{
    static const enum blk_op ops[] = {BLK_READ,  BLK_READ,  BLK_READ,    BLK_WRITE,        BLK_WRITE,
                                      BLK_WRITE, BLK_WRITE, BLK_DISCARD, BLK_WRITE_ZEROES, BLK_FLUSH};
    return ops[test_random(&b->seed) % ARRAY_LENGTH(ops)];
}

/* Mostly small, sometimes rows; few places, so that rows are shared. */
static void random_range(struct bench *b, uint64_t *off, uint64_t *len)
{
    uint64_t block = b->dev->info.logical_block, blocks = b->dev->info.size / block;
    uint64_t row = b->layout.row_data / block, most[] = {1, 9, row, 3 * row};
    uint64_t count = 1 + test_random(&b->seed) % most[test_random(&b->seed) % 4];
    if (test_random(&b->seed) % 4 == 0)
        count = round_up(count, row); /* whole rows, at a row's begin */
    count = MIN(count, MIN(blocks, (uint64_t)(60 * PAGE_BYTES) / block));
    *off = test_random(&b->seed) % (blocks - count + 1);
    if (count % row == 0)
        *off = round_down(*off, row);
    *off *= block;
    *len = count * block;
}

static bool overlaps(const struct shot *shots, uint64_t off, uint64_t len)
{
    for (unsigned i = 0; i < IN_FLIGHT; i++)
        if (shots[i].busy && off < shots[i].req.off + shots[i].req.len && shots[i].req.off < off + len)
            return true;
    return false;
}

static void shoot(struct bench *b, struct shot *s, enum blk_op op, uint64_t off, uint64_t len)
{
    uint64_t fill = test_random(&b->seed);
    s->b = b;
    s->busy = true;
    s->req = (struct blk_req){.op = op, .off = off, .len = len, .pages = s->pages, .done = shot_done};
    if (blk_op_writes(op) && op != BLK_DISCARD && fill % 3 == 0)
        s->req.flags = BLK_FUA;
    s->pages_count = blk_op_has_data(op) ? page_count_for(off, len) : 0;
    cr_assert(page_pool_get(b->t->loop.pages, s->pages, s->pages_count));
    if (op == BLK_WRITE) {
        test_fill(b->model + off, len, fill);
        pages_copy_in(s->pages, off % PAGE_BYTES, b->model + off, len);
    } else if (blk_op_writes(op)) {
        memset(b->model + off, 0, len);
    }
    blk_submit(b->dev, &s->req);
}

static struct shot *idle_shot(struct bench *b, struct shot *shots)
{
    for (;;) {
        for (unsigned i = 0; i < IN_FLIGHT; i++)
            if (!shots[i].busy)
                return &shots[i];
        b->t->loop.now_ns = MAX(b->t->loop.now_ns, loop_next_timer_ns(&b->t->loop));
        testloop_run_ready(b->t);
    }
}

static void vary_latencies(struct bench *b)
{
    for (unsigned slot = 0; slot < b->layout.spec.members && !b->options.instant; slot++)
        b->disks[slot]->latency_ns = 1000 + test_random(&b->seed) % 100000;
}

void bench_storm(struct bench *b, unsigned count, uint64_t kill, unsigned kill_at)
{
    struct shot *shots = calloc(IN_FLIGHT, sizeof *shots);
    ASSERT(shots != NULL);
    for (unsigned i = 0; i < count; i++) {
        for (unsigned slot = 0; i == kill_at && slot < b->layout.spec.members; slot++)
            if (kill >> slot & 1)
                fault_kill(b->faults[slot]);
        vary_latencies(b);
        struct shot *s = idle_shot(b, shots);
        uint64_t off = 0, len = 0;
        enum blk_op op = random_op(b);
        if (op != BLK_FLUSH)
            random_range(b, &off, &len);
        if (overlaps(shots, off, len))
            testloop_run(b->t);
        shoot(b, s, op, off, len);
    }
    testloop_run(b->t);
    for (unsigned i = 0; i < IN_FLIGHT; i++)
        cr_expect_not(shots[i].busy, "every request is answered");
    free(shots);
}

/* --- checks --- */

void bench_check_contents(struct bench *b)
{
    for (uint64_t off = 0, step = 256 * KIB; off < b->dev->info.size; off += step)
        cr_expect_eq(bench_io(b, BLK_READ, 0, off, MIN(step, b->dev->info.size - off)), BLK_OK);
}

unsigned bench_slot(struct bench *b, uint64_t row, unsigned role)
{
    struct layout_place place;
    layout_place(&b->layout, row, role, &place);
    return place.slot;
}

uint64_t bench_chunk_off(struct bench *b, uint64_t row, unsigned role)
{
    struct layout_place place;
    layout_place(&b->layout, row, role, &place);
    return DATA_START + VOLUME_START + place.off;
}

uint8_t *bench_chunk(struct bench *b, uint64_t row, unsigned role)
{
    return b->disks[bench_slot(b, row, role)]->bytes + bench_chunk_off(b, row, role);
}

/* Q's exponent of a data chunk, as md counts it with two parities: steps round the ring of the span, from behind Q. */
static unsigned exponent_of(struct bench *b, uint64_t row, unsigned role)
{
    unsigned n = b->layout.roles, q = b->layout.data + 1;
    if (b->layout.redundancy != 2)
        return role;
    return (bench_slot(b, row, role) + n - bench_slot(b, row, q) - 1 + n) % n;
}

/* What byte `column` of a role should be, from the model. */
static uint8_t expected_byte(struct bench *b, uint64_t row, unsigned role, uint64_t column)
{
    const uint8_t *data = b->model + row * b->layout.row_data;
    uint8_t bytes[RAID_MEMBERS_MAX];
    if (!b->layout.parity)
        return data[column];
    if (role < b->layout.data)
        return data[role * b->layout.spec.chunk + column];
    for (unsigned d = 0; d < b->layout.data; d++)
        bytes[exponent_of(b, row, d)] = data[d * b->layout.spec.chunk + column];
    return gf_reference_parity(role - b->layout.data, bytes, b->layout.data);
}

static bool chunk_is_right(struct bench *b, uint64_t row, unsigned role)
{
    const uint8_t *chunk = bench_chunk(b, row, role);
    /* Every 7th byte: the reference is slow, and errors come in blocks. */
    for (uint64_t column = row % 7; column < b->layout.spec.chunk; column += 7)
        if (chunk[column] != expected_byte(b, row, role, column))
            return false;
    return true;
}

static enum region_state region_of(struct bench *b, uint64_t row)
{
    return b->layout.redundancy > 0 ? region_get(&b->map, row) : REGION_CLEAN;
}

void bench_check_redundancy(struct bench *b)
{
    for (uint64_t row = 0; row < b->layout.rows; row++)
        for (unsigned role = 0; role < b->layout.roles; role++)
            if (region_of(b, row) != REGION_UNWRITTEN && member_readable(&b->members[bench_slot(b, row, role)]))
                cr_expect(chunk_is_right(b, row, role), "row %llu role %u of %s, %u members", (unsigned long long)row,
                          role, raid_level_name(b->layout.spec.level), b->layout.spec.members);
}

void bench_spoil(struct bench *b, uint64_t row, unsigned role, uint64_t column, uint64_t len)
{
    struct layout_place place;
    layout_place(&b->layout, row, role, &place);
    struct fault_rule rule = {.ops = 1 << BLK_READ,
                              .off = DATA_START + VOLUME_START + place.off + column,
                              .len = len,
                              .status = BLK_MEDIA,
                              .until_written = true};
    cr_assert_geq(fault_add(b->faults[place.slot], &rule), 0);
}

struct bench_counts bench_counts(const struct bench *b)
{
    struct bench_counts c = {0};
    for (unsigned slot = 0; slot < b->options.layout.members; slot++) {
        c.reads += b->disks[slot]->reads;
        c.writes += b->disks[slot]->writes;
        c.flushes += b->disks[slot]->flushes;
        c.fuas += b->disks[slot]->fuas;
    }
    return c;
}

struct job_call {
    struct row_job job;
    bool over;
};

static void job_over(struct row_job *job)
{
    container_of(job, struct job_call, job)->over = true;
}

enum blk_status bench_job(struct bench *b, enum row_work work, uint64_t row, bool *changed)
{
    struct job_call call = {.job = {.work = work, .row = row, .done = job_over}};
    volume_row_job(b->volume, &call.job);
    cr_expect_not(call.over, "done never runs inside the call");
    cr_assert(testloop_run_until(b->t, &call.over));
    if (changed != NULL)
        *changed = call.job.changed;
    return call.job.status;
}

struct row_report bench_scrub(struct bench *b, uint64_t row, bool repair, enum blk_status expected)
{
    struct job_call call = {.job = {.work = ROW_SCRUB, .repair = repair, .row = row, .done = job_over}};
    volume_row_job(b->volume, &call.job);
    cr_assert(testloop_run_until(b->t, &call.over));
    cr_expect_eq(call.job.status, expected, "%s", blk_status_name(call.job.status));
    return call.job.report;
}
