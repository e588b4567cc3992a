/* SANITIZE (SBC-3 5.29): the orders. What they set going is sanitize.c's. CRYPTOGRAPHIC ERASE there is none. */
#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/sanitize.h"
#include "target/scsi/task.h"

enum { CDB_IMMED = 0x80, CDB_AUSE = 0x20, HEADER = 4 };
enum { PHASE_ORDER, PHASE_ANSWER };

/* A header and a pattern, of a byte to a block. */
bool scsi_sanitize_parse(struct scsi_task *task)
{
    task->data_len = get_be16(task->cdb + 7);
    bool fits = task->data_len > HEADER && task->data_len <= HEADER + lu_block(task->lu);
    return fits || scsi_task_refuse_field(task, 7);
}

/* SBC-3 table 102. `list` is what came. */
static bool overwrite_read(const uint8_t *list, uint32_t len, uint32_t block, struct sanitize_order *order)
{
    enum { INVERT = 0x80, TEST = 0x60, COUNT = 0x1f };
    if (len <= HEADER)
        return false;
    order->invert = (list[0] & INVERT) != 0;
    order->passes = list[0] & COUNT;
    order->pattern = list + HEADER;
    order->pattern_len = get_be16(list + 2);
    return !(list[0] & TEST) && order->passes > 0 && order->pattern_len > 0 && order->pattern_len <= block &&
           order->pattern_len <= len - HEADER;
}

static void begin(struct scsi_task *task, struct sanitize_order *order)
{
    order->exit_allowed = (task->cdb[1] & CDB_AUSE) != 0;
    task->phase = PHASE_ANSWER;
    if (!scsi_sanitize_begin(task, order, (task->cdb[1] & CDB_IMMED) != 0))
        scsi_task_end(task, SCSI_BUSY);
}

/* It has begun, or is over, or could not begin. */
static void answer(struct scsi_task *task)
{
    const struct scsi_sense *failure = scsi_sanitize_failure(task->lu);
    if (failure != NULL)
        scsi_task_fail(task, failure);
    else
        scsi_task_end(task, SCSI_GOOD);
}

void scsi_sanitize_overwrite_run(struct scsi_task *task)
{
    uint8_t list[HEADER + PAGE_BYTES];
    struct sanitize_order order = {0};
    if (task->phase == PHASE_ANSWER)
        answer(task);
    else if (overwrite_read(list, scsi_task_list(task, list, sizeof list), lu_block(task->lu), &order))
        begin(task, &order);
    else
        scsi_task_fail(task, &sense_list_field);
}

void scsi_sanitize_erase_run(struct scsi_task *task)
{
    static const uint8_t zero;
    struct sanitize_order order = {.erase = true, .passes = 1, .pattern = &zero, .pattern_len = 1};
    if (task->phase == PHASE_ANSWER)
        answer(task);
    else
        begin(task, &order);
}

void scsi_sanitize_exit_run(struct scsi_task *task)
{
    if (task->phase++ == PHASE_ORDER && scsi_sanitize_exit(task))
        return;
    answer(task);
}
