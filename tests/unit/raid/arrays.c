#include "tests/unit/raid/arrays.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"

enum { LATENCY_NS = 100000, PAGES = 4096 };

struct rig_call {
    struct array_call call;
    bool over;
};

static void call_done(struct array_call *call)
{
    container_of(call, struct rig_call, call)->over = true;
}

static struct rig_call rig_call(void)
{
    return (struct rig_call){.call.done = call_done};
}

static bool call_wait(struct rig *rig, struct rig_call *call)
{
    ASSERT(testloop_run_until(rig->t, &call->over));
    rig->error = call->call.error;
    text_format(rig->message, sizeof rig->message, "%s", call->call.message);
    ASSERT((rig->error == 0) == (rig->message[0] == '\0'));
    return rig->error == 0;
}

static void quiet_sink(enum log_level level, const char *line)
{
    (void)level;
    if (strstr(line, "assertion failed") != NULL)
        fprintf(stderr, "%s\n", line);
}

void rig_disk_new(struct rig *rig, unsigned slot, uint64_t bytes, uint32_t logical_block)
{
    char name[16];
    text_format(name, sizeof name, "disk%u", slot);
    rig->mem[slot] = memdisk_create(&rig->t->loop, name, bytes, logical_block);
    rig->mem[slot]->latency_ns = LATENCY_NS;
    rig->dev[slot] = fault_create(&rig->t->loop, &rig->mem[slot]->dev);
}

void rig_journal_new(struct rig *rig, struct array_spec *spec, uint64_t bytes)
{
    unsigned index = spec->journals_count++;
    char name[16];
    text_format(name, sizeof name, "log%u", index);
    rig->journal_mem[index] = memdisk_create(&rig->t->loop, name, bytes, 512);
    rig->journal_mem[index]->latency_ns = LATENCY_NS / 2;
    rig->journal_dev[index] = fault_create(&rig->t->loop, &rig->journal_mem[index]->dev);
    struct array_disk disk = {.dev = rig->journal_dev[index]};
    text_format(disk.identity, sizeof disk.identity, "%s", name);
    spec->journals[index] = rig->journals.disks[index] = disk;
}

struct rig *rig_create(unsigned count, uint64_t bytes)
{
    struct rig *rig = calloc(1, sizeof *rig);
    ASSERT(rig != NULL && count <= RIG_DISKS);
    log_setup(quiet_sink, LOG_LEVEL_DEBUG);
    rig->t = testloop_create(PAGES, 42);
    rig->count = count;
    for (unsigned i = 0; i < count; i++)
        rig_disk_new(rig, i, bytes, 512);
    return rig;
}

void rig_destroy(struct rig *rig)
{
    if (rig->array != NULL)
        rig_close(rig);
    testloop_run(rig->t);
    for (unsigned i = 0; i < rig->count; i++)
        test_close(rig->t, rig->dev[i]);
    for (unsigned i = 0; i < rig->old_count; i++)
        test_close(rig->t, rig->old[i]);
    for (unsigned i = 0; i < SB_JOURNALS_MAX; i++)
        if (rig->journal_dev[i] != NULL)
            test_close(rig->t, rig->journal_dev[i]);
    testloop_run(rig->t);
    testloop_destroy(rig->t);
    free(rig);
}

void rig_disk_replace(struct rig *rig, unsigned slot, uint64_t bytes, uint32_t logical_block)
{
    ASSERT(rig->old_count < ARRAY_LENGTH(rig->old));
    rig->old[rig->old_count++] = rig->dev[slot];
    rig_disk_new(rig, slot, bytes, logical_block);
}

struct array_disk rig_disk(const struct rig *rig, unsigned slot)
{
    struct array_disk disk = {.dev = rig->dev[slot]};
    text_format(disk.identity, sizeof disk.identity, "disk%u", slot);
    return disk;
}

/* --- specs and calls --- */

struct array_spec *rig_spec(const struct rig *rig)
{
    struct array_spec *spec = calloc(1, sizeof *spec);
    ASSERT(spec != NULL);
    text_format(spec->name, sizeof spec->name, "r0");
    spec->disks_count = rig->count;
    for (unsigned i = 0; i < rig->count; i++)
        spec->disks[i] = rig_disk(rig, i);
    return spec;
}

static struct array_volume_spec volume_spec(const char *name, enum raid_level level, uint64_t size)
{
    struct array_volume_spec spec = {
        .layout = {.level = level,
                   .rotation = ROTATE_LEFT_SYMMETRIC,
                   .spans = level == RAID_30 || level == RAID_50 || level == RAID_60 ? 2 : 0},
        .size = size};
    spec.consistency_given = level != RAID_0 && level != RAID_SPAN && level != RAID_JBOD;
    spec.consistency = spec.consistency_given ? SB_BITMAP : SB_RESYNC;
    text_format(spec.name, sizeof spec.name, "%s", name);
    return spec;
}

void rig_spec_add(struct array_spec *spec, const char *name, enum raid_level level, uint64_t size)
{
    spec->volumes[spec->volumes_count++] = volume_spec(name, level, size);
}

bool rig_make(struct rig *rig, struct array_spec *spec)
{
    struct rig_call call = rig_call();
    array_create(&rig->t->loop, spec, &call.call);
    free(spec);
    bool good = call_wait(rig, &call);
    ASSERT((call.call.array != NULL) == good);
    rig->array = call.call.array;
    return good;
}

bool rig_make_one(struct rig *rig, enum raid_level level, uint64_t size)
{
    struct array_spec *spec = rig_spec(rig);
    rig_spec_add(spec, "v", level, size);
    return rig_make(rig, spec);
}

bool rig_close(struct rig *rig)
{
    struct rig_call call = rig_call();
    array_close(rig->array, &call.call);
    rig->array = NULL;
    return call_wait(rig, &call);
}

bool rig_fail(struct rig *rig, unsigned slot)
{
    struct rig_call call = rig_call();
    array_fail_member(rig->array, slot, &call.call);
    return call_wait(rig, &call);
}

unsigned rig_disk_more(struct rig *rig, uint64_t bytes, uint32_t logical_block)
{
    ASSERT(rig->count < RIG_DISKS);
    rig_disk_new(rig, rig->count, bytes, logical_block);
    return rig->count++;
}

bool rig_replace(struct rig *rig, unsigned slot, unsigned disk)
{
    struct rig_call call = rig_call();
    struct array_disk it = rig_disk(rig, disk);
    array_replace_member(rig->array, slot, &it, &call.call);
    return call_wait(rig, &call);
}

bool rig_replaced(struct rig *rig)
{
    struct array_replacement r;
    array_replacement(rig->array, &r);
    for (unsigned looks = 0; r.running && looks < 100000; looks++) {
        rig_wait(rig, 1000000);
        array_replacement(rig->array, &r);
    }
    ASSERT(!r.running && r.left != NULL);
    text_format(rig->message, sizeof rig->message, "%s", r.message);
    return r.error == 0;
}

bool rig_forget(struct rig *rig, unsigned slot)
{
    struct rig_call call = rig_call();
    array_forget_member(rig->array, slot, &call.call);
    return call_wait(rig, &call);
}

bool rig_scrub(struct rig *rig, const char *volume, enum sb_scrub_mode mode)
{
    struct rig_call call = rig_call();
    array_scrub(rig->array, volume, mode, &call.call);
    return call_wait(rig, &call);
}

bool rig_init(struct rig *rig, const char *volume, bool begin)
{
    struct rig_call call = rig_call();
    array_init_volume(rig->array, volume, begin, &call.call);
    return call_wait(rig, &call);
}

bool rig_replace_cancel(struct rig *rig)
{
    struct rig_call call = rig_call();
    array_replace_cancel(rig->array, &call.call);
    return call_wait(rig, &call);
}

bool rig_online_disk(struct rig *rig, unsigned slot, unsigned disk)
{
    struct rig_call call = rig_call();
    struct array_disk it = rig_disk(rig, disk);
    array_online_member(rig->array, slot, &it, &call.call);
    return call_wait(rig, &call);
}

bool rig_online(struct rig *rig, unsigned slot)
{
    return rig_online_disk(rig, slot, slot);
}

bool rig_rate(struct rig *rig, unsigned volume, unsigned priority, uint64_t min_rate, uint64_t max_rate)
{
    struct rig_call call = rig_call();
    array_set_rate(rig->array, volume, &(struct array_rate){priority, min_rate, max_rate}, &call.call);
    return call_wait(rig, &call);
}

bool rig_pause(struct rig *rig, unsigned volume, bool paused)
{
    struct rig_call call = rig_call();
    array_pause_volume(rig->array, volume, paused, &call.call);
    return call_wait(rig, &call);
}

bool rig_volume_keep(struct rig *rig, unsigned volume, const char *name, const char *json)
{
    struct rig_call call = rig_call();
    array_volume_keep(rig->array, volume, name, json, &call.call);
    return call_wait(rig, &call);
}

bool rig_add(struct rig *rig, const char *name, enum raid_level level, uint64_t size)
{
    struct rig_call call = rig_call();
    struct array_volume_spec spec = volume_spec(name, level, size);
    array_add_volume(rig->array, &spec, &call.call);
    return call_wait(rig, &call);
}

bool rig_resize(struct rig *rig, unsigned volume, uint64_t size, bool shrink)
{
    struct rig_call call = rig_call();
    array_resize_volume(rig->array, volume, size, shrink, &call.call);
    return call_wait(rig, &call);
}

/* --- assembly --- */

struct reading {
    struct label_op op;
    struct sb_label label;
    bool over;
};

static void reading_done(struct label_op *op)
{
    container_of(op, struct reading, op)->over = true;
}

static bool label_from_disk(struct rig *rig, unsigned slot, struct reading *reading)
{
    *reading = (struct reading){.op = {.dev = rig->dev[slot], .label = &reading->label, .done = reading_done}};
    label_read(&reading->op);
    ASSERT(testloop_run_until(rig->t, &reading->over));
    return reading->op.status == BLK_OK && reading->op.verdict == SB_VALID;
}

bool rig_assemble(struct rig *rig, unsigned mask, bool force)
{
    struct reading *readings = calloc(RIG_DISKS, sizeof *readings);
    struct assembly_disk disks[RIG_DISKS];
    struct array_disk found[RIG_DISKS], in_slots[RAID_MEMBERS_MAX] = {0};
    unsigned count = 0;
    ASSERT(readings != NULL);
    for (unsigned i = 0; i < rig->count; i++) {
        if (!(mask & 1u << i) || !label_from_disk(rig, i, &readings[i]))
            continue;
        found[count] = rig_disk(rig, i);
        disks[count] = (struct assembly_disk){&readings[i].label, found[count].identity, rig->dev[i]->name, NULL};
        count++;
    }
    struct assembly_options options = {.force = force};
    unsigned arrays = assembly_decide(disks, count, &options, &rig->assembly, 1);
    ASSERT(arrays == 1);
    for (unsigned slot = 0; slot < rig->assembly.array.members_count; slot++)
        if (rig->assembly.disk_of_slot[slot] >= 0)
            in_slots[slot] = found[rig->assembly.disk_of_slot[slot]];
    struct rig_call call = rig_call();
    rig->journals.force = force;
    array_open(&rig->t->loop, &rig->assembly, in_slots, &rig->journals, &call.call);
    free(readings);
    bool good = call_wait(rig, &call);
    rig->array = call.call.array;
    return good;
}

static void power(struct rig *rig, bool cut)
{
    for (unsigned i = 0; i < rig->count; i++)
        rig->mem[i]->power_cut = cut;
    for (unsigned i = 0; i < SB_JOURNALS_MAX; i++)
        if (rig->journal_mem[i] != NULL)
            rig->journal_mem[i]->power_cut = cut;
}

void rig_kill(struct rig *rig)
{
    power(rig, true);
    array_abandon(rig->array);
    testloop_run(rig->t);
    bool clean = rig_close(rig);
    ASSERT(!clean);
    power(rig, false);
}

enum sb_verdict rig_label(const struct rig *rig, unsigned slot, struct sb_label *label)
{
    const uint64_t copies[] = {SB_HEAD_0, SB_HEAD_1};
    enum sb_verdict verdict = SB_NONE;
    struct sb_label *one = calloc(1, sizeof *one);
    ASSERT(one != NULL);
    for (unsigned i = 0; i < 2; i++) {
        enum sb_verdict v = superblock_decode(rig->mem[slot]->bytes + copies[i], SB_SLOT_BYTES, one, NULL, 0);
        if (v != SB_VALID || (verdict == SB_VALID && one->array.generation < label->array.generation))
            continue;
        verdict = v;
        *label = *one;
    }
    free(one);
    return verdict;
}

/* --- data --- */

enum blk_status rig_fill(struct rig *rig, const char *volume, uint64_t seed, uint64_t step)
{
    struct blkdev *dev = array_volume(rig->array, volume);
    uint8_t *bytes = malloc(dev->info.size);
    enum blk_status status = BLK_OK;
    ASSERT(bytes != NULL);
    test_fill(bytes, dev->info.size, seed);
    for (uint64_t off = 0; off < dev->info.size && status == BLK_OK; off += step)
        status = test_io(rig->t, dev, BLK_WRITE, 0, off, bytes + off, MIN(step, dev->info.size - off));
    free(bytes);
    return status;
}

bool rig_holds(struct rig *rig, const char *volume, uint64_t seed)
{
    struct blkdev *dev = array_volume(rig->array, volume);
    uint8_t *want = malloc(dev->info.size), *have = malloc(dev->info.size);
    bool same = true;
    ASSERT(want != NULL && have != NULL);
    test_fill(want, dev->info.size, seed);
    for (uint64_t off = 0; off < dev->info.size && same; off += MIB)
        same = test_io(rig->t, dev, BLK_READ, 0, off, have + off, MIN(MIB, dev->info.size - off)) == BLK_OK;
    same = same && memcmp(want, have, dev->info.size) == 0;
    free(want);
    free(have);
    return same;
}

struct blkdev *rig_volume(struct rig *rig)
{
    return array_volume(rig->array, "v");
}

void rig_put(struct rig *rig, uint64_t off, uint64_t len, uint64_t seed)
{
    uint8_t *bytes = malloc(len);
    ASSERT(bytes != NULL);
    test_fill(bytes, len, seed);
    enum blk_status status = test_io(rig->t, rig_volume(rig), BLK_WRITE, 0, off, bytes, len);
    ASSERT(status == BLK_OK);
    free(bytes);
}

bool rig_has(struct rig *rig, uint64_t off, uint64_t len, uint64_t seed)
{
    uint8_t *want = calloc(1, len), *have = malloc(len);
    ASSERT(want != NULL && have != NULL);
    if (seed != 0)
        test_fill(want, len, seed);
    bool same = test_io(rig->t, rig_volume(rig), BLK_READ, 0, off, have, len) == BLK_OK && memcmp(want, have, len) == 0;
    free(want);
    free(have);
    return same;
}

struct array_info rig_info(struct rig *rig)
{
    struct array_info info;
    array_info(rig->array, &info);
    return info;
}

void rig_settle(struct rig *rig)
{
    testloop_run(rig->t);
    ASSERT(rig_info(rig).jobs_count == 0);
}

struct wait {
    struct timer timer;
    bool over;
};

static void wait_over(struct timer *timer)
{
    container_of(timer, struct wait, timer)->over = true;
}

void rig_wait(struct rig *rig, uint64_t ns)
{
    struct wait wait = {.timer.fire = wait_over};
    timer_start(&rig->t->loop, &wait.timer, ns);
    ASSERT(testloop_run_until(rig->t, &wait.over));
}

static void write_done(struct blk_req *req)
{
    struct rig_write *write = container_of(req, struct rig_write, req);
    write->over = true;
    page_put_all(write->pages, page_count_for(req->off, req->len));
    if (write->on_done != NULL)
        write->on_done(write);
}

void rig_write_start(struct rig *rig, struct rig_write *write, const char *volume, uint64_t off, uint64_t len,
                     uint64_t seed)
{
    uint32_t count = page_count_for(off, len);
    uint8_t *bytes = malloc(len);
    ASSERT(bytes != NULL && count <= ARRAY_LENGTH(write->pages));
    ASSERT(page_pool_get(rig->t->loop.pages, write->pages, count));
    test_fill(bytes, len, seed);
    pages_copy_in(write->pages, off % PAGE_BYTES, bytes, len);
    free(bytes);
    write->over = false;
    write->req = (struct blk_req){.op = BLK_WRITE, .off = off, .len = len, .pages = write->pages, .done = write_done};
    blk_submit(array_volume(rig->array, volume), &write->req);
}
