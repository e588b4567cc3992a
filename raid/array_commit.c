/*
 * The generations of the description.
 *
 *   somebody changes array->description, array_commit(wait)
 *        |
 *     wanted ----> generation + 1, a copy for every live member, label_write() side by side ----> committed
 *                         ^                                                                  |
 *                         +---------- wanted again meanwhile, or a label failed -------------+
 *
 * C1  At most one generation is being written; what is asked for meanwhile goes into one more behind it.
 * C2  A generation begins only when the one before stands on every member that is still live. So labels on disk differ
 *     by one generation at most, and a torn one was never acted upon.
 * C3  While losses settle (array_members.c) no generation begins: a disk that only lost its cable for a moment finds
 *     nothing that it missed.
 * C4  A member whose label cannot be written is lost; that makes the next generation. Waits for this one are over all
 *     the same, since it stands on all members that are live now.
 * C5  A member's labels take turns in its two slots, whatever the generation: none is written over the newest one. So
 *     what a member is once known to have (sb_array.committed) it keeps, however many generations are cut short.
 * C7  A disk that takes the place of one in service (array_replace.c), or a new slot behind the others (array_online.c),
 *     gets the first label with its identity before all
 *     others get theirs: there is no moment in which they name a disk that does not know of it.
 * C6  After a freeze nothing begins, and all waits are over as soon as no label is in flight.
 */
#include <stdlib.h>

#include "core/log.h"
#include "raid/array_impl.h"
#include "raid/assembly_history.h"

/* Room for one label of the greatest length, or for short ones of all members side by side. */
static uint32_t pages_wanted(const struct array *array)
{
    return SB_SLOT_BYTES / PAGE_BYTES + 1 + 4 * array->slots_room;
}

bool commit_init(struct array *array, const unsigned *places)
{
    TAILQ_INIT(&array->commit.waits);
    array->commit.parts = calloc(array->slots_room, sizeof *array->commit.parts);
    array->commit.pages = page_pool_create(pages_wanted(array));
    for (unsigned slot = 0; array->commit.parts != NULL && slot < array->description.members_count; slot++)
        array->commit.parts[slot].label.place = places[slot];
    return array->commit.parts != NULL && array->commit.pages != NULL;
}

void commit_fini(struct array *array)
{
    ASSERT(array->commit.writing == 0);
    if (array->commit.pages != NULL)
        page_pool_retire(array->commit.pages);
    free(array->commit.parts);
}

static void waits_end(struct array *array, uint64_t generation)
{
    struct commit_wait *wait, *next;
    for (wait = TAILQ_FIRST(&array->commit.waits); wait != NULL; wait = next) {
        next = TAILQ_NEXT(wait, link);
        if (wait->generation > generation)
            continue;
        TAILQ_REMOVE(&array->commit.waits, wait, link);
        loop_defer(array->loop, &wait->task);
    }
}

void commit_frozen(struct array *array)
{
    array->commit.wanted = false;
    if (array->commit.writing == 0)
        waits_end(array, UINT64_MAX);
}

/* One generation stands on all live members. */
static void commit_over(struct array *array)
{
    if (array->frozen) {
        commit_frozen(array);
    } else {
        array->commit.committed = array->description.generation;
        waits_end(array, array->commit.committed);
        losses_committed(array);
        commit_kick(array);
    }
    array_step(array);
}

static void labels_to_others(struct array *array, uint64_t but);

static void label_written(struct label_op *op)
{
    struct commit_part *part = container_of(op, struct commit_part, op);
    struct array *array = part->array;
    unsigned slot = part->label.slot;
    if (op->status != BLK_OK && online_joining(array, slot) == op->dev)
        online_label_failed(array, op->status);
    else if (array->commit.others_wait && !online_joins_first(array, slot))
        replace_labelled(array, op->status);
    else if (op->status != BLK_OK && member_writable(&array->members[slot]))
        array_member_lose(array, &array->members[slot], op->status); /* C4 */
    if (--array->commit.writing > 0)
        return;
    if (array->commit.others_wait)
        labels_to_others(array, op->status == BLK_OK ? slot_bit(slot) : 0); /* C7 */
    else
        commit_over(array);
}

/* Not one that joins in this generation. */
static struct uuid witness_find(const struct array *array)
{
    const struct sb_array *a = &array->description;
    for (unsigned slot = 0; slot < a->members_count; slot++)
        if (a->members[slot].state == SB_ACTIVE && online_joining(array, slot) == NULL &&
            replace_joining(array, slot) == NULL)
            return a->members[slot].uuid;
    return (struct uuid){0};
}

static void fork_begin(struct array *array)
{
    struct sb_array *a = &array->description;
    history_make_room(a);
    a->forks[a->forks_count++] =
        (struct sb_fork){.id = uuid_generate(array->loop), .generation = a->generation, .witness = witness_find(array)};
    array->commit.fork_wanted = false;
}

static void label_start(struct array *array, unsigned slot, struct blkdev *dev)
{
    struct commit_part *part = &array->commit.parts[slot];
    part->array = array;
    unsigned place = part->label.place ^ 1; /* C5. Whose label fails is lost, and comes back with a fresh one */
    part->label = (struct sb_label){
        .array = array->description, .member = array->description.members[slot].uuid, .slot = slot, .place = place};
    part->op = (struct label_op){.dev = dev,
                                 .label = &part->label,
                                 .done = label_written,
                                 .fresh = online_joining(array, slot) == dev || array->commit.others_wait,
                                 .pool = array->commit.pages};
    array->commit.writing++;
    label_write(&part->op);
}

static struct blkdev *label_goes_to(const struct array *array, unsigned slot)
{
    struct blkdev *joining = online_joining(array, slot);
    if (joining == NULL)
        joining = replace_joining(array, slot);
    if (joining == NULL && member_writable(&array->members[slot]))
        joining = array->members[slot].dev;
    return joining;
}

static void labels_to_others(struct array *array, uint64_t but)
{
    array->commit.others_wait = false;
    array->commit.writing = 1; /* until all are submitted */
    for (unsigned slot = 0; slot < array->description.members_count && !array->frozen; slot++)
        if (!(but & slot_bit(slot)) && label_goes_to(array, slot) != NULL)
            label_start(array, slot, label_goes_to(array, slot));
    if (--array->commit.writing == 0) /* there are no others, or the array froze */
        commit_over(array);
}

void commit_kick(struct array *array)
{
    struct array_commit *commit = &array->commit;
    bool settling = array->losses.pending != 0; /* C3 */
    if (!commit->wanted || commit->writing > 0 || settling || array->frozen)
        return;
    commit->wanted = false;
    array->description.committed = MAX(array->description.committed, commit->committed);
    array->description.generation++;
    array->description.updated_s = loop_wall_clock_s(array->loop);
    if (array->description.clean)
        journal_doubt_over(&array->description);
    if (commit->fork_wanted)
        fork_begin(array);
    unsigned first = 0;
    while (first < array->description.members_count && !replace_joins_first(array, first) &&
           !online_joins_first(array, first))
        first++;
    commit->others_wait = first < array->description.members_count; /* C7 */
    if (commit->others_wait)
        label_start(array, first, label_goes_to(array, first));
    else
        labels_to_others(array, 0);
}

void array_commit(struct array *array, struct commit_wait *wait)
{
    array->commit.wanted = true;
    if (wait != NULL) {
        wait->generation = array->description.generation + 1;
        TAILQ_INSERT_TAIL(&array->commit.waits, wait, link);
    }
    if (array->frozen)
        commit_frozen(array);
    else
        commit_kick(array);
}

const struct uuid *array_history(const struct array *array)
{
    const struct sb_array *a = &array->description;
    unsigned line = a->forks_count - 1;
    while (line > 0 && (a->forks[line].settled || a->forks[line].generation > array->commit.committed))
        line--;
    return &a->forks[line].id;
}
