/* VERIFY, WRITE AND VERIFY, COMPARE AND WRITE: they compare. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "core/bytes.h"
#include "core/check.h"
#include "tests/unit/target/scsi_rig.h"

static uint8_t data[RIG_DATA_MAX];

enum { VERIFY10 = 0x2f, WRITE_VERIFY10 = 0x2e, PRE_FETCH10 = 0x34, BYTCHK1 = 0x02, BYTCHK2 = 0x04, BYTCHK3 = 0x06 };

static const uint8_t *cdb10(uint8_t opcode, uint8_t flags, uint32_t lba, uint16_t blocks)
{
    static uint8_t cdb[SCSI_CDB_MAX];
    memset(cdb, 0, sizeof cdb);
    cdb[0] = opcode;
    cdb[1] = flags;
    put_be32(cdb + 2, lba);
    put_be16(cdb + 7, blocks);
    return cdb;
}

static const uint8_t *compare_cdb(uint64_t lba, uint8_t blocks)
{
    static uint8_t cdb[SCSI_CDB_MAX];
    memset(cdb, 0, sizeof cdb);
    cdb[0] = 0x89;
    put_be64(cdb + 2, lba);
    cdb[13] = blocks;
    return cdb;
}

Test(scsi_verify, compares_every_byte_and_says_where_it_differs)
{
    struct rig *rig = rig_create(NULL);
    for (unsigned keep = 0; keep < 2; keep++) {
        rig->keep = keep;
        test_fill(rig->disk->bytes, RIG_DISK_BYTES, 4);
        memcpy(data, rig->disk->bytes + 5 * 512, 130 * 512);
        const struct rig_reply *reply = rig_do(rig, rig->a, cdb10(VERIFY10, BYTCHK1, 5, 130), data, 130 * 512);
        cr_expect_str_eq(rig_outcome(reply), "good");
        cr_expect_eq(reply->direction, SCSI_DATA_OUT);
        static const uint32_t places[] = {0, 1, 511, 512, 4095, 4096, 65535 - 5 * 512, 65536 - 5 * 512, 130 * 512 - 1};
        for (unsigned i = 0; i < ARRAY_LENGTH(places); i++) {
            data[places[i]] ^= 1;
            reply = rig_do(rig, rig->a, cdb10(VERIFY10, BYTCHK1, 5, 130), data, 130 * 512);
            cr_expect_str_eq(rig_outcome(reply), "E/1D/00", "byte %u", places[i]);
            cr_expect(reply->has_information);
            cr_expect_eq(reply->information, places[i]);
            data[places[i]] ^= 1;
        }
        rig_keep_nothing(rig);
    }
    cr_expect_eq(rig->disk->writes, 0);
    rig_destroy(rig);
}

Test(scsi_verify, without_bytchk_takes_no_data_and_finds_bad_media)
{
    struct rig *rig = rig_create(NULL);
    const struct rig_reply *reply = rig_do(rig, rig->a, cdb10(VERIFY10, 0, 3, 1000), NULL, 0);
    cr_expect_str_eq(rig_outcome(reply), "good");
    cr_expect_eq(reply->direction, SCSI_DATA_NONE);
    cr_expect_eq(rig->disk->dev.counters.bytes[BLK_READ], 1000 * 512);
    rig->fail = true;
    rig->fail_op = BLK_READ;
    rig->fail_status = BLK_MEDIA;
    rig->fail_off = 777 * 512;
    reply = rig_do(rig, rig->a, cdb10(VERIFY10, 0, 3, 1000), NULL, 0);
    cr_expect_str_eq(rig_outcome(reply), "3/11/00");
    cr_expect_eq(reply->information, 777);
    rig_destroy(rig);
}

Test(scsi_verify, bytchk_3_compares_each_block_with_one_and_2_is_reserved)
{
    struct rig *rig = rig_create(NULL);
    test_fill(data, 512, 8);
    for (unsigned i = 0; i < 200; i++)
        memcpy(rig->disk->bytes + (3 + i) * 512, data, 512);
    const struct rig_reply *reply = rig_do(rig, rig->a, cdb10(VERIFY10, BYTCHK3, 3, 200), data, 512);
    cr_expect_str_eq(rig_outcome(reply), "good");
    cr_expect_eq(reply->data_len, 512);
    rig->disk->bytes[(3 + 150) * 512 + 99] ^= 1;
    reply = rig_do(rig, rig->a, cdb10(VERIFY10, BYTCHK3, 3, 200), data, 512);
    cr_expect_str_eq(rig_outcome(reply), "E/1D/00");
    cr_expect_eq(reply->information, 99, "in the block that came");
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", data, 512, VERIFY10, BYTCHK2, 0, 0, 0, 3, 0, 0, 1);
    rig_destroy(rig);
}

Test(scsi_verify, less_data_than_announced_verifies_what_came)
{
    struct rig *rig = rig_create(NULL);
    const struct rig_reply *reply = rig_do(rig, rig->a, cdb10(VERIFY10, BYTCHK1, 0, 2), data, 512);
    cr_expect_str_eq(rig_outcome(reply), "good");
    rig->disk->bytes[600] = 1;
    cr_expect_str_eq(rig_outcome(rig_do(rig, rig->a, cdb10(VERIFY10, BYTCHK1, 0, 2), data, 512)), "good");
    cr_expect_str_eq(rig_outcome(rig_do(rig, rig->a, cdb10(VERIFY10, BYTCHK1, 0, 2), data, 1024)), "E/1D/00");
    cr_expect_str_eq(rig_outcome(rig_do(rig, rig->a, cdb10(VERIFY10, BYTCHK3, 1, 2), data, 100)), "good");
    rig_destroy(rig);
}

Test(scsi_verify, write_and_verify_writes_durably_and_reads_back)
{
    struct rig *rig = rig_create(NULL);
    test_fill(data, 100 * 512, 3);
    for (unsigned check = 0; check < 2; check++) {
        memset(rig->disk->bytes, 0, 200 * 512);
        uint64_t read = rig->disk->dev.counters.bytes[BLK_READ], fuas = rig->disk->fuas;
        const struct rig_reply *reply =
            rig_do(rig, rig->a, cdb10(WRITE_VERIFY10, check ? BYTCHK1 : 0, 6, 100), data, 100 * 512);
        cr_expect_str_eq(rig_outcome(reply), "good");
        cr_expect_arr_eq(rig->disk->bytes + 6 * 512, data, 100 * 512);
        cr_expect_eq(rig->disk->dev.counters.bytes[BLK_READ] - read, 100 * 512);
        cr_expect_eq(rig->disk->fuas, fuas + 1);
    }
    rig->fail = true;
    rig->fail_op = BLK_READ;
    rig->fail_status = BLK_MEDIA;
    rig->fail_off = 50 * 512;
    const struct rig_reply *reply = rig_do(rig, rig->a, cdb10(WRITE_VERIFY10, 0, 6, 100), data, 100 * 512);
    cr_expect_str_eq(rig_outcome(reply), "3/11/00");
    cr_expect_eq(reply->information, 50);
    rig_destroy(rig);
}

Test(scsi_verify, compare_and_write_writes_only_when_equal)
{
    static const uint8_t lengths[] = {1, 2, 7, 8, 60};
    struct rig *rig = rig_create(NULL);
    for (unsigned i = 0; i < sizeof lengths; i++)
        for (unsigned lba = 0; lba < 8; lba += 3) {
            uint32_t half = lengths[i] * 512u;
            test_fill(rig->disk->bytes, 128 * 512, i);
            memcpy(data, rig->disk->bytes + lba * 512, half);
            test_fill(data + half, half, 77 + i);
            EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x89);
            const struct rig_reply *reply = rig_do(rig, rig->a, compare_cdb(lba, lengths[i]), data, 2 * half);
            cr_expect_str_eq(rig_outcome(reply), "good");
            cr_expect_arr_eq(rig->disk->bytes + lba * 512, data + half, half, "%u blocks at %u", lengths[i], lba);
            uint64_t writes = rig->disk->writes;
            reply = rig_do(rig, rig->a, compare_cdb(lba, lengths[i]), data, 2 * half);
            cr_expect_str_eq(rig_outcome(reply), "E/1D/00");
            cr_expect_eq(reply->information, 0);
            cr_expect_eq(rig->disk->writes, writes);
        }
    rig_destroy(rig);
}

Test(scsi_verify, compare_and_write_refuses_wrong_amounts_of_data)
{
    struct rig *rig = rig_create(NULL);
    static const uint32_t lengths[] = {0, 512, 1023, 1025, 2048};
    for (unsigned i = 0; i < ARRAY_LENGTH(lengths); i++)
        cr_expect_str_eq(rig_outcome(rig_do(rig, rig->a, compare_cdb(0, 1), data, lengths[i])), "5/24/00");
    cr_expect_str_eq(rig_outcome(rig_do(rig, rig->a, compare_cdb(UINT64_MAX, 1), data, 1024)), "5/21/00");
    cr_expect_eq(rig->requests, 0);
    rig_destroy(rig);
}

Test(scsi_verify, compare_and_write_with_less_than_the_promised_data_fails_also_after_a_wait)
{
    for (unsigned wait = 0; wait < 2; wait++) {
        struct rig *rig = rig_create(&(struct rig_options){.latency_ns = 1000});
        memset(data, 0, 1024);
        struct rig_task *first = rig_start(rig, rig->b, compare_cdb(wait ? 0 : 8, 1), data, 1024);
        struct rig_task *task = calloc(1, sizeof *task);
        task->task = (struct scsi_task){.nexus = rig->a, .transport_len = 1024, .pages = task->pages};
        memcpy(task->task.cdb, compare_cdb(0, 1), SCSI_CDB_MAX);
        cr_assert(scsi_task_parse(&task->task));
        cr_assert(page_pool_get(rig->t->loop.pages, task->pages, 1));
        task->page_count = 1;
        task->task.received_len = 512;
        rig_run(rig, task);
        cr_expect_eq(task->task.sense[12], 0x24);
        cr_assert(testloop_run_until(rig->t, &first->done));
        cr_expect_eq(first->task.status, SCSI_GOOD);
        cr_expect_eq(rig->disk->writes, 1, "only the first wrote");
        rig_end(first);
        rig_end(task);
        rig_destroy(rig);
    }
}

Test(scsi_verify, only_one_of_two_concurrent_compare_and_writes_wins)
{
    struct rig *rig = rig_create(&(struct rig_options){.latency_ns = 1000});
    struct rig_task *tasks[8];
    unsigned won = 0;
    for (unsigned i = 0; i < 8; i++) {
        memset(data, 0, 512);
        memset(data + 512, (int)i + 1, 512);
        tasks[i] = rig_start(rig, i % 2 ? rig->a : rig->b, compare_cdb(100, 1), data, 1024);
    }
    testloop_run(rig->t);
    for (unsigned i = 0; i < 8; i++) {
        cr_assert(tasks[i]->done);
        won += tasks[i]->task.status == SCSI_GOOD;
        rig_end(tasks[i]);
    }
    cr_expect_eq(won, 1);
    cr_expect_eq(rig->disk->bytes[100 * 512], 1, "the first to come");
    rig_destroy(rig);
}

Test(scsi_verify, a_write_that_overlaps_waits_for_the_compare_and_write_and_others_do_not)
{
    struct rig *rig = rig_create(&(struct rig_options){.latency_ns = 1000});
    memset(data, 0, 512);
    memset(data + 512, 1, 512);
    struct rig_task *caw = rig_start(rig, rig->a, compare_cdb(8, 1), data, 1024);
    memset(data, 2, 4096);
    struct rig_task *over = rig_start(rig, rig->b, cdb10(0x2a, 0, 8, 8), data, 4096);
    struct rig_task *aside = rig_start(rig, rig->b, cdb10(0x2a, 0, 9, 8), data, 4096);
    struct rig_task *given_up = rig_start(rig, rig->b, cdb10(0x2a, 0, 8, 1), data, 512);
    cr_expect_eq(rig->requests, 2, "the compare's read and the write aside");
    scsi_task_abort(&given_up->task);
    cr_assert(testloop_run_until(rig->t, &given_up->done));
    cr_expect_eq(given_up->task.status, SCSI_TASK_ABORTED);
    cr_assert(testloop_run_until(rig->t, &aside->done));
    cr_expect_not(over->done);
    cr_assert(testloop_run_until(rig->t, &caw->done));
    cr_expect_eq(caw->task.status, SCSI_GOOD);
    cr_expect_eq(rig->disk->bytes[8 * 512], 1);
    cr_assert(testloop_run_until(rig->t, &over->done));
    cr_expect_eq(rig->disk->bytes[8 * 512], 2);
    rig_end(caw);
    rig_end(over);
    rig_end(aside);
    rig_end(given_up);
    rig_destroy(rig);
}

Test(scsi_verify, users_of_the_scratch_pages_take_turns_and_can_be_aborted_in_line)
{
    struct rig *rig = rig_create(&(struct rig_options){.latency_ns = 1000});
    struct rig_task *tasks[5];
    for (unsigned i = 0; i < 5; i++)
        tasks[i] = rig_start(rig, rig->a, cdb10(VERIFY10, 0, i * 100, 300), NULL, 0);
    scsi_task_abort(&tasks[2]->task); /* in line */
    scsi_task_abort(&tasks[0]->task); /* at work */
    testloop_run(rig->t);
    for (unsigned i = 0; i < 5; i++) {
        cr_assert(tasks[i]->done, "task %u", i);
        cr_expect_eq(tasks[i]->task.status, i == 2 || i == 0 ? SCSI_TASK_ABORTED : SCSI_GOOD, "task %u", i);
        rig_end(tasks[i]);
    }
    rig_destroy(rig);
}

/* A long VERIFY has the pages for a step at a time: what another initiator compares need not wait for all of it. */
Test(scsi_verify, a_long_one_does_not_hold_up_the_others)
{
    struct rig *rig = rig_create(&(struct rig_options){.latency_ns = 1000});
    struct rig_task *whole = rig_start(rig, rig->a, cdb10(VERIFY10, 0, 0, RIG_DISK_BYTES / 512), NULL, 0);
    struct rig_task *fetch = rig_start(rig, rig->a, cdb10(PRE_FETCH10, 0, 0, RIG_DISK_BYTES / 512), NULL, 0);
    struct rig_task *caw = rig_start(rig, rig->b, compare_cdb(8, 1), (uint8_t[1024]){0}, 1024);
    cr_assert(testloop_run_until(rig->t, &caw->done));
    cr_expect_eq(caw->task.status, SCSI_GOOD);
    cr_expect_not(whole->done);
    cr_expect_not(fetch->done);
    testloop_run(rig->t);
    cr_assert(whole->done && fetch->done);
    cr_expect_eq(whole->task.status, SCSI_GOOD);
    cr_expect_eq(fetch->task.status, SCSI_CONDITION_MET);
    rig_end(whole);
    rig_end(fetch);
    rig_end(caw);
    rig_destroy(rig);
}

Test(scsi_verify, waits_for_pages_when_a_cache_kept_them_and_the_pool_is_dry)
{
    for (unsigned abort = 0; abort < 2; abort++) {
        struct rig *rig = rig_create(&(struct rig_options){.latency_ns = 1000});
        struct page *hog[RIG_PAGES];
        uint32_t count = page_pool_free(rig->t->loop.pages);
        cr_assert(page_pool_get(rig->t->loop.pages, hog, count));
        rig->keep = true;
        struct rig_task *task = rig_start(rig, rig->a, cdb10(VERIFY10, 0, 0, 512), NULL, 0);
        testloop_run(rig->t);
        cr_expect_not(task->done, "no page to read into");
        if (abort)
            scsi_task_abort(&task->task);
        page_put_all(hog, count);
        cr_assert(testloop_run_until(rig->t, &task->done));
        cr_expect_eq(task->task.status, abort ? SCSI_TASK_ABORTED : SCSI_GOOD);
        rig_end(task);
        rig_destroy(rig);
    }
}
