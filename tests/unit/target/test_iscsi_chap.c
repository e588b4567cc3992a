/* The arithmetic of CHAP, by answers computed elsewhere (Python's hashlib): target/iscsi/chap.h. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/check.h"
#include "target/iscsi/chap.h"

#define SECRET "correct horse battery"

static const struct {
    unsigned algorithm;
    size_t bytes;
    const char *response; /* identifier 2a, challenge 00 01 .. 0f */
} known[] = {
    {CHAP_MD5, 16, "0x7efffe0f324cdaeb9442b9216e36d904"},
    {CHAP_SHA1, 20, "0xf960d1db12d99fa70d7120fdb7368a2226f7ca0b"},
    {CHAP_SHA256, 32, "0x27750b3c27f8f918a878a6e96ac6ba3778f21ad55a7cd93fbd1424ab63cbe87b"},
    {CHAP_SHA3_256, 32, "0x983c8a268420313515d40186ac94b8c2146173a611c48d1fa21af77a5fe8f0cd"},
};

Test(iscsi_chap, each_number_is_the_hash_that_is_registered_for_it)
{
    static const uint8_t challenge[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static const unsigned numbers[] = {5, 6, 7, 8};
    for (unsigned i = 0; i < ARRAY_LENGTH(known); i++) {
        uint8_t out[CHAP_DIGEST_MAX];
        char text[CHAP_TEXT_MAX];
        cr_expect_eq(known[i].algorithm, numbers[i]);
        cr_expect_eq(chap_digest_bytes(numbers[i]), known[i].bytes);
        cr_assert(chap_response(numbers[i], 0x2a, SECRET, challenge, sizeof challenge, out));
        chap_binary_format(text, out, known[i].bytes);
        cr_expect_str_eq(text, known[i].response, "%u", numbers[i]);
    }
}

Test(iscsi_chap, the_longest_secret_and_challenge_are_hashed_whole)
{
    uint8_t challenge[CHAP_CHALLENGE_MAX], out[CHAP_DIGEST_MAX];
    char secret[CHAP_SECRET_MAX + 1], text[CHAP_TEXT_MAX];
    for (unsigned i = 0; i < sizeof challenge; i++)
        challenge[i] = (uint8_t)i;
    memset(secret, 'x', CHAP_SECRET_MAX);
    secret[CHAP_SECRET_MAX] = '\0';
    cr_assert(chap_response(CHAP_SHA256, 255, secret, challenge, sizeof challenge, out));
    chap_binary_format(text, out, 32);
    cr_expect_str_eq(text, "0x0ec4d1fbd7e7ab556f80c2db726e20c4912777059b48b6512da25232b268963d");
}

Test(iscsi_chap, the_first_known_of_a_list_is_chosen)
{
    static const struct {
        const char *list;
        unsigned chosen;
    } cases[] = {
        {"5", 5},  {"8,7,6,5", 8}, {"5,6,7,8", 5}, {"6", 6},  {"7,5", 7},  {"9,4,6", 6}, {"55,7", 7},
        {"56", 0}, {"", 0},        {",", 0},       {",5", 5}, {"0x5", 0},  {"4", 0},     {"9", 0},
        {" 5", 0}, {"5 ", 0},      {"MD5,5", 5},   {"7,", 7}, {"\xff", 0}, {"/,:,5", 5},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        unsigned chosen = chap_choose(cases[i].list, strlen(cases[i].list));
        cr_expect_eq(chosen, cases[i].chosen, "\"%s\": %u", cases[i].list, chosen);
    }
    cr_expect_eq(chap_choose("78", 1), 7, "the list ends where it is said to");
}

Test(iscsi_chap, binary_values_in_hexadecimal_and_base64)
{
    static const struct {
        const char *text;
        int len; /* -1: refused */
        uint8_t bytes[6];
    } cases[] = {
        {"0x00", 1, {0}},
        {"0XaBcDeF", 3, {0xab, 0xcd, 0xef}},
        {"0bAA==", 1, {0}},
        {"0bAQI=", 2, {1, 2}},
        {"0bYWJj", 3, {'a', 'b', 'c'}},
        {"0B//79/A==", 4, {0xff, 0xfe, 0xfd, 0xfc}},
        {"0x000102030405", 6, {0, 1, 2, 3, 4, 5}},
        {"0x00010203040506", -1, {0}}, /* longer than there is room for */
        {"0bAAECAwQFBg==", -1, {0}},
        {"0x", -1, {0}},
        {"0b", -1, {0}},
        {"", -1, {0}},
        {"0", -1, {0}},
        {"0x123", -1, {0}},
        {"0x1g", -1, {0}},
        {"00", -1, {0}},
        {"1234", -1, {0}},
        {"0bA===", -1, {0}},
        {"0b====", -1, {0}},
        {"0b==", -1, {0}},
        {"0bAA=A", -1, {0}},
        {"0bAAA", -1, {0}},
        {"0bAA-_", -1, {0}},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint8_t out[6];
        size_t len = 0;
        bool good = chap_binary_parse(cases[i].text, strlen(cases[i].text), out, sizeof out, &len);
        cr_expect_eq(good, cases[i].len >= 0, "%s", cases[i].text);
        if (good && cases[i].len >= 0)
            cr_expect(len == (size_t)cases[i].len && memcmp(out, cases[i].bytes, len) == 0, "%s", cases[i].text);
    }
}

Test(iscsi_chap, equal_is_equal)
{
    cr_expect(chap_equal("abc", "abc", 3));
    cr_expect_not(chap_equal("abc", "abd", 3));
}
