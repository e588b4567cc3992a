#include "tests/unit/cache/trialdisk.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"

enum { SECTOR = 512, OWN_PAGES = 1024 };

static bool chance(struct trialdisk *disk, unsigned percent)
{
    return test_random(&disk->seed) % 100 < percent;
}

static bool is_bad(const struct trialdisk *disk, const struct blk_req *req)
{
    return disk->bad_len > 0 && blk_op_has_data(req->op) && req->off < disk->bad_off + disk->bad_len &&
           disk->bad_off < req->off + req->len;
}

static bool fails(struct trialdisk *disk, const struct blk_req *req)
{
    bool meant = disk->fail_ops == 0 || disk->fail_ops >> req->op & 1;
    return is_bad(disk, req) || (meant && req->op != BLK_STATUS && chance(disk, disk->fail_percent));
}

static void change_bytes(uint8_t *to, const struct blk_req *req, uint64_t at, uint64_t len)
{
    if (req->op == BLK_WRITE)
        pages_copy_out(to + at, req->pages, req->off % PAGE_BYTES + (at - req->off), len);
    else
        memset(to + at, 0, len);
}

/* Of what fails each sector may have been changed or not. */
static void take_effect(struct trial_slot *slot)
{
    struct trialdisk *disk = slot->disk;
    const struct blk_req *req = slot->req;
    bool all = slot->req->status == BLK_OK;
    if (!blk_op_writes(req->op))
        return;
    for (uint64_t at = req->off; at < req->off + req->len; at += SECTOR)
        if (all || chance(disk, 50))
            change_bytes(disk->seen, req, at, SECTOR);
}

static uint64_t sum_of(const struct page *page)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < PAGE_BYTES / 8; i++)
        sum = sum * 31 + ((const uint64_t *)page->data)[i];
    return sum;
}

/* One more reference, to a page that is what it will be; the oldest one is looked at, and put. */
static void lend(struct trialdisk *disk, struct page *page)
{
    struct trial_lent *lent = &disk->lent[disk->next_lent++ % TRIAL_LENT];
    if (lent->page != NULL) {
        cr_assert_eq(sum_of(lent->page), lent->sum, "a page that is not its own was written into");
        page_put(lent->page);
    }
    *lent = (struct trial_lent){.page = page};
    if (page == NULL)
        return;
    page_ref(page);
    lent->sum = sum_of(page);
}

static void replace_pages(struct trialdisk *disk, struct blk_req *req)
{
    uint32_t count = page_count_for(req->off, req->len);
    for (uint32_t i = 0; i < count; i++) {
        struct page *page;
        if (!chance(disk, 50) || !page_pool_take(disk->own, &page, 1))
            continue;
        memset(page->data, 0xee, PAGE_BYTES); /* what is outside of the range is not the reader's to look at */
        page_put(req->pages[i]);
        req->pages[i] = page;
    }
}

static void read_look(struct trial_slot *slot)
{
    const struct blk_req *req = slot->req;
    if (req->op != BLK_READ || slot->snapshot != NULL)
        return;
    slot->snapshot = malloc(req->len);
    memcpy(slot->snapshot, slot->disk->seen + req->off, req->len);
}

static void read_bytes(struct trial_slot *slot)
{
    struct blk_req *req = slot->req;
    const uint8_t *bytes = slot->snapshot != NULL ? slot->snapshot : slot->disk->seen + req->off;
    if (slot->disk->replaces)
        replace_pages(slot->disk, req);
    pages_copy_in(req->pages, req->off % PAGE_BYTES, bytes, req->len);
    for (uint32_t i = 0; i < page_count_for(req->off, req->len); i++)
        if (page_pool_of(req->pages[i]) == slot->disk->own && slot->disk->replaced++ % 4 == 0)
            lend(slot->disk, req->pages[i]);
}

static void complete_changes(struct trialdisk *disk, const struct blk_req *req)
{
    memcpy(disk->done + req->off, disk->seen + req->off, req->len);
    if (!(req->flags & BLK_FUA) || req->status != BLK_OK)
        return;
    memcpy(disk->stable + req->off, disk->seen + req->off, req->len);
    for (uint64_t i = req->off / SECTOR; i < (req->off + req->len) / SECTOR; i++)
        disk->stable_order[i] = disk->order;
}

/* A flush that was submitted before does not undo what is stable since. */
static void flushed(struct trialdisk *disk, const struct trial_slot *slot)
{
    for (uint64_t i = 0; i < disk->dev.info.size / SECTOR; i++) {
        if (slot->order <= disk->stable_order[i])
            continue;
        disk->stable_order[i] = slot->order;
        memcpy(disk->stable + i * SECTOR, slot->snapshot + i * SECTOR, SECTOR);
    }
}

static void answer(struct timer *timer)
{
    struct trial_slot *slot = container_of(timer, struct trial_slot, answer);
    struct trialdisk *disk = slot->disk;
    struct blk_req *req = slot->req;
    timer_stop(disk->dev.loop, &slot->effect);
    take_effect(slot);
    if (req->op == BLK_READ && req->status == BLK_OK)
        read_bytes(slot);
    if (blk_op_writes(req->op))
        complete_changes(disk, req);
    if (req->op == BLK_FLUSH && req->status == BLK_OK)
        flushed(disk, slot);
    free(slot->snapshot);
    slot->req = NULL;
    if (req->status == BLK_MEDIA)
        blk_complete_media(req, MAX(req->off, disk->bad_len > 0 ? disk->bad_off : req->off));
    else
        blk_complete(req, req->status);
}

/* Early: its effect is seen, and then, perhaps, again when it is answered: the same. */
static void effect(struct timer *timer)
{
    struct trial_slot *slot = container_of(timer, struct trial_slot, effect);
    if (slot->req->status == BLK_OK)
        take_effect(slot);
    if (slot->disk->latency_ns > 0)
        read_look(slot);
}

static uint64_t some_time(struct trialdisk *disk)
{
    return disk->latency_ns == 0 ? 0 : test_random(&disk->seed) % disk->latency_ns;
}

static void go(struct trial_slot *slot)
{
    struct trialdisk *disk = slot->disk;
    timer_start(disk->dev.loop, &slot->effect, some_time(disk));
    timer_start(disk->dev.loop, &slot->answer, some_time(disk) + (slot->req->op == BLK_FLUSH ? disk->flush_ns : 0));
}

static void assert_alone(const struct trialdisk *disk, const struct blk_req *req)
{
    for (unsigned i = 0; i < TRIAL_SLOTS; i++) {
        const struct blk_req *other = disk->slots[i].req;
        if (other != NULL && other != req && blk_op_writes(req->op) && blk_op_writes(other->op))
            cr_assert(other->off >= req->off + req->len || req->off >= other->off + other->len,
                      "two changes of the same bytes are in flight");
    }
}

static struct trial_slot *free_slot(struct trialdisk *disk)
{
    for (unsigned i = 0; i < TRIAL_SLOTS; i++)
        if (disk->slots[i].req == NULL)
            return &disk->slots[i];
    UNREACHABLE("more requests in flight than a test should have");
}

static void trialdisk_submit(struct blkdev *dev, struct blk_req *req)
{
    struct trialdisk *disk = container_of(dev, struct trialdisk, dev);
    struct trial_slot *slot = free_slot(disk);
    disk->requests[req->op]++;
    disk->bytes[req->op] += req->len;
    disk->fuas += (req->flags & BLK_FUA) != 0;
    assert_alone(disk, req);
    *slot = (struct trial_slot){
        .disk = disk, .req = req, .effect.fire = effect, .answer.fire = answer, .order = ++disk->order};
    req->status = is_bad(disk, req) ? BLK_MEDIA : fails(disk, req) ? disk->fail_status : BLK_OK;
    if (req->op == BLK_FLUSH) {
        slot->snapshot = malloc(dev->info.size);
        memcpy(slot->snapshot, disk->done, dev->info.size);
    }
    if (disk->hold)
        read_look(slot);
    else
        go(slot);
}

void trialdisk_release(struct trialdisk *disk)
{
    disk->hold = false;
    for (unsigned i = 0; i < TRIAL_SLOTS; i++)
        if (disk->slots[i].req != NULL && !disk->slots[i].answer.armed)
            go(&disk->slots[i]);
}

unsigned trialdisk_held(const struct trialdisk *disk)
{
    unsigned held = 0;
    for (unsigned i = 0; i < TRIAL_SLOTS; i++)
        held += disk->slots[i].req != NULL && !disk->slots[i].answer.armed;
    return held;
}

void trialdisk_cut(struct trialdisk *disk)
{
    for (uint64_t at = 0; at < disk->dev.info.size; at += SECTOR)
        if (chance(disk, 50))
            memcpy(disk->seen + at, disk->stable + at, SECTOR);
}

void trialdisk_leave(struct trialdisk *disk, struct trialdisk *to, bool power)
{
    uint64_t size = disk->dev.info.size;
    memcpy(to->seen, disk->seen, size);
    for (unsigned i = 0; i < TRIAL_SLOTS; i++) {
        const struct blk_req *req = disk->slots[i].req;
        for (uint64_t at = 0; req != NULL && blk_op_writes(req->op) && at < req->len; at += SECTOR)
            if (chance(to, 50))
                change_bytes(to->seen, req, req->off + at, SECTOR);
    }
    memcpy(to->stable, disk->stable, size);
    if (power)
        trialdisk_cut(to);
    if (power)
        memcpy(to->stable, to->seen, size);
    memcpy(to->done, to->seen, size);
}

static void trialdisk_close(struct blkdev *dev, struct task *closed)
{
    struct trialdisk *disk = container_of(dev, struct trialdisk, dev);
    struct loop *loop = dev->loop;
    for (unsigned i = 0; i < TRIAL_LENT; i++)
        lend(disk, NULL);
    page_pool_retire(disk->own);
    free(disk->seen);
    free(disk->done);
    free(disk->stable);
    free(disk->stable_order);
    free(disk);
    loop_defer(loop, closed);
}

static bool trialdisk_status(struct blkdev *dev, uint64_t off, uint64_t len, uint64_t *extent)
{
    (void)off;
    *extent = len;
    return !container_of(dev, struct trialdisk, dev)->unwritten;
}

static const struct blkdev_ops trialdisk_ops = {
    .kind = "trial", .submit = trialdisk_submit, .close = trialdisk_close, .block_status = trialdisk_status};

struct trialdisk *trialdisk_create(struct loop *loop, uint64_t size, uint32_t logical_block, uint32_t row)
{
    struct trialdisk *disk = calloc(1, sizeof *disk);
    struct blk_info info = {.size = size,
                            .logical_block = logical_block,
                            .physical_block = logical_block,
                            .optimal_io = row,
                            .max_request = 1024 * KIB,
                            .discards = true,
                            .discard_zeroes = true,
                            .volatile_cache = true};
    cr_assert(disk != NULL);
    blkdev_init(&disk->dev, &trialdisk_ops, loop, "trial", &info);
    disk->seen = calloc(1, size);
    disk->done = calloc(1, size);
    disk->stable = calloc(1, size);
    disk->stable_order = calloc(size / SECTOR, sizeof *disk->stable_order);
    disk->own = page_pool_create(OWN_PAGES);
    disk->fail_status = BLK_GONE;
    cr_assert(disk->seen != NULL && disk->done != NULL && disk->stable != NULL && disk->stable_order != NULL &&
              disk->own != NULL);
    return disk;
}
