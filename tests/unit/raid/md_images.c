/* See tests/unit/raid/md_images.h. */
#include "tests/unit/raid/md_images.h"

#include <string.h>

#include "core/bytes.h"
#include "tests/unit/lib/gf_reference.h"

void md_sum_super(uint8_t *page)
{
    uint64_t sum = 0, len = 256 + 2 * get_le32(page + 220);
    put_le32(page + 216, 0);
    for (uint64_t at = 0; at < len; at += 2) /* words of 32 bits, as two halves */
        sum += (uint64_t)get_le16(page + at) << (at % 4 * 8);
    put_le32(page + 216, (uint32_t)sum + (uint32_t)(sum >> 32));
}

void md_make_super(const struct md_shape *shape, unsigned slot, uint64_t data_start, uint8_t *page)
{
    memset(page, 0, 4096);
    put_le32(page, 0xa92b4efc);
    put_le32(page + 4, 1);
    memcpy(page + 16, "the uuid of a set", 16);
    memcpy(page + 32, "box:7", 5);
    put_le32(page + 72, (uint32_t)shape->level);
    put_le32(page + 76, shape->layout);
    put_le64(page + 80, shape->size / 512);
    put_le32(page + 88, shape->chunk / 512);
    put_le32(page + 92, shape->disks);
    put_le64(page + 128, data_start / 512);
    put_le64(page + 136, shape->size / 512);
    put_le64(page + 144, 8);
    put_le32(page + 160, slot);
    memset(page + 168, (int)(slot + 1), 16);
    put_le64(page + 200, 41);
    put_le64(page + 208, UINT64_MAX);
    put_le32(page + 220, shape->disks + 1); /* odd or even, and one that nobody has */
    for (unsigned i = 0; i < shape->disks; i++)
        put_le16(page + 256 + 2 * i, (uint16_t)i);
    put_le16(page + 256 + 2 * shape->disks, 0xffff);
    md_sum_super(page);
}

static unsigned parities_of(const struct md_shape *shape)
{
    return shape->level == 6 ? 2 : 1;
}

uint64_t md_array_size(const struct md_shape *shape)
{
    uint64_t chunks = shape->level == 1 ? 0 : shape->size / shape->chunk;
    switch (shape->level) {
    case 0:
        return chunks * shape->chunk * shape->disks;
    case 1:
        return shape->size;
    case 10:
        return chunks * shape->disks / (shape->layout & 0xff) * shape->chunk;
    default:
        return chunks * shape->chunk * (shape->disks - parities_of(shape));
    }
}

static void lay_out_copies(const struct md_shape *shape, const uint8_t *data, uint8_t *const *members, unsigned copies)
{
    uint64_t chunks = md_array_size(shape) / shape->chunk;
    for (uint64_t i = 0; i < chunks; i++)
        for (unsigned k = 0; k < copies; k++) {
            uint64_t card = i * copies + k;
            memcpy(members[card % shape->disks] + card / shape->disks * shape->chunk, data + i * shape->chunk,
                   shape->chunk);
        }
}

/* Where P is in a row, and whether data goes on behind the parity (else it fills the slots from the first on). */
static unsigned place_of_p(const struct md_shape *shape, uint64_t row, int *round)
{
    unsigned n = shape->disks, turn = (unsigned)(row % n), layout = shape->level == 4 ? 5 : shape->layout;
    *round = layout == 2 || layout == 3;
    switch (layout) {
    case 0:
    case 2:
        return n - 1 - turn;
    case 1:
    case 3:
        return turn;
    case 4:
        return 0;
    default:
        return n - parities_of(shape);
    }
}

/* md: Q's exponents are counted from the slot behind Q on, round the ring, data only. */
static void put_q(const struct md_shape *shape, uint8_t *const *members, uint64_t off, unsigned p, unsigned q)
{
    memset(members[q] + off, 0, shape->chunk);
    unsigned exponent = 0;
    for (unsigned i = 1; i < shape->disks; i++) {
        unsigned slot = (q + i) % shape->disks;
        if (slot == p)
            continue;
        uint8_t factor = gf_reference_power(exponent++);
        for (uint32_t at = 0; at < shape->chunk; at++)
            members[q][off + at] ^= gf_reference_multiply(factor, members[slot][off + at]);
    }
}

static void put_p(const struct md_shape *shape, uint8_t *const *members, uint64_t off, unsigned p, unsigned q)
{
    memset(members[p] + off, 0, shape->chunk);
    for (unsigned slot = 0; slot < shape->disks; slot++)
        for (uint32_t at = 0; slot != p && slot != q && at < shape->chunk; at++)
            members[p][off + at] ^= members[slot][off + at];
}

static void lay_out_parity(const struct md_shape *shape, const uint8_t *data, uint8_t *const *members)
{
    unsigned n = shape->disks, m = parities_of(shape);
    for (uint64_t row = 0; row < shape->size / shape->chunk; row++) {
        int round;
        unsigned p = place_of_p(shape, row, &round), q = m == 2 ? (p + 1) % n : p, slot = round ? (p + m) % n : 0;
        uint64_t off = row * shape->chunk;
        for (unsigned d = 0; d < n - m; d++, slot = (slot + 1) % n) {
            while (slot == p || slot == q)
                slot = (slot + 1) % n;
            memcpy(members[slot] + off, data, shape->chunk);
            data += shape->chunk;
        }
        put_p(shape, members, off, p, q);
        if (m == 2)
            put_q(shape, members, off, p, q);
    }
}

void md_lay_out(const struct md_shape *shape, const uint8_t *data, uint8_t *const *members)
{
    if (shape->level == 0)
        lay_out_copies(shape, data, members, 1);
    else if (shape->level == 10)
        lay_out_copies(shape, data, members, shape->layout & 0xff);
    else if (shape->level != 1)
        lay_out_parity(shape, data, members);
    for (unsigned slot = 0; shape->level == 1 && slot < shape->disks; slot++)
        memcpy(members[slot], data, shape->size);
}
