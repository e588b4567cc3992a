#include "tests/unit/raid/matrix.h"

#include <criterion/criterion.h>

#include <string.h>

#define SLOW_NS 5000000ull /* of a disk, so that jobs last */

/* In row 0, which reads and writes of the matrix touch. */
enum { BAD_OFF = 16 * 1024, AWAY_BLOCKS = MATRIX_BLOCKS / 2, SECOND_SOURCE = 2 };

static const struct {
    const char *name;
    unsigned out; /* members that hold less than all */
    bool paused;
} states[MATRIX_STATES] = {
    [IDLE] = {"idle", 0, false},
    [FRESH] = {"never written", 0, false},
    [INITIALISING] = {"initialising", 0, false},
    [RESYNC] = {"resynchronising", 0, false},
    [SCRUB] = {"scrubbing", 0, false},
    [REBUILD] = {"rebuilding", 1, false},
    [DEGRADED] = {"degraded", 1, false},
    [TWICE] = {"degraded by two", 2, false},
    [LOSING] = {"losing a disk", 0, false},
    [FROZEN] = {"frozen", 0, false},
    [CLOSING] = {"closing", 0, false},
    [REPLACING] = {"copying to a spare", 0, false},
    [CATCHING_UP] = {"catching up", 1, false},
    [PAUSED_REBUILD] = {"rebuild paused", 1, true},
    [PAUSED_RESYNC] = {"resync paused", 0, true},
    [BAD_BLOCKS] = {"bad blocks of a disk", 0, false},
    [LOST_BLOCKS] = {"lost blocks", 0, false},
};

const char *matrix_state_name(enum matrix_state state)
{
    return states[state].name;
}

unsigned matrix_spare_redundancy(const struct matrix_cell *c)
{
    return c->shape->bears - MIN(c->shape->bears, states[c->state].out);
}

bool matrix_is_paused(enum matrix_state state)
{
    return states[state].paused;
}

struct blkdev *matrix_volume(const struct matrix_cell *c)
{
    return array_volume(c->rig->array, "v");
}

void matrix_latency(struct matrix_cell *c, uint64_t ns)
{
    for (unsigned disk = 0; disk < c->rig->count; disk++)
        c->rig->mem[disk]->latency_ns = ns;
}

void matrix_garbage(struct matrix_cell *c, unsigned disk)
{
    uint64_t data = array_description(c->rig->array)->data_start;
    test_fill(c->rig->mem[disk]->bytes, 2 * MIB, 99);
    test_fill(c->rig->mem[disk]->bytes + data, 2 * MIB, 98);
}

static void fill(struct matrix_cell *c)
{
    cr_assert_eq(rig_fill(c->rig, "v", 1, 64 * KIB), BLK_OK, "%s", c->what);
    test_fill(c->model, MATRIX_SIZE, 1);
}

static void out_of_service(struct matrix_cell *c, unsigned slot)
{
    cr_assert(rig_fail(c->rig, slot), "%s: %s", c->what, c->rig->message);
}

static void expect_job(struct matrix_cell *c, const char *kind)
{
    struct array_info info = rig_info(c->rig);
    cr_assert_eq(info.jobs_count, 1, "%s", c->what);
    cr_assert_str_eq(info.jobs[0].kind, kind, "%s", c->what);
}

/* Paused from before the crash on: it has not begun. */
static void enter_resync(struct matrix_cell *c)
{
    if (c->state == PAUSED_RESYNC)
        cr_assert(rig_pause(c->rig, 0, true), "%s: %s", c->what, c->rig->message);
    rig_kill(c->rig);
    matrix_latency(c, SLOW_NS);
    cr_assert(scene_start(c->scene, (1u << c->rig->count) - 1), "%s: %s", c->what, c->rig->assembly.reason);
    expect_job(c, "resync");
}

static void enter_initialising(struct matrix_cell *c)
{
    matrix_latency(c, SLOW_NS);
    cr_assert(rig_init(c->rig, "v", true), "%s: %s", c->what, c->rig->message);
    expect_job(c, "init");
}

static void bring_blank(struct matrix_cell *c)
{
    out_of_service(c, MATRIX_GONE);
    rig_disk_replace(c->rig, MATRIX_GONE, MATRIX_DISK, 512);
    matrix_garbage(c, MATRIX_GONE);
}

static void enter_rebuild(struct matrix_cell *c)
{
    bring_blank(c);
    matrix_latency(c, SLOW_NS);
    cr_assert(rig_online(c->rig, MATRIX_GONE), "%s: %s", c->what, c->rig->message);
    expect_job(c, "rebuild");
}

/* The disk missed writes of half the volume, below the load and with it. */
static void enter_catching_up(struct matrix_cell *c)
{
    uint64_t len = AWAY_BLOCKS * (uint64_t)MATRIX_BLOCK;
    out_of_service(c, MATRIX_GONE);
    test_fill(c->model, len, 2);
    cr_assert_eq(test_io(c->rig->t, matrix_volume(c), BLK_WRITE, 0, 0, c->model, len), BLK_OK, "%s", c->what);
    matrix_latency(c, SLOW_NS);
    cr_assert(rig_online(c->rig, MATRIX_GONE), "%s: %s", c->what, c->rig->message);
    expect_job(c, "rebuild");
    struct array_info info = rig_info(c->rig);
    cr_assert_lt(info.jobs[0].total_bytes, info.jobs[0].rows * c->shape->disks * 64 * KIB, "%s: not all", c->what);
}

static void enter_replacing(struct matrix_cell *c)
{
    unsigned disk = rig_disk_more(c->rig, MATRIX_DISK, 512);
    matrix_garbage(c, disk);
    matrix_latency(c, SLOW_NS);
    cr_assert(rig_replace(c->rig, MATRIX_GONE, disk), "%s: %s", c->what, c->rig->message);
    expect_job(c, "replace");
}

/* In the middle of it. */
static void enter_paused_rebuild(struct matrix_cell *c)
{
    enter_rebuild(c);
    cr_assert(rig_pause(c->rig, 0, true), "%s: %s", c->what, c->rig->message);
    cr_assert_str_eq(rig_info(c->rig).jobs[0].waits_for, "paused", "%s", c->what);
}

static void misbehave(struct matrix_cell *c, unsigned slot, enum blk_op op)
{
    fault_add(c->rig->dev[slot], &(struct fault_rule){.ops = 1u << op,
                                                      .off = array_description(c->rig->array)->data_start + BAD_OFF,
                                                      .len = MATRIX_BLOCK,
                                                      .status = BLK_MEDIA,
                                                      .until_written = op == BLK_READ});
}

/* One disk refuses writes of a range, and goes on doing so; it has to stay, for the sake of volume s. */
static void enter_bad_blocks(struct matrix_cell *c)
{
    misbehave(c, MATRIX_GONE, BLK_WRITE);
    fill(c);
    uint64_t bad = rig_info(c->rig).members[MATRIX_GONE].bad_bytes;
    cr_assert(bad > 0 && bad <= 64 * KIB, "%s: %llu bytes", c->what, (unsigned long long)bad);
}

/* A disk is rebuilt, and a block cannot be read on as many others as the level bears losses. */
static void enter_lost_blocks(struct matrix_cell *c)
{
    struct array_lost lost;
    bring_blank(c);
    misbehave(c, MATRIX_OTHER, BLK_READ);
    if (c->shape->bears > 1)
        misbehave(c, SECOND_SOURCE, BLK_READ);
    cr_assert(rig_online(c->rig, MATRIX_GONE), "%s: %s", c->what, c->rig->message);
    rig_settle(c->rig);
    cr_assert_str_eq(rig_info(c->rig).state, "optimal", "%s", c->what);
    array_lost(c->rig->array, 0, &lost);
    cr_assert(lost.count > 0 && lost.count < ARRAY_LENGTH(lost.ranges), "%s", c->what);
    for (unsigned i = 0; i < lost.count; i++)
        c->lost[lost.ranges[i].off / MATRIX_BLOCK] = true; /* less than a block each */
}

/* More vanish at once than can be spared, and a write notices it. */
static void enter_frozen(struct matrix_cell *c)
{
    uint8_t bytes[MATRIX_BLOCK] = {1};
    for (unsigned disk = 0; disk < c->rig->count; disk++)
        fault_kill(c->rig->dev[disk]);
    c->doubtful[0] = true;
    memcpy(c->in_flight, bytes, sizeof bytes);
    cr_assert_eq(test_io(c->rig->t, matrix_volume(c), BLK_WRITE, 0, 0, bytes, sizeof bytes), BLK_GONE, "%s", c->what);
    cr_assert_str_eq(rig_info(c->rig).state, "frozen", "%s", c->what);
}

static void closing_done(struct array_call *call)
{
    container_of(call, struct matrix_cell, closing)->closed = true;
}

static void enter_closing(struct matrix_cell *c)
{
    cr_assert_eq(test_io(c->rig->t, matrix_volume(c), BLK_WRITE, 0, 0, c->model, MATRIX_BLOCK), BLK_OK);
    matrix_latency(c, SLOW_NS);
    c->closing.done = closing_done;
    array_close(c->rig->array, &c->closing);
    rig_wait(c->rig, SLOW_NS / 2);
    cr_assert_not(c->closed, "%s: it is under way", c->what);
}

static void enter_from_idle(struct matrix_cell *c)
{
    switch (c->state) {
    case REBUILD:
        enter_rebuild(c);
        break;
    case PAUSED_REBUILD:
        enter_paused_rebuild(c);
        break;
    case TWICE:
        out_of_service(c, c->rig->count - 1);
        out_of_service(c, MATRIX_GONE);
        break;
    case DEGRADED:
        out_of_service(c, MATRIX_GONE);
        break;
    case SCRUB:
        matrix_latency(c, SLOW_NS);
        cr_assert(rig_scrub(c->rig, "v", SB_SCRUB_CHECK), "%s: %s", c->what, c->rig->message);
        break;
    case LOSING:
        fault_kill(c->rig->dev[MATRIX_GONE]);
        break;
    case FROZEN:
        enter_frozen(c);
        break;
    case CLOSING:
        enter_closing(c);
        break;
    case REPLACING:
        enter_replacing(c);
        break;
    case CATCHING_UP:
        enter_catching_up(c);
        break;
    case BAD_BLOCKS:
        enter_bad_blocks(c);
        break;
    case LOST_BLOCKS:
        enter_lost_blocks(c);
        break;
    default:
        break;
    }
}

void matrix_enter(struct matrix_cell *c)
{
    c->rig = c->scene->rig;
    struct array_spec *spec = rig_spec(c->rig);
    rig_spec_add(spec, "v", c->shape->level, MATRIX_SIZE);
    if (c->state == BAD_BLOCKS)
        rig_spec_add(spec, "s", RAID_0, MATRIX_SIZE);
    cr_assert(rig_make(c->rig, spec), "%s: %s", c->what, c->rig->message);
    cr_assert_eq(matrix_volume(c)->info.size, MATRIX_SIZE);
    if (c->state == INITIALISING)
        enter_initialising(c);
    if (c->state == FRESH || c->state == INITIALISING)
        return;
    fill(c);
    if (c->state == RESYNC || c->state == PAUSED_RESYNC) {
        enter_resync(c);
        return;
    }
    rig_settle(c->rig);
    enter_from_idle(c);
}
