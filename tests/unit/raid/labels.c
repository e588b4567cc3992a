#include "tests/unit/raid/labels.h"

#include "core/check.h"
#include "core/log.h"

struct uuid label_uuid(unsigned kind, unsigned number)
{
    struct uuid uuid = {{0}};
    uuid.bytes[0] = (uint8_t)kind;
    uuid.bytes[14] = (uint8_t)(number >> 8);
    uuid.bytes[15] = (uint8_t)number;
    return uuid;
}

void label_make_array(struct sb_array *array, unsigned members, uint64_t member_bytes)
{
    *array = (struct sb_array){.uuid = label_uuid(LABEL_UUID_ARRAY, 1),
                               .name = "tank",
                               .generation = 10,
                               .created_s = 1700000000,
                               .updated_s = 1700000100,
                               .clean = true,
                               .forks_count = 1,
                               .forks = {{.id = label_uuid(LABEL_UUID_FORK, 0), .generation = 1}},
                               .members_count = members};
    for (unsigned i = 0; i < members; i++) {
        struct sb_member *m = &array->members[i];
        *m = (struct sb_member){.uuid = label_uuid(LABEL_UUID_MEMBER, i), .state = SB_ACTIVE, .size = member_bytes};
        text_format(m->identity, sizeof m->identity, "disk%u", i);
    }
    ASSERT(superblock_plan(array, member_bytes, 4096) == NULL);
}

/* Behind the maps of the volumes that are there. */
static uint64_t label_map_end(const struct sb_array *array)
{
    uint64_t end = 0;
    for (unsigned i = 0; i + 1 < array->volumes_count; i++) {
        const struct sb_volume *v = &array->volumes[i];
        struct layout layout;
        if (superblock_layout(array, v, &layout))
            end = MAX(end, v->map_block + superblock_map_blocks_of(&layout));
    }
    return end;
}

struct sb_volume *label_add_volume(struct sb_array *array, enum raid_level level, uint64_t extent)
{
    unsigned index = array->volumes_count++;
    struct sb_volume *v = &array->volumes[index];
    bool spanned = level == RAID_30 || level == RAID_50 || level == RAID_60;
    *v = (struct sb_volume){.uuid = label_uuid(LABEL_UUID_VOLUME, index),
                            .spec = {.level = level,
                                     .rotation = ROTATE_LEFT_SYMMETRIC,
                                     .members = level == RAID_JBOD ? 1 : array->members_count,
                                     .spans = spanned ? 2 : 1,
                                     .copies = level == RAID_10 || level == RAID_1E ? 2 : 1,
                                     .chunk = level == RAID_3 || level == RAID_30 ? 4 * KIB : 64 * KIB},
                            .extent = extent,
                            .logical_block = 512,
                            .consistency = SB_RESYNC};
    struct layout layout;
    if (index > 0)
        v->start = array->volumes[index - 1].start + array->volumes[index - 1].extent;
    if (level == RAID_1)
        v->spec.copies = array->members_count;
    text_format(v->name, sizeof v->name, "v%u", index);
    uint64_t extents[RAID_MEMBERS_MAX];
    for (unsigned i = 0; i < RAID_MEMBERS_MAX; i++)
        extents[i] = extent;
    ASSERT(layout_init(&layout, &v->spec, extents) == NULL);
    v->size = layout.rows * layout.row_data;
    if (layout.redundancy > 0)
        v->map_block = label_map_end(array);
    return v;
}

struct sb_label label_of(const struct sb_array *array, unsigned slot)
{
    return (struct sb_label){.array = *array, .member = array->members[slot].uuid, .slot = slot};
}
