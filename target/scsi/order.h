/*
 * Order among tasks: COMPARE AND WRITE needs its blocks for itself from the compare to the end of the write; and a
 * write that was aborted while the device had it in hand may still land, but not on top of what is written after the
 * abort was answered, nor between two reads.
 *
 * One rule: a task may start when no task that arrived before it, and is not over, is in its way. Tasks whose ranges
 * overlap are in each other's way when both write and one is atomic, or when the earlier one is an aborted write. So
 * the order is that of arrival, nobody starves, and as long as an LU has no such task nothing is compared at all.
 *
 * The order holds within a target. Another target or an NBD export over the same volume does not see it.
 */
#ifndef TARGET_SCSI_ORDER_H
#define TARGET_SCSI_ORDER_H

#include "target/scsi/scsi.h"

/* The task joins its LU's running ones. False: it stands in line, and its command is run when its turn comes. */
bool scsi_order_enter(struct scsi_task *task);
/* A task that runs leaves where it was, for this range of this LU of the same target. False: it stands in line
 * there. */
bool scsi_order_move(struct scsi_task *task, struct scsi_lu *lu, uint64_t lba, uint64_t blocks);
/* The task, which runs, is given up. */
void scsi_order_abort(struct scsi_task *task);
/* The task is over and stands in no line; others may start. */
void scsi_order_leave(struct scsi_task *task);

#endif
