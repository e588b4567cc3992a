/*
 * Where persistent reservations are kept: in the description of the array that the LUN's volume lies in, by the name of
 * the target and the LUN (a volume in two targets is two logical units).
 *
 *     the target's loop: keep() --> the array's loop: array_volume_keep() ... done --> the target's loop: done
 *
 * A keeper belongs to its target and goes with it: the target is destroyed when no command is under way, and before the
 * array is closed.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_internal.h"

struct live_keeper {
    struct scsi_keeper door;
    struct live_keeper *next; /* of the same target */
    struct loop *loop, *home; /* the target's, the array's */
    struct array *array;
    struct uuid volume;
    char name[256];
    struct scsi_keep *call;
    struct task task;
    struct array_call array_call;
};

static void run_answer(struct task *task)
{
    struct live_keeper *keeper = container_of(task, struct live_keeper, task);
    struct scsi_keep *call = keeper->call;
    call->error = keeper->array_call.error;
    keeper->call = NULL;
    call->done(call);
}

static void array_has_it(struct array_call *call)
{
    struct live_keeper *keeper = container_of(call, struct live_keeper, array_call);
    if (call->error != 0)
        log_error("%s: persistent reservations are not changed, since they cannot be kept: %s", keeper->name,
                  call->message);
    keeper->task.run = run_answer;
    loop_call(keeper->loop, &keeper->task);
}

static void run_keep(struct task *task)
{
    struct live_keeper *keeper = container_of(task, struct live_keeper, task);
    const struct sb_array *a = array_description(keeper->array);
    unsigned volume = 0;
    while (volume < a->volumes_count && !uuid_equal(&a->volumes[volume].uuid, &keeper->volume))
        volume++;
    ASSERT(volume < a->volumes_count); /* it is served */
    keeper->array_call = (struct array_call){.done = array_has_it};
    array_volume_keep(keeper->array, volume, keeper->name, keeper->call->record, &keeper->array_call);
}

static void keep(struct scsi_keeper *door, struct scsi_keep *call)
{
    struct live_keeper *keeper = container_of(door, struct live_keeper, door);
    ASSERT(keeper->call == NULL);
    keeper->call = call;
    keeper->task.run = run_keep;
    loop_call(keeper->home, &keeper->task);
}

char *live_keeper_add(struct live_target *target, struct live_array *live, const struct sb_array *description,
                      const struct uuid *volume, struct scsi_lu_options *options, unsigned lun)
{
    struct live_keeper *keeper = calloc(1, sizeof *keeper);
    ASSERT(keeper != NULL);
    *keeper = (struct live_keeper){.door = {keep},
                                   .next = target->keepers,
                                   .loop = reactor_loop(target->home),
                                   .home = reactor_loop(live->home),
                                   .array = live->array,
                                   .volume = *volume};
    text_format(keeper->name, sizeof keeper->name, "%s/%u", target->name, lun);
    target->keepers = keeper;
    options->keeper = &keeper->door;
    char *record = superblock_kept_get(description, volume, keeper->name);
    options->record = record;
    return record;
}

void live_keepers_free(struct live_target *target)
{
    while (target->keepers != NULL) {
        struct live_keeper *keeper = target->keepers;
        target->keepers = keeper->next;
        free(keeper);
    }
}
