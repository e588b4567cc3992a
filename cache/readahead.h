/*
 * Read-ahead: which blocks are likely to be read next. A pure object: it is told of reads and answers with a plan.
 *
 * It follows up to READAHEAD_STREAMS streams at a time, each by the place where it goes on:
 *
 *      forward, backward   reads that touch; known by the second one
 *      strided             reads at a constant distance of at most STRIDE_MAX blocks; known by the third one
 *
 * For each stream two numbers adapt (AMP: Gill and Bathen, FAST 2007): the degree, how much is asked for at a time,
 * doubles when what was asked for was used, and is halved when some left unused; the trigger, how far from the end of
 * it the next is asked for, grows when a reader had to wait for a block that was on its way.
 *
 * ALWAYS brings besides, with each read that misses, the blocks next to it on both sides (cache/read.c).
 *
 * What was asked for is remembered in the order in which it was. What no stream comes to any more is stale: it takes the
 * room of other guesses, and leaves first.
 */
#ifndef CACHE_READAHEAD_H
#define CACHE_READAHEAD_H

#include <stdbool.h>
#include <stdint.h>

enum readahead_mode { READAHEAD_ADAPTIVE, READAHEAD_ALWAYS, READAHEAD_NONE };
enum { READAHEAD_STREAMS = 128, READAHEAD_RUNS = 8, READAHEAD_ASKED = 4096, READAHEAD_AROUND = 16, STRIDE_MAX = 256 };
enum stream_kind { STREAM_NEW, STREAM_FORWARD, STREAM_BACKWARD, STREAM_STRIDED };

struct readahead_run {
    uint64_t first;
    uint32_t count;
};

struct readahead_plan {
    uint32_t room;
    unsigned count;
    struct readahead_run runs[READAHEAD_RUNS];
};

struct readahead_stream {
    uint64_t first, end; /* blocks: of the last read; forward: end is the furthest */
    uint64_t edge;       /* forward: what is before it was asked for; backward: what is behind it */
    int64_t stride;
    uint64_t used;            /* when: counts reads */
    uint32_t degree, trigger; /* blocks; strided: steps */
    uint32_t steps;           /* strided: asked for, and not come to yet */
    uint8_t kind;
    uint8_t seen; /* reads, up to 255 */
};

struct readahead {
    enum readahead_mode mode;
    uint32_t row, most; /* blocks: ends are aligned to it; at most so many ahead, for all streams together */
    uint32_t established;
    uint64_t reads;
    struct readahead_stream streams[READAHEAD_STREAMS];
    uint32_t asked_first, asked_count; /* a ring, the oldest first */
    struct readahead_run asked[READAHEAD_ASKED];
};

void readahead_init(struct readahead *ahead, enum readahead_mode mode, uint32_t row, uint32_t most);
struct readahead_read {
    uint64_t first;
    uint32_t count; /* blocks */
    bool missed;    /* some were neither here nor on their way */
};
/* They were read: the plan for at most `room` blocks. */
void readahead_plan(struct readahead *ahead, const struct readahead_read *read, uint32_t room,
                    struct readahead_plan *plan);
/* This is on its way now, as planned. If more than READAHEAD_ASKED are not used, the oldest are forgotten. */
void readahead_asked(struct readahead *ahead, const struct readahead_run *run);
/* The oldest run that was asked for, and that no stream comes to; it is forgotten. False: none of the oldest few. */
bool readahead_stale(struct readahead *ahead, struct readahead_run *run);
/* A reader waits for this block, which was asked for by a plan and is on its way. */
void readahead_late(struct readahead *ahead, uint64_t block);
/* This block, asked for by a plan, left unused. */
void readahead_wasted(struct readahead *ahead, uint64_t block);

#endif
