/* The order in which things are saved when the mains fail, in virtual time. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/check.h"
#include "daemon/power_order.h"

#define S(n) ((n)*1000000000ull)

/* A machine with a command and a source, on mains; caches carry out each drain at once if `drains`. */
struct rig {
    struct power_order order;
    struct order_facts facts;
    uint64_t now_ns;
    bool drains;
    unsigned steps, runs;
    const char *words; /* of the last step */
};

static struct rig rig_on_mains(void)
{
    struct rig rig = {
        .facts = {.state = POWER_ONLINE, .source = true, .command = true, .runtime_s = 1200, .shutdown_s = 60},
        .now_ns = S(1000),
        .drains = true};
    power_order_init(&rig.order);
    return rig;
}

/* All steps that are due after so much time. The phase then. */
static enum order_phase after(struct rig *rig, uint64_t ns)
{
    struct order_step step;
    rig->now_ns += ns;
    if (rig->drains)
        rig->facts.load.drained = rig->order.drain;
    while ((step = power_order_look(&rig->order, &rig->facts, rig->now_ns)).words != NULL) {
        rig->steps++;
        rig->words = step.words;
        rig->runs += step.run;
    }
    return power_order_phase(&rig->order);
}

static enum order_phase when(struct rig *rig, enum power_state state, uint64_t runtime_s)
{
    rig->facts.state = state;
    rig->facts.runtime_s = runtime_s;
    return after(rig, 0);
}

Test(power_order, on_mains_nothing_is_done)
{
    struct rig rig = rig_on_mains();
    cr_expect_eq(after(&rig, S(1)), ORDER_MAINS);
    cr_expect_eq(when(&rig, POWER_UNKNOWN, POWER_RUNTIME_UNKNOWN), ORDER_MAINS);
    cr_expect_eq(when(&rig, POWER_ONLINE, 0), ORDER_MAINS, "a run time of nothing is no news on mains");
    cr_expect(rig.steps == 0 && rig.order.drain == 0 && !power_order_rests(&rig.order));
}

Test(power_order, mains_that_fail_are_a_drain_and_a_rest_until_they_are_back)
{
    struct rig rig = rig_on_mains();
    rig.drains = false;
    cr_expect_eq(when(&rig, POWER_ON_BATTERY, 1200), ORDER_SAVING);
    cr_expect(rig.order.drain == 1 && power_order_rests(&rig.order));
    cr_expect_eq(after(&rig, S(500)), ORDER_SAVING, "caches are not empty yet");
    rig.drains = true;
    cr_expect_eq(after(&rig, 0), ORDER_SAVED);
    cr_expect(rig.order.drain == 1 && power_order_rests(&rig.order));
    cr_expect_eq(when(&rig, POWER_ONLINE, 1200), ORDER_MAINS);
    cr_expect(!power_order_rests(&rig.order) && rig.runs == 0 && rig.steps == 3);
    cr_expect_not_null(strstr(rig.words, "the mains are back"));
    rig.drains = false;
    cr_expect_eq(when(&rig, POWER_ON_BATTERY, 1200), ORDER_SAVING);
    cr_expect_eq(rig.order.drain, 2, "each time anew");
    cr_expect_eq(when(&rig, POWER_ONLINE, 1200), ORDER_MAINS, "before caches are empty");
}

Test(power_order, a_low_battery_is_one_more_drain_and_then_the_command)
{
    struct rig rig = rig_on_mains();
    when(&rig, POWER_ON_BATTERY, 1200);
    cr_expect_eq(after(&rig, S(1)), ORDER_SAVED);
    rig.drains = false;
    cr_expect_eq(when(&rig, POWER_LOW, 500), ORDER_LAST);
    cr_expect(rig.order.drain == 2 && rig.runs == 0, "not before that drain");
    cr_expect_not_null(strstr(rig.words, "the battery is low"));
    cr_expect_eq(after(&rig, S(1)), ORDER_LAST);
    cr_expect_not(power_order_hurries(&rig.order));
    rig.drains = true;
    cr_expect_eq(after(&rig, 0), ORDER_COMMAND);
    cr_expect(power_order_hurries(&rig.order));
    cr_expect_eq(rig.runs, 1);
    cr_expect_not_null(strstr(rig.words, "all caches are empty"));
    cr_expect_eq(after(&rig, S(30)), ORDER_COMMAND, "it runs");
    power_order_ran(&rig.order, true, rig.now_ns);
    cr_expect_eq(after(&rig, 0), ORDER_OVER);
    cr_expect_eq(after(&rig, S(3600)), ORDER_OVER);
    cr_expect_eq(rig.runs, 1, "once");
    cr_expect_eq(when(&rig, POWER_ONLINE, 1200), ORDER_MAINS, "whoever is still there goes on");
    when(&rig, POWER_ON_BATTERY, 1200);
    after(&rig, 0);
    when(&rig, POWER_LOW, 1);
    after(&rig, 0);
    cr_expect_eq(rig.runs, 2, "and again with the next failure");
}

/* From low at once: the same order. */
Test(power_order, what_is_low_from_the_beginning_is_saved_first)
{
    struct rig rig = rig_on_mains();
    rig.drains = false;
    cr_expect_eq(when(&rig, POWER_LOW, 100), ORDER_LAST);
    cr_expect(rig.steps == 2 && rig.order.drain == 2 && rig.runs == 0);
    rig.drains = true;
    cr_expect_eq(after(&rig, 0), ORDER_COMMAND);
}

Test(power_order, the_budget_is_what_is_dirty_by_its_rate_and_the_time_to_stop)
{
    struct rig rig = rig_on_mains();
    rig.drains = false;
    rig.facts.load = (struct power_load){.dirty_bytes = 300000000, .seconds = 40};
    cr_expect_eq(power_order_needs(&rig.facts), 100);
    cr_expect_eq(when(&rig, POWER_ON_BATTERY, 100), ORDER_SAVING, "just enough");
    rig.facts.load.seconds = 30;
    cr_expect_eq(when(&rig, POWER_ON_BATTERY, 90), ORDER_SAVING, "it falls as caches get empty");
    cr_expect_eq(when(&rig, POWER_ON_BATTERY, 89), ORDER_LAST, "not low, but not enough");
    cr_expect_not_null(strstr(rig.words, "no longer than is needed"));

    rig = rig_on_mains();
    when(&rig, POWER_ON_BATTERY, 1200);
    cr_expect_eq(after(&rig, 0), ORDER_SAVED);
    cr_expect_eq(when(&rig, POWER_ON_BATTERY, 60), ORDER_SAVED);
    cr_expect_eq(when(&rig, POWER_ON_BATTERY, 59), ORDER_LAST, "nothing is dirty: the time to stop alone");
    cr_expect_eq(after(&rig, 0), ORDER_COMMAND);

    rig = rig_on_mains();
    rig.facts.load.seconds = UINT64_MAX - 1;
    cr_expect_eq(power_order_needs(&rig.facts), UINT64_MAX);
    cr_expect_eq(when(&rig, POWER_ON_BATTERY, POWER_RUNTIME_UNKNOWN), ORDER_SAVING, "unknown is not short");
}

/* How long LAST takes if caches do not get empty, in tenths of a second. */
static unsigned last_tenths(enum power_state state, uint64_t runtime_s, uint64_t shutdown_s, uint64_t dirty_s)
{
    struct rig rig = rig_on_mains();
    unsigned tenths = 0;
    rig.drains = false;
    rig.facts.shutdown_s = shutdown_s;
    rig.facts.load.seconds = dirty_s;
    cr_assert_eq(when(&rig, state, runtime_s), ORDER_LAST);
    while (rig.runs == 0 && tenths < 100000) {
        after(&rig, S(1) / 10);
        tenths++;
    }
    cr_expect_not_null(strstr(rig.words, "not all caches are empty"));
    return tenths;
}

Test(power_order, the_last_drain_has_what_is_left_less_the_time_to_stop)
{
    cr_expect_eq(last_tenths(POWER_ON_BATTERY, 100, 60, 41), 400);
    cr_expect_eq(last_tenths(POWER_ON_BATTERY, 3600, 60, 5000), 35400, "with a battery that is not low, all of it");
    cr_expect_eq(last_tenths(POWER_LOW, 100, 60, 0), 400);
    cr_expect_eq(last_tenths(POWER_LOW, 61, 60, 0), 20, "two seconds at least");
    cr_expect_eq(last_tenths(POWER_LOW, 10, 60, 0), 20);
    cr_expect_eq(last_tenths(POWER_LOW, 3600, 60, 0), 600, "a minute at most once it is low");
    cr_expect_eq(last_tenths(POWER_LOW, POWER_RUNTIME_UNKNOWN, 60, 0), 600);
}

Test(power_order, the_time_of_the_last_drain_only_shrinks)
{
    struct rig rig = rig_on_mains();
    rig.drains = false;
    rig.facts.load.seconds = 100;
    cr_assert_eq(when(&rig, POWER_ON_BATTERY, 110), ORDER_LAST); /* 50 s */
    cr_expect_eq(after(&rig, S(10)), ORDER_LAST);
    when(&rig, POWER_ON_BATTERY, 80); /* 20 s from now */
    when(&rig, POWER_ON_BATTERY, 2000);
    cr_expect_eq(after(&rig, S(19)), ORDER_LAST);
    cr_expect_eq(after(&rig, S(1)), ORDER_COMMAND);
}

Test(power_order, mains_that_are_back_before_the_command_call_it_off)
{
    struct rig rig = rig_on_mains();
    rig.drains = false;
    when(&rig, POWER_LOW, 100);
    cr_expect_eq(when(&rig, POWER_ONLINE, 100), ORDER_MAINS);
    cr_expect_eq(after(&rig, S(1000)), ORDER_MAINS);
    cr_expect_eq(rig.runs, 0);
    rig.drains = true;
    when(&rig, POWER_LOW, 100);
    cr_assert_eq(after(&rig, 0), ORDER_COMMAND);
    cr_expect_eq(when(&rig, POWER_ONLINE, 100), ORDER_COMMAND, "what runs is not called back");
    cr_expect(power_order_rests(&rig.order));
    power_order_ran(&rig.order, true, rig.now_ns);
    cr_expect_eq(after(&rig, 0), ORDER_MAINS);
    cr_expect_not_null(strstr(rig.words, "behind the order to shut down"));
}

Test(power_order, a_command_that_fails_is_run_again_after_five_seconds)
{
    struct rig rig = rig_on_mains();
    when(&rig, POWER_LOW, 100);
    cr_assert_eq(after(&rig, 0), ORDER_COMMAND);
    for (unsigned i = 1; i < 4; i++) {
        cr_assert_eq(rig.runs, i);
        power_order_ran(&rig.order, false, rig.now_ns);
        cr_expect_eq(after(&rig, S(5) - 1), ORDER_COMMAND);
        cr_expect_eq(rig.runs, i, "too early");
        after(&rig, 1);
    }
    power_order_ran(&rig.order, false, rig.now_ns);
    cr_expect_eq(when(&rig, POWER_ONLINE, 1200), ORDER_MAINS);
    cr_expect_eq(after(&rig, S(10)), ORDER_MAINS);
    when(&rig, POWER_ON_BATTERY, 1200);
    cr_expect_eq(after(&rig, S(10)), ORDER_SAVED, "what failed the last time is forgotten");
    cr_expect_eq(rig.runs, 4);
}

Test(power_order, without_a_command_somebody_else_shuts_down)
{
    struct rig rig = rig_on_mains();
    rig.facts.command = false;
    when(&rig, POWER_LOW, 100);
    cr_expect_eq(after(&rig, 0), ORDER_OVER);
    cr_expect_eq(rig.runs, 0);
    cr_expect_not_null(strstr(rig.words, "somebody else"));
    rig.facts.command = true; /* by a reload */
    cr_expect_eq(after(&rig, S(1)), ORDER_COMMAND);
    cr_expect_eq(rig.runs, 1);
    power_order_ran(&rig.order, true, rig.now_ns);
    after(&rig, 0);
    rig.facts.command = false;
    after(&rig, 0);
    rig.facts.command = true;
    cr_expect_eq(after(&rig, S(100)), ORDER_OVER);
    cr_expect_eq(rig.runs, 1, "the machine was told already");

    rig = rig_on_mains(); /* and it is taken away while it is to be run again */
    when(&rig, POWER_LOW, 100);
    after(&rig, 0);
    power_order_ran(&rig.order, false, rig.now_ns);
    rig.facts.command = false;
    cr_expect_eq(after(&rig, S(1)), ORDER_OVER);
}

Test(power_order, a_learn_cycle_shuts_nothing_down)
{
    struct rig rig = rig_on_mains();
    rig.facts.exercise = true;
    cr_expect_eq(when(&rig, POWER_ON_BATTERY, 1), ORDER_MAINS);
    cr_expect_eq(after(&rig, S(100)), ORDER_MAINS);
    rig.facts.exercise = false;
    cr_expect_eq(after(&rig, 0), ORDER_LAST, "the mains failed meanwhile");
    rig.facts.exercise = true;
    cr_expect_eq(after(&rig, 0), ORDER_MAINS);
}

Test(power_order, who_knows_nothing_changes_nothing_and_no_source_is_the_end_of_it)
{
    struct rig rig = rig_on_mains();
    when(&rig, POWER_ON_BATTERY, 1200);
    cr_assert_eq(after(&rig, 0), ORDER_SAVED);
    cr_expect_eq(when(&rig, POWER_UNKNOWN, POWER_RUNTIME_UNKNOWN), ORDER_SAVED);
    cr_expect_eq(after(&rig, S(1000)), ORDER_SAVED);
    rig.facts.source = false;
    cr_expect_eq(after(&rig, 0), ORDER_MAINS);
    rig.facts.source = true;
    rig.drains = false;
    when(&rig, POWER_LOW, 100);
    when(&rig, POWER_UNKNOWN, POWER_RUNTIME_UNKNOWN);
    cr_expect_eq(after(&rig, S(39)), ORDER_LAST);
    cr_expect_eq(after(&rig, S(1)), ORDER_COMMAND, "what has begun comes to its end");
}

/* Whatever happens: never a command but behind a drain, or a time for it, of its own; never two at a time. */
Test(power_order, no_command_without_a_last_drain)
{
    uint64_t dice = 88172645463325252ull;
    unsigned runs = 0, late = 0;
    for (unsigned round = 0; round < 2000; round++) {
        struct rig rig = rig_on_mains();
        bool running = false;
        uint64_t last_ns = 0;
        for (unsigned i = 0; i < 60; i++) {
            static const uint64_t runtimes[] = {0, 59, 60, 90, 1000, POWER_RUNTIME_UNKNOWN};
            dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
            rig.facts.state = (enum power_state)(dice % 4);
            rig.facts.runtime_s = runtimes[(dice >> 8) % ARRAY_LENGTH(runtimes)];
            rig.facts.load.seconds = (dice >> 16) % 50;
            rig.facts.exercise = (dice >> 24) % 8 == 0;
            rig.facts.command = (dice >> 28) % 8 != 0;
            rig.now_ns += (dice >> 32) % S(3);
            if ((dice >> 40) % 3 == 0)
                rig.facts.load.drained = rig.order.drain;
            if (running && (dice >> 48) % 2 == 0) {
                power_order_ran(&rig.order, (dice >> 49) % 2 == 0, rig.now_ns);
                running = false;
            }
            struct order_step step;
            do {
                enum order_phase was = power_order_phase(&rig.order);
                bool drained = rig.facts.load.drained == rig.order.drain;
                step = power_order_look(&rig.order, &rig.facts, rig.now_ns);
                if (power_order_phase(&rig.order) == ORDER_LAST && was != ORDER_LAST)
                    last_ns = rig.now_ns;
                if (was == ORDER_LAST && power_order_phase(&rig.order) == ORDER_COMMAND)
                    cr_assert(drained || rig.now_ns - last_ns >= S(2));
                late += step.run && was == ORDER_LAST && !drained;
                if (step.run) {
                    cr_assert(!running && rig.facts.command);
                    cr_assert(was == ORDER_LAST || was == ORDER_COMMAND || was == ORDER_OVER);
                    running = true;
                    runs++;
                }
                cr_assert_eq(power_order_rests(&rig.order), power_order_phase(&rig.order) != ORDER_MAINS);
            } while (step.words != NULL);
        }
    }
    cr_expect(runs > 1000 && late > 100, "%u, %u late", runs, late);
}
