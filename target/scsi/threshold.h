/*
 * The soft threshold of thin provisioning (SBC-3 4.7.3.8, 6.5.8): 38/07 for all nexuses when so much of the medium is
 * in use.
 *
 * A volume is never more than what its array has: nothing runs out when it is full. But who watches over thin volumes
 * wants to hear of it before a file system does, and members may be thin themselves. What is used up beneath is told by
 * the command that meets it: 7/27/07.
 *
 *           a threshold is set                    all of the medium was asked
 *      OFF --------------------> SWEEPS --------------------------------------> RESTS
 *       ^                          ^ `-- so many pieces, then a pause             | a command, some seconds later
 *       |    none is set           `----------------------------------------------'
 *
 * How much is in use the device knows range by range (BLK_STATUS). So it is asked in sweeps, only while a threshold is
 * set and commands come, and a bounded number of times a second. A threshold that is reached is told once, and again
 * only after the use fell below it by a margin. Who comes when it is reached is told then.
 */
#ifndef TARGET_SCSI_THRESHOLD_H
#define TARGET_SCSI_THRESHOLD_H

#include <stdbool.h>
#include <stdint.h>

struct scsi_lu;
struct scsi_mode;
struct scsi_threshold;

/* Bytes of a medium in use at which the threshold is reached; UINT64_MAX: there is none. */
uint64_t scsi_threshold_bytes(const struct scsi_mode *mode, uint64_t size);

/* NULL: no memory. */
struct scsi_threshold *scsi_threshold_create(struct scsi_lu *lu);
void scsi_threshold_destroy(struct scsi_threshold *threshold); /* it was stopped, and is not busy */
/* The mode parameters were set: if others than before, it is told anew. */
void scsi_threshold_set(struct scsi_threshold *threshold);
/* Is so much in use, as far as the last sweep saw? */
bool scsi_threshold_reached(const struct scsi_threshold *threshold);
/* A command came. */
void scsi_threshold_look(struct scsi_threshold *threshold);
/* Ask no more. */
void scsi_threshold_stop(struct scsi_threshold *threshold);
/* Is a request under way? scsi_target_look() is called when it is over. */
bool scsi_threshold_busy(const struct scsi_threshold *threshold);

#endif
