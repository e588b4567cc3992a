/* Through the keyhole: facts about the array's inside that the oracle needs and nobody else is told. Reads only. */
#include "raid/array_impl.h"
#include "raid/relayout_job.h"
#include "tests/sim/sim.h"

uint64_t peek_slots(const struct array *array, enum member_state state)
{
    uint64_t slots = 0;
    for (unsigned slot = 0; slot < array->description.members_count; slot++)
        if (sm_state(&array->members[slot].state) == (unsigned)state)
            slots |= sim_bit(slot);
    return slots;
}

static unsigned peek_side(const struct array_volume *av, uint64_t off, uint64_t end)
{
    unsigned all = ROW_SYNCED | ROW_SAVED;
    if (av->map == NULL)
        return all | ROW_WRITTEN;
    const struct region_map *map = map_store_map(av->map);
    uint64_t row_data = av->layout.row_data;
    for (uint64_t row = off / row_data; row < map->regions && row * row_data < end; row++) {
        enum region_state state = region_get(map, row);
        bool saved = (state == REGION_CLEAN || state == REGION_UNWRITTEN) && map_store_idle(av->map);
        all &= ~((state == REGION_SUSPECT ? ROW_SYNCED : 0u) | (saved ? 0 : ROW_SAVED));
        all |= state != REGION_UNWRITTEN ? ROW_WRITTEN : 0;
    }
    return all;
}

unsigned peek_row(const struct array *array, unsigned volume, uint64_t row, uint64_t row_data)
{
    const struct array_relayout *r = array->relayout;
    unsigned one = peek_side(&array->volumes[volume], row * row_data, (row + 1) * row_data), other;
    if (r == NULL || r->old != volume || r->ending_all)
        return one;
    other = peek_side(&array->volumes[r->new], row * row_data, (row + 1) * row_data);
    return (one & other & (ROW_SYNCED | ROW_SAVED)) | ((one | other) & ROW_WRITTEN);
}

void peek_relayout_window(struct array *array, uint64_t bytes)
{
    if (array->relayout != NULL)
        array->relayout->shapes.window = bytes;
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
    return sm_state(&array->jobs.state) == JOBS_IDLE && array->relayout == NULL && replace_is_over(array) && jobs_info(array, info, 1) == 0;
}
