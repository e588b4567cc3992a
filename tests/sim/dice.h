/*
 * Chance from a seed. A stream is 64 bits of state; streams made from different seeds do not know each other, so that
 * one more draw from one leaves the others as they were.
 */
#ifndef TESTS_SIM_DICE_H
#define TESTS_SIM_DICE_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/unit/lib/testloop.h"

struct dice {
    uint64_t state;
};

/* The stream number `stream` of a seed. */
static inline struct dice dice_for(uint64_t seed, uint64_t stream)
{
    uint64_t state = seed * UINT64_C(0xd1342543de82ef95) + stream;
    (void)test_random(&state);
    return (struct dice){test_random(&state)};
}

static inline uint64_t dice_bits(struct dice *dice)
{
    return test_random(&dice->state);
}

/* 0 .. sides-1 */
static inline uint64_t dice_below(struct dice *dice, uint64_t sides)
{
    return sides == 0 ? 0 : dice_bits(dice) % sides;
}

/* least .. most */
static inline uint64_t dice_range(struct dice *dice, uint64_t least, uint64_t most)
{
    return least + dice_below(dice, most - least + 1);
}

static inline bool dice_one_in(struct dice *dice, uint64_t n)
{
    return dice_below(dice, n) == 0;
}

/* 0 .. most, small ones as likely as large ones by order of magnitude. */
static inline uint64_t dice_scale(struct dice *dice, uint64_t most)
{
    uint64_t bits = 0;
    while (bits < 63 && most >> bits != 0)
        bits++;
    uint64_t value = dice_bits(dice), kept = dice_below(dice, bits + 1); /* in this order, whatever the compiler */
    value &= (UINT64_C(1) << kept) - 1;
    return value > most ? most : value;
}

#endif
