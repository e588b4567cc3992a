/* Peers that hold pages and do nothing: who is cut, when, and who is not. */
#include "core/page.h"
#include "tests/unit/target/initiator.h"

enum { POOL = 40, LARGE = 65536 }; /* pages beside those of the SCSI layer; a large command takes 16 */

static const uint64_t second = 1000000000;
static uint8_t data[LARGE];

/* Another user of the pool, who waits in line. */
struct other {
    struct page_waiter waiter;
    struct page_pool *pool;
    struct page *pages[POOL + SCSI_SCRATCH_PAGES];
    bool served;
};

static void other_served(struct page_waiter *waiter)
{
    struct other *other = container_of(waiter, struct other, waiter);
    other->served = page_pool_take(other->pool, other->pages, waiter->count);
}

static void other_wait(struct other *other, struct ini_rig *rig)
{
    *other = (struct other){.pool = rig->t->loop.pages};
    other->waiter = (struct page_waiter){.ready = other_served, .count = page_pool_free(other->pool) + 1};
    page_pool_wait(other->pool, &other->waiter);
}

static void other_leave(struct other *other)
{
    page_pool_wait_cancel(other->pool, &other->waiter);
    if (other->served)
        page_put_all(other->pages, other->waiter.count);
}

static void send_large(struct ini *ini, bool write, uint8_t bhs[PDU_BHS_BYTES], uint32_t immediate)
{
    uint8_t cdb[16];
    ini_cdb_rw(cdb, write, 0, LARGE / 512);
    ini_command(ini, bhs, (uint8_t)(INI_F | (write ? INI_W : INI_R)), LARGE, cdb);
    ini_send(ini, bhs, data, immediate);
    ini_run(ini);
}

static void no_data_after_r2t(struct ini *ini)
{
    uint8_t bhs[PDU_BHS_BYTES];
    send_large(ini, true, bhs, 0);
    ini_expect(ini, PDU_R2T, NULL, NULL, 0);
}

static void a_gap_in_cmd_sn(struct ini *ini)
{
    uint8_t bhs[PDU_BHS_BYTES];
    ini->cmd_sn++;
    send_large(ini, true, bhs, LARGE);
}

static void half_a_pdu(struct ini *ini)
{
    uint8_t bhs[PDU_BHS_BYTES], cdb[16];
    ini_cdb_rw(cdb, true, 0, LARGE / 512);
    ini_command(ini, bhs, INI_F | INI_W, LARGE, cdb);
    put_be24(bhs + 5, LARGE);
    teststream_feed(ini->s, bhs, sizeof bhs);
    teststream_feed(ini->s, data, 100);
    ini_run(ini);
}

static void no_answer_taken(struct ini *ini)
{
    uint8_t bhs[PDU_BHS_BYTES];
    ini->s->send_window = 100;
    send_large(ini, false, bhs, 0);
}

static const struct {
    const char *what;
    void (*begin)(struct ini *);
    bool listens; /* would hear an asynchronous message */
} stalls[] = {
    {"no data after R2T", no_data_after_r2t, true},
    {"a gap in CmdSN", a_gap_in_cmd_sn, true},
    {"half a PDU", half_a_pdu, true},
    {"an answer that is not taken", no_answer_taken, false},
};

/* The peer is alive: a ping of its own each second, which is answered if there is room. */
static void pass_with_pings(struct ini *ini, unsigned seconds, bool pings)
{
    for (unsigned i = 0; i < seconds && !ini->s->closed; i++) {
        uint8_t bhs[PDU_BHS_BYTES];
        if (pings) {
            ini_request(ini, bhs, 0x40 | PDU_NOP_OUT, 0x80);
            ini_send(ini, bhs, NULL, 0);
            ini_expect(ini, PDU_NOP_IN, NULL, NULL, 0);
        }
        ini_pass_time(ini->rig, second);
    }
}

static struct ini *stalling(unsigned i, uint32_t pages)
{
    struct ini *ini = ini_session(ini_rig_make(pages, (struct iscsi_limits){0}), 1, "FirstBurstLength=65536");
    stalls[i].begin(ini);
    cr_assert_not(ini->s->closed);
    return ini;
}

Test(iscsi_stall, a_peer_that_holds_up_others_is_cut_soon_though_it_answers_pings)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(stalls); i++) {
        struct ini *ini = stalling(i, POOL);
        struct ini_rig *rig = ini->rig;
        struct other other;
        bool pings = stalls[i].begin == no_data_after_r2t || stalls[i].begin == a_gap_in_cmd_sn;
        uint8_t async[PDU_BHS_BYTES];
        other_wait(&other, rig);
        pass_with_pings(ini, 1, pings);
        cr_expect_not(ini->s->closed, "%s: not yet", stalls[i].what);
        pass_with_pings(ini, 4, pings);
        cr_expect(ini->s->closed, "%s", stalls[i].what);
        cr_expect(other.served, "%s: the other has pages", stalls[i].what);
        if (stalls[i].listens) {
            ini_expect(ini, PDU_ASYNC, async, NULL, 0);
            cr_expect_eq(async[36], 2, "%s: the connection will be dropped", stalls[i].what);
        }
        other_leave(&other);
        ini_drop(ini);
        ini_rig_drop(rig);
    }
}

Test(iscsi_stall, with_nobody_waiting_it_is_cut_only_if_pages_are_scarce)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(stalls); i++)
        for (unsigned scarce = 0; scarce < 2; scarce++) {
            struct ini *ini = stalling(i, POOL);
            struct ini_rig *rig = ini->rig;
            struct page_pool *pool = rig->t->loop.pages;
            struct page *held[POOL];
            uint32_t count = scarce ? page_pool_free(pool) - 3 : 0;
            cr_assert(page_pool_get(pool, held, count));
            ini_pass_time(rig, 29 * second);
            cr_expect_not(ini->s->closed, "%s: not yet", stalls[i].what);
            ini_pass_time(rig, 4 * second);
            cr_expect_eq(ini->s->closed, scarce, "%s: scarce %u", stalls[i].what, scarce);
            if (count > 0)
                page_put_all(held, count);
            ini_drop(ini);
            ini_rig_drop(rig);
        }
}

Test(iscsi_stall, a_disk_that_hangs_is_not_the_peers_fault)
{
    struct ini_rig *rig = ini_rig_make(POOL, (struct iscsi_limits){0});
    struct ini *ini = ini_session(rig, 1, "InitialR2T=No|FirstBurstLength=65536");
    struct other other;
    uint8_t bhs[4][PDU_BHS_BYTES];
    ini_hang(rig, true);
    send_large(ini, true, bhs[0], LARGE);
    send_large(ini, false, bhs[1], 0);
    send_large(ini, true, bhs[2], LARGE); /* no pages: reading stops in front of its data */
    send_large(ini, false, bhs[3], 0);
    other_wait(&other, rig);
    ini_pass_time(rig, 500 * second);
    ini_expect_silence(ini);
    cr_expect_not(other.served);
    other_leave(&other);
    for (unsigned i = 0; i < 4; i++)
        ini_pass_time(rig, 1000 * second);
    for (unsigned i = 0; i < 4; i++)
        cr_expect_eq(ini_answer(ini).status, 0, "command %u", i);
    ini_drop(ini);
    ini_rig_drop(rig);
}

Test(iscsi_stall, slow_data_are_waited_for_and_so_is_a_loop_that_was_late)
{
    struct ini_rig *rig = ini_rig_make(POOL, (struct iscsi_limits){0});
    struct ini *ini = ini_session(rig, 1, "");
    struct other other;
    uint8_t bhs[PDU_BHS_BYTES], r2t[PDU_BHS_BYTES];
    enum { PART = 512 };
    send_large(ini, true, bhs, 0);
    ini_expect(ini, PDU_R2T, r2t, NULL, 0);
    other_wait(&other, rig);
    for (uint32_t at = 0; at < LARGE - PART; at += PART) {
        ini_data_out(ini, bhs, get_be32(r2t + 20), at / PART, at, false, data, PART);
        ini_pass_time(rig, second);
        cr_assert_not(ini->s->closed, "at %u", at);
    }
    ini_data_out(ini, bhs, get_be32(r2t + 20), LARGE / PART - 1, LARGE - PART, true, data, PART);
    rig->t->loop.now_ns += 100 * second; /* the data were there in time */
    ini_run(ini);
    cr_expect_eq(ini_answer(ini).status, 0);
    cr_expect(other.served);
    other_leave(&other);
    ini_drop(ini);
    ini_rig_drop(rig);
}

Test(iscsi_stall, other_data_help_for_a_minute_only)
{
    struct ini_rig *rig = ini_rig_make(POOL, (struct iscsi_limits){0});
    struct ini *ini = ini_session(rig, 1, "FirstBurstLength=65536");
    struct other other;
    no_data_after_r2t(ini);
    other_wait(&other, rig);
    page_pool_wait_cancel(other.pool, &other.waiter);
    other.waiter.count = 30;
    uint8_t cdb[16], bhs[PDU_BHS_BYTES], r2t[PDU_BHS_BYTES];
    unsigned seconds = 0;
    for (; !ini->s->closed && seconds < 100; seconds++) {
        ini_cdb_rw(cdb, true, 0, 64);
        ini_command(ini, bhs, INI_F | INI_W, 32768, cdb);
        ini_send(ini, bhs, NULL, 0);
        ini_expect(ini, PDU_R2T, r2t, NULL, 0);
        page_pool_wait(other.pool, &other.waiter);
        ini_data_out(ini, bhs, get_be32(r2t + 20), 0, 0, true, data, 32768);
        cr_assert_eq(ini_answer(ini).status, 0);
        ini_pass_time(rig, second);
        page_pool_wait_cancel(other.pool, &other.waiter);
    }
    cr_expect(seconds >= 60 && seconds < 65, "%u seconds", seconds);
    cr_expect(other.served);
    other_leave(&other);
    ini_drop(ini);
    ini_rig_drop(rig);
}

Test(iscsi_stall, a_peer_that_waits_in_line_itself_holds_up_nobody)
{
    struct ini_rig *rig = ini_rig_make(POOL, (struct iscsi_limits){0});
    struct ini *ini = ini_session(rig, 1, "");
    uint8_t bhs[PDU_BHS_BYTES];
    for (unsigned i = 0; i < 4; i++)
        send_large(ini, true, bhs, 0);
    ini_pass_time(rig, 20 * second);
    cr_expect_not(ini->s->closed);
    ini_drop(ini);
    ini_rig_drop(rig);
}

Test(iscsi_stall, a_peer_that_logs_out_and_does_not_take_the_answer_is_cut)
{
    struct ini_rig *rig = ini_rig_make(POOL, (struct iscsi_limits){.nop_interval_ns = 5 * second});
    struct ini *ini = ini_session(rig, 1, "");
    uint8_t bhs[PDU_BHS_BYTES];
    ini->s->send_window = 0;
    ini_request(ini, bhs, PDU_LOGOUT, 0x80);
    ini_send(ini, bhs, NULL, 0);
    ini_pass_time(rig, 25 * second);
    cr_expect_not(ini->s->closed);
    ini_pass_time(rig, 10 * second);
    ini_expect_closed(ini);
    ini_drop(ini);
    ini_rig_drop(rig);
}
