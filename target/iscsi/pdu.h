/*
 * iSCSI PDUs as bytes and as values (RFC 7143, section 11). Pure: no socket, no state of a connection, no allocation.
 *
 * pdu_decode() turns the 48 bytes every PDU begins with (BHS) into a checked `struct pdu`, or says with which reason it
 * must be rejected. pdu_encode() is the way back for what a target sends. struct pdu_reader cuts a byte stream into
 * PDUs: it takes header, padding and digests itself and tells its owner how many data bytes come next; where those
 * go is the owner's business, so that they may land in pages straight from the socket.
 *
 *      header (BHS, AHS, digest) --PDU_HEADER--> data --PDU_DATA--> tail (padding, digest) --PDU_COMPLETE--> header
 */
#ifndef TARGET_ISCSI_PDU_H
#define TARGET_ISCSI_PDU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PDU_BHS_BYTES = 48,
    PDU_DIGEST_BYTES = 4,
    PDU_AHS_MAX = 255 * 4,
    PDU_HEADER_MAX = PDU_BHS_BYTES + PDU_AHS_MAX + PDU_DIGEST_BYTES,
    PDU_TAIL_MAX = 3 + PDU_DIGEST_BYTES,
};
#define PDU_TAG_NONE 0xffffffffu /* the reserved initiator or target task tag */

enum pdu_opcode {
    PDU_NOP_OUT = 0x00,
    PDU_COMMAND = 0x01,
    PDU_TASK = 0x02,
    PDU_LOGIN = 0x03,
    PDU_TEXT = 0x04,
    PDU_DATA_OUT = 0x05,
    PDU_LOGOUT = 0x06,
    PDU_SNACK = 0x10,
    PDU_NOP_IN = 0x20,
    PDU_RESPONSE = 0x21,
    PDU_TASK_RESPONSE = 0x22,
    PDU_LOGIN_RESPONSE = 0x23,
    PDU_TEXT_RESPONSE = 0x24,
    PDU_DATA_IN = 0x25,
    PDU_LOGOUT_RESPONSE = 0x26,
    PDU_R2T = 0x31,
    PDU_ASYNC = 0x32,
    PDU_REJECT = 0x3f,
};

/* Reject reasons, 11.17.1. */
enum pdu_reject {
    PDU_OK = 0,
    PDU_REJECT_DATA_DIGEST = 0x02,
    PDU_REJECT_SNACK = 0x03,
    PDU_REJECT_PROTOCOL = 0x04,
    PDU_REJECT_UNSUPPORTED = 0x05,
    PDU_REJECT_IMMEDIATE = 0x06,
    PDU_REJECT_IN_PROGRESS = 0x07,
    PDU_REJECT_FIELD = 0x09,
};

/* Bits of byte 1. */
enum {
    PDU_FINAL = 0x80,    /* F, and T of a login */
    PDU_CONTINUE = 0x40, /* C of login and text */
    PDU_READ = 0x40,
    PDU_WRITE = 0x20,
    PDU_OVERFLOW = 0x04,
    PDU_UNDERFLOW = 0x02,
    PDU_STATUS = 0x01, /* S of Data-In */
};

/* What an initiator sent. Members of the union belong to the opcode of their name. */
struct pdu {
    uint8_t opcode;
    bool immediate, final, more; /* more: the C bit of login and text */
    uint32_t ahs_len, data_len;
    uint8_t lun[8];
    uint32_t itt;
    uint32_t ttt; /* bytes 20 to 23: of NOP-Out, Text and Data-Out */
    uint32_t cmd_sn, exp_stat_sn;
    union {
        struct {
            bool read, write, extended; /* extended: the CDB is longer than 16 bytes (AHS) */
            uint32_t edtl;              /* expected data transfer length */
            uint8_t cdb[16];
        } command;
        struct {
            uint32_t data_sn, offset;
        } data_out;
        struct {
            uint8_t csg, nsg, version_min;
            uint8_t isid[6];
            uint16_t tsih, cid;
        } login;
        struct {
            uint8_t function;
            uint32_t ref_itt, ref_cmd_sn;
        } task;
        struct {
            uint8_t reason;
            uint16_t cid;
        } logout;
    };
};

/* `header`: the BHS and the AHS it announces. *out is filled as far as understood even when a reason is returned. */
enum pdu_reject pdu_decode(const uint8_t *header, struct pdu *out);

/* Serial number arithmetic of RFC 1982 for CmdSN and StatSN. */
static inline bool serial_less(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

/* What a target sends. Sequence numbers are stamped later (pdu_stamp), when it really leaves. */
struct pdu_out {
    enum pdu_opcode opcode;
    uint8_t flags, byte2, byte3; /* bytes 1 to 3: byte2 is response or reason, byte3 is status */
    uint8_t lun[8];              /* of a login response: ISID and TSIH */
    uint32_t itt, ttt;
    uint32_t word36, word40, word44; /* DataSN or R2TSN; buffer offset; residual or desired length; see 11.x */
};
void pdu_encode(const struct pdu_out *in, uint8_t bhs[PDU_BHS_BYTES]);
void pdu_stamp(uint8_t bhs[PDU_BHS_BYTES], uint32_t stat_sn, uint32_t exp_cmd_sn, uint32_t max_cmd_sn);

/* Padding and digest that follow `data_len` bytes of data; returns their length. `crc` is that of the data. */
uint32_t pdu_tail(uint8_t out[PDU_TAIL_MAX], uint32_t data_len, bool digest, uint32_t crc);

enum pdu_event {
    PDU_MORE,       /* everything given was taken, more is wanted */
    PDU_HEADER,     /* `header` is complete */
    PDU_DATA,       /* data_left bytes of data come next: move them, and say so with pdu_reader_moved() */
    PDU_COMPLETE,   /* the PDU is over */
    PDU_BAD_HEADER, /* header digest wrong: nothing that follows can be trusted */
    PDU_BAD_DATA,   /* the PDU is over, and its data digest is wrong */
};

struct pdu_reader {
    bool header_digest, data_digest;
    enum { PDU_IN_HEADER, PDU_IN_DATA, PDU_IN_TAIL } part;
    uint32_t got;       /* bytes of header or tail taken so far */
    uint32_t data_left; /* bytes of data still to come */
    uint32_t data_len;
    uint32_t crc; /* of the data so far */
    uint8_t header[PDU_HEADER_MAX];
    uint8_t tail[PDU_TAIL_MAX];
};

/* Look at the next bytes: take those that are not data. Returns how many were taken. */
size_t pdu_reader_take(struct pdu_reader *reader, const uint8_t *bytes, size_t len, enum pdu_event *event);
/* The owner moved `len` bytes of data, that now stand at `bytes`. */
void pdu_reader_moved(struct pdu_reader *reader, const void *bytes, uint32_t len);

#endif
