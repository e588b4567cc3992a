/*
 * NUT's upsd as power source: a connection that is kept, on the control reactor, without blocking.
 *
 *        ask                    connected             answer
 *   DOWN -------> CONNECTING -------------> ASKING ------------> UP
 *    ^                |                       |  ^      ask       |
 *    +----------------+-----------------------+  +----------------+
 *      refused, broken, or no answer in time; then the next attempt waits, up to 8 s
 *
 * What it says and what it means is daemon/power_upsd.h. An address that refuses us is silence, not an error: upsd may
 * be starting again.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "core/sm.h"
#include "daemon/power_source.h"
#include "daemon/power_upsd.h"
#include "daemon/secrets.h"

#define ANSWER_NS    5000000000ull
#define RETRY_MIN_NS 1000000000ull
#define RETRY_MAX_NS 8000000000ull

enum { DOWN, CONNECTING, ASKING, UP };

static const struct sm_state states[] = {
    [DOWN] = {"nut down", SM_TO(CONNECTING)},
    [CONNECTING] = {"nut connecting", SM_TO(DOWN) | SM_TO(ASKING)},
    [ASKING] = {"nut asking", SM_TO(DOWN) | SM_TO(UP)},
    [UP] = {"nut up", SM_TO(DOWN) | SM_TO(ASKING)},
};

struct nut_source {
    struct power_source source;
    struct power_source_spec spec;
    char user[UPSD_NAME_MAX + 1], password_file[CONFIG_PATH_MAX + 1];
    struct sm sm;
    int fd;
    struct event event; /* connected, or readable */
    struct timer clock; /* of an answer */
    struct upsd_talk talk;
    uint64_t retry_ns, wait_ns; /* DOWN: no attempt before; how long it waited last */
    char why[160];              /* DOWN: what ended the last connection */
};

static struct loop *loop_of(const struct nut_source *s)
{
    return reactor_loop(s->source.reactor);
}

static void on_connected(evutil_socket_t fd, short events, void *data);
static void on_readable(evutil_socket_t fd, short events, void *data);

static void hang_up(struct nut_source *s, const char *why)
{
    if (s->fd >= 0) {
        event_del(&s->event);
        close(s->fd);
        s->fd = -1;
    }
    timer_stop(loop_of(s), &s->clock);
    if (sm_state(&s->sm) != DOWN)
        sm_move(&s->sm, DOWN);
    text_format(s->why, sizeof s->why, "%s", why);
    s->wait_ns = s->wait_ns == 0 ? RETRY_MIN_NS : MIN(2 * s->wait_ns, RETRY_MAX_NS);
    s->retry_ns = loop_now_ns(loop_of(s)) + s->wait_ns;
}

/* While an answer is owed. */
static void fail(struct nut_source *s, enum power_answer answer, const char *why)
{
    char all[160];
    text_format(all, sizeof all, "%s:%u: %s", s->spec.host, s->spec.port, why);
    hang_up(s, all);
    power_answered(&s->source, answer, NULL, s->why);
}

static void on_time_over(struct timer *timer)
{
    struct nut_source *s = container_of(timer, struct nut_source, clock);
    fail(s, POWER_SILENCE, sm_state(&s->sm) == CONNECTING ? "no connection within 5 s" : "no answer within 5 s");
}

static void watch(struct nut_source *s, short events, event_callback_fn callback)
{
    if (event_initialized(&s->event))
        event_del(&s->event);
    event_assign(&s->event, reactor_base(s->source.reactor), s->fd, events, callback, s);
    event_add(&s->event, NULL);
}

/* --- asking --- */

/* A question is smaller than any socket's buffer, and there is one at a time. */
static bool say(struct nut_source *s, const char *text, size_t len)
{
    return len == 0 || send(s->fd, text, len, MSG_NOSIGNAL) == (ssize_t)len;
}

static void ask_now(struct nut_source *s)
{
    char out[UPSD_ASK_MAX];
    sm_move(&s->sm, ASKING);
    timer_start(loop_of(s), &s->clock, ANSWER_NS);
    if (!say(s, out, upsd_talk_ask(&s->talk, out)))
        fail(s, POWER_SILENCE, strerror(errno));
}

static void finish(struct nut_source *s, enum upsd_event event)
{
    char why[sizeof s->talk.why];
    if (event == UPSD_BROKEN) {
        text_format(why, sizeof why, "%s", s->talk.why);
        fail(s, POWER_ERROR, why);
        return;
    }
    timer_stop(loop_of(s), &s->clock);
    sm_move(&s->sm, UP);
    s->wait_ns = 0;
    if (event == UPSD_READING)
        power_answered(&s->source, POWER_READING, &s->talk.reading, NULL);
    else
        power_answered(&s->source, POWER_ERROR, NULL, s->talk.why);
}

/* Bytes, or none: the end. */
static void take(struct nut_source *s, const char *bytes, size_t len)
{
    size_t used;
    if (sm_state(&s->sm) == UP) {
        hang_up(s, len > 0 ? "upsd spoke without having been asked" : "upsd has ended the connection");
        s->retry_ns = 0; /* it worked until now */
        return;
    }
    if (len == 0) {
        fail(s, POWER_SILENCE, "upsd has ended the connection");
        return;
    }
    enum upsd_event event = upsd_talk_feed(&s->talk, bytes, len, &used);
    if (event == UPSD_MORE)
        return;
    if (used < len && event != UPSD_BROKEN) { /* nothing was asked that this could be the answer to */
        text_format(s->talk.why, sizeof s->talk.why, "upsd spoke without having been asked");
        event = UPSD_BROKEN;
    }
    finish(s, event);
}

static void on_readable(evutil_socket_t fd, short events, void *data)
{
    (void)events;
    struct nut_source *s = data;
    char bytes[4096];
    reactor_woken(s->source.reactor);
    ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    if (n >= 0)
        take(s, bytes, (size_t)n);
    else if (errno != EAGAIN && errno != EINTR && sm_state(&s->sm) == ASKING)
        fail(s, POWER_SILENCE, strerror(errno));
    else if (errno != EAGAIN && errno != EINTR)
        hang_up(s, strerror(errno));
}

/* --- connecting --- */

/* The password is read each time: it may have been changed. False: it cannot be, and that was answered. */
static bool log_in(struct nut_source *s)
{
    struct secret password = {.text = ""};
    char out[UPSD_ASK_MAX], why[160];
    if (s->user[0] != '\0' && !secret_read(s->password_file, true, &password, why, sizeof why)) {
        fail(s, POWER_ERROR, why);
        return false;
    }
    size_t len = upsd_talk_begin(&s->talk, s->spec.ups, s->user, password.text, out);
    bool good = say(s, out, len);
    secret_wipe(&password);
    explicit_bzero(out, sizeof out);
    if (!good)
        fail(s, POWER_SILENCE, strerror(errno));
    return good;
}

static void on_connected(evutil_socket_t fd, short events, void *data)
{
    (void)events;
    struct nut_source *s = data;
    int error = 0;
    socklen_t len = sizeof error;
    reactor_woken(s->source.reactor);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
        error = errno;
    if (error != 0) {
        fail(s, POWER_SILENCE, strerror(error));
        return;
    }
    watch(s, EV_READ | EV_PERSIST, on_readable);
    if (log_in(s))
        ask_now(s);
}

static socklen_t address_of(const struct power_source_spec *spec, struct sockaddr_storage *out)
{
    struct sockaddr_in *v4 = (void *)out;
    struct sockaddr_in6 *v6 = (void *)out;
    *out = (struct sockaddr_storage){.ss_family = AF_UNSPEC};
    if (inet_pton(AF_INET, spec->host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(spec->port);
        return sizeof *v4;
    }
    ASSERT(inet_pton(AF_INET6, spec->host, &v6->sin6_addr) == 1);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(spec->port);
    return sizeof *v6;
}

static void connect_now(struct nut_source *s)
{
    struct sockaddr_storage address;
    socklen_t len = address_of(&s->spec, &address);
    sm_move(&s->sm, CONNECTING);
    timer_start(loop_of(s), &s->clock, ANSWER_NS);
    s->fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->fd < 0 || (connect(s->fd, (const struct sockaddr *)&address, len) != 0 && errno != EINPROGRESS)) {
        fail(s, POWER_SILENCE, strerror(errno));
        return;
    }
    watch(s, EV_WRITE, on_connected);
}

/* --- the source --- */

static void nut_ask(struct power_source *source)
{
    struct nut_source *s = container_of(source, struct nut_source, source);
    if (sm_state(&s->sm) == UP)
        ask_now(s);
    else if (loop_now_ns(loop_of(s)) >= s->retry_ns)
        connect_now(s);
    else
        power_answered(source, POWER_SILENCE, NULL, s->why);
}

static void nut_close(struct power_source *source)
{
    struct nut_source *s = container_of(source, struct nut_source, source);
    hang_up(s, "");
    free(s);
}

struct power_source *power_nut_open(struct reactor *reactor, const struct power_source_spec *spec, const char *user,
                                    const char *password_file)
{
    struct nut_source *s = calloc(1, sizeof *s);
    ASSERT(s != NULL && spec->kind == POWER_SOURCE_NUT);
    s->source = (struct power_source){.ask = nut_ask, .close = nut_close, .reactor = reactor};
    s->spec = *spec;
    s->fd = -1;
    s->clock.fire = on_time_over;
    text_format(s->user, sizeof s->user, "%s", user);
    text_format(s->password_file, sizeof s->password_file, "%s", password_file);
    sm_init(&s->sm, states, ARRAY_LENGTH(states), DOWN);
    return &s->source;
}
