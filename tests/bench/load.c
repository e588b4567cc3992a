/* The shared part of the load generators: see load.h. */
#include "tests/bench/load.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "core/check.h"
#include "tests/bench/load_tls.h"

enum { IN_ROOM = 1 << 20, STAMP_UNIT = 512, SAMPLES_MAX = 2048, POLL_MS = 10000 };
#define VERIFY_NS 3000000000ull
enum { OCTAVE_STEPS = 32, BUCKETS = 40 * OCTAVE_STEPS };

struct load {
    const struct load_protocol *protocol;
    struct load_options options;
    struct load_connection *connections;
    uint64_t size, run, seed, now_ns, end_ns;
    uint64_t completed, errors;
    uint64_t latencies[BUCKETS];                 /* by logarithm of nanoseconds */
    uint64_t samples[SAMPLES_MAX], samples_seen; /* offsets written, for --verify */
};

void load_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t next_random(uint64_t *seed)
{
    uint64_t x = *seed += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static void *must_alloc(uint64_t bytes)
{
    void *p = calloc(1, bytes);
    if (p == NULL)
        load_fail("no memory");
    return p;
}

/* -- sockets
 * ----------------------------------------------------------------------------------------------------------- */

static int connect_unix(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof to.sun_path)
        load_fail("%s: too long for a socket", path);
    strcpy(to.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        load_fail("%s: %s", path, strerror(errno));
    return fd;
}

static int connect_tcp(const char *uri)
{
    char host[256];
    const char *colon = strrchr(uri, ':');
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (colon == NULL || (size_t)(colon - uri) >= sizeof host)
        load_fail("%s: not HOST:PORT", uri);
    memcpy(host, uri, (size_t)(colon - uri));
    host[colon - uri] = '\0';
    int bad = getaddrinfo(host, colon + 1, &hints, &found);
    if (bad != 0)
        load_fail("%s: %s", uri, gai_strerror(bad));
    int fd = socket(found->ai_family, SOCK_STREAM, 0), one = 1;
    if (connect(fd, found->ai_addr, found->ai_addrlen) != 0)
        load_fail("%s: %s", uri, strerror(errno));
    freeaddrinfo(found);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

void load_send_all(struct load_connection *c, const void *bytes, uint64_t len)
{
    for (uint64_t sent = 0; sent < len;) {
        struct iovec rest = {(uint8_t *)(uintptr_t)bytes + sent, len - sent};
        ssize_t n = c->tls != NULL ? (ssize_t)load_tls_send(c->tls, &rest, 1)
                                   : send(c->fd, rest.iov_base, rest.iov_len, MSG_NOSIGNAL);
        if (n < 0)
            load_fail("send: %s", strerror(errno));
        sent += (uint64_t)n;
    }
}

void load_receive_all(struct load_connection *c, void *bytes, uint64_t len)
{
    for (uint64_t got = 0; got < len;) {
        uint8_t *at = (uint8_t *)bytes + got;
        ssize_t n = c->tls != NULL ? load_tls_receive(c->tls, at, len - got) : recv(c->fd, at, len - got, 0);
        if (n <= 0)
            load_fail("receive: %s", n == 0 ? "the server closed the connection" : strerror(errno));
        got += (uint64_t)n;
    }
}

/* -- stamps
 * ------------------------------------------------------------------------------------------------------------ */

static void stamp_all(uint8_t *data, uint64_t off, uint64_t len, uint64_t run)
{
    for (uint64_t at = 0; at < len; at += 8) {
        uint64_t unit = (off + at) / STAMP_UNIT * STAMP_UNIT, word = at % 16 == 0 ? unit : run;
        memcpy(data + at, &word, 8);
    }
}

/* On the timed path: a block stamped in full before needs its offsets renewed only where they begin a unit. */
static void stamp_again(uint8_t *data, uint64_t off, uint64_t len)
{
    for (uint64_t at = 0; at < len; at += STAMP_UNIT) {
        uint64_t unit = off + at;
        memcpy(data + at, &unit, 8);
    }
}

static bool stamp_matches(const uint8_t *data, uint64_t off, uint64_t len, uint64_t run)
{
    for (uint64_t at = 0; at < len; at += STAMP_UNIT) {
        uint64_t unit = off + at;
        if (memcmp(data + at, &unit, 8) != 0 || memcmp(data + at + 8, &run, 8) != 0)
            return false;
    }
    return true;
}

/* -- latencies
 * --------------------------------------------------------------------------------------------------------- */

static unsigned bucket_of(uint64_t ns)
{
    ns = MAX(ns, (uint64_t)OCTAVE_STEPS);
    unsigned octave = 63 - (unsigned)__builtin_clzll(ns);
    unsigned bucket = (octave - 5) * OCTAVE_STEPS + (unsigned)(ns >> (octave - 5)) - OCTAVE_STEPS;
    return MIN(bucket, (unsigned)BUCKETS - 1);
}

static double percentile_us(const struct load *load, double part)
{
    uint64_t seen = 0, wanted = (uint64_t)((double)load->completed * part);
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += load->latencies[i];
        if (seen > wanted)
            return (double)((uint64_t)(OCTAVE_STEPS + i % OCTAVE_STEPS) << i / OCTAVE_STEPS) / 1000;
    }
    return 0;
}

/* -- a connection's turn
 * ----------------------------------------------------------------------------------------------- */

void load_append(struct load_connection *c, const void *base, uint64_t len)
{
    ASSERT(c->out_count < c->out_room);
    c->out[c->out_count++] = (struct iovec){(void *)base, len};
}

static uint64_t choose_offset(struct load *load, struct load_connection *c)
{
    uint64_t blocks = load->size / load->options.block;
    if (load->options.is_random)
        return next_random(&load->seed) % blocks * load->options.block;
    uint64_t off = c->next_off;
    c->next_off = (off / load->options.block + 1) % blocks * load->options.block;
    return off;
}

/* A uniform sample of the offsets written, whatever their number. */
static void remember_sample(struct load *load, uint64_t off)
{
    uint64_t place = load->samples_seen++;
    if (place >= SAMPLES_MAX)
        place = next_random(&load->seed) % load->samples_seen;
    if (place < SAMPLES_MAX)
        load->samples[place] = off;
}

static void issue_idle(struct load *load, struct load_connection *c)
{
    while (c->idle_count > 0 && load->now_ns < load->end_ns && load->protocol->may_issue(c)) {
        struct load_slot *slot = c->idle[--c->idle_count];
        slot->off = choose_offset(load, c);
        slot->started_ns = load->now_ns;
        slot->headers_used = 0;
        if (load->options.is_write) {
            stamp_again(slot->data, slot->off, load->options.block);
            if (load->options.verify)
                remember_sample(load, slot->off);
        }
        load->protocol->issue(c, slot, load->options.is_write);
    }
}

static void complete(struct load *load, struct load_connection *c)
{
    struct load_slot *slot = c->completing;
    c->completing = NULL;
    c->idle[c->idle_count++] = slot;
    load->errors += c->failed_status;
    if (load->now_ns >= load->end_ns)
        return;
    load->completed++;
    load->latencies[bucket_of(load->now_ns - slot->started_ns)]++;
}

static void capture(struct load_connection *c, const uint8_t *bytes, uint64_t len)
{
    len = MIN(len, c->capture_left);
    if (len == 0)
        return;
    memcpy(c->capture, bytes, len);
    c->capture += len;
    c->capture_left -= len;
}

/* Take all that is whole from the input; keep the beginning of a header. */
static void parse_input(struct load *load, struct load_connection *c)
{
    uint8_t *at = c->in, *end = c->in + c->in_have;
    for (;;) {
        uint64_t n = MIN((uint64_t)(end - at), c->payload_left);
        capture(c, at, n);
        at += n;
        c->payload_left -= n;
        if (c->payload_left > 0)
            break;
        if (c->completing != NULL)
            complete(load, c);
        if (end - at < c->header_bytes)
            break;
        load->protocol->header(c, at);
        at += c->header_bytes;
    }
    c->in_have = (uint64_t)(end - at);
    memmove(c->in, at, c->in_have);
}

/* False: there is nothing now. */
static bool receive_some(struct load_connection *c)
{
    uint8_t *at = c->in + c->in_have;
    uint64_t room = IN_ROOM - c->in_have;
    ssize_t n = c->tls != NULL ? load_tls_receive(c->tls, at, room) : recv(c->fd, at, room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0)
        load_fail("receive: %s", n == 0 ? "the server closed the connection" : strerror(errno));
    c->in_have += (uint64_t)n;
    return true;
}

/* With TLS all there is, for no poll tells of what was read from the socket already. */
static void receive_once(struct load *load, struct load_connection *c)
{
    while (receive_some(c)) {
        bool more = c->tls != NULL && c->in_have == IN_ROOM;
        load->now_ns = clock_ns(CLOCK_MONOTONIC);
        parse_input(load, c);
        if (!more)
            return;
    }
}

static void drop_sent(struct load_connection *c, uint64_t sent)
{
    while (sent > 0) {
        struct iovec *first = &c->out[c->out_first];
        uint64_t n = MIN(sent, (uint64_t)first->iov_len);
        first->iov_base = (uint8_t *)first->iov_base + n;
        first->iov_len -= n;
        sent -= n;
        c->out_first += first->iov_len == 0;
    }
    c->out_count -= c->out_first;
    memmove(c->out, c->out + c->out_first, c->out_count * sizeof c->out[0]);
    c->out_first = 0;
}

static bool has_to_send(const struct load_connection *c)
{
    return c->out_count > 0 || (c->tls != NULL && load_tls_waits(c->tls));
}

static void send_once(struct load_connection *c)
{
    if (!has_to_send(c))
        return;
    struct msghdr message = {.msg_iov = c->out, .msg_iovlen = MIN(c->out_count, (unsigned)IOV_MAX)};
    ssize_t n = c->tls != NULL ? (ssize_t)load_tls_send(c->tls, c->out, c->out_count)
                               : sendmsg(c->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        load_fail("send: %s", strerror(errno));
    drop_sent(c, n < 0 ? 0 : (uint64_t)n);
}

static bool is_busy(const struct load *load)
{
    for (unsigned i = 0; i < load->options.connections; i++)
        if (load->connections[i].idle_count < load->options.depth)
            return true;
    return load->now_ns < load->end_ns;
}

/* One turn over all connections. */
static void turn(struct load *load, struct pollfd *polls)
{
    for (unsigned i = 0; i < load->options.connections; i++) {
        struct load_connection *c = &load->connections[i];
        polls[i] = (struct pollfd){c->fd, (short)(POLLIN | (has_to_send(c) ? POLLOUT : 0)), 0};
    }
    int ready = poll(polls, load->options.connections, POLL_MS);
    if (ready == 0)
        load_fail("no answer for %d ms", POLL_MS);
    load->now_ns = clock_ns(CLOCK_MONOTONIC);
    for (unsigned i = 0; i < load->options.connections; i++) {
        struct load_connection *c = &load->connections[i];
        if (polls[i].revents & (POLLIN | POLLHUP | POLLERR))
            receive_once(load, c);
        issue_idle(load, c);
        send_once(c);
    }
}

/* -- the run
 * ----------------------------------------------------------------------------------------------------------- */

static void connection_open(struct load *load, struct load_connection *c, unsigned index)
{
    const struct load_options *o = &load->options;
    *c = (struct load_connection){.options = o, .index = index};
    c->fd = strncmp(o->uri, "unix:", 5) == 0 ? connect_unix(o->uri + 5) : connect_tcp(o->uri);
    c->header_bytes = load->protocol->header_bytes;
    load->protocol->open(c);
    if (c->tls != NULL && fcntl(c->fd, F_SETFL, O_NONBLOCK) != 0)
        load_fail("fcntl: %s", strerror(errno));
    c->slots = must_alloc(o->depth * sizeof c->slots[0]);
    c->idle = must_alloc(o->depth * sizeof(struct load_slot *));
    c->out_room = o->depth * load->protocol->out_per_slot(c) + 1;
    c->out = must_alloc(c->out_room * sizeof c->out[0]);
    c->in = must_alloc(IN_ROOM);
    for (unsigned i = 0; i < o->depth; i++) {
        struct load_slot *slot = &c->slots[i];
        *slot = (struct load_slot){.index = i, .data = must_alloc(o->block)};
        slot->headers = must_alloc(load->protocol->headers_per_slot(c));
        stamp_all(slot->data, 0, o->block, load->run);
        c->idle[c->idle_count++] = slot;
    }
}

static void connection_close(struct load *load, struct load_connection *c)
{
    load_tls_free(c->tls);
    close(c->fd);
    for (unsigned i = 0; i < load->options.depth; i++) {
        free(c->slots[i].data);
        free(c->slots[i].headers);
    }
    free(c->slots);
    free(c->idle);
    free(c->out);
    free(c->in);
    free(c->state);
}

/* Read one block by itself. */
static void read_block(struct load *load, struct load_connection *c, uint64_t off, uint8_t *into)
{
    struct load_slot *slot = c->idle[--c->idle_count];
    *slot = (struct load_slot){.index = slot->index, .off = off, .data = slot->data, .headers = slot->headers};
    c->capture = into;
    c->capture_left = load->options.block;
    load->protocol->issue(c, slot, false);
    while (c->idle_count < load->options.depth) {
        struct pollfd one = {c->fd, (short)(POLLIN | (has_to_send(c) ? POLLOUT : 0)), 0};
        if (poll(&one, 1, POLL_MS) == 0)
            load_fail("no answer for %d ms", POLL_MS);
        if (one.revents & POLLIN)
            receive_once(load, c);
        send_once(c);
    }
}

/* Read back what was written, for a while: some servers take 40 ms for a read by TLS. How many blocks. */
static uint64_t verify_samples(struct load *load)
{
    uint64_t count = MIN(load->samples_seen, (uint64_t)SAMPLES_MAX), i;
    uint64_t end_ns = clock_ns(CLOCK_MONOTONIC) + VERIFY_NS;
    uint8_t *block = must_alloc(load->options.block);
    for (i = 0; i < count && clock_ns(CLOCK_MONOTONIC) < end_ns; i++) {
        read_block(load, &load->connections[0], load->samples[i], block);
        if (!stamp_matches(block, load->samples[i], load->options.block, load->run))
            load_fail("verify: the block at %llu is not what was written", (unsigned long long)load->samples[i]);
    }
    free(block);
    return i;
}

static void run(struct load *load)
{
    struct pollfd *polls = must_alloc(load->options.connections * sizeof polls[0]);
    uint64_t start = load->now_ns = clock_ns(CLOCK_MONOTONIC), cpu_start = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    load->end_ns = start + (uint64_t)(load->options.seconds * 1e9);
    for (unsigned i = 0; i < load->options.connections; i++) {
        issue_idle(load, &load->connections[i]);
        send_once(&load->connections[i]);
    }
    while (load->now_ns < load->end_ns)
        turn(load, polls);
    double wall = (double)(load->now_ns - start) / 1e9;
    double cpu = (double)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_start) / 1e9;
    while (is_busy(load))
        turn(load, polls);
    free(polls);
    double iops = (double)load->completed / wall;
    printf("iops=%.0f mbps=%.1f cpu_client=%.2f p50_us=%.0f p99_us=%.0f errors=%llu", iops,
           iops * load->options.block / 1e6, cpu / wall, percentile_us(load, 0.5), percentile_us(load, 0.99),
           (unsigned long long)load->errors);
}

static const char usage[] =
    "usage: %s --uri HOST:PORT|unix:PATH --export NAME [--lun 0] [--mode randread|randwrite|read|write]\n"
    "       [--block 4096] [--depth 32] [--connections 1] [--seconds 3] [--size BYTES] [--verify] [--digests]\n"
    "       [--tls FOLDER]";

static void parse_mode(struct load_options *o, const char *mode, const char *program)
{
    o->is_random = strncmp(mode, "rand", 4) == 0;
    mode += o->is_random ? 4 : 0;
    o->is_write = strcmp(mode, "write") == 0;
    if (!o->is_write && strcmp(mode, "read") != 0)
        load_fail(usage, program);
}

static void parse_options(struct load_options *o, int argc, char **argv)
{
    static const struct option known[] = {
        {"uri", 1, NULL, 'u'},   {"export", 1, NULL, 'e'}, {"lun", 1, NULL, 'l'},         {"mode", 1, NULL, 'm'},
        {"block", 1, NULL, 'b'}, {"depth", 1, NULL, 'd'},  {"connections", 1, NULL, 'c'}, {"seconds", 1, NULL, 's'},
        {"size", 1, NULL, 'z'},  {"verify", 0, NULL, 'v'}, {"digests", 0, NULL, 'D'},     {"tls", 1, NULL, 't'},
        {NULL, 0, NULL, 0}};
    const char *mode = "randread";
    *o = (struct load_options){.export_ = "", .block = 4096, .depth = 32, .connections = 1, .seconds = 3};
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;)
        switch (c) {
        case 'u':
            o->uri = optarg;
            break;
        case 'e':
            o->export_ = optarg;
            break;
        case 'l':
            o->lun = (unsigned)strtoul(optarg, NULL, 0);
            break;
        case 'm':
            mode = optarg;
            break;
        case 'b':
            o->block = (uint32_t)strtoul(optarg, NULL, 0);
            break;
        case 'd':
            o->depth = (unsigned)strtoul(optarg, NULL, 0);
            break;
        case 'c':
            o->connections = (unsigned)strtoul(optarg, NULL, 0);
            break;
        case 's':
            o->seconds = strtod(optarg, NULL);
            break;
        case 'z':
            o->size = strtoull(optarg, NULL, 0);
            break;
        case 'v':
            o->verify = true;
            break;
        case 'D':
            o->digests = true;
            break;
        case 't':
            o->tls = optarg;
            break;
        default:
            load_fail(usage, argv[0]);
        }
    parse_mode(o, mode, argv[0]);
    if (o->uri == NULL || o->depth == 0 || o->connections == 0 || o->block == 0 || o->block % STAMP_UNIT != 0)
        load_fail(usage, argv[0]);
}

int load_main(int argc, char **argv, const struct load_protocol *protocol)
{
    struct load *load = must_alloc(sizeof *load);
    struct load_options *o = &load->options;
    load->protocol = protocol;
    parse_options(o, argc, argv);
    load->run = load->seed = clock_ns(CLOCK_REALTIME);
    load->connections = must_alloc(o->connections * sizeof load->connections[0]);
    for (unsigned i = 0; i < o->connections; i++)
        connection_open(load, &load->connections[i], i);
    load->size = o->size == 0 ? load->connections[0].device_size : o->size;
    if (load->size > load->connections[0].device_size || load->size < o->block)
        load_fail("the device has %llu bytes", (unsigned long long)load->connections[0].device_size);
    for (unsigned i = 0; i < o->connections; i++)
        load->connections[i].next_off = load->size / o->block * i / o->connections * o->block;
    run(load);
    if (o->verify && o->is_write)
        printf(" verified=%llu", (unsigned long long)verify_samples(load));
    printf("\n");
    for (unsigned i = 0; i < o->connections; i++)
        connection_close(load, &load->connections[i]);
    int status = load->errors > 0;
    free(load->connections);
    free(load);
    return status;
}
