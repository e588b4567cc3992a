/* See raid/histogram.h. */
#include "raid/histogram.h"

#include "core/check.h"

enum { UNIT_NS = 1024 }; /* of the first bucket's octave */

static unsigned bucket_of(uint64_t ns)
{
    uint64_t units = ns / (UNIT_NS / HISTOGRAM_STEPS);
    if (units < HISTOGRAM_STEPS)
        return 0;
    unsigned octave = 63 - (unsigned)__builtin_clzll(units) - 3; /* units is in [8, 16) << octave */
    unsigned bucket = octave * HISTOGRAM_STEPS + (unsigned)(units >> octave) - HISTOGRAM_STEPS;
    return MIN(bucket, HISTOGRAM_BUCKETS - 1);
}

/* The middle of a bucket. */
static uint64_t bucket_ns(unsigned bucket)
{
    uint64_t units = HISTOGRAM_STEPS + bucket % HISTOGRAM_STEPS;
    return (2 * units + 1) * (UNIT_NS / HISTOGRAM_STEPS / 2) << bucket / HISTOGRAM_STEPS;
}

void histogram_add(struct histogram *latency, uint64_t ns)
{
    latency->count++;
    latency->sum_ns += ns;
    latency->buckets[bucket_of(ns)]++;
}

void histogram_since(const struct histogram *now, const struct histogram *before, struct histogram *out)
{
    out->count = now->count - before->count;
    out->sum_ns = now->sum_ns - before->sum_ns;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        out->buckets[i] = now->buckets[i] - before->buckets[i];
}

void histogram_blend(struct histogram *old, const struct histogram *new)
{
    old->count = new->count;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        old->buckets[i] = old->buckets[i] / 2 + new->buckets[i];
        old->count += old->buckets[i] - new->buckets[i];
    }
    old->sum_ns = old->sum_ns / 2 + new->sum_ns;
}

uint64_t histogram_percentile(const struct histogram *latency, unsigned percent)
{
    uint64_t rank = latency->count * percent / 100, seen = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += latency->buckets[i];
        if (seen > rank)
            return bucket_ns(i);
    }
    return 0;
}

uint64_t histogram_mean(const struct histogram *latency)
{
    return latency->count > 0 ? latency->sum_ns / latency->count : 0;
}
