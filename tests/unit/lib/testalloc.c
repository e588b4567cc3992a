#include "tests/unit/lib/testalloc.h"

#include <stdlib.h>

static uint64_t allocations;

uint64_t test_allocations(void)
{
    return __atomic_load_n(&allocations, __ATOMIC_RELAXED);
}

#ifndef __SANITIZE_ADDRESS__
/* glibc's own names for what is replaced here. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);

static void count(void)
{
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
}

void *malloc(size_t size)
{
    count();
    return __libc_malloc(size);
}

void *calloc(size_t count_of, size_t size)
{
    count();
    return __libc_calloc(count_of, size);
}

void *realloc(void *old, size_t size)
{
    count();
    return __libc_realloc(old, size);
}
#endif
