/*
 * The order of writes on one device, where the device promises none (core/blkdev.h, 4).
 *
 *   successor   A client that lost its connection sends again, on another one, what was not answered, and goes on. What
 *               the old connection still has at the device must not land after it. So a write waits for those that it
 *               overlaps, were sent on another connection, and either that one is ending or gone, or they came so
 *               long ago that their client may have given them up though we did not hear of it yet.
 *   ragged      A write that is not of whole blocks reads the blocks at its ends and writes them back (ragged.c). It
 *               and any other write that touches one of those blocks, of whichever connection, go one after the other.
 *
 * All else goes to the device at once: the order of overlapping writes of one client is the client's affair. Who waits
 * is served in order of arrival. What waits when its connection is cut never happens.
 *
 * What a disk beneath was given up on (BLK_TIMEOUT) may still land on that disk; that it does no harm there is for the
 * array to see to (raid/patience.h, T1).
 *
 * On the device's loop. One for all exports of a device.
 */
#ifndef TARGET_NBD_TURNS_H
#define TARGET_NBD_TURNS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct blkdev;
struct nbd_conn;
struct nbd_request;

TAILQ_HEAD(nbd_turn_list, nbd_request);

struct nbd_turns {
    STAILQ_ENTRY(nbd_turns) link; /* the server's */
    const struct blkdev *dev;
    struct nbd_turn_list writes, waiting; /* at the device, the oldest first; not yet there */
    uint32_t unusual; /* of both: ragged ones, those of connections that end, and all that wait or waited */
};

/* Of a request: it is ours. */
struct nbd_turn {
    TAILQ_ENTRY(nbd_request) link;
    uint64_t came_ns;
    bool is_listed, is_waiting, has_waited;
    bool is_ragged, is_of_ended;
};

void nbd_turns_init(struct nbd_turns *turns, const struct blkdev *dev);
/* May this write go to the device now? If not, nbd_request_start() will be called when it may. */
bool nbd_turn_take(struct nbd_request *request, bool is_ragged);
/* It is over. */
void nbd_turn_over(struct nbd_request *request);
/* The connection will send nothing more; and: it is cut, what waits is to be forgotten. */
void nbd_turns_conn_ends(struct nbd_conn *conn);
void nbd_turns_conn_cut(struct nbd_conn *conn);

#endif
