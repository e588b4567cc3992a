/*
 * Scratch pages: SCSI_SCRATCH_PAGES pages a target keeps for commands that read the medium for themselves (VERIFY,
 * WRITE AND VERIFY, COMPARE AND WRITE, PRE-FETCH).
 *
 * One task has them at a time, for one step of its way; the others stand in line. A device may keep a page it was given
 * to read into (a cache does), so pages that somebody else holds too are swapped for fresh ones before each use; when
 * the loop's pool is dry the user waits in the pool's line. Who waits is run again (scsi_task_continue) when its turn
 * has come.
 */
#ifndef TARGET_SCSI_SCRATCH_H
#define TARGET_SCSI_SCRATCH_H

#include "target/scsi/scsi.h"

/* NULL: no memory, or no pages. */
struct scsi_scratch *scsi_scratch_create(struct loop *loop);
void scsi_scratch_destroy(struct scsi_scratch *scratch); /* nobody uses it */

/* True: the pages are the task's alone, until scsi_scratch_put(). False: it waits, and its command will be run again.
 */
bool scsi_scratch_get(struct scsi_task *task);
/* Also for a user that waits for pages. No effect if the pages are not the task's. */
void scsi_scratch_put(struct scsi_task *task);
bool scsi_scratch_waits(const struct scsi_task *task); /* for pages, holding the place: not in line */
struct page **scsi_scratch_pages(struct scsi_task *task);

#endif
