/*
 * The mains fail: what is done, in which order, and how long there is time for it. Pure: daemon/power.c tells what is
 * known now and then, and does what comes out.
 *
 *              the mains fail           time is short           empty, or time is up       ran
 *      MAINS ----------------> SAVING -----------------> LAST ----------------------> COMMAND ---> OVER
 *        ^                      |  ^                      |                            |   ^        |
 *        |        caches empty  v  |  time is short       |                            +---+        |
 *        |                     SAVED -------------------->|                       failed: again     |
 *        +-------------------- the mains are back --------+------------------------------+----------+
 *
 * MAINS    nothing is to be done
 * SAVING   background work rests; caches with a battery stopped absorbing by themselves; all caches are emptied
 * SAVED    they were, and the disks flushed; caches that need no battery may have got dirty again
 * LAST     it is time to shut down: all caches are emptied once more, as long as there is time for it
 * COMMAND  the command that shuts the machine down runs, or is run again after it failed
 * OVER     it ran, or there is none and somebody else does it
 *
 * Time is short when the source says that the battery is low, or when it lasts less than what is dirty needs (bytes
 * through the measured rate) and the machine needs to stop. Of what is left the time to stop is kept; LAST takes the
 * rest, two seconds at least, and a minute at most once the battery is low. What is not empty by then stays as it is:
 * the shutdown itself goes on with it. A learn cycle is no failure of the mains.
 */
#ifndef DAEMON_POWER_ORDER_H
#define DAEMON_POWER_ORDER_H

#include "core/power_watch.h"
#include "core/sm.h"

enum order_phase { ORDER_MAINS, ORDER_SAVING, ORDER_SAVED, ORDER_LAST, ORDER_COMMAND, ORDER_OVER };

struct order_facts {
    enum power_state state;
    bool exercise;
    bool source;        /* there is one */
    bool command;       /* there is one to be run */
    uint64_t runtime_s; /* left, or POWER_RUNTIME_UNKNOWN */
    uint64_t shutdown_s;
    struct power_load load;
};

struct order_step {
    const char *words; /* what happened, and what is done about it; NULL: no step */
    bool run;          /* the command */
    bool grave;
};

struct power_order {
    unsigned drain; /* for struct power_news */
    /* Private. */
    struct sm sm;
    uint64_t since_ns, limit_ns; /* LAST: when it began, and must be over */
    uint64_t again_ns;           /* COMMAND: it failed; not before */
    bool running, ran, failed;   /* the command */
};

void power_order_init(struct power_order *order);
/* One step, if one is due, and then maybe another: to be asked until there are no words. */
struct order_step power_order_look(struct power_order *order, const struct order_facts *facts, uint64_t now_ns);
/* The command that a step said to run ended. */
void power_order_ran(struct power_order *order, bool good, uint64_t now_ns);

enum order_phase power_order_phase(const struct power_order *order);
/* "on mains", "saving", ... */
const char *power_order_name(const struct power_order *order);
/* Background work is to rest. */
static inline bool power_order_rests(const struct power_order *order)
{
    return power_order_phase(order) != ORDER_MAINS;
}
/* The machine was told to stop, or somebody else does it now. */
static inline bool power_order_hurries(const struct power_order *order)
{
    return power_order_phase(order) >= ORDER_COMMAND;
}

/* What must fit into the battery's time: to save all that is dirty, and to stop. */
uint64_t power_order_needs(const struct order_facts *facts);

#endif
