/* Random requests that overlap in time and place, against a model that knows what may be read: see model.h. */
#include <criterion/criterion.h>

#include "core/check.h"
#include "tests/unit/cache/model.h"

enum { SEEDS = 400 };

static void run_seeds(struct model_options options)
{
    options.requests = 400;
    options.cache.name = "model";
    for (unsigned i = 0; i < SEEDS; i++) {
        options.seed = i * 1000 + 1;
        options.depth = i % 3 == 0 ? 4 : 24;
        options.hot = i % 2;
        options.cache.bytes = i % 5 == 0 ? 16 * PAGE_BYTES : CACHE_BYTES_MIN;
        model_run(&options);
    }
}

Test(cache_model, through_reads_what_was_written)
{
    run_seeds((struct model_options){0});
}

Test(cache_model, through_and_the_power_is_cut)
{
    run_seeds((struct model_options){.cut = true});
}

Test(cache_model, through_a_volume_with_errors)
{
    run_seeds((struct model_options){.fail_percent = 8});
}
