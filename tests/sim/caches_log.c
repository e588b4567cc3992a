/*
 * Logs of caches, as their owner has them: the devices, the claims with their generations, and replay at a start.
 *
 * A device is a simulated disk like any other, but small. It is pulled, with what is in its cache or without, refuses
 * writes, is slow or late; pulled ones are back at the next start, when others may be away. A log that is then not to be
 * had holds its volume, until all its devices are shown; nothing that was promised may be lost by that, ever: so none of
 * them is lost for good. A crash may come in the replay.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"

static struct sim_volume *volume_of(struct sim_cache *c)
{
    return container_of(c, struct sim_volume, cache);
}

void ring_draw(struct dice *dice, struct sim_cache *c)
{
    struct sim_ring *r = &c->ring;
    r->devices = c->options.protection == CACHE_PROTECT_JOURNAL ? (unsigned)dice_range(dice, 1, LOG_DEVICES) : 0;
    r->pages = LOG_RING_MIN << dice_below(dice, 5);
}

/* --- the claim --- */

static void claim_write(const struct sim_ring *r, uint64_t generation, char *out, size_t size)
{
    char id[UUID_TEXT_SIZE];
    uuid_format(&r->identity.log, id);
    text_format(out, size, "{\"kind\": \"log\", \"id\": \"%s\", \"generation\": %llu}", id,
                (unsigned long long)generation);
}

/* False: there is none. */
static bool claim_read(const struct sim_cache *c, uint64_t *generation)
{
    const struct sb_array *a = array_description(c->sim->array);
    char *kept = superblock_kept_get(a, &a->volumes[c->volume].uuid, "cache");
    const char *number = kept != NULL ? strstr(kept, "generation\"") : NULL;
    *generation = number != NULL ? strtoull(strchr(number, ':') + 1, NULL, 10) : 0;
    free(kept);
    return number != NULL;
}

struct ring_call {
    struct array_call call;
    struct sim_cache *of;
    struct cache *cache;
    bool held;
};

static void claim_noted(struct array_call *call)
{
    struct ring_call *claim = container_of(call, struct ring_call, call);
    struct sim_cache *c = claim->of;
    bool ok = call->error == 0;
    c->sim->calls_busy--;
    sim_trace(c->sim, "      %s: the claim of its log is %s: %s", volume_of(c)->name,
              claim->held ? "noted" : "given back", ok ? "done" : call->message);
    cache_claimed(claim->cache, claim->held, ok);
    free(claim);
}

void ring_claim(struct cache_owner *owner, struct cache *cache, bool held)
{
    struct sim_cache *c = container_of(owner, struct sim_cache, owner);
    struct ring_call *claim = calloc(1, sizeof *claim);
    struct cache_log_status status;
    char json[128];
    ASSERT(claim != NULL);
    *claim = (struct ring_call){.call.done = claim_noted, .of = c, .cache = cache, .held = held};
    cache_log_status(c->ring.log, &status);
    claim_write(&c->ring, status.generation, json, sizeof json);
    c->sim->calls_busy++;
    array_volume_keep(c->sim->array, c->volume, "cache", held ? json : NULL, &claim->call);
}

static void kept(struct array_call *call)
{
    container_of(call, struct sim_call, call)->over = true;
}

/* The claim of the last life speaks of a log that is empty now: another one in its place, or none. */
static bool claim_replace(struct sim_cache *c, bool again)
{
    struct sim_call call = {.call.done = kept};
    struct cache_log_status status;
    char json[128];
    cache_log_status(c->ring.log, &status);
    claim_write(&c->ring, status.generation, json, sizeof json);
    array_volume_keep(c->sim->array, c->volume, "cache", again ? json : NULL, &call.call);
    sim_wait(c->sim, &call.over, "a claim is being replaced");
    return call.call.error == 0;
}

/* --- its life --- */

struct log_calling {
    struct cache_log_call call;
    struct task closed;
    bool over;
};

static void log_called(struct cache_log_call *call)
{
    container_of(call, struct log_calling, call)->over = true;
}

static void log_is_closed(struct task *task)
{
    container_of(task, struct log_calling, closed)->over = true;
}

void ring_leave(struct sim_cache *c)
{
    struct log_calling calling = {.closed.run = log_is_closed};
    if (c->ring.log == NULL)
        return;
    cache_log_close(c->ring.log, &calling.closed);
    c->ring.log = NULL;
    sim_wait(c->sim, &calling.over, "a log is being closed");
}

/* Those that are shown this time; at least one. */
static unsigned draw_shown(struct sim_cache *c, bool at_hand)
{
    struct sim_ring *r = &c->ring;
    unsigned all = (1u << r->devices) - 1, shown = 0;
    for (unsigned i = 0; i < r->devices; i++) {
        if (r->disks[i] == NULL)
            r->disks[i] = world_disk_of(c->sim, (LOG_RING_AT + r->pages) * PAGE_BYTES);
        r->disks[i]->dead = false;
        r->disks[i]->time_outs = r->disks[i]->writes_fail = 0;
        if (at_hand || !dice_one_in(&c->sim->caches_dice, 6))
            shown |= 1u << i;
    }
    if (!at_hand && r->away != 0 && r->away != all)
        shown = all & ~r->away;
    r->away = 0;
    return shown != 0 ? shown : all;
}

/* Format it, or, if it is claimed, open and replay it. */
static enum cache_log_result begin(struct sim_cache *c, unsigned shown, bool claimed, uint64_t least)
{
    struct sim_ring *r = &c->ring;
    struct log_calling calling = {.call.done = log_called};
    const struct sb_array *a = array_description(c->sim->array);
    struct cache_log_options o = {.name = volume_of(c)->name, .least_generation = least};
    r->identity.array = a->uuid;
    r->identity.volume = a->volumes[c->volume].uuid;
    text_format(r->identity.name, sizeof r->identity.name, "%s", volume_of(c)->name);
    o.identity = r->identity;
    for (unsigned i = 0; i < r->devices; i++)
        o.devices[i] = shown >> i & 1 ? &r->disks[i]->dev : NULL;
    r->log = cache_log_create(&o);
    ASSERT(r->log != NULL);
    if (claimed)
        cache_log_open(r->log, &c->tap, &calling.call);
    else
        cache_log_format(r->log, &calling.call);
    sim_wait(c->sim, &calling.over, "a log is being opened");
    struct cache_log_status status;
    cache_log_status(r->log, &status);
    sim_trace(c->sim, "      %s: its log, of devices %x, is %s: %s; %llu groups, %llu blocks", volume_of(c)->name,
              shown, claimed ? "opened" : "formatted", cache_log_result_name(calling.call.result),
              (unsigned long long)status.replayed_groups, (unsigned long long)status.replayed_blocks);
    if (calling.call.result == CACHE_LOG_OK)
        r->identity.log = status.log;
    return c->sim->crashed ? CACHE_LOG_DEAD : calling.call.result;
}

bool ring_take(struct sim_cache *c, bool at_hand)
{
    struct sim *s = c->sim;
    uint64_t least;
    bool claimed = claim_read(c, &least), all = false;
    unsigned shown = draw_shown(c, at_hand);
    all = shown == (1u << c->ring.devices) - 1;
    c->claimed = claimed;
    enum cache_log_result result = begin(c, shown, claimed, least);
    bool good = result == CACHE_LOG_OK;
    SIM_CHECK(s, good || s->crashed || !s->config.strict || s->doomed || (claimed && !all), "%s: its log: %s",
              volume_of(c)->name, cache_log_result_name(result));
    SIM_CHECK(s, result != CACHE_LOG_DAMAGED && (!all || (result != CACHE_LOG_STALE && result != CACHE_LOG_ABSENT)),
              "%s: its log: %s", volume_of(c)->name, cache_log_result_name(result));
    if (good && claimed && crash_is_due(s) && dice_one_in(&s->caches_dice, 2)) /* one is to come: now */
        world_cut(s, s->crash_power);
    if (good && claimed && !s->crashed) {
        bool again = dice_one_in(&s->caches_dice, 2);
        good = claim_replace(c, again) && !s->crashed;
        c->claimed = again;
    }
    if (!good || s->crashed)
        ring_leave(c);
    return good && !s->crashed;
}

/* --- what happens to it --- */

static void bustle(struct sim *s, struct dice *dice, unsigned most, uint64_t events)
{
    for (uint64_t i = dice_range(dice, 1, most); i > 0 && !s->crashed; i--) {
        (void)load_one(s, dice);
        sim_events(s, dice_below(dice, events));
    }
}

static void pull(struct sim *s, struct dice *dice, struct simdisk *disk)
{
    bool power = dice_one_in(dice, 2);
    if (disk->dead)
        return;
    sim_trace(s, "sd%u, of a cache's log, is pulled%s", disk->number, power ? " and loses its cache" : "");
    simdisk_cut(disk, power, &disk->dead);
}

static void cut(struct sim *s, struct dice *dice)
{
    for (uint64_t i = dice_one_in(dice, 3) ? 0 : dice_scale(dice, 60); i > 0 && !s->crashed; i--)
        (void)sim_event(s);
    if (!s->crashed)
        world_cut(s, !dice_one_in(dice, 3));
    for (s->crash_again = 0; s->crash_again < 3 && dice_one_in(dice, 2);)
        s->crash_again++;
}

/* One is pulled, the other one goes on; then a crash, after which the first one is shown alone. */
static void take_turns(struct sim *s, struct dice *dice, struct sim_cache *c, unsigned index)
{
    pull(s, dice, c->ring.disks[index]);
    bustle(s, dice, 8, 40);
    if (!s->crashed && dice_one_in(dice, 2))
        load_flush(s);
    if (!s->crashed)
        cut(s, dice);
    c->ring.away = ~(1u << index) & ((1u << c->ring.devices) - 1);
}

void act_ring(struct sim *s, struct dice *dice)
{
    struct sim_cache *c = &s->volumes[dice_below(dice, s->config.volumes)].cache;
    if (s->array == NULL || s->crashed || peek_frozen(s->array) || c->cache == NULL || c->ring.log == NULL)
        return;
    unsigned index = (unsigned)dice_below(dice, c->ring.devices);
    struct simdisk *disk = c->ring.disks[index];
    bustle(s, dice, 24, 12);
    if (s->crashed || c->cache == NULL)
        return;
    switch (dice_below(dice, 8)) {
    case 0:
        disk->writes_fail = (unsigned)dice_range(dice, 1, 3);
        bustle(s, dice, 8, 40);
        break;
    case 1:
        disk->time_outs = (unsigned)dice_range(dice, 1, 3);
        bustle(s, dice, 8, 40);
        break;
    case 2:
        disk->slow = disk->slow != 0 ? 0 : (unsigned)dice_range(dice, 5, 100);
        break;
    case 3:
        for (unsigned i = 0; i < c->ring.devices; i++)
            pull(s, dice, c->ring.disks[i]);
        bustle(s, dice, 12, 40);
        if (!s->crashed && dice_one_in(dice, 2))
            load_flush(s);
        if (!s->crashed && dice_one_in(dice, 2))
            cut(s, dice);
        break;
    case 4:
    case 5:
        take_turns(s, dice, c, index);
        break;
    default:
        load_flush(s);
        if (!s->crashed)
            cut(s, dice);
    }
}
