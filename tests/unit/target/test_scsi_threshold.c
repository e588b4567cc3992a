/* The soft threshold of thin provisioning: when it is told, to whom, and how the device is asked. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/lu.h"
#include "target/scsi/threshold.h"
#include "tests/unit/target/scsi_rig.h"

#define SECOND 1000000000ull

enum { PIECE = 64 * 1024 }; /* of the memory disk, which has 4 MiB: 64 of them */

/* The first so many bytes are in use; told piece by piece. */
static uint64_t in_use;
static unsigned asked;

static bool first_bytes(struct blkdev *dev, uint64_t off, uint64_t len, uint64_t *extent)
{
    (void)dev;
    asked++;
    *extent = MIN(len, PIECE - off % PIECE);
    return off < in_use;
}

static struct rig *rig_using(uint8_t percent, uint64_t bytes)
{
    in_use = bytes;
    asked = 0;
    return rig_create(&(struct rig_options){.soft_threshold = percent, .block_status = first_bytes});
}

static const char *ready(struct rig *rig, struct scsi_nexus *nexus)
{
    return rig_outcome(rig_do(rig, nexus, CDB(0x00), NULL, 0));
}

/* Some time later a command comes, and the device is asked. */
static void look(struct rig *rig)
{
    rig->t->loop.now_ns += 6 * SECOND;
    cr_expect_str_eq(ready(rig, rig->a), "good");
    testloop_run(rig->t);
}

static const char *select_threshold(struct rig *rig, uint8_t flags, uint32_t count)
{
    uint8_t list[28] = {[4] = 0x5c, 2, 0, 20, [20] = flags | 1, 2};
    put_be32(list + 24, count);
    return rig_outcome(rig_do(rig, rig->a, CDB(0x15, 0x10, 0, 0, sizeof list), list, sizeof list));
}

Test(scsi_threshold, bytes_of_percent_and_of_units)
{
    static const struct {
        struct scsi_mode mode;
        uint64_t size, bytes;
    } table[] = {
        {{.threshold_reports = true, .threshold_percent = true, .threshold_count = 80}, 1000, UINT64_MAX},
        {{.threshold_enabled = true, .threshold_percent = true, .threshold_count = 80}, 1000, UINT64_MAX},
        {{false, false, true, true, true, 80}, 1000, 800},
        {{false, false, true, true, true, 100}, 1050, 1050},
        {{false, false, true, true, true, 33}, 101, 33},
        {{false, false, true, true, true, 100}, UINT64_MAX - 1, UINT64_MAX - 1},
        {{false, false, true, true, false, 3}, 1000, 3 * MIB},
        {{false, false, true, true, false, UINT32_MAX}, 1000, UINT32_MAX * (uint64_t)MIB},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++)
        cr_expect_eq(scsi_threshold_bytes(&table[i].mode, table[i].size), table[i].bytes, "row %u", i);
}

Test(scsi_threshold, it_is_told_once_to_all_and_again_after_it_fell_below)
{
    struct rig *rig = rig_using(50, MIB);
    look(rig);
    cr_expect_str_eq(ready(rig, rig->b), "good");
    in_use = 2 * MIB;
    look(rig);
    cr_expect_str_eq(ready(rig, rig->a), "6/38/07");
    cr_expect_str_eq(ready(rig, rig->b), "6/38/07");
    cr_expect_str_eq(ready(rig, rig->a), "good");
    in_use = 4 * MIB;
    look(rig);
    cr_expect_str_eq(ready(rig, rig->a), "good");
    in_use = 2 * MIB - PIECE; /* 1.6 % below */
    look(rig);
    in_use = 2 * MIB;
    look(rig);
    cr_expect_str_eq(ready(rig, rig->a), "good");
    in_use = 2 * MIB - 2 * PIECE; /* 3.1 % */
    look(rig);
    in_use = 2 * MIB;
    look(rig);
    cr_expect_str_eq(ready(rig, rig->b), "6/38/07");
    rig_destroy(rig);
}

Test(scsi_threshold, who_comes_later_is_told_too)
{
    struct rig *rig = rig_using(50, 3 * MIB);
    scsi_nexus_destroy(rig->a);
    rig->a = scsi_nexus_create(rig->target, "iqn.2026-11.org.example:late,i,0x3");
    cr_expect_str_eq(ready(rig, rig->a), "6/29/00");
    cr_expect_str_eq(ready(rig, rig->a), "6/38/07");
    cr_expect_str_eq(ready(rig, rig->a), "good");
    cr_expect_str_eq(ready(rig, rig->b), "good");
    rig_destroy(rig);
}

Test(scsi_threshold, data_stays_good_and_the_command_is_done_when_it_is_sent_again)
{
    struct rig *rig = rig_using(50, MIB);
    uint8_t block[512] = {7};
    in_use = 3 * MIB;
    look(rig);
    EXPECT_OUTCOME(rig, rig->a, "6/38/07", block, 512, 0x2a, [8] = 1);
    EXPECT_OUTCOME(rig, rig->a, "good", block, 512, 0x2a, [8] = 1);
    cr_expect_eq(rig->disk->bytes[0], 7);
    rig_destroy(rig);
}

Test(scsi_threshold, mode_select_sets_it_and_mode_sense_tells)
{
    struct rig *rig = rig_using(0, 3 * MIB);
    look(rig);
    cr_expect_eq(asked, 0, "without a threshold nobody is asked");
    cr_expect_str_eq(select_threshold(rig, 0x88, 80), "good");
    testloop_run(rig->t);
    cr_expect_eq(asked, 64);
    cr_expect_str_eq(ready(rig, rig->a), "good");
    cr_expect_str_eq(ready(rig, rig->b), "6/2A/01");
    cr_expect_str_eq(select_threshold(rig, 0x80, 3), "good"); /* units of 1 MiB */
    testloop_run(rig->t);
    cr_expect_str_eq(ready(rig, rig->a), "6/38/07");
    const struct rig_reply *reply = rig_do(rig, rig->a, CDB(0x1a, 0x08, 0x1c, 2, 255), NULL, 0);
    cr_expect_arr_eq(reply->data + 4 + 16, ((uint8_t[]){0x81, 2, 0, 0, 0, 0, 0, 3}), 8);
    cr_expect_str_eq(select_threshold(rig, 0, 3), "good");
    asked = 0;
    look(rig);
    cr_expect_eq(asked, 0);
    rig_destroy(rig);
}

Test(scsi_threshold, nothing_is_told_without_lbpere_and_a_reset_brings_it_back)
{
    static const uint8_t lun[8] = {0};
    struct rig *rig = rig_using(50, 3 * MIB);
    uint8_t list[16] = {[4] = 0x01, 10, 0xc0};
    EXPECT_OUTCOME(rig, rig->a, "good", list, 16, 0x15, 0x10, 0, 0, 16);
    asked = 0;
    look(rig);
    cr_expect_eq(asked, 0);
    scsi_lun_reset(rig->target, lun);
    testloop_run(rig->t);
    cr_expect_str_eq(ready(rig, rig->a), "6/29/03");
    cr_expect_str_eq(ready(rig, rig->a), "6/38/07");
    rig_destroy(rig);
}

Test(scsi_threshold, the_device_is_asked_a_bounded_number_of_times)
{
    struct rig *rig = rig_using(50, MIB);
    cr_expect_eq(asked, 64);
    look(rig);
    cr_expect_eq(asked, 128);
    for (unsigned i = 0; i < 100; i++)
        cr_expect_str_eq(ready(rig, rig->a), "good");
    cr_expect_eq(asked, 128, "not again within two seconds");
    rig_destroy(rig);
}

static bool each_block(struct blkdev *dev, uint64_t off, uint64_t len, uint64_t *extent)
{
    (void)dev, (void)len;
    asked++;
    *extent = 512;
    return off / 512 % 2 == 0;
}

Test(scsi_threshold, a_medium_in_many_pieces_is_asked_with_pauses_and_a_target_ends_meanwhile)
{
    struct rig *rig = rig_using(50, 0);
    rig->ops.block_status = each_block;
    asked = 0;
    uint64_t began_ns = rig->t->loop.now_ns;
    look(rig);
    cr_expect_eq(asked, RIG_DISK_BYTES / 512);
    cr_expect_geq(rig->t->loop.now_ns - began_ns, 6 * SECOND + 7 * SECOND / 10);
    cr_expect_str_eq(ready(rig, rig->a), "6/38/07");
    rig->t->loop.now_ns += 6 * SECOND;
    cr_expect_str_eq(ready(rig, rig->a), "good");
    rig_destroy(rig);
}

Test(scsi_threshold, what_cannot_be_asked_is_not_counted)
{
    struct rig *rig = rig_using(50, 0);
    rig->ops.submits_status = true;
    rig->fail = true;
    rig->fail_op = BLK_STATUS;
    rig->fail_status = BLK_GONE;
    look(rig);
    cr_expect_str_eq(ready(rig, rig->a), "good");
    rig_destroy(rig);
}
