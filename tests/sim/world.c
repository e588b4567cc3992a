/*
 * The array's life: created, started, stopped, cut off, started again; and what must be true of each start.
 *
 *   - never a split brain or a clone, but where one was made;
 *   - a disk that was in use to the end (`must_in`) is current;
 *   - a start is refused only for want of members (some volume falls without them), or because it is dirty, degraded,
 *     and has parity; and then not when all members are there.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "raid/journal.h"
#include "raid/label.h"
#include "raid/patience.h"

#define REMEMBERED_NS 2000000000ull

/* --- disks --- */

struct simdisk *world_disk_of(struct sim *s, uint64_t bytes)
{
    SIM_CHECK(s, s->disks_count < SIM_DISKS, "a run with more than %d disks", SIM_DISKS);
    unsigned number = s->disks_count++;
    struct blk_info info = s->config.disk;
    info.size = bytes;
    s->disks[number] = simdisk_create(&s->loop, number, &info, dice_for(s->seed, 100 + number), &s->watch);
    return s->disks[number];
}

struct simdisk *world_disk_new(struct sim *s)
{
    return world_disk_of(s, s->config.disk.size);
}

struct simdisk *world_disk(const struct sim *s, unsigned slot)
{
    return s->disks[s->disk_of_slot[slot]];
}

static void identity_of(const struct simdisk *disk, char *identity)
{
    text_format(identity, SB_IDENTITY_SIZE, "serial-%u", disk->number);
}

struct array_disk world_array_disk(struct simdisk *disk)
{
    const struct sim *s = container_of(disk->dev.loop, struct sim, loop);
    const struct patience_options options = {.contexts = 64, .reserve = s->config.reserve_pages};
    if (disk->front == NULL)
        disk->front = patience_create(disk->dev.loop, &disk->dev, &options);
    ASSERT(disk->front != NULL);
    struct array_disk out = {.dev = disk->front};
    identity_of(disk, out.identity);
    return out;
}

/* Old bytes where the volumes will be. */
static void litter(struct sim *s, struct simdisk *disk)
{
    struct dice dice = dice_for(s->seed, 200 + disk->number);
    uint8_t bytes[PAGE_BYTES];
    struct sb_array plan = {.journal_bytes = s->config.journal_bytes};
    (void)superblock_plan(&plan, disk->dev.info.size, 4096);
    for (unsigned i = 0; i < 48; i++) {
        uint64_t off = plan.data_start + dice_below(&dice, 256 * s->config.volumes) * PAGE_BYTES;
        test_fill(bytes, sizeof bytes, dice_bits(&dice));
        simdisk_put(disk, off, bytes, sizeof bytes);
    }
}

/* --- what is known while it runs --- */

static uint64_t all_slots(const struct sim *s)
{
    return sim_bit(s->config.members) - 1;
}

/* A request that met an error remembers it to its end, a job for a moment. */
static bool is_remembered(const struct sim *s, uint64_t error_ns)
{
    if (error_ns != 0 && s->loop.now_ns - error_ns < REMEMBERED_NS)
        return true;
    for (unsigned i = 0; i < SIM_IOS; i++)
        if (s->ios[i].busy && s->ios[i].began_ns <= error_ns)
            return true;
    return caches_asked_before(s, error_ns);
}

static bool slot_is_well(const struct sim *s, unsigned slot)
{
    const struct simdisk *d = world_disk(s, slot);
    bool faulty = d->gone || d->dead || d->bad_sectors != 0 || d->slow != 0 || d->reads_fail != 0 ||
                  d->writes_fail != 0 || d->time_outs != 0 || d->failing != 0;
    return !faulty && (s->online & sim_bit(slot)) && !is_remembered(s, d->last_error_ns);
}

static unsigned slot_of_role(const struct sim_volume *v, uint64_t row, unsigned role)
{
    struct layout_place place;
    layout_place(&v->layout, row, role, &place);
    return place.slot;
}

static bool chunk_has_bad(const struct sim *s, unsigned volume, uint64_t row, unsigned role)
{
    const struct sb_array *a = array_description(s->array);
    const struct sim_volume *v = &s->volumes[volume];
    struct layout_place place;
    if (a->bad.count == 0 || s->config.theme == ACT_RELAYOUT) /* there rows are not the model's, and nothing is forgiven */
        return false;
    layout_place(&v->layout, row, role, &place);
    return bad_overlaps(&a->bad, v->first_slot + place.slot, a->volumes[volume].start + place.off,
                        v->layout.spec.chunk);
}

/* Is it right by a list of bad ranges only that may not be on disk yet? */
static bool row_is_in_doubt(const struct sim *s, unsigned volume, uint64_t row)
{
    bool bad = false;
    if (array_description(s->array)->bad.count == 0 || peek_committed(s->array))
        return false;
    for (unsigned role = 0; role < s->volumes[volume].layout.roles; role++)
        bad = bad || chunk_has_bad(s, volume, row, role);
    return bad;
}

/*
 * Is it right only because a member is lost that did not take its part, and that may not be on disk yet? Then the member
 * may be back at the next start with what it had, and the row in doubt with it. A log says what each member is to hold.
 */
bool world_row_may_be_torn_again(const struct sim *s, unsigned volume, uint64_t row)
{
    const struct sim_volume *v = &s->volumes[volume];
    uint64_t lost = consistency_is_closed(v->spec.consistency) ? 0 : peek_unwritten(s->array);
    if (s->config.theme == ACT_RELAYOUT) /* its rows are others than the model's */
        return peek_unwritten(s->array) != 0;
    for (unsigned role = 0; lost != 0 && role < v->layout.roles; role++)
        if (lost & sim_bit(v->first_slot + slot_of_role(v, row, role)))
            return true;
    return false;
}

/* `saved`: what is right is on disk. */
static void rows_look(struct sim *s, unsigned volume, bool saved)
{
    struct model *m = s->volumes[volume].model;
    for (uint64_t row = 0; row < m->rows; row++) {
        unsigned is = peek_row(s->array, volume, row, m->layout.row_data);
        if ((is & ROW_SYNCED) && !row_is_in_doubt(s, volume, row) &&
            (saved || !world_row_may_be_torn_again(s, volume, row)))
            model_row_synced(m, row, saved || (is & ROW_SAVED));
    }
}

static void newcomer_look(struct sim *s)
{
    enum peek_replace is = s->newcomer != NULL ? peek_replacing(s->array) : PEEK_OLD;
    if (is == PEEK_NEW)
        s->disk_of_slot[s->newcomer_slot] = (int)s->newcomer->number;
    if (is == PEEK_GIVEN_UP && s->newcomer_until == 0) /* disks may name either, until the next generation is there */
        s->newcomer_until = peek_generation(s->array) + 1;
    bool gone = is == PEEK_GIVEN_UP && peek_committed(s->array) && peek_generation(s->array) >= s->newcomer_until;
    if (is == PEEK_NEW || gone)
        s->newcomer = NULL;
}

void world_look(struct sim *s)
{
    if (s->array == NULL || s->crashed || peek_frozen(s->array))
        return;
    newcomer_look(s);
    relayouts_look(s);
    arenas_tell_fork(s);
    s->online = peek_slots(s->array, MEMBER_ONLINE);
    s->recovering = s->recovering && !peek_jobs_idle(s->array);
    for (unsigned i = 0; i < s->config.volumes; i++)
        rows_look(s, i, false);
    for (unsigned slot = 0; slot < s->config.members; slot++)
        if (slot_is_well(s, slot))
            s->trouble &= ~sim_bit(slot);
}

/* `all`: else only of volumes that may start without it after a crash. */
static void slot_lost(struct sim *s, unsigned slot, bool all)
{
    world_look(s);
    for (unsigned i = 0; i < s->config.volumes; i++) {
        if (!all && !consistency_is_closed(s->volumes[i].spec.consistency))
            continue;
        for (uint64_t row = 0; row < s->volumes[i].model->rows; row++)
            model_chunk_lost(s->volumes[i].model, slot, row,
                             s->array != NULL && (peek_row(s->array, i, row, s->volumes[i].model->layout.row_data) &
                                                 ROW_SYNCED));
    }
}

void world_slot_lost(struct sim *s, unsigned slot)
{
    slot_lost(s, slot, true);
}

bool world_trouble(struct sim *s, unsigned slot)
{
    world_look(s);
    uint64_t after = s->trouble | (s->array != NULL ? all_slots(s) & ~s->online : 0) | sim_bit(slot);
    if (s->config.strict && !config_survives(s, after))
        return false;
    s->trouble = after;
    return true;
}

/* --- calls --- */

static void call_done(struct array_call *call)
{
    struct sim_call *c = container_of(call, struct sim_call, call);
    c->over = true;
}

static struct sim_call call_new(void)
{
    return (struct sim_call){.call.done = call_done};
}

/* --- down --- */

/* Of an array that ends now: which disks must be found current? */
static void note_members(struct sim *s)
{
    if (s->array != NULL) {
        world_look(s);
        s->must_in = s->online & peek_active(s->array);
        if (s->newcomer != NULL && peek_replacing(s->array) != PEEK_OLD)
            s->must_in &= ~sim_bit(s->newcomer_slot);
        s->unrecorded = peek_unrecorded(s->array);
        s->last = s->online | s->unrecorded;
        s->torn = peek_fork_is_torn(s->array);
        s->torn_away = 0;
    }
    s->must_in &= ~s->trouble;
}

void world_cut(struct sim *s, bool power)
{
    sim_trace(s, "-- %s", power ? "the power fails" : "the process is killed");
    s->result->crashes++;
    s->result->crashes_in_recovery += s->recovering && (s->array == NULL || !peek_jobs_idle(s->array));
    s->recovering = true;
    note_members(s);
    caches_look(s);
    arenas_cut(s, power);
    for (unsigned i = 0; i < s->config.volumes; i++)
        model_crash(s->volumes[i].model, power);
    s->crashed = true;
    s->cut_inside = false;
    s->crash_in = s->crash_after_write = s->crash_after_row = 0;
    for (unsigned i = 0; i < s->disks_count; i++)
        simdisk_cut(s->disks[i], power, &s->disks[i]->off);
    if (s->array != NULL)
        array_abandon(s->array);
}

static void front_closed(struct task *task)
{
    (void)task;
}

static bool is_open(const struct sim *s)
{
    for (unsigned i = 0; i < s->disks_count; i++)
        if (s->disks[i]->front != NULL)
            return true;
    return false;
}

/* Nobody opens a disk that has not answered the one who had it before. */
static void fronts_close(struct sim *s)
{
    struct task closed[SIM_DISKS] = {{.run = NULL}};
    for (unsigned i = 0; i < s->disks_count; i++) {
        closed[i].run = front_closed;
        if (s->disks[i]->front != NULL)
            blk_close(s->disks[i]->front, &closed[i]);
    }
    while (is_open(s))
        SIM_CHECK(s, sim_event(s), "a disk is never closed");
    sim_events_ready(s);
}

static bool close_array(struct sim *s)
{
    struct sim_call call = call_new();
    array_close(s->array, &call.call);
    s->array = NULL;
    sim_wait(s, &call.over, "the array is being closed");
    fronts_close(s);
    sim_trace(s, "closed: %s", call.call.error == 0 ? "clean" : call.call.message);
    return call.call.error == 0;
}

void world_bury(struct sim *s)
{
    while (s->ios_busy > 0 || s->calls_busy > 0)
        SIM_CHECK(s, sim_event(s), "%u requests and %u calls have no answer after a crash", s->ios_busy, s->calls_busy);
    caches_bury(s);
    if (s->array != NULL)
        (void)close_array(s);
    fronts_close(s);
    for (unsigned i = 0; i < s->disks_count; i++)
        s->disks[i]->off = false;
    s->crashed = s->doomed = false;
}

bool world_stop(struct sim *s)
{
    load_drain(s);
    while (s->calls_busy > 0)
        SIM_CHECK(s, sim_event(s), "%u calls have no answer", s->calls_busy);
    caches_stop(s);
    if (s->crashed)
        return false;
    note_members(s);
    struct model *before[SIM_VOLUMES];
    for (unsigned i = 0; i < s->config.volumes; i++) { /* what a clean stop makes of them */
        before[i] = model_clone(s->volumes[i].model);
        rows_look(s, i, true);
        struct model *after = s->volumes[i].model;
        s->volumes[i].model = before[i];
        before[i] = after;
    }
    bool clean = close_array(s);
    SIM_CHECK(s, clean || s->crashed || s->doomed || !s->config.strict, "it cannot be stopped cleanly");
    for (unsigned i = 0; i < s->config.volumes; i++) {
        if (clean && !s->crashed)
            memcpy(s->volumes[i].model->hole, before[i]->hole, before[i]->rows);
        model_destroy(before[i]);
    }
    s->doomed = s->doomed && s->crashed;
    s->must_in &= ~s->trouble;
    s->recovering = s->recovering && s->crashed;
    return clean && !s->crashed;
}

/* --- up: what is on the disks --- */

struct finding {
    struct label_op op;
    struct sb_label label;
    unsigned *pending;
    struct simdisk *disk;
};

static void label_found(struct label_op *op)
{
    --*container_of(op, struct finding, op)->pending;
}

static bool is_away(const struct sim *s, const struct simdisk *disk, uint64_t away)
{
    for (unsigned slot = 0; slot < s->config.members; slot++)
        if ((away & sim_bit(slot)) && s->disk_of_slot[slot] == (int)disk->number)
            return true;
    return disk->gone || disk->dead || disk->dev.info.size < s->config.disk.size; /* of a cache's log */
}

/* The labels that can be read, in no particular order. */
static unsigned read_labels(struct sim *s, uint64_t away, struct finding *found)
{
    unsigned asked = 0, pending = 0, good = 0, first = (unsigned)(s->events % s->disks_count);
    for (unsigned i = 0; i < s->disks_count; i++) {
        struct simdisk *disk = s->disks[(first + i) % s->disks_count];
        if (is_away(s, disk, away))
            continue;
        struct finding *f = &found[asked++];
        *f = (struct finding){
            .op = {.dev = &disk->dev, .label = &f->label, .done = label_found}, .pending = &pending, .disk = disk};
        pending++;
        label_read(&f->op);
    }
    while (pending > 0)
        SIM_CHECK(s, sim_event(s), "labels cannot be read to the end");
    for (unsigned i = 0; i < asked; i++)
        if (found[i].op.status == BLK_OK && found[i].op.verdict == SB_VALID) {
            if (good != i)
                found[good] = found[i];
            good++;
        }
    return good;
}

/* --- up: is the decision right? --- */

static uint64_t lost_slots(const struct sim *s, const struct assembly *a)
{
    uint64_t lost = 0;
    for (unsigned slot = 0; slot < s->config.members; slot++)
        if (a->disk_of_slot[slot] < 0 || a->array.members[slot].state != SB_ACTIVE)
            lost |= sim_bit(slot);
    return lost;
}

/* Is there a volume whose write hole is open? */
static bool has_hole(const struct sim *s)
{
    for (unsigned i = 0; i < s->config.volumes; i++)
        if (s->volumes[i].layout.parity && !consistency_is_closed(s->volumes[i].spec.consistency))
            return true;
    return false;
}

static void check_members(struct sim *s, const struct assembly *a, const struct finding *found, unsigned count)
{
    for (unsigned slot = 0; slot < s->config.members; slot++) {
        bool shown = false;
        for (unsigned i = 0; i < count; i++)
            shown = shown || (int)found[i].disk->number == s->disk_of_slot[slot];
        if (!shown || !(s->must_in & sim_bit(slot)))
            continue;
        int index = a->disk_of_slot[slot];
        SIM_CHECK(s, index >= 0 && (int)found[index].disk->number == s->disk_of_slot[slot],
                  "disk sd%d (slot %u) was in use to the end and is not taken back: %s", s->disk_of_slot[slot], slot,
                  a->reason);
    }
}

static void check_verdict(struct sim *s, const struct assembly *a, const struct world_start *how)
{
    uint64_t lost = lost_slots(s, a);
    SIM_CHECK(s, (a->verdict == ASSEMBLY_SPLIT) == how->split, "%s: %s",
              how->split ? "a split brain was not seen" : "a split brain that is none", a->reason);
    SIM_CHECK(s, a->verdict != ASSEMBLY_CLONE, "a clone where there is none: %s", a->reason);
    SIM_CHECK(s, a->startable == (a->verdict == ASSEMBLY_COMPLETE || a->verdict == ASSEMBLY_DEGRADED),
              "startable and %s", assembly_verdict_name(a->verdict));
    if (a->verdict == ASSEMBLY_WAITING)
        SIM_CHECK(s, !config_survives(s, lost), "it waits, and all volumes could run: %s", a->reason);
    if (a->verdict == ASSEMBLY_DIRTY_DEGRADED)
        SIM_CHECK(s, has_hole(s) && lost != 0 && !a->array.clean && !how->force,
                  "it is refused as dirty and degraded: %s", a->reason);
    if (a->verdict == ASSEMBLY_COMPLETE)
        SIM_CHECK(s, lost == 0, "complete, and slots are lost: %s", a->reason);
}

/* --- up --- */

/* The disks that the decision names. */
static void take_disks(struct sim *s, const struct assembly *a, const struct finding *found, struct array_disk *disks)
{
    for (unsigned slot = 0; slot < s->config.members; slot++) {
        if (a->disk_of_slot[slot] < 0)
            continue;
        struct simdisk *disk = found[a->disk_of_slot[slot]].disk;
        disks[slot] = world_array_disk(disk);
        s->disk_of_slot[slot] = (int)disk->number;
    }
}

/* A range that is bad is computed from the others, as the chunk of a lost disk is. */
static void bad_ranges_look(struct sim *s, unsigned volume)
{
    const struct sim_volume *v = &s->volumes[volume];
    for (uint64_t row = 0; row < v->model->rows; row++)
        for (unsigned role = 0; role < v->layout.roles; role++)
            if (chunk_has_bad(s, volume, row, role))
                model_chunk_lost(v->model, v->first_slot + slot_of_role(v, row, role), row,
                                 peek_row(s->array, volume, row, v->model->layout.row_data) & ROW_SYNCED);
}

static void opened(struct sim *s, struct array *array)
{
    s->array = array;
    s->newcomer = NULL;
    s->torn = false;
    s->result->lives++;
    world_look(s);
    for (unsigned i = 0; i < s->config.volumes; i++)
        bad_ranges_look(s, i);
    s->trouble |= all_slots(s) & ~s->online;
    caches_open(s);
}

/* What the daemon does: who just was not there is brought in without asking. */
static void take_back(struct sim *s, const struct assembly *a, const struct finding *found)
{
    for (unsigned slot = 0; slot < s->config.members && !s->crashed; slot++)
        if (a->returned_of_slot[slot] >= 0)
            sim_online(s, slot, found[a->returned_of_slot[slot]].disk);
}

/* Those that are there. True: the one that the array cannot do without is not. */
static bool take_logs(struct sim *s, const struct assembly *a, const struct world_start *how,
                      struct array_journals *journals)
{
    bool active = false, there = false, closed = false;
    for (unsigned i = 0; i < s->config.logs; i++) {
        struct simdisk *disk = s->logs[i];
        bool away = disk->gone || disk->dead || (how->logs_away & 1u << i);
        if (!away)
            journals->disks[i] = world_array_disk(disk);
        active = active || a->array.journals[i].state == SB_JOURNAL_ACTIVE;
        there = there || (!away && a->array.journals[i].state == SB_JOURNAL_ACTIVE);
    }
    for (unsigned i = 0; i < s->config.volumes; i++)
        closed = closed || consistency_is_closed(s->volumes[i].spec.consistency);
    return active && !there && closed && !a->array.clean && !how->force;
}

static bool open_decided(struct sim *s, const struct assembly *a, const struct finding *found,
                         const struct world_start *how)
{
    struct array_disk disks[RAID_MEMBERS_MAX] = {0};
    struct array_journals journals = {.force = how->force};
    bool waits = take_logs(s, a, how, &journals);
    struct sim_call call = call_new();
    uint64_t lost = lost_slots(s, a);
    take_disks(s, a, found, disks);
    for (unsigned slot = 0; slot < s->config.members; slot++)
        if (lost & sim_bit(slot))
            slot_lost(s, slot, how->force);
    s->must_in &= ~lost;
    s->torn = lost != 0;
    s->torn_away = how->away;
    array_open(&s->loop, a, disks, &journals, &call.call);
    sim_wait(s, &call.over, "the array is being opened");
    SIM_CHECK(s, call.call.error != 0 || !waits, "it starts without the journal device that it needs");
    bool bad_luck = s->crashed || !s->config.strict || waits;
    SIM_CHECK(s, call.call.error == 0 || bad_luck, "it does not start: %s", call.call.message);
    if (call.call.error != 0) {
        sim_trace(s, "not opened: %s", call.call.message);
        fronts_close(s);
    }
    if (call.call.error == 0 && s->crashed) /* in the very moment */
        s->array = call.call.array;
    else if (call.call.error == 0)
        opened(s, call.call.array);
    if (call.call.error == 0 && !s->crashed)
        take_back(s, a, found);
    if (call.call.error == 0 && s->crashed)
        array_abandon(s->array);
    return call.call.error == 0 && !s->crashed;
}

static void trace_label(struct sim *s, const struct finding *f)
{
    const struct sb_array *a = &f->label.array;
    const struct sb_fork *fork = &a->forks[a->forks_count - 1];
    char states[SIM_SLOTS + 1] = "";
    for (unsigned slot = 0; slot < a->members_count; slot++)
        states[slot] = sb_member_state_name(a->members[slot].state)[0];
    sim_trace(s, "      label of sd%u: slot %u, generation %llu, committed %llu, fork %02x%02x since %llu, %s, %s",
              f->disk->number, f->label.slot, (unsigned long long)a->generation, (unsigned long long)a->committed,
              fork->id.bytes[0], fork->id.bytes[1], (unsigned long long)fork->generation, a->clean ? "clean" : "dirty",
              states);
}

static bool decide(struct sim *s, struct finding *found, unsigned count, const struct world_start *how,
                   struct assembly *out)
{
    struct assembly_disk disks[SIM_DISKS];
    char identities[SIM_DISKS][SB_IDENTITY_SIZE];
    struct assembly_options options = {.force = how->force};
    for (unsigned i = 0; i < count; i++) {
        identity_of(found[i].disk, identities[i]);
        trace_label(s, &found[i]);
        disks[i] = (struct assembly_disk){&found[i].label, identities[i], found[i].disk->dev.name, NULL};
        if (how->prefer >= 0 && s->disk_of_slot[how->prefer] == (int)found[i].disk->number)
            options.prefer = found[i].label.member;
    }
    unsigned arrays = assembly_decide(disks, count, &options, out, 1);
    SIM_CHECK(s, arrays <= 1, "%u arrays where there is one", arrays);
    return arrays == 1;
}

bool world_start(struct sim *s, struct world_start how)
{
    struct finding *found = calloc(s->disks_count, sizeof *found);
    struct assembly *a = calloc(1, sizeof *a);
    bool up = false;
    ASSERT(found != NULL && a != NULL);
    unsigned count = read_labels(s, how.away, found);
    if (!s->crashed && decide(s, found, count, &how, a)) {
        sim_trace(s, "start%s: %s, %s", how.force ? " by force" : "", assembly_verdict_name(a->verdict), a->reason);
        if (how.prefer < 0 && !how.split)
            check_members(s, a, found, count);
        check_verdict(s, a, &how);
        up = a->startable && open_decided(s, a, found, &how);
    }
    free(found);
    free(a);
    return up;
}

/* --- again --- */

/* Who is not there this time? In a strict run nobody whom a volume would miss. */
static uint64_t draw_away(struct sim *s, struct dice *dice)
{
    uint64_t away =
        s->short_handed || dice_one_in(dice, 5) ? sim_bit((unsigned)dice_below(dice, s->config.members)) : 0;
    uint64_t absent = s->trouble | (all_slots(s) & ~s->must_in);
    s->short_handed = false;
    if (away == 0 || (s->must_in & ~away) == 0 || (s->config.strict && !config_survives(s, absent | away)))
        return 0;
    return away;
}

static void replug_all(struct sim *s)
{
    for (unsigned i = 0; i < s->disks_count; i++)
        s->disks[i]->gone = false;
}

/* Is somebody shown who ran to the end? Whoever else is started alone begins another history. */
static bool last_is_shown(const struct sim *s, uint64_t away)
{
    for (unsigned slot = 0; slot < s->config.members; slot++)
        if ((s->last & ~away & sim_bit(slot)) && !world_disk(s, slot)->gone && !world_disk(s, slot)->dead)
            return true;
    return false;
}

/* Until it runs, or was cut off. False: it cannot. */
static bool start_somehow(struct sim *s, struct dice *dice)
{
    struct world_start how = {.prefer = -1, .away = s->keep_away != 0 ? s->keep_away : draw_away(s, dice)};
    s->keep_away = 0;
    how.logs_away = s->keep_logs_away;
    s->keep_logs_away = 0;
    for (unsigned i = 0; i < s->config.logs; i++) {
        s->logs[i]->time_outs = 0;
        how.logs_away |= dice_one_in(dice, 10) ? 1u << i : 0;
    }
    for (unsigned slot = 0; slot < s->config.members; slot++) /* a label that is not read is as good as away */
        if (s->last & sim_bit(slot))
            world_disk(s, slot)->reads_fail = world_disk(s, slot)->time_outs = 0;
    if (s->torn || !last_is_shown(s, how.away)) {
        replug_all(s);
        how.away = s->torn && dice_one_in(dice, 2) && last_is_shown(s, s->torn_away) ? s->torn_away : 0;
    }
    s->lost = s->lost || !last_is_shown(s, how.away);
    if (s->lost)
        return false;
    s->trouble |= how.away;
    if (world_start(s, how) || s->crashed)
        return true;
    replug_all(s);
    how.away = how.logs_away = 0;
    if (world_start(s, how) || s->crashed)
        return true;
    how.force = true;
    return world_start(s, how) || s->crashed;
}

bool world_start_once(struct sim *s, struct dice *dice)
{
    if (s->crashed)
        world_bury(s);
    if (s->crash_again > 0) {
        s->crash_again--;
        if (dice_one_in(dice, 2))
            s->crash_in = 1 + dice_scale(dice, 500);
        else
            s->crash_after_write = 1 + dice_below(dice, 12 * s->config.members);
        s->crash_power = dice_one_in(dice, 2);
    }
    if (dice_one_in(dice, 2) && s->keep_away == 0)
        replug_all(s);
    if (start_somehow(s, dice))
        return true;
    SIM_CHECK(s, !s->config.strict, "the array cannot be started");
    s->crash_in = s->crash_after_write = s->crash_after_row = 0;
    return false;
}

void world_start_again(struct sim *s, struct dice *dice)
{
    while (world_start_once(s, dice) && s->crashed)
        ;
}

/* --- the first time --- */

static void create_models(struct sim *s)
{
    const struct sb_array *a = array_description(s->array);
    for (unsigned i = 0; i < s->config.volumes; i++) {
        struct sim_volume *v = &s->volumes[i];
        SIM_CHECK(s, superblock_layout(a, &a->volumes[i], &v->layout), "no layout");
        bool mapped = v->layout.redundancy > 0; /* then nobody sees what was on the disks before */
        v->model = model_create(&v->layout, a->volumes[i].consistency, v->first_slot, a->volumes[i].size,
                                s->config.garbage && !mapped);
    }
}

void world_create(struct sim *s)
{
    struct array_spec *spec = calloc(1, sizeof *spec);
    struct sim_call call = call_new();
    ASSERT(spec != NULL);
    text_format(spec->name, sizeof spec->name, "sim");
    spec->disks_count = s->config.members;
    spec->journal_bytes = s->config.journal_bytes;
    spec->volumes_count = s->config.volumes;
    for (unsigned slot = 0; slot < s->config.members; slot++) {
        struct simdisk *disk = world_disk_new(s);
        if (s->config.garbage)
            litter(s, disk);
        s->disk_of_slot[slot] = (int)disk->number;
        spec->disks[slot] = world_array_disk(disk);
    }
    spec->journals_count = s->config.logs;
    for (unsigned i = 0; i < s->config.logs; i++) {
        s->logs[i] = world_disk_new(s);
        spec->journals[i] = world_array_disk(s->logs[i]);
    }
    for (unsigned i = 0; i < s->config.volumes; i++)
        spec->volumes[i] = s->volumes[i].spec;
    array_create(&s->loop, spec, &call.call);
    free(spec);
    sim_wait(s, &call.over, "the array is being created");
    SIM_CHECK(s, call.call.error == 0, "not created: %s", call.call.message);
    s->array = call.call.array;
    s->rows_from = array_description(s->array)->data_start;
    s->rows_to = s->rows_from + array_description(s->array)->data_bytes;
    create_models(s);
    opened(s, s->array);
}
