/* Authentication: see auth.h. */
#include "target/iscsi/auth.h"

#include <string.h>

#include "core/check.h"

void auth_init(struct auth *auth, const struct access_list *access, const char *initiator, const char *peer,
               const uint64_t draws[CHAP_DRAWS])
{
    uint8_t unguessed[CHAP_UNGUESSED];
    *auth = (struct auth){.access = access, .initiator = initiator, .peer = peer};
    if (!chap_unguess(draws, unguessed)) {
        auth->why = "there is no randomness to ask with";
        return;
    }
    memcpy(auth->challenge, unguessed, sizeof auth->challenge);
    auth->id = unguessed[sizeof auth->challenge];
}

static bool refuse(struct auth *auth, const char *why)
{
    auth->why = why;
    return false;
}

/* --- without CHAP --- */

static bool may_go_without(const struct auth *auth, const struct access_rule **rule)
{
    *rule = NULL;
    if (auth->access == NULL)
        return true;
    do
        *rule = access_next(auth->access, *rule, auth->initiator, auth->peer);
    while (*rule != NULL && (*rule)->user != NULL);
    return *rule != NULL;
}

static bool go_without(struct auth *auth)
{
    if (!may_go_without(auth, &auth->rule))
        return refuse(auth, "it must authenticate itself by CHAP and does not");
    auth->step = AUTH_DONE;
    return true;
}

bool auth_operational(struct auth *auth)
{
    return auth->step == AUTH_DONE || go_without(auth);
}

/* --- AuthMethod --- */

/* The rule for a user; `user` NULL: is there one with any? */
static const struct access_rule *rule_with_user(const struct auth *auth, const struct key_text *user)
{
    const struct access_rule *rule = NULL;
    if (auth->access == NULL)
        return NULL;
    while ((rule = access_next(auth->access, rule, auth->initiator, auth->peer)) != NULL) {
        bool fits =
            rule->user != NULL &&
            (user == NULL || (strlen(rule->user) == user->len && memcmp(rule->user, user->text, user->len) == 0));
        if (fits)
            return rule;
    }
    return NULL;
}

/* The first of the list that may be. */
static bool method_choose(struct auth *auth, const struct key_text *list, struct text_out *out)
{
    const struct access_rule *plain;
    bool chap = rule_with_user(auth, NULL) != NULL, none = may_go_without(auth, &plain);
    for (size_t at = 0, len; at <= list->len; at += len + 1) {
        const char *item = list->text + at, *comma = memchr(item, ',', list->len - at);
        len = comma != NULL ? (size_t)(comma - item) : list->len - at;
        if (chap && len == 4 && memcmp(item, "CHAP", 4) == 0) {
            text_pair(out, "AuthMethod", "CHAP");
            auth->step = AUTH_ALGORITHM;
            return true;
        }
        if (none && len == 4 && memcmp(item, "None", 4) == 0) {
            text_pair(out, "AuthMethod", "None");
            return go_without(auth);
        }
    }
    return refuse(auth, chap ? "it must authenticate itself by CHAP and does not offer to"
                             : "it wants to authenticate itself, and nobody is to, here");
}

static bool step_method(struct auth *auth, const struct negotiation *keys, bool leaving, struct text_out *out)
{
    const struct key_text *list = &keys->auth[KEY_AUTH_METHOD];
    if (list->text != NULL)
        return method_choose(auth, list, out);
    if (keys->auth[KEY_CHAP_A].text != NULL || keys->auth[KEY_CHAP_N].text != NULL)
        return refuse(auth, "CHAP begins without AuthMethod");
    return !leaving || go_without(auth);
}

/* --- CHAP --- */

static bool step_algorithm(struct auth *auth, const struct negotiation *keys, struct text_out *out)
{
    const struct key_text *list = &keys->auth[KEY_CHAP_A];
    char challenge[CHAP_TEXT_MAX];
    if (list->text == NULL)
        return refuse(auth, "CHAP goes on without CHAP_A");
    auth->algorithm = chap_choose(list->text, list->len);
    if (auth->algorithm == 0)
        return refuse(auth, "there is no CHAP algorithm in common");
    chap_binary_format(challenge, auth->challenge, chap_digest_bytes(auth->algorithm));
    text_pair_number(out, "CHAP_A", auth->algorithm);
    text_pair_number(out, "CHAP_I", auth->id);
    text_pair(out, "CHAP_C", challenge);
    auth->step = AUTH_RESPONSE;
    return true;
}

/* Has the peer answered our challenge as one who knows the rule's secret does? */
static bool response_right(struct auth *auth, const struct access_rule *rule, const struct key_text *response)
{
    size_t bytes = chap_digest_bytes(auth->algorithm), len;
    uint8_t right[CHAP_DIGEST_MAX], ours[CHAP_DIGEST_MAX], given[CHAP_DIGEST_MAX];
    if (!chap_binary_parse(response->text, response->len, given, sizeof given, &len) || len != bytes)
        return refuse(auth, "its response is not of the right form");
    if (!chap_response(auth->algorithm, auth->id, rule->secret, auth->challenge, bytes, right) ||
        !chap_equal(right, given, bytes))
        return refuse(auth, "its response is wrong: the secrets differ");
    bool same = rule->target_secret != NULL &&
                chap_response(auth->algorithm, auth->id, rule->target_secret, auth->challenge, bytes, ours) &&
                chap_equal(ours, given, bytes);
    return !same || refuse(auth, "its response is what ours would be");
}

/* It asks us the same: CHAP_I and CHAP_C. */
static bool prove_ourselves(struct auth *auth, const struct access_rule *rule, const struct negotiation *keys,
                            struct text_out *out)
{
    const struct key_text *id_text = &keys->auth[KEY_CHAP_I], *challenge_text = &keys->auth[KEY_CHAP_C];
    size_t bytes = chap_digest_bytes(auth->algorithm), len;
    uint8_t challenge[CHAP_CHALLENGE_MAX], response[CHAP_DIGEST_MAX];
    char text[CHAP_TEXT_MAX];
    uint32_t id;
    if (rule->target_user == NULL)
        return refuse(auth, "it wants us to authenticate ourselves, and there is no secret to do so");
    if (!key_text_number(id_text, &id) || id > UINT8_MAX ||
        !chap_binary_parse(challenge_text->text, challenge_text->len, challenge, sizeof challenge, &len))
        return refuse(auth, "its challenge is not of the right form");
    if (len == bytes && memcmp(challenge, auth->challenge, bytes) == 0)
        return refuse(auth, "it sends our own challenge back");
    if (!chap_response(auth->algorithm, (uint8_t)id, rule->target_secret, challenge, len, response))
        return refuse(auth, "the response to its challenge cannot be made");
    chap_binary_format(text, response, bytes);
    text_pair(out, "CHAP_N", rule->target_user);
    text_pair(out, "CHAP_R", text);
    return true;
}

static bool step_response(struct auth *auth, const struct negotiation *keys, struct text_out *out)
{
    const struct key_text *user = &keys->auth[KEY_CHAP_N], *response = &keys->auth[KEY_CHAP_R];
    bool asks = keys->auth[KEY_CHAP_I].text != NULL || keys->auth[KEY_CHAP_C].text != NULL;
    if (user->text == NULL || response->text == NULL)
        return refuse(auth, "CHAP goes on without CHAP_N and CHAP_R");
    const struct access_rule *rule = rule_with_user(auth, user);
    if (rule == NULL)
        return refuse(auth, "it names a user who is not known here");
    if (!response_right(auth, rule, response) || (asks && !prove_ourselves(auth, rule, keys, out)))
        return false;
    auth->rule = rule;
    auth->step = AUTH_DONE;
    return true;
}

/* --- a request --- */

static bool carries(const struct negotiation *keys, enum key_id first, enum key_id last)
{
    bool any = false;
    for (unsigned id = first; id <= last; id++)
        any |= keys->auth[id].text != NULL;
    return any;
}

bool auth_security(struct auth *auth, const struct negotiation *keys, bool leaving, struct text_out *out)
{
    enum auth_step before = auth->step;
    if (auth->why != NULL)
        return false;
    if (auth->step == AUTH_METHOD && !step_method(auth, keys, leaving, out))
        return false;
    bool chosen_now = before == AUTH_METHOD && auth->step == AUTH_ALGORITHM;
    if (chosen_now && !carries(keys, KEY_CHAP_A, KEY_CHAP_R))
        return true;
    if (auth->step == AUTH_ALGORITHM)
        return step_algorithm(auth, keys, out);
    return auth->step != AUTH_RESPONSE || step_response(auth, keys, out);
}
