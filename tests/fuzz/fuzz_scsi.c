/*
 * CDBs and parameter data from hostile initiators, against a LU over a memory disk.
 *
 * An input is a byte about the device and then records: how (1 byte), LUN (1), CDB (16), EDTL (2, big-endian), number
 * of data bytes that follow in the input (1), those bytes. Data beyond them are zeroes. Up to four tasks are in flight.
 * Besides what the sanitizers and assertions below see: every task ends once, with a status and lengths that are
 * possible, and all pages come back.
 */
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/scsi.h"
#include "tests/unit/lib/testloop.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { DISK_BYTES = 256 * 1024, PAGES = 2048, TASK_PAGES = 256, TASKS = 4, RECORD_BYTES = 21, RECORDS_MAX = 64 };
enum { DEVICE_4K = 1, DEVICE_NO_DISCARD = 2, DEVICE_SMALL_REQUESTS = 4, DEVICE_SLOW = 8, DEVICE_READ_ONLY = 16 };
enum { HOW_SECOND_NEXUS = 1, HOW_ABORT = 2, HOW_WAIT = 4, HOW_LU_RESET = 8, HOW_TARGET_RESET = 16 };

struct fuzz_task {
    struct scsi_task task;
    struct page *pages[TASK_PAGES];
    uint32_t page_count;
    bool running;
};

struct bench {
    struct testloop *t;
    struct memdisk *disk;
    struct scsi_target *target;
    struct scsi_nexus *nexus[2];
    struct fuzz_task tasks[TASKS];
};

static void task_over(struct scsi_task *task)
{
    static const uint8_t possible[] = {SCSI_GOOD, SCSI_CHECK_CONDITION,      SCSI_CONDITION_MET,
                                       SCSI_BUSY, SCSI_RESERVATION_CONFLICT, SCSI_TASK_ABORTED};
    struct fuzz_task *own = container_of(task, struct fuzz_task, task);
    ASSERT(own->running);
    ASSERT(memchr(possible, task->status, sizeof possible) != NULL);
    ASSERT(task->result_len <= task->data_len && task->sense_len <= SCSI_SENSE_MAX);
    ASSERT((task->sense_len > 0) == (task->status == SCSI_CHECK_CONDITION));
    page_put_all(own->pages, own->page_count);
    own->running = false;
}

static void bench_create(struct bench *bench, uint8_t device)
{
    *bench = (struct bench){.t = testloop_create(PAGES, 1)};
    bench->disk = memdisk_create(&bench->t->loop, "disk", DISK_BYTES, device & DEVICE_4K ? 4096 : 512);
    bench->disk->dev.info.discards = !(device & DEVICE_NO_DISCARD);
    bench->disk->dev.info.max_request = device & DEVICE_SMALL_REQUESTS ? 6000 : 0;
    bench->disk->latency_ns = device & DEVICE_SLOW ? 1000 : 0;
    bench->target = scsi_target_create(&bench->t->loop, "iqn.2026-11.org.example:fuzz");
    struct scsi_lu_options options = {
        .dev = &bench->disk->dev, .serial = "serial", .read_only = (device & DEVICE_READ_ONLY) != 0};
    ASSERT(bench->target != NULL && scsi_target_add_lun(bench->target, 0, &options) == 0);
    for (unsigned i = 0; i < 2; i++)
        bench->nexus[i] = scsi_nexus_create(bench->target, "iqn.2026-11.org.example:i,i,0x1");
}

static void run_nothing(struct task *task)
{
    (void)task;
}

static void bench_destroy(struct bench *bench)
{
    struct task stopped = {.run = run_nothing};
    testloop_run(bench->t);
    for (unsigned i = 0; i < TASKS; i++)
        ASSERT(!bench->tasks[i].running);
    for (unsigned i = 0; i < 2; i++)
        scsi_nexus_destroy(bench->nexus[i]);
    scsi_target_stop(bench->target, &stopped);
    testloop_run(bench->t);
    scsi_target_destroy(bench->target);
    test_close(bench->t, &bench->disk->dev);
    testloop_destroy(bench->t);
}

static struct fuzz_task *task_free(struct bench *bench)
{
    for (unsigned i = 0; i < TASKS; i++)
        if (!bench->tasks[i].running)
            return &bench->tasks[i];
    testloop_run(bench->t);
    return &bench->tasks[0];
}

static void task_start(struct bench *bench, struct fuzz_task *own, const uint8_t *bytes, uint32_t len)
{
    struct scsi_task *task = &own->task;
    if (!scsi_task_parse(task)) {
        ASSERT(task->status != SCSI_GOOD);
        return;
    }
    own->page_count = page_count_for(task->page_off, task->data_len);
    ASSERT(own->page_count <= TASK_PAGES && page_pool_get(bench->t->loop.pages, own->pages, own->page_count));
    task->pages = own->pages;
    if (task->direction == SCSI_DATA_OUT) {
        task->received_len = MIN(task->transport_len, task->data_len);
        pages_zero(own->pages, task->page_off, task->data_len);
        pages_copy_in(own->pages, task->page_off, bytes, MIN(len, task->received_len));
    }
    own->running = true;
    scsi_task_run(task);
}

/* One record; returns its bytes. */
static size_t step(struct bench *bench, const uint8_t *at, size_t len)
{
    static const uint8_t lun0[8] = {0};
    struct fuzz_task *own = task_free(bench);
    uint8_t how = at[0];
    uint32_t data_len = (uint32_t)MIN((size_t)at[20], len - RECORD_BYTES);
    own->task = (struct scsi_task){.nexus = bench->nexus[(how & HOW_SECOND_NEXUS) != 0],
                                   .lun = {0, at[1]},
                                   .transport_len = get_be16(at + 18),
                                   .done = task_over};
    memcpy(own->task.cdb, at + 2, SCSI_CDB_MAX);
    task_start(bench, own, at + RECORD_BYTES, data_len);
    if ((how & HOW_ABORT) && own->running)
        scsi_task_abort(&own->task);
    if (how & HOW_WAIT)
        testloop_run(bench->t);
    if (how & HOW_LU_RESET)
        scsi_lun_reset(bench->target, lun0);
    if (how & HOW_TARGET_RESET)
        scsi_target_reset(bench->target);
    return RECORD_BYTES + data_len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct bench bench;
    size_t at = 1;
    if (len < 1)
        return 0;
    bench_create(&bench, data[0]);
    for (unsigned records = 0; records < RECORDS_MAX && len - at >= RECORD_BYTES; records++)
        at += step(&bench, data + at, len - at);
    bench_destroy(&bench);
    return 0;
}
