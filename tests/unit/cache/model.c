#include "tests/unit/cache/model.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "cache/arena.h"
#include "cache/log.h"
#include "core/check.h"
#include "core/log.h"

enum { SECTOR = 512, DISK = 256 * 1024 + 1536, SECTORS = DISK / SECTOR, ENTRIES = 128, DEPTH = 48, LONGEST = 96 * 1024 };
enum { NEVER = 0x7fffffff, SENT = 8 };

struct entry {
    uint64_t value;
    int submitted, answered, superseded, buried; /* times, or NEVER */
    bool ok;
};

struct sector {
    unsigned count;
    struct entry entries[ENTRIES];
};

struct model;

/* Pages that a reader still sends: nobody may write into them. */
struct sent {
    uint32_t count;
    uint64_t page_off, len, sum;
    struct page *pages[LONGEST / PAGE_BYTES + 1];
};

struct call {
    struct blk_req req;
    struct model *model;
    bool busy, durable;
    int submitted;
    uint64_t value;
    struct page *pages[LONGEST / PAGE_BYTES + 1];
};

struct model {
    const struct model_options *o;
    struct testloop *t;
    struct trialdisk *disk;
    struct cache *cache;
    struct blkdev *dev;
    uint64_t seed, values;
    int now; /* a step for each submission and each answer */
    unsigned in_flight, left;
    bool draining; /* the power has failed, and all is to be below before it is cut */
    struct blk_req drain;
    bool drained;
    struct sector *sectors;
    struct call calls[DEPTH];
    struct sent sent[SENT];
    unsigned next_sent;

    struct arena_memory memory;
    uint8_t *persistent; /* what of it survives a power failure */
    struct arena *arena;
    struct cache_owner owner;
    bool claimed, claim_refused;  /* it stands; the last answer was no */
    bool claim_asked, claim_held; /* what the owner is thinking about */
    struct timer claim;
    struct trialdisk *logs[LOG_DEVICES];
    struct cache_log *log;
    struct log_identity log_identity;
    uint64_t log_generation, asked_generation; /* in the claim that stands; in the one that is asked for */
    unsigned kill_in;                          /* so many steps; 0: not */
    struct model *next;
};

static void kill_step(struct model *m);
static void log_device_fails(struct model *m);

static uint64_t pick(struct model *m, uint64_t count)
{
    return test_random(&m->seed) % count;
}

/* --- the model --- */

static uint64_t value_at(const uint8_t *bytes, uint64_t sector)
{
    uint64_t words[SECTOR / 8];
    memcpy(words, bytes, SECTOR);
    for (unsigned i = 1; i < ARRAY_LENGTH(words); i++)
        if (words[i] != words[0])
            return UINT64_MAX; /* torn within a sector */
    return words[0] == 0 ? 0 : words[0] ^ sector << 40;
}

static void value_put(uint8_t *bytes, uint64_t sector, uint64_t value)
{
    uint64_t word = value == 0 ? 0 : value ^ sector << 40;
    for (unsigned i = 0; i < SECTOR / 8; i++)
        memcpy(bytes + i * 8, &word, 8);
}

static int oldest_start(const struct model *m)
{
    int oldest = m->now;
    for (unsigned i = 0; i < DEPTH; i++)
        if (m->calls[i].busy)
            oldest = MIN(oldest, m->calls[i].submitted);
    return oldest;
}

/* Those that nobody may see any more. */
static void prune(struct model *m, struct sector *s)
{
    int oldest = oldest_start(m);
    unsigned kept = 0;
    for (unsigned i = 0; i < s->count; i++)
        if (s->entries[i].superseded >= oldest || s->entries[i].buried == NEVER)
            s->entries[kept++] = s->entries[i];
    s->count = kept;
}

static void begin_change(struct model *m, struct call *call)
{
    for (uint64_t i = call->req.off / SECTOR; i < (call->req.off + call->req.len) / SECTOR; i++) {
        struct sector *s = &m->sectors[i];
        if (s->count == ENTRIES)
            prune(m, s);
        cr_assert(s->count < ENTRIES, "the model is full");
        s->entries[s->count++] = (struct entry){
            .value = call->value, .submitted = m->now, .answered = NEVER, .superseded = NEVER, .buried = NEVER};
    }
}

/* `by` is over, and durable or not: what ended before it began is no more. */
static void supersede(struct model *m, struct sector *s, const struct entry *by, bool durable)
{
    for (unsigned i = 0; i < s->count; i++) {
        struct entry *e = &s->entries[i];
        if (e->answered >= by->submitted)
            continue;
        e->superseded = MIN(e->superseded, m->now);
        if (durable)
            e->buried = MIN(e->buried, m->now);
    }
}

static struct entry *entry_of(struct sector *s, const struct call *call)
{
    for (unsigned i = s->count; i-- > 0;)
        if (s->entries[i].submitted == call->submitted)
            return &s->entries[i];
    return NULL;
}

static void end_change(struct model *m, struct call *call)
{
    bool ok = call->req.status == BLK_OK;
    for (uint64_t i = call->req.off / SECTOR; i < (call->req.off + call->req.len) / SECTOR; i++) {
        struct entry *e = entry_of(&m->sectors[i], call);
        cr_assert(e != NULL);
        e->answered = m->now;
        e->ok = ok;
        if (ok)
            supersede(m, &m->sectors[i], e, call->durable);
    }
}

/* All that had completed when it was submitted is durable. */
static void end_flush(struct model *m, const struct call *call)
{
    for (uint64_t i = 0; i < SECTORS; i++) {
        struct sector *s = &m->sectors[i];
        if (s->count == 1)
            continue;
        for (unsigned k = 0; k < s->count; k++)
            if (s->entries[k].ok && s->entries[k].answered < call->submitted)
                supersede(m, s, &s->entries[k], true);
        prune(m, s);
    }
}

static void end_read(struct model *m, const struct call *call)
{
    for (uint64_t at = call->req.off; at < call->req.off + call->req.len; at += SECTOR) {
        uint64_t page_off = call->req.off % PAGE_BYTES + (at - call->req.off);
        const uint8_t *bytes = (const uint8_t *)call->pages[page_off / PAGE_BYTES]->data + page_off % PAGE_BYTES;
        uint64_t value = value_at(bytes, at / SECTOR);
        const struct sector *s = &m->sectors[at / SECTOR];
        bool may = false;
        for (unsigned i = 0; i < s->count; i++)
            may = may || (s->entries[i].value == value && s->entries[i].superseded >= call->submitted);
        cr_assert(may, "%s, seed %lu: read of sector %lu gave %lx", m->o->cache.name, m->o->seed, at / SECTOR, value);
    }
}

static uint64_t sum_of(const struct sent *sent)
{
    static uint8_t bytes[LONGEST];
    uint64_t sum = 0;
    pages_copy_out(bytes, sent->pages, sent->page_off, sent->len);
    for (uint64_t i = 0; i < sent->len; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        sum = (sum ^ word) * 0x9e3779b97f4a7c15ull;
    }
    return sum;
}

static void sent_over(struct model *m, struct sent *sent)
{
    if (sent->count > 0)
        cr_assert_eq(sum_of(sent), sent->sum, "%s, seed %lu: written into while it was sent", m->o->cache.name,
                     m->o->seed);
    page_put_all(sent->pages, sent->count);
    sent->count = 0;
}

/* It goes on its way, and the oldest has arrived. */
static void send(struct model *m, struct call *call)
{
    struct sent *sent = &m->sent[m->next_sent++ % SENT];
    sent_over(m, sent);
    sent->count = page_count_for(call->req.off, call->req.len);
    sent->page_off = call->req.off % PAGE_BYTES;
    sent->len = call->req.len;
    memcpy(sent->pages, call->pages, sent->count * sizeof sent->pages[0]);
    sent->sum = sum_of(sent);
}

/* Nobody is working: from now on every sector is what it is. */
static void collapse(struct model *m, uint64_t sector, uint64_t value, const char *when, bool after_cut)
{
    struct sector *s = &m->sectors[sector];
    bool may = false;
    for (unsigned i = 0; i < s->count; i++)
        may = may ||
              (s->entries[i].value == value && (after_cut ? s->entries[i].buried : s->entries[i].superseded) == NEVER);
    cr_assert(may, "%s, seed %lu: %s sector %lu is %lx", m->o->cache.name, m->o->seed, when, sector, value);
    s->count = 1;
    s->entries[0] = (struct entry){.value = value, .answered = 0, .superseded = NEVER, .buried = NEVER, .ok = true};
}

/* What it is now; the power may still turn it into what it may also be. */
static void narrow(struct model *m, uint64_t sector, uint64_t value)
{
    struct sector *s = &m->sectors[sector];
    bool may = false;
    for (unsigned i = 0; i < s->count; i++) {
        may = may || (s->entries[i].value == value && s->entries[i].superseded == NEVER);
        if (s->entries[i].value != value)
            s->entries[i].superseded = MIN(s->entries[i].superseded, m->now);
    }
    cr_assert(may, "%s, seed %lu: in the next life sector %lu is %lx", m->o->cache.name, m->o->seed, sector, value);
}

/* --- the driver --- */

static void next_call(struct model *m, struct call *call);

static void call_done(struct blk_req *req)
{
    struct call *call = container_of(req, struct call, req);
    struct model *m = call->model;
    kill_step(m);
    m->now++;
    call->durable = req->flags & BLK_FUA || !m->dev->info.volatile_cache;
    if (blk_op_writes(req->op))
        end_change(m, call);
    else if (req->op == BLK_FLUSH && req->status == BLK_OK)
        end_flush(m, call);
    else if (req->op == BLK_READ && req->status == BLK_OK)
        end_read(m, call);
    if (req->op == BLK_READ && req->status == BLK_OK)
        send(m, call);
    else if (req->pages != NULL)
        page_put_all(call->pages, page_count_for(req->off, req->len));
    call->busy = false;
    m->in_flight--;
    kill_step(m);
    if (m->left > 0)
        next_call(m, call);
}

static enum blk_op pick_op(struct model *m)
{
    static const enum blk_op ops[] = {BLK_READ,  BLK_READ,  BLK_READ,  BLK_READ,    BLK_READ,         BLK_WRITE,
                                      BLK_WRITE, BLK_WRITE, BLK_WRITE, BLK_DISCARD, BLK_WRITE_ZEROES, BLK_FLUSH};
    return ops[pick(m, ARRAY_LENGTH(ops))];
}

static void pick_range(struct model *m, struct blk_req *req)
{
    static const uint64_t lengths[] = {1, 2, 8, 8, 8, 16, 32, 64, 128, LONGEST / SECTOR};
    uint64_t most = lengths[pick(m, ARRAY_LENGTH(lengths))], count = pick(m, 2) ? most : 1 + pick(m, most);
    uint64_t from = m->o->hot && pick(m, 4) ? 8 * pick(m, 24) : pick(m, SECTORS);
    if (pick(m, 2))
        from = round_down(from, 8);
    count = MIN(count, SECTORS - from);
    if (pick(m, 400) == 0 && !blk_op_has_data(req->op)) {
        from = 0;
        count = SECTORS;
    }
    req->off = from * SECTOR;
    req->len = count * SECTOR;
}

static void fill(struct call *call)
{
    for (uint64_t at = call->req.off; at < call->req.off + call->req.len; at += SECTOR) {
        uint64_t page_off = call->req.off % PAGE_BYTES + (at - call->req.off);
        value_put((uint8_t *)call->pages[page_off / PAGE_BYTES]->data + page_off % PAGE_BYTES, at / SECTOR,
                  call->value);
    }
}

static void circumstances_change(struct model *m)
{
    if (m->o->power_changes && !m->draining && pick(m, 40) == 0)
        cache_set_power(m->cache, pick(m, 2));
    if (m->o->limit_changes && pick(m, 40) == 0)
        cache_set_dirty_limit(m->cache, pick(m, 3) ? m->o->cache.bytes : pick(m, m->o->cache.bytes));
    if (m->o->log_deaths && pick(m, 200) == 0)
        log_device_fails(m);
}

static void next_call(struct model *m, struct call *call)
{
    circumstances_change(m);
    m->left--;
    m->in_flight++;
    m->now++;
    *call = (struct call){.model = m, .busy = true, .submitted = m->now};
    call->req = (struct blk_req){.op = pick_op(m), .done = call_done};
    if (call->req.op != BLK_FLUSH)
        pick_range(m, &call->req);
    if (blk_op_has_data(call->req.op)) {
        call->req.pages = call->pages;
        cr_assert(page_pool_get(m->t->loop.pages, call->pages, page_count_for(call->req.off, call->req.len)));
    }
    if (blk_op_writes(call->req.op) && call->req.op != BLK_DISCARD && pick(m, 8) == 0)
        call->req.flags = BLK_FUA;
    call->value = call->req.op == BLK_WRITE ? ++m->values : 0;
    if (call->req.op == BLK_WRITE)
        fill(call);
    if (blk_op_writes(call->req.op))
        begin_change(m, call);
    blk_submit(m->dev, &call->req);
}

static void work(struct model *m, unsigned requests)
{
    m->left = requests;
    for (unsigned i = 0; i < m->o->depth && m->left > 0; i++)
        if (!m->calls[i].busy)
            next_call(m, &m->calls[i]);
}

static void work_until(struct model *m, unsigned left)
{
    while (m->left > left || (left == 0 && m->in_flight > 0)) {
        testloop_run_ready(m->t);
        kill_step(m);
        uint64_t next = loop_next_timer_ns(&m->t->loop);
        if (m->in_flight == 0)
            break;
        cr_assert(next != UINT64_MAX, "%s, seed %lu: requests are forgotten", m->o->cache.name, m->o->seed);
        m->t->loop.now_ns = MAX(m->t->loop.now_ns, next);
    }
}

static void look_through_cache(struct model *m, bool at_end)
{
    uint8_t *bytes = malloc(DISK);
    cr_assert(bytes != NULL);
    for (uint64_t at = 0, len; at < DISK; at += len) {
        len = MIN((uint64_t)LONGEST, DISK - at);
        cr_assert_eq(test_io(m->t, m->dev, BLK_READ, 0, at, bytes + at, len), BLK_OK);
    }
    for (uint64_t i = 0; i < SECTORS; i++) {
        if (at_end)
            collapse(m, i, value_at(bytes + i * SECTOR, i), "at the end", false);
        else
            narrow(m, i, value_at(bytes + i * SECTOR, i));
    }
    m->now++;
    free(bytes);
}

/* Look at everything through the cache, and then at what is below once it is closed. */
static void look_at_all(struct model *m)
{
    look_through_cache(m, true);
    test_close(m->t, m->dev);
    cr_assert(m->log == NULL || !m->claimed || m->claim_refused, "%s, seed %lu: closed, and claimed", m->o->cache.name,
              m->o->seed);
    cr_assert(m->arena == NULL || (arena_published(m->arena) == 0 && (!m->claimed || m->claim_refused)),
              "%s, seed %lu: closed, %lu published, claimed %d", m->o->cache.name, m->o->seed,
              arena_published(m->arena), m->claimed);
    for (uint64_t i = 0; i < SECTORS; i++)
        collapse(m, i, value_at(m->disk->seen + i * SECTOR, i), "closed, below,", false);
    for (uint64_t i = 0; i < SECTORS; i++)
        cr_assert(!memcmp(m->disk->seen + i * SECTOR, m->disk->stable + i * SECTOR, SECTOR),
                  "%s, seed %lu: closed, and sector %lu is not durable", m->o->cache.name, m->o->seed, i);
}

static void drain_done(struct blk_req *req)
{
    struct model *m = container_of(req, struct model, drain);
    m->drained = req->status == BLK_OK;
    req->done = NULL;
}

/* Until it succeeds; requests go on. */
static void drain_all(struct model *m)
{
    m->draining = true;
    cache_set_power(m->cache, false);
    for (unsigned i = 0; !m->drained; i++) {
        if (m->drain.done == NULL) {
            m->drain = (struct blk_req){.done = drain_done};
            cache_drain(m->cache, &m->drain);
        }
        testloop_run_ready(m->t);
        uint64_t next = loop_next_timer_ns(&m->t->loop);
        cr_assert(m->drain.done == NULL || next != UINT64_MAX, "%s, seed %lu: a drain is forgotten", m->o->cache.name,
                  m->o->seed);
        if (next != UINT64_MAX)
            m->t->loop.now_ns = MAX(m->t->loop.now_ns, next);
        cr_assert_lt(i, 1000000, "%s, seed %lu: it is never drained", m->o->cache.name, m->o->seed);
    }
}

/* What the cut left is looked at beside the cache, which then goes on as if nothing had been: it is of no interest. */
static void look_after_cut(struct model *m)
{
    uint8_t *was = malloc(DISK);
    cr_assert(was != NULL);
    memcpy(was, m->disk->seen, DISK);
    trialdisk_cut(m->disk);
    for (uint64_t i = 0; i < SECTORS; i++) {
        uint64_t value = value_at(m->disk->seen + i * SECTOR, i);
        const struct sector *s = &m->sectors[i];
        bool may = false;
        for (unsigned k = 0; k < s->count; k++)
            may = may || (s->entries[k].value == value && s->entries[k].buried == NEVER);
        cr_assert(may, "%s, seed %lu: after the cut sector %lu is %lx", m->o->cache.name, m->o->seed, i, value);
    }
    memcpy(m->disk->seen, was, DISK);
    free(was);
}

static void no_log(enum log_level level, const char *line)
{
    (void)level;
    (void)line;
}

/* --- the arena, the claim, and kills --- */

static void on_persist(struct arena_memory *memory, uint64_t off, uint64_t len)
{
    struct model *m = container_of(memory, struct model, memory);
    kill_step(m);
    memcpy(m->persistent + off, (uint8_t *)memory->base + off, len);
    kill_step(m);
}

static void on_change(struct cache_owner *owner, struct cache *cache)
{
    (void)owner;
    (void)cache;
}

static void on_claim(struct cache_owner *owner, struct cache *cache, bool held)
{
    struct model *m = container_of(owner, struct model, owner);
    (void)cache;
    if (m->log != NULL) {
        struct cache_log_status status;
        cache_log_status(m->log, &status);
        m->asked_generation = status.generation;
    }
    m->claim_asked = true;
    m->claim_held = held;
    timer_start(&m->t->loop, &m->claim, pick(m, 3) * 1000000);
}

static void claim_fire(struct timer *timer)
{
    struct model *m = container_of(timer, struct model, claim);
    bool ok = pick(m, 4) != 0;
    kill_step(m);
    m->claim_asked = false;
    m->claim_refused = !ok;
    m->claimed = ok ? m->claim_held : m->claimed;
    m->log_generation = ok ? m->asked_generation : m->log_generation;
    cache_claimed(m->cache, m->claim_held, ok);
}

/* What a new life may find, and no more than that. */
static void entries_left(struct model *m, const struct model *before)
{
    m->now = before->now + 1;
    m->values = before->values;
    for (unsigned i = 0; i < SECTORS; i++) {
        const struct sector *from = &before->sectors[i];
        struct sector *to = &m->sectors[i];
        to->count = 0;
        for (unsigned k = 0; k < from->count; k++) {
            if (from->entries[k].buried != NEVER)
                continue;
            struct entry *e = &to->entries[to->count++];
            *e = from->entries[k];
            e->superseded = NEVER;
            e->answered = MIN(e->answered, m->now);
            e->ok = false;
        }
        to->entries[0].ok = to->count == 1;
    }
}

/* What is not published is of no account. */
static void arena_scramble(struct model *m)
{
    uint64_t pages = m->o->cache.bytes / PAGE_BYTES;
    uint8_t *headers = (uint8_t *)m->memory.base + 1024; /* docs/cache.md */
    uint8_t *first = (uint8_t *)m->memory.base + m->memory.bytes - pages * PAGE_BYTES;
    for (uint64_t i = 0; i < pages; i++) {
        uint64_t state;
        memcpy(&state, headers + i * 16 + 8, 8);
        if (state != 0 || pick(m, 2))
            continue;
        test_fill(headers + i * 16, 8, m->seed);
        test_fill(first + i * PAGE_BYTES, PAGE_BYTES, m->seed + 1);
    }
}

static void arena_left(struct model *m, const struct model *before, bool power)
{
    uint64_t *to = m->memory.base;
    const uint64_t *is = before->memory.base, *persistent = (const uint64_t *)before->persistent;
    for (uint64_t i = 0; i < m->memory.bytes / 8; i++)
        to[i] = power && is[i] != persistent[i] && pick(m, 2) ? persistent[i] : is[i];
    arena_scramble(m);
    if (m->persistent != NULL)
        memcpy(m->persistent, m->memory.base, m->memory.bytes);
}

static void arena_get(struct model *m)
{
    static const struct arena_identity identity = {.name = "model"};
    struct arena_report report;
    enum arena_verdict verdict = arena_look(m->memory.base, m->memory.bytes, &report);
    cr_assert_eq(report.torn_blocks, 0, "%s, seed %lu: %lu torn, block %lu", m->o->cache.name, m->o->seed,
                 report.torn_blocks, report.torn[0]);
    cr_assert(!m->claimed || verdict >= ARENA_CLEAN, "%s, seed %lu: claimed, and %s", m->o->cache.name, m->o->seed,
              arena_verdict_name(verdict));
    m->arena = m->claimed ? arena_open(&m->memory, false) : arena_create(&m->memory, &identity, m->o->cache.bytes);
    cr_assert(m->arena != NULL);
}

/* --- the log --- */

struct log_calling {
    struct cache_log_call call;
    struct task closed;
    bool over;
};

static void log_called(struct cache_log_call *call)
{
    container_of(call, struct log_calling, call)->over = true;
}

static void log_closed(struct task *task)
{
    container_of(task, struct log_calling, closed)->over = true;
}

/* It may be killed while it waits. */
static void log_wait(struct model *m, struct log_calling *calling)
{
    while (!calling->over) {
        testloop_run_ready(m->t);
        kill_step(m);
        uint64_t next = loop_next_timer_ns(&m->t->loop);
        cr_assert(calling->over || next != UINT64_MAX, "%s, seed %lu: a log is forgotten", m->o->cache.name,
                  m->o->seed);
        if (!calling->over)
            m->t->loop.now_ns = MAX(m->t->loop.now_ns, next);
    }
}

static void log_close(struct model *m)
{
    struct log_calling calling = {.closed.run = log_closed};
    cache_log_close(m->log, &calling.closed);
    log_wait(m, &calling);
    m->log = NULL;
}

static enum cache_log_result log_try(struct model *m, unsigned devices)
{
    struct log_calling calling = {.call.done = log_called};
    struct cache_log_options o = {.name = "model", .identity = m->log_identity, .least_generation = m->log_generation};
    for (unsigned i = 0; i < m->o->log_devices; i++)
        o.devices[i] = devices >> i & 1 ? &m->logs[i]->dev : NULL;
    m->log = cache_log_create(&o);
    cr_assert(m->log != NULL);
    if (m->claimed)
        cache_log_open(m->log, &m->disk->dev, &calling.call);
    else
        cache_log_format(m->log, &calling.call);
    log_wait(m, &calling);
    if (calling.call.result != CACHE_LOG_OK)
        log_close(m);
    return calling.call.result;
}

static void log_get(struct model *m)
{
    unsigned all = (1u << m->o->log_devices) - 1, some = 1 + (unsigned)pick(m, all);
    enum cache_log_result result = log_try(m, m->claimed && pick(m, 2) ? some : all);
    struct cache_log_status status;
    if (result == CACHE_LOG_STALE || result == CACHE_LOG_ABSENT)
        result = log_try(m, all);
    cr_assert_eq(result, CACHE_LOG_OK, "%s, seed %lu: %s", m->o->cache.name, m->o->seed, cache_log_result_name(result));
    kill_step(m);
    cache_log_status(m->log, &status);
    m->log_identity.log = status.log;
    m->log_generation = status.generation;
    m->claimed = m->claimed && pick(m, 2); /* renewed, or taken back */
    kill_step(m);
}

static void log_left(struct model *m, const struct model *before, bool power)
{
    for (unsigned i = 0; i < m->o->log_devices; i++)
        trialdisk_leave(before->logs[i], m->logs[i], power);
    m->log_identity = before->log_identity;
    m->log_generation = before->log_generation;
}

static void log_device_fails(struct model *m)
{
    static const uint32_t ops[] = {0, 1 << BLK_FLUSH, 1 << BLK_WRITE};
    struct trialdisk *disk = m->logs[pick(m, m->o->log_devices)];
    disk->fail_ops = ops[pick(m, ARRAY_LENGTH(ops))];
    disk->fail_percent = pick(m, 2) ? 100 : 30;
}

static struct model *model_create(const struct model_options *o, uint64_t seed);

/* The killed one goes on in a world of its own, and ends well. */
static void kill_step(struct model *m)
{
    if (m->kill_in == 0 || --m->kill_in > 0)
        return;
    struct model *next = model_create(m->o, m->seed + 17);
    bool power = (m->o->arena == MODEL_PMEM || m->o->log_devices > 0) && pick(next, 2);
    m->next = next;
    entries_left(next, m);
    trialdisk_leave(m->disk, next->disk, power);
    if (m->o->arena != MODEL_NO_ARENA)
        arena_left(next, m, power);
    log_left(next, m, power);
    bool arrived = m->claim_asked && pick(next, 2);
    next->claimed = arrived ? m->claim_held : m->claimed;
    next->log_generation = arrived ? m->asked_generation : m->log_generation;
}

static struct model *model_create(const struct model_options *o, uint64_t seed)
{
    struct model *m = calloc(1, sizeof *m);
    cr_assert(m != NULL);
    log_setup(no_log, LOG_LEVEL_ERROR);
    m->o = o;
    m->seed = seed;
    m->sectors = calloc(SECTORS, sizeof *m->sectors);
    cr_assert(m->sectors != NULL);
    for (unsigned i = 0; i < SECTORS; i++) {
        m->sectors[i].count = 1;
        m->sectors[i].entries[0] = (struct entry){.superseded = NEVER, .buried = NEVER, .ok = true};
    }
    m->t = testloop_create(DEPTH * (LONGEST / PAGE_BYTES + 1) * 2, seed + 1);
    m->disk = trialdisk_create(&m->t->loop, DISK, SECTOR, (o->parity ? 4 : 5) * 16 * 1024);
    m->disk->dev.info.row_part = o->parity ? 64 * 1024 : 0; /* a line is most of the disk */
    m->disk->seed = seed + 2;
    m->disk->latency_ns = pick(m, 4) == 0 ? 0 : 1000000;
    m->disk->replaces = pick(m, 2);
    m->disk->flush_ns = o->arena == MODEL_PMEM && pick(m, 2) ? 5000000 : 0;
    if (o->arena != MODEL_NO_ARENA) {
        uint64_t bytes = arena_bytes(o->cache.bytes);
        m->memory = (struct arena_memory){.base = aligned_alloc(PAGE_BYTES, bytes), .bytes = bytes};
        memset(m->memory.base, 0, bytes);
    }
    if (o->arena == MODEL_PMEM) {
        m->persistent = calloc(1, m->memory.bytes);
        m->memory.persist = on_persist;
    }
    for (unsigned i = 0; i < o->log_devices; i++) {
        m->logs[i] = trialdisk_create(&m->t->loop, (LOG_RING_AT + o->log_pages) * PAGE_BYTES, SECTOR, 0);
        m->logs[i]->seed = seed + 3 + i;
        m->logs[i]->latency_ns = pick(m, 4) == 0 ? 0 : 200000;
        m->logs[i]->replaces = pick(m, 2);
    }
    m->owner = (struct cache_owner){.changed = on_change, .claim = on_claim};
    m->claim.fire = claim_fire;
    return m;
}

static void model_start(struct model *m)
{
    struct cache_options options = m->o->cache;
    if (m->o->arena != MODEL_NO_ARENA) {
        arena_get(m);
        options.arena = m->arena;
        options.owner = &m->owner;
        options.claimed = m->claimed;
    }
    if (m->o->log_devices > 0) {
        log_get(m);
        options.log = m->log;
        options.owner = &m->owner;
        options.claimed = m->claimed;
    }
    m->cache = cache_create(&m->disk->dev, &options);
    cr_assert(m->cache != NULL);
    m->dev = cache_dev(m->cache);
}

static void model_destroy(struct model *m)
{
    m->kill_in = 0; /* too late */
    if (m->log != NULL)
        log_close(m);
    for (unsigned i = 0; i < m->o->log_devices; i++)
        test_close(m->t, &m->logs[i]->dev);
    test_close(m->t, &m->disk->dev);
    testloop_destroy(m->t);
    if (m->arena != NULL)
        arena_close(m->arena);
    free(m->memory.base);
    free(m->persistent);
    free(m->sectors);
    free(m);
}

/* Returns the next one, if this one was killed. */
static struct model *model_live(struct model *m, unsigned life)
{
    const struct model_options *o = m->o;
    const unsigned steps[] = {8, o->requests, o->requests, 5 * o->requests}; /* the last: perhaps while it closes */
    if (life < o->kills)
        m->kill_in = 1 + (unsigned)pick(m, steps[pick(m, ARRAY_LENGTH(steps))]);
    model_start(m);
    if (life > 0 && pick(m, 2))
        look_through_cache(m, false);
    m->disk->fail_percent = o->fail_percent;
    work(m, o->requests);
    if (o->cut) {
        work_until(m, (unsigned)pick(m, o->requests));
        if (o->cache.protection == CACHE_PROTECT_BATTERY)
            drain_all(m);
        look_after_cut(m);
        m->draining = false;
    }
    work_until(m, 0);
    cr_assert_eq(m->in_flight, 0);
    for (unsigned i = 0; i < SENT; i++)
        sent_over(m, &m->sent[i]);
    m->disk->fail_percent = 0;
    look_at_all(m);
    return m->next;
}

void model_run(const struct model_options *o)
{
    struct model *m = model_create(o, o->seed), *next;
    for (unsigned life = 0; m != NULL; life++, m = next) {
        next = model_live(m, life);
        model_destroy(m);
    }
}
