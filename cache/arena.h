/*
 * The arena: memory for a cache's pages that outlives the process, and says of itself what in it is dirty.
 *
 * Its owner gives the memory: a memfd that a service manager keeps, a file on tmpfs, persistent memory, or, in a
 * simulator, plain bytes. The cache takes its pages from it (struct cache_options, arena). Whoever finds the memory again
 * asks arena_look() what it is, and a cache that is created over it has everything dirty that the last one had.
 *
 *      arena_create()   formats memory             --+
 *                                                    +--> struct arena --> cache_create() --> ... --> arena_close()
 *      arena_open()     takes it over as it is     --+
 *
 * What stands in it, and when what is written there counts: docs/cache.md, "The arena", and cache/arena.c.
 *
 * Power. Memory whose owner gives no `persist` does not outlive a power failure, only the process; what a battery is
 * to protect has to be destaged before the battery ends. With `persist` it outlives both, and then a block is dirty
 * in the arena until the volume has been flushed after it was destaged.
 *
 * Claims. An arena is of use only to a volume that cannot be served without it: see struct cache_owner. So an arena that
 * is not claimed holds nothing that was promised to anybody: format it anew.
 */
#ifndef CACHE_ARENA_H
#define CACHE_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "core/page.h"
#include "core/uuid.h"

enum { ARENA_FORMAT = 1, ARENA_NAME_BYTES = 64, ARENA_TORN_SHOWN = 16 };

struct arena;

/* What it is, and whose. */
struct arena_identity {
    struct uuid arena;               /* drawn when it was formatted */
    struct uuid array, volume, fork; /* fork: the array's history when it was formatted */
    char name[ARENA_NAME_BYTES];     /* of the volume, for people; zero-terminated */
};

/* The memory, lent by the owner. */
struct arena_memory {
    void *base; /* aligned to a page */
    uint64_t bytes;
    /* On return these bytes survive a power failure. NULL: no byte does. */
    void (*persist)(struct arena_memory *, uint64_t off, uint64_t len);
    /* After arena_close(), once nobody holds a page of it any more: it may be unmapped. NULL: nobody wants to know. */
    void (*over)(struct arena_memory *);
};

enum arena_verdict {
    ARENA_NONE,    /* no arena */
    ARENA_DAMAGED, /* was one, but what it says of itself is not to be believed */
    ARENA_TOO_NEW, /* of a later format than this program knows; report.format says which */
    ARENA_CLEAN,   /* nothing in it is dirty */
    ARENA_DIRTY,   /* something is, or something is torn */
};

struct arena_report {
    uint32_t format;
    struct arena_identity identity;
    uint64_t cache_bytes;  /* the cache's size */
    uint64_t dirty_blocks; /* 4 KiB each, with dirty sectors in them */
    uint64_t dirty_bytes;  /* of those sectors */
    /* Blocks that are published but damaged: their bytes are lost. The first of their numbers; UINT64_MAX: not known. */
    uint64_t torn_blocks;
    uint64_t torn[ARENA_TORN_SHOWN];
};

/* How much memory an arena for a cache of so many bytes needs. */
uint64_t arena_bytes(uint64_t cache_bytes);

/* Pure. The report is filled as far as the verdict allows: all of it for CLEAN and DIRTY. */
enum arena_verdict arena_look(const void *base, uint64_t bytes, struct arena_report *out);
const char *arena_verdict_name(enum arena_verdict verdict);

/* Formats the memory, whatever was in it; it has at least arena_bytes(cache_bytes). NULL: no memory for the rest. */
struct arena *arena_create(struct arena_memory *memory, const struct arena_identity *identity, uint64_t cache_bytes);
/*
 * Takes over what arena_look() found CLEAN or DIRTY. If blocks are torn this is refused, unless `despite_torn`: an
 * administrator has been told that their bytes are lost, and that the volume has older ones in their place. NULL: refused,
 * or no memory for the rest.
 */
struct arena *arena_open(struct arena_memory *memory, bool despite_torn);
/* After the cache over it, if there was one, was closed. What is dirty in it stays there. */
void arena_close(struct arena *arena);

/* A cache over it has this size, whatever its options say. */
uint64_t arena_cache_bytes(const struct arena *arena);
/* The array has gone on into another history, and the volume with what is dirty here. */
void arena_set_fork(struct arena *arena, const struct uuid *fork);
const struct arena_identity *arena_identity(const struct arena *arena);
/* Pages that are published: so many blocks whoever finds the memory now would find dirty. */
uint64_t arena_published(const struct arena *arena);

/* --- for the cache over it: block.c publishes, recover.c takes over what was published --- */

uint32_t arena_pages(const struct arena *arena);
bool arena_outlives_power(const struct arena *arena);
/* A pool of its pages; NULL: no memory. While it lasts there is no other. */
struct page_pool *arena_pool_create(struct arena *arena);

/* What is published of a page, a bit a sector; 0: nothing, and only then may the page be changed, or put. */
uint8_t arena_sectors(const struct arena *arena, const struct page *page);
uint64_t arena_number(const struct arena *arena, const struct page *page); /* of the block, if something is */
/* These sectors of the page are block `number`'s; `before`, NULL or another page of it that is published, is not any more. */
void arena_publish(struct arena *arena, const struct page *page, uint64_t number, uint8_t sectors,
                   const struct page *before);
/* Of a page that is published other sectors are from now on; 0: none, it is withdrawn. */
void arena_republish(struct arena *arena, const struct page *page, uint8_t sectors);

#endif
