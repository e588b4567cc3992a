/*
 * CRC32C (Castagnoli) as iSCSI digests (RFC 7143, 13.1) and Corbel's disk structures use it: start value all ones,
 * result inverted. Feed the result of one call as `crc` of the next to go on over scattered data; start with 0.
 */
#ifndef CORE_CRC32C_H
#define CORE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(uint32_t crc, const void *data, size_t len);

#endif
