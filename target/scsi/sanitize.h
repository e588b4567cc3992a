/*
 * SANITIZE (SBC-3 4.11, 5.29): every block of the medium is overwritten, in the background.
 *
 *                 the order            kept, others gone             all passes, kept
 *     READY ----------------> WAITS ---------------------> RUNS ---------------------> READY
 *                               |                            | an error, a stop
 *                               v not kept                   v           EXIT FAILURE MODE, where it was allowed
 *                             READY                        FAILED --------------------> READY
 *                                                            `--- the order ----> WAITS
 *
 * From WAITS on, every other command but INQUIRY, REPORT LUNS and REQUEST SENSE is refused at all LUs of the target
 * that show the device; it begins when those under way are over, since a late write would escape it. No abort, reset or
 * logout stops it. FAILED is a state that stays: part of the medium holds what it held.
 *
 * An LU with a keeper says there that it is being sanitized, from before the first write to after the last. So when the
 * daemon was stopped or the power failed meanwhile, the LU comes back FAILED and not as one that is clean. Without a
 * keeper it comes back READY. It is never resumed: the initiator gives the order again.
 *
 * What it does not see: other targets and NBD exports of the same volume, which go on reading and writing; what a disk
 * keeps in sectors of its own; chunks the array gave up (disks that were replaced).
 *
 * OVERWRITE writes the pattern so many times. BLOCK ERASE writes zeroes and then gives the space back: a volume reads
 * zeroes where nothing was written, so giving back alone would leave the data on the members.
 */
#ifndef TARGET_SCSI_SANITIZE_H
#define TARGET_SCSI_SANITIZE_H

#include "target/scsi/lu.h"

enum { SANITIZE_PASSES_MAX = 31, SANITIZE_STEP_PAGES = 256 };
#define SANITIZE_FREE_BYTES (256 * MIB)

struct sanitize_order {
    bool erase;        /* BLOCK ERASE */
    unsigned passes;   /* OVERWRITE: so many */
    bool invert;       /* the pattern, from one pass to the next */
    bool exit_allowed; /* AUSE: if it fails, the LU may be used again as it is */
    const uint8_t *pattern;
    uint32_t pattern_len; /* 1 to a block */
};

struct scsi_sanitize;
/* NULL: no memory. */
struct scsi_sanitize *scsi_sanitize_create(struct scsi_lu *lu);
void scsi_sanitize_destroy(struct scsi_sanitize *sanitize); /* nothing is under way */

/* What a command is to be told instead of being run; NULL: nothing, go on. */
const struct scsi_sense *scsi_sanitize_forbids(const struct scsi_lu *lu, const struct scsi_command *command,
                                               struct scsi_sense *space);
/* The task waits until it has begun (`immediate`) or until it is over, and is run again. False: no pages for it. */
bool scsi_sanitize_begin(struct scsi_task *task, const struct sanitize_order *order, bool immediate);
/* Why the last order failed, or could not be begun; NULL: it did not. */
const struct scsi_sense *scsi_sanitize_failure(const struct scsi_lu *lu);
/* EXIT FAILURE MODE: true: the task waits, and is run again. False: there is nothing to leave, or it may not be
 * left. */
bool scsi_sanitize_exit(struct scsi_task *task);
/* As the keeper has it. */
void scsi_sanitize_interrupted(struct scsi_lu *lu, bool exit_allowed);

/* A task of the target is over: perhaps it can begin. */
void scsi_sanitize_look(struct scsi_target *target);
/* The target ends: stop at the end of a step. Then, if it was busy, scsi_target_look() is called. */
void scsi_sanitize_stop(struct scsi_sanitize *sanitize);
bool scsi_sanitize_busy(const struct scsi_sanitize *sanitize);

#endif
