#include <criterion/criterion.h>
#include <string.h>

#include "raid/patience.h"
#include "tests/unit/raid/arrays.h"

#define SECOND 1000000000ull
#define DISK   (40ull * MIB)
#define SIZE   (4 * MIB)

/* A rig whose disks have patience above the fault injectors. */
struct patient {
    struct rig *rig;
    struct blkdev *fault[RIG_DISKS];
};

static void patience_put(struct patient *p, unsigned slot)
{
    p->fault[slot] = p->rig->dev[slot];
    p->rig->dev[slot] = patience_create(&p->rig->t->loop, p->fault[slot], &(struct patience_options){0});
    cr_assert_not_null(p->rig->dev[slot]);
}

static struct patient patient_rig(unsigned disks, enum raid_level level)
{
    struct patient p = {.rig = rig_create(disks, DISK)};
    for (unsigned i = 0; i < disks; i++)
        patience_put(&p, i);
    cr_assert(rig_make_one(p.rig, level, SIZE), "%s", p.rig->message);
    cr_assert_eq(rig_fill(p.rig, "v", 1, MIB), BLK_OK);
    return p;
}

static void hang(struct patient *p, unsigned slot, unsigned ops, uint64_t ns, uint32_t count)
{
    cr_assert_geq(fault_add(p->fault[slot], &(struct fault_rule){.ops = ops, .delay_ns = ns, .count = count}), 0);
}

Test(array_hang, a_read_that_takes_long_is_had_elsewhere)
{
    static const struct {
        enum raid_level level;
        unsigned disks;
    } kinds[] = {{RAID_5, 4}, {RAID_6, 5}, {RAID_1, 2}, {RAID_10, 4}, {RAID_TP, 6}};
    for (unsigned i = 0; i < ARRAY_LENGTH(kinds); i++) {
        struct patient p = patient_rig(kinds[i].disks, kinds[i].level);
        hang(&p, 0, 1 << BLK_READ, 60 * SECOND, 2);
        uint64_t began = p.rig->t->loop.now_ns;
        cr_expect(rig_holds(p.rig, "v", 1));
        cr_expect_lt(p.rig->t->loop.now_ns - began, SECOND);
        struct array_member_info info = rig_info(p.rig).members[0];
        cr_expect_str_eq(info.state, "online");
        cr_expect_eq(info.read_errors, 0, "nothing is wrong with it");
        cr_expect(info.late >= 1 && info.late <= 2);
        cr_expect_eq(info.timed_out, 0);
        rig_wait(p.rig, 100 * SECOND);
        cr_expect(rig_holds(p.rig, "v", 1));
        rig_destroy(p.rig);
    }
}

Test(array_hang, what_cannot_be_had_elsewhere_is_waited_for)
{
    struct patient p = patient_rig(4, RAID_5);
    cr_assert(rig_fail(p.rig, 2), "%s", p.rig->message);
    hang(&p, 1, 1 << BLK_READ, 3 * SECOND, 1);
    uint64_t began = p.rig->t->loop.now_ns;
    cr_expect(rig_holds(p.rig, "v", 1));
    cr_expect_geq(p.rig->t->loop.now_ns - began, 3 * SECOND);
    cr_expect_eq(rig_info(p.rig).members[1].late, 0);
    rig_destroy(p.rig);

    p = patient_rig(2, RAID_1); /* the other copy cannot be read: known only when it was asked */
    hang(&p, 0, 1 << BLK_READ, 3 * SECOND, 1);
    fault_add(p.fault[1],
              &(struct fault_rule){
                  .ops = 1 << BLK_READ, .status = BLK_MEDIA, .until_written = true, .off = 20 * MIB, .len = 10 * MIB});
    cr_expect(rig_holds(p.rig, "v", 1));
    cr_expect_eq(rig_info(p.rig).members[0].late, 1);
    rig_destroy(p.rig);
}

enum { READS = 32 };
struct reads {
    struct {
        struct blk_req req;
        struct page *page;
    } of[READS];
    unsigned left;
};

static struct reads reads;

static void reads_done(struct blk_req *req)
{
    cr_expect_eq(req->status, BLK_OK);
    page_put(req->pages[0]);
    reads.left--;
}

/* Many at once, all over the volume. */
static void read_much(struct patient *p, uint64_t from)
{
    struct blkdev *dev = array_volume(p->rig->array, "v");
    for (unsigned i = 0; i < READS; i++) {
        cr_assert(page_pool_get(p->rig->t->loop.pages, &reads.of[i].page, 1));
        reads.of[i].req = (struct blk_req){.op = BLK_READ,
                                           .off = (from + i * 167936ull) % SIZE,
                                           .len = PAGE_BYTES,
                                           .pages = &reads.of[i].page,
                                           .done = reads_done};
        reads.left++;
        blk_submit(dev, &reads.of[i].req);
    }
    for (unsigned k = 0; k < 1000 && reads.left > 0; k++)
        rig_wait(p->rig, SECOND / 100);
    cr_assert_eq(reads.left, 0);
}

Test(array_hang, a_stall_of_some_seconds_fails_nobody)
{
    struct patient p = patient_rig(2, RAID_1);
    hang(&p, 0, 1 << BLK_READ, 9 * SECOND, READS);
    hang(&p, 1, 1 << BLK_READ, 9 * SECOND, 1);
    read_much(&p, 0);
    cr_expect_geq(rig_info(p.rig).members[0].timed_out, 3, "many, and one stall");
    cr_expect_str_eq(rig_info(p.rig).state, "optimal");
    rig_destroy(p.rig);
}

Test(array_hang, a_write_that_hangs_costs_the_disk_and_it_comes_back_only_when_it_has_answered)
{
    struct patient p = patient_rig(4, RAID_5);
    hang(&p, 1, 1 << BLK_WRITE, 60 * SECOND, 1);
    uint64_t began = p.rig->t->loop.now_ns;
    struct rig_write write = {0};
    rig_write_start(p.rig, &write, "v", 0, 65536, 9);
    for (unsigned i = 0; i < 8; i++) { /* enough to hit it */
        struct rig_write other = {0};
        rig_write_start(p.rig, &other, "v", (i + 1) * 65536, 65536, 10 + i);
        cr_assert(testloop_run_until(p.rig->t, &other.over));
        cr_expect_eq(other.req.status, BLK_OK);
    }
    cr_assert(testloop_run_until(p.rig->t, &write.over));
    cr_expect_eq(write.req.status, BLK_OK);
    uint64_t took = p.rig->t->loop.now_ns - began;
    cr_expect(took >= 8 * SECOND && took < 12 * SECOND, "%zu", (size_t)took);
    cr_expect_str_eq(rig_info(p.rig).members[1].state, "failed");
    cr_expect_not(rig_online(p.rig, 1));
    cr_expect(strstr(p.rig->message, "has not answered all requests yet") != NULL, "%s", p.rig->message);
    char why[256];
    cr_expect_not_null(array_take_back_disk(p.rig->array, 1, why, sizeof why));
    rig_wait(p.rig, 60 * SECOND);
    cr_expect(rig_online(p.rig, 1), "%s", p.rig->message);
    rig_settle(p.rig);
    cr_expect_str_eq(rig_info(p.rig).state, "optimal");
    rig_destroy(p.rig);
}

/* Neighbouring rows go to the new disk in one request; given up, none of them is written again before it has
 * answered. */
Test(array_hang, a_rebuild_whose_write_hangs_gives_the_disk_up_and_writes_nothing_twice)
{
    struct patient p = patient_rig(2, RAID_1);
    cr_assert(rig_fail(p.rig, 1));
    fault_clear(p.fault[1], -1);
    cr_expect(rig_online(p.rig, 1), "%s", p.rig->message);
    cr_assert_geq(fault_add(p.fault[1], &(struct fault_rule){.ops = 1 << BLK_WRITE,
                                                             .off = array_description(p.rig->array)->data_start,
                                                             .len = SIZE,
                                                             .delay_ns = 60 * SECOND,
                                                             .count = 1}),
                  0);
    rig_wait(p.rig, 20 * SECOND);
    cr_expect_str_eq(rig_info(p.rig).members[1].state, "failed");
    cr_assert_eq(rig_fill(p.rig, "v", 2, MIB), BLK_OK);
    rig_wait(p.rig, 60 * SECOND);
    cr_expect(rig_online(p.rig, 1), "%s", p.rig->message);
    rig_settle(p.rig);
    cr_assert(rig_fail(p.rig, 0));
    cr_expect(rig_holds(p.rig, "v", 2));
    rig_destroy(p.rig);
}

Test(array_hang, a_discard_that_hangs_costs_the_disk_too_since_it_may_come_after_a_write)
{
    struct patient p = patient_rig(2, RAID_1);
    for (unsigned slot = 0; slot < 2; slot++)
        p.rig->mem[slot]->dev.info.discards = p.fault[slot]->info.discards = p.rig->dev[slot]->info.discards = true;
    hang(&p, 1, 1 << BLK_DISCARD, 60 * SECOND, 1);
    struct blkdev *dev = array_volume(p.rig->array, "v");
    cr_expect_eq(test_io(p.rig->t, dev, BLK_DISCARD, 0, 0, NULL, 65536), BLK_OK);
    cr_expect_str_eq(rig_info(p.rig).members[1].state, "failed");
    cr_assert_eq(rig_fill(p.rig, "v", 1, MIB), BLK_OK);
    rig_wait(p.rig, 100 * SECOND);
    cr_expect(rig_online(p.rig, 1), "%s", p.rig->message);
    rig_settle(p.rig);
    cr_assert(rig_fail(p.rig, 0));
    cr_expect(rig_holds(p.rig, "v", 1));
    rig_destroy(p.rig);
}

Test(array_hang, an_array_is_closed_though_a_disk_hangs)
{
    struct patient p = patient_rig(4, RAID_6);
    hang(&p, 1, 0, 3600 * SECOND, 0);
    struct rig_write write = {0};
    for (unsigned i = 0; i < 2; i++) {
        rig_write_start(p.rig, &write, "v", i * MIB, 4096, 9);
        cr_assert(testloop_run_until(p.rig->t, &write.over));
        cr_expect_eq(write.req.status, BLK_OK);
    }
    uint64_t began = p.rig->t->loop.now_ns;
    cr_expect(rig_close(p.rig), "%s", p.rig->message);
    cr_expect_lt(p.rig->t->loop.now_ns - began, 30 * SECOND);
    fault_clear(p.fault[1], -1);
    cr_assert(rig_assemble(p.rig, 0xd, false), "%s", p.rig->message);
    rig_destroy(p.rig); /* what hung is answered meanwhile, and nothing is lost or freed twice */
}

Test(array_hang, a_disk_that_is_slower_than_its_peers_is_avoided)
{
    struct patient p = patient_rig(2, RAID_1);
    p.rig->mem[0]->latency_ns *= 10;
    for (unsigned i = 0; i < 5; i++) {
        for (unsigned k = 0; k < 40; k++)
            read_much(&p, k * PAGE_BYTES);
        rig_wait(p.rig, PEERS_WINDOW_NS);
    }
    cr_expect(rig_info(p.rig).members[0].slow);
    cr_expect_not(rig_info(p.rig).members[1].slow);
    uint64_t before[2] = {p.rig->mem[0]->reads, p.rig->mem[1]->reads};
    cr_assert(rig_holds(p.rig, "v", 1));
    cr_expect_eq(p.rig->mem[0]->reads, before[0], "nobody is in a hurry");
    cr_expect_gt(p.rig->mem[1]->reads, before[1]);
    rig_destroy(p.rig);
}
