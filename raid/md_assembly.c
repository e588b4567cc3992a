/* Analyse, decide: see raid/md_assembly.h. Values only. */
#include "raid/md_assembly.h"

#include <string.h>

#include "core/check.h"
#include "core/log.h"

#define MIRROR_CHUNK (1 * MIB) /* copies have no chunk in md; any will do */

/* Ends a decision: not usable, and why. */
#define REFUSE(set, ...) (text_format((set)->reason, sizeof(set)->reason, __VA_ARGS__), false)

const char *md_standing_name(enum md_standing standing)
{
    static const char *const names[] = {
        [MD_CURRENT] = "current",
        [MD_STALE] = "was away while others went on: left out",
        [MD_IS_SPARE] = "a spare: left out",
        [MD_IS_FAULTY] = "faulty: left out",
        [MD_FILLING] = "not filled yet: left out",
        [MD_REPLACES] = "to take another one's place, not filled yet: left out",
        [MD_STRANGER] = "of another array",
    };
    return (unsigned)standing < ARRAY_LENGTH(names) ? names[standing] : "unknown";
}

void md_level_name(int32_t level, char *out, size_t out_len)
{
    if (level >= 0)
        text_format(out, out_len, "raid%d", level);
    else
        text_format(out, out_len, level == MD_LEVEL_LINEAR ? "linear" : "level %d", level);
}

/* --- who is current --- */

static const struct md_superblock *newest_of(const struct md_disk *disks, unsigned count)
{
    const struct md_superblock *newest = disks[0].sb;
    for (unsigned i = 1; i < count; i++)
        if (disks[i].sb->events > newest->events)
            newest = disks[i].sb;
    return newest;
}

static enum md_standing standing_of(const struct md_superblock *sb, const struct md_superblock *newest)
{
    unsigned role = md_role(newest, sb->number);
    if (!uuid_equal(&sb->set, &newest->set))
        return MD_STRANGER;
    if (role == MD_ROLE_SPARE || role == MD_ROLE_JOURNAL)
        return MD_IS_SPARE;
    if (role >= newest->disks)
        return MD_IS_FAULTY;
    if (sb->events != newest->events)
        return MD_STALE;
    if (sb->features & MD_REPLACEMENT)
        return MD_REPLACES;
    return sb->features & MD_RECOVERING ? MD_FILLING : MD_CURRENT;
}

/* Who is in the array, and where. */
static bool same_table(const struct md_superblock *a, const struct md_superblock *b)
{
    for (uint32_t number = 0; number < MD_ROLES_MAX; number++) {
        unsigned one = md_role(a, number), other = md_role(b, number);
        if (one != other && (one < a->disks || other < b->disks))
            return false;
    }
    return true;
}

static bool same_shape(const struct md_superblock *a, const struct md_superblock *b)
{
    return a->level == b->level && a->layout == b->layout && a->disks == b->disks && a->chunk == b->chunk &&
           (a->size == b->size || a->level == 0);
}

static bool find_standings(const struct md_disk *disks, unsigned count, struct md_set *set)
{
    const struct md_superblock *newest = newest_of(disks, count);
    set->sb = newest;
    for (unsigned i = 0; i < count; i++) {
        const struct md_superblock *sb = disks[i].sb;
        set->standing[i] = standing_of(sb, newest);
        if (set->standing[i] == MD_STRANGER)
            return REFUSE(set, "disk %s belongs to another md array (%s)", disks[i].name, sb->name);
        if (sb->events != newest->events)
            continue;
        if (!same_table(sb, newest))
            return REFUSE(set, "disk %s and others do not agree about who is in the array: they ran apart",
                          disks[i].name);
        if (!same_shape(sb, newest))
            return REFUSE(set, "disk %s and others do not agree about the shape of the array", disks[i].name);
    }
    return true;
}

/* --- may it be read as it stands --- */

static bool check_features(const struct md_superblock *sb, struct md_set *set)
{
    static const struct {
        uint32_t features;
        const char *why;
    } obstacles[] = {
        {MD_RESHAPING | MD_BACKWARDS | MD_NEW_OFFSET, "it is being reshaped: let mdadm bring that to its end first"},
        {MD_JOURNALLED, "it has a journal device, which may hold what is nowhere else: remove it with mdadm first"},
        {MD_PPL | MD_PPLS, "it has a partial parity log: change its consistency policy with mdadm first"},
        {MD_CLUSTERED, "it is shared with other machines"},
        {~(uint32_t)(2 * MD_RAID0_LAYOUT - 1), "it has features that are not known here"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(obstacles); i++)
        if (sb->features & obstacles[i].features)
            return REFUSE(set, "%s", obstacles[i].why);
    if (!sb->clean && sb->level != 0)
        return REFUSE(set, "it was not stopped cleanly, or is being resynchronised: assemble it with mdadm, wait for "
                           "the resync, and stop it");
    return true;
}

static bool check_member(const struct md_disk *disk, struct md_set *set)
{
    const struct md_superblock *sb = disk->sb;
    uint64_t used = sb->level == 0 ? sb->data_bytes : sb->size;
    if (disk->trouble != NULL)
        return REFUSE(set, "disk %s: %s", disk->name, disk->trouble);
    if (!check_features(sb, set))
        return false;
    if (used > sb->data_bytes || sb->data_start + used > disk->bytes)
        return REFUSE(set, "disk %s is smaller than its part of the array", disk->name);
    if (sb->data_start % 4096 != 0)
        return REFUSE(set, "the data on disk %s does not begin at a multiple of 4 KiB", disk->name);
    return true;
}

/* --- its shape --- */

static bool parity_spec(const struct md_superblock *sb, struct layout_spec *spec, struct md_set *set)
{
    spec->level = sb->level == 6 ? RAID_6 : RAID_5;
    spec->rotation = ROTATE_PARITY_LAST;
    if (sb->level == 4)
        return true;
    if (sb->layout > ROTATE_PARITY_LAST) /* up to there md's numbers are ours */
        return REFUSE(set, "its parity layout (md's number %u) is not known here", sb->layout);
    spec->rotation = (enum raid_rotation)sb->layout;
    return true;
}

static bool near_spec(const struct md_superblock *sb, struct layout_spec *spec, struct md_set *set)
{
    enum { ONE_FAR_COPY = 1 << 8 };
    unsigned copies = sb->layout & 0xff;
    if ((sb->layout & ~0xffu) != ONE_FAR_COPY)
        return REFUSE(set, "its copies are laid out far or offset: only near copies can be read");
    if (copies < 2 || copies > sb->disks)
        return REFUSE(set, "%u copies on %u disks are not possible", copies, sb->disks);
    spec->level = copies == sb->disks ? RAID_1 : sb->disks % copies == 0 ? RAID_10 : RAID_1E;
    spec->copies = copies;
    return true;
}

static bool spec_of(const struct md_superblock *sb, struct layout_spec *spec, struct md_set *set)
{
    char name[24];
    *spec = (struct layout_spec){.members = sb->disks, .chunk = (uint32_t)MIN(sb->chunk, (uint64_t)UINT32_MAX)};
    switch (sb->level) {
    case 0:
        spec->level = sb->disks == 1 ? RAID_JBOD : RAID_0;
        return true;
    case 1:
        spec->level = sb->disks == 1 ? RAID_JBOD : RAID_1;
        spec->chunk = MIRROR_CHUNK;
        return true;
    case 4:
    case 5:
    case 6:
        if (!parity_spec(sb, spec, set))
            return false;
        if (spec->level == RAID_5 && sb->disks == 2) /* the parity of one chunk is that chunk */
            spec->level = RAID_1;
        return true;
    case 10:
        return near_spec(sb, spec, set);
    default:
        md_level_name(sb->level, name, sizeof name);
        return REFUSE(set, "md's %s cannot be read here", name);
    }
}

/* RAID 0 is as long as its disks, which may differ in md, and then are cut in zones. */
static bool stripe_extent(const struct md_disk *disks, struct md_set *set, uint64_t *extent)
{
    uint64_t chunk = MAX(set->sb->chunk, 1);
    for (unsigned slot = 0; slot < set->sb->disks; slot++) {
        int disk = set->disk_of_slot[slot];
        uint64_t bytes = disk >= 0 ? round_down(disks[disk].sb->data_bytes, chunk) : *extent;
        if (*extent != 0 && bytes != *extent)
            return REFUSE(set, "its disks have different sizes (%llu and %llu bytes): that is not possible here",
                          (unsigned long long)*extent, (unsigned long long)bytes);
        *extent = bytes;
    }
    return true;
}

static bool lay_out(const struct md_disk *disks, struct md_set *set)
{
    const struct md_superblock *sb = set->sb;
    struct layout_spec spec;
    uint64_t extent = 0, extents[RAID_MEMBERS_MAX];
    if (!spec_of(sb, &spec, set))
        return false;
    if (!is_power_of_two(spec.chunk))
        return REFUSE(set, "its chunk of %llu bytes is no power of two", (unsigned long long)sb->chunk);
    if (sb->level == 0 && !stripe_extent(disks, set, &extent))
        return false;
    if (sb->level == 1)
        extent = round_up(sb->size, MIRROR_CHUNK);
    else if (sb->level != 0)
        extent = sb->size;
    for (unsigned slot = 0; slot < sb->disks; slot++)
        extents[slot] = extent;
    const char *wrong = layout_init(&set->layout, &spec, extents);
    if (wrong != NULL)
        return REFUSE(set, "it cannot be read here: %s", wrong);
    set->size = sb->level == 1 ? sb->size : set->layout.rows * set->layout.row_data;
    return true;
}

/* --- slots --- */

static bool fill_slots(const struct md_disk *disks, unsigned count, struct md_set *set)
{
    for (unsigned slot = 0; slot < RAID_MEMBERS_MAX; slot++)
        set->disk_of_slot[slot] = -1;
    if (set->sb->disks == 0 || set->sb->disks > RAID_MEMBERS_MAX)
        return REFUSE(set, "it has %u disks, and 1 to %d are possible", set->sb->disks, RAID_MEMBERS_MAX);
    for (unsigned i = 0; i < count; i++) {
        if (set->standing[i] != MD_CURRENT)
            continue;
        unsigned slot = md_role(set->sb, disks[i].sb->number);
        if (set->disk_of_slot[slot] >= 0)
            return REFUSE(set, "disks %s and %s both say that they are in slot %u: one is a copy",
                          disks[set->disk_of_slot[slot]].name, disks[i].name, slot);
        set->disk_of_slot[slot] = (int)i;
        if (!check_member(&disks[i], set))
            return false;
    }
    return true;
}

static uint64_t lost_slots(struct md_set *set, char *slots, size_t slots_len)
{
    uint64_t lost = 0;
    slots[0] = '\0';
    set->missing = 0;
    for (unsigned slot = 0; slot < set->sb->disks; slot++)
        if (set->disk_of_slot[slot] < 0) {
            size_t used = strlen(slots);
            text_format(slots + used, slots_len - used, "%s%u", used > 0 ? ", " : "", slot);
            lost |= UINT64_C(1) << slot;
            set->missing++;
        }
    return lost;
}

/* Bits stay set while a member is away. With all there, a clean array has none. */
static bool check_bitmaps(const struct md_disk *disks, struct md_set *set)
{
    for (unsigned slot = 0; slot < set->sb->disks && set->missing == 0; slot++) {
        const struct md_disk *disk = &disks[set->disk_of_slot[slot]];
        if (disk->suspect > 0)
            return REFUSE(
                set,
                "the bitmap on disk %s says that %llu parts of the array may not be in sync: assemble it with "
                "mdadm, wait for the resync, and stop it",
                disk->name, (unsigned long long)disk->suspect);
    }
    return true;
}

static bool decide(const struct md_disk *disks, unsigned count, struct md_set *set)
{
    char slots[200], level[24];
    if (!find_standings(disks, count, set) || !check_features(set->sb, set) || !fill_slots(disks, count, set) ||
        !lay_out(disks, set))
        return false;
    uint64_t lost = lost_slots(set, slots, sizeof slots);
    md_level_name(set->sb->level, level, sizeof level);
    if (!layout_survives(&set->layout, lost))
        return REFUSE(set, "%s of %u disks that lacks more than it bears: no current disk for slots %s", level,
                      set->sb->disks, slots);
    if (!check_bitmaps(disks, set))
        return false;
    text_format(set->reason, sizeof set->reason, "%s of %u disks%s%s", level, set->sb->disks,
                set->missing > 0 ? ", degraded: no current disk for slots " : "", slots);
    return true;
}

void md_decide(const struct md_disk *disks, unsigned count, struct md_set *set)
{
    ASSERT(count > 0 && count <= MD_DISKS_MAX);
    memset(set, 0, sizeof *set);
    set->usable = decide(disks, count, set);
}
