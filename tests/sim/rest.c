/*
 * The end of a run: no more faults, every slot gets a disk that works, all jobs end. Then everything must be whole:
 * every byte reads back as the model says, through the caches and, when they are closed, on the array; it stops cleanly with nothing left in any cache, all members say the
 * same, and the redundancy on the disks is that of the data, computed without the codec.
 *
 * In a run with more faults than the volumes bear, some of that cannot be: then only what reads back must be right.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "tests/unit/lib/gf_reference.h"

/* --- mending --- */

static void faults_end(struct sim *s)
{
    s->crash_in = s->crash_after_write = s->crash_after_row = s->crash_again = 0;
    s->cut_inside = false;
    for (unsigned i = 0; i < s->config.volumes; i++)
        s->volumes[i].cache.arena.cut = false;
    for (unsigned i = 0; i < s->disks_count; i++) {
        struct simdisk *d = s->disks[i];
        d->gone = false;
        d->slow = d->reads_fail = d->writes_fail = d->time_outs = 0;
    }
}

static bool answers_are_due(const struct sim *s)
{
    bool due = s->calls_busy > 0 || s->ios_busy > 0;
    for (unsigned i = 0; i < s->disks_count; i++)
        due = due || s->disks[i]->failing > 0;
    return due;
}

static void wait_for_jobs(struct sim *s)
{
    uint64_t end = s->loop.now_ns + 7200000000000ull;
    for (unsigned still = 0; still < 2 && !peek_frozen(s->array) && s->loop.now_ns < end;) {
        (void)sim_pace_free(s);
        sim_wait_ns(s, 3000000000);
        still = peek_jobs_idle(s->array) && !answers_are_due(s) ? still + 1 : 0;
    }
}

/* A disk that works into each slot that has none. True: every slot has one. */
static bool fill_slots(struct sim *s)
{
    struct dice dice = dice_for(s->seed, 3);
    uint64_t all = sim_bit(s->config.members) - 1;
    for (unsigned round = 0; round < 4 * SIM_SLOTS && s->array != NULL && !peek_frozen(s->array); round++) {
        wait_for_jobs(s);
        world_look(s);
        if (s->online == all && !peek_frozen(s->array))
            return peek_jobs_idle(s->array); /* it is not if a disk that stays refused a job's write */
        sim_action(s, &(struct action){ACT_ONLINE, dice_bits(&dice)});
    }
    return false;
}

static void start_if_down(struct sim *s)
{
    struct dice dice = dice_for(s->seed, 4);
    if (s->array != NULL && peek_frozen(s->array))
        (void)world_stop(s);
    if (s->array == NULL)
        world_start_again(s, &dice);
}

/* --- other eyes --- */

static const uint8_t zeroes[PAGE_BYTES];

static const uint8_t *medium_at(const struct sim *s, const struct sim_volume *v, uint64_t base, uint64_t row,
                                unsigned role, uint64_t column)
{
    struct layout_place place;
    layout_place(&v->layout, row, role, &place);
    const struct simdisk *disk = s->disks[s->disk_of_slot[v->first_slot + place.slot]];
    const uint8_t *block = simdisk_medium(disk, base + place.off + column);
    return block != NULL ? block : zeroes;
}

/* Eight bytes times 2 in GF(2^8). */
static uint64_t doubled(uint64_t bytes)
{
    return (bytes & UINT64_C(0x7f7f7f7f7f7f7f7f)) << 1 ^ (bytes >> 7 & UINT64_C(0x0101010101010101)) * 0x1d;
}

static uint64_t word_at(const uint8_t *block, unsigned at)
{
    uint64_t word;
    memcpy(&word, block + at, sizeof word);
    return word;
}

/* Parity j of eight columns by Horner's rule. */
static uint64_t parity_word(const struct sim_volume *v, const uint8_t *const *blocks, unsigned j, unsigned at)
{
    uint64_t sum = 0;
    for (unsigned i = v->layout.data; i-- > 0;) {
        for (unsigned k = 0; k < j; k++)
            sum = doubled(sum);
        sum ^= word_at(blocks[i], at);
    }
    return sum;
}

/* One column a sector by definition, to hold the fast way against. */
static uint8_t parity_byte(const struct sim_volume *v, const uint8_t *const *blocks, unsigned j, unsigned at)
{
    uint8_t column[RAID_MEMBERS_MAX];
    for (unsigned i = 0; i < v->layout.data; i++)
        column[i] = blocks[i][at];
    return gf_reference_parity(j, column, v->layout.data);
}

static void check_parity(struct sim *s, const struct sim_volume *v, const uint8_t *const *blocks, uint64_t row,
                         uint64_t column)
{
    for (unsigned j = 0; j < v->layout.redundancy; j++) {
        const uint8_t *parity = blocks[v->layout.data + j];
        bool right = parity_byte(v, blocks, j, (unsigned)(row * 512 % PAGE_BYTES)) == parity[row * 512 % PAGE_BYTES];
        unsigned at = 0;
        while (right && at < PAGE_BYTES && parity_word(v, blocks, j, at) == word_at(parity, at))
            at += sizeof(uint64_t);
        SIM_CHECK(s, right && at == PAGE_BYTES, "%s: parity %u of row %llu is wrong near column %llu", v->name, j,
                  (unsigned long long)row, (unsigned long long)column + at);
    }
}

static void check_copies(struct sim *s, const struct sim_volume *v, const uint8_t *const *blocks, uint64_t row,
                         uint64_t column)
{
    for (unsigned i = 1; i < v->layout.roles; i++)
        SIM_CHECK(s, memcmp(blocks[0], blocks[i], PAGE_BYTES) == 0, "%s: copy %u of row %llu differs near column %llu",
                  v->name, i, (unsigned long long)row, (unsigned long long)column);
}

/* Is some chunk's block of 4 KiB on the list of bad blocks? */
static bool is_bad(const struct sb_array *a, const struct sim_volume *v, uint64_t start, uint64_t row, uint64_t column)
{
    for (unsigned role = 0; a->bad.count > 0 && role < v->layout.roles; role++) {
        struct layout_place place;
        layout_place(&v->layout, row, role, &place);
        if (bad_overlaps(&a->bad, v->first_slot + place.slot, start + place.off + column, PAGE_BYTES))
            return true;
    }
    return false;
}

/* Of rows that were ever written. */
static void check_redundancy(struct sim *s, const struct sb_array *a, unsigned volume, const bool *written)
{
    const struct sim_volume *v = &s->volumes[volume];
    uint64_t base = a->data_start + a->volumes[volume].start;
    const uint8_t *blocks[RAID_MEMBERS_MAX];
    for (uint64_t row = 0; row < v->layout.rows; row++)
        for (uint64_t column = 0; written[row] && column < v->layout.spec.chunk; column += PAGE_BYTES) {
            if (is_bad(a, v, a->volumes[volume].start, row, column))
                continue;
            bool zero = true; /* most likely */
            for (unsigned role = 0; role < v->layout.roles; role++) {
                const uint8_t *block = medium_at(s, v, base, row, role, column);
                blocks[layout_codec_role(&v->layout, row, role)] = block;
                zero = zero && block == zeroes;
            }
            if (!zero && v->layout.parity)
                check_parity(s, v, blocks, row, column);
            else if (!zero)
                check_copies(s, v, blocks, row, column);
        }
}

static void check_disks(struct sim *s, const struct sb_array *a, bool *const *written)
{
    for (unsigned slot = 0; slot < s->config.members; slot++) {
        const struct simdisk *disk = world_disk(s, slot);
        SIM_CHECK(s, !simdisk_is_volatile(disk, 0, disk->dev.info.size),
                  "sd%u was stopped cleanly with bytes in its cache", disk->number);
    }
    SIM_CHECK(s, a->bad.count == 0 || !s->config.strict, "%u ranges of bad blocks, and never more faults than it bears",
              a->bad.count);
    for (unsigned i = 0; i < s->config.volumes; i++)
        if (s->volumes[i].layout.redundancy > 0)
            check_redundancy(s, a, i, written[i]);
}

/* --- the end --- */

static void stop_and_look(struct sim *s, bool whole)
{
    struct sb_array a = *array_description(s->array);
    bool *written[SIM_VOLUMES];
    for (unsigned i = 0; i < s->config.volumes; i++) {
        written[i] = calloc(s->volumes[i].layout.rows, sizeof *written[i]);
        ASSERT(written[i] != NULL);
        for (uint64_t row = 0; row < s->volumes[i].layout.rows; row++)
            written[i][row] = peek_row(s->array, i, row, s->volumes[i].layout.row_data) & ROW_WRITTEN;
    }
    bool clean = world_stop(s);
    if (whole && clean)
        check_disks(s, &a, written);
    for (unsigned i = 0; i < s->config.volumes; i++)
        free(written[i]);
    if (!clean)
        return;
    s->must_in = whole ? sim_bit(s->config.members) - 1 : s->must_in;
    bool up = world_start(s, (struct world_start){.prefer = -1});
    SIM_CHECK(s, up || !s->config.strict, "it does not start again");
    if (up)
        (void)world_stop(s);
}

/* What the caches have is written down, and what is below is what they said. */
static void caches_rest(struct sim *s)
{
    if (!s->config.cached || s->array == NULL)
        return;
    for (unsigned i = 0; i < s->config.volumes && !peek_frozen(s->array); i++)
        SIM_CHECK(s, s->volumes[i].cache.cache == NULL || caches_empty(s, i) || !s->config.strict,
                  "%s: its cache cannot be emptied", s->volumes[i].name);
    caches_stop(s);
    load_verify(s, true);
}

void rest(struct sim *s)
{
    faults_end(s);
    load_drain(s);
    start_if_down(s);
    bool whole = fill_slots(s);
    SIM_CHECK(s, whole || !s->config.strict, "it does not become whole again");
    if (s->array == NULL)
        return;
    for (unsigned i = 0; i < s->config.volumes; i++)
        caches_let_go(s, i, true);
    load_verify(s, true);
    caches_rest(s);
    whole = whole && fill_slots(s); /* what was read last may have taken a member out */
    SIM_CHECK(s, whole || !s->config.strict, "reading it made it less than whole");
    if (s->array != NULL)
        stop_and_look(s, whole);
}
