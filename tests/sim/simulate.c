/*
 * simulate: many seeds in processes, or one with a trace; see docs/testing.md.
 *
 *   simulate --seeds A..B [-j N] [--seconds S] [--theme NAME] [--caches | --no-caches] [--all | --quick]
 *   simulate --seed N [--theme NAME] [--caches | --no-caches] [--verbose] [--skip LIST]
 *
 * --theme: what is drawn most, an action or a scene by its name in the trace; without it the seed draws that as well.
 * --caches, --no-caches: all runs have caches, or none; without it the seed draws that.
 * --all goes on after a failure, --quick does not shrink it.
 *
 * A worker runs seed after seed and writes where it is into shared memory; when it dies, by a failed check or by a
 * signal, that seed has failed. The seed is then shrunk: actions are left out as long as it still fails (each attempt a
 * process of its own), and what is left is run once more with a trace.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/check.h"
#include "tests/sim/sim.h"

enum { WORKERS = 64, SHRINK_ATTEMPTS = 600, ATTEMPT_SECONDS = 60, TRACE_LINES = 160, TWICE = 64 };

struct worker {
    pid_t pid;
    FILE *errors; /* its standard error */
    uint64_t first, step;
    /* Written by the worker. */
    uint64_t seed, runs, events, lives, crashes, crashes_in_recovery, recovery_runs, strict;
    double virtual_s;
    char said[1024];
};

struct options {
    uint64_t first, last; /* seeds, both included */
    unsigned jobs, seconds;
    bool one, all, quick;
    struct sim_order order; /* its seed, of many, is each in turn */
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* --- shrinking --- */

/* Does it fail, in a process of its own? */
static bool attempt_fails(const struct sim_order *order)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct sim_result result;
        alarm(ATTEMPT_SECONDS);
        if (freopen("/dev/null", "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL)
            _exit(0);
        _exit(sim_run(order, &result) ? 0 : 1);
    }
    int status = 0;
    ASSERT(pid > 0 && waitpid(pid, &status, 0) == pid);
    return status != 0;
}

static void shrink(struct sim_order *order)
{
    unsigned attempts = 0;
    for (unsigned piece = SIM_ACTIONS / 2; piece > 0; piece /= 2) {
        for (unsigned at = 0; at < SIM_ACTIONS && attempts < SHRINK_ATTEMPTS; at += piece) {
            bool kept[SIM_ACTIONS];
            memcpy(kept, order->skip, sizeof kept);
            memset(order->skip + at, true, piece);
            if (memcmp(kept, order->skip, sizeof kept) == 0)
                continue;
            attempts++;
            if (!attempt_fails(order))
                memcpy(order->skip, kept, sizeof kept);
        }
    }
}

static void print_skip(const bool *skip)
{
    const char *comma = "";
    for (unsigned first = 0, end; first < SIM_ACTIONS; first = end + 1) {
        for (end = first; end < SIM_ACTIONS && skip[end]; end++)
            ;
        if (end == first)
            continue;
        if (end - first == 1)
            printf("%s%u", comma, first);
        else
            printf("%s%u-%u", comma, first, end - 1);
        comma = ",";
    }
}

/* The last lines of a run with its trace. */
static void print_trace(const struct sim_order *order)
{
    static char lines[TRACE_LINES][400];
    uint64_t count = 0;
    int ends[2];
    fflush(NULL);
    ASSERT(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct sim_result result;
        alarm(ATTEMPT_SECONDS);
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        bool good = sim_run(order, &result);
        printf("%s\n", good ? "it does not fail any more" : result.said);
        fflush(NULL);
        _exit(0);
    }
    close(ends[1]);
    FILE *from = fdopen(ends[0], "r");
    while (from != NULL && fgets(lines[count % TRACE_LINES], sizeof lines[0], from) != NULL)
        if (strstr(lines[count % TRACE_LINES], "             sd") == NULL)
            count++;
    fclose(from);
    waitpid(pid, NULL, 0);
    for (uint64_t i = count > TRACE_LINES ? count - TRACE_LINES : 0; i < count; i++)
        fputs(lines[i % TRACE_LINES], stdout);
}

static void report_failure(const struct options *o, uint64_t seed, const char *said)
{
    struct sim_order order = o->order;
    order.seed = seed;
    printf("seed %llu FAILED: %s\n", (unsigned long long)seed, said[0] != '\0' ? said : "it died of a signal");
    fflush(stdout);
    if (o->all || o->quick)
        return;
    shrink(&order);
    order.verbose = true;
    print_trace(&order);
    printf("to replay: simulate --seed %llu ", (unsigned long long)seed);
    if (order.theme != ACT_KINDS)
        printf("--theme '%s' ", sim_action_name(order.theme));
    printf("%s--verbose --skip ", order.caches == SIM_CACHES_ALWAYS  ? "--caches "
                                  : order.caches == SIM_CACHES_NEVER ? "--no-caches "
                                                                     : "");
    print_skip(order.skip);
    printf("\n(without --skip: the whole run)\n");
    fflush(stdout);
}

/* --- workers --- */

static void count(struct worker *w, const struct sim_result *result)
{
    w->runs++;
    w->events += result->events;
    w->lives += result->lives;
    w->crashes += result->crashes;
    w->crashes_in_recovery += result->crashes_in_recovery;
    w->recovery_runs += result->crashes_in_recovery > 0;
    w->strict += result->strict;
    w->virtual_s += (double)result->virtual_ns / 1e9;
}

/* Of shortcuts.c, where that is linked. */
void mappings_alike(bool wanted) __attribute__((weak));

static bool run_twice(const struct sim_order *order, struct sim_result *result)
{
    struct sim_result again;
    if (mappings_alike != NULL)
        mappings_alike(true);
    bool good = sim_run(order, result), same = good && sim_run(order, &again) && again.hash == result->hash;
    if (mappings_alike != NULL)
        mappings_alike(false);
    if (good && !same)
        snprintf(result->said, sizeof result->said, "not the same when run twice");
    return same;
}

static void work(struct worker *w, const struct options *o, double until)
{
    for (uint64_t seed = w->first; seed <= o->last && now_s() < until; seed += w->step) {
        struct sim_order order = o->order;
        struct sim_result result;
        order.seed = seed;
        w->seed = seed;
        alarm(ATTEMPT_SECONDS);
        bool good = seed % TWICE == 0 ? run_twice(&order, &result) : sim_run(&order, &result);
        if (!good) {
            memcpy(w->said, result.said, sizeof w->said);
            _exit(1);
        }
        count(w, &result);
    }
    _exit(0);
}

static void worker_start(struct worker *w, const struct options *o, double until)
{
    fflush(NULL);
    w->said[0] = '\0';
    w->errors = tmpfile();
    pid_t pid = fork();
    ASSERT(pid >= 0 && w->errors != NULL);
    if (pid == 0) {
        dup2(fileno(w->errors), 2);
        work(w, o, until);
    }
    w->pid = pid;
}

/* What it died of: the first line on standard error that is no log line of the array's. */
static void worker_died(struct worker *w, int status)
{
    char line[sizeof w->said];
    rewind(w->errors);
    while (w->said[0] == '\0' && fgets(line, sizeof line, w->errors) != NULL)
        if (strstr(line, "assert") != NULL || strstr(line, "ERROR") != NULL || strstr(line, "runtime error") != NULL)
            snprintf(w->said, sizeof w->said, "%.*s", (int)strcspn(line, "\n"), line);
    if (w->said[0] == '\0' && WIFSIGNALED(status))
        snprintf(w->said, sizeof w->said, "%s", strsignal(WTERMSIG(status)));
}

static struct worker *worker_of(struct worker *workers, unsigned jobs, pid_t pid)
{
    for (unsigned i = 0; i < jobs; i++)
        if (workers[i].pid == pid)
            return &workers[i];
    return NULL;
}

static void print_totals(const struct worker *workers, unsigned jobs, uint64_t failures, double seconds)
{
    struct worker sum = {0};
    for (unsigned i = 0; i < jobs; i++) {
        sum.runs += workers[i].runs;
        sum.events += workers[i].events;
        sum.lives += workers[i].lives;
        sum.crashes += workers[i].crashes;
        sum.crashes_in_recovery += workers[i].crashes_in_recovery;
        sum.recovery_runs += workers[i].recovery_runs;
        sum.virtual_s += workers[i].virtual_s;
    }
    double runs = sum.runs > 0 ? (double)sum.runs : 1;
    printf("%llu seeds green, %llu failed, in %.1f s (%.0f a second a process); %llu starts, %llu crashes, %llu of "
           "them in recovery "
           "(in %.0f %% of the runs); %.1f million events, %.1f simulated hours\n",
           (unsigned long long)sum.runs, (unsigned long long)failures, seconds, runs / seconds / jobs,
           (unsigned long long)sum.lives, (unsigned long long)sum.crashes, (unsigned long long)sum.crashes_in_recovery,
           100.0 * (double)sum.recovery_runs / runs, (double)sum.events / 1e6, sum.virtual_s / 3600);
}

static int run_many(const struct options *o)
{
    struct worker *workers =
        mmap(NULL, WORKERS * sizeof *workers, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT(workers != MAP_FAILED);
    double began = now_s(), until = o->seconds != 0 ? began + o->seconds : 1e18;
    uint64_t failures = 0;
    unsigned running = o->jobs;
    for (unsigned i = 0; i < o->jobs; i++) {
        workers[i].first = o->first + i;
        workers[i].step = o->jobs;
        worker_start(&workers[i], o, until);
    }
    while (running > 0) {
        int status;
        struct worker *w = worker_of(workers, o->jobs, wait(&status));
        if (w == NULL)
            continue;
        running--;
        worker_died(w, status);
        fclose(w->errors);
        if (status == 0)
            continue;
        failures++;
        report_failure(o, w->seed, w->said);
        w->first = w->seed + w->step;
        if (!o->all)
            until = 0;
        if (o->all && w->first <= o->last && now_s() < until) {
            worker_start(w, o, until);
            running++;
        } else if (!o->all) {
            for (unsigned i = 0; i < o->jobs; i++)
                if (&workers[i] != w)
                    kill(workers[i].pid, SIGTERM);
            break;
        }
    }
    print_totals(workers, o->jobs, failures, now_s() - began);
    return failures == 0 ? 0 : 1;
}

static int run_one(const struct options *o)
{
    struct sim_result result;
    bool good = sim_run(&o->order, &result);
    printf("seed %llu (%s): %s%s; %u actions, %llu starts, %llu crashes, %llu events, hash %016llx\n",
           (unsigned long long)o->first, result.what, good ? "green" : "FAILED: ", result.said, result.actions,
           (unsigned long long)result.lives, (unsigned long long)result.crashes, (unsigned long long)result.events,
           (unsigned long long)result.hash);
    return good ? 0 : 1;
}

/* --- what is asked for --- */

static bool parse_skip(const char *text, bool *skip)
{
    while (*text != '\0') {
        char *end;
        unsigned long first = strtoul(text, &end, 10), last = first;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        if (end == text || (*end != ',' && *end != '\0') || last >= SIM_ACTIONS)
            return false;
        for (; first <= last; first++)
            skip[first] = true;
        text = *end == ',' ? end + 1 : end;
    }
    return true;
}

static bool parse_seeds(const char *text, struct options *o)
{
    char *end;
    o->first = strtoull(text, &end, 10);
    if (end == text || strncmp(end, "..", 2) != 0)
        return false;
    o->last = strtoull(end + 2, &end, 10);
    return *end == '\0' && o->last >= o->first;
}

static bool parse_theme(const char *text, enum action_kind *theme)
{
    unsigned kind = 0;
    while (kind < ACT_KINDS && strcmp(sim_action_name((enum action_kind)kind), text) != 0)
        kind++;
    *theme = (enum action_kind)kind;
    return kind < ACT_KINDS;
}

static bool parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *it = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        bool good = true, took = true;
        if (strcmp(it, "--seed") == 0)
            o->one = good = (o->first = o->order.seed = strtoull(value, NULL, 10)) > 0;
        else if (strcmp(it, "--seeds") == 0)
            good = parse_seeds(value, o);
        else if (strcmp(it, "--seconds") == 0)
            good = (o->seconds = (unsigned)strtoul(value, NULL, 10)) > 0;
        else if (strcmp(it, "--skip") == 0)
            good = parse_skip(value, o->order.skip);
        else if (strcmp(it, "--theme") == 0)
            good = parse_theme(value, &o->order.theme);
        else if (strcmp(it, "-j") == 0)
            good = (o->jobs = (unsigned)strtoul(value, NULL, 10)) > 0 && o->jobs <= WORKERS;
        else
            took = false;
        if (strcmp(it, "--verbose") == 0)
            o->order.verbose = true;
        else if (strcmp(it, "--caches") == 0)
            o->order.caches = SIM_CACHES_ALWAYS;
        else if (strcmp(it, "--no-caches") == 0)
            o->order.caches = SIM_CACHES_NEVER;
        else if (strcmp(it, "--all") == 0)
            o->all = true;
        else if (strcmp(it, "--quick") == 0)
            o->quick = true;
        else if (!took || !good)
            return false;
        i += took;
    }
    return o->first > 0;
}

int main(int argc, char **argv)
{
    struct options o = {.jobs = 1, .order.theme = ACT_KINDS};
    setvbuf(stdout, NULL, _IOLBF, 0);
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 16 << 20);
    if (!parse(argc, argv, &o)) {
        fprintf(stderr, "usage: simulate --seed N [--theme NAME] [--caches | --no-caches] [--verbose] [--skip LIST]\n"
                        "       simulate --seeds A..B [-j N] [--seconds S] [--theme NAME] [--caches | --no-caches] "
                        "[--all | --quick]\n");
        return 2;
    }
    return o.one ? run_one(&o) : run_many(&o);
}
