/*
 * An initiator that says anything: bytes into a whole iSCSI connection over a target in memory.
 *
 * The first byte chooses:
 *     bit 0   log in properly first; else the bytes are the login
 *     bit 1   the rest are records, see below; else they are the stream as it is
 *     bit 2   the socket gives and takes a few bytes at a time
 *     bit 3   header and data digests (with bit 0)
 *     bit 4   the target has few pages
 *     bit 5   the disk is slow: commands are in flight when the stream ends
 *
 * A record is a BHS, a length (one byte, times 16) and that much data. So that mutations get beyond the window and the
 * tags, CmdSN and lengths are put right, digests are added, and a Data-Out whose TTT begins with aa answers the last
 * R2T.
 */
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "core/log.h"
#include "target/iscsi/iscsi.h"
#include "target/iscsi/pdu.h"
#include "tests/unit/lib/testloop.h"
#include "tests/unit/lib/teststream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#define TARGET "iqn.2026-11.org.example:fuzz"
enum { LOGGED_IN = 1, RECORDS = 2, SHORT = 4, DIGESTS = 8, FEW_PAGES = 16, SLOW = 32 };
enum { DISK_BYTES = 1 << 20, RECORD_HEAD = PDU_BHS_BYTES + 1, RECORDS_MAX = 200 };

struct fuzz {
    unsigned mode;
    struct testloop *t;
    struct memdisk *disk;
    struct scsi_target *scsi;
    struct iscsi_server *server;
    struct teststream *s;
    uint32_t cmd_sn;
    uint8_t r2t[PDU_BHS_BYTES];
};

static void quiet(enum log_level level, const char *line)
{
    (void)level;
    (void)line;
}

static void fuzz_begin(struct fuzz *f)
{
    static const struct iscsi_limits limits = {.connections = 4,
                                               .half_open = 4,
                                               .half_open_per_host = 4,
                                               .commands = 16,
                                               .login_ns = 1000000000,
                                               .nop_interval_ns = 1000000000,
                                               .nop_timeout_ns = 1000000000};
    log_setup(quiet, LOG_LEVEL_ERROR);
    f->t = testloop_create((f->mode & FEW_PAGES ? SCSI_SCRATCH_PAGES : 600) + SCSI_SCRATCH_PAGES, 1);
    f->disk = memdisk_create(&f->t->loop, "disk", DISK_BYTES, 512);
    f->disk->latency_ns = f->mode & SLOW ? 100000 : 0;
    f->scsi = scsi_target_create(&f->t->loop, TARGET);
    struct scsi_lu_options lu = {.dev = &f->disk->dev, .serial = "1", .naa = {0x60}};
    f->server = iscsi_server_create(&f->t->loop, &limits);
    ASSERT(f->scsi != NULL && f->server != NULL && scsi_target_add_lun(f->scsi, 0, &lu) == 0);
    ASSERT(iscsi_server_add_target(f->server, f->scsi, &f->t->loop, TARGET, "alias") == 0);
    f->s = teststream_create(&f->t->loop, 1);
    f->s->recv_max = f->s->send_max = f->mode & SHORT ? 37 : 0;
    iscsi_conn_open(f->server, &f->s->stream, 1);
}

static void fuzz_end(struct fuzz *f)
{
    teststream_end(f->s);
    testloop_run(f->t);
    ASSERT(f->s->closed && iscsi_server_connections(f->server) == 0);
    teststream_destroy(f->s);
    iscsi_server_destroy(f->server);
    scsi_target_destroy(f->scsi);
    test_close(f->t, &f->disk->dev);
    testloop_destroy(f->t);
}

/* What the target said: remember the last R2T, throw the rest away. */
static void listen(struct fuzz *f)
{
    uint32_t digest = f->mode & DIGESTS ? PDU_DIGEST_BYTES : 0;
    testloop_run_ready(f->t);
    while (teststream_sent(f->s) >= PDU_BHS_BYTES) {
        const uint8_t *bhs = teststream_look(f->s);
        uint32_t len = get_be24(bhs + 5), padded = (len + 3) & ~3u;
        if (bhs[0] == PDU_R2T)
            memcpy(f->r2t, bhs, sizeof f->r2t);
        uint32_t digests = bhs[0] == PDU_LOGIN_RESPONSE ? 0 : digest + (len > 0 ? digest : 0);
        if (!teststream_take(f->s, NULL, PDU_BHS_BYTES + padded + digests))
            break;
    }
}

static void feed_pdu(struct fuzz *f, const uint8_t *bhs, const uint8_t *data, uint32_t len, bool digests)
{
    uint8_t tail[PDU_TAIL_MAX], crc[PDU_DIGEST_BYTES];
    teststream_feed(f->s, bhs, PDU_BHS_BYTES);
    put_le32(crc, crc32c(0, bhs, PDU_BHS_BYTES));
    if (digests)
        teststream_feed(f->s, crc, sizeof crc);
    teststream_feed(f->s, data, len);
    teststream_feed(f->s, tail, pdu_tail(tail, len, digests, crc32c(0, data, len)));
}

static void log_in(struct fuzz *f)
{
    static const char plain[] = "InitiatorName=iqn.2026-11.org.example:i\0TargetName=" TARGET "\0InitialR2T=No\0"
                                "FirstBurstLength=1024\0MaxBurstLength=2048\0MaxOutstandingR2T=2";
    static const char digests[] =
        "InitiatorName=iqn.2026-11.org.example:i\0TargetName=" TARGET "\0HeaderDigest=CRC32C\0DataDigest=CRC32C";
    uint8_t bhs[PDU_BHS_BYTES] = {0x43, 0x87};
    bool with = (f->mode & DIGESTS) != 0;
    uint32_t len = with ? sizeof digests : sizeof plain;
    put_be24(bhs + 5, len);
    put_be32(bhs + 24, f->cmd_sn);
    feed_pdu(f, bhs, (const uint8_t *)(with ? digests : plain), len, false);
    listen(f);
    ASSERT(!f->s->closed);
}

static size_t feed_record(struct fuzz *f, const uint8_t *bytes, size_t len)
{
    uint8_t bhs[PDU_BHS_BYTES];
    memcpy(bhs, bytes, sizeof bhs);
    uint32_t data_len = (uint32_t)MIN(bytes[PDU_BHS_BYTES] * 16u, len - RECORD_HEAD);
    uint8_t opcode = bhs[0] & 0x3f;
    put_be24(bhs + 5, data_len);
    bhs[4] = 0;
    put_be32(bhs + 24, f->cmd_sn);
    f->cmd_sn += opcode != PDU_DATA_OUT && !(bhs[0] & 0x40);
    if (opcode == PDU_DATA_OUT && bhs[20] == 0xaa) {
        memcpy(bhs + 16, f->r2t + 16, 8);
        memcpy(bhs + 40, f->r2t + 40, 4);
    }
    feed_pdu(f, bhs, bytes + RECORD_HEAD, data_len, (f->mode & DIGESTS) != 0);
    listen(f);
    return RECORD_HEAD + data_len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < 1)
        return 0;
    struct fuzz f = {.mode = data[0], .cmd_sn = 0xfffffffeu};
    if (!(f.mode & LOGGED_IN))
        f.mode &= ~(unsigned)DIGESTS;
    fuzz_begin(&f);
    if (f.mode & LOGGED_IN)
        log_in(&f);
    if (f.mode & RECORDS) {
        unsigned count = 0;
        for (size_t at = 1; at + RECORD_HEAD <= len && !f.s->closed && count < RECORDS_MAX; count++)
            at += feed_record(&f, data + at, len - at);
    } else {
        teststream_feed(f.s, data + 1, len - 1);
        listen(&f);
    }
    fuzz_end(&f);
    return 0;
}
