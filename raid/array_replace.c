/* See raid/array_replace.h for the drawing and the rules. The job that copies the rows is raid/replace.c. */
#include "raid/array_replace.h"

#include <errno.h>

#include "core/log.h"
#include "raid/array_impl.h"

#define END_LOOK_NS 10000000ull /* between looks whether the disks are quiet */

static const struct sm_state replace_states[] = {
    [REPLACE_NONE] = {"none", SM_TO(REPLACE_LOOKING)},
    [REPLACE_LOOKING] = {"looking", SM_TO(REPLACE_COPYING) | SM_TO(REPLACE_NONE)},
    [REPLACE_COPYING] = {"copying", SM_TO(REPLACE_AREAS) | SM_TO(REPLACE_ENDING)},
    [REPLACE_AREAS] = {"copying areas", SM_TO(REPLACE_FLUSHING) | SM_TO(REPLACE_ENDING)},
    [REPLACE_FLUSHING] = {"flushing", SM_TO(REPLACE_JOINING) | SM_TO(REPLACE_ENDING)},
    [REPLACE_JOINING] = {"joining", SM_TO(REPLACE_TAKING_BACK) | SM_TO(REPLACE_ENDING)},
    [REPLACE_TAKING_BACK] = {"taking back", SM_TO(REPLACE_ENDING)},
    [REPLACE_ENDING] = {"ending", SM_TO(REPLACE_NONE)},
};

static struct sb_member *member_of(struct array *array)
{
    return &array->description.members[array->replace.slot];
}

static const char *disk_text(const struct array_replace *r)
{
    return r->disk.identity[0] != '\0' ? r->disk.identity : r->disk.dev->name;
}

/* --- the end --- */

static void device_set(struct array *array, struct blkdev *dev)
{
    unsigned slot = array->replace.slot;
    array_peer_leaves(array, slot);
    array->members[slot].dev = dev;
    if (member_writable(&array->members[slot]))
        array_peer_joins(array, slot);
}

static void ended(struct array *array)
{
    struct array_replace *r = &array->replace;
    shadow_destroy(r->shadow);
    r->shadow = NULL;
    r->result.running = false;
    sm_move(&r->state, REPLACE_NONE);
    jobs_kick(array);
    array_step(array);
}

static void erased(struct label_op *op)
{
    ended(container_of(op, struct array, replace.op));
}

static bool is_quiet(const struct array *array)
{
    const struct array_replace *r = &array->replace;
    const struct array_jobs *jobs = &array->jobs;
    return shadow_is_quiet(r->shadow) && blk_is_quiet(r->result.left) && r->flush.pending == 0 &&
           array->commit.writing == 0 && (jobs->kind != JOB_REPLACE || jobs->in_flight == 0);
}

/* P3: the label of who is left over goes, if it has one. What a dead disk keeps is refused by its identity. */
static void end_look(struct array *array)
{
    struct array_replace *r = &array->replace;
    if (!is_quiet(array)) {
        timer_start(array->loop, &r->look, END_LOOK_NS);
        return;
    }
    if (!r->erase || array->frozen) {
        ended(array);
        return;
    }
    r->label.array = array->description;
    r->label.array.members[r->slot] = r->before;
    r->label.slot = r->slot;
    r->op = (struct label_op){.dev = r->result.left, .label = &r->label, .done = erased};
    label_erase(&r->op);
}

static void end_begin(struct array *array, struct blkdev *left)
{
    struct array_replace *r = &array->replace;
    if (member_writable(&r->target))
        sm_move(&r->target.state, MEMBER_FAILED);
    sm_move(&r->state, REPLACE_ENDING);
    r->result.left = left;
    timer_start(array->loop, &r->look, 0);
    jobs_kick(array);
}

/* The old disk goes on; the result's message stands already. */
static void give_up(struct array *array)
{
    struct array_replace *r = &array->replace;
    r->result.error = -EIO;
    log_error("array %s: disk %s (slot %u) was not replaced by %s: %s", array->description.name,
              array_disk_name(array, r->slot), r->slot, disk_text(r), r->result.message);
    shadow_set_mode(r->shadow, SHADOW_OLD);
    device_set(array, r->old);
    end_begin(array, r->disk.dev);
}

#define GIVE_UP(array, ...)                                                                                            \
    (text_format((array)->replace.result.message, sizeof(array)->replace.result.message, __VA_ARGS__), give_up(array))

static bool is_undecided(const struct array *array)
{
    enum replace_state state = sm_state(&array->replace.state);
    return state == REPLACE_COPYING || state == REPLACE_AREAS || state == REPLACE_FLUSHING;
}

void replace_member_lost(struct array *array, unsigned slot)
{
    if (slot == array->replace.slot && is_undecided(array))
        GIVE_UP(array, "the old disk went out of service before its copy was complete: put a disk in its place");
}

void replace_stop(struct array *array, const char *why)
{
    if (is_undecided(array))
        GIVE_UP(array, "%s", why);
}

bool replace_is_over(const struct array *array)
{
    return sm_state(&array->replace.state) == REPLACE_NONE;
}

bool replace_is_target(const struct array *array, const struct member *member)
{
    return member == &array->replace.target;
}

bool replace_needs(const struct array *array, unsigned slot)
{
    return is_undecided(array) && slot == array->replace.slot;
}

void replace_target_failed(struct array *array, enum blk_status status)
{
    if (is_undecided(array))
        GIVE_UP(array, "the new disk failed (%s): take another one", blk_status_name(status));
}

void replace_unreadable(struct array *array, const char *what)
{
    if (is_undecided(array))
        GIVE_UP(array, "%s cannot be read, nor computed from other disks: overwrite or restore it first", what);
}

static void shadow_failed(struct shadow_owner *owner, enum blk_status status)
{
    replace_target_failed(container_of(owner, struct array, replace.owner), status);
}

void array_replace_cancel(struct array *array, struct array_call *call)
{
    struct array_replace *r = &array->replace;
    array->calls++;
    if (replace_is_over(array)) {
        ARRAY_CALL_END(array, call, -EINVAL, "array %s is not replacing a disk", array->description.name);
    } else if (!is_undecided(array)) {
        ARRAY_CALL_END(array, call, -EBUSY, "%s",
                       sm_state(&r->state) == REPLACE_LOOKING ? "the new disk is being looked at: try again"
                                                              : "it is too late: the new disk is taking its place");
    } else {
        replace_stop(array, "it was called off");
        array_call_over(array, call, 0);
    }
}

/* --- joining --- */

struct blkdev *replace_joining(const struct array *array, unsigned slot)
{
    const struct array_replace *r = &array->replace;
    return r->joining && r->slot == slot ? r->disk.dev : NULL;
}

bool replace_joins_first(const struct array *array, unsigned slot)
{
    return replace_joining(array, slot) != NULL && !array->replace.labelled;
}

void replace_labelled(struct array *array, enum blk_status status)
{
    struct array_replace *r = &array->replace;
    enum sb_member_state state = member_of(array)->state;
    r->labelled = true;
    if (status == BLK_OK)
        return;
    r->joined = status;
    r->joining = false;
    *member_of(array) = r->before;
    member_of(array)->state = state;
    array->commit.parts[r->slot].label.place = r->place;
}

static void switched(struct array *array)
{
    struct array_replace *r = &array->replace;
    struct member *member = &array->members[r->slot];
    unsigned disks = member->disks;
    shadow_set_mode(r->shadow, SHADOW_NEW);
    array_peer_leaves(array, r->slot);
    member_init(member, r->slot, r->disk.dev, array->description.data_start, MEMBER_ONLINE);
    member->disks = disks;
    array_peer_joins(array, r->slot);
    log_notice("array %s: disk %s (slot %u) has taken the place of %s, which is out of service now",
               array->description.name, disk_text(r), r->slot, r->before.identity);
    r->erase = true;
    end_begin(array, r->old);
    array_members_changed(array);
}

static void taken_back(struct task *task)
{
    struct array *array = container_of(task, struct array, replace.wait.task);
    array->replace.erase = true;
    GIVE_UP(array, "the new disk could not be written (%s): take another one", blk_status_name(array->replace.joined));
}

static void joined(struct task *task)
{
    struct array *array = container_of(task, struct array, replace.wait.task);
    struct array_replace *r = &array->replace;
    if (array->frozen || (r->joined == BLK_OK && !member_writable(&array->members[r->slot]))) {
        r->joining = false;
        GIVE_UP(array, "%s while the new disk took its place",
                array->frozen ? "the array froze" : "one of both disks failed");
    } else if (r->joined == BLK_OK && shadow_is_copying(r->shadow)) { /* what the old disk refused meanwhile */
        timer_start(array->loop, &r->look, END_LOOK_NS);
    } else if (r->joined == BLK_OK) {
        r->joining = false;
        switched(array);
    } else {
        sm_move(&r->state, REPLACE_TAKING_BACK);
        r->wait.task.run = taken_back;
        array_commit(array, &r->wait);
    }
}

static void join(struct array *array)
{
    struct array_replace *r = &array->replace;
    struct sb_member *member = member_of(array);
    bool own_size = array_slot_bytes(&array->description, r->slot) == member->size;
    sm_move(&r->state, REPLACE_JOINING);
    shadow_set_mode(r->shadow, SHADOW_STRICT);
    r->before = *member;
    r->place = array->commit.parts[r->slot].label.place;
    r->joining = true;
    member->uuid = uuid_generate(array->loop);
    member->missed_from = 0;
    if (!own_size)
        member->size = round_down(r->disk.dev->info.size, MIB);
    text_format(member->identity, sizeof member->identity, "%s", r->disk.identity);
    array->commit.fork_wanted = true;
    r->wait.task.run = joined;
    array_commit(array, &r->wait);
}

static void look(struct timer *timer)
{
    struct array *array = container_of(timer, struct array, replace.look);
    if (sm_state(&array->replace.state) == REPLACE_JOINING)
        joined(&array->replace.wait.task);
    else
        end_look(array);
}

static void flushed(struct array_flush *flush)
{
    if (sm_state(&flush->array->replace.state) == REPLACE_FLUSHING)
        join(flush->array);
    array_step(flush->array);
}

/* --- the areas beside the data --- */

static void area_next(struct array *array);

static void area_copied(struct shadow_copy *copy)
{
    struct array *array = container_of(copy, struct array, replace.area);
    if (sm_state(&array->replace.state) != REPLACE_AREAS)
        return;
    if (copy->status != BLK_OK) {
        replace_unreadable(array, array->replace.areas == 1 ? "a region map on the old disk" : "its journal");
        return;
    }
    area_next(array);
}

static void area_next(struct array *array)
{
    const struct sb_array *a = &array->description;
    struct array_replace *r = &array->replace;
    const struct {
        uint64_t off, len;
    } areas[] = {{a->map_start, a->map_bytes}, {a->journal_start, array->journal != NULL ? a->journal_bytes : 0}};
    while (r->areas < ARRAY_LENGTH(areas) && areas[r->areas].len == 0)
        r->areas++;
    if (r->areas == ARRAY_LENGTH(areas)) {
        sm_move(&r->state, REPLACE_FLUSHING);
        array_flush_start(array, &r->flush, flushed);
        return;
    }
    r->area = (struct shadow_copy){.off = areas[r->areas].off, .len = areas[r->areas].len, .done = area_copied};
    r->areas++;
    shadow_copy_start(r->shadow, &r->area);
}

void replace_rows_copied(struct array *array)
{
    sm_move(&array->replace.state, REPLACE_AREAS);
    array->replace.areas = 0;
    area_next(array);
}

/* --- the beginning --- */

static void refused(struct array *array, int error)
{
    sm_move(&array->replace.state, REPLACE_NONE);
    array->replace.result.running = false;
    array_call_over(array, array->replace.call, error);
}

/* What both disks have room for. */
static uint64_t common_end(struct array *array)
{
    const struct array_replace *r = &array->replace;
    return MIN(superblock_tail(member_of(array)->size), superblock_tail(round_down(r->disk.dev->info.size, MIB)));
}

static void copying(struct array *array)
{
    struct array_replace *r = &array->replace;
    struct member *member = &array->members[r->slot];
    const struct sb_array *a = &array->description;
    r->old = member->dev;
    r->shadow = shadow_create(r->old, r->disk.dev, a->map_start, common_end(array), &r->owner);
    if (r->shadow == NULL) {
        text_format(r->call->message, sizeof r->call->message, "no memory to replace disk %s",
                    array_disk_name(array, r->slot));
        refused(array, -ENOMEM);
        return;
    }
    member_init(&r->target, r->slot, r->disk.dev, a->data_start, MEMBER_REBUILDING);
    device_set(array, shadow_dev(r->shadow));
    member->disks++; /* P4 */
    for (unsigned i = 0; i < a->volumes_count; i++)
        *job_of(array, i, JOB_REPLACE) = (struct job){0};
    sm_move(&r->state, REPLACE_COPYING);
    log_notice("array %s: disk %s (slot %u) is being replaced by %s", a->name, array_disk_name(array, r->slot), r->slot,
               disk_text(r));
    array_call_over(array, r->call, 0);
    jobs_kick(array);
}

static void looked(struct label_op *op)
{
    struct array *array = container_of(op, struct array, replace.op);
    struct array_replace *r = &array->replace;
    const struct member *member = &array->members[r->slot];
    char *why = r->call->message;
    int error = array_label_fits(array, &r->disk, op, why, sizeof r->call->message);
    if (error == 0 && (array_refusal(array) != NULL || !member_readable(member))) {
        text_format(why, sizeof r->call->message, "disk %s (slot %u of array %s) went out of service",
                    array_disk_name(array, r->slot), r->slot, array->description.name);
        error = -EIO;
    }
    if (error != 0)
        refused(array, error);
    else
        copying(array);
}

static const char *array_is_busy(const struct array *array)
{
    const char *refusal = array_refusal(array);
    if (refusal == NULL && (array->online != NULL || array->removal != NULL))
        refusal = "is taking in another disk, or taking a slot away";
    if (refusal == NULL && !replace_is_over(array))
        refusal = "is replacing a disk already";
    if (refusal == NULL && array->resize != NULL)
        refusal = "is giving a volume another size";
    if (refusal == NULL && array->relayout != NULL)
        refusal = "is moving a volume";
    return refusal;
}

static int check(const struct array *array, unsigned slot, const struct array_disk *disk, char *why, size_t why_len)
{
    const struct sb_array *a = &array->description;
    const char *refusal = array_is_busy(array);
    if (refusal != NULL) {
        text_format(why, why_len, "array %s %s: disk %s was not taken", a->name, refusal, disk->identity);
        return -EBUSY;
    }
    if (slot >= a->members_count) {
        text_format(why, why_len, "array %s has no slot %u: its slots are 0 to %u", a->name, slot,
                    a->members_count - 1);
        return -EINVAL;
    }
    const struct member *member = &array->members[slot];
    if (!member_readable(member)) {
        text_format(why, why_len, "disk %s (slot %u of array %s) is %s: there is nothing to be copied from it",
                    array_disk_name(array, slot), slot, a->name, member_state_name(sm_state(&member->state)));
        return -EINVAL;
    }
    if (member->dev == disk->dev) {
        text_format(why, why_len, "disk %s is in slot %u of array %s already", disk->identity, slot, a->name);
        return -EBUSY;
    }
    return array_disk_fits(array, slot, disk, why, why_len);
}

void array_replace_member(struct array *array, unsigned slot, const struct array_disk *disk, struct array_call *call)
{
    struct array_replace *r = &array->replace;
    ASSERT(disk->dev != NULL && disk->dev->loop == array->loop);
    array->calls++;
    int error = check(array, slot, disk, call->message, sizeof call->message);
    if (error != 0) {
        array_call_over(array, call, error);
        return;
    }
    r->slot = slot;
    r->disk = *disk;
    r->call = call;
    r->joining = r->labelled = r->erase = false;
    r->joined = BLK_OK;
    r->result = (struct array_replacement){.running = true, .slot = slot};
    r->op = (struct label_op){.dev = disk->dev, .label = &r->label, .done = looked};
    sm_move(&r->state, REPLACE_LOOKING);
    label_read(&r->op);
}

void array_replacement(const struct array *array, struct array_replacement *out)
{
    *out = array->replace.result;
}

void replace_init(struct array *array)
{
    sm_init(&array->replace.state, replace_states, ARRAY_LENGTH(replace_states), REPLACE_NONE);
    member_init(&array->replace.target, 0, NULL, 0, MEMBER_ABSENT);
    array->replace.owner.failed = shadow_failed;
    array->replace.look.fire = look;
}
