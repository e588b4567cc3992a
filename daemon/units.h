/*
 * Sizes and durations as people write them: "512 MiB", "6T", "30 s", "500 ms".
 *
 * Units of sizes are powers of 1024 (K, KiB, M, ... P); "MB" and the like, powers of 1000, are refused with a hint,
 * since half the readers mean the other thing. A number without a unit is refused.
 */
#ifndef DAEMON_UNITS_H
#define DAEMON_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL, or what is wrong. */
const char *size_parse(const char *text, uint64_t *bytes);
const char *duration_parse(const char *text, uint64_t *nanoseconds);

/* "1.5 TiB", "64 KiB", "0 B". */
void size_format(uint64_t bytes, char *out, size_t out_len);
/* "3 h 12 min", "45 s". */
void duration_format(uint64_t seconds, char *out, size_t out_len);

#endif
