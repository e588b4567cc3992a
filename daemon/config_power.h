/* The power group beyond its keys: what a source may look like. Pure functions; see daemon/config.h. */
#ifndef DAEMON_CONFIG_POWER_H
#define DAEMON_CONFIG_POWER_H

#include "core/power.h"
#include "daemon/config.h"

enum power_kind { POWER_SOURCE_NONE, POWER_SOURCE_NUT, POWER_SOURCE_SYSFS, POWER_SOURCE_COMMAND };

/*
 *   ""                        none
 *   nut://UPS@HOST[:PORT]     a UPS of NUT's upsd; HOST: an IP address (IPv6 in brackets) or localhost
 *   sysfs[:FOLDER]            the batteries of the machine; FOLDER: instead of /sys/class/power_supply
 *   command:PATH [WORD...]    daemon/command.h
 */
struct power_source_spec {
    enum power_kind kind;
    char ups[128], host[64]; /* nut */
    uint16_t port;
    char text[CONFIG_PATH_MAX + 1]; /* sysfs: the folder; command: the line */
};

/* False, and what is wrong with it (a part of a sentence). */
bool power_source_parse(const char *text, struct power_source_spec *out, char *why, size_t why_len);

/* How many sources there are; and how many of them must feed the machine. */
unsigned config_power_sources(const struct config_power *config);
unsigned config_power_needed(const struct config_power *config);
struct power_limits config_power_limits(const struct config_power *config);

#endif
