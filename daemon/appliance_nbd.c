/*
 * NBD's access lists and certificates on their way from the config to the server.
 *
 * Certificates or keys that cannot be read any more, because a file changed since the config was checked, leave those
 * that are in use.
 */
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_internal.h"
#include "daemon/config_nbd.h"

/* --- access --- */

static const char **texts_of(const struct config_strings *strings)
{
    const char **texts = calloc(MAX(strings->count, 1u), sizeof *texts);
    ASSERT(texts != NULL);
    for (unsigned i = 0; i < strings->count; i++)
        texts[i] = strings->items[i].text;
    return texts;
}

static struct nbd_rule *rules_make(const struct config_list *list)
{
    struct nbd_rule *rules = calloc(list->count, sizeof *rules);
    ASSERT(rules != NULL);
    for (unsigned i = 0; i < list->count; i++) {
        const struct config_client *rule = config_item(list, struct config_client, i);
        rules[i] = (struct nbd_rule){.name = rule->name.text,
                                     .clients = texts_of(&rule->clients),
                                     .client_count = rule->clients.count,
                                     .addresses = texts_of(&rule->addresses),
                                     .address_count = rule->addresses.count,
                                     .read_only = rule->read_only};
    }
    return rules;
}

void nbd_access_make(struct nbd_access_options *options, const struct config_export *export)
{
    *options = (struct nbd_access_options){.connections = (uint32_t) export->connections,
                                           .rules = export->access.count > 0 ? rules_make(&export->access) : NULL,
                                           .rule_count = export->access.count};
    bool known = config_tls_word(export->tls.text, &options->tls);
    ASSERT(known); /* checked with the config */
}

void nbd_access_drop(struct nbd_access_options *options)
{
    for (unsigned i = 0; i < options->rule_count; i++) {
        free((void *)options->rules[i].clients);
        free((void *)options->rules[i].addresses);
    }
    free((void *)options->rules);
}

struct access_call {
    struct sync_call call;
    struct appliance *appliance;
    const char *export;
    struct nbd_access_options options;
    int error;
};

static void run_set_access(struct sync_call *call)
{
    struct access_call *c = container_of(call, struct access_call, call);
    struct appliance *a = c->appliance;
    c->error = nbd_server_set_access(a->nbd, c->export, &c->options, a->config->daemon.drain_ns);
    sync_finish(call);
}

void live_nbd_access(struct appliance *a, const struct config *config)
{
    for (unsigned i = 0; i < config->nbd.exports.count; i++) {
        const struct config_export *export = config_item(&config->nbd.exports, struct config_export, i);
        struct access_call c = {.appliance = a, .export = export->name.text};
        if (live_export_find(a, c.export) == NULL)
            continue;
        nbd_access_make(&c.options, export);
        sync_call(&c.call, reactor_loop(a->reactors[0]), run_set_access);
        if (c.error != 0)
            log_error("NBD export \"%s\": its access list stays as it was: %s", c.export, strerror(-c.error));
        nbd_access_drop(&c.options);
    }
}

/* --- TLS --- */

struct tls_call {
    struct sync_call call;
    struct appliance *appliance;
    struct stream_credentials *credentials;
};

static void run_set_credentials(struct sync_call *call)
{
    struct tls_call *c = container_of(call, struct tls_call, call);
    nbd_server_set_credentials(c->appliance->nbd, c->credentials);
    sync_finish(call);
}

bool live_nbd_tls(struct appliance *a, const struct config *config)
{
    struct tls_call c = {.appliance = a};
    struct tls_settings settings = config_tls_settings(&config->nbd);
    const char *setting;
    char why[512];
    if (config_has_tls(&config->nbd)) {
        c.credentials = tls_credentials_create(&settings, &setting, why, sizeof why);
        if (c.credentials == NULL) {
            log_error("nbd.tls.%s: %s; TLS goes on as it was", setting, why);
            return false;
        }
    }
    if (tls_credentials_same(a->credentials, c.credentials)) {
        tls_credentials_free(c.credentials);
        return false;
    }
    sync_call(&c.call, reactor_loop(a->reactors[0]), run_set_credentials);
    tls_credentials_free(a->credentials);
    a->credentials = c.credentials;
    return true;
}

void live_nbd_tls_free(struct appliance *a)
{
    tls_credentials_free(a->credentials);
    a->credentials = NULL;
}
