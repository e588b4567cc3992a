/*
 * Secrets in files: one line of 1 to 255 printable characters, in a regular file that belongs to root or to the user
 * the daemon runs as, and that nobody else may read or write. A secret is read when it is needed and wiped by who asked
 * for it; it stands in no config, log, status or answer.
 */
#ifndef DAEMON_SECRETS_H
#define DAEMON_SECRETS_H

#include <stdbool.h>
#include <stddef.h>

#include "target/iscsi/chap.h"

struct secret {
    char text[CHAP_SECRET_MAX + 1];
};

/* The descriptor of a file that is kept as one with a secret must be. -1: `why`, which names the file. */
int secret_open(const char *path, char *why, size_t why_len);
/* False, and `why`, which names the file (and never its contents). `short_allowed`: fewer than CHAP_SECRET_MIN
 * bytes. */
bool secret_read(const char *path, bool short_allowed, struct secret *secret, char *why, size_t why_len);
void secret_wipe(struct secret *secret);

#endif
