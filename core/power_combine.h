/*
 * A machine that is fed by several sources, e.g. with two power supplies behind a UPS each: what their healths are
 * together. Pure.
 *
 * `needed` of them must feed the machine. So it fares as the one that is `needed`th from the best: of two, one of which
 * is enough, as the better; if both are needed, as the worse. Better is who is healthy; then on mains; then on battery
 * on purpose; then on battery; then low; and of equals who lasts longer. Who is unknown decides nothing of the state
 * while there are others, for the mains do not fail because a driver died; but he does not count as healthy.
 */
#ifndef CORE_POWER_COMBINE_H
#define CORE_POWER_COMBINE_H

#include "core/power.h"

enum { POWER_SOURCES_MAX = 8 };

/* `count` from 1 to POWER_SOURCES_MAX, `needed` from 1 to count. *whose: whose cause and reason it has. */
struct power_health power_combine(const struct power_health *healths, unsigned count, unsigned needed, unsigned *whose);

#endif
