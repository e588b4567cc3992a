/*
 * Arrays of Linux md that are served as they are, read-only: from the config's list of disks to a volume.
 *
 * First the disks are opened, exclusively and for reading, and then looked at: so nobody, the kernel's md included,
 * assembles or changes them in between. What does not open counts as missing. An import that could not be started is
 * tried again with each reload and apply.
 */
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_internal.h"
#include "daemon/md_disks.h"

struct import_call {
    struct sync_call call;
    const struct import_options *options;
    struct import *import;
    struct import_info info;
    struct task closed;
};

static struct live_import *find(struct appliance *a, const char *name)
{
    struct live_import *live;
    TAILQ_FOREACH(live, &a->imports, link)
    if (strcmp(live->name, name) == 0)
        return live;
    return NULL;
}

/* --- start --- */

static void run_open(struct sync_call *call)
{
    struct import_call *c = container_of(call, struct import_call, call);
    c->import = import_open(call->loop, c->options);
    sync_finish(call);
}

static void close_disks(struct live_import *live)
{
    for (unsigned slot = 0; slot < live->slots; slot++)
        live_disk_close(&live->disks[slot]);
    live->slots = 0;
}

/* Those that open, from the first on. */
static unsigned open_disks(struct appliance *a, const struct config_import *config, struct live_import *live,
                           struct live_disk *opened, const char **paths)
{
    unsigned count = 0;
    char why[256];
    for (unsigned i = 0; i < config->disks.count; i++) {
        struct live_disk *disk = &opened[count];
        if (!live_disk_open_on(a, live->home, true, disk, config->disks.items[i].text, why, sizeof why))
            log_warn("import %s: a disk is left out: %s", live->name, why);
        else
            paths[count++] = disk->path;
    }
    return count;
}

/* Disks to slots; who has none is closed. */
static void take_slots(struct live_import *live, const struct md_disks *md, struct live_disk *opened,
                       struct import_options *options)
{
    live->slots = md->set.usable ? md->set.sb->disks : 0;
    memset(live->disks, 0, sizeof live->disks);
    for (unsigned i = 0; i < md->given; i++) {
        int slot = -1;
        for (unsigned s = 0; md->of[i] >= 0 && s < live->slots; s++)
            if (md->set.disk_of_slot[s] == md->of[i])
                slot = (int)s;
        if (slot < 0) {
            if (md->of[i] < 0)
                log_warn("import %s: disk %s is left out: %s", live->name, opened[i].path, md->error[i]);
            live_disk_close(&opened[i]);
            continue;
        }
        live->disks[slot] = opened[i];
        options->devs[slot] = opened[i].disk.dev;
    }
}

static void describe(struct live_import *live, const struct md_disks *md)
{
    text_format(live->reason, sizeof live->reason, "%s", md->set.reason);
    live->uuid = md->set.sb != NULL ? md->set.sb->set : (struct uuid){{0}};
    text_format(live->md_name, sizeof live->md_name, "%s", md->set.sb != NULL ? md->set.sb->name : "");
}

static void start(struct appliance *a, const struct config_import *config, struct live_import *live)
{
    struct live_disk *opened = calloc(MD_DISKS_MAX, sizeof *opened);
    const char *paths[MD_DISKS_MAX];
    ASSERT(opened != NULL);
    struct md_disks *md = md_disks_read(paths, open_disks(a, config, live, opened, paths));
    struct import_options options = {.name = live->name, .set = &md->set, .disks = md->disks, .bad = &md->bad};
    take_slots(live, md, opened, &options);
    describe(live, md);
    if (md->set.usable) {
        struct import_call c = {.options = &options};
        sync_call(&c.call, reactor_loop(live->home), run_open);
        live->import = c.import;
        if (live->import == NULL)
            text_format(live->reason, sizeof live->reason, "no memory for it");
    }
    if (live->import != NULL) {
        log_notice("import %s, read-only: %s", live->name, live->reason);
    } else {
        log_error("import %s is not started: %s", live->name, live->reason);
        close_disks(live);
    }
    free(md);
    free(opened);
}

void live_imports_start(struct appliance *a, const struct config *config)
{
    for (unsigned i = 0; i < config->imports.count; i++) {
        const struct config_import *import = config_item(&config->imports, struct config_import, i);
        struct live_import *live = find(a, import->name.text);
        if (live == NULL) {
            live = calloc(1, sizeof *live);
            ASSERT(live != NULL);
            text_format(live->name, sizeof live->name, "%s", import->name.text);
            live->home = a->reactors[(config->arrays.count + i) % a->reactors_count];
            TAILQ_INSERT_TAIL(&a->imports, live, link);
        }
        if (live->import == NULL)
            start(a, import, live);
    }
}

/* --- what others ask --- */

struct live_import *live_import_find(struct appliance *a, const char *name)
{
    struct live_import *live = find(a, name);
    return live != NULL && live->import != NULL ? live : NULL;
}

static void run_info(struct sync_call *call)
{
    struct import_call *c = container_of(call, struct import_call, call);
    import_info(c->import, &c->info);
    sync_finish(call);
}

static json_t *import_json(struct live_import *live)
{
    struct import_call c = {.import = live->import};
    json_t *members = json_array();
    char uuid[UUID_TEXT_SIZE];
    uuid_format(&live->uuid, uuid);
    if (live->import != NULL)
        sync_call(&c.call, reactor_loop(live->home), run_info);
    for (unsigned i = 0; i < c.info.members_count; i++)
        json_array_append_new(members, json_pack("{s:i, s:s, s:s, s:I}", "slot", (int)i, "path", live->disks[i].path,
                                                 "state", c.info.members[i].state, "read_errors",
                                                 (json_int_t)c.info.members[i].read_errors));
    uint64_t size = live->import != NULL ? import_dev(live->import)->info.size : 0;
    return json_pack("{s:s, s:s, s:o, s:s, s:s, s:I, s:o}", "name", live->name, "state",
                     live->import != NULL ? c.info.state : "not started", "reason", sentence_json(live->reason),
                     "md_name", live->md_name, "uuid", uuid, "size_bytes", (json_int_t)size, "members", members);
}

json_t *live_imports_json(struct appliance *a)
{
    json_t *list = json_array();
    struct live_import *live;
    TAILQ_FOREACH(live, &a->imports, link)
    json_array_append_new(list, import_json(live));
    return list;
}

bool live_import_plan(struct appliance *a, const struct config_import *config, bool *usable, char *text,
                      size_t text_len)
{
    const char *paths[MD_DISKS_MAX];
    if (live_import_find(a, config->name.text) != NULL)
        return false;
    for (unsigned i = 0; i < config->disks.count; i++)
        paths[i] = config->disks.items[i].text;
    struct md_disks *md = md_disks_read(paths, config->disks.count);
    *usable = md->set.usable;
    text_format(text, text_len, "%s", md->set.reason);
    free(md);
    return true;
}

/* --- the end --- */

static void import_closed(struct task *task)
{
    sync_finish(&container_of(task, struct import_call, closed)->call);
}

static void run_close(struct sync_call *call)
{
    struct import_call *c = container_of(call, struct import_call, call);
    c->closed.run = import_closed;
    import_close(c->import, &c->closed);
}

void live_imports_close(struct appliance *a)
{
    struct live_import *live;
    while ((live = TAILQ_FIRST(&a->imports)) != NULL) {
        TAILQ_REMOVE(&a->imports, live, link);
        struct import_call c = {.import = live->import};
        if (live->import != NULL)
            sync_call(&c.call, reactor_loop(live->home), run_close);
        close_disks(live);
        free(live);
    }
}
