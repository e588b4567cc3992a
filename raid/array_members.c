/*
 * Losing members.
 *
 * What happens when a disk is too much trouble, or an operator takes it out:
 *
 *   1. In memory it is FAILED at once: rows plan without it, reads are reconstructed, and no write is acknowledged any
 *      more (losses_wait).
 *   2. A disk that does not answer gets half a second in which others may follow, and then the others are asked (with a
 *      flush) whether they are still there. Nothing is written to any member's label in that time (C3). An operator's
 *      decision, or a disk that answers with write errors, needs no such time.
 *   3. The loss goes into the description, with a new fork, and when that stands on the other members the writes that
 *      waited are acknowledged.
 *
 * L1  A loss is on disk on all live members before a write that it missed is acknowledged.
 * L2  Several disks that vanish within a second, without which a volume cannot go on, are one cable: the array freezes.
 *     Nothing is written any more and none of them is marked failed, so when they are back the array is complete.
 * L3  A loss that would leave no volume alive freezes the array as well: written down, it would only keep the disk out
 *     when it comes back, and there is nobody left whom it could serve.
 * L4  A disk that still answers, but refuses a write, stays if a volume would fail without it: one block that cannot be
 *     written is better than no volume.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/log.h"
#include "raid/array_impl.h"
#include "raid/relayout_job.h"

#define SETTLE_NS 500000000ull  /* how long a loss waits for others */
#define BURST_NS  1000000000ull /* losses this close to each other are one */

const char *array_disk_name(const struct array *array, unsigned slot)
{
    const char *identity = array->description.members[slot].identity;
    if (identity[0] != '\0')
        return identity;
    return array->members[slot].dev != NULL ? array->members[slot].dev->name : "(unknown)";
}

/* --- what is left --- */

uint64_t array_lost_slots(const struct array *array)
{
    uint64_t lost = 0;
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (!member_readable(&array->members[slot]))
            lost |= slot_bit(slot);
    return lost;
}

uint64_t array_live_slots(const struct array *array)
{
    uint64_t slots = 0;
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (member_writable(&array->members[slot]))
            slots |= slot_bit(slot);
    return slots;
}

static bool is_last(const struct array *array, unsigned slot)
{
    return array_live_slots(array) == slot_bit(slot);
}

static bool layout_bears(const struct array *array, unsigned volume, uint64_t lost)
{
    const struct sb_volume *v = &array->description.volumes[volume];
    if (v->spec.level == RAID_JBOD)
        lost = lost >> v->slot & 1;
    return layout_survives(&array->volumes[volume].layout, lost);
}

/* Both sides of a relayout are one volume, as far as they hold something of it. */
bool array_survives(const struct array *array, unsigned volume, uint64_t lost)
{
    unsigned sides[2];
    bool all = true;
    if (!relayout_sides(array, volume, sides))
        return layout_bears(array, volume, lost);
    for (unsigned i = 0; i < 2; i++)
        all = all && (sides[i] == SB_VOLUMES_MAX || layout_bears(array, sides[i], lost));
    return all;
}

static unsigned volumes_alive(const struct array *array, uint64_t lost)
{
    unsigned alive = 0;
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        alive += array_survives(array, i, lost);
    return alive;
}

/* The first volume that is alive without `before` and not without `after`; or none: the count. */
static unsigned volume_that_falls(const struct array *array, uint64_t before, uint64_t after)
{
    unsigned i = 0;
    while (i < array->description.volumes_count &&
           (!array_survives(array, i, before) || array_survives(array, i, after)))
        i++;
    return i;
}

static bool some_volume_falls(const struct array *array, uint64_t before, uint64_t after)
{
    return volume_that_falls(array, before, after) < array->description.volumes_count;
}

/* --- telling --- */

static void members_changed(struct task *task)
{
    struct array *array = container_of(task, struct array, members_changed);
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].volume != NULL)
            volume_members_changed(array->volumes[i].volume);
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].map != NULL)
            map_store_stir(array->volumes[i].map);
    jobs_members_changed(array);
    relayout_members_changed(array);
    array_step(array);
}

/*
 * Volumes know at once who can be read; the rest from the ready list: a row may be in the middle of telling us about an
 * error.
 */
void array_members_changed(struct array *array)
{
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].volume != NULL)
            volume_recount(array->volumes[i].volume);
    relayout_recount(array);
    if (!array->members_changed.queued)
        loop_defer(array->loop, &array->members_changed);
}

/* --- slow disks --- */

static void peer_changed(struct peers *peers, struct peer *peer)
{
    struct array *array = container_of(peers, struct array, peers);
    struct blkdev *dev = patience_peer_dev(peer);
    for (unsigned slot = 0; slot < array->description.members_count; slot++) {
        struct member *member = &array->members[slot];
        if (member->dev != dev)
            continue;
        member->slow = peer->slow;
        if (peer->slow)
            log_warn("array %s: disk %s (slot %u) takes more than twice as long as its peers: it is avoided for reads "
                     "where there is a choice; look at its health, and replace it if this goes on",
                     array->description.name, array_disk_name(array, slot), slot);
        else
            log_notice("array %s: disk %s (slot %u) is as fast as its peers again", array->description.name,
                       array_disk_name(array, slot), slot);
    }
}

void array_peer_joins(struct array *array, unsigned slot)
{
    struct blkdev *dev = array->members[slot].dev;
    struct peer *peer = dev != NULL ? patience_peer(dev) : NULL;
    if (peer != NULL)
        peers_join(&array->peers, peer);
}

void array_peer_leaves(struct array *array, unsigned slot)
{
    struct blkdev *dev = array->members[slot].dev;
    struct peer *peer = dev != NULL ? patience_peer(dev) : NULL;
    if (peer != NULL)
        peers_leave(peer);
}

/* --- freeze --- */

void array_stop_writing(struct array *array)
{
    array->frozen = true;
    timer_stop(array->loop, &array->losses.settle);
    replace_stop(array, "the array froze or was given up");
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (member_writable(&array->members[slot]))
            sm_move(&array->members[slot].state, MEMBER_FAILED);
    array_members_changed(array); /* first: who is woken finds the volumes failed */
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].map != NULL)
            map_store_frozen(array->volumes[i].map);
    if (array->journal != NULL)
        journal_frozen(array->journal);
    commit_frozen(array);
    activity_frozen(array);
    losses_committed(array);
    relayout_frozen(array);
}

static void freeze(struct array *array, unsigned slot)
{
    uint64_t vanished = array->losses.pending | slot_bit(slot);
    for (unsigned i = 0; i < array->description.members_count; i++)
        if (vanished & slot_bit(i))
            log_error("array %s: disk %s (slot %u) does not answer", array->description.name, array_disk_name(array, i),
                      i);
    log_error("array %s: frozen, since too few disks are left. Nothing is written to any disk and none is marked "
              "failed: bring the disks back (look at cables and enclosures) and start the array again",
              array->description.name);
    array_stop_writing(array);
}

/* --- lose --- */

/* All live members have had it. */
static uint64_t sure_generation(const struct array *array)
{
    return MAX(array->description.committed, array->commit.committed);
}

static bool no_answer(enum blk_status status)
{
    return status == BLK_GONE || status == BLK_TIMEOUT;
}

/* Within a second, or not written down yet: time-outs of one cable may be far apart. */
static uint64_t vanished_lately(const struct array *array)
{
    const struct array_losses *losses = &array->losses;
    uint64_t lately = losses->vanished & losses->pending, now = loop_now_ns(array->loop);
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if ((losses->vanished & slot_bit(slot)) && now - losses->lost_ns[slot] <= BURST_NS)
            lately |= slot_bit(slot);
    return lately;
}

static bool must_freeze(const struct array *array, unsigned slot, enum blk_status status)
{
    uint64_t before = array_lost_slots(array), after = before | slot_bit(slot);
    bool last = is_last(array, slot);
    bool none_left = volumes_alive(array, before) > 0 && volumes_alive(array, after) == 0; /* L3 */
    uint64_t lately = vanished_lately(array);
    bool burst = no_answer(status) && lately != 0 && some_volume_falls(array, before & ~lately, after); /* L2 */
    return last || none_left || burst;
}

static void losses_record(struct array *array)
{
    struct array_losses *losses = &array->losses;
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (losses->pending & slot_bit(slot))
            sb_member_move(&array->description.members[slot], SB_FAILED);
    losses->pending = 0;
    losses->generation = array->description.generation + 1;
    array->commit.fork_wanted = true;
    array_commit(array, NULL);
}

void losses_settle_now(struct array *array)
{
    timer_stop(array->loop, &array->losses.settle);
    if (array->losses.pending != 0)
        losses_record(array);
}

/* All that are to follow have: whoever did not answer the flush is lost by now. */
static void losses_probed(struct array_flush *probe)
{
    struct array *array = probe->array;
    if (!array->frozen && array->losses.pending != 0)
        losses_record(array);
    array_step(array);
}

static void losses_settled(struct timer *timer)
{
    struct array *array = container_of(timer, struct array, losses.settle);
    if (array->losses.probe.pending == 0)
        array_flush_start(array, &array->losses.probe, losses_probed);
}

/* Some row may differ on a member that is lost now, and the region map does not say which. */
static bool something_unmarked(const struct array *array)
{
    if (sm_state(&array->state) == ARRAY_OPENING && !array_maps_tell(&array->description))
        return true;
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (array->volumes[i].volume != NULL && volume_unmarked(array->volumes[i].volume))
            return true;
    return false;
}

/*
 * In memory, now; the description follows. What it may lack from now on stands in the region maps; and if it was being
 * rebuilt, what it lacks already does only if it was being caught up.
 */
static void mark_failed(struct array *array, unsigned slot, bool vanished)
{
    struct array_losses *losses = &array->losses;
    struct sb_member *member = &array->description.members[slot];
    bool whole = sm_state(&array->members[slot].state) == MEMBER_ONLINE;
    bool known = (whole || member->missed_from != 0) && !something_unmarked(array);
    member->missed_from = known ? sure_generation(array) : 0;
    member->vanished = vanished;
    sm_move(&array->members[slot].state, MEMBER_FAILED);
    array_peer_leaves(array, slot);
    losses->pending |= slot_bit(slot);
    losses->lost_ns[slot] = loop_now_ns(array->loop);
    losses->vanished &= ~slot_bit(slot);
    rebuild_member_lost(array, slot);
    replace_member_lost(array, slot);
    array_members_changed(array);
}

void array_member_lose(struct array *array, struct member *member, enum blk_status status)
{
    struct array_losses *losses = &array->losses;
    if (array->frozen)
        return;
    if (must_freeze(array, member->slot, status)) {
        freeze(array, member->slot);
        return;
    }
    mark_failed(array, member->slot, no_answer(status));
    log_error("array %s: disk %s (slot %u) failed (%s), and %u of %u volumes go on without it: replace it",
              array->description.name, array_disk_name(array, member->slot), member->slot, blk_status_name(status),
              volumes_alive(array, array_lost_slots(array)), array->description.volumes_count);
    if (no_answer(status))
        losses->vanished |= slot_bit(member->slot);
    if (losses->settle.armed || losses->probe.pending > 0)
        return; /* it goes with the others */
    if (no_answer(status))
        timer_start(array->loop, &losses->settle, SETTLE_NS);
    else
        losses_record(array);
}

void array_member_trouble(struct array *array, struct member *member, enum blk_op op, enum blk_status status,
                          uint64_t off)
{
    if (replace_is_target(array, member))
        replace_target_failed(array, status);
    if (array->frozen || replace_is_target(array, member) || !member_writable(member))
        return;
    if (member_error(member, op, status, off, loop_now_ns(array->loop)) == MEMBER_KEEP ||
        (op == BLK_READ && status == BLK_MEDIA && replace_needs(array, member->slot)))
        return;
    uint64_t lost = array_lost_slots(array);
    if (!no_answer(status) && some_volume_falls(array, lost, lost | slot_bit(member->slot))) { /* L4 */
        array_members_changed(array); /* what the write spoiled is resynchronised */
        return;
    }
    array_member_lose(array, member, status);
}

/* --- who waits for losses to be on disk --- */

void losses_init(struct array *array)
{
    STAILQ_INIT(&array->losses.waiting);
    array->losses.settle.fire = losses_settled;
    array->members_changed.run = members_changed;
    peers_init(&array->peers, PEERS_WINDOW_NS, peer_changed);
}

bool losses_recorded(const struct array *array)
{
    return array->losses.pending == 0 && array->commit.committed >= array->losses.generation;
}

void losses_committed(struct array *array)
{
    struct task *task;
    if (!losses_recorded(array) && !array->frozen)
        return;
    while ((task = STAILQ_FIRST(&array->losses.waiting)) != NULL) {
        STAILQ_REMOVE_HEAD(&array->losses.waiting, link);
        loop_defer(array->loop, task);
    }
}

bool losses_wait(struct array *array, struct task *task)
{
    if (losses_recorded(array) || array->frozen)
        return true;
    STAILQ_INSERT_TAIL(&array->losses.waiting, task, link);
    return false;
}

/* --- what the volumes call --- */

static struct array *owner_array(struct volume_owner *owner)
{
    return container_of(owner, struct array, owner);
}

static bool owner_change_begin(struct volume_owner *owner, struct task *task)
{
    return activity_begin(owner_array(owner), task);
}

static void owner_change_end(struct volume_owner *owner)
{
    activity_end(owner_array(owner));
}

static void owner_region_change(struct volume_owner *owner, struct region_map *map, struct region_change *change)
{
    (void)owner; /* the map's store knows its array */
    map_store_change(map, change);
}

static void owner_member_error(struct volume_owner *owner, struct member *member, enum blk_op op,
                               enum blk_status status, uint64_t off)
{
    flight_note("member error", member->slot, off);
    array_member_trouble(owner_array(owner), member, op, status, off);
}

static void owner_member_corrected(struct volume_owner *owner, struct member *member, uint64_t off, uint64_t len)
{
    (void)owner;
    flight_note("member corrected", off, len);
    member->corrected++;
}

static void owner_row_written(struct volume_owner *owner, const struct region_map *map, uint64_t row)
{
    rebuild_row_written(owner_array(owner), map, row);
}

/* The change goes to disk like a loss, and whoever waits for losses waits for it. */
static bool owner_bad_change(struct volume_owner *owner, struct member *member, uint64_t start, uint64_t len, bool bad)
{
    struct array *array = owner_array(owner);
    struct bad_list *list = &array->description.bad;
    unsigned before = list->count;
    flight_note(bad ? "bad blocks" : "bad blocks no more", start, len);
    if (!(bad ? bad_add : bad_clear)(list, member->slot, start, len)) {
        log_error(
            "array %s: the list of bad blocks is full: %llu bytes of disk %s (slot %u) cannot be recorded; replace "
            "the disk that has most of them",
            array->description.name, (unsigned long long)len, array_disk_name(array, member->slot), member->slot);
        return false;
    }
    if (bad && list->count > before)
        log_warn(
            "array %s: %llu bytes at %llu of the data of disk %s (slot %u) are bad: lost or stale until overwritten",
            array->description.name, (unsigned long long)len, (unsigned long long)start,
            array_disk_name(array, member->slot), member->slot);
    array->losses.generation = array->description.generation + 1;
    array_commit(array, NULL);
    return true;
}

static bool owner_loss_recorded(struct volume_owner *owner, struct task *task)
{
    return losses_wait(owner_array(owner), task);
}

static void owner_journal_write(struct volume_owner *owner, struct journal_record *record)
{
    journal_write(owner_array(owner)->journal, record);
}

static void owner_journal_written(struct volume_owner *owner, struct journal_record *record)
{
    journal_written(owner_array(owner)->journal, record);
}

static bool owner_journal_forget(struct volume_owner *owner, const struct uuid *volume, uint64_t row,
                                 struct journal_wait *wait)
{
    return journal_forget(owner_array(owner)->journal, volume, row, wait);
}

const struct volume_owner_ops array_owner_ops = {
    .change_begin = owner_change_begin,
    .change_end = owner_change_end,
    .member_error = owner_member_error,
    .member_corrected = owner_member_corrected,
    .bad_change = owner_bad_change,
    .loss_recorded = owner_loss_recorded,
    .region_change = owner_region_change,
    .journal_write = owner_journal_write,
    .journal_written = owner_journal_written,
    .journal_forget = owner_journal_forget,
    .row_written = owner_row_written,
};

/* --- an operator takes a member out --- */

struct removal {
    struct array *array;
    struct array_call *call;
    unsigned slot;
    struct task task;
};

static void removal_over(struct task *task)
{
    struct removal *removal = container_of(task, struct removal, task);
    struct array *array = removal->array;
    if (array->frozen)
        ARRAY_CALL_END(array, removal->call, -EIO, "array %s froze before disk %s (slot %u) was marked failed",
                       array->description.name, array_disk_name(array, removal->slot), removal->slot);
    else
        array_call_over(array, removal->call, 0);
    free(removal);
}

/* True, and the call is over, if the member must stay. */
static bool removal_refused(struct array *array, unsigned slot, struct array_call *call)
{
    const struct sb_array *a = &array->description;
    const char *refusal = array_refusal(array);
    if (refusal != NULL) {
        ARRAY_CALL_END(array, call, -EBUSY, "array %s %s: no disk can be taken out", a->name, refusal);
        return true;
    }
    if (slot >= a->members_count) {
        ARRAY_CALL_END(array, call, -EINVAL, "array %s has no slot %u: its slots are 0 to %u", a->name, slot,
                       a->members_count - 1);
        return true;
    }
    const struct member *member = &array->members[slot];
    if (!member_writable(member)) {
        ARRAY_CALL_END(array, call, -EINVAL, "disk %s (slot %u) is %s already", array_disk_name(array, slot), slot,
                       member_state_name(sm_state(&member->state)));
        return true;
    }
    uint64_t before = array_lost_slots(array);
    unsigned volume = volume_that_falls(array, before, before | slot_bit(slot));
    if (volume < a->volumes_count) {
        ARRAY_CALL_END(array, call, -EBUSY, "volume %s (%s) of array %s would fail without disk %s (slot %u): %s",
                       a->volumes[volume].name, raid_level_name(a->volumes[volume].spec.level), a->name,
                       array_disk_name(array, slot), slot,
                       before != 0 ? "bring the missing disks online first" : "move its data elsewhere first");
        return true;
    }
    if (is_last(array, slot)) {
        ARRAY_CALL_END(array, call, -EBUSY, "disk %s (slot %u) is the last one of array %s",
                       array_disk_name(array, slot), slot, a->name);
        return true;
    }
    return false;
}

void array_fail_member(struct array *array, unsigned slot, struct array_call *call)
{
    array->calls++;
    if (removal_refused(array, slot, call))
        return;
    struct removal *removal = calloc(1, sizeof *removal);
    if (removal == NULL) {
        ARRAY_CALL_END(array, call, -ENOMEM, "no memory to take disk %s out", array_disk_name(array, slot));
        return;
    }
    *removal = (struct removal){.array = array, .call = call, .slot = slot, .task.run = removal_over};
    mark_failed(array, slot, false);
    log_warn(
        "array %s: disk %s (slot %u) taken out of service by hand: the array is degraded until a disk is put online "
        "in its place",
        array->description.name, array_disk_name(array, slot), slot);
    losses_settle_now(array);
    if (losses_wait(array, &removal->task))
        loop_defer(array->loop, &removal->task);
}

/* Once its loss is on disk no label is written to it any more; so a disk that is silent then stays silent. */
const char *array_take_back_disk(struct array *array, unsigned slot, char *why, size_t why_len)
{
    struct member *member = &array->members[slot];
    const char *what = NULL;
    ASSERT(slot < array->description.members_count);
    if (array_refusal(array) != NULL)
        what = "cannot be replaced: the array is frozen or being closed";
    else if (member_writable(member))
        what = "is in service already";
    else if (member->dev != NULL && (!blk_is_quiet(member->dev) || !losses_recorded(array)))
        what = "has not answered all requests yet: try again later";
    if (what == NULL) {
        member->dev = NULL;
        return NULL;
    }
    text_format(why, why_len, "disk %s (slot %u of array %s) %s", array_disk_name(array, slot), slot,
                array->description.name, what);
    return why;
}
