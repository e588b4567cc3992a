/*
 * A row: analyse, decide, act. The drawing of the states is in raid/row.h.
 *
 * The happy path of a small write on RAID 5: the lock, the plan (read-modify-write), four scratch pages, two reads, the
 * difference into the parity, the array is dirty already, two writes, no loss to record, answered.
 *
 * What goes wrong
 *   a read fails         the role is out of the plan: for these columns after a media error, for the whole row otherwise.
 *                        Planned again, until it succeeds or too little is left.
 *   a read takes long    the role is out of the plan, unless too little is left: then it is waited for.
 *   too little is left   if media errors are among the reasons the window is made narrower, to a page and then to a
 *                        block: errors of different members seldom meet in the same block. Where they do, that block
 *                        is lost: a media error with its offset. A reader gets everything around it.
 *                        A write of such a block gives up the row's redundancy there, if the bytes have a place of their
 *                        own; a job records what it cannot make right (row_bad.c).
 *   zeroes read back     differ, or cannot be read: written once more; then the row stays as if never written.
 *   a write fails        the member fails (the owner's decision). The write is good if the row bears the loss, and is
 *                        acknowledged when the loss is on disk. If the member must stay, the chunk is bad.
 */
#include "raid/row.h"

#include <string.h>

static const struct sm_state states[ROW_STATES] = {
    [ROW_LOCKING] = {"locking", SM_TO(ROW_PLANNING)},
    [ROW_PLANNING] = {"planning", SM_TO(ROW_PAGING) | SM_TO(ROW_MAPPING) | SM_TO(ROW_RECORDING) | SM_TO(ROW_DONE)},
    [ROW_PAGING] = {"paging", SM_TO(ROW_READING)},
    [ROW_READING] = {"reading", SM_TO(ROW_PLANNING) | SM_TO(ROW_STARTING)},
    [ROW_STARTING] = {"starting", SM_TO(ROW_MAPPING) | SM_TO(ROW_LOGGING) | SM_TO(ROW_WRITING) | SM_TO(ROW_PLANNING)},
    [ROW_MAPPING] = {"mapping", SM_TO(ROW_STARTING) | SM_TO(ROW_LOGGING) | SM_TO(ROW_RECORDING) | SM_TO(ROW_PLANNING)},
    [ROW_LOGGING] = {"logging", SM_TO(ROW_STARTING) | SM_TO(ROW_RECORDING)},
    [ROW_WRITING] = {"writing", SM_TO(ROW_VERIFYING) | SM_TO(ROW_PLANNING)},
    [ROW_VERIFYING] = {"verifying", SM_TO(ROW_PLANNING)},
    [ROW_RECORDING] = {"recording", SM_TO(ROW_DONE)},
    [ROW_DONE] = {"done", 0},
};

static bool changes_data(const struct row_op *op)
{
    return op->kind == ROW_WRITE || op->kind == ROW_ZERO;
}

static uint64_t volume_offset(const struct row_op *op)
{
    return op->row * op->volume->layout.row_data + op->first;
}

static void fail(struct row_op *op, enum blk_status status, uint64_t bad_off)
{
    status_merge(&op->status, &op->bad_off, status, bad_off);
}

static void fail_and_stop(struct row_op *op, enum blk_status status, uint64_t bad_off)
{
    fail(op, status, bad_off);
    op->stop = true;
}

/* --- scratch and windows --- */

static void pages_ready(struct page_waiter *waiter)
{
    struct row_op *op = container_of(waiter, struct row_op, waiter);
    bool taken = page_pool_take(op->volume->scratch, op->pages, op->pages_count);
    ASSERT(taken);
    op->pages_held = op->pages_count;
    loop_defer(op->volume->dev.loop, &op->task);
}

/* False: in line for them. */
static bool pages_get(struct row_op *op)
{
    if (op->pages_count == op->pages_held)
        return true;
    ASSERT(op->pages_held == 0);
    if (page_pool_get(op->volume->scratch, op->pages, op->pages_count)) {
        op->pages_held = op->pages_count;
        return true;
    }
    op->waiter.count = op->pages_count;
    op->waiter.ready = pages_ready;
    page_pool_wait(op->volume->scratch, &op->waiter);
    return false;
}

static void pages_put(struct row_op *op)
{
    uint32_t held = op->pages_held;
    op->pages_held = 0;
    page_put_all(op->pages, held);
}

static void plan_again(struct row_op *op)
{
    row_log_written(op);
    pages_put(op);
    sm_move(&op->state, ROW_PLANNING);
}

static void next_window(struct row_op *op)
{
    op->spoil = false;
    op->column += op->width;
    op->width = op->window;
    if (op->column < op->end)
        row_window_open(op);
    plan_again(op);
}

static bool window_narrow(struct row_op *op)
{
    uint32_t block = op->volume->dev.info.logical_block;
    if (op->width > PAGE_BYTES)
        op->width = PAGE_BYTES - op->column % PAGE_BYTES;
    else if (op->width > block)
        op->width = block;
    else
        return false;
    row_window_open(op);
    return true;
}

/* --- errors that no plan gets around --- */

static uint64_t media_of_impossible(const struct row_op *op)
{
    uint64_t media = 0;
    for (unsigned i = 0; i < op->bands_count; i++)
        if (op->bands[i].plan.kind == PLAN_IMPOSSIBLE)
            media |= op->bands[i].media;
    return media;
}

/* The blocks of a band, one column wide by now, that are lost; the others are still to be read. */
static void band_give_up(struct row_op *op, struct row_band *band)
{
    uint64_t lost = band->target & ~row_band_readable(op, band);
    if (op->kind != ROW_READ || lost == 0)
        lost = band->target;
    if (op->kind == ROW_WORK_SCRUB)
        row_scrub_unreadable(op, band);
    fail(op, BLK_MEDIA, row_volume_offset(op, roles_lowest(lost), band->column));
    band->target &= ~lost;
}

static void band_impossible(struct row_op *op, struct row_band *band)
{
    if (changes_data(op) && !op->spoil && row_bad_spoil(op, band)) {
        op->spoil = true;
    } else if (op->job != NULL && !row_bad_lost(op, band)) {
        fail_and_stop(op, BLK_NOSPACE, volume_offset(op));
    } else {
        band_give_up(op, band);
        op->stop |= changes_data(op);
    }
}

static void window_impossible(struct row_op *op)
{
    if (op->late != 0) {
        op->late = 0;
        op->patient = true;
        return;
    }
    if (media_of_impossible(op) == 0) {
        fail_and_stop(op, op->lost != 0 ? op->lost_status : BLK_GONE, volume_offset(op));
        return;
    }
    if (window_narrow(op))
        return;
    for (unsigned i = 0; i < op->bands_count; i++)
        if (op->bands[i].plan.kind == PLAN_IMPOSSIBLE)
            band_impossible(op, &op->bands[i]);
    if (op->job != NULL && !op->stop) {
        op->column += op->width;
        op->width = op->window;
        if (op->column < op->end)
            row_window_open(op);
    }
}

/* --- requests to members --- */

/* A copy is written to the other disk alone. */
static struct member *written_member(const struct row_op *op, uint64_t role)
{
    return op->kind == ROW_WORK_COPY ? op->job->copy_to : op->places[role].member;
}

static void io_submit(struct row_op *op, struct row_band *band, uint64_t role, enum blk_op kind, struct page **pages,
                      uint64_t len, void (*done)(struct row_io *))
{
    struct row_io *io = &band->ios[role];
    struct member_place place = op->places[role];
    io->volume = op->volume;
    io->member = kind == BLK_READ ? place.member : written_member(op, role);
    io->op = kind;
    io->flags = kind == BLK_READ || op->fill || op->unmap ? op->flags & (BLK_BACKGROUND | BLK_NO_UNMAP) : op->flags;
    if (kind == BLK_READ && op->kind == ROW_READ && !op->patient && volume_may_hedge(op->volume, op->row, io->member))
        io->flags |= BLK_IMPATIENT;
    if (blk_op_writes(kind) && (band->bad >> role & 1))
        io->flags |= BLK_FUA; /* B3 */
    io->lenient = kind == BLK_DISCARD;
    io->off = place.off + band->column;
    io->len = len;
    io->pages = pages;
    io->done = done;
    io->band = (uint8_t)(band - op->bands);
    io->role = (uint8_t)role;
    op->pending++;
    row_io_start(io);
}

/* One of the requests in flight has come back. */
static void io_over(struct row_op *op)
{
    ASSERT(op->pending > 0);
    if (--op->pending == 0)
        row_run(op);
}

static void role_lost(struct row_op *op, uint64_t role, enum blk_status status)
{
    op->lost |= UINT64_C(1) << role;
    op->lost_status = status;
    op->retry = true;
}

static bool compares(const struct row_op *op)
{
    return op->kind == ROW_WORK_RESYNC || op->kind == ROW_WORK_SCRUB || op->kind == ROW_WORK_VERIFY;
}

static void read_done(struct row_io *io)
{
    struct row_op *op = io->row;
    if (io->status == BLK_MEDIA) {
        op->bands[io->band].media |= UINT64_C(1) << io->role;
        op->retry = true;
    } else if (io->status == BLK_LATE) {
        op->late |= UINT64_C(1) << io->role;
        op->retry = true;
    } else if (io->status != BLK_OK && compares(op) && member_readable(io->member)) {
        op->retry = true; /* it stays in service: asked again, for what was not looked at is not known to be right */
    } else if (io->status != BLK_OK) {
        role_lost(op, io->role, io->status);
    }
    io_over(op);
}

static void reads_submit(struct row_op *op)
{
    for (unsigned i = 0; i < op->bands_count; i++) {
        struct row_band *band = &op->bands[i];
        FOR_EACH_ROLE(role, band->plan.reads)
        {
            if (member_readable(op->places[role].member))
                io_submit(op, band, role, BLK_READ, band->old[role], band->len, read_done);
            else
                role_lost(op, role, BLK_GONE);
        }
    }
}

static uint64_t place_end(const struct row_io *io)
{
    return io->off + io->len;
}

/* The bands in which a write stands for a role: a blank chunk is written in one piece. */
static void write_over(struct row_op *op, const struct row_io *io, bool good)
{
    for (unsigned i = io->band; i < op->bands_count; i++) {
        struct row_band *band = &op->bands[i];
        if (place_end(io) <= op->places[io->role].off + band->column)
            break;
        *(good ? &band->wrote : &band->refused) |= UINT64_C(1) << io->role;
    }
}

static void write_note(struct row_op *op, const struct row_io *io)
{
    struct row_band *band = &op->bands[io->band];
    if (io->status == BLK_OK) {
        write_over(op, io, true);
        if (op->kind != ROW_ZERO)
            band->corrected |= band->media & (UINT64_C(1) << io->role);
    } else if (member_writable(io->member)) {
        write_over(op, io, false);
        if (changes_data(op)) /* so that a resync tries again */
            op->doubt = row_region_spoiled(op);
    } else if (op->kind == ROW_WORK_REBUILD || op->kind == ROW_WORK_SCRUB) {
        /* others plan without it; here it may be what the work was for */
        fail_and_stop(op, BLK_GONE, volume_offset(op));
    }
}

static void write_done(struct row_io *io)
{
    struct row_op *op = io->row;
    if (op->kind != ROW_WORK_COPY && !io->lenient)
        write_note(op, io);
    else if (op->kind == ROW_WORK_COPY && io->status != BLK_OK && member_writable(io->member))
        fail_and_stop(op, BLK_READONLY, volume_offset(op)); /* the new disk's error: the old one serves on */
    io_over(op);
}

static void write_submit(struct row_op *op, struct row_band *band, uint64_t role, uint64_t len)
{
    bool zero = op->kind == ROW_ZERO ||
                ((op->kind == ROW_WORK_REBUILD || op->kind == ROW_WORK_COPY) && row_is_zero(band, band->new[role]));
    if (zero && op->fill && op->job != NULL) /* bytes, not a word about them: the disk is to be exercised */
        io_submit(op, band, role, BLK_WRITE, op->volume->zero_pages, len, write_done);
    else
        io_submit(op, band, role, zero ? BLK_WRITE_ZEROES : BLK_WRITE, zero ? NULL : band->new[role], len, write_done);
    if (op->job != NULL)
        op->job->changed = true;
}

/* Of a row that is filled: the data roles that are zeroes in all columns of the window, so one write will do. */
static uint64_t blank_roles(const struct row_op *op)
{
    uint64_t roles = roles_below(op->volume->layout.data);
    for (unsigned i = 0; i < op->bands_count; i++)
        roles &= ~op->bands[i].target;
    return roles;
}

static void writes_submit(struct row_op *op)
{
    uint64_t blank = op->fill ? blank_roles(op) : 0;
    for (unsigned i = 0; i < op->bands_count; i++) {
        struct row_band *band = &op->bands[i];
        FOR_EACH_ROLE(role, band->plan.writes & (i == 0 ? UINT64_MAX : ~blank))
        if (member_writable(written_member(op, role)))
            write_submit(op, band, role, blank >> role & 1 ? op->width : band->len);
    }
}

/*
 * The space is free already: what the members are told is advice. It is kept from them where a read that came before is
 * still under way: that may find old bytes or zeroes, but not whatever a disk makes of a block that it has let go.
 */
static void discards_submit(struct row_op *op)
{
    if (run_reads_row(op->volume, op->row))
        return;
    FOR_EACH_ROLE(role, row_writable(op))
    if (op->places[role].member->dev->info.discards)
        io_submit(op, &op->bands[0], role, BLK_DISCARD, NULL, op->bands[0].len, write_done);
}

static void verify_some(struct row_op *op, struct row_band *band, uint64_t roles);

static void verify_done(struct row_io *io)
{
    struct row_op *op = io->row;
    struct row_band *band = &op->bands[io->band];
    if (io->status != BLK_OK)
        band->corrected &= ~(UINT64_C(1) << io->role);
    if (!op->volume->layout.parity)
        verify_some(op, band, band->corrected & ~roles_below(io->role + 1u));
    io_over(op);
}

/* Copies are read into the same pages: one after the other. */
static void verify_some(struct row_op *op, struct row_band *band, uint64_t roles)
{
    FOR_EACH_ROLE(role, roles)
    {
        if (!member_readable(op->places[role].member)) {
            band->corrected &= ~(UINT64_C(1) << role);
            continue;
        }
        io_submit(op, band, role, BLK_READ, band->new[role], band->len, verify_done);
        if (!op->volume->layout.parity)
            return;
    }
}

/* Read back what was corrected, over the bytes it was written from: they have served. */
static void verifies_submit(struct row_op *op)
{
    for (unsigned i = 0; i < op->bands_count; i++)
        verify_some(op, &op->bands[i], op->bands[i].corrected);
}

static void tell_corrected(struct row_op *op)
{
    struct volume_owner *owner = op->volume->owner;
    for (unsigned i = 0; i < op->bands_count; i++) {
        struct row_band *band = &op->bands[i];
        FOR_EACH_ROLE(role, band->corrected)
        owner->ops->member_corrected(owner, op->places[role].member, op->places[role].off + band->column, band->len);
        if (op->job != NULL)
            op->job->report.corrected += roles_count(band->corrected);
    }
}

/* --- answers --- */

static void job_answer(struct task *task)
{
    struct row_job *job = container_of(task, struct row_job, task);
    job->done(job);
}

/* Whoever waits for this row hears of it, once. */
static void answer(struct row_op *op)
{
    struct blk_req *parent = op->parent;
    struct run *run = op->run;
    struct row_job *job = op->job;
    op->parent = NULL;
    op->run = NULL;
    op->job = NULL;
    if (run != NULL) {
        run_row_done(run, op->len, op->status, op->bad_off);
    } else if (parent != NULL) {
        part_done(op->volume, parent, op->cutter, op->status, op->bad_off);
    } else if (job != NULL) {
        job->status = op->status;
        job->held = NULL;
        job->task.run = job_answer;
        loop_defer(op->volume->dev.loop, &job->task);
    }
}

/* --- the states: true when there is more to do at once --- */

static bool step_locking(struct row_op *op)
{
    if (!op->locked && !row_lock(op))
        return false;
    row_region_begin(op);
    row_scrub_begin(op);
    if (op->fill)
        row_bad_forget(op);
    row_columns_begin(op);
    row_window_open(op);
    sm_move(&op->state, ROW_PLANNING);
    return true;
}

/* All of a row that was never written is, as far as the members stand. */
static void filled(struct row_op *op)
{
    bool verified = op->kind == ROW_WORK_VERIFY;
    if (row_region_joined(op)) {
        row_init_begin(op);
        return;
    }
    sm_move(&op->state, ROW_MAPPING);
    op->kind = verified ? ROW_ZERO : op->kind;
    if (op->job != NULL && !verified)
        row_init_written(op);
    else
        row_region_change(op);
}

static void windows_over(struct row_op *op)
{
    if (op->kind == ROW_WORK_RESYNC && !op->stop)
        row_region_synced(op);
    op->spoiled = op->doubt;
    if (op->spoiled && consistency_is_closed(op->volume->consistency)) {
        sm_move(&op->state, ROW_MAPPING);
        row_region_change(op);
    } else if (op->fill && op->status == BLK_OK && !op->stop) {
        filled(op);
    } else if (!changes_data(op) || op->status != BLK_OK) {
        sm_move(&op->state, op->noted ? ROW_RECORDING : ROW_DONE);
    } else {
        sm_move(&op->state, ROW_RECORDING);
    }
}

static bool step_planning(struct row_op *op)
{
    if (op->stop || op->column >= op->end) {
        windows_over(op);
    } else if (changes_data(op) && op->volume->failed) {
        fail_and_stop(op, BLK_GONE, volume_offset(op));
    } else if (!row_window_plan(op)) {
        window_impossible(op);
    } else {
        row_window_buffers(op);
        sm_move(&op->state, ROW_PAGING);
    }
    return true;
}

static bool step_paging(struct row_op *op)
{
    if (!pages_get(op))
        return false;
    sm_move(&op->state, ROW_READING);
    op->retry = false;
    reads_submit(op);
    return true;
}

/* Read back: on, or once more from the beginning, or not at all. */
static void step_verify(struct row_op *op)
{
    if (row_init_judge(op)) {
        if (op->retry)
            plan_again(op);
        else
            next_window(op);
        return;
    }
    plan_again(op);
    if (op->again)
        fail_and_stop(op, BLK_MEDIA, volume_offset(op));
    else
        row_init_begin(op);
    op->again = true;
}

static bool step_reading(struct row_op *op)
{
    if (op->pending > 0)
        return false;
    if (op->kind == ROW_WORK_VERIFY) {
        step_verify(op);
        return true;
    }
    if (op->retry) {
        plan_again(op);
        return true;
    }
    bool writes = false;
    for (unsigned i = 0; i < op->bands_count; i++) {
        row_compute(op, &op->bands[i]);
        if (op->kind == ROW_WORK_SCRUB && !row_scrub_judge(op, &op->bands[i])) {
            window_narrow(op);
            plan_again(op);
            return true;
        }
        writes |= op->bands[i].plan.writes != 0;
    }
    if (!writes) {
        next_window(op);
        return true;
    }
    if (op->kind == ROW_READ && op->column + op->width >= op->end)
        answer(op); /* what follows is between us and the member */
    sm_move(&op->state, ROW_STARTING);
    return true;
}

static bool step_starting(struct row_op *op)
{
    struct volume_owner *owner = op->volume->owner;
    if (op->volume->failed && op->kind == ROW_READ) { /* nothing is corrected, but what follows may be readable */
        next_window(op);
        return true;
    }
    if (op->volume->failed) {
        fail_and_stop(op, BLK_GONE, volume_offset(op));
        plan_again(op);
        return true;
    }
    if ((op->job == NULL || op->fill) && !op->changing) {
        if (!owner->ops->change_begin(owner, &op->task))
            return false;
        op->changing = true;
    }
    if (op->unmap && row_log_wanted(op)) {
        sm_move(&op->state, ROW_LOGGING);
        row_log_ask(op);
        return true;
    }
    if (row_region_wants_change(op)) {
        sm_move(&op->state, ROW_MAPPING);
        row_region_change(op);
        return true;
    }
    if (op->noted && !owner->ops->loss_recorded(owner, &op->task)) /* B2, B4 */
        return false;
    if (changes_data(op) && !op->fill && !op->unmap && !op->logged && row_region_joined(op)) {
        plan_again(op);
        return true;
    }
    if (row_log_wanted(op)) {
        sm_move(&op->state, ROW_LOGGING);
        row_log_ask(op);
        return true;
    }
    sm_move(&op->state, ROW_WRITING);
    if (op->unmap)
        discards_submit(op);
    else
        writes_submit(op);
    return true;
}

static bool step_mapping(struct row_op *op)
{
    if (!op->change.over || op->task.queued)
        return false;
    if (op->spoiled) {
        sm_move(&op->state, ROW_LOGGING);
        row_log_ask(op);
    } else if (op->flushing) {
        sm_move(&op->state, ROW_PLANNING);
        row_init_flushed(op);
    } else {
        sm_move(&op->state, op->fill ? ROW_RECORDING : ROW_STARTING);
    }
    return true;
}

static bool step_logging(struct row_op *op)
{
    if (!row_log_over(op))
        return false;
    sm_move(&op->state, op->spoiled ? ROW_RECORDING : ROW_STARTING);
    return true;
}

/* So what a disk refused, or what was mended, cannot be recorded: nobody may believe that it was written. */
static void list_is_full(struct row_op *op)
{
    if (op->job != NULL) {
        fail_and_stop(op, BLK_NOSPACE, volume_offset(op));
    } else if (changes_data(op)) {
        fail_and_stop(op, BLK_MEDIA, volume_offset(op));
        op->doubt = row_region_spoiled(op);
    }
}

static bool step_writing(struct row_op *op)
{
    if (op->pending > 0)
        return false;
    const struct layout *layout = &op->volume->layout;
    if (changes_data(op) && layout->roles - roles_count(row_readable(op)) > layout->redundancy)
        fail_and_stop(op, BLK_GONE, volume_offset(op));
    if (!row_bad_written(op))
        list_is_full(op);
    if (op->kind == ROW_WRITE) {
        tell_corrected(op); /* bytes that the writer brought are not read back: they may be its only copy */
        next_window(op);
        return true;
    }
    sm_move(&op->state, ROW_VERIFYING);
    verifies_submit(op);
    return true;
}

static bool step_verifying(struct row_op *op)
{
    if (op->pending > 0)
        return false;
    tell_corrected(op);
    next_window(op);
    return true;
}

static bool step_recording(struct row_op *op)
{
    struct volume_owner *owner = op->volume->owner;
    if (!owner->ops->loss_recorded(owner, &op->task))
        return false;
    if (op->volume->failed && op->kind != ROW_READ) /* then the loss may be one that nobody will write down */
        fail(op, BLK_GONE, volume_offset(op));
    sm_move(&op->state, ROW_DONE);
    return true;
}

static bool step_done(struct row_op *op)
{
    struct volume *v = op->volume;
    ASSERT(op->pending == 0);
    pages_put(op);
    if (op->changing)
        v->owner->ops->change_end(v->owner);
    v->unmaps -= op->unmap;
    row_region_written(op);
    row_unlock(op);
    answer(op);
    op->lost = op->late = op->hint_roles = 0;
    pool_put(&v->rows, &op->entry);
    volume_close_if_idle(v);
    return false;
}

static bool (*const steps[ROW_STATES])(struct row_op *) = {
    [ROW_LOCKING] = step_locking,     [ROW_PLANNING] = step_planning, [ROW_PAGING] = step_paging,
    [ROW_READING] = step_reading,     [ROW_STARTING] = step_starting, [ROW_MAPPING] = step_mapping,
    [ROW_LOGGING] = step_logging,     [ROW_WRITING] = step_writing,   [ROW_VERIFYING] = step_verifying,
    [ROW_RECORDING] = step_recording, [ROW_DONE] = step_done,
};

void row_run(struct row_op *op)
{
    while (steps[sm_state(&op->state)](op))
        ;
}

static void row_task(struct task *task)
{
    row_run(container_of(task, struct row_op, task));
}

void row_start(struct row_op *op)
{
    struct volume *v = op->volume;
    ASSERT(op->len > 0 && op->first + op->len <= v->layout.row_data && op->row < v->layout.rows);
    ASSERT(op->pages_held == 0 && op->pending == 0 && !op->locked && STAILQ_EMPTY(&op->waiting));
    sm_init(&op->state, states, ROW_STATES, ROW_LOCKING);
    for (unsigned role = 0; role < v->layout.roles; role++)
        op->places[role] = volume_place(v, op->row, role);
    op->task.run = row_task;
    op->changing = op->stop = op->retry = op->spoiled = op->logged = op->patient = op->noted = op->spoil = op->doubt =
        op->flushing = op->again = false;
    op->status = BLK_OK;
    op->bad_off = UINT64_MAX;
    row_run(op);
}

/* --- memory: one block a row --- */

static uint64_t ios_count(const struct volume *v)
{
    return (uint64_t)ROW_BANDS * v->layout.roles;
}

static uint64_t pieces_count(const struct volume *v)
{
    return consistency_is_closed(v->consistency) ? ios_count(v) : 0;
}

uint64_t row_op_bytes(const struct volume *v)
{
    return round_up(sizeof(struct row_op), 16) + ios_count(v) * (sizeof(struct row_io) + 2 * sizeof(struct page **)) +
           v->layout.roles * sizeof(struct member_place) + v->op_pages * sizeof(struct page *) +
           pieces_count(v) * sizeof(struct journal_piece);
}

struct row_op *row_op_init(void *memory, struct volume *v)
{
    struct row_op *op = memory;
    unsigned roles = v->layout.roles;
    struct row_io *ios = (struct row_io *)((char *)memory + round_up(sizeof *op, 16));
    struct member_place *places = (struct member_place *)(ios + ios_count(v));
    struct journal_piece *pieces = (struct journal_piece *)(places + roles);
    struct page ***buffers = (struct page ***)(pieces + pieces_count(v));
    memset(op, 0, sizeof *op);
    op->volume = v;
    op->places = places;
    op->record.pieces = pieces;
    op->record.volume = &v->uuid;
    op->record.task = op->forget.task = &op->task;
    op->pages = (struct page **)(buffers + 2 * ios_count(v));
    STAILQ_INIT(&op->waiting);
    for (unsigned i = 0; i < ROW_BANDS; i++) {
        op->bands[i].ios = ios + i * roles;
        op->bands[i].old = buffers + (2 * i) * roles;
        op->bands[i].new = buffers + (2 * i + 1) * roles;
    }
    for (uint64_t i = 0; i < ios_count(v); i++)
        ios[i] = (struct row_io){.row = op};
    return op;
}
