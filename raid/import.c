/* The owner of a volume that writes nothing: see raid/import.h. */
#include "raid/import.h"

#include <stdlib.h>

#include "core/check.h"
#include "core/log.h"
#include "raid/volume.h"

struct import {
    struct loop *loop;
    struct volume_owner owner;
    struct volume *volume;
    struct layout layout;
    struct bad_list bad;
    struct member members[RAID_MEMBERS_MAX], *table[RAID_MEMBERS_MAX];
    struct task changed;
    bool closing;
    struct task volume_closed, *closed;
};

/* --- what the volume asks of its owner --- */

static bool survives_without(const struct import *import, const struct member *member)
{
    uint64_t lost = UINT64_C(1) << member->slot;
    for (unsigned slot = 0; slot < import->layout.spec.members; slot++)
        lost |= (uint64_t)!member_readable(&import->members[slot]) << slot;
    return layout_survives(&import->layout, lost);
}

static void run_changed(struct task *task)
{
    struct import *import = container_of(task, struct import, changed);
    if (!import->closing)
        volume_members_changed(import->volume);
}

/* Nothing can be rewritten here, so the same bad sector is met over and over: that is no reason to do without the rest. */
static void on_error(struct volume_owner *owner, struct member *member, enum blk_op op, enum blk_status status,
                     uint64_t off)
{
    struct import *import = container_of(owner, struct import, owner);
    if (!member_readable(member))
        return;
    enum member_action action = member_error(member, op, status, off, loop_now_ns(import->loop));
    if (status == BLK_MEDIA || action == MEMBER_KEEP || !survives_without(import, member))
        return;
    log_error("import %s: disk %s in slot %u is done without: %s", volume_dev(import->volume)->name, member->dev->name,
              member->slot, blk_status_name(status));
    sm_move(&member->state, MEMBER_FAILED);
    if (!import->changed.queued)
        loop_defer(import->loop, &import->changed);
}

static bool no_change(struct volume_owner *owner, struct task *task)
{
    (void)owner, (void)task;
    UNREACHABLE("a volume that is read only wants to change something");
}

static bool nothing_to_record(struct volume_owner *owner, struct task *task)
{
    (void)owner, (void)task;
    return true;
}

static const struct volume_owner_ops owner_ops = {
    .change_begin = no_change, .member_error = on_error, .loss_recorded = nothing_to_record};

/* --- life --- */

static void members_init(struct import *import, const struct import_options *o)
{
    for (unsigned slot = 0; slot < import->layout.spec.members; slot++) {
        struct blkdev *dev = o->devs[slot];
        int disk = o->set->disk_of_slot[slot];
        ASSERT((dev != NULL) == (disk >= 0));
        member_init(&import->members[slot], slot, dev, disk >= 0 ? o->disks[disk].sb->data_start : 0,
                    dev != NULL ? MEMBER_ONLINE : MEMBER_ABSENT);
        import->table[slot] = &import->members[slot];
    }
}

static uint32_t block_of(const struct import_options *o)
{
    uint32_t block = 512;
    for (unsigned slot = 0; slot < RAID_MEMBERS_MAX; slot++)
        if (o->devs[slot] != NULL)
            block = MAX(block, o->devs[slot]->info.logical_block);
    return block;
}

struct import *import_open(struct loop *loop, const struct import_options *o)
{
    ASSERT(o->set->usable);
    struct import *import = calloc(1, sizeof *import);
    if (import == NULL)
        return NULL;
    import->loop = loop;
    import->layout = o->set->layout;
    import->bad = *o->bad;
    import->owner.ops = &owner_ops;
    import->changed.run = run_changed;
    members_init(import, o);
    uint32_t block = block_of(o);
    struct volume_options options = {.name = o->name,
                                     .layout = &import->layout,
                                     .members = import->table,
                                     .size = round_down(o->set->size, block),
                                     .logical_block = block,
                                     .read_only = true,
                                     .uuid = o->set->sb->set,
                                     .consistency = SB_RESYNC,
                                     .bad = &import->bad,
                                     .owner = &import->owner};
    import->volume = volume_open(loop, &options);
    if (import->volume != NULL)
        return import;
    free(import);
    return NULL;
}

struct blkdev *import_dev(struct import *import)
{
    return volume_dev(import->volume);
}

static void finish(struct task *task)
{
    struct import *import = container_of(task, struct import, volume_closed);
    loop_defer(import->loop, import->closed);
    free(import);
}

void import_close(struct import *import, struct task *closed)
{
    import->closing = true;
    import->closed = closed;
    import->volume_closed.run = finish;
    blk_close(volume_dev(import->volume), &import->volume_closed);
}

void import_info(const struct import *import, struct import_info *info)
{
    const struct volume *v = import->volume;
    *info = (struct import_info){.state = volume_failed(v)     ? "failed"
                                          : volume_degraded(v) ? "degraded"
                                                               : "optimal",
                                 .members_count = import->layout.spec.members};
    for (unsigned slot = 0; slot < info->members_count; slot++) {
        const struct member *member = &import->members[slot];
        info->members[slot] = (struct import_member_info){
            member_state_name((enum member_state)sm_state(&member->state)), member->read_errors};
    }
}
