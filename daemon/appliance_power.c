/* The power monitor lives on the control reactor: what the worker asks of it, and what arrays hear from it on theirs,
 * do about it, and answer. */
#include <string.h>

#include "core/check.h"
#include "core/log.h"
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

static json_t *order_json(const struct power_report *report)
{
    json_t *steps = json_array();
    for (unsigned i = 0; i < report->steps_count; i++)
        json_array_append_new(steps, json_pack("{s:I, s:o}", "at", (json_int_t)report->steps[i].at_s, "text",
                                               sentence_json(report->steps[i].text)));
    return json_pack("{s:s, s:b, s:I, s:I, s:I, s:I, s:o}", "phase", report->order, "work_rests", report->rests,
                     "unsaved_bytes", (json_int_t)report->load.dirty_bytes, "destage_seconds",
                     (json_int_t)report->load.seconds, "shutdown_seconds", (json_int_t)report->shutdown_s,
                     "needed_seconds", (json_int_t)report->needs_s, "steps", steps);
}

static json_t *source_json(const struct power_report_source *source)
{
    const struct power_health *health = &source->health;
    return json_pack("{s:o, s:s, s:b, s:s, s:o, s:o, s:o, s:I, s:o}", "source", sentence_json(source->text), "state",
                     power_state_name(health->state), "healthy", health->healthy, "cause", health->cause, "reason",
                     sentence_json(health->reason), "charge_percent",
                     number_or_null(health->charge, POWER_CHARGE_UNKNOWN), "runtime_seconds",
                     number_or_null(health->runtime_s, POWER_RUNTIME_UNKNOWN), "since", (json_int_t)source->since_s,
                     "heard_seconds_ago", number_or_null(source->heard_s_ago, UINT64_MAX));
}

/* All together, as if they were one source. */
static struct power_report_source sum_of(const struct power_report *report)
{
    struct power_report_source sum = {.health = report->health, .since_s = report->since_s};
    size_t len = 0;
    for (unsigned i = 0; i < report->sources_count; i++) {
        const struct power_report_source *source = &report->sources[i];
        text_format(sum.text + len, sizeof sum.text - len, "%s%s", i > 0 ? ", " : "", source->text);
        len = strlen(sum.text);
        sum.heard_s_ago = MAX(sum.heard_s_ago, source->heard_s_ago);
    }
    if (report->sources_count == 0)
        sum.heard_s_ago = UINT64_MAX;
    return sum;
}

json_t *appliance_power(struct appliance *a)
{
    struct monitor_call c = {.monitor = a->power};
    sync_call(&c.call, a->control, run_report);
    struct power_report_source sum = sum_of(&c.report);
    json_t *power = source_json(&sum), *sources = json_array();
    for (unsigned i = 0; i < c.report.sources_count; i++)
        json_array_append_new(sources, source_json(&c.report.sources[i]));
    json_object_set_new(power, "needed", json_integer((json_int_t)c.report.needed));
    json_object_set_new(power, "order", order_json(&c.report));
    json_object_set_new(power, "sources", sources);
    return power;
}

/* --- on the home of an array --- */

struct watch_call {
    struct sync_call call;
    struct live_array *live;
    struct power_board *board;
    struct task gone;
};

/* All that have begun are over. One that failed is begun again with the next news. */
static void drains_over(struct live_array *live)
{
    struct live_saver *saver = &live->saver;
    if (!saver->failed)
        saver->drained = saver->number;
    if (saver->unwatching != NULL)
        sync_finish(saver->unwatching);
    saver->unwatching = NULL;
}

static void drain_over(struct blk_req *req)
{
    struct live_array *live = container_of(req, struct live_drain, req)->live;
    live->saver.failed = live->saver.failed || req->status != BLK_OK;
    if (--live->saver.left == 0)
        drains_over(live);
}

/*
 * What a cache has to do before the power is gone. Over an arena that outlives that, nothing; with a log, to have in it
 * what is not yet; else to bring all that is dirty to the disks.
 */
enum saving { SAVE_NOTHING, SAVE_LOG, SAVE_ALL };

static enum saving saving_of(const struct live_cache *c, const struct cache_status *status)
{
    if (c->arena != NULL && arena_outlives_power(c->arena))
        return SAVE_NOTHING;
    return status->mode == CACHE_LOGGED ? SAVE_LOG : SAVE_ALL;
}

static void save_cache(struct live_array *live, unsigned index)
{
    struct live_saver *saver = &live->saver;
    struct cache *cache = live->caches[index].cache;
    struct live_drain *drain = &saver->drains[index];
    struct cache_status status;
    cache_status(cache, &status);
    enum saving saving = saving_of(&live->caches[index], &status);
    if (saving == SAVE_NOTHING)
        return;
    saver->left++;
    *drain = (struct live_drain){.live = live, .req = {.op = BLK_FLUSH, .done = drain_over}};
    if (saving == SAVE_LOG)
        blk_submit(cache_dev(cache), &drain->req);
    else
        cache_drain(cache, &drain->req);
}

static void drain_begin(struct live_array *live, unsigned number)
{
    struct live_saver *saver = &live->saver;
    saver->number = number;
    saver->failed = false;
    saver->left = 0;
    for (unsigned i = 0; i < live->caches_count; i++)
        save_cache(live, i);
    if (saver->left == 0)
        drains_over(live);
}

/* Its caches empty themselves one after the other, as far as anybody can say: they share the disks. */
static struct power_load load_of(const struct live_array *live)
{
    struct power_load load = {.drained = live->saver.drained};
    for (unsigned i = 0; i < live->caches_count; i++) {
        struct cache_status status;
        cache_status(live->caches[i].cache, &status);
        if (saving_of(&live->caches[i], &status) != SAVE_ALL)
            continue;
        load.dirty_bytes += status.dirty_bytes;
        load.seconds += power_destage_seconds(status.dirty_bytes, live_cache_rate(&status));
    }
    return load;
}

/* With each news, and each second: the rates at which caches empty themselves are measured as they go. */
static void on_power(struct power_watch *watch, const struct power_news *news, struct power_load *load)
{
    struct live_array *live = container_of(watch, struct live_array, power_watch);
    live->power = news->health;
    live->shutdown_s = news->shutdown_s;
    for (unsigned i = 0; i < live->caches_count; i++)
        cache_hurry(live->caches[i].cache, news->hurry);
    live_caches_power(live);
    if (news->rest != live->saver.rests)
        array_hold_jobs(live->array, news->rest ? "the mains" : NULL);
    live->saver.rests = news->rest;
    if (news->drain != live->saver.drained && live->saver.left == 0)
        drain_begin(live, news->drain);
    *load = load_of(live);
}

static void run_watch(struct sync_call *call)
{
    struct watch_call *c = container_of(call, struct watch_call, call);
    c->live->power = power_no_source();
    c->live->saver = (struct live_saver){.number = 0};
    c->live->power_watch.changed = on_power;
    power_watch_start(&c->live->power_watch, c->board, call->loop);
    sync_finish(call);
}

void live_power_watch(struct appliance *a, struct live_array *live)
{
    struct watch_call c = {.live = live, .board = power_monitor_board(a->power)};
    sync_call(&c.call, reactor_loop(live->home), run_watch);
    live->watches_power = true;
}

/* Its caches are to be closed next: not with one of these drains under way. */
static void watch_gone(struct task *task)
{
    struct watch_call *c = container_of(task, struct watch_call, gone);
    if (c->live->saver.left > 0)
        c->live->saver.unwatching = &c->call;
    else
        sync_finish(&c->call);
}

static void run_unwatch(struct sync_call *call)
{
    struct watch_call *c = container_of(call, struct watch_call, call);
    c->gone.run = watch_gone;
    power_watch_stop(&c->live->power_watch, &c->gone);
}

void live_power_unwatch(struct live_array *live)
{
    struct watch_call c = {.live = live};
    if (live->watches_power)
        sync_call(&c.call, reactor_loop(live->home), run_unwatch);
    live->watches_power = false;
}
