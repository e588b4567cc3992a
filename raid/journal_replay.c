/* See raid/journal_replay.h. */
#include "raid/journal_replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "raid/array_impl.h"
#include "raid/codec.h"
#include "raid/journal.h"
#include "raid/journal_io.h"
#include "raid/row_plan.h"

enum { WORKERS = 8, SLICE_PAGES = 16, CHUNK_PAGES = SLICE_PAGES + 1, ENTRIES_AT_FIRST = 1024 };

enum replay_state { REPLAY_SCANNING, REPLAY_SETTLING, REPLAY_REPLAYING, REPLAY_OVER };

static const struct sm_state replay_states[] = {
    [REPLAY_SCANNING] = {"scanning", SM_TO(REPLAY_SETTLING)},
    [REPLAY_SETTLING] = {"settling", SM_TO(REPLAY_REPLAYING)},
    [REPLAY_REPLAYING] = {"replaying", SM_TO(REPLAY_OVER)},
    [REPLAY_OVER] = {"over", 0},
};

/* The ring of one member, or device, read in stretches. */
struct scan {
    struct journal_replay *replay;
    struct journal_device *device; /* NULL: a member */
    struct journal_io io;
    uint32_t next, count; /* page of the ring where the stretch begins; its pages */
    uint32_t single;      /* after an error: page by page; else count */
    bool damaged;
    struct page *pages[JOURNAL_ENTRY_PAGES];
};

/* One record on its way to its place: part by part, extent by extent. */
struct worker {
    struct journal_replay *replay;
    struct journal_io io;
    bool busy, suspect;
    struct region_change change;
    struct task changed_task;
    size_t part, end; /* entries */
    unsigned volume, extent;
    uint32_t done, len;       /* bytes of the extent; of the slice under way */
    uint64_t changed;         /* roles still to be added */
    struct page **payload_at; /* of the extent */
    struct page *payload[JOURNAL_ENTRY_PAGES], *sum[CHUNK_PAGES], *chunk[CHUNK_PAGES];
};

struct journal_replay {
    struct array *array;
    struct sm state;
    struct task *over, recorded;
    struct journal_device *device; /* whose entries are replayed; NULL: the members' */
    unsigned scans_count;
    uint64_t start; /* of the rings, bytes; and their pages */
    uint32_t ring;
    bool no_memory, unreadable;
    struct journal_entry *entries;
    size_t count, room, next;
    size_t whole; /* of the entries: these are replayed; the others are torn */
    uint64_t tail, records, torn_rows;
    unsigned busy;
    struct page_pool *pages;
    struct scan *scans; /* by slot, or by device */
    struct worker workers[WORKERS];
};

static bool slot_is_live(const struct journal_replay *r, unsigned slot)
{
    return !r->array->frozen && member_writable(&r->array->members[slot]);
}

static void replay_over(struct journal_replay *r)
{
    sm_move(&r->state, REPLAY_OVER);
    loop_defer(r->array->loop, r->over);
}

/* --- replay --- */

static void part_start(struct worker *w);
static void slice_start(struct worker *w);
static void dispatch(struct journal_replay *r);

static const struct journal_entry *entry_of(const struct worker *w)
{
    return &w->replay->entries[w->part];
}

static void worker_over(struct task *task)
{
    struct worker *w = container_of(task, struct worker, changed_task);
    w->busy = false;
    w->replay->busy--;
    dispatch(w->replay);
}

static void record_over(struct worker *w)
{
    struct journal_replay *r = w->replay;
    if (!w->suspect) {
        worker_over(&w->changed_task);
        return;
    }
    w->change =
        (struct region_change){.region = r->entries[w->end - 1].row, .to = REGION_SUSPECT, .task = &w->changed_task};
    map_store_change(map_store_map(r->array->volumes[w->volume].map), &w->change);
}

static void part_over(struct worker *w)
{
    w->part++;
    part_start(w);
}

/* `len` bytes of a role's chunk, from the column of the slice. */
static void chunk_io(struct worker *w, unsigned role, enum blk_op op, struct page **pages,
                     void (*done)(struct journal_io *))
{
    struct array *array = w->replay->array;
    const struct journal_entry *entry = entry_of(w);
    struct layout_place place;
    layout_place(&array->volumes[w->volume].layout, entry->row, role, &place);
    uint64_t column = entry->extents[w->extent].column + w->done;
    w->io = (struct journal_io){.array = array,
                                .slot = place.slot,
                                .op = op,
                                .off = array->description.data_start + array->description.volumes[w->volume].start +
                                       place.off + column,
                                .len = w->len,
                                .pages = pages,
                                .done = done};
    journal_io_start(&w->io);
}

static void slice_written(struct journal_io *io)
{
    struct worker *w = container_of(io, struct worker, io);
    w->suspect |= io->status != BLK_OK && slot_is_live(w->replay, io->slot);
    w->done += w->len;
    slice_start(w);
}

/* sum ^= chunk */
static void chunk_add(struct worker *w)
{
    uint64_t at = (entry_of(w)->extents[w->extent].column + w->done) % PAGE_BYTES;
    for (uint64_t end = at + w->len, span; at < end; at += span) {
        span = MIN(end - at, PAGE_BYTES - at % PAGE_BYTES);
        uint8_t *sum = (uint8_t *)w->sum[at / PAGE_BYTES]->data + at % PAGE_BYTES;
        codec_delta(sum, sum, (const uint8_t *)w->chunk[at / PAGE_BYTES]->data + at % PAGE_BYTES, span);
    }
}

static void chunk_next(struct worker *w);

static void chunk_read(struct journal_io *io)
{
    struct worker *w = container_of(io, struct worker, io);
    if (io->status != BLK_OK) { /* the parity stays what it is; who can still be read is told apart by a resync */
        w->suspect = true;
        w->done += w->len;
        slice_start(w);
        return;
    }
    chunk_add(w);
    w->changed &= w->changed - 1;
    chunk_next(w);
}

static void chunk_next(struct worker *w)
{
    if (w->changed == 0)
        chunk_io(w, entry_of(w)->extents[w->extent].role, BLK_WRITE, w->sum, slice_written);
    else
        chunk_io(w, roles_lowest(w->changed), BLK_READ, w->chunk, chunk_read);
}

/*
 * Can the chunks that change be read as they stand? If not, nothing is known that would be better than what is there. One
 * that is being rebuilt will be there some day.
 */
static bool parity_is_known(struct worker *w, const struct journal_extent *extent)
{
    const struct array *array = w->replay->array;
    struct layout_place place;
    FOR_EACH_ROLE(role, extent->changed)
    {
        layout_place(&array->volumes[w->volume].layout, entry_of(w)->row, (unsigned)role, &place);
        if (member_readable(&array->members[place.slot]))
            continue;
        w->suspect |= slot_is_live(w->replay, place.slot);
        return false;
    }
    return true;
}

/*
 * A disk that has not answered a write in time may still read its pages (raid/patience.h): it gets to keep them. With
 * none left it reads what comes next; it is lost anyway, or the array froze and all is replayed again.
 */
static void pages_renew(struct journal_replay *r, struct page **pages, uint32_t count)
{
    struct page *fresh;
    for (uint32_t i = 0; i < count; i++) {
        if (pages[i]->refs == 1 || !page_pool_take(r->pages, &fresh, 1))
            continue;
        page_put(pages[i]);
        pages[i] = fresh;
    }
}

static void parity_slice(struct worker *w, const struct journal_extent *extent)
{
    uint64_t page_off = (extent->column + w->done) % PAGE_BYTES;
    struct page **from = w->payload_at + (extent->column % PAGE_BYTES + w->done) / PAGE_BYTES;
    uint32_t pages;
    w->len = (uint32_t)MIN((uint64_t)extent->len - w->done, (uint64_t)SLICE_PAGES * PAGE_BYTES - page_off);
    pages = page_count_for(page_off, w->len);
    pages_renew(w->replay, w->sum, pages);
    for (uint32_t i = 0; i < pages && extent->payload; i++)
        memcpy(w->sum[i]->data, from[i]->data, PAGE_BYTES);
    if (!extent->payload)
        pages_zero(w->sum, page_off, w->len);
    w->changed = extent->changed;
    chunk_next(w);
}

static void slice_start(struct worker *w)
{
    const struct journal_entry *entry = entry_of(w);
    while (w->extent < entry->extents_count) {
        const struct journal_extent *extent = &entry->extents[w->extent];
        bool skip = entry->kind == JOURNAL_PARITY && !parity_is_known(w, extent);
        if (w->done < extent->len && !skip) {
            if (entry->kind == JOURNAL_PARITY) {
                parity_slice(w, extent);
            } else {
                w->len = extent->len;
                chunk_io(w, extent->role, BLK_WRITE, w->payload_at, slice_written);
            }
            return;
        }
        w->payload_at += journal_extent_pages(extent);
        w->extent++;
        w->done = 0;
    }
    part_over(w);
}

static void part_loaded(struct journal_io *io)
{
    struct worker *w = container_of(io, struct worker, io);
    struct journal_replay *r = w->replay;
    if (io->status == BLK_OK && journal_payload_is_whole(entry_of(w), w->payload)) {
        slice_start(w);
        return;
    }
    if (io->device != NULL)
        r->unreadable = true;
    else if (slot_is_live(r, io->slot)) /* it was whole a moment ago */
        array_member_lose(r->array, &r->array->members[io->slot], BLK_MEDIA);
    part_over(w);
}

static void part_start(struct worker *w)
{
    struct journal_replay *r = w->replay;
    while (w->part < w->end && !slot_is_live(r, entry_of(w)->slot))
        w->part++;
    if (w->part == w->end) {
        record_over(w);
        return;
    }
    const struct journal_entry *entry = entry_of(w);
    uint32_t pages = journal_entry_pages(entry) - 1;
    w->extent = w->done = 0;
    w->payload_at = w->payload;
    pages_renew(r, w->payload, JOURNAL_ENTRY_PAGES);
    if (pages == 0) {
        slice_start(w);
        return;
    }
    w->io = (struct journal_io){.array = r->array,
                                .slot = entry->slot,
                                .device = r->device,
                                .op = BLK_READ,
                                .off = r->start + (entry->page + UINT64_C(1)) * PAGE_BYTES,
                                .len = (uint64_t)pages * PAGE_BYTES,
                                .pages = w->payload,
                                .done = part_loaded};
    journal_io_start(&w->io);
}

/* Volume of the record [first, end); false: it is not to be replayed. */
static bool record_volume(const struct journal_replay *r, size_t first, size_t end, unsigned *volume)
{
    const struct array *array = r->array;
    const struct sb_array *a = &array->description;
    for (*volume = 0; *volume < a->volumes_count; (*volume)++)
        if (uuid_equal(sb_volume_key(&a->volumes[*volume]), &r->entries[first].volume))
            break;
    if (*volume == a->volumes_count || volume_failed(array->volumes[*volume].volume))
        return false;
    for (size_t i = first; i < end; i++)
        if (!journal_entry_fits(&r->entries[i], &a->volumes[*volume], &array->volumes[*volume].layout))
            return false;
    return region_get(map_store_map(array->volumes[*volume].map), r->entries[first].row) != REGION_UNWRITTEN;
}

/* Somebody who is free; NULL: nobody, or the row is being worked on. */
static struct worker *worker_for(struct journal_replay *r, const struct journal_entry *entry)
{
    struct worker *free_one = NULL;
    for (unsigned i = 0; i < WORKERS; i++) {
        struct worker *w = &r->workers[i];
        const struct journal_entry *other = &r->entries[w->busy ? w->end - 1 : 0];
        if (!w->busy)
            free_one = w;
        else if (other->row == entry->row && uuid_equal(&other->volume, &entry->volume))
            return NULL;
    }
    return free_one;
}

/* A row that lacks a member is left as it is: see raid/journal.h. */
static bool row_is_complete(const struct journal_replay *r, unsigned volume, uint64_t row)
{
    const struct layout *layout = &r->array->volumes[volume].layout;
    for (unsigned role = 0; role < layout->roles; role++) {
        struct layout_place place;
        layout_place(layout, row, role, &place);
        if (!member_readable(&r->array->members[place.slot]))
            return false;
    }
    return true;
}

/* Is there something to be done about the record [first, end)? */
static bool record_wanted(const struct journal_replay *r, size_t first, size_t end, unsigned *volume)
{
    return record_volume(r, first, end, volume) &&
           (first < r->whole || row_is_complete(r, *volume, r->entries[first].row));
}

static void record_start(struct journal_replay *r, struct worker *w, size_t first, size_t end, unsigned volume)
{
    bool torn = first >= r->whole;
    r->records += !torn;
    r->torn_rows += torn;
    r->busy++;
    w->busy = true;
    w->suspect = torn;
    w->volume = volume;
    w->part = torn ? end : first;
    w->end = end;
    part_start(w);
}

static void dispatch(struct journal_replay *r)
{
    while (r->next < r->count) {
        size_t first = r->next, end = first + 1;
        unsigned volume;
        while (end < r->count && r->entries[end].id == r->entries[first].id)
            end++;
        bool wanted = record_wanted(r, first, end, &volume);
        struct worker *w = wanted ? worker_for(r, &r->entries[first]) : NULL;
        if (wanted && w == NULL)
            return;
        r->next = end;
        if (wanted)
            record_start(r, w, first, end, volume);
    }
    if (r->busy == 0 && sm_state(&r->state) == REPLAY_REPLAYING)
        replay_over(r);
}

/* --- who is left --- */

static void replay_settled(struct journal_replay *r)
{
    uint64_t survivors = r->device != NULL ? UINT64_MAX : 0, active = 0; /* a device has all parts */
    if (!losses_wait(r->array, &r->recorded))
        return;
    sm_move(&r->state, REPLAY_REPLAYING);
    for (unsigned slot = 0; slot < r->array->description.members_count; slot++) {
        survivors |= slot_is_live(r, slot) ? slot_bit(slot) : 0;
        active |= member_readable(&r->array->members[slot]) ? slot_bit(slot) : 0;
    }
    size_t torn = 0;
    if (!r->no_memory && !r->unreadable && !r->array->frozen)
        r->whole = journal_choose(r->entries, r->count, survivors, active, &torn);
    r->count = r->whole + torn;
    dispatch(r);
}

static void recorded(struct task *task)
{
    replay_settled(container_of(task, struct journal_replay, recorded));
}

static bool volumes_bear(const struct array *array, unsigned slot)
{
    uint64_t lost = array_lost_slots(array);
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array_survives(array, i, lost) && !array_survives(array, i, lost | slot_bit(slot)))
            return false;
    return true;
}

/* What was begun in place stands on every device that was live: one of them is enough. */
static void device_choose(struct journal_replay *r)
{
    size_t kept = 0;
    unsigned chosen = 0;
    while (chosen < r->scans_count && (r->scans[chosen].damaged || !r->scans[chosen].device->live))
        chosen++;
    r->unreadable = chosen == r->scans_count;
    if (r->unreadable)
        return;
    r->device = r->scans[chosen].device;
    for (unsigned i = 0; i < r->scans_count; i++)
        if (r->scans[i].damaged)
            journal_device_lose(r->array, r->scans[i].device, BLK_MEDIA);
    for (size_t i = 0; i < r->count; i++)
        if (r->entries[i].copy == chosen)
            r->entries[kept++] = r->entries[i];
    r->count = kept;
}

static void members_settle(struct journal_replay *r)
{
    struct array *array = r->array;
    for (unsigned slot = 0; slot < array->description.members_count; slot++) {
        if (!r->scans[slot].damaged || !slot_is_live(r, slot))
            continue;
        if (volumes_bear(array, slot))
            array_member_lose(array, &array->members[slot], BLK_MEDIA);
        else
            log_error("array %s: parts of the journal on disk %s (slot %u) cannot be read, and it cannot be done "
                      "without: blocks that were being written when the array stopped may be wrong",
                      array->description.name, array_disk_name(array, slot), slot);
    }
}

static void scan_over(struct scan *scan)
{
    struct journal_replay *r = scan->replay;
    if (--r->busy > 0)
        return;
    sm_move(&r->state, REPLAY_SETTLING);
    if (scan->device != NULL)
        device_choose(r);
    else
        members_settle(r);
    replay_settled(r);
}

/* --- scan --- */

static void stretch_read(struct scan *scan);

/* Those that are over make room. False: no memory. */
static bool entries_make_room(struct journal_replay *r)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->count; i++)
        if (r->entries[i].id >= r->tail)
            r->entries[kept++] = r->entries[i];
    r->count = kept;
    if (r->count < r->room / 2)
        return true;
    size_t room = MAX(2 * r->room, (size_t)ENTRIES_AT_FIRST);
    struct journal_entry *more = realloc(r->entries, room * sizeof *more);
    if (more == NULL)
        return false;
    r->entries = more;
    r->room = room;
    return true;
}

static void entry_keep(struct journal_replay *r, const struct journal_entry *entry, unsigned copy, bool damaged)
{
    r->tail = MAX(r->tail, entry->tail);
    if (r->count == r->room && !entries_make_room(r)) {
        r->no_memory = true;
        return;
    }
    r->entries[r->count] = *entry;
    r->entries[r->count].damaged = damaged;
    r->entries[r->count++].copy = copy;
}

static bool is_ours(const struct scan *scan, uint32_t at, struct journal_entry *entry)
{
    const struct journal_replay *r = scan->replay;
    return journal_decode(scan->pages[at]->data, entry) && entry->page == scan->next + at &&
           (scan->device != NULL || entry->slot == (unsigned)(scan - r->scans)) &&
           uuid_equal(&entry->epoch, &r->array->description.epoch);
}

/* Keep what is there, also a header without its payload; the next stretch begins with the first entry that is not all in
 * this one. */
static void stretch_look(struct scan *scan)
{
    struct journal_replay *r = scan->replay;
    struct journal_entry entry;
    uint32_t at = 0;
    for (uint32_t pages; at < scan->count; at += pages) {
        pages = 1;
        if (!is_ours(scan, at, &entry))
            continue;
        uint32_t whole = journal_entry_pages(&entry);
        if (at + whole > scan->count && scan->next + at + whole <= r->ring)
            break;
        if (at + whole > scan->count)
            continue;
        bool damaged = !journal_payload_is_whole(&entry, scan->pages + at + 1);
        entry_keep(r, &entry, (unsigned)(scan - r->scans), damaged);
        pages = damaged ? 1 : whole;
    }
    scan->next += at;
    stretch_read(scan);
}

static void stretch_done(struct journal_io *io)
{
    struct scan *scan = container_of(io, struct scan, io);
    if (io->status == BLK_GONE) {
        scan_over(scan);
        return;
    }
    if (io->status == BLK_MEDIA && scan->single == scan->count) {
        scan->single = 0;
    } else if (scan->single < scan->count) {
        if (io->status == BLK_MEDIA) {
            scan->damaged = true;
            pages_zero(&scan->pages[scan->single], 0, PAGE_BYTES);
        }
        scan->single++;
    }
    if (scan->single == scan->count) {
        stretch_look(scan);
        return;
    }
    io->off = scan->replay->start + (scan->next + scan->single) * (uint64_t)PAGE_BYTES;
    io->len = PAGE_BYTES;
    io->pages = &scan->pages[scan->single];
    journal_io_start(io);
}

static void stretch_read(struct scan *scan)
{
    struct journal_replay *r = scan->replay;
    if (scan->next >= r->ring) {
        scan_over(scan);
        return;
    }
    scan->count = scan->single = MIN((uint32_t)JOURNAL_ENTRY_PAGES, r->ring - scan->next);
    scan->io = (struct journal_io){.array = r->array,
                                   .slot = (unsigned)(scan - r->scans),
                                   .device = scan->device,
                                   .op = BLK_READ,
                                   .off = r->start + scan->next * (uint64_t)PAGE_BYTES,
                                   .len = (uint64_t)scan->count * PAGE_BYTES,
                                   .pages = scan->pages,
                                   .done = stretch_done};
    journal_io_start(&scan->io);
}

/* --- life --- */

/* One by one: of large requests the pool keeps something back. */
static void pages_take(struct journal_replay *r, struct page **pages, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        bool taken = page_pool_get(r->pages, &pages[i], 1);
        ASSERT(taken);
    }
}

static bool memory_take(struct journal_replay *r)
{
    unsigned rings = r->scans_count;
    uint32_t each = JOURNAL_ENTRY_PAGES + 2 * CHUNK_PAGES;
    r->pages = page_pool_create(rings * JOURNAL_ENTRY_PAGES + 2 * WORKERS * each);
    r->scans = calloc(rings, sizeof *r->scans);
    if (r->pages == NULL || r->scans == NULL)
        return false;
    for (unsigned i = 0; i < rings; i++) {
        r->scans[i].replay = r;
        r->scans[i].device = r->device != NULL ? &r->array->journals[i] : NULL;
        pages_take(r, r->scans[i].pages, JOURNAL_ENTRY_PAGES);
    }
    for (unsigned i = 0; i < WORKERS; i++) {
        r->workers[i].replay = r;
        r->workers[i].changed_task.run = worker_over;
        pages_take(r, r->workers[i].payload, JOURNAL_ENTRY_PAGES);
        pages_take(r, r->workers[i].sum, CHUNK_PAGES);
        pages_take(r, r->workers[i].chunk, CHUNK_PAGES);
    }
    return true;
}

static void replay_free(struct journal_replay *r)
{
    if (r->pages != NULL && r->scans != NULL) {
        for (unsigned i = 0; i < r->scans_count; i++)
            page_put_all(r->scans[i].pages, JOURNAL_ENTRY_PAGES);
        for (unsigned i = 0; i < WORKERS; i++) {
            page_put_all(r->workers[i].payload, JOURNAL_ENTRY_PAGES);
            page_put_all(r->workers[i].sum, CHUNK_PAGES);
            page_put_all(r->workers[i].chunk, CHUNK_PAGES);
        }
    }
    if (r->pages != NULL)
        page_pool_retire(r->pages);
    free(r->scans);
    free(r->entries);
    free(r);
}

/* The devices' if one is live, else the members'. */
static void rings_choose(struct journal_replay *r, const struct sb_array *a)
{
    bool devices = journal_devices_live(r->array) > 0;
    uint64_t bytes = devices ? a->journals[0].bytes : a->journal_bytes;
    r->device = devices ? &r->array->journals[0] : NULL;
    r->scans_count = devices ? a->journals_count : a->members_count;
    r->start = devices ? a->journals[0].start : a->journal_start;
    r->ring = (uint32_t)MIN(bytes / PAGE_BYTES, (uint64_t)JOURNAL_RING_PAGES_MAX);
}

struct journal_replay *journal_replay_start(struct array *array, struct task *over)
{
    struct journal_replay *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->array = array;
    r->over = over;
    r->recorded.run = recorded;
    rings_choose(r, &array->description);
    sm_init(&r->state, replay_states, ARRAY_LENGTH(replay_states), REPLAY_SCANNING);
    if (!memory_take(r)) {
        replay_free(r);
        return NULL;
    }
    r->busy = r->scans_count;
    for (unsigned i = 0; i < r->scans_count; i++)
        stretch_read(&r->scans[i]);
    return r;
}

int journal_replay_end(struct journal_replay *r, uint64_t *records)
{
    int error = r->no_memory ? -ENOMEM : r->unreadable && !r->array->frozen ? -EIO : 0;
    ASSERT(r->busy == 0);
    if (r->torn_rows > 0)
        log_notice("array %s: %llu writes stand in the journal in part: their rows are resynchronised",
                   r->array->description.name, (unsigned long long)r->torn_rows);
    *records = r->records;
    replay_free(r);
    return error;
}
