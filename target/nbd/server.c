/*
 * The server: exports, the list of connections, and how they are told to end.
 *
 * The list is touched on the server's loop only. A connection on another loop and the server speak by two embedded
 * tasks, each of which is on one loop at a time:
 *
 *   order_task   server -> connection -> server: "end" or "cut", and the receipt. One is underway at a time; a
 *                stronger order that comes up meanwhile goes out after the receipt. One that finds the connection gone
 *                to another loop goes after it.
 *   over_task    connection -> server, once: nothing of mine moves any more.
 *
 * A connection is freed when it is over and no order is underway: so an order never meets freed memory. An export that
 * was removed is freed when no connection in the list has it.
 */
#include "target/nbd/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "target/nbd/connection.h"

enum {
    DEFAULT_CONNECTIONS = 1024,
    DEFAULT_HALF_OPEN = 512,
    DEFAULT_HALF_OPEN_PER_HOST = 128,
    DEFAULT_REQUESTS = 128,
    POOL_PAGES_MIN = 16, /* fewer pages on a device's loop serve nobody */
};
#define DEFAULT_NEGOTIATION_NS (10ull * 1000000000)

/* --- exports --- */

const struct nbd_export *nbd_export_find(const struct nbd_server *server, const char *name, uint32_t name_len)
{
    const struct nbd_export *export;
    STAILQ_FOREACH(export, &server->exports, link)
    if (strlen(export->name) == name_len && memcmp(export->name, name, name_len) == 0)
        return export;
    return NULL;
}

uint16_t nbd_export_flags(const struct nbd_export *export, enum nbd_mode mode)
{
    const struct blk_info *info = &export->dev->info;
    unsigned flags = NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_FUA;
    flags |= NBD_FLAG_CAN_MULTI_CONN; /* a flush on one connection covers what any of them had answered */
    flags |= info->rotational ? NBD_FLAG_ROTATIONAL : 0;
    flags |= NBD_FLAG_SEND_CACHE; /* there is nothing to warm: answered at once */
    flags |= mode != NBD_SIMPLE ? NBD_FLAG_SEND_DF : 0;
    flags |= mode == NBD_EXTENDED ? NBD_FLAG_BLOCK_STATUS_PAYLOAD : 0;
    if (export->read_only || info->read_only)
        return (uint16_t)(flags | NBD_FLAG_READ_ONLY);
    flags |= info->discards ? NBD_FLAG_SEND_TRIM : 0;
    flags |= info->discards && info->discard_zeroes ? NBD_FLAG_SEND_FAST_ZERO : 0;
    return (uint16_t)(flags | NBD_FLAG_SEND_WRITE_ZEROES);
}

/* What the document and the pool allow: a request may not want more than half of the pages there are. */
uint32_t nbd_export_payload_max(const struct nbd_export *export)
{
    uint64_t half = (uint64_t)page_pool_size(export->dev->loop->pages) * PAGE_BYTES / 2, max = NBD_PAYLOAD_MAX;
    while (max > half)
        max /= 2;
    return (uint32_t)max;
}

uint32_t nbd_export_preferred(const struct nbd_export *export)
{
    const struct blk_info *info = &export->dev->info;
    uint32_t max = nbd_export_payload_max(export), least = MAX(info->physical_block, (uint32_t)PAGE_BYTES);
    bool row_fits = is_power_of_two(info->optimal_io) && info->optimal_io >= least && info->optimal_io <= max;
    return row_fits ? info->optimal_io : MIN(least, max);
}

static void export_free(struct nbd_export *export)
{
    nbd_access_free(export->access);
    free(export->name);
    free(export->description);
    free(export->twin);
    free(export);
}

static struct nbd_export *export_named(struct nbd_server *server, const char *name)
{
    struct nbd_export *export;
    STAILQ_FOREACH(export, &server->exports, link)
    if (strcmp(export->name, name) == 0)
        return export;
    return NULL;
}

/* Of its device: one for all its exports. NULL: no memory. */
static struct nbd_turns *turns_for(struct nbd_server *server, const struct blkdev *dev)
{
    struct nbd_turns *turns;
    STAILQ_FOREACH(turns, &server->turns, link)
    if (turns->dev == dev)
        return turns;
    turns = malloc(sizeof *turns);
    if (turns != NULL) {
        nbd_turns_init(turns, dev);
        STAILQ_INSERT_TAIL(&server->turns, turns, link);
    }
    return turns;
}

/* With texts of its own, and a twin that shares them. NULL: no memory. */
static struct nbd_export *export_create(const struct nbd_export_options *options, const char *description,
                                        struct nbd_turns *turns)
{
    struct nbd_export *export = calloc(1, sizeof *export), *twin = calloc(1, sizeof *twin);
    if (export == NULL || twin == NULL) {
        free(export);
        free(twin);
        return NULL;
    }
    *export = (struct nbd_export){.dev = options->dev,
                                  .turns = turns,
                                  .read_only = options->read_only,
                                  .hidden = options->hidden,
                                  .name = strdup(options->name),
                                  .description = strdup(description),
                                  .tls = NBD_TLS_ALLOW};
    *twin = *export;
    twin->read_only = twin->is_twin = true;
    twin->twin = export;
    export->twin = twin;
    if (export->name != NULL && export->description != NULL)
        return export;
    export_free(export);
    return NULL;
}

/* 0, -EINVAL, -ENOMEM: all is as it was. */
static int set_rules(struct nbd_export *export, const struct nbd_access_options *options)
{
    struct nbd_access *access = options->rules != NULL ? nbd_access_create(options->rules, options->rule_count) : NULL;
    if (options->rules != NULL && access == NULL)
        return nbd_rules_valid(options->rules, options->rule_count) ? -ENOMEM : -EINVAL;
    nbd_access_free(export->access);
    export->access = access;
    export->tls = options->tls;
    export->connections_max = options->connections;
    return 0;
}

static bool is_servable(const struct nbd_export_options *options, const char *description)
{
    const struct blkdev *dev = options->dev;
    return strlen(options->name) <= NBD_NAME_MAX && strlen(description) <= NBD_NAME_MAX &&
           (dev->info.max_request == 0 || dev->info.max_request >= PAGE_BYTES) && dev->loop->pages != NULL &&
           page_pool_size(dev->loop->pages) >= POOL_PAGES_MIN;
}

int nbd_server_add_export(struct nbd_server *server, const struct nbd_export_options *options)
{
    const char *description = options->description != NULL ? options->description : "";
    if (!is_servable(options, description))
        return -EINVAL;
    if (nbd_export_find(server, options->name, (uint32_t)strlen(options->name)) != NULL)
        return -EEXIST;
    struct nbd_turns *turns = turns_for(server, options->dev);
    struct nbd_export *export = turns != NULL ? export_create(options, description, turns) : NULL;
    if (export == NULL)
        return -ENOMEM;
    int error = options->access != NULL ? set_rules(export, options->access) : 0;
    if (error != 0) {
        export_free(export);
        return error;
    }
    STAILQ_INSERT_TAIL(&server->exports, export, link);
    return 0;
}

/* --- the server --- */

static void grace_over(struct timer *timer);
static void drop_late(struct timer *timer);

struct nbd_server *nbd_server_create(struct loop *loop, const struct nbd_limits *limits)
{
    struct nbd_server *server = calloc(1, sizeof *server);
    if (server == NULL)
        return NULL;
    server->loop = loop;
    server->limits = *limits;
    if (limits->connections == 0)
        server->limits.connections = DEFAULT_CONNECTIONS;
    if (limits->half_open == 0)
        server->limits.half_open = DEFAULT_HALF_OPEN;
    if (limits->half_open_per_host == 0)
        server->limits.half_open_per_host = DEFAULT_HALF_OPEN_PER_HOST;
    if (limits->requests == 0)
        server->limits.requests = DEFAULT_REQUESTS;
    if (limits->negotiation_ns == 0)
        server->limits.negotiation_ns = DEFAULT_NEGOTIATION_NS;
    server->grace.fire = grace_over;
    STAILQ_INIT(&server->exports);
    STAILQ_INIT(&server->leaving);
    STAILQ_INIT(&server->turns);
    TAILQ_INIT(&server->connections);
    return server;
}

void nbd_server_destroy(struct nbd_server *server)
{
    ASSERT(server->connection_count == 0 && STAILQ_EMPTY(&server->leaving));
    timer_stop(server->loop, &server->grace);
    struct nbd_export *export;
    while ((export = STAILQ_FIRST(&server->exports)) != NULL) {
        STAILQ_REMOVE_HEAD(&server->exports, link);
        export_free(export);
    }
    struct nbd_turns *turns;
    while ((turns = STAILQ_FIRST(&server->turns)) != NULL) {
        STAILQ_REMOVE_HEAD(&server->turns, link);
        free(turns);
    }
    free(server);
}

void nbd_server_set_credentials(struct nbd_server *server, struct stream_credentials *credentials)
{
    server->credentials = credentials;
}

/* --- connections come --- */

/* Whoever does not get through the negotiation takes no place from those who have. NULL: there is room for one more. */
static const char *half_open_full(const struct nbd_server *server, const struct nbd_client *client)
{
    uint32_t all = 0, same = 0;
    const struct nbd_conn *conn;
    TAILQ_FOREACH(conn, &server->connections, link)
    {
        if (conn->handed_over)
            continue;
        all++;
        same += client->has_host && conn->client.has_host &&
                memcmp(conn->client.host, client->host, sizeof client->host) == 0;
    }
    if (all >= server->limits.half_open)
        return "too many negotiations are under way";
    return same >= server->limits.half_open_per_host ? "too many negotiations of its address are under way" : NULL;
}

/* The export itself, of a twin. */
static const struct nbd_export *export_proper(const struct nbd_export *export)
{
    return export->is_twin ? export->twin : export;
}

const char *nbd_server_full(const struct nbd_server *server, const struct nbd_export *export)
{
    uint32_t all = 0, same = 0;
    const struct nbd_conn *conn;
    export = export_proper(export);
    TAILQ_FOREACH(conn, &server->connections, link)
    {
        bool counts = conn->handed_over && !conn->over;
        all += counts;
        same += counts && export_proper(conn->export) == export;
    }
    if (all >= server->limits.connections)
        return "there are as many connections as may be";
    return export->connections_max > 0 && same >= export->connections_max
               ? "the export has as many connections as may be"
               : NULL;
}

void nbd_conn_open(struct nbd_server *server, struct stream *stream, enum nbd_tls tls)
{
    struct nbd_client client;
    nbd_client_init(&client, stream->peer, tls);
    const char *why = server->draining ? "the server stops" : half_open_full(server, &client);
    struct nbd_conn *conn = why == NULL ? nbd_conn_create(server, stream, tls) : NULL;
    if (conn == NULL) {
        why = why != NULL ? why : "there is no memory";
        refusal_tell(&server->refusals, loop_now_ns(server->loop), "NBD", stream->peer, "", "", 0, why);
        stream_close(stream);
        return;
    }
    conn->id = ++server->last_id;
    conn->since_s = loop_wall_clock_s(server->loop);
    conn->drop.fire = drop_late;
    TAILQ_INSERT_TAIL(&server->connections, conn, link);
    server->connection_count++;
    nbd_handshake_start(conn);
}

uint32_t nbd_server_connections(const struct nbd_server *server)
{
    return server->connection_count;
}

uint32_t nbd_server_info(const struct nbd_server *server, struct nbd_conn_info *out, uint32_t max)
{
    uint32_t count = 0;
    const struct nbd_conn *conn;
    TAILQ_FOREACH(conn, &server->connections, link)
    {
        if (count++ >= max)
            continue;
        struct nbd_conn_info *info = &out[count - 1];
        *info = (struct nbd_conn_info){.id = conn->id, .since_s = conn->since_s};
        io_stats_read(&conn->stats, &info->io);
        text_format(info->peer, sizeof info->peer, "%s", conn->peer);
        text_format(info->export_name, sizeof info->export_name, "%s", conn->handed_over ? conn->export->name : "");
        text_format(info->phase, sizeof info->phase, "%s",
                    conn->over          ? "closed"
                    : conn->handed_over ? "transmission"
                                        : "negotiation");
        text_format(info->tls, sizeof info->tls, "%s", conn->client.proof.method);
        name_for_people(info->client, sizeof info->client,
                        conn->client.proof.count > 0 ? conn->client.proof.names[0] : "");
    }
    return count;
}

/* --- the end of connections --- */

static void check_drained(struct nbd_server *server)
{
    if (!server->draining || server->drained == NULL || server->connection_count > 0)
        return;
    timer_stop(server->loop, &server->grace);
    loop_defer(server->loop, server->drained);
    server->drained = NULL;
}

/* What it serves, or will; of a twin, the export itself. NULL: it has not chosen. */
static const struct nbd_export *conn_export(const struct nbd_conn *conn)
{
    const struct nbd_export *chosen = conn->handed_over ? conn->export : conn->negotiation.chosen;
    return chosen != NULL ? export_proper(chosen) : NULL;
}

static bool has_turns(const struct nbd_export_list *exports, const struct nbd_turns *turns)
{
    const struct nbd_export *export;
    STAILQ_FOREACH(export, exports, link)
    if (export->turns == turns)
        return true;
    return false;
}

static void leave_if_unused(struct nbd_server *server, struct nbd_export *export)
{
    const struct nbd_conn *conn;
    struct nbd_turns *turns = export->turns;
    TAILQ_FOREACH(conn, &server->connections, link)
    if (conn_export(conn) == export)
        return;
    STAILQ_REMOVE(&server->leaving, export, nbd_export, link);
    if (!has_turns(&server->exports, turns) && !has_turns(&server->leaving, turns)) {
        STAILQ_REMOVE(&server->turns, turns, nbd_turns, link);
        free(turns);
    }
    loop_defer(server->loop, export->removed);
    export_free(export);
}

static void free_if_over(struct nbd_conn *conn)
{
    struct nbd_server *server = conn->server;
    if (!conn->over || conn->order_underway)
        return;
    const struct nbd_export *export = conn_export(conn);
    TAILQ_REMOVE(&server->connections, conn, link);
    server->connection_count--;
    timer_stop(server->loop, &conn->drop);
    nbd_conn_free(conn);
    struct nbd_export *leaving;
    STAILQ_FOREACH(leaving, &server->leaving, link)
    if (leaving == export)
        break;
    if (leaving != NULL)
        leave_if_unused(server, leaving);
    check_drained(server);
}

/* On the server's loop. */
static void conn_is_over(struct task *task)
{
    struct nbd_conn *conn = container_of(task, struct nbd_conn, over_task);
    conn->over = true;
    free_if_over(conn);
}

void nbd_server_conn_over(struct nbd_conn *conn)
{
    conn->over_task = (struct task){.run = conn_is_over};
    loop_call(conn->server->loop, &conn->over_task);
}

static void order_send(struct nbd_conn *conn);

/* On the server's loop: the connection has read the order. */
static void order_receipt(struct task *task)
{
    struct nbd_conn *conn = container_of(task, struct nbd_conn, order_task);
    conn->order_underway = false;
    if (!conn->over && conn->order_wanted > conn->order)
        order_send(conn);
    free_if_over(conn);
}

/* On the connection's loop; or, if it has left ours since, on ours still. */
static void order_deliver(struct task *task)
{
    struct nbd_conn *conn = container_of(task, struct nbd_conn, order_task);
    if (conn->order_loop != conn->loop) {
        order_send(conn);
        return;
    }
    nbd_conn_obey(conn, conn->order);
    conn->order_task = (struct task){.run = order_receipt};
    loop_call(conn->server->loop, &conn->order_task);
}

static void order_send(struct nbd_conn *conn)
{
    conn->order = conn->order_wanted;
    conn->order_loop = conn->loop;
    conn->order_underway = true;
    conn->order_task = (struct task){.run = order_deliver};
    loop_call(conn->loop, &conn->order_task);
}

static void order_give(struct nbd_conn *conn, enum nbd_order order)
{
    if (conn->over)
        return;
    conn->order_wanted = MAX(conn->order_wanted, order);
    if (!conn->order_underway)
        order_send(conn);
}

static void order_all(struct nbd_server *server, enum nbd_order order)
{
    struct nbd_conn *conn;
    TAILQ_FOREACH(conn, &server->connections, link)
    order_give(conn, order);
}

static void drop_late(struct timer *timer)
{
    order_give(container_of(timer, struct nbd_conn, drop), NBD_ORDER_CUT);
}

static void end_politely(struct nbd_conn *conn, uint64_t grace_ns)
{
    order_give(conn, NBD_ORDER_END);
    timer_start(conn->server->loop, &conn->drop, grace_ns);
}

bool nbd_server_drop(struct nbd_server *server, uint32_t id, uint64_t grace_ns)
{
    struct nbd_conn *conn;
    TAILQ_FOREACH(conn, &server->connections, link)
    {
        if (conn->id != id || conn->over)
            continue;
        end_politely(conn, grace_ns);
        return true;
    }
    return false;
}

/* It has not chosen yet: whatever it has asked of this export is forgotten. */
static void forget_export(struct nbd_conn *conn, const struct nbd_export *export)
{
    struct nbd_negotiation *n = &conn->negotiation;
    if (conn->handed_over)
        return;
    if (n->next == export)
        n->next = STAILQ_NEXT(export, link);
    if (n->contexts_of == export->name)
        n->contexts_of = NULL;
}

int nbd_server_remove_export(struct nbd_server *server, const char *name, uint64_t grace_ns, struct task *removed)
{
    struct nbd_export *export = export_named(server, name);
    struct nbd_conn *conn;
    if (export == NULL)
        return -ENOENT;
    TAILQ_FOREACH(conn, &server->connections, link)
    {
        forget_export(conn, export);
        if (conn_export(conn) == export && !conn->over)
            end_politely(conn, grace_ns);
    }
    STAILQ_REMOVE(&server->exports, export, nbd_export, link);
    STAILQ_INSERT_TAIL(&server->leaving, export, link);
    export->removed = removed;
    leave_if_unused(server, export);
    return 0;
}

/* --- access --- */

/* Those who chose this export, and would get another one now, or none. */
static void end_those_who_may_not(struct nbd_server *server, const struct nbd_export *export, uint64_t grace_ns)
{
    struct nbd_conn *conn;
    uint32_t error;
    TAILQ_FOREACH(conn, &server->connections, link)
    {
        const struct nbd_export *chosen = conn->handed_over ? conn->export : conn->negotiation.chosen;
        if (conn->over || conn_export(conn) != export || nbd_access_judge(&conn->client, export, &error) == chosen)
            continue;
        log_notice("nbd: %s: may not use export \"%s\" as before: asked to end", conn->peer, export->name);
        end_politely(conn, grace_ns);
    }
}

int nbd_server_set_access(struct nbd_server *server, const char *name, const struct nbd_access_options *options,
                          uint64_t grace_ns)
{
    struct nbd_export *export = export_named(server, name);
    if (export == NULL)
        return -ENOENT;
    int error = set_rules(export, options);
    if (error == 0)
        end_those_who_may_not(server, export, grace_ns);
    return error;
}

static void grace_over(struct timer *timer)
{
    struct nbd_server *server = container_of(timer, struct nbd_server, grace);
    log_notice("nbd: %u connections did not end in time and are cut", server->connection_count);
    order_all(server, NBD_ORDER_CUT);
}

void nbd_server_drain(struct nbd_server *server, uint64_t grace_ns, struct task *drained)
{
    ASSERT(!server->draining);
    server->draining = true;
    server->drained = drained;
    timer_start(server->loop, &server->grace, grace_ns);
    order_all(server, NBD_ORDER_END);
    check_drained(server);
}
