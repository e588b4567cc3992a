/*
 * Every command in every state: it is answered, within a bounded time, in the way the table says; afterwards, with all
 * faults gone and all disks back, the array becomes whole, every byte is one that may be there, and redundancy is right
 * on the disks. Each cell is tried on an array at rest and beside writes in flight.
 */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "tests/unit/raid/matrix.h"

#define SECOND     1000000000ull
#define BOUND_NS   (60 * SECOND) /* no command takes longer */
#define LATENCY_NS 100000ull

static const struct matrix_shape shapes[] = {
    {RAID_1, 2, 1}, {RAID_1, 3, 2}, {RAID_10, 4, 1}, {RAID_5, 4, 1}, {RAID_6, 5, 2}};

static const char *const command_names[MATRIX_COMMANDS] = {
    [READ] = "read",
    [WRITE] = "write",
    [WRITE_ROWS] = "write of rows",
    [WRITE_FUA] = "write, FUA",
    [FLUSH] = "flush",
    [DISCARD] = "discard",
    [ZEROES] = "write-zeroes",
    [TAKE_OUT] = "take out",
    [TAKE_OUT_SAME] = "take out that disk",
    [BRING_IN] = "bring back",
    [BRING_BLANK] = "bring in",
    [TAKE_BACK] = "take back",
    [FORGET] = "forget",
    [REPLACE] = "replace",
    [ADD] = "another volume",
    [SCRUB_BEGIN] = "scrub",
    [SCRUB_END] = "stop scrub",
    [PAUSE] = "pause",
    [RESUME] = "resume",
    [INFO] = "look at",
    [STOP] = "stop",
    [KILL] = "kill",
};

/*
 * Yes; no (an error and a sentence); gone; as long as redundancy is left, else no; it depends on what is noticed first;
 * "-": cannot be.
 */
static const char answers[MATRIX_COMMANDS][MATRIX_STATES + 1] = {
    /* idle, fresh, init, resync, scrub, rebuild, degraded, twice, losing, frozen, closing,
       replacing, catching up, rebuild paused, resync paused, bad blocks, lost blocks */
    [READ] = "yyyyyyyyyg-yyyyyn",        [WRITE] = "yyyyyyyyyg-yyyyyy",       [WRITE_ROWS] = "yyyyyyyyyg-yyyyyy",
    [WRITE_FUA] = "yyyyyyyyyg-yyyyyy",   [FLUSH] = "yyyyyyyyyg-yyyyyy",       [DISCARD] = "yyyyyyyyyg-yyyyyy",
    [ZEROES] = "yyyyyyyyyg-yyyyyy",      [TAKE_OUT] = "yyyyyllldnnyllyny",    [TAKE_OUT_SAME] = "yyyyyynndnnyyyyny",
    [BRING_IN] = "nnnnnnyynnnnnnnnn",    [BRING_BLANK] = "nnnnnnyynnnnnnnnn", [TAKE_BACK] = "nnnnnnyynnnnnnnnn",
    [FORGET] = "nnnnnnyydnnnnnnnn",      [REPLACE] = "yyyyynnndnnnnnyyy",     [ADD] = "yyyyynnndnnnnnyyy",
    [SCRUB_BEGIN] = "yyyynyyyynnyyyyyy", [SCRUB_END] = "nnnnynnnnnnnnnnnn",   [PAUSE] = "yyyyyyyyynnyyyyyy",
    [RESUME] = "yyyyyyyyynnyyyyyy",      [INFO] = "yyyyyyyyyyyyyyyyy",        [STOP] = "yyyyyyyydn-yyyyyy",
    [KILL] = "yyyyyyyyyyyyyyyyy",
};

static bool is_parity(const struct matrix_cell *c)
{
    return c->shape->level != RAID_1 && c->shape->level != RAID_10;
}

/* --- load --- */

static void load_begin(struct matrix_cell *c)
{
    for (unsigned i = 0; i < MATRIX_LOAD; i++) {
        unsigned block = MATRIX_LOAD_BLOCK + i * (MATRIX_BLOCKS - MATRIX_LOAD_BLOCK) / MATRIX_LOAD + i;
        test_fill(c->in_flight + block * MATRIX_BLOCK, MATRIX_BLOCK, 70 + i);
        c->doubtful[block] = true;
        rig_write_start(c->rig, &c->load[i], "v", block * (uint64_t)MATRIX_BLOCK, MATRIX_BLOCK, 70 + i);
    }
}

static void load_end(struct matrix_cell *c)
{
    for (unsigned i = 0; i < MATRIX_LOAD; i++) {
        cr_assert(testloop_run_until(c->rig->t, &c->load[i].over), "%s: a write beside it was never answered", c->what);
        uint64_t block = c->load[i].req.off / MATRIX_BLOCK;
        if (c->cut || c->load[i].req.status != BLK_OK)
            continue;
        memcpy(c->model + block * MATRIX_BLOCK, c->in_flight + block * MATRIX_BLOCK, MATRIX_BLOCK);
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
static char io_answer(struct matrix_cell *c, enum blk_op op, unsigned flags, uint64_t block, uint64_t blocks)
{
    uint8_t *bytes = calloc(blocks + 1, MATRIX_BLOCK);
    uint64_t off = block * MATRIX_BLOCK, len = blocks * MATRIX_BLOCK;
    cr_assert_not_null(bytes);
    if (op == BLK_WRITE)
        test_fill(bytes, len, 1000 + c->command);
    enum blk_status status = test_io(c->rig->t, matrix_volume(c), op, flags, off, bytes, len);
    if (op == BLK_READ && status == BLK_OK)
        cr_expect_arr_eq(bytes, c->model + off, len, "%s: other bytes", c->what);
    if (blk_op_writes(op) && status == BLK_OK) {
        memcpy(c->model + off, bytes, len);
        memset(c->lost + block, 0, blocks * sizeof c->lost[0]);
    }
    free(bytes);
    if (status == BLK_OK)
        return 'y';
    return status == BLK_GONE ? 'g' : 'n';
}

static char call_answer(struct matrix_cell *c, struct told *told)
{
    cr_assert(testloop_run_until(c->rig->t, &told->over), "%s: the call was never answered", c->what);
    cr_expect_eq(told->call.error == 0, told->call.message[0] == '\0', "%s: '%s'", c->what, told->call.message);
    return told->call.error == 0 ? 'y' : 'n';
}

static char bring_answer(struct matrix_cell *c, struct told *told, bool blank)
{
    struct array_disk disk = rig_disk(c->rig, MATRIX_GONE);
    struct memdisk *own = c->rig->mem[MATRIX_GONE];
    if (blank) {
        rig_disk_replace(c->rig, MATRIX_GONE, MATRIX_DISK, 512);
        disk = rig_disk(c->rig, MATRIX_GONE);
        matrix_garbage(c, MATRIX_GONE);
    }
    array_online_member(c->rig->array, MATRIX_GONE, &disk, &told->call);
    char answer = call_answer(c, told);
    if (blank && answer == 'n') { /* the old one is the member still */
        test_close(c->rig->t, c->rig->dev[MATRIX_GONE]);
        c->rig->dev[MATRIX_GONE] = c->rig->old[--c->rig->old_count];
        c->rig->mem[MATRIX_GONE] = own;
    }
    return answer;
}

static char replace_answer(struct matrix_cell *c, struct told *told)
{
    struct array_disk disk = rig_disk(c->rig, rig_disk_more(c->rig, MATRIX_DISK, 512));
    array_replace_member(c->rig->array, MATRIX_GONE, &disk, &told->call);
    return call_answer(c, told);
}

static char add_answer(struct matrix_cell *c, struct told *told)
{
    struct array_volume_spec spec = {.name = "w", .layout.level = RAID_0, .size = MIB};
    array_add_volume(c->rig->array, &spec, &told->call);
    return call_answer(c, told);
}

static char take_back_answer(struct matrix_cell *c)
{
    char why[256] = "";
    if (array_take_back_disk(c->rig->array, MATRIX_GONE, why, sizeof why) == NULL)
        return 'y';
    cr_expect(why[0] != '\0', "%s", c->what);
    return 'n';
}

static char kill_answer(struct matrix_cell *c)
{
    c->cut = true;
    if (c->state == CLOSING) { /* rig_kill() closes by itself */
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

static char stop_answer(struct matrix_cell *c)
{
    if (c->loaded)
        load_end(c); /* a volume is closed when its users are gone */
    return rig_close(c->rig) ? 'y' : 'n';
}

static char give(struct matrix_cell *c)
{
    struct told told = {.call.done = told_done};
    uint64_t row = MAX(matrix_volume(c) != NULL ? matrix_volume(c)->info.optimal_io / MATRIX_BLOCK : 1, 1u);
    switch (c->command) {
    case READ:
        return io_answer(c, BLK_READ, 0, 3, 40);
    case WRITE:
        return io_answer(c, BLK_WRITE, 0, 5, 1);
    case WRITE_ROWS:
        return io_answer(c, BLK_WRITE, 0, 0, MIN(row * 2, (uint64_t)MATRIX_LOAD_BLOCK));
    case WRITE_FUA:
        return io_answer(c, BLK_WRITE, BLK_FUA, 17, 20);
    case FLUSH:
        return io_answer(c, BLK_FLUSH, 0, 0, 0);
    case DISCARD:
        return io_answer(c, BLK_DISCARD, 0, 0, row);
    case ZEROES:
        return io_answer(c, BLK_WRITE_ZEROES, BLK_NO_UNMAP, 1, row + 2);
    case TAKE_OUT:
    case TAKE_OUT_SAME:
        array_fail_member(c->rig->array, c->command == TAKE_OUT ? MATRIX_OTHER : MATRIX_GONE, &told.call);
        return call_answer(c, &told);
    case BRING_IN:
    case BRING_BLANK:
        return bring_answer(c, &told, c->command == BRING_BLANK);
    case TAKE_BACK:
        return take_back_answer(c);
    case FORGET:
        array_forget_member(c->rig->array, MATRIX_GONE, &told.call);
        return call_answer(c, &told);
    case REPLACE:
        return replace_answer(c, &told);
    case ADD:
        return add_answer(c, &told);
    case SCRUB_BEGIN:
    case SCRUB_END:
        array_scrub(c->rig->array, "v", c->command == SCRUB_BEGIN ? SB_SCRUB_REPAIR : SB_SCRUB_NONE, &told.call);
        return call_answer(c, &told);
    case PAUSE:
    case RESUME:
        array_pause_volume(c->rig->array, 0, c->command == PAUSE, &told.call);
        return call_answer(c, &told);
    case INFO:
        return rig_info(c->rig).members_count == c->shape->disks ? 'y' : 'n';
    case STOP:
        return stop_answer(c);
    case KILL:
        return kill_answer(c);
    case MATRIX_COMMANDS:
        break;
    }
    return '?';
}

static void expect_answer(struct matrix_cell *c, char answer, uint64_t took_ns)
{
    char wanted = answers[c->command][c->state];
    if (wanted == 'l')
        wanted = matrix_spare_redundancy(c) > 0 ? 'y' : 'n';
    cr_expect(wanted == answer || wanted == 'd', "%s: answered '%c', not '%c' (%s)", c->what, answer, wanted,
              c->rig->message);
    c->answer = answer;
    cr_expect_lt(took_ns, BOUND_NS, "%s: it took %llu ms", c->what, (unsigned long long)took_ns / 1000000);
}

/* --- afterwards --- */

/* A degraded parity array whose write hole is open needs force after a kill; whatever was being written is in doubt. */
static void start_again(struct matrix_cell *c)
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
    for (unsigned block = 0; forced && c->loaded && block < MATRIX_BLOCKS; block++)
        if (block >= MATRIX_LOAD_BLOCK)
            c->doubtful[block] = true;
}

/* A pause outlasts whatever happens; it is over when somebody says so. */
static void go_on(struct matrix_cell *c)
{
    bool paused = c->command == PAUSE ? c->answer == 'y' : matrix_is_paused(c->state) && c->command != RESUME;
    cr_expect_eq(array_description(c->rig->array)->volumes[0].paused, paused, "%s", c->what);
    if (paused && matrix_is_paused(c->state)) { /* time alone brings it nowhere */
        struct array_info before = rig_info(c->rig);
        rig_wait(c->rig, SECOND);
        cr_expect_eq(rig_info(c->rig).jobs[0].position, before.jobs[0].position, "%s: it went on", c->what);
    }
    cr_expect(rig_pause(c->rig, 0, false), "%s: %s", c->what, c->rig->message);
}

/* The disk that belongs in a slot: its own, or the one that was put in its place; a new one where it was forgotten. */
static unsigned disk_of(struct matrix_cell *c, unsigned slot)
{
    const char *identity = array_description(c->rig->array)->members[slot].identity;
    if (identity[0] == '\0') {
        unsigned disk = rig_disk_more(c->rig, MATRIX_DISK, 512);
        matrix_garbage(c, disk);
        return disk;
    }
    for (unsigned disk = 0; disk < c->rig->count; disk++)
        if (strcmp(rig_disk(c->rig, disk).identity, identity) == 0)
            return disk;
    cr_assert_fail("%s: who is %s?", c->what, identity);
    return 0;
}

static void become_whole(struct matrix_cell *c)
{
    matrix_latency(c, LATENCY_NS);
    for (unsigned disk = 0; disk < c->rig->count; disk++) {
        fault_revive(c->rig->dev[disk]);
        fault_clear(c->rig->dev[disk], -1);
    }
    testloop_run(c->rig->t);
    if (c->rig->array != NULL && strcmp(rig_info(c->rig).state, "frozen") == 0)
        cr_expect_not(rig_close(c->rig), "%s: a frozen array was marked clean", c->what);
    if (c->rig->array == NULL)
        start_again(c);
    go_on(c);
    testloop_run(c->rig->t);
    for (unsigned slot = 0; slot < c->shape->disks; slot++) {
        const char *state = rig_info(c->rig).members[slot].state;
        if (strcmp(state, "online") != 0 && strcmp(state, "rebuilding") != 0)
            cr_expect(rig_online_disk(c->rig, slot, disk_of(c, slot)), "%s: slot %u: %s", c->what, slot,
                      c->rig->message);
    }
    testloop_run(c->rig->t);
    cr_expect_str_eq(rig_info(c->rig).state, "optimal", "%s", c->what);
    cr_expect_eq(rig_info(c->rig).jobs_count, 0, "%s", c->what);
}

/* What is lost says so, and no more than that is; until it is written. */
static void overwrite_lost(struct matrix_cell *c)
{
    uint8_t bytes[MATRIX_BLOCK];
    for (unsigned block = 0; block < MATRIX_BLOCKS; block++) {
        uint64_t off = block * (uint64_t)MATRIX_BLOCK;
        if (!c->lost[block])
            continue;
        cr_expect_eq(test_io(c->rig->t, matrix_volume(c), BLK_READ, 0, off, bytes, MATRIX_BLOCK), BLK_MEDIA,
                     "%s: block %u is lost", c->what, block);
        cr_expect_eq(test_io(c->rig->t, matrix_volume(c), BLK_WRITE, 0, off, c->model + off, MATRIX_BLOCK), BLK_OK,
                     "%s: block %u", c->what, block);
    }
    testloop_run(c->rig->t);
}

static void expect_bytes(struct matrix_cell *c, const char *when)
{
    uint8_t *bytes = malloc(MATRIX_SIZE);
    cr_assert_eq(test_io(c->rig->t, matrix_volume(c), BLK_READ, 0, 0, bytes, MATRIX_SIZE), BLK_OK, "%s %s", c->what,
                 when);
    for (unsigned block = 0; block < MATRIX_BLOCKS; block++) {
        const uint8_t *have = bytes + block * MATRIX_BLOCK;
        bool right = memcmp(have, c->model + block * MATRIX_BLOCK, MATRIX_BLOCK) == 0;
        bool new = c->doubtful[block] && memcmp(have, c->in_flight + block * MATRIX_BLOCK, MATRIX_BLOCK) == 0;
        cr_expect(right || new, "%s %s: block %u", c->what, when, block);
    }
    free(bytes);
}

/* A scrub beside whatever was under way, or one that is begun now, finds nothing. */
static void expect_nothing_found(struct matrix_cell *c)
{
    struct array_scrub_info info;
    cr_assert(rig_scrub(c->rig, "v", SB_SCRUB_CHECK), "%s: %s", c->what, c->rig->message);
    testloop_run(c->rig->t);
    array_scrub_info(c->rig->array, 0, &info);
    cr_expect_eq(info.findings_count, 0, "%s: a scrub finds %u places", c->what, (unsigned)info.findings_count);
}

static void expect_at_rest(struct matrix_cell *c)
{
    char why[128];
    become_whole(c);
    overwrite_lost(c);
    expect_nothing_found(c);
    expect_bytes(c, "afterwards");
    cr_expect(scene_redundant(c->rig, why, sizeof why), "%s: %s", c->what, why);
    cr_assert(rig_close(c->rig), "%s: %s", c->what, c->rig->message);
    cr_assert(scene_start(c->scene, (1u << c->rig->count) - 1), "%s: %s", c->what, c->rig->assembly.reason);
    cr_expect_eq(c->rig->assembly.verdict, ASSEMBLY_COMPLETE, "%s: %s", c->what, c->rig->assembly.reason);
    cr_expect(c->rig->assembly.array.clean, "%s: not clean", c->what);
    expect_bytes(c, "after a clean stop");
}

static void try_cell(const struct matrix_shape *shape, enum matrix_state state, enum matrix_command command,
                     bool loaded)
{
    struct matrix_cell *c = calloc(1, sizeof *c);
    cr_assert_not_null(c);
    *c = (struct matrix_cell){.scene = scene_create(shape->disks, MATRIX_DISK),
                              .shape = shape,
                              .state = state,
                              .command = command,
                              .loaded = loaded,
                              .model = calloc(1, MATRIX_SIZE),
                              .in_flight = calloc(1, MATRIX_SIZE)};
    text_format(c->what, sizeof c->what, "%s of %u, %s: %s%s", raid_level_name(shape->level), shape->disks,
                matrix_state_name(state), command_names[command], loaded ? " beside writes" : "");
    matrix_enter(c);
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

static void try_all(const struct matrix_shape *shape, bool loaded)
{
    for (enum matrix_state state = 0; state < MATRIX_STATES; state++)
        for (enum matrix_command command = 0; command < MATRIX_COMMANDS; command++)
            if (answers[command][state] != '-' && (state != TWICE || shape->bears > 1) &&
                (!loaded || state != CLOSING)) /* its volumes have no users */
                try_cell(shape, state, command, loaded);
}

Test(state_matrix, every_command_in_every_state_of_a_mirror)
{
    try_all(&shapes[0], false);
}

Test(state_matrix, every_command_beside_writes_in_every_state_of_a_mirror)
{
    try_all(&shapes[0], true);
}

Test(state_matrix, every_command_in_every_state_of_a_mirror_of_three)
{
    try_all(&shapes[1], false);
}

Test(state_matrix, every_command_beside_writes_in_every_state_of_a_mirror_of_three)
{
    try_all(&shapes[1], true);
}

Test(state_matrix, every_command_in_every_state_of_raid10)
{
    try_all(&shapes[2], false);
}

Test(state_matrix, every_command_beside_writes_in_every_state_of_raid10)
{
    try_all(&shapes[2], true);
}

Test(state_matrix, every_command_in_every_state_of_raid5)
{
    try_all(&shapes[3], false);
}

Test(state_matrix, every_command_beside_writes_in_every_state_of_raid5)
{
    try_all(&shapes[3], true);
}

Test(state_matrix, every_command_in_every_state_of_raid6)
{
    try_all(&shapes[4], false);
}

Test(state_matrix, every_command_beside_writes_in_every_state_of_raid6)
{
    try_all(&shapes[4], true);
}
