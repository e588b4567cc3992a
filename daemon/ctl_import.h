/* corbelctl import check: what disks of Linux md are, and whether they can be imported. Needs no daemon. */
#ifndef DAEMON_CTL_IMPORT_H
#define DAEMON_CTL_IMPORT_H

#include <stdbool.h>

/* Prints; true: it can be imported. */
bool import_check(const char *const *disks, unsigned count, bool json);

#endif
