/*
 * The server: targets, portals, and where connections live.
 *
 * The server, its tables and its list of connections belong to the loop where streams arrive. A target's sessions
 * belong to the target's loop. The two meet only by stream_move() and loop_call():
 *
 *      server's loop                                target's loop
 *      connection_create, login begins
 *      server_find_target: the name is known
 *      stream_move  ------------------------------> arrived: login goes on, session begins
 *      order (drain, cut) ------------------------> connection_order
 *      order_back   <------------------------------
 *      gone: counted off and freed <--------------- server_gone: nothing left here
 *
 * An order's task travels there and back; a connection that is gone is freed only when no order is under way. Portals
 * are only ever added; a target that is removed stays until its last connection is freed: so what a connection holds of
 * them stays.
 *
 * A session is reinstated (6.3.5) when the same initiator name and ISID log in to the target again with TSIH 0: the old
 * connection is closed on the spot, its commands orphaned; nobody waits for the disk.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "target/iscsi/connection.h"

enum { DISCOVERY_COMMANDS = 4, PORT_NAME_MAX = ISCSI_NAME_MAX + 24 };

struct iscsi_server {
    struct loop *loop;
    struct iscsi_limits limits;
    TAILQ_HEAD(, iscsi_target) targets;
    TAILQ_HEAD(, connection) connections;
    uint32_t connection_count, last_id;
    uint16_t last_tsih; /* of discovery sessions */
    struct portal_list portals;
    TAILQ_HEAD(, iscsi_target) leaving; /* being removed: nobody finds them, their sessions are ending */
    bool draining;
    struct access_list *access; /* of discovery */
    struct refusals refusals;
    struct timer grace;
    struct task *drained;
};

/* --- names --- */

static bool name_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == ':' || (c & 0x80);
}

static bool hex_digits(const char *text, size_t count)
{
    return strlen(text) == count && strspn(text, "0123456789abcdefABCDEF") == count;
}

/* "yyyy-mm." and something behind it. */
static bool iqn_date(const char *text)
{
    for (unsigned i = 0; i < 8; i++) {
        bool good = i == 4 ? text[i] == '-' : i == 7 ? text[i] == '.' : text[i] >= '0' && text[i] <= '9';
        if (!good)
            return false;
    }
    unsigned month = (unsigned)(text[5] - '0') * 10 + (unsigned)(text[6] - '0');
    return month >= 1 && month <= 12 && text[8] != '\0' && text[8] != ':';
}

bool iscsi_name_valid(const char *name)
{
    if (strlen(name) > ISCSI_NAME_MAX)
        return false;
    for (const char *c = name; *c != '\0'; c++)
        if (!name_character(*c))
            return false;
    if (strncmp(name, "iqn.", 4) == 0)
        return iqn_date(name + 4);
    if (strncmp(name, "eui.", 4) == 0)
        return hex_digits(name + 4, 16);
    return strncmp(name, "naa.", 4) == 0 && (hex_digits(name + 4, 16) || hex_digits(name + 4, 32));
}

/* --- set-up --- */

static void grace_over(struct timer *timer);

static void target_free(struct iscsi_target *target)
{
    access_release(target->access);
    free(target);
}

struct iscsi_server *iscsi_server_create(struct loop *loop, const struct iscsi_limits *limits)
{
    struct iscsi_server *server = calloc(1, sizeof *server);
    if (server == NULL)
        return NULL;
    server->loop = loop;
    server->limits = *limits;
    server->grace.fire = grace_over;
    TAILQ_INIT(&server->targets);
    TAILQ_INIT(&server->leaving);
    TAILQ_INIT(&server->connections);
    return server;
}

void iscsi_server_destroy(struct iscsi_server *server)
{
    ASSERT(TAILQ_EMPTY(&server->connections) && TAILQ_EMPTY(&server->leaving));
    struct iscsi_target *target;
    while ((target = TAILQ_FIRST(&server->targets)) != NULL) {
        TAILQ_REMOVE(&server->targets, target, link);
        target_free(target);
    }
    access_release(server->access);
    timer_stop(server->loop, &server->grace);
    free(server);
}

int iscsi_server_add_portal(struct iscsi_server *server, uint16_t group, const char *address)
{
    if (address[0] == '\0' || strlen(address) >= ADDRESS_MAX || group == 0)
        return -EINVAL;
    return portal_list_add(&server->portals, group, address) ? 0 : -ENOMEM;
}

static struct iscsi_target *target_find(const struct iscsi_server *server, const char *name)
{
    struct iscsi_target *target;
    TAILQ_FOREACH(target, &server->targets, link)
    if (strcmp(target->name, name) == 0)
        return target;
    return NULL;
}

int iscsi_server_add_target(struct iscsi_server *server, struct scsi_target *scsi, struct loop *loop, const char *name,
                            const char *alias)
{
    if (!iscsi_name_valid(name) || (alias != NULL && strlen(alias) >= sizeof(((struct iscsi_target *)0)->alias)))
        return -EINVAL;
    if (target_find(server, name) != NULL)
        return -EEXIST;
    struct iscsi_target *target = calloc(1, sizeof *target);
    if (target == NULL)
        return -ENOMEM;
    target->scsi = scsi;
    target->loop = loop;
    text_format(target->name, sizeof target->name, "%s", name);
    text_format(target->alias, sizeof target->alias, "%s", alias != NULL ? alias : "");
    TAILQ_INIT(&target->sessions);
    TAILQ_INSERT_TAIL(&server->targets, target, link);
    return 0;
}

static bool has_connections(const struct iscsi_server *server, const struct iscsi_target *target)
{
    const struct connection *conn;
    TAILQ_FOREACH(conn, &server->connections, server_link)
    if (conn->target == target)
        return true;
    return false;
}

int iscsi_server_set_groups(struct iscsi_server *server, const char *name, const uint16_t *groups, unsigned count)
{
    struct iscsi_target *target = target_find(server, name);
    if (target == NULL)
        return -ENOENT;
    if (count > ISCSI_GROUPS_MAX)
        return -EINVAL;
    if (has_connections(server, target)) /* they read the groups, perhaps on another loop */
        return -EBUSY;
    for (unsigned i = 0; i < count; i++)
        target->groups[i] = groups[i];
    target->group_count = count;
    return 0;
}

int iscsi_server_set_redirect(struct iscsi_server *server, const char *name, const char *address, bool permanent)
{
    struct iscsi_target *target = target_find(server, name);
    if (target == NULL)
        return -ENOENT;
    if (strlen(address) >= sizeof target->redirect)
        return -EINVAL;
    text_format(target->redirect, sizeof target->redirect, "%s", address);
    target->redirect_permanent = permanent;
    return 0;
}

const struct iscsi_limits *server_limits(const struct connection *conn)
{
    return &conn->server->limits;
}

/* --- connections come and go --- */

static void order_there(struct task *task);
static void gone_back(struct task *task);
static void drop_late(struct timer *timer);
static void arrived(struct task *task);

/* Whoever does not get through the login takes no place from those who have. NULL: there is room for one more. */
static const char *half_open_full(const struct iscsi_server *server, const char *peer)
{
    uint32_t all = 0, same = 0;
    uint8_t host[16];
    bool known = match_host(peer, host);
    const struct connection *conn;
    TAILQ_FOREACH(conn, &server->connections, server_link)
    {
        if (__atomic_load_n(&conn->logged_in, __ATOMIC_RELAXED))
            continue;
        all++;
        same += known && memcmp(conn->host, host, sizeof host) == 0;
    }
    if (all >= server->limits.half_open)
        return "too many logins are under way";
    return same >= server->limits.half_open_per_host ? "too many logins of its address are under way" : NULL;
}

void iscsi_conn_open(struct iscsi_server *server, struct stream *stream, uint16_t group)
{
    const char *full = server->draining ? NULL : half_open_full(server, stream->peer);
    bool room = !server->draining && full == NULL;
    struct connection *conn = room ? connection_create(server, stream) : NULL;
    if (full != NULL)
        refusal_tell(&server->refusals, loop_now_ns(server->loop), "iSCSI", stream->peer, "", "", 0, full);
    if (conn == NULL) {
        stream_close(stream);
        return;
    }
    if (!match_host(conn->peer, conn->host))
        memset(conn->host, 0, sizeof conn->host);
    conn->id = ++server->last_id;
    conn->group = group;
    conn->drop.fire = drop_late;
    conn->order_task.run = order_there;
    conn->gone_task.run = gone_back;
    conn->arrived.run = arrived;
    server->connection_count++;
    TAILQ_INSERT_TAIL(&server->connections, conn, server_link);
    connection_start(conn);
}

static void drained_check(struct iscsi_server *server)
{
    if (!server->draining || server->drained == NULL || server->connection_count > 0)
        return;
    struct task *drained = server->drained;
    server->drained = NULL;
    timer_stop(server->loop, &server->grace);
    loop_defer(server->loop, drained);
}

/* The last session of a target that is being removed is gone. */
static void removed_check(struct iscsi_server *server, struct iscsi_target *target)
{
    if (has_connections(server, target))
        return;
    TAILQ_REMOVE(&server->leaving, target, link);
    loop_defer(server->loop, target->removed);
    target_free(target);
}

static void forget_if_over(struct connection *conn)
{
    struct iscsi_server *server = conn->server;
    struct iscsi_target *target = conn->target;
    if (!conn->gone || conn->order_under_way)
        return;
    TAILQ_REMOVE(&server->connections, conn, server_link);
    server->connection_count--;
    timer_stop(server->loop, &conn->drop);
    connection_free(conn);
    if (target != NULL && target->removed != NULL)
        removed_check(server, target);
    drained_check(server);
}

static void gone_back(struct task *task)
{
    struct connection *conn = container_of(task, struct connection, gone_task);
    conn->gone = true;
    forget_if_over(conn);
}

void server_gone(struct connection *conn)
{
    loop_call(conn->server->loop, &conn->gone_task);
}

/* --- login: from here to the target's loop --- */

static bool same_port(const struct connection *a, const struct connection *b)
{
    return strcmp(a->port.name, b->port.name) == 0 && memcmp(a->port.isid, b->port.isid, sizeof a->port.isid) == 0;
}

static void order_send(struct connection *conn, enum order order, uint64_t grace_ns);

/* 7.4.2: an unnamed discovery session replaces its like at the same portal only. */
static bool replaces(const struct connection *conn, const struct connection *other)
{
    bool same = other != conn && other->registered && other->target == conn->target && same_port(other, conn);
    return same && (conn->target != NULL || strcmp(other->local, conn->local) == 0);
}

/* Sessions but this one, and but those it will replace. Logins under way have a limit of their own. */
static uint32_t sessions_count(const struct connection *conn)
{
    uint32_t count = 0;
    const struct connection *other;
    TAILQ_FOREACH(other, &conn->server->connections, server_link)
    count += other != conn && __atomic_load_n(&other->logged_in, __ATOMIC_RELAXED) && !replaces(conn, other);
    return count;
}

/* From here on the login may go on on another loop: who it is is kept apart from it. */
static void port_settle(struct connection *conn)
{
    text_format(conn->port.name, sizeof conn->port.name, "%s", conn->login.keys.initiator);
    memcpy(conn->port.isid, conn->login.isid, sizeof conn->port.isid);
}

static enum login_status session_admit(struct connection *conn, const char **why)
{
    struct iscsi_server *server = conn->server;
    bool discovery = login_discovery(&conn->login);
    port_settle(conn);
    conn->target = discovery ? NULL : target_find(server, conn->login.keys.target);
    *why = "there is no such target";
    if (!discovery && conn->target == NULL)
        return LOGIN_NO_TARGET;
    *why = "the target is not served at this portal";
    if (!discovery && !target_at_group(conn->target, conn->group))
        return LOGIN_NO_TARGET;
    *why = "no rule of the access list speaks for it";
    conn->access = access_hold(discovery ? server->access : conn->target->access);
    if (!access_admits(conn->access, conn->port.name, conn->peer))
        return LOGIN_FORBIDDEN;
    *why = "it was sent elsewhere";
    if (!discovery && conn->target->redirect[0] != '\0' && strcmp(conn->target->redirect, conn->local) != 0)
        return conn->target->redirect_permanent ? LOGIN_MOVED : LOGIN_MOVED_FOR_NOW;
    *why = "a discovery session has no second connection";
    if (discovery && conn->login.tsih != 0)
        return LOGIN_NO_SESSION;
    *why = server->draining ? "the target is being stopped" : "there are as many sessions as may be";
    if (server->draining || sessions_count(conn) >= server->limits.connections)
        return LOGIN_OUT_OF_RESOURCES;
    conn->registered = true;
    return LOGIN_OK;
}

/* 6.3.1, on the target's loop: a TSIH must name a session; and that has all the connections it may have. */
static enum login_status tsih_check(const struct connection *conn, const char **why)
{
    const struct connection *other;
    if (conn->target == NULL || conn->login.tsih == 0)
        return LOGIN_OK;
    *why = "its session has all the connections it may have";
    TAILQ_FOREACH(other, &conn->target->sessions, session_link)
    if (other->session->tsih == conn->login.tsih && same_port(other, conn))
        return LOGIN_TOO_MANY;
    *why = "it has no such session";
    return LOGIN_NO_SESSION;
}

static void login_continue(struct connection *conn)
{
    struct login *login = &conn->login;
    struct login_grant grant = {.access = conn->access, .peer = conn->peer, .group = conn->group};
    const char *why;
    enum login_status status = tsih_check(conn, &why);
    if (status != LOGIN_OK) {
        connection_login_go(conn, login_refuse(login, status, why));
        return;
    }
    grant.alias = conn->target != NULL ? conn->target->alias : NULL;
    for (unsigned i = 0; i < CHAP_DRAWS; i++)
        grant.draws[i] = loop_random(conn->loop);
    connection_login_go(conn, login_resume(login, &grant));
}

void server_find_target(struct connection *conn)
{
    const char *why;
    enum login_status status = session_admit(conn, &why);
    if (login_status_redirects(status)) {
        connection_login_go(conn, login_redirect(&conn->login, status, conn->target->redirect));
    } else if (status != LOGIN_OK) {
        connection_login_go(conn, login_refuse(&conn->login, status, why));
    } else if (conn->target == NULL || conn->target->loop == conn->loop) {
        login_continue(conn);
    } else {
        conn->move_wanted = true; /* when what is in line has left: server_ready_to_move */
        loop_defer_late(conn->loop, &conn->tx.task);
    }
}

void server_ready_to_move(struct connection *conn)
{
    timer_stop(conn->loop, &conn->timer);
    timer_stop(conn->loop, &conn->stall.timer);
    conn->move_wanted = false;
    conn->wanted = 0;
    stream_want(conn->stream, 0);
    sm_move(&conn->phase, PHASE_MOVING);
    conn->home = conn->target->loop; /* orders follow it there, behind it */
    stream_move(conn->stream, conn->target->loop, &conn->arrived);
}

static void arrived(struct task *task)
{
    struct connection *conn = container_of(task, struct connection, arrived);
    conn->loop = conn->target->loop;
    sm_move(&conn->phase, PHASE_LOGIN);
    connection_start(conn);
    if (conn->order_pending != ORDER_NONE) {
        connection_order(conn, conn->order_pending, 0);
        return;
    }
    login_continue(conn);
    if (conn->stream != NULL)
        receive_run(conn);
}

/* --- sessions, on their loop --- */

static void reinstate(struct connection *conn)
{
    struct connection *other = TAILQ_FIRST(&conn->target->sessions), *next;
    for (; other != NULL; other = next) {
        next = TAILQ_NEXT(other, session_link);
        if (same_port(other, conn))
            connection_close(other, "the session is reinstated by a new login");
    }
}

static bool tsih_used(const struct iscsi_target *target, uint16_t tsih)
{
    const struct connection *conn;
    TAILQ_FOREACH(conn, &target->sessions, session_link)
    if (conn->session->tsih == tsih)
        return true;
    return tsih == 0;
}

/* 4.2.7.1, and SPC's TransportID: name, ",i,0x", ISID. */
static void port_name(const struct connection *conn, char out[PORT_NAME_MAX])
{
    const uint8_t *isid = conn->port.isid;
    text_format(out, PORT_NAME_MAX, "%s,i,0x%02x%02x%02x%02x%02x%02x", conn->port.name, isid[0], isid[1], isid[2],
                isid[3], isid[4], isid[5]);
}

static bool nexus_make(struct connection *conn)
{
    struct iscsi_target *target = conn->target;
    char name[PORT_NAME_MAX];
    port_name(conn, name);
    reinstate(conn);
    conn->session->nexus = scsi_nexus_create(target->scsi, name);
    if (conn->session->nexus == NULL)
        return false;
    const struct access_rule *rule = conn->login.auth.rule;
    if (rule != NULL && rule->viewed)
        scsi_nexus_set_view(conn->session->nexus, &rule->view);
    while (tsih_used(target, ++target->last_tsih))
        ;
    conn->session->tsih = target->last_tsih;
    struct session_stats *stats = stats_create(conn->session->nexus, loop_wall_clock_s(conn->loop));
    __atomic_store_n(&conn->stats, stats, __ATOMIC_RELEASE); /* NULL, without memory: nothing is counted */
    TAILQ_INSERT_TAIL(&target->sessions, conn, session_link);
    conn->in_target = true;
    return true;
}

/* On the server's loop. */
static void discovery_begin(struct connection *conn)
{
    struct iscsi_server *server = conn->server;
    struct connection *other;
    conn->session->tsih = server->last_tsih += server->last_tsih == UINT16_MAX ? 2 : 1;
    TAILQ_FOREACH(other, &server->connections, server_link)
    if (replaces(conn, other))
        order_send(other, ORDER_CUT, 0);
}

enum login_status server_session_begin(struct connection *conn)
{
    struct iscsi_server *server = conn->server;
    bool discovery = conn->target == NULL;
    uint32_t commands = discovery ? DISCOVERY_COMMANDS : server->limits.commands;
    conn->session = session_create(conn, commands, conn->login.cmd_sn);
    if (conn->session == NULL)
        return LOGIN_OUT_OF_RESOURCES;
    if (!discovery && !nexus_make(conn)) {
        session_destroy(conn->session);
        conn->session = NULL;
        return LOGIN_OUT_OF_RESOURCES;
    }
    if (discovery)
        discovery_begin(conn);
    conn->login.tsih = conn->session->tsih;
    return LOGIN_OK;
}

void server_session_end(struct connection *conn)
{
    if (!conn->in_target)
        return;
    conn->in_target = false;
    scsi_nexus_lost(conn->session->nexus);
    TAILQ_REMOVE(&conn->target->sessions, conn, session_link);
}

/* On whichever loop its login is. */
void server_refused(struct connection *conn)
{
    struct iscsi_target *target = conn->target;
    bool there = target != NULL && conn->loop == target->loop;
    const char *discovery = login_discovery(&conn->login) ? "discovery" : conn->login.keys.target;
    if (login_status_redirects(conn->login.status)) {
        log_info("iSCSI: %s: sent from %s to %s", conn->peer, target->name, target->redirect);
        return;
    }
    refusal_tell(there ? &target->refusals : &conn->server->refusals, loop_now_ns(conn->loop), "iSCSI", conn->peer,
                 conn->login.keys.initiator, discovery, conn->login.status, conn->login.why);
}

/* --- SendTargets --- */

/*
 * In a normal session only its own target may be asked for. The table of all is for the server's loop; of it an
 * initiator is told what it may use.
 */
void server_list_targets(struct connection *conn, const char *name, struct text_out *out)
{
    const struct iscsi_target *target;
    if (conn->target != NULL) {
        portals_list(&conn->server->portals, conn->target, conn, out);
        return;
    }
    TAILQ_FOREACH(target, &conn->server->targets, link)
    if ((name == NULL || strcmp(target->name, name) == 0) && access_admits(target->access, conn->port.name, conn->peer))
        portals_list(&conn->server->portals, target, conn, out);
}

/* --- orders: to a connection's loop and back --- */

static void order_back(struct task *task)
{
    struct connection *conn = container_of(task, struct connection, order_task);
    conn->order_under_way = false;
    if (!conn->gone && conn->order_wanted > conn->order_sent)
        order_send(conn, conn->order_wanted, conn->grace_ns);
    forget_if_over(conn);
}

static void order_there(struct task *task)
{
    struct connection *conn = container_of(task, struct connection, order_task);
    connection_order(conn, conn->order_sent, conn->grace_ns);
    conn->order_task.run = order_back;
    loop_call(conn->server->loop, &conn->order_task);
}

static void order_send(struct connection *conn, enum order order, uint64_t grace_ns)
{
    conn->order_wanted = MAX(conn->order_wanted, order);
    if (conn->order_under_way || conn->gone)
        return;
    conn->order_under_way = true;
    conn->order_sent = conn->order_wanted;
    conn->grace_ns = grace_ns;
    conn->order_task.run = order_there;
    loop_call(conn->home, &conn->order_task);
}

static void order_all(struct iscsi_server *server, enum order order, uint64_t grace_ns)
{
    struct connection *conn;
    TAILQ_FOREACH(conn, &server->connections, server_link)
    order_send(conn, order, grace_ns);
}

static void grace_over(struct timer *timer)
{
    order_all(container_of(timer, struct iscsi_server, grace), ORDER_CUT, 0);
}

void iscsi_server_drain(struct iscsi_server *server, uint64_t grace_ns, struct task *drained)
{
    server->draining = true;
    server->drained = drained;
    drained_check(server);
    if (server->drained == NULL)
        return;
    order_all(server, ORDER_DRAIN, grace_ns);
    timer_start(server->loop, &server->grace, grace_ns);
}

static void drop_late(struct timer *timer)
{
    order_send(container_of(timer, struct connection, drop), ORDER_CUT, 0);
}

/* As drain, for one. */
static void connection_end_in(struct connection *conn, uint64_t grace_ns)
{
    order_send(conn, ORDER_DRAIN, grace_ns);
    timer_start(conn->server->loop, &conn->drop, grace_ns);
}

bool iscsi_server_drop(struct iscsi_server *server, uint32_t id, uint64_t grace_ns)
{
    struct connection *conn;
    TAILQ_FOREACH(conn, &server->connections, server_link)
    {
        if (conn->id != id || conn->gone)
            continue;
        connection_end_in(conn, grace_ns);
        return true;
    }
    return false;
}

int iscsi_server_remove_target(struct iscsi_server *server, const char *name, uint64_t grace_ns, struct task *removed)
{
    struct iscsi_target *target = target_find(server, name);
    struct connection *conn;
    if (target == NULL)
        return -ENOENT;
    TAILQ_REMOVE(&server->targets, target, link);
    TAILQ_INSERT_TAIL(&server->leaving, target, link);
    target->removed = removed;
    TAILQ_FOREACH(conn, &server->connections, server_link)
    if (conn->target == target && !conn->gone)
        connection_end_in(conn, grace_ns);
    removed_check(server, target);
    return 0;
}

/* --- access --- */

/* Those who have just been told something else by the new list log in again, and then it holds. */
static void end_sessions(struct iscsi_server *server, const struct iscsi_target *target,
                         const struct access_list *access)
{
    struct connection *conn;
    unsigned count = 0;
    TAILQ_FOREACH(conn, &server->connections, server_link)
    if (conn->registered && conn->target == target && !access_same(conn->access, access, conn->port.name, conn->peer)) {
        order_send(conn, ORDER_CUT, 0);
        count++;
    }
    if (count > 0)
        log_notice("iSCSI: %u session%s of %s end%s: the access list says something else of them", count,
                   count == 1 ? "" : "s", target != NULL ? target->name : "discovery", count == 1 ? "s" : "");
}

int iscsi_server_set_access(struct iscsi_server *server, const char *target_name, const struct iscsi_rule *rules,
                            unsigned count, bool *new_secrets)
{
    struct iscsi_target *target = target_name != NULL ? target_find(server, target_name) : NULL;
    if (target_name != NULL && target == NULL)
        return -ENOENT;
    for (unsigned i = 0; rules != NULL && i < count; i++)
        for (unsigned j = 0; j < rules[i].address_count; j++)
            if (!match_network_valid(rules[i].addresses[j]))
                return -EINVAL;
    struct access_list *access = rules != NULL ? access_create(rules, count) : NULL;
    if (rules != NULL && access == NULL)
        return -ENOMEM;
    struct access_list **place = target != NULL ? &target->access : &server->access;
    if (new_secrets != NULL)
        *new_secrets = access_secrets_differ(*place, access);
    access_release(*place);
    *place = access;
    end_sessions(server, target, access);
    return 0;
}

/* --- what there is to see --- */

uint32_t iscsi_server_connections(const struct iscsi_server *server)
{
    return server->connection_count;
}

/* By the server's loop. */
static const struct session_stats *stats_seen(const struct connection *conn)
{
    return __atomic_load_n(&conn->stats, __ATOMIC_ACQUIRE);
}

static void info_fill(const struct connection *conn, struct iscsi_session_info *out)
{
    *out = (struct iscsi_session_info){.header_digest = __atomic_load_n(&conn->header_digest, __ATOMIC_RELAXED),
                                       .data_digest = __atomic_load_n(&conn->data_digest, __ATOMIC_RELAXED)};
    name_for_people(out->initiator, sizeof out->initiator, conn->registered ? conn->port.name : "");
    text_format(out->target, sizeof out->target, "%s", conn->target != NULL ? conn->target->name : "");
    text_format(out->peer, sizeof out->peer, "%s", conn->peer);
    text_format(out->phase, sizeof out->phase, "%s", __atomic_load_n(&conn->phase_name, __ATOMIC_RELAXED));
    const struct session_stats *stats = stats_seen(conn);
    out->id = conn->id;
    out->since_s = stats != NULL ? stats->since_s : 0;
    for (unsigned i = 0; stats != NULL && i < stats->count; i++)
        io_stats_read(&stats->luns[i].io, &out->io);
}

uint32_t iscsi_server_info(const struct iscsi_server *server, struct iscsi_session_info *out, uint32_t max)
{
    const struct connection *conn;
    uint32_t count = 0;
    TAILQ_FOREACH(conn, &server->connections, server_link)
    {
        if (count < max)
            info_fill(conn, &out[count]);
        count++;
    }
    return count;
}

static uint32_t luns_fill(const struct connection *conn, struct iscsi_lun_info *out, uint32_t room)
{
    const struct session_stats *stats = stats_seen(conn);
    uint32_t count = stats != NULL ? stats->count : 0;
    for (uint32_t i = 0; i < MIN(count, room); i++) {
        out[i] = (struct iscsi_lun_info){.session = conn->id, .lun = stats->luns[i].lun};
        io_stats_read(&stats->luns[i].io, &out[i].io);
    }
    return count;
}

uint32_t iscsi_server_lun_info(const struct iscsi_server *server, struct iscsi_lun_info *out, uint32_t max)
{
    const struct connection *conn;
    uint32_t count = 0;
    TAILQ_FOREACH(conn, &server->connections, server_link)
    count += luns_fill(conn, out + MIN(count, max), max - MIN(count, max));
    return count;
}
