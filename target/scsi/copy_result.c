/* What became of copies: see copy_result.h. */
#include "target/scsi/copy_result.h"

#include <string.h>

#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/lu.h"

struct copy_result *copy_result_find(struct copy_results *results, const struct scsi_nexus *nexus, uint32_t id)
{
    for (unsigned i = 0; i < COPY_RESULTS_MAX; i++)
        if (results->of[i].nexus == nexus && results->of[i].id == id)
            return &results->of[i];
    return NULL;
}

/* A free place, or that of the oldest that is over. NULL: all of them run. */
static struct copy_result *place(struct copy_results *results)
{
    struct copy_result *oldest = NULL;
    for (unsigned i = 0; i < COPY_RESULTS_MAX; i++) {
        struct copy_result *at = &results->of[i];
        if (at->nexus == NULL)
            return at;
        if (at->task == NULL && (oldest == NULL || at->started < oldest->started))
            oldest = at;
    }
    return oldest;
}

const struct scsi_sense *copy_result_begin(struct copy_results *results, struct scsi_task *task, uint32_t id,
                                           bool discard)
{
    struct copy_result *result = copy_result_find(results, task->nexus, id);
    if (result != NULL && result->task != NULL)
        return &sense_copy_id_used;
    if (result == NULL)
        result = place(results);
    if (result == NULL)
        return &sense_copy_resources;
    *result = (struct copy_result){.nexus = task->nexus,
                                   .task = task,
                                   .id = id,
                                   .discard = discard,
                                   .action = task->command->action,
                                   .started = ++results->started,
                                   .block = lu_block(task->lu)};
    task->copy = result;
    return NULL;
}

void copy_result_end(struct scsi_task *task)
{
    struct copy_result *result = task->copy;
    if (result == NULL)
        return;
    result->moved = copy_result_moved(result);
    result->segments = copy_result_segments(result);
    result->status = task->status;
    memcpy(result->sense, task->sense, task->sense_len);
    result->sense_len = task->sense_len;
    result->task = NULL;
    task->copy = NULL;
    if (result->discard && result->status == SCSI_GOOD)
        result->nexus = NULL;
}

void copy_results_forget(struct copy_results *results, const struct scsi_nexus *nexus)
{
    for (unsigned i = 0; i < COPY_RESULTS_MAX; i++)
        if (results->of[i].nexus == nexus)
            results->of[i].nexus = NULL;
}

uint64_t copy_result_moved(const struct copy_result *result)
{
    return result->task != NULL ? result->task->moved : result->moved;
}

uint16_t copy_result_segments(const struct copy_result *result)
{
    return result->task != NULL ? (uint16_t)result->task->count : result->segments;
}
