/*
 * An initiator that negotiates anything: bytes into the login machine, with access lists and CHAP.
 *
 * The first byte chooses who may: bits 0 and 1 a rule with a user, one with mutual CHAP; bit 2 one without; bit 3
 * everybody. Then follow records: the flags byte of a login request, the length of its text (one byte, times 4), and
 * that much text. Two flags that the standard keeps free make mutations get on: 10 adds the right user and response to
 * the last challenge, 20 our own challenge as the initiator's.
 *
 * Whatever comes, nobody gets in who has not proved what his rule asks for, and no secret comes out.
 */
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "target/iscsi/login.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { ONE_WAY = 1, MUTUAL = 2, OPEN = 4, EVERYBODY = 8 };
enum { ADD_RESPONSE = 0x10, ADD_CHALLENGE = 0x20, RECORDS_MAX = 64, RECORD_HEAD = 2 };

static const char secret[] = "correct horse battery", target_secret[] = "staple of the target";

struct fuzz {
    struct login login;
    struct access_list *access;
    char text[TEXT_MAX], answers[TEXT_REPLY_MAX];
    unsigned algorithm, id; /* as last asked */
    char challenge[CHAP_TEXT_MAX];
    bool proved; /* the right response was given */
};

static struct access_list *rules_make(unsigned mode)
{
    struct iscsi_rule rules[3];
    unsigned count = 0;
    if (mode & ONE_WAY)
        rules[count++] = (struct iscsi_rule){.name = "one", .user = "host", .secret = secret};
    if (mode & MUTUAL)
        rules[count++] = (struct iscsi_rule){
            .name = "two", .user = "host", .secret = secret, .target_user = "disk", .target_secret = target_secret};
    if (mode & OPEN)
        rules[count++] = (struct iscsi_rule){.name = "open"};
    return mode & EVERYBODY ? NULL : access_create(rules, count);
}

static void add(struct fuzz *f, const char *key, const char *value)
{
    size_t need = strlen(key) + strlen(value) + 2;
    if (need > TEXT_MAX - f->login.text_len)
        return;
    text_format(f->text + f->login.text_len, need, "%s=%s", key, value);
    f->login.text_len += (uint32_t)need;
}

static void add_response(struct fuzz *f)
{
    uint8_t challenge[CHAP_DIGEST_MAX], response[CHAP_DIGEST_MAX];
    char text[CHAP_TEXT_MAX];
    size_t len;
    if (f->algorithm == 0)
        return;
    ASSERT(chap_binary_parse(f->challenge, strlen(f->challenge), challenge, sizeof challenge, &len));
    ASSERT(chap_response(f->algorithm, (uint8_t)f->id, secret, challenge, len, response));
    chap_binary_format(text, response, chap_digest_bytes(f->algorithm));
    add(f, "CHAP_N", "host");
    add(f, "CHAP_R", text);
    f->proved = true;
}

static void add_challenge(struct fuzz *f)
{
    char id[12];
    text_format(id, sizeof id, "%u", f->id);
    add(f, "CHAP_I", id);
    add(f, "CHAP_C", f->challenge);
}

/* Remember what is asked; and no reply holds a secret. */
static void listen(struct fuzz *f)
{
    const struct login *login = &f->login;
    ASSERT(login->reply_len <= MAX_RECV_DEFAULT && !(login->transit && login->auth.step != AUTH_DONE));
    ASSERT(login->reply_len == 0 || memmem(login->reply_text, login->reply_len, secret, strlen(secret)) == NULL);
    ASSERT(login->reply_len == 0 ||
           memmem(login->reply_text, login->reply_len, target_secret, strlen(target_secret)) == NULL);
    if (login->auth.step != AUTH_RESPONSE)
        return;
    f->algorithm = login->auth.algorithm;
    f->id = login->auth.id;
    chap_binary_format(f->challenge, login->auth.challenge, chap_digest_bytes(f->algorithm));
}

static void check_admission(const struct fuzz *f, unsigned mode)
{
    bool needs = !(mode & (OPEN | EVERYBODY));
    ASSERT(!needs || (f->proved && f->login.auth.rule != NULL));
    ASSERT((mode & EVERYBODY) || f->login.auth.rule != NULL);
}

static size_t feed(struct fuzz *f, const uint8_t *record, size_t len, enum login_outcome *outcome)
{
    uint32_t text_len = (uint32_t)MIN(record[1] * 4u, len - RECORD_HEAD);
    struct pdu pdu = {.opcode = PDU_LOGIN, .immediate = true, .itt = 5, .final = record[0] >> 7};
    pdu.more = record[0] >> 6 & 1;
    pdu.login.csg = record[0] >> 2 & 3;
    pdu.login.nsg = record[0] & 3;
    uint32_t before = f->login.text_len, room = MIN(text_len, (uint32_t)TEXT_MAX - before);
    memcpy(f->text + before, record + RECORD_HEAD, room);
    f->login.text_len += room;
    if (record[0] & ADD_RESPONSE)
        add_response(f);
    if (record[0] & ADD_CHALLENGE)
        add_challenge(f);
    pdu.data_len = f->login.text_len - before;
    *outcome = login_request(&f->login, &pdu);
    return RECORD_HEAD + text_len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < 1)
        return 0;
    struct fuzz *f = calloc(1, sizeof *f);
    ASSERT(f != NULL);
    f->access = rules_make(data[0]);
    struct login_grant grant = {
        .alias = "alias", .access = f->access, .peer = "192.0.2.9:1", .group = 1, .draws = {1, 2, 3}};
    enum login_outcome outcome = LOGIN_REPLY;
    login_init(&f->login, f->text, f->answers);
    for (size_t at = 1, count = 0; at + RECORD_HEAD <= len && outcome == LOGIN_REPLY && count < RECORDS_MAX; count++) {
        at += feed(f, data + at, len - at, &outcome);
        if (outcome == LOGIN_FIND_TARGET)
            outcome = login_resume(&f->login, &grant);
        listen(f);
    }
    if (outcome == LOGIN_DONE)
        check_admission(f, data[0]);
    access_release(f->access);
    free(f);
    return 0;
}
