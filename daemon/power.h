/*
 * The power monitor: asks the configured sources (daemon/power_feed.h), has core/power.h judge what they say, and
 * tells: the log of each change, whoever watches (core/power_watch.h), and people who ask. When the mains fail it sees
 * to it that all that is in memory is saved, and that the machine is shut down before the battery ends, in the order of
 * daemon/power_order.h.
 *
 * It lives on the control reactor; all functions belong to that thread.
 */
#ifndef DAEMON_POWER_H
#define DAEMON_POWER_H

#include "core/power_combine.h"
#include "core/power_watch.h"
#include "daemon/config.h"
#include "daemon/power_order.h"
#include "daemon/reactor.h"

struct power_monitor;

enum { POWER_STEPS_MAX = 16 };

/* One of the order, as it was logged. */
struct power_step {
    uint64_t at_s; /* since 1970 */
    char text[240];
};

struct power_report_source {
    char text[CONFIG_PATH_MAX + 1]; /* as in the config */
    struct power_health health;
    uint64_t since_s;     /* since when its state and its cause have been so, in seconds since 1970 */
    uint64_t heard_s_ago; /* when it was last heard; UINT64_MAX: never */
};

struct power_report {
    struct power_health health; /* of all sources together */
    uint64_t since_s;
    unsigned sources_count, needed;
    struct power_report_source sources[POWER_SOURCES_MAX];
    const char *order; /* power_order_name() */
    bool rests;        /* background work does */
    uint64_t shutdown_s, needs_s;
    struct power_load load;
    unsigned steps_count; /* since the mains failed last: the last of them */
    struct power_step steps[POWER_STEPS_MAX];
};

struct power_monitor *power_monitor_create(struct reactor *control);
/* As the config says now: at the start and after a reload. A source that stays the same goes on, with its history. */
void power_monitor_configure(struct power_monitor *monitor, const struct config_power *config);
void power_monitor_report(struct power_monitor *monitor, struct power_report *report);
/* For power_watch_start(), from any loop; as long as the monitor. */
struct power_board *power_monitor_board(struct power_monitor *monitor);
/* No watches are left. */
void power_monitor_destroy(struct power_monitor *monitor);

#endif
