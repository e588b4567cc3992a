/*
 * The log of a relayout: the new side's layout over the headroom of the members, as a volume that nobody but the steps
 * uses. See raid/relayout_job.h.
 *
 * A step begins with rows that are UNWRITTEN: so the first write of each fills all of it, and what lay there before, or is
 * on a disk that was away, has no part in its redundancy.
 *
 * Its map is in memory only, and no job looks at it. What rows hold counts when the description says so: they were flushed
 * before, and are DIRTY after a start. It is read as rows are, also without a member, as far as the new shape bears that. The list of bad
 * blocks is about the data area, and takes none from here: a log that a member does not take is one that failed, and its
 * step is not made.
 */
#include <errno.h>

#include "core/log.h"
#include "raid/relayout_job.h"

static struct volume_owner *array_owner(struct volume_owner *owner)
{
    return &container_of(owner, struct array_relayout, log_owner)->array->owner;
}

static bool change_begin(struct volume_owner *owner, struct task *task)
{
    return array_owner_ops.change_begin(array_owner(owner), task);
}

static void change_end(struct volume_owner *owner)
{
    array_owner_ops.change_end(array_owner(owner));
}

static void member_error_of(struct volume_owner *owner, struct member *member, enum blk_op op, enum blk_status status,
                            uint64_t off)
{
    array_owner_ops.member_error(array_owner(owner), member, op, status, off);
}

static void member_corrected(struct volume_owner *owner, struct member *member, uint64_t off, uint64_t len)
{
    array_owner_ops.member_corrected(array_owner(owner), member, off, len);
}

static bool loss_recorded(struct volume_owner *owner, struct task *task)
{
    return array_owner_ops.loss_recorded(array_owner(owner), task);
}

static bool bad_change(struct volume_owner *owner, struct member *member, uint64_t start, uint64_t len, bool bad)
{
    (void)owner;
    (void)member;
    (void)start;
    (void)len;
    return !bad;
}

static void region_change(struct volume_owner *owner, struct region_map *map, struct region_change *change)
{
    struct array_relayout *r = container_of(owner, struct array_relayout, log_owner);
    region_set(map, change->region, change->to);
    change->over = true;
    loop_defer(r->array->loop, change->task);
}

static const struct volume_owner_ops log_owner_ops = {.change_begin = change_begin,
                                                      .change_end = change_end,
                                                      .member_error = member_error_of,
                                                      .member_corrected = member_corrected,
                                                      .loss_recorded = loss_recorded,
                                                      .bad_change = bad_change,
                                                      .region_change = region_change};

static bool map_init(struct array_relayout *r, const struct layout *layout)
{
    if (layout->redundancy == 0)
        return true;
    if (!region_map_init(&r->log_map, layout->rows))
        return false;
    for (uint64_t row = 0; row < layout->rows; row++)
        region_set(&r->log_map, row, REGION_DIRTY);
    return true;
}

void relayout_log_begin(struct array_relayout *r)
{
    for (uint64_t row = 0; r->log_map.regions > 0 && row < r->step.rows; row++)
        region_set(&r->log_map, row, REGION_UNWRITTEN);
}

int relayout_log_open(struct array_relayout *r, char *why, size_t why_len)
{
    struct array *array = r->array;
    const struct sb_volume *new = &array->description.volumes[r->new];
    struct relayout_shape shape;
    if (r->shapes.log == 0)
        return 0;
    relayout_log_shape(&r->shapes, new->relayout.log_start, &shape);
    static const struct bad_list none;
    r->log_owner.ops = &log_owner_ops;
    struct volume_options options = {.name = new->name,
                                     .layout = &shape.layout,
                                     .first_slot = new->spec.level == RAID_JBOD ? new->slot : 0,
                                     .members = array->member_table,
                                     /* before the data area: offsets wrap */
                                     .start = new->relayout.log_start - array->description.data_start,
                                     .size = shape.layout.rows *shape.layout.row_data,
                                     .logical_block = new->logical_block,
                                     .uuid = *sb_volume_key(new),
                                     .consistency = SB_RESYNC,
                                     .bad = &none,
                                     .owner = &r->log_owner};
    if (map_init(r, &shape.layout)) {
        options.map = shape.layout.redundancy > 0 ? &r->log_map : NULL;
        r->log = volume_open(array->loop, &options);
    }
    if (r->log != NULL)
        return 0;
    region_map_fini(&r->log_map);
    text_format(why, why_len, "no memory for the log of the relayout of volume %s", new->name);
    return -ENOMEM;
}

void relayout_log_undo(struct array_relayout *r)
{
    if (r->log == NULL)
        return;
    volume_undo(r->log);
    region_map_fini(&r->log_map);
    r->log = NULL;
}
