/* The journal on disks of its own: crashes, devices that fail, are away, or are not the right ones. */
#include <criterion/criterion.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "raid/array_impl.h"
#include "raid/journal_device.h"
#include "tests/unit/raid/arrays.h"

enum { DISK = 40 * 1024 * 1024, LOG = 9 * 1024 * 1024, CHUNK = 65536 };

static struct rig *rig_with(unsigned disks, enum raid_level level, enum sb_consistency consistency, unsigned devices)
{
    struct rig *rig = rig_create(disks, DISK);
    struct array_spec *spec = rig_spec(rig);
    rig_spec_add(spec, "v", level, 2 * MIB);
    spec->volumes[0].consistency = consistency;
    spec->journal_bytes = JOURNAL_BYTES_MIN;
    for (unsigned i = 0; i < devices; i++)
        rig_journal_new(rig, spec, LOG + i * MIB);
    cr_assert(rig_make(rig, spec), "%s", rig->message);
    return rig;
}

static void device_fails(struct rig *rig, unsigned index, uint32_t ops, enum blk_status status)
{
    struct fault_rule rule = {.ops = ops, .off = 0, .len = UINT64_MAX, .status = status};
    cr_assert_geq(fault_add(rig->journal_dev[index], &rule), 0);
}

static void device_away(struct rig *rig, unsigned index)
{
    rig->journals.disks[index].dev = NULL;
}

static const char *state_of(struct rig *rig, unsigned index)
{
    static char state[16];
    text_format(state, sizeof state, "%s", rig_info(rig).journals[index].state);
    return state;
}

/* Entries of this epoch in a ring. */
static unsigned entries_in(const struct rig *rig, const uint8_t *bytes, uint64_t start, uint64_t len)
{
    struct journal_entry entry;
    unsigned count = 0;
    for (uint64_t at = 0; at < len; at += PAGE_BYTES)
        count += journal_decode(bytes + start + at, &entry) && entry.kind != JOURNAL_TAIL &&
                 uuid_equal(&entry.epoch, &array_description(rig->array)->epoch);
    return count;
}

static unsigned entries_on_members(const struct rig *rig)
{
    const struct sb_array *a = array_description(rig->array);
    unsigned count = 0;
    for (unsigned slot = 0; slot < rig->count; slot++)
        count += entries_in(rig, rig->mem[slot]->bytes, a->journal_start, a->journal_bytes);
    return count;
}

static unsigned entries_on_device(const struct rig *rig, unsigned index)
{
    const struct sb_journal_device *device = &array_description(rig->array)->journals[index];
    return entries_in(rig, rig->journal_mem[index]->bytes, device->start, device->bytes);
}

/* --- the label, and who may be one --- */

Test(journal_device, a_label_is_read_back_and_a_damaged_one_is_none)
{
    uint8_t bytes[JOURNAL_LABEL_BYTES];
    struct journal_label in = {.generation = 7, .name = "r0"}, out;
    memset(in.array.bytes, 1, sizeof in.array.bytes);
    memset(in.device.bytes, 2, sizeof in.device.bytes);
    journal_label_encode(&in, bytes);
    cr_assert(journal_label_decode(bytes, &out));
    cr_expect(uuid_equal(&in.array, &out.array) && uuid_equal(&in.device, &out.device) && out.generation == 7);
    cr_expect_str_eq(out.name, "r0");
    for (unsigned at = 0; at < sizeof bytes; at += 5) {
        bytes[at] ^= 0x40;
        cr_expect_not(journal_label_decode(bytes, &out), "byte %u", at);
        bytes[at] ^= 0x40;
    }
    struct journal_label wild = {0};
    memset(wild.name, 1, sizeof wild.name - 1);
    journal_label_encode(&wild, bytes);
    cr_expect_not(journal_label_decode(bytes, &out), "a name that cannot be printed");
}

Test(journal_device, a_new_array_labels_its_devices)
{
    struct rig *rig = rig_with(4, RAID_6, SB_JOURNAL, 2);
    const struct sb_array *a = array_description(rig->array);
    struct journal_label label;
    for (unsigned i = 0; i < 2; i++) {
        cr_assert(journal_label_decode(rig->journal_mem[i]->bytes + JOURNAL_LABEL_AT, &label));
        cr_expect_eq(journal_label_index(a, &label), (int)i);
        cr_expect_eq(a->journals[i].bytes, LOG - MIB, "both have the smaller one's size");
        cr_expect_str_eq(state_of(rig, i), "active");
    }
    memset(label.array.bytes, 9, sizeof label.array.bytes);
    cr_expect_eq(journal_label_index(a, &label), -1, "of another array");
    rig_destroy(rig);
}

Test(journal_device, a_device_that_will_not_do_is_refused_with_the_reason)
{
    struct rig *rig = rig_create(4, DISK);
    struct array_spec *spec = rig_spec(rig);
    struct sb_array *out = calloc(1, sizeof *out);
    char why[256];
    rig_spec_add(spec, "v", RAID_6, 2 * MIB);
    rig_journal_new(rig, spec, 6 * MIB);
    cr_assert_not_null(array_describe(&rig->t->loop, spec, out, why, sizeof why));
    cr_expect_str_eq(why, "disk log0 is too small to hold the journal: 7 MiB are the least for 4 disks");
    spec->journals[0] = rig_disk(rig, 2);
    cr_assert_not_null(array_describe(&rig->t->loop, spec, out, why, sizeof why));
    cr_expect_str_eq(why, "disk disk2 is given twice: the journal needs a disk of its own");
    free(out);
    free(spec);
    rig_destroy(rig);
}

Test(journal_device, what_a_description_says_of_devices_is_checked)
{
    struct rig *rig = rig_with(4, RAID_6, SB_JOURNAL, 2);
    struct sb_label *label = calloc(1, sizeof *label), *read = calloc(1, sizeof *read);
    uint8_t *bytes = calloc(1, SB_SLOT_BYTES);
    label->array = *array_description(rig->array);
    label->member = label->array.members[0].uuid;
    label->array.journals[1].state = SB_JOURNAL_DOUBTFUL;
    cr_assert_gt(superblock_encode(label, bytes), 0);
    cr_assert_eq(superblock_decode(bytes, SB_SLOT_BYTES, read, NULL, 0), SB_VALID);
    cr_expect_arr_eq(&read->array.journals, &label->array.journals, sizeof read->array.journals);
    const struct sb_array good = label->array;
    struct sb_journal_device *of = label->array.journals;
    for (unsigned i = 0; i < 8; i++) {
        label->array = good;
        switch (i) {
        case 0:
            of[0].uuid = (struct uuid){0};
            break;
        case 1:
            of[1].uuid = of[0].uuid;
            break;
        case 2:
            of[1].bytes -= MIB;
            break;
        case 3:
            of[0].bytes = of[1].bytes = 5 * MIB;
            break;
        case 4:
            of[0].start = of[1].start = 4096;
            break;
        case 5:
            of[0].identity[0] = 1;
            break;
        case 6:
            of[0].state = (enum sb_journal_state)3;
            break;
        default:
            label->array.journals_count = 3;
        }
        cr_expect_not_null(superblock_check(label), "case %u", i);
    }
    free(bytes);
    free(label);
    free(read);
    rig_destroy(rig);
}

/* --- crashes --- */

static const struct crash_case {
    enum raid_level level;
    unsigned disks;
    enum sb_consistency policy;
    uint64_t len;     /* of the writes under way */
    unsigned without; /* disks that do not come back */
    unsigned devices;
    int away; /* device that does not come back, -1: none */
} crash_cases[] = {
    {RAID_5, 4, SB_PPL, 4096, 0, 1, -1},       {RAID_5, 4, SB_PPL, 4096, 8, 1, -1},
    {RAID_5, 4, SB_JOURNAL, 65536, 4, 1, -1},  {RAID_6, 5, SB_JOURNAL, 4096, 3, 1, -1},
    {RAID_6, 5, SB_JOURNAL, 40960, 24, 2, -1}, {RAID_6, 5, SB_JOURNAL, 4096, 17, 2, 0},
    {RAID_TP, 6, SB_JOURNAL, 4096, 7, 2, 1},
};

enum { OLD = 77, WRITES = 6, STRIDE = 192 * 1024 };

struct crash {
    struct rig *rig;
    uint64_t len;
    struct rig_write writes[WRITES];
};

static void crash_begin(struct crash *crash)
{
    cr_assert_eq(rig_fill(crash->rig, "v", OLD, 64 * KIB), BLK_OK);
    for (unsigned i = 0; i < WRITES; i++)
        rig_write_start(crash->rig, &crash->writes[i], "v", i * STRIDE, crash->len, i + 1);
}

/* Each write is then as before, or as after; what was acknowledged is there; and nothing else has changed. */
static void crash_check(struct crash *crash, const char *what, unsigned steps)
{
    uint8_t *old = malloc(2 * MIB), *now = malloc(2 * MIB), *new = malloc(crash->len);
    test_fill(old, 2 * MIB, OLD);
    for (uint64_t off = 0; off < 2 * MIB; off += MIB)
        cr_assert_eq(test_io(crash->rig->t, rig_volume(crash->rig), BLK_READ, 0, off, now + off, MIB), BLK_OK);
    for (unsigned i = 0; i < WRITES; i++) {
        uint8_t *was = old + i * STRIDE, *is = now + i * STRIDE;
        const struct rig_write *write = &crash->writes[i];
        test_fill(new, crash->len, i + 1);
        bool is_new = memcmp(is, new, crash->len) == 0, is_old = memcmp(is, was, crash->len) == 0;
        cr_expect(is_new || (is_old && !(write->over && write->req.status == BLK_OK)), "%s, %u: write %u is neither",
                  what, steps, i);
        memcpy(is, was, crash->len);
    }
    cr_expect(memcmp(old, now, 2 * MIB) == 0, "%s, %u: what was not being written is as it was", what, steps);
    free(old);
    free(now);
    free(new);
}

Test(journal_device, after_a_crash_and_a_loss_every_write_is_there_or_not)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(crash_cases); i++)
        for (unsigned steps = 0; steps < 60; steps += 7) {
            const struct crash_case *c = &crash_cases[i];
            struct crash *crash = calloc(1, sizeof *crash);
            crash->rig = rig_with(c->disks, c->level, c->policy, c->devices);
            crash->len = c->len;
            crash_begin(crash);
            rig_wait(crash->rig, steps * 20000);
            rig_kill(crash->rig);
            if (c->away >= 0)
                device_away(crash->rig, (unsigned)c->away);
            cr_assert(rig_assemble(crash->rig, ((1u << c->disks) - 1) & ~c->without, false), "case %u: %s", i,
                      crash->rig->message);
            crash_check(crash, raid_level_name(c->level), steps);
            rig_destroy(crash->rig);
            free(crash);
        }
}

Test(journal_device, what_is_logged_stands_on_the_devices_and_nowhere_else)
{
    struct rig *rig = rig_with(4, RAID_6, SB_JOURNAL, 2);
    rig_put(rig, 0, 4 * CHUNK, 1);
    rig_put(rig, 4096, 4096, 2);
    unsigned parts = entries_on_device(rig, 0);
    cr_expect_geq(parts, 3, "a chunk and two parities");
    cr_expect_eq(entries_on_device(rig, 1), parts);
    cr_expect_eq(entries_on_members(rig), 0);
    rig_destroy(rig);
}

Test(journal_device, a_ring_that_runs_full_goes_on)
{
    struct rig *rig = rig_with(4, RAID_6, SB_JOURNAL, 1);
    cr_assert_eq(rig_fill(rig, "v", OLD, 64 * KIB), BLK_OK);
    for (unsigned i = 0; i < 200; i++)
        rig_put(rig, i * 7 % 10 * STRIDE + i % 16 * 512, 100 * KIB, i + 1);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 12, false), "%s", rig->message);
    for (unsigned i = 190; i < 200; i++)
        cr_expect(rig_has(rig, i * 7 % 10 * STRIDE + i % 16 * 512, 100 * KIB, i + 1), "write %u after a crash", i);
    rig_destroy(rig);
}

/* --- a device fails while the array runs --- */

Test(journal_device, the_last_device_fails_and_the_members_take_over)
{
    struct rig *rig = rig_with(4, RAID_6, SB_JOURNAL, 1);
    rig_put(rig, 0, 4 * CHUNK, 1);
    struct uuid epoch = array_description(rig->array)->epoch;
    device_fails(rig, 0, 1 << BLK_WRITE, BLK_GONE);
    rig_put(rig, 4096, 4096, 2);
    cr_expect_str_eq(state_of(rig, 0), "lost");
    cr_expect_not(uuid_equal(&epoch, &array_description(rig->array)->epoch));
    cr_expect_geq(entries_on_members(rig), 3);
    rig_put(rig, 8192, 4096, 3);
    rig_kill(rig);
    device_away(rig, 0);
    cr_assert(rig_assemble(rig, 12, false), "without it, and two disks: %s", rig->message);
    cr_expect(rig_has(rig, 4096, 4096, 2) && rig_has(rig, 8192, 4096, 3));
    rig_destroy(rig);
}

Test(journal_device, one_of_two_fails_and_the_other_goes_on_alone)
{
    struct rig *rig = rig_with(4, RAID_6, SB_JOURNAL, 2);
    rig_put(rig, 0, 4 * CHUNK, 1);
    device_fails(rig, 0, 1 << BLK_WRITE, BLK_MEDIA);
    rig_put(rig, 4096, 4096, 2);
    cr_expect_str_eq(state_of(rig, 0), "lost");
    cr_expect_str_eq(state_of(rig, 1), "active");
    cr_expect_eq(entries_on_members(rig), 0);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 12, false), "both are there, and the one is not asked: %s", rig->message);
    cr_expect(rig_has(rig, 4096, 4096, 2));
    cr_expect_str_eq(state_of(rig, 0), "lost");
    cr_expect_str_eq(state_of(rig, 1), "active");
    rig_destroy(rig);
}

/* The device dies while writes are under way, and then the machine: with it, without it by force, or not needed. */
static void die_then_crash(unsigned die, unsigned steps, bool back)
{
    struct crash *crash = calloc(1, sizeof *crash);
    struct rig *rig = crash->rig = rig_with(5, RAID_6, SB_JOURNAL, 1);
    crash->len = 40960;
    crash_begin(crash);
    rig_wait(rig, die * 20000);
    device_fails(rig, 0, 1 << BLK_WRITE, BLK_GONE);
    rig_wait(rig, steps * 20000);
    bool given_up = array_description(rig->array)->journals[0].state == SB_JOURNAL_LOST;
    rig_kill(rig);
    if (!back)
        device_away(rig, 0);
    bool started = rig_assemble(rig, 31 & ~(back ? 3u : 0u), false);
    cr_expect(started || (!back && !given_up) || !back, "%s", rig->message);
    if (!started) {
        cr_expect_str_eq(rig->message,
                         "array r0 was not stopped cleanly, and its journal device log0 is not there: bring it back, "
                         "or start with apply --force, and blocks that were being written may be wrong");
        cr_assert(rig_assemble(rig, 31, true), "%s", rig->message);
        rig_settle(rig);
    }
    if (started)
        crash_check(crash, back ? "it is back" : "it is gone", die * 1000 + steps);
    rig_destroy(rig);
    free(crash);
}

Test(journal_device, it_dies_while_rows_are_written_and_then_the_machine)
{
    for (unsigned die = 0; die < 40; die += 9)
        for (unsigned steps = 1; steps < 90; steps += 11) {
            die_then_crash(die, steps, true);
            die_then_crash(die, steps, false);
        }
}

Test(journal_device, an_array_that_freezes_while_the_device_is_given_up_can_be_closed)
{
    for (unsigned steps = 0; steps < 60; steps += 3) {
        struct crash *crash = calloc(1, sizeof *crash);
        crash->rig = rig_with(5, RAID_6, SB_JOURNAL, 1);
        crash->len = 40960;
        crash_begin(crash);
        rig_wait(crash->rig, 15 * 20000);
        device_fails(crash->rig, 0, 1 << BLK_WRITE, BLK_GONE);
        rig_wait(crash->rig, steps * 20000);
        array_abandon(crash->rig->array);
        cr_expect_not(rig_close(crash->rig));
        rig_destroy(crash->rig);
        free(crash);
    }
}

/* --- it is away when the array is started --- */

Test(journal_device, away_after_a_clean_stop_the_members_take_over)
{
    struct rig *rig = rig_with(4, RAID_6, SB_JOURNAL, 1);
    rig_put(rig, 0, 4 * CHUNK, 1);
    cr_assert(rig_close(rig));
    struct array_disk device = rig->journals.disks[0];
    device_away(rig, 0);
    cr_assert(rig_assemble(rig, 15, false), "%s", rig->message);
    cr_expect_str_eq(state_of(rig, 0), "lost");
    rig_put(rig, 4096, 4096, 2);
    cr_expect_geq(entries_on_members(rig), 3);
    rig_kill(rig);
    rig->journals.disks[0] = device;
    cr_assert(rig_assemble(rig, 12, false), "the old one is back: %s", rig->message);
    cr_expect_str_eq(state_of(rig, 0), "lost");
    cr_expect(rig_has(rig, 4096, 4096, 2));
    rig_destroy(rig);
}

Test(journal_device, one_of_two_away_after_a_crash_the_other_goes_on)
{
    struct rig *rig = rig_with(4, RAID_6, SB_JOURNAL, 2);
    rig_put(rig, 0, 4 * CHUNK, 1);
    rig_put(rig, 4096, 4096, 2);
    rig_kill(rig);
    device_away(rig, 0);
    cr_assert(rig_assemble(rig, 12, false), "%s", rig->message);
    cr_expect_str_eq(state_of(rig, 0), "lost");
    cr_expect_str_eq(state_of(rig, 1), "active");
    cr_expect(rig_has(rig, 4096, 4096, 2));
    rig_destroy(rig);
}

Test(journal_device, without_it_after_a_crash_all_written_rows_are_suspect_until_the_array_is_clean)
{
    struct rig *rig = rig_with(4, RAID_6, SB_JOURNAL, 1);
    rig_put(rig, 0, 4 * CHUNK, 1);
    rig_put(rig, 4096, 4096, 2);
    rig_kill(rig);
    device_away(rig, 0);
    cr_assert_not(rig_assemble(rig, 15, false));
    cr_expect_eq(rig->error, -EAGAIN);
    for (unsigned i = 0; i < 2; i++) { /* again after another crash */
        cr_assert(rig_assemble(rig, 15, i == 0), "%s", rig->message);
        cr_expect_str_eq(state_of(rig, 0), "doubtful");
        cr_expect_eq(array_usage(rig->array, 0).dirty_bytes, 4 * CHUNK, "attempt %u", i);
        rig_kill(rig);
    }
    cr_assert(rig_assemble(rig, 15, false), "%s", rig->message);
    rig_settle(rig);
    cr_assert(rig_close(rig));
    cr_assert(rig_assemble(rig, 15, false), "%s", rig->message);
    cr_expect_str_eq(state_of(rig, 0), "lost");
    rig_put(rig, 4096, 4096, 3);
    rig_kill(rig);
    cr_assert(rig_assemble(rig, 12, false), "%s", rig->message);
    cr_expect_eq(array_usage(rig->array, 0).dirty_bytes, 0);
    cr_expect(rig_has(rig, 4096, 4096, 3));
    rig_destroy(rig);
}

Test(journal_device, an_array_whose_volumes_log_nothing_does_not_wait_for_it)
{
    struct rig *rig = rig_with(4, RAID_10, SB_BITMAP, 1);
    rig_put(rig, 0, 4 * CHUNK, 1);
    rig_kill(rig);
    device_away(rig, 0);
    cr_assert(rig_assemble(rig, 15, false), "%s", rig->message);
    cr_expect_str_eq(state_of(rig, 0), "lost");
    rig_destroy(rig);
}

/* --- it cannot be read --- */

Test(journal_device, a_ring_that_cannot_be_read_is_had_from_the_other_device)
{
    for (unsigned bad = 0; bad < 2; bad++) {
        struct rig *rig = rig_with(4, RAID_6, SB_JOURNAL, 2);
        rig_put(rig, 0, 4 * CHUNK, 1);
        rig_put(rig, 4096, 4096, 2);
        rig_kill(rig);
        struct fault_rule rule = {.ops = 1 << BLK_READ, .off = MIB + 8192, .len = 4096, .status = BLK_MEDIA};
        cr_assert_geq(fault_add(rig->journal_dev[bad], &rule), 0);
        cr_assert(rig_assemble(rig, 12, false), "%s", rig->message);
        cr_expect_str_eq(state_of(rig, bad), "lost");
        cr_expect_str_eq(state_of(rig, 1 - bad), "active");
        cr_expect(rig_has(rig, 4096, 4096, 2));
        rig_destroy(rig);
    }
}

Test(journal_device, the_only_one_cannot_be_read_and_the_array_waits)
{
    struct rig *rig = rig_with(4, RAID_6, SB_JOURNAL, 1);
    rig_put(rig, 0, 4 * CHUNK, 1);
    rig_kill(rig);
    struct fault_rule rule = {.ops = 1 << BLK_READ, .off = MIB, .len = LOG, .status = BLK_GONE, .count = 3};
    cr_assert_geq(fault_add(rig->journal_dev[0], &rule), 0);
    cr_assert_not(rig_assemble(rig, 15, false));
    cr_expect_eq(rig->error, -EIO);
    cr_assert(rig_assemble(rig, 15, false), "it was only once: %s", rig->message);
    cr_expect_str_eq(state_of(rig, 0), "active");
    rig_destroy(rig);
}
