/* POPULATE TOKEN, WRITE USING TOKEN, RECEIVE ROD TOKEN INFORMATION: copies by token, as Windows makes them. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/token_list.h"
#include "tests/unit/target/scsi_rig.h"

static uint8_t before[RIG_DISK_BYTES];

enum { POPULATE = 0x10, USE = 0x11, BLOCKS = RIG_DISK_BYTES / 512, DELETE_TOKEN = 0x02, THE_ID = 0x11223344 };

struct ranges {
    unsigned count;
    struct rod_range of[ROD_RANGES_MAX + 1];
};
#define RANGES(...)                                                                                                    \
    ((struct ranges){sizeof((struct rod_range[]){__VA_ARGS__}) / sizeof(struct rod_range), {__VA_ARGS__}})

struct list {
    uint8_t bytes[2048];
    uint32_t len;
};

static void put_ranges(struct list *list, uint32_t header, struct ranges ranges)
{
    put_be16(list->bytes + header - 2, (uint16_t)(ranges.count * ROD_RANGE_BYTES));
    for (unsigned i = 0; i < ranges.count; i++) {
        put_be64(list->bytes + header + i * ROD_RANGE_BYTES, ranges.of[i].lba);
        put_be32(list->bytes + header + i * ROD_RANGE_BYTES + 8, ranges.of[i].blocks);
    }
    list->len = header + ranges.count * ROD_RANGE_BYTES;
    put_be16(list->bytes, (uint16_t)(list->len - 2));
}

static struct list populate_list(struct ranges ranges)
{
    struct list list = {0};
    put_ranges(&list, POPULATE_HEADER, ranges);
    return list;
}

static struct list use_list(const uint8_t *token, uint64_t offset, struct ranges ranges)
{
    struct list list = {0};
    put_be64(list.bytes + 8, offset);
    memcpy(list.bytes + 16, token, ROD_TOKEN_BYTES);
    put_ranges(&list, USE_HEADER, ranges);
    return list;
}

static const uint8_t *token_cdb(uint8_t action, uint32_t id, uint32_t len)
{
    static uint8_t cdb[SCSI_CDB_MAX];
    memset(cdb, 0, sizeof cdb);
    cdb[0] = 0x83;
    cdb[1] = action;
    put_be32(cdb + 6, id);
    put_be32(cdb + 10, len);
    return cdb;
}

static const char *send(struct rig *rig, struct scsi_nexus *nexus, uint8_t action, const struct list *list)
{
    return rig_outcome(rig_do(rig, nexus, token_cdb(action, THE_ID, list->len), list->bytes, list->len));
}

static const struct rig_reply *information(struct rig *rig, struct scsi_nexus *nexus, uint32_t id)
{
    uint8_t cdb[SCSI_CDB_MAX] = {0x84, 0x07};
    put_be32(cdb + 2, id);
    put_be32(cdb + 10, 2048);
    return rig_do(rig, nexus, cdb, NULL, 0);
}

/* Of LUN 0. */
static void make(struct rig *rig, struct ranges ranges, uint8_t token[ROD_TOKEN_BYTES])
{
    struct list list = populate_list(ranges);
    cr_assert_str_eq(send(rig, rig->a, POPULATE, &list), "good");
    const struct rig_reply *reply = information(rig, rig->a, THE_ID);
    cr_assert_eq(get_be32(reply->data + 32), 2 + ROD_TOKEN_BYTES);
    memcpy(token, reply->data + 38, ROD_TOKEN_BYTES);
}

static void zero_token(uint8_t token[ROD_TOKEN_BYTES])
{
    memset(token, 0, ROD_TOKEN_BYTES);
    put_be32(token, ROD_TYPE_ZERO);
    put_be16(token + 6, 0x1f8);
}

static struct rig *two_disks(uint64_t latency_ns)
{
    struct rig *rig = rig_create(&(struct rig_options){.latency_ns = latency_ns});
    rig_add_second(rig, false);
    test_fill(rig->disk->bytes, RIG_DISK_BYTES, 2);
    test_fill(rig->second->bytes, RIG_DISK_BYTES, 3);
    return rig;
}

/* --- copies --- */

Test(scsi_token, stands_for_ranges_that_another_nexus_writes_to_others)
{
    uint8_t token[ROD_TOKEN_BYTES];
    struct rig *rig = two_disks(0);
    make(rig, RANGES({10, 100}, {1000, 1}, {500, 99}), token);
    const struct rig_reply *reply = information(rig, rig->a, THE_ID);
    cr_expect_eq(get_be32(reply->data), reply->len - 4);
    cr_expect_eq(reply->data[4], POPULATE);
    cr_expect_eq(reply->data[5], 1);
    cr_expect_eq(reply->data[15], 0xf1, "in blocks");
    cr_expect_eq(get_be64(reply->data + 16), 200);
    cr_expect_eq(get_be32(token), ROD_TYPE_ACCESS);
    cr_expect_eq(get_be16(token + 6), 0x1f8);
    cr_expect_eq(get_be64(token + 56), 200 * 512);
    memcpy(before, rig->second->bytes, RIG_DISK_BYTES);
    memcpy(before + 3 * 512, rig->disk->bytes + (10 + 50) * 512, 20 * 512);
    memcpy(before + 77 * 512, rig->disk->bytes + (10 + 70) * 512, 30 * 512);
    memcpy(before + 107 * 512, rig->disk->bytes + 1000 * 512, 512);
    memcpy(before + 108 * 512, rig->disk->bytes + 500 * 512, 50 * 512);
    struct list list = use_list(token, 50, RANGES({3, 20}, {77, 81}));
    rig->lun = 1;
    cr_expect_str_eq(send(rig, rig->b, USE, &list), "good");
    cr_expect(memcmp(rig->second->bytes, before, RIG_DISK_BYTES) == 0);
    reply = information(rig, rig->b, THE_ID);
    cr_expect_eq(reply->data[5], 1);
    cr_expect_eq(get_be64(reply->data + 16), 101);
    cr_expect_eq(get_be32(reply->data + 32), 0, "no token was made");
    rig_destroy(rig);
}

Test(scsi_token, that_stands_for_less_is_copied_in_part_and_that_is_told)
{
    uint8_t token[ROD_TOKEN_BYTES];
    struct rig *rig = two_disks(0);
    make(rig, RANGES({0, 100}), token);
    rig->lun = 1;
    memcpy(before, rig->second->bytes, RIG_DISK_BYTES);
    memcpy(before, rig->disk->bytes + 60 * 512, 40 * 512);
    struct list list = use_list(token, 60, RANGES({0, 100}));
    cr_expect_str_eq(send(rig, rig->a, USE, &list), "good");
    cr_expect(memcmp(rig->second->bytes, before, RIG_DISK_BYTES) == 0);
    const struct rig_reply *reply = information(rig, rig->a, THE_ID);
    cr_expect_eq(reply->data[5], 3);
    cr_expect_eq(get_be64(reply->data + 16), 40);
    list = use_list(token, 100, RANGES({0, 1}));
    cr_expect_str_eq(send(rig, rig->a, USE, &list), "5/26/00", "behind its end");
    rig_destroy(rig);
}

Test(scsi_token, of_zeroes_needs_no_making)
{
    uint8_t token[ROD_TOKEN_BYTES];
    struct rig *rig = two_disks(0);
    zero_token(token);
    memcpy(before, rig->disk->bytes, RIG_DISK_BYTES);
    memset(before + 9 * 512, 0, 1000 * 512);
    memset(before + 2000 * 512, 0, 512);
    struct list list = use_list(token, 12345, RANGES({9, 1000}, {2000, 1}));
    cr_expect_str_eq(send(rig, rig->a, USE, &list), "good");
    cr_expect(memcmp(rig->disk->bytes, before, RIG_DISK_BYTES) == 0);
    cr_expect_eq(rig->disk->dev.counters.bytes[BLK_WRITE], 0, "no data");
    rig_destroy(rig);
}

/* --- who may use it, and until when --- */

Test(scsi_token, is_revoked_when_its_blocks_are_written_and_only_then)
{
    static const struct {
        uint8_t cdb[SCSI_CDB_MAX];
        uint32_t len;
        const char *outcome;
    } table[] = {{{0x2a, 0, 0, 0, 0, 99, 0, 0, 1}, 512, "good"},     /* before it */
                 {{0x2a, 0, 0, 0, 0, 110, 0, 0, 1}, 512, "good"},    /* behind it */
                 {{0x28, 0, 0, 0, 0, 100, 0, 0, 1}, 0, "good"},      /* a read */
                 {{0x2a, 0, 0, 0, 0, 109, 0, 0, 1}, 512, "5/23/06"}, /* its last block */
                 {{0x41, 0, 0, 0, 0, 100, 0, 0, 1}, 512, "5/23/06"}, /* WRITE SAME */
                 {{0x48, 0x82}, 0, "5/23/06"}};                      /* SANITIZE */
    static const uint8_t data[512] = {1};
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
        uint8_t token[ROD_TOKEN_BYTES];
        struct rig *rig = two_disks(0);
        make(rig, RANGES({100, 10}), token);
        cr_expect_str_eq(rig_outcome(rig_do(rig, rig->b, table[i].cdb, data, table[i].len)), "good");
        testloop_run(rig->t);
        rig->lun = 1;
        struct list list = use_list(token, 0, RANGES({0, 10}));
        cr_expect_str_eq(send(rig, rig->a, USE, &list), table[i].outcome, "row %u", i);
        rig_destroy(rig);
    }
}

Test(scsi_token, that_is_revoked_while_it_is_used_stops_the_copy)
{
    uint8_t token[ROD_TOKEN_BYTES], data[512] = {1};
    struct rig *rig = two_disks(1000);
    make(rig, RANGES({0, BLOCKS}), token);
    rig->lun = 1;
    struct list list = use_list(token, 0, RANGES({0, BLOCKS}));
    struct rig_task *task = rig_start(rig, rig->a, token_cdb(USE, 5, list.len), list.bytes, list.len);
    rig->lun = 0;
    EXPECT_OUTCOME(rig, rig->b, "good", data, 512, 0x2a, 0, 0, 0, 0, 0, 0, 0, 1);
    cr_assert(testloop_run_until(rig->t, &task->done));
    cr_expect_eq(task->task.status, SCSI_CHECK_CONDITION);
    cr_expect_eq(task->task.sense[12], 0x23);
    cr_expect_eq(task->task.sense[13], 0x06);
    cr_expect_eq(information(rig, rig->a, 5)->data[5], 2);
    rig_end(task);
    rig_destroy(rig);
}

Test(scsi_token, that_is_wrong_deleted_or_old_is_refused)
{
    static const struct {
        unsigned at;
        uint8_t value;
        const char *outcome;
    } table[] = {{3, 7, "5/23/01"},   {7, 0, "5/23/0A"},   {8, 1, "5/23/04"},   {200, 0, "good"},
                 {130, 0, "5/23/05"}, {159, 0, "5/23/05"}, {511, 1, "5/23/05"}, {59, 9, "5/23/05"}};
    uint8_t token[ROD_TOKEN_BYTES];
    struct rig *rig = two_disks(0);
    make(rig, RANGES({0, 10}), token);
    rig->lun = 1;
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
        uint8_t wrong[ROD_TOKEN_BYTES];
        memcpy(wrong, token, sizeof wrong);
        wrong[table[i].at] ^= table[i].value == 0 && table[i].at != 200 ? 0x10 : table[i].value;
        struct list list = use_list(wrong, 0, RANGES({0, 10}));
        cr_expect_str_eq(send(rig, rig->a, USE, &list), table[i].outcome, "row %u", i);
    }
    struct list list = use_list(token, 0, RANGES({0, 10}));
    list.bytes[2] = DELETE_TOKEN;
    cr_expect_str_eq(send(rig, rig->a, USE, &list), "good");
    cr_expect_str_eq(send(rig, rig->a, USE, &list), "5/23/09");
    rig->lun = 0;
    make(rig, RANGES({0, 10}), token);
    rig->lun = 1;
    list = use_list(token, 0, RANGES({0, 10}));
    rig->t->loop.now_ns += 59000000000ull;
    cr_expect_str_eq(send(rig, rig->a, USE, &list), "good");
    rig->t->loop.now_ns += 59000000000ull;
    cr_expect_str_eq(send(rig, rig->a, USE, &list), "good", "its time begins anew");
    rig->t->loop.now_ns += 61000000000ull;
    cr_expect_str_eq(send(rig, rig->a, USE, &list), "5/23/07");
    zero_token(token);
    token[100] = 1;
    list = use_list(token, 0, RANGES({0, 10}));
    cr_expect_str_eq(send(rig, rig->a, USE, &list), "5/23/05", "zeroes with something in them");
    rig_destroy(rig);
}

Test(scsi_token, there_are_so_many_at_a_time)
{
    uint8_t first[ROD_TOKEN_BYTES], token[ROD_TOKEN_BYTES];
    struct rig *rig = two_disks(0);
    make(rig, RANGES({0, 1}), first);
    for (unsigned i = 1; i < ROD_TOKENS_MAX; i++) {
        make(rig, RANGES({0, 1}), token);
        cr_expect(memcmp(first, token, ROD_TOKEN_BYTES) != 0);
    }
    struct list list = populate_list(RANGES({0, 1}));
    cr_expect_str_eq(send(rig, rig->a, POPULATE, &list), "5/55/0D");
    rig->t->loop.now_ns += 61000000000ull;
    make(rig, RANGES({0, 1}), token);
    rig->lun = 1;
    list = use_list(first, 0, RANGES({0, 1}));
    cr_expect_str_eq(send(rig, rig->a, USE, &list), "5/23/04", "its place was taken");
    rig_destroy(rig);
}

/* --- lists --- */

Test(scsi_token, lists_that_are_wrong_are_refused)
{
    static const struct {
        const char *what, *outcome;
        uint8_t action;
        unsigned at;
        uint8_t value;
        uint32_t cut;
    } table[] = {{"as it is", "good", POPULATE, 15, 32, 0},
                 {"a type that is not valid", "good", POPULATE, 9, 0x80, 0},
                 {"another type of ROD", "5/26/00", POPULATE, 2, 0x02, 0},
                 {"too long a time", "5/26/00", POPULATE, 6, 0x03, 0},
                 {"no end", "5/1A/00", POPULATE, 15, 32, 1},
                 {"no header", "5/1A/00", POPULATE, 15, 32, 33},
                 {"half a range", "5/26/00", POPULATE, 15, 8, 0},
                 {"no range", "5/26/00", POPULATE, 15, 0, 0},
                 {"more ranges than came", "5/1A/00", POPULATE, 15, 48, 0},
                 {"beyond the end", "5/21/00", POPULATE, 16, 0x80, 0},
                 {"too many blocks", "5/21/00", POPULATE, 24, 0x80, 0},
                 {"ranges that overlap", "5/26/00", POPULATE, 39, 7, 0},
                 {"as it is", "good", USE, 535, 32, 0},
                 {"no end", "5/1A/00", USE, 535, 32, 1},
                 {"no header", "5/1A/00", USE, 535, 32, 33},
                 {"no range", "5/26/00", USE, 535, 0, 0},
                 {"beyond the end", "5/21/00", USE, 536, 0x80, 0},
                 {"ranges that overlap", "5/26/00", USE, 536 + 23, 7, 0}};
    uint8_t token[ROD_TOKEN_BYTES];
    zero_token(token);
    struct rig *rig = two_disks(0);
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
        struct ranges two = RANGES({0, 8}, {8, 8});
        struct list list = table[i].action == POPULATE ? populate_list(two) : use_list(token, 0, two);
        list.bytes[table[i].at] = table[i].value;
        list.len -= table[i].cut;
        cr_expect_str_eq(send(rig, rig->a, table[i].action, &list), table[i].outcome, "row %u: %s", i, table[i].what);
    }
    struct ranges many = {.count = ROD_RANGES_MAX + 1};
    struct list list = populate_list(many);
    cr_expect_str_eq(send(rig, rig->a, POPULATE, &list), "5/26/08");
    list.len = 0;
    cr_expect_str_eq(send(rig, rig->a, POPULATE, &list), "good");
    cr_expect_str_eq(send(rig, rig->a, USE, &list), "good");
    cr_expect_str_eq(rig_outcome(information(rig, rig->b, THE_ID)), "5/24/00", "another nexus");
    cr_expect_str_eq(rig_outcome(information(rig, rig->a, 1)), "5/24/00", "another list");
    rig_destroy(rig);
}

Test(scsi_token, onto_its_own_blocks_is_refused_and_so_is_a_unit_that_is_read_only)
{
    uint8_t token[ROD_TOKEN_BYTES];
    struct rig *rig = rig_create(NULL);
    rig_add_second(rig, true);
    make(rig, RANGES({0, 10}), token);
    struct list list = use_list(token, 0, RANGES({9, 10}));
    cr_expect_str_eq(send(rig, rig->a, USE, &list), "5/26/00");
    list = use_list(token, 0, RANGES({10, 10}));
    cr_expect_str_eq(send(rig, rig->a, USE, &list), "good");
    rig->lun = 1;
    cr_expect_str_eq(send(rig, rig->a, USE, &list), "7/27/00");
    rig_destroy(rig);
}
