/*
 * Histories: see raid/assembly_history.h.
 *
 *                  F1 since 8            F2 since 20
 *     F0 ----5----8-----------12--------20------24-->      a member that left at 5 with F0 is contained
 *                  \
 *                   \---9--->                              one that went on to 9 with F0 ran apart
 *
 * A label may stand exactly at the generation at which the next fork begins and still be harmless: its last generation
 * was torn, it reached this member but not those that ran on. Then it was not acted upon, as all who are live must have
 * it first. That holds only if those who ran on were live in its own table: if it had written one of them off, it may
 * have gone on alone.
 */
#include "raid/assembly_history.h"

#include <string.h>

const struct sb_fork *history_present(const struct sb_array *array)
{
    return &array->forks[array->forks_count - 1];
}

/* Index of the line with this fork; -1: none. */
static int line_of(const struct sb_array *array, const struct uuid *fork)
{
    for (unsigned i = array->forks_count; i-- > 0;)
        if (uuid_equal(&array->forks[i].id, fork))
            return (int)i;
    return -1;
}

static bool is_live(const struct sb_member *member)
{
    return member->state == SB_ACTIVE || member->state == SB_REBUILDING;
}

/* Has `old` written off a member that lives in `whole`? */
static bool wrote_off(const struct sb_array *old, const struct sb_array *whole)
{
    for (unsigned i = 0; i < old->members_count; i++)
        for (unsigned j = 0; j < whole->members_count; j++)
            if (uuid_equal(&old->members[i].uuid, &whole->members[j].uuid) && !is_live(&old->members[i]) &&
                is_live(&whole->members[j]))
                return true;
    return false;
}

bool history_contains(const struct sb_array *whole, const struct sb_array *old)
{
    int line = line_of(whole, &history_present(old)->id);
    if (line < 0)
        return false;
    if ((unsigned)line + 1 == whole->forks_count)
        return old->generation <= whole->generation;
    if (whole->forks[line].settled)
        return true;
    uint64_t next = whole->forks[line + 1].generation;
    return old->generation < next || (old->generation == next && !wrote_off(old, whole));
}

bool history_is_current(const struct sb_array *winner, const struct sb_array *label)
{
    int line = line_of(winner, &history_present(label)->id), last = (int)winner->forks_count - 1;
    if (label->generation + 1 < winner->generation)
        return false;
    if (line == last)
        return true;
    /* The fork itself was torn: whoever stands right before it has missed nothing yet. */
    int before = last - 1;
    while (before >= 0 && winner->forks[before].settled)
        before--;
    return line >= 0 && line == before && label->generation < winner->generation &&
           winner->generation == winner->forks[last].generation;
}

/* Does some other one go beyond it, or is it the same as an earlier one? */
static bool is_covered(const struct sb_array *const *arrays, unsigned count, unsigned index)
{
    for (unsigned i = 0; i < count; i++) {
        if (i == index || !history_contains(arrays[i], arrays[index]))
            continue;
        if (i < index || !history_contains(arrays[index], arrays[i]))
            return true;
    }
    return false;
}

unsigned history_ends(const struct sb_array *const *arrays, unsigned count, unsigned *ends)
{
    unsigned found = 0;
    for (unsigned i = 0; i < count; i++)
        if (!is_covered(arrays, count, i))
            ends[found++] = i;
    return found;
}

/* A line before the present one; the oldest makes room. */
static void insert_settled(struct sb_array *array, const struct uuid *fork)
{
    if (array->forks_count == SB_FORKS_MAX) {
        memmove(&array->forks[0], &array->forks[1], (SB_FORKS_MAX - 1) * sizeof array->forks[0]);
        array->forks_count--;
    }
    struct sb_fork *last = &array->forks[array->forks_count - 1];
    last[1] = last[0];
    last[0] = (struct sb_fork){*fork, last[1].generation, true};
    array->forks_count++;
}

/* All that the loser went through and the winner did not; and where they parted, if the loser went on under that. */
void history_settle(struct sb_array *winner, const struct sb_array *loser)
{
    for (unsigned i = 0; i < loser->forks_count; i++)
        if (line_of(winner, &loser->forks[i].id) < 0)
            insert_settled(winner, &loser->forks[i].id);
    int line = line_of(winner, &history_present(loser)->id);
    if (line >= 0 && (unsigned)line + 1 < winner->forks_count)
        winner->forks[line].settled = true;
}
