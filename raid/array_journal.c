/*
 * The journal's part of an array's life.
 *
 * It is there if a volume's policy is ppl or journal. Opening: a clean array begins a new epoch with its first
 * generation, and what stands in the rings is void. One that was not stopped cleanly keeps the epoch until all has been
 * replayed (raid/journal_replay.h).
 */
#include <errno.h>

#include "core/log.h"
#include "raid/array_impl.h"
#include "raid/journal_replay.h"

static bool has_journal(const struct array *array)
{
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        if (consistency_is_closed(array->description.volumes[i].consistency))
            return true;
    return false;
}

int array_open_journal(struct array *array, char *why, size_t why_len)
{
    if (array->journal != NULL || !has_journal(array))
        return 0;
    array->journal = journal_create(array);
    if (array->journal != NULL)
        return 0;
    text_format(why, why_len, "no memory for the journal of array %s", array->description.name);
    return -ENOMEM;
}

bool array_journal_idle(const struct array *array)
{
    return array->journal == NULL || journal_idle(array->journal);
}

bool array_must_replay(const struct array *array)
{
    return !array->description.clean && has_journal(array) && !array->journal_given_up;
}

void array_epoch_begin(struct array *array)
{
    array->description.epoch = uuid_generate(array->loop);
}

bool array_replay_start(struct array *array)
{
    array->replay = journal_replay_start(array, &array->replayed);
    return array->replay != NULL;
}

int array_replay_end(struct array *array, char *why, size_t why_len)
{
    uint64_t records;
    int error = journal_replay_end(array->replay, &records);
    array->replay = NULL;
    if (error == -EIO)
        text_format(why, why_len,
                    "the journal device of array %s cannot be read: start it again, or take the device out and start "
                    "with apply --force, and blocks that were being written may be wrong",
                    array->description.name);
    else if (error != 0)
        text_format(why, why_len, "no memory to replay the journal of array %s", array->description.name);
    else
        log_notice("array %s: %llu writes that were under way were brought to an end from the journal",
                   array->description.name, (unsigned long long)records);
    return error;
}
