/* The appliance's insides, shared by the files daemon/appliance*.c and by nobody else. */
#ifndef DAEMON_APPLIANCE_INTERNAL_H
#define DAEMON_APPLIANCE_INTERNAL_H

#include <stdatomic.h>

#include "cache/cache.h"
#include "cache/log.h"
#include "daemon/appliance.h"
#include "daemon/arena_place.h"
#include "daemon/listener.h"
#include "daemon/power.h"
#include "daemon/reactor.h"
#include "daemon/scan.h"
#include "daemon/secrets.h"
#include "daemon/tls.h"
#include "daemon/worker.h"
#include "raid/array.h"
#include "raid/import.h"
#include "raid/journal_device.h"
#include "target/iscsi/iscsi.h"
#include "target/nbd/nbd.h"

/* A disk in a slot. `dev` is NULL while none is open. */
struct live_disk {
    char path[CONFIG_PATH_MAX + 1];
    struct array_disk disk; /* the device: its patience */
    const char *engine;     /* of the disk beneath */
    struct blkdev *remote;  /* the disk beneath, if it is another machine's */
};

/* A disk of another machine: daemon/appliance_remotes.c. */
struct live_remote;

/* A disk that waits to be taken: daemon/appliance_spares.c. */
struct live_spare {
    TAILQ_ENTRY(live_spare) link;
    char path[CONFIG_PATH_MAX + 1];
    char array[SB_NAME_SIZE]; /* "": for all */
    char said[512];           /* what stands against it, as logged */
    time_t asked_s;           /* of another machine: when it was looked at (monotonic) */
};

/* The log of a cache and its devices: daemon/appliance_log.c. `log` NULL: it has none. */
struct live_log {
    struct cache_log *log;
    struct live_disk disks[LOG_DEVICES];
};

/* The cache over a volume: daemon/appliance_cache.c. All but what is found by name belongs to the array's home. */
struct live_cache {
    char volume[SB_NAME_SIZE];
    struct cache *cache;
    struct cache_owner owner;
    bool battery;         /* is what it promises by */
    bool told;
    enum cache_mode mode; /* as logged, once it was */
    const char *said;
    struct arena *arena; /* NULL: plain memory */
    struct live_array *array;
    struct array_call claim_call; /* that keeps the claim, or forgets it */
    bool claims;
    struct live_log log;
    /* The worker's. */
    struct arena_place *place; /* of the arena */
    char through[512];         /* why it promises nothing, though the config says it should; "": it does */
};

/* A volume that is not served, because its newest bytes are elsewhere: daemon/appliance_arena.c. The worker's. */
struct live_hold {
    char volume[SB_NAME_SIZE], reason[512];
    struct arena_place *torn; /* what it lacks is damaged in there; or NULL */
};

/* Caches that are emptied because the mains failed: daemon/appliance_power.c, on the home of their array. */
struct live_drain {
    struct live_array *live;
    struct blk_req req;
};
struct live_saver {
    bool rests;                   /* background work does */
    unsigned number, left;        /* of the drain that was begun last, and caches that still are about it */
    bool failed;                  /* for one of them at least */
    unsigned drained;             /* the last one that succeeded */
    struct sync_call *unwatching; /* waits for the end of it */
    struct live_drain drains[SB_VOLUMES_MAX];
};

/* An array of the config, or found on a disk; `array` is NULL while it is not started, and `reason` says why. */
struct live_array {
    TAILQ_ENTRY(live_array) link;
    char name[SB_NAME_SIZE];
    struct reactor *home;
    struct array *array;
    unsigned slots;
    struct live_disk disks[RAID_MEMBERS_MAX], journals[SB_JOURNALS_MAX];
    struct live_disk
        newcomer; /* takes the place of one in service: daemon/appliance_replace.c. No device: there is none */
    char verdict[32], reason[1024];
    char spare_said[512]; /* why no spare took a slot, as logged */
    bool watches_power;
    struct power_watch power_watch; /* daemon/appliance_power.c: on its home, while it runs */
    struct power_health power;      /* as its home has heard it */
    uint64_t shutdown_s;            /* so too */
    struct live_saver saver;
    unsigned caches_count;
    struct live_cache caches[SB_VOLUMES_MAX];
    unsigned holds_count;
    struct live_hold holds[SB_VOLUMES_MAX];
};

/* An array of Linux md, served as it is: daemon/appliance_imports.c. `import` is NULL while it is not started. */
struct live_import {
    TAILQ_ENTRY(live_import) link;
    char name[SB_NAME_SIZE], md_name[MD_NAME_SIZE], reason[512];
    struct uuid uuid; /* md's, of the array */
    struct reactor *home;
    struct import *import;
    unsigned slots;
    struct live_disk disks[RAID_MEMBERS_MAX];
};

struct live_export {
    TAILQ_ENTRY(live_export) link;
    char *name, *volume;
};

struct live_lun {
    unsigned lun;
    char *volume;
};

struct live_target {
    TAILQ_ENTRY(live_target) link;
    char *name;
    struct scsi_target *scsi;
    struct reactor *home;
    unsigned proxies_count;
    struct blkdev *proxies[SCSI_LUNS_MAX];
    unsigned luns_count;
    struct live_keeper *keepers; /* daemon/appliance_keeper.c */
    struct live_lun luns[SCSI_LUNS_MAX];
    struct task removed; /* run by its server when it is being removed and its last session is gone */
    atomic_bool gone;    /* it was */
};

struct live_listener {
    TAILQ_ENTRY(live_listener) link;
    struct appliance *appliance;
    uint16_t group;   /* iSCSI: tag of its portal group */
    enum nbd_tls tls; /* NBD */
    struct listener *listener;
    char address[128];
    const char *protocol; /* "nbd", "iscsi" */
};

/* A question to a reactor: still there? */
struct ping {
    struct task task;
    atomic_bool asked; /* and not answered */
};

struct appliance {
    struct config *config;
    struct loop *control;
    struct power_monitor *power; /* the control reactor's */
    unsigned reactors_count;
    struct reactor *reactors[64];
    struct ping pings[64]; /* the control reactor's */
    TAILQ_HEAD(, live_array) arrays;
    TAILQ_HEAD(, live_import) imports;
    TAILQ_HEAD(, live_spare) spares;
    struct arena_places places; /* of arenas, in use or not */
    atomic_bool spares_known;   /* there are some, or were */
    atomic_bool replacing;      /* a disk in service is being replaced, or was */
    atomic_bool holding;        /* a volume is kept from initiators until it is initialised */
    atomic_bool remotes_known;  /* the config names disks of other machines */
    TAILQ_HEAD(, live_remote) remotes;
    struct helpers *knockers; /* threads that look whether they can be reached */
    unsigned held;            /* how many, when last something was to be served */
    TAILQ_HEAD(, live_export) exports;
    TAILQ_HEAD(live_targets, live_target) targets, leaving; /* leaving: being removed */
    TAILQ_HEAD(, live_listener) listeners;
    struct nbd_server *nbd;
    struct stream_credentials *credentials; /* of NBD's TLS; NULL: none */
    struct iscsi_server *iscsi;
    bool threads_only, stopped;
    uint64_t started_s;
    char message[512]; /* the last error of a call */
};

/* --- appliance_sessions.c --- */

json_t *live_connections_json(struct appliance *a);

/* --- appliance_journals.c --- */

/* Those of an array that starts: what can be opened. */
void live_journals_open(struct appliance *a, struct live_array *live, const struct config_array *config,
                        const struct sb_array *description, struct array_journals *out);
/* Those of a new array: all, or false and why. */
bool live_journals_create(struct appliance *a, struct live_array *live, const struct config_array *config,
                          struct array_spec *spec, char *why, size_t why_len);
json_t *live_journals_json(const struct live_array *live, const struct array_info *info);

/* --- appliance_arrays.c --- */

/* For the array's loop, exclusively, with patience. */
bool live_disk_open(struct appliance *a, struct live_array *live, struct live_disk *disk, const char *path, char *why,
                    size_t why_len);

/* The same for a loop; `read_only`: for reading. */
bool live_disk_open_on(struct appliance *a, struct reactor *home, bool read_only, struct live_disk *disk,
                       const char *path, char *why, size_t why_len);

struct live_array *live_array_find(struct appliance *a, const char *name);
/* Of the array among those of the config; -1: it is not among them. */
int config_array_index(const struct config *config, const char *name);
/* A new entry without array, on the home reactor of the config's `index`th array. */
struct live_array *live_array_add(struct appliance *a, const char *name, unsigned index);
/* Scan the config's disks, then start every array that may start and is not started, or `only` that one. */
void live_arrays_start(struct appliance *a, const struct config *config, const struct assembly_options *options,
                       const char *only);
/* What would be started with these options? Fills verdict and reason of those that are not. No array is opened. */
bool live_array_create(struct appliance *a, const struct config_array *spec, unsigned index, char *why, size_t why_len);
bool live_array_add_volume(struct live_array *live, const struct array_volume_spec *spec, char *why, size_t why_len);
/* By index in the description. `shrink`: it may become shorter. */
bool live_array_resize_volume(struct live_array *live, unsigned volume, uint64_t size, bool shrink, char *why,
                              size_t why_len);
void live_array_close(struct appliance *a, struct live_array *live);
void live_array_free(struct appliance *a, struct live_array *live);
/* The description as it is now: a copy the caller frees. */
struct sb_array *live_array_describe(struct live_array *live);
/* The running array of a reference ARRAY/VOLUME, and the volume's name in it; NULL: there is none, see a->message. */
struct live_array *live_array_of_volume(struct appliance *a, const char *reference, const char **volume);
/* The device of "array/volume", its cache if it has one, or of an import, and its home. NULL: not there. */
struct blkdev *live_volume_find(struct appliance *a, const char *reference, struct reactor **home);
/* "array/slot", or the path of a disk in a slot; NULL: neither. */
struct live_array *live_slot_find(struct appliance *a, const char *disk, unsigned *slot);
/* Spec of a config's array for raid/, without devices. */
void array_spec_from_config(const struct config_array *config, struct array_spec *spec);

/* Do the config's paths and patterns lead to the disk? Else its array would miss it at a start: false, and
 * a->message. */
bool live_disk_found_again(struct appliance *a, const char *path);
/* Put a disk into a slot that is out of service. It may be overwritten: that was looked at. */
bool live_array_online(struct appliance *a, struct live_array *live, unsigned slot, const char *path, char *why,
                       size_t why_len);
void live_disk_close(struct live_disk *disk);

/* --- appliance_imports.c --- */

/* Those of the config that are not started. Before something is served. */
void live_imports_start(struct appliance *a, const struct config *config);
/* NULL: there is none that is started. */
struct live_import *live_import_find(struct appliance *a, const char *name);
/* Would it be started, and as what? False: it is. `usable`: else `text` says why not. */
bool live_import_plan(struct appliance *a, const struct config_import *config, bool *usable, char *text,
                      size_t text_len);
json_t *live_imports_json(struct appliance *a);
/* Nobody uses them any more. */
void live_imports_close(struct appliance *a);

/* --- appliance_replace.c --- */

bool live_slot_in_service(struct live_array *live, unsigned slot);
/* In service, or being rebuilt: its labels change while it is looked at. */
bool live_slot_is_written(struct live_array *live, unsigned slot);
/* Begin to put another disk, which may be overwritten, in the place of one in service. */
bool live_array_replace(struct appliance *a, struct live_array *live, unsigned slot, const char *path, char *why,
                        size_t why_len);
/* Close the disks that replacements which are over have left behind. */
void live_replacements_look(struct appliance *a);
/* The array that the path is being copied to, or NULL. */
struct live_array *live_newcomer_find(struct appliance *a, const char *path);

/* --- appliance_spares.c --- */

/* Spares that the config names, and those whose label says so. */
void live_spares_config(struct appliance *a, const struct config *config);
void live_spares_found(struct appliance *a, const struct scan *scan);
void live_spares_free(struct appliance *a);
/* False: the path is none. */
bool live_spare_remove(struct appliance *a, const char *path);
json_t *live_spares_json(struct appliance *a);

/* What became of the replacement that runs, or ran last. */
struct array_replacement live_replacement(struct live_array *live);

/* --- appliance_jobs.c --- */

/* Why "array/volume" is not to be served: it is being initialised in the foreground, or its newest bytes are elsewhere.
 * NULL: it may be. */
const char *live_volume_held(struct appliance *a, const char *reference);
/* Before something is served: how many are held now; and later: serve what is held no more. */
void live_held_count(struct appliance *a);
void live_held_look(struct appliance *a);

/* --- appliance_remotes.c --- */

/* What a scan has learned about disks of other machines; and those that the config names. */
void live_remotes_scanned(struct appliance *a, const struct scan *scan);
/* Bring back those that were lost and can be reached again. */
void live_remotes_look(struct appliance *a);
/* Of an array that runs. */
bool live_array_is_frozen(struct live_array *live);
/* Before the reactors are stopped; and behind. */
void live_remotes_stop(struct appliance *a);
void live_remotes_free(struct appliance *a);

/* --- appliance_thaw.c --- */

/* An array that does not run: assemble it, and serve its volumes. */
bool live_array_start_again(struct appliance *a, const char *name, const struct assembly_options *options);
/* One that is frozen runs no more, and nobody uses it. False, and why: somebody cannot be cut off. */
bool live_array_thaw(struct appliance *a, struct live_array *live, bool force, char *why, size_t why_len);

/* --- appliance_scrub.c --- */

/* How often the volumes of all arrays are scrubbed, as the config says. */
void live_patrols(struct appliance *a, const struct config *config);
json_t *scrub_json(const struct array_scrub_info *info);

/* --- appliance_power.c --- */

/* The source and its limits, as the config says now. */
void live_power(struct appliance *a, const struct config *config);
/* An array that runs hears of the power source, until it is closed. */
void live_power_watch(struct appliance *a, struct live_array *live);
void live_power_unwatch(struct live_array *live);

/* --- appliance_cache.c --- */

/* For volumes that have none yet and shall, before they are served. */
void live_caches_start(struct appliance *a, const struct config *config);
/* NULL: the volume has none. */
struct cache *live_cache_find(const struct live_array *live, const char *volume);
/* On the array's home: with news of the power, and each second. */
void live_caches_power(struct live_array *live);
/* So many bytes a second leave a cache: as measured, or else, before it was, slow. */
uint64_t live_cache_rate(const struct cache_status *status);
/* Bytes of answered writes that are here only. */
uint64_t live_caches_dirty(struct live_array *live);
/* What is dirty goes to the array first, or stays in its arena. Nobody uses them any more. */
void live_caches_close(struct appliance *a, struct live_array *live);
/* NULL: the volume has none. */
json_t *live_cache_json(const struct live_array *live, const char *volume, const struct cache_status *status,
                        const struct cache_log_status *log);
/* On the home: zeroes if the volume has no cache, or that no log. */
void live_cache_look(const struct live_array *live, const char *volume, struct cache_status *status,
                     struct cache_log_status *log);

/* --- appliance_arena.c --- */

/* What the service manager kept for us. Before anything is served. */
void live_arenas_inherit(struct appliance *a);
/* What is dirty in those that nobody took stays in them. */
void live_arenas_free(struct appliance *a);
/* Those that no cache uses. */
json_t *live_arenas_json(struct appliance *a);

/* --- appliance_policy.c --- */

/* Priorities and rates of background work that the config names. */
void live_rates(struct appliance *a, const struct config *config);

/* --- appliance_keeper.c --- */

/* A keeper for what initiators reserve at a LUN, and what is kept already (NULL: nothing), both for `options`. The
 * caller frees the record. */
char *live_keeper_add(struct live_target *target, struct live_array *live, const struct sb_array *description,
                      const struct uuid *volume, struct scsi_lu_options *options, unsigned lun);
void live_keepers_free(struct live_target *target);

/* --- appliance_serve.c --- */

/*
 * Serve what the config names and is not served yet; what cannot be (its volume is missing) is logged. `told` (may be
 * NULL) hears what became of each.
 */
typedef void (*live_told)(void *data, const char *kind, const char *name, bool served);
void live_serve(struct appliance *a, const struct config *config, live_told told, void *data);
/* No export and no target has a volume of this array any more; their clients are cut off. False, and why. */
bool live_unserve(struct appliance *a, const char *array, char *why, size_t why_len);
/* Removes targets that the config does not have any more: their sessions are asked to end. */
void live_retire(struct appliance *a, const struct config *config, live_told told, void *data);
void live_export_free(struct live_export *export);
struct live_export *live_export_find(struct appliance *a, const char *name);
struct live_target *live_target_find(struct appliance *a, const char *name);
/* Can the addresses be bound? Tried and let go. */
int live_listeners_probe(struct appliance *a, const struct config *config, char *why, size_t why_len);
/* For SendTargets: where they listen, and what else the config says. */
void live_portals_tell(struct appliance *a);
int live_listeners_open(struct appliance *a, const struct config *config, char *why, size_t why_len);
void live_listeners_close(struct appliance *a);
void live_drain(struct appliance *a, uint64_t grace_ns);
void live_targets_close(struct appliance *a);

/* --- appliance_access.c --- */

/* An access list with its secrets, ready for the server. */
struct access_rules {
    unsigned count;
    struct iscsi_rule *rules; /* NULL: everybody may */
    struct secret *secrets;   /* two a rule */
    struct scsi_view *views;  /* one a rule */
};

/* Of a target, with the LUNs it has or is to have, or (NULL) of discovery. False: a secret cannot be read; that is
 * logged. */
bool access_rules_make(struct access_rules *rules, const struct config *config, const struct config_list *list,
                       const struct config_list *luns, const struct live_target *target);
void access_rules_wipe(struct access_rules *rules);
/* Who may discover, and use the targets that are served: as the config says now. Before live_serve() shows new LUNs. */
typedef void (*live_secrets_told)(void *data, const char *of);
void live_access(struct appliance *a, const struct config *config, live_secrets_told told, void *data);

/* --- appliance_nbd.c --- */

/* Ready for the server; whoever made them drops them. */
void nbd_access_make(struct nbd_access_options *options, const struct config_export *export);
void nbd_access_drop(struct nbd_access_options *options);
/* Who may use the exports that are served, as the config says now. */
void live_nbd_access(struct appliance *a, const struct config *config);
/* Certificates and keys, as they are in their files now; those that do no longer serve leave the old ones. True:
 * others. */
bool live_nbd_tls(struct appliance *a, const struct config *config);
/* When there is no connection any more. */
void live_nbd_tls_free(struct appliance *a);

/* Close a device on its loop and wait. */
void blkdev_close_wait(struct blkdev *dev);

#endif
