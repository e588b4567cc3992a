/*
 * EXTENDED COPY, with short identifiers of lists (LID1, as ESXi and libiscsi send it) and with long ones (LID4).
 *
 * The list is read anew at each step, from the pages of the task: nothing of it is kept elsewhere. A copy is done when
 * it is answered: LID4's IMMED is not taken up. Logical units are those of this target that the nexus may see; a list
 * that names any other ends with A/08/04 (unreachable copy target).
 */
#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/copy_list.h"
#include "target/scsi/copy_move.h"
#include "target/scsi/copy_result.h"
#include "target/scsi/task.h"

bool scsi_copy_parse(struct scsi_task *task)
{
    if (!scsi_parse_list(task))
        return false;
    return task->data_len <= COPY_LIST_MAX || scsi_task_refuse(task, &sense_list_length);
}

static const struct scsi_sense *find(const struct scsi_task *task, const struct copy_list *list, uint16_t index,
                                     struct scsi_lu **lu, bool *read_only)
{
    struct copy_cscd cscd = {0};
    if (index == CSCD_ADDRESSED) {
        *lu = scsi_copy_addressed(task, read_only);
        return NULL;
    }
    if (index >= list->cscds)
        return &sense_copy_unreachable;
    copy_cscd_get(list, index, &cscd);
    *lu = cscd.naa == NULL ? NULL : scsi_copy_find(task, cscd.naa, read_only);
    if (*lu == NULL)
        return &sense_copy_unreachable;
    return cscd.block == 0 || cscd.block == lu_block(*lu) ? NULL : &sense_list_field;
}

/* What the present segment says. */
static const struct scsi_sense *piece_of(const struct scsi_task *task, const struct copy_list *list,
                                         struct copy_piece *piece, bool *to_read_only)
{
    struct copy_segment segment;
    bool from_read_only;
    copy_segment_get(list, task->count, &segment);
    const struct scsi_sense *why = find(task, list, segment.source, &piece->from, &from_read_only);
    if (why == NULL)
        why = find(task, list, segment.destination, &piece->to, to_read_only);
    if (why != NULL)
        return why;
    uint64_t block = lu_block(piece->to), most = UINT64_MAX / block;
    if (segment.source_lba > most || segment.destination_lba > most)
        return &sense_copy_range;
    piece->from_off = segment.source_lba * block;
    piece->to_off = segment.destination_lba * block;
    piece->len = segment.blocks * block;
    return NULL;
}

/* Segment by segment, until one has to wait for something. */
static void go_on(struct scsi_task *task, const struct copy_list *list)
{
    while (task->count < list->segments) {
        struct copy_piece piece;
        bool to_read_only = false;
        const struct scsi_sense *why = piece_of(task, list, &piece, &to_read_only);
        if (why != NULL) {
            scsi_task_fail(task, why);
            return;
        }
        if (scsi_copy_piece(task, &piece, to_read_only))
            return;
    }
    scsi_task_end(task, SCSI_GOOD);
}

void scsi_copy_run(struct scsi_task *task)
{
    enum { ACTION_LID4 = 0x01 };
    uint8_t bytes[COPY_LIST_MAX];
    struct copy_list list;
    struct scsi_sense why;
    uint32_t len = scsi_task_list(task, bytes, sizeof bytes);
    if (len == 0) {
        scsi_task_end(task, SCSI_GOOD);
        return;
    }
    if (!copy_list_parse(bytes, len, task->command->action == ACTION_LID4, &list, &why)) {
        scsi_task_fail(task, &why);
        return;
    }
    if (task->phase == COPY_START) {
        const struct scsi_sense *no_result =
            list.has_id ? copy_result_begin(task->lu->target->copies, task, list.id, list.discard) : NULL;
        if (no_result != NULL) {
            scsi_task_fail(task, no_result);
            return;
        }
        task->phase = COPY_PIECE;
    }
    go_on(task, &list);
}
