#include "tests/unit/cache/model.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"

enum { SECTOR = 512, DISK = 256 * 1024 + 1536, SECTORS = DISK / SECTOR, ENTRIES = 64, DEPTH = 48, LONGEST = 96 * 1024 };
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
};

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

/* --- the driver --- */

static void next_call(struct model *m, struct call *call);

static void call_done(struct blk_req *req)
{
    struct call *call = container_of(req, struct call, req);
    struct model *m = call->model;
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
        uint64_t next = loop_next_timer_ns(&m->t->loop);
        if (m->in_flight == 0)
            break;
        cr_assert(next != UINT64_MAX, "%s, seed %lu: requests are forgotten", m->o->cache.name, m->o->seed);
        m->t->loop.now_ns = MAX(m->t->loop.now_ns, next);
    }
}

/* Look at everything through the cache, and then at what is below once it is closed. */
static void look_at_all(struct model *m)
{
    uint8_t *bytes = malloc(DISK);
    cr_assert(bytes != NULL);
    for (uint64_t at = 0, len; at < DISK; at += len) {
        len = MIN((uint64_t)LONGEST, DISK - at);
        cr_assert_eq(test_io(m->t, m->dev, BLK_READ, 0, at, bytes + at, len), BLK_OK);
    }
    for (uint64_t i = 0; i < SECTORS; i++)
        collapse(m, i, value_at(bytes + i * SECTOR, i), "at the end", false);
    free(bytes);
    test_close(m->t, m->dev);
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

static struct model *model_create(const struct model_options *o)
{
    struct model *m = calloc(1, sizeof *m);
    cr_assert(m != NULL);
    log_setup(no_log, LOG_LEVEL_ERROR);
    m->o = o;
    m->seed = o->seed;
    m->sectors = calloc(SECTORS, sizeof *m->sectors);
    cr_assert(m->sectors != NULL);
    for (unsigned i = 0; i < SECTORS; i++) {
        m->sectors[i].count = 1;
        m->sectors[i].entries[0] = (struct entry){.superseded = NEVER, .buried = NEVER, .ok = true};
    }
    m->t = testloop_create(DEPTH * (LONGEST / PAGE_BYTES + 1) * 2, o->seed + 1);
    m->disk = trialdisk_create(&m->t->loop, DISK, SECTOR, 5 * 16 * 1024);
    m->disk->seed = o->seed + 2;
    m->disk->latency_ns = pick(m, 4) == 0 ? 0 : 1000000;
    m->disk->replaces = pick(m, 2);
    m->cache = cache_create(&m->disk->dev, &o->cache);
    cr_assert(m->cache != NULL);
    m->dev = cache_dev(m->cache);
    return m;
}

void model_run(const struct model_options *o)
{
    struct model *m = model_create(o);
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
    test_close(m->t, &m->disk->dev);
    testloop_destroy(m->t);
    free(m->sectors);
    free(m);
}
