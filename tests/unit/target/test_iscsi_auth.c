/* Who may: CHAP in the login machine, and that and access lists in a whole connection: auth.h, server.c. */
#include <errno.h>
#include <stdlib.h>

#include "core/log.h"
#include "target/iscsi/login.h"
#include "target/refusals.h"
#include "tests/unit/target/initiator.h"

#define HOST  "192.0.2.9:1000"
#define OTHER "iqn.2026-11.org.example:other"
static const char user_secret[] = "correct horse battery", target_secret[] = "staple of the target";

/* --- CHAP, in the login machine --- */

enum { T = 0x80, SEC = 0, OP = 4, TO_OP = 1, TO_FULL = 3 };
#define NAMES "InitiatorName=" INI_NAME "|TargetName=" INI_TARGET "|"

struct machine {
    struct login login;
    struct access_list *access;
    char text[TEXT_MAX], answers[TEXT_REPLY_MAX];
    char reply[4096];
};

static struct machine *machine_make(const struct iscsi_rule *rules, unsigned count)
{
    struct machine *m = calloc(1, sizeof *m);
    m->access = access_create(rules, count);
    cr_assert_not_null(m->access);
    login_init(&m->login, m->text, m->answers);
    return m;
}

static void machine_drop(struct machine *m)
{
    access_release(m->access);
    free(m);
}

static enum login_outcome say(struct machine *m, unsigned flags, const char *text)
{
    struct pdu pdu = {.opcode = PDU_LOGIN, .immediate = true, .itt = 5, .data_len = (uint32_t)strlen(text)};
    pdu.final = (flags & T) != 0;
    pdu.login.csg = (flags >> 2) & 3;
    pdu.login.nsg = flags & 3;
    for (; *text != '\0'; text++)
        m->text[m->login.text_len++] = *text == '|' ? '\0' : *text;
    struct login_grant grant = {.access = m->access, .peer = HOST, .group = 1, .draws = {1, 2, 3, 4, 5, 6, 7, 8}};
    enum login_outcome outcome = login_request(&m->login, &pdu);
    if (outcome == LOGIN_FIND_TARGET)
        outcome = login_resume(&m->login, &grant);
    memcpy(m->reply, m->login.reply_text != NULL ? m->login.reply_text : "", m->login.reply_len);
    for (uint32_t i = 0; i < m->login.reply_len; i++)
        m->reply[i] = m->reply[i] == '\0' ? '|' : m->reply[i];
    m->reply[m->login.reply_len] = '\0';
    return outcome;
}

/* The value of a key in the last reply, or NULL. */
static const char *told(const struct machine *m, const char *key)
{
    static char value[4096];
    char wanted[32];
    text_format(wanted, sizeof wanted, "%s=", key);
    const char *at = strstr(m->reply, wanted);
    if (at == NULL)
        return NULL;
    text_format(value, sizeof value, "%.*s", (int)strcspn(at + strlen(wanted), "|"), at + strlen(wanted));
    return value;
}

struct asked {
    unsigned algorithm, id;
    uint8_t challenge[CHAP_CHALLENGE_MAX];
    size_t len;
};

static struct asked asked_by(const struct machine *m)
{
    struct asked asked = {0};
    cr_assert(told(m, "CHAP_A") != NULL && told(m, "CHAP_I") != NULL && told(m, "CHAP_C") != NULL, "%s", m->reply);
    asked.algorithm = (unsigned)strtoul(told(m, "CHAP_A"), NULL, 10);
    asked.id = (unsigned)strtoul(told(m, "CHAP_I"), NULL, 10);
    const char *challenge = told(m, "CHAP_C");
    cr_assert(chap_binary_parse(challenge, strlen(challenge), asked.challenge, sizeof asked.challenge, &asked.len));
    return asked;
}

static void respond(char *out, size_t out_len, const struct asked *asked, const char *user, const char *secret)
{
    uint8_t response[CHAP_DIGEST_MAX];
    char text[CHAP_TEXT_MAX];
    cr_assert(chap_response(asked->algorithm, (uint8_t)asked->id, secret, asked->challenge, asked->len, response));
    chap_binary_format(text, response, chap_digest_bytes(asked->algorithm));
    text_format(out, out_len, "CHAP_N=%s|CHAP_R=%s|", user, text);
}

static const struct iscsi_rule one_way = {.name = "r", .user = "host", .secret = user_secret};
static const struct iscsi_rule mutual = {
    .name = "r", .user = "host", .secret = user_secret, .target_user = "disk", .target_secret = target_secret};

Test(iscsi_auth, one_way_with_each_algorithm_and_the_first_of_the_list_that_we_know)
{
    static const struct {
        const char *list;
        unsigned algorithm;
        size_t challenge;
    } cases[] = {{"5", 5, 16},       {"6", 6, 20},       {"7", 7, 32},   {"8", 8, 32},
                 {"8,7,6,5", 8, 32}, {"5,6,7,8", 5, 16}, {"9,6", 6, 20}, {"55,7", 7, 32}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct machine *m = machine_make(&one_way, 1);
        char text[600];
        cr_expect_eq(say(m, SEC, NAMES "AuthMethod=CHAP,None|"), LOGIN_REPLY);
        cr_expect_str_eq(m->reply, "AuthMethod=CHAP|TargetPortalGroupTag=1|");
        text_format(text, sizeof text, "CHAP_A=%s|", cases[i].list);
        cr_expect_eq(say(m, SEC, text), LOGIN_REPLY);
        struct asked asked = asked_by(m);
        cr_expect_eq(asked.algorithm, cases[i].algorithm, "%s", cases[i].list);
        cr_expect_eq(asked.len, cases[i].challenge, "%s", cases[i].list);
        respond(text, sizeof text, &asked, "host", user_secret);
        cr_expect_eq(say(m, T | SEC | TO_OP, text), LOGIN_REPLY, "%s", m->login.why);
        cr_expect(m->login.transit);
        cr_expect_null(told(m, "CHAP_N"));
        cr_expect_eq(say(m, T | OP | TO_FULL, ""), LOGIN_DONE);
        cr_expect_str_eq(m->login.auth.rule->name, "r");
        machine_drop(m);
    }
}

/* Until it has proved itself no T is granted, though it is set all along (iPXE); the target's proof goes out with T. */
Test(iscsi_auth, mutual_with_t_in_every_request)
{
    struct machine *m = machine_make(&mutual, 1);
    char text[900];
    uint8_t right[CHAP_DIGEST_MAX];
    cr_expect_eq(say(m, T | SEC | TO_FULL, NAMES "AuthMethod=CHAP|"), LOGIN_REPLY);
    cr_expect_not(m->login.transit);
    cr_expect_null(told(m, "MaxRecvDataSegmentLength"), "not before it goes on");
    cr_expect_eq(say(m, T | SEC | TO_FULL, "CHAP_A=5|"), LOGIN_REPLY);
    cr_expect_not(m->login.transit);
    struct asked asked = asked_by(m);
    respond(text, sizeof text, &asked, "host", user_secret);
    text_format(text + strlen(text), sizeof text - strlen(text), "CHAP_I=0x11|CHAP_C=0bYWJjZGVmZ2hpamtsbW5vcA==|");
    cr_expect_eq(say(m, T | SEC | TO_FULL, text), LOGIN_DONE, "%s", m->login.why);
    cr_expect(m->login.transit);
    cr_assert(told(m, "CHAP_N") != NULL && told(m, "CHAP_R") != NULL);
    cr_expect_str_eq(told(m, "CHAP_N"), "disk");
    cr_assert(chap_response(CHAP_MD5, 0x11, target_secret, (const uint8_t *)"abcdefghijklmnop", 16, right));
    chap_binary_format(text, right, 16);
    cr_expect_str_eq(told(m, "CHAP_R"), text);
    machine_drop(m);
}

Test(iscsi_auth, challenges_of_up_to_1024_bytes_are_answered)
{
    for (unsigned len = 1023; len <= 1025; len++) {
        struct machine *m = machine_make(&mutual, 1);
        static char text[4096], challenge[2 * 1025 + 3];
        uint8_t bytes[1025], right[CHAP_DIGEST_MAX];
        for (unsigned i = 0; i < len; i++)
            bytes[i] = (uint8_t)(i * 7);
        say(m, SEC, NAMES "AuthMethod=CHAP|CHAP_A=7|");
        struct asked asked = asked_by(m);
        respond(text, sizeof text, &asked, "host", user_secret);
        chap_binary_format(challenge, bytes, len);
        text_format(text + strlen(text), sizeof text - strlen(text), "CHAP_I=9|CHAP_C=%s|", challenge);
        enum login_outcome outcome = say(m, T | SEC | TO_OP, text);
        cr_expect_eq(outcome, len <= 1024 ? LOGIN_REPLY : LOGIN_REJECT, "%u", len);
        if (outcome == LOGIN_REPLY) {
            cr_assert(chap_response(CHAP_SHA256, 9, target_secret, bytes, len, right));
            chap_binary_format(text, right, 32);
            cr_expect_str_eq(told(m, "CHAP_R"), text, "%u", len);
        }
        machine_drop(m);
    }
}

/* The last words of an initiator: R, the right response; and what else. */
static const struct {
    const char *what, *user, *secret, *rest;
} wrong_ends[] = {
    {"another secret", "host", "incorrect horse battery", ""},
    {"another user", "hosts", user_secret, ""},
    {"part of the user", "hos", user_secret, ""},
    {"no user", "", user_secret, ""},
    {"the target's secret: what our response would be", "host", target_secret, ""},
    {"a challenge without identifier", "host", user_secret, "CHAP_C=0x00112233445566778899aabbccddeeff|"},
    {"an identifier without challenge", "host", user_secret, "CHAP_I=1|"},
    {"an identifier of more than a byte", "host", user_secret, "CHAP_I=256|CHAP_C=0x0011|"},
    {"an identifier that is no number", "host", user_secret, "CHAP_I=x|CHAP_C=0x0011|"},
    {"a challenge that is no binary value", "host", user_secret, "CHAP_I=1|CHAP_C=0011|"},
    {"an empty challenge", "host", user_secret, "CHAP_I=1|CHAP_C=0x|"},
};

Test(iscsi_auth, wrong_responses_and_challenges_are_refused)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(wrong_ends); i++) {
        struct machine *m = machine_make(&mutual, 1);
        char text[900];
        say(m, SEC, NAMES "AuthMethod=CHAP|CHAP_A=5|");
        struct asked asked = asked_by(m);
        respond(text, sizeof text, &asked, wrong_ends[i].user, wrong_ends[i].secret);
        text_format(text + strlen(text), sizeof text - strlen(text), "%s", wrong_ends[i].rest);
        cr_expect_eq(say(m, T | SEC | TO_OP, text), LOGIN_REJECT, "%s", wrong_ends[i].what);
        cr_expect_eq(m->login.status, LOGIN_AUTH_FAILED, "%s: %04x", wrong_ends[i].what, m->login.status);
        cr_expect(m->login.why != NULL && m->login.reply_len == 0, "%s", wrong_ends[i].what);
        machine_drop(m);
    }
}

Test(iscsi_auth, reflections_are_refused)
{
    static const struct iscsi_rule careless = {
        .user = "host", .secret = user_secret, .target_user = "disk", .target_secret = user_secret};
    char text[900], challenge[CHAP_TEXT_MAX];
    struct machine *m = machine_make(&mutual, 1);
    say(m, SEC, NAMES "AuthMethod=CHAP|CHAP_A=7|");
    struct asked asked = asked_by(m);
    respond(text, sizeof text, &asked, "host", user_secret);
    chap_binary_format(challenge, asked.challenge, asked.len);
    text_format(text + strlen(text), sizeof text - strlen(text), "CHAP_I=%u|CHAP_C=%s|", asked.id, challenge);
    cr_expect_eq(say(m, T | SEC | TO_OP, text), LOGIN_REJECT);
    cr_expect_str_eq(m->login.why, "it sends our own challenge back");
    machine_drop(m);
    m = machine_make(&careless, 1);
    say(m, SEC, NAMES "AuthMethod=CHAP|CHAP_A=7|");
    asked = asked_by(m);
    respond(text, sizeof text, &asked, "host", user_secret);
    cr_expect_eq(say(m, T | SEC | TO_OP, text), LOGIN_REJECT);
    cr_expect_str_eq(m->login.why, "its response is what ours would be");
    machine_drop(m);
}

/* Responses of other forms; %s: the digits of the right one. */
Test(iscsi_auth, forms_of_a_response)
{
    static const struct {
        const char *form;
        bool good;
    } cases[] = {{"0x%s", true}, {"0X%s", true},  {"%s", false}, {"0x%s00", false}, {"0x00%s", false},
                 {"0x", false},  {"0b%s", false}, {"", false},   {"0x%s ", false},  {"0xzz%s", false}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct machine *m = machine_make(&one_way, 1);
        char right[600], value[300] = "", text[600];
        say(m, SEC, NAMES "AuthMethod=CHAP|CHAP_A=5|");
        struct asked asked = asked_by(m);
        respond(right, sizeof right, &asked, "host", user_secret);
        const char *digits = strstr(right, "CHAP_R=0x") + 9, *place = strstr(cases[i].form, "%s");
        if (place != NULL)
            text_format(value, sizeof value, "%.*s%.32s%s", (int)(place - cases[i].form), cases[i].form, digits,
                        place + 2);
        text_format(text, sizeof text, "CHAP_N=host|CHAP_R=%s|", place != NULL ? value : cases[i].form);
        cr_expect_eq(say(m, SEC, text), cases[i].good ? LOGIN_REPLY : LOGIN_REJECT, "%s", cases[i].form);
        machine_drop(m);
    }
}

Test(iscsi_auth, user_names_that_look_like_binary_values_are_text)
{
    static const char *const names[] = {"0x686f7374", "0bYWJj", "0xzz", "0b"};
    for (unsigned i = 0; i < ARRAY_LENGTH(names); i++) {
        struct iscsi_rule rule = {.user = names[i], .secret = user_secret};
        struct machine *m = machine_make(&rule, 1);
        char text[600];
        say(m, SEC, NAMES "AuthMethod=CHAP|CHAP_A=5|");
        struct asked asked = asked_by(m);
        respond(text, sizeof text, &asked, names[i], user_secret);
        cr_expect_eq(say(m, T | SEC | TO_OP, text), LOGIN_REPLY, "%s", names[i]);
        machine_drop(m);
    }
}

struct step {
    unsigned flags;
    const char *text;
    enum login_outcome outcome;
};

static const struct {
    const char *what;
    struct step steps[4];
} bypasses[] = {
    {"AuthMethod=None", {{T | SEC | TO_OP, NAMES "AuthMethod=None|", LOGIN_REJECT}}},
    {"straight to the operational stage", {{T | OP | TO_FULL, NAMES, LOGIN_REJECT}}},
    {"the operational stage, without T", {{OP, NAMES, LOGIN_REJECT}}},
    {"no AuthMethod at all", {{T | SEC | TO_OP, NAMES, LOGIN_REJECT}}},
    {"no AuthMethod, later", {{SEC, NAMES, LOGIN_REPLY}, {T | SEC | TO_FULL, "", LOGIN_REJECT}}},
    {"unknown methods", {{SEC, NAMES "AuthMethod=KRB5,SRP,CHAPS,chap|", LOGIN_REJECT}}},
    {"an empty AuthMethod", {{SEC, NAMES "AuthMethod=|", LOGIN_REJECT}}},
    {"T after AuthMethod", {{SEC, NAMES "AuthMethod=CHAP|", LOGIN_REPLY}, {T | SEC | TO_OP, "", LOGIN_REJECT}}},
    {"T after the challenge",
     {{SEC, NAMES "AuthMethod=CHAP|CHAP_A=5|", LOGIN_REPLY}, {T | SEC | TO_OP, "", LOGIN_REJECT}}},
    {"the next stage without T being granted",
     {{T | SEC | TO_OP, NAMES "AuthMethod=CHAP|", LOGIN_REPLY}, {T | OP | TO_FULL, "", LOGIN_REJECT}}},
    {"a response before the challenge", {{SEC, NAMES "AuthMethod=CHAP|CHAP_N=host|CHAP_R=0x00|", LOGIN_REJECT}}},
    {"a response to nothing", {{SEC, NAMES "CHAP_N=host|CHAP_R=0x00|", LOGIN_REJECT}}},
    {"no response", {{SEC, NAMES "AuthMethod=CHAP|CHAP_A=5|", LOGIN_REPLY}, {SEC, "CHAP_N=host|", LOGIN_REJECT}}},
    {"no user", {{SEC, NAMES "AuthMethod=CHAP|CHAP_A=5|", LOGIN_REPLY}, {SEC, "CHAP_R=0x00|", LOGIN_REJECT}}},
    {"AuthMethod again", {{SEC, NAMES "AuthMethod=CHAP|", LOGIN_REPLY}, {SEC, "AuthMethod=None|", LOGIN_REJECT}}},
    {"CHAP_A again", {{SEC, NAMES "AuthMethod=CHAP|CHAP_A=5|", LOGIN_REPLY}, {SEC, "CHAP_A=7|", LOGIN_REJECT}}},
    {"no algorithm we know", {{SEC, NAMES "AuthMethod=CHAP|", LOGIN_REPLY}, {SEC, "CHAP_A=56,9|", LOGIN_REJECT}}},
    {"no algorithm", {{SEC, NAMES "AuthMethod=CHAP|", LOGIN_REPLY}, {SEC, "CHAP_A=|", LOGIN_REJECT}}},
};

Test(iscsi_auth, nobody_gets_round_it)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(bypasses); i++) {
        struct machine *m = machine_make(&one_way, 1);
        for (unsigned j = 0; j < 4 && bypasses[i].steps[j].text != NULL; j++) {
            enum login_outcome outcome = say(m, bypasses[i].steps[j].flags, bypasses[i].steps[j].text);
            cr_expect_eq(outcome, bypasses[i].steps[j].outcome, "%s, %u: %d", bypasses[i].what, j, outcome);
            cr_expect_not(m->login.transit, "%s", bypasses[i].what);
        }
        cr_expect(m->login.status == LOGIN_AUTH_FAILED || m->login.status == LOGIN_INITIATOR_ERROR, "%s: %04x",
                  bypasses[i].what, m->login.status);
        machine_drop(m);
    }
}

/* Which rule counts: in order of the initiator's methods, and by the user it names. */
Test(iscsi_auth, rules_with_and_without_users)
{
    static const struct iscsi_rule rules[] = {
        {.name = "first", .user = "a", .secret = user_secret},
        {.name = "open"},
        {.name = "second", .user = "b", .secret = target_secret},
    };
    struct machine *m = machine_make(rules, 3);
    char text[600];
    cr_expect_eq(say(m, T | SEC | TO_OP, NAMES "AuthMethod=None,CHAP|"), LOGIN_REPLY);
    cr_expect_str_eq(told(m, "AuthMethod"), "None");
    cr_expect_str_eq(m->login.auth.rule->name, "open");
    machine_drop(m);
    m = machine_make(rules, 3);
    cr_expect_eq(say(m, T | OP | TO_FULL, NAMES), LOGIN_DONE);
    cr_expect_str_eq(m->login.auth.rule->name, "open");
    machine_drop(m);
    m = machine_make(rules, 3);
    say(m, SEC, NAMES "AuthMethod=CHAP,None|");
    cr_expect_str_eq(told(m, "AuthMethod"), "CHAP");
    say(m, SEC, "CHAP_A=8|");
    struct asked asked = asked_by(m);
    respond(text, sizeof text, &asked, "b", target_secret);
    cr_expect_eq(say(m, T | SEC | TO_OP, text), LOGIN_REPLY);
    cr_expect_str_eq(m->login.auth.rule->name, "second");
    machine_drop(m);
}

Test(iscsi_auth, chap_keys_belong_to_the_security_stage)
{
    static const struct iscsi_rule everybody = {.name = "r"};
    struct machine *m = machine_make(&everybody, 1);
    cr_expect_eq(say(m, T | OP | TO_FULL, NAMES "CHAP_A=5|"), LOGIN_DONE);
    cr_expect_str_eq(told(m, "CHAP_A"), "Reject");
    machine_drop(m);
}

Test(iscsi_auth, challenges_do_not_repeat_and_do_not_show_what_they_are_made_from)
{
    struct auth a, b, c;
    const uint64_t draws[CHAP_DRAWS] = {1, 2, 3, 4, 5, 6, 7, 8}, others[CHAP_DRAWS] = {1, 2, 3, 4, 5, 6, 7, 9};
    auth_init(&a, NULL, "i", HOST, draws);
    auth_init(&b, NULL, "i", HOST, others);
    auth_init(&c, NULL, "i", HOST, draws);
    cr_expect_neq(memcmp(a.challenge, b.challenge, 16), 0);
    cr_expect_neq(memcmp(a.challenge + 16, b.challenge + 16, 16), 0);
    cr_expect_eq(memcmp(a.challenge, c.challenge, sizeof a.challenge), 0);
    for (unsigned i = 0; i < CHAP_DRAWS; i++)
        cr_expect_null(memmem(a.challenge, sizeof a.challenge, &draws[i], sizeof draws[i]));
}

/* --- a whole connection --- */

static void set(struct ini_rig *rig, const char *target, const struct iscsi_rule *rules, unsigned count)
{
    cr_assert_eq(iscsi_server_set_access(rig->server, target, rules, count, NULL), 0);
}

static size_t zeroed(char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++)
        text[i] = text[i] == '|' ? '\0' : text[i];
    return len;
}

/* Log in by CHAP, with MD5; returns the status. */
static int chap_login(struct ini *ini, const char *names, const char *user, const char *secret)
{
    char text[2048];
    struct machine reader = {0};
    text_format(text, sizeof text, "%sAuthMethod=CHAP|CHAP_A=5|", names);
    int status = ini_login_request(ini, SEC, 0, text, zeroed(text), reader.reply, sizeof reader.reply);
    if (status != 0)
        return status;
    for (size_t at = strlen(reader.reply); at < sizeof reader.reply - 1 && reader.reply[at + 1] != '\0';
         at += strlen(reader.reply + at))
        reader.reply[at] = '|';
    struct asked asked = asked_by(&reader);
    respond(text, sizeof text, &asked, user, secret);
    return ini_login_request(ini, T | SEC | TO_FULL, 0, text, zeroed(text), NULL, 0);
}

static struct ini_rig *plain_rig(void)
{
    return ini_rig_make(2000, (struct iscsi_limits){0});
}

Test(iscsi_access, chap_in_a_session_and_in_discovery)
{
    struct ini_rig *rig = plain_rig();
    static const struct iscsi_rule discoverer = {.user = "finder", .secret = target_secret};
    set(rig, INI_TARGET, &one_way, 1);
    set(rig, NULL, &discoverer, 1);
    static const struct {
        const char *names, *user, *secret;
        int status;
    } cases[] = {
        {NAMES, "host", user_secret, 0},
        {NAMES, "host", target_secret, 0x0201},
        {NAMES, "finder", target_secret, 0x0201},
        {"InitiatorName=" INI_NAME "|SessionType=Discovery|", "finder", target_secret, 0},
        {"InitiatorName=" INI_NAME "|SessionType=Discovery|", "host", user_secret, 0x0201},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct ini *ini = ini_connect(rig, 1);
        int status = chap_login(ini, cases[i].names, cases[i].user, cases[i].secret);
        cr_expect_eq(status, cases[i].status, "%u: %04x", i, status);
        if (status != 0)
            ini_expect_closed(ini);
        ini_drop(ini);
    }
    struct ini *plain = ini_connect(rig, 1);
    cr_expect_eq(ini_login_keys(plain, "InitiatorName=" INI_NAME "|TargetName=" INI_TARGET), 0x0201);
    ini_drop(plain);
    plain = ini_connect(rig, 1);
    cr_expect_eq(ini_login_keys(plain, "InitiatorName=" INI_NAME "|SessionType=Discovery"), 0x0201);
    ini_drop(plain);
    ini_rig_drop(rig);
}

Test(iscsi_access, names_and_addresses_that_no_rule_speaks_for)
{
    const struct {
        struct iscsi_rule rule;
        int status;
    } cases[] = {
        {{.initiators = (const char *const[]){INI_NAME}, .initiator_count = 1}, 0},
        {{.initiators = (const char *const[]){OTHER}, .initiator_count = 1}, 0x0202},
        {{.addresses = (const char *const[]){"192.0.2.0/24"}, .address_count = 1}, 0},
        {{.addresses = (const char *const[]){"192.0.3.0/24"}, .address_count = 1}, 0x0202},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct ini_rig *rig = plain_rig();
        set(rig, INI_TARGET, &cases[i].rule, 1);
        struct ini *ini = ini_connect(rig, 1);
        int status = ini_login_keys(ini, "InitiatorName=" INI_NAME "|TargetName=" INI_TARGET);
        cr_expect_eq(status, cases[i].status, "%u: %04x", i, status);
        ini_drop(ini);
        ini = ini_connect(rig, 2);
        cr_expect_eq(ini_login_keys(ini, "InitiatorName=" INI_NAME "|TargetName=" INI_TARGET "x"), 0x0203);
        ini_drop(ini);
        ini_rig_drop(rig);
    }
}

static uint32_t list_all(struct ini *ini, char *answer, size_t max)
{
    uint8_t bhs[PDU_BHS_BYTES];
    ini_request(ini, bhs, PDU_TEXT, 0x80);
    ini_send(ini, bhs, "SendTargets=All", 16);
    return ini_expect(ini, PDU_TEXT_RESPONSE, bhs, answer, (uint32_t)max);
}

Test(iscsi_access, discovery_lists_what_the_initiator_may_use)
{
    struct ini_rig *rig = plain_rig();
    const struct iscsi_rule theirs = {.initiators = (const char *const[]){OTHER}, .initiator_count = 1};
    struct scsi_target *second = scsi_target_create(&rig->t->loop, OTHER);
    cr_assert_eq(iscsi_server_add_target(rig->server, second, &rig->t->loop, "iqn.2026-11.org.example:two", ""), 0);
    for (unsigned i = 0; i < 3; i++) {
        char answer[1024] = "";
        set(rig, INI_TARGET, i == 0 ? NULL : i == 1 ? &theirs : &one_way, 1);
        struct ini *ini = ini_connect(rig, 9);
        cr_assert_eq(ini_login_keys(ini, "InitiatorName=" INI_NAME "|SessionType=Discovery"), 0);
        uint32_t len = list_all(ini, answer, sizeof answer);
        cr_expect_eq(memmem(answer, len, INI_TARGET, sizeof INI_TARGET - 1) != NULL, i != 1, "%u", i);
        cr_expect_not_null(memmem(answer, len, "example:two", 11), "%u", i);
        ini_drop(ini);
    }
    scsi_target_destroy(second);
    ini_rig_drop(rig);
}

static struct ini_answer do_at(struct ini *ini, unsigned lun, uint8_t flags, uint32_t edtl, const uint8_t *cdb)
{
    uint8_t bhs[PDU_BHS_BYTES];
    ini_command(ini, bhs, flags, edtl, cdb);
    bhs[9] = (uint8_t)lun;
    ini_send(ini, bhs, NULL, 0);
    return ini_answer(ini);
}

static struct scsi_view only(unsigned lun, unsigned row)
{
    struct scsi_view view;
    for (unsigned i = 0; i < SCSI_LUNS_MAX; i++)
        view.row[i] = SCSI_VIEW_NOTHING;
    view.row[lun] = (uint16_t)row;
    return view;
}

Test(iscsi_access, a_view_shows_luns_under_other_numbers_and_read_only)
{
    struct ini_rig *rig = plain_rig();
    struct scsi_view view = only(5, 1 | SCSI_VIEW_READ_ONLY);
    const struct iscsi_rule rule = {.view = &view};
    set(rig, INI_TARGET, &rule, 1);
    struct ini *ini = ini_connect(rig, 1);
    cr_assert_eq(ini_login_keys(ini, "InitiatorName=" INI_NAME "|TargetName=" INI_TARGET), 0);
    struct ini_answer answer = do_at(ini, 0, INI_F | INI_R, 256, INI_CDB(0xa0, [8] = 1));
    cr_assert(answer.status == 0 && answer.len == 16);
    cr_expect(get_be32(answer.data) == 8 && answer.data[9] == 5, "REPORT LUNS");
    do_at(ini, 5, INI_F, 0, INI_CDB(0));
    cr_expect_eq(do_at(ini, 5, INI_F, 0, INI_CDB(0)).status, 0);
    answer = do_at(ini, 0, INI_F, 0, INI_CDB(0));
    cr_expect(answer.status == 2 && answer.key == 5 && answer.asc == 0x25, "LUN 0 is not there");
    cr_expect_eq(do_at(ini, 1, INI_F, 0, INI_CDB(0)).asc, 0x25, "nor is 1, by its own number");
    answer = do_at(ini, 5, INI_F | INI_R, 100, INI_CDB(0x12, 1, 0x80, 0, 100));
    cr_expect_eq(memcmp(answer.data + 4, "serial-1", 8), 0, "the volume behind it");
    answer = do_at(ini, 5, INI_F | INI_R, 100, INI_CDB(0x1a, 0, 0x3f, 0, 100));
    cr_expect(answer.data[2] & 0x80, "WP");
    answer = do_at(ini, 5, INI_F, 0, INI_CDB(0x41, [8] = 1));
    cr_expect(answer.status == 2 && answer.key == 7 && answer.asc == 0x27, "WRITE SAME is refused");
    struct ini_answer read = do_at(ini, 5, INI_F | INI_R, 512, INI_CDB(0x28, [8] = 1));
    cr_expect(read.status == 0 && read.len == 512);
    ini_drop(ini);
    ini_rig_drop(rig);
}

/* Two sessions know one LU by different numbers: a reset of it reaches the commands of both, and no others. */
Test(iscsi_access, task_management_goes_by_the_lu_and_not_by_its_number)
{
    struct ini_rig *rig = plain_rig();
    struct scsi_view view = only(0, 1);
    view.row[1] = 0; /* the other way round */
    const struct iscsi_rule rules[] = {
        {.initiators = (const char *const[]){OTHER}, .initiator_count = 1, .view = &view}, {.name = "all"}};
    set(rig, INI_TARGET, rules, 2);
    struct ini *plain = ini_session(rig, 1, ""), *crossed = ini_connect(rig, 2);
    cr_assert_eq(ini_login_keys(crossed, "InitiatorName=" OTHER "|TargetName=" INI_TARGET), 0);
    ini_ready(crossed);
    ini_hang(rig, true);
    uint8_t bhs[2][PDU_BHS_BYTES];
    for (unsigned lun = 0; lun < 2; lun++) {
        ini_command(crossed, bhs[lun], INI_F | INI_R, 512, INI_CDB(0x28, [8] = 1));
        bhs[lun][9] = (uint8_t)lun;
        ini_send(crossed, bhs[lun], NULL, 0);
    }
    ini_run(crossed);
    ini_task(plain, 5, 0, 0, 0, 0); /* LUN RESET of what `crossed` calls 1 */
    ini_hang(rig, false);
    for (unsigned i = 0; i < 2; i++) {
        struct ini_answer answer = ini_answer(crossed);
        bool swept = answer.itt == get_be32(bhs[1] + 16);
        cr_expect_eq(answer.status, swept ? SCSI_TASK_ABORTED : SCSI_GOOD, "%u: %02x", swept, answer.status);
    }
    ini_expect_silence(crossed);
    ini_drop(plain);
    ini_drop(crossed);
    ini_rig_drop(rig);
}

Test(iscsi_access, a_new_list_ends_the_sessions_of_those_it_says_something_else_of)
{
    struct ini_rig *rig = plain_rig();
    const struct iscsi_rule old[] = {{.name = "r"}};
    const struct iscsi_rule new[] = {
        {.initiators = (const char *const[]){INI_NAME}, .initiator_count = 1, .name = "s"}};
    set(rig, INI_TARGET, old, 1);
    struct ini *stays = ini_session(rig, 1, ""), *goes = ini_connect(rig, 2);
    cr_assert_eq(ini_login_keys(goes, "InitiatorName=" OTHER "|TargetName=" INI_TARGET), 0);
    set(rig, INI_TARGET, new, 1);
    ini_run(stays);
    uint8_t bhs[PDU_BHS_BYTES];
    ini_expect(goes, PDU_ASYNC, bhs, NULL, 0);
    ini_expect_closed(goes);
    ini_ready(stays);
    set(rig, INI_TARGET, new, 0);
    ini_expect(stays, PDU_ASYNC, bhs, NULL, 0);
    ini_expect_closed(stays);
    cr_expect_eq(iscsi_server_set_access(rig->server, "iqn.2026-11.org.example:none", NULL, 0, NULL), -ENOENT);
    const struct iscsi_rule bad = {.addresses = (const char *const[]){"x"}, .address_count = 1};
    cr_expect_eq(iscsi_server_set_access(rig->server, INI_TARGET, &bad, 1, NULL), -EINVAL);
    ini_drop(stays);
    ini_drop(goes);
    ini_rig_drop(rig);
}

/* --- logins under way --- */

Test(iscsi_access, half_open_connections_are_capped_for_each_address_and_in_all)
{
    struct ini_rig *rig = ini_rig_make(2000, (struct iscsi_limits){.half_open = 4, .half_open_per_host = 2});
    struct ini *inis[6];
    static const char *const peers[6] = {"192.0.2.9:1",     "192.0.2.9:2",    "192.0.2.9:3",
                                         "[2001:db8::1]:1", "198.51.100.1:1", "198.51.100.2:1"};
    struct ini *in = ini_session(rig, 40, "");
    for (unsigned i = 0; i < 6; i++) {
        inis[i] = calloc(1, sizeof *inis[i]);
        *inis[i] = (struct ini){.rig = rig, .isid = {0x80}, .s = teststream_create(&rig->t->loop, i)};
        text_format(inis[i]->s->stream.peer, sizeof inis[i]->s->stream.peer, "%s", peers[i]);
        iscsi_conn_open(rig->server, &inis[i]->s->stream, 1);
        ini_run(inis[i]);
        cr_expect_eq(inis[i]->s->closed, i == 2 || i == 5, "connection %u", i);
    }
    ini_ready(in); /* who is logged in has nothing to do with it */
    cr_expect_eq(ini_login_keys(inis[0], "InitiatorName=" INI_NAME "|TargetName=" INI_TARGET), 0);
    struct ini *after = ini_connect(rig, 3);
    ini_run(after);
    cr_expect_not(after->s->closed, "a place is free when a login is over");
    ini_drop(after);
    ini_drop(in);
    for (unsigned i = 0; i < 6; i++)
        ini_drop(inis[i]);
    ini_rig_drop(rig);
}

Test(iscsi_access, whoever_has_not_proved_itself_takes_no_place_and_ends_no_session)
{
    struct ini_rig *rig = ini_rig_make(2000, (struct iscsi_limits){.connections = 2});
    char first[] = NAMES "AuthMethod=CHAP|";
    size_t len = zeroed(first);
    set(rig, INI_TARGET, &one_way, 1);
    struct ini *good = ini_connect(rig, 1);
    cr_assert_eq(chap_login(good, NAMES, "host", user_secret), 0);
    struct ini *guests[4];
    for (unsigned i = 0; i < 4; i++) {
        guests[i] = ini_connect(rig, (uint8_t)(i + 1)); /* one has the ISID of the session */
        cr_expect_eq(ini_login_request(guests[i], SEC, 0, first, len, NULL, 0), 0);
    }
    cr_expect_not(good->s->closed);
    struct ini *another = ini_connect(rig, 9);
    cr_expect_eq(chap_login(another, NAMES, "host", user_secret), 0, "there is room for it");
    for (unsigned i = 0; i < 4; i++)
        ini_drop(guests[i]);
    ini_drop(another);
    ini_drop(good);
    ini_rig_drop(rig);
}

Test(iscsi_access, unnamed_discovery_sessions_are_replaced_at_the_same_portal_only)
{
    struct ini_rig *rig = plain_rig();
    struct ini *inis[3];
    for (unsigned i = 0; i < 3; i++) {
        inis[i] = ini_connect(rig, 9);
        text_format(inis[i]->s->stream.local, sizeof inis[i]->s->stream.local, "192.0.2.1:3260");
    }
    ini_drop(inis[1]);
    inis[1] = calloc(1, sizeof *inis[1]);
    *inis[1] = (struct ini){.rig = rig, .isid = {0x80, [5] = 9}, .s = teststream_create(&rig->t->loop, 5)};
    text_format(inis[1]->s->stream.local, sizeof inis[1]->s->stream.local, "192.0.2.2:3260");
    text_format(inis[1]->s->stream.peer, sizeof inis[1]->s->stream.peer, "192.0.2.9:7");
    iscsi_conn_open(rig->server, &inis[1]->s->stream, 1);
    for (unsigned i = 0; i < 2; i++)
        cr_assert_eq(ini_login_keys(inis[i], "InitiatorName=" INI_NAME "|SessionType=Discovery"), 0);
    ini_run(inis[0]);
    cr_expect(!inis[0]->s->closed && !inis[1]->s->closed, "another portal");
    cr_assert_eq(ini_login_keys(inis[2], "InitiatorName=" INI_NAME "|SessionType=Discovery"), 0);
    ini_run(inis[0]);
    cr_expect(inis[0]->s->closed && !inis[1]->s->closed && !inis[2]->s->closed, "the same portal");
    for (unsigned i = 0; i < 3; i++)
        ini_drop(inis[i]);
    ini_rig_drop(rig);
}

/* --- what people are told --- */

static char lines[64][300];
static unsigned line_count;

static void take_line(enum log_level level, const char *line)
{
    (void)level;
    if (line_count < 64)
        text_format(lines[line_count], sizeof lines[0], "%s", line);
    line_count++;
}

Test(iscsi_access, a_refusal_is_told_with_name_address_and_reason_and_no_secret)
{
    struct ini_rig *rig = plain_rig();
    set(rig, INI_TARGET, &one_way, 1);
    log_setup(take_line, LOG_LEVEL_DEBUG);
    struct ini *ini = ini_connect(rig, 1);
    cr_expect_eq(chap_login(ini, NAMES, "host", target_secret), 0x0201);
    ini_drop(ini);
    unsigned told_once = 0;
    for (unsigned i = 0; i < line_count; i++) {
        bool refusal = strstr(lines[i], "refused: " INI_NAME " at 192.0.2.9:1001, to " INI_TARGET) != NULL;
        told_once += refusal && strstr(lines[i], "the secrets differ (0201)") != NULL;
        cr_expect_null(strstr(lines[i], user_secret));
        cr_expect_null(strstr(lines[i], target_secret));
    }
    cr_expect_eq(told_once, 1);
    log_setup(NULL, LOG_LEVEL_ERROR);
    ini_rig_drop(rig);
}

Test(iscsi_access, many_refusals_are_counted_and_names_cannot_forge_lines)
{
    struct refusals refusals = {0};
    log_setup(take_line, LOG_LEVEL_NOTICE);
    for (unsigned i = 0; i < 100; i++)
        refusal_tell(&refusals, 5, "iSCSI", "192.0.2.9:1", "iqn.a\nerror: b\x80", "", 0x0203, "why");
    cr_expect_eq(line_count, REFUSALS_SHOWN);
    cr_expect_str_eq(lines[0], "iSCSI: refused: iqn.a?error:?b? at 192.0.2.9:1, to iSCSI: why (0203)");
    refusal_tell(&refusals, 61000000000ull, "iSCSI", "192.0.2.9:1", "", "t", 0, "why");
    cr_expect_eq(line_count, REFUSALS_SHOWN + 2u);
    cr_expect_str_eq(lines[REFUSALS_SHOWN], "iSCSI: 80 further refusals were not logged");
    cr_expect_str_eq(lines[REFUSALS_SHOWN + 1], "iSCSI: refused: someone at 192.0.2.9:1, to t: why");
}
