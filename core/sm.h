/*
 * Checked state machines: the states of an object as a table, each with the states it may go to.
 *
 * The table is the drawing: it stands at the top of the file that owns the machine, below a comment that says what is
 * true in each state. sm_move() asserts that a move is in the table and leaves a note in the flight recorder.
 */
#ifndef CORE_SM_H
#define CORE_SM_H

#include <stdint.h>

struct sm_state {
    const char *name;
    uint32_t next; /* SM_TO(a) | SM_TO(b) ... */
};

#define SM_TO(state) (1u << (state))

struct sm {
    const struct sm_state *table;
    unsigned count, state;
};

void sm_init(struct sm *sm, const struct sm_state *table, unsigned count, unsigned state);
void sm_move(struct sm *sm, unsigned to);
const char *sm_name(const struct sm *sm);

static inline unsigned sm_state(const struct sm *sm)
{
    return sm->state;
}

#endif
