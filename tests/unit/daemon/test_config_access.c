/* Access lists in the config, and the files of secrets: daemon/config_access.c, daemon/secrets.c. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/config.h"
#include "daemon/secrets.h"

/* A folder with files, and a config in it. */
struct place {
    char dir[64];
    char path[5][128];
    unsigned files;
    struct config *config;
    struct config_errors errors;
};

static struct place place_make(void)
{
    struct place p = {.dir = "/tmp/corbel-access-XXXXXX"};
    cr_assert_not_null(mkdtemp(p.dir));
    return p;
}

static const char *place_file(struct place *p, const char *name, const char *text, unsigned mode)
{
    char *path = p->path[p->files++];
    text_format(path, sizeof p->path[0], "%s/%s", p->dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    fchmod(fd, mode);
    close(fd);
    return path;
}

static void place_drop(struct place *p)
{
    for (unsigned i = 0; i < p->files; i++)
        unlink(p->path[i]);
    rmdir(p->dir);
    config_free(p->config);
    config_errors_free(&p->errors);
}

/* `iscsi` may hold @1 and @2: the secrets' files. */
static void place_load(struct place *p, const char *iscsi)
{
    char text[4096], *at = text;
    at +=
        sprintf(at, "arrays = ( { name = \"a\"; disks = [ \"/d0\", \"/d1\", \"/d2\" ];\n"
                    "  volumes = ( { name = \"v\"; level = \"raid5\"; }, { name = \"w\"; level = \"raid5\"; } ); } );\n"
                    "iscsi = {\n");
    for (; *iscsi != '\0'; iscsi++) {
        if (*iscsi == '@')
            at += sprintf(at, "\"%s\"", p->path[*++iscsi - '1']);
        else
            *at++ = *iscsi;
    }
    sprintf(at, "\n};\n");
    p->config = config_load(place_file(p, "corbel.conf", text, 0600), &p->errors);
}

#define TARGET(access)                                                                                                 \
    "targets = ( { name = \"iqn.2026-01.org.example:x\"; luns = ( { lun = 3; volume = \"a/v\"; } );\n access = "       \
    "(" access "); } );"

Test(config_access, a_good_list_becomes_values)
{
    struct place p = place_make();
    place_file(&p, "host", "correct horse battery\n", 0600);
    place_file(&p, "target", "staple of the target", 0400);
    place_load(&p, "discovery = ( { name = \"d\"; user = \"f\"; secret_file = @1; } );\n" TARGET(
                       "{ name = \"r\"; initiators = [ \"iqn.*\" ]; addresses = [ \"192.0.2.0/24\", \"::1\" ];\n"
                       " user = \"u\"; secret_file = @1; target_user = \"t\"; target_secret_file = @2;\n"
                       " read_only = true; luns = ( { lun = 0; volume = \"a/v\"; } ); }, { name = \"s\"; }"));
    cr_assert_not_null(p.config, "%s", p.errors.count > 0 ? p.errors.lines[0] : "");
    const struct config_target *target = config_item(&p.config->iscsi.targets, struct config_target, 0);
    const struct config_access *rule = config_item(&target->access, struct config_access, 0);
    cr_expect(target->access.count == 2 && p.config->iscsi.discovery.count == 1);
    cr_expect_str_eq(rule->user.text, "u");
    cr_expect_str_eq(rule->secret_file.text, p.path[0]);
    cr_expect(rule->read_only && rule->initiators.count == 1 && rule->addresses.count == 2 && rule->luns.count == 1);
    place_drop(&p);
}

static const struct {
    const char *iscsi, *wrong;
    unsigned line;
} mistakes[] = {
    {TARGET("{ name = \"r\"; user = \"u\"; }"), "a user and the file of its secret go together", 5},
    {TARGET("{ name = \"r\"; secret_file = @1; }"), "a user and the file of its secret go together", 5},
    {TARGET("{ name = \"r\"; user = \"u\"; secret_file = \"secret\"; }"), "must be an absolute path", 5},
    {TARGET("{ name = \"r\"; user = \"u\"; secret_file = \"/none/such\"; }"), "/none/such cannot be read", 5},
    {TARGET("{ name = \"r\"; user = \"u\"; secret_file = @1;\n target_user = \"t\"; target_secret_file = @1; }"),
     "both directions have the same secret", 6},
    {TARGET("{ name = \"r\"; target_user = \"t\"; target_secret_file = @1; }"), "without a user has no use", 5},
    {TARGET("{ name = \"r\"; initiators = [ \"\" ]; }"), "item 1 is empty", 5},
    {TARGET("{ name = \"r\"; addresses = [ \"192.0.2.0/33\" ]; }"), "must be an IP address", 5},
    {TARGET("{ name = \"r\"; addresses = [ \"host\" ]; }"), "must be an IP address", 5},
    {TARGET("{ name = \"r\"; luns = ( { lun = 0; volume = \"a/w\"; } ); }"), "is not among the luns of target", 5},
    {TARGET("{ name = \"r\"; luns = ( { lun = 0; volume = \"a/v\"; },\n { lun = 0; volume = \"a/v\"; } ); }"),
     "0 is given twice in rule", 6},
    {TARGET("{ name = \"r\"; },\n { name = \"r\"; }"), "\"r\" is given twice", 6},
    {TARGET("{ initiators = [ \"x\" ]; }"), "is missing", 5},
    {TARGET(""), "is empty: nobody could come in", 4},
    {"discovery = ( { name = \"d\"; read_only = true; } );", "belong to a target's access", 4},
    {"discovery = ( { name = \"d\"; user = \"u\"; secret_file = @2; } );", "fewer than 12 bytes", 4},
};

Test(config_access, mistakes_are_named_with_their_line)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(mistakes); i++) {
        struct place p = place_make();
        char where[200];
        place_file(&p, "long", "correct horse battery\n", 0600);
        place_file(&p, "short", "11 bytes---\n", 0600);
        place_load(&p, mistakes[i].iscsi);
        cr_expect_null(p.config, "%s", mistakes[i].wrong);
        cr_assert_eq(p.errors.count, 1, "%s: %u, %s", mistakes[i].wrong, p.errors.count,
                     p.errors.count > 0 ? p.errors.lines[0] : "");
        snprintf(where, sizeof where, "%s/corbel.conf:%u:", p.dir, mistakes[i].line);
        cr_expect_not_null(strstr(p.errors.lines[0], mistakes[i].wrong), "%s", p.errors.lines[0]);
        cr_expect_eq(strncmp(p.errors.lines[0], where, strlen(where)), 0, "%s", p.errors.lines[0]);
        place_drop(&p);
    }
}

Test(config_access, short_secrets_where_they_are_allowed)
{
    struct place p = place_make();
    place_file(&p, "short", "1\n", 0600);
    place_load(&p, "short_secrets = true;\ndiscovery = ( { name = \"d\"; user = \"u\"; secret_file = @1; } );");
    cr_expect_not_null(p.config);
    place_drop(&p);
}

Test(secrets, what_a_file_may_be)
{
    static const struct {
        const char *text;
        unsigned mode;
        const char *wrong; /* NULL: it is taken */
    } cases[] = {
        {"correct horse battery\n", 0600, NULL},
        {"correct horse battery", 0400, NULL},
        {"correct horse battery\n", 0700, NULL},
        {"correct horse battery\n", 0640, "has mode 0640"},
        {"correct horse battery\n", 0604, "has mode 0604"},
        {"correct horse battery\n", 0620, "has mode 0620"},
        {"correct horse battery\n", 0602, "has mode 0602"},
        {"correct horse battery\n", 0601, "has mode 0601"},
        {"", 0600, "is empty"},
        {"\n", 0600, "is empty"},
        {"eleven byte\n", 0600, "fewer than 12 bytes"},
        {"twelve bytes\n", 0600, NULL},
        {"correct horse battery\n\n", 0600, "one line of printable ASCII"},
        {"correct horse\nbattery\n", 0600, "one line of printable ASCII"},
        {"correct horse battery\r\n", 0600, "one line of printable ASCII"},
        {"correct h\xc3\xb6rse battery\n", 0600, "one line of printable ASCII"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct place p = place_make();
        struct secret secret = {0};
        char why[512] = "";
        const char *path = place_file(&p, "secret", cases[i].text, cases[i].mode);
        bool good = secret_read(path, false, &secret, why, sizeof why);
        cr_expect_eq(good, cases[i].wrong == NULL, "%u: %s", i, why);
        if (good)
            cr_expect_eq(strncmp(secret.text, cases[i].text, strlen(secret.text)), 0);
        else
            cr_expect(strstr(why, cases[i].wrong ? cases[i].wrong : "?") != NULL && strstr(why, path) != NULL, "%s",
                      why);
        cr_expect_null(strstr(why, "battery"), "its contents are told to nobody");
        place_drop(&p);
    }
}

Test(secrets, of_255_bytes_and_of_one_more)
{
    char text[258];
    for (unsigned len = 255; len <= 257; len++) {
        struct place p = place_make();
        struct secret secret = {0};
        char why[512];
        memset(text, 's', len);
        text[len] = '\0';
        const char *path = place_file(&p, "secret", text, 0600);
        cr_expect_eq(secret_read(path, false, &secret, why, sizeof why), len == 255, "%u", len);
        cr_expect_eq(strlen(secret.text), len == 255 ? 255 : 0);
        secret_wipe(&secret);
        cr_expect_eq(secret.text[0], '\0');
        place_drop(&p);
    }
}

Test(secrets, folders_pipes_and_files_of_others_are_refused)
{
    struct place p = place_make();
    struct secret secret = {0};
    char why[512], pipe[128];
    cr_expect_not(secret_read(p.dir, false, &secret, why, sizeof why));
    cr_expect_not_null(strstr(why, "is no regular file"), "%s", why);
    snprintf(pipe, sizeof pipe, "%s/pipe", p.dir);
    cr_assert_eq(mkfifo(pipe, 0600), 0);
    cr_expect_not(secret_read(pipe, false, &secret, why, sizeof why), "and does not wait for a writer");
    unlink(pipe);
    if (geteuid() == 0) {
        const char *path = place_file(&p, "secret", "correct horse battery\n", 0600);
        cr_assert_eq(chown(path, 12345, 0), 0);
        cr_expect_not(secret_read(path, false, &secret, why, sizeof why));
        cr_expect_not_null(strstr(why, "belongs to user 12345"), "%s", why);
    }
    place_drop(&p);
}
