/*
 * Rows on their way from one side to the other, or to the log and back: read, written, over. See raid/relayout_job.h.
 *
 * A row is written as a whole, in one request, where it is not too long: else piece by piece, one after the other.
 * Where
 * from and where to is told by the state of the relayout, which does not change while rows are under way.
 *
 * It fails as the read or the write fails. What is written by then counts for nothing.
 */
#include <stdlib.h>

#include "raid/relayout_job.h"

#define PIECE_MAX   (1 * MIB)
#define MEMORY_WANT (16 * MIB)

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

static void pages_back(struct relayout_move *m)
{
    page_put_all(m->pages, page_count_for(0, m->len));
}

static void written(struct blk_req *req)
{
    struct relayout_move *m = container_of(req, struct relayout_move, req);
    pages_back(m);
    m->off += m->len;
    if (req->status != BLK_OK || m->off == m->end)
        move_over(m, req->status);
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

static void was_read(struct blk_req *req)
{
    struct relayout_move *m = container_of(req, struct relayout_move, req);
    if (req->status == BLK_OK) {
        submit(m, goal(m->relayout), BLK_WRITE, written);
        return;
    }
    pages_back(m);
    move_over(m, req->status);
}

/* The pages are there for every move that there may be; but disks that do not answer may keep some. */
static void piece_read(struct relayout_move *m)
{
    m->len = MIN(m->end - m->off, m->relayout->piece);
    if (page_pool_get(m->relayout->pages, m->pages, page_count_for(0, m->len)))
        submit(m, source(m->relayout), BLK_READ, was_read);
    else
        move_over(m, BLK_TIMEOUT);
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
    piece_read(m);
    return true;
}

bool relayout_moves_init(struct array_relayout *r)
{
    r->piece = MIN(r->shapes.to.layout.row_data, PIECE_MAX);
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
