/*
 * Inside the NBD target: the server's table of exports and its list of connections.
 *
 * Exports are constant once added, and one that is removed stays in memory until no connection has it, so that a
 * connection on another loop may hold a pointer to its export. The list of connections belongs to the server's loop; a
 * connection elsewhere speaks with the server by loop_call() only (server.c tells how).
 */
#ifndef TARGET_NBD_SERVER_H
#define TARGET_NBD_SERVER_H

#include <sys/queue.h>

#include "target/nbd/access.h"
#include "target/nbd/protocol.h"

struct nbd_conn;
struct nbd_turns;

struct nbd_export {
    STAILQ_ENTRY(nbd_export) link;
    struct blkdev *dev;
    struct nbd_turns *turns; /* of the device, on its loop */
    bool read_only, hidden;
    char *name, *description; /* description: "" if there is none */
    struct nbd_export *twin; /* the same, read-only, for clients who may not write; of a twin: what it is the twin of */
    bool is_twin;

    /* On the server's loop only, and not of a twin. */
    struct nbd_access *access; /* NULL: everybody */
    enum nbd_tls tls;
    uint32_t connections_max; /* 0: no limit of its own */
    struct task *removed;     /* it leaves: to be run when no connection has it any more */
};

struct nbd_server {
    struct loop *loop;
    struct nbd_limits limits;
    STAILQ_HEAD(nbd_export_list, nbd_export) exports, leaving;
    STAILQ_HEAD(, nbd_turns) turns; /* one a device */
    TAILQ_HEAD(nbd_conn_list, nbd_conn) connections;
    uint32_t connection_count, last_id;
    struct stream_credentials *credentials; /* lent; NULL: no TLS */
    struct refusals refusals;

    bool draining;
    struct timer grace;
    struct task *drained; /* NULL once it was run */
};

/* NULL if there is none of that name. What a client may see of it: nbd_access_find(). */
const struct nbd_export *nbd_export_find(const struct nbd_server *server, const char *name, uint32_t name_len);

/* What a client is told about an export. */
uint16_t nbd_export_flags(const struct nbd_export *export, enum nbd_mode mode);
uint32_t nbd_export_preferred(const struct nbd_export *export);
uint32_t nbd_export_payload_max(const struct nbd_export *export);

/* Is there room for one more in transmission on this export? NULL, or why not. On the server's loop. */
const char *nbd_server_full(const struct nbd_server *server, const struct nbd_export *export);

/* For connections, on their own loop: nothing of this connection moves any more. The server frees it. */
void nbd_server_conn_over(struct nbd_conn *conn);

#endif
