#include "daemon/control.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/socket.h"

/* What is longer than is read is answered by libevent, with a page of HTML; what it reads is answered here. */
enum { BODY_MAX = 64 * 1024, BODY_READ_MAX = 1024 * 1024, ACCEPT_PAUSE_US = 100000 };

struct control {
    struct reactor *reactor;
    struct worker *worker;
    struct appliance *appliance;
    struct evhttp *local, *web;
    char socket_path[128], web_address[128];
};

/* One HTTP request on its way to the worker and back. */
struct exchange {
    struct worker_job job;
    struct task back;
    struct control *control;
    struct evhttp_request *request;
    const struct route *route;
    json_t *body, *answer;
    int code;
    bool gone; /* the peer left meanwhile */
};

/* The page, as it stands in daemon/page.html. */
__asm__(".pushsection .rodata\n"
        "page_html:\n.incbin \"daemon/page.html\"\n"
        "page_html_end:\n"
        ".popsection\n");
extern const char page_html[], page_html_end[];

/* --- what can be asked: run on the worker --- */

static bool body_flag(const json_t *body, const char *name)
{
    return json_is_true(json_object_get(body, name));
}

static void answer_error(struct exchange *x, int code, const char *detail)
{
    x->code = code;
    x->answer = json_pack("{s:s, s:i, s:o}", "title", code == 400 ? "Bad request" : "Not possible", "status", code,
                          "detail", sentence_json(detail));
}

static void do_status(struct exchange *x)
{
    x->answer = appliance_status(x->control->appliance);
    if (x->control->web_address[0] != '\0')
        json_array_append_new(json_object_get(x->answer, "listeners"),
                              json_pack("{s:s, s:s}", "protocol", "web", "address", x->control->web_address));
}

static void do_sessions(struct exchange *x)
{
    x->answer = json_pack("{s:o}", "sessions", appliance_sessions(x->control->appliance));
}

static void do_power(struct exchange *x)
{
    x->answer = appliance_power(x->control->appliance);
}

static void do_apply(struct exchange *x)
{
    struct apply_options options = {.dry_run = body_flag(x->body, "dry_run"), .force = body_flag(x->body, "force")};
    x->answer = appliance_apply(x->control->appliance, &options);
}

static void do_reload(struct exchange *x)
{
    x->answer = appliance_reload(x->control->appliance);
}

/* A string of the body, or NULL and an answer. */
static const char *body_word(struct exchange *x, const char *key)
{
    const char *word = json_string_value(json_object_get(x->body, key));
    char detail[128];
    if (word != NULL && strlen(word) <= CONFIG_PATH_MAX)
        return word;
    if (word == NULL)
        text_format(detail, sizeof detail, "the body must have \"%s\", a string", key);
    else
        text_format(detail, sizeof detail, "\"%s\" is longer than %d bytes", key, CONFIG_PATH_MAX);
    answer_error(x, 400, detail);
    return NULL;
}

static void do_cache_flush(struct exchange *x)
{
    const char *volume = body_word(x, "volume");
    if (volume == NULL)
        return;
    const char *wrong = appliance_cache_flush(x->control->appliance, volume);
    if (wrong != NULL)
        answer_error(x, 409, wrong);
    else
        x->answer = json_pack("{s:s, s:s}", "volume", volume, "state", "flushed");
}

static void do_cache_discard(struct exchange *x)
{
    char lost[1200];
    const char *what = body_word(x, "what");
    bool yes = body_flag(x->body, "yes");
    if (what == NULL)
        return;
    const char *wrong = appliance_cache_discard(x->control->appliance, what, yes, lost, sizeof lost);
    if (wrong != NULL)
        answer_error(x, 409, wrong);
    else
        x->answer = json_pack("{s:o, s:b}", "lost", sentence_json(lost), "done", yes);
}

static void disk_action(struct exchange *x, bool online)
{
    const char *disk = body_word(x, "disk");
    if (disk == NULL)
        return;
    const char *wrong = online ? appliance_disk_online(x->control->appliance, disk, body_flag(x->body, "force"))
                               : appliance_disk_fail(x->control->appliance, disk);
    if (wrong != NULL)
        answer_error(x, 409, wrong);
    else
        x->answer = json_pack("{s:s, s:s}", "disk", disk, "state", online ? "rebuilding" : "failed");
}

static void do_disk_fail(struct exchange *x)
{
    disk_action(x, false);
}

static void do_disk_online(struct exchange *x)
{
    disk_action(x, true);
}

/* What an action that answers NULL or a sentence did. */
static void answer_action(struct exchange *x, const char *key, const char *name, const char *wrong)
{
    if (wrong != NULL)
        answer_error(x, 409, wrong);
    else
        x->answer = json_pack("{s:s, s:b}", key, name, "done", true);
}

static void do_disk_remove(struct exchange *x)
{
    const char *disk = body_word(x, "disk");
    if (disk != NULL)
        answer_action(x, "disk", disk, appliance_disk_remove(x->control->appliance, disk));
}

static void do_disk_forget(struct exchange *x)
{
    const char *disk = body_word(x, "disk");
    if (disk != NULL)
        answer_action(x, "disk", disk, appliance_disk_forget(x->control->appliance, disk));
}

static void do_disk_replace(struct exchange *x)
{
    const char *disk = body_word(x, "disk"), *by = disk != NULL ? body_word(x, "by") : NULL;
    if (by != NULL)
        answer_action(x, "disk", disk,
                      appliance_disk_replace(x->control->appliance, disk, by, body_flag(x->body, "force")));
}

static void do_spare_add(struct exchange *x)
{
    const char *disk = body_word(x, "disk"), *array = json_string_value(json_object_get(x->body, "array"));
    char erased[256];
    if (disk == NULL)
        return;
    answer_action(x, "disk", disk,
                  appliance_spare_add(x->control->appliance, disk, array != NULL ? array : "",
                                      body_flag(x->body, "force"), erased, sizeof erased));
    if (x->code == 200 && erased[0] != '\0')
        json_object_set_new(x->answer, "erased", sentence_json(erased));
}

static void do_array_assemble(struct exchange *x)
{
    const char *array = body_word(x, "array"), *prefer = NULL;
    if (array != NULL && json_object_get(x->body, "prefer") != NULL && (prefer = body_word(x, "prefer")) == NULL)
        return;
    if (array != NULL)
        answer_action(x, "array", array,
                      appliance_array_assemble(x->control->appliance, array, body_flag(x->body, "force"), prefer));
}

static void do_volume_scrub(struct exchange *x)
{
    const char *volume = body_word(x, "volume");
    enum appliance_scrub what = body_flag(x->body, "stop")     ? APPLIANCE_SCRUB_STOP
                                : body_flag(x->body, "repair") ? APPLIANCE_REPAIR
                                                               : APPLIANCE_CHECK;
    if (volume == NULL)
        return;
    const char *wrong = appliance_volume_scrub(x->control->appliance, volume, what);
    if (wrong != NULL)
        answer_error(x, 409, wrong);
    else
        x->answer = json_pack("{s:s, s:b}", "volume", volume, "scrubbing", what != APPLIANCE_SCRUB_STOP);
}

/* An integer of the body from 0 to max; -1: it is not there. False: it is something else, and answered. */
static bool body_number(struct exchange *x, const char *key, int64_t max, int64_t *number)
{
    const json_t *value = json_object_get(x->body, key);
    char detail[128];
    *number = value == NULL ? -1 : json_integer_value(value);
    if (value == NULL || (json_is_integer(value) && *number >= 0 && *number <= max))
        return true;
    text_format(detail, sizeof detail, "\"%s\" must be an integer from 0 to %lld", key, (long long)max);
    answer_error(x, 400, detail);
    return false;
}

/* The same for true and false, as 1 and 0. */
static bool body_choice(struct exchange *x, const char *key, int *choice)
{
    const json_t *value = json_object_get(x->body, key);
    char detail[128];
    *choice = value == NULL ? -1 : json_is_true(value);
    if (value == NULL || json_is_boolean(value))
        return true;
    text_format(detail, sizeof detail, "\"%s\" must be true or false", key);
    answer_error(x, 400, detail);
    return false;
}

/* The body's policy; false: it is wrong, and answered. */
static bool body_policy(struct exchange *x, struct appliance_policy *policy)
{
    return body_choice(x, "paused", &policy->paused) && body_number(x, "priority", 100, &policy->priority) &&
           body_number(x, "min_rate", INT64_MAX, &policy->min_rate) &&
           body_number(x, "max_rate", INT64_MAX, &policy->max_rate);
}

static void do_volume_jobs(struct exchange *x)
{
    const char *volume = body_word(x, "volume");
    struct appliance_policy policy;
    if (volume != NULL && body_policy(x, &policy))
        answer_action(x, "volume", volume, appliance_volume_policy(x->control->appliance, volume, &policy));
}

static void do_array_jobs(struct exchange *x)
{
    const char *array = body_word(x, "array");
    struct appliance_policy policy;
    if (array != NULL && body_policy(x, &policy))
        answer_action(x, "array", array, appliance_array_policy(x->control->appliance, array, &policy));
}

static void do_volume_init(struct exchange *x)
{
    const char *volume = body_word(x, "volume");
    if (volume != NULL)
        answer_action(x, "volume", volume,
                      appliance_volume_init(x->control->appliance, volume, !body_flag(x->body, "stop")));
}

static void do_job_cancel(struct exchange *x)
{
    const char *of = body_word(x, "of");
    if (of != NULL)
        answer_action(x, "of", of, appliance_job_cancel(x->control->appliance, of));
}

static void do_session_drop(struct exchange *x)
{
    const char *session = body_word(x, "session");
    uint64_t grace_ns = 0;
    if (session == NULL)
        return;
    const char *wrong = appliance_session_drop(x->control->appliance, session, &grace_ns);
    if (wrong != NULL)
        answer_error(x, 409, wrong);
    else
        x->answer = json_pack("{s:s, s:s, s:I}", "session", session, "state", "ending", "cut_after_seconds",
                              (json_int_t)(grace_ns / 1000000000));
}

struct route {
    enum evhttp_cmd_type method;
    const char *path;
    void (*run)(struct exchange *);
};

static const struct route routes[] = {
    {EVHTTP_REQ_GET, "/api/v1/status", do_status},
    {EVHTTP_REQ_GET, "/api/v1/sessions", do_sessions},
    {EVHTTP_REQ_GET, "/api/v1/power", do_power},
    {EVHTTP_REQ_POST, "/api/v1/sessions/drop", do_session_drop},
    {EVHTTP_REQ_POST, "/api/v1/caches/flush", do_cache_flush},
    {EVHTTP_REQ_POST, "/api/v1/caches/discard", do_cache_discard},
    {EVHTTP_REQ_POST, "/api/v1/apply", do_apply},
    {EVHTTP_REQ_POST, "/api/v1/reload", do_reload},
    {EVHTTP_REQ_POST, "/api/v1/arrays/assemble", do_array_assemble},
    {EVHTTP_REQ_POST, "/api/v1/arrays/jobs", do_array_jobs},
    {EVHTTP_REQ_POST, "/api/v1/jobs/cancel", do_job_cancel},
    {EVHTTP_REQ_POST, "/api/v1/volumes/init", do_volume_init},
    {EVHTTP_REQ_POST, "/api/v1/volumes/scrub", do_volume_scrub},
    {EVHTTP_REQ_POST, "/api/v1/volumes/jobs", do_volume_jobs},
    {EVHTTP_REQ_POST, "/api/v1/disks/remove", do_disk_remove},
    {EVHTTP_REQ_POST, "/api/v1/disks/forget", do_disk_forget},
    {EVHTTP_REQ_POST, "/api/v1/disks/add-spare", do_spare_add},
    {EVHTTP_REQ_POST, "/api/v1/disks/replace", do_disk_replace},
    {EVHTTP_REQ_POST, "/api/v1/disks/fail", do_disk_fail},
    {EVHTTP_REQ_POST, "/api/v1/disks/online", do_disk_online},
};

/* --- the way there and back --- */

static void send_json(struct evhttp_request *request, int code, json_t *value)
{
    struct evbuffer *out = evbuffer_new();
    char *text = json_dumps(value, JSON_INDENT(2));
    ASSERT(out != NULL && text != NULL);
    evbuffer_add_printf(out, "%s\n", text);
    free(text);
    evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type",
                      code < 400 ? "application/json" : "application/problem+json");
    evhttp_add_header(evhttp_request_get_output_headers(request), "Cache-Control", "no-store");
    evhttp_send_reply(request, code, NULL, out);
    evbuffer_free(out);
}

static void send_problem(struct evhttp_request *request, int code, const char *detail)
{
    json_t *problem = json_pack("{s:s, s:i, s:s}", "title", "Not possible", "status", code, "detail", detail);
    send_json(request, code, problem);
    json_decref(problem);
}

static void on_peer_gone(struct evhttp_connection *connection, void *data)
{
    (void)connection;
    ((struct exchange *)data)->gone = true;
}

/* On the control reactor again. */
static void exchange_back(struct task *task)
{
    struct exchange *x = container_of(task, struct exchange, back);
    if (!x->gone) {
        evhttp_connection_set_closecb(evhttp_request_get_connection(x->request), NULL, NULL);
        x->request->flags &= ~EVHTTP_USER_OWNED; /* else it would be nobody's if the peer leaves before all is sent */
        send_json(x->request, x->code, x->answer);
    } else {
        evhttp_request_free(x->request);
    }
    json_decref(x->answer);
    json_decref(x->body);
    free(x);
}

/* On the worker. What was asked while the daemon stopped comes too late. */
static void exchange_run(struct worker_job *job)
{
    struct exchange *x = container_of(job, struct exchange, job);
    x->code = 200;
    if (appliance_is_stopped(x->control->appliance))
        answer_error(x, 503, "corbeld is stopping");
    else
        x->route->run(x);
    x->back = (struct task){.run = exchange_back};
    loop_call(reactor_loop(x->control->reactor), &x->back);
}

static json_t *read_body(struct evhttp_request *request)
{
    struct evbuffer *in = evhttp_request_get_input_buffer(request);
    size_t len = evbuffer_get_length(in);
    if (len == 0)
        return json_object();
    return json_loadb((const char *)evbuffer_pullup(in, -1), len, 0, NULL);
}

static void exchange_start(struct control *control, struct evhttp_request *request, const struct route *route)
{
    json_t *body = read_body(request);
    if (!json_is_object(body)) {
        json_decref(body);
        send_problem(request, 400, "the body is not a JSON object");
        return;
    }
    struct exchange *x = calloc(1, sizeof *x);
    ASSERT(x != NULL);
    *x = (struct exchange){.control = control, .request = request, .route = route, .body = body};
    x->job.run = exchange_run;
    evhttp_request_own(request);
    evhttp_connection_set_closecb(evhttp_request_get_connection(request), on_peer_gone, x);
    worker_submit(control->worker, &x->job);
}

static void send_page(struct evhttp_request *request)
{
    struct evbuffer *out = evbuffer_new();
    ASSERT(out != NULL);
    evbuffer_add(out, page_html, (size_t)(page_html_end - page_html));
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    evhttp_add_header(headers, "Content-Type", "text/html; charset=utf-8");
    evhttp_add_header(headers, "Content-Security-Policy",
                      "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'");
    evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
    evhttp_send_reply(request, 200, NULL, out);
    evbuffer_free(out);
}

static void dispatch(struct control *control, struct evhttp_request *request, bool read_only)
{
    reactor_woken(control->reactor);
    const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    enum evhttp_cmd_type method = evhttp_request_get_command(request);
    if (path == NULL)
        path = "";
    if (read_only && method != EVHTTP_REQ_GET) {
        send_problem(request, 403, "this address is for looking only: use corbelctl on the appliance");
        return;
    }
    if (evbuffer_get_length(evhttp_request_get_input_buffer(request)) > BODY_MAX) {
        send_problem(request, 413, "the body is longer than 64 KiB");
        return;
    }
    if (strcmp(path, "/") == 0 && method == EVHTTP_REQ_GET) {
        send_page(request);
        return;
    }
    for (unsigned i = 0; i < ARRAY_LENGTH(routes); i++)
        if (strcmp(routes[i].path, path) == 0 && routes[i].method == method) {
            exchange_start(control, request, &routes[i]);
            return;
        }
    send_problem(request, 404, "there is no such thing here");
}

static void on_local(struct evhttp_request *request, void *data)
{
    dispatch(data, request, false);
}

static void on_web(struct evhttp_request *request, void *data)
{
    dispatch(data, request, true);
}

/* --- addresses --- */

static struct evhttp *new_http(struct control *control, void (*handler)(struct evhttp_request *, void *))
{
    struct evhttp *http = evhttp_new(reactor_base(control->reactor));
    ASSERT(http != NULL);
    evhttp_set_allowed_methods(http, EVHTTP_REQ_GET | EVHTTP_REQ_POST);
    evhttp_set_max_body_size(http, BODY_READ_MAX);
    evhttp_set_max_headers_size(http, 16 * 1024);
    evhttp_set_timeout(http, 60);
    evhttp_set_gencb(http, handler, control);
    return http;
}

static void open_again(evutil_socket_t fd, short events, void *data)
{
    (void)fd, (void)events;
    evconnlistener_enable(data);
}

/* No descriptor is left, most likely: look again in a while, instead of as fast as can be. */
static void on_accept_error(struct evconnlistener *listener, void *data)
{
    (void)data;
    const struct timeval pause = {.tv_usec = ACCEPT_PAUSE_US};
    if (event_base_once(evconnlistener_get_base(listener), -1, EV_TIMEOUT, open_again, listener, &pause) == 0)
        evconnlistener_disable(listener);
}

static void be_patient(struct evhttp_bound_socket *bound)
{
    evconnlistener_set_error_cb(evhttp_bound_socket_get_listener(bound), on_accept_error);
}

/* A listening socket that owner and group may use, or -1 and errno. */
static int listen_local(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(0117);
    bool good = fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 64) == 0;
    int error = errno;
    umask(before);
    if (good)
        return fd;
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

static bool open_local(struct control *control, const char *path, char *why, size_t why_len)
{
    if (socket_file_is_stale(path))
        unlink(path);
    int fd = listen_local(path);
    if (fd < 0) {
        text_format(why, why_len, "daemon.control: %s: %s", path,
                    errno == EADDRINUSE ? "is in use: another corbeld runs, or the file is no socket"
                    : errno == ENOENT   ? "its folder does not exist: make it, or set daemon.control to another path"
                                        : strerror(errno));
        return false;
    }
    struct evhttp_bound_socket *bound = evhttp_accept_socket_with_handle(control->local, fd);
    if (bound == NULL) {
        text_format(why, why_len, "daemon.control: %s: cannot be listened on", path);
        close(fd);
        return false;
    }
    be_patient(bound);
    text_format(control->socket_path, sizeof control->socket_path, "%s", path);
    return true;
}

static bool open_web(struct control *control, const struct config *config, const struct config_text *where, char *why,
                     size_t why_len)
{
    char host[128];
    const char *colon = strrchr(where->text, ':');
    text_format(host, sizeof host, "%.*s", (int)(colon - where->text), where->text);
    char *name = host;
    size_t len = strlen(host);
    if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = '\0';
        name++;
    }
    struct evhttp_bound_socket *bound = evhttp_bind_socket_with_handle(
        control->web, strcmp(name, "*") == 0 ? "0.0.0.0" : name, (uint16_t)atoi(colon + 1));
    if (bound == NULL) {
        text_format(why, why_len, "%s:%u: web.listen: %s: %s", config->path, where->line, where->text, strerror(errno));
        return false;
    }
    be_patient(bound);
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char port[16] = "";
    if (getsockname(evhttp_bound_socket_get_fd(bound), (struct sockaddr *)&address, &size) == 0)
        text_format(port, sizeof port, "%u",
                    ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&address)->sin6_port
                                                        : ((struct sockaddr_in *)(void *)&address)->sin_port));
    text_format(control->web_address, sizeof control->web_address, "%.*s:%s", (int)(colon - where->text), where->text,
                port);
    return true;
}

struct control *control_open(struct reactor *reactor, struct worker *worker, struct appliance *appliance,
                             const struct config *config, char *why, size_t why_len)
{
    struct control *control = calloc(1, sizeof *control);
    ASSERT(control != NULL);
    control->reactor = reactor;
    control->worker = worker;
    control->appliance = appliance;
    control->local = new_http(control, on_local);
    control->web = new_http(control, on_web);
    bool good = open_local(control, config->daemon.control.text, why, why_len);
    for (unsigned i = 0; i < config->web.listen.count && good; i++)
        good = open_web(control, config, &config->web.listen.items[i], why, why_len);
    if (good)
        return control;
    control_close(control);
    return NULL;
}

const char *control_web_address(const struct control *control)
{
    return control->web_address;
}

void control_close(struct control *control)
{
    evhttp_free(control->local);
    evhttp_free(control->web);
    if (control->socket_path[0] != '\0')
        unlink(control->socket_path);
    free(control);
}
