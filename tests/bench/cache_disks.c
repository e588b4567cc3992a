/*
 * The cache over RAID 5 on five hard disks in virtual time: the tables of docs/cache.md.
 *
 *      cache_disks [disk | writes | rows | full | streams | hot | check]
 *
 * Time is that of harddisk.h, so the figures are the same in every run; what the processor and the network take is not
 * in them. `check` is a short form of `writes` and `rows` with what is asserted of them: exit status 1 if it is not so.
 */
#include <stdio.h>
#include <string.h>

#include "core/check.h"
#include "tests/bench/cache_load.h"
#include "tests/bench/cache_rig.h"
#include "tests/bench/harddisk.h"

#define SECOND_NS UINT64_C(1000000000)
enum { SEED = 7, TIMES_LEAST = 20, ROWS_LEAST = 90 };

static double ms(const struct load *load, double share)
{
    return (double)load_percentile_ns(load, share) / 1e6;
}

static double rate_of(struct rig *rig, struct load_options o)
{
    o.dev = rig->top;
    o.seed = SEED;
    struct load *load = load_run(rig->t, &o);
    double rate = load->a_second;
    load_free(load);
    return rate;
}

/* --- one disk --- */

static void section_disk(void)
{
    static const unsigned depths[] = {1, 4, 16, 64};
    struct testloop *t = testloop_create(4096, 1);
    printf("\n4 KiB random reads of one disk\n\n| queue | a second | p99 ms |\n| --- | --- | --- |\n");
    for (unsigned i = 0; i < ARRAY_LENGTH(depths); i++) {
        struct blkdev *disk = harddisk_create(&t->loop, "disk", 74000000000, 0, 74000000000);
        struct load_options o = {.dev = disk,
                                 .op = BLK_READ,
                                 .bytes = 4096,
                                 .span = disk->info.size,
                                 .next = load_random,
                                 .clients = depths[i],
                                 .run_ns = 60 * SECOND_NS,
                                 .seed = SEED};
        struct load *load = load_run(t, &o);
        printf("| %u | %.0f | %.0f |\n", depths[i], load->a_second, ms(load, 0.99));
        load_free(load);
        test_close(t, disk);
    }
    testloop_destroy(t);
}

/* --- 4 KiB random writes, a flush behind each --- */

struct writes {
    uint64_t cache, span, warm_s, run_s;
    enum sb_consistency consistency;
    unsigned clients;
};

static double writes_rate(const struct writes *w, bool battery)
{
    struct rig_options o = battery ? rig_battery(w->cache) : rig_usual();
    o.consistency = w->consistency;
    o.written = w->span;
    struct rig *rig = rig_create(&o);
    double rate = rate_of(rig, (struct load_options){.op = BLK_WRITE,
                                                     .bytes = 4096,
                                                     .span = w->span,
                                                     .next = load_random,
                                                     .clients = w->clients,
                                                     .flush = true,
                                                     .warm_ns = (battery ? w->warm_s : 1) * SECOND_NS,
                                                     .run_ns = w->run_s * SECOND_NS});
    rig_destroy(rig);
    return rate;
}

static void section_writes(void)
{
    static const struct {
        uint64_t span;
        enum sb_consistency consistency;
        unsigned clients;
    } rows[] = {
        {1 * GIB, SB_PPL, 1},     {4 * GIB, SB_PPL, 1},  {16 * GIB, SB_PPL, 1}, {4 * GIB, SB_BITMAP, 1},
        {4 * GIB, SB_JOURNAL, 1}, {1 * GIB, SB_PPL, 16}, {4 * GIB, SB_PPL, 16},
    };
    printf("\n4 KiB random writes, a flush behind each: a second, once the cache of 256 MiB is full\n\n"
           "| written to | policy | clients | through | battery | times |\n| --- | --- | --- | --- | --- | --- |\n");
    for (unsigned i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct writes w = {256 * MIB, rows[i].span, 90, 60, rows[i].consistency, rows[i].clients};
        double through = writes_rate(&w, false), battery = writes_rate(&w, true);
        printf("| %lu GiB | %s | %u | %.0f | %.0f | %.1f |\n", (unsigned long)(w.span / GIB),
               sb_consistency_name(w.consistency), w.clients, through, battery, battery / through);
    }
}

/* --- rows --- */

/* Bytes a second, of rows that are written directly, or of 16 KiB one after the other through the cache. All of them
 * were written before. */
static double stream_rate(uint64_t cache, enum sb_consistency consistency, uint64_t run_s)
{
    struct rig_options o = cache != 0 ? rig_battery(cache) : rig_usual();
    o.consistency = consistency;
    o.written = 4 * GIB;
    struct rig *rig = rig_create(&o);
    uint64_t bytes = cache != 0 ? 16 * KIB : rig_row_bytes(rig);
    double rate = rate_of(rig, (struct load_options){.op = BLK_WRITE,
                                                     .bytes = bytes,
                                                     .span = o.written,
                                                     .next = load_sequential,
                                                     .clients = cache != 0 ? 4 : 64,
                                                     .warm_ns = 10 * SECOND_NS,
                                                     .run_ns = run_s * SECOND_NS});
    rig_destroy(rig);
    return rate * (double)bytes;
}

static void section_rows(void)
{
    static const enum sb_consistency policies[] = {SB_BITMAP, SB_PPL, SB_JOURNAL};
    printf("\nWriting one after the other, MB/s, once the cache of 256 MiB is full\n\n"
           "| policy | full rows, no cache | 16 KiB, battery | percent |\n| --- | --- | --- | --- |\n");
    for (unsigned i = 0; i < ARRAY_LENGTH(policies); i++) {
        double rows = stream_rate(0, policies[i], 20), cached = stream_rate(256 * MIB, policies[i], 20);
        printf("| %s | %.0f | %.0f | %.0f |\n", sb_consistency_name(policies[i]), rows / 1e6, cached / 1e6,
               100 * cached / rows);
    }
}

/* --- the cache is full --- */

static void full_row(struct rig *rig, double rate)
{
    struct load_options o = {.dev = rig->top,
                             .op = BLK_WRITE,
                             .bytes = 4096,
                             .span = rig->options.written,
                             .next = load_random,
                             .clients = 4096,
                             .rate = rate,
                             .warm_ns = 60 * SECOND_NS,
                             .run_ns = 30 * SECOND_NS,
                             .seed = SEED};
    struct load *load = load_run(rig->t, &o);
    struct cache_status status;
    cache_status(rig->cache, &status);
    printf("| %.0f | %.0f | %lu | %.2f | %.2f | %.2f | %.2f |\n", rate, load->a_second,
           100 * status.dirty_bytes / status.dirty_limit, ms(load, 0.5), ms(load, 0.99), ms(load, 0.999), ms(load, 1));
    load_free(load);
}

static void section_full(void)
{
    static const double rates[] = {500, 1000, 2000, 2400, 3000, 6000};
    printf("\n4 KiB random writes to 4 GiB at a rate, cache of 256 MiB, at most 4096 waiting: latency in ms\n\n"
           "| come a second | answered | full, %% | p50 | p99 | p99.9 | longest |\n"
           "| --- | --- | --- | --- | --- | --- | --- |\n");
    for (unsigned i = 0; i < ARRAY_LENGTH(rates); i++) {
        struct rig_options o = rig_battery(256 * MIB);
        o.written = 4 * GIB;
        struct rig *rig = rig_create(&o);
        full_row(rig, rates[i]);
        rig_destroy(rig);
    }
}

/* --- streams --- */

enum direction { FORWARD, BACKWARD, STRIDED, DIRECTIONS };
enum { STREAMS_MOST = 64, STREAM_BYTES = 64 * 1024 };
static const char *const direction_names[] = {"forward", "backward", "every second"};

struct streams {
    enum direction direction;
    uint64_t at[STREAMS_MOST];
};

static uint64_t stream_next(struct load *load, unsigned client)
{
    struct streams *s = load->options.data;
    uint64_t part = round_down(load->options.span / load->options.clients, (uint64_t)STREAM_BYTES);
    uint64_t number = s->at[client]++, off = number * STREAM_BYTES * (s->direction == STRIDED ? 2 : 1);
    return part * client + (s->direction == BACKWARD ? part - STREAM_BYTES - off % part : off % part);
}

static void streams_row(enum direction direction, unsigned count)
{
    struct rig_options o = rig_battery(256 * MIB);
    o.written = 16 * GIB;
    o.cache.readahead = READAHEAD_ADAPTIVE;
    struct rig *rig = rig_create(&o);
    struct streams streams = {.direction = direction};
    double rate = rate_of(rig, (struct load_options){.op = BLK_READ,
                                                     .bytes = STREAM_BYTES,
                                                     .span = o.written,
                                                     .next = stream_next,
                                                     .clients = count,
                                                     .warm_ns = 2 * SECOND_NS,
                                                     .run_ns = 10 * SECOND_NS,
                                                     .data = &streams});
    struct cache_status s;
    cache_status(rig->cache, &s);
    printf("| %s | %u | %.0f | %.0f | %.1f |\n", direction_names[direction], count, rate * STREAM_BYTES / 1e6,
           100.0 * (double)s.hits / (double)MAX(s.hits + s.misses, 1u),
           100.0 * (double)s.ahead_wasted_bytes / (double)MAX(s.ahead_bytes, 1u));
    rig_destroy(rig);
}

static void section_streams(void)
{
    static const unsigned counts[] = {1, 8, 64};
    printf("\nReads of 64 KiB in streams, one at a time each, read-ahead adaptive, cache of 256 MiB\n\n"
           "| direction | streams | MB/s together | hits, %% | guessed in vain, %% |\n"
           "| --- | --- | --- | --- | --- |\n");
    for (unsigned d = 0; d < DIRECTIONS; d++)
        for (unsigned i = 0; i < ARRAY_LENGTH(counts); i++)
            streams_row((enum direction)d, counts[i]);
}

/* --- what is hot, beside streams --- */

enum { HOT_STREAMS = 16, HOT_PROBES = 2000 };
#define HOT_BYTES (128 * MIB)

/* Every second read is of the hot part. The others are in streams behind it, once each. */
static uint64_t hot_next(struct load *load, unsigned client)
{
    struct streams *s = load->options.data;
    uint64_t part = round_down((load->options.span - HOT_BYTES) / HOT_STREAMS, (uint64_t)STREAM_BYTES);
    (void)client;
    if (load->sent % 2 == 0)
        return test_random(&load->options.seed) % (HOT_BYTES / 4096) * 4096;
    unsigned i = (unsigned)(load->sent / 2 % HOT_STREAMS);
    return HOT_BYTES + part * i + s->at[i]++ * STREAM_BYTES % part;
}

static uint64_t hits_of(struct rig *rig)
{
    struct cache_status s;
    cache_status(rig->cache, &s);
    return s.hits;
}

static void hot_row(enum readahead_mode mode, const char *name, double rate)
{
    struct rig_options o = rig_battery(256 * MIB);
    o.written = 16 * GIB;
    o.cache.readahead = mode;
    struct rig *rig = rig_create(&o);
    struct streams streams = {0};
    struct load_options warm = {.dev = rig->top,
                                .op = BLK_READ,
                                .bytes = 4096,
                                .span = HOT_BYTES,
                                .next = load_random,
                                .clients = 16,
                                .count = 4 * HOT_BYTES / 4096,
                                .seed = SEED};
    load_free(load_run(rig->t, &warm));
    if (rate > 0)
        load_free(load_run(rig->t, &(struct load_options){.dev = rig->top,
                                                          .op = BLK_READ,
                                                          .bytes = STREAM_BYTES,
                                                          .span = o.written,
                                                          .next = hot_next,
                                                          .clients = 1024,
                                                          .rate = rate,
                                                          .run_ns = 60 * SECOND_NS,
                                                          .seed = SEED,
                                                          .data = &streams}));
    uint64_t before = hits_of(rig);
    warm.count = HOT_PROBES;
    warm.clients = 1;
    warm.seed = SEED + 1;
    load_free(load_run(rig->t, &warm));
    printf("| %s | %.0f | %.1f |\n", name, rate / 2, 100.0 * (double)(hits_of(rig) - before) / HOT_PROBES);
    rig_destroy(rig);
}

static void section_hot(void)
{
    printf(
        "\n128 MiB of a cache of 256 MiB are hot: hits there, behind a minute of 16 streams of 64 KiB reads beside as\n"
        "many reads of what is hot\n\n| read-ahead | reads of streams a second | hits, %% |\n| --- | --- | --- |\n");
    hot_row(READAHEAD_NONE, "none", 0);
    hot_row(READAHEAD_NONE, "none", 2000);
    hot_row(READAHEAD_ADAPTIVE, "adaptive", 2000);
    hot_row(READAHEAD_ALWAYS, "always", 2000);
}

/* --- what is asserted --- */

static bool is_at_least(const char *what, double is, double least)
{
    printf("%-60s %7.1f, at least %.0f: %s\n", what, is, least, is >= least ? "ok" : "FAILED");
    return is >= least;
}

static bool check(void)
{
    struct writes w = {32 * MIB, 256 * MIB, 20, 10, SB_PPL, 1};
    double times = writes_rate(&w, true) / writes_rate(&w, false);
    double percent = 100 * stream_rate(32 * MIB, SB_PPL, 5) / stream_rate(0, SB_PPL, 5);
    bool good = is_at_least("4 KiB random writes with flushes: battery / through", times, TIMES_LEAST);
    return is_at_least("16 KiB writes in sequence: percent of full rows", percent, ROWS_LEAST) && good;
}

static const struct {
    const char *name;
    void (*print)(void);
} sections[] = {{"disk", section_disk}, {"writes", section_writes},   {"rows", section_rows},
                {"full", section_full}, {"streams", section_streams}, {"hot", section_hot}};

int main(int argc, char **argv)
{
    bool known = argc < 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && strcmp(argv[1], "check") == 0)
        return check() ? 0 : 1;
    for (unsigned i = 0; i < ARRAY_LENGTH(sections); i++) {
        if (argc > 1 && strcmp(argv[1], sections[i].name) != 0)
            continue;
        sections[i].print();
        known = true;
    }
    if (!known)
        fprintf(stderr, "cache_disks: no section %s\n", argv[1]);
    return known ? 0 : 2;
}
