/*
 * What may read back from a volume.
 *
 * For every block of 512 bytes the model knows the writes that it may hold: each has a time at which it was submitted
 * and one at which it was answered. A write supersedes another that was answered before it was submitted: for reads
 * when it was answered well, for what a loss of power leaves when it is durable (FUA, or a flush that began after it
 * was answered). Writes that were under way together have no order, and those that were answered with an error, or not
 * at all, may have happened. A read that finds one of several puts the others aside, where the volume promises that:
 * in rows whose redundancy is right, with no write to the block under way.
 *
 * The one exception is the write hole: see model_chunk_lost() in model_hole.c.
 *
 * With a cache before the volume (`cached`) what initiators ask for and what the array is asked for are two things. The
 * blocks follow the former; rows, and what may be wrong with their redundancy, the latter, which is told apart from it
 * (model_below_*). What an answer promises depends on what protects the cache: enum model_promise.
 */
#ifndef TESTS_SIM_MODEL_H
#define TESTS_SIM_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "raid/superblock.h"

enum { MODEL_ENTRIES = 8, MODEL_READS = 64 };

/* What a change that was answered well outlives. */
enum model_promise {
    MODEL_SEEN,    /* nothing: it can be read */
    MODEL_KEPT,    /* the process */
    MODEL_DURABLE, /* a loss of power too */
};
/* Who asked: an initiator, of the volume itself; of a cache before it; the cache, of the volume. */
enum model_side { MODEL_DIRECT, MODEL_ABOVE, MODEL_BELOW };

/* One write, discard, or other reason for a block to hold something. Number 0 is what the volume was created with. */
struct model_op {
    uint64_t off, len, submit, answer; /* answer: UINT64_MAX while under way */
    enum model_side side;
    bool ok, kept, durable;
    bool zero;    /* zeroes */
    bool any;     /* bytes that nobody knows */
    bool settled; /* what it may have done to its rows' redundancy is noted in `hole` */
};

struct model_cell {
    unsigned count;
    struct model_entry {
        uint32_t op;
        uint64_t aside; /* when a read found another one; UINT64_MAX: not */
    } of[MODEL_ENTRIES];
};

/* Of a row: may its redundancy be wrong? */
enum {
    HOLE_OPEN = 1,   /* it was being written at a crash, and no resync has been there since */
    HOLE_SOFT = 2,   /* a resync has, but a loss of power may undo that */
    HOLE_BROKEN = 4, /* a write was answered with an error by an array that goes on: no resync is due */
};

struct model {
    struct layout layout;
    enum sb_consistency consistency;
    unsigned first_slot;
    bool cached;
    uint64_t size, rows, clock;
    struct model_cell **cells; /* by sector; NULL: as created */
    uint32_t *touched;         /* sectors whose cell is not NULL */
    uint32_t touched_count;
    struct model_op *ops;
    uint32_t ops_count, ops_room;
    uint64_t reads[MODEL_READS]; /* submit times of reads under way; 0: free */
    uint8_t *hole;               /* by row */
    uint8_t *mended; /* by sector of a chunk, row by row: written since the last crash, with its redundancy */
    uint8_t *torn;   /* by sector, of rows in HOLE_OPEN: was being written with other chunks of its row */
    uint8_t *unsure; /* by row: the cache has read from it while its redundancy was not known to be right */
};

/* `garbage`: nobody knows what was on the disks before; else they were zero. */
struct model *model_create(const struct layout *layout, enum sb_consistency consistency, unsigned first_slot,
                           uint64_t size, bool garbage);
struct model *model_clone(const struct model *model);
void model_destroy(struct model *model);

/* A change is submitted: its number, or 0 if the model has no room to follow it (then do not). */
uint32_t model_change(struct model *model, uint64_t off, uint64_t len, bool zero, bool any);
void model_changed(struct model *model, uint32_t op, bool ok, enum model_promise promise);
/* The bytes of a write, for the sector at `off`. */
void model_bytes(uint32_t op, uint64_t off, uint8_t *out);

/* A flush is submitted: hand its time back when it was answered well. */
uint64_t model_flush(struct model *model);
void model_flushed(struct model *model, uint64_t submitted);

/* The same of what a cache asks of the volume: for the rows' sake. */
uint32_t model_below_change(struct model *model, uint64_t off, uint64_t len);
void model_below_changed(struct model *model, uint32_t op, bool ok, bool durable, bool mends);
void model_below_flushed(struct model *model, uint64_t submitted);
/* A cache begins: it knows nothing. */
void model_cache_begins(struct model *model, bool cached);
/* It ends, and nobody knows whether it could write down what it had: what was not kept may be lost; `kept`: that too,
 * where it was not durable. */
void model_cache_lost(struct model *model, bool kept);
/* The cache reads from these rows while they are not whole. */
void model_cache_unsure(struct model *model, uint64_t off, uint64_t len);

/* A read is submitted: its number, for model_read(). */
unsigned model_read_begin(struct model *model);
void model_read_end(struct model *model, unsigned number);
/* Bytes were read from `off`: true, or a sentence in `why` about the first block that is wrong. Before
 * model_read_end(). */
bool model_read(struct model *model, unsigned number, uint64_t off, uint64_t len, const uint8_t *bytes, char *why,
                uint64_t why_len);
/* Of a read that was right: what was not found is put aside. */
void model_read_settles(struct model *model, unsigned number, uint64_t off, uint64_t len, const uint8_t *bytes);

/* Everything under way will never be answered. `power`: caches are lost too. */
void model_crash(struct model *model, bool power);

/* --- model_hole.c --- */

/* The redundancy of this row is right, `saved`: for good. */
void model_row_synced(struct model *model, uint64_t row, bool saved);
/* The chunk of this slot (of the array) cannot be counted on any more; `synced`: the redundancy of the row is right. */
void model_chunk_lost(struct model *model, unsigned slot, uint64_t row, bool synced);
/* A change was answered with an error; does the array go on, or has it frozen, so that a resync is due? */
void model_row_broken(struct model *model, uint64_t off, uint64_t len, bool goes_on);
/* A write was answered well. */
void model_rows_mended(struct model *model, uint64_t off, uint64_t len);
/* Is there a row in the hole with columns that were written since? */
bool model_hole_is_mended(const struct model *model);
bool model_row_is_whole(const struct model *model, uint64_t row, bool synced);
void model_hole_crash(struct model *model, bool power);
/* Nobody knows what this range holds from now on. */
void model_forget(struct model *model, uint64_t off, uint64_t len);

#endif
