/*
 * Do the parts of a superblock go together? Run on what was read before it is believed, and on what is to be written.
 *
 * Every rule returns NULL or a sentence. What may be assumed here: counts are within their arrays, enums within their
 * range, sizes at most 2^56 (superblock_json.c for what was read; bounds_check() for what is to be written).
 */
#include <string.h>

#include "core/page.h"
#include "raid/journal.h"
#include "raid/superblock_text.h"

#define BYTES_MAX (1ull << 56)

/* Bytes of the UTF-8 character at `s`; 0: none, or a control character. Overlong forms and surrogates are refused. */
static size_t character_length(const unsigned char *s)
{
    static const struct {
        unsigned char first_low, first_high, second_low, second_high, length;
    } forms[] = {
        /* The Unicode Standard, table 3-7; 7f and 80-9f are control characters. */
        {0x20, 0x7e, 0, 0, 1},       {0xc2, 0xc2, 0xa0, 0xbf, 2}, {0xc3, 0xdf, 0x80, 0xbf, 2},
        {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3},
        {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4},
        {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(forms); i++) {
        if (s[0] < forms[i].first_low || s[0] > forms[i].first_high)
            continue;
        if (forms[i].length > 1 && (s[1] < forms[i].second_low || s[1] > forms[i].second_high))
            return 0;
        for (unsigned j = 2; j < forms[i].length; j++)
            if ((s[j] & 0xc0) != 0x80)
                return 0;
        return forms[i].length;
    }
    return 0;
}

bool superblock_text_ok(const char *text, size_t size)
{
    const char *end = memchr(text, '\0', size);
    if (end == NULL)
        return false;
    /* The terminator is no continuation byte, so no character reaches beyond it. */
    for (size_t length; text < end; text += length) {
        length = character_length((const unsigned char *)text);
        if (length == 0)
            return false;
    }
    return true;
}

static const char *bounds_check(const struct sb_array *a)
{
    if (a->forks_count < 1 || a->forks_count > SB_FORKS_MAX)
        return "the history is empty or too long";
    if (a->members_count < 1 || a->members_count > RAID_MEMBERS_MAX)
        return "there are no members, or too many";
    if (a->volumes_count > SB_VOLUMES_MAX)
        return "there are too many volumes";
    if (a->generation > SB_GENERATION_MAX)
        return "the generation is higher than an array can come to: the superblock is damaged or forged";
    if (a->created_s > INT64_MAX || a->updated_s > INT64_MAX)
        return "a date is out of range";
    if (a->committed > a->generation)
        return "a generation is said to be committed that is yet to come";
    if (memchr(a->kept, '\0', sizeof a->kept) == NULL)
        return "what is kept for the volumes' users has no end";
    return NULL;
}

/* Settled lines speak of other histories, with generations of their own. */
static const char *forks_check(const struct sb_array *a)
{
    uint64_t before = 0;
    for (unsigned i = 0; i < a->forks_count; i++) {
        const struct sb_fork *fork = &a->forks[i];
        if (uuid_is_nil(&fork->id) || fork->generation > INT64_MAX)
            return "a line of the history has no identity, or a generation out of range";
        if (fork->settled)
            continue;
        if (fork->generation < before || fork->generation > a->generation)
            return "the history is not in order of its generations";
        before = fork->generation;
    }
    return a->forks[a->forks_count - 1].settled ? "the present history is marked as the loser of a split brain" : NULL;
}

/* The areas stand in this order, one behind the other, from 1 MiB on. */
static const char *plan_check(const struct sb_array *a)
{
    const uint64_t areas[][2] = {{a->map_start, a->map_bytes},
                                 {a->journal_start, a->journal_bytes},
                                 {a->headroom_start, a->headroom_bytes},
                                 {a->data_start, a->data_bytes}};
    uint64_t end = 1 * MIB;
    for (unsigned i = 0; i < ARRAY_LENGTH(areas); i++) {
        if (areas[i][0] % MIB != 0 || areas[i][1] % MIB != 0)
            return "an area of the plan is not aligned to 1 MiB";
        if (areas[i][0] < end || areas[i][0] > BYTES_MAX || areas[i][1] > BYTES_MAX)
            return "the areas of the plan overlap";
        end = areas[i][0] + areas[i][1];
    }
    return a->data_bytes == 0 ? "there is no room for data" : NULL;
}

static const char *members_check(const struct sb_array *a)
{
    for (unsigned i = 0; i < a->members_count; i++) {
        const struct sb_member *m = &a->members[i];
        if (uuid_is_nil(&m->uuid) || (unsigned)m->state > SB_ABSENT)
            return "a member has no UUID or no state";
        if (m->filling && m->state != SB_REBUILDING)
            return "a member is said to be filled that is not being rebuilt";
        if (!superblock_text_ok(m->identity, sizeof m->identity))
            return "a member's identity is too long or not printable";
        if (m->missed_from > a->generation)
            return "a member left at a generation that is yet to come";
        if (m->size > BYTES_MAX || superblock_tail(m->size) < a->data_start + a->data_bytes)
            return "a member is smaller than the plan";
        for (unsigned j = 0; j < i; j++)
            if (uuid_equal(&m->uuid, &a->members[j].uuid))
                return "two members have the same UUID";
    }
    return NULL;
}

uint64_t superblock_journal_least(unsigned members)
{
    return (members + UINT64_C(2)) * MIB;
}

static const char *journals_check(const struct sb_array *a)
{
    const struct sb_journal_device *first = &a->journals[0];
    if (a->journals_count > SB_JOURNALS_MAX)
        return "there are too many journal devices";
    for (unsigned i = 0; i < a->journals_count; i++) {
        const struct sb_journal_device *device = &a->journals[i];
        if (uuid_is_nil(&device->uuid) || (unsigned)device->state > SB_JOURNAL_DOUBTFUL)
            return "a journal device has no UUID or no state";
        if (!superblock_text_ok(device->identity, sizeof device->identity))
            return "a journal device's identity is too long or not printable";
        if (device->start < MIB || device->start > BYTES_MAX || device->start % PAGE_BYTES != 0)
            return "a journal device's ring is where it cannot be";
        if (device->bytes < superblock_journal_least(a->members_count) || device->bytes > BYTES_MAX ||
            device->bytes % PAGE_BYTES != 0)
            return "a journal device's ring is too small or too large";
        if (device->start != first->start || device->bytes != first->bytes)
            return "two journal devices are not alike";
        if (i > 0 && uuid_equal(&device->uuid, &first->uuid))
            return "two journal devices have the same UUID";
    }
    return NULL;
}

bool superblock_layout(const struct sb_array *array, const struct sb_volume *volume, struct layout *layout)
{
    uint64_t extent[RAID_MEMBERS_MAX] = {0};
    unsigned i = 0;
    for (unsigned slot = 0; slot < array->members_count; slot++) {
        if (volume->without >> slot & 1)
            continue;
        uint64_t end = superblock_tail(array->members[slot].size), start = array->data_start + volume->start;
        extent[i] = volume->extent;
        if (volume->extent == 0) /* span: all that the member has */
            extent[i] = end > start ? end - start : 0;
        i++;
    }
    return layout_init(layout, &volume->spec, extent) == NULL;
}

static const char *scrub_check(const struct sb_scrub *scrub, const struct layout *layout)
{
    const uint64_t counts[] = {scrub->finished_s,    scrub->now.mismatched, scrub->now.repaired,
                               scrub->now.rewritten, scrub->now.unreadable, scrub->last.mismatched,
                               scrub->last.repaired, scrub->last.rewritten, scrub->last.unreadable,
                               scrub->called_off_s};
    for (unsigned i = 0; i < ARRAY_LENGTH(counts); i++)
        if (counts[i] > INT64_MAX)
            return "a volume's scrub has a number that is too large";
    if ((unsigned)scrub->mode > SB_SCRUB_PATROL || (unsigned)scrub->last_mode > SB_SCRUB_PATROL)
        return "a volume's scrub is of an unknown kind";
    if (scrub->row > layout->rows || (scrub->mode != SB_SCRUB_NONE && layout->redundancy == 0))
        return "a volume's scrub is where it cannot be";
    return NULL;
}

/* Slots that a volume may lie on. */
static unsigned slots_left(const struct sb_array *a, const struct sb_volume *v)
{
    uint64_t all = a->members_count < 64 ? (1ull << a->members_count) - 1 : UINT64_MAX;
    return (unsigned)__builtin_popcountll(all & ~v->without);
}

static const char *volume_place_check(const struct sb_array *a, const struct sb_volume *v)
{
    if (v->start % MIB != 0 || v->extent % MIB != 0)
        return "a volume is not aligned to 1 MiB";
    if (v->extent == 0 && v->spec.level != RAID_SPAN)
        return "a volume has no extent";
    bool one = v->spec.level == RAID_JBOD;
    if (one && v->without != 0)
        return "a volume on one member passes over some";
    if (one ? v->slot >= a->members_count : v->spec.members > slots_left(a, v))
        return "a volume needs members that the array does not have";
    /* A larger member's rest is of use to jbod. */
    uint64_t room = one ? superblock_tail(a->members[v->slot].size) - a->data_start : a->data_bytes;
    if (v->start >= room || v->extent > room - v->start)
        return "a volume reaches beyond the data area";
    return NULL;
}

static const char *volume_check(const struct sb_array *a, const struct sb_volume *v, uint64_t *map_blocks)
{
    if (uuid_is_nil(&v->uuid) || v->name[0] == '\0' || !superblock_text_ok(v->name, sizeof v->name))
        return "a volume has no UUID or no printable name";
    if (!is_power_of_two(v->logical_block) || v->logical_block < 512 || v->logical_block > 4096)
        return "a volume's logical block is not 512 to 4096 bytes";
    if ((unsigned)v->consistency > SB_JOURNAL || (unsigned)v->spec.rotation > ROTATE_RIGHT_SYMMETRIC)
        return "a volume's consistency policy or parity rotation is unknown";
    const char *why = volume_place_check(a, v);
    if (why != NULL)
        return why;
    struct layout layout;
    if (!superblock_layout(a, v, &layout))
        return "a volume has a layout that cannot be";
    why = superblock_consistency_check(&layout, v->consistency);
    if (why != NULL)
        return why;
    if (consistency_is_closed(v->consistency) && a->journal_bytes < JOURNAL_BYTES_MIN)
        return "the journal area is too small for the policy of a volume";
    if (v->size == 0 || v->size % v->logical_block != 0 || v->size > layout.rows * layout.row_data)
        return "a volume's size is not what its extent can hold";
    if ((why = scrub_check(&v->scrub, &layout)) != NULL)
        return why;
    if ((unsigned)v->init > SB_INIT_FOREGROUND || (v->init != SB_INIT_NONE && layout.redundancy == 0))
        return "a volume is said to be initialised in a way that cannot be";
    if (v->priority > 100 || v->min_rate > INT64_MAX || v->max_rate > INT64_MAX ||
        (v->max_rate != 0 && v->max_rate < v->min_rate))
        return "a volume's priority or rates of background work are out of range";
    if (v->rebuilt > (layout.redundancy > 0 ? layout.rows : 0))
        return "a volume is said to be rebuilt beyond its end";
    uint64_t blocks = superblock_map_blocks_of(&layout), room = superblock_map_blocks(a);
    *map_blocks = blocks;
    if (blocks > room || v->map_block > room - blocks)
        return "a volume's region map reaches beyond its area";
    if (blocks == 0 && (v->map_block != 0 || v->unmapped))
        return "a volume without redundancy is said to have a region map";
    return NULL;
}

/* jbod takes its slot of the members, all other levels the first ones that they do not pass over. */
static uint64_t slots_of(const struct sb_volume *v)
{
    if (v->spec.level == RAID_JBOD)
        return 1ull << v->slot;
    uint64_t slots = 0;
    for (unsigned slot = 0, left = v->spec.members; slot < RAID_MEMBERS_MAX && left > 0; slot++)
        if (!(v->without >> slot & 1)) {
            slots |= 1ull << slot;
            left--;
        }
    return slots;
}

static bool overlap(const struct sb_volume *a, const struct sb_volume *b)
{
    uint64_t end_a = a->extent == 0 ? UINT64_MAX : a->start + a->extent;
    uint64_t end_b = b->extent == 0 ? UINT64_MAX : b->start + b->extent;
    return a->start < end_b && b->start < end_a && (slots_of(a) & slots_of(b)) != 0;
}

static const char *volumes_check(const struct sb_array *a)
{
    uint64_t blocks[SB_VOLUMES_MAX];
    for (unsigned i = 0; i < a->volumes_count; i++) {
        const struct sb_volume *v = &a->volumes[i];
        const char *why = volume_check(a, v, &blocks[i]);
        if (why != NULL)
            return why;
        for (unsigned j = 0; j < i; j++) {
            uint64_t other = a->volumes[j].map_block;
            bool sides = superblock_are_sides(v, &a->volumes[j]);
            if ((!sides && strcmp(v->name, a->volumes[j].name) == 0) || uuid_equal(&v->uuid, &a->volumes[j].uuid))
                return "two volumes have the same name or UUID";
            if (!sides && overlap(v, &a->volumes[j]))
                return "two volumes overlap";
            if (blocks[i] > 0 && other < v->map_block + blocks[i] && v->map_block < other + blocks[j])
                return "the region maps of two volumes overlap";
        }
    }
    return superblock_relayouts_check(a);
}

static const char *bad_blocks_check(const struct sb_array *a)
{
    uint64_t sizes[RAID_MEMBERS_MAX];
    for (unsigned i = 0; i < a->members_count; i++)
        sizes[i] = superblock_tail(a->members[i].size) - a->data_start;
    return bad_check(&a->bad, sizes, a->members_count);
}

const char *superblock_check(const struct sb_label *label)
{
    const struct sb_array *a = &label->array;
    const char *why = bounds_check(a);
    if (why != NULL)
        return why;
    if (uuid_is_nil(&a->uuid) || a->name[0] == '\0' || !superblock_text_ok(a->name, sizeof a->name))
        return "the array has no UUID or no printable name";
    const char *(*const rules[])(const struct sb_array *) = {forks_check,    plan_check,    members_check,
                                                             journals_check, volumes_check, bad_blocks_check};
    for (unsigned i = 0; i < ARRAY_LENGTH(rules); i++)
        if ((why = rules[i](a)) != NULL)
            return why;
    if (label->slot >= a->members_count || !uuid_equal(&a->members[label->slot].uuid, &label->member))
        return "the member does not stand in its own table";
    return NULL;
}
