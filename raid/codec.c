/*
 * The arithmetic of a row's redundancy, on ISA-L.
 *
 * Parity j of a row is the sum of g^(j*i) * D_i: P, Q, R are rows 0, 1, 2 of the matrix
 *
 *          1   1    1     1   ...
 *          1   g   g^2   g^3  ...                 over GF(2^8), polynomial 0x11d, g = 2
 *          1  g^2  g^4   g^6  ...
 *
 * Every loss of up to three chunks can be undone. With u data chunks lost and any u of the parities left, the square
 * of those rows and columns must be invertible. Put x = g^i: the x of different data chunks differ, as g has order 255.
 * {P}, {Q}, {R}: an element is never 0. {P,Q} and {Q,R}: the determinant is x+y times a power of g. {P,R}: it is
 * x^2 + y^2 = (x+y)^2. {P,Q,R}: the Vandermonde determinant (x+y)(x+z)(y+z). None is 0, up to 255 data chunks. (From
 * four parities on this is no longer so.) The test tries all losses up to 61 data chunks as well.
 *
 * Recovery writes each wanted chunk as one sum over `data` sources, the data chunks that are left and as many parities
 * as data chunks are gone, so that every byte is read once; ignored chunks never appear.
 *
 * ISA-L has three ways to sum. xor_gen() (P) and pq_gen() (P and Q; vector i has weight g^i, as ours) are two to four
 * times as fast as ec_encode_data() (measured on 4 KiB columns in cache, AVX2: 58 to 145, 48 to 70, and 17 to 38 GB/s
 * of data), but want aligned pointers, whole blocks and at least two data chunks. ec_encode_data() takes any
 * coefficients, any alignment and any length, by tables of 32 bytes a coefficient, laid out output by output, so that
 * the first outputs of a table are a table of their own. The fast ones do the aligned body, the general one does the
 * rest.
 *
 * Nothing is allocated: tables for other sums than the usual ones are built on the stack (6 KiB).
 */
#include "raid/codec.h"

#include <isa-l/erasure_code.h>
#include <isa-l/raid.h>
#include <string.h>

#include "core/check.h"

enum { ALIGNMENT = 64, TABLE_BYTES = 32, ROLES_MAX = 64 };

static uint64_t bit(unsigned role)
{
    return 1ull << role;
}

static unsigned count_bits(uint64_t set)
{
    return (unsigned)__builtin_popcountll(set);
}

void codec_init(struct codec *codec, bool parity, unsigned data, unsigned redundancy)
{
    ASSERT(data >= 1 && data + redundancy <= ROLES_MAX);
    ASSERT(parity ? redundancy <= CODEC_REDUNDANCY_MAX : data == 1);
    *codec = (struct codec){.data = data, .redundancy = redundancy, .roles = data + redundancy, .parity = parity};
    if (!parity || redundancy == 0)
        return;
    uint8_t rows[CODEC_REDUNDANCY_MAX * CODEC_DATA_MAX], weight = 1;
    for (unsigned i = 0; i < data; i++, weight = gf_mul(weight, 2))
        for (unsigned j = 0; j < redundancy; j++) {
            uint8_t above = j == 0 ? 1 : codec->coefficients[j - 1][i];
            codec->coefficients[j][i] = j == 0 ? 1 : gf_mul(above, weight);
            rows[j * data + i] = codec->coefficients[j][i];
        }
    ec_init_tables((int)data, (int)redundancy, rows, codec->tables);
}

/* -- sums of columns
 * --------------------------------------------------------------------------------------------------- */

/* How many bytes from the start the aligned functions may do. */
static uint64_t aligned_body(uint8_t *const *columns, unsigned count, uint64_t len)
{
    uintptr_t bits = 0;
    for (unsigned i = 0; i < count; i++)
        bits |= (uintptr_t)columns[i];
    return bits % ALIGNMENT == 0 ? round_down(len, ALIGNMENT) : 0;
}

/* Columns `inputs`..: sums of columns 0 .. inputs-1, by tables, from byte `from` on. */
static void sum_by_tables(const uint8_t *tables, uint8_t *const *columns, unsigned inputs, unsigned outputs,
                          uint64_t from, uint64_t len)
{
    uint8_t *at[ROLES_MAX + CODEC_REDUNDANCY_MAX];
    if (from == len)
        return;
    for (unsigned i = 0; i < inputs + outputs; i++)
        at[i] = columns[i] + from;
    ec_encode_data((int)(len - from), (int)inputs, (int)outputs, (uint8_t *)tables, at, at + inputs);
}

/* Column `inputs`: exclusive or of columns 0 .. inputs-1. `tables`: its coefficients, all 1. */
static void sum_xor(const uint8_t *tables, uint8_t *const *columns, unsigned inputs, uint64_t len)
{
    uint64_t body = inputs < 2 ? 0 : aligned_body(columns, inputs + 1, len);
    int failed = body == 0 ? 0 : xor_gen((int)inputs + 1, (int)body, (void **)columns);
    ASSERT(failed == 0);
    sum_by_tables(tables, columns, inputs, 1, body, len);
}

static void sum_pq(const uint8_t *tables, uint8_t *const *columns, unsigned inputs, uint64_t len)
{
    uint64_t body = inputs < 2 ? 0 : aligned_body(columns, inputs + 2, len);
    int failed = body == 0 ? 0 : pq_gen((int)inputs + 2, (int)body, (void **)columns);
    ASSERT(failed == 0);
    sum_by_tables(tables, columns, inputs, 2, body, len);
}

/* Any sums: coefficients[output][input], `inputs` apart. */
static void sum_any(uint8_t *coefficients, uint8_t *const *columns, unsigned inputs, unsigned outputs, uint64_t len)
{
    uint8_t tables[CODEC_REDUNDANCY_MAX * ROLES_MAX * TABLE_BYTES];
    bool is_xor = outputs == 1;
    for (unsigned i = 0; is_xor && i < inputs; i++)
        is_xor = coefficients[i] == 1;
    ec_init_tables((int)inputs, (int)outputs, coefficients, tables);
    if (is_xor)
        sum_xor(tables, columns, inputs, len);
    else
        sum_by_tables(tables, columns, inputs, outputs, 0, len);
}

/* -- encode, update
 * ---------------------------------------------------------------------------------------------------- */

static void copy_to(uint8_t *const *chunks, unsigned from, uint64_t wanted, uint64_t len)
{
    for (; wanted != 0; wanted &= wanted - 1) {
        uint8_t *copy = chunks[__builtin_ctzll(wanted)];
        if (copy != chunks[from])
            memcpy(copy, chunks[from], len);
    }
}

/* Some of the parities that are not the first ones: tables are built for them. */
static void encode_some(const struct codec *codec, uint8_t *const *chunks, uint64_t want, uint64_t len)
{
    uint8_t coefficients[CODEC_REDUNDANCY_MAX * CODEC_DATA_MAX], *columns[ROLES_MAX];
    unsigned outputs = 0;
    memcpy(columns, chunks, codec->data * sizeof columns[0]);
    for (; want != 0; want &= want - 1, outputs++) {
        unsigned role = (unsigned)__builtin_ctzll(want);
        memcpy(coefficients + outputs * codec->data, codec->coefficients[role - codec->data], codec->data);
        columns[codec->data + outputs] = chunks[role];
    }
    sum_any(coefficients, columns, codec->data, outputs, len);
}

void codec_encode(const struct codec *codec, uint8_t *const *chunks, uint64_t want, uint64_t len)
{
    uint64_t parities = want >> codec->data;
    ASSERT(want == parities << codec->data && parities >> codec->redundancy == 0 && len <= INT32_MAX);
    if (!codec->parity)
        copy_to(chunks, 0, want, len);
    else if (parities == 1)
        sum_xor(codec->tables, chunks, codec->data, len);
    else if (parities == 3)
        sum_pq(codec->tables, chunks, codec->data, len);
    else if (parities == 7)
        sum_by_tables(codec->tables, chunks, codec->data, 3, 0, len);
    else if (parities != 0)
        encode_some(codec, chunks, want, len);
}

void codec_delta(uint8_t *delta, const uint8_t *old_data, const uint8_t *new_data, uint64_t len)
{
    uint8_t coefficients[2] = {1, 1};
    uint8_t *const columns[3] = {(uint8_t *)old_data, (uint8_t *)new_data, delta};
    ASSERT(len <= INT32_MAX);
    sum_any(coefficients, columns, 2, 1, len);
}

void codec_update(const struct codec *codec, unsigned data_role, const uint8_t *delta, unsigned role, uint8_t *chunk,
                  uint64_t len)
{
    uint8_t table[TABLE_BYTES];
    ASSERT(codec->parity && data_role < codec->data && role >= codec->data && role < codec->roles);
    ASSERT(len <= INT32_MAX);
    ec_init_tables(1, 1, (uint8_t *)&codec->coefficients[role - codec->data][data_role], table);
    ec_encode_data_update((int)len, 1, 1, 0, table, (uint8_t *)delta, &chunk);
}

/* -- recover
 * ----------------------------------------------------------------------------------------------------------- */

/*
 * What is known and what is not. The sources are the `kept` data chunks there are, then `gone_count` parities; their
 * equations give gone data chunk a as the sum of solution[a][s] * source s.
 */
struct puzzle {
    const struct codec *codec;
    unsigned sources[CODEC_DATA_MAX]; /* roles; `data` of them */
    unsigned kept;
    unsigned gone[CODEC_REDUNDANCY_MAX], gone_count; /* data roles */
    uint8_t solution[CODEC_REDUNDANCY_MAX][CODEC_DATA_MAX];
};

static void puzzle_sort_roles(struct puzzle *puzzle, uint64_t missing)
{
    const struct codec *codec = puzzle->codec;
    unsigned count = 0;
    for (unsigned role = 0; role < codec->data; role++) {
        if (missing & bit(role))
            puzzle->gone[puzzle->gone_count++] = role;
        else
            puzzle->sources[count++] = role;
    }
    puzzle->kept = count;
    for (unsigned role = codec->data; count < codec->data; role++) {
        ASSERT(role < codec->roles); /* there are as many parities left as data is gone: the caller counted */
        if (!(missing & bit(role)))
            puzzle->sources[count++] = role;
    }
}

static uint8_t given_coefficient(const struct puzzle *puzzle, unsigned given, unsigned data_role)
{
    const struct codec *codec = puzzle->codec;
    return codec->coefficients[puzzle->sources[puzzle->kept + given] - codec->data][data_role];
}

static void puzzle_solve(struct puzzle *puzzle)
{
    uint8_t matrix[CODEC_REDUNDANCY_MAX * CODEC_REDUNDANCY_MAX], inverse[sizeof matrix];
    unsigned u = puzzle->gone_count;
    if (u == 0)
        return;
    for (unsigned given = 0; given < u; given++)
        for (unsigned a = 0; a < u; a++)
            matrix[given * u + a] = given_coefficient(puzzle, given, puzzle->gone[a]);
    int singular = gf_invert_matrix(matrix, inverse, (int)u);
    ASSERT(singular == 0); /* see above */
    for (unsigned a = 0; a < u; a++) {
        for (unsigned given = 0; given < u; given++)
            puzzle->solution[a][puzzle->kept + given] = inverse[a * u + given];
        for (unsigned s = 0; s < puzzle->kept; s++) {
            uint8_t sum = 0;
            for (unsigned given = 0; given < u; given++)
                sum ^= gf_mul(inverse[a * u + given], given_coefficient(puzzle, given, puzzle->sources[s]));
            puzzle->solution[a][s] = sum;
        }
    }
}

/* Coefficients of a wanted role over the sources: a gone data chunk's solution, or a parity with solutions put in. */
static void puzzle_express(const struct puzzle *puzzle, unsigned role, uint8_t *out)
{
    const struct codec *codec = puzzle->codec;
    for (unsigned a = 0; a < puzzle->gone_count; a++)
        if (puzzle->gone[a] == role) {
            memcpy(out, puzzle->solution[a], codec->data);
            return;
        }
    const uint8_t *row = codec->coefficients[role - codec->data];
    for (unsigned s = 0; s < codec->data; s++) {
        uint8_t sum = s < puzzle->kept ? row[puzzle->sources[s]] : 0;
        for (unsigned a = 0; a < puzzle->gone_count; a++)
            sum ^= gf_mul(row[puzzle->gone[a]], puzzle->solution[a][s]);
        out[s] = sum;
    }
}

static void recover_parity(const struct codec *codec, uint8_t *const *chunks, uint64_t lost, uint64_t missing,
                           uint64_t len)
{
    struct puzzle puzzle = {.codec = codec};
    uint8_t coefficients[CODEC_REDUNDANCY_MAX * CODEC_DATA_MAX], *columns[ROLES_MAX + CODEC_REDUNDANCY_MAX];
    unsigned outputs = 0;
    puzzle_sort_roles(&puzzle, missing);
    puzzle_solve(&puzzle);
    for (unsigned s = 0; s < codec->data; s++)
        columns[s] = chunks[puzzle.sources[s]];
    for (; lost != 0; lost &= lost - 1, outputs++) {
        unsigned role = (unsigned)__builtin_ctzll(lost);
        puzzle_express(&puzzle, role, coefficients + outputs * codec->data);
        columns[codec->data + outputs] = chunks[role];
    }
    sum_any(coefficients, columns, codec->data, outputs, len);
}

bool codec_recover(const struct codec *codec, uint8_t *const *chunks, uint64_t lost, uint64_t ignore, uint64_t len)
{
    uint64_t missing = lost | ignore, all = codec->roles < 64 ? bit(codec->roles) - 1 : UINT64_MAX;
    ASSERT((missing & ~all) == 0 && len <= INT32_MAX);
    if (count_bits(missing) > codec->redundancy)
        return false;
    if (lost == 0)
        return true;
    if (codec->parity)
        recover_parity(codec, chunks, lost, missing, len);
    else
        copy_to(chunks, (unsigned)__builtin_ctzll(all & ~missing), lost, len);
    return true;
}

/* -- locate
 * ------------------------------------------------------------------------------------------------------------ */

enum { LOCATE_BLOCK = 1024 };

/*
 * One byte of each parity, stored plus computed: which role explains it? A wrong parity disturbs itself alone. Wrong
 * data e in role i disturbs P by e, Q by g^i * e, R by g^(2i) * e. With redundancy 1 nothing can be told.
 */
static int locate_byte(const struct codec *codec, const uint8_t *syndrome)
{
    unsigned disturbed = 0, last = 0;
    for (unsigned j = 0; j < codec->redundancy; j++)
        if (syndrome[j] != 0) {
            disturbed++;
            last = j;
        }
    if (codec->redundancy < 2)
        return CODEC_UNKNOWN;
    if (disturbed == 1)
        return (int)(codec->data + last);
    if (disturbed < codec->redundancy)
        return CODEC_UNKNOWN;
    uint8_t weight = gf_mul(syndrome[1], gf_inv(syndrome[0]));
    for (unsigned i = 0; i < codec->data; i++)
        if (codec->coefficients[1][i] == weight) {
            bool agrees = codec->redundancy < 3 || gf_mul(syndrome[1], weight) == syndrome[2];
            return agrees ? (int)i : CODEC_UNKNOWN;
        }
    return CODEC_UNKNOWN;
}

/* `found` so far, and what a block says: the first answer, or unknown when two differ. */
static int locate_block(const struct codec *codec, uint8_t *const *chunks, uint64_t from, uint64_t len, int found)
{
    uint8_t computed[CODEC_REDUNDANCY_MAX][LOCATE_BLOCK], *columns[ROLES_MAX];
    bool same = true;
    for (unsigned role = 0; role < codec->data; role++)
        columns[role] = chunks[role] + from;
    for (unsigned j = 0; j < codec->redundancy; j++)
        columns[codec->data + j] = computed[j];
    sum_by_tables(codec->tables, columns, codec->data, codec->redundancy, 0, len);
    for (unsigned j = 0; same && j < codec->redundancy; j++)
        same = memcmp(computed[j], chunks[codec->data + j] + from, len) == 0;
    for (uint64_t i = 0; !same && found != CODEC_UNKNOWN && i < len; i++) {
        uint8_t syndrome[CODEC_REDUNDANCY_MAX] = {0}, any = 0;
        for (unsigned j = 0; j < codec->redundancy; j++)
            any |= syndrome[j] = computed[j][i] ^ chunks[codec->data + j][from + i];
        int role = any == 0 ? found : locate_byte(codec, syndrome);
        found = found == CODEC_CONSISTENT || role == found ? role : CODEC_UNKNOWN;
    }
    return found;
}

static int locate_parity(const struct codec *codec, uint8_t *const *chunks, uint64_t len)
{
    int found = CODEC_CONSISTENT;
    for (uint64_t from = 0; codec->redundancy > 0 && found != CODEC_UNKNOWN && from < len; from += LOCATE_BLOCK)
        found = locate_block(codec, chunks, from, MIN((uint64_t)LOCATE_BLOCK, len - from), found);
    return found;
}

/* The one copy that differs from all others, which agree. Of the first three, two that agree show what is right. */
static int locate_copy(const struct codec *codec, uint8_t *const *chunks, uint64_t len)
{
    unsigned right = 0;
    int found = CODEC_CONSISTENT;
    if (codec->roles >= 3 && memcmp(chunks[0], chunks[1], len) != 0 && memcmp(chunks[0], chunks[2], len) != 0)
        right = 1;
    for (unsigned role = 0; role < codec->roles; role++) {
        if (role == right || memcmp(chunks[role], chunks[right], len) == 0)
            continue;
        if (found != CODEC_CONSISTENT || codec->roles < 3)
            return CODEC_UNKNOWN;
        found = (int)role;
    }
    return found;
}

int codec_locate(const struct codec *codec, uint8_t *const *chunks, uint64_t len)
{
    ASSERT(len <= INT32_MAX);
    return codec->parity ? locate_parity(codec, chunks, len) : locate_copy(codec, chunks, len);
}
