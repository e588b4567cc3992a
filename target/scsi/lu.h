/*
 * Logical units, targets and nexuses: the objects behind scsi.h, for the files of this directory.
 *
 * A target owns its LUs by number. A nexus belongs to one target and keeps, for each LUN, a set of pending unit
 * attentions: one bit per kind, so the queue is bounded and nothing is reported twice. An LU keeps what all nexuses
 * share: the mode parameters that can be changed, the SPC-2 reservation, and the tasks that are running.
 *
 * Persistent reservations are two values: the present one, and the one being kept, which takes its place when that is
 * done; while it is, other PERSISTENT RESERVE OUT commands stand in line.
 *
 * Invariants: (1) a task between scsi_task_run() and `done` is in its LU's `running`; (2) a task in line (waiting_on)
 * has no block request in flight; (3) `reserved_by` is a nexus that exists, or NULL.
 */
#ifndef TARGET_SCSI_LU_H
#define TARGET_SCSI_LU_H

#include "core/check.h"
#include "target/scsi/log_page.h"
#include "target/scsi/mode_page.h"
#include "target/scsi/reservation.h"
#include "target/scsi/scsi.h"
#include "target/scsi/sense.h"

/* Unit attentions in the order in which they are reported (SAM-5 5.14.1: resets before all else). */
enum scsi_attention {
    ATTENTION_POWER_ON,         /* 29/00: a new nexus */
    ATTENTION_TARGET_RESET,     /* 29/02 */
    ATTENTION_LU_RESET,         /* 29/03 */
    ATTENTION_MEDIUM_CHANGED,   /* 28/00: loaded by another nexus */
    ATTENTION_MODE_CHANGED,     /* 2A/01: by another nexus, or by the device below (WCE) */
    ATTENTION_CLEARED_KEYS,     /* 2A/03: reservations preempted: all registrations were cleared */
    ATTENTION_RELEASED,         /* 2A/04: reservations released */
    ATTENTION_PREEMPTED,        /* 2A/05: registrations preempted */
    ATTENTION_CAPACITY_CHANGED, /* 2A/09 */
    ATTENTION_SOFT_THRESHOLD,   /* 38/07: of thin provisioning (threshold.h) */
    ATTENTION_CLEARED,          /* 2F/00: another nexus cleared the task set */
    ATTENTION_LUNS_CHANGED,     /* 3F/0E */
    ATTENTION_COUNT,
};

struct scsi_lu {
    struct scsi_target *target;
    unsigned lun;
    struct scsi_lu_options options; /* dev is options.dev */
    struct blkdev *dev;
    struct blk_watcher watcher;
    bool failed;        /* the device said so: not ready */
    bool ejected;       /* the medium is out */
    uint64_t served_ns; /* since when */
    struct scsi_counters counters;
    struct scsi_mode mode;
    struct scsi_nexus *reserved_by; /* RESERVE(6), RESERVE(10) */
    struct reservations *persist, *persist_next;
    uint8_t persist_news[RESERVATIONS_MAX]; /* of persist_next: enum persist_news */
    struct scsi_keep keep;
    struct scsi_task *keeping;                      /* whose change is being kept, or NULL */
    struct scsi_task_list persist_line, preempting; /* wait for that; for the tasks they aborted */
    struct scsi_task_list running, blocked;         /* see order.c */
    struct scsi_sanitize *sanitize;
    struct scsi_threshold *threshold;
    uint32_t alone_count; /* tasks of both lists that need their range for themselves */
};

struct scsi_nexus {
    struct scsi_target *target;
    TAILQ_ENTRY(scsi_nexus) link;
    const struct scsi_view *view;       /* NULL: all LUNs, as they are */
    uint32_t task_count;                /* running */
    uint16_t attentions[SCSI_LUNS_MAX]; /* a set of 1 << enum scsi_attention */
    uint16_t preempted[SCSI_LUNS_MAX];  /* how often another nexus aborted all its tasks there */
    bool prevents[SCSI_LUNS_MAX];       /* removal of the medium */
    char port_name[PORT_NAME_BYTES];
};

struct scsi_target {
    struct loop *loop;
    char name[224];
    struct scsi_lu *lus[SCSI_LUNS_MAX];
    TAILQ_HEAD(, scsi_nexus) nexuses;
    struct scsi_scratch *scratch;
    struct copy_results *copies;
    struct rod_tokens *tokens;
    unsigned sanitizing;  /* LUs that are being sanitized, or failed to be */
    struct task *stopped; /* waits for what goes on without a nexus to stop, or NULL */
};

/* The LU that a LUN names at the target itself, or for a nexus. NULL: none. */
struct scsi_lu *scsi_lu_find(const struct scsi_target *target, const uint8_t lun[8]);
struct scsi_lu *scsi_nexus_lu(const struct scsi_nexus *nexus, const uint8_t lun[8]);
/* Something that goes on without a nexus has paused: perhaps that was what scsi_target_stop() waits for. */
void scsi_target_look(struct scsi_target *target);
/* Has its view this LUN read-only? */
bool scsi_nexus_read_only(const struct scsi_nexus *nexus, const uint8_t lun[8]);

/* Writing is refused: by the device, the configuration, or SWP of the control mode page. */
bool scsi_lu_read_only(const struct scsi_lu *lu);

/* Raise on every nexus but `except` (NULL: all). */
void scsi_attention_raise(struct scsi_lu *lu, enum scsi_attention attention, const struct scsi_nexus *except);
/* On all nexuses of an initiator port but `except`. */
void scsi_attention_raise_port(struct scsi_lu *lu, enum scsi_attention attention, const char *port,
                               const struct scsi_nexus *except);
/* Takes the first pending attention; false: none. */
bool scsi_attention_take(struct scsi_nexus *nexus, const struct scsi_lu *lu, struct scsi_sense *sense);
/* REPORT LUNS has told: nothing more to say of the list of LUNs. */
void scsi_attention_clear_luns(struct scsi_nexus *nexus);

static inline uint32_t lu_block(const struct scsi_lu *lu)
{
    return lu->dev->info.logical_block;
}

static inline uint64_t lu_blocks(const struct scsi_lu *lu)
{
    return lu->dev->info.size / lu->dev->info.logical_block;
}

/* Blocks that are written whole or not at all, from a multiple of them on; 0: there is no such promise. */
static inline uint32_t lu_atomic_blocks(const struct scsi_lu *lu)
{
    return lu->dev->info.atomic_write / lu->dev->info.logical_block;
}

#endif
