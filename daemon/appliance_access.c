/*
 * Access lists on their way from the config to the iSCSI server: secrets are read from their files, volumes become the
 * LUNs behind which they are served, and all of it is handed over in one piece.
 *
 * A list that cannot be made, because a file changed since the config was checked, admits nobody.
 */
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_internal.h"

static bool serves_lun(const struct live_target *target, uint64_t lun)
{
    for (unsigned i = 0; i < target->luns_count; i++)
        if (target->luns[i].lun == lun)
            return true;
    return false;
}

/*
 * The row for a volume: the LUN behind which it is served, or, before that, will be. SCSI_VIEW_NOTHING if there is
 * none, or another volume stands there, as it does until a restart when the config has changed it.
 */
static uint16_t row_of(const struct live_target *target, const struct config_list *luns, const char *volume)
{
    for (unsigned i = 0; i < target->luns_count; i++)
        if (strcmp(target->luns[i].volume, volume) == 0)
            return (uint16_t)target->luns[i].lun;
    for (unsigned i = 0; i < luns->count; i++) {
        const struct config_lun *lun = config_item(luns, struct config_lun, i);
        if (strcmp(lun->volume.text, volume) == 0 && !serves_lun(target, lun->lun))
            return (uint16_t)lun->lun;
    }
    return SCSI_VIEW_NOTHING;
}

static void view_make(struct scsi_view *view, const struct config_access *access, const struct config_list *luns,
                      const struct live_target *target)
{
    for (unsigned i = 0; i < SCSI_LUNS_MAX; i++)
        view->row[i] = access->luns.count > 0 ? SCSI_VIEW_NOTHING : (uint16_t)(i | SCSI_VIEW_READ_ONLY);
    for (unsigned i = 0; i < access->luns.count; i++) {
        const struct config_lun *lun = config_item(&access->luns, struct config_lun, i);
        uint16_t row = row_of(target, luns, lun->volume.text);
        if (row == SCSI_VIEW_NOTHING)
            log_warn("LUN %u of rule \"%s\" of %s is not there: the target does not serve volume %s",
                     (unsigned)lun->lun, access->name.text, target->name, lun->volume.text);
        else if (lun->read_only || access->read_only)
            row |= SCSI_VIEW_READ_ONLY;
        view->row[lun->lun] = row;
    }
}

static const char **texts_of(const struct config_strings *strings)
{
    const char **texts = calloc(MAX(strings->count, 1u), sizeof *texts);
    ASSERT(texts != NULL);
    for (unsigned i = 0; i < strings->count; i++)
        texts[i] = strings->items[i].text;
    return texts;
}

/* A user and its secret, or neither. */
static bool credential_make(const struct config *config, const struct config_text *user, const struct config_text *file,
                            struct secret *secret, const char **name, const char **value)
{
    char why[512];
    if (*user->text == '\0')
        return true;
    if (!secret_read(file->text, config->iscsi.short_secrets, secret, why, sizeof why)) {
        log_error("iSCSI: the secret of user \"%s\": %s", user->text, why);
        return false;
    }
    *name = user->text;
    *value = secret->text;
    return true;
}

static bool rule_make(struct access_rules *rules, unsigned index, const struct config *config,
                      const struct config_access *access, const struct config_list *luns,
                      const struct live_target *target)
{
    struct iscsi_rule *rule = &rules->rules[index];
    struct secret *secrets = &rules->secrets[2 * (size_t)index];
    *rule = (struct iscsi_rule){.name = access->name.text,
                                .initiators = texts_of(&access->initiators),
                                .initiator_count = access->initiators.count,
                                .addresses = texts_of(&access->addresses),
                                .address_count = access->addresses.count};
    if (target != NULL && (access->read_only || access->luns.count > 0)) {
        view_make(&rules->views[index], access, luns, target);
        rule->view = &rules->views[index];
    }
    return credential_make(config, &access->user, &access->secret_file, &secrets[0], &rule->user, &rule->secret) &&
           credential_make(config, &access->target_user, &access->target_secret_file, &secrets[1], &rule->target_user,
                           &rule->target_secret);
}

bool access_rules_make(struct access_rules *rules, const struct config *config, const struct config_list *list,
                       const struct config_list *luns, const struct live_target *target)
{
    bool good = true;
    *rules = (struct access_rules){0};
    if (list->count == 0)
        return true;
    rules->rules = calloc(list->count, sizeof *rules->rules);
    rules->secrets = calloc(list->count, 2 * sizeof *rules->secrets);
    rules->views = calloc(list->count, sizeof *rules->views);
    ASSERT(rules->rules != NULL && rules->secrets != NULL && rules->views != NULL);
    for (rules->count = 0; good && rules->count < list->count; rules->count++)
        good =
            rule_make(rules, rules->count, config, config_item(list, struct config_access, rules->count), luns, target);
    if (!good)
        access_rules_wipe(rules);
    return good;
}

void access_rules_wipe(struct access_rules *rules)
{
    for (unsigned i = 0; i < rules->count; i++) {
        free((void *)rules->rules[i].initiators);
        free((void *)rules->rules[i].addresses);
        secret_wipe(&rules->secrets[2 * (size_t)i]);
        secret_wipe(&rules->secrets[2 * (size_t)i + 1]);
    }
    free(rules->rules);
    free(rules->secrets);
    free(rules->views);
    *rules = (struct access_rules){0};
}

struct access_call {
    struct sync_call call;
    struct appliance *appliance;
    const char *target; /* NULL: discovery */
    struct access_rules rules;
    bool made; /* else nobody may */
    bool new_secrets;
    int error;
};

static void run_set_access(struct sync_call *call)
{
    struct access_call *c = container_of(call, struct access_call, call);
    static const struct iscsi_rule none;
    const struct iscsi_rule *rules = c->made ? c->rules.rules : &none;
    c->error = iscsi_server_set_access(c->appliance->iscsi, c->target, rules, c->rules.count, &c->new_secrets);
    sync_finish(call);
}

/* True: a rule that was there before has another secret now. */
static bool access_set(struct appliance *a, const struct config *config, const struct config_list *list,
                       const struct config_list *luns, const struct live_target *target)
{
    struct access_call c = {.appliance = a, .target = target != NULL ? target->name : NULL};
    const char *what = target != NULL ? target->name : "discovery";
    c.made = access_rules_make(&c.rules, config, list, luns, target);
    if (!c.made)
        log_error("iSCSI: nobody is admitted to %s", what);
    sync_call(&c.call, reactor_loop(a->reactors[0]), run_set_access);
    if (c.error != 0)
        log_error("iSCSI: the access list of %s stays as it was: %s", what, strerror(-c.error));
    access_rules_wipe(&c.rules);
    return c.new_secrets;
}

void live_access(struct appliance *a, const struct config *config, live_secrets_told told, void *data)
{
    char of[CONFIG_PATH_MAX + 32];
    if (access_set(a, config, &config->iscsi.discovery, NULL, NULL) && told != NULL)
        told(data, "iSCSI discovery");
    for (unsigned i = 0; i < config->iscsi.targets.count; i++) {
        const struct config_target *target_config = config_item(&config->iscsi.targets, struct config_target, i);
        const struct live_target *target = live_target_find(a, target_config->name.text);
        if (target == NULL || !access_set(a, config, &target_config->access, &target_config->luns, target) ||
            told == NULL)
            continue;
        text_format(of, sizeof of, "iSCSI target \"%s\"", target->name);
        told(data, of);
    }
}
