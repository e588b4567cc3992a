/* Caches in the config: what goes together, and where a message says a mistake is. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/check.h"
#include "daemon/config.h"

struct loaded {
    struct config *config;
    struct config_errors errors;
};

/* One volume with this cache, which stands in the third line; `more` behind it. */
static struct loaded load(const char *cache, const char *more)
{
    char path[] = "/tmp/corbel-config-XXXXXX", text[2048];
    struct loaded l = {0};
    int fd = mkstemp(path);
    int len = snprintf(text, sizeof text,
                       "arrays = ( { name = \"a\"; disks = [ \"/d0\", \"/d1\", \"/d2\" ];\n"
                       "  volumes = ( { name = \"v\"; level = \"raid5\";\n"
                       "    cache = { %s }; } ); } );\n%s\n",
                       cache, more);
    cr_assert(fd >= 0 && len < (int)sizeof text && write(fd, text, (size_t)len) == len);
    close(fd);
    l.config = config_load(path, &l.errors);
    unlink(path);
    return l;
}

static void unload(struct loaded *l)
{
    config_free(l->config);
    config_errors_free(&l->errors);
}

#define BACK    "size = \"1 MiB\"; write = \"back\"; "
#define SOURCE  "power = { source = \"sysfs\"; };"
#define JOURNAL BACK "protection = \"journal\"; "
#define FORCED  BACK "protection = \"forced\"; "
#define AND_W   " }; }, { name = \"w\"; level = \"raid5\"; size = \"1 MiB\"; cache = { "
#define BATTERY BACK "protection = \"battery\"; "

Test(config_cache, what_does_not_go_together_is_told_with_its_line)
{
    static const struct {
        const char *cache, *more, *wrong; /* wrong: NULL, or a part of the message */
    } cases[] = {
        {"", "", NULL},
        {"size = \"64 KiB\";", "", NULL},
        {"size = \"60 KiB\";", "", "size: the cache of volume \"v\" must have 64 KiB at least"},
        {"write = \"back\";", "", "size: the cache of volume \"v\" has no size"},
        {BACK, "", NULL},
        {BACK "protection = \"forced\";", "", NULL},
        {BACK "protection = \"hope\";", "", "protection: \"hope\" is not one of the words"},
        {"size = \"1 MiB\"; protection = \"forced\";", "", "protection is for write = \"back\""},
        {BATTERY, SOURCE, NULL},
        {BATTERY, "", "protection: of volume \"v\": there is no power source"},
        {BATTERY "when_bad = \"flush\";", SOURCE, NULL},
        {BATTERY "when_bad = \"strict\";", SOURCE, NULL},
        {BATTERY "when_bad = \"cry\";", SOURCE, "when_bad: \"cry\" is not one of the words"},
        {BACK "when_bad = \"flush\";", "", "when_bad: of volume \"v\": it is for protection = \"battery\""},
        {BATTERY "arena = \"memory\";", SOURCE, NULL},
        {BATTERY "arena = \"none\";", SOURCE, NULL},
        {BATTERY "arena = \"/arena\";", SOURCE, NULL},
        {BATTERY "arena = \"arena\";", SOURCE,
         "arena: of volume \"v\": \"arena\" is neither memory, none nor an absolute"},
        {BACK "arena = \"memory\";", "", "arena: of volume \"v\": it is for protection battery, pmem or forced"},
        {BACK "protection = \"forced\"; arena = \"memory\";", "", NULL},
        {BACK "protection = \"pmem\"; arena = \"/arena\";", "", NULL},
        {BACK "protection = \"pmem\"; arena = \"memory\";", "", "arena: of volume \"v\": pmem needs a path"},
        {BACK "protection = \"pmem\";", "", "arena: of volume \"v\": pmem needs a path"},
        {"size = \"1 MiB\"; arena = \"/arena\";", "", "arena: of volume \"v\": it is for protection battery"},
        {FORCED "arena = \"/one\";" AND_W FORCED "arena = \"/two\";", "", NULL},
        {FORCED "arena = \"memory\";" AND_W FORCED "arena = \"memory\";", "", NULL},
        {FORCED "arena = \"/one\";" AND_W FORCED "arena = \"/one\";", "",
         "arena: of volume \"w\": \"/one\" is that of volume \"v\""},
        {JOURNAL "journal = [ \"/j0\" ];", "", NULL},
        {JOURNAL "journal = [ \"/j0\", \"/j1\" ];", "", NULL},
        {JOURNAL "journal = [ \"/j0\", \"/j1\", \"/j2\" ];", "",
         "journal: of volume \"v\": one disk, or two that hold"},
        {JOURNAL "journal = [ \"/d1\" ];", "", "journal: \"/d1\" is given twice"},
        {JOURNAL "journal = [ \"iscsi://h\" ];", "", "journal: \"iscsi://h\""},
        {JOURNAL, "", "journal: of volume \"v\": protection journal needs it"},
        {JOURNAL "journal = [ \"/j0\" ]; arena = \"memory\";", "",
         "arena: of volume \"v\": it is for protection battery"},
        {BACK "journal = [ \"/j0\" ];", "", "journal: of volume \"v\": protection journal needs it, and no other does"},
        {BACK "read_ahead = \"always\";", "", NULL},
        {BACK "read_ahead = \"never\";", "", "read_ahead: \"never\" is not one of the words"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct loaded l = load(cases[i].cache, cases[i].more);
        cr_expect((l.config != NULL) == (cases[i].wrong == NULL), "%s: %s", cases[i].cache,
                  l.errors.count > 0 ? l.errors.lines[0] : "taken");
        if (l.config == NULL && cases[i].wrong != NULL) {
            cr_expect(strstr(l.errors.lines[0], cases[i].wrong) != NULL, "%s", l.errors.lines[0]);
            cr_expect(strstr(l.errors.lines[0], ":3:") != NULL, "%s", l.errors.lines[0]);
            cr_expect_eq(l.errors.count, 1, "%s", cases[i].cache);
        }
        unload(&l);
    }
}

Test(config_cache, an_arena_is_in_memory_with_a_battery_unless_the_config_says_otherwise)
{
    static const struct {
        const char *cache;
        enum config_arena arena;
    } cases[] = {
        {"size = \"1 MiB\";", CONFIG_ARENA_NONE},
        {BACK, CONFIG_ARENA_NONE},
        {BATTERY, CONFIG_ARENA_MEMORY},
        {BATTERY "arena = \"memory\";", CONFIG_ARENA_MEMORY},
        {BATTERY "arena = \"none\";", CONFIG_ARENA_NONE},
        {BATTERY "arena = \"/a\";", CONFIG_ARENA_FILE},
        {BACK "protection = \"forced\";", CONFIG_ARENA_NONE},
        {BACK "protection = \"forced\"; arena = \"memory\";", CONFIG_ARENA_MEMORY},
        {BACK "protection = \"pmem\"; arena = \"/a\";", CONFIG_ARENA_FILE},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct loaded l = load(cases[i].cache, SOURCE);
        cr_assert_not_null(l.config, "%s", cases[i].cache);
        const struct config_array *a = config_item(&l.config->arrays, struct config_array, 0);
        const struct config_volume *v = config_item(&a->volumes, struct config_volume, 0);
        cr_expect_eq(config_cache_arena(&v->cache), cases[i].arena, "%s", cases[i].cache);
        unload(&l);
    }
}
