/*
 * Inside the NBD target: the server's table of exports and its list of connections.
 *
 * Exports are only ever added, and constant once added, so that a connection on another loop may hold a pointer to
 * its export. The list of connections belongs to the server's loop; a connection elsewhere speaks with the server by
 * loop_call() only (server.c tells how).
 */
#ifndef TARGET_NBD_SERVER_H
#define TARGET_NBD_SERVER_H

#include <sys/queue.h>

#include "target/nbd/nbd.h"
#include "target/nbd/protocol.h"

struct nbd_conn;

struct nbd_export {
    STAILQ_ENTRY(nbd_export) link;
    struct blkdev *dev;
    bool read_only, hidden;
    char *name, *description; /* description: "" if there is none */
};

struct nbd_server {
    struct loop *loop;
    struct nbd_limits limits;
    STAILQ_HEAD(, nbd_export) exports;
    TAILQ_HEAD(nbd_conn_list, nbd_conn) connections;
    uint32_t connection_count, last_id;

    bool draining;
    struct timer grace;
    struct task *drained; /* NULL once it was run */
};

/* NULL if there is none of that name. */
const struct nbd_export *nbd_export_find(const struct nbd_server *server, const char *name, uint32_t name_len);

/* What a client is told about an export. */
uint16_t nbd_export_flags(const struct nbd_export *export, enum nbd_mode mode);
uint32_t nbd_export_preferred(const struct nbd_export *export);
uint32_t nbd_export_payload_max(const struct nbd_export *export);

/* For connections, on their own loop: nothing of this connection moves any more. The server frees it. */
void nbd_server_conn_over(struct nbd_conn *conn);

#endif
