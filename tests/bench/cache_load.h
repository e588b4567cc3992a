/*
 * Load in virtual time: clients that ask a device one thing after the other, or requests that come at a rate.
 *
 * A client sends a request, then, if it is told so, a flush, and when that is answered the next one. With a rate
 * requests come by themselves, at random distances of that mean, whoever still waits; then `clients` is how many may
 * wait at a time, and who comes then is `turned away`: counted, and gone.
 */
#ifndef TESTS_BENCH_CACHE_LOAD_H
#define TESTS_BENCH_CACHE_LOAD_H

#include "tests/unit/lib/testloop.h"

struct load;

struct load_options {
    struct blkdev *dev;
    enum blk_op op;
    uint64_t bytes;                                   /* of a request */
    uint64_t span;                                    /* of the device, from its beginning */
    uint64_t (*next)(struct load *, unsigned client); /* where */
    unsigned clients;
    bool flush;               /* behind each */
    double rate;              /* requests a second; 0: clients */
    uint64_t count;           /* requests to send; or */
    uint64_t warm_ns, run_ns; /* for how long: what comes in the first part is not counted */
    uint64_t seed;
    void *data; /* next()'s */
};

struct load {
    struct load_options options;
    struct testloop *t;
    uint64_t begin_ns, end_ns;
    uint64_t sent, turned_away;
    uint64_t answered, *latencies_ns, room; /* of those that count; in order of size when it is over */
    double a_second;
    struct load_client *clients;
    unsigned busy;
    struct timer arrival, end;
    bool stopping, over;
};

struct load *load_run(struct testloop *t, const struct load_options *options);
void load_free(struct load *load);
/* Of all, this share took so long at most: 0.5, 0.99, ...; 1: the longest. */
uint64_t load_percentile_ns(const struct load *load, double share);

uint64_t load_sequential(struct load *load, unsigned client); /* one after the other, from the beginning, round */
uint64_t load_random(struct load *load, unsigned client);     /* aligned to its size, everywhere alike */

#endif
