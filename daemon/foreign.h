/*
 * What lies on a disk that is not Corbel's: a file system, a partition table, another RAID: asked of libblkid. It looks
 * at files and devices; of a disk on another machine it is given the beginning and the end (remote_window()).
 * Blocks; for the worker's thread.
 */
#ifndef DAEMON_FOREIGN_H
#define DAEMON_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>

#include "cache/log_record.h"
#include "raid/journal_device.h"

/* True if something is there: `what` gets a few words ("an ext4 file system \"backup\""). Also true if it cannot be
 * told. */
bool foreign_probe(const char *path, char *what, size_t what_len);
/* The same, but for journals of arrays and logs of caches. */
bool foreign_probe_others(const char *path, char *what, size_t what_len);

/* Erase all that libblkid knows of on an open disk, for writing. False: something is left, or it cannot be written. */
bool foreign_erase(int fd);

/* False: it carries no label of a journal device. */
bool journal_label_of(const char *path, struct journal_label *label);
/* A disk's label of a log of a cache; NONE also if the disk cannot be read. */
enum log_verdict log_label_of(const char *path, struct log_label *label);

#endif
