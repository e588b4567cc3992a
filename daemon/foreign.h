/*
 * What lies on a disk that is not Corbel's: a file system, a partition table, another RAID: asked of libblkid. It looks
 * at files and devices; of a disk on another machine it is given the beginning and the end (remote_window()).
 * Blocks; for the worker's thread.
 */
#ifndef DAEMON_FOREIGN_H
#define DAEMON_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>

#include "raid/journal_device.h"

/* True if something is there: `what` gets a few words ("an ext4 file system \"backup\""). Also true if it cannot be
 * told. */
bool foreign_probe(const char *path, char *what, size_t what_len);

/* Erase all that libblkid knows of on an open disk, for writing. False: something is left, or it cannot be written. */
bool foreign_erase(int fd);

/* False: it carries no label of a journal device. */
bool journal_label_of(const char *path, struct journal_label *label);

#endif
