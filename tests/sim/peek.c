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

uint64_t peek_synced_rows(const struct array *array, unsigned volume)
{
    return volume_synced_rows(array->volumes[volume].volume);
}

uint64_t peek_saved_rows(const struct array *array, unsigned volume)
{
    return MIN(array->description.volumes[volume].synced_rows, peek_synced_rows(array, volume));
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

bool peek_fork_is_torn(const struct array *array)
{
    const struct sb_array *a = &array->description;
    return a->generation != array->commit.committed && a->forks[a->forks_count - 1].generation == a->generation;
}

bool peek_jobs_idle(const struct array *array)
{
    struct array_job_info info[1];
    return sm_state(&array->jobs.state) == JOBS_IDLE && !array->jobs.save_busy && jobs_info(array, info, 1) == 0;
}
