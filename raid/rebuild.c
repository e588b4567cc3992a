/*
 * Rebuild: filling members that are REBUILDING, row by row of what was ever written; or of what they missed, if all of
 * the pass are to be caught up (raid/array_online.c).
 *
 * A pass takes the members that are REBUILDING when it starts through all volumes with redundancy, the one with the
 * least of it first; a member that comes later gets a pass of its own. When all volumes are through, the members are
 * flushed, the description says ACTIVE, and then they are ONLINE.
 *
 *      begin ----> all volumes, in turn ----> flush ----> ACTIVE on disk ----> ONLINE
 *
 * Blocks that cannot be computed, since others cannot be read, are put on the list of bad blocks (row_bad.c) before
 * their row counts as done: they answer media errors until they are overwritten, and the pass goes on.
 *
 * What is done of a pass, a bit a row: by the rebuild, or in passing by an initiator who wrote all of a row. And a
 * checkpoint, every 10 s: after a flush the description says below which row all are done
 * (sb_volume.rebuilt), and on which members (sb_member.filling).
 *
 * B1  A bit says that every member of the pass holds its chunk as of now: a write that comes later goes to it too. A
 *     write of a whole row sets it only if no disk has joined since the write began.
 * B2  The position on disk covers rows whose bit was set before the flush began.
 * B3  After a stop without a word, rows below the position that the map calls SUSPECT are owed: a write may have reached
 *     the others and not the member that is filled. They are done again, and until then resync leaves the volume alone:
 *     SUSPECT is all that tells them from the others.
 * B4  So resync also waits while a pass has done rows of a volume: it makes redundancy right among members that can be
 *     read, and a member that is filled would not hear of it.
 */
#include "raid/rebuild.h"

#include <stdlib.h>

#include "core/log.h"
#include "raid/array_impl.h"
#include "raid/relayout_job.h"

#define CHECKPOINT_NS 10000000000ull

static uint64_t rebuilding_slots(const struct array *array)
{
    uint64_t slots = 0;
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (sm_state(&array->members[slot].state) == MEMBER_REBUILDING)
            slots |= slot_bit(slot);
    return slots;
}

static uint64_t pass_slots(const struct array *array)
{
    return array->rebuild.slots & rebuilding_slots(array);
}

/* Rows of which some member of the pass, or of the one to come, may lack something. */
static unsigned rows_lacking(const struct array *array)
{
    uint64_t slots = pass_slots(array) != 0 ? pass_slots(array) : rebuilding_slots(array);
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if ((slots & slot_bit(slot)) && array->description.members[slot].missed_from == 0)
            return REGION_WRITTEN;
    return REGION_BIT(REGION_DIRTY) | REGION_BIT(REGION_SUSPECT);
}

static const struct rebuild_rows *rows_of(const struct array *array, unsigned volume)
{
    return &array->rebuild.rows[volume];
}

/* --- what is done --- */

static void checkpoint(struct array *array);

static bool row_is_done(const struct rebuild_rows *rows, uint64_t row)
{
    return rows->done != NULL && (rows->done[row / 8] >> row % 8 & 1);
}

static void row_set_done(struct rebuild_rows *rows, uint64_t row)
{
    if (rows->done == NULL || row_is_done(rows, row))
        return;
    rows->done[row / 8] |= (uint8_t)(1u << row % 8);
    rows->done_count++;
}

static void rows_forget(struct rebuild_rows *rows)
{
    free(rows->done);
    *rows = (struct rebuild_rows){0};
}

/* Without memory for it all rows are done by the rebuild itself, and all of them again after a restart. */
static void rows_begin(struct array *array, unsigned volume)
{
    struct rebuild_rows *rows = &array->rebuild.rows[volume];
    rows_forget(rows);
    rows->done = calloc((array->volumes[volume].layout.rows + 7) / 8, 1);
}

/* --- the kind --- */

/* Slots that the volume lies on. */
static uint64_t slots_of(const struct array *array, unsigned volume)
{
    const struct sb_volume *v = &array->description.volumes[volume];
    uint64_t slots = v->spec.members < RAID_MEMBERS_MAX ? slot_bit(v->spec.members) - 1 : UINT64_MAX;
    return v->spec.level == RAID_JBOD ? slot_bit(v->slot) : slots;
}

static bool wanted(const struct array *array, unsigned volume)
{
    return !relayout_side_is_idle(array, volume) && (rebuilding_slots(array) & slots_of(array, volume)) != 0 &&
           array->volumes[volume].jobs[JOB_REBUILD].position < array->volumes[volume].layout.rows;
}

static uint64_t rows_left(const struct array *array, unsigned volume)
{
    uint64_t rows = region_count(job_map(array, volume), rows_lacking(array)),
             done = rows_of(array, volume)->done_count;
    if (rows_lacking(array) != REGION_WRITTEN)
        return rows;
    return rows > done ? rows - done : 0;
}

static uint64_t row_next(const struct array *array, unsigned volume, uint64_t from)
{
    const struct region_map *map = job_map(array, volume);
    const struct rebuild_rows *rows = rows_of(array, volume);
    uint64_t row = region_find(map, rows_lacking(array), from, map->regions);
    while (row < map->regions && row_is_done(rows, row))
        row = region_find(map, rows_lacking(array), row + 1, map->regions);
    return row;
}

static bool before(const struct array *array, unsigned a, unsigned b)
{
    return layout_tolerance(&array->volumes[a].layout) < layout_tolerance(&array->volumes[b].layout);
}

static void row_done(struct array *array, unsigned volume, const struct row_job *work)
{
    row_set_done(&array->rebuild.rows[volume], work->row);
    checkpoint(array);
}

bool rebuild_owns(const struct array *array, unsigned volume)
{
    const struct rebuild_rows *rows = rows_of(array, volume);
    return pass_slots(array) != 0 && (rows->trusted > 0 || rows->done_count > 0);
}

void rebuild_row_written(struct array *array, const struct region_map *map, uint64_t row)
{
    if (pass_slots(array) == 0)
        return;
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].map != NULL && map_store_map(array->volumes[i].map) == map)
            row_set_done(&array->rebuild.rows[i], row);
}

/* --- the checkpoint --- */

/* All rows below it are done, or owed. */
static uint64_t position_find(struct array *array, unsigned volume)
{
    struct rebuild_rows *rows = &array->rebuild.rows[volume];
    if (rows->done == NULL || pass_slots(array) == 0)
        return 0;
    rows->low = row_next(array, volume, rows->low);
    return rows->low;
}

/* What was done when the flush began goes to disk with the next generation (B2). */
void rebuild_note(struct array *array)
{
    struct array_rebuild *rebuild = &array->rebuild;
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].published && array_is_redundant(array, i))
            array->description.volumes[i].rebuilt = rebuild->rows[i].noted;
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (array->description.members[slot].state == SB_REBUILDING)
            array->description.members[slot].filling = pass_slots(array) >> slot & 1;
}

void rebuild_look(struct array *array)
{
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].published && array_is_redundant(array, i))
            array->rebuild.rows[i].noted = position_find(array, i);
}

static void checkpoint_committed(struct task *task)
{
    struct array *array = container_of(task, struct array, rebuild.checkpoint_wait.task);
    bool saving = array->rebuild.saving;
    array->rebuild.checkpointing = array->rebuild.saving = false;
    if (saving)
        jobs_saved(array);
    array_step(array);
}

static void checkpoint_flushed(struct array_flush *flush)
{
    struct array *array = flush->array;
    if (pass_slots(array) == array->rebuild.checkpoint_slots)
        rebuild_note(array);
    array_commit(array, &array->rebuild.checkpoint_wait);
}

static void checkpoint(struct array *array)
{
    struct array_rebuild *rebuild = &array->rebuild;
    uint64_t now = loop_now_ns(array->loop);
    if (now - rebuild->checkpoint_ns < CHECKPOINT_NS || rebuild->checkpointing || array->frozen)
        return;
    rebuild->checkpointing = true;
    rebuild->checkpoint_ns = now;
    rebuild->checkpoint_slots = pass_slots(array);
    rebuild_look(array);
    array_flush_start(array, &rebuild->checkpoint_flush, checkpoint_flushed);
}

bool rebuild_still(const struct array *array)
{
    return !array->rebuild.checkpointing;
}

/* --- passes --- */

static void pass_over(struct array *array)
{
    array->rebuild.slots = 0;
    for (unsigned i = 0; i < array->description.volumes_count; i++) {
        rows_forget(&array->rebuild.rows[i]);
        job_of(array, i, JOB_REBUILD)->position = 0;
    }
}

static void pass_begin(struct array *array)
{
    pass_over(array);
    array->rebuild.slots = rebuilding_slots(array);
    array->rebuild.checkpoint_ns = loop_now_ns(array->loop);
    for (unsigned i = 0; array->rebuild.slots != 0 && i < array->description.volumes_count; i++)
        if (array->volumes[i].published && array_is_redundant(array, i))
            rows_begin(array, i);
}

static bool pass_is_through(const struct array *array)
{
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].published && array_is_redundant(array, i) && wanted(array, i))
            return false;
    return true;
}

/* Members that are whole are used from now on. */
static void members_online(struct array *array)
{
    for (unsigned slot = 0; slot < array->description.members_count; slot++) {
        if (!(pass_slots(array) & slot_bit(slot)))
            continue;
        struct sb_member *member = &array->description.members[slot];
        sm_move(&array->members[slot].state, MEMBER_ONLINE);
        log_notice("array %s: disk %s (slot %u) is %s and online", array->description.name,
                   array_disk_name(array, slot), slot, member->missed_from != 0 ? "caught up" : "rebuilt");
        member->missed_from = 0;
    }
    pass_over(array);
    array_members_changed(array);
}

static void pass_committed(struct task *task)
{
    struct array *array = container_of(task, struct array, rebuild.wait.task);
    if (!array->frozen)
        members_online(array);
    jobs_saved(array);
}

static void pass_flushed(struct array_flush *flush)
{
    struct array *array = flush->array;
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (pass_slots(array) & slot_bit(slot))
            sb_member_move(&array->description.members[slot], SB_ACTIVE);
    array_commit(array, &array->rebuild.wait);
}

/* A pass that was given up is not begun again until a member's state changes. */
static bool blocked(struct array *array)
{
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (job_of(array, i, JOB_REBUILD)->blocked)
            return true;
    return false;
}

static bool prepare(struct array *array)
{
    if (array->rebuild.checkpointing && array->rebuild.slots != 0) {
        array->rebuild.saving = true;
        return true;
    }
    if (pass_slots(array) == 0 && (array->rebuild.slots | rebuilding_slots(array)) != 0 && !blocked(array))
        pass_begin(array);
    if (array->rebuild.slots == 0 || !pass_is_through(array) || relayout_log_counts(array)) /* the log is not rebuilt */
        return false;
    array_flush_start(array, &array->rebuild.flush, pass_flushed);
    return true;
}

/* --- from outside --- */

void rebuild_init(struct array *array)
{
    array->rebuild.wait.task.run = pass_committed;
    array->rebuild.checkpoint_wait.task.run = checkpoint_committed;
}

void rebuild_fini(struct array *array)
{
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        rows_forget(&array->rebuild.rows[i]);
}

/* The rows below the position are done, but for those that the map has become SUSPECT of (B3). */
static void resume_volume(struct array *array, unsigned volume)
{
    struct rebuild_rows *rows = &array->rebuild.rows[volume];
    const struct region_map *map = job_map(array, volume);
    rows_begin(array, volume);
    if (rows->done == NULL)
        return;
    uint64_t end = array->description.volumes[volume].rebuilt;
    for (uint64_t row = 0; (row = region_find(map, REGION_WRITTEN, row, end)) < end; row++)
        if (region_get(map, row) != REGION_SUSPECT)
            row_set_done(rows, row);
    rows->trusted = rows->low = rows->noted = end;
}

void rebuild_resume(struct array *array)
{
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (array->description.members[slot].filling && member_writable(&array->members[slot]))
            array->rebuild.slots |= slot_bit(slot);
    array->rebuild.checkpoint_ns = loop_now_ns(array->loop);
    for (unsigned i = 0; array->rebuild.slots != 0 && i < array->description.volumes_count; i++)
        if (array_is_redundant(array, i))
            resume_volume(array, i);
}

void rebuild_renumber(struct array *array, unsigned from, unsigned to)
{
    rows_forget(&array->rebuild.rows[to]);
    array->rebuild.rows[to] = array->rebuild.rows[from];
    array->rebuild.rows[from] = (struct rebuild_rows){0};
}

void rebuild_member_lost(struct array *array, unsigned slot)
{
    array->rebuild.slots &= ~slot_bit(slot);
}

const struct job_kind rebuild_kind = {
    .name = "rebuild",
    .work = ROW_REBUILD,
    .wanted = wanted,
    .rows_left = rows_left,
    .row_next = row_next,
    .before = before,
    .prepare = prepare,
    .row_done = row_done,
};
