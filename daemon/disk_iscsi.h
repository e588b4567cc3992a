/* What iSCSI targets answer, in the words of core/blkdev.h: pure, for daemon/disk_iscsi.c and its tests. */
#ifndef DAEMON_DISK_ISCSI_H
#define DAEMON_DISK_ISCSI_H

#include <stdbool.h>

#include "core/blkdev.h"

enum iscsi_verdict {
    ISCSI_OVER,  /* the status tells how */
    ISCSI_AGAIN, /* it was not done: ask again soon */
    ISCSI_MODES, /* the same, and the target's cache may have been turned on */
    ISCSI_RESET, /* what the target held in its volatile cache, or its medium, may be lost: so counts the session */
};

/* A SCSI status with its sense (SAM-5 5.3, SPC-4 4.5.6); `ascq` is ASC * 256 + ASCQ. */
struct iscsi_answer {
    unsigned status;
    unsigned key, ascq;
};
enum iscsi_verdict iscsi_judge(enum blk_op op, const struct iscsi_answer *answer, enum blk_status *status);

#endif
