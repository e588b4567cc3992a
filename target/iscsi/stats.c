/* See target/iscsi/stats.h. */
#include "target/iscsi/stats.h"

#include <stdlib.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/iscsi/connection.h"

static unsigned luns_seen(const struct scsi_nexus *nexus, uint16_t *luns)
{
    unsigned count = 0;
    for (unsigned i = 0; i < SCSI_LUNS_MAX; i++) {
        uint8_t lun[8] = {0, (uint8_t)i}, own[8];
        if (scsi_nexus_resolve(nexus, lun, own))
            luns[count++] = (uint16_t)i;
    }
    return count;
}

struct session_stats *stats_create(const struct scsi_nexus *nexus, uint64_t wall_clock_s)
{
    uint16_t luns[SCSI_LUNS_MAX];
    unsigned count = luns_seen(nexus, luns);
    struct session_stats *stats = calloc(1, sizeof *stats + (count + 1) * sizeof stats->luns[0]);
    if (stats == NULL)
        return NULL;
    stats->since_s = wall_clock_s;
    stats->count = (uint16_t)(count + 1);
    stats->luns[0].lun = ISCSI_LUN_NONE;
    for (unsigned i = 0; i < count; i++) {
        stats->luns[i + 1].lun = luns[i];
        stats->place[luns[i]] = (uint16_t)(i + 1);
    }
    return stats;
}

struct io_stats *stats_of(struct session_stats *stats, const uint8_t lun[8])
{
    unsigned number = get_be16(lun) & 0x3fff;
    if (stats == NULL)
        return NULL;
    return &stats->luns[number < SCSI_LUNS_MAX ? stats->place[number] : 0].io;
}

/* READ, WRITE, WRITE AND VERIFY, COMPARE AND WRITE and WRITE ATOMIC move blocks; what else there is does not, or not by
 * the wire. */
static enum io_kind kind_of(uint8_t opcode)
{
    switch (opcode) {
    case 0x08:
    case 0x28:
    case 0xa8:
    case 0x88:
        return IO_READ;
    case 0x0a:
    case 0x2a:
    case 0xaa:
    case 0x8a:
    case 0x2e:
    case 0xae:
    case 0x8e:
    case 0x89:
    case 0x9c:
        return IO_WRITE;
    default:
        return IO_OTHER;
    }
}

void stats_begin(struct command *cmd)
{
    cmd->stats = stats_of(cmd->conn->stats, cmd->pdu.lun);
    cmd->begun_ns = loop_now_ns(cmd->conn->loop);
    cmd->aborted = false;
}

static void count_status(struct command *cmd)
{
    switch (cmd->scsi.status) {
    case SCSI_GOOD:
    case SCSI_CONDITION_MET:
        return;
    case SCSI_TASK_ABORTED:
        stats_aborted(cmd);
        return;
    default:
        io_count(&cmd->stats->troubles[IO_FAILED], 1);
    }
}

void stats_answered(struct command *cmd, uint32_t sent)
{
    struct io_stats *stats = cmd->stats;
    if (stats == NULL)
        return;
    io_stats_answered(stats, kind_of(cmd->scsi.cdb[0]), loop_now_ns(cmd->conn->loop) - cmd->begun_ns);
    if (sent > 0)
        io_count(&stats->read_bytes, sent);
    if (cmd->scsi.received_len > 0)
        io_count(&stats->written_bytes, cmd->scsi.received_len);
    count_status(cmd);
}

void stats_aborted(struct command *cmd)
{
    if (cmd->aborted || cmd->stats == NULL)
        return;
    cmd->aborted = true;
    io_count(&cmd->stats->troubles[IO_ABORTED], 1);
}
