/*
 * Sessions with NBD servers, by libnbd: see daemon/remote.h.
 *
 * One handle is one connection. libnbd runs its own state machine; we call it when its descriptor is ready, and its
 * callbacks only put what is over into a list, since they run with the handle locked. Data goes between the socket and
 * the op's memory without a copy; libnbd takes one run of memory only. It allocates a few bytes for each command.
 *
 * An export without flush is refused for writing: nothing could be made durable there. ESHUTDOWN is the server's word
 * that it does nothing more: the session is lost, whatever else it answers.
 */
#include <errno.h>
#include <libnbd.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/disk_internal.h"
#include "daemon/remote.h"
#include "daemon/remote_uri.h"

enum { TURNS = 64 /* answers taken at once */ };

struct nbd_session {
    struct remote_session session;
    struct nbd_handle *nbd;
    char identity[SB_IDENTITY_SIZE];
    bool tuned, ending, broken;
};

static struct nbd_session *nbd_of(struct remote_session *session)
{
    return container_of(session, struct nbd_session, session);
}

/* --- the beginning --- */

static bool set_up(struct nbd_handle *nbd)
{
    return nbd_set_uri_allow_transports(nbd, LIBNBD_ALLOW_TRANSPORT_TCP | LIBNBD_ALLOW_TRANSPORT_UNIX) == 0 &&
           nbd_set_uri_allow_local_file(nbd, true) == 0 && nbd_set_pread_initialize(nbd, false) == 0;
}

/* libnbd begins with the name of its function. */
static const char *reason(void)
{
    const char *error = nbd_get_error(), *colon;
    if (error == NULL)
        return "the connection was lost";
    colon = strstr(error, ": ");
    return strncmp(error, "nbd_", 4) == 0 && colon != NULL ? colon + 2 : error;
}

static struct remote_session *nbd_begin(const char *uri, bool member, char *why, size_t why_len)
{
    struct nbd_session *s = calloc(1, sizeof *s);
    struct nbd_handle *nbd = nbd_create();
    (void)member;
    if (s == NULL || nbd == NULL) {
        text_format(why, why_len, "out of memory");
    } else if (!set_up(nbd) || nbd_aio_connect_uri(nbd, uri) != 0) {
        text_format(why, why_len, "%s", reason());
    } else {
        s->session.driver = &remote_nbd;
        s->nbd = nbd;
        TAILQ_INIT(&s->session.answered);
        remote_uri_identity(uri, s->identity, sizeof s->identity);
        return &s->session;
    }
    nbd_close(nbd);
    free(s);
    return NULL;
}

/* False: what is served is no disk for us. */
static bool learn(struct nbd_session *s)
{
    struct nbd_handle *nbd = s->nbd;
    struct remote_facts *facts = &s->session.facts;
    int64_t size = nbd_get_size(nbd), least = nbd_get_block_size(nbd, LIBNBD_SIZE_MINIMUM),
            preferred = nbd_get_block_size(nbd, LIBNBD_SIZE_PREFERRED),
            most = nbd_get_block_size(nbd, LIBNBD_SIZE_MAXIMUM);
    bool read_only = nbd_is_read_only(nbd) != 0;
    facts->info = (struct blk_info){.size = size > 0 ? (uint64_t)size : 0,
                                    .logical_block = (uint32_t)MAX(least, REMOTE_BLOCK_MIN),
                                    .physical_block = (uint32_t)MIN(MAX(preferred, 0), PAGE_BYTES),
                                    .rotational = nbd_is_rotational(nbd) == 1,
                                    .volatile_cache = true,
                                    .read_only = read_only};
    if (!is_power_of_two(facts->info.physical_block))
        facts->info.physical_block = PAGE_BYTES;
    facts->transfer_max = most > 0 ? (uint64_t)most : REMOTE_TRANSFER_MAX;
    facts->zero_max = nbd_can_zero(nbd) == 1 ? REMOTE_ZERO_MAX : 0;
    facts->discard_max = nbd_can_trim(nbd) == 1 ? REMOTE_ZERO_MAX : 0;
    facts->fua = facts->zero_fua = nbd_can_fua(nbd) == 1;
    text_format(facts->identity, sizeof facts->identity, "%s", s->identity);
    if (read_only || nbd_can_flush(nbd) == 1)
        return true;
    text_format(s->session.why, sizeof s->session.why,
                "the server offers no flush: nothing could be made durable there");
    return false;
}

/* --- going on --- */

static int nbd_fd(struct remote_session *session)
{
    return nbd_aio_get_fd(nbd_of(session)->nbd);
}

static short nbd_events(struct remote_session *session)
{
    unsigned direction = nbd_aio_get_direction(nbd_of(session)->nbd);
    return (short)((direction & LIBNBD_AIO_DIRECTION_READ ? POLLIN : 0) |
                   (direction & LIBNBD_AIO_DIRECTION_WRITE ? POLLOUT : 0));
}

static bool break_up(struct nbd_session *s, const char *why)
{
    s->broken = true;
    if (s->session.why[0] == '\0')
        text_format(s->session.why, sizeof s->session.why, "%s", why);
    return false;
}

static bool is_up(struct nbd_session *s)
{
    if (nbd_aio_is_dead(s->nbd) == 1)
        return break_up(s, reason());
    if (nbd_aio_is_closed(s->nbd) == 1)
        return break_up(s, "the server closed the connection");
    return !s->broken;
}

/* nbd_poll() looks at the descriptor, and at what TLS has taken from it already. */
static bool nbd_service(struct remote_session *session, short revents)
{
    struct nbd_session *s = nbd_of(session);
    int n = 1;
    (void)revents;
    for (unsigned i = 0; i < TURNS && n > 0 && is_up(s); i++)
        n = nbd_poll(s->nbd, 0);
    if (n < 0)
        return break_up(s, reason());
    if (!is_up(s))
        return false;
    if (session->ready || nbd_aio_is_ready(s->nbd) != 1)
        return true;
    remote_tune(nbd_fd(session));
    session->ready = true;
    return learn(s);
}

/* Runs within libnbd: the handle is locked. 1: it may forget the command. */
static int over(void *data, int *error)
{
    struct remote_op *op = data;
    struct nbd_session *s = nbd_of(op->session);
    if (s->ending)
        return 1;
    if (*error == ENOTCONN || *error == ESHUTDOWN)
        break_up(s, *error == ESHUTDOWN ? "the server is shutting down" : "the connection was lost");
    else
        remote_answer(op, *error == 0 ? BLK_OK : disk_status(op->op, *error));
    return 1;
}

static bool nbd_issue(struct remote_session *session, struct remote_op *op)
{
    struct nbd_session *s = nbd_of(session);
    nbd_completion_callback done = {.callback = over, .user_data = op};
    uint32_t fua = op->flags & BLK_FUA && session->facts.fua ? LIBNBD_CMD_FLAG_FUA : 0;
    int64_t cookie = -1;
    ASSERT(!blk_op_has_data(op->op) || op->iov_count == 1);
    op->session = session;
    switch (op->op) {
    case BLK_READ:
        cookie = nbd_aio_pread(s->nbd, op->iov[0].iov_base, op->len, op->off, done, 0);
        break;
    case BLK_WRITE:
        cookie = nbd_aio_pwrite(s->nbd, op->iov[0].iov_base, op->len, op->off, done, fua);
        break;
    case BLK_FLUSH:
        cookie = nbd_aio_flush(s->nbd, done, 0);
        break;
    case BLK_DISCARD:
        cookie = nbd_aio_trim(s->nbd, op->len, op->off, done, 0);
        break;
    case BLK_WRITE_ZEROES:
        cookie = nbd_aio_zero(s->nbd, op->len, op->off, done,
                              fua | (op->flags & BLK_NO_UNMAP ? LIBNBD_CMD_FLAG_NO_HOLE : 0));
        break;
    case BLK_STATUS:
        UNREACHABLE("answered above");
    }
    return cookie >= 0 ? is_up(s) : break_up(s, reason());
}

static void nbd_end(struct remote_session *session, bool broken)
{
    struct nbd_session *s = nbd_of(session);
    s->ending = true;
    if (broken)
        remote_reset(nbd_aio_get_fd(s->nbd));
    else if (nbd_aio_is_ready(s->nbd) == 1)
        nbd_aio_disconnect(s->nbd, 0);
    nbd_close(s->nbd);
    free(s);
}

const struct remote_driver remote_nbd = {.kind = "nbd",
                                         .one_run = true,
                                         .begin = nbd_begin,
                                         .fd = nbd_fd,
                                         .events = nbd_events,
                                         .service = nbd_service,
                                         .issue = nbd_issue,
                                         .end = nbd_end};
