#include <criterion/criterion.h>
#include <string.h>

#include "core/check.h"
#include "core/power.h"
#include "core/power_watch.h"
#include "tests/unit/lib/testloop.h"

#define S(n) ((n)*1000000000ull)

static const struct power_limits limits = {.charge_min = 30,
                                           .charge_ok = 50,
                                           .charge_low = 10,
                                           .runtime_min_s = 120,
                                           .silence_max_ns = S(30),
                                           .settle_ns = S(300)};

static const struct power_reading good = {POWER_FLAG_ONLINE, 100, 1200};

static struct power_judge judge_of(const struct power_limits *l)
{
    struct power_judge judge;
    power_judge_init(&judge, l);
    return judge;
}

/* What the first reading makes of a judge that has heard nothing. */
static struct power_health first_look(const struct power_limits *l, struct power_reading reading)
{
    struct power_judge judge = judge_of(l);
    power_judge_read(&judge, &reading, S(5));
    return power_judge_look(&judge, S(5));
}

Test(power, nobody_vouches_for_what_was_never_heard)
{
    struct power_judge judge = judge_of(&limits);
    struct power_health health = power_judge_look(&judge, S(1));
    cr_expect(!health.healthy && health.state == POWER_UNKNOWN);
    cr_expect_str_eq(health.cause, "unheard");
    power_judge_silence(&judge, "connection refused");
    health = power_judge_look(&judge, S(500));
    cr_expect(!health.healthy && health.charge == POWER_CHARGE_UNKNOWN && health.runtime_s == POWER_RUNTIME_UNKNOWN);
    cr_expect_str_eq(health.cause, "unreachable");
    cr_expect_str_eq(health.reason, "nothing is known yet: connection refused");
    power_judge_read(&judge, &good, S(501));
    health = power_judge_look(&judge, S(501));
    cr_expect(health.healthy, "a good battery that is heard of for the first time: %s", health.reason);
    cr_expect(health.state == POWER_ONLINE && health.charge == 100 && health.runtime_s == 1200);
    cr_expect_str_eq(health.reason, "");
    health = power_no_source();
    cr_expect(!health.healthy && strcmp(health.cause, "none") == 0);
}

/* One row each of the table of verdicts. */
Test(power, each_cause_has_its_state)
{
    static const struct {
        struct power_reading reading;
        enum power_state state;
        const char *cause;
    } cases[] = {
        {{POWER_FLAG_ONLINE | POWER_FLAG_SHUTDOWN, 100, 1200}, POWER_LOW, "shutdown"},
        {{POWER_FLAG_ON_BATTERY | POWER_FLAG_LOW | POWER_FLAG_CALIBRATING, 5, 1}, POWER_ON_BATTERY, "calibration"},
        {{POWER_FLAG_ON_BATTERY | POWER_FLAG_LOW, 100, 1200}, POWER_LOW, "battery-low"},
        {{POWER_FLAG_ON_BATTERY, 10, 1200}, POWER_LOW, "charge-low"},
        {{POWER_FLAG_ON_BATTERY, 11, 119}, POWER_LOW, "runtime-low"},
        {{POWER_FLAG_ON_BATTERY, 11, 120}, POWER_ON_BATTERY, "on-battery"},
        {{POWER_FLAG_ON_BATTERY | POWER_FLAG_ONLINE, 100, 1200}, POWER_ON_BATTERY, "on-battery"},
        {{0, 100, 1200}, POWER_UNKNOWN, "unclear"},
        {{POWER_FLAG_ONLINE | POWER_FLAG_OFF, 100, 1200}, POWER_ONLINE, "off"},
        {{POWER_FLAG_ONLINE | POWER_FLAG_BYPASS, 100, 1200}, POWER_ONLINE, "bypass"},
        {{POWER_FLAG_ONLINE | POWER_FLAG_REPLACE, 100, 1200}, POWER_ONLINE, "replace-battery"},
        {{POWER_FLAG_ONLINE | POWER_FLAG_CALIBRATING, 100, 1200}, POWER_ONLINE, "calibration"},
        {{POWER_FLAG_ONLINE | POWER_FLAG_DISCHARGING, 100, 1200}, POWER_ONLINE, "discharging"},
        {{POWER_FLAG_ONLINE | POWER_FLAG_OVERLOADED, 100, 1200}, POWER_ONLINE, "overload"},
        {{POWER_FLAG_ONLINE | POWER_FLAG_ALARM, 100, 1200}, POWER_ONLINE, "alarm"},
        {{POWER_FLAG_ONLINE | POWER_FLAG_LOW, 100, 1200}, POWER_ONLINE, "battery-low"},
        {{POWER_FLAG_ONLINE, POWER_CHARGE_UNKNOWN, 1200}, POWER_ONLINE, "charge-unknown"},
        {{POWER_FLAG_ONLINE, 49, 1200}, POWER_ONLINE, "charge"},
        {{POWER_FLAG_ONLINE, 50, POWER_RUNTIME_UNKNOWN}, POWER_ONLINE, "runtime-unknown"},
        {{POWER_FLAG_ONLINE, 50, 119}, POWER_ONLINE, "runtime"},
        {{POWER_FLAG_ONLINE, 50, 120}, POWER_ONLINE, "healthy"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct power_health health = first_look(&limits, cases[i].reading);
        cr_expect_str_eq(health.cause, cases[i].cause, "case %u: %s, not %s", i, health.cause, cases[i].cause);
        cr_expect_eq(health.state, cases[i].state, "case %u: %s", i, power_state_name(health.state));
        cr_expect_eq(health.healthy, strcmp(health.cause, "healthy") == 0, "case %u", i);
        cr_expect_eq(health.healthy, health.reason[0] == '\0', "case %u has a reason", i);
    }
}

/* Every set of flags with every kind of charge and run time, against the sentence of the header. */
Test(power, healthy_means_on_mains_with_a_sound_battery_and_nothing_else)
{
    static const uint32_t charges[] = {POWER_CHARGE_UNKNOWN, 0, 10, 29, 49, 50, 100};
    static const uint64_t runtimes[] = {POWER_RUNTIME_UNKNOWN, 0, 119, 120, 9999};
    unsigned healthy = 0;
    for (uint32_t flags = 0; flags <= POWER_FLAGS; flags++)
        for (unsigned c = 0; c < ARRAY_LENGTH(charges); c++)
            for (unsigned r = 0; r < ARRAY_LENGTH(runtimes); r++) {
                struct power_health health =
                    first_look(&limits, (struct power_reading){flags, charges[c], runtimes[r]});
                bool wanted = flags == POWER_FLAG_ONLINE && charges[c] != POWER_CHARGE_UNKNOWN && charges[c] >= 50 &&
                              runtimes[r] != POWER_RUNTIME_UNKNOWN && runtimes[r] >= 120;
                bool battery = flags & (POWER_FLAG_ON_BATTERY | POWER_FLAG_SHUTDOWN);
                cr_assert_eq(health.healthy, wanted, "flags %#x, charge %u, runtime %llu", flags, charges[c],
                             (unsigned long long)runtimes[r]);
                cr_assert_eq(health.state == POWER_ON_BATTERY || health.state == POWER_LOW, battery, "flags %#x",
                             flags);
                healthy += health.healthy;
            }
    cr_expect_eq(healthy, 2 * 2);
}

/* From healthy: whatever comes, it is so no more at once, and again only after it was well for 300 s. */
Test(power, what_was_not_healthy_must_be_well_for_a_while)
{
    for (uint32_t flags = 0; flags <= POWER_FLAGS; flags++) {
        struct power_judge judge = judge_of(&limits);
        struct power_reading bad = {flags, 100, 1200};
        if (flags == POWER_FLAG_ONLINE)
            bad.charge = 29;
        power_judge_read(&judge, &good, S(10));
        cr_assert(power_judge_look(&judge, S(10)).healthy);
        power_judge_read(&judge, &bad, S(20));
        cr_assert(!power_judge_look(&judge, S(20)).healthy, "flags %#x", flags);
        for (uint64_t t = 30; t < 330; t += 10) {
            power_judge_read(&judge, &good, S(t));
            struct power_health health = power_judge_look(&judge, S(t));
            cr_assert(!health.healthy && strcmp(health.cause, "settling") == 0, "%llu s", (unsigned long long)t);
            cr_assert(health.state == POWER_ONLINE);
        }
        power_judge_read(&judge, &good, S(330));
        cr_assert(power_judge_look(&judge, S(330)).healthy);
    }
}

Test(power, a_bad_moment_makes_the_while_begin_again)
{
    struct power_judge judge = judge_of(&limits);
    struct power_reading mains_gone = {POWER_FLAG_ON_BATTERY, 100, 1200};
    power_judge_read(&judge, &mains_gone, S(10));
    power_judge_look(&judge, S(10));
    for (uint64_t t = 20; t <= 300; t += 10) {
        power_judge_read(&judge, &good, S(t));
        power_judge_look(&judge, S(t));
    }
    power_judge_read(&judge, &mains_gone, S(310));
    cr_expect_eq(power_judge_look(&judge, S(310)).state, POWER_ON_BATTERY);
    power_judge_read(&judge, &good, S(311));
    struct power_health health = power_judge_look(&judge, S(311));
    cr_expect_not_null(strstr(health.reason, "healthy in 300 s"), "%s", health.reason);
    for (uint64_t t = 320; t < 611; t += 10) {
        power_judge_read(&judge, &good, S(t));
        cr_expect(!power_judge_look(&judge, S(t)).healthy);
    }
    power_judge_read(&judge, &good, S(611));
    cr_expect(power_judge_look(&judge, S(611)).healthy);
}

Test(power, the_charge_to_stay_healthy_is_lower_than_the_one_to_become_it)
{
    static const struct {
        uint32_t charge;
        bool healthy;
    } steps[] = {{49, false}, {50, true}, {49, true}, {30, true}, {29, false}, {30, false}, {49, false}, {50, true}};
    struct power_limits l = limits;
    l.settle_ns = 0;
    struct power_judge judge = judge_of(&l);
    for (unsigned i = 0; i < ARRAY_LENGTH(steps); i++) {
        struct power_reading reading = {POWER_FLAG_ONLINE, steps[i].charge, 1200};
        power_judge_read(&judge, &reading, S(i + 1));
        cr_expect_eq(power_judge_look(&judge, S(i + 1)).healthy, steps[i].healthy, "step %u", i);
    }
}

Test(power, silence_counts_after_its_limit_and_an_error_at_once)
{
    struct power_judge judge = judge_of(&limits);
    power_judge_read(&judge, &good, S(10));
    power_judge_silence(&judge, "connection refused");
    cr_expect(power_judge_look(&judge, S(40)).healthy, "30 s old");
    struct power_health health = power_judge_look(&judge, S(40) + 1);
    cr_expect(!health.healthy && health.state == POWER_UNKNOWN);
    cr_expect_str_eq(health.reason, "the source is silent: connection refused");

    judge = judge_of(&limits);
    power_judge_read(&judge, &good, S(10));
    power_judge_look(&judge, S(10));
    power_judge_error(&judge, "DRIVER-NOT-CONNECTED");
    health = power_judge_look(&judge, S(10));
    cr_expect(!health.healthy && health.state == POWER_UNKNOWN);
    cr_expect_str_eq(health.reason, "the source does not know: DRIVER-NOT-CONNECTED");
    cr_expect_str_eq(power_judge_look(&judge, S(11)).cause, "error");
    cr_expect_str_eq(power_judge_look(&judge, S(100)).cause, "error", "who says so is not silent");
    judge = judge_of(&limits);
    power_judge_read(&judge, &good, S(10));
    power_judge_look(&judge, S(10));
    power_judge_error(&judge, "DRIVER-NOT-CONNECTED");
    power_judge_look(&judge, S(10));
    power_judge_read(&judge, &good, S(12));
    cr_expect_str_eq(power_judge_look(&judge, S(12)).cause, "settling");
}

Test(power, silence_on_battery_is_taken_for_its_end)
{
    struct power_judge judge = judge_of(&limits);
    struct power_reading mains_gone = {POWER_FLAG_ON_BATTERY, 100, 1200};
    power_judge_read(&judge, &mains_gone, S(10));
    power_judge_error(&judge, "DATA-STALE");
    cr_expect_eq(power_judge_look(&judge, S(40)).state, POWER_ON_BATTERY);
    struct power_health health = power_judge_look(&judge, S(41));
    cr_expect_eq(health.state, POWER_LOW);
    cr_expect_str_eq(health.cause, "lost-on-battery");
    power_judge_read(&judge, &good, S(50));
    cr_expect_eq(power_judge_look(&judge, S(50)).state, POWER_ONLINE);
}

Test(power, a_run_time_that_is_not_told_can_be_assumed)
{
    struct power_limits l = limits;
    struct power_reading reading = {POWER_FLAG_ONLINE, 100, POWER_RUNTIME_UNKNOWN};
    l.runtime_assumed_s = 300;
    struct power_judge judge = judge_of(&l);
    power_judge_read(&judge, &reading, S(10));
    struct power_health health = power_judge_look(&judge, S(15));
    cr_expect(health.healthy && health.runtime_s == 300);
    reading.flags = POWER_FLAG_ON_BATTERY;
    for (uint64_t t = 20; t <= 320; t += 20) {
        power_judge_read(&judge, &reading, S(t));
        health = power_judge_look(&judge, S(t));
        cr_expect_eq(health.runtime_s, 320 - t, "it is used up on battery");
        cr_expect_eq(health.state, t <= 200 ? POWER_ON_BATTERY : POWER_LOW);
    }
    reading.runtime_s = 7;
    power_judge_read(&judge, &reading, S(330));
    cr_expect_eq(power_judge_look(&judge, S(330)).runtime_s, 7, "what is told goes before");
}

Test(power, a_limit_of_nothing_asks_for_nothing)
{
    struct power_limits l = {.silence_max_ns = S(30)};
    struct power_reading bare = {POWER_FLAG_ONLINE, POWER_CHARGE_UNKNOWN, POWER_RUNTIME_UNKNOWN};
    cr_expect(first_look(&l, bare).healthy);
    bare.charge = 0;
    bare.runtime_s = 0;
    cr_expect(first_look(&l, bare).healthy);
    bare.flags = POWER_FLAG_ON_BATTERY;
    cr_expect_eq(first_look(&l, bare).state, POWER_ON_BATTERY);
}

Test(power, dirty_bytes_are_what_the_battery_can_save)
{
    static const struct {
        uint64_t runtime_s, margin_s, rate, limit;
    } cases[] = {{600, 60, 100 * MIB, 540 * 100 * MIB},
                 {60, 60, MIB, 0},
                 {59, 60, MIB, 0},
                 {POWER_RUNTIME_UNKNOWN, 60, MIB, 0},
                 {61, 60, MIB, MIB},
                 {600, 60, 0, 0},
                 {600, 0, UINT64_MAX, UINT64_MAX},
                 {UINT64_MAX - 1, 1, 2, UINT64_MAX},
                 {2, 1, UINT64_MAX, UINT64_MAX}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++)
        cr_expect_eq(power_dirty_limit(cases[i].runtime_s, cases[i].margin_s, cases[i].rate), cases[i].limit, "case %u",
                     i);
}

Test(power, what_is_dirty_takes_full_seconds)
{
    cr_expect_eq(power_destage_seconds(0, 5), 0);
    cr_expect_eq(power_destage_seconds(1, 1000), 1);
    cr_expect_eq(power_destage_seconds(1000, 1000), 1);
    cr_expect_eq(power_destage_seconds(1001, 1000), 2);
    cr_expect_eq(power_destage_seconds(UINT64_MAX, 1), UINT64_MAX);
}

/* What is on battery because it is calibrated is told apart from mains that failed. */
Test(power, a_learn_cycle_is_an_exercise)
{
    cr_expect(
        first_look(&limits, (struct power_reading){POWER_FLAG_ON_BATTERY | POWER_FLAG_CALIBRATING, 50, 600}).exercise);
    cr_expect(
        first_look(&limits, (struct power_reading){POWER_FLAG_ONLINE | POWER_FLAG_CALIBRATING, 50, 600}).exercise);
    cr_expect_not(first_look(&limits, (struct power_reading){POWER_FLAG_ON_BATTERY, 50, 600}).exercise);
    uint32_t ends = POWER_FLAG_ON_BATTERY | POWER_FLAG_CALIBRATING | POWER_FLAG_SHUTDOWN;
    cr_expect_not(first_look(&limits, (struct power_reading){ends, 50, 600}).exercise, "it will be switched off");
}

/* --- the watch --- */

struct listener {
    struct power_watch watch;
    unsigned calls;
    uint32_t charge;
    bool rest, drains;
    struct power_load load;
    struct task gone;
    bool is_gone;
};

static void on_changed(struct power_watch *watch, const struct power_news *news, struct power_load *load)
{
    struct listener *l = container_of(watch, struct listener, watch);
    l->calls++;
    l->charge = news->health.charge;
    l->rest = news->rest;
    *load = l->load;
    if (l->drains)
        l->load.drained = news->drain;
}

static void on_gone(struct task *task)
{
    container_of(task, struct listener, gone)->is_gone = true;
}

static struct power_news charged(uint32_t charge)
{
    struct power_news news = {.health = power_no_source()};
    news.health.charge = charge;
    return news;
}

static void run_both(struct testloop *a, struct testloop *b)
{
    for (unsigned i = 0; i < 10; i++) {
        testloop_run_ready(a);
        testloop_run_ready(b);
    }
}

Test(power_watch, tells_what_is_and_then_each_change)
{
    struct testloop *here = testloop_create(1, 1), *there = testloop_create(1, 2);
    struct power_board board;
    struct listener l = {.watch.changed = on_changed, .gone.run = on_gone},
                    m = {.watch.changed = on_changed, .gone.run = on_gone};
    struct power_news news = charged(7);
    power_board_init(&board, &here->loop);
    power_board_set(&board, &news);
    power_watch_start(&l.watch, &board, &there->loop);
    power_watch_start(&m.watch, &board, &here->loop);
    run_both(here, there);
    cr_expect(l.calls == 1 && l.charge == 7);
    cr_expect(m.calls == 1 && m.charge == 7, "on the board's own loop");
    power_board_set(&board, &news);
    run_both(here, there);
    cr_expect_eq(l.calls, 1, "no change");

    for (uint32_t charge = 8; charge < 20; charge++) {
        news = charged(charge);
        power_board_set(&board, &news);
    }
    run_both(here, there);
    cr_expect_eq(l.charge, 19, "the last one");
    cr_expect_leq(l.calls, 3, "those between are told as one");

    news = charged(20);
    power_board_set(&board, &news);
    testloop_run_ready(here);
    power_watch_stop(&l.watch, &l.gone); /* with the ball on its way */
    cr_expect_not(l.is_gone);
    run_both(here, there);
    cr_expect(l.is_gone && l.charge == 19, "not called any more");
    cr_expect_eq(m.charge, 20);
    power_watch_stop(&m.watch, &m.gone);
    run_both(here, there);
    cr_expect(m.is_gone && LIST_EMPTY(&board.watches));
    testloop_destroy(there);
    testloop_destroy(here);
}

Test(power_watch, may_stop_before_it_has_entered)
{
    struct testloop *here = testloop_create(1, 1), *there = testloop_create(1, 2);
    struct power_board board;
    struct listener l = {.watch.changed = on_changed, .gone.run = on_gone};
    power_board_init(&board, &here->loop);
    power_watch_start(&l.watch, &board, &there->loop);
    power_watch_stop(&l.watch, &l.gone);
    run_both(here, there);
    cr_expect(l.is_gone && l.calls == 0 && LIST_EMPTY(&board.watches));
    testloop_destroy(there);
    testloop_destroy(here);
}

Test(power_watch, tells_back_what_there_is_to_save)
{
    struct testloop *here = testloop_create(1, 1), *there = testloop_create(1, 2);
    struct power_board board;
    struct listener l = {.watch.changed = on_changed, .gone.run = on_gone, .load = {.dirty_bytes = 100, .seconds = 7}},
                    m = {.watch.changed = on_changed, .gone.run = on_gone, .load = {.dirty_bytes = 30, .seconds = 9}};
    struct power_news news = charged(50);
    power_board_init(&board, &here->loop);
    cr_expect_eq(power_board_load(&board).drained, 0);
    power_watch_start(&l.watch, &board, &there->loop);
    power_watch_start(&m.watch, &board, &here->loop);
    run_both(here, there);
    struct power_load load = power_board_load(&board);
    cr_expect(load.dirty_bytes == 130 && load.seconds == 9 && load.drained == 0, "%llu, %llu",
              (unsigned long long)load.dirty_bytes, (unsigned long long)load.seconds);

    news.rest = true;
    news.drain = 1;
    l.drains = true;
    power_board_set(&board, &news);
    cr_expect_eq(power_board_load(&board).drained, 0, "nobody has heard of it yet");
    run_both(here, there);
    cr_expect(l.rest && m.rest);
    l.load.dirty_bytes = 0;
    unsigned calls = l.calls;
    power_board_set(&board, &news);
    run_both(here, there);
    cr_expect_eq(l.calls, calls, "no news");
    power_board_ask(&board);
    run_both(here, there);
    cr_expect_eq(l.calls, calls + 1);
    load = power_board_load(&board);
    cr_expect(load.dirty_bytes == 30 && load.drained == 0, "one has not carried it out");
    m.drains = true;
    power_board_ask(&board);
    run_both(here, there);
    power_board_ask(&board);
    run_both(here, there);
    cr_expect_eq(power_board_load(&board).drained, 1);

    power_watch_stop(&l.watch, &l.gone);
    power_watch_stop(&m.watch, &m.gone);
    run_both(here, there);
    load = power_board_load(&board);
    cr_expect(load.dirty_bytes == 0 && load.seconds == 0 && load.drained == 1, "nobody is left");
    testloop_destroy(there);
    testloop_destroy(here);
}
