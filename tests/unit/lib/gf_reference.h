/*
 * GF(2^8) the slow and obvious way, to hold codecs against: bit by bit, straight from the definition, without tables.
 * Shares nothing with ISA-L.
 */
#ifndef TESTS_UNIT_LIB_GF_REFERENCE_H
#define TESTS_UNIT_LIB_GF_REFERENCE_H

#include <stdint.h>

/* Product of two polynomials over GF(2), modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11d). */
uint8_t gf_reference_multiply(uint8_t a, uint8_t b);
/* 2 to the power of `exponent`. */
uint8_t gf_reference_power(unsigned exponent);
/* One byte of parity `j` (0 P, 1 Q, 2 R) of one byte from each of `count` data chunks. */
uint8_t gf_reference_parity(unsigned j, const uint8_t *data, unsigned count);

#endif
