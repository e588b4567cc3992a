/*
 * The pace of background work: how much of the disks' time a job may take, from how much the initiators feel of it.
 * Pure: times and histograms in, times out. raid/jobs.c asks before each unit (some rows that lie together).
 *
 *               a request                        baseline known
 *      IDLE -------------------> PROBING --------------------------> SHARING
 *       ^ ^                      |    ^                                |  |
 *       | +-- quiet for 100 ms --+    +----- every 5 s, or it ---------+  |
 *       |                                    seems to be outdated         |
 *       +------------------------- quiet for 100 ms ----------------------+
 *
 * IDLE     nobody but the job uses the disks: unit after unit, as deep as the window. What that costs is learnt here.
 * PROBING  no unit begins. When those under way are over, the latencies of the initiators' requests are a sample of
 *          what they are without the job: they are blended into the baseline.
 * SHARING  units begin at intervals, so that they take `share` of the disks' time: cost of a unit / interval. The share
 *          is moved in the manner of TCP: as long as the initiators' p95 and mean are within what the priority allows
 *          over the baseline it grows, else it shrinks at once; but never below PACE_FLOOR, so that no job starves.
 *
 * Priority p (1 to 99 %) allows latency to grow by 0.4 p / (1 - p): a tenth at 20 %, 40 % at 50 %, to 2.6 times at 80 %;
 * at 100 % the job takes no notice of anybody. The mean counts beside the p95, because a few units may make a few
 * requests very late; and with requests that follow each other it is their rate that the mean tells.
 *
 * The cost of a unit on each disk is its bytes at the rate that was learnt, and on rotating disks the way of the head.
 * Minimum and maximum rates are kept whatever the share is (while probing there is none). What is owed under a maximum
 * rate is owed through all phases: initiators that come and go make no job faster.
 */
#ifndef RAID_JOB_PACE_H
#define RAID_JOB_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "raid/histogram.h"

enum { PACE_PRIORITY = 20, PACE_FLOOR = 50000, PACE_ALL = 1000000 }; /* shares are millionths */

struct pace_limits {
    unsigned priority;           /* percent, 1 to 100 */
    uint64_t min_rate, max_rate; /* bytes of all members together a second; 0: none */
};

/* The job's next unit, or one that is over. */
struct pace_unit {
    uint64_t bytes;  /* of all members together */
    uint64_t stroke; /* of one member */
};

enum pace_phase { PACE_IDLE, PACE_PROBING, PACE_SHARING };

struct pace {
    enum pace_phase phase;
    bool rotational;
    uint64_t busy_until_ns; /* initiators count as idle from then on */
    uint64_t phase_ns;      /* since when; PROBING: since when no unit is under way */
    uint64_t probe_ns;      /* when the baseline is to be looked at again; PROBING: since when it is */
    bool settled;           /* PROBING: requests that met units are over */
    unsigned over;          /* times in a row that latency was too high at the floor */
    uint64_t share;
    uint64_t due_ns;          /* the next unit is not to begin before, by its share in this phase */
    uint64_t owed_ns;         /* nor before this, by the maximum rate */
    uint64_t seen, looked_ns; /* requests at the last look, and when that was */
    struct histogram mark, baseline, recent;
    /* What is learnt while IDLE: time a MiB takes each disk. */
    uint64_t mib_ns, strokes, learning_ns;
};

void pace_init(struct pace *pace, bool rotational);
/* Look at the initiators' latencies. `busy`: they have requests under way. `units`: how many of the job's are. */
void pace_look(struct pace *pace, const struct pace_limits *limits, uint64_t now_ns, const struct histogram *latency,
               bool busy, unsigned units);
/* When may the next unit begin? At or before now: at once. UINT64_MAX: not before another look. */
uint64_t pace_next_ns(const struct pace *pace, const struct pace_limits *limits);
void pace_begins(struct pace *pace, const struct pace_limits *limits, uint64_t now_ns, const struct pace_unit *unit);
/* Other limits hold from now on: what was owed under the old ones is forgotten. */
void pace_forgive(struct pace *pace, uint64_t now_ns);
void pace_over(struct pace *pace, uint64_t now_ns, const struct pace_unit *unit);
/* Is the job to make do with small units, because of others? */
bool pace_is_shared(const struct pace *pace, const struct pace_limits *limits);

/* By how much latency may grow: thousandths of the baseline; UINT64_MAX: without bounds. */
uint64_t pace_allowance(unsigned priority);

#endif
