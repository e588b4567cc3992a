/*
 * Rows on their way from one side to the other, or to the log and back: read, written, over. See raid/relayout_job.h.
 *
 * A row is written as a whole, in one request, where it is not too long: else piece by piece, one after the other.
 * Where
 * from and where to is told by the state of the relayout, which does not change while rows are under way.
 *
 * It fails as the read or the write fails. What is written by then counts for nothing.
 *
 * Blocks that no disk can read any more are lost on the new side as well: zeroes are written in their place, and then they go
 * on the list of bad blocks (raid/bad_blocks.h), with all that is redundant to them, before the position is moved. But not by
 * way of the log, nor to a shape without redundancy, of which nothing is known to be bad, nor in place: then the row is not
 * moved. In place a row that is written forgets what was bad where it lies, and there the old one still counts: so
 * nothing is moved there while anything is bad.
 */
#include <stdlib.h>
#include <string.h>

#include "raid/relayout_job.h"

#define MEMORY_WANT (16 * MIB)

enum { SECTOR = 512 };

static void piece_read(struct relayout_move *m);

static void move_over(struct relayout_move *m, enum blk_status status)
{
    struct array_relayout *r = m->relayout;
    if (status != BLK_OK && !r->failed) {
        r->failed = true;
        r->status = status;
    }
    m->busy = false;
    r->moving--;
    relayout_moved(r);
}

static void refused(struct task *task)
{
    struct relayout_move *m = container_of(task, struct relayout_move, task);
    move_over(m, m->status);
}

/* Not from within who began it. */
static void refuse(struct relayout_move *m, enum blk_status status)
{
    m->status = status;
    m->task = (struct task){.run = refused};
    loop_defer(m->relayout->array->loop, &m->task);
}

static void pages_back(struct relayout_move *m)
{
    page_put_all(m->pages, page_count_for(0, m->len));
}

/* One block, and what is redundant to it. False: the list is full. */
static bool block_is_lost(const struct relayout_move *m, uint64_t off)
{
    struct array *array = m->relayout->array;
    const struct relayout_shape *to = &m->relayout->shapes.to;
    const struct layout *layout = &to->layout;
    uint64_t within = off - m->row * layout->row_data;
    unsigned data_role = (unsigned)(within / layout->spec.chunk);
    bool all = true;
    for (unsigned role = 0; role < layout->roles; role++) {
        struct layout_place place;
        if (role < layout->data && role != data_role)
            continue;
        layout_place(layout, m->row, role, &place);
        struct member *member = &array->members[to->slot[place.slot]];
        uint64_t at = to->start + place.off + within % layout->spec.chunk - member->data_start;
        if (member_writable(member))
            all &= array_owner_ops.bad_change(&array->owner, member, at, SECTOR, true);
    }
    return all;
}

static bool piece_is_lost(const struct relayout_move *m)
{
    bool all = true;
    for (uint64_t i = 0; m->lost_some && i < m->len / SECTOR; i++)
        if (m->lost[i / 8] >> i % 8 & 1)
            all &= block_is_lost(m, m->off + i * SECTOR);
    return all;
}

static void written(struct blk_req *req)
{
    struct relayout_move *m = container_of(req, struct relayout_move, req);
    enum blk_status status = req->status;
    pages_back(m);
    if (status == BLK_OK && !piece_is_lost(m))
        status = BLK_NOSPACE;
    m->off += m->len;
    if (status != BLK_OK || m->off == m->end)
        move_over(m, status);
    else
        piece_read(m);
}

static struct volume *source(const struct array_relayout *r)
{
    return sm_state(&r->state) == RELAYOUT_REPLAYING ? r->log : r->array->volumes[r->old].volume;
}

static struct volume *goal(const struct array_relayout *r)
{
    return sm_state(&r->state) == RELAYOUT_LOGGING ? r->log : r->array->volumes[r->new].volume;
}

/* The log's rows are counted from the first one of the step. */
static uint64_t place_in(const struct array_relayout *r, const struct volume *v, uint64_t off)
{
    return v == r->log ? off - r->step.row * r->shapes.to.layout.row_data : off;
}

static void submit(struct relayout_move *m, struct volume *v, enum blk_op op, void (*done)(struct blk_req *))
{
    m->req = (struct blk_req){.op = op,
                              .flags = BLK_BACKGROUND,
                              .off = place_in(m->relayout, v, m->off),
                              .len = m->len,
                              .pages = m->pages,
                              .done = done};
    blk_submit(volume_dev(v), &m->req);
}

static void block_read(struct relayout_move *m);

static void block_was_read(struct blk_req *req)
{
    struct relayout_move *m = container_of(req, struct relayout_move, req);
    if (req->status != BLK_OK && req->status != BLK_MEDIA) {
        pages_back(m);
        move_over(m, req->status);
        return;
    }
    if (req->status == BLK_MEDIA) {
        m->lost_some = true;
        pages_zero(m->pages, m->at, req->len);
        for (uint64_t i = m->at / SECTOR; i < (m->at + req->len) / SECTOR; i++)
            m->lost[i / 8] |= (uint8_t)(1u << i % 8);
    }
    m->at += req->len;
    block_read(m);
}

static void block_read(struct relayout_move *m)
{
    struct volume *from = source(m->relayout);
    if (m->at == m->len) {
        submit(m, goal(m->relayout), BLK_WRITE, written);
        return;
    }
    m->req = (struct blk_req){.op = BLK_READ,
                              .flags = BLK_BACKGROUND,
                              .off = m->off + m->at,
                              .len = MIN(volume_dev(from)->info.logical_block, m->len - m->at),
                              .pages = m->pages + m->at / PAGE_BYTES,
                              .done = block_was_read};
    blk_submit(volume_dev(from), &m->req);
}

static bool may_be_lost(const struct array_relayout *r)
{
    return sm_state(&r->state) == RELAYOUT_COPYING && r->shapes.to.layout.redundancy > 0 && !r->shapes.in_place;
}

static void was_read(struct blk_req *req)
{
    struct relayout_move *m = container_of(req, struct relayout_move, req);
    if (req->status == BLK_OK) {
        submit(m, goal(m->relayout), BLK_WRITE, written);
    } else if (req->status == BLK_MEDIA && may_be_lost(m->relayout)) {
        memset(m->lost, 0, sizeof m->lost);
        m->at = 0;
        block_read(m);
    } else {
        pages_back(m);
        move_over(m, req->status);
    }
}

/* The pages are there for every move that there may be; but disks that do not answer may keep some. */
static void piece_read(struct relayout_move *m)
{
    m->len = MIN(m->end - m->off, m->relayout->piece);
    m->lost_some = false;
    if (page_pool_get(m->relayout->pages, m->pages, page_count_for(0, m->len)))
        submit(m, source(m->relayout), BLK_READ, was_read);
    else
        refuse(m, BLK_TIMEOUT);
}

static struct relayout_move *move_free(struct array_relayout *r)
{
    for (unsigned i = 0; i < r->moves_count; i++)
        if (!r->moves[i].busy)
            return &r->moves[i];
    return NULL;
}

bool relayout_move_start(struct array_relayout *r, uint64_t row)
{
    struct relayout_move *m = move_free(r);
    uint64_t row_data = r->shapes.to.layout.row_data;
    if (m == NULL)
        return false;
    m->busy = true;
    m->row = row;
    m->off = row * row_data;
    m->end = MIN(m->off + row_data, r->shapes.size);
    r->moving++;
    m->len = 0;
    if (r->shapes.in_place && r->array->description.bad.count > 0)
        refuse(m, BLK_MEDIA);
    else
        piece_read(m);
    return true;
}

bool relayout_moves_init(struct array_relayout *r)
{
    r->piece = MIN(r->shapes.to.layout.row_data, (uint64_t)RELAYOUT_PIECE);
    r->moves_count = (unsigned)MAX(4ull, MIN(MEMORY_WANT / r->piece, (uint64_t)RELAYOUT_MOVES));
    uint32_t each = page_count_for(0, r->piece);
    r->pages = page_pool_create(2 * r->moves_count * each);
    for (unsigned i = 0; i < r->moves_count; i++) {
        r->moves[i].relayout = r;
        r->moves[i].pages = calloc(each, sizeof *r->moves[i].pages);
        if (r->moves[i].pages == NULL)
            return false;
    }
    return r->pages != NULL;
}

void relayout_moves_fini(struct array_relayout *r)
{
    if (r->pages != NULL)
        page_pool_retire(r->pages);
    for (unsigned i = 0; i < RELAYOUT_MOVES; i++)
        free(r->moves[i].pages);
}
