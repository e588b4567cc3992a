/*
 * See cache/log.h. A log that is in use:
 *
 *      put ---> forming ---> under way to each device ---> its pages are put
 *                 |
 *      commit: nothing is forming or under way any more ---> a label, if a device died ---> a flush ---> committed()
 *      tail:   a label with the new place on each device ---> the ring before it is free ---> tail_moved()
 *
 * G1  A sequence number and a place in the ring are given when a group goes on its way, so that there is no gap.
 * G2  The ring is written over only up to the tail of a label that is durable on every device that counts.
 * G3  A device that fails anything does not count from then on; a commit that it missed is not over before a label
 *     without it is durable on the other one.
 */
#include "cache/log.h"

#include <stdlib.h>
#include <string.h>

#include "cache/log_impl.h"
#include "core/crc32c.h"
#include "core/log.h"

static void label_done(struct blk_req *req);
static void commit_go_on(struct cache_log *log);
static void close_look(struct cache_log *log);

static bool is_live(const struct cache_log *log, unsigned device)
{
    return log->live >> device & 1;
}

/* --- pieces --- */

static void io_done(struct blk_req *req);

static void io_piece(struct log_io *io)
{
    struct cache_log *log = io->log;
    struct blkdev *dev = log->o.devices[io->device];
    uint64_t at = (io->page + io->at) % log->ring, most = dev->info.max_request / PAGE_BYTES;
    uint64_t piece = MIN((uint64_t)(io->count - io->at), log->ring - at);
    io->piece = (uint32_t)(most != 0 ? MIN(piece, most) : piece);
    io->req = (struct blk_req){.op = io->op,
                               .off = (LOG_RING_AT + at) * PAGE_BYTES,
                               .len = (uint64_t)io->piece * PAGE_BYTES,
                               .pages = io->pages + io->at,
                               .done = io_done};
    blk_submit(dev, &io->req);
}

static void io_done(struct blk_req *req)
{
    struct log_io *io = container_of(req, struct log_io, req);
    io->at += io->piece;
    if (req->status == BLK_OK && io->at < io->count)
        io_piece(io);
    else
        io->done(io, req->status);
}

void log_io_start(struct log_io *io)
{
    io->at = 0;
    io_piece(io);
}

/* --- devices --- */

void log_device_died(struct cache_log *log, unsigned device, enum blk_status status)
{
    if (!is_live(log, device))
        return;
    log->live &= ~(1u << device);
    log->counted.reason = blk_status_name(status);
    log_error("log of cache %s: %s: %s; it does not count any more%s", log->name, log->o.devices[device]->name,
              blk_status_name(status), log->live == 0 ? ", and there is no other one" : "");
    if (log->user != NULL)
        log->user->died(log->user);
}

bool cache_log_is_dead(const struct cache_log *log)
{
    return log->live == 0;
}

/* --- who is told --- */

static void tell(struct task *task)
{
    struct cache_log *log = container_of(task, struct cache_log, task);
    struct cache_log_call *call = log->call;
    bool call_over = log->call_over, commit_over = log->commit_over, move_over = log->move_over;
    log->call_over = log->commit_over = log->move_over = false;
    if (call_over) {
        log->call = NULL;
        call->done(call);
    }
    if (commit_over)
        log->user->committed(log->user, log->live != 0);
    if (move_over)
        log->user->tail_moved(log->user, log->live != 0);
    close_look(log);
}

static void tell_soon(struct cache_log *log, bool *what)
{
    *what = true;
    if (!log->task.queued)
        loop_defer(log->loop, &log->task);
}

void log_call_over(struct cache_log *log, enum cache_log_result result)
{
    log->call->result = result;
    tell_soon(log, &log->call_over);
}

/* --- labels --- */

static void label_to(struct log_member *member)
{
    struct cache_log *log = member->log;
    struct log_label label = log->label;
    label.place = member->device;
    log_label_encode(&label, member->page->data);
    member->label = (struct blk_req){.op = BLK_WRITE,
                                     .flags = BLK_FUA,
                                     .off = label.generation % LOG_LABELS * PAGE_BYTES,
                                     .len = PAGE_BYTES,
                                     .pages = &member->page,
                                     .done = label_done};
    log->label_pending++;
    blk_submit(log->o.devices[member->device], &member->label);
}

/* With a higher generation, to all devices that count; after the one that is under way. */
static void label_write(struct cache_log *log)
{
    if (log->labelling || log->live == 0) {
        log->label_again = log->labelling;
        return;
    }
    log->labelling = true;
    log->label_again = false;
    log->label.generation++;
    log->label.live = log->live;
    log->tail_labelled = log->moving;
    if (log->moving) {
        log->label.tail_page = log->move_to.page;
        log->label.tail_sequence = log->move_to.sequence;
        log->label.clean = log->moving_clean;
    }
    for (unsigned i = 0; i < LOG_DEVICES; i++)
        if (is_live(log, i))
            label_to(&log->members[i]);
}

static void tail_is_moved(struct cache_log *log)
{
    uint64_t pages = (log->move_to.page + log->ring - log->tail.page) % log->ring;
    bool around = pages == 0 && log->move_to.sequence != log->tail.sequence;
    log->used -= around ? log->ring : pages; /* G2 */
    log->tail = log->move_to;
    log->moving = false;
    tell_soon(log, &log->move_over);
}

static void label_over(struct cache_log *log)
{
    log->labelling = false;
    if (log->live != 0 && (log->label_again || log->label.live != log->live || log->twice)) {
        log->twice = log->twice && log->label.live != log->live;
        label_write(log);
        return;
    }
    log->labelled = log->label.live;
    log->generation = log->label.generation;
    if (log->call != NULL)
        log_call_over(log, log->live != 0 ? CACHE_LOG_OK : CACHE_LOG_DEAD);
    if (log->moving && log->tail_labelled && log->live != 0)
        tail_is_moved(log);
    else if (log->moving && log->live == 0)
        cache_log_move_tail(log, log->move_to, log->moving_clean);
    commit_go_on(log);
    close_look(log);
}

static void label_done(struct blk_req *req)
{
    struct log_member *member = container_of(req, struct log_member, label);
    struct cache_log *log = member->log;
    if (req->status != BLK_OK)
        log_device_died(log, member->device, req->status);
    if (--log->label_pending == 0)
        label_over(log);
}

void cache_log_move_tail(struct cache_log *log, struct log_mark mark, bool clean)
{
    log->move_to = mark;
    log->moving_clean = clean;
    log->moving = log->live != 0;
    if (log->moving)
        label_write(log);
    else
        tell_soon(log, &log->move_over);
}

/* --- groups --- */

struct log_mark cache_log_head(const struct cache_log *log)
{
    ASSERT(log->forming == NULL && log->writing == 0);
    return (struct log_mark){.sequence = log->next, .page = log->head};
}

static void group_over(struct log_slot *slot)
{
    struct cache_log *log = slot->log;
    bool starved = log->starved;
    page_put_all(slot->pages + 1, slot->count - 1);
    LIST_INSERT_HEAD(&log->slots_free, slot, link);
    log->writing--;
    log->starved = false;
    if (starved && log->user != NULL)
        log->user->room(log->user);
    commit_go_on(log);
    close_look(log);
}

static void write_done(struct log_io *io, enum blk_status status)
{
    struct log_slot *slot = container_of(io, struct log_slot, writes[io->device]);
    if (status != BLK_OK)
        log_device_died(slot->log, io->device, status);
    if (--slot->pending == 0)
        group_over(slot);
}

/* G1 */
static void group_start(struct cache_log *log)
{
    struct log_slot *slot = log->forming;
    struct log_group *group = &slot->group;
    log->forming = NULL;
    log->writing++;
    group->sequence = log->next++;
    group->page = log->head;
    group->durable = log->durable;
    log->head = (log->head + slot->count) % log->ring;
    log->used += slot->count;
    log->counted.groups++;
    log->counted.written_bytes += (uint64_t)slot->count * PAGE_BYTES;
    log_group_encode(group, slot->pages[0]->data);
    slot->pending = 1; /* until all are asked for */
    for (unsigned i = 0; i < LOG_DEVICES; i++) {
        if (!is_live(log, i))
            continue;
        slot->pending++;
        slot->writes[i].page = group->page;
        slot->writes[i].count = slot->count;
        log_io_start(&slot->writes[i]);
    }
    slot->pending--;
    ASSERT(slot->pending > 0);
}

/* A place for one more entry, with its pages, in the group that is being formed. */
static enum log_put room_for(struct cache_log *log, uint32_t pages)
{
    ASSERT(!log->committing);
    if (log->live == 0)
        return LOG_IS_DEAD;
    struct log_slot *slot = log->forming;
    uint32_t most = (uint32_t)MIN(1ull + LOG_DATA_MAX, log->ring / 4);
    if (slot != NULL && (slot->group.entries_count == LOG_ENTRIES_MAX || slot->count + pages > most))
        group_start(log);
    uint32_t formed = log->forming != NULL ? log->forming->count : 1;
    if (log->used + formed + pages > log->ring)
        return LOG_FULL;
    if (log->forming != NULL)
        return LOG_PUT;
    slot = LIST_FIRST(&log->slots_free);
    log->starved = slot == NULL;
    if (slot == NULL)
        return LOG_BUSY;
    LIST_REMOVE(slot, link);
    slot->group = (struct log_group){.log = log->label.identity.log, .epoch = log->label.epoch};
    slot->count = 1;
    log->forming = slot;
    return LOG_PUT;
}

static struct log_entry *entry_add(struct cache_log *log)
{
    return &log->forming->group.entries[log->forming->group.entries_count++];
}

enum log_put cache_log_put(struct cache_log *log, uint64_t block, uint8_t sectors, struct page *page)
{
    enum log_put result = room_for(log, 1);
    if (result != LOG_PUT)
        return result;
    *entry_add(log) = (struct log_entry){
        .kind = LOG_DATA, .sectors = sectors, .first = block, .crc = crc32c(0, page->data, PAGE_BYTES)};
    page_ref(page);
    log->forming->pages[log->forming->count++] = page;
    log->forming->group.data++;
    log->counted.blocks++;
    return LOG_PUT;
}

enum log_put cache_log_put_gone(struct cache_log *log, uint64_t sector, uint64_t count)
{
    enum log_put result = room_for(log, 0);
    if (result != LOG_PUT)
        return result;
    *entry_add(log) = (struct log_entry){.kind = LOG_GONE, .first = sector, .count = count};
    log->counted.gone++;
    return LOG_PUT;
}

/* --- commits --- */

static void commit_is_over(struct cache_log *log)
{
    log->committing = false;
    if (log->live != 0) {
        log->durable = log->commit_sequence;
        log->counted.commits++;
    }
    tell_soon(log, &log->commit_over);
}

static void flush_done(struct blk_req *req)
{
    struct log_member *member = container_of(req, struct log_member, flush);
    struct cache_log *log = member->log;
    if (req->status != BLK_OK)
        log_device_died(log, member->device, req->status);
    if (--log->flush_pending > 0)
        return;
    log->flushing = false;
    if (log->live == log->labelled || log->live == 0)
        commit_is_over(log);
    else
        commit_go_on(log); /* G3 */
}

static void flush_all(struct cache_log *log)
{
    log->flushing = true;
    for (unsigned i = 0; i < LOG_DEVICES; i++)
        log->flush_pending += is_live(log, i);
    for (unsigned i = 0; i < LOG_DEVICES; i++) {
        if (!is_live(log, i))
            continue;
        log->members[i].flush = (struct blk_req){.op = BLK_FLUSH, .done = flush_done};
        blk_submit(log->o.devices[i], &log->members[i].flush);
    }
}

static void commit_go_on(struct cache_log *log)
{
    if (!log->committing || log->flushing || log->writing > 0)
        return;
    if (log->live == 0)
        commit_is_over(log);
    else if (log->live == log->labelled)
        flush_all(log);
    else if (!log->labelling)
        label_write(log); /* G3 */
}

void cache_log_commit(struct cache_log *log, uint64_t calls)
{
    ASSERT(!log->committing && !log->commit_over);
    if (log->forming != NULL && log->live != 0)
        group_start(log);
    log->committing = true;
    log->commit_sequence = log->next - 1;
    log->counted.committed_calls += calls;
    commit_go_on(log);
}

/* --- life --- */

const char *cache_log_result_name(enum cache_log_result result)
{
    static const char *const names[] = {
        [CACHE_LOG_OK] = "it is whole",
        [CACHE_LOG_ABSENT] = "it is not there",
        [CACHE_LOG_STALE] = "what is there missed what was logged last",
        [CACHE_LOG_DAMAGED] = "it is damaged",
        [CACHE_LOG_UNREADABLE] = "it cannot be read",
        [CACHE_LOG_DEAD] = "it cannot be written",
        [CACHE_LOG_VOLUME] = "the volume does not take what was logged",
        [CACHE_LOG_NO_MEMORY] = "there is no memory for it",
    };
    return names[result];
}

static void slots_init(struct cache_log *log)
{
    for (unsigned i = 0; i < LOG_GROUPS; i++) {
        struct log_slot *slot = &log->slots[i];
        slot->log = log;
        for (unsigned k = 0; k < LOG_DEVICES; k++)
            slot->writes[k] =
                (struct log_io){.log = log, .device = k, .op = BLK_WRITE, .pages = slot->pages, .done = write_done};
        bool got = page_pool_take(log->pool, &slot->pages[0], 1);
        ASSERT(got);
        memset(slot->pages[0]->data, 0, PAGE_BYTES);
        LIST_INSERT_HEAD(&log->slots_free, slot, link);
    }
    for (unsigned i = 0; i < LOG_DEVICES; i++) {
        log->members[i] = (struct log_member){.log = log, .device = i};
        bool got = page_pool_take(log->pool, &log->members[i].page, 1);
        ASSERT(got);
    }
}

struct cache_log *cache_log_create(const struct cache_log_options *options)
{
    struct cache_log *log = calloc(1, sizeof *log);
    if (log == NULL)
        return NULL;
    log->o = *options;
    log->o.name = log->name;
    strncpy(log->name, options->name, sizeof log->name - 1);
    log->pool = page_pool_create(LOG_GROUPS + LOG_DEVICES);
    if (log->pool == NULL) {
        free(log);
        return NULL;
    }
    for (unsigned i = 0; i < LOG_DEVICES; i++) {
        struct blkdev *dev = options->devices[i];
        if (dev == NULL)
            continue;
        ASSERT(dev->info.size >= LOG_BYTES_MIN);
        log->loop = dev->loop;
        log->live |= 1u << i;
    }
    ASSERT(log->live != 0);
    log->counted.devices = log->live;
    log->task.run = tell;
    slots_init(log);
    return log;
}

void log_begin(struct cache_log *log, bool clean)
{
    log->ring = LOG_RING_MAX;
    for (unsigned i = 0; i < LOG_DEVICES; i++)
        if (is_live(log, i))
            log->ring = MIN(log->ring, log->o.devices[i]->info.size / PAGE_BYTES - LOG_RING_AT);
    log->next = 1;
    log->durable = log->head = log->used = 0;
    log->tail = (struct log_mark){.sequence = 1};
    log->label.ring = log->ring;
    log->label.tail_page = 0;
    log->label.tail_sequence = 1;
    log->label.clean = clean;
    label_write(log);
}

void cache_log_format(struct cache_log *log, struct cache_log_call *call)
{
    log->call = call;
    log->twice = true;
    log->label = (struct log_label){.identity = log->o.identity};
    log->label.identity.log = uuid_generate(log->loop);
    log_begin(log, false);
}

void cache_log_set_fork(struct cache_log *log, const struct uuid *fork)
{
    if (uuid_equal(&log->label.identity.fork, fork))
        return;
    log->label.identity.fork = *fork;
    label_write(log);
}

static void close_look(struct cache_log *log)
{
    struct loop *loop = log->loop;
    struct task *closed = log->closed;
    if (closed == NULL || log->labelling || log->writing > 0 || log->task.queued)
        return;
    if (log->forming != NULL)
        page_put_all(log->forming->pages + 1, log->forming->count - 1);
    for (unsigned i = 0; i < LOG_GROUPS; i++)
        page_put(log->slots[i].pages[0]);
    for (unsigned i = 0; i < LOG_DEVICES; i++)
        page_put(log->members[i].page);
    page_pool_retire(log->pool);
    free(log);
    loop_defer(loop, closed);
}

void cache_log_close(struct cache_log *log, struct task *closed)
{
    ASSERT(log->call == NULL && !log->committing && log->replay == NULL);
    log->closed = closed;
    close_look(log);
}

/* --- what there is to know --- */

void cache_log_use(struct cache_log *log, struct cache_log_user *user)
{
    log->user = user;
}

bool cache_log_is_empty(const struct cache_log *log)
{
    return log->used == 0 && log->forming == NULL;
}

unsigned cache_log_fill_permille(const struct cache_log *log)
{
    return (unsigned)(1000 * log->used / log->ring);
}

void cache_log_was_full(struct cache_log *log)
{
    log->counted.emptied++;
}

void cache_log_status(const struct cache_log *log, struct cache_log_status *out)
{
    *out = log->counted;
    out->log = log->label.identity.log;
    out->generation = log->generation;
    out->bytes = log->ring * PAGE_BYTES;
    out->used_bytes = log->used * PAGE_BYTES;
    out->live = log->live;
}
