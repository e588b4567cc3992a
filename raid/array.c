/*
 * Opening, closing, and telling: see raid/array.h, and raid/array_impl.h for who does what.
 *
 *   OPENING ------> RUNNING ------> CLOSING ------> freed
 *      |  the first generation         ^
 *      |  is on all members            |
 *      +-------------------------------+
 *         frozen meanwhile: the call ends with an error
 *
 * Opening loads the region maps, or lays out those of new volumes, and flushes all members, since a generation that was
 * read may stand in their caches only, and what comes next says that it is committed (sb_array.committed). Then it
 * writes one generation before anything is served, always: so that a torn generation of the last run cannot lag behind a
 * second one (C2), and with it what opening found: members that are absent now (a new fork), volumes that have a map now.
 *
 * Of an array that was not stopped cleanly the journal is replayed then, if it has one; that is flushed, and one more
 * generation begins a new epoch.
 *
 * Closing is a list of conditions, looked at again whenever something ended (array_step): jobs stopped, no call, flush
 * or generation under way; then the region maps say clean, a flush of all members, the generation that says clean, the
 * volumes one after the other. An array that is frozen, or abandoned, goes straight to the volumes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "raid/array_impl.h"
#include "raid/relayout.h"
#include "raid/relayout_job.h"

static const struct sm_state array_states[] = {
    [ARRAY_OPENING] = {"opening", SM_TO(ARRAY_RUNNING) | SM_TO(ARRAY_CLOSING)},
    [ARRAY_RUNNING] = {"running", SM_TO(ARRAY_CLOSING)},
    [ARRAY_CLOSING] = {"closing", 0},
};

/* --- calls --- */

static void call_run_done(struct task *task)
{
    struct array_call *call = container_of(task, struct array_call, task);
    call->done(call);
}

void call_over(struct loop *loop, struct array_call *call, int error)
{
    call->error = error;
    if (error == 0)
        call->message[0] = '\0';
    call->task = (struct task){.run = call_run_done};
    loop_defer(loop, &call->task);
}

void array_call_over(struct array *array, struct array_call *call, int error)
{
    ASSERT(array->calls > 0);
    array->calls--;
    call_over(array->loop, call, error);
    array_step(array);
}

const char *array_refusal(const struct array *array)
{
    if (array->frozen)
        return "is frozen";
    return sm_state(&array->state) == ARRAY_RUNNING ? NULL : "is being closed";
}

/* --- one flush of all members --- */

static void flush_part_done(struct blk_req *req)
{
    struct array_flush_part *part = container_of(req, struct array_flush_part, req);
    struct array_flush *flush = part->flush;
    struct array *array = flush->array;
    if (req->status != BLK_OK)
        array_member_trouble(array, &array->members[part->slot], BLK_FLUSH, req->status, 0);
    if (--flush->pending == 0)
        flush->done(flush);
}

void array_flush_start(struct array *array, struct array_flush *flush, void (*done)(struct array_flush *))
{
    ASSERT(flush->pending == 0);
    flush->array = array;
    flush->done = done;
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        flush->pending += member_writable(&array->members[slot]);
    ASSERT(flush->pending > 0);
    for (unsigned slot = 0; slot < array->description.members_count; slot++) {
        if (!member_writable(&array->members[slot]))
            continue;
        struct array_flush_part *part = &flush->parts[slot];
        part->flush = flush;
        part->slot = slot;
        part->req = (struct blk_req){.op = BLK_FLUSH, .done = flush_part_done};
        blk_submit(array->members[slot].dev, &part->req);
    }
}

/* --- the region maps --- */

bool array_maps_idle(const struct array *array)
{
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].map != NULL && !map_store_idle(array->volumes[i].map))
            return false;
    return true;
}

uint64_t array_maps_count(const struct array *array, unsigned states)
{
    uint64_t rows = 0;
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].map != NULL)
            rows += region_count(map_store_map(array->volumes[i].map), states);
    return rows;
}

bool array_maps_saved(const struct array *array)
{
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].map != NULL && !map_store_saved(array->volumes[i].map))
            return false;
    return true;
}

void array_maps_settle(struct array *array)
{
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].map != NULL)
            map_store_settle(array->volumes[i].map);
}

static void array_look(struct task *task);

/* --- open --- */

/* Free what was never started, or is over. */
static void array_free(struct array *array)
{
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        array_peer_leaves(array, slot);
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].map != NULL)
            map_store_destroy(array->volumes[i].map);
    if (array->journal != NULL)
        journal_destroy(array->journal);
    rebuild_fini(array);
    commit_fini(array);
    relayout_free(array->relayout);
    free(array);
}

static enum member_state member_state_for(const struct sb_member *member, const struct array_disk *disk)
{
    if (member->state == SB_FAILED)
        return MEMBER_FAILED;
    if (disk->dev == NULL || member->state == SB_ABSENT)
        return MEMBER_ABSENT;
    return member->state == SB_REBUILDING ? MEMBER_REBUILDING : MEMBER_ONLINE;
}

int array_disk_check(const struct sb_array *description, unsigned slot, const struct array_disk *disk, char *why,
                     size_t why_len)
{
    const struct sb_member *member = &description->members[slot];
    const struct blk_info *info = &disk->dev->info;
    if (info->size < member->size) {
        text_format(why, why_len,
                    "disk %s (slot %u of array %s) has shrunk to %llu bytes, %llu too few: restore its size",
                    disk->identity, slot, description->name, (unsigned long long)info->size,
                    (unsigned long long)(member->size - info->size));
        return -EINVAL;
    }
    for (unsigned i = 0; i < description->volumes_count; i++) {
        const struct sb_volume *volume = &description->volumes[i];
        if (info->logical_block <= volume->logical_block)
            continue;
        text_format(why, why_len, "disk %s (slot %u of array %s) has blocks of %u bytes now, volume %s of %u",
                    disk->identity, slot, description->name, info->logical_block, volume->name, volume->logical_block);
        return -EINVAL;
    }
    if (info->read_only) {
        text_format(why, why_len, "disk %s (slot %u of array %s) is read-only", disk->identity, slot,
                    description->name);
        return -EROFS;
    }
    return 0;
}

bool array_maps_tell(const struct sb_array *a)
{
    for (unsigned i = 0; i < a->volumes_count; i++)
        if (!a->clean && consistency_is_closed(a->volumes[i].consistency))
            return false;
    return true;
}

/* Members as the description says, but for those that are not there: they are ABSENT from now on. */
static int open_members(struct array *array, const struct array_disk *disks, struct array_call *call)
{
    struct sb_array *a = &array->description;
    unsigned live = 0;
    array->commit.reopened = true;
    for (unsigned slot = 0; slot < a->members_count; slot++) {
        struct sb_member *member = &a->members[slot];
        enum member_state state = member_state_for(member, &disks[slot]);
        bool present = state == MEMBER_ONLINE || state == MEMBER_REBUILDING;
        ASSERT(!present || disks[slot].dev->loop == array->loop);
        int error = present ? array_disk_check(a, slot, &disks[slot], call->message, sizeof call->message) : 0;
        if (error != 0)
            return error;
        if (present && disks[slot].identity[0] != '\0')
            text_format(member->identity, sizeof member->identity, "%s", disks[slot].identity);
        if (state == MEMBER_ABSENT && member->state != SB_ABSENT) {
            log_warn("array %s: disk %s (slot %u) is absent: starting without it", a->name, member->identity, slot);
            bool whole = member->state == SB_ACTIVE;
            member->missed_from = (whole || member->missed_from != 0) && array_maps_tell(a) ? a->committed : 0;
            member->vanished = true;
            sb_member_move(member, SB_ABSENT);
            array->commit.reopened = false;
        }
        if (!present) /* whoever is away must not be able to go on under this history: raid/assembly.h */
            array->commit.fork_wanted = true;
        member_init(&array->members[slot], slot, present ? disks[slot].dev : NULL, a->data_start, state);
        array->member_table[slot] = &array->members[slot];
        if (present)
            array_peer_joins(array, slot);
        live += present;
    }
    if (live > 0)
        return 0;
    text_format(call->message, sizeof call->message, "array %s has no disk to start with", a->name);
    return -ENODEV;
}

int array_lay_out_volume(struct array *array, unsigned index, char *why, size_t why_len)
{
    const struct sb_volume *volume = &array->description.volumes[index];
    struct array_volume *av = &array->volumes[index];
    uint64_t extent[RAID_MEMBERS_MAX];
    *av = (struct array_volume){0};
    array_extents(&array->description, volume, extent);
    const char *wrong = layout_init(&av->layout, &volume->spec, extent);
    if (wrong != NULL || volume->size > av->layout.rows * av->layout.row_data) {
        text_format(why, why_len, "volume %s: %s", volume->name, wrong != NULL ? wrong : "its disks are too small");
        return -EINVAL;
    }
    if (av->layout.redundancy > 0)
        av->map = map_store_create(array, index, av->layout.rows);
    if (av->layout.redundancy == 0 || av->map != NULL)
        return 0;
    text_format(why, why_len, "no memory for the region map of volume %s", volume->name);
    return -ENOMEM;
}

int array_open_volume(struct array *array, unsigned index, char *why, size_t why_len)
{
    const struct sb_volume *volume = &array->description.volumes[index];
    struct array_volume *av = &array->volumes[index];
    struct volume_options options = {.name = volume->name,
                                     .layout = &av->layout,
                                     .first_slot = volume->spec.level == RAID_JBOD ? volume->slot : 0,
                                     .members = array->member_table,
                                     .start = volume->start,
                                     .size = volume->size,
                                     .logical_block = volume->logical_block,
                                     .map = av->map != NULL ? map_store_map(av->map) : NULL,
                                     .uuid = *sb_volume_key(volume),
                                     .consistency = volume->consistency,
                                     .bad = &array->description.bad,
                                     .owner = &array->owner,
                                     .latency = &array->latency};
    av->volume = volume_open(array->loop, &options);
    if (av->volume != NULL && !array_volume_is_new_side(volume))
        av->front = front_create(array->loop, volume->name, av->volume);
    if (av->volume != NULL && (av->front != NULL || array_volume_is_new_side(volume)))
        return 0;
    if (av->volume != NULL)
        volume_undo(av->volume);
    av->volume = NULL;
    text_format(why, why_len, "no memory to open volume %s", volume->name);
    return -ENOMEM;
}

/* Tear down what was opened; the call's error and message stand already. */
static void open_failed(struct array *array)
{
    sm_move(&array->state, ARRAY_CLOSING);
    array_stop_writing(array);
    array_step(array);
}

/* All members that were live have the opening's fork now. It is written down with what comes next. */
static void open_leave_line(struct array *array)
{
    struct sb_array *a = &array->description;
    const struct sb_fork *present = &a->forks[a->forks_count - 1];
    bool lost = array->losses.generation != 0;
    if (array->commit.reopened && !lost && a->forks_count > 1 && present->generation == array->commit.committed)
        a->forks[a->forks_count - 2].left = !a->forks[a->forks_count - 2].settled;
}

static void open_replay(struct array *array);

static void open_over(struct task *task)
{
    struct array *array = container_of(task, struct array, open_wait.task);
    struct array_call *call = array->call;
    if (array->frozen) {
        call->error = -EIO;
        text_format(call->message, sizeof call->message,
                    "array %s lost too many of its disks while it was started: look at cables and enclosures",
                    array->description.name);
        open_failed(array);
        return;
    }
    if (!losses_wait(array, task))
        return;
    open_leave_line(array);
    if (array->replay_wanted) { /* who is absent is on disk now */
        open_replay(array);
        return;
    }
    rebuild_resume(array); /* after the journal's replay: it may leave rows in doubt */
    sm_move(&array->state, ARRAY_RUNNING);
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        array->volumes[i].published = true;
    array->call = NULL;
    call->array = array;
    call_over(array->loop, call, 0);
    activity_rest(array);
    scrub_opened(array);
    if (array->relayout != NULL)
        relayout_begun(array);
    jobs_kick(array);
}

/* The journal has been replayed, and that is durable: it is not needed any more. */
static void replay_flushed(struct array_flush *flush)
{
    array_epoch_begin(flush->array);
    array_commit(flush->array, &flush->array->open_wait);
}

static void open_replayed(struct task *task)
{
    struct array *array = container_of(task, struct array, replayed);
    struct array_call *call = array->call;
    call->error = array_replay_end(array, call->message, sizeof call->message);
    if (call->error != 0) {
        open_failed(array);
    } else if (array->frozen) {
        open_over(&array->open_wait.task);
    } else {
        array_flush_start(array, &array->activity.flush, replay_flushed);
    }
}

static void open_replay(struct array *array)
{
    array->replay_wanted = false;
    if (array_replay_start(array))
        return;
    array->call->error = -ENOMEM;
    text_format(array->call->message, sizeof array->call->message, "no memory to replay the journal of array %s",
                array->description.name);
    open_failed(array);
}

/* What was read from the members is on them for good: now others may be told that they have it. */
static void open_flushed(struct array_flush *flush)
{
    array_commit(flush->array, &flush->array->open_wait);
}

/* The maps are there: the volumes, and the first generation. */
static void open_volumes(struct array *array)
{
    struct sb_array *a = &array->description;
    struct array_call *call = array->call;
    array->replay_wanted = array_must_replay(array);
    if (!array->replay_wanted)
        array_epoch_begin(array);
    call->error = array_open_journal(array, call->message, sizeof call->message);
    for (unsigned i = 0; i < a->volumes_count && call->error == 0; i++) {
        a->volumes[i].unmapped = false;
        call->error = array_open_volume(array, i, call->message, sizeof call->message);
    }
    if (call->error == 0)
        call->error = relayout_open(array, call->message, sizeof call->message);
    relayout_maps_loaded(array); /* before anybody looks at them */
    uint64_t suspect = array_maps_count(array, REGION_BIT(REGION_SUSPECT));
    if (suspect > 0 || !a->clean)
        log_warn("array %s was not stopped cleanly: redundancy of %llu rows is resynchronised", a->name,
                 (unsigned long long)suspect);
    a->clean = a->clean && suspect == 0;
    activity_init(array, a->clean);
    if (call->error != 0)
        open_failed(array);
    else
        array_flush_start(array, &array->activity.flush, open_flushed);
}

/* One map after the other. */
static void open_maps(struct array *array)
{
    const struct sb_array *a = &array->description;
    while (array->next_map < a->volumes_count && array->volumes[array->next_map].map == NULL)
        array->next_map++;
    if (array->frozen) {
        open_over(&array->open_wait.task);
    } else if (array->next_map == a->volumes_count) {
        open_volumes(array);
    } else {
        unsigned volume = array->next_map++;
        if (map_store_open(array->volumes[volume].map, a->volumes[volume].unmapped, &array->map_opened))
            return;
        array->call->error = -ENOMEM;
        text_format(array->call->message, sizeof array->call->message, "no memory to load the region map of volume %s",
                    a->volumes[volume].name);
        open_failed(array);
    }
}

static void map_opened(struct task *task)
{
    open_maps(container_of(task, struct array, map_opened));
}

void array_open_description(struct loop *loop, const struct sb_array *description, const struct array_disk *disks,
                            const struct array_journals *journals, const unsigned *places, struct array_call *call)
{
    call->array = NULL;
    call->error = 0;
    struct array *array = calloc(1, sizeof *array);
    if (array == NULL) {
        CALL_END(loop, call, -ENOMEM, "no memory to open array %s", description->name);
        return;
    }
    array->loop = loop;
    array->description = *description;
    array->slots_room = MIN(description->members_count + ARRAY_SLOTS_MORE, (unsigned)RAID_MEMBERS_MAX);
    if (!commit_init(array, places)) {
        array_free(array);
        CALL_END(loop, call, -ENOMEM, "no memory to open array %s", description->name);
        return;
    }
    array->call = call;
    array->owner.ops = &array_owner_ops;
    array->step.run = array_look;
    array->open_wait.task.run = open_over;
    array->map_opened.run = map_opened;
    array->replayed.run = open_replayed;
    sm_init(&array->state, array_states, ARRAY_LENGTH(array_states), ARRAY_OPENING);
    losses_init(array);
    activity_init(array, description->clean);
    jobs_init(array);
    scrub_init(array);
    rebuild_init(array);
    replace_init(array);
    int error = open_members(array, disks, call);
    if (error == 0)
        error = journal_devices_open(array, journals, call->message, sizeof call->message);
    for (unsigned i = 0; i < description->volumes_count && error == 0; i++)
        error = array_lay_out_volume(array, i, call->message, sizeof call->message);
    if (error == 0) {
        open_maps(array);
    } else {
        call->error = error;
        open_failed(array);
    }
}

void array_open(struct loop *loop, const struct assembly *assembly, const struct array_disk *disks,
                const struct array_journals *journals, struct array_call *call)
{
    call->array = NULL;
    if (!assembly->startable)
        CALL_END(loop, call, -EAGAIN, "array %s is not started: %s", assembly->array.name, assembly->reason);
    else
        array_open_description(loop, &assembly->array, disks, journals, assembly->place_of_slot, call);
}

/* --- close --- */

static void close_flushed(struct array_flush *flush)
{
    flush->array->flushed = true;
    array_step(flush->array);
}

/* Bring everything to disk, one thing at a time. True: all of it is. */
static bool close_save(struct array *array)
{
    losses_settle_now(array);
    if (!losses_recorded(array) || array->commit.wanted || !activity_still(array))
        return false;
    if (!array->settled) {
        array->settled = true;
        array_maps_settle(array);
    }
    if (!array_maps_idle(array))
        return false;
    if (!array->flushed) {
        rebuild_look(array);
        array_flush_start(array, &array->activity.flush, close_flushed);
        return false;
    }
    if (!array->marked_clean) {
        array->marked_clean = true;
        rebuild_note(array);
        array->description.clean = array_maps_count(array, REGION_BIT(REGION_SUSPECT)) == 0;
        scrub_save(array);
        array_commit(array, NULL);
        return false;
    }
    return true;
}

static void close_ended(struct array *array)
{
    struct loop *loop = array->loop;
    struct array_call *call = array->call;
    if (array->frozen && call->error == 0) {
        call->error = -EIO;
        text_format(call->message, sizeof call->message,
                    "array %s was frozen and is not marked clean: start it again with all its disks",
                    array->description.name);
    }
    array_free(array);
    call_over(loop, call, call->error);
}

static void volume_closed(struct task *task)
{
    struct array *array = container_of(task, struct array, closed);
    if (array->volumes[array->next_volume].front != NULL)
        array->volumes[array->next_volume].front = NULL;
    else
        array->volumes[array->next_volume].volume = NULL;
    array->volume_closing = false;
    array_step(array);
}

static void relayout_closed(struct task *task)
{
    struct array *array = container_of(task, struct array, closed);
    array->volume_closing = false;
    array_step(array);
}

static void close_volumes(struct array *array)
{
    array->closed = (struct task){.run = relayout_closed};
    array->volume_closing = relayout_close(array, &array->closed);
    if (array->volume_closing)
        return;
    while (array->next_volume < array->description.volumes_count && array->volumes[array->next_volume].volume == NULL)
        array->next_volume++;
    if (array->next_volume == array->description.volumes_count) {
        close_ended(array);
        return;
    }
    array->volume_closing = true;
    array->closed = (struct task){.run = volume_closed};
    struct array_volume *v = &array->volumes[array->next_volume];
    blk_close(v->front != NULL ? front_dev(v->front) : volume_dev(v->volume), &array->closed);
}

static void close_look(struct array *array)
{
    bool busy = array->calls > 0 || array->commit.writing > 0 || array->activity.flush.pending > 0 ||
                array->losses.probe.pending > 0 || !jobs_stopped(array) || !rebuild_still(array) ||
                !relayout_still(array) || !replace_is_over(array) || array->volume_closing || !array_journal_idle(array) ||
                (array->frozen && !array_maps_idle(array));
    if (!busy && (array->frozen || close_save(array)))
        close_volumes(array);
}

void array_close(struct array *array, struct array_call *call)
{
    sm_move(&array->state, ARRAY_CLOSING);
    array->call = call;
    call->error = 0;
    call->array = NULL;
    activity_stop(array);
    scrub_stop(array);
    jobs_stop(array);
    replace_stop(array, "the array is being closed");
    array_step(array);
}

void array_abandon(struct array *array)
{
    if (!array->frozen)
        array_stop_writing(array);
}

static void array_look(struct task *task)
{
    struct array *array = container_of(task, struct array, step);
    close_look(array);
}

void array_step(struct array *array)
{
    if (sm_state(&array->state) == ARRAY_CLOSING)
        loop_defer_late(array->loop, &array->step);
}

/* --- telling --- */

unsigned array_volume_index(const struct array *array, const char *name)
{
    unsigned i = 0;
    while (i < array->description.volumes_count &&
           !(array->volumes[i].published && strcmp(array->description.volumes[i].name, name) == 0))
        i++;
    return i;
}

struct blkdev *array_volume(struct array *array, const char *name)
{
    unsigned i = array_volume_index(array, name);
    return i < array->description.volumes_count ? front_dev(array->volumes[i].front) : NULL;
}

const struct sb_array *array_description(const struct array *array)
{
    return &array->description;
}

struct array_usage array_usage(const struct array *array, unsigned volume)
{
    const struct array_volume *av = &array->volumes[volume];
    uint64_t size = array->description.volumes[volume].size, row = av->layout.row_data;
    if (av->map == NULL)
        return (struct array_usage){.written_bytes = size};
    const struct region_map *map = map_store_map(av->map);
    uint64_t dirty = region_count(map, REGION_BIT(REGION_DIRTY) | REGION_BIT(REGION_SUSPECT));
    return (struct array_usage){MIN(size, region_count(map, REGION_WRITTEN) * row), MIN(size, dirty * row)};
}

static const char *state_name(const struct array *array)
{
    if (array->frozen)
        return "frozen";
    uint64_t lost = array_lost_slots(array);
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (!array_survives(array, i, lost))
            return "failed";
    return lost != 0 ? "degraded" : "optimal";
}

void array_info(struct array *array, struct array_info *info)
{
    const struct sb_array *a = &array->description;
    *info = (struct array_info){.clean = sm_state(&array->activity.state) == ACTIVITY_CLEAN,
                                .generation = array->commit.committed,
                                .free_bytes = array_free_extent(a),
                                .members_count = a->members_count};
    text_format(info->name, sizeof info->name, "%s", a->name);
    text_format(info->state, sizeof info->state, "%s", state_name(array));
    for (unsigned slot = 0; slot < a->members_count; slot++) {
        const struct member *member = &array->members[slot];
        struct array_member_info *out = &info->members[slot];
        text_format(out->state, sizeof out->state, "%s", member_state_name(sm_state(&member->state)));
        text_format(out->identity, sizeof out->identity, "%s", a->members[slot].identity);
        out->read_errors = member->read_errors;
        out->corrected = member->corrected;
        out->write_errors = member->write_errors;
        out->present = member->dev != NULL;
        out->slow = member->slow;
        out->bad_ranges = bad_count(&a->bad, slot);
        out->bad_bytes = bad_bytes(&a->bad, slot);
        out->recent_errors = member_recent_errors(member, loop_now_ns(array->loop));
        const struct patience_counters *waits = member->dev != NULL ? patience_counters(member->dev) : NULL;
        out->late = waits != NULL ? waits->late : 0;
        out->timed_out = waits != NULL ? waits->timed_out : 0;
    }
    info->journals_count = a->journals_count;
    for (unsigned i = 0; i < a->journals_count; i++) {
        struct array_journal_info *out = &info->journals[i];
        text_format(out->state, sizeof out->state, "%s",
                    array->journals[i].live || a->journals[i].state != SB_JOURNAL_ACTIVE
                        ? sb_journal_state_name(a->journals[i].state)
                        : "failing");
        text_format(out->identity, sizeof out->identity, "%s", a->journals[i].identity);
        out->bytes = a->journals[i].bytes;
    }
    info->jobs_count = jobs_info(array, info->jobs, ARRAY_LENGTH(info->jobs));
}
