/*
 * Runs: bytes of a request that lie together on one member.
 *
 * Healthy reads go this way, past the lock and the plan: one context, one request to a member, no allocation. So does
 * everything on volumes without redundancy, and the flush of each member.
 *
 *   read    -> member -> answered
 *                     \> error, redundancy: the rows it touches serve it anew, one after the other
 *   write   -> array marked dirty (V2) -> member -> losses recorded (V1) -> answered
 *   flush   -> member -> losses recorded -> answered: good if the volume bears what was lost
 *
 * A read may pass a write that is under way on the same bytes; requests in flight together have no order.
 */
#include "raid/row.h"

static void serve_anew(struct run *run);

/* --- which copy --- */

enum { STAY_DEPTH = 4 };  /* a sequential stream stays with its member while that has at most so many more */
enum { SLOW_DEPTH = 16 }; /* a slow member is asked when the others have so many more, so that it is seen to mend */
#define STAY_LENGTH (256 * KIB) /* longer reads go where the queue is shortest */

/* Queue first, distance of the head second; both in one number. */
static uint64_t copy_cost(const struct volume *v, struct member_place place, uint64_t column, uint64_t len)
{
    const struct blkdev *dev = place.member->dev;
    uint64_t off = place.off + column, head = v->heads[place.member->slot];
    uint64_t distance = off > head ? off - head : head - off;
    uint64_t depth = dev->in_flight + dev->overdue + (place.member->slow ? SLOW_DEPTH : 0);
    if (distance == 0 && len < STAY_LENGTH)
        depth -= MIN(depth, STAY_DEPTH);
    return MIN(depth, UINT64_C(0xffff)) << 48 | MIN(distance, UINT64_C(0xffffffffffff));
}

bool mirror_choose(const struct volume *v, uint64_t row, uint64_t column, uint64_t len, unsigned *role)
{
    uint64_t best = UINT64_MAX;
    for (unsigned r = 0; r < v->layout.roles; r++) {
        struct member_place place = volume_place(v, row, r);
        if (!member_readable(place.member) || volume_bad(v, place, column, MIN(len, v->layout.spec.chunk - column)))
            continue;
        uint64_t cost = copy_cost(v, place, column, len);
        if (cost < best) {
            best = cost;
            *role = r;
        }
        if (volume_region(v, row) == REGION_SUSPECT) /* the copies may differ: always the same one */
            break;
    }
    return best != UINT64_MAX;
}

/* --- a run's way --- */

static void run_finish(struct run *run)
{
    struct volume *v = run->io.volume;
    struct blk_req *parent = run->parent;
    struct cutter *cutter = run->cutter;
    enum blk_status status = run->status;
    uint64_t bad_off = run->bad_off;
    if (run->changing)
        v->owner->ops->change_end(v->owner);
    run->len = 0;
    pool_put(&v->runs, &run->entry);
    part_done(v, parent, cutter, status, bad_off);
}

/* A write or a flush came back: acknowledged when all losses are on disk. */
static void run_record(struct run *run)
{
    struct volume *v = run->io.volume;
    if (!v->owner->ops->loss_recorded(v->owner, &run->task))
        return;
    if (v->failed && v->layout.redundancy > 0) /* then the loss may be one that nobody will write down */
        status_merge(&run->status, &run->bad_off, BLK_GONE, run->off);
    run_finish(run);
}

static void record_task(struct task *task)
{
    run_record(container_of(task, struct run, task));
}

static enum blk_status changed_status(const struct run *run)
{
    const struct row_io *io = &run->io;
    if (io->status == BLK_OK)
        return BLK_OK;
    if (member_writable(io->member))
        return io->status;
    return io->op == BLK_FLUSH && !io->volume->failed ? BLK_OK : BLK_GONE;
}

static void change_done(struct row_io *io)
{
    struct run *run = container_of(io, struct run, io);
    enum blk_status status = changed_status(run);
    if (io->op != BLK_FLUSH)
        io->volume->unflushed = io->volume->layout.redundancy == 0; /* a flush that began meanwhile may not cover it */
    status_merge(&run->status, &run->bad_off, status, run->off + (status == BLK_MEDIA ? io->bad_off - io->off : 0));
    run->task.run = record_task;
    run_record(run);
}

/*
 * Without redundancy: nobody else has what a member that is lost had in its cache, so flushes fail while it is away, and
 * one when it is back.
 */
static bool flush_fails(struct volume *v)
{
    bool fails = v->layout.redundancy == 0 && (v->failed || v->forgot);
    v->forgot = v->forgot && v->failed;
    v->unflushed = false;
    return fails;
}

static void change_start(struct run *run)
{
    struct volume *v = run->io.volume;
    bool changes = run->io.op != BLK_FLUSH, refused = changes && v->failed;
    if (!changes && flush_fails(v))
        status_merge(&run->status, &run->bad_off, BLK_GONE, run->off);
    if (changes && !refused) {
        v->unflushed = v->layout.redundancy == 0;
        if (!v->owner->ops->change_begin(v->owner, &run->task))
            return;
        run->changing = true;
    }
    if (!refused && member_writable(run->io.member)) {
        row_io_start(&run->io);
        return;
    }
    status_merge(&run->status, &run->bad_off, changes ? BLK_GONE : BLK_OK, run->off);
    run_finish(run);
}

static void change_task(struct task *task)
{
    change_start(container_of(task, struct run, task));
}

static void read_over(struct row_io *io)
{
    struct run *run = container_of(io, struct run, io);
    if (io->status == BLK_OK) {
        run_finish(run);
    } else if (io->volume->layout.redundancy > 0) {
        run->at = run->off;
        serve_anew(run);
    } else {
        uint64_t good = io->status == BLK_MEDIA ? io->bad_off - io->off : 0;
        status_merge(&run->status, &run->bad_off, io->status, run->off + good);
        run_finish(run);
    }
}

void run_start(struct volume *v, struct run *run, struct cutter *cutter, struct blk_req *req, uint64_t off,
               uint64_t len, struct member_place place)
{
    struct row_io *io = &run->io;
    ASSERT(io->volume == v);
    run->parent = req;
    run->cutter = cutter;
    run->off = off;
    run->len = len;
    run->changing = false;
    run->status = BLK_OK;
    run->bad_off = UINT64_MAX;
    io->member = place.member;
    io->op = req->op;
    io->flags = req->flags;
    io->off = place.off;
    io->len = len;
    if (req->op == BLK_READ) {
        if (volume_may_hedge(v, off / v->layout.row_data, place.member))
            io->flags |= BLK_IMPATIENT;
        io->pages = req->pages + (req->off % PAGE_BYTES + off - req->off) / PAGE_BYTES;
        io->done = read_over;
        v->heads[place.member->slot] = place.off + len;
        row_io_start(io);
        return;
    }
    io->pages = req->op == BLK_WRITE ? req->pages + (req->off % PAGE_BYTES + off - req->off) / PAGE_BYTES : NULL;
    io->done = change_done;
    run->task.run = change_task;
    change_start(run);
}

bool run_reads_row(const struct volume *v, uint64_t row)
{
    uint64_t first = row * v->layout.row_data, end = first + v->layout.row_data;
    for (unsigned i = 0; i < v->runs.count; i++) {
        const struct run *run = &v->run_memory[i];
        if (run->len > 0 && run->off < end && first < run->off + run->len)
            return true;
    }
    return false;
}

void run_init(struct run *run, struct volume *v)
{
    run->io.volume = v;
}

/* --- a failed read, anew --- */

/* What the member has said about these bytes just now need not be asked again. */
static void hint(const struct run *run, struct row_op *op)
{
    const struct volume *v = run->io.volume;
    uint64_t bad = run->off + run->io.bad_off - run->io.off, failed = 0;
    for (unsigned role = 0; role < v->layout.roles; role++)
        if (volume_place(v, op->row, role).member == run->io.member)
            failed = UINT64_C(1) << role;
    if (run->io.status == BLK_LATE) {
        op->late = failed;
    } else if (run->io.status != BLK_MEDIA) {
        op->lost = failed;
        op->lost_status = run->io.status;
    } else if (bad >= run->at && bad - run->at < op->len) {
        op->hint_roles = failed;
        op->hint_column = bad % v->layout.row_data % v->layout.spec.chunk;
    }
}

static void serve_row(struct run *run, struct row_op *op)
{
    uint64_t row_data = run->io.volume->layout.row_data, left = run->off + run->len - run->at;
    op->kind = ROW_READ;
    op->flags = run->io.flags;
    op->row = run->at / row_data;
    op->first = run->at % row_data;
    op->len = MIN(left, row_data - op->first);
    op->run = run;
    op->data = run->io.pages + (run->off % PAGE_BYTES + run->at - run->off) / PAGE_BYTES;
    hint(run, op);
    row_start(op);
}

static void serve_granted(struct task *task)
{
    struct run *run = container_of(task, struct run, task);
    serve_row(run, container_of(pool_claim(&run->io.volume->rows), struct row_op, entry));
}

static void serve_anew(struct run *run)
{
    struct volume *v = run->io.volume;
    struct pool_entry *entry = pool_get(&v->rows);
    if (entry != NULL) {
        serve_row(run, container_of(entry, struct row_op, entry));
        return;
    }
    run->task.run = serve_granted;
    pool_wait(&v->rows, &run->task);
}

void run_row_done(struct run *run, uint64_t len, enum blk_status status, uint64_t bad_off)
{
    status_merge(&run->status, &run->bad_off, status, bad_off);
    run->at += len;
    if (run->at < run->off + run->len)
        serve_anew(run);
    else
        run_finish(run);
}
