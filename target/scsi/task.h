/*
 * The life of a task, for the commands.
 *
 *     parse --> (transport moves data) --> run --> [in line] --> run ... block request ... run --> end --> done
 *
 * A command's `run` is called to start, again after each block request that went well (task->step bytes of it), and
 * again when it was made to wait. Each time it must do one of: scsi_task_submit(), one of the ends below, or wait.
 * Errors of block requests, and aborts, never reach `run`.
 */
#ifndef TARGET_SCSI_TASK_H
#define TARGET_SCSI_TASK_H

#include "target/scsi/lu.h"

/* For parse: sets CHECK CONDITION and returns false. */
bool scsi_task_refuse(struct scsi_task *task, const struct scsi_sense *sense);
/* The same with 5/24/00 for the field of the CDB that begins at this byte. */
bool scsi_task_refuse_field(struct scsi_task *task, unsigned byte);

/* Writing is refused, to this nexus or to all. */
bool scsi_task_read_only(const struct scsi_task *task);

/* One block request. Pages as core/blkdev.h wants them; NULL for operations without data. */
void scsi_task_submit(struct scsi_task *task, enum blk_op op, unsigned flags, uint64_t off, uint64_t len,
                      struct page **pages);
/* The same at another LU of the target. */
void scsi_task_submit_to(struct scsi_task *task, struct scsi_lu *lu, enum blk_op op, unsigned flags, uint64_t off,
                         uint64_t len, struct page **pages);
/* Does a reservation of the LU keep the nexus from this? */
bool scsi_lu_forbids(const struct scsi_lu *lu, const struct scsi_nexus *nexus, enum persist_class class);
/* Ends: `done` follows from the loop. */
void scsi_task_end(struct scsi_task *task, enum scsi_status status);
void scsi_task_fail(struct scsi_task *task, const struct scsi_sense *sense);
/* Ends a command that returns parameter data: as much of it as the initiator asked for. */
void scsi_task_reply(struct scsi_task *task, const void *bytes, uint32_t len);
/* The parameter list that was received, at most `max` bytes of it; returns how many. */
uint32_t scsi_task_list(const struct scsi_task *task, uint8_t *out, uint32_t max);
/* Run the command of a task: to start it, or after it waited. */
void scsi_task_continue(struct scsi_task *task);

/* A task of the LU is over: who preempted it may go on (command_persist_out.c). */
void scsi_persist_look(struct scsi_lu *lu);

#endif
