/*
 * SCSI without a transport: a CDB and data become block requests, a status and sense.
 *
 * The transport (target/iscsi) makes a scsi_task per command and calls
 *   scsi_task_parse()  looks the CDB up in the table of commands and says which way data goes, how much, and at which
 *                      page offset; or ends the task at once (check condition, reservation conflict, unit attention);
 *   (the transport provides pages for `data_len` bytes and, for DATA_OUT, fills them from the initiator)
 *   scsi_task_run()    does it; `done` follows from the loop, never from inside.
 * Parameter data (mode pages, UNMAP lists, INQUIRY) moves through the same pages as blocks do.
 *
 * A logical unit (scsi_lu) is one blkdev with an identity; a nexus is one initiator port through one target port to all
 * LUs of a target: it holds the unit attentions. All of it lives on the target's loop.
 *
 * Standards: SPC-4, SBC-3; section numbers stand at the checks.
 */
#ifndef TARGET_SCSI_SCSI_H
#define TARGET_SCSI_SCSI_H

#include "core/blkdev.h"
#include "core/check.h"

enum { SCSI_CDB_MAX = 16, SCSI_SENSE_MAX = 64, SCSI_LUNS_MAX = 256, SCSI_REPEAT_PAGES = 32 };
#define SCSI_TRANSFER_MAX (8 * MIB) /* VPD B0 MAXIMUM TRANSFER LENGTH; longer is refused by parse */

enum scsi_status {
    SCSI_GOOD = 0x00,
    SCSI_CHECK_CONDITION = 0x02,
    SCSI_CONDITION_MET = 0x04,
    SCSI_BUSY = 0x08,
    SCSI_RESERVATION_CONFLICT = 0x18,
    SCSI_TASK_SET_FULL = 0x28,
    SCSI_TASK_ABORTED = 0x40,
};

enum scsi_direction { SCSI_DATA_NONE, SCSI_DATA_IN, SCSI_DATA_OUT };

struct scsi_lu;      /* a logical unit: a device and its SCSI state */
struct scsi_target;  /* LUs by number */
struct scsi_nexus;   /* an initiator port at a target */
struct scsi_command; /* a row of the command table */
struct scsi_scratch; /* a few pages to read into (scratch.c) */
struct scsi_task_list;
struct copy_result; /* what became of a copy (copy_result.h) */
struct reservations;

/*
 * What must outlive a loss of power is given to a keeper: the record of an LU's persistent reservations, as JSON. One
 * call at a time; the command that changed them is answered when it is over. `done` runs on the target's loop, never
 * inside keep().
 */
struct scsi_keep {
    const char *record; /* valid until done; NULL: forget it */
    void (*done)(struct scsi_keep *);
    int error; /* 0; -ENOSPC: there is no room for it; -errno */
};
struct scsi_keeper {
    void (*keep)(struct scsi_keeper *, struct scsi_keep *);
};

struct scsi_lu_options {
    struct blkdev *dev; /* lent; must be on the target's loop */
    char product[17];   /* the same on all LUs of an appliance; default "Corbel volume" */
    char serial[37];    /* VPD 80, stable over restart and rename: the volume's UUID as text */
    uint8_t naa[16];    /* VPD 83 NAA type 6, derived from the volume's UUID */
    bool read_only;
    bool hide_physical;         /* tell of logical blocks only, to initiators that do not take 512e */
    bool removable;             /* the medium can be ejected and loaded (command_medium.c) */
    uint64_t sanitize_rate;     /* SANITIZE writes no more bytes a second; 0: as it can */
    uint8_t soft_threshold;     /* percent of it in use at which initiators are told (threshold.h); 0: never */
    struct scsi_keeper *keeper; /* lent; NULL: reservations end with the power */
    const char *record;         /* what the keeper has of earlier, or NULL; not needed after scsi_target_add_lun() */
};

/* Takes SCSI_SCRATCH_PAGES pages of the loop for itself; NULL if there are none, or no memory. */
enum { SCSI_SCRATCH_PAGES = 16 };
struct scsi_target *scsi_target_create(struct loop *loop, const char *name /* iqn */);
/* No nexus left. SANITIZE, and looking at a threshold, go on without one: stop it before. `stopped` runs from the loop,
 * at once if there is none. */
void scsi_target_stop(struct scsi_target *target, struct task *stopped);
void scsi_target_destroy(struct scsi_target *target);
/* 0, or -EEXIST, -EINVAL (also: the record is none), -ENOMEM. */
int scsi_target_add_lun(struct scsi_target *target, unsigned lun, const struct scsi_lu_options *options);

/* port_name: the initiator port, "iqn...,i,0x<isid>". A new nexus has UNIT ATTENTION 29/00 pending on every LU. */
struct scsi_nexus *scsi_nexus_create(struct scsi_target *target, const char *port_name);
/* I_T nexus loss: its SPC-2 reservations, and what it prevents, end, also while the disk has tasks of it. */
void scsi_nexus_lost(struct scsi_nexus *nexus);
/* No task left. */
void scsi_nexus_destroy(struct scsi_nexus *nexus);

/*
 * What an initiator sees of a target: for each LUN it may use, the target's own LUN behind it, perhaps read-only. A
 * nexus without a view sees all as it is. The view is lent, for as long as the nexus lives.
 */
enum { SCSI_VIEW_NOTHING = 0xffff, SCSI_VIEW_READ_ONLY = 0x8000 };
struct scsi_view {
    uint16_t row[SCSI_LUNS_MAX]; /* the target's LUN, with SCSI_VIEW_READ_ONLY or without; or SCSI_VIEW_NOTHING */
};
void scsi_nexus_set_view(struct scsi_nexus *nexus, const struct scsi_view *view);
/* The LUN by which the target knows what the nexus calls `lun`; false: the nexus has no such LUN. */
bool scsi_nexus_resolve(const struct scsi_nexus *nexus, const uint8_t lun[8], uint8_t own[8]);

struct scsi_task {
    /* Set by the transport before scsi_task_parse(). */
    struct scsi_nexus *nexus;
    uint8_t lun[8]; /* as on the wire (SAM, 4.7) */
    uint8_t cdb[SCSI_CDB_MAX];
    uint32_t transport_len; /* bytes the transport means to move (EDTL); data_len may be more or less */
    void (*done)(struct scsi_task *);

    /* Set by parse. */
    enum scsi_direction direction;
    uint32_t data_len; /* bytes the CDB moves (DATA_OUT), or may move at most (DATA_IN) */
    uint32_t page_off; /* where in pages[0] byte 0 belongs */

    /* Set by the transport before run: room for page_off + data_len bytes; DATA_OUT: filled. */
    struct page **pages;   /* the task's alone until done; a read may replace pages (core/blkdev.h, 5): look again */
    uint32_t received_len; /* DATA_OUT: bytes really received; less than data_len if EDTL was smaller */

    /* Result, in done(). */
    enum scsi_status status;
    uint32_t result_len; /* DATA_IN: bytes that are valid in pages, at most data_len */
    uint8_t sense[SCSI_SENSE_MAX];
    uint8_t sense_len;

    /* scsi's own. */
    struct scsi_lu *lu;
    const struct scsi_command *command;
    TAILQ_ENTRY(scsi_task) link, wait;
    struct scsi_task_list *waiting_on; /* the line it stands in, linked by `wait`; NULL: none */
    struct blk_req req;
    struct task finish;
    struct page *repeated[SCSI_REPEAT_PAGES];
    uint64_t lba, blocks; /* the range of the medium, from the CDB */
    uint64_t position;    /* bytes of it (or descriptors) dealt with */
    uint64_t until;       /* a copy's: the place up to which it is known what is written */
    uint64_t moved;       /* a copy's: bytes, in all pieces */
    struct copy_result *copy;
    uint64_t started_ns;
    uint32_t step;      /* bytes of the block request in flight */
    uint32_t count;     /* descriptors of an UNMAP list; segments of a copy that are over */
    uint8_t phase;      /* a command's own: what comes next */
    uint8_t move;       /* the same, of a piece of a copy */
    uint16_t preempted; /* scsi_nexus.preempted when it was parsed */
    bool running, aborted;
};
TAILQ_HEAD(scsi_task_list, scsi_task);

/* True: go on with data and scsi_task_run(). False: the task is over (status, sense are set); done will NOT be called.
 */
bool scsi_task_parse(struct scsi_task *task);
void scsi_task_run(struct scsi_task *task);
/*
 * Give a running task up: no further block request is started for it, and `done` comes as soon as the one in flight is
 * over, with status SCSI_TASK_ABORTED. A task not running may simply be forgotten by the transport.
 */
void scsi_task_abort(struct scsi_task *task);

/* Ends a task that never reached a LU, e.g. wrong amount of unsolicited data: sets CHECK CONDITION and sense. */
void scsi_task_set_sense(struct scsi_task *task, uint8_t key, uint8_t asc, uint8_t ascq);

/* By the target's own LUNs. LOGICAL UNIT RESET and target resets: unit attention 29/0x for every nexus. The transport
 * aborts its tasks itself. */
void scsi_lun_reset(struct scsi_target *target, const uint8_t lun[8]);
void scsi_target_reset(struct scsi_target *target);
/* Tasks of `nexus` were cleared by another nexus's CLEAR TASK SET: 2F/00. */
void scsi_nexus_cleared(struct scsi_nexus *nexus, const uint8_t lun[8]);

#endif
