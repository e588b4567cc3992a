/* Persistent reservations as text: see reservation_record.h. */
#include "target/scsi/reservation_record.h"

#include <jansson.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"

enum { KEY_DIGITS = 16 };

static json_t *registrations_write(const struct reservations *now)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < now->count; i++) {
        char text[KEY_DIGITS + 1 + PORT_NAME_BYTES];
        text_format(text, sizeof text, "%016llx %s", (unsigned long long)now->of[i].key, now->of[i].port);
        json_array_append_new(list, json_string(text));
    }
    return list;
}

char *reservation_record_write(const struct reservations *now, enum sanitize_mark mark)
{
    json_t *root = json_object();
    json_object_set_new(root, "generation", json_integer(now->generation));
    json_object_set_new(root, "type", json_integer(now->type));
    json_object_set_new(root, "holder", json_integer(now->holder));
    json_object_set_new(root, "registrations", registrations_write(now));
    if (mark != MARK_NONE)
        json_object_set_new(root, "sanitize", json_integer(mark));
    bool whole = json_object_size(root) == 4u + (mark != MARK_NONE) &&
                 json_array_size(json_object_get(root, "registrations")) == now->count;
    char *text = whole ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

static bool number_read(const json_t *root, const char *key, uint64_t max, uint64_t *out)
{
    const json_t *value = json_object_get(root, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return *out <= max;
}

static bool key_read(const char *text, uint64_t *key)
{
    static const char digits[] = "0123456789abcdef";
    *key = 0;
    for (unsigned i = 0; i < KEY_DIGITS; i++) {
        const char *digit = text[i] != '\0' ? strchr(digits, text[i]) : NULL;
        if (digit == NULL)
            return false;
        *key = *key << 4 | (uint64_t)(digit - digits);
    }
    return text[KEY_DIGITS] == ' ' && *key != 0;
}

static bool registrations_read(const json_t *list, struct reservations *out)
{
    if (!json_is_array(list) || json_array_size(list) > RESERVATIONS_MAX)
        return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        uint64_t key = 0;
        if (text == NULL || !key_read(text, &key))
            return false;
        const char *port = text + KEY_DIGITS + 1;
        if (*port == '\0' || strlen(port) >= PORT_NAME_BYTES || reservations_add(out, port, key) != PERSIST_GOOD)
            return false;
    }
    return true;
}

/* Absent in most records. */
static bool mark_read(const json_t *root, enum sanitize_mark *mark)
{
    uint64_t value = MARK_NONE;
    bool ok = json_object_get(root, "sanitize") == NULL || number_read(root, "sanitize", MARK_EXIT_ALLOWED, &value);
    *mark = (enum sanitize_mark)value;
    return ok;
}

bool reservation_record_read(const char *text, struct reservations *out, enum sanitize_mark *mark)
{
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    uint64_t generation = 0, type = 0, holder = 0;
    *out = (struct reservations){.aptpl = true};
    bool ok = number_read(root, "generation", UINT32_MAX, &generation) && number_read(root, "type", 8, &type) &&
              number_read(root, "holder", RESERVATIONS_MAX - 1, &holder) &&
              registrations_read(json_object_get(root, "registrations"), out) && mark_read(root, mark);
    json_decref(root);
    out->generation = (uint32_t)generation;
    out->type = (uint8_t)type;
    out->holder = (unsigned)holder;
    return ok && (type == PERSIST_NONE || (persist_type_exists((unsigned)type) && holder < out->count));
}
