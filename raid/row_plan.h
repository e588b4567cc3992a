/*
 * What to read and what to write in one column band of a row: a pure function.
 *
 * A band is a range of columns in which a request touches the same data chunks from end to end. Roles are bits of a
 * mask: data roles first, then redundancy. The answer is the way with the fewest reads:
 *
 *   FULL    every data chunk is new: nothing is read
 *   PLAIN   no redundancy can be written: only the data is
 *   RMW     old data and old parities are read, the parities are updated by the difference
 *   RCW     the other data is read, the parities are computed anew
 *   RECON   some of the other data is lost: as many chunks as there are data chunks are read, the lost ones recovered
 *   DIRECT  a read of what is there
 *   RECOVER a read of what is not
 *
 * RMW trusts the old parities, so it needs a synced row. A parity that takes writes but cannot be read (its member is
 * being rebuilt) rules RMW out too. Between equals RMW wins: it touches the fewest members.
 */
#ifndef RAID_ROW_PLAN_H
#define RAID_ROW_PLAN_H

#include <stdbool.h>
#include <stdint.h>

struct row_query {
    unsigned data, redundancy;
    bool parity;       /* else copies: one data role, the others are the same bytes */
    bool synced;       /* the redundancy of this row is known to be right */
    uint64_t readable; /* roles whose old bytes can be had */
    uint64_t writable; /* roles whose members take writes */
    uint64_t target;   /* READ, WRITE: data roles the request touches; REBUILD: roles to fill */
    uint64_t prefer;   /* REBUILD: roles to read before others */
    uint64_t
        rewrite; /* roles that are not readable because of a media error on a healthy member: corrected in passing */
};

enum row_plan_kind {
    PLAN_IMPOSSIBLE,
    PLAN_PLAIN,
    PLAN_FULL,
    PLAN_RMW,
    PLAN_RCW,
    PLAN_RECON,
    PLAN_DIRECT,
    PLAN_RECOVER,
};

struct row_plan {
    enum row_plan_kind kind;
    uint64_t reads;   /* roles to read */
    uint64_t recover; /* roles to compute from what was read */
    uint64_t ignore;  /* roles neither read nor recovered (for codec_recover) */
    uint64_t encode;  /* redundancy to compute or update from the new data */
    uint64_t writes;  /* roles to write; in a resync those of `encode` only where they differ */
};

struct row_plan row_plan_read(const struct row_query *q);
struct row_plan row_plan_write(const struct row_query *q);
struct row_plan row_plan_resync(const struct row_query *q);
struct row_plan row_plan_rebuild(const struct row_query *q);

const char *row_plan_name(enum row_plan_kind kind);

/* The `count` lowest roles. */
static inline uint64_t roles_below(unsigned count)
{
    return count >= 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
}

static inline unsigned roles_count(uint64_t roles)
{
    return (unsigned)__builtin_popcountll(roles);
}

static inline unsigned roles_lowest(uint64_t roles)
{
    return (unsigned)__builtin_ctzll(roles);
}

/* for each role of a mask, lowest first */
#define FOR_EACH_ROLE(role, roles)                                                                                     \
    for (uint64_t role##_left = (roles), role = 0;                                                                     \
         role##_left != 0 && ((role = (uint64_t)__builtin_ctzll(role##_left)), 1); role##_left &= role##_left - 1)

#endif
