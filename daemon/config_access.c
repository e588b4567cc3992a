/* Checks of access lists, which read the secrets' files too: see daemon/config.h. */
#include <string.h>

#include "core/check.h"
#include "daemon/config_table.h"
#include "daemon/secrets.h"
#include "target/iscsi/iscsi.h"
#include "target/match.h"

struct checker {
    const struct config *config;
    struct config_errors *errors;
};

#define report(c, line, setting, ...) config_error((c)->errors, (c)->config->path, line, setting, __VA_ARGS__)

/* A user needs a file, and a file a user; what is in the file must do. True: there is a secret, in `out`. */
static bool check_secret(struct checker *c, const struct config_access *access, const struct config_text *user,
                         const struct config_text *file, const char *setting, struct secret *out)
{
    char why[512];
    if ((*user->text == '\0') != (*file->text == '\0')) {
        report(c, MAX(user->line, file->line), setting, "rule \"%s\": a user and the file of its secret go together",
               access->name.text);
        return false;
    }
    if (*file->text == '\0')
        return false;
    if (*file->text != '/')
        report(c, file->line, setting, "\"%s\" must be an absolute path", file->text);
    else if (strlen(user->text) > CHAP_NAME_MAX)
        report(c, user->line, setting, "rule \"%s\": the user's name is longer than %d bytes", access->name.text,
               CHAP_NAME_MAX);
    else if (!secret_read(file->text, c->config->iscsi.short_secrets, out, why, sizeof why))
        report(c, file->line, setting, "%s", why);
    else
        return true;
    return false;
}

/* RFC 7143, 9.2.1: not the same secret for both directions. */
static void check_secrets(struct checker *c, const struct config_access *access)
{
    struct secret host = {0}, target = {0};
    bool has_host = check_secret(c, access, &access->user, &access->secret_file, "secret_file", &host);
    bool has_target =
        check_secret(c, access, &access->target_user, &access->target_secret_file, "target_secret_file", &target);
    if (has_host && has_target && strcmp(host.text, target.text) == 0)
        report(c, access->target_secret_file.line, "target_secret_file",
               "rule \"%s\": both directions have the same secret; they must differ", access->name.text);
    if (*access->target_user.text != '\0' && *access->user.text == '\0')
        report(c, access->target_user.line, "target_user", "rule \"%s\": a target_user without a user has no use",
               access->name.text);
    secret_wipe(&host);
    secret_wipe(&target);
}

static bool target_has_volume(const struct config_target *target, const char *volume)
{
    for (unsigned i = 0; i < target->luns.count; i++)
        if (strcmp(config_item(&target->luns, struct config_lun, i)->volume.text, volume) == 0)
            return true;
    return false;
}

/* `target` NULL: of discovery. */
static void check_rule_luns(struct checker *c, const struct config_access *access, const struct config_target *target)
{
    if (target == NULL && (access->luns.items != NULL || access->read_only))
        report(c, access->line, "discovery", "rule \"%s\": luns and read_only belong to a target's access",
               access->name.text);
    for (unsigned i = 0; target != NULL && i < access->luns.count; i++) {
        const struct config_lun *lun = config_item(&access->luns, struct config_lun, i);
        if (!target_has_volume(target, lun->volume.text))
            report(c, lun->volume.line, "volume", "rule \"%s\": \"%s\" is not among the luns of target \"%s\"",
                   access->name.text, lun->volume.text, target->name.text);
        for (unsigned j = 0; j < i; j++)
            if (config_item(&access->luns, struct config_lun, j)->lun == lun->lun)
                report(c, lun->line, "lun", "%u is given twice in rule \"%s\"", (unsigned)lun->lun, access->name.text);
    }
}

static void check_rule(struct checker *c, const struct config_access *access, const struct config_target *target)
{
    for (unsigned i = 0; i < access->initiators.count; i++)
        if (access->initiators.items[i].text[0] == '\0' || strlen(access->initiators.items[i].text) > ISCSI_NAME_MAX)
            report(c, access->initiators.items[i].line, "initiators", "item %u is empty or longer than %d bytes", i + 1,
                   ISCSI_NAME_MAX);
    for (unsigned i = 0; i < access->addresses.count; i++)
        if (!match_network_valid(access->addresses.items[i].text))
            report(c, access->addresses.items[i].line, "addresses",
                   "\"%s\" must be an IP address, or one with the length of a prefix, like 192.0.2.0/24",
                   access->addresses.items[i].text);
    check_secrets(c, access);
    check_rule_luns(c, access, target);
}

static void check_list(struct checker *c, const struct config_list *list, const struct config_target *target)
{
    unsigned line = target != NULL ? target->line : c->config->iscsi.line;
    const char *setting = target != NULL ? "access" : "discovery";
    if (list->items != NULL && list->count == 0)
        report(c, line, setting, "is empty: nobody could come in; without it everybody may");
    for (unsigned i = 0; i < list->count; i++) {
        const struct config_access *access = config_item(list, struct config_access, i);
        check_rule(c, access, target);
        for (unsigned j = 0; j < i; j++)
            if (strcmp(config_item(list, struct config_access, j)->name.text, access->name.text) == 0)
                report(c, access->line, "name", "\"%s\" is given twice", access->name.text);
    }
}

void config_check_access(const struct config *config, struct config_errors *errors)
{
    struct checker c = {config, errors};
    check_list(&c, &config->iscsi.discovery, NULL);
    for (unsigned i = 0; i < config->iscsi.targets.count; i++) {
        const struct config_target *target = config_item(&config->iscsi.targets, struct config_target, i);
        check_list(&c, &target->access, target);
    }
}
