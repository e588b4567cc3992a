/*
 * The judge: see core/power.h.
 *
 * What a source says (flags) and what follows from limits and time (facts) are bits of one word. The table of verdicts
 * is read from its top; the first row whose bits are all there is the verdict. No row: all is well. Then
 *
 *          FRESH ----------------> HEALTHY <---- SETTLING
 *            |      all is well       |           ^    |
 *            |                        v  all well |    |  a row holds
 *            +---- a row holds ----> BAD ---------+    |
 *                                     ^----------------+
 *
 * FRESH      nothing has been heard yet
 * BAD        a row of the table holds
 * SETTLING   none does, but not for long enough
 * HEALTHY    a battery stands behind it
 */
#include "core/power.h"

#include "core/check.h"
#include "core/log.h"

enum { FRESH, BAD, SETTLING, HEALTHY };

static const struct sm_state states[] = {
    [FRESH] = {"power fresh", SM_TO(BAD) | SM_TO(HEALTHY)},
    [BAD] = {"power bad", SM_TO(SETTLING)},
    [SETTLING] = {"power settling", SM_TO(BAD) | SM_TO(HEALTHY)},
    [HEALTHY] = {"power healthy", SM_TO(BAD)},
};

enum fact {
    FACT_UNHEARD = 1 << 16,
    FACT_TROUBLE = 1 << 25,         /* and there are words about it */
    FACT_SILENT = 1 << 17,          /* the last reading is too old */
    FACT_ERROR = 1 << 18,           /* the source said so since */
    FACT_NOT_ONLINE = 1 << 19,      /* the opposite of POWER_FLAG_ONLINE */
    FACT_CHARGE_LOW = 1 << 20,      /* at or below charge_low */
    FACT_CHARGE_UNKNOWN = 1 << 21,  /* and charge_min is wanted */
    FACT_CHARGE_SHORT = 1 << 22,    /* below charge_min, or charge_ok for who is not healthy */
    FACT_RUNTIME_UNKNOWN = 1 << 23, /* and runtime_min_s is wanted */
    FACT_RUNTIME_SHORT = 1 << 24,   /* below runtime_min_s */
};

struct verdict {
    uint32_t bits; /* flags and facts: all of them */
    enum power_state state;
    const char *cause, *words;
};

/* A calibration runs the battery down on purpose, so that low is no reason to shut down then. */
static const struct verdict verdicts[] = {
    {FACT_UNHEARD | FACT_TROUBLE, POWER_UNKNOWN, "unreachable", "nothing is known yet"},
    {FACT_UNHEARD, POWER_UNKNOWN, "unheard", "nothing is known yet"},
    {POWER_FLAG_SHUTDOWN, POWER_LOW, "shutdown", "the UPS is about to be switched off"},
    {POWER_FLAG_ON_BATTERY | FACT_SILENT, POWER_LOW, "lost-on-battery", "no word since it was on battery"},
    {POWER_FLAG_ON_BATTERY | POWER_FLAG_CALIBRATING, POWER_ON_BATTERY, "calibration",
     "the battery is being calibrated"},
    {POWER_FLAG_ON_BATTERY | POWER_FLAG_LOW, POWER_LOW, "battery-low", "on battery, and it is low"},
    {POWER_FLAG_ON_BATTERY | FACT_CHARGE_LOW, POWER_LOW, "charge-low", "on battery, and little charge is left"},
    {POWER_FLAG_ON_BATTERY | FACT_RUNTIME_SHORT, POWER_LOW, "runtime-low", "on battery, and little time is left"},
    {POWER_FLAG_ON_BATTERY, POWER_ON_BATTERY, "on-battery", "the mains failed"},
    {FACT_ERROR, POWER_UNKNOWN, "error", "the source does not know"},
    {FACT_SILENT, POWER_UNKNOWN, "silent", "the source is silent"},
    {FACT_NOT_ONLINE, POWER_UNKNOWN, "unclear", "the source says neither that it is on mains nor on battery"},
    {POWER_FLAG_OFF, POWER_ONLINE, "off", "the UPS is switched off"},
    {POWER_FLAG_BYPASS, POWER_ONLINE, "bypass", "the mains go past the UPS"},
    {POWER_FLAG_REPLACE, POWER_ONLINE, "replace-battery", "the battery must be replaced"},
    {POWER_FLAG_CALIBRATING, POWER_ONLINE, "calibration", "the battery is being calibrated or tested"},
    {POWER_FLAG_DISCHARGING, POWER_ONLINE, "discharging", "the battery discharges on mains"},
    {POWER_FLAG_OVERLOADED, POWER_ONLINE, "overload", "the UPS is overloaded"},
    {POWER_FLAG_ALARM, POWER_ONLINE, "alarm", "the UPS has an alarm"},
    {POWER_FLAG_LOW, POWER_ONLINE, "battery-low", "the battery is low"},
    {FACT_CHARGE_UNKNOWN, POWER_ONLINE, "charge-unknown", "the source does not tell the charge"},
    {FACT_CHARGE_SHORT, POWER_ONLINE, "charge", "the battery is not charged"},
    {FACT_RUNTIME_UNKNOWN, POWER_ONLINE, "runtime-unknown", "the source does not tell how long the battery lasts"},
    {FACT_RUNTIME_SHORT, POWER_ONLINE, "runtime", "the battery does not last long enough"},
};

static const struct verdict settling = {0, POWER_ONLINE, "settling", "all is well, but not for long"};
static const struct verdict well = {0, POWER_ONLINE, "healthy", ""};

void power_judge_init(struct power_judge *judge, const struct power_limits *limits)
{
    *judge = (struct power_judge){.limits = *limits};
    sm_init(&judge->sm, states, ARRAY_LENGTH(states), FRESH);
}

void power_judge_read(struct power_judge *judge, const struct power_reading *reading, uint64_t now_ns)
{
    bool was_on_battery = judge->heard && judge->last.flags & POWER_FLAG_ON_BATTERY;
    ASSERT((reading->flags & ~(uint32_t)POWER_FLAGS) == 0);
    if (reading->flags & POWER_FLAG_ON_BATTERY && !was_on_battery)
        judge->battery_ns = now_ns;
    judge->last = *reading;
    judge->heard = true;
    judge->error = false;
    judge->trouble[0] = '\0';
    judge->heard_ns = now_ns;
}

void power_judge_error(struct power_judge *judge, const char *why)
{
    judge->error = true;
    power_judge_silence(judge, why);
}

void power_judge_silence(struct power_judge *judge, const char *why)
{
    text_format(judge->trouble, sizeof judge->trouble, "%s", why);
}

/* What the source says, or what is assumed less the time on battery. */
static uint64_t runtime_at(const struct power_judge *judge, uint64_t now_ns)
{
    uint64_t assumed = judge->limits.runtime_assumed_s;
    if (!judge->heard)
        return POWER_RUNTIME_UNKNOWN;
    if (judge->last.runtime_s != POWER_RUNTIME_UNKNOWN || assumed == 0)
        return judge->last.runtime_s;
    uint64_t used = judge->last.flags & POWER_FLAG_ON_BATTERY ? (now_ns - judge->battery_ns) / 1000000000 : 0;
    return assumed - MIN(used, assumed);
}

static uint32_t charge_facts(const struct power_judge *judge)
{
    const struct power_limits *limits = &judge->limits;
    uint32_t charge = judge->last.charge, facts = 0;
    uint32_t wanted = sm_state(&judge->sm) == HEALTHY ? limits->charge_min : MAX(limits->charge_min, limits->charge_ok);
    if (limits->charge_min == 0 && charge == POWER_CHARGE_UNKNOWN)
        return 0;
    if (charge == POWER_CHARGE_UNKNOWN)
        return FACT_CHARGE_UNKNOWN;
    if (limits->charge_low > 0 && charge <= limits->charge_low)
        facts |= FACT_CHARGE_LOW;
    return limits->charge_min > 0 && charge < wanted ? facts | FACT_CHARGE_SHORT : facts;
}

static uint32_t facts_at(const struct power_judge *judge, uint64_t now_ns)
{
    const struct power_limits *limits = &judge->limits;
    uint64_t runtime = runtime_at(judge, now_ns);
    if (!judge->heard)
        return judge->trouble[0] != '\0' ? FACT_UNHEARD | FACT_TROUBLE : FACT_UNHEARD;
    uint32_t facts = judge->last.flags | charge_facts(judge);
    if (now_ns - judge->heard_ns > limits->silence_max_ns)
        facts |= FACT_SILENT;
    if (judge->error)
        facts |= FACT_ERROR;
    if (!(judge->last.flags & POWER_FLAG_ONLINE))
        facts |= FACT_NOT_ONLINE;
    if (limits->runtime_min_s > 0 && runtime == POWER_RUNTIME_UNKNOWN)
        facts |= FACT_RUNTIME_UNKNOWN;
    else if (runtime < limits->runtime_min_s)
        facts |= FACT_RUNTIME_SHORT;
    return facts;
}

/* NULL: no row holds. */
static const struct verdict *find_verdict(uint32_t facts)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(verdicts); i++)
        if ((facts & verdicts[i].bits) == verdicts[i].bits)
            return &verdicts[i];
    return NULL;
}

static const struct verdict *move_on(struct power_judge *judge, const struct verdict *verdict, uint64_t now_ns)
{
    unsigned state = sm_state(&judge->sm);
    if (verdict != NULL) {
        if (state != BAD && judge->heard)
            sm_move(&judge->sm, BAD);
        return verdict;
    }
    if (state == BAD) {
        sm_move(&judge->sm, SETTLING);
        judge->settle_from_ns = now_ns;
        state = SETTLING;
    }
    if (state == SETTLING && now_ns - judge->settle_from_ns < judge->limits.settle_ns)
        return &settling;
    if (state != HEALTHY)
        sm_move(&judge->sm, HEALTHY);
    return &well;
}

/* The words of the row, and what more is known. */
static void explain(const struct power_judge *judge, const struct verdict *verdict, struct power_health *health,
                    uint64_t now_ns)
{
    const struct power_limits *limits = &judge->limits;
    uint64_t settled_ns = now_ns - judge->settle_from_ns;
    char *out = health->reason;
    if (verdict == &settling)
        text_format(out, sizeof health->reason, "%s: healthy in %llu s if nothing happens", verdict->words,
                    (unsigned long long)((limits->settle_ns - settled_ns + 999999999) / 1000000000));
    else if (verdict->bits & FACT_CHARGE_SHORT)
        text_format(out, sizeof health->reason, "%s: %u %% of the %u %% that it must have", verdict->words,
                    health->charge, MAX(limits->charge_min, limits->charge_ok));
    else if (verdict->bits == FACT_RUNTIME_SHORT)
        text_format(out, sizeof health->reason, "%s: %llu s of the %llu s that it must", verdict->words,
                    (unsigned long long)health->runtime_s, (unsigned long long)limits->runtime_min_s);
    else if (verdict->bits & (FACT_UNHEARD | FACT_SILENT | FACT_ERROR) && judge->trouble[0] != '\0')
        text_format(out, sizeof health->reason, "%s: %s", verdict->words, judge->trouble);
    else
        text_format(out, sizeof health->reason, "%s", verdict->words);
}

struct power_health power_judge_look(struct power_judge *judge, uint64_t now_ns)
{
    const struct verdict *verdict = move_on(judge, find_verdict(facts_at(judge, now_ns)), now_ns);
    struct power_health health = {.state = verdict->state,
                                  .healthy = verdict == &well,
                                  .cause = verdict->cause,
                                  .charge = judge->heard ? judge->last.charge : POWER_CHARGE_UNKNOWN,
                                  .runtime_s = runtime_at(judge, now_ns),
                                  .exercise = verdict->bits & POWER_FLAG_CALIBRATING};
    explain(judge, verdict, &health, now_ns);
    return health;
}

struct power_health power_no_source(void)
{
    return (struct power_health){.state = POWER_UNKNOWN,
                                 .cause = "none",
                                 .reason = "no power source is configured",
                                 .charge = POWER_CHARGE_UNKNOWN,
                                 .runtime_s = POWER_RUNTIME_UNKNOWN};
}

const char *power_state_name(enum power_state state)
{
    static const char *const names[] = {"unknown", "on mains", "on battery", "low"};
    ASSERT((unsigned)state < ARRAY_LENGTH(names));
    return names[state];
}

uint64_t power_dirty_limit(uint64_t runtime_s, uint64_t margin_s, uint64_t rate)
{
    if (runtime_s == POWER_RUNTIME_UNKNOWN || runtime_s <= margin_s)
        return 0;
    uint64_t seconds = runtime_s - margin_s;
    return rate > UINT64_MAX / seconds ? UINT64_MAX : rate * seconds;
}

uint64_t power_destage_seconds(uint64_t dirty_bytes, uint64_t rate)
{
    ASSERT(rate > 0);
    return dirty_bytes / rate + (dirty_bytes % rate != 0);
}
