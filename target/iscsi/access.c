/* Access lists: see access.h. */
#include "target/iscsi/access.h"

#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "target/iscsi/chap.h"

/* --- rules --- */

static bool speaks_for(const struct access_rule *rule, const char *initiator, const char *peer)
{
    const struct match_rule *whom = &rule->whom;
    uint8_t address[16];
    bool name = whom->pattern_count == 0, known = whom->network_count > 0 && match_host(peer, address);
    for (unsigned i = 0; i < whom->pattern_count && !name; i++)
        name = match_pattern(whom->patterns[i], initiator, true);
    return name && match_rule_at(whom, known ? address : NULL);
}

const struct access_rule *access_next(const struct access_list *list, const struct access_rule *after,
                                      const char *initiator, const char *peer)
{
    const struct access_rule *rule = after != NULL ? after + 1 : list->rules;
    for (; rule < list->rules + list->count; rule++)
        if (speaks_for(rule, initiator, peer))
            return rule;
    return NULL;
}

bool access_admits(const struct access_list *list, const char *initiator, const char *peer)
{
    return list == NULL || access_next(list, NULL, initiator, peer) != NULL;
}

static bool text_same(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* In what it asks for and gives; whom else it speaks for does not matter. */
static bool rule_same(const struct access_rule *a, const struct access_rule *b)
{
    return text_same(a->user, b->user) && text_same(a->secret, b->secret) &&
           text_same(a->target_user, b->target_user) && text_same(a->target_secret, b->target_secret) &&
           a->viewed == b->viewed && (!a->viewed || memcmp(&a->view, &b->view, sizeof a->view) == 0);
}

bool access_same(const struct access_list *a, const struct access_list *b, const char *initiator, const char *peer)
{
    if (a == NULL || b == NULL)
        return a == b;
    const struct access_rule *in_a = NULL, *in_b = NULL;
    do {
        in_a = access_next(a, in_a, initiator, peer);
        in_b = access_next(b, in_b, initiator, peer);
    } while (in_a != NULL && in_b != NULL && rule_same(in_a, in_b));
    return in_a == NULL && in_b == NULL;
}

bool access_secrets_differ(const struct access_list *a, const struct access_list *b)
{
    for (unsigned i = 0; a != NULL && i < a->count; i++)
        for (unsigned j = 0; b != NULL && j < b->count; j++)
            if (text_same(a->rules[i].name, b->rules[j].name) &&
                (!text_same(a->rules[i].secret, b->rules[j].secret) ||
                 !text_same(a->rules[i].target_secret, b->rules[j].target_secret)))
                return true;
    return false;
}

/* --- life --- */

static void secret_free(char *secret)
{
    if (secret != NULL)
        chap_wipe(secret, strlen(secret));
    free(secret);
}

static void rule_free(struct access_rule *rule)
{
    match_rule_free(&rule->whom);
    free(rule->name);
    free(rule->user);
    free(rule->target_user);
    secret_free(rule->secret);
    secret_free(rule->target_secret);
}

static bool copy_text(char **to, const char *from)
{
    *to = from != NULL ? strdup(from) : NULL;
    return from == NULL || *to != NULL;
}

static bool rule_copy(struct access_rule *rule, const struct iscsi_rule *from)
{
    rule->viewed = from->view != NULL;
    if (rule->viewed)
        rule->view = *from->view;
    return match_rule_init(&rule->whom, from->initiators, from->initiator_count, from->addresses,
                           from->address_count) &&
           copy_text(&rule->name, from->name) && copy_text(&rule->user, from->user) &&
           copy_text(&rule->secret, from->secret) && copy_text(&rule->target_user, from->target_user) &&
           copy_text(&rule->target_secret, from->target_secret);
}

struct access_list *access_create(const struct iscsi_rule *rules, unsigned count)
{
    struct access_list *list = calloc(1, sizeof *list + count * sizeof list->rules[0]);
    if (list == NULL)
        return NULL;
    list->holders = 1;
    list->count = count;
    bool good = true;
    for (unsigned i = 0; i < count; i++)
        good = rule_copy(&list->rules[i], &rules[i]) && good;
    if (good)
        return list;
    access_release(list);
    return NULL;
}

struct access_list *access_hold(struct access_list *list)
{
    if (list != NULL)
        list->holders++;
    return list;
}

void access_release(struct access_list *list)
{
    if (list == NULL || --list->holders > 0)
        return;
    for (unsigned i = 0; i < list->count; i++)
        rule_free(&list->rules[i]);
    free(list);
}
