/*
 * A volume's life, and what the array asks of it: see raid/volume.h, and raid/row.h for the map of the parts.
 *
 * Memory, all of it taken here: run and row contexts, the table of locked rows, scratch pages. A row works on windows
 * of its chunks, so that a row with wide chunks needs no more scratch than others: all of the chunk where a row is at
 * most 4 MiB, else 64 KiB of each chunk at a time.
 */
#include "raid/row.h"

#include <stdlib.h>

enum { RUNS_DEFAULT = 1024, ROWS_DEFAULT = 256, ZERO_PARTS = 32, LOCK_BUCKETS = 1024, LEAST_BLOCK = 512 };
#define ROW_MEMORY_MAX  (8 * MIB)
#define NARROW_ROW_MAX  (4 * MIB)
#define NARROW_WINDOW   (64 * KIB)
#define SCRATCH_DEFAULT (16 * MIB)
#define REQUEST_MAX     (33 * MIB)
#define MIRROR_RUN_MAX  (1 * MIB) /* longer reads of a mirror are shared out between members */

/* --- places and members --- */

struct member *volume_member(const struct volume *v, unsigned layout_slot)
{
    ASSERT(layout_slot < v->layout.spec.members);
    return v->members[v->first_slot + layout_slot];
}

struct member_place volume_place(const struct volume *v, uint64_t row, unsigned role)
{
    struct layout_place place;
    layout_place(&v->layout, row, role, &place);
    struct member *member = volume_member(v, place.slot);
    return (struct member_place){member, member->data_start + v->start + place.off};
}

bool volume_may_hedge(const struct volume *v, uint64_t row, const struct member *without)
{
    if (v->layout.redundancy == 0 || volume_region(v, row) == REGION_SUSPECT)
        return false;
    if (!v->degraded)
        return true;
    unsigned others = 0;
    for (unsigned role = 0; role < v->layout.roles; role++) {
        const struct member *member = volume_place(v, row, role).member;
        others += member != without && member_readable(member);
    }
    return others >= v->layout.data;
}

void volume_recount(struct volume *v)
{
    uint64_t lost = 0;
    for (unsigned slot = 0; slot < v->layout.spec.members; slot++)
        lost |= (uint64_t)!member_readable(volume_member(v, slot)) << slot;
    v->degraded = lost != 0;
    v->forgot = v->forgot || (!v->failed && !layout_survives(&v->layout, lost) && v->unflushed);
    v->failed = !layout_survives(&v->layout, lost);
}

bool volume_failed(const struct volume *v)
{
    return v->failed;
}

bool volume_degraded(const struct volume *v)
{
    return v->degraded;
}

enum health { HEALTHY, DEGRADED, FAILED };

static enum health health_of(const struct volume *v)
{
    return v->failed ? FAILED : v->degraded ? DEGRADED : HEALTHY;
}

void volume_members_changed(struct volume *v)
{
    static const enum blk_event events[] = {BLK_EVENT_RESTORED, BLK_EVENT_DEGRADED, BLK_EVENT_FAILED};
    volume_recount(v);
    enum health now = health_of(v);
    if (now == (enum health)v->announced)
        return;
    v->announced = now;
    blk_notify(&v->dev, events[now]);
}

struct blkdev *volume_dev(struct volume *v)
{
    return &v->dev;
}

bool volume_unmarked(const struct volume *v)
{
    return v->unmarked;
}

void volume_all_flushed(struct volume *v)
{
    v->unmarked = false;
}

uint64_t volume_rows(const struct volume *v)
{
    return v->layout.rows;
}

bool volume_row_busy(const struct volume *v, uint64_t row)
{
    return row_is_locked(v, row);
}

uint64_t volume_row_busy_next(const struct volume *v, uint64_t from)
{
    return row_locked_next(v, from);
}

unsigned volume_contexts(const struct volume *v)
{
    return v->rows.count;
}

/* --- another size --- */

void volume_set_size(struct volume *v, uint64_t size)
{
    ASSERT(size > 0 && size <= v->layout.rows * v->layout.row_data);
    v->dev.info.size = size;
    blk_notify(&v->dev, BLK_EVENT_RESIZED);
}

void volume_set_layout(struct volume *v, const struct layout *layout)
{
    ASSERT(layout->row_data == v->layout.row_data && v->dev.info.size <= layout->rows * layout->row_data);
    v->layout = *layout;
}

void volume_give_back(struct volume *v, struct blk_req *req)
{
    uint64_t size = v->dev.info.size;
    *req = (struct blk_req){.op = BLK_DISCARD, .off = size, .done = req->done};
    req->len = v->layout.rows * v->layout.row_data - size;
    v->dev.info.size = size + req->len; /* for this request alone: nobody else runs meanwhile */
    blk_submit(&v->dev, req);
    v->dev.info.size = size;
}

/* --- sizes --- */

static uint32_t pages_for(uint64_t window)
{
    return (uint32_t)(window / PAGE_BYTES) + ROW_BANDS + 1; /* each band may begin or end within a page */
}

static void windows_choose(struct volume *v)
{
    const struct layout *l = &v->layout;
    uint64_t chunk = l->spec.chunk;
    unsigned buffers = l->roles + (l->parity ? l->redundancy : 0), parities = l->parity ? l->redundancy : 0;
    bool closed = consistency_is_closed(v->consistency);
    uint64_t most = closed ? JOURNAL_WINDOW_MAX : UINT64_MAX; /* what one record takes */
    v->window = v->window_full = MIN(l->roles * chunk <= NARROW_ROW_MAX ? chunk : MIN(chunk, NARROW_WINDOW), most);
    if (l->redundancy == 0)
        return;
    buffers += v->consistency == SB_PPL;
    v->op_pages = buffers * pages_for(v->window);
    if (parities == 0)
        return;
    /* A row written in full needs scratch for its parities only. */
    uint64_t each = MAX(v->op_pages, NARROW_ROW_MAX / PAGE_BYTES) / parities - pages_for(0);
    v->window_full = MIN(MIN(chunk, most), MAX(v->window, each * PAGE_BYTES));
    v->op_pages = MAX(v->op_pages, parities * pages_for(v->window_full));
}

static bool any_member(const struct volume *v, bool (*is)(const struct blk_info *))
{
    for (unsigned slot = 0; slot < v->layout.spec.members; slot++) {
        const struct member *m = volume_member(v, slot);
        if (m->dev != NULL && is(&m->dev->info))
            return true;
    }
    return false;
}

static bool is_rotational(const struct blk_info *info)
{
    return info->rotational;
}

static bool has_volatile_cache(const struct blk_info *info)
{
    return info->volatile_cache;
}

static bool discards(const struct blk_info *info)
{
    return info->discards;
}

static bool discards_to_garbage(const struct blk_info *info)
{
    return info->discards && !info->discard_zeroes;
}

/* Its disk may come while the volume is open: then nothing better can be promised than what any disk keeps. */
static bool any_absent(const struct volume *v)
{
    for (unsigned slot = 0; slot < v->layout.spec.members; slot++)
        if (volume_member(v, slot)->dev == NULL)
            return true;
    return false;
}

static uint64_t longest_run(const struct volume *v)
{
    uint64_t most = v->layout.roles > 1 && v->layout.data == 1 ? MIRROR_RUN_MAX : UINT64_MAX / 2;
    for (unsigned slot = 0; slot < v->layout.spec.members; slot++) {
        const struct member *m = volume_member(v, slot);
        if (m->dev != NULL && m->dev->info.max_request != 0)
            most = MIN(most, m->dev->info.max_request);
    }
    return most;
}

/*
 * How much of a write is whole after a crash: one block, and that only where a block of the volume is one of each disk,
 * and what is computed for a lost one is never made of old and new. So of copies and of plain stripes; of parity with
 * policy journal, where all that a write changes is replayed or none of it. With the other policies, while a disk is
 * away, a write that was cut short can leave a block that is neither.
 *
 * Not more than a block, also with policy journal, though a record is whole: a write is cut into several records around
 * blocks that more disks cannot read than the level bears (window_narrow() in row.c).
 */
static uint32_t atomic_write(const struct volume *v, uint32_t block)
{
    if (v->layout.parity && v->consistency != SB_JOURNAL)
        return 0;
    for (unsigned slot = 0; slot < v->layout.spec.members; slot++) {
        const struct member *m = volume_member(v, slot);
        if (m->dev == NULL ? block > LEAST_BLOCK : m->dev->info.logical_block < block)
            return 0;
    }
    return block;
}

static struct blk_info info_of(const struct volume *v, const struct volume_options *o)
{
    struct blk_info info = {.size = o->size,
                            .logical_block = o->logical_block,
                            .physical_block = o->logical_block,
                            .optimal_io = (uint32_t)MIN(v->layout.row_data, UINT32_MAX),
                            .row_part = v->layout.parity ? v->layout.spec.chunk : 0,
                            .max_request = REQUEST_MAX,
                            .atomic_write = atomic_write(v, o->logical_block),
                            .rotational = any_member(v, is_rotational),
                            .discards = !o->read_only && (v->map != NULL || any_member(v, discards)),
                            .volatile_cache = !o->read_only && (any_absent(v) || any_member(v, has_volatile_cache)),
                            .read_only = o->read_only};
    /* With redundancy a discard of a row is for the region map; of less, a write of zeroes, or parity would not be that
     * of what reads back. */
    info.discard_zeroes = v->layout.redundancy > 0 || !(any_absent(v) || any_member(v, discards_to_garbage));
    for (unsigned slot = 0; slot < v->layout.spec.members; slot++) {
        const struct member *m = volume_member(v, slot);
        if (m->dev != NULL)
            info.physical_block = MAX(info.physical_block, m->dev->info.physical_block);
    }
    return info;
}

/* --- birth --- */

static bool runs_create(struct volume *v, unsigned count)
{
    pool_init(&v->runs, v->dev.loop);
    v->run_memory = calloc(count, sizeof *v->run_memory);
    if (v->run_memory == NULL)
        return false;
    for (unsigned i = 0; i < count; i++) {
        run_init(&v->run_memory[i], v);
        pool_add(&v->runs, &v->run_memory[i].entry);
    }
    return true;
}

static bool rows_create(struct volume *v, unsigned count)
{
    uint64_t each = round_up(row_op_bytes(v), 64);
    if (count == 0)
        count = (unsigned)MAX(32, MIN(ROWS_DEFAULT, ROW_MEMORY_MAX / each));
    pool_init(&v->rows, v->dev.loop);
    v->row_memory = calloc(count, each);
    if (v->row_memory == NULL)
        return false;
    for (unsigned i = 0; i < count; i++)
        pool_add(&v->rows, &row_op_init((char *)v->row_memory + i * each, v)->entry);
    return true;
}

static bool locks_create(struct volume *v)
{
    v->locks = calloc(LOCK_BUCKETS, sizeof *v->locks);
    v->locks_mask = LOCK_BUCKETS - 1;
    return v->locks != NULL; /* zeroed list heads are empty lists */
}

/* The scratch pages, and one of zeroes that everybody may lend. */
static bool scratch_create(struct volume *v, uint64_t bytes)
{
    uint64_t most = (uint64_t)v->rows.count * v->op_pages, least = 2 * (uint64_t)v->op_pages;
    uint64_t pages = MAX(least, MIN(most, (bytes != 0 ? bytes : SCRATCH_DEFAULT) / PAGE_BYTES));
    v->scratch = page_pool_create((uint32_t)pages + 1);
    if (v->scratch == NULL)
        return false;
    bool taken = page_pool_get(v->scratch, &v->zero_pages[0], 1);
    ASSERT(taken);
    pages_zero(v->zero_pages, 0, PAGE_BYTES);
    for (unsigned i = 1; i < ZERO_PAGES; i++)
        v->zero_pages[i] = v->zero_pages[0];
    return true;
}

void volume_undo(struct volume *v)
{
    if (v->scratch != NULL) {
        page_put(v->zero_pages[0]);
        page_pool_retire(v->scratch);
    }
    row_merge_fini(v);
    free(v->locks);
    free(v->row_memory);
    free(v->run_memory);
    free(v);
}

/* Corrections go on after their reader was answered; whoever closes waits for them. */
void volume_close_if_idle(struct volume *v)
{
    if (v->closed == NULL || v->rows.free_count < v->rows.count)
        return;
    ASSERT(v->runs.free_count == v->runs.count);
    struct loop *loop = v->dev.loop;
    struct task *closed = v->closed;
    volume_undo(v);
    loop_defer(loop, closed);
}

static void volume_close(struct blkdev *dev, struct task *closed)
{
    struct volume *v = container_of(dev, struct volume, dev);
    v->closed = closed;
    volume_close_if_idle(v);
}

static bool volume_block_status(struct blkdev *dev, uint64_t off, uint64_t len, uint64_t *extent)
{
    const struct volume *v = container_of(dev, struct volume, dev);
    if (v->map == NULL)
        return true;
    uint64_t row_data = v->layout.row_data, row = off / row_data, end = (off + len + row_data - 1) / row_data;
    bool written = region_get(v->map, row) != REGION_UNWRITTEN;
    uint64_t other = region_find(v->map, written ? REGION_BIT(REGION_UNWRITTEN) : (unsigned)REGION_WRITTEN, row, end);
    *extent = MIN(off + len, other * row_data) - off;
    return written;
}

static const struct blkdev_ops volume_ops = {
    .kind = "volume", .submit = volume_submit, .close = volume_close, .block_status = volume_block_status};

struct volume *volume_open(struct loop *loop, const struct volume_options *o)
{
    ASSERT(o->start % PAGE_BYTES == 0 && o->size <= o->layout->rows * o->layout->row_data);
    ASSERT((o->map != NULL) == (o->layout->redundancy > 0 && !o->read_only));
    ASSERT(!consistency_is_closed(o->consistency) || o->layout->parity);
    struct volume *v = calloc(1, sizeof *v);
    if (v == NULL)
        return NULL;
    v->layout = *o->layout;
    v->first_slot = o->first_slot;
    v->members = o->members;
    v->start = o->start;
    v->map = o->map;
    v->uuid = o->uuid;
    v->consistency = o->consistency;
    v->bad = o->bad;
    v->owner = o->owner;
    v->latency = o->latency;
    codec_init(&v->codec, v->layout.parity, v->layout.data, v->layout.redundancy);
    struct blk_info info = info_of(v, o);
    blkdev_init(&v->dev, &volume_ops, loop, o->name, &info);
    windows_choose(v);
    v->run_max = longest_run(v);
    cutter_init(&v->data_cutter, v, 0);
    cutter_init(&v->zero_cutter, v, ZERO_PARTS);
    if (!runs_create(v, o->runs_max != 0 ? o->runs_max : RUNS_DEFAULT) || !rows_create(v, o->rows_max) ||
        !locks_create(v) || !scratch_create(v, o->scratch_bytes) || !row_merge_init(v)) {
        volume_undo(v);
        return NULL;
    }
    volume_recount(v);
    v->announced = health_of(v);
    return v;
}
