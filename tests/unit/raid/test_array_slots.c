/* What an empty slot needs, and giving up the disk that was in it. */
#include <criterion/criterion.h>

#include <string.h>

#include "tests/unit/raid/arrays.h"

enum { DISK = 40 * 1024 * 1024 };

Test(array_slots, a_slot_needs_a_disk_when_its_loss_is_on_disk)
{
    struct rig *rig = rig_create(5, DISK);
    struct array_slot_need need;
    cr_assert(rig_make_one(rig, RAID_6, 4 * MIB), "%s", rig->message);
    cr_expect_not(array_slot_need(rig->array, 1, &need));
    cr_assert(rig_fail(rig, 1), "%s", rig->message);
    cr_assert(array_slot_need(rig->array, 1, &need));
    cr_expect_gt(need.bytes, 32 * MIB);
    cr_expect_leq(need.bytes, DISK);
    cr_expect_eq(need.logical_block, 512);
    cr_expect_eq(need.tolerance, 1);
    cr_assert(rig_fail(rig, 4), "%s", rig->message);
    cr_assert(array_slot_need(rig->array, 4, &need));
    cr_expect_eq(need.tolerance, 0);
    rig_disk_replace(rig, 1, need.bytes, 512);
    cr_assert(rig_online(rig, 1), "a disk of just that size: %s", rig->message);
    cr_expect_not(array_slot_need(rig->array, 1, &need));
    rig_settle(rig);
    rig_destroy(rig);
}

Test(array_slots, a_slot_that_is_merely_absent_asks_for_nothing)
{
    struct rig *rig = rig_create(3, DISK);
    struct array_slot_need need;
    cr_assert(rig_make_one(rig, RAID_5, 4 * MIB), "%s", rig->message);
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(rig_assemble(rig, 0x3, false), "%s", rig->message);
    cr_expect_not(array_slot_need(rig->array, 2, &need));
    rig_destroy(rig);
}

Test(array_slots, a_disk_that_is_forgotten_is_a_stranger_when_it_comes_back)
{
    struct rig *rig = rig_create(4, DISK);
    cr_assert(rig_make_one(rig, RAID_5, 4 * MIB), "%s", rig->message);
    cr_assert_eq(rig_fill(rig, "v", 1, 256 * KIB), BLK_OK);
    cr_expect_not(rig_forget(rig, 2));
    cr_expect(strstr(rig->message, "take it out of service first") != NULL, "%s", rig->message);
    cr_expect_not(rig_forget(rig, 9));
    cr_assert(rig_fail(rig, 2), "%s", rig->message);
    cr_assert(rig_forget(rig, 2), "%s", rig->message);
    cr_expect_str_eq(array_description(rig->array)->members[2].identity, "");
    cr_assert(rig_close(rig), "%s", rig->message);
    cr_assert(rig_assemble(rig, 0xf, false), "%s", rig->message);
    cr_expect_str_eq(rig_info(rig).members[2].state, "failed");
    cr_expect_not(rig_info(rig).members[2].present);
    cr_expect(rig_holds(rig, "v", 1));
    rig_disk_replace(rig, 2, DISK, 512);
    cr_assert(rig_online(rig, 2), "%s", rig->message);
    rig_settle(rig);
    cr_expect_str_eq(rig_info(rig).state, "optimal");
    rig_destroy(rig);
}

Test(array_slots, a_volume_without_redundancy_keeps_its_disk_in_mind)
{
    struct rig *rig = rig_create(4, DISK);
    struct array_spec *spec = rig_spec(rig);
    rig_spec_add(spec, "v", RAID_5, 4 * MIB);
    rig_spec_add(spec, "w", RAID_0, 4 * MIB);
    cr_assert(rig_make(rig, spec), "%s", rig->message);
    fault_kill(rig->dev[1]);
    cr_expect_neq(rig_fill(rig, "v", 1, 256 * KIB), BLK_MEDIA);
    rig_wait(rig, 2000000000);
    cr_expect_not(rig_forget(rig, 1));
    cr_expect(strstr(rig->message, "would be lost") != NULL, "%s", rig->message);
    rig_destroy(rig);
}
