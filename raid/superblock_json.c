/*
 * An array's description to JSON and back: see raid/superblock_text.h.
 *
 * The format is the tables below: one row a field, used in both directions. Keys are written in the order of the
 * tables, so equal descriptions give equal text. Keys that no row names are skipped when reading: a newer version may
 * add what an older one can do without (a compat feature).
 */
#include <jansson.h>
#include <string.h>

#include "core/log.h"
#include "raid/superblock_text.h"

enum field_kind { FIELD_UUID, FIELD_TEXT, FIELD_NUMBER, FIELD_SMALL, FIELD_BOOL, FIELD_WORD, FIELD_KEPT };

/* The words of an enum, counted from 0. */
struct words {
    const char *(*name)(unsigned value);
    unsigned count;
};

struct field {
    const char *key;
    enum field_kind kind;
    size_t off;                /* in its struct */
    uint64_t max;              /* NUMBER (uint64_t), SMALL (unsigned): the largest value; TEXT: bytes of the array */
    const struct words *words; /* WORD */
    bool optional;             /* BOOL, NUMBER, KEPT: written only when true, not 0, not empty */
};

/* A struct's fields, and where several of that struct stand in the array's. */
struct list {
    const char *key;
    size_t off, count_off, stride;
    unsigned min, max;
    const struct field *fields;
    unsigned fields_count;
    bool optional; /* written only when there is something in it */
};

static const char *level_word(unsigned value)
{
    return raid_level_name((enum raid_level)value);
}

static const char *rotation_word(unsigned value)
{
    return raid_rotation_name((enum raid_rotation)value);
}

static const char *state_word(unsigned value)
{
    return sb_member_state_name((enum sb_member_state)value);
}

static const char *journal_word(unsigned value)
{
    return sb_journal_state_name((enum sb_journal_state)value);
}

static const char *scrub_word(unsigned value)
{
    return sb_scrub_mode_name((enum sb_scrub_mode)value);
}

static const char *init_word(unsigned value)
{
    return sb_init_name((enum sb_init)value);
}

static const char *consistency_word(unsigned value)
{
    return sb_consistency_name((enum sb_consistency)value);
}

static const struct words level_words = {level_word, RAID_LEVEL_COUNT};
static const struct words rotation_words = {rotation_word, ROTATE_RIGHT_SYMMETRIC + 1};
static const struct words state_words = {state_word, SB_ABSENT + 1};
static const struct words consistency_words = {consistency_word, SB_JOURNAL + 1};
static const struct words journal_words = {journal_word, SB_JOURNAL_DOUBTFUL + 1};
static const struct words scrub_words = {scrub_word, SB_SCRUB_PATROL + 1};
static const struct words init_words = {init_word, SB_INIT_FOREGROUND + 1};

/* Sums and products of sizes stay within 64 bits: at most 64 PiB a member, 64 members. */
#define BYTES_MAX  (1ull << 56)
#define NUMBER_MAX ((uint64_t)INT64_MAX)

#define UUID(type, member, key)                                                                                        \
    {                                                                                                                  \
        key, FIELD_UUID, offsetof(struct type, member), 0, NULL, false                                                 \
    }
#define TEXT(type, member, key, size)                                                                                  \
    {                                                                                                                  \
        key, FIELD_TEXT, offsetof(struct type, member), size, NULL, false                                              \
    }
#define NUMBER(type, member, key, max)                                                                                 \
    {                                                                                                                  \
        key, FIELD_NUMBER, offsetof(struct type, member), max, NULL, false                                             \
    }
#define OPTIONAL(type, member, key, max)                                                                               \
    {                                                                                                                  \
        key, FIELD_NUMBER, offsetof(struct type, member), max, NULL, true                                              \
    }
#define SMALL(type, member, key, max)                                                                                  \
    {                                                                                                                  \
        key, FIELD_SMALL, offsetof(struct type, member), max, NULL, false                                              \
    }
#define BOOL(type, member, key, option)                                                                                \
    {                                                                                                                  \
        key, FIELD_BOOL, offsetof(struct type, member), 0, NULL, option                                                \
    }
#define WORD(type, member, key, words, option)                                                                         \
    {                                                                                                                  \
        key, FIELD_WORD, offsetof(struct type, member), 0, &(words), option                                            \
    }

static const struct field array_fields[] = {
    UUID(sb_array, uuid, "array"),
    TEXT(sb_array, name, "name", SB_NAME_SIZE),
    NUMBER(sb_array, generation, "generation", NUMBER_MAX),
    NUMBER(sb_array, committed, "committed", NUMBER_MAX),
    NUMBER(sb_array, created_s, "created", NUMBER_MAX),
    NUMBER(sb_array, updated_s, "updated", NUMBER_MAX),
    BOOL(sb_array, clean, "clean", false),
    UUID(sb_array, epoch, "epoch"),
    NUMBER(sb_array, map_start, "map_start", BYTES_MAX),
    NUMBER(sb_array, map_bytes, "map_bytes", BYTES_MAX),
    NUMBER(sb_array, journal_start, "journal_start", BYTES_MAX),
    NUMBER(sb_array, journal_bytes, "journal_bytes", BYTES_MAX),
    NUMBER(sb_array, headroom_start, "headroom_start", BYTES_MAX),
    NUMBER(sb_array, headroom_bytes, "headroom_bytes", BYTES_MAX),
    NUMBER(sb_array, data_start, "data_start", BYTES_MAX),
    NUMBER(sb_array, data_bytes, "data_bytes", BYTES_MAX),
    {"kept", FIELD_KEPT, offsetof(struct sb_array, kept), 0, NULL, true},
};

static const struct field fork_fields[] = {
    UUID(sb_fork, id, "id"),
    NUMBER(sb_fork, generation, "generation", NUMBER_MAX),
    BOOL(sb_fork, settled, "settled", true),
    BOOL(sb_fork, left, "left", true),
    {"witness", FIELD_UUID, offsetof(struct sb_fork, witness), 0, NULL, true},
};

static const struct field member_fields[] = {
    UUID(sb_member, uuid, "uuid"),
    WORD(sb_member, state, "state", state_words, false),
    TEXT(sb_member, identity, "identity", SB_IDENTITY_SIZE),
    NUMBER(sb_member, size, "size", BYTES_MAX),
    OPTIONAL(sb_member, missed_from, "missed_from", NUMBER_MAX),
    BOOL(sb_member, vanished, "vanished", true),
    BOOL(sb_member, filling, "filling", true),
};

static const struct field volume_fields[] = {
    UUID(sb_volume, uuid, "uuid"),
    {"key", FIELD_UUID, offsetof(struct sb_volume, key), 0, NULL, true},
    TEXT(sb_volume, name, "name", SB_NAME_SIZE),
    WORD(sb_volume, spec.level, "level", level_words, false),
    WORD(sb_volume, spec.rotation, "rotation", rotation_words, false),
    SMALL(sb_volume, spec.members, "members", RAID_MEMBERS_MAX),
    SMALL(sb_volume, spec.spans, "spans", RAID_MEMBERS_MAX),
    SMALL(sb_volume, spec.copies, "copies", RAID_MEMBERS_MAX),
    SMALL(sb_volume, spec.chunk, "chunk", 16 * MIB),
    SMALL(sb_volume, slot, "slot", RAID_MEMBERS_MAX - 1),
    OPTIONAL(sb_volume, without, "without", NUMBER_MAX),
    NUMBER(sb_volume, start, "start", BYTES_MAX),
    NUMBER(sb_volume, extent, "extent", BYTES_MAX),
    NUMBER(sb_volume, size, "size", NUMBER_MAX),
    SMALL(sb_volume, logical_block, "logical_block", 4096),
    WORD(sb_volume, consistency, "consistency", consistency_words, false),
    NUMBER(sb_volume, map_block, "map_block", NUMBER_MAX),
    BOOL(sb_volume, unmapped, "unmapped", true),
    WORD(sb_volume, scrub.mode, "scrub", scrub_words, false),
    NUMBER(sb_volume, scrub.row, "scrub_row", NUMBER_MAX),
    NUMBER(sb_volume, scrub.now.mismatched, "scrub_mismatched", NUMBER_MAX),
    NUMBER(sb_volume, scrub.now.repaired, "scrub_repaired", NUMBER_MAX),
    NUMBER(sb_volume, scrub.now.rewritten, "scrub_rewritten", NUMBER_MAX),
    NUMBER(sb_volume, scrub.now.unreadable, "scrub_unreadable", NUMBER_MAX),
    NUMBER(sb_volume, scrub.finished_s, "scrubbed", NUMBER_MAX),
    WORD(sb_volume, scrub.last_mode, "scrubbed_mode", scrub_words, false),
    NUMBER(sb_volume, scrub.last.mismatched, "scrubbed_mismatched", NUMBER_MAX),
    NUMBER(sb_volume, scrub.last.repaired, "scrubbed_repaired", NUMBER_MAX),
    NUMBER(sb_volume, scrub.last.rewritten, "scrubbed_rewritten", NUMBER_MAX),
    NUMBER(sb_volume, scrub.last.unreadable, "scrubbed_unreadable", NUMBER_MAX),
    OPTIONAL(sb_volume, scrub.called_off_s, "scrub_called_off", NUMBER_MAX),
    WORD(sb_volume, init, "init", init_words, true),
    SMALL(sb_volume, priority, "priority", 100),
    NUMBER(sb_volume, min_rate, "min_rate", NUMBER_MAX),
    NUMBER(sb_volume, max_rate, "max_rate", NUMBER_MAX),
    BOOL(sb_volume, paused, "paused", true),
    NUMBER(sb_volume, rebuilt, "rebuilt", NUMBER_MAX),
    {"relayout_from", FIELD_UUID, offsetof(struct sb_volume, relayout.from), 0, NULL, true},
    BOOL(sb_volume, relayout.backward, "relayout_backward", true),
    OPTIONAL(sb_volume, relayout.position, "relayout_position", NUMBER_MAX),
    OPTIONAL(sb_volume, relayout.logged, "relayout_logged", NUMBER_MAX),
    OPTIONAL(sb_volume, relayout.log_start, "relayout_log_start", BYTES_MAX),
    OPTIONAL(sb_volume, relayout.log_bytes, "relayout_log_bytes", BYTES_MAX),
};

static const struct field journal_fields[] = {
    UUID(sb_journal_device, uuid, "uuid"),
    WORD(sb_journal_device, state, "state", journal_words, false),
    TEXT(sb_journal_device, identity, "identity", SB_IDENTITY_SIZE),
    NUMBER(sb_journal_device, start, "start", BYTES_MAX),
    NUMBER(sb_journal_device, bytes, "bytes", BYTES_MAX),
};

static const struct field bad_fields[] = {
    SMALL(bad_range, slot, "slot", RAID_MEMBERS_MAX - 1),
    NUMBER(bad_range, start, "start", BYTES_MAX),
    NUMBER(bad_range, length, "length", BYTES_MAX),
};

#define LIST(member, key, type, min, fields, optional)                                                                 \
    {                                                                                                                  \
        key, offsetof(struct sb_array, member), offsetof(struct sb_array, member##_count), sizeof(struct type), min,   \
            ARRAY_LENGTH(((struct sb_array *)0)->member), fields, ARRAY_LENGTH(fields), optional                       \
    }

static const struct list array_lists[] = {
    LIST(forks, "forks", sb_fork, 1, fork_fields, false),
    LIST(members, "members", sb_member, 1, member_fields, false),
    LIST(volumes, "volumes", sb_volume, 0, volume_fields, false),
    LIST(journals, "journal_devices", sb_journal_device, 1, journal_fields, true),
    {"bad", offsetof(struct sb_array, bad.of), offsetof(struct sb_array, bad.count), sizeof(struct bad_range), 0,
     BAD_MAX, bad_fields, ARRAY_LENGTH(bad_fields), true},
};

/* --- to text --- */

static json_t *field_to_json(const struct field *field, const void *at)
{
    char text[UUID_TEXT_SIZE];
    switch (field->kind) {
    case FIELD_UUID:
        uuid_format(at, text);
        return json_string(text);
    case FIELD_TEXT:
        return json_string(at);
    case FIELD_NUMBER:
        return json_integer(*(const int64_t *)at); /* at most 2^63 - 1: superblock_check() */
    case FIELD_SMALL:
        return json_integer(*(const unsigned *)at);
    case FIELD_BOOL:
        return json_boolean(*(const bool *)at);
    case FIELD_WORD:
        return json_string(field->words->name(*(const unsigned *)at));
    case FIELD_KEPT:
        return superblock_kept_read(at);
    }
    UNREACHABLE("kind of field");
}

static bool is_default(const struct field *field, const void *at)
{
    switch (field->kind) {
    case FIELD_BOOL:
        return !*(const bool *)at;
    case FIELD_KEPT:
        return *(const char *)at == '\0';
    case FIELD_NUMBER:
        return *(const uint64_t *)at == 0;
    case FIELD_UUID:
        return uuid_is_nil(at);
    default:
        return *(const unsigned *)at == 0;
    }
}

static bool fields_to_json(const struct field *fields, unsigned count, const void *from, json_t *object)
{
    for (unsigned i = 0; i < count; i++) {
        const void *at = (const char *)from + fields[i].off;
        if (fields[i].optional && is_default(&fields[i], at))
            continue;
        if (json_object_set_new(object, fields[i].key, field_to_json(&fields[i], at)) != 0)
            return false;
    }
    return true;
}

static bool list_to_json(const struct list *list, const struct sb_array *array, json_t *root)
{
    const char *base = (const char *)array;
    unsigned count = *(const unsigned *)(const void *)(base + list->count_off);
    if (list->optional && count == 0)
        return true;
    json_t *items = json_array();
    if (json_object_set_new(root, list->key, items) != 0)
        return false;
    for (unsigned i = 0; i < count; i++) {
        json_t *item = json_object();
        if (json_array_append_new(items, item) != 0)
            return false;
        if (!fields_to_json(list->fields, list->fields_count, base + list->off + i * list->stride, item))
            return false;
    }
    return true;
}

size_t superblock_text_write(const struct sb_array *array, char *out, size_t size)
{
    json_t *root = json_object();
    bool ok = root != NULL && fields_to_json(array_fields, ARRAY_LENGTH(array_fields), array, root);
    for (unsigned i = 0; ok && i < ARRAY_LENGTH(array_lists); i++)
        ok = list_to_json(&array_lists[i], array, root);
    size_t len = ok ? json_dumpb(root, out, size, JSON_INDENT(1)) : 0;
    json_decref(root);
    if (len == 0 || len >= size)
        return 0;
    out[len] = '\n';
    return len + 1;
}

/* --- from text --- */

/* Where in the text we are, for the sentence. */
struct reader {
    char *why;
    size_t why_len;
    const char *list; /* NULL: in the array itself */
    unsigned index;
};

static bool fail(const struct reader *reader, const char *key, const char *what)
{
    if (reader->why == NULL)
        return false;
    if (reader->list != NULL)
        text_format(reader->why, reader->why_len, "%s[%u].%s %s", reader->list, reader->index, key, what);
    else
        text_format(reader->why, reader->why_len, "%s %s", key, what);
    return false;
}

static bool text_from_json(const json_t *value, char *at, size_t size)
{
    size_t len = json_string_length(value);
    if (!json_is_string(value) || len >= size)
        return false;
    memcpy(at, json_string_value(value), len + 1);
    return superblock_text_ok(at, size);
}

static bool number_from_json(const json_t *value, uint64_t max, uint64_t *number)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *number = (uint64_t)json_integer_value(value);
    return *number <= max;
}

static bool word_from_json(const json_t *value, const struct words *words, unsigned *at)
{
    const char *text = json_string_value(value);
    for (unsigned i = 0; text != NULL && i < words->count; i++) {
        if (strcmp(text, words->name(i)) == 0) {
            *at = i;
            return true;
        }
    }
    return false;
}

static bool field_from_json(const struct field *field, const json_t *value, void *at, const struct reader *reader)
{
    uint64_t number = 0;
    switch (field->kind) {
    case FIELD_UUID:
        return (json_is_string(value) && uuid_parse(json_string_value(value), at)) ||
               fail(reader, field->key, "is not a UUID");
    case FIELD_TEXT:
        return text_from_json(value, at, field->max) || fail(reader, field->key, "is too long or not printable");
    case FIELD_NUMBER:
        return number_from_json(value, field->max, at) || fail(reader, field->key, "is out of range");
    case FIELD_SMALL:
        if (!number_from_json(value, field->max, &number))
            return fail(reader, field->key, "is out of range");
        *(unsigned *)at = (unsigned)number;
        return true;
    case FIELD_BOOL:
        *(bool *)at = json_is_true(value);
        return json_is_boolean(value) || fail(reader, field->key, "is neither true nor false");
    case FIELD_WORD:
        return word_from_json(value, field->words, at) || fail(reader, field->key, "is none of the known words");
    case FIELD_KEPT:
        return superblock_kept_write(value, at) || fail(reader, field->key, "is not an object, or too long");
    }
    UNREACHABLE("kind of field");
}

static bool fields_from_json(const struct field *fields, unsigned count, const json_t *object, void *to,
                             const struct reader *reader)
{
    for (unsigned i = 0; i < count; i++) {
        const json_t *value = json_object_get(object, fields[i].key);
        if (value == NULL && fields[i].optional)
            continue;
        if (value == NULL)
            return fail(reader, fields[i].key, "is missing");
        if (!field_from_json(&fields[i], value, (char *)to + fields[i].off, reader))
            return false;
    }
    return true;
}

static bool list_from_json(const struct list *list, const json_t *root, struct sb_array *array, struct reader *reader)
{
    const json_t *items = json_object_get(root, list->key);
    size_t count = json_array_size(items);
    reader->list = NULL;
    if (items == NULL && list->optional)
        return true;
    if (!json_is_array(items) || count < list->min || count > list->max)
        return fail(reader, list->key, "is missing, or too short or too long a list");
    char *base = (char *)array;
    *(unsigned *)(void *)(base + list->count_off) = (unsigned)count;
    reader->list = list->key;
    for (unsigned i = 0; i < count; i++) {
        reader->index = i;
        const json_t *item = json_array_get(items, i);
        if (!fields_from_json(list->fields, list->fields_count, item, base + list->off + i * list->stride, reader))
            return false;
    }
    return true;
}

bool superblock_text_read(const char *text, size_t len, struct sb_array *array, char *why, size_t why_len)
{
    struct reader reader = {.why = why, .why_len = why_len};
    json_error_t error;
    *array = (struct sb_array){0};
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        return fail(&reader, "the text", "is not JSON");
    bool ok = fields_from_json(array_fields, ARRAY_LENGTH(array_fields), root, array, &reader);
    for (unsigned i = 0; ok && i < ARRAY_LENGTH(array_lists); i++)
        ok = list_from_json(&array_lists[i], root, array, &reader);
    json_decref(root);
    return ok;
}
