/*
 * Keys shared beforehand: a file of lines NAME:HEX, as psktool of GnuTLS writes it. Lines that are empty or begin with
 * # are skipped.
 *
 * A look-up compares the name with every one in the table, all their bytes, and copies the key without a branch that
 * depends on it: how long it takes does not tell which names there are.
 */
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "daemon/tls_internal.h"

struct psk {
    unsigned char name[TLS_PSK_NAME_MAX], key[TLS_PSK_KEY_MAX]; /* zeroes behind */
    unsigned name_len, key_len;
};

struct tls_psks {
    unsigned count;
    struct psk psks[];
};

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* NULL, or what is wrong with the line. */
static const char *parse_line(const char *line, size_t len, struct psk *out)
{
    const char *colon = memchr(line, ':', len);
    size_t name_len = colon != NULL ? (size_t)(colon - line) : 0, hex_len = len - name_len - 1;
    if (name_len == 0)
        return "must be NAME:HEX";
    if (name_len > TLS_PSK_NAME_MAX)
        return "has a name of more than 128 bytes";
    for (size_t i = 0; i < name_len; i++)
        if ((unsigned char)line[i] <= ' ' || (unsigned char)line[i] >= 0x7f)
            return "has a name that is not all printable ASCII without spaces";
    if (hex_len % 2 != 0 || hex_len < 2 * TLS_PSK_KEY_MIN || hex_len > 2 * TLS_PSK_KEY_MAX)
        return "must have a key of 32 to 128 hexadecimal digits, an even number of them";
    memcpy(out->name, line, name_len);
    out->name_len = (unsigned)name_len;
    out->key_len = (unsigned)hex_len / 2;
    for (unsigned i = 0; i < out->key_len; i++) {
        int high = hex_value(colon[1 + 2 * i]), low = hex_value(colon[2 + 2 * i]);
        if (high < 0 || low < 0)
            return "must have a key of 32 to 128 hexadecimal digits, an even number of them";
        out->key[i] = (unsigned char)(high << 4 | low);
    }
    return NULL;
}

static bool is_known(const struct tls_psks *psks, const struct psk *psk)
{
    for (unsigned i = 0; i < psks->count; i++)
        if (psks->psks[i].name_len == psk->name_len && memcmp(psks->psks[i].name, psk->name, psk->name_len) == 0)
            return true;
    return false;
}

/* Takes the line into the table. NULL, or what is wrong. */
static const char *take_line(struct tls_psks *psks, const char *line, size_t len)
{
    struct psk *psk = &psks->psks[psks->count];
    len -= len > 0 && line[len - 1] == '\r';
    if (len == 0 || line[0] == '#')
        return NULL;
    const char *wrong = parse_line(line, len, psk);
    if (wrong == NULL && is_known(psks, psk))
        wrong = "has the name of another line";
    psks->count += wrong == NULL;
    return wrong;
}

static size_t count_lines(const char *text, size_t len)
{
    size_t lines = 1;
    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    return lines;
}

struct tls_psks *tls_psks_parse(const char *text, size_t len, char *why, size_t why_len)
{
    struct tls_psks *psks = calloc(1, sizeof *psks + count_lines(text, len) * sizeof psks->psks[0]);
    const char *wrong = psks == NULL ? "needs more memory than there is" : NULL;
    unsigned number = 1;
    for (size_t at = 0; at < len && wrong == NULL; number++) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t line_len = end != NULL ? (size_t)(end - text) - at : len - at;
        wrong = take_line(psks, text + at, line_len);
        at += line_len + 1;
    }
    if (wrong != NULL)
        text_format(why, why_len, "line %u %s", number - 1, wrong);
    else if (psks->count == 0)
        text_format(why, why_len, "holds no key");
    else
        return psks;
    tls_psks_free(psks);
    return NULL;
}

void tls_psks_free(struct tls_psks *psks)
{
    if (psks == NULL)
        return;
    OPENSSL_cleanse(psks->psks, psks->count * sizeof psks->psks[0]);
    free(psks);
}

unsigned tls_psks_find(const struct tls_psks *psks, const char *name, size_t name_len, unsigned char *key, size_t room)
{
    unsigned char padded[TLS_PSK_NAME_MAX] = {0}, found[TLS_PSK_KEY_MAX] = {0};
    unsigned key_len = 0;
    if (name_len == 0 || name_len > sizeof padded)
        return 0;
    memcpy(padded, name, name_len);
    for (unsigned i = 0; i < psks->count; i++) {
        const struct psk *psk = &psks->psks[i];
        /* Names have no zeroes: so the padding tells their lengths apart. */
        unsigned same = CRYPTO_memcmp(padded, psk->name, sizeof padded) == 0;
        unsigned char mask = (unsigned char)(0 - same);
        for (unsigned j = 0; j < sizeof found; j++)
            found[j] |= psk->key[j] & mask;
        key_len |= psk->key_len & (0 - same);
    }
    if (key_len > room || memchr(name, 0, name_len) != NULL)
        key_len = 0;
    memcpy(key, found, key_len);
    OPENSSL_cleanse(found, sizeof found);
    return key_len;
}
