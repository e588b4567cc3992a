/*
 * How often has this process asked for memory? For the promise that the data path never does. Counts malloc, calloc
 * and realloc; in a sanitized build, which has an allocator of its own, it always answers 0.
 */
#ifndef TESTS_UNIT_LIB_TESTALLOC_H
#define TESTS_UNIT_LIB_TESTALLOC_H

#include <stdint.h>

uint64_t test_allocations(void);

#endif
