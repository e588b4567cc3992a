/*
 * How long requests took: a histogram that is cheap to feed and to ask for a percentile. A value, pure.
 *
 * Buckets are eighths of powers of two, from 1 us on: a percentile is right within 9 %.
 */
#ifndef RAID_HISTOGRAM_H
#define RAID_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_STEPS = 8, HISTOGRAM_OCTAVES = 26, HISTOGRAM_BUCKETS = HISTOGRAM_STEPS * HISTOGRAM_OCTAVES };

struct histogram {
    uint64_t count, sum_ns;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *latency, uint64_t ns);
/* What came between two looks at the same histogram. */
void histogram_since(const struct histogram *now, const struct histogram *before, struct histogram *out);
/* Forget half of what was, and add what is new. */
void histogram_blend(struct histogram *old, const struct histogram *new);
/* 0: nothing was added. */
uint64_t histogram_percentile(const struct histogram *latency, unsigned percent);
uint64_t histogram_mean(const struct histogram *latency);

#endif
