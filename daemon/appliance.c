/* From a config to a running appliance and back: the order of start and stop on one page. See daemon/appliance.h. */
#include "daemon/appliance.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_internal.h"

static bool create_reactors(struct appliance *a, char *why, size_t why_len)
{
    const struct config_daemon *config = &a->config->daemon;
    for (unsigned i = 0; i < config->reactors; i++) {
        char name[16];
        text_format(name, sizeof name, "corbel-data-%u", i);
        struct reactor_options options = {.name = name,
                                          .pages = (uint32_t)(config->memory / PAGE_BYTES),
                                          .ring_entries = 1024,
                                          .no_uring = a->threads_only};
        struct reactor *reactor = reactor_create(&options, why, why_len);
        if (reactor == NULL)
            return false;
        /* The helpers now: the worker opens disks while the reactor runs. */
        if (reactor_helpers(reactor) == NULL || reactor_start(reactor) != 0) {
            text_format(why, why_len, "the threads of %s cannot be started", name);
            reactor_destroy(reactor);
            return false;
        }
        a->reactors[a->reactors_count++] = reactor;
    }
    return true;
}

struct server_call {
    struct sync_call call;
    struct appliance *appliance;
};

static void create_servers(struct sync_call *call)
{
    struct appliance *a = container_of(call, struct server_call, call)->appliance;
    const struct config_nbd *nbd = &a->config->nbd;
    const struct config_iscsi *iscsi = &a->config->iscsi;
    struct nbd_limits nbd_limits = {.connections = (uint32_t)nbd->connections,
                                    .half_open = (uint32_t)nbd->half_open,
                                    .half_open_per_host = (uint32_t)nbd->half_open_per_address,
                                    .requests = (uint32_t)nbd->requests,
                                    .negotiation_ns = nbd->negotiation_ns};
    struct iscsi_limits iscsi_limits = {.connections = (uint32_t)iscsi->connections,
                                        .half_open = (uint32_t)iscsi->half_open,
                                        .half_open_per_host = (uint32_t)iscsi->half_open_per_address,
                                        .commands = (uint32_t)iscsi->commands,
                                        .login_ns = iscsi->login_ns,
                                        .nop_interval_ns = iscsi->ping_interval_ns,
                                        .nop_timeout_ns = iscsi->ping_timeout_ns};
    a->nbd = nbd_server_create(call->loop, &nbd_limits);
    a->iscsi = iscsi_server_create(call->loop, &iscsi_limits);
    sync_finish(call);
}

static void destroy_servers(struct sync_call *call)
{
    struct appliance *a = container_of(call, struct server_call, call)->appliance;
    if (a->nbd != NULL)
        nbd_server_destroy(a->nbd);
    if (a->iscsi != NULL)
        iscsi_server_destroy(a->iscsi);
    sync_finish(call);
}

struct appliance *appliance_create(struct config *config, struct reactor *control, char *why, size_t why_len)
{
    struct appliance *a = calloc(1, sizeof *a);
    ASSERT(a != NULL);
    a->config = config;
    a->control = reactor_loop(control);
    a->power = power_monitor_create(control);
    power_monitor_configure(a->power, &config->power);
    a->threads_only = strcmp(config->daemon.io.text, "threads") == 0;
    a->started_s = (uint64_t)time(NULL);
    TAILQ_INIT(&a->arrays);
    TAILQ_INIT(&a->imports);
    TAILQ_INIT(&a->spares);
    TAILQ_INIT(&a->places);
    TAILQ_INIT(&a->remotes);
    TAILQ_INIT(&a->exports);
    TAILQ_INIT(&a->targets);
    TAILQ_INIT(&a->leaving);
    TAILQ_INIT(&a->listeners);
    if (create_reactors(a, why, why_len)) {
        struct server_call servers = {.appliance = a};
        sync_call(&servers.call, reactor_loop(a->reactors[0]), create_servers);
        if (a->nbd != NULL && a->iscsi != NULL)
            return a;
        text_format(why, why_len, "no memory for the servers");
    }
    appliance_destroy(a);
    return NULL;
}

void appliance_destroy(struct appliance *a)
{
    if (a->nbd != NULL || a->iscsi != NULL) {
        struct server_call servers = {.appliance = a};
        sync_call(&servers.call, reactor_loop(a->reactors[0]), destroy_servers);
    }
    live_nbd_tls_free(a);
    live_remotes_stop(a);
    for (unsigned i = 0; i < a->reactors_count; i++) {
        reactor_stop(a->reactors[i]);
        reactor_join(a->reactors[i]);
        reactor_destroy(a->reactors[i]);
    }
    live_spares_free(a);
    live_remotes_free(a);
    power_monitor_destroy(a->power);
    config_free(a->config);
    free(a);
}

int appliance_start(struct appliance *a, char *why, size_t why_len)
{
    struct assembly_options options = {0};
    if (live_listeners_probe(a, a->config, why, why_len) < 0)
        return -1;
    live_arenas_inherit(a);
    live_arrays_start(a, a->config, &options, NULL);
    live_imports_start(a, a->config);
    live_spares_config(a, a->config);
    live_patrols(a, a->config);
    live_rates(a, a->config);
    live_access(a, a->config, NULL, NULL);
    live_nbd_tls(a, a->config);
    live_serve(a, a->config, NULL, NULL);
    if (live_listeners_open(a, a->config, why, why_len) < 0)
        return -1;
    live_portals_tell(a);
    return 0;
}

bool appliance_is_stopped(const struct appliance *a)
{
    return a->stopped;
}

void appliance_stop(struct appliance *a, void (*progress)(void))
{
    a->stopped = true;
    live_listeners_close(a);
    live_drain(a, a->config->daemon.drain_ns);
    if (progress != NULL)
        progress();
    live_targets_close(a);
    struct live_array *live;
    while ((live = TAILQ_FIRST(&a->arrays)) != NULL) {
        live_array_close(a, live);
        live_array_free(a, live);
        if (progress != NULL)
            progress();
    }
    live_imports_close(a);
    live_arenas_free(a);
    struct live_export *export;
    while ((export = TAILQ_FIRST(&a->exports)) != NULL) {
        TAILQ_REMOVE(&a->exports, export, link);
        live_export_free(export);
    }
}

struct close_call {
    struct sync_call call;
    struct blkdev *dev;
    struct task closed;
};

static void close_over(struct task *task)
{
    sync_finish(&container_of(task, struct close_call, closed)->call);
}

static void close_run(struct sync_call *call)
{
    struct close_call *c = container_of(call, struct close_call, call);
    c->closed.run = close_over;
    blk_close(c->dev, &c->closed);
}

void blkdev_close_wait(struct blkdev *dev)
{
    struct close_call c = {.dev = dev};
    sync_call(&c.call, dev->loop, close_run);
}

/* --- watchdog --- */

static void ping_answer(struct task *task)
{
    atomic_store(&container_of(task, struct ping, task)->asked, false);
}

bool appliance_alive(struct appliance *a)
{
    bool alive = true;
    for (unsigned i = 0; i < a->reactors_count; i++) {
        struct ping *ping = &a->pings[i];
        if (atomic_exchange(&ping->asked, true)) {
            log_error("data reactor %u does not answer", i);
            alive = false;
            continue;
        }
        ping->task = (struct task){.run = ping_answer};
        loop_call(reactor_loop(a->reactors[i]), &ping->task);
    }
    return alive;
}

/* --- reload --- */

static void append_text(json_t *list, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append_text(json_t *list, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    json_array_append_new(list, json_vsprintf(format, args));
    va_end(args);
}

struct reload {
    json_t *taken, *refused;
};

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool ends(const char *text, const char *with)
{
    size_t len = strlen(text), with_len = strlen(with);
    return len >= with_len && strcmp(text + len - with_len, with) == 0;
}

/* What clients of an export may, and files of TLS. */
static bool is_nbd_access(const char *path)
{
    bool of_export = begins(path, "nbd.exports ") &&
                     (strstr(path, "\".access ") != NULL || ends(path, "\".tls") || ends(path, "\".connections"));
    return of_export || (begins(path, "nbd.tls.") && !ends(path, ".mode"));
}

static bool ends_as_rate(const char *path)
{
    return ends(path, ".priority") || ends(path, ".min_rate") || ends(path, ".max_rate");
}

/* What became of it: all of what differs is told, so that nobody believes something was taken over that was not. */
static void tell_difference(void *data, const char *path, enum config_change change)
{
    struct reload *r = data;
    bool service = begins(path, "nbd.exports ") || begins(path, "iscsi.targets ");
    bool access = is_nbd_access(path) || begins(path, "iscsi.discovery ") ||
                  (begins(path, "iscsi.targets ") && strstr(path, ".access ") != NULL);
    bool redirect = begins(path, "iscsi.targets ") && strstr(path, "\".redirect") != NULL;
    bool removed = begins(path, "iscsi.targets ") && !access && ends(path, "\"") && change == CONFIG_REMOVED;
    if ((service && !access && change == CONFIG_ADDED) || removed)
        return; /* tell_service() has told it */
    if (access || redirect || begins(path, "power.") || strcmp(path, "iscsi.short_secrets") == 0 ||
        strcmp(path, "daemon.drain") == 0 || (begins(path, "arrays ") && (ends(path, ".scrub") || ends_as_rate(path))))
        append_text(r->taken, "%s", path);
    else if ((strcmp(path, "spares") == 0 || (begins(path, "arrays ") && ends(path, ".spares"))))
        append_text(r->taken, "%s: new ones; those that are gone stay until corbelctl disk remove", path);
    else if (begins(path, "imports ") && change == CONFIG_ADDED)
        append_text(r->taken, "%s: its disks are only read; corbelctl import list says whether it is started", path);
    else if (begins(path, "imports "))
        append_text(r->refused, "%s: once started it stays as it is; restart to change it", path);
    else if (begins(path, "arrays ") && change == CONFIG_ADDED)
        append_text(r->refused, "%s is new; a reload creates nothing: use corbelctl apply", path);
    else if (begins(path, "arrays ") && strstr(path, "\".") == NULL && change == CONFIG_REMOVED)
        append_text(r->refused, "%s is not named any more: it runs on, and is left alone from the next start", path);
    else if (strcmp(path, "disks") == 0 || (begins(path, "arrays ") && ends(path, ".disks")))
        append_text(r->taken, "%s: where disks may be found; corbelctl apply, disk online and disk replace look there",
                    path);
    else if (begins(path, "arrays ") && strstr(path, ".cache.") != NULL)
        append_text(r->refused, "%s is read when the volume is first served; restart to change it", path);
    else if (begins(path, "arrays "))
        append_text(r->refused, "%s: a reload looks at no disk: use corbelctl apply", path);
    else if (service)
        append_text(r->refused, "%s is served as before; restart to change it", path);
    else
        append_text(r->refused, "%s is read at start; restart to change it", path);
}

static void tell_service(void *data, const char *kind, const char *name, bool served)
{
    struct reload *r = data;
    if (served)
        append_text(r->taken, "%s \"%s\"", kind, name);
    else
        append_text(r->refused, "%s \"%s\" is not served: see the log", kind, name);
}

/* A secret is in its file, not in the config: the comparison does not see that it is another one. */
static void tell_secrets(void *data, const char *of)
{
    struct reload *r = data;
    append_text(r->taken, "new secrets of %s", of);
}

json_t *appliance_reload(struct appliance *a)
{
    json_t *taken = json_array(), *refused = json_array(), *errors = json_array();
    struct config_errors mistakes = {0};
    struct config *config = config_load(a->config->path, &mistakes);
    if (config == NULL) {
        for (unsigned i = 0; i < mistakes.count; i++)
            json_array_append_new(errors, sentence_json(mistakes.lines[i]));
        config_errors_free(&mistakes);
        return json_pack("{s:o, s:o, s:o}", "taken", taken, "refused", refused, "errors", errors);
    }
    struct reload reload = {taken, refused};
    live_retire(a, config, tell_service, &reload);
    live_access(a, config, tell_secrets, &reload);
    live_nbd_access(a, config);
    if (live_nbd_tls(a, config))
        append_text(taken, "certificates and keys of nbd.tls, for new connections");
    live_imports_start(a, config);
    live_serve(a, config, tell_service, &reload);
    live_patrols(a, config);
    live_rates(a, config);
    live_spares_config(a, config);
    live_power(a, config);
    config_compare(a->config, config, tell_difference, &reload);
    config_free(a->config);
    a->config = config;
    return json_pack("{s:o, s:o, s:o}", "taken", taken, "refused", refused, "errors", errors);
}
