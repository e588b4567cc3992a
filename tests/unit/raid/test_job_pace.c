/*
 * The pace of jobs on a load that is made up: a disk whose time is shared by initiators, who always have a request
 * waiting, and the job. A share s of the job's makes requests 1 / (1 - s) times as slow.
 */
#include <criterion/criterion.h>

#include "core/check.h"
#include "raid/job_pace.h"

static const struct pace_unit unit = {.bytes = 4 * MIB, .stroke = 1 * MIB};

struct load {
    struct pace pace;
    struct pace_limits limits;
    struct histogram latency;
    uint64_t now_ns, alone_ns; /* a request's latency without the job */
    bool requests;
    uint64_t units, begun_ns; /* since a time */
    double share;             /* of the job, smoothed */
    double answered;
};

static struct load load_of(unsigned priority, bool requests)
{
    struct load load = {.limits.priority = priority, .now_ns = 1000000000, .alone_ns = 500000, .requests = requests};
    pace_init(&load.pace, false);
    return load;
}

/* `unit_ns`: what a unit takes of the disk's time. */
static void load_run(struct load *load, uint64_t ns, uint64_t unit_ns)
{
    uint64_t end = load->now_ns + ns, over_ns = 0;
    load->units = 0;
    while (load->now_ns < end) {
        bool running = over_ns > load->now_ns;
        if (!running && over_ns != 0) {
            pace_over(&load->pace, load->now_ns, &unit);
            over_ns = 0;
        }
        pace_look(&load->pace, &load->limits, load->now_ns, &load->latency, load->requests, running);
        if (!running && pace_next_ns(&load->pace, &load->limits) <= load->now_ns) {
            pace_begins(&load->pace, &load->limits, load->now_ns, &unit);
            over_ns = load->now_ns + unit_ns;
            load->units++;
        }
        load->share += ((over_ns != 0) - load->share) / 50;
        uint64_t took = (uint64_t)((double)load->alone_ns / MAX(0.02, 1 - load->share));
        load->answered += load->requests ? 1e6 / (double)took : 0;
        if (load->requests)
            histogram_add(&load->latency, took);
        load->now_ns += 1000000;
    }
}

static double units_share(const struct load *load, uint64_t ns, uint64_t unit_ns)
{
    return (double)load->units * (double)unit_ns / (double)ns;
}

#define SECOND  1000000000ull
#define UNIT_NS 2000000ull

Test(job_pace, a_percentile_is_right_within_a_tenth)
{
    struct histogram latency = {0};
    for (uint64_t i = 1; i <= 1000; i++)
        histogram_add(&latency, i * 10000);
    cr_expect_eq(latency.count, 1000);
    cr_expect_eq(histogram_mean(&latency), 5005000);
    const unsigned percents[] = {10, 50, 95, 99};
    for (unsigned i = 0; i < 4; i++) {
        uint64_t want = percents[i] * 100000, have = histogram_percentile(&latency, percents[i]);
        cr_expect(have > want * 9 / 10 && have < want * 11 / 10, "p%u: %llu", percents[i], (unsigned long long)have);
    }
    struct histogram none = {0};
    cr_expect_eq(histogram_percentile(&none, 95), 0);
    histogram_add(&none, UINT64_MAX);
    histogram_add(&none, 0);
    cr_expect_gt(histogram_percentile(&none, 95), SECOND);
}

Test(job_pace, alone_it_goes_unit_after_unit)
{
    struct load load = load_of(PACE_PRIORITY, false);
    load_run(&load, SECOND, UNIT_NS);
    cr_expect_geq(load.units, 499);
    cr_expect(load.pace.mib_ns > 1800000 && load.pace.mib_ns < 2200000, "it learns what a MiB takes: %llu",
              (unsigned long long)load.pace.mib_ns);
}

Test(job_pace, beside_others_it_takes_what_its_priority_allows)
{
    static const struct {
        unsigned priority;
        double least, most; /* of the disk's time */
    } cases[] = {{1, 0.03, 0.08}, {20, 0.045, 0.105}, {50, 0.12, 0.33}, {80, 0.30, 0.66}, {100, 0.95, 1.01}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct load load = load_of(cases[i].priority, true);
        load_run(&load, 20 * SECOND, UNIT_NS);
        load_run(&load, 60 * SECOND, UNIT_NS);
        double share = units_share(&load, 60 * SECOND, UNIT_NS);
        cr_expect(share >= cases[i].least && share <= cases[i].most, "priority %u: %f", cases[i].priority, share);
    }
}

Test(job_pace, when_others_stop_it_goes_flat_out_within_a_tenth_of_a_second)
{
    struct load load = load_of(PACE_PRIORITY, true);
    load_run(&load, 5 * SECOND, UNIT_NS);
    load.requests = false;
    load_run(&load, SECOND / 5, UNIT_NS);
    cr_expect_geq(load.units, 45);
    load.requests = true;
    load_run(&load, SECOND, UNIT_NS);
    cr_expect_lt(load.units, 170, "and holds back when they are there again: %llu", (unsigned long long)load.units);
}

Test(job_pace, a_load_that_has_become_slower_is_a_new_baseline)
{
    struct load load = load_of(50, true);
    load_run(&load, 20 * SECOND, UNIT_NS);
    load.alone_ns *= 4;
    load_run(&load, 20 * SECOND, UNIT_NS);
    load_run(&load, 20 * SECOND, UNIT_NS);
    double share = units_share(&load, 20 * SECOND, UNIT_NS);
    cr_expect(share > 0.12 && share < 0.33, "%f", share);
}

Test(job_pace, a_minimum_and_a_maximum_rate_are_kept)
{
    struct load load = load_of(1, true);
    load.limits.min_rate = 400 * MIB; /* 100 units a second: a fifth of the time */
    load_run(&load, 20 * SECOND, UNIT_NS);
    cr_expect_geq(load.units, 1600, "%llu", (unsigned long long)load.units);
    load = load_of(80, false);
    load.limits.max_rate = 40 * MIB;
    load_run(&load, 20 * SECOND, UNIT_NS);
    cr_expect(load.units >= 195 && load.units <= 206, "%llu", (unsigned long long)load.units);
}

Test(job_pace, a_maximum_rate_is_kept_beside_initiators_that_come_and_go)
{
    static const unsigned priorities[] = {1, PACE_PRIORITY, 80, 100};
    for (unsigned i = 0; i < ARRAY_LENGTH(priorities); i++) {
        struct load load = load_of(priorities[i], false);
        uint64_t units = 0;
        load.limits.max_rate = 2 * MIB; /* a unit in two seconds */
        for (unsigned k = 0; k < 100; k++) {
            load.requests = k % 2 == 1;
            load_run(&load, SECOND / 5 * 2, UNIT_NS);
            units += load.units;
        }
        cr_expect(units >= 15 && units <= 21, "priority %u: %llu units in 40 s", priorities[i],
                  (unsigned long long)units);
    }
}

Test(job_pace, an_initiator_whose_request_never_ends_does_not_stop_it)
{
    struct pace pace;
    struct pace_limits limits = {.priority = PACE_PRIORITY};
    struct histogram latency = {0};
    unsigned begun = 0;
    pace_init(&pace, true);
    for (uint64_t now = SECOND; now < 61 * SECOND; now += 1000000) {
        pace_look(&pace, &limits, now, &latency, true, 0);
        if (pace_next_ns(&pace, &limits) > now)
            continue;
        pace_begins(&pace, &limits, now, &unit);
        begun++;
    }
    cr_expect_gt(begun, 60, "%u units in a minute", begun);
}
