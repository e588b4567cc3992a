/* A cache over a trial disk of random bytes, and requests that a test starts and waits for one by one. */
#ifndef TESTS_UNIT_CACHE_SCENE_H
#define TESTS_UNIT_CACHE_SCENE_H

#include "cache/cache.h"
#include "tests/unit/cache/trialdisk.h"
#include "tests/unit/lib/testalloc.h"

enum { SCENE_DISK = 4 * 1024 * 1024 + 1024, SCENE_ROW = 4 * 16384, SCENE_PAGES = 65 };

struct scene {
    struct testloop *t;
    struct trialdisk *disk;
    struct cache *cache;
};

struct scene_call {
    struct blk_req req;
    bool over;
    struct page *pages[SCENE_PAGES];
};

struct scene *scene_create(const struct cache_options *options); /* NULL: usual ones */
void scene_destroy(struct scene *s);                             /* closes the cache first, if there is one */
void scene_submit(struct scene *s, struct scene_call *call);     /* req but for done and pages is set */
void scene_drain(struct scene *s, struct scene_call *call);
void scene_read(struct scene *s, struct scene_call *call, uint64_t off, uint64_t len);
/* Bytes from a seed. */
void scene_write(struct scene *s, struct scene_call *call, unsigned flags, uint64_t off, uint64_t len, uint64_t seed);
enum blk_status scene_wait(struct scene *s, struct scene_call *call);
void scene_call_over(struct scene_call *call); /* put its pages */
/* Does it hold what is on the disk? */
bool scene_call_reads(const struct scene *s, const struct scene_call *call);

#endif
