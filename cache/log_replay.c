/*
 * What a log holds, to its volume: cache_log_open().
 *
 *      labels    of each device. The newest one of this log counts, and of the others those that it names
 *      scan      group after group from the tail on: of each device that counts, until none has a whole one. What they
 *                hold is remembered, sector by sector: the last page that has it, or none if it is GONE
 *      beyond    the rest of the ring: is there a group that says that what is missing was durable? Then the log is
 *                damaged. It is not replayed in part
 *      apply     what is remembered is read again, and written, in the order of the disk
 *      flush     the volume
 *      label     a new epoch: the log is empty, on all devices that are there
 *
 * Each sector is written once, with its newest bytes, and nothing changes in the log before the volume is flushed: so
 * it does not matter where this was interrupted, or how often.
 */
#include <stdlib.h>
#include <string.h>

#include "cache/block.h"
#include "cache/log_impl.h"
#include "core/crc32c.h"
#include "core/log.h"

enum { WINDOW = 1 + LOG_DATA_MAX, BATCH = 64, CHAINS = 1 << 16, RUNS = BATCH * BLOCK_SECTORS / 2 };

#define NONE UINT32_MAX

/* Sectors of a block whose newest bytes stand in this page of the ring. */
struct found {
    uint64_t number;
    uint32_t page, crc, next;
    uint8_t sectors;
};

struct run {
    struct blk_req req;
    struct log_replay *replay;
};

struct log_replay {
    struct cache_log *log;
    struct blkdev *volume;
    struct page_pool *pool;
    struct page *window[WINDOW];
    struct log_io io;

    /* Labels. */
    enum log_verdict verdicts[LOG_DEVICES];
    struct log_label labels[LOG_DEVICES];
    unsigned readable; /* devices whose labels could be read */
    struct blk_req look;
    uint8_t label_bytes[LOG_LABELS_BYTES];
    unsigned device; /* at hand */

    /* Scan. */
    unsigned believed, tried; /* devices; of them, for the group that is looked for */
    uint64_t ring, scanned;   /* pages */
    uint64_t at, sequence;    /* of the next group */
    bool narrow;              /* no more is read than is needed, since that failed */
    bool unreadable;          /* the group, on one of the devices */
    uint64_t beyond;          /* pages looked at */
    struct log_group group;
    struct found *found;
    uint32_t found_count, found_room, *chains;

    /* Apply. */
    uint32_t applied, batch, pending;
    bool wrong;
    struct log_io reads[BATCH];
    struct page *pages[BATCH];
    struct run runs[RUNS];
    unsigned runs_count;
    struct blk_req flush;
};

static void replay_over(struct log_replay *r, enum cache_log_result result)
{
    struct cache_log *log = r->log;
    if (r->pool != NULL) {
        page_put_all(r->window, WINDOW);
        page_put_all(r->pages, BATCH);
        page_pool_retire(r->pool);
    }
    log->replay = NULL;
    free(r->found);
    free(r->chains);
    free(r);
    if (result != CACHE_LOG_OK) {
        log_call_over(log, result);
        return;
    }
    log->label.epoch++;
    log->label.identity = log->o.identity;
    log_begin(log, false);
}

/* A device may have put pages of others in the places of ours: nothing may be read into those. */
static void pages_own(struct log_replay *r, struct page **pages, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (page_pool_of(pages[i]) == r->pool)
            continue;
        page_put(pages[i]);
        bool got = page_pool_take(r->pool, &pages[i], 1);
        ASSERT(got);
    }
}

/* --- what is remembered --- */

static uint32_t *chain_of(struct log_replay *r, uint64_t number)
{
    return &r->chains[(number * 0x9e3779b97f4a7c15ull) >> 48];
}

/* What is not needed any more leaves its chain: a block that was logged often does not make it long. */
static void forget(struct log_replay *r, uint64_t number, uint8_t sectors)
{
    for (uint32_t *link = chain_of(r, number); *link != NONE;) {
        struct found *found = &r->found[*link];
        if (found->number == number)
            found->sectors &= (uint8_t)~sectors;
        if (found->sectors == 0)
            *link = found->next;
        else
            link = &found->next;
    }
}

static void forget_range(struct log_replay *r, const struct log_entry *gone)
{
    uint64_t from = gone->first * SECTOR_BYTES, to = from + gone->count * SECTOR_BYTES;
    uint64_t first = from / PAGE_BYTES, end = (to + PAGE_BYTES - 1) / PAGE_BYTES;
    if (end - first <= r->found_count) {
        for (uint64_t number = first; number < end; number++)
            forget(r, number, sectors_of(number, from, to));
        return;
    }
    for (uint32_t i = 0; i < r->found_count; i++) {
        struct found *found = &r->found[i];
        if (found->number >= first && found->number < end)
            found->sectors &= (uint8_t)~sectors_of(found->number, from, to);
    }
}

static bool remember(struct log_replay *r, const struct log_entry *data, uint64_t page)
{
    if (r->found_count == r->found_room) {
        uint32_t room = MAX(1024u, r->found_room * 2);
        struct found *more = realloc(r->found, room * sizeof *more);
        if (more == NULL)
            return false;
        r->found = more;
        r->found_room = room;
    }
    forget(r, data->first, data->sectors);
    uint32_t *chain = chain_of(r, data->first);
    r->found[r->found_count] = (struct found){
        .number = data->first, .page = (uint32_t)page, .crc = data->crc, .sectors = data->sectors, .next = *chain};
    *chain = r->found_count++;
    return true;
}

/* --- apply --- */

static void batch_start(struct log_replay *r);

static void flush_done(struct blk_req *req)
{
    struct log_replay *r = container_of(req, struct log_replay, flush);
    struct cache_log *log = r->log;
    if (req->status == BLK_OK && (log->counted.replayed_blocks > 0 || log->counted.replayed_groups > 0))
        log_notice("log of cache %s: %lu blocks of %lu groups were replayed", log->name,
                   (unsigned long)log->counted.replayed_blocks, (unsigned long)log->counted.replayed_groups);
    replay_over(r, req->status == BLK_OK ? CACHE_LOG_OK : CACHE_LOG_VOLUME);
}

static void batch_over(struct log_replay *r)
{
    r->applied += r->batch;
    if (r->wrong)
        replay_over(r, CACHE_LOG_VOLUME);
    else
        batch_start(r);
}

static void run_done(struct blk_req *req)
{
    struct log_replay *r = container_of(req, struct run, req)->replay;
    r->wrong = r->wrong || req->status != BLK_OK;
    if (--r->pending == 0)
        batch_over(r);
}

/* What follows the last run, in memory and on the disk, joins it. */
static void run_add(struct log_replay *r, uint32_t index, uint64_t off, uint64_t len)
{
    struct blk_req *last = r->runs_count > 0 ? &r->runs[r->runs_count - 1].req : NULL;
    uint64_t most = r->volume->info.max_request;
    if (last != NULL && off % PAGE_BYTES == 0 && last->off + last->len == off &&
        last->pages + page_count_for(last->off, last->len) == &r->pages[index] &&
        (most == 0 || last->len + len <= most)) {
        last->len += len;
        return;
    }
    r->runs[r->runs_count++] = (struct run){
        .replay = r, .req = {.op = BLK_WRITE, .off = off, .len = len, .pages = &r->pages[index], .done = run_done}};
}

/* The runs of sectors of one block, as far as the volume has them. False: no such request was ever made. */
static bool block_add(struct log_replay *r, uint32_t index)
{
    const struct found *found = &r->found[r->applied + index];
    uint32_t unit = r->volume->info.logical_block;
    for (unsigned i = 0, to; i < BLOCK_SECTORS; i = to) {
        for (to = i; to < BLOCK_SECTORS && found->sectors >> to & 1; to++)
            ;
        if (to == i) {
            to++;
            continue;
        }
        uint64_t off = found->number * PAGE_BYTES + i * SECTOR_BYTES, len = (uint64_t)(to - i) * SECTOR_BYTES;
        if (off % unit != 0 || len % unit != 0)
            return false;
        if (off < r->volume->info.size)
            run_add(r, index, off, MIN(len, r->volume->info.size - off));
    }
    return true;
}

static void batch_write(struct log_replay *r)
{
    r->runs_count = 0;
    for (uint32_t i = 0; i < r->batch; i++) {
        if (!block_add(r, i)) {
            replay_over(r, CACHE_LOG_DAMAGED);
            return;
        }
    }
    r->pending = 1;
    for (unsigned i = 0; i < r->runs_count; i++) {
        r->pending++;
        blk_submit(r->volume, &r->runs[i].req);
    }
    if (--r->pending == 0)
        batch_over(r);
}

static void batch_read_over(struct log_replay *r)
{
    if (r->wrong)
        replay_over(r, CACHE_LOG_UNREADABLE);
    else
        batch_write(r);
}

static void page_read(struct log_io *io, enum blk_status status)
{
    struct log_replay *r = io->log->replay;
    uint32_t index = (uint32_t)(io - r->reads);
    const struct found *found = &r->found[r->applied + index];
    bool good = status == BLK_OK && crc32c(0, io->pages[0]->data, PAGE_BYTES) == found->crc;
    unsigned other = io->device ^ 1;
    if (!good && r->believed >> other & 1 && io->device == (unsigned)__builtin_ctz(r->believed)) {
        io->device = other;
        pages_own(r, io->pages, 1);
        log_io_start(io);
        return;
    }
    r->wrong = r->wrong || !good;
    if (--r->pending == 0)
        batch_read_over(r);
}

static void batch_start(struct log_replay *r)
{
    r->batch = MIN((uint32_t)BATCH, r->found_count - r->applied);
    r->pending = r->batch;
    if (r->batch == 0) {
        r->flush = (struct blk_req){.op = BLK_FLUSH, .done = flush_done};
        blk_submit(r->volume, &r->flush);
        return;
    }
    pages_own(r, r->pages, BATCH);
    for (uint32_t i = 0; i < r->batch; i++) {
        r->reads[i] = (struct log_io){.log = r->log,
                                      .device = (unsigned)__builtin_ctz(r->believed),
                                      .op = BLK_READ,
                                      .page = r->found[r->applied + i].page,
                                      .count = 1,
                                      .pages = &r->pages[i],
                                      .done = page_read};
        log_io_start(&r->reads[i]);
    }
}

static int by_number(const void *left, const void *right)
{
    const struct found *a = left, *b = right;
    return a->number < b->number ? -1 : a->number > b->number;
}

static void apply_begin(struct log_replay *r)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->found_count; i++)
        if (r->found[i].sectors != 0)
            r->found[kept++] = r->found[i];
    r->found_count = kept;
    if (kept > 0)
        qsort(r->found, kept, sizeof *r->found, by_number);
    r->log->counted.replayed_blocks = kept;
    batch_start(r);
}

/* --- scan, and beyond --- */

static bool is_ours(const struct log_replay *r, const struct log_group *group, uint64_t page)
{
    const struct log_label *label = &r->log->label;
    return uuid_equal(&group->log, &label->identity.log) && group->epoch == label->epoch && group->page == page;
}

static void load(struct log_replay *r, uint64_t page, uint64_t count, void (*done)(struct log_io *, enum blk_status))
{
    pages_own(r, r->window, WINDOW);
    r->io = (struct log_io){.log = r->log,
                            .device = r->device,
                            .op = BLK_READ,
                            .page = page,
                            .count = (uint32_t)MIN(count, (uint64_t)WINDOW),
                            .pages = r->window,
                            .done = done};
    log_io_start(&r->io);
}

static void beyond_go_on(struct log_replay *r);

static void beyond_read(struct log_io *io, enum blk_status status)
{
    struct log_replay *r = io->log->replay;
    for (uint32_t i = 0; status == BLK_OK && i < io->count; i++) {
        if (log_group_decode(r->window[i]->data, &r->group) && is_ours(r, &r->group, (io->page + i) % r->ring) &&
            r->group.durable >= r->sequence) {
            replay_over(r, CACHE_LOG_DAMAGED);
            return;
        }
    }
    r->beyond += io->count;
    beyond_go_on(r);
}

/* One device that is believed after the other. What cannot be read there says nothing. */
static void beyond_go_on(struct log_replay *r)
{
    uint64_t rest = r->ring - r->scanned;
    if (r->beyond == rest) {
        r->beyond = 0;
        r->tried |= 1u << r->device;
        if ((r->believed & ~r->tried) == 0) {
            apply_begin(r);
            return;
        }
        r->device = (unsigned)__builtin_ctz(r->believed & ~r->tried);
    }
    load(r, (r->at + r->beyond) % r->ring, rest - r->beyond, beyond_read);
}

static void scan_over(struct log_replay *r)
{
    if (r->unreadable) {
        replay_over(r, CACHE_LOG_UNREADABLE);
        return;
    }
    r->log->counted.replayed_groups = r->sequence - r->log->label.tail_sequence;
    if (r->scanned == r->ring) {
        apply_begin(r);
        return;
    }
    r->tried = 0;
    r->device = (unsigned)__builtin_ctz(r->believed);
    beyond_go_on(r);
}

static void window_loaded(struct log_io *io, enum blk_status status);

/* At first as much as there is room for; if that cannot be read, no more than is needed. */
static void window_load(struct log_replay *r, uint32_t needed)
{
    uint64_t rest = r->ring - r->scanned;
    load(r, r->at, r->narrow ? needed : rest, window_loaded);
}

/* This device does not have the group whole: is there another one? */
static bool try_another(struct log_replay *r)
{
    r->tried |= 1u << r->device;
    if ((r->believed & ~r->tried) == 0)
        return false;
    r->device = (unsigned)__builtin_ctz(r->believed & ~r->tried);
    r->narrow = false;
    window_load(r, 1);
    return true;
}

static bool data_is_whole(const struct log_replay *r, uint32_t header)
{
    uint32_t page = header;
    for (uint32_t i = 0; i < r->group.entries_count; i++)
        if (r->group.entries[i].kind == LOG_DATA &&
            crc32c(0, r->window[++page]->data, PAGE_BYTES) != r->group.entries[i].crc)
            return false;
    return true;
}

static bool group_taken(struct log_replay *r)
{
    uint64_t page = r->at;
    for (uint32_t i = 0; i < r->group.entries_count; i++) {
        const struct log_entry *entry = &r->group.entries[i];
        if (entry->kind == LOG_GONE)
            forget_range(r, entry);
        else if (!remember(r, entry, page = (page + 1) % r->ring))
            return false;
    }
    r->at = (r->at + 1 + r->group.data) % r->ring;
    r->scanned += 1 + r->group.data;
    r->sequence++;
    r->tried = 0;
    r->unreadable = r->narrow = false;
    return true;
}

/* The groups that are in the window. */
static void scan_look(struct log_replay *r)
{
    for (;;) {
        uint64_t header = (r->at + r->ring - r->io.page) % r->ring;
        if (r->scanned == r->ring)
            break;
        if (header >= r->io.count) {
            window_load(r, 1);
            return;
        }
        bool good = log_group_decode(r->window[header]->data, &r->group) && is_ours(r, &r->group, r->at) &&
                    r->group.sequence == r->sequence && r->group.data < r->ring - r->scanned;
        if (good && header + 1 + r->group.data > r->io.count) {
            window_load(r, 1 + r->group.data);
            return;
        }
        if (!good || !data_is_whole(r, (uint32_t)header)) {
            if (try_another(r))
                return;
            break;
        }
        if (!group_taken(r)) {
            replay_over(r, CACHE_LOG_NO_MEMORY);
            return;
        }
    }
    scan_over(r);
}

static void window_loaded(struct log_io *io, enum blk_status status)
{
    struct log_replay *r = io->log->replay;
    if (status == BLK_OK) {
        scan_look(r);
    } else if (!r->narrow) {
        r->narrow = true;
        window_load(r, 1);
    } else {
        r->unreadable = true;
        if (!try_another(r))
            scan_over(r);
    }
}

/* --- labels --- */

static bool is_this_log(const struct log_replay *r, unsigned device)
{
    const struct log_identity *wanted = &r->log->o.identity, *is = &r->labels[device].identity;
    return r->verdicts[device] >= LOG_CLEAN && uuid_equal(&wanted->log, &is->log) &&
           uuid_equal(&wanted->array, &is->array) && uuid_equal(&wanted->volume, &is->volume);
}

/* An epoch begins when the log is opened, which only who satisfies the claim may: so it comes before the generation. That
 * may be as high in a label that a crash cut off from its claim. And no device has groups of the epoch that is to come. */
static bool is_newer(const struct log_label *label, const struct log_label *than)
{
    return label->epoch != than->epoch ? label->epoch > than->epoch : label->generation > than->generation;
}

static int newest_device(const struct log_replay *r)
{
    int newest = -1;
    for (int i = 0; i < LOG_DEVICES; i++)
        if (is_this_log(r, (unsigned)i) && (newest < 0 || is_newer(&r->labels[i], &r->labels[newest])))
            newest = i;
    return newest;
}

/* Devices that have all that the newest one has; and those that the log may have from now on. */
static void choose_devices(struct log_replay *r, const struct log_label *newest)
{
    struct cache_log *log = r->log;
    unsigned places = 0;
    for (unsigned i = 0; i < LOG_DEVICES; i++) {
        const struct log_label *label = &r->labels[i];
        bool another = r->verdicts[i] >= LOG_TOO_NEW && !is_this_log(r, i);
        bool believed = is_this_log(r, i) && newest->live >> label->place & 1 && label->epoch == newest->epoch &&
                        !(places >> label->place & 1);
        if (!(r->readable >> i & 1) || another)
            log->live &= ~(1u << i);
        if (believed) {
            r->believed |= 1u << i;
            places |= 1u << label->place;
        } else if (log->live >> i & 1) {
            log_notice("log of cache %s: %s missed something; it counts again from now on", log->name,
                       log->o.devices[i]->name);
        }
    }
}

static void labels_over(struct log_replay *r)
{
    struct cache_log *log = r->log;
    int newest = newest_device(r);
    if (newest < 0) {
        replay_over(r, r->readable == log->live ? CACHE_LOG_ABSENT : CACHE_LOG_UNREADABLE);
        return;
    }
    if (r->labels[newest].generation < log->o.least_generation) {
        replay_over(r, CACHE_LOG_STALE);
        return;
    }
    log->label = r->labels[newest];
    log->ring = r->ring = log->label.ring;
    choose_devices(r, &log->label);
    r->at = log->label.tail_page;
    r->sequence = log->label.tail_sequence;
    r->device = (unsigned)__builtin_ctz(r->believed);
    if (log->label.clean)
        apply_begin(r);
    else
        window_load(r, 1);
}

static void label_look(struct log_replay *r);

static void label_read(struct blk_req *req)
{
    struct log_replay *r = container_of(req, struct log_replay, look);
    struct blkdev *dev = r->log->o.devices[r->device];
    if (req->status == BLK_OK) {
        pages_copy_out(r->label_bytes, r->window, 0, sizeof r->label_bytes);
        r->verdicts[r->device] = log_labels_look(r->label_bytes, dev->info.size, &r->labels[r->device]);
        r->readable |= 1u << r->device;
    }
    r->device++;
    label_look(r);
}

static void label_look(struct log_replay *r)
{
    while (r->device < LOG_DEVICES && r->log->o.devices[r->device] == NULL)
        r->device++;
    if (r->device == LOG_DEVICES) {
        labels_over(r);
        return;
    }
    pages_own(r, r->window, LOG_LABELS);
    r->look = (struct blk_req){.op = BLK_READ, .len = LOG_LABELS_BYTES, .pages = r->window, .done = label_read};
    blk_submit(r->log->o.devices[r->device], &r->look);
}

static bool replay_init(struct log_replay *r)
{
    r->chains = malloc(CHAINS * sizeof *r->chains);
    if (r->chains == NULL)
        return false;
    r->pool = page_pool_create(WINDOW + BATCH);
    if (r->pool == NULL)
        return false;
    memset(r->chains, 0xff, CHAINS * sizeof *r->chains);
    for (unsigned i = 0; i < WINDOW + BATCH; i++) {
        bool got = page_pool_take(r->pool, i < WINDOW ? &r->window[i] : &r->pages[i - WINDOW], 1);
        ASSERT(got);
    }
    return true;
}

void cache_log_open(struct cache_log *log, struct blkdev *volume, struct cache_log_call *call)
{
    struct log_replay *r = calloc(1, sizeof *r);
    log->call = call;
    log->replay = r;
    if (r == NULL) {
        log_call_over(log, CACHE_LOG_NO_MEMORY);
        return;
    }
    r->log = log;
    r->volume = volume;
    if (replay_init(r))
        label_look(r);
    else
        replay_over(r, CACHE_LOG_NO_MEMORY);
}
