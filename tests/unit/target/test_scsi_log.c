/* Log pages, and what an LU counts for them; and the commands that tell constants (command_state.c). */
#include <criterion/criterion.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/log_page.h"
#include "tests/unit/target/scsi_rig.h"

enum { CUMULATIVE = 0x40 };

static const struct rig_reply *log_sense(struct rig *rig, uint8_t page, uint8_t subpage, uint16_t pointer)
{
    return rig_do(rig, rig->a,
                  CDB(0x4d, 0, CUMULATIVE | page, subpage, 0, (uint8_t)(pointer >> 8), (uint8_t)pointer, 2, 0), NULL,
                  0);
}

/* The value of a parameter, or NULL. */
static const uint8_t *parameter(const struct rig_reply *reply, uint16_t number, uint8_t len)
{
    for (uint32_t at = 4; at < reply->len; at += 4u + reply->data[at + 3])
        if (get_be16(reply->data + at) == number && reply->data[at + 3] == len)
            return reply->data + at + 4;
    return NULL;
}

Test(scsi_log, the_list_of_pages_is_ascending_and_each_is_there)
{
    static const uint8_t expected[11] = {0x00, 0x02, 0x03, 0x05, 0x0c, 0x0d, 0x0e, 0x10, 0x15, 0x19, 0x2f};
    struct rig *rig = rig_create(NULL);
    const struct rig_reply *reply = log_sense(rig, 0, 0, 0);
    cr_expect_eq(reply->len, 15);
    cr_expect_arr_eq(reply->data, ((uint8_t[]){0, 0, 0, 11}), 4);
    cr_expect_arr_eq(reply->data + 4, expected, 11);
    reply = log_sense(rig, 0, 0xff, 0);
    cr_expect_eq(reply->len, 4 + 24);
    cr_expect_arr_eq(reply->data, ((uint8_t[]){0x40, 0xff, 0, 24, 0, 0, 0, 0xff, 2, 0, 3, 0}), 12);
    for (unsigned i = 1; i < 11; i++) {
        reply = log_sense(rig, expected[i], 0, 0);
        cr_expect_eq(reply->status, SCSI_GOOD);
        cr_expect_eq(reply->data[0], expected[i]);
        cr_expect_eq(reply->len, 4u + get_be16(reply->data + 2));
        uint32_t at = 4;
        while (at < reply->len)
            at += 4u + reply->data[at + 3];
        cr_expect_eq(at, reply->len, "page %02x: parameters fill it", expected[i]);
    }
    rig_destroy(rig);
}

Test(scsi_log, what_is_asked_for_wrongly_is_refused)
{
    struct rig *rig = rig_create(NULL);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0x4d, 0, CUMULATIVE | 0x04, [8] = 255);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0x4d, 0, CUMULATIVE | 0x0d, 1, [8] = 255);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0x4d, 0, 0x0d, [8] = 255);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0x4d, 1, CUMULATIVE | 0x0d, [8] = 255);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0x4d, 0, CUMULATIVE | 0x0d, [5] = 0xff, [8] = 255);
    cr_expect_eq(log_sense(rig, 0x10, 0, 20)->len, 4 + 20, "from a parameter on");
    cr_expect_eq(rig_do(rig, rig->a, CDB(0x4d, 0, CUMULATIVE | 0x0d, [8] = 5), NULL, 0)->len, 5);
    rig_destroy(rig);
}

Test(scsi_log, commands_blocks_and_errors_are_counted)
{
    struct rig *rig = rig_create(&(struct rig_options){.latency_ns = 5000});
    static uint8_t data[4 * 512];
    EXPECT_OUTCOME(rig, rig->a, "good", data, sizeof data, 0x2a, [8] = 4);
    EXPECT_OUTCOME(rig, rig->b, "good", NULL, 0, 0x28, [8] = 2);
    EXPECT_OUTCOME(rig, rig->b, "good", NULL, 0, 0x28, [8] = 1);
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x2f, [8] = 8);
    rig->fail = true;
    rig->fail_op = BLK_READ;
    rig->fail_status = BLK_GONE;
    EXPECT_OUTCOME(rig, rig->a, "4/44/00", NULL, 0, 0x28, [8] = 1);
    rig->fail = false;
    rig->disk->dev.counters.errors[BLK_READ] = 7;
    const uint8_t *at = parameter(log_sense(rig, 0x19, 0, 0), 1, 64);
    cr_assert_not_null(at);
    static const uint64_t expected[] = {2, 1, 4, 3, 10, 5};
    for (unsigned i = 0; i < ARRAY_LENGTH(expected); i++)
        cr_expect_eq(get_be64(at + 8 * i), expected[i], "value %u: %u", i, (unsigned)get_be64(at + 8 * i));
    cr_expect_eq(get_be64(parameter(log_sense(rig, 0x02, 0, 0), 5, 8)), 4 * 512);
    cr_expect_eq(get_be64(parameter(log_sense(rig, 0x03, 0, 0), 5, 8)), 3 * 512);
    cr_expect_eq(get_be64(parameter(log_sense(rig, 0x03, 0, 0), 6, 8)), 7);
    cr_expect_eq(get_be64(parameter(log_sense(rig, 0x05, 0, 0), 5, 8)), 8 * 512);
    rig_destroy(rig);
}

Test(scsi_log, time_served_and_what_is_not_known)
{
    struct rig *rig = rig_create(NULL);

    rig->t->loop.now_ns += 125ull * 1000000000;
    cr_expect_eq(get_be32(parameter(log_sense(rig, 0x15, 0, 0), 0, 12)), 2);
    cr_expect_arr_eq(parameter(log_sense(rig, 0x0d, 0, 0), 0, 2), ((uint8_t[]){0, 0xff}), 2);
    cr_expect_arr_eq(parameter(log_sense(rig, 0x0e, 0, 0), 1, 6), "      ", 6);
    cr_expect_arr_eq(parameter(log_sense(rig, 0x2f, 0, 0), 0, 4), ((uint8_t[]){0, 0, 0xff, 0}), 4);
    rig_destroy(rig);
}

/* --- how much of the medium is in use --- */

/* In turns of 1 MiB; or all, or in pieces of a block. */
static uint64_t piece;

static bool in_turns(struct blkdev *dev, uint64_t off, uint64_t len, uint64_t *extent)
{
    (void)dev;
    *extent = MIN(len, piece - off % piece);
    return off / piece % 2 == 0;
}

Test(scsi_log, resources_in_use_are_counted_or_not_told)
{
    struct rig *rig = rig_create(NULL);
    rig->ops.block_status = in_turns;
    piece = 1 * MIB;
    const struct rig_reply *reply = log_sense(rig, 0x0c, 0, 0);
    cr_expect_eq(reply->len, 4 + 2 * 12);
    cr_expect_arr_eq(reply->data + 4, ((uint8_t[]){0, 1, 3, 8, 0, 0, 0, 2, 1, 0, 0, 0}), 12);
    cr_expect_arr_eq(reply->data + 16, ((uint8_t[]){0, 2, 3, 8, 0, 0, 0, 2, 1, 0, 0, 0}), 12);
    rig->ops.block_status = NULL;
    cr_expect_eq(get_be32(parameter(log_sense(rig, 0x0c, 0, 0), 2, 8)), 4, "all of it");
    rig->ops.block_status = in_turns;
    piece = 512;
    cr_expect_eq(get_be32(parameter(log_sense(rig, 0x0c, 0, 0), 1, 8)), 2);
    rig_destroy(rig);
}

Test(scsi_log, resources_that_are_not_known_are_left_out)
{
    uint8_t page[LOG_PAGE_MAX];
    struct log_view view = {.mapped = 3, .available = 4};
    cr_expect_eq(log_page_build(page, &view, 0x0c, 0, 0), 4);
    view.mapping_known = true;
    cr_expect_eq(log_page_build(page, &view, 0x0c, 0, 0), 28);
    cr_expect_eq(log_page_build(page, &view, 0x0c, 0, 2), 16);
    cr_expect_eq(log_page_build(page, &view, 0x3f, 0, 0), 0);
}

/* --- constants --- */

Test(scsi_log, ports_functions_time_names_and_defects)
{
    static const struct {
        const char *name;
        uint32_t len;
        uint8_t cdb[SCSI_CDB_MAX], data[20];
    } cases[] = {
        {"port groups", 16, {0xa3, 0x0a, [8] = 1}, {0, 0, 0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1}},
        {"port groups, extended", 20, {0xa3, 0x2a, [8] = 1}, {0, 0, 0, 16, 0x10, 0, 0, 0, 0, 1,
                                                              0, 1, 0, 0,  0,    1, 0, 0, 0, 1}},
        {"port groups, cut", 5, {0xa3, 0x0a, [9] = 5}, {0, 0, 0, 12}},
        {"functions", 4, {0xa3, 0x0d, [9] = 4}, {0xda, 0, 0, 0}},
        {"functions, extended", 16, {0xa3, 0x0d, 0x80, [9] = 16}, {0xda, 0, 0, 12}},
        {"names", 4, {0xa3, 0x05, [8] = 1}, {0}},
        {"names that can be", 12, {0xa3, 0x05, [8] = 1, [10] = 0xfe}, {0, 0, 0, 8, 0, 0, 0, 0, 4}},
        {"defects", 4, {0x37, 0, 0x1d, [8] = 255}, {0, 0x1d}},
        {"defects 12", 8, {0xb7, 0x0d, [9] = 255}, {0, 0x0d}},
    };
    struct rig *rig = rig_create(NULL);
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        const struct rig_reply *reply = rig_do(rig, rig->a, cases[i].cdb, NULL, 0);
        cr_expect_eq(reply->len, cases[i].len, "%s: %u", cases[i].name, reply->len);
        cr_expect_arr_eq(reply->data, cases[i].data, cases[i].len, "%s", cases[i].name);
    }
    const struct rig_reply *reply = rig_do(rig, rig->a, CDB(0xa3, 0x0f, [9] = 12), NULL, 0);
    cr_expect_arr_eq(reply->data, ((uint8_t[]){0, 10, 3, 0}), 4);
    cr_expect_eq((uint64_t)get_be16(reply->data + 4) << 32 | get_be32(reply->data + 6),
                 loop_wall_clock_s(&rig->t->loop) * 1000);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0xa3, 0x4a, [8] = 1);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0xa3, 0x0d, [9] = 3);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0xa3, 0x05, [8] = 1, [10] = 2);
    rig_destroy(rig);
}

Test(scsi_log, the_self_test_of_a_failed_device_fails)
{
    struct rig *rig = rig_create(NULL);
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x1d, 4);
    blk_notify(&rig->disk->dev, BLK_EVENT_FAILED);
    EXPECT_OUTCOME(rig, rig->a, "4/3E/03", NULL, 0, 0x1d, 4);
    rig_destroy(rig);
}
