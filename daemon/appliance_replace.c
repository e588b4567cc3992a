/*
 * Replacing disks in service: the new one is opened beside the old one, and lent to the array, which copies it (see
 * raid/array_replace.h). Once a second the worker looks whether that is over, and closes the disk that is left over:
 * the old one, which can be unplugged then, or the new one, if it failed.
 */
#include <string.h>

#include "core/log.h"
#include "daemon/appliance_internal.h"

struct replace_call {
    struct sync_call call;
    struct array_call array_call;
    struct live_array *live;
    unsigned slot;
    struct array_replacement replacement;
    bool in_service, written;
};

static void begun(struct array_call *call)
{
    sync_finish(&container_of(call, struct replace_call, array_call)->call);
}

static void run_replace(struct sync_call *call)
{
    struct replace_call *c = container_of(call, struct replace_call, call);
    array_replace_member(c->live->array, c->slot, &c->live->newcomer.disk, &c->array_call);
}

static void run_look(struct sync_call *call)
{
    struct replace_call *c = container_of(call, struct replace_call, call);
    array_replacement(c->live->array, &c->replacement);
    sync_finish(call);
}

static void run_state(struct sync_call *call)
{
    struct replace_call *c = container_of(call, struct replace_call, call);
    struct array_info info;
    array_info(c->live->array, &info);
    c->in_service = strcmp(info.members[c->slot].state, "online") == 0;
    c->written = c->in_service || strcmp(info.members[c->slot].state, "rebuilding") == 0;
    sync_finish(call);
}

struct array_replacement live_replacement(struct live_array *live)
{
    struct replace_call c = {.live = live};
    sync_call(&c.call, reactor_loop(live->home), run_look);
    return c.replacement;
}

bool live_slot_in_service(struct live_array *live, unsigned slot)
{
    struct replace_call c = {.live = live, .slot = slot};
    sync_call(&c.call, reactor_loop(live->home), run_state);
    return c.in_service;
}

bool live_slot_is_written(struct live_array *live, unsigned slot)
{
    struct replace_call c = {.live = live, .slot = slot};
    sync_call(&c.call, reactor_loop(live->home), run_state);
    return c.written;
}

struct live_array *live_newcomer_find(struct appliance *a, const char *path)
{
    struct live_array *live;
    TAILQ_FOREACH(live, &a->arrays, link)
    if (live->newcomer.disk.dev != NULL && strcmp(live->newcomer.path, path) == 0)
        return live;
    return NULL;
}

bool live_array_replace(struct appliance *a, struct live_array *live, unsigned slot, const char *path, char *why,
                        size_t why_len)
{
    struct replace_call c = {.live = live, .slot = slot, .array_call.done = begun};
    live_replacements_look(a);
    if (live->newcomer.disk.dev != NULL) {
        text_format(why, why_len, "array %s is replacing a disk already: wait until it is over", live->name);
        return false;
    }
    if (!live_disk_open(a, live, &live->newcomer, path, why, why_len))
        return false;
    sync_call(&c.call, reactor_loop(live->home), run_replace);
    if (c.array_call.error != 0) {
        text_format(why, why_len, "%s", c.array_call.message);
        live_disk_close(&live->newcomer);
        return false;
    }
    atomic_store(&a->replacing, true);
    return true;
}

static void over(struct live_array *live, const struct array_replacement *replacement)
{
    struct live_disk *old = &live->disks[replacement->slot];
    if (replacement->error != 0) {
        live_disk_close(&live->newcomer);
        return;
    }
    log_notice("array %s: disk %s can be unplugged: %s has taken its place", live->name, old->path,
               live->newcomer.path);
    live_disk_close(old);
    *old = live->newcomer;
    live->newcomer.disk.dev = live->newcomer.remote = NULL;
}

void live_replacements_look(struct appliance *a)
{
    struct live_array *live;
    TAILQ_FOREACH(live, &a->arrays, link)
    {
        if (live->array == NULL || live->newcomer.disk.dev == NULL)
            continue;
        struct array_replacement replacement = live_replacement(live);
        if (!replacement.running)
            over(live, &replacement);
    }
}
