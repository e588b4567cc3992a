/*
 * How a row's redundancy is computed: on byte columns of equal length, with ISA-L.
 *
 * A codec has `data` data and `redundancy` redundancy chunks. In parity codecs P is the exclusive or, Q the sum of
 * g^i * D_i and R the sum of g^(2i) * D_i over GF(2^8) with polynomial 0x11d and g = 2; i is the data role. P and Q are
 * those of Linux md's RAID 6. In copy codecs there is one data chunk, and every role is the same bytes.
 *
 * All functions work on `roles` pointers to `len` bytes, indexed by role. They are pure; memory is the caller's; len
 * is any number of bytes below 2 GiB and pointers have any alignment, but 64-byte alignment is faster. Tables are
 * computed at codec_init() or in fixed space on the stack.
 */
#ifndef RAID_CODEC_H
#define RAID_CODEC_H

#include <stdbool.h>
#include <stdint.h>

enum { CODEC_DATA_MAX = 64, CODEC_REDUNDANCY_MAX = 3 };

struct codec {
    unsigned data, redundancy, roles;
    bool parity;
    uint8_t coefficients[CODEC_REDUNDANCY_MAX][CODEC_DATA_MAX]; /* g^(parity * data role) */
    /* ISA-L's expansion of the coefficients, [redundancy][data][32]; see codec.c */
    uint8_t tables[CODEC_REDUNDANCY_MAX * CODEC_DATA_MAX * 32];
};

/* parity: redundancy 0 to 3 and data 1 to 63; else data 1 and any redundancy (copies). At most 64 roles. */
void codec_init(struct codec *codec, bool parity, unsigned data, unsigned redundancy);

/*
 * Compute the redundancy chunks whose bit (1 << role) is in `want` from all data chunks; the pointers of other
 * redundancy chunks are not looked at. A copy that is the data chunk's own memory is left alone.
 */
void codec_encode(const struct codec *codec, uint8_t *const *chunks, uint64_t want, uint64_t len);

/* delta = old ^ new, for codec_update(). */
void codec_delta(uint8_t *delta, const uint8_t *old_data, const uint8_t *new_data, uint64_t len);
/* Bring redundancy chunk `role` up to date after data chunk `data_role` changed by `delta`. Parity codecs only. */
void codec_update(const struct codec *codec, unsigned data_role, const uint8_t *delta, unsigned role, uint8_t *chunk,
                  uint64_t len);

/*
 * Recompute the chunks in `lost` (any mix of data and redundancy) from the others; chunks outside `lost` and `ignore`
 * must hold valid bytes. `ignore` are roles neither valid nor wanted; their pointers may be NULL. At most `redundancy`
 * roles in lost|ignore together, else false and nothing is written.
 */
bool codec_recover(const struct codec *codec, uint8_t *const *chunks, uint64_t lost, uint64_t ignore, uint64_t len);

/*
 * All chunks read: which single one is wrong? Looks at the bytes one by one; every disagreement must name the same
 * role. CODEC_CONSISTENT, CODEC_UNKNOWN (inconsistent, not to be located), or the role. Location needs redundancy >= 2,
 * or three copies.
 */
enum { CODEC_CONSISTENT = -1, CODEC_UNKNOWN = -2 };
int codec_locate(const struct codec *codec, uint8_t *const *chunks, uint64_t len);

#endif
