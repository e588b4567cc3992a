/* Through the keyhole: facts about the array's inside that the oracle needs and nobody else is told. Reads only. */
#include "raid/array_impl.h"
#include "tests/sim/sim.h"

uint64_t peek_slots(const struct array *array, enum member_state state)
{
    uint64_t slots = 0;
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (sm_state(&array->members[slot].state) == (unsigned)state)
            slots |= sim_bit(slot);
    return slots;
}

unsigned peek_row(const struct array *array, unsigned volume, uint64_t row)
{
    const struct array_volume *av = &array->volumes[volume];
    if (av->map == NULL)
        return ROW_SYNCED | ROW_SAVED | ROW_WRITTEN;
    enum region_state state = region_get(map_store_map(av->map), row);
    bool saved = (state == REGION_CLEAN || state == REGION_UNWRITTEN) && map_store_idle(av->map);
    return (state != REGION_SUSPECT ? ROW_SYNCED : 0) | (saved ? ROW_SAVED : 0) |
           (state != REGION_UNWRITTEN ? ROW_WRITTEN : 0);
}

bool peek_log_active(const struct array *array, unsigned index)
{
    return array->description.journals[index].state == SB_JOURNAL_ACTIVE;
}

bool peek_frozen(const struct array *array)
{
    return array->frozen;
}

uint64_t peek_active(const struct array *array)
{
    uint64_t slots = 0;
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (array->description.members[slot].state == SB_ACTIVE)
            slots |= sim_bit(slot);
    return slots;
}

uint64_t peek_unrecorded(const struct array *array)
{
    return array->frozen ? 0 : array->losses.pending & peek_active(array);
}

bool peek_joining(const struct array *array)
{
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (online_joining(array, slot) != NULL)
            return true;
    return false;
}

uint64_t peek_rebuilt(const struct array *array)
{
    uint64_t rows = 0;
    for (unsigned i = 0; i < array->description.volumes_count; i++)
        rows += array->description.volumes[i].rebuilt;
    return rows;
}

uint64_t peek_generation(const struct array *array)
{
    return array->description.generation;
}

bool peek_committed(const struct array *array)
{
    return array->description.generation == array->commit.committed;
}

unsigned peek_labels_left(const struct array *array)
{
    return array->commit.writing;
}

bool peek_fork_is_torn(const struct array *array)
{
    const struct sb_array *a = &array->description;
    return a->generation != array->commit.committed && a->forks[a->forks_count - 1].generation == a->generation;
}

uint64_t peek_unwritten(const struct array *array)
{
    uint64_t slots = array->losses.pending;
    bool on_its_way = array->commit.fork_wanted || peek_fork_is_torn(array);
    for (unsigned slot = 0; slot < array->description.members_count && on_its_way; slot++)
        if (array->description.members[slot].state == SB_FAILED)
            slots |= sim_bit(slot);
    return slots;
}

enum peek_replace peek_replacing(const struct array *array)
{
    const struct array_replace *r = &array->replace;
    enum replace_state state = sm_state(&r->state);
    if (state == REPLACE_JOINING || state == REPLACE_TAKING_BACK || (state == REPLACE_ENDING && array->frozen))
        return PEEK_EITHER;
    if (state != REPLACE_NONE && state != REPLACE_ENDING)
        return PEEK_OLD;
    return r->result.error == 0 ? PEEK_NEW : PEEK_GIVEN_UP;
}

bool peek_jobs_idle(const struct array *array)
{
    struct array_job_info info[1];
    return sm_state(&array->jobs.state) == JOBS_IDLE && replace_is_over(array) && jobs_info(array, info, 1) == 0;
}
