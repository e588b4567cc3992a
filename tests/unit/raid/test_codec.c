/*
 * The codec against slow reference arithmetic, over all small shapes and every loss, and random ones beyond.
 *
 * A rig is one row in memory: `roles` columns of `len` bytes at a chosen misalignment, data filled from a seed,
 * redundancy computed by the reference, guard bytes behind each column, and a copy of what is right.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "raid/codec.h"
#include "tests/unit/lib/gf_reference.h"
#include "tests/unit/lib/testloop.h"

enum { GUARD = 0xa5, GUARD_BYTES = 32 };

struct rig {
    struct codec codec;
    uint64_t len, stride, seed;
    uint8_t *memory, *right;
    uint8_t *columns[64];
};

static struct rig rig_create(bool parity, unsigned data, unsigned redundancy, uint64_t len, unsigned misalignment)
{
    struct rig rig = {.len = len, .stride = round_up(len + misalignment + GUARD_BYTES, 64), .seed = len + data};
    codec_init(&rig.codec, parity, data, redundancy);
    cr_assert_eq(rig.codec.roles, data + redundancy);
    rig.memory = aligned_alloc(64, rig.stride * rig.codec.roles);
    rig.right = malloc(rig.len * rig.codec.roles);
    memset(rig.memory, GUARD, rig.stride * rig.codec.roles);
    for (unsigned role = 0; role < rig.codec.roles; role++)
        rig.columns[role] = rig.memory + role * rig.stride + misalignment;
    test_fill(rig.right, data * len, rig.seed);
    for (uint64_t i = 0; i < len; i++) {
        uint8_t bytes[64];
        for (unsigned d = 0; d < data; d++)
            bytes[d] = rig.right[d * len + i];
        for (unsigned j = 0; j < redundancy; j++)
            rig.right[(data + j) * len + i] = parity ? gf_reference_parity(j, bytes, data) : bytes[0];
    }
    for (unsigned role = 0; role < rig.codec.roles; role++)
        memcpy(rig.columns[role], rig.right + role * len, len);
    return rig;
}

static void rig_destroy(struct rig *rig)
{
    free(rig->memory);
    free(rig->right);
}

/* Every column right, and nothing written beside it. */
static bool rig_is_right(const struct rig *rig)
{
    for (unsigned role = 0; role < rig->codec.roles; role++) {
        if (memcmp(rig->columns[role], rig->right + role * rig->len, rig->len) != 0)
            return false;
        for (unsigned i = 0; i < GUARD_BYTES; i++)
            if (rig->columns[role][rig->len + i] != GUARD)
                return false;
    }
    return true;
}

static void rig_spoil(struct rig *rig, uint64_t roles)
{
    for (unsigned role = 0; role < rig->codec.roles; role++)
        if (roles >> role & 1)
            test_fill(rig->columns[role], rig->len, ++rig->seed);
}

static void rig_restore(struct rig *rig)
{
    for (unsigned role = 0; role < rig->codec.roles; role++)
        memcpy(rig->columns[role], rig->right + role * rig->len, rig->len);
}

static bool rig_encodes(struct rig *rig, uint64_t want)
{
    rig_spoil(rig, want);
    codec_encode(&rig->codec, rig->columns, want, rig->len);
    return rig_is_right(rig);
}

/* Lose `lost`, leave `ignore` spoilt and unreachable, recover; the rest must be right. */
static bool rig_recovers(struct rig *rig, uint64_t lost, uint64_t ignore)
{
    uint8_t *reachable[64];
    memcpy(reachable, rig->columns, sizeof reachable);
    for (unsigned role = 0; role < rig->codec.roles; role++)
        if (ignore >> role & 1)
            reachable[role] = NULL;
    rig_spoil(rig, lost);
    bool recovered = codec_recover(&rig->codec, reachable, lost, ignore, rig->len);
    return recovered && rig_is_right(rig);
}

static unsigned bits(uint64_t set)
{
    return (unsigned)__builtin_popcountll(set);
}

Test(codec, reference_multiplies_as_the_field_must)
{
    cr_expect_eq(gf_reference_multiply(2, 0x80), 0x1d);
    cr_expect_eq(gf_reference_power(8), 0x1d);
    cr_expect_eq(gf_reference_power(255), 1);
    for (unsigned e = 1; e < 255; e++)
        cr_expect_neq(gf_reference_power(e), 1, "2 has order 255, not %u", e);
}

Test(codec, encodes_every_shape_and_every_choice_of_parities)
{
    for (unsigned data = 1; data <= 20; data++)
        for (unsigned redundancy = 1; redundancy <= 3; redundancy++) {
            struct rig rig = rig_create(true, data, redundancy, 333, 0);
            for (uint64_t want = 0; want < 1u << redundancy; want++)
                cr_expect(rig_encodes(&rig, want << data), "data %u, redundancy %u, want %llx", data, redundancy,
                          (unsigned long long)want);
            rig_destroy(&rig);
        }
}

Test(codec, encodes_wide_rows)
{
    for (unsigned data = 21; data <= 63; data++)
        for (unsigned redundancy = 1; redundancy <= 3 && data + redundancy <= 64; redundancy++) {
            struct rig rig = rig_create(true, data, redundancy, 129, 0);
            uint64_t all = ((1ull << redundancy) - 1) << data;
            cr_expect(rig_encodes(&rig, all), "data %u, redundancy %u", data, redundancy);
            cr_expect(rig_recovers(&rig, 1ull << (data - 1), 0), "data %u, redundancy %u", data, redundancy);
            rig_destroy(&rig);
        }
}

Test(codec, encodes_ragged_lengths_at_any_alignment)
{
    static const unsigned misalignments[] = {0, 1, 8, 16, 31, 32, 63};
    for (unsigned redundancy = 1; redundancy <= 3; redundancy++)
        for (uint64_t len = 1; len <= 200; len++)
            for (unsigned m = 0; m < ARRAY_LENGTH(misalignments); m++) {
                struct rig rig = rig_create(true, 4, redundancy, len, misalignments[m]);
                uint64_t all = ((1ull << redundancy) - 1) << 4, lost = (1ull << redundancy) - 1;
                cr_expect(rig_encodes(&rig, all), "redundancy %u, len %llu at +%u", redundancy, (unsigned long long)len,
                          misalignments[m]);
                cr_expect(rig_recovers(&rig, lost, 0), "redundancy %u, len %llu at +%u", redundancy,
                          (unsigned long long)len, misalignments[m]);
                rig_destroy(&rig);
            }
}

Test(codec, encodes_pages)
{
    for (unsigned redundancy = 1; redundancy <= 3; redundancy++) {
        struct rig rig = rig_create(true, 6, redundancy, 4096, 0);
        cr_expect(rig_encodes(&rig, ((1ull << redundancy) - 1) << 6), "redundancy %u", redundancy);
        rig_destroy(&rig);
    }
}

/* Each role is kept, lost or ignored: three to the power of roles, of which those with few enough gone are tried. */
static void expect_every_loss(unsigned data, unsigned redundancy)
{
    struct rig rig = rig_create(true, data, redundancy, 37, 0);
    for (uint64_t gone = 0; gone < 1ull << rig.codec.roles; gone++) {
        if (bits(gone) > redundancy)
            continue;
        for (uint64_t ignore = gone;; ignore = (ignore - 1) & gone) { /* every subset */
            cr_expect(rig_recovers(&rig, gone & ~ignore, ignore), "data %u + %u: lost %llx, ignored %llx", data,
                      redundancy, (unsigned long long)(gone & ~ignore), (unsigned long long)ignore);
            if (ignore == 0)
                break;
        }
    }
    rig_destroy(&rig);
}

Test(codec, recovers_every_loss_of_every_small_shape)
{
    for (unsigned data = 1; data <= 12; data++)
        for (unsigned redundancy = 1; redundancy <= 3; redundancy++)
            expect_every_loss(data, redundancy);
}

Test(codec, recovers_random_losses_of_every_shape_to_20)
{
    uint64_t seed = 11;
    for (unsigned data = 13; data <= 20; data++)
        for (unsigned redundancy = 1; redundancy <= 3; redundancy++) {
            struct rig rig = rig_create(true, data, redundancy, 100, 0);
            for (unsigned trial = 0; trial < 300; trial++) {
                uint64_t lost = 0, ignore = 0;
                for (unsigned i = 0; i < redundancy; i++)
                    *(test_random(&seed) % 4 == 0 ? &ignore : &lost) |= 1ull << test_random(&seed) % rig.codec.roles;
                cr_expect(rig_recovers(&rig, lost & ~ignore, ignore), "data %u + %u: lost %llx, ignored %llx", data,
                          redundancy, (unsigned long long)lost, (unsigned long long)ignore);
            }
            rig_destroy(&rig);
        }
}

Test(codec, every_loss_of_three_can_be_undone_up_to_61_data_chunks)
{
    struct rig rig = rig_create(true, 61, 3, 2, 0); /* what holds of 61 holds of fewer: they are its columns */
    for (unsigned a = 0; a < 64; a++)
        for (unsigned b = a; b < 64; b++)
            for (unsigned c = b; c < 64; c++) {
                uint64_t lost = 1ull << a | 1ull << b | 1ull << c;
                cr_assert(rig_recovers(&rig, lost, 0), "lost %u, %u, %u", a, b, c);
            }
    rig_destroy(&rig);
}

Test(codec, refuses_more_than_its_strength_and_writes_nothing)
{
    for (unsigned redundancy = 0; redundancy <= 3; redundancy++) {
        struct rig rig = rig_create(true, 5, redundancy, 64, 0);
        uint64_t lost = (2ull << redundancy) - 1;
        cr_expect_not(codec_recover(&rig.codec, rig.columns, lost, 0, rig.len), "redundancy %u", redundancy);
        cr_expect_not(codec_recover(&rig.codec, rig.columns, 1, lost & ~1ull, rig.len), "redundancy %u", redundancy);
        cr_expect(rig_is_right(&rig), "redundancy %u: something was written", redundancy);
        cr_expect(codec_recover(&rig.codec, rig.columns, 0, 0, rig.len), "nothing lost");
        rig_destroy(&rig);
    }
}

Test(codec, update_from_a_delta_is_as_good_as_encoding_again)
{
    for (unsigned data = 1; data <= 20; data++)
        for (uint64_t len = 1; len <= 130; len += 43) {
            struct rig rig = rig_create(true, data, 3, len, len % 2);
            uint8_t delta[200], changed[200];
            for (unsigned role = 0; role < data; role++) {
                test_fill(changed, len, 1000 + role);
                codec_delta(delta, rig.columns[role], changed, len);
                memcpy(rig.columns[role], changed, len);
                for (unsigned p = data; p < data + 3; p++)
                    codec_update(&rig.codec, role, delta, p, rig.columns[p], len);
            }
            for (unsigned role = 0; role < rig.codec.roles; role++)
                memcpy(rig.right + role * len, rig.columns[role], len);
            cr_expect(rig_encodes(&rig, 7ull << data), "data %u, len %llu", data, (unsigned long long)len);
            rig_destroy(&rig);
        }
}

Test(codec, locates_the_one_wrong_chunk)
{
    for (unsigned data = 1; data <= 20; data++)
        for (unsigned redundancy = 2; redundancy <= 3; redundancy++) {
            struct rig rig = rig_create(true, data, redundancy, 2100, 0);
            cr_expect_eq(codec_locate(&rig.codec, rig.columns, rig.len), CODEC_CONSISTENT);
            for (unsigned role = 0; role < rig.codec.roles; role++) {
                rig.columns[role][2099] ^= 0x40; /* one bit, in the last block */
                int one_bit = codec_locate(&rig.codec, rig.columns, rig.len);
                rig_spoil(&rig, 1ull << role);
                int all_bytes = codec_locate(&rig.codec, rig.columns, rig.len);
                rig_restore(&rig);
                cr_expect_eq(one_bit, (int)role, "data %u + %u: %u, not %d", data, redundancy, role, one_bit);
                cr_expect_eq(all_bytes, (int)role, "data %u + %u: %u, not %d", data, redundancy, role, all_bytes);
            }
            rig_destroy(&rig);
        }
}

Test(codec, does_not_guess_when_two_chunks_are_wrong)
{
    for (unsigned data = 2; data <= 20; data++)
        for (unsigned redundancy = 2; redundancy <= 3; redundancy++) {
            struct rig rig = rig_create(true, data, redundancy, 64, 0);
            for (unsigned a = 0; a < rig.codec.roles; a++)
                for (unsigned b = a + 1; b < rig.codec.roles; b++) {
                    rig_spoil(&rig, 1ull << a | 1ull << b);
                    int found = codec_locate(&rig.codec, rig.columns, rig.len);
                    rig_restore(&rig);
                    cr_expect_eq(found, CODEC_UNKNOWN, "data %u + %u: %u and %u, found %d", data, redundancy, a, b,
                                 found);
                    rig.columns[a][3] ^= 1; /* two chunks, at places of their own */
                    rig.columns[b][60] ^= 1;
                    found = codec_locate(&rig.codec, rig.columns, rig.len);
                    rig_restore(&rig);
                    cr_expect_eq(found, CODEC_UNKNOWN, "data %u + %u: %u then %u, found %d", data, redundancy, a, b,
                                 found);
                }
            rig_destroy(&rig);
        }
}

Test(codec, three_parities_never_blame_a_third_chunk_for_two_wrong_bytes)
{
    struct rig rig = rig_create(true, 8, 3, 1, 0);
    for (unsigned a = 0; a < 11; a++)
        for (unsigned b = a + 1; b < 11; b++)
            for (unsigned error = 0; error < 255 * 8; error++) {
                rig.columns[a][0] ^= (uint8_t)(1u << error % 8);
                rig.columns[b][0] ^= (uint8_t)(1 + error / 8);
                int found = codec_locate(&rig.codec, rig.columns, 1);
                rig_restore(&rig);
                cr_assert_eq(found, CODEC_UNKNOWN, "%u and %u by %u: found %d", a, b, error, found);
            }
    rig_destroy(&rig);
}

Test(codec, without_spare_redundancy_it_only_says_that_something_is_wrong)
{
    struct rig rig = rig_create(true, 5, 1, 700, 0);
    cr_expect_eq(codec_locate(&rig.codec, rig.columns, rig.len), CODEC_CONSISTENT);
    rig.columns[2][650] ^= 1;
    cr_expect_eq(codec_locate(&rig.codec, rig.columns, rig.len), CODEC_UNKNOWN);
    rig_destroy(&rig);
    rig = rig_create(true, 5, 0, 700, 0);
    cr_expect_eq(codec_locate(&rig.codec, rig.columns, rig.len), CODEC_CONSISTENT, "nothing to compare with");
    rig_destroy(&rig);
}

Test(codec, copies_encode_recover_and_locate)
{
    for (unsigned copies = 2; copies <= 8; copies++) {
        struct rig rig = rig_create(false, 1, copies - 1, 100, 3);
        uint64_t all = (1ull << copies) - 1;
        cr_expect(rig_encodes(&rig, all & ~1ull), "%u copies", copies);
        for (uint64_t lost = 1; lost < all; lost++)
            for (uint64_t ignore = 0; ignore <= lost; ignore++)
                if ((ignore & lost) == ignore)
                    cr_expect(rig_recovers(&rig, lost & ~ignore, ignore), "%u copies, lost %llx", copies,
                              (unsigned long long)lost);
        cr_expect_not(codec_recover(&rig.codec, rig.columns, all, 0, rig.len), "all lost");
        cr_expect_eq(codec_locate(&rig.codec, rig.columns, rig.len), CODEC_CONSISTENT);
        for (unsigned role = 0; role < copies; role++) {
            rig.columns[role][99] ^= 1;
            cr_expect_eq(codec_locate(&rig.codec, rig.columns, rig.len), copies < 3 ? CODEC_UNKNOWN : (int)role,
                         "%u copies, wrong %u", copies, role);
            rig.columns[(role + 1) % copies][98] ^= 1;
            cr_expect_eq(codec_locate(&rig.codec, rig.columns, rig.len), CODEC_UNKNOWN, "%u copies, two wrong", copies);
            rig_restore(&rig);
        }
        rig_destroy(&rig);
    }
}

Test(codec, a_copy_in_the_same_memory_is_left_alone)
{
    struct codec codec;
    uint8_t page[64], other[64];
    uint8_t *const columns[3] = {page, page, other};
    test_fill(page, sizeof page, 5);
    codec_init(&codec, false, 1, 2);
    codec_encode(&codec, columns, 6, sizeof page);
    cr_expect_arr_eq(page, other, sizeof page);
}

Test(codec, wanting_a_parity_there_is_not_is_a_programmer_error, .signal = SIGABRT)
{
    struct rig rig = rig_create(true, 3, 1, 64, 0);
    codec_encode(&rig.codec, rig.columns, 1u << 4, 64);
}
