#include <criterion/criterion.h>
#include <string.h>

#include "core/check.h"
#include "daemon/disk_iscsi.h"
#include "daemon/remote_uri.h"

Test(remote_uri, paths_are_no_uris)
{
    static const char *const paths[] = {"/dev/sda", "disk",        "d:/x",      "/srv/nbd://x",
                                        "",         "1nbd://host", "nbd:/host", ":// "};
    static const char *const uris[] = {"nbd://h", "iscsi://h/t/0", "nbd+unix:///v?socket=/s", "http://h", "x-y.z+1://"};
    for (unsigned i = 0; i < ARRAY_LENGTH(paths); i++)
        cr_expect_not(remote_is_uri(paths[i]), "%s", paths[i]);
    for (unsigned i = 0; i < ARRAY_LENGTH(uris); i++)
        cr_expect(remote_is_uri(uris[i]), "%s", uris[i]);
}

Test(remote_uri, what_is_wrong_with_one_is_said)
{
    static const struct {
        const char *uri, *why; /* NULL: it is good */
    } cases[] = {
        {"nbd://host/export", NULL},
        {"nbd://host:10810", NULL},
        {"nbd://[2001:db8::1]:10809/v", NULL},
        {"nbds://host/v?tls-certificates=/etc/pki", NULL},
        {"nbd+unix:///v?socket=/run/nbd.sock", NULL},
        {"nbds+unix://me@/v?tls-psk-file=/k&socket=/run/nbd.sock", NULL},
        {"iscsi://host/iqn.2026-01.org.example:t/0", NULL},
        {"iscsi://me@[2001:db8::1]:3261/iqn.2026-01.org.example:t/255?secret_file=/etc/s", NULL},
        {"iscsi://me@h/t/0?secret_file=/s&target_user=they&target_secret_file=/t&initiator=iqn.x", NULL},
        {"nbd://me@host:1/%2f%25?", "has a parameter \"\" that is not known"},
        {"nbd://[fe80::1%25eth0]:65535/", NULL},
        {"nbd+unix:///?socket=%2Frun/nbd.sock", NULL},
        {"nbd:///export", "names no host"},
        {"nbd://:10809/v", "names no host"},
        {"nbd://me@/v", "names no host"},
        {"nbd://host:99999", "names a port"},
        {"nbd://host:65536/v", "names a port"},
        {"nbd://host:0/v", "names a port"},
        {"nbd://host:/v", "names a port"},
        {"nbd://host:nbd/v", "names a port"},
        {"nbd://host:18446744073709551617/v", "names a port"},
        {"nbd://[2001:db8::1]10809/v", "names a port"},
        {"nbd://[2001:db8::1]:99999/v", "names a port"},
        {"nbd://[2001:db8::1/v", "names a host in brackets"},
        {"nbd://[host]/v", "names a host in brackets"},
        {"nbd://[]/v", "names a host in brackets"},
        {"nbd://2001:db8::1/v", "must have its IPv6 address in brackets"},
        {"nbds://me:secret@host/v", "holds a secret"},
        {"nbd://host/100%", "holds a %"},
        {"nbd://host/a%2", "holds a %"},
        {"nbd://host/a#b", "holds a #"},
        {"nbd://host/v?sokcet=/s", "has a parameter \"sokcet\" that is not known"},
        {"nbds://host/v?tls-verify-peer=false", "has a parameter \"tls-verify-peer\" that is not known"},
        {"nbd://host/v?socket=/s", "has a parameter \"socket\", which is for nbd+unix"},
        {"nbd://host/v?tls-psk-file=/k", "has a parameter \"tls-psk-file\", which is for nbds"},
        {"nbd+unix:///v?socket=/s&tls-certificates=/c", "has a parameter \"tls-certificates\", which is for nbds"},
        {"nbds://host/v?tls-certificates=pki", "has a parameter \"tls-certificates\" that is no absolute path"},
        {"nbds://host/v?tls-certificates=/a&tls-certificates=/b", "has the parameter \"tls-certificates\" twice"},
        {"nbd+unix:///v", "names no socket"},
        {"nbd+unix:///v?socket=", "has a parameter \"socket\" without a value"},
        {"nbd+unix:///v?socket", "has a parameter \"socket\" without a value"},
        {"nbd+unix:///v?socket=nbd.sock", "has a parameter \"socket\" that is no absolute path"},
        {"nbd+unix://host/v?socket=/s", "names a host"},
        {"nbd+vsock://1", "is neither nbd://"},
        {"http://host/", "is neither nbd://"},
        {"nbd://host/a b", "holds a blank"},
        {"nbd://host/\xc3\xa9", "holds a blank"},
        {"iscsi://host", "must be iscsi://"},
        {"iscsi://host/iqn.x", "must be iscsi://"},
        {"iscsi://host//0", "must be iscsi://"},
        {"iscsi://host/iqn.x/", "must be iscsi://"},
        {"iscsi://host/iqn.x/256", "must be iscsi://"},
        {"iscsi://host/iqn.x/0x1", "must be iscsi://"},
        {"iscsi://host/iqn.x/0/1", "must be iscsi://"},
        {"iscsi:///iqn.x/0", "names no host"},
        {"iscsi://:3260/iqn.x/0", "names no host"},
        {"iscsi://host:99999/iqn.x/0", "names a port"},
        {"iscsi://host:/iqn.x/0", "names a port"},
        {"iscsi://2001:db8::1/iqn.x/0", "must have its IPv6 address in brackets"},
        {"iscsi://[2001:db8::1]x/iqn.x/0", "names a port"},
        {"iscsi://me%secret@host/iqn.x/0", "holds a secret"},
        {"iscsi://me:secret@host/iqn.x/0", "holds a secret"},
        {"iscsi://me@host/iqn.x/0", "needs both a user"},
        {"iscsi://host/iqn.x/0?secret_file=/s", "needs both a user"},
        {"iscsi://me@host/iqn.x/0?secret_file=/s&target_user=they", "needs both target_user"},
        {"iscsi://host/iqn.x/0?target_user=they&target_secret_file=/s", "needs both target_user"},
        {"iscsi://host/iqn.x/0?header_digest=crc32c", "has a parameter \"header_digest\""},
        {"iscsi://host/iqn.x/0?initiator", "has a parameter \"initiator\" without"},
        {"iscsi://host/iqn.x/0?initiator=", "has a parameter \"initiator\" without"},
        {"iscsi://host/iqn.x/0?initiator=a&initiator=b", "has the parameter \"initiator\" twice"},
        {"iscsi://host?lun=0", "must be iscsi://"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        char why[200] = "";
        bool good = remote_uri_check(cases[i].uri, why, sizeof why);
        cr_expect_eq(good, cases[i].why == NULL, "%s: %s", cases[i].uri, why);
        if (!good && cases[i].why != NULL)
            cr_expect_eq(strncmp(why, cases[i].why, strlen(cases[i].why)), 0, "%s: %s", cases[i].uri, why);
    }
}

Test(remote_uri, one_longer_than_a_label_can_hold_is_refused)
{
    char uri[300] = "nbds://host/", why[100];
    memset(uri + 12, 'x', 127 - 12);
    cr_expect(remote_uri_check(uri, why, sizeof why), "127 bytes");
    uri[127] = 'x';
    cr_expect_not(remote_uri_check(uri, why, sizeof why), "128 bytes");
    cr_expect_str_eq(why, "is longer than 127 bytes");
    memcpy(uri + 127, "?tls-psk-file=/", 15); /* the way there does not count */
    memset(uri + 127 + 15, 'y', 100);
    cr_expect(remote_uri_check(uri, why, sizeof why), "%s", why);
}

Test(remote_uri, the_identity_is_the_disk_and_not_the_way_to_it)
{
    static const struct {
        const char *uri, *identity;
    } cases[] = {
        {"nbd://h:1/v", "nbd://h:1/v"},
        {"nbds://h/v?tls-certificates=/a", "nbds://h/v"},
        {"nbd+unix:///v?socket=/s", "nbd+unix:///v?socket=/s"},
        {"nbds+unix:///v?tls-psk-file=/k&socket=/s", "nbds+unix:///v?socket=/s"},
        {"nbds+unix:///v?socket=/s&tls-psk-file=/k", "nbds+unix:///v?socket=/s"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        char identity[128];
        remote_uri_identity(cases[i].uri, identity, sizeof identity);
        cr_expect_str_eq(identity, cases[i].identity);
    }
}

Test(remote_uri, the_parts_of_an_iscsi_uri_are_found)
{
    struct remote_iscsi_uri uri;
    char why[200];
    cr_assert(remote_iscsi_uri_parse("iscsi://me@h:3261/iqn.a:b/17?target_user=they&initiator=iqn.i&"
                                     "target_secret_file=/t&secret_file=/s",
                                     &uri, why, sizeof why),
              "%s", why);
    cr_expect_str_eq(uri.user, "me");
    cr_expect_str_eq(uri.portal, "h:3261");
    cr_expect_str_eq(uri.target, "iqn.a:b");
    cr_expect_eq(uri.lun, 17);
    cr_expect_str_eq(uri.secret_file, "/s");
    cr_expect_str_eq(uri.target_user, "they");
    cr_expect_str_eq(uri.target_secret_file, "/t");
    cr_expect_str_eq(uri.initiator, "iqn.i");
    cr_assert(remote_iscsi_uri_parse("iscsi://h/iqn.a/0", &uri, why, sizeof why));
    cr_expect_str_eq(uri.user, "");
    cr_expect_str_eq(uri.initiator, "");
}

Test(remote_iscsi, each_answer_of_a_target_has_a_meaning)
{
    enum { GOOD = 0x00, CHECK = 0x02, BUSY = 0x08, CONFLICT = 0x18, FULL = 0x28, ABORTED = 0x40 };
    static const struct {
        struct iscsi_answer answer;
        enum iscsi_verdict verdict;
        enum blk_status status;
    } cases[] = {
        {{GOOD, 0, 0}, ISCSI_OVER, BLK_OK},
        {{0x04, 0, 0}, ISCSI_OVER, BLK_OK}, /* condition met */
        {{BUSY, 0, 0}, ISCSI_AGAIN, BLK_MEDIA},
        {{FULL, 0, 0}, ISCSI_AGAIN, BLK_MEDIA},
        {{CONFLICT, 0, 0}, ISCSI_OVER, BLK_READONLY},
        {{ABORTED, 0, 0}, ISCSI_OVER, BLK_TIMEOUT},
        {{CHECK, 0x6, 0x2900}, ISCSI_RESET, BLK_GONE},
        {{CHECK, 0x6, 0x2907}, ISCSI_RESET, BLK_GONE},
        {{CHECK, 0x6, 0x2800}, ISCSI_RESET, BLK_GONE},
        {{CHECK, 0x6, 0x2a01}, ISCSI_MODES, BLK_TIMEOUT},
        {{CHECK, 0x6, 0x2a09}, ISCSI_AGAIN, BLK_TIMEOUT},
        {{CHECK, 0x6, 0x3f0e}, ISCSI_AGAIN, BLK_TIMEOUT},
        {{CHECK, 0xb, 0x0000}, ISCSI_AGAIN, BLK_TIMEOUT},
        {{CHECK, 0x2, 0x0401}, ISCSI_AGAIN, BLK_TIMEOUT},
        {{CHECK, 0x2, 0x0403}, ISCSI_OVER, BLK_GONE},
        {{CHECK, 0x2, 0x3a00}, ISCSI_OVER, BLK_GONE},
        {{CHECK, 0x3, 0x1100}, ISCSI_OVER, BLK_MEDIA},
        {{CHECK, 0x4, 0x4400}, ISCSI_OVER, BLK_MEDIA},
        {{CHECK, 0x7, 0x2700}, ISCSI_OVER, BLK_READONLY},
        {{CHECK, 0x7, 0x2707}, ISCSI_OVER, BLK_NOSPACE},
        {{CHECK, 0x5, 0x2500}, ISCSI_OVER, BLK_GONE},
        {{CHECK, 0x5, 0x2000}, ISCSI_OVER, BLK_INVALID},
        {{CHECK, 0x5, 0x2100}, ISCSI_OVER, BLK_INVALID},
        {{CHECK, 0xe, 0x1d00}, ISCSI_OVER, BLK_MEDIA},
        {{0x30, 0, 0}, ISCSI_OVER, BLK_MEDIA},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        enum blk_status status;
        enum iscsi_verdict verdict = iscsi_judge(BLK_READ, &cases[i].answer, &status);
        cr_expect_eq(verdict, cases[i].verdict, "case %u: verdict %d", i, verdict);
        if (verdict == ISCSI_OVER)
            cr_expect_eq(status, cases[i].status, "case %u: %s", i, blk_status_name(status));
    }
}

Test(remote_iscsi, a_flush_that_fails_means_that_writes_may_be_lost)
{
    enum blk_status status;
    cr_expect_eq(iscsi_judge(BLK_FLUSH, &(struct iscsi_answer){0x02, 0x3, 0x0c00}, &status), ISCSI_OVER);
    cr_expect_eq(status, BLK_GONE);
    cr_expect_eq(iscsi_judge(BLK_FLUSH, &(struct iscsi_answer){0x00, 0, 0}, &status), ISCSI_OVER);
    cr_expect_eq(status, BLK_OK);
}
