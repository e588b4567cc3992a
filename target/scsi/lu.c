/*
 * Targets, logical units, nexuses, unit attentions and resets: see lu.h.
 *
 * Memory is taken in the create functions only. Events of the device below arrive through a blk_watcher and become unit
 * attentions (a resize, another WCE) or readiness (failed, restored).
 */
#include "target/scsi/lu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/log.h"
#include "target/scsi/copy_result.h"
#include "target/scsi/reservation_record.h"
#include "target/scsi/rod_token.h"
#include "target/scsi/sanitize.h"
#include "target/scsi/scratch.h"
#include "target/scsi/threshold.h"

/* --- unit attentions --- */

static const struct {
    uint8_t asc, ascq;
} attention_codes[ATTENTION_COUNT] = {
    [ATTENTION_POWER_ON] = {0x29, 0x00},       [ATTENTION_TARGET_RESET] = {0x29, 0x02},
    [ATTENTION_LU_RESET] = {0x29, 0x03},       [ATTENTION_MODE_CHANGED] = {0x2a, 0x01},
    [ATTENTION_CLEARED_KEYS] = {0x2a, 0x03},   [ATTENTION_RELEASED] = {0x2a, 0x04},
    [ATTENTION_PREEMPTED] = {0x2a, 0x05},      [ATTENTION_CAPACITY_CHANGED] = {0x2a, 0x09},
    [ATTENTION_CLEARED] = {0x2f, 0x00},        [ATTENTION_LUNS_CHANGED] = {0x3f, 0x0e},
    [ATTENTION_MEDIUM_CHANGED] = {0x28, 0x00}, [ATTENTION_SOFT_THRESHOLD] = {0x38, 0x07},
};

static void raise_on(struct scsi_nexus *nexus, unsigned lun, enum scsi_attention attention)
{
    /* A reset makes older news stale (SAM-5 5.14.2). */
    bool reset = attention <= ATTENTION_LU_RESET;
    nexus->attentions[lun] = (uint16_t)((reset ? 0 : nexus->attentions[lun]) | 1u << attention);
}

void scsi_attention_raise(struct scsi_lu *lu, enum scsi_attention attention, const struct scsi_nexus *except)
{
    struct scsi_nexus *nexus;
    TAILQ_FOREACH(nexus, &lu->target->nexuses, link)
    if (nexus != except)
        raise_on(nexus, lu->lun, attention);
}

void scsi_attention_raise_port(struct scsi_lu *lu, enum scsi_attention attention, const char *port,
                               const struct scsi_nexus *except)
{
    struct scsi_nexus *nexus;
    TAILQ_FOREACH(nexus, &lu->target->nexuses, link)
    if (nexus != except && persist_same_port(nexus->port_name, port))
        raise_on(nexus, lu->lun, attention);
}

bool scsi_attention_take(struct scsi_nexus *nexus, const struct scsi_lu *lu, struct scsi_sense *sense)
{
    uint16_t *pending = &nexus->attentions[lu->lun];
    if (*pending == 0)
        return false;
    unsigned first = (unsigned)__builtin_ctz(*pending);
    *pending = (uint16_t)(*pending & (*pending - 1));
    *sense = (struct scsi_sense){
        .key = SENSE_UNIT_ATTENTION, .asc = attention_codes[first].asc, .ascq = attention_codes[first].ascq};
    return true;
}

void scsi_attention_clear_luns(struct scsi_nexus *nexus)
{
    for (unsigned lun = 0; lun < SCSI_LUNS_MAX; lun++)
        nexus->attentions[lun] &= (uint16_t) ~(1u << ATTENTION_LUNS_CHANGED);
}

/* --- logical units --- */

static void device_event(struct blk_watcher *watcher, struct blkdev *dev, enum blk_event event)
{
    struct scsi_lu *lu = container_of(watcher, struct scsi_lu, watcher);
    ASSERT(lu->dev == dev);
    if (event == BLK_EVENT_RESIZED)
        scsi_attention_raise(lu, ATTENTION_CAPACITY_CHANGED, NULL);
    else if (event == BLK_EVENT_CACHE) /* WCE */
        scsi_attention_raise(lu, ATTENTION_MODE_CHANGED, NULL);
    else
        lu->failed = event == BLK_EVENT_FAILED; /* degraded, too, is ready */
}

/* Peripheral (00b, bus 0) or flat (01b) addressing on the first level, nothing below: SAM-5 4.7.7. -1: any other. */
static int lun_number(const uint8_t lun[8])
{
    unsigned method = lun[0] >> 6, number = get_be16(lun) & 0x3fff;
    bool below = get_be16(lun + 2) != 0 || get_be32(lun + 4) != 0;
    return method > 1 || below || number >= SCSI_LUNS_MAX ? -1 : (int)number;
}

struct scsi_lu *scsi_lu_find(const struct scsi_target *target, const uint8_t lun[8])
{
    int number = lun_number(lun);
    return number >= 0 ? target->lus[number] : NULL;
}

/* The row of its view, as if it had one. */
static uint16_t view_row(const struct scsi_nexus *nexus, const uint8_t lun[8])
{
    int number = lun_number(lun);
    if (number < 0)
        return SCSI_VIEW_NOTHING;
    return nexus->view != NULL ? nexus->view->row[number] : (uint16_t)number;
}

struct scsi_lu *scsi_nexus_lu(const struct scsi_nexus *nexus, const uint8_t lun[8])
{
    uint16_t row = view_row(nexus, lun);
    unsigned number = row & ~(unsigned)SCSI_VIEW_READ_ONLY;
    return row != SCSI_VIEW_NOTHING && number < SCSI_LUNS_MAX ? nexus->target->lus[number] : NULL;
}

bool scsi_nexus_read_only(const struct scsi_nexus *nexus, const uint8_t lun[8])
{
    return (view_row(nexus, lun) & SCSI_VIEW_READ_ONLY) != 0;
}

void scsi_nexus_set_view(struct scsi_nexus *nexus, const struct scsi_view *view)
{
    nexus->view = view;
}

bool scsi_nexus_resolve(const struct scsi_nexus *nexus, const uint8_t lun[8], uint8_t own[8])
{
    const struct scsi_lu *lu = scsi_nexus_lu(nexus, lun);
    memset(own, 0, 8);
    if (lu != NULL)
        put_be16(own, (uint16_t)lu->lun);
    return lu != NULL;
}

bool scsi_lu_read_only(const struct scsi_lu *lu)
{
    return lu->options.read_only || lu->dev->info.read_only || lu->mode.software_write_protect;
}

/* What a step may be split to must end on a page's edge: see blk_step() in command_block.c. */
static bool device_fits(const struct scsi_target *target, const struct blkdev *dev)
{
    return dev != NULL && dev->loop == target->loop && dev->info.size > 0 &&
           (dev->info.max_request == 0 || dev->info.max_request >= PAGE_BYTES);
}

static void lu_free(struct scsi_lu *lu)
{
    if (lu->sanitize != NULL)
        scsi_sanitize_destroy(lu->sanitize);
    if (lu->threshold != NULL)
        scsi_threshold_destroy(lu->threshold);
    free(lu->persist);
    free(lu->persist_next);
    free(lu);
}

/* Persistent reservations as they were kept. A record that cannot be read is not passed over: it protects data. */
static int lu_open(struct scsi_lu *lu)
{
    TAILQ_INIT(&lu->persist_line);
    TAILQ_INIT(&lu->preempting);
    lu->persist = calloc(1, sizeof *lu->persist);
    lu->persist_next = calloc(1, sizeof *lu->persist_next);
    lu->sanitize = scsi_sanitize_create(lu);
    lu->threshold = scsi_threshold_create(lu);
    if (lu->persist == NULL || lu->persist_next == NULL || lu->sanitize == NULL || lu->threshold == NULL)
        return -ENOMEM;
    const char *record = lu->options.record;
    enum sanitize_mark mark = MARK_NONE;
    lu->options.record = NULL;
    if (record != NULL && !reservation_record_read(record, lu->persist, &mark))
        return -EINVAL;
    if (mark != MARK_NONE)
        scsi_sanitize_interrupted(lu, mark == MARK_EXIT_ALLOWED);
    return 0;
}

int scsi_target_add_lun(struct scsi_target *target, unsigned lun, const struct scsi_lu_options *options)
{
    if (lun >= SCSI_LUNS_MAX || !device_fits(target, options->dev))
        return -EINVAL;
    if (options->record != NULL && options->keeper == NULL)
        return -EINVAL;
    if (target->lus[lun] != NULL)
        return -EEXIST;
    struct scsi_lu *lu = calloc(1, sizeof *lu);
    if (lu == NULL)
        return -ENOMEM;
    *lu = (struct scsi_lu){.target = target, .lun = lun, .options = *options, .dev = options->dev};
    int error = lu_open(lu);
    if (error != 0) {
        lu_free(lu);
        return error;
    }
    if (options->product[0] == '\0')
        text_format(lu->options.product, sizeof lu->options.product, "%s", "Corbel volume");
    TAILQ_INIT(&lu->running);
    TAILQ_INIT(&lu->blocked);
    lu->served_ns = loop_now_ns(target->loop);
    lu->mode = scsi_mode_default(options->soft_threshold);
    lu->watcher.event = device_event;
    blk_watch(lu->dev, &lu->watcher);
    target->lus[lun] = lu;
    scsi_threshold_set(lu->threshold);
    scsi_attention_raise(lu, ATTENTION_POWER_ON, NULL);
    for (unsigned other = 0; other < SCSI_LUNS_MAX; other++)
        if (other != lun && target->lus[other] != NULL)
            scsi_attention_raise(target->lus[other], ATTENTION_LUNS_CHANGED, NULL);
    return 0;
}

static void lu_destroy(struct scsi_lu *lu)
{
    ASSERT(TAILQ_EMPTY(&lu->running) && TAILQ_EMPTY(&lu->blocked));
    ASSERT(lu->keeping == NULL);
    blk_unwatch(lu->dev, &lu->watcher);
    lu_free(lu);
}

/* --- targets and nexuses --- */

struct scsi_target *scsi_target_create(struct loop *loop, const char *name)
{
    struct scsi_target *target = calloc(1, sizeof *target);
    if (target == NULL)
        return NULL;
    target->loop = loop;
    text_format(target->name, sizeof target->name, "%s", name);
    TAILQ_INIT(&target->nexuses);
    target->scratch = scsi_scratch_create(loop);
    target->copies = calloc(1, sizeof *target->copies);
    target->tokens = calloc(1, sizeof *target->tokens);
    if (target->scratch != NULL && target->copies != NULL && target->tokens != NULL) {
        target->tokens->loop = loop;
        return target;
    }
    if (target->scratch != NULL)
        scsi_scratch_destroy(target->scratch);
    free(target->copies);
    free(target->tokens);
    free(target);
    return NULL;
}

void scsi_target_look(struct scsi_target *target)
{
    for (unsigned lun = 0; lun < SCSI_LUNS_MAX; lun++) {
        const struct scsi_lu *lu = target->lus[lun];
        if (lu != NULL && (scsi_sanitize_busy(lu->sanitize) || scsi_threshold_busy(lu->threshold)))
            return;
    }
    if (target->stopped != NULL && !target->stopped->queued)
        loop_defer(target->loop, target->stopped);
}

void scsi_target_stop(struct scsi_target *target, struct task *stopped)
{
    target->stopped = stopped;
    for (unsigned lun = 0; lun < SCSI_LUNS_MAX; lun++) {
        if (target->lus[lun] == NULL)
            continue;
        scsi_sanitize_stop(target->lus[lun]->sanitize);
        scsi_threshold_stop(target->lus[lun]->threshold);
    }
    scsi_target_look(target);
}

void scsi_target_destroy(struct scsi_target *target)
{
    ASSERT(TAILQ_EMPTY(&target->nexuses));
    for (unsigned lun = 0; lun < SCSI_LUNS_MAX; lun++)
        if (target->lus[lun] != NULL)
            lu_destroy(target->lus[lun]);
    scsi_scratch_destroy(target->scratch);
    free(target->copies);
    free(target->tokens);
    free(target);
}

struct scsi_nexus *scsi_nexus_create(struct scsi_target *target, const char *port_name)
{
    struct scsi_nexus *nexus = calloc(1, sizeof *nexus);
    if (nexus == NULL)
        return NULL;
    nexus->target = target;
    text_format(nexus->port_name, sizeof nexus->port_name, "%s", port_name);
    for (unsigned lun = 0; lun < SCSI_LUNS_MAX; lun++) {
        raise_on(nexus, lun, ATTENTION_POWER_ON);
        if (target->lus[lun] != NULL && scsi_threshold_reached(target->lus[lun]->threshold))
            raise_on(nexus, lun, ATTENTION_SOFT_THRESHOLD);
    }
    TAILQ_INSERT_TAIL(&target->nexuses, nexus, link);
    return nexus;
}

void scsi_nexus_lost(struct scsi_nexus *nexus)
{
    for (unsigned lun = 0; lun < SCSI_LUNS_MAX; lun++) {
        struct scsi_lu *lu = nexus->target->lus[lun];
        nexus->prevents[lun] = false;
        if (lu != NULL && lu->reserved_by == nexus)
            lu->reserved_by = NULL;
    }
}

void scsi_nexus_destroy(struct scsi_nexus *nexus)
{
    ASSERT(nexus->task_count == 0);
    scsi_nexus_lost(nexus);
    copy_results_forget(nexus->target->copies, nexus);
    TAILQ_REMOVE(&nexus->target->nexuses, nexus, link);
    free(nexus);
}

/* --- resets --- */

static void lu_reset(struct scsi_lu *lu, enum scsi_attention attention)
{
    struct scsi_nexus *nexus;
    TAILQ_FOREACH(nexus, &lu->target->nexuses, link)
    nexus->prevents[lu->lun] = false;
    lu->reserved_by = NULL;
    lu->mode = scsi_mode_default(lu->options.soft_threshold);
    scsi_threshold_set(lu->threshold);
    scsi_attention_raise(lu, attention, NULL);
}

void scsi_lun_reset(struct scsi_target *target, const uint8_t lun[8])
{
    struct scsi_lu *lu = scsi_lu_find(target, lun);
    if (lu != NULL)
        lu_reset(lu, ATTENTION_LU_RESET);
}

void scsi_target_reset(struct scsi_target *target)
{
    for (unsigned lun = 0; lun < SCSI_LUNS_MAX; lun++)
        if (target->lus[lun] != NULL)
            lu_reset(target->lus[lun], ATTENTION_TARGET_RESET);
}

void scsi_nexus_cleared(struct scsi_nexus *nexus, const uint8_t lun[8])
{
    struct scsi_lu *lu = scsi_lu_find(nexus->target, lun);
    if (lu != NULL)
        raise_on(nexus, lu->lun, ATTENTION_CLEARED);
}
