/*
 * Sessions: who is connected by iSCSI or NBD, what each did, and how one is ended.
 *
 * A session's id is the protocol and a number, "iscsi-3": no other has it while the daemon runs. The servers' lists are
 * copied on their reactor, in as little time as may be; JSON is made of the copy here.
 */
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_internal.h"

enum { NEWCOMERS = 16 }; /* room for those who come between counting and copying */

struct sessions {
    struct sync_call call;
    struct appliance *appliance;
    uint32_t nbd_count, iscsi_count, luns_count; /* of what is there; then at most as many are copied */
    struct nbd_conn_info *nbd;
    struct iscsi_session_info *iscsi;
    struct iscsi_lun_info *luns;
};

static void run_look(struct sync_call *call)
{
    struct sessions *s = container_of(call, struct sessions, call);
    uint32_t nbd = s->nbd_count, iscsi = s->iscsi_count, luns = s->luns_count;
    s->nbd_count = nbd_server_info(s->appliance->nbd, s->nbd, nbd);
    s->iscsi_count = iscsi_server_info(s->appliance->iscsi, s->iscsi, iscsi);
    s->luns_count = iscsi_server_lun_info(s->appliance->iscsi, s->luns, luns);
    if (s->nbd != NULL) {
        s->nbd_count = MIN(s->nbd_count, nbd);
        s->iscsi_count = MIN(s->iscsi_count, iscsi);
        s->luns_count = MIN(s->luns_count, luns);
    }
    sync_finish(call);
}

static void *must_allocate(uint32_t count, size_t size)
{
    void *memory = calloc(count, size);
    ASSERT(memory != NULL);
    return memory;
}

static void sessions_look(struct appliance *a, struct sessions *s)
{
    *s = (struct sessions){.appliance = a};
    sync_call(&s->call, reactor_loop(a->reactors[0]), run_look);
    s->nbd = must_allocate(s->nbd_count += NEWCOMERS, sizeof *s->nbd);
    s->iscsi = must_allocate(s->iscsi_count += NEWCOMERS, sizeof *s->iscsi);
    s->luns = must_allocate(s->luns_count += NEWCOMERS, sizeof *s->luns);
    sync_call(&s->call, reactor_loop(a->reactors[0]), run_look);
}

static void sessions_free(struct sessions *s)
{
    free(s->nbd);
    free(s->iscsi);
    free(s->luns);
}

/* --- as JSON --- */

static json_t *session_id(const char *protocol, uint32_t id)
{
    return json_sprintf("%s-%u", protocol, (unsigned)id);
}

static json_t *histogram_json(const struct io_stats *io)
{
    json_t *buckets = json_array();
    for (unsigned i = 0; i < IO_LATENCY_BUCKETS; i++) {
        uint64_t below = io_latency_below(i);
        if (io->latency[i] > 0)
            json_array_append_new(buckets,
                                  json_pack("{s:o, s:I}", "below_us",
                                            below < UINT64_MAX ? json_integer((json_int_t)(below / 1000)) : json_null(),
                                            "commands", (json_int_t)io->latency[i]));
    }
    return buckets;
}

static json_t *io_json(const struct io_stats *io)
{
    uint64_t answered = io_stats_commands(io);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:o}", "reads",
                     (json_int_t)io->commands[IO_READ], "writes", (json_int_t)io->commands[IO_WRITE], "others",
                     (json_int_t)io->commands[IO_OTHER], "read_bytes", (json_int_t)io->read_bytes, "written_bytes",
                     (json_int_t)io->written_bytes, "failed", (json_int_t)io->troubles[IO_FAILED], "aborted",
                     (json_int_t)io->troubles[IO_ABORTED], "digest_errors", (json_int_t)io->troubles[IO_BAD_DIGEST],
                     "latency_mean_us", answered > 0 ? (double)io->latency_sum_ns / (double)answered / 1000 : 0.0,
                     "latency_p50_us", (json_int_t)(io_stats_percentile(io, 50) / 1000), "latency_p99_us",
                     (json_int_t)(io_stats_percentile(io, 99) / 1000), "latency", histogram_json(io));
}

static json_t *nbd_json(const struct nbd_conn_info *n)
{
    return json_pack("{s:o, s:s, s:s, s:o, s:s, s:s, s:s, s:I}", "id", session_id("nbd", n->id), "protocol", "nbd",
                     "peer", n->peer, "object", sentence_json(n->export_name), "phase", n->phase, "tls", n->tls,
                     "client", n->client, "since", (json_int_t)n->since_s);
}

static json_t *iscsi_json(const struct iscsi_session_info *s)
{
    return json_pack("{s:o, s:s, s:s, s:s, s:s, s:s, s:I, s:b, s:b}", "id", session_id("iscsi", s->id), "protocol",
                     "iscsi", "peer", s->peer, "object", s->target, "phase", s->phase, "initiator", s->initiator,
                     "since", (json_int_t)s->since_s, "header_digest", s->header_digest, "data_digest", s->data_digest);
}

/* Behind *at, in the order of the sessions. A place where nothing was counted, for LUNs there are not, is not shown. */
static json_t *luns_json(const struct sessions *s, uint32_t session, uint32_t *at)
{
    json_t *luns = json_array();
    for (; *at < s->luns_count && s->luns[*at].session <= session; ++*at) {
        const struct iscsi_lun_info *lun = &s->luns[*at];
        bool none = lun->lun == ISCSI_LUN_NONE;
        if (lun->session == session && (!none || io_stats_commands(&lun->io) + lun->io.troubles[IO_BAD_DIGEST] > 0))
            json_array_append_new(luns, json_pack("{s:o, s:o}", "lun", none ? json_null() : json_integer(lun->lun),
                                                  "io", io_json(&lun->io)));
    }
    return luns;
}

json_t *appliance_sessions(struct appliance *a)
{
    struct sessions s;
    json_t *out = json_array();
    uint32_t at = 0;
    sessions_look(a, &s);
    for (uint32_t i = 0; i < s.nbd_count; i++) {
        json_t *session = nbd_json(&s.nbd[i]);
        json_object_set_new(session, "io", io_json(&s.nbd[i].io));
        json_array_append_new(out, session);
    }
    for (uint32_t i = 0; i < s.iscsi_count; i++) {
        json_t *session = iscsi_json(&s.iscsi[i]);
        json_object_set_new(session, "io", io_json(&s.iscsi[i].io));
        json_object_set_new(session, "luns", luns_json(&s, s.iscsi[i].id, &at));
        json_array_append_new(out, session);
    }
    sessions_free(&s);
    return out;
}

/* For the status: a line each, and no more than so many. */
static void append_connection(json_t *list, json_t *session, const struct io_stats *io)
{
    json_object_set_new(session, "read_bytes", json_integer((json_int_t)io->read_bytes));
    json_object_set_new(session, "written_bytes", json_integer((json_int_t)io->written_bytes));
    json_object_set_new(session, "requests", json_integer((json_int_t)io_stats_commands(io)));
    json_array_append_new(list, session);
}

json_t *live_connections_json(struct appliance *a)
{
    enum { SHOWN = 256 };
    struct sessions s;
    json_t *out = json_array();
    sessions_look(a, &s);
    for (uint32_t i = 0; i < MIN(s.nbd_count, (uint32_t)SHOWN); i++)
        append_connection(out, nbd_json(&s.nbd[i]), &s.nbd[i].io);
    for (uint32_t i = 0; i < MIN(s.iscsi_count, (uint32_t)SHOWN); i++)
        append_connection(out, iscsi_json(&s.iscsi[i]), &s.iscsi[i].io);
    sessions_free(&s);
    return out;
}

/* --- the end of one --- */

struct drop_call {
    struct sync_call call;
    struct appliance *appliance;
    bool iscsi, found;
    uint32_t id;
    uint64_t grace_ns;
};

static void run_drop(struct sync_call *call)
{
    struct drop_call *c = container_of(call, struct drop_call, call);
    c->found = c->iscsi ? iscsi_server_drop(c->appliance->iscsi, c->id, c->grace_ns)
                        : nbd_server_drop(c->appliance->nbd, c->id, c->grace_ns);
    sync_finish(call);
}

/* "iscsi-3" or "nbd-7". */
static bool id_parse(const char *text, struct drop_call *c)
{
    c->iscsi = strncmp(text, "iscsi-", 6) == 0;
    if (!c->iscsi && strncmp(text, "nbd-", 4) != 0)
        return false;
    const char *digits = strchr(text, '-') + 1;
    size_t len = strlen(digits);
    if (len == 0 || len > 10 || strspn(digits, "0123456789") != len || strtoull(digits, NULL, 10) > UINT32_MAX)
        return false;
    c->id = (uint32_t)strtoull(digits, NULL, 10);
    return true;
}

const char *appliance_session_drop(struct appliance *a, const char *session, uint64_t *grace_ns)
{
    struct drop_call c = {.appliance = a, .grace_ns = a->config->daemon.drain_ns};
    if (!id_parse(session, &c)) {
        text_format(a->message, sizeof a->message, "\"%.64s\" is no session's id: they are like iscsi-3 or nbd-7",
                    session);
        return a->message;
    }
    sync_call(&c.call, reactor_loop(a->reactors[0]), run_drop);
    if (!c.found) {
        text_format(a->message, sizeof a->message, "there is no session %s", session);
        return a->message;
    }
    log_notice("session %s was asked to end", session);
    *grace_ns = c.grace_ns;
    return NULL;
}
