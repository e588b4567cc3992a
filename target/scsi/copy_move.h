/*
 * Moving blocks from one logical unit of a target to another, or to another place of the same, for the commands that
 * copy (command_copy.c, command_token.c).
 *
 *     LOOK --> [what is not written there] zero ---------------------------------> LOOK ...
 *          \-> [what is]                   read --> write --> read --> write ... --> LOOK ...
 *
 * One block request at a time, through the scratch pages of the target, which others may have between two steps: so a
 * copy takes bounded memory, and an abort stops it at the end of a step. What was never written costs nothing and takes
 * no space at the other end either. Writers are kept in order at the LU that is written to (order.h): the task enters
 * it for each piece, and belongs to it until the next.
 */
#ifndef TARGET_SCSI_COPY_MOVE_H
#define TARGET_SCSI_COPY_MOVE_H

#include "target/scsi/scsi.h"

struct copy_piece {
    struct scsi_lu *from; /* NULL: zeroes */
    struct scsi_lu *to;   /* with blocks of the same size */
    uint64_t from_off, to_off, len;
};

/* Of a command that copies, in task->phase. */
enum copy_phase { COPY_START, COPY_PIECE, COPY_MOVE };

/*
 * The next step of the piece that the task is at: it begins (COPY_PIECE) if it may be copied, as far as the medium, the
 * rights of the nexus and the ranges go. False: all of it is done, and the task is at the next one. True: it waits for
 * something, and its command is run again; or it has ended.
 */
bool scsi_copy_piece(struct scsi_task *task, const struct copy_piece *piece, bool to_read_only);

/* The logical unit that this nexus knows by a NAA identifier, and whether it is read-only to it; the one that the task
 * is addressed to before others of the same name. NULL: none. */
struct scsi_lu *scsi_copy_find(const struct scsi_task *task, const uint8_t *naa, bool *read_only);
/* The one the task was addressed to. */
struct scsi_lu *scsi_copy_addressed(const struct scsi_task *task, bool *read_only);

#endif
