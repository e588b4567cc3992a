#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/check.h"
#include "daemon/config.h"
#include "daemon/units.h"
#include "raid/superblock.h"

static const char good[] =
    "daemon = { reactors = 2; memory = \"64 MiB\"; };\n"
    "disks = [ \"/dev/x*\" ];\n"
    "arrays = ( { name = \"a\"; disks = [ \"/d0\", \"/d1\", \"/d2\", \"/d3\" ];\n"
    "  volumes = ( { name = \"v\"; level = \"raid6\"; size = \"1.5 GiB\"; chunk = \"128K\"; },\n"
    "              { name = \"w\"; level = \"raid10\"; } ); } );\n"
    "nbd = { listen = [ \"127.0.0.1:10809\", \"unix:/run/x\" ];\n"
    "  exports = ( { name = \"\"; volume = \"a/v\"; } ); };\n"
    "iscsi = { listen = [ \"[::1]:3260\" ];\n"
    "  targets = ( { name = \"iqn.2026-01.org.example:x\"; luns = ( { lun = 3; volume = \"a/w\"; } ); } ); };\n"
    "web = { listen = [ \"127.0.0.1:80\" ]; };\n";

struct loaded {
    struct config *config;
    struct config_errors errors;
    char path[64];
};

static struct loaded load(const char *text)
{
    struct loaded l = {.path = "/tmp/corbel-config-XXXXXX"};
    int fd = mkstemp(l.path);
    cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    l.config = config_load(l.path, &l.errors);
    unlink(l.path);
    return l;
}

static void unload(struct loaded *l)
{
    config_free(l->config);
    config_errors_free(&l->errors);
}

Test(config, a_good_file_becomes_values_and_defaults)
{
    struct loaded l = load(good);
    cr_assert_not_null(l.config, "%s", l.errors.count > 0 ? l.errors.lines[0] : "");
    const struct config *c = l.config;
    cr_expect_eq(c->daemon.reactors, 2);
    cr_expect_eq(c->daemon.memory, 64 * MIB);
    cr_expect_eq(c->daemon.drain_ns, 10000000000ull, "default");
    cr_expect_str_eq(c->daemon.control.text, "/run/corbel/control.sock");
    cr_expect_eq(c->arrays.count, 1);
    const struct config_array *a = config_item(&c->arrays, struct config_array, 0);
    cr_expect_eq(a->disks.count, 4);
    cr_expect_str_eq(a->disks.items[3].text, "/d3");
    cr_expect_eq(a->line, 3);
    const struct config_volume *v = config_item(&a->volumes, struct config_volume, 0);
    cr_expect_eq(v->size, 3 * GIB / 2);
    struct layout_spec spec = config_volume_layout(a, v);
    cr_expect_eq(spec.level, RAID_6);
    cr_expect_eq(spec.members, 4);
    cr_expect_eq(spec.chunk, 128 * KIB);
    spec = config_volume_layout(a, config_item(&a->volumes, struct config_volume, 1));
    cr_expect_eq(spec.copies, 2);
    cr_expect_eq(spec.chunk, 64 * KIB);
    cr_expect_eq(config_find_volume(c, "a/w", NULL), config_item(&a->volumes, struct config_volume, 1));
    cr_expect_null(config_find_volume(c, "a/x", NULL));
    cr_expect_eq(config_item(&c->iscsi.targets, struct config_target, 0)->luns.count, 1);
    unload(&l);
}

/* The good text with `from` replaced by `to` once: must give one error at `line` that contains `word`. */
static void expect_mistake(const char *from, const char *to, unsigned line, const char *word)
{
    char text[4096], prefix[128];
    const char *at = strstr(good, from);
    cr_assert_not_null(at, "%s", from);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    struct loaded l = load(text);
    snprintf(prefix, sizeof prefix, "%s:%u:", l.path, line);
    cr_expect_null(l.config, "accepted: %s", to);
    cr_expect_geq(l.errors.count, 1, "%s: no mistake", to); /* a wrong name makes references wrong, too */
    if (l.errors.count > 0) {
        cr_expect(strncmp(l.errors.lines[0], prefix, strlen(prefix)) == 0, "%s: not at line %u: %s", to, line,
                  l.errors.lines[0]);
        cr_expect_not_null(strstr(l.errors.lines[0], word), "%s: no '%s' in: %s", to, word, l.errors.lines[0]);
    }
    unload(&l);
}

Test(config, every_mistake_is_named_with_its_line)
{
    static const struct {
        const char *from, *to;
        unsigned line;
        const char *word;
    } cases[] = {
        {"reactors = 2", "reactors = \"two\"", 1, "whole number"},
        {"reactors = 2", "reactors = 65", 1, "out of range"},
        {"reactors = 2", "reactors = -1", 1, "out of range"},
        {"reactors = 2", "reactors = 2; reactor = 3", 1, "did you mean \"reactors\""},
        {"\"64 MiB\"", "\"64 MB\"", 1, "ambiguous"},
        {"\"64 MiB\"", "67108864", 1, "unit"},
        {"\"64 MiB\"", "\"1 MiB\"", 1, "out of range"},
        {"[ \"/dev/x*\" ]", "\"/dev/x\"", 2, "list of strings"},
        {"[ \"/dev/x*\" ]", "[ 1 ]", 2, "not a string"},
        {"[ \"/dev/x*\" ]", "[ \"/dev/\xff\" ]", 2, "printable UTF-8"},
        {"name = \"a\"", "name = \"\xc3\"", 3, "printable UTF-8"},
        {"\"/d3\"", "\"/d0\"", 3, "twice"},
        {"\"/d3\"", "\"nbd:///v\"", 3, "disks: \"nbd:///v\" names no host"},
        {"\"/d2\", \"/d3\"", "\"nbd://h/v\", \"nbd://h/v\"", 3, "twice"},
        {"[ \"/dev/x*\" ]", "[ \"/dev/x*\", \"ftp://h/x\" ]", 2, "is neither nbd://"},
        {"[ \"/dev/x*\" ]", "[ \"/dev/x*\" ]; spares = [ \"iscsi://me%pw@h/t/0\" ]", 2, "holds a secret"},
        {"[ \"/dev/x*\" ]", "[ \"/dev/x*\" ]; spares = [ \"/s\", \"/d0\" ]", 2, "\"/d0\" is given twice"},
        {"[ \"/dev/x*\" ]", "[ \"/dev/x*\" ]; spares = [ \"/s\", \"/s\" ]", 2, "\"/s\" is given twice"},
        {"[ \"/dev/x*\" ]", "[ \"/dev/x*\" ]; spares = [ \"\" ]", 2, "empty"},
        {"name = \"a\"", "name = \"a\"; spares = [ \"/d1\" ]", 3, "spares: \"/d1\" is given twice"},
        {"name = \"a\"", "name = \"a/b\"", 3, "letters"},
        {"\"raid6\"", "\"raid66\"", 4, "raid66"},
        {"\"raid6\"", "\"raid60\"", 4, "volume \"v\""},
        {"\"128K\"", "\"100K\"", 4, "volume \"v\""},
        {"name = \"w\"", "name = \"v\"", 5, "twice"},
        {"127.0.0.1:10809", "127.0.0.1", 6, "ADDRESS:PORT"},
        {"unix:/run/x", "unix:x", 6, "absolute"},
        {"127.0.0.1:10809", "localhost:10809", 6, "IP address"},
        {"127.0.0.1:10809", "::1:10809", 6, "IP address"},
        {"[::1]:3260", "127.0.0.1:10809", 8, "given twice"},
        {"\"a/v\"; }", "\"v\"; }", 7, "array/volume"},
        {"\"a/v\"; }", "\"b/v\"; }", 7, "b/v"},
        {"\"a/v\"; }", "\"a/v\"; read_only = 1; }", 7, "true or false"},
        {"[::1]:3260", "unix:/run/y", 8, "not possible"},
        {"[::1]:3260\" ];", "[::1]:3260\" ]; portal_groups = ( { tag = 1; } );", 8, "out of range"},
        {"[::1]:3260\" ];", "[::1]:3260\" ]; portal_groups = ( { tag = 2; }, { tag = 2; } );", 8, "2 is given twice"},
        {"[::1]:3260\" ];", "[::1]:3260\" ]; portal_groups = ( { tag = 2; listen = [ \"x\" ]; } );", 8, "ADDRESS:PORT"},
        {"example:x\";", "example:x\"; portal_groups = [ 1, 2 ];", 9, "there is no portal group 2"},
        {"example:x\";", "example:x\"; portal_groups = [ ];", 9, "1 to 8 groups, not 0"},
        {"example:x\";", "example:x\"; portal_groups = [ 0 ];", 9, "item 1 is out of range"},
        {"example:x\";", "example:x\"; portal_groups = [ \"1\" ];", 9, "item 1 must be a whole number"},
        {"example:x\";", "example:x\"; portal_groups = 1;", 9, "list of whole numbers"},
        {"example:x\";", "example:x\"; redirect = \"*:3260\";", 9, "no address to go to"},
        {"example:x\";", "example:x\"; redirect = \"192.0.2.1:0\";", 9, "no address to go to"},
        {"example:x\";", "example:x\"; redirect = \"192.0.2.1\";", 9, "ADDRESS:PORT"},
        {"lun = 3; ", "", 9, "is missing"},
        {"lun = 3", "lun = 256", 9, "out of range"},
        {"iqn.2026-01.org.example:x", "x", 9, "iSCSI name"},
        {"127.0.0.1:80", "127.0.0.1:800000", 10, "ADDRESS:PORT"},
        {"web = { listen", "web = { listne", 10, "did you mean \"listen\""},
        {"web = {", "web = 5; x = {", 10, "group"},
    };
    for (size_t i = 0; i + 1 < ARRAY_LENGTH(cases); i++)
        expect_mistake(cases[i].from, cases[i].to, cases[i].line, cases[i].word);
}

Test(config, a_mistake_in_an_array_does_not_make_references_to_it_mistakes)
{
    char text[4096];
    const char *at = strstr(good, "raid6");
    snprintf(text, sizeof text, "%.*sraid7%s", (int)(at - good), good, at + strlen("raid6"));
    struct loaded l = load(text);
    cr_expect_eq(l.errors.count, 1, "%u mistakes", l.errors.count);
    unload(&l);
    at = strstr(good, "name = \"a\"");
    snprintf(text, sizeof text, "%.*sname = \"a b\"%s", (int)(at - good), good, at + strlen("name = \"a\""));
    l = load(text);
    cr_expect_eq(l.errors.count, 1, "%u mistakes", l.errors.count);
    unload(&l);
}

Test(config, syntax_errors_missing_files_and_folders)
{
    struct loaded l = load("a = {\n b = ;\n};\n");
    cr_expect_null(l.config);
    cr_expect_not_null(strstr(l.errors.lines[0], ":2:"), "%s", l.errors.lines[0]);
    unload(&l);
    struct config_errors errors = {0};
    cr_expect_null(config_load("/nonexistent/corbel.conf", &errors));
    cr_expect_not_null(strstr(errors.lines[0], "No such file"));
    config_errors_free(&errors);
    cr_expect_null(config_load("/tmp", &errors));
    cr_expect_not_null(strstr(errors.lines[0], "directory"), "%s", errors.lines[0]);
    config_errors_free(&errors);
}

Test(config, what_is_included_must_be_readable)
{
    static const struct {
        const char *text, *words[2];
    } cases[] = {
        {"// first\n@include \"/\"\n", {":2:1: @include: / cannot be read", "directory"}},
        {"  @include \"/nowhere/x\"\n", {":1:3: @include: /nowhere/x cannot be read", "No such file"}},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct loaded l = load(cases[i].text);
        cr_assert(l.config == NULL && l.errors.count == 1, "case %u", i);
        for (unsigned j = 0; j < 2; j++)
            cr_expect(strstr(l.errors.lines[0], cases[i].words[j]) != NULL, "case %u: %s", i, l.errors.lines[0]);
        unload(&l);
    }
}

Test(config, no_end_of_mistakes_is_bounded)
{
    char text[16384] = "";
    for (unsigned i = 0; i < 300; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "unknown%u = 1;\n", i);
    struct loaded l = load(text);
    cr_expect_null(l.config);
    cr_expect_eq(l.errors.count, 65);
    unload(&l);
}

Test(config, arrays_and_paths_have_limits)
{
    char text[16384] = "arrays = ( ";
    for (unsigned i = 0; i < 65; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s{ name = \"a%u\"; disks = [ \"/d%u\" ]; }\n",
                 i > 0 ? "," : "", i, i);
    strcat(text, ");");
    struct loaded l = load(text);
    cr_expect_null(l.config);
    cr_assert_eq(l.errors.count, 1);
    cr_expect(strstr(l.errors.lines[0], ":65:1: arrays: at most 64 arrays") != NULL, "%s", l.errors.lines[0]);
    unload(&l);
    snprintf(text, sizeof text, "arrays = ( { name = \"a\"; disks = [ \"/%0600d\" ]; } );", 0);
    l = load(text);
    cr_expect_null(l.config);
    cr_assert_eq(l.errors.count, 1);
    cr_expect(strstr(l.errors.lines[0], "disks: is longer than 511 bytes") != NULL, "%s", l.errors.lines[0]);
    unload(&l);
}

static void note_difference(void *data, const char *path, enum config_change change)
{
    static const char signs[] = {[CONFIG_CHANGED] = '*', [CONFIG_ADDED] = '+', [CONFIG_REMOVED] = '-'};
    char *text = data;
    snprintf(text + strlen(text), 512 - strlen(text), "%c%s\n", signs[change], path);
}

Test(config, differences_are_told_by_their_path)
{
    static const char other[] =
        "daemon = { reactors = 2; memory = \"128 MiB\"; };\n"
        "disks = [ \"/dev/x*\" ];\n"
        "arrays = ( { name = \"a\"; disks = [ \"/d0\", \"/d1\", \"/d2\", \"/d4\" ];\n"
        "  volumes = ( { name = \"v\"; level = \"raid5\"; size = \"1.5 GiB\"; chunk = \"128K\"; },\n"
        "              { name = \"x\"; level = \"raid10\"; } ); } );\n"
        "nbd = { listen = [ \"127.0.0.1:10809\" ];\n"
        "  exports = ( { name = \"e\"; volume = \"a/v\"; }, { name = \"\"; volume = \"a/v\"; read_only = true; } ); "
        "};\n"
        "iscsi = { listen = [ \"[::1]:3260\" ];\n"
        "  targets = ( { name = \"iqn.2026-01.org.example:x\"; luns = ( { lun = 3; volume = \"a/v\"; } ); } ); };\n"
        "web = { listen = [ \"127.0.0.1:80\" ]; };\n";
    struct loaded a = load(good), b = load(other);
    char text[512] = "";
    cr_assert(a.config != NULL && b.config != NULL);
    config_compare(a.config, b.config, note_difference, text);
    cr_expect_str_eq(text, "*daemon.memory\n*arrays \"a\".disks\n*arrays \"a\".volumes \"v\".level\n"
                           "-arrays \"a\".volumes \"w\"\n+arrays \"a\".volumes \"x\"\n*nbd.listen\n"
                           "*nbd.exports \"\".read_only\n+nbd.exports \"e\"\n"
                           "*iscsi.targets \"iqn.2026-01.org.example:x\".luns 3.volume\n");
    text[0] = '\0';
    config_compare(a.config, a.config, note_difference, text);
    cr_expect_str_eq(text, "");
    struct config_target *target = config_item(&b.config->iscsi.targets, struct config_target, 0);
    uint64_t tags[] = {1, 7}, others[] = {1, 8};
    target->portal_groups = (struct config_numbers){.items = tags, .count = 2};
    struct config changed = *b.config;
    struct config_target moved = *target;
    moved.portal_groups.items = others;
    changed.iscsi.targets.items = &moved;
    config_compare(b.config, &changed, note_difference, text);
    cr_expect_str_eq(text, "*iscsi.targets \"iqn.2026-01.org.example:x\".portal_groups\n");
    target->portal_groups = (struct config_numbers){0};
    unload(&a);
    unload(&b);
}

Test(units, sizes)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {{"64 KiB", 64 * KIB}, {"1.5GiB", 3 * GIB / 2}, {"6T", 6 * 1024 * GIB}, {"512 B", 512}, {" 1 m", MIB}};
    uint64_t bytes;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        cr_expect_null(size_parse(cases[i].text, &bytes), "%s", cases[i].text);
        cr_expect_eq(bytes, cases[i].bytes, "%s", cases[i].text);
    }
    static const char *const bad[] = {"", "x", "64", "-1 KiB", "1 MB", "1 KiBB", "99999999 PiB", "1e400 K"};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        cr_expect_not_null(size_parse(bad[i], &bytes), "'%s' was taken", bad[i]);
    cr_expect(strstr(size_parse("1 XiB", &bytes), "write B, KiB") != NULL, "%s", size_parse("1 XiB", &bytes));
    cr_expect(strstr(duration_parse("1 day", &bytes), "write ms, s") != NULL, "%s", duration_parse("1 day", &bytes));
    char text[32];
    size_format(3 * GIB / 2, text, sizeof text);
    cr_expect_str_eq(text, "1.5 GiB");
    duration_format(3725, text, sizeof text);
    cr_expect_str_eq(text, "1 h 2 min");
}

Test(config, a_journal_has_one_disk_or_two_and_they_are_its_own)
{
    static const struct {
        const char *journal, *wrong; /* wrong: NULL, or a part of the message */
        unsigned count;
    } cases[] = {
        {"[ \"/j0\" ]", NULL, 1},
        {"[ \"/j0\", \"/j1\" ]", NULL, 2},
        {"[ \"/j0\", \"/j1\", \"/j2\" ]", "one disk for the journal, or two that hold the same, not 3", 0},
        {"[ \"/j0\", \"/j0\" ]", "\"/j0\" is given twice", 0},
        {"[ \"/d1\" ]", "\"/d1\" is given twice", 0},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "arrays = ( { name = \"a\"; disks = [ \"/d0\", \"/d1\", \"/d2\", \"/d3\" ]; journal = %s;\n"
                 "  volumes = ( { name = \"v\"; level = \"raid6\"; } ); } );\n",
                 cases[i].journal);
        struct loaded l = load(text);
        cr_assert((l.config != NULL) == (cases[i].wrong == NULL), "%s", cases[i].journal);
        if (l.config == NULL)
            cr_expect(strstr(l.errors.lines[0], cases[i].wrong) != NULL, "%s", l.errors.lines[0]);
        else
            cr_expect_eq(config_item(&l.config->arrays, struct config_array, 0)->journal.count, cases[i].count);
        unload(&l);
    }
}

Test(config, imports_have_names_of_their_own_and_disks_of_this_machine)
{
    static const struct {
        const char *imports, *wrong; /* wrong: NULL, or a part of the message */
    } cases[] = {
        {"{ name = \"old\"; disks = [ \"/m0\", \"/m1\" ]; }", NULL},
        {"{ name = \"old\"; disks = [ \"/m0\" ]; }, { name = \"older\"; disks = [ \"/m1\" ]; }", NULL},
        {"{ name = \"old\"; disks = [ \"/m0\" ]; }, { name = \"old\"; disks = [ \"/m1\" ]; }",
         "\"old\" is given twice"},
        {"{ name = \"old\"; disks = [ ]; }", "import \"old\": 1 to 128 disks, not 0"},
        {"{ name = \"old\"; }", "disks"},
        {"{ name = \"o/d\"; disks = [ \"/m0\" ]; }", "letters"},
        {"{ name = \"old\"; disks = [ \"/d0\" ]; }", "\"/d0\" is given twice"},
        {"{ name = \"old\"; disks = [ \"nbd://h/v\" ]; }", "\"nbd://h/v\" is not a disk of this machine"},
        {"{ name = \"new\"; disks = [ \"/m0\" ]; }", "\"old\" must be \"array/volume\", or the name of an import"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "disks = [ ];\nspares = [ \"/d0\" ];\nimports = ( %s );\n"
                 "nbd = { exports = ( { name = \"x\"; volume = \"old\"; } ); };\n",
                 cases[i].imports);
        struct loaded l = load(text);
        cr_assert((l.config != NULL) == (cases[i].wrong == NULL), "%s: %s", cases[i].imports,
                  l.config == NULL ? l.errors.lines[0] : "taken");
        if (l.config == NULL)
            cr_expect_not_null(strstr(l.errors.lines[0], cases[i].wrong), "%s", l.errors.lines[0]);
        else
            cr_expect_eq(config_find_import(l.config, "old"),
                         config_item(&l.config->imports, struct config_import, 0));
        unload(&l);
    }
}

Test(config, init_is_for_levels_with_redundancy)
{
    static const struct {
        const char *level, *init, *wrong; /* wrong: NULL, or a part of the message */
        int value;
    } cases[] = {
        {"raid5", "none", NULL, SB_INIT_NONE},
        {"raid5", "background", NULL, SB_INIT_BACKGROUND},
        {"raid1", "foreground", NULL, SB_INIT_FOREGROUND},
        {"raid0", "none", NULL, SB_INIT_NONE},
        {"raid0", "background", "volume \"v\" (raid0): only levels with redundancy can be initialised", 0},
        {"raid5", "yes", "is none of none, background and foreground", 0},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "arrays = ( { name = \"a\"; disks = [ \"/d0\", \"/d1\", \"/d2\", \"/d3\" ];\n"
                 "  volumes = ( { name = \"v\"; level = \"%s\"; init = \"%s\"; } ); } );\n",
                 cases[i].level, cases[i].init);
        struct loaded l = load(text);
        cr_assert((l.config != NULL) == (cases[i].wrong == NULL), "%s, %s", cases[i].level, cases[i].init);
        if (l.config == NULL) {
            cr_expect(strstr(l.errors.lines[0], cases[i].wrong) != NULL, "%s", l.errors.lines[0]);
        } else {
            const struct config_array *a = config_item(&l.config->arrays, struct config_array, 0);
            cr_expect_eq(config_item(&a->volumes, struct config_volume, 0)->init, cases[i].value, "case %u", i);
        }
        unload(&l);
    }
}

Test(config, a_consistency_policy_must_go_with_its_level)
{
    static const struct {
        const char *level, *policy, *wrong; /* wrong: NULL, or a part of the message */
        int value;
    } cases[] = {
        {"raid5", "ppl", NULL, SB_PPL},
        {"raid6", "journal", NULL, SB_JOURNAL},
        {"raid1", "resync", NULL, SB_RESYNC},
        {"raid5", "default", NULL, -1},
        {"raid6", "ppl", "volume \"v\" (raid6): policy ppl is for one parity", 0},
        {"raid1", "journal", "policy journal is for levels with parity", 0},
        {"raid0", "bitmap", "without redundancy", 0},
        {"raid5", "log", "is none of default, resync, bitmap, ppl and journal", 0},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "arrays = ( { name = \"a\"; disks = [ \"/d0\", \"/d1\", \"/d2\", \"/d3\" ];\n"
                 "  volumes = ( { name = \"v\"; level = \"%s\"; consistency = \"%s\"; } ); } );\n",
                 cases[i].level, cases[i].policy);
        struct loaded l = load(text);
        cr_assert((l.config != NULL) == (cases[i].wrong == NULL), "%s, %s: %s", cases[i].level, cases[i].policy,
                  l.errors.count > 0 ? l.errors.lines[0] : "taken");
        if (l.config == NULL) {
            cr_expect(strstr(l.errors.lines[0], cases[i].wrong) != NULL, "%s", l.errors.lines[0]);
        } else {
            const struct config_array *a = config_item(&l.config->arrays, struct config_array, 0);
            cr_expect_eq(config_item(&a->volumes, struct config_volume, 0)->consistency, cases[i].value, "%s %s",
                         cases[i].level, cases[i].policy);
        }
        unload(&l);
    }
}
