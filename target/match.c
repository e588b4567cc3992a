/* See match.h. */
#include "target/match.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"

/* --- names --- */

static char folded(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool same(char a, char b, bool fold)
{
    return a == b || (fold && folded(a) == folded(b));
}

/* When something does not fit behind a '*', that star takes one character more: only the last star is ever tried again,
 * so the time is at most the product of the lengths. */
bool match_pattern(const char *pattern, const char *name, bool fold)
{
    const char *star = NULL, *taken = NULL;
    while (*name != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            taken = name;
        } else if (*pattern != '\0' && (*pattern == '?' || same(*pattern, *name, fold))) {
            pattern++;
            name++;
        } else if (star != NULL) {
            pattern = star + 1;
            name = ++taken;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

/* --- addresses --- */

enum { ADDRESS_BITS = 128, V4_BITS = 32, ADDRESS_TEXT = 64 };

/* `text` of `len` bytes: an IPv4 or IPv6 address. False: neither. */
static bool parse_address(const char *text, size_t len, uint8_t out[16], bool *v4)
{
    char address[ADDRESS_TEXT];
    if (len >= sizeof address)
        return false;
    memcpy(address, text, len);
    address[len] = '\0';
    memset(out, 0, 10);
    memset(out + 10, 0xff, 2);
    *v4 = inet_pton(AF_INET, address, out + 12) == 1;
    return *v4 || inet_pton(AF_INET6, address, out) == 1;
}

bool match_network_parse(const char *text, struct match_network *out)
{
    size_t len = strcspn(text, "/");
    bool v4;
    if (!parse_address(text, len, out->bytes, &v4))
        return false;
    unsigned most = v4 ? V4_BITS : ADDRESS_BITS, bits = 0;
    const char *digit = text + len + 1;
    if (text[len] == '\0') {
        out->bits = ADDRESS_BITS;
        return true;
    }
    for (; *digit >= '0' && *digit <= '9' && bits <= most; digit++)
        bits = bits * 10 + (unsigned)(*digit - '0');
    out->bits = ADDRESS_BITS - most + bits;
    return *digit == '\0' && digit[-1] != '/' && bits <= most;
}

bool match_network_valid(const char *text)
{
    struct match_network network;
    return match_network_parse(text, &network);
}

bool match_host(const char *peer, uint8_t out[16])
{
    const char *end = peer[0] == '[' ? strchr(peer, ']') : strchr(peer, ':');
    bool v4;
    peer += peer[0] == '[';
    return end != NULL && parse_address(peer, (size_t)(end - peer), out, &v4);
}

bool match_network_holds(const struct match_network *network, const uint8_t address[16])
{
    unsigned whole = network->bits / 8, rest = network->bits % 8;
    if (memcmp(address, network->bytes, whole) != 0)
        return false;
    return rest == 0 || ((address[whole] ^ network->bytes[whole]) >> (8 - rest)) == 0;
}

static bool copy_patterns(struct match_rule *rule, const char *const *patterns, unsigned count)
{
    rule->patterns = calloc(MAX(count, 1u), sizeof *rule->patterns);
    bool good = rule->patterns != NULL;
    for (unsigned i = 0; i < count && good; i++) {
        rule->patterns[i] = strdup(patterns[i]);
        good = rule->patterns[i] != NULL;
        rule->pattern_count += good;
    }
    return good;
}

static bool copy_networks(struct match_rule *rule, const char *const *networks, unsigned count)
{
    rule->networks = calloc(MAX(count, 1u), sizeof *rule->networks);
    bool good = rule->networks != NULL;
    for (unsigned i = 0; i < count && good; i++)
        good = match_network_parse(networks[i], &rule->networks[i]);
    rule->network_count = count;
    return good;
}

bool match_rule_init(struct match_rule *rule, const char *const *patterns, unsigned pattern_count,
                     const char *const *networks, unsigned network_count)
{
    *rule = (struct match_rule){.patterns = NULL};
    return copy_patterns(rule, patterns, pattern_count) && copy_networks(rule, networks, network_count);
}

void match_rule_free(struct match_rule *rule)
{
    for (unsigned i = 0; i < rule->pattern_count; i++)
        free(rule->patterns[i]);
    free(rule->patterns);
    free(rule->networks);
}

bool match_rule_at(const struct match_rule *rule, const uint8_t address[16])
{
    bool at = rule->network_count == 0;
    for (unsigned i = 0; i < rule->network_count && address != NULL && !at; i++)
        at = match_network_holds(&rule->networks[i], address);
    return at;
}
