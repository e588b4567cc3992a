/* See gf_reference.h. */
#include "tests/unit/lib/gf_reference.h"

uint8_t gf_reference_multiply(uint8_t a, uint8_t b)
{
    unsigned product = 0;
    for (unsigned i = 0; i < 8; i++)
        if (b >> i & 1)
            product ^= (unsigned)a << i;
    for (unsigned i = 14; i >= 8; i--)
        if (product >> i & 1)
            product ^= 0x11du << (i - 8);
    return (uint8_t)product;
}

uint8_t gf_reference_power(unsigned exponent)
{
    uint8_t power = 1;
    while (exponent-- > 0)
        power = gf_reference_multiply(power, 2);
    return power;
}

uint8_t gf_reference_parity(unsigned j, const uint8_t *data, unsigned count)
{
    uint8_t sum = 0;
    for (unsigned i = 0; i < count; i++)
        sum ^= gf_reference_multiply(gf_reference_power(j * i), data[i]);
    return sum;
}
