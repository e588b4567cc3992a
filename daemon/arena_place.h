/*
 * Where the memory of an arena (cache/arena.h) comes from, and who keeps it when this process ends.
 *
 *      memory     of the service manager's file descriptor store (sd_notify(3), FDSTORE=1): a memfd, found again at the
 *                 next start among the descriptors that are passed. Without a service manager it ends with the process
 *      a file     on tmpfs, or on any other file system: it outlives the process. Locked against a second user
 *      durable    a file on a DAX file system, mapped with MAP_SYNC: it outlives a power failure
 *
 * All of its memory is there when a place is (nothing is sparse): a full file system is found out when a place is made,
 * not when a page is written. What a file holds that is no arena is never overwritten.
 *
 * All of this may block: it is for the worker's thread.
 */
#ifndef DAEMON_ARENA_PLACE_H
#define DAEMON_ARENA_PLACE_H

#include <sys/queue.h>

#include "cache/arena.h"
#include "daemon/config.h"

struct sync_call;

struct arena_place {
    TAILQ_ENTRY(arena_place) link; /* its user's */
    struct arena_memory memory;
    char path[CONFIG_PATH_MAX + 1]; /* "": memory */
    char stored_as[64];             /* in the service manager's store; "": it is not there */
    bool durable;
    int fd;
    /* As arena_place_look() found it. */
    enum arena_verdict verdict;
    struct arena_report report;
    /* Its user's. */
    bool in_use;
    bool claimed;              /* the description of its volume may say that it is needed */
    bool accept_torn;          /* an administrator gave up what is torn */
    struct sync_call *waiting; /* for the end of its memory's use */
};
TAILQ_HEAD(arena_places, arena_place);

/* Memory, of zeroes. */
struct arena_place *arena_place_memory(uint64_t bytes, char *why, size_t why_len);
/* All memory that the service manager kept, at the list's end. Once. */
void arena_places_inherit(struct arena_places *list);
/*
 * A file: if it is not there, or empty, it becomes one of `bytes` zeroes; `bytes` 0: it must be there. NULL, and why:
 * also if it holds something that is no arena, or is another's.
 */
struct arena_place *arena_place_file(const char *path, uint64_t bytes, bool durable, char *why, size_t why_len);
/* Is there a file, and is something in it? */
bool arena_place_exists(const char *path);

void arena_place_look(struct arena_place *place);
/* Zeroes instead of all that is in it, and so many bytes. False, and why: what was in it is gone nevertheless. */
bool arena_place_clear(struct arena_place *place, uint64_t bytes, char *why, size_t why_len);
/* Let go of it. `forget`: the service manager lets go of it, too. A file stays as it is. */
void arena_place_free(struct arena_place *place, bool forget);

/* Its path, or the name under which it is stored, or "memory". */
const char *arena_place_where(const struct arena_place *place);
/* What it outlives: "nothing", "a restart of corbeld", "a power failure". */
const char *arena_place_outlives(const struct arena_place *place);

#endif
