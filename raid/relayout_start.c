/*
 * The beginning of a relayout: what is asked for becomes a plan, the plan an entry of the description, and the entry a
 * volume that is the new side.
 *
 *   plan        raid/relayout_plan.h, with the room that there is beside the volume, and the headroom for a log
 *   describe    the new side's entry: its place, its policy, a place for its region map, the log; superblock_check()
 *   start       its layout and map in memory; the map on the members; the description; then the front has two sides
 *
 * The new side has an UUID of its own, and is written under it for good. Until the description says that it is there it
 * is nothing: a start that fails, or is cut off, leaves a volume as it was.
 *
 * Who calls: array_relayout_plan() anybody, array_relayout_start() the array's user.
 */
#include "raid/relayout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "raid/array_impl.h"
#include "raid/relayout_job.h"
#include "raid/relayout_plan.h"

#define LOG_SHORT (16 * MIB) /* of each member: a step that is not too long to wait for */

#define SAY(why, why_len, ...) (text_format(why, why_len, __VA_ARGS__), (const char *)(why))

/* --- plan --- */

static uint64_t end_of(const struct sb_volume *v)
{
    return v->extent != 0 ? v->start + v->extent : UINT64_MAX;
}

/* Where the new shape may lie, in the data area. NULL, or why there is no such place. */
static const char *room_find(const struct sb_array *a, const struct sb_volume *v, uint64_t *low, uint64_t *high,
                             char *why, size_t why_len)
{
    *low = 0;
    *high = round_down(a->data_bytes, MIB);
    for (unsigned i = 0; i < a->volumes_count; i++) {
        const struct sb_volume *other = &a->volumes[i];
        if (other == v)
            continue;
        if (end_of(other) <= v->start)
            *low = MAX(*low, end_of(other));
        else if (other->start >= end_of(v))
            *high = MIN(*high, other->start);
        else
            return SAY(why, why_len, "volume %s lies beside volume %s, on other disks: that one has to be moved first",
                       other->name, v->name);
    }
    *high = MAX(*high, v->extent != 0 ? end_of(v) : *high);
    return NULL;
}

static struct layout_spec spec_complete(const struct sb_array *a, const struct sb_volume *v,
                                        const struct array_relayout_spec *spec)
{
    struct layout_spec to = spec->layout;
    if (to.members == 0)
        to.members = to.level == RAID_JBOD ? 1 : a->members_count;
    if (to.chunk == 0)
        to.chunk = to.level == RAID_3 || to.level == RAID_30 ? 4096 : v->spec.chunk;
    return to;
}

static uint64_t slots_before(const struct sb_volume *v)
{
    return v->spec.level == RAID_JBOD ? (1ull << v->slot) - 1 : v->without;
}

static const char *plan_with_log(const struct sb_array *a, const struct sb_volume *v, uint64_t lost,
                                 const struct layout_spec *to, uint64_t log, struct relayout_plan *plan, char *why,
                                 size_t why_len)
{
    uint64_t low, high, end[RAID_MEMBERS_MAX] = {0};
    const char *wrong = room_find(a, v, &low, &high, why, why_len);
    if (wrong != NULL)
        return wrong;
    for (unsigned slot = 0; slot < a->members_count; slot++)
        end[slot] = superblock_tail(a->members[slot].size);
    struct relayout_request q = {.from = v->spec,
                                 .to = *to,
                                 .from_without = slots_before(v),
                                 .to_without = to->level == RAID_JBOD ? slots_before(v) : 0,
                                 .size = v->size,
                                 .start = a->data_start + v->start,
                                 .extent = v->extent != 0 ? v->extent : high - v->start,
                                 .low = a->data_start + low,
                                 .high = a->data_start + high,
                                 .end = end,
                                 .lost = lost,
                                 .window = RELAYOUT_WINDOW,
                                 .log = log};
    wrong = relayout_plan(&q, plan);
    return wrong != NULL ? SAY(why, why_len, "volume %s: %s", v->name, wrong) : NULL;
}

/* --- describe --- */

static const char *policy_for(const struct sb_volume *old, const struct array_relayout_spec *spec,
                              const struct layout *to, enum sb_consistency *policy, char *why, size_t why_len)
{
    *policy = spec->consistency_given ? spec->consistency : old->consistency;
    const char *wrong = superblock_consistency_check(to, *policy);
    if (wrong == NULL && !spec->consistency_given && old->consistency == SB_RESYNC && to->redundancy > 0)
        *policy = superblock_consistency_for(to);
    if (wrong == NULL)
        return NULL;
    if (spec->consistency_given)
        return SAY(why, why_len, "volume %s cannot have the consistency policy %s: %s", old->name,
                   sb_consistency_name(*policy), wrong);
    *policy = superblock_consistency_for(to);
    return NULL;
}

static void entry_fill(const struct sb_array *a, const struct sb_volume *old, const struct relayout_plan *plan,
                       struct sb_volume *new)
{
    const struct relayout *r = &plan->relayout;
    bool jbod = r->to.layout.spec.level == RAID_JBOD;
    new->spec = r->to.layout.spec;
    new->slot = jbod ? r->to.slot[0] : 0;
    new->start = r->to.start - a->data_start;
    new->extent = plan->extent;
    new->size = old->size;
    new->logical_block = old->logical_block;
    new->relayout = (struct sb_relayout){.from = old->uuid,
                                         .backward = r->backward,
                                         .position = relayout_begin(r),
                                         .logged = relayout_begin(r),
                                         .log_start = r->log > 0 ? a->headroom_start : 0,
                                         .log_bytes = r->log};
    text_format(new->name, sizeof new->name, "%s", old->name);
}

/* With the short log, or else with all the headroom. */
static const char *plan_find(const struct sb_array *a, const struct sb_volume *v, uint64_t lost,
                             const struct layout_spec *to, struct relayout_plan *plan, char *why, size_t why_len)
{
    uint64_t all = round_down(a->headroom_bytes, MIB), log = MIN(LOG_SHORT, all);
    const char *wrong = plan_with_log(a, v, lost, to, log, plan, why, why_len);
    return wrong != NULL && log < all ? plan_with_log(a, v, lost, to, all, plan, why, why_len) : wrong;
}

/* The new side behind the volumes of `a`. NULL, or why not; then `a` is as it was. */
static const char *describe(struct sb_array *a, unsigned volume, uint64_t lost, const struct uuid *uuid,
                            const struct array_relayout_spec *spec, struct relayout_plan *plan, char *why,
                            size_t why_len)
{
    const struct sb_volume *old = &a->volumes[volume];
    struct layout_spec to = spec_complete(a, old, spec);
    for (unsigned i = 0; i < a->volumes_count; i++)
        if (array_volume_is_new_side(&a->volumes[i]))
            return SAY(why, why_len, "volume %s is being moved already: one at a time", a->volumes[i].name);
    if (a->volumes_count == SB_VOLUMES_MAX)
        return SAY(why, why_len, "array %s has %d volumes: there is no place for another side of one", a->name,
                   SB_VOLUMES_MAX);
    if (to.level != RAID_JBOD && to.members > a->members_count)
        return SAY(why, why_len, "volume %s is to lie on %u disks, and array %s has %u: add disks first", old->name,
                   to.members, a->name, a->members_count);
    const char *wrong = plan_find(a, old, lost, &to, plan, why, why_len);
    if (wrong != NULL)
        return wrong;
    struct sb_volume *new = &a->volumes[a->volumes_count];
    *new = (struct sb_volume){.uuid = *uuid};
    const struct layout *layout = &plan->relayout.to.layout;
    wrong = policy_for(old, spec, layout, &new->consistency, why, why_len);
    if (wrong != NULL)
        return wrong;
    entry_fill(a, old, plan, new);
    if (!array_map_place(a, new, superblock_map_blocks_of(layout)))
        return SAY(why, why_len,
                   "volume %s would have %llu rows, more than the array's region map has room for: take a larger chunk",
                   old->name, (unsigned long long)layout->rows);
    a->volumes_count++;
    struct sb_label *label = calloc(1, sizeof *label);
    if (label != NULL) {
        label->array = *a;
        label->member = a->members[0].uuid;
        wrong = superblock_check(label);
        free(label);
    }
    if (label != NULL && wrong == NULL)
        return NULL;
    a->volumes_count--;
    return SAY(why, why_len, "volume %s cannot be moved: %s", old->name, label != NULL ? wrong : "no memory");
}

static void plan_tell(const struct sb_array *a, unsigned volume, const struct relayout_plan *plan,
                      struct array_relayout_plan *out)
{
    const struct sb_volume *new = &a->volumes[a->volumes_count - 1];
    const struct relayout *r = &plan->relayout;
    *out = (struct array_relayout_plan){.layout = new->spec,
                                        .consistency = new->consistency,
                                        .start = new->start,
                                        .extent = new->extent,
                                        .backward = r->backward,
                                        .read = plan->read,
                                        .written = plan->written,
                                        .logged = plan->logged,
                                        .tolerance = plan->tolerance,
                                        .tolerance_before = layout_tolerance(&r->from.layout),
                                        .tolerance_after = layout_tolerance(&r->to.layout),
                                        .extent_before = a->volumes[volume].extent};
}

/* As if disks had been added, just large enough. */
static void members_imagine(struct sb_array *a, unsigned count)
{
    for (; a->members_count < MIN(count, (unsigned)RAID_MEMBERS_MAX); a->members_count++) {
        struct sb_member *member = &a->members[a->members_count];
        *member = (struct sb_member){.state = SB_ACTIVE,
                                     .size = a->data_start + round_up(a->data_bytes, MIB) + SB_TAIL_BYTES};
        memset(member->uuid.bytes, 0xff, sizeof member->uuid.bytes);
        member->uuid.bytes[0] = (uint8_t)a->members_count;
    }
}

const char *array_relayout_plan(const struct sb_array *description, unsigned volume, uint64_t lost,
                                const struct array_relayout_spec *spec, struct array_relayout_plan *out, char *why,
                                size_t why_len)
{
    struct uuid nobody;
    memset(nobody.bytes, 0xff, sizeof nobody.bytes);
    ASSERT(volume < description->volumes_count);
    struct sb_array *a = malloc(sizeof *a);
    struct relayout_plan *plan = malloc(sizeof *plan);
    const char *wrong = "no memory to work it out";
    if (a != NULL && plan != NULL) {
        *a = *description;
        members_imagine(a, spec->layout.members);
        wrong = describe(a, volume, lost, &nobody, spec, plan, why, why_len);
        if (wrong == NULL)
            plan_tell(a, volume, plan, out);
    }
    free(plan);
    free(a);
    return wrong;
}

/* --- start --- */

struct relayout_begin {
    struct array *array;
    struct array_call *call;
    unsigned old;
    struct task mapped;
    struct commit_wait wait;
};

static void begin_over(struct task *task)
{
    struct relayout_begin *begin = container_of(task, struct relayout_begin, wait.task);
    struct array *array = begin->array;
    if (array->frozen) {
        ARRAY_CALL_END(array, begin->call, -EIO, "array %s froze: it is not known whether volume %s is being moved",
                       array->description.name, array->description.volumes[begin->old].name);
    } else {
        relayout_begun(array);
        array_call_over(array, begin->call, 0);
    }
    free(begin);
}

static void begin_commit(struct task *task)
{
    struct relayout_begin *begin = container_of(task, struct relayout_begin, mapped);
    struct sb_array *a = &begin->array->description;
    a->volumes[a->volumes_count - 1].unmapped = false;
    array_commit(begin->array, &begin->wait);
}

/* 0, or -errno with a sentence; then the array is as before. */
static int begin_prepare(struct array *array, unsigned volume, const struct array_relayout_spec *spec, char *why,
                         size_t why_len)
{
    struct sb_array *a = &array->description;
    struct relayout_plan *plan = malloc(sizeof *plan);
    struct uuid uuid = uuid_generate(array->loop);
    bool good = plan != NULL && describe(a, volume, array_lost_slots(array), &uuid, spec, plan, why, why_len) == NULL;
    free(plan);
    if (!good)
        return -EINVAL;
    unsigned new = a->volumes_count - 1;
    int error = array_lay_out_volume(array, new, why, why_len);
    if (error == 0)
        error = array_open_journal(array, why, why_len);
    if (error == 0)
        error = array_open_volume(array, new, why, why_len);
    if (error == 0)
        error = relayout_open(array, why, why_len);
    if (error == 0)
        return 0;
    if (array->volumes[new].volume != NULL)
        volume_undo(array->volumes[new].volume);
    if (array->volumes[new].map != NULL)
        map_store_destroy(array->volumes[new].map);
    array->volumes[new] = (struct array_volume){0};
    a->volumes_count--;
    return error;
}

static const char *not_now(const struct array *array, unsigned volume)
{
    const char *refusal = array_refusal(array);
    if (refusal == NULL && array->relayout != NULL)
        refusal = "is moving a volume already";
    if (refusal == NULL && array->resize != NULL)
        refusal = "is giving a volume another size";
    if (refusal == NULL && (!replace_is_over(array) || array->online != NULL || array->removal != NULL))
        refusal = "is taking a disk into service, or out of it";
    if (refusal == NULL && array->description.volumes[volume].init != SB_INIT_NONE)
        refusal = "is initialising the volume";
    return refusal;
}

void array_relayout_start(struct array *array, unsigned volume, const struct array_relayout_spec *spec,
                          struct array_call *call)
{
    char why[400];
    array->calls++;
    ASSERT(volume < array->description.volumes_count);
    const char *refusal = not_now(array, volume);
    if (refusal != NULL) {
        ARRAY_CALL_END(array, call, -EBUSY, "array %s %s: wait for that", array->description.name, refusal);
        return;
    }
    struct relayout_begin *begin = calloc(1, sizeof *begin);
    text_format(why, sizeof why, "no memory to begin a relayout");
    int error = begin == NULL ? -ENOMEM : begin_prepare(array, volume, spec, why, sizeof why);
    if (error != 0) {
        ARRAY_CALL_END(array, call, error, "%s", why);
        free(begin);
        return;
    }
    *begin = (struct relayout_begin){
        .array = array, .call = call, .old = volume, .mapped.run = begin_commit, .wait.task.run = begin_over};
    struct map_store *map = array->volumes[array->description.volumes_count - 1].map;
    if (map != NULL)
        (void)map_store_open(map, true, &begin->mapped); /* laying out takes no memory */
    else
        begin_commit(&begin->mapped);
}
