/*
 * One connection: a stream, its receiver and sender, its login and then its session (one connection a session).
 *
 * Where it lives: it begins on the server's loop; when login has named a target it moves to that target's loop with all
 * it has (server.c), and its login goes on there. It ends where it is then: connection_close() lets go of the stream at
 * once, aborts what the disk still works at, and when the last of that is back hands the memory to the server's loop,
 * which alone allocates and frees connections. So nothing that is late finds freed memory, and nobody waits for a disk.
 *
 *      LOGIN <-> MOVING
 *        |  \______________________
 *        v                         v
 *      FULL ------> ENDING ----> CLOSED      ENDING: what is in line is sent, nothing is read any more
 *        |________________________/
 *
 * The files: connection.c life and dispatch; receive.c and send.c the two directions; transfer.c SCSI commands and
 * their data; stall.c peers that hold up others; task.c task management; text.c SendTargets; control.c NOP, logout,
 * reject, asynchronous messages; stats.c what is counted; portals.c addresses of targets; server.c targets, loops,
 * drain. Below them, pure: pdu.c, keys.c, login.c; and session.c.
 */
#ifndef TARGET_ISCSI_CONNECTION_H
#define TARGET_ISCSI_CONNECTION_H

#include "core/sm.h"
#include "target/iscsi/login.h"
#include "target/iscsi/send.h"
#include "target/iscsi/session.h"
#include "target/refusals.h"

enum connection_phase { PHASE_LOGIN, PHASE_MOVING, PHASE_FULL_FEATURE, PHASE_ENDING, PHASE_CLOSED };
enum { NOTICES = 8, ADDRESS_MAX = 64 };

struct iscsi_target {
    TAILQ_ENTRY(iscsi_target) link;
    struct scsi_target *scsi;
    struct loop *loop;
    char name[ISCSI_NAME_MAX + 1], alias[256];
    TAILQ_HEAD(, connection) sessions; /* on `loop` */
    uint16_t last_tsih;                /* on `loop` */
    struct refusals refusals;          /* on `loop` */
    struct access_list *access;        /* the server's; NULL: everybody may */
    uint16_t groups[ISCSI_GROUPS_MAX]; /* of portals; constant while there are sessions */
    unsigned group_count;              /* 0: all */
    char redirect[ADDRESS_MAX];        /* the server's; "": none */
    bool redirect_permanent;
    struct task *removed; /* the server's: it is being removed; run when its last session is gone */
};

/* What SendTargets tells besides the address that a stream came by. */
enum { PORTALS_MAX = 64 };
struct portal_list {
    uint32_t count; /* grows after its entry is complete: other loops read it */
    struct portal {
        uint16_t group;
        char address[ADDRESS_MAX];
    } portals[PORTALS_MAX];
};

/* A PDU the target sends of its own accord, or a Reject: from a small pool; when that is dry, reading stops. */
struct notice {
    struct message message;
    uint8_t bytes[PDU_BHS_BYTES];
    TAILQ_ENTRY(notice) link;
};
TAILQ_HEAD(notice_list, notice);

enum receive_sink { SINK_DISCARD, SINK_COMMAND, SINK_LOGIN };
enum { RECEIVE_BYTES = 64 << 10 };

struct receiver {
    struct pdu_reader reader;
    uint8_t *buffer;
    uint32_t start, end; /* bytes not looked at yet */
    struct pdu pdu;      /* the PDU being received */
    enum receive_sink sink;
    struct command *command; /* whose data this is: a SCSI command, or the request itself; may be NULL */
    struct burst *burst;     /* Data-Out: the run it continues */
    uint64_t at;             /* where the next byte goes, counting from pages[0] */
    uint32_t room;           /* bytes that are kept; the rest is dropped */
    bool blocked;            /* no pages for the data that comes next */
    bool rejected;           /* this PDU was: one Reject is enough */
    uint64_t stored;         /* bytes of data put into pages so far */
};

/* A text request over several PDUs, and its answer over several: text.c. */
struct text_exchange {
    uint32_t ttt;  /* PDU_TAG_NONE: none under way */
    uint32_t len;  /* of text put together so far, in conn->text */
    bool replying; /* an answer has not left yet: its bytes must stay */
    char *answer;  /* NULL: none */
    uint32_t answer_len, answer_sent;
};

/* Looks at whether the peer moves: stall.c. */
struct stall {
    struct timer timer;
    uint64_t stored_before, sent_before;
    unsigned still_looks, starving_looks; /* in a row */
};

/* The initiator's port, 4.2.7.1: settled when the login has named the target, and then for all loops to read. */
struct initiator_port {
    char name[ISCSI_NAME_MAX + 1];
    uint8_t isid[6];
};

/* An order of the server to a connection on whatever loop: see server.c. */
enum order { ORDER_NONE, ORDER_DRAIN, ORDER_CUT };

/* What a connection needs from when it has something to say; before that no page of it is touched. */
struct connection_store {
    struct iovec iov[SEND_IOV];
    struct sent_pdu pdus[SEND_PDUS];
    char text[TEXT_MAX], answers[TEXT_REPLY_MAX];
};

struct connection {
    struct iscsi_server *server;
    struct iscsi_target *target; /* NULL: none named yet, or discovery */
    struct stream *stream;       /* NULL: closed */
    struct loop *loop;           /* where it lives */
    struct sm phase;
    struct receiver rx;
    struct sender tx;
    unsigned wanted;
    bool move_wanted;

    struct connection_store *store;
    char *text, *answers; /* of the store */
    struct login login;
    struct message login_reply;
    uint32_t stat_sn;
    struct session *session;
    struct text_exchange exchange;

    struct command_list page_line, page_granted;
    struct page_waiter page_waiter;
    struct task resume_task, end_task, arrived;
    enum order order_pending; /* came while moving */

    struct timer timer; /* login: its end; then: keep-alive */
    uint64_t login_due_ns, heard_ns;
    bool pinged; /* a ping is under way, and nothing was heard since */
    struct stall stall;

    struct notice notices[NOTICES];
    struct notice_list notices_free;

    TAILQ_ENTRY(connection) session_link; /* the target's */
    bool in_target;

    /* The server's, on its loop. */
    TAILQ_ENTRY(connection) server_link;
    struct loop *home;          /* where orders go */
    char peer[64], local[64];   /* of the stream, which other loops may not touch */
    uint16_t group;             /* tag of the portal group where it arrived */
    uint8_t host[16];           /* of peer; zeroes: of no network */
    bool registered;            /* its login has named a target, or discovery, and may go on */
    struct access_list *access; /* what held when it did; NULL: everybody may */
    struct initiator_port port;
    bool gone, order_under_way;
    enum order order_wanted, order_sent;
    struct task order_task, gone_task;
    uint64_t grace_ns;
    uint32_t id;       /* unlike any other's, for people */
    struct timer drop; /* it was asked to end: until it is cut */
    /* Written by the connection's loop, read by the server's: counters may lag. */
    struct session_stats *stats; /* once its session has begun; NULL: discovery */
    const char *phase_name;
    bool logged_in; /* stays so */
    bool header_digest, data_digest;
};

/* connection.c */
struct connection *connection_create(struct iscsi_server *server, struct stream *stream);
void connection_free(struct connection *conn);
void connection_start(struct connection *conn);
void connection_close(struct connection *conn, const char *why);
/* As connection_close, but the initiator is told, if it listens. */
void connection_drop(struct connection *conn, const char *why);
/* Send what is in line, then close. */
void connection_end(struct connection *conn);
void connection_header(struct connection *conn);
void connection_complete(struct connection *conn, bool digest_good);
void connection_bad_digest(struct connection *conn);
void connection_execute(struct command *cmd);
void connection_sent(struct connection *conn);
void connection_want(struct connection *conn);
void connection_window(struct connection *conn, uint32_t *exp_cmd_sn, uint32_t *max_cmd_sn);
void connection_release(struct command *cmd);
bool connection_reads(const struct connection *conn);
void connection_login_go(struct connection *conn, enum login_outcome outcome);
void connection_order(struct connection *conn, enum order order, uint64_t grace_ns);
static inline enum connection_phase connection_phase(const struct connection *conn)
{
    return (enum connection_phase)sm_state(&conn->phase);
}
static inline uint32_t connection_max_recv(const struct connection *conn)
{
    return conn->login.keys.value[KEY_MAX_RECV];
}

/* receive.c */
void receive_run(struct connection *conn);
/* Whatever of this command's data is still on the way is dropped. */
void receive_forget(struct connection *conn, struct command *cmd);

/* pages.c: pages for a command, all or none, in line */
bool pages_acquire(struct command *cmd);
void pages_wait(struct command *cmd, bool front);
void pages_init(struct connection *conn);
void pages_leave(struct command *cmd);

/* transfer.c */
void transfer_begin(struct command *cmd);
void transfer_data_out(struct connection *conn, const struct pdu *pdu);
void transfer_data_complete(struct connection *conn, bool digest_good);
void transfer_advance(struct command *cmd);
void transfer_fail(struct command *cmd, uint8_t key, uint8_t asc, uint8_t ascq);
/* Would it be wrong to stop reading until there are pages? */
bool transfer_data_due(const struct session *session);
/* Give it up, whatever it waits for: with no answer, or (`tell`) with status TASK ABORTED. */
void transfer_abort(struct command *cmd, bool tell);

/* stall.c: to be called when something has been received or sent */
void stall_watch(struct connection *conn);

/* task.c */
void task_run(struct command *cmd);

/* text.c */
void text_run(struct command *cmd);
void text_reset(struct connection *conn);

/* control.c */
void nop_run(struct command *cmd);
void logout_run(struct command *cmd);
/* Reject the PDU being received, or a request whose turn has come. */
void control_reject(struct connection *conn, enum pdu_reject reason);
void control_reject_request(struct connection *conn, const uint8_t *header, enum pdu_reject reason);
void control_async(struct connection *conn, uint8_t event, uint16_t parameter1, uint16_t parameter2,
                   uint16_t parameter3);
void control_reopen(struct connection *conn);
void control_keepalive(struct connection *conn);
void control_reply(struct command *cmd, const struct pdu_out *out, const struct payload *payload);

/* server.c */
void server_find_target(struct connection *conn);
void server_ready_to_move(struct connection *conn);
enum login_status server_session_begin(struct connection *conn);
void server_refused(struct connection *conn);
void server_session_end(struct connection *conn);
void server_gone(struct connection *conn);
const struct iscsi_limits *server_limits(const struct connection *conn);
/* portals.c */
bool target_at_group(const struct iscsi_target *target, uint16_t group);
bool portal_list_add(struct portal_list *list, uint16_t group, const char *address);
void portals_list(const struct portal_list *list, const struct iscsi_target *target, const struct connection *conn,
                  struct text_out *out);
/* server.c: "TargetName=...", "TargetAddress=..." of one target or, with NULL, of all; false: it did not fit. */
void server_list_targets(struct connection *conn, const char *name, struct text_out *out);

#endif
