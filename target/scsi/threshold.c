/* The soft threshold: see threshold.h. */
#include "target/scsi/threshold.h"

#include <stdlib.h>

#include "core/check.h"
#include "core/log.h"
#include "target/scsi/lu.h"

enum { PIECES_MAX = 1024, PERCENT = 100, MARGIN_PARTS = 50 };
#define PAUSE_NS (100 * 1000000ull)
#define REST_NS  (2 * 1000000000ull)

enum state { OFF, SWEEPS, RESTS };

struct scsi_threshold {
    struct scsi_lu *lu;
    enum state state;
    uint64_t bytes;          /* UINT64_MAX: none */
    uint64_t position, used; /* of this sweep */
    uint64_t swept_ns;       /* when the last one was over */
    unsigned pieces;         /* since the last pause */
    bool reached;            /* and told */
    bool busy, anew, stopped;
    struct timer pause;
    struct blk_req req;
};

uint64_t scsi_threshold_bytes(const struct scsi_mode *mode, uint64_t size)
{
    uint64_t count = mode->threshold_count;
    if (!mode->threshold_enabled || !mode->threshold_reports)
        return UINT64_MAX;
    if (mode->threshold_percent)
        return size / PERCENT * count + size % PERCENT * count / PERCENT;
    return count * LOG_MAPPING_UNIT;
}

static void pause_over(struct timer *timer);

struct scsi_threshold *scsi_threshold_create(struct scsi_lu *lu)
{
    struct scsi_threshold *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->lu = lu;
    t->bytes = UINT64_MAX;
    t->pause.fire = pause_over;
    return t;
}

void scsi_threshold_destroy(struct scsi_threshold *t)
{
    ASSERT(!t->busy && !t->pause.armed);
    free(t);
}

bool scsi_threshold_busy(const struct scsi_threshold *t)
{
    return t->busy;
}

/* --- a sweep --- */

static void judge(struct scsi_threshold *t)
{
    uint64_t margin = t->lu->dev->info.size / MARGIN_PARTS;
    bool reached = t->used >= t->bytes;
    if (reached && !t->reached) {
        log_warn("LUN %u of %s: %llu MiB are in use, so the threshold that is set is reached", t->lu->lun,
                 t->lu->target->name, (unsigned long long)(t->used / MIB));
        scsi_attention_raise(t->lu, ATTENTION_SOFT_THRESHOLD, NULL);
    }
    t->reached = reached || (t->reached && t->used + margin > t->bytes);
}

/* The next piece, or a pause, or the end: the medium may have grown or shrunk meanwhile. */
static void go_on(struct scsi_threshold *t)
{
    uint64_t size = t->lu->dev->info.size;
    if (t->position >= size) {
        t->state = RESTS;
        t->swept_ns = loop_now_ns(t->lu->target->loop);
        judge(t);
    } else if (t->pieces++ == PIECES_MAX) {
        timer_start(t->lu->target->loop, &t->pause, PAUSE_NS);
    } else {
        t->busy = true;
        t->req.op = BLK_STATUS;
        t->req.off = t->position;
        t->req.len = size - t->position;
        blk_submit(t->lu->dev, &t->req);
    }
}

static void pause_over(struct timer *timer)
{
    struct scsi_threshold *t = container_of(timer, struct scsi_threshold, pause);
    t->pieces = 0;
    go_on(t);
}

static void sweep(struct scsi_threshold *t);

/* What cannot be asked is not counted. */
static void status_done(struct blk_req *req)
{
    struct scsi_threshold *t = container_of(req, struct scsi_threshold, req);
    bool known = req->status == BLK_OK;
    t->busy = false;
    t->position += known ? req->extent : req->len;
    t->used += known && req->written ? req->extent : 0;
    if (t->stopped)
        scsi_target_look(t->lu->target);
    else if (t->anew)
        sweep(t);
    else
        go_on(t);
}

/* From the beginning; or none any more. */
static void sweep(struct scsi_threshold *t)
{
    t->anew = false;
    t->state = t->bytes == UINT64_MAX ? OFF : SWEEPS;
    t->position = t->used = t->pieces = 0;
    t->req.done = status_done;
    if (t->state == SWEEPS)
        go_on(t);
}

/* --- from outside --- */

bool scsi_threshold_reached(const struct scsi_threshold *t)
{
    return t->reached;
}

/* The percentage may be of another size by now. */
void scsi_threshold_look(struct scsi_threshold *t)
{
    if (t->state != RESTS || t->stopped || loop_now_ns(t->lu->target->loop) - t->swept_ns < REST_NS)
        return;
    t->bytes = scsi_threshold_bytes(&t->lu->mode, t->lu->dev->info.size);
    sweep(t);
}

void scsi_threshold_set(struct scsi_threshold *t)
{
    uint64_t bytes = scsi_threshold_bytes(&t->lu->mode, t->lu->dev->info.size);
    if (t->stopped || bytes == t->bytes)
        return;
    t->bytes = bytes;
    t->reached = false;
    timer_stop(t->lu->target->loop, &t->pause);
    t->anew = t->busy;
    if (!t->busy)
        sweep(t);
}

void scsi_threshold_stop(struct scsi_threshold *t)
{
    t->stopped = true;
    timer_stop(t->lu->target->loop, &t->pause);
}
