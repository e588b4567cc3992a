/*
 * See raid/map_store.h for the drawing and the rules.
 *
 * Writers are a fixed number of blocks that may be on their way to the members at once; each has a page. A scan goes
 * through the map in ranges of as many blocks as there are writers: read from all current members (if there is
 * something to load), choose the newest copy of each block, write it to the members that do not have it.
 */
#include "raid/map_store.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "raid/array_impl.h"

enum { WRITERS = 8, RANGE_PAGES = 2 * WRITERS };
#define SWEEP_NS 5000000000ull

enum map_state { MAP_IDLE, MAP_FLUSHING, MAP_WRITING, MAP_READING, MAP_SCANNING, MAP_ENDING };

static const struct sm_state map_states[] = {
    [MAP_IDLE] = {"idle", SM_TO(MAP_FLUSHING) | SM_TO(MAP_READING)},
    [MAP_FLUSHING] = {"flushing", SM_TO(MAP_WRITING) | SM_TO(MAP_IDLE)},
    [MAP_WRITING] = {"writing", SM_TO(MAP_IDLE)},
    [MAP_READING] = {"reading", SM_TO(MAP_SCANNING)},
    [MAP_SCANNING] = {"scanning", SM_TO(MAP_READING) | SM_TO(MAP_ENDING) | SM_TO(MAP_IDLE)},
    [MAP_ENDING] = {"ending", SM_TO(MAP_IDLE)},
};

struct map_writer {
    struct map_store *store;
    struct page *page;
    unsigned pending;
    struct map_write {
        struct blk_req req;
        struct map_writer *writer;
        unsigned slot;
        struct page *pages[2];
    } * writes; /* by slot */
};

/* One member's copy of a range. */
struct map_reader {
    struct map_store *store;
    struct blk_req req;
    unsigned slot, at;  /* page by page from `at` after an error */
    uint32_t good;      /* pages that could be read */
    bool singly, reads; /* reads: it is a current member */
    struct page *pages[RANGE_PAGES];
};

struct map_store {
    struct array *array;
    unsigned volume;
    struct region_map map;
    struct sm state;
    struct region_change_list queue, group;
    bool flush_first, sweep, sweep_all; /* sweep: asked for */
    bool sweeping;                      /* this group does */
    struct timer sweep_timer;
    struct array_flush flush;
    struct task recorded;
    unsigned next_block, busy; /* to be written next; writers at work, or readers */
    struct map_writer writers[WRITERS];
    struct page_pool *pages;
    struct page *zeroes;
    /* A scan. */
    uint64_t joined, copying; /* slots that want a copy; that are given one */
    bool copy_next;           /* a group has begun since they joined */
    bool load;
    struct task *over;
    /* What is new of a map that was extended. */
    bool extending; /* blocks from extend_from on wait to be laid out */
    unsigned extend_from;
    struct region_change extend_change;
    struct task extend_task, *extended;
    struct map_reader *readers;
    struct page_pool *read_pages;
};

static void kick(struct map_store *store);
static void scan_next(struct map_store *store);

static const struct sb_volume *volume_of(const struct map_store *store)
{
    return &store->array->description.volumes[store->volume];
}

/* Where slot `slot` of a block stands on every member. */
static uint64_t block_offset(const struct map_store *store, unsigned block, unsigned slot)
{
    return store->array->description.map_start + (volume_of(store)->map_block + block) * REGION_PAIR_BYTES +
           slot * REGION_BLOCK_BYTES;
}

/* --- one block to some members --- */

static void writer_over(struct map_store *store);

static void write_done(struct blk_req *req)
{
    struct map_write *write = container_of(req, struct map_write, req);
    struct map_writer *writer = write->writer;
    struct array *array = writer->store->array;
    if (req->status != BLK_OK && member_writable(&array->members[write->slot]))
        array_member_lose(array, &array->members[write->slot], req->status); /* S3 */
    if (--writer->pending > 0)
        return;
    writer->store->busy--;
    writer_over(writer->store);
}

static struct map_writer *writer_free(struct map_store *store)
{
    for (unsigned i = 0; i < WRITERS; i++)
        if (store->writers[i].pending == 0)
            return &store->writers[i];
    return NULL;
}

/* A disk that has not answered in time may still read the old one (raid/patience.h). It is lost, so there are enough. */
static void page_renew(struct map_store *store, struct page **page)
{
    if ((*page)->refs == 1)
        return;
    page_put(*page);
    bool taken = page_pool_take(store->pages, page, 1);
    ASSERT(taken);
}

/* `pairs`: of `slots`, those whose other slot of the block is wiped. Nothing happens without a live member. */
static void block_write(struct map_store *store, unsigned block, uint64_t slots, uint64_t pairs, unsigned flags)
{
    struct map_writer *writer = writer_free(store);
    struct array *array = store->array;
    unsigned half = store->map.of_block[block].sequence % 2;
    slots &= array_live_slots(array);
    if (slots == 0)
        return;
    store->busy++;
    writer->pending = (unsigned)__builtin_popcountll(slots);
    page_renew(store, &writer->page);
    region_block_encode(&store->map, block, sb_volume_key(volume_of(store)), writer->page->data);
    for (unsigned slot = 0; slot < array->description.members_count; slot++) {
        struct map_write *write = &writer->writes[slot];
        bool pair = pairs >> slot & 1;
        if (!(slots & slot_bit(slot)))
            continue;
        write->slot = slot;
        write->pages[0] = pair && half == 1 ? store->zeroes : writer->page;
        write->pages[1] = half == 1 ? writer->page : store->zeroes;
        write->req = (struct blk_req){.op = BLK_WRITE,
                                      .flags = flags,
                                      .off = block_offset(store, block, pair ? 0 : half),
                                      .len = pair ? REGION_PAIR_BYTES : REGION_BLOCK_BYTES,
                                      .pages = write->pages,
                                      .done = write_done};
        blk_submit(array->members[slot].dev, &write->req);
    }
}

/* --- groups of changes --- */

/* One that may be back. */
static bool member_away(const struct map_store *store)
{
    const struct array *array = store->array;
    for (unsigned slot = 0; slot < array->volumes[store->volume].layout.spec.members; slot++)
        if (!member_readable(&array->members[slot]))
            return true;
    return false;
}

static void changes_over(struct map_store *store, struct region_change_list *list)
{
    struct region_change *change;
    while ((change = STAILQ_FIRST(list)) != NULL) {
        STAILQ_REMOVE_HEAD(list, link);
        change->over = true;
        loop_defer(store->array->loop, change->task);
    }
}

static void sweep_later(struct map_store *store)
{
    struct array *array = store->array;
    if (store->map.counts[REGION_DIRTY] > 0 && !store->sweep_timer.armed && !array->frozen && !member_away(store) &&
        sm_state(&array->state) != ARRAY_CLOSING)
        timer_start(array->loop, &store->sweep_timer, SWEEP_NS);
}

/* What was to be done is, or will not be. */
static void rest(struct map_store *store)
{
    struct array *array = store->array;
    sm_move(&store->state, MAP_IDLE);
    if (array->frozen)
        map_store_frozen(store);
    sweep_later(store);
    kick(store);
    activity_look(array);
    array_step(array);
}

/*
 * Whoever waited for a change writes now, also what a member that was lost meanwhile does not know of. That must not be
 * the writer's word against that member's, each with a history of its own: so the loss is on disk first.
 */
static void group_over(struct map_store *store)
{
    if (!STAILQ_EMPTY(&store->group) && !losses_wait(store->array, &store->recorded))
        return;
    changes_over(store, &store->group);
    rest(store);
}

static void group_write(struct map_store *store)
{
    struct region_map *map = &store->map;
    for (; store->next_block < map->blocks && store->busy < WRITERS; store->next_block++) {
        struct region_block *block = &map->of_block[store->next_block];
        if (!block->changed)
            continue;
        block->changed = false;
        block->sequence++;
        block_write(store, store->next_block, UINT64_MAX, 0, BLK_FUA);
    }
    if (store->busy == 0)
        group_over(store);
}

static void sweep_end(struct map_store *store);

static void group_begin(struct map_store *store)
{
    sweep_end(store);
    sm_move(&store->state, MAP_WRITING);
    store->next_block = 0;
    group_write(store);
}

/* Flushed; now what members missed by being lost must be told, or they would count as whole (S1). */
static void group_record(struct map_store *store)
{
    if (!losses_wait(store->array, &store->recorded))
        return;
    if (store->array->frozen) {
        group_over(store);
        return;
    }
    group_begin(store);
}

static void group_recorded(struct task *task)
{
    struct map_store *store = container_of(task, struct map_store, recorded);
    if (sm_state(&store->state) == MAP_WRITING)
        group_over(store);
    else
        group_record(store);
}

static void group_flushed(struct array_flush *flush)
{
    group_record(container_of(flush, struct map_store, flush));
}

/* --- the sweep --- */

/*
 * Twice over the rows of a block that are DIRTY and not busy: before the flush to count those that it may make CLEAN,
 * and after it to do so. A touch is forgotten only while nobody is at work on the row: so who was not touched since has
 * had its last write before this flush began.
 */
static uint64_t sweep_block(struct map_store *store, unsigned block, bool flushed)
{
    struct region_map *map = &store->map;
    const struct volume *volume = store->array->volumes[store->volume].volume;
    uint64_t end = MIN(map->regions, (uint64_t)(block + 1) * REGION_PER_BLOCK), found = 0;
    uint64_t region = (uint64_t)block * REGION_PER_BLOCK;
    for (; (region = region_find(map, REGION_BIT(REGION_DIRTY), region, end)) < end; region++) {
        if (volume_row_busy(volume, region))
            continue;
        bool touched = flushed || store->sweep_all ? region_untouch(map, region) : region_touched(map, region);
        found += store->sweep_all || !touched;
        if (flushed && !touched)
            region_set(map, region, REGION_CLEAN);
    }
    return found;
}

static uint64_t sweep(struct map_store *store, bool flushed)
{
    uint64_t found = 0;
    for (unsigned block = 0; block < store->map.blocks; block++)
        if (store->map.of_block[block].dirty > 0)
            found += sweep_block(store, block, flushed);
    return found;
}

static void sweep_begin(struct map_store *store)
{
    store->sweeping = !member_away(store);
    store->flush_first |= store->sweeping && sweep(store, false) > 0;
    store->sweep = store->sweep_all = false;
}

/* Flushed, if there was anything to flush for. */
static void sweep_end(struct map_store *store)
{
    if (store->sweeping && !member_away(store)) /* S8 */
        (void)sweep(store, true);
    store->sweeping = false;
}

static void sweep_fire(struct timer *timer)
{
    struct map_store *store = container_of(timer, struct map_store, sweep_timer);
    store->sweep = true;
    kick(store);
}

static void group_start(struct map_store *store)
{
    struct region_change *change;
    store->flush_first = false;
    store->copy_next = store->joined != 0;
    if (store->sweep)
        sweep_begin(store);
    STAILQ_CONCAT(&store->group, &store->queue);
    STAILQ_FOREACH(change, &store->group, link)
    {
        region_set(&store->map, change->region, change->to);
        store->flush_first |= change->flush_first;
    }
    sm_move(&store->state, MAP_FLUSHING);
    if (store->flush_first)
        array_flush_start(store->array, &store->flush, group_flushed);
    else
        group_begin(store);
}

/* --- a scan: load, lay out, copy --- */

static void reader_submit(struct map_reader *reader);

/* The newest copy that is believed; 0: none. `*known`: a member could be read that would have it (S6). */
static uint64_t block_newest(struct map_store *store, unsigned block, unsigned at, const uint8_t **bytes, bool *known)
{
    uint64_t newest = 0;
    *known = false;
    for (unsigned slot = 0; slot < store->array->description.members_count; slot++) {
        const struct map_reader *reader = &store->readers[slot];
        if (!reader->reads)
            continue;
        *known |= (reader->good >> at & 3) == 3;
        for (unsigned half = 0; half < 2; half++) {
            if (!(reader->good >> (at + half) & 1))
                continue;
            const uint8_t *copy = reader->pages[at + half]->data;
            uint64_t sequence = region_block_sequence(block, sb_volume_key(volume_of(store)), copy);
            if (sequence > newest) {
                newest = sequence;
                *bytes = copy;
            }
        }
    }
    return newest;
}

/* Members that have this block already, and could be read. */
static uint64_t block_holders(struct map_store *store, unsigned block, unsigned at)
{
    uint64_t slots = 0, sequence = store->map.of_block[block].sequence;
    for (unsigned slot = 0; slot < store->array->description.members_count; slot++) {
        const struct map_reader *reader = &store->readers[slot];
        unsigned page = at + sequence % 2;
        if (reader->reads && (reader->good >> at & 3) == 3 &&
            region_block_sequence(block, sb_volume_key(volume_of(store)), reader->pages[page]->data) == sequence)
            slots |= slot_bit(slot);
    }
    return slots;
}

static void block_lost(struct map_store *store, unsigned block, uint64_t newest)
{
    log_error("array %s: block %u of the region map of volume %s cannot be read from any disk: its rows are "
              "resynchronised",
              store->array->description.name, block, volume_of(store)->name);
    region_block_lost(&store->map, block);
    store->map.of_block[block].sequence = newest + 1;
}

/* Loaded: choose, and write to those that are behind. A member that was not read, or not well, gets both slots. */
static void block_settle(struct map_store *store, unsigned block, unsigned at)
{
    struct array *array = store->array;
    const uint8_t *bytes = NULL;
    bool known;
    uint64_t newest = block_newest(store, block, at, &bytes, &known), pairs = array_live_slots(array);
    if (newest != 0 && known)
        region_block_load(&store->map, block, bytes);
    else
        block_lost(store, block, newest);
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (store->readers[slot].reads && (store->readers[slot].good >> at & 3) == 3)
            pairs &= ~slot_bit(slot);
    store->map.of_block[block].changed = false;
    block_write(store, block, ~block_holders(store, block, at), pairs, 0);
}

static unsigned range_end(const struct map_store *store)
{
    return MIN(store->next_block + WRITERS, store->map.blocks);
}

static void range_write(struct map_store *store)
{
    unsigned first = store->next_block, end = range_end(store);
    sm_move(&store->state, MAP_SCANNING);
    store->busy = 1; /* until all are submitted */
    for (unsigned block = first; block < end; block++)
        if (store->load)
            block_settle(store, block, 2 * (block - first));
        else
            block_write(store, block, store->copying, store->copying, 0);
    store->next_block = end;
    if (--store->busy == 0)
        scan_next(store);
}

static void reader_over(struct map_reader *reader)
{
    if (--reader->store->busy == 0)
        range_write(reader->store);
}

static void read_done(struct blk_req *req)
{
    struct map_reader *reader = container_of(req, struct map_reader, req);
    struct map_store *store = reader->store;
    struct array *array = store->array;
    unsigned pages = 2 * (range_end(store) - store->next_block);
    if (req->status == BLK_OK && !reader->singly) {
        reader->good = UINT32_MAX;
    } else if (!reader->singly) {
        reader->singly = true;
        reader->at = 0;
        reader_submit(reader);
        return;
    } else {
        if (req->status == BLK_OK)
            reader->good |= 1u << reader->at;
        else
            array_member_trouble(array, &array->members[reader->slot], BLK_READ, req->status, req->off);
        if (++reader->at < pages && member_readable(&array->members[reader->slot])) {
            reader_submit(reader);
            return;
        }
    }
    reader_over(reader);
}

static void reader_submit(struct map_reader *reader)
{
    struct map_store *store = reader->store;
    uint64_t len = (uint64_t)(range_end(store) - store->next_block) * REGION_PAIR_BYTES;
    uint64_t most = store->array->members[reader->slot].dev->info.max_request;
    reader->singly |= most != 0 && most < len;
    unsigned at = reader->singly ? reader->at : 0;
    reader->req = (struct blk_req){.op = BLK_READ,
                                   .off = block_offset(store, store->next_block, 0) + at * PAGE_BYTES,
                                   .len = reader->singly ? PAGE_BYTES : len,
                                   .pages = reader->pages + at,
                                   .done = read_done};
    blk_submit(store->array->members[reader->slot].dev, &reader->req);
}

static void range_read(struct map_store *store)
{
    struct array *array = store->array;
    store->busy = 1;
    for (unsigned slot = 0; store->load && slot < array->description.members_count; slot++) {
        struct map_reader *reader = &store->readers[slot];
        reader->reads = member_readable(&array->members[slot]);
        reader->good = reader->at = 0;
        reader->singly = false;
        if (!reader->reads)
            continue;
        store->busy++;
        reader_submit(reader);
    }
    if (--store->busy == 0)
        range_write(store);
}

static void readers_free(struct map_store *store)
{
    if (store->readers == NULL)
        return;
    for (unsigned slot = 0; slot < store->array->description.members_count; slot++)
        page_put_all(store->readers[slot].pages, RANGE_PAGES);
    free(store->readers);
    page_pool_retire(store->read_pages);
    store->readers = NULL;
}

static bool readers_create(struct map_store *store)
{
    unsigned members = store->array->description.members_count;
    store->read_pages = page_pool_create(members * RANGE_PAGES);
    store->readers = calloc(members, sizeof *store->readers);
    if (store->read_pages == NULL || store->readers == NULL) {
        if (store->read_pages != NULL)
            page_pool_destroy(store->read_pages);
        free(store->readers);
        store->readers = NULL;
        return false;
    }
    for (unsigned slot = 0; slot < members; slot++) {
        bool taken = page_pool_get(store->read_pages, store->readers[slot].pages, RANGE_PAGES);
        ASSERT(taken);
        store->readers[slot].store = store;
        store->readers[slot].slot = slot;
    }
    return true;
}

/* Loaded: the states of rows that are not to be believed (S9). */
static unsigned doubtful(const struct map_store *store)
{
    if (store->array->description.clean)
        return 0;
    enum sb_consistency policy = volume_of(store)->consistency;
    bool open = consistency_is_closed(policy) && journal_is_doubtful(&store->array->description);
    return policy == SB_RESYNC || open ? (unsigned)REGION_WRITTEN : REGION_BIT(REGION_DIRTY);
}

static void scan_over(struct map_store *store)
{
    struct task *over = store->over;
    if (store->load)
        region_map_doubt(&store->map, doubtful(store));
    store->copying = 0;
    store->over = NULL;
    store->load = false;
    readers_free(store);
    if (over != NULL)
        loop_defer(store->array->loop, over);
    rest(store);
    jobs_kick(store->array); /* a rebuild may have waited for this */
}

static void scan_flushed(struct array_flush *flush)
{
    scan_over(container_of(flush, struct map_store, flush));
}

static void scan_next(struct map_store *store)
{
    if (store->array->frozen) {
        scan_over(store);
    } else if (store->next_block < store->map.blocks) {
        sm_move(&store->state, MAP_READING);
        range_read(store);
    } else {
        sm_move(&store->state, MAP_ENDING);
        array_flush_start(store->array, &store->flush, scan_flushed);
    }
}

static void scan_start(struct map_store *store)
{
    store->copying = store->joined;
    store->joined = 0;
    store->copy_next = false;
    store->next_block = 0;
    sm_move(&store->state, MAP_READING);
    range_read(store);
}

/* As a copy to all: nothing that stood there is taken for newer (S4). */
static void extension_start(struct map_store *store)
{
    store->extending = false;
    store->over = store->extended;
    store->copying = array_live_slots(store->array);
    store->next_block = store->extend_from;
    sm_move(&store->state, MAP_READING);
    range_read(store);
}

static void writer_over(struct map_store *store)
{
    if (sm_state(&store->state) == MAP_WRITING)
        group_write(store);
    else if (store->busy == 0)
        scan_next(store);
}

/* --- from outside --- */

/* One group first: what was asked for before a member joined is in memory when its copy is made. */
static void kick(struct map_store *store)
{
    if (sm_state(&store->state) != MAP_IDLE || store->array->frozen)
        return;
    bool group = !STAILQ_EMPTY(&store->queue) || store->sweep;
    if (store->extending)
        extension_start(store);
    else if (store->joined != 0 && (store->copy_next || !group))
        scan_start(store);
    else if (group)
        group_start(store);
}

static bool writers_create(struct map_store *store)
{
    unsigned members = store->array->slots_room;
    store->pages = page_pool_create(WRITERS * (1 + members) + 1);
    if (store->pages == NULL)
        return false;
    for (unsigned i = 0; i <= WRITERS; i++) {
        bool taken = page_pool_get(store->pages, i < WRITERS ? &store->writers[i].page : &store->zeroes, 1);
        ASSERT(taken);
    }
    memset(store->zeroes->data, 0, PAGE_BYTES);
    for (unsigned i = 0; i < WRITERS; i++) {
        struct map_writer *writer = &store->writers[i];
        writer->store = store;
        writer->writes = calloc(members, sizeof *writer->writes);
        if (writer->writes == NULL)
            return false;
        for (unsigned slot = 0; slot < members; slot++)
            writer->writes[slot].writer = writer;
    }
    return true;
}

struct map_store *map_store_create(struct array *array, unsigned volume, uint64_t regions)
{
    struct map_store *store = calloc(1, sizeof *store);
    if (store == NULL)
        return NULL;
    store->array = array;
    store->volume = volume;
    STAILQ_INIT(&store->queue);
    STAILQ_INIT(&store->group);
    store->sweep_timer.fire = sweep_fire;
    store->recorded.run = group_recorded;
    sm_init(&store->state, map_states, ARRAY_LENGTH(map_states), MAP_IDLE);
    if (region_map_init(&store->map, regions) && writers_create(store))
        return store;
    map_store_destroy(store);
    return NULL;
}

void map_store_destroy(struct map_store *store)
{
    ASSERT(map_store_idle(store));
    timer_stop(store->array->loop, &store->sweep_timer);
    if (store->pages != NULL) {
        page_put(store->zeroes);
        for (unsigned i = 0; i < WRITERS; i++) {
            page_put(store->writers[i].page);
            free(store->writers[i].writes);
        }
        page_pool_retire(store->pages);
    }
    region_map_fini(&store->map);
    free(store);
}

struct region_map *map_store_map(struct map_store *store)
{
    return &store->map;
}

bool map_store_open(struct map_store *store, bool fresh, struct task *over)
{
    ASSERT(map_store_idle(store));
    if (!fresh && !readers_create(store))
        return false;
    store->over = over;
    store->load = !fresh;
    for (unsigned block = 0; fresh && block < store->map.blocks; block++)
        store->map.of_block[block].sequence = 1;
    store->joined = fresh ? array_live_slots(store->array) : 0;
    scan_start(store);
    return true;
}

/* The new part of the last old block is on the members. */
static void extension_queue(struct task *task)
{
    struct map_store *store = container_of(task, struct map_store, extend_task);
    store->extending = true;
    if (store->array->frozen)
        map_store_frozen(store);
    else
        kick(store);
}

bool map_store_extend(struct map_store *store, uint64_t regions, struct task *over)
{
    struct region_map *map = &store->map;
    uint64_t was = map->regions;
    unsigned blocks = map->blocks;
    ASSERT(regions >= was && !store->extending);
    if (!region_map_resize(map, regions))
        return false;
    for (unsigned block = blocks; block < map->blocks; block++)
        map->of_block[block].sequence = 1;
    store->extend_from = blocks;
    store->extended = over;
    store->extend_task.run = extension_queue;
    if (regions == was || was % REGION_PER_BLOCK == 0) {
        loop_defer(store->array->loop, &store->extend_task);
        return true;
    }
    /* Of a volume that was longer once, its block may say something of them. */
    map->of_block[blocks - 1].changed = true;
    store->extend_change = (struct region_change){.region = was, .to = REGION_UNWRITTEN, .task = &store->extend_task};
    map_store_change(map, &store->extend_change);
    return true;
}

void map_store_truncate(struct map_store *store, uint64_t regions)
{
    bool smaller = region_map_resize(&store->map, regions);
    ASSERT(smaller); /* it takes no memory */
}

void map_store_renumber(struct map_store *store, unsigned volume)
{
    store->volume = volume;
}

void map_store_change(struct region_map *map, struct region_change *change)
{
    struct map_store *store = container_of(map, struct map_store, map);
    change->over = false;
    STAILQ_INSERT_TAIL(&store->queue, change, link);
    if (store->array->frozen)
        map_store_frozen(store);
    else
        kick(store);
}

void map_store_copy(struct map_store *store, unsigned slot)
{
    store->joined |= slot_bit(slot);
    kick(store);
}

bool map_store_copying(const struct map_store *store)
{
    return (store->joined | store->copying) != 0;
}

void map_store_stir(struct map_store *store)
{
    sweep_later(store);
}

void map_store_settle(struct map_store *store)
{
    timer_stop(store->array->loop, &store->sweep_timer);
    store->sweep = store->sweep_all = true;
    kick(store);
}

bool map_store_idle(const struct map_store *store)
{
    return sm_state(&store->state) == MAP_IDLE && STAILQ_EMPTY(&store->queue) && !store->sweep && !store->extending;
}

bool map_store_saved(const struct map_store *store)
{
    return !region_map_changed(&store->map);
}

void map_store_frozen(struct map_store *store)
{
    timer_stop(store->array->loop, &store->sweep_timer);
    store->sweep = store->sweep_all = false;
    store->joined = 0;
    if (store->extending)
        loop_defer(store->array->loop, store->extended);
    store->extending = false;
    if (sm_state(&store->state) == MAP_IDLE)
        changes_over(store, &store->queue);
}
