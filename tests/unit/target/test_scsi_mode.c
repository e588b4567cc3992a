/* Mode pages, MODE SENSE and MODE SELECT, and what the two changeable bits do. */
#include <criterion/criterion.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/mode_page.h"
#include "tests/unit/target/scsi_rig.h"

enum { PC_CHANGEABLE = 0x40, PC_DEFAULT = 0x80, PC_SAVED = 0xc0, DBD = 0x08, LLBAA = 0x10 };

static const uint8_t caching[20] = {0x08, 18, 0x04};
static const uint8_t control[12] = {0x0a, 10, 0x02, 0x10, 0, 0x40, 0, 0, 0xff, 0xff};
static const uint8_t control_extension[32] = {0x4a, 1, 0, 28};
static const uint8_t exceptions[12] = {0x1c, 10, 0, 6};
static const uint8_t errors[12] = {0x01, 10, 0xc0, [7] = 0x80 /* LBPERE */};
static const uint8_t power[40] = {0x1a, 38};
/* A threshold of percent in use, armed increasing, which is not enabled. */
static const uint8_t provisioning[24] = {0x5c, 2, 0, 20, [16] = 0x09, 0x02};

static const struct rig_reply *sense6(struct rig *rig, uint8_t flags, uint8_t page, uint8_t subpage)
{
    return rig_do(rig, rig->a, CDB(0x1a, flags, page, subpage, 255), NULL, 0);
}

Test(scsi_mode, each_page_as_it_is)
{
    struct rig *rig = rig_create(NULL);
    static const struct {
        uint8_t page, subpage, len;
        const uint8_t *bytes;
    } cases[] = {{0x01, 0, 12, errors},      {0x08, 0, 20, caching},           {0x0a, 0, 12, control},
                 {0x1a, 0, 40, power},       {0x0a, 1, 32, control_extension}, {0x1c, 0, 12, exceptions},
                 {0x1c, 2, 24, provisioning}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        const struct rig_reply *reply = sense6(rig, DBD, cases[i].page, cases[i].subpage);
        cr_expect_eq(reply->len, 4u + cases[i].len);
        cr_expect_arr_eq(reply->data, ((uint8_t[]){(uint8_t)(3 + cases[i].len), 0, 0x10, 0}), 4, "page %u", i);
        cr_expect_arr_eq(reply->data + 4, cases[i].bytes, cases[i].len, "page %u", i);
    }
    rig_destroy(rig);
}

Test(scsi_mode, all_pages_in_order_with_and_without_subpages)
{
    struct rig *rig = rig_create(NULL);
    const struct rig_reply *reply = sense6(rig, DBD, 0x3f, 0);
    cr_expect_eq(reply->len, 4 + 12 + 20 + 12 + 40 + 12);
    cr_expect_arr_eq(reply->data + 4, errors, 12);
    cr_expect_arr_eq(reply->data + 16, caching, 20);
    cr_expect_arr_eq(reply->data + 36, control, 12);
    cr_expect_arr_eq(reply->data + 48, power, 40);
    cr_expect_arr_eq(reply->data + 88, exceptions, 12);
    reply = sense6(rig, DBD, 0x3f, 0xff);
    cr_expect_eq(reply->len, 4 + 12 + 20 + 12 + 32 + 40 + 12 + 24);
    cr_expect_arr_eq(reply->data + 48, control_extension, 32);
    cr_expect_arr_eq(reply->data + 132, provisioning, 24);
    reply = sense6(rig, DBD, 0x0a, 0xff);
    cr_expect_eq(reply->len, 4 + 12 + 32);
    cr_expect_eq(rig_do(rig, rig->a, CDB(0x1a, 0, 0x3f, 0, 7), NULL, 0)->len, 7, "allocation length");
    cr_expect_eq(rig_do(rig, rig->a, CDB(0x1a, 0, 0x3f, 0, 7), NULL, 0)->data[0], 107, "and the field is whole");
    rig_destroy(rig);
}

Test(scsi_mode, headers_and_block_descriptors)
{
    struct rig *rig = rig_create(NULL);
    const uint32_t blocks = RIG_DISK_BYTES / 512;
    const struct rig_reply *reply = sense6(rig, 0, 0x1c, 0);
    cr_expect_arr_eq(reply->data, ((uint8_t[]){23, 0, 0x10, 8}), 4);
    cr_expect_eq(get_be32(reply->data + 4), blocks);
    cr_expect_eq(get_be32(reply->data + 8), 512);
    reply = rig_do(rig, rig->a, CDB(0x5a, 0, 0x1c, [8] = 255), NULL, 0);
    cr_expect_arr_eq(reply->data, ((uint8_t[]){0, 26, 0, 0x10, 0, 0, 0, 8}), 8);
    cr_expect_eq(get_be32(reply->data + 8), blocks);
    reply = rig_do(rig, rig->a, CDB(0x5a, LLBAA, 0x1c, [8] = 255), NULL, 0);
    cr_expect_arr_eq(reply->data, ((uint8_t[]){0, 34, 0, 0x10, 1, 0, 0, 16}), 8);
    cr_expect_eq(get_be64(reply->data + 8), blocks);
    cr_expect_eq(get_be32(reply->data + 20), 512);
    cr_expect_arr_eq(reply->data + 24, exceptions, 12);
    rig_destroy(rig);
}

Test(scsi_mode, changeable_default_and_saved)
{
    struct rig *rig = rig_create(NULL);
    static const uint8_t mask[12] = {0x0a, 10, 0x04, 0, 0x08};
    static const uint8_t nothing[20] = {0x08, 18};
    cr_expect_arr_eq(sense6(rig, DBD, PC_CHANGEABLE | 0x0a, 0)->data + 4, mask, 12);
    cr_expect_arr_eq(sense6(rig, DBD, PC_CHANGEABLE | 0x08, 0)->data + 4, nothing, 20);
    cr_expect_arr_eq(sense6(rig, DBD, PC_DEFAULT | 0x0a, 0)->data + 4, control, 12);
    static const uint8_t threshold[24] = {0x5c, 2, 0, 20, [16] = 0x88, [20] = 0xff, 0xff, 0xff, 0xff};
    cr_expect_arr_eq(sense6(rig, DBD, PC_CHANGEABLE | 0x1c, 2)->data + 4, threshold, 24);
    cr_expect_arr_eq(sense6(rig, DBD, PC_DEFAULT | 0x1c, 2)->data + 4, provisioning, 24);
    cr_expect_str_eq(rig_outcome(sense6(rig, DBD, PC_SAVED | 0x3f, 0)), "5/39/00");
    rig_destroy(rig);
}

Test(scsi_mode, pages_that_do_not_exist)
{
    struct rig *rig = rig_create(NULL);
    static const uint8_t pages[][2] = {{0x00, 0}, {0x02, 0}, {0x0a, 2}, {0x08, 1}, {0x3f, 1}, {0x3e, 0}};
    for (unsigned i = 0; i < ARRAY_LENGTH(pages); i++)
        cr_expect_str_eq(rig_outcome(sense6(rig, DBD, pages[i][0], pages[i][1])), "5/24/00", "page %u", i);
    rig_destroy(rig);
}

Test(scsi_mode, write_cache_and_write_protection_are_the_truth)
{
    struct rig *rig = rig_create(NULL);
    cr_expect_eq(sense6(rig, DBD, 8, 0)->data[6], 0x04);
    rig->disk->dev.info.volatile_cache = false;
    cr_expect_eq(sense6(rig, DBD, 8, 0)->data[6], 0x00);
    rig->disk->dev.info.read_only = true;
    cr_expect_eq(sense6(rig, DBD, 8, 0)->data[2], 0x90, "WP, DPOFUA");
    rig_destroy(rig);
}

/* --- MODE SELECT --- */

/* Header of 4, control page. */
static uint32_t put_control6(uint8_t *list, uint8_t d_sense, uint8_t swp)
{
    memset(list, 0, 4);
    memcpy(list + 4, control, 12);
    list[6] |= d_sense;
    list[8] |= swp;
    return 16;
}

static const char *select6(struct rig *rig, struct scsi_nexus *nexus, uint8_t d_sense, uint8_t swp)
{
    uint8_t list[16];
    uint32_t len = put_control6(list, d_sense, swp);
    return rig_outcome(rig_do(rig, nexus, CDB(0x15, 0x10, 0, 0, (uint8_t)len), list, len));
}

Test(scsi_mode, swp_protects_and_the_other_nexus_is_told)
{
    struct rig *rig = rig_create(NULL);
    uint8_t block[512] = {1};
    cr_expect_str_eq(select6(rig, rig->a, 0, 0x08), "good");
    EXPECT_OUTCOME(rig, rig->a, "7/27/02", block, 512, 0x2a, [8] = 1);
    cr_expect_eq(sense6(rig, DBD, 0x0a, 0)->data[8], 0x08);
    cr_expect_eq(sense6(rig, DBD, 0x0a, 0)->data[2], 0x90, "WP");
    cr_expect_eq(sense6(rig, DBD, PC_DEFAULT | 0x0a, 0)->data[8], 0, "default stays");
    EXPECT_OUTCOME(rig, rig->b, "6/2A/01", NULL, 0, 0x00);
    EXPECT_OUTCOME(rig, rig->b, "good", NULL, 0, 0x00);
    cr_expect_str_eq(select6(rig, rig->b, 0, 0), "good");
    EXPECT_OUTCOME(rig, rig->a, "6/2A/01", NULL, 0, 0x00);
    EXPECT_OUTCOME(rig, rig->a, "good", block, 512, 0x2a, [8] = 1);
    cr_expect_str_eq(select6(rig, rig->a, 0, 0), "good");
    EXPECT_OUTCOME(rig, rig->b, "good", NULL, 0, 0x00); /* nothing changed, nothing told */
    rig_destroy(rig);
}

Test(scsi_mode, d_sense_turns_sense_to_descriptors_until_a_reset)
{
    struct rig *rig = rig_create(NULL);
    static const uint8_t lun[8] = {0};
    cr_expect_str_eq(select6(rig, rig->a, 0x04, 0), "good");
    struct rig_task *task = rig_start(rig, rig->a, CDB(0xff), NULL, 0);
    cr_expect_arr_eq(task->task.sense, ((uint8_t[]){0x72, 5, 0x20, 0, 0, 0, 0, 0}), 8);
    cr_expect_eq(task->task.sense_len, 8);
    rig_end(task);
    rig->fail = true;
    rig->fail_op = BLK_READ;
    rig->fail_status = BLK_MEDIA;
    rig->fail_off = 512;
    const struct rig_reply *reply = rig_do(rig, rig->a, CDB(0x28, [8] = 4), NULL, 0);
    cr_expect_str_eq(rig_outcome(reply), "3/11/00");
    cr_expect_eq(reply->information, 1);
    scsi_lun_reset(rig->target, lun);
    task = rig_start(rig, rig->a, CDB(0x00), NULL, 0);
    cr_expect_arr_eq(task->task.sense, ((uint8_t[]){0x70, 0, 6, 0, 0, 0, 0, 10}), 8);
    cr_expect_eq(task->task.sense_len, 18);
    rig_end(task);
    rig_destroy(rig);
}

Test(scsi_mode, select10_with_a_block_descriptor_and_several_pages)
{
    struct rig *rig = rig_create(NULL);
    uint8_t list[8 + 8 + 20 + 12] = {[7] = 8};
    put_be32(list + 8, RIG_DISK_BYTES / 512);
    put_be24(list + 13, 512);
    memcpy(list + 16, caching, 20);
    memcpy(list + 36, control, 12);
    list[38] |= 0x04;
    EXPECT_OUTCOME(rig, rig->a, "good", list, sizeof list, 0x55, 0x10, [8] = sizeof list);
    cr_expect_eq(sense6(rig, DBD, 0x0a, 0)->data[6], 0x06, "D_SENSE, GLTSD");
    rig_destroy(rig);
}

Test(scsi_mode, select_refusals_in_the_cdb)
{
    struct rig *rig = rig_create(NULL);
    uint8_t list[16];
    put_control6(list, 0, 0x08);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", list, 16, 0x15, 0x00, 0, 0, 16); /* PF 0 */
    EXPECT_OUTCOME(rig, rig->a, "5/39/00", list, 16, 0x15, 0x11, 0, 0, 16); /* SP 1 */
    EXPECT_OUTCOME(rig, rig->a, "5/1A/00", list, 10, 0x15, 0x10, 0, 0, 16); /* the transport brought less */
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x15, 0x10, 0, 0, 0);      /* no list */
    cr_expect_eq(sense6(rig, DBD, 0x0a, 0)->data[8], 0, "nothing was taken over");
    rig_destroy(rig);
}

Test(scsi_mode, select_lists_that_are_malformed)
{
    static const struct scsi_mode_view view = {.write_cache = true, .block_bytes = 512, .blocks = 1000};
    static const struct {
        const char *what;
        bool ten;
        uint32_t len;
        uint8_t list[60];
        uint8_t asc; /* 0: it is well formed */
    } cases[] = {
        {"nothing", false, 0, {0}, 0},
        {"part of a header", false, 3, {0}, 0x1a},
        {"part of a header of 8", true, 7, {0}, 0x1a},
        {"a header alone", false, 4, {0}, 0},
        {"a descriptor that is not there", false, 4, {[3] = 8}, 0x1a},
        {"a descriptor of 7 bytes", false, 12, {[3] = 7}, 0x26},
        {"a long descriptor in (6)", false, 20, {[3] = 16}, 0x26},
        {"a long descriptor without LONGLBA", true, 24, {[7] = 16}, 0x26},
        {"a long descriptor", true, 24, {[4] = 1, [7] = 16, [14] = 0x03, [15] = 0xe8, [22] = 2}, 0},
        {"a descriptor of zeroes", false, 12, {[3] = 8}, 0},
        {"another block size", false, 12, {[3] = 8, [10] = 0x10}, 0x26},
        {"another capacity", false, 12, {[3] = 8, [7] = 9}, 0x26},
        {"descriptor length of 65535", true, 24, {[6] = 0xff, [7] = 0xff}, 0x26},
        {"an unknown page", false, 8, {[4] = 0x01, 2}, 0x26},
        {"a page cut off", false, 8, {[4] = 0x0a, 10, 0x02, 0x10}, 0x1a},
        {"a page cut off in its header", false, 6, {[4] = 0x0a, 10}, 0x1a},
        {"a page of another length", false, 16, {[4] = 0x0a, 9, 0x02, 0x10, [12] = 0xff, 0xff}, 0x26},
        {"a subpage that does not exist", false, 36, {[4] = 0x4a, 2, 0, 28}, 0x26},
        {"a subpage", false, 36, {[4] = 0x4a, 1, 0, 28}, 0},
        {"a bit that cannot be changed", false, 16, {[4] = 0x0a, 10, 0x03, 0x10, 0, 0x40, [12] = 0xff, 0xff}, 0x26},
        {"WCE off", false, 24, {[4] = 0x08, 18}, 0x26},
        {"WCE on", false, 24, {[4] = 0x08, 18, 4}, 0},
        {"both bits", false, 16, {[4] = 0x0a, 10, 0x06, 0x10, 0x08, 0x40, [12] = 0xff, 0xff}, 0},
        {"thresholds that are not told", false, 16, {[4] = 0x01, 10, 0xc0}, 0},
        {"LBPERE", false, 16, {[4] = 0x01, 10, 0xc0, [11] = 0x80}, 0},
        {"no AWRE", false, 16, {[4] = 0x01, 10, 0x40}, 0x26},
        {"80 percent", false, 28, {[4] = 0x5c, 2, 0, 20, [20] = 0x89, 2, [27] = 80}, 0},
        {"100 percent", false, 28, {[4] = 0x5c, 2, 0, 20, [20] = 0x89, 2, [27] = 100}, 0},
        {"101 percent", false, 28, {[4] = 0x5c, 2, 0, 20, [20] = 0x89, 2, [27] = 101}, 0x26},
        {"101 units", false, 28, {[4] = 0x5c, 2, 0, 20, [20] = 0x81, 2, [27] = 101}, 0},
        {"a threshold of another type", false, 28, {[4] = 0x5c, 2, 0, 20, [20] = 0x91, 2}, 0x26},
        {"a decreasing threshold", false, 28, {[4] = 0x5c, 2, 0, 20, [20] = 0x80, 2}, 0x26},
        {"of what is available", false, 28, {[4] = 0x5c, 2, 0, 20, [20] = 0x81, 1}, 0x26},
        {"no threshold descriptor", false, 20, {[4] = 0x5c, 2, 0, 12}, 0x26},
        {"SITUA", false, 28, {[4] = 0x5c, 2, 0, 20, [8] = 1, [20] = 0x01, 2}, 0x26},
        {"good, then bad",
         false,
         20,
         {[4] = 0x0a, 10, 0x06, 0x10, 0x08, 0x40, [12] = 0xff, 0xff, [16] = 0x08, 18},
         0x1a},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct scsi_mode mode = {0};
        struct scsi_sense why = {0};
        bool ok = scsi_mode_select_parse(cases[i].list, cases[i].len, cases[i].ten, &view, &mode, &why);
        cr_expect_eq(ok, cases[i].asc == 0, "%s", cases[i].what);
        cr_expect_eq(why.asc, cases[i].asc, "%s: %02x", cases[i].what, why.asc);
        cr_expect_eq(why.key, cases[i].asc == 0 ? 0 : 5, "%s", cases[i].what);
    }
}
