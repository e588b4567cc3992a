/*
 * Replacement policies on generated traces: which share of the reads is answered from memory?
 *
 *      cache_traces [accesses]
 *
 * A trace is a sequence of block numbers from a seed. Each is replayed over the policies, with caches of a part of what
 * the trace touches. `second` traces pass through an LRU in front first, as those of initiators with a page cache of
 * their own do. The last column is Belady's optimum, which knows the future: nobody does better.
 *
 * The traces that are named after public ones have their statistics: how often a block is used on the mean, and which
 * share of the blocks is used once, in all of the trace and in parts of it that touch a tenth and a hundredth of the
 * blocks. What they have, beside what they should, is printed first.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/policy.h"
#include "core/check.h"
#include "core/log.h"

enum { KEYS = 100000, ACCESSES = 2000000 };

static uint64_t state;

static uint64_t draw(void)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static double draw_unit(void)
{
    return (double)(draw() >> 11) / (double)(1ull << 53);
}

/* --- traces --- */

/* Keys by rank, spread over the volume; a cumulative table. */
static double zipf_table[KEYS];
static uint32_t zipf_keys;

static void zipf_prepare_keys(uint32_t keys, double alpha)
{
    double sum = 0;
    zipf_keys = keys;
    for (unsigned i = 0; i < keys; i++)
        zipf_table[i] = sum += pow(i + 1, -alpha);
    for (unsigned i = 0; i < keys; i++)
        zipf_table[i] /= sum;
}

static void zipf_prepare(double alpha)
{
    zipf_prepare_keys(KEYS, alpha);
}

static uint32_t zipf(void)
{
    double u = draw_unit();
    uint32_t low = 0, high = zipf_keys - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (zipf_table[middle] < u)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint32_t)((uint64_t)low * 48271 % zipf_keys);
}

static void make_zipf(uint32_t *trace, uint32_t count, double alpha)
{
    zipf_prepare(alpha);
    for (uint32_t i = 0; i < count; i++)
        trace[i] = zipf();
}

static void make_zipf_06(uint32_t *trace, uint32_t count)
{
    make_zipf(trace, count, 0.6);
}

static void make_zipf_09(uint32_t *trace, uint32_t count)
{
    make_zipf(trace, count, 0.9);
}

static void make_zipf_12(uint32_t *trace, uint32_t count)
{
    make_zipf(trace, count, 1.2);
}

static void make_loop(uint32_t *trace, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        trace[i] = i % KEYS;
}

/* A hot set, and now and then all of a large file once, read by nobody again. */
static void make_scans(uint32_t *trace, uint32_t count)
{
    uint32_t scan = 0, at = KEYS;
    zipf_prepare(0.9);
    for (uint32_t i = 0; i < count; i++) {
        if (scan == 0 && draw() % 100000 == 0)
            scan = 100000;
        bool scans = scan > 0 && draw() % 2;
        scan -= scans;
        trace[i] = scans ? at++ : zipf();
    }
}

/* What is popular moves on: every 200,000 accesses a tenth of the ranks are other blocks. */
static void make_drift(uint32_t *trace, uint32_t count)
{
    zipf_prepare(0.9);
    for (uint32_t i = 0; i < count; i++)
        trace[i] = (zipf() + i / 20000 * (KEYS / 100)) % (2 * KEYS);
}

/* An index (small, hot), a table (large, skewed), a log that is read once, reports that scan the table. */
static void make_database(uint32_t *trace, uint32_t count)
{
    uint32_t log = 3 * KEYS, report = 0;
    zipf_prepare(0.8);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t dice = draw() % 100;
        if (dice < 35)
            trace[i] = 2 * KEYS + (uint32_t)(draw() % (KEYS / 50));
        else if (dice < 75)
            trace[i] = zipf();
        else if (dice < 85)
            trace[i] = log++;
        else
            trace[i] = report++ % KEYS;
    }
}

/* Of a mail or file server: most files are read once, soon after they were written, some again and again. */
static void make_files(uint32_t *trace, uint32_t count)
{
    zipf_prepare(1.0);
    for (uint32_t i = 0, file = KEYS; i < count;) {
        uint32_t blocks = 1 + (uint32_t)(draw() % 16), first = draw() % 3 == 0 ? zipf() / 16 * 16 : file;
        file += first >= KEYS ? 16 : 0;
        uint32_t times = first >= KEYS && draw() % 4 == 0 ? 2 : 1;
        for (uint32_t n = 0; n < times; n++)
            for (uint32_t k = 0; k < blocks && i < count; k++)
                trace[i++] = first + k;
    }
}

/*
 * Of public traces: requests and blocks as those who keep them list them (github.com/cacheMon/cache_dataset), shares
 * of blocks used once about as in Yang et al. (SOSP 2023), not checked against it. Rebuilt from: runs of blocks that
 * are used once; uses of what was used lately, the more so the later that was; and blocks by rank.
 */
struct profile {
    const char *name;
    uint32_t accesses;
    double uses, once[3]; /* of a block; shares of blocks used once: in all, in a tenth, in a hundredth */
    /* Rebuilt from: the share of one-time uses, and of uses lately and how far back; the others, and their skew. */
    double fresh, again;
    uint32_t window, ranked;
    double alpha;
};
static const struct profile profiles[] = {
    {"MSR Cambridge", 554000, 5.5, {56, 74, 86}, 0.096, 0.1, 1000, 54000, 0.8},
    {"CloudPhysics", 430000, 4.3, {40, 71, 80}, 0.0911, 0.3, 50000, 63000, 0.6},
    {"Alibaba", 1156000, 11.6, {36, 68, 81}, 0.028, 0.2, 10000, 72000, 0.9},
    {"Tencent CBS", 2000000, 61, {25, 73, 77}, 0.004, 0.1, 10000, 24500, 0.9},
};

static void make_profile(const struct profile *p, uint32_t *trace, uint32_t count)
{
    enum { RUN = 32 };
    double starts = p->fresh / ((RUN + 1) / 2.0 * (1 - p->fresh) + p->fresh); /* runs of 1 to RUN blocks */
    uint32_t run = 0, fresh = p->ranked;
    zipf_prepare_keys(p->ranked, p->alpha);
    for (uint32_t i = 0; i < count; i++) {
        double u = run > 0 ? 0 : draw_unit();
        uint32_t back = (uint32_t)exp(draw_unit() * log(p->window));
        if (u < starts) {
            run = run > 0 ? run - 1 : (uint32_t)(draw() % RUN);
            trace[i] = fresh++;
        } else if (u < starts + p->again * (1 - starts) && i > 0) {
            trace[i] = trace[i - MIN(back, i)];
        } else {
            trace[i] = zipf();
        }
    }
}

static const struct {
    const char *name;
    void (*make)(uint32_t *, uint32_t);
} traces[] = {
    {"zipf 0.6", make_zipf_06},   {"zipf 0.9", make_zipf_09}, {"zipf 1.2", make_zipf_12},  {"loop", make_loop},
    {"zipf + scans", make_scans}, {"drift", make_drift},      {"database", make_database}, {"files", make_files},
};

/* --- replay --- */

struct replay {
    uint32_t slots, used;
    uint32_t *slot_of, *keys; /* by key; by slot */
    struct cache_policy *policy;
};

static uint64_t key_of(void *keys, uint32_t slot)
{
    return ((const uint32_t *)keys)[slot];
}

static struct replay replay_create(const struct cache_policy_ops *ops, uint32_t slots, uint32_t keys)
{
    struct replay r = {.slots = slots,
                       .slot_of = malloc(keys * sizeof(uint32_t)),
                       .keys = malloc(slots * sizeof(uint32_t)),
                       .policy = ops->create(slots)};
    ASSERT(r.slot_of != NULL && r.keys != NULL && r.policy != NULL);
    memset(r.slot_of, 0xff, keys * sizeof(uint32_t));
    return r;
}

static void replay_destroy(struct replay *r)
{
    r->policy->ops->destroy(r->policy);
    free(r->slot_of);
    free(r->keys);
}

static bool replay_access(struct replay *r, uint32_t key)
{
    const struct cache_policy_ops *ops = r->policy->ops;
    if (r->slot_of[key] != UINT32_MAX) {
        ops->hit(r->policy, r->slot_of[key]);
        return true;
    }
    uint32_t slot = r->used;
    if (r->used < r->slots) {
        r->used++;
    } else {
        slot = ops->evict(r->policy, false, key_of, r->keys);
        r->slot_of[r->keys[slot]] = UINT32_MAX;
    }
    r->keys[slot] = key;
    r->slot_of[key] = slot;
    ops->insert(r->policy, slot, key, CACHE_COLD);
    return false;
}

static double hit_share(const struct cache_policy_ops *ops, const uint32_t *trace, uint32_t count, uint32_t slots,
                        uint32_t keys)
{
    struct replay r = replay_create(ops, slots, keys);
    uint32_t hits = 0;
    for (uint32_t i = 0; i < count; i++)
        hits += replay_access(&r, trace[i]);
    replay_destroy(&r);
    return 100.0 * hits / count;
}

/* --- the optimum: whoever is needed last leaves; a heap of slots by their next use --- */

struct optimum {
    uint32_t count, *heap, *place; /* keys in the heap; where each stands */
    const uint32_t *next;          /* by access: the next one of the same key */
    uint32_t *until;               /* by key */
};

static void heap_set(struct optimum *o, uint32_t at, uint32_t key)
{
    o->heap[at] = key;
    o->place[key] = at;
}

static void heap_mend(struct optimum *o, uint32_t at)
{
    uint32_t key = o->heap[at];
    while (at > 0 && o->until[o->heap[(at - 1) / 2]] < o->until[key]) {
        heap_set(o, at, o->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (uint32_t child = 2 * at + 1; child < o->count; child = 2 * at + 1) {
        child += child + 1 < o->count && o->until[o->heap[child + 1]] > o->until[o->heap[child]];
        if (o->until[o->heap[child]] <= o->until[key])
            break;
        heap_set(o, at, o->heap[child]);
        at = child;
    }
    heap_set(o, at, key);
}

static uint32_t *next_uses(const uint32_t *trace, uint32_t count, uint32_t keys)
{
    uint32_t *next = malloc(count * sizeof *next), *last = malloc(keys * sizeof *last);
    ASSERT(next != NULL && last != NULL);
    memset(last, 0xff, keys * sizeof *last);
    for (uint32_t i = count; i-- > 0;) {
        next[i] = last[trace[i]];
        last[trace[i]] = i;
    }
    free(last);
    return next;
}

static double optimum_share(const uint32_t *trace, uint32_t count, uint32_t slots, uint32_t keys)
{
    uint32_t *next = next_uses(trace, count, keys), hits = 0;
    struct optimum o = {.heap = malloc(slots * sizeof(uint32_t)),
                        .place = malloc(keys * sizeof(uint32_t)),
                        .until = calloc(keys, sizeof(uint32_t)),
                        .next = next};
    ASSERT(o.heap != NULL && o.place != NULL && o.until != NULL);
    memset(o.place, 0xff, keys * sizeof(uint32_t));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t key = trace[i];
        o.until[key] = next[i];
        if (o.place[key] != UINT32_MAX) {
            hits++;
            heap_mend(&o, o.place[key]);
        } else if (o.count < slots) {
            heap_set(&o, o.count++, key);
            heap_mend(&o, o.count - 1);
        } else if (next[i] < o.until[o.heap[0]]) { /* else it is not worth a place */
            o.place[o.heap[0]] = UINT32_MAX;
            heap_set(&o, 0, key);
            heap_mend(&o, 0);
        }
    }
    free(o.heap);
    free(o.place);
    free(o.until);
    free(next);
    return 100.0 * hits / count;
}

/* --- the table --- */

static uint32_t keys_of(const uint32_t *trace, uint32_t count)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < count; i++)
        most = MAX(most, trace[i]);
    return most + 1;
}

/* What an LRU in front of it does not answer. */
static uint32_t filter(uint32_t *trace, uint32_t count, uint32_t slots, uint32_t keys)
{
    struct replay r = replay_create(&cache_policy_lru, slots, keys);
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!replay_access(&r, trace[i]))
            trace[left++] = trace[i];
    replay_destroy(&r);
    return left;
}

static const struct cache_policy_ops *const policies[] = {&cache_policy_lru, &cache_policy_arc, &cache_policy_s3fifo};
static double sums[ARRAY_LENGTH(policies)];
static unsigned rows;

static void print_rows(const char *name, bool second, const uint32_t *trace, uint32_t count, uint32_t keys,
                       uint32_t blocks)
{
    static const unsigned percents[] = {2, 10, 30};
    for (unsigned i = 0; i < ARRAY_LENGTH(percents); i++) {
        uint32_t slots = blocks * percents[i] / 100;
        printf("| %s%s | %u %% |", name, second ? ", second" : "", percents[i]);
        for (unsigned k = 0; k < ARRAY_LENGTH(policies); k++) {
            double share = hit_share(policies[k], trace, count, slots, keys);
            sums[k] += share;
            printf(" %.1f |", share);
        }
        printf(" %.1f |\n", optimum_share(trace, count, slots, keys));
        rows++;
    }
}

/* Of the blocks that are touched from `from` on until there are `most`: how many, and the percentage used once. */
static double used_once(const uint32_t *trace, uint32_t count, uint32_t from, uint32_t most, uint32_t keys,
                        uint32_t *blocks)
{
    uint8_t *uses = calloc(keys, 1);
    uint32_t once = 0;
    ASSERT(uses != NULL);
    *blocks = 0;
    for (uint32_t i = from; i < count && *blocks < most; i++) {
        uint8_t *use = &uses[trace[i]];
        *blocks += *use == 0;
        once = once + (*use == 0) - (*use == 1);
        *use = (uint8_t)MIN(*use + 1, 2);
    }
    free(uses);
    return 100.0 * once / MAX(*blocks, 1u);
}

/* The mean of five parts that touch so many blocks. */
static double used_once_in_parts(const uint32_t *trace, uint32_t count, uint32_t most, uint32_t keys)
{
    enum { PARTS = 5 };
    double sum = 0;
    uint32_t blocks;
    for (uint32_t i = 0; i < PARTS; i++)
        sum += used_once(trace, count, count / (PARTS + 1) * i, most, keys, &blocks);
    return sum / PARTS;
}

static uint32_t print_statistics(const struct profile *p, const uint32_t *trace, uint32_t count, uint32_t keys)
{
    uint32_t blocks;
    double all = used_once(trace, count, 0, UINT32_MAX, keys, &blocks);
    printf("| %s | %.1f (%.1f) | %.0f (%.0f) | %.0f (%.0f) | %.0f (%.0f) |\n", p->name, (double)count / blocks, p->uses,
           all, p->once[0], used_once_in_parts(trace, count, blocks / 10, keys), p->once[1],
           used_once_in_parts(trace, count, blocks / 100, keys), p->once[2]);
    return blocks;
}

/* `blocks`: what caches are parts of. */
static void print_trace(const char *name, uint32_t *trace, uint32_t count, uint32_t keys, uint32_t blocks)
{
    print_rows(name, false, trace, count, keys, blocks);
    uint32_t left = filter(trace, count, blocks / 20, keys);
    print_rows(name, true, trace, left, keys, blocks);
}

static uint32_t make_by_profile(unsigned which, uint32_t *trace, uint32_t most)
{
    uint32_t count = MIN(profiles[which].accesses, most);
    state = 100 + which;
    make_profile(&profiles[which], trace, count);
    return count;
}

int main(int argc, char **argv)
{
    uint32_t accesses = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : ACCESSES, blocks[ARRAY_LENGTH(profiles)];
    uint32_t *trace = malloc(accesses * sizeof *trace);
    ASSERT(trace != NULL && accesses > 0);
    printf("| rebuilt from | uses of a block | used once, %% | in a tenth | in a hundredth |\n"
           "| --- | --- | --- | --- | --- |\n");
    for (unsigned i = 0; i < ARRAY_LENGTH(profiles); i++) {
        uint32_t count = make_by_profile(i, trace, accesses);
        blocks[i] = print_statistics(&profiles[i], trace, count, keys_of(trace, count));
    }
    printf("\n| trace | cache | lru | arc | s3-fifo | optimum |\n| --- | --- | --- | --- | --- | --- |\n");
    for (unsigned i = 0; i < ARRAY_LENGTH(traces); i++) {
        state = i + 1;
        traces[i].make(trace, accesses);
        print_trace(traces[i].name, trace, accesses, keys_of(trace, accesses), KEYS);
    }
    for (unsigned i = 0; i < ARRAY_LENGTH(profiles); i++) {
        uint32_t count = make_by_profile(i, trace, accesses);
        print_trace(profiles[i].name, trace, count, keys_of(trace, count), blocks[i]);
    }
    printf("| mean | |");
    for (unsigned k = 0; k < ARRAY_LENGTH(policies); k++)
        printf(" %.1f |", sums[k] / rows);
    printf(" |\n");
    free(trace);
    return 0;
}
