/*
 * Another size for a volume, where it lies.
 *
 *   longer    region map: what is new is UNWRITTEN on all live members
 *             description: size and extent; committed
 *             the volume has more rows; whoever uses it hears of the size
 *   shorter   whoever uses it hears of the size: nothing more is asked for beyond it
 *             what was asked for is over
 *             with redundancy: what is beyond is discarded, so that neither map, journal nor list of bad blocks know of it
 *             description: committed
 *             the volume has fewer rows, and the region map, too
 *
 * R1  A size is announced when it is on all live members, if it is a longer one, and before anything is given up, if it
 *     is a shorter one. So after a crash a volume is as long as it was or as it was to be, and never holds less than it
 *     was told to have: but what a shorter one gives up may be gone although it is as long as before.
 * R2  While it goes on no job begins, no volume is added, no other size is given. Jobs know rows by number, and have
 *     bitmaps of them; so there must be none on the volume, and no disk that is being rebuilt.
 * R3  What a volume held beyond its end does not come back when it becomes longer again: rows read as zeroes until they
 *     are written. Without redundancy there is no map: there what lies on the disks is read, as in a new volume.
 *
 * It fails if the array freezes, or, of a shorter one, if what is beyond cannot be discarded; then it is as long as before.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/log.h"
#include "raid/array_impl.h"

enum { SIZE_UNIT = 4096 };
#define LOOK_NS 1000000ull

struct array_resize {
    struct array *array;
    struct array_call *call;
    unsigned volume;
    uint64_t was;           /* the size */
    struct sb_volume to;    /* of which the size and the extent count */
    struct layout layout;   /* then */
    struct task laid_out;   /* longer: the map is on the members */
    struct timer look;      /* shorter: is anything under way beyond the end? */
    struct blk_req discard; /* and then */
    struct commit_wait wait;
};

const char *array_resize_check(const struct sb_array *description, unsigned volume, uint64_t *size, bool shrink,
                               char *why, size_t why_len)
{
    struct layout layout;
    struct sb_label *label = calloc(1, sizeof *label);
    ASSERT(volume < description->volumes_count);
    if (label == NULL)
        return "no memory to work out another size";
    struct sb_volume *v = &label->array.volumes[volume];
    label->array = *description;
    label->member = description->members[0].uuid;
    *size = round_up(*size, SIZE_UNIT);
    bool loses = *size < v->size && !shrink;
    const char *wrong = NULL;
    if (loses)
        text_format(why, why_len, "volume %s would lose its last %llu bytes, and what is on them: --force does it",
                    v->name, (unsigned long long)(v->size - *size));
    else
        wrong = array_resize_volume_in(&label->array, v, *size, &layout, why, why_len);
    if (!loses && wrong == NULL) {
        v->scrub.row = MIN(v->scrub.row, layout.rows);
        v->rebuilt = MIN(v->rebuilt, layout.redundancy > 0 ? layout.rows : 0);
        wrong = superblock_check(label);
    }
    free(label);
    return loses ? why : wrong;
}

/* --- the end --- */

static struct array_volume *volume_of(struct array_resize *resize)
{
    return &resize->array->volumes[resize->volume];
}

static void finish(struct array_resize *resize, int error, const char *message)
{
    struct array *array = resize->array;
    array->resize = NULL;
    if (error != 0)
        ARRAY_CALL_END(array, resize->call, error, "volume %s: %s", resize->to.name, message);
    else
        array_call_over(array, resize->call, 0);
    free(resize);
    jobs_kick(array);
}

/* Where jobs stand: those that are done with all rows stay so, since the rows that are new hold nothing. */
static void move_jobs(struct array_volume *v, uint64_t rows)
{
    for (unsigned kind = 0; kind < JOB_KINDS; kind++) {
        struct job *job = &v->jobs[kind];
        job->position = job->position >= v->layout.rows ? rows : MIN(job->position, rows);
    }
}

static void committed(struct task *task)
{
    struct array_resize *resize = container_of(task, struct array_resize, wait.task);
    struct array *array = resize->array;
    struct array_volume *v = volume_of(resize);
    if (array->frozen) {
        finish(resize, -EIO, "the array froze before its size was written down");
        return;
    }
    move_jobs(v, resize->layout.rows);
    v->layout = resize->layout;
    volume_set_layout(v->volume, &v->layout);
    if (v->map != NULL)
        map_store_truncate(v->map, v->layout.rows);
    log_notice("array %s: volume %s has %llu bytes now, and had %llu", array->description.name, resize->to.name,
               (unsigned long long)resize->to.size, (unsigned long long)resize->was);
    if (resize->to.size > resize->was)
        volume_set_size(v->volume, resize->to.size);
    finish(resize, 0, NULL);
}

static void commit(struct array_resize *resize)
{
    struct sb_volume *v = &resize->array->description.volumes[resize->volume];
    v->size = resize->to.size;
    v->extent = resize->to.extent;
    v->scrub.row = MIN(v->scrub.row, resize->layout.rows);
    v->rebuilt = MIN(v->rebuilt, resize->layout.redundancy > 0 ? resize->layout.rows : 0);
    array_commit(resize->array, &resize->wait);
}

/* --- longer --- */

static void laid_out(struct task *task)
{
    commit(container_of(task, struct array_resize, laid_out));
}

static void grow(struct array_resize *resize)
{
    struct array_volume *v = volume_of(resize);
    if (v->map == NULL)
        loop_defer(resize->array->loop, &resize->laid_out);
    else if (!map_store_extend(v->map, MAX(resize->layout.rows, v->layout.rows), &resize->laid_out))
        finish(resize, -ENOMEM, "no memory for a longer region map");
}

/* --- shorter --- */

static void discarded(struct blk_req *req)
{
    struct array_resize *resize = container_of(req, struct array_resize, discard);
    if (req->status == BLK_OK) {
        commit(resize);
        return;
    }
    volume_set_size(volume_of(resize)->volume, resize->was);
    finish(resize, -EIO, "what lies beyond could not be given up: bring missing disks online");
}

static void look(struct timer *timer)
{
    struct array_resize *resize = container_of(timer, struct array_resize, look);
    struct array *array = resize->array;
    struct array_volume *v = volume_of(resize);
    if (volume_busy_from(v->volume, resize->to.size))
        timer_start(array->loop, &resize->look, LOOK_NS);
    else if (v->map == NULL || v->layout.rows * v->layout.row_data == resize->to.size)
        commit(resize);
    else
        volume_give_back(v->volume, &resize->discard);
}

static void shrink_begin(struct array_resize *resize)
{
    volume_set_size(volume_of(resize)->volume, resize->to.size);
    timer_start(resize->array->loop, &resize->look, LOOK_NS);
}

/* --- the beginning --- */

static bool member_rebuilding(const struct array *array)
{
    if (array->rebuild.slots != 0)
        return true;
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (array->description.members[slot].state == SB_REBUILDING)
            return true;
    return false;
}

/* NULL, or why not now. */
static const char *not_now(const struct array *array, unsigned volume, char *why, size_t why_len)
{
    const char *refusal = array_refusal(array), *job = NULL;
    if (refusal == NULL && array->resize != NULL)
        refusal = "is giving a volume another size";
    if (refusal == NULL && (!replace_is_over(array) || array->online != NULL))
        refusal = "is taking a disk into service";
    if (refusal == NULL && array->relayout != NULL)
        refusal = "is moving a volume";
    if (refusal == NULL && member_rebuilding(array))
        refusal = "is rebuilding a disk";
    if (refusal == NULL)
        job = jobs_wanted(array, volume);
    if (refusal != NULL)
        text_format(why, why_len, "array %s %s: wait for that", array->description.name, refusal);
    else if (job != NULL)
        text_format(why, why_len, "volume %s waits for its %s, or is in the midst of it: let that end, or call it off",
                    array->description.volumes[volume].name, job);
    return refusal != NULL || job != NULL ? why : NULL;
}

static struct array_resize *resize_create(struct array *array, unsigned volume, uint64_t size)
{
    char why[256];
    struct array_resize *resize = calloc(1, sizeof *resize);
    struct sb_array *a = malloc(sizeof *a);
    if (resize != NULL && a != NULL) {
        *a = array->description;
        resize->array = array;
        resize->volume = volume;
        resize->was = a->volumes[volume].size;
        const char *wrong = array_resize_volume_in(a, &a->volumes[volume], size, &resize->layout, why, sizeof why);
        ASSERT(wrong == NULL); /* array_resize_check() was content */
        resize->to = a->volumes[volume];
        resize->laid_out.run = laid_out;
        resize->look.fire = look;
        resize->discard.done = discarded;
        resize->wait.task.run = committed;
        free(a);
        return resize;
    }
    free(resize);
    free(a);
    return NULL;
}

void array_resize_volume(struct array *array, unsigned volume, uint64_t size, bool shrink, struct array_call *call)
{
    char why[400];
    array->calls++;
    ASSERT(volume < array->description.volumes_count);
    const char *wrong = not_now(array, volume, why, sizeof why);
    if (wrong == NULL && (size == 0 || size > (uint64_t)INT64_MAX))
        wrong = "a volume has at least 4 KiB, and no disks hold that much";
    int error = wrong != NULL ? -EBUSY : -EINVAL;
    if (wrong == NULL)
        wrong = array_resize_check(&array->description, volume, &size, shrink, why, sizeof why);
    if (wrong != NULL || size == array->description.volumes[volume].size) {
        text_format(call->message, sizeof call->message, "%s", wrong != NULL ? wrong : "");
        array_call_over(array, call, wrong != NULL ? error : 0);
        return;
    }
    struct array_resize *resize = resize_create(array, volume, size);
    if (resize == NULL) {
        ARRAY_CALL_END(array, call, -ENOMEM, "no memory to give a volume another size");
        return;
    }
    resize->call = call;
    array->resize = resize;
    jobs_kick(array);
    if (size > resize->was)
        grow(resize);
    else
        shrink_begin(resize);
}
