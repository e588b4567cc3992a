/* See core/io_stats.h. */
#include "core/io_stats.h"

#include "core/check.h"

enum { US = 1000 };

static unsigned bucket_of(uint64_t ns)
{
    uint64_t us = ns / US;
    unsigned bucket = us == 0 ? 0 : 64 - (unsigned)__builtin_clzll(us);
    return MIN(bucket, (unsigned)IO_LATENCY_BUCKETS - 1);
}

uint64_t io_latency_below(unsigned bucket)
{
    return bucket < IO_LATENCY_BUCKETS - 1 ? (uint64_t)US << bucket : UINT64_MAX;
}

void io_stats_answered(struct io_stats *stats, enum io_kind kind, uint64_t latency_ns)
{
    io_count(&stats->commands[kind], 1);
    io_count(&stats->latency[bucket_of(latency_ns)], 1);
    io_count(&stats->latency_sum_ns, latency_ns);
}

static void add(uint64_t *sum, const uint64_t *counters, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        sum[i] += __atomic_load_n(&counters[i], __ATOMIC_RELAXED);
}

void io_stats_read(const struct io_stats *stats, struct io_stats *sum)
{
    add(sum->commands, stats->commands, IO_KINDS);
    add(&sum->read_bytes, &stats->read_bytes, 1);
    add(&sum->written_bytes, &stats->written_bytes, 1);
    add(sum->troubles, stats->troubles, IO_TROUBLES);
    add(sum->latency, stats->latency, IO_LATENCY_BUCKETS);
    add(&sum->latency_sum_ns, &stats->latency_sum_ns, 1);
}

uint64_t io_stats_commands(const struct io_stats *stats)
{
    uint64_t all = 0;
    for (unsigned i = 0; i < IO_KINDS; i++)
        all += stats->commands[i];
    return all;
}

uint64_t io_stats_percentile(const struct io_stats *stats, unsigned percent)
{
    uint64_t count = 0, seen = 0;
    for (unsigned i = 0; i < IO_LATENCY_BUCKETS; i++)
        count += stats->latency[i];
    for (unsigned i = 0; count > 0 && i < IO_LATENCY_BUCKETS; i++) {
        seen += stats->latency[i];
        if (seen * 100 >= count * percent)
            return io_latency_below(i);
    }
    return 0;
}
