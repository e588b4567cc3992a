/*
 * One io_uring ring of a reactor: disk operations in, results out, one system call a turn.
 *
 * An operation is embedded in its owner. ring_issue() gives it a place in the submission queue, or a place in line
 * when as many operations are in flight as the ring has entries; so the queues of the kernel never overflow. When its
 * place comes `prepare` fills the entry; when the kernel is through `complete` gets the result (>= 0, or -errno) and
 * may issue the operation again.
 *
 * The kernel copies iovec arrays when an entry is submitted (IORING_FEAT_SUBMIT_STABLE, which ring_create() demands),
 * so they come from an arena that is empty again after every submission.
 *
 * The ring belongs to the reactor's thread. Default flags: with IORING_SETUP_DEFER_TASKRUN the ring's descriptor did
 * not become readable for O_DIRECT reads, and the loop slept for ever.
 */
#ifndef DAEMON_RING_H
#define DAEMON_RING_H

#include <stdbool.h>
#include <sys/queue.h>
#include <sys/uio.h>

struct io_uring_sqe;
struct ring;

struct ring_op {
    STAILQ_ENTRY(ring_op) link;
    void (*prepare)(struct ring_op *, struct ring *, struct io_uring_sqe *);
    void (*complete)(struct ring_op *, int result);
};

/* NULL and *error (an errno) if the kernel has none for us. */
struct ring *ring_create(unsigned entries, int *error);
/* Nothing may be in flight. */
void ring_destroy(struct ring *ring);
int ring_fd(const struct ring *ring);

void ring_issue(struct ring *ring, struct ring_op *op);

/* Within prepare(): room for at least 16 iovecs, and *room of them; then how many were used. */
struct iovec *ring_iovecs(struct ring *ring, int *room);
void ring_iovecs_used(struct ring *ring, int count);

/* The reactor's turn. */
void ring_reap(struct ring *ring);
void ring_submit(struct ring *ring);
bool ring_is_ready(const struct ring *ring); /* there is something to reap or to submit: do not sleep */
bool ring_is_idle(const struct ring *ring);  /* nothing in flight, nobody in line */

#endif
