/*
 * The NBD target: exports, and connections that serve them.
 *
 * nbd_conn_open() takes over a stream: handshake, options, then transmission on the export the client chose. Before
 * transmission the connection moves to the export's loop. The connection frees itself when the stream ends; the server
 * counts it and is told.
 *
 * An nbd_server and its table of exports live on one loop, where streams arrive and negotiate. An export's device may
 * be on another one.
 */
#ifndef TARGET_NBD_NBD_H
#define TARGET_NBD_NBD_H

#include "core/blkdev.h"
#include "core/io_stats.h"
#include "core/stream.h"

enum { NBD_NAME_MAX = 4096, NBD_PAYLOAD_MAX = 32 << 20 };

struct nbd_server;

/*
 * Of a listener: no TLS; as the client likes; nothing but STARTTLS before it. Of an export: never over TLS; as the
 * listener says; over TLS only.
 */
enum nbd_tls { NBD_TLS_OFF, NBD_TLS_ALLOW, NBD_TLS_REQUIRE };

/* A rule of an access list: see target/nbd/access.h. */
struct nbd_rule {
    const char *name; /* for the log */
    const char *const
        *clients; /* patterns of what a client proves: "cn:*.example.org", "psk:host"; none: need prove nothing */
    unsigned client_count;
    const char *const *addresses; /* "192.0.2.0/24", "2001:db8::1"; none: anywhere */
    unsigned address_count;
    bool read_only;
};

struct nbd_access_options {
    enum nbd_tls tls;
    uint32_t connections;         /* at once; 0: as many as the server takes */
    const struct nbd_rule *rules; /* NULL: everybody may. Copied, as is everything here */
    unsigned rule_count;
};
struct nbd_export_options {
    const char *name;                        /* "" is the default export */
    const char *description;                 /* may be NULL */
    struct blkdev *dev;                      /* lent */
    bool read_only, hidden;                  /* hidden: not listed */
    const struct nbd_access_options *access; /* NULL: everybody may, with TLS or without */
};

struct nbd_limits {              /* 0: the default */
    uint32_t connections;        /* in transmission at once; further ones are refused; 1024 */
    uint32_t half_open;          /* besides them, in negotiation; further ones are closed; 512 */
    uint32_t half_open_per_host; /* of these, from one address; 128 */
    uint32_t requests;           /* in flight a connection; 128 */
    uint64_t negotiation_ns;     /* time from connect to transmission; 10 s */
};

struct nbd_server *nbd_server_create(struct loop *loop, const struct nbd_limits *limits);
/* Closes nothing: only when no connection is left (nbd_server_drain). */
void nbd_server_destroy(struct nbd_server *server);
/* 0, -EEXIST, -ENOMEM; -EINVAL: a text longer than NBD_NAME_MAX, rules that are none, a device that takes less than a
 * page at once, or whose loop has hardly any pages. An export stays until it is removed, or the server
 * is destroyed. */
int nbd_server_add_export(struct nbd_server *server, const struct nbd_export_options *options);

/* For STARTTLS from now on; lent. NULL, as at first: it is refused. */
void nbd_server_set_credentials(struct nbd_server *server, struct stream_credentials *credentials);

/* "*", or a kind that stream_proof knows, a colon, and something. */
bool nbd_client_pattern_valid(const char *pattern);

/*
 * Who may use an export from now on. Connections that may no more, or may only read now
 * and wrote before, or the other way round, are asked to end and cut after grace_ns. 0, -ENOENT, -EINVAL, -ENOMEM.
 */
int nbd_server_set_access(struct nbd_server *server, const char *name, const struct nbd_access_options *options,
                          uint64_t grace_ns);

/*
 * From now on there is no such export; its connections are asked to end, and cut after grace_ns. `removed` runs on the
 * server's loop when the last is gone: then the device is lent no more. 0, -ENOENT.
 */
int nbd_server_remove_export(struct nbd_server *server, const char *name, uint64_t grace_ns, struct task *removed);

/* A stream that arrived at a listener with this mode of TLS. */
void nbd_conn_open(struct nbd_server *server, struct stream *stream, enum nbd_tls tls);

/*
 * Stop: connections in negotiation end now, those in transmission finish what they have received and end; after
 * `grace_ns` the rest is cut. `drained` runs on the server's loop when none is left. Works across loops.
 */
void nbd_server_drain(struct nbd_server *server, uint64_t grace_ns, struct task *drained);
uint32_t nbd_server_connections(const struct nbd_server *server);

/* Have one connection end, as drain does all, and cut it after grace_ns. False: there is none of this id. */
bool nbd_server_drop(struct nbd_server *server, uint32_t id, uint64_t grace_ns);

/* What status shows of a connection. */
struct nbd_conn_info {
    uint32_t id;      /* since the server was created no other had it */
    uint64_t since_s; /* wall clock */
    char peer[64];
    char export_name[64];
    char phase[24];
    char tls[64];     /* "": none */
    char client[128]; /* the first name that it has proved to have; "": none */
    struct io_stats io;
};
/* Fill up to `max`; returns how many connections there are. On the server's loop; counters of others may lag. */
uint32_t nbd_server_info(const struct nbd_server *server, struct nbd_conn_info *out, uint32_t max);

#endif
