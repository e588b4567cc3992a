/*
 * A relayout under way, in an array's description: is it one that can be gone on with?
 *
 * The entry of the new side says which volume is its old side, and how far it has come. What is checked here is what a
 * start relies on: that both sides are of one volume, and that at the position no place is used by both of them.
 */
#include <string.h>

#include "raid/relayout_plan.h"
#include "raid/superblock_text.h"

bool superblock_are_sides(const struct sb_volume *a, const struct sb_volume *b)
{
    return uuid_equal(&a->relayout.from, &b->uuid) || uuid_equal(&b->relayout.from, &a->uuid);
}

static bool is_new_side(const struct sb_volume *volume)
{
    return !uuid_is_nil(&volume->relayout.from);
}

static const struct sb_volume *old_side(const struct sb_array *array, const struct sb_volume *new)
{
    for (unsigned i = 0; i < array->volumes_count; i++)
        if (uuid_equal(&array->volumes[i].uuid, &new->relayout.from))
            return &array->volumes[i];
    return NULL;
}

uint32_t superblock_features(const struct sb_array *array)
{
    for (unsigned i = 0; i < array->volumes_count; i++) {
        const struct sb_volume *v = &array->volumes[i];
        if (is_new_side(v) || !uuid_is_nil(&v->key) || v->without != 0)
            return SB_FEATURE_RELAYOUT;
    }
    return 0;
}

static bool side_init(const struct sb_array *array, const struct sb_volume *volume, struct relayout_shape *shape)
{
    uint64_t without = volume->without;
    if (volume->spec.level == RAID_JBOD)
        without = (1ull << volume->slot) - 1;
    if (!superblock_layout(array, volume, &shape->layout))
        return false;
    relayout_shape_place(shape, without, array->data_start + volume->start);
    return true;
}

bool superblock_relayout(const struct sb_array *array, const struct sb_volume *volume, struct relayout *r)
{
    const struct sb_relayout *at = &volume->relayout;
    const struct sb_volume *old = is_new_side(volume) ? old_side(array, volume) : NULL;
    *r = (struct relayout){.size = volume->size, .backward = at->backward, .log = at->log_bytes};
    if (old == NULL || !side_init(array, old, &r->from) || !side_init(array, volume, &r->to))
        return false;
    r->in_place = relayout_is_in_place(&r->from, &r->to, r->size);
    return true;
}

static bool is_position(const struct relayout *r, uint64_t position)
{
    return position == r->size || (position < r->size && position % r->to.layout.row_data == 0);
}

static const char *log_check(const struct sb_array *array, const struct sb_relayout *at, const struct relayout *r)
{
    if (at->log_start % MIB != 0 || at->log_bytes % MIB != 0 || at->log_start < array->headroom_start ||
        at->log_start - array->headroom_start > array->headroom_bytes ||
        at->log_bytes > array->headroom_bytes - (at->log_start - array->headroom_start))
        return "a relayout's log is not in the headroom";
    if (at->logged == at->position)
        return NULL;
    if (at->log_bytes == 0 || (at->logged < at->position) != at->backward)
        return "a relayout's log counts for what it cannot hold";
    struct relayout_shape log;
    relayout_log_shape(r, at->log_start, &log);
    uint64_t bytes = at->logged < at->position ? at->position - at->logged : at->logged - at->position;
    uint64_t rows = bytes / r->to.layout.row_data + (bytes % r->to.layout.row_data != 0);
    return rows > log.layout.rows ? "a relayout's log counts for more than it holds" : NULL;
}

static const char *new_side_check(const struct sb_array *array, const struct sb_volume *new)
{
    const struct sb_volume *old = old_side(array, new);
    const struct sb_relayout *at = &new->relayout;
    if (old == NULL || old == new || is_new_side(old))
        return "a relayout's old side is not there";
    if (strcmp(old->name, new->name) != 0 || old->size != new->size || old->logical_block != new->logical_block)
        return "the sides of a relayout are not those of one volume"; /* two new sides would share a name */
    struct relayout r;
    if (!superblock_relayout(array, new, &r))
        return "a relayout has a shape that cannot be";
    if (!is_position(&r, at->position) || !is_position(&r, at->logged))
        return "a relayout's position is where it cannot be";
    const char *why = log_check(array, at, &r);
    if (why != NULL)
        return why;
    if (!relayout_rests(&r, at->position) || !relayout_rests(&r, at->logged))
        return "a relayout's sides overlap at its position";
    return NULL;
}

static const char *keys_check(const struct sb_array *array)
{
    for (unsigned i = 0; i < array->volumes_count; i++)
        for (unsigned j = 0; j < i; j++)
            if (uuid_equal(sb_volume_key(&array->volumes[i]), sb_volume_key(&array->volumes[j])))
                return "two volumes have the same key";
    return NULL;
}

const char *superblock_relayouts_check(const struct sb_array *array)
{
    for (unsigned i = 0; i < array->volumes_count; i++) {
        const struct sb_volume *v = &array->volumes[i];
        const struct sb_relayout *at = &v->relayout;
        const char *why = NULL;
        if (is_new_side(v))
            why = new_side_check(array, v);
        else if (at->backward || at->position != 0 || at->logged != 0 || at->log_start != 0 || at->log_bytes != 0)
            why = "a volume that is nobody's new side has a position";
        if (why != NULL)
            return why;
    }
    return keys_check(array);
}
