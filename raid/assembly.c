/*
 * Assembly: see raid/assembly.h for the rules.
 *
 *     disks --> groups by array --> clones put aside --> the winner among their histories --> every disk's role
 *           --> which volumes are lost --> verdict --> sentence
 *
 * Each arrow is one function from facts to facts (struct disk_group); the last one is raid/assembly_reason.c.
 */
#include "raid/assembly.h"

#include <string.h>

#include "raid/assembly_history.h"
#include "raid/assembly_impl.h"

static uint64_t bit(unsigned n)
{
    return 1ull << n;
}

/* --- clones --- */

static int slot_of(const struct sb_array *array, const struct uuid *member)
{
    for (unsigned i = 0; i < array->members_count; i++)
        if (uuid_equal(&array->members[i].uuid, member))
            return (int)i;
    return -1;
}

/* Is it the disk that its own label was written for? */
static bool is_recorded_disk(const struct assembly_disk *disk)
{
    int slot = slot_of(&disk->label->array, &disk->label->member);
    const char *recorded = slot < 0 ? "" : disk->label->array.members[slot].identity;
    return recorded[0] != '\0' && disk->identity != NULL && strcmp(recorded, disk->identity) == 0;
}

/* Disks first .. end-1 of the group claim to be the same member: one of them is, if only one is the recorded disk. */
static void judge_clones(struct disk_group *group, unsigned first, unsigned end)
{
    unsigned matches = 0;
    for (unsigned i = first; i < end; i++)
        matches += is_recorded_disk(group->of[i].disk);
    if (matches != 1)
        group->clones_unclear = true;
    for (unsigned i = first; i < end; i++)
        if (matches != 1 || !is_recorded_disk(group->of[i].disk))
            group->of[i].role = DISK_CLONE;
}

static void find_clones(struct disk_group *group)
{
    for (unsigned first = 0, end; first < group->count; first = end) {
        const struct uuid *member = &group->of[first].disk->label->member;
        for (end = first + 1; end < group->count; end++)
            if (!uuid_equal(member, &group->of[end].disk->label->member))
                break;
        if (end - first > 1)
            judge_clones(group, first, end);
    }
}

/* --- the winner --- */

static const struct sb_array *array_at(const struct disk_group *group, unsigned position)
{
    return &group->of[position].disk->label->array;
}

static void find_ends(struct disk_group *group)
{
    const struct sb_array *arrays[ASSEMBLY_DISKS_MAX];
    unsigned positions[ASSEMBLY_DISKS_MAX], count = 0;
    for (unsigned i = 0; i < group->count; i++) {
        if (group->of[i].role == DISK_CLONE && !group->clones_unclear)
            continue;
        arrays[count] = array_at(group, i);
        positions[count++] = i;
    }
    group->ends_count = history_ends(arrays, count, group->ends);
    for (unsigned i = 0; i < group->ends_count; i++)
        group->ends[i] = positions[group->ends[i]];
}

static unsigned highest_end(const struct disk_group *group)
{
    unsigned best = group->ends[0];
    for (unsigned i = 1; i < group->ends_count; i++)
        if (array_at(group, group->ends[i])->generation > array_at(group, best)->generation)
            best = group->ends[i];
    return best;
}

/* Is the member's point in history part of this end's? */
static bool end_has_member(const struct disk_group *group, unsigned end, const struct uuid *member)
{
    for (unsigned i = 0; i < group->count; i++)
        if (group->of[i].role != DISK_CLONE && uuid_equal(&group->of[i].disk->label->member, member) &&
            history_contains(array_at(group, end), array_at(group, i)))
            return true;
    return false;
}

/* The end that the options choose; false: none, or no single one. */
static bool choose_end(const struct disk_group *group, const struct assembly_options *options, unsigned *chosen)
{
    unsigned matches = 0;
    for (unsigned i = 0; !uuid_is_nil(&options->prefer) && i < group->ends_count; i++) {
        if (end_has_member(group, group->ends[i], &options->prefer)) {
            *chosen = group->ends[i];
            matches++;
        }
    }
    if (matches != 0 || !options->force)
        return matches == 1;
    *chosen = highest_end(group);
    return true;
}

/* False: a split brain in which nobody chose. */
static bool find_winner(struct disk_group *group, const struct assembly_options *options, struct assembly *out)
{
    unsigned winner = highest_end(group);
    bool chosen = group->ends_count == 1 || choose_end(group, options, &winner);
    out->array = *array_at(group, winner);
    for (unsigned i = 0; chosen && i < group->ends_count; i++)
        if (group->ends[i] != winner)
            history_settle(&out->array, array_at(group, group->ends[i]));
    for (unsigned slot = 0; group->ends_count > 1 && slot < out->array.members_count; slot++)
        out->array.members[slot].missed_from = 0; /* nobody is caught up across a split brain */
    return chosen;
}

/* --- roles --- */

/*
 * Its tail is blank, though a member has a label there before it has one at its head (raid/label.c, L3). If the member is
 * filled from end to end and has not got far, nothing that was on it counts.
 */
static bool is_cut(const struct sb_array *winner, int slot, const struct sb_label *label)
{
    const struct sb_member *member = &winner->members[slot];
    bool empty = member->state == SB_REBUILDING && !member->filling && member->missed_from == 0;
    return label->tail_blank && !empty;
}

static enum disk_role role_of(const struct sb_array *winner, const struct assembly_disk *disk)
{
    const struct sb_label *label = disk->label;
    int slot = slot_of(winner, &label->member);
    if (slot < 0)
        return DISK_FOREIGN;
    enum sb_member_state state = winner->members[slot].state;
    if (state == SB_FAILED)
        return DISK_FAILED;
    if (state == SB_ABSENT)
        return DISK_APART;
    if (history_is_current(winner, &label->array)) {
        if (disk->unusable != NULL)
            return DISK_UNUSABLE;
        return is_cut(winner, slot, label) ? DISK_CUT : DISK_CURRENT;
    }
    bool same = uuid_equal(&history_present(winner)->id, &history_present(&label->array)->id);
    return same ? DISK_OLD : DISK_APART;
}

static void give_roles(struct disk_group *group, struct assembly *out)
{
    for (unsigned i = 0; i < group->count; i++) {
        const struct sb_label *label = group->of[i].disk->label;
        if (group->of[i].role != DISK_CLONE)
            group->of[i].role = role_of(&out->array, group->of[i].disk);
        if (group->of[i].role != DISK_CURRENT) {
            out->stale_of_disk[group->of[i].index] = group->of[i].role != DISK_UNUSABLE;
            continue;
        }
        int slot = slot_of(&out->array, &label->member);
        out->disk_of_slot[slot] = (int)group->of[i].index;
        out->place_of_slot[slot] = label->place;
    }
    for (unsigned slot = 0; slot < out->array.members_count; slot++) {
        bool active = out->array.members[slot].state == SB_ACTIVE;
        if (!active)
            group->recorded |= bit(slot);
        if (!active || out->disk_of_slot[slot] < 0)
            group->lost |= bit(slot);
    }
}

/* Of the disks that were away, those that may come back by themselves. */
static void find_returned(struct disk_group *group, struct assembly *out)
{
    for (unsigned i = 0; i < group->count; i++) {
        const struct assembly_disk *disk = group->of[i].disk;
        int slot = slot_of(&out->array, &disk->label->member);
        if (slot < 0 || group->of[i].role == DISK_CLONE || disk->unusable != NULL || out->disk_of_slot[slot] >= 0)
            continue;
        const struct sb_member *member = &out->array.members[slot];
        bool away = member->state == SB_FAILED || member->state == SB_ABSENT;
        if (away && member->vanished &&
            history_can_catch_up(&out->array, (unsigned)slot, disk->label, disk->identity)) {
            out->returned_of_slot[slot] = (int)group->of[i].index;
            group->of[i].returned = true;
        }
    }
}

/* What all who go on together have. */
static void raise_committed(const struct disk_group *group, struct sb_array *array)
{
    uint64_t lowest = array->generation;
    for (unsigned i = 0; i < group->count; i++)
        if (group->of[i].role == DISK_CURRENT)
            lowest = MIN(lowest, array_at(group, i)->generation);
    array->committed = MAX(array->committed, lowest);
}

/* --- volumes and the verdict --- */

/* The array's slots that a volume lies on. */
static uint64_t volume_slots(const struct sb_volume *volume)
{
    if (volume->spec.level == RAID_JBOD)
        return bit(volume->slot);
    return volume->spec.members >= 64 ? UINT64_MAX : bit(volume->spec.members) - 1;
}

static bool survives(const struct sb_volume *volume, const struct layout *layout, uint64_t lost)
{
    lost &= volume_slots(volume);
    return layout_survives(layout, volume->spec.level == RAID_JBOD ? lost >> volume->slot : lost);
}

/*
 * May parity be behind the data, so that a lost chunk cannot be computed? Not clean is what a crash leaves, and what a
 * clean stop leaves while some row waits for its resync.
 */
static bool is_suspect(const struct disk_group *group, const struct sb_array *array, const struct sb_volume *volume,
                       const struct layout *layout)
{
    bool logged = volume->consistency != SB_RESYNC && volume->consistency != SB_BITMAP;
    return layout->parity && !logged && !array->clean && (group->lost & volume_slots(volume)) != 0;
}

/* True: some volume is lost only because members are away that may come back. */
static bool judge_volumes(struct disk_group *group, const struct sb_array *array)
{
    bool awaited = false;
    for (unsigned i = 0; i < array->volumes_count; i++) {
        const struct sb_volume *volume = &array->volumes[i];
        struct layout layout;
        bool possible = superblock_layout(array, volume, &layout);
        if (!possible || !survives(volume, &layout, group->lost)) {
            group->lost_volumes |= bit(i);
            awaited = awaited || (possible && survives(volume, &layout, group->recorded));
        } else if (is_suspect(group, array, volume, &layout)) {
            group->suspects |= bit(i);
        }
    }
    return awaited;
}

static enum assembly_verdict judge(struct disk_group *group, const struct sb_array *array, bool force)
{
    bool awaited = judge_volumes(group, array);
    unsigned lost_count = (unsigned)__builtin_popcountll(group->lost_volumes);
    if (group->lost == 0)
        return ASSEMBLY_COMPLETE;
    if ((awaited && !force) || (lost_count > 0 && lost_count == array->volumes_count))
        return ASSEMBLY_WAITING;
    return group->suspects != 0 && !force ? ASSEMBLY_DIRTY_DEGRADED : ASSEMBLY_DEGRADED;
}

static void decide(struct disk_group *group, const struct assembly_options *options, struct assembly *out)
{
    find_clones(group);
    find_ends(group);
    bool chosen = find_winner(group, options, out);
    give_roles(group, out);
    find_returned(group, out);
    raise_committed(group, &out->array);
    out->verdict = judge(group, &out->array, options->force);
    if (!chosen)
        out->verdict = ASSEMBLY_SPLIT;
    if (group->clones_unclear)
        out->verdict = ASSEMBLY_CLONE;
    out->startable = out->verdict == ASSEMBLY_COMPLETE || out->verdict == ASSEMBLY_DEGRADED;
    assembly_explain(group, out);
}

/* --- groups --- */

static int uuid_compare(const struct uuid *a, const struct uuid *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes);
}

/* By array, then member, then name. */
static bool comes_before(const struct assembly_disk *a, const struct assembly_disk *b)
{
    int order = uuid_compare(&a->label->array.uuid, &b->label->array.uuid);
    if (order == 0)
        order = uuid_compare(&a->label->member, &b->label->member);
    return order != 0 ? order < 0 : strcmp(a->name, b->name) < 0;
}

static void sort(const struct assembly_disk *disks, unsigned count, unsigned *order)
{
    for (unsigned i = 0; i < count; i++) {
        unsigned at = i;
        for (; at > 0 && comes_before(&disks[i], &disks[order[at - 1]]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

static void assembly_clear(struct assembly *out)
{
    *out = (struct assembly){0};
    for (unsigned slot = 0; slot < RAID_MEMBERS_MAX; slot++)
        out->disk_of_slot[slot] = out->returned_of_slot[slot] = -1;
}

unsigned assembly_decide(const struct assembly_disk *disks, unsigned count, const struct assembly_options *options,
                         struct assembly *out, unsigned max)
{
    ASSERT(count <= ASSEMBLY_DISKS_MAX);
    unsigned order[ASSEMBLY_DISKS_MAX], groups = 0;
    sort(disks, count, order);
    for (unsigned first = 0, end; first < count; first = end, groups++) {
        struct disk_group group = {0};
        const struct uuid *array = &disks[order[first]].label->array.uuid;
        for (end = first; end < count && uuid_equal(array, &disks[order[end]].label->array.uuid); end++) {
            group.of[group.count].disk = &disks[order[end]];
            group.of[group.count++].index = order[end];
        }
        if (groups >= max)
            continue;
        assembly_clear(&out[groups]);
        decide(&group, options, &out[groups]);
    }
    return groups;
}

const char *assembly_verdict_name(enum assembly_verdict verdict)
{
    static const char *const names[] = {"complete", "degraded", "waiting", "dirty-degraded", "split-brain", "clone"};
    return (unsigned)verdict < ARRAY_LENGTH(names) ? names[verdict] : "unknown";
}
