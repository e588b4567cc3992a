/* The inside of a log, for cache/log*.c only. See cache/log.h. */
#ifndef CACHE_LOG_IMPL_H
#define CACHE_LOG_IMPL_H

#include "cache/log.h"
#include "core/check.h"

enum { LOG_GROUPS = 8 }; /* under way at a time, the one that is being formed among them */

/* Pages of the ring to or from one device, in as many pieces as it takes. */
struct log_io {
    struct blk_req req;
    struct cache_log *log;
    unsigned device;
    enum blk_op op;
    uint64_t page; /* of the ring */
    uint32_t count, at, piece;
    struct page **pages;
    void (*done)(struct log_io *, enum blk_status);
};
void log_io_start(struct log_io *io);

struct log_slot {
    LIST_ENTRY(log_slot) link; /* free */
    struct cache_log *log;
    struct log_group group;
    uint32_t count; /* pages, with the header */
    unsigned pending;
    struct log_io writes[LOG_DEVICES];
    struct page *pages[1 + LOG_DATA_MAX]; /* the first one is its own */
};

/* What is the log's on each device. */
struct log_member {
    struct cache_log *log;
    unsigned device;
    struct blk_req label, flush;
    struct page *page; /* of the label */
};

struct log_replay;

struct cache_log {
    struct cache_log_options o;
    char name[64];
    struct loop *loop;
    struct cache_log_user *user;
    struct page_pool *pool;
    struct cache_log_status counted; /* only what is counted, and the reason */

    struct log_label label;    /* the last one; its `place` is each device's own */
    uint64_t generation;       /* of the last one that is durable */
    unsigned live, labelled;   /* devices that count, a bit each; those of the last label that is durable */
    uint64_t ring, head, used; /* pages */
    uint64_t next, durable;    /* sequence numbers: of the next group; of the last one that is durable */
    struct log_mark tail;
    struct log_member members[LOG_DEVICES];

    LIST_HEAD(, log_slot) slots_free;
    struct log_slot *forming;
    unsigned writing;
    bool starved; /* LOG_BUSY was said */

    bool committing, flushing;
    unsigned flush_pending;
    uint64_t commit_sequence;

    bool labelling, label_again;
    unsigned label_pending;
    bool moving, moving_clean, tail_labelled; /* the tail, to move_to; the label under way says so */
    struct log_mark move_to;

    struct cache_log_call *call; /* format, or open */
    bool twice;                  /* of the labels both are to be new */
    struct log_replay *replay;

    struct task task; /* tells what is over */
    bool call_over, commit_over, move_over;
    struct task *closed; /* when nothing is under way any more */
    struct log_slot slots[LOG_GROUPS];
};

void log_device_died(struct cache_log *log, unsigned device, enum blk_status status);
void log_call_over(struct cache_log *log, enum cache_log_result result);
/* An empty ring, of log->label's identity, generation and epoch, on the devices that count. Then the call is over. */
void log_begin(struct cache_log *log, bool clean);

#endif
