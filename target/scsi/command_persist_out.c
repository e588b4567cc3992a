/*
 * PERSISTENT RESERVE OUT (SPC-4 6.16): an order to reservation.h, and what follows from it.
 *
 *     run --> [line] --> order --> keep --> the next value counts: news to the others --> [tasks aborted] --> end
 *                          |                                          ^
 *                          +-- nothing to be kept --------------------+
 *
 * One order at a time is being kept (lu->keeping), so that each is made from a value that counts; the rest stands in
 * line. Kept is what the next value is, when that or the present one is to outlive the power (APTPL); if that fails,
 * nothing has changed. An order whose task was aborted meanwhile is carried through all the same. PREEMPT AND ABORT
 * ends when the tasks it aborted have: then nothing of theirs will touch the medium any more.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/persist_list.h"
#include "target/scsi/reservation_record.h"
#include "target/scsi/task.h"

enum { PHASE_ORDER, PHASE_ABORTING };
enum { THE_PORT = 1 };

bool scsi_persist_out_parse(struct scsi_task *task)
{
    return scsi_parse_list(task);
}

static enum persist_action action_of(const struct scsi_task *task)
{
    return (enum persist_action)task->command->action;
}

static void end_with(struct scsi_task *task, enum persist_verdict verdict)
{
    static const struct scsi_sense *const senses[] = {
        [PERSIST_CDB_FIELD] = &sense_cdb_field,     [PERSIST_LIST_FIELD] = &sense_list_field,
        [PERSIST_LIST_LENGTH] = &sense_list_length, [PERSIST_WRONG_RELEASE] = &sense_wrong_release,
        [PERSIST_FULL] = &sense_no_registrations,
    };
    if (verdict == PERSIST_GOOD || verdict == PERSIST_CONFLICT)
        scsi_task_end(task, verdict == PERSIST_GOOD ? SCSI_GOOD : SCSI_RESERVATION_CONFLICT);
    else
        scsi_task_fail(task, senses[verdict]);
}

/* --- the order --- */

/* Of an initiator's name: all its ports that are here now. */
static enum persist_verdict register_other(const struct scsi_lu *lu, const struct transport_id *id, uint64_t key)
{
    const struct scsi_nexus *nexus;
    enum persist_verdict verdict = PERSIST_GOOD;
    if (!id->device)
        return reservations_add(lu->persist_next, id->name, key);
    TAILQ_FOREACH(nexus, &lu->target->nexuses, link)
    if (verdict == PERSIST_GOOD && transport_id_covers(id, nexus->port_name))
        verdict = reservations_add(lu->persist_next, nexus->port_name, key);
    return verdict;
}

static enum persist_verdict register_others(const struct scsi_lu *lu, const struct persist_list *list)
{
    enum persist_verdict verdict = PERSIST_GOOD;
    struct transport_id id;
    uint32_t bytes = 0;
    for (uint32_t at = 0; verdict == PERSIST_GOOD && at < list->ids_len; at += bytes) {
        bytes = transport_id_read(list->ids + at, list->ids_len - at, &id);
        verdict = bytes == 0 ? PERSIST_LIST_FIELD : register_other(lu, &id, list->action_key);
    }
    return verdict;
}

static bool move_target(const struct persist_list *list, struct transport_id *to)
{
    return list->port == THE_PORT && list->ids_len > 0 &&
           transport_id_read(list->ids, list->ids_len, to) == list->ids_len && !to->device;
}

/* Fills persist_next and persist_news. */
static enum persist_verdict order(struct scsi_task *task)
{
    uint8_t bytes[PERSIST_LIST_MAX];
    struct scsi_lu *lu = task->lu;
    struct persist_list list;
    struct transport_id to = {0};
    enum persist_action action = action_of(task);
    uint32_t len = scsi_task_list(task, bytes, sizeof bytes);
    enum persist_verdict verdict = persist_list_parse(bytes, len, task->data_len, action, &list);
    if (verdict != PERSIST_GOOD)
        return verdict;
    if (list.aptpl && action != PERSIST_CLEAR && lu->options.keeper == NULL)
        return PERSIST_LIST_FIELD;
    if (action == PERSIST_MOVE && !move_target(&list, &to))
        return PERSIST_LIST_FIELD;
    struct persist_order what = {.action = action,
                                 .scope = task->cdb[2] >> 4,
                                 .type = task->cdb[2] & 0x0f,
                                 .key = list.key,
                                 .action_key = list.action_key,
                                 .aptpl = list.aptpl,
                                 .for_others = list.spec_i_pt,
                                 .unregister = list.unregister,
                                 .port = task->nexus->port_name,
                                 .to = to.name};
    verdict = reservations_change(lu->persist, &what, lu->persist_next, lu->persist_news);
    if (verdict == PERSIST_GOOD && list.spec_i_pt && list.action_key != 0)
        verdict = register_others(lu, &list);
    return verdict;
}

/* --- what follows from it --- */

static void tell(struct scsi_lu *lu, const struct reservations *before, const struct scsi_nexus *cause)
{
    static const enum scsi_attention attentions[] = {[NEWS_CLEARED] = ATTENTION_CLEARED_KEYS,
                                                     [NEWS_RELEASED] = ATTENTION_RELEASED,
                                                     [NEWS_PREEMPTED] = ATTENTION_PREEMPTED};
    for (unsigned i = 0; i < before->count; i++)
        if (lu->persist_news[i] != NEWS_NONE)
            scsi_attention_raise_port(lu, attentions[lu->persist_news[i]], before->of[i].port, cause);
}

/* Those that run; and those whose data is still on the way, when they would. */
static void abort_tasks(struct scsi_lu *lu, const char *port)
{
    struct scsi_task *task, *next;
    struct scsi_nexus *nexus;
    TAILQ_FOREACH(nexus, &lu->target->nexuses, link)
    if (persist_same_port(nexus->port_name, port)) {
        nexus->preempted[lu->lun]++;
        nexus->prevents[lu->lun] = false; /* what it prevents ends, too: SBC-3, PREVENT ALLOW */
    }
    for (task = TAILQ_FIRST(&lu->running); task != NULL; task = next) {
        next = TAILQ_NEXT(task, link);
        if (persist_same_port(task->nexus->port_name, port))
            scsi_task_abort(task);
    }
}

/* The next value counts; the task ends, or waits for those that were preempted. */
static void settle(struct scsi_task *task)
{
    struct scsi_lu *lu = task->lu;
    struct reservations *before = lu->persist;
    lu->persist = lu->persist_next;
    lu->persist_next = before;
    tell(lu, before, task->nexus);
    if (action_of(task) != PERSIST_PREEMPT_ABORT || task->aborted) {
        scsi_task_end(task, SCSI_GOOD);
        return;
    }
    for (unsigned i = 0; i < before->count; i++)
        if (lu->persist_news[i] == NEWS_PREEMPTED)
            abort_tasks(lu, before->of[i].port);
    task->phase = PHASE_ABORTING;
    task->waiting_on = &lu->preempting;
    TAILQ_INSERT_TAIL(&lu->preempting, task, wait);
    scsi_persist_look(lu);
}

void scsi_persist_look(struct scsi_lu *lu)
{
    const struct scsi_task *task;
    if (TAILQ_EMPTY(&lu->preempting))
        return;
    TAILQ_FOREACH(task, &lu->running, link)
    if (task->aborted)
        return;
    struct scsi_task *waits;
    while ((waits = TAILQ_FIRST(&lu->preempting)) != NULL) {
        TAILQ_REMOVE(&lu->preempting, waits, wait);
        waits->waiting_on = NULL;
        scsi_task_continue(waits);
    }
}

/* --- keeping --- */

static void kept(struct scsi_keep *keep)
{
    struct scsi_lu *lu = container_of(keep, struct scsi_lu, keep);
    struct scsi_task *task = lu->keeping, *next;
    free((char *)keep->record);
    lu->keeping = NULL;
    if (keep->error == 0)
        settle(task);
    else
        scsi_task_fail(task, keep->error == -ENOSPC ? &sense_no_registrations : &sense_not_kept);
    while (lu->keeping == NULL && (next = TAILQ_FIRST(&lu->persist_line)) != NULL) {
        TAILQ_REMOVE(&lu->persist_line, next, wait);
        next->waiting_on = NULL;
        scsi_task_continue(next);
    }
}

/* False: no memory. */
static bool keep(struct scsi_task *task)
{
    struct scsi_lu *lu = task->lu;
    char *record = lu->persist_next->aptpl ? reservation_record_write(lu->persist_next, MARK_NONE) : NULL;
    if (lu->persist_next->aptpl && record == NULL)
        return false;
    lu->keep = (struct scsi_keep){.record = record, .done = kept};
    lu->keeping = task;
    lu->options.keeper->keep(lu->options.keeper, &lu->keep);
    return true;
}

void scsi_persist_out_run(struct scsi_task *task)
{
    struct scsi_lu *lu = task->lu;
    if (task->phase == PHASE_ABORTING) {
        scsi_task_end(task, SCSI_GOOD);
        return;
    }
    if (lu->keeping != NULL) {
        task->waiting_on = &lu->persist_line;
        TAILQ_INSERT_TAIL(&lu->persist_line, task, wait);
        return;
    }
    enum persist_verdict verdict = order(task);
    if (verdict != PERSIST_GOOD)
        end_with(task, verdict);
    else if (!lu->persist->aptpl && !lu->persist_next->aptpl)
        settle(task);
    else if (!keep(task))
        scsi_task_fail(task, &sense_not_kept);
}
