/*
 * What rules of access lists are made of, for all protocols: patterns of names, and networks.
 */
#ifndef TARGET_MATCH_H
#define TARGET_MATCH_H

#include <stdbool.h>
#include <stdint.h>

/* '*' is any text, '?' any byte. `fold`: ASCII letters of any case are the same. */
bool match_pattern(const char *pattern, const char *name, bool fold);

/* An IPv6 network; IPv4 as ::ffff:a.b.c.d. */
struct match_network {
    uint8_t bytes[16];
    unsigned bits;
};

/* "192.0.2.0/24", "2001:db8::/32", "192.0.2.7". False: neither a network nor an address. */
bool match_network_parse(const char *text, struct match_network *out);
bool match_network_valid(const char *text);
bool match_network_holds(const struct match_network *network, const uint8_t address[16]);

/* Whom a rule speaks for; copies of its texts. */
struct match_rule {
    char **patterns;
    struct match_network *networks;
    unsigned pattern_count, network_count;
};

/* False: a network that is none, or no memory; match_rule_free() is called in any case. */
bool match_rule_init(struct match_rule *rule, const char *const *patterns, unsigned pattern_count,
                     const char *const *networks, unsigned network_count);
void match_rule_free(struct match_rule *rule);
/* Is an address one of its networks'? NULL: it is not known. Without a network all are, known or not. */
bool match_rule_at(const struct match_rule *rule, const uint8_t address[16]);

/* The address in that of a stream, "192.0.2.1:40312" or "[2001:db8::1]:3260", without its port; false: it has none. */
bool match_host(const char *peer, uint8_t out[16]);

#endif
