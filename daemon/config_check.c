/* What the table of keys cannot say: references, names given twice, shapes that cannot be. See daemon/config.h. */
#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cache/log_record.h"
#include "core/check.h"
#include "core/log.h"
#include "daemon/config_power.h"
#include "daemon/config_table.h"
#include "daemon/remote_uri.h"
#include "raid/md_assembly.h"
#include "raid/superblock.h"
#include "target/iscsi/iscsi.h"
#include "target/nbd/nbd.h"

struct checker {
    const struct config *config;
    struct config_errors *errors;
    bool arrays_sound; /* else a reference may be wrong only because its array is */
};

#define report(c, line, setting, ...) config_error((c)->errors, (c)->config->path, line, setting, __VA_ARGS__)

static void check_one_of(struct checker *c, const struct config_text *text, const char *setting,
                         const char *const *words)
{
    for (unsigned i = 0; words[i] != NULL; i++)
        if (strcmp(text->text, words[i]) == 0)
            return;
    report(c, text->line, setting, "\"%s\" is not one of the words allowed; see corbel.conf(5)", text->text);
}

/* Names become parts of "array/volume": letters, digits, - _ . only. */
static void check_name(struct checker *c, const struct config_text *name, const char *setting)
{
    bool good = *name->text != '\0' && strlen(name->text) < SB_NAME_SIZE;
    for (const char *p = name->text; *p != '\0'; p++)
        good = good && (isalnum((unsigned char)*p) || strchr("-_.", *p) != NULL);
    if (!good)
        report(c, name->line, setting, "\"%s\" must be 1 to %d letters, digits, '-', '_' or '.'", name->text,
               SB_NAME_SIZE - 1);
}

/* Of a list of structs that hold a text at `offset`: no text twice. */
static void check_unique(struct checker *c, const struct config_list *list, size_t item_size, size_t offset,
                         const char *setting)
{
    for (unsigned i = 1; i < list->count; i++) {
        const struct config_text *a = (const void *)((char *)list->items + i * item_size + offset);
        for (unsigned j = 0; j < i; j++) {
            const struct config_text *b = (const void *)((char *)list->items + j * item_size + offset);
            if (strcmp(a->text, b->text) != 0)
                continue;
            report(c, a->line, setting, "\"%s\" is given twice; the first one is in line %u", a->text, b->line);
            break;
        }
    }
}

struct layout_spec config_volume_layout(const struct config_array *array, const struct config_volume *volume)
{
    bool spanned = volume->level == RAID_30 || volume->level == RAID_50 || volume->level == RAID_60;
    bool copied = volume->level == RAID_10 || volume->level == RAID_1E;
    bool small_chunk = volume->level == RAID_3 || volume->level == RAID_30;
    return (struct layout_spec){
        .level = volume->level,
        .rotation = volume->rotation,
        .members = volume->level == RAID_JBOD ? 1 : array->disks.count,
        .spans = volume->spans != 0 ? (unsigned)volume->spans
                 : spanned          ? 2
                                    : 1,
        .copies = volume->copies != 0       ? (unsigned)volume->copies
                  : copied                  ? 2
                  : volume->level == RAID_1 ? array->disks.count
                                            : 1,
        .chunk = volume->chunk != 0 ? (uint32_t)volume->chunk
                 : small_chunk      ? 4 * KIB
                                    : 64 * KIB,
    };
}

/* The shape alone: sizes are the disks' business. */
static void check_volume_shape(struct checker *c, const struct config_array *array, const struct config_volume *volume)
{
    struct layout_spec spec = config_volume_layout(array, volume);
    struct layout layout;
    uint64_t extent[RAID_MEMBERS_MAX];
    for (unsigned i = 0; i < RAID_MEMBERS_MAX; i++)
        extent[i] = 1024 * GIB;
    const char *wrong = layout_init(&layout, &spec, extent);
    if (wrong != NULL)
        report(c, volume->line, "volumes", "volume \"%s\": %s", volume->name.text, wrong);
    if (wrong == NULL && volume->init != SB_INIT_NONE && layout.redundancy == 0)
        report(c, volume->line, "init", "volume \"%s\" (%s): only levels with redundancy can be initialised",
               volume->name.text, raid_level_name(volume->level));
    if (wrong == NULL && volume->consistency >= 0)
        wrong = superblock_consistency_check(&layout, (enum sb_consistency)volume->consistency);
    else
        wrong = NULL;
    if (wrong != NULL)
        report(c, volume->line, "consistency", "volume \"%s\" (%s): %s", volume->name.text,
               raid_level_name(volume->level), wrong);
    if (volume->priority == 0 && (volume->min_rate != 0 || volume->max_rate != 0))
        report(c, volume->line, "priority", "volume \"%s\": min_rate and max_rate need a priority", volume->name.text);
    if (volume->max_rate != 0 && volume->max_rate < volume->min_rate)
        report(c, volume->line, "max_rate", "volume \"%s\": max_rate is below min_rate", volume->name.text);
    if (volume->level == RAID_JBOD && volume->slot >= array->disks.count)
        report(c, volume->line, "slot", "volume \"%s\": the array has no slot %u, only %u disks", volume->name.text,
               (unsigned)volume->slot, array->disks.count);
}

static const char *const protections[] = {
    [CACHE_PROTECT_NONE] = "none",       [CACHE_PROTECT_BATTERY] = "battery", [CACHE_PROTECT_FORCED] = "forced",
    [CACHE_PROTECT_JOURNAL] = "journal", [CACHE_PROTECT_PMEM] = "pmem",       NULL};
static const char *const readaheads[] = {
    [READAHEAD_ADAPTIVE] = "adaptive", [READAHEAD_ALWAYS] = "always", [READAHEAD_NONE] = "none", NULL};

static unsigned index_of(const struct config_text *text, const char *const *words)
{
    for (unsigned i = 0; words[i] != NULL; i++)
        if (strcmp(text->text, words[i]) == 0)
            return i;
    UNREACHABLE("a config that was not checked");
}

enum cache_protection config_cache_protection(const struct config_cache *cache)
{
    return index_of(&cache->protection, protections);
}

enum readahead_mode config_cache_readahead(const struct config_cache *cache)
{
    return index_of(&cache->read_ahead, readaheads);
}

enum config_arena config_cache_arena(const struct config_cache *cache)
{
    const char *arena = cache->arena.text;
    bool battery = config_cache_protection(cache) == CACHE_PROTECT_BATTERY;
    if (cache->size == 0 || strcmp(cache->write.text, "back") != 0 || strcmp(arena, "none") == 0)
        return CONFIG_ARENA_NONE;
    if (arena[0] == '\0')
        return battery ? CONFIG_ARENA_MEMORY : CONFIG_ARENA_NONE;
    return arena[0] == '/' ? CONFIG_ARENA_FILE : CONFIG_ARENA_MEMORY;
}

static void check_arena(struct checker *c, const struct config_volume *volume)
{
    const struct config_cache *cache = &volume->cache;
    const char *arena = cache->arena.text, *protection = cache->protection.text;
    bool file = arena[0] == '/', word = strcmp(arena, "memory") == 0 || strcmp(arena, "none") == 0 || arena[0] == '\0';
    bool has_use = strcmp(protection, "battery") == 0 || strcmp(protection, "forced") == 0;
    if (!file && !word)
        report(c, cache->line, "arena", "of volume \"%s\": \"%s\" is neither memory, none nor an absolute path",
               volume->name.text, arena);
    else if (strcmp(protection, "pmem") == 0 && !file)
        report(c, cache->line, "arena", "of volume \"%s\": pmem needs a path on persistent memory", volume->name.text);
    else if (arena[0] != '\0' && !has_use && strcmp(protection, "pmem") != 0)
        report(c, cache->line, "arena", "of volume \"%s\": it is for protection battery, pmem or forced",
               volume->name.text);
}

static void check_log(struct checker *c, const struct config_volume *volume)
{
    const struct config_strings *journal = &volume->cache.journal;
    bool logged = strcmp(volume->cache.protection.text, "journal") == 0;
    if (logged != (journal->count > 0))
        report(c, volume->cache.line, "journal", "of volume \"%s\": protection journal needs it, and no other does",
               volume->name.text);
    else if (journal->count > LOG_DEVICES)
        report(c, volume->cache.line, "journal", "of volume \"%s\": one disk, or two that hold the same, not %u",
               volume->name.text, journal->count);
}

static void check_cache(struct checker *c, const struct config_volume *volume)
{
    static const char *const writes[] = {"through", "back", NULL};
    static const char *const whens[] = {"strict", "flush", NULL};
    const struct config_cache *cache = &volume->cache;
    check_one_of(c, &cache->write, "write", writes);
    check_one_of(c, &cache->protection, "protection", protections);
    check_one_of(c, &cache->when_bad, "when_bad", whens);
    check_one_of(c, &cache->read_ahead, "read_ahead", readaheads);
    if (cache->size != 0 && cache->size < CACHE_BYTES_MIN)
        report(c, cache->line, "size", "the cache of volume \"%s\" must have 64 KiB at least", volume->name.text);
    if (cache->size == 0 && strcmp(cache->write.text, "through") != 0)
        report(c, cache->line, "size", "the cache of volume \"%s\" has no size", volume->name.text);
    if (strcmp(cache->write.text, "through") == 0 && strcmp(cache->protection.text, "none") != 0)
        report(c, cache->line, "protection", "of volume \"%s\": protection is for write = \"back\"", volume->name.text);
    if (strcmp(cache->when_bad.text, "strict") != 0 && strcmp(cache->protection.text, "battery") != 0)
        report(c, cache->line, "when_bad", "of volume \"%s\": it is for protection = \"battery\"", volume->name.text);
    check_arena(c, volume);
    check_log(c, volume);
    if (strcmp(cache->protection.text, "battery") == 0 && config_power_sources(&c->config->power) == 0)
        report(c, cache->line, "protection",
               "of volume \"%s\": there is no power source to say whether there is a "
               "battery; set power.source",
               volume->name.text);
}

bool config_scrub_interval(const char *text, uint64_t *seconds)
{
    enum { DAY_S = 86400, DAYS_MAX = 3650 };
    static const struct {
        const char *word;
        unsigned days;
    } words[] = {{"off", 0}, {"weekly", 7}, {"monthly", 30}};
    for (unsigned i = 0; i < ARRAY_LENGTH(words); i++)
        if (strcmp(text, words[i].word) == 0) {
            *seconds = (uint64_t)words[i].days * DAY_S;
            return true;
        }
    char *end;
    unsigned long days = isdigit((unsigned char)*text) ? strtoul(text, &end, 10) : 0;
    *seconds = (uint64_t)days * DAY_S;
    return days > 0 && days <= DAYS_MAX && *end == '\0';
}

static void check_array(struct checker *c, const struct config_array *array)
{
    uint64_t seconds;
    check_name(c, &array->name, "name");
    if (!config_scrub_interval(array->scrub.text, &seconds))
        report(c, array->scrub.line, "scrub",
               "array \"%s\": \"%s\" is neither weekly, monthly, off nor a number of days from 1 to 3650",
               array->name.text, array->scrub.text);
    if (array->disks.count == 0 || array->disks.count > RAID_MEMBERS_MAX)
        report(c, array->line, "disks", "array \"%s\": 1 to %d disks, not %u", array->name.text, RAID_MEMBERS_MAX,
               array->disks.count);
    else
        for (unsigned i = 0; i < array->volumes.count; i++)
            check_volume_shape(c, array, config_item(&array->volumes, struct config_volume, i));
    for (unsigned i = 0; i < array->volumes.count; i++)
        check_cache(c, config_item(&array->volumes, struct config_volume, i));
    if (array->journal.count > SB_JOURNALS_MAX)
        report(c, array->line, "journal", "array \"%s\": one disk for the journal, or two that hold the same, not %u",
               array->name.text, array->journal.count);
    if (array->volumes.count > SB_VOLUMES_MAX)
        report(c, array->line, "volumes", "array \"%s\": at most %d volumes", array->name.text, SB_VOLUMES_MAX);
    for (unsigned i = 0; i < array->volumes.count; i++)
        check_name(c, &config_item(&array->volumes, struct config_volume, i)->name, "name");
    check_unique(c, &array->volumes, sizeof(struct config_volume), offsetof(struct config_volume, name), "name");
}

static void check_import(struct checker *c, const struct config_import *import)
{
    check_name(c, &import->name, "name");
    if (import->disks.count == 0 || import->disks.count > MD_DISKS_MAX)
        report(c, import->line, "disks", "import \"%s\": 1 to %d disks, not %u", import->name.text, MD_DISKS_MAX,
               import->disks.count);
    for (unsigned i = 0; i < import->disks.count; i++)
        if (remote_is_uri(import->disks.items[i].text))
            report(c, import->disks.items[i].line, "disks", "import \"%s\": \"%s\" is not a disk of this machine",
                   import->name.text, import->disks.items[i].text);
}

/* All lists of disks that have a use: arrays' disks, then their spares, then shared spares, then those of imports. */
static const struct config_strings *disk_list(const struct config *config, unsigned index)
{
    unsigned count = config->arrays.count;
    if (index == 2 * count)
        return &config->spares;
    if (index > 2 * count)
        return &config_item(&config->imports, struct config_import, index - 2 * count - 1)->disks;
    const struct config_array *array = config_item(&config->arrays, struct config_array, index % count);
    return index < count ? &array->disks : &array->spares;
}

static bool disk_named_before(const struct config *config, unsigned list, unsigned disk)
{
    const char *path = disk_list(config, list)->items[disk].text;
    for (unsigned i = 0; i <= list; i++) {
        const struct config_strings *disks = disk_list(config, i);
        for (unsigned d = 0; d < (i < list ? disks->count : disk); d++)
            if (strcmp(disks->items[d].text, path) == 0)
                return true;
    }
    return false;
}

static void check_uri(struct checker *c, const struct config_text *disk, const char *setting)
{
    char why[160];
    if (remote_is_uri(disk->text) && !remote_uri_check(disk->text, why, sizeof why))
        report(c, disk->line, setting, "\"%s\" %s", disk->text, why);
}

static void check_disks(struct checker *c)
{
    unsigned arrays = c->config->arrays.count, lists = 2 * arrays + 1 + c->config->imports.count;
    for (unsigned i = 0; i < lists; i++) {
        const struct config_strings *disks = disk_list(c->config, i);
        const char *setting = i < arrays || i > 2 * arrays ? "disks" : "spares";
        for (unsigned d = 0; d < disks->count; d++) {
            const struct config_text *disk = &disks->items[d];
            if (disk->text[0] == '\0')
                report(c, disk->line, setting, "item %u is empty", d + 1);
            else if (disk_named_before(c->config, i, d))
                report(c, disk->line, setting, "\"%s\" is given twice", disk->text);
            if (strlen(disk->text) > CONFIG_PATH_MAX)
                report(c, disk->line, setting, "is longer than %d bytes", CONFIG_PATH_MAX);
            check_uri(c, disk, setting);
        }
    }
    for (unsigned d = 0; d < c->config->disks.count; d++)
        check_uri(c, &c->config->disks.items[d], "disks");
}

static unsigned times_in(const struct config_strings *list, const char *path)
{
    unsigned times = 0;
    for (unsigned i = 0; i < list->count; i++)
        times += strcmp(list->items[i].text, path) == 0;
    return times;
}

/* Paths in all the lists of disks and journals. */
static unsigned times_named(const struct config_list *arrays, const char *path)
{
    unsigned times = 0;
    for (unsigned i = 0; i < arrays->count; i++) {
        const struct config_array *array = config_item(arrays, struct config_array, i);
        times += times_in(&array->disks, path) + times_in(&array->journal, path);
        for (unsigned v = 0; v < array->volumes.count; v++)
            times += times_in(&config_item(&array->volumes, struct config_volume, v)->cache.journal, path);
    }
    return times;
}

static void check_journal(struct checker *c, const struct config_strings *journal)
{
    for (unsigned d = 0; d < journal->count; d++) {
        if (times_named(&c->config->arrays, journal->items[d].text) > 1)
            report(c, journal->items[d].line, "journal", "\"%s\" is given twice", journal->items[d].text);
        if (strlen(journal->items[d].text) > CONFIG_PATH_MAX)
            report(c, journal->items[d].line, "journal", "is longer than %d bytes", CONFIG_PATH_MAX);
        check_uri(c, &journal->items[d], "journal");
    }
}

/* Of the volume that stands first with this arena, its name. */
static const char *arena_owner(const struct config *config, const char *path)
{
    for (unsigned i = 0; i < config->arrays.count; i++) {
        const struct config_array *array = config_item(&config->arrays, struct config_array, i);
        for (unsigned v = 0; v < array->volumes.count; v++) {
            const struct config_volume *volume = config_item(&array->volumes, struct config_volume, v);
            if (strcmp(volume->cache.arena.text, path) == 0)
                return volume->name.text;
        }
    }
    return NULL;
}

static void check_arena_files(struct checker *c, const struct config_array *array)
{
    for (unsigned v = 0; v < array->volumes.count; v++) {
        const struct config_volume *volume = config_item(&array->volumes, struct config_volume, v);
        const char *path = volume->cache.arena.text, *owner = arena_owner(c->config, path);
        if (path[0] == '/' && owner != volume->name.text)
            report(c, volume->cache.arena.line, "arena", "of volume \"%s\": \"%s\" is that of volume \"%s\"",
                   volume->name.text, path, owner);
    }
}

/* What the whole config may name once only. */
static void check_once(struct checker *c)
{
    for (unsigned i = 0; i < c->config->arrays.count; i++) {
        const struct config_array *array = config_item(&c->config->arrays, struct config_array, i);
        check_journal(c, &array->journal);
        check_arena_files(c, array);
        for (unsigned v = 0; v < array->volumes.count; v++)
            check_journal(c, &config_item(&array->volumes, struct config_volume, v)->cache.journal);
    }
}

const struct config_volume *config_find_volume(const struct config *config, const char *reference,
                                               const struct config_array **array)
{
    const char *slash = strchr(reference, '/');
    size_t len = slash != NULL ? (size_t)(slash - reference) : 0;
    for (unsigned i = 0; slash != NULL && i < config->arrays.count; i++) {
        const struct config_array *a = config_item(&config->arrays, struct config_array, i);
        if (strlen(a->name.text) != len || strncmp(a->name.text, reference, len) != 0)
            continue;
        for (unsigned j = 0; j < a->volumes.count; j++) {
            const struct config_volume *v = config_item(&a->volumes, struct config_volume, j);
            if (strcmp(v->name.text, slash + 1) != 0)
                continue;
            if (array != NULL)
                *array = a;
            return v;
        }
    }
    return NULL;
}

const struct config_import *config_find_import(const struct config *config, const char *name)
{
    for (unsigned i = 0; i < config->imports.count; i++) {
        const struct config_import *import = config_item(&config->imports, struct config_import, i);
        if (strcmp(import->name.text, name) == 0)
            return import;
    }
    return NULL;
}

static void check_reference(struct checker *c, const struct config_text *reference)
{
    if (config_find_import(c->config, reference->text) != NULL)
        return;
    if (strchr(reference->text, '/') == NULL)
        report(c, reference->line, "volume", "\"%s\" must be \"array/volume\", or the name of an import",
               reference->text);
    else if (c->arrays_sound && config_find_volume(c->config, reference->text, NULL) == NULL)
        report(c, reference->line, "volume", "no array of this config has a volume \"%s\"", reference->text);
}

/* What stands before the port: "*", an IPv4 address, or an IPv6 address in brackets. Names are not looked up. */
static bool host_valid(const char *text, size_t len)
{
    char host[64];
    struct in6_addr address;
    bool bracketed = len >= 2 && text[0] == '[' && text[len - 1] == ']';
    if (len == 1 && *text == '*')
        return true;
    if (bracketed) {
        text++;
        len -= 2;
    }
    if (len >= sizeof host)
        return false;
    text_format(host, sizeof host, "%.*s", (int)len, text);
    return inet_pton(bracketed ? AF_INET6 : AF_INET, host, &address) == 1;
}

static void check_address(struct checker *c, const struct config_text *address, bool local)
{
    const char *text = address->text, *colon = strrchr(text, ':');
    if (strncmp(text, "systemd:", 8) == 0) {
        if (!local || text[8] == '\0')
            report(c, address->line, "listen", "\"%s\": %s", text,
                   local ? "the name of the socket is missing" : "a socket of systemd is not possible here");
        return;
    }
    if (strncmp(text, "unix:", 5) == 0) {
        if (!local)
            report(c, address->line, "listen", "\"%s\": a Unix socket is not possible here", text);
        else if (text[5] != '/' || strlen(text + 5) > 100)
            report(c, address->line, "listen", "\"%s\": the path must be absolute and at most 100 bytes", text);
        return;
    }
    unsigned long port = 65536;
    char *end = NULL;
    if (colon != NULL && isdigit((unsigned char)colon[1]))
        port = strtoul(colon + 1, &end, 10);
    if (colon == text || end == NULL || *end != '\0' || port > 65535)
        report(c, address->line, "listen", "\"%s\" must be ADDRESS:PORT with a port of 0 to 65535%s", text,
               local ? ", unix:/path or systemd:NAME" : "");
    else if (!host_valid(text, (size_t)(colon - text)))
        report(c, address->line, "listen",
               "\"%s\" must begin with an IP address (IPv6 in brackets) or *: names are not looked up", text);
}

void config_check_address(const struct config *config, struct config_errors *errors, const struct config_text *address,
                          bool local)
{
    struct checker c = {.config = config, .errors = errors};
    check_address(&c, address, local);
}

/* The same address must not be listened on twice, by whichever protocol. Port 0 is any. */
static void check_address_twice(struct checker *c)
{
    const struct config_strings *lists[] = {&c->config->nbd.listen, &c->config->iscsi.listen, &c->config->web.listen};
    for (unsigned i = 0; i < ARRAY_LENGTH(lists); i++)
        for (unsigned j = 0; j < lists[i]->count; j++)
            for (unsigned k = 0; k <= i; k++)
                for (unsigned l = 0; l < (k < i ? lists[k]->count : j); l++) {
                    const struct config_text *a = &lists[i]->items[j], *b = &lists[k]->items[l];
                    const char *port = strrchr(a->text, ':');
                    if (strcmp(a->text, b->text) == 0 && (port == NULL || strcmp(port, ":0") != 0))
                        report(c, a->line, "listen", "\"%s\" is given twice; the first one is in line %u", a->text,
                               b->line);
                }
}

static void check_addresses(struct checker *c, const struct config_strings *addresses, bool local)
{
    for (unsigned i = 0; i < addresses->count; i++)
        check_address(c, &addresses->items[i], local);
}

static void check_nbd(struct checker *c)
{
    const struct config_nbd *nbd = &c->config->nbd;
    check_addresses(c, &nbd->listen, true);
    for (unsigned i = 0; i < nbd->exports.count; i++) {
        const struct config_export *export = config_item(&nbd->exports, struct config_export, i);
        if (strlen(export->name.text) > NBD_NAME_MAX)
            report(c, export->name.line, "name", "is longer than %d bytes", NBD_NAME_MAX);
        check_reference(c, &export->volume);
    }
    check_unique(c, &nbd->exports, sizeof(struct config_export), offsetof(struct config_export, name), "name");
}

static bool has_portal_group(const struct config_iscsi *iscsi, uint64_t tag)
{
    bool has = tag == ISCSI_GROUP_DEFAULT;
    for (unsigned i = 0; i < iscsi->portal_groups.count; i++)
        has |= config_item(&iscsi->portal_groups, struct config_portal_group, i)->tag == tag;
    return has;
}

static void check_target_portals(struct checker *c, const struct config_target *target)
{
    const struct config_numbers *groups = &target->portal_groups;
    for (unsigned i = 0; i < groups->count; i++)
        if (!has_portal_group(&c->config->iscsi, groups->items[i]))
            report(c, groups->line, "portal_groups", "there is no portal group %u", (unsigned)groups->items[i]);
    if (groups->items != NULL && (groups->count == 0 || groups->count > ISCSI_GROUPS_MAX))
        report(c, groups->line, "portal_groups", "target \"%s\": 1 to %d groups, not %u", target->name.text,
               ISCSI_GROUPS_MAX, groups->count);
    const char *redirect = target->redirect.text, *port = strrchr(redirect, ':');
    if (redirect[0] == '*' || (port != NULL && strtoul(port + 1, NULL, 10) == 0))
        report(c, target->redirect.line, "redirect", "\"%s\" is no address to go to", redirect);
    else if (redirect[0] != '\0')
        check_address(c, &target->redirect, false);
}

static void check_portal_group(struct checker *c, unsigned index)
{
    const struct config_list *groups = &c->config->iscsi.portal_groups;
    const struct config_portal_group *group = config_item(groups, struct config_portal_group, index);
    check_addresses(c, &group->listen, false);
    check_addresses(c, &group->portals, false);
    for (unsigned i = 0; i < index; i++)
        if (config_item(groups, struct config_portal_group, i)->tag == group->tag)
            report(c, group->line, "tag", "%u is given twice", (unsigned)group->tag);
}

static void check_target(struct checker *c, const struct config_target *target)
{
    check_target_portals(c, target);
    if (!iscsi_name_valid(target->name.text))
        report(c, target->name.line, "name",
               "\"%s\" is not an iSCSI name: iqn.YYYY-MM.reversed.domain[:anything], eui. or naa.", target->name.text);
    for (unsigned i = 0; i < target->luns.count; i++) {
        const struct config_lun *lun = config_item(&target->luns, struct config_lun, i);
        check_reference(c, &lun->volume);
        for (unsigned j = 0; j < i; j++)
            if (config_item(&target->luns, struct config_lun, j)->lun == lun->lun)
                report(c, lun->line, "lun", "%u is given twice in target \"%s\"", (unsigned)lun->lun,
                       target->name.text);
    }
}

static void check_iscsi(struct checker *c)
{
    const struct config_iscsi *iscsi = &c->config->iscsi;
    check_addresses(c, &iscsi->listen, false);
    check_addresses(c, &iscsi->portals, false);
    for (unsigned i = 0; i < iscsi->portal_groups.count; i++)
        check_portal_group(c, i);
    for (unsigned i = 0; i < iscsi->targets.count; i++)
        check_target(c, config_item(&iscsi->targets, struct config_target, i));
    check_unique(c, &iscsi->targets, sizeof(struct config_target), offsetof(struct config_target, name), "name");
}

void config_check(const struct config *config, struct config_errors *errors)
{
    static const char *const logs[] = {"error", "warning", "notice", "info", "debug", NULL};
    static const char *const engines[] = {"auto", "threads", NULL};
    struct checker c = {.config = config, .errors = errors};
    check_one_of(&c, &config->daemon.log, "log", logs);
    check_one_of(&c, &config->daemon.io, "io", engines);
    for (unsigned i = 0; i < config->arrays.count; i++)
        check_array(&c, config_item(&config->arrays, struct config_array, i));
    if (config->arrays.count > CONFIG_ARRAYS_MAX)
        report(&c, config_item(&config->arrays, struct config_array, CONFIG_ARRAYS_MAX)->line, "arrays",
               "at most %d arrays", CONFIG_ARRAYS_MAX);
    check_unique(&c, &config->arrays, sizeof(struct config_array), offsetof(struct config_array, name), "name");
    for (unsigned i = 0; i < config->imports.count; i++)
        check_import(&c, config_item(&config->imports, struct config_import, i));
    check_unique(&c, &config->imports, sizeof(struct config_import), offsetof(struct config_import, name), "name");
    check_disks(&c);
    check_once(&c);
    c.arrays_sound = errors->count == 0;
    check_nbd(&c);
    check_iscsi(&c);
    config_check_access(config, errors);
    config_check_nbd(config, errors);
    config_check_power(config, errors);
    check_addresses(&c, &config->web.listen, false);
    check_address_twice(&c);
}
