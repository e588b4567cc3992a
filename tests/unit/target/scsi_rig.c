/* See scsi_rig.h. */
#include "tests/unit/target/scsi_rig.h"

#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/log.h"

static struct rig *rig_of(struct blkdev *dev)
{
    return container_of(dev->ops, struct rig, ops);
}

static void keep_pages(struct rig *rig, struct blk_req *req)
{
    uint32_t count = page_count_for(req->off, req->len);
    for (uint32_t i = 0; i < count && rig->kept_count < RIG_KEEP_MAX; i++) {
        page_ref(req->pages[i]);
        rig->kept[rig->kept_count++] = req->pages[i];
    }
}

static void rig_submit(struct blkdev *dev, struct blk_req *req)
{
    struct rig *rig = rig_of(dev);
    rig->requests++;
    rig->longest = MAX(rig->longest, req->len);
    rig->last_flags = req->flags;
    rig->last_op = req->op;
    if (rig->keep && req->op == BLK_READ)
        keep_pages(rig, req);
    bool before = req->len > 0 && req->off + req->len <= rig->fail_off;
    if (!rig->fail || req->op != rig->fail_op || before)
        rig->disk_ops->submit(dev, req);
    else if (rig->fail_status == BLK_MEDIA)
        blk_complete_media(req, MAX(rig->fail_off, req->off));
    else
        blk_complete(req, rig->fail_status);
}

static void take_attentions(struct rig *rig, struct scsi_nexus *nexus)
{
    while (rig_do(rig, nexus, CDB(0x00), NULL, 0)->key == 6)
        ;
}

static void keeper_done(struct task *task)
{
    struct rig_keeper *keeper = container_of(task, struct rig_keeper, task);
    struct scsi_keep *call = keeper->call;
    keeper->call = NULL;
    call->error = keeper->error;
    if (call->error == 0) {
        free(keeper->record);
        keeper->record = call->record != NULL ? strdup(call->record) : NULL;
    }
    call->done(call);
}

void rig_keeper_answer(struct rig_keeper *keeper)
{
    keeper->task.run = keeper_done;
    loop_defer(&keeper->t->loop, &keeper->task);
}

static void keeper_keep(struct scsi_keeper *door, struct scsi_keep *call)
{
    struct rig_keeper *keeper = container_of(door, struct rig_keeper, door);
    ASSERT(keeper->call == NULL);
    keeper->call = call;
    keeper->calls++;
    if (!keeper->hold)
        rig_keeper_answer(keeper);
}

void rig_naa(unsigned lun, uint8_t out[16])
{
    for (unsigned i = 0; i < 16; i++)
        out[i] = (uint8_t)(0x60 + i);
    out[15] = (uint8_t)(out[15] + lun);
}

struct rig *rig_create(const struct rig_options *options)
{
    static const struct rig_options plain = {0};
    const struct rig_options *o = options != NULL ? options : &plain;
    struct rig *rig = calloc(1, sizeof *rig);
    rig->t = testloop_create(RIG_PAGES, 11);
    rig->disk = memdisk_create(&rig->t->loop, "disk", RIG_DISK_BYTES, o->block ? o->block : 512);
    rig->disk->latency_ns = o->latency_ns;
    rig->disk->dev.info.physical_block = o->physical ? o->physical : 4096;
    rig->disk->dev.info.max_request = o->max_request;
    rig->disk->dev.info.optimal_io = 256 * 1024;
    rig->disk->dev.info.discards = !o->no_discard;
    rig->disk_ops = rig->disk->dev.ops;
    rig->ops = *rig->disk_ops;
    rig->ops.submit = rig_submit;
    if (o->block_status != NULL)
        rig->ops.block_status = o->block_status;
    rig->disk->dev.ops = &rig->ops;
    rig->target = scsi_target_create(&rig->t->loop, "iqn.2026-11.org.example:t");
    rig->keeper = (struct rig_keeper){.door = {keeper_keep}, .t = rig->t};
    struct scsi_lu_options lu = {.dev = &rig->disk->dev,
                                 .read_only = o->read_only,
                                 .hide_physical = o->hide_physical,
                                 .removable = o->removable,
                                 .sanitize_rate = o->sanitize_rate,
                                 .soft_threshold = o->soft_threshold,
                                 .keeper = o->no_keeper ? NULL : &rig->keeper.door,
                                 .record = o->record};
    text_format(lu.serial, sizeof lu.serial, "%s", "0c9b54a1-5b0e-4b0f-9a48-6a4b39a8fd01");
    rig_naa(0, lu.naa);
    ASSERT(rig->target != NULL && scsi_target_add_lun(rig->target, 0, &lu) == 0);
    rig->a = scsi_nexus_create(rig->target, "iqn.2026-11.org.example:a,i,0x1");
    rig->b = scsi_nexus_create(rig->target, "iqn.2026-11.org.example:b,i,0x2");
    take_attentions(rig, rig->a);
    take_attentions(rig, rig->b);
    return rig;
}

void rig_add_second(struct rig *rig, bool read_only)
{
    const struct blk_info *info = &rig->disk->dev.info;
    rig->second = memdisk_create(&rig->t->loop, "second", RIG_DISK_BYTES, info->logical_block);
    rig->second->latency_ns = rig->disk->latency_ns;
    rig->second->dev.info.max_request = info->max_request;
    rig->second->dev.info.discards = info->discards;
    struct scsi_lu_options lu = {.dev = &rig->second->dev, .read_only = read_only};
    rig_naa(1, lu.naa);
    ASSERT(scsi_target_add_lun(rig->target, 1, &lu) == 0);
    for (rig->lun = 2; rig->lun-- > 0;) {
        take_attentions(rig, rig->a);
        take_attentions(rig, rig->b);
    }
    rig->lun = 0;
}

void rig_keep_nothing(struct rig *rig)
{
    page_put_all(rig->kept, rig->kept_count);
    rig->kept_count = 0;
}

static void run_stopped(struct task *task)
{
    container_of(task, struct rig, stopping)->stopped = true;
}

void rig_stop(struct rig *rig)
{
    rig->stopping.run = run_stopped;
    scsi_target_stop(rig->target, &rig->stopping);
    ASSERT(testloop_run_until(rig->t, &rig->stopped));
}

void rig_destroy(struct rig *rig)
{
    rig_keep_nothing(rig);
    if (rig->a != NULL)
        scsi_nexus_destroy(rig->a);
    if (rig->b != NULL)
        scsi_nexus_destroy(rig->b);
    rig_stop(rig);
    scsi_target_destroy(rig->target);
    test_close(rig->t, &rig->disk->dev);
    if (rig->second != NULL)
        test_close(rig->t, &rig->second->dev);
    testloop_destroy(rig->t);
    free(rig->keeper.record);
    free(rig);
}

static void on_done(struct scsi_task *task)
{
    container_of(task, struct rig_task, task)->done = true;
}

struct rig_task *rig_start(struct rig *rig, struct scsi_nexus *nexus, const uint8_t *cdb, const void *out,
                           uint32_t out_len)
{
    struct rig_task *task = calloc(1, sizeof *task);
    task->task = (struct scsi_task){.nexus = nexus, .transport_len = out_len, .done = on_done};
    task->task.lun[1] = rig->lun;
    memcpy(task->task.cdb, cdb, SCSI_CDB_MAX);
    if (!scsi_task_parse(&task->task)) {
        task->done = true;
        return task;
    }
    task->page_count = page_count_for(task->task.page_off, task->task.data_len);
    ASSERT(page_pool_get(rig->t->loop.pages, task->pages, task->page_count));
    task->task.pages = task->pages;
    if (task->task.direction == SCSI_DATA_OUT) {
        task->task.received_len = MIN(out_len, task->task.data_len);
        pages_copy_in(task->pages, task->task.page_off, out, task->task.received_len);
    }
    scsi_task_run(&task->task);
    ASSERT(!task->done);
    return task;
}

void rig_run(struct rig *rig, struct rig_task *task)
{
    task->task.done = on_done;
    scsi_task_run(&task->task);
    ASSERT(testloop_run_until(rig->t, &task->done));
}

void rig_end(struct rig_task *task)
{
    page_put_all(task->pages, task->page_count);
    free(task);
}

static void read_sense(struct rig_reply *reply, const uint8_t *sense)
{
    bool descriptors = (sense[0] & 0x7f) == 0x72;
    reply->key = sense[descriptors ? 1 : 2];
    reply->asc = sense[descriptors ? 2 : 12];
    reply->ascq = sense[descriptors ? 3 : 13];
    reply->has_information = descriptors ? sense[7] == 12 : (sense[0] & 0x80) != 0;
    if (reply->has_information)
        reply->information = descriptors ? get_be64(sense + 12) : get_be32(sense + 3);
}

struct rig_reply *rig_do(struct rig *rig, struct scsi_nexus *nexus, const uint8_t *cdb, const void *out,
                         uint32_t out_len)
{
    static struct rig_reply reply;
    struct rig_task *task = rig_start(rig, nexus, cdb, out, out_len);
    ASSERT(testloop_run_until(rig->t, &task->done));
    memset(&reply, 0, sizeof reply);
    reply.direction = task->task.direction;
    reply.status = task->task.status;
    reply.data_len = task->task.data_len;
    reply.len = task->task.result_len;
    if (reply.status == SCSI_CHECK_CONDITION)
        read_sense(&reply, task->task.sense);
    pages_copy_out(reply.data, task->pages, task->task.page_off, MIN(reply.len, (uint32_t)RIG_DATA_MAX));
    rig_end(task);
    return &reply;
}

const char *rig_outcome(const struct rig_reply *reply)
{
    static const struct {
        enum scsi_status status;
        const char *name;
    } names[] = {{SCSI_GOOD, "good"},
                 {SCSI_CONDITION_MET, "met"},
                 {SCSI_RESERVATION_CONFLICT, "conflict"},
                 {SCSI_TASK_ABORTED, "aborted"}};
    static char text[32];
    for (unsigned i = 0; i < ARRAY_LENGTH(names); i++)
        if (names[i].status == reply->status)
            return names[i].name;
    text_format(text, sizeof text, "%X/%02X/%02X", reply->key, reply->asc, reply->ascq);
    return text;
}
