/*
 * The disks there are, and what Corbel finds on each: read only, nothing is changed by looking.
 *
 * For the worker's thread. A scan is a list of disks, in the order asked for; the same device under two paths appears
 * once. Disks on other machines may take seconds to say that they are not there, so those of a config are looked at
 * beforehand, each by a thread of its own.
 */
#ifndef DAEMON_SCAN_H
#define DAEMON_SCAN_H

#include "daemon/config.h"
#include "daemon/reactor.h"
#include "raid/label.h"

struct scan_disk {
    char path[CONFIG_PATH_MAX + 1]; /* as in the config */
    unsigned line;                  /* of the config; 0: from a pattern */
    char error[256];                /* not empty: it cannot be used, a sentence that names it */
    char identity[SB_IDENTITY_SIZE];
    uint64_t size;
    uint32_t logical_block;
    bool rotational;
    bool read_only; /* the file or device does not take writes */
    enum sb_verdict verdict;
    struct sb_label *label; /* SB_VALID */
    char why[160];          /* the label is damaged or unsupported: a sentence */
    uint64_t device, inode; /* who it really is; on another machine: 0, and the identity tells */
};

struct scan {
    struct scan_disk *disks;
    unsigned count, capacity;
    struct scan_disk *remotes; /* of scan_config(): disks of other machines, looked at all at once */
    unsigned remotes_count;
};

/* Look at one more path, on the reactor's thread where needed. Returns its place; a device seen before, that one's. */
unsigned scan_add(struct scan *scan, struct reactor *reactor, const char *path, unsigned line);
/* All paths of a config: of its arrays, of its spares (which may be members by now), then of its `disks` patterns. */
void scan_config(struct scan *scan, struct reactor *reactor, const struct config *config);
void scan_free(struct scan *scan);

#endif
