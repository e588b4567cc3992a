/* See daemon/power_order.h. What is known becomes bits of a word; the first row of the table for the phase whose bits
 * are all there is the step. */
#include "daemon/power_order.h"

#include "core/check.h"

#define LAST_MIN_NS 2000000000ull
#define LAST_MAX_S  60ull
#define AGAIN_NS    5000000000ull

static const struct sm_state phases[] = {
    [ORDER_MAINS] = {"on mains", SM_TO(ORDER_SAVING)},
    [ORDER_SAVING] = {"saving", SM_TO(ORDER_MAINS) | SM_TO(ORDER_SAVED) | SM_TO(ORDER_LAST)},
    [ORDER_SAVED] = {"saved", SM_TO(ORDER_MAINS) | SM_TO(ORDER_LAST)},
    [ORDER_LAST] = {"saving for the last time", SM_TO(ORDER_MAINS) | SM_TO(ORDER_COMMAND)},
    [ORDER_COMMAND] = {"shutting down", SM_TO(ORDER_MAINS) | SM_TO(ORDER_COMMAND) | SM_TO(ORDER_OVER)},
    [ORDER_OVER] = {"shut down", SM_TO(ORDER_MAINS) | SM_TO(ORDER_COMMAND)},
};

enum fact {
    FACT_MAINS = 1 << 0,      /* they are there, as far as anybody can say */
    FACT_BATTERY = 1 << 1,    /* they failed */
    FACT_LOW = 1 << 2,        /* and the battery is low */
    FACT_SHORT = 1 << 3,      /* and it lasts less than is needed */
    FACT_DRAINED = 1 << 4,    /* all caches have carried out the last drain */
    FACT_LATE = 1 << 5,       /* LAST has had its time */
    FACT_COMMAND = 1 << 6,    /* there is one, */
    FACT_NO_COMMAND = 1 << 7, /* or not */
    FACT_IDLE = 1 << 8,       /* it does not run, */
    FACT_RAN = 1 << 9,        /* and did well, */
    FACT_NOT_RUN = 1 << 10,   /* or did not yet, */
    FACT_AGAIN = 1 << 11,     /* or failed, a while ago */
};

enum { STEP_DRAIN = 1 << 0, STEP_RUN = 1 << 1, STEP_GRAVE = 1 << 2 };

struct row {
    uint32_t phases, facts; /* any of these; all of these */
    enum order_phase next;
    unsigned does;
    const char *words;
};

#define IN(phase) SM_TO(ORDER_##phase)

static const struct row rows[] = {
    {IN(MAINS), FACT_BATTERY, ORDER_SAVING, STEP_DRAIN, "the mains failed: background work rests, caches are emptied"},
    {IN(SAVING) | IN(SAVED) | IN(LAST), FACT_MAINS, ORDER_MAINS, 0, "the mains are back: background work goes on"},
    {IN(COMMAND) | IN(OVER), FACT_MAINS | FACT_IDLE, ORDER_MAINS, 0,
     "the mains are back, behind the order to shut down: background work goes on"},
    {IN(SAVING) | IN(SAVED), FACT_LOW, ORDER_LAST, STEP_DRAIN | STEP_GRAVE,
     "the battery is low: caches are emptied for the last time"},
    {IN(SAVING) | IN(SAVED), FACT_SHORT, ORDER_LAST, STEP_DRAIN | STEP_GRAVE,
     "the battery lasts no longer than is needed: caches are emptied for the last time"},
    {IN(SAVING), FACT_DRAINED, ORDER_SAVED, 0, "all caches are empty, and the disks flushed"},
    {IN(LAST), FACT_DRAINED, ORDER_COMMAND, STEP_RUN | STEP_GRAVE,
     "all caches are empty, and the disks flushed: time to shut down"},
    {IN(LAST), FACT_LATE, ORDER_COMMAND, STEP_RUN | STEP_GRAVE,
     "no time is left, and not all caches are empty: time to shut down, with what is in them"},
    {IN(COMMAND), FACT_NO_COMMAND | FACT_IDLE, ORDER_OVER, 0, "nothing is to be run: somebody else stops this machine"},
    {IN(COMMAND), FACT_RAN, ORDER_OVER, 0, "the machine was told to stop"},
    {IN(COMMAND), FACT_AGAIN, ORDER_COMMAND, STEP_RUN | STEP_GRAVE, "the machine is told to stop once more"},
    {IN(OVER), FACT_COMMAND | FACT_NOT_RUN, ORDER_COMMAND, STEP_RUN | STEP_GRAVE,
     "there is a command now: time to shut down"},
};

void power_order_init(struct power_order *order)
{
    *order = (struct power_order){.drain = 0};
    sm_init(&order->sm, phases, ARRAY_LENGTH(phases), ORDER_MAINS);
}

enum order_phase power_order_phase(const struct power_order *order)
{
    return (enum order_phase)sm_state(&order->sm);
}

const char *power_order_name(const struct power_order *order)
{
    return sm_name(&order->sm);
}

uint64_t power_order_needs(const struct order_facts *facts)
{
    return facts->load.seconds > UINT64_MAX - facts->shutdown_s ? UINT64_MAX : facts->load.seconds + facts->shutdown_s;
}

/* Of the time left, what is not needed to stop. It only shrinks: a run time may be an old one. */
static void limit_last(struct power_order *order, const struct order_facts *facts, uint64_t now_ns)
{
    uint64_t room_s = facts->runtime_s;
    if (room_s == POWER_RUNTIME_UNKNOWN)
        room_s = LAST_MAX_S;
    else
        room_s -= MIN(room_s, facts->shutdown_s);
    if (facts->state == POWER_LOW)
        room_s = MIN(room_s, LAST_MAX_S);
    uint64_t limit = room_s > (UINT64_MAX - now_ns) / 1000000000 ? UINT64_MAX : now_ns + room_s * 1000000000;
    order->limit_ns = MAX(order->since_ns + LAST_MIN_NS, MIN(order->limit_ns, limit));
}

static uint32_t command_facts(const struct power_order *order, const struct order_facts *facts, uint64_t now_ns)
{
    uint32_t found = facts->command ? FACT_COMMAND : FACT_NO_COMMAND;
    if (!order->running)
        found |= FACT_IDLE;
    if (order->ran)
        found |= FACT_RAN;
    else if (!order->running)
        found |= FACT_NOT_RUN;
    if (order->failed && facts->command && now_ns >= order->again_ns)
        found |= FACT_AGAIN;
    return found;
}

static uint32_t facts_of(const struct power_order *order, const struct order_facts *facts, uint64_t now_ns)
{
    bool battery = facts->source && !facts->exercise && (facts->state == POWER_ON_BATTERY || facts->state == POWER_LOW);
    uint32_t found = command_facts(order, facts, now_ns);
    if (battery)
        found |= FACT_BATTERY;
    else if (!facts->source || facts->exercise || facts->state == POWER_ONLINE)
        found |= FACT_MAINS;
    if (battery && facts->state == POWER_LOW)
        found |= FACT_LOW;
    if (battery && facts->runtime_s != POWER_RUNTIME_UNKNOWN && facts->runtime_s < power_order_needs(facts))
        found |= FACT_SHORT;
    if (facts->load.drained == order->drain)
        found |= FACT_DRAINED;
    if (now_ns >= order->limit_ns)
        found |= FACT_LATE;
    return found;
}

static const struct row *find_row(enum order_phase phase, uint32_t found)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(rows); i++)
        if (rows[i].phases & SM_TO(phase) && (found & rows[i].facts) == rows[i].facts)
            return &rows[i];
    return NULL;
}

static void enter(struct power_order *order, const struct row *row, const struct order_facts *facts, uint64_t now_ns)
{
    sm_move(&order->sm, row->next);
    if (row->does & STEP_DRAIN)
        order->drain++;
    if (row->next == ORDER_LAST) {
        order->since_ns = now_ns;
        order->limit_ns = UINT64_MAX;
        limit_last(order, facts, now_ns);
    }
    if (row->next == ORDER_MAINS)
        order->ran = order->failed = false;
    if (row->does & STEP_RUN) {
        order->running = facts->command;
        order->failed = false;
    }
}

struct order_step power_order_look(struct power_order *order, const struct order_facts *facts, uint64_t now_ns)
{
    if (power_order_phase(order) == ORDER_LAST)
        limit_last(order, facts, now_ns);
    const struct row *row = find_row(power_order_phase(order), facts_of(order, facts, now_ns));
    if (row == NULL)
        return (struct order_step){.words = NULL};
    enter(order, row, facts, now_ns);
    return (struct order_step){row->words, row->does & STEP_RUN && facts->command, row->does & STEP_GRAVE};
}

void power_order_ran(struct power_order *order, bool good, uint64_t now_ns)
{
    ASSERT(order->running && power_order_phase(order) == ORDER_COMMAND);
    order->running = false;
    order->ran = good;
    order->failed = !good;
    order->again_ns = now_ns + AGAIN_NS;
}
