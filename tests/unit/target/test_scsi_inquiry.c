/* INQUIRY, VPD pages, capacity: byte by byte where values matter. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "core/bytes.h"
#include "target/scsi/lu.h"
#include "target/scsi/vpd.h"
#include "tests/unit/target/scsi_rig.h"

static const struct rig_reply *vpd(struct rig *rig, uint8_t page)
{
    return rig_do(rig, rig->a, CDB(0x12, 1, page, 0x02, 0x00), NULL, 0);
}

Test(scsi_inquiry, standard_data)
{
    struct rig *rig = rig_create(NULL);
    const struct rig_reply *reply = rig_do(rig, rig->a, CDB(0x12, 0, 0, 0, 255), NULL, 0);
    static const uint8_t head[8] = {0x00, 0x00, 0x06, 0x12, 91, 0x18, 0x10, 0x02};
    static const uint8_t versions[16] = {0x00, 0xa0, 0x09, 0x60, 0x04, 0x60, 0x04, 0xc0};
    cr_assert_eq(reply->status, SCSI_GOOD);
    cr_expect_eq(reply->direction, SCSI_DATA_IN);
    cr_expect_eq(reply->len, 96);
    cr_expect_eq(reply->data_len, 255);
    cr_expect_arr_eq(reply->data, head, 8);
    cr_expect_arr_eq(reply->data + 8, "CORBEL  Corbel volume   0.1.", 28);
    cr_expect_arr_eq(reply->data + 58, versions, 16);
    rig_destroy(rig);
}

Test(scsi_inquiry, allocation_length_cuts_the_data_and_not_the_fields)
{
    struct rig *rig = rig_create(NULL);
    for (uint8_t len = 0; len < 96; len++) {
        const struct rig_reply *reply = rig_do(rig, rig->a, CDB(0x12, 0, 0, 0, len), NULL, 0);
        cr_expect_eq(reply->status, SCSI_GOOD);
        cr_expect_eq(reply->len, len);
        cr_expect_eq(reply->direction, len == 0 ? SCSI_DATA_NONE : SCSI_DATA_IN);
        if (len > 4)
            cr_expect_eq(reply->data[4], 91, "not shortened by length %u", len);
    }
    rig_destroy(rig);
}

static const struct rig_reply *at_lun(struct rig *rig, const uint8_t *lun, const uint8_t *cdb)
{
    static struct rig_reply reply;
    struct rig_task *task = calloc(1, sizeof *task);
    task->task = (struct scsi_task){.nexus = rig->a};
    memcpy(task->task.lun, lun, 8);
    memcpy(task->task.cdb, cdb, SCSI_CDB_MAX);
    reply = (struct rig_reply){0};
    if (scsi_task_parse(&task->task))
        reply.status = SCSI_GOOD;
    else {
        reply = (struct rig_reply){.status = task->task.status,
                                   .key = task->task.sense[2],
                                   .asc = task->task.sense[12],
                                   .ascq = task->task.sense[13]};
    }
    free(task);
    return &reply;
}

Test(scsi_inquiry, luns_that_do_not_exist)
{
    struct rig *rig = rig_create(NULL);
    static const uint8_t luns[][8] = {{0, 1},       {0x40, 1}, {0xc1, 0x01},
                                      {0, 0, 0, 1}, {0x3f, 0}, {0, 0, 0, 0, 0, 0, 0, 1}};
    for (unsigned i = 0; i < sizeof luns / 8; i++) {
        cr_expect_null(scsi_nexus_lu(rig->a, luns[i]), "lun %u", i);
        cr_expect_str_eq(rig_outcome(at_lun(rig, luns[i], CDB(0x00))), "5/25/00", "lun %u", i);
        cr_expect_str_eq(rig_outcome(at_lun(rig, luns[i], CDB(0x28))), "5/25/00", "lun %u", i);
        cr_expect_str_eq(rig_outcome(at_lun(rig, luns[i], CDB(0xff))), "5/25/00", "lun %u", i);
        cr_expect_str_eq(rig_outcome(at_lun(rig, luns[i], CDB(0x12, 1, 0, 0, 4))), "5/25/00", "VPD of lun %u", i);
        cr_expect_str_eq(rig_outcome(at_lun(rig, luns[i], CDB(0x12, 0, 0, 0, 96))), "good", "lun %u", i);
        cr_expect_str_eq(rig_outcome(at_lun(rig, luns[i], CDB(0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0))), "good", "%u", i);
    }
    cr_expect_not_null(scsi_nexus_lu(rig->a, (const uint8_t[8]){0}));
    cr_expect_not_null(scsi_nexus_lu(rig->a, (const uint8_t[8]){0x40, 0}), "flat addressing");
    rig_destroy(rig);
}

static bool over;

static void mark_over(struct scsi_task *task)
{
    (void)task;
    over = true;
}

Test(scsi_inquiry, absent_lun_says_7f)
{
    struct rig *rig = rig_create(NULL);
    struct rig_task *task = calloc(1, sizeof *task);
    struct page *page;
    cr_assert(page_pool_get(rig->t->loop.pages, &page, 1));
    task->task = (struct scsi_task){.nexus = rig->a, .lun = {0, 9}, .cdb = {0x12, 0, 0, 0, 36}, .pages = &page};
    cr_assert(scsi_task_parse(&task->task));
    over = false;
    task->task.done = mark_over;
    scsi_task_run(&task->task);
    cr_assert(testloop_run_until(rig->t, &over));
    cr_expect_eq(task->task.status, SCSI_GOOD);
    cr_expect_eq(task->task.result_len, 36);
    cr_expect_eq(((uint8_t *)page->data)[0], 0x7f);
    page_put(page);
    free(task);
    rig_destroy(rig);
}

Test(scsi_inquiry, page_code_without_evpd_and_unknown_pages_are_refused)
{
    struct rig *rig = rig_create(NULL);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0x12, 0, 0x80, 0, 96);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0x12, 1, 0x81, 0, 96);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0x12, 1, 0xff, 0, 96);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0x12, 2, 0, 0, 96);
    rig_destroy(rig);
}

Test(scsi_inquiry, list_of_pages_is_ascending_and_each_is_there)
{
    struct rig *rig = rig_create(NULL);
    uint8_t list[16];
    uint32_t count = vpd(rig, 0)->data[3];
    memcpy(list, vpd(rig, 0)->data + 4, count);
    cr_expect_arr_eq(list, ((uint8_t[]){0x00, 0x80, 0x83, 0x85, 0x86, 0x87, 0x88, 0x8f, 0xb0, 0xb1, 0xb2}), 11);
    cr_expect_eq(count, 11);
    for (uint32_t i = 0; i < count; i++) {
        const struct rig_reply *reply = vpd(rig, list[i]);
        cr_expect_eq(reply->status, SCSI_GOOD);
        cr_expect_eq(reply->data[0], 0);
        cr_expect_eq(reply->data[1], list[i]);
        cr_expect_eq(reply->len, 4u + get_be16(reply->data + 2));
    }
    rig_destroy(rig);
}

Test(scsi_inquiry, serial_number_and_designators)
{
    struct rig *rig = rig_create(NULL);
    const struct rig_reply *reply = vpd(rig, 0x80);
    cr_expect_eq(reply->data[3], 36);
    cr_expect_arr_eq(reply->data + 4, "0c9b54a1-5b0e-4b0f-9a48-6a4b39a8fd01", 36);

    static const uint8_t naa[] = {0x01, 0x03, 0x00, 0x10, 0x60, 0x61, 0x62, 0x63, 0x64, 0x65,
                                  0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f};
    static const uint8_t port[] = {0x51, 0x94, 0, 4, 0, 0, 0, 1, 0x51, 0x95, 0, 4, 0, 0, 0, 1, 0x53, 0x98, 0, 36};
    reply = vpd(rig, 0x83);
    const uint8_t *at = reply->data + 4;
    cr_expect_arr_eq(at, naa, 20);
    cr_expect_arr_eq(at + 20, ((uint8_t[]){0x02, 0x01, 0x00, 44}), 4);
    cr_expect_arr_eq(at + 24, "CORBEL  0c9b54a1-", 17);
    cr_expect_arr_eq(at + 68, port, 20);
    cr_expect_str_eq((const char *)at + 88, "iqn.2026-11.org.example:t,t,0x0001");
    cr_expect_arr_eq(at + 124, ((uint8_t[]){0x53, 0xa8, 0, 28}), 4);
    cr_expect_str_eq((const char *)at + 128, "iqn.2026-11.org.example:t");
    cr_expect_eq(reply->len, 4 + 128 + 28);
    rig_destroy(rig);
}

Test(scsi_inquiry, block_limits)
{
    struct rig *rig = rig_create(NULL);
    const struct rig_reply *reply = vpd(rig, 0xb0);
    cr_expect_eq(get_be16(reply->data + 2), 0x3c);
    cr_expect_eq(reply->len, 64);
    cr_expect_eq(reply->data[4], 1, "WSNZ");
    cr_expect_eq(reply->data[5], 255, "MAXIMUM COMPARE AND WRITE LENGTH");
    cr_expect_eq(get_be16(reply->data + 6), 8, "granularity 4 KiB");
    cr_expect_eq(get_be32(reply->data + 8), 16384, "8 MiB at most");
    cr_expect_eq(get_be32(reply->data + 12), 512, "a row of 256 KiB");
    cr_expect_eq(get_be32(reply->data + 20), 1048576, "UNMAP: 512 MiB");
    cr_expect_eq(get_be32(reply->data + 24), 256);
    cr_expect_eq(get_be32(reply->data + 28), 8);
    cr_expect_eq(get_be32(reply->data + 32), 0x80000000u);
    cr_expect_eq(get_be64(reply->data + 36), 32768, "WRITE SAME: 16 MiB");
    for (unsigned i = 44; i < 64; i++)
        cr_expect_eq(reply->data[i], 0);
    rig_destroy(rig);
}

Test(scsi_inquiry, provisioning_tells_what_the_device_does)
{
    struct rig *rig = rig_create(NULL);
    cr_expect_arr_eq(vpd(rig, 0xb2)->data, ((uint8_t[]){0, 0xb2, 0, 4, 11 /* units of 1 MiB */, 0xe4, 2, 0}), 8);
    rig->disk->dev.info.discard_zeroes = false;
    cr_expect_arr_eq(vpd(rig, 0xb2)->data, ((uint8_t[]){0, 0xb2, 0, 4, 11, 0xe0, 2, 0}), 8);
    rig->disk->dev.info.discards = false;
    cr_expect_arr_eq(vpd(rig, 0xb2)->data, ((uint8_t[]){0, 0xb2, 0, 4, 0, 0, 0, 0}), 8);
    cr_expect_eq(get_be32(vpd(rig, 0xb0)->data + 20), 0, "no UNMAP count");
    cr_expect_eq(get_be32(vpd(rig, 0xb0)->data + 24), 0, "no UNMAP descriptors");
    EXPECT_OUTCOME(rig, rig->a, "5/20/00", NULL, 0, 0x42);
    rig_destroy(rig);
}

Test(scsi_inquiry, characteristics_and_extended_data)
{
    struct rig *rig = rig_create(NULL);
    cr_expect_arr_eq(vpd(rig, 0xb1)->data, ((uint8_t[]){0, 0xb1, 0, 0x3c, 0, 1}), 6);
    rig->disk->dev.info.rotational = true;
    cr_expect_arr_eq(vpd(rig, 0xb1)->data, ((uint8_t[]){0, 0xb1, 0, 0x3c, 0, 0}), 6);
    cr_expect_arr_eq(vpd(rig, 0x86)->data, ((uint8_t[]){0, 0x86, 0, 0x3c, 0, 0x01, 0x01}), 7);
    rig->disk->dev.info.volatile_cache = false;
    cr_expect_eq(vpd(rig, 0x86)->data[6], 0, "V_SUP follows the cache");
    rig_destroy(rig);
}

Test(scsi_inquiry, capacity)
{
    struct rig *rig = rig_create(NULL);
    const struct rig_reply *reply = rig_do(rig, rig->a, CDB(0x25), NULL, 0);
    cr_expect_eq(reply->len, 8);
    cr_expect_eq(get_be32(reply->data), RIG_DISK_BYTES / 512 - 1);
    cr_expect_eq(get_be32(reply->data + 4), 512);
    reply = rig_do(rig, rig->a, CDB(0x9e, 0x10, [13] = 32), NULL, 0);
    cr_expect_eq(reply->len, 32);
    cr_expect_eq(get_be64(reply->data), RIG_DISK_BYTES / 512 - 1);
    cr_expect_eq(get_be32(reply->data + 8), 512);
    cr_expect_arr_eq(reply->data + 12, ((uint8_t[]){0, 3, 0xc0, 0}), 4, "LBPPBE 3, LBPME, LBPRZ");
    cr_expect_eq(rig_do(rig, rig->a, CDB(0x9e, 0x10, [13] = 12), NULL, 0)->len, 12);
    uint64_t size = rig->disk->dev.info.size;
    rig->disk->dev.info.size = 4ull << 40;
    cr_expect_eq(get_be32(rig_do(rig, rig->a, CDB(0x25), NULL, 0)->data), UINT32_MAX, "too large for 32 bits");
    cr_expect_eq(get_be64(rig_do(rig, rig->a, CDB(0x9e, 0x10, [13] = 32), NULL, 0)->data), (4ull << 31) - 1);
    rig->disk->dev.info.size = size;
    rig_destroy(rig);
}

Test(scsi_inquiry, the_longest_target_name_fits_the_identification_page)
{
    struct testloop *t = testloop_create(64, 1);
    struct memdisk *disk = memdisk_create(&t->loop, "disk", 1 << 20, 512);
    char name[224] = "iqn.2026-11.org.example:";
    memset(name + strlen(name), 'n', 223 - strlen(name));
    struct scsi_target *target = scsi_target_create(&t->loop, name);
    struct scsi_lu_options options = {.dev = &disk->dev, .serial = "0c9b54a1-5b0e-4b0f-9a48-6a4b39a8fd01"};
    cr_assert_eq(scsi_target_add_lun(target, 0, &options), 0);
    uint8_t page[VPD_BYTES_MAX];
    cr_expect_eq(scsi_vpd_build(page, target->lus[0], 0x83), 4 + 84 + 4 + 236 + 4 + 224);
    cr_expect_eq(get_be16(page + 2), 552);
    cr_expect_arr_eq(page + 4 + 84, ((uint8_t[]){0x53, 0x98, 0, 236}), 4);
    cr_expect_arr_eq(page + 4 + 84 + 4, name, 223);
    cr_expect_str_eq((char *)page + 4 + 84 + 4 + 223, ",t,0x0001");
    scsi_target_destroy(target);
    test_close(t, &disk->dev);
    testloop_destroy(t);
}

Test(scsi_inquiry, management_policy_and_ports)
{
    struct rig *rig = rig_create(NULL);
    cr_expect_arr_eq(vpd(rig, 0x85)->data, ((uint8_t[]){0, 0x85, 0, 0}), 4);
    cr_expect_arr_eq(vpd(rig, 0x87)->data, ((uint8_t[]){0, 0x87, 0, 4, 0x3f, 0xff, 0, 0}), 8);
    const struct rig_reply *reply = vpd(rig, 0x88);
    static const uint8_t head[20] = {0, 0x88, 0, 52, 0, 0, 0, 1, [15] = 40, 0x53, 0x98, 0, 36};
    cr_expect_eq(reply->len, 56);
    cr_expect_arr_eq(reply->data, head, 20);
    cr_expect_str_eq((const char *)reply->data + 20, "iqn.2026-11.org.example:t,t,0x0001");
    rig_destroy(rig);
}

Test(scsi_inquiry, that_blocks_are_larger_beneath_can_be_hidden)
{
    for (unsigned hidden = 0; hidden < 2; hidden++) {
        struct rig *rig = rig_create(&(struct rig_options){.hide_physical = hidden == 1});
        cr_expect_eq(rig_do(rig, rig->a, CDB(0x9e, 0x10, [13] = 32), NULL, 0)->data[13], hidden ? 0 : 3);
        rig_destroy(rig);
    }
}
