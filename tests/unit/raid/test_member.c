#include <criterion/criterion.h>
#include <signal.h>

#include "core/check.h"
#include "raid/member.h"
#include "tests/unit/lib/testloop.h"

#define SECOND 1000000000ull

static struct member online(void)
{
    static struct blkdev dev; /* never asked anything */
    struct member m;
    member_init(&m, 3, &dev, 1 * MIB, MEMBER_ONLINE);
    return m;
}

Test(member, what_may_be_read_and_written_follows_from_the_state)
{
    static const struct {
        enum member_state state;
        bool readable, writable;
        const char *name;
    } table[] = {{MEMBER_ABSENT, false, false, "absent"},
                 {MEMBER_ONLINE, true, true, "online"},
                 {MEMBER_REBUILDING, false, true, "rebuilding"},
                 {MEMBER_FAILED, false, false, "failed"}};
    static struct blkdev dev;
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
        struct member m;
        member_init(&m, 0, table[i].state == MEMBER_ABSENT ? NULL : &dev, 0, table[i].state);
        cr_expect_eq(member_readable(&m), table[i].readable, "%s", table[i].name);
        cr_expect_eq(member_writable(&m), table[i].writable, "%s", table[i].name);
        cr_expect_str_eq(member_state_name(table[i].state), table[i].name);
    }
}

Test(member, a_failed_member_comes_back_by_a_rebuild_only, .signal = SIGABRT)
{
    struct member m = online();
    sm_move(&m.state, MEMBER_FAILED);
    sm_move(&m.state, MEMBER_ONLINE);
}

Test(member, media_errors_are_forgiven_up_to_20_and_count_half_after_an_hour)
{
    struct member m = online();
    for (unsigned i = 0; i < 20; i++)
        cr_expect_eq(member_error(&m, BLK_READ, BLK_MEDIA, i * 4096, i * SECOND), MEMBER_KEEP, "error %u", i);
    cr_expect_eq(member_error(&m, BLK_READ, BLK_MEDIA, 0, 33 * SECOND), MEMBER_FAIL);
    cr_expect_eq(m.read_errors, 21);
    cr_expect_eq(member_recent_errors(&m, 33 * SECOND), 21);
    cr_expect_eq(member_recent_errors(&m, 3600 * SECOND), 10);
    cr_expect_eq(member_recent_errors(&m, 4 * 3600 * SECOND), 1);
    cr_expect_eq(member_recent_errors(&m, 400 * 3600 * SECOND), 0);

    m = online();
    for (unsigned i = 0; i < 200; i++)
        cr_expect_eq(member_error(&m, BLK_READ, BLK_MEDIA, 0, i * 400 * SECOND), MEMBER_KEEP, "slow error %u", i);
}

Test(member, media_errors_of_one_physical_sector_are_one)
{
    struct member m = online();
    for (unsigned i = 0; i < 100; i++)
        cr_expect_eq(member_error(&m, BLK_READ, BLK_MEDIA, 8192 + i % 8 * 512, SECOND + i), MEMBER_KEEP);
    cr_expect_eq(m.read_errors, 100);
    cr_expect_eq(member_recent_errors(&m, SECOND), 1);
    (void)member_error(&m, BLK_READ, BLK_MEDIA, 12288, SECOND + 100);
    cr_expect_eq(member_recent_errors(&m, SECOND), 2, "another sector");
    for (unsigned i = 0; i < 18; i++)
        cr_expect_eq(member_error(&m, BLK_READ, BLK_MEDIA, 12288, (3 + i) * SECOND), MEMBER_KEEP, "again, later");
    cr_expect_eq(member_error(&m, BLK_READ, BLK_MEDIA, 12288, 30 * SECOND), MEMBER_FAIL);
}

Test(member, the_third_timeout_in_a_minute_fails_it)
{
    struct member m = online();
    cr_expect_eq(member_error(&m, BLK_READ, BLK_TIMEOUT, 0, 1 * SECOND), MEMBER_KEEP);
    cr_expect_eq(member_error(&m, BLK_READ, BLK_TIMEOUT, 0, 2 * SECOND), MEMBER_KEEP);
    cr_expect_eq(member_error(&m, BLK_READ, BLK_TIMEOUT, 0, 90 * SECOND), MEMBER_KEEP, "a new minute");
    cr_expect_eq(member_error(&m, BLK_READ, BLK_TIMEOUT, 0, 91 * SECOND), MEMBER_KEEP);
    for (unsigned i = 1; i < 30; i++)
        cr_expect_eq(member_error(&m, BLK_READ, BLK_TIMEOUT, 0, 91 * SECOND + i * SECOND / 100), MEMBER_KEEP,
                     "others of the same stall");
    cr_expect_eq(member_error(&m, BLK_READ, BLK_TIMEOUT, 0, 92 * SECOND), MEMBER_KEEP);
    cr_expect_eq(member_error(&m, BLK_READ, BLK_TIMEOUT, 0, 94 * SECOND), MEMBER_FAIL);
}

Test(member, failed_writes_and_vanished_devices_fail_it_at_once)
{
    static const struct {
        enum blk_op op;
        enum blk_status status;
        uint64_t read_errors, write_errors;
    } table[] = {{BLK_WRITE, BLK_MEDIA, 0, 1},          {BLK_WRITE, BLK_TIMEOUT, 0, 1}, {BLK_FLUSH, BLK_GONE, 0, 1},
                 {BLK_WRITE_ZEROES, BLK_NOSPACE, 0, 1}, {BLK_READ, BLK_GONE, 1, 0},     {BLK_READ, BLK_INVALID, 1, 0}};
    for (unsigned i = 0; i < ARRAY_LENGTH(table); i++) {
        struct member m = online();
        cr_expect_eq(member_error(&m, table[i].op, table[i].status, 0, SECOND), MEMBER_FAIL, "case %u", i);
        cr_expect_eq(m.read_errors, table[i].read_errors, "case %u", i);
        cr_expect_eq(m.write_errors, table[i].write_errors, "case %u", i);
    }
}
