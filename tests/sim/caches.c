/*
 * Caches over volumes: what is drawn of them, their lives, and what they promise.
 *
 *   load.c ---> cache ---> tap ---> volume
 *
 * The tap passes everything on. It tells the model what the volume is asked for, since rows live by that, and checks that
 * of two changes of the same bytes one at a time is under way (C1 of cache/change.c).
 *
 * What an answer promises follows from what the volume's configuration says, from whether the battery is well, and from
 * what initiators are told of a volatile cache just then: never from what the cache says of itself.
 *
 *   through     it is the volume's answer
 *   told of a volatile cache    durable with FUA, or a flush
 *   told of none, and safe      it outlives what the protection outlives: nothing, the process (an arena), or a loss of
 *                               power too (in persistent memory); a flush adds nothing
 *   told of none, not safe      durable
 *
 * An answer counts as of when it was given, not as of when it is heard: between the two the battery may change (`early`).
 */
#include "tests/sim/sim.h"

#include <stdlib.h>

#include "core/check.h"
#include "core/log.h"

/* --- what is drawn --- */

static void draw_options(struct dice *dice, struct cache_options *o)
{
    static const struct cache_policy_ops *const policies[] = {NULL, &cache_policy_lru, &cache_policy_arc};
    static const enum readahead_mode modes[] = {READAHEAD_NONE, READAHEAD_ALWAYS, READAHEAD_ADAPTIVE};
    static const enum cache_protection protections[] = {
        CACHE_PROTECT_NONE,   CACHE_PROTECT_BATTERY, CACHE_PROTECT_BATTERY, CACHE_PROTECT_BATTERY,
        CACHE_PROTECT_FORCED, CACHE_PROTECT_PMEM,    CACHE_PROTECT_JOURNAL, CACHE_PROTECT_JOURNAL};
    *o = (struct cache_options){.bytes = CACHE_BYTES_MIN << dice_below(dice, 5)};
    o->policy = policies[dice_below(dice, ARRAY_LENGTH(policies))];
    o->readahead = modes[dice_below(dice, ARRAY_LENGTH(modes))];
    o->write_back = !dice_one_in(dice, 8);
    o->protection = protections[dice_below(dice, ARRAY_LENGTH(protections))];
    o->flush_when_bad = dice_one_in(dice, 2);
    o->low_percent = (unsigned)dice_range(dice, 1, 60);
    o->high_percent = (unsigned)dice_range(dice, o->low_percent + 1, 100);
    o->age_ms = (unsigned)dice_range(dice, 1, dice_one_in(dice, 2) ? 20 : 5000);
    o->idle_ms = (unsigned)dice_range(dice, 1, dice_one_in(dice, 2) ? 10 : 300);
}

/* One run in three, unless it is asked for. All of it has dice of its own: other runs are what they would be anyway. */
void caches_draw(struct sim *s, enum sim_caches which)
{
    struct dice dice = dice_for(s->seed, SIM_CACHES_STREAM);
    bool about_them = s->config.theme == ACT_BATTERY || s->config.theme == ACT_MAINS || s->config.theme == ACT_CACHE ||
                      s->config.theme == ACT_RING;
    bool drawn = dice_one_in(&dice, 3);
    static const enum action_kind kinds[] = {ACT_BATTERY, ACT_MAINS, ACT_CACHE};
    s->config.cached = which == SIM_CACHES_ALWAYS || (which == SIM_CACHES_DRAWN && (drawn || about_them));
    if (!s->config.cached)
        return;
    for (unsigned i = 0; i < s->config.volumes; i++) {
        struct sim_cache *c = &s->volumes[i].cache;
        draw_options(&dice, &c->options);
        c->wanted = i == 0 || !dice_one_in(&dice, 4);
        c->options.write_back = c->options.write_back || c->options.protection == CACHE_PROTECT_PMEM;
        if (c->wanted && s->config.theme == ACT_RING) {
            c->options.protection = CACHE_PROTECT_JOURNAL;
            c->options.write_back = true;
        }
        if (c->wanted && c->options.write_back) {
            arena_draw(&dice, c);
            ring_draw(&dice, c);
        }
        s->config.weights[ACT_RING] += c->ring.devices > 0 ? 20 : 0;
    }
    for (unsigned i = 0; i < ARRAY_LENGTH(kinds); i++)
        s->config.weights[kinds[i]] += (unsigned)dice_below(&dice, 8);
    if (dice_one_in(&dice, 2))
        s->config.weights[kinds[dice_below(&dice, ARRAY_LENGTH(kinds))]] += 60;
    s->battery_bad = dice_one_in(&dice, 5);
    s->caches_dice = dice_for(s->seed, SIM_CACHES_STREAM + 1);
}

/* --- what the volume is asked for --- */

struct tap_call {
    LIST_ENTRY(tap_call) link;
    struct sim_cache *of;
    struct blk_req req, *parent;
    uint32_t op;   /* a change: of the model */
    uint64_t mark; /* a flush */
    uint64_t began_ns;
};

static struct sim_volume *volume_of(struct sim_cache *c)
{
    return container_of(c, struct sim_volume, cache);
}

static bool rows_are_whole(const struct sim_cache *c, uint64_t off, uint64_t len)
{
    const struct sim *s = c->sim;
    const struct sim_volume *v = container_of(c, struct sim_volume, cache);
    for (uint64_t row = off / v->layout.row_data; row <= (off + len - 1) / v->layout.row_data; row++)
        if (!(peek_row(s->array, c->volume, row, v->model->layout.row_data) & ROW_SYNCED) || v->model->hole[row] & HOLE_BROKEN ||
            world_row_may_be_torn_again(s, c->volume, row))
            return false;
    return true;
}

static void tap_answered(struct tap_call *call)
{
    struct sim_cache *c = call->of;
    struct sim *s = c->sim;
    const struct blk_req *req = &call->req;
    struct model *m = volume_of(c)->model;
    bool good = req->status == BLK_OK, durable = (req->flags & BLK_FUA) || !s->config.disk.volatile_cache;
    if (req->op == BLK_READ && !rows_are_whole(c, req->off, req->len))
        model_cache_unsure(m, req->off, req->len);
    if (req->op == BLK_FLUSH && good)
        model_below_flushed(m, call->mark);
    if (!blk_op_writes(req->op))
        return;
    model_below_changed(m, call->op, good, durable, req->op == BLK_WRITE);
    if (!good)
        load_refused(s, c->volume, req);
}

static void tap_done(struct blk_req *req)
{
    struct tap_call *call = container_of(req, struct tap_call, req);
    struct sim *s = call->of->sim;
    struct blk_req *parent = call->parent;
    sim_trace(s, "      %s below %s%s %llu +%llu: %s", volume_of(call->of)->name, blk_op_name(req->op),
              req->flags & BLK_FUA ? " fua" : "", (unsigned long long)req->off, (unsigned long long)req->len,
              blk_status_name(req->status));
    if (!s->crashed)
        tap_answered(call);
    parent->extent = req->extent;
    parent->written = req->written;
    if (req->status == BLK_MEDIA)
        blk_complete_media(parent, req->bad_off);
    else
        blk_complete(parent, req->status);
    LIST_REMOVE(call, link);
    free(call);
}

static void check_alone(struct sim_cache *c, const struct blk_req *req)
{
    const struct tap_call *other;
    LIST_FOREACH(other, &c->calls, link)
    SIM_CHECK(c->sim,
              !blk_op_writes(other->req.op) || other->req.off >= req->off + req->len ||
                  req->off >= other->req.off + other->req.len,
              "%s: two changes of byte %llu are under way together", volume_of(c)->name,
              (unsigned long long)MAX(req->off, other->req.off));
}

static void tap_submit(struct blkdev *dev, struct blk_req *req)
{
    struct sim_cache *c = container_of(dev, struct sim_cache, tap);
    struct sim *s = c->sim;
    struct model *m = volume_of(c)->model;
    struct tap_call *call = calloc(1, sizeof *call);
    ASSERT(call != NULL);
    call->of = c;
    call->parent = req;
    call->began_ns = s->loop.now_ns;
    call->req = (struct blk_req){
        .op = req->op, .flags = req->flags, .off = req->off, .len = req->len, .pages = req->pages, .done = tap_done};
    if (blk_op_writes(req->op))
        check_alone(c, req);
    if (!s->crashed && blk_op_writes(req->op))
        call->op = model_below_change(m, req->off, req->len);
    else if (!s->crashed && req->op == BLK_FLUSH)
        call->mark = model_flush(m);
    else if (!s->crashed && req->op == BLK_READ && !rows_are_whole(c, req->off, req->len))
        model_cache_unsure(m, req->off, req->len);
    LIST_INSERT_HEAD(&c->calls, call, link);
    blk_submit(c->below, &call->req);
}

static const struct blkdev_ops tap_ops = {.kind = "tap", .submit = tap_submit, .submits_status = true};

static void below_tells(struct blk_watcher *watcher, struct blkdev *below, enum blk_event event)
{
    struct sim_cache *c = container_of(watcher, struct sim_cache, watcher);
    c->tap.info.read_only = below->info.read_only;
    c->tap.info.volatile_cache = below->info.volatile_cache;
    blk_notify(&c->tap, event);
}

/* Initiators go by what they hear. */
static void initiator_hears(struct blk_watcher *watcher, struct blkdev *dev, enum blk_event event)
{
    if (event == BLK_EVENT_CACHE)
        container_of(watcher, struct sim_cache, initiator)->told = dev->info.volatile_cache;
}

bool caches_asked_before(const struct sim *s, uint64_t ns)
{
    const struct tap_call *call;
    for (unsigned i = 0; i < s->config.volumes; i++)
        LIST_FOREACH(call, &s->volumes[i].cache.calls, link)
    if (call->began_ns <= ns)
        return true;
    return false;
}

/* --- promises --- */

static bool power_is_well(const struct sim *s)
{
    return !s->battery_bad && !s->on_battery;
}

/* As far as the owner knows: with an arena it may take a while. */
static bool is_safe(const struct sim_cache *c)
{
    const struct cache_options *o = &c->options;
    bool rests = o->protection == CACHE_PROTECT_FORCED || o->protection == CACHE_PROTECT_PMEM ||
                 (o->protection == CACHE_PROTECT_BATTERY && power_is_well(c->sim));
    return o->write_back && rests && (!c->arena.wanted || c->claimed);
}

/* Initiators are told the truth, as cache/cache.h has it. */
static void check_told(struct sim_cache *c)
{
    const struct cache_options *o = &c->options;
    if (c->arena.wanted && (is_safe(c) || power_is_well(c->sim))) { /* it is, or will be once it is claimed and empty */
        SIM_CHECK(c->sim, !c->told || o->flush_when_bad, "%s: initiators are told of a volatile cache",
                  volume_of(c)->name);
        return;
    }
    bool told = c->told, volume = c->tap.info.volatile_cache;
    bool may = o->protection == CACHE_PROTECT_BATTERY || o->protection == CACHE_PROTECT_PMEM;
    bool safe = is_safe(c), strict = may && !o->flush_when_bad && !safe;
    SIM_CHECK(c->sim, told == (o->write_back ? !safe && !strict : volume),
              "%s: initiators are told of %s volatile cache", volume_of(c)->name, told ? "a" : "no");
}

/* What is kept here needs a mode that keeps. */
static void check_absorbed(struct sim_cache *c)
{
    struct cache_status status;
    cache_status(c->cache, &status);
    bool may = is_safe(c) || (c->options.write_back && c->told);
    SIM_CHECK(c->sim, may || status.absorbed == c->absorbed, "%s: a write was kept, and must not have been",
              volume_of(c)->name);
    c->absorbed = status.absorbed;
}

enum model_promise caches_promise(struct sim *s, const struct sim_io *io)
{
    struct sim_cache *c = &s->volumes[io->volume].cache;
    bool fua = io->req.flags & BLK_FUA, below_durable = fua || !s->config.disk.volatile_cache;
    if (c->cache == NULL || !c->options.write_back)
        return below_durable ? MODEL_DURABLE : MODEL_KEPT;
    check_absorbed(c);
    if (c->told && !io->early)
        return fua ? MODEL_DURABLE : MODEL_SEEN;
    if (!io->early && !is_safe(c))
        return MODEL_DURABLE;
    return !c->arena.wanted ? MODEL_SEEN : c->arena.outlives_power ? MODEL_DURABLE : MODEL_KEPT;
}

/* Does a flush of this volume that is asked for now make durable what it covers? */
bool caches_flush_counts(const struct sim *s, unsigned volume)
{
    const struct sim_cache *c = &s->volumes[volume].cache;
    return c->cache == NULL || c->told || !is_safe(c);
}

/* --- power --- */

static void tell_power(struct sim_cache *c, bool was_safe)
{
    bool safe = is_safe(c), leaves = was_safe && !safe;
    c->leaving = leaves || (c->leaving && !safe);
    if (leaves)
        c->mark = model_flush(volume_of(c)->model);
    cache_set_power(c->cache, power_is_well(c->sim));
    check_told(c);
}

/* What was safe when the power was not any more is below and durable, where the cache says that it has seen to that. */
void caches_look(struct sim *s)
{
    for (unsigned i = 0; i < s->config.volumes; i++) {
        struct sim_cache *c = &s->volumes[i].cache;
        if (c->cache == NULL || !c->leaving || !peek_cache_written_down(c->cache))
            continue;
        model_flushed(s->volumes[i].model, c->mark);
        c->leaving = false;
    }
}

bool caches_are_written_down(const struct sim *s)
{
    for (unsigned i = 0; i < s->config.volumes; i++) {
        const struct sim_cache *c = &s->volumes[i].cache;
        if (c->cache != NULL && c->leaving && !peek_cache_written_down(c->cache))
            return false;
    }
    return true;
}

void caches_power(struct sim *s, bool battery_bad, bool on_battery)
{
    bool was[SIM_VOLUMES] = {false};
    for (unsigned i = 0; i < s->config.volumes; i++) {
        struct sim_cache *c = &s->volumes[i].cache;
        if (c->cache != NULL)
            check_absorbed(c);
        was[i] = c->cache != NULL && is_safe(c) && !c->told;
    }
    for (unsigned i = 0; i < SIM_IOS; i++) /* those that are answered, but have not heard yet */
        if (s->ios[i].busy && s->ios[i].req.task.queued)
            s->ios[i].early = s->ios[i].early || was[s->ios[i].volume];
    s->battery_bad = battery_bad;
    s->on_battery = on_battery;
    sim_trace(s, "the battery is %s, the mains %s", battery_bad ? "bad" : "good", on_battery ? "off" : "on");
    for (unsigned i = 0; i < s->config.volumes; i++)
        if (s->volumes[i].cache.cache != NULL)
            tell_power(&s->volumes[i].cache, was[i]);
}

/* --- life --- */

static void cache_said(struct cache_owner *owner, struct cache *cache)
{
    struct sim_cache *c = container_of(owner, struct sim_cache, owner);
    struct cache_status status;
    cache_status(cache, &status);
    sim_trace(c->sim, "      | %s: cache is %s%s%s", volume_of(c)->name, cache_mode_name(status.mode),
              status.reason != NULL ? ": " : "", status.reason != NULL ? status.reason : "");
}

static void cache_open(struct sim *s, unsigned volume, bool at_hand)
{
    struct sim_volume *v = &s->volumes[volume];
    struct sim_cache *c = &v->cache;
    c->sim = s;
    c->volume = volume;
    c->absorbed = 0;
    c->leaving = false;
    c->below = array_volume(s->array, v->name);
    c->owner = (struct cache_owner){.changed = cache_said, .claim = c->arena.wanted ? arena_claim : NULL};
    if (c->ring.devices > 0)
        c->owner.claim = ring_claim;
    c->options.owner = &c->owner;
    c->options.name = v->name;
    c->watcher.event = below_tells;
    LIST_INIT(&c->calls);
    blkdev_init(&c->tap, &tap_ops, &s->loop, v->name, &c->below->info);
    model_cache_begins(v->model, c->options.write_back);
    c->held = (c->arena.wanted && !arena_take(c, at_hand)) || (c->ring.devices > 0 && !ring_take(c, at_hand));
    if (c->held || s->crashed)
        return;
    c->options.arena = c->arena.arena;
    c->options.log = c->ring.log;
    c->options.claimed = (c->arena.wanted || c->ring.devices > 0) && c->claimed;
    blk_watch(c->below, &c->watcher);
    c->cache = cache_create(&c->tap, &c->options);
    ASSERT(c->cache != NULL);
    c->told = cache_dev(c->cache)->info.volatile_cache;
    c->initiator.event = initiator_hears;
    blk_watch(cache_dev(c->cache), &c->initiator);
    tell_power(c, c->arena.wanted && c->claimed); /* what is in the arena was safe */
}

void caches_open(struct sim *s)
{
    for (unsigned i = 0; i < s->config.volumes && !s->crashed; i++)
        if (s->volumes[i].cache.wanted)
            cache_open(s, i, !dice_one_in(&s->caches_dice, 12));
}

bool caches_hold(const struct sim *s, unsigned volume)
{
    return s->volumes[volume].cache.held;
}

void caches_let_go(struct sim *s, unsigned volume, bool found)
{
    struct sim_cache *c = &s->volumes[volume].cache;
    bool durable = c->arena.outlives_power || c->ring.devices > 0; /* what is called so is not given up */
    found = durable || (found && c->arena.there);
    if (s->array == NULL || s->crashed || peek_frozen(s->array) || !c->held || (!found && !arena_give_up(c)))
        return;
    cache_open(s, volume, true);
}

struct blkdev *caches_dev(const struct sim *s, unsigned volume)
{
    const struct sim_cache *c = &s->volumes[volume].cache;
    if (c->cache != NULL)
        return cache_dev(c->cache);
    return s->array == NULL || c->held ? NULL : array_volume(s->array, s->volumes[volume].name);
}

static void cache_is_closed(struct task *task)
{
    container_of(task, struct sim_cache, closed_task)->closed = true;
}

static void cache_close(struct sim *s, struct sim_cache *c)
{
    c->closed = false;
    c->closed_task = (struct task){.run = cache_is_closed};
    blk_unwatch(cache_dev(c->cache), &c->initiator);
    blk_close(cache_dev(c->cache), &c->closed_task);
    c->cache = NULL;
    sim_wait(s, &c->closed, "a cache is being closed");
    ASSERT(LIST_EMPTY(&c->calls));
    blk_unwatch(c->below, &c->watcher);
    arena_leave(c);
    ring_leave(c);
}

void caches_bury(struct sim *s)
{
    for (unsigned i = 0; i < s->config.volumes; i++) {
        struct sim_cache *c = &s->volumes[i].cache;
        if (c->cache != NULL)
            cache_close(s, c);
        arena_bury(c);
        ring_leave(c);
        c->held = false;
    }
}

/* A cache that is closed over an array that is well leaves nothing behind. If it is not, who emptied it before may know. */
static void stop_one(struct sim *s, unsigned volume)
{
    struct sim_volume *v = &s->volumes[volume];
    bool emptied = dice_one_in(&s->caches_dice, 2) && caches_empty(s, volume);
    if (s->crashed)
        return;
    uint64_t mark = model_flush(v->model);
    cache_close(s, &v->cache);
    if (s->crashed)
        return;
    bool well = s->config.strict && !s->doomed && !peek_frozen(s->array);
    v->cache.held = arena_is_claimed(&v->cache); /* nobody may go past it */
    SIM_CHECK(s, !well || !v->cache.held, "%s: closed, and its claim stands", v->name);
    if (emptied || well)
        model_flushed(v->model, mark);
    else
        model_cache_lost(v->model, false);
    model_cache_begins(v->model, false);
}

void caches_stop(struct sim *s)
{
    for (unsigned i = 0; i < s->config.volumes && !s->crashed; i++)
        if (s->volumes[i].cache.cache != NULL)
            stop_one(s, i);
}

bool caches_empty(struct sim *s, unsigned volume)
{
    struct cache_status status;
    bool good = load_empty(s, volume);
    if (!good || s->crashed)
        return false;
    cache_status(s->volumes[volume].cache.cache, &status);
    SIM_CHECK(s, status.dirty_bytes == 0, "%s: %llu bytes are dirty after all was written down",
              s->volumes[volume].name, (unsigned long long)status.dirty_bytes);
    return true;
}

bool caches_are_quiet(const struct sim *s)
{
    for (unsigned i = 0; i < s->config.volumes; i++) {
        const struct sim_cache *c = &s->volumes[i].cache;
        struct cache_status status;
        if (c->cache == NULL)
            continue;
        cache_status(c->cache, &status);
        if (status.dirty_bytes > 0 || !LIST_EMPTY(&c->calls))
            return false;
    }
    return true;
}
