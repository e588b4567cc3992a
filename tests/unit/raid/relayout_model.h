/*
 * Disks under a relayout, as small arrays of symbols, and a mover that goes by raid/relayout_plan.h: slow and obvious.
 *
 * A block of 4 KiB holds a symbol: a tag (data, 0 is zeroes), or the tags that a parity block was computed from; so
 * what can be recovered from what needs no codec. Disks have a cache: what was not flushed when the power fails is
 * there or not, each block for itself. Initiators' writes are whole, redundancy and all, and durable at once: the
 * write hole is not what this is about. A row that was never written reads as zeroes; that stands in the description.
 */
#ifndef TESTS_UNIT_RAID_RELAYOUT_MODEL_H
#define TESTS_UNIT_RAID_RELAYOUT_MODEL_H

#include "raid/relayout_plan.h"

enum { MODEL_BLOCK = 4096, MODEL_DISKS = 10, MODEL_DEPTH = 256, MODEL_DATA_MAX = 7, MODEL_VOLUME = 128 };

struct symbol {
    uint16_t tag[MODEL_DATA_MAX];
    bool parity;
};

/* A place of a disk, or of its log. */
struct cell {
    struct symbol medium, cache;
    bool dirty;
};

struct model {
    struct relayout r;
    /* What stands in the description: on all disks, durable at once. */
    uint64_t position, moving;
    bool replay;
    bool old_written[MODEL_VOLUME], new_written[MODEL_VOLUME]; /* rows */
    uint64_t lost;
    /* Memory. */
    struct relayout_step step;
    uint64_t step_done; /* rows of a free step that are written */
    uint16_t expected[MODEL_VOLUME], next_tag;
    uint64_t seed;
    uint64_t events, stop_at; /* the power fails at this event; 0: never */
    bool stopped;             /* it has: nothing is written any more */
    bool turned;
    unsigned depth, log_depth; /* cells that are used */
    struct cell disk[MODEL_DISKS][MODEL_DEPTH], log[MODEL_DISKS][MODEL_DEPTH];
};

/* Called at each event that changes something on a disk, before it. */
typedef void (*model_watch)(struct model *m, void *context);
struct model_options {
    model_watch watch;
    void *context;
    unsigned writes, losses, turns; /* chance of each at each opportunity, in 1,000 */
};

void model_init(struct model *m, const struct relayout *r, uint64_t seed, bool sparse);
void model_copy(struct model *to, const struct model *from);
/* Move, until the end or until the power fails. */
void model_run(struct model *m, const struct model_options *options);
/* The power fails; and comes back: what was logged is replayed. */
void model_crash(struct model *m);
void model_recover(struct model *m, const struct model_options *options);
/* NULL, or what is wrong: bytes that do not read back, or rows that are not whole. */
const char *model_verify(const struct model *m);

#endif
