/*
 * What may be read back, byte for byte, of a device whose requests overlap in time: a model, and a driver that works a
 * cache with a seed against it.
 *
 * Every change of a sector is an entry: its value, when it was submitted and when it was answered. An entry is
 * superseded when another change that began after it ended has itself ended: then no read that begins later may see it.
 * It is buried when that other change is durable: then it may not be seen after a power cut either. A change that
 * failed may or may not have happened, or yet happen, until another supersedes it; itself it supersedes nothing.
 *
 * With an arena the process is killed, several times, at any event and between any two steps of a change in the arena. The
 * next life begins with the arena as it was left, what is of no account in it scrambled, and with the disk as it was left,
 * what was in flight there done or not. An arena that outlives power loses what was not made persistent, 8 bytes at a
 * time, and the disk loses what was not flushed. An arena that is not claimed is formatted.
 *
 * So it is with a log, also while it is replayed; its devices lose what was not flushed, too. At first only some of them
 * may be there: then it is opened and nothing is missing, or it is not opened; with all of them it is.
 */
#ifndef TESTS_UNIT_CACHE_MODEL_H
#define TESTS_UNIT_CACHE_MODEL_H

#include "cache/cache.h"
#include "tests/unit/cache/trialdisk.h"

struct model_options {
    uint64_t seed;
    unsigned requests, depth; /* how many, and so many in flight */
    unsigned fail_percent;
    bool cut;           /* the power is cut in the middle; with a battery: when it is known, and all is drained */
    bool power_changes; /* the battery is healthy now and then */
    bool limit_changes; /* so is the limit of dirty data */
    bool hot;           /* a few places are asked for again and again */
    bool parity;        /* writing less than a row reads first: gaps are read */
    enum { MODEL_NO_ARENA, MODEL_ARENA, MODEL_PMEM } arena;
    unsigned log_devices, log_pages; /* 0: no log; of its ring */
    bool log_deaths;                 /* its devices fail, and come back in the next life */
    unsigned kills;                  /* at most */
    struct cache_options cache;
};

/* Runs it, and fails the test if a byte is not what it may be. */
void model_run(const struct model_options *options);

#endif
