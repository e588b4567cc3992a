/*
 * What the appliance shows to the network: exports, targets, listeners.
 *
 * place: the first reactor accepts and negotiates; an NBD connection then moves to the home of its export's volume, an
 * iSCSI connection to the home of its target, which is that of the volume of its first LUN. A LUN whose volume lives
 * elsewhere is reached through a proxy (core/blk_proxy.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/blk_proxy.h"
#include "core/bytes.h"
#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_internal.h"
#include "daemon/config_nbd.h"
#include "daemon/inherited.h"

static bool is_leaving(struct appliance *a, const char *name);

struct live_export *live_export_find(struct appliance *a, const char *name)
{
    struct live_export *export;
    TAILQ_FOREACH(export, &a->exports, link)
    if (strcmp(export->name, name) == 0)
        return export;
    return NULL;
}

struct live_target *live_target_find(struct appliance *a, const char *name)
{
    struct live_target *target;
    TAILQ_FOREACH(target, &a->targets, link)
    if (strcmp(target->name, name) == 0)
        return target;
    return NULL;
}

/* --- NBD --- */

struct export_call {
    struct sync_call call;
    struct appliance *appliance;
    struct nbd_export_options options;
    struct nbd_access_options access;
    struct task removed;
    int error;
};

void live_export_free(struct live_export *export)
{
    free(export->name);
    free(export->volume);
    free(export);
}

static void run_add_export(struct sync_call *call)
{
    struct export_call *c = container_of(call, struct export_call, call);
    c->options.access = &c->access;
    c->error = nbd_server_add_export(c->appliance->nbd, &c->options);
    sync_finish(call);
}

static bool serve_export(struct appliance *a, const struct config_export *config)
{
    struct reactor *home;
    const char *held = live_volume_held(a, config->volume.text);
    if (held != NULL) {
        log_warn("NBD export \"%s\" is not served, because volume %s is held: %s", config->name.text,
                 config->volume.text, held);
        return false;
    }
    struct blkdev *dev = live_volume_find(a, config->volume.text, &home);
    if (dev == NULL) {
        log_warn("NBD export \"%s\" is not served: volume %s is not there", config->name.text, config->volume.text);
        return false;
    }
    struct export_call c = {.appliance = a,
                            .options = {.name = config->name.text,
                                        .description = config->description.text,
                                        .dev = dev,
                                        .read_only = config->read_only,
                                        .hidden = config->hidden}};
    nbd_access_make(&c.access, config);
    sync_call(&c.call, reactor_loop(a->reactors[0]), run_add_export);
    nbd_access_drop(&c.access);
    if (c.error != 0) {
        log_error("NBD export \"%s\" is not served: %s", config->name.text, strerror(-c.error));
        return false;
    }
    struct live_export *live = calloc(1, sizeof *live);
    ASSERT(live != NULL);
    live->name = strdup(config->name.text);
    live->volume = strdup(config->volume.text);
    TAILQ_INSERT_TAIL(&a->exports, live, link);
    log_info("NBD export \"%s\" serves volume %s", live->name, live->volume);
    return true;
}

/* --- iSCSI --- */

/* Names of the volume that initiators keep: from its UUID, so that they survive renames and restarts. */
static void volume_identity(const struct uuid *uuid, struct scsi_lu_options *options)
{
    char text[UUID_TEXT_SIZE];
    uuid_format(uuid, text);
    text_format(options->serial, sizeof options->serial, "%s", text);
    memcpy(options->naa, uuid->bytes, sizeof options->naa);
    options->naa[0] = (uint8_t)(0x60 | (options->naa[0] & 0x0f)); /* NAA 6: IEEE registered extended */
    text_format(options->product, sizeof options->product, "Corbel volume");
}

struct target_call {
    struct sync_call call;
    struct live_target *target;
    struct appliance *appliance;
    const struct config_target *config;
    unsigned lun;
    struct scsi_lu_options options;
    struct blkdev *dev; /* of another loop: needs a proxy */
    struct access_rules access;
    struct task stopped;
    int error;
};

static void run_create_target(struct sync_call *call)
{
    struct target_call *c = container_of(call, struct target_call, call);
    c->target->scsi = scsi_target_create(call->loop, c->target->name);
    sync_finish(call);
}

static void run_add_lun(struct sync_call *call)
{
    struct target_call *c = container_of(call, struct target_call, call);
    c->options.dev = c->dev;
    if (c->dev->loop != call->loop) {
        c->options.dev = blk_proxy_create(call->loop, c->dev, 256);
        ASSERT(c->options.dev != NULL);
        c->target->proxies[c->target->proxies_count++] = c->options.dev;
    }
    c->error = scsi_target_add_lun(c->target->scsi, c->lun, &c->options);
    sync_finish(call);
}

/* Lengths and counts were checked with the config. */
static void set_portals(struct target_call *c)
{
    const struct config_target *config = c->config;
    uint16_t groups[ISCSI_GROUPS_MAX];
    for (unsigned i = 0; i < config->portal_groups.count; i++)
        groups[i] = (uint16_t)config->portal_groups.items[i];
    iscsi_server_set_groups(c->appliance->iscsi, c->target->name, groups, config->portal_groups.count);
    iscsi_server_set_redirect(c->appliance->iscsi, c->target->name, config->redirect.text, config->redirect_permanent);
}

static void unregistered(struct task *task)
{
    sync_finish(&container_of(task, struct target_call, stopped)->call);
}

static void run_register_target(struct sync_call *call)
{
    struct target_call *c = container_of(call, struct target_call, call);
    c->error = iscsi_server_add_target(c->appliance->iscsi, c->target->scsi, reactor_loop(c->target->home),
                                       c->target->name, c->config->alias.text);
    if (c->error == 0)
        set_portals(c);
    bool added = c->error == 0;
    if (added) /* in the same turn: nobody comes in between */
        c->error =
            iscsi_server_set_access(c->appliance->iscsi, c->target->name, c->access.rules, c->access.count, NULL);
    if (!added || c->error == 0) {
        sync_finish(call);
        return;
    }
    c->stopped.run = unregistered;
    iscsi_server_remove_target(c->appliance->iscsi, c->target->name, 0, &c->stopped);
}

/* Of a volume that is there. */
static void add_lun_of(struct target_call *c, struct live_array *live, const char *name)
{
    struct sb_array *description = live_array_describe(live);
    unsigned i = 0;
    while (i < description->volumes_count && strcmp(description->volumes[i].name, name) != 0)
        i++;
    ASSERT(i < description->volumes_count);
    const struct uuid *volume = &description->volumes[i].uuid;
    volume_identity(volume, &c->options);
    char *record = live_keeper_add(c->target, live, description, volume, &c->options, c->lun);
    sync_call(&c->call, reactor_loop(c->target->home), run_add_lun);
    free(record);
    free(description);
}

/* Its identity is md's; what initiators reserve at it is kept nowhere. */
static void add_lun_of_import(struct target_call *c, const struct live_import *import)
{
    volume_identity(&import->uuid, &c->options);
    sync_call(&c->call, reactor_loop(c->target->home), run_add_lun);
}

static void add_lun_by_name(struct appliance *a, struct target_call *c, const char *reference)
{
    const char *name;
    struct live_array *live = strchr(reference, '/') != NULL ? live_array_of_volume(a, reference, &name) : NULL;
    if (live != NULL)
        add_lun_of(c, live, name);
    else
        add_lun_of_import(c, live_import_find(a, reference));
}

static bool add_lun(struct appliance *a, struct live_target *target, const struct config_lun *config)
{
    struct reactor *home;
    struct target_call c = {.target = target, .lun = (unsigned)config->lun};
    c.dev = live_volume_find(a, config->volume.text, &home);
    c.options.read_only = config->read_only;
    c.options.hide_physical = config->hide_physical;
    c.options.removable = config->removable;
    c.options.sanitize_rate = config->sanitize_rate;
    c.options.soft_threshold = (uint8_t)config->soft_threshold;
    const char *held = live_volume_held(a, config->volume.text);
    if (held != NULL) {
        log_warn("LUN %u of %s is not served, because volume %s is held: %s", c.lun, target->name, config->volume.text,
                 held);
        return false;
    }
    if (c.dev == NULL) {
        log_warn("LUN %u of %s is not served: volume %s is not there", c.lun, target->name, config->volume.text);
        return false;
    }
    add_lun_by_name(a, &c, config->volume.text);
    if (c.error != 0)
        log_error("LUN %u of %s is not served: %s", c.lun, target->name, strerror(-c.error));
    else
        target->luns[target->luns_count++] = (struct live_lun){c.lun, strdup(config->volume.text)};
    return c.error == 0;
}

static void target_stopped(struct task *task)
{
    struct target_call *c = container_of(task, struct target_call, stopped);
    scsi_target_destroy(c->target->scsi);
    sync_finish(&c->call);
}

static void run_destroy_target(struct sync_call *call)
{
    struct target_call *c = container_of(call, struct target_call, call);
    c->stopped.run = target_stopped;
    scsi_target_stop(c->target->scsi, &c->stopped);
}

static void run_redirect(struct sync_call *call)
{
    struct target_call *c = container_of(call, struct target_call, call);
    iscsi_server_set_redirect(c->appliance->iscsi, c->target->name, c->config->redirect.text,
                              c->config->redirect_permanent);
    sync_finish(call);
}

static void target_free(struct live_target *target)
{
    struct target_call c = {.target = target};
    if (target->scsi != NULL)
        sync_call(&c.call, reactor_loop(target->home), run_destroy_target);
    for (unsigned i = 0; i < target->proxies_count; i++)
        blkdev_close_wait(target->proxies[i]);
    live_keepers_free(target);
    for (unsigned i = 0; i < target->luns_count; i++)
        free(target->luns[i].volume);
    free(target->name);
    free(target);
}

/* Build it and put it on show; 0 or -errno. */
static int target_show(struct appliance *a, struct live_target *target, const struct config *config,
                       const struct config_target *of)
{
    struct target_call c = {.target = target, .appliance = a, .config = of};
    sync_call(&c.call, reactor_loop(target->home), run_create_target);
    if (target->scsi == NULL)
        return -ENOMEM;
    for (unsigned i = 0; i < of->luns.count; i++)
        add_lun(a, target, config_item(&of->luns, struct config_lun, i));
    if (!access_rules_make(&c.access, config, &of->access, &of->luns, target))
        return -EACCES;
    sync_call(&c.call, reactor_loop(a->reactors[0]), run_register_target);
    access_rules_wipe(&c.access);
    return c.error;
}

static bool serve_target(struct appliance *a, const struct config *whole, const struct config_target *config)
{
    struct live_target *target = calloc(1, sizeof *target);
    ASSERT(target != NULL);
    target->name = strdup(config->name.text);
    target->home = a->reactors[0];
    for (unsigned i = config->luns.count; i-- > 0;) /* the first LUN that is there has the last word */
        live_volume_find(a, config_item(&config->luns, struct config_lun, i)->volume.text, &target->home);
    int error = target_show(a, target, whole, config);
    if (error != 0) {
        log_error("iSCSI target %s is not served: %s", target->name, strerror(-error));
        target_free(target);
        return false;
    }
    log_info("iSCSI target %s serves %u LUN%s", target->name, target->luns_count, target->luns_count == 1 ? "" : "s");
    TAILQ_INSERT_TAIL(&a->targets, target, link);
    return true;
}

static bool volumes_are_there(struct appliance *a, const struct config_target *target)
{
    struct reactor *home;
    for (unsigned i = 0; i < target->luns.count; i++) {
        const char *volume = config_item(&target->luns, struct config_lun, i)->volume.text;
        const char *held = live_volume_held(a, volume);
        if (held != NULL) {
            log_warn("iSCSI target %s is not served, because volume %s is held: %s", target->name.text, volume, held);
            return false;
        }
        if (live_volume_find(a, volume, &home) == NULL) {
            log_warn("iSCSI target %s is not served: not all of its volumes are there", target->name.text);
            return false;
        }
    }
    return true;
}

/* LUNs that are new; initiators hear of them by a unit attention (3F/0E). */
static void target_update(struct appliance *a, struct live_target *target, const struct config_target *config,
                          live_told told, void *data)
{
    struct target_call c = {.target = target, .appliance = a, .config = config};
    for (unsigned i = 0; i < config->luns.count; i++) {
        const struct config_lun *lun = config_item(&config->luns, struct config_lun, i);
        char name[512];
        unsigned j = 0;
        while (j < target->luns_count && target->luns[j].lun != lun->lun)
            j++;
        if (j < target->luns_count)
            continue;
        text_format(name, sizeof name, "%s LUN %u", target->name, (unsigned)lun->lun);
        told(data, "iSCSI target", name, add_lun(a, target, lun));
    }
    sync_call(&c.call, reactor_loop(a->reactors[0]), run_redirect);
}

static void ignore(void *data, const char *kind, const char *name, bool served)
{
    (void)data, (void)kind, (void)name, (void)served;
}

void live_serve(struct appliance *a, const struct config *config, live_told told, void *data)
{
    told = told != NULL ? told : ignore;
    live_held_count(a);
    live_caches_start(a, config);
    for (unsigned i = 0; i < config->nbd.exports.count; i++) {
        const struct config_export *export = config_item(&config->nbd.exports, struct config_export, i);
        if (live_export_find(a, export->name.text) == NULL)
            told(data, "NBD export", export->name.text, serve_export(a, export));
    }
    for (unsigned i = 0; i < config->iscsi.targets.count; i++) {
        const struct config_target *target = config_item(&config->iscsi.targets, struct config_target, i);
        struct live_target *live = live_target_find(a, target->name.text);
        if (live != NULL)
            target_update(a, live, target, told, data);
        else
            told(data, "iSCSI target", target->name.text,
                 volumes_are_there(a, target) && !is_leaving(a, target->name.text) && serve_target(a, config, target));
    }
}

/* --- the end of targets --- */

static void target_is_removed(struct task *task)
{
    atomic_store(&container_of(task, struct live_target, removed)->gone, true);
}

static void run_remove_target(struct sync_call *call)
{
    struct target_call *c = container_of(call, struct target_call, call);
    struct appliance *a = c->appliance;
    c->target->removed.run = target_is_removed;
    c->error = iscsi_server_remove_target(a->iscsi, c->target->name, a->config->daemon.drain_ns, &c->target->removed);
    sync_finish(call);
}

static bool config_has_target(const struct config *config, const char *name)
{
    for (unsigned i = 0; i < config->iscsi.targets.count; i++)
        if (strcmp(config_item(&config->iscsi.targets, struct config_target, i)->name.text, name) == 0)
            return true;
    return false;
}

/* Those whose last session has ended. */
static void targets_sweep(struct appliance *a)
{
    struct live_target *target = TAILQ_FIRST(&a->leaving), *next;
    for (; target != NULL; target = next) {
        next = TAILQ_NEXT(target, link);
        if (!atomic_load(&target->gone))
            continue;
        TAILQ_REMOVE(&a->leaving, target, link);
        target_free(target);
    }
}

static bool is_leaving(struct appliance *a, const char *name)
{
    const struct live_target *target;
    targets_sweep(a);
    TAILQ_FOREACH(target, &a->leaving, link)
    if (strcmp(target->name, name) == 0) {
        log_warn("iSCSI target %s is not served: sessions of the one that was removed have not ended yet", name);
        return true;
    }
    return false;
}

void live_retire(struct appliance *a, const struct config *config, live_told told, void *data)
{
    struct live_target *target = TAILQ_FIRST(&a->targets), *next;
    for (; target != NULL; target = next) {
        next = TAILQ_NEXT(target, link);
        if (config_has_target(config, target->name))
            continue;
        struct target_call c = {.target = target, .appliance = a};
        sync_call(&c.call, reactor_loop(a->reactors[0]), run_remove_target);
        ASSERT(c.error == 0);
        TAILQ_REMOVE(&a->targets, target, link);
        TAILQ_INSERT_TAIL(&a->leaving, target, link);
        log_notice("iSCSI target %s is removed: its sessions are asked to log out", target->name);
        told(data, "removal of iSCSI target", target->name, true);
    }
}

/* --- the end of an array's volumes --- */

static bool is_volume_of(const char *volume, const char *array)
{
    size_t len = strlen(array);
    return strncmp(volume, array, len) == 0 && volume[len] == '/';
}

static bool target_shows(const struct live_target *target, const char *array)
{
    for (unsigned i = 0; i < target->luns_count; i++)
        if (is_volume_of(target->luns[i].volume, array))
            return true;
    return false;
}

static void export_is_removed(struct task *task)
{
    sync_finish(&container_of(task, struct export_call, removed)->call);
}

static void run_remove_export(struct sync_call *call)
{
    struct export_call *c = container_of(call, struct export_call, call);
    c->removed.run = export_is_removed;
    c->error = nbd_server_remove_export(c->appliance->nbd, c->options.name, 0, &c->removed);
    ASSERT(c->error == 0);
}

static void run_cut_target(struct sync_call *call)
{
    struct target_call *c = container_of(call, struct target_call, call);
    c->stopped.run = unregistered;
    c->error = iscsi_server_remove_target(c->appliance->iscsi, c->target->name, 0, &c->stopped);
    ASSERT(c->error == 0);
}

static void exports_remove(struct appliance *a, const char *array)
{
    struct live_export *export = TAILQ_FIRST(&a->exports), *next;
    for (; export != NULL; export = next) {
        next = TAILQ_NEXT(export, link);
        if (!is_volume_of(export->volume, array))
            continue;
        struct export_call c = {.appliance = a, .options.name = export->name};
        sync_call(&c.call, reactor_loop(a->reactors[0]), run_remove_export);
        TAILQ_REMOVE(&a->exports, export, link);
        live_export_free(export);
    }
}

static void targets_remove(struct appliance *a, const char *array)
{
    struct live_target *target = TAILQ_FIRST(&a->targets), *next;
    for (; target != NULL; target = next) {
        next = TAILQ_NEXT(target, link);
        if (!target_shows(target, array))
            continue;
        struct target_call c = {.appliance = a, .target = target};
        sync_call(&c.call, reactor_loop(a->reactors[0]), run_cut_target);
        TAILQ_REMOVE(&a->targets, target, link);
        target_free(target);
    }
}

bool live_unserve(struct appliance *a, const char *array, char *why, size_t why_len)
{
    const struct live_target *target;
    targets_sweep(a);
    TAILQ_FOREACH(target, &a->leaving, link)
    if (target_shows(target, array)) {
        text_format(why, why_len,
                    "array %s is used: sessions of iSCSI target %s, which was removed, have not ended yet", array,
                    target->name);
        return false;
    }
    exports_remove(a, array);
    targets_remove(a, array);
    return true;
}

void live_targets_close(struct appliance *a)
{
    struct live_target *target;
    TAILQ_CONCAT(&a->targets, &a->leaving, link);
    while ((target = TAILQ_FIRST(&a->targets)) != NULL) {
        TAILQ_REMOVE(&a->targets, target, link);
        target_free(target);
    }
}

/* --- listeners --- */

static void accepted_nbd(void *data, struct stream *stream)
{
    const struct live_listener *listener = data;
    nbd_conn_open(listener->appliance->nbd, stream, listener->tls);
}

static void accepted_iscsi(void *data, struct stream *stream)
{
    const struct live_listener *listener = data;
    iscsi_conn_open(listener->appliance->iscsi, stream, listener->group);
}

struct protocol {
    const char *name;
    listener_accepted accepted;
};
static const struct protocol nbd = {"nbd", accepted_nbd}, iscsi = {"iscsi", accepted_iscsi};

/* What is asked for, and the call that opens it. */
struct listen_call {
    struct sync_call call;
    const struct protocol *protocol;
    const struct config_text *address;
    uint16_t group;
    enum nbd_tls tls;
    struct listener_file file;
    struct live_listener *live;
    int fd;      /* to be taken over; -1: none */
    bool probes; /* whether it could be opened is all that is asked */
    char why[256];
};

static void run_listen(struct sync_call *call)
{
    struct listen_call *c = container_of(call, struct listen_call, call);
    struct reactor *reactor = reactor_of(call->loop);
    c->live->listener = c->fd >= 0 ? listener_adopt(reactor, c->fd, c->protocol->accepted, c->live)
                                   : listener_open(reactor, c->address->text, &c->file, c->protocol->accepted, c->live,
                                                   c->why, sizeof c->why);
    sync_finish(call);
}

static void run_unlisten(struct sync_call *call)
{
    listener_close(container_of(call, struct listen_call, call)->live->listener);
    sync_finish(call);
}

static bool open_one(struct appliance *a, struct listen_call *c)
{
    struct live_listener *live = calloc(1, sizeof *live);
    ASSERT(live != NULL);
    *live = (struct live_listener){.appliance = a, .group = c->group, .tls = c->tls, .protocol = c->protocol->name};
    c->live = live;
    sync_call(&c->call, reactor_loop(a->reactors[0]), run_listen);
    if (live->listener == NULL) {
        free(live);
        return false;
    }
    listener_address(live->listener, live->address, sizeof live->address);
    TAILQ_INSERT_TAIL(&a->listeners, live, link);
    return true;
}

/* All the sockets of this name: a unit may have several. A probe only looks at them: clients may be waiting there, who
 * would be accepted before there is anything to be served. */
static bool open_inherited(struct appliance *a, struct listen_call *c)
{
    const char *name = c->address->text + strlen("systemd:");
    unsigned n = 0;
    while ((c->fd = inherited_socket(name, n, c->why, sizeof c->why)) >= 0 &&
           (c->probes ? close(c->fd) == 0 : open_one(a, c)))
        n++;
    return n > 0;
}

static bool open_listener(struct appliance *a, struct listen_call *c, char *why, size_t why_len)
{
    c->fd = -1;
    bool open = strncmp(c->address->text, "systemd:", 8) == 0 ? open_inherited(a, c) : open_one(a, c);
    if (!open)
        text_format(why, why_len, "%s:%u: %s.listen: %s", a->config->path, c->address->line, c->protocol->name, c->why);
    return open;
}

static int open_listeners(struct appliance *a, const struct config_strings *addresses, struct listen_call *c, char *why,
                          size_t why_len)
{
    c->file = (struct listener_file){0660, (uid_t)-1, (gid_t)-1};
    for (unsigned i = 0; i < addresses->count; i++) {
        c->address = &addresses->items[i];
        if (!open_listener(a, c, why, why_len))
            return -1;
    }
    return 0;
}

/* Words were checked with the config; a user who was there then may be gone. */
static int open_nbd(struct appliance *a, const struct config_nbd *config, bool probes, char *why, size_t why_len)
{
    struct listen_call c = {.protocol = &nbd, .probes = probes, .tls = config_listener_tls(config, "")};
    if (open_listeners(a, &config->listen, &c, why, why_len) < 0)
        return -1;
    for (unsigned i = 0; i < config->listeners.count; i++) {
        const struct config_listener *listener = config_item(&config->listeners, struct config_listener, i);
        c.address = &listener->address;
        c.tls = config_listener_tls(config, listener->tls.text);
        if (!config_mode_word(listener->mode.text, &c.file.mode) ||
            !config_user_word(listener->owner.text, &c.file.owner) ||
            !config_group_word(listener->group.text, &c.file.group)) {
            text_format(why, why_len, "%s:%u: mode, owner or group of %s do not exist", a->config->path, listener->line,
                        listener->address.text);
            return -1;
        }
        if (!open_listener(a, &c, why, why_len))
            return -1;
    }
    return 0;
}

/* No address is a default, so it may be left out by mistake. */
static void warn_of_no_address(const struct config *config)
{
    if (config->nbd.exports.count > 0 && config->nbd.listen.count == 0 && config->nbd.listeners.count == 0)
        log_warn("there are NBD exports, and no address where they are served: give nbd.listen");
    if (config->iscsi.targets.count > 0 && config->iscsi.listen.count == 0 && config->iscsi.portal_groups.count == 0)
        log_warn("there are iSCSI targets, and no address where they are served: give iscsi.listen");
}

static int open_all(struct appliance *a, const struct config *config, bool probes, char *why, size_t why_len)
{
    struct listen_call c = {.protocol = &iscsi, .group = ISCSI_GROUP_DEFAULT, .probes = probes};
    if (open_nbd(a, &config->nbd, probes, why, why_len) < 0 ||
        open_listeners(a, &config->iscsi.listen, &c, why, why_len) < 0)
        return -1;
    for (unsigned i = 0; i < config->iscsi.portal_groups.count; i++) {
        const struct config_portal_group *group =
            config_item(&config->iscsi.portal_groups, struct config_portal_group, i);
        c.group = (uint16_t)group->tag;
        if (open_listeners(a, &group->listen, &c, why, why_len) < 0)
            return -1;
    }
    return 0;
}

int live_listeners_open(struct appliance *a, const struct config *config, char *why, size_t why_len)
{
    warn_of_no_address(config);
    return open_all(a, config, false, why, why_len);
}

struct portals_call {
    struct sync_call call;
    struct appliance *appliance;
};

static void tell_portals(struct appliance *a, const struct config_strings *portals, uint16_t group)
{
    for (unsigned i = 0; i < portals->count; i++)
        if (iscsi_server_add_portal(a->iscsi, group, portals->items[i].text) != 0)
            log_warn("iSCSI: portal %s is not told in discovery: there are too many", portals->items[i].text);
}

/* All addresses of the machine: which those are is not known here, but the one a connection came by is told to it. */
static bool is_any(const char *address)
{
    return address[0] == '*' || strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0 ||
           strncmp(address, "unix:", 5) == 0;
}

static void run_tell_portals(struct sync_call *call)
{
    struct appliance *a = container_of(call, struct portals_call, call)->appliance;
    const struct config_iscsi *config = &a->config->iscsi;
    const struct live_listener *listener;
    TAILQ_FOREACH(listener, &a->listeners, link)
    if (strcmp(listener->protocol, iscsi.name) == 0 && !is_any(listener->address))
        iscsi_server_add_portal(a->iscsi, listener->group, listener->address);
    tell_portals(a, &config->portals, ISCSI_GROUP_DEFAULT);
    for (unsigned i = 0; i < config->portal_groups.count; i++) {
        const struct config_portal_group *group = config_item(&config->portal_groups, struct config_portal_group, i);
        tell_portals(a, &group->portals, (uint16_t)group->tag);
    }
    sync_finish(call);
}

void live_portals_tell(struct appliance *a)
{
    struct portals_call c = {.appliance = a};
    sync_call(&c.call, reactor_loop(a->reactors[0]), run_tell_portals);
}

void live_listeners_close(struct appliance *a)
{
    struct live_listener *live;
    while ((live = TAILQ_FIRST(&a->listeners)) != NULL) {
        TAILQ_REMOVE(&a->listeners, live, link);
        struct listen_call c = {.live = live};
        sync_call(&c.call, reactor_loop(a->reactors[0]), run_unlisten);
        free(live);
    }
}

int live_listeners_probe(struct appliance *a, const struct config *config, char *why, size_t why_len)
{
    int result = open_all(a, config, true, why, why_len);
    live_listeners_close(a);
    return result;
}

/* --- drain --- */

struct drain_call {
    struct sync_call call;
    struct appliance *appliance;
    uint64_t grace_ns;
    struct task nbd_drained, iscsi_drained;
    unsigned left;
};

static void drain_one_over(struct drain_call *c)
{
    if (--c->left == 0)
        sync_finish(&c->call);
}

static void drain_nbd_over(struct task *task)
{
    drain_one_over(container_of(task, struct drain_call, nbd_drained));
}

static void drain_iscsi_over(struct task *task)
{
    drain_one_over(container_of(task, struct drain_call, iscsi_drained));
}

static void run_drain(struct sync_call *call)
{
    struct drain_call *c = container_of(call, struct drain_call, call);
    c->left = 2;
    c->nbd_drained.run = drain_nbd_over;
    c->iscsi_drained.run = drain_iscsi_over;
    nbd_server_drain(c->appliance->nbd, c->grace_ns, &c->nbd_drained);
    iscsi_server_drain(c->appliance->iscsi, c->grace_ns, &c->iscsi_drained);
}

void live_drain(struct appliance *a, uint64_t grace_ns)
{
    struct drain_call c = {.appliance = a, .grace_ns = grace_ns};
    sync_call(&c.call, reactor_loop(a->reactors[0]), run_drain);
}
