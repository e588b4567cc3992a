/* See raid/job_pace.h. */
#include "raid/job_pace.h"

#include "core/check.h"

#define BUSY_NS    100000000ull  /* after their last request initiators count as busy */
#define PROBE_NS   5000000000ull /* between looks at the baseline */
#define RETRY_NS   1000000000ull /* the same, when the floor is still too much */
#define SAMPLE_NS  100000000ull  /* a sample: at least so long, and so many; or longer, and fewer */
#define LONG_NS    500000000ull
#define SETTLE_NS  100000000ull /* at most, until requests that met a unit are over */
#define LEARN_NS   50000000ull
#define GIVE_UP_NS 2000000000ull /* at most so long a look */
#define BURST_NS   200000000ull  /* how far a job may lag behind and still catch up */
#define SEEK_NS    8000000ull
#define HDD_MIB_NS 7000000ull /* until it is learnt */
#define SSD_MIB_NS 2000000ull

enum { SAMPLES = 64, SAMPLES_FEW = 8, OVER_OFTEN = 3, STEP = 5000 };

void pace_init(struct pace *pace, bool rotational)
{
    *pace = (struct pace){
        .rotational = rotational,
        .share = PACE_FLOOR,
        .mib_ns = rotational ? HDD_MIB_NS : SSD_MIB_NS,
    };
}

uint64_t pace_allowance(unsigned priority)
{
    return priority >= 100 ? UINT64_MAX : 400ull * priority / (100 - priority);
}

/* --- phases --- */

static void phase_begin(struct pace *pace, enum pace_phase phase, uint64_t now_ns, const struct histogram *latency)
{
    pace->phase = phase;
    pace->phase_ns = now_ns;
    pace->settled = false;
    pace->mark = *latency;
    pace->strokes = 0;
    pace->learning_ns = now_ns;
    pace->due_ns = phase == PACE_SHARING ? now_ns : 0;
}

/* Since the mark: are there enough requests to say something? */
static bool sample_take(const struct pace *pace, uint64_t now_ns, const struct histogram *latency,
                        struct histogram *sample)
{
    uint64_t count = latency->count - pace->mark.count, took_ns = now_ns - pace->phase_ns;
    if ((count < SAMPLES || took_ns < SAMPLE_NS) && (count < SAMPLES_FEW || took_ns < LONG_NS))
        return false;
    histogram_since(latency, &pace->mark, sample);
    return true;
}

static void probe_begin(struct pace *pace, uint64_t now_ns, const struct histogram *latency)
{
    pace->probe_ns = now_ns;
    phase_begin(pace, PACE_PROBING, now_ns, latency);
}

static void probe_end(struct pace *pace, uint64_t now_ns, const struct histogram *latency)
{
    pace->over = 0;
    pace->probe_ns = now_ns + PROBE_NS;
    phase_begin(pace, PACE_SHARING, now_ns, latency);
}

/* Requests that met a unit spoil the sample: they are waited for as long as requests have taken lately. */
static void probe(struct pace *pace, uint64_t now_ns, const struct histogram *latency, unsigned units)
{
    struct histogram sample;
    if (now_ns - pace->probe_ns >= GIVE_UP_NS) {
        probe_end(pace, now_ns, latency);
        return;
    }
    if (units > 0)
        pace->phase_ns = now_ns;
    if (!pace->settled) {
        if (units > 0 || now_ns - pace->phase_ns < MIN(SETTLE_NS, 2 * histogram_percentile(&pace->recent, 95)))
            return;
        pace->settled = true;
        pace->mark = *latency;
        pace->phase_ns = now_ns;
    }
    if (!sample_take(pace, now_ns, latency, &sample))
        return;
    histogram_blend(&pace->baseline, &sample);
    probe_end(pace, now_ns, latency);
}

/* Thousandths by which `now` is above `before`. */
static uint64_t growth(uint64_t now, uint64_t before)
{
    return now <= before || before == 0 ? 0 : (now - before) * 1000 / before;
}

static void share_move(struct pace *pace, uint64_t allowance)
{
    if (pace->baseline.count == 0)
        return;
    uint64_t p95 = growth(histogram_percentile(&pace->recent, 95), histogram_percentile(&pace->baseline, 95));
    uint64_t mean = growth(histogram_mean(&pace->recent), histogram_mean(&pace->baseline)), grown = MAX(p95, mean);
    if (grown <= allowance / 4)
        pace->share += MAX(pace->share / 2, (uint64_t)STEP);
    else if (grown <= allowance / 2)
        pace->share += MAX(pace->share / 8, (uint64_t)STEP);
    else if (grown <= allowance / 4 * 3) /* what is felt of a step comes late */
        pace->share += STEP;
    else
        pace->share = grown > 2 * allowance ? pace->share / 2 : pace->share / 8 * 7;
    pace->over = grown > allowance && pace->share < PACE_FLOOR ? pace->over + 1 : 0;
    pace->share = MAX((uint64_t)PACE_FLOOR, MIN((uint64_t)PACE_ALL, pace->share));
}

static void share(struct pace *pace, const struct pace_limits *limits, uint64_t now_ns, const struct histogram *latency)
{
    struct histogram sample;
    if (sample_take(pace, now_ns, latency, &sample)) {
        histogram_blend(&pace->recent, &sample);
        pace->mark = *latency;
        pace->phase_ns = now_ns;
        share_move(pace, pace_allowance(limits->priority));
    }
    bool outdated = pace->over >= OVER_OFTEN && now_ns + PROBE_NS >= pace->probe_ns + RETRY_NS;
    if (outdated || now_ns >= pace->probe_ns)
        probe_begin(pace, now_ns, latency);
}

void pace_look(struct pace *pace, const struct pace_limits *limits, uint64_t now_ns, const struct histogram *latency,
               bool busy, unsigned units)
{
    bool lately = latency->count != pace->seen && now_ns - pace->looked_ns <= BUSY_NS; /* else: who knows when */
    if (busy || lately)
        pace->busy_until_ns = now_ns + BUSY_NS;
    pace->seen = latency->count;
    pace->looked_ns = now_ns;
    bool others = now_ns < pace->busy_until_ns;
    if (!others && pace->phase != PACE_IDLE)
        phase_begin(pace, PACE_IDLE, now_ns, latency);
    else if (others && pace->phase == PACE_IDLE && pace->baseline.count > 0 && now_ns < pace->probe_ns)
        phase_begin(pace, PACE_SHARING, now_ns, latency);
    else if (others && pace->phase == PACE_IDLE)
        probe_begin(pace, now_ns, latency);
    else if (pace->phase == PACE_PROBING)
        probe(pace, now_ns, latency, units);
    else if (pace->phase == PACE_SHARING)
        share(pace, limits, now_ns, latency);
}

/* --- units --- */

bool pace_is_shared(const struct pace *pace, const struct pace_limits *limits)
{
    return pace->phase != PACE_IDLE && limits->priority < 100;
}

uint64_t pace_next_ns(const struct pace *pace, const struct pace_limits *limits)
{
    return pace->phase == PACE_PROBING && limits->priority < 100 ? UINT64_MAX : MAX(pace->due_ns, pace->owed_ns);
}

static uint64_t rate_ns(uint64_t bytes, uint64_t rate)
{
    return (uint64_t)((unsigned __int128)bytes * 1000000000 / rate);
}

static uint64_t interval_ns(const struct pace *pace, const struct pace_limits *limits, const struct pace_unit *unit)
{
    uint64_t interval = 0;
    if (pace_is_shared(pace, limits)) {
        uint64_t cost = unit->stroke * (pace->mib_ns / KIB) / KIB + (pace->rotational ? SEEK_NS : 0);
        interval = cost * PACE_ALL / pace->share;
    }
    if (limits->min_rate != 0)
        interval = MIN(interval, rate_ns(unit->bytes, limits->min_rate));
    return interval;
}

static uint64_t advance(uint64_t due_ns, uint64_t interval, uint64_t now_ns)
{
    return MAX(due_ns + interval, now_ns + interval > BURST_NS ? now_ns + interval - BURST_NS : 0);
}

void pace_begins(struct pace *pace, const struct pace_limits *limits, uint64_t now_ns, const struct pace_unit *unit)
{
    pace->due_ns = advance(pace->due_ns, interval_ns(pace, limits, unit), now_ns);
    if (limits->max_rate != 0)
        pace->owed_ns = advance(pace->owed_ns, rate_ns(unit->bytes, limits->max_rate), now_ns);
}

void pace_forgive(struct pace *pace, uint64_t now_ns)
{
    pace->due_ns = MIN(pace->due_ns, now_ns);
    pace->owed_ns = MIN(pace->owed_ns, now_ns);
}

void pace_over(struct pace *pace, uint64_t now_ns, const struct pace_unit *unit)
{
    if (pace->phase != PACE_IDLE || MAX(pace->due_ns, pace->owed_ns) > now_ns) { /* not as fast as it goes */
        pace->strokes = 0;
        pace->learning_ns = now_ns;
        return;
    }
    pace->strokes += unit->stroke;
    uint64_t took = now_ns - pace->learning_ns;
    if (took < LEARN_NS || pace->strokes < MIB)
        return;
    uint64_t mib_ns = took * KIB / (pace->strokes / KIB);
    pace->mib_ns = (pace->mib_ns + mib_ns) / 2;
    pace->strokes = 0;
    pace->learning_ns = now_ns;
}
