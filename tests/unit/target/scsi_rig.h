/*
 * A target with one LU over a memory disk, and two nexuses; commands are bytes in, status and bytes out.
 *
 * The disk can be told to fail requests, and to keep every page it reads into (as a cache does).
 */
#ifndef TESTS_UNIT_TARGET_SCSI_RIG_H
#define TESTS_UNIT_TARGET_SCSI_RIG_H

#include "target/scsi/scsi.h"
#include "tests/unit/lib/testloop.h"

enum { RIG_PAGES = 5000, RIG_DATA_MAX = 70000, RIG_DISK_BYTES = 4 << 20, RIG_KEEP_MAX = 64 };

/* Keeps a record in memory. */
struct rig_keeper {
    struct scsi_keeper door;
    struct testloop *t;
    bool hold; /* do not answer yet: rig_keeper_answer() does */
    int error; /* the answer */
    unsigned calls;
    char *record; /* NULL: none */
    struct scsi_keep *call;
    struct task task;
};
void rig_keeper_answer(struct rig_keeper *keeper);

struct rig {
    struct rig_keeper keeper;
    struct testloop *t;
    struct memdisk *disk;
    struct memdisk *second; /* LUN 1, or NULL: rig_add_second() */
    uint8_t lun;            /* where rig_do() and rig_start() go */
    struct task stopping;
    bool stopped;
    struct scsi_target *target;
    struct scsi_nexus *a, *b; /* unit attentions of both are taken already */
    const struct blkdev_ops *disk_ops;
    struct blkdev_ops ops;
    /* Requests of this operation that touch [fail_off, end of the disk) fail, with bad_off there. */
    bool fail;
    enum blk_op fail_op;
    enum blk_status fail_status;
    uint64_t fail_off;
    struct page *kept[RIG_KEEP_MAX];
    bool keep;
    uint32_t kept_count;
    uint64_t requests, longest; /* seen; the longest of them, in bytes */
    unsigned last_flags;
    enum blk_op last_op;
};

struct rig_options {
    uint32_t block, physical; /* default 512 and 4096 */
    uint64_t max_request;
    uint64_t latency_ns, sanitize_rate;
    uint8_t soft_threshold;
    bool (*block_status)(struct blkdev *, uint64_t off, uint64_t len, uint64_t *extent);
    bool read_only, no_discard, no_keeper, hide_physical, removable;
    const char *record;
};

struct rig *rig_create(const struct rig_options *options);
/* A disk as LUN 1, of the same kind. */
void rig_add_second(struct rig *rig, bool read_only);
/* Identifiers of the LUs. */
void rig_naa(unsigned lun, uint8_t out[16]);
void rig_destroy(struct rig *rig);
void rig_stop(struct rig *rig);         /* what goes on without a nexus */
void rig_keep_nothing(struct rig *rig); /* puts back the pages the disk kept */

struct rig_reply {
    enum scsi_direction direction;
    enum scsi_status status;
    uint8_t key, asc, ascq;
    bool has_information;
    uint64_t information;
    uint32_t data_len, len; /* what parse said; bytes valid in data (DATA_IN) */
    uint8_t data[RIG_DATA_MAX];
};

/* One command and its end. `out`, `out_len`: what the transport brings, EDTL for DATA_OUT. */
struct rig_reply *rig_do(struct rig *rig, struct scsi_nexus *nexus, const uint8_t *cdb, const void *out,
                         uint32_t out_len);
#define CDB(...) ((const uint8_t[SCSI_CDB_MAX]){__VA_ARGS__})

/* The same in two parts, with the task in sight: start returns NULL if parse ended it. */
struct rig_task {
    struct scsi_task task;
    struct page *pages[SCSI_TRANSFER_MAX / PAGE_BYTES + 1];
    uint32_t page_count;
    bool done;
};
struct rig_task *rig_start(struct rig *rig, struct scsi_nexus *nexus, const uint8_t *cdb, const void *out,
                           uint32_t out_len);
void rig_run(struct rig *rig, struct rig_task *task); /* one that was parsed, and its end */
void rig_end(struct rig_task *task);                  /* frees */

/* "5/24/00", or "good", "conflict", ...: for messages and comparisons. A static buffer. */
const char *rig_outcome(const struct rig_reply *reply);
/* Does it and compares the outcome. */
#define EXPECT_OUTCOME(rig, nexus, outcome, out, out_len, ...)                                                         \
    cr_expect_str_eq(rig_outcome(rig_do(rig, nexus, CDB(__VA_ARGS__), out, out_len)), outcome)

#endif
