/*
 * Who holds up others is cut.
 *
 * A command may hold pages that only the peer can free: its data do not come, a CmdSN before its own is missing, or its
 * answer is not taken. A connection with commands, or with something to send, is looked at every LOOK_NS. It is still
 * if it waits for its peer and next to nothing moved; answered pings and other small talk do not help it. It is cut if
 *
 *   - it is still at STARVING_LOOKS looks in a row, at each of which others waited in line for pages;
 *   - it is still at STILL_LOOKS looks in a row, and pages are scarce, or all it has left to do is to send.
 *
 * Who merely was suspended for a while, with nobody waiting, keeps its connection. What the disk works at never counts
 * against a peer, nor do commands in line for pages, nor the time while we do not read because pages are missing. One
 * late look is not enough for a cut: the loop itself may have been held up, with the data in the socket.
 */
#include "core/check.h"
#include "core/log.h"
#include "target/iscsi/connection.h"

#define SECOND   1000000000ull
#define LOOK_NS  SECOND
#define PAUSE_NS (2 * SECOND) /* a command none of whose bytes came for so long waits for its peer */
/* And for so long, while others wait, though the connection moves other data: 32 writes of 8 MiB at 40 Mbit/s. */
#define PAUSE_MAX_NS (60 * SECOND)
enum {
    STARVING_LOOKS = 2,
    STILL_LOOKS = 30,
    CRAWL_BYTES = 32 * KIB, /* less than this in LOOK_NS is next to nothing */
    SCARCE_FRACTION = 8,    /* scarce: less than one page in so many is free */
};

static bool state_in(const struct command *cmd, unsigned states)
{
    return cmd->page_state == PAGES_HELD && (states >> command_state(cmd) & 1);
}

/* How long some command has waited for the next byte of its data, or for its turn; 0: there is none. */
static uint64_t longest_pause_ns(const struct connection *conn)
{
    const struct command *cmd;
    uint64_t longest = 0;
    if (conn->session == NULL || conn->rx.blocked)
        return 0;
    TAILQ_FOREACH(cmd, &conn->session->live, link)
    if (state_in(cmd, SM_TO(COMMAND_RECEIVING) | SM_TO(COMMAND_WAITING)))
        longest = MAX(longest, loop_now_ns(conn->loop) - cmd->moved_ns);
    return longest;
}

static bool answers_hold_pages(const struct connection *conn)
{
    const struct command *cmd;
    if (conn->session == NULL)
        return false;
    TAILQ_FOREACH(cmd, &conn->session->live, link)
    if (state_in(cmd, SM_TO(COMMAND_SENDING)))
        return true;
    return false;
}

/* What the peer keeps us waiting for; NULL: nothing. */
static const char *still_because(struct connection *conn)
{
    struct stall *stall = &conn->stall;
    bool stored = conn->rx.stored - stall->stored_before >= CRAWL_BYTES;
    bool sent = conn->tx.sent - stall->sent_before >= CRAWL_BYTES;
    bool fetching = sent && conn->tx.stalled; /* what we ask it for may be behind what it is taking */
    uint64_t pause = longest_pause_ns(conn);
    stall->stored_before = conn->rx.stored;
    stall->sent_before = conn->tx.sent;
    if (conn->tx.stalled && !sent && (connection_phase(conn) == PHASE_ENDING || answers_hold_pages(conn)))
        return "takes no answers";
    if (pause >= PAUSE_MAX_NS || (pause >= PAUSE_NS && !stored && !fetching))
        return "does not send the data or the commands that are waited for";
    return NULL;
}

static bool is_to_be_cut(struct connection *conn, bool still)
{
    const struct page_pool *pool = conn->loop->pages;
    struct stall *stall = &conn->stall;
    bool scarce = page_pool_free(pool) < page_pool_size(pool) / SCARCE_FRACTION;
    bool starving = still && page_pool_waited_since(pool, PAGE_POOL_NOW, &conn->page_waiter);
    stall->still_looks = still ? stall->still_looks + 1 : 0;
    stall->starving_looks = starving ? stall->starving_looks + 1 : 0;
    return stall->starving_looks >= STARVING_LOOKS ||
           (stall->still_looks >= STILL_LOOKS && (scarce || connection_phase(conn) == PHASE_ENDING));
}

static bool worth_a_look(const struct connection *conn)
{
    return conn->tx.stalled || (conn->session != NULL && !TAILQ_EMPTY(&conn->session->live));
}

static void look(struct timer *timer)
{
    struct connection *conn = container_of(timer, struct connection, stall.timer);
    const char *why = still_because(conn);
    if (is_to_be_cut(conn, why != NULL)) {
        log_notice("iSCSI: %s: disconnected: it holds memory and %s", conn->peer, why);
        connection_drop(conn, "stalled");
    } else if (worth_a_look(conn)) {
        timer_start(conn->loop, timer, LOOK_NS);
    }
}

void stall_watch(struct connection *conn)
{
    struct stall *stall = &conn->stall;
    if (stall->timer.armed || !worth_a_look(conn))
        return;
    *stall = (struct stall){.timer.fire = look, .stored_before = conn->rx.stored, .sent_before = conn->tx.sent};
    timer_start(conn->loop, &stall->timer, LOOK_NS);
}
