/*
 * An iSCSI initiator for unit tests: raw PDUs over a scripted stream, against a server with one target of two LUs in
 * memory. It checks what every PDU of a target must obey: digests, StatSN, MaxCmdSN that never goes back.
 */
#ifndef TESTS_UNIT_TARGET_INITIATOR_H
#define TESTS_UNIT_TARGET_INITIATOR_H

#include <criterion/criterion.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/iscsi/iscsi.h"
#include "target/iscsi/pdu.h"
#include "tests/unit/lib/testloop.h"
#include "tests/unit/lib/teststream.h"

#define INI_TARGET "iqn.2026-11.org.example:disk"
#define INI_NAME   "iqn.2026-11.org.example:host"
enum { INI_DISK_BYTES = 32 << 20, INI_DATA_MAX = 17 << 20 };

struct ini_rig {
    struct testloop *t;
    struct memdisk *disks[2];
    struct scsi_target *scsi;
    struct iscsi_server *server;
    struct iscsi_limits limits;
};
/* Limits of zero are replaced by generous ones. */
struct ini_rig *ini_rig_make(uint32_t pages, struct iscsi_limits limits);
void ini_rig_drop(struct ini_rig *rig);        /* all connections must be over */
void ini_hang(struct ini_rig *rig, bool hang); /* the disks answer no more until time is moved on; or at once again */
void ini_pass_time(struct ini_rig *rig, uint64_t ns);

struct ini {
    struct ini_rig *rig;
    struct teststream *s;
    uint8_t isid[6];
    uint32_t itt, cmd_sn, stat_sn, max_cmd_sn, exp_cmd_sn;
    bool numbered; /* stat_sn is known */
    bool header_digest, data_digest;
    uint8_t login_flags; /* of the last login response */
    uint16_t tsih;
};

/* A PDU as sent or received. Received data is at `data`, owned by the PDU: ini_pdu_free. */
struct ini_pdu {
    uint8_t bhs[PDU_BHS_BYTES];
    uint8_t *data;
    uint32_t len;
};

struct ini *ini_connect(struct ini_rig *rig, uint8_t isid);
struct ini *ini_connect_at(struct ini_rig *rig, uint8_t isid, const char *portal);
void ini_drop(struct ini *ini); /* the peer goes away */
void ini_run(struct ini *ini);

void ini_send(struct ini *ini, uint8_t bhs[PDU_BHS_BYTES], const void *data, uint32_t len);
/* Is there another PDU? Runs what is ready. */
bool ini_recv(struct ini *ini, struct ini_pdu *pdu);
void ini_pdu_free(struct ini_pdu *pdu);
/* The next PDU must have this opcode; its first `room` data bytes are copied to data (may be NULL). Returns the length.
 */
uint32_t ini_expect(struct ini *ini, uint8_t opcode, uint8_t bhs[PDU_BHS_BYTES], void *data, uint32_t room);
void ini_expect_silence(struct ini *ini);
void ini_expect_closed(struct ini *ini);

/* One login request; returns the status (class << 8 | detail), or -1 if the connection was closed. */
int ini_login_request(struct ini *ini, uint8_t flags, uint16_t tsih, const char *text, size_t text_len, char *answer,
                      size_t answer_max);
/* A whole login in one request straight from the operational stage; `keys` with | between them. Returns the status. */
int ini_login_keys(struct ini *ini, const char *keys);
/* A normal session with usual values and `more` keys; must succeed. */
struct ini *ini_session(struct ini_rig *rig, uint8_t isid, const char *more);

/* The 48 bytes of requests; the caller may change them before ini_send. CmdSN is taken for those not immediate. */
enum { INI_R = 0x40, INI_W = 0x20, INI_F = 0x80 };
void ini_command(struct ini *ini, uint8_t bhs[PDU_BHS_BYTES], uint8_t flags, uint32_t edtl, const uint8_t *cdb);
void ini_request(struct ini *ini, uint8_t bhs[PDU_BHS_BYTES], uint8_t opcode, uint8_t flags);
void ini_data_out(struct ini *ini, const uint8_t *command, uint32_t ttt, uint32_t data_sn, uint32_t offset, bool final,
                  const void *data, uint32_t len);
void ini_task(struct ini *ini, uint8_t function, uint32_t ref_itt, uint32_t ref_cmd_sn, unsigned lun, uint8_t response);
#define INI_CDB(...) ((const uint8_t[16]){__VA_ARGS__})
void ini_cdb_rw(uint8_t cdb[16], bool write, uint32_t lba, uint32_t blocks);

/* The answer to a command: Data-In put together, status, sense, residual. */
struct ini_answer {
    uint8_t status, key, asc, ascq;
    uint8_t residual_flags;
    uint32_t residual, len, data_pdus, itt;
    bool collapsed;
    uint8_t *data; /* shared buffer of the test process */
};
struct ini_answer ini_answer(struct ini *ini);
/* A command without data to send, and its answer. */
struct ini_answer ini_do(struct ini *ini, uint8_t flags, uint32_t edtl, const uint8_t *cdb);
void ini_ready(struct ini *ini); /* TEST UNIT READY until there are no unit attentions */

#endif
