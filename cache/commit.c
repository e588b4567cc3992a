/*
 * The log in use (protection "journal"): what is put into it, and when, so that a flush is answered when what it covers
 * is in the log, though it is not below.
 *
 * Flushes, writes with FUA, and changes of what the log may hold wait for a round; so do lines that are to leave. One
 * round at a time answers all that waited when it began:
 *
 *      IDLE ---> PUTTING     every line with something that is not in the log: block by block into groups
 *                BELOW       a flush of the volume, if something went there that is neither flushed nor in the log
 *                GONE        of the changes, what is durable there now
 *                COMMITTING  until the log says that it is durable
 *                CLAIMING    if a device of the log died: until the claim says so, too (also after TAIL)
 *        ^          |
 *        +- answer -+
 *
 *      from wherever the log is full, or dead:
 *                EMPTYING    everything dirty is destaged, in the log or not, and the volume flushed
 *                SEALING     until nothing is under way in the log (SEALED: but a tail)
 *                TAIL        until its label says that it is empty; what waited is below: answered
 *      dead:     RETURNING   until the claim is given back; what waited is flushed as in the mode NONE
 *
 * W1  The log is never older than the volume. A line in whose place the log may hold something leaves only when all that
 *     is dirty in it is in the log, durably (so that a drain, too, stays true when the log is replayed); but for EMPTYING,
 *     and for the end: then no flush is answered before the log holds nothing.
 * W2  What went below past the cache where the log may hold something older is flushed there, and then GONE in the log,
 *     before it is answered, and nothing is kept there before that. What the log holds of it is older for certain then.
 * W3  What went below otherwise, and is not in the log, makes the next round flush the volume.
 * W4  Groups are over when all that was dirty when they were written is below, and the volume was flushed after that: a
 *     drain of our own. One is begun when half of the ring is in use.
 * W5  A full log fails nothing: it is emptied, and those that waited were covered by that.
 * W6  A line that is written into after the round has come by is of the next one: a round ends.
 *
 * What the log may hold is known by line, in two maps of bits, so it may be thought to hold what it does not: those are
 * of the groups before the last drain began, and since.
 */
#include "cache/cache_impl.h"

#include "core/log.h"

enum { LAZY_PERMILLE = 500, LINES_MAX = 4096 };
#define SECTORS_MAX (8ull << 48)

static void round_look(struct cache *c);

/* --- what the log may hold --- */

static uint64_t *filter_word(struct commit *m, unsigned which, uint64_t line)
{
    return &m->held[which][line % COMMIT_FILTER / 64];
}

static void filter_add(struct commit *m, uint64_t line)
{
    *filter_word(m, 0, line) |= 1ull << line % 64;
}

/* What is held now is of groups before a mark. */
static void filter_mark(struct commit *m)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(m->held[0]); i++) {
        m->held[1][i] |= m->held[0][i];
        m->held[0][i] = 0;
    }
}

/* The groups before the mark are over. */
static void filter_forget(struct commit *m)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(m->held[1]); i++)
        m->held[1][i] = 0;
}

static bool may_hold_line(struct commit *m, uint64_t line)
{
    return (*filter_word(m, 0, line) | *filter_word(m, 1, line)) >> line % 64 & 1;
}

static bool may_hold(struct cache *c, uint64_t off, uint64_t len)
{
    uint64_t bytes = (uint64_t)c->lines.blocks * PAGE_BYTES, first = off / bytes, last = (off + len - 1) / bytes;
    if (last - first > LINES_MAX)
        return !cache_log_is_empty(c->o.log);
    for (uint64_t line = first; line <= last; line++)
        if (may_hold_line(&c->commit, line))
            return true;
    return false;
}

/* --- what is dirty, and not in it --- */

void commit_dirtied(struct cache *c, struct line *line, struct block *b)
{
    if (c->o.log == NULL)
        return;
    b->flags |= BLOCK_UNLOGGED;
    line->unlogged = true;
}

void commit_exposed(struct cache *c)
{
    c->commit.exposed = true;
}

bool commit_is_unlogged(const struct cache *c, const struct block *b)
{
    return c->o.log != NULL && (b->flags & BLOCK_UNLOGGED || c->commit.state >= COMMIT_EMPTYING);
}

/* W1 */
bool commit_lets_leave(struct cache *c, const struct line *line)
{
    struct commit *m = &c->commit;
    if (c->o.log == NULL || m->state >= COMMIT_EMPTYING || c->closed != NULL || m->over ||
        !may_hold_line(m, line->number))
        return true;
    if (line->unlogged && !m->wanted) {
        m->wanted = true;
        if (!m->task.queued)
            loop_defer(c->dev.loop, &m->task);
    }
    return !line->unlogged && (m->state == COMMIT_IDLE || line->round != (m->number & 3));
}

/* --- who waits --- */

bool commit_is_in_use(const struct cache *c)
{
    return c->o.log != NULL && c->mode == CACHE_LOGGED;
}

static void answer(struct cache *c, struct blk_req *req, enum blk_status status)
{
    if (req->flags & CACHE_CHANGE)
        change_logged(c, req, status);
    else
        blk_complete(req, cache_status_elsewhere(status));
}

static void answer_all(struct cache *c, struct blk_req_list *list, enum blk_status status)
{
    struct blk_req_list all = STAILQ_HEAD_INITIALIZER(all);
    struct blk_req *req;
    STAILQ_CONCAT(&all, list);
    while ((req = STAILQ_FIRST(&all)) != NULL) {
        STAILQ_REMOVE_HEAD(&all, link);
        answer(c, req, status);
    }
}

void commit_wait(struct cache *c, struct blk_req *req)
{
    struct commit *m = &c->commit;
    if (m->failing != BLK_OK && m->state == COMMIT_EMPTYING) {
        answer(c, req, m->failing);
        return;
    }
    STAILQ_INSERT_TAIL(&m->waiting, req, link);
    round_look(c);
}

bool commit_takes_change(struct cache *c, struct blk_req *req)
{
    if (c->o.log == NULL)
        return false;
    if (!(req->flags & BLK_FUA))
        c->commit.exposed = true; /* W3 */
    if (req->status != BLK_OK || !commit_is_in_use(c) || !may_hold(c, req->off, req->len))
        return false;
    req->flags |= CACHE_CHANGE;
    commit_wait(c, req);
    return true;
}

/* --- the end of a round --- */

static void over(struct cache *c);
static void lazy_look(struct cache *c);
static void close_look(struct cache *c);

static void go_idle(struct cache *c)
{
    lazy_look(c);
    close_look(c);
    destage_pump(c);
    round_look(c);
    cache_close_if_idle(c);
}

/* Who is answered may come back with more: that is of the next round. */
static void round_over(struct cache *c, enum blk_status status)
{
    struct commit *m = &c->commit;
    struct blk_req *req;
    while ((req = STAILQ_FIRST(&m->round)) != NULL) {
        bool of_log = req->op == BLK_WRITE && !(req->flags & CACHE_CHANGE); /* FUA: it need not be below */
        STAILQ_REMOVE_HEAD(&m->round, link);
        answer(c, req, status != BLK_OK || of_log ? status : m->below);
    }
    m->state = COMMIT_IDLE;
    go_idle(c);
}

/* What it waited for is durable. Which devices of the log are to be believed must be known, too, before it is answered. */
static void round_claim(struct cache *c)
{
    struct commit *m = &c->commit;
    if (m->renew && c->closed == NULL && claim_renew(c))
        m->state = COMMIT_CLAIMING;
    else
        round_over(c, BLK_OK);
}

/* --- emptying --- */

static void empty_ask(struct cache *c)
{
    struct commit *m = &c->commit;
    m->drain = (struct blk_req){.op = BLK_FLUSH, .flags = CACHE_DRAIN};
    flush_submit(c, &m->drain);
}

static void empty_begin(struct cache *c)
{
    struct commit *m = &c->commit;
    struct line *line = line_find(&c->lines, m->line);
    if (m->state == COMMIT_PUTTING && line != NULL) { /* it came by only in part */
        line->unlogged = true;
        line_settle(&c->lines, line);
    }
    m->state = COMMIT_EMPTYING;
    m->failing = BLK_OK;
    if (cache_log_is_dead(c->o.log)) {
        log_error("cache %s: its log is dead: what is dirty is destaged, and flushes wait for the volume", c->dev.name);
        cache_changed(c);
    } else {
        cache_log_was_full(c->o.log);
    }
    empty_ask(c);
}

/* F2: who waits is told; it is tried again when destages are. */
static void empty_failed(struct cache *c, enum blk_status status)
{
    c->commit.failing = status;
    answer_all(c, &c->commit.round, status);
    answer_all(c, &c->commit.waiting, status);
    destage_retry_later(c);
    cache_close_if_idle(c);
}

static void tail_ask(struct cache *c, struct log_mark mark, bool clean)
{
    c->commit.tail_moving = true;
    cache_log_move_tail(c->o.log, mark, clean);
}

static void emptied(struct cache *c)
{
    struct commit *m = &c->commit;
    m->failing = BLK_OK;
    if (cache_log_is_dead(c->o.log)) {
        m->state = COMMIT_RETURNING;
        m->returnable = true;
        claim_look(c);
        if (claim_is_gone(c) && !claim_waits(c))
            over(c);
        return;
    }
    m->state = COMMIT_SEALING;
    cache_log_commit(c->o.log, 0);
}

static void sealed(struct cache *c)
{
    struct commit *m = &c->commit;
    m->state = m->tail_moving ? COMMIT_SEALED : COMMIT_TAIL;
    if (m->tail_moving) /* of a lazy drain: first that */
        return;
    tail_ask(c, cache_log_head(c->o.log), false);
}

/* The log is empty, and no flush was answered since the drain. */
static void emptying_over(struct cache *c)
{
    struct commit *m = &c->commit;
    filter_mark(m);
    filter_forget(m);
    m->exposed = true; /* what left meanwhile, in the log or not */
    m->beyond = UINT64_MAX;
    round_claim(c);
}

/* --- the tail follows --- */

static void lazy_look(struct cache *c)
{
    struct commit *m = &c->commit;
    if (m->lazy_asked || m->tail_moving || c->closed != NULL || c->paused || !commit_is_in_use(c) ||
        cache_log_fill_permille(c->o.log) < LAZY_PERMILLE)
        return;
    m->lazy_asked = true;
    m->mark = cache_log_head(c->o.log);
    filter_mark(m);
    m->lazy = (struct blk_req){.op = BLK_FLUSH, .flags = CACHE_DRAIN};
    flush_submit(c, &m->lazy);
}

static void lazy_over(struct cache *c, enum blk_status status)
{
    struct commit *m = &c->commit;
    m->lazy_asked = false;
    if (status == BLK_OK && m->state < COMMIT_TAIL && !m->tail_moving)
        tail_ask(c, m->mark, false);
    cache_close_if_idle(c);
}

bool commit_drained(struct cache *c, struct blk_req *req, enum blk_status status)
{
    struct commit *m = &c->commit;
    if (req == &m->lazy)
        lazy_over(c, status);
    else if (req != &m->drain)
        return false;
    else if (status == BLK_OK)
        emptied(c);
    else
        empty_failed(c, status);
    return true;
}

static void on_tail_moved(struct cache_log_user *user, bool ok)
{
    struct cache *c = container_of(user, struct cache, commit.user);
    struct commit *m = &c->commit;
    m->tail_moving = false;
    if (m->close == COMMIT_CLOSING) {
        m->close = COMMIT_CLOSED;
        m->returnable = true; /* all is below, whatever the label says */
        c->emptied = true;
        cache_close_if_idle(c);
    } else if (m->state == COMMIT_TAIL && ok) {
        emptying_over(c);
    } else if (m->state == COMMIT_TAIL) {
        empty_begin(c);
    } else {
        if (ok)
            filter_forget(m);
        if (m->state == COMMIT_SEALED)
            sealed(c);
        else if (m->state == COMMIT_IDLE)
            go_idle(c);
    }
}

/* --- rounds --- */

static void commit_start(struct cache *c)
{
    struct commit *m = &c->commit;
    struct blk_req *req;
    uint64_t calls = 0;
    m->state = COMMIT_COMMITTING;
    STAILQ_FOREACH(req, &m->round, link)
    calls++;
    cache_log_commit(c->o.log, calls);
}

/* False: it has to wait for room, or the log is being emptied. */
static bool put_worked(struct cache *c, enum log_put result)
{
    if (result == LOG_FULL || result == LOG_IS_DEAD)
        empty_begin(c);
    return result == LOG_PUT;
}

/* W2 */
static void gone_go_on(struct cache *c)
{
    struct commit *m = &c->commit;
    for (; m->gone != NULL; m->gone = STAILQ_NEXT(m->gone, link)) {
        if (!(m->gone->flags & CACHE_CHANGE))
            continue;
        if (!put_worked(c, cache_log_put_gone(c->o.log, m->gone->off / SECTOR_BYTES, m->gone->len / SECTOR_BYTES)))
            return;
    }
    commit_start(c);
}

static bool round_has_flush(const struct commit *m)
{
    const struct blk_req *req;
    STAILQ_FOREACH(req, &m->round, link)
    if (req->op == BLK_FLUSH)
        return true;
    return false;
}

bool commit_flushed(struct cache *c, struct blk_req *req, enum blk_status status)
{
    struct commit *m = &c->commit;
    if (req != &m->flush)
        return false;
    m->below = status;
    if (status == BLK_OK) {
        m->state = COMMIT_GONE;
        m->gone = STAILQ_FIRST(&m->round);
        gone_go_on(c);
        return true;
    }
    m->exposed = true;
    if (!round_has_flush(m))
        c->owed = status; /* F3 */
    commit_start(c);
    return true;
}

/* W3: what a flush covers may be below only; what is GONE must be. */
static bool needs_below(const struct cache *c)
{
    const struct blk_req *req;
    bool flush = false, change = false;
    STAILQ_FOREACH(req, &c->commit.round, link)
    {
        flush = flush || req->op == BLK_FLUSH;
        change = change || req->flags & CACHE_CHANGE;
    }
    return change || (flush && c->commit.exposed && c->below->info.volatile_cache);
}

static void put_over(struct cache *c)
{
    struct commit *m = &c->commit;
    m->line = UINT64_MAX;
    if (!needs_below(c)) {
        commit_start(c);
        return;
    }
    m->state = COMMIT_BELOW;
    m->exposed = false;
    m->flush = (struct blk_req){.op = BLK_FLUSH};
    flush_then_answer(c, &m->flush);
}

/* The line that the round has come to; or, when it is through with that, the next one. */
static struct line *round_line(struct cache *c)
{
    struct commit *m = &c->commit;
    struct line *line = m->block > 0 ? line_find(&c->lines, m->line) : NULL;
    if (line != NULL)
        return line;
    line = line_next(&c->lines, m->block > 0 ? m->line + 1 : m->line, LINE_UNLOGGED);
    m->block = 0;
    if (line == NULL)
        return NULL;
    m->line = line->number;
    line->unlogged = false; /* W6 */
    line->round = m->number & 3;
    line_settle(&c->lines, line);
    return line;
}

static enum log_put put_block(struct cache *c, const struct line *line, uint32_t index)
{
    struct block *b = block_find(&c->blocks, line->number * c->lines.blocks + index);
    if (b == NULL || !(b->flags & BLOCK_UNLOGGED) || block_clean(b))
        return LOG_PUT;
    enum log_put result = cache_log_put(c->o.log, block_number(b), b->dirty | b->leaving, b->page);
    if (result != LOG_PUT)
        return result;
    filter_add(&c->commit, line->number);
    b->flags &= (uint8_t)~BLOCK_UNLOGGED;
    return LOG_PUT;
}

/* It waits for room. At its first block it has not come to the line yet. */
static void round_stops(struct cache *c, struct line *line)
{
    if (c->commit.state != COMMIT_PUTTING || c->commit.block > 0)
        return;
    line->unlogged = true;
    line_settle(&c->lines, line);
}

static void put_go_on(struct cache *c)
{
    struct commit *m = &c->commit;
    struct line *line;
    if (m->beyond != UINT64_MAX) {
        if (!put_worked(c,
                        cache_log_put_gone(c->o.log, m->beyond / SECTOR_BYTES, SECTORS_MAX - m->beyond / SECTOR_BYTES)))
            return;
        m->beyond = UINT64_MAX;
    }
    while ((line = round_line(c)) != NULL) {
        for (; m->block < c->lines.blocks; m->block++)
            if (!put_worked(c, put_block(c, line, m->block))) {
                round_stops(c, line);
                return;
            }
        m->block = 0;
        m->line++;
    }
    put_over(c);
}

static void round_look(struct cache *c)
{
    struct commit *m = &c->commit;
    if (m->state != COMMIT_IDLE || !commit_is_in_use(c) || c->closed != NULL)
        return;
    if (STAILQ_EMPTY(&m->waiting) && !m->wanted && !cache_log_is_dead(c->o.log))
        return;
    STAILQ_CONCAT(&m->round, &m->waiting);
    m->wanted = false;
    m->below = BLK_OK;
    m->number++;
    m->line = m->block = 0;
    m->state = COMMIT_PUTTING;
    if (cache_log_is_dead(c->o.log))
        empty_begin(c);
    else
        put_go_on(c);
}

static void on_room(struct cache_log_user *user)
{
    struct cache *c = container_of(user, struct cache, commit.user);
    if (c->commit.state == COMMIT_PUTTING)
        put_go_on(c);
    else if (c->commit.state == COMMIT_GONE)
        gone_go_on(c);
}

static void on_committed(struct cache_log_user *user, bool ok)
{
    struct cache *c = container_of(user, struct cache, commit.user);
    struct commit *m = &c->commit;
    if (!ok)
        empty_begin(c);
    else if (m->state == COMMIT_SEALING)
        sealed(c);
    else
        round_claim(c);
}

static void on_died(struct cache_log_user *user)
{
    struct cache *c = container_of(user, struct cache, commit.user);
    c->commit.renew = true;
    if (!c->commit.task.queued)
        loop_defer(c->dev.loop, &c->commit.task);
}

static void look_run(struct task *task)
{
    struct cache *c = container_of(task, struct cache, commit.task);
    if (c->commit.renew)
        cache_changed(c);
    mode_look(c);
    claim_look(c);
    round_look(c);
}

/* --- the claim, and the end --- */

bool commit_holds_mode(const struct cache *c)
{
    return commit_is_in_use(c) && cache_log_is_dead(c->o.log) && !c->commit.over;
}

bool commit_may_return(const struct cache *c)
{
    return c->mode != CACHE_LOGGED || c->commit.returnable;
}

static void over(struct cache *c)
{
    struct commit *m = &c->commit;
    struct blk_req_list all = STAILQ_HEAD_INITIALIZER(all);
    struct blk_req *req;
    STAILQ_CONCAT(&all, &m->round);
    STAILQ_CONCAT(&all, &m->waiting);
    m->over = true;
    m->state = COMMIT_IDLE;
    mode_look(c);
    while ((req = STAILQ_FIRST(&all)) != NULL) {
        STAILQ_REMOVE_HEAD(&all, link);
        if (req->flags & CACHE_CHANGE)
            change_logged(c, req, BLK_OK);
        else
            flush_submit(c, req);
    }
}

void commit_claim_changed(struct cache *c)
{
    struct commit *m = &c->commit;
    if (c->o.log == NULL || claim_waits(c))
        return;
    if (m->state == COMMIT_CLAIMING) {
        m->renew = !claim_is_renewed(c);
        round_over(c, m->renew ? BLK_GONE : BLK_OK);
    } else if (m->state == COMMIT_RETURNING && claim_is_gone(c)) {
        over(c);
    } else if (m->state == COMMIT_RETURNING) {
        answer_all(c, &m->round, BLK_GONE);
        answer_all(c, &m->waiting, BLK_GONE);
    }
}

void commit_entered(struct cache *c)
{
    c->commit.exposed = true;
    c->commit.returnable = false;
}

void commit_shrunk(struct cache *c, uint64_t size)
{
    if (!commit_is_in_use(c) || cache_log_is_empty(c->o.log))
        return;
    c->commit.beyond = MIN(c->commit.beyond, size);
    c->commit.wanted = true;
    round_look(c);
}

void commit_retry(struct cache *c)
{
    if (c->o.log == NULL || c->commit.state != COMMIT_EMPTYING || c->commit.failing == BLK_OK)
        return;
    c->commit.failing = BLK_OK;
    empty_ask(c);
}

static void close_look(struct cache *c)
{
    struct commit *m = &c->commit;
    if (m->close != COMMIT_CLOSE_WANTED || m->state != COMMIT_IDLE || m->tail_moving)
        return;
    m->close = COMMIT_CLOSING;
    tail_ask(c, cache_log_head(c->o.log), true);
}

bool commit_closes(struct cache *c)
{
    if (c->o.log == NULL || c->mode != CACHE_LOGGED)
        return false;
    c->commit.returnable = cache_log_is_dead(c->o.log);
    if (cache_log_is_dead(c->o.log))
        return false;
    c->commit.close = COMMIT_CLOSE_WANTED;
    close_look(c);
    return true;
}

bool commit_is_idle(const struct cache *c)
{
    const struct commit *m = &c->commit;
    bool rests = m->state == COMMIT_IDLE || m->state == COMMIT_RETURNING ||
                 (m->state == COMMIT_EMPTYING && m->failing != BLK_OK);
    return rests && !m->lazy_asked && !m->tail_moving && !m->task.queued;
}

void commit_attach(struct cache *c)
{
    struct commit *m = &c->commit;
    STAILQ_INIT(&m->waiting);
    STAILQ_INIT(&m->round);
    m->task.run = look_run;
    m->beyond = UINT64_MAX;
    m->user = (struct cache_log_user){
        .room = on_room, .committed = on_committed, .tail_moved = on_tail_moved, .died = on_died};
    if (c->o.log != NULL)
        cache_log_use(c->o.log, &m->user);
}

void commit_detach(struct cache *c)
{
    if (c->o.log != NULL)
        cache_log_use(c->o.log, NULL);
}
