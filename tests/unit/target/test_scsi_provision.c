/* WRITE SAME, UNMAP, and the parser of UNMAP lists. */
#include <criterion/criterion.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/unmap_list.h"
#include "tests/unit/target/scsi_rig.h"

enum { BLOCKS = RIG_DISK_BYTES / 512, UNMAP_FLAG = 0x08, NDOB = 0x01, ANCHOR = 0x10 };

static uint8_t data[RIG_DATA_MAX];

static const uint8_t *same16(uint8_t flags, uint64_t lba, uint32_t blocks)
{
    static uint8_t cdb[SCSI_CDB_MAX];
    memset(cdb, 0, sizeof cdb);
    cdb[0] = 0x93;
    cdb[1] = flags;
    put_be64(cdb + 2, lba);
    put_be32(cdb + 10, blocks);
    return cdb;
}

Test(scsi_provision, write_same_repeats_the_block_whatever_the_alignment)
{
    static const struct {
        uint32_t block, lba, blocks;
    } cases[] = {{512, 0, 1}, {512, 3, 1}, {512, 3, 2}, {512, 5, 1000}, {512, 0, 4096}, {4096, 1, 1}, {4096, 3, 100}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct rig *rig = rig_create(&(struct rig_options){.block = cases[i].block});
        uint32_t block = cases[i].block, from = cases[i].lba * block, end = from + cases[i].blocks * block;
        test_fill(data, block, 40 + i);
        memset(rig->disk->bytes, 0x55, RIG_DISK_BYTES);
        const struct rig_reply *reply = rig_do(rig, rig->a, same16(0, cases[i].lba, cases[i].blocks), data, block);
        cr_expect_str_eq(rig_outcome(reply), "good", "case %u", i);
        cr_expect_eq(reply->data_len, block);
        for (uint32_t at = from; at < end; at += block)
            cr_assert_arr_eq(rig->disk->bytes + at, data, block, "case %u at %u", i, at);
        if (from > 0)
            cr_expect_eq(rig->disk->bytes[from - 1], 0x55, "case %u: before", i);
        cr_expect_eq(rig->disk->bytes[end], 0x55, "case %u: behind", i);
        cr_expect_leq(rig->longest, SCSI_REPEAT_PAGES * PAGE_BYTES);
        rig_destroy(rig);
    }
}

Test(scsi_provision, write_same_of_zeroes_is_one_write_zeroes)
{
    static const struct {
        uint8_t flags;
        uint32_t out;
        unsigned expect;
    } cases[] = {{0, 512, BLK_NO_UNMAP}, {UNMAP_FLAG, 512, 0}, {NDOB, 0, BLK_NO_UNMAP}, {UNMAP_FLAG | NDOB, 0, 0}};
    struct rig *rig = rig_create(NULL);
    memset(data, 0, 512);
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        memset(rig->disk->bytes, 0x55, RIG_DISK_BYTES);
        uint64_t before = rig->requests;
        EXPECT_OUTCOME(rig, rig->a, "good", data, cases[i].out, 0x93, cases[i].flags, [9] = 3, [12] = 0x10);
        cr_expect_eq(rig->requests, before + 1);
        cr_expect_eq(rig->last_op, BLK_WRITE_ZEROES);
        cr_expect_eq(rig->last_flags, cases[i].expect, "case %u", i);
        cr_expect_eq(rig->disk->bytes[3 * 512 - 1], 0x55);
        cr_expect_eq(rig->disk->bytes[3 * 512], 0);
        cr_expect_eq(rig->disk->bytes[(3 + 4096) * 512 - 1], 0);
        cr_expect_eq(rig->disk->bytes[(3 + 4096) * 512], 0x55);
    }
    rig_destroy(rig);
}

Test(scsi_provision, write_same_with_unmap_of_other_data_writes_them)
{
    struct rig *rig = rig_create(NULL);
    memset(data, 0xa6, 512);
    EXPECT_OUTCOME(rig, rig->a, "good", data, 512, 0x41, UNMAP_FLAG, 0, 0, 0, 1, 0, 0, 2);
    cr_expect_eq(rig->last_op, BLK_WRITE);
    cr_expect_eq(rig->disk->bytes[512], 0xa6);
    cr_expect_eq(rig->disk->bytes[3 * 512 - 1], 0xa6);
    cr_expect_eq(rig->disk->bytes[3 * 512], 0);
    rig_destroy(rig);
}

Test(scsi_provision, write_same_refusals)
{
    struct rig *rig = rig_create(NULL);
    memset(data, 1, 1024);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", data, 512, 0x93);                       /* zero blocks: WSNZ */
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", data, 512, 0x41);                       /* zero blocks */
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", data, 512, 0x93, ANCHOR, [13] = 1);     /* ANC_SUP is 0 */
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", data, 512, 0x93, 0x20, [13] = 1);       /* WRPROTECT */
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", data, 512, 0x41, NDOB, [8] = 1);        /* only in (16) */
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", data, 256, 0x41, UNMAP_FLAG, [8] = 1);  /* less than a block */
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", data, 1024, 0x41, UNMAP_FLAG, [8] = 1); /* more */
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", data, 512, 0x93, NDOB, [13] = 1);       /* data in spite of NDOB */
    rig->disk->dev.info.size = 1 * GIB;                                            /* only looked at by the checks */
    cr_expect_str_eq(rig_outcome(rig_do(rig, rig->a, same16(0, 0, 32769), data, 512)), "5/24/00", "B0 says 32768");
    rig->disk->dev.info.size = RIG_DISK_BYTES;
    rig->disk->dev.info.discards = false;
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", data, 512, 0x93, UNMAP_FLAG, [13] = 1); /* LBPWS is 0 */
    EXPECT_OUTCOME(rig, rig->a, "good", data, 512, 0x93, 0, [13] = 1);
    rig_destroy(rig);
}

Test(scsi_provision, write_same_stops_at_a_bad_write)
{
    struct rig *rig = rig_create(NULL);
    memset(data, 9, 512);
    rig->fail = true;
    rig->fail_op = BLK_WRITE;
    rig->fail_status = BLK_NOSPACE;
    rig->fail_off = 300 * 512;
    cr_expect_str_eq(rig_outcome(rig_do(rig, rig->a, same16(0, 0, 4000), data, 512)), "7/27/07");
    cr_expect_eq(rig->requests, 2);
    rig_destroy(rig);
}

/* --- UNMAP --- */

struct range {
    uint64_t lba;
    uint32_t blocks;
};

/* A well-formed list; its length. */
static uint32_t put_list(uint8_t *list, const struct range *ranges, unsigned count)
{
    uint32_t len = 8 + 16 * count;
    memset(list, 0, len);
    put_be16(list, (uint16_t)(len - 2));
    put_be16(list + 2, (uint16_t)(16 * count));
    for (unsigned i = 0; i < count; i++) {
        put_be64(list + 8 + 16 * i, ranges[i].lba);
        put_be32(list + 16 + 16 * i, ranges[i].blocks);
    }
    return len;
}

static const char *unmap(struct rig *rig, uint32_t len)
{
    uint8_t cdb[SCSI_CDB_MAX] = {0x42};
    put_be16(cdb + 7, (uint16_t)len);
    return rig_outcome(rig_do(rig, rig->a, cdb, data, len));
}

Test(scsi_provision, unmap_discards_each_range_and_nothing_else)
{
    static const struct range ranges[] = {{8, 8}, {100, 0}, {BLOCKS - 1, 1}, {1000, 500}};
    struct rig *rig = rig_create(NULL);
    memset(rig->disk->bytes, 0x55, RIG_DISK_BYTES);
    cr_expect_str_eq(unmap(rig, put_list(data, ranges, 4)), "good");
    cr_expect_eq(rig->disk->dev.counters.requests[BLK_DISCARD], 3, "an empty range is skipped");
    for (uint32_t lba = 0; lba < BLOCKS; lba++) {
        bool gone = (lba >= 8 && lba < 16) || lba == BLOCKS - 1 || (lba >= 1000 && lba < 1500);
        cr_assert_eq(rig->disk->bytes[lba * 512 + 7], gone ? 0 : 0x55, "LBA %u", lba);
    }
    rig_destroy(rig);
}

Test(scsi_provision, unmap_of_nothing_is_good)
{
    struct rig *rig = rig_create(NULL);
    cr_expect_str_eq(unmap(rig, 0), "good", "no list");
    cr_expect_str_eq(unmap(rig, put_list(data, NULL, 0)), "good", "no descriptor");
    cr_expect_eq(rig->requests, 0);
    rig_destroy(rig);
}

Test(scsi_provision, a_bad_range_anywhere_means_that_none_is_discarded)
{
    static const struct range ranges[] = {{8, 8}, {16, 8}, {BLOCKS - 1, 2}};
    struct rig *rig = rig_create(NULL);
    cr_expect_str_eq(unmap(rig, put_list(data, ranges, 3)), "5/21/00");
    cr_expect_eq(rig->requests, 0);
    struct range many[257];
    for (unsigned i = 0; i < 257; i++)
        many[i] = (struct range){i, 1};
    cr_expect_str_eq(unmap(rig, put_list(data, many, 257)), "5/26/00");
    cr_expect_str_eq(unmap(rig, put_list(data, many, 256)), "good");
    cr_expect_eq(rig->requests, 256);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0x42, 1); /* ANCHOR */
    rig_destroy(rig);
}

Test(scsi_provision, unmap_lists_that_are_malformed)
{
    static const struct unmap_limits limits = {.capacity = 1000, .blocks = 600, .descriptors = 3};
    static const struct {
        const char *what;
        uint32_t len, named; /* bytes that came; UNMAP BLOCK DESCRIPTOR DATA LENGTH */
        struct range range[3];
        uint8_t key, asc;
        uint32_t count;
    } cases[] = {
        {"empty", 0, 0, {{0}}, 0, 0, 0},
        {"part of a header", 7, 0, {{0}}, 5, 0x1a, 0},
        {"one", 24, 16, {{10, 20}}, 0, 0, 1},
        {"less than a descriptor is none", 24, 15, {{10, 20}}, 0, 0, 0},
        {"the rest of a descriptor is ignored", 56, 47, {{10, 20}, {0, 1}}, 0, 0, 2},
        {"more named than came", 24, 32, {{10, 20}}, 5, 0x1a, 0},
        {"too many", 24, 64, {{10, 20}}, 5, 0x26, 0},
        {"length of 65535", 24, 65535, {{10, 20}}, 5, 0x26, 0},
        {"beyond the end", 24, 16, {{1000, 1}}, 5, 0x21, 0},
        {"wraps", 24, 16, {{UINT64_MAX, 2}}, 5, 0x21, 0},
        {"up to the end", 24, 16, {{999, 1}}, 0, 0, 1},
        {"sum at the limit", 40, 32, {{0, 300}, {300, 300}}, 0, 0, 2},
        {"sum beyond the limit", 40, 32, {{0, 300}, {300, 301}}, 5, 0x26, 0},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint8_t list[56] = {0};
        struct scsi_sense why = {0};
        uint32_t count = 99;
        put_list(list, cases[i].range, 3);
        put_be16(list + 2, (uint16_t)cases[i].named);
        bool ok = unmap_list_check(list, cases[i].len, &limits, &count, &why);
        cr_expect_eq(ok, cases[i].key == 0, "%s", cases[i].what);
        cr_expect_eq(why.key, cases[i].key, "%s", cases[i].what);
        cr_expect_eq(why.asc, cases[i].asc, "%s", cases[i].what);
        if (ok)
            cr_expect_eq(count, cases[i].count, "%s", cases[i].what);
    }
}

Test(scsi_provision, unmap_can_be_aborted_between_two_ranges)
{
    static const struct range ranges[] = {{8, 8}, {16, 8}, {24, 8}};
    struct rig *rig = rig_create(&(struct rig_options){.latency_ns = 1000});
    uint32_t len = put_list(data, ranges, 3);
    struct rig_task *task = rig_start(rig, rig->a, CDB(0x42, [8] = (uint8_t)len), data, len);
    scsi_task_abort(&task->task);
    cr_assert(testloop_run_until(rig->t, &task->done));
    cr_expect_eq(task->task.status, SCSI_TASK_ABORTED);
    cr_expect_eq(rig->requests, 1);
    rig_end(task);
    rig_destroy(rig);
}

Test(scsi_provision, get_lba_status_tells_what_was_never_written)
{
    static const struct {
        uint8_t lba;
        uint32_t blocks;
        uint8_t status;
    } cases[] = {{0, 16, 0}, {10, 6, 0}, {16, 32, 1}, {40, 8, 1}};
    struct rig *rig = rig_create(NULL);
    rig->disk->unwritten[0] = 16 * 512;
    rig->disk->unwritten[1] = 48 * 512;
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        const struct rig_reply *reply = rig_do(rig, rig->a, CDB(0x9e, 0x12, [9] = cases[i].lba, [13] = 24), NULL, 0);
        cr_assert_eq(reply->len, 24);
        cr_expect_eq(get_be64(reply->data + 8), cases[i].lba);
        cr_expect_eq(get_be32(reply->data + 16), cases[i].blocks, "case %u: %u", i, get_be32(reply->data + 16));
        cr_expect_eq(reply->data[20], cases[i].status, "case %u", i);
    }
    rig_destroy(rig);
}

Test(scsi_provision, get_lba_status_says_mapped_from_the_lba_to_the_end)
{
    struct rig *rig = rig_create(NULL);
    uint64_t blocks = rig_do(rig, rig->a, CDB(0x9e, 0x10, [13] = 32), NULL, 0)->len == 32
                          ? get_be64(rig_do(rig, rig->a, CDB(0x9e, 0x10, [13] = 32), NULL, 0)->data) + 1
                          : 0;
    cr_assert_gt(blocks, 100);
    const struct rig_reply *reply = rig_do(rig, rig->a, CDB(0x9e, 0x12, [9] = 100, [13] = 255), NULL, 0);
    cr_assert_eq(reply->len, 24);
    cr_expect_eq(get_be32(reply->data), 20);
    cr_expect_eq(get_be64(reply->data + 8), 100);
    cr_expect_eq(get_be32(reply->data + 16), blocks - 100);
    cr_expect_eq(reply->data[20], 0);
    cr_expect_eq(rig_do(rig, rig->a, CDB(0x9e, 0x12, [13] = 12), NULL, 0)->len, 12, "cut at the allocation length");
    EXPECT_OUTCOME(rig, rig->a, "5/21/00", NULL, 0, 0x9e, 0x12, 0xff, [13] = 32);
    rig_destroy(rig);
}
