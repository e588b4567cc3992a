/*
 * Arrays under random writes, losses, returns, bursts and kills, held against a model of what was acknowledged.
 *
 * The disks are full of garbage at first, which must never be seen. The model knows for each block of 4 KiB the last
 * write that was acknowledged, and those after it of which nobody knows: they were in flight at a kill, or answered
 * with an error. A block must hold one of these. Kills and bursts come only while the array is whole where parity is
 * concerned, and losses only when it was resynchronised: what may happen otherwise to blocks beside those in flight is
 * the write hole, which the resync policy does not close.
 */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "tests/unit/raid/arrays.h"

enum { DISK = 40 * 1024 * 1024, BLOCKS = 256, DOUBTS = 8, WRITES = 12, STEPS = 80 };

struct block {
    uint64_t seeds[DOUBTS]; /* the first is acknowledged; 0: never written */
    unsigned count;
    bool busy;
};

struct slot_write {
    struct rig_write write;
    struct torture *torture;
    unsigned block;
    bool busy;
};

/* A discard or write of zeroes over some blocks. */
struct zeroing {
    struct blk_req req;
    struct torture *torture;
    unsigned first, count;
    bool busy;
};

struct torture {
    struct rig *rig;
    enum raid_level level;
    uint64_t random, next_seed;
    unsigned tolerance, acknowledged;
    unsigned dead; /* disks that do not answer, whether the array has noticed or not */
    struct block blocks[BLOCKS];
    struct slot_write writes[WRITES];
    struct zeroing zeroing;
    bool drop; /* answers come from an array that was killed: nobody hears them */
};

static uint64_t dice(struct torture *t, uint64_t sides)
{
    return test_random(&t->random) % sides;
}

static void written(struct rig_write *write)
{
    struct slot_write *w = container_of(write, struct slot_write, write);
    struct block *block = &w->torture->blocks[w->block];
    w->busy = block->busy = false;
    if (w->torture->drop || write->req.status != BLK_OK)
        return;
    block->seeds[0] = block->seeds[block->count - 1];
    block->count = 1;
    w->torture->acknowledged++;
}

static void start_write(struct torture *t)
{
    unsigned b = (unsigned)dice(t, BLOCKS);
    struct block *block = &t->blocks[b];
    for (unsigned i = 0; i < WRITES; i++) {
        struct slot_write *w = &t->writes[i];
        if (w->busy || block->busy || block->count == DOUBTS)
            continue;
        block->seeds[block->count++] = ++t->next_seed;
        block->busy = w->busy = true;
        *w = (struct slot_write){.write.on_done = written, .torture = t, .block = b, .busy = true};
        rig_write_start(t->rig, &w->write, "v", (uint64_t)b * 4096, 4096, t->next_seed);
        return;
    }
}

static void zeroed(struct blk_req *req)
{
    struct zeroing *z = container_of(req, struct zeroing, req);
    struct torture *t = z->torture;
    z->busy = false;
    for (unsigned b = z->first; b < z->first + z->count; b++) {
        t->blocks[b].busy = false;
        if (t->drop || req->status != BLK_OK)
            continue;
        t->blocks[b].seeds[0] = 0;
        t->blocks[b].count = 1;
    }
}

/* Mostly whole rows. */
static void start_zeroing(struct torture *t)
{
    struct blkdev *dev = array_volume(t->rig->array, "v");
    unsigned row = dev->info.optimal_io / 4096, count = (unsigned)(1 + dice(t, 3)) * (dice(t, 3) ? row : 1);
    unsigned first = (unsigned)dice(t, BLOCKS);
    first = count % row == 0 ? first / row * row : first;
    count = MIN(count, BLOCKS - first);
    bool free_blocks = !t->zeroing.busy;
    for (unsigned b = first; b < first + count; b++)
        free_blocks = free_blocks && !t->blocks[b].busy && t->blocks[b].count < DOUBTS;
    if (!free_blocks)
        return;
    for (unsigned b = first; b < first + count; b++) {
        t->blocks[b].seeds[t->blocks[b].count++] = 0;
        t->blocks[b].busy = true;
    }
    static const unsigned flags[] = {0, BLK_FUA, BLK_NO_UNMAP};
    t->zeroing = (struct zeroing){.torture = t, .first = first, .count = count, .busy = true};
    t->zeroing.req = (struct blk_req){.op = dice(t, 2) ? BLK_DISCARD : BLK_WRITE_ZEROES,
                                      .off = first * 4096ull,
                                      .len = count * 4096ull,
                                      .done = zeroed};
    if (t->zeroing.req.op == BLK_WRITE_ZEROES)
        t->zeroing.req.flags = flags[dice(t, 3)];
    blk_submit(dev, &t->zeroing.req);
}

/* Some writes, stopped somewhere on their way. */
static void writes_under_way(struct torture *t)
{
    for (unsigned i = 0; i < 8; i++)
        start_write(t);
    if (dice(t, 2))
        start_zeroing(t);
    rig_wait(t->rig, dice(t, 1200000));
}

static bool block_is_right(const struct block *block, const uint8_t *bytes)
{
    uint8_t want[4096];
    for (unsigned i = 0; i < block->count; i++) {
        memset(want, 0, sizeof want);
        if (block->seeds[i] != 0)
            test_fill(want, sizeof want, block->seeds[i]);
        if (memcmp(want, bytes, sizeof want) == 0)
            return true;
    }
    return false;
}

static void verify(struct torture *t, const char *when)
{
    uint8_t *bytes = malloc(BLOCKS * 4096);
    testloop_run(t->rig->t);
    cr_assert_eq(test_io(t->rig->t, array_volume(t->rig->array, "v"), BLK_READ, 0, 0, bytes, BLOCKS * 4096), BLK_OK,
                 "%s", when);
    for (unsigned b = 0; b < BLOCKS; b++)
        cr_assert(block_is_right(&t->blocks[b], bytes + b * 4096), "%s %s: block %u", raid_level_name(t->level), when,
                  b);
    free(bytes);
}

static unsigned lost_count(struct torture *t)
{
    struct array_info info = rig_info(t->rig);
    unsigned lost = 0;
    for (unsigned i = 0; i < info.members_count; i++)
        lost += strcmp(info.members[i].state, "online") != 0;
    return lost;
}

static bool is_whole(struct torture *t)
{
    return t->dead == 0 && lost_count(t) == 0 && rig_info(t->rig).jobs_count == 0;
}

static void kill_process(struct torture *t)
{
    if (!is_whole(t))
        return;
    writes_under_way(t);
    t->drop = true;
    rig_kill(t->rig);
    t->drop = false;
    cr_assert(rig_assemble(t->rig, 0xff, false), "%s", t->rig->message);
    verify(t, "after a kill");
}

static void lose_disk(struct torture *t)
{
    unsigned slot = (unsigned)dice(t, t->rig->count);
    struct array_info info = rig_info(t->rig);
    if (lost_count(t) + (unsigned)__builtin_popcount(t->dead) >= t->tolerance || info.jobs_count > 0 ||
        strcmp(info.members[slot].state, "online") != 0)
        return;
    if (dice(t, 2) && t->dead == 0) {
        (void)rig_fail(t->rig, slot);
        return;
    }
    t->dead |= 1u << slot;
    fault_kill(t->rig->dev[slot]);
}

static void return_disk(struct torture *t)
{
    unsigned slot = (unsigned)dice(t, t->rig->count);
    if (strcmp(rig_info(t->rig).members[slot].state, "failed") != 0)
        return;
    t->dead &= ~(1u << slot);
    fault_revive(t->rig->dev[slot]);
    cr_expect(rig_online(t->rig, slot), "%s", t->rig->message);
}

static void burst(struct torture *t)
{
    if (!is_whole(t))
        return;
    for (unsigned slot = 0; slot < t->rig->count; slot += dice(t, 3) ? 1 : 2) {
        fault_kill(t->rig->dev[slot]);
        writes_under_way(t);
    }
    testloop_run(t->rig->t);
    bool frozen = strcmp(rig_info(t->rig).state, "frozen") == 0;
    for (unsigned slot = 0; slot < t->rig->count; slot++)
        fault_revive(t->rig->dev[slot]);
    if (!frozen)
        return; /* few enough to go on without them */
    (void)rig_close(t->rig);
    cr_assert(rig_assemble(t->rig, 0xff, false), "%s", t->rig->assembly.reason);
    cr_expect_eq(t->rig->assembly.verdict, ASSEMBLY_COMPLETE, "%s", t->rig->assembly.reason);
    verify(t, "after a burst");
}

static void reopen(struct torture *t)
{
    testloop_run(t->rig->t); /* users gone */
    cr_assert(rig_close(t->rig), "%s", t->rig->message);
    cr_assert(rig_assemble(t->rig, 0xff, false), "%s", t->rig->assembly.reason);
    verify(t, "after close and open");
}

static void step(struct torture *t)
{
    for (uint64_t i = dice(t, 6); i > 0; i--)
        start_write(t);
    if (dice(t, 3) == 0)
        start_zeroing(t);
    rig_wait(t->rig, dice(t, 4) ? dice(t, 3000000) : dice(t, 3000000000));
    switch (dice(t, 12)) {
    case 0:
        lose_disk(t);
        break;
    case 1:
    case 2:
        return_disk(t);
        break;
    case 3:
        kill_process(t);
        break;
    case 4:
        burst(t);
        break;
    case 5:
        reopen(t);
        break;
    case 6:
        verify(t, "quiet");
        break;
    default:
        break;
    }
}

static void torture(enum raid_level level, unsigned disks, unsigned tolerance, uint64_t seed)
{
    struct torture *t = calloc(1, sizeof *t);
    *t = (struct torture){.rig = rig_create(disks, DISK), .level = level, .random = seed, .tolerance = tolerance};
    for (unsigned b = 0; b < BLOCKS; b++)
        t->blocks[b].count = 1;
    for (unsigned i = 0; i < disks; i++)
        test_fill(t->rig->mem[i]->bytes, DISK, i + 1);
    cr_assert(rig_make_one(t->rig, level, BLOCKS * 4096), "%s", t->rig->message);
    for (unsigned i = 0; i < STEPS; i++)
        step(t);
    verify(t, "at the end");
    cr_expect_gt(t->acknowledged, STEPS / 2);
    rig_destroy(t->rig);
    free(t);
}

Test(array_torture, what_was_acknowledged_is_there_whatever_happens)
{
    static const struct {
        enum raid_level level;
        unsigned disks, tolerance;
    } cases[] = {{RAID_1, 3, 2}, {RAID_10, 4, 1}, {RAID_5, 4, 1}, {RAID_6, 5, 2}, {RAID_TP, 6, 3}, {RAID_50, 6, 1}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++)
        for (uint64_t seed = 1; seed <= 4; seed++)
            torture(cases[i].level, cases[i].disks, cases[i].tolerance, seed * 1000 + i);
}
