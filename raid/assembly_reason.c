/*
 * The sentence of an assembly: what is the matter, with which disks, and what can be done. Pieces are appended to
 * out->reason and cut at its end.
 */
#include <string.h>

#include "core/log.h"
#include "raid/assembly_history.h"
#include "raid/assembly_impl.h"

#define SAY(out, ...)                                                                                                  \
    text_format((out)->reason + strlen((out)->reason), sizeof(out)->reason - strlen((out)->reason), __VA_ARGS__)

/* "2026-11-30 11:20": days to dates by counting years from March, so that the leap day is the last. */
static void date_format(uint64_t seconds, char *text, size_t size)
{
    uint64_t days = seconds / 86400 + 719468; /* since 0000-03-01 */
    uint64_t era = days / 146097, day = days % 146097;
    uint64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    day -= 365 * year + year / 4 - year / 100;
    uint64_t month = (5 * day + 2) / 153;
    day -= (153 * month + 2) / 5;
    year += era * 400 + (month >= 10);
    month = month < 10 ? month + 3 : month - 9;
    text_format(text, size, "%04u-%02u-%02u %02u:%02u", (unsigned)year, (unsigned)month, (unsigned)day + 1,
                (unsigned)(seconds / 3600 % 24), (unsigned)(seconds / 60 % 60));
}

/* "and" before the last, commas between the others. */
static const char *separator(unsigned said, bool last)
{
    if (said == 0)
        return "";
    return last ? " and " : ", ";
}

/* "slot 1 (disk1) and slot 2 (disk2)" */
static void say_slots(struct assembly *out, uint64_t slots)
{
    for (unsigned slot = 0, said = 0; slots != 0; slot++, slots >>= 1) {
        if ((slots & 1) == 0)
            continue;
        const char *identity = out->array.members[slot].identity;
        SAY(out, "%sslot %u (%s)", separator(said++, slots == 1), slot, identity[0] != '\0' ? identity : "unknown");
    }
}

/* "volume v0" or "volumes v0 and v1" */
static void say_volumes(struct assembly *out, uint64_t volumes)
{
    SAY(out, "%s", (volumes & (volumes - 1)) != 0 ? "volumes " : "volume ");
    for (unsigned i = 0, said = 0; volumes != 0; i++, volumes >>= 1)
        if ((volumes & 1) != 0)
            SAY(out, "%s%s", separator(said++, volumes == 1), out->array.volumes[i].name);
}

/* Slots of the table in this state, or awaited ones. */
static uint64_t slots_in(const struct assembly *out, enum sb_member_state state)
{
    uint64_t slots = 0;
    for (unsigned slot = 0; slot < out->array.members_count; slot++)
        if (out->array.members[slot].state == state)
            slots |= 1ull << slot;
    return slots;
}

static void say_slots_that(struct assembly *out, uint64_t slots, const char *one, const char *several)
{
    if (slots == 0)
        return;
    SAY(out, "; ");
    say_slots(out, slots);
    SAY(out, " %s", (slots & (slots - 1)) != 0 ? several : one);
}

static void say_members(const struct disk_group *group, struct assembly *out)
{
    say_slots_that(out, group->lost & ~group->recorded, "is missing", "are missing");
    say_slots_that(out, slots_in(out, SB_FAILED), "has failed", "have failed");
    say_slots_that(out, slots_in(out, SB_ABSENT), "was given up", "were given up");
    say_slots_that(out, slots_in(out, SB_REBUILDING), "was not rebuilt to the end", "were not rebuilt to the end");
}

static void say_disks(const struct disk_group *group, struct assembly *out)
{
    static const char *const texts[] = {
        [DISK_CUT] = "has lost what stood at its end, as if it had been cut short: it needs a rebuild",
        [DISK_CLONE] = "is a copy of another member and is left alone",
        [DISK_FOREIGN] = "is no member any more, as its place was taken by another",
        [DISK_FAILED] = "had failed and needs a rebuild",
        [DISK_APART] = "is stale: the array ran on without it",
        [DISK_OLD] = "is stale: it missed changes",
    };
    if (group->ends_count > 1)
        SAY(out, "; of the histories of its members, which ran apart, this one was chosen");
    for (unsigned i = 0; i < group->count; i++) {
        const char *name = group->of[i].disk->name;
        if (group->of[i].role == DISK_UNUSABLE)
            SAY(out, "; %s", group->of[i].disk->unusable);
        else if (group->of[i].returned)
            SAY(out, "; disk %s is back and is to be caught up", name);
        else if (group->of[i].role != DISK_CURRENT)
            SAY(out, "; disk %s %s", name, texts[group->of[i].role]);
    }
}

static void say_loss(const struct disk_group *group, struct assembly *out)
{
    if (group->lost_volumes == 0)
        return;
    SAY(out, "; ");
    say_volumes(out, group->lost_volumes);
    SAY(out, " cannot be served");
}

static void say_history(const struct disk_group *group, unsigned end, struct assembly *out)
{
    const struct sb_array *array = &group->of[end].disk->label->array;
    char date[32];
    date_format(array->updated_s, date, sizeof date);
    unsigned said = 0;
    for (unsigned i = 0; i < group->count; i++)
        if (uuid_equal(&history_present(&group->of[i].disk->label->array)->id, &history_present(array)->id) &&
            history_contains(array, &group->of[i].disk->label->array))
            SAY(out, "%s%s", said++ > 0 ? ", " : "", group->of[i].disk->name);
    SAY(out, " ran from generation %llu to %llu, last changed %s UTC",
        (unsigned long long)history_present(array)->generation, (unsigned long long)array->generation, date);
}

/* Does one lie before all that another one remembers of its history? */
static bool is_very_old(const struct disk_group *group)
{
    for (unsigned i = 0; i < group->ends_count; i++)
        for (unsigned j = 0; j < group->ends_count; j++)
            if (history_forgot(&group->of[group->ends[i]].disk->label->array,
                               &group->of[group->ends[j]].disk->label->array))
                return true;
    return false;
}

static void explain_split(const struct disk_group *group, struct assembly *out)
{
    SAY(out, "array %s: its members ran apart from each other: ", out->array.name);
    for (unsigned i = 0; i < group->ends_count; i++) {
        SAY(out, "%s", i > 0 ? "; " : "");
        say_history(group, group->ends[i], out);
    }
    SAY(out,
        ". Each may hold acknowledged writes. corbelctl array assemble %s --prefer DISK takes the one that the disk "
        "belongs to, apply --force the one with the highest generation; what the others hold is given up",
        out->array.name);
    if (is_very_old(group))
        SAY(out, ". One of them may be just a disk that was away for very long: then take it out, or erase it");
}

static void explain_clone(const struct disk_group *group, struct assembly *out)
{
    SAY(out, "array %s: the same member stands on more than one disk:", out->array.name);
    unsigned said = 0;
    for (unsigned i = 0; i < group->count; i++)
        if (group->of[i].role == DISK_CLONE)
            SAY(out, "%s %s", said++ > 0 ? "," : "", group->of[i].disk->name);
    SAY(out, ". One may be a copy of the other, or they are two ways to one disk: leave only the right one");
}

static void explain_waiting(const struct disk_group *group, struct assembly *out)
{
    uint64_t awaited = group->lost & ~group->recorded;
    SAY(out, "array %s waits for ", out->array.name);
    say_slots(out, awaited != 0 ? awaited : group->lost);
    say_loss(group, out);
    SAY(out, " without");
    say_disks(group, out);
}

static void explain_dirty(const struct disk_group *group, struct assembly *out)
{
    SAY(out, "array %s was not stopped cleanly and is degraded: on ", out->array.name);
    say_volumes(out, group->suspects);
    SAY(out, " acknowledged writes may be missing or damaged where the lost member held them; wait for the members, or "
             "start it with apply --force");
    say_members(group, out);
    say_disks(group, out);
}

static void explain_degraded(const struct disk_group *group, struct assembly *out)
{
    SAY(out, "array %s is degraded", out->array.name);
    say_members(group, out);
    say_loss(group, out);
    if (group->suspects != 0) {
        SAY(out, "; started by force after a crash, so blocks of ");
        say_volumes(out, group->suspects);
        SAY(out, " that were being written are suspect");
    }
    say_disks(group, out);
}

void assembly_explain(const struct disk_group *group, struct assembly *out)
{
    switch (out->verdict) {
    case ASSEMBLY_COMPLETE:
        SAY(out, "array %s: all %u members are here", out->array.name, out->array.members_count);
        say_disks(group, out);
        break;
    case ASSEMBLY_DEGRADED:
        explain_degraded(group, out);
        break;
    case ASSEMBLY_WAITING:
        explain_waiting(group, out);
        break;
    case ASSEMBLY_DIRTY_DEGRADED:
        explain_dirty(group, out);
        break;
    case ASSEMBLY_SPLIT:
        explain_split(group, out);
        break;
    case ASSEMBLY_CLONE:
        explain_clone(group, out);
        break;
    }
}
