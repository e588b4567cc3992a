/*
 * Steps over the medium, shared by the commands that move blocks (command_block.c, command_verify.c,
 * command_provision.c). All of them count in task->position, in bytes from task->lba.
 */
#ifndef TARGET_SCSI_COMMAND_BLOCK_H
#define TARGET_SCSI_COMMAND_BLOCK_H

#include "target/scsi/command_table.h"
#include "target/scsi/task.h"

/* Sets data_len for so many blocks, and page_off; refused if it is more than SCSI_TRANSFER_MAX. */
bool scsi_transfer_limits(struct scsi_task *task, uint64_t data_blocks);
/* The length of the next block request: all that is left, or up to a page's edge within `most` (a page or more). */
uint32_t scsi_step_bytes(const struct scsi_task *task, uint64_t left, uint64_t most);
/* The next step over the task's own pages; false: all `total` bytes are done. */
bool scsi_transfer_step(struct scsi_task *task, enum blk_op op, unsigned flags, uint64_t total);
/* Read the next step into the scratch pages, which the task has. */
void scsi_scratch_read(struct scsi_task *task, uint64_t total);
/* That step is over, if there was one. */
void scsi_scratch_step_over(struct scsi_task *task);
/* Whole blocks the transport really brought (EDTL may be less than the CDB says). */
uint64_t scsi_received_bytes(const struct scsi_task *task);
unsigned scsi_write_flags(const struct scsi_task *task);

#endif
