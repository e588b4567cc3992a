/* READ, WRITE, SYNCHRONIZE CACHE, PRE-FETCH: data, ranges, limits, flags, errors, steps, aborts. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "core/bytes.h"
#include "core/check.h"
#include "tests/unit/target/scsi_rig.h"

enum { BLOCKS = RIG_DISK_BYTES / 512 };

static uint8_t data[RIG_DATA_MAX];

/* A CDB of any length for a range; the opcode says where the fields are. */
static const uint8_t *range_cdb(uint8_t opcode, uint8_t flags, uint64_t lba, uint32_t blocks)
{
    static uint8_t cdb[SCSI_CDB_MAX];
    memset(cdb, 0, sizeof cdb);
    cdb[0] = opcode;
    cdb[1] = flags;
    if (opcode < 0x20) {
        put_be24(cdb + 1, (uint32_t)lba);
        cdb[4] = (uint8_t)blocks;
    } else if (opcode < 0x60) {
        put_be32(cdb + 2, (uint32_t)lba);
        put_be16(cdb + 7, (uint16_t)blocks);
    } else if (opcode >= 0xa0) {
        put_be32(cdb + 2, (uint32_t)lba);
        put_be32(cdb + 6, blocks);
    } else {
        put_be64(cdb + 2, lba);
        put_be32(cdb + 10, blocks);
    }
    return cdb;
}

static const char *outcome(struct rig *rig, const uint8_t *cdb, uint32_t out_len)
{
    return rig_outcome(rig_do(rig, rig->a, cdb, data, out_len));
}

Test(scsi_block, what_each_write_writes_each_read_reads)
{
    static const uint8_t reads[] = {0x08, 0x28, 0xa8, 0x88}, writes[] = {0x0a, 0x2a, 0xaa, 0x8a};
    struct rig *rig = rig_create(NULL);
    for (unsigned i = 0; i < 4; i++)
        for (unsigned lba = 0; lba < 9; lba += 4) {
            test_fill(data, 10 * 512, 100 + i + lba);
            cr_expect_str_eq(outcome(rig, range_cdb(writes[i], 0, lba, 10), 10 * 512), "good");
            cr_expect_arr_eq(rig->disk->bytes + lba * 512, data, 10 * 512, "write %02x at %u", writes[i], lba);
            uint64_t before = rig->requests;
            const struct rig_reply *reply = rig_do(rig, rig->a, range_cdb(reads[i], 0, lba, 10), NULL, 0);
            cr_expect_eq(reply->status, SCSI_GOOD);
            cr_expect_eq(reply->len, 10 * 512);
            cr_expect_eq(reply->direction, SCSI_DATA_IN);
            cr_expect_arr_eq(reply->data, data, 10 * 512, "read %02x at %u", reads[i], lba);
            cr_expect_eq(rig->requests, before + 1, "one block request");
        }
    rig_destroy(rig);
}

Test(scsi_block, zero_blocks_are_good_and_touch_nothing_but_for_6_they_are_256)
{
    static const uint8_t opcodes[] = {0x28, 0xa8, 0x88, 0x2a, 0xaa, 0x8a, 0x2e, 0xae, 0x8e, 0x2f, 0xaf, 0x8f};
    struct rig *rig = rig_create(NULL);
    uint64_t before = rig->requests;
    for (unsigned i = 0; i < sizeof opcodes; i++) {
        const struct rig_reply *reply = rig_do(rig, rig->a, range_cdb(opcodes[i], 0, 7, 0), NULL, 0);
        cr_expect_eq(reply->status, SCSI_GOOD, "%02x", opcodes[i]);
        cr_expect_eq(reply->direction, SCSI_DATA_NONE, "%02x", opcodes[i]);
        cr_expect_str_eq(outcome(rig, range_cdb(opcodes[i], 0, BLOCKS, 0), 0), "good", "%02x at the end", opcodes[i]);
        cr_expect_str_eq(outcome(rig, range_cdb(opcodes[i], 0, BLOCKS + 1, 0), 0), "5/21/00", "%02x", opcodes[i]);
    }
    cr_expect_eq(rig->requests, before);
    cr_expect_eq(rig_do(rig, rig->a, CDB(0x08), NULL, 0)->len, 256 * 512);
    rig_destroy(rig);
}

Test(scsi_block, ranges_are_checked_in_64_bits)
{
    struct rig *rig = rig_create(NULL);
    static const struct {
        uint8_t opcode;
        uint64_t lba;
        uint32_t blocks;
        const char *outcome;
    } cases[] = {
        {0x28, BLOCKS - 1, 1, "good"},
        {0x28, BLOCKS - 1, 2, "5/21/00"},
        {0x28, BLOCKS, 1, "5/21/00"},
        {0x28, UINT32_MAX, 0xffff, "5/21/00"},
        {0x08, BLOCKS, 1, "5/21/00"},
        {0xa8, BLOCKS - 1, UINT32_MAX, "5/21/00"},
        {0x88, UINT64_MAX, 2, "5/21/00"},
        {0x88, UINT64_MAX, UINT32_MAX, "5/21/00"},
        {0x88, 0x8000000000000000ull, 1, "5/21/00"},
        {0x2a, BLOCKS - 1, 2, "5/21/00"},
        {0x8a, UINT64_MAX, 2, "5/21/00"},
        {0x2f, BLOCKS - 1, 2, "5/21/00"},
        {0x8e, UINT64_MAX - 1, 2, "5/21/00"},
        {0x35, BLOCKS - 1, 2, "5/21/00"},
        {0x91, UINT64_MAX, 2, "5/21/00"},
        {0x34, BLOCKS - 1, 2, "5/21/00"},
        {0x90, UINT64_MAX, 1, "5/21/00"},
        {0x41, BLOCKS - 1, 2, "5/21/00"},
        {0x93, UINT64_MAX, 2, "5/21/00"},
        {0x35, BLOCKS, 0, "good"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint32_t out = cases[i].opcode == 0x41 || cases[i].opcode == 0x93 ? 512 : 2 * 512;
        const char *got = outcome(rig, range_cdb(cases[i].opcode, 0, cases[i].lba, cases[i].blocks), out);
        cr_expect_str_eq(got, cases[i].outcome, "case %u: %s", i, got);
    }
    rig_destroy(rig);
}

Test(scsi_block, transfers_beyond_the_limit_are_refused)
{
    struct rig *rig = rig_create(NULL);
    rig->disk->dev.info.size = 64 * MIB; /* only looked at by the checks */
    cr_expect_str_eq(outcome(rig, range_cdb(0x88, 0, 0, 16385), 0), "5/24/00");
    cr_expect_str_eq(outcome(rig, range_cdb(0x8a, 0, 0, 16385), 0), "5/24/00");
    cr_expect_str_eq(outcome(rig, range_cdb(0x8f, 2, 0, 16385), 0), "5/24/00");
    rig->disk->dev.info.size = RIG_DISK_BYTES;
    const struct rig_reply *reply = rig_do(rig, rig->a, range_cdb(0x88, 0, 0, BLOCKS), NULL, 0);
    cr_expect_eq(reply->status, SCSI_GOOD);
    cr_expect_eq(reply->len, RIG_DISK_BYTES);
    rig_destroy(rig);
}

Test(scsi_block, protection_information_is_refused_and_dpo_and_fua_are_taken)
{
    static const uint8_t opcodes[] = {0x28, 0xa8, 0x88, 0x2a, 0xaa, 0x8a};
    struct rig *rig = rig_create(NULL);
    for (unsigned i = 0; i < sizeof opcodes; i++) {
        for (unsigned protect = 1; protect < 8; protect++)
            cr_expect_str_eq(outcome(rig, range_cdb(opcodes[i], (uint8_t)(protect << 5), 0, 1), 512), "5/24/00",
                             "%02x protect %u", opcodes[i], protect);
        cr_expect_str_eq(outcome(rig, range_cdb(opcodes[i], 0x18, 0, 1), 512), "good", "%02x", opcodes[i]);
        cr_expect_eq(rig->last_flags, opcodes[i] & 2 ? BLK_FUA : 0, "%02x FUA", opcodes[i]);
        cr_expect_str_eq(outcome(rig, range_cdb(opcodes[i], 0x10, 0, 1), 512), "good", "%02x", opcodes[i]);
        cr_expect_eq(rig->last_flags, 0, "%02x DPO", opcodes[i]);
    }
    cr_expect_str_eq(outcome(rig, range_cdb(0x0a, 0, 0x080000 % BLOCKS, 1), 512), "good");
    cr_expect_eq(rig->last_flags, 0, "an LBA bit of WRITE(6) is not FUA");
    rig_destroy(rig);
}

Test(scsi_block, less_data_than_the_cdb_says_writes_the_whole_blocks_that_came)
{
    struct rig *rig = rig_create(NULL);
    static const struct {
        uint32_t came, written;
    } cases[] = {{0, 0}, {200, 0}, {512, 512}, {1023, 512}, {1024, 1024}, {5000, 2048}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        memset(rig->disk->bytes, 'a', 4096);
        memset(data, 'b', sizeof data);
        const struct rig_reply *reply = rig_do(rig, rig->a, range_cdb(0x2a, 0, 1, 4), data, cases[i].came);
        cr_expect_eq(reply->status, SCSI_GOOD, "%u bytes", cases[i].came);
        cr_expect_eq(reply->data_len, 2048);
        for (uint32_t at = 0; at < 4096; at++)
            cr_assert_eq(rig->disk->bytes[at], at >= 512 && at < 512 + cases[i].written ? 'b' : 'a',
                         "%u bytes came, at %u", cases[i].came, at);
    }
    rig_destroy(rig);
}

Test(scsi_block, writes_to_what_is_read_only_are_refused_and_reads_are_not)
{
    static const uint8_t opcodes[] = {0x0a, 0x2a, 0xaa, 0x8a, 0x2e, 0xae, 0x8e, 0x41, 0x93, 0x42, 0x89};
    struct rig *rig = rig_create(&(struct rig_options){.read_only = true});
    for (unsigned i = 0; i < sizeof opcodes; i++)
        cr_expect_str_eq(outcome(rig, range_cdb(opcodes[i], 0, 0, 1), 512), "7/27/00", "%02x", opcodes[i]);
    cr_expect_str_eq(outcome(rig, range_cdb(0x28, 0, 0, 1), 0), "good");
    cr_expect_str_eq(outcome(rig, range_cdb(0x2f, 0, 0, 1), 0), "good");
    cr_expect_str_eq(outcome(rig, range_cdb(0x35, 0, 0, 0), 0), "good");
    cr_expect_eq(rig->disk->writes, 0);
    rig_destroy(rig);
}

Test(scsi_block, a_device_that_takes_less_at_once_gets_steps_that_end_on_pages)
{
    struct rig *rig = rig_create(&(struct rig_options){.max_request = 10000});
    test_fill(data, 120 * 512, 9);
    cr_expect_str_eq(outcome(rig, range_cdb(0x2a, 0, 3, 120), 120 * 512), "good");
    cr_expect_arr_eq(rig->disk->bytes + 3 * 512, data, 120 * 512);
    cr_expect_leq(rig->longest, 8192);
    rig->keep = true;
    const struct rig_reply *reply = rig_do(rig, rig->a, range_cdb(0x28, 0, 3, 120), NULL, 0);
    cr_expect_eq(reply->len, 120 * 512);
    cr_expect_arr_eq(reply->data, data, 120 * 512);
    for (uint32_t i = 0; i + 1 < rig->kept_count; i++)
        cr_expect_neq(rig->kept[i], rig->kept[i + 1], "no page in two steps");
    rig_destroy(rig);
}

Test(scsi_block, errors_of_the_device_keep_their_meaning)
{
    struct rig *rig = rig_create(NULL);
    static const struct {
        enum blk_status status;
        const char *read, *write;
    } cases[] = {{BLK_MEDIA, "3/11/00", "3/0C/00"},    {BLK_GONE, "4/44/00", "4/44/00"},
                 {BLK_TIMEOUT, "B/08/01", "B/08/01"},  {BLK_NOSPACE, "7/27/07", "7/27/07"},
                 {BLK_READONLY, "7/27/00", "7/27/00"}, {BLK_INVALID, "5/20/00", "5/20/00"}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        rig->fail = true;
        rig->fail_status = cases[i].status;
        rig->fail_off = 1000 * 512;
        rig->fail_op = BLK_READ;
        const struct rig_reply *reply = rig_do(rig, rig->a, range_cdb(0x28, 0, 990, 20), NULL, 0);
        cr_expect_str_eq(rig_outcome(reply), cases[i].read);
        cr_expect_eq(reply->len, 0);
        cr_expect_eq(reply->has_information, cases[i].status == BLK_MEDIA);
        if (reply->has_information)
            cr_expect_eq(reply->information, 1000, "the first bad LBA");
        rig->fail_op = BLK_WRITE;
        cr_expect_str_eq(outcome(rig, range_cdb(0x2a, 0, 1005, 2), 1024), cases[i].write);
    }
    rig_destroy(rig);
}

Test(scsi_block, flush_is_asked_for_and_its_failure_told)
{
    struct rig *rig = rig_create(NULL);
    cr_expect_str_eq(outcome(rig, range_cdb(0x35, 0, 5, 1), 0), "good");
    cr_expect_str_eq(outcome(rig, range_cdb(0x91, 2, 0, 0), 0), "good");
    cr_expect_eq(rig->disk->flushes, 2);
    rig->fail = true;
    rig->fail_op = BLK_FLUSH;
    rig->fail_status = BLK_GONE;
    cr_expect_str_eq(outcome(rig, range_cdb(0x35, 0, 0, 0), 0), "4/44/00");
    rig_destroy(rig);
}

Test(scsi_block, prefetch_reads_and_says_whether_all_of_it)
{
    struct rig *rig = rig_create(NULL);
    cr_expect_str_eq(outcome(rig, range_cdb(0x34, 0, 3, 300), 0), "met");
    cr_expect_eq(rig->disk->dev.counters.bytes[BLK_READ], 300 * 512);
    cr_expect_str_eq(outcome(rig, range_cdb(0x90, 2, 0, 8), 0), "met");
    uint64_t before = rig->disk->dev.counters.bytes[BLK_READ];
    cr_expect_str_eq(outcome(rig, range_cdb(0x34, 0, BLOCKS - 10, 0), 0), "met", "0: to the end");
    cr_expect_eq(rig->disk->dev.counters.bytes[BLK_READ] - before, 10 * 512);
    rig_destroy(rig);
}

Test(scsi_block, pages_a_cache_keeps_are_not_read_into_again)
{
    struct rig *rig = rig_create(NULL);
    rig->keep = true;
    test_fill(rig->disk->bytes, 64 * 4096, 5);
    cr_expect_str_eq(outcome(rig, range_cdb(0x34, 0, 0, 512), 0), "met");
    cr_expect_eq(rig->kept_count, 64);
    for (uint32_t i = 0; i < rig->kept_count; i++)
        cr_expect_arr_eq(rig->kept[i]->data, rig->disk->bytes + i * 4096, 4096, "page %u", i);
    rig_destroy(rig);
}

Test(scsi_block, abort_lets_the_request_in_flight_end_and_starts_no_other)
{
    struct rig *rig = rig_create(&(struct rig_options){.latency_ns = 1000, .max_request = 4096});
    struct rig_task *task = rig_start(rig, rig->a, range_cdb(0x28, 0, 0, 80), NULL, 0);
    testloop_run_ready(rig->t);
    scsi_task_abort(&task->task);
    testloop_run_ready(rig->t);
    cr_expect_not(task->done, "the disk is still at it");
    uint64_t before = rig->requests;
    cr_assert(testloop_run_until(rig->t, &task->done));
    cr_expect_eq(task->task.status, SCSI_TASK_ABORTED);
    cr_expect_eq(task->task.sense_len, 0);
    cr_expect_eq(rig->requests, before);
    rig_end(task);
    rig_destroy(rig);
}

Test(scsi_block, a_device_that_shrank_after_parse_is_out_of_range)
{
    struct rig *rig = rig_create(NULL);
    struct rig_task *task = calloc(1, sizeof *task);
    task->task = (struct scsi_task){.nexus = rig->a};
    memcpy(task->task.cdb, range_cdb(0x28, 0, BLOCKS - 8, 8), SCSI_CDB_MAX);
    cr_assert(scsi_task_parse(&task->task));
    cr_assert(page_pool_get(rig->t->loop.pages, task->pages, 1));
    task->page_count = 1;
    task->task.pages = task->pages;
    rig->disk->dev.info.size = RIG_DISK_BYTES / 2;
    rig_run(rig, task);
    cr_expect_eq(task->task.status, SCSI_CHECK_CONDITION);
    cr_expect_eq(task->task.sense[12], 0x21);
    rig_end(task);
    rig_destroy(rig);
}
