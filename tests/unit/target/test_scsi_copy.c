/* EXTENDED COPY, and what can be asked about copies. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/copy_list.h"
#include "tests/unit/target/scsi_rig.h"

static uint8_t before[RIG_DISK_BYTES];

enum { LID1 = 0x00, LID4 = 0x01, COPY_STATUS = 0x00, PARAMETERS = 0x03, FAILURE = 0x04, COPY_STATUS4 = 0x05 };
enum { BLOCKS = RIG_DISK_BYTES / 512 };

/* --- parameter lists --- */

struct list {
    bool lid4;
    uint8_t usage;
    uint32_t id;
    unsigned cscds, segments;
    uint8_t cscd[40][COPY_CSCD_BYTES], segment[80][COPY_SEGMENT_BYTES];
    uint8_t bytes[8192];
    uint32_t len;
};

static void add_cscd(struct list *list, unsigned lun)
{
    uint8_t *at = list->cscd[list->cscds++];
    at[0] = CSCD_IDENTIFICATION;
    at[4] = 1;
    at[5] = 3;
    at[7] = 16;
    rig_naa(lun, at + 8);
    put_be32(at + 28, 512);
}

static void add_segment(struct list *list, uint16_t from, uint64_t from_lba, uint16_t to, uint64_t to_lba,
                        uint16_t blocks)
{
    uint8_t *at = list->segment[list->segments++];
    at[0] = SEGMENT_BLOCK_TO_BLOCK;
    put_be16(at + 2, 0x18);
    put_be16(at + 4, from);
    put_be16(at + 6, to);
    put_be16(at + 10, blocks);
    put_be64(at + 12, from_lba);
    put_be64(at + 20, to_lba);
}

static void finish_list(struct list *list)
{
    uint8_t *out = list->bytes;
    uint32_t header = list->lid4 ? 48 : 16;
    uint16_t cscds = (uint16_t)(list->cscds * COPY_CSCD_BYTES),
             segments = (uint16_t)(list->segments * COPY_SEGMENT_BYTES);
    out[0] = list->lid4 ? 1 : (uint8_t)list->id;
    out[1] = (uint8_t)(list->usage << 3);
    put_be16(out + 2, list->lid4 ? 0x20 : cscds);
    if (list->lid4) {
        out[16] = 0xff;
        put_be32(out + 20, list->id);
        put_be16(out + 42, cscds);
        put_be16(out + 44, segments);
    } else {
        put_be32(out + 8, segments);
    }
    memcpy(out + header, list->cscd, cscds);
    memcpy(out + header + cscds, list->segment, segments);
    list->len = header + cscds + segments;
}

static const uint8_t *copy_cdb(uint8_t action, uint32_t len)
{
    static uint8_t cdb[SCSI_CDB_MAX];
    memset(cdb, 0, sizeof cdb);
    cdb[0] = 0x83;
    cdb[1] = action;
    put_be32(cdb + 10, len);
    return cdb;
}

static const char *copy(struct rig *rig, struct list *list)
{
    finish_list(list);
    return rig_outcome(rig_do(rig, rig->a, copy_cdb(list->lid4 ? LID4 : LID1, list->len), list->bytes, list->len));
}

static const struct rig_reply *receive(struct rig *rig, struct scsi_nexus *nexus, uint8_t action, uint32_t id)
{
    uint8_t cdb[SCSI_CDB_MAX] = {0x84, action};
    if (action == COPY_STATUS4)
        put_be32(cdb + 2, id);
    else
        cdb[2] = (uint8_t)id;
    put_be32(cdb + 10, 1024);
    return rig_do(rig, nexus, cdb, NULL, 0);
}

/* From LUN `from` to LUN `to`, one segment. */
static struct list one(unsigned from, uint64_t from_lba, unsigned to, uint64_t to_lba, uint16_t blocks)
{
    struct list list = {.id = 7};
    add_cscd(&list, from);
    add_cscd(&list, to);
    add_segment(&list, 0, from_lba, 1, to_lba, blocks);
    return list;
}

/* --- copies --- */

Test(scsi_copy, moves_blocks_between_units_whatever_their_alignment)
{
    static const struct {
        uint32_t from, to, blocks;
        uint64_t max_request;
    } table[] = {{0, 0, 1000, 0},
                 {8, 16, 128, 0},
                 {3, 11, 333, 0},
                 {3, 5, 1000, 0},
                 {5, 3, 1000, 0},
                 {0, 7, 1, 0},
                 {BLOCKS - 9, 1, 9, 0},
                 {1, BLOCKS - 9, 9, 0},
                 {1, 2, 100, 4096},
                 {7, 15, 99, 8192},
                 {6, 1, 1000, 65536 + 4096},
                 {0, 0, 0, 0}};
    for (unsigned keep = 0; keep < 2; keep++)
        for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
            struct rig *rig = rig_create(&(struct rig_options){.max_request = table[i].max_request});
            rig_add_second(rig, false);
            rig->keep = keep;
            test_fill(rig->disk->bytes, RIG_DISK_BYTES, 2);
            test_fill(rig->second->bytes, RIG_DISK_BYTES, 3);
            memcpy(before, rig->second->bytes, RIG_DISK_BYTES);
            memcpy(before + table[i].to * 512, rig->disk->bytes + table[i].from * 512, table[i].blocks * 512);
            struct list list = one(0, table[i].from, 1, table[i].to, (uint16_t)table[i].blocks);
            cr_expect_str_eq(copy(rig, &list), "good", "row %u", i);
            cr_expect(memcmp(rig->second->bytes, before, RIG_DISK_BYTES) == 0, "row %u", i);
            rig_destroy(rig);
        }
}

Test(scsi_copy, within_a_unit_and_by_long_lists_too)
{
    struct rig *rig = rig_create(NULL);
    for (unsigned lid4 = 0; lid4 < 2; lid4++) {
        test_fill(rig->disk->bytes, RIG_DISK_BYTES, 2 + lid4);
        memcpy(before, rig->disk->bytes, RIG_DISK_BYTES);
        struct list list = {.lid4 = lid4, .id = lid4 ? 0x12345678 : 9};
        add_cscd(&list, 0);
        add_segment(&list, 0, 0, 0, 1000, 1000);
        add_segment(&list, 0, 2000, CSCD_ADDRESSED, 4001, 500);
        add_segment(&list, CSCD_ADDRESSED, 1, 0, 3000, 1);
        memcpy(before + 1000 * 512, before, 1000 * 512);
        memcpy(before + 4001 * 512, before + 2000 * 512, 500 * 512);
        memcpy(before + 3000 * 512, before + 512, 512);
        cr_expect_str_eq(copy(rig, &list), "good");
        cr_expect(memcmp(rig->disk->bytes, before, RIG_DISK_BYTES) == 0);
    }
    rig_destroy(rig);
}

Test(scsi_copy, what_was_never_written_is_zeroed_and_not_copied)
{
    struct rig *rig = rig_create(NULL);
    rig_add_second(rig, false);
    memset(rig->second->bytes, 0xee, RIG_DISK_BYTES);
    test_fill(rig->disk->bytes, RIG_DISK_BYTES, 5);
    memset(rig->disk->bytes + 1 * MIB, 0, 2 * MIB);
    rig->disk->unwritten[0] = 1 * MIB;
    rig->disk->unwritten[1] = 3 * MIB;
    struct list list = one(0, 0, 1, 0, BLOCKS);
    cr_expect_str_eq(copy(rig, &list), "good");
    cr_expect(memcmp(rig->disk->bytes, rig->second->bytes, RIG_DISK_BYTES) == 0);
    cr_expect_eq(rig->disk->dev.counters.bytes[BLK_READ], 2 * MIB);
    cr_expect_eq(rig->second->dev.counters.bytes[BLK_WRITE_ZEROES], 2 * MIB);
    rig_destroy(rig);
}

Test(scsi_copy, lists_that_are_wrong_are_refused_and_nothing_is_written)
{
    static const struct {
        const char *what, *outcome;
        unsigned at; /* byte of the list */
        uint8_t value;
        uint32_t cut; /* bytes that do not come */
    } table[] = {{"no segment's end", "5/1A/00", 0, 7, 1},
                 {"no CSCD's end", "5/1A/00", 0, 7, 29},
                 {"no header", "5/1A/00", 0, 7, 16 + 64 + 28 - 15},
                 {"reserved usage of the identifier", "5/26/00", 1, 1 << 3, 0},
                 {"an identifier that is said to be none", "5/26/00", 1, 3 << 3, 0},
                 {"inline data", "5/26/0B", 15, 4, 0},
                 {"another kind of CSCD", "5/26/07", 16, 0xe0, 0},

                 {"a tape as CSCD", "5/26/00", 17, 0x01, 0},

                 {"a name nobody has", "A/08/04", 16 + 8 + 15, 0xff, 0},
                 {"an EUI-64", "A/08/04", 16 + 5, 2, 0},
                 {"blocks of another size", "5/26/00", 16 + 30, 4, 0},
                 {"another kind of segment", "5/26/09", 80, 0x03, 0},
                 {"a segment of another length", "5/26/00", 83, 0x19, 0},
                 {"a CSCD that is not in the list", "A/08/04", 85, 2, 0},
                 {"a destination that is not in the list", "A/08/04", 87, 2, 0},
                 {"a source beyond the end", "A/00/00", 92, 0x40, 0},
                 {"a destination beyond the end", "A/00/00", 80 + 26, 0x20, 0},
                 {"a destination at the end of numbers", "A/00/00", 80 + 20, 0xff, 0}};
    struct rig *rig = rig_create(NULL);
    rig_add_second(rig, false);
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
        struct list list = one(0, 0, 1, 0, 8);
        finish_list(&list);
        list.bytes[table[i].at] = table[i].value;
        uint32_t len = list.len - table[i].cut;
        cr_expect_str_eq(rig_outcome(rig_do(rig, rig->a, copy_cdb(LID1, len), list.bytes, len)), table[i].outcome, "%s",
                         table[i].what);
    }
    cr_expect_eq(rig->second->writes, 0);
    cr_expect_str_eq(rig_outcome(rig_do(rig, rig->a, copy_cdb(LID1, 0), NULL, 0)), "good", "no list is no error");
    cr_expect_str_eq(rig_outcome(rig_do(rig, rig->a, copy_cdb(LID1, COPY_LIST_MAX + 1), before, COPY_LIST_MAX + 1)),
                     "5/1A/00");
    rig_destroy(rig);
}

Test(scsi_copy, long_lists_have_a_header_of_their_own)
{
    static const struct {
        unsigned at;
        uint8_t value;
        const char *outcome;
    } table[] = {{0, 0, "5/26/00"}, {3, 0x1f, "5/26/00"}, {16, 0xe4, "5/26/00"}, {47, 1, "5/26/0B"}, {0, 1, "good"}};
    struct rig *rig = rig_create(NULL);
    rig_add_second(rig, false);
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
        struct list list = one(0, 0, 1, 0, 8);
        list.lid4 = true;
        finish_list(&list);
        list.bytes[table[i].at] = table[i].value;
        cr_expect_str_eq(rig_outcome(rig_do(rig, rig->a, copy_cdb(LID4, list.len), list.bytes, list.len)),
                         table[i].outcome, "row %u", i);
    }
    cr_expect_str_eq(rig_outcome(rig_do(rig, rig->a, copy_cdb(LID4, 47), before, 47)), "5/1A/00");
    rig_destroy(rig);
}

Test(scsi_copy, keeps_the_limits_it_tells_of)
{
    struct rig *rig = rig_create(NULL);
    const struct rig_reply *reply = receive(rig, rig->a, PARAMETERS, 0);
    cr_expect_str_eq(rig_outcome(reply), "good");
    cr_expect_eq(get_be32(reply->data), reply->len - 4);
    unsigned cscds = get_be16(reply->data + 8), segments = get_be16(reply->data + 10);
    cr_expect_eq(cscds, COPY_CSCDS_MAX);
    cr_expect_eq(segments, COPY_SEGMENTS_MAX);
    cr_expect_eq(get_be32(reply->data + 12), COPY_DESCRIPTORS_MAX);
    cr_expect_eq(reply->data[37], 9, "granularity of a block");
    cr_expect_arr_eq(reply->data + 43, ((uint8_t[]){2, SEGMENT_BLOCK_TO_BLOCK, CSCD_IDENTIFICATION}), 3);
    static const struct {
        unsigned cscds, segments;
        const char *outcome;
    } table[] = {{COPY_CSCDS_MAX, COPY_SEGMENTS_MAX, "good"},
                 {COPY_CSCDS_MAX + 1, 1, "5/26/06"},
                 {1, COPY_SEGMENTS_MAX + 1, "5/26/08"},
                 {COPY_CSCDS_MAX + 1, COPY_SEGMENTS_MAX + 1, "5/1A/00"},
                 {1, 0, "good"},
                 {0, 0, "good"}};
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
        struct list list = {.id = i};
        for (unsigned k = 0; k < table[i].cscds; k++)
            add_cscd(&list, 0);
        for (unsigned k = 0; k < table[i].segments; k++)
            add_segment(&list, 0, k, 0, 1000 + k, 1);
        cr_expect_str_eq(copy(rig, &list), table[i].outcome, "row %u", i);
    }
    rig_destroy(rig);
}

Test(scsi_copy, onto_itself_is_refused)
{
    static const struct {
        uint32_t from, to, blocks;
        const char *outcome;
    } table[] = {
        {0, 0, 8, "5/26/00"}, {0, 7, 8, "5/26/00"}, {7, 0, 8, "5/26/00"}, {0, 8, 8, "good"}, {8, 0, 8, "good"}};
    struct rig *rig = rig_create(NULL);
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
        struct list list = one(0, table[i].from, 0, table[i].to, (uint16_t)table[i].blocks);
        cr_expect_str_eq(copy(rig, &list), table[i].outcome, "row %u", i);
    }
    rig_destroy(rig);
}

Test(scsi_copy, is_refused_where_the_initiator_may_not_write_or_read)
{
    struct rig *rig = rig_create(NULL);
    rig_add_second(rig, true);
    struct list to_read_only = one(0, 0, 1, 0, 8), from_read_only = one(1, 0, 0, 0, 8);
    cr_expect_str_eq(copy(rig, &to_read_only), "7/27/00");
    cr_expect_str_eq(copy(rig, &from_read_only), "good");
    struct scsi_view view;
    for (unsigned i = 0; i < SCSI_LUNS_MAX; i++)
        view.row[i] = SCSI_VIEW_NOTHING;
    view.row[0] = 0;
    scsi_nexus_set_view(rig->a, &view);
    cr_expect_str_eq(copy(rig, &from_read_only), "A/08/04", "it does not see that LU");
    view.row[1] = 1;
    view.row[0] = SCSI_VIEW_READ_ONLY;
    cr_expect_str_eq(copy(rig, &from_read_only), "7/27/00", "its view is read-only");
    scsi_nexus_set_view(rig->a, NULL);
    rig_destroy(rig);
}

Test(scsi_copy, of_a_unit_whose_medium_is_out_is_refused)
{
    struct rig *rig = rig_create(&(struct rig_options){.removable = true});
    rig_add_second(rig, false);
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x1b, [4] = 2);
    rig->lun = 1;
    struct list from = one(0, 0, 1, 0, 8), to = one(1, 0, 0, 0, 8);
    cr_expect_str_eq(copy(rig, &from), "A/08/04");
    cr_expect_str_eq(copy(rig, &to), "A/08/04");
    rig->lun = 0;
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x1b, [4] = 3);
    cr_expect_str_eq(copy(rig, &from), "good");
    rig_destroy(rig);
}

/* Another nexus has reserved the other LU. */
Test(scsi_copy, conflicts_with_reservations_at_either_end)
{
    struct rig *rig = rig_create(NULL);
    rig_add_second(rig, false);
    rig->lun = 1;
    EXPECT_OUTCOME(rig, rig->b, "good", NULL, 0, 0x16);
    rig->lun = 0;
    struct list there = one(0, 0, 1, 0, 8), back = one(1, 0, 0, 0, 8), here = one(0, 0, 0, 8, 8);
    cr_expect_str_eq(copy(rig, &there), "conflict");
    cr_expect_str_eq(copy(rig, &back), "conflict");
    cr_expect_str_eq(copy(rig, &here), "good");
    rig_destroy(rig);
}

Test(scsi_copy, errors_of_devices_are_those_of_a_third_party_except_for_lack_of_space)
{
    static const struct {
        enum blk_op op;
        enum blk_status status;
        const char *outcome;
    } table[] = {
        {BLK_READ, BLK_MEDIA, "A/0D/01"}, {BLK_WRITE, BLK_GONE, "A/0D/01"}, {BLK_WRITE, BLK_NOSPACE, "7/27/07"}};
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
        struct rig *rig = rig_create(NULL);
        rig->fail = true;
        rig->fail_op = table[i].op;
        rig->fail_status = table[i].status;
        struct list list = {.id = 3};
        add_cscd(&list, 0);
        add_segment(&list, 0, 0, 0, 0x100, 0);
        add_segment(&list, 0, 0, 0, 0x100, 8);
        cr_expect_str_eq(copy(rig, &list), table[i].outcome);
        const struct rig_reply *reply = receive(rig, rig->a, COPY_STATUS, 3);
        cr_expect_eq(reply->data[4], 2, "completed with errors");
        cr_expect_eq(get_be16(reply->data + 5), 1, "segments");
        reply = receive(rig, rig->a, FAILURE, 3);
        cr_expect_eq(reply->data[56], SCSI_CHECK_CONDITION);
        cr_expect_eq(get_be16(reply->data + 58), 18);
        cr_expect_eq(get_be32(reply->data), 60 - 4 + 18);
        cr_expect_eq(reply->data[60 + 2], table[i].status == BLK_NOSPACE ? 7 : 10);
        rig_destroy(rig);
    }
}

/* --- results --- */

Test(scsi_copy, results_are_there_by_the_identifier_for_the_nexus_that_copied)
{
    struct rig *rig = rig_create(NULL);
    cr_expect_str_eq(rig_outcome(receive(rig, rig->a, COPY_STATUS, 7)), "5/24/00");
    struct list list = one(0, 0, 0, 1000, 100);
    cr_expect_str_eq(copy(rig, &list), "good");
    const struct rig_reply *reply = receive(rig, rig->a, COPY_STATUS, 7);
    cr_expect_arr_eq(reply->data, ((uint8_t[]){0, 0, 0, 8, 1, 0, 1, 0, 0, 0, 100 * 512 / 256, 0}), 12);
    reply = receive(rig, rig->a, FAILURE, 7);
    cr_expect_eq(get_be32(reply->data), 0, "nothing failed");
    reply = receive(rig, rig->a, COPY_STATUS4, 7);
    cr_expect_eq(get_be32(reply->data), 28);
    cr_expect_eq(reply->data[5], 1);
    cr_expect_eq(reply->data[15], 0xf1, "in blocks");
    cr_expect_eq(get_be64(reply->data + 16), 100);
    cr_expect_str_eq(rig_outcome(receive(rig, rig->b, COPY_STATUS, 7)), "5/24/00");
    list.usage = 2;
    cr_expect_str_eq(copy(rig, &list), "good");
    cr_expect_str_eq(rig_outcome(receive(rig, rig->a, COPY_STATUS, 7)), "5/24/00", "it was to be discarded");
    rig_destroy(rig);
}

Test(scsi_copy, the_table_of_results_keeps_the_youngest_and_forgets_with_the_nexus)
{
    struct rig *rig = rig_create(NULL);
    struct list list = one(0, 0, 0, 1000, 1);
    for (list.id = 0; list.id < 40; list.id++)
        cr_expect_str_eq(copy(rig, &list), "good");
    cr_expect_str_eq(rig_outcome(receive(rig, rig->a, COPY_STATUS, 7)), "5/24/00");
    for (unsigned id = 8; id < 40; id++)
        cr_expect_str_eq(rig_outcome(receive(rig, rig->a, COPY_STATUS, id)), "good");
    scsi_nexus_destroy(rig->a);
    rig->a = scsi_nexus_create(rig->target, "iqn.2026-11.org.example:a,i,0x1");
    rig_do(rig, rig->a, CDB(0x00), NULL, 0);
    cr_expect_str_eq(rig_outcome(receive(rig, rig->a, COPY_STATUS, 39)), "5/24/00");
    rig_destroy(rig);
}

static struct rig_task *start(struct rig *rig, struct list *list)
{
    finish_list(list);
    return rig_start(rig, rig->a, copy_cdb(LID1, list->len), list->bytes, list->len);
}

Test(scsi_copy, can_be_watched_and_an_abort_stops_it)
{
    struct rig *rig = rig_create(&(struct rig_options){.latency_ns = 1000000});
    rig_add_second(rig, false);
    struct list list = one(0, 0, 1, 0, BLOCKS);
    struct rig_task *task = start(rig, &list);
    struct rig_reply *reply = rig_do(rig, rig->b, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1), NULL, 0);
    for (unsigned i = 0; i < 3; i++)
        reply = rig_do(rig, rig->b, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1), NULL, 0);
    cr_expect_eq(reply->status, SCSI_GOOD);
    const struct rig_reply *status = receive(rig, rig->a, COPY_STATUS, 7);
    cr_expect_eq(status->data[4], 0, "it runs");
    cr_expect_geq(get_be32(status->data + 8), 65536);
    cr_expect_str_eq(copy(rig, &list), "5/00/16", "the identifier is in use");
    uint64_t writes = rig->second->writes;
    scsi_task_abort(&task->task);
    cr_assert(testloop_run_until(rig->t, &task->done));
    cr_expect_eq(task->task.status, SCSI_TASK_ABORTED);
    testloop_run(rig->t);
    cr_expect_leq(rig->second->writes, writes + 1);
    rig_end(task);
    cr_expect_eq(receive(rig, rig->a, COPY_STATUS, 7)->data[4], 2);
    cr_expect_eq(receive(rig, rig->a, COPY_STATUS4, 7)->data[5], 0x60);
    rig_destroy(rig);
}

/* COMPARE AND WRITE at LUN 1 while a copy goes there. */
static struct rig_task *start_compare(struct rig *rig, uint32_t lba, const uint8_t *data)
{
    uint8_t cdb[SCSI_CDB_MAX] = {0x89, [13] = 1};
    put_be64(cdb + 2, lba);
    rig->lun = 1;
    struct rig_task *task = rig_start(rig, rig->b, cdb, data, 1024);
    rig->lun = 0;
    return task;
}

Test(scsi_copy, is_in_order_with_compare_and_write_at_its_destination)
{
    struct rig *rig = rig_create(&(struct rig_options){.latency_ns = 1000});
    rig_add_second(rig, false);
    uint8_t data[1024];
    test_fill(rig->disk->bytes, RIG_DISK_BYTES, 2);
    memcpy(data, rig->disk->bytes + 100 * 4096, 512);
    memset(data + 512, 0x55, 512);
    struct list list = one(0, 0, 1, 0, BLOCKS);
    struct rig_task *task = start(rig, &list), *compare = start_compare(rig, 800, data);
    cr_assert(testloop_run_until(rig->t, &compare->done));
    cr_expect_eq(compare->task.status, SCSI_GOOD, "it saw what was copied");
    cr_expect(task->done, "so it came after");
    cr_expect_eq(rig->second->bytes[800 * 512], 0x55);
    rig_end(task);
    rig_end(compare);
    rig_destroy(rig);
}

Test(scsi_copy, waits_behind_a_compare_and_write_and_can_be_aborted_there)
{
    for (unsigned abort = 0; abort < 2; abort++) {
        struct rig *rig = rig_create(&(struct rig_options){.latency_ns = 1000});
        rig_add_second(rig, false);
        uint8_t data[1024] = {0};
        test_fill(rig->disk->bytes, 4096, 2);
        memset(data + 512, 0x55, 512);
        struct rig_task *compare = start_compare(rig, 1, data);
        struct list list = one(0, 0, 1, 0, 8);
        struct rig_task *task = start(rig, &list);
        cr_expect_not_null(task->task.waiting_on);
        if (abort)
            scsi_task_abort(&task->task);
        testloop_run(rig->t);
        cr_expect_eq(task->task.status, abort ? SCSI_TASK_ABORTED : SCSI_GOOD);
        cr_expect_eq(compare->task.status, SCSI_GOOD);
        cr_expect_eq(rig->second->bytes[512], abort ? 0x55 : rig->disk->bytes[512]);
        rig_end(task);
        rig_end(compare);
        rig_destroy(rig);
    }
}

Test(scsi_copy, the_page_of_third_party_copies_says_what_there_is)
{
    struct rig *rig = rig_create(NULL);
    const struct rig_reply *reply = rig_do(rig, rig->a, CDB(0x12, 1, 0x8f, 4, 0), NULL, 0);
    cr_expect_eq(get_be16(reply->data + 2), reply->len - 4);
    cr_expect_eq(reply->len % 4, 0);
    unsigned at = 4, last = 0, seen = 0;
    while (at < reply->len) {
        unsigned type = get_be16(reply->data + at), len = get_be16(reply->data + at + 2);
        cr_expect(at == 4 || type > last, "ascending");
        cr_expect_eq(len % 4, 0);
        if (type == 0x0001)
            cr_expect_eq(reply->data[at + 5], 0x83);
        if (type == 0x0004)
            cr_expect_eq(get_be16(reply->data + at + 8), COPY_CSCDS_MAX);
        seen += type == 0x0001 || type == 0x0004 || type == 0x0008 || type == 0x000c || type == 0x8001;
        last = type;
        at += 4 + len;
    }
    cr_expect_eq(at, reply->len);
    cr_expect_eq(seen, 5, "the mandatory ones");
    cr_expect(rig_do(rig, rig->a, CDB(0x12, 0, 0, 0, 96), NULL, 0)->data[5] & 0x08, "3PC");
    rig_destroy(rig);
}

/* Behind a write that needs its blocks for itself stands another one; both end, whatever the copy has to say. */
Test(scsi_copy, segments_of_no_blocks_stand_in_no_line)
{
    static uint8_t data[2 * 2 * 512];
    struct rig *rig = rig_create(&(struct rig_options){.latency_ns = 1000000});
    struct list list = {.id = 7};
    add_cscd(&list, 0);
    for (unsigned i = 0; i < 3; i++)
        add_segment(&list, 0, 0, 0, 0x101, 0);
    struct rig_task *tasks[] = {rig_start(rig, rig->b, CDB(0x89, [8] = 0x01, [13] = 2), data, sizeof data),
                                start(rig, &list),
                                rig_start(rig, rig->b, CDB(0x2a, [4] = 0x01, [5] = 0x01, [8] = 1), data, 512)};
    testloop_run(rig->t);
    for (unsigned i = 0; i < ARRAY_LENGTH(tasks); i++) {
        cr_expect(tasks[i]->done && tasks[i]->task.status == SCSI_GOOD, "task %u", i);
        rig_end(tasks[i]);
    }
    cr_expect_eq(rig->disk->writes, 2);
    rig_destroy(rig);
}
