/*
 * The appliance's arrays: from labels on disks to open arrays, and new arrays onto blank disks.
 *
 * Every disk is opened twice: once read-only for the scan, by which raid/assembly.c decides, and then exclusively, on
 * the array's home reactor, if its array starts. An array lives on the reactor that its place in the config names.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_internal.h"
#include "daemon/disk.h"
#include "daemon/foreign.h"
#include "daemon/remote.h"
#include "raid/assembly_history.h"
#include "raid/patience.h"

enum { PATIENCE_MS = 3000 }; /* for disks that a killed daemon still holds */

struct live_array *live_array_find(struct appliance *a, const char *name)
{
    struct live_array *live;
    TAILQ_FOREACH(live, &a->arrays, link)
    if (strcmp(live->name, name) == 0)
        return live;
    return NULL;
}

struct live_array *live_array_add(struct appliance *a, const char *name, unsigned index)
{
    struct live_array *live = calloc(1, sizeof *live);
    ASSERT(live != NULL);
    text_format(live->name, sizeof live->name, "%s", name);
    live->home = a->reactors[index % a->reactors_count];
    TAILQ_INSERT_TAIL(&a->arrays, live, link);
    return live;
}

/* --- disks --- */

void live_disk_close(struct live_disk *disk)
{
    if (disk->disk.dev != NULL)
        blkdev_close_wait(disk->disk.dev);
    disk->disk.dev = disk->remote = NULL;
}

bool live_disk_open(struct appliance *a, struct live_array *live, struct live_disk *disk, const char *path, char *why,
                    size_t why_len)
{
    return live_disk_open_on(a, live->home, false, disk, path, why, why_len);
}

bool live_disk_open_on(struct appliance *a, struct reactor *home, bool read_only, struct live_disk *disk,
                       const char *path, char *why, size_t why_len)
{
    struct disk_options options = {
        .read_only = read_only, .exclusive = true, .no_uring = a->threads_only, .patience_ms = PATIENCE_MS};
    text_format(disk->path, sizeof disk->path, "%s", path);
    disk->disk.dev = disk_open(home, path, &options, why, why_len);
    if (disk->disk.dev == NULL)
        return false;
    disk_identity(disk->disk.dev, disk->disk.identity, sizeof disk->disk.identity);
    struct blkdev *patient = patience_create(reactor_loop(home), disk->disk.dev, &(struct patience_options){0});
    if (patient == NULL) {
        live_disk_close(disk);
        text_format(why, why_len, "no memory to open disk %s", path);
        return false;
    }
    disk->engine = disk_engine(disk->disk.dev);
    disk->remote = remote_is(disk->disk.dev) ? disk->disk.dev : NULL;
    disk->disk.dev = patient;
    return true;
}

static void close_disks(struct live_array *live)
{
    for (unsigned i = 0; i < live->slots; i++)
        live_disk_close(&live->disks[i]);
    live_disk_close(&live->newcomer);
    for (unsigned i = 0; i < SB_JOURNALS_MAX; i++)
        live_disk_close(&live->journals[i]);
}

/* --- calls to an array on its reactor --- */

struct array_sync {
    struct sync_call call;
    struct array_call array_call;
    struct live_array *live;
    const struct array_spec *spec;
    const struct assembly *assembly;
    const struct array_disk *disks;
    const struct array_journals *journals;
    const struct array_volume_spec *volume;
    unsigned slot; /* or volume */
    uint64_t size;
    bool shrink;
    struct sb_array *description;
};

static void array_sync_done(struct array_call *call)
{
    sync_finish(&container_of(call, struct array_sync, array_call)->call);
}

/* Run it; true if it went well, else `why` has its sentence. */
static bool array_sync(struct array_sync *sync, struct live_array *live, void (*run)(struct sync_call *), char *why,
                       size_t why_len)
{
    sync->live = live;
    sync->array_call.done = array_sync_done;
    sync_call(&sync->call, reactor_loop(live->home), run);
    if (sync->array_call.error != 0)
        text_format(why, why_len, "%s", sync->array_call.message);
    return sync->array_call.error == 0;
}

static void run_create(struct sync_call *call)
{
    struct array_sync *sync = container_of(call, struct array_sync, call);
    array_create(call->loop, sync->spec, &sync->array_call);
}

static void run_open(struct sync_call *call)
{
    struct array_sync *sync = container_of(call, struct array_sync, call);
    array_open(call->loop, sync->assembly, sync->disks, sync->journals, &sync->array_call);
}

static void run_close(struct sync_call *call)
{
    struct array_sync *sync = container_of(call, struct array_sync, call);
    array_close(sync->live->array, &sync->array_call);
}

static void run_add_volume(struct sync_call *call)
{
    struct array_sync *sync = container_of(call, struct array_sync, call);
    array_add_volume(sync->live->array, sync->volume, &sync->array_call);
}

static void run_resize_volume(struct sync_call *call)
{
    struct array_sync *sync = container_of(call, struct array_sync, call);
    array_resize_volume(sync->live->array, sync->slot, sync->size, sync->shrink, &sync->array_call);
}

static void run_fail(struct sync_call *call)
{
    struct array_sync *sync = container_of(call, struct array_sync, call);
    array_fail_member(sync->live->array, sync->slot, &sync->array_call);
}

static void run_online(struct sync_call *call)
{
    struct array_sync *sync = container_of(call, struct array_sync, call);
    array_online_member(sync->live->array, sync->slot, sync->disks, &sync->array_call);
}

static void run_forget(struct sync_call *call)
{
    struct array_sync *sync = container_of(call, struct array_sync, call);
    array_forget_member(sync->live->array, sync->slot, &sync->array_call);
}

static void run_describe(struct sync_call *call)
{
    struct array_sync *sync = container_of(call, struct array_sync, call);
    *sync->description = *array_description(sync->live->array);
    sync_finish(call);
}

struct sb_array *live_array_describe(struct live_array *live)
{
    struct array_sync sync = {.live = live, .description = calloc(1, sizeof *sync.description)};
    ASSERT(sync.description != NULL);
    sync_call(&sync.call, reactor_loop(live->home), run_describe);
    return sync.description;
}

bool live_array_add_volume(struct live_array *live, const struct array_volume_spec *spec, char *why, size_t why_len)
{
    struct array_sync sync = {.volume = spec};
    return array_sync(&sync, live, run_add_volume, why, why_len);
}

bool live_array_resize_volume(struct live_array *live, unsigned volume, uint64_t size, bool shrink, char *why,
                              size_t why_len)
{
    struct array_sync sync = {.slot = volume, .size = size, .shrink = shrink};
    return array_sync(&sync, live, run_resize_volume, why, why_len);
}

void live_array_close(struct appliance *a, struct live_array *live)
{
    char why[256];
    struct array_sync sync = {0};
    live_power_unwatch(live);
    live_caches_close(a, live);
    live->holds_count = 0;
    if (live->array != NULL && !array_sync(&sync, live, run_close, why, sizeof why))
        log_error("array %s was not stopped cleanly: %s", live->name, why);
    live->array = NULL;
    close_disks(live);
}

void live_array_free(struct appliance *a, struct live_array *live)
{
    TAILQ_REMOVE(&a->arrays, live, link);
    free(live);
}

/* --- start --- */

static const char *disk_error_of(const struct scan *scan, const char *path)
{
    for (unsigned i = 0; i < scan->count; i++)
        if (strcmp(scan->disks[i].path, path) == 0 && scan->disks[i].error[0] != '\0')
            return scan->disks[i].error;
    return NULL;
}

/* The disks that carry a label, as assembly_decide() wants to see them; and what opening them has taught. */
struct candidates {
    struct assembly_disk disks[ASSEMBLY_DISKS_MAX];
    const struct scan_disk *scanned[ASSEMBLY_DISKS_MAX];
    char unusable[ASSEMBLY_DISKS_MAX][256];
    unsigned count;
};

/* False: the disk cannot be used, and c says why. */
static bool open_member(struct appliance *a, struct live_array *live, const struct sb_array *description, unsigned slot,
                        struct candidates *c, unsigned index)
{
    char *why = c->unusable[index];
    size_t why_len = sizeof c->unusable[index];
    if (live_disk_open(a, live, &live->disks[slot], c->scanned[index]->path, why, why_len) &&
        array_disk_check(description, slot, &live->disks[slot].disk, why, why_len) == 0)
        return true;
    c->disks[index].unusable = why;
    log_error("array %s: a disk is left out: %s", live->name, why);
    return false;
}

/* Open the disks an assembly names. False: some cannot be used; then none is open. */
static bool open_members(struct appliance *a, struct live_array *live, const struct assembly *assembly,
                         struct candidates *c)
{
    bool good = true;
    live->slots = assembly->array.members_count;
    for (unsigned slot = 0; slot < live->slots; slot++) {
        int index = assembly->disk_of_slot[slot];
        if (index >= 0)
            good = open_member(a, live, &assembly->array, slot, c, (unsigned)index) && good;
    }
    if (!good)
        close_disks(live);
    return good;
}

static void start_assembly(struct appliance *a, struct live_array *live, const struct assembly *assembly,
                           const struct array_journals *journals)
{
    struct array_disk disks[RAID_MEMBERS_MAX] = {0};
    char why[512];
    for (unsigned slot = 0; slot < live->slots; slot++)
        disks[slot] = live->disks[slot].disk;
    struct array_sync sync = {.assembly = assembly, .disks = disks, .journals = journals};
    if (!array_sync(&sync, live, run_open, why, sizeof why)) {
        text_format(live->verdict, sizeof live->verdict, "%s", assembly_verdict_name(ASSEMBLY_WAITING));
        text_format(live->reason, sizeof live->reason, "%s", why);
        log_error("array %s is not started: %s", live->name, why);
        close_disks(live);
        return;
    }
    live->array = sync.array_call.array;
    live_power_watch(a, live);
    log_write(assembly->verdict == ASSEMBLY_COMPLETE ? LOG_LEVEL_NOTICE : LOG_LEVEL_WARN, "started, %s: %s",
              live->verdict, assembly->reason);
}

/* Disks that were away, and lack no more than the array knows, are brought in without asking. All others wait. */
static void take_back_returned(struct appliance *a, struct live_array *live, const struct assembly *assembly,
                               const struct candidates *c)
{
    for (unsigned slot = 0; live->array != NULL && slot < live->slots; slot++) {
        char why[512];
        int index = assembly->returned_of_slot[slot];
        if (index < 0)
            continue;
        const char *path = c->scanned[index]->path;
        struct array_sync sync = {.slot = slot, .disks = &live->disks[slot].disk};
        if (live_disk_open(a, live, &live->disks[slot], path, why, sizeof why) &&
            array_sync(&sync, live, run_online, why, sizeof why)) {
            log_notice("array %s: disk %s was away and is back in slot %u", live->name, path, slot);
            continue;
        }
        log_error("array %s: disk %s is back, and was not taken into slot %u: %s", live->name, path, slot, why);
        live_disk_close(&live->disks[slot]);
    }
}

int config_array_index(const struct config *config, const char *name)
{
    for (unsigned i = 0; i < config->arrays.count; i++)
        if (strcmp(config_item(&config->arrays, struct config_array, i)->name.text, name) == 0)
            return (int)i;
    return -1;
}

/* Does a disk listed for another array than its own belong to this assembly? Says so. */
static void warn_of_strangers(const struct config *config, const struct scan *scan)
{
    for (unsigned i = 0; i < config->arrays.count; i++) {
        const struct config_array *array = config_item(&config->arrays, struct config_array, i);
        for (unsigned d = 0; d < array->disks.count; d++)
            for (unsigned s = 0; s < scan->count; s++) {
                const struct scan_disk *disk = &scan->disks[s];
                if (strcmp(disk->path, array->disks.items[d].text) == 0 && disk->label != NULL &&
                    strcmp(disk->label->array.name, array->name.text) != 0)
                    log_error("%s:%u: disk %s is listed for array %s but belongs to array %s", config->path, disk->line,
                              disk->path, array->name.text, disk->label->array.name);
            }
    }
}

/* An array of the config that no disk carries: not created yet, or all its disks are away. */
static void note_not_created(struct live_array *live, const struct config_array *spec, const struct scan *scan)
{
    const char *error = NULL;
    for (unsigned d = 0; d < spec->disks.count && error == NULL; d++)
        error = disk_error_of(scan, spec->disks.items[d].text);
    text_format(live->verdict, sizeof live->verdict, error != NULL ? "disks missing" : "not created");
    if (error != NULL)
        text_format(live->reason, sizeof live->reason, "no disk carries this array; %s", error);
    else
        text_format(live->reason, sizeof live->reason, "no disk carries this array; corbelctl apply creates it");
    log_notice("array %s: %s", live->name, live->reason);
}

static void find_candidates(const struct scan *scan, struct candidates *c)
{
    for (unsigned i = 0; i < scan->count && c->count < ARRAY_LENGTH(c->disks); i++) {
        const struct scan_disk *disk = &scan->disks[i];
        if (disk->error[0] != '\0')
            log_warn("a disk is left out: %s", disk->error); /* begins with its path */
        else if (disk->verdict == SB_DAMAGED || disk->verdict == SB_UNSUPPORTED)
            log_error("disk %s is left out: %s", disk->path, disk->why);
        if (disk->label == NULL)
            continue;
        c->scanned[c->count] = disk;
        c->disks[c->count++] =
            (struct assembly_disk){.label = disk->label, .identity = disk->identity, .name = disk->path};
    }
}

static const struct config_array *config_named(const struct config *config, const char *name)
{
    int index = config_array_index(config, name);
    return index >= 0 ? config_item(&config->arrays, struct config_array, index) : NULL;
}

/* NULL: it is started already, or none of the config's. */
static struct live_array *array_to_start(struct appliance *a, const struct config *config, const char *name)
{
    struct live_array *live = live_array_find(a, name);
    int index = config_array_index(config, name);
    if (live != NULL && live->array != NULL)
        return NULL;
    if (index < 0)
        log_notice("array %s found on disks is not in the config: left alone", name);
    else if (live == NULL)
        live = live_array_add(a, name, (unsigned)index);
    return index < 0 ? NULL : live;
}

/*
 * Start the array that stands at `index` of what is decided. A disk that turns out to be of no use makes another
 * decision necessary, without it: it is worked out in place, and is the same for all other arrays.
 */
static void start_found(struct appliance *a, struct live_array *live, const struct config_array *config,
                        struct candidates *c, const struct assembly_options *options, struct assembly *decided,
                        unsigned index)
{
    const struct assembly *assembly = &decided[index];
    while (assembly->startable && !open_members(a, live, assembly, c))
        assembly_decide(c->disks, c->count, options, decided, CONFIG_ARRAYS_MAX);
    text_format(live->verdict, sizeof live->verdict, "%s", assembly_verdict_name(assembly->verdict));
    text_format(live->reason, sizeof live->reason, "%s", assembly->reason);
    if (!assembly->startable) {
        log_error("array %s is not started: %s", live->name, assembly->reason);
        return;
    }
    struct array_journals journals = {.force = options->force};
    live_journals_open(a, live, config, &assembly->array, &journals);
    start_assembly(a, live, assembly, &journals);
    take_back_returned(a, live, assembly, c);
}

void live_arrays_start(struct appliance *a, const struct config *config, const struct assembly_options *options,
                       const char *only)
{
    struct scan scan = {0};
    struct candidates *c = calloc(1, sizeof *c);
    struct assembly *decided = calloc(CONFIG_ARRAYS_MAX, sizeof *decided);
    ASSERT(c != NULL && decided != NULL);
    scan_config(&scan, a->reactors[0], config);
    warn_of_strangers(config, &scan);
    find_candidates(&scan, c);
    unsigned count = assembly_decide(c->disks, c->count, options, decided, CONFIG_ARRAYS_MAX);
    for (unsigned i = 0; i < MIN(count, (unsigned)CONFIG_ARRAYS_MAX); i++) {
        struct live_array *live = array_to_start(a, config, decided[i].array.name);
        if (live != NULL && (only == NULL || strcmp(only, live->name) == 0))
            start_found(a, live, config_named(config, live->name), c, options, decided, i);
    }
    live_spares_found(a, &scan);
    live_remotes_scanned(a, &scan);
    for (unsigned i = 0; i < config->arrays.count; i++) {
        const struct config_array *spec = config_item(&config->arrays, struct config_array, i);
        if (live_array_find(a, spec->name.text) == NULL)
            note_not_created(live_array_add(a, spec->name.text, i), spec, &scan);
    }
    free(decided);
    free(c);
    scan_free(&scan);
}

/* --- create --- */

void array_spec_from_config(const struct config_array *config, struct array_spec *spec)
{
    *spec = (struct array_spec){.disks_count = config->disks.count,
                                .journals_count = config->journal.count,
                                .volumes_count = config->volumes.count};
    text_format(spec->name, sizeof spec->name, "%s", config->name.text);
    spec->journal_bytes = config->journal_size;
    for (unsigned i = 0; i < config->volumes.count; i++) {
        const struct config_volume *volume = config_item(&config->volumes, struct config_volume, i);
        struct array_volume_spec *out = &spec->volumes[i];
        text_format(out->name, sizeof out->name, "%s", volume->name.text);
        out->layout = config_volume_layout(config, volume);
        out->slot = (unsigned)volume->slot;
        out->size = volume->size;
        out->init = (enum sb_init)volume->init;
        out->consistency_given = volume->consistency >= 0;
        out->consistency = out->consistency_given ? (enum sb_consistency)volume->consistency : SB_RESYNC;
    }
}

bool live_array_create(struct appliance *a, const struct config_array *config, unsigned index, char *why,
                       size_t why_len)
{
    struct live_array *live = live_array_find(a, config->name.text);
    if (live == NULL)
        live = live_array_add(a, config->name.text, index);
    struct array_spec *spec = calloc(1, sizeof *spec);
    ASSERT(spec != NULL && live->array == NULL);
    array_spec_from_config(config, spec);
    live->slots = spec->disks_count;
    bool good = true;
    for (unsigned slot = 0; slot < live->slots && good; slot++) {
        good = live_disk_open(a, live, &live->disks[slot], config->disks.items[slot].text, why, why_len);
        spec->disks[slot] = live->disks[slot].disk;
    }
    good = good && live_journals_create(a, live, config, spec, why, why_len);
    struct array_sync sync = {.spec = spec};
    good = good && array_sync(&sync, live, run_create, why, why_len);
    if (good) {
        live->array = sync.array_call.array;
        live_power_watch(a, live);
        text_format(live->verdict, sizeof live->verdict, "complete");
        text_format(live->reason, sizeof live->reason, "created");
    } else {
        close_disks(live);
        text_format(live->reason, sizeof live->reason, "%s", why);
    }
    free(spec);
    return good;
}

struct volume_call {
    struct sync_call call;
    struct live_array *live;
    const char *name;
    struct blkdev *dev;
};

static void run_find_volume(struct sync_call *call)
{
    struct volume_call *c = container_of(call, struct volume_call, call);
    struct cache *cache = live_cache_find(c->live, c->name);
    c->dev = cache != NULL ? cache_dev(cache) : array_volume(c->live->array, c->name);
    sync_finish(call);
}

struct live_array *live_array_of_volume(struct appliance *a, const char *reference, const char **volume)
{
    char name[SB_NAME_SIZE] = "";
    const char *slash = strchr(reference, '/');
    if (slash != NULL && (size_t)(slash - reference) < sizeof name)
        text_format(name, sizeof name, "%.*s", (int)(slash - reference), reference);
    struct live_array *live = live_array_find(a, name);
    if (slash == NULL || live == NULL || live->array == NULL) {
        text_format(a->message, sizeof a->message, "%s is no volume of a running array; give ARRAY/VOLUME", reference);
        return NULL;
    }
    *volume = slash + 1;
    return live;
}

struct blkdev *live_volume_find(struct appliance *a, const char *reference, struct reactor **home)
{
    struct volume_call c = {0};
    struct live_import *import = strchr(reference, '/') == NULL ? live_import_find(a, reference) : NULL;
    if (import != NULL) {
        *home = import->home;
        return import_dev(import->import);
    }
    c.live = live_array_of_volume(a, reference, &c.name);
    if (c.live == NULL)
        return NULL;
    sync_call(&c.call, reactor_loop(c.live->home), run_find_volume);
    *home = c.live->home;
    return c.dev;
}

/* --- disks by hand --- */

struct live_array *live_slot_find(struct appliance *a, const char *disk, unsigned *slot)
{
    struct live_array *live;
    TAILQ_FOREACH(live, &a->arrays, link)
    {
        size_t len = strlen(live->name);
        if (strncmp(disk, live->name, len) == 0 && disk[len] == '/') {
            char *end;
            unsigned long number = strtoul(disk + len + 1, &end, 10);
            if (*end == '\0' && end != disk + len + 1 && number < live->slots) {
                *slot = (unsigned)number;
                return live;
            }
        }
        for (unsigned i = 0; i < live->slots; i++)
            if (live->disks[i].path[0] != '\0' && strcmp(live->disks[i].path, disk) == 0) {
                *slot = i;
                return live;
            }
    }
    return NULL;
}

static const char *not_found(struct appliance *a, const char *disk)
{
    text_format(a->message, sizeof a->message, "%s is no disk of a running array; give its path or ARRAY/SLOT", disk);
    return a->message;
}

const char *appliance_disk_fail(struct appliance *a, const char *disk)
{
    struct array_sync sync = {0};
    struct live_array *live = live_slot_find(a, disk, &sync.slot);
    if (live == NULL || live->array == NULL)
        return not_found(a, disk);
    return array_sync(&sync, live, run_fail, a->message, sizeof a->message) ? NULL : a->message;
}

/* The config's path for a slot that has had no disk since start. */
static const char *configured_path(const struct appliance *a, const struct live_array *live, unsigned slot)
{
    int index = config_array_index(a->config, live->name);
    const struct config_array *array = index >= 0 ? config_item(&a->config->arrays, struct config_array, index) : NULL;
    return array != NULL && slot < array->disks.count ? array->disks.items[slot].text : NULL;
}

/* Which slot should a disk that is not in use go to? The failed or absent one whose path in the config it is. */
static struct live_array *find_configured_slot(struct appliance *a, const char *path, unsigned *slot)
{
    struct live_array *live;
    TAILQ_FOREACH(live, &a->arrays, link)
    for (unsigned i = 0; i < live->slots; i++) {
        const char *configured = configured_path(a, live, i);
        if (configured != NULL && strcmp(configured, path) == 0) {
            *slot = i;
            return live;
        }
    }
    return NULL;
}

/*
 * May this disk be overwritten? A blank one, and a member of this array whose history the array knows, may. A half that
 * ran on by itself holds writes that this array does not.
 */
static bool may_take(struct appliance *a, struct live_array *live, const char *path, bool force)
{
    struct scan scan = {0};
    char what[256];
    struct sb_array *description = live_array_describe(live);
    scan_add(&scan, live->home, path, 0);
    const struct scan_disk *disk = &scan.disks[0];
    a->message[0] = '\0';
    if (disk->error[0] != '\0')
        text_format(a->message, sizeof a->message, "%s", disk->error);
    else if (disk->label != NULL && !uuid_equal(&disk->label->array.uuid, &description->uuid))
        text_format(a->message, sizeof a->message, "disk %s belongs to array %s: not taken", path,
                    disk->label->array.name);
    else if (disk->label != NULL && !force && !history_contains(description, &disk->label->array))
        text_format(a->message, sizeof a->message,
                    "disk %s ran on without this array and may hold writes that are nowhere else: not taken; stop the "
                    "array and look at both halves first; --force overwrites it",
                    path);
    else if (disk->label == NULL && !force && foreign_probe(path, what, sizeof what))
        text_format(a->message, sizeof a->message, "disk %s holds %s: not taken; --force overwrites it", path, what);
    free(description);
    scan_free(&scan);
    return a->message[0] == '\0';
}

struct slot_call {
    struct sync_call call;
    struct live_array *live;
    unsigned slot;
    char *why;
    size_t why_len;
    bool free;
};

static void run_take_back(struct sync_call *call)
{
    struct slot_call *c = container_of(call, struct slot_call, call);
    c->free = array_take_back_disk(c->live->array, c->slot, c->why, c->why_len) == NULL;
    sync_finish(call);
}

/* The slot must be out of service, and its old device no longer the array's, before another one is opened for it. */
static bool free_slot(struct live_array *live, unsigned slot, char *why, size_t why_len)
{
    struct slot_call c = {.live = live, .slot = slot, .why = why, .why_len = why_len};
    sync_call(&c.call, reactor_loop(live->home), run_take_back);
    if (c.free)
        live_disk_close(&live->disks[slot]);
    return c.free;
}

bool live_array_online(struct appliance *a, struct live_array *live, unsigned slot, const char *path, char *why,
                       size_t why_len)
{
    if (!free_slot(live, slot, why, why_len) || !live_disk_open(a, live, &live->disks[slot], path, why, why_len))
        return false;
    struct array_sync sync = {.slot = slot, .disks = &live->disks[slot].disk};
    if (array_sync(&sync, live, run_online, why, why_len))
        return true;
    live_disk_close(&live->disks[slot]);
    return false;
}

const char *appliance_disk_online(struct appliance *a, const char *disk, bool force)
{
    unsigned slot;
    char path[CONFIG_PATH_MAX + 1];
    struct live_array *live = live_slot_find(a, disk, &slot);
    const char *wanted = disk; /* a new disk in the config, in the slot's place */
    if (live == NULL)
        live = find_configured_slot(a, disk, &slot);
    else if (live->disks[slot].path[0] != '\0')
        wanted = live->disks[slot].path;
    else
        wanted = configured_path(a, live, slot);
    if (live == NULL || live->array == NULL || wanted == NULL)
        return not_found(a, disk);
    text_format(path, sizeof path, "%s", wanted);
    if (live_slot_is_written(live, slot)) {
        text_format(a->message, sizeof a->message, "disk %s (slot %u of array %s) is in service already",
                    live->disks[slot].path, slot, live->name);
        return a->message;
    }
    if (!may_take(a, live, path, force))
        return a->message;
    return live_array_online(a, live, slot, path, a->message, sizeof a->message) ? NULL : a->message;
}

bool live_disk_found_again(struct appliance *a, const char *path)
{
    struct scan scan = {0};
    scan_config(&scan, a->reactors[0], a->config);
    unsigned count = scan.count;
    bool found = scan_add(&scan, a->reactors[0], path, 0) < count;
    scan_free(&scan);
    if (!found)
        text_format(a->message, sizeof a->message,
                    "disk %s is not among the config's disks and spares, so it would be missed at the next start: add "
                    "it, or a pattern that leads to it, and reload",
                    path);
    return found;
}

const char *appliance_disk_replace(struct appliance *a, const char *disk, const char *path, bool force)
{
    unsigned slot, other;
    struct live_array *live = live_slot_find(a, disk, &slot), *user = live_slot_find(a, path, &other);
    if (live == NULL || live->array == NULL)
        return not_found(a, disk);
    if (user != NULL && user->disks[other].disk.dev != NULL && (user != live || other != slot)) {
        text_format(a->message, sizeof a->message, "disk %s is in use: it is in slot %u of array %s", path, other,
                    user->name);
        return a->message;
    }
    if (live_newcomer_find(a, path) != NULL) {
        text_format(a->message, sizeof a->message, "disk %s is in use: array %s is being copied to it", path,
                    live_newcomer_find(a, path)->name);
        return a->message;
    }
    bool in_service = live_slot_in_service(live, slot);
    if ((!in_service && !free_slot(live, slot, a->message, sizeof a->message)) || !may_take(a, live, path, force) ||
        !live_disk_found_again(a, path))
        return a->message;
    bool begun = in_service ? live_array_replace(a, live, slot, path, a->message, sizeof a->message)
                            : live_array_online(a, live, slot, path, a->message, sizeof a->message);
    return begun ? NULL : a->message;
}

const char *appliance_disk_remove(struct appliance *a, const char *disk)
{
    unsigned slot;
    if (live_spare_remove(a, disk))
        return NULL;
    struct live_array *live = live_slot_find(a, disk, &slot);
    if (live == NULL || live->array == NULL)
        return not_found(a, disk);
    return free_slot(live, slot, a->message, sizeof a->message) ? NULL : a->message;
}

const char *appliance_disk_forget(struct appliance *a, const char *disk)
{
    struct array_sync sync = {0};
    struct live_array *live = live_slot_find(a, disk, &sync.slot);
    if (live == NULL || live->array == NULL)
        return not_found(a, disk);
    return array_sync(&sync, live, run_forget, a->message, sizeof a->message) ? NULL : a->message;
}

/* The member whose history is to win. False: a->message says why it cannot. */
static bool prefer_disk(struct appliance *a, const struct live_array *live, const char *path, struct uuid *member)
{
    struct scan scan = {0};
    if (live == NULL || strcmp(live->verdict, assembly_verdict_name(ASSEMBLY_SPLIT)) != 0) {
        text_format(a->message, sizeof a->message,
                    "there is no split brain that a disk could decide: %s; corbelctl array assemble without --prefer "
                    "looks at the disks anew",
                    live != NULL ? live->reason : "the config does not name such an array");
        return false;
    }
    scan_add(&scan, a->reactors[0], path, 0);
    const struct scan_disk *disk = &scan.disks[0];
    bool good = disk->label != NULL && strcmp(disk->label->array.name, live->name) == 0;
    if (good)
        *member = disk->label->member;
    else
        text_format(a->message, sizeof a->message, "%s%s", disk->error[0] != '\0' ? disk->error : path,
                    disk->error[0] != '\0' ? "" : " is no disk of this array; give its path as the reason has it");
    scan_free(&scan);
    return good;
}

/* False: a->message. What was decided by hand is in the log. */
static bool assemble_options(struct appliance *a, const struct live_array *live, const char *prefer,
                             struct assembly_options *options)
{
    if (prefer != NULL && !prefer_disk(a, live, prefer, &options->prefer))
        return false;
    if (prefer != NULL)
        log_warn("array %s: the history of disk %s was chosen by hand, although: %s", live->name, prefer, live->reason);
    else if (live != NULL && options->force)
        log_warn("array %s: started by force, by hand, although: %s", live->name, live->reason);
    return true;
}

/* False: a->message. It runs, or, frozen, is used by who cannot be cut off. */
static bool is_to_be_started(struct appliance *a, struct live_array *live, bool force, const char *prefer)
{
    if (live == NULL || live->array == NULL)
        return true;
    if (prefer == NULL && live_array_is_frozen(live))
        return live_array_thaw(a, live, force, a->message, sizeof a->message);
    text_format(a->message, sizeof a->message, "array %s runs already%s", live->name,
                prefer != NULL ? ": there is no split brain that a disk could decide" : "");
    return false;
}

const char *appliance_array_assemble(struct appliance *a, const char *array, bool force, const char *prefer)
{
    struct assembly_options options = {.force = force};
    struct live_array *live = live_array_find(a, array);
    if (!is_to_be_started(a, live, force, prefer) || !assemble_options(a, live, prefer, &options))
        return a->message;
    if (live_array_start_again(a, array, &options))
        return NULL;
    live = live_array_find(a, array);
    text_format(a->message, sizeof a->message, "array %s is not started: %s", array,
                live != NULL ? live->reason : "the config does not name it");
    return a->message;
}
