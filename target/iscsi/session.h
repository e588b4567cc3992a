/*
 * A session's commands: their slots, their tags (ITT), and the window of CmdSN (RFC 7143, 4.2.2).
 *
 * A session is made when a login ends, with a slot for every command the window admits, and a few for immediate ones.
 * Room for all is taken then, but it is not touched before as many commands are in flight at once: memory that was
 * never touched is not real, so an idle session holds little.
 * Every request of full feature phase that wants an answer takes a slot, SCSI command or not, and keeps it until the
 * answer has left (or, aborted, until the disk has let go of its pages).
 *
 *   window      [exp_cmd_sn, max_cmd_sn]; outside of it a command is ignored. max = exp - 1 + limit - in_flight, and it
 *               never goes back. in_flight counts delivered commands until their last answer PDU is built.
 *   delivery    in the order of CmdSN; `ahead` holds what came over a gap, by CmdSN. Immediate ones do not wait.
 *   tags        a chained hash; a tag is free again when the last answer PDU is built, or the command is aborted.
 *
 * The life of a command (RECEIVING means: its own PDU is not complete):
 *
 *      FREE -> RECEIVING -> WAITING -> RUNNING -> SENDING -> FREE
 *                  |           |          +----> ORPHAN --> FREE     aborted while the disk has it
 *                  +-----------+---------------> SENDING             over before it ran
 *                              +---------------> FREE                aborted
 *
 * WAITING: for its turn, for pages, for data (transfer.c looks which).
 */
#ifndef TARGET_ISCSI_SESSION_H
#define TARGET_ISCSI_SESSION_H

#include "core/check.h"
#include "core/sm.h"
#include "target/iscsi/keys.h"
#include "target/iscsi/pdu.h"
#include "target/iscsi/send.h"
#include "target/iscsi/stats.h"

struct connection;

enum command_state {
    COMMAND_FREE,
    COMMAND_RECEIVING,
    COMMAND_WAITING,
    COMMAND_RUNNING,
    COMMAND_SENDING,
    COMMAND_ORPHAN
};
enum page_state { PAGES_NONE, PAGES_WAITING, PAGES_GRANTED, PAGES_HELD };
enum { COMMAND_PAGES_MAX = SCSI_TRANSFER_MAX / PAGE_BYTES + 1 };

/* A run of Data-Out that may come: an R2T, or what comes without being asked for. */
struct burst {
    bool open;
    uint32_t ttt, offset, len; /* the run: len bytes from offset */
    uint32_t got, data_sn;     /* so far */
};

struct command {
    struct connection *conn;
    struct sm state;
    TAILQ_ENTRY(command) link, page_link; /* free or live list; line for pages */
    struct command *hash_next;
    struct pdu pdu; /* the request */
    bool hashed, delivered, counted;
    bool late;              /* immediate, and yet to be executed only when the commands in front of it are here */
    bool over;              /* its status is decided, scsi_task_run() will not be called */
    bool silent;            /* aborted: no answer */
    bool aborted;           /* and counted */
    struct io_stats *stats; /* where it is counted; NULL: nowhere */
    uint64_t begun_ns;

    struct page **pages; /* room for COMMAND_PAGES_MAX */
    uint32_t page_count; /* wanted or held */
    enum page_state page_state;
    uint64_t moved_ns; /* when it got pages, data or its R2T left: since then it waits for the peer */

    struct scsi_task scsi;
    uint32_t expected;         /* bytes of Data-Out that belong to it in all */
    uint32_t arrived;          /* bytes of them that are here, counting from 0 */
    uint32_t r2t_next, r2t_sn; /* next byte to ask for; R2Ts sent */
    struct burst unsolicited, bursts[MAX_R2T_OURS];
    struct outgoing r2t;              /* its R2Ts, in line */
    uint32_t send_len, sent, data_sn; /* Data-In */
    struct message reply;             /* its answer, in line */
};
TAILQ_HEAD(command_list, command);

struct session {
    struct connection *conn;
    struct scsi_nexus *nexus; /* NULL: discovery */
    uint16_t tsih;
    uint32_t limit; /* commands in the window */
    uint32_t exp_cmd_sn, max_cmd_sn, told_max_cmd_sn;
    uint32_t in_flight, immediates, late;
    uint32_t next_ttt;
    struct command_list live, free;
    struct command **ahead; /* by CmdSN modulo mask + 1 */
    struct command **buckets;
    uint32_t mask;
    uint32_t slots_begun; /* of slots: those that were in use once */
    struct command *slots;
    struct page **page_arrays;
};

/* NULL if memory is short. `data`: commands will move data through pages of their own. */
struct session *session_create(struct connection *conn, uint32_t limit, uint32_t exp_cmd_sn);
void session_destroy(struct session *session); /* no command is live */

enum session_verdict { SESSION_TAKE, SESSION_IGNORE, SESSION_TAG_IN_USE, SESSION_TOO_MANY };
/* Find the request a slot: *out is RECEIVING and has its tag. */
enum session_verdict session_take(struct session *session, const struct pdu *pdu, struct command **out);
/* A target transfer tag. */
uint32_t session_next_tag(struct session *session);
struct command *session_find(struct session *session, uint32_t itt);
/* The PDU of the command is here: deliver it, and what waited for it, through connection_execute(). */
void session_received(struct session *session, struct command *cmd);
/* A CmdSN that is not to be waited for any more: aborted before it came. */
void session_skip(struct session *session, uint32_t cmd_sn);
/* An immediate request waits for those with a lower CmdSN, if some are not here: true, and it is executed again. */
bool session_waits_for_lower(struct session *session, struct command *cmd);
bool session_in_window(const struct session *session, uint32_t cmd_sn);
/* The tag is free, no answer of this command will be built any more. */
void session_forget_tag(struct session *session, struct command *cmd);
/* The command makes room in the window. */
void session_credit(struct session *session, struct command *cmd);
/* The slot is free. Pages are not looked at. */
void session_release(struct session *session, struct command *cmd);
/* The peer believes the window closed though it is not: 11.4.11. */
bool session_must_reopen(const struct session *session);

static inline enum command_state command_state(const struct command *cmd)
{
    return (enum command_state)sm_state(&cmd->state);
}

#endif
