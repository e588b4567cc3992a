/*
 * LOG SENSE (SPC-4 6.7); the pages themselves are in log_page.c.
 *
 * The page of logical block provisioning tells how much of the medium is in use: the device is asked range by range
 * first, which is cheap, but not for ever. If it is in too many pieces, the page tells nothing.
 */
#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/log_page.h"
#include "target/scsi/task.h"

enum { PAGE_PROVISIONING = 0x0c, CUMULATIVE = 1, PIECES_MAX = 65536, LOG_PARAMETER_MAX = 0x14 };

static uint8_t page_of(const struct scsi_task *task)
{
    return task->cdb[2] & 0x3f;
}

static struct log_view view_of(const struct scsi_task *task)
{
    const struct scsi_lu *lu = task->lu;
    uint64_t now_ns = loop_now_ns(lu->target->loop);
    return (struct log_view){.counters = lu->counters,
                             .block_bytes = lu_block(lu),
                             .read_errors = lu->dev->counters.errors[BLK_READ],
                             .write_errors = lu->dev->counters.errors[BLK_WRITE],
                             .served_minutes = (now_ns - lu->served_ns) / (60 * 1000000000ull)};
}

bool scsi_log_sense_parse(struct scsi_task *task)
{
    uint8_t page[LOG_PAGE_MAX];
    struct log_view view = view_of(task);
    bool known = log_page_build(page, &view, page_of(task), task->cdb[3], 0) > 0;
    if (!known || task->cdb[2] >> 6 != CUMULATIVE || get_be16(task->cdb + 5) > LOG_PARAMETER_MAX)
        return scsi_task_refuse(task, &sense_cdb_field);
    return scsi_parse_reply(task);
}

/* The next question about what is in use; false: the last answer is in. task->blocks: bytes that are. */
static bool ask_mapping(struct scsi_task *task)
{
    struct scsi_lu *lu = task->lu;
    if (task->count > 0) {
        task->blocks += task->req.written ? task->req.extent : 0;
        task->position += task->req.extent;
    }
    if (task->position >= lu->dev->info.size || task->count == PIECES_MAX)
        return false;
    task->count++;
    scsi_task_submit(task, BLK_STATUS, 0, task->position, lu->dev->info.size - task->position, NULL);
    return true;
}

void scsi_log_sense_run(struct scsi_task *task)
{
    uint8_t page[LOG_PAGE_MAX];
    struct log_view view = view_of(task);
    if (page_of(task) == PAGE_PROVISIONING && ask_mapping(task))
        return;
    uint64_t size = task->lu->dev->info.size;
    view.mapping_known = task->position >= size;
    view.mapped = (task->blocks + LOG_MAPPING_UNIT - 1) / LOG_MAPPING_UNIT;
    view.available = (size - MIN(size, task->blocks)) / LOG_MAPPING_UNIT;
    uint32_t len = log_page_build(page, &view, page_of(task), task->cdb[3], get_be16(task->cdb + 5));
    scsi_task_reply(task, page, len);
}
