/* ORWRITE and WRITE ATOMIC: writes that are one piece to everybody else. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "core/bytes.h"
#include "core/check.h"
#include "tests/unit/target/scsi_rig.h"

static uint8_t data[RIG_DATA_MAX], before[RIG_DISK_BYTES];

enum { ORWRITE = 0x8b, WRITE_ATOMIC = 0x9c, FUA = 0x08 };

static const uint8_t *cdb16(uint8_t opcode, uint8_t flags, uint64_t lba, uint32_t blocks)
{
    static uint8_t cdb[SCSI_CDB_MAX];
    memset(cdb, 0, sizeof cdb);
    cdb[0] = opcode;
    cdb[1] = flags;
    put_be64(cdb + 2, lba);
    put_be32(cdb + 10, blocks);
    return cdb;
}

static const char *outcome(struct rig *rig, const uint8_t *cdb, const void *out, uint32_t len)
{
    return rig_outcome(rig_do(rig, rig->a, cdb, out, len));
}

Test(scsi_whole, orwrite_ors_what_came_into_what_is_there)
{
    static const struct {
        uint32_t lba, blocks;
    } table[] = {{0, 1}, {3, 7}, {5, 130}, {8, 128}, {RIG_DISK_BYTES / 512 - 3, 3}, {9, 0}};
    for (unsigned keep = 0; keep < 2; keep++) {
        struct rig *rig = rig_create(NULL);
        rig->keep = keep;
        for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
            uint32_t at = table[i].lba * 512, len = table[i].blocks * 512;
            test_fill(rig->disk->bytes, RIG_DISK_BYTES, i);
            memcpy(before, rig->disk->bytes, RIG_DISK_BYTES);
            test_fill(data, len, 99 + i);
            for (uint32_t b = 0; b < len; b++)
                before[at + b] |= data[b];
            cr_expect_str_eq(outcome(rig, cdb16(ORWRITE, FUA, table[i].lba, table[i].blocks), data, len), "good");
            cr_expect_arr_eq(rig->disk->bytes, before, RIG_DISK_BYTES, "%u blocks at %u", table[i].blocks,
                             table[i].lba);
            rig_keep_nothing(rig);
        }
        cr_expect_eq(rig->disk->fuas, ARRAY_LENGTH(table) - 1);
        rig_destroy(rig);
    }
}

Test(scsi_whole, orwrite_writes_no_more_than_what_came_and_not_beyond_the_end)
{
    struct rig *rig = rig_create(NULL);
    memset(data, 0xff, 2048);
    cr_expect_str_eq(outcome(rig, cdb16(ORWRITE, 0, 0, 4), data, 1030), "good");
    cr_expect_eq(rig->disk->bytes[1023], 0xff);
    cr_expect_eq(rig->disk->bytes[1024], 0);
    cr_expect_str_eq(outcome(rig, cdb16(ORWRITE, 0, RIG_DISK_BYTES / 512, 1), data, 512), "5/21/00");
    cr_expect_str_eq(outcome(rig, cdb16(ORWRITE, 0x20, 0, 1), data, 512), "5/24/00", "ORPROTECT");
    rig->fail = true;
    rig->fail_op = BLK_READ;
    rig->fail_status = BLK_MEDIA;
    rig->fail_off = 3 * 512;
    cr_expect_str_eq(outcome(rig, cdb16(ORWRITE, 0, 0, 4), data, 2048), "3/11/00");
    rig_destroy(rig);
}

Test(scsi_whole, two_orwrites_of_the_same_block_lose_nothing)
{
    struct rig *rig = rig_create(&(struct rig_options){.latency_ns = 1000});
    struct rig_task *tasks[8];
    for (unsigned i = 0; i < 8; i++) {
        memset(data, 1 << i, 512);
        tasks[i] = rig_start(rig, i % 2 ? rig->a : rig->b, cdb16(ORWRITE, 0, 17, 1), data, 512);
    }
    testloop_run(rig->t);
    for (unsigned i = 0; i < 8; i++) {
        cr_assert(tasks[i]->done);
        cr_expect_eq(tasks[i]->task.status, SCSI_GOOD);
        rig_end(tasks[i]);
    }
    cr_expect_eq(rig->disk->bytes[17 * 512], 0xff);
    rig_destroy(rig);
}

Test(scsi_whole, an_orwrite_that_is_aborted_while_it_reads_writes_nothing)
{
    struct rig *rig = rig_create(&(struct rig_options){.latency_ns = 1000});
    memset(data, 0xff, 1024);
    struct rig_task *task = rig_start(rig, rig->a, cdb16(ORWRITE, 0, 0, 2), data, 1024);
    scsi_task_abort(&task->task);
    testloop_run(rig->t);
    cr_expect_eq(task->task.status, SCSI_TASK_ABORTED);
    cr_expect_eq(rig->disk->writes, 0);
    rig_end(task);
    rig_destroy(rig);
}

/* The device that is asked: 16 KiB at once. */
static struct rig *atomic_rig(void)
{
    struct rig *rig = rig_create(NULL);
    rig->disk->dev.info.atomic_write = 16384;
    return rig;
}

Test(scsi_whole, write_atomic_is_there_only_where_the_device_promises_it)
{
    struct rig *rig = rig_create(NULL);
    const struct rig_reply *reply = rig_do(rig, rig->a, CDB(0x12, 1, 0xb0, 0, 255), NULL, 0);
    for (unsigned at = 44; at < 64; at++)
        cr_expect_eq(reply->data[at], 0, "byte %u", at);
    cr_expect_str_eq(outcome(rig, cdb16(WRITE_ATOMIC, 0, 0, 1), data, 512), "5/20/00");
    rig_destroy(rig);
    rig = atomic_rig();
    reply = rig_do(rig, rig->a, CDB(0x12, 1, 0xb0, 0, 255), NULL, 0);
    cr_expect_eq(get_be32(reply->data + 44), 32, "MAXIMUM ATOMIC TRANSFER LENGTH");
    cr_expect_eq(get_be32(reply->data + 48), 32, "ATOMIC ALIGNMENT");
    cr_expect_eq(get_be32(reply->data + 52), 0, "any number of blocks");
    cr_expect_eq(get_be32(reply->data + 60), 0, "no boundary");
    rig_destroy(rig);
}

Test(scsi_whole, write_atomic_of_one_block_is_there_where_no_more_is_promised)
{
    struct rig *rig = rig_create(NULL);
    rig->disk->dev.info.atomic_write = 512;
    test_fill(data, 1024, 3);
    const struct rig_reply *reply = rig_do(rig, rig->a, CDB(0x12, 1, 0xb0, 0, 255), NULL, 0);
    cr_expect_eq(get_be32(reply->data + 44), 1, "MAXIMUM ATOMIC TRANSFER LENGTH");
    cr_expect_eq(get_be32(reply->data + 48), 1, "ATOMIC ALIGNMENT");
    cr_expect_str_eq(outcome(rig, cdb16(WRITE_ATOMIC, FUA, 17, 1), data, 512), "good");
    cr_expect_arr_eq(rig->disk->bytes + 17 * 512, data, 512);
    cr_expect_str_eq(outcome(rig, cdb16(WRITE_ATOMIC, 0, 17, 2), data, 1024), "5/24/00");
    rig_destroy(rig);
}

Test(scsi_whole, write_atomic_is_one_request_within_what_the_device_promises)
{
    static const struct {
        uint64_t lba;
        uint32_t blocks; /* with ATOMIC BOUNDARY before it */
        const char *outcome;
    } table[] = {{32, 32, "good"},
                 {32, 5, "good"},
                 {32, 0, "good"},
                 {33, 1, "5/24/00"},
                 {0, 33, "5/24/00"},
                 {32, 0x10010, "5/24/00"},
                 {RIG_DISK_BYTES / 512 + 32, 0, "5/21/00"},
                 {RIG_DISK_BYTES / 512 - 32, 33, "5/21/00"},
                 {UINT64_MAX - 31, 32, "5/21/00"}};
    struct rig *rig = atomic_rig();
    test_fill(data, 32 * 512, 4);
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
        uint64_t requests = rig->requests;
        uint32_t len = (table[i].blocks & 0xffff) * 512;
        memset(rig->disk->bytes, 0, 64 * 512);
        cr_expect_str_eq(outcome(rig, cdb16(WRITE_ATOMIC, FUA, table[i].lba, table[i].blocks), data, len),
                         table[i].outcome, "row %u", i);
        bool writes = table[i].outcome[0] == 'g' && len > 0;
        cr_expect_eq(rig->requests - requests, writes, "row %u", i);
        if (writes)
            cr_expect_arr_eq(rig->disk->bytes + table[i].lba * 512, data, len, "row %u", i);
    }
    cr_expect_str_eq(outcome(rig, cdb16(WRITE_ATOMIC, 0, 0, 2), data, 512), "5/24/00", "less than it all is nothing");
    rig_destroy(rig);
}
