/*
 * The life of a task: see task.h. Also the checks that come before any command (SAM-5 5.13, SPC-4 4.3): does the LU
 * exist, is a unit attention pending, is the LU reserved by another nexus, are reserved bits of the CDB set.
 */
#include "target/scsi/task.h"

#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/copy_result.h"
#include "target/scsi/order.h"
#include "target/scsi/rod_token.h"
#include "target/scsi/sanitize.h"
#include "target/scsi/scratch.h"
#include "target/scsi/threshold.h"

/* --- status and sense --- */

static void set_sense(struct scsi_task *task, const struct scsi_sense *sense)
{
    bool descriptor = task->lu != NULL && task->lu->mode.descriptor_sense;
    task->status = SCSI_CHECK_CONDITION;
    task->sense_len = scsi_sense_build(task->sense, sense, descriptor);
    task->result_len = 0;
}

bool scsi_task_refuse(struct scsi_task *task, const struct scsi_sense *sense)
{
    set_sense(task, sense);
    return false;
}

bool scsi_task_refuse_field(struct scsi_task *task, unsigned byte)
{
    struct scsi_sense sense = sense_cdb_field;
    sense.cdb_byte = (uint8_t)byte;
    return scsi_task_refuse(task, &sense);
}

void scsi_task_set_sense(struct scsi_task *task, uint8_t key, uint8_t asc, uint8_t ascq)
{
    struct scsi_sense sense = {.key = key, .asc = asc, .ascq = ascq};
    set_sense(task, &sense);
}

/* --- parse --- */

static void task_reset(struct scsi_task *task)
{
    task->direction = SCSI_DATA_NONE;
    task->data_len = task->page_off = task->result_len = task->step = 0;
    task->status = SCSI_GOOD;
    task->sense_len = task->phase = 0;
    task->lba = task->blocks = task->position = task->count = 0;
    task->until = task->moved = task->move = 0;
    task->copy = NULL;
    task->waiting_on = NULL;
    task->running = task->aborted = false;
    task->req.dev = NULL;
    task->finish.queued = false;
}

/* Bits the usage map of the command does not name must be zero; of the CONTROL byte only NACA counts. The first byte
 * where one is not; 0: there is none. */
static unsigned reserved_bits_set(const struct scsi_task *task)
{
    const struct scsi_command *command = task->command;
    for (unsigned i = 1; i < command->cdb_len; i++) {
        uint8_t allowed = i == command->cdb_len - 1u ? (uint8_t)~CDB_CONTROL_NACA : command->usage[i];
        if (i == 1 && command->has_action)
            allowed |= CDB_ACTION_MASK;
        if (task->cdb[i] & ~allowed)
            return i;
    }
    return 0;
}

/* To allow the medium to be removed again: SBC-3 4.17. */
static bool allows_removal(const struct scsi_task *task)
{
    return task->command->opcode == OPCODE_PREVENT_ALLOW && !(task->cdb[4] & CDB_PREVENT);
}

static bool reserved_by_other(const struct scsi_task *task)
{
    const struct scsi_nexus *holder = task->lu->reserved_by;
    if (holder != NULL && (task->command->flags & COMMAND_PERSISTENT))
        return true;
    return holder != NULL && holder != task->nexus && !(task->command->flags & COMMAND_ANY_RESERVATION) &&
           !allows_removal(task);
}

/* START STOP UNIT that only starts is harmless: SBC-3 4.17. */
static enum persist_class persist_class(const struct scsi_task *task)
{
    const struct scsi_command *command = task->command;
    bool starts = command->opcode == OPCODE_START_STOP && (task->cdb[4] & CDB_START);
    if ((command->flags & COMMAND_HARMLESS) || starts || allows_removal(task))
        return PERSIST_HARMLESS;
    return command->flags & COMMAND_READS ? PERSIST_READS : PERSIST_CHANGES;
}

bool scsi_lu_forbids(const struct scsi_lu *lu, const struct scsi_nexus *nexus, enum persist_class class)
{
    return (lu->reserved_by != NULL && lu->reserved_by != nexus) ||
           reservations_forbid(lu->persist, nexus->port_name, class);
}

static bool reservation_conflict(const struct scsi_task *task)
{
    return reserved_by_other(task) ||
           reservations_forbid(task->lu->persist, task->nexus->port_name, persist_class(task));
}

static bool medium_missing(const struct scsi_task *task)
{
    return task->lu->ejected && (task->command->flags & COMMAND_MEDIUM);
}

/* The checks that need an LU. */
static bool lu_accepts(struct scsi_task *task)
{
    struct scsi_sense attention;
    bool any_time = task->command != NULL && (task->command->flags & COMMAND_ANY_TIME);
    if (!any_time && scsi_attention_take(task->nexus, task->lu, &attention))
        return scsi_task_refuse(task, &attention);
    if (task->command == NULL)
        return scsi_opcode_has_actions(task->cdb[0]) ? scsi_task_refuse_field(task, 1)
                                                     : scsi_task_refuse(task, &sense_opcode);
    struct scsi_sense space;
    const struct scsi_sense *forbidden = scsi_sanitize_forbids(task->lu, task->command, &space);
    if (forbidden != NULL)
        return scsi_task_refuse(task, forbidden);
    if (reservation_conflict(task)) {
        task->status = SCSI_RESERVATION_CONFLICT;
        return false;
    }
    return !medium_missing(task) || scsi_task_refuse(task, &sense_no_medium);
}

bool scsi_task_read_only(const struct scsi_task *task)
{
    return scsi_lu_read_only(task->lu) || scsi_nexus_read_only(task->nexus, task->lun);
}

static bool write_allowed(struct scsi_task *task)
{
    if (!(task->command->flags & COMMAND_WRITES) || !scsi_task_read_only(task))
        return true;
    return scsi_task_refuse(task, task->lu->mode.software_write_protect ? &sense_software_protect : &sense_read_only);
}

bool scsi_task_parse(struct scsi_task *task)
{
    task_reset(task);
    task->lu = scsi_nexus_lu(task->nexus, task->lun);
    task->command = scsi_command_find(task->cdb, task->lu);
    bool without_lu = task->command != NULL && (task->command->flags & COMMAND_WITHOUT_LU);
    if (task->lu == NULL && !without_lu)
        return scsi_task_refuse(task, &sense_no_lu);
    if (task->lu != NULL && !lu_accepts(task))
        return false;
    task->preempted = task->lu != NULL ? task->nexus->preempted[task->lu->lun] : 0;
    unsigned reserved = reserved_bits_set(task);
    if (reserved != 0)
        return scsi_task_refuse_field(task, reserved);
    if (task->command->parse != NULL && !task->command->parse(task))
        return false;
    if (!write_allowed(task))
        return false;
    if ((task->command->flags & COMMAND_EXACT) && task->transport_len != task->data_len)
        return scsi_task_refuse(task, &sense_cdb_field);
    task->direction = task->data_len > 0 ? task->command->direction : SCSI_DATA_NONE;
    return true;
}

/* --- run --- */

void scsi_task_continue(struct scsi_task *task)
{
    ASSERT(task->running && task->waiting_on == NULL);
    if ((task->command->flags & COMMAND_EXACT) && task->received_len != task->data_len)
        scsi_task_fail(task, &sense_cdb_field); /* less came than EDTL promised */
    else
        task->command->run(task);
}

/* For the log pages. */
static void count(const struct scsi_task *task)
{
    struct scsi_counters *c = &task->lu->counters;
    uint64_t took_ns = loop_now_ns(task->nexus->target->loop) - task->started_ns;
    if (task->command->run == scsi_read_run) {
        c->reads++;
        c->read_blocks += task->blocks;
        c->read_ns += took_ns;
    } else if (task->command->flags & COMMAND_COPIES) {
        c->writes++;
        c->wrote_blocks += task->moved / lu_block(task->lu);
        c->write_ns += took_ns;
    } else if (task->command->flags & COMMAND_WRITES) {
        c->writes++;
        c->wrote_blocks += task->received_len / lu_block(task->lu);
        c->write_ns += took_ns;
    } else if (task->command->run == scsi_verify_run) {
        c->verified_bytes += task->blocks * lu_block(task->lu);
    }
}

static void task_finish(struct task *finish)
{
    struct scsi_task *task = container_of(finish, struct scsi_task, finish);
    task->running = false;
    task->nexus->task_count--;
    if (task->lu != NULL) {
        if (task->status == SCSI_GOOD && !task->aborted)
            count(task);
        scsi_scratch_put(task);
        scsi_order_leave(task);
        scsi_persist_look(task->lu);
        scsi_sanitize_look(task->lu->target);
    }
    if (task->aborted) {
        task->status = SCSI_TASK_ABORTED;
        task->sense_len = 0;
        task->result_len = 0;
    }
    copy_result_end(task);
    task->done(task);
}

void scsi_task_end(struct scsi_task *task, enum scsi_status status)
{
    task->status = status;
    task->finish.run = task_finish;
    loop_defer(task->nexus->target->loop, &task->finish);
}

void scsi_task_fail(struct scsi_task *task, const struct scsi_sense *sense)
{
    set_sense(task, sense);
    scsi_task_end(task, SCSI_CHECK_CONDITION);
}

/* Of a task for which nothing is under way. */
static void give_up(struct scsi_task *task, enum scsi_status status)
{
    if (task->waiting_on != NULL)
        TAILQ_REMOVE(task->waiting_on, task, wait);
    task->waiting_on = NULL;
    scsi_scratch_put(task);
    scsi_task_end(task, status);
}

static enum scsi_status refused(struct scsi_task *task, const struct scsi_sense *sense)
{
    set_sense(task, sense);
    return SCSI_CHECK_CONDITION;
}

void scsi_task_run(struct scsi_task *task)
{
    ASSERT(task->command != NULL && !task->running && task->status == SCSI_GOOD);
    task->running = true;
    task->started_ns = loop_now_ns(task->nexus->target->loop);
    task->nexus->task_count++;
    if (task->lu == NULL) {
        scsi_task_continue(task);
        return;
    }
    scsi_threshold_look(task->lu->threshold);
    struct scsi_sense space;
    const struct scsi_sense *forbidden = scsi_sanitize_forbids(task->lu, task->command, &space);
    bool free_to_go = scsi_order_enter(task);
    /* Since it was parsed: its data may have taken long to come. */
    if (task->preempted != task->nexus->preempted[task->lu->lun])
        give_up(task, SCSI_TASK_ABORTED);
    else if (reservation_conflict(task))
        give_up(task, SCSI_RESERVATION_CONFLICT);
    else if (forbidden != NULL)
        give_up(task, refused(task, forbidden));
    else if (medium_missing(task))
        give_up(task, refused(task, &sense_no_medium));
    else if (free_to_go)
        scsi_task_continue(task);
}

void scsi_task_abort(struct scsi_task *task)
{
    if (!task->running || task->aborted)
        return;
    if (task->lu != NULL)
        scsi_order_abort(task);
    task->aborted = true;
    if (task->lu == NULL || (task->waiting_on == NULL && !scsi_scratch_waits(task)))
        return; /* a block request or the end is under way */
    give_up(task, SCSI_TASK_ABORTED);
}

/* --- block requests --- */

static void block_done(struct blk_req *req)
{
    struct scsi_task *task = container_of(req, struct scsi_task, req);
    if (task->aborted) {
        scsi_task_end(task, SCSI_TASK_ABORTED);
        return;
    }
    if (req->status == BLK_OK) {
        task->command->run(task);
        return;
    }
    bool writing = req->op != BLK_READ;
    struct scsi_sense sense = scsi_sense_of_block(req->status, writing, req->bad_off / lu_block(task->lu));
    if ((task->command->flags & COMMAND_COPIES) && req->status != BLK_NOSPACE) /* that one initiators wait for */
        sense = sense_copy_device;
    scsi_task_fail(task, &sense);
}

void scsi_task_submit(struct scsi_task *task, enum blk_op op, unsigned flags, uint64_t off, uint64_t len,
                      struct page **pages)
{
    scsi_task_submit_to(task, task->lu, op, flags, off, len, pages);
}

void scsi_task_submit_to(struct scsi_task *task, struct scsi_lu *lu, enum blk_op op, unsigned flags, uint64_t off,
                         uint64_t len, struct page **pages)
{
    struct blkdev *dev = lu->dev;
    if (len > dev->info.size || off > dev->info.size - len) { /* it shrank since the CDB was checked */
        scsi_task_fail(task, &sense_out_of_range);
        return;
    }
    if (blk_op_writes(op) && lu->target->tokens->valid > 0)
        rod_tokens_written(lu->target->tokens, dev, off, len);
    task->step = (uint32_t)MIN(len, (uint64_t)UINT32_MAX);
    task->req.op = op;
    task->req.flags = flags;
    task->req.off = off;
    task->req.len = len;
    task->req.pages = pages;
    task->req.done = block_done;
    blk_submit(dev, &task->req);
}

/* --- parameter data --- */

void scsi_task_reply(struct scsi_task *task, const void *bytes, uint32_t len)
{
    task->result_len = MIN(len, task->data_len);
    pages_copy_in(task->pages, task->page_off, bytes, task->result_len);
    scsi_task_end(task, SCSI_GOOD);
}

uint32_t scsi_task_list(const struct scsi_task *task, uint8_t *out, uint32_t max)
{
    uint32_t len = MIN(MIN(task->received_len, task->data_len), max);
    pages_copy_out(out, task->pages, task->page_off, len);
    return len;
}
