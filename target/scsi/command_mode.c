/* MODE SENSE and MODE SELECT, 6 and 10 (SPC-4 6.9 to 6.12); the pages themselves are in mode_page.c. */
#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/task.h"
#include "target/scsi/threshold.h"

enum { CDB_DBD = 0x08, CDB_LLBAA = 0x10, CDB_PF = 0x10, CDB_SP = 0x01 };
enum { DEVICE_WP = 0x80, DEVICE_DPOFUA = 0x10, DESCRIPTOR_SHORT = 8, DESCRIPTOR_LONG = 16 };

static bool is_ten(const struct scsi_task *task)
{
    return task->command->cdb_len == 10;
}

static struct scsi_mode_view view_of(const struct scsi_lu *lu)
{
    return (struct scsi_mode_view){.mode = lu->mode,
                                   .as_created = scsi_mode_default(lu->options.soft_threshold),
                                   .write_cache = lu->dev->info.volatile_cache,
                                   .block_bytes = lu_block(lu),
                                   .blocks = lu_blocks(lu)};
}

static uint32_t put_pages(const struct scsi_task *task, uint8_t *out)
{
    struct scsi_mode_view view = view_of(task->lu);
    enum scsi_mode_control control = (enum scsi_mode_control)(task->cdb[2] >> 6);
    return scsi_mode_pages_build(out, &view, control, task->cdb[2] & 0x3f, task->cdb[3]);
}

bool scsi_mode_sense_parse(struct scsi_task *task)
{
    uint8_t pages[MODE_PAGES_MAX];
    if (task->cdb[2] >> 6 == MODE_SAVED)
        return scsi_task_refuse(task, &sense_not_saved);
    if (put_pages(task, pages) == 0)
        return scsi_task_refuse(task, &sense_cdb_field);
    return scsi_parse_reply(task);
}

/* SBC-3 6.5.2; a number of blocks that does not fit is told as all ones. */
static uint32_t put_descriptor(const struct scsi_task *task, uint8_t *out)
{
    uint64_t blocks = lu_blocks(task->lu);
    if (task->cdb[1] & CDB_DBD)
        return 0;
    if (is_ten(task) && (task->cdb[1] & CDB_LLBAA)) {
        put_be64(out, blocks);
        put_be32(out + 12, lu_block(task->lu));
        return DESCRIPTOR_LONG;
    }
    put_be32(out, (uint32_t)MIN(blocks, (uint64_t)UINT32_MAX));
    put_be24(out + 5, lu_block(task->lu));
    return DESCRIPTOR_SHORT;
}

void scsi_mode_sense_run(struct scsi_task *task)
{
    uint8_t data[8 + DESCRIPTOR_LONG + MODE_PAGES_MAX] = {0};
    uint32_t header = is_ten(task) ? 8 : 4;
    uint32_t descriptor = put_descriptor(task, data + header);
    uint32_t len = header + descriptor;
    len += put_pages(task, data + len);
    uint8_t device = (uint8_t)(DEVICE_DPOFUA | (scsi_task_read_only(task) ? DEVICE_WP : 0));
    if (is_ten(task)) {
        put_be16(data, (uint16_t)(len - 2));
        data[3] = device;
        data[4] = descriptor == DESCRIPTOR_LONG;
        put_be16(data + 6, (uint16_t)descriptor);
    } else {
        data[0] = (uint8_t)(len - 1);
        data[2] = device;
        data[3] = (uint8_t)descriptor;
    }
    scsi_task_reply(task, data, len);
}

/* Pages in the vendor's own format (PF = 0), and saving (SP = 1), are not supported. */
bool scsi_mode_select_check(struct scsi_task *task)
{
    if (!scsi_parse_list(task))
        return false;
    if (!(task->cdb[1] & CDB_PF) && task->data_len > 0)
        return scsi_task_refuse(task, &sense_cdb_field);
    return !(task->cdb[1] & CDB_SP) || scsi_task_refuse(task, &sense_not_saved);
}

void scsi_mode_select_run(struct scsi_task *task)
{
    uint8_t list[256]; /* all pages and a header are less: more repeats, or is wrong */
    struct scsi_mode mode;
    struct scsi_sense why = sense_list_length;
    struct scsi_mode_view view = view_of(task->lu);
    uint32_t len = scsi_task_list(task, list, sizeof list);
    if (len < task->data_len || !scsi_mode_select_parse(list, len, is_ten(task), &view, &mode, &why)) {
        scsi_task_fail(task, &why);
        return;
    }
    if (!scsi_mode_equal(&mode, &task->lu->mode))
        scsi_attention_raise(task->lu, ATTENTION_MODE_CHANGED, task->nexus);
    task->lu->mode = mode;
    scsi_threshold_set(task->lu->threshold);
    scsi_task_end(task, SCSI_GOOD);
}
