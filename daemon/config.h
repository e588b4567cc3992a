/*
 * The configuration: what the administrator wants, as a checked value.
 *
 * config_load() reads the file with libconfig, walks it along the table of keys (daemon/config_keys.c: name, kind,
 * limits, default, a sentence), then checks what spans keys (daemon/config_check.c): references, names twice, shapes
 * of volumes. Mistakes are collected, each with file, line and column; a config with one is not used at all. No disk is
 * touched.
 *
 * Sizes and durations are strings with units: libconfig's integers wrap silently.
 */
#ifndef DAEMON_CONFIG_H
#define DAEMON_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cache/cache.h"
#include "raid/layout.h"

/* A string and where it stands. text is never NULL after loading; "" where the key is absent and has no default. */
struct config_text {
    char *text;
    unsigned line;
};

struct config_strings {
    struct config_text *items;
    unsigned count;
};

/* A list of groups: `items` are structs of the type named in the comment. */
struct config_numbers {
    uint64_t *items;
    unsigned count;
    unsigned line;
};

struct config_list {
    void *items;
    unsigned count;
};

struct config_cache {
    unsigned line;
    uint64_t size; /* bytes; 0: no cache */
    struct config_text write, protection, when_bad, read_ahead, arena;
    struct config_strings journal;
};

struct config_volume {
    unsigned line;
    struct config_text name;
    enum raid_level level;
    enum raid_rotation rotation;
    uint64_t size;  /* bytes; 0: all that is left */
    uint64_t chunk; /* bytes; 0: the default of the level */
    uint64_t spans, copies, slot;
    int consistency;                       /* enum sb_consistency; -1: the default of the level */
    int init;                              /* enum sb_init, when it is created */
    uint64_t priority, min_rate, max_rate; /* of background work: percent; 0: all three are left as they are */
    struct config_cache cache;
};

struct config_array {
    unsigned line;
    struct config_text name, scrub;
    struct config_strings disks, spares, journal;
    uint64_t journal_size;      /* bytes; 0: the default */
    struct config_list volumes; /* struct config_volume */
};

/* An array of Linux md, to be read where it is. */
struct config_import {
    unsigned line;
    struct config_text name;
    struct config_strings disks;
};

/* A rule of an export's access list. */
struct config_client {
    unsigned line;
    struct config_text name;
    struct config_strings clients, addresses;
    bool read_only;
};

struct config_export {
    unsigned line;
    struct config_text name, volume, description, tls;
    bool read_only, hidden;
    uint64_t connections;      /* 0: no limit of its own */
    struct config_list access; /* struct config_client */
};

/* An address with more to it than nbd.listen says. */
struct config_listener {
    unsigned line;
    struct config_text address, tls, mode, owner, group;
};

/* Files of TLS; "": none. */
struct config_tls {
    unsigned line;
    struct config_text mode, certificate, key, ca, revoked, psk;
    bool verify_clients;
};

struct config_lun {
    unsigned line;
    uint64_t lun;
    struct config_text volume;
    bool read_only, hide_physical, removable;
    uint64_t sanitize_rate;  /* bytes a second; 0: no limit */
    uint64_t soft_threshold; /* percent; 0: none */
};

/* A rule of an access list. Secrets themselves are in no config: daemon/secrets.h. */
struct config_access {
    unsigned line;
    struct config_text name;
    struct config_strings initiators, addresses;
    struct config_text user, secret_file, target_user, target_secret_file;
    bool read_only;
    struct config_list luns; /* struct config_lun */
};

/* Portals with a tag of their own, besides those of iscsi.listen (ISCSI_GROUP_DEFAULT). */
struct config_portal_group {
    unsigned line;
    uint64_t tag;
    struct config_strings listen, portals;
};

struct config_target {
    unsigned line;
    struct config_text name, alias, redirect;
    bool redirect_permanent;
    struct config_numbers portal_groups;
    struct config_list luns;   /* struct config_lun */
    struct config_list access; /* struct config_access */
};

struct config_daemon {
    unsigned line;
    struct config_text control, log, io;
    uint64_t reactors, memory, drain_ns;
};

struct config_nbd {
    unsigned line;
    struct config_strings listen;
    struct config_list listeners; /* struct config_listener */
    struct config_tls tls;
    uint64_t connections, half_open, half_open_per_address, requests, negotiation_ns;
    struct config_list exports; /* struct config_export */
};

struct config_iscsi {
    unsigned line;
    struct config_strings listen, portals;
    uint64_t connections, half_open, half_open_per_address, commands, login_ns, ping_interval_ns, ping_timeout_ns;
    bool short_secrets;
    struct config_list portal_groups; /* struct config_portal_group */
    struct config_list discovery;     /* struct config_access */
    struct config_list targets;       /* struct config_target */
};

struct config_web {
    unsigned line;
    struct config_strings listen;
};

/* Who says that a battery stands behind what is in memory: daemon/config_power.h. */
struct config_power {
    unsigned line;
    struct config_strings source;
    struct config_text user, password_file, on_low;
    uint64_t poll_ns, charge_min, charge_ok, charge_low, runtime_min_ns, runtime_assumed_ns, silence_max_ns, settle_ns,
        shutdown_time_ns, needed;
};

enum { CONFIG_ARRAYS_MAX = 64, CONFIG_PATH_MAX = 511 };

struct config {
    unsigned line;
    char *path;
    struct config_daemon daemon;
    struct config_strings disks, spares; /* where else to look for members */
    struct config_list arrays;           /* struct config_array */
    struct config_list imports;          /* struct config_import */
    struct config_nbd nbd;
    struct config_iscsi iscsi;
    struct config_web web;
    struct config_power power;
};

/* Mistakes found, one line each: "FILE:LINE:COLUMN: setting: sentence". After 64 a last line says that there are more.
 */
struct config_errors {
    char *lines[65];
    unsigned count;
};

/* The config, or NULL with at least one error. Free both. */
struct config *config_load(const char *path, struct config_errors *errors);
void config_free(struct config *config);
void config_errors_free(struct config_errors *errors);

/* The `index`th item of a list: config_item(&c->arrays, struct config_array, i). */
#define config_item(list, type, index) (&((type *)(list)->items)[index])

/* "array/volume" -> the volume, and its array in *array (may be NULL). NULL if the config has none. */
const struct config_import *config_find_import(const struct config *config, const char *name);
const struct config_volume *config_find_volume(const struct config *config, const char *reference,
                                               const struct config_array **array);

/*
 * Tell each difference by its path: `daemon.memory`, `arrays "r0".disks`, `nbd.exports "vms"` (added or removed as a
 * whole).
 */
enum config_change { CONFIG_CHANGED, CONFIG_ADDED, CONFIG_REMOVED };
typedef void (*config_difference)(void *data, const char *path, enum config_change change);
void config_compare(const struct config *old, const struct config *new, config_difference differs, void *data);

/* "weekly", "monthly", "off" (0) or a number of days, in seconds. False: it is none of these. */
bool config_scrub_interval(const char *text, uint64_t *seconds);

/* Of a config that was checked. */
/* Where the arena of a cache is to be. */
enum config_arena { CONFIG_ARENA_NONE, CONFIG_ARENA_MEMORY, CONFIG_ARENA_FILE };
enum config_arena config_cache_arena(const struct config_cache *cache);
enum cache_protection config_cache_protection(const struct config_cache *cache);
enum readahead_mode config_cache_readahead(const struct config_cache *cache);

/* The layout an array's volume asks for. */
struct layout_spec config_volume_layout(const struct config_array *array, const struct config_volume *volume);

/* Every key with its kind, default and sentence, for people (corbeld --config-keys) and corbel.conf(5). */
void config_print_keys(FILE *out);

#endif
