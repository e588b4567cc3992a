#include "core/crc32c.h"

#include <isa-l/crc.h>

#include "core/check.h"

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
    const unsigned char *p = data;
    crc = ~crc;
    while (len > 0) { /* ISA-L takes an int */
        int part = (int)MIN(len, (size_t)1 << 30);
        crc = crc32_iscsi((unsigned char *)(uintptr_t)p, part, crc);
        p += part;
        len -= (size_t)part;
    }
    return ~crc;
}
