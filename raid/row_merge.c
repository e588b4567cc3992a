/*
 * What jobs ask of neighbouring rows becomes one request to the member.
 *
 * A job issues rows that lie together in one turn, so their reads come together, end together, and so do the writes
 * that follow. Here they are kept until the end of the turn, by member and direction, in order of arrival; then those
 * that touch go as one request, up to MERGE_BYTES. Only the pointers to their pages are copied, and after a read back.
 *
 * When a long request fails each part is asked for again on its own, so an error is that of a row, as ever; but not when
 * it was given up: it may still happen, and would then undo what is written now. When all contexts are in use the parts
 * go singly. A member that went out of service since is not asked (M3).
 */
#include "raid/row.h"

#include <stdlib.h>

enum { BATCHES = 64 };
#define MERGE_BYTES (1 * MIB)

struct row_batch {
    struct pool_entry entry;
    struct row_merge *merge;
    struct blk_req req;
    struct row_io_list ios;
    struct page *pages[MERGE_BYTES / PAGE_BYTES];
};

struct row_merge {
    struct pool batches;
    struct task task;
    bool waiting[2]; /* reads, writes: is there anything? */
    struct row_io_list lists[2][RAID_MEMBERS_MAX];
    struct row_batch memory[BATCHES];
};

/* The device may have put other pages into the array (core/blkdev.h, 5). */
static uint64_t pages_back(const struct row_batch *batch, const struct row_io *io, uint64_t at)
{
    uint64_t count = io->len / PAGE_BYTES;
    for (uint64_t i = 0; i < count; i++)
        io->pages[i] = batch->pages[at + i];
    return at + count;
}

static void batch_done(struct blk_req *req)
{
    struct row_batch *batch = container_of(req, struct row_batch, req);
    struct row_io_list ios = STAILQ_HEAD_INITIALIZER(ios);
    enum blk_status status = req->status;
    struct row_io *io;
    uint64_t at = 0;
    STAILQ_FOREACH(io, &batch->ios, link)
    if (req->op == BLK_READ)
        at = pages_back(batch, io, at);
    STAILQ_CONCAT(&ios, &batch->ios);
    pool_put(&batch->merge->batches, &batch->entry);
    while ((io = STAILQ_FIRST(&ios)) != NULL) {
        STAILQ_REMOVE_HEAD(&ios, link);
        if (status == BLK_OK || status == BLK_TIMEOUT)
            row_io_merged(io, status);
        else
            row_io_alone(io);
    }
}

/* Does `io` follow on the batch, and is there room for it? */
static bool batch_takes(const struct row_batch *batch, const struct row_io *io)
{
    const struct row_io *first = STAILQ_FIRST(&batch->ios);
    uint64_t most = first->member->dev->info.max_request, len = batch->req.len + io->len;
    return io->off == batch->req.off + batch->req.len && io->flags == first->flags && len <= MERGE_BYTES &&
           (most == 0 || len <= most);
}

static void batch_add(struct row_batch *batch, struct row_io *io)
{
    uint64_t at = batch->req.len / PAGE_BYTES;
    for (uint64_t i = 0; i < io->len / PAGE_BYTES; i++)
        batch->pages[at + i] = io->pages[i];
    batch->req.len += io->len;
    STAILQ_INSERT_TAIL(&batch->ios, io, link);
}

/* The front of a list that lies together; one by one if it is one, or there is no context. */
static void front_submit(struct row_merge *merge, struct row_io_list *list)
{
    struct row_io *io = STAILQ_FIRST(list), *next = STAILQ_NEXT(io, link);
    struct pool_entry *entry = NULL;
    STAILQ_REMOVE_HEAD(list, link);
    bool service = io->op == BLK_READ ? member_readable(io->member) : member_writable(io->member);
    if (next != NULL && next->off == io->off + io->len && service)
        entry = pool_get(&merge->batches);
    if (entry == NULL) {
        row_io_alone(io);
        return;
    }
    struct row_batch *batch = container_of(entry, struct row_batch, entry);
    batch->req =
        (struct blk_req){.op = io->op, .flags = io->flags, .off = io->off, .pages = batch->pages, .done = batch_done};
    batch_add(batch, io);
    while ((io = STAILQ_FIRST(list)) != NULL && batch_takes(batch, io)) {
        STAILQ_REMOVE_HEAD(list, link);
        batch_add(batch, io);
    }
    blk_submit(STAILQ_FIRST(&batch->ios)->member->dev, &batch->req);
}

static void turn_ends(struct task *task)
{
    struct row_merge *merge = container_of(task, struct row_merge, task);
    for (unsigned way = 0; way < 2; way++) {
        bool waiting = merge->waiting[way];
        merge->waiting[way] = false;
        for (unsigned slot = 0; waiting && slot < RAID_MEMBERS_MAX; slot++)
            while (!STAILQ_EMPTY(&merge->lists[way][slot]))
                front_submit(merge, &merge->lists[way][slot]);
    }
}

bool row_merge_add(struct row_io *io)
{
    struct volume *v = io->volume;
    uint64_t most = io->member->dev->info.max_request;
    bool fits = io->off % PAGE_BYTES == 0 && io->len % PAGE_BYTES == 0 && io->len <= MERGE_BYTES / 2;
    if (v->merge == NULL || !(io->flags & BLK_BACKGROUND) || !blk_op_has_data(io->op) || !fits || io->lenient ||
        (most != 0 && io->len > most))
        return false;
    unsigned way = io->op == BLK_WRITE;
    v->merge->waiting[way] = true;
    STAILQ_INSERT_TAIL(&v->merge->lists[way][io->member->slot], io, link);
    loop_defer_late(v->dev.loop, &v->merge->task);
    return true;
}

bool row_merge_init(struct volume *v)
{
    if (v->layout.redundancy == 0)
        return true;
    struct row_merge *merge = calloc(1, sizeof *merge);
    if (merge == NULL)
        return false;
    v->merge = merge;
    merge->task.run = turn_ends;
    pool_init(&merge->batches, v->dev.loop);
    for (unsigned way = 0; way < 2; way++)
        for (unsigned slot = 0; slot < RAID_MEMBERS_MAX; slot++)
            STAILQ_INIT(&merge->lists[way][slot]);
    for (unsigned i = 0; i < BATCHES; i++) {
        merge->memory[i].merge = merge;
        STAILQ_INIT(&merge->memory[i].ios);
        pool_add(&merge->batches, &merge->memory[i].entry);
    }
    return true;
}

void row_merge_fini(struct volume *v)
{
    free(v->merge);
}
