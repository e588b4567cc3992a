/* Numbers to and from bytes, whatever the alignment: big-endian for the wire, little-endian for the disk. */
#ifndef CORE_BYTES_H
#define CORE_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define BYTES_DEFINE(bits, order, from, to)                                                                            \
    static inline uint##bits##_t get_##order##bits(const void *bytes)                                                  \
    {                                                                                                                  \
        uint##bits##_t value;                                                                                          \
        memcpy(&value, bytes, sizeof value);                                                                           \
        return from(value);                                                                                            \
    }                                                                                                                  \
    static inline void put_##order##bits(void *bytes, uint##bits##_t value)                                            \
    {                                                                                                                  \
        value = to(value);                                                                                             \
        memcpy(bytes, &value, sizeof value);                                                                           \
    }

BYTES_DEFINE(16, be, be16toh, htobe16)
BYTES_DEFINE(32, be, be32toh, htobe32)
BYTES_DEFINE(64, be, be64toh, htobe64)
BYTES_DEFINE(16, le, le16toh, htole16)
BYTES_DEFINE(32, le, le32toh, htole32)
BYTES_DEFINE(64, le, le64toh, htole64)
#undef BYTES_DEFINE

static inline uint32_t get_be24(const void *bytes)
{
    const uint8_t *b = bytes;
    return (uint32_t)b[0] << 16 | (uint32_t)b[1] << 8 | b[2];
}

static inline void put_be24(void *bytes, uint32_t value)
{
    uint8_t *b = bytes;
    b[0] = (uint8_t)(value >> 16);
    b[1] = (uint8_t)(value >> 8);
    b[2] = (uint8_t)value;
}

#endif
