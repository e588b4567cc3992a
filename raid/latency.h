/*
 * How long a disk takes: quantiles of latencies, and disks compared with their peers.
 *
 * A histogram has four steps to each power of two, so a quantile is right within a fourth. Values only; no allocation.
 *
 * Disks that serve one array are peers. Once per window the median of each disk's reads is held against the median of
 * the others'. More than twice as long in three windows, one after the other: it is slow. A disk that had few reads in
 * a window is not judged.
 */
#ifndef RAID_LATENCY_H
#define RAID_LATENCY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

enum { LATENCY_STEPS = 4, LATENCY_BUCKETS = 64 * LATENCY_STEPS };

struct latency {
    uint32_t total;
    uint32_t count[LATENCY_BUCKETS];
};

void latency_add(struct latency *latency, uint64_t ns);
/* Old samples count half from now on. */
void latency_fade(struct latency *latency);
/* Upper end of the bucket in which `percent` of the samples are reached; 0: there are none. */
uint64_t latency_quantile(const struct latency *latency, unsigned percent);

struct peers;

struct peer {
    TAILQ_ENTRY(peer) link;
    struct peers *peers;   /* NULL: none */
    struct latency window; /* of the window that runs */
    uint64_t median_ns;    /* of the one before; 0: few reads */
    unsigned slow_windows;
    bool slow;
};

struct peers {
    TAILQ_HEAD(, peer) list;
    uint64_t window_ns, window_end_ns;
    void (*changed)(struct peers *, struct peer *); /* peer->slow did */
};

#define PEERS_WINDOW_NS 300000000000ull /* the usual window */
enum { PEERS_SAMPLES_LEAST = 32, PEERS_SLOW_WINDOWS = 3 };

void peers_init(struct peers *peers, uint64_t window_ns, void (*changed)(struct peers *, struct peer *));
void peers_join(struct peers *peers, struct peer *peer);
void peers_leave(struct peer *peer); /* no effect on one that has no peers */
void peers_note(struct peer *peer, uint64_t ns, uint64_t now_ns);

#endif
