/* See raid/row_plan.h: masks in, masks out. */
#include "raid/row_plan.h"

#include "core/check.h"

static const struct row_plan impossible = {.kind = PLAN_IMPOSSIBLE};

static uint64_t all_roles(const struct row_query *q)
{
    return roles_below(q->data + q->redundancy);
}

static uint64_t data_roles(const struct row_query *q)
{
    return roles_below(q->data);
}

static uint64_t lowest(uint64_t roles, unsigned count)
{
    uint64_t taken = 0;
    for (; count > 0 && roles != 0; count--) {
        taken |= roles & -roles;
        roles &= roles - 1;
    }
    return taken;
}

/* As many readable roles as there are data chunks: `first` ones first, then other data, then redundancy. */
static uint64_t choose_sources(const struct row_query *q, uint64_t first)
{
    uint64_t order[] = {first & q->readable, data_roles(q) & q->readable, all_roles(q) & q->readable}, chosen = 0;
    for (unsigned i = 0; i < ARRAY_LENGTH(order); i++)
        chosen |= lowest(order[i] & ~chosen, q->data - roles_count(chosen));
    return chosen;
}

/* Read enough to compute `wanted`; read of `wanted` what can be read. */
static struct row_plan plan_recovery(const struct row_query *q, uint64_t first, uint64_t wanted)
{
    struct row_plan plan = {.kind = PLAN_RECOVER, .reads = choose_sources(q, first)};
    if (roles_count(plan.reads) < q->data)
        return impossible;
    plan.recover = wanted & ~q->readable;
    plan.ignore = all_roles(q) & ~plan.reads & ~plan.recover;
    ASSERT(roles_count(plan.recover | plan.ignore) <= q->redundancy);
    return plan;
}

struct row_plan row_plan_read(const struct row_query *q)
{
    ASSERT((q->target & ~data_roles(q)) == 0 && (q->rewrite & q->readable) == 0);
    uint64_t usable = q->readable & all_roles(q);
    if (!q->parity)
        return usable == 0 ? impossible
                           : (struct row_plan){.kind = PLAN_DIRECT, .reads = usable & -usable, .writes = q->rewrite};
    if ((q->target & ~usable) == 0)
        return (struct row_plan){.kind = PLAN_DIRECT, .reads = q->target};
    struct row_plan plan = plan_recovery(q, q->target, q->target | q->rewrite);
    plan.writes = plan.recover & q->rewrite;
    return plan;
}

static struct row_plan plan_rmw(const struct row_query *q, uint64_t parities)
{
    uint64_t old = q->target | parities;
    if (!q->synced || (old & ~q->readable) != 0)
        return impossible;
    return (struct row_plan){.kind = PLAN_RMW, .reads = old, .encode = parities};
}

static struct row_plan plan_rcw(const struct row_query *q, uint64_t parities)
{
    uint64_t others = data_roles(q) & ~q->target;
    if ((others & ~q->readable) != 0)
        return impossible;
    return (struct row_plan){.kind = others == 0 ? PLAN_FULL : PLAN_RCW, .reads = others, .encode = parities};
}

static struct row_plan plan_recon(const struct row_query *q, uint64_t parities)
{
    uint64_t others = data_roles(q) & ~q->target;
    struct row_plan plan = plan_recovery(q, others, others);
    if (plan.kind == PLAN_IMPOSSIBLE)
        return plan;
    plan.kind = PLAN_RECON;
    plan.encode = parities;
    return plan;
}

static const struct row_plan *better(const struct row_plan *a, const struct row_plan *b)
{
    if (a->kind == PLAN_IMPOSSIBLE || b->kind == PLAN_IMPOSSIBLE)
        return a->kind == PLAN_IMPOSSIBLE ? b : a;
    return roles_count(b->reads) < roles_count(a->reads) ? b : a;
}

struct row_plan row_plan_write(const struct row_query *q)
{
    ASSERT(q->target != 0 && (q->target & ~data_roles(q)) == 0);
    uint64_t writable = q->writable & all_roles(q);
    if (roles_count(all_roles(q) & ~writable) > q->redundancy)
        return impossible;
    if (!q->parity)
        return (struct row_plan){.kind = PLAN_FULL, .writes = writable};
    uint64_t parities = writable & ~data_roles(q);
    if (parities == 0)
        return (struct row_plan){.kind = PLAN_PLAIN, .writes = q->target};
    struct row_plan rmw = plan_rmw(q, parities), rcw = plan_rcw(q, parities), recon = plan_recon(q, parities);
    const struct row_plan *cheap = better(&rcw, &recon);
    struct row_plan plan = *better(&rmw, cheap);
    if (plan.kind != PLAN_IMPOSSIBLE)
        plan.writes = (q->target & writable) | parities | (plan.recover & q->rewrite);
    return plan;
}

struct row_plan row_plan_resync(const struct row_query *q)
{
    uint64_t readable = q->readable & all_roles(q), checkable = readable | q->rewrite;
    if (!q->parity) {
        uint64_t source = readable & -readable;
        return source == 0 ? impossible
                           : (struct row_plan){.kind = PLAN_DIRECT, .reads = readable, .encode = checkable & ~source};
    }
    if (roles_count(readable) < q->data)
        return impossible;
    struct row_plan plan = {.kind = PLAN_RECOVER, .reads = readable, .recover = data_roles(q) & ~readable};
    plan.ignore = all_roles(q) & ~readable & ~plan.recover;
    plan.encode = checkable & ~data_roles(q);
    plan.writes = plan.recover & q->rewrite;
    return plan;
}

struct row_plan row_plan_rebuild(const struct row_query *q)
{
    uint64_t wanted = (q->target | q->rewrite) & all_roles(q);
    if (wanted == 0)
        return (struct row_plan){.kind = PLAN_PLAIN};
    ASSERT((wanted & q->readable) == 0);
    struct row_plan plan = plan_recovery(q, q->prefer, wanted);
    plan.writes = plan.recover;
    return plan;
}

const char *row_plan_name(enum row_plan_kind kind)
{
    static const char *const names[] = {"impossible",        "plain",       "full",   "read-modify-write",
                                        "reconstruct-write", "reconstruct", "direct", "recover"};
    return (unsigned)kind < ARRAY_LENGTH(names) ? names[kind] : "unknown";
}
