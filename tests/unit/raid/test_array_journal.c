/* Arrays with a journal: policies, crashes followed by the loss of disks, rings that run full, members that join. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "raid/array_impl.h"
#include "raid/journal.h"
#include "tests/unit/raid/arrays.h"

enum { DISK = 40 * 1024 * 1024, CHUNK = 65536 };

static struct rig *rig_with(unsigned disks, enum raid_level level, enum sb_consistency consistency)
{
    struct rig *rig = rig_create(disks, DISK);
    struct array_spec *spec = rig_spec(rig);
    rig_spec_add(spec, "v", level, 2 * MIB);
    spec->volumes[0].consistency = consistency;
    spec->journal_bytes = JOURNAL_BYTES_MIN;
    cr_assert(rig_make(rig, spec), "%s", rig->message);
    return rig;
}

/* --- policies --- */

Test(array_journal, every_level_has_a_policy_of_its_own)
{
    static const struct {
        enum raid_level level;
        unsigned disks;
        enum sb_consistency policy;
    } cases[] = {{RAID_0, 3, SB_RESYNC}, {RAID_1, 2, SB_BITMAP},  {RAID_10, 4, SB_BITMAP},  {RAID_3, 3, SB_PPL},
                 {RAID_5, 3, SB_PPL},    {RAID_6, 4, SB_JOURNAL}, {RAID_TP, 5, SB_JOURNAL}, {RAID_30, 6, SB_PPL},
                 {RAID_50, 6, SB_PPL},   {RAID_60, 8, SB_JOURNAL}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct rig *rig = rig_create(cases[i].disks, DISK);
        struct array_spec *spec = rig_spec(rig);
        rig_spec_add(spec, "v", cases[i].level, MIB);
        spec->volumes[0].consistency_given = false;
        cr_assert(rig_make(rig, spec), "%s", rig->message);
        cr_expect_eq(array_description(rig->array)->volumes[0].consistency, cases[i].policy, "%s",
                     raid_level_name(cases[i].level));
        rig_destroy(rig);
    }
}

Test(array_journal, a_policy_that_cannot_be_is_refused_with_the_reason)
{
    static const struct {
        enum raid_level level;
        enum sb_consistency policy;
        const char *message;
    } cases[] = {
        {RAID_6, SB_PPL,
         "volume v (raid6) cannot have the consistency policy ppl: policy ppl is for one parity (RAID 3, 5, 30, 50)"},
        {RAID_1, SB_PPL,
         "volume v (raid1) cannot have the consistency policy ppl: policy ppl is for one parity (RAID 3, 5, 30, 50)"},
        {RAID_10, SB_JOURNAL,
         "volume v (raid10) cannot have the consistency policy journal: policy journal is for levels with parity"},
        {RAID_0, SB_BITMAP,
         "volume v (raid0) cannot have the consistency policy bitmap: without redundancy there is nothing to keep "
         "consistent"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct rig *rig = rig_create(4, DISK);
        struct array_spec *spec = rig_spec(rig);
        rig_spec_add(spec, "v", cases[i].level, MIB);
        spec->volumes[0].consistency_given = true;
        spec->volumes[0].consistency = cases[i].policy;
        cr_expect_not(rig_make(rig, spec));
        cr_expect_str_eq(rig->message, cases[i].message);
        rig_destroy(rig);
    }
}

Test(array_journal, a_block_is_whole_after_a_crash_where_no_disk_that_is_away_is_computed_from_half_a_write)
{
    static const struct {
        enum raid_level level;
        unsigned disks;
        enum sb_consistency policy;
        uint32_t whole;
    } cases[] = {{RAID_0, 3, SB_RESYNC, 512},  {RAID_1, 2, SB_RESYNC, 512},  {RAID_1, 2, SB_BITMAP, 512},
                 {RAID_10, 4, SB_BITMAP, 512}, {RAID_5, 3, SB_RESYNC, 0},    {RAID_5, 3, SB_BITMAP, 0},
                 {RAID_5, 3, SB_PPL, 0},       {RAID_5, 3, SB_JOURNAL, 512}, {RAID_6, 4, SB_BITMAP, 0},
                 {RAID_6, 4, SB_JOURNAL, 512}, {RAID_50, 6, SB_PPL, 0},      {RAID_60, 8, SB_JOURNAL, 512}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct rig *rig = rig_with(cases[i].disks, cases[i].level, cases[i].policy);
        cr_expect_eq(array_volume(rig->array, "v")->info.atomic_write, cases[i].whole, "%s, policy %u",
                     raid_level_name(cases[i].level), cases[i].policy);
        rig_destroy(rig);
    }
}

Test(array_journal, policy_resync_marks_nothing_and_suspects_all_that_was_written)
{
    struct rig *rig = rig_with(3, RAID_5, SB_RESYNC);
    rig_put(rig, 0, 3 * 2 * CHUNK, 1);
    rig_put(rig, 4096, 4096, 2);
    cr_expect_eq(array_usage(rig->array, 0).dirty_bytes, 0);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 7, false), "%s", rig->message);
    cr_expect_eq(array_usage(rig->array, 0).dirty_bytes, 3 * 2 * CHUNK, "all three rows");
    rig_settle(rig);
    cr_assert(rig_close(rig));
    cr_assert(rig_assemble(rig, 7, false));
    cr_expect_eq(array_usage(rig->array, 0).dirty_bytes, 0);
    cr_expect(rig_has(rig, 4096, 4096, 2));
    rig_destroy(rig);
}

/* --- crashes --- */

static const struct crash_case {
    enum raid_level level;
    unsigned disks;
    enum sb_consistency policy;
    uint64_t len;     /* of the writes under way */
    unsigned without; /* disks that do not come back */
} crash_cases[] = {
    {RAID_5, 4, SB_PPL, 4096, 0},         {RAID_5, 4, SB_PPL, 4096, 1},        {RAID_5, 4, SB_PPL, 4096, 8},
    {RAID_5, 4, SB_JOURNAL, 4096, 2},     {RAID_5, 4, SB_JOURNAL, 65536, 4},   {RAID_6, 5, SB_JOURNAL, 4096, 3},
    {RAID_6, 5, SB_JOURNAL, 40960, 0x18}, {RAID_6, 5, SB_JOURNAL, 4096, 0x11}, {RAID_TP, 6, SB_JOURNAL, 4096, 7},
};

enum { OLD = 77, WRITES = 6, STRIDE = 192 * 1024 };

/* Writes of one piece each in different rows are cut off after `steps` tasks; each is then as before, or as after. */
static void crash_after(const struct crash_case *c, unsigned steps)
{
    struct rig *rig = rig_with(c->disks, c->level, c->policy);
    struct rig_write *writes = calloc(WRITES, sizeof *writes);
    unsigned all = (1u << c->disks) - 1;
    cr_assert_eq(rig_fill(rig, "v", OLD, 64 * KIB), BLK_OK);
    uint8_t *old = malloc(2 * MIB), *now = malloc(2 * MIB), *new = malloc(c->len);
    test_fill(old, 2 * MIB, OLD);
    for (unsigned i = 0; i < WRITES; i++)
        rig_write_start(rig, &writes[i], "v", i * STRIDE, c->len, i + 1);
    rig_wait(rig, steps * 20000);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, all & ~c->without, false), "%s, %u: %s", raid_level_name(c->level), c->without,
              rig->message);
    for (uint64_t off = 0; off < 2 * MIB; off += MIB)
        cr_assert_eq(test_io(rig->t, rig_volume(rig), BLK_READ, 0, off, now + off, MIB), BLK_OK);
    for (unsigned i = 0; i < WRITES; i++) {
        uint8_t *was = old + i * STRIDE, *is = now + i * STRIDE;
        test_fill(new, c->len, i + 1);
        bool is_new = memcmp(is, new, c->len) == 0, is_old = memcmp(is, was, c->len) == 0;
        cr_expect(is_new || (is_old && !(writes[i].over && writes[i].req.status == BLK_OK)),
                  "%s, %s, without %x, after %u steps: write %u is neither", raid_level_name(c->level),
                  sb_consistency_name(c->policy), c->without, steps, i);
        memcpy(is, was, c->len);
    }
    cr_expect(memcmp(old, now, 2 * MIB) == 0, "what was not being written is as it was");
    free(old);
    free(now);
    free(new);
    rig_destroy(rig);
    free(writes);
}

Test(array_journal, after_a_crash_and_a_loss_every_write_is_there_or_not)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(crash_cases); i++)
        for (unsigned steps = 0; steps < 60; steps += 7)
            crash_after(&crash_cases[i], steps);
}

Test(array_journal, degraded_and_not_clean_it_starts)
{
    struct rig *rig = rig_with(3, RAID_5, SB_PPL);
    rig_put(rig, 0, 4 * CHUNK, 1);
    rig_put(rig, 4096, 4096, 2);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 6, false), "%s", rig->message);
    cr_expect_eq(rig->assembly.verdict, ASSEMBLY_DEGRADED);
    cr_expect(rig_has(rig, 4096, 4096, 2) && array_usage(rig->array, 0).dirty_bytes == 0);
    rig_destroy(rig);
}

Test(array_journal, a_clean_stop_begins_a_new_epoch)
{
    struct rig *rig = rig_with(4, RAID_6, SB_JOURNAL);
    struct uuid epoch = array_description(rig->array)->epoch;
    rig_put(rig, 0, 4096, 1);
    cr_assert(rig_close(rig));
    cr_assert(rig_assemble(rig, 15, false));
    cr_expect_not(uuid_equal(&epoch, &array_description(rig->array)->epoch));
    rig_destroy(rig);
}

/* --- the ring --- */

static void ring_case(enum sb_consistency policy, uint64_t len)
{
    struct rig *rig = rig_with(4, RAID_5, policy);
    cr_assert_eq(rig_fill(rig, "v", OLD, 64 * KIB), BLK_OK);
    for (unsigned i = 0; i < 600; i++) /* several times what the ring holds */
        rig_put(rig, i * 7 % 10 * STRIDE + i % 16 * 512, len, i + 1);
    for (unsigned i = 590; i < 600; i++)
        cr_expect(rig_has(rig, i * 7 % 10 * STRIDE + i % 16 * 512, len, i + 1), "write %u", i);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 14, false), "%s", rig->message);
    for (unsigned i = 590; i < 600; i++)
        cr_expect(rig_has(rig, i * 7 % 10 * STRIDE + i % 16 * 512, len, i + 1), "write %u after a crash", i);
    rig_destroy(rig);
}

Test(array_journal, a_ring_that_runs_full_goes_on)
{
    ring_case(SB_JOURNAL, 4096);
    ring_case(SB_JOURNAL, 100 * KIB);
    ring_case(SB_PPL, 60 * KIB);
}

Test(array_journal, what_was_given_back_does_not_come_back)
{
    struct rig *rig = rig_with(3, RAID_5, SB_JOURNAL);
    rig_put(rig, 0, 2 * CHUNK, 1);
    rig_put(rig, 8192, 4096, 2);
    cr_assert_eq(test_io(rig->t, rig_volume(rig), BLK_DISCARD, 0, 0, NULL, 2 * CHUNK), BLK_OK);
    rig_put(rig, 0, 4096, 3); /* fills the row anew, without a record */
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 7, false));
    cr_expect(rig_has(rig, 0, 4096, 3) && rig_has(rig, 4096, 2 * CHUNK - 4096, 0));
    rig_destroy(rig);
}

Test(array_journal, a_disk_that_comes_back_brings_no_old_parts)
{
    struct rig *rig = rig_with(4, RAID_6, SB_JOURNAL);
    rig_put(rig, 0, 4 * CHUNK, 1);
    rig_put(rig, 4096, 4096, 2);
    cr_assert(rig_fail(rig, 1));
    rig_put(rig, 4096, 4096, 3);
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    rig_put(rig, 8192, 4096, 4);
    rig_settle(rig);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 3, false), "%s", rig->message);
    cr_expect(rig_has(rig, 4096, 4096, 3) && rig_has(rig, 8192, 4096, 4));
    rig_destroy(rig);
}

/* The first header of slot `slot` that decodes, and how many there are. */
static unsigned entries_on(const struct rig *rig, unsigned slot, unsigned kind)
{
    const struct sb_array *a = array_description(rig->array);
    struct journal_entry entry;
    unsigned count = 0;
    for (uint64_t at = 0; at < a->journal_bytes; at += PAGE_BYTES)
        count += journal_decode(rig->mem[slot]->bytes + a->journal_start + at, &entry) && entry.kind == kind &&
                 uuid_equal(&entry.epoch, &a->epoch);
    return count;
}

Test(array_journal, a_small_write_is_logged_by_those_that_are_written)
{
    static const struct {
        enum sb_consistency policy;
        unsigned full, parity;
    } cases[] = {{SB_PPL, 0, 1}, {SB_JOURNAL, 2, 0}, {SB_BITMAP, 0, 0}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct rig *rig = rig_with(4, RAID_5, cases[i].policy);
        rig_put(rig, 0, 4096, 1);
        unsigned full = 0, parity = 0;
        rig_put(rig, 0, 4096, 2);
        for (unsigned slot = 0; slot < 4; slot++) {
            full += entries_on(rig, slot, JOURNAL_FULL);
            parity += entries_on(rig, slot, JOURNAL_PARITY);
        }
        cr_expect(full == cases[i].full && parity == cases[i].parity, "%s: %u and %u",
                  sb_consistency_name(cases[i].policy), full, parity);
        rig_destroy(rig);
    }
}

/* It may outlive those that have one, and then old records of its own would count. */
Test(array_journal, a_disk_that_joined_is_given_a_tail_though_nothing_is_written)
{
    struct rig *rig = rig_with(4, RAID_6, SB_JOURNAL);
    rig_put(rig, 0, 4 * CHUNK, 1);
    rig_put(rig, 4096, 4096, 2);
    cr_assert(rig_fail(rig, 1));
    unsigned before = entries_on(rig, 1, JOURNAL_TAIL);
    cr_assert(rig_online(rig, 1), "%s", rig->message);
    rig_settle(rig);
    cr_expect_gt(entries_on(rig, 1, JOURNAL_TAIL), before);
    rig_destroy(rig);
}

Test(array_journal, a_ring_that_cannot_be_read_costs_its_disk_and_no_data)
{
    struct rig *rig = rig_with(4, RAID_5, SB_JOURNAL);
    rig_put(rig, 0, 3 * CHUNK, 1);
    rig_put(rig, 4096, 4096, 2);
    rig_kill(rig);
    struct sb_label label;
    cr_assert_eq(rig_label(rig, 2, &label), SB_VALID);
    struct fault_rule bad = {
        .ops = 1 << BLK_READ, .off = label.array.journal_start + 8192, .len = 4096, .status = BLK_MEDIA};
    cr_assert_geq(fault_add(rig->dev[2], &bad), 0);
    cr_assert(rig_assemble(rig, 15, false), "%s", rig->message);
    cr_expect_str_eq(rig_info(rig).members[2].state, "failed");
    cr_expect(rig_has(rig, 4096, 4096, 2));
    rig_destroy(rig);
}

/*
 * The journal of the parity's disk is garbage, and the parity is not what it was to become: was the write begun, or is
 * the record torn? `payload`: the header is left. `away`: a third disk does not come back.
 */
static void garbage_case(enum sb_consistency policy, bool payload, bool away)
{
    struct rig *rig = rig_with(4, RAID_5, policy);
    rig_put(rig, 0, 3 * CHUNK, 1);
    rig_put(rig, 4096, 4096, 2);
    const struct sb_array *a = array_description(rig->array);
    struct layout_place data, parity;
    struct layout layout;
    cr_assert(superblock_layout(a, &a->volumes[0], &layout));
    layout_place(&layout, 0, 0, &data);
    layout_place(&layout, 0, 3, &parity);
    uint8_t *disk = rig->mem[parity.slot]->bytes, *ring = disk + a->journal_start;
    uint64_t place = a->data_start + a->volumes[0].start + parity.off + 4096, ring_bytes = a->journal_bytes;
    unsigned other = 0;
    while (other == data.slot || other == parity.slot)
        other++;
    rig_kill(rig);
    struct journal_entry entry;
    for (uint64_t at = 0; at < ring_bytes; at += PAGE_BYTES)
        if (!payload || (!journal_decode(ring + at, &entry) && ring[at] != 0))
            memset(ring + at, 0x5a, PAGE_BYTES);
    memset(disk + place, 0xa5, 4096);
    cr_assert(rig_assemble(rig, away ? 15 & ~(1u << other) : 15, false), "%s", rig->message);
    cr_expect_eq(array_usage(rig->array, 0).dirty_bytes, away ? 0 : 3 * CHUNK, "%s, payload %u, away %u",
                 sb_consistency_name(policy), payload, away);
    cr_expect(rig_has(rig, 4096, 4096, 2));
    if (!away) {
        rig_settle(rig);
        cr_assert(rig_fail(rig, data.slot), "%s", rig->message);
        cr_expect(rig_has(rig, 4096, 4096, 2), "%s: the parity was not made right", sb_consistency_name(policy));
    }
    rig_destroy(rig);
}

Test(array_journal, a_row_whose_record_was_damaged_is_resynchronised)
{
    garbage_case(SB_JOURNAL, false, false);
    garbage_case(SB_JOURNAL, true, false);
    garbage_case(SB_PPL, true, false);
    garbage_case(SB_JOURNAL, false, true);
}
