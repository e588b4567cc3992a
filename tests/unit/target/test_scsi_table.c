/* The table of commands: its order, its usage maps, and what follows from them. */
#include <criterion/criterion.h>

#include "core/check.h"
#include "target/scsi/command_table.h"
#include "tests/unit/target/scsi_rig.h"

Test(scsi_table, rows_are_in_ascending_order_and_each_is_found)
{
    unsigned count;
    const struct scsi_command *rows = scsi_commands(&count);
    cr_expect_geq(count, 38);
    for (unsigned i = 0; i < count; i++) {
        uint8_t cdb[SCSI_CDB_MAX] = {rows[i].opcode, rows[i].action};
        cr_expect_eq(scsi_command_find(cdb, NULL), &rows[i], "%s", rows[i].name);
        if (i > 0)
            cr_expect_lt(rows[i - 1].opcode * 32 + rows[i - 1].action, rows[i].opcode * 32 + rows[i].action, "%s",
                         rows[i].name);
    }
}

Test(scsi_table, cdb_length_follows_the_group_and_the_usage_map_starts_with_the_opcode)
{
    static const uint8_t group_len[8] = {6, 10, 10, 0, 16, 12, 0, 0};
    unsigned count;
    const struct scsi_command *rows = scsi_commands(&count);
    for (unsigned i = 0; i < count; i++) {
        cr_expect_eq(rows[i].cdb_len, group_len[rows[i].opcode >> 5], "%s", rows[i].name);
        cr_expect_eq(rows[i].usage[0], rows[i].opcode, "%s", rows[i].name);
        for (unsigned at = rows[i].cdb_len - 1u; at < SCSI_CDB_MAX; at++)
            cr_expect_eq(rows[i].usage[at], 0, "%s: byte %u", rows[i].name, at);
        if (rows[i].has_action)
            cr_expect_eq(rows[i].usage[1] & CDB_ACTION_MASK, rows[i].action, "%s", rows[i].name);
        if (rows[i].length_bytes > 0)
            for (unsigned b = 0; b < rows[i].length_bytes; b++)
                cr_expect_eq(rows[i].usage[rows[i].length_at + b], 0xff, "%s: length", rows[i].name);
    }
}

static void expect_bit_refused(struct rig *rig, const struct scsi_command *row, unsigned at, uint8_t bit)
{
    uint8_t cdb[SCSI_CDB_MAX] = {row->opcode, row->action};
    cdb[at] |= bit;
    const char *outcome = rig_outcome(rig_do(rig, rig->a, cdb, NULL, 0));
    cr_expect_str_eq(outcome, "5/24/00", "%s: byte %u bit %02x gave %s", row->name, at, bit, outcome);
}

Test(scsi_table, every_reserved_bit_of_every_command_is_refused)
{
    struct rig *rig = rig_create(&(struct rig_options){.removable = true});
    rig->disk->dev.info.atomic_write = 4096;
    unsigned count;
    const struct scsi_command *rows = scsi_commands(&count);
    for (unsigned i = 0; i < count; i++)
        for (unsigned at = 1; at < rows[i].cdb_len - 1u; at++)
            for (unsigned bit = 1; bit <= 0x80; bit <<= 1) {
                bool action = at == 1 && rows[i].has_action && bit <= 0x10;
                if (!action && !(rows[i].usage[at] & bit))
                    expect_bit_refused(rig, &rows[i], at, (uint8_t)bit);
            }
    rig_destroy(rig);
}

Test(scsi_table, naca_is_refused_and_the_vendors_bits_of_control_are_not)
{
    struct rig *rig = rig_create(NULL);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0x00, 0, 0, 0, 0, 0x04);
    EXPECT_OUTCOME(rig, rig->a, "good", NULL, 0, 0x00, 0, 0, 0, 0, 0xc0);
    rig_destroy(rig);
}

Test(scsi_table, what_is_not_a_row_is_an_invalid_opcode)
{
    struct rig *rig = rig_create(NULL);
    EXPECT_OUTCOME(rig, rig->a, "5/20/00", NULL, 0, 0xff);
    EXPECT_OUTCOME(rig, rig->a, "5/24/00", NULL, 0, 0x9e, 0x13);
    EXPECT_OUTCOME(rig, rig->a, "5/20/00", NULL, 0, 0x04); /* FORMAT UNIT */
    rig_destroy(rig);
}

Test(scsi_table, commands_by_halving_find_nothing_at_the_ends)
{
    uint8_t below[SCSI_CDB_MAX] = {0x01}, above[SCSI_CDB_MAX] = {0xff}, action[SCSI_CDB_MAX] = {0xa3, 0x1f};
    cr_expect_null(scsi_command_find(below, NULL));
    cr_expect_null(scsi_command_find(above, NULL));
    cr_expect_null(scsi_command_find(action, NULL));
}
