/*
 * Scrubs, with and without something to be found.
 *
 * Most scrubs just go on beside all else, through faults, crashes and restarts, and repair: nothing was corrupted, so
 * nothing may be found. Now and then, while all is well and still, a few bytes of one disk change in silence; then a
 * repair must name that disk and place, and put them right. What cannot be located (one parity, two copies) is corrupted
 * in its redundancy only, which is what a repair rewrites then.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#include "core/check.h"

static void scrub_done(struct array_call *call)
{
    struct sim_call *c = container_of(call, struct sim_call, call);
    c->sim->calls_busy--;
    sim_trace(c->sim, "scrub: %s", call->error == 0 ? "begun" : call->message);
    free(c);
}

static void scrub_begin(struct sim *s, const struct sim_volume *v, enum sb_scrub_mode mode)
{
    struct sim_call *c = calloc(1, sizeof *c);
    ASSERT(c != NULL);
    *c = (struct sim_call){.call.done = scrub_done, .sim = s};
    s->calls_busy++;
    array_scrub(s->array, v->name, mode, &c->call);
}

static struct sb_scrub scrub_of(const struct sim *s, const struct sim_volume *v)
{
    return array_description(s->array)->volumes[v - s->volumes].scrub;
}

void scrub_look(struct sim *s)
{
    for (unsigned i = 0; s->config.strict && s->array != NULL && !s->crashed && i < s->config.volumes; i++) {
        const struct sim_volume *v = &s->volumes[i];
        struct sb_scrub scrub = scrub_of(s, v);
        SIM_CHECK(s, scrub.now.mismatched == 0, "%s: a scrub finds %llu wrong blocks where nothing was corrupted",
                  v->name, (unsigned long long)scrub.now.mismatched);
        SIM_CHECK(s, scrub.last.mismatched <= v->corrupted, "%s: a scrub found %llu wrong blocks", v->name,
                  (unsigned long long)scrub.last.mismatched);
    }
}

/* --- corruption --- */

static bool all_is_well(struct sim *s)
{
    world_look(s);
    if (s->array == NULL || s->crashed || crash_is_due(s) || !s->config.strict || s->trouble != 0 ||
        s->online != sim_bit(s->config.members) - 1 || peek_frozen(s->array) || !peek_jobs_idle(s->array) ||
        !caches_are_quiet(s))
        return false;
    for (unsigned slot = 0; slot < s->config.members; slot++) {
        const struct simdisk *d = world_disk(s, slot);
        if (d->gone || d->dead || d->failing > 0 || d->reads_fail + d->writes_fail + d->time_outs + d->bad_sectors > 0)
            return false;
    }
    return true;
}

/* A block of 512 bytes of a chunk. False: it is none that can be told from others now. */
struct victim {
    unsigned slot;
    uint64_t off; /* of the disk */
};

static bool draw_block(struct sim *s, struct dice *dice, const struct sim_volume *v, struct victim *victim)
{
    const struct sb_array *a = array_description(s->array);
    uint64_t row = v->hot[dice_below(dice, ARRAY_LENGTH(v->hot))];
    bool located = v->layout.redundancy >= 2;
    unsigned role = (unsigned)dice_range(dice, located ? 0 : v->layout.data, v->layout.roles - 1);
    struct layout_place place;
    layout_place(&v->layout, row, role, &place);
    victim->slot = v->first_slot + place.slot;
    victim->off = a->data_start + a->volumes[v - s->volumes].start + place.off;
    victim->off += round_down(dice_below(dice, v->layout.spec.chunk), (uint64_t)SIM_SECTOR);
    return peek_row(s->array, (unsigned)(v - s->volumes), row, v->layout.row_data) == (ROW_SYNCED | ROW_SAVED | ROW_WRITTEN) &&
           !simdisk_is_volatile(world_disk(s, victim->slot), victim->off, SIM_SECTOR);
}

static void corrupt(struct sim *s, struct dice *dice, const struct victim *victim)
{
    struct simdisk *disk = world_disk(s, victim->slot);
    const uint8_t *page = simdisk_medium(disk, round_down(victim->off, (uint64_t)PAGE_BYTES));
    uint8_t bytes[SIM_SECTOR] = {0};
    if (page != NULL)
        memcpy(bytes, page + victim->off % PAGE_BYTES, SIM_SECTOR);
    uint64_t count = dice_range(dice, 8, SIM_SECTOR), from = dice_below(dice, SIM_SECTOR - count + 1);
    for (uint64_t i = 0; i < count; i++)
        bytes[from + i] ^= (uint8_t)dice_range(dice, 1, 255);
    simdisk_put(disk, victim->off, bytes, SIM_SECTOR);
    sim_trace(s, "sd%u (slot %u): %llu wrong bytes at %llu", disk->number, victim->slot, (unsigned long long)count,
              (unsigned long long)victim->off);
}

static void check_found(struct sim *s, const struct sim_volume *v, const struct victim *victim)
{
    struct array_scrub_info info;
    array_scrub_info(s->array, (unsigned)(v - s->volumes), &info);
    bool located = v->layout.redundancy >= 2;
    const struct row_finding *f = &info.findings[0];
    SIM_CHECK(s, info.scrub.last.mismatched == 1 && info.findings_count == 1, "%s: %llu wrong blocks are found, not 1",
              v->name, (unsigned long long)info.scrub.last.mismatched);
    SIM_CHECK(s, f->remedy == (located ? ROW_CHUNK_REWRITTEN : ROW_REDUNDANCY_REWRITTEN), "%s: not repaired", v->name);
    SIM_CHECK(s, !located || (f->slot == victim->slot && f->device_off == victim->off),
              "%s: slot %u at %llu is blamed, not slot %u at %llu", v->name, f->slot, (unsigned long long)f->device_off,
              victim->slot, (unsigned long long)victim->off);
}

static void scrub_corrupted(struct sim *s, struct dice *dice, struct sim_volume *v)
{
    struct victim victim;
    load_drain(s);
    if (s->array == NULL || s->crashed || peek_frozen(s->array) || !sim_pace_free(s))
        return;
    sim_wait_ns(s, 3000000000);
    if (!all_is_well(s) || !draw_block(s, dice, v, &victim))
        return;
    corrupt(s, dice, &victim);
    scrub_begin(s, v, SB_SCRUB_REPAIR);
    for (unsigned i = 0; scrub_of(s, v).mode != SB_SCRUB_NONE || s->calls_busy > 0; i++) {
        SIM_CHECK(s, i < 3600, "%s: the scrub does not end", v->name);
        sim_wait_ns(s, 1000000000);
    }
    check_found(s, v, &victim);
    v->corrupted = 1;
}

void act_scrub(struct sim *s, struct dice *dice)
{
    struct sim_volume *v = &s->volumes[dice_below(dice, s->config.volumes)];
    if (s->array == NULL || v->layout.redundancy == 0)
        return;
    if (dice_one_in(dice, 3))
        scrub_begin(s, v, dice_one_in(dice, 2) ? SB_SCRUB_REPAIR : SB_SCRUB_CHECK);
    else
        scrub_corrupted(s, dice, v);
}
