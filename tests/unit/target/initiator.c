/* See initiator.h. */
#include "tests/unit/target/initiator.h"

#include <stdlib.h>

#include "core/crc32c.h"
#include "core/log.h"

static void quiet(enum log_level level, const char *line)
{
    (void)level;
    (void)line;
}

struct ini_rig *ini_rig_make(uint32_t pages, struct iscsi_limits limits)
{
    struct ini_rig *rig = calloc(1, sizeof *rig);
    log_setup(quiet, LOG_LEVEL_ERROR);
    limits.connections = limits.connections ? limits.connections : 16;
    limits.commands = limits.commands ? limits.commands : 32;
    limits.login_ns = limits.login_ns ? limits.login_ns : 15000000000ull;
    limits.half_open = limits.half_open ? limits.half_open : 10;
    limits.half_open_per_host = limits.half_open_per_host ? limits.half_open_per_host : 10;
    rig->limits = limits;
    rig->t = testloop_create(pages + SCSI_SCRATCH_PAGES, 5);
    rig->scsi = scsi_target_create(&rig->t->loop, INI_TARGET);
    cr_assert_not_null(rig->scsi);
    for (unsigned lun = 0; lun < 2; lun++) {
        rig->disks[lun] = memdisk_create(&rig->t->loop, "disk", INI_DISK_BYTES, 512);
        struct scsi_lu_options lu = {.dev = &rig->disks[lun]->dev, .naa = {0x60, (uint8_t)lun}};
        text_format(lu.serial, sizeof lu.serial, "serial-%u", lun);
        cr_assert_eq(scsi_target_add_lun(rig->scsi, lun, &lu), 0);
    }
    rig->server = iscsi_server_create(&rig->t->loop, &rig->limits);
    cr_assert_eq(iscsi_server_add_target(rig->server, rig->scsi, &rig->t->loop, INI_TARGET, "the disk"), 0);
    cr_assert_eq(iscsi_server_add_portal(rig->server, 1, "192.0.2.1:3260"), 0);
    return rig;
}

void ini_rig_drop(struct ini_rig *rig)
{
    ini_hang(rig, false);
    testloop_run_ready(rig->t);
    cr_assert_eq(iscsi_server_connections(rig->server), 0, "all connections are over");
    iscsi_server_destroy(rig->server);
    scsi_target_destroy(rig->scsi);
    for (unsigned lun = 0; lun < 2; lun++)
        test_close(rig->t, &rig->disks[lun]->dev);
    testloop_destroy(rig->t);
    free(rig);
}

enum { HANG_NS = 1000 }; /* x 1e9 */

void ini_hang(struct ini_rig *rig, bool hang)
{
    uint64_t latency = HANG_NS * 1000000000ull;
    bool hung = rig->disks[0]->latency_ns != 0;
    for (unsigned lun = 0; lun < 2; lun++)
        rig->disks[lun]->latency_ns = hang ? latency : 0;
    if (hung && !hang)
        ini_pass_time(rig, latency);
}

void ini_pass_time(struct ini_rig *rig, uint64_t ns)
{
    testloop_run_ready(rig->t);
    uint64_t end = rig->t->loop.now_ns + ns;
    for (uint64_t next; (next = loop_next_timer_ns(&rig->t->loop)) <= end;) {
        rig->t->loop.now_ns = MAX(rig->t->loop.now_ns, next);
        testloop_run_ready(rig->t);
    }
    rig->t->loop.now_ns = end;
    testloop_run_ready(rig->t);
}

struct ini *ini_connect(struct ini_rig *rig, uint8_t isid)
{
    return ini_connect_at(rig, isid, "192.0.2.1:3260");
}

struct ini *ini_connect_at(struct ini_rig *rig, uint8_t isid, const char *portal)
{
    struct ini *ini = calloc(1, sizeof *ini);
    ini->rig = rig;
    ini->isid[0] = 0x80;
    ini->isid[5] = isid;
    ini->cmd_sn = ini->exp_cmd_sn = 0xfffffff0u + isid; /* wraps soon */
    ini->max_cmd_sn = ini->cmd_sn - 1;
    ini->itt = 100;
    ini->s = teststream_create(&rig->t->loop, 77 + isid);
    text_format(ini->s->stream.local, sizeof ini->s->stream.local, "%s", portal);
    text_format(ini->s->stream.peer, sizeof ini->s->stream.peer, "192.0.2.9:%u", 1000u + isid);
    iscsi_conn_open(rig->server, &ini->s->stream, 1);
    return ini;
}

void ini_drop(struct ini *ini)
{
    if (!ini->s->closed)
        teststream_end(ini->s);
    ini_run(ini);
    cr_assert(ini->s->closed, "the target lets go of a stream that ended");
    teststream_destroy(ini->s);
    free(ini);
}

void ini_run(struct ini *ini)
{
    testloop_run_ready(ini->rig->t);
}

static void feed_crc(struct ini *ini, uint32_t crc)
{
    uint8_t bytes[4];
    put_le32(bytes, crc);
    teststream_feed(ini->s, bytes, sizeof bytes);
}

void ini_send(struct ini *ini, uint8_t bhs[PDU_BHS_BYTES], const void *data, uint32_t len)
{
    static const uint8_t zero[3];
    put_be24(bhs + 5, len);
    teststream_feed(ini->s, bhs, PDU_BHS_BYTES);
    if (ini->header_digest)
        feed_crc(ini, crc32c(0, bhs, PDU_BHS_BYTES));
    if (len == 0)
        return;
    teststream_feed(ini->s, data, len);
    teststream_feed(ini->s, zero, -len & 3);
    if (ini->data_digest)
        feed_crc(ini, crc32c(crc32c(0, data, len), zero, -len & 3));
}

void ini_pdu_free(struct ini_pdu *pdu)
{
    free(pdu->data);
    *pdu = (struct ini_pdu){0};
}

static void take_crc(struct ini *ini, uint32_t crc, const char *what)
{
    uint8_t bytes[4];
    cr_assert(teststream_take(ini->s, bytes, sizeof bytes));
    cr_assert_eq(get_le32(bytes), crc, "%s digest", what);
}

/* 4.2.2.3: which PDUs carry a StatSN of their own. */
static void check_numbers(struct ini *ini, const uint8_t *bhs)
{
    uint8_t opcode = bhs[0] & 0x3f;
    bool status = opcode == PDU_DATA_IN && (bhs[1] & PDU_STATUS);
    bool ping = opcode == PDU_NOP_IN && get_be32(bhs + 16) == PDU_TAG_NONE;
    bool shows = opcode == PDU_R2T || ping, takes = !shows && (opcode != PDU_DATA_IN || status);
    if (!ini->numbered && takes)
        ini->stat_sn = get_be32(bhs + 24);
    ini->numbered |= takes;
    if (shows || takes)
        cr_assert_eq(get_be32(bhs + 24), ini->stat_sn, "StatSN of opcode %02x", opcode);
    ini->stat_sn += takes;
    uint32_t exp = get_be32(bhs + 28), max = get_be32(bhs + 32);
    cr_assert_not(serial_less(max, exp - 1), "MaxCmdSN is not below ExpCmdSN - 1");
    cr_assert_not(serial_less(max, ini->max_cmd_sn), "MaxCmdSN does not go back");
    ini->max_cmd_sn = max;
    ini->exp_cmd_sn = exp;
}

bool ini_recv(struct ini *ini, struct ini_pdu *pdu)
{
    *pdu = (struct ini_pdu){0};
    ini_run(ini);
    if (teststream_sent(ini->s) < PDU_BHS_BYTES)
        return false;
    cr_assert(teststream_take(ini->s, pdu->bhs, PDU_BHS_BYTES));
    if (ini->header_digest)
        take_crc(ini, crc32c(0, pdu->bhs, PDU_BHS_BYTES), "header");
    pdu->len = get_be24(pdu->bhs + 5);
    uint32_t padded = (pdu->len + 3) & ~3u;
    pdu->data = calloc(1, padded + 1);
    cr_assert(teststream_take(ini->s, pdu->data, padded), "a PDU is sent whole");
    if (ini->data_digest && pdu->len > 0)
        take_crc(ini, crc32c(0, pdu->data, padded), "data");
    check_numbers(ini, pdu->bhs);
    return true;
}

uint32_t ini_expect(struct ini *ini, uint8_t opcode, uint8_t bhs[PDU_BHS_BYTES], void *data, uint32_t room)
{
    struct ini_pdu pdu;
    cr_assert(ini_recv(ini, &pdu), "PDU %02x expected, and nothing came", opcode);
    cr_assert_eq(pdu.bhs[0] & 0x3f, opcode, "PDU %02x expected, got %02x %02x %02x %02x", opcode, pdu.bhs[0],
                 pdu.bhs[1], pdu.bhs[2], pdu.bhs[3]);
    if (bhs != NULL)
        memcpy(bhs, pdu.bhs, PDU_BHS_BYTES);
    uint32_t len = pdu.len;
    if (data != NULL)
        memcpy(data, pdu.data, MIN(room, len));
    ini_pdu_free(&pdu);
    return len;
}

void ini_expect_silence(struct ini *ini)
{
    ini_run(ini);
    const uint8_t *sent = teststream_look(ini->s);
    cr_assert_eq(teststream_sent(ini->s), 0, "nothing was to be sent, but opcode %02x was", sent != NULL ? sent[0] : 0);
    cr_assert_not(ini->s->closed);
}

void ini_expect_closed(struct ini *ini)
{
    ini_run(ini);
    cr_assert(ini->s->closed, "the connection should be closed");
}

/* --- login --- */

int ini_login_request(struct ini *ini, uint8_t flags, uint16_t tsih, const char *text, size_t text_len, char *answer,
                      size_t answer_max)
{
    uint8_t bhs[PDU_BHS_BYTES] = {0x43, flags};
    struct ini_pdu pdu;
    memcpy(bhs + 8, ini->isid, 6);
    put_be16(bhs + 14, tsih);
    put_be32(bhs + 16, 7);
    put_be32(bhs + 24, ini->cmd_sn);
    ini_send(ini, bhs, text, (uint32_t)text_len);
    if (!ini_recv(ini, &pdu))
        return -1;
    cr_assert_eq(pdu.bhs[0], PDU_LOGIN_RESPONSE);
    if (answer != NULL)
        memcpy(answer, pdu.data, MIN((size_t)pdu.len, answer_max));
    if (answer != NULL && pdu.len < answer_max)
        answer[pdu.len] = '\0';
    ini->login_flags = pdu.bhs[1];
    ini->tsih = get_be16(pdu.bhs + 14);
    int status = get_be16(pdu.bhs + 36);
    ini_pdu_free(&pdu);
    return status;
}

int ini_login_keys(struct ini *ini, const char *keys)
{
    char text[4096];
    size_t len = strlen(keys);
    memcpy(text, keys, len + 1);
    for (size_t i = 0; i < len; i++)
        if (text[i] == '|')
            text[i] = '\0';
    int status = ini_login_request(ini, 0x87, 0, text, len + 1, NULL, 0);
    if (status == 0) {
        ini->header_digest = strstr(keys, "HeaderDigest=CRC32C") != NULL;
        ini->data_digest = strstr(keys, "DataDigest=CRC32C") != NULL;
    }
    return status;
}

struct ini *ini_session(struct ini_rig *rig, uint8_t isid, const char *more)
{
    struct ini *ini = ini_connect(rig, isid);
    char keys[2048];
    text_format(keys, sizeof keys,
                "InitiatorName=" INI_NAME "|TargetName=" INI_TARGET "|MaxRecvDataSegmentLength=262144%s%s",
                more[0] != '\0' ? "|" : "", more);
    int status = ini_login_keys(ini, keys);
    cr_assert_eq(status, 0, "login status %04x", status);
    ini_ready(ini);
    return ini;
}

/* --- requests --- */

void ini_request(struct ini *ini, uint8_t bhs[PDU_BHS_BYTES], uint8_t opcode, uint8_t flags)
{
    memset(bhs, 0, PDU_BHS_BYTES);
    bhs[0] = opcode;
    bhs[1] = flags;
    put_be32(bhs + 16, ini->itt++);
    put_be32(bhs + 20, PDU_TAG_NONE);
    put_be32(bhs + 24, ini->cmd_sn);
    put_be32(bhs + 28, ini->stat_sn);
    ini->cmd_sn += !(opcode & 0x40);
}

void ini_command(struct ini *ini, uint8_t bhs[PDU_BHS_BYTES], uint8_t flags, uint32_t edtl, const uint8_t *cdb)
{
    ini_request(ini, bhs, PDU_COMMAND, flags);
    put_be32(bhs + 20, edtl);
    memcpy(bhs + 32, cdb, 16);
}

void ini_data_out(struct ini *ini, const uint8_t *command, uint32_t ttt, uint32_t data_sn, uint32_t offset, bool final,
                  const void *data, uint32_t len)
{
    uint8_t bhs[PDU_BHS_BYTES] = {PDU_DATA_OUT, final ? PDU_FINAL : 0};
    memcpy(bhs + 8, command + 8, 12); /* LUN, ITT */
    put_be32(bhs + 20, ttt);
    put_be32(bhs + 28, ini->stat_sn);
    put_be32(bhs + 36, data_sn);
    put_be32(bhs + 40, offset);
    ini_send(ini, bhs, data, len);
}

void ini_task(struct ini *ini, uint8_t function, uint32_t ref_itt, uint32_t ref_cmd_sn, unsigned lun, uint8_t response)
{
    uint8_t bhs[PDU_BHS_BYTES], reply[PDU_BHS_BYTES];
    ini_request(ini, bhs, 0x40 | PDU_TASK, 0x80 | function);
    bhs[9] = (uint8_t)lun;
    put_be32(bhs + 20, ref_itt);
    put_be32(bhs + 32, ref_cmd_sn);
    ini_send(ini, bhs, NULL, 0);
    ini_expect(ini, PDU_TASK_RESPONSE, reply, NULL, 0);
    cr_expect_eq(reply[2], response, "function %u: response %u, not %u", function, reply[2], response);
}

void ini_cdb_rw(uint8_t cdb[16], bool write, uint32_t lba, uint32_t blocks)
{
    memset(cdb, 0, 16);
    cdb[0] = write ? 0x8a : 0x88;
    put_be32(cdb + 6, lba);
    put_be32(cdb + 10, blocks);
}

/* --- answers --- */

static void take_sense(struct ini_answer *answer, const struct ini_pdu *pdu)
{
    if (pdu->len < 2 + 14)
        return;
    cr_assert_eq(get_be16(pdu->data), pdu->len - 2, "SenseLength");
    answer->key = pdu->data[2 + 2] & 0x0f;
    answer->asc = pdu->data[2 + 12];
    answer->ascq = pdu->data[2 + 13];
}

struct ini_answer ini_answer(struct ini *ini)
{
    static uint8_t buffer[INI_DATA_MAX];
    struct ini_answer answer = {.data = buffer};
    for (;;) {
        struct ini_pdu pdu;
        cr_assert(ini_recv(ini, &pdu), "an answer is due");
        uint8_t opcode = pdu.bhs[0];
        cr_assert(opcode == PDU_DATA_IN || opcode == PDU_RESPONSE, "opcode %02x", opcode);
        bool over = opcode == PDU_RESPONSE || (pdu.bhs[1] & PDU_STATUS);
        answer.itt = get_be32(pdu.bhs + 16);
        if (opcode == PDU_DATA_IN) {
            cr_assert_eq(get_be32(pdu.bhs + 36), answer.data_pdus, "DataSN");
            cr_assert_eq(get_be32(pdu.bhs + 40), answer.len, "buffer offset");
            memcpy(buffer + answer.len, pdu.data, pdu.len);
            answer.len += pdu.len;
            answer.data_pdus++;
            answer.collapsed = over;
        } else {
            take_sense(&answer, &pdu);
        }
        if (over) {
            answer.status = pdu.bhs[3];
            answer.residual_flags = pdu.bhs[1] & (PDU_OVERFLOW | PDU_UNDERFLOW);
            answer.residual = get_be32(pdu.bhs + 44);
        }
        ini_pdu_free(&pdu);
        if (over)
            return answer;
    }
}

struct ini_answer ini_do(struct ini *ini, uint8_t flags, uint32_t edtl, const uint8_t *cdb)
{
    uint8_t bhs[PDU_BHS_BYTES];
    ini_command(ini, bhs, INI_F | flags, edtl, cdb);
    ini_send(ini, bhs, NULL, 0);
    struct ini_answer answer = ini_answer(ini);
    cr_assert_eq(answer.itt, get_be32(bhs + 16));
    return answer;
}

void ini_ready(struct ini *ini)
{
    for (unsigned lun = 0; lun < 2; lun++) {
        uint8_t status = 1;
        for (unsigned i = 0; i < 8 && status != 0; i++) {
            uint8_t bhs[PDU_BHS_BYTES];
            ini_command(ini, bhs, INI_F, 0, INI_CDB(0));
            bhs[9] = (uint8_t)lun;
            ini_send(ini, bhs, NULL, 0);
            status = ini_answer(ini).status;
        }
        cr_assert_eq(status, 0, "the LU becomes ready");
    }
}
