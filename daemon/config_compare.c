/*
 * The differences between two configs, found along the table of keys: see daemon/config.h.
 *
 * Items of a list of groups are the same if their names are (LUNs: their numbers). An item of one config only is one
 * difference, and what is in it is not looked at.
 */
#include <stdio.h>
#include <string.h>

#include "core/check.h"
#include "daemon/config_table.h"

struct comparison {
    config_difference differs;
    void *data;
};

static bool strings_equal(const struct config_strings *a, const struct config_strings *b)
{
    bool equal = a->count == b->count;
    for (unsigned i = 0; equal && i < a->count; i++)
        equal = strcmp(a->items[i].text, b->items[i].text) == 0;
    return equal;
}

static bool numbers_equal(const struct config_numbers *a, const struct config_numbers *b)
{
    return a->count == b->count && (a->count == 0 || memcmp(a->items, b->items, a->count * sizeof *a->items) == 0);
}

/* Not of groups. */
static bool values_equal(enum config_kind kind, const void *a, const void *b)
{
    switch (kind) {
    case KEY_TEXT:
        return strcmp(((const struct config_text *)a)->text, ((const struct config_text *)b)->text) == 0;
    case KEY_STRINGS:
        return strings_equal(a, b);
    case KEY_NUMBERS:
        return numbers_equal(a, b);
    case KEY_BOOL:
        return *(const bool *)a == *(const bool *)b;
    case KEY_LEVEL:
    case KEY_ROTATION:
    case KEY_POLICY:
    case KEY_INIT:
        return *(const int *)a == *(const int *)b;
    default:
        return *(const uint64_t *)a == *(const uint64_t *)b;
    }
}

static const void *item_at(const struct config_list *list, const struct config_group *group, unsigned index)
{
    return (const char *)list->items + index * group->struct_size;
}

/* The first key of a group is what names it. */
static const void *item_like(const struct config_list *list, const struct config_group *group, const void *wanted)
{
    const struct config_key *key = &group->keys[0];
    for (unsigned i = 0; i < list->count; i++) {
        const void *item = item_at(list, group, i);
        if (values_equal(key->kind, (const char *)item + key->offset, (const char *)wanted + key->offset))
            return item;
    }
    return NULL;
}

static void item_path(char *out, size_t len, const char *path, const struct config_group *group, const void *item)
{
    const void *name = (const char *)item + group->keys[0].offset;
    if (group->keys[0].kind == KEY_TEXT)
        snprintf(out, len, "%s \"%s\"", path, ((const struct config_text *)name)->text);
    else
        snprintf(out, len, "%s %u", path, (unsigned)*(const uint64_t *)name);
}

static void compare_groups(struct comparison *c, const char *path, const struct config_group *group, const void *old,
                           const void *new);

static void compare_lists(struct comparison *c, const char *path, const struct config_group *group,
                          const struct config_list *old, const struct config_list *new)
{
    char item[512];
    for (unsigned i = 0; i < old->count; i++) {
        const void *was = item_at(old, group, i), *is = item_like(new, group, was);
        item_path(item, sizeof item, path, group, was);
        if (is == NULL)
            c->differs(c->data, item, CONFIG_REMOVED);
        else
            compare_groups(c, item, group, was, is);
    }
    for (unsigned i = 0; i < new->count; i++) {
        const void *is = item_at(new, group, i);
        item_path(item, sizeof item, path, group, is);
        if (item_like(old, group, is) == NULL)
            c->differs(c->data, item, CONFIG_ADDED);
    }
}

static void compare_groups(struct comparison *c, const char *path, const struct config_group *group, const void *old,
                           const void *new)
{
    for (unsigned i = 0; i < group->count; i++) {
        const struct config_key *key = &group->keys[i];
        const void *was = (const char *)old + key->offset, *is = (const char *)new + key->offset;
        char child[512];
        snprintf(child, sizeof child, "%s%s%s", path, *path != '\0' ? "." : "", key->name);
        if (key->kind == KEY_GROUP)
            compare_groups(c, child, key->group, was, is);
        else if (key->kind == KEY_GROUPS)
            compare_lists(c, child, key->group, was, is);
        else if (!values_equal(key->kind, was, is))
            c->differs(c->data, child, CONFIG_CHANGED);
    }
}

void config_compare(const struct config *old, const struct config *new, config_difference differs, void *data)
{
    struct comparison c = {differs, data};
    compare_groups(&c, "", &config_root, old, new);
}
