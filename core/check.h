/*
 * Assertions, and the few macros every file uses.
 *
 * ASSERT stays on in production. It is for programmer errors only: a request out of range, an owner on the wrong
 * loop, a state that cannot be. What a disk, a peer or an operator can cause is handled, never asserted. When an
 * assertion fails the process prints where, dumps the flight recorder (core/log.h) and aborts: a broken invariant
 * kills the daemon, never the data.
 */
#ifndef CORE_CHECK_H
#define CORE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Noreturn void check_failed(const char *file, int line, const char *what);

#define ASSERT(cond)     ((cond) ? (void)0 : check_failed(__FILE__, __LINE__, #cond))
#define UNREACHABLE(why) check_failed(__FILE__, __LINE__, "unreachable: " why)

/* The struct of type `type` whose member `member` is at `ptr`. */
#define container_of(ptr, type, member)                                                                                \
    ({                                                                                                                 \
        const __typeof__(((type *)0)->member) *container_of_ptr = (ptr);                                               \
        (type *)(void *)((char *)(uintptr_t)container_of_ptr - offsetof(type, member));                                \
    })

#define ARRAY_LENGTH(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)       ((a) < (b) ? (a) : (b))
#define MAX(a, b)       ((a) > (b) ? (a) : (b))

#define KIB (1024ull)
#define MIB (1024ull * KIB)
#define GIB (1024ull * MIB)

static inline uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static inline uint64_t round_down(uint64_t value, uint64_t unit)
{
    return value / unit * unit;
}

static inline bool is_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

#endif
