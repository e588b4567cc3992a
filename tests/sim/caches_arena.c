/*
 * Arenas, as their owner has them: what becomes of their memory, the claims, and volumes that are held.
 *
 *   the process is killed     the memory stays as it was in that moment; now and then it is mislaid for a while, or lost
 *   the power fails           a battery's memory is lost. In persistent memory each word of 8 bytes that was stored and
 *                             not made persistent yet is there, or what was there before
 *
 * Where a crash is to come anyway, it may come between two stores in persistent memory: what is there then is set aside, and
 * the machine goes down before anything else happens.
 *
 * What is left of a cache after a crash runs to its end on the same memory, so what the crash left is set aside first.
 *
 * The description of the array keeps the claim. Who finds one at a start needs that arena: if it is not there the volume
 * is held, and gets neither cache nor load, until it is found again, or the operator gives up what was in it.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#include "cache/arena.h"
#include "core/check.h"
#include "core/log.h"

enum { WORD = 8 };

static struct sim_volume *volume_of(struct sim_cache *c)
{
    return container_of(c, struct sim_volume, cache);
}

/* --- memory --- */

/* Before what was stored last is persistent. */
static void may_be_cut(struct sim *s, struct sim_arena *a)
{
    if (s->crashed || s->crash_in == 0 || s->cut_inside || !dice_one_in(&s->caches_dice, 30))
        return;
    memcpy(a->saved, a->bytes, a->memory.bytes);
    memcpy(a->stable_then, a->stable, a->memory.bytes);
    a->cut = s->cut_inside = true;
}

static void persist(struct arena_memory *memory, uint64_t off, uint64_t len)
{
    struct sim_arena *a = container_of(memory, struct sim_arena, memory);
    ASSERT(off <= memory->bytes && len <= memory->bytes - off);
    may_be_cut(container_of(a, struct sim_cache, arena)->sim, a);
    memcpy(a->stable + off, a->bytes + off, len);
}

void arena_draw(struct dice *dice, struct sim_cache *c)
{
    struct sim_arena *a = &c->arena;
    a->outlives_power = c->options.protection == CACHE_PROTECT_PMEM;
    a->wanted = a->outlives_power || (c->options.protection == CACHE_PROTECT_BATTERY && dice_one_in(dice, 2));
    if (!a->wanted)
        return;
    a->memory.bytes = arena_bytes(c->options.bytes);
    a->bytes = aligned_alloc(PAGE_BYTES, a->memory.bytes);
    a->saved = malloc(a->memory.bytes);
    a->stable = calloc(1, a->memory.bytes);
    a->stable_then = malloc(a->memory.bytes);
    ASSERT(a->bytes != NULL && a->saved != NULL && a->stable != NULL && a->stable_then != NULL);
    memset(a->bytes, 0, a->memory.bytes);
    a->memory.base = a->bytes;
    a->memory.persist = a->outlives_power ? persist : NULL;
}

void arena_free(struct sim_cache *c)
{
    free(c->arena.bytes);
    free(c->arena.saved);
    free(c->arena.stable);
    free(c->arena.stable_then);
}

/* Words that were not made persistent may be there. */
static void tear(struct sim *s, struct sim_arena *a)
{
    for (uint64_t page = 0; page < a->memory.bytes; page += PAGE_BYTES)
        for (uint64_t at = page; memcmp(a->saved + page, a->stable + page, PAGE_BYTES) != 0 && at < page + PAGE_BYTES;
             at += WORD)
            if (memcmp(a->saved + at, a->stable + at, WORD) != 0 && dice_one_in(&s->caches_dice, 2))
                memcpy(a->saved + at, a->stable + at, WORD);
            else
                memcpy(a->stable + at, a->saved + at, WORD);
}

void arenas_cut(struct sim *s, bool power)
{
    for (unsigned i = 0; i < s->config.volumes; i++) {
        struct sim_arena *a = &s->volumes[i].cache.arena;
        if (!a->there)
            continue;
        memcpy(a->cut ? a->stable : a->saved, a->cut ? a->stable_then : a->bytes, a->memory.bytes);
        a->cut = false;
        if (power && a->outlives_power)
            tear(s, a);
        else if (a->outlives_power)
            memcpy(a->stable, a->saved, a->memory.bytes); /* what the process stored is there */
        else
            a->there = !power && !dice_one_in(&s->caches_dice, 10);
    }
}

void arena_bury(struct sim_cache *c)
{
    struct sim_arena *a = &c->arena;
    arena_leave(c);
    if (!a->wanted)
        return;
    memcpy(a->bytes, a->saved, a->memory.bytes);
    if (a->outlives_power)
        memcpy(a->stable, a->saved, a->memory.bytes);
}

void arena_leave(struct sim_cache *c)
{
    if (c->arena.arena != NULL)
        arena_close(c->arena.arena);
    c->arena.arena = NULL;
}

/* --- claims --- */

static const struct uuid *volume_uuid(const struct sim_cache *c)
{
    return &array_description(c->sim->array)->volumes[c->volume].uuid;
}

/* What the description says of the volume: the arena's UUID in it, or "". */
static void claim_read(const struct sim_cache *c, char out[UUID_TEXT_SIZE])
{
    char *kept = superblock_kept_get(array_description(c->sim->array), volume_uuid(c), "cache");
    const char *id = kept != NULL ? strstr(kept, "id\"") : NULL;
    out[0] = '\0';
    if (id != NULL)
        text_format(out, UUID_TEXT_SIZE, "%s", strchr(id + 3, '"') + 1);
    free(kept);
}

bool arena_is_claimed(const struct sim_cache *c)
{
    char id[UUID_TEXT_SIZE];
    claim_read(c, id);
    return id[0] != '\0';
}

struct claim_call {
    struct array_call call;
    struct sim_cache *of;
    struct cache *cache;
    bool held;
};

static void claim_noted(struct array_call *call)
{
    struct claim_call *claim = container_of(call, struct claim_call, call);
    struct sim_cache *c = claim->of;
    bool ok = call->error == 0;
    c->sim->calls_busy--;
    sim_trace(c->sim, "      %s: its claim is %s: %s", volume_of(c)->name, claim->held ? "noted" : "given back",
              ok ? "done" : call->message);
    c->claimed = claim->held == ok;
    cache_claimed(claim->cache, claim->held, ok);
    free(claim);
}

void arena_claim(struct cache_owner *owner, struct cache *cache, bool held)
{
    struct sim_cache *c = container_of(owner, struct sim_cache, owner);
    struct claim_call *claim = calloc(1, sizeof *claim);
    char json[UUID_TEXT_SIZE + 32], id[UUID_TEXT_SIZE];
    ASSERT(claim != NULL);
    *claim = (struct claim_call){.call.done = claim_noted, .of = c, .cache = cache, .held = held};
    uuid_format(&arena_identity(c->arena.arena)->arena, id);
    text_format(json, sizeof json, "{\"kind\": \"arena\", \"id\": \"%s\"}", id);
    c->sim->calls_busy++;
    array_volume_keep(c->sim->array, c->volume, "cache", held ? json : NULL, &claim->call);
}

/* --- which arena a cache gets --- */

/* Once it is on the disks: an arena of a history that they do not know of is nobody's. */
void arenas_tell_fork(struct sim *s)
{
    const struct uuid *fork = array_history(s->array);
    for (unsigned i = 0; i < s->config.volumes; i++) {
        struct arena *arena = s->volumes[i].cache.arena.arena;
        if (arena != NULL && !uuid_equal(&arena_identity(arena)->fork, fork))
            arena_set_fork(arena, fork);
    }
}

static bool in_history(const struct sb_array *a, const struct uuid *fork)
{
    for (unsigned i = 0; i < a->forks_count; i++)
        if (!a->forks[i].settled && uuid_equal(&a->forks[i].id, fork))
            return true;
    return false;
}

/* It is the one that the volume needs, and it is whole. */
static void check_found(struct sim_cache *c, const char *claimed)
{
    struct arena_report report;
    char id[UUID_TEXT_SIZE];
    enum arena_verdict verdict = arena_look(c->arena.bytes, c->arena.memory.bytes, &report);
    const char *name = volume_of(c)->name;
    SIM_CHECK(c->sim, verdict >= ARENA_CLEAN, "%s: its arena is found %s", name, arena_verdict_name(verdict));
    uuid_format(&report.identity.arena, id);
    SIM_CHECK(c->sim, strcmp(id, claimed) == 0, "%s: it needs arena %s, and its own is %s", name, claimed, id);
    SIM_CHECK(c->sim, report.torn_blocks == 0, "%s: %llu blocks of its arena are torn", name,
              (unsigned long long)report.torn_blocks);
    SIM_CHECK(c->sim, in_history(array_description(c->sim->array), &report.identity.fork),
              "%s: its arena is of another history", name);
    sim_trace(c->sim, "      %s: its arena is found %s, with %llu blocks", name, arena_verdict_name(verdict),
              (unsigned long long)report.dirty_blocks);
}

static void format(struct sim_cache *c)
{
    const struct sb_array *a = array_description(c->sim->array);
    struct arena_identity identity = {.arena = uuid_generate(&c->sim->loop),
                                      .array = a->uuid,
                                      .volume = *volume_uuid(c),
                                      .fork = *array_history(c->sim->array)};
    text_format(identity.name, sizeof identity.name, "%s", volume_of(c)->name);
    c->arena.arena = arena_create(&c->arena.memory, &identity, c->options.bytes);
    c->arena.there = true;
}

bool arena_take(struct sim_cache *c, bool at_hand)
{
    char claimed[UUID_TEXT_SIZE];
    claim_read(c, claimed);
    c->claimed = claimed[0] != '\0';
    if (c->claimed && (!c->arena.there || !at_hand)) {
        sim_trace(c->sim, "      %s is held: its arena is %s", volume_of(c)->name, c->arena.there ? "mislaid" : "lost");
        return false;
    }
    if (c->claimed) {
        check_found(c, claimed);
        c->arena.arena = arena_open(&c->arena.memory, false);
    } else {
        format(c);
    }
    SIM_CHECK(c->sim, c->arena.arena != NULL, "%s: its arena cannot be used", volume_of(c)->name);
    return true;
}

static void given_up(struct array_call *call)
{
    container_of(call, struct sim_call, call)->over = true;
}

bool arena_give_up(struct sim_cache *c)
{
    struct sim *s = c->sim;
    struct sim_call call = {.call.done = given_up};
    sim_trace(s, "%s: what was in its arena is given up", volume_of(c)->name);
    array_volume_keep(s->array, c->volume, "cache", NULL, &call.call);
    sim_wait(s, &call.over, "a claim is being given up");
    if (s->crashed) /* then it is, or it is not */
        model_cache_lost(volume_of(c)->model, true);
    if (call.call.error != 0 || s->crashed) {
        SIM_CHECK(s, s->crashed || s->doomed || !s->config.strict, "a claim cannot be given up: %s", call.call.message);
        return false;
    }
    model_cache_lost(volume_of(c)->model, true);
    return true;
}
