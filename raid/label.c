/*
 * Reading and writing of labels: see raid/label.h.
 *
 * An operation is a script of steps, done one after the other. Nothing is in flight twice, so what a crash leaves is
 * a script cut short at some request:
 *
 *     write    head copy, flush, tail copy, flush
 *     fresh    zero the headers of all copies, flush, tail copy, flush, head copy, flush
 *     erase    zero the headers of all copies, flush
 *
 * L1  The other slot (the member's newest label until then) is not touched by a write that is not fresh.
 * L2  The second copy is written only when the first is durable. So of the two copies of a slot at most one is torn.
 * L3  The first label of a disk stands at the tail before it stands at the head. So a member with a label at its head has
 *     one at its tail, whatever comes (by L1 and L2 the next ones destroy one of two slots at most): one whose tail is
 *     blank has lost it, and what stood before it (a file that was cut short and made as long again).
 * L4  Headers are zeroed at the tail first: what is left of a fresh label whose head could not be written stands there.
 *
 * The device sees requests no longer than it allows. The tail is looked for by the disk's size when reading, since
 * nothing else is known yet; and, with a label from the head of a disk that has another size than that says (it grew),
 * where the label puts it.
 *
 * Labels are control path: memory for one slot is taken at the start and freed before done. A member must not be lost for
 * want of memory: it is waited for, up to ten seconds.
 */
#include "raid/label.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"

enum label_action { READ_COPY, WRITE_COPY, ZERO_HEADER, FLUSH, END };
enum label_area { AT_HEAD, AT_TAIL_OF_DISK, AT_TAIL_OF_LABEL };
enum { PLACE_OF_LABEL = 2, BLANK_BYTES = 2 * PAGE_BYTES /* header, and the beginning of the text */ };
enum { RETRY_NS = 100 * 1000 * 1000, RETRIES_MAX = 100 }; /* for memory */

struct label_step {
    enum label_action action;
    enum label_area area;
    unsigned slot; /* 0, 1, PLACE_OF_LABEL */
};

struct label_scratch {
    uint8_t bytes[SB_SLOT_BYTES];
    struct sb_label candidate;
};

/* clang-format off */
#define HEAD_STEPS {WRITE_COPY, AT_HEAD, PLACE_OF_LABEL}, {FLUSH, 0, 0}
#define TAIL_STEPS {WRITE_COPY, AT_TAIL_OF_LABEL, PLACE_OF_LABEL}, {FLUSH, 0, 0}
#define ERASE_STEPS                                                                                                    \
    {ZERO_HEADER, AT_TAIL_OF_DISK, 0}, {ZERO_HEADER, AT_TAIL_OF_DISK, 1},                                              \
    {ZERO_HEADER, AT_TAIL_OF_LABEL, 0}, {ZERO_HEADER, AT_TAIL_OF_LABEL, 1},                                            \
    {ZERO_HEADER, AT_HEAD, 0}, {ZERO_HEADER, AT_HEAD, 1}, {FLUSH, 0, 0}

static const struct label_step read_script[] = {
    {READ_COPY, AT_HEAD, 0}, {READ_COPY, AT_HEAD, 1},
    {READ_COPY, AT_TAIL_OF_DISK, 0}, {READ_COPY, AT_TAIL_OF_DISK, 1},
    {READ_COPY, AT_TAIL_OF_LABEL, 0}, {READ_COPY, AT_TAIL_OF_LABEL, 1}, {END, 0, 0}};
static const struct label_step write_script[] = {HEAD_STEPS, TAIL_STEPS, {END, 0, 0}};
static const struct label_step fresh_script[] = {ERASE_STEPS, TAIL_STEPS, HEAD_STEPS, {END, 0, 0}};
static const struct label_step erase_script[] = {ERASE_STEPS, {END, 0, 0}};
/* clang-format on */

static void finish(struct label_op *op)
{
    page_put_all(op->pages, op->pages_count);
    op->pages_count = 0;
    free(op->scratch);
    op->scratch = NULL;
    op->done(op);
}

static void fail(struct label_op *op, enum blk_status status, const char *what)
{
    op->status = status;
    text_format(op->why, sizeof op->why, "%s: %s", op->dev->name, what);
    finish(op);
}

/* --- where a step's copy stands --- */

static bool is_read(const struct label_op *op)
{
    return op->step >= read_script && op->step < read_script + ARRAY_LENGTH(read_script);
}

static uint64_t area_start(const struct label_op *op, enum label_area area)
{
    if (area == AT_HEAD)
        return 0;
    if (area == AT_TAIL_OF_DISK)
        return superblock_tail(op->dev->info.size);
    bool known = op->label != NULL && (!is_read(op) || op->verdict == SB_VALID);
    ASSERT(!known || op->label->slot < RAID_MEMBERS_MAX);
    return !known ? 0 : superblock_tail(op->label->array.members[op->label->slot].size);
}

/* Offset on the disk; 0: the disk is too small to have this copy. */
static uint64_t copy_offset(const struct label_op *op, const struct label_step *step)
{
    uint64_t start = area_start(op, step->area);
    if (step->area != AT_HEAD && start == 0)
        return 0;
    if (is_read(op) && step->area == AT_TAIL_OF_LABEL && start == area_start(op, AT_TAIL_OF_DISK))
        return 0; /* that was read */
    unsigned slot = step->slot == PLACE_OF_LABEL ? op->label->place : step->slot;
    uint64_t off = start + (slot == 0 ? SB_HEAD_0 : SB_HEAD_1);
    return op->dev->info.size < SB_SLOT_BYTES || off > op->dev->info.size - SB_SLOT_BYTES ? 0 : off;
}

/* --- what a read found --- */

/* The place of a copy at the label's tail holds nothing at all. A header that was erased has its text behind it. */
static bool is_blank_tail(const struct label_op *op)
{
    if (op->step->area == AT_HEAD || area_start(op, op->step->area) != area_start(op, AT_TAIL_OF_LABEL))
        return false;
    for (uint64_t page = 0; page < BLANK_BYTES / PAGE_BYTES; page++) {
        const uint8_t *bytes = op->pages[page]->data;
        if (bytes[0] != 0 || memcmp(bytes, bytes + 1, PAGE_BYTES - 1) != 0)
            return false;
    }
    return true;
}

/* How much is to be read of a copy whose first block has been. */
static uint64_t length_of_copy(const struct label_op *op)
{
    uint64_t len = superblock_length(op->pages[0]->data);
    return op->step->area == AT_HEAD ? len : MAX(len, (uint64_t)BLANK_BYTES);
}

static void consider_copy(struct label_op *op)
{
    struct label_scratch *scratch = op->scratch;
    char why[sizeof op->why];
    op->blank_copies += is_blank_tail(op);
    pages_copy_out(scratch->bytes, op->pages, 0, op->len);
    enum sb_verdict verdict = superblock_decode(scratch->bytes, op->len, &scratch->candidate, why, sizeof why);
    bool has_best = op->verdict == SB_VALID || op->verdict == SB_UNSUPPORTED;
    if (verdict == SB_VALID && op->step->area != AT_HEAD)
        op->tail_generation = MAX(op->tail_generation, scratch->candidate.array.generation);
    if (op->verdict == SB_VALID)
        op->label->tail_generation = op->tail_generation;
    if (verdict == SB_NONE || (verdict == SB_DAMAGED && has_best))
        return;
    if (has_best && scratch->candidate.array.generation <= op->label->array.generation)
        return;
    op->verdict = verdict;
    op->why[0] = '\0';
    if (verdict != SB_VALID)
        text_format(op->why, sizeof op->why, "%s: %s", op->dev->name, why);
    scratch->candidate.place = op->step->slot;
    scratch->candidate.tail_generation = op->tail_generation;
    if (verdict != SB_DAMAGED)
        *op->label = scratch->candidate;
}

/* With no copy to be believed an unreadable one may have been it: then nothing is known. */
static void finish_script(struct label_op *op)
{
    bool found = op->verdict == SB_VALID || op->verdict == SB_UNSUPPORTED;
    if (op->verdict == SB_VALID)
        op->label->tail_blank = op->blank_copies == 2;
    if (op->read_error != BLK_OK && !found)
        fail(op, op->read_error, blk_status_name(op->read_error));
    else
        finish(op);
}

/* --- the steps --- */

static void submit_rest(struct label_op *op)
{
    uint64_t len = op->len - op->pos, max = op->dev->info.max_request;
    if (max != 0)
        len = MIN(len, MAX(round_down(max, PAGE_BYTES), PAGE_BYTES));
    op->req.off = copy_offset(op, op->step) + op->pos;
    op->req.len = len;
    op->req.pages = op->pages + (op->step->action == ZERO_HEADER ? op->copy_bytes : op->pos) / PAGE_BYTES;
    blk_submit(op->dev, &op->req);
}

static void request_done(struct blk_req *req);

/* False: there is nothing to do, as this disk has no such copy. */
static bool start_step(struct label_op *op)
{
    static const enum blk_op ops[] = {
        [READ_COPY] = BLK_READ, [WRITE_COPY] = BLK_WRITE, [ZERO_HEADER] = BLK_WRITE_ZEROES, [FLUSH] = BLK_FLUSH};
    enum label_action action = op->step->action;
    op->req = (struct blk_req){.op = ops[action], .done = request_done};
    if (action == FLUSH) {
        blk_submit(op->dev, &op->req);
        return true;
    }
    if (copy_offset(op, op->step) == 0)
        return false;
    op->pos = 0;
    op->len = action == WRITE_COPY ? op->copy_bytes : PAGE_BYTES;
    submit_rest(op);
    return true;
}

static void run_steps(struct label_op *op)
{
    for (; op->step->action != END; op->step++) {
        if (start_step(op))
            return;
        if (op->step->action == WRITE_COPY) {
            fail(op, BLK_INVALID, "the disk is smaller than the array expects");
            return;
        }
    }
    finish_script(op);
}

static void request_done(struct blk_req *req)
{
    struct label_op *op = container_of(req, struct label_op, req);
    if (req->status != BLK_OK && op->step->action != READ_COPY) {
        fail(op, req->status, blk_status_name(req->status));
        return;
    }
    if (req->status != BLK_OK) {
        op->read_error = req->status;
        op->len = op->pos = 0; /* of this copy nothing more is read */
    } else if (op->step->action != FLUSH) {
        op->pos += req->len;
        if (op->step->action == READ_COPY && op->pos == PAGE_BYTES) /* the first block tells how long it is */
            op->len = length_of_copy(op);
        if (op->pos < op->len) {
            submit_rest(op);
            return;
        }
        if (op->step->action == READ_COPY)
            consider_copy(op);
    }
    op->step++;
    run_steps(op);
}

/* --- the beginning --- */

static bool is_write(const struct label_op *op)
{
    return op->step == write_script || op->step == fresh_script;
}

/* The pages of a copy, and behind them one of zeros. */
static void start_script(struct label_op *op)
{
    if (op->step != read_script) {
        pages_copy_in(op->pages, 0, op->scratch->bytes, op->copy_bytes);
        pages_zero(op->pages, op->copy_bytes, PAGE_BYTES);
    }
    run_steps(op);
}

static void run_start(struct task *task)
{
    start_script(container_of(task, struct label_op, task));
}

static struct page_pool *pool_of(const struct label_op *op)
{
    return op->pool != NULL ? op->pool : op->dev->loop->pages;
}

static void pages_ready(struct page_waiter *waiter)
{
    struct label_op *op = container_of(waiter, struct label_op, waiter);
    bool taken = page_pool_take(pool_of(op), op->pages, waiter->count);
    ASSERT(taken);
    op->pages_count = waiter->count;
    op->task.run = run_start;
    loop_defer(op->dev->loop, &op->task);
}

static void get_pages(struct label_op *op)
{
    struct page_pool *pool = pool_of(op);
    unsigned count = (unsigned)(op->copy_bytes / PAGE_BYTES) + 1;
    if (page_pool_get(pool, op->pages, count)) {
        op->pages_count = count;
        start_script(op);
        return;
    }
    op->waiter.count = count;
    page_pool_wait(pool, &op->waiter);
}

/* Memory, and what is to be written in it. False: there is none now. A description that is valid fits. */
static bool prepare(struct label_op *op)
{
    if (op->scratch == NULL)
        op->scratch = malloc(sizeof *op->scratch);
    if (op->scratch == NULL)
        return false;
    op->copy_bytes = op->step == erase_script ? 0 : SB_SLOT_BYTES;
    if (is_write(op))
        op->copy_bytes = superblock_encode(op->label, op->scratch->bytes);
    return op->copy_bytes > 0 || op->step == erase_script;
}

static void run_begin(struct task *task)
{
    struct label_op *op = container_of(task, struct label_op, task);
    const char *wrong = is_write(op) ? superblock_check(op->label) : NULL;
    if (wrong != NULL)
        fail(op, BLK_INVALID, wrong);
    else if (prepare(op))
        get_pages(op);
    else if (op->retries++ < RETRIES_MAX)
        timer_start(op->dev->loop, &op->retry, RETRY_NS);
    else
        fail(op, BLK_NOSPACE, "there is no memory for a label");
}

static void begin_again(struct timer *timer)
{
    run_begin(&container_of(timer, struct label_op, retry)->task);
}

static void begin(struct label_op *op, const struct label_step *script)
{
    ASSERT(op->dev != NULL && op->done != NULL);
    op->status = op->read_error = BLK_OK;
    op->tail_generation = 0;
    op->blank_copies = 0;
    op->verdict = SB_NONE;
    op->why[0] = '\0';
    op->pages_count = 0;
    op->scratch = NULL;
    op->retry = (struct timer){.fire = begin_again};
    op->retries = 0;
    op->step = script;
    op->req = (struct blk_req){.done = request_done};
    op->waiter = (struct page_waiter){.ready = pages_ready};
    op->task = (struct task){.run = run_begin};
    loop_defer(op->dev->loop, &op->task);
}

void label_read(struct label_op *op)
{
    ASSERT(op->label != NULL);
    begin(op, read_script);
}

void label_write(struct label_op *op)
{
    ASSERT(op->label != NULL && op->label->place < 2);
    begin(op, op->fresh ? fresh_script : write_script);
}

void label_erase(struct label_op *op)
{
    begin(op, erase_script);
}
