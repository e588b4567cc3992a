/*
 * A request is cut into runs and rows, and their answers are gathered.
 *
 * Requests are cut in order of arrival. A context is all that cutting needs; when none is free the first in line waits
 * with its contexts so far at work, and the others behind it. Discards and write-zeroes have a line of their own, and
 * at most a few parts under way: one may cover the whole volume, and nobody else should wait for that.
 *
 *   read         bytes on readable members: runs (neighbouring rows of one member are one run); else the rest of the row
 *   write, zero  with redundancy: a part for each row it touches; else runs
 *   flush        a run for each member that takes writes
 */
#include "raid/row.h"

#define ZERO_RUN_MAX (1 * GIB) /* longer ones would keep the loop busy for too long at a time */

void status_merge(enum blk_status *status, uint64_t *bad_off, enum blk_status more, uint64_t more_bad_off)
{
    if (more == BLK_OK)
        return;
    if (*status == BLK_OK || more == BLK_MEDIA)
        *status = more;
    *bad_off = MIN(*bad_off, more_bad_off);
}

static void cutter_run(struct cutter *c);

void part_done(struct volume *v, struct blk_req *parent, struct cutter *c, enum blk_status status, uint64_t bad_off)
{
    ASSERT(parent->scratch[0] > 0);
    status_merge(&parent->status, &parent->bad_off, status, bad_off);
    if (c != NULL) {
        ASSERT(c->outstanding > 0);
        c->outstanding--;
        if (c->limited && c->outstanding < c->limit) {
            c->limited = false;
            loop_defer(c->volume->dev.loop, &c->task);
        }
    }
    if (--parent->scratch[0] > 0)
        return;
    if (v->latency != NULL && !(parent->flags & BLK_BACKGROUND))
        histogram_add(v->latency, loop_now_ns(v->dev.loop) - parent->scratch[1]);
    if (parent->status == BLK_MEDIA)
        blk_complete_media(parent, parent->bad_off);
    else
        blk_complete(parent, parent->status);
}

/* --- contexts --- */

static bool cutter_wait(struct cutter *c, struct pool *pool)
{
    c->waiting = pool;
    pool_wait(pool, &c->task);
    return false;
}

/* Have a context in hand; false: wait for one. */
static bool have_run(struct cutter *c)
{
    if (c->run != NULL)
        return true;
    struct pool_entry *entry = pool_get(&c->volume->runs);
    if (entry == NULL)
        return cutter_wait(c, &c->volume->runs);
    c->run = container_of(entry, struct run, entry);
    return true;
}

static bool have_row(struct cutter *c)
{
    if (c->row != NULL)
        return true;
    struct pool_entry *entry = pool_get(&c->volume->rows);
    if (entry == NULL)
        return cutter_wait(c, &c->volume->rows);
    c->row = container_of(entry, struct row_op, entry);
    return true;
}

static void hands_empty(struct cutter *c)
{
    if (c->run != NULL)
        pool_put(&c->volume->runs, &c->run->entry);
    if (c->row != NULL)
        pool_put(&c->volume->rows, &c->row->entry);
    c->run = NULL;
    c->row = NULL;
}

static void cutter_task(struct task *task)
{
    struct cutter *c = container_of(task, struct cutter, task);
    struct volume *v = c->volume;
    if (c->waiting == &v->runs)
        c->run = container_of(pool_claim(&v->runs), struct run, entry);
    else if (c->waiting == &v->rows)
        c->row = container_of(pool_claim(&v->rows), struct row_op, entry);
    c->waiting = NULL;
    cutter_run(c);
}

/* --- parts --- */

static void part_begins(struct cutter *c, struct blk_req *req)
{
    req->scratch[0]++;
    c->outstanding++;
}

static void cut_run(struct cutter *c, struct blk_req *req, uint64_t len, struct member_place place)
{
    struct run *run = c->run;
    c->run = NULL;
    part_begins(c, req);
    uint64_t off = c->at;
    c->at += req->op == BLK_FLUSH ? 1 : len;
    run_start(c->volume, run, c, req, req->op == BLK_FLUSH ? 0 : off, len, place);
}

static enum row_kind row_kind_for(const struct volume *v, const struct blk_req *req, uint64_t len)
{
    if (req->op == BLK_READ)
        return ROW_READ;
    bool kept = req->op == BLK_WRITE_ZEROES && (req->flags & BLK_NO_UNMAP) && v->consistency == SB_JOURNAL;
    bool zero = req->op != BLK_WRITE && (!v->layout.parity || (len == v->layout.row_data && !kept));
    return zero ? ROW_ZERO : ROW_WRITE; /* what is to be logged needs bytes */
}

/* Flags for the members: a discard that has become a write of zeroes wants the space freed, not kept. */
static unsigned row_flags_for(const struct blk_req *req, enum row_kind kind)
{
    return kind == ROW_WRITE ? req->flags & (BLK_FUA | BLK_BACKGROUND) : req->flags;
}

static bool cut_row(struct cutter *c, struct blk_req *req, uint64_t row, uint64_t within, uint64_t len)
{
    if (!have_row(c))
        return false;
    struct row_op *op = c->row;
    c->row = NULL;
    op->kind = row_kind_for(c->volume, req, len);
    op->flags = row_flags_for(req, op->kind);
    op->row = row;
    op->first = within;
    op->len = len;
    op->parent = req;
    op->cutter = c;
    op->data = req->pages == NULL ? NULL : req->pages + (req->off % PAGE_BYTES + c->at - req->off) / PAGE_BYTES;
    part_begins(c, req);
    c->at += len;
    row_start(op);
    return true;
}

/* --- runs --- */

/* Rows that follow on the same member belong to the run: only where a row is one chunk of data. */
static uint64_t run_extend(const struct volume *v, uint64_t row, unsigned role, struct member_place place, uint64_t len,
                           uint64_t most)
{
    enum region_state state = volume_region(v, row);
    bool suspect = state == REGION_SUSPECT, unwritten = state == REGION_UNWRITTEN;
    for (row++; v->layout.data == 1 && len < most; row++) {
        struct member_place next = volume_place(v, row, role);
        state = volume_region(v, row);
        if (volume_bad(v, next, 0, v->layout.spec.chunk))
            break;
        bool alike = suspect == (state == REGION_SUSPECT) && unwritten == (state == REGION_UNWRITTEN);
        if (!alike || next.member != place.member || next.off != place.off + len)
            break;
        len += MIN(v->layout.spec.chunk, most - len);
    }
    return len;
}

/* The chunk of data at `within` of a row, and what follows it on the member. False: no context. */
static bool cut_chunk(struct cutter *c, struct blk_req *req, uint64_t row, uint64_t within, uint64_t left,
                      unsigned role)
{
    struct volume *v = c->volume;
    uint64_t chunk = v->layout.spec.chunk, column = within % chunk;
    if (!have_run(c))
        return false;
    struct member_place place = volume_place(v, row, role);
    place.off += column;
    uint64_t limit = blk_op_has_data(req->op) ? v->run_max : ZERO_RUN_MAX;
    uint64_t most = left <= limit ? left : round_down(place.off + limit, PAGE_BYTES) - place.off;
    uint64_t len = MIN(chunk - column, most);
    cut_run(c, req, len < most ? run_extend(v, row, role, place, len, most) : len, place);
    return true;
}

/* Which role to read the data at `within` from. False: no member that has it can be read. */
static bool role_to_read(const struct volume *v, uint64_t row, uint64_t within, uint64_t left, unsigned *role)
{
    uint64_t chunk = v->layout.spec.chunk;
    *role = (unsigned)(within / chunk);
    if (v->layout.data == 1 && v->layout.roles > 1)
        return mirror_choose(v, row, within, MIN(left, v->run_max), role);
    struct member_place place = volume_place(v, row, *role);
    uint64_t column = within % chunk;
    return member_readable(place.member) && !volume_bad(v, place, column, MIN(left, chunk - column));
}

/* Can all data of a row that the request touches be read? */
static bool row_part_readable(const struct volume *v, uint64_t row, uint64_t within, uint64_t len)
{
    unsigned role;
    uint64_t chunk = v->layout.spec.chunk;
    for (uint64_t at = within; at < within + len; at = round_down(at, chunk) + chunk)
        if (!role_to_read(v, row, at, within + len - at, &role))
            return false;
    return true;
}

/* Bytes from `within` of a row on, at most `left`, that were never written. */
static uint64_t unwritten_from(const struct volume *v, uint64_t row, uint64_t within, uint64_t left)
{
    uint64_t last = row + (within + left - 1) / v->layout.row_data;
    uint64_t rows = region_find(v->map, REGION_WRITTEN, row, last + 1) - row;
    return MIN(left, rows * v->layout.row_data - within);
}

static bool cut_read(struct cutter *c, struct blk_req *req)
{
    struct volume *v = c->volume;
    uint64_t row = c->at / v->layout.row_data, within = c->at % v->layout.row_data;
    uint64_t left = req->off + req->len - c->at, len = MIN(left, v->layout.row_data - within);
    unsigned role;
    if (volume_region(v, row) == REGION_UNWRITTEN) {
        uint64_t zeroes = unwritten_from(v, row, within, left);
        pages_zero(req->pages, req->off % PAGE_BYTES + c->at - req->off, zeroes);
        if (v->failed)
            status_merge(&req->status, &req->bad_off, BLK_GONE, c->at);
        c->at += zeroes;
        return true;
    }
    if ((v->degraded || v->bad->count > 0) && !row_part_readable(v, row, within, len)) {
        if (v->layout.redundancy > 0)
            return cut_row(c, req, row, within, len);
        if (!role_to_read(v, row, within, left, &role)) {
            c->at += len;
            status_merge(&req->status, &req->bad_off, BLK_GONE, c->at - len);
            return true;
        }
    }
    bool there = role_to_read(v, row, within, left, &role);
    ASSERT(there);
    return cut_chunk(c, req, row, within, left, role);
}

static bool cut_change(struct cutter *c, struct blk_req *req)
{
    struct volume *v = c->volume;
    uint64_t row = c->at / v->layout.row_data, within = c->at % v->layout.row_data;
    uint64_t left = req->off + req->len - c->at;
    if (v->failed) {
        status_merge(&req->status, &req->bad_off, BLK_GONE, c->at);
        c->at += left;
        return true;
    }
    if (v->layout.roles == 1)
        return cut_chunk(c, req, row, within, left, 0);
    bool zeroes = req->op == BLK_DISCARD || (req->op == BLK_WRITE_ZEROES && !(req->flags & BLK_NO_UNMAP));
    if (zeroes && v->unmaps == 0 && volume_region(v, row) == REGION_UNWRITTEN) {
        c->at += unwritten_from(v, row, within, left);
        return true;
    }
    return cut_row(c, req, row, within, MIN(left, v->layout.row_data - within));
}

static bool cut_flush(struct cutter *c, struct blk_req *req)
{
    struct volume *v = c->volume;
    if (v->failed)
        status_merge(&req->status, &req->bad_off, BLK_GONE, 0);
    struct member *member = volume_member(v, (unsigned)c->at);
    if (!member_writable(member) || v->dev.info.read_only) {
        c->at++;
        return true;
    }
    if (!have_run(c))
        return false;
    cut_run(c, req, 0, (struct member_place){member, 0});
    return true;
}

/* --- the line --- */

static uint64_t cut_start(const struct blk_req *req)
{
    return req->off;
}

static uint64_t cut_end(const struct volume *v, const struct blk_req *req)
{
    return req->op == BLK_FLUSH ? v->layout.spec.members : req->off + req->len;
}

static bool cut_step(struct cutter *c, struct blk_req *req)
{
    if (c->limit != 0 && c->outstanding >= c->limit) {
        c->limited = true;
        return false;
    }
    switch (req->op) {
    case BLK_READ:
        return cut_read(c, req);
    case BLK_FLUSH:
        return cut_flush(c, req);
    case BLK_WRITE:
    case BLK_DISCARD:
    case BLK_WRITE_ZEROES:
        return cut_change(c, req);
    case BLK_STATUS: /* blk_submit() asks the volume itself */
        break;
    }
    UNREACHABLE("an operation that is not known");
}

static void cutter_run(struct cutter *c)
{
    struct blk_req *req;
    while ((req = STAILQ_FIRST(&c->line)) != NULL) {
        while (c->at < cut_end(c->volume, req))
            if (!cut_step(c, req)) {
                hands_empty(c);
                return;
            }
        STAILQ_REMOVE_HEAD(&c->line, link);
        struct blk_req *next = STAILQ_FIRST(&c->line);
        c->at = next != NULL ? cut_start(next) : 0;
        part_done(c->volume, req, NULL, BLK_OK, UINT64_MAX);
    }
    hands_empty(c);
}

void volume_submit(struct blkdev *dev, struct blk_req *req)
{
    volume_take(container_of(dev, struct volume, dev), req);
}

void volume_take(struct volume *v, struct blk_req *req)
{
    struct cutter *c = req->op == BLK_DISCARD || req->op == BLK_WRITE_ZEROES ? &v->zero_cutter : &v->data_cutter;
    req->status = BLK_OK;
    req->bad_off = UINT64_MAX;
    req->scratch[0] = 1; /* the cutting itself */
    req->scratch[1] = loop_now_ns(v->dev.loop);
    if (!blk_op_has_data(req->op))
        req->pages = NULL;
    bool idle = STAILQ_EMPTY(&c->line);
    STAILQ_INSERT_TAIL(&c->line, req, link);
    if (!idle)
        return;
    c->at = cut_start(req);
    cutter_run(c);
}

static bool line_waits_from(const struct cutter *c, uint64_t off)
{
    const struct blk_req *req;
    STAILQ_FOREACH(req, &c->line, link)
    if (req->off + req->len > off)
        return true;
    return false;
}

bool volume_busy_from(const struct volume *v, uint64_t off)
{
    for (unsigned i = 0; i < v->runs.count; i++) {
        const struct run *run = &v->run_memory[i];
        if (run->len > 0 && run->off + run->len > off)
            return true;
    }
    uint64_t row = (off + v->layout.row_data - 1) / v->layout.row_data;
    return line_waits_from(&v->data_cutter, off) || line_waits_from(&v->zero_cutter, off) ||
           row_locked_next(v, row) != UINT64_MAX;
}

static bool touches(uint64_t off, uint64_t len, uint64_t from, uint64_t to)
{
    return len > 0 && off < to && from < off + len;
}

static bool line_waits_within(const struct cutter *c, uint64_t from, uint64_t to)
{
    const struct blk_req *req;
    STAILQ_FOREACH(req, &c->line, link)
    if (touches(req->off, req->len, from, to))
        return true;
    return false;
}

bool volume_is_quiet(const struct volume *v)
{
    return v->runs.free_count == v->runs.count && v->rows.free_count == v->rows.count &&
           STAILQ_EMPTY(&v->data_cutter.line) && STAILQ_EMPTY(&v->zero_cutter.line);
}

bool volume_busy_within(const struct volume *v, uint64_t from, uint64_t to)
{
    for (unsigned i = 0; i < v->runs.count; i++)
        if (touches(v->run_memory[i].off, v->run_memory[i].len, from, to))
            return true;
    return line_waits_within(&v->data_cutter, from, to) || line_waits_within(&v->zero_cutter, from, to) ||
           row_locked_within(v, from, to);
}

void cutter_init(struct cutter *c, struct volume *v, unsigned limit)
{
    *c = (struct cutter){.volume = v, .limit = limit};
    STAILQ_INIT(&c->line);
    c->task.run = cutter_task;
}
