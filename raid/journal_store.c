/*
 * See raid/journal_store.h for the drawing and the rules.
 *
 * Positions in a ring are pages counted from the start of the epoch; position p stands in page p % size. An entry does
 * not wrap: where it does not fit before the end, the rest of the lap is left out. What is live is kept group by group:
 * ids are given in order, so a group is a range of ids and, in each ring, begins at one position.
 */
#include "raid/journal_store.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "raid/array_impl.h"
#include "raid/journal_io.h"

enum {
    HEADERS = 256,      /* entries in a group, all members together */
    STREAM_PAGES = 256, /* pages in a group, one member; of a device as many as one record may have, and more */
    GROUPS = 1024,      /* live */
    RESERVE_PAGES = 64, /* of a ring: kept for tails */
    RESERVE_GROUPS = 8,
    ROWS = 4096, /* of the table of last ids */
};

enum journal_state {
    JOURNAL_IDLE,
    JOURNAL_FLUSHING,
    JOURNAL_WRITING,
    JOURNAL_RECORDING,
    JOURNAL_DRAINING,
    JOURNAL_GIVING_UP
};

static const struct sm_state journal_states[] = {
    [JOURNAL_IDLE] = {"idle", SM_TO(JOURNAL_FLUSHING) | SM_TO(JOURNAL_WRITING)},
    [JOURNAL_FLUSHING] = {"flushing", SM_TO(JOURNAL_WRITING) | SM_TO(JOURNAL_IDLE)},
    [JOURNAL_WRITING] = {"writing", SM_TO(JOURNAL_RECORDING) | SM_TO(JOURNAL_DRAINING)},
    [JOURNAL_RECORDING] = {"recording", SM_TO(JOURNAL_IDLE)},
    [JOURNAL_DRAINING] = {"draining", SM_TO(JOURNAL_GIVING_UP) | SM_TO(JOURNAL_IDLE)},
    [JOURNAL_GIVING_UP] = {"giving up", SM_TO(JOURNAL_IDLE)},
};

/* One of a group's ways out: to the member, or to one of the devices. */
struct stream_copy {
    struct journal_io io;
    struct journal_stream *stream;
    struct journal_device *device; /* NULL: the member */
    uint64_t at;                   /* page of the group that is to be written next */
};

struct journal_stream {
    uint64_t head, tail; /* live: [tail, head) */
    uint64_t planned;    /* head, with the group that is being put together */
    unsigned planned_pages;
    uint64_t start; /* of the ring, bytes; and its pages */
    uint32_t ring;
    struct stream_copy copies[SB_JOURNALS_MAX];
    struct journal *journal;
    uint64_t first;            /* of this group: where it begins */
    unsigned count, gap, room; /* pages of this group; those of them before the end of the ring; that it may have */
    struct page **pages;
    bool *headers;
};

struct journal_group {
    uint64_t first_id, end_id;
    unsigned undone; /* records whose writes in place are not over */
};

struct journal {
    struct array *array;
    struct sm state;
    unsigned slots, streams_count;
    bool on_devices;
    struct page_pool *headers;
    struct journal_stream *streams; /* by slot, and the devices' */
    struct journal_group *groups;
    uint64_t *starts;            /* by group, stream: position where the group begins */
    uint64_t oldest, next_group; /* numbers of groups; the live ones are in between */
    uint64_t next_id;            /* to be given */
    uint64_t tail, durable_tail; /* J2, J3 */
    uint64_t flushed;            /* J4: of ids below the writes in place are durable */
    uint64_t last_id[ROWS];      /* by a hash of the row: the last record of any of these rows */
    struct journal_record_list queue, group;
    TAILQ_HEAD(journal_waits, journal_wait) waits; /* by `until` */
    bool blocked;                                  /* the first in the queue found no room */
    bool untold;                                   /* J7: a member has joined, and has no tail yet */
    /* The group under way. */
    uint64_t live; /* members it was planned for */
    bool with_tail;
    uint64_t flush_tail; /* tail when its flush is over */
    unsigned headers_planned, busy;
    struct array_flush flush;
    struct task recorded;
};

static void kick(struct journal *j);

/* Where the parts of a slot go. */
static struct journal_stream *stream_of(struct journal *j, unsigned slot)
{
    return &j->streams[j->on_devices ? j->slots : slot];
}

static uint64_t *last_id(struct journal *j, const struct uuid *volume, uint64_t row)
{
    uint64_t hash = (row + volume->bytes[0] * UINT64_C(0x100000001)) * UINT64_C(0x9e3779b97f4a7c15);
    return &j->last_id[(hash >> 40) % ROWS];
}

static struct journal_group *group_at(struct journal *j, uint64_t number)
{
    return &j->groups[number % GROUPS];
}

/* --- room --- */

/* Where an entry of so many pages goes. */
static uint64_t place_from(const struct journal_stream *stream, uint64_t position, uint32_t pages)
{
    uint64_t left = stream->ring - position % stream->ring;
    return left < pages ? position + left : position;
}

/* Index behind the pieces of the slot that begin at `first`; *pages: what their entry takes. */
static unsigned part_end(const struct journal_record *record, unsigned first, uint32_t *pages)
{
    unsigned end = first;
    *pages = 1;
    for (; end < record->pieces_count && record->pieces[end].slot == record->pieces[first].slot; end++)
        if (record->pieces[end].pages != NULL)
            *pages += page_count_for(record->pieces[end].column, record->pieces[end].len);
    ASSERT(end - first <= JOURNAL_EXTENTS_MAX && *pages <= JOURNAL_ENTRY_PAGES);
    return end;
}

static bool part_fits(const struct journal_stream *stream, uint64_t planned, uint32_t planned_pages, uint32_t pages)
{
    uint64_t end = place_from(stream, planned, pages) + pages;
    return end + RESERVE_PAGES <= stream->tail + stream->ring && planned_pages + pages <= stream->room &&
           planned_pages + pages <= stream->ring / 4;
}

static bool record_fits(struct journal *j, const struct journal_record *record)
{
    unsigned headers = j->headers_planned;
    uint64_t planned = 0; /* of the devices' stream, in which the parts lie behind each other */
    uint32_t pages, planned_pages = 0;
    for (unsigned first = 0, end; first < record->pieces_count; first = end, headers++) {
        const struct journal_stream *stream = stream_of(j, record->pieces[first].slot);
        end = part_end(record, first, &pages);
        if (first == 0 || !j->on_devices) {
            planned = stream->planned;
            planned_pages = stream->planned_pages;
        }
        if (headers == HEADERS - j->slots || !part_fits(stream, planned, planned_pages, pages))
            return false;
        planned = place_from(stream, planned, pages) + pages;
        planned_pages += pages;
    }
    return j->next_group - j->oldest < GROUPS - RESERVE_GROUPS;
}

static void stream_plan(struct journal *j, unsigned slot, uint32_t pages)
{
    struct journal_stream *stream = stream_of(j, slot);
    stream->planned = place_from(stream, stream->planned, pages) + pages;
    stream->planned_pages += pages;
    j->headers_planned++;
}

/* Take from the queue what has room. */
static void group_plan(struct journal *j)
{
    struct journal_record *record;
    uint32_t pages;
    j->live = array_live_slots(j->array);
    while ((record = STAILQ_FIRST(&j->queue)) != NULL && record_fits(j, record)) {
        STAILQ_REMOVE_HEAD(&j->queue, link);
        STAILQ_INSERT_TAIL(&j->group, record, link);
        for (unsigned first = 0, end; first < record->pieces_count; first = end) {
            end = part_end(record, first, &pages);
            stream_plan(j, record->pieces[first].slot, pages);
        }
    }
    j->blocked = record != NULL;
}

/* With room for a tail, which comes first if there is to be one. What comes without it ends no later. */
static void plan_begin(struct journal *j)
{
    j->headers_planned = 0;
    for (unsigned i = 0; i < j->streams_count; i++) {
        j->streams[i].planned = j->streams[i].head + 1;
        j->streams[i].planned_pages = 1;
    }
}

/* --- the tail --- */

/* All ids below have been written in place. */
static uint64_t done_below(struct journal *j)
{
    for (uint64_t number = j->oldest; number < j->next_group; number++)
        if (group_at(j, number)->undone > 0)
            return group_at(j, number)->first_id;
    return j->next_id;
}

static bool half_full(const struct journal *j)
{
    bool half = j->next_group - j->oldest > GROUPS / 2;
    for (unsigned i = 0; i < j->streams_count; i++)
        half = half || j->streams[i].head - j->streams[i].tail > j->streams[i].ring / 2;
    return half;
}

/* Tails that free little may not eat up what the great ones need. */
static bool scarce(const struct journal *j)
{
    bool scarce = j->next_group - j->oldest > GROUPS - RESERVE_GROUPS / 2;
    for (unsigned i = 0; i < j->streams_count; i++)
        scarce = scarce || j->streams[i].head + RESERVE_PAGES / 2 > j->streams[i].tail + j->streams[i].ring;
    return scarce;
}

static bool tail_is_wanted(struct journal *j)
{
    uint64_t done = done_below(j);
    if (j->untold && !scarce(j))
        return true;
    if (done <= j->durable_tail || (scarce(j) && done < j->next_id))
        return false;
    const struct journal_wait *wait = TAILQ_FIRST(&j->waits);
    return (wait != NULL && wait->until < done) || j->blocked || half_full(j);
}

static void waits_end(struct journal *j, uint64_t tail)
{
    struct journal_wait *wait, *next;
    for (wait = TAILQ_FIRST(&j->waits); wait != NULL; wait = next) {
        next = TAILQ_NEXT(wait, link);
        if (wait->until >= tail)
            continue;
        TAILQ_REMOVE(&j->waits, wait, link);
        wait->over = true;
        loop_defer(j->array->loop, wait->task);
    }
}

/* The tail is on all live members: what is below is no more. */
static void tail_is_durable(struct journal *j)
{
    j->durable_tail = j->tail;
    while (j->oldest < j->next_group && group_at(j, j->oldest)->end_id <= j->durable_tail)
        j->oldest++;
    for (unsigned i = 0; i < j->streams_count; i++)
        j->streams[i].tail =
            j->oldest < j->next_group ? j->starts[j->oldest % GROUPS * j->streams_count + i] : j->streams[i].head;
    waits_end(j, j->durable_tail);
}

/* --- the end of a group --- */

static void group_withdraw(struct journal *j);

static void records_end(struct journal *j, struct journal_record_list *list)
{
    struct journal_record *record;
    while ((record = STAILQ_FIRST(list)) != NULL) {
        STAILQ_REMOVE_HEAD(list, link);
        record->over = true;
        loop_defer(j->array->loop, record->task);
    }
}

static void group_over(struct journal *j)
{
    bool tail = j->with_tail && sm_state(&j->state) == JOURNAL_RECORDING;
    sm_move(&j->state, JOURNAL_IDLE);
    records_end(j, &j->group);
    if (j->array->frozen)
        journal_frozen(j);
    else if (tail)
        tail_is_durable(j);
    kick(j);
    array_step(j->array);
}

/* J1: the entries are durable; now what is missing must be known to be. */
static void group_record(struct journal *j)
{
    if (losses_wait(j->array, &j->recorded))
        group_over(j);
}

static void headers_put(struct journal_stream *stream)
{
    for (unsigned i = 0; i < stream->count; i++)
        if (stream->headers[i])
            page_put(stream->pages[i]);
    stream->count = stream->gap = 0;
}

static void group_written(struct journal *j)
{
    for (unsigned i = 0; i < j->streams_count; i++)
        headers_put(&j->streams[i]);
    if (j->on_devices && journal_devices_live(j->array) == 0 && !j->array->frozen) {
        group_withdraw(j);
        return;
    }
    sm_move(&j->state, JOURNAL_RECORDING);
    group_record(j);
}

/* --- entries to the members, or the devices --- */

static void copy_write(struct stream_copy *copy);

static void copy_wrote(struct journal_io *io)
{
    struct stream_copy *copy = container_of(io, struct stream_copy, io);
    struct journal *j = copy->stream->journal;
    copy->at += io->len / PAGE_BYTES;
    if (io->status == BLK_OK && copy->at < copy->stream->count)
        copy_write(copy);
    else if (--j->busy == 0)
        group_written(j);
}

/* What lies together: up to the end of the ring, and from its start on. */
static void copy_write(struct stream_copy *copy)
{
    struct journal_stream *stream = copy->stream;
    struct journal *j = stream->journal;
    bool wrapped = copy->at >= stream->gap;
    uint64_t end = wrapped ? stream->count : stream->gap;
    uint64_t page = wrapped ? copy->at - stream->gap : stream->first % stream->ring + copy->at;
    copy->io = (struct journal_io){.array = j->array,
                                   .slot = (unsigned)(stream - j->streams),
                                   .device = copy->device,
                                   .op = BLK_WRITE,
                                   .flags = BLK_FUA,
                                   .off = stream->start + page * PAGE_BYTES,
                                   .len = (end - copy->at) * PAGE_BYTES,
                                   .pages = stream->pages + copy->at,
                                   .done = copy_wrote};
    journal_io_start(&copy->io);
}

static void stream_write(struct journal *j, struct journal_stream *stream)
{
    unsigned copies = stream == &j->streams[j->slots] ? j->array->description.journals_count : 1;
    if (stream->gap == 0)
        stream->gap = stream->count;
    j->busy += copies;
    for (unsigned i = 0; i < copies; i++) {
        stream->copies[i].at = 0;
        copy_write(&stream->copies[i]); /* a device that is lost, or was never there, is not asked */
    }
}

static void page_append(struct journal_stream *stream, struct page *page, bool header)
{
    ASSERT(stream->count < stream->room);
    stream->headers[stream->count] = header;
    stream->pages[stream->count++] = page;
}

/* Bring the header of an entry into the ring; its payload is to follow. */
static void entry_append(struct journal *j, unsigned slot, struct journal_entry *entry)
{
    struct journal_stream *stream = stream_of(j, slot);
    uint32_t pages = journal_entry_pages(entry);
    uint64_t position = place_from(stream, stream->head, pages);
    struct page *header;
    bool taken = page_pool_take(j->headers, &header, 1);
    ASSERT(taken && position + pages <= stream->tail + stream->ring);
    if (stream->count == 0)
        stream->first = position;
    else if (position != stream->head || position % stream->ring == 0)
        stream->gap = stream->count;
    stream->head = position + pages;
    entry->slot = slot;
    entry->page = (uint32_t)(position % stream->ring);
    journal_encode(entry, header->data);
    page_append(stream, header, true);
}

static struct journal_entry entry_new(struct journal *j, enum journal_kind kind, uint64_t slots)
{
    return (struct journal_entry){
        .epoch = j->array->description.epoch, .id = j->next_id++, .tail = j->tail, .kind = kind, .slots = slots};
}

static void tail_append(struct journal *j, uint64_t live)
{
    struct journal_entry entry = entry_new(j, JOURNAL_TAIL, live);
    uint64_t slots = j->on_devices ? live & -live : live; /* a device holds it once */
    for (unsigned slot = 0; slot < j->slots; slot++)
        if (slots & slot_bit(slot))
            entry_append(j, slot, &entry);
}

static struct journal_extent extent_of(const struct journal_piece *piece)
{
    bool payload = piece->pages != NULL;
    return (struct journal_extent){.role = piece->role,
                                   .column = piece->column,
                                   .len = piece->len,
                                   .crc = payload ? journal_crc(piece->pages, piece->column, piece->len) : 0,
                                   .payload = payload,
                                   .changed = piece->changed};
}

static void part_append(struct journal *j, struct journal_entry *entry, const struct journal_piece *pieces,
                        unsigned count)
{
    struct journal_stream *stream = stream_of(j, pieces[0].slot);
    entry->extents_count = count;
    for (unsigned i = 0; i < count; i++)
        entry->extents[i] = extent_of(&pieces[i]);
    entry_append(j, pieces[0].slot, entry);
    for (unsigned i = 0; i < count; i++)
        for (uint32_t page = 0; page < journal_extent_pages(&entry->extents[i]); page++)
            page_append(stream, pieces[i].pages[page], false);
}

static void record_append(struct journal *j, struct journal_record *record, uint64_t live)
{
    struct journal_entry entry = entry_new(j, record->kind, 0);
    uint32_t pages;
    entry.volume = *record->volume;
    entry.row = record->row;
    entry.absent = record->members & ~live;
    for (unsigned i = 0; i < record->pieces_count; i++)
        entry.slots |= live & slot_bit(record->pieces[i].slot);
    for (unsigned first = 0, end; first < record->pieces_count; first = end) {
        end = part_end(record, first, &pages);
        if (live & slot_bit(record->pieces[first].slot))
            part_append(j, &entry, &record->pieces[first], end - first);
    }
    *last_id(j, record->volume, record->row) = entry.id;
    record->live = true;
    record->group = j->next_group;
}

/* Ids, headers, and a place among the live groups. */
static void group_build(struct journal *j)
{
    struct journal_group *group = group_at(j, j->next_group);
    struct journal_record *record;
    uint64_t live = array_live_slots(j->array) & j->live;
    *group = (struct journal_group){.first_id = j->next_id};
    for (unsigned i = 0; i < j->streams_count; i++)
        j->starts[j->next_group % GROUPS * j->streams_count + i] = j->streams[i].head;
    if (j->with_tail)
        tail_append(j, live);
    STAILQ_FOREACH(record, &j->group, link)
    {
        record_append(j, record, live);
        group->undone++;
    }
    group->end_id = j->next_id;
    j->next_group++;
}

static void group_write(struct journal *j)
{
    sm_move(&j->state, JOURNAL_WRITING);
    group_build(j);
    j->busy = 1; /* until all are submitted */
    for (unsigned i = 0; i < j->streams_count; i++)
        if (j->streams[i].count > 0)
            stream_write(j, &j->streams[i]);
    if (--j->busy == 0)
        group_written(j);
}

/* --- the beginning of a group --- */

static void flush_record(struct journal *j)
{
    if (j->with_tail && !losses_wait(j->array, &j->recorded))
        return;
    if (j->array->frozen) {
        group_over(j);
        return;
    }
    j->flushed = MAX(j->flushed, j->flush_tail);
    if (j->with_tail) /* without it losses may not be on disk */
        j->tail = MAX(j->tail, j->flush_tail);
    group_write(j);
}

/* --- the last device is lost --- */

/* Entries go to the members from now on: all there was is over, and the epoch is a new one. */
static void devices_over(struct journal *j)
{
    if (!losses_wait(j->array, &j->recorded))
        return;
    sm_move(&j->state, JOURNAL_IDLE);
    j->on_devices = false;
    j->oldest = j->next_group;
    j->tail = j->flushed = j->next_id;
    for (unsigned i = 0; i < j->streams_count; i++)
        j->streams[i].head = j->streams[i].tail = 0;
    if (j->array->frozen)
        journal_frozen(j);
    else
        tail_is_durable(j);
    kick(j);
    array_step(j->array);
}

static void drain_flushed(struct array_flush *flush)
{
    struct journal *j = container_of(flush, struct journal, flush);
    sm_move(&j->state, JOURNAL_GIVING_UP);
    if (!j->array->frozen)
        journal_devices_give_up(j->array);
    devices_over(j);
}

/* D3: what is being written in place is not in doubt as long as nobody crashes; it comes to its end first. */
static void drain(struct journal *j)
{
    if (j->flush.pending > 0 || (done_below(j) < j->next_id && !j->array->frozen))
        return;
    if (!j->array->frozen) {
        array_flush_start(j->array, &j->flush, drain_flushed);
        return;
    }
    journal_frozen(j);
    array_step(j->array);
}

/* The group is on no device: its records wait for the members' rings, in their order. */
static void group_withdraw(struct journal *j)
{
    struct journal_record *record;
    sm_move(&j->state, JOURNAL_DRAINING);
    STAILQ_FOREACH(record, &j->group, link)
    record->live = false;
    STAILQ_CONCAT(&j->group, &j->queue);
    STAILQ_CONCAT(&j->queue, &j->group);
    j->next_group--;
    drain(j);
}

static void recorded(struct task *task)
{
    struct journal *j = container_of(task, struct journal, recorded);
    if (sm_state(&j->state) == JOURNAL_FLUSHING)
        flush_record(j);
    else if (sm_state(&j->state) == JOURNAL_GIVING_UP)
        devices_over(j);
    else
        group_record(j);
}

static void flushed(struct array_flush *flush)
{
    flush_record(container_of(flush, struct journal, flush));
}

/* J4: has a row of this group been written since the last flush? */
static bool flush_is_wanted(struct journal *j)
{
    const struct journal_record *record;
    STAILQ_FOREACH(record, &j->group, link)
    if (record->kind == JOURNAL_PARITY && *last_id(j, record->volume, record->row) >= j->flushed)
        return true;
    return false;
}

static bool caches_are_volatile(const struct journal *j)
{
    for (unsigned slot = 0; slot < j->slots; slot++)
        if (member_writable(&j->array->members[slot]) && j->array->members[slot].dev->info.volatile_cache)
            return true;
    return false;
}

static void kick(struct journal *j)
{
    if (sm_state(&j->state) == JOURNAL_DRAINING)
        drain(j);
    if (sm_state(&j->state) != JOURNAL_IDLE || j->array->frozen)
        return;
    plan_begin(j);
    group_plan(j);
    j->with_tail = tail_is_wanted(j);
    j->untold = j->untold && !j->with_tail;
    j->flush_tail = done_below(j);
    if (STAILQ_EMPTY(&j->group) && !j->with_tail)
        return;
    if (j->with_tail || flush_is_wanted(j)) {
        sm_move(&j->state, JOURNAL_FLUSHING);
        if (caches_are_volatile(j))
            array_flush_start(j->array, &j->flush, flushed);
        else
            flush_record(j);
        return;
    }
    group_write(j);
}

/* --- from outside --- */

void journal_write(struct journal *j, struct journal_record *record)
{
    record->over = record->live = false;
    STAILQ_INSERT_TAIL(&j->queue, record, link);
    if (j->array->frozen)
        journal_frozen(j);
    else
        kick(j);
}

void journal_written(struct journal *j, struct journal_record *record)
{
    if (!record->live)
        return;
    struct journal_group *group = group_at(j, record->group);
    ASSERT(record->group >= j->oldest && record->group < j->next_group && group->undone > 0);
    record->live = false;
    if (--group->undone == 0)
        kick(j);
}

void journal_joined(struct journal *j)
{
    j->untold = true;
    kick(j);
}

static bool wait_until(struct journal *j, uint64_t until, struct journal_wait *wait)
{
    wait->over = until < j->durable_tail || j->array->frozen;
    if (wait->over)
        return true;
    wait->until = until;
    struct journal_wait *before = TAILQ_LAST(&j->waits, journal_waits);
    while (before != NULL && before->until > until)
        before = TAILQ_PREV(before, journal_waits, link);
    if (before != NULL)
        TAILQ_INSERT_AFTER(&j->waits, before, wait, link);
    else
        TAILQ_INSERT_HEAD(&j->waits, wait, link);
    kick(j);
    return false;
}

bool journal_forget(struct journal *j, const struct uuid *volume, uint64_t row, struct journal_wait *wait)
{
    return wait_until(j, *last_id(j, volume, row), wait);
}

bool journal_settle(struct journal *j, struct journal_wait *wait)
{
    return wait_until(j, j->next_id - 1, wait);
}

bool journal_idle(const struct journal *j)
{
    return sm_state(&j->state) == JOURNAL_IDLE && STAILQ_EMPTY(&j->queue) && TAILQ_EMPTY(&j->waits);
}

void journal_frozen(struct journal *j)
{
    if (sm_state(&j->state) == JOURNAL_DRAINING && j->flush.pending == 0)
        sm_move(&j->state, JOURNAL_IDLE);
    records_end(j, &j->queue);
    waits_end(j, UINT64_MAX);
}

/* --- life --- */

static bool stream_init(struct journal *j, struct journal_stream *stream)
{
    const struct sb_array *a = &j->array->description;
    bool devices = stream == &j->streams[j->slots];
    uint64_t bytes = devices ? a->journals[0].bytes : a->journal_bytes;
    stream->journal = j;
    stream->start = devices ? a->journals[0].start : a->journal_start;
    stream->ring = (uint32_t)MIN(bytes / PAGE_BYTES, (uint64_t)JOURNAL_RING_PAGES_MAX);
    stream->room = devices ? STREAM_PAGES + j->slots * JOURNAL_ENTRY_PAGES : STREAM_PAGES;
    stream->pages = calloc(stream->room, sizeof(struct page *));
    stream->headers = calloc(stream->room, sizeof *stream->headers);
    for (unsigned i = 0; i < SB_JOURNALS_MAX; i++) {
        stream->copies[i].stream = stream;
        stream->copies[i].device = devices ? &j->array->journals[i] : NULL;
    }
    return stream->pages != NULL && stream->headers != NULL;
}

static bool memory_take(struct journal *j)
{
    unsigned disks = j->slots + j->array->description.journals_count;
    j->headers = page_pool_create(HEADERS * (1 + disks)); /* each disk may keep some: raid/patience.h */
    j->streams = calloc(j->streams_count, sizeof *j->streams);
    j->groups = calloc(GROUPS, sizeof *j->groups);
    j->starts = calloc((size_t)GROUPS * j->streams_count, sizeof *j->starts);
    if (j->headers == NULL || j->streams == NULL || j->groups == NULL || j->starts == NULL)
        return false;
    for (unsigned i = 0; i < j->streams_count; i++)
        if (!stream_init(j, &j->streams[i]))
            return false;
    return true;
}

struct journal *journal_create(struct array *array)
{
    struct journal *j = calloc(1, sizeof *j);
    if (j == NULL)
        return NULL;
    ASSERT(array->description.journal_bytes >= JOURNAL_BYTES_MIN);
    j->array = array;
    j->slots = array->slots_room;
    j->on_devices = journal_devices_live(array) > 0;
    j->streams_count = j->slots + (array->description.journals_count > 0);
    j->next_id = j->tail = j->durable_tail = j->flushed = 1;
    j->recorded.run = recorded;
    STAILQ_INIT(&j->queue);
    STAILQ_INIT(&j->group);
    TAILQ_INIT(&j->waits);
    sm_init(&j->state, journal_states, ARRAY_LENGTH(journal_states), JOURNAL_IDLE);
    if (memory_take(j))
        return j;
    journal_destroy(j);
    return NULL;
}

void journal_destroy(struct journal *j)
{
    ASSERT(journal_idle(j));
    if (j->headers != NULL)
        page_pool_retire(j->headers);
    for (unsigned i = 0; j->streams != NULL && i < j->streams_count; i++) {
        free(j->streams[i].pages);
        free(j->streams[i].headers);
    }
    free(j->streams);
    free(j->groups);
    free(j->starts);
    free(j);
}
