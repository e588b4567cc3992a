/*
 * Every command in every state: it is answered, within a bounded time, in the way the table says; afterwards, with all
 * faults gone and all disks back, the array becomes whole, every byte is one that may be there, and redundancy is right on
 * the disks. Each cell is tried on an array at rest and beside writes in flight.
 */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "tests/unit/raid/scenes.h"

enum { DISK = 40 * 1024 * 1024, SIZE = 1024 * 1024, BLOCK = 4096, BLOCKS = SIZE / BLOCK, LOAD = 4 };
#define SECOND     1000000000ull
#define BOUND_NS   (60 * SECOND) /* no command takes longer */
#define SLOW_NS    5000000ull    /* of a disk, so that jobs last */
#define LATENCY_NS 100000ull
#define LOAD_BLOCK (BLOCKS / 2) /* commands work below it, the load above */
#define GONE_SLOT  1u           /* the member that states do without */
#define OTHER_SLOT 0u           /* the member that commands take out */

static const struct shape {
    enum raid_level level;
    unsigned disks, bears;
} shapes[] = {{RAID_1, 2, 1}, {RAID_1, 3, 2}, {RAID_10, 4, 1}, {RAID_5, 4, 1}, {RAID_6, 5, 2}};

enum state { IDLE, FRESH, RESYNC, SCRUB, REBUILD, DEGRADED, TWICE, LOSING, FROZEN, CLOSING, STATES };
static const char *const state_names[STATES] = {"idle",       "never written", "resynchronising", "scrubbing",
                                                "rebuilding", "degraded",      "degraded by two", "losing a disk",
                                                "frozen",     "closing"};

enum command {
    READ,
    WRITE,
    WRITE_ROWS,
    WRITE_FUA,
    FLUSH,
    DISCARD,
    ZEROES,
    TAKE_OUT,
    BRING_IN,
    BRING_BLANK,
    TAKE_BACK,
    ADD,
    SCRUB_BEGIN,
    SCRUB_END,
    INFO,
    STOP,
    KILL,
    COMMANDS
};
static const char *const command_names[COMMANDS] = {
    "read",         "write",      "write of rows", "write, FUA", "flush",     "discard",
    "write-zeroes", "take out",   "bring back",    "bring in",   "take back", "another volume",
    "scrub",        "stop scrub", "look at",       "stop",       "kill"};

/*
 * Yes; no (an error and a sentence); gone; as long as redundancy is left, else no; it depends on what is noticed first;
 * "-": cannot be.
 */
static const char answers[COMMANDS][STATES + 1] = {
    /* idle, fresh, resync, scrub, rebuild, degraded, twice, losing, frozen, closing */
    [READ] = "yyyyyyyyg-",        [WRITE] = "yyyyyyyyg-",       [WRITE_ROWS] = "yyyyyyyyg-", [WRITE_FUA] = "yyyyyyyyg-",
    [FLUSH] = "yyyyyyyyg-",       [DISCARD] = "yyyyyyyyg-",     [ZEROES] = "yyyyyyyyg-",     [TAKE_OUT] = "yyyyllldnn",
    [BRING_IN] = "nnnnnyynnn",    [BRING_BLANK] = "nnnnnyynnn", [TAKE_BACK] = "nnnnnyynnn",  [ADD] = "yyyynnndnn",
    [SCRUB_BEGIN] = "yyynyyyynn", [SCRUB_END] = "nnnynnnnnn",   [INFO] = "yyyyyyyyyy",       [STOP] = "yyyyyyydn-",
    [KILL] = "yyyyyyyyyy",
};

struct cell {
    struct scene *scene;
    struct rig *rig;
    const struct shape *shape;
    enum state state;
    enum command command;
    bool loaded;
    char what[128];
    uint8_t *model;     /* bytes that must be there */
    uint8_t *in_flight; /* or these, in blocks whose write was not answered with success */
    bool doubtful[BLOCKS], cut;
    struct rig_write load[LOAD];
    struct array_call closing;
    bool closed;
};

static bool is_parity(const struct cell *c)
{
    return c->shape->level != RAID_1 && c->shape->level != RAID_10;
}

static struct blkdev *volume_of(const struct cell *c)
{
    return array_volume(c->rig->array, "v");
}

/* --- states --- */

static void latency(struct cell *c, uint64_t ns)
{
    for (unsigned disk = 0; disk < c->rig->count; disk++)
        c->rig->mem[disk]->latency_ns = ns;
}

static void fill(struct cell *c)
{
    cr_assert_eq(rig_fill(c->rig, "v", 1, 64 * KIB), BLK_OK, "%s", c->what);
    test_fill(c->model, SIZE, 1);
}

/* Not blank: garbage where superblocks, maps and the volume will be. */
static void garbage(struct cell *c, unsigned disk)
{
    uint64_t data = array_description(c->rig->array)->data_start;
    test_fill(c->rig->mem[disk]->bytes, 2 * MIB, 99);
    test_fill(c->rig->mem[disk]->bytes + data, 2 * MIB, 98);
}

static void out_of_service(struct cell *c, unsigned slot)
{
    cr_assert(rig_fail(c->rig, slot), "%s: %s", c->what, c->rig->message);
}

static void enter_resync(struct cell *c)
{
    fill(c);
    rig_kill(c->rig);
    latency(c, SLOW_NS);
    cr_assert(scene_start(c->scene, (1u << c->rig->count) - 1), "%s: %s", c->what, c->rig->assembly.reason);
    cr_assert_eq(rig_info(c->rig).jobs_count, 1, "%s", c->what);
}

static void enter_rebuild(struct cell *c)
{
    out_of_service(c, GONE_SLOT);
    rig_disk_replace(c->rig, GONE_SLOT, DISK, 512);
    garbage(c, GONE_SLOT);
    latency(c, SLOW_NS);
    cr_assert(rig_online(c->rig, GONE_SLOT), "%s: %s", c->what, c->rig->message);
    cr_assert_str_eq(rig_info(c->rig).members[GONE_SLOT].state, "rebuilding", "%s", c->what);
}

/* More vanish at once than can be spared, and a write notices it. */
static void enter_frozen(struct cell *c)
{
    uint8_t bytes[BLOCK] = {1};
    for (unsigned disk = 0; disk < c->rig->count; disk++)
        fault_kill(c->rig->dev[disk]);
    c->doubtful[0] = true;
    memcpy(c->in_flight, bytes, sizeof bytes);
    cr_assert_eq(test_io(c->rig->t, volume_of(c), BLK_WRITE, 0, 0, bytes, sizeof bytes), BLK_GONE, "%s", c->what);
    cr_assert_str_eq(rig_info(c->rig).state, "frozen", "%s", c->what);
}

static void closing_done(struct array_call *call)
{
    container_of(call, struct cell, closing)->closed = true;
}

static void start_closing(struct cell *c)
{
    latency(c, SLOW_NS);
    c->closing.done = closing_done;
    array_close(c->rig->array, &c->closing);
    rig_wait(c->rig, SLOW_NS / 2);
    cr_assert_not(c->closed, "%s: it is under way", c->what);
}

static void enter(struct cell *c)
{
    c->rig = c->scene->rig;
    cr_assert(rig_make_one(c->rig, c->shape->level, SIZE), "%s: %s", c->what, c->rig->message);
    cr_assert_eq(volume_of(c)->info.size, SIZE);
    if (c->state == RESYNC) {
        enter_resync(c);
        return;
    }
    if (c->state == FRESH)
        return;
    fill(c);
    rig_settle(c->rig);
    switch (c->state) {
    case REBUILD:
        enter_rebuild(c);
        break;
    case TWICE:
        out_of_service(c, c->rig->count - 1);
        out_of_service(c, GONE_SLOT);
        break;
    case DEGRADED:
        out_of_service(c, GONE_SLOT);
        break;
    case SCRUB:
        latency(c, SLOW_NS);
        cr_assert(rig_scrub(c->rig, "v", SB_SCRUB_CHECK), "%s: %s", c->what, c->rig->message);
        break;
    case LOSING:
        fault_kill(c->rig->dev[GONE_SLOT]);
        break;
    case FROZEN:
        enter_frozen(c);
        break;
    case CLOSING:
        cr_assert_eq(test_io(c->rig->t, volume_of(c), BLK_WRITE, 0, 0, c->model, BLOCK), BLK_OK);
        start_closing(c);
        break;
    default:
        break;
    }
}

/* --- load --- */

static void load_begin(struct cell *c)
{
    for (unsigned i = 0; i < LOAD; i++) {
        unsigned block = LOAD_BLOCK + i * (BLOCKS - LOAD_BLOCK) / LOAD + i;
        test_fill(c->in_flight + block * BLOCK, BLOCK, 70 + i);
        c->doubtful[block] = true;
        rig_write_start(c->rig, &c->load[i], "v", block * (uint64_t)BLOCK, BLOCK, 70 + i);
    }
}

static void load_end(struct cell *c)
{
    for (unsigned i = 0; i < LOAD; i++) {
        cr_assert(testloop_run_until(c->rig->t, &c->load[i].over), "%s: a write beside it was never answered", c->what);
        uint64_t block = c->load[i].req.off / BLOCK;
        if (c->cut || c->load[i].req.status != BLK_OK)
            continue;
        memcpy(c->model + block * BLOCK, c->in_flight + block * BLOCK, BLOCK);
        c->doubtful[block] = false;
    }
}

/* --- commands --- */

struct told {
    struct array_call call;
    bool over;
};

static void told_done(struct array_call *call)
{
    container_of(call, struct told, call)->over = true;
}

/* 'y', 'n' or 'g'. */
static char io_answer(struct cell *c, enum blk_op op, unsigned flags, uint64_t block, uint64_t blocks)
{
    uint8_t *bytes = calloc(blocks + 1, BLOCK);
    uint64_t off = block * BLOCK, len = blocks * BLOCK;
    cr_assert_not_null(bytes);
    if (op == BLK_WRITE)
        test_fill(bytes, len, 1000 + c->command);
    enum blk_status status = test_io(c->rig->t, volume_of(c), op, flags, off, bytes, len);
    if (op == BLK_READ && status == BLK_OK)
        cr_expect_arr_eq(bytes, c->model + off, len, "%s: other bytes", c->what);
    if (blk_op_writes(op) && status == BLK_OK)
        memcpy(c->model + off, bytes, len);
    free(bytes);
    if (status == BLK_OK)
        return 'y';
    return status == BLK_GONE ? 'g' : 'n';
}

static char call_answer(struct cell *c, struct told *told)
{
    cr_assert(testloop_run_until(c->rig->t, &told->over), "%s: the call was never answered", c->what);
    cr_expect_eq(told->call.error == 0, told->call.message[0] == '\0', "%s: '%s'", c->what, told->call.message);
    return told->call.error == 0 ? 'y' : 'n';
}

static char bring_answer(struct cell *c, struct told *told, bool blank)
{
    struct array_disk disk = rig_disk(c->rig, GONE_SLOT);
    struct memdisk *own = c->rig->mem[GONE_SLOT];
    if (blank) {
        rig_disk_replace(c->rig, GONE_SLOT, DISK, 512);
        disk = rig_disk(c->rig, GONE_SLOT);
        garbage(c, GONE_SLOT);
    }
    array_online_member(c->rig->array, GONE_SLOT, &disk, &told->call);
    char answer = call_answer(c, told);
    if (blank && answer == 'n') { /* the old one is the member still */
        test_close(c->rig->t, c->rig->dev[GONE_SLOT]);
        c->rig->dev[GONE_SLOT] = c->rig->old[--c->rig->old_count];
        c->rig->mem[GONE_SLOT] = own;
    }
    return answer;
}

static char add_answer(struct cell *c, struct told *told)
{
    struct array_volume_spec spec = {.name = "w", .layout.level = RAID_0, .size = MIB};
    array_add_volume(c->rig->array, &spec, &told->call);
    return call_answer(c, told);
}

static char take_back_answer(struct cell *c)
{
    char why[256] = "";
    if (array_take_back_disk(c->rig->array, GONE_SLOT, why, sizeof why) == NULL)
        return 'y';
    cr_expect(why[0] != '\0', "%s", c->what);
    return 'n';
}

static char kill_answer(struct cell *c)
{
    c->cut = true;
    if (c->state == CLOSING) {
        for (unsigned disk = 0; disk < c->rig->count; disk++)
            c->rig->mem[disk]->power_cut = true;
        cr_assert(testloop_run_until(c->rig->t, &c->closed), "%s: closing never ended", c->what);
        for (unsigned disk = 0; disk < c->rig->count; disk++)
            c->rig->mem[disk]->power_cut = false;
        c->rig->array = NULL;
    } else {
        rig_kill(c->rig);
    }
    return 'y';
}

static char stop_answer(struct cell *c)
{
    if (c->loaded)
        load_end(c); /* a volume is closed when its users are gone */
    return rig_close(c->rig) ? 'y' : 'n';
}

static char give(struct cell *c)
{
    struct told told = {.call.done = told_done};
    uint64_t row = MAX(volume_of(c) != NULL ? volume_of(c)->info.optimal_io / BLOCK : 1, 1u);
    switch (c->command) {
    case READ:
        return io_answer(c, BLK_READ, 0, 3, 40);
    case WRITE:
        return io_answer(c, BLK_WRITE, 0, 5, 1);
    case WRITE_ROWS:
        return io_answer(c, BLK_WRITE, 0, 0, MIN(row * 2, (uint64_t)LOAD_BLOCK));
    case WRITE_FUA:
        return io_answer(c, BLK_WRITE, BLK_FUA, 17, 20);
    case FLUSH:
        return io_answer(c, BLK_FLUSH, 0, 0, 0);
    case DISCARD:
        return io_answer(c, BLK_DISCARD, 0, 0, row);
    case ZEROES:
        return io_answer(c, BLK_WRITE_ZEROES, BLK_NO_UNMAP, 1, row + 2);
    case TAKE_OUT:
        array_fail_member(c->rig->array, OTHER_SLOT, &told.call);
        return call_answer(c, &told);
    case BRING_IN:
    case BRING_BLANK:
        return bring_answer(c, &told, c->command == BRING_BLANK);
    case TAKE_BACK:
        return take_back_answer(c);
    case ADD:
        return add_answer(c, &told);
    case SCRUB_BEGIN:
    case SCRUB_END:
        array_scrub(c->rig->array, "v", c->command == SCRUB_BEGIN ? SB_SCRUB_REPAIR : SB_SCRUB_NONE, &told.call);
        return call_answer(c, &told);
    case INFO:
        return rig_info(c->rig).members_count == c->rig->count ? 'y' : 'n';
    case STOP:
        return stop_answer(c);
    case KILL:
        return kill_answer(c);
    case COMMANDS:
        break;
    }
    return '?';
}

static unsigned spare_redundancy(const struct cell *c)
{
    static const unsigned out[STATES] = {[REBUILD] = 1, [DEGRADED] = 1, [TWICE] = 2};
    return c->shape->bears - MIN(c->shape->bears, out[c->state]);
}

static void expect_answer(struct cell *c, char answer, uint64_t took_ns)
{
    char wanted = answers[c->command][c->state];
    if (wanted == 'l')
        wanted = spare_redundancy(c) > 0 ? 'y' : 'n';
    cr_expect(wanted == answer || wanted == 'd', "%s: answered '%c', not '%c' (%s)", c->what, answer, wanted,
              c->rig->message);
    cr_expect_lt(took_ns, BOUND_NS, "%s: it took %llu ms", c->what, (unsigned long long)took_ns / 1000000);
}

/* --- afterwards --- */

/* A degraded parity array whose write hole is open needs force after a kill; whatever was being written is in doubt. */
static void start_again(struct cell *c)
{
    bool forced = false;
    scene_show(c->scene, (1u << c->rig->count) - 1);
    cr_assert(scene_decide(c->scene), "%s", c->what);
    if (c->rig->assembly.verdict == ASSEMBLY_DIRTY_DEGRADED) {
        enum sb_consistency policy = c->rig->assembly.array.volumes[0].consistency;
        cr_expect(is_parity(c) && policy != SB_PPL && policy != SB_JOURNAL, "%s: %s", c->what, c->rig->assembly.reason);
        c->scene->options.force = forced = true;
        cr_assert(scene_decide(c->scene), "%s", c->what);
    }
    cr_assert(scene_open(c->scene), "%s: %s: %s", c->what, c->rig->assembly.reason, c->rig->message);
    for (unsigned block = 0; forced && c->loaded && block < BLOCKS; block++)
        if (block >= LOAD_BLOCK)
            c->doubtful[block] = true;
}

static void become_whole(struct cell *c)
{
    latency(c, LATENCY_NS);
    for (unsigned disk = 0; disk < c->rig->count; disk++)
        fault_revive(c->rig->dev[disk]);
    testloop_run(c->rig->t);
    if (c->rig->array != NULL && strcmp(rig_info(c->rig).state, "frozen") == 0)
        cr_expect_not(rig_close(c->rig), "%s: a frozen array was marked clean", c->what);
    if (c->rig->array == NULL)
        start_again(c);
    for (unsigned slot = 0; slot < c->rig->count; slot++) {
        const char *state = rig_info(c->rig).members[slot].state;
        if (strcmp(state, "online") != 0 && strcmp(state, "rebuilding") != 0)
            cr_expect(rig_online(c->rig, slot), "%s: slot %u: %s", c->what, slot, c->rig->message);
    }
    testloop_run(c->rig->t);
    cr_expect_str_eq(rig_info(c->rig).state, "optimal", "%s", c->what);
    cr_expect_eq(rig_info(c->rig).jobs_count, 0, "%s", c->what);
}

static void expect_bytes(struct cell *c, const char *when)
{
    uint8_t *bytes = malloc(SIZE);
    cr_assert_eq(test_io(c->rig->t, volume_of(c), BLK_READ, 0, 0, bytes, SIZE), BLK_OK, "%s %s", c->what, when);
    for (unsigned block = 0; block < BLOCKS; block++) {
        const uint8_t *have = bytes + block * BLOCK;
        bool right = memcmp(have, c->model + block * BLOCK, BLOCK) == 0;
        bool new = c->doubtful[block] && memcmp(have, c->in_flight + block * BLOCK, BLOCK) == 0;
        cr_expect(right || new, "%s %s: block %u", c->what, when, block);
    }
    free(bytes);
}

/* A scrub beside whatever was under way, or one that is begun now, finds nothing. */
static void expect_nothing_found(struct cell *c)
{
    struct array_scrub_info info;
    cr_assert(rig_scrub(c->rig, "v", SB_SCRUB_CHECK), "%s: %s", c->what, c->rig->message);
    testloop_run(c->rig->t);
    array_scrub_info(c->rig->array, 0, &info);
    cr_expect_eq(info.findings_count, 0, "%s: a scrub finds %u places", c->what, (unsigned)info.findings_count);
}

static void expect_at_rest(struct cell *c)
{
    char why[128];
    become_whole(c);
    expect_nothing_found(c);
    expect_bytes(c, "afterwards");
    cr_expect(scene_redundant(c->rig, why, sizeof why), "%s: %s", c->what, why);
    cr_assert(rig_close(c->rig), "%s: %s", c->what, c->rig->message);
    cr_assert(scene_start(c->scene, (1u << c->rig->count) - 1), "%s: %s", c->what, c->rig->assembly.reason);
    cr_expect_eq(c->rig->assembly.verdict, ASSEMBLY_COMPLETE, "%s: %s", c->what, c->rig->assembly.reason);
    cr_expect(c->rig->assembly.array.clean, "%s: not clean", c->what);
    expect_bytes(c, "after a clean stop");
}

static void try_cell(const struct shape *shape, enum state state, enum command command, bool loaded)
{
    struct cell *c = calloc(1, sizeof *c);
    cr_assert_not_null(c);
    *c = (struct cell){.scene = scene_create(shape->disks, DISK),
                       .shape = shape,
                       .state = state,
                       .command = command,
                       .loaded = loaded,
                       .model = calloc(1, SIZE),
                       .in_flight = calloc(1, SIZE)};
    text_format(c->what, sizeof c->what, "%s of %u, %s: %s%s", raid_level_name(shape->level), shape->disks,
                state_names[state], command_names[command], loaded ? " beside writes" : "");
    enter(c);
    if (loaded)
        load_begin(c);
    uint64_t start = c->rig->t->loop.now_ns;
    char answer = give(c);
    expect_answer(c, answer, c->rig->t->loop.now_ns - start);
    if (loaded)
        load_end(c);
    if (c->state == CLOSING && command != KILL) {
        cr_assert(testloop_run_until(c->rig->t, &c->closed), "%s: closing never ended", c->what);
        cr_expect_eq(c->closing.error, 0, "%s: %s", c->what, c->closing.message);
        c->rig->array = NULL;
    }
    expect_at_rest(c);
    free(c->model);
    free(c->in_flight);
    scene_destroy(c->scene);
    free(c);
}

static void try_all(const struct shape *shape)
{
    for (enum state state = 0; state < STATES; state++)
        for (enum command command = 0; command < COMMANDS; command++) {
            if (answers[command][state] == '-' || (state == TWICE && shape->bears < 2))
                continue;
            try_cell(shape, state, command, false);
            if (state != CLOSING) /* its volumes have no users */
                try_cell(shape, state, command, true);
        }
}

Test(state_matrix, every_command_in_every_state_of_a_mirror)
{
    try_all(&shapes[0]);
}

Test(state_matrix, every_command_in_every_state_of_a_mirror_of_three)
{
    try_all(&shapes[1]);
}

Test(state_matrix, every_command_in_every_state_of_raid10)
{
    try_all(&shapes[2]);
}

Test(state_matrix, every_command_in_every_state_of_raid5)
{
    try_all(&shapes[3]);
}

Test(state_matrix, every_command_in_every_state_of_raid6)
{
    try_all(&shapes[4]);
}
