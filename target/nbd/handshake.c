/*
 * The phase of options.
 *
 *   FLAGS -> OPTION -> DATA -+-> OPTION          answered
 *              |             +-> LIST            more to tell than fits at once
 *              |             +-> HAND_OVER       GO and EXPORT_NAME: when the answer is gone
 *              |             +-> FAREWELL        ABORT: when the answer is gone
 *              |             +-> SECURE -> OPTION   STARTTLS: when the answer is gone; begins anew over TLS
 *              +------> SKIP --> OPTION          refused: drop the data, then say so
 *
 *   FLAGS      waits for the client's flags         OPTION    waits for a header (all earlier answers are gone)
 *   DATA       waits for all of the option's data   SKIP      drops it as it comes
 *
 * advance() makes one step if it has the bytes for it. Options are rows of a table; an option that is not there is
 * answered with ERR_UNSUP, as the document wants (Baseline).
 */
#include "target/nbd/handshake.h"

#include "core/bytes.h"
#include "core/check.h"
#include "core/log.h"
#include "target/nbd/connection.h"
#include "target/nbd/contexts.h"

enum { FLAGS, OPTION, DATA, SKIP, LIST, SECURE, HAND_OVER, FAREWELL };

static const struct sm_state step_states[] = {
    [FLAGS] = {"nbd flags", SM_TO(OPTION)},
    [OPTION] = {"nbd option", SM_TO(DATA) | SM_TO(SKIP)},
    [DATA] = {"nbd option data", SM_TO(OPTION) | SM_TO(LIST) | SM_TO(SECURE) | SM_TO(HAND_OVER) | SM_TO(FAREWELL)},
    [SKIP] = {"nbd option skip", SM_TO(OPTION)},
    [LIST] = {"nbd list", SM_TO(OPTION)},
    [SECURE] = {"nbd secure", SM_TO(OPTION)},
    [HAND_OVER] = {"nbd hand over", 0},
    [FAREWELL] = {"nbd farewell", 0},
};

/* --- answers --- */

/* Where the next answer goes; advance() runs only when all earlier ones were sent, so the buffer is empty but for the
 * other pieces of the same answer. */
static uint8_t *out_at(struct nbd_conn *conn)
{
    return conn->negotiation.out + conn->negotiation.out_end;
}

static void out_add(struct nbd_conn *conn, size_t len)
{
    conn->negotiation.out_end += len;
    ASSERT(conn->negotiation.out_end <= NBD_NEGOTIATION_OUT);
}

static void answer_ack(struct nbd_conn *conn)
{
    out_add(conn, nbd_build_option_reply(out_at(conn), conn->negotiation.option.option, NBD_REP_ACK, 0));
}

static void answer_error(struct nbd_conn *conn, uint32_t type, const char *text)
{
    out_add(conn, nbd_build_option_error(out_at(conn), conn->negotiation.option.option, type, text));
}

static const char *refusal_text(uint32_t type)
{
    return type == NBD_REP_ERR_TOO_BIG ? "the export name is too long" : "the option's data is malformed";
}

/* --- options --- */

static bool is_full(struct nbd_conn *conn, const struct nbd_export *export)
{
    const char *full = nbd_server_full(conn->server, export);
    if (full != NULL)
        nbd_refusal(conn, export->name, full);
    return full != NULL;
}

static void option_export_name(struct nbd_conn *conn, const uint8_t *data, uint32_t len)
{
    struct nbd_negotiation *n = &conn->negotiation;
    uint32_t error;
    if (conn->mode == NBD_EXTENDED) {
        nbd_conn_cut(conn, "EXPORT_NAME after EXTENDED_HEADERS");
        return;
    }
    n->chosen = nbd_access_find(conn, (const char *)data, len, &error);
    if (n->chosen == NULL || is_full(conn, n->chosen)) { /* this option knows no error reply */
        nbd_conn_cut(conn, n->chosen == NULL ? nbd_access_text(error) : "too many connections");
        return;
    }
    bool zeroes = !(n->client_flags & NBD_HANDSHAKE_NO_ZEROES);
    uint16_t flags = nbd_export_flags(n->chosen, conn->mode);
    out_add(conn, nbd_build_old_reply(out_at(conn), n->chosen->dev->info.size, flags, zeroes));
    sm_move(&n->step, HAND_OVER);
}

static void option_abort(struct nbd_conn *conn, const uint8_t *data, uint32_t len)
{
    (void)data;
    (void)len;
    answer_ack(conn);
    sm_move(&conn->negotiation.step, FAREWELL);
}

static void option_list(struct nbd_conn *conn, const uint8_t *data, uint32_t len)
{
    (void)data;
    (void)len;
    conn->negotiation.next = STAILQ_FIRST(&conn->server->exports);
    sm_move(&conn->negotiation.step, LIST);
}

static void answer_info(struct nbd_conn *conn, const struct nbd_export *export, uint32_t wanted)
{
    uint32_t option = conn->negotiation.option.option;
    uint16_t flags = nbd_export_flags(export, conn->mode);
    out_add(conn, nbd_build_info_export(out_at(conn), option, export->dev->info.size, flags));
    if (wanted & 1u << NBD_INFO_NAME)
        out_add(conn, nbd_build_info_text(out_at(conn), option, NBD_INFO_NAME, export->name));
    if ((wanted & 1u << NBD_INFO_DESCRIPTION) && export->description[0] != '\0')
        out_add(conn, nbd_build_info_text(out_at(conn), option, NBD_INFO_DESCRIPTION, export->description));
    if (wanted & 1u << NBD_INFO_BLOCK_SIZE)
        out_add(conn, nbd_build_info_block_size(out_at(conn), option, export->dev->info.logical_block,
                                                nbd_export_preferred(export), nbd_export_payload_max(export)));
    answer_ack(conn);
}

/* The export that an option's data names, when they were taken apart (`error` of the parser). NULL: why not is
 * answered. */
static const struct nbd_export *named_export(struct nbd_conn *conn, uint32_t error, const char *name, uint32_t name_len)
{
    if (error != 0) {
        answer_error(conn, error, refusal_text(error));
        return NULL;
    }
    const struct nbd_export *export = nbd_access_find(conn, name, name_len, &error);
    if (export == NULL)
        answer_error(conn, error, nbd_access_text(error));
    return export;
}

/* INFO and GO. */
static void option_info(struct nbd_conn *conn, const uint8_t *data, uint32_t len)
{
    struct nbd_negotiation *n = &conn->negotiation;
    struct nbd_info_request request = {.name = NULL};
    uint32_t error = nbd_parse_info_request(data, len, &request);
    const struct nbd_export *export = named_export(conn, error, request.name, request.name_len);
    if (export == NULL)
        return;
    if (n->option.option == NBD_OPT_GO && is_full(conn, export)) {
        answer_error(conn, NBD_REP_ERR_POLICY, "there are as many connections as may be");
        return;
    }
    answer_info(conn, export, request.wanted);
    if (n->option.option == NBD_OPT_GO) {
        n->chosen = export;
        sm_move(&n->step, HAND_OVER);
    }
}

static void option_structured_reply(struct nbd_conn *conn, const uint8_t *data, uint32_t len)
{
    (void)data;
    (void)len;
    if (conn->mode == NBD_EXTENDED) {
        answer_error(conn, NBD_REP_ERR_EXT_HEADER_REQD, "extended headers have structured replies");
        return;
    }
    conn->mode = NBD_STRUCTURED;
    answer_ack(conn);
}

static void option_extended_headers(struct nbd_conn *conn, const uint8_t *data, uint32_t len)
{
    (void)data;
    (void)len;
    conn->mode = NBD_EXTENDED;
    answer_ack(conn);
}

/*
 * What was sent in clear behind STARTTLS, by whoever sits in the middle, must not be taken for what comes over TLS
 * (CVE-2021-3716); a client waits for the answer, so there is nothing of its own.
 */
static void option_starttls(struct nbd_conn *conn, const uint8_t *data, uint32_t len)
{
    (void)data;
    (void)len;
    if (conn->client.secured) {
        answer_error(conn, NBD_REP_ERR_INVALID, "TLS is there already");
    } else if (conn->client.tls == NBD_TLS_OFF || conn->server->credentials == NULL) {
        answer_error(conn, NBD_REP_ERR_POLICY, "there is no TLS here");
    } else if (nbd_input_len(&conn->input) > 0) {
        nbd_refusal(conn, "", "it sent bytes in clear behind STARTTLS");
        nbd_conn_cut(conn, "bytes in clear behind STARTTLS");
    } else {
        answer_ack(conn);
        sm_move(&conn->negotiation.step, SECURE);
    }
}

/* LIST_META_CONTEXT and SET_META_CONTEXT. What was set before was forgotten when the header came. */
static void option_meta_context(struct nbd_conn *conn, const uint8_t *data, uint32_t len)
{
    struct nbd_negotiation *n = &conn->negotiation;
    bool is_list = n->option.option == NBD_OPT_LIST_META_CONTEXT;
    struct nbd_meta_request request = {.name = NULL};
    if (conn->mode == NBD_SIMPLE && !is_list) {
        answer_error(conn, NBD_REP_ERR_INVALID, "structured replies or extended headers come first");
        return;
    }
    uint32_t error = nbd_parse_meta_request(data, len, &request);
    const struct nbd_export *export = named_export(conn, error, request.name, request.name_len);
    if (export == NULL)
        return;
    uint32_t asked = nbd_contexts_asked(&request, is_list);
    for (unsigned i = 0; i < NBD_CONTEXTS; i++) {
        const struct nbd_context *context = &nbd_contexts[i];
        if (context->bit & asked)
            out_add(conn,
                    nbd_build_meta_context(out_at(conn), n->option.option, is_list ? 0 : context->id, context->name));
    }
    if (!is_list) {
        n->contexts = asked;
        n->contexts_of = export->name;
    }
    answer_ack(conn);
}

/* A handler answers, and moves on if the next step is not another option; if it does neither, the connection is cut. */
struct option_rule {
    uint32_t option;
    bool takes_data; /* if not: any data is answered with ERR_INVALID */
    void (*handle)(struct nbd_conn *, const uint8_t *data, uint32_t len);
};

static const struct option_rule option_rules[] = {
    {NBD_OPT_EXPORT_NAME, true, option_export_name},
    {NBD_OPT_ABORT, true, option_abort}, /* its data is ignored */
    {NBD_OPT_LIST, false, option_list},
    {NBD_OPT_INFO, true, option_info},
    {NBD_OPT_GO, true, option_info},
    {NBD_OPT_STRUCTURED_REPLY, false, option_structured_reply},
    {NBD_OPT_LIST_META_CONTEXT, true, option_meta_context},
    {NBD_OPT_SET_META_CONTEXT, true, option_meta_context},
    {NBD_OPT_EXTENDED_HEADERS, false, option_extended_headers},
    {NBD_OPT_STARTTLS, false, option_starttls},
};

static const struct option_rule *rule_find(uint32_t option)
{
    for (size_t i = 0; i < ARRAY_LENGTH(option_rules); i++)
        if (option_rules[i].option == option)
            return &option_rules[i];
    return NULL;
}

/* --- steps --- */

static bool step_flags(struct nbd_conn *conn)
{
    if (nbd_input_len(&conn->input) < NBD_CLIENT_FLAGS_BYTES)
        return false;
    if (!nbd_parse_client_flags(nbd_input_at(&conn->input), &conn->negotiation.client_flags)) {
        nbd_conn_cut(conn, "unknown client flags");
        return false;
    }
    conn->input.start += NBD_CLIENT_FLAGS_BYTES;
    sm_move(&conn->negotiation.step, OPTION);
    return true;
}

static bool refuse(struct nbd_conn *conn, uint32_t error, const char *text)
{
    struct nbd_negotiation *n = &conn->negotiation;
    n->skip = n->option.len;
    n->refusal = error;
    n->refusal_text = text;
    sm_move(&n->step, SKIP);
    return true;
}

static bool cut(struct nbd_conn *conn, const char *why)
{
    nbd_conn_cut(conn, why);
    return false;
}

/* FORCEDTLS of the document. */
static bool must_start_tls(const struct nbd_conn *conn)
{
    uint32_t option = conn->negotiation.option.option;
    return conn->client.tls == NBD_TLS_REQUIRE && !conn->client.secured && option != NBD_OPT_STARTTLS &&
           option != NBD_OPT_ABORT;
}

static bool step_option(struct nbd_conn *conn)
{
    struct nbd_negotiation *n = &conn->negotiation;
    if (nbd_input_len(&conn->input) < NBD_OPTION_BYTES)
        return false;
    if (!nbd_parse_option(nbd_input_at(&conn->input), &n->option))
        return cut(conn, "bad option magic");
    conn->input.start += NBD_OPTION_BYTES;
    if (n->option.option == NBD_OPT_SET_META_CONTEXT)
        n->contexts = 0; /* replaced, also if this one fails */
    /* A client that is not "fixed" may not understand any reply but the one to EXPORT_NAME, which has no errors. */
    bool is_export_name = n->option.option == NBD_OPT_EXPORT_NAME;
    if (!is_export_name && !(n->client_flags & NBD_HANDSHAKE_FIXED_NEWSTYLE))
        return cut(conn, "an option that needs fixed newstyle");
    if (is_export_name && n->option.len > NBD_NAME_MAX)
        return cut(conn, "export name too long");
    const struct option_rule *rule = rule_find(n->option.option);
    if (must_start_tls(conn))
        return is_export_name ? cut(conn, "EXPORT_NAME without TLS")
                              : refuse(conn, NBD_REP_ERR_TLS_REQD, nbd_access_text(NBD_REP_ERR_TLS_REQD));
    if (rule == NULL)
        return refuse(conn, NBD_REP_ERR_UNSUP, "option not supported");
    if (n->option.len > NBD_OPTION_DATA_MAX)
        return refuse(conn, NBD_REP_ERR_TOO_BIG, "the option's data is too long");
    if (n->option.len > 0 && !rule->takes_data)
        return refuse(conn, NBD_REP_ERR_INVALID, "this option takes no data");
    sm_move(&n->step, DATA);
    return true;
}

static bool step_data(struct nbd_conn *conn)
{
    struct nbd_negotiation *n = &conn->negotiation;
    if (nbd_input_len(&conn->input) < n->option.len)
        return false;
    const uint8_t *data = nbd_input_at(&conn->input);
    conn->input.start += n->option.len;
    rule_find(n->option.option)->handle(conn, data, n->option.len);
    if (!nbd_conn_in(conn, NBD_NEGOTIATING))
        return false;
    if (sm_state(&n->step) == DATA)
        sm_move(&n->step, OPTION);
    return true;
}

static bool step_skip(struct nbd_conn *conn)
{
    struct nbd_negotiation *n = &conn->negotiation;
    uint32_t part = (uint32_t)MIN(n->skip, nbd_input_len(&conn->input));
    conn->input.start += part;
    n->skip -= part;
    if (n->skip > 0)
        return false;
    answer_error(conn, n->refusal, n->refusal_text);
    sm_move(&n->step, OPTION);
    return true;
}

/* As many exports as are sure to fit. */
static bool step_list(struct nbd_conn *conn)
{
    enum { ENTRY_MAX = NBD_OPTION_REPLY_BYTES + 4 + 2 * NBD_NAME_MAX };
    struct nbd_negotiation *n = &conn->negotiation;
    uint32_t error;
    for (; n->next != NULL && NBD_NEGOTIATION_OUT - n->out_end >= ENTRY_MAX; n->next = STAILQ_NEXT(n->next, link))
        if (!n->next->hidden && nbd_access_judge(&conn->client, n->next, &error) != NULL)
            out_add(conn, nbd_build_list_entry(out_at(conn), n->next->name, n->next->description));
    if (n->next == NULL && NBD_NEGOTIATION_OUT - n->out_end >= NBD_OPTION_REPLY_BYTES) {
        answer_ack(conn);
        sm_move(&n->step, OPTION);
    }
    return true;
}

static void secured(struct stream *stream, const char *failure);

/* What was agreed upon in clear is forgotten. The timer goes on. The credentials may have been taken away while the
 * answer was on its way. */
static bool step_secure(struct nbd_conn *conn)
{
    if (conn->server->credentials == NULL)
        return cut(conn, "there is no TLS any more");
    conn->mode = NBD_SIMPLE;
    conn->negotiation.contexts = 0;
    nbd_conn_want(conn, 0);
    if (!stream_start_tls(conn->stream, conn->server->credentials, secured))
        return cut(conn, "no memory for TLS");
    return false;
}

static bool step_hand_over(struct nbd_conn *conn)
{
    timer_stop(conn->loop, &conn->negotiation.timer);
    nbd_conn_hand_over(conn, conn->negotiation.chosen);
    return false;
}

static bool step_farewell(struct nbd_conn *conn)
{
    return cut(conn, "the client said goodbye");
}

/* One step. False: more bytes are needed, or the negotiation is over. */
static bool advance(struct nbd_conn *conn)
{
    static bool (*const steps[])(struct nbd_conn *) = {
        [FLAGS] = step_flags, [OPTION] = step_option, [DATA] = step_data,           [SKIP] = step_skip,
        [LIST] = step_list,   [SECURE] = step_secure, [HAND_OVER] = step_hand_over, [FAREWELL] = step_farewell,
    };
    return steps[sm_state(&conn->negotiation.step)](conn);
}

/* --- the stream --- */

/* True when all of it is gone. */
static bool send_answers(struct nbd_conn *conn)
{
    struct nbd_negotiation *n = &conn->negotiation;
    while (n->out_start < n->out_end) {
        struct iovec iov = {n->out + n->out_start, n->out_end - n->out_start};
        ssize_t sent = stream_send(conn->stream, &iov, 1);
        if (sent == STREAM_AGAIN)
            return false;
        if (sent < 0)
            return cut(conn, "the client is gone");
        n->out_start += (size_t)sent;
    }
    n->out_start = n->out_end = 0;
    return true;
}

static void run(struct nbd_conn *conn)
{
    for (;;) {
        bool sent = send_answers(conn);
        if (!nbd_conn_in(conn, NBD_NEGOTIATING))
            return;
        if (!sent) {
            nbd_conn_want(conn, STREAM_WRITE);
            return;
        }
        if (!advance(conn))
            break;
    }
    if (sm_state(&conn->negotiation.step) == HAND_OVER || sm_state(&conn->negotiation.step) == SECURE)
        return; /* it may live on another loop already; or the stream is not to be touched */
    if (nbd_conn_in(conn, NBD_NEGOTIATING))
        nbd_conn_want(conn, STREAM_READ);
}

static void readable(struct stream *stream)
{
    struct nbd_conn *conn = stream->owner_data;
    struct iovec room = nbd_input_room(&conn->input);
    ssize_t got = stream_recv(stream, &room, 1);
    if (got == STREAM_AGAIN)
        return;
    if (got <= 0) {
        nbd_conn_cut(conn, "the client went away while it negotiated");
        return;
    }
    conn->input.end += (size_t)got;
    run(conn);
}

static void writable(struct stream *stream)
{
    run(stream->owner_data);
}

static void secured(struct stream *stream, const char *failure)
{
    struct nbd_conn *conn = stream->owner_data;
    if (failure != NULL) {
        nbd_refusal(conn, "", failure);
        nbd_conn_cut(conn, failure);
        return;
    }
    conn->client.secured = true;
    conn->client.proof = *stream->proof;
    log_debug("nbd: %s: %s, %s", conn->peer, stream->proof->method,
              stream->proof->count > 0 ? stream->proof->names[0] : "nothing proved");
    sm_move(&conn->negotiation.step, OPTION);
    run(conn);
}

static void out_of_time(struct timer *timer)
{
    nbd_conn_cut(container_of(timer, struct nbd_conn, negotiation.timer), "the negotiation took too long");
}

static const struct stream_owner handshake_owner = {readable, writable};

void nbd_handshake_start(struct nbd_conn *conn)
{
    struct nbd_negotiation *n = &conn->negotiation;
    sm_init(&n->step, step_states, ARRAY_LENGTH(step_states), FLAGS);
    n->timer.fire = out_of_time;
    timer_start(conn->loop, &n->timer, conn->server->limits.negotiation_ns);
    conn->stream->owner = &handshake_owner;
    conn->stream->owner_data = conn;
    out_add(conn, nbd_build_greeting(out_at(conn)));
    run(conn);
}
