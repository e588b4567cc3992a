/*
 * The response surface, as reviews of controllers plot it: how long a read takes that lies `stride` sectors from one
 * that was made `distance` reads ago. On RAID 5 of five hard disks in virtual time (harddisk.h), with a cache.
 *
 *      cache_surface [none | adaptive | always] [MiB of cache]
 *
 * Prints a line for each point: distance, stride, mean milliseconds, and the part that this is of a miss; and, behind
 * a `#`, how far the surface reaches. tests/bench/surface.gnuplot draws it.
 *
 * Every second read is a random one. Those between are each so far from one of them that was made a while ago.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "tests/bench/cache_load.h"
#include "tests/bench/cache_rig.h"

enum { SECTOR = 512, STRIDES_EACH = 18, STRIDES = 2 * STRIDES_EACH - 1, DISTANCES = 17, NEAR_SECTORS = 128 };
enum { SAMPLES = 24, HISTORY = 1 << 16 };
#define SPAN (UINT64_C(32) * GIB)

struct surface {
    uint64_t distance; /* reads */
    uint64_t *history; /* the random reads, sectors: HISTORY of them */
    uint64_t random, last_ns, warm;
    bool probing;                 /* the read under way is no random one */
    unsigned stride;              /* ... but so far from one: an index */
    uint64_t sum_ns[STRIDES + 1]; /* the last: random reads */
    uint64_t count[STRIDES + 1];
};

static int64_t stride_sectors(unsigned i)
{
    int64_t far = (int64_t)i - (STRIDES_EACH - 1);
    return far == 0 ? 0 : far > 0 ? INT64_C(1) << (far - 1) : -(INT64_C(1) << (-far - 1));
}

/* Half as far back, or up to the whole distance, as dice fall; counted in random reads. */
static uint64_t reads_back(struct surface *s, uint64_t *seed)
{
    uint64_t farthest = (s->distance - 1) / 2, play = s->distance / 4;
    return farthest - (play > 0 ? test_random(seed) % play : 0);
}

static void surface_record(struct surface *s, uint64_t now_ns)
{
    unsigned which = s->probing ? s->stride : STRIDES;
    if (s->random > s->warm) {
        s->sum_ns[which] += now_ns - s->last_ns;
        s->count[which]++;
    }
    s->last_ns = now_ns;
}

static uint64_t surface_next(struct load *load, unsigned client)
{
    struct surface *s = load->options.data;
    (void)client;
    surface_record(s, loop_now_ns(&load->t->loop));
    s->probing = !s->probing;
    if (!s->probing) {
        uint64_t margin = UINT64_C(1) << STRIDES_EACH;
        uint64_t at = margin + test_random(&load->options.seed) % (SPAN / SECTOR - 2 * margin);
        s->history[++s->random % HISTORY] = at;
        return at * SECTOR;
    }
    s->stride = (s->stride + 1) % STRIDES;
    uint64_t from = s->history[(s->random - reads_back(s, &load->options.seed)) % HISTORY];
    return (uint64_t)((int64_t)from + stride_sectors(s->stride)) * SECTOR;
}

static void surface_measure(struct rig *rig, struct surface *s)
{
    s->warm = s->distance / 2 + 64;
    s->probing = true;
    struct load_options o = {.dev = rig->top,
                             .op = BLK_READ,
                             .bytes = SECTOR,
                             .span = SPAN,
                             .next = surface_next,
                             .clients = 1,
                             .count = 2 * (s->warm + SAMPLES * STRIDES),
                             .seed = s->distance,
                             .data = s};
    s->random = HISTORY;
    s->warm += HISTORY;
    memset(s->history, 0, HISTORY * sizeof *s->history);
    for (unsigned i = 0; i < HISTORY; i++)
        s->history[i] = UINT64_C(1) << STRIDES_EACH;
    load_free(load_run(rig->t, &o));
}

static double mean_ms(const struct surface *s, unsigned which)
{
    return s->count[which] == 0 ? 0 : (double)s->sum_ns[which] / (double)s->count[which] / 1e6;
}

/* Does each read of at most so many sectors' stride take a tenth of a miss at most? */
static bool surface_print(const struct surface *s)
{
    bool near = true;
    for (unsigned i = 0; i < STRIDES; i++) {
        double part = mean_ms(s, i) / mean_ms(s, STRIDES);
        printf("%lu %ld %.3f %.3f\n", (unsigned long)s->distance, (long)stride_sectors(i), mean_ms(s, i), part);
        near = near && (labs(stride_sectors(i)) > NEAR_SECTORS || part <= 0.1);
    }
    printf("\n");
    return near;
}

static void surface_all(enum readahead_mode mode, uint64_t cache_bytes)
{
    uint64_t *history = calloc(HISTORY, sizeof *history), from = 0, to = 0;
    ASSERT(history != NULL);
    printf("# distance (reads), stride (sectors), ms, part of a miss\n");
    for (unsigned i = 0; i < DISTANCES; i++) {
        struct rig_options o = rig_battery(cache_bytes);
        o.cache.readahead = mode;
        o.written = SPAN;
        struct rig *rig = rig_create(&o);
        struct surface s = {.distance = UINT64_C(1) << i, .history = history};
        surface_measure(rig, &s);
        bool near = surface_print(&s);
        from = near && to == 0 ? s.distance : from;
        to = near && (to == 0 || to * 2 == s.distance) ? s.distance : to;
        rig_destroy(rig);
    }
    printf("# strides of up to %d sectors take a tenth of a miss at most from distance %lu to %lu\n", NEAR_SECTORS,
           (unsigned long)from, (unsigned long)to);
    free(history);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        enum readahead_mode mode;
    } modes[] = {{"none", READAHEAD_NONE}, {"adaptive", READAHEAD_ADAPTIVE}, {"always", READAHEAD_ALWAYS}};
    uint64_t mib = argc > 2 ? strtoull(argv[2], NULL, 10) : 256;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (unsigned i = 0; i < ARRAY_LENGTH(modes) && argc > 1 && mib > 0; i++)
        if (strcmp(argv[1], modes[i].name) == 0) {
            surface_all(modes[i].mode, mib * MIB);
            return 0;
        }
    fprintf(stderr, "usage: cache_surface none | adaptive | always [MiB of cache]\n");
    return 2;
}
