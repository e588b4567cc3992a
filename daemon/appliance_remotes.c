/*
 * Disks of other machines come and go: those that were away are looked for, and brought back.
 *
 *      silent --(knocked at, after 1, 2, 4 .. 30 s)--> answers --> its array is started, or its slot catches up
 *         ^                                              |
 *         +---------- not now: try again later ----------+--> not by itself: said once, left to the operator
 *
 * A disk is silent when it could not be reached at a scan, or its device is gone (daemon/remote.h, R1). Threads knock,
 * since that may take seconds; what follows is the worker's, once a second. An array is started that waits for its
 * disks, as at a start, without force. A member comes back if it just was not there, still carries the label with which
 * it left (history_is_of_slot()), and is the very disk: it is caught up if the region maps know what it missed, else
 * rebuilt from end to end. That is more than is done for disks of this machine, where the operator is asked: networks
 * come and go, cables do not. Whatever else must be decided is the operator's.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_internal.h"
#include "daemon/helpers.h"
#include "daemon/remote.h"
#include "daemon/remote_uri.h"
#include "raid/assembly_history.h"

enum { KNOCKERS = 4, PAUSE_FIRST_S = 1, PAUSE_MAX_S = 30 };

enum remote_knocking { RESTING, KNOCKING, ANSWERED, UNANSWERED };

struct live_remote {
    TAILQ_ENTRY(live_remote) link;
    char path[CONFIG_PATH_MAX + 1];
    bool silent;               /* when last looked at */
    const struct blkdev *left; /* gone, and not to come back by itself */
    unsigned pause_s;
    time_t next;  /* monotonic seconds */
    time_t heard; /* when it answered last; 0: never */
    char said[512];
    struct helper_job job; /* a knock */
    bool answers;          /* its result */
    atomic_int state;      /* enum remote_knocking */
};

static time_t now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static struct live_remote *remote_named(struct appliance *a, const char *path)
{
    struct live_remote *remote;
    TAILQ_FOREACH(remote, &a->remotes, link)
    if (strcmp(remote->path, path) == 0)
        return remote;
    remote = calloc(1, sizeof *remote);
    ASSERT(remote != NULL);
    text_format(remote->path, sizeof remote->path, "%s", path);
    remote->pause_s = PAUSE_FIRST_S;
    TAILQ_INSERT_TAIL(&a->remotes, remote, link);
    atomic_store(&a->remotes_known, true);
    return remote;
}

void live_remotes_scanned(struct appliance *a, const struct scan *scan)
{
    for (unsigned i = 0; i < scan->count; i++)
        if (remote_is_uri(scan->disks[i].path))
            remote_named(a, scan->disks[i].path)->silent = scan->disks[i].error[0] != '\0';
}

/* --- knocking --- */

static void knock_work(struct helper_job *job)
{
    struct live_remote *remote = container_of(job, struct live_remote, job);
    remote->answers = remote_knock(remote->path);
}

static void knock_over(struct task *task)
{
    struct live_remote *remote = container_of(task, struct live_remote, job.done);
    atomic_store(&remote->state, remote->answers ? ANSWERED : UNANSWERED);
}

static void knock(struct appliance *a, struct live_remote *remote)
{
    if (a->knockers == NULL)
        a->knockers = helpers_create(KNOCKERS);
    if (a->knockers == NULL)
        return;
    atomic_store(&remote->state, KNOCKING);
    remote->job = (struct helper_job){.work = knock_work, .done.run = knock_over, .home = reactor_loop(a->reactors[0])};
    helpers_submit(a->knockers, &remote->job);
}

/* --- coming back --- */

static void say_once(struct live_remote *remote, const char *array, const char *why)
{
    if (strcmp(remote->said, why) != 0)
        log_warn("array %s: disk %s answers again, and is not taken back: %s", array, remote->path, why);
    text_format(remote->said, sizeof remote->said, "%s", why);
}

static int slot_of(const struct sb_array *array, const struct uuid *member)
{
    for (unsigned slot = 0; slot < array->members_count; slot++)
        if (uuid_equal(&array->members[slot].uuid, member))
            return (int)slot;
    return -1;
}

enum comeback { BACK, LATER, NEVER };

/* NULL if the disk may take its slot without being asked for, as at a start; else why not. */
static const char *objection(const struct sb_array *array, const struct scan_disk *disk, int *slot)
{
    *slot = disk->label != NULL ? slot_of(array, &disk->label->member) : -1;
    if (*slot < 0)
        return "it does not carry the label of a member that is missing; see corbelctl disk online";
    if (!array->members[*slot].vanished)
        return "it was taken out of service; corbelctl disk online takes it back";
    if (!history_is_of_slot(array, (unsigned)*slot, disk->label) ||
        strcmp(disk->identity, array->members[*slot].identity) != 0)
        return "it is not as it left, or not the same disk; corbelctl disk online rebuilds it";
    return NULL;
}

struct state_call {
    struct sync_call call;
    struct live_array *live;
    bool frozen;
};

static void run_state(struct sync_call *call)
{
    struct state_call *c = container_of(call, struct state_call, call);
    struct array_info info;
    array_info(c->live->array, &info);
    c->frozen = strcmp(info.state, "frozen") == 0;
    sync_finish(call);
}

bool live_array_is_frozen(struct live_array *live)
{
    struct state_call c = {.live = live};
    sync_call(&c.call, reactor_loop(live->home), run_state);
    return c.frozen;
}

struct flush_call {
    struct sync_call call;
    struct array *array;
    const char *volume;
    struct blk_req req;
};

static void flushed(struct blk_req *req)
{
    sync_finish(&container_of(req, struct flush_call, req)->call);
}

static void run_flush(struct sync_call *call)
{
    struct flush_call *c = container_of(call, struct flush_call, call);
    struct blkdev *dev = array_volume(c->array, c->volume);
    c->req = (struct blk_req){.op = BLK_FLUSH, .done = flushed};
    if (dev != NULL)
        blk_submit(dev, &c->req);
    else
        sync_finish(call);
}

/* An array that is idle has not noticed that a disk is gone: a flush (past its caches) asks all of them. */
static void have_it_noticed(struct live_array *live)
{
    struct sb_array *description = live_array_describe(live);
    for (unsigned i = 0; i < description->volumes_count; i++) {
        struct flush_call c = {.array = live->array, .volume = description->volumes[i].name};
        sync_call(&c.call, reactor_loop(live->home), run_flush);
    }
    free(description);
}

/* What the disk says of itself does not matter yet. */
static bool must_wait(struct live_array *live, const struct blkdev *gone)
{
    for (unsigned i = 0; gone != NULL && i < live->slots; i++)
        if (live->disks[i].remote == gone && live_slot_is_written(live, i)) {
            have_it_noticed(live);
            return true;
        }
    return false;
}

static enum comeback join_again(struct appliance *a, struct live_array *live, struct live_remote *remote,
                                const struct blkdev *gone)
{
    char why[512] = "";
    int slot;
    enum comeback result = LATER;
    if (must_wait(live, gone))
        return LATER;
    struct scan scan = {0};
    struct sb_array *description = live_array_describe(live);
    scan_add(&scan, live->home, remote->path, 0);
    const char *wrong = objection(description, &scan.disks[0], &slot);
    if (scan.disks[0].error[0] != '\0') {
        text_format(why, sizeof why, "%s", scan.disks[0].error);
    } else if (wrong != NULL) {
        text_format(why, sizeof why, "%s", wrong);
        result = NEVER;
    } else if (live_slot_is_written(live, (unsigned)slot) ||
               live_array_online(a, live, (unsigned)slot, remote->path, why, sizeof why)) {
        log_notice("array %s: disk %s was away and is back in slot %d", live->name, remote->path, slot);
        result = BACK;
    }
    if (result != BACK)
        say_once(remote, live->name, why);
    scan_free(&scan);
    free(description);
    return result;
}

static enum comeback start_again(struct appliance *a, const struct config_array *config)
{
    struct assembly_options options = {0};
    return live_array_start_again(a, config->name.text, &options) ? BACK : LATER;
}

/* Have all disks answered lately whose devices are gone? */
static bool all_answer(struct appliance *a, const struct live_array *live)
{
    for (unsigned i = 0; i < live->slots; i++)
        if (live->disks[i].remote != NULL && remote_is_gone(live->disks[i].remote)) {
            time_t heard = remote_named(a, live->disks[i].path)->heard;
            if (heard == 0 || now_s() - heard > 2 * PAUSE_MAX_S)
                return false;
        }
    return true;
}

static enum comeback thaw(struct appliance *a, const struct config_array *config, struct live_array *live,
                          struct live_remote *remote)
{
    char why[512];
    if (!all_answer(a, live)) {
        say_once(remote, live->name, "the array is frozen, and starts anew when all its disks answer");
        return LATER;
    }
    if (live_array_thaw(a, live, false, why, sizeof why))
        return start_again(a, config);
    say_once(remote, live->name, why);
    return LATER;
}

/* --- each second --- */

/* Is a disk of this array's missing that this may be? *gone: its device that is of no use any more. */
static bool is_missing(const struct live_array *live, const char *path, const struct blkdev **gone)
{
    bool vacant = false;
    *gone = NULL;
    if (live == NULL || live->array == NULL)
        return live != NULL && strcmp(live->verdict, "not created") != 0;
    for (unsigned i = 0; i < live->slots; i++) {
        const struct live_disk *disk = &live->disks[i];
        vacant |= disk->disk.dev == NULL;
        if (disk->disk.dev == NULL || strcmp(disk->path, path) != 0)
            continue;
        *gone = disk->remote != NULL && remote_is_gone(disk->remote) ? disk->remote : NULL;
        return *gone != NULL;
    }
    return vacant;
}

static void rest(struct live_remote *remote)
{
    remote->next = now_s() + remote->pause_s;
    remote->pause_s = MIN(remote->pause_s * 2, (unsigned)PAUSE_MAX_S);
    atomic_store(&remote->state, RESTING);
}

static void answered(struct appliance *a, const struct config_array *config, struct live_array *live,
                     struct live_remote *remote, const struct blkdev *gone)
{
    remote->heard = now_s();
    enum comeback result = live->array == NULL          ? start_again(a, config)
                           : live_array_is_frozen(live) ? thaw(a, config, live, remote)
                                                        : join_again(a, live, remote, gone);
    if (live->array == NULL && result == LATER)
        return; /* the scan has looked: what is silent still is known */
    remote->silent = result == LATER;
    remote->left = result == NEVER ? gone : NULL;
    if (result == BACK)
        remote->pause_s = PAUSE_FIRST_S;
}

static void look_for(struct appliance *a, const struct config_array *config, const char *path)
{
    struct live_array *live = live_array_find(a, config->name.text);
    struct live_remote *remote = remote_named(a, path);
    const struct blkdev *gone;
    bool missing = is_missing(live, path, &gone);
    if (gone != NULL && gone != remote->left)
        remote->silent = true;
    int state = atomic_load(&remote->state);
    if (state == KNOCKING)
        return;
    if (!missing || !remote->silent) {
        if (!missing) {
            remote->left = NULL;
            remote->said[0] = '\0';
        }
        atomic_store(&remote->state, RESTING);
        return;
    }
    if (state == RESTING && now_s() >= remote->next) {
        knock(a, remote);
    } else if (state != RESTING) {
        rest(remote);
        if (state == ANSWERED)
            answered(a, config, live, remote, gone);
    }
}

void live_remotes_look(struct appliance *a)
{
    for (unsigned i = 0; i < a->config->arrays.count; i++) {
        const struct config_array *array = config_item(&a->config->arrays, struct config_array, i);
        for (unsigned d = 0; d < array->disks.count; d++)
            if (remote_is_uri(array->disks.items[d].text))
                look_for(a, array, array->disks.items[d].text);
    }
}

/* --- the end --- */

void live_remotes_stop(struct appliance *a)
{
    if (a->knockers != NULL && !helpers_destroy(a->knockers))
        log_warn("a disk of another machine is still being looked for");
    a->knockers = NULL;
}

void live_remotes_free(struct appliance *a)
{
    struct live_remote *remote;
    while ((remote = TAILQ_FIRST(&a->remotes)) != NULL) {
        TAILQ_REMOVE(&a->remotes, remote, link);
        if (atomic_load(&remote->state) != KNOCKING) /* else a thread still has it */
            free(remote);
    }
}
