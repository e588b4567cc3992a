/* Random requests that overlap in time and place, against a model that knows what may be read: see model.h. */
#include <criterion/criterion.h>

#include "cache/log.h"
#include "core/check.h"
#include "tests/unit/cache/model.h"

enum { SEEDS = 40, LOG_SEEDS = 16 }; /* of each way */

static const struct cache_policy_ops *const policies[] = {&cache_policy_s3fifo, &cache_policy_s3fifo, &cache_policy_arc,
                                                          &cache_policy_lru};

static void run_some(struct model_options options, unsigned seeds)
{
    options.requests = 400;
    for (unsigned i = 0; i < seeds; i++) {
        options.seed = i * 1000 + 1;
        options.depth = i % 3 == 0 ? 4 : 24;
        options.hot = i % 2;
        options.cache.readahead = (enum readahead_mode)(i % 3);
        options.cache.policy = policies[i % ARRAY_LENGTH(policies)];
        options.cache.bytes = options.parity ? 1024 * KIB : i % 4 == 0 ? CACHE_BYTES_MIN : 160 * KIB;
        model_run(&options);
    }
}

static void run_seeds(struct model_options options)
{
    run_some(options, SEEDS);
}

static const struct {
    const char *name;
    struct cache_options cache;
} ways[] = {
    {"through", {.write_back = false}},
    {"none", {.write_back = true}},
    {"none, young", {.write_back = true, .low_percent = 5, .high_percent = 30, .age_ms = 1, .idle_ms = 1}},
    {"battery", {.write_back = true, .protection = CACHE_PROTECT_BATTERY}},
    {"battery, or flush", {.write_back = true, .protection = CACHE_PROTECT_BATTERY, .flush_when_bad = true}},
};

static void run_ways(struct model_options options)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(ways); i++) {
        options.cache = ways[i].cache;
        options.cache.name = ways[i].name;
        options.power_changes = options.cache.protection == CACHE_PROTECT_BATTERY;
        run_seeds(options);
    }
}

Test(cache_model, what_was_written_is_read)
{
    run_ways((struct model_options){.limit_changes = true});
}

Test(cache_model, what_was_flushed_survives_when_the_power_is_cut)
{
    run_ways((struct model_options){.cut = true});
}

Test(cache_model, a_volume_with_errors_loses_nothing)
{
    run_ways((struct model_options){.fail_percent = 8, .cut = true});
}

Test(cache_model, rows_whose_gaps_are_read_are_made_of_what_is_here_and_what_is_below)
{
    run_ways((struct model_options){.parity = true, .limit_changes = true});
    run_ways((struct model_options){.parity = true, .cut = true});
    run_ways((struct model_options){.parity = true, .fail_percent = 8, .cut = true});
}

static const struct {
    struct cache_options cache;
    int arena;
    bool cut;
} arenas[] = {
    {{.name = "forced, arena", .write_back = true, .protection = CACHE_PROTECT_FORCED}, MODEL_ARENA, false},
    {{.name = "battery, arena", .write_back = true, .protection = CACHE_PROTECT_BATTERY}, MODEL_ARENA, true},
    {{.name = "battery, or flush, arena",
      .write_back = true,
      .protection = CACHE_PROTECT_BATTERY,
      .flush_when_bad = true},
     MODEL_ARENA,
     true},
    {{.name = "pmem", .write_back = true, .protection = CACHE_PROTECT_PMEM}, MODEL_PMEM, false},
    {{.name = "pmem, young",
      .write_back = true,
      .protection = CACHE_PROTECT_PMEM,
      .low_percent = 5,
      .high_percent = 30,
      .age_ms = 1,
      .idle_ms = 1},
     MODEL_PMEM,
     false},
};

static void run_arenas(struct model_options options)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(arenas); i++) {
        options.cache = arenas[i].cache;
        options.arena = arenas[i].arena;
        options.cut = arenas[i].cut;
        options.power_changes = options.cache.protection == CACHE_PROTECT_BATTERY;
        run_seeds(options);
    }
}

Test(cache_model, over_an_arena_what_was_answered_survives_when_the_process_is_killed)
{
    run_arenas((struct model_options){.limit_changes = true, .kills = 3});
}

Test(cache_model, over_an_arena_and_a_volume_with_errors_nothing_is_lost)
{
    run_arenas((struct model_options){.fail_percent = 8, .kills = 3});
}

Test(cache_model, over_an_arena_gaps_are_read)
{
    run_arenas((struct model_options){.parity = true, .kills = 3});
}

Test(cache_model, forced_write_back_reads_what_was_written)
{
    struct cache_options forced = {.name = "forced", .write_back = true, .protection = CACHE_PROTECT_FORCED};
    run_seeds((struct model_options){.cache = forced, .limit_changes = true});
}

static const struct {
    struct cache_options cache;
    unsigned devices, pages;
} logs[] = {
    {{.name = "log"}, 1, 1024},
    {{.name = "small log"}, 1, 48},
    {{.name = "tiny log"}, 1, LOG_RING_MIN},
    {{.name = "log, young", .low_percent = 5, .high_percent = 30, .age_ms = 1, .idle_ms = 1}, 1, 128},
    {{.name = "two logs"}, 2, 128},
};

static void run_logs(struct model_options options)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(logs); i++) {
        options.cache = logs[i].cache;
        options.cache.write_back = true;
        options.cache.protection = CACHE_PROTECT_JOURNAL;
        options.log_devices = logs[i].devices;
        options.log_pages = logs[i].pages;
        run_some(options, LOG_SEEDS);
    }
}

Test(cache_model, over_a_log_what_was_flushed_survives_a_power_cut_at_any_time)
{
    run_logs((struct model_options){.limit_changes = true, .kills = 3});
}

Test(cache_model, over_a_log_gaps_are_read)
{
    run_logs((struct model_options){.parity = true, .kills = 3});
}

Test(cache_model, over_a_log_and_a_volume_with_errors_nothing_is_lost)
{
    run_logs((struct model_options){.fail_percent = 8, .kills = 3});
}

Test(cache_model, over_a_log_whose_devices_die_nothing_is_lost)
{
    run_logs((struct model_options){.log_deaths = true, .kills = 3});
}

Test(cache_model, over_a_log_whose_devices_die_and_a_volume_with_errors_nothing_is_lost)
{
    run_logs((struct model_options){.log_deaths = true, .fail_percent = 8, .kills = 3});
}
