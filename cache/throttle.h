/*
 * How long an acknowledgement waits when the cache is filling up: a pure object over times and bytes.
 *
 * It measures at what rate dirty data leaves, while any is leaving. Above the high mark each write is acknowledged
 * later by the time that its own bytes take to leave, times a pressure that grows from 0 at the mark to 2 where the
 * cache is full; one after the other. So what comes in meets what goes out about halfway, and nobody runs into a wall.
 */
#ifndef CACHE_THROTTLE_H
#define CACHE_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

enum { PRESSURE_ONE = 1024 };

struct throttle {
    uint64_t rate;           /* bytes a second that leave; 0: not known yet */
    bool busy;               /* some are leaving */
    uint64_t since_ns;       /* of this sample, while busy */
    uint64_t busy_ns, bytes; /* of it */
    uint64_t clock_ns;       /* when the last acknowledgement is due */
};

void throttle_busy(struct throttle *throttle, uint64_t now_ns, bool busy);
void throttle_left(struct throttle *throttle, uint64_t now_ns, uint64_t bytes);
/* When a write of so many bytes is to be acknowledged. */
uint64_t throttle_due_ns(struct throttle *throttle, uint64_t now_ns, uint64_t bytes, unsigned pressure);
/* None is due: there is room again. */
void throttle_forget(struct throttle *throttle);
/* 0 at `high` percent, twice PRESSURE_ONE at 100. */
unsigned throttle_pressure(unsigned fill_permille, unsigned high_percent);

#endif
