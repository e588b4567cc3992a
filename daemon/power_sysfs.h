/*
 * What the kernel's class power_supply says, from a folder with one folder for each supply (Linux:
 * Documentation/ABI/testing/sysfs-class-power). Of several batteries the weakest counts; those of peripherals (scope
 * Device) do not. Without a supply of mains, the batteries' own status says whether there are any.
 */
#ifndef DAEMON_POWER_SYSFS_H
#define DAEMON_POWER_SYSFS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/power.h"

/* Blocks: firmware answers some of it. False, and why: there is no battery, or nothing to read. */
bool power_sysfs_read(const char *folder, struct power_reading *out, char *why, size_t why_len);

#endif
