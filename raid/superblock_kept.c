/*
 * What users of volumes want to be kept in the description (sb_array.kept): see raid/superblock.h.
 *
 * In memory it is compact text, {"<volume>":{"<name>":...}}, since descriptions are copied as values. On a member it is
 * part of the superblock's text, which is written with indents: what may be kept is measured with wider ones, so it
 * fits there whatever its shape. Reading treats the text as hostile.
 */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "raid/superblock_text.h"

json_t *superblock_kept_read(const char *kept)
{
    json_t *root = kept[0] == '\0' ? json_object() : json_loads(kept, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(root))
        return root;
    json_decref(root);
    return NULL;
}

bool superblock_kept_write(const json_t *root, char *kept)
{
    if (!json_is_object(root))
        return false;
    if (json_object_size(root) == 0) {
        kept[0] = '\0';
        return true;
    }
    /* A line that superblock_text_write() indents by n + 1 is indented by 3 n here, n at least 1. */
    size_t widest = json_dumpb(root, NULL, 0, JSON_INDENT(3));
    if (widest == 0 || widest >= SB_KEPT_BYTES)
        return false;
    kept[json_dumpb(root, kept, SB_KEPT_BYTES, JSON_COMPACT)] = '\0';
    return true;
}

/* Sets or takes away root.volume.name; what is empty then goes, too. */
static bool kept_change(json_t *root, const char *volume, const char *name, json_t *value)
{
    json_t *of_volume = json_object_get(root, volume);
    if (value == NULL) {
        json_object_del(of_volume, name);
        if (json_object_size(of_volume) == 0)
            json_object_del(root, volume);
        return true;
    }
    if (!json_is_object(of_volume)) {
        of_volume = json_object();
        if (json_object_set_new(root, volume, of_volume) != 0)
            return false;
    }
    return json_object_set(of_volume, name, value) == 0;
}

int superblock_kept_put(struct sb_array *array, const struct uuid *volume, const char *name, const char *json)
{
    char key[UUID_TEXT_SIZE];
    uuid_format(volume, key);
    json_t *value = json != NULL ? json_loads(json, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (json != NULL && value == NULL)
        return -EINVAL;
    json_t *root = superblock_kept_read(array->kept);
    int error = 0;
    if (root == NULL || !kept_change(root, key, name, value))
        error = -ENOMEM;
    else if (!superblock_kept_write(root, array->kept))
        error = -ENOSPC;
    json_decref(root);
    json_decref(value);
    return error;
}

char *superblock_kept_get(const struct sb_array *array, const struct uuid *volume, const char *name)
{
    char key[UUID_TEXT_SIZE];
    uuid_format(volume, key);
    json_t *root = superblock_kept_read(array->kept);
    json_t *value = json_object_get(json_object_get(root, key), name);
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}
