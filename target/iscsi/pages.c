/*
 * Pages for commands: all of a command's or none, in line, so that progress is certain.
 *
 * A command holds its pages from before its first byte of data until its answer has left. Who finds none waits in the
 * connection's line, whose head waits in the pool's. A command whose data do not come unasked waits while the socket is
 * read on. One whose data come next stops the reading, and goes to the head of the line: it must not wait for others of
 * its own connection, whose data can only come behind its own (transfer.c refuses it if one of those has pages
 * already).
 */
#include "core/check.h"
#include "target/iscsi/connection.h"

static void hold(struct command *cmd)
{
    cmd->page_state = PAGES_HELD;
    cmd->moved_ns = loop_now_ns(cmd->conn->loop);
}

static void grant(struct command *cmd)
{
    struct connection *conn = cmd->conn;
    TAILQ_REMOVE(&conn->page_line, cmd, page_link);
    TAILQ_INSERT_TAIL(&conn->page_granted, cmd, page_link);
    cmd->page_state = PAGES_GRANTED;
}

/* From within page_put(): take, and leave the rest to the ready list. */
static void pool_has_pages(struct page_waiter *waiter)
{
    struct connection *conn = container_of(waiter, struct connection, page_waiter);
    struct command *cmd = TAILQ_FIRST(&conn->page_line);
    bool taken = page_pool_take(conn->loop->pages, cmd->pages, cmd->page_count);
    ASSERT(taken);
    grant(cmd);
    if (!conn->resume_task.queued)
        loop_defer(conn->loop, &conn->resume_task);
}

static void line_wait(struct connection *conn)
{
    struct command *first = TAILQ_FIRST(&conn->page_line);
    page_pool_wait_cancel(conn->loop->pages, &conn->page_waiter);
    if (first == NULL)
        return;
    conn->page_waiter.count = first->page_count;
    page_pool_wait(conn->loop->pages, &conn->page_waiter);
}

/* While reading is stopped for the head of the line, nobody behind it gets pages. */
static void line_advance(struct connection *conn)
{
    struct command *first;
    if (conn->page_waiter.waiting)
        return;
    while (!conn->rx.blocked && (first = TAILQ_FIRST(&conn->page_line)) != NULL) {
        if (!page_pool_get(conn->loop->pages, first->pages, first->page_count)) {
            line_wait(conn);
            return;
        }
        grant(first);
    }
}

static void resume(struct task *task)
{
    struct connection *conn = container_of(task, struct connection, resume_task);
    struct command *cmd;
    if (conn->stream == NULL)
        return;
    line_advance(conn);
    while ((cmd = TAILQ_FIRST(&conn->page_granted)) != NULL) {
        TAILQ_REMOVE(&conn->page_granted, cmd, page_link);
        hold(cmd);
        if (conn->rx.blocked && conn->rx.command == cmd)
            conn->rx.blocked = false;
        if (cmd->pdu.opcode == PDU_COMMAND)
            transfer_advance(cmd);
    }
    line_advance(conn);
    if (!TAILQ_EMPTY(&conn->page_granted))
        loop_defer(conn->loop, &conn->resume_task);
    receive_run(conn);
}

void pages_init(struct connection *conn)
{
    TAILQ_INIT(&conn->page_line);
    TAILQ_INIT(&conn->page_granted);
    conn->page_waiter.ready = pool_has_pages;
    conn->resume_task.run = resume;
}

bool pages_acquire(struct command *cmd)
{
    struct connection *conn = cmd->conn;
    if (cmd->page_count == 0)
        return true;
    if (!TAILQ_EMPTY(&conn->page_line) || !page_pool_get(conn->loop->pages, cmd->pages, cmd->page_count))
        return false;
    hold(cmd);
    return true;
}

void pages_wait(struct command *cmd, bool front)
{
    struct connection *conn = cmd->conn;
    cmd->page_state = PAGES_WAITING;
    if (front)
        TAILQ_INSERT_HEAD(&conn->page_line, cmd, page_link);
    else
        TAILQ_INSERT_TAIL(&conn->page_line, cmd, page_link);
    if (front || !conn->page_waiter.waiting)
        line_wait(conn);
}

/* The command is over: out of the line, and its pages back. */
void pages_leave(struct command *cmd)
{
    struct connection *conn = cmd->conn;
    enum page_state state = cmd->page_state;
    cmd->page_state = PAGES_NONE;
    if (state == PAGES_WAITING) {
        bool first = cmd == TAILQ_FIRST(&conn->page_line);
        TAILQ_REMOVE(&conn->page_line, cmd, page_link);
        if (first)
            line_wait(conn);
    }
    if (state == PAGES_GRANTED)
        TAILQ_REMOVE(&conn->page_granted, cmd, page_link);
    if (state == PAGES_GRANTED || state == PAGES_HELD)
        page_put_all(cmd->pages, cmd->page_count);
}
