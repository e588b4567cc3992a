/*
 * A disk on another machine as a block device: an NBD export or an iSCSI LUN.
 *
 * daemon/remote.c is the device; what speaks the protocol is a driver, daemon/disk_nbd.c (libnbd) or
 * daemon/disk_iscsi.c (libiscsi). A driver knows sessions: a session is one connection, made once and never repaired.
 * The device's rule is what happens when one is lost.
 *
 *                  +------- made again, and it is the same disk ------+
 *                  v                                                  |
 *      open --> JOINED --(lost; nothing in doubt)--> SEARCHING -------+
 *                  |                                    |
 *                  +--(lost; writes in doubt)--> GONE <-+ not found in time, or it is another disk
 *
 * R1  A write is in doubt from its beginning until a flush that began after its end has succeeded. When the session is
 *     lost then, nobody can tell whether the other machine did the write, has it in a volatile cache that may be lost
 *     with it, or will still do it. So nothing is repeated: the device answers BLK_GONE for good. Its array fails the
 *     member, and catches it up when it has been found again (daemon/appliance_remotes.c): what it missed, and what was
 *     not flushed to it, stands in the region map.
 * R2  When nothing is in doubt (only reads, or flushes without anything to flush, are under way), a lost session is
 *     made again quietly, and they are repeated. Requests wait for that, up to 5 s; while none does it may take 20 s.
 * R3  It must be the same disk then: of the same size, with the same identity, not with a volatile cache if it had
 *     none, and with the same bytes where labels stand (CANARIES), as they were last read or written here. Else
 *     somebody else has used it, or set it up anew: BLK_GONE.
 * R4  The other end is lost when it has not answered anything for 6 s while a request is overdue. That is less than
 *     raid/patience.h gives, so that what is given up is over: its connection is gone.
 * R5  A session that is given up is reset (RST), not closed: what the kernel has not sent yet is thrown away, and will
 *     not arrive behind the writes of a later session. What the other machine has received already it must have done,
 *     or dropped, before it does what comes by a later session. Corbel's own servers do; iSCSI demands it, because a
 *     member's sessions bear the same name (session reinstatement, RFC 7143 6.3.5); other NBD servers do unless they
 *     hang.
 *
 * Exclusive use cannot be had of another machine: two arrays that use one export are kept apart by their labels only.
 */
#ifndef DAEMON_REMOTE_H
#define DAEMON_REMOTE_H

#include <poll.h>
#include <sys/uio.h>

#include "core/blkdev.h"
#include "daemon/reactor.h"
#include "raid/superblock.h"

/* --- for those who use such disks --- */

/*
 * NULL, and a sentence in `why`. Blocks for at most 3 s, and as long as it takes to look up a name. As a member: its
 * session takes the place of an earlier one's, and is made again (R2); else it is for a look.
 */
struct blkdev *remote_open(struct reactor *reactor, const char *uri, bool member, char *why, size_t why_len);
bool remote_is(const struct blkdev *dev);
/* Any thread, as long as the device is open: it answers BLK_GONE for good. */
bool remote_is_gone(const struct blkdev *dev);
void remote_identity(const struct blkdev *dev, char *out, size_t len);
/* Can it be reached? Blocks as remote_open() does; any thread. */
bool remote_knock(const char *uri);

/* --- for drivers --- */

struct remote_facts {
    struct blk_info info;
    char identity[SB_IDENTITY_SIZE];
    uint64_t transfer_max;          /* bytes of one READ or WRITE */
    uint64_t zero_max, discard_max; /* of one WRITE_ZEROES, DISCARD; 0: the other side cannot */
    bool fua, zero_fua;             /* the other side takes BLK_FUA with WRITE, and with WRITE_ZEROES */
};

enum {
    REMOTE_DEPTH = 64,   /* requests of one disk under way; the others wait in line */
    REMOTE_IOVECS = 257, /* a transfer's, wherever it begins */
    REMOTE_BLOCK_MIN = 512,
};
#define REMOTE_TRANSFER_MAX (1 * MIB)
#define REMOTE_ZERO_MAX     (64 * MIB) /* so that the answer comes in time */

struct remote_session;

/* What a session is asked to do: a request, or a part of one. */
struct remote_op {
    enum blk_op op; /* no BLK_STATUS */
    unsigned flags; /* BLK_FUA, BLK_NO_UNMAP */
    uint64_t off, len;
    struct iovec iov[REMOTE_IOVECS];
    int iov_count;
    struct remote_session *session;
    /* The answer. */
    enum blk_status status;
    bool again; /* it was not done, and may be asked for again soon */
    TAILQ_ENTRY(remote_op) answered_link;
};
TAILQ_HEAD(remote_op_list, remote_op);

/* A connection; the head of the driver's own struct. Used by one thread at a time. */
struct remote_session {
    const struct remote_driver *driver;
    bool ready; /* facts are known, ops can be issued */
    struct remote_facts facts;
    struct remote_op_list answered; /* taken from here after begin, service and issue */
    char why[200];                  /* what broke it */
};

struct remote_driver {
    const char *kind;
    bool one_run; /* the bytes of an op must be one run of memory */
    /* NULL and `why`: not even begun. May block to look up a name. */
    struct remote_session *(*begin)(const char *uri, bool member, char *why, size_t why_len);
    int (*fd)(struct remote_session *);
    short (*events)(struct remote_session *); /* POLLIN, POLLOUT: waited for */
    /* Go on, after poll() or now and then. False: the session is broken, and ops that are not answered never will
     * be. */
    bool (*service)(struct remote_session *, short revents);
    bool (*issue)(struct remote_session *, struct remote_op *);
    /* Broken: by a reset (R5); else politely, without waiting. */
    void (*end)(struct remote_session *, bool broken);
};
extern const struct remote_driver remote_nbd, remote_iscsi;

/* R3, as far as facts go: NULL, or what is wrong. What a session takes and how much at once may be another. */
const char *remote_differs(const struct remote_facts *was, const struct remote_facts *is);

/* For drivers: the op is over. */
void remote_answer(struct remote_op *op, enum blk_status status);
/* A dead peer is noticed, and end() of a broken session resets. */
void remote_tune(int fd);
void remote_reset(int fd);

/* The device over a session that is ready, and now its own. NULL: no memory. */
struct blkdev *remote_adopt(struct reactor *reactor, const char *uri, bool member, struct remote_session *session);

/* --- daemon/remote_connect.c: sessions on a thread that may block --- */

/* Where a label's first copies begin: superblock slots 0 and 1. */
enum { REMOTE_CANARIES = 2 };
struct remote_canary {
    bool known;
    uint8_t bytes[PAGE_BYTES];
};
extern const uint64_t remote_canary_off[REMOTE_CANARIES];

/*
 * A file in memory that is as large as the disk, and holds its first 4 MiB and its last MiB: for libblkid. -1 and
 * errno: it cannot be read.
 */
int remote_window(const char *uri);
/* What was changed in it goes to the disk, and is durable there. False and errno: not all of it. */
bool remote_window_store(const char *uri, int fd);

/* A session that is ready, or NULL and `why` (a sentence's end). `canaries` (may be NULL): those known are read
 * anew. */
struct remote_session *remote_connect(const char *uri, bool member, struct remote_canary *canaries, char *why,
                                      size_t why_len);

#endif
