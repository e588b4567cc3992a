/* See daemon/socket.h. */
#include "daemon/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/reactor.h"
#include "daemon/socket_internal.h"

enum {
    FAREWELL_BYTES = 1 << 20, /* read and thrown away before a close */
};

/* --- addresses --- */

static void format_ipv6(const struct sockaddr_in6 *in6, char *out, size_t len)
{
    char text[INET6_ADDRSTRLEN];
    if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
        inet_ntop(AF_INET, in6->sin6_addr.s6_addr + 12, text, sizeof text);
        text_format(out, len, "%s:%u", text, ntohs(in6->sin6_port));
    } else {
        inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof text);
        text_format(out, len, "[%s]:%u", text, ntohs(in6->sin6_port));
    }
}

void socket_address_format(const struct sockaddr *address, size_t address_len, char *out, size_t len)
{
    char text[INET_ADDRSTRLEN];
    const struct sockaddr_in *in = (const void *)address;
    const struct sockaddr_un *un = (const void *)address;
    out[0] = '\0';
    if (address->sa_family == AF_INET) {
        inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
        text_format(out, len, "%s:%u", text, ntohs(in->sin_port));
    } else if (address->sa_family == AF_INET6) {
        format_ipv6((const void *)address, out, len);
    } else if (address->sa_family == AF_UNIX) {
        size_t path_len = address_len - MIN(address_len, offsetof(struct sockaddr_un, sun_path));
        bool named = path_len > 0 && un->sun_path[0] != '\0';
        text_format(out, len, "unix:%.*s", named ? (int)path_len : 0, un->sun_path);
        for (char *c = out; *c != '\0'; c++) /* a peer's own choice, on its way to logs */
            if (*c <= ' ' || *c > '~')
                *c = '?';
    }
}

static void name_ends(struct socket_stream *s)
{
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof address;
    if (getsockname(s->fd, (struct sockaddr *)&address, &len) == 0)
        socket_address_format((struct sockaddr *)&address, len, s->stream.local, sizeof s->stream.local);
    len = sizeof address;
    if (getpeername(s->fd, (struct sockaddr *)&address, &len) == 0)
        socket_address_format((struct sockaddr *)&address, len, s->stream.peer, sizeof s->stream.peer);
}

bool socket_file_is_stale(const char *path)
{
    struct stat st;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (lstat(path, &st) != 0 || !S_ISSOCK(st.st_mode) || strlen(path) >= sizeof address.sun_path)
        return false;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    bool refused = connect(fd, (const struct sockaddr *)&address, sizeof address) != 0 && errno == ECONNREFUSED;
    close(fd);
    return refused;
}

/* --- the stream's operations --- */

static ssize_t result_of(ssize_t n)
{
    if (n >= 0)
        return n;
    return errno == EAGAIN ? STREAM_AGAIN : STREAM_BROKEN;
}

static ssize_t socket_recv(struct stream *stream, const struct iovec *iov, int count)
{
    ASSERT(count > 0);
    ssize_t n;
    do
        n = readv(socket_of(stream)->fd, iov, MIN(count, IOV_MAX));
    while (n < 0 && errno == EINTR);
    return result_of(n);
}

static ssize_t socket_send(struct stream *stream, const struct iovec *iov, int count)
{
    ASSERT(count > 0);
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)MIN(count, IOV_MAX)};
    ssize_t n;
    do
        n = sendmsg(socket_of(stream)->fd, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return result_of(n);
}

static void switch_event(struct event *event, bool was_on, bool on)
{
    if (on && !was_on) {
        int error = event_add(event, NULL);
        ASSERT(error == 0);
    } else if (was_on && !on) {
        event_del(event);
    }
}

void socket_watch(struct socket_stream *s, unsigned events)
{
    switch_event(&s->read_event, s->wanted & STREAM_READ, events & STREAM_READ);
    switch_event(&s->write_event, s->wanted & STREAM_WRITE, events & STREAM_WRITE);
    s->wanted = events;
}

static void socket_want(struct stream *stream, unsigned events)
{
    ASSERT(loop_is_current(stream->loop) && stream->owner != NULL);
    socket_watch(socket_of(stream), events);
}

static void on_readable(evutil_socket_t fd, short what, void *data)
{
    struct socket_stream *s = data;
    (void)fd;
    (void)what;
    reactor_woken(reactor_of(s->stream.loop));
    if (s->tls != NULL)
        tls_ready(s, STREAM_READ);
    else
        s->stream.owner->readable(&s->stream);
}

static void on_writable(evutil_socket_t fd, short what, void *data)
{
    struct socket_stream *s = data;
    (void)fd;
    (void)what;
    reactor_woken(reactor_of(s->stream.loop));
    if (s->tls != NULL)
        tls_ready(s, STREAM_WRITE);
    else
        s->stream.owner->writable(&s->stream);
}

static void settle(struct socket_stream *s, struct loop *loop)
{
    struct event_base *base = reactor_base(reactor_of(loop));
    s->stream.loop = loop;
    event_assign(&s->read_event, base, s->fd, EV_READ | EV_PERSIST, on_readable, s);
    event_assign(&s->write_event, base, s->fd, EV_WRITE | EV_PERSIST, on_writable, s);
}

/* On the new loop. */
static void socket_moved(struct task *task)
{
    struct socket_stream *s = container_of(task, struct socket_stream, moved);
    unsigned wanted = s->wanted;
    s->wanted = 0;
    socket_watch(s, wanted);
    if (s->tls != NULL)
        tls_arrived(s);
    s->arrived->run(s->arrived);
}

void socket_move(struct stream *stream, struct loop *to, struct task *arrived)
{
    struct socket_stream *s = socket_of(stream);
    ASSERT(loop_is_current(stream->loop));
    event_del(&s->read_event);
    event_del(&s->write_event);
    settle(s, to);
    s->arrived = arrived;
    s->moved.run = socket_moved;
    loop_call(to, &s->moved);
}

/*
 * TCP answers a close with unread bytes by a reset, and a reset overtakes what was sent: the peer would not see our
 * last words. So what has arrived is thrown away first.
 */
void socket_close(struct stream *stream)
{
    struct socket_stream *s = socket_of(stream);
    ASSERT(loop_is_current(stream->loop));
    event_del(&s->read_event);
    event_del(&s->write_event);
    shutdown(s->fd, SHUT_WR);
    char waste[16 * KIB];
    ssize_t n;
    for (size_t total = 0; total < FAREWELL_BYTES; total += (size_t)n) {
        n = recv(s->fd, waste, sizeof waste, MSG_DONTWAIT);
        if (n <= 0)
            break;
    }
    close(s->fd);
    free(s);
}

bool socket_has_left(const struct stream *stream)
{
    const struct socket_stream *s = container_of(stream, struct socket_stream, stream);
    struct pollfd look = {.fd = s->fd, .events = POLLRDHUP};
    return poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

static const struct stream_ops socket_ops = {.recv = socket_recv,
                                             .send = socket_send,
                                             .want = socket_want,
                                             .move = socket_move,
                                             .start_tls = tls_start,
                                             .has_left = socket_has_left,
                                             .close = socket_close};

/* --- birth --- */

/* A peer that is gone without a word is noticed after 60 + 4 * 15 s of silence, or 60 s of unanswered bytes. */
static const struct {
    int level, name, value;
} tcp_options[] = {
    {IPPROTO_TCP, TCP_NODELAY, 1},    {SOL_SOCKET, SO_KEEPALIVE, 1}, {IPPROTO_TCP, TCP_KEEPIDLE, 60},
    {IPPROTO_TCP, TCP_KEEPINTVL, 15}, {IPPROTO_TCP, TCP_KEEPCNT, 4}, {IPPROTO_TCP, TCP_USER_TIMEOUT, 60000},
};

/* Failures are of no account: a Unix socket refuses all of it, and a peer that has left refuses anything. */
static void tune(int fd)
{
    int domain = AF_UNIX;
    socklen_t len = sizeof domain;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) != 0 || domain == AF_UNIX)
        return;
    for (unsigned i = 0; i < ARRAY_LENGTH(tcp_options); i++)
        setsockopt(fd, tcp_options[i].level, tcp_options[i].name, &tcp_options[i].value, sizeof(int));
}

struct stream *socket_stream_create(struct reactor *reactor, int fd)
{
    struct socket_stream *s = calloc(1, sizeof *s);
    if (s == NULL) {
        close(fd);
        return NULL;
    }
    s->stream.ops = &socket_ops;
    s->fd = fd;
    tune(fd);
    settle(s, reactor_loop(reactor));
    name_ends(s);
    return &s->stream;
}

int socket_stream_fd(const struct stream *stream)
{
    ASSERT(stream->ops == &socket_ops);
    return container_of(stream, struct socket_stream, stream)->fd;
}
