/* Checks of NBD's listeners, TLS and access lists, which read the files of TLS too: see daemon/config_nbd.h. */
#include "daemon/config_nbd.h"

#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "daemon/config_table.h"
#include "target/match.h"

struct checker {
    const struct config *config;
    const struct config_nbd *nbd;
    struct config_errors *errors;
};

#define report(c, line, setting, ...) config_error((c)->errors, (c)->config->path, line, setting, __VA_ARGS__)

/* --- words --- */

bool config_tls_word(const char *word, enum nbd_tls *out)
{
    static const char *const words[] = {
        [NBD_TLS_OFF] = "off", [NBD_TLS_ALLOW] = "allow", [NBD_TLS_REQUIRE] = "require"};
    for (unsigned i = 0; i < ARRAY_LENGTH(words); i++)
        if (strcmp(word, words[i]) == 0) {
            *out = (enum nbd_tls)i;
            return true;
        }
    return false;
}

bool config_has_tls(const struct config_nbd *nbd)
{
    return *nbd->tls.certificate.text != '\0' || *nbd->tls.psk.text != '\0';
}

enum nbd_tls config_listener_tls(const struct config_nbd *nbd, const char *word)
{
    enum nbd_tls tls = config_has_tls(nbd) ? NBD_TLS_REQUIRE : NBD_TLS_OFF;
    config_tls_word(*word != '\0' ? word : nbd->tls.mode.text, &tls);
    return tls;
}

struct tls_settings config_tls_settings(const struct config_nbd *nbd)
{
    const struct config_tls *tls = &nbd->tls;
    return (struct tls_settings){.certificate = tls->certificate.text,
                                 .key = tls->key.text,
                                 .ca = tls->ca.text,
                                 .revoked = tls->revoked.text,
                                 .clients_need_one = tls->verify_clients,
                                 .psk = tls->psk.text};
}

bool config_mode_word(const char *word, mode_t *out)
{
    size_t len = strlen(word);
    *out = (mode_t)strtoul(word, NULL, 8);
    return len >= 3 && len <= 4 && strspn(word, "01234567") == len && *out <= 0777;
}

static bool is_number(const char *word)
{
    size_t len = strlen(word);
    return len > 0 && len < 10 && strspn(word, "0123456789") == len;
}

bool config_user_word(const char *word, uid_t *out)
{
    const struct passwd *user = *word != '\0' && !is_number(word) ? getpwnam(word) : NULL;
    *out = user != NULL ? user->pw_uid : is_number(word) ? (uid_t)strtoul(word, NULL, 10) : (uid_t)-1;
    return *word == '\0' || *out != (uid_t)-1;
}

bool config_group_word(const char *word, gid_t *out)
{
    const struct group *group = *word != '\0' && !is_number(word) ? getgrnam(word) : NULL;
    *out = group != NULL ? group->gr_gid : is_number(word) ? (gid_t)strtoul(word, NULL, 10) : (gid_t)-1;
    return *word == '\0' || *out != (gid_t)-1;
}

/* --- TLS --- */

static void check_tls_word(struct checker *c, const struct config_text *word, const char *setting)
{
    enum nbd_tls tls = NBD_TLS_OFF;
    if (*word->text != '\0' && !config_tls_word(word->text, &tls))
        report(c, word->line, setting, "\"%s\" is neither off, allow nor require", word->text);
    else if (!config_has_tls(c->nbd) && tls != NBD_TLS_OFF)
        report(c, word->line, setting, "\"%s\" needs nbd.tls with a certificate or a psk", word->text);
}

/* The line of a setting of nbd.tls. */
static unsigned tls_line(const struct config_tls *tls, const char *setting)
{
    const struct {
        const char *setting;
        unsigned line;
    } lines[] = {{"certificate", tls->certificate.line},
                 {"key", tls->key.line},
                 {"ca", tls->ca.line},
                 {"revoked", tls->revoked.line},
                 {"psk", tls->psk.line}};
    for (unsigned i = 0; i < ARRAY_LENGTH(lines); i++)
        if (strcmp(setting, lines[i].setting) == 0 && lines[i].line > 0)
            return lines[i].line;
    return tls->line;
}

static void check_tls(struct checker *c)
{
    const struct config_tls *tls = &c->nbd->tls;
    const struct config_text *files[] = {&tls->certificate, &tls->key, &tls->ca, &tls->revoked, &tls->psk};
    const char *setting = NULL;
    char why[512];
    bool some = false, good = true;
    check_tls_word(c, &tls->mode, "mode");
    for (unsigned i = 0; i < ARRAY_LENGTH(files); i++) {
        some |= *files[i]->text != '\0';
        if (*files[i]->text == '\0' || *files[i]->text == '/')
            continue;
        good = false;
        report(c, files[i]->line, "tls", "\"%s\" must be an absolute path", files[i]->text);
    }
    if (!some || !good)
        return;
    struct tls_settings settings = config_tls_settings(c->nbd);
    struct stream_credentials *credentials = tls_credentials_create(&settings, &setting, why, sizeof why);
    if (credentials == NULL)
        report(c, tls_line(tls, setting), setting, "%s", why);
    tls_credentials_free(credentials);
}

/* --- listeners --- */

static void check_listener(struct checker *c, const struct config_listener *listener)
{
    mode_t mode;
    uid_t user;
    gid_t group;
    bool is_file = strncmp(listener->address.text, "unix:", 5) == 0;
    config_check_address(c->config, c->errors, &listener->address, true);
    check_tls_word(c, &listener->tls, "tls");
    if (!config_mode_word(listener->mode.text, &mode))
        report(c, listener->mode.line, "mode", "\"%s\" is no mode of a file, like 0660", listener->mode.text);
    if (!config_user_word(listener->owner.text, &user))
        report(c, listener->owner.line, "owner", "there is no user \"%s\"", listener->owner.text);
    if (!config_group_word(listener->group.text, &group))
        report(c, listener->group.line, "group", "there is no group \"%s\"", listener->group.text);
    if (!is_file && (listener->mode.line > 0 || *listener->owner.text != '\0' || *listener->group.text != '\0'))
        report(c, listener->line, "listeners", "\"%s\" is no Unix socket: it has no mode, owner and group",
               listener->address.text);
}

static void check_listeners(struct checker *c)
{
    for (unsigned i = 0; i < c->nbd->listeners.count; i++) {
        const struct config_listener *listener = config_item(&c->nbd->listeners, struct config_listener, i);
        const char *port = strrchr(listener->address.text, ':');
        bool twice = false;
        check_listener(c, listener);
        for (unsigned j = 0; j < c->nbd->listen.count; j++)
            twice |= strcmp(c->nbd->listen.items[j].text, listener->address.text) == 0;
        for (unsigned j = 0; j < i; j++)
            twice |= strcmp(config_item(&c->nbd->listeners, struct config_listener, j)->address.text,
                            listener->address.text) == 0;
        if (twice && (port == NULL || strcmp(port, ":0") != 0))
            report(c, listener->address.line, "address", "\"%s\" is given twice", listener->address.text);
    }
}

/* --- access --- */

static void check_client(struct checker *c, const struct config_client *rule)
{
    for (unsigned i = 0; i < rule->clients.count; i++)
        if (!nbd_client_pattern_valid(rule->clients.items[i].text))
            report(c, rule->clients.items[i].line, "clients",
                   "\"%s\" must be \"*\", or begin with cn:, dns:, email:, uri:, ip: or psk:",
                   rule->clients.items[i].text);
    for (unsigned i = 0; i < rule->addresses.count; i++)
        if (!match_network_valid(rule->addresses.items[i].text))
            report(c, rule->addresses.items[i].line, "addresses",
                   "\"%s\" must be an IP address, or one with the length of a prefix, like 192.0.2.0/24",
                   rule->addresses.items[i].text);
    if (rule->clients.count > 0 && *c->nbd->tls.ca.text == '\0' && *c->nbd->tls.psk.text == '\0')
        report(c, rule->clients.items[0].line, "clients",
               "rule \"%s\": nobody can prove anything without nbd.tls with a ca or a psk", rule->name.text);
}

static void check_export(struct checker *c, const struct config_export *export)
{
    enum nbd_tls tls;
    if (!config_tls_word(export->tls.text, &tls))
        report(c, export->tls.line, "tls", "\"%s\" is neither off, allow nor require", export->tls.text);
    else if (tls == NBD_TLS_REQUIRE && !config_has_tls(c->nbd))
        report(c, export->tls.line, "tls", "\"require\" needs nbd.tls with a certificate or a psk");
    if (export->access.items != NULL && export->access.count == 0)
        report(c, export->line, "access", "is empty: nobody could come in; without it everybody may");
    for (unsigned i = 0; i < export->access.count; i++) {
        const struct config_client *rule = config_item(&export->access, struct config_client, i);
        check_client(c, rule);
        for (unsigned j = 0; j < i; j++)
            if (strcmp(config_item(&export->access, struct config_client, j)->name.text, rule->name.text) == 0)
                report(c, rule->line, "name", "\"%s\" is given twice", rule->name.text);
    }
}

void config_check_nbd(const struct config *config, struct config_errors *errors)
{
    struct checker c = {config, &config->nbd, errors};
    check_tls(&c);
    check_listeners(&c);
    for (unsigned i = 0; i < config->nbd.exports.count; i++)
        check_export(&c, config_item(&config->nbd.exports, struct config_export, i));
}
