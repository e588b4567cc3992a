/*
 * Histories: see raid/assembly_history.h.
 *
 *                  F1 since 8            F2 since 20
 *     F0 ----5----8-----------12--------20------24-->      a member that left at 5 with F0 is contained
 *                  \
 *                   \---9--->                              one that went on to 9 with F0 ran apart
 *
 * A label may stand at the generation at which the next fork begins, or beyond it, and still be harmless: its last
 * generations were torn (one, or one more at each of several openings that were cut off), they reached this member but
 * not those that ran on. Then none was acted upon, as all who are live must have it first; and it says itself which
 * generation was the last that all had. That holds only if those who ran on were live in its own table: if it had
 * written one of them off, it may have gone on alone. Each line names a witness of that: one of those who ran on, under
 * the identity that it had then.
 *
 * A label may also stand under a fork that nobody else knows: drawn for a start or a loss, it reached this member and was
 * cut off, and those who went on without it did so from the line before, under a fork of their own.
 *
 *     F0 ----5-----8---- F1 since 9 ----12--->     those who ran on
 *                   \
 *                    \-- F2 since 9                torn: on one member, which was away when F1 was drawn
 *
 * Call d the first generation in which the two differ (here 9). F2 is no history of its own if some member M is live in
 * both tables under one identity, and generation d of the others stood on all who were live (their label says so, in
 * `committed`): then nothing was ever acted upon under F2. Proof. An identity that was written off never is live again,
 * so M was live in both histories from where they part. Had F2 been acted upon, M would have had it on its disk, since
 * that stands on all who are live first, or writes off whom it does not reach. And M had d of F1. One of the two came
 * first; say F2. Who has M at a start, and goes on with a history that does not know F2, calls M apart
 * (history_is_current) and writes it off with its first generation, with a choice or without one. So M did not come to
 * F1 alive. Nor from F1 to F2, by the same words. Two halves that both served have no such M.
 *
 * It rests on d of F1 being on M. A generation of those who ran on may be torn itself, and name an M that never saw it;
 * M may then have gone on with F2, and served. Without `committed` nothing is known, and both must be shown. That the
 * label under F2 does not know d to be on all who were live there follows from the rest; it is asked for all the same,
 * since it costs nothing. Whoever carries F2 is stale: it missed what the others wrote.
 *
 * A history is bounded: its oldest lines are forgotten (history_make_room). A label from before the first one that is
 * remembered is told by a witness, a member that is live both in its table and in the winner's. A member gets an identity
 * of its own whenever it joins, so the witness has been live all the time between. What was acted upon under the old
 * label's last generation but one the witness had too, so it is part of the witness's history, which is the winner's;
 * and what was not acted upon is no loss. Had the old one gone on without the witness, it would have written it off.
 * Without a witness nothing is known, and the label counts as one that ran apart.
 */
#include "raid/assembly_history.h"

#include <string.h>

const struct sb_fork *history_present(const struct sb_array *array)
{
    return &array->forks[array->forks_count - 1];
}

/* The first line from `line` on that is no settled one; NULL: none. */
static const struct sb_fork *own_line(const struct sb_array *array, unsigned line)
{
    for (; line < array->forks_count; line++)
        if (!array->forks[line].settled)
            return &array->forks[line];
    return NULL;
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

/* Was the witness of the line live when `old` was written? */
static bool saw_witness(const struct sb_array *old, const struct sb_fork *line)
{
    for (unsigned i = 0; i < old->members_count; i++)
        if (uuid_equal(&old->members[i].uuid, &line->witness) && is_live(&old->members[i]))
            return true;
    return false;
}

/* Is a member live in both, under one identity? */
static bool share_a_live_member(const struct sb_array *old, const struct sb_array *whole)
{
    for (unsigned i = 0; i < old->members_count; i++)
        for (unsigned j = 0; j < whole->members_count; j++)
            if (uuid_equal(&old->members[i].uuid, &whole->members[j].uuid) && is_live(&old->members[i]) &&
                is_live(&whole->members[j]))
                return true;
    return false;
}

/* The last generation of which it is known that all who were live had it. */
static uint64_t history_committed(const struct sb_array *array)
{
    return array->committed == 0 && array->generation > 0 ? array->generation - 1 : array->committed;
}

/* Did only torn generations take `old` beyond the point at which `whole` began the next line? */
static bool is_torn_beyond(const struct sb_array *whole, const struct sb_fork *next, const struct sb_array *old)
{
    if (wrote_off(old, whole))
        return false;
    return old->generation == next->generation ||
           (history_committed(old) < next->generation && (saw_witness(old, next) || share_a_live_member(old, whole)));
}

/* The line of `whole` with this identity, settled or not; NULL: none. */
static const struct sb_fork *line_of(const struct sb_array *whole, const struct uuid *id)
{
    for (unsigned line = 0; line < whole->forks_count; line++)
        if (uuid_equal(&whole->forks[line].id, id))
            return &whole->forks[line];
    return NULL;
}

/*
 * `old` stands under forks that `whole` does not know: the first generation in which they differ. 0: its present fork is
 * known, or it is not known whence it came.
 */
static uint64_t parted_at(const struct sb_array *whole, const struct sb_array *old)
{
    uint64_t unknown_since = 0;
    for (unsigned i = old->forks_count; i-- > 0;) {
        if (old->forks[i].settled)
            continue;
        const struct sb_fork *known = line_of(whole, &old->forks[i].id);
        if (known == NULL) {
            unknown_since = old->forks[i].generation;
            continue;
        }
        if (known->settled)
            return 0;
        const struct sb_fork *next = own_line(whole, (unsigned)(known - whole->forks) + 1);
        return next == NULL ? unknown_since : MIN(unknown_since, next->generation);
    }
    return 0;
}

/* Was nothing ever acted upon under the forks of `old` that `whole` does not know? The proof is above. */
static bool never_ran(const struct sb_array *whole, const struct sb_array *old)
{
    uint64_t parted = parted_at(whole, old);
    return parted != 0 && history_committed(old) < parted && whole->committed >= parted &&
           share_a_live_member(old, whole);
}

/* Is `old`, which stands under the fork of this line, part of `whole`? */
static bool line_contains(const struct sb_array *whole, unsigned line, const struct sb_array *old)
{
    if (whole->forks[line].settled)
        return old->generation <= whole->forks[line].generation;
    const struct sb_fork *next = own_line(whole, line + 1);
    if (next == NULL)
        return old->generation <= whole->generation;
    return old->generation < next->generation || is_torn_beyond(whole, next, old);
}

/* The same over all lines that are history (settled: that are settled). */
static bool lines_contain(const struct sb_array *whole, bool settled, const struct sb_array *old)
{
    for (unsigned line = 0; line < whole->forks_count; line++)
        if (whole->forks[line].settled == settled && uuid_equal(&whole->forks[line].id, &history_present(old)->id) &&
            line_contains(whole, line, old))
            return true;
    return false;
}

bool history_forgot(const struct sb_array *whole, const struct sb_array *old)
{
    const struct sb_fork *first = own_line(whole, 0);
    return first != NULL && old->generation < first->generation;
}

bool history_contains(const struct sb_array *whole, const struct sb_array *old)
{
    return lines_contain(whole, false, old) || lines_contain(whole, true, old) ||
           (history_forgot(whole, old) && share_a_live_member(old, whole)) || never_ran(whole, old);
}

/*
 * What is above the committed generation may be torn, also more than one (a crash at each of several openings); none
 * of it was acted upon before all of the winner's live members had it. What is settled ran apart, whatever it says.
 */
bool history_is_current(const struct sb_array *winner, const struct sb_array *label)
{
    return label->generation >= history_committed(winner) && lines_contain(winner, false, label);
}

/* Does some other one go beyond it? Of those at the same point one that is not clean counts, else the first. */
static bool is_covered(const struct sb_array *const *arrays, unsigned count, unsigned index)
{
    for (unsigned i = 0; i < count; i++) {
        if (i == index || !history_contains(arrays[i], arrays[index]))
            continue;
        if (!history_contains(arrays[index], arrays[i]))
            return true;
        if (arrays[i]->clean == arrays[index]->clean ? i < index : arrays[index]->clean)
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

void history_make_room(struct sb_array *array)
{
    if (array->forks_count < SB_FORKS_MAX)
        return;
    unsigned line = SB_FORKS_MAX - 1;
    while (line > 0 && !(array->forks[line].left && array->forks[line - 1].left))
        line--;
    memmove(&array->forks[line], &array->forks[line + 1], (SB_FORKS_MAX - 1 - line) * sizeof array->forks[0]);
    array->forks_count--;
}

/* A settled line before the present one. */
static void insert_settled(struct sb_array *array, const struct uuid *fork, uint64_t until)
{
    history_make_room(array);
    struct sb_fork *last = &array->forks[array->forks_count - 1];
    last[1] = last[0];
    last[0] = (struct sb_fork){.id = *fork, .generation = until, .settled = true};
    array->forks_count++;
}

/* Does the array know this much of a fork's history, its own or a settled one? */
static bool knows(const struct sb_array *array, const struct uuid *fork, uint64_t until)
{
    struct sb_array point = {.forks_count = 1, .forks = {{.id = *fork}}, .generation = until};
    return history_contains(array, &point);
}

/* All that the loser went through and the winner did not, each up to where the loser left it. */
void history_settle(struct sb_array *winner, const struct sb_array *loser)
{
    for (unsigned i = 0; i < loser->forks_count; i++) {
        const struct sb_fork *line = &loser->forks[i], *next = own_line(loser, i + 1);
        uint64_t until = next == NULL ? loser->generation : next->generation;
        if (line->settled)
            until = line->generation;
        else if (next != NULL && until > 0)
            until--;
        if (!knows(winner, &line->id, until))
            insert_settled(winner, &line->id, until);
    }
}

bool history_is_of_slot(const struct sb_array *ours, unsigned slot, const struct sb_label *label)
{
    const struct sb_array *theirs = &label->array;
    if (!uuid_equal(&ours->uuid, &theirs->uuid) || theirs->forks_count == 0 ||
        !uuid_equal(&ours->members[slot].uuid, &label->member))
        return false;
    uint64_t until = UINT64_MAX; /* the generation of the fork behind */
    for (unsigned i = ours->forks_count; i-- > 0;) {
        if (ours->forks[i].settled)
            continue;
        if (uuid_equal(&ours->forks[i].id, &history_present(theirs)->id))
            return theirs->generation < until;
        until = ours->forks[i].generation;
    }
    return false;
}

/*
 * A copy made of the disk carries the same label, but perhaps not all bytes: another identity is in doubt. So is a disk
 * that has lost the label at its tail: a file that was cut short, and made longer again, has lost more than that.
 */
bool history_can_catch_up(const struct sb_array *ours, unsigned slot, const struct sb_label *label,
                          const char *identity)
{
    const struct sb_member *member = &ours->members[slot];
    return member->missed_from != 0 && label->array.generation >= member->missed_from &&
           label->tail_generation >= member->missed_from && identity != NULL && identity[0] != '\0' &&
           strcmp(identity, member->identity) == 0 && history_is_of_slot(ours, slot, label);
}
