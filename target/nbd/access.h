/*
 * Inside the NBD target: who may see and use which export.
 *
 * An export has a list of rules, or none. A rule speaks for a client whose address lies in one of its networks and that
 * has proved by TLS to be what one of its patterns says; the first that speaks counts. An export no rule of which
 * speaks for a client does not exist for it: it is not listed, and its name is unknown. A rule may give a client the
 * export read-only: it gets the export's twin.
 *
 * Whether TLS is needed is told (ERR_TLS_REQD) only to those whom a rule could speak for by their address.
 *
 * All of it on the server's loop. A list never changes; a new configuration makes a new one.
 */
#ifndef TARGET_NBD_ACCESS_H
#define TARGET_NBD_ACCESS_H

#include "target/nbd/nbd.h"
#include "target/refusals.h"

struct nbd_conn;
struct nbd_export;
struct nbd_access;

/* What is known of a client. */
struct nbd_client {
    enum nbd_tls tls; /* of the listener that it came by */
    bool secured;     /* by TLS; then `proof` says who it is */
    bool has_host;    /* an IP address */
    uint8_t host[16];
    struct stream_proof proof;
};

void nbd_client_init(struct nbd_client *client, const char *peer, enum nbd_tls tls);

bool nbd_rules_valid(const struct nbd_rule *rules, unsigned count);
/* NULL: a network or a pattern that is none, or no memory. */
struct nbd_access *nbd_access_create(const struct nbd_rule *rules, unsigned count);
void nbd_access_free(struct nbd_access *access); /* NULL: nothing is done */

/* The export as the client may have it, itself or its twin. NULL: *error is what to answer. */
const struct nbd_export *nbd_access_judge(const struct nbd_client *client, const struct nbd_export *export,
                                          uint32_t *error);
/* The same by name, for a connection; refusals are logged. */
const struct nbd_export *nbd_access_find(struct nbd_conn *conn, const char *name, uint32_t name_len, uint32_t *error);
/* For people: goes with the error. */
const char *nbd_access_text(uint32_t error);

/* Into the log: from where, who, to what, why. `object` "": none. */
void nbd_refusal(struct nbd_conn *conn, const char *object, const char *why);

#endif
