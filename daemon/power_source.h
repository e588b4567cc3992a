/*
 * Who is asked about the battery: one interface, three kinds. Private to daemon/power*.c.
 *
 * A source lives on the control reactor and answers each ask() exactly once, maybe from within it: with a reading, with
 * an error (it says itself that it does not know), or with silence (it cannot be reached, or takes too long). close()
 * frees it, now or when what is under way has ended; it does not answer any more.
 */
#ifndef DAEMON_POWER_SOURCE_H
#define DAEMON_POWER_SOURCE_H

#include "core/power.h"
#include "daemon/config_power.h"
#include "daemon/reactor.h"

enum power_answer { POWER_READING, POWER_ERROR, POWER_SILENCE };

struct power_feed;

struct power_source {
    void (*ask)(struct power_source *source);
    void (*close)(struct power_source *source);
    struct reactor *reactor;
    struct power_feed *feed;
};

/* Whose it is: daemon/power_feed.c. */
void power_answered(struct power_source *source, enum power_answer answer, const struct power_reading *reading,
                    const char *why);

/* Each for a spec of its kind. `user` and `password_file` are copied. */
struct power_source *power_nut_open(struct reactor *reactor, const struct power_source_spec *spec, const char *user,
                                    const char *password_file);
struct power_source *power_sysfs_open(struct reactor *reactor, const struct power_source_spec *spec);
struct power_source *power_command_open(struct reactor *reactor, const struct power_source_spec *spec);

#endif
