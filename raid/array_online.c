/*
 * Bringing a disk into a slot that has none: the one that was lost, or a blank one.
 *
 *   1. Wait until the slot's loss is on disk, and nothing from before it is live in the journal (J7).
 *   2. Look at the disk: large enough, blocks of the same size, not a member elsewhere; read its label.
 *   3. Write the description that says REBUILDING, with a new member identity, to all live members and to the disk
 *      itself. If the disk does not take it, take it back.
 *   4. In memory: REBUILDING. From here on it takes every write, gets the region maps, and then the jobs fill it
 *      (rebuild.c), which ends in ONLINE.
 *
 * Whatever stands on the disk counts as stale, however it got there, but for two things that only the very disk that was
 * there before has. It is that disk if its label carries the slot's member identity and its history is part of ours.
 *   - It lacks only the rows that the region maps call DIRTY or SUSPECT, if they hold all since it left
 *     (sb_member.missed_from): it is caught up, which means that the rebuild is for these rows. In doubt all is rebuilt.
 *   - Volumes without redundancy cannot be rebuilt. Nothing can have changed in them while the disk was away, for a
 *     write needs it; so that disk may come back, and no other.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "raid/array_impl.h"
#include "raid/assembly_history.h"
#include "raid/relayout.h"

#define ADDED_LOOK_NS 1000000ull

struct array_online {
    struct array *array;
    struct array_call *call;
    unsigned slot;
    struct array_disk disk;
    struct sb_member before; /* to go back to */
    bool joining;            /* its label is part of the generations */
    bool catch_up;
    bool adds;         /* the slot is a new one, behind the others */
    struct timer look; /* until it is in service */
    enum blk_status joined;
    struct sb_label label;
    struct label_op op;
    struct commit_wait wait;
    struct task task;
    struct journal_wait settled;
};

static const char *text_of(const struct array_disk *disk)
{
    return disk->identity[0] != '\0' ? disk->identity : disk->dev->name;
}

static const char *disk_text(const struct array_online *online)
{
    return text_of(&online->disk);
}

/* The call's message stands already. */
static void online_end(struct array_online *online, int error)
{
    online->array->online = NULL;
    array_call_over(online->array, online->call, error);
    free(online);
}

#define ONLINE_END(online, error, ...)                                                                                 \
    (text_format((online)->call->message, sizeof(online)->call->message, __VA_ARGS__), online_end(online, error))

struct blkdev *online_joining(const struct array *array, unsigned slot)
{
    const struct array_online *online = array->online;
    return online != NULL && online->joining && online->slot == slot ? online->disk.dev : NULL;
}

bool online_joins_first(const struct array *array, unsigned slot)
{
    return online_joining(array, slot) != NULL && array->online->adds;
}

void online_label_failed(struct array *array, enum blk_status status)
{
    array->online->joined = status;
}

static void online_look(struct task *task);

/* --- 2: is it fit? --- */

/* Error and sentence in one. */
#define UNFIT(error, ...) (text_format(why, why_len, __VA_ARGS__), (error))

int array_disk_fits(const struct array *array, unsigned slot, const struct array_disk *disk, char *why, size_t why_len)
{
    const struct blkdev *dev = disk->dev;
    const char *name = array->description.name, *text = text_of(disk);
    uint64_t need = array_slot_bytes(&array->description, slot), size = dev->info.size;
    if (size < need)
        return UNFIT(
            -ENOSPC,
            "disk %s has %llu bytes, %llu too few: slot %u of array %s needs at least %llu, take a larger disk", text,
            (unsigned long long)size, (unsigned long long)(need - size), slot, name, (unsigned long long)need);
    if (dev->info.read_only)
        return UNFIT(-EROFS, "disk %s is read-only: it cannot be a member", text);
    if (!superblock_text_ok(disk->identity, sizeof disk->identity))
        return UNFIT(-EINVAL, "disk %s has a serial number or path that is not printable text", dev->name);
    for (unsigned i = 0; i < array->description.members_count; i++) {
        const struct member *other = &array->members[i];
        if (other->dev == NULL || (i == slot && !member_writable(other)))
            continue;
        if (other->dev == dev)
            return UNFIT(-EBUSY, "disk %s is in slot %u of array %s already", text, i, name);
        if (other->dev->info.logical_block != dev->info.logical_block)
            return UNFIT(-EINVAL, "disk %s has blocks of %u bytes and array %s of %u: take a disk with the same", text,
                         dev->info.logical_block, name, other->dev->info.logical_block);
    }
    return 0;
}

/* Some volume that needs the very disk that was in the slot, or NULL. */
static const char *volume_without_redundancy(const struct array *array, unsigned slot)
{
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (!array_survives(array, i, slot_bit(slot)))
            return array->description.volumes[i].name;
    return NULL;
}

static bool label_is_of_slot(const struct array_online *online)
{
    return online->op.verdict == SB_VALID &&
           history_is_of_slot(&online->array->description, online->slot, &online->label);
}

int array_label_fits(const struct array *array, const struct array_disk *disk, const struct label_op *op, char *why,
                     size_t why_len)
{
    if (op->status != BLK_OK)
        return UNFIT(-EIO, "disk %s cannot be read (%s): take another one", text_of(disk), blk_status_name(op->status));
    if (op->verdict == SB_UNSUPPORTED)
        return UNFIT(-EBUSY, "disk %s: %s; erase it first if it is to be used here", text_of(disk), op->why);
    if (op->verdict == SB_VALID && !uuid_equal(&op->label->array.uuid, &array->description.uuid))
        return UNFIT(-EBUSY, "disk %s belongs to array %s: erase it first if it is to be used here", text_of(disk),
                     op->label->array.name);
    return 0;
}

static bool refuse_label(struct array_online *online)
{
    struct array *array = online->array;
    const struct label_op *op = &online->op;
    int error = array_label_fits(array, &online->disk, op, online->call->message, sizeof online->call->message);
    if (error != 0) {
        online_end(online, error);
        return true;
    }
    const char *volume = volume_without_redundancy(array, online->slot);
    if (volume != NULL && !label_is_of_slot(online)) {
        ONLINE_END(
            online, -EINVAL,
            "volume %s has no redundancy and part of it lies on the disk that was in slot %u (%s), which disk %s "
            "is not: bring that one back",
            volume, online->slot, array_disk_name(array, online->slot), disk_text(online));
        return true;
    }
    return false;
}

/* --- 3 and 4: join --- */

static void online_taken_back(struct task *task)
{
    struct array_online *online = container_of(task, struct array_online, wait.task);
    ONLINE_END(online, -EIO, "disk %s could not be written (%s): take another one", disk_text(online),
               blk_status_name(online->joined));
}

static void online_take_back(struct array_online *online)
{
    struct array *array = online->array;
    array->description.members[online->slot] = online->before;
    array->description.members_count -= online->adds;
    online->joining = false;
    online->wait.task.run = online_taken_back;
    array_commit(array, &online->wait);
}

static void online_committed(struct task *task)
{
    struct array_online *online = container_of(task, struct array_online, wait.task);
    struct array *array = online->array;
    if (array->frozen) {
        ONLINE_END(online, -EIO, "array %s froze before disk %s was part of it", array->description.name,
                   disk_text(online));
        return;
    }
    if (online->joined != BLK_OK) {
        online_take_back(online);
        return;
    }
    struct member *member = &array->members[online->slot];
    unsigned disks = member->disks + 1;
    member_init(member, online->slot, online->disk.dev, array->description.data_start, MEMBER_REBUILDING);
    member->disks = disks;
    array_peer_joins(array, online->slot);
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].map != NULL)
            map_store_copy(array->volumes[i].map, online->slot);
    if (array->journal != NULL)
        journal_joined(array->journal);
    array->losses.vanished &= ~slot_bit(online->slot);
    log_notice("array %s: disk %s is in slot %u and is being %s", array->description.name, disk_text(online),
               online->slot, online->catch_up ? "caught up with what it missed" : "rebuilt");
    array_members_changed(array);
    online->joining = false;
    if (online->adds)
        timer_start(array->loop, &online->look, 0);
    else
        online_end(online, 0);
}

/* A disk that was added: no volume lies on it, so it is in service as soon as it has the region maps. */
static void added_look(struct timer *timer)
{
    struct array_online *online = container_of(timer, struct array_online, look);
    const struct member *member = &online->array->members[online->slot];
    if (array_refusal(online->array) != NULL)
        ONLINE_END(online, -EBUSY, "array %s %s: disk %s is part of it, and is in service after the next start",
                   online->array->description.name, array_refusal(online->array), disk_text(online));
    else if (member_readable(member))
        online_end(online, 0);
    else if (member_writable(member))
        timer_start(online->array->loop, timer, ADDED_LOOK_NS);
    else
        ONLINE_END(online, -EIO, "disk %s failed as soon as it was part of the array", disk_text(online));
}

/* NULL: it may be caught up; or why all of it is rebuilt. */
static const char *doubt(const struct array_online *online)
{
    const struct sb_array *ours = &online->array->description;
    const struct sb_member *member = &ours->members[online->slot];
    if (online->op.verdict != SB_VALID || !uuid_equal(&online->label.member, &member->uuid))
        return "it is not the disk that was in this slot";
    if (member->missed_from == 0)
        return "what it missed is not known";
    if (strcmp(online->disk.identity, member->identity) != 0)
        return "it may be a copy of the disk that was in this slot: its serial number or path is another";
    if (!history_can_catch_up(ours, online->slot, &online->label, online->disk.identity))
        return "it is older than what is known of it, lacks the label at its end, or ran apart from the array";
    return NULL;
}

/* It holds what the others have room for. */
static bool added_fits(struct array_online *online)
{
    const struct sb_array *a = &online->array->description;
    uint64_t size = round_down(online->disk.dev->info.size, MIB), need = a->data_start + a->data_bytes;
    uint64_t least = superblock_journal_least(a->members_count + 1);
    if (superblock_tail(size) < need) {
        ONLINE_END(online, -ENOSPC,
                   "disk %s has %llu bytes: the disks of array %s have room for %llu, take a larger one",
                   disk_text(online), (unsigned long long)online->disk.dev->info.size, a->name,
                   (unsigned long long)(need + SB_TAIL_BYTES));
        return false;
    }
    if (a->journals_count == 0 || a->journals[0].bytes >= least)
        return true;
    ONLINE_END(online, -ENOSPC, "the journal device of array %s is too small for %u disks", a->name,
               a->members_count + 1);
    return false;
}

static void online_label_read(struct label_op *op)
{
    struct array_online *online = container_of(op, struct array_online, op);
    struct array *array = online->array;
    if (refuse_label(online))
        return;
    struct sb_member *member = &array->description.members[online->slot];
    if (online->adds && !added_fits(online))
        return;
    array->description.members_count += online->adds;
    bool span_of_own_size = !online->adds && array_slot_bytes(&array->description, online->slot) == member->size;
    const char *why = doubt(online);
    online->catch_up = why == NULL;
    if (why != NULL)
        log_notice("array %s: disk %s (slot %u) is rebuilt from end to end: %s", array->description.name,
                   disk_text(online), online->slot, why);
    online->before = *member;
    member->missed_from = online->catch_up ? member->missed_from : 0;
    member->vanished = false;
    member->uuid = uuid_generate(array->loop);
    sb_member_move(member, SB_REBUILDING);
    if (!span_of_own_size)
        member->size = round_down(online->disk.dev->info.size, MIB);
    text_format(member->identity, sizeof member->identity, "%s", online->disk.identity);
    online->joining = true;
    online->wait.task.run = online_committed;
    array_commit(array, &online->wait);
}

/* 1: nothing in the journal is about the disk that was here before. */
static void online_settle(struct task *task)
{
    struct array_online *online = container_of(task, struct array_online, task);
    online->task.run = online_look;
    if (online->array->journal == NULL || journal_settle(online->array->journal, &online->settled))
        loop_defer(online->array->loop, &online->task);
}

static void online_look(struct task *task)
{
    struct array_online *online = container_of(task, struct array_online, task);
    struct array *array = online->array;
    const struct blkdev *old = array->members[online->slot].dev;
    if (array->frozen) {
        ONLINE_END(online, -EIO, "array %s froze: start it again with all its disks", array->description.name);
        return;
    }
    if ((old != NULL && !blk_is_quiet(old)) || !blk_is_quiet(online->disk.dev)) {
        ONLINE_END(online, -EBUSY, "the failed disk of slot %u has not answered all requests yet: try again later",
                   online->slot);
        return;
    }
    int error =
        array_disk_fits(array, online->slot, &online->disk, online->call->message, sizeof online->call->message);
    if (error != 0) {
        online_end(online, error);
        return;
    }
    online->op = (struct label_op){.dev = online->disk.dev, .label = &online->label, .done = online_label_read};
    label_read(&online->op);
}

/* --- the call --- */

static struct array_online *online_create(struct array *array, unsigned slot, const struct array_disk *disk,
                                          struct array_call *call)
{
    struct array_online *online = calloc(1, sizeof *online);
    if (online == NULL) {
        ARRAY_CALL_END(array, call, -ENOMEM, "no memory to take disk %s in", disk->identity);
        return NULL;
    }
    *online = (struct array_online){.array = array, .call = call, .slot = slot, .disk = *disk};
    online->task.run = online_settle;
    online->settled.task = &online->task;
    online->look.fire = added_look;
    return online;
}

static void online_begin(struct array_online *online)
{
    struct array *array = online->array;
    array->online = online;
    if (losses_wait(array, &online->task))
        loop_defer(array->loop, &online->task);
}

static bool online_refused(struct array *array, unsigned slot, const struct array_disk *disk, struct array_call *call)
{
    const char *refusal = array_refusal(array);
    if (refusal == NULL && (array->online != NULL || array->removal != NULL))
        refusal = "is taking in another disk, or taking a slot away";
    if (refusal == NULL && !replace_is_over(array))
        refusal = "is replacing a disk";
    if (refusal != NULL) {
        ARRAY_CALL_END(array, call, -EBUSY, "array %s %s: disk %s was not taken in", array->description.name, refusal,
                       disk->identity);
        return true;
    }
    if (slot >= array->description.members_count) {
        ARRAY_CALL_END(array, call, -EINVAL, "array %s has no slot %u: its slots are 0 to %u", array->description.name,
                       slot, array->description.members_count - 1);
        return true;
    }
    if (member_writable(&array->members[slot])) {
        ARRAY_CALL_END(array, call, -EBUSY, "slot %u of array %s is in use: disk %s is %s there", slot,
                       array->description.name, array_disk_name(array, slot),
                       member_state_name(sm_state(&array->members[slot].state)));
        return true;
    }
    return false;
}

void array_online_member(struct array *array, unsigned slot, const struct array_disk *disk, struct array_call *call)
{
    ASSERT(disk->dev != NULL && disk->dev->loop == array->loop);
    array->calls++;
    if (online_refused(array, slot, disk, call))
        return;
    struct array_online *online = online_create(array, slot, disk, call);
    if (online != NULL)
        online_begin(online);
}

static const char *why_no_more_slots(const struct array *array)
{
    const char *refusal = array_refusal(array);
    if (refusal == NULL && (array->online != NULL || array->removal != NULL))
        refusal = "is taking in another disk, or taking a slot away";
    if (refusal == NULL && !replace_is_over(array))
        refusal = "is replacing a disk";
    if (refusal == NULL && array->description.members_count == RAID_MEMBERS_MAX)
        refusal = "has as many disks as an array can have";
    if (refusal == NULL && array->description.members_count == array->slots_room)
        refusal = "was given so many disks since it was started that it has to be started again first";
    return refusal;
}

void array_add_member(struct array *array, const struct array_disk *disk, struct array_call *call)
{
    ASSERT(disk->dev != NULL && disk->dev->loop == array->loop);
    array->calls++;
    unsigned slot = array->description.members_count;
    const char *refusal = why_no_more_slots(array);
    if (refusal != NULL) {
        ARRAY_CALL_END(array, call, -EBUSY, "array %s %s: disk %s was not added", array->description.name, refusal,
                       disk->identity);
        return;
    }
    struct array_online *online = online_create(array, slot, disk, call);
    if (online == NULL)
        return;
    online->adds = true;
    array->member_table[slot] = &array->members[slot];
    member_init(&array->members[slot], slot, NULL, array->description.data_start, MEMBER_ABSENT);
    array->description.members[slot] = (struct sb_member){0};
    online_begin(online);
}

/* --- what a slot needs --- */

static unsigned tolerance_left(const struct array *array)
{
    unsigned least = RAID_MEMBERS_MAX, lost = (unsigned)__builtin_popcountll(array_lost_slots(array));
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array_is_redundant(array, i))
            least = MIN(least, layout_tolerance(&array->volumes[i].layout));
    return least > lost ? least - lost : 0;
}

bool array_slot_need(const struct array *array, unsigned slot, struct array_slot_need *need)
{
    if (array_refusal(array) != NULL || array->online != NULL || !replace_is_over(array) || !losses_recorded(array) ||
        array->description.members[slot].state != SB_FAILED || member_writable(&array->members[slot]))
        return false;
    *need = (struct array_slot_need){.bytes = array_slot_bytes(&array->description, slot),
                                     .tolerance = tolerance_left(array)};
    for (unsigned i = 0; i < array->description.members_count; i++)
        if (member_writable(&array->members[i])) {
            need->logical_block = array->members[i].dev->info.logical_block;
            need->rotational = array->members[i].dev->info.rotational;
        }
    return true;
}

/* --- an operator gives a disk up --- */

struct forgetting {
    struct array *array;
    struct array_call *call;
    unsigned slot;
    struct commit_wait wait;
};

static void forgotten(struct task *task)
{
    struct forgetting *forgetting = container_of(task, struct forgetting, wait.task);
    struct array *array = forgetting->array;
    if (array->frozen)
        ARRAY_CALL_END(array, forgetting->call, -EIO, "array %s froze before the disk of slot %u was forgotten",
                       array->description.name, forgetting->slot);
    else
        array_call_over(array, forgetting->call, 0);
    free(forgetting);
}

static bool forget_refused(struct array *array, unsigned slot, struct array_call *call)
{
    const struct sb_array *a = &array->description;
    const char *refusal = array_refusal(array);
    const char *volume = slot < a->members_count ? volume_without_redundancy(array, slot) : NULL;
    if (refusal == NULL && array->online != NULL)
        refusal = "is taking in a disk";
    if (refusal == NULL && !losses_recorded(array))
        refusal = "is writing down a loss";
    if (refusal != NULL)
        ARRAY_CALL_END(array, call, -EBUSY, "array %s %s: no disk is forgotten", a->name, refusal);
    else if (slot >= a->members_count)
        ARRAY_CALL_END(array, call, -EINVAL, "array %s has no slot %u: its slots are 0 to %u", a->name, slot,
                       a->members_count - 1);
    else if (member_writable(&array->members[slot]))
        ARRAY_CALL_END(array, call, -EBUSY, "disk %s (slot %u of array %s) is %s: take it out of service first",
                       array_disk_name(array, slot), slot, a->name,
                       member_state_name(sm_state(&array->members[slot].state)));
    else if (volume != NULL)
        ARRAY_CALL_END(array, call, -EINVAL,
                       "volume %s has no redundancy and part of it lies on disk %s (slot %u): it would be lost", volume,
                       array_disk_name(array, slot), slot);
    else
        return false;
    return true;
}

void array_forget_member(struct array *array, unsigned slot, struct array_call *call)
{
    array->calls++;
    if (forget_refused(array, slot, call))
        return;
    struct forgetting *forgetting = calloc(1, sizeof *forgetting);
    if (forgetting == NULL) {
        ARRAY_CALL_END(array, call, -ENOMEM, "no memory to forget the disk of slot %u", slot);
        return;
    }
    *forgetting = (struct forgetting){.array = array, .call = call, .slot = slot, .wait.task.run = forgotten};
    struct sb_member *member = &array->description.members[slot];
    log_notice("array %s: disk %s of slot %u is forgotten", array->description.name, array_disk_name(array, slot),
               slot);
    member->uuid = uuid_generate(array->loop);
    member->identity[0] = '\0';
    sb_member_move(member, SB_FAILED);
    array_commit(array, &forgetting->wait);
}
