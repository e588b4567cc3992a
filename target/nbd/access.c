/* Who may use which export: see target/nbd/access.h. */
#include "target/nbd/access.h"

#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "target/match.h"
#include "target/nbd/connection.h"

struct rule {
    struct match_rule whom;
    bool read_only;
};

struct nbd_access {
    unsigned count;
    struct rule rules[];
};

/* --- rules --- */

static bool is_kind(const char *pattern, const char *kind)
{
    size_t len = strlen(kind);
    return strncmp(pattern, kind, len) == 0 && pattern[len] != '\0';
}

bool nbd_client_pattern_valid(const char *pattern)
{
    static const char *const kinds[] = {"cn:", "dns:", "email:", "uri:", "ip:", "psk:"};
    bool valid = strcmp(pattern, "*") == 0;
    for (unsigned i = 0; i < ARRAY_LENGTH(kinds); i++)
        valid = valid || is_kind(pattern, kinds[i]);
    return valid && strlen(pattern) <= STREAM_NAME_MAX;
}

bool nbd_rules_valid(const struct nbd_rule *rules, unsigned count)
{
    bool valid = true;
    for (unsigned i = 0; i < count; i++) {
        for (unsigned j = 0; j < rules[i].client_count; j++)
            valid = valid && nbd_client_pattern_valid(rules[i].clients[j]);
        for (unsigned j = 0; j < rules[i].address_count; j++)
            valid = valid && match_network_valid(rules[i].addresses[j]);
    }
    return valid;
}

/* Names in the DNS are the same in any case; others are not. */
static bool has_proved(const struct rule *rule, const struct nbd_client *client)
{
    const struct match_rule *whom = &rule->whom;
    bool proved = whom->pattern_count == 0;
    for (unsigned i = 0; i < whom->pattern_count && client->secured; i++)
        for (unsigned j = 0; j < client->proof.count && !proved; j++)
            proved = match_pattern(whom->patterns[i], client->proof.names[j], is_kind(whom->patterns[i], "dns:"));
    return proved;
}

/* The first that speaks for the client; `maybe`: or would, if it proved something. */
static const struct rule *find_rule(const struct nbd_access *access, const struct nbd_client *client, bool maybe)
{
    for (unsigned i = 0; i < access->count; i++)
        if (match_rule_at(&access->rules[i].whom, client->has_host ? client->host : NULL) &&
            (maybe || has_proved(&access->rules[i], client)))
            return &access->rules[i];
    return NULL;
}

const struct nbd_export *nbd_access_judge(const struct nbd_client *client, const struct nbd_export *export,
                                          uint32_t *error)
{
    const struct nbd_access *access = export->access;
    bool could_secure = client->tls != NBD_TLS_OFF && !client->secured && export->tls != NBD_TLS_OFF;
    bool tls_fits = client->secured ? export->tls != NBD_TLS_OFF : export->tls != NBD_TLS_REQUIRE;
    const struct rule *rule = access != NULL ? find_rule(access, client, false) : NULL;
    if (tls_fits && (access == NULL || rule != NULL))
        return rule != NULL && rule->read_only ? export->twin : export;
    bool told = could_secure && (access == NULL || find_rule(access, client, true) != NULL);
    *error = told ? NBD_REP_ERR_TLS_REQD : NBD_REP_ERR_UNKNOWN;
    return NULL;
}

const char *nbd_access_text(uint32_t error)
{
    return error == NBD_REP_ERR_TLS_REQD ? "TLS is required" : "there is no export of this name";
}

const struct nbd_export *nbd_access_find(struct nbd_conn *conn, const char *name, uint32_t name_len, uint32_t *error)
{
    const struct nbd_export *export = nbd_export_find(conn->server, name, name_len), *own;
    *error = NBD_REP_ERR_UNKNOWN;
    if (export == NULL)
        return NULL;
    own = nbd_access_judge(&conn->client, export, error);
    if (own == NULL && *error == NBD_REP_ERR_UNKNOWN)
        nbd_refusal(conn, export->name, "it may not use it from here, as what it has proved to be");
    return own;
}

/* --- clients --- */

void nbd_client_init(struct nbd_client *client, const char *peer, enum nbd_tls tls)
{
    *client = (struct nbd_client){.tls = tls};
    client->has_host = match_host(peer, client->host);
}

void nbd_refusal(struct nbd_conn *conn, const char *object, const char *why)
{
    const struct stream_proof *proof = &conn->client.proof;
    struct nbd_server *server = conn->server;
    refusal_tell(&server->refusals, loop_now_ns(server->loop), "NBD", conn->peer,
                 proof->count > 0 ? proof->names[0] : "", object, 0, why);
}

/* --- life --- */

struct nbd_access *nbd_access_create(const struct nbd_rule *rules, unsigned count)
{
    struct nbd_access *access = calloc(1, sizeof *access + count * sizeof access->rules[0]);
    bool good = access != NULL && nbd_rules_valid(rules, count);
    for (unsigned i = 0; i < count && good; i++) {
        const struct nbd_rule *from = &rules[i];
        struct rule *rule = &access->rules[access->count++];
        rule->read_only = from->read_only;
        good = match_rule_init(&rule->whom, from->clients, from->client_count, from->addresses, from->address_count);
    }
    if (good)
        return access;
    nbd_access_free(access);
    return NULL;
}

void nbd_access_free(struct nbd_access *access)
{
    if (access == NULL)
        return;
    for (unsigned i = 0; i < access->count; i++)
        match_rule_free(&access->rules[i].whom);
    free(access);
}
