/*
 * The NBD protocol as values: numbers, parsers, builders. No I/O, no state, no memory: what the fuzzer eats.
 * protocol_option.c has the handshake and the options, protocol_request.c the requests, protocol_reply.c the replies.
 *
 * After doc/proto.md of the NetworkBlockDevice project ("the protocol document") and its extension of 64-bit headers.
 * Everything on the wire is big-endian. A parser takes bytes that are there in full and gives a checked structure or an
 * error; nothing in a parsed structure points outside the bytes it came from. A builder writes into memory of the
 * caller, who knows the most it can write (NBD_..._MAX), and says how much it wrote.
 */
#ifndef TARGET_NBD_PROTOCOL_H
#define TARGET_NBD_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/blkdev.h"

/* --- handshake and options --- */

#define NBD_MAGIC_INIT   0x4e42444d41474943ull /* "NBDMAGIC" */
#define NBD_MAGIC_OPTION 0x49484156454f5054ull /* "IHAVEOPT" */
#define NBD_MAGIC_REPLY  0x0003e889045565a9ull

enum { NBD_HANDSHAKE_FIXED_NEWSTYLE = 1, NBD_HANDSHAKE_NO_ZEROES = 2 };

enum nbd_option {
    NBD_OPT_EXPORT_NAME = 1,
    NBD_OPT_ABORT = 2,
    NBD_OPT_LIST = 3,
    NBD_OPT_STARTTLS = 5,
    NBD_OPT_INFO = 6,
    NBD_OPT_GO = 7,
    NBD_OPT_STRUCTURED_REPLY = 8,
    NBD_OPT_LIST_META_CONTEXT = 9,
    NBD_OPT_SET_META_CONTEXT = 10,
    NBD_OPT_EXTENDED_HEADERS = 11,
};

#define NBD_REP_ERROR(number) (1u << 31 | (number))
enum {
    NBD_REP_ACK = 1,
    NBD_REP_SERVER = 2,
    NBD_REP_INFO = 3,
    NBD_REP_META_CONTEXT = 4,
};
#define NBD_REP_ERR_UNSUP           NBD_REP_ERROR(1u)
#define NBD_REP_ERR_POLICY          NBD_REP_ERROR(2u)
#define NBD_REP_ERR_INVALID         NBD_REP_ERROR(3u)
#define NBD_REP_ERR_TLS_REQD        NBD_REP_ERROR(5u)
#define NBD_REP_ERR_UNKNOWN         NBD_REP_ERROR(6u)
#define NBD_REP_ERR_TOO_BIG         NBD_REP_ERROR(9u)
#define NBD_REP_ERR_EXT_HEADER_REQD NBD_REP_ERROR(10u)

enum nbd_info { NBD_INFO_EXPORT, NBD_INFO_NAME, NBD_INFO_DESCRIPTION, NBD_INFO_BLOCK_SIZE };

enum {
    NBD_GREETING_BYTES = 18,
    NBD_CLIENT_FLAGS_BYTES = 4,
    NBD_OPTION_BYTES = 16,
    NBD_OPTION_REPLY_BYTES = 20,
    NBD_OPTION_DATA_MAX = 16384, /* ours: longer data is skipped and answered with ERR_TOO_BIG */
    NBD_OLD_REPLY_BYTES = 10,    /* the answer to EXPORT_NAME ... */
    NBD_OLD_REPLY_ZEROES = 124,  /* ... and what follows it unless both sides said NO_ZEROES */
};

struct nbd_option_header {
    uint32_t option, len;
};

/* What INFO and GO carry. */
struct nbd_info_request {
    const char *name; /* in the parsed bytes, not terminated */
    uint32_t name_len;
    uint32_t wanted; /* 1 << enum nbd_info; requests that are not known are left out */
};

size_t nbd_build_greeting(uint8_t *out);
/* False: flags that this server does not know; the connection must end. */
bool nbd_parse_client_flags(const uint8_t bytes[NBD_CLIENT_FLAGS_BYTES], uint32_t *flags);
/* False: no option starts here; the stream is out of step. */
bool nbd_parse_option(const uint8_t bytes[NBD_OPTION_BYTES], struct nbd_option_header *out);
/* 0, or the type of the error reply. */
uint32_t nbd_parse_info_request(const uint8_t *data, uint32_t len, struct nbd_info_request *out);
/* 0, or the type of the error reply. */
uint32_t nbd_check_name(const char *name, uint32_t len);

/* The header of an option's reply; `len` bytes of data follow. */
size_t nbd_build_option_reply(uint8_t *out, uint32_t option, uint32_t type, uint32_t len);
/* Whole replies: an error with a text for people; one line of LIST; the pieces of INFO and GO. */
size_t nbd_build_option_error(uint8_t *out, uint32_t option, uint32_t type, const char *text);
size_t nbd_build_list_entry(uint8_t *out, const char *name, const char *description);
size_t nbd_build_info_export(uint8_t *out, uint32_t option, uint64_t size, uint16_t flags);
size_t nbd_build_info_text(uint8_t *out, uint32_t option, enum nbd_info info, const char *text);
size_t nbd_build_info_block_size(uint8_t *out, uint32_t option, uint32_t minimum, uint32_t preferred, uint32_t maximum);
size_t nbd_build_meta_context(uint8_t *out, uint32_t option, uint32_t id, const char *name);
size_t nbd_build_old_reply(uint8_t *out, uint64_t size, uint16_t flags, bool zeroes);

/* --- transmission --- */

/* How requests and replies look: what the client asked for last, and most, before GO. */
enum nbd_mode {
    NBD_SIMPLE,
    NBD_STRUCTURED, /* replies to reads, and errors, are chunks */
    NBD_EXTENDED,   /* all replies are chunks; lengths have 64 bits */
};

/* Transmission flags: what an export can do. */
enum {
    NBD_FLAG_HAS_FLAGS = 1 << 0,
    NBD_FLAG_READ_ONLY = 1 << 1,
    NBD_FLAG_SEND_FLUSH = 1 << 2,
    NBD_FLAG_SEND_FUA = 1 << 3,
    NBD_FLAG_ROTATIONAL = 1 << 4,
    NBD_FLAG_SEND_TRIM = 1 << 5,
    NBD_FLAG_SEND_WRITE_ZEROES = 1 << 6,
    NBD_FLAG_SEND_DF = 1 << 7,
    NBD_FLAG_CAN_MULTI_CONN = 1 << 8,
    NBD_FLAG_SEND_CACHE = 1 << 10,
    NBD_FLAG_SEND_FAST_ZERO = 1 << 11,
    NBD_FLAG_BLOCK_STATUS_PAYLOAD = 1 << 12,
};

#define NBD_MAGIC_REQUEST          0x25609513u
#define NBD_MAGIC_EXTENDED_REQUEST 0x21e41c71u
#define NBD_MAGIC_SIMPLE_REPLY     0x67446698u
#define NBD_MAGIC_STRUCTURED_REPLY 0x668e33efu
#define NBD_MAGIC_EXTENDED_REPLY   0x6e8a278cu

enum nbd_command {
    NBD_CMD_READ = 0,
    NBD_CMD_WRITE = 1,
    NBD_CMD_DISC = 2,
    NBD_CMD_FLUSH = 3,
    NBD_CMD_TRIM = 4,
    NBD_CMD_CACHE = 5,
    NBD_CMD_WRITE_ZEROES = 6,
    NBD_CMD_BLOCK_STATUS = 7,
};

/* Command flags. */
enum {
    NBD_CMD_FUA = 1 << 0,
    NBD_CMD_NO_HOLE = 1 << 1,
    NBD_CMD_DF = 1 << 2,
    NBD_CMD_REQ_ONE = 1 << 3,
    NBD_CMD_FAST_ZERO = 1 << 4,
    NBD_CMD_PAYLOAD_LEN = 1 << 5, /* extended requests: the length is that of the payload */
};

enum { NBD_CHUNK_DONE = 1 }; /* flag of the last chunk of a reply */
enum nbd_chunk_type {
    NBD_CHUNK_NONE = 0,
    NBD_CHUNK_OFFSET_DATA = 1,
    NBD_CHUNK_OFFSET_HOLE = 2,
    NBD_CHUNK_BLOCK_STATUS = 5,
    NBD_CHUNK_BLOCK_STATUS_EXT = 6,
    NBD_CHUNK_ERROR = 0x8001,
    NBD_CHUNK_ERROR_OFFSET = 0x8002,
};

enum {
    NBD_REQUEST_BYTES = 28,
    NBD_EXTENDED_REQUEST_BYTES = 32,
    NBD_SIMPLE_REPLY_BYTES = 16,
    NBD_CHUNK_BYTES = 20,
    NBD_EXTENDED_CHUNK_BYTES = 32,
    NBD_HOLE_BYTES_MAX = NBD_EXTENDED_CHUNK_BYTES + 12, /* the longest header of a hole, of data, of extents */
    NBD_ERROR_BYTES_MAX = 128,                          /* the longest error chunk */
    NBD_EXTENT_BYTES_MAX = 16,
    NBD_STATE_HOLE_ZERO = 1 | 2, /* base:allocation: nothing is allocated, it reads as zeroes */
};

/* Errors as numbers on the wire. */
enum {
    NBD_EPERM = 1,
    NBD_EIO = 5,
    NBD_EINVAL = 22,
    NBD_ENOSPC = 28,
    NBD_EOVERFLOW = 75,
    NBD_ENOTSUP = 95,
    NBD_ESHUTDOWN = 108,
};

/* Why a request is not answered with success: an error number and a text, in one table (protocol_reply.c). */
enum nbd_fault {
    NBD_FAULT_NONE,
    NBD_FAULT_COMMAND,
    NBD_FAULT_FLAGS,
    NBD_FAULT_NOT_OFFERED,
    NBD_FAULT_READ_ONLY,
    NBD_FAULT_EMPTY,
    NBD_FAULT_TOO_LONG,
    NBD_FAULT_READ_TOO_LONG, /* where the client knows EOVERFLOW */
    NBD_FAULT_NO_CONTEXT,    /* block status without a context */
    NBD_FAULT_FILTER,        /* block status with a payload that makes no sense */
    NBD_FAULT_BEYOND_END,    /* read, trim, cache, block status */
    NBD_FAULT_NO_ROOM,       /* write, write zeroes beyond the end */
    NBD_FAULT_SHUTDOWN,      /* it came after the order to end */
    NBD_FAULT_SLOW,          /* zeroes that are to be fast and would not be */
    NBD_FAULT_MEDIA,
    NBD_FAULT_GONE,
    NBD_FAULT_TIMEOUT,
    NBD_FAULT_NO_SPACE,
    NBD_FAULT_NOT_POSSIBLE,
};
enum { NBD_FAULT_COUNT = NBD_FAULT_NOT_POSSIBLE + 1 };

struct nbd_request_header {
    uint16_t flags, command;
    uint64_t cookie, off, len;
};

/* What a request is measured against. */
struct nbd_rules {
    uint64_t size;        /* bytes of the export */
    uint32_t block;       /* the device's, a power of two; other ranges are served as well */
    uint32_t payload_max; /* longest read or write */
    uint16_t flags;       /* transmission flags as they were offered */
    enum nbd_mode mode;
    uint32_t contexts;  /* selected: bits (contexts.h) */
    uint32_t zero_unit; /* zeroes are fast where they cover an aligned run of so many bytes */
};

/* Bytes of a request's header. */
static inline uint32_t nbd_request_bytes(enum nbd_mode mode)
{
    return mode == NBD_EXTENDED ? NBD_EXTENDED_REQUEST_BYTES : NBD_REQUEST_BYTES;
}
/* False: no request starts here; the stream is out of step. */
bool nbd_parse_request(const uint8_t *bytes, enum nbd_mode mode, struct nbd_request_header *out);
/* Bytes that follow the header, whether or not the request is a good one. */
uint64_t nbd_request_payload(const struct nbd_request_header *request, enum nbd_mode mode);
/* May it be carried out? Not for DISC, which has no answer. */
enum nbd_fault nbd_request_check(const struct nbd_request_header *request, const struct nbd_rules *rules);
/* The same for the range of a block status, once its length is known from its payload. */
enum nbd_fault nbd_status_range_check(const struct nbd_request_header *request, const struct nbd_rules *rules);

enum nbd_fault nbd_fault_of(enum blk_status status);
uint32_t nbd_fault_number(enum nbd_fault fault);
const char *nbd_fault_text(enum nbd_fault fault);

/* Each repeats the cookie of the request `to`, and in extended mode its offset. Success without data: */
size_t nbd_build_success(uint8_t *out, enum nbd_mode mode, const struct nbd_request_header *to);
/* Data of a read, all or (in chunks) a part: `len` bytes follow. */
size_t nbd_build_data(uint8_t *out, enum nbd_mode mode, const struct nbd_request_header *to, uint64_t off, uint32_t len,
                      bool last);
/* A part of a read that is zeroes, and not sent. Not in simple mode. */
size_t nbd_build_hole(uint8_t *out, enum nbd_mode mode, const struct nbd_request_header *to, uint64_t off, uint32_t len,
                      bool last);
/* Extents of one context: `len` bytes of them follow, as nbd_build_extent() made them. */
size_t nbd_build_status(uint8_t *out, enum nbd_mode mode, const struct nbd_request_header *to, uint32_t context_id,
                        uint32_t len);
size_t nbd_build_extent(uint8_t *out, enum nbd_mode mode, uint64_t len, uint32_t state);
/* The request failed; `bad_off` (may be NULL) is where. */
size_t nbd_build_error(uint8_t *out, enum nbd_mode mode, const struct nbd_request_header *to, enum nbd_fault fault,
                       const uint64_t *bad_off);

#endif
