#include "core/sm.h"

#include "core/check.h"
#include "core/log.h"

void sm_init(struct sm *sm, const struct sm_state *table, unsigned count, unsigned state)
{
    ASSERT(count <= 32 && state < count);
    *sm = (struct sm){table, count, state};
}

void sm_move(struct sm *sm, unsigned to)
{
    ASSERT(to < sm->count);
    flight_note(sm->table[to].name, sm->state, to);
    ASSERT(sm->table[sm->state].next & SM_TO(to));
    sm->state = to;
}

const char *sm_name(const struct sm *sm)
{
    return sm->table[sm->state].name;
}
