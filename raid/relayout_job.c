/*
 * The steps of a relayout: see raid/relayout_job.h for the drawing and the rules, docs/relayout.md for why.
 *
 * Called by the scheduler of jobs, by the rows that are over, and when something was flushed or written down. What
 * cannot
 * be moved (disks are missing) leaves the step as if it had not begun, and blocks the job; a log that counts and
 * cannot be
 * copied refuses the bytes of its step until the members' states change.
 */
#include "raid/relayout_job.h"

#include <errno.h>
#include <stdlib.h>

#include "core/log.h"
#include "raid/relayout.h"

static const struct sm_state states[] = {
    [RELAYOUT_RESTING] = {"resting", SM_TO(RELAYOUT_DRAINING)},
    [RELAYOUT_DRAINING] = {"draining", SM_TO(RELAYOUT_COPYING) | SM_TO(RELAYOUT_LOGGING) | SM_TO(RELAYOUT_COMMITTING) |
                                           SM_TO(RELAYOUT_RESTING)},
    [RELAYOUT_COPYING] = {"copying", SM_TO(RELAYOUT_FLUSHING) | SM_TO(RELAYOUT_RESTING)},
    [RELAYOUT_LOGGING] = {"logging", SM_TO(RELAYOUT_LOG_FLUSHING) | SM_TO(RELAYOUT_RESTING)},
    [RELAYOUT_LOG_FLUSHING] = {"flushing the log", SM_TO(RELAYOUT_LOG_COMMITTING) | SM_TO(RELAYOUT_RESTING)},
    [RELAYOUT_LOG_COMMITTING] = {"committing the log", SM_TO(RELAYOUT_LOG_DRAINING) | SM_TO(RELAYOUT_RESTING)},
    [RELAYOUT_LOG_DRAINING] = {"draining again", SM_TO(RELAYOUT_REPLAYING) | SM_TO(RELAYOUT_RESTING)},
    [RELAYOUT_REPLAYING] = {"copying from the log", SM_TO(RELAYOUT_FLUSHING) | SM_TO(RELAYOUT_RESTING)},
    [RELAYOUT_FLUSHING] = {"flushing",
                           SM_TO(RELAYOUT_COMMITTING) | SM_TO(RELAYOUT_REPLAYING) | SM_TO(RELAYOUT_RESTING)},
    [RELAYOUT_COMMITTING] = {"committing", SM_TO(RELAYOUT_RESTING)},
};

#define SHORTEST (2 * MIB) /* bytes of the volume that a step moves, however many wait */

static void pump(struct array_relayout *r);

static struct front *front_of(const struct array_relayout *r)
{
    return r->array->volumes[r->old].front;
}

static struct region_map *map_of(const struct array_relayout *r, unsigned volume)
{
    struct map_store *map = r->array->volumes[volume].map;
    return map != NULL ? map_store_map(map) : NULL;
}

/* --- the job's rows --- */

/* Old rows in the order in which they are passed. */
static uint64_t row_at(const struct array_relayout *r, uint64_t index)
{
    uint64_t row_data = r->shapes.from.layout.row_data, rows = (r->shapes.size + row_data - 1) / row_data;
    return r->shapes.backward ? rows - 1 - index : index;
}

/* Bytes that are passed when the old rows up to this one are. */
static uint64_t passed_with(const struct array_relayout *r, uint64_t index)
{
    uint64_t row_data = r->shapes.from.layout.row_data, row = row_at(r, index);
    return relayout_passed(r, r->shapes.backward ? row * row_data : MIN((row + 1) * row_data, r->shapes.size));
}

static void token_task(struct task *task)
{
    struct row_job *work = container_of(task, struct row_job, task);
    work->done(work);
}

static void token_over(struct array_relayout *r, struct row_job *work, enum blk_status status)
{
    work->status = status;
    work->changed = true;
    work->task = (struct task){.run = token_task};
    loop_defer(r->array->loop, &work->task);
}

/* Those whose bytes were passed, in order. */
static void tokens_passed(struct array_relayout *r, uint64_t passed)
{
    unsigned over = 0;
    while (over < r->tokens_count && passed_with(r, r->tokens[over]->row) <= passed)
        token_over(r, r->tokens[over++], BLK_OK);
    r->tokens_count -= over;
    for (unsigned i = 0; i < r->tokens_count; i++)
        r->tokens[i] = r->tokens[i + over];
}

static void tokens_fail(struct array_relayout *r, enum blk_status status)
{
    for (unsigned i = 0; i < r->tokens_count; i++)
        token_over(r, r->tokens[i], status);
    r->tokens_count = 0;
    r->allowed = relayout_passed(r, r->position);
}

/* --- what was passed is no more --- */

/* Old rows that do not count at a position, from where it begins. */
static uint64_t rows_that_count_no_more(const struct array_relayout *r, uint64_t position)
{
    uint64_t row_data = r->shapes.from.layout.row_data, rows = (r->shapes.size + row_data - 1) / row_data;
    if (position == relayout_end(&r->shapes))
        return rows;
    return r->shapes.backward ? rows - (position + row_data - 1) / row_data : position / row_data;
}

/* Rows behind the volume's end count for nothing, though somebody may have written zeroes there (raid/init.c). */
static void forget_rows(struct region_map *map, uint64_t from, uint64_t to)
{
    for (uint64_t row = from; (row = region_find(map, REGION_WRITTEN, row, to)) < to; row++)
        region_set(map, row, REGION_UNWRITTEN);
}

static void forget_passed(struct array_relayout *r, uint64_t position)
{
    struct region_map *map = map_of(r, r->old);
    uint64_t until = rows_that_count_no_more(r, position);
    if (map != NULL)
        forget_rows(map, rows_that_count_no_more(r, relayout_end(&r->shapes)), map->regions);
    for (; r->forgotten < until; r->forgotten++)
        if (map != NULL && region_get(map, row_at(r, r->forgotten)) != REGION_UNWRITTEN)
            region_set(map, row_at(r, r->forgotten), REGION_UNWRITTEN);
}

/* --- ends of a step --- */

static void step_rest(struct array_relayout *r)
{
    sm_move(&r->state, RELAYOUT_RESTING);
    r->failed = r->ending = false;
    front_window(front_of(r), r->position, FRONT_PASS);
    array_step(r->array);
}

/* As if it had not begun; whoever waits for its bytes goes on. A row that could not be moved is not done. */
static void step_give_up(struct array_relayout *r, enum blk_status status)
{
    step_rest(r);
    tokens_fail(r, r->array->frozen ? BLK_GONE : status == BLK_MEDIA ? BLK_NOSPACE : status);
}

static void committed(struct task *task)
{
    struct array_relayout *r = container_of(task, struct array_relayout, wait.task);
    if (r->array->frozen) {
        step_give_up(r, BLK_GONE);
        return;
    }
    r->position = r->target;
    r->allowed = MAX(r->allowed, relayout_passed(r, r->position));
    front_move(front_of(r), r->position);
    step_rest(r);
    tokens_passed(r, relayout_passed(r, r->position));
    if (r->position == relayout_end(&r->shapes))
        tokens_passed(r, UINT64_MAX);
    jobs_kick(r->array);
    pump(r);
}

static void commit(struct array_relayout *r)
{
    struct sb_relayout *described = relayout_described(r);
    sm_move(&r->state, RELAYOUT_COMMITTING);
    described->position = described->logged = r->target;
    r->wait.task.run = committed;
    array_commit(r->array, &r->wait);
}

/* A disk that was lost may have been one too many: then nothing says that the rows are where they should be. */
static void flushed(struct array_flush *flush)
{
    struct array_relayout *r = container_of(flush, struct array_relayout, flush);
    bool good = !r->array->frozen && !volume_failed(r->array->volumes[r->new].volume);
    if (good) {
        commit(r);
    } else if (r->step.logged && !r->array->frozen) {
        sm_move(&r->state, RELAYOUT_REPLAYING);
        r->failed = true;
        r->next = 0;
        front_window(front_of(r), r->target, FRONT_REFUSE);
        tokens_fail(r, BLK_GONE);
    } else {
        step_give_up(r, BLK_GONE);
    }
}

static void step_flush(struct array_relayout *r)
{
    sm_move(&r->state, RELAYOUT_FLUSHING);
    array_flush_start(r->array, &r->flush, flushed);
}

/* --- the log --- */

static void log_replay(struct array_relayout *r)
{
    sm_move(&r->state, RELAYOUT_REPLAYING);
    forget_passed(r, r->target);
    r->next = 0;
    pump(r);
}

static void log_committed(struct task *task)
{
    struct array_relayout *r = container_of(task, struct array_relayout, wait.task);
    if (r->array->frozen) {
        step_give_up(r, BLK_GONE);
        return;
    }
    sm_move(&r->state, RELAYOUT_LOG_DRAINING);
    front_window(front_of(r), r->target, FRONT_HOLD_ALL);
    timer_start(r->array->loop, &r->look, 0);
}

static void log_flushed(struct array_flush *flush)
{
    struct array_relayout *r = container_of(flush, struct array_relayout, flush);
    if (r->array->frozen || volume_failed(r->log)) {
        step_give_up(r, BLK_GONE);
        return;
    }
    sm_move(&r->state, RELAYOUT_LOG_COMMITTING);
    relayout_described(r)->logged = r->target;
    r->wait.task.run = log_committed;
    array_commit(r->array, &r->wait);
}

static void log_flush(struct array_relayout *r)
{
    sm_move(&r->state, RELAYOUT_LOG_FLUSHING);
    array_flush_start(r->array, &r->flush, log_flushed);
}

/* --- rows --- */

static uint64_t step_row(const struct array_relayout *r, uint64_t index)
{
    return r->shapes.backward ? r->step.row + r->step.rows - 1 - index : r->step.row + index;
}

/* So many rows of the step may be begun. */
static uint64_t rows_allowed(const struct array_relayout *r)
{
    uint64_t row_data = r->shapes.to.layout.row_data, passed = relayout_passed(r, r->position);
    if (sm_state(&r->state) != RELAYOUT_COPYING || r->ending || r->allowed >= relayout_passed(r, r->target))
        return r->step.rows;
    if (r->allowed <= passed)
        return 0;
    /* Backward from the volume's end, the first row may be less than a whole one. */
    uint64_t first = r->shapes.backward && passed == 0 ? r->shapes.size % row_data : 0;
    uint64_t bytes = r->allowed - passed;
    if (first != 0)
        return MIN(r->step.rows, 1 + (bytes > first ? (bytes - first + row_data - 1) / row_data : 0));
    return MIN(r->step.rows, (bytes + row_data - 1) / row_data);
}

/* J3: it ends with what was begun, at the next border that will do. */
static void step_shorten(struct array_relayout *r)
{
    if (sm_state(&r->state) != RELAYOUT_COPYING || r->ending || r->failed)
        return;
    uint64_t least = MAX(SHORTEST / r->shapes.to.layout.row_data, 1ull);
    relayout_step_cut(&r->shapes, MIN(MAX(r->next, least), r->step.rows), &r->step);
    r->target = r->shapes.backward ? r->step.first : r->step.end;
    r->ending = true;
    front_window(front_of(r), r->target, FRONT_HOLD_WRITES);
}

/* Bytes of the step that were moved, in order: what is under way is not, nor what was begun behind it. */
static uint64_t passed_so_far(const struct array_relayout *r)
{
    uint64_t row_data = r->shapes.to.layout.row_data, least = UINT64_MAX;
    for (unsigned i = 0; i < r->moves_count; i++) {
        const struct relayout_move *m = &r->moves[i];
        uint64_t row = m->row;
        if (m->busy)
            least = MIN(least, relayout_passed(r, r->shapes.backward ? MIN((row + 1) * row_data, r->shapes.size)
                                                                     : row * row_data));
    }
    if (least == UINT64_MAX && r->next > 0) {
        uint64_t row = step_row(r, r->next - 1);
        least = relayout_passed(r, r->shapes.backward ? row * row_data : MIN((row + 1) * row_data, r->shapes.size));
    }
    return least != UINT64_MAX ? least : relayout_passed(r, r->position);
}

static void rows_over(struct array_relayout *r)
{
    enum relayout_state state = sm_state(&r->state);
    if (!r->failed && state == RELAYOUT_LOGGING) {
        log_flush(r);
    } else if (!r->failed) {
        step_flush(r);
    } else if (state == RELAYOUT_REPLAYING && !r->array->frozen) {
        if (r->next > 0)
            log_error("array %s: volume %s: what a relayout has in its log cannot be copied (%s): bring missing disks "
                      "online",
                      r->array->description.name, r->array->description.volumes[r->old].name,
                      blk_status_name(r->status));
        r->next = 0;
        front_window(front_of(r), r->target, FRONT_REFUSE);
        tokens_fail(r, BLK_GONE);
    } else {
        step_give_up(r, r->status);
    }
}

static bool rows_move(struct array_relayout *r)
{
    enum relayout_state state = sm_state(&r->state);
    return state == RELAYOUT_COPYING || state == RELAYOUT_LOGGING || state == RELAYOUT_REPLAYING;
}

static void moves_start(struct array_relayout *r)
{
    uint64_t allowed = rows_allowed(r);
    while (!r->failed && !r->array->frozen && r->next < allowed && relayout_move_start(r, step_row(r, r->next)))
        r->next++;
    if (r->array->frozen && !r->failed) {
        r->failed = true;
        r->status = BLK_GONE;
    }
    if (r->moving == 0 && (r->failed || r->next == r->step.rows))
        rows_over(r);
}

/* Of a free step: a row of the new side may be moved before the last of the job's rows in it comes. */
static void tokens_look(struct array_relayout *r)
{
    if (r->failed || sm_state(&r->state) != RELAYOUT_COPYING)
        return;
    uint64_t passed = passed_so_far(r);
    if (passed < relayout_passed(r, r->target)) /* the last ones wait for the position */
        tokens_passed(r, passed);
}

void relayout_moved(struct array_relayout *r)
{
    tokens_look(r);
    pump(r);
}

/* --- the beginning of a step --- */

/* Nothing was ever written from the position to the end of the step. */
static bool nothing_there(const struct array_relayout *r)
{
    struct region_map *old = map_of(r, r->old), *new = map_of(r, r->new);
    uint64_t row, rows;
    if (old == NULL || new == NULL)
        return false;
    relayout_step_sources(&r->shapes, &r->step, &row, &rows);
    return region_find(old, REGION_WRITTEN, row, row + rows) == row + rows &&
           region_find(new, REGION_WRITTEN, r->step.row, r->step.row + r->step.rows) == r->step.row + r->step.rows;
}

/* Bytes of [first, end): the new side's rows, and where the position comes to. */
static void step_set(struct array_relayout *r, uint64_t first, uint64_t end, bool logged)
{
    uint64_t row_data = r->shapes.to.layout.row_data;
    r->step = (struct relayout_step){.logged = logged, .first = first, .end = end, .row = first / row_data};
    r->step.rows = (end + row_data - 1) / row_data - r->step.row;
    r->target = r->shapes.backward ? first : end;
}

/* Over all that was never written, if it is more than a step. */
static bool step_skip(struct array_relayout *r)
{
    const struct region_map *old = map_of(r, r->old);
    uint64_t row_data = r->shapes.from.layout.row_data, passed = rows_that_count_no_more(r, r->position);
    uint64_t rows = (r->shapes.size + row_data - 1) / row_data, index = passed;
    if (old == NULL || map_of(r, r->new) == NULL)
        return false;
    if (!r->shapes.backward)
        index = region_find(old, REGION_WRITTEN, passed, rows);
    while (r->shapes.backward && index < rows && region_get(old, row_at(r, index)) == REGION_UNWRITTEN)
        index++;
    uint64_t limit = r->shapes.backward ? (rows - index) * row_data : index * row_data;
    uint64_t to = relayout_skip(&r->shapes, r->position, MIN(limit, r->shapes.size));
    if (to == r->position)
        return false;
    step_set(r, MIN(to, r->position), MAX(to, r->position), false);
    return true;
}

static void step_choose(struct array_relayout *r)
{
    bool there = relayout_step(&r->shapes, r->position, &r->step);
    ASSERT(there);
    r->target = r->shapes.backward ? r->step.first : r->step.end;
}

static bool quiet_up_to_target(const struct array_relayout *r)
{
    const struct volume *old = r->array->volumes[r->old].volume;
    return r->shapes.backward ? !volume_busy_within(old, r->target, r->shapes.size)
                              : !volume_busy_within(old, 0, r->target);
}

/*
 * Rows beyond the position are UNWRITTEN in memory since the last start (relayout_maps_loaded), whatever the members have of
 * a step that was given up. What is passed is what they have.
 */
static void skipped(struct task *task)
{
    commit(container_of(task, struct array_relayout, skipped));
}

static void drained(struct array_relayout *r)
{
    forget_passed(r, r->position);
    r->next = 0;
    r->ending = r->failed = false;
    if (nothing_there(r)) {
        r->unwritten = (struct region_change){.region = r->step.row, .to = REGION_UNWRITTEN, .task = &r->skipped};
        map_store_change(map_of(r, r->new), &r->unwritten);
        return;
    }
    if (r->skips) /* somebody wrote there before the window was closed */
        step_choose(r);
    if (r->step.logged)
        relayout_log_begin(r);
    sm_move(&r->state, r->step.logged ? RELAYOUT_LOGGING : RELAYOUT_COPYING);
    front_window(front_of(r), r->target, FRONT_HOLD_WRITES);
    pump(r);
}

static void look(struct timer *timer)
{
    struct array_relayout *r = container_of(timer, struct array_relayout, look);
    bool again = sm_state(&r->state) == RELAYOUT_LOG_DRAINING;
    if (r->array->frozen)
        step_give_up(r, BLK_GONE);
    else if (!quiet_up_to_target(r))
        timer_start(r->array->loop, &r->look, RELAYOUT_LOOK_NS);
    else if (again)
        log_replay(r);
    else
        drained(r);
}

static void step_begin(struct array_relayout *r)
{
    r->skips = step_skip(r);
    if (!r->skips)
        step_choose(r);
    sm_move(&r->state, RELAYOUT_DRAINING);
    front_window(front_of(r), r->target, FRONT_HOLD_ALL);
    timer_start(r->array->loop, &r->look, 0);
}

static void pump(struct array_relayout *r)
{
    if (rows_move(r)) {
        if (front_is_waited_for(front_of(r)))
            step_shorten(r);
        moves_start(r);
    } else if (sm_state(&r->state) == RELAYOUT_RESTING && r->tokens_count > 0) {
        if (r->array->frozen)
            tokens_fail(r, BLK_GONE);
        else
            step_begin(r);
    }
}

static void waited_for(struct task *task)
{
    struct array_relayout *r = container_of(task, struct array_relayout, waited_for);
    if (rows_move(r))
        pump(r);
}

/* --- the kind --- */

static bool wanted(const struct array *array, unsigned volume)
{
    const struct array_relayout *r = array->relayout;
    return r != NULL && r->begun && r->old == volume && r->position != relayout_end(&r->shapes);
}

static uint64_t rows_left(const struct array *array, unsigned volume)
{
    const struct array_relayout *r = array->relayout;
    const struct region_map *map = map_of(r, volume);
    return map != NULL ? region_count(map, REGION_WRITTEN)
                       : array->volumes[volume].layout.rows - rows_that_count_no_more(r, r->position);
}

static uint64_t row_next(const struct array *array, unsigned volume, uint64_t from)
{
    const struct array_relayout *r = array->relayout;
    uint64_t row_data = r->shapes.from.layout.row_data, rows = (r->shapes.size + row_data - 1) / row_data;
    from = MAX(from, rows_that_count_no_more(r, r->position));
    return from < rows ? from : array->volumes[volume].layout.rows;
}

static void row_start(struct array *array, unsigned volume, struct row_job *work)
{
    struct array_relayout *r = array->relayout;
    (void)volume;
    ASSERT(r->tokens_count < JOB_WINDOW_MAX);
    r->tokens[r->tokens_count++] = work;
    r->allowed = MAX(r->allowed, passed_with(r, work->row));
    tokens_look(r);
    pump(r);
}

/* No row is under way any more, and none will be for a while. */
static void idle(struct array *array, unsigned volume)
{
    struct array_relayout *r = array->relayout;
    job_of(array, volume, JOB_RELAYOUT)->position = rows_that_count_no_more(r, r->position);
    r->allowed = relayout_passed(r, r->position);
    if (sm_state(&r->state) == RELAYOUT_COPYING) {
        step_shorten(r);
        pump(r);
    }
}

const struct job_kind relayout_kind = {
    .name = "relayout",
    .any_volume = true,
    .wanted = wanted,
    .rows_left = rows_left,
    .row_next = row_next,
    .prepare = relayout_end_begin,
    .row_start = row_start,
    .idle = idle,
};

/* --- life --- */

bool relayout_still(const struct array *array)
{
    const struct array_relayout *r = array->relayout;
    if (r == NULL)
        return true;
    enum relayout_state state = sm_state(&r->state);
    bool stuck = state == RELAYOUT_REPLAYING && r->failed && r->moving == 0; /* goes on after the next start */
    return (state == RELAYOUT_RESTING || stuck) && !r->ending_all;
}

void relayout_frozen(struct array *array)
{
    struct array_relayout *r = array->relayout;
    if (r != NULL && rows_move(r) && r->moving == 0)
        pump(r);
}

bool relayout_sides(const struct array *array, unsigned volume, unsigned sides[2])
{
    const struct array_relayout *r = array->relayout;
    if (r == NULL || !r->begun || r->ending_all || (volume != r->old && volume != r->new))
        return false;
    const struct sb_relayout *at = &array->description.volumes[r->new].relayout; /* it may be on disk already */
    uint64_t begin = relayout_begin(&r->shapes);
    sides[0] = r->position != relayout_end(&r->shapes) ? r->old : SB_VOLUMES_MAX;
    sides[1] = at->position != begin || at->logged != begin ? r->new : SB_VOLUMES_MAX;
    return true;
}

bool relayout_side_is_idle(const struct array *array, unsigned volume)
{
    unsigned sides[2];
    return relayout_sides(array, volume, sides) && sides[0] != volume && sides[1] != volume &&
           sm_state(&array->relayout->state) == RELAYOUT_RESTING;
}

void relayout_recount(struct array *array)
{
    if (array->relayout != NULL && array->relayout->log != NULL)
        volume_recount(array->relayout->log);
}

void relayout_members_changed(struct array *array)
{
    struct array_relayout *r = array->relayout;
    if (r == NULL || sm_state(&r->state) != RELAYOUT_REPLAYING || !r->failed || r->moving > 0 || array->frozen)
        return;
    r->failed = false;
    front_window(front_of(r), r->target, FRONT_HOLD_ALL);
    pump(r);
}

bool relayout_log_counts(const struct array *array)
{
    const struct array_relayout *r = array->relayout;
    return r != NULL && r->step.logged && sm_state(&r->state) >= RELAYOUT_LOGGING;
}

void relayout_maps_loaded(struct array *array)
{
    struct array_relayout *r = array->relayout;
    if (r == NULL)
        return;
    forget_passed(r, relayout_described(r)->logged);
    struct region_map *map = map_of(r, r->new);
    if (map == NULL)
        return;
    /* A row that the position is in the midst of is the volume's last one: it was passed as a whole, or not at all. */
    uint64_t row_data = r->shapes.to.layout.row_data, border = (r->position + row_data - 1) / row_data;
    uint64_t from = r->shapes.backward ? 0 : border, to = r->shapes.backward ? border : map->regions;
    forget_rows(map, from, to);
}

void relayout_begun(struct array *array)
{
    struct array_relayout *r = array->relayout;
    uint64_t logged = relayout_described(r)->logged;
    r->begun = true;
    array->volumes[r->new].published = true;
    job_of(array, r->old, JOB_RELAYOUT)->position = rows_that_count_no_more(r, r->position);
    log_notice("array %s: volume %s is moved from %s of %u to %s of %u, %s: %llu of %llu bytes are",
               array->description.name, array->description.volumes[r->old].name,
               raid_level_name(r->shapes.from.layout.spec.level), r->shapes.from.layout.spec.members,
               raid_level_name(r->shapes.to.layout.spec.level), r->shapes.to.layout.spec.members,
               r->shapes.backward ? "backward" : "forward", (unsigned long long)relayout_passed(r, r->position),
               (unsigned long long)r->shapes.size);
    if (logged != r->position) {
        step_set(r, MIN(r->position, logged), MAX(r->position, logged), true);
        sm_init(&r->state, states, ARRAY_LENGTH(states), RELAYOUT_REPLAYING);
        front_window(front_of(r), r->target, FRONT_HOLD_ALL);
        pump(r);
    }
    jobs_kick(array);
}

static unsigned new_side_of(const struct sb_array *a)
{
    unsigned new = 0;
    while (new < a->volumes_count && !array_volume_is_new_side(&a->volumes[new]))
        new ++;
    return new;
}

static unsigned volume_of(const struct sb_array *a, const struct uuid *uuid)
{
    unsigned volume = 0;
    while (!uuid_equal(&a->volumes[volume].uuid, uuid))
        volume++;
    return volume;
}

void relayout_free(struct array_relayout *r)
{
    if (r == NULL)
        return;
    ASSERT(r->log == NULL);
    timer_stop(r->array->loop, &r->look);
    relayout_moves_fini(r);
    free(r);
}

int relayout_open(struct array *array, char *why, size_t why_len)
{
    const struct sb_array *a = &array->description;
    unsigned new = new_side_of(a);
    if (new == a->volumes_count)
        return 0;
    struct array_relayout *r = calloc(1, sizeof *r);
    text_format(why, why_len, "no memory for the relayout of volume %s", a->volumes[new].name);
    if (r == NULL)
        return -ENOMEM;
    r->array = array;
    r->new = new;
    r->old = volume_of(a, &a->volumes[new].relayout.from);
    bool there = superblock_relayout(a, &a->volumes[new], &r->shapes);
    ASSERT(there); /* superblock_check() was content */
    r->shapes.window = RELAYOUT_WINDOW;
    r->position = a->volumes[new].relayout.position;
    r->allowed = relayout_passed(r, r->position);
    r->look.fire = look;
    r->waited_for.run = waited_for;
    r->skipped.run = skipped;
    sm_init(&r->state, states, ARRAY_LENGTH(states), RELAYOUT_RESTING);
    int error = relayout_moves_init(r) ? relayout_log_open(r, why, why_len) : -ENOMEM;
    if (error == 0 &&
        !front_split(front_of(r), array->volumes[new].volume, r->shapes.backward, r->position, &r->waited_for))
        error = -ENOMEM;
    if (error == 0) {
        array->relayout = r;
        return 0;
    }
    relayout_log_undo(r);
    relayout_free(r);
    return error;
}

bool array_relayout_progress(const struct array *array, struct array_relayout_progress *out)
{
    const struct array_relayout *r = array->relayout;
    if (r == NULL || !r->begun)
        return false;
    *out = (struct array_relayout_progress){.volume = r->old,
                                            .from = r->shapes.from.layout.spec,
                                            .to = r->shapes.to.layout.spec,
                                            .backward = r->shapes.backward,
                                            .passed = relayout_passed(r, r->position),
                                            .size = r->shapes.size};
    return true;
}
