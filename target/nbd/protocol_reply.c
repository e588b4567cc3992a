/* Replies to bytes, and the faults they tell of: see target/nbd/protocol.h. */
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/nbd/protocol.h"

/* --- faults --- */

static const struct {
    uint32_t number;
    const char *text;
} faults[NBD_FAULT_COUNT] = {
    [NBD_FAULT_NONE] = {0, ""},
    [NBD_FAULT_COMMAND] = {NBD_EINVAL, "unknown command"},
    [NBD_FAULT_FLAGS] = {NBD_EINVAL, "a flag that this command does not take here"},
    [NBD_FAULT_NOT_OFFERED] = {NBD_EINVAL, "the export does not offer this command"},
    [NBD_FAULT_READ_ONLY] = {NBD_EPERM, "the export is read-only"},
    [NBD_FAULT_EMPTY] = {NBD_EINVAL, "the length is zero"},
    [NBD_FAULT_TOO_LONG] = {NBD_EINVAL, "longer than the maximum payload"},
    [NBD_FAULT_READ_TOO_LONG] = {NBD_EOVERFLOW, "longer than the maximum payload"},
    [NBD_FAULT_NO_CONTEXT] = {NBD_EINVAL, "no metadata context was selected"},
    [NBD_FAULT_FILTER] = {NBD_EINVAL, "a payload that names no contexts that were selected"},
    [NBD_FAULT_BEYOND_END] = {NBD_EINVAL, "beyond the end of the export"},
    [NBD_FAULT_NO_ROOM] = {NBD_ENOSPC, "beyond the end of the export"},
    [NBD_FAULT_SHUTDOWN] = {NBD_ESHUTDOWN, "the server stops serving this connection"},
    [NBD_FAULT_SLOW] = {NBD_ENOTSUP, "writing these zeroes would not be fast"},
    [NBD_FAULT_MEDIA] = {NBD_EIO, "media error"},
    [NBD_FAULT_GONE] = {NBD_EIO, "the device is gone"},
    [NBD_FAULT_TIMEOUT] = {NBD_EIO, "the device did not answer in time"},
    [NBD_FAULT_NO_SPACE] = {NBD_ENOSPC, "no space is left beneath the export"},
    [NBD_FAULT_NOT_POSSIBLE] = {NBD_EINVAL, "the device cannot do this"},
};

enum nbd_fault nbd_fault_of(enum blk_status status)
{
    static const enum nbd_fault of[] = {
        [BLK_OK] = NBD_FAULT_NONE,
        [BLK_MEDIA] = NBD_FAULT_MEDIA,
        [BLK_GONE] = NBD_FAULT_GONE,
        [BLK_TIMEOUT] = NBD_FAULT_TIMEOUT,
        [BLK_NOSPACE] = NBD_FAULT_NO_SPACE,
        [BLK_READONLY] = NBD_FAULT_READ_ONLY,
        [BLK_INVALID] = NBD_FAULT_NOT_POSSIBLE,
    };
    ASSERT((unsigned)status < ARRAY_LENGTH(of));
    return of[status];
}

uint32_t nbd_fault_number(enum nbd_fault fault)
{
    ASSERT((unsigned)fault < NBD_FAULT_COUNT);
    return faults[fault].number;
}

const char *nbd_fault_text(enum nbd_fault fault)
{
    ASSERT((unsigned)fault < NBD_FAULT_COUNT);
    return faults[fault].text;
}

/* --- replies --- */

static size_t build_simple(uint8_t *out, uint64_t cookie, uint32_t error)
{
    put_be32(out, NBD_MAGIC_SIMPLE_REPLY);
    put_be32(out + 4, error);
    put_be64(out + 8, cookie);
    return NBD_SIMPLE_REPLY_BYTES;
}

/* The header of a chunk; `len` bytes follow. */
static size_t build_chunk(uint8_t *out, enum nbd_mode mode, const struct nbd_request_header *to,
                          enum nbd_chunk_type type, uint64_t len, bool last)
{
    bool extended = mode == NBD_EXTENDED;
    put_be32(out, extended ? NBD_MAGIC_EXTENDED_REPLY : NBD_MAGIC_STRUCTURED_REPLY);
    put_be16(out + 4, last ? NBD_CHUNK_DONE : 0);
    put_be16(out + 6, (uint16_t)type);
    put_be64(out + 8, to->cookie);
    if (!extended) {
        put_be32(out + 16, (uint32_t)len);
        return NBD_CHUNK_BYTES;
    }
    put_be64(out + 16, to->off);
    put_be64(out + 24, len);
    return NBD_EXTENDED_CHUNK_BYTES;
}

size_t nbd_build_success(uint8_t *out, enum nbd_mode mode, const struct nbd_request_header *to)
{
    return mode == NBD_EXTENDED ? build_chunk(out, mode, to, NBD_CHUNK_NONE, 0, true)
                                : build_simple(out, to->cookie, 0);
}

size_t nbd_build_data(uint8_t *out, enum nbd_mode mode, const struct nbd_request_header *to, uint64_t off, uint32_t len,
                      bool last)
{
    if (mode == NBD_SIMPLE)
        return build_simple(out, to->cookie, 0);
    size_t n = build_chunk(out, mode, to, NBD_CHUNK_OFFSET_DATA, 8 + (uint64_t)len, last);
    put_be64(out + n, off);
    return n + 8;
}

size_t nbd_build_hole(uint8_t *out, enum nbd_mode mode, const struct nbd_request_header *to, uint64_t off, uint32_t len,
                      bool last)
{
    size_t n = build_chunk(out, mode, to, NBD_CHUNK_OFFSET_HOLE, 12, last);
    put_be64(out + n, off);
    put_be32(out + n + 8, len);
    return n + 12;
}

size_t nbd_build_extent(uint8_t *out, enum nbd_mode mode, uint64_t len, uint32_t state)
{
    if (mode == NBD_EXTENDED) {
        put_be64(out, len);
        put_be64(out + 8, state);
        return 16;
    }
    put_be32(out, (uint32_t)len);
    put_be32(out + 4, state);
    return 8;
}

size_t nbd_build_status(uint8_t *out, enum nbd_mode mode, const struct nbd_request_header *to, uint32_t context_id,
                        uint32_t len)
{
    bool extended = mode == NBD_EXTENDED;
    enum nbd_chunk_type type = extended ? NBD_CHUNK_BLOCK_STATUS_EXT : NBD_CHUNK_BLOCK_STATUS;
    size_t n = build_chunk(out, mode, to, type, len + (extended ? 8 : 4), true);
    put_be32(out + n, context_id);
    if (!extended)
        return n + 4;
    put_be32(out + n + 4, len / 16);
    return n + 8;
}

size_t nbd_build_error(uint8_t *out, enum nbd_mode mode, const struct nbd_request_header *to, enum nbd_fault fault,
                       const uint64_t *bad_off)
{
    if (mode == NBD_SIMPLE)
        return build_simple(out, to->cookie, nbd_fault_number(fault));
    const char *text = nbd_fault_text(fault);
    size_t text_len = strlen(text), off_len = bad_off != NULL ? 8 : 0;
    ASSERT(NBD_EXTENDED_CHUNK_BYTES + 6 + text_len + off_len <= NBD_ERROR_BYTES_MAX);
    size_t n = build_chunk(out, mode, to, bad_off != NULL ? NBD_CHUNK_ERROR_OFFSET : NBD_CHUNK_ERROR,
                           6 + text_len + off_len, true);
    put_be32(out + n, nbd_fault_number(fault));
    put_be16(out + n + 4, (uint16_t)text_len);
    memcpy(out + n + 6, text, text_len);
    n += 6 + text_len;
    if (bad_off != NULL)
        put_be64(out + n, *bad_off);
    return n + off_len;
}
