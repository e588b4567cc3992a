/* The handshake and the options, from bytes and to bytes: see target/nbd/protocol.h. */
#include "target/nbd/protocol.h"

#include <string.h>

#include "core/bytes.h"
#include "target/nbd/nbd.h"

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

size_t nbd_build_meta_context(uint8_t *out, uint32_t option, uint32_t id, const char *name)
{
    size_t n = nbd_build_option_reply(out, option, NBD_REP_META_CONTEXT, 4 + (uint32_t)strlen(name));
    put_be32(out + n, id);
    return n + 4 + put_text(out + n + 4, name);
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
