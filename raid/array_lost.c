/*
 * Which bytes of a volume are lost: what is bad, or on a member that is not there, in more chunks of the same columns
 * than the row bears. Of the list of bad blocks only: media errors that no job has met are not known.
 */
#include "raid/array_impl.h"

struct search {
    struct array *array;
    unsigned volume;
    struct array_lost *out;
};

static const struct layout *layout_of(const struct search *s)
{
    return &s->array->volumes[s->volume].layout;
}

static void found(struct array_lost *out, uint64_t off, uint64_t len)
{
    struct array_lost_range *last = &out->ranges[out->count - (out->count > 0)];
    out->bytes += len;
    if (out->count > 0 && last->off + last->len == off)
        last->len += len;
    else if (out->count < ARRAY_LENGTH(out->ranges))
        out->ranges[out->count++] = (struct array_lost_range){off, len};
}

/* The chunks of a row that nobody can read at a column, those among them that are bad, and how far that is so. */
static uint64_t unreadable(const struct search *s, uint64_t row, uint64_t column, uint64_t *bad, uint64_t *len)
{
    const struct layout *layout = layout_of(s);
    const struct sb_volume *v = &s->array->description.volumes[s->volume];
    uint64_t away = 0;
    *bad = 0;
    for (unsigned role = 0; role < layout->roles; role++) {
        struct layout_place place;
        layout_place(layout, row, role, &place);
        uint64_t at = v->start + place.off + column,
                 end = bad_next(&s->array->description.bad, place.slot, at, at + *len);
        *len = end - at;
        away |= (uint64_t)!member_readable(&s->array->members[place.slot]) << role;
        *bad |= (uint64_t)bad_overlaps(&s->array->description.bad, place.slot, at, BAD_UNIT) << role;
    }
    return away | *bad;
}

/* Columns [column, end) of a chunk that is bad. Each is told once, for the first role that is. */
static void search_columns(const struct search *s, uint64_t row, unsigned role, uint64_t column, uint64_t end)
{
    const struct layout *layout = layout_of(s);
    uint64_t size = s->array->description.volumes[s->volume].size;
    for (uint64_t len; column < end; column += len) {
        uint64_t bad;
        len = end - column;
        uint64_t roles = unreadable(s, row, column, &bad, &len);
        if ((unsigned)__builtin_popcountll(roles) <= layout->redundancy || (unsigned)__builtin_ctzll(bad) != role)
            continue;
        for (unsigned r = 0; r < layout->data; r++) {
            uint64_t off = row * layout->row_data + (uint64_t)r * layout->spec.chunk + column;
            if ((roles >> r & 1) && off < size)
                found(s->out, off, MIN(len, size - off));
        }
    }
}

static void search_range(const struct search *s, const struct bad_range *range)
{
    const struct layout *layout = layout_of(s);
    uint64_t start = s->array->description.volumes[s->volume].start, end = range->start + range->length;
    const struct region_map *map = map_store_map(s->array->volumes[s->volume].map);
    for (uint64_t at = MAX(range->start, start), len; at < end; at += len) {
        uint64_t row, column = (at - start) % layout->spec.chunk;
        unsigned role;
        len = MIN(end - at, layout->spec.chunk - column);
        if (!layout_find(layout, range->slot, at - start - column, &row, &role) || row >= layout->rows)
            return;
        if (region_get(map, row) != REGION_UNWRITTEN)
            search_columns(s, row, role, column, column + len);
    }
}

void array_lost(struct array *array, unsigned volume, struct array_lost *out)
{
    const struct search s = {array, volume, out};
    const struct bad_list *bad = &array->description.bad;
    *out = (struct array_lost){0};
    if (!array_is_redundant(array, volume))
        return;
    for (unsigned i = 0; i < bad->count; i++)
        if (bad->of[i].slot < layout_of(&s)->spec.members)
            search_range(&s, &bad->of[i]);
}
