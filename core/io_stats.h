/*
 * What somebody did: commands by kind, bytes both ways, what went wrong, and how long answers took.
 *
 * Written by one loop, a few plain stores a command; another one may look at any time (io_stats_read) and sees each
 * counter whole, though perhaps not all of the same moment.
 *
 * Latencies are counted by powers of two: bucket 0 below 1 us, bucket i from 2^(i-1) us up to 2^i us, the last one
 * everything from there on. Times are the loop's, which stand still within a turn: what is answered in the turn in
 * which it was asked counts as below 1 us.
 */
#ifndef CORE_IO_STATS_H
#define CORE_IO_STATS_H

#include <stdbool.h>
#include <stdint.h>

enum io_kind { IO_READ, IO_WRITE, IO_OTHER, IO_KINDS };
/* Answered with an error; given up, with no answer or one that says so; arrived with a wrong digest. */
enum io_trouble { IO_FAILED, IO_ABORTED, IO_BAD_DIGEST, IO_TROUBLES };
enum { IO_LATENCY_BUCKETS = 24 };

struct io_stats {
    uint64_t commands[IO_KINDS];
    uint64_t read_bytes, written_bytes;
    uint64_t troubles[IO_TROUBLES];
    uint64_t latency[IO_LATENCY_BUCKETS], latency_sum_ns;
};

static inline void io_count(uint64_t *counter, uint64_t more)
{
    __atomic_store_n(counter, *counter + more, __ATOMIC_RELAXED);
}

/* A command was answered. */
void io_stats_answered(struct io_stats *stats, enum io_kind kind, uint64_t latency_ns);
/* Add what `stats` holds now to `sum`, which is the caller's alone. */
void io_stats_read(const struct io_stats *stats, struct io_stats *sum);
uint64_t io_stats_commands(const struct io_stats *stats);

/* The latency in ns below which a bucket lies; UINT64_MAX: the last one. */
uint64_t io_latency_below(unsigned bucket);
/* ... below which `percent` of the answers lay; 0: there were none. */
uint64_t io_stats_percentile(const struct io_stats *stats, unsigned percent);

#endif
