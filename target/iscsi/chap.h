/*
 * CHAP (RFC 1994, RFC 7143 12.1.3): the arithmetic, and how binary values are written. Pure.
 *
 * A response is the hash of identifier, secret and challenge. The hashes are OpenSSL's; one that the machine's policy
 * forbids (MD5, where only approved ones may be used) is as if we did not know it. What is said when is auth.h's.
 */
#ifndef TARGET_ISCSI_CHAP_H
#define TARGET_ISCSI_CHAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers of CHAP_A, as IANA registers them. */
enum { CHAP_MD5 = 5, CHAP_SHA1 = 6, CHAP_SHA256 = 7, CHAP_SHA3_256 = 8 };
enum {
    CHAP_DIGEST_MAX = 32,
    CHAP_CHALLENGE_MAX = 1024, /* of the peer; ours are as long as the digest */
    CHAP_NAME_MAX = 255,
    CHAP_SECRET_MAX = 255,
    CHAP_SECRET_MIN = 12,                        /* RFC 7143, 9.2.1: 96 bits */
    CHAP_TEXT_MAX = 2 + 2 * CHAP_DIGEST_MAX + 1, /* what chap_binary_format() writes of a digest */
};

/* The first of the list ("8,7,5") that we know; 0: none. */
unsigned chap_choose(const char *list, size_t len);
/* Bytes of its responses; 0: not known. */
size_t chap_digest_bytes(unsigned algorithm);
bool chap_response(unsigned algorithm, uint8_t id, const char *secret, const uint8_t *challenge, size_t challenge_len,
                   uint8_t out[CHAP_DIGEST_MAX]);
/* Equal? In a time that tells nothing of where they differ. */
bool chap_equal(const void *a, const void *b, size_t len);

/* "0x" and hexadecimal digits, or "0b" and Base64 (6.1). False: neither, or longer than `max`. */
bool chap_binary_parse(const char *text, size_t text_len, uint8_t *out, size_t max, size_t *len);
/* As hexadecimal: 2 * len + 3 bytes. */
void chap_binary_format(char *out, const uint8_t *bytes, size_t len);

/* Random numbers of a loop, which may be guessed from each other, made into 64 bytes that may not. */
enum { CHAP_DRAWS = 8, CHAP_UNGUESSED = 64 };
bool chap_unguess(const uint64_t draws[CHAP_DRAWS], uint8_t out[CHAP_UNGUESSED]);

/* Overwrite a secret that is not needed any more. */
void chap_wipe(void *bytes, size_t len);

#endif
