/*
 * How fast jobs are, and what initiators keep beside them: in virtual time, on disks that do one request after the
 * other, each at a price.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/raid/arrays.h"

#define DISK   (96 * MIB)
#define SECOND 1000000000ull

enum { RATE = 150000000, CLIENTS = 8, READ_BYTES = 16384 };

struct model {
    const char *name;
    uint64_t rate, request_ns, seek_ns;
};

static const struct model rotating = {"rotating", RATE, 100000, 8000000};
static const struct model solid = {"solid", 500000000, 40000, 0};
/* The same a fifth as fast, so that what does not depend on the size of a disk does not count. */
static const struct model slow_rotating = {"rotating", RATE / 5, 500000, 8000000};
static const struct model slow_solid = {"solid", 100000000, 200000, 0};

static void model_put(struct rig *rig, unsigned slot, const struct model *model)
{
    struct memdisk *disk = rig->mem[slot];
    disk->rate = model->rate;
    disk->request_ns = model->request_ns;
    disk->seek_ns = model->seek_ns;
    disk->dev.info.rotational = model->seek_ns != 0;
    rig->dev[slot]->info.rotational = model->seek_ns != 0;
}

/* An array with a volume of which `percent` is written, and a blank disk in slot 1 that the rebuild has begun to
 * fill. */
static struct rig *rig_rebuilding(enum raid_level level, const struct model *model, unsigned percent)
{
    struct rig *rig = rig_create(4, DISK);
    cr_assert(rig_make_one(rig, level, 0), "%s", rig->message);
    struct blkdev *dev = array_volume(rig->array, "v");
    uint8_t *bytes = malloc(4 * MIB);
    test_fill(bytes, 4 * MIB, 1);
    uint64_t end = dev->info.size / 100 * percent;
    for (uint64_t off = 0; off < end; off += 4 * MIB)
        cr_assert_eq(test_io(rig->t, dev, BLK_WRITE, 0, off, bytes, MIN(4 * MIB, dev->info.size - off)), BLK_OK);
    free(bytes);
    testloop_run(rig->t);
    cr_assert(rig_fail(rig, 1), "%s", rig->message);
    rig_disk_replace(rig, 1, DISK, 512);
    for (unsigned i = 0; i < 4; i++)
        model_put(rig, i, model);
    return rig;
}

static uint64_t rebuilt_bytes(struct rig *rig)
{
    struct array_info info = rig_info(rig);
    return info.jobs_count > 0 ? info.jobs[0].done_bytes / 4 : 0;
}

/* Bytes of one disk. */
static uint64_t written_bytes(const struct rig *rig)
{
    const struct sb_volume *v = &array_description(rig->array)->volumes[0];
    return (uint64_t)((double)array_usage(rig->array, 0).written_bytes / (double)v->size * (double)v->extent);
}

/* From the first row to the last. */
static uint64_t rebuild_ns(struct rig *rig)
{
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    while (rebuilt_bytes(rig) == 0)
        rig_wait(rig, 1000000);
    uint64_t start = rig->t->loop.now_ns;
    while (rebuilt_bytes(rig) > 0)
        rig_wait(rig, 1000000);
    uint64_t ns = rig->t->loop.now_ns - start;
    testloop_run(rig->t);
    cr_expect_str_eq(rig_info(rig).state, "optimal");
    return ns;
}

Test(jobs_speed, a_rebuild_of_an_idle_array_goes_at_the_rate_of_its_slowest_disk)
{
    static const enum raid_level levels[] = {RAID_5, RAID_10, RAID_6};
    const struct model *models[] = {&slow_rotating, &slow_solid};
    for (unsigned m = 0; m < 2; m++) {
        for (unsigned l = 0; l < ARRAY_LENGTH(levels); l++) {
            struct rig *rig = rig_rebuilding(levels[l], models[m], 100);
            struct model slow = *models[m];
            slow.rate = slow.rate * 9 / 10;
            model_put(rig, 1, &slow);
            uint64_t bytes = written_bytes(rig), ns = rebuild_ns(rig);
            double rate = (double)bytes / (double)ns * 1e9;
            cr_expect_geq(rate, 0.95 * (double)slow.rate, "%s disks, %s: %.3f", models[m]->name,
                          raid_level_name(levels[l]), rate / (double)slow.rate);
            rig_destroy(rig);
        }
    }
}

Test(jobs_speed, a_rebuild_takes_as_long_as_what_was_written)
{
    struct rig *rig = rig_rebuilding(RAID_5, &slow_rotating, 100);
    uint64_t full = rebuild_ns(rig);
    rig_destroy(rig);
    rig = rig_rebuilding(RAID_5, &slow_rotating, 10);
    uint64_t tenth = rebuild_ns(rig);
    rig_destroy(rig);
    cr_expect(tenth * 8 < full && tenth * 13 > full, "%.3f", (double)tenth / (double)full);
}

/* --- beside initiators --- */

struct client {
    struct blk_req req;
    struct page *pages[READ_BYTES / PAGE_BYTES];
    struct blkdev *dev;
    uint64_t seed, *answered;
    bool stop;
};

static void client_ask(struct client *c)
{
    uint64_t at = test_random(&c->seed) % (c->dev->info.size / READ_BYTES);
    c->req.off = at * READ_BYTES;
    blk_submit(c->dev, &c->req);
}

static void client_answered(struct blk_req *req)
{
    struct client *c = container_of(req, struct client, req);
    ASSERT(req->status == BLK_OK);
    ++*c->answered;
    if (c->stop)
        page_put_all(c->pages, ARRAY_LENGTH(c->pages));
    else
        client_ask(c);
}

static struct client *clients_start(struct rig *rig, uint64_t *answered)
{
    struct client *clients = calloc(CLIENTS, sizeof *clients);
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct client *c = &clients[i];
        *c = (struct client){.dev = array_volume(rig->array, "v"), .seed = i, .answered = answered};
        ASSERT(page_pool_get(rig->t->loop.pages, c->pages, ARRAY_LENGTH(c->pages)));
        c->req = (struct blk_req){.op = BLK_READ, .len = READ_BYTES, .pages = c->pages, .done = client_answered};
        client_ask(c);
    }
    return clients;
}

static void clients_stop(struct rig *rig, struct client *clients)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        clients[i].stop = true;
    testloop_run(rig->t);
    free(clients);
}

struct outcome {
    double kept;    /* of the initiators' rate without the job */
    double rebuilt; /* bytes of a disk a second */
};

/* What clients get beside a rebuild that has been under way for a while. */
static struct outcome side_by_side(const struct model *model, unsigned priority)
{
    struct outcome outcome;
    uint64_t answered = 0;
    struct rig *rig = rig_rebuilding(RAID_5, model, 100);
    struct client *clients = clients_start(rig, &answered);
    rig_wait(rig, 5 * SECOND);
    uint64_t alone = answered;
    cr_assert(rig_rate(rig, 0, priority, 0, 0), "%s", rig->message);
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    rig_wait(rig, SECOND * 3 / 10);
    uint64_t before = answered, rebuilt = rebuilt_bytes(rig), now = 0, ns = 0;
    for (; rig_info(rig).jobs_count > 0 && ns < 5 * SECOND; ns += SECOND / 100) {
        now = rebuilt_bytes(rig);
        rig_wait(rig, SECOND / 100);
    }
    outcome.kept = (double)(answered - before) / (double)alone * (double)(5 * SECOND) / (double)ns;
    outcome.rebuilt = (double)(now - rebuilt) / (double)ns * 1e9;
    clients_stop(rig, clients);
    rig_destroy(rig);
    return outcome;
}

Test(jobs_speed, initiators_keep_what_the_priority_leaves_them)
{
    const struct model *models[] = {&rotating, &solid};
    for (unsigned m = 0; m < 2; m++) {
        struct outcome low = side_by_side(models[m], 20), high = side_by_side(models[m], 80);
        cr_expect_geq(low.kept, 0.9, "%s: %.3f", models[m]->name, low.kept);
        cr_expect_geq(high.rebuilt, 3 * low.rebuilt, "%s: %.0f, %.0f", models[m]->name, low.rebuilt, high.rebuilt);
    }
}
