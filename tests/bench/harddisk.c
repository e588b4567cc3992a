/*
 * See harddisk.h.
 *
 *      submit ---> line (C-LOOK) ---> tags ---------------> the head ---> answered        reads, writes with FUA
 *                                       |                      ^
 *                                       +---> answered, cached +                          writes
 *
 * Bytes of the array's own areas move when a request is submitted (writes) or answered (reads): nobody here loses
 * power.
 */
#include "tests/bench/harddisk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"

enum { TAGS = 32, CACHED_MAX = 64, SEGMENTS = 8, ZONES = 16 };
#define CACHED_BYTES  (8 * MIB)
#define AHEAD_BYTES   (512 * KIB)
#define TURN_NS       6000000.0
#define OUTER_RATE    86e6
#define INNER_RATE    54e6
#define SETTLE_NS     0.6e6
#define SQRT_NS       3.5e6
#define LINEAR_NS     6.1e6
#define WRITE_NS      0.4e6
#define COMMAND_NS    100000
#define WIRE_RATE     150e6
#define STAND_BACK_NS 4e6
#define AGEING        0.03
#define TURN_SLACK    0.01 /* of a turn: rounding, at what follows on the disk */

/* A request, or, when it was answered from the cache, what is left of it to be written. */
struct transfer {
    TAILQ_ENTRY(transfer) link; /* line, tags or cached; or on the wire */
    struct harddisk *disk;
    struct blk_req *req; /* NULL: answered */
    uint64_t off, len;
    bool writes;
    uint64_t since_ns, sequence; /* when it came; of what is cached: the order of answers */
    struct timer wire;
};
TAILQ_HEAD(transfers, transfer);

struct segment {
    uint64_t from, to;
};

struct harddisk {
    struct blkdev dev;
    struct transfers line, tags, cached;
    struct transfers flushes; /* sequence: what they cover */
    unsigned tags_count, cached_count;
    uint64_t cached_bytes, sequence, sweep; /* sweep: where the line was served last */
    uint64_t wire_free_ns;

    struct transfer *moving; /* under the head */
    struct timer head;
    uint64_t at; /* where the head is when it has finished */
    struct segment segments[SEGMENTS];
    unsigned next_segment;
    bool reads_on; /* behind segments[next_segment - 1], since reads_on_ns, not beyond reads_on_most */
    uint64_t reads_on_ns, reads_on_most;

    uint64_t data_from, data_to;
    uint8_t **kept; /* pages */
    struct harddisk_counts counts;
};

static struct harddisk *disk_of(const struct blkdev *dev)
{
    return container_of((struct blkdev *)dev, struct harddisk, dev);
}

static uint64_t now_ns(const struct harddisk *d)
{
    return loop_now_ns(d->dev.loop);
}

/* --- mechanics --- */

static double rate_at(const struct harddisk *d, uint64_t off)
{
    uint64_t zone = MIN(off * ZONES / d->dev.info.size, (uint64_t)ZONES - 1);
    return OUTER_RATE - (OUTER_RATE - INNER_RATE) * (double)zone / (ZONES - 1);
}

/* Of a turn. */
static double angle_of(const struct harddisk *d, uint64_t off)
{
    uint64_t zone = MIN(off * ZONES / d->dev.info.size, (uint64_t)ZONES - 1);
    double turns = (double)(off - zone * (d->dev.info.size / ZONES)) / (rate_at(d, off) * TURN_NS / 1e9);
    return turns - floor(turns);
}

static double seek_ns(const struct harddisk *d, uint64_t from, uint64_t to, bool writes)
{
    uint64_t far = from > to ? from - to : to - from;
    double part = (double)far / (double)d->dev.info.size, track = rate_at(d, to) * TURN_NS / 1e9;
    if (far == 0)
        return 0;
    double way = (double)far < track ? 0 : SETTLE_NS + SQRT_NS * sqrt(part) + LINEAR_NS * part;
    return way + (writes ? WRITE_NS : 0);
}

/* Until `off` comes under the head, if it sets out now. */
static double wait_ns(const struct harddisk *d, uint64_t off, bool writes, double *seek)
{
    *seek = seek_ns(d, d->at, off, writes);
    double arrives = ((double)now_ns(d) + *seek) / TURN_NS, wait = angle_of(d, off) - (arrives - floor(arrives));
    wait -= floor(wait);
    return *seek + (wait > 1 - TURN_SLACK ? 0 : wait) * TURN_NS;
}

/* --- what the buffer holds --- */

static struct segment *last_segment(const struct harddisk *d)
{
    return (struct segment *)&d->segments[(d->next_segment + SEGMENTS - 1) % SEGMENTS];
}

static uint64_t read_on_to(const struct harddisk *d)
{
    const struct segment *s = last_segment(d);
    double bytes = d->reads_on ? (double)(now_ns(d) - d->reads_on_ns) * rate_at(d, s->to) / 1e9 : 0;
    return MIN(s->to + round_down((uint64_t)bytes, 512), d->reads_on ? d->reads_on_most : s->to);
}

/* The head goes on: what it has read on by now stays in the buffer. */
static void read_on_end(struct harddisk *d)
{
    if (!d->reads_on)
        return;
    d->at = last_segment(d)->to = read_on_to(d);
    d->reads_on = false;
}

static void read_on_begin(struct harddisk *d, uint64_t from, uint64_t to)
{
    struct segment *s = last_segment(d);
    if (s->from <= from && from <= s->to && s->to <= to && s->to > 0) {
        s->to = to;
        s->from = MAX(s->from, to - MIN(to, (uint64_t)AHEAD_BYTES));
    } else {
        d->segments[d->next_segment++] = (struct segment){from, to};
        d->next_segment %= SEGMENTS;
    }
    d->reads_on = true;
    d->reads_on_ns = now_ns(d);
    d->reads_on_most = MIN(to + AHEAD_BYTES, d->dev.info.size);
}

/* Who reads what was read on has more read on, if the head has not come to rest. */
static void read_on_more(struct harddisk *d, uint64_t off, uint64_t len)
{
    if (d->reads_on && off >= last_segment(d)->from && off + len <= read_on_to(d) && read_on_to(d) < d->reads_on_most)
        d->reads_on_most = MIN(MAX(d->reads_on_most, off + len + AHEAD_BYTES), d->dev.info.size);
}

/* Where the head is to begin: the first part may be in the buffer. */
static uint64_t begin_of(const struct harddisk *d, const struct transfer *t)
{
    const struct segment *s = last_segment(d);
    uint64_t to = read_on_to(d);
    return !t->writes && s->from <= t->off && t->off < to ? MIN(to, t->off + t->len) : t->off;
}

static void segments_forget(struct harddisk *d, uint64_t off, uint64_t len)
{
    for (unsigned i = 0; i < SEGMENTS; i++)
        if (d->segments[i].from < off + len && off < d->segments[i].to)
            d->segments[i] = (struct segment){0, 0};
}

static bool is_buffered(const struct harddisk *d, uint64_t off, uint64_t len)
{
    const struct transfer *t;
    for (unsigned i = 0; i < SEGMENTS; i++) {
        const struct segment *s = &d->segments[i];
        uint64_t to = s == last_segment(d) ? read_on_to(d) : s->to;
        if (s->from <= off && off + len <= to)
            return true;
    }
    TAILQ_FOREACH(t, &d->cached, link)
    if (t->off <= off && off + len <= t->off + t->len)
        return true;
    return false;
}

/* --- bytes --- */

/* The page of the array's own areas that byte `at` is in. */
static uint8_t *page_at(struct harddisk *d, uint64_t at, bool make)
{
    uint8_t **page = &d->kept[at / PAGE_BYTES];
    if (at >= d->data_from && at < d->data_to)
        return NULL;
    if (*page == NULL && make) {
        *page = calloc(1, PAGE_BYTES);
        ASSERT(*page != NULL);
    }
    return *page;
}

static void bytes_move(struct harddisk *d, const struct blk_req *req)
{
    for (uint64_t at = req->off, end = req->off + req->len, len; at < end; at += len) {
        len = MIN(PAGE_BYTES - at % PAGE_BYTES, end - at);
        uint8_t *own = page_at(d, at, req->op != BLK_READ);
        struct page *page = req->pages == NULL ? NULL : req->pages[at / PAGE_BYTES - req->off / PAGE_BYTES];
        uint8_t *lent = page == NULL ? NULL : (uint8_t *)page->data + at % PAGE_BYTES;
        if (req->op == BLK_READ && own == NULL)
            memset(lent, 0, len);
        else if (req->op == BLK_READ)
            memcpy(lent, own + at % PAGE_BYTES, len);
        else if (own != NULL && lent != NULL)
            memcpy(own + at % PAGE_BYTES, lent, len);
        else if (own != NULL)
            memset(own + at % PAGE_BYTES, 0, len);
    }
}

static void answer(struct harddisk *d, struct blk_req *req)
{
    if (req->op == BLK_READ)
        bytes_move(d, req);
    blk_complete(req, BLK_OK);
}

/* --- the wire --- */

static void wire_fire(struct timer *timer)
{
    struct transfer *t = container_of(timer, struct transfer, wire);
    struct blk_req *req = t->req;
    t->req = NULL;
    if (!t->writes) /* else it is in the cache, and may have been written by now */
        answer(t->disk, req);
    else
        blk_complete(req, BLK_OK);
    if (t->len == 0 || !t->writes)
        free(t);
}

static void wire_start(struct harddisk *d, struct transfer *t)
{
    uint64_t takes = COMMAND_NS + (uint64_t)((double)t->req->len * 1e9 / WIRE_RATE);
    d->wire_free_ns = MAX(d->wire_free_ns, now_ns(d)) + takes;
    t->wire.fire = wire_fire;
    timer_start(d->dev.loop, &t->wire, d->wire_free_ns - now_ns(d));
}

/* --- flushes --- */

static void flushes_look(struct harddisk *d)
{
    struct transfer *flush, *next;
    const struct transfer *t;
    for (flush = TAILQ_FIRST(&d->flushes); flush != NULL; flush = next) {
        bool waits = d->moving != NULL && d->moving->sequence != 0 && d->moving->sequence <= flush->sequence;
        TAILQ_FOREACH(t, &d->cached, link)
        waits = waits || t->sequence <= flush->sequence;
        next = TAILQ_NEXT(flush, link);
        if (waits)
            continue;
        TAILQ_REMOVE(&d->flushes, flush, link);
        wire_start(d, flush);
    }
}

/* --- the head --- */

static double cost_ns(const struct harddisk *d, const struct transfer *t, bool readers)
{
    double seek, wait = wait_ns(d, begin_of(d, t), t->writes, &seek);
    bool pressed = d->cached_count > CACHED_MAX / 4 * 3 || !TAILQ_EMPTY(&d->flushes);
    double back = t->sequence != 0 && readers && !pressed ? STAND_BACK_NS : 0;
    return wait + back - AGEING * (double)(now_ns(d) - t->since_ns);
}

static struct transfer *best_of(const struct harddisk *d, const struct transfers *list, struct transfer *best,
                                double *least)
{
    struct transfer *t;
    TAILQ_FOREACH(t, list, link)
    {
        double cost = cost_ns(d, t, d->tags_count > 0);
        if (best != NULL && cost >= *least)
            continue;
        best = t;
        *least = cost;
    }
    return best;
}

static void line_pump(struct harddisk *d);

static void head_start(struct harddisk *d)
{
    double least = 0, seek;
    if (d->moving != NULL || (TAILQ_EMPTY(&d->tags) && TAILQ_EMPTY(&d->cached)))
        return;
    read_on_end(d);
    struct transfer *t = best_of(d, &d->cached, best_of(d, &d->tags, NULL, &least), &least);
    uint64_t begin = begin_of(d, t);
    double wait = wait_ns(d, begin, t->writes, &seek);
    double takes = wait + (double)(t->off + t->len - begin) * 1e9 / rate_at(d, begin);
    TAILQ_REMOVE(t->sequence != 0 ? &d->cached : &d->tags, t, link);
    d->moving = t;
    d->counts.media_writes += t->writes;
    d->counts.media_reads += !t->writes;
    d->counts.busy_ns += (uint64_t)takes;
    d->counts.seek_ns += (uint64_t)seek;
    d->counts.turn_ns += (uint64_t)(wait - seek);
    timer_start(d->dev.loop, &d->head, (uint64_t)takes);
}

/* What was cached is gone from the cache; its answer may still be on the wire. */
static void cached_over(struct harddisk *d, struct transfer *t)
{
    d->cached_count--;
    d->cached_bytes -= t->len;
    t->len = 0;
    if (t->req == NULL)
        free(t);
}

static void head_fire(struct timer *timer)
{
    struct harddisk *d = container_of(timer, struct harddisk, head);
    struct transfer *t = d->moving;
    d->moving = NULL;
    d->at = t->off + t->len;
    if (!t->writes)
        read_on_begin(d, t->off, d->at);
    if (t->sequence != 0) {
        cached_over(d, t);
    } else {
        d->tags_count--;
        answer(d, t->req);
        free(t);
    }
    flushes_look(d);
    line_pump(d);
    head_start(d);
}

/* --- the queue --- */

static bool fits(const struct harddisk *d, const struct transfer *t)
{
    if (!t->writes || t->req->flags & BLK_FUA)
        return d->tags_count < TAGS;
    return d->cached_count < CACHED_MAX && d->cached_bytes + t->len <= MAX(CACHED_BYTES, t->len);
}

/* The same bytes once more: the older ones need not be written, and whoever waits for them waits for these. */
static void supersede(struct harddisk *d, struct transfer *by)
{
    struct transfer *t, *next;
    for (t = TAILQ_FIRST(&d->cached); t != NULL; t = next) {
        next = TAILQ_NEXT(t, link);
        if (t->off < by->off || t->off + t->len > by->off + by->len)
            continue;
        by->sequence = MIN(by->sequence, t->sequence);
        TAILQ_REMOVE(&d->cached, t, link);
        cached_over(d, t);
    }
}

static void enter(struct harddisk *d, struct transfer *t)
{
    if (!t->writes && is_buffered(d, t->off, t->len)) {
        d->counts.buffered++;
        read_on_more(d, t->off, t->len);
        wire_start(d, t);
    } else if (!t->writes || t->req->flags & BLK_FUA) {
        d->tags_count++;
        TAILQ_INSERT_TAIL(&d->tags, t, link);
    } else {
        t->sequence = ++d->sequence;
        supersede(d, t);
        d->cached_count++;
        d->cached_bytes += t->len;
        TAILQ_INSERT_TAIL(&d->cached, t, link);
        wire_start(d, t);
    }
}

/* The next in the order of the disk that the drive has room for. */
static struct transfer *line_next_of(struct harddisk *d)
{
    struct transfer *t, *first = NULL, *next = NULL;
    TAILQ_FOREACH(t, &d->line, link)
    {
        if (!fits(d, t))
            continue;
        if (first == NULL || t->off < first->off)
            first = t;
        if (t->off >= d->sweep && (next == NULL || t->off < next->off))
            next = t;
    }
    return next != NULL ? next : first;
}

static void line_pump(struct harddisk *d)
{
    struct transfer *t;
    while ((t = line_next_of(d)) != NULL) {
        TAILQ_REMOVE(&d->line, t, link);
        d->sweep = t->off;
        enter(d, t);
    }
}

static void harddisk_submit(struct blkdev *dev, struct blk_req *req)
{
    struct harddisk *d = disk_of(dev);
    struct transfer *t = calloc(1, sizeof *t);
    ASSERT(t != NULL);
    *t = (struct transfer){.disk = d,
                           .req = req,
                           .off = req->off,
                           .len = req->len,
                           .writes = blk_op_writes(req->op),
                           .since_ns = now_ns(d)};
    if (req->op == BLK_FLUSH) {
        d->counts.flushes++;
        t->sequence = d->sequence;
        TAILQ_INSERT_TAIL(&d->flushes, t, link);
        flushes_look(d);
        return;
    }
    if (t->writes) {
        segments_forget(d, req->off, req->len);
        bytes_move(d, req);
    }
    TAILQ_INSERT_TAIL(&d->line, t, link);
    line_pump(d);
    head_start(d);
}

/* --- life --- */

static void harddisk_close(struct blkdev *dev, struct task *closed)
{
    struct harddisk *d = disk_of(dev);
    struct loop *loop = dev->loop;
    struct transfer *t;
    timer_stop(loop, &d->head);
    while ((t = TAILQ_FIRST(&d->cached)) != NULL) {
        TAILQ_REMOVE(&d->cached, t, link);
        free(t);
    }
    free(d->moving);
    for (uint64_t i = 0; i <= dev->info.size / PAGE_BYTES; i++)
        free(d->kept[i]);
    free(d->kept);
    free(d);
    loop_defer(loop, closed);
}

static const struct blkdev_ops harddisk_ops = {.kind = "hard disk", .submit = harddisk_submit, .close = harddisk_close};

struct blkdev *harddisk_create(struct loop *loop, const char *name, uint64_t size, uint64_t data_from, uint64_t data_to)
{
    struct harddisk *d = calloc(1, sizeof *d);
    struct blk_info info = {
        .size = size, .logical_block = 512, .physical_block = 512, .rotational = true, .volatile_cache = true};
    ASSERT(d != NULL);
    blkdev_init(&d->dev, &harddisk_ops, loop, name, &info);
    TAILQ_INIT(&d->line);
    TAILQ_INIT(&d->tags);
    TAILQ_INIT(&d->cached);
    TAILQ_INIT(&d->flushes);
    d->head.fire = head_fire;
    d->data_from = data_from;
    d->data_to = data_to;
    d->kept = calloc(size / PAGE_BYTES + 1, sizeof *d->kept);
    ASSERT(d->kept != NULL);
    return &d->dev;
}

struct harddisk_counts harddisk_counts(const struct blkdev *disk)
{
    return disk_of(disk)->counts;
}
