/* See daemon/ring.h. The number of operations in flight is bounded by the submission queue, half the completion queue.
 */
#include "daemon/ring.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>

#include "core/check.h"

enum {
    RING_IOVECS = 16384,    /* 256 KiB: a turn's worth */
    RING_IOVECS_LEAST = 16, /* with fewer left an operation waits for the next turn rather than be cut to crumbs */
    RING_REAP_BATCH = 64,
};

struct ring {
    struct io_uring uring;
    unsigned entries, in_flight;
    STAILQ_HEAD(, ring_op) waiting;
    int iovecs_used;
    struct iovec iovecs[RING_IOVECS];
};

struct ring *ring_create(unsigned entries, int *error)
{
    struct ring *ring = malloc(sizeof *ring);
    if (ring == NULL) {
        *error = ENOMEM;
        return NULL;
    }
    *error = -io_uring_queue_init(entries, &ring->uring, 0);
    if (*error != 0) {
        free(ring);
        return NULL;
    }
    if ((ring->uring.features & IORING_FEAT_SUBMIT_STABLE) == 0) {
        io_uring_queue_exit(&ring->uring);
        free(ring);
        *error = ENOSYS;
        return NULL;
    }
    ring->entries = ring->uring.sq.ring_entries;
    ring->in_flight = 0;
    ring->iovecs_used = 0;
    STAILQ_INIT(&ring->waiting);
    return ring;
}

void ring_destroy(struct ring *ring)
{
    ASSERT(ring_is_idle(ring));
    io_uring_queue_exit(&ring->uring);
    free(ring);
}

int ring_fd(const struct ring *ring)
{
    return ring->uring.ring_fd;
}

static bool has_room(const struct ring *ring)
{
    return ring->in_flight < ring->entries && ring->iovecs_used <= RING_IOVECS - RING_IOVECS_LEAST;
}

static void start(struct ring *ring, struct ring_op *op)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);
    ASSERT(sqe != NULL); /* in_flight < entries */
    op->prepare(op, ring, sqe);
    io_uring_sqe_set_data(sqe, op);
    ring->in_flight++;
}

void ring_issue(struct ring *ring, struct ring_op *op)
{
    if (STAILQ_EMPTY(&ring->waiting) && has_room(ring))
        start(ring, op);
    else
        STAILQ_INSERT_TAIL(&ring->waiting, op, link);
}

struct iovec *ring_iovecs(struct ring *ring, int *room)
{
    *room = RING_IOVECS - ring->iovecs_used;
    return ring->iovecs + ring->iovecs_used;
}

void ring_iovecs_used(struct ring *ring, int count)
{
    ASSERT(count >= 0 && count <= RING_IOVECS - ring->iovecs_used);
    ring->iovecs_used += count;
}

void ring_reap(struct ring *ring)
{
    struct io_uring_cqe *cqes[RING_REAP_BATCH];
    unsigned count;
    while ((count = io_uring_peek_batch_cqe(&ring->uring, cqes, RING_REAP_BATCH)) > 0) {
        for (unsigned i = 0; i < count; i++) {
            struct ring_op *op = io_uring_cqe_get_data(cqes[i]);
            ASSERT(ring->in_flight > 0);
            ring->in_flight--;
            op->complete(op, cqes[i]->res);
        }
        io_uring_cq_advance(&ring->uring, count);
    }
}

static void start_waiting(struct ring *ring)
{
    struct ring_op *op;
    while ((op = STAILQ_FIRST(&ring->waiting)) != NULL && has_room(ring)) {
        STAILQ_REMOVE_HEAD(&ring->waiting, link);
        start(ring, op);
    }
}

/* What the kernel does not take now (no memory for it) is offered again in the next turn. */
void ring_submit(struct ring *ring)
{
    start_waiting(ring);
    if (io_uring_sq_ready(&ring->uring) > 0) {
        int taken = io_uring_submit(&ring->uring);
        ASSERT(taken >= 0 || taken == -EAGAIN || taken == -EBUSY || taken == -EINTR || taken == -ENOMEM);
    }
    if (io_uring_sq_ready(&ring->uring) == 0)
        ring->iovecs_used = 0;
}

bool ring_is_ready(const struct ring *ring)
{
    return io_uring_cq_ready(&ring->uring) > 0 || io_uring_sq_ready(&ring->uring) > 0 ||
           (!STAILQ_EMPTY(&ring->waiting) && has_room(ring));
}

bool ring_is_idle(const struct ring *ring)
{
    return ring->in_flight == 0 && STAILQ_EMPTY(&ring->waiting);
}
