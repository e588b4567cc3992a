/* Read-ahead by itself: which streams are seen, and how much is asked for. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "cache/readahead.h"
#include "core/check.h"
#include "tests/unit/lib/testloop.h"

enum { BLOCKS = 1 << 20, ROW = 64, MOST = 16384 };

/* A cache without limit that reads at once what a plan says. */
struct sheet {
    struct readahead ahead;
    uint8_t *here; /* 1: asked for by a plan, 2: by a reader */
    uint64_t planned, hits, misses;
};

static struct sheet *sheet_create(enum readahead_mode mode)
{
    struct sheet *s = calloc(1, sizeof *s);
    s->here = calloc(1, 2 * BLOCKS);
    readahead_init(&s->ahead, mode, ROW, MOST);
    return s;
}

static void sheet_destroy(struct sheet *s)
{
    free(s->here);
    free(s);
}

static void sheet_read(struct sheet *s, uint64_t first, uint32_t count)
{
    struct readahead_plan plan;
    bool missed = false;
    for (uint32_t i = 0; i < count; i++) {
        missed = missed || s->here[first + i] == 0;
        s->here[first + i] = 2;
    }
    s->hits += !missed;
    s->misses += missed;
    readahead_plan(&s->ahead, &(struct readahead_read){first, count, missed}, MOST, &plan);
    for (unsigned r = 0; r < plan.count; r++)
        for (uint32_t i = 0; i < plan.runs[r].count && plan.runs[r].first + i < 2 * BLOCKS; i++) {
            uint8_t *here = &s->here[plan.runs[r].first + i];
            s->planned += *here == 0;
            *here = *here == 0 ? 1 : *here;
        }
}

Test(readahead, patterns_are_seen_after_a_few_reads)
{
    static const struct {
        const char *name;
        int64_t step;
        uint32_t count;
        unsigned most_misses;
    } cases[] = {
        {"forward, 4 KiB", 1, 1, 2},     {"forward, 64 KiB", 16, 16, 2},   {"backward", -4, 4, 2},
        {"stride +32 blocks", 32, 1, 3}, {"stride -16 blocks", -16, 2, 3}, {"stride +256", 256, 8, 3},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct sheet *s = sheet_create(READAHEAD_ADAPTIVE);
        uint64_t at = BLOCKS / 2;
        for (unsigned n = 0; n < 500; n++, at = (uint64_t)((int64_t)at + cases[i].step))
            sheet_read(s, at, cases[i].count);
        cr_expect_leq(s->misses, cases[i].most_misses, "%s: %lu misses", cases[i].name, s->misses);
        sheet_destroy(s);
    }
}

Test(readahead, sixty_four_streams_interleaved_are_each_followed)
{
    enum { STREAMS = 64, READS = 200 };
    struct sheet *s = sheet_create(READAHEAD_ADAPTIVE);
    uint64_t at[STREAMS], seed = 1;
    for (unsigned i = 0; i < STREAMS; i++)
        at[i] = 16000ull * i + 8000;
    for (unsigned n = 0; n < READS * STREAMS; n++) {
        unsigned i = (unsigned)(test_random(&seed) % STREAMS);
        int64_t step = i % 3 == 0 ? -4 : i % 3 == 1 ? 4 : 24;
        sheet_read(s, at[i], 4);
        at[i] = (uint64_t)((int64_t)at[i] + step);
    }
    cr_expect_lt(s->misses, STREAMS * 6, "%lu of %u", s->misses, READS * STREAMS);
    sheet_destroy(s);
}

Test(readahead, random_reads_ask_for_little)
{
    struct sheet *s = sheet_create(READAHEAD_ADAPTIVE);
    uint64_t seed = 7;
    for (unsigned n = 0; n < 20000; n++)
        sheet_read(s, test_random(&seed) % BLOCKS, 1);
    cr_expect_lt(s->planned, 20000 / 2, "%lu", s->planned);
    sheet_destroy(s);
}

Test(readahead, none_asks_for_nothing)
{
    struct sheet *s = sheet_create(READAHEAD_NONE);
    for (unsigned n = 0; n < 100; n++)
        sheet_read(s, n, 1);
    cr_expect_eq(s->planned, 0);
    sheet_destroy(s);
}

Test(readahead, the_degree_grows_with_use_and_shrinks_with_waste)
{
    struct readahead a;
    struct readahead_plan plan;
    uint32_t first = 0, largest = 0;
    readahead_init(&a, READAHEAD_ADAPTIVE, ROW, MOST);
    for (uint64_t n = 0; n < 5000; n++) {
        readahead_plan(&a, &(struct readahead_read){n, 1, false}, MOST, &plan);
        for (unsigned r = 0; r < plan.count; r++) {
            first = first == 0 ? plan.runs[r].count : first;
            largest = MAX(largest, plan.runs[r].count);
        }
    }
    cr_expect_geq(largest, 8 * first, "from %u to %u", first, largest);
    for (unsigned i = 0; i < 20; i++)
        readahead_wasted(&a, 5001);
    uint32_t later = 0;
    for (uint64_t n = 5000; n < 12000 && later == 0; n++) {
        readahead_plan(&a, &(struct readahead_read){n, 1, false}, MOST, &plan);
        later = plan.count > 0 ? plan.runs[0].count : 0;
    }
    cr_expect(later > 0 && later < first, "%u", later);
}

Test(readahead, all_streams_together_stay_within_their_share)
{
    struct readahead a;
    struct readahead_plan plan;
    uint32_t largest = 0;
    readahead_init(&a, READAHEAD_ADAPTIVE, ROW, 1024);
    for (uint64_t n = 0; n < 3000; n++)
        for (uint64_t i = 0; i < 32; i++) {
            readahead_plan(&a, &(struct readahead_read){i * 100000 + n, 1, false}, MOST, &plan);
            for (unsigned r = 0; r < plan.count && n > 1000; r++)
                largest = MAX(largest, plan.runs[r].count);
        }
    cr_expect_leq(largest, 1024 / 32, "%u blocks at a time, for each of 32", largest);
}
