/* See daemon/listener.h. */
#include "daemon/listener.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/reactor.h"
#include "daemon/socket.h"

enum {
    ACCEPTS_PER_TURN = 64,
    BACKLOG = 1024,
    PAUSE_NS = 100 * 1000 * 1000,
};

struct place {
    struct sockaddr_storage address;
    socklen_t len;
    bool both_families; /* "*": an IPv6 socket that takes IPv4 too */
};

struct listener {
    struct reactor *reactor;
    int fd;
    struct event event;
    struct timer pause;
    listener_accepted accepted;
    void *data;
    bool both_families;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* "" for TCP */
};

/* --- parsing --- */

static bool parse_unix(const char *path, struct place *place, char *why, size_t why_len)
{
    struct sockaddr_un *un = (void *)&place->address;
    if (path[0] != '/' || strlen(path) >= sizeof un->sun_path) {
        text_format(why, why_len, "the path must be absolute and shorter than %zu bytes", sizeof un->sun_path);
        return false;
    }
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, path, strlen(path) + 1);
    place->len = sizeof *un;
    return true;
}

/* Split "host:port" or "[host]:port" at the last colon. */
static bool split(const char *address, char *host, size_t host_len, const char **port)
{
    const char *colon = strrchr(address, ':');
    if (colon == NULL || colon == address)
        return false;
    const char *start = address, *end = colon;
    if (*start == '[' && end[-1] == ']') {
        start++;
        end--;
    } else if (memchr(start, ':', (size_t)(end - start)) != NULL) {
        return false; /* an IPv6 address without brackets */
    }
    text_format(host, host_len, "%.*s", (int)(end - start), start);
    *port = colon + 1;
    return true;
}

static bool is_port(const char *text)
{
    size_t len = strlen(text);
    return len >= 1 && len <= 5 && strspn(text, "0123456789") == len && strtoul(text, NULL, 10) <= 65535;
}

static bool parse_tcp(const char *address, struct place *place, char *why, size_t why_len)
{
    char host[64];
    const char *port;
    struct addrinfo *found, hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    if (!split(address, host, sizeof host, &port) || !is_port(port)) {
        text_format(why, why_len, "expected ADDRESS:PORT, [IPV6]:PORT, *:PORT or unix:/PATH");
        return false;
    }
    place->both_families = strcmp(host, "*") == 0;
    int error = getaddrinfo(place->both_families ? "::" : host, port, &hints, &found);
    if (error != 0) {
        text_format(why, why_len, "'%s' is not an IP address", host);
        return false;
    }
    memcpy(&place->address, found->ai_addr, found->ai_addrlen);
    place->len = found->ai_addrlen;
    freeaddrinfo(found);
    return true;
}

static bool parse(const char *address, struct place *place, char *why, size_t why_len)
{
    *place = (struct place){0};
    if (strncmp(address, "unix:", 5) == 0)
        return parse_unix(address + 5, place, why, why_len);
    return parse_tcp(address, place, why, why_len);
}

/* --- binding --- */

/* A kernel without IPv6 makes "*" an IPv4 address. */
static int open_socket(struct place *place)
{
    int type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    int fd = socket(place->address.ss_family, type, 0);
    if (fd < 0 && errno == EAFNOSUPPORT && place->both_families) {
        struct sockaddr_in in = {.sin_family = AF_INET,
                                 .sin_port = ((struct sockaddr_in6 *)&place->address)->sin6_port};
        memcpy(&place->address, &in, sizeof in);
        place->len = sizeof in;
        fd = socket(AF_INET, type, 0);
    }
    return fd;
}

/* Nobody can connect before listen(), so all of this is in time. The owner last: he might take the rest away. */
static int settle_file(const char *path, const struct listener_file *file)
{
    static const struct listener_file usual = {0660, (uid_t)-1, (gid_t)-1};
    file = file != NULL ? file : &usual;
    if (chmod(path, file->mode) != 0)
        return -1;
    return file->owner != usual.owner || file->group != usual.group ? chown(path, file->owner, file->group) : 0;
}

static int bind_unix(int fd, const struct place *place, const struct listener_file *file)
{
    const struct sockaddr_un *un = (const void *)&place->address;
    int bound = bind(fd, (const void *)un, place->len);
    if (bound != 0 && errno == EADDRINUSE) {
        if (socket_file_is_stale(un->sun_path) && unlink(un->sun_path) == 0)
            bound = bind(fd, (const void *)un, place->len);
        else
            errno = EADDRINUSE;
    }
    if (bound != 0 || settle_file(un->sun_path, file) == 0)
        return bound;
    int error = errno;
    unlink(un->sun_path);
    errno = error;
    return -1;
}

static int bind_tcp(int fd, const struct place *place)
{
    int on = 1, only_ipv6 = !place->both_families;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (place->address.ss_family == AF_INET6 &&
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_ipv6, sizeof only_ipv6) != 0)
        return -1;
    return bind(fd, (const struct sockaddr *)&place->address, place->len);
}

/* A listening socket, or -1 and errno. */
static int open_place(struct place *place, const struct listener_file *file)
{
    int fd = open_socket(place);
    if (fd < 0)
        return -1;
    int bound = place->address.ss_family == AF_UNIX ? bind_unix(fd, place, file) : bind_tcp(fd, place);
    if (bound == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* --- accepting --- */

static void pause_accepting(struct listener *l)
{
    event_del(&l->event);
    timer_start(reactor_loop(l->reactor), &l->pause, PAUSE_NS);
}

static void pause_over(struct timer *timer)
{
    event_add(&container_of(timer, struct listener, pause)->event, NULL);
}

/* Errors of the connection that was waiting, not of ours: the next one may be sound. See accept(2). */
static bool is_peers_error(int error)
{
    static const int errors[] = {EINTR,     ECONNABORTED, EPROTO,       ENETDOWN,   ENOPROTOOPT,
                                 EHOSTDOWN, ENONET,       EHOSTUNREACH, EOPNOTSUPP, ENETUNREACH};
    for (unsigned i = 0; i < ARRAY_LENGTH(errors); i++)
        if (errors[i] == error)
            return true;
    return false;
}

/* False when there is nobody more to let in now. */
static bool accept_one(struct listener *l)
{
    int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (is_peers_error(errno))
            return true;
        if (errno != EAGAIN)
            pause_accepting(l);
        return false;
    }
    struct stream *stream = socket_stream_create(l->reactor, fd);
    if (stream != NULL)
        l->accepted(l->data, stream);
    return true;
}

static void on_knock(evutil_socket_t fd, short what, void *data)
{
    struct listener *l = data;
    (void)fd;
    (void)what;
    reactor_woken(l->reactor);
    for (unsigned i = 0; i < ACCEPTS_PER_TURN && accept_one(l); i++)
        ;
}

/* --- opening and closing --- */

struct listener *listener_adopt(struct reactor *reactor, int fd, listener_accepted accepted, void *data)
{
    ASSERT(loop_is_current(reactor_loop(reactor)));
    struct listener *l = calloc(1, sizeof *l);
    if (l == NULL) {
        close(fd);
        return NULL;
    }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    *l = (struct listener){.reactor = reactor, .fd = fd, .accepted = accepted, .data = data, .pause.fire = pause_over};
    event_assign(&l->event, reactor_base(reactor), fd, EV_READ | EV_PERSIST, on_knock, l);
    event_add(&l->event, NULL);
    return l;
}

struct listener *listener_open(struct reactor *reactor, const char *address, const struct listener_file *file,
                               listener_accepted accepted, void *data, char *why, size_t why_len)
{
    ASSERT(loop_is_current(reactor_loop(reactor)));
    struct place place;
    char reason[128];
    if (!parse(address, &place, reason, sizeof reason)) {
        text_format(why, why_len, "cannot listen on %s: %s", address, reason);
        return NULL;
    }
    int fd = open_place(&place, file);
    struct listener *l = fd >= 0 ? listener_adopt(reactor, fd, accepted, data) : NULL;
    if (l == NULL) {
        text_format(why, why_len, "cannot listen on %s: %s", address, strerror(errno));
        return NULL;
    }
    l->both_families = place.both_families;
    if (place.address.ss_family == AF_UNIX)
        text_format(l->path, sizeof l->path, "%s", ((struct sockaddr_un *)&place.address)->sun_path);
    return l;
}

void listener_address(const struct listener *l, char *out, size_t len)
{
    struct sockaddr_storage address = {0};
    socklen_t address_len = sizeof address;
    if (getsockname(l->fd, (struct sockaddr *)&address, &address_len) != 0)
        text_format(out, len, "?");
    else if (l->both_families) /* the port stands at the same place in both */
        text_format(out, len, "*:%u", ntohs(((struct sockaddr_in *)&address)->sin_port));
    else
        socket_address_format((struct sockaddr *)&address, address_len, out, len);
}

void listener_close(struct listener *l)
{
    ASSERT(loop_is_current(reactor_loop(l->reactor)));
    timer_stop(reactor_loop(l->reactor), &l->pause);
    event_del(&l->event);
    close(l->fd);
    if (l->path[0] != '\0')
        unlink(l->path);
    free(l);
}
