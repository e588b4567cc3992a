/* Who may: access lists as values: access.h. A whole connection is in test_iscsi_auth.c. */
#include "target/iscsi/access.h"

#include <criterion/criterion.h>
#include <string.h>

#include "core/check.h"
#include "target/match.h"

#define HOST "192.0.2.9:1000"

/* --- patterns and networks --- */

Test(iscsi_access, patterns)
{
    static const struct {
        const char *pattern, *name;
        bool fits;
    } cases[] = {
        {"iqn.a:b", "iqn.a:b", true},
        {"iqn.a:b", "iqn.a:bc", false},
        {"iqn.a:bc", "iqn.a:b", false},
        {"*", "", true},
        {"*", "anything", true},
        {"", "", true},
        {"", "x", false},
        {"iqn.*:host", "iqn.a.b:host", true},
        {"iqn.*:host", "iqn.a:host:host", true},
        {"iqn.*:host", "iqn.a:hosts", false},
        {"*a*b*", "xxaxxbxx", true},
        {"*a*b*", "xxbxxaxx", false},
        {"host-?", "host-1", true},
        {"host-?", "host-", false},
        {"host-?", "host-12", false},
        {"IQN.A:B", "iqn.a:b", true},
        {"iqn.a:b", "IQN.A:B", true},
        {"a*", "b", false},
        {"**", "x", true},
        {"[a-z]", "b", false},
        {"[a-z]", "[a-z]", true},
        {"a.c", "abc", false},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++)
        cr_expect_eq(match_pattern(cases[i].pattern, cases[i].name, true), cases[i].fits, "%s, %s", cases[i].pattern,
                     cases[i].name);
    char name[224], pattern[112];
    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = '\0';
    for (unsigned i = 0; i < sizeof pattern - 2; i += 2)
        memcpy(pattern + i, "*a", 2);
    memcpy(pattern + sizeof pattern - 2, "b", 2);
    cr_expect_not(match_pattern(pattern, name, true), "and at once");
}

Test(iscsi_access, networks)
{
    static const struct {
        const char *network, *peer;
        int in; /* -1: no network */
    } cases[] = {
        {"192.0.2.0/24", "192.0.2.255:1", 1},
        {"192.0.2.0/24", "192.0.3.0:1", 0},
        {"192.0.2.9", "192.0.2.9:65535", 1},
        {"192.0.2.9", "192.0.2.8:65535", 0},
        {"192.0.2.8/31", "192.0.2.9:1", 1},
        {"192.0.2.8/31", "192.0.2.10:1", 0},
        {"0.0.0.0/0", "203.0.113.7:1", 1},
        {"0.0.0.0/0", "[2001:db8::1]:1", 0},
        {"::/0", "203.0.113.7:1", 1},
        {"192.0.2.9/32", "[::ffff:192.0.2.9]:1", 1},
        {"2001:db8::/32", "[2001:db8:1::1]:3260", 1},
        {"2001:db8::/32", "[2001:db9::1]:3260", 0},
        {"2001:db8::/33", "[2001:db8:8000::1]:3260", 0},
        {"2001:db8::1", "[2001:db8::1]:3260", 1},
        {"2001:db8::1/128", "[2001:db8::2]:3260", 0},
        {"192.0.2.0/24", "unix:/run/x", 0},
        {"192.0.2.0/24", "", 0},
        {"192.0.2.0/33", "", -1},
        {"192.0.2.0/", "", -1},
        {"192.0.2.0/x", "", -1},
        {"192.0.2.0/24/8", "", -1},
        {"2001:db8::/129", "", -1},
        {"192.0.2/24", "", -1},
        {"", "", -1},
        {"host.example.org", "", -1},
        {"[2001:db8::1]", "", -1},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct iscsi_rule rule = {.addresses = &cases[i].network, .address_count = 1};
        struct access_list *list = access_create(&rule, 1);
        cr_expect_eq(list != NULL, cases[i].in >= 0, "%s", cases[i].network);
        cr_expect_eq(match_network_valid(cases[i].network), cases[i].in >= 0, "%s", cases[i].network);
        if (list != NULL)
            cr_expect_eq(access_admits(list, "iqn", cases[i].peer), cases[i].in, "%s, %s", cases[i].network,
                         cases[i].peer);
        access_release(list);
    }
    uint8_t host[16];
    cr_expect(match_host("192.0.2.1:5", host));
    cr_expect_eq(memcmp(host, "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01", 16), 0);
    cr_expect(match_host("[::1]:5", host));
    cr_expect_eq(memcmp(host, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01", 16), 0);
    cr_expect_not(match_host("unix:/x", host));
}

Test(iscsi_access, rules_speak_in_their_order_for_name_and_address_together)
{
    const struct iscsi_rule rules[] = {
        {.name = "a",
         .initiators = (const char *const[]){"*:one"},
         .initiator_count = 1,
         .addresses = (const char *const[]){"192.0.2.0/24", "2001:db8::/32"},
         .address_count = 2},
        {.name = "b", .initiators = (const char *const[]){"*:two", "*:one"}, .initiator_count = 2},
    };
    struct access_list *list = access_create(rules, 2);
    const struct access_rule *rule = access_next(list, NULL, "iqn:one", "192.0.2.1:1");
    cr_assert_not_null(rule);
    cr_expect_str_eq(rule->name, "a");
    rule = access_next(list, rule, "iqn:one", "192.0.2.1:1");
    cr_assert_not_null(rule);
    cr_expect_str_eq(rule->name, "b");
    cr_expect_null(access_next(list, rule, "iqn:one", "192.0.2.1:1"));
    cr_expect_str_eq(access_next(list, NULL, "iqn:one", "192.0.3.1:1")->name, "b");
    cr_expect_str_eq(access_next(list, NULL, "iqn:two", "192.0.2.1:1")->name, "b");
    cr_expect_null(access_next(list, NULL, "iqn:three", "192.0.2.1:1"));
    cr_expect(access_admits(NULL, "iqn:three", "192.0.2.1:1"), "no list: everybody");
    struct access_list *empty = access_create(rules, 0);
    cr_expect_not(access_admits(empty, "iqn:one", "192.0.2.1:1"), "no rule: nobody");
    access_release(empty);
    access_release(list);
}

Test(iscsi_access, what_two_lists_say_of_an_initiator)
{
    struct scsi_view view = {.row = {1}}, other = {.row = {2}};
    const struct iscsi_rule base = {.user = "u", .secret = "s", .view = &view};
    struct iscsi_rule changed[6];
    for (unsigned i = 0; i < 6; i++)
        changed[i] = base;
    changed[0].name = "only the name";
    changed[1].secret = "t";
    changed[2].user = "v";
    changed[3].target_user = "t";
    changed[4].view = &other;
    changed[5].view = NULL;
    struct access_list *old = access_create(&base, 1);
    for (unsigned i = 0; i < 6; i++) {
        struct access_list *new = access_create(&changed[i], 1);
        cr_expect_eq(access_same(old, new, "i", HOST), i == 0, "%u", i);
        access_release(new);
    }
    struct access_list *none = access_create(&base, 0);
    cr_expect_not(access_same(old, none, "i", HOST));
    cr_expect_not(access_same(old, NULL, "i", HOST));
    cr_expect(access_same(NULL, NULL, "i", HOST));
    access_release(none);
    access_release(old);
}

Test(iscsi_access, rules_that_have_other_secrets)
{
    const struct iscsi_rule old_rules[] = {{.name = "a", .secret = "s", .target_secret = "t"}, {.name = "b"}};
    struct iscsi_rule rules[] = {{.name = "b"}, {.name = "c", .secret = "x"}, old_rules[0]};
    struct access_list *old = access_create(old_rules, 2), *same = access_create(rules, 3);
    cr_expect_not(access_secrets_differ(old, same), "another order and a new rule");
    rules[2].target_secret = "u";
    struct access_list *target = access_create(rules, 3);
    cr_expect(access_secrets_differ(old, target));
    rules[2] = (struct iscsi_rule){.name = "a", .secret = "r", .target_secret = "t"};
    struct access_list *initiator = access_create(rules, 3);
    cr_expect(access_secrets_differ(old, initiator));
    cr_expect_not(access_secrets_differ(NULL, old));
    cr_expect_not(access_secrets_differ(old, NULL));
    access_release(old);
    access_release(same);
    access_release(target);
    access_release(initiator);
}
