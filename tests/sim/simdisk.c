/*
 * See simdisk.h.
 *
 * Each block keeps its bytes twice: as reads see them (`now`) and as they are on the medium (`stable`). A write gets a
 * number when it completes; the medium remembers the number of the write that each of its sectors comes from, so that
 * a flush cannot put back what a later FUA write has replaced.
 */
#include "tests/sim/simdisk.h"

#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"

enum { SECTORS = PAGE_BYTES / SIM_SECTOR };
#define LATE_LEAST_NS 300000000ull
#define LATE_MOST_NS  200000000000ull

struct simblock {
    uint8_t now[PAGE_BYTES], stable[PAGE_BYTES];
    uint64_t sequence[SECTORS]; /* of `stable` */
    uint8_t bad;                /* sectors that cannot be read */
};

/* Bytes on their way to the medium. */
struct simwrite {
    TAILQ_ENTRY(simwrite) link;
    uint64_t off, len, sequence;
    uint8_t bytes[];
};

struct simrequest {
    LIST_ENTRY(simrequest) link;
    struct timer timer;
    struct simdisk *disk;
    struct blk_req *req;
    struct simwrite *write; /* of a request that writes */
    uint64_t covers;        /* flush: writes up to this number */
    enum blk_status answer; /* drawn when it was submitted */
};

/* --- the medium --- */

static struct simwrite *write_new(uint64_t off, uint64_t len)
{
    struct simwrite *write = malloc(sizeof *write + len);
    ASSERT(write != NULL);
    write->off = off;
    write->len = len;
    return write;
}

static struct simblock *block_at(struct simdisk *disk, uint64_t off)
{
    struct simblock **block = &disk->blocks[off / PAGE_BYTES];
    if (*block == NULL)
        *block = calloc(1, sizeof **block);
    ASSERT(*block != NULL);
    return *block;
}

/* The sectors of a block that [off, off + len), which lies in it, covers. */
static uint8_t sectors_mask(uint64_t off, uint64_t len)
{
    return (uint8_t)(((1u << len / SIM_SECTOR) - 1) << off % PAGE_BYTES / SIM_SECTOR);
}

/* Bytes reach the cache; no longer unreadable. */
static void write_cache(struct simdisk *disk, const struct simwrite *write)
{
    for (uint64_t at = 0, len; at < write->len; at += len) {
        uint64_t off = write->off + at;
        struct simblock *block = block_at(disk, off);
        len = MIN(PAGE_BYTES - off % PAGE_BYTES, write->len - at);
        memcpy(block->now + off % PAGE_BYTES, write->bytes + at, len);
        if (block->bad == 0)
            continue;
        disk->bad_sectors -= (unsigned)__builtin_popcount(block->bad & sectors_mask(off, len));
        block->bad &= (uint8_t)~sectors_mask(off, len);
    }
}

/* Bytes reach the medium, but what is later than they. */
static void range_keep(struct simdisk *disk, const struct simwrite *write, uint64_t at, uint64_t end)
{
    while (at < end) {
        uint64_t off = write->off + at, in_block = off % PAGE_BYTES, len = 0;
        struct simblock *block = block_at(disk, off);
        uint64_t *have = &block->sequence[in_block / SIM_SECTOR];
        for (; in_block + len < PAGE_BYTES && at + len < end && *have <= write->sequence; len += SIM_SECTOR)
            *have++ = write->sequence;
        memcpy(block->stable + in_block, write->bytes + at, len);
        at += MAX(len, (uint64_t)SIM_SECTOR);
    }
}

static void write_keep(struct simdisk *disk, const struct simwrite *write)
{
    range_keep(disk, write, 0, write->len);
}

/* After the power was off the cache is what the medium is. */
static void write_forget(struct simdisk *disk, const struct simwrite *write)
{
    for (uint64_t at = 0, len; at < write->len; at += len) {
        uint64_t in_block = (write->off + at) % PAGE_BYTES;
        struct simblock *block = block_at(disk, write->off + at);
        len = MIN(PAGE_BYTES - in_block, write->len - at);
        memcpy(block->now + in_block, block->stable + in_block, len);
    }
}

const uint8_t *simdisk_medium(const struct simdisk *disk, uint64_t off)
{
    const struct simblock *block = disk->blocks[off / PAGE_BYTES];
    return block == NULL ? NULL : block->stable;
}

bool simdisk_is_volatile(const struct simdisk *disk, uint64_t off, uint64_t len)
{
    const struct simwrite *write;
    TAILQ_FOREACH(write, &disk->cache, link)
    if (write->off < off + len && off < write->off + write->len)
        return true;
    return false;
}

bool simdisk_is_flushing(const struct simdisk *disk)
{
    const struct simrequest *r;
    LIST_FOREACH(r, &disk->in_flight, link)
    if (r->req->op == BLK_FLUSH)
        return true;
    return false;
}

void simdisk_put(struct simdisk *disk, uint64_t off, const void *bytes, uint64_t len)
{
    struct simwrite *write = write_new(off, len);
    write->sequence = disk->sequence;
    memcpy(write->bytes, bytes, len);
    write_cache(disk, write);
    write_keep(disk, write);
    free(write);
}

void simdisk_spoil(struct simdisk *disk, uint64_t off)
{
    struct simblock *block = block_at(disk, off);
    unsigned sector = (unsigned)(off % PAGE_BYTES / SIM_SECTOR);
    disk->bad_sectors += !(block->bad >> sector & 1);
    block->bad |= (uint8_t)(1u << sector);
}

void simdisk_heal(struct simdisk *disk)
{
    for (uint64_t i = 0; i < disk->blocks_count; i++)
        if (disk->blocks[i] != NULL)
            disk->blocks[i]->bad = 0;
    disk->bad_sectors = 0;
}

/* --- requests that are answered --- */

static enum blk_status do_read(struct simdisk *disk, struct blk_req *req, uint64_t *bad_off)
{
    for (uint64_t at = req->off, end = req->off + req->len, len; at < end; at += len) {
        const struct simblock *block = disk->blocks[at / PAGE_BYTES];
        len = MIN(PAGE_BYTES - at % PAGE_BYTES, end - at);
        uint8_t *to =
            (uint8_t *)req->pages[(at - round_down(req->off, PAGE_BYTES)) / PAGE_BYTES]->data + at % PAGE_BYTES;
        if (block == NULL) {
            memset(to, 0, len);
            continue;
        }
        for (uint64_t s = at; block->bad != 0 && s < at + len; s += SIM_SECTOR) {
            if (!(block->bad >> (s % PAGE_BYTES / SIM_SECTOR) & 1))
                continue;
            *bad_off = s;
            return BLK_MEDIA;
        }
        memcpy(to, block->now + at % PAGE_BYTES, len);
    }
    return BLK_OK;
}

static void do_flush(struct simdisk *disk, uint64_t covers)
{
    struct simwrite *write, *next;
    for (write = TAILQ_FIRST(&disk->cache); write != NULL && write->sequence <= covers; write = next) {
        next = TAILQ_NEXT(write, link);
        TAILQ_REMOVE(&disk->cache, write, link);
        write_keep(disk, write);
        free(write);
    }
}

static void check_pages(const struct simrequest *r)
{
    const struct blk_req *req = r->req;
    for (uint64_t at = req->off, end = req->off + req->len, len; req->op == BLK_WRITE && at < end; at += len) {
        len = MIN(PAGE_BYTES - at % PAGE_BYTES, end - at);
        const struct page *page = req->pages[(at - round_down(req->off, PAGE_BYTES)) / PAGE_BYTES];
        ASSERT(memcmp((const uint8_t *)page->data + at % PAGE_BYTES, r->write->bytes + (at - req->off), len) == 0);
    }
}

/* Takes the write from the request. */
static void do_write(struct simdisk *disk, struct simrequest *r)
{
    struct simwrite *write = r->write;
    r->write = NULL;
    write->sequence = ++disk->sequence;
    write_cache(disk, write);
    if ((r->req->flags & BLK_FUA) || !disk->dev.info.volatile_cache) {
        write_keep(disk, write);
        free(write);
    } else {
        TAILQ_INSERT_TAIL(&disk->cache, write, link);
    }
}

static void answer(struct simrequest *r, enum blk_status status, uint64_t bad_off)
{
    struct simdisk *disk = r->disk;
    struct blk_req *req = r->req;
    bool late = r->answer == BLK_TIMEOUT;
    disk->failing -= r->answer != BLK_OK;
    if (status != BLK_OK || late)
        disk->last_error_ns = disk->dev.loop->now_ns;
    LIST_REMOVE(r, link);
    free(r->write);
    free(r);
    disk->watch->answered(disk->watch, disk, req, late ? BLK_TIMEOUT : status);
    if (status == BLK_MEDIA)
        blk_complete_media(req, bad_off);
    else
        blk_complete(req, status);
}

/* A write that is not answered well may have reached the cache, or part of it. */
static void write_maybe(struct simdisk *disk, struct simrequest *r)
{
    struct simwrite *write = r->write;
    uint64_t fate = dice_below(&disk->dice, 4);
    if (write == NULL || fate == 0)
        return;
    if (fate == 1) {
        uint64_t sectors = write->len / SIM_SECTOR, first = dice_below(&disk->dice, sectors);
        uint64_t count = dice_range(&disk->dice, 1, sectors - first);
        memmove(write->bytes, write->bytes + first * SIM_SECTOR, count * SIM_SECTOR);
        write->off += first * SIM_SECTOR;
        write->len = count * SIM_SECTOR;
    }
    do_write(disk, r);
}

static void serve(struct simrequest *r)
{
    struct simdisk *disk = r->disk;
    struct blk_req *req = r->req;
    uint64_t bad_off = req->off;
    enum blk_status status = disk->off || disk->gone || disk->dead ? BLK_GONE : r->answer;
    if (status == BLK_TIMEOUT && dice_one_in(&disk->dice, 2))
        status = BLK_OK;
    if (status == BLK_TIMEOUT)
        write_maybe(disk, r);
    if (status == BLK_OK && req->op == BLK_READ)
        status = do_read(disk, req, &bad_off);
    else if (status == BLK_OK && req->op == BLK_FLUSH)
        do_flush(disk, r->covers);
    if (status == BLK_OK && r->write != NULL) {
        check_pages(r);
        do_write(disk, r);
    }
    answer(r, status, bad_off);
}

static void request_fire(struct timer *timer)
{
    serve(container_of(timer, struct simrequest, timer));
}

/* --- requests that come --- */

static bool draw_from(unsigned *count)
{
    if (*count == 0)
        return false;
    (*count)--;
    return true;
}

static enum blk_status draw_answer(struct simdisk *disk, const struct blk_req *req)
{
    if (draw_from(&disk->time_outs))
        return BLK_TIMEOUT;
    if (req->op == BLK_READ && draw_from(&disk->reads_fail))
        return BLK_MEDIA;
    if (blk_op_writes(req->op) && draw_from(&disk->writes_fail))
        return BLK_MEDIA;
    return BLK_OK;
}

static uint64_t draw_latency(struct simdisk *disk, enum blk_status answer)
{
    uint64_t ns = disk->latency_ns / 4 + dice_below(&disk->dice, disk->latency_ns);
    if (disk->off || disk->gone || disk->dead)
        return 1000;
    if (answer == BLK_TIMEOUT)
        return LATE_LEAST_NS + (dice_one_in(&disk->dice, 2) ? dice_scale(&disk->dice, LATE_MOST_NS)
                                                            : dice_below(&disk->dice, LATE_MOST_NS));
    if (dice_one_in(&disk->dice, 16))
        ns *= dice_range(&disk->dice, 2, 20);
    return disk->slow != 0 ? ns * disk->slow : ns;
}

static struct simwrite *write_of(const struct simdisk *disk, const struct blk_req *req)
{
    if (!blk_op_writes(req->op))
        return NULL;
    struct simwrite *write = write_new(req->off, req->len);
    if (req->op == BLK_WRITE)
        pages_copy_out(write->bytes, req->pages, req->off % PAGE_BYTES, req->len);
    else
        memset(write->bytes, req->op == BLK_DISCARD && !disk->dev.info.discard_zeroes ? 0xd5 : 0, req->len);
    return write;
}

static void simdisk_submit(struct blkdev *dev, struct blk_req *req)
{
    struct simdisk *disk = container_of(dev, struct simdisk, dev);
    struct simrequest *r = calloc(1, sizeof *r);
    ASSERT(r != NULL);
    *r = (struct simrequest){.timer.fire = request_fire, .disk = disk, .req = req, .write = write_of(disk, req)};
    r->covers = disk->sequence;
    r->answer = draw_answer(disk, req);
    disk->failing += r->answer != BLK_OK;
    if (r->answer == BLK_TIMEOUT) /* it counts as lost long before it answers */
        disk->watch->hangs(disk->watch, disk);
    LIST_INSERT_HEAD(&disk->in_flight, r, link);
    timer_start(dev->loop, &r->timer, draw_latency(disk, r->answer));
}

/* --- the power goes --- */

/* What of a write the medium got. */
static void write_fate(struct simdisk *disk, const struct simwrite *write, uint64_t mood)
{
    uint64_t fate = mood < 2 ? mood : dice_below(&disk->dice, 5);
    for (uint64_t at = 0; at < write->len && fate != 0; at += SIM_SECTOR)
        if (fate != 4 || dice_one_in(&disk->dice, 2)) /* 0 lost, 4 torn, else kept */
            range_keep(disk, write, at, at + SIM_SECTOR);
}

static void cut_power(struct simdisk *disk)
{
    struct simrequest *r;
    struct simwrite *write;
    uint64_t mood = dice_below(&disk->dice, 6); /* 0: all is lost, 1: all is kept */
    LIST_FOREACH(r, &disk->in_flight, link)
    {
        if (r->write == NULL)
            continue;
        r->write->sequence = ++disk->sequence;
        TAILQ_INSERT_TAIL(&disk->cache, r->write, link);
        r->write = NULL;
    }
    TAILQ_FOREACH(write, &disk->cache, link)
    write_fate(disk, write, mood);
    TAILQ_FOREACH(write, &disk->cache, link)
    write_forget(disk, write);
    while ((write = TAILQ_FIRST(&disk->cache)) != NULL) {
        TAILQ_REMOVE(&disk->cache, write, link);
        free(write);
    }
}

void simdisk_cut(struct simdisk *disk, bool power, bool *state)
{
    struct simrequest *r;
    bool there = !disk->off && !disk->gone && !disk->dead;
    if (power)
        cut_power(disk);
    LIST_FOREACH(r, &disk->in_flight, link)
    if (there)
        write_maybe(disk, r);
    *state = true;
    while ((r = LIST_FIRST(&disk->in_flight)) != NULL) {
        timer_stop(disk->dev.loop, &r->timer);
        answer(r, BLK_GONE, 0);
    }
}

/* --- life --- */

/* What is before it is gone; a disk can be opened again. */
static void simdisk_close(struct blkdev *dev, struct task *closed)
{
    dev->closing = false;
    container_of(dev, struct simdisk, dev)->front = NULL;
    loop_defer(dev->loop, closed);
}

static const struct blkdev_ops simdisk_ops = {.kind = "simulated", .submit = simdisk_submit, .close = simdisk_close};

struct simdisk *simdisk_create(struct loop *loop, unsigned number, const struct blk_info *info, struct dice dice,
                               struct simdisk_watch *watch)
{
    struct simdisk *disk = calloc(1, sizeof *disk);
    char name[16];
    ASSERT(disk != NULL);
    text_format(name, sizeof name, "sd%u", number);
    blkdev_init(&disk->dev, &simdisk_ops, loop, name, info);
    disk->number = number;
    disk->watch = watch;
    disk->dice = dice;
    disk->latency_ns = dice_range(&disk->dice, 20000, 200000);
    disk->blocks_count = info->size / PAGE_BYTES;
    disk->blocks = calloc(disk->blocks_count, sizeof *disk->blocks);
    ASSERT(disk->blocks != NULL);
    TAILQ_INIT(&disk->cache);
    LIST_INIT(&disk->in_flight);
    return disk;
}

void simdisk_destroy(struct simdisk *disk)
{
    struct simwrite *write;
    ASSERT(LIST_EMPTY(&disk->in_flight));
    while ((write = TAILQ_FIRST(&disk->cache)) != NULL) {
        TAILQ_REMOVE(&disk->cache, write, link);
        free(write);
    }
    for (uint64_t i = 0; i < disk->blocks_count; i++)
        free(disk->blocks[i]);
    free(disk->blocks);
    free(disk);
}
