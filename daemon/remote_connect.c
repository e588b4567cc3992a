/*
 * Sessions made on a thread that may block, within a bounded time: see daemon/remote.h. Used by the worker when a disk
 * is opened, and by a device's own thread when a session was lost.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/remote.h"
#include "daemon/remote_uri.h"

enum { CONNECT_MS = 3000, LOOK_MS = 100, KEEPALIVE_S = 5, KEEPALIVE_STEP_S = 2, KEEPALIVE_TRIES = 3, DEAD_MS = 10000 };

#define WINDOW_HEAD (4 * MIB) /* libblkid looks no further: VMFS begins at 2 MiB */
#define WINDOW_TAIL (1 * MIB)

const uint64_t remote_canary_off[REMOTE_CANARIES] = {SB_HEAD_0, SB_HEAD_1};

void remote_answer(struct remote_op *op, enum blk_status status)
{
    op->status = status;
    TAILQ_INSERT_TAIL(&op->session->answered, op, answered_link);
}

void remote_tune(int fd)
{
    const struct {
        int level, name, value;
    } options[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_S},
                   {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_STEP_S},
                   {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_TRIES},
                   {IPPROTO_TCP, TCP_USER_TIMEOUT, DEAD_MS},
                   {IPPROTO_TCP, TCP_NODELAY, 1}};
    for (unsigned i = 0; i < ARRAY_LENGTH(options); i++) /* on a Unix socket they fail, and are not needed */
        setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof options[i].value);
}

void remote_reset(int fd)
{
    const struct linger now = {.l_onoff = 1};
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

static uint64_t clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Wait for the other side once, and go on. False: broken, or the time is over. */
static bool pump(struct remote_session *session, uint64_t until_ms)
{
    uint64_t now = clock_ms();
    struct pollfd fd = {.fd = session->driver->fd(session), .events = session->driver->events(session)};
    if (now >= until_ms) {
        text_format(session->why, sizeof session->why, "no answer within %d s", CONNECT_MS / 1000);
        return false;
    }
    /* Not longer than a moment: the descriptor may become another one, and a driver has time-outs of its own. */
    int n = poll(&fd, fd.fd >= 0, (int)MIN(until_ms - now, (uint64_t)LOOK_MS));
    return session->driver->service(session, n > 0 ? fd.revents : 0);
}

/* One op, waited for. */
static bool do_op(struct remote_session *session, struct remote_op *op, uint64_t until_ms)
{
    bool good = session->driver->issue(session, op);
    while (good && TAILQ_EMPTY(&session->answered))
        good = pump(session, until_ms);
    TAILQ_INIT(&session->answered);
    return good && op->status == BLK_OK;
}

static bool read_canary(struct remote_session *session, unsigned which, struct remote_canary *canary, uint64_t until_ms)
{
    struct remote_op *op = calloc(1, sizeof *op);
    uint8_t *bytes = aligned_alloc(PAGE_BYTES, PAGE_BYTES);
    bool good = false;
    if (op != NULL && bytes != NULL) {
        op->op = BLK_READ;
        op->off = remote_canary_off[which];
        op->len = PAGE_BYTES;
        op->iov[0] = (struct iovec){bytes, PAGE_BYTES};
        op->iov_count = 1;
        good = op->off + op->len <= session->facts.info.size && do_op(session, op, until_ms);
        if (good)
            memcpy(canary->bytes, bytes, PAGE_BYTES);
    }
    if (!good && session->why[0] == '\0')
        text_format(session->why, sizeof session->why, "its label cannot be read");
    if (good) {
        free(bytes);
        free(op);
        return true;
    }
    /* The session may still fill them until it has ended: the caller ends it next. */
    session->driver->end(session, true);
    free(bytes);
    free(op);
    return false;
}

static bool facts_good(struct remote_session *session)
{
    const struct blk_info *info = &session->facts.info;
    if (info->logical_block < REMOTE_BLOCK_MIN || info->logical_block > PAGE_BYTES ||
        !is_power_of_two(info->logical_block))
        text_format(session->why, sizeof session->why, "blocks of %u bytes are not supported", info->logical_block);
    else if (info->size == 0)
        text_format(session->why, sizeof session->why, "it is empty");
    else
        return true;
    return false;
}

static void settle_facts(struct remote_facts *facts)
{
    struct blk_info *info = &facts->info;
    facts->transfer_max = round_down(MIN(facts->transfer_max, REMOTE_TRANSFER_MAX), PAGE_BYTES);
    facts->transfer_max = MAX(facts->transfer_max, (uint64_t)PAGE_BYTES);
    facts->zero_max = round_down(MIN(facts->zero_max, REMOTE_ZERO_MAX), info->logical_block);
    facts->discard_max = round_down(MIN(facts->discard_max, REMOTE_ZERO_MAX), info->logical_block);
    info->physical_block = MAX(info->physical_block, info->logical_block);
    info->size = round_down(info->size, info->logical_block);
    info->discards = !info->read_only && facts->discard_max != 0;
}

struct remote_session *remote_connect(const char *uri, bool member, struct remote_canary *canaries, char *why,
                                      size_t why_len)
{
    const struct remote_driver *driver = remote_uri_is_iscsi(uri) ? &remote_iscsi : &remote_nbd;
    uint64_t until_ms = clock_ms() + CONNECT_MS;
    if (!remote_uri_check(uri, why, why_len))
        return NULL;
    struct remote_session *session = driver->begin(uri, member, why, why_len);
    bool good = session != NULL;
    while (good && !session->ready)
        good = pump(session, until_ms);
    good = good && facts_good(session);
    if (good)
        settle_facts(&session->facts);
    for (unsigned i = 0; good && canaries != NULL && i < REMOTE_CANARIES; i++)
        if (canaries[i].known && !read_canary(session, i, &canaries[i], until_ms)) {
            text_format(why, why_len, "its label cannot be read again");
            return NULL;
        }
    if (good)
        return session;
    if (session != NULL) {
        text_format(why, why_len, "%s", session->why);
        driver->end(session, true);
    }
    return NULL;
}

/* --- a look at a disk without a device --- */

struct window {
    struct remote_op op;
    uint8_t *bytes, *ours; /* REMOTE_TRANSFER_MAX each: the disk's, and what stands in the file */
    int fd;
};

static bool window_op(struct remote_session *session, struct window *window, enum blk_op code, uint64_t off,
                      uint64_t len)
{
    struct remote_op *op = &window->op;
    op->op = code;
    op->off = off;
    op->len = len;
    op->iov[0] = (struct iovec){code == BLK_WRITE ? window->ours : window->bytes, len};
    op->iov_count = len > 0;
    return do_op(session, op, clock_ms() + CONNECT_MS);
}

typedef bool (*window_step)(struct remote_session *, struct window *, uint64_t off, uint64_t len);

static bool window_walk(struct remote_session *session, struct window *window, window_step step, uint64_t off,
                        uint64_t end)
{
    bool good = true;
    for (uint64_t len; good && off < end; off += len) {
        len = MIN(session->facts.transfer_max, end - off);
        good = step(session, window, off, len);
    }
    return good;
}

static bool window_copy(struct remote_session *session, struct window *window, uint64_t off, uint64_t len)
{
    return window_op(session, window, BLK_READ, off, len) &&
           pwrite(window->fd, window->bytes, len, (off_t)off) == (ssize_t)len;
}

static bool window_fill(struct remote_session *session, struct window *window)
{
    uint64_t size = session->facts.info.size;
    return ftruncate(window->fd, (off_t)size) == 0 &&
           window_walk(session, window, window_copy, 0, MIN(size, WINDOW_HEAD)) &&
           window_walk(session, window, window_copy, size - MIN(size, WINDOW_TAIL), size);
}

static bool window_put(struct remote_session *session, struct window *window, uint64_t off, uint64_t len)
{
    return pread(window->fd, window->ours, len, (off_t)off) == (ssize_t)len &&
           window_op(session, window, BLK_READ, off, len) &&
           (memcmp(window->ours, window->bytes, len) == 0 || window_op(session, window, BLK_WRITE, off, len));
}

/* What was never copied or written is a hole of the file. */
static bool window_put_all(struct remote_session *session, struct window *window)
{
    off_t size = (off_t)session->facts.info.size, from = 0, to = 0;
    bool good = true;
    while (good && (from = lseek(window->fd, to, SEEK_DATA)) >= 0 && from < size) {
        to = MIN(lseek(window->fd, from, SEEK_HOLE), size);
        good = window_walk(session, window, window_put, (uint64_t)from, (uint64_t)to);
    }
    return good && window_op(session, window, BLK_FLUSH, 0, 0);
}

static bool window_use(const char *uri, int fd, bool (*use)(struct remote_session *, struct window *))
{
    char why[200];
    struct window *window = calloc(1, sizeof *window);
    struct remote_session *session = remote_connect(uri, false, NULL, why, sizeof why);
    ASSERT(window != NULL);
    window->bytes = aligned_alloc(PAGE_BYTES, REMOTE_TRANSFER_MAX);
    window->ours = aligned_alloc(PAGE_BYTES, REMOTE_TRANSFER_MAX);
    window->fd = fd;
    bool good = session != NULL && window->bytes != NULL && window->ours != NULL && fd >= 0 && use(session, window);
    if (session != NULL)
        session->driver->end(session, !good); /* before the memory, which it may still fill */
    free(window->bytes);
    free(window->ours);
    free(window);
    errno = EIO;
    return good;
}

int remote_window(const char *uri)
{
    int fd = memfd_create("corbel-window", MFD_CLOEXEC);
    if (window_use(uri, fd, window_fill))
        return fd;
    if (fd >= 0)
        close(fd);
    errno = EIO;
    return -1;
}

bool remote_window_store(const char *uri, int fd)
{
    return window_use(uri, fd, window_put_all);
}

bool remote_knock(const char *uri)
{
    char why[200];
    struct remote_session *session = remote_connect(uri, false, NULL, why, sizeof why);
    if (session != NULL)
        session->driver->end(session, false);
    return session != NULL;
}
