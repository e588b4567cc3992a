/* See core/power_combine.h. */
#include "core/power_combine.h"

#include "core/check.h"
#include "core/log.h"

enum rank { RANK_HEALTHY, RANK_ONLINE, RANK_EXERCISE, RANK_ON_BATTERY, RANK_LOW, RANK_UNKNOWN };

static enum rank rank_of(const struct power_health *health)
{
    static const enum rank ranks[] = {[POWER_UNKNOWN] = RANK_UNKNOWN,
                                      [POWER_ONLINE] = RANK_ONLINE,
                                      [POWER_ON_BATTERY] = RANK_ON_BATTERY,
                                      [POWER_LOW] = RANK_LOW};
    if (health->healthy)
        return RANK_HEALTHY;
    return health->state == POWER_ON_BATTERY && health->exercise ? RANK_EXERCISE : ranks[health->state];
}

/* A run time that is not known may be none. */
static uint64_t surely_lasts(const struct power_health *health)
{
    return health->runtime_s != POWER_RUNTIME_UNKNOWN ? health->runtime_s : 0;
}

static bool is_better(const struct power_health *a, const struct power_health *b)
{
    enum rank mine = rank_of(a), other = rank_of(b);
    return mine != other ? mine < other : surely_lasts(a) > surely_lasts(b);
}

struct power_health power_combine(const struct power_health *healths, unsigned count, unsigned needed, unsigned *whose)
{
    unsigned order[POWER_SOURCES_MAX] = {0}, known = 0;
    ASSERT(count >= 1 && count <= POWER_SOURCES_MAX && needed >= 1 && needed <= count);
    for (unsigned i = 0; i < count; i++) {
        unsigned at = i;
        for (; at > 0 && is_better(&healths[i], &healths[order[at - 1]]); at--)
            order[at] = order[at - 1];
        order[at] = i;
        known += rank_of(&healths[i]) != RANK_UNKNOWN;
    }
    *whose = order[known >= needed ? needed - 1 : known > 0 ? known - 1 : 0];
    struct power_health health = healths[*whose];
    if (known >= needed || !health.healthy)
        return health;
    *whose = order[known]; /* all that are known are well, but they are too few */
    const struct power_health *unknown = &healths[*whose];
    health.healthy = false;
    health.cause = unknown->cause;
    text_format(health.reason, sizeof health.reason, "%s", unknown->reason);
    return health;
}
