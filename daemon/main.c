/*
 * corbeld: the process. The order of start and stop, on one page.
 *
 *   1. read and check the config (-t stops here)
 *   2. control reactor (this thread), worker, data reactors
 *   3. control socket: a second corbeld on the same config ends here, before it touches a disk
 *   4. on the worker: scan, assemble, serve, listen; then tell the service manager
 *   5. until SIGTERM or SIGINT; SIGHUP reloads
 *   6. on the worker: close listeners, drain, flush, mark the arrays clean
 */
#include <errno.h>
#include <event2/event.h>
#include <event2/thread.h>
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance.h"
#include "daemon/control.h"
#include "daemon/reactor.h"
#include "daemon/worker.h"

struct process {
    struct worker_job spares;
    struct event *second;
    bool spares_busy; /* atomic */
    struct reactor *reactor;
    struct worker *worker;
    struct appliance *appliance;
    struct control *control;
    struct worker_job start, stop, reload;
    struct task start_over, stop_over;
    struct event *signals[3], *watchdog;
    const char *pidfile;
    char why[512];
    int status; /* exit status */
    bool started, stopping;
    bool reloading; /* atomic: set here, cleared by the worker */
};

/* --- log: standard error, with the priorities of journald if it listens --- */

static void log_to_stderr(enum log_level level, const char *line)
{
    static const int priorities[] = {3, 4, 5, 6, 7};
    if (getenv("JOURNAL_STREAM") != NULL) {
        fprintf(stderr, "<%d>%s\n", priorities[level], line);
        return;
    }
    char stamp[32];
    time_t now = time(NULL);
    struct tm tm;
    strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &tm));
    fprintf(stderr, "%s %s: %s\n", stamp, log_level_name(level), line);
}

static enum log_level parse_log_level(const char *name)
{
    for (int level = LOG_LEVEL_ERROR; level < LOG_LEVEL_DEBUG; level++)
        if (strcmp(log_level_name((enum log_level)level), name) == 0)
            return (enum log_level)level;
    return LOG_LEVEL_DEBUG;
}

/* --- start --- */

static bool write_pidfile(const char *path)
{
    FILE *file = fopen(path, "w");
    bool good = file != NULL && fprintf(file, "%d\n", (int)getpid()) > 0;
    if (file != NULL)
        good = fclose(file) == 0 && good;
    return good;
}

static void begin_stop(struct process *p);

static void start_over(struct task *task)
{
    struct process *p = container_of(task, struct process, start_over);
    if (p->status != 0) {
        fprintf(stderr, "corbeld: %s\n", p->why);
        begin_stop(p);
        return;
    }
    if (p->pidfile != NULL && !write_pidfile(p->pidfile))
        log_warn("%s cannot be written: %s", p->pidfile, strerror(errno));
    p->started = true;
    log_notice("corbeld %s is ready", CORBEL_VERSION);
    sd_notify(0, "READY=1\nSTATUS=Serving.");
}

static void start_on_worker(struct worker_job *job)
{
    struct process *p = container_of(job, struct process, start);
    if (appliance_start(p->appliance, p->why, sizeof p->why) < 0)
        p->status = 1;
    loop_call(reactor_loop(p->reactor), &p->start_over);
}

/* --- stop --- */

static void extend_time(void)
{
    sd_notify(0, "EXTEND_TIMEOUT_USEC=60000000");
}

static void stop_over(struct task *task)
{
    reactor_stop(container_of(task, struct process, stop_over)->reactor);
}

static void stop_on_worker(struct worker_job *job)
{
    struct process *p = container_of(job, struct process, stop);
    appliance_stop(p->appliance, extend_time);
    loop_call(reactor_loop(p->reactor), &p->stop_over);
}

static void begin_stop(struct process *p)
{
    if (p->stopping)
        return;
    p->stopping = true;
    sd_notify(0, "STOPPING=1\nSTATUS=Finishing what is in flight.");
    worker_submit(p->worker, &p->stop);
}

static void on_terminate(evutil_socket_t number, short events, void *data)
{
    (void)events;
    reactor_woken(((struct process *)data)->reactor);
    log_notice("signal %d: stopping", (int)number);
    begin_stop(data);
}

/* --- reload --- */

static void log_sentences(const char *what, const json_t *list, enum log_level level)
{
    size_t index;
    json_t *item;
    json_array_foreach(list, index, item) log_write(level, "reload: %s%s", what, json_string_value(item));
}

static void reload_on_worker(struct worker_job *job)
{
    struct process *p = container_of(job, struct process, reload);
    json_t *result = appliance_reload(p->appliance);
    log_sentences("taken over: ", json_object_get(result, "taken"), LOG_LEVEL_NOTICE);
    log_sentences("not taken over: ", json_object_get(result, "refused"), LOG_LEVEL_WARN);
    log_sentences("nothing changed: ", json_object_get(result, "errors"), LOG_LEVEL_ERROR);
    json_decref(result);
    sd_notify(0, "READY=1");
    __atomic_store_n(&p->reloading, false, __ATOMIC_RELEASE);
}

static void on_reload(evutil_socket_t number, short events, void *data)
{
    (void)number, (void)events;
    struct process *p = data;
    reactor_woken(p->reactor);
    if (p->stopping || __atomic_exchange_n(&p->reloading, true, __ATOMIC_ACQ_REL))
        return; /* one is under way */
    sd_notify(0, "RELOADING=1");
    worker_submit(p->worker, &p->reload);
}

/* --- the process --- */

static void on_watchdog(evutil_socket_t fd, short events, void *data)
{
    (void)fd, (void)events;
    struct process *p = data;
    reactor_woken(p->reactor);
    if (p->stopping || appliance_alive(p->appliance))
        sd_notify(0, "WATCHDOG=1");
}

static void spares_on_worker(struct worker_job *job)
{
    struct process *p = container_of(job, struct process, spares);
    if (!appliance_is_stopped(p->appliance))
        appliance_spares_look(p->appliance);
    __atomic_store_n(&p->spares_busy, false, __ATOMIC_RELEASE);
}

static void on_second(evutil_socket_t fd, short events, void *data)
{
    (void)fd, (void)events;
    struct process *p = data;
    reactor_woken(p->reactor);
    if (p->started && !p->stopping && appliance_has_spares(p->appliance) &&
        !__atomic_exchange_n(&p->spares_busy, true, __ATOMIC_ACQ_REL))
        worker_submit(p->worker, &p->spares);
}

static void watch(struct process *p)
{
    static const struct timeval second = {1, 0};
    struct event_base *base = reactor_base(p->reactor);
    p->signals[0] = evsignal_new(base, SIGTERM, on_terminate, p);
    p->signals[1] = evsignal_new(base, SIGINT, on_terminate, p);
    p->signals[2] = evsignal_new(base, SIGHUP, on_reload, p);
    for (unsigned i = 0; i < ARRAY_LENGTH(p->signals); i++)
        event_add(p->signals[i], NULL);
    p->second = event_new(base, -1, EV_PERSIST, on_second, p);
    event_add(p->second, &second);
    uint64_t interval_us;
    if (sd_watchdog_enabled(0, &interval_us) > 0) {
        struct timeval half = {(time_t)(interval_us / 2 / 1000000), (suseconds_t)(interval_us / 2 % 1000000)};
        p->watchdog = event_new(base, -1, EV_PERSIST, on_watchdog, p);
        event_add(p->watchdog, &half);
    }
}

static void unwatch(struct process *p)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(p->signals); i++)
        event_free(p->signals[i]);
    event_free(p->second);
    if (p->watchdog != NULL)
        event_free(p->watchdog);
}

/* As many descriptors as we may have: one for each disk and each connection. */
static void raise_limits(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int run(struct config *config, const char *pidfile)
{
    struct process p = {.pidfile = pidfile,
                        .start.run = start_on_worker,
                        .stop.run = stop_on_worker,
                        .reload.run = reload_on_worker,
                        .spares.run = spares_on_worker,
                        .start_over.run = start_over,
                        .stop_over.run = stop_over};
    struct reactor_options options = {.name = "corbel-control", .pages = 16, .ring_entries = 0, .no_uring = true};
    signal(SIGPIPE, SIG_IGN);
    raise_limits();
    evthread_use_pthreads();
    p.reactor = reactor_create(&options, p.why, sizeof p.why);
    p.appliance = p.reactor != NULL ? appliance_create(config, p.reactor, p.why, sizeof p.why) : NULL;
    if (p.appliance == NULL) {
        fprintf(stderr, "corbeld: %s\n", p.why);
        return 1;
    }
    p.worker = worker_create();
    p.control = control_open(p.reactor, p.worker, p.appliance, config, p.why, sizeof p.why);
    if (p.control != NULL) {
        watch(&p);
        worker_submit(p.worker, &p.start);
        reactor_run(p.reactor);
        unwatch(&p);
    } else {
        fprintf(stderr, "corbeld: %s\n", p.why);
        p.status = 1;
    }
    worker_destroy(p.worker);
    if (p.control != NULL)
        control_close(p.control);
    appliance_destroy(p.appliance);
    reactor_destroy(p.reactor);
    if (p.started && p.pidfile != NULL)
        unlink(p.pidfile);
    if (p.started)
        log_notice("corbeld has stopped");
    return p.status;
}

static void print_usage(FILE *out)
{
    fprintf(out, "usage: corbeld [-c FILE] [--pidfile FILE]   run in the foreground\n"
                 "       corbeld -t [-c] [FILE]               check a config and touch no disk\n"
                 "       corbeld --config-keys | --version | --help\n");
}

struct arguments {
    const char *config, *pidfile;
    bool test;
};

/* -1: go on; else the exit status. */
static int parse_arguments(int argc, char **argv, struct arguments *out)
{
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"test", no_argument, NULL, 't'},
        {"pidfile", required_argument, NULL, 'p'},
        {"config-keys", no_argument, NULL, 'k'},
        {"version", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option;
    while ((option = getopt_long(argc, argv, "c:th", options, NULL)) != -1) {
        switch (option) {
        case 'c':
            out->config = optarg;
            break;
        case 't':
            out->test = true;
            break;
        case 'p':
            out->pidfile = optarg;
            break;
        case 'k':
            config_print_keys(stdout);
            return 0;
        case 'v':
            printf("corbeld %s\n", CORBEL_VERSION);
            return 0;
        case 'h':
            print_usage(stdout);
            return 0;
        default:
            print_usage(stderr);
            return 2;
        }
    }
    if (optind < argc && out->test)
        out->config = argv[optind++];
    if (optind < argc) {
        print_usage(stderr);
        return 2;
    }
    return -1;
}

/* What a connection holds goes back to the system with it: with thresholds that grow, as they are by default, hundreds
 * of connections that are gone leave holes in the heap for good. */
static void set_up_malloc(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 * 1024);
    mallopt(M_TRIM_THRESHOLD, 128 * 1024);
}

int main(int argc, char **argv)
{
    struct arguments arguments = {.config = "/etc/corbel/corbel.conf"};
    int status = parse_arguments(argc, argv, &arguments);
    if (status >= 0)
        return status;
    struct config_errors errors = {0};
    struct config *config = config_load(arguments.config, &errors);
    for (unsigned i = 0; i < errors.count; i++)
        fprintf(stderr, "%s\n", errors.lines[i]);
    config_errors_free(&errors);
    if (config == NULL)
        return 1;
    if (arguments.test) {
        printf("%s: ok\n", arguments.config);
        config_free(config);
        return 0;
    }
    set_up_malloc();
    log_setup(log_to_stderr, parse_log_level(config->daemon.log.text));
    return run(config, arguments.pidfile);
}
