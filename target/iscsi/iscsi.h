/*
 * The iSCSI target (RFC 7143): portals, targets, sessions.
 *
 * iscsi_conn_open() takes over a stream that arrived at a portal: login, then discovery or a normal session. When login
 * has named a target the connection moves to that target's loop and stays there; a target, its LUs and all its sessions
 * have one owner. The connection frees itself when the stream ends.
 */
#ifndef TARGET_ISCSI_ISCSI_H
#define TARGET_ISCSI_ISCSI_H

#include "core/io_stats.h"
#include "core/stream.h"
#include "target/scsi/scsi.h"

enum { ISCSI_NAME_MAX = 223 };

struct iscsi_server; /* all targets; lives on the loop where streams arrive */

struct iscsi_limits {
    uint32_t connections; /* sessions at once */
    uint32_t half_open,
        half_open_per_host; /* connections besides them whose login is not over: of all, of one address */
    uint32_t commands;      /* window: commands in flight a session (MaxCmdSN) */
    uint64_t login_ns;      /* time from connect to full feature phase */
    uint64_t nop_interval_ns, nop_timeout_ns; /* silence before a ping; time for its answer. 0: none */
};

struct iscsi_server *iscsi_server_create(struct loop *loop, const struct iscsi_limits *limits);
void iscsi_server_destroy(struct iscsi_server *server);

/*
 * An address initiators can reach targets at, for SendTargets: "192.0.2.1:3260", "[2001:db8::1]:3260"; `group` is its
 * portal group's tag. A stream's own local address comes first; this list is what else is told. Loopback addresses are
 * told to those only who came by one. Once is enough: 0, -EINVAL, -ENOMEM.
 */
enum { ISCSI_GROUP_DEFAULT = 1, ISCSI_GROUPS_MAX = 8 };
int iscsi_server_add_portal(struct iscsi_server *server, uint16_t group, const char *address);
/* The target is lent; its loop is where its sessions live. 0, -EEXIST, -EINVAL (bad iqn/eui/naa name), -ENOMEM. */
int iscsi_server_add_target(struct iscsi_server *server, struct scsi_target *target, struct loop *loop,
                            const char *name, const char *alias);

/* A rule of an access list: see target/iscsi/access.h. */
struct iscsi_rule {
    const char *name;              /* for the log */
    const char *const *initiators; /* patterns of initiator names; none: any name */
    unsigned initiator_count;
    const char *const *addresses; /* "192.0.2.0/24", "2001:db8::1"; none: anywhere */
    unsigned address_count;
    const char *user, *secret;               /* it must authenticate itself as this; NULL: it need not */
    const char *target_user, *target_secret; /* we, when we are asked to; NULL: we cannot */
    const struct scsi_view *view;            /* what it sees; NULL: all. Copied, as is everything here */
};
/*
 * Who may use a target, or (`target` NULL) discover: those for whom a rule speaks; `rules` NULL: everybody. Sessions
 * for which the new list says something else end. `new_secrets` (may be NULL): a rule that was there before has other
 * secrets. 0, -ENOENT, -EINVAL (an address), -ENOMEM.
 */
int iscsi_server_set_access(struct iscsi_server *server, const char *target, const struct iscsi_rule *rules,
                            unsigned count, bool *new_secrets);
/*
 * Which portal groups a target is served at; `count` 0, as at first: at all. 0, -ENOENT, -EINVAL, -EBUSY (it has
 * sessions).
 */
int iscsi_server_set_groups(struct iscsi_server *server, const char *target, const uint16_t *groups, unsigned count);
/*
 * Logins are sent elsewhere ("192.0.2.1:3260", "[2001:db8::1]:3260", for good or for now); address "": they are not.
 * Sessions go on, and who came by that very address stays. 0, -ENOENT, -EINVAL.
 */
int iscsi_server_set_redirect(struct iscsi_server *server, const char *target, const char *address, bool permanent);
/*
 * From now on there is no such target; its sessions are asked to log out, and cut after grace_ns. `removed` runs on the
 * server's loop when the last is gone: then scsi_target is lent no more. 0, -ENOENT.
 */
int iscsi_server_remove_target(struct iscsi_server *server, const char *target, uint64_t grace_ns,
                               struct task *removed);
/* A stream that arrived at a portal of this group. */
void iscsi_conn_open(struct iscsi_server *server, struct stream *stream, uint16_t group);

/* As nbd_server_drain: asynchronous logout request first, then finish, then cut. */
void iscsi_server_drain(struct iscsi_server *server, uint64_t grace_ns, struct task *drained);
uint32_t iscsi_server_connections(const struct iscsi_server *server);

/* Ask a session to end, as drain does all, and cut it after grace_ns. False: there is none of this id. */
bool iscsi_server_drop(struct iscsi_server *server, uint32_t id, uint64_t grace_ns);

struct iscsi_session_info {
    uint32_t id;      /* since the server was created no other had it */
    uint64_t since_s; /* wall clock; 0: its login is not over, or it is a discovery session */
    char initiator[ISCSI_NAME_MAX + 1], target[ISCSI_NAME_MAX + 1], peer[64];
    char phase[24];
    bool header_digest, data_digest;
    struct io_stats io; /* of all LUNs */
};
/* Of one LUN of a session, as its initiator calls it; ISCSI_LUN_NONE: commands to LUNs it had none of when it began. */
enum { ISCSI_LUN_NONE = 0xffff };
struct iscsi_lun_info {
    uint32_t session;
    uint16_t lun;
    struct io_stats io;
};
/* Both return how many there are and fill up to `max`; in the same order of sessions. On the server's loop. */
uint32_t iscsi_server_info(const struct iscsi_server *server, struct iscsi_session_info *out, uint32_t max);
uint32_t iscsi_server_lun_info(const struct iscsi_server *server, struct iscsi_lun_info *out, uint32_t max);

/* "iqn.yyyy-mm.reversed.domain[:anything]", "eui." + 16 hex digits, "naa." + 16 or 32: RFC 7143, 4.2.7. */
bool iscsi_name_valid(const char *name);

#endif
