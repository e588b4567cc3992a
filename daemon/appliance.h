/*
 * The appliance: everything assembled.
 *
 * It owns the reactors, the disks, arrays, exports, targets and listeners, and is the only place that knows how they
 * are put together. All its functions but appliance_alive() run on the worker's thread (daemon/worker.h) and may block;
 * objects on reactors are reached by sync_call(). Nothing on a disk is changed by appliance_start() but what its array
 * needs to go on (rule 6: nothing is formatted, grown or migrated because a daemon started); creating is
 * appliance_apply()'s business.
 *
 *   appliance_start:  probe the listeners' addresses, scan the disks, decide and open the arrays, serve, listen last
 *   appliance_stop:   close the listeners, drain, close the arrays (clean), join the reactors
 */
#ifndef DAEMON_APPLIANCE_H
#define DAEMON_APPLIANCE_H

#include <jansson.h>

#include "daemon/config.h"

struct appliance;
struct reactor;

/* Both on the thread of the control reactor while it does not run. Owns the config from now on. NULL: `why` says what
 * is wrong. */
struct appliance *appliance_create(struct config *config, struct reactor *control, char *why, size_t why_len);
void appliance_destroy(struct appliance *appliance);

/* 0, or -1 with a sentence: a listener's address cannot be had. Arrays that cannot start are logged and shown. */
int appliance_start(struct appliance *appliance, char *why, size_t why_len);
/* `progress` (may be NULL) is called between steps, e.g. to ask the service manager for more time. */
void appliance_stop(struct appliance *appliance, void (*progress)(void));
/* From then on nothing below may be called: it would start what was stopped. */
bool appliance_is_stopped(const struct appliance *appliance);

/*
 * Read the config file again and take over what is safe: new exports and targets, the time to drain. Returns a JSON
 * object {"taken": [...], "refused": [...], "errors": [...]} of sentences: all that differs is in one of them.
 */
json_t *appliance_reload(struct appliance *appliance);

/*
 * The difference between the config file and what is, as a plan; carried out unless `dry_run`. Nothing at all is done
 * if one step is refused. {"plan": [{"action", "object", "text", "refused"?}], "applied": bool, "errors": [...]}
 */
struct apply_options {
    bool dry_run;
    bool force; /* overwrite foreign data, start arrays that need force */
};
json_t *appliance_apply(struct appliance *appliance, const struct apply_options *options);

/* `disk` is a path as in the config, or "array/slot". NULL, or what went wrong (valid until the next call). */
const char *appliance_disk_fail(struct appliance *appliance, const char *disk);
const char *appliance_disk_online(struct appliance *appliance, const char *disk, bool force);

/* Another disk for a slot: the one that is in service is copied and goes on serving meanwhile; else it is rebuilt. */
const char *appliance_disk_replace(struct appliance *appliance, const char *disk, const char *path, bool force);
/* Take the disk of a slot that is out of service, or a spare, away so that it can be unplugged. */
const char *appliance_disk_remove(struct appliance *appliance, const char *disk);
/* The disk that was in "array/slot" will not come back. */
const char *appliance_disk_forget(struct appliance *appliance, const char *slot);
/* `array` "": for all. */
/* What was on the disk, and is erased by force, stands in `erased` then; else it is empty. */
const char *appliance_spare_add(struct appliance *appliance, const char *path, const char *array, bool force,
                                char *erased, size_t erased_len);
/*
 * Start an array that waits; by force also one whose acknowledged writes may not all be there. `prefer` (NULL: none) is
 * the path of a disk whose history wins a split brain.
 */
const char *appliance_array_assemble(struct appliance *appliance, const char *array, bool force, const char *prefer);

/*
 * Have spares take the slots that lost their disks, close disks that were replaced, and serve volumes that were held:
 * now and then, if there is anything to look after. The second may be asked anywhere.
 */
void appliance_spares_look(struct appliance *appliance);
bool appliance_has_spares(const struct appliance *appliance);

/* Background work on "array/volume". -1: leave as it is; `paused` (0, 1) goes alone. NULL, or what went wrong. */
struct appliance_policy {
    int paused;
    int64_t priority, min_rate, max_rate;
};
const char *appliance_volume_policy(struct appliance *appliance, const char *volume,
                                    const struct appliance_policy *policy);
/* On all volumes of an array that have such work. */
const char *appliance_array_policy(struct appliance *appliance, const char *array,
                                   const struct appliance_policy *policy);

/* Begin to write zeroes to what was never written of "array/volume", and read them back; or call it off. */
const char *appliance_volume_init(struct appliance *appliance, const char *volume, bool begin);
/*
 * Call off what is under way on "array/volume" (init, scrub), or the replacement of a disk (by path, also that of the
 * new one, or "array/slot"). What must come to its end is refused.
 */
const char *appliance_job_cancel(struct appliance *appliance, const char *what);

/* Begin a scrub of "array/volume", or call it off. NULL, or what went wrong (valid until the next call). */
enum appliance_scrub { APPLIANCE_CHECK, APPLIANCE_REPAIR, APPLIANCE_SCRUB_STOP };
const char *appliance_volume_scrub(struct appliance *appliance, const char *volume, enum appliance_scrub what);

/*
 * Did every data reactor answer since the last call? On the control reactor's thread, now and then: for the watchdog,
 * so that a stuck one does not look alive. The first call says yes.
 */
bool appliance_alive(struct appliance *appliance);

/* A sentence for people as JSON: it may have been cut within a character, or hold a name that is no UTF-8. */
json_t *sentence_json(const char *sentence);

/* Who is connected, and what each did: an array. */
json_t *appliance_sessions(struct appliance *appliance);
/* Ask one to end; it is cut after *grace_ns. NULL, or what went wrong. */
const char *appliance_session_drop(struct appliance *appliance, const char *session, uint64_t *grace_ns);

/* Who says whether a battery stands behind this machine, and what. */
json_t *appliance_power(struct appliance *appliance);
/* All that is dirty in the cache of "array/volume" goes to the array. NULL, or what is wrong. */
const char *appliance_cache_flush(struct appliance *appliance, const char *volume);
/*
 * Give up what a held volume ("array/volume") waits for, or an arena that no cache uses, by id or place. `lost` says
 * what is lost; without `yes` nothing is. NULL, or what is wrong.
 */
const char *appliance_cache_discard(struct appliance *appliance, const char *what, bool yes, char *lost, size_t len);

/* Everything, for corbelctl and the page. */
json_t *appliance_status(struct appliance *appliance);

#endif
