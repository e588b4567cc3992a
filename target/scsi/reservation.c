/* Persistent reservations: see reservation.h. */
#include "target/scsi/reservation.h"

#include <ctype.h>
#include <string.h>

#include "core/check.h"

enum { NOBODY = UINT32_MAX, SCOPE_LU = 0 };

bool persist_type_exists(unsigned type)
{
    return type == 1 || type == 3 || (type >= 5 && type <= 8);
}

bool persist_type_of_all(unsigned type)
{
    return type == PERSIST_WRITE_EXCLUSIVE_ALL || type == PERSIST_EXCLUSIVE_ACCESS_ALL;
}

/* Whoever is registered has access, holder or not. */
static bool type_of_registrants(unsigned type)
{
    return type >= PERSIST_WRITE_EXCLUSIVE_REGISTRANTS;
}

static bool type_excludes_reads(unsigned type)
{
    return type == PERSIST_EXCLUSIVE_ACCESS || type == PERSIST_EXCLUSIVE_ACCESS_REGISTRANTS ||
           type == PERSIST_EXCLUSIVE_ACCESS_ALL;
}

bool persist_same_port(const char *a, const char *b)
{
    for (; tolower((unsigned char)*a) == tolower((unsigned char)*b); a++, b++)
        if (*a == '\0')
            return true;
    return false;
}

static unsigned find(const struct reservations *now, const char *port)
{
    for (unsigned i = 0; i < now->count; i++)
        if (persist_same_port(now->of[i].port, port))
            return i;
    return NOBODY;
}

static bool holds(const struct reservations *now, unsigned index)
{
    return now->type != PERSIST_NONE && (persist_type_of_all(now->type) || now->holder == index);
}

const struct registration *reservations_find(const struct reservations *now, const char *port)
{
    unsigned index = find(now, port);
    return index == NOBODY ? NULL : &now->of[index];
}

bool reservations_hold(const struct reservations *now, const struct registration *of)
{
    return holds(now, (unsigned)(of - now->of));
}

enum persist_verdict reservations_add(struct reservations *next, const char *port, uint64_t key)
{
    if (find(next, port) != NOBODY)
        return PERSIST_LIST_FIELD;
    if (next->count == RESERVATIONS_MAX)
        return PERSIST_FULL;
    struct registration *added = &next->of[next->count++];
    *added = (struct registration){.key = key};
    memcpy(added->port, port, MIN(strlen(port), sizeof added->port - 1));
    return PERSIST_GOOD;
}

/* --- the orders --- */

struct change {
    const struct reservations *now;
    const struct persist_order *order;
    struct reservations *next;
    uint8_t *news;
    unsigned self; /* index in `now` of who gives the order, or NOBODY */
    bool gone[RESERVATIONS_MAX];
};

/* Tell all who stay, but not the one who did it. */
static void tell_others(struct change *c, enum persist_news news)
{
    for (unsigned i = 0; i < c->now->count; i++)
        if (i != c->self && !c->gone[i])
            c->news[i] = (uint8_t)news;
}

static void release(struct reservations *next)
{
    next->type = PERSIST_NONE;
    next->holder = 0;
}

/* Take out who is `gone`. A reservation ends with its holder; one of all registrants with the last of them. */
static void drop_gone(struct change *c)
{
    const struct reservations *now = c->now;
    struct reservations *next = c->next;
    bool held = now->type != PERSIST_NONE && !persist_type_of_all(now->type);
    next->count = 0;
    for (unsigned i = 0; i < now->count; i++) {
        if (c->gone[i])
            continue;
        if (held && i == now->holder)
            next->holder = next->count;
        next->of[next->count++] = now->of[i];
    }
    if (next->count == 0 || (held && c->gone[now->holder]))
        release(next);
}

/* SPC-4 5.12.11.2.3: if that ends a reservation from which the others had access, they hear of it. */
static void unregister_self(struct change *c)
{
    c->gone[c->self] = true;
    drop_gone(c);
    if (c->next->type == PERSIST_NONE && type_of_registrants(c->now->type))
        tell_others(c, NEWS_RELEASED);
}

/* 5.12.7 */
static enum persist_verdict order_register(struct change *c)
{
    const struct persist_order *order = c->order;
    enum persist_verdict verdict = PERSIST_GOOD;
    c->next->generation++;
    if (c->self == NOBODY && order->action_key == 0)
        return PERSIST_GOOD; /* there is nothing to do */
    if (c->self == NOBODY)
        verdict = reservations_add(c->next, order->port, order->action_key);
    else if (order->for_others)
        verdict = PERSIST_LIST_FIELD;
    else if (order->action_key != 0)
        c->next->of[c->self].key = order->action_key;
    else
        unregister_self(c);
    c->next->aptpl = order->aptpl;
    return verdict;
}

/* 5.12.9 */
static enum persist_verdict order_reserve(struct change *c)
{
    if (c->now->type != PERSIST_NONE)
        return holds(c->now, c->self) && c->now->type == c->order->type ? PERSIST_GOOD : PERSIST_CONFLICT;
    c->next->type = c->order->type;
    c->next->holder = c->self;
    return PERSIST_GOOD;
}

/* 5.12.11.2.2 */
static enum persist_verdict order_release(struct change *c)
{
    if (!holds(c->now, c->self))
        return PERSIST_GOOD;
    if (c->now->type != c->order->type || c->order->scope != SCOPE_LU)
        return PERSIST_WRONG_RELEASE;
    release(c->next);
    if (type_of_registrants(c->now->type))
        tell_others(c, NEWS_RELEASED);
    return PERSIST_GOOD;
}

/* 5.12.11.2.6 */
static enum persist_verdict order_clear(struct change *c)
{
    tell_others(c, NEWS_CLEARED);
    c->next->count = 0;
    release(c->next);
    c->next->generation++;
    return PERSIST_GOOD;
}

static bool holder_is_meant(const struct change *c)
{
    if (c->now->type == PERSIST_NONE)
        return false;
    uint64_t key = c->order->action_key;
    return persist_type_of_all(c->now->type) ? key == 0 : key == c->now->of[c->now->holder].key;
}

static void tell_gone(struct change *c)
{
    for (unsigned i = 0; i < c->now->count; i++)
        if (c->gone[i] && i != c->self)
            c->news[i] = NEWS_PREEMPTED;
}

/* 5.12.11.2.4: the reservation passes to who asks. Key 0 means all others. */
static void preempt_reservation(struct change *c)
{
    for (unsigned i = 0; i < c->now->count; i++)
        c->gone[i] = i != c->self && (c->order->action_key == 0 || c->now->of[i].key == c->order->action_key);
    if (c->order->type != c->now->type)
        tell_others(c, NEWS_RELEASED);
    tell_gone(c);
    drop_gone(c);
    c->next->type = c->order->type;
    c->next->holder = find(c->next, c->order->port);
}

/* 5.12.11.2.5: registrations only, one's own included. */
static bool preempt_registrations(struct change *c)
{
    bool any = false;
    for (unsigned i = 0; i < c->now->count; i++)
        any |= c->gone[i] = c->now->of[i].key == c->order->action_key;
    tell_gone(c);
    drop_gone(c);
    return any;
}

static enum persist_verdict order_preempt(struct change *c)
{
    c->next->generation++;
    if (holder_is_meant(c)) {
        if (!persist_type_exists(c->order->type) || c->order->scope != SCOPE_LU)
            return PERSIST_CDB_FIELD;
        preempt_reservation(c);
        return PERSIST_GOOD;
    }
    if (c->order->action_key == 0)
        return PERSIST_LIST_FIELD;
    return preempt_registrations(c) ? PERSIST_GOOD : PERSIST_CONFLICT;
}

/* 5.12.8 */
static enum persist_verdict order_move(struct change *c)
{
    const struct persist_order *order = c->order;
    if (c->now->type == PERSIST_NONE)
        return PERSIST_CDB_FIELD;
    if (!holds(c->now, c->self) || persist_type_of_all(c->now->type) || c->now->type != order->type ||
        order->scope != SCOPE_LU)
        return PERSIST_CONFLICT;
    if (order->action_key == 0 || persist_same_port(order->to, order->port))
        return PERSIST_LIST_FIELD;
    if (order->unregister) {
        c->gone[c->self] = true;
        drop_gone(c);
    }
    unsigned to = find(c->next, order->to);
    if (to == NOBODY) {
        to = c->next->count;
        enum persist_verdict verdict = reservations_add(c->next, order->to, order->action_key);
        if (verdict != PERSIST_GOOD)
            return verdict;
    }
    c->next->of[to].key = order->action_key;
    c->next->type = c->now->type;
    c->next->holder = to;
    c->next->aptpl = order->aptpl;
    c->next->generation++;
    return PERSIST_GOOD;
}

/* Who is not registered has no key but 0, which only REGISTER takes. */
static bool key_fits(const struct change *c)
{
    switch (c->order->action) {
    case PERSIST_REGISTER_IGNORE:
        return true;
    case PERSIST_REGISTER:
        return c->order->key == (c->self == NOBODY ? 0 : c->now->of[c->self].key);
    default:
        return c->self != NOBODY && c->order->key == c->now->of[c->self].key;
    }
}

static const struct {
    enum persist_verdict (*make)(struct change *);
    bool typed; /* scope and type are checked before anything */
} orders[] = {
    [PERSIST_REGISTER] = {order_register, false},        [PERSIST_RESERVE] = {order_reserve, true},
    [PERSIST_RELEASE] = {order_release, false},          [PERSIST_CLEAR] = {order_clear, false},
    [PERSIST_PREEMPT] = {order_preempt, false},          [PERSIST_PREEMPT_ABORT] = {order_preempt, false},
    [PERSIST_REGISTER_IGNORE] = {order_register, false}, [PERSIST_MOVE] = {order_move, false},
};

enum persist_verdict reservations_change(const struct reservations *now, const struct persist_order *order,
                                         struct reservations *next, uint8_t news[RESERVATIONS_MAX])
{
    ASSERT((unsigned)order->action < ARRAY_LENGTH(orders));
    struct change c = {.now = now, .order = order, .next = next, .news = news, .self = find(now, order->port)};
    memset(news, NEWS_NONE, RESERVATIONS_MAX);
    if (!key_fits(&c))
        return PERSIST_CONFLICT;
    if (orders[order->action].typed && (!persist_type_exists(order->type) || order->scope != SCOPE_LU))
        return PERSIST_CDB_FIELD;
    *next = *now;
    enum persist_verdict verdict = orders[order->action].make(&c);
    if (verdict != PERSIST_GOOD)
        memset(news, NEWS_NONE, RESERVATIONS_MAX);
    return verdict;
}

/* --- what they forbid --- */

bool reservations_forbid(const struct reservations *now, const char *port, enum persist_class class)
{
    if (now->type == PERSIST_NONE || class == PERSIST_HARMLESS)
        return false;
    if (class == PERSIST_READS && !type_excludes_reads(now->type))
        return false;
    unsigned index = find(now, port);
    return index == NOBODY || !(type_of_registrants(now->type) || now->holder == index);
}

enum persist_reserve reservations_reserve(const struct reservations *now, const char *port)
{
    unsigned index = find(now, port);
    if (now->count == 0)
        return RESERVE_AS_EVER;
    bool harmless = index != NOBODY && (holds(now, index) || type_of_registrants(now->type));
    return harmless ? RESERVE_NOTHING : RESERVE_CONFLICT;
}
