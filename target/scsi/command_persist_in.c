/* PERSISTENT RESERVE IN (SPC-4 6.15): what reservation.h holds, as bytes. Answers what is kept, not what is on its way
 * to be. */
#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/task.h"
#include "target/scsi/transport_id.h"

enum { FULL_DESCRIPTOR = 24, HEADER = 8, REPLY_MAX = HEADER + RESERVATIONS_MAX * (FULL_DESCRIPTOR + TRANSPORT_ID_MAX) };

bool scsi_persist_in_parse(struct scsi_task *task)
{
    task->data_len = MIN((uint32_t)get_be16(task->cdb + 7), (uint32_t)REPLY_MAX);
    return true;
}

static void put_header(uint8_t *out, const struct reservations *now, uint32_t len)
{
    put_be32(out, now->generation);
    put_be32(out + 4, len - HEADER);
}

void scsi_read_keys_run(struct scsi_task *task)
{
    uint8_t data[HEADER + 8 * RESERVATIONS_MAX];
    const struct reservations *now = task->lu->persist;
    uint32_t len = HEADER;
    for (unsigned i = 0; i < now->count; i++, len += 8)
        put_be64(data + len, now->of[i].key);
    put_header(data, now, len);
    scsi_task_reply(task, data, len);
}

/* Of a reservation that all registrants hold the key is 0. SCOPE is 0: the logical unit. */
void scsi_read_reservation_run(struct scsi_task *task)
{
    uint8_t data[HEADER + 16] = {0};
    const struct reservations *now = task->lu->persist;
    uint32_t len = now->type == PERSIST_NONE ? HEADER : sizeof data;
    if (now->type != PERSIST_NONE && !persist_type_of_all(now->type))
        put_be64(data + HEADER, now->of[now->holder].key);
    data[HEADER + 13] = now->type;
    put_header(data, now, len);
    scsi_task_reply(task, data, len);
}

void scsi_report_capabilities_run(struct scsi_task *task)
{
    enum { CRH = 0x10, SIP_C = 0x08, ATP_C = 0x04, PTPL_C = 0x01, TMV = 0x80, PTPL_A = 0x01 };
    enum { TYPES_1_3_5_6_7 = 0xea, TYPE_8 = 0x01 };
    const struct scsi_lu *lu = task->lu;
    uint8_t data[8] = {0,
                       sizeof data,
                       (uint8_t)(CRH | SIP_C | ATP_C | (lu->options.keeper != NULL ? PTPL_C : 0)),
                       (uint8_t)(TMV | (lu->persist->aptpl ? PTPL_A : 0)),
                       TYPES_1_3_5_6_7,
                       TYPE_8};
    scsi_task_reply(task, data, sizeof data);
}

static uint32_t put_full_status(uint8_t *out, const struct reservations *now, const struct registration *of)
{
    enum { R_HOLDER = 0x01, THE_PORT = 1 };
    memset(out, 0, FULL_DESCRIPTOR);
    put_be64(out, of->key);
    if (reservations_hold(now, of)) {
        out[12] = R_HOLDER;
        out[13] = now->type;
    }
    put_be16(out + 18, THE_PORT);
    uint32_t len = transport_id_write(out + FULL_DESCRIPTOR, of->port);
    put_be32(out + 20, len);
    return FULL_DESCRIPTOR + len;
}

void scsi_read_full_status_run(struct scsi_task *task)
{
    uint8_t data[REPLY_MAX];
    const struct reservations *now = task->lu->persist;
    uint32_t len = HEADER;
    for (unsigned i = 0; i < now->count; i++)
        len += put_full_status(data + len, now, &now->of[i]);
    put_header(data, now, len);
    scsi_task_reply(task, data, len);
}
