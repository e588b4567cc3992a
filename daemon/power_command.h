/* What the end of a command says about the battery: pure. See daemon/power_command.c. */
#ifndef DAEMON_POWER_COMMAND_H
#define DAEMON_POWER_COMMAND_H

#include "core/power.h"

/* False: the exit status says nothing. */
bool power_command_judge(int status, const char *output, struct power_reading *out);

#endif
