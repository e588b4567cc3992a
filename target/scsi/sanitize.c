/* SANITIZE: see sanitize.h. */
#include "target/scsi/sanitize.h"

#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "target/scsi/command_table.h"
#include "target/scsi/reservation_record.h"
#include "target/scsi/rod_token.h"
#include "target/scsi/task.h"

enum state { READY, WAITS, RUNS, FAILED };

struct scsi_sanitize {
    struct scsi_lu *lu;
    enum state state;
    bool erase, exit_allowed, immediate;
    unsigned pass, passes;   /* of writes; one more of an erase gives the space back */
    uint64_t position;       /* bytes of this pass */
    struct page *pattern[2]; /* a page of it, and of what it is inverted */
    struct page *pages[SANITIZE_STEP_PAGES];
    struct scsi_task_list line; /* the task that gave the order */
    bool kept;                  /* the keeper has the word */
    bool not_kept;              /* nor would it take it */
    struct scsi_keep keep;
    struct blk_req req;
    bool busy; /* a request, a call of the keeper or the timer is under way */
    struct timer pace;
};

struct scsi_sanitize *scsi_sanitize_create(struct scsi_lu *lu)
{
    struct scsi_sanitize *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->lu = lu;
    TAILQ_INIT(&s->line);
    return s;
}

static void put_pattern(struct scsi_sanitize *s)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(s->pattern); i++) {
        if (s->pattern[i] != NULL)
            page_put(s->pattern[i]);
        s->pattern[i] = NULL;
    }
}

void scsi_sanitize_destroy(struct scsi_sanitize *s)
{
    ASSERT(!s->busy && TAILQ_EMPTY(&s->line));
    put_pattern(s);
    free(s);
}

/* --- what others may do meanwhile --- */

/* One of the LUs that show this device. */
static const struct scsi_sanitize *of_device(const struct scsi_lu *lu)
{
    const struct scsi_target *target = lu->target;
    if (lu->sanitize->state != READY || target->sanitizing == 0)
        return lu->sanitize;
    for (unsigned i = 0; i < SCSI_LUNS_MAX; i++)
        if (target->lus[i] != NULL && target->lus[i]->dev == lu->dev && target->lus[i]->sanitize->state != READY)
            return target->lus[i]->sanitize;
    return lu->sanitize;
}

/* In 65536ths: SPC-4 4.5.2.4.4. */
static uint16_t progress(const struct scsi_sanitize *s)
{
    enum { WHOLE = 65536 };
    uint64_t each = s->lu->dev->info.size / WHOLE + 1, passes = s->passes + s->erase;
    if (s->state != RUNS)
        return 0;
    uint64_t done = (s->pass * (uint64_t)WHOLE + s->position / each) / passes;
    return (uint16_t)MIN(done, (uint64_t)WHOLE - 1);
}

const struct scsi_sense *scsi_sanitize_forbids(const struct scsi_lu *lu, const struct scsi_command *command,
                                               struct scsi_sense *space)
{
    const struct scsi_sanitize *s = of_device(lu);
    if (s->state == READY || (command != NULL && (command->flags & COMMAND_ANY_TIME)))
        return NULL;
    if (s->state == FAILED)
        return command != NULL && command->opcode == OPCODE_SANITIZE && s->lu == lu ? NULL : &sense_sanitize_failed;
    *space = sense_sanitizing;
    space->has_progress = true;
    space->progress = progress(s);
    return space;
}

const struct scsi_sense *scsi_sanitize_failure(const struct scsi_lu *lu)
{
    if (lu->sanitize->state == FAILED)
        return &sense_sanitize_failed;
    return lu->sanitize->not_kept ? &sense_not_kept : NULL;
}

/* --- states --- */

static void enter(struct scsi_sanitize *s, enum state state)
{
    struct scsi_target *target = s->lu->target;
    target->sanitizing -= s->state != READY;
    s->state = state;
    target->sanitizing += state != READY;
    if (state != WAITS && state != RUNS)
        put_pattern(s);
}

static void wait_in_line(struct scsi_sanitize *s, struct scsi_task *task)
{
    task->waiting_on = &s->line;
    TAILQ_INSERT_TAIL(&s->line, task, wait);
}

static void continue_task(struct scsi_sanitize *s)
{
    struct scsi_task *task = TAILQ_FIRST(&s->line);
    if (task == NULL) /* it was aborted */
        return;
    TAILQ_REMOVE(&s->line, task, wait);
    task->waiting_on = NULL;
    scsi_task_continue(task);
}

static void fail(struct scsi_sanitize *s)
{
    log_error("LUN %u of %s: it is sanitized in part only, and takes no commands until it was sanitized whole",
              s->lu->lun, s->lu->target->name);
    enter(s, FAILED);
    continue_task(s);
}

void scsi_sanitize_interrupted(struct scsi_lu *lu, bool exit_allowed)
{
    lu->sanitize->exit_allowed = exit_allowed;
    lu->sanitize->kept = true;
    enter(lu->sanitize, FAILED);
}

/* --- the keeper --- */

/* Was it stopped in between? Then somebody waits for it. */
static bool stopped(struct scsi_sanitize *s)
{
    struct scsi_target *target = s->lu->target;
    s->busy = false;
    if (target->stopped == NULL)
        return false;
    if (s->state == WAITS || s->state == RUNS)
        enter(s, FAILED);
    scsi_target_look(target);
    return true;
}

/* Tells the keeper what it shall have; false: there is none, or no memory. */
static bool keep(struct scsi_sanitize *s, bool sanitizing, void (*done)(struct scsi_keep *))
{
    struct scsi_lu *lu = s->lu;
    struct reservations none = {0};
    const struct reservations *now = lu->persist->aptpl ? lu->persist : &none;
    enum sanitize_mark mark = !sanitizing ? MARK_NONE : s->exit_allowed ? MARK_EXIT_ALLOWED : MARK_SANITIZING;
    bool nothing = !sanitizing && !lu->persist->aptpl;
    if (lu->options.keeper == NULL)
        return false;
    s->keep = (struct scsi_keep){.record = nothing ? NULL : reservation_record_write(now, mark), .done = done};
    if (!nothing && s->keep.record == NULL)
        return false;
    s->busy = true;
    lu->options.keeper->keep(lu->options.keeper, &s->keep);
    return true;
}

/* The word is taken back. If that cannot be kept, the LU comes back as one that failed: to be sanitized once more. */
static void kept_end(struct scsi_keep *call)
{
    struct scsi_sanitize *s = container_of(call, struct scsi_sanitize, keep);
    free((char *)call->record);
    s->kept = call->error != 0;
    enter(s, READY);
    if (!stopped(s))
        continue_task(s);
}

/* The LU may be used again. */
static void leave(struct scsi_sanitize *s)
{
    if (s->kept && keep(s, false, kept_end))
        return;
    enter(s, READY);
    continue_task(s);
}

static void finish(struct scsi_sanitize *s)
{
    log_notice("LUN %u of %s: it is sanitized", s->lu->lun, s->lu->target->name);
    leave(s);
}

/* --- passes --- */

static void go_on(struct scsi_sanitize *s);

/* The time the step should have taken, at the rate that is set. Those that give the space back are no writes that
 * others would suffer from. */
static void step_over(struct scsi_sanitize *s)
{
    uint64_t rate = s->lu->options.sanitize_rate;
    s->position += s->req.len;
    if (rate == 0 || s->req.op != BLK_WRITE) {
        go_on(s);
        return;
    }
    s->busy = true;
    timer_start(s->lu->target->loop, &s->pace, s->req.len * 1000000000 / rate);
}

static void pace_fire(struct timer *timer)
{
    go_on(container_of(timer, struct scsi_sanitize, pace));
}

static void step_done(struct blk_req *req)
{
    struct scsi_sanitize *s = container_of(req, struct scsi_sanitize, req);
    if (stopped(s))
        return;
    if (req->status != BLK_OK)
        fail(s);
    else if (req->op == BLK_FLUSH)
        finish(s);
    else
        step_over(s);
}

static void submit(struct scsi_sanitize *s, enum blk_op op, uint64_t len)
{
    s->busy = true;
    s->req.op = op;
    s->req.flags = op == BLK_WRITE ? BLK_BACKGROUND : 0;
    s->req.off = op == BLK_FLUSH ? 0 : s->position;
    s->req.len = len;
    s->req.pages = op == BLK_WRITE ? s->pages : NULL;
    s->req.done = step_done;
    blk_submit(s->lu->dev, &s->req);
}

/* Whole rows, if the device has any and they are not too long; a multiple of a page. */
static uint64_t step_bytes(const struct scsi_sanitize *s)
{
    const struct blk_info *info = &s->lu->dev->info;
    uint64_t most = SANITIZE_STEP_PAGES * PAGE_BYTES;
    if (info->max_request != 0)
        most = MIN(most, round_down(info->max_request, PAGE_BYTES));
    if (info->optimal_io > 0 && info->optimal_io <= most && info->optimal_io % PAGE_BYTES == 0)
        most -= most % info->optimal_io;
    return most;
}

/* So much space is given back at once: in whole rows, or it is not, and no more, so that a stop need not wait for
 * long. */
static uint64_t free_bytes(const struct scsi_sanitize *s)
{
    uint64_t row = MAX(s->lu->dev->info.optimal_io, lu_block(s->lu));
    return MAX(SANITIZE_FREE_BYTES / row, 1u) * row;
}

static void fill_pages(struct scsi_sanitize *s)
{
    struct page *page = s->pattern[s->pattern[1] != NULL ? s->pass % 2 : 0];
    for (unsigned i = 0; i < SANITIZE_STEP_PAGES; i++)
        s->pages[i] = page;
}

static void go_on(struct scsi_sanitize *s)
{
    uint64_t size = s->lu->dev->info.size;
    if (s->position >= size) {
        s->position = 0;
        s->pass++;
    }
    uint64_t left = size - s->position;
    if (s->pass < s->passes) {
        fill_pages(s);
        submit(s, BLK_WRITE, MIN(left, step_bytes(s)));
    } else if (s->erase && s->pass == s->passes) {
        submit(s, BLK_WRITE_ZEROES, MIN(left, free_bytes(s)));
    } else {
        submit(s, BLK_FLUSH, 0);
    }
}

/* --- the beginning --- */

static void start(struct scsi_sanitize *s)
{
    log_notice("LUN %u of %s: it is being sanitized", s->lu->lun, s->lu->target->name);
    enter(s, RUNS);
    rod_tokens_written(s->lu->target->tokens, s->lu->dev, 0, s->lu->dev->info.size);
    if (s->immediate)
        continue_task(s);
    go_on(s);
}

static void kept_begin(struct scsi_keep *call)
{
    struct scsi_sanitize *s = container_of(call, struct scsi_sanitize, keep);
    free((char *)call->record);
    s->kept = s->kept || call->error == 0;
    if (stopped(s))
        return;
    if (call->error == 0) {
        start(s);
        return;
    }
    s->not_kept = true;
    enter(s, s->kept ? FAILED : READY);
    continue_task(s);
}

/* Does no task but orders to sanitize, and what does not touch the medium, run at the device? */
static bool is_quiet(const struct scsi_lu *of)
{
    for (unsigned i = 0; i < SCSI_LUNS_MAX; i++) {
        const struct scsi_lu *lu = of->target->lus[i];
        const struct scsi_task *task;
        if (lu == NULL || lu->dev != of->dev)
            continue;
        TAILQ_FOREACH(task, &lu->running, link)
        if (task->command->opcode != OPCODE_SANITIZE && !(task->command->flags & COMMAND_ANY_TIME))
            return false;
    }
    return true;
}

void scsi_sanitize_look(struct scsi_target *target)
{
    for (unsigned i = 0; i < SCSI_LUNS_MAX && target->sanitizing > 0; i++) {
        struct scsi_sanitize *s = target->lus[i] != NULL ? target->lus[i]->sanitize : NULL;
        if (s != NULL && s->state == WAITS && !s->busy && is_quiet(s->lu) && !keep(s, true, kept_begin))
            start(s);
    }
}

/* The pattern begins anew in each block. */
static void fill_pattern(struct scsi_sanitize *s, const struct sanitize_order *order)
{
    uint32_t block = lu_block(s->lu);
    uint8_t *plain = s->pattern[0]->data, *inverted = order->invert ? s->pattern[1]->data : NULL;
    for (uint32_t i = 0; i < PAGE_BYTES; i++)
        plain[i] = order->pattern[i % block % order->pattern_len];
    for (uint32_t i = 0; i < PAGE_BYTES && inverted != NULL; i++)
        inverted[i] = (uint8_t)~plain[i];
}

bool scsi_sanitize_begin(struct scsi_task *task, const struct sanitize_order *order, bool immediate)
{
    struct scsi_sanitize *s = task->lu->sanitize;
    if (s->busy) /* one that failed is being left */
        return false;
    if (!page_pool_get(s->lu->target->loop->pages, s->pattern, order->invert ? 2 : 1))
        return false;
    fill_pattern(s, order);
    s->erase = order->erase;
    s->exit_allowed = order->exit_allowed;
    s->immediate = immediate;
    s->pass = 0;
    s->passes = order->passes;
    s->position = 0;
    s->not_kept = false;
    s->pace.fire = pace_fire;
    wait_in_line(s, task);
    enter(s, WAITS);
    scsi_sanitize_look(s->lu->target);
    return true;
}

bool scsi_sanitize_exit(struct scsi_task *task)
{
    struct scsi_sanitize *s = task->lu->sanitize;
    s->not_kept = false;
    if (s->state != FAILED || !s->exit_allowed || s->busy)
        return false;
    wait_in_line(s, task);
    leave(s);
    return true;
}

/* --- the end of the target --- */

bool scsi_sanitize_busy(const struct scsi_sanitize *s)
{
    return s->busy;
}

void scsi_sanitize_stop(struct scsi_sanitize *s)
{
    if (!s->pace.armed)
        return;
    timer_stop(s->lu->target->loop, &s->pace);
    s->busy = false;
    enter(s, FAILED);
}
