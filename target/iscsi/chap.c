/* CHAP: see chap.h. */
#include "target/iscsi/chap.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

#include "core/check.h"

static const struct {
    const char *hash; /* as OpenSSL calls it */
    size_t bytes;
} algorithms[] = {
    [CHAP_MD5] = {"MD5", 16},
    [CHAP_SHA1] = {"SHA1", 20},
    [CHAP_SHA256] = {"SHA256", 32},
    [CHAP_SHA3_256] = {"SHA3-256", 32},
};

size_t chap_digest_bytes(unsigned algorithm)
{
    return algorithm < ARRAY_LENGTH(algorithms) ? algorithms[algorithm].bytes : 0;
}

static bool is_usable(unsigned algorithm)
{
    if (chap_digest_bytes(algorithm) == 0)
        return false;
    EVP_MD *md = EVP_MD_fetch(NULL, algorithms[algorithm].hash, NULL);
    EVP_MD_free(md);
    return md != NULL;
}

/* All of ours have one digit. */
unsigned chap_choose(const char *list, size_t len)
{
    for (size_t at = 0, item; at < len; at += item + 1) {
        const char *comma = memchr(list + at, ',', len - at);
        item = comma != NULL ? (size_t)(comma - list) - at : len - at;
        unsigned algorithm = item == 1 ? (unsigned)(unsigned char)list[at] - '0' : 0;
        if (is_usable(algorithm))
            return algorithm;
    }
    return 0;
}

bool chap_response(unsigned algorithm, uint8_t id, const char *secret, const uint8_t *challenge, size_t challenge_len,
                   uint8_t out[CHAP_DIGEST_MAX])
{
    uint8_t text[1 + CHAP_SECRET_MAX + CHAP_CHALLENGE_MAX];
    size_t secret_len = strlen(secret), out_len = 0;
    ASSERT(chap_digest_bytes(algorithm) > 0 && secret_len <= CHAP_SECRET_MAX && challenge_len <= CHAP_CHALLENGE_MAX);
    text[0] = id;
    memcpy(text + 1, secret, secret_len);
    memcpy(text + 1 + secret_len, challenge, challenge_len);
    bool good =
        EVP_Q_digest(NULL, algorithms[algorithm].hash, NULL, text, 1 + secret_len + challenge_len, out, &out_len) == 1;
    OPENSSL_cleanse(text, sizeof text);
    return good && out_len == algorithms[algorithm].bytes;
}

bool chap_equal(const void *a, const void *b, size_t len)
{
    return CRYPTO_memcmp(a, b, len) == 0;
}

bool chap_unguess(const uint64_t draws[CHAP_DRAWS], uint8_t out[CHAP_UNGUESSED])
{
    size_t len = 0;
    return EVP_Q_digest(NULL, "SHA512", NULL, draws, CHAP_DRAWS * sizeof *draws, out, &len) == 1;
}

void chap_wipe(void *bytes, size_t len)
{
    OPENSSL_cleanse(bytes, len);
}

/* --- binary values as text --- */

static int value_of(const char *digits, char c)
{
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

static bool parse_hexadecimal(const char *text, size_t text_len, uint8_t *out, size_t max, size_t *len)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    if (text_len % 2 != 0 || text_len / 2 > max)
        return false;
    for (size_t i = 0; i < text_len / 2; i++) {
        int high = value_of(digits, text[2 * i]), low = value_of(digits, text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)((high & 15) << 4 | (low & 15));
    }
    *len = text_len / 2;
    return true;
}

/* RFC 4648: groups of four, the last one filled up with "=". */
static bool parse_base64(const char *text, size_t text_len, uint8_t *out, size_t max, size_t *len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t padding = text_len >= 1 && text[text_len - 1] == '=' ? 1 : 0;
    padding += padding == 1 && text_len >= 2 && text[text_len - 2] == '=' ? 1 : 0;
    if (text_len % 4 != 0 || text_len / 4 * 3 - padding > max)
        return false;
    uint32_t bits = 0;
    *len = 0;
    for (size_t i = 0; i < text_len - padding; i++) {
        int value = value_of(digits, text[i]);
        if (value < 0)
            return false;
        bits = bits << 6 | (uint32_t)value;
        if (i % 4 != 0)
            out[(*len)++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    return true;
}

bool chap_binary_parse(const char *text, size_t text_len, uint8_t *out, size_t max, size_t *len)
{
    if (text_len <= 2 || text[0] != '0')
        return false;
    if (text[1] == 'x' || text[1] == 'X')
        return parse_hexadecimal(text + 2, text_len - 2, out, max, len);
    return (text[1] == 'b' || text[1] == 'B') && parse_base64(text + 2, text_len - 2, out, max, len);
}

void chap_binary_format(char *out, const uint8_t *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    memcpy(out, "0x", 2);
    for (size_t i = 0; i < len; i++) {
        out[2 + 2 * i] = digits[bytes[i] >> 4];
        out[3 + 2 * i] = digits[bytes[i] & 15];
    }
    out[2 + 2 * len] = '\0';
}
