/*
 * A slot less: the last one, on which no volume lies.
 *
 *   1. In memory nobody writes to its disk any more.
 *   2. The description without the slot, on all others, with a new fork: what stands on the disk is history from now on.
 *   3. The disk has answered all its requests; its label is erased, if it takes that; it is lent no more.
 *
 * Cut off before 2 the slot is there as ever; after it the disk is no member, whether its label is gone or not.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/log.h"
#include "raid/array_impl.h"
#include "raid/relayout.h"

#define LOOK_NS 1000000ull

struct array_removal {
    struct array *array;
    struct array_call *call;
    unsigned slot;
    struct blkdev *dev; /* NULL: the slot had none */
    struct sb_label label;
    struct label_op op;
    struct commit_wait wait;
    struct timer look;
};

static void removal_end(struct array_removal *removal, int error)
{
    struct array *array = removal->array;
    array->removal = NULL;
    if (error == 0)
        array->members[removal->slot].dev = NULL;
    else
        text_format(removal->call->message, sizeof removal->call->message,
                    "array %s froze: it is not known whether slot %u is gone", array->description.name, removal->slot);
    array_call_over(array, removal->call, error);
    free(removal);
}

static void erased(struct label_op *op)
{
    struct array_removal *removal = container_of(op, struct array_removal, op);
    if (op->status != BLK_OK)
        log_warn("array %s: the disk of slot %u, which is no member any more, cannot be erased (%s)",
                 removal->array->description.name, removal->slot, blk_status_name(op->status));
    removal_end(removal, 0);
}

static void look(struct timer *timer)
{
    struct array_removal *removal = container_of(timer, struct array_removal, look);
    if (removal->dev == NULL) {
        removal_end(removal, 0);
    } else if (!blk_is_quiet(removal->dev)) {
        timer_start(removal->array->loop, timer, LOOK_NS);
    } else {
        removal->op = (struct label_op){.dev = removal->dev, .label = &removal->label, .done = erased};
        label_erase(&removal->op);
    }
}

static void committed(struct task *task)
{
    struct array_removal *removal = container_of(task, struct array_removal, wait.task);
    if (removal->array->frozen)
        removal_end(removal, -EIO);
    else
        timer_start(removal->array->loop, &removal->look, 0);
}

/* A volume that lies there; NULL: none does. */
static const char *volume_there(const struct sb_array *a, unsigned slot)
{
    for (unsigned i = 0; i < a->volumes_count; i++) {
        const struct sb_volume *v = &a->volumes[i];
        if (v->spec.level == RAID_JBOD ? v->slot == slot : v->spec.members > slot)
            return v->name;
    }
    return NULL;
}

static const char *not_now(const struct array *array)
{
    const char *refusal = array_refusal(array);
    if (refusal == NULL && (array->online != NULL || array->removal != NULL || !replace_is_over(array)))
        refusal = "is taking a disk into service, or out of it";
    if (refusal == NULL && array->relayout != NULL)
        refusal = "is moving a volume";
    if (refusal == NULL && !losses_recorded(array))
        refusal = "is writing down that a disk is lost";
    return refusal;
}

/* True, and the call is over. */
static bool refused(struct array *array, struct array_call *call)
{
    const struct sb_array *a = &array->description;
    const char *refusal = not_now(array), *volume = volume_there(a, a->members_count - 1);
    if (refusal != NULL)
        ARRAY_CALL_END(array, call, -EBUSY, "array %s %s: wait for that", a->name, refusal);
    else if (a->members_count == 1)
        ARRAY_CALL_END(array, call, -EINVAL, "array %s has one disk only", a->name);
    else if (volume != NULL)
        ARRAY_CALL_END(array, call, -EBUSY,
                       "volume %s lies on slot %u, the last one of array %s: move it to fewer disks", volume,
                       a->members_count - 1, a->name);
    else
        return false;
    return true;
}

static void slot_leaves(struct array *array, unsigned slot)
{
    struct sb_array *a = &array->description;
    struct member *member = &array->members[slot];
    array_peer_leaves(array, slot);
    if (member_writable(member))
        sm_move(&member->state, MEMBER_FAILED);
    rebuild_member_lost(array, slot);
    (void)bad_clear(&a->bad, slot, 0, UINT64_MAX / 2); /* all of a slot: this makes the list no longer */
    array->losses.vanished &= ~slot_bit(slot);
    a->members[slot] = (struct sb_member){0};
    a->members_count--;
    array->commit.fork_wanted = true;
    array_members_changed(array);
}

void array_remove_member(struct array *array, struct array_call *call)
{
    array->calls++;
    if (refused(array, call))
        return;
    struct array_removal *removal = calloc(1, sizeof *removal);
    if (removal == NULL) {
        ARRAY_CALL_END(array, call, -ENOMEM, "no memory to take a slot away");
        return;
    }
    unsigned slot = array->description.members_count - 1;
    *removal = (struct array_removal){
        .array = array, .call = call, .slot = slot, .wait.task.run = committed, .look.fire = look};
    removal->dev = array->members[slot].dev;
    removal->label = (struct sb_label){.array = array->description, .slot = slot};
    array->removal = removal;
    log_notice("array %s: slot %u (disk %s) is taken away: no volume lies there", array->description.name, slot,
               array_disk_name(array, slot));
    slot_leaves(array, slot);
    array_commit(array, &removal->wait);
}
