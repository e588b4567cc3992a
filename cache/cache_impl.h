/* The inside of a cache, for cache/ only. See cache/cache.h. */
#ifndef CACHE_CACHE_IMPL_H
#define CACHE_CACHE_IMPL_H

#include "cache/block.h"
#include "cache/cache.h"
#include "cache/line.h"
#include "cache/log.h"
#include "cache/readahead.h"
#include "cache/throttle.h"

enum { FETCHES = 256, FETCH_BLOCKS = 64, DIRECTS = 128, CHANGES = 256, DESTAGES = 64 };

#define CACHE_DRAIN  (1u << 31) /* a flush that is one in every mode */
#define CACHE_CHANGE (1u << 30) /* a change that is done below, and waits for a flush there, or the log: change.c */

/* Blocks [first, first + count) on their way from below, all of them BLOCK_FETCHING. */
struct fetch {
    LIST_ENTRY(fetch) link; /* free, or under way */
    struct cache *cache;
    struct blk_req req;
    uint64_t first;
    uint32_t count;
    bool guess;                  /* nobody asked for it yet */
    struct blk_req_list readers; /* they look again when it is here */
    struct page *pages[FETCH_BLOCKS];
};
LIST_HEAD(fetch_list, fetch);

/* Part of a request that is passed below as it is, with its own pages. */
struct direct {
    LIST_ENTRY(direct) link; /* free */
    struct cache *cache;
    struct blk_req req;
    struct blk_req *parent;
    struct page *edges[2]; /* of the parent, that must stay; NULL: none */
    uint32_t edge_index[2];
};

/* A request that changes the volume, passed below. Its range is held until it is over. */
struct change {
    LIST_ENTRY(change) link; /* free, or under way */
    struct cache *cache;
    struct blk_req req;
    struct blk_req *parent;
    bool flushed;     /* below, since it was done there */
    bool logging;     /* all is done but that the log is to know */
    uint64_t at, end; /* blocks, or slots, that are still to hear of it */
    bool by_slot;
    struct task task;
};
LIST_HEAD(change_list, change);

/* A run of a line's sectors on its way below, or the gaps of a line on their way here. Its range is held until it is over. */
struct destage {
    LIST_ENTRY(destage) link; /* free, or under way */
    struct cache *cache;
    struct blk_req req;
    uint64_t line;
    uint32_t epoch;
    bool unlogged;                  /* some of it may not be in the log */
    uint64_t off, len, dirty_bytes; /* held; of it, dirty */
    uint32_t gap_first, gap_count;  /* blocks of the line whose pages were read for it; none: 0 */
    struct page **pages; /* room for a line's, a reference each */
};
LIST_HEAD(destage_list, destage);

/* settle.c. Blocks [first, first + count) that were destaged, and may be lost below when the power fails. */
struct settle_run {
    uint64_t first : 48, count : 16;
};

struct settle {
    struct settle_run *runs; /* a ring; NULL: nothing needs to settle */
    uint64_t head, tail;
    enum { SETTLE_IDLE, SETTLE_FLUSHING, SETTLE_OVER } state; /* of the round */
    uint64_t end;                                             /* of its runs */
    enum blk_status status;                                   /* of its flush */
    uint32_t at;                                              /* in the run at the tail */
    bool odd;                                                 /* what is destaged now */
    bool asked;                                               /* for a flush, ours */
    bool drain_waits;
    uint64_t drain_end; /* for the runs before this one */
    struct blk_req flush;
    struct task task;
    struct timer timer;
};

enum claim { CLAIM_FREE, CLAIM_ASKED, CLAIM_HELD, CLAIM_RENEWING, CLAIM_RETURNING };

/* commit.c */
enum { COMMIT_FILTER = 1 << 16 }; /* bits, of lines */

struct commit {
    struct cache_log_user user;
    struct blk_req_list waiting, round; /* for the next round; for this one */
    enum {
        COMMIT_IDLE,
        COMMIT_PUTTING,
        COMMIT_BELOW,
        COMMIT_GONE,
        COMMIT_COMMITTING,
        COMMIT_CLAIMING,
        COMMIT_EMPTYING, /* from here on W1 is not in force */
        COMMIT_SEALING,
        COMMIT_SEALED,
        COMMIT_TAIL,
        COMMIT_RETURNING,
    } state;
    unsigned number;      /* of the round */
    uint64_t line;        /* it has come to this block of this line */
    uint32_t block;       /* ... */
    struct blk_req *gone; /* ... or to this request */
    struct blk_req flush; /* its own */
    enum blk_status below;
    bool wanted;      /* a round, by a line that is to leave */
    bool exposed;     /* something is below that is neither flushed nor in the log */
    bool renew;       /* a device died: the claim is to know */
    bool returnable;  /* the claim is of no use any more */
    bool over;        /* so is the log */
    uint64_t beyond;  /* what lies there in the log is to be GONE: the volume became shorter */
    struct task task; /* looks */

    struct blk_req drain; /* EMPTYING */
    enum blk_status failing;

    bool lazy_asked, tail_moving; /* a drain for the tail's sake; a label */
    struct blk_req lazy;
    struct log_mark mark;

    enum { COMMIT_OPEN, COMMIT_CLOSE_WANTED, COMMIT_CLOSING, COMMIT_CLOSED } close;
    uint64_t held[2][COMMIT_FILTER / 64]; /* lines of which the log may hold something: since, and before the mark */
};

struct cache {
    struct blkdev dev;
    struct blkdev *below;
    struct blk_watcher watcher;
    struct cache_options o;
    struct blocks blocks;
    struct lines lines;
    uint64_t overhead;
    struct cache_status counted; /* only what is counted */

    /* mode.c */
    enum cache_mode mode;
    bool power;
    uint32_t dirty_blocks, dirty_limit; /* dirty or leaving */
    uint32_t settling_blocks;           /* settling, and neither of these */
    bool bare;                          /* something dirty may be missing in the arena: until a drain is over */

    /* claim.c */
    enum claim claim;
    bool claim_refused; /* when it was last asked for */
    bool claim_stale;   /* it is to be asked for again, though it is held */
    struct task claim_task;
    struct timer claim_again;

    /* read.c */
    struct fetch_list fetches, fetches_free;
    LIST_HEAD(, direct) directs_free;
    struct blk_req_list arrived; /* reads that nobody has looked at yet; the task does, in this turn */
    struct task arrivals;
    struct blk_req_list readers; /* wait for a struct direct */
    struct readahead ahead;
    unsigned fetching[2]; /* fetches: of what is read; of what is guessed */
    uint32_t guessing;    /* blocks on their way that nobody asked for */

    /* change.c */
    struct change_list changes, changes_free;
    struct blk_req_list line, behind; /* for a context or room; for a range */

    /* absorb.c */
    struct throttle throttle;
    struct blk_req_list delayed; /* done but not answered; scratch[1]: when */
    struct timer delay;
    bool delayed_held; /* until all is drained */

    /* destage.c */
    struct destage_list destages, destages_free;
    unsigned destaging;
    uint32_t gap_pages;  /* lent to gaps */
    struct block **row;  /* the blocks of the line at hand */
    uint64_t hand;       /* the sweep goes on here */
    uint64_t request_ns; /* when the last one of an initiator came */
    struct timer tick, retry;
    uint64_t back_off_ns;
    bool paused; /* the device does not take anything: until `retry` */

    /* flush.c */
    uint32_t epoch, flush_epoch;               /* of what becomes dirty; of the last flush */
    struct blk_req_list flush_waiting;         /* for destages; scratch[0]: epoch */
    struct blk_req_list flush_next, flush_now; /* for the next flush below; for this one */
    struct blk_req flush;
    bool flushing;
    struct blk_req drain; /* our own */
    bool draining, drain_wanted;
    enum blk_status owed; /* F3 */
    struct settle settle;
    struct commit commit;

    struct task *closed, close_task;
    bool hurry;
    unsigned close_tries;
    uint64_t close_destaged; /* bytes, at the last one */
    bool emptied;
    struct fetch fetch_memory[FETCHES];
    struct direct direct_memory[DIRECTS];
    struct change change_memory[CHANGES];
    struct destage destage_memory[DESTAGES];
};

static inline struct cache *cache_of(struct blkdev *dev)
{
    return container_of(dev, struct cache, dev);
}

static inline uint64_t cache_now_ns(const struct cache *c)
{
    return loop_now_ns(c->dev.loop);
}

static inline uint32_t cache_now_ms(const struct cache *c)
{
    return (uint32_t)(cache_now_ns(c) / 1000000);
}

static inline bool ranges_meet(const struct blk_req *a, uint64_t off, uint64_t len)
{
    return a->off < off + len && off < a->off + a->len;
}

/* The volume may have become shorter while a request waited. */
static inline bool request_fits(const struct cache *c, const struct blk_req *req)
{
    return req->off + req->len <= c->dev.info.size;
}

/* What became of bytes that are not those of the request that is told so: there is no place in it to name. */
static inline enum blk_status cache_status_elsewhere(enum blk_status status)
{
    return status == BLK_MEDIA ? BLK_GONE : status;
}

/* As the child was answered, so is the parent. */
void cache_answer(struct blk_req *parent, const struct blk_req *child);
void cache_changed(struct cache *c);
void cache_close_if_idle(struct cache *c);

/* mode.c */
bool mode_absorbs(const struct cache *c);
bool mode_flushes_at_once(const struct cache *c);
bool mode_wants_claim(const struct cache *c);
void mode_init(struct cache *c);
/* Say what volatile_cache is now, if it is another than was said. */
void mode_tell(struct cache *c);
/* Something changed that decides which mode is in force: power, the claim, the log. */
void mode_look(struct cache *c);
const char *mode_reason(const struct cache *c); /* why it is not what was asked for; NULL: it is */
/* Of the room for dirty data. */
unsigned cache_fill_permille(const struct cache *c);

/* claim.c */
void claim_init(struct cache *c);
void claim_fini(struct cache *c);
bool claim_is_held(const struct cache *c);
/* Is the owner being asked? */
bool claim_waits(const struct cache *c);
/* Ask once more, since it is to say something else. False: there is nobody to ask. */
bool claim_renew(struct cache *c);
bool claim_is_renewed(const struct cache *c);
/* It was given back, or nobody keeps it. */
bool claim_is_gone(const struct cache *c);
/* Ask for it, or give it back, if that is due: the mode changed, or less depends on it. */
void claim_look(struct cache *c);

/* dirt.c: what is dirty, counted by block and by line. The block is not settled. */
void dirt_set(struct cache *c, struct line *line, struct block *b, uint8_t dirty, uint8_t leaving); /* nor the line */
/* These sectors are dirty, too. */
void dirt_add(struct cache *c, struct line *line, struct block *b, uint8_t sectors);
/* None of these sectors is dirty or settling any more. */
void dirt_clean(struct cache *c, struct block *b, uint8_t sectors);
/* ... nor leaving: what comes of it is of no interest. */
void dirt_drop(struct cache *c, struct block *b, uint8_t sectors);
/* These sectors, which were settling, are dirty. False: there is no line for them, now. */
bool dirt_again(struct cache *c, struct block *b, uint8_t sectors);
/* These sectors are settling, and no others. */
void dirt_settle(struct cache *c, struct block *b, uint8_t sectors);
/* BLK_STATUS: the first dirty block in the range: its off (or that of the range) and the end of those that follow. */
bool dirt_find(struct cache *c, uint64_t off, uint64_t len, uint64_t *from, uint64_t *to);

void read_init(struct cache *c);
void read_submit(struct cache *c, struct blk_req *req);
void read_status(struct cache *c, struct blk_req *req); /* BLK_STATUS */

void change_init(struct cache *c);
void change_submit(struct cache *c, struct blk_req *req);
/* A range was let go, or there is room: those that waited ask again, before what came later. */
void change_go_on(struct cache *c);
bool change_meets(const struct cache *c, uint64_t off, uint64_t len);
/* ... that is not done below yet. */
bool change_writes(const struct cache *c, uint64_t off, uint64_t len);
/* This one, CACHE_CHANGE, is known in the log; or could not be. */
void change_logged(struct cache *c, struct blk_req *child, enum blk_status status);
/* The volume has been flushed since this change, CACHE_CHANGE, was done there; or could not be. */
void change_flushed(struct blk_req *child, enum blk_status status);
/* The volume has become shorter: who waits to change what is no more gets an error. */
void change_resized(struct cache *c);

enum absorbed { ABSORBED, ABSORB_NO_ROOM, ABSORB_NO_PAGE };
void absorb_init(struct cache *c);
/* Keep its bytes, from scratch[0] on, as far as can be. */
enum absorbed absorb(struct cache *c, struct blk_req *req);
/* It was kept: answer it, now or later. */
void absorb_answer(struct cache *c, struct blk_req *req);
/* Something has left: nobody's answer waits when there is room again. */
void absorb_go_on(struct cache *c);
/* Those whose answer waits are answered when it is time; `held`: not before this is called again. */
void absorb_hold(struct cache *c, bool held);
/* Those that are held are answered with this error: they were promised nothing yet. */
void absorb_refuse(struct cache *c, enum blk_status status);

bool destage_init(struct cache *c);
void destage_fini(struct cache *c);
/* Send on their way below as many runs as there is reason to. */
void destage_pump(struct cache *c);
/* Look up the blocks of a line: c->row. Sectors of it that the volume has. */
uint32_t destage_row(struct cache *c, const struct line *line);
/* A context for the range of the line, in sectors, which is held from now on. */
struct destage *destage_begin(struct cache *c, struct line *line, uint32_t from, uint32_t to);
/* Send it below; the pages of blocks that are here take the places of others that it has. */
void destage_write(struct cache *c, struct line *line, struct destage *d);
void destage_end(struct cache *c, struct destage *d);
void destage_over(struct cache *c); /* whoever waited for it goes on */
bool destage_meets(const struct cache *c, uint64_t off, uint64_t len);
/* Does a flush wait for a line here that may leave? A line leaves when no change of it is under way. */
bool destage_owes(const struct cache *c, uint64_t off, uint64_t len);
void destage_retry_later(struct cache *c);

/* gaps.c: read what a line lacks of its row, if that and a full row cost less than `runs`. LEFT: they are to go. */
enum gaps { GAPS_READ, GAPS_LEFT, GAPS_LATER };
enum gaps gaps_read(struct cache *c, struct line *line, unsigned runs);

void flush_init(struct cache *c);
void flush_submit(struct cache *c, struct blk_req *req);
void flush_go_on(struct cache *c);
/* Answer a request that is done below when the volume has been flushed. */
void flush_then_answer(struct cache *c, struct blk_req *req);
/* What settle_holds_drain() held. */
void flush_drain_settled(struct cache *c, enum blk_status status);
/* A destage of data of this epoch failed. */
void flush_failed(struct cache *c, uint32_t epoch, enum blk_status status);
/* Until it has once succeeded, everything dirty is to be destaged and flushed. */
void drain_start(struct cache *c);

/* settle.c */
bool settle_init(struct cache *c); /* false: no memory */
void settle_fini(struct cache *c);
/* Does what is destaged have to settle? Then: is there room for a few runs more? They are told when they are below. */
bool settle_applies(const struct cache *c);
bool settle_has_room(const struct cache *c);
void settle_destaged(struct cache *c, uint64_t first, uint32_t count);
uint8_t settle_parity(const struct cache *c); /* BLOCK_ODD or 0: of what is destaged now */
void settle_flush_begins(struct cache *c);
void settle_flush_ends(struct cache *c, enum blk_status status);
void settle_asked_over(struct cache *c); /* its own */
/* A drain has been flushed: has it to wait for more? */
bool settle_holds_drain(struct cache *c);
bool settle_is_idle(const struct cache *c);

/* commit.c; without a log these do nothing */
void commit_attach(struct cache *c);
void commit_detach(struct cache *c);
/* Is a flush answered when the log has what it covers? */
bool commit_is_in_use(const struct cache *c);
/* Answer it then. */
void commit_wait(struct cache *c, struct blk_req *req);
/* A change is done below. True: it waits for the log, until change_logged(). */
bool commit_takes_change(struct cache *c, struct blk_req *req);
/* Something dirty in it is not in the log. Settle the line. */
void commit_dirtied(struct cache *c, struct line *line, struct block *b);
bool commit_is_unlogged(const struct cache *c, const struct block *b);
/* Something of that kind arrived below. */
void commit_exposed(struct cache *c);
bool commit_lets_leave(struct cache *c, const struct line *line);
/* Is it a drain, or a flush below, of its own? Then it has heard. */
bool commit_drained(struct cache *c, struct blk_req *req, enum blk_status status);
bool commit_flushed(struct cache *c, struct blk_req *req, enum blk_status status);
void commit_retry(struct cache *c);
void commit_shrunk(struct cache *c, uint64_t size);
void commit_entered(struct cache *c);          /* the mode LOGGED */
bool commit_holds_mode(const struct cache *c); /* until the claim for a dead log is given back */
bool commit_may_return(const struct cache *c); /* the claim */
void commit_claim_changed(struct cache *c);
/* All is destaged, and flushed, at the end. True: c->emptied follows. */
bool commit_closes(struct cache *c);
bool commit_is_idle(const struct cache *c);

/* recover.c */
uint32_t recover_lines(const struct arena *arena); /* so many may be needed */
bool recover(struct cache *c);                     /* false: no memory */

static inline bool flush_is_waited_for(const struct cache *c)
{
    return !STAILQ_EMPTY(&c->flush_waiting);
}

#endif
