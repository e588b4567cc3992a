/* Numbers to bytes and back, and the rules a request must obey: see target/nbd/protocol.h. */
#include "target/nbd/protocol.h"

#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/nbd/nbd.h"

/* --- handshake and options --- */

size_t nbd_build_greeting(uint8_t *out)
{
    put_be64(out, NBD_MAGIC_INIT);
    put_be64(out + 8, NBD_MAGIC_OPTION);
    put_be16(out + 16, NBD_HANDSHAKE_FIXED_NEWSTYLE | NBD_HANDSHAKE_NO_ZEROES);
    return NBD_GREETING_BYTES;
}

bool nbd_parse_client_flags(const uint8_t bytes[NBD_CLIENT_FLAGS_BYTES], uint32_t *flags)
{
    *flags = get_be32(bytes);
    return (*flags & ~(uint32_t)(NBD_HANDSHAKE_FIXED_NEWSTYLE | NBD_HANDSHAKE_NO_ZEROES)) == 0;
}

bool nbd_parse_option(const uint8_t bytes[NBD_OPTION_BYTES], struct nbd_option_header *out)
{
    *out = (struct nbd_option_header){.option = get_be32(bytes + 8), .len = get_be32(bytes + 12)};
    return get_be64(bytes) == NBD_MAGIC_OPTION;
}

uint32_t nbd_check_name(const char *name, uint32_t len)
{
    if (len > NBD_NAME_MAX)
        return NBD_REP_ERR_TOO_BIG;
    return len > 0 && memchr(name, '\0', len) != NULL ? NBD_REP_ERR_INVALID : 0;
}

/* u32 length of the name, the name, u16 count, count times u16; nothing may be missing and nothing left over. */
uint32_t nbd_parse_info_request(const uint8_t *data, uint32_t len, struct nbd_info_request *out)
{
    enum { FIXED = 4 + 2 };
    if (len < FIXED)
        return NBD_REP_ERR_INVALID;
    uint32_t name_len = get_be32(data);
    if (name_len > len - FIXED)
        return NBD_REP_ERR_INVALID;
    const uint8_t *at = data + 4 + name_len;
    uint32_t count = get_be16(at);
    if (len - FIXED - name_len != 2 * count)
        return NBD_REP_ERR_INVALID;
    *out = (struct nbd_info_request){.name = (const char *)data + 4, .name_len = name_len};
    for (uint32_t i = 0; i < count; i++) {
        uint16_t info = get_be16(at + 2 + 2 * (size_t)i);
        if (info <= NBD_INFO_BLOCK_SIZE)
            out->wanted |= 1u << info;
    }
    return nbd_check_name(out->name, name_len);
}

size_t nbd_build_option_reply(uint8_t *out, uint32_t option, uint32_t type, uint32_t len)
{
    put_be64(out, NBD_MAGIC_REPLY);
    put_be32(out + 8, option);
    put_be32(out + 12, type);
    put_be32(out + 16, len);
    return NBD_OPTION_REPLY_BYTES;
}

static size_t put_text(uint8_t *out, const char *text)
{
    size_t len = strlen(text);
    memcpy(out, text, len);
    return len;
}

size_t nbd_build_option_error(uint8_t *out, uint32_t option, uint32_t type, const char *text)
{
    size_t n = nbd_build_option_reply(out, option, type, (uint32_t)strlen(text));
    return n + put_text(out + n, text);
}

size_t nbd_build_list_entry(uint8_t *out, const char *name, const char *description)
{
    uint32_t name_len = (uint32_t)strlen(name), description_len = (uint32_t)strlen(description);
    size_t n = nbd_build_option_reply(out, NBD_OPT_LIST, NBD_REP_SERVER, 4 + name_len + description_len);
    put_be32(out + n, name_len);
    n += 4;
    n += put_text(out + n, name);
    return n + put_text(out + n, description);
}

static size_t build_info(uint8_t *out, uint32_t option, enum nbd_info info, uint32_t len)
{
    size_t n = nbd_build_option_reply(out, option, NBD_REP_INFO, 2 + len);
    put_be16(out + n, (uint16_t)info);
    return n + 2;
}

size_t nbd_build_info_export(uint8_t *out, uint32_t option, uint64_t size, uint16_t flags)
{
    size_t n = build_info(out, option, NBD_INFO_EXPORT, 10);
    put_be64(out + n, size);
    put_be16(out + n + 8, flags);
    return n + 10;
}

size_t nbd_build_info_text(uint8_t *out, uint32_t option, enum nbd_info info, const char *text)
{
    size_t n = build_info(out, option, info, (uint32_t)strlen(text));
    return n + put_text(out + n, text);
}

size_t nbd_build_info_block_size(uint8_t *out, uint32_t option, uint32_t minimum, uint32_t preferred, uint32_t maximum)
{
    size_t n = build_info(out, option, NBD_INFO_BLOCK_SIZE, 12);
    put_be32(out + n, minimum);
    put_be32(out + n + 4, preferred);
    put_be32(out + n + 8, maximum);
    return n + 12;
}

size_t nbd_build_old_reply(uint8_t *out, uint64_t size, uint16_t flags, bool zeroes)
{
    put_be64(out, size);
    put_be16(out + 8, flags);
    if (!zeroes)
        return NBD_OLD_REPLY_BYTES;
    memset(out + NBD_OLD_REPLY_BYTES, 0, NBD_OLD_REPLY_ZEROES);
    return NBD_OLD_REPLY_BYTES + NBD_OLD_REPLY_ZEROES;
}

/* --- requests --- */

bool nbd_parse_request(const uint8_t bytes[NBD_REQUEST_BYTES], struct nbd_request_header *out)
{
    *out = (struct nbd_request_header){.flags = get_be16(bytes + 4),
                                       .command = get_be16(bytes + 6),
                                       .cookie = get_be64(bytes + 8),
                                       .off = get_be64(bytes + 16),
                                       .len = get_be32(bytes + 24)};
    return get_be32(bytes) == NBD_MAGIC_REQUEST;
}

uint32_t nbd_request_payload(const struct nbd_request_header *request)
{
    return request->command == NBD_CMD_WRITE ? request->len : 0;
}

/* One row a command that is answered. The document allows FUA on every command once SEND_FUA was offered. */
struct command_rule {
    uint16_t flags; /* command flags that mean something here */
    uint16_t needs; /* transmission flag without which the command does not exist; 0: always there */
    bool known, has_range, has_data, writes;
    enum nbd_fault beyond; /* the fault of a range that passes the end */
};

static const struct command_rule command_rules[] = {
    [NBD_CMD_READ] = {.known = true,
                      .flags = NBD_CMD_FUA | NBD_CMD_DF,
                      .has_range = true,
                      .has_data = true,
                      .beyond = NBD_FAULT_BEYOND_END},
    [NBD_CMD_WRITE] = {.known = true,
                       .flags = NBD_CMD_FUA,
                       .has_range = true,
                       .has_data = true,
                       .writes = true,
                       .beyond = NBD_FAULT_NO_ROOM},
    [NBD_CMD_FLUSH] = {.known = true, .flags = NBD_CMD_FUA, .needs = NBD_FLAG_SEND_FLUSH},
    [NBD_CMD_TRIM] = {.known = true,
                      .flags = NBD_CMD_FUA,
                      .needs = NBD_FLAG_SEND_TRIM,
                      .has_range = true,
                      .writes = true,
                      .beyond = NBD_FAULT_BEYOND_END},
    [NBD_CMD_WRITE_ZEROES] = {.known = true,
                              .flags = NBD_CMD_FUA | NBD_CMD_NO_HOLE | NBD_CMD_FAST_ZERO,
                              .needs = NBD_FLAG_SEND_WRITE_ZEROES,
                              .has_range = true,
                              .writes = true,
                              .beyond = NBD_FAULT_NO_ROOM},
};

/* A command flag is legal only where the export offered it. */
static const struct {
    uint16_t flag, needs;
} flag_rules[] = {
    {NBD_CMD_FUA, NBD_FLAG_SEND_FUA},
    {NBD_CMD_NO_HOLE, NBD_FLAG_SEND_WRITE_ZEROES},
    {NBD_CMD_DF, NBD_FLAG_SEND_DF},
    {NBD_CMD_FAST_ZERO, NBD_FLAG_SEND_FAST_ZERO},
};

static bool flags_are_legal(uint16_t flags, uint16_t meaningful, uint16_t offered)
{
    if (flags & ~meaningful)
        return false;
    for (size_t i = 0; i < ARRAY_LENGTH(flag_rules); i++)
        if ((flags & flag_rules[i].flag) && !(offered & flag_rules[i].needs))
            return false;
    return true;
}

static enum nbd_fault range_check(const struct nbd_request_header *request, const struct command_rule *rule,
                                  const struct nbd_rules *rules)
{
    if (request->len == 0)
        return NBD_FAULT_EMPTY;
    if (rule->has_data && request->len > rules->payload_max)
        return NBD_FAULT_TOO_LONG;
    if (request->off % rules->block != 0 || request->len % rules->block != 0)
        return NBD_FAULT_UNALIGNED;
    if (request->off > rules->size || request->len > rules->size - request->off)
        return rule->beyond;
    return NBD_FAULT_NONE;
}

enum nbd_fault nbd_request_check(const struct nbd_request_header *request, const struct nbd_rules *rules)
{
    if (request->command >= ARRAY_LENGTH(command_rules) || !command_rules[request->command].known)
        return NBD_FAULT_COMMAND;
    const struct command_rule *rule = &command_rules[request->command];
    if (rule->writes && (rules->flags & NBD_FLAG_READ_ONLY))
        return NBD_FAULT_READ_ONLY;
    if (rule->needs != 0 && !(rules->flags & rule->needs))
        return NBD_FAULT_NOT_OFFERED;
    if (!flags_are_legal(request->flags, rule->flags, rules->flags))
        return NBD_FAULT_FLAGS;
    return rule->has_range ? range_check(request, rule, rules) : NBD_FAULT_NONE;
}

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
    [NBD_FAULT_UNALIGNED] = {NBD_EINVAL, "offset or length is not a multiple of the minimum block size"},
    [NBD_FAULT_TOO_LONG] = {NBD_EINVAL, "longer than the maximum payload"},
    [NBD_FAULT_BEYOND_END] = {NBD_EINVAL, "beyond the end of the export"},
    [NBD_FAULT_NO_ROOM] = {NBD_ENOSPC, "beyond the end of the export"},
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

size_t nbd_build_simple_reply(uint8_t *out, uint64_t cookie, uint32_t error)
{
    put_be32(out, NBD_MAGIC_SIMPLE_REPLY);
    put_be32(out + 4, error);
    put_be64(out + 8, cookie);
    return NBD_SIMPLE_REPLY_BYTES;
}

/* All our structured replies are one chunk long. */
static size_t build_chunk(uint8_t *out, uint16_t type, uint64_t cookie, uint32_t len)
{
    put_be32(out, NBD_MAGIC_STRUCTURED_REPLY);
    put_be16(out + 4, NBD_CHUNK_DONE);
    put_be16(out + 6, type);
    put_be64(out + 8, cookie);
    put_be32(out + 16, len);
    return NBD_CHUNK_BYTES;
}

size_t nbd_build_data_chunk(uint8_t *out, uint64_t cookie, uint64_t off, uint32_t len)
{
    size_t n = build_chunk(out, NBD_CHUNK_OFFSET_DATA, cookie, 8 + len);
    put_be64(out + n, off);
    return n + 8;
}

size_t nbd_build_error_chunk(uint8_t *out, uint64_t cookie, enum nbd_fault fault, const uint64_t *bad_off)
{
    const char *text = nbd_fault_text(fault);
    uint32_t text_len = (uint32_t)strlen(text), off_len = bad_off != NULL ? 8 : 0;
    ASSERT(NBD_CHUNK_BYTES + 6 + text_len + off_len <= NBD_REPLY_HEADER_MAX);
    size_t n =
        build_chunk(out, bad_off != NULL ? NBD_CHUNK_ERROR_OFFSET : NBD_CHUNK_ERROR, cookie, 6 + text_len + off_len);
    put_be32(out + n, nbd_fault_number(fault));
    put_be16(out + n + 4, (uint16_t)text_len);
    n += 6;
    n += put_text(out + n, text);
    if (bad_off != NULL)
        put_be64(out + n, *bad_off);
    return n + off_len;
}
