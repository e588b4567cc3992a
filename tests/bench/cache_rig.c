#include "tests/bench/cache_rig.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/check.h"
#include "core/log.h"
#include "tests/bench/cache_load.h"
#include "tests/bench/harddisk.h"

enum { PAGES = 65536, FILL_DEPTH = 8 };

static void sink(enum log_level level, const char *line)
{
    if (level >= LOG_LEVEL_ERROR)
        fprintf(stderr, "%s\n", line);
}

struct made {
    struct array_call call;
    bool over;
};

static void made_done(struct array_call *call)
{
    container_of(call, struct made, call)->over = true;
}

static void call_wait(struct rig *rig, struct made *made)
{
    ASSERT(testloop_run_until(rig->t, &made->over));
    if (made->call.error == 0)
        return;
    fprintf(stderr, "%s\n", made->call.message);
    exit(1);
}

static void disks_create(struct rig *rig, struct array_spec *spec)
{
    struct sb_array plan = {.journal_bytes = 0};
    const char *wrong = superblock_plan(&plan, rig->options.disk_bytes, 64 * KIB);
    ASSERT(wrong == NULL);
    spec->disks_count = rig->options.disks;
    for (unsigned i = 0; i < spec->disks_count; i++) {
        text_format(spec->disks[i].identity, sizeof spec->disks[i].identity, "disk%u", i);
        spec->disks[i].dev = rig->disks[i] =
            harddisk_create(&rig->t->loop, spec->disks[i].identity, rig->options.disk_bytes, plan.data_start,
                            plan.data_start + plan.data_bytes);
    }
}

static void array_make(struct rig *rig)
{
    struct array_spec *spec = calloc(1, sizeof *spec);
    struct made made = {.call.done = made_done};
    ASSERT(spec != NULL);
    text_format(spec->name, sizeof spec->name, "bench");
    disks_create(rig, spec);
    spec->volumes_count = 1;
    spec->volumes[0] = (struct array_volume_spec){
        .name = "v",
        .layout = {.level = rig->options.level, .rotation = ROTATE_LEFT_SYMMETRIC, .chunk = 64 * KIB},
        .consistency_given = true,
        .consistency = rig->options.consistency};
    array_create(&rig->t->loop, spec, &made.call);
    free(spec);
    call_wait(rig, &made);
    rig->array = made.call.array;
    rig->volume = array_volume(rig->array, "v");
}

static void cache_make(struct rig *rig)
{
    rig->top = rig->volume;
    if (!rig->options.cached)
        return;
    rig->options.cache.name = "v";
    rig->cache = cache_create(rig->volume, &rig->options.cache);
    ASSERT(rig->cache != NULL);
    cache_set_power(rig->cache, true);
    rig->top = cache_dev(rig->cache);
}

static void fill(struct rig *rig)
{
    struct load_options rows = {.dev = rig->volume,
                                .op = BLK_WRITE,
                                .bytes = rig_row_bytes(rig),
                                .span = rig->options.written,
                                .next = load_sequential,
                                .clients = FILL_DEPTH,
                                .count = rig->options.written / rig_row_bytes(rig)};
    if (rows.count == 0)
        return;
    load_free(load_run(rig->t, &rows));
    enum blk_status status = test_io(rig->t, rig->volume, BLK_FLUSH, 0, 0, NULL, 0);
    ASSERT(status == BLK_OK);
}

struct rig *rig_create(const struct rig_options *options)
{
    struct rig *rig = calloc(1, sizeof *rig);
    ASSERT(rig != NULL && options->disks <= RIG_DISKS_MAX);
    log_setup(sink, LOG_LEVEL_ERROR);
    rig->options = *options;
    rig->t = testloop_create(PAGES, 1);
    array_make(rig);
    fill(rig);
    cache_make(rig);
    return rig;
}

void rig_destroy(struct rig *rig)
{
    struct made made = {.call.done = made_done};
    if (rig->cache != NULL)
        test_close(rig->t, cache_dev(rig->cache));
    array_close(rig->array, &made.call);
    call_wait(rig, &made);
    testloop_run(rig->t);
    for (unsigned i = 0; i < rig->options.disks; i++)
        test_close(rig->t, rig->disks[i]);
    testloop_run(rig->t);
    testloop_destroy(rig->t);
    free(rig);
}

uint64_t rig_row_bytes(const struct rig *rig)
{
    return rig->volume->info.optimal_io;
}

struct rig_options rig_usual(void)
{
    return (struct rig_options){.disks = 5, .level = RAID_5, .consistency = SB_PPL, .disk_bytes = 74000000000};
}

struct rig_options rig_battery(uint64_t cache_bytes)
{
    struct rig_options o = rig_usual();
    o.cached = true;
    o.cache = (struct cache_options){
        .bytes = cache_bytes, .write_back = true, .protection = CACHE_PROTECT_BATTERY, .readahead = READAHEAD_NONE};
    return o;
}
