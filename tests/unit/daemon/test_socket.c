/* Streams over socket pairs, and listeners on loopback and on Unix sockets under $TMPDIR. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/listener.h"
#include "daemon/reactor.h"
#include "daemon/socket.h"
#include "tests/unit/lib/testloop.h"

static struct reactor *new_reactor(void)
{
    char why[200] = "";
    struct reactor_options options = {.name = "test"};
    struct reactor *r = reactor_create(&options, why, sizeof why);
    cr_assert_not_null(r, "%s", why);
    return r;
}

/* --- an owner that sends bytes, receives bytes, and stops its reactor when both are over --- */

struct party {
    struct stream *stream;
    const uint8_t *to_send;
    uint8_t *received;
    size_t send_len, sent, expect_len, got;
    unsigned readables, writables;
    bool ended, closes;
    unsigned *open; /* parties that are not through */
    struct task arrived;
};

static void party_over(struct party *p)
{
    if (--*p->open == 0)
        reactor_stop(reactor_of(p->stream->loop));
}

static void party_readable(struct stream *stream)
{
    struct party *p = stream->owner_data;
    p->readables++;
    struct iovec iov[2] = {{p->received + p->got, MIN(p->expect_len - p->got, (size_t)100)}};
    iov[1] = (struct iovec){p->received + p->got + iov[0].iov_len, p->expect_len - p->got - iov[0].iov_len};
    ssize_t n = stream_recv(stream, iov, 2);
    if (n == STREAM_AGAIN)
        return;
    p->ended = n == 0;
    p->got += n > 0 ? (size_t)n : 0;
    if (p->got == p->expect_len || n <= 0) {
        stream_want(stream, p->sent < p->send_len ? STREAM_WRITE : 0);
        party_over(p);
    }
}

static void party_writable(struct stream *stream)
{
    struct party *p = stream->owner_data;
    p->writables++;
    struct iovec iov = {(void *)(uintptr_t)(p->to_send + p->sent), p->send_len - p->sent};
    ssize_t n = stream_send(stream, &iov, 1);
    cr_assert(n > 0 || n == STREAM_AGAIN);
    p->sent += n > 0 ? (size_t)n : 0;
    if (p->sent == p->send_len) {
        stream_want(stream, p->got < p->expect_len ? STREAM_READ : 0);
        party_over(p);
    }
}

static const struct stream_owner party_owner = {party_readable, party_writable};

static void party_join(struct party *p, struct stream *stream)
{
    cr_assert_not_null(stream);
    p->stream = stream;
    stream->owner = &party_owner;
    stream->owner_data = p;
    stream_want(stream, (p->expect_len > 0 ? STREAM_READ : 0) | (p->send_len > 0 ? STREAM_WRITE : 0));
}

static void make_pair(int fds[2])
{
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
}

Test(socket, a_megabyte_goes_each_way_at_once, .timeout = 60)
{
    int fds[2];
    unsigned open = 4;
    struct reactor *r = new_reactor();
    uint8_t *bytes = malloc(4 * MIB);
    test_fill(bytes, 2 * MIB, 9);
    struct party a = {.to_send = bytes, .send_len = MIB, .received = bytes + 2 * MIB, .expect_len = MIB, .open = &open};
    struct party b = {
        .to_send = bytes + MIB, .send_len = MIB, .received = bytes + 3 * MIB, .expect_len = MIB, .open = &open};
    make_pair(fds);
    party_join(&a, socket_stream_create(r, fds[0]));
    party_join(&b, socket_stream_create(r, fds[1]));
    cr_expect_str_eq(a.stream->peer, "unix:");
    reactor_run(r);
    cr_expect_eq(memcmp(a.received, b.to_send, MIB), 0);
    cr_expect_eq(memcmp(b.received, a.to_send, MIB), 0);
    stream_close(a.stream);
    stream_close(b.stream);
    free(bytes);
    reactor_destroy(r);
}

Test(socket, the_peers_end_is_zero_and_its_absence_is_broken, .timeout = 60)
{
    int fds[2];
    char byte = 'x';
    struct iovec iov = {&byte, 1};
    struct reactor *r = new_reactor();
    make_pair(fds);
    struct stream *s = socket_stream_create(r, fds[0]);
    cr_expect_eq(stream_recv(s, &iov, 1), STREAM_AGAIN);
    cr_expect_eq(write(fds[1], "abc", 3), 3);
    cr_expect(stream_recv(s, &iov, 1) == 1 && byte == 'a');
    cr_expect_not(stream_has_left(s));
    shutdown(fds[1], SHUT_WR);
    cr_expect(stream_has_left(s), "before all was received");
    cr_expect(stream_recv(s, &iov, 1) == 1 && stream_recv(s, &iov, 1) == 1);
    cr_expect_eq(stream_recv(s, &iov, 1), 0);
    close(fds[1]);
    cr_expect_eq(stream_send(s, &iov, 1), STREAM_BROKEN, "and no SIGPIPE");
    stream_close(s);
    reactor_destroy(r);
}

Test(socket, a_full_socket_says_again, .timeout = 60)
{
    int fds[2];
    char bytes[4096] = {0};
    struct iovec iov[3] = {{bytes, 4096}, {bytes, 4096}, {bytes, 4096}};
    struct reactor *r = new_reactor();
    make_pair(fds);
    struct stream *s = socket_stream_create(r, fds[0]);
    ssize_t n;
    unsigned sends = 0;
    while ((n = stream_send(s, iov, 3)) > 0)
        sends++;
    cr_expect_eq(n, STREAM_AGAIN);
    cr_expect_gt(sends, 1);
    stream_close(s);
    close(fds[1]);
    reactor_destroy(r);
}

/* --- wishes --- */

struct wisher {
    struct timer timer;
    struct stream *stream;
    unsigned readables;
};

static void wisher_readable(struct stream *stream)
{
    struct wisher *w = stream->owner_data;
    if (++w->readables == 3) /* level-triggered: it comes again though nothing is read */
        stream_want(stream, 0);
}

static void wisher_writable(struct stream *stream)
{
    cr_assert_fail("nobody asked to write to %s", stream->peer);
}

static const struct stream_owner wisher_owner = {wisher_readable, wisher_writable};

static void wisher_stop(struct timer *timer)
{
    reactor_stop(reactor_of(container_of(timer, struct wisher, timer)->stream->loop));
}

Test(socket, calls_come_while_wanted_and_not_after, .timeout = 60)
{
    int fds[2];
    struct reactor *r = new_reactor();
    struct wisher w = {.timer.fire = wisher_stop};
    make_pair(fds);
    cr_assert_eq(write(fds[1], "x", 1), 1);
    w.stream = socket_stream_create(r, fds[0]);
    w.stream->owner = &wisher_owner;
    w.stream->owner_data = &w;
    stream_want(w.stream, STREAM_READ);
    stream_want(w.stream, STREAM_READ);
    timer_start(reactor_loop(r), &w.timer, 20000000);
    reactor_run(r);
    cr_expect_eq(w.readables, 3);
    stream_close(w.stream);
    close(fds[1]);
    reactor_destroy(r);
}

/* --- moving --- */

static void party_arrived(struct task *task)
{
    struct party *p = container_of(task, struct party, arrived);
    cr_expect(loop_is_current(p->stream->loop));
    cr_expect_eq(p->readables, 0, "no callback before arrival");
    stream_want(p->stream, STREAM_READ);
}

Test(socket, a_moved_stream_lives_on_the_other_reactor, .timeout = 60)
{
    int fds[2];
    char got[8] = "";
    unsigned open = 1;
    struct reactor *from = new_reactor(), *to = new_reactor();
    struct party p = {.received = (uint8_t *)got, .expect_len = 5, .open = &open, .arrived.run = party_arrived};
    make_pair(fds);
    party_join(&p, socket_stream_create(from, fds[0]));
    stream_move(p.stream, reactor_loop(to), &p.arrived);
    cr_assert_eq(write(fds[1], "hello", 5), 5);
    cr_assert_eq(reactor_start(to), 0);
    reactor_join(to); /* the party stops the reactor it is on */
    cr_expect_str_eq(got, "hello");
    cr_expect_eq(p.stream->loop, reactor_loop(to));
    stream_close(p.stream);
    close(fds[1]);
    reactor_destroy(from);
    reactor_destroy(to);
}

/* --- listening --- */

struct hall {
    struct reactor *reactor;
    struct stream *guests[8];
    unsigned count, wanted;
};

static void hall_enter(void *data, struct stream *stream)
{
    struct hall *hall = data;
    hall->guests[hall->count++] = stream;
    if (hall->count == hall->wanted)
        reactor_stop(hall->reactor);
}

static int dial_tcp(const char *address)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1))};
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0 && connect(fd, (struct sockaddr *)&in, sizeof in) == 0, "%s: %s", address, strerror(errno));
    return fd;
}

static int dial_unix(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    text_format(un.sun_path, sizeof un.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0 && connect(fd, (struct sockaddr *)&un, sizeof un) == 0, "%s: %s", path, strerror(errno));
    return fd;
}

static int tcp_option(const struct stream *stream, int level, int name)
{
    int value = -1;
    socklen_t len = sizeof value;
    getsockopt(socket_stream_fd(stream), level, name, &value, &len);
    return value;
}

Test(listener, tcp_connections_become_streams_without_delay, .timeout = 60)
{
    static const char *const addresses[] = {"127.0.0.1:0", "*:0"};
    char why[300] = "", address[64];
    struct reactor *r = new_reactor();
    for (unsigned i = 0; i < ARRAY_LENGTH(addresses); i++) {
        struct hall hall = {.reactor = r, .wanted = 2};
        struct listener *l = listener_open(r, addresses[i], NULL, hall_enter, &hall, why, sizeof why);
        cr_assert_not_null(l, "%s", why);
        listener_address(l, address, sizeof address);
        cr_expect_eq(strncmp(address, addresses[i], strlen(addresses[i]) - 1), 0, "%s", address);
        int fds[2] = {dial_tcp(address), dial_tcp(address)};
        reactor_run(r);
        for (unsigned k = 0; k < 2; k++) {
            struct stream *guest = hall.guests[k];
            cr_expect_eq(tcp_option(guest, IPPROTO_TCP, TCP_NODELAY), 1);
            cr_expect_eq(tcp_option(guest, SOL_SOCKET, SO_KEEPALIVE), 1);
            cr_expect_eq(strncmp(guest->peer, "127.0.0.1:", 10), 0, "%s", guest->peer);
            cr_expect_eq(strncmp(guest->local, "127.0.0.1:", 10), 0, "%s", guest->local);
            cr_expect_not(stream_has_left(guest));
            cr_expect_eq(write(fds[k], "abc", 3), 3);
            shutdown(fds[k], SHUT_RDWR); /* as the kernel's NBD client does when it gives a connection up */
            cr_expect(stream_has_left(guest));
            stream_close(guest);
            close(fds[k]);
        }
        listener_close(l);
    }
    reactor_destroy(r);
}

Test(listener, last_words_arrive_though_the_peer_was_not_read, .timeout = 60)
{
    char why[300] = "", address[64], got[8] = "";
    struct reactor *r = new_reactor();
    struct hall hall = {.reactor = r, .wanted = 1};
    struct listener *l = listener_open(r, "127.0.0.1:0", NULL, hall_enter, &hall, why, sizeof why);
    cr_assert_not_null(l, "%s", why);
    listener_address(l, address, sizeof address);
    int fd = dial_tcp(address);
    cr_assert_eq(write(fd, "a question nobody reads", 23), 23);
    reactor_run(r);
    struct iovec iov = {(void *)(uintptr_t) "bye", 3};
    cr_expect_eq(stream_send(hall.guests[0], &iov, 1), 3);
    stream_close(hall.guests[0]);
    cr_expect_eq(read(fd, got, sizeof got), 3);
    cr_expect_str_eq(got, "bye");
    cr_expect_eq(read(fd, got, sizeof got), 0, "an end, not a reset");
    close(fd);
    listener_close(l);
    reactor_destroy(r);
}

struct unix_place {
    char directory[80], path[100], address[108];
};

static void unix_place_init(struct unix_place *p)
{
    const char *base = getenv("TMPDIR");
    text_format(p->directory, sizeof p->directory, "%s/corbel-sock-XXXXXX", base != NULL ? base : "/tmp");
    cr_assert_not_null(mkdtemp(p->directory));
    text_format(p->path, sizeof p->path, "%s/s", p->directory);
    text_format(p->address, sizeof p->address, "unix:%s", p->path);
}

/* What a daemon that was killed leaves behind. */
static void leave_stale(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    text_format(un.sun_path, sizeof un.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&un, sizeof un) == 0);
    close(fd);
}

Test(listener, a_unix_socket_replaces_the_dead_and_respects_the_living, .timeout = 60)
{
    char why[300] = "", address[120];
    struct stat st;
    struct unix_place place;
    struct reactor *r = new_reactor();
    struct hall hall = {.reactor = r, .wanted = 2};
    unix_place_init(&place);
    leave_stale(place.path);
    struct listener *l = listener_open(r, place.address, NULL, hall_enter, &hall, why, sizeof why);
    cr_assert_not_null(l, "%s", why);
    cr_expect(stat(place.path, &st) == 0 && (st.st_mode & 0777) == 0660);
    cr_expect_null(listener_open(r, place.address, NULL, hall_enter, &hall, why, sizeof why));
    cr_expect(strstr(why, "in use") != NULL && strstr(why, place.path) != NULL, "%s", why);
    listener_address(l, address, sizeof address);
    cr_expect_str_eq(address, place.address);
    int fd = dial_unix(place.path);
    reactor_run(r); /* the one that was refused had knocked, to see whether somebody lives here */
    for (unsigned i = 0; i < 2; i++) {
        cr_expect_eq(strncmp(hall.guests[i]->local, place.address, sizeof hall.guests[i]->local - 1), 0);
        stream_close(hall.guests[i]);
    }
    close(fd);
    listener_close(l);
    cr_expect(stat(place.path, &st) != 0 && errno == ENOENT, "the file is gone");
    close(open(place.path, O_CREAT | O_RDWR, 0600));
    cr_expect_null(listener_open(r, place.address, NULL, hall_enter, &hall, why, sizeof why),
                   "not a socket: left alone");
    cr_expect_eq(stat(place.path, &st), 0);
    unlink(place.path);
    rmdir(place.directory);
    reactor_destroy(r);
}

Test(listener, a_unix_socket_has_the_mode_and_owner_it_is_given)
{
    const struct listener_file own = {0604, geteuid(), getegid()}, strange = {0600, 12345678, (gid_t)-1};
    char why[300] = "";
    struct stat st;
    struct unix_place place;
    struct reactor *r = new_reactor();
    unix_place_init(&place);
    struct listener *l = listener_open(r, place.address, &own, hall_enter, NULL, why, sizeof why);
    cr_assert_not_null(l, "%s", why);
    cr_expect(stat(place.path, &st) == 0 && (st.st_mode & 0777) == 0604 && st.st_gid == getegid());
    listener_close(l);
    l = listener_open(r, place.address, &strange, hall_enter, NULL, why, sizeof why);
    cr_expect_eq(l != NULL, geteuid() == 0, "only root may give it away: %s", why);
    if (l != NULL)
        listener_close(l);
    cr_expect(stat(place.path, &st) != 0, "no file is left, whichever way");
    rmdir(place.directory);
    reactor_destroy(r);
}

Test(listener, a_socket_that_listens_already_is_adopted, .timeout = 60)
{
    char address[120];
    struct stat st;
    struct unix_place place;
    struct reactor *r = new_reactor();
    struct hall hall = {.reactor = r, .wanted = 1};
    unix_place_init(&place);
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    text_format(un.sun_path, sizeof un.sun_path, "%s", place.path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&un, sizeof un) == 0 && listen(fd, 5) == 0);
    struct listener *l = listener_adopt(r, fd, hall_enter, &hall);
    cr_assert_not_null(l);
    listener_address(l, address, sizeof address);
    cr_expect_str_eq(address, place.address);
    int guest = dial_unix(place.path);
    reactor_run(r);
    stream_close(hall.guests[0]);
    close(guest);
    listener_close(l);
    cr_expect_eq(stat(place.path, &st), 0, "its file is another's");
    unlink(place.path);
    rmdir(place.directory);
    reactor_destroy(r);
}

Test(listener, addresses_that_are_none_are_refused)
{
    static const char *const addresses[] = {
        "",          ":3260",         "localhost:3260", "127.0.0.1",     "127.0.0.1:",
        "1.2.3.4:x", "1.2.3.4:65536", "::1:3260",       "unix:relative", "[::1]3260"};
    char why[300];
    struct reactor *r = new_reactor();
    for (unsigned i = 0; i < ARRAY_LENGTH(addresses); i++) {
        why[0] = '\0';
        cr_expect_null(listener_open(r, addresses[i], NULL, hall_enter, NULL, why, sizeof why), "'%s'", addresses[i]);
        cr_expect_neq(why[0], '\0');
    }
    reactor_destroy(r);
}

/* Out of descriptors: the listener pauses, and lets the peer in when there are some again. */
struct famine {
    struct timer timer;
    struct rlimit limit;
    uint64_t turns;
    struct reactor *reactor;
};

static void famine_ends(struct timer *timer)
{
    struct famine *f = container_of(timer, struct famine, timer);
    f->turns = reactor_turns(f->reactor);
    setrlimit(RLIMIT_NOFILE, &f->limit);
}

Test(listener, without_descriptors_it_pauses_and_recovers, .timeout = 60)
{
    char why[300] = "", address[64];
    struct reactor *r = new_reactor();
    struct hall hall = {.reactor = r, .wanted = 1};
    struct listener *l = listener_open(r, "127.0.0.1:0", NULL, hall_enter, &hall, why, sizeof why);
    cr_assert_not_null(l, "%s", why);
    listener_address(l, address, sizeof address);
    int fd = dial_tcp(address);
    struct famine f = {.timer.fire = famine_ends, .reactor = r};
    getrlimit(RLIMIT_NOFILE, &f.limit);
    struct rlimit none = {0, f.limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    timer_start(reactor_loop(r), &f.timer, 50000000);
    reactor_run(r);
    cr_expect_eq(hall.count, 1);
    cr_expect(f.turns > 0 && f.turns < 50, "%lu turns: it does not spin", f.turns);
    stream_close(hall.guests[0]);
    close(fd);
    listener_close(l);
    reactor_destroy(r);
}

Test(socket, addresses_are_written_as_people_write_them)
{
    char text[64];
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(3260)};
    inet_pton(AF_INET6, "2001:db8::1", &in6.sin6_addr);
    socket_address_format((struct sockaddr *)&in6, sizeof in6, text, sizeof text);
    cr_expect_str_eq(text, "[2001:db8::1]:3260");
    inet_pton(AF_INET6, "::ffff:192.0.2.7", &in6.sin6_addr);
    socket_address_format((struct sockaddr *)&in6, sizeof in6, text, sizeof text);
    cr_expect_str_eq(text, "192.0.2.7:3260");
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(80), .sin_addr.s_addr = htonl(0xc0000201)};
    socket_address_format((struct sockaddr *)&in, sizeof in, text, sizeof text);
    cr_expect_str_eq(text, "192.0.2.1:80");
    struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "/x\nerror: \xff"};
    socket_address_format((struct sockaddr *)&un, sizeof un, text, sizeof text);
    cr_expect_str_eq(text, "unix:/x?error:??", "a client's socket may be called anything");
}
