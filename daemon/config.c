/*
 * From the file to the value: libconfig's tree walked along the table of keys. See daemon/config.h.
 *
 * A setting that no row of the table names is an error with the nearest name as a hint; a required one that is missing
 * is an error at its group's line. libconfig knows lines but not columns, so the column is found by looking the name up
 * in the line.
 */
#include "daemon/config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libconfig.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.h"
#include "daemon/config_table.h"
#include "raid/superblock.h"
#include "daemon/units.h"

struct reader {
    const char *path;
    struct config_errors *errors;
};

/* Column of the setting's last word in that line of the file; 1 if it is not there. */
static unsigned column_of(const char *path, unsigned line, const char *setting)
{
    const char *word = strrchr(setting, '.') != NULL ? strrchr(setting, '.') + 1 : setting;
    FILE *file = line > 0 && *word != '\0' ? fopen(path, "r") : NULL;
    unsigned column = 1;
    char *text = NULL;
    size_t room = 0;
    for (unsigned i = 1; file != NULL && getline(&text, &room, file) > 0; i++) {
        if (i < line)
            continue;
        const char *at = strstr(text, word);
        column = at != NULL ? (unsigned)(at - text) + 1 : 1;
        break;
    }
    if (file != NULL)
        fclose(file);
    free(text);
    return column;
}

void config_error(struct config_errors *errors, const char *path, unsigned line, const char *setting,
                  const char *format, ...)
{
    unsigned last = ARRAY_LENGTH(errors->lines) - 1;
    if (errors->count >= last) {
        if (errors->count == last)
            errors->lines[errors->count++] = strdup("further mistakes are not shown");
        return;
    }
    char sentence[512], whole[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    if (line > 0)
        snprintf(whole, sizeof whole, "%s:%u:%u: %s%s%s", path, line, column_of(path, line, setting), setting,
                 *setting != '\0' ? ": " : "", sentence);
    else
        snprintf(whole, sizeof whole, "%s: %s", path, sentence);
    errors->lines[errors->count++] = strdup(whole);
}

void config_errors_free(struct config_errors *errors)
{
    for (unsigned i = 0; i < errors->count; i++)
        free(errors->lines[i]);
    errors->count = 0;
}

/* --- values --- */

static void *must_allocate(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    ASSERT(memory != NULL);
    return memory;
}

static char *must_duplicate(const char *text)
{
    char *copy = strdup(text);
    ASSERT(copy != NULL);
    return copy;
}

static const char *store_policy(int *policy, const char *text)
{
    *policy = -1;
    if (strcmp(text, "default") == 0)
        return NULL;
    for (int i = SB_RESYNC; i <= SB_JOURNAL; i++)
        if (strcmp(text, sb_consistency_name((enum sb_consistency)i)) == 0)
            *policy = i;
    return *policy >= 0 ? NULL : "is none of default, resync, bitmap, ppl and journal";
}

static const char *store_init(int *init, const char *text)
{
    for (*init = SB_INIT_NONE; *init <= SB_INIT_FOREGROUND; ++*init)
        if (strcmp(text, sb_init_name((enum sb_init) * init)) == 0)
            return NULL;
    return "is none of none, background and foreground";
}

/* Store a value given as text (a string setting, or the default of a key). NULL, or what is wrong. */
static const char *store_text(const struct config_key *key, void *field, const char *text, unsigned line)
{
    uint64_t value = 0;
    const char *wrong = NULL;
    switch (key->kind) {
    case KEY_TEXT: /* the default goes */
        free(((struct config_text *)field)->text);
        *(struct config_text *)field = (struct config_text){must_duplicate(text), line};
        return NULL;
    case KEY_LEVEL:
        return raid_level_parse(text, field) ? NULL : "is not a RAID level; see corbel.conf(5)";
    case KEY_ROTATION:
        return raid_rotation_parse(text, field) ? NULL : "is not a parity rotation; see corbel.conf(5)";
    case KEY_POLICY:
        return store_policy(field, text);
    case KEY_INIT:
        return store_init(field, text);
    case KEY_BOOL:
        *(bool *)field = strcmp(text, "true") == 0;
        return NULL;
    case KEY_SIZE:
        wrong = size_parse(text, &value);
        break;
    case KEY_DURATION:
        wrong = duration_parse(text, &value);
        break;
    case KEY_NUMBER:
        value = strtoull(text, NULL, 10);
        break;
    default:
        UNREACHABLE("a kind without text");
    }
    if (wrong != NULL)
        return wrong;
    if (value < key->min || value > key->max)
        return "is out of range; see corbel.conf(5)";
    *(uint64_t *)field = value;
    return NULL;
}

/* Fill a group with the defaults of its keys. Groups within are filled too, lists stay empty. */
static void set_defaults(const struct config_group *group, void *out)
{
    for (unsigned i = 0; i < group->count; i++) {
        const struct config_key *key = &group->keys[i];
        void *field = (char *)out + key->offset;
        if (key->kind == KEY_GROUP)
            set_defaults(key->group, field);
        else if (key->kind == KEY_TEXT)
            store_text(key, field, key->fallback != NULL ? key->fallback : "", 0);
        else if (key->fallback != NULL && key->kind != KEY_STRINGS && key->kind != KEY_NUMBERS &&
                 key->kind != KEY_GROUPS)
            ASSERT(store_text(key, field, key->fallback, 0) == NULL);
    }
}

static void read_group(struct reader *r, const struct config_group *group, void *out, config_setting_t *setting,
                       const char *prefix);

static void read_strings(struct reader *r, const char *name, const struct config_key *key, struct config_strings *out,
                         config_setting_t *setting)
{
    unsigned line = config_setting_source_line(setting);
    const char *one = key->alone ? config_setting_get_string(setting) : NULL;
    if (one != NULL) {
        out->items = must_allocate(1, sizeof *out->items);
        if (*one != '\0')
            out->items[out->count++] = (struct config_text){must_duplicate(one), line};
        return;
    }
    if (!config_setting_is_array(setting) && !config_setting_is_list(setting)) {
        config_error(r->errors, r->path, line, name, "must be a list of strings: [ \"...\", \"...\" ]");
        return;
    }
    int count = config_setting_length(setting);
    out->items = must_allocate((size_t)count, sizeof *out->items);
    for (int i = 0; i < count; i++) {
        const char *text = config_setting_get_string_elem(setting, i);
        unsigned at = config_setting_source_line(config_setting_get_elem(setting, (unsigned)i));
        if (text == NULL)
            config_error(r->errors, r->path, at > 0 ? at : line, name, "item %d is not a string", i + 1);
        else if (!superblock_text_ok(text, strlen(text) + 1))
            config_error(r->errors, r->path, at > 0 ? at : line, name, "item %d is not printable UTF-8", i + 1);
        else
            out->items[out->count++] = (struct config_text){must_duplicate(text), at > 0 ? at : line};
    }
}

static void read_groups(struct reader *r, const char *name, const struct config_key *key, struct config_list *out,
                        config_setting_t *setting)
{
    if (!config_setting_is_list(setting)) {
        config_error(r->errors, r->path, config_setting_source_line(setting), name,
                     "must be a list of groups: ( { ... }, { ... } )");
        return;
    }
    int count = config_setting_length(setting);
    out->items = must_allocate((size_t)count, key->group->struct_size);
    for (int i = 0; i < count; i++) {
        config_setting_t *item = config_setting_get_elem(setting, (unsigned)i);
        char path[256];
        snprintf(path, sizeof path, "%s[%d]", name, i);
        if (!config_setting_is_group(item)) {
            config_error(r->errors, r->path, config_setting_source_line(item), path, "must be a group: { ... }");
            continue;
        }
        void *value = (char *)out->items + out->count++ * key->group->struct_size;
        set_defaults(key->group, value);
        read_group(r, key->group, value, item, path);
    }
}

static const char *read_number(const struct config_key *key, void *field, config_setting_t *setting)
{
    int type = config_setting_type(setting);
    if (type != CONFIG_TYPE_INT && type != CONFIG_TYPE_INT64)
        return "must be a whole number";
    long long value = config_setting_get_int64(setting);
    if (value < 0 || (uint64_t)value < key->min || (uint64_t)value > key->max)
        return "is out of range; see corbel.conf(5)";
    *(uint64_t *)field = (uint64_t)value;
    return NULL;
}

static const char *read_bool(void *field, config_setting_t *setting)
{
    if (config_setting_type(setting) != CONFIG_TYPE_BOOL)
        return "must be true or false";
    *(bool *)field = config_setting_get_bool(setting);
    return NULL;
}

static const char *must_be_text(enum config_kind kind)
{
    return kind == KEY_SIZE || kind == KEY_DURATION ? "must be a string with a unit, like \"64 KiB\" or \"30 s\""
                                                    : "must be a string";
}

static void read_scalar(struct reader *r, const char *name, const struct config_key *key, void *field,
                        config_setting_t *setting)
{
    unsigned line = config_setting_source_line(setting);
    const char *text = config_setting_type(setting) == CONFIG_TYPE_STRING ? config_setting_get_string(setting) : NULL;
    const char *wrong;
    if (key->kind == KEY_BOOL)
        wrong = read_bool(field, setting);
    else if (key->kind == KEY_NUMBER)
        wrong = read_number(key, field, setting);
    else if (text != NULL && !superblock_text_ok(text, strlen(text) + 1))
        wrong = "is not printable UTF-8";
    else
        wrong = text != NULL ? store_text(key, field, text, line) : must_be_text(key->kind);
    if (wrong != NULL && text != NULL)
        config_error(r->errors, r->path, line, name, "\"%s\" %s", text, wrong);
    else if (wrong != NULL)
        config_error(r->errors, r->path, line, name, "%s", wrong);
}

static void read_numbers(struct reader *r, const char *name, const struct config_key *key, struct config_numbers *out,
                         config_setting_t *setting)
{
    out->line = config_setting_source_line(setting);
    if (!config_setting_is_array(setting) && !config_setting_is_list(setting)) {
        config_error(r->errors, r->path, out->line, name, "must be a list of whole numbers: [ 1, 2 ]");
        return;
    }
    int count = config_setting_length(setting);
    out->items = must_allocate((size_t)count, sizeof *out->items);
    for (int i = 0; i < count; i++) {
        const char *wrong = read_number(key, &out->items[out->count], config_setting_get_elem(setting, (unsigned)i));
        if (wrong != NULL)
            config_error(r->errors, r->path, out->line, name, "item %d %s", i + 1, wrong);
        else
            out->count++;
    }
}

static void read_key(struct reader *r, const char *name, const struct config_key *key, void *field,
                     config_setting_t *setting)
{
    switch (key->kind) {
    case KEY_STRINGS:
        read_strings(r, name, key, field, setting);
        break;
    case KEY_NUMBERS:
        read_numbers(r, name, key, field, setting);
        break;
    case KEY_GROUPS:
        read_groups(r, name, key, field, setting);
        break;
    case KEY_GROUP:
        if (config_setting_is_group(setting))
            read_group(r, key->group, field, setting, name);
        else
            config_error(r->errors, r->path, config_setting_source_line(setting), name, "must be a group: { ... }");
        break;
    default:
        read_scalar(r, name, key, field, setting);
    }
}

/* --- groups --- */

static void setting_path(char *out, size_t len, const char *prefix, const char *name)
{
    snprintf(out, len, "%s%s%s", prefix, *prefix != '\0' ? "." : "", name);
}

static const struct config_key *find_key(const struct config_group *group, const char *name)
{
    for (unsigned i = 0; i < group->count; i++)
        if (strcmp(group->keys[i].name, name) == 0)
            return &group->keys[i];
    return NULL;
}

/* Levenshtein distance of two short words, for hints. */
static unsigned word_distance(const char *a, const char *b)
{
    unsigned row[64];
    size_t lb = MIN(strlen(b), ARRAY_LENGTH(row) - 1);
    for (size_t j = 0; j <= lb; j++)
        row[j] = (unsigned)j;
    for (size_t i = 0; a[i] != '\0'; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i + 1;
        for (size_t j = 1; j <= lb; j++) {
            unsigned cost = MIN(MIN(row[j], row[j - 1]) + 1, diagonal + (a[i] != b[j - 1]));
            diagonal = row[j];
            row[j] = cost;
        }
    }
    return row[lb];
}

static void report_unknown(struct reader *r, const struct config_group *group, config_setting_t *setting,
                           const char *path)
{
    const char *name = config_setting_name(setting), *hint = NULL;
    unsigned best = 4;
    for (unsigned i = 0; i < group->count; i++) {
        unsigned distance = word_distance(name, group->keys[i].name);
        if (distance < best) {
            best = distance;
            hint = group->keys[i].name;
        }
    }
    unsigned line = config_setting_source_line(setting);
    if (hint != NULL)
        config_error(r->errors, r->path, line, path, "unknown key; did you mean \"%s\"?", hint);
    else
        config_error(r->errors, r->path, line, path, "unknown key");
}

static void read_group(struct reader *r, const struct config_group *group, void *out, config_setting_t *setting,
                       const char *prefix)
{
    char path[256];
    uint64_t seen = 0;
    *(unsigned *)out = MAX(config_setting_source_line(setting), 1u);
    for (int i = 0; i < config_setting_length(setting); i++) {
        config_setting_t *child = config_setting_get_elem(setting, (unsigned)i);
        const struct config_key *key = find_key(group, config_setting_name(child));
        setting_path(path, sizeof path, prefix, config_setting_name(child));
        if (key == NULL) {
            report_unknown(r, group, child, path);
            continue;
        }
        seen |= 1ull << (key - group->keys);
        read_key(r, path, key, (char *)out + key->offset, child);
    }
    for (unsigned i = 0; i < group->count; i++)
        if (group->keys[i].fallback == NULL && !(seen & 1ull << i)) {
            setting_path(path, sizeof path, prefix, group->keys[i].name);
            config_error(r->errors, r->path, *(unsigned *)out, path, "is missing: %s", group->keys[i].help);
        }
}

static void free_group(const struct config_group *group, void *out)
{
    for (unsigned i = 0; i < group->count; i++) {
        const struct config_key *key = &group->keys[i];
        void *field = (char *)out + key->offset;
        if (key->kind == KEY_TEXT) {
            free(((struct config_text *)field)->text);
        } else if (key->kind == KEY_GROUP) {
            free_group(key->group, field);
        } else if (key->kind == KEY_STRINGS) {
            struct config_strings *strings = field;
            for (unsigned j = 0; j < strings->count; j++)
                free(strings->items[j].text);
            free(strings->items);
        } else if (key->kind == KEY_NUMBERS) {
            free(((struct config_numbers *)field)->items);
        } else if (key->kind == KEY_GROUPS) {
            struct config_list *list = field;
            for (unsigned j = 0; j < list->count; j++)
                free_group(key->group, (char *)list->items + j * key->group->struct_size);
            free(list->items);
        }
    }
}

void config_free(struct config *config)
{
    if (config == NULL)
        return;
    free_group(&config_root, config);
    free(config->path);
    free(config);
}

/* --- the file --- */

/* Never a pipe: one that nobody writes to would keep the daemon, in a reload, for ever; it could be neither asked nor
 * stopped. */
static int open_at_once(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && !S_ISFIFO(st.st_mode))
        return fd;
    close(fd);
    errno = ESPIPE;
    return -1;
}

/* NULL, and errno, if not a byte of it can be read; as libconfig's scanner ends the process then, e.g. of a folder. */
static FILE *open_readable(const char *path)
{
    int fd = open_at_once(path), error;
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (file == NULL || fgetc(file) != EOF || !ferror(file)) {
        if (file != NULL)
            rewind(file);
        return file;
    }
    error = errno;
    fclose(file);
    errno = error;
    return NULL;
}

static const char *why_unreadable(void)
{
    return errno == ESPIPE ? "it is a pipe" : strerror(errno);
}

/* Look at the files that this one includes, before the scanner does: libconfig takes 10 levels. */
static bool includes_are_readable(struct reader *r, const char *path, FILE *file, unsigned level)
{
    char *text = NULL, name[512];
    size_t room = 0;
    bool good = true;
    for (unsigned line = 1; good && level < 10 && getline(&text, &room, file) > 0; line++) {
        if (sscanf(text, " @include \"%511[^\"]\"", name) != 1)
            continue;
        FILE *included = open_readable(name);
        if (included == NULL)
            config_error(r->errors, path, line, "@include", "%s cannot be read: %s", name, why_unreadable());
        good = included != NULL && includes_are_readable(r, name, included, level + 1);
        if (included != NULL)
            fclose(included);
    }
    free(text);
    rewind(file);
    return good;
}

static bool parse_file(config_t *tree, struct reader *r)
{
    FILE *file = open_readable(r->path);
    if (file == NULL) {
        config_error(r->errors, r->path, 0, "", "cannot be read: %s", why_unreadable());
        return false;
    }
    if (!includes_are_readable(r, r->path, file, 0)) {
        fclose(file);
        return false;
    }
    int ok = config_read(tree, file);
    fclose(file);
    if (!ok)
        config_error(r->errors, config_error_file(tree) != NULL ? config_error_file(tree) : r->path,
                     (unsigned)MAX(config_error_line(tree), 1), "",
                     "%s here or shortly before: is a ; } ) or ] missing, or [ ] where ( ) belongs?",
                     config_error_text(tree));
    return ok;
}

struct config *config_load(const char *path, struct config_errors *errors)
{
    struct reader r = {path, errors};
    struct config *config = must_allocate(1, sizeof *config);
    config_t tree;
    config_init(&tree);
    config->path = must_duplicate(path);
    set_defaults(&config_root, config);
    if (parse_file(&tree, &r)) {
        read_group(&r, &config_root, config, config_root_setting(&tree), "");
        if (errors->count == 0)
            config_check(config, errors);
    }
    config_destroy(&tree);
    if (errors->count == 0)
        return config;
    config_free(config);
    return NULL;
}

/* --- for people --- */

static void print_group(FILE *out, const struct config_group *group, const char *prefix)
{
    static const char *const kinds[] = {"string",
                                        "size",
                                        "duration",
                                        "number",
                                        "true/false",
                                        "level",
                                        "parity rotation",
                                        "consistency policy",
                                        "init",
                                        "list of strings",
                                        "list of numbers",
                                        "group",
                                        "list of groups"};
    for (unsigned i = 0; i < group->count; i++) {
        const struct config_key *key = &group->keys[i];
        char path[256];
        setting_path(path, sizeof path, prefix, key->name);
        fprintf(out, "%-28s %-16s %-26s %s\n", path, kinds[key->kind],
                key->fallback == NULL ? "(required)" : key->fallback, key->help);
        if (key->group != NULL)
            print_group(out, key->group, path);
    }
}

void config_print_keys(FILE *out)
{
    fprintf(out, "%-28s %-16s %-26s %s\n", "KEY", "KIND", "DEFAULT", "MEANING");
    print_group(out, &config_root, "");
}
