/* What initiators ask for, and what they are told: held against the model. */
#include "tests/sim/sim.h"

#include <string.h>

#include "core/check.h"

/* --- answers --- */

static bool rows_whole(const struct sim *s, const struct sim_io *io)
{
    const struct sim_volume *v = &s->volumes[io->volume];
    uint64_t row_data = v->model->layout.row_data;
    for (uint64_t row = io->req.off / row_data; row <= (io->req.off + io->req.len - 1) / row_data; row++)
        if (!model_row_is_whole(v->model, row, peek_row(s->array, io->volume, row, row_data) & ROW_SYNCED) ||
            world_row_may_be_torn_again(s, io->volume, row))
            return false;
    return true;
}

void load_refused(struct sim *s, unsigned volume, const struct blk_req *req)
{
    bool goes_on = !peek_frozen(s->array);
    if (goes_on && req->status == BLK_MEDIA) /* what is bad is on disk */
        return;
    model_row_broken(s->volumes[volume].model, req->off, req->len, goes_on);
    for (unsigned slot = 0; goes_on && slot < s->config.members; slot++)
        if (!(peek_slots(s->array, MEMBER_ONLINE) & sim_bit(slot)))
            world_slot_lost(s, slot);
}

static void check_status(struct sim *s, const struct sim_io *io)
{
    const struct blk_req *req = &io->req;
    bool allowed = s->doomed || !s->config.strict;
    SIM_CHECK(s, req->status == BLK_OK || allowed, "%s: a %s of %llu bytes at %llu is answered: %s",
              s->volumes[io->volume].name, blk_op_name(req->op), (unsigned long long)req->len,
              (unsigned long long)req->off, blk_status_name(req->status));
}

static void check_bytes(struct sim *s, const struct sim_io *io)
{
    struct sim_volume *v = &s->volumes[io->volume];
    const struct blk_req *req = &io->req;
    uint8_t bytes[SIM_IO_PAGES * PAGE_BYTES];
    char why[512];
    pages_copy_out(bytes, req->pages, req->off % PAGE_BYTES, req->len);
    SIM_CHECK(s, model_read(v->model, io->read, req->off, req->len, bytes, why, sizeof why), "%s: %s", v->name, why);
    if (io->whole && rows_whole(s, io))
        model_read_settles(v->model, io->read, req->off, req->len, bytes);
}

/* Where nothing was written there are zeroes. */
static void check_unwritten(struct sim *s, const struct sim_io *io)
{
    static const uint8_t zeroes[SIM_IO_PAGES * PAGE_BYTES];
    const struct sim_volume *v = &s->volumes[io->volume];
    const struct blk_req *req = &io->req;
    char why[512];
    SIM_CHECK(s, req->extent > 0 && req->extent <= req->len, "%s: a status of %llu bytes", v->name,
              (unsigned long long)req->extent);
    SIM_CHECK(s, req->written || model_read(v->model, io->read, req->off, req->extent, zeroes, why, sizeof why),
              "%s: said to be unwritten: %s", v->name, why);
}

static void heard(struct sim *s, struct sim_io *io)
{
    struct sim_volume *v = &s->volumes[io->volume];
    struct blk_req *req = &io->req;
    bool good = req->status == BLK_OK;
    sim_trace(s, "    %s #%u %s %llu +%llu: %s", v->name, io->op, blk_op_name(req->op), (unsigned long long)req->off,
              (unsigned long long)req->len, blk_status_name(req->status));
    check_status(s, io);
    if (req->op == BLK_READ || req->op == BLK_STATUS) {
        if (good && req->op == BLK_READ)
            check_bytes(s, io);
        else if (good)
            check_unwritten(s, io);
        model_read_end(v->model, io->read);
    } else if (req->op == BLK_FLUSH) {
        if (good && io->counts)
            model_flushed(v->model, io->mark);
    } else {
        model_changed(v->model, io->op, good, caches_promise(s, io));
        if (!good && !v->model->cached)
            load_refused(s, io->volume, req);
    }
}

static void io_done(struct blk_req *req)
{
    struct sim_io *io = container_of(req, struct sim_io, req);
    struct sim *s = io->sim;
    if (!s->crashed)
        heard(s, io);
    if (req->pages != NULL)
        page_put_all(io->pages, page_count_for(req->off, req->len));
    io->busy = false;
    s->ios_busy--;
}

/* --- questions --- */

static struct sim_io *io_free(struct sim *s)
{
    for (unsigned i = 0; i < SIM_IOS; i++)
        if (!s->ios[i].busy)
            return &s->ios[i];
    return NULL;
}

static void fill(struct sim_io *io)
{
    uint8_t bytes[SIM_SECTOR];
    for (uint64_t at = 0; at < io->req.len; at += SIM_SECTOR) {
        model_bytes(io->op, io->req.off + at, bytes);
        pages_copy_in(io->pages, io->req.off % PAGE_BYTES + at, bytes, SIM_SECTOR);
    }
}

/* Tell the model. False: it cannot follow. */
static bool announce(struct sim *s, struct sim_io *io, const struct blkdev *dev)
{
    struct model *m = s->volumes[io->volume].model;
    const struct blk_req *req = &io->req;
    io->op = 0;
    if (req->op == BLK_FLUSH) {
        io->mark = model_flush(m);
    } else if (req->op == BLK_READ || req->op == BLK_STATUS) {
        io->read = model_read_begin(m);
        io->whole = rows_whole(s, io);
    } else {
        bool any = req->op == BLK_DISCARD && !dev->info.discard_zeroes;
        io->op = model_change(m, req->off, req->len, req->op != BLK_WRITE && !any, any);
        return io->op != 0;
    }
    return true;
}

/* A flush that a safe cache answers at once settles nothing: then it is emptied. */
static bool ask_to_empty(struct sim *s, unsigned volume)
{
    struct sim_io *io = io_free(s);
    struct cache *cache = s->volumes[volume].cache.cache;
    if (io == NULL || cache == NULL || s->crashed)
        return false;
    io->sim = s;
    io->volume = volume;
    io->req = (struct blk_req){.done = io_done};
    io->mark = model_flush(s->volumes[volume].model);
    io->counts = true;
    io->busy = true;
    io->began_ns = s->loop.now_ns;
    s->ios_busy++;
    sim_trace(s, "    %s: its cache is emptied", s->volumes[volume].name);
    cache_drain(cache, &io->req);
    return true;
}

static bool ask_to_settle(struct sim *s, unsigned volume);

static bool ask(struct sim *s, unsigned volume, enum blk_op op, unsigned flags, uint64_t off, uint64_t len)
{
    struct sim_io *io = io_free(s);
    struct blkdev *dev = caches_dev(s, volume);
    uint32_t pages = blk_op_has_data(op) ? page_count_for(off, len) : 0;
    if (io == NULL || dev == NULL || s->crashed)
        return false;
    io->sim = s;
    io->volume = volume;
    io->req = (struct blk_req){.op = op, .flags = flags, .off = off, .len = len, .done = io_done};
    world_look(s);
    if (!announce(s, io, dev))
        return op != BLK_FLUSH && ask_to_settle(s, volume);
    io->counts = caches_flush_counts(s, volume);
    io->early = false;
    if (pages > 0) {
        bool got = page_pool_get(s->loop.pages, io->pages, pages);
        SIM_CHECK(s, got, "no pages for a request");
        io->req.pages = io->pages;
    }
    if (op == BLK_WRITE)
        fill(io);
    io->busy = true;
    io->began_ns = s->loop.now_ns;
    s->ios_busy++;
    sim_trace(s, "    %s #%u %s%s %llu +%llu", s->volumes[volume].name, io->op, blk_op_name(op),
              flags & BLK_FUA ? " fua" : "", (unsigned long long)off, (unsigned long long)len);
    blk_submit(dev, &io->req);
    return true;
}

/* Of what the model knows of a block some must become certain before it can follow more. */
static bool ask_to_settle(struct sim *s, unsigned volume)
{
    return caches_flush_counts(s, volume) ? ask(s, volume, BLK_FLUSH, 0, 0, 0) : ask_to_empty(s, volume);
}

bool load_empty(struct sim *s, unsigned volume)
{
    load_drain(s);
    if (s->crashed || !ask_to_empty(s, volume))
        return false;
    const struct sim_io *io = &s->ios[0]; /* the first that was free */
    load_drain(s);
    return !s->crashed && io->req.status == BLK_OK;
}

static enum blk_op draw_op(struct dice *dice)
{
    static const enum blk_op ops[] = {BLK_READ,  BLK_READ,  BLK_READ,  BLK_WRITE,   BLK_WRITE,        BLK_WRITE,
                                      BLK_WRITE, BLK_WRITE, BLK_WRITE, BLK_DISCARD, BLK_WRITE_ZEROES, BLK_FLUSH};
    return ops[dice_below(dice, ARRAY_LENGTH(ops))];
}

/* Some range in or near a row that is often used. */
static void draw_range(struct sim *s, struct dice *dice, const struct sim_volume *v, uint64_t *off, uint64_t *len)
{
    uint64_t block = s->config.disk.logical_block, row_data = v->model->layout.row_data, size = v->model->size;
    uint64_t row =
        dice_one_in(dice, 8) ? dice_below(dice, v->model->rows) : v->hot[dice_below(dice, ARRAY_LENGTH(v->hot))];
    uint64_t most = MIN(size, (uint64_t)(SIM_IO_PAGES - 2) * PAGE_BYTES), unit;
    *off = row * row_data;
    switch (dice_below(dice, 6)) {
    case 0: /* a row, or two */
        *len = row_data * dice_range(dice, 1, 2);
        break;
    case 1: /* a chunk */
        *off += dice_below(dice, v->model->layout.data) * v->model->layout.spec.chunk;
        *len = v->model->layout.spec.chunk;
        break;
    default:
        unit = dice_one_in(dice, 2) ? block : PAGE_BYTES;
        *off += round_down(dice_below(dice, row_data), unit);
        *len = block * (1 + dice_scale(dice, 64 * KIB / block));
    }
    *off = MIN(*off, size - block);
    *len = MIN(MIN(*len, most), size - *off);
}

bool load_one(struct sim *s, struct dice *dice)
{
    unsigned volume = (unsigned)dice_below(dice, s->config.volumes);
    enum blk_op op = draw_op(dice);
    uint64_t off = 0, len = 0;
    if (s->ios_busy >= s->config.depth)
        return false;
    if (op != BLK_FLUSH)
        draw_range(s, dice, &s->volumes[volume], &off, &len);
    bool fua = (op == BLK_WRITE || op == BLK_WRITE_ZEROES) && dice_one_in(dice, s->config.fua_one_in);
    unsigned flags = fua ? BLK_FUA : 0;
    if (s->volumes[volume].cache.cache != NULL && op != BLK_FLUSH) {
        flags |= dice_one_in(dice, 20) ? BLK_BACKGROUND : 0;
        op = op == BLK_READ && dice_one_in(dice, 4) ? BLK_STATUS : op;
    }
    return ask(s, volume, op, flags, off, len);
}

void load_drain(struct sim *s)
{
    while (s->ios_busy > 0 && !s->crashed)
        SIM_CHECK(s, sim_event(s), "%u requests have no answer, and nothing is left to happen", s->ios_busy);
}

void load_flush(struct sim *s)
{
    for (unsigned i = 0; i < s->config.volumes; i++) {
        load_drain(s);
        (void)ask(s, i, BLK_FLUSH, 0, 0, 0);
    }
    load_drain(s);
}

static void verify_range(struct sim *s, unsigned volume, uint64_t off, uint64_t end)
{
    uint64_t most = (uint64_t)(SIM_IO_PAGES - 2) * PAGE_BYTES;
    for (uint64_t len; off < end && !s->crashed && s->array != NULL; off += len) {
        len = MIN(most, end - off);
        while (!ask(s, volume, BLK_READ, 0, off, len) && !s->crashed)
            SIM_CHECK(s, sim_event(s), "requests have no answer");
    }
}

void load_verify(struct sim *s, bool all)
{
    for (unsigned i = 0; i < s->config.volumes; i++) {
        const struct sim_volume *v = &s->volumes[i];
        if (caches_hold(s, i))
            continue;
        for (unsigned k = 0; !all && k < ARRAY_LENGTH(v->hot); k++)
            verify_range(s, i, v->hot[k] * v->model->layout.row_data,
                         MIN((v->hot[k] + 1) * v->model->layout.row_data, v->model->size));
        if (all)
            verify_range(s, i, 0, v->model->size);
    }
    load_drain(s);
}
