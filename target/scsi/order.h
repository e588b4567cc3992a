/*
 * Order among writers: COMPARE AND WRITE needs its blocks for itself from the compare to the end of the write.
 *
 * One rule: a task that writes may start when no task that arrived before it, and is not over, is in its way. Two
 * writers are in each other's way when their ranges overlap and one of them is atomic. So the order is that of arrival,
 * nobody starves, and as long as an LU has no atomic task nothing is compared at all.
 *
 * The order holds within a target. Another target or an NBD export over the same volume does not see it.
 */
#ifndef TARGET_SCSI_ORDER_H
#define TARGET_SCSI_ORDER_H

#include "target/scsi/scsi.h"

/* The task joins its LU's running ones. False: it stands in line, and its command is run when its turn comes. */
bool scsi_order_enter(struct scsi_task *task);
/* A task that runs leaves where it was, for this range of this LU of the same target. False: it stands in line there. */
bool scsi_order_move(struct scsi_task *task, struct scsi_lu *lu, uint64_t lba, uint64_t blocks);
/* The task is over and stands in no line; others may start. */
void scsi_order_leave(struct scsi_task *task);

#endif
