/* See cache/throttle.h. */
#include "cache/throttle.h"

#include "core/check.h"

#define SAMPLE_NS 50000000ull

static void sample(struct throttle *t, uint64_t now_ns)
{
    if (!t->busy)
        return;
    t->busy_ns += now_ns - t->since_ns;
    t->since_ns = now_ns;
    if (t->busy_ns < SAMPLE_NS)
        return;
    uint64_t rate = t->bytes * 1000 / (t->busy_ns / 1000000);
    t->rate = t->rate == 0 ? rate : (t->rate * 3 + rate) / 4;
    t->busy_ns = t->bytes = 0;
}

void throttle_busy(struct throttle *t, uint64_t now_ns, bool busy)
{
    sample(t, now_ns);
    t->busy = busy;
    t->since_ns = now_ns;
}

void throttle_left(struct throttle *t, uint64_t now_ns, uint64_t bytes)
{
    t->bytes += bytes;
    sample(t, now_ns);
}

unsigned throttle_pressure(unsigned fill_permille, unsigned high_percent)
{
    unsigned high = high_percent * 10;
    if (fill_permille <= high || high >= 1000)
        return 0;
    return 2 * PRESSURE_ONE * (fill_permille - high) / (1000 - high);
}

void throttle_forget(struct throttle *t)
{
    t->clock_ns = 0;
}

uint64_t throttle_due_ns(struct throttle *t, uint64_t now_ns, uint64_t bytes, unsigned pressure)
{
    if (pressure == 0 || t->rate == 0)
        return MAX(now_ns, t->clock_ns);
    uint64_t takes_ns = bytes * 1000000 / MAX(t->rate / 1000, 1u);
    t->clock_ns = MAX(now_ns, t->clock_ns) + takes_ns * pressure / PRESSURE_ONE;
    return t->clock_ns;
}
