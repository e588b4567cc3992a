/* The power monitor lives on the control reactor: what the worker asks of it, and what arrays hear from it on
 * theirs. */
#include "core/check.h"
#include "daemon/appliance_internal.h"

/* --- from the worker to the control reactor --- */

struct monitor_call {
    struct sync_call call;
    struct power_monitor *monitor;
    const struct config_power *config;
    struct power_report report;
};

static void run_configure(struct sync_call *call)
{
    struct monitor_call *c = container_of(call, struct monitor_call, call);
    power_monitor_configure(c->monitor, c->config);
    sync_finish(call);
}

void live_power(struct appliance *a, const struct config *config)
{
    struct monitor_call c = {.monitor = a->power, .config = &config->power};
    sync_call(&c.call, a->control, run_configure);
}

static void run_report(struct sync_call *call)
{
    struct monitor_call *c = container_of(call, struct monitor_call, call);
    power_monitor_report(c->monitor, &c->report);
    sync_finish(call);
}

static json_t *number_or_null(uint64_t number, uint64_t unknown)
{
    return number != unknown ? json_integer((json_int_t)number) : json_null();
}

json_t *appliance_power(struct appliance *a)
{
    struct monitor_call c = {.monitor = a->power};
    sync_call(&c.call, a->control, run_report);
    const struct power_health *health = &c.report.health;
    return json_pack("{s:s, s:s, s:b, s:s, s:o, s:o, s:o, s:I, s:o}", "source", c.report.source, "state",
                     power_state_name(health->state), "healthy", health->healthy, "cause", health->cause, "reason",
                     sentence_json(health->reason), "charge_percent",
                     number_or_null(health->charge, POWER_CHARGE_UNKNOWN), "runtime_seconds",
                     number_or_null(health->runtime_s, POWER_RUNTIME_UNKNOWN), "since", (json_int_t)c.report.since_s,
                     "heard_seconds_ago", number_or_null(c.report.heard_s_ago, UINT64_MAX));
}

/* --- on the home of an array --- */

struct watch_call {
    struct sync_call call;
    struct live_array *live;
    struct power_board *board;
    struct task gone;
};

static void on_power(struct power_watch *watch, const struct power_health *health)
{
    struct live_array *live = container_of(watch, struct live_array, power_watch);
    live->power = *health;
    live_caches_power(live);
}

/* The rates at which caches empty themselves are measured as they go. */
enum { LIMIT_NS = 1000000000 };

static void on_second(struct timer *timer)
{
    struct live_array *live = container_of(timer, struct live_array, limit_timer);
    live_caches_limit(live);
    timer_start(reactor_loop(live->home), timer, LIMIT_NS);
}

static void run_watch(struct sync_call *call)
{
    struct watch_call *c = container_of(call, struct watch_call, call);
    c->live->power = power_no_source();
    c->live->power_watch.changed = on_power;
    power_watch_start(&c->live->power_watch, c->board, call->loop);
    c->live->limit_timer.fire = on_second;
    timer_start(call->loop, &c->live->limit_timer, LIMIT_NS);
    sync_finish(call);
}

void live_power_watch(struct appliance *a, struct live_array *live)
{
    struct watch_call c = {.live = live, .board = power_monitor_board(a->power)};
    sync_call(&c.call, reactor_loop(live->home), run_watch);
    live->watches_power = true;
}

static void watch_gone(struct task *task)
{
    sync_finish(&container_of(task, struct watch_call, gone)->call);
}

static void run_unwatch(struct sync_call *call)
{
    struct watch_call *c = container_of(call, struct watch_call, call);
    c->gone.run = watch_gone;
    timer_stop(call->loop, &c->live->limit_timer);
    power_watch_stop(&c->live->power_watch, &c->gone);
}

void live_power_unwatch(struct live_array *live)
{
    struct watch_call c = {.live = live};
    if (live->watches_power)
        sync_call(&c.call, reactor_loop(live->home), run_unwatch);
    live->watches_power = false;
}
