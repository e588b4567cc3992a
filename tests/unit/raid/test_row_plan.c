#include <criterion/criterion.h>

#include "core/check.h"
#include "raid/row_plan.h"

/* Roles as bits: of RAID 5 with four data chunks, D0 to D3 are 1, 2, 4, 8 and P is 16; of RAID 6, P 16 and Q 32. */
enum { D0 = 1, D1 = 2, D2 = 4, D3 = 8, P = 16, Q = 32, ALL5 = 31, ALL6 = 63 };

struct write_case {
    const char *what;
    unsigned redundancy;
    uint64_t readable, writable, target;
    bool unsynced;
    enum row_plan_kind kind;
    uint64_t reads, recover, writes;
};

static const struct write_case writes[] = {
    {"one chunk", 1, ALL5, ALL5, D1, 0, PLAN_RMW, D1 | P, 0, D1 | P},
    {"two chunks: read-modify-write would read one more", 1, ALL5, ALL5, D0 | D1, 0, PLAN_RCW, D2 | D3, 0, D0 | D1 | P},
    {"three chunks", 1, ALL5, ALL5, D0 | D1 | D2, 0, PLAN_RCW, D3, 0, D0 | D1 | D2 | P},
    {"all", 1, ALL5, ALL5, D0 | D1 | D2 | D3, 0, PLAN_FULL, 0, 0, ALL5},
    {"one, parity not trusted", 1, ALL5, ALL5, D1, 1, PLAN_RCW, D0 | D2 | D3, 0, D1 | P},
    {"one, two parities: a tie", 2, ALL6, ALL6, D1, 0, PLAN_RMW, D1 | P | Q, 0, D1 | P | Q},
    {"two, two parities", 2, ALL6, ALL6, D1 | D2, 0, PLAN_RCW, D0 | D3, 0, D1 | D2 | P | Q},
    {"no parity member", 1, ALL5 & ~P, ALL5 & ~P, D1, 0, PLAN_PLAIN, 0, 0, D1},
    {"one of two parity members", 2, ALL6 & ~P, ALL6 & ~P, D1, 0, PLAN_RMW, D1 | Q, 0, D1 | Q},
    {"no parity member of two", 2, 15, 15, D1 | D2, 0, PLAN_PLAIN, 0, 0, D1 | D2},
    {"its own member is gone", 1, ALL5 & ~D1, ALL5 & ~D1, D1, 0, PLAN_RCW, D0 | D2 | D3, 0, P},
    {"its own member is gone, all written", 1, ALL5 & ~D1, ALL5 & ~D1, 15, 0, PLAN_FULL, 0, 0, D0 | D2 | D3 | P},
    {"another member is gone", 1, ALL5 & ~D1, ALL5 & ~D1, D0, 0, PLAN_RMW, D0 | P, 0, D0 | P},
    {"another is gone, parity not trusted", 1, ALL5 & ~D1, ALL5 & ~D1, D0, 1, PLAN_RECON, D0 | D2 | D3 | P, D1, D0 | P},
    {"its own and another are gone", 2, ALL6 & ~(D0 | D1), ALL6 & ~(D0 | D1), D0, 0, PLAN_RECON, D2 | D3 | P | Q, D1,
     P | Q},
    {"its own is being rebuilt", 1, ALL5 & ~D1, ALL5, D1, 0, PLAN_RCW, D0 | D2 | D3, 0, D1 | P},
    {"parity is being rebuilt", 1, ALL5 & ~P, ALL5, D1, 0, PLAN_RCW, D0 | D2 | D3, 0, D1 | P},
    {"parity is being rebuilt, another is gone", 2, ALL6 & ~(D1 | P), ALL6 & ~D1, D0, 0, PLAN_RECON, D0 | D2 | D3 | Q,
     D1, D0 | P | Q},
    {"too many are gone", 1, ALL5 & ~(D0 | D1), ALL5 & ~(D0 | D1), D2, 0, PLAN_IMPOSSIBLE, 0, 0, 0},
    {"nothing to recover from", 1, ALL5 & ~(D1 | P), ALL5, D1 | D2, 0, PLAN_RCW, D0 | D3, 0, D1 | D2 | P},
    {"the rest cannot be read", 1, ALL5 & ~(D3 | P), ALL5, D1 | D2, 0, PLAN_IMPOSSIBLE, 0, 0, 0},
};

Test(row_plan, writes_read_as_little_as_they_can)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(writes); i++) {
        const struct write_case *c = &writes[i];
        struct row_query q = {.data = 4,
                              .redundancy = c->redundancy,
                              .parity = true,
                              .synced = !c->unsynced,
                              .readable = c->readable,
                              .writable = c->writable,
                              .target = c->target};
        struct row_plan plan = row_plan_write(&q);
        cr_expect_eq(plan.kind, c->kind, "%s: %s", c->what, row_plan_name(plan.kind));
        cr_expect_eq(plan.reads, c->reads, "%s: reads %x", c->what, (unsigned)plan.reads);
        cr_expect_eq(plan.recover, c->recover, "%s: recovers %x", c->what, (unsigned)plan.recover);
        cr_expect_eq(plan.writes, c->writes, "%s: writes %x", c->what, (unsigned)plan.writes);
    }
}

Test(row_plan, reads)
{
    static const struct {
        const char *what;
        uint64_t readable, target, rewrite;
        enum row_plan_kind kind;
        uint64_t reads, recover, ignore, writes;
    } table[] = {
        {"all there", ALL6, D1 | D2, 0, PLAN_DIRECT, D1 | D2, 0, 0, 0},
        {"another is gone", ALL6 & ~D0, D1 | D2, 0, PLAN_DIRECT, D1 | D2, 0, 0, 0},
        {"one of two is gone", ALL6 & ~D1, D1 | D2, 0, PLAN_RECOVER, D0 | D2 | D3 | P, D1, Q, 0},
        {"a media error is corrected", ALL6 & ~D1, D1, D1, PLAN_RECOVER, D0 | D2 | D3 | P, D1, Q, D1},
        {"two media errors, one not asked for", ALL6 & ~(D1 | D2), D1, D1 | D2, PLAN_RECOVER, D0 | D3 | P | Q, D1 | D2,
         0, D1 | D2},
        {"three are gone", ALL6 & ~(D1 | D2 | P), D1, 0, PLAN_IMPOSSIBLE, 0, 0, 0, 0},
        {"three are gone, but it is there", ALL6 & ~(D1 | D2 | P), D0, 0, PLAN_DIRECT, D0, 0, 0, 0},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
        struct row_query q = {.data = 4,
                              .redundancy = 2,
                              .parity = true,
                              .synced = true,
                              .readable = table[i].readable,
                              .writable = ALL6,
                              .target = table[i].target,
                              .rewrite = table[i].rewrite};
        struct row_plan plan = row_plan_read(&q);
        cr_expect_eq(plan.kind, table[i].kind, "%s: %s", table[i].what, row_plan_name(plan.kind));
        cr_expect_eq(plan.reads, table[i].reads, "%s", table[i].what);
        cr_expect_eq(plan.recover, table[i].recover, "%s", table[i].what);
        cr_expect_eq(plan.ignore, table[i].ignore, "%s", table[i].what);
        cr_expect_eq(plan.writes, table[i].writes, "%s", table[i].what);
    }
}

Test(row_plan, copies)
{
    struct row_query q = {.data = 1, .redundancy = 2, .synced = true, .readable = 6, .writable = 7, .target = 1};
    struct row_plan plan = row_plan_read(&q);
    cr_expect_eq(plan.reads, 2, "any one that is readable");
    plan = row_plan_write(&q);
    cr_expect_eq(plan.kind, PLAN_FULL);
    cr_expect_eq(plan.writes, 7);
    cr_expect_eq(plan.reads, 0);
    plan = row_plan_resync(&q);
    cr_expect_eq(plan.reads, 6);
    cr_expect_eq(plan.encode, 4, "compared with the first; the one that is being rebuilt is left alone");
    q.target = 1;
    plan = row_plan_rebuild(&q);
    cr_expect_eq(plan.reads, 2);
    cr_expect_eq(plan.writes, 1);
    q.readable = 0;
    cr_expect_eq(row_plan_read(&q).kind, PLAN_IMPOSSIBLE);
}

Test(row_plan, jobs)
{
    struct row_query q = {.data = 4, .redundancy = 2, .parity = true, .readable = ALL6, .writable = ALL6};
    struct row_plan plan = row_plan_resync(&q);
    cr_expect_eq(plan.reads, ALL6);
    cr_expect_eq(plan.encode, P | Q);
    cr_expect_eq(plan.writes, 0, "only what differs will be");
    cr_expect_eq(row_plan_rebuild(&q).reads, 0, "nobody is being rebuilt");
    q.readable = ALL6 & ~(D1 | Q);
    q.rewrite = Q;
    plan = row_plan_resync(&q);
    cr_expect_eq(plan.recover, D1);
    cr_expect_eq(plan.encode, P | Q, "what could not be read is computed and written");
    q.rewrite = 0;
    q.target = D1 | Q;
    plan = row_plan_rebuild(&q);
    cr_expect_eq(plan.reads, D0 | D2 | D3 | P);
    cr_expect_eq(plan.recover, D1 | Q);
    cr_expect_eq(plan.writes, D1 | Q);
    q.readable = D0 | D2;
    cr_expect_eq(row_plan_rebuild(&q).kind, PLAN_IMPOSSIBLE);
    cr_expect_eq(row_plan_resync(&q).kind, PLAN_IMPOSSIBLE);
}

/* No plan may read what cannot be read, write what takes no writes, or leave the row beyond recovery. */
Test(row_plan, all_cases_of_small_rows_are_sound)
{
    enum { DATA = 3, RED = 2, ROLES = DATA + RED };
    uint64_t all = roles_below(ROLES), data = roles_below(DATA);
    for (uint64_t readable = 0; readable <= all; readable++)
        for (uint64_t extra = 0; extra <= all; extra++)
            for (uint64_t target = 1; target <= data; target++) {
                uint64_t writable = readable | extra;
                struct row_query q = {.data = DATA,
                                      .redundancy = RED,
                                      .parity = true,
                                      .synced = extra & 1,
                                      .readable = readable,
                                      .writable = writable,
                                      .target = target};
                struct row_plan w = row_plan_write(&q), r = row_plan_read(&q);
                cr_assert_eq(w.reads & ~readable, 0);
                cr_assert_eq(r.reads & ~readable, 0);
                cr_assert_eq(w.writes & ~writable, 0);
                if (roles_count(readable) >= DATA) {
                    cr_assert_neq(w.kind, PLAN_IMPOSSIBLE);
                    cr_assert_neq(r.kind, PLAN_IMPOSSIBLE);
                    cr_assert_eq(w.writes, (target | (all & ~data)) & writable);
                    cr_assert_leq(roles_count(w.reads), DATA);
                }
                if (r.kind != PLAN_IMPOSSIBLE)
                    cr_assert_eq(target & ~(r.reads | r.recover), 0);
            }
}
