/*
 * What the commands of a session did, by LUN.
 *
 * Made when the session begins, with a place for every LUN its initiator sees then; it belongs to the connection, whose
 * loop writes it and which the server's loop reads for people. Commands to LUNs that came later, or that do not exist,
 * are counted in a place of their own (ISCSI_LUN_NONE), as are digests that were wrong in a PDU of no command.
 */
#ifndef TARGET_ISCSI_STATS_H
#define TARGET_ISCSI_STATS_H

#include "core/io_stats.h"
#include "target/iscsi/iscsi.h"

struct command;

struct lun_stats {
    uint16_t lun; /* as the initiator calls it */
    struct io_stats io;
};

struct session_stats {
    uint64_t since_s; /* wall clock */
    uint16_t place[SCSI_LUNS_MAX];
    uint16_t count;
    struct lun_stats luns[]; /* the first: elsewhere */
};

/* NULL if memory is short. */
struct session_stats *stats_create(const struct scsi_nexus *nexus, uint64_t wall_clock_s);
/* Where commands to this LUN are counted; `stats` NULL (discovery): NULL. */
struct io_stats *stats_of(struct session_stats *stats, const uint8_t lun[8]);

/* Each command: when it comes; when it is answered, with the bytes of Data-In; when it is given up, once. */
void stats_begin(struct command *cmd);
void stats_answered(struct command *cmd, uint32_t sent);
void stats_aborted(struct command *cmd);

#endif
